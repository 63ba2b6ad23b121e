/* recurrent.cl — steps of a recurrent layer, from the products with its input (x, with all biases but that of GRU's new gate):

       RNN   h' = tanh(x + W h), or relu
       LSTM  i, f, g, o = x + W h;  c' = σ(f) c + σ(i) tanh(g);  h' = σ(o) tanh(c')
       GRU   r, z, n = x + W h;  n = tanh(x_n + σ(r) (W_n h + bias));  h' = n + σ(z) (h − n)

   A work-item owns `rows` items of the batch and `panels` panels of units, through all steps from begin to stop.  If a launch has several
   steps it must own all panels, as each unit depends on all of the step before.  w is packed: [gate][panel][H][NV/TOGETHER·W].  h lies in
   `state` twice, [2][B][width], read from one and written to the other; then c.  Beyond an item's length its state stays, y is 0.

   Knobs: DT: f32 f16 bf16 f64, of tensors.  IN: f32 or f64, what is computed in, of w and state.  CELL: 0 tanh, 1 relu, 2 LSTM, 3 GRU.
   MR, NV, W, TOGETHER: the tile.  SAVE: what backward needs is written.  GIVEN: parts of products in w, 0: they are made here.
   Checked with: CELL=2; CELL=3; CELL=2 SAVE=1; CELL=3 SAVE=1; CELL=1 NV=2; CELL=2 NV=2 TOGETHER=1; MR=1 W=1 GIVEN=1;
   CELL=2 MR=1 W=1 SAVE=1 GIVEN=1; CELL=3 MR=1 W=1 GIVEN=4. */
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
#ifndef SAVE
#define SAVE 0
#endif
#define CALLS_MATH
#include "common.h"
#include "args.h"
#include "recurrent.args"
#include "registers.h"
#include "lanes.h"
#if CELL == 2
#define GATES 4
#define SAVED 5 /* i, f, g, o, c */
#elif CELL == 3
#define GATES 3
#define SAVED 4 /* r, z, n and what r is multiplied with */
#else
#define GATES 1
#define SAVED 0
#endif
#include "recurrent.h"

enum { HAS_H0 = 1, HAS_C0 = 2, HAS_LENGTHS = 4, HAS_BIAS = 8 };

#define INPUT(g) TAKE(DT, from, (g) * H)
#if SAVE
#define KEEP(k, v) PUT(DT, keep, (k) * H, v)
#else
#define KEEP(k, v)
#endif
/* From the state before to `next`, where the item is not at its end yet. */
#if CELL == 0
#define ADVANCE                                                                                        \
    LET_TANGENT(value, INPUT(0) + SUM(0))                                                              \
    next = value;
#elif CELL == 1
#define ADVANCE                                                                                        \
    V value = INPUT(0) + SUM(0);                                                                       \
    next = SEL(value < K(0), K(0), value);
#elif CELL == 2
#define ADVANCE                                                                                        \
    LET_SIGMOID(i_gate, INPUT(0) + SUM(0))                                                             \
    LET_SIGMOID(f_gate, INPUT(1) + SUM(1))                                                             \
    LET_TANGENT(g_gate, INPUT(2) + SUM(2))                                                             \
    LET_SIGMOID(o_gate, INPUT(3) + SUM(3))                                                             \
    inner = FMA(f_gate, inner, i_gate * g_gate);                                                       \
    LET_TANGENT(bent, inner)                                                                           \
    next = o_gate * bent;                                                                              \
    KEEP(0, i_gate) KEEP(1, f_gate) KEEP(2, g_gate) KEEP(3, o_gate) KEEP(4, inner)
#else
#define ADVANCE                                                                                        \
    LET_SIGMOID(r_gate, INPUT(0) + SUM(0))                                                             \
    LET_SIGMOID(z_gate, INPUT(1) + SUM(1))                                                             \
    V hidden = SUM(2);                                                                                 \
    if (given & HAS_BIAS) hidden += TAKE(DT, bias_base + bias_offset, column);                         \
    LET_TANGENT(n_gate, FMA(r_gate, hidden, INPUT(2)))                                                 \
    next = FMA(z_gate, next - n_gate, n_gate);                                                         \
    KEEP(0, r_gate) KEEP(1, z_gate) KEEP(2, n_gate) KEEP(3, hidden)
#endif

KERNEL(recurrent, RECURRENT_ARGS) {
    UNPACK(RECURRENT_ARGS)
    const int wide = U * W, all_panels = (H + wide - 1) / wide;
    const long width = (long)all_panels * wide, whole = B * width;
    int row_begin = PART_OF_ITEMS * rows, row_end = min(row_begin + rows, B);
    int panel_begin = PART_OF_PANELS * panels, panel_end = min(panel_begin + panels, all_panels);
    __global S *state = state_base + state_offset;
    __global const MEMORY(DT) *x = x_base + x_offset;
#if !GIVEN
    S sums[MR * GATES * U * W];
#endif
    PLAIN_LOOP
    for (int now = begin; now < stop; now++) {
        __global S *before = state + (now & 1) * whole, *after = state + (~now & 1) * whole, *inside = state + 2 * whole;
        PLAIN_LOOP
        for (int tile = 0, tiles = (row_end - row_begin + MR - 1) / MR, n = tiles * (panel_end - panel_begin); tile < n; tile++) {
            int panel = panel_begin + tile / tiles, first = row_begin + tile % tiles * MR, left = min(MR, row_end - first);
            int depth = now > 0 || given & HAS_H0 ? H : 0;
#if !GIVEN
            PLAIN_LOOP
            for (int at = 0; at < (depth > 0 && LEAVES_CACHED(depth * GATES) ? left * U : 0); at++) {
                LET_PLACE(now)
                if (lanes <= 0) continue;
                for (int g = 0; g < GATES; g++) PREFETCH_READ(x + time * xt + row * xb + column + g * H);
            }
            __global const S *panel_of_w = w_base + w_offset + panel * to_panel;
            PLAIN_LOOP
            for (int gate = 0; gate < GATES; gate += TOGETHER)
                multiply(before + first * width, width, left, panel_of_w + gate * to_gate, to_gate, depth, sums + gate * (MR * U * W));
#endif
            PLAIN_LOOP
            for (int at = 0; at < left * U; at++) {
                LET_PLACE(now)
                if (lanes <= 0) continue;
                long here = row * width + column, there = (long)row * H + column;
                __global const MEMORY(DT) *from = x + time * xt + row * xb + column;
                __global MEMORY(DT) *keep = saved_base + saved_offset + (time * B + row) * (SAVED * H) + column;
                V next = (V)(0), inner = next;
                (void)keep, (void)inner;
                if (now > 0 || given & HAS_H0) next = TAKE(IN, before, here); /* what pads a row is nobody's */
                if (CELL == 2 && now > 0) inner = LOAD(IN, W, inside, here);
                else if (CELL == 2 && given & HAS_C0) inner = TAKE(DT, c0_base + c0_offset, there);
                if (now < length) {
                    ADVANCE
                }
                PUT(DT, y_base + y_offset, time * yt + row * yb + column, now < length ? next : (V)(0))
                STORE(IN, W, after, here, next);
                if (CELL == 2) STORE(IN, W, inside, here, inner);
                if (now + 1 < all) continue;
                PUT(DT, h_base + h_offset, there, next)
                if (CELL == 2) PUT(DT, c_base + c_offset, there, inner)
            }
        }
    }
}
