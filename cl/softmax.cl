/* softmax.cl — softmax and log-softmax of x [outer, n, inner] over n, cross-entropy, and their gradients.

   rows: inner = 1, W lanes along n; a row comes from memory once, and is held by the members of a team (HELD, lanes.h) or read again from
   the cache.
   columns: a work-item goes down a block of them, eight lines at a time, with what it knows of each column in the first-level
   cache; then up again with the results, while the last of the lines are still in some cache.  Long ones go in three launches.
   Columns that a team shares: softmax_teams.cl.
   A unit of work is a row, or `block` columns; a work-item, or a team for rows (lanes.h), takes `per` units.
   Knobs: DT: f32 f16 bf16 f64.  AT: f32 or f64, in which DT is computed.  LOG: 1 for the logarithm.  TT: u8 i32 i64, of
   classes, for cross-entropy's kernels; without it those of softmax are compiled.
   STRIP: the widest block, or 0 where a block is a vector, whose numbers stay in registers.  PAST: long columns' results are whole
   vectors of what they are computed in, and more than any cache holds.  TEAM: lanes.h.
   Checked with: TT=i64; TT=u8 W=1 TEAM=64; TT=i32 W=1 TEAM=64 HELD=4; LOG=1; STRIP=0; PAST=1; LOG=1 STRIP=0 PAST=1; W=1 TEAM=64; LOG=1 W=1 TEAM=256 SUBGROUP=32;
   W=1 TEAM=64 HELD=4; LOG=1 W=1 TEAM=256 SUBGROUP=32 HELD=32. */
#ifndef DT
#define DT f32
#endif
#ifndef AT
#define AT CAT(WIDE_, DT)
#endif
#ifndef W
#define W CLEF_LANES
#endif
#ifndef STRIP
#define STRIP 2048
#endif
#ifndef PAST
#define PAST 0
#endif
#define CALLS_MATH
#include "common.h"
#define IN_PLACE
#include "args.h"
#include "softmax.args"

#define A COMPUTE(DT)
#define V VEC(A, W)
#include "lanes.h"

#include "softmax.h"

/* Does y hold what is computed in full, so that it can be kept there between two passes? */
#define EXACT_f32 1
#define EXACT_f16 0
#define EXACT_bf16 0
#define EXACT_f64 1
#define EXACT CAT(EXACT_, DT)

DEFINE_TEAM_FOLD(max, LARGER)
DEFINE_TEAM_FOLD(sum, PLUS)

/* ---- rows ---- */

#if HELD
/* Elements that are not there count as -inf. */
#define HOLD_X(k) A x##k = HAS(k) ? LOAD(DT, 1, x, PLACE(k)) : (A)(-INFINITY);
#define RAISE(k) top = LARGER(top, x##k);
#define ADD_EXPONENTIAL(k) sum += EXP(1, x##k - top);
#define KEEP_EXPONENTIAL(k)                                                                      \
    x##k = EXP(1, x##k - top);                                                                   \
    sum += x##k;
/* top: of the row, which stands in the variables then. */
#define HOLD_ROW                                                                                 \
    A top = (A)(-INFINITY), sum = 0;                                                             \
    EACH_HELD(HOLD_X)                                                                            \
    EACH_HELD(RAISE)                                                                             \
    top = OF_TEAM(max, top);
#if LOG
#define SUM_UP ADD_EXPONENTIAL
#define PUT_HELD(k) if (HAS(k)) STORE(DT, 1, y, PLACE(k), x##k - top - s);
#else
#define SUM_UP KEEP_EXPONENTIAL
#define PUT_HELD(k) if (HAS(k)) STORE(DT, 1, y, PLACE(k), x##k * s);
#endif
#else
DEFINE_FOLD(lanes_max, LARGER)
DEFINE_FOLD(lanes_sum, PLUS)

BY_ITSELF static A row_max(__global const MEMORY(DT) *x, long n) {
    V b0 = (V)((A)(-INFINITY)), b1 = b0, b2 = b0, b3 = b0;
    long i = MEMBER;
    for (; i + 3 * PACE + W <= n; i += 4 * PACE) {
        V v0 = LOAD(DT, W, x, i), v1 = LOAD(DT, W, x, i + PACE), v2 = LOAD(DT, W, x, i + 2 * PACE), v3 = LOAD(DT, W, x, i + 3 * PACE);
        b0 = LARGER(b0, v0);
        b1 = LARGER(b1, v1);
        b2 = LARGER(b2, v2);
        b3 = LARGER(b3, v3);
    }
    for (; i + W <= n; i += PACE) {
        V v = LOAD(DT, W, x, i);
        b0 = LARGER(b0, v);
    }
    b0 = LARGER(b0, b1);
    b2 = LARGER(b2, b3);
    b0 = LARGER(b0, b2);
    A top = lanes_max(b0);
    for (; i < n; i++) {
        A v = LOAD(DT, 1, x, i);
        top = LARGER(top, v);
    }
    return top;
}

/* Σ of `term` over a row. */
#define ROW_SUM(term)                                                                            \
    {                                                                                            \
        V sum = (V)((A)0);                                                                       \
        A rest = 0;                                                                              \
        long i = MEMBER;                                                                         \
        for (; i + W <= n; i += PACE) sum += term(W, V, i);                                      \
        for (; i < n; i++) rest += term(1, A, i);                                                \
        return lanes_sum(sum) + rest;                                                            \
    }
#define EXPONENTIAL(lanes, T, i) EXP(lanes, LOAD(DT, lanes, x, i) - (T)(top))
__attribute__((unused)) BY_ITSELF static A row_sum(__global const MEMORY(DT) *x, long n, A top) ROW_SUM(EXPONENTIAL)

/* The sum of exp(x - top), which y keeps where it holds enough; KEPT gives them back. */
#if EXACT
__attribute__((unused)) static A sum_exponentials(__global const MEMORY(DT) *x, __global MEMORY(DT) *y, long n, A top) {
    V sum = (V)((A)0);
    A rest = 0;
    long i = MEMBER;
    for (; i + W <= n; i += PACE) {
        V e = EXPONENTIAL(W, V, i);
        sum += e;
        STORE(DT, W, y, i, e);
    }
    for (; i < n; i++) {
        A e = EXPONENTIAL(1, A, i);
        rest += e;
        STORE(DT, 1, y, i, e);
    }
    return lanes_sum(sum) + rest;
}
#define KEPT(lanes, i) LOAD(DT, lanes, y, i)
#else
__attribute__((unused)) static A sum_exponentials(__global const MEMORY(DT) *x, __global MEMORY(DT) *y, long n, A top) {
    return row_sum(x, n, top);
}
#define KEPT(lanes, i) EXPONENTIAL(lanes, VEC(A, lanes), i)
#endif

#define ROW_RESULT(lanes, i)                                                                     \
    {                                                                                            \
        VEC(A, lanes) d = LOAD(DT, lanes, x, i) - (VEC(A, lanes))(top);                          \
        STORE(DT, lanes, y, i, d - (VEC(A, lanes))(s));                                          \
    }
#define ROW_SCALED(lanes, i) STORE(DT, lanes, y, i, KEPT(lanes, i) * (VEC(A, lanes))(s));
#endif

#ifndef TT
ROWS_KERNEL(softmax_rows, SOFTMAX_ROWS_ARGS) {
    UNPACK(SOFTMAX_ROWS_ARGS)
    TEAM_CELLS
    long u = FIRST_ROW, last = min(units, u + per);
    for (; u < last; u++) {
        __global const MEMORY(DT) *x = x_base + x_offset + u * n;
        __global MEMORY(DT) *y = y_base + y_offset + u * n;
#if HELD
        HOLD_ROW
        EACH_HELD(SUM_UP)
        A s = SCALE(OF_TEAM(sum, sum));
        EACH_HELD(PUT_HELD)
#else
        A top = OF_TEAM(max, row_max(x, n));
#if LOG
        A s = log(OF_TEAM(sum, row_sum(x, n, top)));
        ALONG(i, 0, n, ROW_RESULT)
#else
        A s = 1 / OF_TEAM(sum, sum_exponentials(x, y, n, top));
        ALONG(i, 0, n, ROW_SCALED)
#endif
#endif
    }
}

#if HELD
#define HOLD_PAIR(k)                                                                             \
    A y##k = HAS(k) ? LOAD(DT, 1, y, PLACE(k)) : (A)0, g##k = HAS(k) ? LOAD(DT, 1, g, PLACE(k)) : (A)0; \
    sum += PART(g##k, y##k);
#define PUT_HELD_SLOPE(k) if (HAS(k)) STORE(DT, 1, dx, PLACE(k), SLOPE(1, g##k, y##k, s));
#else
#define ROW_PART(lanes, T, i) PART(LOAD(DT, lanes, g, i), LOAD(DT, lanes, y, i))
static A row_parts(__global const MEMORY(DT) *y, __global const MEMORY(DT) *g, long n) ROW_SUM(ROW_PART)
#define ROW_SLOPE(lanes, i)                                                                      \
    STORE(DT, lanes, dx, i, SLOPE(lanes, LOAD(DT, lanes, g, i), LOAD(DT, lanes, y, i), (VEC(A, lanes))(s)));
#endif

ROWS_KERNEL(softmax_slope_rows, SOFTMAX_SLOPE_ROWS_ARGS) {
    UNPACK(SOFTMAX_SLOPE_ROWS_ARGS)
    TEAM_CELLS
    long u = FIRST_ROW, last = min(units, u + per);
    for (; u < last; u++) {
        __global const MEMORY(DT) *y = y_base + y_offset + u * n, *g = g_base + g_offset + u * n;
        __global MEMORY(DT) *dx = dx_base + dx_offset + u * n;
#if HELD
        A sum = 0;
        EACH_HELD(HOLD_PAIR)
        A s = OF_TEAM(sum, sum);
        EACH_HELD(PUT_HELD_SLOPE)
#else
        A s = OF_TEAM(sum, row_parts(y, g, n));
        ALONG(i, 0, n, ROW_SLOPE)
#endif
    }
}

/* ---- columns ---- */

/* What `count` elements, `stride` apart from x[at] on, add to the maximum and to the sum of exponentials about it.  A NaN need not
   win here, as it reaches the sum. */
#define JOIN_ELEMENTS(lanes, top, sum, at, stride, count)                                        \
    {                                                                                            \
        VEC(A, lanes) before = top, more = (VEC(A, lanes))((A)0);                                \
        for (int k = 0; k < count; k++) {                                                        \
            VEC(A, lanes) v = LOAD(DT, lanes, x, at + k * stride);                               \
            top = v > top ? v : top;                                                             \
        }                                                                                        \
        VEC(A, lanes) about = ABOUT(top);                                                        \
        for (int k = 0; k < count; k++) more += EXP(lanes, LOAD(DT, lanes, x, at + k * stride) - about); \
        sum = fma(sum, EXP(lanes, before - about), more);                                        \
    }
#define PUT_RESULT(lanes, at, top, scale)                                                        \
    {                                                                                            \
        VEC(A, lanes) d = LOAD(DT, lanes, x, at) - top;                                          \
        STORE(DT, lanes, y, at, RESULT(lanes, d, scale));                                        \
    }
#define ADD_ELEMENT(lanes, sum, at) sum += PART(LOAD(DT, lanes, g, at), LOAD(DT, lanes, y, at));
#define PUT_SLOPE(lanes, at, s)                                                                  \
    STORE(DT, lanes, dx, at, SLOPE(lanes, LOAD(DT, lanes, g, at), LOAD(DT, lanes, y, at), s));

#if STRIP == 0
#define STRETCH 8 /* elements, few enough that they are still at hand for the second look */
#define SOFTMAX_COLUMN(lanes, c)                                                                 \
    {                                                                                            \
        VEC(A, lanes) top = (VEC(A, lanes))((A)(-INFINITY)), sum = (VEC(A, lanes))((A)0);        \
        for (long i = 0; i < n; i += STRETCH) {                                                  \
            int count = (int)min((long)STRETCH, n - i);                                          \
            JOIN_ELEMENTS(lanes, top, sum, i * inner + c, inner, count)                          \
        }                                                                                        \
        top = ABOUT(top);                                                                        \
        sum = SCALE(sum);                                                                        \
        for (long i = n - 1; i >= 0; i--) PUT_RESULT(lanes, i * inner + c, top, sum)             \
    }
#define SLOPE_COLUMN(lanes, c)                                                                   \
    {                                                                                            \
        VEC(A, lanes) sum = (VEC(A, lanes))((A)0);                                               \
        for (long i = 0; i < n; i++) ADD_ELEMENT(lanes, sum, i * inner + c)                      \
        for (long i = n - 1; i >= 0; i--) PUT_SLOPE(lanes, i * inner + c, sum)                   \
    }
#else
#define OF(which, lanes, c) (*(VEC(A, lanes) *)((A *)which + (c)))
#define BEGIN_TOP(lanes, c) OF(tops, lanes, c) = (VEC(A, lanes))((A)(-INFINITY));
#define BEGIN_SUM(lanes, c) OF(sums, lanes, c) = (VEC(A, lanes))((A)0);
#define JOIN_LINES(lanes, c, at, stride, count)                                                  \
    {                                                                                            \
        VEC(A, lanes) top = OF(tops, lanes, c), sum = OF(sums, lanes, c);                        \
        JOIN_ELEMENTS(lanes, top, sum, at, stride, count)                                        \
        OF(tops, lanes, c) = top;                                                                \
        OF(sums, lanes, c) = sum;                                                                \
    }
#define JOIN_EIGHT(lanes, c) JOIN_LINES(lanes, c, i * inner + c, apart, 8)
#define JOIN_REST(lanes, c) JOIN_LINES(lanes, c, 8 * apart + c, inner, rest)
#define COLUMN_SCALE(lanes, c)                                                                   \
    {                                                                                            \
        OF(tops, lanes, c) = ABOUT(OF(tops, lanes, c));                                          \
        OF(sums, lanes, c) = SCALE(OF(sums, lanes, c));                                          \
    }
#define COLUMN_RESULT(lanes, c) PUT_RESULT(lanes, i * inner + c, OF(tops, lanes, c), OF(sums, lanes, c))
#define ADD_EIGHT(lanes, c)                                                                      \
    {                                                                                            \
        VEC(A, lanes) sum = (VEC(A, lanes))((A)0);                                               \
        for (int k = 0; k < 8; k++) ADD_ELEMENT(lanes, sum, i * inner + k * apart + c)           \
        OF(sums, lanes, c) += sum;                                                               \
    }
#define ADD_LINE(lanes, c) ADD_ELEMENT(lanes, OF(sums, lanes, c), i * inner + c)
#define COLUMN_SLOPE(lanes, c) PUT_SLOPE(lanes, i * inner + c, OF(sums, lanes, c))
#endif

KERNEL(softmax_columns, SOFTMAX_COLUMNS_ARGS) {
    UNPACK(SOFTMAX_COLUMNS_ARGS)
#if STRIP
    V tops[STRIP / W], sums[STRIP / W];
    const long step = n / 8, apart = step * inner;
    const int rest = (int)(n - 8 * step);
#endif
    long blocks = (inner + block - 1) / block, u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long row = u / blocks, first = (u - row * blocks) * block, width = min(block, inner - first), at = row * n * inner + first;
        __global const MEMORY(DT) *x = x_base + x_offset + at;
        __global MEMORY(DT) *y = y_base + y_offset + at;
#if STRIP
        ALONG(c, 0, width, BEGIN_TOP)
        ALONG(c, 0, width, BEGIN_SUM)
        for (long i = 0; i < step; i++) ALONG(c, 0, width, JOIN_EIGHT)
        ALONG(c, 0, width, JOIN_REST)
        ALONG(c, 0, width, COLUMN_SCALE)
        for (long i = n - 1; i >= 0; i--) ALONG(c, 0, width, COLUMN_RESULT)
#else
        ALONG(c, 0, width, SOFTMAX_COLUMN)
#endif
    }
}

#if STRIP
/* Long columns in three launches.  First the maximum of every split and its sum about that, each [outer, splits, inner]. */
#define PUT_PART(lanes, c)                                                                       \
    {                                                                                            \
        STORE(AT, lanes, top, c, OF(tops, lanes, c));                                            \
        STORE(AT, lanes, sum, c, OF(sums, lanes, c));                                            \
    }
KERNEL(softmax_parts, SOFTMAX_PARTS_ARGS) {
    UNPACK(SOFTMAX_PARTS_ARGS)
    V tops[STRIP / W], sums[STRIP / W];
    long strips = (inner + strip - 1) / strip, u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long part = u / strips, first = (u - part * strips) * strip, width = min(strip, inner - first);
        long row = part / splits, from = (part - row * splits) * chunk, count = min(chunk, n - from);
        __global const MEMORY(DT) *x = x_base + x_offset + (row * n + from) * inner + first;
        __global MEMORY(AT) *top = top_base + top_offset + part * inner + first,
                            *sum = sum_base + sum_offset + part * inner + first;
        const long step = count / 8, apart = step * inner;
        const int rest = (int)(count - 8 * step);
        ALONG(c, 0, width, BEGIN_TOP)
        ALONG(c, 0, width, BEGIN_SUM)
        for (long i = 0; i < step; i++) ALONG(c, 0, width, JOIN_EIGHT)
        ALONG(c, 0, width, JOIN_REST)
        ALONG(c, 0, width, PUT_PART)
    }
}

/* Then those of whole columns, each [outer, inner]; there are n splits.  In place of the sum: what scales the results. */
#define JOIN_PARTS(lanes, c)                                                                     \
    {                                                                                            \
        VEC(A, lanes) top = (VEC(A, lanes))((A)(-INFINITY)), sum = (VEC(A, lanes))((A)0);        \
        for (long i = c; i < n * inner; i += inner) {                                            \
            VEC(A, lanes) v = LOAD(AT, lanes, tops, i);                                          \
            top = LARGER(top, v);                                                                \
        }                                                                                        \
        top = ABOUT(top);                                                                        \
        for (long i = c; i < n * inner; i += inner)                                              \
            sum += LOAD(AT, lanes, sums, i) * EXP(lanes, LOAD(AT, lanes, tops, i) - top);        \
        STORE(AT, lanes, about, c, top);                                                         \
        STORE(AT, lanes, scale, c, SCALE(sum));                                                  \
    }
KERNEL(softmax_whole, SOFTMAX_WHOLE_ARGS) {
    UNPACK(SOFTMAX_WHOLE_ARGS)
    long blocks = (inner + block - 1) / block, u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long row = u / blocks, first = (u - row * blocks) * block, width = min(block, inner - first);
        __global const MEMORY(AT) *tops = top_base + top_offset + row * n * inner + first,
                                  *sums = sum_base + sum_offset + row * n * inner + first;
        __global MEMORY(AT) *about = about_base + about_offset + row * inner + first,
                            *scale = scale_base + scale_offset + row * inner + first;
        ALONG(c, 0, width, JOIN_PARTS)
    }
}

/* Then the results, those first that were read last: they may still be in some cache. */
#define PUT_ONE(lanes, c) PUT_RESULT(lanes, i * inner + c, LOAD(AT, lanes, about, c), LOAD(AT, lanes, scale, c))
#if PAST
#define PUT_LONG(lanes, at, top, scale)                                                          \
    STORE_PAST((__global VEC(A, lanes) *)(y + at), RESULT(lanes, LOAD(DT, lanes, x, at) - top, scale));
#else
#define PUT_LONG PUT_RESULT
#endif
#define PUT_TWO(lanes, c)                                                                        \
    {                                                                                            \
        VEC(A, lanes) top = LOAD(AT, lanes, about, c), by = LOAD(AT, lanes, scale, c);           \
        PUT_LONG(lanes, i * inner + c, top, by)                                                  \
        PUT_LONG(lanes, i * inner + apart + c, top, by)                                          \
    }
KERNEL(softmax_results, SOFTMAX_RESULTS_ARGS) {
    UNPACK(SOFTMAX_RESULTS_ARGS)
    long strips = (inner + strip - 1) / strip, end = units - (long)get_global_id(0) * per, u = end;
    while (--u >= max(0L, end - per)) {
        long part = u / strips, first = (u - part * strips) * strip, width = min(strip, inner - first);
        long row = part / splits, from = (part - row * splits) * chunk, count = min(chunk, n - from);
        long at = (row * n + from) * inner + first;
        __global const MEMORY(DT) *x = x_base + x_offset + at;
        __global const MEMORY(AT) *about = about_base + about_offset + row * inner + first,
                                  *scale = scale_base + scale_offset + row * inner + first;
        __global MEMORY(DT) *y = y_base + y_offset + at;
        const long step = count / 2, apart = step * inner;
        for (long i = 0; i < step; i++) ALONG(c, 0, width, PUT_TWO)
        for (long i = 2 * step; i < count; i++) ALONG(c, 0, width, PUT_ONE)
    }
}
#endif

KERNEL(softmax_slope_columns, SOFTMAX_SLOPE_COLUMNS_ARGS) {
    UNPACK(SOFTMAX_SLOPE_COLUMNS_ARGS)
#if STRIP
    V sums[STRIP / W];
    const long step = n / 8, apart = step * inner;
#endif
    long blocks = (inner + block - 1) / block, u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long row = u / blocks, first = (u - row * blocks) * block, width = min(block, inner - first), at = row * n * inner + first;
        __global const MEMORY(DT) *y = y_base + y_offset + at, *g = g_base + g_offset + at;
        __global MEMORY(DT) *dx = dx_base + dx_offset + at;
#if STRIP
        ALONG(c, 0, width, BEGIN_SUM)
        for (long i = 0; i < step; i++) ALONG(c, 0, width, ADD_EIGHT)
        for (long i = 8 * step; i < n; i++) ALONG(c, 0, width, ADD_LINE)
        for (long i = n - 1; i >= 0; i--) ALONG(c, 0, width, COLUMN_SLOPE)
#else
        ALONG(c, 0, width, SLOPE_COLUMN)
#endif
    }
}

#else
/* ---- cross-entropy of rows with one class each ----
   log Σ exp(x) - (1 - e) x[t] - e mean x, with smoothing e: NaN where t is no class, 0 where it is to be ignored.  Its slope is
   softmax(x) - (1 - e)[c = t] - e/n, and 0 in both of these cases. */

#define IS_CLASS(t) ((t) >= 0 && (t) < n)
#define IS_IGNORED(t) (ignores && (t) == ignored)
#if HELD
#define ADD_DISTANCE(k) far += HAS(k) ? x##k - top : (A)0;
#else
#define DISTANCE(lanes, T, i) (LOAD(DT, lanes, x, i) - (T)(top))
BY_ITSELF static A row_distances(__global const MEMORY(DT) *x, long n, A top) ROW_SUM(DISTANCE)
#endif

static A row_loss(__global const MEMORY(DT) *x, long n, long t, A smoothing TEAM_PARAMETER) {
#if HELD
    HOLD_ROW
    A far = 0;
    if (smoothing > 0) { EACH_HELD(ADD_DISTANCE) }
    EACH_HELD(ADD_EXPONENTIAL)
#else
    A top = OF_TEAM(max, row_max(x, n)), far = smoothing > 0 ? row_distances(x, n, top) : (A)0, sum = row_sum(x, n, top);
#endif
    A loss = log(OF_TEAM(sum, sum)) - (1 - smoothing) * (LOAD(DT, 1, x, t) - top);
    return smoothing > 0 ? loss - smoothing * (OF_TEAM(sum, far) / (A)n) : loss;
}

ROWS_KERNEL(cross_entropy_rows, CROSS_ENTROPY_ROWS_ARGS) {
    UNPACK(CROSS_ENTROPY_ROWS_ARGS)
    TEAM_CELLS
    long u = FIRST_ROW, last = min(units, u + per);
    for (; u < last; u++) {
        long t = LOAD(TT, 1, t_base, t_offset + u);
        A loss = NAN;
        if (IS_CLASS(t)) loss = row_loss(x_base + x_offset + u * n, n, t, REAL(smoothing) TEAM_ARGUMENT);
        if (LEADS) STORE(AT, 1, y_base, y_offset + u, IS_IGNORED(t) ? (A)0 : loss);
    }
}

#define CLASS_SLOPE(lanes, i)                                                                    \
    STORE(DT, lanes, y, i, fma(KEPT(lanes, i), (VEC(A, lanes))(scale), (VEC(A, lanes))(-spread)));
/* Where a team shares a row, each element is stored once: a second store to the class's own was lost on pocl. */
#define CLASS_OR_OWN_SLOPE(lanes, i)                                                             \
    {                                                                                            \
        A e = KEPT(1, i);                                                                        \
        STORE(DT, 1, y, i, i == t ? e * scale - hit - spread : fma(e, scale, -spread));          \
    }
#if HELD
#define PUT_CLASS_SLOPE(k) if (HAS(k)) STORE(DT, 1, y, PLACE(k), PLACE(k) == t ? x##k * scale - hit - spread : fma(x##k, scale, -spread));
#endif
#define NO_SLOPE(lanes, i) STORE(DT, lanes, y, i, (VEC(A, lanes))((A)0));

ROWS_KERNEL(cross_entropy_slope_rows, CROSS_ENTROPY_SLOPE_ROWS_ARGS) {
    UNPACK(CROSS_ENTROPY_SLOPE_ROWS_ARGS)
    TEAM_CELLS
    long u = FIRST_ROW, last = min(units, u + per);
    for (; u < last; u++) {
        __global const MEMORY(DT) *x = x_base + x_offset + u * n;
        __global MEMORY(DT) *y = dx_base + dx_offset + u * n;
        long t = LOAD(TT, 1, t_base, t_offset + u);
        if (!IS_CLASS(t) || IS_IGNORED(t)) {
            ALONG(i, 0, n, NO_SLOPE)
            continue;
        }
        A g = g_stride < 0 ? g_number : LOAD(AT, 1, g_base, g_offset + u * g_stride);
        A spread = g * REAL(smoothing) / (A)n;
#if HELD
        HOLD_ROW
        EACH_HELD(KEEP_EXPONENTIAL)
        A scale = g / OF_TEAM(sum, sum), hit = (1 - REAL(smoothing)) * g;
        EACH_HELD(PUT_CLASS_SLOPE)
#else
        A top = OF_TEAM(max, row_max(x, n)), scale = g / OF_TEAM(sum, sum_exponentials(x, y, n, top));
#if TEAM > 1
        A hit = (1 - REAL(smoothing)) * g;
        ALONG(i, 0, n, CLASS_OR_OWN_SLOPE)
#else
        ALONG(i, 0, n, CLASS_SLOPE)
        A own = EXP(1, LOAD(DT, 1, x, t) - top) * scale;
        STORE(DT, 1, y, t, own - (1 - REAL(smoothing)) * g - spread);
#endif
#endif
    }
}
#endif
