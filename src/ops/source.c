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
clef_tensor *clef_scalar(clef_context *ctx, double value) { return constant(ctx, "scalar", CLEF_SCALAR, CLEF_F32, value); }

/* ---- host memory ---- */

static size_t byte_count(clef_shape shape, clef_dtype dtype) { return (size_t)clef_shape_numel(shape) * clef_dtype_size(dtype); }

static clef__node *uploaded_node(clef_context *ctx, clef_shape shape, clef_dtype dtype, int device, const void *data,
                                 size_t bytes) {
    clef__buffer *buffer = NULL;
    if (bytes) {
        buffer = clef__buffer_new(clef__device_at(ctx, device), bytes);
        if (!buffer) return NULL;
        if (clef__buffer_write(buffer, 0, data, bytes) != CLEF_OK) {
            clef__buffer_release(buffer);
            return NULL;
        }
    }
    clef__node *node = clef__data_node(ctx, shape, dtype, device, buffer);
    if (!node) clef__buffer_release(buffer);
    return node;
}

clef_tensor *clef_from_host(clef_context *ctx, clef_shape shape, clef_dtype dtype, const void *data) {
    if (!clef__check_type(ctx, "from_host", shape, dtype, 0)) return NULL;
    size_t bytes = byte_count(shape, dtype);
    if (!data && bytes) return clef__refuse(ctx, "from_host", CLEF_INVALID, "data is NULL");
    clef__node *node = uploaded_node(ctx, shape, dtype, 0, data, bytes);
    if (!node) return NULL;
    clef_tensor *t = clef__tensor_new(ctx, node);
    clef__node_release(node);
    return t;
}

/* ---- assignment ---- */

/* `value` as a node that may become t's: of its dtype and device, and leading back into no tape.  NULL with the error set. */
static clef__node *assignable(const clef__tensor *t, clef_tensor *value) {
    bool was = clef_set_grad_enabled(t->ctx, false);
    value = clef_to_device(clef_to(value, t->node->dtype), t->node->device);
    const clef__node *node = clef__node_of(value);
    if (node && (t->requires_grad || node->leaf || node->requires_grad))
        value = clef_detach(value); /* a node has one leaf at most */
    clef_set_grad_enabled(t->ctx, was);
    return clef__node_of(value);
}

clef_status clef_assign(clef_tensor *handle, clef_tensor *value) {
    if (!CLEF__GIVEN("assign", "t value", handle, value)) return CLEF_INVALID;
    clef__tensor *t = clef__get(handle);
    if (t->ctx != clef_tensor_context(value))
        return clef__fail(t->ctx, CLEF_INVALID, "assign: the value belongs to another context");
    if (!clef_shape_equal(t->node->shape, clef_tensor_shape(value)))
        return clef__fail(t->ctx, CLEF_SHAPE, "assign: the value's shape %s is not the tensor's %s",
                          clef__shape_text(clef_tensor_shape(value)), clef__shape_text(t->node->shape));
    clef__node *node = assignable(t, value);
    if (!node) return clef_error_status(t->ctx);
    clef__tensor_set_node(t, node);
    return CLEF_OK;
}

clef_status clef_write(clef_tensor *handle, const void *data, size_t bytes) {
    if (!CLEF__GIVEN("write", "t", handle)) return CLEF_INVALID;
    clef__tensor *t = clef__get(handle);
    const clef__node *old = t->node;
    size_t wanted = byte_count(old->shape, old->dtype);
    if (bytes != wanted)
        return clef__fail(t->ctx, CLEF_INVALID, "write: %zu bytes for %s %s, which has %zu", bytes, clef_dtype_name(old->dtype),
                          clef__shape_text(old->shape), wanted);
    if (!data && bytes) return clef__fail(t->ctx, CLEF_INVALID, "write: data is NULL");
    if (!clef__usable(t->ctx)) return clef_error_status(t->ctx);
    clef__node *node = uploaded_node(t->ctx, old->shape, old->dtype, old->device, data, bytes);
    if (!node) return clef_error_status(t->ctx);
    clef__tensor_set_node(t, node);
    clef__node_release(node);
    return CLEF_OK;
}
