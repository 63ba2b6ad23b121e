/* clef/ops.h — expressions that are more than pointwise (those are in clef/pointwise.h).

   What holds for all: the result is a temporary of the step (clef/tensor.h).  A NULL input gives NULL; so
   does a refusal, whose line and status are then in the context: CLEF_SHAPE where shapes do not fit,
   CLEF_DTYPE where a dtype is not computed, CLEF_INVALID for a dimension or option out of range,
   CLEF_UNSUPPORTED beyond 2^31 rows or pixels.  Negative dimensions count from the end.  Options NULL: all
   zero fields, which mean the defaults given.  f16 and bf16 are computed in f32 and rounded to the result's
   dtype. */
#ifndef CLEF_OPS_H
#define CLEF_OPS_H
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- dtype ---- */
/* x in another dtype; x itself if it has it already.  To f16 and bf16: rounded to nearest.  Floats to whole
   numbers: towards 0; i32 and i64 saturate, u8 keeps the low 8 bits of the whole number (0 of infinities), NaN
   is 0.  Whole numbers to smaller ones keep their low bits.  To bool: x ≠ 0.  CLEF_DTYPE for f64 where the
   device has none. */
CLEF_API clef_tensor *clef_to(clef_tensor *x, clef_dtype dtype);

/* ---- reductions: over the n dimensions in dims; keep leaves them as 1 ----
   n = 0: over all, dims may be NULL.  CLEF_INVALID if a dimension is out of range or named twice.  Floats
   keep their dtype; sums are formed in a fixed order.
       clef_tensor *rows = clef_sum(x, (int[]){1}, 1, false);   [m,n] → [m]
   A scalar (rank 0) counts as one dimension of 1 that dims may name, here and in clef_softmax, as in PyTorch:
   its sum, mean, product, maximum and logsumexp are itself, its norm |x|, its argmax 0, its softmax 1, its
   log-softmax 0, its variance with correction 0 is 0.
   Of nothing (a dimension of 0), as in ONNX and with NumPy's `initial`: the number that changes no result,
   0 as sum and norm, 1 as product, -inf as maximum and logsumexp, +inf as minimum, and for whole numbers the
   dtype's smallest and largest.  The mean and variance of nothing are NaN.  argmax and argmin have no index
   to give and refuse (CLEF_SHAPE).  What has no elements itself (a softmax, or [0,3] over dimension 1) is
   empty. */
/* Σ x; i64 for whole numbers. */
CLEF_API clef_tensor *clef_sum(clef_tensor *x, const int *dims, int n, bool keep);
/* Σ x / count; f32 for whole numbers. */
CLEF_API clef_tensor *clef_mean(clef_tensor *x, const int *dims, int n, bool keep);
/* The largest element, NaN if one is; equal ones share the gradient. */
CLEF_API clef_tensor *clef_max(clef_tensor *x, const int *dims, int n, bool keep);
/* The smallest element; else as clef_max. */
CLEF_API clef_tensor *clef_min(clef_tensor *x, const int *dims, int n, bool keep);
/* Π x; i64 for whole numbers.  Where its gradient is differentiated again, of more than 1024 factors none may be 0. */
CLEF_API clef_tensor *clef_prod(clef_tensor *x, const int *dims, int n, bool keep);
/* Σ (x - mean)² / (count - correction), about the mean, so that a mean far from 0 costs no digits; finite
   wherever the result is.  Correction 1 is the sample variance; NaN or inf unless count > correction.  f32 for
   whole numbers. */
CLEF_API clef_tensor *clef_var(clef_tensor *x, const int *dims, int n, bool keep, int correction);
/* √clef_var, finite wherever the result is; its gradient where the deviation is 0 is 0, as in PyTorch.
       clef_tensor *deviation = clef_std(x, (int[]){0}, 1, false, 1);  */
CLEF_API clef_tensor *clef_std(clef_tensor *x, const int *dims, int n, bool keep, int correction);
/* log Σ exp(x), computed as m + log Σ exp(x - m) with m = max x, so it does not overflow.  f32 for whole
   numbers. */
CLEF_API clef_tensor *clef_logsumexp(clef_tensor *x, const int *dims, int n, bool keep);
/* (Σ |x|^p)^(1/p) for p > 0, max |x| for p = INFINITY; for p = 2 the gradient at 0 is 0.  CLEF_INVALID if p
   is not positive. */
CLEF_API clef_tensor *clef_norm(clef_tensor *x, double p, const int *dims, int n, bool keep);
/* Σ a·b / (max(‖a‖, eps) · max(‖b‖, eps)) along dim, the cosine of the angle between a and b, which broadcast: CLEF_SHAPE if they do
   not.  dim counts in the broadcast shape.  Of nothing it is 0, and where one is 0 and eps is not.  CLEF_INVALID unless eps ≥ 0; PyTorch's is 1e-8.
       clef_cosine_similarity(a, b, -1, 1e-8)   [n,d] and [n,d] → [n]  */
CLEF_API clef_tensor *clef_cosine_similarity(clef_tensor *a, clef_tensor *b, int dim, double eps);
/* Index (i64) of the first largest element along dim; a NaN counts as the largest.  CLEF_SHAPE if there is
   none. */
CLEF_API clef_tensor *clef_argmax(clef_tensor *x, int dim, bool keep);
/* Index (i64) of the first smallest element along dim; a NaN counts as the smallest.  CLEF_SHAPE if there is
   none. */
CLEF_API clef_tensor *clef_argmin(clef_tensor *x, int dim, bool keep);

/* ---- movement: any dtype; a dimension that x does not have is CLEF_INVALID ---- */
/* The same elements, in row-major order, in another shape; one dimension may be -1 and is found from the
   others.  Without a copy where the strides allow.  CLEF_SHAPE if the counts differ.
       clef_reshape(x, CLEF_SHAPE(-1, 10))  */
CLEF_API clef_tensor *clef_reshape(clef_tensor *x, clef_shape shape);
/* Joins dimensions first_dim … last_dim into one: clef_flatten(x, 1, -1) is [n,c,h,w] → [n,c·h·w]. */
CLEF_API clef_tensor *clef_flatten(clef_tensor *x, int first_dim, int last_dim);
/* Drops dimension dim, which must be 1 (CLEF_SHAPE). */
CLEF_API clef_tensor *clef_squeeze(clef_tensor *x, int dim);
/* Puts a dimension of 1 before dim (counted in the result: -1 puts it last).  CLEF_SHAPE if x has rank 8
   already. */
CLEF_API clef_tensor *clef_unsqueeze(clef_tensor *x, int dim);
/* Swaps dimensions a and b; no copy.  clef_transpose(m, 0, 1) is mᵀ. */
CLEF_API clef_tensor *clef_transpose(clef_tensor *x, int a, int b);
/* Dimension i of the result is dimension order[i] of x; order has rank entries, each dimension once.  No
   copy. */
CLEF_API clef_tensor *clef_permute(clef_tensor *x, const int *order);
/* Broadcasts dimensions of 1 (and missing leading ones) to shape, as NumPy does; no copy.  CLEF_SHAPE if it
   does not fit. */
CLEF_API clef_tensor *clef_expand(clef_tensor *x, clef_shape shape);
/* x[start : stop : step] along dim by Python's rules: negative bounds count from the end, bounds beyond it
   are cut, step may be negative but not 0 (CLEF_INVALID).  No copy.
       clef_slice(x, 0, 0, 8, 1)   the first 8 rows  */
CLEF_API clef_tensor *clef_slice(clef_tensor *x, int dim, int64_t start, int64_t stop, int64_t step);
/* y = x[…, start : start + length, …] along dim, copied; start is one whole number (i32, i64 or u8), the same plan for all.  Known when
   the call is made (clef_integer, clef_full), it must be within 0 … size - length (CLEF_INVALID); computed, the nearest number
   within counts.  The gradient is 0 outside the window; start has none.  CLEF_INVALID unless 0 ≤ length ≤ size; CLEF_SHAPE and
   CLEF_DTYPE for a start that is no whole number.
       clef_tensor *row = clef_slice_at(table, 0, clef_integer(ctx, i), 1);  */
CLEF_API clef_tensor *clef_slice_at(clef_tensor *x, int dim, clef_tensor *start, int64_t length);
/* x with x[…, start : start + length, …] = value along dim, where length is value's size there; start as in clef_slice_at.  value has
   x's other sizes (CLEF_SHAPE) and is converted to its dtype.  Gradients flow to x outside the window and to value.  XLA's
   DynamicUpdateSlice.  Only the window is written where nobody needs x any more (never so in eager mode), see clef_assign_at; an empty one gives x itself.
       clef_tensor *y = clef_slice_update(x, 1, clef_integer(ctx, i), column);  */
CLEF_API clef_tensor *clef_slice_update(clef_tensor *x, int dim, clef_tensor *start, clef_tensor *value);
/* The elements along dim in reverse order; no copy. */
CLEF_API clef_tensor *clef_flip(clef_tensor *x, int dim);
/* n tensors one after the other along dim, in their common dtype; the other dimensions must agree
   (CLEF_SHAPE).  NULL if n < 1.
       clef_concat((clef_tensor *[]){a, b}, 2, 1)   [m,2] and [m,3] → [m,5]  */
CLEF_API clef_tensor *clef_concat(clef_tensor *const *x, int n, int dim);
/* n tensors of one shape beside each other in a new dimension dim of size n; else as clef_concat. */
CLEF_API clef_tensor *clef_stack(clef_tensor *const *x, int n, int dim);
/* Cuts x along dim into n parts of the given sizes, without a copy, into parts[0..n-1], temporaries.
   CLEF_SHAPE if the sizes do not add up; the parts are then NULL. */
CLEF_API clef_status clef_split(clef_tensor *x, int dim, const int64_t *sizes, int n, clef_tensor **parts);
/* x with before[i] and after[i] ≥ 0 elements of value around dimension i (rank entries each); CLEF_INVALID
   otherwise. */
CLEF_API clef_tensor *clef_pad(clef_tensor *x, const int64_t *before, const int64_t *after, double value);
/* y[i,j,k] = x[index[i,j,k], j, k] for dim 0, and so on; index has x's rank and, outside dim, at most x's
   size (CLEF_SHAPE), and whole numbers (CLEF_DTYPE).  An index outside x reads 0. */
CLEF_API clef_tensor *clef_gather(clef_tensor *x, int dim, clef_tensor *index);
/* A copy of x with y[index[i,j,k], j, k] += src[i,j,k] for dim 0, and so on, in a fixed order; index and src
   have one shape, else as clef_gather.  An index outside x adds nothing. */
CLEF_API clef_tensor *clef_scatter_add(clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src);
/* A copy of x with y[index[i], j] += src[i, j] for dim 0, y[i, index[j]] += src[i, j] for dim 1, and so on: index [m], src as x with m
   in the place of dimension dim (CLEF_SHAPE).  In a fixed order; the dtype is the common one, i32 of truth values.  An index outside x
   adds nothing.
       clef_index_add(x, 0, rows, src)   x [v,d], rows [m], src [m,d] → [v,d]  */
CLEF_API clef_tensor *clef_index_add(clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src);
typedef enum clef_scatter_reduction {
    CLEF_SCATTER_SUM,
    CLEF_SCATTER_MEAN, /* of whole numbers rounded down */
    CLEF_SCATTER_MAX,
    CLEF_SCATTER_MIN
} clef_scatter_reduction;
/* A copy of x in which each place that index names has the sum, mean, largest or smallest of the src placed there, for dim 0 those
   with index[i,j,k] = i', and with include_self of x's own number too; other places stay as they are.  index and src have one shape,
   else as clef_gather.  An index outside x places nothing.  NaN is the largest and the smallest.  Gradients: equal extremes share it;
   x has none where its number does not count.  torch.scatter_reduce; with an index that is the same along the other dimensions, a
   reduction over segments.
       clef_scatter_reduce(clef_zeros(ctx, CLEF_SHAPE(groups), CLEF_F32), 0, group, x, CLEF_SCATTER_MAX, false)   [m] → [groups]  */
CLEF_API clef_tensor *clef_scatter_reduce(clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src,
                                          clef_scatter_reduction reduction, bool include_self);
/* Rows of table [v,d] at index [...] (whole numbers): a tensor [...,d].  An index outside 0 … v-1 gives
   zeros. */
CLEF_API clef_tensor *clef_embedding(clef_tensor *table, clef_tensor *index);
/* y[..., c] = 1 where index [...] is c, else 0, for c = 0 … classes - 1: i64 [..., classes].  index has whole numbers (CLEF_DTYPE); one
   outside 0 … classes - 1 gives zeros.  No gradient.  CLEF_INVALID unless 0 ≤ classes < 2^31.
       clef_one_hot(labels, 10)   [n] → [n,10]  */
CLEF_API clef_tensor *clef_one_hot(clef_tensor *index, int64_t classes);

/* ---- order and prefix sums: along one dimension, any dtype; a scalar counts as one element long ---- */
/* y[j] = x[0] + … + x[j] along dim; i64 for whole numbers and bool.  f16 and bf16 are summed in f32.  The order in which floats are
   added depends on the size alone: every device gives the same bits.  The gradient is the prefix sum from the other end.
       clef_cumsum(x, 1)   [[1,2,3]] → [[1,3,6]]  */
CLEF_API clef_tensor *clef_cumsum(clef_tensor *x, int dim);
/* y[j] = x[0] · … · x[j] along dim; else as clef_cumsum.  The gradient is right with zeros too.  Where it is differentiated again, of
   more than 1024 factors none may be 0, nor of n where x has more than 2^26/n elements; else that takes n numbers for each.
       clef_cumprod(x, 1)   [[1,2,3]] → [[1,2,6]]  */
CLEF_API clef_tensor *clef_cumprod(clef_tensor *x, int dim);
/* The elements along dim in ascending (or descending) order, and where they were: values[j] = x[indices[j]], indices i64.  Equal
   elements keep their order, in either direction.  NaN is larger than every number, and all NaNs are equal; so are -0 and 0.
   values and indices are temporaries, both NULL on failure.  A pointer may be NULL (CLEF_INVALID if both are): what nobody reads is not
   computed.  The gradient of values goes back to where they were.  Sorted by merging: n·log n.
       clef_tensor *values, *indices;
       clef_sort(x, -1, true, &values, &indices);   [3,1,2] → [3,2,1] and [0,2,1]  */
CLEF_API clef_status clef_sort(clef_tensor *x, int dim, bool descending, clef_tensor **values, clef_tensor **indices);
/* clef_sort's indices. */
CLEF_API clef_tensor *clef_argsort(clef_tensor *x, int dim, bool descending);
/* The k largest elements along dim in descending order (or the k smallest in ascending order), and where they were; of equal elements
   the one with the lowest index comes first.  Else as clef_sort, whose first k these are; the rest is not sorted.  CLEF_INVALID unless
   0 ≤ k ≤ x's size along dim.
       clef_topk(logits, 5, 1, true, &values, &classes);   [n,c] → [n,5]  */
CLEF_API clef_status clef_topk(clef_tensor *x, int64_t k, int dim, bool largest, clef_tensor **values, clef_tensor **indices);
/* n draws from each row of weights [..., k], where index i comes with probability w[i] / Σ w: i64 [..., n], from the context's random
   numbers (clef_seed), the same on every device.  Without replacement no index comes twice; the draws are in the order of drawing.
   Weights need not add up to 1; whole numbers become f32.  A weight of 0 is never drawn.  Weights are data and cannot be refused here:
   a negative one or NaN counts as 0, infinity as the largest finite number, and one below 2^-30 of its row's largest may count as
   0.  Where none is left to draw the index is -1.  No gradient.  CLEF_SHAPE unless k > 0; CLEF_INVALID if n is negative, or larger
   than k without replacement.  With replacement: the inverse of the prefix sums.  Without: the n largest of w/e, e exponentially
   distributed; Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006.
       clef_tensor *next = clef_multinomial(clef_softmax(logits, -1), 1, true);  */
CLEF_API clef_tensor *clef_multinomial(clef_tensor *weights, int64_t n, bool replacement);

/* ---- choosing and placing: any dtype, which the result keeps ----
   An index is whole numbers (CLEF_DTYPE).  One that lies outside its dimension reads 0 and places nothing.  A `value` is a moving
   constant: another one is no new plan.  It is what clef_full would hold in x's dtype; a fraction or NaN makes whole-number x f32. */
/* The lower triangle of the last two dimensions: y[..,i,j] = x[..,i,j] where j - i ≤ diagonal, else 0.  CLEF_SHAPE below rank 2.
       clef_tril(clef_ones(ctx, CLEF_SHAPE(n, n), CLEF_BOOL), 0)   what a causal model may see  */
CLEF_API clef_tensor *clef_tril(clef_tensor *x, int64_t diagonal);
/* The upper triangle: y[..,i,j] = x[..,i,j] where j - i ≥ diagonal, else 0; else as clef_tril. */
CLEF_API clef_tensor *clef_triu(clef_tensor *x, int64_t diagonal);
/* x where condition is true (not 0), else value; x and condition broadcast.  Gradients: 0 where value is taken.  Of two numbers:
   clef_where(condition, clef_scalar(ctx, 1), clef_scalar(ctx, 0)).
       clef_where_scalar(clef_gt_scalar(x, 0), x, 0.5)  */
CLEF_API clef_tensor *clef_where_scalar(clef_tensor *condition, clef_tensor *x, double value);
/* value where mask is true, else x; mask is bool or u8 (CLEF_DTYPE) and broadcasts to x's shape (CLEF_SHAPE).  Gradient: 0 where
   filled.
       clef_masked_fill(scores, clef_logical_not(allowed), -INFINITY)  */
CLEF_API clef_tensor *clef_masked_fill(clef_tensor *x, clef_tensor *mask, double value);
/* The slices of x along dim at index [m], in its order: y[i,j] = x[index[i], j] for dim 0, y[i,j] = x[i, index[j]] for dim 1.
   CLEF_SHAPE unless index has one dimension.  The gradients of a slice that is taken several times are summed in a fixed order.
       clef_index_select(x, 1, clef_arange(ctx, 2, -1, -1, CLEF_I32))   columns 2, 1, 0  */
CLEF_API clef_tensor *clef_index_select(clef_tensor *x, int dim, clef_tensor *index);
/* A copy of x with y[index[i,j,k], j, k] = src[i,j,k] for dim 0, and so on; index and src have one shape, else as clef_gather.  Of
   equal indices the last one along dim counts, always.  The dtype is the common one of x and src.  Gradients: of x, 0 where
   something was placed; of src, 0 for what is outside or was replaced in turn.
       clef_scatter(x, 1, place, clef_ones(ctx, clef_tensor_shape(place), CLEF_F32))  */
CLEF_API clef_tensor *clef_scatter(clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src);
/* The same with one number in every place. */
CLEF_API clef_tensor *clef_scatter_value(clef_tensor *x, int dim, clef_tensor *index, double value);
/* x above 0, weight · x elsewhere: clef_leaky_relu with a slope that is learned.  weight is one number (a scalar or [1]), or [c] for the
   channels of x [n,c,...]; CLEF_SHAPE otherwise.  The result has x's dtype; whole numbers become f32.  He et al., "Delving deep into
   rectifiers", 2015.
       clef_prelu(x, weight)  */
CLEF_API clef_tensor *clef_prelu(clef_tensor *x, clef_tensor *weight);
/* x repeated along each dimension: n repeats ≥ 0 for the n dimensions of the result, of which x has the last; CLEF_INVALID if n is
   less than x's rank or above 8.  y[i,j] = x[i mod h, j mod w].  Gradients are summed.
       clef_repeat(x, (int64_t[]){2, 1, 3}, 3)   [4,5] → [2,4,15]  */
CLEF_API clef_tensor *clef_repeat(clef_tensor *x, const int64_t *repeats, int n);
/* Each slice along dim `repeats` times (≥ 0: CLEF_INVALID), one after the other: y[i] = x[⌊i / repeats⌋] for dim 0.  Gradients are
   summed.
       clef_repeat_interleave(keys, 4, 1)   [n,2,t,d] → [n,8,t,d]  */
CLEF_API clef_tensor *clef_repeat_interleave(clef_tensor *x, int64_t repeats, int dim);

/* ---- linear algebra: inputs of one dtype, not u8 or bool (CLEF_DTYPE) ---- */
/* c = a·b: [..,m,k] · [..,k,n] → [..,m,n]; leading dimensions broadcast, operands of rank 1 as in NumPy. */
CLEF_API clef_tensor *clef_matmul(clef_tensor *a, clef_tensor *b);
/* y = x·wᵀ + b: x [..,in], w [out,in], b [out] or CLEF_NONE → [..,out].
       clef_tensor *y = clef_linear(x, w, CLEF_NONE);  */
CLEF_API clef_tensor *clef_linear(clef_tensor *x, clef_tensor *w, clef_tensor *b);

/* ---- convolution and pooling, NCHW; sizes in pixels ----
   The arithmetic of sizes: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning",
   2016. */
typedef struct clef_conv2d_options {
    int stride[2];   /* {h, w}; 0: 1 */
    int padding[2];  /* {h, w} zeros on both sides */
    int dilation[2]; /* 0: 1 */
    int groups;      /* 0: 1 */
    bool same;       /* pad so that out = ⌈in / stride⌉, the odd zero at the end; padding is then ignored */
} clef_conv2d_options;
/* y[n,o,i,j] = b[o] + Σ over c,u,v of x[n, c, i·s + u·d - p, j·s + v·d - p] · w[o,c,u,v]: cross-correlation, as
   usual.  x [n,c,h,w], w [o,c/groups,kh,kw], b [o] or CLEF_NONE → [n,o,oh,ow] with oh = ⌊(h + 2p - d(kh-1) - 1)/s⌋ + 1.  Inputs
   of one dtype, not u8 or bool.  CLEF_SHAPE if channels, groups or sizes do not fit; CLEF_INVALID for
   negative options.  On CPUs 3×3 filters of stride 1 may be computed by Winograd's F(4×4, 3×3) (Lavin and Gray, 2016): errors are up
   to four times those of plain sums; CLEF_ROWS=product takes plain sums.
       clef_conv2d(x, w, CLEF_NONE, &(clef_conv2d_options){.padding = {1, 1}})  */
CLEF_API clef_tensor *clef_conv2d(clef_tensor *x, clef_tensor *w, clef_tensor *b, const clef_conv2d_options *options);

typedef struct clef_conv1d_options {
    int stride;   /* 0: 1 */
    int padding;  /* zeros on both sides */
    int dilation; /* 0: 1 */
    int groups;   /* 0: 1 */
    bool same;    /* pad so that out = ⌈in / stride⌉, the odd zero at the end; padding is then ignored */
} clef_conv1d_options;
/* y[n,o,i] = b[o] + Σ over c,u of x[n, c, i·s + u·d - p] · w[o,c,u]: clef_conv2d with a height of 1.  x [n,c,l], w [o,c/groups,k], b [o]
   or CLEF_NONE → [n,o,ol] with ol = ⌊(l + 2p - d(k-1) - 1)/s⌋ + 1.  CLEF_SHAPE for other ranks; else as clef_conv2d, whose name and
   shapes the line then has.
       clef_conv1d(x, w, CLEF_NONE, &(clef_conv1d_options){.padding = 1})  */
CLEF_API clef_tensor *clef_conv1d(clef_tensor *x, clef_tensor *w, clef_tensor *b, const clef_conv1d_options *options);

typedef struct clef_conv_transpose2d_options {
    int stride[2];         /* {h, w}; 0: 1 */
    int padding[2];        /* {h, w}: what is cut off on both sides */
    int output_padding[2]; /* {h, w}: more on the far side; below the stride */
    int dilation[2];       /* 0: 1 */
    int groups;            /* 0: 1 */
} clef_conv_transpose2d_options;
/* y[n,o,i·s + u·d - p, j·s + v·d - p] += x[n,c,i,j] · w[c,o,u,v], then + b[o]: the transpose of clef_conv2d, which is the map that
   its gradient applies.  x [n,c,h,w], w [c,o/groups,kh,kw], b [o] or CLEF_NONE → [n,o,oh,ow] with oh = (h - 1)·s - 2p +
   d(kh - 1) + output_padding + 1, as in PyTorch.  Inputs of one dtype, not u8 or bool.  CLEF_SHAPE if channels, groups or sizes do
   not fit; CLEF_INVALID for options out of range; CLEF_UNSUPPORTED above 2^31 pixels.
       clef_conv_transpose2d(x, w, CLEF_NONE, &(clef_conv_transpose2d_options){.stride = {2, 2}})
   Zeiler et al., "Deconvolutional networks", 2010. */
CLEF_API clef_tensor *clef_conv_transpose2d(clef_tensor *x, clef_tensor *w, clef_tensor *b,
                                            const clef_conv_transpose2d_options *options);

typedef struct clef_pool2d_options {
    int stride[2];        /* {h, w}; 0: the kernel's size */
    int padding[2];       /* at most half the kernel */
    bool exclude_padding; /* average: divide by the elements inside the image */
} clef_pool2d_options;
/* The largest element of each kh×kw window: [n,c,h,w] → [n,c,oh,ow], oh = ⌊(h + 2p - kh)/s⌋ + 1.  Padding
   never wins; a NaN does; the gradient goes to the first largest.  CLEF_SHAPE if the window is larger than
   the padded image. */
CLEF_API clef_tensor *clef_max_pool2d(clef_tensor *x, int kh, int kw, const clef_pool2d_options *options);
/* The mean of each kh×kw window, padding counted as zeros unless exclude_padding; shapes as in
   clef_max_pool2d.  CLEF_DTYPE for whole numbers. */
CLEF_API clef_tensor *clef_avg_pool2d(clef_tensor *x, int kh, int kw, const clef_pool2d_options *options);
/* Means that make oh×ow of any image: window i covers rows ⌊i·h/oh⌋ … ⌈(i+1)·h/oh⌉ - 1.  CLEF_DTYPE for whole
   numbers. */
CLEF_API clef_tensor *clef_adaptive_avg_pool2d(clef_tensor *x, int oh, int ow);
/* Mean over h and w: [n,c,h,w] → [n,c]. */
CLEF_API clef_tensor *clef_global_avg_pool2d(clef_tensor *x);
/* Each pixel fh×fw times: y[n,c,i,j] = x[n, c, ⌊i/fh⌋, ⌊j/fw⌋], [n,c,h,w] → [n,c,fh·h,fw·w], of any dtype.  Gradients are summed.
   CLEF_SHAPE for another rank, CLEF_INVALID unless both factors are positive.
       clef_upsample_nearest2d(x, 2, 2)  */
CLEF_API clef_tensor *clef_upsample_nearest2d(clef_tensor *x, int fh, int fw);

/* ---- softmax and normalisation; whole numbers become f32 ---- */
/* exp(x) / Σ exp(x) along dim, computed from x - max x, so it does not overflow; 1 for a scalar. */
CLEF_API clef_tensor *clef_softmax(clef_tensor *x, int dim);
/* log softmax(x) = x - log Σ exp(x) along dim, accurate where the softmax itself would round to 0. */
CLEF_API clef_tensor *clef_log_softmax(clef_tensor *x, int dim);
/* (x - mean) / √(var + eps) · weight + bias, with mean and (uncorrected) variance over the last n_dims
   dimensions; weight and bias have their shape (CLEF_SHAPE), or are CLEF_NONE, both or one of them.  Ba, Kiros and
   Hinton, "Layer normalization", 2016. */
CLEF_API clef_tensor *clef_layer_norm(clef_tensor *x, int n_dims, clef_tensor *weight, clef_tensor *bias, double eps);
/* (x - mean) / √(var + eps) · weight + bias per channel of x [n,c,...]; the other tensors are [c]
   (CLEF_SHAPE); weight and bias may be CLEF_NONE.  Training: mean and variance of the batch (two values per channel at least:
   CLEF_SHAPE), and running_mean and running_var, kept tensors, become (1 - momentum)·old + momentum·new, the new variance unbiased;
   an empty batch leaves them as they are.  Otherwise: the running statistics are used.  Ioffe and Szegedy, "Batch normalization",
   2015. */
CLEF_API clef_tensor *clef_batch_norm(clef_tensor *x, clef_tensor *weight, clef_tensor *bias, clef_tensor *running_mean,
                                      clef_tensor *running_var, bool training, double momentum, double eps);
/* x / √(mean of x² + eps) · weight, with the mean over the last n_dims dimensions, whose shape weight has (CLEF_SHAPE); or it is
   CLEF_NONE.  Zhang and Sennrich, "Root mean square layer normalization", 2019.
       clef_rms_norm(x, 1, weight, 1e-6)  */
CLEF_API clef_tensor *clef_rms_norm(clef_tensor *x, int n_dims, clef_tensor *weight, double eps);
/* (x - mean) / √(var + eps) · weight + bias, with mean and (uncorrected) variance over each group of c / groups channels of an
   item of x [n,c,...]; weight and bias are [c] or CLEF_NONE.  CLEF_SHAPE if groups do not divide the channels.  Wu and He, "Group
   normalization", 2018.
       clef_group_norm(x, 32, weight, bias, 1e-5)  */
CLEF_API clef_tensor *clef_group_norm(clef_tensor *x, int64_t groups, clef_tensor *weight, clef_tensor *bias, double eps);
/* The same with a group for each channel.  Ulyanov, Vedaldi and Lempitsky, "Instance normalization", 2016. */
CLEF_API clef_tensor *clef_instance_norm(clef_tensor *x, clef_tensor *weight, clef_tensor *bias, double eps);
/* 0 with probability p, else x/(1-p), drawn from the context's random numbers; of x [items, …] of a batch that ranks share
   (clef_loader_options.group), an item is treated as it would be on one rank with the whole batch.  p outside [0,1] is
   CLEF_INVALID.  Srivastava et al., "Dropout", 2014. */
CLEF_API clef_tensor *clef_dropout(clef_tensor *x, double p);

/* ---- attention ---- */
typedef struct clef_attention_options {
    bool causal;          /* query i sees keys j ≤ i + offset; offset is tk - tq, so that the last query sees all keys */
    bool top_left;        /* offset is 0 instead, as PyTorch's is_causal */
    clef_tensor *mask;    /* bool or u8 (true: seen), or a float that is added to scores; broadcasts to [b,h,tq,tk]; NULL: none */
    clef_tensor *lengths; /* whole numbers [b]: keys j ≥ lengths[b] are not seen; NULL: none */
    clef_tensor *offset;  /* whole numbers [1] or [b]: the offset itself, which may move without a new plan; NULL: as above */
    clef_tensor *slopes;  /* [h]: slopes[h]·|i + offset - j| is taken from scores (clef_alibi_slopes); no gradient; NULL: none */
    float scale;          /* 0: 1/√d */
    float dropout;  /* weights are 0 with this probability, else divided by 1 - dropout; drawn in every call, so a model leaves it 0
                             in evaluation */
    int64_t window; /* keys with |i + offset - j| ≥ window are not seen; 0: none */
    float softcap;  /* scores become softcap·tanh(scores / softcap) before what is added; 0: none */
} clef_attention_options;
/* y = softmax(scale · q · kᵀ + mask) · v along the keys: q [b,h,tq,d], k [b,hk,tk,d], v [b,hk,tk,dv] → [b,h,tq,dv].  h is a multiple of hk:
   head i of q reads head i·hk/h, rounded down, of k and v (grouped-query attention).  All have one floating dtype (CLEF_DTYPE); f16 and bf16 are computed
   in f32.  A row that sees no key is 0, and so are its gradients.  Gradients flow to q, k, v and a float mask.  CLEF_SHAPE where shapes do not
   fit; CLEF_INVALID for an option out of range.  Decoding with a cache of fixed capacity: .causal with .offset, the number of keys that
   lie before the first query.  Vaswani et al., "Attention is all you need", 2017.
       clef_tensor *y = clef_attention(q, k, v, &(clef_attention_options){.causal = true});  */
CLEF_API clef_tensor *clef_attention(clef_tensor *q, clef_tensor *k, clef_tensor *v, const clef_attention_options *options);

typedef struct clef_rotary_options {
    double base;              /* 0: 10000 */
    double scaling;           /* positions are divided by it (linear scaling); 0: 1 */
    int64_t dims;             /* of d, the first so many are rotated; even; 0: d */
    bool interleaved;         /* pair i is columns 2i and 2i + 1 (GPT-J); else columns i and dims/2 + i (GPT-NeoX, Llama) */
    clef_tensor *frequencies; /* [dims/2]: radians per position, in place of base and scaling; NULL: those */
} clef_rotary_options;
/* Rotary position embedding: each pair (a, b) of a row of x [b,h,t,d] at position p becomes (a·cos φ - b·sin φ, b·cos φ + a·sin φ) with
   φ = p · base^(-2i/dims) for pair i.  position: whole numbers [1], of the first row, whose plan serves all positions; [t]; or [b,t];
   CLEF_NONE: 0 … t - 1.  The result has x's shape and dtype.  CLEF_SHAPE, CLEF_DTYPE and CLEF_INVALID where these do not fit.  Su et
   al., "RoFormer: enhanced transformer with rotary position embedding", 2021.
       q = clef_rotary(q, clef_integer(ctx, at), NULL);  */
CLEF_API clef_tensor *clef_rotary(clef_tensor *x, clef_tensor *position, const clef_rotary_options *options);
/* The slopes of ALiBi: f32 [heads], 2^(-8i/n) for i = 1 … n where n = heads is a power of two; else those of the largest power of two
   below, then every other one of twice as many.  CLEF_INVALID unless heads > 0.  Press, Smith and Lewis, "Train short, test long", 2021.
       options.slopes = clef_alibi_slopes(ctx, 8);  */
CLEF_API clef_tensor *clef_alibi_slopes(clef_context *ctx, int64_t heads);

/* ---- recurrent layers over whole sequences: f32, f64, f16 or bf16 (computed in f32) ----
   x [t,b,in], or [b,t,in] with batch_first, t ≥ 1; all tensors of one dtype.  Layers come one after the other, each on all outputs of the
   one before.  y [t,b,H], or [t,b,2·H] of two directions, forward first; or the same with b first.  h and c: the states after the last step,
   [layers·directions,b,H], of layer 0 forward, layer 0 backwards, layer 1 …  With lengths [b] (whole numbers; those outside 0 … t are
   taken for 0 or t) item i has lengths[i] steps: y is 0 beyond them, h and c are those of its last one, and the backwards direction
   begins at its own end.  Gradients go to x, all weights, h0 and c0.  Memory is O(t).  Peepholes, clip,
   reset_before, coupled, other activations, and gradients that are to be differentiated again (to any order) are computed step by step in
   other ops: as exactly, but slower.
   y, h and c are temporaries, NULL on failure; pointers to those that nobody wants may be NULL. */
/* Of one layer in one direction, as PyTorch names and orders them: w_ih [gates·H,in], w_hh [gates·H,P], b_ih and b_hh [gates·H], and of an
   LSTM w_hr [P,H], its projection, and w_peep [3·H], its peepholes; all but w_ih and w_hh NULL or CLEF_NONE where there is none.  Without
   w_hr P is H; with it y and h are P wide, c is H. */
typedef struct clef_recurrent_weights {
    clef_tensor *w_ih, *w_hh, *b_ih, *b_hh, *w_hr, *w_peep;
} clef_recurrent_weights;
/* A function by ONNX's name: Affine (α x + β; α 1, β 0), Elu (α 1), HardSigmoid (max(0, min(1, α x + β)); α 0.2, β 0.5), LeakyRelu (α 0.01),
   Relu, ScaledTanh (α tanh(β x); 1, 1), Sigmoid, Softplus, Softsign, Tanh or ThresholdedRelu (x above α, else 0; α 1), with those α and β
   unless has_alpha_beta. */
typedef struct clef_recurrent_activation {
    const char *name; /* NULL: the cell's own */
    bool has_alpha_beta;
    double alpha, beta;
} clef_recurrent_activation;
typedef struct clef_recurrent_options {
    int layers;         /* 0: 1 */
    bool bidirectional; /* each layer in both directions */
    bool backwards;     /* from the last step to the first; not with bidirectional */
    bool batch_first;
    bool relu;            /* of clef_rnn: in place of tanh */
    double dropout;       /* between layers, 0 … 1 */
    clef_tensor *lengths; /* NULL or CLEF_NONE: all items have t steps */
    bool reset_before;    /* of clef_gru: n = tanh(w_ih x + b_ih + w_hh (r h) + b_hh), ONNX's linear_before_reset = 0 */
    bool coupled;         /* of clef_lstm: 1 - i in place of f, ONNX's input_forget */
    double clip;          /* what activations are applied to, but for c, is kept within ±clip; 0: any */
    /* Of the first direction and the second (NULL: as the first's): f of gates, or of all of clef_rnn; g in place of tanh of g and n; h in
       place of tanh of c. */
    clef_recurrent_activation activations[2][3];
} clef_recurrent_options;
/* h' = tanh(w_ih x + b_ih + w_hh h + b_hh), or relu.  weights: those of n = layers·directions, in the order of h.  h0 like h, or CLEF_NONE
   for zeros.  CLEF_SHAPE, with the shape that is wanted, if a tensor does not fit.  Elman, "Finding structure in time", 1990.
       clef_rnn(x, CLEF_NONE, &w, 1, NULL, &y, NULL);  */
CLEF_API clef_status clef_rnn(clef_tensor *x, clef_tensor *h0, const clef_recurrent_weights *weights, int n,
                              const clef_recurrent_options *options, clef_tensor **y, clef_tensor **h);
/* i, f, g, o = w_ih x + b_ih + w_hh h + b_hh;  c' = σ(f) c + σ(i) tanh(g);  h' = σ(o) tanh(c').  c0 like c, or CLEF_NONE.  Else as
   clef_rnn.  Hochreiter and Schmidhuber, "Long short-term memory", 1997.
   With w_hr: h' = w_hr (σ(o) tanh(c')).  Sak, Senior and Beaufays, "Long short-term memory based recurrent neural network architectures
   for large vocabulary speech recognition", 2014.  With w_peep = p_i, p_f, p_o: i and f plus p_i c and p_f c, o plus p_o c'.  Gers and
   Schmidhuber, "Recurrent nets that time and count", 2000.
       clef_lstm(x, CLEF_NONE, CLEF_NONE, &w, 1, &(clef_recurrent_options){.lengths = lengths}, NULL, &h, NULL);  */
CLEF_API clef_status clef_lstm(clef_tensor *x, clef_tensor *h0, clef_tensor *c0, const clef_recurrent_weights *weights, int n,
                               const clef_recurrent_options *options, clef_tensor **y, clef_tensor **h, clef_tensor **c);
/* r, z = σ(w_ih x + b_ih + w_hh h + b_hh);  n = tanh(w_ih x + b_ih + r (w_hh h + b_hh));  h' = (1 − z) n + z h.  Else as clef_rnn.  Cho et
   al., "Learning phrase representations using RNN encoder–decoder", 2014, with the reset after the product, as in PyTorch. */
CLEF_API clef_status clef_gru(clef_tensor *x, clef_tensor *h0, const clef_recurrent_weights *weights, int n,
                              const clef_recurrent_options *options, clef_tensor **y, clef_tensor **h);
/* Weights of another library in the order of gates of this one: dimension 0 of t (w_ih, w_hh or a bias) is as many equal parts as `from`
   has letters, one for each gate, and the result has them in the order of `to`, the same letters.  CLEF_INVALID if they are not, or the
   parts are not equal.  Keras keeps its weights transposed, and its GRU without reset_after is this one with reset_before.
       clef_reorder_gates(w, "zrh", "rzh");     Keras's GRU; its LSTM is in order  */
CLEF_API clef_tensor *clef_reorder_gates(clef_tensor *t, const char *from, const char *to);
/* The weights of ONNX's LSTM, GRU or RNN, one layer of n directions: W [n,gates·H,in], R [n,gates·H,H], B [n,2·gates·H] and of an LSTM P
   [n,3·H], where CLEF_NONE stands for no B or P, into weights[0] … weights[n-1]: temporaries, all NULL when it failed.  CLEF_SHAPE if they do
   not fit each other, CLEF_INVALID without weights or with n below 1.  ONNX's other inputs are x, lengths, h0 and c0; its GRU is
   clef_gru with reset_before unless linear_before_reset is 1; its Y [t,n,b,H] is y as [t,b,n,H].
       clef_recurrent_from_onnx(w, r, b, CLEF_NONE, weights, 1);
       clef_gru(x, h0, weights, 1, &(clef_recurrent_options){.reset_before = true}, &y, &h);  */
CLEF_API clef_status clef_recurrent_from_onnx(clef_tensor *w, clef_tensor *r, clef_tensor *b, clef_tensor *p,
                                              clef_recurrent_weights *weights, int n);

/* ---- losses ----
   Each gives one number per item or element, then its mean, its sum or (NONE) all of them.  They are computed
   in f32 (f64 for f64 inputs), which is the result's dtype too.  The mean of no losses is NaN, their sum 0. */
typedef enum clef_reduction { CLEF_REDUCE_MEAN, CLEF_REDUCE_SUM, CLEF_REDUCE_NONE } clef_reduction;
typedef struct clef_loss_options {
    clef_reduction reduction;
    double label_smoothing; /* cross_entropy: in [0,1) */
    bool has_ignore_index;  /* cross_entropy, nll: targets equal to ignore_index count for nothing */
    int64_t ignore_index;
    double delta;            /* huber: 0: 1 */
    bool classes_last;       /* cross_entropy, nll: classes are the last dimension of logits [n,...,c], as of language models */
    bool log_target;         /* kl_div: target is given as log p */
    clef_tensor *pos_weight; /* bce_with_logits: what target 1 weighs against 0, broadcasts to logits; keep it for later steps */
} clef_loss_options;
/* Any of these losses, or one of your own. */
typedef clef_tensor *(*clef_loss_fn)(clef_tensor *output, clef_tensor *target, const clef_loss_options *options);
/* Of logits [n,c,...] with p = softmax over dimension 1, and
     class indices t [n,...] (whole numbers): -(1-ε)·log p[t] - ε·(Σ over k of log p[k])/c;
     probabilities q [n,c,...] (floats):      -Σ over k of ((1-ε)·q[k] + ε/c)·log p[k]; nothing is ignored;
   where ε is label_smoothing; with classes_last of logits [n,...,c] in the same way.
   The mean is over the n·… targets that are not ignored.  An index outside 0 … c-1 that is not ignored gives
   NaN.  CLEF_SHAPE if target fits neither form.  Smoothing: Szegedy et al., 2016.
       clef_tensor *loss = clef_cross_entropy(clef_forward(net, b.x), b.y, NULL);
       clef_cross_entropy(logits, next, &(clef_loss_options){.classes_last = true})   [b,t,v] and [b,t]  */
CLEF_API clef_tensor *clef_cross_entropy(clef_tensor *logits, clef_tensor *target, const clef_loss_options *options);
/* -log_probs[t] for log_probs [n,c,...] (of clef_log_softmax, say) and class indices t [n,...]; as
   clef_cross_entropy, without smoothing. */
CLEF_API clef_tensor *clef_nll_loss(clef_tensor *log_probs, clef_tensor *target, const clef_loss_options *options);
/* (x - target)², the squared error; both of one shape (CLEF_SHAPE: nothing is broadcast), as in the losses
   below. */
CLEF_API clef_tensor *clef_mse_loss(clef_tensor *x, clef_tensor *target, const clef_loss_options *options);
/* |x - target|, the absolute error. */
CLEF_API clef_tensor *clef_l1_loss(clef_tensor *x, clef_tensor *target, const clef_loss_options *options);
/* With d = |x - target|: d²/2 where d ≤ delta, else delta·(d - delta/2).  CLEF_INVALID unless delta > 0.
   Over delta it is PyTorch's smooth L1 loss of beta = delta.  Huber, "Robust estimation of a location parameter", 1964. */
CLEF_API clef_tensor *clef_huber_loss(clef_tensor *x, clef_tensor *target, const clef_loss_options *options);
/* p·(log p - x), the Kullback-Leibler divergence of x = log q (of clef_log_softmax, say) from p: target, or exp(target) with
   log_target; 0 where p is 0.  The mean is over all elements, as PyTorch's is by itself; the divergence per item (its "batchmean") is
   the sum over the number of items.
       clef_div_scalar(clef_kl_div(clef_log_softmax(x, 1), p, &(clef_loss_options){.reduction = CLEF_REDUCE_SUM}), n)  */
CLEF_API clef_tensor *clef_kl_div(clef_tensor *log_probs, clef_tensor *target, const clef_loss_options *options);
/* Binary cross-entropy -t·log σ(x) - (1-t)·log(1 - σ(x)) of logits x and targets t in [0,1], with
   σ(x) = 1/(1 + exp(-x)); computed as log(1 + exp(-|x|)) and a line in x, without overflow, and exact where x is large.  With
   pos_weight w, neither NULL nor CLEF_NONE: -w·t·log σ(x) - (1-t)·log(1 - σ(x)); CLEF_SHAPE unless it broadcasts to logits. */
CLEF_API clef_tensor *clef_bce_with_logits(clef_tensor *logits, clef_tensor *target, const clef_loss_options *options);

/* ---- your own pointwise op ----
   Expressions in OpenCL C on the names x, y, z (inputs) and g (gradient of the result), with the helpers of
   cl/common.h: K(0.5) for constants, SEL(condition, then, else).
       static const clef_custom_op cube = {.name = "cube", .forward = "x*x*x", .backward = {"K(3)*x*x*g"}};
       clef_tensor *y = clef_custom(&cube, (clef_tensor *[]){x}, 1);  */
typedef struct clef_custom_op {
    const char *name; /* a C identifier; the op must live as long as the context */
    const char *forward;
    const char *backward[3]; /* NULL: no gradient for that input */
} clef_custom_op;
/* forward, element by element, of 1 to 3 inputs, which broadcast and are brought to a common floating dtype.
   CLEF_INVALID for more inputs or a name that is no identifier.  Text that does not compile is CLEF_BUILD
   when the result is computed (clef_build_log has the compiler's words); a second derivative is
   CLEF_UNSUPPORTED: where one is wanted, write the function with other ops, or as a clef_kernel whose gradient is. */
CLEF_API clef_tensor *clef_custom(const clef_custom_op *op, clef_tensor *const *x, int n);

/* ---- your own op with a kernel ----
   Several inputs and outputs of any shapes, and a kernel in OpenCL C 1.2.  Its arguments are declared once, as names: the library
   writes the kernel's head and passes what the names stand for.  The body runs once for every work-item `i` of 0 … items - 1 and
   sees
     inputs and outputs: row-major arrays in memory.  GET(x, j) is element j of x, PUT(y, j, v) stores v, in every dtype: f16 and
       bf16 are float in between, u8 and bool are int, and a bool is 0 or 1;
     sizes: `long`; numbers: `float`; both as infer set them.
   The body writes every element of the outputs, as their memory is not cleared.  It has no barriers.  Names in capitals are taken by
   the library's macros.  Options are part of the plan: a number that changes in each step comes as an input (clef_full).
   The least and the largest element of each row of x [rows,n]:

       static bool row_range_infer(clef_kernel_call *call) {
           if (call->input[0].rank != 2) return call->problem = "x must be a matrix", false;
           call->output[0] = call->output[1] = CLEF_SHAPE(call->input[0].dim[0]);
           call->size[0] = call->input[0].dim[1];
           return true;
       }
       static const clef_kernel_op row_range = {
           .name = "row_range", .inputs = "x", .outputs = "low high", .sizes = "n", .infer = row_range_infer,
           .body = "float a = INFINITY, b = -INFINITY;"
                   "for (long j = 0; j < n; j++) a = fmin(a, GET(x, i * n + j)), b = fmax(b, GET(x, i * n + j));"
                   "PUT(low, i, a); PUT(high, i, b);"};
       clef_tensor *range[2];
       clef_kernel(&row_range, &x, 1, NULL, 0, range, 2);  */
enum { CLEF_KERNEL_MOST = 16 }; /* inputs, outputs, sizes, numbers, options: of each no more */

/* What infer is told of one call, and what it says of it. */
typedef struct clef_kernel_call {
    int n_inputs, n_outputs, n_options;
    const clef_shape *input;
    const clef_dtype *input_dtype;
    const double *option;                      /* as clef_kernel got them */
    clef_shape output[CLEF_KERNEL_MOST];       /* to be set: each output's shape, at first scalars */
    clef_dtype output_dtype[CLEF_KERNEL_MOST]; /* at first input 0's */
    int64_t size[CLEF_KERNEL_MOST];            /* to be set: the values of op->sizes, at first 0 */
    double number[CLEF_KERNEL_MOST];           /* to be set: the values of op->numbers, at first 0 */
    int64_t items;                             /* work-items; at first -1: as many as output 0 has elements */
    const char *problem;                       /* the error line, where infer returns false: "x must be a matrix" */
} clef_kernel_call;

typedef struct clef_kernel_op {
    const char *name;             /* a C identifier; the op must live as long as the context */
    const char *inputs, *outputs; /* names, separated by spaces */
    const char *sizes, *numbers;  /* likewise; NULL: none */
    const char *functions;        /* text in front of the kernel; NULL: none */
    const char *body;
    /* Sets shapes, sizes and numbers, or says why not and returns false.  It is asked more than once for one call, and must say
       the same each time. */
    bool (*infer)(clef_kernel_call *call);
    /* Puts dL/dx[i] into dx[i] for those i where wanted[i], in terms of any ops, of another clef_kernel too (not of
       clef_grad, which goes on through what the x were made from).  g[k] is dL/dy[k]: NULL
       where no gradient came to that output.  dx[i] is NULL at first, which means zero.  NULL: backward through the op is
       CLEF_UNSUPPORTED. */
    void (*gradient)(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted, clef_tensor **dx,
                     const double *option);
} clef_kernel_op;
/* Runs the op on n inputs: y[0 … m - 1] become its outputs, temporaries as of any expression, or all NULL.  Outputs that nobody
   reads are computed with the others, but take memory only for the time of the kernel.  Of empty inputs, and without work-items,
   outputs are zeros.
   CLEF_INVALID where names, counts or the body are missing or do not fit; CLEF_SHAPE with infer's words.  Text that does not compile
   is CLEF_BUILD when a result is computed (clef_build_log has the compiler's words). */
CLEF_API clef_status clef_kernel(const clef_kernel_op *op, clef_tensor *const *x, int n, const double *options, int n_options,
                                 clef_tensor **y, int m);

/* ---- former names, which go after 0.1 ---- */
CLEF_DEPRECATED("clef_linear(x, w, CLEF_NONE)")
static inline clef_tensor *clef_linear_no_bias(clef_tensor *x, clef_tensor *w) { return clef_linear(x, w, CLEF_NONE); }
CLEF_DEPRECATED("clef_conv2d(x, w, b, options)")
static inline clef_tensor *clef_conv2d_bias(clef_tensor *x, clef_tensor *w, clef_tensor *b, const clef_conv2d_options *options) {
    return clef_conv2d(x, w, b, options);
}
CLEF_DEPRECATED("clef_layer_norm(x, n_dims, CLEF_NONE, CLEF_NONE, eps)")
static inline clef_tensor *clef_layer_norm_plain(clef_tensor *x, int n_dims, double eps) {
    return clef_layer_norm(x, n_dims, CLEF_NONE, CLEF_NONE, eps);
}

#ifdef __cplusplus
}
#endif
#endif
