/* graph_internal.h — the graph room's state in a context. */
#ifndef CLEF_GRAPH_INTERNAL_H
#define CLEF_GRAPH_INTERNAL_H
#include "graph/graph.h"

typedef struct clef__graph {
    uint64_t generation;          /* number of the present step */
    uint64_t made;                /* temporaries made in it: an empty step does not count */
    uint64_t traversal;
    bool no_grad;
    bool dry;                     /* see dry.c */
    clef_plan_size largest;
    clef_random_state random_before;
    clef_tensor *temporaries;
    clef_tensor *kept;            /* by users, by owners in the library or by both */
    clef__node **wanted;          /* what backward was called on: computed at the end of the step */
    int n_wanted, wanted_capacity;
} clef__graph;

/* The context's graph state, made at first need; NULL when out of memory (the error is set). */
clef__graph *clef__graph_of(clef_context *ctx);
/* Lets go of what a dry run remembers of t. */
void clef__forget_before(clef_tensor *t);
/* Has this node computed at the end of the step. */
clef_status clef__want(clef_context *ctx, clef__node *node);
/* Fails with one line in op's name unless `grad` could be a gradient of t: same context, device, shape and dtype. */
clef_status clef__check_gradient(const char *op, const clef_tensor *t, const clef_tensor *grad);
/* The value of the temporary `own`, a handle nobody else has, becomes leaf's gradient.  Cannot fail. */
void clef__take_gradient(clef_tensor *leaf, clef_tensor *own);
#endif
