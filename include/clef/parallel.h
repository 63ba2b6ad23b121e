/* clef/parallel.h — training one model on several ranks (clef/group.h): as a pipeline of stages, or with its layers in shards.

   Every rank makes the same net, from the same seed, and calls the same functions in the same order.  What a rank does not own it does not
   compute.  Both ways go together, and with copies of the model that each train on a part of the data, over groups that
   clef_group_split makes. */
#ifndef CLEF_PARALLEL_H
#define CLEF_PARALLEL_H
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
   after the other, as far as its kernels round alike.  Batch norm takes the statistics of a micro-batch, and its running ones move
   once for each, in order.  Dropout drops what it would drop on that one device: the random numbers of a layer do not depend on the cut.

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
    bool recompute;     /* of a micro-batch that waits for its gradient a stage keeps the input alone, and computes the rest once more */
    const int *cut;     /* stage s begins at layer cut[s - 1]: size - 1 numbers, ascending.  NULL: where stages take about as long */
    clef_tensor *input; /* a micro-batch, whose values do not matter: stages are made equal by the nominal seconds that their layers take for it
                           on its device (as clef_place_auto does); NULL: by their parameters' elements */
} clef_pipeline_options;

/* Cuts a clef_sequential over the ranks of a group.  Layers are its children and those of a clef_sequential inside, counted from 0; a
   stage without a layer of its own is CLEF_INVALID.  A parameter that layers of several stages share (an embedding and the head) is
   trained by all of them with the sum of their gradients; a shared buffer is CLEF_INVALID.  Every rank of the group calls it.
       clef_pipeline *pipe = clef_pipeline_new(net, all, &(clef_pipeline_options){.micro_batches = 8});  */
CLEF_API clef_pipeline *clef_pipeline_new(clef_module *net, clef_group *group, const clef_pipeline_options *options);
/* The first layer of a stage; the number of layers for the stage behind the last; -1 where there is none. */
CLEF_API int clef_pipeline_first_layer(const clef_pipeline *pipeline, int stage);
/* Forward and backward of one batch.  Gradients are added to those of the stage's own parameters, as by clef_backward; clef_step then
   updates these, as it skips parameters without a gradient.  loss: a mean over a batch's items, one number; where it leaves targets
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

#ifdef __cplusplus
}
#endif
#endif
