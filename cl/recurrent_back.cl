/* recurrent_back.cl — backward through the steps of recurrent.cl, from the last one; dx, the gradient of x, is what all others are
   made of, and for GRU dg, that of W h.  Step k = 0 … all − 1 is the one at all − 1 − k; step `all` is the state before all of them.

       dh = (dg of the next step) W + what it left of dh + gradient of y
       LSTM  do = dh tanh(c) σ', dc += dh o tanh'(c);  di = dc g σ', df = dc c₋ σ', dg = dc i tanh';  left: dc f
       GRU   dn = dh (1 − z) tanh', dr = dn hidden σ', dz = dh (h₋ − n) σ';  dg has dn r;  left: dh z

   Work is divided as in recurrent.cl.  w is packed: [panel][gates·H][NV·W].  `state`: gradients of gates twice, [2][B][gates·H], then
   what is left of dh and of dc, [B][width] each.  Beyond an item's length gradients of the state pass, and those of gates are 0.

   Knobs: DT: f32 f16 bf16 f64, of tensors.  IN: f32 or f64, what is computed in, of w and state.  CELL: 0 tanh, 1 relu, 2 LSTM, 3 GRU.
   MR, NV, W: the tile.  GIVEN: parts of products in w, 0: they are made here.
   Checked with: CELL=1; CELL=2; CELL=3; CELL=3 NV=2; MR=1 W=1 GIVEN=1; CELL=2 MR=1 W=1 GIVEN=1; CELL=3 MR=1 W=1 GIVEN=4. */
#ifndef DT
#define DT f32
#endif
#ifndef IN
#define IN CAT(WIDE_, DT)
#endif
#ifndef CELL
#define CELL 0
#endif
#ifndef MR
#define MR 2
#endif
#ifndef W
#define W 4
#endif
#define CALLS_MATH
#include "common.h"
#include "args.h"
#include "recurrent.args"
#include "registers.h"
#include "lanes.h"
#define GATES 1 /* of the product */
#if CELL == 2
#define INNER 4 /* gates, of which there are gradients, */
#define SAVED 5 /* and values saved of each unit */
#elif CELL == 3
#define INNER 3
#define SAVED 4
#else
#define INNER 1
#define SAVED 0
#endif
#include "recurrent.h"

enum { HAS_FIRST = 1, HAS_LENGTHS = 4, HAS_GY = 16, HAS_GH = 32, HAS_GC = 64 };

#define KEPT(k) TAKE(DT, kept, (k) * H)
#define OWN_SLOPE(s) ((s) * (K(1) - (s)))
#define TANH_SLOPE(t) ((K(1) - (t)) * (K(1) + (t)))
#define GIVE_AS(g, v, w)                                                                               \
    {                                                                                                  \
        V value_gate = v, hidden_gate = w;                                                                  \
        PUT(DT, to, (g) * H, value_gate)                                                                    \
        if (CELL == 3) PUT(DT, to_hidden, (g) * H, hidden_gate)                                        \
        PUT(IN, after, (long)row * (INNER * H) + (g) * H + column, hidden_gate)                        \
    }
#define GIVE(g, v) GIVE_AS(g, v, value_gate)

/* From dh = slope and dc = inner to the gates' gradients, and what is left of both for the step before. */
#if CELL == 0
#define RETREAT                                                                                        \
    V value = TAKE(DT, y_base + y_offset, time * yt + row * yb + column);                              \
    GIVE(0, slope * TANH_SLOPE(value))                                                                 \
    slope = (V)(0);
#elif CELL == 1
#define RETREAT                                                                                        \
    V value = TAKE(DT, y_base + y_offset, time * yt + row * yb + column);                              \
    GIVE(0, SEL(value > K(0), slope, K(0)))                                                            \
    slope = (V)(0);
#elif CELL == 2
#define RETREAT                                                                                        \
    V i_gate = KEPT(0), f_gate = KEPT(1), g_gate = KEPT(2), o_gate = KEPT(3);                      \
    LET_TANGENT(bent, KEPT(4))                                                                         \
    V former = (V)(0);                                                                                 \
    if (now + 1 < all) former = TAKE(DT, saved, (earlier * B + row) * (SAVED * H) + 4 * H + column);   \
    else if (given & HAS_FIRST) former = TAKE(DT, first_base + first_offset, there);                   \
    inner = FMA(slope * o_gate, TANH_SLOPE(bent), inner);                                              \
    GIVE(0, inner * g_gate * OWN_SLOPE(i_gate))                                                        \
    GIVE(1, inner * former * OWN_SLOPE(f_gate))                                                        \
    GIVE(2, inner * i_gate * TANH_SLOPE(g_gate))                                                       \
    GIVE(3, slope * bent * OWN_SLOPE(o_gate))                                                          \
    inner *= f_gate;                                                                                   \
    slope = (V)(0);
#else
#define RETREAT                                                                                        \
    V r_gate = KEPT(0), z_gate = KEPT(1), n_gate = KEPT(2), former = (V)(0);                           \
    if (now + 1 < all) former = TAKE(DT, y_base + y_offset, earlier * yt + row * yb + column);         \
    else if (given & HAS_FIRST) former = TAKE(DT, first_base + first_offset, there);                   \
    V n_slope = slope * (K(1) - z_gate) * TANH_SLOPE(n_gate);                                          \
    GIVE(0, n_slope * KEPT(3) * OWN_SLOPE(r_gate))                                                     \
    GIVE(1, slope * (former - n_gate) * OWN_SLOPE(z_gate))                                             \
    GIVE_AS(2, n_slope, n_slope * r_gate)                                                              \
    slope *= z_gate;
#endif

KERNEL(recurrent_back, RECURRENT_BACK_ARGS) {
    UNPACK(RECURRENT_BACK_ARGS)
    const int wide = U * W, all_panels = (H + wide - 1) / wide, depth = INNER * H;
    const long width = (long)all_panels * wide, whole = (long)B * depth;
    int row_begin = PART_OF_ITEMS * rows, row_end = min(row_begin + rows, B);
    int panel_begin = PART_OF_PANELS * panels, panel_end = min(panel_begin + panels, all_panels);
    __global S *state = state_base + state_offset, *left_h = state + 2 * whole, *left_c = left_h + B * width;
    __global const MEMORY(DT) *saved = saved_base + saved_offset;
#if !GIVEN
    S sums[MR * NV * W];
#endif
    PLAIN_LOOP
    for (int now = begin; now < stop; now++) {
        __global S *after = state + (~now & 1) * whole;
        PLAIN_LOOP
        for (int tile = 0, tiles = (row_end - row_begin + MR - 1) / MR, n = tiles * (panel_end - panel_begin); tile < n; tile++) {
            int panel = panel_begin + tile / tiles, first = row_begin + tile % tiles * MR, left = min(MR, row_end - first);
#if !GIVEN
            __global const S *before = state + (now & 1) * whole;
            PLAIN_LOOP
            for (int at = 0; at < (now > 0 && now < all && LEAVES_CACHED(depth) ? left * U : 0); at++) {
                LET_PLACE(all - 1 - now)
                if (lanes <= 0) continue;
                for (int k = 0; k < SAVED; k++) PREFETCH_READ(saved + (time * B + row) * (SAVED * H) + column + k * H);
                if (given & HAS_GY) PREFETCH_READ(gy_base + gy_offset + time * yt + row * yb + column);
            }
            multiply(before + (long)first * depth, depth, left, w_base + w_offset + panel * to_panel, to_gate, now > 0 ? depth : 0,
                     sums);
#endif
            PLAIN_LOOP
            for (int at = 0; at < left * U; at++) {
                LET_PLACE(all - 1 - now)
                if (lanes <= 0) continue;
                long earlier = time_of(step_at - 1, length, backwards), here = row * width + column, there = (long)row * H + column;
                __global const MEMORY(DT) *kept = saved + (time * B + row) * (SAVED * H) + column;
                __global MEMORY(DT) *to = dx_base + dx_offset + time * xt + row * xb + column;
                __global MEMORY(DT) *to_hidden = dg_base + dg_offset + time * xt + row * xb + column;
                (void)kept, (void)to_hidden, (void)earlier;
                V slope = (V)(0), inner = slope;
                if (now > 0) slope = LOAD(IN, W, left_h, here) + SUM(0);
                else if (given & HAS_GH) slope = TAKE(DT, gh_base + gh_offset, there);
                if (CELL == 2 && now > 0) inner = LOAD(IN, W, left_c, here);
                else if (CELL == 2 && given & HAS_GC) inner = TAKE(DT, gc_base + gc_offset, there);
                if (now == all) {
                    PUT(DT, dh_base + dh_offset, there, slope)
                    if (CELL == 2) PUT(DT, dc_base + dc_offset, there, inner)
                    continue;
                }
                if (step_at < length) {
                    if (given & HAS_GY) slope += TAKE(DT, gy_base + gy_offset, time * yt + row * yb + column);
                    RETREAT
                } else {
                    PLAIN_LOOP
                    for (int g = 0; g < INNER; g++) GIVE(g, (V)(0))
                }
                STORE(IN, W, left_h, here, slope);
                if (CELL == 2) STORE(IN, W, left_c, here, inner);
            }
        }
    }
}
