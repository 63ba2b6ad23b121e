/* Schedules against numbers worked out by hand or from their closed forms. */
#include "support/device.h"

static clef_context *ctx;
static clef_optimizer *opt;

static void open_context(void) {
    ctx = open_seeded(5);
    opt = clef_sgd(clef_nn_linear(ctx, 2, 2, NULL), &(clef_sgd_options){.lr = 0.8});
}
static void close_context(void) { clef_close(ctx); }
TestSuite(schedule, .init = open_context, .fini = close_context);

static const double pi = 3.141592653589793;

static void expect_rates(const char *what, clef_schedule_options o, const double *rate, int n) {
    clef_set_learning_rate(opt, 0.8);
    clef_schedule *s = clef_schedule_new(opt, &o);
    cr_assert(s, "%s: %s", what, clef_error(ctx));
    for (int t = 0; t < n; t++) {
        cr_expect_float_eq(clef_learning_rate(opt), rate[t], 1e-12, "%s: tick %d: %.15g, not %.15g", what, t,
                           clef_learning_rate(opt), rate[t]);
        cr_assert_eq(clef_schedule_tick(s), CLEF_OK);
    }
}
#define EXPECT_RATES(what, options, ...)                                              \
    expect_rates(what, (clef_schedule_options)options, (const double[]){__VA_ARGS__}, \
                 (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)))
#define O(...) \
    { __VA_ARGS__ }

Test(schedule, decays) {
    EXPECT_RATES("constant", O(.kind = CLEF_SCHEDULE_CONSTANT), 0.8, 0.8, 0.8);
    EXPECT_RATES("step", O(.kind = CLEF_SCHEDULE_STEP, .step_size = 2, .gamma = 0.5), 0.8, 0.8, 0.4, 0.4, 0.2, 0.2, 0.1);
    EXPECT_RATES("step default", O(.kind = CLEF_SCHEDULE_STEP, .step_size = 1), 0.8, 0.08, 0.008);
    int64_t milestones[] = {1, 4, 4};
    EXPECT_RATES("multistep", O(.kind = CLEF_SCHEDULE_MULTISTEP, .milestones = milestones, .n_milestones = 3, .gamma = 0.5), 0.8,
                 0.4, 0.4, 0.4, 0.1, 0.1);
    EXPECT_RATES("exponential", O(.kind = CLEF_SCHEDULE_EXPONENTIAL), 0.8, 0.76, 0.722, 0.6859);
}

Test(schedule, cosine) {
    EXPECT_RATES("cosine", O(.kind = CLEF_SCHEDULE_COSINE, .total = 4), 0.8, 0.4 + 0.4 * cos(pi / 4), 0.4, 0.4 - 0.4 * cos(pi / 4),
                 0, 0, 0);
    EXPECT_RATES("cosine to 0.2", O(.kind = CLEF_SCHEDULE_COSINE, .total = 2, .min_lr = 0.2), 0.8, 0.5, 0.2, 0.2);
}

Test(schedule, warmup) {
    EXPECT_RATES("warm-up", O(.warmup = 4), 0.2, 0.4, 0.6, 0.8, 0.8, 0.8);
    EXPECT_RATES("warm-up, step", O(.kind = CLEF_SCHEDULE_STEP, .step_size = 2, .gamma = 0.5, .warmup = 2), 0.4, 0.8, 0.8, 0.8, 0.4,
                 0.4, 0.2);
}

/* total 10: rises over ticks 0…2 (0.3·10 - 1), falls over 2…9. */
Test(schedule, one_cycle) {
    double low = 2.0 / 25, end = low / 1e4, rate[12];
    for (int t = 0; t < 12; t++) {
        double share = t <= 2 ? t / 2.0 : fmin(1, (t - 2) / 7.0), from = t <= 2 ? low : 2, to = t <= 2 ? 2 : end;
        rate[t] = to + (from - to) / 2 * (1 + cos(pi * share));
    }
    expect_rates("one-cycle", (clef_schedule_options){.kind = CLEF_SCHEDULE_ONE_CYCLE, .total = 10, .max_lr = 2}, rate, 12);
    EXPECT_RATES("one-cycle default", O(.kind = CLEF_SCHEDULE_ONE_CYCLE, .total = 10), 0.32, (0.32 + 8) / 2, 8);
}

Test(schedule, plateau) {
    clef_schedule *s = clef_schedule_new(
        opt, &(clef_schedule_options){.kind = CLEF_SCHEDULE_PLATEAU, .gamma = 0.5, .patience = 2, .threshold = 0.1, .min_lr = 0.3});
    const struct {
        double metric, rate;
    } row[] = {
        {1.0, 0.8}, {0.95, 0.8}, {0.91, 0.8}, {0.905, 0.4}, /* three in a row that are not below 0.9 */
        {0.5, 0.4}, {NAN, 0.4},  {0.46, 0.4}, {0.44, 0.4},  /* 0.44 < 0.45 counts */
        {1, 0.4},   {1, 0.4},    {1, 0.3},                  /* not below min_lr */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        cr_assert_eq(clef_schedule_metric(s, row[i].metric), CLEF_OK);
        cr_expect_float_eq(clef_learning_rate(opt), row[i].rate, 1e-12, "metric %d: %g", (int)i, clef_learning_rate(opt));
        clef_schedule_tick(s);
    }
    clef_set_learning_rate(opt, 0.8);
    clef_schedule *up = clef_schedule_new(
        opt, &(clef_schedule_options){.kind = CLEF_SCHEDULE_PLATEAU, .patience = 1, .maximize = true, .warmup = 2});
    cr_expect_float_eq(clef_learning_rate(opt), 0.4, 1e-12);
    clef_schedule_tick(up);
    clef_schedule_metric(up, 0.5);
    clef_schedule_metric(up, 0.6);
    clef_schedule_metric(up, 0.55);
    cr_expect_float_eq(clef_learning_rate(opt), 0.8, 1e-12);
    clef_schedule_metric(up, 0.6);
    cr_expect_float_eq(clef_learning_rate(opt), 0.08, 1e-12);
}

Test(schedule, state_round_trip) {
    clef_schedule_options o = {.kind = CLEF_SCHEDULE_COSINE, .total = 10, .warmup = 3};
    clef_schedule *a = clef_schedule_new(opt, &o);
    for (int i = 0; i < 5; i++) clef_schedule_tick(a);
    clef_schedule_state state = clef_schedule_get(a);
    cr_expect_eq(state.ticks, 5);
    double rate = clef_learning_rate(opt);
    clef_schedule_tick(a);
    double next = clef_learning_rate(opt);
    clef_set_learning_rate(opt, 0.8);
    clef_schedule *b = clef_schedule_new(opt, &o);
    clef_schedule_set(b, state);
    cr_expect_eq(clef_learning_rate(opt), rate);
    clef_schedule_tick(b);
    cr_expect_eq(clef_learning_rate(opt), next);
}

static void expect_refused(clef_schedule_options o, const char *part) {
    cr_expect_null(clef_schedule_new(opt, &o));
    expect_error(ctx, CLEF_INVALID, part);
}

Test(schedule, refusals) {
    expect_refused((clef_schedule_options){.kind = CLEF_SCHEDULE_STEP}, "schedule: step_size");
    expect_refused((clef_schedule_options){.kind = CLEF_SCHEDULE_COSINE}, "schedule: total");
    expect_refused((clef_schedule_options){.kind = CLEF_SCHEDULE_MULTISTEP, .n_milestones = 1}, "milestones");
    expect_refused((clef_schedule_options){.kind = CLEF_SCHEDULE_MULTISTEP, .milestones = (int64_t[]){3, 2}, .n_milestones = 2},
                   "ascend");
    expect_refused((clef_schedule_options){.kind = (clef_schedule_kind)99}, "kind");
    expect_refused((clef_schedule_options){.warmup = -1}, "warmup");
    expect_refused((clef_schedule_options){.gamma = NAN}, "gamma");
    expect_refused((clef_schedule_options){.gamma = INFINITY}, "gamma");
    expect_refused((clef_schedule_options){.max_lr = INFINITY}, "max_lr");
    cr_expect_null(clef_schedule_new(NULL, NULL));
}
