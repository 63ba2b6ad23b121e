/* clef/parallel.h — training over ranks (clef/group.h) in ways that need module, optimizer and loader together: a net as a pipeline of stages,
   its layers in shards, a batch in fixed parts.

   Every rank makes the same net, from the same seed, and calls the same functions in the same order.  What a rank does not own it does not
   compute.  Pipelines and shards go together, and with copies of the model that each train on a part of the data, over groups that
   clef_group_split makes. */
#ifndef CLEF_PARALLEL_H
#define CLEF_PARALLEL_H
#include "data.h"
#include "group.h"
#include "optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- pipelines ----
   The net's layers are cut into as many stages as the group has ranks, in order: rank r has stage r.  A batch goes through them in m
   micro-batches of ⌊n/m⌋ items, the first n mod m of them one larger, so several stages work at the same time.  Gradients are those of

       L = Σ over k of n_k/n · loss(net(x_k), y_k)

   over micro-batches k of n_k items, added up in the order of k on each rank: the bits of one device that takes the same micro-batches one
   after the other, as far as its kernels round alike; gradients that stages share, and the norm for clipping, are summed by stages first.
   Batch norm takes the statistics of a micro-batch, and its running ones move once for each, in order.  Dropout drops what it would drop on
   that one device: the random numbers of a layer do not depend on the cut.  A layer that clef_module_replace puts in takes the place of the
   old one, on all ranks; where the number of layers changes, or parameters come to other stages (CLEF_STATE), call clef_pipeline_gather and make
   a new pipeline.  Copies of a pipeline, whose batches a loader shares, each drop by their own items; a step then takes 2^32 counters of random
   numbers for each micro-batch (CLEF_INVALID where one draws more).

   Stages are busy m/(m + p - 1) of the time with p of them, if they take as long: m = 4p leaves a fifth.  GPipe: Huang et al.,
   "GPipe: efficient training of giant neural networks using pipeline parallelism", 2019; 1F1B: Narayanan et al., "PipeDream", 2019, and
   "Efficient large-scale language model training on GPU clusters using Megatron-LM", 2021 (with a flush at each step's end). */
typedef struct clef_pipeline clef_pipeline; /* owned by the net's context; freed with it */

typedef enum clef_pipeline_schedule {
    CLEF_PIPELINE_1F1B, /* backward as soon as it can be: stage s keeps values of at most p - s micro-batches */
    CLEF_PIPELINE_GPIPE /* all forward, then all backward: values of m micro-batches are kept */
} clef_pipeline_schedule;

typedef struct clef_pipeline_options {
    int micro_batches; /* of each step, at most one for each item; 0: 4 for each stage */
    clef_pipeline_schedule schedule;
    bool recompute; /* of a micro-batch that waits for its gradient a stage keeps the input alone, and computes the rest again */
    const int *cut; /* stage s begins at layer cut[s - 1]: size - 1 numbers, ascending.  NULL: where stages take about as long */
    clef_tensor *input; /* a micro-batch, whose values do not matter: stages are made equal by the nominal seconds that their layers
                           take for it on its device (as clef_place_auto does); NULL: by their parameters' elements */
} clef_pipeline_options;

/* Cuts a clef_sequential over the ranks of a group.  Layers are its children and those of a clef_sequential inside, counted from 0; a
   stage without a layer of its own is CLEF_INVALID.  A parameter that layers of several stages share (an embedding and the head) is
   trained by all of them with the sum of their gradients; a shared buffer is CLEF_INVALID.  Every rank of the group calls it.
       clef_pipeline *pipe = clef_pipeline_new(net, all, &(clef_pipeline_options){.micro_batches = 8});  */
CLEF_API clef_pipeline *clef_pipeline_new(clef_module *net, clef_group *group, const clef_pipeline_options *options);
/* The first layer of a stage; the number of layers for the stage behind the last; -1 where there is none. */
CLEF_API int clef_pipeline_first_layer(const clef_pipeline *pipeline, int stage);
/* Forward and backward of one batch.  Gradients are added to those of the stage's own parameters, as by clef_backward; clef_step then
   updates these, as it skips parameters without a gradient; states of other stages' parameters take no memory, and begin anew there until
   clef_pipeline_gather brings them.  loss: a mean over a batch's items, one number; where it leaves targets
   out (ignore_index), a micro-batch counts by its items all the same.  x and y have the same first dimension on all ranks (CLEF_SHAPE);
   the first stage reads x, the last y.  *mean (may be NULL) becomes L on all ranks, a temporary that can be read as long as a loss.
   A module's forward must make values of the same shapes, and draw as many random numbers, whenever its inputs have the same shapes and
   its mode is the same: that is found out once, in a dry run (clef_set_dry_run) of the whole net on each rank.  Temporaries that a forward
   made end with their micro-batch.
       for (clef_batch b; clef_next(data, &b);) {
           clef_pipeline_step(pipe, b.x, b.y, clef_cross_entropy, NULL, &loss);
           clef_step(opt);
       }  */
CLEF_API clef_status clef_pipeline_step(clef_pipeline *pipeline, clef_tensor *x, clef_tensor *y, clef_loss_fn loss,
                                        const clef_loss_options *options, clef_tensor **mean);
/* clef_clip_grad_norm with the norm of all stages' gradients, shared ones counted once.  Every rank calls it and gets the norm. */
CLEF_API clef_tensor *clef_pipeline_clip_grad_norm(clef_pipeline *pipeline, double max_norm);
/* Brings all parameters and buffers to all ranks, each from a stage that has it, and the optimizer's states and counts too (NULL: none): before
   the net is saved, evaluated or read as a whole.
       if (clef_pipeline_gather(pipe, opt) == CLEF_OK && clef_group_rank(all) == 0) clef_save(net, "net.safetensors");  */
CLEF_API clef_status clef_pipeline_gather(clef_pipeline *pipeline, clef_optimizer *opt);

/* ---- shards: layers that are spread over the ranks of a group ----
   Each rank keeps a part of a layer's weight and computes a part of its result.  All ranks have the same inputs and compute the same loss;
   a value is whole (the same on all ranks) or split (each rank has its part, in rank order along one dimension).  Parameters that are
   not cut get the same gradients on all ranks, if what reads them is whole.  Shoeybi et al., "Megatron-LM: training multi-billion
   parameter language models using model parallelism", 2019.

   Random numbers are the same on all ranks (clef_seed): dropout of a whole value drops the same everywhere, of a split one the same in each
   part. */
typedef struct clef_shard_options {
    bool gather_output; /* dim 0: the result is made whole; else it stays split */
    bool whole_input;   /* dim 1: the input is whole, and each rank takes its part; else it is split already */
} clef_shard_options;
/* Cuts the weights of all layers of a net whose dotted names match a pattern: * stands for any part of a name between dots, ? for one
   letter; "" is the net itself.  With n ranks:
     linear     dim 0  y_r = x·W_rᵀ + b_r, W_r [out/n,in]: x whole, y split along its last dimension, as is the bias
                dim 1  y = Σ x_r·W_rᵀ + b, W_r [out,in/n]: x split along its last dimension, y whole, the bias added once
     conv2d     dim 0  output channels: x whole, y split along dimension 1
                dim 1  input channels: x split along dimension 1, y whole; without groups
     embedding  dim 0  entries: indices whole, y whole, each rank looks up those that it has
                dim 1  width: indices whole, y split along its last dimension
   The projections of clef_nn_gpt and clef_nn_llama are linears: queries, keys and values of dim 0 leave each rank some of the heads, which its ranks
   must divide, and what follows them is of dim 1.
   A linear of dim 0, something pointwise and a linear of dim 1 take one sum over the ranks forward and one backward.  A weight that two
   layers share is cut once, if both are cut alike.
   Call it on all ranks, with a net that is the same on all, and before the optimizer is made; parameters stay the tensors that they
   were, with another shape.  CLEF_SHAPE where a size cannot be cut into equal parts, CLEF_INVALID where no name matches, or a layer is
   of another kind or cut already; then nothing changes.
       clef_module_shard(net, "blocks.*.fc1", all, 0, NULL);
       clef_module_shard(net, "blocks.*.fc2", all, 1, NULL);  */
CLEF_API clef_status clef_module_shard(clef_module *net, const char *pattern, clef_group *group, int dim,
                                       const clef_shard_options *options);
/* Brings the whole weights back on all ranks, of all layers of the net that are cut: for clef_save, or to go on without the group.  Layers outside
   of the net that share a weight with one of them are whole again, too.  Gradients are cleared.  Cut again alike, the layers go on with the optimizer that they had.
       clef_module_unshard(net);  if (clef_group_rank(all) == 0) clef_save(net, "net.safetensors");  */
CLEF_API clef_status clef_module_unshard(clef_module *net);
/* clef_clip_grad_norm with the norm of the whole net's gradients: those of cut layers are of all ranks' parts, others count once.  Every rank calls
   it and gets the norm.  Of a pipeline whose layers are cut, clef_pipeline_clip_grad_norm does the same.
       clef_shard_clip_grad_norm(net, 1);  clef_step(opt);  */
CLEF_API clef_tensor *clef_shard_clip_grad_norm(clef_module *net, double max_norm);
/* clef_cross_entropy of logits that are split along their classes: [n,c/ranks,...] of each rank, class indices [n,...] whole, the same loss
   on all ranks.  The logits are never gathered: with m = max and Σ over all classes,
       loss = log Σ exp(x - m) - (1-ε)·(x[t] - m) - ε/c·Σ (x - m)
   takes one maximum and one sum of three numbers for each target over the group, and nothing backward.  CLEF_DTYPE for probabilities as
   target; the rest is as with clef_cross_entropy.
       clef_tensor *loss = clef_parallel_cross_entropy(clef_forward(net, x), y, all, NULL);   the head: cut with dim 0, not gathered  */
CLEF_API clef_tensor *clef_parallel_cross_entropy(clef_tensor *logits, clef_tensor *target, clef_group *group,
                                                  const clef_loss_options *options);

/* For modules of your own: borders between what is whole and what is split.  Each is the other's gradient: copy and reduce, gather and
   scatter.  (clef_all_reduce has another gradient: that of the sum of all ranks' losses.) */
/* x, whole, for parts that each rank computes of it: x itself.  Gradient: the sum over the ranks. */
CLEF_API clef_tensor *clef_copy_to_group(clef_tensor *x, clef_group *group);
/* The sum over the ranks, whole.  Gradient: the result's. */
CLEF_API clef_tensor *clef_reduce_from_group(clef_tensor *x, clef_group *group);
/* The parts x [n, …], one behind the other along `dim`: whole.  Gradient: this rank's part of the result's. */
CLEF_API clef_tensor *clef_gather_from_group(clef_tensor *x, clef_group *group, int dim);
/* This rank's part of x, whole, cut along `dim` into equal parts (CLEF_SHAPE).  Gradient: the parts' ones gathered. */
CLEF_API clef_tensor *clef_scatter_to_group(clef_tensor *x, clef_group *group, int dim);

/* ---- the same bits, whatever the number of ranks ---- */

/* The loss of one part of a batch: a mean over its items, of one element; NULL fails.  part: its inputs and targets, size, first and all. */
typedef clef_tensor *(*clef_part_loss_fn)(clef_module *net, const clef_batch *part, void *user);

typedef struct clef_parts_options {
    clef_group *group; /* that shares the batch; NULL: this rank alone */
    int parts;         /* P, a power of two that the number of ranks divides; 0: the batch's (clef_loader_options.parts) */
} clef_parts_options;

/* In place of forward, loss and backward: cuts the batch of all ranks into P parts of n_p items each, whatever the number of ranks, and
   computes each apart.  With w_p = n_p / Σ n_q, and every sum Σ a balanced binary tree over the parts in order:
       gradient of a parameter:  g = Σ w_p · dL_p/dθ,    *mean (if not NULL; a temporary) = Σ w_p · L_p,
       floating buffer that a part changed, such as batch norm's running statistics:  b = Σ w_p · b_p,  each b_p made from the b before the call;
       other buffers: as part 0 leaves them.
   1, 2, 4, … P ranks, as threads or processes, so end with the same bits, on devices of one type and driver, with no_tuning; where they differ in
   compute units, with one clef_options.sum_units.  It costs what P small batches cost, on one rank one after the other.
   Random numbers: part p draws from counters of its own, 2³² of them (CLEF_INVALID where that is too few).  Batch norm normalises by part.  A part
   without items is left out: it counts as zeros.
   Gradients are added to those that are there, and are those of all ranks: clipping follows as ever, and optimizers, with or without their
   `.group`, take them as they are.  clef_group_weight is not looked at.  A parameter that no part used gets no gradient; that is known at once
   unless this rank's parts did not use one, and then this rank waits for the others.
   Computes what is pending of the net, and on failure changes neither gradients nor buffers.  Every rank calls it.  CLEF_INVALID: P does not
   fit, the batch has no items or is not this rank's share; CLEF_STATE: a part's loss depends on no parameter.
       static clef_tensor *loss(clef_module *net, const clef_batch *b, void *user) {
           return clef_cross_entropy(clef_forward(net, b->x), b->y, NULL);
       }
       for (clef_batch b; clef_next(data, &b);) {
           clef_backward_parts(net, &b, loss, NULL, &(clef_parts_options){.group = all}, NULL);
           clef_step(opt);
       }  */
CLEF_API clef_status clef_backward_parts(clef_module *net, const clef_batch *batch, clef_part_loss_fn loss, void *user,
                                         const clef_parts_options *options, clef_tensor **mean);

#ifdef __cplusplus
}
#endif
#endif
