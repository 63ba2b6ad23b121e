/* sums.cl — two sums in one pass over memory, for normalisation:

       s0 = Σ a,   s1 = Σ a · (x − m),   a = g, or x − m itself

   x and g lie as [outer, n, inner] and are summed over n; m is [outer, inner].  y is [2, outer, splits, inner]: every split sums
   its `chunk` of the n in a fixed order.  A unit of work is one (outer, split) for rows (inner = 1), one (outer, split, MANY
   vectors of columns) for columns; a work-item takes `per` units.  Sums go through blocks of partial sums, so the error grows with far
   less than n.
   Knobs: DT: f32 or f64, of everything; OWN: a is x − m, and g is not read; W; MANY: FOUR, or ONE where a
   vector is all an item takes. */
#ifndef DT
#define DT f32
#endif
#ifndef OWN
#define OWN 0
#endif
#ifndef W
#define W 16
#endif
#ifndef MANY
#define MANY FOUR
#endif
#include "common.h"

#define A COMPUTE(DT)
#define V VEC(A, W)
#include "lanes.h"
#define BLOCK 32 /* summed before they meet the total */

#if OWN
#define FACTOR(n, p, i, far) ((void)p, far)
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

DEFINE_FOLD(add_lanes, PLUS)

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

/* Goes down `count` lines, taking one vector of each or MANY. */
#define BEGIN_TOTAL(lanes, j)                                                                    \
    VEC(A, lanes) total0_##j = (VEC(A, lanes))(0), total1_##j = total0_##j, m##j = LOAD(DT, lanes, mean, c + j * lanes);
#define BEGIN_BLOCK(lanes, j) VEC(A, lanes) s0_##j = (VEC(A, lanes))(0), s1_##j = s0_##j;
#define TAKE(lanes, j)                                                                           \
    {                                                                                            \
        VEC(A, lanes) far = LOAD(DT, lanes, x, i * inner + c + j * lanes) - m##j;                \
        VEC(A, lanes) a = FACTOR(lanes, g, i * inner + c + j * lanes, far);                      \
        s0_##j += a;                                                                             \
        s1_##j = fma(a, far, s1_##j);                                                            \
    }
#define END_BLOCK(lanes, j) total0_##j += s0_##j, total1_##j += s1_##j;
#define PUT(lanes, j)                                                                            \
    STORE(DT, lanes, to, c + j * lanes, total0_##j);                                             \
    STORE(DT, lanes, to, second + c + j * lanes, total1_##j);
#define SUM_COLUMNS(lanes, EACH)                                                                 \
    {                                                                                            \
        EACH(BEGIN_TOTAL, lanes)                                                                 \
        for (long i = 0; i < count;) {                                                           \
            EACH(BEGIN_BLOCK, lanes)                                                             \
            for (long stop = min(count, i + BLOCK); i < stop; i++) { EACH(TAKE, lanes) }         \
            EACH(END_BLOCK, lanes)                                                               \
        }                                                                                        \
        EACH(PUT, lanes)                                                                         \
    }
#define SUM_COLUMN(lanes, at)                                                                    \
    {                                                                                            \
        long c = at;                                                                             \
        SUM_COLUMNS(lanes, ONE)                                                                  \
    }

__kernel void sum_columns(__global const MEMORY(DT) *x_, long x_at, __global const MEMORY(DT) *g_, long g_at,
                          __global const MEMORY(DT) *m, long m_at, __global MEMORY(DT) *y, long y_at, long second, long n,
                          long chunk, long splits, long inner, long units, long per) {
    long width = MANY(COUNT, W) 0, blocks = (inner + width - 1) / width;
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long piece = u / blocks, c = (u - piece * blocks) * width, end = min(inner, c + width);
        long row = piece / splits, from = (piece - row * splits) * chunk, count = min(chunk, n - from);
        __global const MEMORY(DT) *x = x_ + x_at + (row * n + from) * inner, *g = g_ + g_at + (row * n + from) * inner;
        __global const MEMORY(DT) *mean = m + m_at + row * inner;
        __global MEMORY(DT) *to = y + y_at + piece * inner;
        if (c + width <= inner) SUM_COLUMNS(W, MANY)
        else ALONG(at, c, end, SUM_COLUMN)
    }
}
