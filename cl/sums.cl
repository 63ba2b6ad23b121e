/* sums.cl — two sums in one pass over memory, for normalisation:

       s0 = Σ a,   s1 = Σ a · (x − m),   a = g, or x − m itself

   x and g lie as [outer, n, inner] and are summed over n; m is [outer, inner].  y is [2, outer, splits, inner]: every split sums
   its `chunk` of the n in a fixed order.  A unit of work is one (outer, split) for rows (inner = 1), one (outer, split, block of
   W columns) for columns; a work-item takes `per` units.  Sums go through blocks of partial sums, so the error grows with far
   less than n.
   Knobs: DT: f32 or f64, of everything; OWN: a is x − m, and g is not read; W. */
#ifndef DT
#define DT f32
#endif
#ifndef OWN
#define OWN 0
#endif
#ifndef W
#define W 16
#endif
#include "common.h"

#define A COMPUTE(DT)
#define BLOCK 32 /* summed before they meet the total */

#if OWN
#define FACTOR(n, p, i, far) far
#else
#define FACTOR(n, p, i, far) LOAD(DT, n, p, i)
#endif
#define ADD(n, i)                                                                                \
    {                                                                                            \
        VEC(A, n) far = LOAD(DT, n, x, i) - m, a = FACTOR(n, g, i, far);                         \
        s0 += a;                                                                                 \
        s1 = fma(a, far, s1);                                                                    \
    }

typedef struct { A s0, s1; } pair;

static A add_lanes(VEC(A, W) v) {
    A lane[W];
    CAT(VSTORE_, W)(v, lane);
    for (int half_ = W / 2; half_ > 0; half_ /= 2)
        for (int k = 0; k < half_; k++) lane[k] += lane[k + half_];
    return lane[0];
}

static pair sum_row(__global const MEMORY(DT) *x, __global const MEMORY(DT) *g, A mean, long n) {
    VEC(A, W) total0 = (VEC(A, W))(0), total1 = total0, m = (VEC(A, W))(mean);
    long i = 0;
    while (i + W <= n) {
        VEC(A, W) s0 = (VEC(A, W))(0), s1 = s0;
        for (long stop = min(n, i + BLOCK * W); i + W <= stop; i += W) ADD(W, i)
        total0 += s0;
        total1 += s1;
    }
    A s0 = 0, s1 = 0;
    {
        A m = mean;
        for (; i < n; i++) ADD(1, i)
    }
    pair r = {add_lanes(total0) + s0, add_lanes(total1) + s1};
    return r;
}

__kernel void sum_rows(__global const MEMORY(DT) *x, long x_at, __global const MEMORY(DT) *g, long g_at,
                       __global const MEMORY(DT) *m, long m_at, __global MEMORY(DT) *y, long y_at, long second, long n,
                       long chunk, long splits, long units, long per) {
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long row = u / splits, from = (u - row * splits) * chunk, at = row * n + from;
        pair r = sum_row(x + x_at + at, g + g_at + at, LOAD(DT, 1, m, m_at + row), min(chunk, n - from));
        STORE(DT, 1, y, y_at + u, r.s0);
        STORE(DT, 1, y, y_at + second + u, r.s1);
    }
}

/* n vectors of `lanes`, `inner` elements apart. */
#define SUM_COLUMNS(lanes)                                                                       \
    {                                                                                            \
        VEC(A, lanes) total0 = (VEC(A, lanes))(0), total1 = total0;                              \
        VEC(A, lanes) m = LOAD(DT, lanes, mean, m_at + row * inner + column);                    \
        for (long i = 0; i < count;) {                                                           \
            VEC(A, lanes) s0 = (VEC(A, lanes))(0), s1 = s0;                                      \
            for (long stop = min(count, i + BLOCK); i < stop; i++) ADD(lanes, i * inner)         \
            total0 += s0;                                                                        \
            total1 += s1;                                                                        \
        }                                                                                        \
        STORE(DT, lanes, y, to, total0);                                                         \
        STORE(DT, lanes, y, to + second, total1);                                                \
    }

__kernel void sum_columns(__global const MEMORY(DT) *x_base, long x_at, __global const MEMORY(DT) *g_base, long g_at,
                          __global const MEMORY(DT) *mean, long m_at, __global MEMORY(DT) *y, long y_at, long second, long n,
                          long chunk, long splits, long inner, long units, long per) {
    long blocks = (inner + W - 1) / W;
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long piece = u / blocks, column = (u - piece * blocks) * W, stop_column = min(inner, column + W);
        long row = piece / splits, from = (piece - row * splits) * chunk, count = min(chunk, n - from);
        bool whole = column + W <= inner;
        for (; column < stop_column; column += whole ? W : 1) {
            __global const MEMORY(DT) *x = x_base + x_at + (row * n + from) * inner + column;
            __global const MEMORY(DT) *g = g_base + g_at + (row * n + from) * inner + column;
            long to = y_at + piece * inner + column;
            if (whole) SUM_COLUMNS(W) else SUM_COLUMNS(1)
        }
    }
}
