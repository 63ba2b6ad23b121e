/* capture.h — the pending graph as an array: inputs before consumers, with a key that describes it completely. */
#ifndef CLEF_CAPTURE_H
#define CLEF_CAPTURE_H
#include "graph/graph.h"

/* One output of a node of an evaluation.  Those of a node that is to be computed lie side by side, also those that nobody reads. */
typedef struct clef__captured {
    clef__output *out;
    clef__node *node;      /* whose output it is */
    bool leaf;             /* already computed: an input of the plan */
    bool there;            /* already computed, and no leaf: only the others of its node are to be computed */
    bool donatable;        /* a leaf nobody else will look at again: its memory may be taken over */
    bool lasts;            /* a leaf that is a parameter, which stays as it is: neither written to here nor by the program itself */
    bool updated;          /* a leaf of which one that is captured is an update (clef_op.updates) */
    bool overwrites;       /* an update that may write into the memory of what it updates (overwrite.c) */
    int reader, n_readers; /* of clef__grouping.reader: what must run before it for that */
    bool output;           /* must be in memory of its own afterwards */
    int same_as;           /* -1, or the earlier one that is the same value */
    int group;             /* -1 for leaves, constants and views */
    int uses;              /* by how many inputs of other captured nodes it is read (fuse.c) */
    int inner_uses;        /* scratch of fuse.c */
    int base;              /* the one whose memory it looks at: itself, unless it is a view (fuse.c) */
} clef__captured;

typedef struct clef__visit {
    clef__output *out;
    int next;
} clef__visit; /* of the collecting walk: an output to compute, the next input of its node */

typedef struct clef__graph_view {
    clef__captured *captured;
    int n, capacity;
    uint64_t mark;
    uint64_t *key; /* equal keys mean equal plans */
    int key_words, key_capacity;
    uint64_t hash;
    clef__visit *stack; /* scratch of capture.c; edges: how many captured nodes read each */
    int stack_capacity, *edges, edge_capacity;
} clef__graph_view;

/* Does it stand for its node's work: the first output of one that is to be computed? */
static inline bool clef__is_work(const clef__captured *captured) { return !captured->leaf && captured->out == captured->node->out; }
/* Does somebody want it: another captured node, or the program? */
static inline bool clef__is_wanted(const clef__captured *captured) { return captured->output || captured->uses > 0; }
/* Is it to be seen as the memory of its input? */
static inline bool clef__is_view(const clef__captured *captured) {
    return !captured->leaf && captured->node->op->kind == CLEF__VIEW;
}
/* What stands for an output in this evaluation, after common subexpressions. */
int clef__captured_of(const clef__graph_view *g, const clef__output *out);

/* Collects what is pending below the roots. */
clef_status clef__collect(clef_context *ctx, clef__output *const *roots, int n, clef__graph_view *g);
void clef__graph_view_free(clef__graph_view *g);
/* The constant behind `captured`, through views; -1 if it is none. */
int clef__constant_behind(const clef__graph_view *g, int captured);
#endif
