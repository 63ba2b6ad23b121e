/* sums.cl — two sums in one pass over memory, for normalisation:

       s0 = Σ a,   s1 = Σ a · (x − m),   a = g, or x − m itself
       s0 = Σ x,   s1 = Σ g              of what either of these left in parts

   x and g lie as [outer, n, inner] and are summed over n; m is [outer, inner].  y0 and y1 are [outer, splits, inner]: every split
   sums its `chunk` of the n in a fixed order.  A unit of work is one (outer, split) for rows (inner = 1), one (outer, split, `strip`
   columns) for columns; a work-item, or a team (lanes.h), takes `per` units.  Sums go through blocks of partial sums, so the error
   grows with far less than n.
   Knobs: DT: f32 or f64, of everything; OWN: a is x − m, and g is not read; JOIN: the sums of x and of g, and m is not read; W; STRIP:
   the widest strip, or 0 where one is a vector.
   Checked with: OWN=1; JOIN=1; STRIP=0; OWN=1 STRIP=0; JOIN=1 STRIP=0; W=1 TEAM=64 STRIP=0; OWN=1 W=1 TEAM=64 STRIP=0;
   JOIN=1 W=1 TEAM=64 STRIP=0. */
#ifndef DT
#define DT f32
#endif
#ifndef OWN
#define OWN 0
#endif
#ifndef JOIN
#define JOIN 0
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
#include "shuffle.h"
#ifndef SWAP
#undef SUBGROUP /* LLVM 15 of pocl 3.1 crashes in its inliner on what stands in for shuffles here */
#endif
#include "lanes.h"
#define BLOCK 32 /* summed before they meet the total */

/* What is added of the elements at i: a to the first sum, and what PLUS_SECOND makes of a and far to the second. */
#if JOIN
#define FAR(n, i) ((void)m, LOAD(DT, n, g, i))
#define FACTOR(n, i, far) LOAD(DT, n, x, i)
#define PLUS_SECOND(a, far, s) ((far) + (s))
#else
#define FAR(n, i) (LOAD(DT, n, x, i) - m)
#if OWN
#define FACTOR(n, i, far) ((void)g, far)
#else
#define FACTOR(n, i, far) LOAD(DT, n, g, i)
#endif
#define PLUS_SECOND(a, far, s) fma(a, far, s)
#endif
#define ADD(n, i)                                                                                \
    {                                                                                            \
        VEC(A, n) far = FAR(n, i), a = FACTOR(n, i, far);                                        \
        s0 += a;                                                                                 \
        s1 = PLUS_SECOND(a, far, s1);                                                            \
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
#define FAR_LINE(lanes, k) FAR(lanes, (k) * pace)
#define FACTOR_LINE(lanes, k, far) FACTOR(lanes, (k) * pace, far)
#define OR_NONE(lanes, k, v) (i + (k) < lines ? v : (VEC(A, lanes))(0))
#define ADD_FOUR(total0, total1)                                                                 \
    total0 += (a0 + a1) + (a2 + a3);                                                             \
    total1 = PLUS_SECOND(a3, far3, PLUS_SECOND(a2, far2, PLUS_SECOND(a1, far1, PLUS_SECOND(a0, far0, total1))));
/* Four lines at a time, the last for those behind it; x and g step down by pace. */
#define DEFINE_SUM_LINES(lanes)                                                                  \
    typedef struct { VEC(A, lanes) s0, s1; } OF_PART(CAT(pair_, lanes));                                  \
    static OF_PART(CAT(pair_, lanes)) OF_PART(CAT(sum_lines_, lanes))(__global const MEMORY(DT) *x, __global const MEMORY(DT) *g, VEC(A, lanes) m, \
                                                    long lines, long pace) {                     \
        OF_PART(CAT(pair_, lanes)) total = {(VEC(A, lanes))(0), (VEC(A, lanes))(0)};                      \
        long i = 0;                                                                              \
        while (i + 4 <= lines) {                                                                 \
            VEC(A, lanes) s0 = (VEC(A, lanes))(0), s1 = s0;                                      \
            long stop = min(lines, i + 4 * BLOCK);                                               \
            for (; i + 4 <= stop; i += 4, x += 4 * pace, g += 4 * pace) {                        \
                VEC(A, lanes) far0 = FAR_LINE(lanes, 0), far1 = FAR_LINE(lanes, 1), far2 = FAR_LINE(lanes, 2), \
                              far3 = FAR_LINE(lanes, 3);                                         \
                VEC(A, lanes) a0 = FACTOR_LINE(lanes, 0, far0), a1 = FACTOR_LINE(lanes, 1, far1), \
                              a2 = FACTOR_LINE(lanes, 2, far2), a3 = FACTOR_LINE(lanes, 3, far3); \
                ADD_FOUR(s0, s1)                                                                 \
            }                                                                                    \
            total.s0 += s0;                                                                      \
            total.s1 += s1;                                                                      \
        }                                                                                        \
        if (i < lines) {                                                                         \
            long end = lines - 1 - i, k1 = min(1L, end), k2 = min(2L, end);                      \
            VEC(A, lanes) far0 = FAR_LINE(lanes, 0), far1 = FAR_LINE(lanes, k1), far2 = FAR_LINE(lanes, k2); \
            VEC(A, lanes) a0 = FACTOR_LINE(lanes, 0, far0), a1 = FACTOR_LINE(lanes, k1, far1), a2 = FACTOR_LINE(lanes, k2, far2); \
            VEC(A, lanes) far3 = (VEC(A, lanes))(0), a3 = far3;                                  \
            far1 = OR_NONE(lanes, 1, far1), a1 = OR_NONE(lanes, 1, a1);                          \
            far2 = OR_NONE(lanes, 2, far2), a2 = OR_NONE(lanes, 2, a2);                          \
            ADD_FOUR(total.s0, total.s1)                                                         \
        }                                                                                        \
        return total;                                                                            \
    }
DEFINE_SUM_LINES(1)
#if TEAM > 1
DEFINE_COLUMN_FOLD(sum, PLUS)
#else
#if W > 1
DEFINE_SUM_LINES(W)
#endif
#define SUM_COLUMN(lanes, c)                                                                     \
    {                                                                                            \
        OF_PART(CAT(pair_, lanes)) r = OF_PART(CAT(sum_lines_, lanes))(x + c, g + c, LOAD(DT, lanes, mean, c), count, inner); \
        STORE(DT, lanes, to0, c, r.s0);                                                          \
        STORE(DT, lanes, to1, c, r.s1);                                                          \
    }
#endif
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

ROWS_KERNEL(sum_columns, SUM_COLUMNS_ARGS) {
    UNPACK(SUM_COLUMNS_ARGS)
#if STRIP
    V total0[STRIP / W], total1[STRIP / W];
#endif
    TEAM_CELLS
    long strips = (inner + strip - 1) / strip, u = FIRST_ROW, last = min(units, u + per);
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
#elif TEAM > 1
        int across = (int)strip, c = (int)MEMBER % across, line = (int)MEMBER / across, down = DOWN(across);
        OF_PART(pair_1) r = {0, 0};
        if (c < width) {
            long own = line * inner + c;
            r = OF_PART(sum_lines_1)(x + own, g + own, LOAD(DT, 1, mean, c), (count - line + down - 1) / down, down * inner);
        }
        A s0 = OF_COLUMN(sum, across, r.s0), s1 = OF_COLUMN(sum, across, r.s1);
        if (line == 0 && c < width) {
            STORE(DT, 1, to0, c, s0);
            STORE(DT, 1, to1, c, s1);
        }
#else
        ALONG(c, 0, width, SUM_COLUMN)
#endif
    }
}
