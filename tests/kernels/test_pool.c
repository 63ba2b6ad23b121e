/* Pooling and its gradients against plain loops: windows of all kinds, NaN, dtypes, second order, errors.
   ctest: cost=20 */
#include "support/exact.h"
#include "support/numbers.h"
#include "support/suite.h"

TestSuite(pool2d, .init = open_device, .fini = close_device);

typedef struct geometry {
    int n, c, h, w, kh, kw;
    clef_pool2d_options options;
    int oh, ow; /* adaptive, if not 0 */
} geometry;

#define OPTIONS(...) ((clef_pool2d_options){__VA_ARGS__})

static int length(geometry g, int d) {
    int in = d ? g.w : g.h, k = d ? g.kw : g.kh, s = g.options.stride[d] ? g.options.stride[d] : k;
    if (g.oh) return d ? g.ow : g.oh;
    return (in + 2 * g.options.padding[d] - k) / s + 1;
}

/* The window of result i: [*begin, *end) inside the image. */
static void window(geometry g, int d, int i, int *begin, int *end) {
    int in = d ? g.w : g.h, k = d ? g.kw : g.kh, s = g.options.stride[d] ? g.options.stride[d] : k, out = length(g, d);
    *begin = g.oh ? i * in / out : i * s - g.options.padding[d];
    *end = g.oh ? ((i + 1) * in + out - 1) / out : *begin + k;
    if (*begin < 0) *begin = 0;
    if (*end > in) *end = in;
}

static const char *describe(geometry g) {
    static char text[200];
    snprintf(text, sizeof text, "x [%d,%d,%d,%d] window %d,%d stride %d,%d padding %d,%d to %d,%d", g.n, g.c, g.h, g.w, g.kh, g.kw,
             g.options.stride[0], g.options.stride[1], g.options.padding[0], g.options.padding[1], g.oh, g.ow);
    return text;
}

static clef_shape image_shape(geometry g) { return CLEF_SHAPE(g.n, g.c, g.h, g.w); }
static clef_shape result_shape(geometry g) { return CLEF_SHAPE(g.n, g.c, length(g, 0), length(g, 1)); }

/* The first NaN of a window, else its first maximum. */
static int best(const double *plane, int w, int y0, int y1, int x0, int x1) {
    int at = y0 * w + x0;
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++) {
            double v = plane[y * w + x];
            if (v > plane[at] || (isnan(v) && !isnan(plane[at]))) at = y * w + x;
        }
    return at;
}

/* Forward into y, and backward from dy into dx, of a maximum or an average. */
static void reference(geometry g, bool maximum, array x, array dy, array y, array dx) {
    int oh = length(g, 0), ow = length(g, 1);
    for (int plane = 0; plane < g.n * g.c; plane++)
        for (int i = 0; i < oh * ow; i++) {
            int y0, y1, x0, x1, at = plane * oh * ow + i;
            window(g, 0, i / ow, &y0, &y1);
            window(g, 1, i % ow, &x0, &x1);
            double *p = x.v + plane * g.h * g.w, *d = dx.v + plane * g.h * g.w;
            if (maximum) {
                int where = best(p, g.w, y0, y1, x0, x1);
                y.v[at] = p[where];
                d[where] += dy.v[at];
                continue;
            }
            double count = g.oh || g.options.exclude_padding ? (y1 - y0) * (x1 - x0) : g.kh * g.kw, sum = 0;
            for (int r = y0; r < y1; r++)
                for (int c = x0; c < x1; c++) sum += p[r * g.w + c], d[r * g.w + c] += dy.v[at] / count;
            y.v[at] = sum / count;
        }
}

static clef_tensor *apply(geometry g, bool maximum, clef_tensor *x) {
    if (g.oh) return clef_adaptive_avg_pool2d(x, g.oh, g.ow);
    return maximum ? clef_max_pool2d(x, g.kh, g.kw, &g.options) : clef_avg_pool2d(x, g.kh, g.kw, &g.options);
}

/* Small whole numbers, which every dtype holds: maxima and the sums of their gradients are exact. */
static void check_max(geometry g, clef_dtype dtype) {
    array x = whole_array(image_shape(g), 1, 3), dy = whole_array(result_shape(g), 2, 9), y = array_new(dy.shape),
          dx = array_new(x.shape);
    reference(g, true, x, dy, y, dx);
    clef_tensor *in = to_leaf(ctx, x, dtype), *out = apply(g, true, in), *d;
    cr_assert(clef_grad(out, to_device(ctx, dy, dtype), &in, 1, false, &d) == CLEF_OK, "%s", clef_error(ctx));
    cr_expect(clef_tensor_dtype(out) == dtype && clef_tensor_dtype(d) == dtype);
    expect_equal(out, y, describe(g));
    expect_equal(d, dx, describe(g));
    clef_release(in);
    clef_end_step(ctx);
}

static void check_avg(geometry g, clef_dtype dtype) {
    bool half = dtype == CLEF_F16 || dtype == CLEF_BF16;
    array x = half ? whole_array(image_shape(g), 1, 8) : noise_array(image_shape(g), 1);
    array dy = half ? whole_array(result_shape(g), 2, 8) : noise_array(result_shape(g), 2), y = array_new(dy.shape),
          dx = array_new(x.shape);
    reference(g, false, x, dy, y, dx);
    clef_tensor *in = to_leaf(ctx, x, dtype), *out = apply(g, false, in), *d;
    cr_assert(clef_grad(out, to_device(ctx, dy, dtype), &in, 1, false, &d) == CLEF_OK, "%s", clef_error(ctx));
    cr_assert(clef_shape_equal(clef_tensor_shape(out), dy.shape) && clef_tensor_dtype(d) == dtype, "%s", describe(g));
    bounds of_y = stored_bounds(dtype, half ? 8e-6 : 1e-6, 0), of_dx = stored_bounds(dtype, half ? 16e-6 : 2e-6, 0);
    expect_numbers(out, y.v, of_y.absolute, of_y.relative, describe(g));
    expect_numbers(d, dx.v, of_dx.absolute, of_dx.relative, describe(g));
    clef_release(in);
    clef_end_step(ctx);
}

static const geometry windows[] = {
    {2, 3, 6, 8, 2, 2, {{0, 0}, {0, 0}, false}, 0, 0},   {1, 17, 7, 7, 3, 3, {{2, 2}, {0, 0}, false}, 0, 0},
    {2, 6, 24, 24, 2, 2, {{0, 0}, {0, 0}, false}, 0, 0}, {1, 5, 7, 9, 3, 2, {{1, 1}, {1, 1}, false}, 0, 0},
    {1, 4, 9, 9, 3, 3, {{2, 2}, {1, 1}, false}, 0, 0},   {2, 20, 8, 8, 2, 3, {{3, 4}, {0, 0}, false}, 0, 0},
    {1, 3, 5, 5, 5, 5, {{0, 0}, {0, 0}, false}, 0, 0},   {1, 1, 4, 4, 1, 1, {{0, 0}, {0, 0}, false}, 0, 0},
    {3, 16, 7, 5, 2, 2, {{0, 0}, {0, 0}, false}, 0, 0},  {1, 2, 8, 8, 4, 4, {{2, 2}, {2, 2}, false}, 0, 0},
};

/* All of them in f32; a window of each kind in the other dtypes, as each costs kernels to compile. */
static bool chosen(size_t i, clef_dtype dtype) { return dtype == CLEF_F32 ? !test_small() || i < 2 : i == 1 || i == 3; }

Test(pool2d, maxima) {
    for (int d = 0; d < float_dtypes_here(ctx); d++)
        for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
            if (i == 0 || chosen(i, float_dtypes[d])) check_max(windows[i], float_dtypes[d]);
}

Test(pool2d, averages) {
    for (int d = 0; d < float_dtypes_here(ctx); d++)
        for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
            geometry g = windows[i];
            if (!chosen(i, float_dtypes[d])) continue;
            check_avg(g, float_dtypes[d]);
            g.options.exclude_padding = true;
            check_avg(g, float_dtypes[d]);
        }
}

Test(pool2d, adaptive_averages) {
    static const int sizes[][4] = {{7, 5, 3, 3}, {8, 8, 4, 2}, {3, 3, 5, 7}, {10, 7, 1, 1}, {6, 6, 6, 6}, {13, 11, 6, 4}};
    for (size_t i = 0; i < (test_small() ? 1 : 6); i++) {
        geometry g = {2, i % 2 ? 3 : 18, sizes[i][0], sizes[i][1], 1, 1, {{0, 0}, {0, 0}, false}, sizes[i][2], sizes[i][3]};
        for (int d = 0; d < (i == 0 ? float_dtypes_here(ctx) : 1); d++) check_avg(g, float_dtypes[d]);
    }
}

Test(pool2d, global_average) {
    array x = whole_array(CLEF_SHAPE(2, 3, 4, 4), 1, 8), y = array_new(CLEF_SHAPE(2, 3));
    for (int i = 0; i < 96; i++) y.v[i / 16] += x.v[i] / 16;
    for (int d = 0; d < float_dtypes_here(ctx); d++)
        expect_equal(clef_global_avg_pool2d(to_device(ctx, x, float_dtypes[d])), y, "mean over the image");
}

Test(pool2d, nan_and_infinity) {
    geometry g = {1, 16, 4, 4, 2, 2, {{1, 1}, {0, 0}, false}, 0, 0}, t = {1, 16, 4, 4, 2, 2, {{0, 0}, {0, 0}, false}, 0, 0};
    geometry both[] = {g, t};
    for (int k = 0; k < 2; k++) {
        array x = whole_array(image_shape(g), 1, 3), dy = whole_array(result_shape(both[k]), 2, 9), y = array_new(dy.shape),
              dx = array_new(x.shape);
        for (int i = 0; i < 256; i += 7) x.v[i] = NAN;
        for (int i = 3; i < 256; i += 11) x.v[i] = -INFINITY;
        for (int i = 5; i < 256; i += 13) x.v[i] = INFINITY;
        reference(both[k], true, x, dy, y, dx);
        clef_tensor *in = to_leaf(ctx, x, CLEF_F32), *out = apply(both[k], true, in), *d;
        cr_assert(clef_grad(out, to_device(ctx, dy, CLEF_F32), &in, 1, false, &d) == CLEF_OK, "%s", clef_error(ctx));
        array have = from_device(out);
        for (int64_t i = 0; i < clef_shape_numel(y.shape); i++)
            cr_assert(have.v[i] == y.v[i] || (isnan(have.v[i]) && isnan(y.v[i])), "%g instead of %g", have.v[i], y.v[i]);
        expect_equal(d, dx, "gradient with NaN");
    }
}

Test(pool2d, maxima_of_whole_numbers) {
    static const clef_dtype dtypes[] = {CLEF_I32, CLEF_I64, CLEF_U8};
    geometry g = {1, 5, 6, 6, 3, 3, {{2, 2}, {1, 1}, false}, 0, 0};
    for (int i = 0; i < (test_small() ? 1 : 3); i++) {
        array x = whole_array(image_shape(g), 1, 30), dy = array_new(result_shape(g)), y = array_new(dy.shape),
              dx = array_new(x.shape);
        for (int j = 0; j < 180; j++) x.v[j] = fabs(x.v[j]);
        reference(g, true, x, dy, y, dx);
        expect_equal(apply(g, true, to_device(ctx, x, dtypes[i])), y, clef_dtype_name(dtypes[i]));
    }
}

/* Both gradients are linear in dy; the square of each gives a second derivative by dy that the reference can follow. */
Test(pool2d, second_order) {
    for (int maximum = 0; maximum < 2; maximum++) {
        geometry g = {1, 3, 5, 5, 2, 2, {{1, 1}, {0, 0}, false}, 0, 0};
        array x = whole_array(image_shape(g), 1, 3), dy = whole_array(result_shape(g), 2, 4), y = array_new(dy.shape),
              dx = array_new(x.shape);
        reference(g, maximum, x, dy, y, dx);
        clef_tensor *in[2] = {to_leaf(ctx, x, CLEF_F32), to_leaf(ctx, dy, CLEF_F32)}, *first, *second;
        cr_assert(clef_grad(apply(g, maximum, in[0]), in[1], in, 1, true, &first) == CLEF_OK, "%s", clef_error(ctx));
        clef_tensor *sum = clef_sum(clef_mul(first, first), NULL, 0, false);
        cr_assert(clef_grad(sum, CLEF_NONE, in + 1, 1, false, &second) == CLEF_OK, "%s", clef_error(ctx));
        array want = array_new(dy.shape);
        for (int plane = 0; plane < 3; plane++)
            for (int i = 0; i < 16; i++) {
                double *d = dx.v + plane * 25, *p = x.v + plane * 25, s = 0;
                int r = i / 4, c = i % 4;
                if (maximum) s = 2 * d[best(p, 5, r, r + 2, c, c + 2)];
                else s = (d[r * 5 + c] + d[r * 5 + c + 1] + d[r * 5 + 5 + c] + d[r * 5 + 6 + c]) / 2;
                want.v[plane * 16 + i] = s;
            }
        expect_equal(second, want, maximum ? "maximum" : "average");
    }
}

Test(pool2d, empty_batch) {
    expect_shape(clef_max_pool2d(clef_zeros(ctx, CLEF_SHAPE(0, 3, 4, 4), CLEF_F32), 2, 2, NULL), CLEF_SHAPE(0, 3, 2, 2));
}

Test(pool2d, errors_say_what_does_not_fit) {
    clef_tensor *x = clef_zeros(ctx, CLEF_SHAPE(1, 3, 4, 4), CLEF_F32);
    cr_assert_null(clef_max_pool2d(x, 5, 2, NULL));
    expect_error(ctx, CLEF_SHAPE, "max_pool2d: the window {5,2} is larger than x [1,3,4,4] with padding {0,0}");
    cr_assert_null(clef_max_pool2d(x, 2, 2, &OPTIONS(.padding = {2, 0})));
    expect_error(ctx, CLEF_INVALID, "max_pool2d: padding {2,0} must be at most half of the window {2,2}");
    cr_assert_null(clef_avg_pool2d(x, 0, 2, NULL));
    expect_error(ctx, CLEF_INVALID, "avg_pool2d: window {0,2}");
    cr_assert_null(clef_avg_pool2d(clef_to(x, CLEF_I32), 2, 2, NULL));
    expect_error(ctx, CLEF_DTYPE, "avg_pool2d: an average of i32 is not i32");
    cr_assert_null(clef_max_pool2d(clef_zeros(ctx, CLEF_SHAPE(3, 4), CLEF_F32), 2, 2, NULL));
    expect_error(ctx, CLEF_SHAPE, "max_pool2d: x must be [n,c,h,w], not [3,4]");
    cr_assert_null(clef_adaptive_avg_pool2d(x, 0, 1));
    expect_error(ctx, CLEF_INVALID, "adaptive_avg_pool2d: the result {0,1}");
}
