/* test_reduce.c — reductions: exact on integers in any grouping of dimensions and any layout, bounded on random data, right
   gradients, and the rules for empty inputs and NaN.
   ctest: cost=50 */
#include "support/exact.h"
#include "support/numbers.h"

typedef enum kind { SUM, MEAN, MAX, MIN, PROD } kind;
static clef_tensor *(*const function[])(clef_tensor *, const int *, int, bool) = {clef_sum, clef_mean, clef_max, clef_min,
                                                                                  clef_prod};
static const char *const kind_name[] = {"sum", "mean", "max", "min", "prod"};

static double start_of(kind k) { return k == MAX ? -INFINITY : k == MIN ? INFINITY : k == PROD ? 1 : 0; }
static double join(kind k, double a, double x) {
    return k == MAX ? (x > a || isnan(x) ? x : a) : k == MIN ? (x < a || isnan(x) ? x : a) : k == PROD ? a * x : a + x;
}

/* The reference: y and, beside it, Σ|x|, over the dimensions in mask of a row-major x; the caller frees both. */
static int64_t reference(kind k, const double *x, clef_shape shape, unsigned mask, double **y, double **s) {
    int64_t n = clef_shape_numel(shape), results = 1, count = 1, stride[CLEF_MAX_RANK];
    for (int d = shape.rank - 1; d >= 0; d--) {
        stride[d] = mask >> d & 1 ? 0 : results;
        *(mask >> d & 1 ? &count : &results) *= shape.dim[d];
    }
    *y = malloc((size_t)(results + 1) * sizeof **y), *s = calloc((size_t)results + 1, sizeof **s);
    for (int64_t i = 0; i < results; i++) (*y)[i] = start_of(k);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, rest = i;
        for (int d = shape.rank - 1; d >= 0; d--) at += rest % shape.dim[d] * stride[d], rest /= shape.dim[d];
        (*y)[at] = join(k, (*y)[at], x[i]);
        (*s)[at] += fabs(x[i]);
    }
    for (int64_t i = 0; k == MEAN && i < results; i++) (*y)[i] /= (double)count, (*s)[i] /= (double)count;
    return count;
}

static int dims_of(unsigned mask, int *dims) {
    int n = 0;
    for (int d = 0; d < CLEF_MAX_RANK; d++)
        if (mask >> d & 1) dims[n++] = d;
    return n;
}

static void check(clef_tensor *t, kind k, unsigned mask, bool exact) {
    int dims[CLEF_MAX_RANK], n = dims_of(mask, dims);
    double *x = numbers(clef_copy(t)), *want, *s;
    clef_shape shape = clef_tensor_shape(t);
    int64_t count = reference(k, x, shape, mask, &want, &s);
    clef_tensor *y = function[k](t, dims, n, false);
    double *have = numbers(y), u = clef_tensor_dtype(t) == CLEF_F64 ? 0x1p-53 : 0x1p-24;
    for (int64_t i = 0; i < clef_numel(y); i++) {
        double bound = exact ? 0 : 4 * sqrt((double)count) * u * s[i] + (2 * u + rounding_of(clef_tensor_dtype(y))) * fabs(want[i]);
        if (close_to(have[i], want[i], bound)) continue;
        char text[96];
        cr_expect(false, "%s over mask %x of %s: element %lld is %.9g, not %.9g", kind_name[k], mask,
                  clef_shape_format(shape, text, sizeof text), (long long)i, have[i], want[i]);
        break;
    }
    free(x), free(want), free(s), free(have);
}

static clef_tensor *integers(clef_context *ctx, clef_shape shape, clef_dtype dtype, int low, int high, uint64_t salt) {
    double *x = spread(clef_shape_numel(shape), low, high, salt);
    for (int64_t i = 0; i < clef_shape_numel(shape); i++) x[i] = floor(x[i]);
    clef_tensor *t = tensor_of(ctx, shape, dtype, x);
    free(x);
    return t;
}

/* Every grouping of four dimensions, row-major and as NHWC memory behind an NCHW shape. */
Test(reduce, every_grouping_is_exact) {
    clef_context *ctx = open_seeded(1);
    clef_shape shape = test_small() ? CLEF_SHAPE(2, 3, 2, 5) : CLEF_SHAPE(3, 18, 5, 19);
    clef_tensor *t = integers(ctx, shape, CLEF_F32, -20, 21, 1);
    clef_tensor *nhwc = clef_permute(clef_copy(clef_permute(t, (int[]){0, 2, 3, 1})), (int[]){0, 3, 1, 2});
    for (unsigned mask = 1; mask < 16; mask += test_small() ? 3 : 1) {
        check(t, SUM, mask, true);
        check(nhwc, SUM, mask, true);
        clef_end_step(ctx);
        t = integers(ctx, shape, CLEF_F32, -20, 21, mask);
        nhwc = clef_permute(clef_copy(clef_permute(t, (int[]){0, 2, 3, 1})), (int[]){0, 3, 1, 2});
    }
    clef_close(ctx);
}

Test(reduce, long_and_thin) {
    clef_context *ctx = open_seeded(1);
    int64_t n = test_small() ? 300 : 1000003;
    check(integers(ctx, CLEF_SHAPE(n), CLEF_F32, -3, 4, 2), SUM, 1, true);
    check(integers(ctx, CLEF_SHAPE(n / 7, 7), CLEF_F32, -3, 4, 3), SUM, 1, true);
    check(integers(ctx, CLEF_SHAPE(7, n / 7), CLEF_F32, -3, 4, 4), SUM, 2, true);
    check(integers(ctx, CLEF_SHAPE(n / 64, 64), CLEF_F32, -3, 4, 5), SUM, 1, true);
    check(integers(ctx, CLEF_SHAPE(2, n / 64, 32), CLEF_F32, -3, 4, 6), SUM, 2, true);
    clef_tensor *flipped = clef_flip(integers(ctx, CLEF_SHAPE(50, 21), CLEF_F32, -3, 4, 7), 1);
    check(flipped, SUM, 2, true);
    check(clef_slice(flipped, 0, 1, 50, 3), SUM, 1, true);
    clef_close(ctx);
}

/* Columns that a team shares on a GPU, of all widths about those that fit it, and too short, just as long and longer than it takes. */
Test(reduce, columns_of_any_size) {
    clef_context *ctx = open_seeded(1);
    static const int64_t widths[] = {3, 33, 2, 4, 5, 6, 7, 8, 9, 1, 31, 130, 5000},
                         lines[] = {16, 65, 1000, 1, 2, 7, 15, 17, 63, 64, 128, 257, 57600};
    int64_t n_widths = test_small() ? 2 : 13, n_lines = test_small() ? 3 : 13;
    for (int64_t i = 0; i < n_widths * n_lines; i++) {
        int64_t inner = widths[i / n_lines], n = lines[i % n_lines], outer = i % 2 ? 3 : 1;
        if (inner * n > 400000) continue;
        clef_tensor *t = integers(ctx, CLEF_SHAPE(outer, n, inner), CLEF_F32, -3, 4, (uint64_t)i);
        check(t, SUM, 2, true);
        if (i % 3 == 0) check(t, MAX, 2, true);
        clef_end_step(ctx);
    }
    /* so many that few compute units take them without teams */
    check(integers(ctx, CLEF_SHAPE(5, 40, 600), CLEF_F32, -3, 4, 9), MIN, 2, true);
    clef_close(ctx);
}

Test(reduce, other_joins_of_columns) {
    clef_context *ctx = open_seeded(1);
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_I32, CLEF_F16, CLEF_BF16, CLEF_I64, CLEF_U8, CLEF_BOOL, CLEF_F64};
    for (int d = 0; d < (test_small() ? 2 : has_f64(ctx) ? 8 : 7); d++) {
        clef_tensor *t = integers(ctx, CLEF_SHAPE(2, 131, 5), dtypes[d], 0, dtypes[d] == CLEF_BOOL ? 2 : 7, 20);
        for (kind k = SUM; k <= MIN; k++) check(t, k, 2, k >= MAX || (k == SUM && dtypes[d] != CLEF_BF16));
    }
    check(integers(ctx, CLEF_SHAPE(3, 70, 5), CLEF_F32, 1, 3, 21), PROD, 2, true); /* of ones and twos */
    check(clef_neg(integers(ctx, CLEF_SHAPE(300, 5), CLEF_F32, 1, 9, 22)), MAX, 1, true);
    double *x = spread(2 * 90 * 5, -9, 9, 23);
    x[3 * 5 + 1] = x[(90 + 89) * 5 + 4] = NAN; /* one of the first lines and the very last element */
    for (kind k = SUM; k <= MIN; k++) check(tensor_of(ctx, CLEF_SHAPE(2, 90, 5), CLEF_F32, x), k, 2, k >= MAX);
    free(x);
    clef_close(ctx);
}

Test(reduce, random_sums_within_bound) {
    clef_context *ctx = open_seeded(1);
    double *x = spread(test_small() ? 500 : 300000, -1, 3, 8);
    clef_shape shape = test_small() ? CLEF_SHAPE(5, 100) : CLEF_SHAPE(30, 10000);
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_F16, CLEF_BF16, CLEF_F64};
    for (int d = 0; d < (test_small() ? 1 : has_f64(ctx) ? 4 : 3); d++) {
        clef_tensor *t = tensor_of(ctx, shape, dtypes[d], x);
        check(t, MEAN, 2, false);
        check(t, MEAN, 1, false);
        check(t, MAX, 2, true);
    }
    check(tensor_of(ctx, shape, CLEF_F32, x), SUM, 3, false);
    free(x);
    clef_close(ctx);
}

Test(reduce, other_joins) {
    clef_context *ctx = open_seeded(1);
    clef_tensor *t = integers(ctx, CLEF_SHAPE(6, 11, 5), CLEF_F32, -2, 3, 9);
    for (kind k = MAX; k <= PROD; k++)
        for (unsigned mask = 1; mask < 8; mask += 2) check(t, k, mask, true);
    double x[6] = {1, NAN, 3, -2, 5, -INFINITY};
    clef_tensor *odd = tensor_of(ctx, CLEF_SHAPE(2, 3), CLEF_F32, x);
    for (kind k = SUM; k <= PROD; k++) check(odd, k, 2, true), check(odd, k, 1, k >= MAX);
    clef_close(ctx);
}

Test(reduce, whole_numbers) {
    clef_context *ctx = open_seeded(1);
    static const clef_dtype dtypes[] = {CLEF_I32, CLEF_I64, CLEF_U8, CLEF_BOOL};
    for (int d = 0; d < (test_small() ? 1 : 4); d++) {
        clef_tensor *t = integers(ctx, CLEF_SHAPE(5, 70), dtypes[d],
                                  dtypes[d] == CLEF_U8     ? 200
                                  : dtypes[d] == CLEF_BOOL ? 0
                                                           : -9,
                                  dtypes[d] == CLEF_U8 ? 256 : 9, 10);
        cr_expect(clef_tensor_dtype(clef_sum(t, NULL, 0, false)) == CLEF_I64);
        cr_expect(clef_tensor_dtype(clef_mean(t, NULL, 0, false)) == CLEF_F32);
        cr_expect(clef_tensor_dtype(clef_max(t, NULL, 0, false)) == dtypes[d]);
        check(t, SUM, 2, true);
        check(t, SUM, 1, true);
        check(t, MAX, 2, true);
        check(t, MIN, 3, true);
    }
    double big[2] = {2e9, 2e9};
    cr_expect(clef_item(clef_sum(tensor_of(ctx, CLEF_SHAPE(2), CLEF_I32, big), NULL, 0, false)) == 4e9, "i32 sums do not overflow");
    clef_close(ctx);
}

/* One element that dimension 0 or -1 names. */
Test(reduce, of_a_scalar) {
    clef_context *ctx = open_seeded(1);
    clef_tensor *x = parameter(clef_copy(clef_scalar(ctx, -3))), *d;
    clef_tensor *(*const same[])(clef_tensor *, const int *, int, bool) = {clef_sum, clef_mean, clef_max,
                                                                           clef_min, clef_prod, clef_logsumexp};
    for (int i = 0; i < (few_kernels() ? 1 : 6); i++)
        for (int dim = -1; dim < 1; dim++) {
            clef_tensor *y = same[i](x, &dim, 1, dim < 0);
            expect_shape(y, CLEF_SCALAR);
            cr_expect_eq(clef_item(y), -3);
        }
    int zero = 0, one = 1;
    if (!few_kernels()) {
        cr_expect_eq(clef_item(clef_norm(x, 2, &zero, 1, false)), 3);
        cr_expect_eq(clef_item(clef_var(x, &zero, 1, false, 0)), 0);
    }
    cr_expect_eq(clef_item(clef_argmax(x, -1, true)), 0);
    cr_expect_eq(clef_item(clef_softmax(x, 0)), 1);
    cr_expect_eq(clef_item(clef_log_softmax(x, -1)), 0);
    cr_assert_eq(clef_grad(clef_softmax(x, 0), CLEF_NONE, &x, 1, false, &d), CLEF_OK, "%s", clef_error(ctx));
    expect_shape(d, CLEF_SCALAR);
    cr_expect_eq(clef_item(d), 0);
    cr_expect(!clef_sum(x, &one, 1, false));
    expect_error(ctx, CLEF_INVALID, "sum: dimension 1");
    cr_expect(!clef_softmax(x, 1));
    expect_error(ctx, CLEF_INVALID, "softmax: x [] has no dimension 1");
    cr_expect(!clef_sum(x, (int[]){0, -1}, 2, false));
    expect_error(ctx, CLEF_INVALID, "sum");
    clef_close(ctx);
}

/* The variance and its gradient 2 (x - mean) / count, wherever they are floats: squares and sums of these are not. */
static void check_var(clef_context *ctx, const float *x, int n, double want) {
    clef_tensor *p = parameter(clef_from_host(ctx, CLEF_SHAPE(n), CLEF_F32, x)), *y = clef_var(p, NULL, 0, false, 0), *d;
    cr_expect(close_to(clef_item(y), want, 1e-5 * want), "variance %.9g, not %.9g", clef_item(y), want);
    double mean = 0, slope[16];
    for (int i = 0; i < n; i++) mean += (double)x[i] / n;
    for (int i = 0; i < n; i++) slope[i] = 2 * ((double)x[i] - mean) / n;
    cr_assert_eq(clef_grad(y, CLEF_NONE, &p, 1, false, &d), CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(d, slope, 1e-5 * fabs(slope[0]), 1e-5, "slope of the variance");
    clef_release(p);
}

Test(reduce, variances_of_any_size) {
    clef_context *ctx = open_seeded(1);
    check_var(ctx, (float[]){1e19f, -1e19f, 1e19f, -1e19f, 1e19f, -1e19f, 1e19f, -1e19f}, 8, 1e38); /* their sum is beyond f32 */
    if (!few_kernels()) {
        check_var(ctx, (float[]){1e38f, 1e38f, 1e38f, 1e38f, 1e38f, 1e38f, 1e38f, 1e38f}, 8, 0); /* so is that of these */
        check_var(ctx, (float[]){16777216, 16777218, 16777220, 16777222, 16777224, 16777226, 16777228, 16777230}, 8, 21);
        check_var(ctx, (float[]){1e-18f, -1e-18f, 1e-18f, -1e-18f, 1e-18f, -1e-18f, 1e-18f, -1e-18f}, 8, 1e-36);
        clef_tensor *far = clef_from_host(ctx, CLEF_SHAPE(2), CLEF_F32, (float[]){1e20f, -1e20f});
        cr_expect_eq(clef_item(clef_var(far, NULL, 0, false, 0)), INFINITY, "1e40 is beyond f32");
        clef_tensor *nan = clef_from_host(ctx, CLEF_SHAPE(2), CLEF_F32, (float[]){1, INFINITY});
        cr_expect(isnan(clef_item(clef_var(nan, NULL, 0, false, 0))));
    }
    clef_close(ctx);
}

Test(reduce, of_nothing) {
    clef_context *ctx = open_seeded(1);
    clef_tensor *e = clef_zeros(ctx, CLEF_SHAPE(2, 0), CLEF_F32);
    double zero[2] = {0, 0}, one[2] = {1, 1}, nan[2] = {NAN, NAN};
    expect_numbers(clef_sum(e, (int[]){1}, 1, false), zero, 0, 0, "sum");
    expect_numbers(clef_prod(e, (int[]){1}, 1, false), one, 0, 0, "prod");
    expect_numbers(clef_mean(e, (int[]){1}, 1, false), nan, 0, 0, "mean");
    expect_shape(clef_sum(e, (int[]){0}, 1, false), CLEF_SHAPE(0));
    const double low[2] = {-INFINITY, -INFINITY}, high[2] = {INFINITY, INFINITY};
    expect_numbers(clef_max(e, (int[]){1}, 1, false), low, 0, 0, "max");
    expect_numbers(clef_min(e, (int[]){1}, 1, false), high, 0, 0, "min");
    if (!few_kernels()) {
        expect_numbers(clef_logsumexp(e, (int[]){1}, 1, false), low, 0, 0, "logsumexp");
        expect_numbers(clef_norm(e, INFINITY, (int[]){1}, 1, false), zero, 0, 0, "largest |x|");
        expect_numbers(clef_var(e, (int[]){1}, 1, false, 0), nan, 0, 0, "var");
    }
    static const struct {
        clef_dtype dtype;
        double least, most;
    } ends[] = {{CLEF_I32, INT32_MIN, INT32_MAX},
                {CLEF_I64, -0x1p63, 0x1p63},
                {CLEF_U8, 0, 255},
                {CLEF_BOOL, 0, 1},
                {CLEF_F16, -INFINITY, INFINITY}};
    for (int i = 0; i < (few_kernels() ? 1 : 5); i++) {
        clef_tensor *none = clef_zeros(ctx, CLEF_SHAPE(0), ends[i].dtype);
        expect_numbers(clef_max(none, NULL, 0, false), &ends[i].least, 0, 0, "max of no whole numbers");
        expect_numbers(clef_min(none, NULL, 0, false), &ends[i].most, 0, 1e-15, "min of no whole numbers");
    }
    clef_tensor *leaf = parameter(clef_copy(e)), *d;
    cr_expect_eq(clef_grad(clef_sum(clef_max(leaf, (int[]){1}, 1, false), NULL, 0, false), CLEF_NONE, &leaf, 1, false, &d), CLEF_OK,
                 "%s", clef_error(ctx));
    expect_shape(d, CLEF_SHAPE(2, 0));
    cr_expect(!clef_argmax(e, 1, false));
    expect_error(ctx, CLEF_SHAPE, "argmax");
    cr_expect(clef_item(clef_sum(clef_scalar(ctx, 7), NULL, 0, false)) == 7);
    clef_close(ctx);
}

Test(reduce, shapes_and_errors) {
    clef_context *ctx = open_seeded(1);
    clef_tensor *t = clef_ones(ctx, CLEF_SHAPE(2, 3, 4), CLEF_F32);
    expect_shape(clef_sum(t, NULL, 0, false), CLEF_SCALAR);
    expect_shape(clef_sum(t, NULL, 0, true), CLEF_SHAPE(1, 1, 1));
    expect_shape(clef_sum(t, (int[]){-1, 0}, 2, false), CLEF_SHAPE(3));
    expect_shape(clef_argmax(t, 1, true), CLEF_SHAPE(2, 1, 4));
    cr_expect(!clef_sum(t, (int[]){3}, 1, false));
    expect_error(ctx, CLEF_INVALID, "sum: dimension 3");
    cr_expect(!clef_sum(t, (int[]){1, -2}, 2, false));
    expect_error(ctx, CLEF_INVALID, "there twice");
    cr_expect(!clef_norm(t, 0, NULL, 0, false));
    expect_error(ctx, CLEF_INVALID, "norm: p");
    clef_close(ctx);
}

Test(reduce, argmax_takes_the_first) {
    clef_context *ctx = open_seeded(1);
    double x[8] = {1, 3, 3, 2, 5, NAN, 7, NAN};
    clef_tensor *t = tensor_of(ctx, CLEF_SHAPE(2, 4), CLEF_F32, x);
    expect_numbers(clef_argmax(t, 1, false), (double[]){1, 1}, 0, 0, "argmax of rows");
    expect_numbers(clef_argmin(t, -1, false), (double[]){0, 1}, 0, 0, "argmin of rows");
    expect_numbers(clef_argmax(t, 0, false), (double[]){1, 1, 1, 1}, 0, 0, "argmax of columns");
    expect_numbers(clef_argmax(clef_transpose(t, 0, 1), 0, true), (double[]){1, 1}, 0, 0, "argmax of a transpose");
    clef_tensor *i = clef_to(clef_slice(t, 0, 0, 1, 1), CLEF_I64);
    expect_numbers(clef_argmax(i, 1, false), (double[]){1}, 0, 0, "argmax of i64");
    clef_close(ctx);
}

/* Rows of whole vectors and more, columns in and out of runs of vectors, with what is equal, and with NaN. */
Test(reduce, argmax_of_every_shape) {
    clef_context *ctx = open_seeded(1);
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_I32, CLEF_F16, CLEF_I64, CLEF_BF16, CLEF_U8, CLEF_F64};
    static const int64_t sizes[][3] = {{3, 9, 5},    {1, 1, 1},  {2, 70, 1},   {3, 300, 1},
                                       {1, 2500, 1}, {2, 5, 83}, {1, 3, 2100}, {1, 130, 64}};
    int most = test_small() ? 3 : 8, types = few_kernels() ? 1 : has_f64(ctx) ? 7 : 6;
    for (int i = 0; i < most * types; i++) {
        const int64_t *size = sizes[i % most], n = size[1], inner = size[2];
        clef_dtype dtype = dtypes[i / most];
        bool real = dtype != CLEF_I32 && dtype != CLEF_I64 && dtype != CLEF_U8;
        array x = whole_array(CLEF_SHAPE(size[0], n, inner), (uint64_t)i, 9);
        for (int64_t k = 0; k < clef_shape_numel(x.shape); k++) {
            if (dtype == CLEF_U8) x.v[k] += 9;
            if (real && i % 2 && k % (2 * n + 1) == n) x.v[k] = NAN;
        }
        double *want = malloc((size_t)(2 * size[0] * inner) * sizeof *want), *least = want + size[0] * inner;
        for (int64_t c = 0; c < size[0] * inner; c++) {
            const double *line = x.v + c / inner * n * inner + c % inner;
            want[c] = least[c] = 0;
            for (int64_t k = 1; k < n; k++) {
                double v = line[k * inner], top = line[(int64_t)want[c] * inner], low = line[(int64_t)least[c] * inner];
                if (v > top || (isnan(v) && !isnan(top))) want[c] = (double)k;
                if (v < low || (isnan(v) && !isnan(low))) least[c] = (double)k;
            }
        }
        expect_numbers(clef_argmax(to_device(ctx, x, dtype), 1, false), want, 0, 0, "argmax");
        expect_numbers(clef_argmin(to_device(ctx, x, dtype), 1, false), least, 0, 0, "argmin");
        free(want), free(x.v);
        clef_end_step(ctx);
    }
    clef_close(ctx);
}

/* A mean far from zero costs the variance no digits. */
Test(reduce, variance) {
    clef_context *ctx = open_seeded(1);
    int64_t n = test_small() ? 64 : 4096;
    double *x = spread(4 * n, 9999, 10001, 12), want[4], two[4];
    clef_tensor *t = tensor_of(ctx, CLEF_SHAPE(4, n), CLEF_F32, x);
    for (int i = 0; i < 4; i++) {
        double mean = 0, m2 = 0;
        for (int64_t k = 0; k < n; k++) mean += x[i * n + k] / (double)n;
        for (int64_t k = 0; k < n; k++) m2 += (x[i * n + k] - mean) * (x[i * n + k] - mean);
        want[i] = m2 / (double)(n - 1), two[i] = m2 / (double)n;
    }
    expect_numbers(clef_var(t, (int[]){1}, 1, false, 1), want, 1e-6, 1e-5, "sample variance");
    expect_numbers(clef_var(t, (int[]){1}, 1, false, 0), two, 1e-6, 1e-5, "variance");
    free(x);
    clef_close(ctx);
}

/* d²Πx / dxᵢ dxⱼ is the product of the others, also where factors are 0, over one dimension and over two that do not lie side by side. */
Test(reduce, products_differentiate_twice_beside_zeros) {
    clef_context *ctx = open_seeded(1);
    double rows[3][3] = {{0, 2, 3}, {0, 0, 3}, {5, 2, 3}};
    for (int r = 0; r < 3; r++) {
        clef_tensor *x = clef_require_grad(clef_keep(tensor_of(ctx, CLEF_SHAPE(3), CLEF_F32, rows[r])), true), *dx, *ddx;
        for (int i = 0; i < 3; i++) {
            double want[3];
            for (int j = 0; j < 3; j++) want[j] = i == j ? 0 : rows[r][3 - i - j];
            cr_assert_eq(clef_grad(clef_prod(x, NULL, 0, false), CLEF_NONE, &x, 1, true, &dx), CLEF_OK, "%s", clef_error(ctx));
            cr_assert_eq(clef_grad(clef_sum(clef_slice(dx, 0, i, i + 1, 1), NULL, 0, false), CLEF_NONE, &x, 1, false, &ddx),
                         CLEF_OK, "%s", clef_error(ctx));
            expect_numbers(ddx, want, 0, 1e-6, "second derivative of a product");
        }
        clef_release(x);
    }
    double cube[12] = {1, 2, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12}, slopes[12]; /* [2,2,3], over the first and the last */
    for (int i = 0; i < 12; i++) {
        slopes[i] = 1;
        for (int j = 0; j < 12; j++)
            if (j != i && i / 3 % 2 == j / 3 % 2) slopes[i] *= cube[j];
    }
    clef_tensor *x = clef_require_grad(clef_keep(tensor_of(ctx, CLEF_SHAPE(2, 2, 3), CLEF_F32, cube)), true), *dx;
    clef_tensor *y = clef_sum(clef_prod(x, (int[]){0, 2}, 2, false), NULL, 0, false);
    cr_assert_eq(clef_grad(y, CLEF_NONE, &x, 1, true, &dx), CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(dx, slopes, 0, 1e-6, "slope of a product");
    clef_release(x);
    clef_close(ctx);
}

/* More of them than f16 can count: each has its share. */
Test(reduce, many_equals_share_the_gradient) {
    clef_context *ctx = open_seeded(1);
    enum { MANY = 70000 };
    clef_tensor *x = clef_require_grad(clef_keep(clef_zeros(ctx, CLEF_SHAPE(MANY), CLEF_F16)), true), *dx;
    cr_assert_eq(clef_grad(clef_max(x, NULL, 0, false), CLEF_NONE, &x, 1, false, &dx), CLEF_OK, "%s", clef_error(ctx));
    double sum = clef_item(clef_sum(clef_to(dx, CLEF_F32), NULL, 0, false));
    cr_expect_float_eq(sum, 1, 2e-3, "%g", sum);
    clef_release(x);
    clef_close(ctx);
}

Test(reduce, logsumexp_and_norms) {
    clef_context *ctx = open_seeded(1);
    double x[9] = {1000, 1000, 999, -INFINITY, -INFINITY, -INFINITY, 3, -4, 0};
    clef_tensor *t = tensor_of(ctx, CLEF_SHAPE(3, 3), CLEF_F32, x), *v = clef_slice(t, 0, 2, 3, 1);
    double want[3] = {1000 + log(2 + exp(-1)), -INFINITY, 3 + log(1 + exp(-7) + exp(-3))};
    expect_numbers(clef_logsumexp(t, (int[]){1}, 1, false), want, 0, 1e-6, "logsumexp");
    expect_numbers(clef_norm(v, 2, NULL, 0, false), (double[]){5}, 1e-6, 0, "2-norm");
    expect_numbers(clef_norm(v, 1, NULL, 0, false), (double[]){7}, 0, 0, "1-norm");
    expect_numbers(clef_norm(v, INFINITY, NULL, 0, false), (double[]){4}, 0, 0, "maximum norm");
    expect_numbers(clef_norm(v, 3, NULL, 0, false), (double[]){cbrt(91)}, 1e-5, 0, "3-norm");
    clef_close(ctx);
}

/* ---- gradients: against differences of the reference over rows [4,5] of x [4,5] ---- */

typedef struct over_rows {
    int which;
} over_rows;
enum { G_SUM, G_MEAN, G_MAX, G_MIN, G_PROD, G_VAR, G_LSE, G_NORM1, G_NORM2, G_NORM3, G_COUNT };

static void rows_reference(const double *x, double *y, const void *user) {
    int which = *(const int *)user;
    for (int r = 0; r < 4; r++, x += 5) {
        double s = 0, best = x[0], least = x[0], p = 1, lse = 0, n1 = 0, n2 = 0, n3 = 0, var = 0;
        for (int k = 0; k < 5; k++) {
            s += x[k], p *= x[k], best = fmax(best, x[k]), least = fmin(least, x[k]), lse += exp(x[k]);
            n1 += fabs(x[k]), n2 += x[k] * x[k], n3 += pow(fabs(x[k]), 3);
        }
        for (int k = 0; k < 5; k++) var += (x[k] - s / 5) * (x[k] - s / 5) / 4;
        double all[] = {s, s / 5, best, least, p, var, log(lse), n1, sqrt(n2), cbrt(n3)};
        y[r] = all[which];
    }
}

static clef_tensor *rows_of(clef_tensor *x, int which) {
    int one = 1;
    if (which <= G_PROD) return function[which](x, &one, 1, false);
    if (which == G_VAR) return clef_var(x, &one, 1, false, 1);
    if (which == G_LSE) return clef_logsumexp(x, &one, 1, false);
    return clef_norm(x, which - G_NORM1 + 1, &one, 1, false);
}

Test(reduce, gradients) {
    clef_context *ctx = open_seeded(1);
    double *x = spread(20, 0.3, 2, 13), *g = spread(4, -1, 1, 14);
    for (int i = 0; i < 20; i += 3) x[i] = -x[i];
    clef_tensor *p = parameter(tensor_of(ctx, CLEF_SHAPE(4, 5), CLEF_F32, x)),
                *tg = clef_keep(tensor_of(ctx, CLEF_SHAPE(4), CLEF_F32, g));
    for (int which = 0; which < G_COUNT; which++) {
        clef_tensor *dx;
        cr_assert(clef_grad(rows_of(p, which), tg, &p, 1, false, &dx) == CLEF_OK, "%d: %s", which, clef_error(ctx));
        double *want = slopes(rows_reference, &which, x, 20, 4, g, 1e-6);
        char name[32];
        snprintf(name, sizeof name, "gradient of reduction %d", which);
        expect_numbers(dx, want, 2e-5, 1e-4, name);
        free(want);
        clef_end_step(ctx);
    }
    free(x), free(g);
    clef_close(ctx);
}

Test(reduce, gradients_at_special_points) {
    clef_context *ctx = open_seeded(1);
    double x[6] = {2, 0, 3, 0, 0, 4}, prod[6] = {0, 6, 0, 0, 0, 0}, zeros[3] = {0}, max[3] = {0.5, 0.5, 0};
    clef_tensor *p = parameter(tensor_of(ctx, CLEF_SHAPE(2, 3), CLEF_F32, x)), *dx, *ones = clef_ones(ctx, CLEF_SHAPE(2), CLEF_F32);
    clef_grad(clef_prod(p, (int[]){1}, 1, false), ones, &p, 1, false, &dx);
    expect_numbers(dx, prod, 0, 0, "product with zeros");
    clef_tensor *z = parameter(clef_copy(clef_zeros(ctx, CLEF_SHAPE(3), CLEF_F32)));
    clef_grad(clef_norm(z, 2, NULL, 0, false), CLEF_NONE, &z, 1, false, &dx);
    expect_numbers(dx, zeros, 0, 0, "norm at zero");
    double e[3] = {5, 5, 1};
    clef_tensor *q = parameter(tensor_of(ctx, CLEF_SHAPE(3), CLEF_F32, e));
    clef_grad(clef_max(q, NULL, 0, false), CLEF_NONE, &q, 1, false, &dx);
    expect_numbers(dx, max, 0, 0, "equals share");
    clef_close(ctx);
}

/* d²/dx² of Σ (Σ x)² and of a variance through two derivatives. */
Test(reduce, second_order) {
    clef_context *ctx = open_seeded(1);
    double x[3] = {1, 2, 4}, twos[3] = {6, 6, 6};
    clef_tensor *p = parameter(tensor_of(ctx, CLEF_SHAPE(3), CLEF_F32, x)), *dx, *ddx;
    cr_assert(clef_grad(clef_square(clef_sum(p, NULL, 0, false)), CLEF_NONE, &p, 1, true, &dx) == CLEF_OK);
    cr_assert(clef_grad(clef_sum(dx, NULL, 0, false), CLEF_NONE, &p, 1, false, &ddx) == CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(ddx, twos, 1e-6, 0, "second derivative");
    clef_close(ctx);
}

/* Where there is no deviation the gradient is 0; no square overflows or vanishes. */
Test(reduce, standard_deviation) {
    clef_context *ctx = open_seeded(1);
    double same[3] = {0.1, 0.1, 0.1}, wide[3] = {3e30, -3e30, 0}, fine[3] = {3e-30, -3e-30, 0};
    clef_tensor *p = parameter(tensor_of(ctx, CLEF_SHAPE(3), CLEF_F32, same)), *y = clef_std(p, NULL, 0, false, 1), *d;
    cr_assert(clef_grad(y, CLEF_NONE, &p, 1, false, &d) == CLEF_OK, "%s", clef_error(ctx));
    cr_expect_eq(clef_item(y), 0);
    expect_numbers(d, (double[]){0, 0, 0}, 0, 0, "gradient of no deviation");
    expect_numbers(clef_std(tensor_of(ctx, CLEF_SHAPE(3), CLEF_F32, wide), NULL, 0, false, 1), (double[]){3e30}, 0, 1e-6, "large");
    p = parameter(tensor_of(ctx, CLEF_SHAPE(3), CLEF_F32, fine)), y = clef_std(p, NULL, 0, false, 1);
    cr_assert(clef_grad(y, CLEF_NONE, &p, 1, false, &d) == CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(y, (double[]){3e-30}, 0, 1e-6, "small");
    expect_numbers(d, (double[]){0.5, -0.5, 0}, 1e-6, 0, "gradient of small numbers");
    double largest[] = {3e38, -3e38, 3e38, -3e38};
    expect_numbers(clef_std(tensor_of(ctx, CLEF_SHAPE(4), CLEF_F32, largest), NULL, 0, false, 0), (double[]){3e38}, 0, 1e-6,
                   "largest");
    cr_expect(isnan(clef_item(clef_std(clef_ones(ctx, CLEF_SHAPE(1), CLEF_F32), NULL, 0, false, 1))), "0 / 0");
    cr_expect_eq(clef_item(clef_std(p, NULL, 0, false, 3)), INFINITY);
    cr_expect_eq(clef_tensor_dtype(clef_std(clef_ones(ctx, CLEF_SHAPE(2), CLEF_U8), NULL, 0, false, 0)), CLEF_F32);
    cr_expect_null(clef_std(p, (int[]){1}, 1, false, 1));
    expect_error(ctx, CLEF_INVALID, "std: dimension 1 is out of range");
    clef_close(ctx);
}

Test(reduce, cosine_similarity) {
    clef_context *ctx = open_seeded(1);
    double a[4] = {3e30, 4e30, 0, 0}, b[2] = {4, 3};
    clef_tensor *x = parameter(tensor_of(ctx, CLEF_SHAPE(2, 2), CLEF_F32, a)), *d;
    clef_tensor *y = clef_cosine_similarity(x, tensor_of(ctx, CLEF_SHAPE(2), CLEF_F32, b), -1, 1e-8);
    expect_shape(y, CLEF_SHAPE(2));
    expect_numbers(y, (double[]){0.96, 0}, 1e-6, 0, "of large numbers, and of none");
    cr_assert(clef_grad(y, clef_ones(ctx, CLEF_SHAPE(2), CLEF_F32), &x, 1, false, &d) == CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(clef_slice(d, 0, 1, 2, 1), (double[]){0.8e8, 0.6e8}, 0, 1e-6, "gradient at 0");
    clef_tensor *three = clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32);
    cr_expect_null(clef_cosine_similarity(x, three, 0, 1e-8));
    expect_error(ctx, CLEF_SHAPE, "cosine_similarity: a [2,2] and b [3] do not broadcast");
    cr_expect_null(clef_cosine_similarity(x, x, 2, 1e-8));
    expect_error(ctx, CLEF_INVALID, "cosine_similarity: dimension 2 is out of range");
    cr_expect_null(clef_cosine_similarity(x, x, 0, NAN));
    expect_error(ctx, CLEF_INVALID, "cosine_similarity: eps = nan");
    clef_close(ctx);
}
