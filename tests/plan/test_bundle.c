/* Bundles: equal small launches become one, to the same bits, and never where one needs or overwrites what another reads.
   ctest: cost=30 apart plain */
#include "plan/lower/pointwise.h"
#include "plan/run/run.h"
#include "support/counting.h"
#include "support/modes.h"

static clef_context *ctx;

static void open_device(void) { ctx = open_mode(FUSED, NULL); }
static void close_device(void) { close_clean(ctx); }
TestSuite(bundle, .init = open_device, .fini = close_device);

static clef_tensor *vector(int64_t n, uint64_t salt) {
    clef_tensor *t = clef_keep(noise_tensor(ctx, CLEF_SHAPE(n), salt));
    cr_assert_eq(clef_eval(t), CLEF_OK, "%s", clef_error(ctx));
    return t;
}

/* The plan that ran last. */
static const clef__plan *last_plan(void) { return clef__plans_of(ctx)->first; }

/* Ends the step; how many launches it took. */
static int end_step(void) {
    uint64_t before = clef_counters_get(ctx).launches;
    cr_assert_eq(clef_end_step(ctx), CLEF_OK, "%s", clef_error(ctx));
    return (int)(clef_counters_get(ctx).launches - before);
}

/* ---- no segment reads what another writes or takes over ---- */

/* The segment of an argument of a bundle: each begins with two numbers. */
static int segment_of(const clef__launch *launch, int a) {
    int segment = 0;
    for (int i = CLEF__PW_FIRST; i < a; i++)
        segment += launch->arg[i].kind == CLEF__ARG_LONG && launch->arg[i + 1].kind == CLEF__ARG_LONG;
    return segment - 1;
}

static void check_bundle(const clef__plan *plan, const clef__launch *launch) {
    for (int a = 0; a < launch->n_args; a++) {
        if (launch->arg[a].kind != CLEF__ARG_TENSOR || !launch->arg[a].writes || segment_of(launch, a) >= launch->covers) continue;
        const clef__value *value = &plan->value[launch->arg[a].value];
        for (int b = 0; b < launch->n_args; b++) {
            if (launch->arg[b].kind != CLEF__ARG_TENSOR || launch->arg[b].writes || segment_of(launch, b) >= launch->covers)
                continue;
            int read = launch->arg[b].value;
            cr_expect_neq(read, launch->arg[a].value, "a member reads what another writes");
            if (segment_of(launch, a) != segment_of(launch, b))
                cr_expect(read != value->donor && read != value->in_place_of, "a member reads what another overwrites");
        }
    }
}

/* How many bundles of two and more the plan that ran last has. */
static int bundles(void) {
    int n = 0;
    for (int i = 0; i < last_plan()->n_launches; i++) {
        const clef__launch *launch = &last_plan()->launch[i];
        if (launch->covers < 2) continue;
        check_bundle(last_plan(), launch);
        n++;
    }
    return n;
}

/* ---- optimizers ---- */

enum { PARAMETERS = 24, STEPS = 4 };
static const int64_t sizes[PARAMETERS] = {1,   2,    3,    4,     5,     15,    16,  17, 33, 64, 99,  100,
                                          255, 1000, 4097, 10007, 70001, 12345, 511, 7,  31, 63, 129, 65};
/* The 70001 are too large, and the 23 others together too small, to be cut by size. */

static clef_tensor *forward(clef_module *module, clef_tensor *x, void *user) {
    (void)module, (void)user;
    return x;
}

static clef_module *many_parameters(void) {
    clef_module *module = clef_module_new(ctx, "many", forward, NULL);
    char name[32];
    for (int i = 0; i < PARAMETERS; i++) {
        snprintf(name, sizeof name, i % 2 ? "%d_bias" : "%d_weight", i);
        cr_assert_eq(clef_module_add_parameter(module, name, noise_tensor(ctx, CLEF_SHAPE(sizes[i]), (uint64_t)i)), CLEF_OK);
    }
    return module;
}

typedef clef_optimizer *rule(clef_module *module);
static clef_optimizer *momentum(clef_module *module) { return clef_sgd(module, &(clef_sgd_options){.lr = 0.1, .momentum = 0.9}); }
static clef_optimizer *adam(clef_module *module) { return clef_adam(module, &(clef_adam_options){.lr = 0.1}); }
/* Weights and biases take turns with numbers of their own. */
static clef_optimizer *groups(clef_module *module) {
    clef_optimizer *opt = clef_adamw(module, NULL);
    cr_assert_eq(clef_optimizer_group(opt, "bias", 3, 0.5), CLEF_OK);
    return opt;
}

/* What parameters and states are after some steps with a rate that changes; the caller frees.  Launches: of the last step. */
static float *trained(rule *make, int *launches, size_t *n) {
    clef_module *module = many_parameters();
    clef_optimizer *opt = make(module);
    for (int i = 0; i < STEPS; i++) {
        for (int p = 0; p < PARAMETERS; p++)
            clef_set_grad(clef_module_tensor(module, p).tensor, noise_tensor(ctx, CLEF_SHAPE(sizes[p]), (uint64_t)(100 * i + p)));
        clef_set_learning_rate(opt, 0.1 / (i + 1));
        uint64_t before = clef_counters_get(ctx).launches;
        cr_assert_eq(clef_step(opt), CLEF_OK, "%s", clef_error(ctx));
        *launches = (int)(clef_counters_get(ctx).launches - before);
    }
    int tensors = PARAMETERS + clef_optimizer_tensors(opt) - 1;
    float *all = NULL;
    *n = 0;
    for (int t = 0; t < tensors; t++) {
        clef_tensor *x =
            t < PARAMETERS ? clef_module_tensor(module, t).tensor : clef_optimizer_tensor(opt, t - PARAMETERS + 1).tensor;
        size_t count = (size_t)clef_numel(x);
        float *some = values(x);
        all = realloc(all, (*n + count) * sizeof *all);
        memcpy(all + *n, some, count * sizeof *all);
        *n += count;
        free(some);
    }
    return all;
}

/* Exactly `predicted` launches beside that of the large parameter, and the bits that every op alone gives; also cut as for a GPU, whose
   memory moves that one while a launch begins, so that it shares one, and in exact buffers. */
static void expect_bundled(rule *make, int predicted, const char *what) {
    const clef_options how[] = {{0}, {.profile = "gpu"}, {.debug_memory = true}, {0}};
    float *wanted = NULL;
    for (int i = 3; i >= 0; i--) {
        setenv("CLEF_FUSE", i == 3 ? "0" : "1", 1);
        ctx = open_or_skip(&how[i]);
        int launches;
        size_t n;
        float *got = trained(make, &launches, &n);
        if (wanted) {
            cr_expect_eq(launches, predicted + (i != 1), "%s, way %d: %d launches", what, i, launches);
            cr_expect(memcmp(got, wanted, n * sizeof *got) == 0, "%s, way %d: other bits", what, i);
            cr_expect_gt(bundles(), 0);
            free(got);
        } else {
            cr_expect_eq(bundles(), 0, "CLEF_FUSE=0 makes none");
            wanted = got;
        }
        close_device();
    }
    free(wanted);
}

/* 1024 bytes of arguments: 24, and for each segment 2 · 8, 5 tensors of 16 and 2 numbers of 4, hence 9 of the 23 small parameters
   in each launch. */
Test(optimizers, momentum_takes_few_launches) { expect_bundled(momentum, 3, "momentum"); }
/* 7 tensors, 6 numbers: 6. */
Test(optimizers, adam_takes_few_launches) { expect_bundled(adam, 4, "adam"); }
/* The same text with numbers of their own: 7 of them. */
Test(optimizers, groups_share_bundles) { expect_bundled(groups, 4, "adamw with groups"); }

/* ---- what may not go together ---- */

/* Each relu has the text of the one before, and needs it: by a product, or as part of its memory. */
Test(bundle, launches_that_need_each_other_stay_apart) {
    clef_tensor *w = clef_keep(noise_tensor(ctx, CLEF_SHAPE(40, 40), 1)), *x = noise_tensor(ctx, CLEF_SHAPE(40, 40), 2);
    for (int i = 0; i < 3; i++) x = clef_keep(clef_relu(clef_matmul(w, x)));
    end_step();
    cr_expect_eq(bundles(), 0);
    clef_tensor *y = vector(64, 3), *half = y;
    for (int i = 0; i < 3; i++) half = clef_keep(clef_exp(clef_slice(half, 0, 0, clef_numel(half) / 2, 1)));
    cr_expect_eq(end_step(), 3);
    cr_expect_eq(bundles(), 0);
}

/* Two chains side by side.  Last links run as soon as they can, so the first chain's meets the second chain's first. */
Test(bundle, links_of_two_chains_meet) {
    clef_tensor *x[2] = {vector(64, 1), vector(96, 2)}, *wanted[2];
    float *got, *expected;
    for (int i = 0; i < 2; i++) wanted[i] = clef_keep(clef_exp(clef_exp(clef_slice(x[i], 0, 0, 20, 1))));
    cr_assert_eq(clef_eval_all(wanted, 2), CLEF_OK);
    for (int i = 0; i < 2; i++) x[i] = clef_keep(clef_exp(x[i]));
    for (int i = 0; i < 2; i++) x[i] = clef_keep(clef_exp(clef_slice(x[i], 0, 0, 20, 1)));
    cr_expect_eq(end_step(), 3);
    cr_expect_eq(bundles(), 1);
    for (int i = 0; i < 2; i++) {
        got = values(x[i]), expected = values(wanted[i]);
        cr_expect_arr_eq(got, expected, 20 * sizeof *got);
        free(got), free(expected);
    }
}

/* p := p + r beside q := q + half of p, in either order: whoever goes first, q gets the old p, and what can stays where it is. */
Test(bundle, nobody_overwrites_what_another_reads) {
    enum { HALF = 500 };
    for (int p_first = 0; p_first < 2; p_first++) {
        int64_t n = 1001 + p_first; /* for a plan of its own */
        clef_tensor *p = vector(n, 1), *q = vector(HALF, 2), *r = vector(n, 3), *half = clef_slice(p, 0, 0, HALF, 1);
        float *p0 = values(p), *q0 = values(q), *r0 = values(r), *p1, *q1;
        clef__buffer *place[2] = {clef__output_of(p)->buffer, clef__output_of(q)->buffer};
        clef_tensor *early = p_first ? clef_add(p, r) : clef_add(q, half), *late = p_first ? clef_add(q, half) : clef_add(p, r);
        clef_assign(p, p_first ? early : late);
        clef_assign(q, p_first ? late : early);
        cr_expect_eq(end_step(), 2);
        cr_expect_eq(bundles(), 0);
        cr_expect(clef__output_of(q)->buffer == place[1] && (p_first || clef__output_of(p)->buffer == place[0]), "taken over");
        p1 = values(p), q1 = values(q);
        for (int i = 0; i < n; i++) cr_assert_eq(p1[i], p0[i] + r0[i], "element %d", i);
        for (int i = 0; i < HALF; i++) cr_assert_eq(q1[i], q0[i] + p0[i], "element %d", i);
        free(p0), free(q0), free(r0), free(p1), free(q1);
    }
}

/* A caller that holds the old value sees it for ever; the others are overwritten in place meanwhile. */
Test(bundle, what_someone_holds_is_kept) {
    enum { N = 6 };
    clef_tensor *p[N], *old = NULL;
    clef__buffer *place[N];
    float *before = NULL;
    for (int i = 0; i < N; i++) p[i] = vector(100 + i, (uint64_t)i);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < N; i++) place[i] = clef__output_of(p[i])->buffer;
        if (step == 1) old = clef_keep(clef_reshape(p[2], CLEF_SHAPE(51, 2))), before = values(old);
        for (int i = 0; i < N; i++) clef_assign(p[i], clef_mul_scalar(p[i], 2));
        cr_expect_eq(end_step(), 1);
        cr_expect_eq(bundles(), 1);
        for (int i = 0; i < N; i++) {
            bool held = step == 1 && i == 2;
            cr_expect_eq(clef__output_of(p[i])->buffer == place[i], !held, "step %d, parameter %d", step, i);
        }
    }
    float *after = values(old), *now = values(p[2]);
    for (int i = 0; i < 102; i++) cr_assert(after[i] == before[i] && now[i] == 4 * before[i], "element %d", i);
    free(before), free(after), free(now);
}

/* Each segment has its own numbers, and where they change, replays see it. */
Test(bundle, numbers_are_those_of_each_replay) {
    clef_tensor *p[6];
    for (int i = 0; i < 6; i++) p[i] = clef_keep(clef_full(ctx, CLEF_SHAPE(10 + i), CLEF_F32, 1));
    cr_assert_eq(clef_eval_all(p, 6), CLEF_OK);
    uint64_t plans = 0;
    for (int step = 0; step < 4; step++) {
        for (int i = 0; i < 6; i++) clef_assign(p[i], clef_add_scalar(p[i], step * (i + 1)));
        cr_expect_eq(end_step(), 1);
        cr_expect_eq(bundles(), 1);
        if (step == 0) plans = clef_counters_get(ctx).plans;
    }
    cr_expect_eq(clef_counters_get(ctx).plans, plans);
    for (int i = 0; i < 6; i++) cr_expect_eq(clef_item(clef_slice(p[i], 0, 9, 10, 1)), 1 + 6 * (i + 1));
}

Test(replays, of_bundles_allocate_no_host_memory) {
    count_allocations();
    open_device();
    clef_tensor *p[6];
    for (int i = 0; i < 6; i++) p[i] = vector(10 + i, (uint64_t)i);
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < 6; i++) clef_assign(p[i], clef_mul_scalar(p[i], step));
        int before = allocations;
        cr_expect_eq(end_step(), 1);
        if (step == 4) cr_expect_eq(allocations, before, "%d allocations", allocations - before);
    }
    close_device();
}

/* Texts differ by dtype and by how operands are read; one that is read through gaps has no segment. */
Test(bundle, only_equal_texts_go_together) {
    clef_tensor *scale = vector(1, 9), *y[8];
    for (int i = 0; i < 2; i++) {
        clef_tensor *x = vector(50 + i, (uint64_t)i), *half = clef_keep(clef_to(x, CLEF_F16));
        cr_assert_eq(clef_eval(half), CLEF_OK);
        y[4 * i] = clef_mul(x, x);
        y[4 * i + 1] = clef_mul(half, half);
        y[4 * i + 2] = clef_mul(x, scale);
        y[4 * i + 3] = clef_mul(clef_slice(x, 0, 0, 50, 2), scale);
    }
    for (int i = 0; i < 8; i++) clef_keep(y[i]);
    cr_expect_eq(end_step(), 3 + 2);
    cr_expect_eq(bundles(), 3);
}

/* What is large enough goes alone. */
Test(bundle, large_tensors_wait_for_nobody) {
    clef_tensor *p[3];
    for (int i = 0; i < 3; i++) p[i] = vector(40000, (uint64_t)i);
    for (int i = 0; i < 3; i++) clef_assign(p[i], clef_mul_scalar(p[i], 2));
    cr_expect_eq(end_step(), 3);
    cr_expect_eq(bundles(), 0);
}

/* ---- several devices and contexts ---- */

Test(devices, each_has_its_own_bundles) {
    setenv("POCL_DEVICES", "pthread basic", 1);
    ctx = clef_open(&(clef_options){.device = "0,1"});
    if (!ctx) cr_skip_test("no two devices here: %s", clef_error(NULL));
    clef_tensor *p[8];
    for (int i = 0; i < 8; i++) p[i] = clef_keep(clef_to_device(vector(20 + i, (uint64_t)i), i % 2));
    cr_assert_eq(clef_eval_all(p, 8), CLEF_OK);
    float *before[8], *after;
    for (int i = 0; i < 8; i++) before[i] = values(p[i]);
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < 8; i++) clef_assign(p[i], clef_mul_scalar(p[i], 2));
        cr_expect_eq(end_step(), 2);
        cr_expect_eq(bundles(), 2);
    }
    for (int i = 0; i < 8; i++) {
        after = values(p[i]);
        for (int j = 0; j < 20 + i; j++) cr_assert_eq(after[j], 4 * before[i][j]);
        free(before[i]), free(after);
    }
    close_device();
}

Test(devices, contexts_take_turns) {
    clef_context *each[2] = {open_mode(FUSED, NULL), open_mode(FUSED, NULL)};
    clef_tensor *p[2][4];
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < 4; i++) ctx = each[c], p[c][i] = vector(30 + i, (uint64_t)(c + 2 * i));
    float *before[2] = {values(p[0][3]), values(p[1][3])};
    for (int step = 0; step < 6; step++) {
        ctx = each[step % 2];
        for (int i = 0; i < 4; i++) clef_assign(p[step % 2][i], clef_mul_scalar(p[step % 2][i], 2));
        cr_expect_eq(end_step(), 1);
    }
    for (int c = 0; c < 2; c++) {
        float *after = values(p[c][3]);
        for (int j = 0; j < 33; j++) cr_assert_eq(after[j], 8 * before[c][j]);
        free(before[c]), free(after);
        ctx = each[c];
        close_device();
    }
}
