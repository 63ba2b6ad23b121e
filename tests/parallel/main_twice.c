/* Second derivatives of what ranks compute together: collective operations, borders of shards, and a gradient penalty through layers that are
   cut, on 2 and 3 ranks against one device that has all ranks' tensors, one behind the other.
   ctest: apart plain */
#include "../group/ranks.h"
#include <math.h>

enum { EACH = 2, RANKS = 3, MOST = RANKS * RANKS * EACH };

/* Numbers between -1 and 1 that depend on where they stand, and not on the number of ranks. */
static void fill(float *x, int n, uint64_t seed) {
    for (int i = 0; i < n; i++) x[i] = (float)(random_below(&seed, 2001) - 1000) / 1000;
}

static clef_tensor *number_row(clef_context *ctx, clef_shape shape, uint64_t seed) {
    float x[MOST];
    fill(x, (int)clef_shape_numel(shape), seed);
    return clef_from_host(ctx, shape, CLEF_F32, x);
}

static clef_tensor *leaf(clef_context *ctx, clef_shape shape, uint64_t seed) {
    return clef_require_grad(clef_keep(number_row(ctx, shape, seed)), true);
}

static clef_tensor *sum_of(clef_tensor *x) { return clef_sum(x, NULL, 0, false); }
static clef_tensor *cube(clef_tensor *x) { return clef_mul(x, clef_square(x)); }

static void compare(const char *what, int rank, clef_tensor *got, const float *want, int n) {
    float x[MOST];
    if (!got || clef_numel(got) != n || clef_read(got, x, (size_t)n * sizeof *x)) {
        COMPLAIN("%s, rank %d: no second derivative of %d numbers", what, rank, n);
        return;
    }
    for (int i = 0; i < n; i++)
        if (!(fabsf(x[i] - want[i]) <= 1e-4f * (1 + fabsf(want[i]))))
            COMPLAIN("%s, rank %d, number %d: %g, not %g", what, rank, i, (double)x[i], (double)want[i]);
}

/* ---- collective operations ---- */

typedef enum kind { SUM, MEAN, GATHER, SCATTER, SCATTER_MEAN, BROADCAST, EXCHANGE, KINDS } kind;
static const char *const names[] = {"all_reduce", "mean", "all_gather", "reduce_scatter", "its mean", "broadcast", "all_to_all"};

static clef_tensor *together(kind k, clef_tensor *x, clef_group *all) {
    switch (k) {
    case SUM: return clef_all_reduce(x, all, CLEF_GROUP_SUM);
    case MEAN: return clef_all_reduce(x, all, CLEF_GROUP_MEAN);
    case GATHER: return clef_all_gather(x, all, 0);
    case SCATTER: return clef_reduce_scatter(x, all, 0, CLEF_GROUP_SUM);
    case SCATTER_MEAN: return clef_reduce_scatter(x, all, 0, CLEF_GROUP_MEAN);
    case BROADCAST: return clef_broadcast(x, all, 1);
    default: return clef_all_to_all(x, all, 0);
    }
}

/* The same of all ranks' x, [ranks, n]; what each has then, [ranks, …]. */
static clef_tensor *alone(kind k, clef_tensor *x, int ranks, int n) {
    clef_tensor *sum = clef_sum(x, (int[]){0}, 1, true);
    switch (k) {
    case SUM: return clef_expand(sum, CLEF_SHAPE(ranks, n));
    case MEAN: return clef_expand(clef_div_scalar(sum, ranks), CLEF_SHAPE(ranks, n));
    case GATHER: return clef_expand(clef_reshape(x, CLEF_SHAPE(1, ranks * n)), CLEF_SHAPE(ranks, ranks * n));
    case SCATTER: return clef_reshape(sum, CLEF_SHAPE(ranks, n / ranks));
    case SCATTER_MEAN: return clef_reshape(clef_div_scalar(sum, ranks), CLEF_SHAPE(ranks, n / ranks));
    case BROADCAST: return clef_expand(clef_slice(x, 0, 1, 2, 1), CLEF_SHAPE(ranks, n));
    default: return clef_reshape(clef_transpose(clef_reshape(x, CLEF_SHAPE(ranks, ranks, n / ranks)), 0, 1), CLEF_SHAPE(ranks, n));
    }
}

/* The gradient by x of the sum of the squares of the gradient of Σ y³. */
static clef_tensor *twice(clef_tensor *y, clef_tensor *x) {
    clef_tensor *dx, *ddx;
    if (clef_grad(sum_of(cube(y)), CLEF_NONE, &x, 1, true, &dx)) return NULL;
    return clef_grad(sum_of(clef_square(dx)), CLEF_NONE, &x, 1, false, &ddx) ? NULL : ddx;
}

typedef struct scene {
    int ranks;
    float want[KINDS][MOST]; /* of all ranks, one behind the other */
    float whole[MOST], own[MOST];
    float penalty[MOST], bias[MOST];
} scene;

static uint64_t seed_of(int rank) { return 11 + (uint64_t)rank; }

/* All ranks' rows. */
static clef_tensor *all_rows(clef_context *ctx, int ranks, int n) {
    float x[MOST];
    for (int r = 0; r < ranks; r++) fill(x + r * n, n, seed_of(r));
    return clef_require_grad(clef_keep(clef_from_host(ctx, CLEF_SHAPE(ranks, n), CLEF_F32, x)), true);
}

/* ---- borders of shards: the loss is one, and the same on all ranks ---- */

/* s = Σ_r x·v_r, t_r = (x's part)²·(v_r's begin); of s and t alike. */
static clef_tensor *loss_of(clef_tensor *s, clef_tensor *t) { return clef_add(sum_of(cube(s)), sum_of(cube(t))); }

static clef_status borders(clef_context *ctx, clef_group *all, const scene *c) {
    int n = c->ranks * EACH, rank = clef_group_rank(all);
    clef_tensor *x[2] = {leaf(ctx, CLEF_SHAPE(n), 5), leaf(ctx, CLEF_SHAPE(n), seed_of(rank))}, *dx[2], *ddx[2];
    clef_tensor *s = clef_reduce_from_group(clef_mul(clef_copy_to_group(x[0], all), x[1]), all);
    clef_tensor *t = clef_mul(clef_square(clef_scatter_to_group(x[0], all, 0)), clef_slice(x[1], 0, 0, EACH, 1));
    clef_tensor *y = loss_of(s, clef_gather_from_group(t, all, 0));
    if (clef_grad(y, CLEF_NONE, x, 2, true, dx)) return clef_error_status(ctx);
    clef_tensor *own = clef_reduce_from_group(sum_of(clef_square(dx[1])), all);
    if (clef_grad(clef_add(sum_of(clef_square(dx[0])), own), CLEF_NONE, x, 2, false, ddx)) return clef_error_status(ctx);
    compare("borders, what all have", rank, ddx[0], c->whole, n);
    compare("borders, what each has", rank, ddx[1], c->own + rank * n, n);
    return clef_error_status(ctx);
}

static void borders_alone(clef_context *ctx, scene *c) {
    int ranks = c->ranks, n = ranks * EACH;
    clef_tensor *x[2] = {leaf(ctx, CLEF_SHAPE(n), 5), all_rows(ctx, ranks, n)}, *dx[2], *ddx[2];
    clef_tensor *s = clef_sum(clef_mul(x[0], x[1]), (int[]){0}, 1, false);
    clef_tensor *t = clef_mul(clef_square(clef_reshape(x[0], CLEF_SHAPE(ranks, EACH))), clef_slice(x[1], 1, 0, EACH, 1));
    clef_grad(loss_of(s, t), CLEF_NONE, x, 2, true, dx);
    clef_grad(clef_add(sum_of(clef_square(dx[0])), sum_of(clef_square(dx[1]))), CLEF_NONE, x, 2, false, ddx);
    clef_read(ddx[0], c->whole, (size_t)n * sizeof(float));
    clef_read(ddx[1], c->own, (size_t)(ranks * n) * sizeof(float));
}

/* ---- a gradient penalty; group NULL: one rank that has the whole net ---- */

static bool penalty(clef_context *ctx, clef_group *all, clef_tensor *out[2]) {
    clef_seed(ctx, 5);
    clef_module *net =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 3, 6, NULL), clef_nn_tanh(ctx), clef_nn_linear(ctx, 6, 2, NULL)));
    if (all && (clef_module_shard(net, "0", all, 0, NULL) || clef_module_shard(net, "2", all, 1, NULL))) return false;
    clef_tensor *x[2] = {leaf(ctx, CLEF_SHAPE(4, 3), 7), clef_parameter(net, "2.bias")}, *dx;
    if (clef_grad(sum_of(clef_square(clef_forward(net, x[0]))), CLEF_NONE, x, 1, true, &dx)) return false;
    return clef_grad(sum_of(clef_square(dx)), CLEF_NONE, x, 2, false, out) == CLEF_OK;
}

/* ---- all ---- */

static clef_status run_rank(clef_context *ctx, clef_group *all, void *user) {
    const scene *c = user;
    int n = c->ranks * EACH, rank = clef_group_rank(all);
    for (int k = 0; k < KINDS; k++) {
        clef_tensor *x = leaf(ctx, CLEF_SHAPE(n), seed_of(rank));
        compare(names[k], rank, twice(together((kind)k, x, all), x), c->want[k] + rank * n, n);
    }
    clef_tensor *out[2];
    clef_status status = borders(ctx, all, c);
    if (status || !penalty(ctx, all, out)) return clef_error_status(ctx);
    compare("a penalty, by the input", rank, out[0], c->penalty, 12);
    compare("a penalty, by the last bias", rank, out[1], c->bias, 2);
    return clef_error_status(ctx);
}

static void run_alone(scene *c) {
    int n = c->ranks * EACH;
    clef_context *ctx = clef_open(NULL);
    for (int k = 0; k < KINDS; k++) {
        clef_tensor *x = all_rows(ctx, c->ranks, n);
        clef_read(twice(alone((kind)k, x, c->ranks, n), x), c->want[k], (size_t)(c->ranks * n) * sizeof(float));
    }
    borders_alone(ctx, c);
    clef_tensor *out[2];
    if (penalty(ctx, NULL, out)) clef_read(out[0], c->penalty, 12 * sizeof(float)), clef_read(out[1], c->bias, 2 * sizeof(float));
    if (clef_error_status(ctx)) COMPLAIN("one device: %s", clef_error(ctx));
    clef_close(ctx);
}

int main(void) {
    int code;
    char devices[2 * MOST_RANKS];
    if (!have_device(&code)) return code;
    for (int ranks = 2; ranks <= RANKS; ranks++) {
        static scene c;
        c.ranks = ranks;
        run_alone(&c);
        if (clef_run_ranks(ranks_on_one(ranks, devices), run_rank, &c)) COMPLAIN("%d ranks: %s", ranks, clef_error(NULL));
    }
    return complaints != 0;
}
