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
