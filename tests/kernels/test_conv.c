/* Convolution and its two gradients against plain loops: bit for bit on whole numbers over many geometries, within bounds on
   others; dtypes, second order, errors.
   ctest: cost=200 */
#include "support/exact.h"
#include "support/suite.h"

TestSuite(conv2d, .init = open_device, .fini = close_device);
TestSuite(conv_transpose2d, .init = open_device, .fini = close_device);

typedef struct geometry {
    int n, c, h, w, o, kh, kw;
    clef_conv2d_options options;
} geometry;

static const char *describe(geometry g) {
    static char text[256];
    clef_conv2d_options p = g.options;
    snprintf(text, sizeof text, "x [%d,%d,%d,%d] w [%d,.,%d,%d] stride %d,%d padding %d,%d dilation %d,%d groups %d%s", g.n, g.c,
             g.h, g.w, g.o, g.kh, g.kw, p.stride[0], p.stride[1], p.padding[0], p.padding[1], p.dilation[0], p.dilation[1],
             p.groups, p.same ? " same" : "");
    return text;
}

static int one(int v) { return v ? v : 1; }

/* Zeros before, and the length of the result, in one direction. */
static int before(geometry g, int d) {
    int in = d ? g.w : g.h, k = d ? g.kw : g.kh, s = one(g.options.stride[d]);
    int total = ((in + s - 1) / s - 1) * s + one(g.options.dilation[d]) * (k - 1) + 1 - in;
    return g.options.same ? (total > 0 ? total / 2 : 0) : g.options.padding[d];
}
static int length(geometry g, int d) {
    int in = d ? g.w : g.h, k = d ? g.kw : g.kh, s = one(g.options.stride[d]);
    if (g.options.same) return (in + s - 1) / s;
    return (in + 2 * g.options.padding[d] - one(g.options.dilation[d]) * (k - 1) - 1) / s + 1;
}

typedef enum which { FORWARD, BY_IMAGE, BY_WEIGHT } which;

/* One sweep over all products x·w → y; `which` says which of the three is added to.  absolute: of absolute values. */
static void sweep(geometry g, const double *x, const double *w, const double *y, double *out, which which, bool absolute) {
    int groups = one(g.options.groups), cg = g.c / groups, og = g.o / groups, oh = length(g, 0), ow = length(g, 1);
    for (int n = 0; n < g.n; n++)
        for (int o = 0; o < g.o; o++)
            for (int oy = 0; oy < oh; oy++)
                for (int ox = 0; ox < ow; ox++)
                    for (int c = 0; c < cg; c++)
                        for (int ky = 0; ky < g.kh; ky++)
                            for (int kx = 0; kx < g.kw; kx++) {
                                int iy = oy * one(g.options.stride[0]) - before(g, 0) + ky * one(g.options.dilation[0]);
                                int ix = ox * one(g.options.stride[1]) - before(g, 1) + kx * one(g.options.dilation[1]);
                                if (iy < 0 || iy >= g.h || ix < 0 || ix >= g.w) continue;
                                size_t at_x = ((size_t)(n * g.c + o / og * cg + c) * g.h + iy) * g.w + ix;
                                size_t at_w = ((size_t)(o * cg + c) * g.kh + ky) * g.kw + kx;
                                size_t at_y = ((size_t)(n * g.o + o) * oh + oy) * ow + ox;
                                double p = which == FORWARD    ? x[at_x] * w[at_w]
                                           : which == BY_IMAGE ? y[at_y] * w[at_w]
                                                               : y[at_y] * x[at_x];
                                out[which == FORWARD ? at_y : which == BY_IMAGE ? at_x : at_w] += absolute ? fabs(p) : p;
                            }
}

typedef struct arrays {
    array x, w, g;
} arrays;

static arrays make(geometry g, bool whole, int range) {
    clef_shape x = CLEF_SHAPE(g.n, g.c, g.h, g.w), w = CLEF_SHAPE(g.o, g.c / one(g.options.groups), g.kh, g.kw);
    clef_shape y = CLEF_SHAPE(g.n, g.o, length(g, 0), length(g, 1));
    if (whole) return (arrays){whole_array(x, 1, range), whole_array(w, 2, range), whole_array(y, 3, range)};
    return (arrays){noise_array(x, 1), noise_array(w, 2), noise_array(y, 3)};
}

static array swept(geometry g, arrays a, which which, bool absolute) {
    array out = array_new(which == FORWARD ? a.g.shape : which == BY_IMAGE ? a.x.shape : a.w.shape);
    sweep(g, a.x.v, a.w.v, a.g.v, out.v, which, absolute);
    return out;
}

/* The three results of the library: y, dx, dw. */
static void run(geometry g, arrays a, clef_dtype dtype, clef_tensor *out[3]) {
    clef_tensor *x[2] = {to_leaf(ctx, a.x, dtype), to_leaf(ctx, a.w, dtype)};
    out[FORWARD] = clef_conv2d(x[0], x[1], CLEF_NONE, &g.options);
    cr_assert(out[FORWARD], "%s: %s", describe(g), clef_error(ctx));
    cr_assert(clef_grad(out[FORWARD], to_device(ctx, a.g, dtype), x, 2, false, out + 1) == CLEF_OK, "%s: %s", describe(g),
              clef_error(ctx));
    cr_assert(clef_eval_all(out, 3) == CLEF_OK, "%s: %s", describe(g), clef_error(ctx));
    clef_release(x[0]), clef_release(x[1]);
}

static void check_as(geometry g, clef_dtype dtype, int range) {
    static const char *const names[] = {"forward", "by image", "by weight"};
    arrays a = make(g, true, range);
    clef_tensor *out[3];
    run(g, a, dtype, out);
    for (int i = 0; i < 3; i++) {
        char what[320];
        snprintf(what, sizeof what, "%s %s %s", clef_dtype_name(dtype), names[i], describe(g));
        array want = swept(g, a, (which)i, false);
        expect_equal(out[i], want, what);
        free(want.v);
    }
    free(a.x.v), free(a.w.v), free(a.g.v);
    clef_end_step(ctx);
}

static void check(geometry g) { check_as(g, CLEF_F32, 4); }

/* Random numbers against sums in double; an error may be so many times that of sums one after the other. */
static void check_bounds(geometry g, double times) {
    arrays a = make(g, false, 0);
    clef_tensor *out[3];
    run(g, a, CLEF_F32, out);
    int groups = one(g.options.groups);
    double terms[] = {g.c / groups * g.kh * g.kw, g.o / groups * g.kh * g.kw, g.n * length(g, 0) * length(g, 1)};
    for (int i = 0; i < 3; i++) {
        array want = swept(g, a, (which)i, false), scale = swept(g, a, (which)i, true);
        expect_bounded(out[i], want, scale, times * times * terms[i], describe(g));
        free(want.v), free(scale.v);
    }
    free(a.x.v), free(a.w.v), free(a.g.v);
    clef_end_step(ctx);
}

#define OPTIONS(...) ((clef_conv2d_options){__VA_ARGS__})

static void plain_images(void) {
    check((geometry){2, 3, 8, 7, 5, 3, 2, OPTIONS(.groups = 1)});
    if (few_kernels()) return;
    check((geometry){1, 1, 5, 5, 1, 1, 1, OPTIONS(.groups = 1)});
    if (test_small()) return;
    check((geometry){4, 1, 28, 28, 6, 5, 5, OPTIONS(.groups = 1)});
    check((geometry){3, 6, 12, 12, 16, 5, 5, OPTIONS(.groups = 1)});
    check((geometry){2, 16, 9, 9, 33, 3, 3, OPTIONS(.groups = 1)});
    check((geometry){1, 8, 6, 6, 40, 1, 1, OPTIONS(.groups = 1)});
    check((geometry){2, 3, 6, 5, 70, 6, 5, OPTIONS(.groups = 1)});
}

static void strides_and_padding(void) {
    if (few_kernels()) return; /* the halves below have both */
    check((geometry){1, 2, 7, 6, 3, 3, 3, OPTIONS(.stride = {2, 1}, .padding = {1, 1})});
    if (test_small()) return;
    for (int s = 1; s <= 3; s++)
        for (int p = 0; p <= 2; p++)
            for (int k = 1; k <= 4; k++) {
                if (left_out(s + p + k, 3)) continue;
                check((geometry){2, 3, 9, 11, 4, k, k == 4 ? 2 : k, OPTIONS(.stride = {s, 4 - s}, .padding = {p, 2 - p})});
            }
}

static void dilations(void) {
    check((geometry){1, 2, 9, 9, 3, 3, 2, OPTIONS(.dilation = {2, 3})});
    if (test_small()) return;
    for (int s = 1; s <= 4; s++)
        for (int d = 1; d <= 4; d++)
            check((geometry){1, 4, 14, 13, 5, 3, 3, OPTIONS(.stride = {s, s}, .padding = {d, 1}, .dilation = {d, 5 - d})});
}

static void groups(void) {
    check((geometry){1, 4, 5, 5, 6, 3, 3, OPTIONS(.groups = 2)});
    if (test_small()) return;
    check((geometry){2, 6, 8, 8, 9, 3, 3, OPTIONS(.groups = 3, .padding = {1, 1}, .stride = {2, 2})});
    check((geometry){2, 12, 8, 8, 12, 3, 3, OPTIONS(.groups = 12, .padding = {1, 1})});
    check((geometry){2, 5, 7, 8, 10, 3, 2, OPTIONS(.groups = 5, .dilation = {2, 1}, .stride = {1, 2})});
    check((geometry){1, 64, 5, 5, 96, 3, 3, OPTIONS(.groups = 2)});
}

/* One filter per channel: borders, strides with and without a tap for every pixel, vectors that channels do not fill. */
Test(conv2d, depthwise) {
    check((geometry){1, 3, 5, 6, 3, 3, 3, OPTIONS(.groups = 3, .padding = {1, 1})});
    if (few_kernels()) return;
    check((geometry){1, 5, 6, 5, 5, 3, 3, OPTIONS(.groups = 5, .stride = {2, 2}, .same = true)});
    if (test_small()) return;
    static const int channels[] = {1, 3, 4, 17, 24, 96};
    for (int i = 0; i < 6; i++)
        for (int s = 1; s <= 2; s++)
            for (int d = 1; d <= 2; d++) {
                int c = channels[i];
                if (left_out(i + s + d, 2)) continue;
                check((geometry){2, c, 11, 13, c, 3, 3,
                                 OPTIONS(.groups = c, .stride = {s, s}, .padding = {1, 1}, .dilation = {d, d})});
                check((geometry){2, c, 12, 29, c, 3, 3, OPTIONS(.groups = c, .stride = {s, s}, .dilation = {d, d}, .same = true)});
                check((geometry){1, c, 7, 40, c, 2, 5,
                                 OPTIONS(.groups = c, .stride = {3 - s, s}, .padding = {2, 3}, .dilation = {1, d})});
            }
    check((geometry){2, 8, 9, 31, 8, 1, 1, OPTIONS(.groups = 8, .stride = {3, 3})});
    check((geometry){2, 8, 3, 2, 8, 3, 3, OPTIONS(.groups = 8, .padding = {4, 5})});
    check((geometry){1, 16, 14, 13, 16, 3, 2, OPTIONS(.groups = 16, .stride = {4, 3}, .dilation = {6, 2}, .padding = {6, 1})});
    check((geometry){1, 320, 3, 3, 320, 3, 3, OPTIONS(.groups = 320, .padding = {1, 1})});
    check((geometry){2, 6, 4, 60, 6, 2, 31, OPTIONS(.groups = 6, .padding = {1, 8}, .stride = {1, 2})});
}

static void same_size(void) {
    if (few_kernels()) return;
    check((geometry){1, 2, 6, 5, 3, 2, 4, OPTIONS(.same = true)});
    if (test_small()) return;
    for (int s = 1; s <= 3; s++)
        for (int k = 1; k <= 4; k++) check((geometry){2, 2, 7, 10, 3, k, 5 - k, OPTIONS(.stride = {s, s}, .same = true)});
    check((geometry){1, 1, 28, 28, 32, 3, 3, OPTIONS(.same = true, .padding = {9, 9})});
    check((geometry){1, 2, 9, 9, 3, 3, 2, OPTIONS(.same = true, .dilation = {2, 3})});
}

static void layers_of_residual_networks(void) {
    if (test_small()) return;
    check((geometry){2, 64, 8, 8, 64, 3, 3, OPTIONS(.padding = {1, 1})});
    check((geometry){1, 64, 8, 8, 128, 3, 3, OPTIONS(.padding = {1, 1}, .stride = {2, 2})});
    check((geometry){1, 64, 8, 8, 128, 1, 1, OPTIONS(.stride = {2, 2})});
    check((geometry){2, 130, 4, 4, 66, 3, 3, OPTIONS(.padding = {1, 1})});
}

/* Values [n,c,h,w] as they lie in memory: as they are told, in a window on more of them, or from the last to the first along dim. */
static clef_tensor *lying(const array *a, clef_dtype dtype, int window, int flipped) {
    clef_tensor *t = to_device(ctx, *a, dtype);
    if (flipped >= 0) t = clef_flip(clef_copy(clef_flip(t, flipped)), flipped);
    if (!window) return t;
    int64_t around[4] = {1, 2, 3, 1}, none[4] = {0};
    t = clef_keep(clef_pad(t, around, window == 1 ? none : around, 99));
    cr_assert(clef_eval(t) == CLEF_OK, "%s", clef_error(ctx));
    for (int d = 0; d < 4; d++) t = clef_slice(t, d, around[d], around[d] + a->shape.dim[d], 1);
    return t;
}

static void check_lying(geometry g, clef_dtype dtype, int window, int flipped) {
    arrays a = make(g, true, dtype == CLEF_BF16 ? 1 : 4);
    clef_tensor *y = clef_conv2d(lying(&a.x, dtype, window, flipped), to_device(ctx, a.w, dtype), CLEF_NONE, &g.options);
    array want = swept(g, a, FORWARD, false);
    expect_equal(y, want, describe(g));
    free(want.v), free(a.x.v), free(a.w.v), free(a.g.v);
    clef_end_step(ctx);
}

/* A user's own images, whose channels lie apart: they are brought together by squares in registers; the last
   one of the last row must not read what lies behind the image. */
static void channels_apart(void) {
    check((geometry){2, 19, 5, 21, 6, 1, 1, OPTIONS(.stride = {2, 2})});
    if (few_kernels()) return;
    check((geometry){2, 19, 4, 21, 6, 2, 3, OPTIONS(.padding = {1, 1}, .stride = {1, 2}, .dilation = {1, 2})});
    check_lying((geometry){2, 17, 3, 5, 4, 1, 1, OPTIONS(.groups = 1)}, CLEF_F32, 1, -1);
    if (test_small()) return;
    for (int w = 1; w <= 67; w += 11) /* copied as they are, or with rows of zeros */
        for (int h = 1; h <= 7; h += 3) check((geometry){3, 35, h, w, 3, 1, 1, OPTIONS(.padding = {h % 2, 0})});
    for (int s = 1; s <= 3; s++)
        for (int w = 30; w <= 34; w++) check((geometry){2, 16, 6, w, 5, 1, 1, OPTIONS(.stride = {4 - s, s})});
    for (int window = 0; window <= 2; window++)
        for (int flipped = -1; flipped < 4; flipped++)
            check_lying((geometry){2, 18, 6, 20, 4, 1, 1, OPTIONS(.stride = {2, 1 + window % 2}, .padding = {flipped == 0, 0})},
                        CLEF_F32, window, flipped);
    static const clef_dtype dtypes[] = {CLEF_F16, CLEF_BF16, CLEF_F64, CLEF_I32};
    clef_device_info info;
    bool f64 = clef_context_device(ctx, 0, &info) && info.f64;
    for (int i = 0; i < 4; i++) {
        if (dtypes[i] == CLEF_F64 && !f64) continue;
        check_lying((geometry){2, 18, 6, 21, 4, 1, 1, OPTIONS(.stride = {1, 2})}, dtypes[i], 0, -1);
        check_lying((geometry){2, 18, 6, 21, 4, 2, 3, OPTIONS(.padding = {1, 1}, .dilation = {1, 2})}, dtypes[i], 1, -1);
    }
}

/* In one context, as their kernels are much the same. */
Test(conv2d, geometries) {
    plain_images();
    strides_and_padding();
    dilations();
    groups();
    same_size();
    layers_of_residual_networks();
    channels_apart();
}

/* From now on this way is taken wherever it applies, whether or not it pays on this device. */
static void prefer(const char *row) {
    clef_close(ctx);
    setenv("CLEF_ROWS", row, 1);
    ctx = open_seeded(1);
}

/* Tiles of 2×2 pixels with fewer multiplications (cl/winograd_fused.cl): odd sizes, margins, runs of channels and panels of
   filters that are not full, several blocks of tiles and runs of blocks. */
Test(conv2d, three_by_three) {
    prefer("winograd_fused");
    check((geometry){24, 8, 4, 3, 8, 3, 3, OPTIONS(.padding = {1, 1})});
    if (test_small()) return;
    check((geometry){6, 32, 8, 8, 32, 3, 3, OPTIONS(.padding = {1, 1})});
    check((geometry){7, 48, 9, 11, 32, 3, 3, OPTIONS(.groups = 1)});
    check((geometry){9, 64, 7, 13, 96, 3, 3, OPTIONS(.padding = {2, 0})});
    check((geometry){5, 80, 12, 14, 112, 3, 3, OPTIONS(.padding = {1, 1})});
    check((geometry){20, 144, 13, 13, 64, 3, 3, OPTIONS(.padding = {1, 1})});
    check((geometry){12, 32, 9, 8, 64, 3, 3, OPTIONS(.padding = {4, 3})});
    check_as((geometry){6, 32, 8, 8, 64, 3, 3, OPTIONS(.padding = {1, 1})}, CLEF_F16, 1);
    check_as((geometry){6, 32, 8, 8, 64, 3, 3, OPTIONS(.padding = {1, 1})}, CLEF_BF16, 1);
}

/* The same in tiles of 4×4 (winograd_fours), whose sums need more bits of a number. */
Test(conv2d, three_by_three_in_fours) {
    prefer("winograd_fours");
    check_as((geometry){24, 16, 4, 3, 16, 3, 3, OPTIONS(.padding = {1, 1})}, CLEF_F32, 2);
    if (test_small()) return;
    check((geometry){6, 32, 8, 8, 32, 3, 3, OPTIONS(.padding = {1, 1})});
    check((geometry){7, 48, 9, 11, 32, 3, 3, OPTIONS(.groups = 1)});
    check_as((geometry){9, 64, 7, 13, 96, 3, 3, OPTIONS(.padding = {2, 0})}, CLEF_F32, 2);
    check_as((geometry){5, 80, 12, 14, 112, 3, 3, OPTIONS(.padding = {1, 1})}, CLEF_F32, 2);
    check_as((geometry){12, 32, 17, 8, 64, 3, 3, OPTIONS(.padding = {4, 3})}, CLEF_F32, 2);
    check_as((geometry){6, 32, 8, 8, 64, 3, 3, OPTIONS(.padding = {1, 1})}, CLEF_F16, 1);
    check_as((geometry){6, 32, 8, 8, 64, 3, 3, OPTIONS(.padding = {1, 1})}, CLEF_BF16, 1);
    check_bounds((geometry){7, 64, 8, 8, 64, 3, 3, OPTIONS(.padding = {1, 1})}, 4);
    check_bounds((geometry){1, 256, 13, 12, 80, 3, 3, OPTIONS(.padding = {1, 1})}, 4);
    check_bounds((geometry){16, 16, 28, 28, 32, 3, 3, OPTIONS(.padding = {1, 1})}, 4);
}

/* More of them than the caches of a profile hold: panels of each work-item's own, several blocks of tiles. */
Test(conv2d, three_by_three_of_many_filters) {
    if (fewest_kernels()) return; /* the kernels of three_by_three, on most profiles */
    prefer("winograd_fused");
    check((geometry){3, 64, 5, 4, 68, 3, 3, OPTIONS(.padding = {1, 1})}); /* minimal */
    if (test_small()) return;
    check((geometry){1, 272, 5, 4, 256, 3, 3, OPTIONS(.padding = {1, 1})});
    check((geometry){1, 400, 5, 4, 336, 3, 3, OPTIONS(.padding = {1, 0})});
    check((geometry){50, 272, 3, 4, 256, 3, 3, OPTIONS(.padding = {1, 1})});
    check_as((geometry){1, 272, 5, 4, 256, 3, 3, OPTIONS(.padding = {1, 1})}, CLEF_F16, 1);
    check_as((geometry){2, 256, 3, 4, 272, 3, 3, OPTIONS(.padding = {0, 1})}, CLEF_BF16, 1);
    prefer("winograd_fours");
    check_as((geometry){3, 272, 5, 4, 256, 3, 3, OPTIONS(.padding = {1, 1})}, CLEF_F32, 2);
}

/* Filters as a training step leaves them, [kh, kw, c, o] in memory, and row by row: the same bits. */
Test(conv2d, filters_lie_anyhow) {
    if (test_small()) return;
    enum { C = 48, O = 80 };
    static const int back[] = {3, 2, 0, 1};
    prefer("winograd_fused");
    clef_tensor *last = clef_permute(noise_tensor(ctx, CLEF_SHAPE(3, 3, C, O), 5), back), *x[2], *w[2], *y[2], *d[2][1];
    float *numbers = values(last);
    w[0] = last;
    w[1] = clef_from_host(ctx, CLEF_SHAPE(O, C, 3, 3), CLEF_F32, numbers);
    for (int i = 0; i < 2; i++) {
        x[i] = clef_require_grad(clef_keep(noise_tensor(ctx, CLEF_SHAPE(2, C, 9, 8), 6)), true);
        y[i] = clef_conv2d(x[i], w[i], CLEF_NONE, &OPTIONS(.padding = {1, 1}));
        cr_assert_eq(clef_grad(clef_sum(clef_square(y[i]), NULL, 0, false), CLEF_NONE, &x[i], 1, false, d[i]), CLEF_OK, "%s",
                     clef_error(ctx));
    }
    float *a[] = {values(y[0]), values(d[0][0])}, *b[] = {values(y[1]), values(d[1][0])};
    cr_assert_eq(memcmp(a[0], b[0], (size_t)clef_numel(y[0]) * sizeof(float)), 0, "forward");
    cr_assert_eq(memcmp(a[1], b[1], (size_t)clef_numel(x[0]) * sizeof(float)), 0, "by the image");
    for (int i = 0; i < 2; i++) free(a[i]), free(b[i]), clef_release(x[i]);
    free(numbers);
}

/* Images of few channels, whose gradient gathers from products (cl/fold.cl): borders, strides and dilations with and without a
   tap for every pixel. */
Test(conv2d, few_channels) {
    prefer("fold");
    check((geometry){1, 2, 7, 6, 5, 3, 3, OPTIONS(.padding = {1, 1})});
    if (test_small()) return;
    check((geometry){3, 6, 12, 12, 16, 5, 5, OPTIONS(.groups = 1)});
    for (int s = 1; s <= 3; s++)
        for (int d = 1; d <= 3; d++)
            check((geometry){2, s + 2 * d, 15, 14, 7, 4, 3,
                             OPTIONS(.stride = {s, 4 - s}, .padding = {d, 2}, .dilation = {4 - d, d})});
    check((geometry){2, 3, 9, 9, 4, 3, 3, OPTIONS(.stride = {4, 4}, .dilation = {2, 2})});
}

/* The same in one launch (cl/fold_rows.cl): runs of one and of several vectors, tiles that move back, strides longer than the kernel,
   images in bands, rows that no tap reaches. */
Test(conv2d, few_channels_by_rows) {
    prefer("fold_rows");
    check((geometry){2, 3, 9, 11, 5, 3, 3, OPTIONS(.padding = {1, 1})});
    if (test_small()) return;
    check((geometry){3, 6, 12, 12, 16, 5, 5, OPTIONS(.groups = 1)});
    check((geometry){1, 1, 61, 30, 7, 5, 4, OPTIONS(.padding = {2, 5})});
    check((geometry){1, 3, 97, 64, 20, 7, 7, OPTIONS(.padding = {3, 3}, .stride = {2, 2})});
    check((geometry){21, 2, 20, 21, 9, 2, 3, OPTIONS(.stride = {3, 5})});
    check((geometry){1, 4, 61, 40, 30, 2, 4, OPTIONS(.stride = {3, 1})}); /* a band that begins with a row of zeros */
    check((geometry){1, 4, 83, 19, 33, 2, 2, OPTIONS(.padding = {1, 0}, .stride = {5, 1})});
    check((geometry){5, 8, 14, 33, 12, 1, 6, OPTIONS(.padding = {2, 1}, .stride = {1, 3})});
    check((geometry){9, 7, 15, 9, 70, 3, 2, OPTIONS(.same = true, .stride = {2, 1})});
}

/* Few channels and filters over enough pixels for a kernel of their own (cl/direct.cl): widths that no tile divides, results that
   fill no vector, margins on one side and all, parts of a row of taps and several rows at once, long sums in blocks. */
Test(conv2d, few_taps) {
    prefer("direct");
    check((geometry){3, 1, 14, 17, 6, 4, 5, OPTIONS(.groups = 1)});
    if (!few_kernels()) check((geometry){1, 2, 9, 11, 128, 3, 3, OPTIONS(.padding = {1, 1})}); /* of more vectors than a tile has */
    if (test_small()) return;
    check((geometry){1, 1, 28, 28, 6, 5, 5, OPTIONS(.groups = 1)});
    check((geometry){20, 1, 28, 28, 6, 5, 5, OPTIONS(.groups = 1)});
    check((geometry){9, 6, 12, 12, 16, 5, 5, OPTIONS(.groups = 1)});
    check((geometry){4, 3, 21, 19, 20, 3, 3, OPTIONS(.padding = {1, 1})});
    check((geometry){3, 2, 23, 30, 3, 7, 7, OPTIONS(.padding = {3, 3}, .stride = {2, 2})});
    check((geometry){5, 1, 25, 31, 2, 7, 7, OPTIONS(.padding = {6, 2}, .dilation = {2, 1}, .stride = {1, 3})});
    check((geometry){7, 5, 17, 13, 9, 2, 7, OPTIONS(.same = true)});
    check((geometry){6, 4, 40, 3, 33, 3, 2, OPTIONS(.padding = {4, 0}, .dilation = {3, 1})});
    check((geometry){2, 3, 30, 31, 64, 3, 3, OPTIONS(.stride = {2, 2})});
    check((geometry){1, 3, 37, 30, 64, 7, 7, OPTIONS(.padding = {3, 3}, .stride = {2, 2})}); /* in passes */
    check((geometry){1, 6, 14, 15, 32, 7, 7, OPTIONS(.padding = {3, 3})});
    check((geometry){1, 12, 9, 15, 16, 7, 7, OPTIONS(.padding = {0, 3})});
    check((geometry){2, 8, 18, 18, 8, 3, 3, OPTIONS(.padding = {1, 1}, .stride = {3, 1})});
    check((geometry){3, 2, 17, 10, 20, 3, 4, OPTIONS(.stride = {2, 1})}); /* tiles of several rows */
    check_as((geometry){4, 3, 21, 19, 6, 3, 3, OPTIONS(.padding = {1, 1})}, CLEF_F16, 1);
    check_as((geometry){4, 3, 21, 19, 20, 3, 3, OPTIONS(.groups = 1)}, CLEF_BF16, 1);
}

/* Groups of a few channels (cl/grouped.cl): vectors that hold several groups, half of one and all of one, tiles that move back, strides
   with and without a tap for every pixel, all taps of a row, rows of several work-items, blocks in parts. */
Test(conv2d, grouped) {
    prefer("grouped");
    check((geometry){1, 32, 5, 9, 32, 3, 3, OPTIONS(.groups = 16, .padding = {1, 1})});
    if (few_kernels()) return;
    check((geometry){2, 6, 6, 7, 24, 2, 3, OPTIONS(.groups = 2, .stride = {1, 2}, .padding = {2, 1})});
    if (test_small()) return;
    for (int c = 2; c <= 8; c *= 2)
        for (int s = 1; s <= 2; s++)
            check((geometry){2, 32, 9, 13, 32, 3, 3,
                             OPTIONS(.groups = 32 / c, .stride = {3 - s, s}, .padding = {1, 1}, .dilation = {s, 3 - s})});
    check((geometry){2, 9, 8, 21, 48, 1, 7, OPTIONS(.groups = 3, .padding = {0, 3})});
    check((geometry){1, 64, 7, 5, 96, 3, 3, OPTIONS(.groups = 2)});
    check((geometry){3, 20, 11, 8, 8, 1, 1, OPTIONS(.groups = 2, .stride = {2, 2})});
    check((geometry){1, 32, 12, 12, 32, 3, 2, OPTIONS(.groups = 8, .stride = {4, 1}, .dilation = {3, 2}, .padding = {7, 3})});
    check((geometry){3, 32, 37, 30, 32, 3, 3, OPTIONS(.groups = 8, .same = true)});
    check((geometry){1, 512, 3, 25, 512, 3, 3, OPTIONS(.groups = 128, .padding = {1, 1})});
    check_as((geometry){2, 32, 9, 14, 32, 3, 3, OPTIONS(.groups = 8, .padding = {1, 1})}, CLEF_F16, 1);
    check_as((geometry){2, 32, 9, 14, 32, 3, 3, OPTIONS(.groups = 4, .padding = {1, 1})}, CLEF_BF16, 1);
}

/* Images of one channel whose pixels are lanes (cl/one_channel.cl): rows that no tile divides, all numbers of filters, strides, taps
   in parts, several work-items. */
Test(conv2d, one_channel) {
    prefer("one_channel");
    check((geometry){3, 1, 14, 20, 6, 4, 5, OPTIONS(.groups = 1)});
    if (test_small()) return;
    check((geometry){1, 1, 28, 28, 6, 5, 5, OPTIONS(.groups = 1)});
    check((geometry){70, 1, 28, 28, 6, 5, 5, OPTIONS(.groups = 1)});
    check((geometry){5, 1, 9, 33, 2, 1, 3, OPTIONS(.groups = 1)});
    check((geometry){2, 1, 30, 47, 4, 7, 2, OPTIONS(.stride = {2, 1})});
    check((geometry){3, 1, 17, 36, 8, 3, 11, OPTIONS(.stride = {3, 1})});
    check((geometry){2, 1, 8, 10, 8, 1, 3, OPTIONS(.groups = 1)});
    check((geometry){2, 1, 12, 13, 6, 3, 3, OPTIONS(.padding = {1, 1})});
    check((geometry){2, 1, 12, 6, 6, 3, 3, OPTIONS(.groups = 1)});
}

static int wrapped(long size, int most) { return size > most ? most / 2 + 1 + (int)(size % (most / 2)) : (int)size; }

/* DeepBench's kinds: w, h, c, n, k, kernel w and h, padding w and h, stride w and h. */
static const char some_shapes[] =
    "-,700,161,1,4,32,20,5,0,0,2,2\n-,341,79,32,4,32,10,5,0,0,2,2\n-,480,48,1,16,16,3,3,1,1,1,1\n-,240,24,16,16,32,3,3,1,1,1,1\n"
    "-,120,12,32,16,64,3,3,1,1,1,1\n-,60,6,64,16,128,3,3,1,1,1,1\n-,108,108,3,8,64,3,3,1,1,2,2\n-,54,54,64,8,64,3,3,1,1,1,1\n"
    "-,27,27,128,8,128,3,3,1,1,1,1\n-,14,14,128,8,256,3,3,1,1,1,1\n-,7,7,256,8,512,3,3,1,1,1,1\n-,224,224,3,8,64,3,3,1,1,1,1\n"
    "-,224,224,3,16,64,7,7,3,3,2,2\n-,28,28,192,16,32,5,5,2,2,1,1\n-,28,28,192,16,64,1,1,0,0,1,1\n-,14,14,512,16,48,5,5,2,2,1,1\n"
    "-,7,7,832,16,256,1,1,0,0,1,1\n-,56,56,64,8,256,1,1,0,0,2,2\n-,7,7,2048,8,512,1,1,3,3,2,2\n-,700,161,1,16,64,5,5,1,1,2,2\n";

Test(conv2d, deepbench_shapes) {
    if (few_kernels()) return;
    FILE *f = shapes_file("deepbench_conv.csv", some_shapes);
    char line[256];
    int rows = 0;
    while (fgets(line, sizeof line, f) && (!test_small() || rows < 1)) {
        long w, h, c, n, k, s, r, pw, ph, sw, sh;
        if (sscanf(line, "%*[^,],%ld,%ld,%ld,%ld,%ld,%ld,%ld,%ld,%ld,%ld,%ld", &w, &h, &c, &n, &k, &s, &r, &pw, &ph, &sw, &sh) !=
            11)
            continue;
        geometry g = {(int)(1 + n % 2),
                      wrapped(c, 12),
                      wrapped(h, 10) + (int)r,
                      wrapped(w, 10) + (int)s,
                      wrapped(k, 20),
                      (int)r,
                      (int)s,
                      OPTIONS(.stride = {(int)sh, (int)sw}, .padding = {(int)ph, (int)pw})};
        check(g);
        rows++;
    }
    fclose(f);
    cr_assert(rows >= (test_small() ? 1 : 20));
}

Test(conv2d, random_numbers_stay_within_bounds) {
    if (few_kernels()) return;
    static const geometry all[] = {{2, 3, 9, 8, 5, 3, 3, {.padding = {1, 1}}},
                                   {2, 40, 12, 12, 34, 3, 3, {.stride = {2, 2}}},
                                   {3, 20, 60, 60, 20, 3, 3, {.groups = 20, .padding = {1, 1}}},
                                   {7, 64, 8, 8, 64, 3, 3, {.padding = {1, 1}}},
                                   {40, 1, 28, 28, 6, 5, 5, {.groups = 1}},
                                   {9, 6, 12, 12, 16, 5, 5, {.padding = {2, 1}}}};
    for (int i = 0; i < (test_small() ? 1 : 6); i++) check_bounds(all[i], 1);
}

Test(conv2d, other_dtypes) {
    geometry all[] = {{1, 3, 6, 5, 4, 3, 2, OPTIONS(.padding = {1, 0}, .stride = {1, 2})},
                      {1, 5, 6, 7, 5, 3, 3, OPTIONS(.groups = 5, .padding = {1, 1}, .stride = {1, 2})}};
    clef_device_info info;
    bool f64 = !test_small() && clef_context_device(ctx, 0, &info) && info.f64;
    for (int i = 0; i < 2; i++) {
        check_as(all[i], CLEF_F16, 2);
        if (few_kernels()) return;
        if (test_small() && i > 0) continue;
        check_as(all[i], CLEF_BF16, 1);
        if (f64) check_as(all[i], CLEF_F64, 100000);
    }
}

/* Whole numbers have no gradients. */
Test(conv2d, whole_numbers) {
    geometry all[] = {{1, 5, 6, 7, 5, 3, 3, OPTIONS(.groups = 5, .padding = {1, 1})}, {1, 2, 5, 4, 3, 3, 2, OPTIONS(.groups = 1)}};
    for (int i = 0; i < (test_small() ? 1 : 2); i++) {
        arrays a = make(all[i], true, 100);
        for (int wide = test_small(); wide < 2; wide++) {
            clef_dtype dtype = wide ? CLEF_I64 : CLEF_I32;
            clef_tensor *y = clef_conv2d(to_device(ctx, a.x, dtype), to_device(ctx, a.w, dtype), CLEF_NONE, &all[i].options);
            expect_equal(y, swept(all[i], a, FORWARD, false), clef_dtype_name(dtype));
        }
    }
}

Test(conv2d, bias_is_added_to_every_pixel) {
    if (few_kernels()) return; /* test_epilogue.c has them too */
    geometry all[] = {{2, 3, 6, 6, 5, 3, 3, OPTIONS(.groups = 1)},  {2, 1, 28, 28, 6, 5, 5, OPTIONS(.groups = 1)},
                      {1, 16, 8, 8, 40, 3, 3, {.padding = {1, 1}}}, {1, 19, 6, 25, 19, 3, 3, {.groups = 19, .padding = {1, 1}}},
                      {1, 6, 6, 6, 8, 3, 3, {.groups = 2}},         {1, 700, 3, 3, 5, 3, 3, OPTIONS(.groups = 1)},
                      {6, 32, 7, 8, 64, 3, 3, {.padding = {1, 1}}}};
    for (int i = 0; i < (test_small() ? 1 : 7); i++) {
        arrays a = make(all[i], true, 4);
        array b = whole_array(CLEF_SHAPE(all[i].o), 9, 50), want = swept(all[i], a, FORWARD, false), db = array_new(b.shape);
        int pixels = length(all[i], 0) * length(all[i], 1);
        for (int j = 0; j < all[i].n * all[i].o * pixels; j++) {
            want.v[j] += b.v[j / pixels % all[i].o];
            db.v[j / pixels % all[i].o] += a.g.v[j];
        }
        clef_tensor *x = to_device(ctx, a.x, CLEF_F32), *w = to_device(ctx, a.w, CLEF_F32), *bias = to_leaf(ctx, b, CLEF_F32), *d;
        clef_tensor *y = clef_conv2d(x, w, bias, &all[i].options);
        expect_equal(y, want, describe(all[i]));
        cr_assert(clef_grad(y, to_device(ctx, a.g, CLEF_F32), &bias, 1, false, &d) == CLEF_OK, "%s", clef_error(ctx));
        expect_equal(d, db, "by bias");
    }
}

/* Images that lie in other ways: NCHW from the host, and a view that is cut, flipped and permuted. */
Test(conv2d, views_as_images) {
    geometry g = {2, 3, 6, 5, 4, 3, 3, OPTIONS(.groups = 1)};
    arrays a = make(g, true, 4);
    array flipped = array_new(CLEF_SHAPE(5, 2, 6, 3)); /* w, n, h, c, with h flipped */
    for (int n = 0; n < 2; n++)
        for (int c = 0; c < 3; c++)
            for (int h = 0; h < 6; h++)
                for (int w = 0; w < 5; w++) flipped.v[((w * 2 + n) * 6 + 5 - h) * 3 + c] = a.x.v[((n * 3 + c) * 6 + h) * 5 + w];
    clef_tensor *x = clef_permute(clef_flip(to_device(ctx, flipped, CLEF_F32), 2), (int[]){1, 3, 2, 0});
    expect_equal(clef_conv2d(x, to_device(ctx, a.w, CLEF_F32), CLEF_NONE, NULL), swept(g, a, FORWARD, false), "a view");
}

Test(conv2d, empty_batch) {
    clef_tensor *x = clef_require_grad(clef_keep(clef_zeros(ctx, CLEF_SHAPE(0, 3, 5, 5), CLEF_F32)), true);
    clef_tensor *w = clef_require_grad(clef_keep(clef_ones(ctx, CLEF_SHAPE(4, 3, 3, 3), CLEF_F32)), true);
    clef_tensor *y = clef_conv2d(x, w, CLEF_NONE, NULL), *in[2] = {x, w}, *d[2];
    expect_shape(y, CLEF_SHAPE(0, 4, 3, 3));
    cr_assert(clef_grad(y, clef_zeros(ctx, CLEF_SHAPE(0, 4, 3, 3), CLEF_F32), in, 2, false, d) == CLEF_OK, "%s", clef_error(ctx));
    expect_shape(d[0], CLEF_SHAPE(0, 3, 5, 5));
    expect_equal(d[1], array_new(CLEF_SHAPE(4, 3, 3, 3)), "nothing seen, nothing learned");
}

/* L = <dw, dw> with dw linear in x and g: dL/dx is the gradient by image of the products with 2·dw, and dL/dg the forward. */
static void check_second_order(geometry g) {
    arrays a = make(g, true, 2);
    clef_tensor *x[3] = {to_leaf(ctx, a.x, CLEF_F32), to_leaf(ctx, a.w, CLEF_F32), to_leaf(ctx, a.g, CLEF_F32)}, *first[2],
                *second[3];
    cr_assert(clef_grad(clef_conv2d(x[0], x[1], CLEF_NONE, &g.options), x[2], x, 2, true, first) == CLEF_OK, "%s", clef_error(ctx));
    clef_tensor *sum =
        clef_add(clef_sum(clef_mul(first[0], first[0]), NULL, 0, false), clef_sum(clef_mul(first[1], first[1]), NULL, 0, false));
    cr_assert(clef_grad(sum, CLEF_NONE, x, 3, false, second) == CLEF_OK, "%s", clef_error(ctx));
    array dx = swept(g, a, BY_IMAGE, false), dw = swept(g, a, BY_WEIGHT, false);
    for (int64_t i = 0; i < clef_shape_numel(dx.shape); i++) dx.v[i] *= 2;
    for (int64_t i = 0; i < clef_shape_numel(dw.shape); i++) dw.v[i] *= 2;
    arrays by_dw = {a.x, dw, a.g}, by_dx = {dx, a.w, a.g};
    expect_equal(second[0], swept(g, by_dw, BY_IMAGE, false), "by x");
    expect_equal(second[1], swept(g, by_dx, BY_WEIGHT, false), "by w");
    array dg = swept(g, by_dw, FORWARD, false), more = swept(g, by_dx, FORWARD, false);
    for (int64_t i = 0; i < clef_shape_numel(dg.shape); i++) dg.v[i] += more.v[i];
    expect_equal(second[2], dg, "by g");
}

Test(conv2d, second_order) {
    if (few_kernels()) return;
    check_second_order((geometry){1, 2, 6, 5, 3, 3, 2, OPTIONS(.stride = {2, 1}, .padding = {1, 1})});
    if (test_small()) return;
    check_second_order((geometry){1, 3, 6, 5, 3, 3, 2, OPTIONS(.groups = 3, .stride = {2, 1}, .padding = {1, 1})});
}

static void check_same_bits(geometry g) {
    arrays a = make(g, false, 0);
    float *first = NULL;
    for (int i = 0; i < 3; i++) {
        clef_tensor *out[3];
        run(g, a, CLEF_F32, out);
        float *dw = values(out[BY_WEIGHT]);
        if (first) cr_assert(memcmp(first, dw, (size_t)clef_shape_numel(a.w.shape) * sizeof *dw) == 0);
        else first = dw;
    }
}

Test(conv2d, same_bits_every_time) {
    if (few_kernels()) return;
    if (test_small()) {
        check_same_bits((geometry){2, 5, 8, 8, 6, 3, 3, OPTIONS(.groups = 1)});
        return;
    }
    check_same_bits((geometry){3, 5, 20, 20, 6, 5, 5, OPTIONS(.groups = 1)});
    check_same_bits((geometry){3, 20, 40, 40, 20, 3, 3, OPTIONS(.groups = 20, .padding = {1, 1})});
}

/* Most pixels of the image are reached by no tap: they are filled with zeros at once, not by a product for each residue class. */
Test(conv2d, strides_far_beyond_the_filter) {
    geometry g = {1, 16, 31, 27, 16, 2, 2, OPTIONS(.stride = {29, 13})};
    check(g);
    clef_tensor *x = clef_require_grad(clef_keep(clef_copy(clef_ones(ctx, CLEF_SHAPE(1, 16, 31, 27), CLEF_F32))), true), *dx;
    clef_tensor *y = clef_conv2d(x, clef_copy(clef_ones(ctx, CLEF_SHAPE(16, 16, 2, 2), CLEF_F32)), CLEF_NONE, &g.options);
    cr_assert_eq(clef_grad(clef_sum(y, NULL, 0, false), CLEF_NONE, &x, 1, false, &dx), CLEF_OK, "%s", clef_error(ctx));
    int lines = 0;
    for (const char *at = plan_text(dx); (at = strchr(at, '\n')); at++) lines++;
    cr_expect(lines < 40, "a plan of %d lines", lines);
}

/* ---- transposed ---- */

typedef struct transposed {
    int n, c, o, h, w, kh, kw;
    clef_conv_transpose2d_options options;
} transposed;

static int length_of(const transposed *t, int d) {
    const clef_conv_transpose2d_options *o = &t->options;
    return ((d ? t->w : t->h) - 1) * one(o->stride[d]) - 2 * o->padding[d] + one(o->dilation[d]) * ((d ? t->kw : t->kh) - 1) +
           o->output_padding[d] + 1;
}

/* By the definition, every product once: y from x and w, and both gradients of Σ y·r. */
static void scatter(const transposed *t, const double *x, const double *w, const double *r, double *y, double *dx, double *dw) {
    const clef_conv_transpose2d_options *op = &t->options;
    int groups = one(op->groups), oh = length_of(t, 0), ow = length_of(t, 1), per = t->o / groups;
    for (int n = 0; n < t->n; n++)
        for (int c = 0; c < t->c; c++)
            for (int k = 0; k < per * t->kh * t->kw; k++)
                for (int at = 0; at < t->h * t->w; at++) {
                    int u = k / t->kw % t->kh, v = k % t->kw, o = c / (t->c / groups) * per + k / (t->kh * t->kw);
                    int i = at / t->w * one(op->stride[0]) + u * one(op->dilation[0]) - op->padding[0],
                        j = at % t->w * one(op->stride[1]) + v * one(op->dilation[1]) - op->padding[1];
                    if (i < 0 || i >= oh || j < 0 || j >= ow) continue;
                    int from = (n * t->c + c) * t->h * t->w + at, by = c * per * t->kh * t->kw + k,
                        to = ((n * t->o + o) * oh + i) * ow + j;
                    y[to] += x[from] * w[by];
                    dx[from] += r[to] * w[by];
                    dw[by] += r[to] * x[from];
                }
}

static void expect_numbers(clef_tensor *t, const double *wanted, const char *what, int number) {
    float *got = values(t);
    for (int64_t i = 0; i < clef_numel(t); i++)
        cr_assert_eq(got[i], wanted[i], "case %d, %s[%d]: %g, not %g", number, what, (int)i, got[i], wanted[i]);
    free(got);
}

static clef_tensor *whole_numbers(clef_shape shape, double *v) {
    int64_t n = clef_shape_numel(shape);
    float *f = calloc((size_t)n, sizeof *f);
    for (int64_t i = 0; i < n; i++) v[i] = f[i] = (float)(rand() % 7 - 3);
    clef_tensor *t = clef_require_grad(clef_keep(clef_from_host(ctx, shape, CLEF_F32, f)), true);
    free(f);
    return t;
}

static void check_transposed(const transposed *t, bool biased, int number) {
    enum { MOST = 40000 };
    static double x[MOST], w[MOST], r[MOST], b[64], y[MOST], dx[MOST], dw[MOST], db[64];
    int groups = one(t->options.groups), oh = length_of(t, 0), ow = length_of(t, 1);
    clef_tensor *all[4] = {whole_numbers(CLEF_SHAPE(t->n, t->c, t->h, t->w), x),
                           whole_numbers(CLEF_SHAPE(t->c, t->o / groups, t->kh, t->kw), w), whole_numbers(CLEF_SHAPE(t->o), b),
                           whole_numbers(CLEF_SHAPE(t->n, t->o, oh, ow), r)};
    memset(dx, 0, sizeof dx), memset(dw, 0, sizeof dw), memset(db, 0, sizeof db);
    for (int i = 0; i < t->n * t->o * oh * ow; i++) {
        y[i] = biased ? b[i / (oh * ow) % t->o] : 0;
        db[i / (oh * ow) % t->o] += r[i];
    }
    scatter(t, x, w, r, y, dx, dw);
    clef_tensor *result = clef_conv_transpose2d(all[0], all[1], biased ? all[2] : CLEF_NONE, &t->options);
    cr_assert_not_null(result, "case %d: %s", number, clef_error(ctx));
    clef_backward(clef_sum(clef_mul(result, all[3]), NULL, 0, false));
    expect_numbers(result, y, "y", number);
    expect_numbers(clef_grad_of(all[0]), dx, "dx", number);
    expect_numbers(clef_grad_of(all[1]), dw, "dw", number);
    if (biased) expect_numbers(clef_grad_of(all[2]), db, "db", number);
    for (int i = 0; i < 4; i++) clef_release(all[i]);
    clef_end_step(ctx);
}

Test(conv_transpose2d, by_the_definition) {
    srand(7);
    for (int number = 0; number < (fewest_kernels() ? 1 : few_kernels() ? 3 : whole_form() ? 24 : 12); number++) {
        int groups = 1 + rand() % 3 * (number % 3 == 0);
        transposed t = {1 + rand() % 3,
                        groups * (1 + rand() % 5),
                        groups * (1 + rand() % 5),
                        1 + rand() % 7,
                        1 + rand() % 7,
                        1 + rand() % 4,
                        1 + rand() % 4,
                        {.stride = {1 + rand() % 3, rand() % 4}, .dilation = {rand() % 3, 1 + rand() % 2}, .groups = groups}};
        for (int d = 0; d < 2; d++) t.options.output_padding[d] = rand() % one(t.options.stride[d]);
        for (int d = 0; d < 2; d++)
            t.options.padding[d] = rand() % 3 ? 0 : (length_of(&t, d) - 1) / 2 < 2 ? (length_of(&t, d) - 1) / 2 : 2;
        check_transposed(&t, number % 2, number);
    }
}

static void refused_transpose(clef_shape x, clef_shape w, clef_tensor *b, clef_conv_transpose2d_options o, const char *word) {
    cr_assert_null(clef_conv_transpose2d(clef_zeros(ctx, x, CLEF_F32), clef_zeros(ctx, w, CLEF_F32), b, &o));
    cr_assert_not_null(strstr(clef_error(ctx), "conv_transpose2d: "), "%s", clef_error(ctx));
    cr_assert_not_null(strstr(clef_error(ctx), word), "%s", clef_error(ctx));
    clef_clear_error(ctx);
}

Test(conv_transpose2d, refuses_what_does_not_fit) {
    clef_shape x = CLEF_SHAPE(1, 4, 3, 3), w = CLEF_SHAPE(4, 2, 3, 3);
    refused_transpose(CLEF_SHAPE(4, 3, 3), w, CLEF_NONE, (clef_conv_transpose2d_options){0}, "[n,c,h,w]");
    refused_transpose(x, CLEF_SHAPE(3, 2, 3, 3), CLEF_NONE, (clef_conv_transpose2d_options){0}, "a filter for each channel");
    refused_transpose(x, w, CLEF_NONE, (clef_conv_transpose2d_options){.groups = 3}, "do not divide");
    refused_transpose(x, w, CLEF_NONE, (clef_conv_transpose2d_options){.groups = -1}, "groups");
    refused_transpose(x, w, CLEF_NONE, (clef_conv_transpose2d_options){.stride = {-1, 1}}, "stride");
    refused_transpose(x, w, CLEF_NONE, (clef_conv_transpose2d_options){.output_padding = {1, 0}}, "output_padding");
    refused_transpose(x, w, CLEF_NONE, (clef_conv_transpose2d_options){.padding = {3, 3}}, "nothing would come out");
    refused_transpose(x, w, clef_zeros(ctx, CLEF_SHAPE(4), CLEF_F32), (clef_conv_transpose2d_options){0}, "b must have");
    refused_transpose(x, w, clef_zeros(ctx, CLEF_SHAPE(2), CLEF_I32), (clef_conv_transpose2d_options){0}, "one dtype");
    int far = INT32_MAX;
    clef_tensor *small = clef_zeros(ctx, CLEF_SHAPE(1, 1, 3, 3), CLEF_F32), *w2 = clef_zeros(ctx, CLEF_SHAPE(1, 1, 2, 2), CLEF_F32);
    clef_conv_transpose2d_options o = {.stride = {far, far}, .padding = {far, far}};
    cr_assert_null(clef_conv_transpose2d(small, w2, CLEF_NONE, &o));
    cr_assert_not_null(strstr(clef_error(ctx), "2^31 pixels"), "%s", clef_error(ctx));
    clef_clear_error(ctx);
}

Test(conv2d, errors_say_what_does_not_fit) {
    clef_tensor *x = clef_zeros(ctx, CLEF_SHAPE(8, 3, 32, 32), CLEF_F32), *w = clef_zeros(ctx, CLEF_SHAPE(64, 64, 3, 3), CLEF_F32);
    cr_assert_null(clef_conv2d(x, w, CLEF_NONE, NULL));
    expect_error(ctx, CLEF_SHAPE, "conv2d: x has 3 channels but w wants 64 (x [8,3,32,32], w [64,64,3,3]); groups = 1");
    cr_assert_null(clef_conv2d(x, clef_zeros(ctx, CLEF_SHAPE(4, 1, 3, 3), CLEF_F32), CLEF_NONE, &OPTIONS(.groups = 3)));
    expect_error(ctx, CLEF_SHAPE, "conv2d: w has 4 filters, which do not divide into 3 groups");
    cr_assert_null(clef_conv2d(x, clef_zeros(ctx, CLEF_SHAPE(4, 3, 33, 3), CLEF_F32), CLEF_NONE, NULL));
    expect_error(ctx, CLEF_SHAPE, "conv2d: the kernel reaches over 33 rows but x has 32 with its padding");
    cr_assert_null(clef_conv2d(x, clef_zeros(ctx, CLEF_SHAPE(4, 3), CLEF_F32), CLEF_NONE, NULL));
    expect_error(ctx, CLEF_SHAPE, "conv2d: x must be [n,c,h,w] and w [o,c/groups,kh,kw] (x [8,3,32,32], w [4,3])");
    cr_assert_null(clef_conv2d(x, clef_zeros(ctx, CLEF_SHAPE(4, 3, 3, 3), CLEF_F32), CLEF_NONE, &OPTIONS(.stride = {-1, 1})));
    expect_error(ctx, CLEF_INVALID, "conv2d: stride {-1,1}");
    clef_tensor *fits = clef_zeros(ctx, CLEF_SHAPE(4, 3, 3, 3), CLEF_F32);
    cr_assert_null(clef_conv2d(x, fits, clef_zeros(ctx, CLEF_SHAPE(5), CLEF_F32), NULL));
    expect_error(ctx, CLEF_SHAPE, "conv2d: b must be [4] to go with w [4,3,3,3], not [5]");
    cr_assert_null(clef_conv2d(x, clef_to(fits, CLEF_F16), CLEF_NONE, NULL));
    expect_error(ctx, CLEF_DTYPE, "conv2d: the inputs are f32 and f16");
    cr_assert_null(clef_conv2d(NULL, fits, CLEF_NONE, NULL));
    expect_error(ctx, CLEF_INVALID, "conv2d: x is NULL though nothing failed before");
    cr_assert_null(clef_conv2d(x, fits, CLEF_NONE, &OPTIONS(.padding = {INT32_MAX, INT32_MAX})));
    expect_error(ctx, CLEF_UNSUPPORTED, "conv2d: more than 2^31 pixels with padding {2147483647,2147483647}");
}
