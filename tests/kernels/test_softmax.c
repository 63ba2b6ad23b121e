/* test_softmax.c — softmax and log-softmax along every dimension and layout, their gradients of first and second order.
   ctest: cost=65 */
#include "support/numbers.h"
#include "support/stated_units.h"
#include "team_rows.h"

/* [outer, n, inner] in double. */
typedef struct lines {
    int64_t outer, n, inner;
    int logarithm;
} lines;
static void reference(const double *x, double *y, const void *user) {
    const lines *s = user;
    for (int64_t o = 0; o < s->outer; o++)
        for (int64_t i = 0; i < s->inner; i++) {
            const double *from = x + o * s->n * s->inner + i;
            double *to = y + o * s->n * s->inner + i, top = -INFINITY, sum = 0;
            for (int64_t k = 0; k < s->n; k++) top = fmax(top, from[k * s->inner]);
            for (int64_t k = 0; k < s->n; k++) sum += exp(from[k * s->inner] - top);
            for (int64_t k = 0; k < s->n; k++) {
                double d = from[k * s->inner] - top;
                to[k * s->inner] = s->logarithm ? d - log(sum) : exp(d) / sum;
            }
        }
}

static void check(clef_context *ctx, clef_shape shape, int dim, clef_dtype dtype, bool permuted) {
    int64_t n = clef_shape_numel(shape);
    double *x = spread(n, -6, 6, 3), *want = malloc((size_t)n * sizeof *want);
    lines s = {1, shape.dim[dim], 1, 0};
    for (int d = 0; d < dim; d++) s.outer *= shape.dim[d];
    for (int d = dim + 1; d < shape.rank; d++) s.inner *= shape.dim[d];
    clef_tensor *t = tensor_of(ctx, shape, dtype, x);
    if (permuted) t = clef_transpose(clef_copy(clef_transpose(t, 0, dim)), 0, dim);
    double u = dtype == CLEF_F64 ? 0x1p-53 : 0x1p-24, store = rounding_of(dtype) * (dtype != CLEF_F32 && dtype != CLEF_F64);
    for (s.logarithm = 0; s.logarithm < 2; s.logarithm++) {
        reference(x, want, &s);
        double relative = (16 + sqrt((double)s.n)) * u + store, absolute = s.logarithm ? 24 * u : 0x1p-25 * (store > 0);
        expect_numbers(s.logarithm ? clef_log_softmax(t, dim) : clef_softmax(t, dim), want, absolute, relative,
                       s.logarithm ? "log_softmax" : "softmax");
    }
    free(x), free(want);
    clef_end_step(ctx);
}

Test(softmax, values) {
    clef_context *ctx = open_seeded(1);
    check(ctx, CLEF_SHAPE(7, 10), 1, CLEF_F32, false);
    check(ctx, CLEF_SHAPE(7, 10), 0, CLEF_F32, false);
    check(ctx, CLEF_SHAPE(3, 131), 1, CLEF_F32, false); /* on a GPU a row by a work-group; by a large one */
    if (!few_kernels()) check(ctx, CLEF_SHAPE(2, 4503), 1, CLEF_F32, false);
    if (!test_small()) {
        check(ctx, CLEF_SHAPE(5, 1001), 1, CLEF_F32, false);
        check(ctx, CLEF_SHAPE(3, 12, 37), 1, CLEF_F32, false);
        check(ctx, CLEF_SHAPE(3, 12, 37), 1, CLEF_F32, true);
        for (int64_t n = 33; n < 200; n += 67) {
            check(ctx, CLEF_SHAPE(4, n), 1, CLEF_F16, false);
            check(ctx, CLEF_SHAPE(4, n), 1, CLEF_BF16, false);
            if (has_f64(ctx)) check(ctx, CLEF_SHAPE(4, n), 1, CLEF_F64, false);
        }
    }
    check(ctx, CLEF_SHAPE(6), 0, CLEF_F32, false);
    check(ctx, CLEF_SHAPE(4, 1), 1, CLEF_F32, false);
    clef_close(ctx);
}

/* Results that no cache may hold are stored in another way, but are the same, up to the order in which a line is summed. */
Test(softmax, larger_than_caches) {
    if (test_small()) cr_skip_test("large: not on a slow device (CLEF_TEST_SMALL)");
    clef_context *ctx = open_seeded(1);
    clef_tensor *x = clef_randn(ctx, CLEF_SHAPE(2100, 4096)), *half = clef_copy(clef_slice(x, 1, 0, 2048, 1));
    clef_tensor *far = clef_sub(clef_slice(clef_softmax(x, 0), 1, 0, 2048, 1), clef_softmax(half, 0));
    double largest = clef_item(clef_max(clef_abs(far), NULL, 0, false));
    cr_expect(largest < 1e-7, "%g", largest);
    clef_close(ctx);
}

/* Gradients in one launch and in expressions, along rows and columns, over several stretches and blocks. */
static void check_slopes(clef_context *ctx, lines s, clef_dtype dtype) {
    int64_t n = s.outer * s.n * s.inner;
    clef_shape shape = CLEF_SHAPE(s.outer, s.n, s.inner);
    double *x = spread(n, -4, 4, 5), *g = spread(n, -1, 1, 6), *y = malloc((size_t)n * sizeof *y),
           *dx = malloc((size_t)n * sizeof *dx);
    double store = rounding_of(dtype) * (dtype != CLEF_F32), *exact = malloc((size_t)n * sizeof *exact);
    clef_tensor *p = parameter(tensor_of(ctx, shape, dtype, x)), *seed = tensor_of(ctx, shape, dtype, g), *d;
    for (s.logarithm = 0; s.logarithm < 2; s.logarithm++) {
        reference(x, y, &s);
        for (int64_t i = 0; i < n; i++) exact[i] = s.logarithm ? exp(y[i]) : y[i];
        for (int64_t i = 0; i < n; i++) {
            int64_t first = i / (s.n * s.inner) * s.n * s.inner + i % s.inner;
            double sum = 0;
            for (int64_t k = 0; k < s.n; k++) sum += g[first + k * s.inner] * (s.logarithm ? 1 : exact[first + k * s.inner]);
            dx[i] = s.logarithm ? g[i] - exact[i] * sum : exact[i] * (g[i] - sum);
        }
        for (int again = 0; again < (few_kernels() ? 1 : 2); again++) {
            clef_tensor *out = s.logarithm ? clef_log_softmax(p, 1) : clef_softmax(p, 1);
            cr_assert(clef_grad(out, seed, &p, 1, again, &d) == CLEF_OK, "%s", clef_error(ctx));
            expect_numbers(d, dx, 2e-6 + 16 * store, 1e-5 + 16 * store, s.logarithm ? "slope of log_softmax" : "slope of softmax");
        }
    }
    clef_release(p);
    clef_end_step(ctx);
    free(x), free(g), free(y), free(dx), free(exact);
}

Test(softmax, slopes_of_lines) {
    clef_context *ctx = open_seeded(1);
    check_slopes(ctx, (lines){3, 19, 1, 0}, CLEF_F32);
    check_slopes(ctx, (lines){2, 5, 7, 0}, CLEF_F32);
    if (!few_kernels()) check_slopes(ctx, (lines){3, 131, 1, 0}, CLEF_F32);
    check_slopes(ctx, (lines){2, 83, 35, 0}, CLEF_F32); /* on a GPU two teams a row, the second with few columns */
    if (!test_small()) {
        check_slopes(ctx, (lines){2, 40, 83, 0}, CLEF_F32);
        check_slopes(ctx, (lines){1, 17, 1100, 0}, CLEF_F32);
        check_slopes(ctx, (lines){2, 700, 131, 0}, CLEF_F32);
        check_slopes(ctx, (lines){3, 19, 5, 0}, CLEF_BF16);
        check(ctx, CLEF_SHAPE(2, 700, 131), 1, CLEF_F32, false);
        check(ctx, CLEF_SHAPE(1, 40, 1100), 1, CLEF_F32, false);
        check(ctx, CLEF_SHAPE(3, 40, 21), 1, CLEF_F16, false);
        check(ctx, CLEF_SHAPE(530, 2077), 0, CLEF_F32, false);
        check(ctx, CLEF_SHAPE(2, 1100, 70), 1, CLEF_BF16, false);
        if (has_f64(ctx)) check(ctx, CLEF_SHAPE(600, 70), 0, CLEF_F64, false);
    }
    clef_close(ctx);
}

Test(softmax, rows_of_teams) {
    clef_context *ctx = open_for_team_rows();
    for (int i = 0; i < n_team_rows(); i++) {
        check(ctx, CLEF_SHAPE(3, team_rows[i]), 1, CLEF_F32, false);
        check_slopes(ctx, (lines){3, team_rows[i], 1, 0}, CLEF_F32);
    }
    if (!few_kernels()) check(ctx, CLEF_SHAPE(3, 700), 1, CLEF_F16, false), check_slopes(ctx, (lines){3, 300, 1, 0}, CLEF_BF16);
    for (int n = 500; !test_small() && has_f64(ctx) && n < 520; n += 12) /* of f64 a member holds a quarter */
        check(ctx, CLEF_SHAPE(3, n), 1, CLEF_F64, false), check_slopes(ctx, (lines){3, n, 1, 0}, CLEF_F64);
    clef_close(ctx);
}

/* Columns too few for a device: in splits, the last of them shorter; columns of all -inf and with a NaN in another split. */
Test(softmax, few_columns) {
    clef_context *ctx = open_seeded(1);
    check(ctx, CLEF_SHAPE(3101, 5), 0, CLEF_F32, false);
    if (!test_small()) {
        check(ctx, CLEF_SHAPE(5003, 33), 0, CLEF_F32, false);
        check(ctx, CLEF_SHAPE(7000, 3), 0, CLEF_F16, false);
        check_slopes(ctx, (lines){1, 3101, 5, 0}, CLEF_F32);
    }
    enum { N = 4101, COLUMNS = 3 };
    float *x = calloc(N * COLUMNS, sizeof *x), *y;
    for (int i = 0; i < N; i++) x[i * COLUMNS + 1] = -INFINITY;
    x[4000 * COLUMNS + 2] = NAN;
    y = values(clef_softmax(clef_from_host(ctx, CLEF_SHAPE(N, COLUMNS), CLEF_F32, x), 0));
    for (int i = 0; i < N; i++) {
        cr_assert(fabsf(y[i * COLUMNS] - 1.0f / N) < 1e-8f, "%d: %g", i, (double)y[i * COLUMNS]);
        cr_assert(isnan(y[i * COLUMNS + 1]) && isnan(y[i * COLUMNS + 2]), "%d", i);
    }
    free(x), free(y);
    clef_close(ctx);
}

/* On a GPU of many units there are more splits than members one below the other. */
TestAlone(softmax, many_splits) {
    if (test_small()) cr_skip_test("many elements: not on a slow device (CLEF_TEST_SMALL)");
    stated_units = 16;
    clef_context *ctx = open_as_gpu();
    check(ctx, CLEF_SHAPE(8200, 33), 0, CLEF_F32, false);
    check(ctx, CLEF_SHAPE(2, 8200, 33), 1, CLEF_F16, false);
    check(ctx, CLEF_SHAPE(3, 3101, 5), 1, CLEF_BF16, false);
    check_slopes(ctx, (lines){2, 83, 35, 0}, CLEF_F16);
    check_slopes(ctx, (lines){1, 700, 67, 0}, CLEF_BF16);
    if (has_f64(ctx)) {
        check(ctx, CLEF_SHAPE(3, 3101, 5), 1, CLEF_F64, false);
        check(ctx, CLEF_SHAPE(2, 83, 35), 1, CLEF_F64, false);
        check_slopes(ctx, (lines){2, 83, 35, 0}, CLEF_F64);
    }
    enum { N = 8200, COLUMNS = 33, HIGH = 2900 }; /* in some split, by far the largest */
    float *x = calloc(N * COLUMNS, sizeof *x), *y;
    x[HIGH * COLUMNS + 7] = 300;
    y = values(clef_softmax(clef_from_host(ctx, CLEF_SHAPE(N, COLUMNS), CLEF_F32, x), 0));
    for (int i = 0; i < N; i++) cr_assert(y[i * COLUMNS + 7] == (i == HIGH), "%d: %g", i, (double)y[i * COLUMNS + 7]);
    free(x), free(y);
    clef_close(ctx);
}

Test(softmax, extremes) {
    clef_context *ctx = open_seeded(1);
    double x[12] = {1e30, 1, 1, -INFINITY, 0, 0, NAN, 0, 0, -INFINITY, -INFINITY, -INFINITY};
    double want[12] = {1, 0, 0, 0, 0.5, 0.5, NAN, NAN, NAN, NAN, NAN, NAN};
    clef_tensor *t = tensor_of(ctx, CLEF_SHAPE(4, 3), CLEF_F32, x);
    expect_numbers(clef_softmax(t, 1), want, 1e-7, 0, "softmax");
    expect_numbers(clef_softmax(clef_copy(clef_transpose(t, 0, 1)), 0),
                   (double[]){1, 0, NAN, NAN, 0, 0.5, NAN, NAN, 0, 0.5, NAN, NAN}, 1e-7, 0, "columns");
    expect_shape(clef_softmax(clef_zeros(ctx, CLEF_SHAPE(0, 3), CLEF_F32), 1), CLEF_SHAPE(0, 3));
    cr_expect(!clef_softmax(t, 2));
    expect_error(ctx, CLEF_INVALID, "softmax: x [4,3] has no dimension 2");
    clef_close(ctx);
}

/* First derivative against differences of the reference; second against differences of the first on the device, in f64. */
Test(softmax, gradients) {
    if (few_kernels()) return; /* the slopes above are first ones; second ones are other ops */
    clef_context *ctx = open_seeded(1);
    bool f64 = has_f64(ctx);
    clef_dtype dtype = f64 ? CLEF_F64 : CLEF_F32;
    double *x = spread(12, -2, 2, 5), *g = spread(12, -1, 1, 6), *h = spread(12, -1, 1, 7);
    for (int logarithm = 0; logarithm < 2; logarithm++) {
        lines s = {3, 4, 1, logarithm};
        clef_tensor *p = parameter(tensor_of(ctx, CLEF_SHAPE(3, 4), dtype, x)), *tg = tensor_of(ctx, CLEF_SHAPE(3, 4), dtype, g),
                    *dx, *ddx;
        clef_tensor *y = logarithm ? clef_log_softmax(p, 1) : clef_softmax(p, 1);
        cr_assert(clef_grad(y, tg, &p, 1, true, &dx) == CLEF_OK, "%s", clef_error(ctx));
        double *want = slopes(reference, &s, x, 12, 12, g, 1e-6);
        expect_numbers(dx, want, f64 ? 1e-8 : 1e-5, f64 ? 1e-6 : 1e-3, "first derivative");
        cr_assert(clef_grad(dx, tensor_of(ctx, CLEF_SHAPE(3, 4), dtype, h), &p, 1, false, &ddx) == CLEF_OK, "%s", clef_error(ctx));
        double *have = numbers(ddx), e = 1e-4;
        for (int i = 0; i < 12; i++) { /* d/dx_i Σ h·dx */
            double save = x[i], sum = 0;
            x[i] = save + e;
            double *up = slopes(reference, &s, x, 12, 12, g, 1e-5);
            x[i] = save - e;
            double *down = slopes(reference, &s, x, 12, 12, g, 1e-5);
            x[i] = save;
            for (int k = 0; k < 12; k++) sum += h[k] * (up[k] - down[k]) / (2 * e);
            cr_expect(close_to(have[i], sum, 1e-4 + 1e-3 * fabs(sum)), "second derivative %d is %.9g, not %.9g", i, have[i], sum);
            free(up), free(down);
        }
        free(want), free(have);
    }
    free(x), free(g), free(h);
    clef_close(ctx);
}
