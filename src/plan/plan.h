/* plan.h — the structures that the passes hand to each other.

   eval.c collects the pending graph as `items` (inputs before consumers) and a `key` that describes it completely.  A known
   key replays its plan (run.c).  An unknown one goes through the passes: simplify.c (dead code, common subexpressions) →
   fuse.c (which pointwise nodes share a kernel), epilogue.c and prologue.c (which are done in the store or the loads of
   another) → order.c (in which order groups run) → build.c + codegen.c + lower.c (launches over numbered values) → bundle.c
   (small launches that become one) → memory.c and place.c (where values lie) → build.c (kernels compiled, arguments set). */
#ifndef CLEF_PLAN_H
#define CLEF_PLAN_H
#include "plan/lower.h"

/* ---- items: the nodes of one evaluation ---- */

typedef struct clef__item {
    clef__node *node;
    bool leaf;        /* already computed: an input of the plan */
    bool donatable;   /* a leaf nobody else will look at again: its memory may be taken over */
    bool output;      /* must be in memory of its own afterwards */
    int same_as;      /* -1, or the earlier item that computes the same value */
    int group;        /* -1 for leaves, constants and views */
    int uses;         /* by how many inputs of other items it is read (fuse.c) */
    int inner_uses;   /* scratch of fuse.c */
    int base;         /* the item whose memory it looks at: itself, unless it is a view (fuse.c) */
    bool placed;      /* operand is valid */
    clef__operand operand;
} clef__item;

typedef struct clef__visit { clef__node *node; int next; } clef__visit; /* of the collecting walk: a node, its next input */

typedef struct clef__graph_view {
    clef__item *item;
    int n, capacity;
    uint64_t mark;
    uint64_t *key; /* equal keys mean equal plans */
    int key_words, key_capacity;
    uint64_t hash;
    clef__visit *stack; /* scratch of eval.c, as are edges: how many items read each */
    int stack_capacity, *edges, edge_capacity;
} clef__graph_view;

/* Is it to be seen as the memory of its input? */
static inline bool clef__is_view(const clef__item *item) { return !item->leaf && item->node->op->kind == CLEF__VIEW; }
/* The item of a node of this evaluation, after common subexpressions. */
int clef__item_of(const clef__graph_view *g, const clef__node *node);

/* A kernel for each formula that is computed where a reduction reads it takes a driver tenths of a second to compile. */
enum { CLEF__PROLOGUES = 8 };

/* ---- groups: what runs as one launch (pointwise), or one lowering and what its store does besides (everything else) ---- */

typedef struct clef__group_edge { int group; bool through_view; } clef__group_edge;
typedef struct clef__group_edges {
    clef__group_edge *edge;
    int n, capacity;
} clef__group_edges;
/* What a kernel's store does with its results (epilogue.c): bits of cl/after.h, and the items of the operands. */
typedef struct clef__following { int after, extra, scale; } clef__following;
typedef struct clef__group {
    int *member, n_members, member_capacity; /* items, ascending */
    int kernel;                   /* the member that is not pointwise; -1: all are */
    clef__group_edges needs, users;
    int level;                    /* above those of all it needs */
    int merged_into;              /* -1, or the group that took its members */
    int emitted;                  /* of `needs`, while groups are put in order */
    clef__following following;    /* what members behind the kernel do */
    uint64_t made;                /* the number of the member that was made last (order.c) */
    bool final;                   /* no other group needs it (order.c) */
    uint64_t visited;
} clef__group;

typedef struct clef__lifted { int group, level; } clef__lifted;
typedef struct clef__grouping {
    clef__group *group;
    int n;
    int *order, n_order; /* live groups, dependencies first */
    uint64_t formula[CLEF__PROLOGUES]; /* of those that are computed where they are read */
    int n_formulas;
    uint64_t visit;
    clef__lifted *queue; /* scratch of one search; level: the one before */
} clef__grouping;

/* ---- values: memory that the plan gives a place ---- */

typedef enum clef__home { CLEF__LEAF_VALUE, CLEF__ARENA_VALUE, CLEF__OUTPUT_VALUE } clef__home;
typedef struct clef__value {
    clef__home home;
    int item;             /* the leaf it is, or an item that defines it (-1: scratch) */
    int device;
    size_t bytes;
    int first, last;      /* launches that define it and use it last; -1: none */
    int in_place_of;      /* -1, or the arena value whose memory it continues */
    int donor;            /* output: -1, or the leaf value whose buffer it takes over */
    int candidate[4], n_candidates; /* values it may continue: same layout, read element by element by its launch */
    bool donatable, taken;
    size_t offset;        /* arena: bytes */
    clef__buffer *own;    /* arena in debug mode: a buffer of its exact size; input, output: that of the running replay */
} clef__value;

/* ---- launches ---- */

typedef enum clef__arg_kind { CLEF__ARG_TENSOR, CLEF__ARG_LONG, CLEF__ARG_INT, CLEF__ARG_FLOAT, CLEF__ARG_DYNAMIC,
                              CLEF__ARG_CONSTANT } clef__arg_kind;
typedef struct clef__arg {
    clef__arg_kind kind;
    int index;            /* in the kernel */
    bool writes;
    int value;            /* tensor */
    int64_t number;       /* tensor: offset in elements; long, int; dynamic: which of the two */
    float real;
    int item;             /* dynamic, constant: where the number stands; constant: -1 for one that is part of the plan */
    double constant;
    clef_dtype dtype;     /* tensor, constant */
} clef__arg;

typedef enum clef__launch_kind {
    CLEF__LAUNCH_KERNEL,
    CLEF__LAUNCH_COPY,    /* arg[1] is copied to arg[0], between devices */
    CLEF__LAUNCH_PRODUCT  /* by a library: arg[0] times arg[1] to arg[2] */
} clef__launch_kind;
typedef struct clef__launch {
    clef__launch_kind kind;
    char label[64];       /* its op, between those that precede and follow in it; cut where they are many */
    const char *file, *name; /* file: NULL for text alone, and where no kernel is launched */
    clef__code *code;     /* NULL where no kernel is launched */
    clef__arg *arg;
    int n_args, arg_capacity;
    int n_kernel_args;
    int covers;           /* segments (codegen.c); 0: its kernel has none */
    size_t global[3], local[3];
    int device;
    bool tuned;           /* cut as tuning results say */
    bool prepacks;        /* what it writes is its input in another form */
    bool idle;            /* what it would write is there already (prepack.c) */
    clef__kernel *kernel;
    clef__blas_product *product; /* owned; NULL unless it is of that kind */
} clef__launch;

/* An argument that may change between replays; a tensor's is set when it is in another buffer (0: none yet) or place. */
typedef struct clef__bind {
    int launch, arg;
    uint64_t buffer;
    int64_t offset;
} clef__bind;

/* A value that one launch fills from one leaf alone (prepack.c). */
typedef struct clef__prepacked {
    int launch, value, leaf;      /* the last two: values */
    uint64_t made;                /* the number of the node that was the leaf last time, if it was seen */
    bool seen, filled;            /* filled: it has memory of its own, with what was made from that node */
    bool moved;                   /* its arguments point to that memory, and not into the arena */
    int first_bind, n_binds;      /* where it is an argument */
} clef__prepacked;

typedef struct clef__result { int item, value; clef__layout layout; } clef__result;

/* version: raised whenever the buffer is another; 0: there never was one. */
typedef struct clef__arena { clef__buffer *buffer; uint64_t version; } clef__arena;

typedef struct clef__plan {
    struct clef__plan *next;      /* most recently used first */
    uint64_t *key, hash;
    int key_words;
    clef__value *value;
    int n_values, value_capacity;
    clef__launch *launch;
    int n_launches, launch_capacity;
    bool ran;             /* once, whole */
    clef__bind *bind;             /* arguments that every replay sets */
    clef__bind *arena_bind;       /* arguments that point into an arena: set when it moved */
    int n_binds, n_arena_binds;
    clef__prepacked *prepacked;   /* in the order of their launches */
    int n_prepacked;
    clef__bind *prepacked_bind;
    size_t prepacked_bytes;       /* that they have of their own now */
    size_t weight_bytes;          /* of the leaves that they are made from */
    uint64_t made;                /* how many the context made before */
    clef__result *result;         /* what to hand to nodes afterwards */
    int n_results;
    int n_items;
    size_t arena_bytes[16];       /* per device */
    double spared_flops;          /* that the chosen strategies need fewer than the ops' definitions */
    size_t lower_bound;           /* of arena_bytes[0]: the most bytes alive at once */
    clef__arena arena[16];        /* those its arguments point into; not owned */
} clef__plan;

enum { CLEF__MAX_DEVICES = 16 };

/* What a context keeps: its plans, and for each device the arena they share, as large as the largest of them needs.  Only one
   plan runs at a time, and its queues are in order. */
typedef struct clef__trial clef__trial;       /* tune.h */
typedef struct clef__subjects clef__subjects;
typedef struct clef__own_family clef__own_family; /* select.c */
typedef struct clef__plans {
    clef__plan *first; /* most recently used first */
    int n;
    uint64_t made;
    size_t prepacked_bytes, weight_bytes; /* of all plans together; of the one with the most */
    clef__graph_view view; /* of the last evaluation: a replay finds its memory there and allocates none */
    clef__arena arena[CLEF__MAX_DEVICES];
    clef__own_family *family;   /* what is known of those that were asked for */
    const clef__trial *trial;   /* while clef_tune measures: what it tries */
    clef__subjects *subjects;   /* while clef_tune looks for something to measure: where to note it */
} clef__plans;

/* ---- passes ---- */

/* simplify.c: fills same_as. */
clef_status clef__simplify(clef__graph_view *g);
/* fuse.c: groups and their order.  fuse = false: every node alone. */
clef_status clef__fuse(clef__graph_view *g, bool fuse, clef__grouping *out);
/* order.c: fills `order`; false when out of memory. */
bool clef__order(clef__graph_view *g, clef__grouping *gr);
/* The group that has the members of group i now. */
int clef__group_of(clef__grouping *gr, int i);
/* Does nothing else wait for this group?  Others may without reading it (clef__node.after). */
bool clef__only_user(clef__grouping *gr, int group, int user);
void clef__grouping_free(clef__grouping *grouping);
/* epilogue.c: may the pointwise `item` be done in the store of the group that makes its input j?  Says how. */
bool clef__may_follow(const clef__graph_view *g, clef__grouping *gr, int item, int j, clef__following *out);
/* prologue.c: may the kernel `item` compute its input, which group `maker` makes, where it reads it? */
bool clef__may_precede(clef__graph_view *g, clef__grouping *gr, int item, int maker);
/* The constant behind `item`, through views; -1 if it is none. */
int clef__constant_behind(const clef__graph_view *g, int item);
/* bundle.c: small pointwise launches of equal text become one. */
void clef__bundle(clef__lowering *l);
/* memory.c: may value v continue the memory of `from`, as far as their kinds go? */
bool clef__may_continue(const clef__value *v, const clef__value *from);
/* place.c: offsets of n blocks so that blocks alive at the same time never overlap; returns the total.  *steps, unless NULL: how
   many spans that took, a count that depends on no machine.  The bound: the most bytes alive at once.  SIZE_MAX: out of memory. */
typedef struct clef__block { size_t bytes; int first, last; size_t offset; } clef__block;
size_t clef__place(clef__block *block, int n, size_t alignment, uint64_t *steps);
size_t clef__place_lower_bound(const clef__block *block, int n);
clef_status clef__plan_memory(clef__plan *plan, clef_context *ctx);
/* build.c: from the graph to a plan with everything placed; NULL with the error set.  clef__plan_ready makes what it needs to
   run: kernels and arguments. */
clef__plan *clef__plan_build(clef_context *ctx, clef__graph_view *g);
clef_status clef__plan_ready(clef_context *ctx, clef__plan *plan);
/* measure.c */
double clef__spared_flops(const clef__node *node, const clef__strategy *strategy);
clef_plan_size clef__plan_size(const clef__plan *plan, const clef__graph_view *g);
void clef__plan_free(clef__plan *plan);
void clef__launch_free(clef__launch *launch);
/* Makes a work-group no larger than `most`. */
void clef__fit_group(size_t local[3], size_t most);
/* run.c: sets one kernel argument (g may be NULL for those that never change); one replay. */
clef_status clef__plan_set(clef__plan *plan, const clef__graph_view *g, int launch, int arg);
clef_status clef__plan_run(clef__plan *plan, clef_context *ctx, clef__arena *arena, clef__graph_view *g);
/* prepack.c: finds what replays may leave as it is, and how many bytes that will be; before each replay says which launches are idle, and
   afterwards notes which of the `launched` have filled theirs. */
clef_status clef__prepack_find(clef_context *ctx, clef__plan *plan);
size_t clef__prepack_most(const clef__plan *plan);
clef_status clef__prepack_begin(clef_context *ctx, clef__plan *plan, const clef__graph_view *g);
void clef__prepack_end(clef__plan *plan, const clef__graph_view *g, int launched);
/* select.c: the strategy for the node being lowered; NULL if none applies. */
const clef__strategy *clef__select_strategy(clef__lowering *l);
void clef__families_free(clef__own_family *first);
/* eval.c: what the context keeps, made at first need (NULL without host memory); forgets all plans, as choices have changed. */
clef__plans *clef__plans_of(clef_context *ctx);
void clef__plans_forget(clef_context *ctx);
/* eval.c: collects the pending graph below roots. */
clef_status clef__collect(clef_context *ctx, clef__node *const *roots, int n, clef__graph_view *g);
void clef__graph_view_free(clef__graph_view *g);
/* read.c: t evaluated into row-major memory: its buffer and the byte offset; NULL on failure. */
clef__buffer *clef__row_major_buffer(clef_tensor *t, size_t *offset);
/* Element i of host memory. */
double clef__number_of(const void *data, clef_dtype dtype, int64_t i);
/* print.c */
clef_status clef__plan_print(const clef__plan *plan, const clef__graph_view *g, clef_plan_format format, FILE *stream);

/* ---- lowering (lower.c, codegen.c) ---- */

struct clef__lowering {
    clef_context *ctx;
    clef__graph_view *g;
    clef__plan *plan;
    const clef__node *node; /* of the KERNEL being lowered */
    int item, device;
    clef__launch *open;     /* between launch_begin and launch_end */
    char *defines, *text;   /* of the open launch: its options, its generated text */
    bool tuned;             /* a tuning result is in use for the node being lowered */
    const clef__following *following; /* what follows that node, until a strategy takes it: then NULL */
    const clef__group *preceding;     /* what makes its input, until a strategy takes it or it is in memory: then NULL */
    struct clef__pointwise *computed; /* what the strategy took: owned until the node is lowered */
    bool failed;
};

/* A pointwise kernel to be: operands, then steps that compute on operands and earlier steps, then what is stored. */
enum { CLEF__PW_OPERANDS = 24, CLEF__PW_STEPS = 48,
       CLEF__PW_SEGMENTS = 16, /* the most in one launch */
       CLEF__PW_FIRST = 3,     /* the argument where the first begins: its position, its length, numbers, tensors */
       CLEF__PW_COLUMNS = 4,   /* its length */
       CLEF__PW_BYTES = 1024   /* of arguments; every full profile takes that many, CL_DEVICE_MAX_PARAMETER_SIZE */ };
typedef struct clef__pw_operand {
    bool constant;        /* a number, from item's dynamic.f, or `number` when item is -1 */
    int item;
    double number;
    clef_dtype dtype;
    clef__operand x;      /* broadcast to the kernel's shape */
    int32_t each, period; /* of VALUE, whose element i is this one's i / each % period; 0: without that part */
} clef__pw_operand;
typedef struct clef__pw_step {
    const clef_op *op;
    clef_dtype dtype;
    int n_inputs, input[8]; /* operand i, or step j as CLEF__PW_OPERANDS + j */
} clef__pw_step;
typedef struct clef__pointwise {
    clef_shape shape;
    clef__pw_operand operand[CLEF__PW_OPERANDS];
    clef__pw_step step[CLEF__PW_STEPS];
    struct { int from; clef__operand to; } store[CLEF__PW_OPERANDS];
    int n_operands, n_steps, n_stores;
} clef__pointwise;
/* build.c: operands and steps of the members, all pointwise; inner_uses: how often each step is read by another. */
void clef__add_steps(clef__lowering *l, const clef__group *group, clef__pointwise *p, int *inner_uses);
/* build.c: a launch that computes the members, all pointwise. */
void clef__lower_group(clef__lowering *l, const clef__group *group);
/* codegen.c: text that defines INPUTS, PASSED and VALUE(n, i) for n = 1 and W = `width`: the last step from element i on, where
   tensors lie alike or repeat; NULL without host memory. */
char *clef__value_source(const clef__pointwise *p, int width);
/* codegen.c: emits the launch. */
void clef__lower_pointwise(clef__lowering *l, const clef__pointwise *p, const char *label);
/* One launch, at the end of the plan, that does what these n do, which have segments and equal text; its text has room for `count`. */
void clef__lower_bundle(clef__lowering *l, const int *launch, int n, int count);
/* The most that the arguments of a kernel over this shape take, whatever the layouts. */
size_t clef__pointwise_bytes(clef_shape shape, int constants, int tensors);
/* lower.c */
int clef__new_value(clef__lowering *l, clef__home home, int item, size_t bytes);
void clef__lower_fail(clef__lowering *l);
/* Adds an argument to the launch that is open, behind the others. */
void clef__launch_arg(clef__lowering *l, clef__arg arg);
/* What the open launch is called, or is called besides; by itself it has the name of its op. */
void clef__launch_name(clef__lowering *l, const char *name, bool besides);
/* A number as kernel argument: of a constant item, or fixed (item -1). */
void clef__launch_constant(clef__lowering *l, int item, double number, clef_dtype dtype);
clef_shape clef__operand_shape(const clef__operand *x);
/* A dense operand of this shape in this order over a value. */
clef__operand clef__dense_operand(int value, clef_dtype dtype, clef_shape shape, const int *order);
/* Item as an operand, materialising constants; views are resolved. */
clef__operand clef__item_operand(clef__lowering *l, int item);
#endif
