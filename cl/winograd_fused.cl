/* winograd_fused.cl — 3×3 convolution of stride 1 with 16 instead of 36 multiplications for every 2×2 pixels of the result:
   Winograd's F(2×2, 3×3) as Lavin & Gray (2016), "Fast Algorithms for Convolutional Neural Networks", use it:

       Y = Aᵀ [ (G g Gᵀ) ∘ (Bᵀ d B) ] A      d: 4×4 pixels, g: a filter, summed over channels inside the brackets

   so that for each of the 16 places ξ of a 4×4 tile there is a product [tiles × channels] · [channels × filters].

   filters: U[ξ][panel][channel][NR] = G g Gᵀ, from filters of any strides.
   conv: a work-item takes blocks of `height` tiles: their Bᵀ d B go into scratch memory of its own, which stays in a second-level
   cache, [ξ][run of KB channels][tile][KB]; then for each `together` panels of NR filters 16 products by register tiles of MR tiles ×
   NV vectors, whose sums wait in scratch; then Aᵀ … A and the bias into the result, and the epilogue (epilogue.h).  The second index
   of a work-item says which `own` panels it computes.

   weight: the gradient by the filters, from dU[ξ] = Σ (Bᵀ d B)[ξ]ᵀ · (A dy Aᵀ)[ξ] over tiles: a work-item owns KB channels, KB
   filters and a run of tiles, of which it transforms `height` at a time into scratch; its sums gather in [ξ][channel][filter].
   finish: dw = Gᵀ dU G of the sums of all runs, in their order.

   Images lie with channels innermost.  Pixels beyond the border are zeros by a branch outside the loop over channels.
   Knobs: MR, NV, W (lanes); KB, how many channels a row of a tile holds side by side; FAR: no cache holds the filters; IN: f32, f16 or bf16,
   storage of images; OUT: f32, f16 or bf16, of results. */
#ifndef IN
#define IN f32
#endif
#ifndef OUT
#define OUT f32
#endif
#ifndef MR
#define MR 4
#endif
#ifndef NV
#define NV 1
#endif
#ifndef W
#define W 4
#endif
#ifndef KB
#define KB 64
#endif
#ifndef FAR
#define FAR 0
#endif
#include "common.h"
#include "args.h"
#include "winograd_fused.args"
#include "registers.h"
#include "transpose.h"
#define RESULT OUT
#include "epilogue.h"

#define NR (NV * W)
#define V VEC(float, W)
#define LINE 16 /* floats of a cache line */

/* ---- filters ---- */

/* W filters at one tap; beyond the last one zeros. */
static V taps(__global const MEMORY(IN) *w, long stride, int left) {
    if (stride == 1 && left >= W) return LOAD(IN, W, w, 0);
    float lane[W];
    PLAIN_LOOP
    for (int i = 0; i < W; i++) lane[i] = i < left ? LOAD(IN, 1, w, i * stride) : 0;
    return CAT(VLOAD_, W)(lane);
}

/* The same of W channels that follow one another, when filters do not: all taps, [tap][channel][filter]. */
static void turn_taps(__global const MEMORY(IN) *w, long sn, long sy, long sx, int left, float *to) {
    PLAIN_LOOP
    for (int t = 0; t < 9; t++) {
        __global const MEMORY(IN) *tap = w + t / 3 * sy + t % 3 * sx;
#define TAKE(q) V a##q = q < left ? LOAD(IN, W, tap, q * sn) : (V)(0), b##q;
        LINES(TAKE)
        TRANSPOSE(a, b)
#define GIVE_TURNED(q) CAT(VSTORE_, W)(CAT(TURNED(a, b), q), to + (t * W + q) * W);
        LINES(GIVE_TURNED)
    }
}

/* G g Gᵀ of W filters, to u and all places beyond. */
#define DOWN(x)                                                                                        \
    V h0##x = g0##x, h3##x = g2##x, s##x = 0.5f * (g0##x + g2##x), h1##x = s##x + 0.5f * g1##x,        \
      h2##x = s##x - 0.5f * g1##x;
#define ACROSS(y)                                                                                   \
    {                                                                                                  \
        V s = 0.5f * (h##y##0 + h##y##2), t = 0.5f * h##y##1;                                          \
        STORE(f32, W, u, (4 * y) * place, h##y##0);                                                    \
        STORE(f32, W, u, (4 * y + 1) * place, s + t);                                                  \
        STORE(f32, W, u, (4 * y + 2) * place, s - t);                                                  \
        STORE(f32, W, u, (4 * y + 3) * place, h##y##2);                                                \
    }

/* A work-item transforms `run` channels of one panel of N filters. */
KERNEL(filters, FILTERS_ARGS) {
    UNPACK(FILTERS_ARGS)
    int panel = (int)get_global_id(1), c = (int)get_global_id(0) * run, end = min(c + run, channels), here;
    if (panel * NR >= N) return;
    long place = (long)((N + NR - 1) / NR) * channels * NR; /* from one ξ to the next */
    float turned[9 * W * W];
    PLAIN_LOOP
    for (; c < end; c += here) {
        bool turns = sc == 1 && sn != 1 && c + W <= end;
        here = turns ? W : 1;
        PLAIN_LOOP
        for (int v = 0; v < NR; v += W) {
            int n = panel * NR + v;
            __global const MEMORY(IN) *w = w_base + w_offset + n * sn + c * sc;
            if (turns) turn_taps(w, sn, sy, sx, N - n, turned);
            PLAIN_LOOP
            for (int i = 0; i < here; i++) {
                __global float *u = u_base + u_offset + ((long)panel * channels + c + i) * NR + v;
#define TAP(y, x)                                                                                      \
    V g##y##x = turns ? CAT(VLOAD_, W)(turned + ((3 * y + x) * W + i) * W) : taps(w + y * sy + x * sx, sn, N - n);
#define TAPS(y) COLUMNS_3(TAP, y)
                ROWS_3(TAPS)
                ROWS_3(DOWN)
                ROWS_4(ACROSS)
            }
        }
    }
}

/* ---- convolution ---- */

/* Bᵀ d B of W channels of one tile, whose rows and columns inside the image are those with a bit in `rows` and `columns`. */
static void transform(__global const MEMORY(IN) *x, long sh, long sw, int rows, int columns, __global float *to, long place) {
#define PIXEL(i, j) V d##i##j = rows >> i & columns >> j & 1 ? LOAD(IN, W, x, i * sh + j * sw) : (V)(0);
#define PIXELS(i) COLUMNS_4(PIXEL, i)
    ROWS_4(PIXELS)
#define FOLD(j) V e0##j = d0##j - d2##j, e1##j = d1##j + d2##j, e2##j = d2##j - d1##j, e3##j = d1##j - d3##j;
    ROWS_4(FOLD)
#define PUT_PLACES(i)                                                                               \
    STORE(f32, W, to, (4 * i) * place, e##i##0 - e##i##2);                                             \
    STORE(f32, W, to, (4 * i + 1) * place, e##i##1 + e##i##2);                                         \
    STORE(f32, W, to, (4 * i + 2) * place, e##i##2 - e##i##1);                                         \
    STORE(f32, W, to, (4 * i + 3) * place, e##i##1 - e##i##3);
    ROWS_4(PUT_PLACES)
}

/* Which of four rows (or columns) from `first` on lie in 0 … size-1. */
static int inside(int first, int size) {
    int mask = 0;
    PLAIN_LOOP
    for (int i = 0; i < 4; i++) mask |= (first + i >= 0 && first + i < size) << i;
    return mask;
}

#define START(i, j) V c##i##_##j = (V)(0);
#define START_ROW(i) COLUMNS(START, i)
#define FETCH(i, j) V b##j = LOAD(f32, W, b, j * W);
#define MULTIPLY(i, j) c##i##_##j = fma((V)(x), b##j, c##i##_##j);
/* Two steps along the sum; AT(i, k): row i of A. */
#define STEP_ROW(i, k)                                                                                 \
    {                                                                                                  \
        float x = AT(i, k);                                                                            \
        COLUMNS(MULTIPLY, i)                                                                           \
    }
#define EVEN_ROW(i) STEP_ROW(i, k)
#define ODD_ROW(i) STEP_ROW(i, k + 1)
#define STEP(ROW, pitch)                                                                               \
    {                                                                                                  \
        COLUMNS(FETCH, 0)                                                                              \
        ROWS(ROW)                                                                                      \
        b += pitch;                                                                                    \
    }

/* Sums of MR tiles × NR filters over all channels, [tile][NR]. */
static void multiply(__global const float *a, long run_stride, __global const float *b, __global const float *soon, __global float *to,
                     int channels) {
    ROWS(START_ROW)
    PLAIN_LOOP
    for (int c = 0; c < channels; c += KB) {
        int run = min(KB, channels - c);
        PLAIN_LOOP
        for (int k = 0; k < run; k += 2) {
#define AT(i, k) a[i * KB + k]
            STEP(EVEN_ROW, NR)
            STEP(ODD_ROW, NR)
#undef AT
            if (FAR) PREFETCH_TO_L2(soon + (c + k) / 2 * LINE);
        }
        a += run_stride;
    }
#define PUT(i, j) STORE(f32, W, to, i * NR + j * W, c##i##_##j);
#define PUT_ROW(i) COLUMNS(PUT, i)
    ROWS(PUT_ROW)
}

/* Aᵀ m A of W filters of one tile, plus the bias, into the pixels that exist. */
static void give(__global const float *m, long place, V bias, __global MEMORY(OUT) *y, __global const MEMORY(OUT) *extra, long sh,
                 long sw, bool below, bool beside, COMPUTE(OUT) scale, int ops) {
#define SUM(i, j) V m##i##j = LOAD(f32, W, m, (4 * i + j) * place);
#define SUMS(i) COLUMNS_4(SUM, i)
    ROWS_4(SUMS)
#define GATHER_ROWS(j) V t0##j = m0##j + m1##j + m2##j, t1##j = m1##j - m2##j - m3##j;
    ROWS_4(GATHER_ROWS)
#define GIVE(at, v) STORE(OUT, W, y, at, EPILOGUE(W, v, extra, at))
    GIVE(0, t00 + t01 + t02 + bias);
    if (beside) GIVE(sw, t01 - t02 - t03 + bias);
    if (below) GIVE(sh, t10 + t11 + t12 + bias);
    if (below && beside) GIVE(sh + sw, t11 - t12 - t13 + bias);
}

/* The sums of `here` tiles for the panels from `from` to `to`, [panel][ξ][tile][NR]: one ξ after the other, so that a ξ of the image
   stays near by while its filters pass.  Where they come from afar, each register tile asks for a quarter of what the next panel needs. */
static void multiply_places(__global const float *v, long place, __global const float *u, __global float *m, long sums, int from, int to,
                            int panels, int here, int channels, int height) {
    int size = channels * NR, quarter = channels / 2 * LINE;
    PLAIN_LOOP
    for (int xi = 0; xi < 16; xi++) {
        PLAIN_LOOP
        for (int panel = from; panel < to; panel++) {
            bool last = panel + 1 == to;
            __global const float *b = u + (long)(xi * panels + panel) * size;
            __global const float *next = u + (long)(last ? min(xi + 1, 15) * panels + from : xi * panels + panel + 1) * size;
            __global float *sum = m + ((panel - from) * 16 + xi) * sums;
            PLAIN_LOOP
            for (int t = 0, ahead = 0; t < here; t += MR, ahead = min(ahead + quarter, size - quarter))
                multiply(v + xi * place + t * KB, (long)height * KB, b, next + ahead, sum + t * NR, channels);
        }
    }
}

/* The result has `images` × down × across tiles. */
KERNEL(conv, CONV_ARGS) {
    UNPACK(CONV_ARGS)
    int item = (int)get_global_id(0), panels = (filters + NR - 1) / NR;
    int panel_begin = (int)get_global_id(1) * own, panel_end = min(panel_begin + own, panels);
    long run_stride = (long)height * KB, place = (channels + KB - 1) / KB * run_stride, sums = (long)height * NR;
    __global float *v = scratch_base + scratch_offset +
                        ((long)get_global_id(1) * get_global_size(0) + item) * 16 * (place + together * sums);
    __global float *m = v + 16 * place;
    int stop = min((item + 1) * per_item, blocks);
    PLAIN_LOOP
    for (int block = item * per_item; block < stop; block++) {
        int first = block * height, here = min(height, tiles - first);
        PLAIN_LOOP
        for (int t = 0; t < (here + MR - 1) / MR * MR; t++) { /* those beyond the last tile are zeros */
            int ty = (first + t) / across % down * 2 - before_h, tx = (first + t) % across * 2 - before_w;
            int rows = t < here ? inside(ty, height_in) : 0, columns = inside(tx, width_in);
            long sh = (long)width_in * channels;
            __global const MEMORY(IN) *x = x_base + x_offset + ((long)((first + t) / across / down) * height_in + ty) * sh + (long)tx * channels;
            PLAIN_LOOP
            for (int c = 0; c < channels; c += W) {
                __global float *to = v + c / KB * run_stride + t * KB + c % KB;
                if ((rows & columns) == 15) transform(x + c, sh, channels, 15, 15, to, place);
                else transform(x + c, sh, channels, rows, columns, to, place);
            }
        }
        PLAIN_LOOP
        for (int from = panel_begin; from < panel_end; from += together) {
            int to = min(from + together, panel_end);
            multiply_places(v, place, u_base + u_offset, m, sums, from, to, panels, here, channels, height);
            PLAIN_LOOP
            for (int n = from * NR; n < min(to * NR, filters); n += W) {
                V b = BIAS(W, bias_offset + n);
                __global const float *sum = m + (n / NR - from) * 16 * sums + n % NR;
                PLAIN_LOOP
                for (int t = 0; t < here; t++) {
                    int oy = (first + t) / across % down * 2, ox = (first + t) % across * 2;
                    long sh = (long)width_out * filters;
                    long at = ((long)((first + t) / across / down) * height_out + oy) * sh + (long)ox * filters + n;
                    give(sum + t * NR, sums, b, y_base + y_offset + at, extra + extra_offset + at, sh, filters,
                         oy + 1 < height_out, ox + 1 < width_out, scale, ops);
                }
            }
        }
    }
}

/* ---- gradient by the filters ---- */

/* A dy Aᵀ of W filters of one tile; pixels below or beside the last ones are zeros. */
static void spread(__global const MEMORY(OUT) *y, long sh, long sw, bool there, bool below, bool beside, __global float *to, long place) {
    V y00 = there ? LOAD(OUT, W, y, 0) : (V)(0), y01 = beside ? LOAD(OUT, W, y, sw) : (V)(0);
    V y10 = below ? LOAD(OUT, W, y, sh) : (V)(0), y11 = below && beside ? LOAD(OUT, W, y, sh + sw) : (V)(0);
#define BETWEEN(j) V r0##j = y0##j, r1##j = y0##j + y1##j, r2##j = y0##j - y1##j, r3##j = -y1##j;
    ROWS_2(BETWEEN)
#define PUT_SPREAD(i)                                                                               \
    STORE(f32, W, to, (4 * i) * place, r##i##0);                                                       \
    STORE(f32, W, to, (4 * i + 1) * place, r##i##0 + r##i##1);                                         \
    STORE(f32, W, to, (4 * i + 2) * place, r##i##0 - r##i##1);                                         \
    STORE(f32, W, to, (4 * i + 3) * place, -r##i##1);
    ROWS_4(PUT_SPREAD)
}

/* MR channels × NR filters of the sums, [channel][KB], grow by a block's tiles; the first block begins them. */
static void accumulate(__global const float *a, __global const float *b, __global float *to, int tiles, bool again) {
    ROWS(START_ROW)
    PLAIN_LOOP
    for (int k = 0; k < tiles; k += 2) {
#define AT(i, k) a[(k) * KB + i]
        STEP(EVEN_ROW, KB)
        STEP(ODD_ROW, KB)
#undef AT
    }
#define MORE(i, j) c##i##_##j += LOAD(f32, W, to, i * KB + j * W);
#define MORE_ROW(i) COLUMNS(MORE, i)
    if (again) {
        ROWS(MORE_ROW)
    }
#define KEEP(i, j) STORE(f32, W, to, i * KB + j * W, c##i##_##j);
#define KEEP_ROW(i) COLUMNS(KEEP, i)
    ROWS(KEEP_ROW)
}

/* A unit is a block of KB channels × a block of KB filters × a run of `per_run` blocks of tiles; a work-item does per_item of
   them in turn.  sums: [run][filter block][channel block][ξ][KB][KB].  `height` is even. */
KERNEL(weight, WEIGHT_ARGS) {
    UNPACK(WEIGHT_ARGS)
    int item = (int)get_global_id(0), stop = min((item + 1) * per_item, units);
    int blocks_c = (channels + KB - 1) / KB, blocks_n = (filters + KB - 1) / KB;
    long place = (long)height * KB, x_row = (long)width_in * channels, y_row = (long)width_out * filters;
    __global float *v = scratch_base + scratch_offset + item * 32 * place, *d = v + 16 * place;
    PLAIN_LOOP
    for (int unit = item * per_item; unit < stop; unit++) {
        int c = unit % blocks_c * KB, n = unit / blocks_c % blocks_n * KB, begin = unit / blocks_c / blocks_n * per_run;
        int c_here = min(KB, channels - c), n_here = min(KB, filters - n), panels = (n_here + NR - 1) / NR;
        __global float *sums = sums_base + sums_offset + (long)unit * 16 * KB * KB;
        PLAIN_LOOP
        for (int block = begin; block < min(begin + per_run, blocks); block++) {
            int first = block * height, here = min(height, tiles - first);
            PLAIN_LOOP
            for (int t = 0; t < (here + 1) / 2 * 2; t++) { /* an odd one gets a neighbour of zeros */
                bool there = t < here;
                int image = (first + t) / across / down, oy = (first + t) / across % down * 2, ox = (first + t) % across * 2;
                int rows = there ? inside(oy - before_h, height_in) : 0, columns = inside(ox - before_w, width_in);
                bool below = there && oy + 1 < height_out, beside = there && ox + 1 < width_out;
                __global const MEMORY(IN) *x = x_base + x_offset + ((long)image * height_in + oy - before_h) * x_row + (long)(ox - before_w) * channels + c;
                __global const MEMORY(OUT) *y = y_base + y_offset + ((long)image * height_out + oy) * y_row + (long)ox * filters + n;
                PLAIN_LOOP
                for (int i = 0; i < c_here; i += W) {
                    if ((rows & columns) == 15) transform(x + i, x_row, channels, 15, 15, v + t * KB + i, place);
                    else transform(x + i, x_row, channels, rows, columns, v + t * KB + i, place);
                }
                PLAIN_LOOP
                for (int i = 0; i < panels * NR; i += W) {
                    bool some = i < n_here;
                    spread(y + i, y_row, filters, there && some, below && some, beside && some, d + t * KB + i, place);
                }
            }
            PLAIN_LOOP
            for (int xi = 0; xi < 16; xi++) {
                PLAIN_LOOP
                for (int j = 0; j < panels * NR; j += NR) {
                    PLAIN_LOOP
                    for (int i = 0; i < c_here; i += MR)
                        accumulate(v + xi * place + i, d + xi * place + j, sums + (xi * KB + i) * KB + j, here, block > begin);
                }
            }
        }
    }
}

/* A work-item: one channel, W filters.  dw lies [ky][kx][channel][filter]. */
KERNEL(finish, WINOGRAD_FUSED_FINISH_ARGS) {
    UNPACK(WINOGRAD_FUSED_FINISH_ARGS)
    int c = (int)get_global_id(1), n = (int)get_global_id(0) * W, blocks_c = (channels + KB - 1) / KB, blocks_n = (filters + KB - 1) / KB;
    if (c >= channels || n >= filters) return;
    long size = 16 * KB * KB;
    __global const float *sums = sums_base + sums_offset + (n / KB * blocks_c + c / KB) * size + c % KB * KB + n % KB;
#define TOTAL(i, j) V u##i##j = LOAD(f32, W, sums, (4 * i + j) * KB * KB);
#define TOTALS(i) COLUMNS_4(TOTAL, i)
    ROWS_4(TOTALS)
    PLAIN_LOOP
    for (int run = 1; run < runs; run++) {
        sums += blocks_c * blocks_n * size;
#define NEXT(i, j) u##i##j += LOAD(f32, W, sums, (4 * i + j) * KB * KB);
#define NEXTS(i) COLUMNS_4(NEXT, i)
        ROWS_4(NEXTS)
    }
#define UP(j)                                                                                       \
    V s##j = 0.5f * (u1##j + u2##j), q0##j = u0##j + s##j, q1##j = 0.5f * (u1##j - u2##j), q2##j = u3##j + s##j;
    ROWS_4(UP)
    __global MEMORY(OUT) *w = w_base + w_offset + (long)c * filters + n;
    long tap = (long)channels * filters;
#define GIVE_ROW(i)                                                                                    \
    {                                                                                                  \
        V s = 0.5f * (q##i##1 + q##i##2);                                                              \
        STORE(OUT, W, w, (3 * i) * tap, q##i##0 + s);                                                  \
        STORE(OUT, W, w, (3 * i + 1) * tap, 0.5f * (q##i##1 - q##i##2));                               \
        STORE(OUT, W, w, (3 * i + 2) * tap, q##i##3 + s);                                              \
    }
    ROWS_3(GIVE_ROW)
}
