/* apply.c — the funnel every expression goes through, and the checks that it shares. */
#include "graph/core.h"
#include "graph/graph_internal.h"

/* ---- shapes ---- */

bool clef__normalize_dim(int rank, int *dim) {
    if (*dim < 0) *dim += rank;
    return *dim >= 0 && *dim < rank;
}

bool clef__broadcast(clef_shape a, clef_shape b, clef_shape *out) {
    clef_shape shape = {.rank = a.rank > b.rank ? a.rank : b.rank};
    for (int i = 1; i <= shape.rank; i++) {
        int64_t x = i <= a.rank ? a.dim[a.rank - i] : 1, y = i <= b.rank ? b.dim[b.rank - i] : 1;
        if (x != y && x != 1 && y != 1) return false;
        shape.dim[shape.rank - i] = x == 1 ? y : x;
    }
    *out = shape;
    return true;
}

/* ---- inference ---- */

bool clef__infer_takes(clef__call *call, bool holds, const char *what) {
    if (holds) return true;
    const clef__node *last = call->input[call->n_inputs - 1];
    return clef__infer_fail(call, CLEF_INTERNAL, "clef bug, please report it: not so that %s (%d inputs, %s … %s)", what,
                            call->n_inputs, clef__shape_text(call->input[0]->shape), clef__shape_text(last->shape));
}

bool clef__same_shape(const clef__call *call, int i, int k) {
    return clef_shape_equal(call->input[i]->shape, call->input[k]->shape);
}

bool clef__infer_like(clef__call *call) {
    call->shape = call->input[0]->shape;
    call->dtype = call->input[0]->dtype;
    return true;
}

bool clef__infer_product(clef__call *call) {
    clef_dtype dtype = call->input[0]->dtype;
    if (dtype == CLEF_U8 || dtype == CLEF_BOOL)
        return clef__infer_fail(call, CLEF_DTYPE, "%s is not computed here; convert with clef_to first", clef_dtype_name(dtype));
    for (int i = 1; i < call->n_inputs; i++)
        if (call->input[i]->dtype != dtype)
            return clef__infer_fail(call, CLEF_DTYPE, "the inputs are %s and %s; convert one with clef_to", clef_dtype_name(dtype),
                                    clef_dtype_name(call->input[i]->dtype));
    call->dtype = dtype;
    return true;
}

bool clef__infer_bias(clef__call *call, clef_shape w) {
    if (call->n_inputs < 3) return true;
    clef_shape b = call->input[2]->shape;
    if (b.rank == 1 && b.dim[0] == w.dim[0]) return true;
    return clef__infer_fail(call, CLEF_SHAPE, "b must be [%lld] to go with w %s, not %s", (long long)w.dim[0], clef__shape_text(w),
                            clef__shape_text(b));
}

static bool infer_pointwise(clef__call *call) {
    call->shape = call->input[0]->shape;
    call->dtype = call->op->boolean ? CLEF_BOOL : call->input[0]->dtype;
    for (int i = 1; i < call->n_inputs; i++)
        if (!clef__broadcast(call->shape, call->input[i]->shape, &call->shape))
            return clef__infer_fail(call, CLEF_SHAPE, "shapes %s and %s do not broadcast", clef__shape_text(call->shape),
                                    clef__shape_text(call->input[i]->shape));
    return true;
}

/* All inputs must lie on one device; constants lie on none. */
static bool infer_device(clef__call *call, int *device) {
    *device = -1;
    for (int i = 0; i < call->n_inputs; i++) {
        clef__node *x = call->input[i];
        if ((x->op->kind == CLEF__CONSTANT && !x->buffer) || x->device == *device) continue;
        if (*device >= 0)
            return clef__infer_fail(call, CLEF_INVALID,
                                    "inputs lie on devices %d and %d; bring them together with "
                                    "clef_to_device",
                                    *device, x->device);
        *device = x->device;
    }
    if (*device < 0) *device = call->n_inputs ? call->input[0]->device : 0;
    return true;
}

static bool has_dtype(clef_context *ctx, const char *op, clef_dtype dtype, int device) {
    const clef_device_info *info = clef__device_info(clef__device_at(ctx, device));
    if (dtype != CLEF_F64 || info->f64) return true;
    clef__fail(ctx, CLEF_DTYPE, "%s: %s has no f64; use f32", op, info->name);
    return false;
}

/* Can its bytes be counted, in every dtype? */
static bool is_countable(clef_shape shape) {
    int64_t n = clef_shape_numel(shape);
    return n >= 0 && (uint64_t)n <= SIZE_MAX / 16;
}

static bool infer(clef__call *call, int *device) {
    if (!(call->op->infer ? call->op->infer(call) : infer_pointwise(call))) return false;
    if (!is_countable(call->shape))
        return clef__infer_fail(call, CLEF_SHAPE, "the result %s has too many elements", clef__shape_text(call->shape));
    return infer_device(call, device) && has_dtype(call->ctx, call->op->name, call->dtype, *device);
}

/* ---- the funnel ---- */

/* Hands the new node to a temporary; in eager mode computes it at once. */
static clef_tensor *publish(clef__node *node, bool attributes_ok) {
    clef_context *ctx = node->ctx;
    clef_tensor *t = NULL;
    if (!attributes_ok) clef__fail(ctx, CLEF_MEMORY, "%s: no host memory", node->op->name);
    else t = clef__tensor_new(ctx, node);
    if (t && clef__eager(ctx) && node->op->kind != CLEF__CONSTANT) clef__graph_of(ctx)->evaluate(ctx, &node, 1);
    clef__node_release(node);
    return t;
}

bool clef__check_type(clef_context *ctx, const char *op, clef_shape shape, clef_dtype dtype, int device) {
    if (!ctx || !clef__usable(ctx)) return false;
    if (clef_dtype_size(dtype) == 0) {
        clef__fail(ctx, CLEF_DTYPE, "%s: there is no dtype number %d", op, (int)dtype);
    } else if (shape.rank < 0 || shape.rank > CLEF_MAX_RANK) {
        clef__fail(ctx, CLEF_SHAPE, "%s: rank %d is not within 0 … %d", op, shape.rank, CLEF_MAX_RANK);
    } else if (has_dtype(ctx, op, dtype, device)) {
        for (int i = 0; i < shape.rank; i++)
            if (shape.dim[i] < 0) {
                clef__fail(ctx, CLEF_SHAPE, "%s: dimension %d of %s is negative", op, i, clef__shape_text(shape));
                return false;
            }
        if (is_countable(shape)) return true;
        clef__fail(ctx, CLEF_SHAPE, "%s: %s has too many elements", op, clef__shape_text(shape));
    }
    return false;
}

clef_tensor *clef__source(clef_context *ctx, const clef_op *op, clef_shape shape, clef_dtype dtype, const void *attributes,
                          size_t bytes, uint64_t u0, uint64_t u1) {
    if (!clef__check_type(ctx, op->name, shape, dtype, 0)) return NULL;
    clef__node *node = clef__node_new(ctx, op, 0, shape, dtype, 0);
    if (!node) return NULL;
    node->has_dynamic = true;
    node->dynamic.u[0] = u0;
    node->dynamic.u[1] = u1;
    return publish(node, clef__set_attributes(node, attributes, bytes));
}

/* A view of a constant is one, so it lies on no device either. */
static clef_tensor *reshaped_number(const clef__node *x, clef_shape shape) {
    clef_tensor *t = clef__source(x->ctx, x->op, shape, x->dtype, NULL, 0, x->dynamic.u[0], 0);
    if (t) clef__node_of(t)->device = x->device;
    return t;
}

clef_tensor *clef__apply(const clef_op *op, clef_tensor *const *inputs, int n, const void *attributes, size_t bytes) {
    clef__node *nodes[CLEF__MAX_INPUTS];
    clef_context *ctx = clef_tensor_context(inputs[0]);
    for (int i = 0; i < n; i++) {
        nodes[i] = clef__node_of(inputs[i]);
        if (!nodes[i]) return clef__given_array(ctx, op->name, "input", inputs, n), NULL;
        if (nodes[i]->ctx != ctx) return clef__refuse(ctx, op->name, CLEF_INVALID, "inputs belong to different contexts");
    }
    clef__call call = {.ctx = ctx, .op = op, .input = nodes, .n_inputs = n, .attributes = attributes};
    int device = 0;
    if (!clef__usable(ctx) || !infer(&call, &device)) return NULL;
    if (op->kind == CLEF__VIEW && clef__is_number(nodes[0])) return reshaped_number(nodes[0], call.shape);
    if (op->kind == CLEF__TRANSFER) device = (int)*(const int64_t *)attributes;
    clef__node *node = clef__node_new(ctx, op, n, call.shape, call.dtype, device);
    if (!node) return NULL;
    for (int i = 0; i < n; i++) {
        node->input[i] = nodes[i];
        clef__node_retain(nodes[i]);
        node->requires_grad |= nodes[i]->requires_grad;
    }
    node->requires_grad &= !clef__graph_of(ctx)->no_grad && op->gradient && clef__is_float(call.dtype);
    return publish(node, clef__set_attributes(node, attributes, bytes));
}

/* ---- recording ---- */

bool clef_set_grad_enabled(clef_context *ctx, bool enabled) {
    clef__graph *graph = ctx ? clef__graph_of(ctx) : NULL;
    if (!graph) return true;
    bool was = !graph->no_grad;
    graph->no_grad = !enabled;
    return was;
}

bool clef_grad_enabled(const clef_context *ctx) {
    clef__graph *graph = ctx ? clef__room_state(ctx, CLEF__ROOM_GRAPH) : NULL;
    return !graph || !graph->no_grad;
}
