/* Convolution by fewer multiplications (cl/winograd.cl), which GPUs get, on whatever device there is: forward and by the image,
   bit for bit on whole numbers, on others within four times the bound of a plain sum; and which plans use it.
   ctest: cost=20 plain */
#include "support/stated_units.h"
#include "support/exact.h"

static clef_context *ctx;
/* Wherever it applies, whether or not it pays on this device. */
static void open_device(void) {
    setenv("CLEF_ROWS", "winograd", 1);
    ctx = open_as_gpu();
}
static void close_device(void) { close_clean(ctx); }
TestSuite(winograd, .init = open_device, .fini = close_device);

/* Images of h × w, c channels and o filters, with zeros around. */
typedef struct geometry {
    int n, c, h, w, o, padding[2];
} geometry;

static int height(geometry g) { return g.h + 2 * g.padding[0] - 2; }
static int width(geometry g) { return g.w + 2 * g.padding[1] - 2; }

/* One sweep over all products; forward: into y, else from y into x. */
static void sweep(geometry g, double *x, const double *w, double *y, bool forward, bool absolute) {
    int oh = height(g), ow = width(g);
    for (int n = 0; n < g.n; n++)
        for (int o = 0; o < g.o; o++)
            for (int c = 0; c < g.c; c++)
                for (int tap = 0; tap < 9; tap++) {
                    double v = w[(o * g.c + c) * 9 + tap];
                    for (int i = 0; i < oh; i++)
                        for (int j = 0; j < ow; j++) {
                            int r = i + tap / 3 - g.padding[0], s = j + tap % 3 - g.padding[1];
                            if (r < 0 || r >= g.h || s < 0 || s >= g.w) continue;
                            double *at = x + ((size_t)(n * g.c + c) * (size_t)g.h + (size_t)r) * (size_t)g.w + s;
                            double *to = y + ((size_t)(n * g.o + o) * (size_t)oh + (size_t)i) * (size_t)ow + j;
                            double p = v * (forward ? *at : *to);
                            *(forward ? to : at) += absolute ? fabs(p) : p;
                        }
                }
}

static clef_shape x_shape(geometry g) { return CLEF_SHAPE(g.n, g.c, g.h, g.w); }
static clef_shape w_shape(geometry g) { return CLEF_SHAPE(g.o, g.c, 3, 3); }
static clef_shape y_shape(geometry g) { return CLEF_SHAPE(g.n, g.o, height(g), width(g)); }

static bool plan_has(clef_tensor *t, const char *file) { return strstr(plan_text(t), file) != NULL; }

static clef_tensor *convolve(geometry g, clef_tensor *x, clef_tensor *w, clef_tensor *b) {
    clef_conv2d_options options = {.padding = {g.padding[0], g.padding[1]}};
    clef_tensor *y = clef_conv2d(x, w, b ? b : CLEF_NONE, &options);
    cr_assert(y, "%s", clef_error(ctx));
    return y;
}

static void check_forward(geometry g) {
    array x = whole_array(x_shape(g), 1, 4), w = whole_array(w_shape(g), 2, 4), b = whole_array(CLEF_SHAPE(g.o), 3, 50);
    array y = array_new(y_shape(g));
    int64_t pixels = height(g) * width(g);
    sweep(g, x.v, w.v, y.v, true, false);
    clef_tensor *p = to_device(ctx, x, CLEF_F32), *q = to_device(ctx, w, CLEF_F32), *r = convolve(g, p, q, NULL);
    cr_assert(plan_has(r, "winograd.cl"));
    if (!few_kernels()) expect_equal(r, y, "forward");
    for (int64_t i = 0; i < clef_shape_numel(y.shape); i++) y.v[i] += b.v[i / pixels % g.o];
    expect_equal(convolve(g, p, q, to_device(ctx, b, CLEF_F32)), y, "with a bias");
    free(x.v), free(w.v), free(b.v), free(y.v);
    clef_end_step(ctx);
}

static clef_tensor *gradient(geometry g, array dy, array w) {
    clef_tensor *x = to_leaf(ctx, array_new(x_shape(g)), CLEF_F32), *d;
    clef_tensor *y = convolve(g, x, to_device(ctx, w, CLEF_F32), NULL);
    cr_assert(clef_grad(y, to_device(ctx, dy, CLEF_F32), &x, 1, false, &d) == CLEF_OK, "%s", clef_error(ctx));
    cr_assert(plan_has(d, "winograd.cl"));
    return d;
}

static void check_by_image(geometry g) {
    array dx = array_new(x_shape(g)), w = whole_array(w_shape(g), 2, 4), dy = whole_array(y_shape(g), 3, 4);
    sweep(g, dx.v, w.v, dy.v, false, false);
    expect_equal(gradient(g, dy, w), dx, "by the image");
    free(dx.v), free(w.v), free(dy.v);
    clef_end_step(ctx);
}

static const geometry small = {1, 32, 16, 15, 33, {1, 1}};

Test(winograd, forward) {
    check_forward(small);
    if (test_small()) return;
    check_forward((geometry){2, 40, 14, 13, 64, {0, 1}});
    check_forward((geometry){3, 33, 11, 12, 70, {2, 0}});
    check_forward((geometry){2, 64, 14, 14, 64, {3, 4}});
    check_forward((geometry){3, 32, 182, 181, 32, {1, 1}}); /* an image at a time */
}

Test(winograd, by_image) {
    check_by_image(small);
    if (test_small()) return;
    check_by_image((geometry){2, 40, 14, 13, 64, {0, 1}});
    check_by_image((geometry){3, 33, 11, 12, 70, {2, 0}});
    check_by_image((geometry){2, 64, 14, 14, 64, {3, 4}});
}

/* Channels innermost, as layers hand images on, and a view that is flipped. */
Test(winograd, views_as_images) {
    if (few_kernels()) return;
    geometry g = {1, 32, 16, 15, 32, {1, 1}};
    array x = whole_array(x_shape(g), 1, 4), w = whole_array(w_shape(g), 2, 4), y = array_new(y_shape(g));
    array flipped = array_new(CLEF_SHAPE(g.n, g.h, g.w, g.c));
    for (int c = 0; c < g.c; c++)
        for (int i = 0; i < g.h; i++)
            for (int j = 0; j < g.w; j++) flipped.v[((g.h - 1 - i) * g.w + j) * g.c + c] = x.v[(c * g.h + i) * g.w + j];
    sweep(g, x.v, w.v, y.v, true, false);
    clef_tensor *view = clef_permute(clef_flip(to_device(ctx, flipped, CLEF_F32), 1), (int[]){0, 3, 1, 2});
    expect_equal(convolve(g, view, to_device(ctx, w, CLEF_F32), NULL), y, "a view");
}

/* The largest error as a share of the bound for a plain sum of n products; four of these are allowed. */
static void expect_fourfold(clef_tensor *t, array want, array scale, int n, const char *what) {
    array have = from_device(t);
    double worst = 0;
    for (int64_t i = 0; i < clef_shape_numel(want.shape); i++) {
        double bound = 4 * sqrt(n) * 0x1p-24 * scale.v[i] + 2 * 0x1p-24 * fabs(want.v[i]) + 1e-38;
        worst = fmax(worst, fabs(have.v[i] - want.v[i]) / bound);
        cr_assert(have.v[i] == have.v[i], "%s: NaN", what);
    }
    if (getenv("CLEF_TEST_VERBOSE")) printf("%s: error is %.3g of a plain sum's bound\n", what, worst);
    cr_assert(worst <= 4, "%s: error is %.3g of a plain sum's bound", what, worst);
    free(have.v);
}

Test(winograd, error_within_four_times_a_plain_sum_s) {
    if (few_kernels()) return;
    geometry all[] = {small, {2, 64, 14, 14, 64, {1, 1}}, {4, 256, 8, 8, 40, {1, 1}}};
    for (int i = 0; i < (test_small() ? 1 : 3); i++) {
        geometry g = all[i];
        array x = noise_array(x_shape(g), 1), w = noise_array(w_shape(g), 2), dy = noise_array(y_shape(g), 3);
        array y = array_new(y_shape(g)), dx = array_new(x_shape(g)), y_scale = array_new(y.shape), x_scale = array_new(dx.shape);
        sweep(g, x.v, w.v, y.v, true, false);
        sweep(g, x.v, w.v, y_scale.v, true, true);
        sweep(g, dx.v, w.v, dy.v, false, false);
        sweep(g, x_scale.v, w.v, dy.v, false, true);
        expect_fourfold(convolve(g, to_device(ctx, x, CLEF_F32), to_device(ctx, w, CLEF_F32), NULL), y, y_scale, 9 * g.c,
                        "forward");
        expect_fourfold(gradient(g, dy, w), dx, x_scale, 9 * g.o, "by the image");
    }
}

/* ---- where it is left alone ---- */
static bool chosen(clef_shape x, clef_shape w, clef_dtype dtype, clef_conv2d_options options) {
    clef_tensor *y = clef_conv2d(clef_zeros(ctx, x, dtype), clef_zeros(ctx, w, dtype), CLEF_NONE, &options);
    cr_assert(y, "%s", clef_error(ctx));
    return plan_has(y, "winograd.cl");
}

Test(winograd, only_where_it_applies) {
    clef_shape x = CLEF_SHAPE(4, 64, 14, 14), w = CLEF_SHAPE(64, 64, 3, 3);
    cr_expect(chosen(x, w, CLEF_F32, (clef_conv2d_options){.padding = {1, 1}}));
    cr_expect(!chosen(x, w, CLEF_F16, (clef_conv2d_options){.padding = {1, 1}}));
    cr_expect(!chosen(x, w, CLEF_F32, (clef_conv2d_options){.stride = {1, 2}}));
    cr_expect(!chosen(x, w, CLEF_F32, (clef_conv2d_options){.dilation = {2, 1}}));
    cr_expect(!chosen(x, CLEF_SHAPE(64, 32, 3, 3), CLEF_F32, (clef_conv2d_options){.groups = 2}));
    cr_expect(!chosen(x, CLEF_SHAPE(64, 64, 3, 2), CLEF_F32, (clef_conv2d_options){.groups = 1}));
}

/* ---- where it pays: on a GPU of so many compute units, with nothing forced ---- */
static void open_large_gpu(void) {
    stated_units = 132;
    unsetenv("CLEF_THREADS"); /* which would leave fewer */
    ctx = open_as_gpu();
}

/* Where memory moves more than 16 channels' products save, and where edges take what is saved (16 products for the 9 of one pixel),
   it is a product. */
TestAlone(winograd_cost, only_where_it_pays, .init = open_large_gpu, .fini = close_device) {
    clef_conv2d_options options = {.padding = {0, 0}};
    clef_shape x = CLEF_SHAPE(32, 256, 28, 28), w = CLEF_SHAPE(256, 256, 3, 3);
    cr_expect(chosen(x, w, CLEF_F32, options));
    cr_expect(!chosen(x, CLEF_SHAPE(16, 256, 3, 3), CLEF_F32, options), "16 channels out");
    cr_expect(!chosen(CLEF_SHAPE(32, 16, 28, 28), CLEF_SHAPE(256, 16, 3, 3), CLEF_F32, options), "16 channels in");
    cr_expect(!chosen(CLEF_SHAPE(1024, 256, 3, 3), w, CLEF_F32, options), "images of 3 x 3");
}
