/* groups.h — which captured nodes run together, and in which order.

   simplify.c (dead code, common subexpressions) → overwrite.c (which updates happen in place) → fuse.c (which pointwise nodes share a
   kernel), epilogue.c and prologue.c (which are done in the store or the loads of another) → order.c (in which order groups run). */
#ifndef CLEF_GROUPS_H
#define CLEF_GROUPS_H
#include "plan/capture/capture.h"

#include "../../../cl/epilogue_ops.h"

/* Limits of one pointwise kernel. */
enum {
    CLEF__PW_OPERANDS = 24,
    CLEF__PW_STEPS = 48,
    CLEF__PW_BYTES = 1024 /* of arguments; every full profile takes that many, CL_DEVICE_MAX_PARAMETER_SIZE */
};
/* The most that its arguments take over this shape, whatever the layouts. */
size_t clef__pointwise_bytes(clef_shape shape, int constants, int tensors);

/* A kernel for each formula that is computed where a reduction reads it takes a driver tenths of a second to compile. */
enum { CLEF__PROLOGUES = 8 };

/* ---- groups: what runs as one launch (pointwise), or one lowering and what its store does besides (everything else) ---- */

typedef struct clef__group_edge {
    int group;
    bool through_view;
} clef__group_edge;
typedef struct clef__group_edges {
    clef__group_edge *edge;
    int n, capacity;
} clef__group_edges;
/* The ops of an epilogue: bits of cl/epilogue_ops.h, and the captured nodes of their operands. */
typedef struct clef__epilogue_ops {
    int ops, extra, scale;
} clef__epilogue_ops;
typedef struct clef__group {
    int *member, n_members, member_capacity; /* captured nodes, ascending; of one with several outputs the first */
    int kernel;                              /* the member that is not pointwise; -1: all are */
    clef__group_edges needs, users;
    int level;                   /* above those of all it needs */
    int merged_into;             /* -1, or the group that took its members */
    int emitted;                 /* of `needs`, while groups are put in order */
    clef__epilogue_ops epilogue; /* the members behind the kernel */
    uint64_t made;               /* the number of the member that was made last (order.c) */
    bool final;                  /* no other group needs it (order.c) */
    bool urgent;                 /* its kernel has an effect, or all that need it are urgent (order.c): */
    uint64_t ready;              /* when the last of what it needs was made, */
    uint64_t turn;               /* and when the first effect was made that it is for */
    uint64_t visited;
} clef__group;

typedef struct clef__lifted {
    int group, level;
} clef__lifted;
typedef struct clef__grouping {
    clef__group *group;
    int n;
    int *order, n_order;               /* live groups, dependencies first */
    uint64_t formula[CLEF__PROLOGUES]; /* of those that are computed where they are read */
    int n_formulas;
    uint64_t visit;
    uint64_t steps;            /* edges followed so far: every search and every order goes by clef__group_of, but for overwrite.c */
    clef__lifted *queue;       /* scratch of one search; level: the one before */
    int *reader, n_readers;    /* captured nodes that run before an update overwrites what they read (overwrite.c) */
    int *sequence, n_sequence; /* captured nodes, each behind all that runs before it; NULL: as they were captured */
} clef__grouping;

static inline bool clef__same_type(const clef__output *a, const clef__output *b) {
    return a->dtype == b->dtype && a->device == b->device && clef_shape_equal(a->shape, b->shape);
}

/* simplify.c: fills same_as. */
clef_status clef__simplify(clef__graph_view *g);
/* overwrite.c: which updates overwrite their input, and what runs before them for that; `base` is known.  False without memory. */
bool clef__find_overwrites(clef__graph_view *g, clef__grouping *gr);
/* fuse.c: groups and their order.  fuse = false: every node alone. */
clef_status clef__fuse(clef__graph_view *g, bool fuse, clef__grouping *out);
/* order.c: fills `order`; false when out of memory. */
bool clef__order(clef__graph_view *g, clef__grouping *gr);
/* The group that has the members of group i now. */
int clef__group_of(clef__grouping *gr, int i);
/* Does nothing else wait for this group?  Others may without reading it (clef__node.after). */
bool clef__only_user(clef__grouping *gr, int group, int user);
/* Does a path lead from low up to high, which reads it, through a third group?  Of very many groups: yes, to be safe. */
bool clef__path_between(clef__grouping *gr, int low, int high);
void clef__grouping_free(clef__grouping *grouping);
/* epilogue.c: may the pointwise `captured` be done in the store of the group that makes its input j?  Says how. */
bool clef__may_join_epilogue(const clef__graph_view *g, clef__grouping *gr, int captured, int j, clef__epilogue_ops *out);
/* Do these ops take the one number, the one operand, that an epilogue may have?  And the name of a single op. */
static inline bool clef__epilogue_takes_number(int ops) { return ops & (EPILOGUE_SCALE | EPILOGUE_LEAK); }
static inline bool clef__epilogue_takes_operand(int ops) { return ops & (EPILOGUE_ADD | EPILOGUE_GATE); }
const char *clef__epilogue_op_name(int bit);
/* prologue.c: may the kernel `captured` compute its input, which group `maker` makes, where it reads it? */
bool clef__may_join_prologue(clef__graph_view *g, clef__grouping *gr, int captured, int maker);
#endif
