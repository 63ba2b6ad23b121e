/* test_scan.c — prefix sums and products: whole numbers exactly, floats within bounds and with the same bits wherever they are computed. */
#include "support/numbers.h"

/* y along dim of x [shape], from the last element on if `back`; the caller frees. */
static double *define(const double *x, clef_shape shape, int dim, bool back) {
    int64_t n = shape.rank ? shape.dim[dim] : 1, inner = 1, total = clef_shape_numel(shape);
    for (int i = dim + 1; i < shape.rank; i++) inner *= shape.dim[i];
    double *y = malloc((size_t)(total + 1) * sizeof *y);
    for (int64_t i = 0; i < total; i++) {
        int64_t at = back ? total - 1 - i : i, step = back ? inner : -inner, j = at / inner % n;
        y[at] = x[at] + (j == (back ? n - 1 : 0) ? 0 : y[at + step]);
    }
    return y;
}

static bool is_whole(clef_dtype d) { return d == CLEF_I32 || d == CLEF_I64 || d == CLEF_U8 || d == CLEF_BOOL; }

static void check(clef_tensor *t, int dim) {
    clef_shape shape = clef_tensor_shape(t);
    clef_dtype dtype = clef_tensor_dtype(t);
    char what[128], text[96];
    snprintf(what, sizeof what, "cumsum of %s along %d", clef_shape_format(shape, text, sizeof text), dim);
    double *x = numbers(t), *want = define(x, shape, dim, false);
    clef_tensor *y = clef_cumsum(t, dim);
    cr_assert(y, "%s: %s", what, clef_error(clef_tensor_context(t)));
    cr_expect(clef_tensor_dtype(y) == (is_whole(dtype) ? CLEF_I64 : dtype), "%s: dtype", what);
    expect_shape(y, shape);
    expect_numbers(y, want, 0, 0, what);
    free(x), free(want);
    clef_end_step(clef_tensor_context(t));
}

Test(scan, every_dtype) {
    clef_context *ctx = open_seeded(1);
    for (clef_dtype d = 0; d < CLEF_DTYPE_COUNT; d++) {
        if ((d == CLEF_F64 && !has_f64(ctx)) || (test_small() && d != CLEF_F32 && d != CLEF_U8)) continue;
        bool is_signed = d != CLEF_U8 && d != CLEF_BOOL, half = d == CLEF_F16 || d == CLEF_BF16;
        clef_tensor *t = kept_whole(ctx, CLEF_SHAPE(3, half ? 50 : 90, 5), d, is_signed ? -2 : 0, d == CLEF_U8 ? 256 : 2, 1);
        check(t, 1);
        clef_release(t);
    }
    clef_close(ctx);
}

Test(scan, every_rank_and_dimension) {
    clef_context *ctx = open_seeded(1);
    static const int64_t dim[CLEF_MAX_RANK] = {2, 3, 1, 2, 5, 1, 2, 3};
    for (int rank = 0; rank <= CLEF_MAX_RANK; rank += test_small() ? 4 : 1) {
        clef_shape shape = {.rank = rank};
        memcpy(shape.dim, dim, sizeof dim);
        clef_tensor *t = kept_whole(ctx, shape, rank % 2 ? CLEF_F32 : CLEF_I32, -3, 3, (uint64_t)rank);
        for (int d = 0; d < (rank ? rank : 1); d++) check(t, d);
        clef_release(t);
    }
    clef_close(ctx);
}

/* Around the size of a chunk; then sums of sums. */
Test(scan, sizes) {
    clef_context *ctx = open_seeded(1);
    static const int64_t size[] = {1, 2, 1023, 1024, 1025, 2048, 2049, 5000};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        clef_tensor *row = kept_whole(ctx, CLEF_SHAPE(2, size[i]), CLEF_F32, -9, 9, i);
        clef_tensor *columns = kept_whole(ctx, CLEF_SHAPE(2, size[i], 3), CLEF_I32, -9, 9, i);
        check(row, 1), check(columns, 1);
        clef_release(row), clef_release(columns);
    }
    clef_tensor *t = test_small() ? NULL : kept_whole(ctx, CLEF_SHAPE(1024 * 1024 + 1025), CLEF_I32, INT32_MIN, INT32_MAX, 20);
    if (t) check(t, 0);
    clef_close(ctx);
}

Test(scan, wraps_like_integers) {
    clef_context *ctx = open_seeded(1);
    int64_t x[4] = {INT64_MAX, 1, -1, INT64_MIN}, have[4];
    static const int64_t want[4] = {INT64_MAX, INT64_MIN, INT64_MAX, -1};
    clef_tensor *y = clef_cumsum(clef_from_host(ctx, CLEF_SHAPE(4), CLEF_I64, x), 0);
    cr_expect(clef_read(y, have, sizeof have) == CLEF_OK && memcmp(have, want, sizeof want) == 0, "%s", clef_error(ctx));
    clef_close(ctx);
}

Test(scan, views) {
    clef_context *ctx = open_seeded(1);
    clef_tensor *view[VIEWS];
    kept_views(ctx, view);
    for (int i = 0; i < VIEWS; i++)
        for (int d = 0; d < 3; d++) check(view[i], d);
    clef_close(ctx);
}

/* Not exact any more: each sum within the error of a thousand additions, of which most cancel, and stored once. */
Test(scan, random_floats) {
    clef_context *ctx = open_seeded(1);
    int64_t n = test_small() ? 1500 : 30000;
    for (int d = 0; d < float_dtypes_here(ctx); d++) {
        double *x = spread(n, -1, 1, 3), scale = sqrt((double)n);
        clef_tensor *y = clef_cumsum(tensor_of(ctx, CLEF_SHAPE(n), float_dtypes[d], x), 0);
        double *want = define(x, CLEF_SHAPE(n), 0, false);
        bounds b = stored_bounds(float_dtypes[d], 16 * scale * 0x1p-24, 0x1p-22);
        expect_numbers(y, want, b.absolute, b.relative, "random floats");
        free(x), free(want);
    }
    clef_close(ctx);
}

Test(scan, infinity_and_nan) {
    clef_context *ctx = open_seeded(1);
    double *x = spread(2200, -1, 1, 4);
    x[5] = INFINITY, x[1500] = -INFINITY;
    clef_tensor *t = tensor_of(ctx, CLEF_SHAPE(2200), CLEF_F32, x);
    double *want = define(x, CLEF_SHAPE(2200), 0, false);
    cr_expect(isinf(want[1499]) && isnan(want[1500]) && isnan(want[2199]));
    expect_numbers(clef_cumsum(t, 0), want, 1e-4, 0, "inf, then NaN");
    free(x), free(want);
    clef_close(ctx);
}

/* The same bits with the kernels of every profile. */
Test(scan, same_bits_everywhere) {
    enum { N = 5000 };
    static const char *const profiles[] = {"cpu_avx512", "cpu_avx2", "cpu", "minimal", "gpu"};
    float first[2 * N], again[2 * N];
    for (int p = 0; p < (test_small() ? 2 : 5); p++) {
        clef_context *ctx = open_or_skip(&(clef_options){.seed = 1, .profile = profiles[p]});
        clef_tensor *y = clef_cumsum(noise_tensor(ctx, CLEF_SHAPE(N, 2), 5), 0);
        cr_assert(clef_read(y, p ? again : first, sizeof first) == CLEF_OK, "%s", clef_error(ctx));
        cr_expect(p == 0 || memcmp(first, again, sizeof first) == 0, "%s", profiles[p]);
        clef_close(ctx);
    }
}

/* Of Σ w·y², and of Σ u·(its gradient), on whole numbers: with C the prefix sum, Cᵀ 2w C x and Cᵀ 2w C u. */
static void check_gradients(clef_context *ctx, clef_shape shape, clef_dtype dtype) {
    int64_t n = clef_shape_numel(shape);
    clef_tensor *t = clef_require_grad(kept_whole(ctx, shape, dtype, -2, 3, 8), true), *dx, *ddx;
    clef_tensor *w = kept_whole(ctx, shape, dtype, -1, 2, 9), *u = kept_whole(ctx, shape, dtype, -2, 3, 10);
    double *v[] = {numbers(t), numbers(u)}, *wv = numbers(w), *want[2];
    for (int k = 0; k < 2; k++) {
        double *y = define(v[k], shape, 1, false);
        for (int64_t i = 0; i < n; i++) y[i] *= 2 * wv[i];
        want[k] = define(y, shape, 1, true);
        free(y);
    }
    clef_tensor *y = clef_sum(clef_mul(w, clef_square(clef_cumsum(t, 1))), NULL, 0, false);
    cr_assert(clef_grad(y, clef_ones(ctx, CLEF_SCALAR, dtype), &t, 1, true, &dx) == CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(dx, want[0], 0, 0, "gradient");
    clef_tensor *z = clef_sum(clef_mul(dx, u), NULL, 0, false);
    cr_assert(clef_grad(z, clef_ones(ctx, CLEF_SCALAR, dtype), &t, 1, false, &ddx) == CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(ddx, want[1], 0, 0, "second gradient");
    free(v[0]), free(v[1]), free(wv), free(want[0]), free(want[1]);
    clef_release(t), clef_release(w), clef_release(u);
    clef_end_step(ctx);
}

Test(scan, gradients) {
    clef_context *ctx = open_seeded(1);
    check_gradients(ctx, CLEF_SHAPE(3, 41, 2), CLEF_F32);
    if (!test_small()) check_gradients(ctx, CLEF_SHAPE(2, 1500), CLEF_F32);
    if (has_f64(ctx) && !test_small()) check_gradients(ctx, CLEF_SHAPE(3, 41, 2), CLEF_F64);
    clef_tensor *t = clef_require_grad(kept_whole(ctx, CLEF_SHAPE(2, 9), CLEF_F16, -2, 3, 8), true), *dx;
    cr_assert(clef_grad(clef_cumsum(t, 1), clef_ones(ctx, CLEF_SHAPE(2, 9), CLEF_F16), &t, 1, false, &dx) == CLEF_OK);
    expect_numbers(dx, (double[]){9, 8, 7, 6, 5, 4, 3, 2, 1, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 0, 0, "of f16");
    clef_close(ctx);
}

/* ---- products ---- */

/* Along the only dimension; the caller frees. */
static double *products(const double *x, int64_t n, int64_t skipped) {
    double *y = malloc((size_t)(n + 1) * sizeof *y), product = 1;
    for (int64_t i = 0; i < n; i++) y[i] = product *= i == skipped ? 1 : x[i];
    return y;
}

/* Σ over j ≥ k of g[j] · Π over i ≤ j, i ≠ k of x[i]; the caller frees. */
static double *product_slopes(const double *x, const double *g, int64_t n) {
    double *dx = calloc((size_t)(n + 1), sizeof *dx);
    for (int64_t k = 0; k < n; k++) {
        double *y = products(x, n, k);
        for (int64_t j = k; j < n; j++) dx[k] += g[j] * y[j];
        free(y);
    }
    return dx;
}

/* Numbers near 1 of either sign, and zeros at those places. */
static void check_products(clef_context *ctx, int64_t n, clef_dtype dtype, const int64_t *zero, int zeros, bool again) {
    double *x = spread(n, 0.97, 1.03, 3), *g = spread(n, -1, 1, 4);
    for (int64_t i = 0; i < n; i++) x[i] = i % 3 ? x[i] : -x[i];
    for (int i = 0; i < zeros; i++) x[zero[i]] = 0;
    clef_tensor *t = parameter(tensor_of(ctx, CLEF_SHAPE(n), dtype, x)), *y = clef_cumprod(t, -1), *dx;
    double *held = numbers(t), *want = products(held, n, -1), *dg = numbers(tensor_of(ctx, CLEF_SHAPE(n), dtype, g));
    double *slopes = product_slopes(held, dg, n);
    bounds b = stored_bounds(dtype, 1e-4, 1e-4);
    expect_numbers(y, want, b.absolute, b.relative, "cumprod");
    cr_assert(clef_grad(y, tensor_of(ctx, CLEF_SHAPE(n), dtype, g), &t, 1, again, &dx) == CLEF_OK, "%s", clef_error(ctx));
    bounds d = stored_bounds(dtype, 5e-4, 5e-4);
    expect_numbers(dx, slopes, d.absolute, d.relative, again ? "gradient to be differentiated again" : "gradient");
    free(x), free(g), free(held), free(want), free(dg), free(slopes);
    clef_release(t);
    clef_end_step(ctx);
}

Test(scan, products_and_zeros) {
    clef_context *ctx = open_seeded(1);
    for (int d = 0; d < float_dtypes_here(ctx); d++) {
        check_products(ctx, 37, float_dtypes[d], NULL, 0, false);
        check_products(ctx, 37, float_dtypes[d], (const int64_t[]){9}, 1, false);
        check_products(ctx, 37, float_dtypes[d], (const int64_t[]){9}, 1, true);
    }
    check_products(ctx, 37, CLEF_F32, (const int64_t[]){0, 36}, 2, false);
    check_products(ctx, 37, CLEF_F32, (const int64_t[]){0, 5, 6}, 3, true);
    if (!test_small()) check_products(ctx, 1500, CLEF_F32, (const int64_t[]){1200, 1300}, 2, false);
    clef_close(ctx);
}

/* A part of a row by itself overflows, or vanishes, where the product of all before it and it does neither. */
Test(scan, products_whose_parts_overflow) {
    enum { N = 3000, AT = 1024, MOST = 40 };
    static const struct {
        double first, factor;
        int count;
    } rows[] = {{0, 2, MOST}, {1e-30, 100, 20}, {1e30, 0.01, 25}};
    clef_context *ctx = open_seeded(1);
    for (int i = 0; i < 3; i++) {
        double *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
        for (int k = 0; k < N; k++) x[k] = k == 0 ? rows[i].first : k >= AT && k < AT + rows[i].count ? rows[i].factor : 1;
        if (i == 0)
            for (int k = AT; k < N; k++) x[k] = 2;
        for (int k = 0; k < N; k++) y[k] = x[k] * (k ? y[k - 1] : 1);
        expect_numbers(clef_cumprod(tensor_of(ctx, CLEF_SHAPE(N), CLEF_F32, x), 0), y, 0, 1e-4, "cumprod");
        free(x), free(y);
    }
    clef_close(ctx);
}

Test(scan, products_of_whole_numbers) {
    clef_context *ctx = open_seeded(1);
    clef_tensor *bytes = clef_to(clef_full(ctx, CLEF_SHAPE(9), CLEF_F32, 255), CLEF_U8),
                *one = clef_cumprod(clef_scalar(ctx, 3), 0);
    int64_t have[9], want = 1;
    cr_assert(clef_read(clef_cumprod(bytes, 0), have, sizeof have) == CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < 9; i++) {
        want = (int64_t)((uint64_t)want * 255);
        cr_expect_eq(have[i], want, "it wraps: %lld, not %lld", (long long)have[i], (long long)want);
    }
    cr_expect_eq(clef_item(one), 3);
    cr_expect(clef_eval(clef_cumprod(clef_zeros(ctx, CLEF_SHAPE(3, 0), CLEF_F32), 1)) == CLEF_OK);
    cr_expect(!clef_cumprod(bytes, 1));
    expect_error(ctx, CLEF_INVALID, "cumprod: x [9] has no dimension 1");
    clef_close(ctx);
}

Test(scan, empty_and_refused) {
    clef_context *ctx = open_seeded(1);
    clef_tensor *nothing = clef_cumsum(clef_zeros(ctx, CLEF_SHAPE(3, 0), CLEF_F32), 1),
                *x = clef_ones(ctx, CLEF_SHAPE(2), CLEF_F32);
    expect_shape(nothing, CLEF_SHAPE(3, 0));
    cr_expect(clef_eval(nothing) == CLEF_OK && clef_eval(clef_cumsum(clef_zeros(ctx, CLEF_SHAPE(3, 0), CLEF_U8), 0)) == CLEF_OK);
    cr_expect(!clef_cumsum(x, 1));
    expect_error(ctx, CLEF_INVALID, "cumsum: x [2] has no dimension 1");
    cr_expect(!clef_cumsum(NULL, 0));
    clef_close(ctx);
}
