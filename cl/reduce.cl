/* reduce.cl — x [outer, n, inner] → y [outer, splits, inner]: every split joins its `chunk` of the n in a fixed order.

   A unit of work is one (outer, split) for rows (inner = 1), one (outer, split, `strip` columns) for columns; a work-item, or a team
   (lanes.h), takes `per` units.  Sums go through blocks of partial sums, so the error grows with far less than n.
   And where the largest or smallest of each row or column lies.
   DT: what lies in x.  AT: f32 f64 i32 i64 (what is joined).  OT: what lies in y, computed in AT.
   OP: SUM, PRODUCT, LARGEST, SMALLEST.  STRIP: the widest strip, or 0 where one is a vector.  PLACE_IN: places are wanted, not
   what is joined; int, or long where lines are too many for it.

   What is joined may be computed where it is read: then text in front of this file (plan/lower/codegen.c) says which INPUTS there are and
   how an element's VALUE comes from them.
   Checked with: STRIP=0; W=1 STRIP=0; W=1 TEAM=64 STRIP=0; OP=LARGEST PLACE_IN=long; OP=LARGEST PLACE_IN=int;
   OP=SMALLEST PLACE_IN=int W=1 TEAM=64 STRIP=0. */
#ifndef DT
#define DT f32
#endif
#ifndef AT
#define AT CAT(WIDE_, DT)
#endif
#ifndef OT
#define OT AT
#endif
#ifndef OP
#define OP SUM
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
#include "reduce.args"

#define A COMPUTE(AT)
#define V VEC(A, W)
#include "lanes.h"
#ifdef VALUE /* computed where it is read */
#define AT_ONCE 4
#else
#define AT_ONCE 8
#define INPUTS __global const MEMORY(DT) *x, long x_at
#define PASSED x, x_at
#define VALUE(n, i) LOAD(DT, n, x, x_at + (i))
/* A core that only waits for rows asks for too few lines at a time by itself. */
#define AHEAD(p, k)                                                                              \
    if ((k) * PACE * sizeof(*x) % 64 == 0) PREFETCH_READ(x + x_at + (p) + (k) * PACE + 4096 / sizeof(*x));
#endif
#ifndef AHEAD
#define AHEAD(p, k)
#endif
#define READ(n, i) CONVERT(A, n)(VALUE(n, i))

#define LOWEST_float (-INFINITY)
#define LOWEST_double ((double)-INFINITY)
#define LOWEST_int INT_MIN
#define LOWEST_long LONG_MIN
#define HIGHEST_float INFINITY
#define HIGHEST_double ((double)INFINITY)
#define HIGHEST_int INT_MAX
#define HIGHEST_long LONG_MAX
#define START_SUM 0
#define START_PRODUCT 1
#define LIMIT_(a, b) a##b
#define LIMIT(a, b) LIMIT_(a, b)
#define START_LARGEST LIMIT(LOWEST_, A)
#define START_SMALLEST LIMIT(HIGHEST_, A)
#define START_OF_(op) START_##op
#define START_OF(op) START_OF_(op)
#define START ((A)START_OF(OP))
#define NAN_float(x) ((x) != (x))
#define NAN_double(x) ((x) != (x))
#define NAN_int(x) 0
#define NAN_long(x) 0
/* NaN wins over every number. */
#define JOIN_SUM(a, x) ((a) + (x))
#define JOIN_PRODUCT(a, x) ((a) * (x))
#define JOIN_LARGEST(a, x) ((((x) > (a)) | LIMIT(NAN_, A)(x)) ? (x) : (a))
#define JOIN_SMALLEST(a, x) ((((x) < (a)) | LIMIT(NAN_, A)(x)) ? (x) : (a))
#define JOIN(a, x) CAT(JOIN_, OP)(a, x)

#define BLOCK 32 /* joined before they meet the total */

DEFINE_FOLD(join_lanes, JOIN)
DEFINE_TEAM_FOLD(join, JOIN)

/* n elements from p on; a team's member: its own. */
static A join_row(INPUTS, long p, long n) {
    V total = (V)(START);
    long i = MEMBER;
    while (i + 3 * PACE + W <= n) {
        V s0 = (V)(START), s1 = s0, s2 = s0, s3 = s0;
        long stop = min(n, i + BLOCK * 4 * PACE);
        for (; i + 3 * PACE + W <= stop; i += 4 * PACE) {
            AHEAD(p + i, 0) AHEAD(p + i, 1) AHEAD(p + i, 2) AHEAD(p + i, 3)
            V v0 = READ(W, p + i), v1 = READ(W, p + i + PACE), v2 = READ(W, p + i + 2 * PACE), v3 = READ(W, p + i + 3 * PACE);
            s0 = JOIN(s0, v0);
            s1 = JOIN(s1, v1);
            s2 = JOIN(s2, v2);
            s3 = JOIN(s3, v3);
        }
        V s01 = JOIN(s0, s1), s23 = JOIN(s2, s3), s = JOIN(s01, s23);
        total = JOIN(total, s);
    }
    for (; i + W <= n; i += PACE) {
        V v = READ(W, p + i);
        total = JOIN(total, v);
    }
    A r = join_lanes(total);
    for (; i < n; i++) {
        A v = READ(1, p + i);
        r = JOIN(r, v);
    }
    return r;
}

#ifndef PLACE_IN
ROWS_KERNEL(reduce_rows, REDUCE_ROWS_ARGS) {
    UNPACK(REDUCE_ROWS_ARGS)
    TEAM_CELLS
    long u = FIRST_ROW, last = min(units, u + per);
    for (; u < last; u++) {
        long row = u / splits, from = (u - row * splits) * chunk;
        A r = OF_TEAM(join, join_row(PASSED, row * n + from, min(chunk, n - from)));
        if (LEADS) STORE(OT, 1, y_base, y_offset + u, r / (A)divide);
    }
}

/* ---- columns ---- */

#if STRIP == 0
/* For devices that read in one go what work-items side by side ask for, and wait long for it: every work-item goes down its column, or
   vector of columns, with loads of AT_ONCE lines under way at a time (four where each line is of several), of four near the end (there the
   last line stands for those behind it, and is not joined).  No compiler should unroll these loops once more: a group of 256 has no registers for it. */
#define LINE(lanes, k) READ(lanes, p + (k) * pace)
#define LINE_OR_NONE(lanes, k) (i + (k) < lines ? last##k : (VEC(A, lanes))(START))
#define JOIN_FOUR(lanes, r, a, b, c, d)                                                          \
    VEC(A, lanes) r = JOIN(a, b), r##_ = JOIN(c, d);                                             \
    r = JOIN(r, r##_);
#if AT_ONCE == 8
#define LOAD_MORE(lanes) VEC(A, lanes) v4 = LINE(lanes, 4), v5 = LINE(lanes, 5), v6 = LINE(lanes, 6), v7 = LINE(lanes, 7);
#define JOIN_MORE(lanes, r)                                                                      \
    JOIN_FOUR(lanes, t, v4, v5, v6, v7)                                                          \
    r = JOIN(r, t);
#else
#define LOAD_MORE(lanes)
#define JOIN_MORE(lanes, r)
#endif
#define DEFINE_JOIN_LINES(lanes)                                                                 \
    static VEC(A, lanes) OF_PART(CAT(join_lines_, lanes))(INPUTS, long p, long lines, long pace) {        \
        VEC(A, lanes) total = (VEC(A, lanes))(START);                                            \
        long i = 0;                                                                              \
        PLAIN_LOOP while (i + AT_ONCE <= lines) {                                                \
            VEC(A, lanes) s = (VEC(A, lanes))(START);                                            \
            long stop = min(lines, i + AT_ONCE * BLOCK);                                         \
            PLAIN_LOOP for (; i + AT_ONCE <= stop; i += AT_ONCE, p += AT_ONCE * pace) {          \
                VEC(A, lanes) v0 = LINE(lanes, 0), v1 = LINE(lanes, 1), v2 = LINE(lanes, 2), v3 = LINE(lanes, 3); \
                LOAD_MORE(lanes)                                                                 \
                JOIN_FOUR(lanes, r, v0, v1, v2, v3)                                              \
                JOIN_MORE(lanes, r)                                                              \
                s = JOIN(s, r);                                                                  \
            }                                                                                    \
            total = JOIN(total, s);                                                              \
        }                                                                                        \
        PLAIN_LOOP for (; i < lines; i += 4, p += 4 * pace) {                                    \
            long end = lines - 1 - i;                                                            \
            VEC(A, lanes) v0 = LINE(lanes, 0), last1 = LINE(lanes, min(1L, end)), last2 = LINE(lanes, min(2L, end)), \
                          last3 = LINE(lanes, min(3L, end));                                     \
            VEC(A, lanes) v1 = LINE_OR_NONE(lanes, 1), v2 = LINE_OR_NONE(lanes, 2), v3 = LINE_OR_NONE(lanes, 3); \
            JOIN_FOUR(lanes, r, v0, v1, v2, v3)                                                  \
            total = JOIN(total, r);                                                              \
        }                                                                                        \
        return total;                                                                            \
    }
DEFINE_JOIN_LINES(1)
#if TEAM > 1
DEFINE_COLUMN_FOLD(join, JOIN)
#else
#if W > 1
DEFINE_JOIN_LINES(W)
#endif
#define JOIN_COLUMN(lanes, c)                                                                    \
    {                                                                                            \
        VEC(A, lanes) v = OF_PART(CAT(join_lines_, lanes))(PASSED, p + c, count, inner);                  \
        STORE(OT, lanes, to, c, v / (VEC(A, lanes))((A)divide));                                 \
    }
#endif

#else
/* Whole lines, eight at a time from places far apart, and the totals of all columns in the first-level cache: a core's memory
   gives most when it is read in a few long runs at once. */
#define TOTAL(lanes, c) (*(VEC(A, lanes) *)((A *)total + (c)))
#define BEGIN(lanes, c) TOTAL(lanes, c) = (VEC(A, lanes))(START);
#define JOIN_LINE(lanes, c)                                                                      \
    {                                                                                            \
        VEC(A, lanes) v = READ(lanes, p + c);                                                     \
        TOTAL(lanes, c) = JOIN(TOTAL(lanes, c), v);                                              \
    }
#define READ_TWO(lanes, v, a, b)                                                                 \
    VEC(A, lanes) v = READ(lanes, p + a), v##_ = READ(lanes, p + b);                               \
    v = JOIN(v, v##_);
#define JOIN_LINES(lanes, c)                                                                     \
    {                                                                                            \
        READ_TWO(lanes, v0, c, apart + c)                                                        \
        READ_TWO(lanes, v2, 2 * apart + c, 3 * apart + c)                                        \
        READ_TWO(lanes, v4, 4 * apart + c, 5 * apart + c)                                        \
        READ_TWO(lanes, v6, 6 * apart + c, 7 * apart + c)                                        \
        v0 = JOIN(v0, v2);                                                                       \
        v4 = JOIN(v4, v6);                                                                       \
        v0 = JOIN(v0, v4);                                                                       \
        TOTAL(lanes, c) = JOIN(TOTAL(lanes, c), v0);                                             \
    }
#define PUT(lanes, c) STORE(OT, lanes, to, c, TOTAL(lanes, c) / (VEC(A, lanes))((A)divide));
#endif

ROWS_KERNEL(reduce_columns, REDUCE_COLUMNS_ARGS) {
    UNPACK(REDUCE_COLUMNS_ARGS)
#if STRIP
    V total[STRIP / W];
#endif
    TEAM_CELLS
    long strips = (inner + strip - 1) / strip, u = FIRST_ROW, last = min(units, u + per);
    for (; u < last; u++) {
        long part = u / strips, first = (u - part * strips) * strip, width = min(strip, inner - first);
        long row = part / splits, from = (part - row * splits) * chunk, count = min(chunk, n - from);
        long p = (row * n + from) * inner + first;
        __global MEMORY(OT) *to = y_base + y_offset + part * inner + first;
#if STRIP
        ALONG(c, 0, width, BEGIN)
        const long step = count / 8, apart = step * inner;
        for (long i = 0; i < step; i++, p += inner) ALONG(c, 0, width, JOIN_LINES)
        p += 7 * apart;
        for (long i = 8 * step; i < count; i++, p += inner) ALONG(c, 0, width, JOIN_LINE)
        ALONG(c, 0, width, PUT)
#elif TEAM > 1
        int across = (int)strip, c = (int)MEMBER % across, line = (int)MEMBER / across, down = DOWN(across);
        A v = START;
        if (c < width) v = OF_PART(join_lines_1)(PASSED, p + line * inner + c, (count - line + down - 1) / down, down * inner);
        v = OF_COLUMN(join, across, v);
        if (line == 0 && c < width) STORE(OT, 1, to, c, v / (A)divide);
#else
        ALONG(c, 0, width, JOIN_COLUMN)
#endif
    }
}

#else
/* ---- where the largest or smallest lies: the first of them; the first NaN counts as best ---- */

#define IS_NAN(x) LIMIT(NAN_, A)(x)
#define SOME_1(hit) (hit)
#define SOME_2(hit) any(hit)
#define SOME_4(hit) any(hit)
#define SOME_8(hit) any(hit)
#define SOME_16(hit) any(hit)
#define SOME(hit) CAT(SOME_, W)(hit)
/* Is it what join_row found?  A NaN is found only where there is one, and no other NaN comes before it. */
#define HIT(v) (((v) == best) | IS_NAN(v))

/* The first place of `best` among n elements, or n; of a team's member: among its own. */
static long find_first(INPUTS, long p, long n, A best) {
    long i = MEMBER;
    for (; i + 3 * PACE + W <= n; i += 4 * PACE) {
        V w0 = READ(W, p + i), w1 = READ(W, p + i + PACE), w2 = READ(W, p + i + 2 * PACE), w3 = READ(W, p + i + 3 * PACE);
        if (SOME(HIT(w0) | HIT(w1) | HIT(w2) | HIT(w3))) break;
    }
    for (; i + W <= n; i += PACE)
        if (SOME(HIT(READ(W, p + i)))) break;
    for (; i < n; i += TEAM) {
        A v = READ(1, p + i);
        if (HIT(v)) return i;
    }
    return n;
}

/* A row is read twice, the second time from a cache. */
ROWS_KERNEL(arg_rows, ARG_ROWS_ARGS) {
    UNPACK(ARG_ROWS_ARGS)
    TEAM_CELLS
#if TEAM > 1
    __local int places[TEAM];
#endif
    long u = FIRST_ROW, last = min(units, u + per);
    for (; u < last; u++) {
        A best = OF_TEAM(join, join_row(x_base, x_offset, u * n, n));
        long place = find_first(x_base, x_offset, u * n, n, best);
#if TEAM > 1
        places[MEMBER] = (int)place;
        for (int left = TEAM / 2; left > 0; left /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            if (MEMBER < left) places[MEMBER] = min(places[MEMBER], places[MEMBER + left]);
        }
        if (LEADS) place = places[0];
#endif
        if (LEADS) y_base[y_offset + u] = place;
    }
}

/* Columns go down line by line. */
#define PLACES(lanes) VEC(PLACE_IN, lanes)
#define IS_LARGEST(v, best) ((v) > (best))
#define IS_SMALLEST(v, best) ((v) < (best))
#define IS_BETTER(v, best) (CAT(IS_, OP)(v, best) | (IS_NAN(v) & ((best) == (best))))
#define LOOK_AT(lanes, best, at, v, i)                                                           \
    PLACES(lanes) better = CONVERT(PLACE_IN, lanes)(IS_BETTER(v, best));                         \
    best = JOIN(best, v);                                                                        \
    at = better ? (PLACES(lanes))(i) : at;
#define BEGIN_PLACE(lanes, k, c)                                                                 \
    VEC(A, lanes) best##k = READ(lanes, p + (c));                                                \
    PLACES(lanes) at##k = (PLACES(lanes))(0);
#define LOOK(lanes, k, c)                                                                        \
    {                                                                                            \
        VEC(A, lanes) v = READ(lanes, p + i * inner + (c));                                      \
        LOOK_AT(lanes, best##k, at##k, v, i)                                                     \
    }
/* One by one: a program of floats has no vectors of longs. */
#define PUT_PLACE(lanes, k, c)                                                                   \
    for (int lane = 0; lane < lanes; lane++) to[(c) + lane] = ((PLACE_IN *)&at##k)[lane];
#define GO_DOWN(lanes, c)                                                                        \
    {                                                                                            \
        BEGIN_PLACE(lanes, 0, c)                                                                 \
        for (long i = 1; i < n; i++) LOOK(lanes, 0, c)                                           \
        PUT_PLACE(lanes, 0, c)                                                                   \
    }
#define GO_DOWN_TOGETHER(X) X(W, 0, c) X(W, 1, c + W) X(W, 2, c + 2 * W) X(W, 3, c + 3 * W)

KERNEL(arg_columns, ARG_COLUMNS_ARGS) {
    UNPACK(ARG_COLUMNS_ARGS)
    __global const MEMORY(DT) *x = x_base;
    long x_at = x_offset;
    long strips = (inner + strip - 1) / strip, u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long row = u / strips, first = (u - row * strips) * strip, width = min(strip, inner - first), begin = 0;
        long p = row * n * inner + first;
        __global long *to = y_base + y_offset + row * inner + first;
#if STRIP
        /* A core's memory gives more where it is read in runs of four vectors. */
        for (long c = 0; c + 4 * W <= width; c += 4 * W) {
            begin = c + 4 * W;
            GO_DOWN_TOGETHER(BEGIN_PLACE)
            for (long i = 1; i < n; i++) {
                GO_DOWN_TOGETHER(LOOK)
            }
            GO_DOWN_TOGETHER(PUT_PLACE)
        }
#endif
        ALONG(c, begin, width, GO_DOWN)
    }
}
#endif
