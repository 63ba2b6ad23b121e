/* clip.c — keeping gradients within bounds before the step. */
#include "clef/optim.h"
#include "clef/pointwise.h"
#include "ops/ops.h"
#include "optim/optimizer.h"
#include <math.h>

/* ---- norms ---- */

bool clef__check_max_norm(clef_context *ctx, const char *op, double max_norm) {
    if (max_norm >= 0) return true;
    clef__fail(ctx, CLEF_INVALID, "%s: the largest norm is %g; it must be ≥ 0", op, max_norm);
    return false;
}

clef_tensor *clef__squared_norm(clef_tensor *g) { return clef_sum(clef_square(clef__to_wide(g)), NULL, 0, false); }

clef_tensor *clef__clip_factor(clef_tensor *norm, double max_norm) {
    if (!norm) return NULL;
    clef_tensor *most = clef__number(clef_tensor_context(norm), clef_tensor_dtype(norm), max_norm);
    return clef_minimum_scalar(clef_div(most, clef_add_scalar(norm, 1e-6)), 1);
}

clef_tensor *clef__clipped(clef_tensor *g, clef_tensor *factor) {
    return clef_to(clef_mul(g, clef_to_device(factor, clef_tensor_device(g))), clef_tensor_dtype(g));
}

/* ---- of a module ---- */

/* The gradient of the module's i-th tensor, or this rank's part of it where it is cut by *cut, once per parameter: NULL for buffers, later
   names and where there is none. */
static clef_tensor *gradient(const clef_module *module, int i, clef_tensor **parameter, clef__averaging **cut) {
    clef_named_tensor t = clef_module_tensor(module, i);
    *parameter = t.tensor;
    *cut = NULL;
    for (int j = 0; j < i; j++)
        if (clef_module_tensor(module, j).tensor == t.tensor) return NULL;
    if (t.is_buffer || clef__average_gradient(t.tensor) != CLEF_OK) return NULL;
    clef_tensor *shard = clef__gradient_shard(t.tensor, cut);
    return shard ? shard : clef_grad_of(t.tensor);
}

static clef_status replace(clef_tensor *parameter, clef__averaging *cut, clef_tensor *g) {
    return cut ? clef__set_gradient_shard(parameter, cut, g) : clef_set_grad(parameter, g);
}

/* Of gradients that are cut by `cut`, from tensor `first` on.  NULL with `failed`, or where there are none. */
static clef_tensor *squares(const clef_module *module, int first, const clef__averaging *cut, bool *failed) {
    clef_tensor *sum = NULL, *p;
    clef__averaging *by;
    for (int i = first, n = clef_module_tensors(module); i < n && !*failed; i++) {
        clef_tensor *g = gradient(module, i, &p, &by);
        if (!g || by != cut) continue;
        clef_tensor *square = clef__squared_norm(g);
        sum = sum ? clef_add(sum, clef_to_device(square, clef_tensor_device(sum))) : square;
        *failed = !square || !sum; /* else the next would begin a sum without them */
    }
    return sum;
}

/* Is tensor i the first whose gradient is cut by the same? */
static bool is_first(const clef_module *module, int i, const clef__averaging *cut) {
    clef_tensor *p;
    clef__averaging *by;
    for (int j = 0; j < i; j++)
        if (gradient(module, j, &p, &by) && by == cut) return false;
    return true;
}

/* Each rank has the squares of its parts alone. */
static clef_tensor *total_norm(const clef_module *module) {
    bool failed = false;
    clef_tensor *sum = squares(module, 0, NULL, &failed), *p;
    clef__averaging *cut;
    for (int i = 0, n = clef_module_tensors(module); i < n && !failed; i++) {
        if (!gradient(module, i, &p, &cut) || !cut || !is_first(module, i, cut)) continue;
        clef_tensor *own = squares(module, i, cut, &failed);
        clef_tensor *all = clef_all_reduce(own, clef__optimizer_of(cut)->group, CLEF_GROUP_SUM);
        sum = sum ? clef_add(sum, clef_to_device(all, clef_tensor_device(sum))) : all;
        failed |= !sum;
    }
    if (failed) return NULL;
    return sum ? clef_sqrt(sum) : clef_scalar(clef_module_context(module), 0);
}

clef_tensor *clef_clip_grad_norm(clef_module *module, double max_norm) {
    if (!module) return NULL;
    clef_context *ctx = clef_module_context(module);
    if (!clef__check_max_norm(ctx, "clip_grad_norm", max_norm)) return NULL;
    bool was = clef_set_grad_enabled(ctx, false);
    int n = clef_module_tensors(module);
    clef_tensor *norm = total_norm(module), *factor = clef__clip_factor(norm, max_norm), *p;
    clef__averaging *cut;
    for (int i = 0; i < n; i++) {
        clef_tensor *g = gradient(module, i, &p, &cut);
        if (!g) continue;
        clef_tensor *clipped = clef__clipped(g, factor);
        if (!clipped || replace(p, cut, clipped) != CLEF_OK) norm = NULL; /* the gradient stays as it was */
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
        clef__averaging *cut;
        clef_tensor *p, *g = gradient(module, i, &p, &cut);
        if (!g) continue;
        clef_tensor *clipped = clef_clamp(g, -limit, limit);
        status = clipped ? replace(p, cut, clipped) : clef_error_status(ctx);
    }
    clef_set_grad_enabled(ctx, was);
    return status;
}
