/* clef_fit and clef_evaluate under autocast: the steps and scores of a loop written by hand, saved and resumed, with a scaler and without.
   ctest: plain together */
#include "train/train_support.h"
#include "support/device.h"
#include <math.h>

static const rig_options kind = {.dropout = true, .scheduled = true, .lr = 3e-3};
static const clef_dtype lows[] = {CLEF_F16, CLEF_BF16};

static void expect_weights(const rig *r, const rig *want, bool same, const char *what) {
    size_t n = 0, m = 0;
    float *a = rig_weights(r, &n), *b = rig_weights(want, &m);
    cr_assert(a && b && n == m);
    cr_expect_eq(memcmp(a, b, n * sizeof *a) == 0, same, "%s", what);
    free(a), free(b);
}

static clef_grad_scaler *scaler_for(const rig *r, clef_dtype low) {
    return low == CLEF_F16 ? clef_grad_scaler_new(r->ctx, &(clef_grad_scaler_options){.interval = 4}) : NULL;
}

/* Autocast over forward and loss alone, as everywhere else. */
static void by_hand(const rig *r, clef_dtype low) {
    clef_grad_scaler *scaler = scaler_for(r, low);
    for (clef_batch b; clef_next(r->train, &b);) {
        clef_dtype was = clef_set_autocast(r->ctx, low);
        clef_tensor *loss = clef_cross_entropy(clef_forward(r->net, b.x), b.y, NULL);
        clef_set_autocast(r->ctx, was);
        clef_backward(scaler ? clef_grad_scaler_scale(scaler, loss) : loss);
        cr_assert_eq(scaler ? clef_grad_scaler_step(scaler, r->optimizer) : clef_step(r->optimizer), CLEF_OK, "%s",
                     clef_error(r->ctx));
        if (scaler) clef_grad_scaler_update(scaler);
        clef_schedule_tick(r->schedule);
    }
}

static bool sees_no_autocast(void *user, const clef_epoch *epoch) {
    (void)epoch;
    cr_expect_eq(clef_get_autocast(user), CLEF_F32);
    return true;
}

Test(fit_autocast, is_a_loop_with_it) {
    rig plain = rig_open(kind);
    clef_fit_options options = rig_fit(&plain);
    cr_assert_eq(clef_fit(plain.net, &options, NULL), CLEF_OK);
    for (int i = 0; i < 2; i++) {
        rig r = rig_open(kind), s = rig_open(kind);
        const clef_history *history;
        clef_evaluation_result wide, low;
        options = rig_fit(&r);
        options.autocast = lows[i];
        options.scaler = scaler_for(&r, lows[i]);
        options.on_epoch = sees_no_autocast;
        options.user = r.ctx;
        cr_assert_eq(clef_fit(r.net, &options, &history), CLEF_OK, "%s", clef_error(r.ctx));
        cr_expect_eq(clef_get_autocast(r.ctx), CLEF_F32);
        by_hand(&s, lows[i]);
        expect_weights(&r, &s, true, "a loop by hand");
        expect_weights(&r, &plain, false, "autocast did nothing");
        for (int k = 0; k < clef_module_tensors(r.net); k++)
            cr_expect_eq(clef_tensor_dtype(clef_module_tensor(r.net, k).tensor), CLEF_F32);
        /* tests are under autocast, too */
        cr_assert_eq(clef_evaluate(r.net, r.test, NULL, NULL, &wide), CLEF_OK);
        clef_set_autocast(r.ctx, lows[i]);
        cr_assert_eq(clef_evaluate(r.net, r.test, NULL, NULL, &low), CLEF_OK);
        cr_expect_eq(clef_set_autocast(r.ctx, CLEF_F32), lows[i]);
        cr_expect_eq(history->epoch[0].test_loss, low.loss);
        cr_expect_neq(low.loss, wide.loss);
        cr_expect_float_eq(low.loss, wide.loss, 0.01, "%g, %g", low.loss, wide.loss);
        clef_close(r.ctx), clef_close(s.ctx);
    }
    clef_close(plain.ctx);
}

/* Without the option the context's own setting holds, for optimizers and callbacks, too: it changes nothing there. */
Test(fit_autocast, the_contexts_setting_does_the_same) {
    rig r = rig_open(kind), s = rig_open(kind);
    clef_fit_options options = rig_fit(&r), of_context = rig_fit(&s);
    options.autocast = CLEF_BF16;
    options.clip_norm = of_context.clip_norm = 0.5;
    clef_set_autocast(s.ctx, CLEF_BF16);
    cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_OK, "%s", clef_error(r.ctx));
    cr_assert_eq(clef_fit(s.net, &of_context, NULL), CLEF_OK, "%s", clef_error(s.ctx));
    cr_expect_eq(clef_get_autocast(s.ctx), CLEF_BF16);
    expect_weights(&r, &s, true, "the context's setting");
    clef_close(r.ctx), clef_close(s.ctx);
}

static clef_status part(rig *r, const char *dir, clef_dtype low, int64_t interrupt_after) {
    *r = rig_open(kind);
    clef_fit_options options = rig_fit(r);
    stopper s = {.at = interrupt_after};
    options.autocast = low;
    options.scaler = scaler_for(r, low);
    fit_in_parts(&options, dir, &s);
    clef_status status = clef_fit(r->net, &options, NULL);
    cr_assert(status == CLEF_OK || status == CLEF_INTERRUPTED, "%s", clef_error(r->ctx));
    return status;
}

Test(fit_autocast, of_a_resumed_run_has_the_same_bits) {
    for (int i = 0; i < 2; i++) {
        char dir[64];
        rig whole, last;
        cr_assert(fresh_directory(dir));
        cr_assert_eq(part(&whole, NULL, lows[i], 0), CLEF_OK);
        int times = 0;
        for (clef_status status = CLEF_INTERRUPTED; status == CLEF_INTERRUPTED && times < 40; times++) {
            status = part(&last, dir, lows[i], 1 + times % 3);
            if (status == CLEF_INTERRUPTED) clef_close(last.ctx);
        }
        cr_assert(times > 2);
        expect_weights(&last, &whole, true, "resumed");
        clef_close(whole.ctx), clef_close(last.ctx);
        remove_directory(dir);
    }
}

static char warning[512];
static void listen(void *user, clef_log_level level, const char *line) {
    (void)user;
    if (level == CLEF_LOG_WARNING) snprintf(warning, sizeof warning, "%s", line);
}

/* What a checkpoint was made under is in it. */
Test(fit_autocast, resumed_without_it_is_told_of) {
    char dir[64];
    cr_assert(fresh_directory(dir));
    static const clef_dtype run[] = {CLEF_BF16, CLEF_BF16, CLEF_F32};
    for (int i = 0; i < 3; i++) {
        clef_context *ctx = clef_open(&(clef_options){.seed = 1, .log = listen});
        clef_loader *data =
            clef_loader_open(clef_dataset_take(clef_digits(ctx, CLEF_TRAIN), 64), &(clef_loader_options){.batch = 32});
        clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, 64, 10, NULL)));
        clef_fit_options o = {.train = data,
                              .optimizer = clef_adam(net, NULL),
                              .epochs = i + 1,
                              .checkpoint_dir = dir,
                              .resume = true,
                              .autocast = run[i]};
        *warning = 0;
        cr_assert_eq(clef_fit(net, &o, NULL), CLEF_OK, "%s", clef_error(ctx));
        cr_expect(i < 2 ? !*warning : strstr(warning, "; autocast to bf16, and this is") != NULL, "%d: %s", i, warning);
        clef_close(ctx);
    }
    remove_directory(dir);
}

/* Setting and weights are those from before an error, whose line names the layer. */
Test(fit_autocast, after_an_error_the_setting_is_back) {
    rig r = rig_open((rig_options){.plain = true});
    clef_fit_options options = rig_fit(&r);
    options.train = rig_poisoned(&r, true, POISON_ITEMS);
    options.autocast = CLEF_F16;
    options.scaler = scaler_for(&r, CLEF_F16);
    clef_set_autocast(r.ctx, CLEF_BF16);
    cr_expect_eq(clef_fit(r.net, &options, NULL), CLEF_INVALID);
    cr_expect(strstr(clef_error(r.ctx), "batch 4 is not finite"), "%s", clef_error(r.ctx));
    cr_expect_eq(clef_get_autocast(r.ctx), CLEF_BF16);
    clef_clear_error(r.ctx);
    options = rig_fit(&r);
    options.autocast = CLEF_F64;
    cr_expect_eq(clef_fit(r.net, &options, NULL), CLEF_DTYPE);
    cr_expect_str_eq(clef_error(r.ctx), "fit: autocast is f64; give CLEF_F16 or CLEF_BF16, or nothing for the context's setting");
    clef_close(r.ctx);
}
