/* test_select.c — triangles, masks, repeats, index_select and scatter: exact on whole numbers, values and gradients, for every rank
   and dimension; what is outside, empty, transposed or there twice.
   ctest: cost=30 */
#include "support/numbers.h"

static clef_context *ctx;
static void open_device(void) { ctx = open_seeded(1); }
static void close_device(void) { clef_close(ctx); }
TestSuite(select, .init = open_device, .fini = close_device);

/* ---- what the oracles count with ---- */

static clef_tensor *whole(clef_shape shape, clef_dtype dtype, int low, int high, uint64_t salt, double **out) {
    *out = spread(clef_shape_numel(shape), low, high, salt);
    for (int64_t i = 0; i < clef_shape_numel(shape); i++) (*out)[i] = floor((*out)[i]);
    return tensor_of(ctx, shape, dtype, *out);
}

/* Coordinates of element i, and back. */
static void place_of(clef_shape shape, int64_t i, int64_t *at) {
    for (int d = shape.rank - 1; d >= 0; i /= shape.dim[d--]) at[d] = i % shape.dim[d];
}
static int64_t number_of(clef_shape shape, const int64_t *at) {
    int64_t i = 0;
    for (int d = 0; d < shape.rank; d++) i = i * shape.dim[d] + at[d];
    return i;
}

/* The same values, as a transposed view of memory that holds them the other way round. */
static clef_tensor *transposed(clef_tensor *x) {
    int last = clef_tensor_shape(x).rank - 1;
    return last < 1 ? x : clef_transpose(clef_copy(clef_transpose(x, 0, last)), 0, last);
}

/* The gradient of Σ g·y in x, which must be these whole numbers; once as usual, once so that it could go on. */
static void expect_gradient(clef_tensor *y, clef_tensor *g, clef_tensor *x, const double *want, const char *what) {
    clef_tensor *dx;
    for (int again = 0; again < 2; again++) {
        cr_assert(clef_grad(y, g, &x, 1, again, &dx) == CLEF_OK, "%s: %s", what, clef_error(ctx));
        expect_shape(dx, clef_tensor_shape(x));
        expect_numbers(dx, want, 0, 0, what);
    }
}

/* Shapes of each rank, small enough for every element to be looked at. */
static clef_shape shape_of_rank(int rank) {
    static const int64_t dim[CLEF_MAX_RANK] = {2, 3, 1, 4, 2, 1, 3, 2};
    clef_shape shape = {.rank = rank};
    for (int i = 0; i < rank; i++) shape.dim[i] = dim[i];
    return shape;
}

/* ---- triangles ---- */

static void check_triangle(clef_shape shape, clef_dtype dtype, int64_t diagonal, bool upper) {
    double *x, *g;
    clef_tensor *p = whole(shape, dtype, 1, 50, 1, &x), *tg = whole(shape, dtype, 1, 9, 2, &g), *y;
    bool has_gradient = dtype == CLEF_F32;
    if (has_gradient) p = parameter(p);
    y = (upper ? clef_triu : clef_tril)(transposed(p), diagonal);
    for (int64_t i = 0; i < clef_shape_numel(shape); i++) {
        int64_t at[CLEF_MAX_RANK];
        place_of(shape, i, at);
        int64_t off = at[shape.rank - 1] - at[shape.rank - 2];
        if (upper ? off < diagonal : off > diagonal) x[i] = g[i] = 0;
    }
    cr_expect(clef_tensor_dtype(y) == dtype);
    expect_shape(y, shape);
    expect_numbers(y, x, 0, 0, upper ? "triu" : "tril");
    if (has_gradient) {
        expect_gradient(y, tg, p, g, "gradient of a triangle");
        clef_release(p);
    }
    free(x), free(g);
    clef_end_step(ctx);
}

Test(select, triangles) {
    static const clef_dtype dtypes[] = {CLEF_I64, CLEF_BOOL, CLEF_U8, CLEF_F16};
    for (int upper = 0; upper < 2; upper++) {
        for (int64_t d = -5; d <= 7; d += test_small() ? 4 : 1) check_triangle(CLEF_SHAPE(4, 6), CLEF_F32, d, upper);
        check_triangle(CLEF_SHAPE(2, 3, 5, 17), CLEF_F32, 2, upper);
        check_triangle(CLEF_SHAPE(2, 3, 5, 17), CLEF_F32, upper ? INT64_MIN : INT64_MAX, upper);
        check_triangle(CLEF_SHAPE(3, 1), CLEF_F32, upper ? INT64_MAX : INT64_MIN, upper);
        check_triangle(shape_of_rank(8), CLEF_F32, 0, upper);
        for (int i = 0; i < (test_small() ? 1 : 4); i++) check_triangle(CLEF_SHAPE(3, 5, 4), dtypes[i], -1, upper);
    }
    expect_shape(clef_tril(clef_ones(ctx, CLEF_SHAPE(3, 0, 2), CLEF_F32), 0), CLEF_SHAPE(3, 0, 2));
    clef_tensor *none = clef_tril(clef_full(ctx, CLEF_SHAPE(2, 2), CLEF_F32, NAN), 0);
    expect_numbers(none, (double[]){NAN, 0, NAN, NAN}, 0, 0, "what is not in the triangle is 0 even of NaN");
    cr_expect_null(clef_triu(clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32), 0));
    expect_error(ctx, CLEF_SHAPE, "triu: x [3] needs two dimensions");
}

/* ---- numbers in the place of elements ---- */

static void check_fill(clef_shape shape, clef_shape of_mask, clef_dtype dtype, clef_dtype mask_dtype, double value) {
    double *x, *m, *g;
    int64_t n = clef_shape_numel(shape), at[CLEF_MAX_RANK];
    clef_tensor *p = parameter(whole(shape, dtype, -9, 9, 1, &x)), *mask = whole(of_mask, mask_dtype, 0, 3, 2, &m),
                *tg = whole(shape, dtype, 1, 9, 3, &g);
    double *filled = calloc((size_t)n + 1, sizeof *filled), *chosen = calloc((size_t)n + 1, sizeof *chosen),
           *of_filled = calloc((size_t)n + 1, sizeof *of_filled), *of_chosen = calloc((size_t)n + 1, sizeof *of_chosen);
    for (int64_t i = 0; i < n; i++) {
        place_of(shape, i, at);
        int64_t *own = at + shape.rank - of_mask.rank;
        for (int d = 0; d < of_mask.rank; d++) own[d] = of_mask.dim[d] == 1 ? 0 : own[d];
        bool hit = m[number_of(of_mask, own)] != 0;
        filled[i] = hit ? value : x[i], chosen[i] = hit ? x[i] : value;
        of_filled[i] = hit ? 0 : g[i], of_chosen[i] = hit ? g[i] : 0;
    }
    clef_tensor *y = clef_masked_fill(transposed(p), mask, value), *z = clef_where_scalar(mask, p, value);
    cr_expect(clef_tensor_dtype(y) == dtype && clef_tensor_dtype(z) == dtype);
    expect_numbers(y, filled, 0, 0, "masked_fill");
    expect_numbers(z, chosen, 0, 0, "where_scalar");
    expect_gradient(y, tg, p, of_filled, "gradient of masked_fill");
    expect_gradient(z, tg, p, of_chosen, "gradient of where_scalar");
    clef_release(p);
    free(x), free(m), free(g), free(filled), free(chosen), free(of_filled), free(of_chosen);
    clef_end_step(ctx);
}

Test(select, masks) {
    check_fill(CLEF_SHAPE(3, 5), CLEF_SHAPE(3, 5), CLEF_F32, CLEF_BOOL, -INFINITY);
    check_fill(CLEF_SHAPE(3, 5), CLEF_SHAPE(5), CLEF_F32, CLEF_U8, 0.5);
    check_fill(CLEF_SHAPE(2, 3, 5), CLEF_SHAPE(3, 1), CLEF_F32, CLEF_BOOL, 7);
    check_fill(CLEF_SCALAR, CLEF_SCALAR, CLEF_F32, CLEF_BOOL, 7);
    check_fill(CLEF_SHAPE(0, 3), CLEF_SHAPE(3), CLEF_F32, CLEF_BOOL, 7);
    check_fill(shape_of_rank(8), CLEF_SHAPE(3, 1), CLEF_F32, CLEF_BOOL, 7);
    for (int d = 1; d < float_dtypes_here(ctx); d++) check_fill(CLEF_SHAPE(4, 37), CLEF_SHAPE(37), float_dtypes[d], CLEF_BOOL, -3);
}

/* What becomes of a number in a tensor of another dtype, and what is refused. */
Test(select, numbers_in_masks) {
    clef_tensor *i = clef_arange(ctx, 0, 3, 1, CLEF_I64), *hit = clef_gt_scalar(i, 1), *y;
    y = clef_masked_fill(i, hit, -4);
    cr_expect(clef_tensor_dtype(y) == CLEF_I64);
    expect_numbers(y, (double[]){0, 1, -4}, 0, 0, "whole numbers");
    y = clef_masked_fill(i, hit, 0.5);
    cr_expect(clef_tensor_dtype(y) == CLEF_F32, "a fraction needs floats");
    expect_numbers(y, (double[]){0, 1, 0.5}, 0, 0, "a fraction");
    y = clef_masked_fill(hit, hit, 2);
    cr_expect(clef_tensor_dtype(y) == CLEF_BOOL);
    expect_numbers(y, (double[]){0, 0, 1}, 0, 0, "what is not 0 is true");
    y = clef_masked_fill(clef_to(i, CLEF_U8), hit, -1);
    expect_numbers(y, (double[]){0, 1, 255}, 0, 0, "u8 keeps the low bits");
    y = clef_where(hit, clef_scalar(ctx, 1), clef_scalar(ctx, 0));
    expect_numbers(y, (double[]){0, 0, 1}, 0, 0, "two numbers");
    cr_expect_null(clef_masked_fill(i, i, 0));
    expect_error(ctx, CLEF_DTYPE, "masked_fill: mask is i64, not bool or u8");
    cr_expect_null(clef_masked_fill(i, clef_ones(ctx, CLEF_SHAPE(2, 3), CLEF_BOOL), 0));
    expect_error(ctx, CLEF_SHAPE, "masked_fill: mask [2,3] does not broadcast to x [3]");
    cr_expect_null(clef_where_scalar(clef_ones(ctx, CLEF_SHAPE(2), CLEF_BOOL), i, 0));
    expect_error(ctx, CLEF_SHAPE, "do not broadcast");
}

/* ---- repeats ---- */

/* Element i of y is element source[i] of x; the gradient is the sum over those. */
static void expect_copies(clef_tensor *y, clef_tensor *p, const double *x, const int64_t *source, const char *what) {
    int64_t n = clef_numel(y);
    double *want = calloc((size_t)n + 1, sizeof *want), *sums = calloc((size_t)clef_numel(p) + 1, sizeof *sums), *g;
    clef_tensor *tg = whole(clef_tensor_shape(y), CLEF_F32, 1, 9, 4, &g);
    for (int64_t i = 0; i < n; i++) want[i] = x[source[i]], sums[source[i]] += g[i];
    expect_numbers(y, want, 0, 0, what);
    expect_gradient(y, tg, p, sums, what);
    free(want), free(sums), free(g);
}

static void check_repeat(clef_shape shape, const int64_t *repeats, int n) {
    double *x;
    clef_tensor *p = parameter(whole(shape, CLEF_F32, -9, 9, 1, &x)), *y = clef_repeat(transposed(p), repeats, n);
    clef_shape want = {.rank = n};
    int extra = n - shape.rank;
    for (int i = 0; i < n; i++) want.dim[i] = repeats[i] * (i < extra ? 1 : shape.dim[i - extra]);
    expect_shape(y, want);
    int64_t *source = calloc((size_t)clef_shape_numel(want) + 1, sizeof *source), at[CLEF_MAX_RANK];
    for (int64_t i = 0; i < clef_shape_numel(want); i++) {
        place_of(want, i, at);
        for (int d = 0; d < shape.rank; d++) at[extra + d] %= shape.dim[d];
        source[i] = number_of(shape, at + extra);
    }
    expect_copies(y, p, x, source, "repeat");
    free(x), free(source);
    clef_release(p);
    clef_end_step(ctx);
}

Test(select, repeat) {
    static const int64_t r[][CLEF_MAX_RANK] = {{2, 3, 2, 1, 2, 3, 1, 2}, {1, 2, 3, 2, 1, 2, 2, 2}, {3, 1, 1, 0, 2, 1, 1, 1}};
    for (int rank = 0; rank <= (test_small() ? 4 : CLEF_MAX_RANK); rank += test_small() ? 2 : 1)
        for (int i = 0; i < 3; i++) {
            check_repeat(shape_of_rank(rank), r[i], rank);
            if (rank <= 5) check_repeat(shape_of_rank(rank), r[i], rank + 2);
        }
    const int64_t more = test_small() ? 1 : 2; /* than eight dimensions, with those that tell repeats apart */
    check_repeat(CLEF_SHAPE(2, 2, 2, 2, 2, 2, 2, 2), (int64_t[]){2, 1, 2, 2, more, more, more, more}, 8);
    check_repeat(CLEF_SHAPE(3, 0, 2), (int64_t[]){2, 2, 2}, 3);
    check_repeat(CLEF_SHAPE(3, 5), (int64_t[]){1, 1}, 2);
    clef_tensor *whole_numbers = clef_repeat(clef_arange(ctx, 0, 2, 1, CLEF_I64), (int64_t[]){2}, 1);
    cr_expect(clef_tensor_dtype(whole_numbers) == CLEF_I64);
    expect_numbers(whole_numbers, (double[]){0, 1, 0, 1}, 0, 0, "repeat of i64");
}

Test(select, what_repeat_refuses) {
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(2, 3), CLEF_F32);
    cr_expect_null(clef_repeat(x, (int64_t[]){2}, 1));
    expect_error(ctx, CLEF_INVALID, "repeat: x [2,3] needs 2 to 8 repeats, not 1");
    cr_expect_null(clef_repeat(x, NULL, 2));
    expect_error(ctx, CLEF_INVALID, "repeat: repeats is NULL");
    cr_expect_null(clef_repeat(x, (int64_t[]){2, -1}, 2));
    expect_error(ctx, CLEF_INVALID, "repeat: repeats[1] = -1 is negative");
    cr_expect_null(clef_repeat(x, (int64_t[]){INT64_MAX, INT64_MAX}, 2));
    expect_error(ctx, CLEF_SHAPE, "repeat: [9223372036854775807,9223372036854775807] has too many elements");
    cr_expect_null(clef_repeat_interleave(x, -1, 0));
    expect_error(ctx, CLEF_INVALID, "repeat_interleave: -1 repeats");
    cr_expect_null(clef_repeat_interleave(x, INT64_MAX, 0));
    expect_error(ctx, CLEF_SHAPE, "has too many elements");
    cr_expect_null(clef_repeat_interleave(x, 1, 2));
    expect_error(ctx, CLEF_INVALID, "repeat_interleave: x [2,3] has no dimension 2");
}

static void check_interleave(clef_shape shape, int64_t repeats, int dim) {
    double *x;
    clef_tensor *p = parameter(whole(shape, CLEF_F32, -9, 9, 1, &x));
    clef_tensor *y = clef_repeat_interleave(transposed(p), repeats, dim - shape.rank);
    clef_shape want = shape;
    want.dim[dim] *= repeats;
    expect_shape(y, want);
    int64_t *source = calloc((size_t)clef_shape_numel(want) + 1, sizeof *source), at[CLEF_MAX_RANK];
    for (int64_t i = 0; i < clef_shape_numel(want); i++) {
        place_of(want, i, at);
        at[dim] /= repeats;
        source[i] = number_of(shape, at);
    }
    expect_copies(y, p, x, source, "repeat_interleave");
    free(x), free(source);
    clef_release(p);
    clef_end_step(ctx);
}

Test(select, repeat_interleave) {
    for (int rank = 1; rank <= CLEF_MAX_RANK; rank += test_small() ? 3 : 1)
        for (int dim = 0; dim < rank; dim++) check_interleave(shape_of_rank(rank), 3, dim);
    check_interleave(CLEF_SHAPE(3, 5), 1, 0);
    check_interleave(CLEF_SHAPE(3, 5), 0, 1);
    check_interleave(CLEF_SHAPE(3, 0), 2, 0);
}

/* ---- index_select ---- */

/* Indices from -1 to the size: the first and the last lie outside. */
static void check_select(clef_shape shape, int dim, int64_t m, clef_dtype dtype, clef_dtype index_dtype) {
    double *x, *k, *g;
    clef_shape out = shape;
    out.dim[dim] = m;
    clef_tensor *p = parameter(whole(shape, dtype, 1, 50, 1, &x)), *tg = whole(out, dtype, 1, 3, 3, &g);
    clef_tensor *index =
        whole(CLEF_SHAPE(m), index_dtype, index_dtype == CLEF_U8 ? 0 : -1, (int)shape.dim[dim] + 1, 5 + (uint64_t)dim, &k);
    double *want = calloc((size_t)clef_shape_numel(out) + 1, sizeof *want),
           *sums = calloc((size_t)clef_shape_numel(shape) + 1, sizeof *sums);
    for (int64_t i = 0; i < clef_shape_numel(out); i++) {
        int64_t at[CLEF_MAX_RANK];
        place_of(out, i, at);
        at[dim] = (int64_t)k[at[dim]];
        if (at[dim] < 0 || at[dim] >= shape.dim[dim]) continue;
        want[i] = x[number_of(shape, at)];
        sums[number_of(shape, at)] += g[i];
    }
    clef_tensor *y = clef_index_select(transposed(p), dim - shape.rank, index);
    expect_shape(y, out);
    cr_expect(clef_tensor_dtype(y) == dtype);
    expect_numbers(y, want, 0, 0, "index_select");
    expect_gradient(y, tg, p, sums, "gradient of index_select");
    free(x), free(k), free(g), free(want), free(sums);
    clef_release(p);
    clef_end_step(ctx);
}

Test(select, index_select) {
    for (int rank = 1; rank <= CLEF_MAX_RANK; rank += test_small() ? 3 : 1)
        for (int dim = 0; dim < rank; dim++) check_select(shape_of_rank(rank), dim, 5, CLEF_F32, CLEF_I32);
    check_select(CLEF_SHAPE(2, 5, 3), 1, 0, CLEF_F32, CLEF_I64);
    check_select(CLEF_SHAPE(0, 5, 3), 1, 4, CLEF_F32, CLEF_I64);
    check_select(CLEF_SHAPE(2, 0, 3), 1, 4, CLEF_F32, CLEF_I64); /* everything is outside */
    check_select(CLEF_SHAPE(3, 9, 37), 1, 40, CLEF_F32, CLEF_U8);
    if (!test_small()) check_select(CLEF_SHAPE(3, 70, 67), 1, 300, CLEF_F32, CLEF_I64);
    for (int d = 1; d < float_dtypes_here(ctx); d++) check_select(CLEF_SHAPE(3, 9, 19), 1, 20, float_dtypes[d], CLEF_I64);
    double *x, *k;
    clef_tensor *t = whole(CLEF_SHAPE(3), CLEF_BOOL, 0, 2, 1, &x), *index = whole(CLEF_SHAPE(4), CLEF_I32, 0, 3, 2, &k);
    clef_tensor *y = clef_index_select(t, 0, index);
    cr_expect(clef_tensor_dtype(y) == CLEF_BOOL);
    expect_numbers(y, (double[]){x[(int)k[0]], x[(int)k[1]], x[(int)k[2]], x[(int)k[3]]}, 0, 0, "of truth values");
    free(x), free(k);
    cr_expect_null(clef_index_select(t, 1, index));
    expect_error(ctx, CLEF_INVALID, "index_select: x [3] has no dimension 1");
    cr_expect_null(clef_index_select(t, 0, clef_unsqueeze(index, 0)));
    expect_error(ctx, CLEF_SHAPE, "index_select: index [1,4] must have one dimension");
    cr_expect_null(clef_index_select(t, 0, clef_to(index, CLEF_F32)));
    expect_error(ctx, CLEF_DTYPE, "index_select: index is f32");
}

/* The gradient of the gradient is the selection itself. */
Test(select, index_select_differentiates_twice) {
    double *x, *g, *k;
    clef_tensor *p = parameter(whole(CLEF_SHAPE(3, 4), CLEF_F32, -5, 5, 1, &x)), *dx, *dg;
    clef_tensor *tg = parameter(whole(CLEF_SHAPE(3, 6), CLEF_F32, -5, 5, 2, &g));
    clef_tensor *index = whole(CLEF_SHAPE(6), CLEF_I64, 0, 4, 3, &k), *y = clef_index_select(p, 1, index);
    cr_assert(clef_grad(y, tg, &p, 1, true, &dx) == CLEF_OK, "%s", clef_error(ctx));
    cr_assert(clef_grad(dx, clef_detach(p), &tg, 1, false, &dg) == CLEF_OK, "%s", clef_error(ctx));
    double *want = numbers(y);
    expect_numbers(dg, want, 0, 0, "second derivative");
    free(x), free(g), free(k), free(want);
}

/* ---- scatter ---- */

/* x with what a plain loop writes into it in the order of the elements; which element of src each place has at last. */
typedef struct written {
    double *y;
    int64_t *winner;
} written;
static written write_all(clef_shape shape, int dim, clef_shape of_index, const double *x, const double *k, const double *src) {
    int64_t n = clef_shape_numel(shape), at[CLEF_MAX_RANK];
    written w = {calloc((size_t)n + 1, sizeof(double)), calloc((size_t)n + 1, sizeof(int64_t))};
    for (int64_t i = 0; i < n; i++) w.y[i] = x[i], w.winner[i] = -1;
    for (int64_t i = 0; i < clef_shape_numel(of_index); i++) {
        place_of(of_index, i, at);
        at[dim] = (int64_t)k[i];
        if (at[dim] < 0 || at[dim] >= shape.dim[dim]) continue;
        w.y[number_of(shape, at)] = src[i];
        w.winner[number_of(shape, at)] = i;
    }
    return w;
}

static void check_scatter(clef_shape shape, int dim, clef_shape of_index, clef_dtype dtype, clef_dtype index_dtype) {
    double *x, *k, *src, *g;
    int64_t n = clef_shape_numel(shape), m = clef_shape_numel(of_index);
    bool floats = dtype == CLEF_F32 || dtype == CLEF_F16 || dtype == CLEF_BF16 || dtype == CLEF_F64;
    clef_tensor *tx = whole(shape, dtype, 1, 50, 1, &x), *ts = whole(of_index, dtype, 50, 99, 2, &src);
    clef_tensor *index = whole(of_index, index_dtype, index_dtype == CLEF_U8 ? 0 : -1, (int)shape.dim[dim] + 1, 3, &k);
    clef_tensor *tg = whole(shape, dtype, 1, 9, 4, &g);
    if (floats) tx = parameter(tx), ts = parameter(ts);
    written w = write_all(shape, dim, of_index, x, k, src);
    clef_tensor *y = clef_scatter(transposed(tx), dim - shape.rank, transposed(index), transposed(ts));
    expect_shape(y, shape);
    cr_expect(clef_tensor_dtype(y) == dtype);
    expect_numbers(y, w.y, 0, 0, "scatter");
    double *of_x = calloc((size_t)n + 1, sizeof *of_x), *of_src = calloc((size_t)m + 1, sizeof *of_src);
    for (int64_t i = 0; i < n; i++) {
        if (w.winner[i] < 0) of_x[i] = g[i];
        else of_src[w.winner[i]] = g[i], w.y[i] = 1;
    }
    if (floats) {
        expect_gradient(y, tg, tx, of_x, "gradient of scatter in x");
        expect_gradient(y, tg, ts, of_src, "gradient of scatter in src");
    }
    y = clef_scatter_value(tx, dim, index, 1);
    cr_expect(clef_tensor_dtype(y) == dtype);
    expect_numbers(y, w.y, 0, 0, "scatter_value");
    if (floats) {
        expect_gradient(y, tg, tx, of_x, "gradient of scatter_value");
        clef_release(tx), clef_release(ts);
    }
    free(x), free(k), free(src), free(g), free(w.y), free(w.winner), free(of_x), free(of_src);
    clef_end_step(ctx);
}

Test(select, scatter) {
    for (int rank = 1; rank <= (test_small() ? 4 : CLEF_MAX_RANK); rank += test_small() ? 3 : 1)
        for (int dim = 0; dim < rank; dim++) {
            clef_shape shape = shape_of_rank(rank), more = shape, less = shape;
            more.dim[dim] = 5;
            for (int i = 0; i < rank; i++) less.dim[i] = (shape.dim[i] + 1) / 2;
            check_scatter(shape, dim, more, CLEF_F32, CLEF_I64);
            check_scatter(shape, dim, less, CLEF_F32, CLEF_I32);
        }
    check_scatter(CLEF_SHAPE(2, 5), 1, CLEF_SHAPE(2, 0), CLEF_F32, CLEF_I32);
    check_scatter(CLEF_SHAPE(2, 5), 0, CLEF_SHAPE(3, 0), CLEF_F32, CLEF_I32);
    check_scatter(CLEF_SHAPE(0, 5), 1, CLEF_SHAPE(0, 3), CLEF_F32, CLEF_I32);
    check_scatter(CLEF_SHAPE(2, 0), 1, CLEF_SHAPE(2, 3), CLEF_F32, CLEF_I32);
    static const clef_dtype others[] = {CLEF_I32, CLEF_I64, CLEF_U8, CLEF_BOOL};
    for (int i = 0; i < (test_small() ? 1 : 4); i++) check_scatter(CLEF_SHAPE(3, 7, 4), 1, CLEF_SHAPE(3, 9, 4), others[i], CLEF_U8);
    for (int d = 1; d < float_dtypes_here(ctx); d++)
        check_scatter(CLEF_SHAPE(3, 7, 4), 1, CLEF_SHAPE(3, 9, 4), float_dtypes[d], CLEF_I64);
}

/* Each place is written to some hundred times, by many work-items if it could be: the last one is in it, every time. */
Test(select, the_last_of_equal_indices_stays) {
    int64_t m = test_small() ? 60 : 6000;
    check_scatter(CLEF_SHAPE(41), 0, CLEF_SHAPE(m), CLEF_F32, CLEF_I32);
    double *want = calloc((size_t)m, sizeof *want);
    for (int64_t i = 0; i < m; i++) want[i] = i == m - 1;
    clef_tensor *src = parameter(clef_copy(clef_arange(ctx, 0, (double)m, 1, CLEF_F32))), *dsrc;
    clef_tensor *y = clef_scatter(clef_zeros(ctx, CLEF_SHAPE(1), CLEF_F32), 0, clef_zeros(ctx, CLEF_SHAPE(m), CLEF_I32), src);
    cr_assert(clef_grad(y, CLEF_NONE, &src, 1, false, &dsrc) == CLEF_OK, "%s", clef_error(ctx));
    cr_expect_eq(clef_item(y), (double)m - 1);
    expect_numbers(dsrc, want, 0, 0, "only what stayed has a gradient");
    free(want);
}

/* No value of the gradient, and no element that was replaced, gets through. */
Test(select, what_was_replaced_does_not_matter) {
    clef_tensor *x = parameter(clef_copy(clef_full(ctx, CLEF_SHAPE(3), CLEF_F32, NAN))), *dx;
    clef_tensor *index = clef_from_host(ctx, CLEF_SHAPE(2), CLEF_I32, (int32_t[]){2, 0});
    clef_tensor *y = clef_scatter(x, 0, index, clef_ones(ctx, CLEF_SHAPE(2), CLEF_I32));
    cr_expect(clef_tensor_dtype(y) == CLEF_F32, "the common dtype");
    expect_numbers(y, (double[]){1, NAN, 1}, 0, 0, "scatter over NaN");
    cr_assert(clef_grad(y, clef_full(ctx, CLEF_SHAPE(3), CLEF_F32, NAN), &x, 1, false, &dx) == CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(dx, (double[]){0, NAN, 0}, 0, 0, "gradient of NaN");
    cr_expect_null(clef_scatter(x, 0, index, clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32)));
    expect_error(ctx, CLEF_SHAPE, "scatter: index [2] and src [3] differ");
    cr_expect_null(clef_scatter(x, 1, index, clef_ones(ctx, CLEF_SHAPE(2), CLEF_F32)));
    expect_error(ctx, CLEF_INVALID, "scatter: x [3] has no dimension 1");
    cr_expect_null(clef_scatter_value(x, 0, x, 1));
    expect_error(ctx, CLEF_DTYPE, "scatter_value: index is f32");
    clef_tensor *wide = clef_zeros(ctx, CLEF_SHAPE(2, 4), CLEF_I32);
    cr_expect_null(clef_scatter_value(clef_ones(ctx, CLEF_SHAPE(2, 3), CLEF_F32), 0, wide, 1));
    expect_error(ctx, CLEF_SHAPE, "scatter_value: index [2,4] reaches beyond x [2,3] outside dimension 0");
}

/* At 0 the slope's gradient; and no infinity on one side makes a NaN of the other. */
Test(select, prelu_at_its_corner) {
    clef_tensor *x = parameter(clef_from_host(ctx, CLEF_SHAPE(4), CLEF_F32, (float[]){0, -2, 3, INFINITY})), *d[2];
    clef_tensor *w = parameter(clef_from_host(ctx, CLEF_SHAPE(1), CLEF_F32, (float[]){0.5f}));
    clef_tensor *y = clef_prelu(x, w);
    expect_numbers(y, (double[]){0, -1, 3, INFINITY}, 0, 0, "prelu");
    cr_assert(clef_grad(y, clef_ones(ctx, CLEF_SHAPE(4), CLEF_F32), (clef_tensor *[]){x, w}, 2, false, d) == CLEF_OK);
    expect_numbers(d[0], (double[]){0.5, 0.5, 1, 1}, 0, 0, "gradient of x");
    expect_numbers(d[1], (double[]){-2}, 0, 0, "gradient of the slope");
    clef_tensor *half = clef_prelu(clef_to(x, CLEF_BF16), w);
    cr_expect(clef_tensor_dtype(half) == CLEF_BF16, "x's dtype");
    expect_numbers(half, (double[]){0, -1, 3, INFINITY}, 0, 0, "prelu of bf16");
    clef_tensor *nan = clef_prelu(clef_full(ctx, CLEF_SHAPE(2), CLEF_F32, NAN), w);
    expect_numbers(nan, (double[]){NAN, NAN}, 0, 0, "prelu of NaN");
    cr_expect_null(clef_prelu(x, clef_ones(ctx, CLEF_SHAPE(4), CLEF_F32)));
    expect_error(ctx, CLEF_SHAPE, "prelu: weight [4] is neither one number nor one for each channel of x [4]");
}

Test(select, upsampling) {
    clef_tensor *x = clef_from_host(ctx, CLEF_SHAPE(1, 1, 2, 2), CLEF_I32, (int32_t[]){1, 2, 3, 4});
    expect_numbers(clef_upsample_nearest2d(x, 1, 3), (double[]){1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4}, 0, 0, "upsampled");
    cr_expect_null(clef_upsample_nearest2d(x, 2, 0));
    expect_error(ctx, CLEF_INVALID, "upsample_nearest2d: the factors 2 and 0 must be positive");
    cr_expect_null(clef_upsample_nearest2d(x, INT32_MAX, INT32_MAX));
    clef_clear_error(ctx);
}
