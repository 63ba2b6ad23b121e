/* sync_norm.c — batch norm over the items of all ranks.

   Each rank finds mean mᵣ and variance vᵣ of its nᵣ values per channel.  One all_gather of these [2c + 1] numbers gives all ranks

       m = Σ nᵣ·mᵣ / N,    v = Σ nᵣ·(vᵣ + (mᵣ − m)²) / N,    N = Σ nᵣ

   (Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979), and its gradient, a
   reduce_scatter, brings each rank what all ranks' losses want of its numbers.

   The loss of the whole batch is Σ wᵣ·lᵣ, wᵣ being rank r's part of the items, while backward on rank r differentiates lᵣ alone and weighs the
   gradients of parameters by wᵣ afterwards.  So what goes out is weighed by the sender's items, and what comes in divided by the receiver's. */
#include "clef/pointwise.h"
#include "graph/graph.h"
#include "group/group.h"
#include "nn/module.h"
#include "ops/ops.h"

/* ---- x itself, whose gradient is k times what comes ---- */

static bool infer_weigh(clef__call *call) {
    return clef__infer_takes(call, call->input[1]->shape.rank == 0, "the factor is a number") && clef__infer_like(call);
}

static void gradient_weigh(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                           clef_tensor **dx) {
    (void)y;
    if (wanted[0]) dx[0] = clef_mul(g[0], x[1]);
}

static const clef_op op_weigh = {.name = "weigh_gradient",
                                 .kind = CLEF__POINTWISE,
                                 .params = "xk",
                                 .text = "x",
                                 .infer = infer_weigh,
                                 .gradient = gradient_weigh};

static clef_tensor *weigh(clef_tensor *x, double factor) {
    if (!x) return NULL;
    clef_tensor *k = clef__number(clef_tensor_context(x), clef_tensor_dtype(x), factor);
    return clef__apply(&op_weigh, (clef_tensor *[]){x, k}, 2, NULL, 0);
}

/* ---- statistics ---- */

/* Mean, variance and count per channel, as a row.  That of no items is zeros which hang on x, as backward must come to the same
   collective operations on all ranks. */
static clef_tensor *own_row(clef_tensor *wide) {
    clef_shape shape = clef_tensor_shape(wide), channels = CLEF_SHAPE(shape.dim[1]);
    int64_t count = clef_shape_numel(shape) / shape.dim[1];
    clef__statistics own;
    if (count > 0 && !clef__channel_statistics(NULL, wide, &own)) return NULL;
    if (count == 0) own.mean = own.var = clef_sum(wide, (int[]){0, 2, 3}, shape.rank - 1, false);
    clef_tensor *n =
        clef__constant(clef_tensor_context(wide), CLEF_SHAPE(1), clef_tensor_dtype(wide), clef_tensor_device(wide), (double)count);
    clef_tensor *row[] = {clef_reshape(own.mean, channels), clef_reshape(own.var, channels), n};
    return clef_concat(row, 3, 0);
}

/* The rows of all ranks, [ranks, 2c + 1]. */
static clef_tensor *gather(clef_tensor *row, clef_group *group) {
    if (!row) return NULL;
    clef__share share = clef__share_of(clef_tensor_context(row));
    double items = share.all > 0 ? (double)share.items : 1;
    row = weigh(clef_unsqueeze(row, 0), items > 0 ? 1 / items : 0);
    return weigh(clef_all_gather(row, group, 0), items);
}

bool clef__statistics_of_ranks(void *group, clef_tensor *wide, clef__statistics *s) {
    int rank = clef_tensor_shape(wide).rank;
    int64_t c = clef_tensor_shape(wide).dim[1];
    clef_tensor *all = gather(own_row(wide), group);
    if (!all) return false;
    clef_tensor *count = clef_detach(clef_slice(all, 1, 2 * c, 2 * c + 1, 1)), *sum = clef_sum(count, (int[]){0}, 1, true);
    clef_tensor *part = clef_div(count, clef_maximum_scalar(sum, 1));
    clef_tensor *means = clef_slice(all, 1, 0, c, 1), *vars = clef_slice(all, 1, c, 2 * c, 1);
    clef_tensor *mean = clef_sum(clef_mul(part, means), (int[]){0}, 1, true);
    clef_tensor *off = clef_square(clef_sub(means, mean));
    clef_tensor *var = clef_sum(clef_mul(part, clef_add(vars, off)), (int[]){0}, 1, false);
    clef_tensor *factor = clef_reshape(clef_div(sum, clef_maximum_scalar(clef_sub_scalar(sum, 1), 1)), CLEF_SCALAR);
    s->mean = clef__per_channel(clef_reshape(mean, CLEF_SHAPE(c)), rank);
    s->var = clef__per_channel(var, rank);
    s->unbiased = clef_mul(s->var, factor);
    return s->mean && s->var && s->unbiased;
}
