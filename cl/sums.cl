/* sums.cl — two sums in one pass over memory, for normalisation:

       s0 = Σ a,   s1 = Σ a · (x − m),   a = g, or x − m itself

   x and g lie as [outer, n, inner] and are summed over n; m is [outer, inner].  y0 and y1 are [outer, splits, inner]: every split
   sums its `chunk` of the n in a fixed order.  A unit of work is one (outer, split) for rows (inner = 1), one (outer, split, `strip`
   columns) for columns; a work-item, or a team for rows (lanes.h), takes `per` units.  Sums go through blocks of partial sums, so the error grows with far less
   than n.
   Knobs: DT: f32 or f64, of everything; OWN: a is x − m, and g is not read; W; STRIP: the widest strip, or 0 where one is a
   vector.
   Checked with: OWN=1; STRIP=0; OWN=1 STRIP=0; W=1 TEAM=64. */
#ifndef DT
#define DT f32
#endif
#ifndef OWN
#define OWN 0
#endif
#ifndef W
#define W CLEF_LANES
#endif
#ifndef STRIP
#define STRIP 2048
#endif
#include "common.h"
#define IN_PLACE
#include "args.h"
#include "sums.args"

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
DEFINE_TEAM_FOLD(sum, PLUS)

static pair sum_row(__global const MEMORY(DT) *x, __global const MEMORY(DT) *g, A mean, long n) {
    VEC(A, W) total0 = (VEC(A, W))(0), total1 = total0, m = (VEC(A, W))(mean);
    long i = MEMBER;
    while (i + W <= n) {
        VEC(A, W) s0 = (VEC(A, W))(0), s1 = s0;
        for (long stop = min(n, i + BLOCK * PACE); i + W <= stop; i += PACE) ADD(W, i)
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

ROWS_KERNEL(sum_rows, SUM_ROWS_ARGS) {
    UNPACK(SUM_ROWS_ARGS)
    TEAM_CELLS
    long u = FIRST_ROW, last = min(units, u + per);
    for (; u < last; u++) {
        long row = u / splits, from = (u - row * splits) * chunk, at = row * n + from;
        pair r = sum_row(x_base + x_offset + at, g_base + g_offset + at, LOAD(DT, 1, m_base, m_offset + row), min(chunk, n - from));
        A s0 = OF_TEAM(sum, r.s0), s1 = OF_TEAM(sum, r.s1);
        if (LEADS) {
            STORE(DT, 1, y0_base, y0_offset + u, s0);
            STORE(DT, 1, y1_base, y1_offset + u, s1);
        }
    }
}

/* ---- columns: as those of reduce.cl ---- */

#if STRIP == 0
#define SUM_COLUMN(lanes, c)                                                                     \
    {                                                                                            \
        VEC(A, lanes) total0 = (VEC(A, lanes))(0), total1 = total0, m = LOAD(DT, lanes, mean, c); \
        for (long i = 0; i < count;) {                                                           \
            VEC(A, lanes) s0 = (VEC(A, lanes))(0), s1 = s0;                                      \
            for (long stop = min(count, i + BLOCK); i < stop; i++) ADD(lanes, i * inner + c)     \
            total0 += s0;                                                                        \
            total1 += s1;                                                                        \
        }                                                                                        \
        STORE(DT, lanes, to0, c, total0);                                                        \
        STORE(DT, lanes, to1, c, total1);                                                        \
    }
#else
#define TOTAL(lanes, which, c) (*(VEC(A, lanes) *)((A *)total##which + (c)))
#define BEGIN(lanes, c) TOTAL(lanes, 0, c) = TOTAL(lanes, 1, c) = (VEC(A, lanes))(0);
#define ADD_LINES(lanes, c, lines)                                                               \
    {                                                                                            \
        VEC(A, lanes) s0 = (VEC(A, lanes))(0), s1 = s0, m = LOAD(DT, lanes, mean, c);            \
        lines                                                                                    \
        TOTAL(lanes, 0, c) += s0;                                                                \
        TOTAL(lanes, 1, c) += s1;                                                                \
    }
#define ADD_LINE(lanes, c) ADD_LINES(lanes, c, ADD(lanes, c))
#define ADD_FOUR(lanes, c)                                                                       \
    ADD_LINES(lanes, c, ADD(lanes, c) ADD(lanes, apart + c) ADD(lanes, 2 * apart + c) ADD(lanes, 3 * apart + c))
#define PUT(lanes, c)                                                                            \
    {                                                                                            \
        STORE(DT, lanes, to0, c, TOTAL(lanes, 0, c));                                            \
        STORE(DT, lanes, to1, c, TOTAL(lanes, 1, c));                                            \
    }
#endif

KERNEL(sum_columns, SUM_COLUMNS_ARGS) {
    UNPACK(SUM_COLUMNS_ARGS)
#if STRIP
    V total0[STRIP / W], total1[STRIP / W];
#endif
    long strips = (inner + strip - 1) / strip, u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long part = u / strips, first = (u - part * strips) * strip, width = min(strip, inner - first);
        long row = part / splits, from = (part - row * splits) * chunk, count = min(chunk, n - from);
        long at = (row * n + from) * inner + first;
        __global const MEMORY(DT) *x = x_base + x_offset + at, *g = g_base + g_offset + at,
                                  *mean = m_base + m_offset + row * inner + first;
        long to = part * inner + first;
        __global MEMORY(DT) *to0 = y0_base + y0_offset + to, *to1 = y1_base + y1_offset + to;
#if STRIP
        const long step = count / 4, apart = step * inner;
        ALONG(c, 0, width, BEGIN)
        for (long i = 0; i < step; i++, x += inner, g += inner) ALONG(c, 0, width, ADD_FOUR)
        x += 3 * apart;
        g += 3 * apart;
        for (long i = 4 * step; i < count; i++, x += inner, g += inner) ALONG(c, 0, width, ADD_LINE)
        ALONG(c, 0, width, PUT)
#else
        ALONG(c, 0, width, SUM_COLUMN)
#endif
    }
}
