/* test_orders.c — derivatives of order 3 and beyond: of every row of cl/unary.def against differences of the order below, which begin at
   the second derivative that test_pointwise.c checks; of powers and norms at 0; of a physics-informed net against PyTorch (expectations/pinn.def).
   ctest: cost=60 plain */
#include "support/numbers.h"

#define ORACLE(name, low, high, ulps, p, q, expression) static const double span_##name[] = {low, high, p, q};
#define ORACLE2(...)
#define ORACLE3(...)
#include "oracle.def"

typedef enum domain { NUMBER, FLOAT, ROUND, FLOAT_TEST, NUMBER_TEST } domain;
typedef struct row {
    const char *name;
    domain domain;
    const double *span; /* low, high, p, q */
    clef_tensor *(*f)(clef_tensor *);
    clef_tensor *(*fp)(clef_tensor *, double);
    clef_tensor *(*fpq)(clef_tensor *, double, double);
} row;
#define UNARY(n, d, ...) {#n, d, span_##n, .f = clef_##n},
#define UNARY_P(n, d, ...) {#n, d, span_##n, .fp = clef_##n},
#define UNARY_PP(n, d, ...) {#n, d, span_##n, .fpq = clef_##n},
static const row rows[] = {
#include "unary.def"
};
enum { ROWS = sizeof rows / sizeof *rows, ORDERS = 5, POINTS = 20 };

static clef_context *ctx;
/* Kernels of single ops, which rows share: a kernel costs more to compile than to run. */
static void open_device(void) { ctx = open_or_skip(&(clef_options){.profile = "minimal", .eager = true}); }
static void close_device(void) { close_clean(ctx); }
TestSuite(orders, .init = open_device, .fini = close_device);

static clef_tensor *apply(const row *r, clef_tensor *x) {
    return r->f ? r->f(x) : r->fp ? r->fp(x, r->span[2]) : r->fpq(x, r->span[2], r->span[3]);
}

/* f(x) and its derivatives, n of each. */
static void derive(const row *r, clef_dtype dtype, double *x, int n, double **of) {
    clef_tensor *t = parameter(tensor_of(ctx, CLEF_SHAPE(n), dtype, x)), *y = apply(r, t);
    clef_tensor *one = clef_full(ctx, CLEF_SHAPE(n), dtype, 1);
    for (int k = 0; k < ORDERS; k++) {
        cr_assert(k == 0 || clef_grad(y, one, &t, 1, true, &y) == CLEF_OK, "%s, order %d: %s", r->name, k, clef_error(ctx));
        of[k] = numbers(y);
        if (k && !clef_requires_grad(y)) y = clef_mul_scalar(t, 0); /* a derivative that is zero */
    }
    clef_release(t);
}

static void free_all(double **of) {
    for (int k = 0; k < ORDERS; k++) free(of[k]);
}

/* Order k against differences of order k - 1, but where that has a corner.  Returns how many were compared. */
static int check_differences(const row *r, const double *x, int k, double *const *of, double h) {
    const double *low = of[k - 1], *mid = low + POINTS, *high = mid + POINTS;
    int compared = 0;
    for (int i = 0; i < POINTS; i++) {
        double left = (mid[i] - low[i]) / h, right = (high[i] - mid[i]) / h, want = (high[i] - low[i]) / (2 * h);
        if (fabs(left - right) > 1e-2 * (1 + fabs(left) + fabs(right))) continue;
        compared++;
        double have = of[k][POINTS + i], bound = 1e-5 * fabs(want) + 1e-7 * (1 + fabs(mid[i]));
        if (close_to(have, want, bound)) continue;
        cr_expect(false, "%s, order %d at %.9g is %.9g, not %.9g", r->name, k, x[i], have, want);
        break;
    }
    return compared;
}

Test(orders, every_row_against_differences) {
    if (!has_f64(ctx)) cr_skip_test("this device has no f64");
    const double h = 1e-5;
    for (int i = 0; i < ROWS; i += test_small() ? 5 : 1) {
        const row *r = &rows[i];
        if (r->domain > ROUND) continue;
        double *x = spread(POINTS, r->span[0], r->span[1], 6), all[3 * POINTS], *of[ORDERS];
        for (int k = 0; k < 3 * POINTS; k++) all[k] = x[k % POINTS] + (k / POINTS - 1) * h;
        derive(r, CLEF_F64, all, 3 * POINTS, of);
        for (int k = 3; k < ORDERS; k++) cr_expect_gt(check_differences(r, x, k, of, h), POINTS * 3 / 4, "%s", r->name);
        free_all(of);
        free(x);
        clef_end_step(ctx);
    }
}

/* Within some roundings of what is computed on the way: all orders below. */
static void check_dtype(const row *r, clef_dtype dtype, double *x) {
    double *have[ORDERS], *want[ORDERS];
    derive(r, dtype, x, POINTS, have);
    derive(r, CLEF_F64, x, POINTS, want);
    for (int i = 0; i < POINTS; i++) {
        double size = 1;
        for (int k = 0; k < ORDERS; k++) {
            size += fabs(want[k][i]);
            if (close_to(have[k][i], want[k][i], 30 * rounding_of(dtype) * size)) continue;
            cr_expect(false, "%s in %s, order %d at %.9g is %.9g, not %.9g", r->name, clef_dtype_name(dtype), k, x[i], have[k][i],
                      want[k][i]);
            i = POINTS;
            break;
        }
    }
    free_all(have);
    free_all(want);
}

/* Of the halves some rows tell of all, as what they share is computed in f32. */
static void check_narrow(clef_dtype dtype, int step) {
    if (!has_f64(ctx)) cr_skip_test("this device has no f64");
    for (int i = 0; i < ROWS; i += test_small() ? 5 * step : step) {
        if (rows[i].domain > ROUND) continue;
        double *x = spread(POINTS, rows[i].span[0], rows[i].span[1], 7);
        clef_tensor *rounded = tensor_of(ctx, CLEF_SHAPE(POINTS), dtype, x);
        free(x);
        x = numbers(rounded);
        check_dtype(&rows[i], dtype, x);
        free(x);
        clef_end_step(ctx);
    }
}
Test(orders, f32_beside_f64) { check_narrow(CLEF_F32, 2); }
Test(orders, f16_beside_f64) { check_narrow(CLEF_F16, 11); }
Test(orders, bf16_beside_f64) { check_narrow(CLEF_BF16, 11); }

/* Where f, f' and f'' are numbers, so are the others: no factor is infinite beside one that has become 0. */
Test(orders, none_is_nan_far_from_0) {
    double x[POINTS] = {0, 1, -1, 3, -3, 6, -6, 10, -10, 30, -30, 100, -100, 1e4, -1e4, 1e10, -1e10, 1e30, -1e30, 1e-10};
    for (int i = 0; i < ROWS; i += test_small() ? 5 : 1) {
        double *of[ORDERS];
        if (rows[i].domain > ROUND) continue;
        derive(&rows[i], CLEF_F32, x, POINTS, of);
        for (int k = 0; k < POINTS; k++) {
            if (!isfinite(of[0][k]) || !isfinite(of[1][k]) || !isfinite(of[2][k])) continue;
            cr_expect(!isnan(of[3][k]) && !isnan(of[4][k]), "%s at %g: orders 3 and 4 are %g and %g", rows[i].name, x[k], of[3][k],
                      of[4][k]);
        }
        free_all(of);
        clef_end_step(ctx);
    }
}

/* x^n has a derivative that is not 0 at 0: the n-th, whether n is a number or a tensor.  What goes through log 0 is 0. */
/* Their squares are 0 in f32; x·log x has the second derivative 1/x. */
Test(orders, logarithms_of_tiny_numbers) {
    clef_tensor *(*const logs[])(clef_tensor *) = {clef_log, clef_log2, clef_log10};
    const double scale[] = {1, 1.4426950408889634, 0.4342944819032518};
    for (int i = 0; i < 3; i++) {
        clef_tensor *x = parameter(clef_full(ctx, CLEF_SCALAR, CLEF_F32, 1e-30)), *y = clef_mul(x, logs[i](x));
        for (int k = 0; k < 2; k++) cr_assert_eq(clef_grad(y, CLEF_NONE, &x, 1, true, &y), CLEF_OK, "%s", clef_error(ctx));
        double have = clef_item(y), want = scale[i] * 1e30;
        cr_expect(fabs(have - want) <= 1e-5 * want, "%s: %g, not %g", i == 0 ? "log" : i == 1 ? "log2" : "log10", have, want);
        clef_release(x);
        clef_end_step(ctx);
    }
}

Test(orders, powers_at_0) {
    for (int n = 0; n < ORDERS; n++) {
        clef_tensor *x = parameter(clef_scalar(ctx, 0)), *e = parameter(clef_scalar(ctx, n));
        clef_tensor *y[2] = {clef_pow_scalar(x, n), clef_pow(x, e)};
        clef_tensor *by_e, *by_both;
        cr_assert_eq(clef_grad(y[1], CLEF_NONE, &e, 1, true, &by_e), CLEF_OK, "%s", clef_error(ctx));
        cr_assert_eq(clef_grad(by_e, CLEF_NONE, &x, 1, false, &by_both), CLEF_OK, "%s", clef_error(ctx));
        cr_expect(clef_item(by_e) == 0 && clef_item(by_both) == 0, "0^%d by the exponent: %g, and by both %g", n, clef_item(by_e),
                  clef_item(by_both));
        double factorial = 1;
        for (int k = 1; k <= n; k++) factorial *= k;
        for (int k = 0; k < ORDERS; k++) {
            for (int i = 0; i < 2; i++) {
                double want = k == n ? factorial : 0, have = clef_item(y[i]);
                cr_expect(have == want, "order %d of x^%d, form %d, is %g, not %g", k, n, i, have, want);
                cr_assert_eq(clef_grad(y[i], CLEF_NONE, &x, 1, true, &y[i]), CLEF_OK, "%s", clef_error(ctx));
            }
        }
        clef_release(x);
        clef_release(e);
        clef_end_step(ctx);
    }
}

typedef enum norm { BATCH, LAYER, RMS, GROUP, NORMS } norm;

static clef_tensor *normalised(norm what, clef_tensor *x, double eps) {
    clef_tensor *mean = clef_full(ctx, CLEF_SHAPE(1), CLEF_F32, 0), *var = clef_full(ctx, CLEF_SHAPE(1), CLEF_F32, 1);
    switch (what) {
    case BATCH: return clef_batch_norm(x, CLEF_NONE, CLEF_NONE, clef_keep(mean), clef_keep(var), true, 0.1, eps);
    case LAYER: return clef_layer_norm(x, 1, CLEF_NONE, CLEF_NONE, eps);
    case RMS: return clef_rms_norm(x, 1, CLEF_NONE, eps);
    default: return clef_group_norm(x, 1, CLEF_NONE, CLEF_NONE, eps);
    }
}

/* Of t·d at t = 0, where all elements are equal: y = t·c·(ε + t²·v)^(-1/2) with c = d - mean, of which the third derivative is
   -3·c·v·ε^(-3/2). */
Test(orders, norms_of_equal_elements) {
    static const float d[] = {1.5f, -0.25f, 0.75f, 2};
    const double mean = 1, square = 1.71875, eps = 0.25;
    for (norm what = BATCH; what < NORMS; what++) {
        clef_tensor *t = parameter(clef_scalar(ctx, 0)), *x = clef_mul(t, clef_from_host(ctx, CLEF_SHAPE(1, 1, 4), CLEF_F32, d));
        clef_tensor *y = clef_sum(clef_slice(normalised(what, x, eps), 2, 0, 1, 1), NULL, 0, false);
        for (int k = 0; k < 3; k++) cr_assert_eq(clef_grad(y, CLEF_NONE, &t, 1, true, &y), CLEF_OK, "%s", clef_error(ctx));
        double c = what == RMS ? d[0] : d[0] - mean, v = what == RMS ? square : square - mean * mean;
        cr_expect_float_eq(clef_item(y), -24 * c * v, 1e-4, "norm %d: %g, not %g", what, clef_item(y), -24 * c * v);
        clef_release(t);
        clef_end_step(ctx);
    }
}

/* ---- a physics-informed net: u'' + u = 0, u(0) = 0, u'(0) = 1 ---- */

#define LOSS(...) static const double expected_loss = __VA_ARGS__;
#define GRADIENT(...)
#include "expectations/pinn.def"
#undef LOSS
#undef GRADIENT
#define LOSS(...)
#define GRADIENT(...) {__VA_ARGS__},
enum { PARTS = 6, MOST = 35, PLACES = 9 };
static const double expected_gradient[PARTS][MOST] = {
#include "expectations/pinn.def"
};

static clef_tensor *part(clef_shape shape, int salt, clef_dtype dtype) {
    double v[MOST];
    for (int i = 0; i < clef_shape_numel(shape); i++) v[i] = ((i * 37 + salt * 11) % 61 - 30) / 32.0;
    return parameter(tensor_of(ctx, shape, dtype, v));
}

static clef_tensor *slope_of(clef_tensor *y, clef_tensor *x) {
    clef_tensor *dx = NULL;
    cr_assert_eq(clef_grad(clef_sum(y, NULL, 0, false), CLEF_NONE, &x, 1, true, &dx), CLEF_OK, "%s", clef_error(ctx));
    return dx;
}

static clef_tensor *first_of(clef_tensor *y) { return clef_reshape(clef_slice(y, 0, 0, 1, 1), CLEF_SCALAR); }

static clef_tensor *loss_of_net(clef_tensor *const *w, clef_dtype dtype) {
    double place[PLACES];
    for (int i = 0; i < PLACES; i++) place[i] = i / 4.0;
    clef_tensor *x = clef_require_grad(tensor_of(ctx, CLEF_SHAPE(PLACES, 1), dtype, place), true);
    clef_tensor *u = clef_linear(clef_tanh(clef_linear(clef_tanh(clef_linear(x, w[0], w[1])), w[2], w[3])), w[4], w[5]);
    clef_tensor *du = slope_of(u, x), *residual = clef_add(slope_of(du, x), u);
    clef_tensor *at_0 = clef_add(clef_square(first_of(u)), clef_square(clef_sub_scalar(first_of(du), 1)));
    return clef_add(clef_mean(clef_square(residual), NULL, 0, false), at_0);
}

static void check_net(clef_dtype dtype, double relative) {
    const clef_shape shape[PARTS] = {CLEF_SHAPE(7, 1), CLEF_SHAPE(7),    CLEF_SHAPE(5, 7),
                                     CLEF_SHAPE(5),    CLEF_SHAPE(1, 5), CLEF_SHAPE(1)};
    clef_tensor *w[PARTS];
    for (int i = 0; i < PARTS; i++) w[i] = part(shape[i], 1 + i, dtype);
    clef_tensor *loss = loss_of_net(w, dtype);
    cr_assert_eq(clef_backward(loss), CLEF_OK, "%s", clef_error(ctx));
    cr_expect_float_eq(clef_item(loss), expected_loss, relative * expected_loss);
    for (int i = 0; i < PARTS; i++) {
        expect_numbers(clef_grad_of(w[i]), expected_gradient[i], relative * expected_loss, relative, clef_dtype_name(dtype));
        clef_release(w[i]);
    }
}

Test(orders, physics_informed_net) {
    if (test_small()) cr_skip_test("a net: Oclgrind 21.10 crashes in its check for unset values (CLEF_TEST_SMALL)");
    check_net(CLEF_F32, 1e-5);
    if (has_f64(ctx)) check_net(CLEF_F64, 1e-13);
}
