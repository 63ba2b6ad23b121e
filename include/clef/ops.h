/* clef/ops.h — expressions that are more than pointwise (those are in clef/pointwise.h).
   A NULL input gives a NULL output; the first failure sticks in the context.  Negative dimensions count from the end. */
#ifndef CLEF_OPS_H
#define CLEF_OPS_H
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- dtype ---- */
CLEF_API clef_tensor *clef_to(clef_tensor *x, clef_dtype dtype);

/* ---- reductions: over the n dimensions in dims (n = 0: over all); keep leaves them as 1 ---- */
CLEF_API clef_tensor *clef_sum(clef_tensor *x, const int *dims, int n, bool keep);
CLEF_API clef_tensor *clef_mean(clef_tensor *x, const int *dims, int n, bool keep);
CLEF_API clef_tensor *clef_max(clef_tensor *x, const int *dims, int n, bool keep);
CLEF_API clef_tensor *clef_min(clef_tensor *x, const int *dims, int n, bool keep);
CLEF_API clef_tensor *clef_prod(clef_tensor *x, const int *dims, int n, bool keep);
/* sum (x - mean)^2 / (count - correction); correction 1 is the sample variance. */
CLEF_API clef_tensor *clef_var(clef_tensor *x, const int *dims, int n, bool keep, int correction);
CLEF_API clef_tensor *clef_logsumexp(clef_tensor *x, const int *dims, int n, bool keep);
/* (sum |x|^p)^(1/p); p = 1, 2 or INFINITY, or any positive number. */
CLEF_API clef_tensor *clef_norm(clef_tensor *x, double p, const int *dims, int n, bool keep);
/* Index (i64) of the first largest / smallest element along dim. */
CLEF_API clef_tensor *clef_argmax(clef_tensor *x, int dim, bool keep);
CLEF_API clef_tensor *clef_argmin(clef_tensor *x, int dim, bool keep);

/* ---- movement ---- */
/* One dimension may be -1.  Without a copy where the strides allow. */
CLEF_API clef_tensor *clef_reshape(clef_tensor *x, clef_shape shape);
CLEF_API clef_tensor *clef_flatten(clef_tensor *x, int first_dim, int last_dim);
CLEF_API clef_tensor *clef_squeeze(clef_tensor *x, int dim);
CLEF_API clef_tensor *clef_unsqueeze(clef_tensor *x, int dim);
CLEF_API clef_tensor *clef_transpose(clef_tensor *x, int a, int b);
/* order has rank entries: dimension i of the result is dimension order[i] of x. */
CLEF_API clef_tensor *clef_permute(clef_tensor *x, const int *order);
/* Broadcasts dimensions of 1 (and missing leading ones) to shape. */
CLEF_API clef_tensor *clef_expand(clef_tensor *x, clef_shape shape);
/* x[start : stop : step] along dim; negative bounds count from the end; step may be negative, not 0. */
CLEF_API clef_tensor *clef_slice(clef_tensor *x, int dim, int64_t start, int64_t stop, int64_t step);
CLEF_API clef_tensor *clef_flip(clef_tensor *x, int dim);
CLEF_API clef_tensor *clef_concat(clef_tensor *const *x, int n, int dim);
CLEF_API clef_tensor *clef_stack(clef_tensor *const *x, int n, int dim);
/* Cuts x along dim into n parts of the given sizes (which must add up) into parts[0..n-1]. */
CLEF_API clef_status clef_split(clef_tensor *x, int dim, const int64_t *sizes, int n, clef_tensor **parts);
/* before[i], after[i] ≥ 0 elements of value around dimension i (rank entries each). */
CLEF_API clef_tensor *clef_pad(clef_tensor *x, const int64_t *before, const int64_t *after, double value);
/* y[i,j,k] = x[index[i,j,k], j, k] for dim 0, and so on; index is i32 or i64, of x's rank. */
CLEF_API clef_tensor *clef_gather(clef_tensor *x, int dim, clef_tensor *index);
/* A copy of x with y[index[i,j,k], j, k] += src[i,j,k] for dim 0, and so on; in a fixed order. */
CLEF_API clef_tensor *clef_scatter_add(clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src);
/* Rows of table [v, d] at index [...]: a tensor [..., d]. */
CLEF_API clef_tensor *clef_embedding(clef_tensor *table, clef_tensor *index);

/* ---- linear algebra ---- */
/* [.., m, k] · [.., k, n] → [.., m, n]; leading dimensions broadcast; rank-1 operands as in NumPy. */
CLEF_API clef_tensor *clef_matmul(clef_tensor *a, clef_tensor *b);
/* x [.., in] · wᵀ [out, in] + b [out]; b may be absent: pass has_bias = false through clef_linear_no_bias. */
CLEF_API clef_tensor *clef_linear(clef_tensor *x, clef_tensor *w, clef_tensor *b);
CLEF_API clef_tensor *clef_linear_no_bias(clef_tensor *x, clef_tensor *w);

/* ---- convolution and pooling, NCHW ---- */
typedef struct clef_conv2d_options {
    int stride[2];   /* {h, w}; 0: 1 */
    int padding[2];  /* {h, w} zeros on both sides */
    int dilation[2]; /* 0: 1 */
    int groups;      /* 0: 1 */
    bool same;       /* pad so that out = ceil(in / stride), the odd zero at the end; padding is then ignored */
} clef_conv2d_options;
/* x [n,c,h,w], w [o,c/groups,kh,kw] → [n,o,oh,ow], oh = (h + 2p - d(kh-1) - 1)/s + 1.  Cross-correlation, as usual. */
CLEF_API clef_tensor *clef_conv2d(clef_tensor *x, clef_tensor *w, const clef_conv2d_options *options);
/* The same plus b [o] on every pixel of a channel. */
CLEF_API clef_tensor *clef_conv2d_bias(clef_tensor *x, clef_tensor *w, clef_tensor *b, const clef_conv2d_options *options);

typedef struct clef_pool2d_options {
    int stride[2];  /* {h, w}; 0: the kernel's size */
    int padding[2]; /* at most half the kernel */
    bool exclude_padding; /* average: divide by the elements inside the image */
} clef_pool2d_options;
CLEF_API clef_tensor *clef_max_pool2d(clef_tensor *x, int kh, int kw, const clef_pool2d_options *options);
CLEF_API clef_tensor *clef_avg_pool2d(clef_tensor *x, int kh, int kw, const clef_pool2d_options *options);
/* Window i covers floor(i·h/oh) … ceil((i+1)·h/oh). */
CLEF_API clef_tensor *clef_adaptive_avg_pool2d(clef_tensor *x, int oh, int ow);
/* Mean over h and w: [n,c,h,w] → [n,c]. */
CLEF_API clef_tensor *clef_global_avg_pool2d(clef_tensor *x);

/* ---- softmax and normalisation ---- */
CLEF_API clef_tensor *clef_softmax(clef_tensor *x, int dim);
CLEF_API clef_tensor *clef_log_softmax(clef_tensor *x, int dim);
/* Over the last `n_dims` dimensions; weight and bias have their shape (pass NULL only through the _plain form). */
CLEF_API clef_tensor *clef_layer_norm(clef_tensor *x, int n_dims, clef_tensor *weight, clef_tensor *bias, double eps);
CLEF_API clef_tensor *clef_layer_norm_plain(clef_tensor *x, int n_dims, double eps);
/* x [n,c,...]; weight, bias [c].  Training: batch statistics; running_mean/var (kept tensors, [c]) are assigned
   (1 - momentum)·old + momentum·new, new variance unbiased.  Otherwise: the running statistics are used. */
CLEF_API clef_tensor *clef_batch_norm(clef_tensor *x, clef_tensor *weight, clef_tensor *bias, clef_tensor *running_mean,
                                      clef_tensor *running_var, bool training, double momentum, double eps);
/* Zero with probability p, the rest times 1/(1-p). */
CLEF_API clef_tensor *clef_dropout(clef_tensor *x, double p);

/* ---- losses ---- */
typedef enum clef_reduction { CLEF_REDUCE_MEAN, CLEF_REDUCE_SUM, CLEF_REDUCE_NONE } clef_reduction;
typedef struct clef_loss_options {
    clef_reduction reduction;
    double label_smoothing;    /* cross_entropy: in [0,1) */
    bool has_ignore_index;     /* cross_entropy, nll: targets equal to ignore_index count for nothing */
    int64_t ignore_index;
    double delta;              /* huber: 0: 1 */
} clef_loss_options;
/* logits [n,c,...]; target: class indices [n,...] (integers) or probabilities [n,c,...]. */
CLEF_API clef_tensor *clef_cross_entropy(clef_tensor *logits, clef_tensor *target, const clef_loss_options *options);
/* log_probs [n,c,...], target class indices [n,...]. */
CLEF_API clef_tensor *clef_nll_loss(clef_tensor *log_probs, clef_tensor *target, const clef_loss_options *options);
CLEF_API clef_tensor *clef_mse_loss(clef_tensor *x, clef_tensor *target, const clef_loss_options *options);
CLEF_API clef_tensor *clef_l1_loss(clef_tensor *x, clef_tensor *target, const clef_loss_options *options);
CLEF_API clef_tensor *clef_huber_loss(clef_tensor *x, clef_tensor *target, const clef_loss_options *options);
CLEF_API clef_tensor *clef_bce_with_logits(clef_tensor *logits, clef_tensor *target, const clef_loss_options *options);

/* ---- your own pointwise op ----
   Expressions in OpenCL C on the names x, y, z (inputs) and g (gradient of the result), with the helpers of
   cl/common.h: K(0.5) for constants, SEL(condition, then, else).
       static const clef_custom_op cube = { .name = "cube", .forward = "x*x*x", .backward = { "K(3)*x*x*g" } };
       clef_tensor *y = clef_custom(&cube, (clef_tensor *[]){ x }, 1);  */
typedef struct clef_custom_op {
    const char *name;        /* a C identifier; the op must live as long as the context */
    const char *forward;
    const char *backward[3]; /* NULL: no gradient for that input */
} clef_custom_op;
CLEF_API clef_tensor *clef_custom(const clef_custom_op *op, clef_tensor *const *x, int n);

#ifdef __cplusplus
}
#endif
#endif
