/* Programs of plans: those of a plan that is kept stay, those of others go beyond a limit, and what is compiled again computes the
   same bits.
   ctest: cost=20 plain */
#include "plan/run/run.h"
#include "runtime/runtime_internal.h"
#include "support/device.h"
#include <unistd.h>

enum { KEPT = 2, GRAPHS = 10, N = 257, PLANS = 128 };
static clef_context *ctx;

static void open_with(const clef_options *options) { ctx = open_or_skip(options); }
static void setup(void) {
    unsetenv("CLEF_IDLE_PROGRAMS");
    open_with(&(clef_options){.cache_dir = "", .idle_programs = KEPT, .isolated = true});
}
static void teardown(void) { close_clean(ctx); }
TestSuite(programs, .init = setup, .fini = teardown);

static uint64_t built(void) { return clef_counters_get(ctx).kernels_built; }
static uint64_t in_memory(void) { return clef_counters_get(ctx).programs; }

/* The bits of g are an op each: programs differ with g alone. */
static clef_tensor *graph(int g, int64_t n) {
    clef_tensor *x = noise_tensor(ctx, CLEF_SHAPE(n), 7), *y = x;
    for (int bit = 0; bit < 4; bit++) y = g >> bit & 1 ? clef_sin(clef_add(y, x)) : clef_tanh(clef_mul(y, x));
    return y;
}

static void run(int g, float got[N]) {
    cr_assert_eq(clef_read(graph(g, N), got, N * sizeof *got), CLEF_OK, "%s", clef_error(ctx));
    clef_end_step(ctx);
}

static void run_all(float got[GRAPHS][N]) {
    for (int g = 0; g < GRAPHS; g++) run(g, got[g]);
}

/* Once, after that all again with no plans and few programs, or none. */
static void expect_same_bits(void) {
    static float first[GRAPHS][N], again[GRAPHS][N];
    run_all(first);
    uint64_t once = built();
    for (int round = 0; round < 3; round++) {
        clef__plans_forget(ctx);
        memset(again, 0, sizeof again);
        run_all(again);
        cr_expect(memcmp(first, again, sizeof first) == 0, "round %d", round);
    }
    cr_expect_gt(built(), once);
    for (int g = 1; g < GRAPHS; g++) cr_expect(memcmp(first[0], first[g], sizeof first[0]) != 0);
}

Test(programs, same_bits_when_compiled_again) { expect_same_bits(); }

Test(programs, same_bits_of_eager_ops) {
    teardown();
    open_with(&(clef_options){.cache_dir = "", .idle_programs = -1, .isolated = true, .eager = true});
    expect_same_bits();
    clef__plans_forget(ctx);
    cr_expect_eq(in_memory(), 0u);
}

/* All that a plan launches of several kernels: packed products, reductions, and what is generated and joined. */
static double train_step(clef_module *net, clef_optimizer *optimizer) {
    clef_tensor *x = noise_tensor(ctx, CLEF_SHAPE(5, 2, 9, 9), 3);
    clef_tensor *target = clef_from_host(ctx, CLEF_SHAPE(5), CLEF_I64, (const int64_t[]){0, 1, 2, 1, 0});
    clef_tensor *loss = clef_cross_entropy(clef_forward(net, x), target, NULL);
    clef_backward(loss);
    clef_step(optimizer);
    double value = clef_item(loss);
    clef_end_step(ctx);
    return value;
}

static void train(bool forgets, double loss[6]) {
    clef_seed(ctx, 4);
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 2, 4, 3, NULL), clef_nn_gelu(ctx), clef_nn_flatten(ctx),
                                                        clef_nn_linear(ctx, 4 * 7 * 7, 3, NULL)));
    clef_optimizer *optimizer = clef_adam(net, NULL);
    for (int i = 0; i < 6; i++) {
        loss[i] = train_step(net, optimizer);
        if (forgets) clef__plans_forget(ctx);
    }
}

Test(programs, training_goes_on) {
    double with[6], without[6];
    train(false, with);
    train(true, without);
    cr_expect(memcmp(with, without, sizeof with) == 0);
    cr_expect(with[5] < with[0]);
    cr_expect_leq(in_memory(), (uint64_t)KEPT);
}

/* Sizes make plans, and no programs. */
static void run_other_plans(int n) {
    for (int i = 0; i < n; i++) {
        cr_assert_eq(clef_eval(clef_exp(noise_tensor(ctx, CLEF_SHAPE(i + 2), 1))), CLEF_OK);
        clef_end_step(ctx);
    }
}

Test(programs, a_plan_that_is_kept_keeps_its_programs) {
    static float first[N], again[N];
    teardown();
    open_with(&(clef_options){.cache_dir = "", .idle_programs = -1, .isolated = true});
    run(0, first);
    run_other_plans(PLANS - 1);
    uint64_t before = built(), programs = in_memory(), plans = clef_counters_get(ctx).plans;
    cr_expect_eq(clef_counters_get(ctx).programs_released, 0u);
    run(0, again);
    cr_expect_eq(clef_counters_get(ctx).plans, plans);
    cr_expect_eq(built(), before);
    run_other_plans(PLANS);
    run_other_plans(PLANS);
    cr_expect_eq(in_memory(), programs - 1, "the plan is gone, and its program");
    cr_expect_eq(clef_counters_get(ctx).programs_released, 1u);
    run(0, again);
    cr_expect_eq(built(), before + 1);
    cr_expect(memcmp(first, again, sizeof first) == 0);
}

/* Of many graphs that nobody asks for again: as many programs as a plan each takes, and those that are idle. */
Test(programs, many_graphs) {
    float got[N];
    for (int g = 0; g < 16; g++) {
        run(g, got);
        cr_expect_eq(in_memory(), (uint64_t)(g % 4 + 1) + (g < 4 ? 0 : KEPT), "graph %d", g);
        if (g % 4 == 3) clef__plans_forget(ctx);
    }
    cr_expect_eq(in_memory(), (uint64_t)KEPT);
    cr_expect_eq(built(), 16u);
    cr_expect_eq(clef_counters_get(ctx).programs_released, 16u - KEPT);
}

/* ---- joined, and found again by what comes later ---- */

static char cache[] = "/tmp/clef-programs-XXXXXX";

/* With Clef's cache, as another process has it. */
static void open_again(void) {
    if (ctx) teardown();
    open_with(&(clef_options){.cache_dir = cache, .isolated = true});
    if (clef__device_at(ctx, 0)->saving == CLEF__SAVE_FAILURES) return;
    rmdir(cache);
    cr_skip_test("this driver does not keep what it compiled");
}

enum { SIDE = 37 };

/* The bits of g choose ops, each of a file of its own. */
static void run_ops(int g, float got[SIDE * SIDE]) {
    clef_tensor *x = noise_tensor(ctx, CLEF_SHAPE(SIDE, SIDE), 7), *y = x;
    if (g & 1) y = clef_softmax(y, 1);
    if (g & 2) y = clef_matmul(y, x);
    if (g & 4) y = clef_cumsum(y, 0);
    if (g & 8) y = clef_layer_norm(y, 1, CLEF_NONE, CLEF_NONE, 1e-5);
    if (g & 16) y = clef_sub(y, clef_sum(y, (const int[]){0}, 1, true));
    cr_assert_eq(clef_read(clef_tanh(y), got, SIDE * SIDE * sizeof *got), CLEF_OK, "%s", clef_error(ctx));
    clef_end_step(ctx);
}

/* A plan of five files takes two programs at most, one of cl/ and one of what it generated; one that differs in an op finds what it shares. */
Test(programs, a_plan_finds_what_another_process_joined) {
    static const struct {
        int ops;
        uint64_t most;
    } runs[] = {{31, 2}, {31, 2}, {15, 3}, {7, 3}, {24, 3}};
    static float got[5][SIDE * SIDE], alone[SIDE * SIDE];
    cr_assert(mkdtemp(cache));
    unsetenv("CLEF_CACHE");
    unsetenv("CLEF_JOIN");
    for (int i = 0; i < 5; i++) {
        open_again();
        run_ops(runs[i].ops, got[i]);
        cr_expect_leq(built(), runs[i].most, "run %d builds %d programs", i, (int)built());
    }
    teardown();
    cr_expect_eq(clef_cache_clear(cache, NULL), CLEF_OK);
    rmdir(cache);
    setup();
    for (int i = 0; i < 5; i++) {
        run_ops(runs[i].ops, alone);
        cr_expect(memcmp(got[i], alone, sizeof alone) == 0, "run %d: other bits than by programs of their own", i);
    }
    cr_expect_gt(built(), 5u);
}
