/* Products by matrix units (cl/matrix.cl, cl/matrix_unit.h) with local memory in their place, on whatever device there is: both
   half types, and f32 rounded to TF32, bit for bit around the edges of fragments and tiles in every order, batches, splits, what follows, convolutions,
   operands that begin anywhere; and the probe that a device's own units have to pass.  With CLEF_TEST_MATRIX set, by the device's
   own units. ctest: cost=30 plain */
#include "kernels/gemm.h"
#include "plan/tuning_support.h"
#include "runtime/runtime.h"
#include "support/product.h"

static clef_context *ctx;
static void open_device(void) {
    bool own = getenv("CLEF_TEST_MATRIX") != NULL;
    if (!own) setenv("CLEF_MATRIX", "emulated", 1);
    ctx = open_as_gpu();
    if (own && clef__device_matrix_unit(clef__device_at(ctx, 0)) == CLEF__NO_MATRIX_UNIT)
        cr_skip_test("matrix units that kernels can reach");
}
static void open_tf32(void) {
    open_device();
    cr_assert_eq(clef_set_matmul_precision(ctx, CLEF_MATMUL_HIGH), CLEF_OK);
    if (!clef__device_tf32(clef__device_at(ctx, 0))) cr_skip_test("matrix units that multiply TF32");
}
static void close_device(void) { close_clean(ctx); }
TestSuite(matrix, .init = open_device, .fini = close_device);
TestSuite(tf32, .init = open_tf32, .fini = close_device);

static void expect_matrix(clef_tensor *t, const char *what) {
    const char *plan = plan_text(t);
    cr_assert(strstr(plan, "matrix.cl"), "%s: no matrix units in\n%s", what, plan);
    cr_assert(!strstr(plan, "tile.cl") && !strstr(plan, "gemm.cl"), "%s: something else too in\n%s", what, plan);
}

/* order: 1 for a transposed, 2 for b transposed.  Whole numbers of which sums stay exact in f16 too. */
static void check(int64_t m, int64_t n, int64_t k, int order, clef_dtype dtype) {
    bool ta = order & 1, tb = order & 2;
    int range = dtype == CLEF_BF16 ? 2 : 4;
    char what[128];
    snprintf(what, sizeof what, "%s %lld x %lld x %lld %c%c", clef_dtype_name(dtype), (long long)m, (long long)n, (long long)k,
             ta ? 'T' : 'N', tb ? 'T' : 'N');
    array a = whole_array(matrix(m, k, ta), 1, range), b = whole_array(matrix(k, n, tb), 2, range), y = array_new(CLEF_SHAPE(m, n));
    product(a.v, ta ? 1 : k, ta ? m : 1, b.v, tb ? 1 : n, tb ? k : 1, y.v, m, n, k, false);
    clef_tensor *p = to_device(ctx, a, dtype), *q = to_device(ctx, b, dtype);
    clef_tensor *c = clef_matmul(ta ? clef_transpose(p, 0, 1) : p, tb ? clef_transpose(q, 0, 1) : q);
    expect_matrix(c, what);
    expect_equal(c, y, what);
    free(a.v), free(b.v), free(y.v);
    clef_end_step(ctx);
}

Test(matrix, sizes_around_edges_in_all_orders) {
    static const int64_t sizes[] = {1, 7, 17, 31, 33, 65}, depths[] = {1, 15, 17, 33, 41};
    if (test_small()) {
        check(17, 9, 17, 0, CLEF_F16);
        return;
    }
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++)
            for (int order = 0; order < 4; order++) check(sizes[i], sizes[j], depths[(i + 2 * j + order) % 5], order, CLEF_F16);
    check(33, 17, 37, 1, CLEF_BF16);
}

/* Whole eights in every direction, so that all loads are wide. */
Test(matrix, wide_loads_in_all_orders) {
    if (test_small()) check(40, 24, 48, 1, CLEF_BF16);
    else
        for (int order = 0; order < 4; order++) check(136, 72, 104, order, CLEF_F16);
}

/* Large enough for the largest tiles of a device of eight units, and long and short sides for those between. */
Test(matrix, every_shape_of_tile) {
    if (test_small()) return;
    check(515, 509, 37, 1, CLEF_F16);
    check(1027, 60, 37, 2, CLEF_F16);
    check(60, 1027, 37, 3, CLEF_F16);
}

/* A [M][k] · B [N][k]ᵀ in one shape of the table, or where k lies outermost in both. */
static void check_shape(int shape, int64_t k, bool crossed, clef_dtype dtype) {
    enum { M = 72, N = 136 };
    clef__knobs knobs = {.value = {[CLEF__TILE_SHAPE] = shape}};
    char what[64];
    snprintf(what, sizeof what, "%s, shape %d, %lld deep%s", clef_dtype_name(dtype), shape, (long long)k,
             crossed ? ", crossed" : "");
    array a = whole_array(matrix(M, k, crossed), 1, 2), b = whole_array(matrix(N, k, crossed), 2, 2),
          y = array_new(CLEF_SHAPE(M, N));
    product(a.v, crossed ? 1 : k, crossed ? M : 1, b.v, crossed ? N : 1, crossed ? 1 : k, y.v, M, N, k, false);
    clef_tensor *p = clef_keep(to_device(ctx, a, dtype)), *q = clef_keep(to_device(ctx, b, dtype)), *c = NULL;
    for (int tuned = 0; tuned < 2; tuned++) {
        c = clef_matmul(crossed ? clef_transpose(p, 0, 1) : p, crossed ? q : clef_transpose(q, 0, 1));
        if (!tuned) cr_assert(keep_for(ctx, c, dtype == CLEF_F32 ? "tf32" : "matrix", &knobs) > 0, "%s", what);
    }
    cr_assert(strstr(plan_text(c), " tuned"), "%s: not used in\n%s", what, plan_text(c));
    expect_equal(c, y, what);
    clef_release(p), clef_release(q);
    free(a.v), free(b.v), free(y.v);
    clef_end_step(ctx);
}

/* With a directory for what was tuned; to be removed. */
static const char *open_tuned(clef_matmul_precision precision) {
    const char *dir = io_scratch();
    clef_close(ctx);
    ctx = open_or_skip(&(clef_options){.seed = 1, .profile = "gpu", .cache_dir = dir});
    clef_set_matmul_precision(ctx, precision);
    return dir;
}

/* Each shape of the table, those in stages among them: blocks fewer than stages, as many, and more; the last one whole and not. */
Test(matrix, every_shape_gives_the_same_numbers) {
    static const int64_t depths[] = {8, 64, 200};
    const char *dir = open_tuned(CLEF_MATMUL_HIGHEST);
    const clef__knob *shapes = &clef__matrix_family.knob[CLEF__TILE_SHAPE];
    for (int d = test_small() ? 2 : 0; d < 3; d++)
        for (int i = test_small() ? 6 : 0; shapes->value[i]; i++) check_shape(shapes->value[i], depths[d], false, CLEF_F16);
    io_remove(dir);
}

/* f32 in the tile whose blocks go to local memory in stages: fewer blocks than stages, as many, and more; A along k and across. */
Test(matrix, tiles_in_stages) {
    static const int64_t size[][3] = {{128, 128, 16}, {132, 260, 8}, {260, 132, 72}, {4, 4, 1000}, {200, 36, 100}};
    const char *dir = open_tuned(CLEF_MATMUL_HIGHEST);
    for (int i = test_small() ? 4 : 0; i < 5; i++)
        for (int way = 0; way < (test_small() ? 1 : 4); way++) {
            int64_t m = size[i][0], n = size[i][1], k = size[i][2];
            bool ta = way & 1;
            clef__knobs knobs = {.value = {[CLEF__TILE_SHAPE] = 8, [CLEF__TILE_SPLITS] = 1 + way / 2}};
            array a = whole_array(matrix(m, k, ta), 1, 4), b = whole_array(CLEF_SHAPE(k, n), 2, 4), y = array_new(CLEF_SHAPE(m, n));
            product(a.v, ta ? 1 : k, ta ? m : 1, b.v, n, 1, y.v, m, n, k, false);
            clef_tensor *p = clef_keep(to_device(ctx, a, CLEF_F32)), *q = clef_keep(to_device(ctx, b, CLEF_F32)), *c = NULL;
            for (int tuned = 0; tuned < 2; tuned++) {
                c = clef_matmul(ta ? clef_transpose(p, 0, 1) : p, q);
                if (!tuned) cr_assert(keep_for(ctx, c, "tile", &knobs) > 0);
            }
            cr_assert(strstr(plan_text(c), "tile.cl") && strstr(plan_text(c), " tuned"), "not used in\n%s", plan_text(c));
            expect_equal(c, y, "in stages");
            clef_release(p), clef_release(q);
            free(a.v), free(b.v), free(y.v);
            clef_end_step(ctx);
        }
    io_remove(dir);
}

Test(matrix, long_sums_are_split) {
    int64_t m = test_small() ? 3 : 20, n = test_small() ? 5 : 30, k = test_small() ? 600 : 9001;
    array a = whole_array(CLEF_SHAPE(m, k), 1, 1), b = whole_array(CLEF_SHAPE(k, n), 2, 1), y = array_new(CLEF_SHAPE(m, n));
    product(a.v, k, 1, b.v, n, 1, y.v, m, n, k, false);
    clef_tensor *c = clef_matmul(to_device(ctx, a, CLEF_F16), to_device(ctx, b, CLEF_F16));
    cr_assert(strstr(plan_text(c), "pack.cl"), "no splits in\n%s", plan_text(c));
    expect_equal(c, y, "splits");
}

/* More of k in one split than depths are found at a time: planned for one compute unit, enough matrices that none is split. */
Test(matrix, long_sums_in_one_split) {
    enum { Z = 16, M = 5, N = 9, K = 1101 };
    if (test_small()) cr_skip_test("sixteen long sums: not on a slow device (CLEF_TEST_SMALL)");
    clef_close(ctx);
    ctx = open_or_skip(&(clef_options){.seed = 1, .profile = "gpu", .sum_units = 1});
    array a = whole_array(CLEF_SHAPE(Z, M, K), 1, 1), b = whole_array(CLEF_SHAPE(Z, K, N), 2, 1),
          y = array_new(CLEF_SHAPE(Z, M, N));
    for (int z = 0; z < Z; z++) product(a.v + z * M * K, K, 1, b.v + z * K * N, N, 1, y.v + z * M * N, M, N, K, false);
    clef_tensor *c = clef_matmul(to_device(ctx, a, CLEF_F16), to_device(ctx, b, CLEF_F16));
    cr_assert(!strstr(plan_text(c), "pack.cl"), "splits in\n%s", plan_text(c));
    expect_equal(c, y, "a batch");
}

Test(matrix, batches_biases_and_followers) {
    enum { Z = 3, M = 19, N = 21, K = 25 };
    array a = whole_array(CLEF_SHAPE(Z, M, K), 1, 4), b = whole_array(CLEF_SHAPE(Z, K, N), 2, 4),
          y = array_new(CLEF_SHAPE(Z, M, N));
    for (int z = 0; z < Z; z++) product(a.v + z * M * K, K, 1, b.v + z * K * N, N, 1, y.v + z * M * N, M, N, K, false);
    if (!test_small()) expect_equal(clef_matmul(to_device(ctx, a, CLEF_F16), to_device(ctx, b, CLEF_F16)), y, "a batch");
    array x = whole_array(CLEF_SHAPE(M, K), 3, 4), w = whole_array(CLEF_SHAPE(N, K), 4, 4),
          bias = whole_array(CLEF_SHAPE(N), 5, 50);
    array sum = array_new(CLEF_SHAPE(M, N)), more = whole_array(sum.shape, 6, 20);
    for (int i = 0; i < M * N; i++) sum.v[i] = bias.v[i % N];
    product(x.v, K, 1, w.v, 1, K, sum.v, M, N, K, false);
    for (int i = 0; i < M * N; i++) sum.v[i] = fmax(sum.v[i] + more.v[i], 0);
    clef_tensor *linear = clef_linear(to_device(ctx, x, CLEF_F16), to_device(ctx, w, CLEF_F16), to_device(ctx, bias, CLEF_F16));
    expect_equal(clef_relu(clef_add(linear, to_device(ctx, more, CLEF_F16))), sum, "a bias, a sum and a relu");
}

/* Eights that begin one element late, and NaN all around what is multiplied. */
Test(matrix, windows_may_begin_anywhere) {
    enum { M = 24, N = 16, K = 40, ROW = 48 };
    array a = whole_array(CLEF_SHAPE(ROW, ROW), 1, 4), b = whole_array(CLEF_SHAPE(ROW, ROW), 2, 4);
    for (int i = 0; i < ROW * ROW; i++) {
        int r = i / ROW, c = i % ROW;
        if (r < 1 || r > M || c < 1 || c > K) a.v[i] = NAN;
        if (r < 1 || r > K || c < 1 || c > N) b.v[i] = NAN;
    }
    clef_tensor *p = clef_slice(clef_slice(to_device(ctx, a, CLEF_F16), 0, 1, M + 1, 1), 1, 1, K + 1, 1);
    clef_tensor *q = clef_slice(clef_slice(to_device(ctx, b, CLEF_F16), 0, 1, K + 1, 1), 1, 1, N + 1, 1);
    array y = array_new(CLEF_SHAPE(M, N)), transposed = array_new(CLEF_SHAPE(N, M));
    product(a.v + ROW + 1, ROW, 1, b.v + ROW + 1, ROW, 1, y.v, M, N, K, false);
    for (int i = 0; i < M * N; i++) transposed.v[i % N * M + i / N] = y.v[i];
    expect_equal(clef_matmul(p, q), y, "a window");
    if (!test_small())
        expect_equal(clef_matmul(clef_transpose(q, 0, 1), clef_transpose(p, 0, 1)), transposed, "a window, transposed");
}

/* All three directions against the same convolution of f32 without matrix units. */
static void check_convolution(clef_shape image, clef_shape filters, const clef_conv2d_options *o, clef_dtype dtype,
                              const char *what) {
    array x = whole_array(image, 1, 2), w = whole_array(filters, 2, 2), want[3];
    clef_matmul_precision precision = clef_get_matmul_precision(ctx);
    int n = test_small() ? 1 : 3;
    for (int units = 0; units < 2; units++) {
        clef_dtype in_units = units ? dtype : CLEF_F32;
        clef_tensor *in[2] = {to_leaf(ctx, x, in_units), to_leaf(ctx, w, in_units)}, *result[3];
        clef_tensor *y = result[0] = clef_conv2d(in[0], in[1], CLEF_NONE, o),
                    *g = to_device(ctx, whole_array(clef_tensor_shape(y), 3, 2), in_units);
        cr_assert(clef_grad(y, g, in, 2, false, result + 1) == CLEF_OK, "%s: %s", what, clef_error(ctx));
        clef_set_matmul_precision(ctx, units ? precision : CLEF_MATMUL_HIGHEST);
        for (int i = 0; i < n && units; i++) expect_matrix(result[i], what);
        for (int i = 0; i < n && units; i++) expect_equal(result[i], want[i], what);
        for (int i = 0; i < n && !units; i++) want[i] = from_device(result[i]);
    }
    clef_end_step(ctx);
}

Test(matrix, convolutions) {
    check_convolution(CLEF_SHAPE(2, 8, 7, 6), CLEF_SHAPE(16, 8, 3, 3), &(clef_conv2d_options){.padding = {1, 1}}, CLEF_F16,
                      "3 x 3");
    if (test_small()) return;
    check_convolution(CLEF_SHAPE(2, 6, 9, 8), CLEF_SHAPE(10, 3, 3, 2),
                      &(clef_conv2d_options){.stride = {2, 1}, .dilation = {1, 2}, .groups = 2}, CLEF_F16, "groups");
}

Test(matrix, random_numbers_stay_within_bounds) {
    int64_t m = 33, n = 47, k = 3000;
    if (test_small()) return;
    array a = noise_array(CLEF_SHAPE(m, k), 3), b = noise_array(CLEF_SHAPE(k, n), 4), y = array_new(CLEF_SHAPE(m, n)),
          scale = array_new(y.shape);
    clef_tensor *p = clef_keep(to_device(ctx, a, CLEF_BF16)), *q = clef_keep(to_device(ctx, b, CLEF_BF16));
    a = from_device(p); /* as they were rounded */
    b = from_device(q);
    product(a.v, k, 1, b.v, n, 1, y.v, m, n, k, false);
    product(a.v, k, 1, b.v, n, 1, scale.v, m, n, k, true);
    array c = from_device(clef_matmul(p, q));
    for (int64_t i = 0; i < m * n; i++) /* a half of bf16's last place, and the bound of f32's sums */
        cr_assert(fabs(c.v[i] - y.v[i]) <= ldexp(fabs(y.v[i]), -8) + 4 * sqrt((double)k) * ldexp(scale.v[i], -24),
                  "at %lld: %g instead of %g", (long long)i, c.v[i], y.v[i]);
}

Test(matrix, not_where_types_differ_or_none_is_wanted) {
    clef_tensor *a = noise_tensor(ctx, CLEF_SHAPE(20, 24), 1), *b = noise_tensor(ctx, CLEF_SHAPE(24, 28), 2);
    cr_assert(!strstr(plan_text(clef_matmul(a, b)), "matrix.cl"), "f32 by matrix units");
    clef_end_step(ctx);
    setenv("CLEF_MATRIX", "0", 1);
    clef_context *other = open_as_gpu();
    a = clef_to(noise_tensor(other, CLEF_SHAPE(20, 24), 1), CLEF_F16);
    const char *plan = plan_text(clef_matmul(a, clef_transpose(a, 0, 1)));
    cr_assert(strstr(plan, "tile.cl") && !strstr(plan, "matrix.cl"), "not by tiles in\n%s", plan);
    clef_close(other);
}

/* ---- f32 in TF32 ---- */
Test(tf32, sizes_around_edges_in_all_orders) {
    static const int64_t sizes[] = {1, 7, 17, 31, 33, 65}, depths[] = {1, 7, 9, 21, 41};
    if (test_small()) {
        check(17, 9, 17, 0, CLEF_F32);
        return;
    }
    for (int i = 0; i < 6; i++)
        for (int j = i % 2; j < 6; j += 2)
            for (int order = 0; order < 4; order++) check(sizes[i], sizes[j], depths[(i + 2 * j + order) % 5], order, CLEF_F32);
}

/* Whole fours in every direction, but neither eights nor whole fragments along k. */
Test(tf32, wide_loads_in_all_orders) {
    if (test_small()) check(40, 24, 44, 1, CLEF_F32);
    else
        for (int order = 0; order < 4; order++) check(140, 68, 100, order, CLEF_F32);
}

Test(tf32, every_shape_gives_the_same_numbers) {
    static const int64_t depths[] = {4, 32, 100};
    const char *dir = open_tuned(CLEF_MATMUL_HIGH);
    const clef__knob *shapes = &clef__tf32_family.knob[CLEF__TILE_SHAPE];
    for (int d = test_small() ? 2 : 0; d < 3; d++)
        for (int i = test_small() ? 6 : 0; shapes->value[i]; i++)
            for (int crossed = 0; crossed < (test_small() ? 1 : 2); crossed++)
                check_shape(shapes->value[i], depths[d], crossed, CLEF_F32);
    io_remove(dir);
}

Test(tf32, batches_splits_and_convolutions) {
    enum { Z = 3, M = 19, N = 21, K = 27, LONG = 2003 };
    if (test_small()) return;
    array a = whole_array(CLEF_SHAPE(Z, M, K), 1, 4), b = whole_array(CLEF_SHAPE(Z, K, N), 2, 4),
          y = array_new(CLEF_SHAPE(Z, M, N));
    for (int z = 0; z < Z; z++) product(a.v + z * M * K, K, 1, b.v + z * K * N, N, 1, y.v + z * M * N, M, N, K, false);
    clef_tensor *c = clef_matmul(to_device(ctx, a, CLEF_F32), to_device(ctx, b, CLEF_F32));
    expect_matrix(c, "a batch");
    expect_equal(c, y, "a batch");
    check(20, 30, LONG, 0, CLEF_F32);
    check_convolution(CLEF_SHAPE(2, 6, 9, 8), CLEF_SHAPE(10, 3, 3, 2),
                      &(clef_conv2d_options){.stride = {2, 1}, .dilation = {1, 2}, .groups = 2}, CLEF_F32, "groups");
}

/* v with 10 bits behind the first, to nearest, ties away from zero: by arithmetic, not by bits. */
static double to_tf32(double v) {
    int exponent;
    double part = frexp(fabs(v), &exponent);
    return copysign(ldexp(floor(part * 2048 + 0.5), exponent - 11), v);
}

/* Both factors: those of noise; and ties, and what lies beside them, each multiplied by one alone, so that the result is it. */
Test(tf32, factors_are_rounded_as_defined) {
    enum { M = 24, N = 20, K = 36 };
    array a = noise_array(CLEF_SHAPE(M, K), 3), b = noise_array(CLEF_SHAPE(K, N), 4), y = array_new(CLEF_SHAPE(M, N)),
          scale = array_new(y.shape);
    clef_tensor *p = to_device(ctx, a, CLEF_F32), *q = to_device(ctx, b, CLEF_F32);
    for (int i = 0; i < M * K; i++) a.v[i] = to_tf32(a.v[i]);
    for (int i = 0; i < K * N; i++) b.v[i] = to_tf32(b.v[i]);
    product(a.v, K, 1, b.v, N, 1, y.v, M, N, K, false);
    product(a.v, K, 1, b.v, N, 1, scale.v, M, N, K, true);
    array c = from_device(clef_matmul(p, q));
    for (int i = 0; i < M * N; i++)
        cr_assert(fabs(c.v[i] - y.v[i]) <= 4 * sqrt((double)K) * ldexp(scale.v[i], -24), "at %d: %g instead of %g", i, c.v[i],
                  y.v[i]);
    static const int beside[] = {-4097, -4096, -4095, -1, 0, 1, 4095, 4096, 4097};
    array near = array_new(CLEF_SHAPE(16, 16)), one = array_new(near.shape), want = array_new(near.shape);
    for (int i = 0; i < 256; i++) {
        double first = ldexp((double)((1 << 10) + 37 * i % 1024), 13); /* a TF32 of which an f32's last place is 1 */
        near.v[i] = ldexp(first + beside[i % 9], i % 40 - 40) * (i % 2 ? -1 : 1);
        one.v[i] = i % 17 == 0;
        want.v[i] = to_tf32(near.v[i]);
    }
    expect_equal(clef_matmul(to_device(ctx, near, CLEF_F32), to_device(ctx, one, CLEF_F32)), want, "A beside ties");
    expect_equal(clef_matmul(to_device(ctx, one, CLEF_F32), to_device(ctx, near, CLEF_F32)), want, "B beside ties");
}

/* What is infinite or no number stays so, also where its last bits alone say which. */
Test(tf32, infinities_and_nans_stay) {
    static const uint32_t bits[] = {0x7f800000u, 0xff800000u, 0x7f800001u, 0x7fffffffu, 0x7f7fffffu};
    float a[5][20] = {{0}}, b[20][20] = {{1}}, c[5][20];
    for (int i = 0; i < 5; i++) memcpy(a[i], &bits[i], sizeof bits[i]);
    clef_tensor *y =
        clef_matmul(clef_from_host(ctx, CLEF_SHAPE(5, 20), CLEF_F32, a), clef_from_host(ctx, CLEF_SHAPE(20, 20), CLEF_F32, b));
    expect_matrix(y, "extremes");
    cr_assert_eq(clef_read(y, c, sizeof c), CLEF_OK, "%s", clef_error(ctx));
    cr_assert(c[0][0] == INFINITY && c[1][0] == -INFINITY && isnan(c[2][0]) && isnan(c[3][0]) && c[4][0] == INFINITY,
              "%g %g %g %g %g", c[0][0], c[1][0], c[2][0], c[3][0], c[4][0]);
}

static void product_of_noise(float *c) {
    clef_tensor *y = clef_matmul(noise_tensor(ctx, CLEF_SHAPE(20, 24), 1), noise_tensor(ctx, CLEF_SHAPE(24, 28), 2));
    cr_assert_eq(clef_read(y, c, 20 * 28 * sizeof *c), CLEF_OK, "%s", clef_error(ctx));
    clef_end_step(ctx);
}

/* The same graph before, with, after and again with it: each has the bits of its own setting. */
Test(tf32, only_where_it_was_asked_for) {
    enum { ALL = 20 * 28 };
    static float full[ALL], high[ALL], again[ALL];
    clef_context *rounding = ctx;
    ctx = open_as_gpu();
    cr_assert_eq(clef_get_matmul_precision(ctx), CLEF_MATMUL_HIGHEST);
    product_of_noise(full);
    clef_set_matmul_precision(ctx, CLEF_MATMUL_HIGH);
    product_of_noise(high);
    clef_set_matmul_precision(ctx, CLEF_MATMUL_HIGHEST);
    uint64_t plans = clef_counters_get(ctx).plans;
    product_of_noise(again);
    cr_expect(memcmp(full, again, sizeof full) == 0, "full precision is not what it was");
    clef_set_matmul_precision(ctx, CLEF_MATMUL_HIGH);
    product_of_noise(again);
    cr_expect(memcmp(high, again, sizeof high) == 0, "TF32 is not what it was");
    cr_expect(memcmp(full, high, sizeof full) != 0, "TF32 has all bits of f32");
    cr_expect_eq(clef_counters_get(ctx).plans, plans, "plans were made again");
    clef_close(ctx);
    ctx = rounding;
}

/* Two contexts that share compiled kernels, in turn: each keeps to its own setting. */
Test(tf32, contexts_side_by_side_keep_their_own) {
    enum { ALL = 20 * 28 };
    static float of[2][ALL], again[ALL];
    clef_context *two[2], *one = ctx;
    const clef_options options[] = {{.seed = 1, .profile = "gpu"}, {.seed = 1, .profile = "gpu", .matmul_precision = "high"}};
    cr_assert_eq(clef_open_all(options, 2, two), CLEF_OK, "%s", clef_error(NULL));
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < 2; i++) {
            ctx = two[i];
            product_of_noise(turn ? again : of[i]);
            cr_expect(!turn || memcmp(again, of[i], sizeof again) == 0, "turn %d of context %d has other bits", turn, i);
        }
    cr_expect(memcmp(of[0], of[1], sizeof again) != 0, "TF32 has all bits of f32");
    clef_close(two[0]), clef_close(two[1]);
    ctx = one;
}

/* The devices of one context have one setting. */
Test(tf32, all_devices_of_a_context_have_it) {
    clef_device_info info;
    if (!clef_context_device(ctx, 0, &info) || info.compute_units < 2) cr_skip_test("a device of two compute units");
    clef_context *halves = clef_open(&(clef_options){.device = "0/2", .profile = "gpu", .matmul_precision = "high"});
    if (!halves && clef_error_status(NULL) == CLEF_UNSUPPORTED) cr_skip_test("a device that can be divided");
    cr_assert(halves, "%s", clef_error(NULL));
    for (int d = 0; d < 2; d++) {
        clef_tensor *a = clef_to_device(noise_tensor(halves, CLEF_SHAPE(20, 24), 1), d),
                    *b = clef_to_device(noise_tensor(halves, CLEF_SHAPE(24, 28), 2), d);
        expect_matrix(clef_matmul(a, b), "a part of a device");
    }
    clef_close(halves);
}

enum { ASKED = 3, INSIDE = 24, OUTSIDE = 20 };
/* What a net that is only asked answers, whose weights may be kept in a form of their own. */
static void answers(clef_module *net, clef_matmul_precision precision, float *to) {
    clef_context *of = clef_module_context(net);
    clef_set_matmul_precision(of, precision);
    for (CLEF_NO_GRAD(of)) {
        clef_tensor *y = clef_forward(net, noise_tensor(of, CLEF_SHAPE(ASKED, INSIDE), 5));
        cr_assert_eq(clef_read(y, to, ASKED * OUTSIDE * sizeof *to), CLEF_OK, "%s", clef_error(of));
    }
    clef_end_step(of);
}

/* A file holds weights and no setting; a net that is asked under both in turn answers each time as one that knows the one alone. */
Test(tf32, nets_that_are_loaded_and_asked) {
    enum { ALL = ASKED * OUTSIDE };
    static float alone[2][ALL], now[ALL];
    const char *dir = io_scratch(), *path = io_path(dir, "net");
    clef_module *net = clef_nn_linear(ctx, INSIDE, OUTSIDE, NULL);
    cr_assert_eq(clef_save(net, path), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < 2; i++) {
        clef_context *other = open_as_gpu();
        net = clef_nn_linear(other, INSIDE, OUTSIDE, NULL);
        cr_assert_eq(clef_load(net, path), CLEF_OK, "%s", clef_error(other));
        cr_expect_eq(clef_get_matmul_precision(other), CLEF_MATMUL_HIGHEST);
        for (int k = 0; k < 3; k++) answers(net, i ? CLEF_MATMUL_HIGH : CLEF_MATMUL_HIGHEST, alone[i]);
        for (int turn = 0; i && turn < 6; turn++) {
            answers(net, turn % 2 ? CLEF_MATMUL_HIGH : CLEF_MATMUL_HIGHEST, now);
            cr_expect(memcmp(now, alone[turn % 2], sizeof now) == 0, "turn %d", turn);
        }
        clef_close(other);
    }
    cr_expect(memcmp(alone[0], alone[1], sizeof now) != 0, "TF32 has all bits of f32");
    io_remove(dir);
}

/* Planned for devices that are not here, of which one has such units. */
Test(tf32, absent_devices_with_units_have_it) {
    static const char *const key[] = {"a100", "mi100"};
    for (int i = 0; i < 2; i++) {
        clef_context *other = open_or_skip(&(clef_options){.seed = 1, .profile = "gpu", .plan_for = key[i]});
        clef_set_matmul_precision(other, CLEF_MATMUL_HIGH);
        const char *plan =
            plan_text(clef_matmul(noise_tensor(other, CLEF_SHAPE(80, 96), 1), noise_tensor(other, CLEF_SHAPE(96, 80), 2)));
        cr_expect_eq(strstr(plan, "matrix.cl") != NULL, i == 0, "%s:\n%s", key[i], plan);
        clef_close(other);
    }
}

Test(tf32, only_where_units_are_and_for_known_words) {
    cr_assert_eq(clef_set_matmul_precision(ctx, (clef_matmul_precision)7), CLEF_INVALID);
    cr_expect(strstr(clef_error(ctx), "7 is neither"), "%s", clef_error(ctx));
    clef_clear_error(ctx);
    cr_expect_eq(clef_get_matmul_precision(ctx), CLEF_MATMUL_HIGH);
    setenv("CLEF_MATRIX", "0", 1);
    clef_context *other = open_as_gpu();
    cr_assert_eq(clef_set_matmul_precision(other, CLEF_MATMUL_HIGH), CLEF_OK);
    const char *plan =
        plan_text(clef_matmul(noise_tensor(other, CLEF_SHAPE(20, 24), 1), noise_tensor(other, CLEF_SHAPE(24, 28), 2)));
    cr_assert(strstr(plan, "tile.cl") && !strstr(plan, "matrix.cl"), "not by tiles in\n%s", plan);
    clef_close(other);
}

/* ---- the probe ---- */
static const char *from, *to;
static const char *changed(const char *file, const char *text) {
    const char *at = strcmp(file, "matrix_probe.cl") == 0 ? strstr(text, from) : NULL;
    char *whole = at ? malloc(strlen(text) + strlen(to) + 1) : NULL;
    if (!whole) return text;
    sprintf(whole, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return whole; /* until this process ends */
}

Test(matrix, a_unit_has_to_multiply_rightly) {
    static const char *const broken[][2] = {
        {"a_at = (lane / 8 % 2 * 8 + lane % 8) * ROW + lane / 16 * RUN",
         "a_at = (lane / 16 * 8 + lane % 8) * ROW + lane / 8 % 2 * RUN"}, /* as other units have them */
        {"across_at = (lane / 16 * 8 + lane % 8) * ACROSS", "across_at = (lane / 16 * 8) * ACROSS"},
        {"columns = both.lo", "columns = both.lo.yx"},
        {"lane % 16 * RUN, has,", "lane % 16 * RUN, true,"},
        {"COPY(to, b_bits + lane % 16 * RUN", "COPY(to, b_bits + lane / 2 * RUN"},
        {"both.s1 != both.s3", "both.s1 == both.s3"},
        {"C_AT(2) = sum.s2;", "C_AT(2) = sum.s1;"},
        {"float4 sum = (float4)(C_AT(0)", "float4 sum = (float4)(0"},
        {"void matrix_probe(", "void matrix_probe(no"},
    };
    clef__device *device = clef__device_at(ctx, 0);
    cr_assert(clef__matrix_probe(device, "", CLEF_F16) && clef__matrix_probe(device, "", CLEF_BF16), "it does");
    clef__embedded_hook = changed;
    for (size_t i = 0; i < sizeof broken / sizeof *broken - test_small(); i++) { /* Oclgrind reports what does not compile */
        from = broken[i][0], to = broken[i][1];
        cr_assert(strstr(clef__embedded("matrix_probe.cl"), to), "\"%s\" does not occur", from);
        cr_assert(!clef__matrix_probe(device, "", CLEF_F16), "\"%s\" passed", to);
    }
    clef__embedded_hook = NULL;
}

/* Of f32: factors that are rounded otherwise, its own places, and what holds for all types. */
Test(tf32, a_unit_has_to_multiply_and_round_rightly) {
    static const char *const broken[][2] = {
        {"x + 0x1000u", "x + 0x0fffu"},
        {"x + 0x1000u", "x + 0x1001u"},
        {"across_at = lane % 4 * ACROSS + lane / 4", "across_at = lane / 8 * ACROSS + lane % 8"},
        {"columns = both.lo", "columns = both.lo.yx"},
    };
    clef__device *device = clef__device_at(ctx, 0);
    cr_assert(clef__matrix_probe(device, "", CLEF_F32), "it does");
    clef__embedded_hook = changed;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        from = broken[i][0], to = broken[i][1];
        cr_assert(strstr(clef__embedded("matrix_probe.cl"), to), "\"%s\" does not occur", from);
        cr_assert(!clef__matrix_probe(device, "", CLEF_F32), "\"%s\" passed", to);
    }
    clef__embedded_hook = NULL;
}
