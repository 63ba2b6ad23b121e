/* winograd_fused.cl — 3×3 convolution of stride 1 with fewer multiplications: 16 in place of 36 for every 2×2 pixels of the result, or 36
   in place of 144 for 4×4.  Winograd's F(2×2, 3×3) and F(4×4, 3×3) as Lavin & Gray (2016), "Fast Algorithms for Convolutional Neural
   Networks", use them:

       Y = Aᵀ [ (G g Gᵀ) ∘ (Bᵀ d B) ] A      d: SIDE×SIDE pixels, g: a filter, summed over channels inside the brackets

   so that for each place ξ of SIDE×SIDE there is a product [tiles × channels] · [channels × filters].  Matrices: winograd_tile.h.

   filters: U[ξ][panel][channel][NR] = G g Gᵀ, from filters of any strides.
   conv: a work-item takes blocks of `height` tiles: their Bᵀ d B go into scratch memory of its own, which stays in a second-level
   cache, [ξ][run of KB channels][tile][KB]; then for each `together` panels of NR filters a product for each ξ by register tiles of MR tiles ×
   NV vectors, whose sums wait in scratch; then Aᵀ … A and the bias into the result, and the epilogue (epilogue.h).  The second index
   of a work-item says which `own` panels it computes.

   weight: the gradient by the filters, from dU[ξ] = Σ (Bᵀ d B)[ξ]ᵀ · (A dy Aᵀ)[ξ] over tiles: a work-item owns KB channels, KB
   filters and a run of tiles, of which it transforms `height` at a time into scratch; its sums gather in [ξ][channel][filter].
   finish: dw = Gᵀ dU G of the sums of all runs, in their order.  Of a single run weight does so itself, while its sums are in a cache.

   From one ξ to the next it is u_place, place and sum_place floats: an odd number of cache lines, or the stores of a tile to all its
   places would go to few sets of a cache.

   Images lie with channels innermost.  Pixels beyond the border are zeros by a branch outside the loop over channels.
   Knobs: TILE: 2 or 4; MR, NV, W (lanes); KB, how many channels a row of a tile holds side by side; FAR: no cache holds the filters; IN: f32, f16 or bf16,
   storage of images; OUT: f32, f16 or bf16, of results.
   Checked with: TILE=4; W=16 NV=2 MR=14 TILE=4. */
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
#ifndef TILE
#define TILE 2
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
#include "winograd_tile.h"

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
#define DOWN(x) FILTERS_DOWN(h, g, x)
#define PUT_FILTER(y, x) STORE(f32, W, u, (SIDE * y + x) * u_place, f##y##x);
#define ACROSS(y)                                                                                   \
    {                                                                                                  \
        FILTERS_ACROSS(f, h, y)                                                                    \
        LINE_OF(PUT_FILTER, y)                                                                     \
    }

/* A work-item transforms `run` channels of one panel of N filters. */
KERNEL(filters, FILTERS_ARGS) {
    UNPACK(FILTERS_ARGS)
    int panel = (int)get_global_id(1), c = (int)get_global_id(0) * run, end = min(c + run, channels), here;
    if (panel * NR >= N) return;
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
                SIDES(ACROSS)
            }
        }
    }
}

/* ---- convolution ---- */

/* Bᵀ d B of W channels of one tile, whose rows and columns inside the image are those with a bit in `rows` and `columns`. */
static void transform(__global const MEMORY(IN) *x, long sh, long sw, int rows, int columns, __global float *to, long place) {
#define PIXEL(i, j) V d##i##j = rows >> i & columns >> j & 1 ? LOAD(IN, W, x, i * sh + j * sw) : (V)(0);
#define PIXELS(i) LINE_OF(PIXEL, i)
    SIDES(PIXELS)
#define FOLD(j) IMAGE_DOWN(e, d, j)
    SIDES(FOLD)
#define PUT_PLACE(i, j) STORE(f32, W, to, (SIDE * i + j) * place, f##i##j);
#define PUT_PLACES(i)                                                                               \
    {                                                                                              \
        IMAGE_ACROSS(f, e, i)                                                                      \
        LINE_OF(PUT_PLACE, i)                                                                      \
    }
    SIDES(PUT_PLACES)
}

/* Which of SIDE rows (or columns) from `first` on lie in 0 … size-1. */
static int inside(int first, int size) {
    int mask = 0;
    PLAIN_LOOP
    for (int i = 0; i < SIDE; i++) mask |= (first + i >= 0 && first + i < size) << i;
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

/* Aᵀ m A of W filters of one tile, plus the bias, into the high × wide pixels that exist. */
static void give(__global const float *m, long place, V bias, __global MEMORY(OUT) *y, __global const MEMORY(OUT) *extra, long sh,
                 long sw, int high, int wide, COMPUTE(OUT) scale, int ops) {
#define SUM(i, j) V m##i##j = LOAD(f32, W, m, (SIDE * i + j) * place);
#define SUMS(i) LINE_OF(SUM, i)
    SIDES(SUMS)
#define GATHER_ROWS(j) RESULTS_DOWN(t, m, j)
    SIDES(GATHER_ROWS)
#define GIVE(i, j)                                                                                 \
    if (i < high && j < wide) {                                                                    \
        long at = i * sh + j * sw;                                                                 \
        STORE(OUT, W, y, at, EPILOGUE(W, DOWN_TO_SIZE(r##i##j) + bias, extra, at));                              \
    }
#define GIVE_LINE(i)                                                                               \
    {                                                                                              \
        RESULTS_ACROSS(r, t, i)                                                                    \
        TILE_LINE(GIVE, i)                                                                         \
    }
    TILES(GIVE_LINE)
}

/* The sums of `here` tiles for the panels from `from` to `to`, [panel][ξ][tile][NR]: one ξ after the other, so that a ξ of the image
   stays near by while its filters pass.  Where they come from afar, each register tile asks for a quarter of what the next panel needs. */
static void multiply_places(__global const float *v, long place, __global const float *u, __global float *m, long sums, int from, int to,
                            long u_place, int here, int channels, int height) {
    int size = channels * NR, quarter = channels / 2 * LINE;
    PLAIN_LOOP
    for (int xi = 0; xi < PLACES; xi++) {
        PLAIN_LOOP
        for (int panel = from; panel < to; panel++) {
            bool last = panel + 1 == to;
            __global const float *b = u + xi * u_place + (long)panel * size;
            __global const float *next = last ? u + min(xi + 1, PLACES - 1) * u_place + (long)from * size : b + size;
            __global float *sum = m + ((panel - from) * PLACES + xi) * sums;
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
    long run_stride = (long)height * KB;
    __global float *v = scratch_base + scratch_offset +
                        ((long)get_global_id(1) * get_global_size(0) + item) * PLACES * (place + together * sum_place);
    __global float *m = v + PLACES * place;
    int stop = min((item + 1) * per_item, blocks);
    PLAIN_LOOP
    for (int block = item * per_item; block < stop; block++) {
        int first = block * height, here = min(height, tiles - first);
        PLAIN_LOOP
        for (int t = 0; t < (here + MR - 1) / MR * MR; t++) { /* those beyond the last tile are zeros */
            int ty = (first + t) / across % down * TILE - before_h, tx = (first + t) % across * TILE - before_w;
            int rows = t < here ? inside(ty, height_in) : 0, columns = inside(tx, width_in);
            long sh = (long)width_in * channels;
            __global const MEMORY(IN) *x = x_base + x_offset + ((long)((first + t) / across / down) * height_in + ty) * sh + (long)tx * channels;
            PLAIN_LOOP
            for (int c = 0; c < channels; c += W) {
                __global float *to = v + c / KB * run_stride + t * KB + c % KB;
                if ((rows & columns) == ALL) transform(x + c, sh, channels, ALL, ALL, to, place);
                else transform(x + c, sh, channels, rows, columns, to, place);
            }
        }
        PLAIN_LOOP
        for (int from = panel_begin; from < panel_end; from += together) {
            int to = min(from + together, panel_end);
            multiply_places(v, place, u_base + u_offset, m, sum_place, from, to, u_place, here, channels, height);
            PLAIN_LOOP
            for (int n = from * NR; n < min(to * NR, filters); n += W) {
                V b = BIAS(W, bias_offset + n);
                __global const float *sum = m + (n / NR - from) * PLACES * sum_place + n % NR;
                PLAIN_LOOP
                for (int t = 0; t < here; t++) {
                    int oy = (first + t) / across % down * TILE, ox = (first + t) % across * TILE;
                    long sh = (long)width_out * filters;
                    long at = ((long)((first + t) / across / down) * height_out + oy) * sh + (long)ox * filters + n;
                    give(sum + t * NR, sum_place, b, y_base + y_offset + at, extra + extra_offset + at, sh, filters,
                         height_out - oy, width_out - ox, scale, ops);
                }
            }
        }
    }
}

/* ---- gradient by the filters ---- */

/* A dy Aᵀ of W filters of one tile, of which high × wide pixels exist. */
static void spread(__global const MEMORY(OUT) *y, long sh, long sw, int high, int wide, __global float *to, long place) {
#define PIXEL_OF(i, j) V y##i##j = i < high && j < wide ? LOAD(OUT, W, y, i * sh + j * sw) : (V)(0);
#define PIXELS_OF(i) TILE_LINE(PIXEL_OF, i)
    TILES(PIXELS_OF)
#define BETWEEN(j) GRADIENT_DOWN(r, y, j)
    TILES(BETWEEN)
#define PUT_GRADIENT(i, j) STORE(f32, W, to, (SIDE * i + j) * place, f##i##j);
#define PUT_SPREAD(i)                                                                               \
    {                                                                                              \
        GRADIENT_ACROSS(f, r, i)                                                                   \
        LINE_OF(PUT_GRADIENT, i)                                                                   \
    }
    SIDES(PUT_SPREAD)
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

/* dw of one channel and W filters, from the sums of `runs` runs, `apart` floats from each other. */
static void finish_filters(__global const float *sums, long place, int runs, long apart, __global MEMORY(OUT) *w, long tap) {
#define TOTAL(i, j) V u##i##j = LOAD(f32, W, sums, (SIDE * i + j) * place);
#define TOTALS(i) LINE_OF(TOTAL, i)
    SIDES(TOTALS)
    PLAIN_LOOP
    for (int run = 1; run < runs; run++) {
        sums += apart;
#define NEXT(i, j) u##i##j += LOAD(f32, W, sums, (SIDE * i + j) * place);
#define NEXTS(i) LINE_OF(NEXT, i)
        SIDES(NEXTS)
    }
#define UP(j) TAPS_DOWN(q, u, j)
    SIDES(UP)
#define GIVE_TAP(i, j) STORE(OUT, W, w, (3 * i + j) * tap, DOWN_TO_SIZE(p##i##j));
#define GIVE_ROW(i)                                                                                    \
    {                                                                                                  \
        TAPS_ACROSS(p, q, i)                                                                       \
        COLUMNS_3(GIVE_TAP, i)                                                                     \
    }
    ROWS_3(GIVE_ROW)
}

/* A unit is a block of KB channels × a block of KB filters × a run of `per_run` blocks of tiles; a work-item does per_item of
   them in turn.  sums: [run][filter block][channel block][ξ][KB][KB].  Where one run is all, `whole`: [work-item][ξ][KB][KB], and the
   work-item makes dw of them at once.  `height` is even. */
KERNEL(weight, WEIGHT_ARGS) {
    UNPACK(WEIGHT_ARGS)
    int item = (int)get_global_id(0), stop = min((item + 1) * per_item, units);
    int blocks_c = (channels + KB - 1) / KB, blocks_n = (filters + KB - 1) / KB;
    long x_row = (long)width_in * channels, y_row = (long)width_out * filters;
    __global float *v = scratch_base + scratch_offset + item * 2 * PLACES * place, *d = v + PLACES * place;
    PLAIN_LOOP
    for (int unit = item * per_item; unit < stop; unit++) {
        int c = unit % blocks_c * KB, n = unit / blocks_c % blocks_n * KB, begin = unit / blocks_c / blocks_n * per_run;
        int c_here = min(KB, channels - c), n_here = min(KB, filters - n), panels = (n_here + NR - 1) / NR;
        __global float *sums = sums_base + sums_offset + (long)(whole ? item : unit) * PLACES * sum_place;
        PLAIN_LOOP
        for (int block = begin; block < min(begin + per_run, blocks); block++) {
            int first = block * height, here = min(height, tiles - first);
            PLAIN_LOOP
            for (int t = 0; t < (here + 1) / 2 * 2; t++) { /* an odd one gets a neighbour of zeros */
                bool there = t < here;
                int image = (first + t) / across / down, oy = (first + t) / across % down * TILE, ox = (first + t) % across * TILE;
                int rows = there ? inside(oy - before_h, height_in) : 0, columns = inside(ox - before_w, width_in);
                int high = there ? height_out - oy : 0, wide = width_out - ox;
                __global const MEMORY(IN) *x = x_base + x_offset + ((long)image * height_in + oy - before_h) * x_row + (long)(ox - before_w) * channels + c;
                __global const MEMORY(OUT) *y = y_base + y_offset + ((long)image * height_out + oy) * y_row + (long)ox * filters + n;
                PLAIN_LOOP
                for (int i = 0; i < c_here; i += W) {
                    if ((rows & columns) == ALL) transform(x + i, x_row, channels, ALL, ALL, v + t * KB + i, place);
                    else transform(x + i, x_row, channels, rows, columns, v + t * KB + i, place);
                }
                PLAIN_LOOP
                for (int i = 0; i < panels * NR; i += W) {
                    spread(y + i, y_row, filters, i < n_here ? high : 0, wide, d + t * KB + i, place);
                }
            }
            PLAIN_LOOP
            for (int xi = 0; xi < PLACES; xi++) {
                PLAIN_LOOP
                for (int j = 0; j < panels * NR; j += NR) {
                    PLAIN_LOOP
                    for (int i = 0; i < c_here; i += MR)
                        accumulate(v + xi * place + i, d + xi * place + j, sums + xi * sum_place + i * KB + j, here, block > begin);
                }
            }
        }
        __global MEMORY(OUT) *w = w_base + w_offset + (long)c * filters + n;
        PLAIN_LOOP
        for (int i = 0; whole && i < c_here; i++) {
            PLAIN_LOOP
            for (int j = 0; j < n_here; j += W) finish_filters(sums + i * KB + j, sum_place, 1, 0, w + (long)i * filters + j, (long)channels * filters);
        }
    }
}

/* A work-item: one channel, W filters.  dw lies [ky][kx][channel][filter]. */
KERNEL(finish, WINOGRAD_FUSED_FINISH_ARGS) {
    UNPACK(WINOGRAD_FUSED_FINISH_ARGS)
    int c = (int)get_global_id(1), n = (int)get_global_id(0) * W, blocks_c = (channels + KB - 1) / KB, blocks_n = (filters + KB - 1) / KB;
    if (c >= channels || n >= filters) return;
    long size = PLACES * sum_place;
    __global const float *sums = sums_base + sums_offset + (n / KB * blocks_c + c / KB) * size + c % KB * KB + n % KB;
    finish_filters(sums, sum_place, runs, blocks_c * blocks_n * size, w_base + w_offset + (long)c * filters + n, (long)channels * filters);
}
