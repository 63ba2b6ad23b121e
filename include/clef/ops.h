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
/* Π x; i64 for whole numbers. */
CLEF_API clef_tensor *clef_prod(clef_tensor *x, const int *dims, int n, bool keep);
/* Σ (x - mean)² / (count - correction), about the mean, so that a mean far from 0 costs no digits; finite
   wherever the result is.  Correction 1 is the sample variance; NaN or inf unless count > correction.  f32 for
   whole numbers. */
CLEF_API clef_tensor *clef_var(clef_tensor *x, const int *dims, int n, bool keep, int correction);
/* log Σ exp(x), computed as m + log Σ exp(x - m) with m = max x, so it does not overflow.  f32 for whole
   numbers. */
CLEF_API clef_tensor *clef_logsumexp(clef_tensor *x, const int *dims, int n, bool keep);
/* (Σ |x|^p)^(1/p) for p > 0, max |x| for p = INFINITY; for p = 2 the gradient at 0 is 0.  CLEF_INVALID if p
   is not positive. */
CLEF_API clef_tensor *clef_norm(clef_tensor *x, double p, const int *dims, int n, bool keep);
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
   DynamicUpdateSlice.  Only the window is written where nobody needs x any more, see clef_assign_at; an empty one gives x itself.
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
/* Rows of table [v,d] at index [...] (whole numbers): a tensor [...,d].  An index outside 0 … v-1 gives
   zeros. */
CLEF_API clef_tensor *clef_embedding(clef_tensor *table, clef_tensor *index);

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
   negative options.
       clef_conv2d(x, w, CLEF_NONE, &(clef_conv2d_options){.padding = {1, 1}})  */
CLEF_API clef_tensor *clef_conv2d(clef_tensor *x, clef_tensor *w, clef_tensor *b, const clef_conv2d_options *options);

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
/* 0 with probability p, else x/(1-p), drawn from the context's random numbers; p outside [0,1] is
   CLEF_INVALID.  Srivastava et al., "Dropout", 2014. */
CLEF_API clef_tensor *clef_dropout(clef_tensor *x, double p);

/* ---- losses ----
   Each gives one number per item or element, then its mean, its sum or (NONE) all of them.  They are computed
   in f32 (f64 for f64 inputs), which is the result's dtype too.  The mean of no losses is NaN, their sum 0. */
typedef enum clef_reduction { CLEF_REDUCE_MEAN, CLEF_REDUCE_SUM, CLEF_REDUCE_NONE } clef_reduction;
typedef struct clef_loss_options {
    clef_reduction reduction;
    double label_smoothing; /* cross_entropy: in [0,1) */
    bool has_ignore_index;  /* cross_entropy, nll: targets equal to ignore_index count for nothing */
    int64_t ignore_index;
    double delta; /* huber: 0: 1 */
} clef_loss_options;
/* Of logits [n,c,...] with p = softmax over dimension 1, and
     class indices t [n,...] (whole numbers): -(1-ε)·log p[t] - ε·(Σ over k of log p[k])/c;
     probabilities q [n,c,...] (floats):      -Σ over k of ((1-ε)·q[k] + ε/c)·log p[k]; nothing is ignored;
   where ε is label_smoothing.
   The mean is over the n·… targets that are not ignored.  An index outside 0 … c-1 that is not ignored gives
   NaN.  CLEF_SHAPE if target fits neither form.  Smoothing: Szegedy et al., 2016.
       clef_tensor *loss = clef_cross_entropy(clef_forward(net, b.x), b.y, NULL);  */
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
   Huber, "Robust estimation of a location parameter", 1964. */
CLEF_API clef_tensor *clef_huber_loss(clef_tensor *x, clef_tensor *target, const clef_loss_options *options);
/* Binary cross-entropy -t·log σ(x) - (1-t)·log(1 - σ(x)) of logits x and targets t in [0,1], with
   σ(x) = 1/(1 + exp(-x)); computed as log(1 + exp(x)) - x·t without overflow. */
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
   CLEF_UNSUPPORTED. */
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
    /* Puts dL/dx[i] into dx[i] for those i where wanted[i], in terms of any ops, of another clef_kernel too.  g[k] is dL/dy[k]: NULL
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
