/* graph_internal.h — the graph room's state in a context. */
#ifndef CLEF_GRAPH_INTERNAL_H
#define CLEF_GRAPH_INTERNAL_H
#include "graph/graph.h"

/* Made in one run of a module that recomputes (recompute.c). */
struct clef__checkpointed_segment {
    clef__checkpointed_segment *outer;
    int refs, depth;
    uint64_t walk;       /* the walk in which `after` means something */
    clef__output *after; /* the first gradient that came in it; the walk holds it */
};

enum { CLEF__NODE_CLASSES = 32 }; /* sizes of nodes */
typedef struct clef__graph {
    clef__evaluator evaluate; /* NULL until the context is open */
    uint64_t step;            /* number of the present one, from 1 */
    uint64_t made;            /* temporaries made in it: an empty step does not count */
    uint64_t handles;         /* made so far */
    uint64_t traversal;
    uint64_t nodes; /* made so far */
    bool no_grad, differentiating;
    clef_dtype autocast;                 /* F32: off */
    bool closing;                        /* ops made for this context are gone */
    clef__checkpointed_segment *segment; /* the innermost one that is open */
    clef__share share, window;
    bool dry;                                              /* see dry.c */
    clef_plan_size largest, largest_on[CLEF__MAX_DEVICES]; /* of all devices together; of each */
    clef_random_state random_before;
    clef_planned_launch_fn on_launch; /* told of each launch in a dry run */
    void *on_launch_user;
    clef__slots slots;
    clef__node *spare[CLEF__NODE_CLASSES]; /* memory of nodes that are gone (node_memory.c) */
    size_t spare_bytes;
    clef__tensor *temporaries;
    clef__tensor *kept;    /* by users, by owners in the library or by both */
    clef__output **wanted; /* what backward was called on: computed at the end of the step */
    int n_wanted, wanted_capacity;
    clef__output *ordered; /* of the node made last whose op is ordered, until it was computed */
    clef__output **roots;  /* scratch of the end of a step */
    int roots_capacity;
} clef__graph;

/* In a walk along one of its lists: the next tensor's output, and the tensor behind. */
static inline void clef__fetch_next(const clef__tensor *t) {
    if (!t->next) return;
    clef__fetch(t->next->out, sizeof(clef__output));
    clef__fetch(t->next->next, sizeof *t);
}
/* The context's graph state, made at first need; NULL when out of memory (the error is set). */
clef__graph *clef__graph_of(clef_context *ctx);
/* node_memory.c: a node that nobody refers to any more, without what it held. */
void clef__node_free(clef__graph *graph, clef__node *node);
/* Gives back the memory that is kept for nodes to come. */
void clef__free_spare_nodes(clef__graph *graph);
/* Lets go of the value that t is to come back to. */
void clef__forget_before(clef__tensor *t);
/* NULL is allowed. */
clef__checkpointed_segment *clef__checkpointed_segment_retain(clef__checkpointed_segment *segment);
void clef__checkpointed_segment_release(clef__checkpointed_segment *segment);
/* The outputs of inputs that op's precision casts, in place of their own.  False with the error set. */
bool clef__autocast_inputs(const clef_op *op, clef_tensor *const *inputs, int n, clef__output **out);
/* A new node, whose op is ordered, comes behind those made before; its number. */
void clef__sequence(clef__node *node);
/* Forgets the last one if it was computed. */
void clef__sequence_settle(clef__graph *graph);
/* The copies that one walk of backward made of nodes in segments. */
typedef struct clef__node_copy {
    clef__node *node;
    int level, next;
    bool ordered;
} clef__node_copy;
typedef struct clef__copies {
    uint64_t mark; /* the walk's */
    clef__node_copy *copy;
    int n, capacity;
} clef__copies;
/* The walk comes to a node with this gradient: copies for its segments are made after the first that came in. */
void clef__copies_reach(clef__copies *c, const clef__node *node, clef__output *gradient);
/* What the gradient of `reader` is to see of `out`, an output or an input of it; NULL with the error set. */
clef__output *clef__copies_get(clef__copies *c, clef__output *out, const clef__node *reader);
void clef__copies_free(clef__copies *c);
/* The sum of a leaf's gradient and another that came to it from backward, as this rank's part. */
clef_tensor *clef__add_part(clef__tensor *leaf, clef_tensor *gradient, clef_tensor *(*add)(clef_tensor *, clef_tensor *));
/* The gradient as all see it: gathered, where it is cut. */
clef_tensor *clef__visible_gradient(const clef__tensor *leaf);
/* Notes that the leaf has another gradient; part: this rank's part alone. */
void clef__note_gradient(clef__tensor *leaf, bool part);
/* Fails with one line in op's name unless `grad` could be a gradient of t: same context, device, shape and dtype. */
clef_status clef__check_gradient(const char *op, const clef__tensor *t, const clef__tensor *grad);
/* The value of the temporary `own`, a handle nobody else has, becomes leaf's gradient.  Cannot fail. */
void clef__take_gradient(clef__tensor *leaf, clef_tensor *own);
#endif
