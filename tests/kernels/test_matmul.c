/* Products against plain loops: bit for bit on whole numbers, within bounds on others; transposes, broadcasts, dtypes,
   gradients of first and second order, errors.
   ctest: cost=45 */
#include "support/numbers.h"
#include "support/product.h"
#include "support/suite.h"

TestSuite(matmul, .init = open_device, .fini = close_device);

static array reference(array a, bool ta, array b, bool tb, int64_t m, int64_t n, int64_t k, bool absolute) {
    array y = array_new(CLEF_SHAPE(m, n));
    product(a.v, ta ? 1 : k, ta ? m : 1, b.v, tb ? 1 : n, tb ? k : 1, y.v, m, n, k, absolute);
    return y;
}

/* x times a leaf of one 1: not a leaf any more, of which something may be kept. */
static clef_tensor *computed(clef_tensor *x) {
    float one = 1;
    return clef_mul(x, clef_to(clef_from_host(ctx, CLEF_SHAPE(1), CLEF_F32, &one), clef_tensor_dtype(x)));
}

static bool computes_b;
static clef_tensor *multiply(array a, bool ta, array b, bool tb, clef_dtype dtype) {
    clef_tensor *x = to_device(ctx, a, dtype), *y = to_device(ctx, b, dtype);
    if (computes_b) y = computed(y);
    return clef_matmul(ta ? clef_transpose(x, 0, 1) : x, tb ? clef_transpose(y, 0, 1) : y);
}

static void check_exact(int64_t m, int64_t n, int64_t k, bool ta, bool tb, clef_dtype dtype, int range) {
    char what[128];
    snprintf(what, sizeof what, "%s m %lld n %lld k %lld %c%c", clef_dtype_name(dtype), (long long)m, (long long)n, (long long)k,
             ta ? 'T' : 'N', tb ? 'T' : 'N');
    array a = whole_array(matrix(m, k, ta), 1, range), b = whole_array(matrix(k, n, tb), 2, range);
    array want = reference(a, ta, b, tb, m, n, k, false);
    expect_equal(multiply(a, ta, b, tb, dtype), want, what);
    free(a.v), free(b.v), free(want.v);
    clef_end_step(ctx);
}

Test(matmul, odd_sizes_in_all_four_orders) {
    static const int64_t sizes[][3] = {{1, 1, 1},   {2, 3, 4},    {12, 32, 8},  {13, 33, 17},   {5, 7, 300}, {1, 65, 33},
                                       {4, 16, 50}, {25, 6, 129}, {64, 64, 64}, {100, 84, 120}, {3, 200, 1}, {97, 48, 5},
                                       {40, 1, 70}, {1, 1, 1000}, {61, 8, 3},   {36, 96, 1024}};
    for (size_t i = 0; i < (test_small() ? 4 : sizeof sizes / sizeof *sizes); i++)
        for (int order = 0; order < 4; order++)
            if (!few_kernels() || order == (int)i)
                check_exact(sizes[i][0], sizes[i][1], sizes[i][2], order & 1, order & 2, CLEF_F32, 4);
}

/* By lines of b, or of a that lies transposed: ends of vectors and of runs, few lines and many, more columns than a block. */
Test(matmul, few_rows_and_few_columns_by_lines) {
    static const clef_dtype dtypes[] = {CLEF_F16, CLEF_BF16, CLEF_F64, CLEF_I32, CLEF_I64};
    static const int64_t n[] = {16, 1, 33, 200, 4099}, k[] = {16, 67, 15, 530};
    setenv("CLEF_ROWS", "lines", 1);
    for (int64_t m = 1; m <= 7; m += few_kernels() ? 3 : 1)
        for (int i = 0; i < (few_kernels() ? 1 : 5); i++)
            for (int j = 0; j < (test_small() ? 2 : 4); j++) {
                check_exact(m, n[i], k[j], i == j, false, CLEF_F32, 4);
                check_exact(n[i], m, k[j], true, i == j, CLEF_F32, 4);
            }
    for (int i = 0; i < (few_kernels() ? 1 : 5); i++) {
        if (dtypes[i] == CLEF_F64 && !has_f64(ctx)) continue;
        check_exact(1 + i, 75, 70, false, false, dtypes[i], 1);
        check_exact(75, 1 + i, 70, true, false, dtypes[i], 1);
    }
    unsetenv("CLEF_ROWS");
}

/* Few rows by columns that lie along k, by the transpose: a along k and across, ends of tiles and of squares, sums in blocks and splits. */
Test(matmul, few_rows_by_the_transpose) {
    static const clef_dtype dtypes[] = {CLEF_I32, CLEF_F64, CLEF_I64};
    static const int64_t sizes[][3] = {{5, 33, 67},   {1, 16, 3},   {16, 70, 4100}, {33, 200, 530}, {97, 1031, 16},
                                       {16, 200, 67}, {5, 1031, 3}, {8, 75, 9000},  {3, 16, 530},   {64, 128, 64}};
    setenv("CLEF_ROWS", "transposed", 1);
    computes_b = true;
    for (int i = 0; i < (few_kernels() ? 2 : test_small() ? 5 : 10); i++)
        for (int ta = 0; ta < 2; ta++) check_exact(sizes[i][0], sizes[i][1], sizes[i][2], ta, true, CLEF_F32, 2);
    for (int i = 0; i < (few_kernels() ? 1 : 3); i++) {
        if (dtypes[i] == CLEF_F64 && !has_f64(ctx)) continue;
        check_exact(3 * i + 2, 75, 70, i == 1, true, dtypes[i], 1);
    }
    computes_b = false;
    unsetenv("CLEF_ROWS");
}

/* What a last store does besides: a bias along the lines, a function, a sum; and batches that share a factor. */
Test(matmul, lines_have_ends_and_batches) {
    setenv("CLEF_ROWS", "lines", 1);
    for (int m = 1; m <= 7; m += 3) {
        clef_tensor *x = clef_randn(ctx, CLEF_SHAPE(m, 70)), *w = clef_randn(ctx, CLEF_SHAPE(70, 45)),
                    *b = clef_randn(ctx, CLEF_SHAPE(45)), *r = clef_randn(ctx, CLEF_SHAPE(m, 45)),
                    *z = clef_randn(ctx, CLEF_SHAPE(2, 3, m, 70)), *v = clef_randn(ctx, CLEF_SHAPE(3, 70, 45));
        clef_tensor *y[] = {clef_add(clef_relu(clef_linear(x, clef_transpose(w, 0, 1), b)), r), clef_matmul(z, v),
                            clef_mul(clef_matmul(clef_transpose(w, 0, 1), clef_transpose(x, 0, 1)), clef_transpose(r, 0, 1))};
        clef_tensor *sum = clef_sum(clef_mul(clef_unsqueeze(x, 2), clef_unsqueeze(w, 0)), (int[]){1}, 1, false);
        clef_tensor *want[] = {clef_add(clef_relu(clef_add(sum, b)), r),
                               clef_sum(clef_mul(clef_unsqueeze(z, 4), clef_unsqueeze(v, 1)), (int[]){3}, 1, false),
                               clef_mul(clef_transpose(sum, 0, 1), clef_transpose(r, 0, 1))};
        for (int i = 0; i < 3; i++)
            cr_expect_lt(clef_item(clef_max(clef_abs(clef_sub(y[i], want[i])), NULL, 0, false)), 1e-4, "%d rows, %d", m, i);
        clef_end_step(ctx);
    }
    unsetenv("CLEF_ROWS");
}

/* Then a copy makes c of its transpose. */
static bool by_the_transpose(clef_tensor *y) {
    const char *plan = plan_text(y);
    return strstr(plan, "copy ") || !strstr(plan, "gemm.cl"); /* a GPU's plan has no gemm.cl */
}

Test(matmul, transposes_have_ends_and_batches) {
    setenv("CLEF_ROWS", "transposed", 1);
    for (int m = 3; m <= (few_kernels() ? 3 : 21); m += 9) {
        int64_t k = m == 12 ? 530 : 70; /* in splits */
        clef_tensor *x = clef_randn(ctx, CLEF_SHAPE(m, k)), *w = clef_randn(ctx, CLEF_SHAPE(45, k)),
                    *b = clef_randn(ctx, CLEF_SHAPE(45)), *r = clef_randn(ctx, CLEF_SHAPE(m, 45)),
                    *z = clef_randn(ctx, CLEF_SHAPE(2, 3, m, k)), *v = clef_randn(ctx, CLEF_SHAPE(3, 45, k)),
                    *s = clef_randn(ctx, CLEF_SHAPE(45, m));
        clef_tensor **made[] = {&x, &w, &b, &r, &z, &v, &s};
        for (int i = 0; i < 7; i++) *made[i] = clef_keep(clef_round(*made[i])); /* so that sums are exact */
        cr_assert_eq(clef_eval_all((clef_tensor *[]){x, w, b, r, z, v, s}, 7), CLEF_OK);
        clef_tensor *kept[] = {x, w, b, r, z, v, s};
        w = computed(w), v = computed(v);
        clef_tensor *y[] = {clef_linear(x, w, CLEF_NONE),
                            clef_linear(x, w, b),
                            clef_relu(clef_add(clef_linear(x, w, CLEF_NONE), r)),
                            clef_mul_scalar(clef_linear(x, w, CLEF_NONE), 0.5),
                            clef_relu(clef_linear(x, w, b)),
                            clef_matmul(z, clef_transpose(v, 1, 2)),
                            clef_add(clef_transpose(clef_linear(x, w, b), 0, 1), s)};
        for (int i = 0; i < 7; i++) cr_expect(by_the_transpose(y[i]), "%d rows, %d", m, i);
        clef_tensor *sum = clef_sum(clef_mul(clef_unsqueeze(x, 1), clef_unsqueeze(w, 0)), (int[]){2}, 1, false),
                    *all = clef_add(sum, b);
        clef_tensor *want[] = {sum,
                               all,
                               clef_relu(clef_add(sum, r)),
                               clef_mul_scalar(sum, 0.5),
                               clef_relu(all),
                               clef_sum(clef_mul(clef_unsqueeze(z, 3), clef_unsqueeze(v, 1)), (int[]){4}, 1, false),
                               clef_add(clef_transpose(all, 0, 1), s)};
        for (int i = 0; i < 7; i++)
            cr_expect_eq(clef_item(clef_max(clef_abs(clef_sub(y[i], want[i])), NULL, 0, false)), 0, "%d rows, %d", m, i);
        for (int i = 0; i < 7; i++) clef_release(kept[i]);
        clef_end_step(ctx);
    }
    unsetenv("CLEF_ROWS");
}

/* Panels of a weight that stays, or that many products read, serve them all. */
Test(matmul, no_transpose_of_what_is_read_often) {
    setenv("CLEF_ROWS", "transposed", 1);
    clef_tensor *x = clef_randn(ctx, CLEF_SHAPE(8, 96)), *w = clef_randn(ctx, CLEF_SHAPE(96, 96)), *made[] = {x, w};
    cr_assert_eq(clef_eval_all(made, 2), CLEF_OK);
    cr_expect(!strstr(plan_text(clef_linear(x, w, CLEF_NONE)), "copy "), "a leaf");
    clef_tensor *v = computed(w), *h = x;
    for (int i = 0; i < 8; i++) h = clef_linear(h, v, CLEF_NONE);
    cr_expect(!strstr(plan_text(h), "copy "), "eight products");
    clef_end_step(ctx);
    unsetenv("CLEF_ROWS");
}

/* Whose costs ask for products that lie nowhere yet: each as all of its plan. */
Test(matmul, convolutions_of_one_plan) {
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(1, 64, 4, 4), CLEF_F32), *w = clef_ones(ctx, CLEF_SHAPE(64, 3, 4, 4), CLEF_F32),
                *p = clef_ones(ctx, CLEF_SHAPE(1, 32, 1, 1), CLEF_F32), *q = clef_ones(ctx, CLEF_SHAPE(32, 32, 1, 1), CLEF_F32);
    clef_tensor *made[] = {x, w, p, q};
    bool was = clef_set_grad_enabled(ctx, false);
    cr_assert_eq(clef_eval_all(made, 4), CLEF_OK);
    clef_tensor *up = clef_conv_transpose2d(x, w, CLEF_NONE, &(clef_conv_transpose2d_options){.stride = {4, 4}});
    clef_tensor *one = clef_conv2d(p, q, CLEF_NONE, NULL);
    cr_expect_eq(clef_item(clef_sum(up, NULL, 0, false)), 64.0 * 3 * 16 * 16);
    cr_expect_eq(clef_item(clef_sum(one, NULL, 0, false)), 32.0 * 32);
    clef_set_grad_enabled(ctx, was);
    clef_end_step(ctx);
}

Test(matmul, long_sums_are_cut_and_added) {
    if (test_small()) cr_skip_test("many shapes: not on a slow device (CLEF_TEST_SMALL)");
    check_exact(30, 20, 20000, false, false, CLEF_F32, 4);
    check_exact(3, 5, 9999, true, true, CLEF_F32, 4);
    check_exact(50, 70, 9217, false, true, CLEF_F32, 4);
    check_exact(300, 150, 4099, false, false, CLEF_F32, 4); /* enough tiles to go in blocks instead */
    check_exact(300, 150, 4099, true, false, CLEF_F16, 1);
}

/* Rows enough, and columns, that work-items pack what they read of a: whole squares and what is left of them, tiles that are not full,
   one block along k and several. */
Test(matmul, many_rows_and_columns) {
    static const int64_t sizes[][3] = {{161, 205, 37}, {150, 70, 1037}, {192, 200, 516}, {169, 193, 3}};
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_F16, CLEF_I32, CLEF_I64};
    for (size_t i = 0; i < (test_small() ? 1 : sizeof sizes / sizeof *sizes); i++)
        for (int order = 0; order < (fewest_kernels() ? 1 : few_kernels() ? 2 : 4); order++)
            for (int d = 0; d < (test_small() ? 1 : 4); d++)
                check_exact(sizes[i][0], sizes[i][1], sizes[i][2], order & 1, order & 2, dtypes[d], 1);
}

/* Sizes of real networks, wrapped into what a plain loop can check. */
static int64_t wrapped(long size) { return size > 160 ? 97 + size % 64 : size; }

/* DeepBench's kinds: m, n, k, and which of a and b are transposed. */
static const char some_shapes[] = "-,1760,16,1760,0,0\n-,2048,7000,2048,0,0\n-,4096,128,4096,0,0\n-,2048,64,2048,1,0\n"
                                  "-,4096,32,4096,1,0\n-,35,8457,1760,0,0\n-,35,8457,2560,1,0\n-,5124,9124,2048,1,0\n"
                                  "-,7680,128,2560,0,0\n-,3072,16,1024,1,0\n-,1024,16,500000,0,0\n-,7680,5481,2560,0,1\n"
                                  "-,6144,2,2048,0,0\n-,4608,24000,1536,0,0\n-,8448,24000,2816,1,0\n-,1024,48000,2816,0,0\n"
                                  "-,5124,700,2560,0,0\n-,3072,1,1024,0,0\n-,8448,1,2816,0,0\n-,1024,4,512,0,0\n-,3072,1,128,0,0\n";

Test(matmul, deepbench_shapes) {
    if (few_kernels()) return;
    FILE *f = shapes_file("deepbench_gemm.csv", some_shapes);
    char line[256];
    int rows = 0;
    while (fgets(line, sizeof line, f) && (!test_small() || rows < 2)) {
        long m, n, k;
        int ta, tb;
        if (sscanf(line, "%*[^,],%ld,%ld,%ld,%d,%d", &m, &n, &k, &ta, &tb) != 5) continue;
        check_exact(wrapped(m), wrapped(n), wrapped(k), ta, tb, CLEF_F32, 4);
        rows++;
    }
    fclose(f);
    cr_assert(rows >= (test_small() ? 1 : 20));
}

Test(matmul, random_numbers_stay_within_bounds) {
    if (few_kernels()) return;
    static const int64_t sizes[][3] = {{33, 47, 29}, {64, 100, 1000}, {10, 84, 6000}};
    for (size_t i = 0; i < (test_small() ? 1 : 3); i++)
        for (int order = 0; order < 4; order++) {
            int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
            bool ta = order & 1, tb = order & 2;
            array a = noise_array(matrix(m, k, ta), 3), b = noise_array(matrix(k, n, tb), 4);
            array want = reference(a, ta, b, tb, m, n, k, false), scale = reference(a, ta, b, tb, m, n, k, true);
            expect_bounded(multiply(a, ta, b, tb, CLEF_F32), want, scale, (double)k, "random");
            free(a.v), free(b.v), free(want.v), free(scale.v);
        }
}

Test(matmul, half_types_and_integers_are_exact) {
    static const clef_dtype dtypes[] = {CLEF_F16, CLEF_BF16, CLEF_I32, CLEF_I64};
    for (int d = 0; d < 4; d++)
        for (int order = 0; order < (test_small() ? 1 : 4); order++) {
            check_exact(13, 35, 30, order & 1, order & 2, dtypes[d], 2);
            if (!test_small()) check_exact(3, 7, 11, order & 1, order & 2, dtypes[d], 2);
        }
}

Test(matmul, long_integers_do_not_round) {
    int64_t a[6] = {3000000019, -7, 11, 5, 123456789012, 1}, b[6] = {1000003, 17, -5, 99991, 2, -3}, y[4], want[4] = {0};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            for (int k = 0; k < 3; k++) want[i * 2 + j] += a[i * 3 + k] * b[k * 2 + j];
    clef_tensor *p =
        clef_matmul(clef_from_host(ctx, CLEF_SHAPE(2, 3), CLEF_I64, a), clef_from_host(ctx, CLEF_SHAPE(3, 2), CLEF_I64, b));
    cr_assert(clef_read(p, y, sizeof y) == CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < 4; i++) cr_assert(y[i] == want[i]);
}

Test(matmul, doubles) {
    if (!has_f64(ctx)) cr_skip_test("the device has no f64");
    array a = noise_array(CLEF_SHAPE(29, 70), 5), b = noise_array(CLEF_SHAPE(70, 41), 6);
    array want = reference(a, false, b, false, 29, 41, 70, false), have = from_device(multiply(a, false, b, false, CLEF_F64));
    for (int i = 0; i < 29 * 41; i++) cr_assert(fabs(have.v[i] - want.v[i]) < 1e-13);
    for (int order = 0; order < 4; order++) check_exact(161, 205, 37, order & 1, order & 2, CLEF_F64, 4);
}

/* Shapes of a, b and their product, rank by rank from the end as NumPy broadcasts. */
static void check_batches(clef_shape a, clef_shape b, clef_shape y, clef_dtype dtype, int range) {
    array p = whole_array(a, 7, range), q = whole_array(b, 8, range), want = array_new(y);
    int64_t m = y.dim[y.rank - 2], n = y.dim[y.rank - 1], k = a.dim[a.rank - 1];
    int64_t count = clef_shape_numel(y) / (m * n);
    for (int64_t z = 0; z < count; z++) {
        int64_t rest = z, at_a = 0, at_b = 0, size_a = m * k, size_b = k * n;
        for (int d = y.rank - 3; d >= 0; d--) {
            int64_t i = rest % y.dim[d];
            int da = d - (y.rank - a.rank), db = d - (y.rank - b.rank);
            rest /= y.dim[d];
            if (da >= 0) at_a += (a.dim[da] > 1 ? i : 0) * size_a, size_a *= a.dim[da];
            if (db >= 0) at_b += (b.dim[db] > 1 ? i : 0) * size_b, size_b *= b.dim[db];
        }
        product(p.v + at_a, k, 1, q.v + at_b, n, 1, want.v + z * m * n, m, n, k, false);
    }
    char what[96];
    expect_equal(clef_matmul(to_device(ctx, p, dtype), to_device(ctx, q, dtype)), want, clef_shape_format(y, what, sizeof what));
    free(p.v), free(q.v), free(want.v);
}

static void check_batched(clef_shape a, clef_shape b, clef_shape y) { check_batches(a, b, y, CLEF_F32, 4); }

/* Long sums of a half type go in splits; rows a page apart are packed, and those of the last tile are not all there. */
Test(matmul, batches_in_splits) {
    if (test_small()) cr_skip_test("long sums: not on a slow device (CLEF_TEST_SMALL)");
    check_batches(CLEF_SHAPE(3, 13, 5120), CLEF_SHAPE(3, 5120, 40), CLEF_SHAPE(3, 13, 40), CLEF_F16, 1);
}

Test(matmul, leading_dimensions_broadcast) {
    check_batched(CLEF_SHAPE(3, 5, 7), CLEF_SHAPE(7, 9), CLEF_SHAPE(3, 5, 9));
    check_batched(CLEF_SHAPE(5, 7), CLEF_SHAPE(4, 7, 9), CLEF_SHAPE(4, 5, 9));
    check_batched(CLEF_SHAPE(2, 3, 5, 7), CLEF_SHAPE(2, 3, 7, 9), CLEF_SHAPE(2, 3, 5, 9));
    if (test_small()) return;
    check_batched(CLEF_SHAPE(2, 1, 5, 7), CLEF_SHAPE(1, 3, 7, 9), CLEF_SHAPE(2, 3, 5, 9));
    check_batched(CLEF_SHAPE(2, 1, 2, 13, 7), CLEF_SHAPE(1, 3, 1, 7, 35), CLEF_SHAPE(2, 3, 2, 13, 35));
    check_batched(CLEF_SHAPE(2, 1, 2, 1, 13, 7), CLEF_SHAPE(3, 1, 4, 7, 35), CLEF_SHAPE(2, 3, 2, 4, 13, 35));
    check_batched(CLEF_SHAPE(1, 1, 70), CLEF_SHAPE(6, 70, 40), CLEF_SHAPE(6, 1, 40));
}

Test(matmul, vectors_as_in_numpy) {
    array a = whole_array(CLEF_SHAPE(7), 1, 4), m = whole_array(CLEF_SHAPE(7, 3), 2, 4), y = array_new(CLEF_SHAPE(3));
    array n = whole_array(CLEF_SHAPE(3, 7), 3, 4), z = array_new(CLEF_SHAPE(3)), s = array_new(CLEF_SCALAR);
    product(a.v, 7, 1, m.v, 3, 1, y.v, 1, 3, 7, false);
    product(n.v, 7, 1, a.v, 1, 1, z.v, 3, 1, 7, false);
    product(a.v, 7, 1, a.v, 1, 1, s.v, 1, 1, 7, false);
    clef_tensor *v = to_device(ctx, a, CLEF_F32);
    expect_equal(clef_matmul(v, to_device(ctx, m, CLEF_F32)), y, "vector times matrix");
    expect_equal(clef_matmul(to_device(ctx, n, CLEF_F32), v), z, "matrix times vector");
    expect_equal(clef_matmul(v, v), s, "vector times vector");
}

Test(matmul, strided_views_need_no_copy) {
    array a = whole_array(CLEF_SHAPE(20, 30), 1, 4), b = whole_array(CLEF_SHAPE(30, 40), 2, 4), y = array_new(CLEF_SHAPE(10, 20));
    product(a.v + 19 * 30 + 1, -60, 2, b.v + 3 * 40, 80, 2, y.v, 10, 20, 10, false);
    clef_tensor *x = clef_slice(clef_slice(clef_flip(to_device(ctx, a, CLEF_F32), 0), 0, 0, 20, 2), 1, 1, 21, 2);
    clef_tensor *w = clef_slice(clef_slice(to_device(ctx, b, CLEF_F32), 0, 3, 23, 2), 1, 0, 40, 2);
    expect_equal(clef_matmul(x, w), y, "views");
}

Test(matmul, empty_operands) {
    expect_shape(clef_matmul(clef_zeros(ctx, CLEF_SHAPE(0, 4), CLEF_F32), clef_zeros(ctx, CLEF_SHAPE(4, 3), CLEF_F32)),
                 CLEF_SHAPE(0, 3));
    array none = array_new(CLEF_SHAPE(2, 3)), b = whole_array(CLEF_SHAPE(3), 1, 4);
    expect_equal(clef_matmul(clef_zeros(ctx, CLEF_SHAPE(2, 0), CLEF_F32), clef_zeros(ctx, CLEF_SHAPE(0, 3), CLEF_F32)), none,
                 "sum over nothing");
    for (int i = 0; i < 6; i++) none.v[i] = b.v[i % 3];
    expect_equal(clef_linear(clef_zeros(ctx, CLEF_SHAPE(2, 0), CLEF_F32), clef_zeros(ctx, CLEF_SHAPE(3, 0), CLEF_F32),
                             to_device(ctx, b, CLEF_F32)),
                 none, "bias alone");
}

static array linear_reference(array x, array w, array b, int64_t m, int64_t n, int64_t k) {
    array y = array_new(CLEF_SHAPE(m, n));
    for (int64_t i = 0; i < m * n; i++) y.v[i] = b.v[i % n];
    product(x.v, k, 1, w.v, 1, k, y.v, m, n, k, false);
    return y;
}

/* Of half types, whose operands are converted where a device has no products of them. */
Test(matmul, empty_operands_of_half_types) {
    static const clef_dtype dtypes[] = {CLEF_F16, CLEF_BF16};
    for (int i = 0; i < 2; i++) {
        clef_tensor *w = clef_require_grad(clef_keep(clef_ones(ctx, CLEF_SHAPE(4, 3), dtypes[i])), true);
        float zeros[6], dw[12];
        clef_tensor *none = clef_matmul(clef_zeros(ctx, CLEF_SHAPE(2, 0), dtypes[i]), clef_zeros(ctx, CLEF_SHAPE(0, 3), dtypes[i]));
        cr_assert_eq(clef_read(clef_to(none, CLEF_F32), zeros, sizeof zeros), CLEF_OK, "%s", clef_error(ctx));
        for (int k = 0; k < 6; k++) cr_expect_eq(zeros[k], 0);
        clef_tensor *y = clef_linear(clef_zeros(ctx, CLEF_SHAPE(0, 3), dtypes[i]), w, CLEF_NONE);
        cr_expect_eq(clef_backward(clef_sum(y, NULL, 0, false)), CLEF_OK, "%s", clef_error(ctx));
        cr_assert_eq(clef_read(clef_to(clef_grad_of(w), CLEF_F32), dw, sizeof dw), CLEF_OK, "%s", clef_error(ctx));
        for (int k = 0; k < 12; k++) cr_expect_eq(dw[k], 0);
        clef_release(w);
    }
}

Test(matmul, linear_adds_its_bias) {
    static const int64_t sizes[][3] = {{9, 10, 5}, {100, 120, 256}, {1, 84, 120}, {2, 10, 5000}, {17, 6, 3}};
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_F32, CLEF_F32, CLEF_F32, CLEF_F16};
    for (int i = 0; i < (test_small() ? 1 : 5); i++) {
        int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
        array x = whole_array(CLEF_SHAPE(m, k), 1, 4), w = whole_array(CLEF_SHAPE(n, k), 2, 4),
              b = whole_array(CLEF_SHAPE(n), 3, 9);
        clef_tensor *y = clef_linear(to_device(ctx, x, dtypes[i]), to_device(ctx, w, dtypes[i]), to_device(ctx, b, dtypes[i]));
        expect_equal(y, linear_reference(x, w, b, m, n, k), "linear");
    }
    array x = whole_array(CLEF_SHAPE(5), 1, 4), w = whole_array(CLEF_SHAPE(3, 5), 2, 4), b = whole_array(CLEF_SHAPE(3), 3, 9);
    array y = linear_reference(x, w, b, 1, 3, 5);
    y.shape = CLEF_SHAPE(3);
    expect_equal(clef_linear(to_device(ctx, x, CLEF_F32), to_device(ctx, w, CLEF_F32), to_device(ctx, b, CLEF_F32)), y, "one row");
}

Test(matmul, gradients_are_products_too) {
    int64_t m = 13, n = 35, k = 22;
    array a = whole_array(CLEF_SHAPE(m, k), 1, 4), b = whole_array(CLEF_SHAPE(k, n), 2, 4), g = whole_array(CLEF_SHAPE(m, n), 3, 4);
    array da = array_new(a.shape), db = array_new(b.shape);
    product(g.v, n, 1, b.v, 1, n, da.v, m, k, n, false);
    product(a.v, 1, k, g.v, n, 1, db.v, k, n, m, false);
    clef_tensor *x[2] = {to_leaf(ctx, a, CLEF_F32), to_leaf(ctx, b, CLEF_F32)}, *dx[2];
    cr_assert(clef_grad(clef_matmul(x[0], x[1]), to_device(ctx, g, CLEF_F32), x, 2, false, dx) == CLEF_OK, "%s", clef_error(ctx));
    expect_equal(dx[0], da, "by a");
    expect_equal(dx[1], db, "by b");
}

Test(matmul, gradients_of_broadcasts_are_sums) {
    if (few_kernels()) return;
    array a = whole_array(CLEF_SHAPE(2, 1, 3, 4), 1, 4), b = whole_array(CLEF_SHAPE(5, 4, 6), 2, 4);
    array g = whole_array(CLEF_SHAPE(2, 5, 3, 6), 3, 4), da = array_new(a.shape), db = array_new(b.shape);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 5; j++) {
            const double *at = g.v + (i * 5 + j) * 18;
            product(at, 6, 1, b.v + j * 24, 1, 6, da.v + i * 12, 3, 4, 6, false);
            product(a.v + i * 12, 1, 4, at, 6, 1, db.v + j * 24, 4, 6, 3, false);
        }
    clef_tensor *x[2] = {to_leaf(ctx, a, CLEF_F32), to_leaf(ctx, b, CLEF_F32)}, *dx[2];
    cr_assert(clef_grad(clef_matmul(x[0], x[1]), to_device(ctx, g, CLEF_F32), x, 2, false, dx) == CLEF_OK, "%s", clef_error(ctx));
    expect_equal(dx[0], da, "by a");
    expect_equal(dx[1], db, "by b");
}

Test(matmul, gradients_of_linear) {
    array x = whole_array(CLEF_SHAPE(2, 5, 7), 1, 4), w = whole_array(CLEF_SHAPE(3, 7), 2, 4), b = whole_array(CLEF_SHAPE(3), 3, 4);
    array g = whole_array(CLEF_SHAPE(2, 5, 3), 4, 4), dx = array_new(x.shape), dw = array_new(w.shape), db = array_new(b.shape);
    product(g.v, 3, 1, w.v, 7, 1, dx.v, 10, 7, 3, false);
    product(g.v, 1, 3, x.v, 7, 1, dw.v, 3, 7, 10, false);
    for (int i = 0; i < 30; i++) db.v[i % 3] += g.v[i];
    clef_tensor *in[3] = {to_leaf(ctx, x, CLEF_F32), to_leaf(ctx, w, CLEF_F32), to_leaf(ctx, b, CLEF_F32)}, *d[3];
    cr_assert(clef_grad(clef_linear(in[0], in[1], in[2]), to_device(ctx, g, CLEF_F32), in, 3, false, d) == CLEF_OK);
    expect_equal(d[0], dx, "by x");
    expect_equal(d[1], dw, "by w");
    expect_equal(d[2], db, "by b");
}

/* s = sum (aᵀg)², so ds/da = 2·g·(aᵀg)ᵀ. */
Test(matmul, second_order) {
    if (few_kernels()) return;
    array a = whole_array(CLEF_SHAPE(4, 3), 1, 3), b = whole_array(CLEF_SHAPE(3, 5), 2, 3), g = whole_array(CLEF_SHAPE(4, 5), 3, 3);
    array db = array_new(CLEF_SHAPE(3, 5)), want = array_new(a.shape);
    product(a.v, 1, 3, g.v, 5, 1, db.v, 3, 5, 4, false);
    product(g.v, 5, 1, db.v, 1, 5, want.v, 4, 3, 5, false);
    for (int i = 0; i < 12; i++) want.v[i] *= 2;
    clef_tensor *x = to_leaf(ctx, a, CLEF_F32), *y = to_leaf(ctx, b, CLEF_F32), *first, *second;
    cr_assert(clef_grad(clef_matmul(x, y), to_device(ctx, g, CLEF_F32), &y, 1, true, &first) == CLEF_OK, "%s", clef_error(ctx));
    clef_tensor *s = clef_sum(clef_mul(first, first), NULL, 0, false);
    cr_assert(clef_grad(s, CLEF_NONE, &x, 1, false, &second) == CLEF_OK, "%s", clef_error(ctx));
    expect_equal(second, want, "second derivative");
}

Test(matmul, same_bits_every_time) {
    if (few_kernels()) return;
    int64_t k = test_small() ? 600 : 3000;
    array a = noise_array(CLEF_SHAPE(50, k), 5), b = noise_array(CLEF_SHAPE(k, 7), 6);
    float *first = NULL;
    for (int i = 0; i < (test_small() ? 2 : 3); i++) {
        float *v = values(multiply(a, false, b, false, CLEF_F32));
        if (first) cr_assert(memcmp(first, v, 350 * sizeof *v) == 0);
        else first = v;
    }
}

Test(matmul, errors_say_what_does_not_fit) {
    clef_tensor *a = clef_zeros(ctx, CLEF_SHAPE(2, 3), CLEF_F32), *b = clef_zeros(ctx, CLEF_SHAPE(4, 5), CLEF_F32);
    cr_assert_null(clef_matmul(a, b));
    expect_error(ctx, CLEF_SHAPE, "matmul: a has 3 columns but b has 4 rows (a [2,3], b [4,5])");
    cr_assert_null(clef_matmul(clef_zeros(ctx, CLEF_SHAPE(2, 1, 3), CLEF_F32), clef_zeros(ctx, CLEF_SHAPE(3, 3, 1), CLEF_F32)));
    expect_error(ctx, CLEF_SHAPE, "matmul: leading dimensions do not broadcast (a [2,1,3], b [3,3,1])");
    cr_assert_null(clef_matmul(a, clef_scalar(ctx, 1)));
    expect_error(ctx, CLEF_SHAPE, "matmul: a scalar is no matrix");
    cr_assert_null(clef_matmul(a, clef_zeros(ctx, CLEF_SHAPE(3, 1), CLEF_F16)));
    expect_error(ctx, CLEF_DTYPE, "matmul: the inputs are f32 and f16");
    cr_assert_null(clef_linear(a, b, CLEF_NONE));
    expect_error(ctx, CLEF_SHAPE, "linear: x has 3 features but w wants 5 (x [2,3], w [4,5])");
    cr_assert_null(clef_linear(a, clef_zeros(ctx, CLEF_SHAPE(4, 3), CLEF_F32), clef_zeros(ctx, CLEF_SHAPE(3), CLEF_F32)));
    expect_error(ctx, CLEF_SHAPE, "linear: b must be [4] to go with w [4,3], not [3]");
    cr_assert_null(clef_matmul(NULL, a));
    clef_clear_error(ctx);
}
