/* test_index.c — gather, scatter_add, embedding and one-hot: exact on integers, the same bits for repeated indices, and harmless when an
   index is out of range. */
#include "support/numbers.h"

static double dot(clef_tensor *a, clef_tensor *b) { return clef_item(clef_sum(clef_mul(a, b), NULL, 0, false)); }

static clef_tensor *whole(clef_context *ctx, clef_shape shape, clef_dtype dtype, int low, int high, uint64_t salt, double **out) {
    double *x = spread(clef_shape_numel(shape), low, high, salt);
    for (int64_t i = 0; i < clef_shape_numel(shape); i++) x[i] = floor(x[i]);
    clef_tensor *t = tensor_of(ctx, shape, dtype, x);
    *out = x;
    return t;
}

/* x [2,6,3], index [2,9,3] with values from -1 to 6: -1 and 6 are outside. */
static void check_gather(clef_context *ctx, clef_dtype dtype, clef_dtype index_dtype) {
    double *x, *index, want[54], sums[36];
    clef_tensor *t = whole(ctx, CLEF_SHAPE(2, 6, 3), dtype, 0, 40, 1, &x);
    clef_tensor *i = whole(ctx, CLEF_SHAPE(2, 9, 3), index_dtype, index_dtype == CLEF_U8 ? 0 : -1, 7, 2, &index);
    double *src;
    clef_tensor *s = whole(ctx, CLEF_SHAPE(2, 9, 3), dtype, 0, 20, 3, &src);
    memcpy(sums, x, sizeof sums);
    for (int k = 0; k < 54; k++) {
        int at = (int)index[k], place = (k / 27 * 6 + at) * 3 + k % 3;
        bool inside = at >= 0 && at < 6;
        want[k] = inside ? x[place] : 0;
        if (inside) sums[place] += src[k];
    }
    expect_numbers(clef_gather(t, 1, i), want, 0, 0, "gather");
    expect_numbers(clef_scatter_add(t, 1, i, s), sums, 0, 0, "scatter_add");
    free(x), free(index), free(src);
    clef_end_step(ctx);
}

Test(index, gather_and_scatter) {
    clef_context *ctx = open_seeded(1);
    check_gather(ctx, CLEF_F32, CLEF_I32);
    check_gather(ctx, CLEF_F32, CLEF_I64);
    if (!test_small()) {
        check_gather(ctx, CLEF_F16, CLEF_I64);
        check_gather(ctx, CLEF_BF16, CLEF_U8);
        check_gather(ctx, CLEF_I32, CLEF_I32);
        check_gather(ctx, CLEF_I64, CLEF_I64);
        if (has_f64(ctx)) check_gather(ctx, CLEF_F64, CLEF_I64);
    }
    clef_close(ctx);
}

/* An index smaller than x in the other dimensions reaches a corner of it. */
Test(index, corner) {
    clef_context *ctx = open_seeded(1);
    double x[6] = {1, 2, 3, 4, 5, 6}, index[2] = {2, 0}, ten[2] = {10, 20};
    clef_tensor *t = tensor_of(ctx, CLEF_SHAPE(2, 3), CLEF_F32, x), *i = tensor_of(ctx, CLEF_SHAPE(1, 2), CLEF_I32, index);
    expect_numbers(clef_gather(t, 1, i), (double[]){3, 1}, 0, 0, "gather");
    expect_numbers(clef_scatter_add(t, 1, i, tensor_of(ctx, CLEF_SHAPE(1, 2), CLEF_F32, ten)), (double[]){21, 2, 13, 4, 5, 6}, 0, 0,
                   "scatter_add");
    cr_expect(!clef_gather(i, 1, t));
    expect_error(ctx, CLEF_DTYPE, "gather: index is f32");
    cr_expect(!clef_gather(i, 1, clef_to(t, CLEF_I32)));
    expect_error(ctx, CLEF_SHAPE, "gather: index [2,3] reaches beyond");
    expect_shape(clef_gather(t, 0, clef_zeros(ctx, CLEF_SHAPE(0, 3), CLEF_I32)), CLEF_SHAPE(0, 3));
    double *same = numbers(t);
    expect_numbers(clef_scatter_add(t, 0, clef_zeros(ctx, CLEF_SHAPE(0, 3), CLEF_I32), clef_zeros(ctx, CLEF_SHAPE(0, 3), CLEF_F32)),
                   same, 0, 0, "nothing added");
    free(same);
    clef_close(ctx);
}

Test(index, gradients_are_adjoints) {
    clef_context *ctx = open_seeded(1);
    double *x, *index, *src, *g, *u;
    clef_tensor *t = parameter(whole(ctx, CLEF_SHAPE(2, 6, 3), CLEF_F32, -9, 9, 4, &x)),
                *i = whole(ctx, CLEF_SHAPE(2, 9, 3), CLEF_I32, -1, 7, 5, &index);
    clef_tensor *s = parameter(whole(ctx, CLEF_SHAPE(2, 9, 3), CLEF_F32, -9, 9, 6, &src)),
                *tg = whole(ctx, CLEF_SHAPE(2, 9, 3), CLEF_F32, -9, 9, 7, &g);
    clef_tensor *tu = whole(ctx, CLEF_SHAPE(2, 6, 3), CLEF_F32, -9, 9, 8, &u), *dx, *d[2];
    clef_tensor *y = clef_gather(t, 1, i);
    cr_assert(clef_grad(y, tg, &t, 1, false, &dx) == CLEF_OK, "%s", clef_error(ctx));
    cr_expect(dot(y, tg) == dot(t, dx), "gather");
    clef_tensor *z = clef_scatter_add(t, 1, i, s);
    cr_assert(clef_grad(z, tu, (clef_tensor *[]){t, s}, 2, false, d) == CLEF_OK, "%s", clef_error(ctx));
    cr_expect(dot(z, tu) == dot(t, d[0]) + dot(s, d[1]), "scatter_add");
    free(x), free(index), free(src), free(g), free(u);
    clef_close(ctx);
}

static void check_embedding(clef_context *ctx, int rows, int width, int m, clef_dtype dtype) {
    double *table, *index, *g, *want = malloc((size_t)(m * width) * sizeof *want),
                               *sums = calloc((size_t)(rows * width), sizeof *sums);
    clef_tensor *t = parameter(whole(ctx, CLEF_SHAPE(rows, width), dtype, -9, 9, 9, &table));
    clef_tensor *i = whole(ctx, CLEF_SHAPE(m / 3, 3), CLEF_I64, -1, rows + 1, 10, &index), *dx;
    clef_tensor *tg = whole(ctx, CLEF_SHAPE(m / 3, 3, width), dtype, -9, 9, 11, &g), *y = clef_embedding(t, i);
    for (int r = 0; r < m; r++)
        for (int c = 0; c < width; c++) {
            bool inside = index[r] >= 0 && index[r] < rows;
            want[r * width + c] = inside ? table[(int)index[r] * width + c] : 0;
            if (inside) sums[(int)index[r] * width + c] += g[r * width + c];
        }
    expect_shape(y, CLEF_SHAPE(m / 3, 3, width));
    expect_numbers(y, want, 0, 0, "embedding");
    cr_assert(clef_grad(y, tg, &t, 1, false, &dx) == CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(dx, sums, 0, 0, "gradient of embedding");
    free(table), free(index), free(g), free(want), free(sums);
    clef_release(t);
    clef_end_step(ctx);
}

Test(index, embedding) {
    clef_context *ctx = open_seeded(1);
    check_embedding(ctx, 5, 3, 12, CLEF_F32);
    if (!test_small()) {
        check_embedding(ctx, 50, 37, 600, CLEF_F32);
        check_embedding(ctx, 9, 16, 33, CLEF_F16);
    }
    cr_expect(!clef_embedding(clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32), clef_zeros(ctx, CLEF_SHAPE(2), CLEF_I32)));
    expect_error(ctx, CLEF_SHAPE, "embedding: table [3]");
    clef_close(ctx);
}

/* Random floats added in many places several times: the same bits in every run. */
Test(index, repeats_are_deterministic) {
    clef_context *ctx = open_seeded(1);
    int n = test_small() ? 50 : 5000;
    double *index;
    clef_tensor *i = clef_keep(whole(ctx, CLEF_SHAPE(n), CLEF_I32, 0, 7, 12, &index)),
                *src = clef_keep(noise_tensor(ctx, CLEF_SHAPE(n), 13));
    float first[7], again[7];
    clef_read(clef_scatter_add(clef_zeros(ctx, CLEF_SHAPE(7), CLEF_F32), 0, i, src), first, sizeof first);
    for (int run = 0; run < (test_small() ? 2 : 20); run++) {
        clef_read(clef_scatter_add(clef_zeros(ctx, CLEF_SHAPE(7), CLEF_F32), 0, i, src), again, sizeof again);
        cr_expect(memcmp(first, again, sizeof first) == 0, "run %d differs", run);
        clef_end_step(ctx);
    }
    free(index);
    clef_close(ctx);
}

Test(index, one_hot) {
    clef_context *ctx = open_seeded(1);
    static const clef_dtype whole_dtypes[] = {CLEF_I64, CLEF_I32, CLEF_U8};
    enum { N = 2 * 11, CLASSES = 7 };
    for (int d = 0; d < (test_small() ? 1 : 3); d++) {
        double *index, want[N * CLASSES] = {0};
        clef_tensor *i =
            whole(ctx, CLEF_SHAPE(2, 11), whole_dtypes[d], whole_dtypes[d] == CLEF_U8 ? 0 : -2, CLASSES + 2, 14, &index);
        for (int k = 0; k < N; k++)
            if (index[k] >= 0 && index[k] < CLASSES) want[k * CLASSES + (int)index[k]] = 1;
        clef_tensor *y = clef_one_hot(i, CLASSES);
        cr_expect(clef_tensor_dtype(y) == CLEF_I64);
        expect_shape(y, CLEF_SHAPE(2, 11, CLASSES));
        expect_numbers(y, want, 0, 0, "one_hot");
        free(index);
    }
    int64_t far[2] = {(int64_t)1 << 32, INT64_MIN};
    expect_numbers(clef_one_hot(clef_from_host(ctx, CLEF_SHAPE(2), CLEF_I64, far), 1), (double[]){0, 0}, 0, 0, "far outside");
    expect_numbers(clef_one_hot(clef_copy(clef_full(ctx, CLEF_SCALAR, CLEF_I32, 1)), 2), (double[]){0, 1}, 0, 0, "a scalar");
    expect_shape(clef_one_hot(clef_zeros(ctx, CLEF_SHAPE(3), CLEF_I64), 0), CLEF_SHAPE(3, 0));
    expect_shape(clef_one_hot(clef_zeros(ctx, CLEF_SHAPE(0, 2), CLEF_I64), 4), CLEF_SHAPE(0, 2, 4));
    cr_expect(!clef_one_hot(clef_zeros(ctx, CLEF_SHAPE(3), CLEF_I64), -1));
    expect_error(ctx, CLEF_INVALID, "one_hot: -1 classes, not within");
    cr_expect(!clef_one_hot(clef_zeros(ctx, CLEF_SHAPE(3), CLEF_F32), 4));
    expect_error(ctx, CLEF_DTYPE, "one_hot: index is f32");
    cr_expect(!clef_one_hot(clef_zeros(ctx, CLEF_SHAPE(1, 1, 1, 1, 1, 1, 1, 1), CLEF_I64), 4));
    expect_error(ctx, CLEF_SHAPE, "8 dimensions");
    cr_expect(!clef_one_hot(NULL, 4));
    clef_close(ctx);
}

/* ---- scatter_reduce and index_add ---- */

static double group[8] = {0, 2, 0, 5, -1, 2, 2, 0}, low_to_high[8] = {4, 1, -3, 9, 9, 6, -5, 1};

static void check_reduced(clef_context *ctx, clef_dtype dtype, clef_scatter_reduction reduction, bool own, const double *want) {
    clef_tensor *x = tensor_of(ctx, CLEF_SHAPE(3), dtype, (double[]){2, 7, 3});
    clef_tensor *y = clef_scatter_reduce(x, 0, tensor_of(ctx, CLEF_SHAPE(8), CLEF_I64, group),
                                         tensor_of(ctx, CLEF_SHAPE(8), dtype, low_to_high), reduction, own);
    cr_assert(y, "%s", clef_error(ctx));
    cr_expect_eq(clef_tensor_dtype(y), dtype);
    bounds b = stored_bounds(dtype, 0, 1e-6);
    expect_numbers(y, want, b.absolute, b.relative, own ? "scatter_reduce with x" : "scatter_reduce without x");
}

/* Of places 0 and 2 with three numbers each and their own; nothing comes to place 1, and two indices lie outside. */
Test(index, scatter_reduce) {
    clef_context *ctx = open_seeded(1);
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_I32, CLEF_F16, CLEF_BF16, CLEF_I64};
    for (int d = 0; d < (test_small() ? 2 : 5); d++) {
        clef_dtype t = dtypes[d];
        bool whole = t == CLEF_I32 || t == CLEF_I64;
        check_reduced(ctx, t, CLEF_SCATTER_SUM, true, (double[]){4, 7, 5});
        check_reduced(ctx, t, CLEF_SCATTER_SUM, false, (double[]){2, 7, 2});
        check_reduced(ctx, t, CLEF_SCATTER_MEAN, true, (double[]){1, 7, whole ? 1 : 1.25});
        check_reduced(ctx, t, CLEF_SCATTER_MEAN, false, (double[]){whole ? 0 : 2.0 / 3, 7, whole ? 0 : 2.0 / 3});
        check_reduced(ctx, t, CLEF_SCATTER_MAX, true, (double[]){4, 7, 6});
        check_reduced(ctx, t, CLEF_SCATTER_MIN, true, (double[]){-3, 7, -5});
    }
    double x[2] = {9, 9}, zero[2] = {0, 0}, ends[2] = {200, 210};
    clef_tensor *bytes = tensor_of(ctx, CLEF_SHAPE(2), CLEF_U8, x), *at = tensor_of(ctx, CLEF_SHAPE(2), CLEF_U8, zero),
                *two = tensor_of(ctx, CLEF_SHAPE(2), CLEF_U8, ends);
    expect_numbers(clef_scatter_reduce(bytes, 0, at, two, CLEF_SCATTER_MIN, false), (double[]){200, 9}, 0, 0, "least byte");
    expect_numbers(clef_scatter_reduce(bytes, 0, at, two, CLEF_SCATTER_MEAN, false), (double[]){205, 9}, 0, 0, "mean of bytes");
    clef_tensor *yes = clef_to(bytes, CLEF_BOOL), *no = clef_zeros(ctx, CLEF_SHAPE(2), CLEF_BOOL);
    expect_numbers(clef_scatter_reduce(yes, 0, at, no, CLEF_SCATTER_MAX, false), (double[]){0, 1}, 0, 0, "no truth");
    expect_numbers(clef_scatter_reduce(yes, 0, at, no, CLEF_SCATTER_MIN, true), (double[]){0, 1}, 0, 0, "least truth");
    clef_tensor *nan = tensor_of(ctx, CLEF_SHAPE(2), CLEF_F32, (double[]){NAN, 1});
    expect_numbers(clef_scatter_reduce(clef_to(bytes, CLEF_F32), 0, at, nan, CLEF_SCATTER_MIN, true), (double[]){NAN, 9}, 0, 0,
                   "NaN is the smallest");
    clef_close(ctx);
}

/* Equals share the gradient with each other, and with x only where it counts. */
Test(index, equal_extremes) {
    clef_context *ctx = open_seeded(1);
    double start[2] = {5, 5}, from[4] = {5, 5, 5, 2}, place[4] = {0, 0, 0, 1};
    clef_tensor *at = tensor_of(ctx, CLEF_SHAPE(4), CLEF_I32, place), *d[2];
    for (int own = 0; own < 2; own++) {
        clef_tensor *x = parameter(tensor_of(ctx, CLEF_SHAPE(2), CLEF_F32, start)),
                    *src = parameter(tensor_of(ctx, CLEF_SHAPE(4), CLEF_F32, from));
        clef_tensor *y = clef_scatter_reduce(x, 0, at, src, CLEF_SCATTER_MAX, own);
        cr_assert(clef_grad(y, clef_full(ctx, CLEF_SHAPE(2), CLEF_F32, 12), (clef_tensor *[]){x, src}, 2, false, d) == CLEF_OK);
        expect_numbers(d[0], own ? (double[]){3, 12} : (double[]){0, 0}, 0, 0, "gradient of x");
        expect_numbers(d[1], own ? (double[]){3, 3, 3, 0} : (double[]){4, 4, 4, 12}, 1e-6, 0, "gradient of src");
        clef_release(x), clef_release(src);
    }
    clef_close(ctx);
}

/* All that comes is what stands for nothing: what does not count has no share. */
Test(index, extremes_of_infinity) {
    clef_context *ctx = open_seeded(1);
    for (int least = 0; least < 2; least++) {
        double end = least ? INFINITY : -INFINITY;
        clef_tensor *x = parameter(tensor_of(ctx, CLEF_SHAPE(2), CLEF_F32, (double[]){5, 6})),
                    *src = parameter(tensor_of(ctx, CLEF_SHAPE(2), CLEF_F32, (double[]){end, end})), *d[2];
        clef_tensor *y = clef_scatter_reduce(x, 0, clef_zeros(ctx, CLEF_SHAPE(2), CLEF_I32), src,
                                             least ? CLEF_SCATTER_MIN : CLEF_SCATTER_MAX, false);
        cr_assert(clef_grad(y, clef_full(ctx, CLEF_SHAPE(2), CLEF_F32, 12), (clef_tensor *[]){x, src}, 2, false, d) == CLEF_OK);
        expect_numbers(d[0], (double[]){0, 12}, 0, 0, "gradient of x");
        expect_numbers(d[1], (double[]){6, 6}, 0, 0, "gradient of src");
        clef_release(x), clef_release(src);
    }
    clef_close(ctx);
}
/* Sums of f16 that pass its largest number on the way, beside a column that no index names and without one. */
Test(index, sums_of_halves_in_a_corner) {
    clef_context *ctx = open_seeded(1);
    for (int columns = 1; columns < 3; columns++) {
        clef_tensor *x = tensor_of(ctx, CLEF_SHAPE(1, columns), CLEF_F16, (double[]){-60000, -60000}),
                    *src = tensor_of(ctx, CLEF_SHAPE(2, 1), CLEF_F16, (double[]){50000, 50000});
        clef_tensor *y = clef_scatter_add(x, 0, clef_zeros(ctx, CLEF_SHAPE(2, 1), CLEF_I32), src);
        expect_numbers(y, (double[]){39968, -60000}, 0, 0, "sums");
    }
    clef_close(ctx);
}
Test(index, scatter_reduce_and_index_add_refuse) {
    clef_context *ctx = open_seeded(1);
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(3, 2), CLEF_F32), *at = clef_zeros(ctx, CLEF_SHAPE(4, 2), CLEF_I64),
                *row = clef_zeros(ctx, CLEF_SHAPE(4), CLEF_I64), *src = clef_ones(ctx, CLEF_SHAPE(4, 2), CLEF_F32);
    cr_expect(!clef_scatter_reduce(x, 0, at, src, (clef_scatter_reduction)7, true));
    expect_error(ctx, CLEF_INVALID, "scatter_reduce: there is no reduction 7");
    for (int r = CLEF_SCATTER_SUM; r <= CLEF_SCATTER_MIN; r++) {
        cr_expect(!clef_scatter_reduce(x, 0, at, x, (clef_scatter_reduction)r, r % 2));
        expect_error(ctx, CLEF_SHAPE, "scatter_reduce: index [4,2] and src [3,2] differ");
        cr_expect(!clef_scatter_reduce(x, 2, at, src, (clef_scatter_reduction)r, r % 2));
        expect_error(ctx, CLEF_INVALID, "scatter_reduce: x [3,2] has no dimension 2");
        cr_expect(!clef_scatter_reduce(x, 1, at, src, (clef_scatter_reduction)r, r % 2));
        expect_error(ctx, CLEF_SHAPE, "scatter_reduce: index [4,2] reaches beyond x [3,2] outside dimension 1");
        cr_expect(!clef_scatter_reduce(x, 0, src, src, (clef_scatter_reduction)r, r % 2));
        expect_error(ctx, CLEF_DTYPE, "scatter_reduce: index is f32");
    }
    cr_expect(!clef_index_add(x, 0, at, src));
    expect_error(ctx, CLEF_SHAPE, "index_add: index [4,2] must have one dimension");
    cr_expect(!clef_index_add(x, 1, row, src));
    expect_error(ctx, CLEF_SHAPE, "and src [4,2] a slice of x [3,2] for each of it along dimension 1");
    cr_expect(!clef_index_add(x, 2, row, src));
    expect_error(ctx, CLEF_INVALID, "index_add: x [3,2] has no dimension 2");
    cr_expect(!clef_index_add(x, 0, clef_to(row, CLEF_F32), src));
    expect_error(ctx, CLEF_DTYPE, "index_add: index is f32");
    clef_close(ctx);
}

/* Whole numbers, an index outside, and many small numbers to one half, which are summed before they are rounded. */
Test(index, index_add) {
    clef_context *ctx = open_seeded(1);
    double x[3] = {1, 2, 3}, at[4] = {2, -1, 2, 3}, src[4] = {10, 20, 30, 40};
    clef_tensor *y = clef_index_add(tensor_of(ctx, CLEF_SHAPE(3), CLEF_I32, x), 0, tensor_of(ctx, CLEF_SHAPE(4), CLEF_I32, at),
                                    tensor_of(ctx, CLEF_SHAPE(4), CLEF_U8, src));
    cr_expect_eq(clef_tensor_dtype(y), CLEF_I32);
    expect_numbers(y, (double[]){1, 2, 43}, 0, 0, "index_add");
    clef_tensor *many = clef_full(ctx, CLEF_SHAPE(1000), CLEF_F16, 0x1p-11), *one = clef_ones(ctx, CLEF_SHAPE(1), CLEF_F16);
    y = clef_index_add(one, 0, clef_zeros(ctx, CLEF_SHAPE(1000), CLEF_I32), many);
    expect_numbers(y, (double[]){1 + 1000 * 0x1p-11}, 0x1p-10, 0, "a thousand to one half");
    clef_close(ctx);
}

/* More elements than places, so that sums go to copies of these: whole numbers, exact in any order, some places outside; and the same bits
   each time for numbers that are rounded. */
static void check_copies(clef_context *ctx, clef_dtype dtype, int64_t v, int64_t m, int64_t d) {
    double *x, *src, *at, *want = calloc((size_t)(v * d), sizeof *want);
    clef_tensor *t = whole(ctx, CLEF_SHAPE(v, d), dtype, 0, 40, 1, &x), *s = whole(ctx, CLEF_SHAPE(m, d), dtype, 0, 20, 2, &src);
    clef_tensor *row = whole(ctx, CLEF_SHAPE(m), CLEF_I32, -1, (int)v + 1, 3, &at);
    memcpy(want, x, (size_t)(v * d) * sizeof *want);
    for (int64_t i = 0; i < m * d; i++)
        if (at[i / d] >= 0 && at[i / d] < (double)v) want[(int64_t)at[i / d] * d + i % d] += src[i];
    expect_numbers(clef_index_add(t, 0, row, s), want, 0, 0, "index_add");
    clef_tensor *each = clef_expand(clef_unsqueeze(row, 1), CLEF_SHAPE(m, d));
    expect_numbers(clef_scatter_add(t, 0, each, s), want, 0, 0, "scatter_add");
    free(x), free(src), free(at), free(want);
    clef_end_step(ctx);
}

Test(index, copies_of_few_places) {
    clef_context *ctx = open_seeded(1);
    check_copies(ctx, CLEF_F32, 3, 5001, 1);
    check_copies(ctx, CLEF_F32, 40, 5001, 3);
    check_copies(ctx, CLEF_I64, 900, 4099, 1);
    if (!test_small()) check_copies(ctx, CLEF_I32, 1, 20011, 2);
    clef_tensor *at = clef_keep(clef_randint(ctx, 0, 7, CLEF_SHAPE(6000))), *x = clef_keep(clef_randn(ctx, CLEF_SHAPE(6000)));
    float first[7], again[7];
    for (int i = 0; i < 2; i++) {
        clef_read(clef_scatter_add(clef_zeros(ctx, CLEF_SHAPE(7), CLEF_F32), 0, at, x), i ? again : first, sizeof first);
        clef_end_step(ctx);
    }
    cr_expect_arr_eq(first, again, sizeof first);
    clef_release(at), clef_release(x);
    clef_close(ctx);
}
