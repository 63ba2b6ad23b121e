/* pack.cl — the helpers of gemm.cl, tile.cl and matrix.cl: what they read and write, put into the order they like.

   pack: B[k][n], k in three levels with any strides, into panels [z][ceil(N/width)][K][width], the last one filled with zeros.
   With width = MR it packs the rows of A in the same way.
   finish: C[z][m][n] = Σ_s partial[z][s][m][n] (+ bias[n]) in the order of s, into C's own strides; then the epilogue (epilogue.h).

   pad: an image with zeros around it, channels innermost; pad_in_squares: the same by transposed squares; pad_elements: the same, one
   element per work-item.

   Knobs: IN, OUT: storage before and after; W: lanes, which divide the width (pack). */
#ifndef IN
#define IN f32
#endif
#ifndef OUT
#define OUT f32
#endif
#ifndef W
#define W 4
#endif
#include "common.h"
#include "args.h"
#include "pack.args"
#include "transpose.h"
#define RESULT OUT
#include "epilogue.h"

#define S COMPUTE(OUT)
#define V VEC(S, W)

/* `run` rows of whole panels, contiguous along n. */
#define COPY(j) STORE(OUT, W, to, i * width + (j), LOAD(IN, W, row, i * step + (j)));
BY_ITSELF static void pack_straight(__global const MEMORY(IN) *row, long step, __global MEMORY(OUT) *to, int run, int width) {
    PLAIN_LOOP
    for (int i = 0; i < run; i++) {
        int j = 0;
        PLAIN_LOOP
        for (; j + 2 * W <= width; j += 2 * W) {
            COPY(j)
            COPY(j + W)
        }
        if (j < width) COPY(j)
    }
}

/* As many of `run` rows as fill squares of W × W, contiguous along k; returns how many.  The next square of the same columns is asked for:
   so many rows at a time are more than a CPU follows by itself. */
BY_ITSELF static int pack_turned(__global const MEMORY(IN) *row, long sn, __global MEMORY(OUT) *to, int run, int width) {
    int i = 0;
    PLAIN_LOOP
    for (; i + W <= run; i += W) {
        PLAIN_LOOP
        for (int j = 0; j < width; j += W) {
#define TAKE(q)                                                                                        \
    V a##q = LOAD(IN, W, row, i + (j + q) * sn), b##q;                                                 \
    PREFETCH_READ(row + i + W + (j + q) * sn);
            LINES(TAKE)
            TRANSPOSE(a, b)
#define GIVE(q) STORE(OUT, W, to, (i + q) * width + j, CAT(TURNED(a, b), q));
            LINES(GIVE)
        }
    }
    return i;
}

/* Any strides, and panels with fewer than width columns; in blocks of 16, so that both sides stay in the cache. */
BY_ITSELF static void pack_any(__global const MEMORY(IN) *row, long step, long sn, __global MEMORY(OUT) *to, int run, int width,
                               int lanes) {
    PLAIN_LOOP
    for (int i = 0; i < run; i += 16) {
        PLAIN_LOOP
        for (int j = 0; j < width; j++) {
            PLAIN_LOOP
            for (int l = i; l < min(i + 16, run); l++)
                STORE(OUT, 1, to, l * width + j, j < lanes ? LOAD(IN, 1, row, l * step + j * sn) : 0);
        }
    }
}

/* A work-item packs `rows` values of k of one panel; along whichever of n and k lies contiguous. */
KERNEL(pack, PACK_ARGS) {
    UNPACK(PACK_ARGS)
    int panel = (int)get_global_id(1), z = (int)get_global_id(2), n = panel * width;
    int k = (int)get_global_id(0) * rows, k_end = min(k + rows, K), lanes = min(width, N - n);
    if (n >= N) return;
    __global const MEMORY(IN) *from = from_base + from_offset + z / z2 * sz1 + z % z2 * sz2 + n * sn;
    __global MEMORY(OUT) *to = to_base + to_offset + ((long)(z * ((N + width - 1) / width) + panel) * K + k) * width;
    int r3 = k % k3, r2 = k / k3 % k2, r1 = k / k3 / k2;
    PLAIN_LOOP
    while (k < k_end) {
        int run = min(k3 - r3, k_end - k), done = 0;
        __global const MEMORY(IN) *row = from + (r1 * sk1 + r2 * sk2 + r3 * sk3);
        if (lanes == width && sn == 1) pack_straight(row, sk3, to, done = run, width);
        else if (lanes == width && sk3 == 1) done = pack_turned(row, sn, to, run, width);
        pack_any(row + done * sk3, sk3, sn, to + done * width, run - done, width, lanes);
        k += run;
        to += (long)run * width;
        r3 = 0;
        if (++r2 == k2) {
            r2 = 0;
            r1++;
        }
    }
}

/* A work-item sums `rows` rows of `columns` columns.  Work-items go along rows first, so that neighbours write neighbours. */
KERNEL(finish, FINISH_ARGS) {
    UNPACK(FINISH_ARGS)
    long u = (long)get_global_id(0), across = (N + columns - 1) / columns, down = (M + rows - 1) / rows, size = (long)M * N;
    if (u >= units) return;
    int n_begin = (int)(u % across) * columns, n_end = min(n_begin + columns, N);
    int z = (int)(u / across / down), m = (int)(u / across % down) * rows, m_end = min(m + rows, M);
    bias += bias_offset + z % z2 * bias_z;
    PLAIN_LOOP
    for (; m < m_end; m++) {
        __global const MEMORY(IN) *part = part_base + part_offset + z * splits * size + (long)m * N;
        __global MEMORY(OUT) *c = c_base + c_offset + z / z2 * cz1 + z % z2 * cz2 + m / m3 / m2 * cm1 + m / m3 % m2 * cm2 +
                                  m % m3 * cm3;
        __global const MEMORY(OUT) *with = extra + extra_offset + (c - c_base - c_offset);
        int n = n_begin;
        PLAIN_LOOP
        for (; cn == 1 && n + W <= n_end; n += W) {
            VEC(S, W) sum = LOAD(IN, W, part, n);
            PLAIN_LOOP
            for (int s = 1; s < splits; s++) sum += LOAD(IN, W, part, s * size + n);
            STORE(OUT, W, c, n, EPILOGUE(W, BIASED(W, sum, n), with, n));
        }
        PLAIN_LOOP
        for (; n < n_end; n++) {
            S sum = LOAD(IN, 1, part, n);
            PLAIN_LOOP
            for (int s = 1; s < splits; s++) sum += LOAD(IN, 1, part, s * size + n);
            STORE(OUT, 1, c, n * cn, EPILOGUE(1, BIASED(1, sum, n), with, n * cn));
        }
    }
}

/* Pixels of a row, a `pace` of 1 or 2 apart, by squares of W pixels and W channels, of which there are as many or more.  The last
   channels are put twice where they fill no square.  What a square reads behind the row goes nowhere; where so much lies beyond `room`,
   the last pixels are left.  Returns how many are done. */
#if W > 1
static int pad_turned(__global const MEMORY(IN) *from, long room, long pace, long sc, __global MEMORY(OUT) *to, int w, int c) {
    int done = (w + W - 1) / W * W;
    if ((c - 1) * sc + (done - 1) * pace < room) done = w;
    else done = w / W * W;
    PLAIN_LOOP
    for (int i = 0; i < c; i += W) {
        i = min(i, c - W);
        PLAIN_LOOP
        for (int x = 0; x < done; x += W) {
            __global const MEMORY(IN) *square = from + i * sc + x * pace;
#define HOLD(q) V a##q, b##q;
            LINES(HOLD)
            if (pace == 1) {
#define TAKE_NEXT(q) a##q = LOAD(IN, W, square, q * sc);
                LINES(TAKE_NEXT)
            } else { /* the second vector ends in the last of these pixels, so that nothing behind it is read */
#define TAKE_SECOND(q) a##q.lo = LOAD(IN, W, square, q * sc).even, a##q.hi = LOAD(IN, W, square, q * sc + W - 1).odd;
                LINES(TAKE_SECOND)
            }
            TRANSPOSE(a, b)
#define GIVE_PIXEL(q) STORE(OUT, W, to, (x + q) * c + i, CAT(TURNED(a, b), q));
#define GIVE_REST(q)                                                                                     \
    if (x + q < done) GIVE_PIXEL(q)
            if (x + W <= done) {
                LINES(GIVE_PIXEL)
            } else {
                LINES(GIVE_REST)
            }
        }
    }
    return done;
}
#else
static int pad_turned(__global const MEMORY(IN) *from, long room, long pace, long sc, __global MEMORY(OUT) *to, int w, int c) {
    return 0;
}
#endif

/* Zeros beside `pixels` numbers of a row, or in place of them too where it is `inside` of no image. */
BY_ITSELF static void pad_ends(__global MEMORY(OUT) *to, int before, int pixels, int after, bool inside) {
    int left = inside ? before : before + pixels + after, right = inside ? after : 0;
    for (int i = 0; i < left; i++) STORE(OUT, 1, to, i, (S)0);
    for (int i = 0; i < right; i++) STORE(OUT, 1, to, before + pixels + i, (S)0);
}

/* The pixels of a row from `x` on, one number at a time. */
BY_ITSELF static void pad_singly(__global const MEMORY(IN) *from, long sw, long sc, __global MEMORY(OUT) *to, int x, int w, int c) {
    PLAIN_LOOP
    for (int i = 0; i < c; i++) {
        PLAIN_LOOP
        for (int at = x; at < w; at++) STORE(OUT, 1, to, at * c + i, LOAD(IN, 1, from, at * sw + i * sc));
    }
}

/* An image of any strides into a dense one, [n][h + pads][w + pads][c], with zeros around it; a work-item fills one row. */
#define BEGIN_ROW                                                                                        \
    int row = (int)get_global_id(0), height = h + before_h + after_h;                                    \
    if (row >= units) return;                                                                            \
    int n = row / height, y = row % height - before_h;                                                   \
    bool inside = y >= 0 && y < h;                                                                       \
    __global MEMORY(OUT) *to = to_base + to_offset + (long)row * (w + before_w + after_w) * c;           \
    pad_ends(to, before_w * c, w * c, after_w * c, inside);                                              \
    if (!inside) return;                                                                                 \
    __global const MEMORY(IN) *from = from_base + from_offset + n * sn + y * sh;                         \
    to += before_w * c;

KERNEL(pad, PAD_ARGS) {
    UNPACK(PAD_ARGS)
    BEGIN_ROW
    if (sc != 1) pad_singly(from, sw, sc, to, 0, w, c);
    PLAIN_LOOP
    for (int x = 0; sc == 1 && x < w; x++)
        for (int i = 0; i < c; i++) STORE(OUT, 1, to, x * c + i, LOAD(IN, 1, from, x * sw + i));
}

/* The same where a row has channels for whole squares, and pixels enough. */
KERNEL(pad_in_squares, PAD_ARGS) {
    UNPACK(PAD_ARGS)
    BEGIN_ROW
    long room = (units / height - 1 - n) * sn + (h - 1 - y) * sh + (w - 1) * sw + (c - 1) * sc + 1; /* of the image, from here on */
    bool onward = sn >= 0 && sh >= 0 && sc >= 0;
    pad_singly(from, sw, sc, to, pad_turned(from, onward ? room : 0, sw, sc, to, w, c), w, c);
}

/* Neighbouring work-items write neighbours, as GPUs like it. */
KERNEL(pad_elements, PAD_ARGS) {
    UNPACK(PAD_ARGS)
    long u = (long)get_global_id(0), row = u / c / (w + before_w + after_w);
    if (u >= units) return;
    int x = (int)(u / c % (w + before_w + after_w)) - before_w, y = (int)(row % (h + before_h + after_h)) - before_h;
    bool inside = x >= 0 && x < w && y >= 0 && y < h;
    __global const MEMORY(IN) *from = from_base + from_offset + row / (h + before_h + after_h) * sn + y * sh + x * sw;
    STORE(OUT, 1, to_base, to_offset + u, inside ? LOAD(IN, 1, from, u % c * sc) : 0);
}
