/* source.c — tensors that come from outside or from nothing, and assignment. */
#include "ops/ops.h"
#include "plan/run/run.h"

#include <math.h>
#include <string.h>

/* ---- constants ---- */

static clef_tensor *constant(clef_context *ctx, const char *op, clef_shape shape, clef_dtype dtype, double value) {
    return clef__check_type(ctx, op, shape, dtype, 0) ? clef__constant(ctx, shape, dtype, 0, clef__held(dtype, value)) : NULL;
}

clef_tensor *clef_full(clef_context *ctx, clef_shape shape, clef_dtype dtype, double value) {
    return constant(ctx, "full", shape, dtype, value);
}
clef_tensor *clef_zeros(clef_context *ctx, clef_shape shape, clef_dtype dtype) { return constant(ctx, "zeros", shape, dtype, 0); }
clef_tensor *clef_ones(clef_context *ctx, clef_shape shape, clef_dtype dtype) { return constant(ctx, "ones", shape, dtype, 1); }
clef_tensor *clef_integer(clef_context *ctx, int64_t value) {
    return clef__check_type(ctx, "integer", CLEF_SCALAR, CLEF_I64, 0) ? clef__constant_integer(ctx, CLEF_SCALAR, 0, value) : NULL;
}
clef_tensor *clef_scalar(clef_context *ctx, double value) { return constant(ctx, "scalar", CLEF_SCALAR, CLEF_F32, value); }

clef_tensor *clef_full_like(clef_tensor *x, double value) {
    if (!CLEF__GIVEN("full_like", "x", x)) return NULL;
    clef_dtype dtype = clef_tensor_dtype(x);
    return clef__constant(clef_tensor_context(x), clef_tensor_shape(x), dtype, clef_tensor_device(x), clef__held(dtype, value));
}
clef_tensor *clef_zeros_like(clef_tensor *x) { return CLEF__GIVEN("zeros_like", "x", x) ? clef_full_like(x, 0) : NULL; }
clef_tensor *clef_ones_like(clef_tensor *x) { return CLEF__GIVEN("ones_like", "x", x) ? clef_full_like(x, 1) : NULL; }

/* ---- host memory ---- */

static size_t byte_count(clef_shape shape, clef_dtype dtype) { return (size_t)clef_shape_numel(shape) * clef_dtype_size(dtype); }

/* With a reference for the caller. */
static clef__output *upload(clef_context *ctx, clef_shape shape, clef_dtype dtype, int device, const void *data, size_t bytes) {
    clef__buffer *buffer = NULL;
    if (bytes) {
        buffer = clef__buffer_new(clef__device_at(ctx, device), bytes);
        if (!buffer) return NULL;
        if (clef__buffer_fill(buffer, data, bytes) != CLEF_OK) {
            clef__buffer_release(buffer);
            return NULL;
        }
    }
    clef__output *out = clef__data_output(ctx, shape, dtype, device, buffer);
    if (!out) clef__buffer_release(buffer);
    return out;
}

clef_tensor *clef_from_host_on(clef_context *ctx, int device, clef_shape shape, clef_dtype dtype, const void *data) {
    if (ctx && !clef__check_device(ctx, "from_host_on", device)) return NULL;
    if (!clef__check_type(ctx, "from_host", shape, dtype, device)) return NULL;
    size_t bytes = byte_count(shape, dtype);
    if (!data && bytes) return clef__refuse(ctx, "from_host", CLEF_INVALID, "data is NULL");
    clef__output *out = upload(ctx, shape, dtype, device, data, bytes);
    if (!out) return NULL;
    clef_tensor *t = clef__tensor_new(out);
    clef__output_release(out);
    return t;
}

clef_tensor *clef_from_host(clef_context *ctx, clef_shape shape, clef_dtype dtype, const void *data) {
    return clef_from_host_on(ctx, 0, shape, dtype, data);
}

/* ---- assignment ---- */

/* The smaller of both dtypes is what travels, and f64 goes by no device that lacks it. */
static clef_tensor *converted(clef_tensor *value, clef_dtype dtype, int device) {
    bool first = dtype != CLEF_F64 && clef_dtype_size(dtype) <= clef_dtype_size(clef_tensor_dtype(value));
    return first ? clef_to_device(clef_to(value, dtype), device) : clef_to(clef_to_device(value, device), dtype);
}

/* `value` as one that may become t's: of its dtype and device, and leading back into no tape.  NULL with the error set. */
static clef__output *assignable(const clef__tensor *t, clef_tensor *value) {
    bool was = clef_set_grad_enabled(t->ctx, false);
    value = converted(value, t->out->dtype, t->out->device);
    const clef__output *out = clef__output_of(value);
    if (out && (t->requires_grad || out->leaf || out->requires_grad)) value = clef_detach(value); /* a value has one leaf at most */
    clef_set_grad_enabled(t->ctx, was);
    return clef__output_of(value);
}

clef_status clef_assign(clef_tensor *handle, clef_tensor *value) {
    if (!CLEF__GIVEN("assign", "t value", handle, value)) return CLEF_INVALID;
    clef__tensor *t = clef__get(handle);
    if (t->ctx != clef_tensor_context(value))
        return clef__fail(t->ctx, CLEF_INVALID, "assign: the value belongs to another context");
    if (!clef_shape_equal(t->out->shape, clef_tensor_shape(value)))
        return clef__fail(t->ctx, CLEF_SHAPE, "assign: the value's shape %s is not the tensor's %s",
                          clef__shape_text(clef_tensor_shape(value)), clef__shape_text(t->out->shape));
    clef__output *out = assignable(t, value);
    if (!out) return clef_error_status(t->ctx);
    clef__tensor_set(t, out);
    return CLEF_OK;
}

clef_status clef_write(clef_tensor *handle, const void *data, size_t bytes) {
    if (!CLEF__GIVEN("write", "t", handle)) return CLEF_INVALID;
    clef__tensor *t = clef__get(handle);
    const clef__output *old = t->out;
    size_t wanted = byte_count(old->shape, old->dtype);
    if (bytes != wanted)
        return clef__fail(t->ctx, CLEF_INVALID, "write: %zu bytes for %s %s, which has %zu", bytes, clef_dtype_name(old->dtype),
                          clef__shape_text(old->shape), wanted);
    if (!data && bytes) return clef__fail(t->ctx, CLEF_INVALID, "write: data is NULL");
    if (!clef__usable(t->ctx)) return clef_error_status(t->ctx);
    clef__output *out = upload(t->ctx, old->shape, old->dtype, old->device, data, bytes);
    if (!out) return clef_error_status(t->ctx);
    clef__tensor_set(t, out);
    clef__output_release(out);
    return CLEF_OK;
}

/* ---- another device ---- */

/* What a tensor and its gradient become there. */
typedef struct moved {
    clef_tensor *value, *grad;
} moved;

static clef_status begin_move(clef_tensor *handle, int device, moved *to) {
    clef_context *ctx = clef_tensor_context(handle);
    uint64_t failures = clef__failures(ctx);
    bool was = clef_set_grad_enabled(ctx, false);
    to->grad = clef_grad_of(handle);
    to->value = clef_to_device(clef_detach(handle), device);
    if (to->grad) to->grad = clef_to_device(to->grad, device);
    clef_set_grad_enabled(ctx, was);
    return clef__failed_since(ctx, failures);
}

static clef_status end_move(clef_tensor *handle, const moved *to) {
    clef_set_grad(handle, CLEF_NONE);
    clef__tensor_set(clef__get(handle), clef__output_of(to->value));
    return to->grad ? clef_set_grad(handle, to->grad) : CLEF_OK;
}

/* Nothing changes before all new values are there. */
static clef_status move_all(clef_context *ctx, clef_tensor *const *t, int n, int device) {
    moved *to = clef__calloc((size_t)n, sizeof *to);
    if (!to) return clef__fail(ctx, CLEF_MEMORY, "module_to: no host memory for %d tensors", n);
    clef_status status = CLEF_OK;
    for (int i = 0; i < n && !status; i++)
        if (clef_tensor_device(t[i]) != device) status = begin_move(t[i], device, &to[i]);
    for (int i = 0, begun = !status; i < n && begun; i++) {
        clef_status ended = to[i].value ? end_move(t[i], &to[i]) : CLEF_OK;
        if (ended) status = ended;
    }
    clef__free(to);
    return status;
}

clef_status clef__move(clef_context *ctx, clef_tensor *const *t, int n, int device) {
    for (int i = 0; i < n; i++)
        if (clef_tensor_device(t[i]) != device) return move_all(ctx, t, n, device);
    return CLEF_OK;
}
