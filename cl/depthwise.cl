/* depthwise.cl — convolution where each channel has a filter of its own, and its gradients, on channels-last images.

   W lanes are neighbouring channels; filters lie [kh][kw][c], so that a tap's weights are one load as its pixels are.  Nothing
   is padded: loops over taps and pixels are cut where the image ends.

   depthwise: y, or with BACKWARD the gradient by the image, and the epilogue (epilogue.h).  With a stride, dx's pixels fall into
   residue classes, each with the taps that reach it; within a class pixel i reads pixel i·step + base + j·shift through tap j, as
   y's pixels do.
   depthwise_weight: the sums of x·dy over `rows` rows of dy for each tap, [split][kh][kw][c], to be added up afterwards.

   With WIDE a work-item goes through whole rows of `chunk` channels, which stay in a cache from row to row; y's rows P pixels at
   a time, all their channels one vector after the other, so that memory is read in its order and what bounds the taps is found once;
   dy's vector by vector, with the sums of MR rows of NV taps in registers.  The last vector of channels moves back over the one before,
   and so do the last P pixels of y.  The device does not guess the next row in time, so a work-item asks for what that will be the first
   to read; before its own loads, as what stands between these and their sums goes through memory.  Otherwise a work-item owns
   one vector of the result.

   Where a row of the filter has TAPS taps, side by side, and what neighbouring pixels read lies STEP apart, the compiler sees which
   pixels they share: each is loaded once for all of them, as loads are more than the multiply-adds otherwise.

   Knobs: DT: f32, f16, bf16, f64, i32 or i64, storage; BACKWARD; WIDE; P: 4 to 8; TAPS, up to 7, or 0: not known; STEP; MR and NV: at
   most a filter's height and width; W: lanes, at most c, and a divisor of it if not WIDE.
   Checked with: WIDE=1; BACKWARD=1; WIDE=1 TAPS=3 STEP=2. */
#ifndef DT
#define DT f32
#endif
#ifndef W
#define W 4
#endif
#ifndef BACKWARD
#define BACKWARD 0
#endif
#ifndef WIDE
#define WIDE 0
#endif
#ifndef P
#define P 4
#endif
#ifndef TAPS
#define TAPS 0
#endif
#ifndef STEP
#define STEP 1
#endif
#ifndef MR
#define MR 3
#endif
#ifndef NV
#define NV 3
#endif
#include "common.h"
#include "args.h"
#include "depthwise.args"
#include "registers.h"
#include "inside.h"
#define RESULT DT
#include "epilogue.h"

#define M MEMORY(DT)
#define S COMPUTE(DT)
#define V VEC(S, W)

#define SUM_f32 f32
#define SUM_f16 f32
#define SUM_bf16 f32
#define SUM_f64 f64
#define SUM_i32 i32
#define SUM_i64 i64
#define SUM CAT(SUM_, DT) /* the dtype of a sum in memory */

#define FMA(x, y, z) CAT(FMA_, DT)(x, y, z)

#define PIXELS(X) CAT(ROWS_, P)(X)

/* One direction: what is read, what is made, and the convolution's attributes. */
typedef struct { int in, out, taps, stride, dilation, before; } axis;
#define ROWS_AXIS {in_h, out_h, taps_h, stride_h, dilation_h, before_h}
#define COLUMNS_AXIS {in_w, out_w, taps_w, stride_w, dilation_w, before_w}

/* Result pixels `residue`, residue + apart, … and what they read: `pixels` of them, the first tap and the way to the next. */
typedef struct { int pixels, apart, step, base, taps, shift, first, next; } reach;

#if BACKWARD
static int common_divisor(int a, int b) {
    PLAIN_LOOP
    while (b) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Of the taps that reach this class the last comes first, so that pixels are read forwards. */
static reach reach_of(axis a, int residue) {
    int divisor = common_divisor(a.stride, a.dilation), every = a.stride / divisor, shift = a.dilation / divisor;
    int at = residue + a.before, first = 0;
    PLAIN_LOOP
    while (first < every && (at - first * a.dilation) % a.stride != 0) first++;
    int taps = first < every && first < a.taps ? (a.taps - 1 - first) / every + 1 : 0;
    reach r = {(a.out - residue + a.stride - 1) / a.stride, a.stride, 1, (at - first * a.dilation) / a.stride - (taps - 1) * shift,
               taps, shift, first + (taps - 1) * every, -every};
    return r;
}
#define CLASSES(a) (a.stride)
#else
static reach reach_of(axis a, int residue) {
    reach r = {a.out, 1, a.stride, -a.before, a.taps, a.dilation, 0, 1};
    return r;
}
#define CLASSES(a) 1
#endif

/* ---- steps of depthwise ---- */

/* Row y of image n: its class, its taps in the image, and where it begins to read. */
#define FIND_ROW                                                                                   \
    reach rv = reach_of(v, y % CLASSES(v));                                                      \
    int top = y / CLASSES(v) * rv.step + rv.base, first_h = first_inside(top, rv.shift, rv.taps); \
    int end_h = end_inside(top, rv.shift, rv.taps, in_h), at_h = rv.shift * in_w * c, filter_h = rv.next * taps_w * c;

/* Columns of one class, and the distances from tap to tap and from pixel to pixel. */
#define FIND_COLUMNS(residue)                                                                      \
    reach rh = reach_of(h, residue);                                                             \
    int at_w = rh.shift * c, filter_w = rh.next * c, step = rh.step * c, apart = rh.apart * c;   \
    int weights = (rv.first * taps_w + rh.first) * c, from = ((n * in_h + top) * in_w + rh.base) * c; \
    int result = ((n * out_h + y) * out_w + (residue)) * c, below = rv.step * in_w * c;

/* Pixels from p on of the lanes from channel i on.  Their sums are short, and begin with the bias.  A tap's row below is asked for if
   none of the taps has read it yet. */
#define BEGIN(q) V sum##q = start;
#define PUT(q)                                                                                   \
    {                                                                                            \
        int put_at = result + (p + q) * apart + i;                                               \
        STORE(DT, W, to, put_at, EPILOGUE(W, sum##q, extra, put_at));                            \
    }
#define PUT_SUM(q) STORE(DT, W, to, result + (p + q) * apart + i, sum##q);
#define AHEAD(q) PREFETCH_READ(at + (q * step + below));
#define AHEAD_BETWEEN(q) PREFETCH_READ(at + ((q + 1) * step - c + below));
#define CORRELATE(SET, TAKE_ROW)                                                                 \
    {                                                                                            \
        V start = BIAS(W, bias_offset + i);                                                      \
        SET(BEGIN)                                                                               \
        PLAIN_LOOP                                                                               \
        for (int j = first_h; j < end_h; j++) {                                                  \
            __global const M *at = image + (from + p * step + j * at_h + i);                     \
            __global const M *weight = filter + (weights + j * filter_h + i);                    \
            if ((j - end_h + 1) * rv.shift + rv.step > 0) {                                      \
                SET(AHEAD)                                                                       \
                if (step != c) {                                                                 \
                    SET(AHEAD_BETWEEN)                                                           \
                }                                                                                \
            }                                                                                    \
            TAKE_ROW(SET)                                                                        \
        }                                                                                        \
        if (ops > EPILOGUE_BIAS) {                                                               \
            SET(PUT)                                                                             \
        } else {                                                                                 \
            SET(PUT_SUM)                                                                         \
        }                                                                                        \
    }

/* Taps first_w to end_w of a row. */
#define ADD(q) sum##q = FMA(LOAD(DT, W, at, k * at_w + q * step), w, sum##q);
#define TAKE_SOME(SET)                                                                           \
    PLAIN_LOOP                                                                                   \
    for (int k = first_w; k < end_w; k++) {                                                      \
        V w = LOAD(DT, W, weight, k * filter_w);                                                 \
        SET(ADD)                                                                                 \
    }

/* All taps of a row. */
#if TAPS
#define WEIGHT(k) V w##k = LOAD(DT, W, weight, k * filter_w);
#define ADD_TAP(q, k) sum##q = FMA(LOAD(DT, W, at, (q * STEP + k) * c), w##k, sum##q);
#define ADD_TAPS(q) CAT(COLUMNS_, TAPS)(ADD_TAP, q)
#define TAKE_ALL(SET)                                                                            \
    CAT(ROWS_, TAPS)(WEIGHT)                                                                     \
    SET(ADD_TAPS)
#else
#define TAKE_ALL(SET)                                                                            \
    const int first_w = 0, end_w = rh.taps;                                                      \
    TAKE_SOME(SET)
#endif

/* Pixel p's taps that lie in the image. */
#define FIND_TAPS                                                                                \
    int left = p * rh.step + rh.base, first_w = first_inside(left, rh.shift, rh.taps);           \
    int end_w = end_inside(left, rh.shift, rh.taps, in_w);

KERNEL(depthwise, DEPTHWISE_ARGS) {
    UNPACK(DEPTHWISE_ARGS)
    const axis v = ROWS_AXIS, h = COLUMNS_AXIS;
    __global const M *image = image_base + image_offset, *filter = filter_base + filter_offset;
    __global M *to = to_base + to_offset;
    extra += extra_offset;
#if WIDE
    int u = (int)get_global_id(0) * run, end = min(u + run, units), chunks = max(c / chunk, 1);
    PLAIN_LOOP
    for (; u < end; u++) {
        int y = u % out_h, part = u / out_h % chunks, n = u / out_h / chunks, last = part + 1 == chunks ? c : (part + 1) * chunk;
        FIND_ROW
        PLAIN_LOOP
        for (int residue = 0; residue < CLASSES(h); residue++) {
            FIND_COLUMNS(residue)
            /* Pixels from inner to outer have all taps of their row. */
            int inner = first_inside(rh.base, rh.step, rh.pixels);
            int outer = end_inside(rh.base + (rh.taps - 1) * rh.shift, rh.step, rh.pixels, in_w);
            if (outer - inner < P) inner = outer = rh.pixels;
            PLAIN_LOOP
            for (int next_p = 0; next_p < rh.pixels;) {
                bool whole = next_p >= inner && next_p < outer;
                int p = whole ? min(next_p, outer - P) : next_p;
                FIND_TAPS
                PLAIN_LOOP
                for (int next_i = part * chunk; next_i < last; next_i += W) {
                    int i = min(next_i, c - W);
                    if (whole) CORRELATE(PIXELS, TAKE_ALL)
                    else CORRELATE(ROWS_1, TAKE_SOME)
                }
                next_p = whole ? p + P : p + 1;
            }
        }
    }
#else
    int u = (int)get_global_id(0), vectors = c / W;
    if (u >= units) return;
    int i = u % vectors * W, x = u / vectors % out_w, y = u / vectors / out_w % out_h, n = u / vectors / out_w / out_h;
    FIND_ROW
    FIND_COLUMNS(x % CLASSES(h))
    int p = x / CLASSES(h);
    FIND_TAPS
    CORRELATE(ROWS_1, TAKE_SOME)
#endif
}

#if WIDE
/* add_NAME adds what a row of dy makes with rows of x to the sums of SET rows of NV taps, but leaves out the first `done` of a row.  x: what
   the first tap has for pixel 0, `left` columns into the row; at_h: how far the next tap's row is, below: how far x's row for the next
   row of dy is. */
#define TAKE(j, k) V sum##j##_##k = LOAD(SUM, W, sums, (j * taps_w + k) * c);
#define TAKE_TAPS(j) COLUMNS(TAKE, j)
#define GIVE(j, k) if (k >= done) STORE(SUM, W, sums, (j * taps_w + k) * c, sum##j##_##k);
#define GIVE_TAPS(j) COLUMNS(GIVE, j)
#define GATHER_TAPS(j) COLUMNS(GATHER, j)
#define GATHER_TAPS_INSIDE(j) COLUMNS(GATHER_INSIDE, j)
/* The next row's, but no nearer: this row's lines are often so far apart that they share few sets of a first-level cache. */
#define NEXT_ROW(p, COUNT)                                                                                                   \
    PREFETCH_TO_L2(dy + (p + h.out) * c);                                                                                    \
    PREFETCH_TO_L2(at + ((COUNT - 1) * at_h + below));
#if STEP == 1
/* Column by column of x: tap k of pixel p - k·dilation reads column p, so that one load of x serves all taps of a row. */
#define TAKE_COLUMN(j) V x##j = LOAD(DT, W, at, j * at_h);
#define TAKE_PIXEL(k) V d##k = LOAD(DT, W, dy, (p - k * h.dilation) * c);
#define GATHER(j, k) sum##j##_##k = FMA(x##j, d##k, sum##j##_##k);
#define GATHER_INSIDE(j, k)                                                                                                  \
    if (p - k * h.dilation >= 0 && p - k * h.dilation < h.out)                                                               \
        sum##j##_##k = FMA(x##j, LOAD(DT, W, dy, (p - k * h.dilation) * c), sum##j##_##k);
#define GATHER_ROW(SET, COUNT)                                                                                               \
    int reach_w = (NV - 1) * h.dilation, end = min(h.out + reach_w, h.in - left);                                            \
    PLAIN_LOOP                                                                                                               \
    for (int p = max(-left, 0); p < end; p++) {                                                                              \
        __global const M *at = x + p * c;                                                                                    \
        NEXT_ROW(p, COUNT)                                                                                                   \
        SET(TAKE_COLUMN)                                                                                                     \
        if (p >= reach_w && p < h.out) {                                                                                     \
            CAT(ROWS_, NV)(TAKE_PIXEL)                                                                                       \
            SET(GATHER_TAPS)                                                                                                 \
        } else {                                                                                                             \
            SET(GATHER_TAPS_INSIDE)                                                                                          \
        }                                                                                                                    \
    }
#else
#define GATHER(j, k) sum##j##_##k = FMA(LOAD(DT, W, at, j * at_h + k * at_w), d, sum##j##_##k);
#define GATHER_INSIDE(j, k) if (column + k * h.dilation >= 0 && column + k * h.dilation < h.in) GATHER(j, k)
#define GATHER_ROW(SET, COUNT)                                                                                               \
    int step = h.stride * c, at_w = h.dilation * c;                                                                          \
    /* Pixels from inner to outer have all of these taps. */                                                                 \
    int inner = first_inside(left, h.stride, h.out);                                                                         \
    int outer = end_inside(left + (NV - 1) * h.dilation, h.stride, h.out, h.in);                                             \
    PLAIN_LOOP                                                                                                               \
    for (int p = 0; p < h.out; p++) {                                                                                        \
        V d = LOAD(DT, W, dy, p * c);                                                                                        \
        __global const M *at = x + p * step;                                                                                 \
        int column = left + p * h.stride;                                                                                    \
        NEXT_ROW(p, COUNT)                                                                                                   \
        PREFETCH_READ(at + ((COUNT - 1) * at_h + step - c + below));                                                         \
        if (p >= inner && p < outer) {                                                                                       \
            SET(GATHER_TAPS)                                                                                                 \
        } else {                                                                                                             \
            SET(GATHER_TAPS_INSIDE)                                                                                          \
        }                                                                                                                    \
    }
#endif
#define DEFINE_ADD(NAME, SET, COUNT)                                                                                         \
    static void CAT(add_, NAME)(__global const M *restrict x, __global const M *restrict dy, __global S *restrict sums, int c, axis h, \
                                int taps_w, int left, int at_h, int below, int done) {                                       \
        SET(TAKE_TAPS)                                                                                                       \
        GATHER_ROW(SET, COUNT)                                                                                               \
        SET(GIVE_TAPS)                                                                                                       \
    }
DEFINE_ADD(row, ROWS_1, 1)
DEFINE_ADD(rows, ROWS, MR)
#endif

KERNEL(depthwise_weight, DEPTHWISE_WEIGHT_ARGS) {
    UNPACK(DEPTHWISE_WEIGHT_ARGS)
    __global const M *x = x_base + x_offset, *dy = dy_base + dy_offset;
    __global S *to = to_base + to_offset;
    int taps = taps_h * taps_w;
#if WIDE
    const axis h = COLUMNS_AXIS;
    int u = (int)get_global_id(0) * run, end = min(u + run, units), chunks = max(c / chunk, 1);
    int at_h = dilation_h * in_w * c, below = stride_h * in_w * c;
    PLAIN_LOOP
    for (; u < end; u++) {
        int part = u % chunks, split = u / chunks, last = part + 1 == chunks ? c : (part + 1) * chunk, next;
        __global S *sums = to + (long)split * taps * c;
        /* Whole vectors; then by itself one that moves back, and makes some of their sums again. */
        PLAIN_LOOP
        for (int first = part * chunk; first < last; first = next) {
            first = min(first, last - W);
            next = first + (last - first) / W * W;
            PLAIN_LOOP
            for (int t = 0; t < taps; t++)
                for (int i = first; i < next; i += W) STORE(SUM, W, sums, t * c + i, (V)(0));
            PLAIN_LOOP
            for (int r = split * rows; r < min((split + 1) * rows, all_rows); r++) {
                int top = r % out_h * stride_h - before_h, from = ((r / out_h * in_h + top) * in_w - before_w) * c;
                int first_h = first_inside(top, dilation_h, taps_h), end_h = end_inside(top, dilation_h, taps_h, in_h);
                PLAIN_LOOP
                for (int i = first; i < next; i += W) {
                    PLAIN_LOOP
                    for (int j = first_h, rows_taken; j < end_h; j += rows_taken) {
                        rows_taken = j + MR <= end_h ? MR : 1;
                        PLAIN_LOOP
                        for (int next_k = 0; next_k < taps_w; next_k += NV) {
                            int k = min(next_k, taps_w - NV), left = k * dilation_w - before_w;
                            __global const M *at = x + (from + j * at_h + k * dilation_w * c + i), *d = dy + (r * out_w * c + i);
                            __global S *sum = sums + ((j * taps_w + k) * c + i);
                            if (rows_taken == MR) add_rows(at, d, sum, c, h, taps_w, left, at_h, below, next_k - k);
                            else add_row(at, d, sum, c, h, taps_w, left, at_h, below, next_k - k);
                        }
                    }
                }
            }
        }
    }
#else
    int u = (int)get_global_id(0), vectors = c / W;
    if (u >= units) return;
    int i = u % vectors * W, t = u / vectors % taps, split = u / vectors / taps;
    int top = t / taps_w * dilation_h - before_h, left = t % taps_w * dilation_w - before_w;
    int first_h = first_inside(top, stride_h, out_h), end_h = end_inside(top, stride_h, out_h, in_h);
    int first_w = first_inside(left, stride_w, out_w), end_w = end_inside(left, stride_w, out_w, in_w);
    V total = (V)(0);
    PLAIN_LOOP
    for (int r = split * rows; r < min((split + 1) * rows, all_rows); r++) {
        int y = r % out_h;
        if (y < first_h || y >= end_h) continue;
        int from = ((r / out_h * in_h + y * stride_h + top) * in_w + left) * c + i;
        V sum = (V)(0);
        PLAIN_LOOP
        for (int p = first_w; p < end_w; p++)
            sum = FMA(LOAD(DT, W, x, from + p * stride_w * c), LOAD(DT, W, dy, (r * out_w + p) * c + i), sum);
        total += sum;
    }
    STORE(SUM, W, to, ((long)split * taps + t) * c + i, total);
#endif
}
