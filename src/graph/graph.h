/* graph.h — nodes, op descriptors, the funnel and the tape.  Knows nothing of how work runs.

   A node is one run of an op: the op, its inputs, its attributes.  It has one or more outputs, each an immutable value: its type
   (dtype, shape, device) and, once computed, where it lies (buffer, offset, strides).  A pointer to an output names the node and
   which of its outputs.  A clef_tensor is a handle (graph/handle.h) of a clef__tensor, which points to an output; assigning to a
   tensor points it to another one, so expressions made earlier keep the value they saw. */
#ifndef CLEF_GRAPH_H
#define CLEF_GRAPH_H
#include "clef/tensor.h"
#include "graph/handle.h"
#include "runtime/runtime.h"

typedef struct clef_op clef_op;
typedef struct clef__lowering clef__lowering;                         /* plan/lower/lower.h */
typedef struct clef__family clef__family;                             /* plan/lower/lower.h */
typedef struct clef__checkpointed_segment clef__checkpointed_segment; /* recompute.c */
typedef struct clef__numbers clef__numbers;                           /* plan/tune/tune.h */

typedef enum clef__kind {
    CLEF__DATA,      /* no inputs: a buffer that was filled from outside */
    CLEF__CONSTANT,  /* no inputs: one number, in `dynamic`, handed to kernels as an argument */
    CLEF__POINTWISE, /* text on its inputs, same shape after broadcasting; the plan fuses these */
    CLEF__VIEW,      /* the input's memory seen with other strides */
    CLEF__KERNEL,    /* lowered by a strategy of its own */
    CLEF__COPY,      /* into row-major memory of its own */
    CLEF__TRANSFER   /* from another device */
} clef__kind;

/* In which dtype an op takes its floating inputs under autocast, but for those of f64 (clef_set_autocast). */
typedef enum clef__precision {
    CLEF__AS_GIVEN,
    CLEF__LOW_PRECISION, /* that of autocast: products */
    CLEF__FULL_PRECISION /* f32: sums, norms, and functions that leave the range of f16 or lose its digits */
} clef__precision;

/* How a value lies in a buffer, in elements.  stride may be 0 (broadcast) or negative (flip). */
typedef struct clef__layout {
    int64_t offset;
    int64_t stride[CLEF_MAX_RANK];
} clef__layout;

typedef struct clef__type {
    clef_shape shape;
    clef_dtype dtype;
} clef__type;

/* What infer sees and fills: the types of all outputs. */
typedef struct clef__call {
    clef_context *ctx;
    const clef_op *op;
    clef__output *const *input;
    int n_inputs;
    const void *attributes;
    int n_outputs;   /* that the caller asks for */
    clef__type *out; /* their types: all zero before infer */
} clef__call;

/* One way to compute a node, or a product that is a part of it.  A table of them ends with NULL; plan/lower/select.c takes the
   cheapest that applies. */
typedef struct clef__strategy {
    const char *name;
    bool on_request;                           /* only where a tuning result names it: its speed is known by measuring alone */
    bool (*applies)(const clef__lowering *lw); /* whether it can, not whether it pays; NULL: always */
    double (*cost)(const clef__lowering *lw);  /* seconds, by plan/lower/cost.h; NULL: 0 */
    double (*flops)(const clef__node *node);   /* what it really does; NULL: those of the op's definition */
    void (*lower)(
        const clef__lowering *lw); /* emits launches with the functions of plan/lower/lower.h; NULL: there is no such way */
    const clef__family *(*family)(const clef__lowering *lw); /* of a product: the knobs it takes; NULL: none */
} clef__strategy;

struct clef_op {
    const char *name;
    clef__kind kind;
    /* CLEF__POINTWISE: `text` in OpenCL C on one-letter names, one in `params` for each input in order.
       T is the computing type; boolean: the result is a truth value (dtype BOOL). */
    const char *params, *text;
    bool boolean;
    int store; /* the bit of cl/epilogue_ops.h by which a kernel's store may do it; 0: none */
    clef__precision precision;
    /* Fails (clef__infer_fail) or fills shape and dtype.  NULL for pointwise: broadcast shape, dtype of input 0. */
    bool (*infer)(clef__call *call);
    /* Given inputs x, outputs y and g[k] = dL/dy[k] (NULL: no gradient came to that output; of one output it is there), puts
       dL/dx[i] into dx[i] for those i where wanted[i] (may leave NULL: zero). */
    void (*gradient)(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted, clef_tensor **dx);
    /* The sum of n results of this op, made so that it costs no more than one that is as large and reads what they read: backward
       adds up gradients with it.  NULL where it cannot, and for ops whose results are added one after the other. */
    clef_tensor *(*sum)(clef_tensor *const *term, int n);
    /* CLEF__VIEW: the output's layout over the input's buffer, or false when this needs a row-major copy of the input
       first (the plan then makes it and asks again). */
    bool (*view)(const clef__node *node, const clef__layout *in, clef__layout *out);
    const clef__strategy *const *strategies; /* CLEF__KERNEL */
    /* It has an effect outside of its results: its nodes run once each, in the order in which they were made, and at the latest with
       their step (sequence.c).  NULL: none.  Returns the number that a node gets as it is made: the first of `dynamic`. */
    uint64_t (*ordered)(clef__node *node);
    bool updates;  /* CLEF__KERNEL: its output is input 0 with other numbers in places (clef__lower_updated) */
    bool epilogue; /* its strategies ask for its epilogue (clef__lower_epilogue) */
    bool prologue; /* its strategies ask what makes its input (clef__lower_prologue) */
    void (*cost)(const clef__node *node, double *flops, double *bytes); /* NULL: reads + writes, one flop each */
    /* One element by the op's definition, from the numbers in its inputs: clef_tune believes a kernel that agrees with it.  For ops
       with a choice that can be tuned; NULL elsewhere. */
    double (*element)(const clef__node *node, const clef__numbers *in, const int64_t *at);
};

enum { CLEF__MAX_INPUTS = 256, CLEF__MAX_OUTPUTS = 256 };

/* One result of a node.  Its memory goes when nobody refers to it any more, whoever holds the others. */
struct clef__output {
    clef__node *node;
    clef__buffer *buffer;       /* NULL until computed */
    uint64_t mark, lapse, tape; /* scratch of one traversal by the plan, by lapse.c, by autodiff; see clef__traversal */
    int refs;                   /* handles, plus consumers' inputs, plus holders in C code */
    int passing;                /* how many of refs are handles of temporaries, which alone are no reason to compute it */
    int remembered;             /* how many of refs are values that tensors had before (dry.c) */
    bool requires_grad;
    bool tape_end; /* it is or was a parameter's value: the tape goes no further, whatever it was made from */
    bool donated;  /* its buffer was taken over by an in-place update */
    bool lost;     /* what it is made from was, before it was computed (capture.c) */
    clef_dtype dtype;
    int device;
    clef_shape shape;
    clef__tensor *leaf; /* the parameter this is the present value of, if it wants a gradient */
    clef__layout layout;
};

struct clef__node {
    const clef_op *op;
    clef_context *ctx;
    int refs; /* outputs that somebody refers to, and who is making it */
    int n_inputs, n_outputs;
    bool has_dynamic;                    /* `dynamic` means something */
    bool inference;                      /* made where nothing is recorded, and for no gradient */
    bool ended;                          /* on the tape of a step that has ended: what it was made from is gone */
    uint16_t size_class;                 /* of its memory (node_memory.c) */
    clef__output **input;                /* behind the attributes, which are behind the outputs */
    clef__output *after;                 /* NULL, or what must be computed before it though it does not read it (recompute.c) */
    void *attributes;                    /* a struct of int64_t, double and pointers to static data only: it is hashed as bytes */
    size_t attribute_bytes;              /* 0: none */
    clef__node *next_dead;               /* scratch of clef__node_release, of lapse.c and of node_memory.c */
    clef__checkpointed_segment *segment; /* NULL, or the innermost one it was made in */
    union {
        double f;  /* a constant's number … */
        int64_t i; /* … of dtype i64 */
        uint64_t u[2];
    } dynamic;                   /* changes from step to step without a new plan */
    uint64_t made;               /* how many nodes its context had made before it */
    uint64_t mark, tape, copies; /* scratch of one traversal by the plan, by autodiff, by recompute.c; see clef__traversal */
    clef__output out[];
};

/* ---- the funnel (apply.c) ----
   NULL check → autocast → infer → node → (eager: evaluate).  NULL if any input is NULL or infer fails. */
clef_tensor *clef__apply(const clef_op *op, clef_tensor *const *inputs, int n, const void *attributes, size_t bytes);
/* The same for an op with several: out[0 … n − 1] are its outputs, or all NULL; false then. */
bool clef__apply_all(const clef_op *op, clef_tensor *const *inputs, int n_inputs, const void *attributes, size_t bytes,
                     clef_tensor **out, int n);
/* x as an op of that precision takes it now: x itself where autocast is off; NULL and CLEF_NONE stay.  For functions that are made of several
   ops, which then run under CLEF_F32 where products among them are not to be cast (autocast.c). */
clef_tensor *clef__autocast(clef_tensor *x, clef__precision precision);
/* A shape and dtype given from outside: fails with a line in op's name unless tensors of them can lie on that device. */
bool clef__check_type(clef_context *ctx, const char *op, clef_shape shape, clef_dtype dtype, int device);
/* For ops without inputs: shape, dtype and device come from the caller. */
clef_tensor *clef__source(clef_context *ctx, const clef_op *op, clef_shape shape, clef_dtype dtype, int device,
                          const void *attributes, size_t bytes, uint64_t u0, uint64_t u1);
/* An infer: shape and dtype of input 0. */
bool clef__infer_like(clef__call *call);
/* A view: input 0 itself. */
bool clef__view_all(const clef__node *node, const clef__layout *in, clef__layout *out);
/* For infer: all inputs have one dtype, which can be multiplied; it is the result's. */
bool clef__infer_product(clef__call *call);
/* For infer: input 2, where there is one, is a bias: a number for each of w's first dimension. */
bool clef__infer_bias(clef__call *call, clef_shape w);
/* Gradients and compositions call ops with shapes that the library worked out itself.  An op says in infer what it takes for
   granted of them, so that a contradiction is an error line (CLEF_INTERNAL), and never a write out of bounds: false, with a line
   that says "not so that WHAT", unless it holds. */
bool clef__infer_takes(clef__call *call, bool holds, const char *what);
bool clef__same_shape(const clef__call *call, int i, int k); /* of inputs i and k */
/* Adds 0 ≤ dim < rank for negative dims; false if out of range. */
bool clef__normalize_dim(int rank, int *dim);
/* Broadcast of two shapes by NumPy's rule; false if they do not fit. */
bool clef__broadcast(clef_shape a, clef_shape b, clef_shape *out);
static inline bool clef__is_float(clef_dtype d) { return d == CLEF_F32 || d == CLEF_F16 || d == CLEF_BF16 || d == CLEF_F64; }
static inline const void *clef__attributes(const clef__node *node) { return node->attributes; }

/* ---- error lines, and handles at public entries (entry.c) ---- */
/* In infer: one line, "conv2d: <fmt>"; returns false. */
bool clef__infer_fail(clef__call *call, clef_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* In a public function, before apply: the same, naming the op; returns NULL. */
clef_tensor *clef__refuse(clef_context *ctx, const char *op, clef_status status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* "[8,3,32,32]" in one of a few rotating thread-local buffers, for error lines. */
const char *clef__shape_text(clef_shape shape);
/* Do these handles stand for tensors?  If not, false with a line in op's name, unless one is NULL because something failed before.
   names: what the op's users call each of them, separated by spaces; "b?": CLEF_NONE will do.  ctx: theirs, where the caller knows
   it, or NULL. */
bool clef__given(clef_context *ctx, const char *op, const char *names, clef_tensor *const *t, int n);
#define CLEF__GIVEN(op, names, ...)                                 \
    clef__all_given(op, names, (clef_tensor *const[]){__VA_ARGS__}, \
                    (int)(sizeof((clef_tensor *const[]){__VA_ARGS__}) / sizeof(clef_tensor *)))
static inline bool clef__all_given(const char *op, const char *names, clef_tensor *const *t, int n) {
    for (int i = 0; i < n; i++)
        if (!clef__get(t[i])) return clef__given(NULL, op, names, t, n);
    return true;
}
/* The same of an array from outside: there must be one, of n ≥ 1. */
bool clef__given_array(clef_context *ctx, const char *op, const char *array, clef_tensor *const *t, int n);
/* The output behind a handle, and the node that it is of; NULL if there is none. */
static inline clef__output *clef__output_of(const clef_tensor *t) {
    const clef__tensor *tensor = clef__get(t);
    return tensor ? tensor->out : NULL;
}
static inline clef__node *clef__node_of(const clef_tensor *t) {
    const clef__output *out = clef__output_of(t);
    return out ? out->node : NULL;
}

/* ---- tensors and nodes (tensor.c) ---- */
clef_tensor *clef__tensor_new(clef__output *out); /* a temporary; takes its own reference */
void clef__tensor_drop(clef_tensor *t);           /* frees a temporary before its time; NULL is allowed */
/* How many handles the context made so far; and the end of all temporaries that were made since it was `made`, before their time: what
   only they held goes. */
uint64_t clef__handles_made(clef_context *ctx);
void clef__drop_since(clef_context *ctx, uint64_t made);
/* clef_release, and the tensor's end where nobody else holds it. */
void clef__release_now(clef_tensor *t);
/* An owner inside the library takes t, which then lives whatever users keep and release.  NULL is allowed and given back. */
clef_tensor *clef__own(clef_tensor *t);
/* With room for the inputs, and a copy of `bytes` of attributes; the caller has a reference. */
clef__node *clef__node_new(clef_context *ctx, const clef_op *op, int n_inputs, const clef__type *out, int n_outputs, int device,
                           const void *attributes, size_t bytes);
/* Input i of a new node. */
void clef__set_input(clef__node *node, int i, clef__output *input);
void clef__node_release(clef__node *node);
void clef__output_retain(clef__output *out);
void clef__output_release(clef__output *out); /* NULL is allowed */
/* Dimensions one in the other without gaps, in memory order `order`: outermost first; NULL: row-major. */
clef__layout clef__dense(clef_shape shape, const int *order);
/* Do these strides mean the same?  Those of dimensions of 1 do not matter. */
bool clef__same_strides(clef_shape shape, const int64_t *a, const int64_t *b);
/* Are these the strides of clef__dense? */
bool clef__is_dense(clef_shape shape, const int64_t *stride, const int *order);
/* From now on it goes as soon as nobody holds it. */
void clef__never_temporary(clef_tensor *t);
/* t is a result that programs ask for later: it is computed at the end of the step, and if it has one element it can be read until
   CLEF_RESULT_STEPS further steps have ended.  t must be there. */
clef_status clef__want_result(clef_tensor *t);
/* How many results are wanted in this step so far; and from now on only the first n of them. */
int clef__results_wanted(const clef_context *ctx);
void clef__want_first(clef_context *ctx, int n);
/* Points t to another value (assignment). */
void clef__tensor_set(clef__tensor *t, clef__output *out);
/* Does this output need no work?  (It has a buffer, or nothing to hold.) */
static inline bool clef__computed(const clef__output *out) { return out->buffer || clef_shape_numel(out->shape) == 0; }
/* Never the same for two values of a context. */
static inline uint64_t clef__output_number(const clef__output *out) {
    return out->node->made * CLEF__MAX_OUTPUTS + (uint64_t)(out - out->node->out);
}
/* Forgets how the node was computed, if nobody can ask for an output that has no buffer. */
void clef__node_cut(clef__node *node);
/* Of its elements, wherever they lie. */
double clef__output_bytes(const clef__output *out);
/* The output whose memory a view looks at; out itself, if it is no view or a parameter's value. */
clef__output *clef__viewed(clef__output *out);
/* Operations, and bytes that memory moves, by its op's definition: an op that cannot say reads and writes everything once, with one
   operation per element. */
void clef__node_cost(const clef__node *node, double *flops, double *bytes);
/* A number no traversal of this context used before; mark = (traversal << 32) | index. */
uint64_t clef__traversal(clef_context *ctx);

/* ---- recomputing (recompute.c) ----
   What is made until the end is computed once more by backward, not kept for it.  NULL: nothing is recorded, or the error is
   set. */
clef__checkpointed_segment *clef__checkpointed_segment_begin(clef_context *ctx);
void clef__checkpointed_segment_end(clef_context *ctx, clef__checkpointed_segment *segment); /* NULL is allowed */

/* ---- ops with an effect (sequence.c) ----
   Runs what was made of them and did not run yet. */
clef_status clef__run_ordered(clef_context *ctx);
/* Of a node made in a dry run, which must never run. */
#define CLEF__UNNUMBERED UINT64_MAX

/* ---- a batch that ranks share, and gradients that are averaged over ranks (averaging.c) ---- */
/* This rank's part of the items of a batch; all zero: the batch is this rank's alone. */
typedef struct clef__share {
    int64_t first, items, all;
} clef__share;
/* Where part p begins of `all` items in n parts: equally many in each, or one more in the first. */
static inline int64_t clef__part_start(int64_t all, int64_t n, int64_t p) { return p * (all / n) + (p < all % n ? p : all % n); }
/* From now on computations are of this part of a batch. */
void clef__set_share(clef_context *ctx, clef__share share);
clef__share clef__share_of(clef_context *ctx);
/* A share is computed in pieces: from now on this one, or (all zero) the share as a whole; and which it is.  Random numbers are by that. */
void clef__set_window(clef_context *ctx, clef__share window);
clef__share clef__window_of(clef_context *ctx);
/* Has the present batch items, and this rank none of them? */
bool clef__has_empty_share(clef_context *ctx);

typedef enum clef__averaging_state {
    CLEF__AVERAGING_IDLE, /* no gradient came since the last step */
    CLEF__AVERAGING_OPEN, /* some did */
    CLEF__AVERAGING_DONE  /* and were averaged */
} clef__averaging_state;
/* Who averages gradients.  Backward leaves this rank's part with a parameter: the gradient, and by what it is to be multiplied, the rank's
   share of the batch at that time.  Whoever asks first has the parts of all ranks added up. */
struct clef__averaging {
    clef_status (*average)(clef__averaging *a);
    double (*share)(const clef__averaging *a);
    clef_tensor *(*scale)(clef__averaging *a, clef_tensor *gradient, double factor);
    clef_tensor *(*whole)(clef__averaging *a, const clef_tensor *parameter, clef_tensor *shard); /* from all ranks' parts */
    clef__averaging_state state;
};
/* The gradients of this parameter are averaged by `a` from now on. */
void clef__average_by(clef_tensor *parameter, clef__averaging *a);
/* The gradient as it lies there; NULL: none. */
clef_tensor *clef__unaveraged(const clef_tensor *parameter);
/* Gives n parameters gradients that are those of all ranks together already, in place of what they have; NULL: it keeps that.  All or none.  The
   array is written to. */
clef_status clef__set_averaged(clef_tensor *const *parameter, clef_tensor **grad, int n);
/* What a parameter's gradient is, with what averages know of it. */
typedef struct clef__aside {
    clef_tensor *gradient; /* kept; NULL: none */
    bool weighted;
    double factor;
    clef__averaging *sharded;
} clef__aside;
/* Takes the gradient away, as it is, without averaging it; and puts it back, in place of what is there now. */
void clef__gradient_aside(clef_tensor *parameter, clef__aside *a);
clef_status clef__gradient_back(clef_tensor *parameter, clef__aside *a);
/* Adds to a parameter's gradient, as backward does. */
clef_status clef__add_gradient(clef_tensor *parameter, clef_tensor *gradient);
/* Averages the parameter's gradients, unless that was done, or nobody does it.  All ranks call it at the same point. */
clef_status clef__average_gradient(const clef_tensor *parameter);
/* Where averages are cut over the ranks: this rank's part [n] of the gradient, *by whom; NULL: it is there as a whole, or not at all. */
clef_tensor *clef__gradient_shard(const clef_tensor *parameter, clef__averaging **by);
/* The gradient is from now on cut by `by`, and this its part. */
clef_status clef__set_gradient_shard(clef_tensor *parameter, clef__averaging *by, clef_tensor *shard);

/* clef_grad of y without create_graph, but NULL where y does not depend on x[i]; dx is written only on success. */
clef_status clef__grad_where_any(clef_tensor *y, clef_tensor *const *x, int n, clef_tensor **dx);
/* The same to be differentiated again, of y by each x[i] alone, all of them different values: what an x was made from is not looked at, so that
   an op's gradient may be that of a composition. */
clef_status clef__grad_between(clef_tensor *y, clef_tensor *grad, clef_tensor *const *x, int n, clef_tensor **dx);

/* ---- lapsed claims (lapse.c) ----
   Which of the references to values come from temporaries of earlier steps alone, which can no longer be read?  Outputs that bear
   `mark` in theirs are being computed, and lapse not.  The traversal, for clef__lapsed. */
uint64_t clef__find_lapsed(clef_context *ctx, uint64_t mark);
static inline int clef__lapsed(const clef__output *out, uint64_t traversal) {
    return out->lapse >> 32 == traversal ? (int)(uint32_t)out->lapse : 0;
}

/* ---- the value before (dry.c) ----
   clef__remember notes t's value, which is no reason to leave its memory alone: an update may take it over.  clef__go_back gives it
   back to t unless that was done, or t has another that is computed.  clef__forget ends both.  In a dry run, which remembers all values
   itself, they do nothing, nor for a t that is no more. */
void clef__remember(clef_tensor *t);
void clef__go_back(clef_tensor *t);
void clef__forget(clef_tensor *t);

/* Are evaluations only planned?  Then the size of each plan is noted (dry.c). */
bool clef__dry_run(clef_context *ctx);
void clef__note_plan(clef_context *ctx, const clef_plan_size *size); /* of each device */
/* Tells clef_on_planned_launch's callback. */
void clef__note_launch(clef_context *ctx, const clef_planned_launch *launch);

/* Computes these outputs (those that are not yet; in a dry run none). */
typedef clef_status (*clef__evaluator)(clef_context *ctx, clef__output *const *roots, int n);
/* Says, once, who computes pending outputs: at the end of a step, and in eager mode.  False without host memory. */
bool clef__graph_open(clef_context *ctx, clef__evaluator evaluate);
#endif
