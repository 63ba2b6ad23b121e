/* apply.c — the funnel every expression goes through, and the checks that it shares. */
#include "graph/core.h"
#include "graph/graph_internal.h"

#include <string.h>

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
    const clef__output *last = call->input[call->n_inputs - 1];
    return clef__infer_fail(call, CLEF_INTERNAL, "clef bug, please report it: not so that %s (%d inputs, %s … %s)", what,
                            call->n_inputs, clef__shape_text(call->input[0]->shape), clef__shape_text(last->shape));
}

bool clef__same_shape(const clef__call *call, int i, int k) {
    return clef_shape_equal(call->input[i]->shape, call->input[k]->shape);
}

bool clef__infer_like(clef__call *call) {
    call->out->shape = call->input[0]->shape;
    call->out->dtype = call->input[0]->dtype;
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
    call->out->dtype = dtype;
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
    call->out->shape = call->input[0]->shape;
    call->out->dtype = call->op->boolean ? CLEF_BOOL : call->input[0]->dtype;
    for (int i = 1; i < call->n_inputs; i++)
        if (!clef__broadcast(call->out->shape, call->input[i]->shape, &call->out->shape))
            return clef__infer_fail(call, CLEF_SHAPE, "shapes %s and %s do not broadcast", clef__shape_text(call->out->shape),
                                    clef__shape_text(call->input[i]->shape));
    return true;
}

/* All inputs must lie on one device; numbers lie on none. */
static bool infer_device(clef__call *call, int *device) {
    *device = -1;
    for (int i = 0; i < call->n_inputs; i++) {
        const clef__output *x = call->input[i];
        if (clef__is_number(x) || x->device == *device) continue;
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
    for (int k = 0; k < call->n_outputs; k++)
        if (!is_countable(call->out[k].shape))
            return clef__infer_fail(call, CLEF_SHAPE, "the result %s has too many elements", clef__shape_text(call->out[k].shape));
    bool fits = infer_device(call, device);
    for (int k = 0; fits && k < call->n_outputs; k++) fits = has_dtype(call->ctx, call->op->name, call->out[k].dtype, *device);
    return fits;
}

/* ---- the funnel ---- */

/* Temporaries for the outputs of a new node; in eager mode computes them at once.  False with the error set, and none of them. */
static bool publish(clef__node *node, clef_tensor **out) {
    clef__output *all[CLEF__MAX_OUTPUTS];
    bool ok = true;
    for (int k = 0; k < node->n_outputs; k++) {
        all[k] = &node->out[k];
        out[k] = ok ? clef__tensor_new(all[k]) : NULL;
        ok = out[k] != NULL;
    }
    for (int k = 0; !ok && k < node->n_outputs; k++) {
        clef__tensor_drop(out[k]);
        out[k] = NULL;
    }
    if (ok && clef__eager(node->ctx) && node->op->kind != CLEF__CONSTANT)
        clef__graph_of(node->ctx)->evaluate(node->ctx, all, node->n_outputs);
    return ok;
}

/* Could there be tensors of this shape and dtype, on some device? */
static bool check_shape(clef_context *ctx, const char *op, clef_shape shape, clef_dtype dtype) {
    if (!ctx || !clef__usable(ctx)) return false;
    if (clef_dtype_size(dtype) == 0) {
        clef__fail(ctx, CLEF_DTYPE, "%s: there is no dtype number %d", op, (int)dtype);
    } else if (shape.rank < 0 || shape.rank > CLEF_MAX_RANK) {
        clef__fail(ctx, CLEF_SHAPE, "%s: rank %d is not within 0 … %d", op, shape.rank, CLEF_MAX_RANK);
    } else {
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

bool clef__check_type(clef_context *ctx, const char *op, clef_shape shape, clef_dtype dtype, int device) {
    return check_shape(ctx, op, shape, dtype) && has_dtype(ctx, op, dtype, device);
}

/* A constant lies on no device: which dtypes the one named has means nothing. */
static bool check_source(clef_context *ctx, const clef_op *op, clef_shape shape, clef_dtype dtype, int device) {
    return op->kind == CLEF__CONSTANT ? check_shape(ctx, op->name, shape, dtype)
                                      : clef__check_type(ctx, op->name, shape, dtype, device);
}

clef_tensor *clef__source(clef_context *ctx, const clef_op *op, clef_shape shape, clef_dtype dtype, int device,
                          const void *attributes, size_t bytes, uint64_t u0, uint64_t u1) {
    if (!check_source(ctx, op, shape, dtype, device)) return NULL;
    clef__node *node = clef__node_new(ctx, op, 0, &(clef__type){shape, dtype}, 1, device, attributes, bytes);
    clef_tensor *t = NULL;
    if (!node) return NULL;
    node->has_dynamic = true;
    node->dynamic.u[0] = u0;
    node->dynamic.u[1] = u1;
    if (op->ordered) clef__sequence(node);
    publish(node, &t);
    clef__node_release(node);
    return t;
}

/* A view of a constant is one, so it lies on no device either. */
static clef_tensor *reshaped_number(const clef__output *x, clef_shape shape) {
    const clef__node *node = x->node;
    return clef__source(node->ctx, node->op, shape, x->dtype, x->device, NULL, 0, node->dynamic.u[0], 0);
}

/* The values behind the inputs, all there and of one context, as autocast wants them. */
static bool find_inputs(const clef_op *op, clef_tensor *const *inputs, int n, clef__output **out) {
    clef_context *ctx = clef_tensor_context(inputs[0]);
    for (int i = 0; i < n; i++) {
        out[i] = clef__output_of(inputs[i]);
        if (!out[i]) return clef__given_array(ctx, op->name, "input", inputs, n), false;
        if (out[i]->node->ctx != ctx)
            return clef__refuse(ctx, op->name, CLEF_INVALID, "inputs belong to different contexts"), false;
    }
    return clef__usable(ctx) && clef__autocast_inputs(op, inputs, n, out);
}

/* A number beside other inputs becomes one on their device, so that what a gradient makes of it alone lies there too. */
static bool bring_number(clef__node *node, int i, const clef__output *x, int device) {
    clef_tensor *number =
        clef__source(node->ctx, x->node->op, x->shape, x->dtype, device, NULL, 0, x->node->dynamic.u[0], x->node->dynamic.u[1]);
    if (number) clef__set_input(node, i, clef__output_of(number));
    clef__tensor_drop(number);
    return number != NULL;
}

static bool set_inputs(clef__node *node, const clef__call *call, int device) {
    for (node->n_inputs = 0; node->n_inputs < call->n_inputs; node->n_inputs++) {
        clef__output *x = call->input[node->n_inputs];
        if (!clef__is_number(x) || x->device == device) clef__set_input(node, node->n_inputs, x);
        else if (!bring_number(node, node->n_inputs, x, device)) return false;
    }
    return true;
}

static clef__node *make_node(const clef__call *call, int device, size_t attribute_bytes) {
    clef__node *node =
        clef__node_new(call->ctx, call->op, call->n_inputs, call->out, call->n_outputs, device, call->attributes, attribute_bytes);
    if (!node) return NULL;
    const clef__graph *graph = clef__graph_of(call->ctx);
    bool records = !graph->no_grad && call->op->gradient, wanted = false;
    node->inference = graph->no_grad && !graph->differentiating;
    for (int i = 0; i < call->n_inputs; i++) wanted |= call->input[i]->requires_grad;
    for (int k = 0; k < node->n_outputs; k++) node->out[k].requires_grad = wanted && records && clef__is_float(node->out[k].dtype);
    if (!set_inputs(node, call, device)) {
        clef__node_release(node);
        return NULL;
    }
    if (call->op->ordered) clef__sequence(node);
    return node;
}

/* `type` has room for those of n outputs, and an op's `infer` writes no more. */
static bool apply_typed(const clef_op *op, clef_tensor *const *inputs, int n_inputs, const void *attributes, size_t bytes,
                        clef_tensor **out, int n, clef__type *type) {
    clef__output *x[CLEF__MAX_INPUTS];
    int device = 0;
    bool found = find_inputs(op, inputs, n_inputs, x);
    for (int k = 0; k < n; k++) out[k] = NULL; /* may be the array of the inputs */
    if (!found) return false;
    clef__call call = {x[0]->node->ctx, op, x, n_inputs, attributes, n, type};
    memset(type, 0, (size_t)n * sizeof *type);
    if (!infer(&call, &device)) return false;
    if (op->kind == CLEF__VIEW && clef__is_number(x[0])) return (out[0] = reshaped_number(x[0], type[0].shape)) != NULL;
    clef__node *node = make_node(&call, op->kind == CLEF__TRANSFER ? (int)*(const int64_t *)attributes : device, bytes);
    bool ok = node && publish(node, out);
    clef__node_release(node);
    return ok;
}

clef_tensor *clef__apply(const clef_op *op, clef_tensor *const *inputs, int n, const void *attributes, size_t bytes) {
    clef_tensor *out;
    clef__type type;
    apply_typed(op, inputs, n, attributes, bytes, &out, 1, &type);
    return out;
}

/* Room for the types of so many outputs is pages of the stack, which ops of one output (above) do without. */
bool clef__apply_all(const clef_op *op, clef_tensor *const *inputs, int n_inputs, const void *attributes, size_t bytes,
                     clef_tensor **out, int n) {
    clef__type type[CLEF__MAX_OUTPUTS];
    return apply_typed(op, inputs, n_inputs, attributes, bytes, out, n, type);
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
