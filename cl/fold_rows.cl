/* fold_rows.cl — the gradient of a convolution by an image of few channels, row by row (src/kernels/fold_rows.c).

       t[ox][ky][kx][c] = Σ_o dy[oy][ox][o] · w[o][ky][kx][c]        dx[oy·stride + ky - before][ox·stride + kx - before][c] += t

   The columns of the product are taps × channels, so that few channels leave no lane idle.  A tile of MR pixels of dy makes all
   columns, NV vectors at a time; then every pixel adds its KH runs of KW · CHANNELS numbers to KH lines, which hold the rows of dx
   that are not whole yet.  A row is written before the first row of dy that does not reach it any more.  Lines lie in a ring: row y
   in that of (y + before) mod KH.

   A work-item does `per_item` parts; a part is a band of rows of one image.  Rows of dy that reach two bands are multiplied for both.

   Knobs: W: lanes; KH, KW, CHANNELS: taps and channels; STRIDE: along a row; FILTERS: channels of dy; MR, NV. */
#ifndef W
#define W 4
#endif
#ifndef KH
#define KH 3
#endif
#ifndef KW
#define KW 3
#endif
#ifndef CHANNELS
#define CHANNELS 3
#endif
#ifndef STRIDE
#define STRIDE 1
#endif
#ifndef FILTERS
#define FILTERS 8
#endif
#ifndef MR
#define MR 4
#endif
#ifndef NV
#define NV 1
#endif
#include "common.h"
#include "args.h"
#include "fold_rows.args"
#include "registers.h"
#include "transpose.h"

#define NR (NV * W)
#define RUN (KW * CHANNELS)
#define STEP (STRIDE * CHANNELS)
#define PANELS ((KH * RUN + NR - 1) / NR)
#define COLUMNS_IN_ALL (PANELS * NR)
#define V VEC(float, W)

/* W taps of W filters that follow one another, transposed: a vector of taps for each filter. */
static void pack_block(__global const float *w, long sy, long sx, long sc, int tap, __global float *to) {
#define READ_TAP(i)                                                                                    \
    int tap##i = min(tap + i, KH * RUN - 1);                                                           \
    V b##i, a##i = LOAD(f32, W, w, tap##i / RUN * sy + tap##i % RUN / CHANNELS * sx + tap##i % CHANNELS * sc);
    LINES(READ_TAP)
    TRANSPOSE(a, b)
#define PUT_FILTER(i) STORE(f32, W, to, i * NR, CAT(TURNED(a, b), i));
    LINES(PUT_FILTER)
}

/* [panel][filter][NR], from any strides; columns beyond the last tap repeat it, and nobody adds them. */
BY_ITSELF static void pack_filters(__global const float *w, long sy, long sx, long sc, long sn, __global float *to) {
    int blocks = sn == 1 ? FILTERS / W * W : 0; /* filters that blocks hold */
    PLAIN_LOOP
    for (int j = 0; j < COLUMNS_IN_ALL; j += W) {
        PLAIN_LOOP
        for (int n = 0; n < blocks; n += W) pack_block(w + n, sy, sx, sc, j, to + j / NR * FILTERS * NR + n * NR + j % NR);
    }
    PLAIN_LOOP
    for (int j = 0; j < COLUMNS_IN_ALL; j++) {
        int tap = min(j, KH * RUN - 1);
        __global const float *from = w + tap / RUN * sy + tap % RUN / CHANNELS * sx + tap % CHANNELS * sc;
        __global float *column = to + j / NR * FILTERS * NR + j % NR;
        PLAIN_LOOP
        for (int n = blocks; n < FILTERS; n++) column[n * NR] = from[n * sn];
    }
}

/* t[pixel][column] of MR pixels and one panel. */
static void multiply(__global const float *a, __global const float *b, V *t) {
#define START(i, j) V c##i##_##j = (V)(0);
#define START_ROW(i) COLUMNS(START, i)
    ROWS(START_ROW)
    PLAIN_LOOP
    for (int n = 0; n < FILTERS; n++) {
#define FETCH(i, j) V b##j = LOAD(f32, W, b, n * NR + j * W);
#define MULTIPLY(i, j) c##i##_##j = fma((V)(a[i * FILTERS + n]), b##j, c##i##_##j);
#define STEP_ROW(i) COLUMNS(MULTIPLY, i)
        COLUMNS(FETCH, 0)
        ROWS(STEP_ROW)
    }
#define PUT(i, j) t[i * (COLUMNS_IN_ALL / W) + j] = c##i##_##j;
#define PUT_ROW(i) COLUMNS(PUT, i)
    ROWS(PUT_ROW)
}

/* The runs of one pixel, each into its line; `last` has the bits of the lanes that the last vector of a run fills. */
static void add_runs(const float *t, __global float *lines, const int *line_of, int at, VEC(int, W) last) {
    PLAIN_LOOP
    for (int ky = 0; ky < KH; ky++) {
        __global float *to = lines + line_of[ky] + at;
        PLAIN_LOOP
        for (int r = 0; r < RUN; r += W) {
            V v = CAT(VLOAD_, W)(t + ky * RUN + r);
            if (r + W > RUN) v = AS_(float, W)(AS_(int, W)(v) & last);
            STORE(f32, W, to, r, LOAD(f32, W, to, r) + v);
        }
    }
}

/* A row of dx that is whole, unless it belongs to another band; its line begins anew. */
BY_ITSELF static void give(__global float *from, bool mine, __global float *to, int length, int line, int skip) {
    int i = 0;
    PLAIN_LOOP
    for (; mine && i + W <= length; i += W) STORE(f32, W, to, i, LOAD(f32, W, from, skip + i));
    PLAIN_LOOP
    for (; mine && i < length; i++) to[i] = from[skip + i];
    PLAIN_LOOP
    for (i = 0; i < line; i += W) STORE(f32, W, from, i, (V)(0));
}

KERNEL(fold_rows, FOLD_ROWS_ARGS) {
    UNPACK(FOLD_ROWS_ARGS)
    int item = (int)get_global_id(0), stop = min((item + 1) * per_item, parts), length = width * CHANNELS;
    __global float *filters = scratch_base + scratch_offset + (long)item * (FILTERS * COLUMNS_IN_ALL + KH * line);
    __global float *lines = filters + FILTERS * COLUMNS_IN_ALL;
    V t[MR * COLUMNS_IN_ALL / W + 1]; /* vectors, as drivers store one to an array of numbers in pieces */
    int bits[W], line_of[KH];
    PLAIN_LOOP
    for (int i = 0; i < W; i++) bits[i] = i < RUN % W ? -1 : 0;
    VEC(int, W) last = CAT(VLOAD_, W)(bits);
    t[MR * COLUMNS_IN_ALL / W] = (V)(0); /* what the last run reads beyond its end */
    pack_filters(w_base + w_offset, wy, wx, wc, wn, filters);
    PLAIN_LOOP
    for (int part = item * per_item; part < stop; part++) {
        int begin = part % bands * band, end = min(begin + band, height);
        __global float *to = dx_base + dx_offset + (long)(part / bands) * height * length;
        int first = (max(begin + before_h - KH + 1, 0) + stride_h - 1) / stride_h;
        int y = min(first * stride_h - before_h, begin);
        PLAIN_LOOP
        for (int i = 0; i < KH * line; i += W) STORE(f32, W, lines, i, (V)(0));
        PLAIN_LOOP
        for (int oy = first; oy < out_h && oy * stride_h - before_h < end; oy++) {
            __global const float *row = dy_base + dy_offset + ((long)(part / bands) * out_h + oy) * out_w * FILTERS;
            PLAIN_LOOP
            for (; y < end && y + before_h < oy * stride_h; y++)
                give(lines + (y + before_h) % KH * line, y >= begin, to + (long)y * length, length, line, before_w * CHANNELS);
            PLAIN_LOOP
            for (int ky = 0; ky < KH; ky++) line_of[ky] = (oy * stride_h + ky) % KH * line;
            PLAIN_LOOP
            for (int at = 0; at < out_w; at += MR) {
                int ox = min(at, out_w - MR); /* the last tile moves back, and leaves out what was added */
                PLAIN_LOOP
                for (int p = 0; p < PANELS; p++) multiply(row + ox * FILTERS, filters + p * FILTERS * NR, t + p * NV);
                PLAIN_LOOP
                for (int i = at - ox; i < MR; i++) add_runs((const float *)t + i * COLUMNS_IN_ALL, lines, line_of, (ox + i) * STEP, last);
            }
        }
        PLAIN_LOOP
        for (; y < end; y++)
            give(lines + (y + before_h) % KH * line, y >= begin, to + (long)y * length, length, line, before_w * CHANNELS);
    }
}
