/* parallel.h — inside the parallel room: what a pipeline is.

   A stage is a run of the net's layers.  What enters each stage is known on all ranks from a dry run (borders.c), so nobody sends
   shapes.  In which order a stage goes through its micro-batches follows from numbers alone (actions.c). */
#ifndef CLEF_PARALLEL_PARALLEL_H
#define CLEF_PARALLEL_PARALLEL_H
#include "clef/parallel.h"
#include "graph/graph.h"
#include "nn/module.h"

/* Counters of random numbers for one micro-batch of a copy, or one part of a batch. */
#define CLEF__COUNTERS_EACH ((uint64_t)1 << 32)

/* A tensor of the net, and the stages that have it. */
typedef struct clef__pipeline_tensor {
    clef_tensor *tensor;
    bool is_buffer, own; /* own: this rank's stage has it */
    int owner, last;     /* the first and the last stage that have it */
    uint64_t where;      /* a hash of all of them */
    bool tied;           /* others have it too: */
    clef_group *group;   /* these, where this rank is one of them */
    clef__aside before;  /* in a step: the gradient that a tied one had */
} clef__pipeline_tensor;

/* What enters a stage. */
typedef struct clef__border {
    clef_shape shape;
    clef_dtype dtype;
    bool graded;    /* its gradient goes back */
    uint64_t draws; /* counters of random numbers that the stage draws for one micro-batch */
} clef__border;

/* What a micro-batch of one size is at each border. */
typedef struct clef__passage {
    int64_t items;
    clef__border *border; /* of each stage, and of the loss, which is what comes behind the last */
} clef__passage;

enum { CLEF__PASSAGES = 2 }; /* micro-batches have two sizes at most */

struct clef_pipeline {
    clef_pipeline *next;
    clef_module *net;
    clef_context *ctx;
    clef_group *group;
    clef_pipeline_options options;
    int stages, stage; /* this rank's */
    clef_module **layer;
    int layers;
    int *first; /* layer of each stage, and the number of layers */
    clef__pipeline_tensor *tensor;
    int tensors;
    clef__passage passage[CLEF__PASSAGES];
    uint64_t version;     /* of the modules' trees, when layers and tensors were listed */
    uint64_t passage_key; /* what these were found for; 0: nothing */
    clef_tensor **list;   /* scratch: room for all tensors twice, and a few more */
};

bool clef__pipeline_is_of(const clef_pipeline *p, const clef_module *net);

/* shared.c: the parameters that this stage has not are other ranks' to compute; or, all values being here, they are not. */
void clef__pipeline_leave(const clef_pipeline *p, bool elsewhere);

/* stages.c: layers, where they are cut, and which tensors are whose. */
clef_status clef__pipeline_cut(clef_pipeline *p);
/* Lists layers and tensors again where some were replaced (clef_module_replace); the cut stays. */
clef_status clef__pipeline_follow(clef_pipeline *p);
/* The stage's layers, one after the other. */
clef_tensor *clef__stage_forward(const clef_pipeline *p, int stage, clef_tensor *x);

/* One call of clef_pipeline_step. */
typedef struct clef__pipeline_call {
    clef_tensor *x, *y;
    clef_loss_fn loss;
    const clef_loss_options *options;
    int64_t items;
    int micro_batches, most; /* most: where there are items enough */
    clef__share share;       /* of the batch */
} clef__pipeline_call;

/* The items of micro-batch k, and where they begin. */
int64_t clef__micro_items(const clef__pipeline_call *call, int k);
int64_t clef__micro_start(const clef__pipeline_call *call, int k);
/* Are x and y what a loader gave this copy of the net, one of several?  Then these are micro-batch k's items, as part of the whole batch. */
bool clef__is_copy(const clef__pipeline_call *call);
clef__share clef__micro_window(const clef__pipeline_call *call, int k);
/* borders.c: fills the passages for this call, unless they are there. */
clef_status clef__pipeline_measure(clef_pipeline *p, const clef__pipeline_call *call);
const clef__passage *clef__passage_of(const clef_pipeline *p, const clef__pipeline_call *call, int k);

/* actions.c: what a stage does, one after the other; 2·m actions. */
typedef struct clef__action {
    int micro_batch;
    bool backward;
} clef__action;
void clef__pipeline_actions(clef_pipeline_schedule schedule, int stages, int stage, int micro_batches, clef__action *action);

/* shared.c: gradients of tied parameters.  Those that were there before a step are put aside; behind it the sums over the stages are added
   to them.  With sum false nothing is summed: they only come back, after a failure. */
void clef__tied_put_aside(clef_pipeline *p);
clef_status clef__tied_add(clef_pipeline *p, bool sum);

/* How one layer is cut; its module's `shard`. */
typedef struct clef__shard {
    clef__layer layer;
    clef_forward_fn whole; /* its forward while it is whole */
    clef_group *group;
    int dim;
    clef_shard_options options;
    int64_t first; /* embedding by entries: the first that this rank has */
    bool is_whole; /* for a while: see clef__shards_whole */
} clef__shard;

/* shard.c: the group over which a parameter is cut; NULL: it is whole. */
clef_group *clef__cut_over(const clef_tensor *parameter);
bool clef__has_shards(const clef_module *net);
/* Cut layers get their whole weights, and the optimizer (NULL: none) their whole states, to be saved or read; with whole false the parts come back.
   Meanwhile nothing may be computed with the net.  Every rank calls it. */
clef_status clef__shards_whole(clef_module *net, clef_optimizer *opt, bool whole);

/* norm.c, without recording: the sum of squares of n parameters' gradients, parts of cut ones over all ranks; then all are multiplied. */
clef_tensor *clef__sum_of_squares(clef_context *ctx, clef_tensor *const *t, int n);
clef_status clef__scale_gradients(clef_tensor *const *t, int n, clef_tensor *factor);
#endif
