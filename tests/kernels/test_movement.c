/* test_movement.c — views and copies against plain index arithmetic on the host; exact, as nothing is computed.

   Gradients are checked as adjoints: Σ f(x)·g = Σ x·f'(g) for integers, for every function here is linear. */
#include "support/numbers.h"

static clef_tensor *counted(clef_context *ctx, clef_shape shape, clef_dtype dtype) {
    int64_t n = clef_shape_numel(shape);
    double *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (double)(i * 7 % 101 - 50);
    if (dtype == CLEF_BOOL || dtype == CLEF_U8)
        for (int64_t i = 0; i < n; i++) x[i] = (double)(i * 7 % (dtype == CLEF_BOOL ? 2 : 251));
    clef_tensor *t = tensor_of(ctx, shape, dtype, x);
    free(x);
    return t;
}

/* Where element `at` of a row-major shape lies: its coordinates. */
static void coordinates(clef_shape shape, int64_t at, int64_t *c) {
    for (int d = shape.rank - 1; d >= 0; d--) c[d] = at % shape.dim[d], at /= shape.dim[d];
}
static int64_t position(clef_shape shape, const int64_t *c) {
    int64_t at = 0;
    for (int d = 0; d < shape.rank; d++) at = at * shape.dim[d] + c[d];
    return at;
}

static double dot(clef_tensor *a, clef_tensor *b) { return clef_item(clef_sum(clef_mul(a, b), NULL, 0, false)); }

/* y = f(x) was made from x: <y, g> = <x, dx>. */
static void check_adjoint(clef_tensor *x, clef_tensor *y, const char *what) {
    clef_context *ctx = clef_tensor_context(x);
    clef_tensor *g = counted(ctx, clef_tensor_shape(y), CLEF_F32), *dx;
    cr_assert(clef_grad(y, g, &x, 1, false, &dx) == CLEF_OK, "%s: %s", what, clef_error(ctx));
    expect_shape(dx, clef_tensor_shape(x));
    cr_expect(dot(y, g) == dot(x, dx), "%s: %g is not %g", what, dot(y, g), dot(x, dx));
}

Test(movement, reshape_of_views) {
    clef_context *ctx = open_seeded(1);
    clef_shape shape = CLEF_SHAPE(4, 6, 5), order = CLEF_SHAPE(5, 6, 4);
    clef_tensor *x = parameter(counted(ctx, shape, CLEF_F32)), *t = clef_transpose(x, 0, 2),
                *y = clef_reshape(t, CLEF_SHAPE(10, -1));
    double *in = numbers(x), want[120];
    for (int64_t i = 0; i < 120; i++) {
        int64_t c[3];
        coordinates(order, i, c);
        want[i] = in[position(shape, (int64_t[]){c[2], c[1], c[0]})];
    }
    expect_shape(y, CLEF_SHAPE(10, 12));
    expect_numbers(y, want, 0, 0, "reshape of a transpose");
    expect_numbers(t, want, 0, 0, "transpose");
    check_adjoint(x, y, "reshape");
    clef_tensor *z = clef_reshape(clef_slice(x, 0, 1, 3, 1), CLEF_SHAPE(2, 2, 3, 5)); /* splits a dimension of a slice: a view */
    for (int i = 0; i < 60; i++) want[i] = in[30 + i];
    expect_numbers(z, want, 0, 0, "reshape of a slice");
    expect_shape(clef_reshape(clef_zeros(ctx, CLEF_SHAPE(0, 3), CLEF_F32), CLEF_SHAPE(3, 0, 2)), CLEF_SHAPE(3, 0, 2));
    expect_shape(clef_reshape(clef_ones(ctx, CLEF_SHAPE(1, 1), CLEF_F32), CLEF_SCALAR), CLEF_SCALAR);
    expect_shape(clef_flatten(x, 1, -1), CLEF_SHAPE(4, 30));
    expect_shape(clef_flatten(clef_scalar(ctx, 1), 0, -1), CLEF_SHAPE(1));
    expect_shape(clef_unsqueeze(x, -1), CLEF_SHAPE(4, 6, 5, 1));
    expect_shape(clef_squeeze(clef_unsqueeze(x, 1), 1), shape);
    cr_expect(!clef_reshape(x, CLEF_SHAPE(7, -1)));
    expect_error(ctx, CLEF_SHAPE, "reshape: [4,6,5] does not fit into [7,-1]");
    cr_expect(!clef_squeeze(x, 0));
    expect_error(ctx, CLEF_SHAPE, "squeeze: dimension 0");
    free(in);
    clef_close(ctx);
}

Test(movement, permute_and_expand) {
    clef_context *ctx = open_seeded(1);
    clef_shape shape = CLEF_SHAPE(2, 3, 4, 5), to = CLEF_SHAPE(4, 2, 5, 3);
    clef_tensor *x = parameter(counted(ctx, shape, CLEF_F32)), *y = clef_permute(x, (int[]){2, 0, -1, 1});
    double *in = numbers(x), want[120];
    for (int64_t i = 0; i < 120; i++) {
        int64_t c[4];
        coordinates(to, i, c);
        want[i] = in[position(shape, (int64_t[]){c[1], c[3], c[0], c[2]})];
    }
    expect_shape(y, to);
    expect_numbers(y, want, 0, 0, "permute");
    check_adjoint(x, y, "permute");
    clef_tensor *p = parameter(counted(ctx, CLEF_SHAPE(3, 1), CLEF_F32)), *e = clef_expand(p, CLEF_SHAPE(2, 3, 4));
    for (int i = 0; i < 24; i++) want[i] = (double)(i / 4 % 3 * 7 - 50);
    expect_numbers(e, want, 0, 0, "expand");
    check_adjoint(p, e, "expand");
    cr_expect(!clef_permute(x, (int[]){0, 1, 2, 2}));
    expect_error(ctx, CLEF_INVALID, "permute: order[3]");
    cr_expect(!clef_expand(p, CLEF_SHAPE(3)));
    expect_error(ctx, CLEF_SHAPE, "expand");
    free(in);
    clef_close(ctx);
}

/* Python's rules for bounds and steps. */
Test(movement, slice) {
    clef_context *ctx = open_seeded(1);
    static const struct {
        int64_t start, stop, step;
        int n;
        double want[8];
    } rows[] = {{0, 7, 1, 7, {0, 1, 2, 3, 4, 5, 6}},
                {1, -1, 2, 3, {1, 3, 5}},
                {-3, 100, 1, 3, {4, 5, 6}},
                {5, 2, 1, 0, {0}},
                {6, 0, -2, 3, {6, 4, 2}},
                {-1, -8, -1, 7, {6, 5, 4, 3, 2, 1, 0}},
                {100, 3, -3, 1, {6}},
                {2, 3, INT64_MAX, 1, {2}},
                {3, INT64_MIN, INT64_MIN, 1, {3}}};
    clef_tensor *x = clef_arange(ctx, 0, 7, 1, CLEF_F32);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        clef_tensor *y = clef_slice(x, 0, rows[i].start, rows[i].stop, rows[i].step);
        expect_shape(y, CLEF_SHAPE(rows[i].n));
        expect_numbers(y, rows[i].want, 0, 0, "slice");
    }
    clef_tensor *p = parameter(counted(ctx, CLEF_SHAPE(3, 7, 2), CLEF_F32));
    check_adjoint(p, clef_slice(p, 1, 1, 6, 2), "slice");
    check_adjoint(p, clef_slice(clef_flip(p, 1), 2, 1, 2, 1), "slice of a flip");
    check_adjoint(p, clef_slice(clef_transpose(p, 0, 1), 0, 6, 0, -4), "slice of a transpose");
    cr_expect(!clef_slice(x, 0, 0, 1, 0));
    expect_error(ctx, CLEF_INVALID, "step is 0");
    clef_close(ctx);
}

Test(movement, concat_stack_split) {
    clef_context *ctx = open_seeded(1);
    for (int d = 0; d < (test_small() ? 1 : CLEF_DTYPE_COUNT); d++) {
        if (d == CLEF_F64 && !has_f64(ctx)) continue;
        clef_tensor *a = counted(ctx, CLEF_SHAPE(2, 3), (clef_dtype)d),
                    *b = clef_flip(counted(ctx, CLEF_SHAPE(2, 2), (clef_dtype)d), 0);
        double *x = numbers(a), *y = numbers(b), want[10];
        for (int i = 0; i < 10; i++) want[i] = i % 5 < 3 ? x[i / 5 * 3 + i % 5] : y[i / 5 * 2 + i % 5 - 3];
        clef_tensor *none = clef_zeros(ctx, CLEF_SHAPE(2, 0), (clef_dtype)d), *c = clef_concat((clef_tensor *[]){a, none, b}, 3, 1);
        expect_shape(c, CLEF_SHAPE(2, 5));
        expect_numbers(c, want, 0, 0, "concat");
        free(x), free(y);
    }
    clef_tensor *p = parameter(counted(ctx, CLEF_SHAPE(2, 3), CLEF_F32)), *parts[2];
    clef_tensor *s = clef_stack((clef_tensor *[]){p, clef_neg(p), p}, 3, 1);
    expect_shape(s, CLEF_SHAPE(2, 3, 3));
    check_adjoint(p, s, "stack");
    cr_assert(clef_split(p, 1, (int64_t[]){1, 2}, 2, parts) == CLEF_OK);
    expect_numbers(clef_concat(parts, 2, 1), numbers(p), 0, 0, "split and concat");
    check_adjoint(p, clef_concat((clef_tensor *[]){parts[1], parts[0]}, 2, -1), "split and concat");
    cr_expect(clef_split(p, 1, (int64_t[]){1, 1}, 2, parts) == CLEF_SHAPE);
    expect_error(ctx, CLEF_SHAPE, "split: the sizes do not add up");
    cr_expect(!clef_concat((clef_tensor *[]){p, clef_ones(ctx, CLEF_SHAPE(3, 3), CLEF_F32)}, 2, 1));
    expect_error(ctx, CLEF_SHAPE, "concat: input 1 [3,3]");
    clef_close(ctx);
}

Test(movement, concat_of_many) {
    if (test_small()) cr_skip_test("many copies: not on a slow device (CLEF_TEST_SMALL)");
    clef_context *ctx = open_seeded(1);
    enum { N = 300 };
    clef_tensor *all = clef_arange(ctx, 0, N, 1, CLEF_F32), *piece[N];
    double want[N];
    for (int i = 0; i < N; i++) piece[i] = clef_slice(all, 0, i, i + 1, 1), want[i] = i;
    clef_tensor *y = clef_concat(piece, N, 0);
    expect_shape(y, CLEF_SHAPE(N));
    expect_numbers(y, want, 0, 0, "concat of 300");
    clef_close(ctx);
}

Test(movement, pad) {
    clef_context *ctx = open_seeded(1);
    clef_tensor *x = parameter(counted(ctx, CLEF_SHAPE(2, 3), CLEF_F32)), *y = clef_pad(x, (int64_t[]){1, 0}, (int64_t[]){0, 2}, 9);
    expect_numbers(y, (double[]){9, 9, 9, 9, 9, -50, -43, -36, 9, 9, -29, -22, -15, 9, 9}, 0, 0, "pad");
    clef_tensor *g = counted(ctx, CLEF_SHAPE(3, 5), CLEF_F32), *dx, *inner = clef_slice(clef_slice(g, 0, 1, 3, 1), 1, 0, 3, 1);
    clef_grad(y, g, &x, 1, false, &dx);
    expect_numbers(dx, numbers(inner), 0, 0, "gradient of pad");
    cr_expect(clef_pad(x, (int64_t[]){0, 0}, (int64_t[]){0, 0}, 1) == x, "nothing to pad");
    clef_tensor *e = clef_pad(clef_zeros(ctx, CLEF_SHAPE(0), CLEF_I32), (int64_t[]){1}, (int64_t[]){1}, 5);
    expect_numbers(e, (double[]){5, 5}, 0, 0, "pad of nothing");
    cr_expect(!clef_pad(x, (int64_t[]){-1, 0}, (int64_t[]){0, 0}, 0));
    expect_error(ctx, CLEF_INVALID, "pad");
    clef_close(ctx);
}

/* Copies of transposed tensors: squares in registers, alone or side by side, and what is left beside them, for elements of each size; and a flipped row, which is read
   in vectors from its end.  n0, n2 beside a dimension in the middle. */
static void check_transposed(clef_context *ctx, clef_dtype dtype, int64_t n0, int64_t n1, int64_t n2) {
    int64_t all = n0 * n1 * n2;
    double *x = spread(all, 0, 100, 1), *want = malloc((size_t)all * sizeof *want), *back = malloc((size_t)all * sizeof *back);
    for (int64_t i = 0; i < all; i++) x[i] = dtype == CLEF_BOOL ? x[i] > 50 : floor(x[i]);
    clef_tensor *t = tensor_of(ctx, CLEF_SHAPE(n0, n1, n2), dtype, x);
    for (int64_t i = 0; i < all; i++) {
        int64_t a = i / n1 / n2, b = i / n2 % n1, c = i % n2;
        want[(c * n1 + b) * n0 + a] = x[i];
        back[i - c + n2 - 1 - c] = x[i];
    }
    expect_numbers(clef_copy(clef_transpose(t, 0, 2)), want, 0, 0, "outer and inner");
    for (int64_t i = 0; i < all; i++) want[(i / n1 / n2 * n2 + i % n2) * n1 + i / n2 % n1] = x[i];
    expect_numbers(clef_copy(clef_transpose(t, 1, 2)), want, 0, 0, "middle and inner");
    expect_numbers(clef_copy(clef_flip(t, 2)), back, 0, 0, "flip");
    for (int i = 1; i < 3; i++) { /* of either side of the squares */
        for (int64_t j = 0; j < all; j++) {
            int64_t a = j / n1 / n2, b = j / n2 % n1, c = j % n2;
            want[i == 1 ? (a * n2 + n2 - 1 - c) * n1 + b : (a * n2 + c) * n1 + n1 - 1 - b] = x[j];
        }
        expect_numbers(clef_copy(clef_flip(clef_transpose(t, 1, 2), i)), want, 0, 0, "middle and inner, flipped");
    }
    free(x), free(want), free(back);
    clef_end_step(ctx);
}

Test(movement, transposed_copies) {
    clef_context *ctx = open_seeded(1);
    check_transposed(ctx, CLEF_F32, 35, 2, 50);
    check_transposed(ctx, CLEF_BOOL, 17, 16, 33);
    check_transposed(ctx, CLEF_F32, 2, 19, 256); /* 1 KiB from line to line: squares side by side */
    if (!test_small()) {
        check_transposed(ctx, CLEF_F32, 128, 3, 130);
        check_transposed(ctx, CLEF_BF16, 40, 3, 21);
        check_transposed(ctx, CLEF_F16, 40, 3, 21);
        check_transposed(ctx, CLEF_I64, 19, 5, 24);
        check_transposed(ctx, CLEF_I32, 3, 300, 7);
        check_transposed(ctx, CLEF_F32, 3, 256, 83);
        check_transposed(ctx, CLEF_F32, 70, 2, 512);
        check_transposed(ctx, CLEF_F16, 2, 75, 512);
        check_transposed(ctx, CLEF_I64, 2, 67, 128);
        check_transposed(ctx, CLEF_U8, 1, 130, 1024);
    }
    clef_close(ctx);
}
