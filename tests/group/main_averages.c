/* Averages of gradients over ranks, exactly: random parameters of every floating dtype whose gradients are whole numbers on each rank, against
   Σ weight·g / Σ weight in doubles.  Gradients that are missing on some ranks and on all, weights that are given, several backward
   passes, gradients that the program set, reading before the step, many buckets.   CLEF_CASES, CLEF_SEED.
   ctest: cost=30 apart plain */
#include "ranks.h"
#include <math.h>

enum { MOST_PARAMETERS = 300, LARGE = 400000 };
typedef enum way { MISSING, BACKWARD, TWICE, SET, WAYS } way;

typedef struct parameter {
    int64_t n;
    clef_dtype dtype;
    way way[MOST_RANKS]; /* how its gradient comes about on each rank */
    bool frozen;
} parameter;

typedef struct scene {
    uint64_t seed;
    int ranks, n, steps;
    bool weighs, reads;
    double weight[MOST_RANKS];
    parameter p[MOST_PARAMETERS];
} scene;

static scene now;

static scene random_scene(uint64_t seed) {
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_F32, CLEF_BF16, CLEF_F16};
    uint64_t s = seed;
    scene c = {
        .seed = seed, .ranks = 1 << random_below(&s, 3), .steps = 3, .weighs = random_below(&s, 2), .reads = random_below(&s, 2)};
    bool large = random_below(&s, 3) == 0, whole = random_below(&s, 3) == 0, many = random_below(&s, 6) == 0;
    c.n = many ? MOST_PARAMETERS : 1 + random_below(&s, 12);
    double left = 8;
    for (int r = 0; r < c.ranks; r++, left -= c.weight[r - 1]) /* they add up to 8 */
        c.weight[r] = r == c.ranks - 1 ? left : random_below(&s, (int)left + 1);
    for (int i = 0; i < c.n; i++) {
        parameter *p = &c.p[i];
        p->n = large && !many ? LARGE + random_below(&s, 1000) : 1 + random_below(&s, 40);
        p->dtype = dtypes[random_below(&s, 4)];
        p->frozen = random_below(&s, 8) == 0;
        bool nowhere = random_below(&s, 4) == 0;
        for (int r = 0; r < c.ranks; r++) p->way[r] = whole ? BACKWARD : nowhere ? MISSING : (way)random_below(&s, WAYS);
    }
    return c;
}

/* Of each element on a rank: whole and small, so that half types hold every sum of eight. */
static double gradient(const scene *c, int i, int rank, int step, int64_t at) {
    uint64_t s = c->seed * 1000003 + (uint64_t)(i * 64 + rank * 8 + step);
    return (double)((next_random(&s) + (uint64_t)at * 7) % 8) - 4;
}

static double times(way w) { return w == MISSING ? 0 : w == TWICE ? 2 : 1; }

/* By definition; *any: does a rank have a gradient? */
static double expected(const scene *c, int i, int step, int64_t at, bool *any) {
    double sum = 0, weights = 0;
    *any = false;
    for (int r = 0; r < c->ranks; r++) {
        double weight = c->weighs ? c->weight[r] : 1;
        sum += weight * times(c->p[i].way[r]) * gradient(c, i, r, step, at);
        weights += weight;
        *any |= c->p[i].way[r] != MISSING && !c->p[i].frozen;
    }
    return sum / weights;
}

/* ---- on a rank ---- */

static clef_tensor *numbers(clef_context *ctx, int i, int rank, int step) {
    int64_t n = now.p[i].n;
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t k = 0; k < n; k++) x[k] = (float)gradient(&now, i, rank, step, k);
    clef_tensor *t = clef_to(clef_from_host(ctx, CLEF_SHAPE(n), CLEF_F32, x), now.p[i].dtype);
    free(x);
    return t;
}

static clef_tensor *nothing(clef_module *module, clef_tensor *x, void *user) { return (void)module, (void)user, x; }

static clef_module *make_module(clef_context *ctx) {
    clef_module *m = clef_module_new(ctx, "parameters", nothing, NULL);
    for (int i = 0; i < now.n; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        clef_module_add_parameter(m, name, clef_zeros(ctx, CLEF_SHAPE(now.p[i].n), now.p[i].dtype));
        if (now.p[i].frozen) clef_require_grad(clef_parameter(m, name), false);
    }
    return m;
}

static clef_tensor *parameter_of(const clef_module *m, int i) { return clef_module_tensor(m, i).tensor; }

static void make_gradient(clef_context *ctx, clef_module *m, int i, int rank, int step) {
    clef_tensor *p = parameter_of(m, i), *g = numbers(ctx, i, rank, step);
    way w = now.p[i].way[rank];
    if (now.p[i].frozen || w == MISSING) return;
    if (w == SET) clef_set_grad(p, g);
    for (int k = 0; w != SET && k < (int)times(w); k++) clef_backward(clef_sum(clef_mul(p, g), NULL, 0, false));
}

static void check_gradient(const clef_module *m, int i, int rank, int step) {
    const parameter *p = &now.p[i];
    bool any;
    clef_tensor *t = parameter_of(m, i), *g = clef_grad_of(t);
    expected(&now, i, step, 0, &any);
    if (!g != !any)
        COMPLAIN("seed %llu, rank %d: gradient %d is %s", (unsigned long long)now.seed, rank, i, g ? "there" : "missing");
    if (!g) return;
    float *got = malloc((size_t)p->n * sizeof *got);
    if (clef_read(clef_to(g, CLEF_F32), got, (size_t)p->n * sizeof *got) != CLEF_OK)
        COMPLAIN("%s", clef_error(clef_tensor_context(t)));
    for (int64_t k = 0; k < p->n; k++)
        if (got[k] != (float)expected(&now, i, step, k, &any)) {
            COMPLAIN("seed %llu, rank %d of %d: gradient %d (%s, %lld) is %g at %lld, not %g", (unsigned long long)now.seed, rank,
                     now.ranks, i, clef_dtype_name(p->dtype), (long long)p->n, (double)got[k], (long long)k,
                     expected(&now, i, step, k, &any));
            break;
        }
    free(got);
}

/* p -= g: the sum of what came in all steps. */
static void check_parameter(clef_module *m, int i, int rank) {
    double want = 0;
    bool any;
    float *got = malloc((size_t)now.p[i].n * sizeof *got);
    clef_read(clef_to(parameter_of(m, i), CLEF_F32), got, (size_t)now.p[i].n * sizeof *got);
    for (int step = 0; step < now.steps && !now.p[i].frozen; step++) want -= expected(&now, i, step, 0, &any);
    if (got[0] != (float)want)
        COMPLAIN("seed %llu, rank %d: parameter %d is %g, not %g", (unsigned long long)now.seed, rank, i, (double)got[0], want);
    free(got);
}

static clef_status train(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    int rank = clef_group_rank(all);
    clef_module *m = make_module(ctx);
    clef_optimizer *opt = clef_sgd(m, &(clef_sgd_options){.lr = 1, .group = all});
    for (int step = 0; step < now.steps; step++) {
        if (now.weighs) clef_group_weight(all, now.weight[rank]);
        for (int i = 0; i < now.n; i++) make_gradient(ctx, m, i, rank, step);
        if (now.reads) clef_clip_grad_value(m, 1e6); /* a use that changes nothing, on ranks without a gradient too */
        for (int i = 0; now.reads && i < now.n; i++) check_gradient(m, i, rank, step);
        clef_step(opt);
    }
    for (int i = 0; i < now.n; i++) check_parameter(m, i, rank);
    return clef_error_status(ctx);
}

static void try_scene(uint64_t seed) {
    char devices[2 * MOST_RANKS];
    now = random_scene(seed);
    if (clef_run_ranks(ranks_on_one(now.ranks, devices), train, NULL) != CLEF_OK)
        COMPLAIN("seed %llu: %s", (unsigned long long)seed, clef_error(NULL));
}

/* Weights that move from step to step make no new plan, and where each rank has every gradient nothing is read. */
static clef_status count_plans(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    int rank = clef_group_rank(all);
    clef_module *net =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 8, 8, NULL), clef_nn_tanh(ctx), clef_nn_linear(ctx, 8, 1, NULL)));
    clef_optimizer *opt = clef_adamw(net, &(clef_adamw_options){.lr = 1e-2, .group = all});
    uint64_t plans = 0, replays = 0;
    for (int step = 0; step < 9; step++) {
        clef_group_weight(all, 2 + rank + 3 * step % 5);
        clef_backward(clef_mean(clef_square(clef_forward(net, clef_rand(ctx, CLEF_SHAPE(4, 8)))), NULL, 0, false));
        clef_step(opt);
        clef_counters now_counted = clef_counters_get(ctx);
        if (step == 3) plans = now_counted.plans, replays = now_counted.replays;
        if (step > 3 && now_counted.plans != plans) COMPLAIN("rank %d, step %d: a new plan", rank, step);
        if (step > 3 && now_counted.replays - replays != (uint64_t)(step - 3))
            COMPLAIN("rank %d, step %d: more than one plan ran", rank, step);
    }
    return clef_error_status(ctx);
}

/* The launch of the plan as text whose line is the first, or the last, to name `what`; -1: none. */
static int launch_of(FILE *text, const char *what, bool last) {
    char line[512];
    int found = -1, at = -1;
    bool in_plan = false;
    rewind(text);
    while (fgets(line, sizeof line, text)) {
        in_plan |= !strncmp(line, "plan ", 5);
        if (!in_plan || sscanf(line, "%d", &at) != 1 || !strstr(line, what)) continue;
        if (found < 0 || last) found = at;
    }
    return found;
}

/* The first bucket is sent before backward has come to the first layer. */
static clef_status look_at_order(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    clef_module *layer[4];
    for (int i = 0; i < 4; i++) layer[i] = clef_nn_linear(ctx, 512, 512, NULL);
    clef_module *net =
        clef_sequential(ctx, CLEF_LAYERS(layer[0], clef_nn_tanh(ctx), layer[1], clef_nn_tanh(ctx), layer[2], layer[3]));
    clef_optimizer *opt = clef_sgd(net, &(clef_sgd_options){.lr = 0.1, .group = all});
    clef_backward(clef_mean(clef_square(clef_forward(net, clef_rand(ctx, CLEF_SHAPE(4, 512)))), NULL, 0, false));
    clef_tensor *g = clef_grad_of(clef_parameter(net, "0.weight"));
    FILE *text = tmpfile();
    if (text && clef_print_plan(g, CLEF_PLAN_TEXT, text) == CLEF_OK) {
        int sent = launch_of(text, "all_reduce", false), last = launch_of(text, "all_reduce", true),
            product = launch_of(text, "matmul", true);
        if (sent < 0 || sent >= product || last < product)
            COMPLAIN("buckets go at launches %d to %d, the last product is %d", sent, last, product);
    }
    if (text) fclose(text);
    return clef_step(opt);
}

int main(void) {
    int code;
    if (!have_device(&code)) return code;
    uint64_t first = (uint64_t)number_from_env("CLEF_SEED", 1), n = (uint64_t)cases_from_env("CLEF_CASES", 12);
    for (uint64_t seed = first; seed < first + n; seed++) try_scene(seed);
    if (clef_run_ranks("0,0,0", count_plans, NULL) != CLEF_OK) COMPLAIN("plans: %s", clef_error(NULL));
    if (clef_run_ranks("0,0", look_at_order, NULL) != CLEF_OK) COMPLAIN("order: %s", clef_error(NULL));
    printf("%d complaints\n", atomic_load(&complaints));
    return atomic_load(&complaints) != 0;
}
