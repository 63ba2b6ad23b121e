/* test_sort.c — sort, argsort and topk against the C library's sort of (element, index) pairs: every element and every index. */
#include "support/numbers.h"

/* ---- the definition ---- */
typedef struct pair {
    double value;
    int64_t index;
} pair;
static bool from_the_end;

/* NaN is the largest; equal ones by their index. */
static int by_value(const void *a, const void *b) {
    const pair *p = a, *q = b;
    int order = isnan(p->value) - isnan(q->value);
    if (!order && !isnan(p->value)) order = (p->value > q->value) - (p->value < q->value);
    if (order) return from_the_end ? -order : order;
    return (p->index > q->index) - (p->index < q->index);
}

/* The first k along dim of x [shape]: values and indices, which the caller frees. */
static void define(const double *x, clef_shape shape, int dim, int64_t k, bool descending, double **values, double **indices) {
    int64_t n = shape.rank ? shape.dim[dim] : 1, inner = 1, outer = 1;
    for (int i = 0; i < shape.rank; i++) *(i < dim ? &outer : &inner) *= i == dim ? 1 : shape.dim[i];
    pair *row = malloc((size_t)(n + 1) * sizeof *row);
    *values = malloc((size_t)(outer * k * inner + 1) * sizeof **values);
    *indices = malloc((size_t)(outer * k * inner + 1) * sizeof **indices);
    from_the_end = descending;
    for (int64_t r = 0; r < outer * inner; r++) {
        int64_t o = r / inner, i = r % inner;
        for (int64_t j = 0; j < n; j++) row[j] = (pair){x[(o * n + j) * inner + i], j};
        qsort(row, (size_t)n, sizeof *row, by_value);
        for (int64_t j = 0; j < k; j++) {
            (*values)[(o * k + j) * inner + i] = row[j].value;
            (*indices)[(o * k + j) * inner + i] = (double)row[j].index;
        }
    }
    free(row);
}

/* k < 0: sort and argsort; else topk. */
static void check(clef_tensor *t, int dim, int64_t k, bool descending) {
    clef_context *ctx = clef_tensor_context(t);
    clef_shape shape = clef_tensor_shape(t);
    char what[160], text[96];
    snprintf(what, sizeof what, "%s of %s along %d, k = %lld, %s", k < 0 ? "sort" : "topk",
             clef_shape_format(shape, text, sizeof text), dim, (long long)k, descending ? "descending" : "ascending");
    double *x = numbers(t), *value, *index;
    clef_tensor *values, *indices;
    define(x, shape, dim, k < 0 ? (shape.rank ? shape.dim[dim] : 1) : k, descending, &value, &index);
    clef_status status =
        k < 0 ? clef_sort(t, dim, descending, &values, &indices) : clef_topk(t, k, dim, descending, &values, &indices);
    cr_assert(status == CLEF_OK, "%s: %s", what, clef_error(ctx));
    cr_expect(clef_tensor_dtype(values) == clef_tensor_dtype(t) && clef_tensor_dtype(indices) == CLEF_I64, "%s: dtypes", what);
    expect_numbers(values, value, 0, 0, what);
    expect_numbers(indices, index, 0, 0, what);
    if (k < 0) expect_numbers(clef_argsort(t, dim - shape.rank, descending), index, 0, 0, what);
    free(x), free(value), free(index);
    clef_end_step(ctx);
}

/* ---- values ---- */
Test(sort, every_dtype) {
    clef_context *ctx = open_seeded(1);
    for (clef_dtype d = 0; d < CLEF_DTYPE_COUNT; d++) {
        bool is_signed = d != CLEF_U8 && d != CLEF_BOOL;
        if ((d == CLEF_F64 && !has_f64(ctx)) || (test_small() && d != CLEF_F32 && d != CLEF_I64)) continue;
        clef_tensor *t = kept_whole(ctx, CLEF_SHAPE(3, 70, 5), d, is_signed ? -20 : 0, d == CLEF_BOOL ? 2 : 20, 1);
        for (int descending = 0; descending < 2; descending++) {
            check(t, 1, -1, descending);
            check(t, 1, 5, descending);
            check(t, 1, 40, descending);
        }
        clef_release(t);
    }
    clef_close(ctx);
}

Test(sort, every_rank_and_dimension) {
    clef_context *ctx = open_seeded(1);
    static const int64_t dim[CLEF_MAX_RANK] = {2, 3, 1, 2, 5, 1, 2, 3};
    for (int rank = 0; rank <= CLEF_MAX_RANK; rank += test_small() ? 4 : 1) {
        clef_shape shape = {.rank = rank};
        memcpy(shape.dim, dim, sizeof dim);
        clef_tensor *t = kept_whole(ctx, shape, CLEF_F32, -3, 3, (uint64_t)rank);
        for (int d = 0; d < (rank ? rank : 1); d++) {
            check(t, d, -1, d % 2);
            check(t, d, 1, d % 2);
        }
        clef_release(t);
    }
    clef_close(ctx);
}

/* Around the sizes of blocks, pairs of runs and chunks of a merge; what is left over of each. */
static void check_sizes(clef_context *ctx) {
    static const int64_t size[] = {1, 2, 16, 17, 31, 32, 33, 64, 65, 127, 129, 257, 1000, 4097, 20000};
    for (size_t i = 0; i < (test_small() ? 10 : sizeof size / sizeof *size); i++)
        for (int columns = 1; columns < 4; columns += 2) {
            int64_t n = size[i];
            clef_tensor *t = kept_whole(ctx, CLEF_SHAPE(2, n, columns), CLEF_F32, -300, 300, i);
            check(t, 1, -1, i % 2);
            for (int64_t k = 1; k < n && k < 5000; k = 4 * k + 1) check(t, 1, k, i % 2);
            check(t, 1, n - 1, i % 2);
            check(t, 1, n, i % 2);
            clef_release(t);
        }
}

Test(sort, sizes) {
    clef_context *ctx = open_seeded(1);
    check_sizes(ctx);
    clef_close(ctx);
}

Test(sort, sizes_as_on_a_gpu) {
    clef_context *ctx = open_as_gpu();
    clef_device_info info;
    bool gpu = clef_context_device(ctx, 0, &info) && strcmp(info.type, "gpu") == 0;
    if (!(gpu && fewest_kernels())) check_sizes(ctx); /* a GPU had these kernels above */
    clef_close(ctx);
}

/* Runs that are in order already, in either direction, and rows of one value. */
Test(sort, ordered_rows) {
    clef_context *ctx = open_seeded(1);
    int n = test_small() ? 150 : 9001;
    clef_tensor *up = clef_keep(clef_arange(ctx, 0, n, 1, CLEF_F32)), *down = clef_keep(clef_arange(ctx, n, 0, -1, CLEF_I32));
    clef_tensor *flat = clef_keep(clef_copy(clef_full(ctx, CLEF_SHAPE(n), CLEF_F32, -1)));
    clef_tensor *t[] = {up, down, flat};
    for (int i = 0; i < 3; i++) {
        for (int k = -1; k < 50; k += 17) check(t[i], 0, k, false), check(t[i], 0, k, true);
        clef_release(t[i]);
    }
    clef_close(ctx);
}

/* ---- numbers that are not like others ---- */
/* The bits of what comes out, as equal numbers may have different ones. */
static void expect_words(clef_tensor *t, const uint32_t *want, int n, const char *what) {
    uint32_t have[16];
    cr_assert(clef_read(t, have, (size_t)n * 4) == CLEF_OK, "%s", clef_error(clef_tensor_context(t)));
    for (int i = 0; i < n; i++) cr_expect(have[i] == want[i], "%s: element %d is %08x, not %08x", what, i, have[i], want[i]);
}

Test(sort, nan_zero_infinity) {
    clef_context *ctx = open_seeded(1);
    enum { N = 12 };
    /* NaN (negative), 0, inf, -0, -inf, 1, smallest subnormal, NaN with another payload, largest, -0, its negative, NaN */
    static const uint32_t bits[N] = {0xffc00001, 0,          0x7f800000, 0x80000000, 0xff800000, 0x3f800000,
                                     1,          0x7fc01234, 0x7f7fffff, 0x80000000, 0xff7fffff, 0x7fc00000};
    static const int64_t up[N] = {4, 10, 1, 3, 9, 6, 5, 8, 2, 0, 7, 11}, down[N] = {0, 7, 11, 2, 8, 5, 6, 1, 3, 9, 10, 4};
    clef_tensor *t = clef_keep(clef_from_host(ctx, CLEF_SHAPE(N), CLEF_F32, bits)), *values, *indices;
    for (int descending = 0; descending < 2; descending++)
        for (int k = N; k >= 5; k -= 7) {
            const int64_t *want = descending ? down : up;
            uint32_t word[N];
            int64_t at[N];
            for (int i = 0; i < k; i++) word[i] = bits[want[i]];
            cr_assert(clef_topk(t, k, 0, descending, &values, &indices) == CLEF_OK, "%s", clef_error(ctx));
            cr_assert(clef_read(indices, at, (size_t)k * sizeof *at) == CLEF_OK, "%s", clef_error(ctx));
            cr_expect(memcmp(at, want, (size_t)k * sizeof *at) == 0, "indices, descending %d, k = %d", descending, k);
            expect_words(values, word, k, "values");
        }
    clef_close(ctx);
}

Test(sort, special_halves_and_doubles) {
    clef_context *ctx = open_seeded(1);
    static const clef_dtype dtypes[] = {CLEF_F16, CLEF_BF16, CLEF_F64};
    for (int d = 0; d < (test_small() ? 1 : has_f64(ctx) ? 3 : 2); d++) {
        double x[] = {NAN, 1, -INFINITY, 0, INFINITY, -0.0, -1, NAN, 0.5, INFINITY, -INFINITY, 0};
        clef_tensor *t = clef_keep(tensor_of(ctx, CLEF_SHAPE(12), dtypes[d], x));
        for (int k = -1; k <= 12; k++) check(t, 0, k, k % 2);
        clef_release(t);
    }
    clef_close(ctx);
}

/* The ends of each integer type, which no double can hold. */
Test(sort, ends_of_integers) {
    clef_context *ctx = open_seeded(1);
    int64_t x[] = {0, INT64_MAX, -1, INT64_MIN, INT64_MAX - 1, 1, INT64_MIN + 1}, have[7];
    static const int64_t want[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX};
    int32_t y[] = {0, INT32_MAX, -1, INT32_MIN}, have32[4];
    static const int32_t want32[] = {INT32_MAX, 0, -1, INT32_MIN};
    clef_tensor *values;
    cr_assert(clef_sort(clef_from_host(ctx, CLEF_SHAPE(7), CLEF_I64, x), 0, false, &values, NULL) == CLEF_OK);
    cr_expect(clef_read(values, have, sizeof have) == CLEF_OK && memcmp(have, want, sizeof want) == 0, "i64");
    cr_assert(clef_sort(clef_from_host(ctx, CLEF_SHAPE(4), CLEF_I32, y), 0, true, &values, NULL) == CLEF_OK);
    cr_expect(clef_read(values, have32, sizeof have32) == CLEF_OK && memcmp(have32, want32, sizeof want32) == 0, "i32");
    clef_close(ctx);
}

/* ---- how inputs lie ---- */
Test(sort, views) {
    clef_context *ctx = open_seeded(1);
    clef_tensor *view[VIEWS];
    kept_views(ctx, view);
    for (int i = 0; i < VIEWS; i++)
        for (int d = 0; d < 3; d++) check(view[i], d, -1, d % 2), check(view[i], d, 2, d % 2);
    clef_close(ctx);
}

Test(sort, empty) {
    clef_context *ctx = open_seeded(1);
    clef_tensor *values, *indices;
    cr_expect(clef_sort(clef_zeros(ctx, CLEF_SHAPE(3, 0), CLEF_F32), 1, false, &values, &indices) == CLEF_OK);
    expect_shape(values, CLEF_SHAPE(3, 0)), expect_shape(indices, CLEF_SHAPE(3, 0));
    cr_expect(clef_eval(values) == CLEF_OK && clef_eval(indices) == CLEF_OK);
    cr_expect(clef_sort(clef_zeros(ctx, CLEF_SHAPE(0, 5), CLEF_F32), 1, false, &values, &indices) == CLEF_OK);
    cr_expect(clef_eval(values) == CLEF_OK && clef_eval(indices) == CLEF_OK);
    clef_tensor *x = parameter(clef_ones(ctx, CLEF_SHAPE(2, 5), CLEF_F32)), *dx;
    cr_expect(clef_topk(x, 0, 1, true, &values, &indices) == CLEF_OK);
    expect_shape(values, CLEF_SHAPE(2, 0)), expect_shape(indices, CLEF_SHAPE(2, 0));
    cr_assert(clef_grad(values, clef_zeros(ctx, CLEF_SHAPE(2, 0), CLEF_F32), &x, 1, false, &dx) == CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(dx, (double[10]){0}, 0, 0, "the gradient of nothing");
    clef_close(ctx);
}

/* ---- gradients ---- */
/* Of Σ w·values², and of Σ u·(its gradient): 2·w·x and 2·w·u where an element was chosen. */
static void check_gradients(clef_context *ctx, clef_dtype dtype, int64_t k) {
    enum { O = 3, N = 41, I = 2 };
    clef_shape shape = CLEF_SHAPE(O, N, I), few = CLEF_SHAPE(O, k, I);
    clef_tensor *t = clef_require_grad(kept_whole(ctx, shape, dtype, -6, 6, 8), true);
    clef_tensor *w = kept_whole(ctx, few, dtype, -3, 3, 9), *u = kept_whole(ctx, shape, dtype, -3, 3, 10), *values, *dx, *ddx;
    double *x = numbers(t), *wv = numbers(w), *uv = numbers(u), *value, *index, once[O * N * I] = {0}, twice[O * N * I] = {0};
    define(x, shape, 1, k, true, &value, &index);
    for (int64_t j = 0; j < O * k * I; j++) {
        int64_t at = (j / I / k * N + (int64_t)index[j]) * I + j % I;
        once[at] = 2 * wv[j] * x[at];
        twice[at] = 2 * wv[j] * uv[at];
    }
    cr_assert(clef_topk(t, k, 1, true, &values, NULL) == CLEF_OK, "%s", clef_error(ctx));
    clef_tensor *y = clef_sum(clef_mul(w, clef_square(values)), NULL, 0, false);
    cr_assert(clef_grad(y, clef_ones(ctx, CLEF_SCALAR, dtype), &t, 1, true, &dx) == CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(dx, once, 0, 0, "gradient");
    clef_tensor *z = clef_sum(clef_mul(dx, u), NULL, 0, false);
    cr_assert(clef_grad(z, clef_ones(ctx, CLEF_SCALAR, dtype), &t, 1, false, &ddx) == CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(ddx, twice, 0, 0, "second gradient");
    free(x), free(wv), free(uv), free(value), free(index);
    clef_release(t), clef_release(w), clef_release(u);
    clef_end_step(ctx);
}

Test(sort, gradients) {
    clef_context *ctx = open_seeded(1);
    for (int d = 0; d < float_dtypes_here(ctx); d++) {
        check_gradients(ctx, float_dtypes[d], 41);
        check_gradients(ctx, float_dtypes[d], 4);
    }
    clef_close(ctx);
}

/* The indices are asked for when the values have long been computed. */
Test(sort, indices_afterwards) {
    clef_context *ctx = open_seeded(1);
    clef_tensor *x = parameter(kept_whole(ctx, CLEF_SHAPE(50), CLEF_F32, -9, 9, 11)), *values, *indices, *dx;
    double *v = numbers(x), *value, *index;
    define(v, CLEF_SHAPE(50), 0, 50, false, &value, &index);
    cr_assert(clef_sort(x, 0, false, &values, &indices) == CLEF_OK);
    expect_numbers(values, value, 0, 0, "values");
    cr_assert(clef_grad(values, values, &x, 1, false, &dx) == CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(dx, v, 0, 0, "gradient");
    expect_numbers(indices, index, 0, 0, "indices");
    free(v), free(value), free(index);
    clef_close(ctx);
}

/* ---- what is refused ---- */
Test(sort, refusals) {
    clef_context *ctx = open_seeded(1);
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(2, 3), CLEF_F32), *values = x, *indices = x;
    cr_expect(clef_sort(x, 2, false, &values, &indices) == CLEF_INVALID && !values && !indices);
    expect_error(ctx, CLEF_INVALID, "sort: x [2,3] has no dimension 2");
    cr_expect(clef_sort(x, 0, false, NULL, NULL) == CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "sort: both values and indices are NULL");
    values = indices = x;
    cr_expect(clef_topk(x, 4, 1, true, &values, &indices) == CLEF_INVALID && !values && !indices);
    expect_error(ctx, CLEF_INVALID, "topk: k = 4 is not within 0 … 3, the size of dimension 1 of x [2,3]");
    cr_expect(clef_topk(x, -1, 1, true, &values, NULL) == CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "topk: k = -1");
    cr_expect(!clef_argsort(x, -3, false));
    expect_error(ctx, CLEF_INVALID, "argsort: x [2,3] has no dimension -3");
    values = x;
    cr_expect(clef_sort(NULL, 0, false, &values, NULL) == CLEF_INVALID && !values && !clef_argsort(NULL, 0, false));
    clef_close(ctx);
}
