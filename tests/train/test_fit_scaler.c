/* clef_fit with a grad scaler: the steps, clipping and averages of a loop written by hand, saved and resumed.
   ctest: plain together */
#include "train/train_support.h"
#include "support/device.h"
#include <math.h>

static const rig_options kind = {.dropout = true, .scheduled = true, .lr = 3e-3};

/* With the largest scale its gradients overflow in f32. */
static clef_tensor *large(clef_tensor *output, clef_tensor *target, const clef_loss_options *options) {
    return clef_mul_scalar(clef_cross_entropy(output, target, options), 1000);
}

/* Growing so soon that they do so again and again. */
static clef_grad_scaler *high(clef_context *ctx) {
    return clef_grad_scaler_new(ctx, &(clef_grad_scaler_options){.scale = 0x1p126, .backoff = 0x1p-6, .growth = 8, .interval = 2});
}

static void expect_weights(const rig *r, const rig *want) {
    size_t n = 0, m = 0;
    float *a = rig_weights(r, &n), *b = rig_weights(want, &m);
    cr_assert(a && b && n == m);
    cr_expect_eq(memcmp(a, b, n * sizeof *a), 0);
    free(a), free(b);
}

/* An epoch by hand; how many steps were taken. */
static int64_t by_hand(const rig *r, clef_grad_scaler *scaler, int accumulate, double clip) {
    int64_t taken = 0;
    for (clef_batch b; clef_next(r->train, &b);) {
        clef_tensor *loss = large(clef_forward(r->net, b.x), b.y, NULL);
        if (accumulate > 1) loss = clef_mul_scalar(loss, 1.0 / accumulate);
        cr_assert_eq(clef_backward(clef_grad_scaler_scale(scaler, loss)), CLEF_OK);
        if ((b.index + 1) % accumulate && b.index + 1 < clef_loader_batches(r->train)) {
            clef_end_step(r->ctx);
            continue;
        }
        if (clip > 0) clef_grad_scaler_clip_norm(scaler, r->net, clip);
        double before = clef_grad_scaler_get(scaler).scale;
        cr_assert_eq(clef_grad_scaler_step(scaler, r->optimizer), CLEF_OK, "%s", clef_error(r->ctx));
        clef_grad_scaler_update(scaler);
        taken += clef_grad_scaler_get(scaler).scale >= before;
        clef_schedule_tick(r->schedule);
    }
    return taken;
}

Test(fit_scaler, is_a_loop_with_it) {
    static const struct {
        int accumulate;
        double clip;
    } way[] = {{1, 0}, {1, 0.3}, {3, 0}, {4, 0.2}};
    for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
        rig r = rig_open(kind), s = rig_open(kind);
        clef_grad_scaler *own = high(r.ctx), *hand = high(s.ctx);
        clef_averaged *mean = clef_averaged_new(r.net, NULL);
        clef_fit_options options = rig_fit(&r);
        options.scaler = own;
        options.loss = large;
        options.averaged = mean;
        options.accumulate = way[i].accumulate;
        options.clip_norm = way[i].clip;
        cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_OK, "%s", clef_error(r.ctx));
        int64_t taken = by_hand(&s, hand, way[i].accumulate, way[i].clip);
        int64_t steps = (clef_loader_batches(s.train) + way[i].accumulate - 1) / way[i].accumulate;
        cr_assert(taken < steps, "%lld of %lld", (long long)taken, (long long)steps);
        cr_assert(taken > 0 || way[i].accumulate > 1);
        expect_weights(&r, &s);
        clef_grad_scaler_state a = clef_grad_scaler_get(own), b = clef_grad_scaler_get(hand);
        cr_expect(a.scale == b.scale && a.good == b.good, "%g, %g", a.scale, b.scale);
        cr_expect_eq(clef_averaged_updates(mean), taken);
        clef_close(r.ctx), clef_close(s.ctx);
    }
}

/* Powers of two change no bit of f32 where nothing overflows or vanishes. */
Test(fit_scaler, changes_no_bit_of_f32) {
    rig r = rig_open(kind), s = rig_open(kind);
    clef_fit_options options = rig_fit(&r), plain = rig_fit(&s);
    options.scaler = clef_grad_scaler_new(r.ctx, &(clef_grad_scaler_options){.scale = 1024, .interval = 3});
    cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_OK, "%s", clef_error(r.ctx));
    cr_assert_eq(clef_fit(s.net, &plain, NULL), CLEF_OK);
    cr_expect_eq(clef_grad_scaler_get(options.scaler).scale, 1024 * 8);
    expect_weights(&r, &s);
    clef_close(r.ctx), clef_close(s.ctx);
}

static clef_status part(rig *r, const char *dir, int64_t interrupt_after, clef_grad_scaler_state *state) {
    *r = rig_open(kind);
    clef_fit_options options = rig_fit(r);
    stopper s = {.at = interrupt_after};
    options.scaler = high(r->ctx);
    options.loss = large;
    fit_in_parts(&options, dir, &s);
    clef_status status = clef_fit(r->net, &options, NULL);
    cr_assert(status == CLEF_OK || status == CLEF_INTERRUPTED, "%s", clef_error(r->ctx));
    *state = clef_grad_scaler_get(options.scaler);
    return status;
}

Test(fit_scaler, of_a_resumed_run_has_the_same_bits) {
    char dir[64];
    rig whole, last;
    clef_grad_scaler_state a, b;
    cr_assert(fresh_directory(dir));
    cr_assert_eq(part(&whole, NULL, 0, &a), CLEF_OK);
    int times = 0;
    for (clef_status status = CLEF_INTERRUPTED; status == CLEF_INTERRUPTED && times < 40; times++) {
        status = part(&last, dir, 1 + times % 3, &b);
        if (status == CLEF_INTERRUPTED) clef_close(last.ctx);
    }
    cr_assert(times > 2);
    cr_expect(a.scale == b.scale && a.good == b.good, "%g and %lld, %g and %lld", a.scale, (long long)a.good, b.scale,
              (long long)b.good);
    expect_weights(&last, &whole);
    clef_close(whole.ctx), clef_close(last.ctx);
    remove_directory(dir);
}

/* The fourth batch holds a NaN: whenever fit notices, weights, scale and averages are those of the steps before. */
Test(fit_scaler, stops_at_a_loss_that_is_none) {
    rig run[2];
    clef_grad_scaler *scaler[2];
    for (int bad = 0; bad < 2; bad++) {
        rig *r = &run[bad];
        *r = rig_open((rig_options){.plain = true});
        clef_fit_options options = rig_fit(r);
        options.train = rig_poisoned(r, bad, bad ? POISON_ITEMS : POISON_AT * POISON_BATCH);
        options.scaler = scaler[bad] = clef_grad_scaler_new(r->ctx, &(clef_grad_scaler_options){.scale = 256, .interval = 2});
        options.averaged = clef_averaged_new(r->net, NULL);
        cr_expect_eq(clef_fit(r->net, &options, NULL), bad ? CLEF_INVALID : CLEF_OK);
        cr_expect_eq(clef_averaged_updates(options.averaged), POISON_AT);
    }
    cr_expect(strstr(clef_error(run[1].ctx), "batch 4 is not finite"), "%s", clef_error(run[1].ctx));
    clef_clear_error(run[1].ctx);
    clef_grad_scaler_state a = clef_grad_scaler_get(scaler[0]), b = clef_grad_scaler_get(scaler[1]);
    cr_expect(a.scale == b.scale && a.good == b.good, "%g, %g", a.scale, b.scale);
    expect_weights(&run[1], &run[0]);
    clef_close(run[0].ctx), clef_close(run[1].ctx);
}

Test(fit_scaler, refusals) {
    rig r = rig_open(kind), s = rig_open(kind);
    clef_fit_options options = rig_fit(&r);
    options.scaler = high(s.ctx);
    cr_expect_eq(clef_fit(r.net, &options, NULL), CLEF_INVALID);
    cr_expect_str_eq(clef_error(r.ctx), "fit: the grad scaler belongs to another context");
    clef_clear_error(r.ctx);
    options = rig_fit(&r);
    options.scaler = high(r.ctx);
    options.train = clef_loader_open(clef_digits(r.ctx, CLEF_TRAIN), &(clef_loader_options){.batch = 32, .parts = 2});
    cr_expect_eq(clef_fit(r.net, &options, NULL), CLEF_INVALID);
    cr_expect_str_eq(clef_error(r.ctx), "fit: a batch in parts has no scale of its loss; leave .scaler out");
    clef_close(r.ctx), clef_close(s.ctx);
}
