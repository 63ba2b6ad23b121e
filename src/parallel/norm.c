/* norm.c — the norm of gradients that ranks have parts of: of stages, and of layers that are cut. */
#include "clef/pointwise.h"
#include "ops/ops.h"
#include "optim/optimizer.h"
#include "parallel/parallel.h"

/* Of the gradients of n parameters that are cut over this group; NULL: of those that are whole. */
static clef_tensor *squares_of(clef_context *ctx, clef_tensor *const *t, int n, const clef_group *group) {
    clef_tensor *sum = clef_scalar(ctx, 0);
    for (int i = 0; i < n && sum; i++) {
        clef_tensor *g = clef__cut_over(t[i]) == group ? clef_grad_of(t[i]) : NULL;
        if (g) sum = clef_add(sum, clef_to_device(clef_to(clef__squared_norm(g), CLEF_F32), 0));
    }
    return sum;
}

/* Has none before it a part in this group? */
static bool is_first(clef_tensor *const *t, int i, const clef_group *group) {
    for (int j = 0; j < i; j++)
        if (clef__cut_over(t[j]) == group) return false;
    return true;
}

clef_tensor *clef__sum_of_squares(clef_context *ctx, clef_tensor *const *t, int n) {
    clef_tensor *sum = squares_of(ctx, t, n, NULL);
    for (int i = 0; i < n && sum; i++) {
        clef_group *group = clef__cut_over(t[i]);
        if (group && is_first(t, i, group))
            sum = clef_add(sum, clef_all_reduce(squares_of(ctx, t, n, group), group, CLEF_GROUP_SUM));
    }
    return sum;
}

clef_status clef__scale_gradients(clef_tensor *const *t, int n, clef_tensor *factor) {
    for (int i = 0; i < n; i++) {
        clef_tensor *g = clef_grad_of(t[i]);
        if (!g) continue;
        clef_tensor *scaled = clef__clipped(g, factor);
        clef_status status = scaled ? clef_set_grad(t[i], scaled) : clef_error_status(clef_tensor_context(t[i]));
        if (status) return status;
    }
    return CLEF_OK;
}

/* Each parameter once, whatever its names. */
static int list_parameters(const clef_module *net, clef_tensor **list) {
    int n = 0;
    for (int i = 0, all = clef_module_tensors(net); i < all; i++) {
        clef_named_tensor t = clef_module_tensor(net, i);
        bool again = t.is_buffer;
        for (int j = 0; j < n && !again; j++) again = list[j] == t.tensor;
        if (!again) list[n++] = t.tensor;
    }
    return n;
}

clef_tensor *clef_shard_clip_grad_norm(clef_module *net, double max_norm) {
    if (!net) return NULL;
    if (!clef__check_max_norm(net->ctx, "shard_clip_grad_norm", max_norm)) return NULL;
    clef_tensor **list = clef__calloc((size_t)clef_module_tensors(net) + 1, sizeof(clef_tensor *));
    if (!list) return clef__refuse(net->ctx, "shard_clip_grad_norm", CLEF_MEMORY, "no host memory for a list of parameters");
    int n = list_parameters(net, list);
    bool was = clef_set_grad_enabled(net->ctx, false);
    clef_tensor *norm = clef_sqrt(clef__sum_of_squares(net->ctx, list, n)), *factor = clef__clip_factor(norm, max_norm);
    bool done = factor && clef__scale_gradients(list, n, factor) == CLEF_OK && clef__want_result(norm) == CLEF_OK;
    clef_set_grad_enabled(net->ctx, was);
    clef__free(list);
    return done ? norm : NULL;
}
