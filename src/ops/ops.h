/* ops.h — what the files of this room share, and what nn and optim may build on. */
#ifndef CLEF_OPS_INTERNAL_H
#define CLEF_OPS_INTERNAL_H
#include "clef/ops.h"
#include "clef/pointwise.h"
#include "graph/core.h"
#include "plan/lower/lower.h"
#include "runtime/arithmetic.h"

/* ---- dtypes (cast.c) ---- */
/* The dtype that holds both: bool < u8 < i32 < i64 < f16, bf16 < f32 < f64; f16 with bf16 gives f32. */
clef_dtype clef__promote(clef_dtype a, clef_dtype b);
/* x if it is floating, else x as f32. */
clef_tensor *clef__to_float(clef_tensor *x);
/* f16 and bf16 become f32, for results that need more range on the way. */
clef_tensor *clef__to_wide(clef_tensor *x);

/* ---- constants (cast.c) ---- */
/* A number beside a tensor of this dtype in a pointwise op: a kernel argument, no memory, and not rounded to f16 or bf16, nor
   kept within u8, so that a clamp of u8 to [-1, 2] is what it says. */
clef_tensor *clef__number(clef_context *ctx, clef_dtype dtype, double value);
/* Would this number change the dtype of a whole-number tensor (0.5, NaN)? */
bool clef__is_fraction(double value);

/* ---- indices (index.c) ---- */
/* clef_scatter and clef_scatter_add in the name of another op. */
clef_tensor *clef__scatter_add(const char *name, clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src);
clef_tensor *clef__scatter(const char *name, clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src);
/* The same with the largest, or the smallest, of what is there and what comes; replaces: what is there changes no result where something
   comes, and has no part in its gradient. */
clef_tensor *clef__scatter_extreme(const char *name, bool largest, clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src,
                                   bool replaces);

/* ---- sources on the device of x (random.c) ---- */
/* 0, 1, … n − 1. */
clef_tensor *clef__count_beside(clef_tensor *x, int64_t n, clef_dtype dtype);
/* f32 of x's shape, uniform in [0, 1) or standard normal. */
clef_tensor *clef__rand_like(clef_tensor *x);
clef_tensor *clef__randn_like(clef_tensor *x);
/* Random bits of this shape: i64. */
clef_tensor *clef__random_bits_beside(clef_tensor *x, clef_shape shape);
/* As clef__rand_like.  Of x [items, …] that are this rank's of a batch, the numbers are those that the items would have in the whole batch
   on one rank; the counters go on by the whole batch on every rank. */
clef_tensor *clef__rand_items(clef_tensor *x);

/* ---- on a given device (source.c) ---- */
/* Puts the values and gradients of all n there, or of none; their handles stay, and so does what was made from the values. */
clef_status clef__move(clef_context *ctx, clef_tensor *const *t, int n, int device);

/* ---- shapes (movement.c, window.c) ---- */
static inline clef_shape clef__shape_of(int64_t rank, const int64_t *dim) {
    clef_shape shape = {.rank = (int)rank};
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = dim[i];
    return shape;
}
/* NULL, after the line that says x has no dimension `dim`. */
clef_tensor *clef__refuse_dim(clef_tensor *x, const char *op, int dim);
/* The same values in a node of their own, by which a composition of x can be differentiated alone. */
clef_tensor *clef__apart(clef_tensor *x);
/* Sums x over what was broadcast from `shape`, giving that shape: the gradient of a broadcast. */
clef_tensor *clef__sum_to(clef_tensor *x, clef_shape shape);
/* x inside a block of `value`: element i of dimension d lands at start[d] + i·step[d].  The adjoint of a slice. */
clef_tensor *clef__into_window(clef_tensor *x, clef_shape shape, const int64_t *start, const int64_t *step, double value);
/* x with x[start + i·step], count elements, in every dimension. */
clef_tensor *clef__window(clef_tensor *x, const int64_t *start, const int64_t *step, const int64_t *count);
/* A [c] tensor as [1,c,1,…] of this rank (2 or more), which broadcasts along dimension 1. */
clef_tensor *clef__per_channel(clef_tensor *v, int rank);

/* ---- reductions (reductions.c) ---- */
/* How many dimensions a reduction or softmax of x can name: a scalar counts as one element long. */
int clef__nameable_dims(clef_tensor *x);
/* Has x no elements because this rank has no items of the batch?  Its mean is 0, as it counts for nothing in that of all ranks. */
bool clef__is_of_empty_share(clef_tensor *x);

/* ---- two sums in one pass, what normalisation and its gradient are made of (sums.c) ---- */
/* Sums over the dimensions in which m, of x's rank and dtype (f32 or f64), is 1 long (one at least) and x need not be:
       first = Σ a,  second = Σ a · (x − m),  a = g, or x − m where g is NULL.
   Both have m's shape.  Differentiable in x, g and m, to any order.  False when it failed. */
bool clef__pair_of_sums(clef_tensor *g, clef_tensor *x, clef_tensor *m, clef_tensor **first, clef_tensor **second);

/* ---- batch norm (norm.c) ---- */
/* Per channel of x [n,c,…], as [1,c,1,…]: mean, biased and unbiased variance. */
typedef struct clef__statistics {
    clef_tensor *mean, *var, *unbiased;
} clef__statistics;
/* Finds those of wide x; false when it failed. */
typedef bool (*clef__statistics_fn)(void *user, clef_tensor *wide, clef__statistics *s);
/* Of x alone, which has some elements.  user: NULL. */
bool clef__channel_statistics(void *user, clef_tensor *wide, clef__statistics *s);
typedef struct clef__batch_norm_tensors {
    clef_tensor *weight, *bias, *running_mean, *running_var;
} clef__batch_norm_tensors;
typedef struct clef__batch_norm_mode {
    bool training;
    double momentum, eps;
    clef__statistics_fn statistics; /* in training; NULL: those of x alone */
    void *user;
} clef__batch_norm_mode;
/* clef_batch_norm with statistics of more than x. */
clef_tensor *clef__batch_norm(clef_tensor *x, const clef__batch_norm_tensors *t, const clef__batch_norm_mode *mode);

/* ---- what losses build on (softmax.c) ---- */
/* Is target x's shape without dimension 1? */
bool clef__is_class_shape(clef_shape x, clef_shape target);
/* Brings the last dimension to place 1, where the losses have classes; nothing is copied. */
clef_tensor *clef__classes_second(clef_tensor *x);

/* -log softmax(x)[target] along dimension 1, smoothed, of x [n,c,...] with whole-number targets [n,...]: each of the losses, in
   f32 (f64 for f64).  0 where the target is `ignored` (and `ignores` is set), NaN where it is no class. */
clef_tensor *clef__class_losses(clef_tensor *x, clef_tensor *target, double smoothing, bool ignores, int64_t ignored);
/* The result of a loss from each of its losses [n,...] (loss.c): 0 of targets that are ignored, NaN of those that are no class, then the
   reduction. */
clef_tensor *clef__finish_class_losses(clef_tensor *each, clef_tensor *target, int64_t classes, const clef_loss_options *o);
/* true where dimension 1's index is the target: [n,c,...]. */
clef_tensor *clef__is_target(clef_shape shape, clef_tensor *target);

/* ---- one element by its definition: clef_op.element of these ops (reference.c) ---- */
double clef__matmul_element(const clef__node *node, const clef__numbers *in, const int64_t *at);
double clef__linear_element(const clef__node *node, const clef__numbers *in, const int64_t *at);
double clef__conv2d_element(const clef__node *node, const clef__numbers *in, const int64_t *at);
double clef__conv2d_backward_data_element(const clef__node *node, const clef__numbers *in, const int64_t *at);
double clef__conv2d_backward_weight_element(const clef__node *node, const clef__numbers *in, const int64_t *at);
double clef__max_pool2d_backward_element(const clef__node *node, const clef__numbers *in, const int64_t *at);

#endif
