/* clip.c — keeping gradients within bounds before the step. */
#include "clef/optim.h"
#include "clef/pointwise.h"
#include "ops/ops.h"
#include <math.h>

/* The gradient of the module's i-th tensor, once per parameter: NULL for buffers, later names and where there is none. */
static clef_tensor *gradient(const clef_module *module, int i, clef_tensor **parameter) {
    clef_named_tensor t = clef_module_tensor(module, i);
    *parameter = t.tensor;
    for (int j = 0; j < i; j++)
        if (clef_module_tensor(module, j).tensor == t.tensor) return NULL;
    if (t.is_buffer || clef__average_gradient(t.tensor) != CLEF_OK) return NULL;
    return clef_grad_of(t.tensor);
}

static clef_tensor *total_norm(const clef_module *module, int n) {
    clef_tensor *sum = NULL, *p;
    for (int i = 0; i < n; i++) {
        clef_tensor *g = gradient(module, i, &p);
        if (!g) continue;
        clef_tensor *square = clef_sum(clef_square(clef__to_wide(g)), NULL, 0, false);
        sum = sum ? clef_add(sum, clef_to_device(square, clef_tensor_device(sum))) : square;
        if (!square || !sum) return NULL; /* else the next would begin a sum without them */
    }
    return sum ? clef_sqrt(sum) : clef_scalar(clef_module_context(module), 0);
}

clef_tensor *clef_clip_grad_norm(clef_module *module, double max_norm) {
    if (!module) return NULL;
    clef_context *ctx = clef_module_context(module);
    if (!(max_norm >= 0)) {
        clef__fail(ctx, CLEF_INVALID, "clip_grad_norm: the largest norm is %g; it must be ≥ 0", max_norm);
        return NULL;
    }
    bool was = clef_set_grad_enabled(ctx, false);
    int n = clef_module_tensors(module);
    clef_tensor *norm = total_norm(module, n), *p;
    clef_tensor *room = clef_div(clef__number(ctx, clef_tensor_dtype(norm), max_norm), clef_add_scalar(norm, 1e-6));
    clef_tensor *factor = clef_minimum_scalar(room, 1);
    for (int i = 0; i < n; i++) {
        clef_tensor *g = gradient(module, i, &p);
        if (!g) continue;
        clef_tensor *clipped = clef_to(clef_mul(g, clef_to_device(factor, clef_tensor_device(g))), clef_tensor_dtype(g));
        if (!clipped || clef_set_grad(p, clipped) != CLEF_OK) norm = NULL; /* the gradient stays as it was */
    }
    clef_set_grad_enabled(ctx, was);
    return norm && clef__want_result(norm) == CLEF_OK ? norm : NULL;
}

clef_status clef_clip_grad_value(clef_module *module, double limit) {
    if (!module) return CLEF_INVALID;
    clef_context *ctx = clef_module_context(module);
    if (!(limit >= 0)) return clef__fail(ctx, CLEF_INVALID, "clip_grad_value: the limit is %g; it must be ≥ 0", limit);
    clef_status status = CLEF_OK;
    bool was = clef_set_grad_enabled(ctx, false);
    int n = clef_module_tensors(module);
    for (int i = 0; i < n && !status; i++) {
        clef_tensor *p, *g = gradient(module, i, &p);
        if (!g) continue;
        clef_tensor *clipped = clef_clamp(g, -limit, limit);
        status = clipped ? clef_set_grad(p, clipped) : clef_error_status(ctx);
    }
    clef_set_grad_enabled(ctx, was);
    return status;
}
