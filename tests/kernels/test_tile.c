/* Products in tiles of local memory (cl/tile.cl), which GPUs get, on whatever device there is: every size and order around a
   tile's edges bit for bit, batches, splits, dtypes, operands that begin anywhere; and that plans really use them.
   ctest: cost=20 plain */
#include "support/product.h"

static clef_context *ctx;
static void open_device(void) { ctx = open_as_gpu(); }
static void close_device(void) { close_clean(ctx); }
TestSuite(tile, .init = open_device, .fini = close_device);

/* order: 1 for a transposed, 2 for b transposed. */
static void check(int64_t m, int64_t n, int64_t k, int order, clef_dtype dtype, int range) {
    bool ta = order & 1, tb = order & 2;
    char what[128];
    snprintf(what, sizeof what, "%s %lld x %lld x %lld %c%c", clef_dtype_name(dtype), (long long)m, (long long)n, (long long)k,
             ta ? 'T' : 'N', tb ? 'T' : 'N');
    array a = whole_array(matrix(m, k, ta), 1, range), b = whole_array(matrix(k, n, tb), 2, range), y = array_new(CLEF_SHAPE(m, n));
    product(a.v, ta ? 1 : k, ta ? m : 1, b.v, tb ? 1 : n, tb ? k : 1, y.v, m, n, k, false);
    clef_tensor *p = to_device(ctx, a, dtype), *q = to_device(ctx, b, dtype);
    expect_equal(clef_matmul(ta ? clef_transpose(p, 0, 1) : p, tb ? clef_transpose(q, 0, 1) : q), y, what);
    free(a.v), free(b.v), free(y.v);
    clef_end_step(ctx);
}

/* The elements of a matrix along dim, last first. */
static void reverse(array *a, int dim) {
    int64_t rows = a->shape.dim[0], columns = a->shape.dim[1];
    for (int64_t i = 0; i < (dim ? rows : rows / 2); i++)
        for (int64_t j = 0; j < (dim ? columns / 2 : columns); j++) {
            double *here = &a->v[i * columns + j],
                   *there = &a->v[dim ? i * columns + columns - 1 - j : (rows - 1 - i) * columns + j], kept = *here;
            *here = *there;
            *there = kept;
        }
}

Test(tile, sizes_around_edges_in_all_orders) {
    static const int64_t sizes[] = {1, 7, 63, 64, 65, 129}, depths[] = {1, 7, 16, 33, 64};
    if (test_small()) {
        check(7, 33, 17, 0, CLEF_F32, 4);
        check(33, 8, 20, 1, CLEF_F32, 4);
        check(36, 7, 1, 2, CLEF_F32, 4);
        check(1, 65, 16, 3, CLEF_F32, 4);
        return;
    }
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++)
            for (int order = 0; order < 4; order++) check(sizes[i], sizes[j], depths[(i + 2 * j + order) % 5], order, CLEF_F32, 4);
}

/* Whole fours in every direction, so that all loads are wide. */
Test(tile, wide_loads_in_all_orders) {
    for (int order = 0; order < 4; order++) {
        check(40, 36, 20, order, CLEF_F32, 4);
        if (!test_small()) check(132, 68, 132, order, CLEF_F32, 4);
    }
}

/* Flips, which have negative strides, of operands that all loads take in whole fours. */
Test(tile, operands_that_go_back) {
    for (int i = 0; i < 16; i++) {
        int order = i % 4, side = i / 4; /* side: 0 and 1 for the dimensions of a, 2 and 3 for those of b */
        bool ta = order & 1, tb = order & 2;
        int64_t m = 40, n = 36, k = 20;
        array a = whole_array(matrix(m, k, ta), 1, 4), b = whole_array(matrix(k, n, tb), 2, 4), y = array_new(CLEF_SHAPE(m, n));
        clef_tensor *p = to_device(ctx, a, CLEF_F32), *q = to_device(ctx, b, CLEF_F32);
        if (side < 2) p = clef_flip(p, side);
        else q = clef_flip(q, side - 2);
        reverse(side < 2 ? &a : &b, side % 2);
        product(a.v, ta ? 1 : k, ta ? m : 1, b.v, tb ? 1 : n, tb ? k : 1, y.v, m, n, k, false);
        expect_equal(clef_matmul(ta ? clef_transpose(p, 0, 1) : p, tb ? clef_transpose(q, 0, 1) : q), y, "flipped");
        free(a.v), free(b.v), free(y.v);
        clef_end_step(ctx);
    }
}

/* Large enough for the largest tiles of a device of eight units, and long and short sides for those between. */
Test(tile, every_shape_of_tile) {
    check(256, 128, 16, 0, CLEF_F32, 4);
    if (test_small()) return;
    check(515, 509, 37, 1, CLEF_F32, 4);
    check(2051, 60, 37, 2, CLEF_F32, 4);
    check(60, 2051, 37, 3, CLEF_F32, 4);
}

Test(tile, long_sums_are_split) {
    check(3, 5, 600, 0, CLEF_F32, 4);
    if (test_small()) return;
    check(33, 17, 5003, 1, CLEF_F32, 4);
    check(70, 65, 20000, 0, CLEF_F32, 2);
    check(20, 30, 9001, 1, CLEF_F16, 1);
}

/* More of k in one split than depths are found at a time. */
Test(tile, long_sums_in_one_split) {
    check(33, 21, 509, 0, CLEF_F32, 4);
    if (test_small()) return;
    for (int order = 1; order < 4; order++) check(37, 70, 509, order, CLEF_F32, 4);
}

Test(tile, other_dtypes) {
    static const clef_dtype dtypes[] = {CLEF_F16, CLEF_BF16, CLEF_I32, CLEF_I64, CLEF_F64};
    clef_device_info info;
    bool f64 = clef_context_device(ctx, 0, &info) && info.f64;
    for (int d = 0; d < (f64 ? 5 : 4); d++) {
        check(13, 35, 30, d % 4, dtypes[d], 2);
        check(36, 40, 28, d % 4, dtypes[d], 2);
        if (!test_small()) check(67, 132, 34, d % 4, dtypes[d], 2);
    }
}

Test(tile, batches_and_biases) {
    enum { Z = 3, M = 33, N = 37, K = 18 };
    array a = whole_array(CLEF_SHAPE(Z, M, K), 1, 4), b = whole_array(CLEF_SHAPE(Z, K, N), 2, 4),
          y = array_new(CLEF_SHAPE(Z, M, N));
    for (int z = 0; z < Z; z++) product(a.v + z * M * K, K, 1, b.v + z * K * N, N, 1, y.v + z * M * N, M, N, K, false);
    expect_equal(clef_matmul(to_device(ctx, a, CLEF_F32), to_device(ctx, b, CLEF_F32)), y, "a batch");
    for (int k = 19; k < 1000; k += 800) { /* at once, and through splits */
        array x = whole_array(CLEF_SHAPE(M, k), 3, 4), w = whole_array(CLEF_SHAPE(N, k), 4, 4),
              bias = whole_array(CLEF_SHAPE(N), 5, 50);
        array sum = array_new(CLEF_SHAPE(M, N));
        for (int i = 0; i < M * N; i++) sum.v[i] = bias.v[i % N];
        product(x.v, k, 1, w.v, 1, k, sum.v, M, N, k, false);
        expect_equal(clef_linear(to_device(ctx, x, CLEF_F32), to_device(ctx, w, CLEF_F32), to_device(ctx, bias, CLEF_F32)), sum,
                     "a bias");
    }
}

/* Fours that begin one element late, and NaN all around what is multiplied. */
Test(tile, windows_may_begin_anywhere) {
    enum { M = 36, N = 40, K = 20, ROW = 48 };
    array a = whole_array(CLEF_SHAPE(ROW, ROW), 1, 4), b = whole_array(CLEF_SHAPE(ROW, ROW), 2, 4);
    for (int i = 0; i < ROW * ROW; i++) {
        int r = i / ROW, c = i % ROW;
        if (r < 1 || r > M || c < 1 || c > K) a.v[i] = NAN;
        if (r < 1 || r > K || c < 1 || c > N) b.v[i] = NAN;
    }
    clef_tensor *p = clef_slice(clef_slice(to_device(ctx, a, CLEF_F32), 0, 1, M + 1, 1), 1, 1, K + 1, 1);
    clef_tensor *q = clef_slice(clef_slice(to_device(ctx, b, CLEF_F32), 0, 1, K + 1, 1), 1, 1, N + 1, 1);
    array y = array_new(CLEF_SHAPE(M, N)), transposed = array_new(CLEF_SHAPE(N, M));
    product(a.v + ROW + 1, ROW, 1, b.v + ROW + 1, ROW, 1, y.v, M, N, K, false);
    for (int i = 0; i < M * N; i++) transposed.v[i % N * M + i / N] = y.v[i];
    expect_equal(clef_matmul(p, q), y, "a window");
    expect_equal(clef_matmul(clef_transpose(q, 0, 1), clef_transpose(p, 0, 1)), transposed, "a window, transposed");
}

Test(tile, random_numbers_stay_within_bounds) {
    int64_t m = 33, n = 47, k = test_small() ? 29 : 6000;
    array a = noise_array(CLEF_SHAPE(m, k), 3), b = noise_array(CLEF_SHAPE(k, n), 4), y = array_new(CLEF_SHAPE(m, n)),
          scale = array_new(y.shape);
    product(a.v, k, 1, b.v, n, 1, y.v, m, n, k, false);
    product(a.v, k, 1, b.v, n, 1, scale.v, m, n, k, true);
    expect_bounded(clef_matmul(to_device(ctx, a, CLEF_F32), to_device(ctx, b, CLEF_F32)), y, scale, (double)k, "random");
}

/* ---- plans ---- */
static void expect_tiles(clef_tensor *t, const char *what) {
    const char *plan = plan_text(t);
    cr_assert(strstr(plan, "tile.cl"), "%s: no tiles in\n%s", what, plan);
    cr_assert(!strstr(plan, "gemm.cl"), "%s: something else too in\n%s", what, plan);
}

Test(tile, plans_use_them) {
    clef_tensor *a = noise_tensor(ctx, CLEF_SHAPE(40, 50), 1), *b = noise_tensor(ctx, CLEF_SHAPE(50, 60), 2);
    expect_tiles(clef_matmul(a, b), "matmul");
    expect_tiles(clef_linear(clef_transpose(b, 0, 1), a, CLEF_NONE), "linear");
    clef_tensor *x[2] = {to_leaf(ctx, noise_array(CLEF_SHAPE(2, 5, 9, 9), 3), CLEF_F32),
                         to_leaf(ctx, noise_array(CLEF_SHAPE(6, 5, 3, 3), 4), CLEF_F32)};
    clef_tensor *y = clef_conv2d(x[0], x[1], CLEF_NONE, NULL), *d[2];
    expect_tiles(y, "conv2d");
    cr_assert(clef_grad(y, clef_ones(ctx, CLEF_SHAPE(2, 6, 7, 7), CLEF_F32), x, 2, false, d) == CLEF_OK, "%s", clef_error(ctx));
    expect_tiles(d[0], "gradient by the image");
    expect_tiles(d[1], "gradient by the filters");
}
