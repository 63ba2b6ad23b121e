/* The scale of losses: by its rules, and steps that are what they are without it.
   ctest: plain together */
#include "clef/io.h"
#include "support/device.h"
#include "support/io_files.h"

static clef_context *ctx;
static void open_context(void) { ctx = open_seeded(5); }
static void close_context(void) { close_clean(ctx); }
TestSuite(scaler, .init = open_context, .fini = close_context);

enum { N = 5 };

static clef_module *one(clef_dtype dtype) {
    clef_module *m = clef_module_new(ctx, "parameters", NULL, NULL);
    clef_module_add_parameter(m, "p", clef_to(noise_tensor(ctx, CLEF_SHAPE(N), 1), dtype));
    return m;
}

/* Σ p·c, whose gradient is c; through f16 on the way back where asked. */
static clef_tensor *loss_of(clef_module *m, float c, bool half) {
    clef_tensor *p = clef_parameter(m, "p");
    if (half) p = clef_to(p, CLEF_F16);
    return clef_sum(clef_mul_scalar(clef_to(p, CLEF_F32), c), NULL, 0, false);
}

static void read_all(clef_module *m, float out[N]) {
    cr_assert_eq(clef_read(clef_to(clef_parameter(m, "p"), CLEF_F32), out, N * sizeof *out), CLEF_OK, "%s", clef_error(ctx));
}

static void train(clef_module *m, clef_optimizer *opt, clef_grad_scaler *scaler, float c, bool half) {
    clef_tensor *loss = loss_of(m, c, half);
    cr_assert_eq(clef_backward(scaler ? clef_grad_scaler_scale(scaler, loss) : loss), CLEF_OK, "%s", clef_error(ctx));
    clef_status status = scaler ? clef_grad_scaler_step(scaler, opt) : clef_step(opt);
    cr_assert_eq(status, CLEF_OK, "%s", clef_error(ctx));
    if (scaler) clef_grad_scaler_update(scaler);
}

/* A scale that is a power of two changes no bit. */
Test(scaler, steps_are_those_without_it) {
    clef_dtype dtype[] = {CLEF_F32, CLEF_BF16};
    for (int i = 0; i < 2; i++) {
        clef_module *a = one(dtype[i]), *b = one(dtype[i]);
        clef_optimizer *x = clef_adam(a, &(clef_adam_options){.lr = 0.01}), *y = clef_adam(b, &(clef_adam_options){.lr = 0.01});
        clef_grad_scaler *scaler = clef_grad_scaler_new(ctx, &(clef_grad_scaler_options){.scale = 1024});
        float with[N], without[N];
        for (int step = 0; step < 4; step++) {
            train(a, x, scaler, 0.3f + 0.1f * (float)step, false);
            train(b, y, NULL, 0.3f + 0.1f * (float)step, false);
        }
        read_all(a, with), read_all(b, without);
        cr_expect_arr_eq(with, without, sizeof with);
        cr_expect_eq(clef_optimizer_steps(x), 4);
    }
}

/* 1e-8 is 0 in f16, 1e-8·65536 is not. */
Test(scaler, small_gradients_pass_through_halves) {
    clef_grad_scaler *scaler = clef_grad_scaler_new(ctx, NULL);
    for (int scaled = 0; scaled < 2; scaled++) {
        clef_module *m = one(CLEF_F32);
        clef_optimizer *opt = clef_sgd(m, &(clef_sgd_options){.lr = 1e7});
        float before[N], after[N];
        read_all(m, before);
        train(m, opt, scaled ? scaler : NULL, 1e-8f, true);
        read_all(m, after);
        for (int i = 0; i < N; i++) cr_expect_float_eq(before[i] - after[i], scaled ? 0.1 : 0, 1e-3, "%g", before[i] - after[i]);
    }
}

/* Against the rules, written down again: steps 3 and 7 overflow in f16 whatever the scale is. */
Test(scaler, what_overflows_is_left_out_and_the_scale_follows) {
    clef_module *m = one(CLEF_F32);
    clef_optimizer *opt = clef_adam(m, &(clef_adam_options){.lr = 0.01});
    clef_grad_scaler *scaler =
        clef_grad_scaler_new(ctx, &(clef_grad_scaler_options){.scale = 8, .growth = 3, .backoff = 0.25, .interval = 2});
    double scale = 8;
    int64_t good = 0, steps = 0;
    for (int step = 0; step < 10; step++) {
        bool overflows = step == 3 || step == 7;
        float before[N], after[N];
        read_all(m, before);
        train(m, opt, scaler, overflows ? (step == 3 ? 1e9f : NAN) : 0.01f, true);
        read_all(m, after);
        if (overflows) {
            cr_expect_arr_eq(before, after, sizeof before);
            scale *= 0.25;
            good = 0;
        } else {
            cr_expect(before[0] != after[0]);
            steps++;
            if (++good == 2) scale *= 3, good = 0;
        }
        cr_expect_null(clef_grad_of(clef_parameter(m, "p")));
        cr_expect_eq(clef_grad_scaler_get(scaler).scale, scale, "step %d: %g, not %g", step, clef_grad_scaler_get(scaler).scale,
                     scale);
        cr_expect_eq(clef_grad_scaler_get(scaler).good, good);
        cr_expect_eq(clef_optimizer_steps(opt), steps);
    }
}

/* However often a step is left out or taken, scale and inverse are numbers of f32: gradients of 0 stay 0. */
Test(scaler, stays_in_range) {
    clef_module *m = one(CLEF_F32);
    clef_optimizer *opt = clef_sgd(m, &(clef_sgd_options){.lr = 1});
    clef_grad_scaler *scaler =
        clef_grad_scaler_new(ctx, &(clef_grad_scaler_options){.growth = 0x1p20, .backoff = 0x1p-20, .interval = 1});
    float before[N], after[N];
    read_all(m, before);
    for (int falls = 0; falls < 2; falls++) {
        for (int i = 0; i < 20; i++) {
            if (falls) train(m, opt, scaler, NAN, false);
            else clef_grad_scaler_update(scaler);
        }
        double scale = clef_grad_scaler_get(scaler).scale;
        cr_expect(falls ? scale >= 0x1p-126 && scale < 1e-30 : scale <= 0x1p126 && scale > 1e30, "%g", scale);
        train(m, opt, scaler, 0, false);
        read_all(m, after);
        cr_expect_arr_eq(before, after, sizeof before);
    }
}

Test(scaler, clips_by_the_norm_without_the_scale) {
    clef_module *m = one(CLEF_F32);
    clef_optimizer *opt = clef_sgd(m, &(clef_sgd_options){.lr = 1});
    clef_grad_scaler *scaler = clef_grad_scaler_new(ctx, &(clef_grad_scaler_options){.scale = 512});
    float before[N], after[N];
    read_all(m, before);
    cr_assert_eq(clef_backward(clef_grad_scaler_scale(scaler, loss_of(m, 2, false))), CLEF_OK);
    double norm = clef_item(clef_grad_scaler_clip_norm(scaler, m, 0.5));
    cr_expect_float_eq(norm, 2 * sqrt(N), 1e-5, "%g", norm);
    cr_assert_eq(clef_grad_scaler_step(scaler, opt), CLEF_OK);
    read_all(m, after);
    for (int i = 0; i < N; i++) cr_expect_float_eq(before[i] - after[i], 0.5 / sqrt(N), 1e-5);
}

Test(scaler, comes_back_from_a_checkpoint) {
    char dir[512], path[600];
    snprintf(dir, sizeof dir, "%s", io_scratch());
    snprintf(path, sizeof path, "%s/a.ckpt", dir);
    clef_grad_scaler *a = clef_grad_scaler_new(ctx, &(clef_grad_scaler_options){.scale = 0.1}),
                     *b = clef_grad_scaler_new(ctx, NULL);
    for (int i = 0; i < 3; i++) clef_grad_scaler_update(a);
    cr_assert_eq(clef_checkpoint_save(ctx, path, &(clef_checkpoint){.scaler = a}), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(clef_checkpoint_load(ctx, path, &(clef_checkpoint){.scaler = b}), CLEF_OK, "%s", clef_error(ctx));
    cr_expect(clef_grad_scaler_get(b).scale == 0.1 && clef_grad_scaler_get(b).good == 3);
    clef_grad_scaler_set(a, (clef_grad_scaler_state){.scale = 0});
    expect_error(ctx, CLEF_INVALID, "grad_scaler_set: scale is 0 and good 0; scale must be from 2^-126 to 2^126");
    clef_grad_scaler_set(a, (clef_grad_scaler_state){.scale = 0x1p127});
    expect_error(ctx, CLEF_INVALID, "grad_scaler_set: scale is 1.7");
    clef_grad_scaler_set(a, (clef_grad_scaler_state){.scale = 1, .good = -1});
    expect_error(ctx, CLEF_INVALID, "grad_scaler_set: scale is 1 and good -1");
    cr_expect(clef_grad_scaler_get(a).scale == 0.1 && clef_grad_scaler_get(a).good == 3, "nothing changed");
    io_remove(dir);
}

/* A gradient that one rank alone has infinite is so in the average: all leave the step out. */
static clef_status train_rank(clef_context *own, clef_group *all, void *user) {
    double(*scale)[2] = user;
    clef_module *m = clef_module_new(own, "parameters", NULL, NULL);
    clef_module_add_parameter(m, "p", clef_ones(own, CLEF_SHAPE(N), CLEF_F32));
    clef_optimizer *opt = clef_adam(m, &(clef_adam_options){.lr = 0.01, .group = all});
    clef_grad_scaler *scaler = clef_grad_scaler_new(own, NULL);
    clef_status status = CLEF_OK;
    for (int step = 0; step < 3 && !status; step++) {
        float c = step == 1 && clef_group_rank(all) == 1 ? INFINITY : 1;
        clef_tensor *loss = clef_sum(clef_mul_scalar(clef_parameter(m, "p"), c), NULL, 0, false);
        clef_backward(clef_grad_scaler_scale(scaler, loss));
        status = clef_grad_scaler_step(scaler, opt);
        clef_grad_scaler_update(scaler);
    }
    scale[clef_group_rank(all)][0] = clef_grad_scaler_get(scaler).scale;
    scale[clef_group_rank(all)][1] = (double)clef_optimizer_steps(opt);
    return status;
}

Test(scaler, ranks_decide_alike) {
    double scale[2][2] = {{0}};
    clef_status status = clef_run_ranks("0/2", train_rank, scale);
    if (status == CLEF_NO_DEVICE || status == CLEF_UNSUPPORTED) cr_skip_test("%s", clef_error(NULL));
    cr_assert_eq(status, CLEF_OK, "%s", clef_error(NULL));
    for (int r = 0; r < 2; r++) cr_expect(scale[r][0] == 32768 && scale[r][1] == 2, "rank %d: %g, %g", r, scale[r][0], scale[r][1]);
}

Test(scaler, refusals) {
    static const clef_grad_scaler_options bad[] = {{.scale = -1},   {.scale = INFINITY}, {.scale = 0x1p127}, {.scale = 0x1p-127},
                                                   {.growth = 0.5}, {.backoff = 2},      {.interval = -1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_null(clef_grad_scaler_new(ctx, &bad[i]));
        expect_error(ctx, CLEF_INVALID, "grad_scaler: scale ");
    }
    cr_expect_null(clef_grad_scaler_new(NULL, NULL));
    cr_expect_null(clef_grad_scaler_scale(NULL, NULL));
    cr_expect_eq(clef_grad_scaler_step(NULL, NULL), CLEF_INVALID);
    cr_expect_eq(clef_grad_scaler_get(NULL).scale, 0);
}
