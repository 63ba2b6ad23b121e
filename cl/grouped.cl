/* grouped.cl — convolutions of groups of a few channels, and their gradients, on channels-last images (src/kernels/grouped.c).

   A block is what W lanes of results need: where a group has fewer results than lanes, the W channels of W / RESULTS whole groups, and
   each lane takes its group's channel out of the vector that was read (SPREAD); else the channels of one group, each of them for all
   lanes.

   Rows of x are copied as f32 into lines of one block each, with zeros around, so that no loop over taps meets a border, and neighbouring
   pixels lie together: [row][block][pixel][channel].  A work-item owns a run of rows of y or dy, of one image after the other, and
   goes through them with `chunk` blocks at a time.  Its `room` holds their lines.

   grouped: y, or one phase of the gradient by the image, and the epilogue (epilogue.h).  Its lines are a ring: each row of x is
   copied once.  Filters are gathered before, [vector][ky][channel][kx][lane], from any strides.  The last P pixels of a row move
   back.
   grouped_weight: the sums of x·dy over the rows of an item, [item][ky][kx][channel][result], to be added up afterwards; JT channels
   and KW taps at a time, over `block` rows of dy of one image.

   Knobs: DT: f32, f16 or bf16, storage; W: lanes; CHANNELS, RESULTS: of a group; RESULTS is a multiple of W, or else CHANNELS and
   2, 4 or 8; KW: up to 7 taps of a row; STRIDE, DILATION: along a row; P: pixels at a time, at most a row's; JT: 1, 2 or 4, a
   divisor of CHANNELS.
   Checked with: CHANNELS=3 RESULTS=8 JT=1; W=8; W=16 CHANNELS=8 RESULTS=8 JT=4. */
#ifndef DT
#define DT f32
#endif
#ifndef W
#define W 4
#endif
#ifndef CHANNELS
#define CHANNELS 2
#endif
#ifndef RESULTS
#define RESULTS 2
#endif
#ifndef KW
#define KW 3
#endif
#ifndef STRIDE
#define STRIDE 1
#endif
#ifndef DILATION
#define DILATION 1
#endif
#ifndef P
#define P 4
#endif
#ifndef JT
#define JT 2
#endif
#include "common.h"
#include "args.h"
#include "grouped.args"
#include "registers.h"
#include "inside.h"
#define RESULT DT
#include "epilogue.h"

#define V VEC(float, W)
#define M MEMORY(DT)
#define SPREADS (RESULTS < W)
#define IN (SPREADS ? W : CHANNELS)                     /* channels of a block, */
#define OUT (SPREADS ? W : RESULTS)                     /* and results */
#define AT(p, k) (((p) * STRIDE + (k) * DILATION) * IN) /* pixel p's tap k in a line */

#define SPREAD_2_4_0(v) v.s0022
#define SPREAD_2_4_1(v) v.s1133
#define SPREAD_2_8_0(v) v.s00224466
#define SPREAD_2_8_1(v) v.s11335577
#define SPREAD_2_16_0(v) v.s0022446688aaccee
#define SPREAD_2_16_1(v) v.s1133557799bbddff
#define SPREAD_4_8_0(v) v.s00004444
#define SPREAD_4_8_1(v) v.s11115555
#define SPREAD_4_8_2(v) v.s22226666
#define SPREAD_4_8_3(v) v.s33337777
#define SPREAD_4_16_0(v) v.s000044448888cccc
#define SPREAD_4_16_1(v) v.s111155559999dddd
#define SPREAD_4_16_2(v) v.s22226666aaaaeeee
#define SPREAD_4_16_3(v) v.s33337777bbbbffff
#define SPREAD_8_16_0(v) v.s0000000088888888
#define SPREAD_8_16_1(v) v.s1111111199999999
#define SPREAD_8_16_2(v) v.s22222222aaaaaaaa
#define SPREAD_8_16_3(v) v.s33333333bbbbbbbb
#define SPREAD__(group, n, j, v) SPREAD_##group##_##n##_##j(v)
#define SPREAD_(group, n, j, v) SPREAD__(group, n, j, v)

/* What each lane's group has in channel j, 0 to 3, from some channel of a line on. */
#if RESULTS < W
#define OPERAND(from, j) SPREAD_(RESULTS, W, j, (CAT(VLOAD_, W)(from)))
#else
#define OPERAND(from, j) ((V)((from)[j]))
#endif

/* The pixels of a block that have a place in a line of so many; the others' places stay zero. */
static void copy_row(__global const M *from, int c, __global float *to, int width, int before, int pixels) {
    int end = min(width, pixels - before);
    PLAIN_LOOP
    for (int q = max(-before, 0); q < end; q++) {
        int i = 0;
        PLAIN_LOOP
        for (; i + W <= IN; i += W) STORE(f32, W, to, (q + before) * IN + i, LOAD(DT, W, from, q * c + i));
        PLAIN_LOOP
        for (; i < IN; i++) to[(q + before) * IN + i] = LOAD(DT, 1, from, q * c + i);
    }
}

static void clear(__global float *to, int count) {
    int i = 0;
    PLAIN_LOOP
    for (; i + W <= count; i += W) STORE(f32, W, to, i, (V)(0));
    PLAIN_LOOP
    for (; i < count; i++) to[i] = 0;
}

/* The filters of `count` results from `first` on. */
static void gather_filters(__global const M *w, int first, int count, int taps_h, long wy, long wx, long wc, long wn, long wg,
                           __global float *to) {
    PLAIN_LOOP
    for (int n = first; n < first + count; n += W) {
        PLAIN_LOOP
        for (int tap = 0; tap < taps_h * CHANNELS * KW; tap++, to += W) {
            __global const M *from = w + tap / (CHANNELS * KW) * wy + tap / KW % CHANNELS * wc + tap % KW * wx;
            if (wn == 1 && wg == RESULTS) {
                STORE(f32, W, to, 0, LOAD(DT, W, from, n));
                continue;
            }
            PLAIN_LOOP
            for (int r = n; r < n + W; r++) to[r - n] = LOAD(DT, 1, from, r / RESULTS * wg + r % RESULTS * wn);
        }
    }
}

/* Blocks from `part` on, a chunk of them; their lines. */
#define FIND_BLOCKS                                                                                \
    int blocks = min(chunk, o / OUT - part), pixels = line / IN;                                   \
    __global const M *from = x_base + x_offset + part * IN;

/* A row of an image, into its blocks' lines. */
#define COPY_ROW(n, row, to)                                                                       \
    PLAIN_LOOP                                                                                     \
    for (int b = 0; b < blocks; b++)                                                               \
        copy_row(from + ((n) * in_h + (row)) * in_w * c + b * IN, c, (to) + b * line, in_w, before_w, pixels);

/* Channel j of a tap's row, for a tile of pixels. */
#define START(i) V c##i = (V)(0);
#define FETCH(k, j) V w##k##_##j = CAT(VLOAD_, W)(weight + (j * KW + k) * W);
#define MULTIPLY(i, k, j) c##i = fma(OPERAND(a + AT(i, k), j), w##k##_##j, c##i);
#define FETCH_0(k) FETCH(k, 0)
#define FETCH_1(k) FETCH(k, 1)
#define FETCH_2(k) FETCH(k, 2)
#define FETCH_3(k) FETCH(k, 3)
#define MULTIPLY_0(i, k) MULTIPLY(i, k, 0)
#define MULTIPLY_1(i, k) MULTIPLY(i, k, 1)
#define MULTIPLY_2(i, k) MULTIPLY(i, k, 2)
#define MULTIPLY_3(i, k) MULTIPLY(i, k, 3)
#define PIXEL_0(i) CAT(COLUMNS_, KW)(MULTIPLY_0, i)
#define PIXEL_1(i) CAT(COLUMNS_, KW)(MULTIPLY_1, i)
#define PIXEL_2(i) CAT(COLUMNS_, KW)(MULTIPLY_2, i)
#define PIXEL_3(i) CAT(COLUMNS_, KW)(MULTIPLY_3, i)
#define PIXELS(X) CAT(ROWS_, P)(X)
#define TAKE_1 CAT(ROWS_, KW)(FETCH_0) PIXELS(PIXEL_0)
#define TAKE_2 TAKE_1 CAT(ROWS_, KW)(FETCH_1) PIXELS(PIXEL_1)
#define TAKE_4 TAKE_2 CAT(ROWS_, KW)(FETCH_2) PIXELS(PIXEL_2) CAT(ROWS_, KW)(FETCH_3) PIXELS(PIXEL_3)
#if JT == 4 /* by name: CAT does not expand within itself */
#define TAKE TAKE_4
#elif JT == 2
#define TAKE TAKE_2
#else
#define TAKE TAKE_1
#endif
#define PUT(i)                                                                                     \
    {                                                                                              \
        int at = result + i * apart_w * o;                                                         \
        STORE(DT, W, to, at, EPILOGUE(W, c##i + start, extra, at));                                \
    }
#define PUT_SUM(i) STORE(DT, W, to, result + i * apart_w * o, c##i + start);

KERNEL(grouped, GROUPED_ARGS) {
    UNPACK(GROUPED_ARGS)
    int begin = (int)get_global_id(0) * per_item, end = min(begin + per_item, rows);
    int reach = (taps_h - 1) * dilation_h + 1, weights = taps_h * CHANNELS * KW * W;
    __global float *lines = room_base + room_offset + (long)get_global_id(0) * item_room;
    __global float *filters = lines + (reach * chunk * line + W); /* operands may be read that much further */
    __global M *to = y_base + y_offset;
    extra += extra_offset;
    clear(lines, reach * chunk * line + W);
    PLAIN_LOOP
    for (int part = 0; part < o / OUT; part += chunk) {
        FIND_BLOCKS
        int next = 0;
        gather_filters(w_base + w_offset, part * OUT, blocks * OUT, taps_h, wy, wx, wc, wn, wg, filters);
        PLAIN_LOOP
        for (int r = begin; r < end; r++) {
            int y = r % out_h, n = r / out_h, top = y * stride_h - before_h;
            int first_h = first_inside(top, dilation_h, taps_h), end_h = end_inside(top, dilation_h, taps_h, in_h);
            if (y == 0) next = 0;
            PLAIN_LOOP
            for (next = max(next, top); next < min(top + reach, in_h); next++) COPY_ROW(n, next, lines + next % reach * chunk * line)
            PLAIN_LOOP
            for (int vector = 0; vector < blocks * (OUT / W); vector++) {
                V start = BIAS(W, bias_offset + part * OUT + vector * W);
                PLAIN_LOOP
                for (int at = 0; at < out_w; at += P) {
                    int p = min(at, out_w - P);
                    PIXELS(START)
                    PLAIN_LOOP
                    for (int ky = first_h; ky < end_h; ky++) {
                        int slot = (top + ky * dilation_h) % reach;
                        __global const float *a = lines + ((slot * chunk + vector / (OUT / W)) * line + p * STRIDE * IN);
                        __global const float *weight = filters + (vector * weights + ky * CHANNELS * KW * W);
                        PLAIN_LOOP
                        for (int j = 0; j < CHANNELS; j += JT, a += JT, weight += JT * KW * W) {
                            TAKE
                        }
                    }
                    int result = (origin + n * image_y + y * apart_h * line_y + p * apart_w) * o + part * OUT + vector * W;
                    if (ops > EPILOGUE_BIAS) {
                        PIXELS(PUT)
                    } else {
                        PIXELS(PUT_SUM)
                    }
                }
            }
        }
    }
}

/* KW taps of JT channels, of one pixel of dy. */
#define EACH_TAP(X) CAT(ROWS_, KW)(X)
#define EACH_CHANNEL(X, k) CAT(COLUMNS_, JT)(X, k)
#define BEGIN(k, j) V c##k##_##j = (V)(0);
#define BEGIN_TAP(k) EACH_CHANNEL(BEGIN, k)
#define GATHER(k, j) c##k##_##j = fma(OPERAND(a + AT(0, k), j), d, c##k##_##j);
#define GATHER_TAP(k) EACH_CHANNEL(GATHER, k)
#define GATHER_PIXEL                                                                               \
    {                                                                                              \
        V d = LOAD(DT, W, dy, 0);                                                                  \
        EACH_TAP(GATHER_TAP)                                                                       \
        a += STRIDE * IN;                                                                          \
        dy += o;                                                                                   \
    }
#define GIVE(k, j)                                                                                 \
    {                                                                                              \
        int at = (k * CHANNELS + j) * o;                                                           \
        STORE(f32, W, sum, at, later ? LOAD(f32, W, sum, at) + c##k##_##j : c##k##_##j);           \
    }
#define GIVE_TAP(k) EACH_CHANNEL(GIVE, k)

KERNEL(grouped_weight, GROUPED_WEIGHT_ARGS) {
    UNPACK(GROUPED_WEIGHT_ARGS)
    int begin = (int)get_global_id(0) * per_item, end = min(begin + per_item, rows), next;
    int reach = (taps_h - 1) * dilation_h + 1;
    __global float *lines = room_base + room_offset + (long)get_global_id(0) * item_room;
    __global float *sums = to_base + to_offset + (long)get_global_id(0) * taps_h * KW * CHANNELS * o;
    clear(lines, item_room);
    PLAIN_LOOP
    for (int r = begin; r < end; r = next) {
        int n = r / out_h, first = r % out_h, count = min(min(block, end - r), out_h - first);
        int top = first * stride_h - before_h, base = max(top, 0), bottom = min(top + (count - 1) * stride_h + reach, in_h);
        bool later = r > begin;
        next = r + count;
        PLAIN_LOOP
        for (int part = 0; part < o / OUT; part += chunk) {
            FIND_BLOCKS
            PLAIN_LOOP
            for (int row = base; row < bottom; row++) COPY_ROW(n, row, lines + (row - base) * chunk * line)
            PLAIN_LOOP
            for (int u = 0; u < blocks * (OUT / W) * taps_h * (CHANNELS / JT); u++) {
                int j = u % (CHANNELS / JT) * JT, ky = u / (CHANNELS / JT) % taps_h, vector = u / (CHANNELS / JT) / taps_h;
                int lane = part * OUT + vector * W;
                __global float *sum = sums + ((ky * KW * CHANNELS + j) * o + lane);
                EACH_TAP(BEGIN_TAP)
                PLAIN_LOOP
                for (int y = 0; y < count; y++) {
                    int row = top + y * stride_h + ky * dilation_h;
                    if (row < 0 || row >= in_h) continue;
                    __global const float *a = lines + (((row - base) * chunk + vector / (OUT / W)) * line + j);
                    __global const M *dy = dy_base + dy_offset + ((r + y) * out_w * o + lane);
                    int p = 0;
                    PLAIN_LOOP
                    for (; p + 4 <= out_w; p += 4) {
                        GATHER_PIXEL GATHER_PIXEL GATHER_PIXEL GATHER_PIXEL
                    }
                    PLAIN_LOOP
                    for (; p < out_w; p++) GATHER_PIXEL
                }
                EACH_TAP(GIVE_TAP)
            }
        }
    }
}
