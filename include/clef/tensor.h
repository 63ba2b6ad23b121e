/* clef/tensor.h — values on a device: making, reading, keeping, differentiating.

   Expressions are lazy: a call checks shapes and dtypes and adds a node; work is queued when a result is needed
   (clef_read, clef_item, clef_eval, the end of a step).
   Lifetime: a tensor returned by an expression is a temporary.  It lives until the end of the step after the one that
   made it; clef_step and clef_next end a step, clef_end_step does so by hand.  clef_keep makes it live until
   clef_release or clef_close.  At the end of a step, kept tensors and everything backward was called on are computed;
   other temporaries that were not read by then can no longer be read. */
#ifndef CLEF_TENSOR_H
#define CLEF_TENSOR_H
#include "base.h"
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- making ---- */
CLEF_API clef_tensor *clef_zeros(clef_context *ctx, clef_shape shape, clef_dtype dtype);
CLEF_API clef_tensor *clef_ones(clef_context *ctx, clef_shape shape, clef_dtype dtype);
/* Every element = value.  Changing the value from step to step does not make a new plan. */
CLEF_API clef_tensor *clef_full(clef_context *ctx, clef_shape shape, clef_dtype dtype, double value);
/* A scalar (rank 0) f32. */
CLEF_API clef_tensor *clef_scalar(clef_context *ctx, double value);
/* start, start+step, … below stop (above it when step < 0): ceil((stop-start)/step) elements. */
CLEF_API clef_tensor *clef_arange(clef_context *ctx, double start, double stop, double step, clef_dtype dtype);
/* The n×n identity. */
CLEF_API clef_tensor *clef_eye(clef_context *ctx, int64_t n, clef_dtype dtype);
/* Uniform on [0,1), f32 (Philox 4x32-10; 24 bits). */
CLEF_API clef_tensor *clef_rand(clef_context *ctx, clef_shape shape);
/* Standard normal, f32 (Philox 4x32-10, Box-Muller). */
CLEF_API clef_tensor *clef_randn(clef_context *ctx, clef_shape shape);
/* Copies row-major host memory of numel·size(dtype) bytes; data may be freed on return. */
CLEF_API clef_tensor *clef_from_host(clef_context *ctx, clef_shape shape, clef_dtype dtype, const void *data);

/* ---- asking ---- */
CLEF_API clef_context *clef_tensor_context(const clef_tensor *t);
CLEF_API clef_shape clef_tensor_shape(const clef_tensor *t);
CLEF_API clef_dtype clef_tensor_dtype(const clef_tensor *t);
CLEF_API int64_t clef_numel(const clef_tensor *t);
CLEF_API int clef_tensor_device(const clef_tensor *t); /* index within the context */

/* ---- results ---- */
/* Computes t and copies it, row-major, to out; `bytes` must be numel·size(dtype).  Waits. */
CLEF_API clef_status clef_read(clef_tensor *t, void *out, size_t bytes);
/* The one element of t as a double; NaN on failure. */
CLEF_API double clef_item(clef_tensor *t);
/* Computes t without waiting. */
CLEF_API clef_status clef_eval(clef_tensor *t);
/* Computes several tensors in one plan. */
CLEF_API clef_status clef_eval_all(clef_tensor *const *t, int n);
/* A readable form with shape and dtype, summarised when large; returns the length it needs like snprintf. */
CLEF_API int clef_format(clef_tensor *t, char *text, size_t size);
/* clef_format to a stream. */
CLEF_API clef_status clef_print(clef_tensor *t, FILE *stream);

/* ---- lifetime and change ---- */
/* Makes t outlive its step; returns t. */
CLEF_API clef_tensor *clef_keep(clef_tensor *t);
/* Drops a kept tensor; NULL is allowed. */
CLEF_API void clef_release(clef_tensor *t);
/* A tensor of the same value that shares nothing with t that may change later. */
CLEF_API clef_tensor *clef_copy(clef_tensor *t);
/* t := value (same shape; dtype is converted).  Earlier expressions keep the old value. */
CLEF_API clef_status clef_assign(clef_tensor *t, clef_tensor *value);
/* t := row-major host data. */
CLEF_API clef_status clef_write(clef_tensor *t, const void *data, size_t bytes);
/* Ends a step: computes kept tensors, forgets the temporaries of the step before. */
CLEF_API clef_status clef_end_step(clef_context *ctx);
/* The same value on another device of the context. */
CLEF_API clef_tensor *clef_to_device(clef_tensor *t, int device);

/* ---- gradients ---- */
/* Marks a kept leaf (a parameter) as wanting a gradient; returns t. */
CLEF_API clef_tensor *clef_require_grad(clef_tensor *t, bool wanted);
CLEF_API bool clef_requires_grad(const clef_tensor *t);
/* Adds nodes that compute d loss / d leaf for every leaf that wants it; gradients add up.  loss must be a scalar. */
CLEF_API clef_status clef_backward(clef_tensor *loss);
/* The same from a given gradient of y (same shape as y). */
CLEF_API clef_status clef_backward_from(clef_tensor *y, clef_tensor *grad);
/* The gradient of a leaf since it was last cleared, or NULL. */
CLEF_API clef_tensor *clef_grad_of(const clef_tensor *leaf);
CLEF_API void clef_set_grad(clef_tensor *leaf, clef_tensor *grad); /* NULL clears */
/* d y / d x[i] as expressions into dx[i] (zeros where y does not depend on x[i]), leaving leaf gradients alone.
   grad NULL: ones.  With create_graph the results can be differentiated again. */
CLEF_API clef_status clef_grad(clef_tensor *y, clef_tensor *grad, clef_tensor *const *x, int n, bool create_graph,
                               clef_tensor **dx);
/* Between enabled = false and true no expression is recorded for gradients; returns what was set before. */
CLEF_API bool clef_set_grad_enabled(clef_context *ctx, bool enabled);
CLEF_API bool clef_grad_enabled(const clef_context *ctx);
/* for (CLEF_NO_GRAD(ctx)) { … } : a block without recording (do not leave it by break or return). */
#define CLEF_NO_GRAD(ctx)                                                                        \
    bool clef__was = clef_set_grad_enabled((ctx), false), clef__once = true; clef__once;         \
    clef_set_grad_enabled((ctx), clef__was), clef__once = false
/* The same value, cut off from the history of gradients. */
CLEF_API clef_tensor *clef_detach(clef_tensor *t);

/* ---- looking inside ---- */
typedef enum clef_plan_format { CLEF_PLAN_TEXT, CLEF_PLAN_GRAPHVIZ } clef_plan_format;
/* Writes the pending graph of t and the plan made for it: nodes, groups, launches, memory. */
CLEF_API clef_status clef_print_plan(clef_tensor *t, clef_plan_format format, FILE *stream);

#ifdef __cplusplus
}
#endif
#endif
