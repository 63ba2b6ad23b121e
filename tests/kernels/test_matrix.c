/* Products by matrix units (cl/matrix.cl, cl/matrix_unit.h) with local memory in their place, on whatever device there is: both
   half types bit for bit around the edges of fragments and tiles in every order, batches, splits, what follows, convolutions,
   operands that begin anywhere; and the probe that a device's own units have to pass.  With CLEF_TEST_MATRIX set, by the device's
   own units. ctest: cost=40 plain */
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
static void close_device(void) { close_clean(ctx); }
TestSuite(matrix, .init = open_device, .fini = close_device);

static void expect_matrix(clef_tensor *t, const char *what) {
    const char *plan = plan_text(t);
    cr_assert(strstr(plan, "matrix.cl"), "%s: no matrix units in\n%s", what, plan);
    cr_assert(!strstr(plan, "tile.cl") && !strstr(plan, "gemm.cl"), "%s: something else too in\n%s", what, plan);
}

/* order: 1 for a transposed, 2 for b transposed.  Whole numbers of which sums stay exact in f16 too. */
static void check(int64_t m, int64_t n, int64_t k, int order, clef_dtype dtype) {
    bool ta = order & 1, tb = order & 2;
    int range = dtype == CLEF_F16 ? 4 : 2;
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
    if (small_tests()) {
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
    if (small_tests()) check(40, 24, 48, 1, CLEF_BF16);
    else
        for (int order = 0; order < 4; order++) check(136, 72, 104, order, CLEF_F16);
}

/* Large enough for the largest tiles of a device of eight units, and long and short sides for those between. */
Test(matrix, every_shape_of_tile) {
    if (small_tests()) return;
    check(515, 509, 37, 1, CLEF_F16);
    check(1027, 60, 37, 2, CLEF_F16);
    check(60, 1027, 37, 3, CLEF_F16);
}

/* Each shape of the table, those in stages among them: blocks fewer than stages, as many, and more; the last one whole and not. */
Test(matrix, every_shape_gives_the_same_numbers) {
    enum { M = 72, N = 136 };
    static const int64_t depths[] = {8, 64, 200};
    const char *dir = io_scratch();
    clef_close(ctx);
    ctx = open_or_skip(&(clef_options){.seed = 1, .profile = "gpu", .cache_dir = dir});
    const clef__knob *shapes = &clef__matrix_family.knob[CLEF__TILE_SHAPE];
    for (int d = small_tests() ? 2 : 0; d < 3; d++) {
        array a = whole_array(CLEF_SHAPE(M, depths[d]), 1, 2), b = whole_array(CLEF_SHAPE(N, depths[d]), 2, 2),
              y = array_new(CLEF_SHAPE(M, N));
        product(a.v, depths[d], 1, b.v, 1, depths[d], y.v, M, N, depths[d], false);
        clef_tensor *p = clef_keep(to_device(ctx, a, CLEF_F16)), *q = clef_keep(to_device(ctx, b, CLEF_F16));
        for (int i = small_tests() ? 6 : 0; shapes->value[i]; i++) {
            clef__knobs knobs = {.value = {[CLEF__TILE_SHAPE] = shapes->value[i]}};
            char what[64];
            snprintf(what, sizeof what, "shape %d, %lld deep", shapes->value[i], (long long)depths[d]);
            cr_assert(keep_for(ctx, clef_matmul(p, clef_transpose(q, 0, 1)), "matrix", &knobs) > 0, "%s", what);
            clef_tensor *c = clef_matmul(p, clef_transpose(q, 0, 1));
            cr_assert(strstr(plan_text(c), " tuned"), "%s: not used in\n%s", what, plan_text(c));
            expect_equal(c, y, what);
            clef_end_step(ctx);
        }
        clef_release(p), clef_release(q);
        free(a.v), free(b.v), free(y.v);
    }
    io_remove(dir);
}

Test(matrix, long_sums_are_split) {
    int64_t m = small_tests() ? 3 : 20, n = small_tests() ? 5 : 30, k = small_tests() ? 600 : 9001;
    array a = whole_array(CLEF_SHAPE(m, k), 1, 1), b = whole_array(CLEF_SHAPE(k, n), 2, 1), y = array_new(CLEF_SHAPE(m, n));
    product(a.v, k, 1, b.v, n, 1, y.v, m, n, k, false);
    clef_tensor *c = clef_matmul(to_device(ctx, a, CLEF_F16), to_device(ctx, b, CLEF_F16));
    cr_assert(strstr(plan_text(c), "pack.cl"), "no splits in\n%s", plan_text(c));
    expect_equal(c, y, "splits");
}

/* More of k in one split than depths are found at a time: planned for one compute unit, enough matrices that none is split. */
Test(matrix, long_sums_in_one_split) {
    enum { Z = 16, M = 5, N = 9, K = 1101 };
    if (small_tests()) cr_skip_test("sixteen long sums: not on a slow device (CLEF_TEST_SMALL)");
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
    if (!small_tests()) expect_equal(clef_matmul(to_device(ctx, a, CLEF_F16), to_device(ctx, b, CLEF_F16)), y, "a batch");
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
    if (!small_tests())
        expect_equal(clef_matmul(clef_transpose(q, 0, 1), clef_transpose(p, 0, 1)), transposed, "a window, transposed");
}

/* All three directions against the same convolution of f32 without matrix units. */
static void check_convolution(clef_shape image, clef_shape filters, const clef_conv2d_options *o, const char *what) {
    array x = whole_array(image, 1, 2), w = whole_array(filters, 2, 2);
    clef_tensor *result[2][3];
    for (int half = 0; half < 2; half++) {
        clef_tensor *in[2] = {to_leaf(ctx, x, half ? CLEF_F16 : CLEF_F32), to_leaf(ctx, w, half ? CLEF_F16 : CLEF_F32)};
        clef_tensor *y = clef_conv2d(in[0], in[1], CLEF_NONE, o),
                    *g = to_device(ctx, whole_array(clef_tensor_shape(y), 3, 2), half ? CLEF_F16 : CLEF_F32);
        result[half][0] = y;
        cr_assert(clef_grad(y, g, in, 2, false, result[half] + 1) == CLEF_OK, "%s: %s", what, clef_error(ctx));
    }
    for (int i = 0; i < (small_tests() ? 1 : 3); i++) {
        expect_matrix(result[1][i], what);
        expect_equal(result[1][i], from_device(result[0][i]), what);
    }
    clef_end_step(ctx);
}

Test(matrix, convolutions) {
    check_convolution(CLEF_SHAPE(2, 8, 7, 6), CLEF_SHAPE(16, 8, 3, 3), &(clef_conv2d_options){.padding = {1, 1}}, "3 x 3");
    if (small_tests()) return;
    check_convolution(CLEF_SHAPE(2, 6, 9, 8), CLEF_SHAPE(10, 3, 3, 2),
                      &(clef_conv2d_options){.stride = {2, 1}, .dilation = {1, 2}, .groups = 2}, "groups");
}

Test(matrix, random_numbers_stay_within_bounds) {
    int64_t m = 33, n = 47, k = 3000;
    if (small_tests()) return;
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
        {"a_at = (lane / 8 % 2 * 8 + lane % 8) * ROW + lane / 16 * 8",
         "a_at = (lane / 16 * 8 + lane % 8) * ROW + lane / 8 % 2 * 8"}, /* as other units have them */
        {"across_at = (lane / 16 * 8 + lane % 8) * ROW", "across_at = (lane / 16 * 8) * ROW"},
        {"columns = both.lo", "columns = both.lo.yx"},
        {"lane % 16 * 8, has)", "lane % 16 * 8, true)"},
        {"COPY_EIGHT(to, b_halves + lane % 16 * 8", "COPY_EIGHT(to, b_halves + lane / 2 * 8"},
        {"both.s1 != both.s3", "both.s1 == both.s3"},
        {"C_AT(2) = sum.s2;", "C_AT(2) = sum.s1;"},
        {"float4 sum = (float4)(C_AT(0)", "float4 sum = (float4)(0"},
        {"void matrix_probe(", "void matrix_probe(no"},
    };
    clef__device *device = clef__device_at(ctx, 0);
    cr_assert(clef__matrix_probe(device, ""), "it does");
    clef__embedded_hook = changed;
    for (size_t i = 0; i < sizeof broken / sizeof *broken - small_tests(); i++) { /* Oclgrind reports what does not compile */
        from = broken[i][0], to = broken[i][1];
        cr_assert(strstr(clef__embedded("matrix_probe.cl"), to), "\"%s\" does not occur", from);
        cr_assert(!clef__matrix_probe(device, ""), "\"%s\" passed", to);
    }
    clef__embedded_hook = NULL;
}
