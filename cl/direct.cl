/* direct.cl — convolutions of few channels and filters, whose taps are known when the kernel is compiled (src/kernels/direct.c).

   Images lie channels-last: the taps of one row of a filter, with their channels, are RUN neighbouring numbers, and those of the next
   pixel begin STEP further on.  Both are constants here, so that a short run costs no arithmetic of addresses.

   convolve: y[pixel][n] = Σ x[pixel][tap] · w[tap][n] (+ bias[n]), and the epilogue (epilogue.h), row by row.  A work-item does
   whole rows of y, MR neighbouring pixels of NV vectors at a time, in PASSES over a row; where pixels do not fill a row, its last
   tile moves back.  A tile may span DEEP short rows of an image instead, whole ones.
   Vectors that RESULTS does not fill write beyond their pixel, what the next one then overwrites; only a work-item's last one is
   written to measure.
   gradient: part[item][tap][n] = Σ x[pixel][tap] · dy[pixel][n] over the rows of an item, KEYS · PART taps at a time: PART of a run
   in each of KEYS rows of the filter, by ACROSS vectors of dy.  A block is `block` rows, or `span` pixels of one; its sums are whole
   before they are added to those of the earlier ones.
   finish: the sum of the parts in the order of the items.

   Knobs: DT: f32, f16 or bf16, storage of images and filters; W: lanes; KH, KW, CHANNELS, RESULTS: taps, channels, results per pixel;
   STRIDE: along a row; STAGED: rows of x are first copied as f32 into lines with zeros around; MR, DEEP, NV,
   PASSES (convolve; 1 unless results fill all vectors); KEYS, PART, their
   product TAPS, ACROSS, a divisor of a pixel's vectors, and COPIED, what STAGED is to convolve (gradient). */
#ifndef DT
#define DT f32
#endif
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
#define CHANNELS 1
#endif
#ifndef RESULTS
#define RESULTS 6
#endif
#ifndef STRIDE
#define STRIDE 1
#endif
#ifndef STAGED
#define STAGED 1
#endif
#ifndef NV
#define NV 2
#endif
#ifndef DEEP
#define DEEP 1
#endif
#ifndef PASSES
#define PASSES 1
#endif
#ifndef KEYS
#define KEYS 1
#endif
#ifndef PART
#define PART 3
#endif
#ifndef TAPS
#define TAPS 3
#endif
#ifndef ACROSS
#define ACROSS 1
#endif
#ifndef COPIED
#define COPIED STAGED
#endif
#ifndef MR
#define MR 3
#endif
#include "common.h"
#include "args.h"
#include "direct.args"
#include "registers.h"
#define RESULT DT
#include "epilogue.h"

#define NR (NV * W)
#define RUN (KW * CHANNELS)
#define STEP (STRIDE * CHANNELS)
#define PANELS ((RESULTS + W - 1) / W)
#define PARTS ((RUN + PART - 1) / PART)
#define V VEC(float, W)

/* Once more, for the names of dtype and lanes to be replaced before they are pasted. */
#define DEFINE_BOTH(dt, n) DEFINE_GATHER(dt, n) DEFINE_SCATTER(dt, n)
DEFINE_BOTH(DT, W)

/* `length` numbers of a row of the image; zeros outside it. */
BY_ITSELF static void stage(__global const MEMORY(DT) *from, bool inside, __global float *to, int length) {
    int i = 0;
    PLAIN_LOOP
    for (; i + W <= length; i += W) STORE(f32, W, to, i, inside ? LOAD(DT, W, from, i) : (V)(0));
    PLAIN_LOOP
    for (; i < length; i++) to[i] = inside ? LOAD(DT, 1, from, i) : 0;
}

/* [pass][tap][NR], from any strides. */
BY_ITSELF static void gather_filters(__global const MEMORY(DT) *w, long sy, long sx, long sc, long sn, float *to) {
    PLAIN_LOOP
    for (int tap = 0; tap < PASSES * KH * KW; tap++) {
        int n = tap / (KH * KW) * NR;
        __global const MEMORY(DT) *from = w + tap / KW % KH * sy + tap % KW * sx + n * sn;
        PLAIN_LOOP
        for (int c = 0; c < CHANNELS; c++, to += NR) {
            PLAIN_LOOP
            for (int j = 0; j < NR; j += W) {
                __global const MEMORY(DT) *at = from + c * sc + j * sn;
                V v = RESULTS == PASSES * NR && sn == 1 ? LOAD(DT, W, at, 0) : OF_PART(CAT(gather_, DT))(at, sn, RESULTS - n - j);
                CAT(VSTORE_, W)(v, to + j);
            }
        }
    }
}

KERNEL(convolve, CONVOLVE_ARGS) {
    UNPACK(CONVOLVE_ARGS)
    int begin = (int)get_global_id(0) * per_item, end = min(begin + per_item, rows), length = width * CHANNELS;
    float filters[PASSES * KH * RUN * NR], biases[PASSES * NR];
    gather_filters(w_base + w_offset, wy, wx, wc, wn, filters);
    PLAIN_LOOP
    for (int n = 0; n < PASSES * NR; n++) biases[n] = n < RESULTS ? BIAS(1, bias_offset + n) : 0;
#if STAGED
    __global float *lines = lines_base + lines_offset + get_global_id(0) * KH * line;
    stage(x_base, false, lines, KH * line);
#endif
    PLAIN_LOOP
    for (int row = begin; row < end; row += DEEP) {
        int top = row % out_h * stride_h - before_h; /* taps from ky_begin to ky_end are inside the image */
        int ky_begin = top < 0 ? (dilation_h - 1 - top) / dilation_h : 0;
        int ky_end = clamp((height - top + dilation_h - 1) / dilation_h, ky_begin, KH);
        __global const MEMORY(DT) *image = x_base + x_offset + (long)(row / out_h) * height * length;
#if STAGED
        PLAIN_LOOP
        for (int ky = ky_begin; ky < ky_end; ky++)
            stage(image + (top + ky * dilation_h) * length, true, lines + ky * line + before_w * CHANNELS, length);
        __global const float *a_row = lines;
        long a_step = line;
#else
        __global const float *a_row = image + top * length;
        long a_step = dilation_h * length;
#endif
        long below = stride_h * length; /* from a row of a tile to the next, where it has several */
        PLAIN_LOOP
        for (int pass = 0; pass < PASSES; pass++) {
#define FROM_BIAS(i, j) V bias##j = CAT(VLOAD_, W)(biases + pass * NR + j * W);
            COLUMNS(FROM_BIAS, 0)
            PLAIN_LOOP
            for (int at = 0; at < out_w; at += MR / DEEP) {
                int ox = min(at, out_w - MR / DEEP);
#define START(i, j) V c##i##_##j = (V)(0);
#define START_ROW(i) COLUMNS(START, i)
                ROWS(START_ROW)
                PLAIN_LOOP
                for (int ky = ky_begin; ky < ky_end; ky++) {
                    __global const float *a = a_row + ky * a_step + ox * STEP;
                    const float *b = filters + (pass * KH + ky) * RUN * NR;
                    PLAIN_LOOP
                    for (int r = 0; r < RUN; r++) {
#define FETCH(i, j) V b##j = CAT(VLOAD_, W)(b + r * NR + j * W);
#define MULTIPLY(i, j) c##i##_##j = fma((V)(a[i / (MR / DEEP) * below + i % (MR / DEEP) * STEP + r]), b##j, c##i##_##j);
#define STEP_ROW(i) COLUMNS(MULTIPLY, i)
                        COLUMNS(FETCH, 0)
                        ROWS(STEP_ROW)
                    }
                }
                __global MEMORY(DT) *to = y_base + y_offset + ((long)row * out_w + ox) * RESULTS + pass * NR;
                bool last = RESULTS < NR && row + DEEP == end && at + MR / DEEP >= out_w;
#define PUT(i, j) STORE(DT, W, to, i * RESULTS + j * W, c##i##_##j + bias##j);
#define PUT_EXACT(i, j) OF_PART(CAT(scatter_, DT))(to + i * RESULTS + j * W, 1, RESULTS - j * W, c##i##_##j + bias##j);
#define PUT_ROW(i)                                                                                     \
    if (i + 1 == MR && last) {                                                                         \
        COLUMNS(PUT_EXACT, i)                                                                          \
    } else {                                                                                           \
        COLUMNS(PUT, i)                                                                                \
    }
                ROWS(PUT_ROW)
            }
        }
        long done = (long)row * out_w * RESULTS;
        if (ops > EPILOGUE_BIAS) epilogue_row(y_base + y_offset + done, extra + extra_offset + done, 1, DEEP * out_w * RESULTS, scale, ops);
    }
}

/* The sum of `parts` parts of one tap, in their order. */
BY_ITSELF static void put_sum(__global const float *part, int parts, __global MEMORY(DT) *to, int tap) {
    PLAIN_LOOP
    for (int p = 0; p < PANELS; p++) {
        __global const float *from = part + (tap * PANELS + p) * W;
        V sum = LOAD(f32, W, from, 0);
        PLAIN_LOOP
        for (int i = 1; i < parts; i++) sum += LOAD(f32, W, from, i * KH * RUN * PANELS * W);
        OF_PART(CAT(scatter_, DT))(to + tap * RESULTS + p * W, 1, RESULTS - p * W, sum);
    }
}

/* Whole rows of x, with zeros around, for `count` rows of dy from row `from` on: KH for each. */
#define STAGE_ROWS(from, count)                                                                        \
    PLAIN_LOOP                                                                                         \
    for (int i = 0; i < (count) * KH; i++) {                                                           \
        int row = (from) + i / KH, y = row % out_h * stride_h - before_h + i % KH * dilation_h;        \
        __global const MEMORY(DT) *at = x_base + x_offset + ((long)(row / out_h) * height + y) * length; \
        stage(at, y >= 0 && y < height, lines + i * line + before_w * CHANNELS, length);               \
    }

#define EACH_TAP(X) CAT(ROWS_, TAPS)(X)
#define EACH_VECTOR(X, i) CAT(COLUMNS_, ACROSS)(X, i)
KERNEL(gradient, GRADIENT_ARGS) {
    UNPACK(GRADIENT_ARGS)
    int item = (int)get_global_id(0), begin = item * per_item, end = min(begin + per_item, rows), length = width * CHANNELS;
    __global float *sums = part_base + part_offset + (long)item * KH * RUN * PANELS * W;
#if COPIED
    __global float *lines = lines_base + lines_offset + (long)item * block * KH * line;
    stage(x_base, false, lines, block * KH * line);
#endif
    PLAIN_LOOP
    for (int from = begin; from < end; from += block) {
#if COPIED
        STAGE_ROWS(from, min(block, end - from))
#endif
        PLAIN_LOOP
        for (int left = 0; left < out_w; left += span) {
            int right = min(left + span, out_w);
            PLAIN_LOOP
            for (int tile = 0; tile < (KH + KEYS - 1) / KEYS * PARTS * (PANELS / ACROSS); tile++) {
                /* All taps for the same vectors of dy, which stay in a first-level cache. */
                int q = tile % ((KH + KEYS - 1) / KEYS * PARTS), p = tile / ((KH + KEYS - 1) / KEYS * PARTS) * ACROSS;
                int r_from = q % PARTS * PART, r_begin = min(r_from, RUN - PART);
                int ky_from = q / PARTS * KEYS, ky_begin = min(ky_from, KH - KEYS);
#define BEGIN(i, j) V c##i##_##j = (V)(0);
#define BEGIN_TAP(i) EACH_VECTOR(BEGIN, i)
                EACH_TAP(BEGIN_TAP)
                PLAIN_LOOP
                for (int row = from; row < min(from + block, end); row++) {
#if COPIED
                    __global const float *a = lines + ((row - from) * KH + ky_begin) * line + r_begin + left * STEP;
                    long a_step = line;
#else
                    int top = row % out_h * stride_h + ky_begin * dilation_h;
                    __global const float *a = x_base + x_offset + ((long)(row / out_h) * height + top) * length + r_begin + left * STEP;
                    long a_step = dilation_h * length;
#endif
                    __global const MEMORY(DT) *d = dy_base + dy_offset + ((long)row * out_w + left) * RESULTS + p * W;
                    int ahead = block * span * RESULTS;
                    int safe = row + 1 < rows || right < out_w ? right : right - 1; /* a whole vector of the last pixel may lie beyond dy */
#define GATHER(i, j) c##i##_##j = fma((V)((a + i / PART * a_step)[i % PART]), v##j, c##i##_##j);
#define GATHER_TAP(i) EACH_VECTOR(GATHER, i)
#define READ(i, j) V v##j = LOAD(DT, W, d, j * W);
#define READ_SOME(i, j) V v##j = OF_PART(CAT(gather_, DT))(d + j * W, 1, RESULTS - (p + j) * W);
                    PLAIN_LOOP
                    for (int ox = left; ox < safe; ox++, a += STEP, d += RESULTS) { /* no branch, for which sums would go to memory */
                        PREFETCH_TO_L2(d + ahead); /* the next block */
                        EACH_VECTOR(READ, 0)
                        EACH_TAP(GATHER_TAP)
                    }
                    if (safe < right) {
                        EACH_VECTOR(READ_SOME, 0)
                        EACH_TAP(GATHER_TAP)
                    }
                }
                __global float *to = sums + ((ky_begin * RUN + r_begin) * PANELS + p) * W;
                bool later = from > begin || left > 0;
#define ADD(i, j) STORE(f32, W, at, j * W, later ? LOAD(f32, W, at, j * W) + c##i##_##j : c##i##_##j);
#define ADD_TAP(i)                                                                                     \
    if (ky_begin + i / PART >= ky_from && r_begin + i % PART >= r_from) {                              \
        __global float *at = to + (i / PART * RUN + i % PART) * PANELS * W;                            \
        EACH_VECTOR(ADD, i)                                                                            \
    }
                EACH_TAP(ADD_TAP)
            }
        }
    }
    if (get_global_size(0) > 1) return;
    PLAIN_LOOP
    for (int tap = 0; tap < KH * RUN; tap++) put_sum(sums, 1, dw_base + dw_offset, tap);
}

/* A work-item does `run` taps. */
KERNEL(finish, DIRECT_FINISH_ARGS) {
    UNPACK(DIRECT_FINISH_ARGS)
    int begin = (int)get_global_id(0) * run;
    PLAIN_LOOP
    for (int tap = begin; tap < min(begin + run, KH * RUN); tap++) put_sum(part_base + part_offset, parts, dw_base + dw_offset, tap);
}
