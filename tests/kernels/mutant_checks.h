/* mutant_checks.h — one short check for every family of kernels, against plain loops over whole numbers.  The sizes are odd and
   small, and chosen so that each path of a kernel runs on a device of two compute units with the profile `cpu`, or `gpu`
   where the check is made for it: whole tiles and edges, packed and direct operands, splits and blocks, vectors and what is left of
   a row. */
#ifndef CLEF_TESTS_MUTANT_CHECKS_H
#define CLEF_TESTS_MUTANT_CHECKS_H
#include "ops/philox.h"
#include "ops/ops.h"
#include <stdlib.h>

static clef_context *ctx;
static int wrong; /* elements, in all checks so far */

/* ---- numbers ---- */
static float memory[1 << 22];
static int64_t used;

/* n zeros, until the next check. */
static float *zeros(int64_t n) {
    float *v = memory + used;
    used += n;
    if (used > (int64_t)(sizeof memory / sizeof *memory)) abort();
    memset(v, 0, (size_t)n * sizeof *v);
    return v;
}

/* Whole numbers from low to high that depend on salt alone. */
static float *whole(int64_t n, uint32_t salt, int low, int high) {
    float *v = zeros(n);
    for (int64_t i = 0; i < n; i++) {
        uint32_t x = ((uint32_t)i + 1) * 0x9e3779b9u + salt * 0x85ebca6bu;
        x = (x ^ x >> 15) * 0x2c1b3c6du;
        v[i] = (float)(low + (int)((x ^ x >> 13) % (uint32_t)(high - low + 1)));
    }
    return v;
}

static clef_tensor *put(clef_shape shape, const float *v) { return clef_from_host(ctx, shape, CLEF_F32, v); }
static clef_tensor *leaf(clef_shape shape, const float *v) { return clef_require_grad(clef_keep(put(shape, v)), true); }

static int64_t size_of(clef_tensor *t) { return t ? clef_numel(t) : -1; }

static void expect_near(clef_tensor *t, const float *want, int64_t n, double tolerance) {
    float *have = malloc((size_t)n * sizeof *have);
    if (size_of(t) != n || clef_read(t, have, (size_t)n * sizeof *have) != CLEF_OK) wrong++;
    else
        for (int64_t i = 0; i < n; i++) wrong += !(fabs((double)have[i] - (double)want[i]) <= tolerance);
    free(have);
}

static void expect(clef_tensor *t, const float *want, int64_t n) { expect_near(t, want, n, 0); }

/* The bytes as they lie. */
static void expect_bytes(clef_tensor *t, const void *want, size_t bytes) {
    void *have = malloc(bytes);
    wrong += !t || clef_read(t, have, bytes) != CLEF_OK || memcmp(have, want, bytes) != 0;
    free(have);
}

/* Gradients of Σ g·y by the leaves, which it releases. */
static void differentiate(clef_tensor *y, clef_tensor *g, clef_tensor *const *x, int n, clef_tensor **dx) {
    for (int i = 0; i < n; i++) dx[i] = NULL;
    wrong += clef_grad(y, g, x, n, false, dx) != CLEF_OK;
}

/* ---- products ---- */
/* c += a·b, rows of c dense. */
static void product(const float *a, int64_t am, int64_t ak, const float *b, int64_t bk, int64_t bn, float *c, int64_t m, int64_t n,
                    int64_t k) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++) sum += (double)a[i * am + l * ak] * (double)b[l * bk + j * bn];
            c[i * n + j] += (float)sum;
        }
}

/* transposed: a lies transposed. */
static void check_matmul(int64_t m, int64_t n, int64_t k, bool transposed) {
    float *a = whole(m * k, 1, -3, 4), *b = whole(k * n, 2, -3, 4), *want = zeros(m * n);
    product(a, transposed ? 1 : k, transposed ? m : 1, b, n, 1, want, m, n, k);
    clef_tensor *x = transposed ? clef_transpose(put(CLEF_SHAPE(k, m), a), 0, 1) : put(CLEF_SHAPE(m, k), a);
    expect(clef_matmul(x, put(CLEF_SHAPE(k, n), b)), want, m * n);
}

static void check_linear(int64_t m, int64_t n, int64_t k) {
    float *x = whole(m * k, 1, -3, 4), *w = whole(k * n, 2, -3, 4), *b = whole(n, 3, 5, 99), *want = zeros(m * n);
    for (int64_t i = 0; i < m * n; i++) want[i] = b[i % n];
    product(x, k, 1, w, 1, k, want, m, n, k);
    expect(clef_linear(put(CLEF_SHAPE(m, k), x), put(CLEF_SHAPE(n, k), w), put(CLEF_SHAPE(n), b)), want, m * n);
}

/* a [a0,a1,m,k] times b [b0,b1,k,n]; a size of 1 broadcasts. */
static void check_batch(int64_t a0, int64_t a1, int64_t b0, int64_t b1, int64_t m, int64_t n, int64_t k) {
    int64_t z0 = a0 > b0 ? a0 : b0, z1 = a1 > b1 ? a1 : b1;
    float *a = whole(a0 * a1 * m * k, 1, -3, 4), *b = whole(b0 * b1 * k * n, 2, -3, 4), *want = zeros(z0 * z1 * m * n);
    for (int64_t i = 0; i < z0; i++)
        for (int64_t j = 0; j < z1; j++)
            product(a + (i % a0 * a1 + j % a1) * m * k, k, 1, b + (i % b0 * b1 + j % b1) * k * n, n, 1, want + (i * z1 + j) * m * n,
                    m, n, k);
    expect(clef_matmul(put(CLEF_SHAPE(a0, a1, m, k), a), put(CLEF_SHAPE(b0, b1, k, n), b)), want, z0 * z1 * m * n);
}

static void tiles(void) {
    check_matmul(13, 21, 37, false);    /* b as it lies, its last panel moved back */
    check_linear(30, 45, 35);           /* b packed across */
    check_matmul(120, 131, 200, false); /* several tiles for a work-item */
    check_matmul(120, 131, 800, false); /* b packed along */
    check_matmul(52, 12, 8200, false);  /* in panels of one vector */
}

static void transposed(void) {
    check_matmul(30, 45, 19, true); /* the last tile is not full */
    check_matmul(28, 45, 19, true); /* all are: their rows follow one another */
    check_matmul(13, 7, 19, true);  /* a read down its columns */
}

/* Rows of a that work-items pack: along k, across, one by one; two tiles each, of which the last is not full; two blocks. */
static void packed(void) {
    check_matmul(133, 45, 19, false);
    check_matmul(133, 45, 601, false);
    check_matmul(133, 45, 19, true);
}

static void batches(void) {
    check_batch(2, 3, 2, 3, 13, 21, 7);
    check_batch(2, 1, 1, 3, 5, 9, 7);
    check_batch(3, 1, 3, 2, 120, 77, 220); /* packed, for one of the levels only once */
    check_batch(2, 1, 2, 1, 3, 9, 600);    /* in splits */
}

/* Dot products along rows: a column as it lies, columns put side by side, few rows with a bias, several work-items. */
static void few_columns(void) {
    check_matmul(29, 1, 37, false);
    check_matmul(21, 3, 37, false);
    check_linear(3, 21, 19);
    check_batch(2, 3, 1, 3, 17, 2, 9);
    check_matmul(700, 1, 300, false);
}

/* Lines of b, and of a that lies transposed: ends of vectors, of runs and of splits, two blocks of columns, batches. */
static void few_lines(void) {
    check_matmul(1, 200, 37, false);
    check_matmul(3, 45, 300, false);
    check_matmul(45, 2, 70, true);
    check_matmul(2, 4500, 40, false);
    check_batch(2, 3, 1, 3, 4, 21, 37);
    check_batch(2, 1, 2, 3, 2, 21, 37);
}

static void blocks(void) {
    check_matmul(14, 141, 2101, false); /* direct, two panels at a time */
    check_linear(30, 21, 2101);
    check_matmul(3, 21, 9001, false); /* within splits */
}

static void splits(void) {
    check_linear(3, 21, 1301);
    check_linear(5, 7, 1301);
}

/* ---- convolution ---- */
typedef struct convolution {
    int n, c, h, w, o, kh, kw;
    clef_conv2d_options options;
    int before[2], oh, ow;
} convolution;

/* One loop over all products: forward and both gradients. */
static void convolve(const convolution *v, const float *x, const float *w, const float *g, float *y, float *dx, float *dw) {
    const clef_conv2d_options *o = &v->options;
    int groups = o->groups ? o->groups : 1, cg = v->c / groups, og = v->o / groups;
    for (int64_t i = 0; i < (int64_t)v->n * v->o * v->oh * v->ow; i++)
        for (int tap = 0; tap < cg * v->kh * v->kw; tap++) {
            int ox = (int)(i % v->ow), oy = (int)(i / v->ow % v->oh), f = (int)(i / v->ow / v->oh % v->o),
                n = (int)(i / v->ow / v->oh / v->o);
            int c = f / og * cg + tap / v->kw / v->kh;
            int iy =
                oy * (o->stride[0] ? o->stride[0] : 1) - v->before[0] + tap / v->kw % v->kh * (o->dilation[0] ? o->dilation[0] : 1);
            int ix = ox * (o->stride[1] ? o->stride[1] : 1) - v->before[1] + tap % v->kw * (o->dilation[1] ? o->dilation[1] : 1);
            if (iy < 0 || iy >= v->h || ix < 0 || ix >= v->w) continue;
            int64_t at = ((int64_t)(n * v->c + c) * v->h + iy) * v->w + ix, to = (int64_t)f * cg * v->kh * v->kw + tap;
            y[i] += x[at] * w[to];
            dx[at] += w[to] * g[i];
            dw[to] += x[at] * g[i];
        }
}

/* w [o, c, kh, kw] as a training step leaves it behind: [kh, kw, c, o] in memory. */
static clef_tensor *filters_last(clef_shape ws, const float *w) {
    static const int back[] = {3, 2, 0, 1};
    int64_t o = ws.dim[0], rest = clef_shape_numel(ws) / o, taps = ws.dim[2] * ws.dim[3];
    float *lies = zeros(o * rest);
    for (int64_t i = 0; i < o * rest; i++) lies[(i % taps * ws.dim[1] + i / taps % ws.dim[1]) * o + i / rest] = w[i];
    clef_tensor *filters = clef_keep(clef_permute(put(CLEF_SHAPE(ws.dim[2], ws.dim[3], ws.dim[1], o), lies), back));
    return clef_require_grad(filters, true);
}

static void check_filters(convolution v, bool backward, bool last) {
    int groups = v.options.groups ? v.options.groups : 1;
    clef_shape xs = CLEF_SHAPE(v.n, v.c, v.h, v.w), ws = CLEF_SHAPE(v.o, v.c / groups, v.kh, v.kw),
               ys = CLEF_SHAPE(v.n, v.o, v.oh, v.ow);
    int64_t nx = clef_shape_numel(xs), nw = clef_shape_numel(ws), ny = clef_shape_numel(ys);
    float *x = whole(nx, 1, -3, 4), *w = whole(nw, 2, -3, 4), *b = whole(v.o, 3, 5, 99), *g = whole(ny, 4, -2, 3);
    float *y = zeros(ny), *dx = zeros(nx), *dw = zeros(nw);
    convolve(&v, x, w, g, y, dx, dw);
    for (int64_t i = 0; i < ny; i++) y[i] += b[i / v.ow / v.oh % v.o];
    clef_tensor *in[2] = {leaf(xs, x), last ? filters_last(ws, w) : leaf(ws, w)}, *d[2];
    clef_tensor *out = clef_conv2d(in[0], in[1], put(CLEF_SHAPE(v.o), b), &v.options);
    expect(out, y, ny);
    if (backward) {
        differentiate(out, put(ys, g), in, 2, d);
        expect(d[0], dx, nx);
        expect(d[1], dw, nw);
    }
    for (int i = 0; i < 2; i++) clef_release(in[i]);
}

static void check_convolution(convolution v, bool backward) { check_filters(v, backward, false); }

static void images(void) {
    check_convolution((convolution){2, 6, 7, 6, 10, 3, 2, {.stride = {2, 1}, .padding = {1, 0}, .groups = 2}, {1, 0}, 4, 5}, true);
    check_convolution((convolution){2, 5, 6, 7, 6, 4, 4, {.stride = {2, 2}, .same = true}, {1, 1}, 3, 4}, true);
}

/* Images that are transposed by squares: the last ones of channels and of a row, zeros around, every second and third pixel. */
static void channels_apart(void) {
    check_convolution(
        (convolution){2, 19, 4, 21, 6, 2, 3, {.stride = {1, 2}, .padding = {1, 1}, .dilation = {1, 2}}, {1, 1}, 5, 10}, true);
    check_convolution((convolution){2, 37, 5, 37, 6, 1, 1, {.stride = {2, 2}}, {0, 0}, 3, 19}, true);
    check_convolution((convolution){2, 19, 5, 7, 6, 1, 1, {.stride = {3, 3}}, {0, 0}, 2, 3}, true);
}

/* 3×3 of stride 1 over enough tiles of 2×2 pixels: odd sizes, an odd number of tiles, more channels than a run holds, a panel of
   filters that is not full; several pairs of runs of channels and filters, each in several runs of tiles. */
static void threes(void) {
    check_convolution((convolution){25, 72, 4, 3, 20, 3, 3, {.padding = {1, 1}}, {1, 1}, 4, 3}, true);
    check_convolution((convolution){33, 8, 2, 8, 20, 3, 3, {.padding = {1, 0}}, {1, 0}, 2, 6}, true);
    check_convolution((convolution){13, 136, 4, 3, 20, 3, 3, {.padding = {1, 1}}, {1, 1}, 4, 3}, true);
    check_filters((convolution){3, 48, 4, 3, 32, 3, 3, {.padding = {1, 1}}, {1, 1}, 4, 3}, true, true);
}

/* The same in tiles of 4×4: odd sizes, margins, filters as a training step leaves them. */
static void fours(void) {
    check_convolution((convolution){3, 8, 9, 6, 20, 3, 3, {.padding = {1, 2}}, {1, 2}, 9, 8}, true);
    check_filters((convolution){2, 12, 5, 7, 8, 3, 3, {.padding = {1, 0}}, {1, 0}, 5, 5}, true, true);
}

/* The same with more filters than caches hold: panels of each work-item's own, of which the last one is not full; and two blocks. */
static void far_threes(void) {
    check_convolution((convolution){3, 256, 4, 3, 268, 3, 3, {.padding = {1, 1}}, {1, 1}, 4, 3}, false);
    check_convolution((convolution){33, 260, 4, 6, 264, 3, 3, {.padding = {1, 1}}, {1, 1}, 4, 6}, false);
}

/* So many pairs of channels and filters that a work-item sums all of a pair, and makes dw of it; of several pairs, too. */
static void whole_threes(void) {
    check_convolution((convolution){1, 264, 4, 3, 272, 3, 3, {.padding = {1, 1}}, {1, 1}, 4, 3}, true);
}

/* Images of few channels, whose gradient gathers. */
static void few_channels(void) {
    check_convolution((convolution){2, 2, 7, 6, 5, 3, 3, {.stride = {2, 1}, .dilation = {1, 2}, .padding = {1, 1}}, {1, 1}, 4, 4},
                      true);
    check_convolution((convolution){2, 1, 6, 8, 5, 3, 4, {.groups = 1}, {0, 0}, 4, 5}, true);
    check_convolution((convolution){2, 1, 5, 9, 4, 2, 3, {.stride = {1, 2}, .dilation = {1, 2}}, {0, 0}, 4, 3}, true);
}

/* The same in one launch: bands of rows, strides, runs of several vectors, tiles that move back. */
static void channel_rows(void) {
    check_convolution((convolution){2, 3, 67, 23, 20, 5, 4, {.padding = {2, 1}}, {2, 1}, 67, 22}, true);
    check_convolution((convolution){2, 3, 90, 41, 24, 3, 3, {.stride = {2, 3}, .padding = {1, 0}}, {1, 0}, 45, 13}, true);
    check_convolution((convolution){1, 4, 61, 40, 30, 2, 4, {.stride = {3, 1}}, {0, 0}, 20, 37}, true);
    check_filters((convolution){2, 3, 12, 13, 35, 3, 3, {.groups = 1}, {0, 0}, 10, 11}, true, true);
}

/* Filters that go in two passes. */
static void passes(void) { check_convolution((convolution){1, 11, 9, 10, 16, 7, 7, {.groups = 1}, {0, 0}, 3, 4}, false); }

/* Few channels and filters, enough pixels: tiles that move back, margins, an odd tile of taps in both directions, blocks and parts.
 */
static void few_taps(void) {
    check_convolution((convolution){2, 1, 17, 18, 6, 5, 4, {.groups = 1}, {0, 0}, 13, 15}, true);
    check_convolution((convolution){2, 2, 10, 22, 3, 3, 7, {.padding = {2, 3}, .dilation = {2, 1}}, {2, 3}, 10, 22}, true);
    check_convolution((convolution){3, 5, 11, 10, 8, 2, 3, {.padding = {1, 1}}, {1, 1}, 12, 10}, true);
    check_convolution((convolution){4, 1, 29, 30, 3, 1, 3, {.groups = 1}, {0, 0}, 29, 28}, true); /* one part, of blocks */
    check_convolution((convolution){9, 1, 32, 40, 2, 2, 11, {.groups = 1}, {0, 0}, 31, 30}, true);
    check_convolution((convolution){9, 1, 38, 32, 16, 7, 4, {.groups = 1}, {0, 0}, 32, 29}, true);
    check_convolution((convolution){3, 2, 9, 7, 3, 3, 4, {.stride = {2, 1}}, {0, 0}, 4, 4}, true); /* tiles of several rows */
    check_convolution((convolution){1, 5, 5, 130, 64, 2, 3, {.groups = 1}, {0, 0}, 4, 128}, true); /* blocks of a part of a row */
}

/* Pixels as lanes: tiles and groups that move back, taps in parts, every number of filters, blocks and parts of the rows. */
static void one_channel(void) {
    check_convolution((convolution){3, 1, 16, 25, 6, 4, 5, {.groups = 1}, {0, 0}, 13, 21}, true);
    check_convolution((convolution){2, 1, 30, 40, 8, 3, 2, {.stride = {2, 1}}, {0, 0}, 14, 39}, true);
    check_convolution((convolution){1, 1, 16, 34, 6, 2, 11, {.groups = 1}, {0, 0}, 15, 24}, true);
    check_convolution((convolution){1, 1, 9, 12, 2, 2, 3, {.groups = 1}, {0, 0}, 8, 10}, true);
    check_convolution((convolution){60, 1, 26, 26, 4, 6, 6, {.groups = 1}, {0, 0}, 21, 21}, true);
}

/* Few pixels and many products each: splits whose sums go into images, with a bias for every group. */
static void image_splits(void) {
    check_convolution((convolution){2, 80, 3, 4, 12, 3, 3, {.groups = 2}, {0, 0}, 1, 2}, false);
    check_convolution((convolution){1, 3, 4, 5, 5, 2, 2, {.same = true}, {0, 0}, 4, 5}, false); /* zeros at the end only */
}

/* One filter per channel: vectors that channels do not fill, strides with and without a tap for every pixel, rows in pieces, more
   taps in a row than there are registers for their sums. */
static void depthwise(void) {
    check_convolution(
        (convolution){2, 6, 9, 23, 6, 3, 3, {.stride = {2, 1}, .padding = {1, 1}, .dilation = {1, 2}, .groups = 6}, {1, 1}, 5, 21},
        true);
    check_convolution(
        (convolution){2, 6, 8, 10, 6, 3, 2, {.stride = {1, 2}, .padding = {2, 1}, .dilation = {2, 1}, .groups = 6}, {2, 1}, 8, 6},
        true);
    check_convolution((convolution){3, 5, 20, 16, 5, 3, 3, {.padding = {1, 1}, .groups = 5}, {1, 1}, 20, 16}, true);
    check_convolution((convolution){1, 6, 9, 12, 6, 2, 3, {.stride = {2, 1}, .padding = {0, 1}, .groups = 6}, {0, 1}, 4, 12}, true);
    check_convolution(
        (convolution){1, 6, 5, 15, 6, 2, 3, {.stride = {1, 2}, .padding = {0, 1}, .dilation = {1, 2}, .groups = 6}, {0, 1}, 4, 7},
        true);
    check_convolution((convolution){1, 5, 4, 30, 5, 2, 25, {.padding = {0, 2}, .dilation = {2, 1}, .groups = 5}, {0, 2}, 2, 10},
                      true);
}

/* Groups of a few channels: vectors of several groups and of one, channels that fill no vector or are taken in turns, strides, columns that
   no tap reads or far outside, tiles that move back, work-items that go on in the next image, blocks in parts, rows left over from a
   longer run; filters as a training step leaves them. */
static void groups_of_few(void) {
    check_convolution(
        (convolution){3, 8, 7, 11, 8, 3, 3, {.stride = {2, 1}, .padding = {1, 1}, .dilation = {1, 2}, .groups = 4}, {1, 1}, 4, 9},
        true);
    check_convolution(
        (convolution){2, 15, 9, 13, 24, 3, 2, {.stride = {1, 2}, .padding = {2, 1}, .dilation = {2, 1}, .groups = 3}, {2, 1}, 9, 7},
        true);
    check_convolution((convolution){2, 8, 6, 40, 8, 3, 3, {.stride = {1, 2}, .padding = {1, 1}, .groups = 4}, {1, 1}, 6, 20}, true);
    check_convolution((convolution){2, 8, 6, 8, 8, 1, 1, {.padding = {0, 1}, .groups = 2}, {0, 1}, 6, 10}, true);
    check_convolution((convolution){1, 16, 6, 12, 16, 2, 3, {.stride = {1, 3}, .padding = {1, 1}, .groups = 2}, {1, 1}, 7, 4},
                      true);
    check_convolution((convolution){1, 80, 4, 160, 80, 2, 3, {.padding = {1, 1}, .groups = 40}, {1, 1}, 5, 160}, true);
    check_convolution((convolution){8, 8, 13, 160, 8, 3, 3, {.padding = {1, 1}, .groups = 4}, {1, 1}, 13, 160}, true);
    check_filters((convolution){3, 12, 17, 14, 12, 3, 3, {.padding = {1, 1}, .groups = 3}, {1, 1}, 17, 14}, true, true);
}

/* ---- as for a GPU: tiles of 32 by 32 where nothing else is said ---- */
static void tile_orders(void) {
    check_matmul(37, 41, 35, false); /* a along k, b along n */
    check_matmul(37, 41, 35, true);  /* a along m */
    check_linear(37, 41, 35);        /* b along k */
}

/* The same in whole fours. */
static void tile_fours(void) {
    check_matmul(36, 40, 36, true);
    check_linear(36, 40, 36);
    check_matmul(124, 64, 2048, false); /* a tile of 128 by 64, of whose rows a work-item loads two fours */
}

static void large_tiles(void) {
    check_matmul(256, 256, 17, false);
    check_matmul(256, 255, 17, true);
}

/* Whole fours in the tile whose blocks are 16 deep, in stages where B lies across. */
static void deep_tiles(void) {
    check_linear(256, 256, 48);
    check_linear(256, 256, 44);
}

static void staged_tiles(void) {
    check_matmul(256, 256, 48, false);
    check_matmul(256, 256, 40, true);
}

/* Windows of matrices with NaN around; they begin where no vector does. */
static void check_windows(int m, int n, int k, int row) {
    float *a = whole(row * row, 1, -3, 4), *b = whole(row * row, 2, -3, 4), *want = zeros(m * n);
    product(a + row + 1, row, 1, b + row + 1, row, 1, want, m, n, k);
    for (int i = 0; i < row * row; i++) {
        int r = i / row, c = i % row;
        if (r < 1 || r > m || c < 1 || c > k) a[i] = NAN;
        if (r < 1 || r > k || c < 1 || c > n) b[i] = NAN;
    }
    clef_tensor *x = clef_slice(clef_slice(put(CLEF_SHAPE(row, row), a), 0, 1, m + 1, 1), 1, 1, k + 1, 1);
    clef_tensor *y = clef_slice(clef_slice(put(CLEF_SHAPE(row, row), b), 0, 1, k + 1, 1), 1, 1, n + 1, 1);
    expect(clef_matmul(x, y), want, m * n);
}

static void tile_windows(void) { check_windows(36, 40, 20, 48); }
static void staged_windows(void) { check_windows(256, 256, 44, 260); }

static void tile_batches(void) {
    check_batch(2, 3, 2, 3, 13, 21, 7);
    check_batch(2, 1, 1, 3, 5, 9, 7);
    check_batch(2, 1, 2, 1, 3, 9, 600); /* in splits */
}

static void tile_splits(void) {
    check_linear(33, 21, 1301);
    check_linear(36, 24, 1304);
}

/* More of k in one split than depths are found at a time. */
static void tile_spans(void) {
    check_linear(33, 21, 509);
    check_convolution((convolution){1, 56, 5, 6, 8, 3, 3, {.padding = {1, 1}}, {1, 1}, 5, 6}, false);
}

/* Three levels of k: in the two images of a gradient, in splits whose sums go into images, with a bias for every group. */
static void tile_images(void) {
    images();
    check_convolution((convolution){1, 160, 3, 4, 12, 3, 3, {.groups = 2}, {0, 0}, 1, 2}, false);
}

/* ---- matrix units, with local memory in their place ---- */
static void check_half(int64_t m, int64_t n, int64_t k, int order) {
    bool ta = order & 1, tb = order & 2;
    float *a = whole(m * k, 1, -3, 4), *b = whole(k * n, 2, -3, 4), *want = zeros(m * n);
    product(a, ta ? 1 : k, ta ? m : 1, b, tb ? 1 : n, tb ? k : 1, want, m, n, k);
    clef_tensor *x = clef_to(put(ta ? CLEF_SHAPE(k, m) : CLEF_SHAPE(m, k), a), CLEF_F16);
    clef_tensor *y = clef_to(put(tb ? CLEF_SHAPE(n, k) : CLEF_SHAPE(k, n), b), CLEF_F16);
    clef_tensor *c = clef_matmul(ta ? clef_transpose(x, 0, 1) : x, tb ? clef_transpose(y, 0, 1) : y);
    expect(clef_to(c, CLEF_F32), want, m * n);
}

static void matrix_orders(void) {
    check_half(140, 41, 51, 0);
    check_half(256, 200, 19, 0); /* four sub-groups and more */
    check_half(37, 41, 151, 3);  /* three blocks along k and more */
}

static void matrix_eights(void) {
    check_half(40, 48, 136, 0); /* more blocks along k than stages */
    check_half(40, 48, 72, 3);
}

/* The same of f32, with less beside the factors of B than TF32 keeps. */
static void check_tf32(int64_t m, int64_t n, int64_t k, int order) {
    bool ta = order & 1, tb = order & 2;
    float *a = whole(m * k, 1, -3, 4), *b = whole(k * n, 2, -3, 4), *want = zeros(m * n);
    product(a, ta ? 1 : k, ta ? m : 1, b, tb ? 1 : n, tb ? k : 1, want, m, n, k);
    for (int64_t i = 0; i < k * n; i++) b[i] *= 1 + ldexpf(1, -12);
    clef_set_matmul_precision(ctx, CLEF_MATMUL_HIGH);
    clef_tensor *x = put(ta ? CLEF_SHAPE(k, m) : CLEF_SHAPE(m, k), a), *y = put(tb ? CLEF_SHAPE(n, k) : CLEF_SHAPE(k, n), b);
    expect(clef_matmul(ta ? clef_transpose(x, 0, 1) : x, tb ? clef_transpose(y, 0, 1) : y), want, m * n);
    clef_set_matmul_precision(ctx, CLEF_MATMUL_HIGHEST);
}

/* One alone in each row and column, beside ties: each result is a factor of A, rounded. */
static void check_ties(void) {
    enum { N = 40 };
    float *a = zeros(N * N), *b = zeros(N * N), *want = zeros(N * N);
    for (int i = 0; i < N * N; i++) {
        b[i] = i % (N + 1) == 0;
        a[i] = (float)(((1024 + i % 1024) << 13) + 4095 + i % 2) * (i % 3 ? 1.0f : -1.0f);
        want[i] = (float)((1024 + i % 1024 + i % 2) << 13) * (i % 3 ? 1.0f : -1.0f);
    }
    clef_set_matmul_precision(ctx, CLEF_MATMUL_HIGH);
    expect(clef_matmul(put(CLEF_SHAPE(N, N), a), put(CLEF_SHAPE(N, N), b)), want, N * N);
    clef_set_matmul_precision(ctx, CLEF_MATMUL_HIGHEST);
}

static void tf32_orders(void) {
    check_ties();
    check_tf32(140, 41, 51, 0);
    check_tf32(37, 41, 75, 3);
    check_tf32(43, 38, 21, 1);
}

static void tf32_fours(void) {
    check_tf32(40, 48, 68, 0);
    check_tf32(40, 48, 36, 3);
}

static void narrow_depthwise(void) {
    depthwise();
    check_convolution((convolution){1, 8, 5, 6, 8, 3, 3, {.padding = {1, 1}, .groups = 8}, {1, 1}, 5, 6}, true);
}

static void winograd(void) { check_convolution((convolution){2, 32, 12, 11, 33, 3, 3, {.padding = {1, 1}}, {1, 1}, 12, 11}, true); }

/* ---- what follows in a store ---- */
static clef_tensor *made_image(convolution v, bool backward) {
    int groups = v.options.groups ? v.options.groups : 1;
    clef_shape xs = CLEF_SHAPE(v.n, v.c, v.h, v.w), ws = CLEF_SHAPE(v.o, v.c / groups, v.kh, v.kw);
    clef_tensor *x = clef_require_grad(put(xs, whole(clef_shape_numel(xs), 1, -3, 4)), true), *dx = NULL;
    clef_tensor *w = put(ws, whole(clef_shape_numel(ws), 2, -3, 4));
    clef_tensor *y = clef_conv2d(x, w, put(CLEF_SHAPE(v.o), whole(v.o, 3, 5, 9)), &v.options);
    if (backward) differentiate(y, put(clef_tensor_shape(y), whole(size_of(y), 4, -2, 3)), &x, 1, &dx);
    return backward ? dx : y;
}

static clef_tensor *made_product(int64_t z, int64_t m, int64_t n, int64_t k) {
    return clef_matmul(put(CLEF_SHAPE(z, m, k), whole(z * m * k, 1, -3, 4)), put(CLEF_SHAPE(z, k, n), whole(z * k * n, 2, -3, 4)));
}

/* Its gradient as a step makes it, for parts of several rows. */
static clef_tensor *made_norm(bool backward) {
    clef_tensor *x[] = {clef_require_grad(put(CLEF_SHAPE(5, 35), whole(5 * 35, 1, -9, 9)), true),
                        clef_require_grad(put(CLEF_SHAPE(35), whole(35, 3, 1, 3)), true)};
    clef_tensor *y = clef_layer_norm(x[0], 1, backward ? x[1] : CLEF_NONE, CLEF_NONE, 1e-5), *dx[2];
    if (backward) differentiate(y, put(CLEF_SHAPE(5, 35), whole(5 * 35, 2, -90, 90)), x, 2, dx);
    return backward ? dx[0] : y;
}

static clef_tensor *one_of(int which) {
    switch (which) {
    case 0: return made_product(1, 13, 21, 7);
    case 1: return made_product(1, 14, 141, 2101); /* blocks, and panels that move back */
    case 2: return made_product(2, 3, 9, 600);     /* splits */
    case 3: return made_product(2, 29, 3, 37);     /* few columns */
    case 4: return made_image((convolution){2, 1, 17, 18, 6, 5, 4, {.groups = 1}, {0, 0}, 13, 15}, false);
    case 5: return made_image((convolution){25, 32, 4, 3, 20, 3, 3, {.padding = {1, 1}}, {1, 1}, 4, 3}, false);
    case 6: return made_image((convolution){3, 5, 20, 16, 5, 3, 3, {.padding = {1, 1}, .groups = 5}, {1, 1}, 20, 16}, false);
    case 7: return made_image((convolution){2, 40, 8, 8, 6, 3, 3, {.stride = {2, 2}, .padding = {1, 1}}, {1, 1}, 4, 4}, true);
    case 8: return made_product(1, 36, 39, 36);
    case 9: return made_image((convolution){2, 32, 12, 11, 33, 3, 3, {.padding = {1, 1}}, {1, 1}, 12, 11}, false);
    case 11: return made_image((convolution){2, 2, 16, 7, 3, 5, 4, {.groups = 1}, {0, 0}, 12, 4}, false);
    case 12: return made_image((convolution){2, 8, 6, 9, 8, 3, 3, {.padding = {1, 1}, .groups = 4}, {1, 1}, 6, 9}, false);
    default: return made_norm(which == 13);
    }
}

/* Its numbers are the device's alone. */
static clef_tensor *made(int which) {
    int64_t before = used;
    clef_tensor *t = one_of(which);
    used = before;
    return t;
}

/* relu(2·p + e), leaky relu of p + e, and what a gradient p is behind relu(e). */
static void check_epilogue(int which) {
    clef_tensor *plain = clef_keep(made(which)), *e = clef_keep(clef_sub_scalar(plain, 9)), *relu, *dx;
    int64_t n = size_of(plain);
    float *want = zeros(n), *leaked = zeros(n), *passed = zeros(n);
    wrong += clef_eval(e) != CLEF_OK || clef_read(plain, want, (size_t)n * sizeof *want) != CLEF_OK;
    for (int64_t i = 0; i < n; i++) {
        float other = want[i] - 9, sum = want[i] + other;
        leaked[i] = sum > 0 ? sum : 4 * sum;
        passed[i] = other > 0 ? want[i] : 0;
        want[i] = fmaxf(2 * want[i] + other, 0);
    }
    expect(clef_relu(clef_add(clef_mul_scalar(made(which), 2), e)), want, n);
    expect(clef_leaky_relu(clef_add(made(which), e), 4), leaked, n);
    clef_require_grad(e, true);
    relu = clef_keep(clef_relu(e));
    wrong += clef_eval(relu) != CLEF_OK;
    differentiate(relu, made(which), &e, 1, &dx);
    expect(dx, passed, n);
    clef_release(plain), clef_release(e), clef_release(relu);
}

static void epilogues(void) {
    for (int which = 0; which < 8; which++) check_epilogue(which);
    check_epilogue(11);
}

static void tile_epilogues(void) {
    static const int each[] = {0, 2, 6, 8, 9};
    for (int i = 0; i < 5; i++) check_epilogue(each[i]);
}

static void grouped_epilogues(void) { check_epilogue(12); }

static void row_epilogues(void) {
    check_epilogue(10);
    check_epilogue(13);
}

/* ---- pooling ---- */
typedef struct window {
    int n, c, h, w, kh, kw;
    clef_pool2d_options options;
    int oh, ow;
    bool adaptive;
} window;

static void reach(const window *v, int d, int i, int *begin, int *end) {
    int in = d ? v->w : v->h, k = d ? v->kw : v->kh, out = d ? v->ow : v->oh, s = v->options.stride[d] ? v->options.stride[d] : k;
    *begin = v->adaptive ? i * in / out : i * s - v->options.padding[d];
    *end = v->adaptive ? ((i + 1) * in + out - 1) / out : *begin + k;
    if (*begin < 0) *begin = 0;
    if (*end > in) *end = in;
}

/* Sums and counts of one window, and where its first maximum is; what flows back for a maximum (count 0) or an average. */
static void pool_window(const window *v, int64_t i, bool maximum, const float *x, float g, float *y, float *dx) {
    int r0, r1, c0, c1;
    reach(v, 0, (int)(i / v->ow % v->oh), &r0, &r1);
    reach(v, 1, (int)(i % v->ow), &c0, &c1);
    int64_t plane = i / v->ow / v->oh * v->h * v->w, best = plane + r0 * v->w + c0;
    float count = (float)(v->adaptive || v->options.exclude_padding ? (r1 - r0) * (c1 - c0) : v->kh * v->kw), sum = 0;
    for (int r = r0; r < r1; r++)
        for (int c = c0; c < c1; c++) {
            int64_t at = plane + r * v->w + c;
            if (x[at] > x[best]) best = at;
            sum += x[at];
            if (!maximum) dx[at] += g / count;
        }
    *y = maximum ? x[best] : sum / count;
    if (maximum) dx[best] += g;
}

static void check_pool(window v, bool maximum) {
    clef_shape xs = CLEF_SHAPE(v.n, v.c, v.h, v.w), ys = CLEF_SHAPE(v.n, v.c, v.oh, v.ow);
    int64_t nx = clef_shape_numel(xs), ny = clef_shape_numel(ys);
    float *x = whole(nx, 1, 1, maximum ? 4 : 9), *g = whole(ny, 2, 1, 9), *y = zeros(ny), *dx = zeros(nx);
    for (int64_t i = 0; i < nx && !maximum; i++) x[i] *= 36; /* whole averages for windows of 1, 2, 3, 4, 6 and 9 pixels */
    for (int64_t i = 0; i < ny; i++) g[i] *= 36;
    for (int64_t i = 0; i < ny; i++) pool_window(&v, i, maximum, x, g[i], &y[i], dx);
    clef_tensor *in = leaf(xs, x), *d,
                *out = v.adaptive ? clef_adaptive_avg_pool2d(in, v.oh, v.ow)
                       : maximum  ? clef_max_pool2d(in, v.kh, v.kw, &v.options)
                                  : clef_avg_pool2d(in, v.kh, v.kw, &v.options);
    expect_near(out, y, ny, 1e-3);
    differentiate(out, put(ys, g), &in, 1, &d);
    expect_near(d, dx, nx, 1e-3);
    clef_release(in);
}

static void maxima(void) {
    check_pool((window){2, 6, 6, 4, 3, 2, {.stride = {3, 2}}, 2, 2, false}, true); /* windows tile the image */
    check_pool((window){3, 6, 5, 7, 3, 2, {.stride = {2, 1}, .padding = {1, 1}}, 3, 8, false}, true);
    check_pool((window){2, 3, 5, 4, 2, 2, {.stride = {1, 1}}, 4, 3, false}, true); /* channels one by one */
}

static void small_windows(void) { check_pool((window){2, 5, 4, 6, 2, 1, {.stride = {2, 1}}, 2, 6, false}, true); }

static void averages(void) {
    window v = {3, 6, 5, 7, 3, 2, {.stride = {2, 1}, .padding = {1, 1}}, 3, 8, false};
    check_pool(v, false);
    v.options.exclude_padding = true;
    check_pool(v, false);
}

static void adaptive(void) { check_pool((window){2, 6, 5, 7, 0, 0, {.stride = {0}}, 3, 4, true}, false); }

/* ---- reductions ---- */
typedef clef_tensor *(*reduction)(clef_tensor *, const int *, int, bool);

/* x [outer, n, inner] over n. */
static void check_reduction(reduction f, char join, int64_t outer, int64_t n, int64_t inner, int low, int high) {
    float *x = whole(outer * n * inner, 1, low, high), *want = zeros(outer * inner);
    for (int64_t i = 0; i < outer * inner; i++) {
        const float *line = x + i / inner * n * inner + i % inner;
        double all = line[0];
        for (int64_t k = 1; k < n; k++) {
            double v = line[k * inner];
            all = join == '*' ? all * v : join == '>' ? fmax(all, v) : join == '<' ? fmin(all, v) : all + v;
        }
        want[i] = (float)(join == '/' ? all / (double)n : all);
    }
    expect_near(f(put(CLEF_SHAPE(outer, n, inner), x), (int[]){1}, 1, false), want, outer * inner, join == '/' ? 1e-3 : 0);
}

static void sums_of_rows(void) {
    check_reduction(clef_sum, '+', 3, 1303, 1, -3, 4);
    check_reduction(clef_sum, '+', 2, 8201, 1, 1, 4); /* in two splits */
    check_reduction(clef_mean, '/', 3, 11, 1, 1, 99);
}

static void sums_of_columns(void) {
    check_reduction(clef_sum, '+', 3, 75, 11, -3, 4);
    check_reduction(clef_sum, '+', 2, 2901, 5, -3, 4); /* in two splits */
    check_reduction(clef_mean, '/', 2, 9, 21, 1, 99);
    check_reduction(clef_sum, '+', 2, 3, 2069, -3, 4); /* two strips */
}

static void extremes(void) {
    check_reduction(clef_max, '>', 3, 23, 1, -99, -1);
    check_reduction(clef_min, '<', 3, 23, 1, 1, 99);
    check_reduction(clef_prod, '*', 3, 9, 1, 1, 3);
}

/* The first best of each column; in the last column it stands at the end. */
static void check_choices(int outer, int n, int inner, bool with_nan) {
    float *x = whole(outer * n * inner, 1, -2, 2);
    int64_t *most = malloc((size_t)(2 * outer * inner) * sizeof *most), *least = most + outer * inner;
    for (int i = 0; i < outer; i++) x[(i * n + n - 1) * inner + inner - 1] = i ? 7 : -7;
    for (int i = 0; with_nan && i < outer; i++) x[(i * n + n * 21 / 25) * inner] = x[(i * n + n - 1) * inner] = NAN;
    for (int i = 0; i < outer * inner; i++) {
        const float *line = x + i / inner * n * inner + i % inner;
        most[i] = least[i] = 0;
        for (int k = 1; k < n && !isnan(line[most[i] * inner]); k++) {
            if (line[k * inner] > line[most[i] * inner] || isnan(line[k * inner])) most[i] = k;
            if (line[k * inner] < line[least[i] * inner] || isnan(line[k * inner])) least[i] = k;
        }
    }
    expect_bytes(clef_argmax(put(CLEF_SHAPE(outer, n, inner), x), 1, false), most, (size_t)(outer * inner) * sizeof *most);
    expect_bytes(clef_argmin(put(CLEF_SHAPE(outer, n, inner), x), 1, false), least, (size_t)(outer * inner) * sizeof *least);
    free(most);
}

static void choices(void) {
    check_choices(3, 9, 5, false);
    check_choices(2, 9, 69, true);
    check_choices(3, 75, 1, false);
    check_choices(2, 75, 1, true);
}

/* s0 = Σ a, s1 = Σ a (x − m) over the middle of [outer, n, inner], a = g or x − m. */
static void check_pair(int64_t outer, int64_t n, int64_t inner, bool with) {
    clef_shape shape = CLEF_SHAPE(outer, n, inner), kept = CLEF_SHAPE(outer, 1, inner);
    float *x = whole(outer * n * inner, 1, -3, 4), *g = whole(outer * n * inner, 2, -3, 4), *m = whole(outer * inner, 3, -2, 3);
    float *s0 = zeros(outer * inner), *s1 = zeros(outer * inner);
    for (int64_t i = 0; i < outer * n * inner; i++) {
        int64_t to = i / inner / n * inner + i % inner;
        float far = x[i] - m[to], a = with ? g[i] : far;
        s0[to] += a;
        s1[to] += a * far;
    }
    clef_tensor *first = NULL, *second = NULL;
    wrong += !clef__pair_of_sums(with ? put(shape, g) : NULL, put(shape, x), put(kept, m), &first, &second);
    expect(first, s0, outer * inner);
    expect(second, s1, outer * inner);
}

static void pairs_of_rows(void) {
    check_pair(5, 301, 1, true);
    check_pair(1, 8201, 1, true);
    check_pair(5, 301, 1, false);
}

/* Rows that a work-group shares on a GPU, and large ones. */
static void sums_of_teams(void) {
    check_reduction(clef_sum, '+', 3, 1303, 1, -3, 4);
    check_reduction(clef_mean, '/', 2, 8201, 1, 1, 4);
    check_reduction(clef_max, '>', 3, 131, 1, -99, -1);
}
static void pairs_of_teams(void) {
    check_pair(5, 301, 1, true);
    check_pair(2, 4503, 1, false);
}

static void pairs_of_columns(void) {
    check_pair(3, 75, 11, true);
    check_pair(2, 2901, 5, true);
    check_pair(2, 9, 21, true);
}

/* Columns too short for a team, and columns of teams. */
static void vectors_of_columns(void) {
    check_reduction(clef_mean, '/', 3, 15, 11, 1, 99);
    check_pair(3, 13, 11, true);
    check_pair(3, 15, 11, true);
}
static void columns_of_teams(void) {
    check_reduction(clef_mean, '/', 3, 75, 11, 1, 99);
    check_reduction(clef_sum, '+', 2, 2901, 5, -3, 4); /* in two splits */
    check_reduction(clef_sum, '+', 2, 40, 33, -3, 4);  /* two blocks */
    check_pair(3, 75, 11, true);
    check_pair(2, 2901, 5, false);
}

#include "mutant_checks_rows.h"

/* ---- index ---- */
/* Indices from -1 to n: the first and the last lie outside. */
static int32_t *indices(int64_t count, uint32_t salt, int n) {
    float *v = whole(count, salt, -1, n);
    int32_t *index = (int32_t *)zeros(count);
    for (int64_t i = 0; i < count; i++) index[i] = (int32_t)v[i];
    return index;
}

static void check_gather(int64_t outer, int n, int64_t m, int64_t inner) {
    int64_t count = outer * m * inner;
    float *x = whole(outer * n * inner, 1, 1, 99), *src = whole(count, 2, 1, 9), *y = zeros(count),
          *sums = zeros(outer * n * inner);
    int32_t *index = indices(count, 3, n);
    memcpy(sums, x, (size_t)(outer * n * inner) * sizeof *sums);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = (i / inner / m * n + index[i]) * inner + i % inner;
        if (index[i] < 0 || index[i] >= n) continue;
        y[i] = x[at];
        sums[at] += src[i];
    }
    clef_tensor *k = clef_from_host(ctx, CLEF_SHAPE(outer, m, inner), CLEF_I32, index);
    expect(clef_gather(put(CLEF_SHAPE(outer, n, inner), x), 1, k), y, count);
    expect(clef_scatter_add(put(CLEF_SHAPE(outer, n, inner), x), 1, k, put(CLEF_SHAPE(outer, m, inner), src)), sums,
           outer * n * inner);
}

static void elements(void) {
    check_gather(3, 5, 9, 7);
    check_gather(1, 51, 2000, 2); /* each column has several owners */
    check_gather(2, 5, 3, 1);
}

/* Windows of m of n columns, in and out, at a number from the host or from the device, also beyond the last. */
static void check_moving(int64_t outer, int64_t n, int64_t m, int64_t inner, int64_t at, bool host) {
    float *x = whole(outer * n * inner, 1, 1, 99), *v = whole(outer * m * inner, 2, 1, 99), *part = zeros(outer * m * inner),
          *both = zeros(outer * n * inner);
    int64_t start = at > n - m ? n - m : at < 0 ? 0 : at;
    memcpy(both, x, (size_t)(outer * n * inner) * sizeof *both);
    for (int64_t i = 0; i < outer * m * inner; i++) {
        int64_t from = (i / inner / m * n + start + i / inner % m) * inner + i % inner;
        part[i] = x[from];
        both[from] = v[i];
    }
    clef_tensor *k = host ? clef_integer(ctx, start) : clef_from_host(ctx, CLEF_SCALAR, CLEF_I64, &at);
    clef_tensor *t = put(CLEF_SHAPE(outer, n, inner), x), *u = put(CLEF_SHAPE(outer, m, inner), v);
    expect(clef_slice_at(t, 1, k, m), part, outer * m * inner);
    expect(clef_slice_update(t, 1, k, u), both, outer * n * inner);
    clef_tensor *transposed = clef_slice_update(clef_transpose(t, 0, 2), 1, k, clef_copy(clef_transpose(u, 0, 2)));
    expect(clef_transpose(transposed, 0, 2), both, outer * n * inner);
    expect(clef_transpose(clef_slice_at(clef_transpose(t, 0, 2), 1, k, m), 0, 2), part, outer * m * inner);
}

static void moving(void) {
    check_moving(3, 9, 4, 7, 3, true);
    check_moving(2, 5, 2, 3, 9, false);
    check_moving(2, 5, 2, 1, -4, false);
    check_moving(2, 3, 1, 5001, 1, true); /* several blocks of a row */
    int32_t *values = (int32_t *)zeros(8 * 81);
    clef_shape deep = CLEF_SHAPE(2, 3, 2, 3, 2, 3, 2, 1);
    for (int i = 0; i < 432; i++) values[i] = i;
    clef_tensor *x = clef_from_host(ctx, deep, CLEF_I32, values);
    for (int d = 0; d + 1 < 8; d += 2) x = clef_transpose(x, d, d + 1);
    clef_tensor *y = clef_slice_at(x, 4, clef_integer(ctx, 1), 2), *z = clef_slice(x, 4, 1, 3, 1);
    expect(clef_to(clef_sum(clef_abs(clef_sub(y, z)), NULL, 0, false), CLEF_F32), zeros(1), 1);
}

/* The table is the upper part of a larger one, so that what lies behind it is not zero. */
static void table_rows(void) {
    enum { V = 7, D = 11, M = 600 };
    float *table = whole((V + 1) * D, 1, 1, 99), *g = whole(M * D, 2, 1, 9), *y = zeros(M * D), *sums = zeros(V * D);
    int32_t *index = indices(M, 3, V);
    for (int i = 0; i < M * D; i++) {
        int k = index[i / D];
        if (k < 0 || k >= V) continue;
        y[i] = table[k * D + i % D];
        sums[k * D + i % D] += g[i];
    }
    clef_tensor *k = clef_from_host(ctx, CLEF_SHAPE(M), CLEF_I32, index), *d, *x = leaf(CLEF_SHAPE(V, D), table);
    expect(clef_embedding(clef_slice(put(CLEF_SHAPE(V + 1, D), table), 0, 0, V, 1), k), y, M * D);
    differentiate(clef_embedding(x, k), put(CLEF_SHAPE(M, D), g), &x, 1, &d);
    expect(d, sums, V * D);
    clef_release(x);
}

/* Each place several times: the last element stays. */
static void replaced(void) {
    enum { OUTER = 2, N = 5, M = 30, INNER = 3, COUNT = OUTER * M * INNER };
    float *y = whole(OUTER * N * INNER, 1, 1, 99), *src = whole(COUNT, 2, 100, 999);
    int32_t *index = indices(COUNT, 3, N);
    clef_tensor *x = put(CLEF_SHAPE(OUTER, N, INNER), y), *k = clef_from_host(ctx, CLEF_SHAPE(OUTER, M, INNER), CLEF_I32, index);
    for (int i = 0; i < COUNT; i++)
        if (index[i] >= 0 && index[i] < N) y[(i / INNER / M * N + index[i]) * INNER + i % INNER] = src[i];
    expect(clef_scatter(x, 1, k, put(CLEF_SHAPE(OUTER, M, INNER), src)), y, OUTER * N * INNER);
}

/* The largest and the smallest of several numbers in each place. */
static void extremes_placed(void) {
    enum { OUTER = 2, N = 5, M = 30, INNER = 3, COUNT = OUTER * M * INNER, ALL = OUTER * N * INNER };
    float *x = whole(ALL, 1, -99, 99), *src = whole(COUNT, 2, -99, 99);
    int32_t *index = indices(COUNT, 3, N);
    clef_tensor *k = clef_from_host(ctx, CLEF_SHAPE(OUTER, M, INNER), CLEF_I32, index);
    for (int largest = 0; largest < 2; largest++) {
        float *y = zeros(ALL);
        memcpy(y, x, ALL * sizeof *y);
        for (int i = 0; i < COUNT; i++) {
            float *at = &y[(i / INNER / M * N + index[i]) * INNER + i % INNER];
            if (index[i] >= 0 && index[i] < N) *at = largest ? fmaxf(*at, src[i]) : fminf(*at, src[i]);
        }
        clef_scatter_reduction reduction = largest ? CLEF_SCATTER_MAX : CLEF_SCATTER_MIN;
        expect(
            clef_scatter_reduce(put(CLEF_SHAPE(OUTER, N, INNER), x), 1, k, put(CLEF_SHAPE(OUTER, M, INNER), src), reduction, true),
            y, ALL);
    }
}

/* Slices along the middle of three dimensions, read and added. */
static void slices(void) {
    enum { OUTER = 3, V = 7, D = 11, M = 40 };
    float *v = whole(OUTER * V * D, 1, 1, 99), *g = whole(OUTER * M * D, 2, 1, 9), *y = zeros(OUTER * M * D),
          *sums = zeros(OUTER * V * D);
    int32_t *index = indices(M, 3, V);
    for (int i = 0; i < OUTER * M * D; i++) {
        int k = index[i / D % M], at = (i / D / M * V + k) * D + i % D;
        if (k < 0 || k >= V) continue;
        y[i] = v[at];
        sums[at] += g[i];
    }
    clef_tensor *k = clef_from_host(ctx, CLEF_SHAPE(M), CLEF_I32, index), *d, *x = leaf(CLEF_SHAPE(OUTER, V, D), v);
    expect(clef_index_select(x, 1, k), y, OUTER * M * D);
    differentiate(clef_index_select(x, 1, k), put(CLEF_SHAPE(OUTER, M, D), g), &x, 1, &d);
    expect(d, sums, OUTER * V * D);
    clef_release(x);
}

/* Columns by one index for all rows. */
static void shared_columns(void) {
    enum { OUTER = 40, N = 9, M = 50 };
    float *x = whole(OUTER * N, 1, 1, 99), *y = zeros(OUTER * M);
    int32_t *index = indices(M, 3, N);
    for (int i = 0; i < OUTER * M; i++)
        if (index[i % M] >= 0 && index[i % M] < N) y[i] = x[i / M * N + index[i % M]];
    clef_tensor *k = clef_from_host(ctx, CLEF_SHAPE(M), CLEF_I32, index);
    expect(clef_index_select(put(CLEF_SHAPE(OUTER, N), x), 1, k), y, OUTER * M);
}

/* index_add to x: OUTER slices of V rows. */
static void check_added(int64_t outer, int64_t v, int64_t m, int64_t d) {
    float *x = whole(outer * v * d, 1, 1, 99), *src = whole(outer * m * d, 2, 1, 9), *y = zeros(outer * v * d);
    int32_t *index = indices(m, 3, v);
    memcpy(y, x, (size_t)(outer * v * d) * sizeof *y);
    for (int64_t i = 0; i < outer * m * d; i++) {
        int32_t k = index[i / d % m];
        if (k >= 0 && k < v) y[(i / d / m * v + k) * d + i % d] += src[i];
    }
    clef_tensor *at = clef_from_host(ctx, CLEF_SHAPE(m), CLEF_I32, index);
    expect(clef_index_add(put(CLEF_SHAPE(outer, v, d), x), 1, at, put(CLEF_SHAPE(outer, m, d), src)), y, outer * v * d);
}

static void added_rows(void) {
    check_added(3, 7, 40, 19);
    check_added(1, 50, 4000, 2);
}

/* So many elements go to so few places that each place has copies. */
static void copied(void) {
    check_gather(1, 3, 5001, 1);
    check_gather(1, 37, 5001, 1);
    check_added(1, 19, 5001, 1);
    check_added(1, 2, 9001, 3);
}

/* ---- sources ---- */
static void counted(void) {
    float *want = zeros(1003);
    for (int i = 0; i < 1003; i++) want[i] = (float)(5 + 3 * i);
    expect(clef_arange(ctx, 5, 5 + 3 * 1003, 3, CLEF_F32), want, 1003);
}

static const uint64_t SEED = 0x123456789abcdef0u;
static uint64_t drawn; /* counters, since the context was opened */

static void random_floats(uint64_t first, bool normal) {
    float *want = zeros(1003);
    for (int i = 0; i < 1003; i++) {
        philox_block b = philox(SEED, first + (uint64_t)i / 4);
        want[i] = normal ? philox_normal(b).v[i % 4] : philox_uniform(b.v[i % 4]);
    }
    expect(normal ? clef_randn(ctx, CLEF_SHAPE(1003)) : clef_rand(ctx, CLEF_SHAPE(1003)), want, 1003);
}

static void random_numbers(void) {
    for (int normal = 0; normal < 2; normal++, drawn += 251) random_floats(drawn, normal);
    clef_random_set(ctx, (clef_random_state){SEED, 0xfffffffdu}); /* whose lower half overflows on the way */
    random_floats(0xfffffffdu, false);
    clef_random_set(ctx, (clef_random_state){SEED, drawn});
}

#include "mutant_checks_order.h"
#include "mutant_checks_recurrent.h"
#include "mutant_checks_attention.h"

/* ---- storage ---- */
/* f32 bits with what bf16 and f16 make of them: ties both ways, below and above, infinity, a NaN with all its payload low. */
static const struct {
    uint32_t f32;
    uint16_t bf16, f16;
} roundings[] = {{0x3f800000, 0x3f80, 0x3c00}, {0x3f808000, 0x3f80, 0x3c04}, {0x3f818000, 0x3f82, 0x3c0c},
                 {0x3f808001, 0x3f81, 0x3c04}, {0xbf817fff, 0xbf81, 0xbc0c}, {0x45003000, 0x4500, 0x6802},
                 {0x45001000, 0x4500, 0x6800}, {0x477fe000, 0x4780, 0x7bff}, {0x7f800000, 0x7f80, 0x7c00},
                 {0xc5003001, 0xc500, 0xe802}, {0x7f800001, 0x7fc0, 0x7e00}};

static void halves(void) {
    enum { ROWS = sizeof roundings / sizeof *roundings, N = 2 * ROWS + 1 };
    uint32_t f32[N], exact[N];
    uint16_t bf16[N], f16[N];
    for (int i = 0; i < N; i++) {
        f32[i] = roundings[i % ROWS].f32;
        bf16[i] = roundings[i % ROWS].bf16;
        f16[i] = roundings[i % ROWS].f16;
        exact[i] = (uint32_t)bf16[i] << 16;
    }
    clef_tensor *x = clef_from_host(ctx, CLEF_SHAPE(N), CLEF_F32, f32);
    expect_bytes(clef_to(x, CLEF_BF16), bf16, sizeof bf16);
    expect_bytes(clef_to(clef_from_host(ctx, CLEF_SHAPE(N), CLEF_BF16, bf16), CLEF_F32), exact, sizeof exact);
    f16[ROWS - 1] = f16[2 * ROWS - 1] = 0; /* what a NaN becomes is the driver's choice */
    f32[ROWS - 1] = f32[2 * ROWS - 1] = 0;
    expect_bytes(clef_to(clef_from_host(ctx, CLEF_SHAPE(N), CLEF_F32, f32), CLEF_F16), f16, sizeof f16);
}

static void bytes(void) {
    float *v = whole(21, 1, 0, 255);
    uint8_t u[21];
    for (int i = 0; i < 21; i++) u[i] = (uint8_t)v[i];
    expect_bytes(clef_to(put(CLEF_SHAPE(21), v), CLEF_U8), u, sizeof u);
    expect(clef_to(clef_from_host(ctx, CLEF_SHAPE(21), CLEF_U8, u), CLEF_F32), v, 21);
}

/* Rows that end within a vector, read along them, down them, backwards and every second element. */
static void strides(void) {
    enum { H = 7, W = 11 };
    float *x = whole(H * W, 1, 1, 999), *down = zeros(H * W), *back = zeros(H * W), *apart = zeros(2 * H * W);
    for (int i = 0; i < H * W; i++) {
        apart[2 * i] = x[i];
        down[i % W * H + i / W] = x[i];
        back[H * W - 1 - i] = x[i];
    }
    clef_tensor *t = put(CLEF_SHAPE(H, W), x);
    expect(clef_copy(clef_transpose(t, 0, 1)), down, H * W);
    expect(clef_copy(clef_flip(clef_flip(t, 0), 1)), back, H * W);
    expect(clef_copy(clef_slice(put(CLEF_SHAPE(2 * H * W), apart), 0, 0, 2 * H * W, 2)), x, H * W);
}

/* ---- pointwise ---- */
/* Both sides of every choice, and the functions that share text in common.h, with their slopes. */
static void functions(void) {
    enum { N = 41 };
    float *x = zeros(N), *y = zeros(N), *slope = zeros(N), *g = zeros(N);
    for (int i = 0; i < N; i++) {
        double v = (i - 20) / 4.0, s = 1 / (1 + exp(-v)), e = 1e-5, ends[2];
        for (int k = 0; k < 2; k++) {
            double a = v + (2 * k - 1) * e;
            ends[k] = 1 / (1 + exp(-a)) + 2 * log1p(exp(a)) + 4 * a * erfc(-a / sqrt(2)) / 2 + 8 * a * tanh(log1p(exp(a)));
        }
        x[i] = (float)v;
        g[i] = 1;
        y[i] = (float)(s + 2 * log1p(exp(v)) + 4 * v * erfc(-v / sqrt(2)) / 2 + 8 * v * tanh(log1p(exp(v))));
        slope[i] = (float)((ends[1] - ends[0]) / (2 * e));
    }
    clef_tensor *t = leaf(CLEF_SHAPE(N), x), *d;
    clef_tensor *all = clef_add(clef_sigmoid(t), clef_mul_scalar(clef_softplus(t), 2));
    all = clef_add(all, clef_add(clef_mul_scalar(clef_gelu(t), 4), clef_mul_scalar(clef_mish(t), 8)));
    expect_near(all, y, N, 1e-4);
    differentiate(all, put(CLEF_SHAPE(N), g), &t, 1, &d);
    expect_near(d, slope, N, 1e-3);
    clef_release(t);
}

/* Powers of floats that are products. */
static void powers(void) {
    enum { N = 40 };
    float a[N], b[N], want[N];
    for (int i = 0; i < N; i++) {
        int x = i / 8 - 2, n = i % 8 - 3;
        a[i] = (float)(x ? x : 4), b[i] = (float)n, want[i] = 1;
        for (int k = 0; k < (n < 0 ? -n : n); k++) want[i] *= n < 0 ? 1 / a[i] : a[i];
    }
    expect(clef_pow(put(CLEF_SHAPE(N), a), put(CLEF_SHAPE(N), b)), want, N);
}

/* Powers of floats that are no products, from the least to the largest and where there are none; beside them some to the power 0. */
static void exponents(void) {
    static const float base[] = {0,     -0.0f, 1,         -1,          -3, 1.0009766f, 0.99951172f, 0.7f,
                                 1.41f, 3e38f, 0x1p-140f, 0x1.23p-70f, 5,  INFINITY,   -INFINITY,   NAN};
    static const float of_2[] = {-148.5f, -126.7f, -60.3f, -2.6f, 0.4f, 31.2f, 99.6f, 127.9f};
    static const float fixed[] = {5, -5, 0, 2.5f, -0.5f, 3e9f, -INFINITY, NAN};
    enum { BASES = 16, EACH = 16, N = BASES * EACH };
    float *a = zeros(N), *b = zeros(N), have[N];
    for (int i = 0; i < N; i++) {
        double log = log2(fabs((double)base[i / EACH]));
        a[i] = base[i / EACH];
        b[i] = i % EACH >= EACH / 2 ? fixed[i % (EACH / 2)] : (float)(of_2[i % EACH] / (isfinite(log) && log != 0 ? log : 1));
    }
    wrong += clef_read(clef_pow(put(CLEF_SHAPE(N), a), put(CLEF_SHAPE(N), b)), have, sizeof have) != CLEF_OK;
    for (int i = 0; i < N; i++) {
        double want = pow((double)a[i], (double)b[i]), off = fabs((double)have[i] - want);
        bool same = have[i] == (float)want && !signbit(have[i]) == !signbit(want);
        wrong += isnan(want) ? !isnan(have[i]) : !same && !(off <= 1.2e-7 * fabs(want) || off <= 0x1p-149);
    }
}

/* Quotients, remainders and powers of whole numbers, and bytes of floats. */
static void quotients(void) {
    enum { N = 66 };
    float *a = zeros(N), *b = zeros(N), *want = zeros(N), *bytes = zeros(N);
    for (int i = 0; i < N; i++) {
        int x = i / 6 - 5, y = i % 6 - 2, t = y ? x / y : 0, r = y ? x % y : 0, power = 1;
        int floor = t - (r && (r < 0) != (y < 0)), rest = r && (r < 0) != (y < 0) ? r + y : r;
        for (int k = 0; k < y; k++) power *= x;
        if (y < 0) power = x == 1 ? 1 : x == -1 ? 1 - 2 * (y & 1) : 0;
        a[i] = (float)x, b[i] = (float)y;
        want[i] = (float)(floor + 10 * t + 100 * rest + 1000 * r + 10000 * power);
        bytes[i] = (float)((int)(99.5 * x) & 255);
    }
    clef_tensor *fx = put(CLEF_SHAPE(N), a), *x = clef_to(fx, CLEF_I32), *y = clef_to(put(CLEF_SHAPE(N), b), CLEF_I32);
    clef_tensor *sum = clef_add(clef_floor_divide(x, y), clef_mul_scalar(clef_trunc_divide(x, y), 10));
    sum = clef_add(sum, clef_add(clef_mul_scalar(clef_remainder(x, y), 100), clef_mul_scalar(clef_fmod(x, y), 1000)));
    expect(clef_to(clef_add(sum, clef_mul_scalar(clef_pow(x, y), 10000)), CLEF_F32), want, N);
    expect(clef_to(clef_to(clef_mul_scalar(fx, 99.5), CLEF_U8), CLEF_F32), bytes, N);
}

/* Lanes that need an exact reduction beside small ones, and all four quarters. */
static void circles(void) {
    enum { N = 32 };
    float *x = zeros(N), *want = zeros(N);
    for (int i = 0; i < N; i++) {
        x[i] = i == 5 || i == 30 ? 3e7f : (i < 16 ? 0.0001f : 0.4f) * (float)i;
        want[i] = (float)(sin((double)x[i]) + 2 * cos((double)x[i]));
    }
    clef_tensor *t = put(CLEF_SHAPE(N), x);
    expect_near(clef_add(clef_sin(t), clef_mul_scalar(clef_cos(t), 2)), want, N, 1e-5);
}

static void picks(void) {
    float *a = whole(41, 1, -3, 3), *b = whole(41, 2, -3, 3), *want = zeros(41);
    for (int i = 0; i < 41; i++) want[i] = a[i] > b[i] ? a[i] : 10 * b[i];
    clef_tensor *x = put(CLEF_SHAPE(41), a), *y = put(CLEF_SHAPE(41), b);
    expect(clef_where(clef_gt(x, y), x, clef_mul_scalar(y, 10)), want, 41);
}

/* Teams' rows and columns by shuffles, with local memory in their place. */
static void shuffled_rows(void) {
    setenv("CLEF_SHUFFLE", "emulated", 1);
    sums_of_teams();
    softmax_teams();
    unsetenv("CLEF_SHUFFLE");
}
static void shuffled_columns(void) {
    setenv("CLEF_SHUFFLE", "emulated", 1);
    columns_of_teams();
    check_reduction(clef_sum, '+', 1, 601, 3, -3, 4);
    softmax_team_columns();
    unsetenv("CLEF_SHUFFLE");
}

/* Equal elements in the later half of a line, which all members write, have results with equal bits. */
static void check_agreement(int64_t outer, int64_t n, int64_t inner) {
    int64_t line = n * inner, all = outer * line;
    float *x = whole(all, 1, -500, 500), *y = zeros(all);
    for (int64_t i = 0; i < all; i++) x[i] = i % line / inner < n / 2 ? x[i] / 500 : 0.5f;
    clef_tensor *found = clef_softmax(put(CLEF_SHAPE(outer, n, inner), x), 1);
    wrong += size_of(found) != all || clef_read(found, y, (size_t)all * sizeof *y) != CLEF_OK;
    for (int64_t i = 0; i < all; i++) wrong += i % line / inner >= n / 2 && y[i] != y[i / line * line + line - inner + i % inner];
}
static void members_agree(void) {
    setenv("CLEF_SHUFFLE", "emulated", 1);
    check_agreement(7, 4503, 1);
    check_agreement(5, 1201, 3);
    unsetenv("CLEF_SHUFFLE");
}

/* These run with the profile `gpu`. */
/* clang-format off */
#define GPU_CHECKS(X)                                                                                                 \
    X(tile_orders) X(tile_fours) X(large_tiles) X(deep_tiles) X(staged_tiles) X(staged_windows) X(tile_windows) X(tile_batches) X(tile_splits) X(tile_spans) X(tile_images) \
    X(matrix_orders) X(matrix_eights) X(tf32_orders) X(tf32_fours)                                                                               \
    X(narrow_depthwise) X(winograd) X(tile_epilogues) X(vectors_of_columns) X(columns_of_teams) X(softmax_vectors)    \
    X(sums_of_teams) X(pairs_of_teams) X(layer_teams) X(softmax_teams) X(class_teams) X(layer_held) X(softmax_held) X(class_held) X(shuffled_rows) X(shuffled_columns) X(members_agree) \
    X(softmax_team_columns) X(softmax_team_splits) X(gru_together) X(lstm_products) X(gru_products)
#define CHECKS(X)                                                                                                     \
    GPU_CHECKS(X) X(depthwise)                                                                                        \
    X(tiles) X(transposed) X(few_columns) X(few_lines) X(batches) X(blocks) X(splits) X(images) X(channels_apart) X(threes) X(fours) X(far_threes) X(whole_threes) X(few_channels) \
    X(channel_rows) X(passes) X(image_splits) X(few_taps) X(one_channel) X(groups_of_few) X(grouped_epilogues) X(epilogues) X(row_epilogues)                                                                          \
    X(maxima) X(small_windows) X(averages) X(adaptive) X(sums_of_rows) X(sums_of_columns) X(extremes) X(choices) X(powers) X(exponents) \
    X(pairs_of_rows) X(pairs_of_columns) X(layer_rows) X(layer_slopes) X(softmax_rows) X(softmax_columns)             \
    X(softmax_splits) X(softmax_slopes) X(class_losses) X(elements) X(moving) X(table_rows) X(counted) X(random_numbers)        \
    X(replaced) X(extremes_placed) X(slices) X(shared_columns) X(added_rows) X(copied) X(square_rows)                                                                              \
    X(halves) X(bytes) X(strides) X(functions) X(quotients) X(circles) X(picks)          \
    X(ordered) X(grouped) X(keys) X(scanned) X(multiplied) X(dice) X(draws) X(races)                                                           \
    X(tanh_steps) X(relu_steps) X(lstm_steps) X(gru_steps) X(lstm_sequence) X(gru_sequence) \
    X(attended) X(attended_windows) X(attended_strips) X(attended_few) X(attended_few_windows) X(attended_short) X(attended_deep) X(attended_near)
/* Checks of one way to compute a product or a convolution: these rows are taken wherever they apply, as by CLEF_ROWS, so that no
   change of costs turns a check away from its kernel. */
#define FORCED_CHECKS(X)                                                                                              \
    X(tiles, "gemm") X(transposed, "gemm") X(batches, "gemm") X(blocks, "gemm") X(packed, "gemm") X(splits, "gemm")   \
    X(few_columns, "dot") X(few_lines, "lines") X(images, "product gemm") X(image_splits, "product gemm") X(few_channels, "fold")           \
    X(channel_rows, "fold_rows") X(passes, "direct") X(few_taps, "direct") X(one_channel, "one_channel") X(threes, "winograd_fused") X(fours, "winograd_fours") X(far_threes, "winograd_fused") X(whole_threes, "winograd_fused") X(depthwise, "depthwise") X(narrow_depthwise, "depthwise") X(groups_of_few, "grouped") X(grouped_epilogues, "grouped")     \
    X(winograd, "winograd") X(tile_orders, "tile") X(tile_fours, "tile") X(large_tiles, "tile") X(deep_tiles, "tile") X(staged_tiles, "tile") X(staged_windows, "tile")                       \
    X(tile_windows, "tile") X(tile_batches, "tile") X(tile_splits, "tile") X(tile_spans, "product tile") X(tile_images, "product tile") \
    X(tanh_steps, "steps") X(relu_steps, "steps") X(lstm_steps, "steps") X(gru_steps, "steps")                        \
    X(lstm_sequence, "sequence") X(gru_sequence, "sequence") X(gru_together, "steps") \
    X(lstm_products, "products") X(gru_products, "products")                                                          \
    X(attended_few, "split") X(attended_few_windows, "split") X(attended_short, "split")
/* clang-format on */
#endif
