/* test_loss.c — losses against plain double formulas, their gradients against differences of these, and stability.
   ctest: cost=30 */
#include "support/numbers.h"
#include "team_rows.h"

enum { N = 4, C = 5 };
typedef struct setting {
    double target[N], weights[N * C], smoothing;
    bool ignore, probabilities, is_log;
    int64_t ignored;
    clef_reduction reduction;
} setting;

/* Cross-entropy (or nll where is_log) from the definition. */
static void classes(const double *x, double *y, const void *user) {
    const setting *s = user;
    double total = 0, count = 0;
    for (int r = 0; r < N; r++) {
        double sum = 0, each = 0;
        for (int c = 0; c < C; c++) sum += exp(x[r * C + c]);
        bool skipped = s->ignore && s->target[r] == (double)s->ignored;
        for (int c = 0; c < C; c++) {
            double q = s->probabilities ? s->weights[r * C + c] : c == (int)s->target[r];
            q = q * (1 - s->smoothing) + s->smoothing / C;
            each -= q * (s->is_log ? x[r * C + c] : log(exp(x[r * C + c]) / sum));
        }
        if (skipped) each = 0;
        if (s->reduction == CLEF_REDUCE_NONE) y[r] = each;
        total += each, count += !skipped;
    }
    if (s->reduction != CLEF_REDUCE_NONE) y[0] = s->reduction == CLEF_REDUCE_SUM ? total : total / count;
}

/* Losses of halves are f32; gradients have the dtype of what they are of.  Slopes in double are good to 1e-8. */
static void expect_loss(clef_tensor *y, const double *want, clef_tensor *dx, const double *slope, clef_dtype dtype,
                        const char *what) {
    bounds of_y = stored_bounds(clef_tensor_dtype(y), 2e-6, 2e-6), of_dx = stored_bounds(dtype, 1e-5, 1e-4);
    cr_expect(clef_tensor_dtype(y) == (dtype == CLEF_F64 ? CLEF_F64 : CLEF_F32) && clef_tensor_dtype(dx) == dtype, "%s: dtypes",
              what);
    expect_numbers(y, want, of_y.absolute, of_y.relative, what);
    expect_numbers(dx, slope, fmax(of_dx.absolute, 2e-8), of_dx.relative, what);
}

static void check_classes(clef_context *ctx, const setting *given, clef_dtype dtype, const char *what) {
    setting copy = *given, *s = &copy;
    double *x = spread(N * C, -2, 2, 3), want[N], g[N] = {1, -0.5, 0.25, 2};
    int results = s->reduction == CLEF_REDUCE_NONE ? N : 1;
    clef_shape shape = results == 1 ? CLEF_SCALAR : CLEF_SHAPE(N);
    clef_loss_options o = {
        .reduction = s->reduction, .label_smoothing = s->smoothing, .has_ignore_index = s->ignore, .ignore_index = s->ignored};
    clef_tensor *p = parameter(tensor_of(ctx, CLEF_SHAPE(N, C), dtype, x)), *dx;
    clef_tensor *target =
        s->probabilities ? tensor_of(ctx, CLEF_SHAPE(N, C), dtype, s->weights) : tensor_of(ctx, CLEF_SHAPE(N), CLEF_I64, s->target);
    clef_tensor *y = s->is_log ? clef_nll_loss(p, target, &o) : clef_cross_entropy(p, target, &o);
    classes(x, want, s);
    expect_shape(y, shape);
    cr_assert(clef_grad(y, tensor_of(ctx, shape, clef_tensor_dtype(y), g), &p, 1, false, &dx) == CLEF_OK, "%s: %s", what,
              clef_error(ctx));
    double *slope = slopes(classes, s, x, N * C, results, g, 1e-6);
    expect_loss(y, want, dx, slope, dtype, what);
    free(x), free(slope);
    clef_release(p);
    clef_end_step(ctx);
}

Test(loss, cross_entropy) {
    clef_context *ctx = open_seeded(1);
    setting s = {.target = {0, 4, 2, 2}};
    bool few = few_kernels();
    if (!few) check_classes(ctx, &s, CLEF_F32, "mean");
    s.reduction = CLEF_REDUCE_NONE, s.smoothing = 0.1;
    if (!few) check_classes(ctx, &s, CLEF_F32, "each, smoothed");
    s.reduction = CLEF_REDUCE_MEAN, s.ignore = true, s.ignored = 2;
    for (int d = 0; d < float_dtypes_here(ctx); d++) check_classes(ctx, &s, float_dtypes[d], "smoothed, ignoring a class");
    s.ignored = -100, s.target[1] = -100, s.reduction = CLEF_REDUCE_SUM, s.smoothing = 0;
    if (!few) check_classes(ctx, &s, CLEF_F32, "sum, ignoring what is no class");
    s = (setting){.target = {1, 0, 3, 4}, .is_log = true, .ignore = true, .ignored = 3};
    if (!few) check_classes(ctx, &s, CLEF_F32, "nll");
    if (few) {
        clef_close(ctx);
        return; /* the rest is made of other ops */
    }
    s = (setting){.probabilities = true};
    for (int i = 0; i < N * C; i++) s.weights[i] = (1 + i % C) / 15.0;
    check_classes(ctx, &s, CLEF_F32, "probabilities");
    s.smoothing = 0.2;
    for (int d = 0; d < float_dtypes_here(ctx); d++) check_classes(ctx, &s, float_dtypes[d], "probabilities, smoothed");
    clef_close(ctx);
}

/* As many classes as a work-group shares on a GPU, and a large one: losses and slopes against the definition. */
static void check_many_classes(clef_context *ctx, int classes, double smoothing) {
    enum { ROWS = 3 };
    double *x = spread((int64_t)ROWS * classes, -3, 3, 5), *slope = calloc((size_t)(ROWS * classes), sizeof *slope), loss[ROWS];
    double target[ROWS] = {0, classes - 1, classes / 2};
    for (int i = 0; i < ROWS * classes; i++) x[i] = (double)(float)x[i];
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        loss[r] = 0;
        for (int c = 0; c < classes; c++) sum += exp(x[r * classes + c]);
        for (int c = 0; c < classes; c++) {
            double wanted = smoothing / classes + (c == (int)target[r] ? 1 - smoothing : 0);
            loss[r] -= wanted * (x[r * classes + c] - log(sum));
            slope[r * classes + c] = exp(x[r * classes + c]) / sum - wanted;
        }
    }
    clef_tensor *p = parameter(tensor_of(ctx, CLEF_SHAPE(ROWS, classes), CLEF_F32, x)), *dx;
    clef_tensor *y = clef_cross_entropy(p, tensor_of(ctx, CLEF_SHAPE(ROWS), CLEF_I32, target),
                                        &(clef_loss_options){.reduction = CLEF_REDUCE_NONE, .label_smoothing = smoothing});
    expect_numbers(y, loss, 1e-5, 1e-5, "losses of many classes");
    cr_assert(clef_grad(y, clef_ones(ctx, CLEF_SHAPE(ROWS), CLEF_F32), &p, 1, false, &dx) == CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(dx, slope, 1e-6, 1e-5, "slopes of many classes");
    clef_release(p);
    clef_end_step(ctx);
    free(x), free(slope);
}

Test(loss, cross_entropy_of_many_classes) {
    clef_context *ctx = open_seeded(1);
    check_many_classes(ctx, 131, 0.1);
    if (!few_kernels()) check_many_classes(ctx, 131, 0), check_many_classes(ctx, 4503, 0.1);
    clef_close(ctx);
}

Test(loss, cross_entropy_of_teams) {
    clef_context *ctx = open_for_team_rows();
    for (int i = 0; i < n_team_rows(); i++) check_many_classes(ctx, team_rows[i], i % 2 ? 0.1 : 0);
    clef_close(ctx);
}

/* [n,c,d] with targets [n,d] is the same as [n·d,c]. */
Test(loss, cross_entropy_of_maps) {
    clef_context *ctx = open_seeded(1);
    double *x = spread(2 * 3 * 4, -3, 3, 5), t[8] = {0, 1, 2, 0, 2, 2, 1, 0};
    clef_tensor *p = tensor_of(ctx, CLEF_SHAPE(2, 3, 4), CLEF_F32, x), *target = tensor_of(ctx, CLEF_SHAPE(2, 4), CLEF_U8, t);
    clef_tensor *flat = clef_reshape(clef_permute(p, (int[]){0, 2, 1}), CLEF_SHAPE(8, 3));
    double a = clef_item(clef_cross_entropy(p, target, NULL)),
           b = clef_item(clef_cross_entropy(flat, clef_reshape(target, CLEF_SHAPE(8)), NULL));
    cr_expect(fabs(a - b) < 1e-6 && a > 0, "%g and %g", a, b);
    free(x);
    if (few_kernels()) {
        clef_close(ctx);
        return;
    }
    clef_tensor *leaf = parameter(clef_copy(p)), *dx, *slope; /* in one launch, and in expressions that have gradients */
    cr_assert(clef_grad(clef_cross_entropy(leaf, target, NULL), CLEF_NONE, &leaf, 1, false, &dx) == CLEF_OK, "%s", clef_error(ctx));
    cr_assert(clef_grad(clef_cross_entropy(leaf, target, NULL), CLEF_NONE, &leaf, 1, true, &slope) == CLEF_OK, "%s",
              clef_error(ctx));
    double *want = numbers(slope);
    expect_numbers(dx, want, 1e-6, 1e-5, "gradient of maps");
    free(want);
    cr_expect(isnan(clef_item(
        clef_cross_entropy(clef_zeros(ctx, CLEF_SHAPE(2, 0), CLEF_F32), clef_zeros(ctx, CLEF_SHAPE(2), CLEF_I32), NULL))));
    clef_close(ctx);
}

Test(loss, cross_entropy_at_extremes) {
    clef_context *ctx = open_seeded(1);
    double x[6] = {1e4, 0, -1e4, 0, 1e4, -INFINITY}, t[2] = {0, 0}, far[2] = {0, 7};
    clef_tensor *p = tensor_of(ctx, CLEF_SHAPE(2, 3), CLEF_F32, x);
    clef_loss_options each = {.reduction = CLEF_REDUCE_NONE};
    expect_numbers(clef_cross_entropy(p, tensor_of(ctx, CLEF_SHAPE(2), CLEF_I32, t), &each), (double[]){0, 1e4}, 0, 1e-6,
                   "large logits");
    expect_numbers(clef_cross_entropy(p, tensor_of(ctx, CLEF_SHAPE(2), CLEF_I32, far), &each), (double[]){0, NAN}, 0, 0,
                   "no such class shows as NaN");
    cr_expect(!clef_cross_entropy(p, clef_zeros(ctx, CLEF_SHAPE(3), CLEF_I32), NULL));
    expect_error(ctx, CLEF_SHAPE, "cross_entropy: target i32 [3] does not fit to x [2,3]");
    cr_expect(!clef_cross_entropy(p, clef_zeros(ctx, CLEF_SHAPE(2), CLEF_F32), NULL));
    expect_error(ctx, CLEF_SHAPE, "target f32 [2]");
    cr_expect(!clef_cross_entropy(p, clef_zeros(ctx, CLEF_SHAPE(2), CLEF_I32), &(clef_loss_options){.label_smoothing = 1}));
    expect_error(ctx, CLEF_INVALID, "label_smoothing");
    clef_close(ctx);
}

/* ---- distances: x beside its target in one array of 2·N ---- */

typedef struct distance {
    int which;
    double target[8], delta;
    clef_reduction reduction;
} distance;

static void distances(const double *x, double *y, const void *user) {
    const distance *d = user;
    double total = 0;
    for (int i = 0; i < 8; i++) {
        double t = d->target[i], a = fabs(x[i] - t), p = 1 / (1 + exp(-x[i]));
        double each = d->which == 0   ? a * a
                      : d->which == 1 ? a
                      : d->which == 2 ? (a <= d->delta ? a * a / 2 : d->delta * (a - d->delta / 2))
                                      : -t * log(p) - (1 - t) * log(1 - p);
        if (d->reduction == CLEF_REDUCE_NONE) y[i] = each;
        total += each;
    }
    if (d->reduction != CLEF_REDUCE_NONE) y[0] = d->reduction == CLEF_REDUCE_SUM ? total : total / 8;
}

static void check_distance(clef_context *ctx, int which, clef_reduction reduction, clef_dtype dtype) {
    static clef_tensor *(*const f[])(clef_tensor *, clef_tensor *, const clef_loss_options *) = {
        clef_mse_loss, clef_l1_loss, clef_huber_loss, clef_bce_with_logits};
    static const char *const name[] = {"mse", "l1", "huber", "bce"};
    distance d = {.which = which, .delta = 1.5, .reduction = reduction};
    double *x = spread(8, -3, 3, 6), *t = spread(8, which == 3 ? 0 : -3, which == 3 ? 1 : 3, 7), want[8], *g = spread(8, -1, 1, 8);
    int results = reduction == CLEF_REDUCE_NONE ? 8 : 1;
    clef_shape shape = results == 8 ? CLEF_SHAPE(2, 4) : CLEF_SCALAR;
    clef_tensor *p = parameter(tensor_of(ctx, CLEF_SHAPE(2, 4), dtype, x)), *target = tensor_of(ctx, CLEF_SHAPE(2, 4), dtype, t),
                *dx;
    memcpy(d.target, t, sizeof d.target);
    clef_tensor *y = f[which](p, target, &(clef_loss_options){.reduction = reduction, .delta = 1.5});
    distances(x, want, &d);
    cr_assert(clef_grad(y, tensor_of(ctx, shape, clef_tensor_dtype(y), g), &p, 1, false, &dx) == CLEF_OK, "%s", clef_error(ctx));
    double *slope = slopes(distances, &d, x, 8, results, g, 1e-6);
    expect_loss(y, want, dx, slope, dtype, name[which]);
    free(x), free(t), free(g), free(slope);
    clef_release(p);
    clef_end_step(ctx);
}

/* Where x says what t is, and at the ends. */
Test(loss, distances_at_the_ends) {
    if (few_kernels()) cr_skip_test("many kernels: not where each takes long to compile");
    clef_context *ctx = open_seeded(1);
    enum { N = 8 };
    double x[N] = {16, -16, 8, -12, 0, 0, INFINITY, -INFINITY}, t[N] = {1, 0, 1, 0, 1, 0, 0, 1}, want[N], slope[N];
    for (int i = 0; i < N; i++) {
        double z = t[i] == 1 ? x[i] : -x[i]; /* the loss is log(1 + exp(-z)) */
        want[i] = z > 0 ? log1p(exp(-z)) : -z + log1p(exp(z));
        slope[i] = 1 / (1 + exp(-x[i])) - t[i];
    }
    clef_loss_options each = {.reduction = CLEF_REDUCE_NONE};
    clef_tensor *p = parameter(tensor_of(ctx, CLEF_SHAPE(N), CLEF_F32, x)), *dx, *ddx;
    clef_tensor *y = clef_bce_with_logits(p, tensor_of(ctx, CLEF_SHAPE(N), CLEF_F32, t), &each);
    cr_assert(clef_grad(y, clef_ones_like(y), &p, 1, false, &dx) == CLEF_OK, "%s", clef_error(ctx));
    double *got = numbers(y), *by = numbers(dx);
    for (int i = 0; i < N; i++) {
        cr_expect(got[i] == want[i] || fabs(got[i] / want[i] - 1) < 1e-6, "bce of %g and %g: %g, not %g", x[i], t[i], got[i],
                  want[i]);
        cr_expect_float_eq(by[i], slope[i], 1e-6, "its slope at %g and %g: %g, not %g", x[i], t[i], by[i], slope[i]);
    }
    free(got), free(by);
    clef_release(p);

    double d[5] = {0, 0.5, 3, -INFINITY, NAN}, first[5] = {0, 0.5, 1, -1, NAN}, second[5] = {1, 1, 0, 0, NAN};
    p = parameter(tensor_of(ctx, CLEF_SHAPE(5), CLEF_F32, d));
    y = clef_huber_loss(p, clef_zeros(ctx, CLEF_SHAPE(5), CLEF_F32), &each);
    cr_assert(clef_grad(y, clef_ones_like(y), &p, 1, true, &dx) == CLEF_OK, "%s", clef_error(ctx));
    cr_assert(clef_grad(dx, clef_ones_like(dx), &p, 1, false, &ddx) == CLEF_OK, "%s", clef_error(ctx));
    got = numbers(dx), by = numbers(ddx);
    for (int i = 0; i < 5; i++) {
        cr_expect(got[i] == first[i] || (isnan(got[i]) && isnan(first[i])), "huber's slope at %g: %g, not %g", d[i], got[i],
                  first[i]);
        if (i < 4) cr_expect_eq(by[i], second[i], "its curvature at %g: %g, not %g", d[i], by[i], second[i]);
    }
    free(got), free(by);
    clef_release(p);
    clef_close(ctx);
}

Test(loss, distances) {
    clef_context *ctx = open_seeded(1);
    for (int which = 0; which < 4; which++) {
        for (int reduction = 0; reduction < 3; reduction += 1 + (which > 0))
            check_distance(ctx, which, (clef_reduction)reduction, CLEF_F32);
        for (int d = 1; d < float_dtypes_here(ctx); d++) check_distance(ctx, which, CLEF_REDUCE_MEAN, float_dtypes[d]);
    }
    double all[2] = {4, -6};
    clef_tensor *p = parameter(tensor_of(ctx, CLEF_SHAPE(2), CLEF_F32, all)), *dx;
    clef_tensor *loss = clef_huber_loss(p, clef_zeros(ctx, CLEF_SHAPE(2), CLEF_F32), &(clef_loss_options){.delta = INFINITY});
    cr_expect(clef_grad(loss, CLEF_NONE, &p, 1, false, &dx) == CLEF_OK && clef_item(loss) == 13, "all of it is near");
    expect_numbers(dx, (double[]){2, -3}, 0, 0, "slope of a Huber loss without an end");
    clef_release(p);
    double big[2] = {1000, -1000}, one[2] = {1, 0};
    clef_tensor *b = tensor_of(ctx, CLEF_SHAPE(2), CLEF_F32, big), *o = tensor_of(ctx, CLEF_SHAPE(2), CLEF_F32, one);
    cr_expect(clef_item(clef_bce_with_logits(b, o, NULL)) == 0 && clef_item(clef_bce_with_logits(clef_neg(b), o, NULL)) == 1000);
    cr_expect(!clef_mse_loss(b, clef_unsqueeze(o, 0), NULL));
    expect_error(ctx, CLEF_SHAPE, "mse_loss: x [2] and target [1,2] differ");
    clef_close(ctx);
}

/* 0 · log 0 is 0, with a gradient of 0 and no NaN; an infinite log q only matters where p does. */
Test(loss, kl_div_of_certainty) {
    clef_context *ctx = open_seeded(1);
    double log_q[3] = {-INFINITY, -1, -2}, p[3] = {0, 1, 0}, log_p[3] = {-INFINITY, 0, -INFINITY};
    for (int log = 0; log < 2; log++) {
        clef_tensor *x = parameter(tensor_of(ctx, CLEF_SHAPE(3), CLEF_F32, log_q)),
                    *t = parameter(tensor_of(ctx, CLEF_SHAPE(3), CLEF_F32, log ? log_p : p)), *d[2];
        clef_tensor *y = clef_kl_div(x, t, &(clef_loss_options){.reduction = CLEF_REDUCE_NONE, .log_target = log});
        expect_numbers(y, (double[]){0, 1, 0}, 1e-6, 0, "kl_div");
        cr_assert(clef_grad(y, clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32), (clef_tensor *[]){x, t}, 2, false, d) == CLEF_OK, "%s",
                  clef_error(ctx));
        expect_numbers(d[0], (double[]){0, -1, 0}, 1e-6, 0, "gradient of log q");
        expect_numbers(d[1], (double[]){0, 2, 0}, 1e-6, 0, "gradient of the target");
        clef_release(x), clef_release(t);
    }
    cr_expect(!clef_kl_div(clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32), clef_ones(ctx, CLEF_SHAPE(2), CLEF_F32), NULL));
    expect_error(ctx, CLEF_SHAPE, "kl_div: x [3] and target [2] differ");
    clef_close(ctx);
}

/* A weight of 1 is none, also of logits that no exponential holds. */
Test(loss, pos_weight) {
    clef_context *ctx = open_seeded(1);
    double x[6] = {-200, -1, 0, 1, 3, 200}, t[6] = {0, 1, 0.5, 0, 1, 1};
    clef_tensor *logits = tensor_of(ctx, CLEF_SHAPE(3, 2), CLEF_F32, x), *target = tensor_of(ctx, CLEF_SHAPE(3, 2), CLEF_F32, t);
    clef_loss_options one = {.reduction = CLEF_REDUCE_NONE, .pos_weight = clef_ones(ctx, CLEF_SHAPE(2), CLEF_F16)},
                      none = {.reduction = CLEF_REDUCE_NONE, .pos_weight = CLEF_NONE};
    double *want = numbers(clef_bce_with_logits(logits, target, &none));
    expect_numbers(clef_bce_with_logits(logits, target, &one), want, 1e-7, 1e-6, "pos_weight of 1");
    one.pos_weight = clef_full(ctx, CLEF_SCALAR, CLEF_F32, 3);
    want[1] *= 3, want[2] *= 2, want[4] *= 3, want[5] *= 3;
    expect_numbers(clef_bce_with_logits(logits, target, &one), want, 1e-7, 1e-6, "pos_weight of 3");
    free(want);
    one.pos_weight = clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32);
    cr_expect(!clef_bce_with_logits(logits, target, &one));
    expect_error(ctx, CLEF_SHAPE, "bce_with_logits: pos_weight [3] does not broadcast to logits [3,2]");
    one.pos_weight = clef_ones(ctx, CLEF_SHAPE(4, 3, 2), CLEF_F32);
    cr_expect(!clef_bce_with_logits(logits, target, &one));
    expect_error(ctx, CLEF_SHAPE, "bce_with_logits: pos_weight [4,3,2] does not broadcast");
    clef_close(ctx);
}
