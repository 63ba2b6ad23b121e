/* clef/tensor.h — values on a device: making, reading, keeping, differentiating.

   Expressions are lazy: a call checks shapes and dtypes and adds a node; work is queued when a result is
   needed (clef_read, clef_item, clef_eval, the end of a step).
   Lifetime: a tensor returned by an expression is a temporary.  It lives until the end of the step after the
   one that made it; clef_step and clef_next end a step, clef_end_step does so by hand.  clef_keep makes it
   live until clef_release or clef_close.  At the end of a step, kept tensors, everything backward was called
   on and the norm that clef_clip_grad_norm returned are computed; other temporaries that were not read by then
   can no longer be read.  A loss and that norm (one element) live longer: until CLEF_RESULT_STEPS further steps
   have ended, so that a loop with several optimizers can read them at its end.
   How a value was made goes with its step: one that was kept, or that backward was called on, is a number in the
   next, and backward to what it was made from is CLEF_STATE.  clef_detach says that none is wanted (a recurrent
   net's state, say); clef_grad gives the gradient of such a value itself.
   A tensor that is used after its time is found out, always: the call fails with CLEF_STATE and a line that
   says what it was and when it ended.  A clef_tensor * is no address: it may be copied and compared, no more.
   A loop that neither steps nor asks a loader for batches (inference, evaluation by hand) ends no step:
   without clef_end_step in it, its temporaries and their memory pile up until clef_close.  A step of a hundred
   thousand temporaries is warned of in the log.
       for (;;) { clef_read(clef_forward(net, input(ctx)), y, sizeof y); clef_end_step(ctx); }
   An expression may give back its input itself where there is nothing to do (clef_to to the same dtype,
   clef_reshape to the same shape), so two variables can hold one tensor; keeping is counted for that reason.
   Failures: an expression gives NULL and an action its status; the first line stays in the context
   (clef_error).  What computes can also fail with CLEF_MEMORY, CLEF_BUILD, CLEF_DEVICE or CLEF_LOST.  NULL
   for a tensor or context gives NULL or CLEF_INVALID; where the context is known from another argument and
   nothing failed before, the line names the argument.  A handle of a context that was closed gives CLEF_INVALID, with the
   line in clef_error(NULL) unless another argument's context can take it.
   Inputs that may be absent: CLEF_NONE stands for no tensor, and each function says where it takes it.  NULL never means
   that, so what failed before is not taken for left out. */
#ifndef CLEF_TENSOR_H
#define CLEF_TENSOR_H
#include "base.h"
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* No tensor: a constant, never the handle of one.  Questions answer it as they answer NULL, clef_release leaves it alone, and
   where a tensor must be it is CLEF_INVALID ("linear: w must be a tensor, not CLEF_NONE"), with the line in clef_error(NULL)
   where no other argument tells the context.
       clef_tensor *y = clef_linear(x, w, CLEF_NONE);  */
#ifdef __cplusplus
#define CLEF_NONE (reinterpret_cast<clef_tensor *>(static_cast<uintptr_t>(0xC1EF)))
#else
#define CLEF_NONE ((clef_tensor *)(uintptr_t)0xC1EF)
#endif

/* How many further steps a loss and a gradient's norm can be read. */
enum { CLEF_RESULT_STEPS = 8 };

/* ---- making: temporaries, on the context's first device ----
   CLEF_SHAPE for a negative dimension, a rank above 8 or too many elements; CLEF_DTYPE for f64 where there is
   none. */
/* Every element 0. */
CLEF_API clef_tensor *clef_zeros(clef_context *ctx, clef_shape shape, clef_dtype dtype);
/* Every element 1. */
CLEF_API clef_tensor *clef_ones(clef_context *ctx, clef_shape shape, clef_dtype dtype);
/* Every element = value as dtype holds it: floats round, i32 and i64 saturate, u8 keeps the low 8 bits of the
   whole number (0 of infinities), NaN is 0 in integers, and what is not 0 is true.  Changing the value from step to step does not
   make a new plan. */
CLEF_API clef_tensor *clef_full(clef_context *ctx, clef_shape shape, clef_dtype dtype, double value);
/* A scalar (rank 0) f32. */
CLEF_API clef_tensor *clef_scalar(clef_context *ctx, double value);
/* A scalar (rank 0) i64, exact for every int64_t: a position, a count, a limit.  Another value makes no new plan.
       clef_tensor *visible = clef_lt(clef_arange(ctx, 0, 64, 1, CLEF_I64), clef_integer(ctx, n));  */
CLEF_API clef_tensor *clef_integer(clef_context *ctx, int64_t value);
/* start, start+step, … below stop (above it when step < 0): ⌈(stop-start)/step⌉ elements.  CLEF_INVALID if
   that never ends, or if start or step is not whole for a whole-number dtype; CLEF_DTYPE for bool. */
CLEF_API clef_tensor *clef_arange(clef_context *ctx, double start, double stop, double step, clef_dtype dtype);
/* The n×n identity; CLEF_INVALID if n < 0. */
CLEF_API clef_tensor *clef_eye(clef_context *ctx, int64_t n, clef_dtype dtype);
/* Uniform on [0,1), f32, in steps of 2⁻²⁴, from the context's random numbers (clef_seed).  Philox 4x32-10:
   Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011. */
CLEF_API clef_tensor *clef_rand(clef_context *ctx, clef_shape shape);
/* Standard normal, f32, from the same numbers by the transform of Box and Muller, 1958. */
CLEF_API clef_tensor *clef_randn(clef_context *ctx, clef_shape shape);
/* Whole numbers (i64), each of low, low+1, … high-1 with the same probability within 2⁻⁶⁴: low + ⌊(high-low)·r/2⁶⁴⌋
   of r, 64 of the same random bits.  CLEF_INVALID unless low < high.
       clef_randint(ctx, 0, 6, CLEF_SHAPE(100))   a hundred dice, 0 … 5  */
CLEF_API clef_tensor *clef_randint(clef_context *ctx, int64_t low, int64_t high, clef_shape shape);
/* Copies row-major host memory of numel·size(dtype) bytes; data may be freed on return.
       clef_tensor *x = clef_from_host(ctx, CLEF_SHAPE(2, 3), CLEF_F32, (float[]){1, 2, 3, 4, 5, 6});  */
CLEF_API clef_tensor *clef_from_host(clef_context *ctx, clef_shape shape, clef_dtype dtype, const void *data);
/* The same on another device of the context; CLEF_INVALID if there is no such device. */
CLEF_API clef_tensor *clef_from_host_on(clef_context *ctx, int device, clef_shape shape, clef_dtype dtype, const void *data);

/* ---- like x: of its shape and dtype, on its device ----
       clef_tensor *noisy = clef_add(x, clef_randn_like(x));  */
CLEF_API clef_tensor *clef_zeros_like(clef_tensor *x);
CLEF_API clef_tensor *clef_ones_like(clef_tensor *x);
/* Every element = value, as clef_full. */
CLEF_API clef_tensor *clef_full_like(clef_tensor *x, double value);
/* Uniform on [0,1) and standard normal: the numbers of clef_rand and clef_randn, the same on every device.  CLEF_DTYPE unless x has
   a floating dtype. */
CLEF_API clef_tensor *clef_rand_like(clef_tensor *x);
CLEF_API clef_tensor *clef_randn_like(clef_tensor *x);

/* ---- asking: known at once, nothing is computed and nothing fails; CLEF_NONE is answered as NULL ---- */
/* The context t belongs to; NULL of NULL. */
CLEF_API clef_context *clef_tensor_context(const clef_tensor *t);
/* The shape, by value; that of a scalar for NULL. */
CLEF_API clef_shape clef_tensor_shape(const clef_tensor *t);
/* The dtype; CLEF_F32 for NULL. */
CLEF_API clef_dtype clef_tensor_dtype(const clef_tensor *t);
/* The number of elements, the product of the dimensions; 0 for NULL. */
CLEF_API int64_t clef_numel(const clef_tensor *t);
/* The index, within the context, of the device t lies on; -1 for NULL. */
CLEF_API int clef_tensor_device(const clef_tensor *t);

/* ---- results ---- */
/* Computes t and copies it, row-major, to out; `bytes` must be numel·size(dtype) (CLEF_INVALID).  Waits.  Where it
   fails because waiting does, a driver may still write to out until clef_synchronize has succeeded.
       float y[6]; clef_read(t, y, sizeof y);  */
CLEF_API clef_status clef_read(clef_tensor *t, void *out, size_t bytes);
/* The one element of t as a double; NaN on failure (CLEF_SHAPE unless there is just one).  Waits. */
CLEF_API double clef_item(clef_tensor *t);
/* Computes t without waiting for it; only where more than 128 commands are under way, for older ones. */
CLEF_API clef_status clef_eval(clef_tensor *t);
/* Computes n tensors of one context (CLEF_INVALID) in one plan, as clef_eval does. */
CLEF_API clef_status clef_eval_all(clef_tensor *const *t, int n);
/* Computes t and writes its numbers, dtype and shape as text, at most `size` bytes with the final 0; above
   1000 elements only three at each edge of a dimension.  Returns the length it needs like snprintf, -1 on
   failure. */
CLEF_API int clef_format(clef_tensor *t, char *text, size_t size);
/* clef_format and a line break to a stream; CLEF_IO if it takes none. */
CLEF_API clef_status clef_print(clef_tensor *t, FILE *stream);

/* ---- lifetime and change ---- */
/* Makes t outlive its step; returns t.  Counted: t lives until each clef_keep had its clef_release.
       clef_tensor *w = clef_keep(clef_randn(ctx, CLEF_SHAPE(3)));  */
CLEF_API clef_tensor *clef_keep(clef_tensor *t);
/* Takes back one clef_keep; NULL, CLEF_NONE and tensors that were not kept are left alone.  After the last one t and its
   gradient are freed, at once or, if t was made in this step or the one before, as the temporary it is again.
   What belongs to the library (a module's parameters, an optimizer's states, a gradient) lives on with its
   owner. */
CLEF_API void clef_release(clef_tensor *t);
/* A tensor of the same value that shares nothing with t that may change later. */
CLEF_API clef_tensor *clef_copy(clef_tensor *t);
/* t := value (same shape: CLEF_SHAPE; dtype and device are converted).  Earlier expressions keep the old
   value; no gradient goes through an assignment. */
CLEF_API clef_status clef_assign(clef_tensor *t, clef_tensor *value);
/* t[…, start : start + length, …] := value along dim, as clef_assign(t, clef_slice_update(t, dim, start, value)), converting dtype
   and device.  It happens in place and writes the window only, however large t is: what was made from the old value and is computed
   with it runs before.  The whole of t is copied first where the old value is still wanted: by a kept tensor, by an expression of
   this step that was not computed yet and is not now, by a gradient that is not computed yet, by an expression of the new value
   too, in eager mode, and of a program's own buffer (clef_from_opencl).  Temporaries of an earlier step, and those that are
   computed on the way with it, do not count: who reads them later, or asks for a gradient that needs the old value after both were
   computed in one evaluation, gets CLEF_STATE.
       clef_assign_at(cache, 1, clef_integer(ctx, position), keys);  */
CLEF_API clef_status clef_assign_at(clef_tensor *t, int dim, clef_tensor *start, clef_tensor *value);
/* t := row-major host data, copied; `bytes` must be numel·size(dtype) (CLEF_INVALID). */
CLEF_API clef_status clef_write(clef_tensor *t, const void *data, size_t bytes);
/* Ends a step: computes kept tensors and what backward was called on, frees the temporaries of the step
   before.  Waits as little as clef_eval.  A step in which nothing was made does not count. */
CLEF_API clef_status clef_end_step(clef_context *ctx);
/* The same value on another device of the context, t itself if it lies there; gradients flow back.  Between parts of one CPU a value
   that is no result itself is not copied: what reads it there reads it where it lies.
   CLEF_INVALID if there is no such device. */
CLEF_API clef_tensor *clef_to_device(clef_tensor *t, int device);

/* ---- gradients: reverse mode, over the graph of expressions ---- */
/* Marks a kept leaf (a parameter) as wanting a gradient; returns t.  NULL and CLEF_DTYPE unless t is
   floating, CLEF_STATE if another parameter shares its value (clef_copy parts them) or t is a temporary that is
   computed from parameters. */
CLEF_API clef_tensor *clef_require_grad(clef_tensor *t, bool wanted);
/* True for a leaf that wants a gradient and for an expression recorded from one. */
CLEF_API bool clef_requires_grad(const clef_tensor *t);
/* Adds nodes that compute d loss / d leaf for every leaf that wants it; gradients add up until cleared.
   CLEF_SHAPE unless loss has one element, CLEF_STATE if it depends on no such leaf.  A leaf's gradient is
   that of its present value: nothing flows to or through a value that clef_assign or clef_step replaced after
   loss was made.  If it fails, no leaf's gradient has changed. */
CLEF_API clef_status clef_backward(clef_tensor *loss);
/* The same from a given gradient of y: Σ grad · dy / d leaf.  grad must fit y as in clef_set_grad; CLEF_NONE: 1, for a y of one
   element. */
CLEF_API clef_status clef_backward_from(clef_tensor *y, clef_tensor *grad);
/* The gradient of a leaf since it was last cleared, or NULL; it belongs to the leaf and goes when it is cleared
   (clef_step does so), unless it was kept.  CLEF_STATE for an expression of parameters: clef_grad has its
   gradient. */
CLEF_API clef_tensor *clef_grad_of(const clef_tensor *leaf);
/* Replaces the gradient of a leaf by a value of its shape (CLEF_SHAPE), dtype (CLEF_DTYPE), device and context
   (CLEF_INVALID), else changes nothing; CLEF_NONE clears it. */
CLEF_API clef_status clef_set_grad(clef_tensor *leaf, clef_tensor *grad);
/* Σ grad · dy / d x[i] as temporaries into dx[i] (zeros where y does not depend on x[i]), leaving leaf
   gradients alone.  grad CLEF_NONE: 1, for a y of one element.  With create_graph the results can be
   differentiated again, and so on to any order.  Fails as clef_backward, with NULL in all of dx.
       clef_tensor *dx; clef_grad(y, CLEF_NONE, &x, 1, false, &dx);  */
CLEF_API clef_status clef_grad(clef_tensor *y, clef_tensor *grad, clef_tensor *const *x, int n, bool create_graph,
                               clef_tensor **dx);
/* Between enabled = false and true no expression is recorded for gradients; returns what was set before (true
   for NULL).
       bool was = clef_set_grad_enabled(ctx, false); … clef_set_grad_enabled(ctx, was);  */
CLEF_API bool clef_set_grad_enabled(clef_context *ctx, bool enabled);
/* Whether expressions are recorded now; true at first. */
CLEF_API bool clef_grad_enabled(const clef_context *ctx);
/* for (CLEF_NO_GRAD(ctx)) { … } : a block without recording (do not leave it by break or return). */
#define CLEF_NO_GRAD(ctx)                                                    \
    bool clef__was = clef_set_grad_enabled((ctx), false), clef__once = true; \
    clef__once;                                                              \
    clef_set_grad_enabled((ctx), clef__was), clef__once = false
/* ---- autocast: mixed precision without a cast in the program ----
   While it is on, every expression takes its floating inputs in the dtype that is good for it:
   - in the low one, f16 or bf16:  matmul, linear, the convolutions, attention, recurrent layers, prelu
   - in f32:  softmax, log_softmax, layer, RMS, group and instance norm, sum, prod, cumsum, cumprod, norm, logsumexp, cosine_similarity, exp,
     expm1, log, log2, log10, log1p, pow, square, reciprocal, rsqrt, tan, asin, acos, sinh, cosh, softplus, upsample_nearest2d, and all losses
   - as they come:  all others; of several dtypes the common one (clef/pointwise.h).  batch_norm computes in f32 and gives what it was given.
   f64, whole numbers and truth values stay as they are.  The casts are nodes of the graph: values are those of a program with clef_to in these
   places, bit for bit, and a parameter of f32 stays one and gets a gradient of f32.  One that several expressions use is cast once for each
   plan.  Gradients are made of the dtypes that forward had, also when backward is called, or a recomputed segment is run, under another setting.
   These are the lists of torch.autocast for CUDA.  With f16 scale the loss (clef_grad_scaler_new).
   Micikevicius et al., "Mixed precision training", 2018. */
/* Sets the low dtype of the expressions from here on, CLEF_F16 or CLEF_BF16; CLEF_F32, as at first, is off.  Returns what was set before, to be
   put back: settings nest.  Each context has its own, which is used by the thread that uses the context; no step, plan or error changes it.
   Another dtype is CLEF_DTYPE and changes nothing.  Without a context CLEF_F32 is returned.
       clef_dtype was = clef_set_autocast(ctx, CLEF_BF16);
       clef_tensor *loss = clef_cross_entropy(clef_forward(net, x), y, NULL);
       clef_set_autocast(ctx, was);
       clef_backward(loss);  */
CLEF_API clef_dtype clef_set_autocast(clef_context *ctx, clef_dtype dtype);
/* The present setting; CLEF_F32: off, and for NULL. */
CLEF_API clef_dtype clef_get_autocast(const clef_context *ctx);
/* The same value, cut off from the history of gradients. */
CLEF_API clef_tensor *clef_detach(clef_tensor *t);

/* ---- looking inside ---- */
/* What an evaluation takes, known from its plan, on one device or on all together: peak = input + result + temporary +
   prepacked.
   flops and bytes are those of all ops as they are defined, each reading and writing memory once: what fusing and caches save is
   not subtracted.  real_flops are those of the methods that were chosen, of which Winograd's convolution needs fewer. */
typedef struct clef_plan_size {
    int64_t peak_bytes;
    int64_t input_bytes;           /* values that were computed before: parameters, optimizer state, the batch */
    int64_t result_bytes;          /* new memory for what lives on; updates in place take none */
    int64_t temporary_bytes;       /* everything in between, placed by lifetime; one allocation per device */
    int64_t least_temporary_bytes; /* no placement could do with less */
    int64_t prepacked_bytes; /* of weights that stay as they are, packed or transformed: replays retain these, one for all plans
                                that want the same; in all at most the weights' own bytes, or as much as one plan needs */
    int64_t written_bytes;   /* that the launches write; an update in place (clef_assign_at) writes its window only */
    int64_t launches;
    double flops, bytes, real_flops;
} clef_plan_size;
/* In a dry run evaluation makes plans and computes nothing, so a training step costs no time and no memory; reading a value
   that was not computed before fails with CLEF_STATE.  Turning it off gives every kept tensor and the random numbers the
   values they had (optimizers go on counting steps).  Returns what was set before.
       clef_set_dry_run(ctx, true);
       clef_backward(loss_of(net, x, y)), clef_step(opt);
       clef_plan_size size; clef_plan_memory(ctx, &size);
       clef_set_dry_run(ctx, false);  */
CLEF_API bool clef_set_dry_run(clef_context *ctx, bool on);
/* The evaluation with the highest peak since the dry run began; zeros if there was none.  CLEF_STATE unless one is on. */
CLEF_API clef_status clef_plan_memory(clef_context *ctx, clef_plan_size *size);
/* The same of one device: the evaluation with the highest peak there, and what it takes and does there.  CLEF_INVALID if there is no
   such device.
       clef_plan_memory_of(ctx, 1, &size);   does the second half fit?  */
CLEF_API clef_status clef_plan_memory_of(clef_context *ctx, int device, clef_plan_size *size);
/* One launch of a plan.  Its texts live as long as the call that tells of it. */
typedef struct clef_planned_launch {
    const char *ops;            /* those of its prologue, its own, those of its epilogue; cut off where they are many */
    const char *kernel;         /* "tile", "matrix", "pointwise", …; "copy" between devices */
    int device;                 /* within the context, from 0 */
    size_t global[3], local[3]; /* work-items in all, and of one work-group */
    double flops;               /* that it does, as a product of tiles with those of the edges' tiles; 0: few for its bytes */
    double bytes;               /* of its operands and results, each once */
    bool prepares;              /* a weight, for all later runs of the plan: it runs once */
} clef_planned_launch;
typedef void (*clef_planned_launch_fn)(void *user, const clef_planned_launch *launch);
/* In dry runs of this context tells fn of every launch of every evaluation, in the order in which they would be queued; fn must not
   call Clef.  NULL ends that.
       clef_set_dry_run(ctx, true);
       clef_on_planned_launch(ctx, print_launch, stdout);
       clef_eval(clef_matmul(a, b));  */
CLEF_API void clef_on_planned_launch(clef_context *ctx, clef_planned_launch_fn fn, void *user);
typedef enum clef_plan_format { CLEF_PLAN_TEXT, CLEF_PLAN_GRAPHVIZ } clef_plan_format;
/* Writes the pending graph of t and the plan made for it (nodes, groups, launches, memory) as text or in
   Graphviz's dot language; computes nothing.  "nothing to compute" if t is computed already.  CLEF_INVALID without a stream
   or for another format. */
CLEF_API clef_status clef_print_plan(clef_tensor *t, clef_plan_format format, FILE *stream);

#ifdef __cplusplus
}
#endif
#endif
