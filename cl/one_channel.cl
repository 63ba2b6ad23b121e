/* one_channel.cl — convolutions of images of one channel by a few filters (src/kernels/one_channel.c).

   Lanes are pixels, as so few filters would leave most of them idle: a vector has HALF = W / 2 neighbouring pixels of a row twice, for
   two filters, which an image of one channel gives in one load.  In memory the RESULTS = 2 · NV filters of a pixel are neighbours;
   what HALF pixels have of them, NV vectors, goes from one order to the other by constant shuffles.

   pixels: y[pixel][n] = Σ x[pixel + tap] · w[tap][n] (+ bias[n]), and the epilogue (epilogue.h), row by row.  A work-item does whole
   rows, MR times HALF pixels at a time; the last tile of a row moves back.
   pixel_gradient: part[item][tap][n] = Σ x[pixel + tap] · dy[pixel][n] over the rows of an item, PART taps of a row of the filters
   at a time.  dy of `block` rows is reordered first; where the last pixels of a row move back, those that were there are zeros.
   pixel_sums: the sum of the parts in the order of the items.

   Knobs: W: lanes; HALF of them; KH, KW: taps; NV: half of the filters; MR (pixels); PART (pixel_gradient). */
#ifndef W
#define W 4
#endif
#ifndef HALF
#define HALF 2
#endif
#ifndef KH
#define KH 3
#endif
#ifndef KW
#define KW 3
#endif
#ifndef NV
#define NV 3
#endif
#ifndef MR
#define MR 2
#endif
#ifndef PART
#define PART 3
#endif
#include "common.h"
#include "args.h"
#include "one_channel.args"
#include "registers.h"
#define RESULT f32
#include "epilogue.h"

#define RESULTS (2 * NV)
#define TAPS (KH * KW)
#define V VEC(float, W)
#define H VEC(float, HALF)

/* ---- HALF pixels of all filters, by filters in registers, by pixels in memory ---- */

#define LIST_4(X, q) X(q, 0), X(q, 1), X(q, 2), X(q, 3)
#define LIST_8(X, q) LIST_4(X, q), X(q, 4), X(q, 5), X(q, 6), X(q, 7)
#define LIST_16(X, q) LIST_8(X, q), X(q, 8), X(q, 9), X(q, 10), X(q, 11), X(q, 12), X(q, 13), X(q, 14), X(q, 15)
#define LIST(X, q) CAT(LIST_, W)(X, q)
#define SHUFFLE(a, b, X, q) shuffle2(a, b, (VEC(uint, W))(LIST(X, q)))
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#undef SHUFFLE
#define SHUFFLE(a, b, X, q) __builtin_shufflevector(a, b, LIST(X, q))
#endif
#endif
/* Which number of the NV vectors comes to lane l of vector q; two vectors are shuffled at a time, then two of these joined. */
#define TO_MEMORY(q, l) (((q) * W + (l)) % RESULTS / 2 * W + (l) % 2 * HALF + ((q) * W + (l)) / RESULTS)
#define FROM_MEMORY(q, l) ((l) % HALF * RESULTS + 2 * (q) + (l) / HALF)
#define PAIR(at) ((at) % (2 * W))
#define JOIN(at, l) ((l) + ((at) < 2 * W ? 0 : W))
#define PAIR_TO(q, l) PAIR(TO_MEMORY(q, l))
#define JOIN_TO(q, l) JOIN(TO_MEMORY(q, l), l)
#define PAIR_FROM(q, l) PAIR(FROM_MEMORY(q, l))
#define JOIN_FROM(q, l) JOIN(FROM_MEMORY(q, l), l)
#define AT(v, i) v[(i) < NV ? (i) : 0]
#define REORDERED(v, q, WAY)                                                                           \
    SHUFFLE(SHUFFLE(AT(v, 0), AT(v, 1), PAIR_##WAY, q), SHUFFLE(AT(v, 2), AT(v, 3), PAIR_##WAY, q), JOIN_##WAY, q)

/* A number of each of two filters. */
#define FIRST_OR_SECOND(q, l) ((l) < HALF ? 0 : W)
#define BESIDE(first, second) SHUFFLE((V)(first), (V)(second), FIRST_OR_SECOND, 0)

static void put_pixels(const V *v, __global float *to) {
#define PUT(i, q) STORE(f32, W, to, (q) * W, REORDERED(v, q, TO));
    COLUMNS(PUT, 0)
}

/* Pixels outside `kept` become zeros. */
static void reorder_pixels(__global const float *from, VEC(int, W) kept, __global float *to) {
    V v[NV];
#define READ(i, q) v[q] = LOAD(f32, W, from, (q) * W);
#define TURN(i, q) STORE(f32, W, to, (q) * W, AS_(float, W)(AS_(int, W)(REORDERED(v, q, FROM)) & kept));
    COLUMNS(READ, 0)
    COLUMNS(TURN, 0)
}

static V twice(__global const float *p) {
#if W == 4
    return (V)(p[0], p[1], p[0], p[1]);
#else
    H h = CAT(VLOAD_, HALF)(p);
    return (V)(h, h);
#endif
}

/* ---- kernels ---- */

KERNEL(pixels, PIXELS_ARGS) {
    UNPACK(PIXELS_ARGS)
    int begin = (int)get_global_id(0) * per_item, end = min(begin + per_item, rows);
    V filters[TAPS * NV], biases[NV];
    PLAIN_LOOP
    for (int i = 0; i < TAPS * NV; i++) {
        __global const float *from = w_base + w_offset + i / NV / KW * wy + i / NV % KW * wx + i % NV * 2 * wn;
        filters[i] = BESIDE(from[0], from[wn]);
    }
    PLAIN_LOOP
    for (int j = 0; j < NV; j++) biases[j] = BESIDE(BIAS(1, bias_offset + 2 * j), BIAS(1, bias_offset + (2 * j + 1)));
    PLAIN_LOOP
    for (int row = begin; row < end; row++) {
        __global const float *top = x_base + x_offset + ((long)(row / out_h) * height + row % out_h * stride_h) * width;
        PLAIN_LOOP
        for (int at = 0; at < out_w; at += MR * HALF) {
            int ox = min(at, out_w - MR * HALF);
#define START(i, j) V c##i##_##j = biases[j];
#define START_ROW(i) COLUMNS(START, i)
            ROWS(START_ROW)
            PLAIN_LOOP
            for (int ky = 0; ky < KH; ky++) {
                __global const float *a = top + ky * width + ox;
                const V *b = filters + ky * KW * NV;
                PLAIN_LOOP
                for (int kx = 0; kx < KW; kx++) {
#define FETCH(i, j) V b##j = b[kx * NV + j];
#define FETCH_PIXELS(i) V a##i = twice(a + i * HALF + kx);
#define MULTIPLY(i, j) c##i##_##j = fma(a##i, b##j, c##i##_##j);
#define MULTIPLY_ROW(i) FETCH_PIXELS(i) COLUMNS(MULTIPLY, i)
                    COLUMNS(FETCH, 0)
                    ROWS(MULTIPLY_ROW)
                }
            }
            __global float *to = y_base + y_offset + ((long)row * out_w + ox) * RESULTS;
#define GIVE(i, j) v##i[j] = c##i##_##j;
#define GIVE_ROW(i)                                                                                    \
    V v##i[NV];                                                                                        \
    COLUMNS(GIVE, i)                                                                                   \
    put_pixels(v##i, to + i * HALF * RESULTS);
            ROWS(GIVE_ROW)
        }
        long done = (long)row * out_w * RESULTS;
        if (ops > EPILOGUE_BIAS) epilogue_row(y_base + y_offset + done, extra + extra_offset + done, 1, out_w * RESULTS, scale, ops);
    }
}

#define SUM_2(h) ((h).x + (h).y)
#define SUM_4(h) SUM_2((h).lo + (h).hi)
#define SUM_8(h) SUM_4((h).lo + (h).hi)

#define EACH_TAP(X) CAT(ROWS_, PART)(X)
KERNEL(pixel_gradient, PIXEL_GRADIENT_ARGS) {
    UNPACK(PIXEL_GRADIENT_ARGS)
    int item = (int)get_global_id(0), begin = item * per_item, end = min(begin + per_item, rows);
    int groups = (out_w + HALF - 1) / HALF; /* of HALF pixels */
    __global float *lines = turned_base + turned_offset + (long)item * block * groups * NV * W;
    V sums[TAPS * NV];
    int kept[W]; /* lanes of the last group whose pixels no other has */
    PLAIN_LOOP
    for (int l = 0; l < W; l++) kept[l] = l % HALF < groups * HALF - out_w ? 0 : -1;
    VEC(int, W) last = CAT(VLOAD_, W)(kept);
    PLAIN_LOOP
    for (int i = 0; i < TAPS * NV; i++) sums[i] = (V)(0);
    PLAIN_LOOP
    for (int from = begin; from < end; from += block) {
        int stop = min(from + block, end);
        __global float *line = lines;
        PLAIN_LOOP
        for (int row = from; row < stop; row++) {
            PLAIN_LOOP
            for (int at = 0; at < out_w; at += HALF, line += NV * W) {
                int ox = min(at, out_w - HALF);
                reorder_pixels(dy_base + dy_offset + ((long)row * out_w + ox) * RESULTS, ox < at ? last : (VEC(int, W))(-1), line);
            }
        }
        PLAIN_LOOP
        for (int tile = 0; tile < KH * ((KW + PART - 1) / PART); tile++) {
            int ky = tile % KH, kx_from = tile / KH * PART, kx = min(kx_from, KW - PART);
#define BEGIN_TAP(i) COLUMNS(BEGIN, i)
#define BEGIN(i, j) V c##i##_##j = (V)(0);
            EACH_TAP(BEGIN_TAP)
            __global const float *d = lines;
            PLAIN_LOOP
            for (int row = from; row < stop; row++) {
                __global const float *a =
                    x_base + x_offset + ((long)(row / out_h) * height + row % out_h * stride_h + ky) * width + kx;
                PLAIN_LOOP
                for (int at = 0; at < out_w; at += HALF, d += NV * W) {
                    int ox = min(at, out_w - HALF);
#define FETCH_GRADIENT(i, j) V d##j = LOAD(f32, W, d, (j) * W);
#define ADD(i, j) c##i##_##j = fma(a##i, d##j, c##i##_##j);
#define ADD_TAP(i)                                                                                     \
    V a##i = twice(a + ox + i);                                                                        \
    COLUMNS(ADD, i)
                    COLUMNS(FETCH_GRADIENT, 0)
                    EACH_TAP(ADD_TAP)
                }
            }
#define KEEP(i, j) sums[(ky * KW + kx + i) * NV + j] += c##i##_##j;
#define KEEP_TAP(i)                                                                                    \
    if (kx + i >= kx_from) { COLUMNS(KEEP, i) }
            EACH_TAP(KEEP_TAP)
        }
    }
    __global float *to = part_base + part_offset + (long)item * TAPS * RESULTS;
    PLAIN_LOOP
    for (int i = 0; i < TAPS * NV; i++) {
        to[2 * i] = CAT(SUM_, HALF)(sums[i].lo);
        to[2 * i + 1] = CAT(SUM_, HALF)(sums[i].hi);
    }
}

KERNEL(pixel_sums, PIXEL_SUMS_ARGS) {
    UNPACK(PIXEL_SUMS_ARGS)
    __global float *to = dw_base + dw_offset;
    PLAIN_LOOP
    for (int i = 0; i < TAPS * RESULTS; i++) {
        __global const float *from = part_base + part_offset + i;
        float sum = from[0];
        PLAIN_LOOP
        for (int p = 1; p < parts; p++) sum += from[p * TAPS * RESULTS];
        to[i] = sum;
    }
}
