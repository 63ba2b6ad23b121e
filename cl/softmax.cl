/* softmax.cl — softmax and log-softmax of x [outer, n, inner] over n, cross-entropy, and their gradients.

   rows: inner = 1, W lanes along n; a row comes from memory once and is read again from the cache.
   columns: lines lie beside each other; a work-item goes down a block of them, a stretch at a time, with what it knows of each
   line in `state` ([2, outer, inner], for slopes [outer, inner]); then up again, while the last of them are still in some cache, with the results.
   A unit of work is a row, or `block` columns; a work-item takes `per` units.
   Knobs: DT: f32 f16 bf16 f64.  AT: f32 or f64, in which DT is computed.  LOG: 1 for the logarithm.  TT: u8 i32 i64, of classes. */
#ifndef DT
#define DT f32
#endif
#ifndef AT
#define AT CAT(WIDE_, DT)
#endif
#ifndef TT
#define TT i64
#endif
#ifndef LOG
#define LOG 0
#endif
#ifndef W
#define W 16
#endif
#include "common.h"

#define A COMPUTE(DT)
#define V VEC(A, W)
#include "lanes.h"

/* Does y hold what is computed in full, so that it can be kept there between two passes? */
#define EXACT_f32 1
#define EXACT_f16 0
#define EXACT_bf16 0
#define EXACT_f64 1
#define EXACT CAT(EXACT_, DT)

/* From x - maximum and what `SCALE` gave. */
#if LOG
#define RESULT(d, s) ((d) - (s))
#define SCALE(sum) log(sum)
#else
#define RESULT(d, s) (exp(d) * (s))
#define SCALE(sum) (1 / (sum))
#endif

DEFINE_FOLD(lanes_max, LARGER)
DEFINE_FOLD(lanes_sum, PLUS)

/* ---- rows ---- */

static A row_max(__global const MEMORY(DT) *x, long n) {
    V b0 = (V)((A)(-INFINITY)), b1 = b0, b2 = b0, b3 = b0;
    long i = 0;
    for (; i + 4 * W <= n; i += 4 * W) {
        V v0 = LOAD(DT, W, x, i), v1 = LOAD(DT, W, x, i + W), v2 = LOAD(DT, W, x, i + 2 * W), v3 = LOAD(DT, W, x, i + 3 * W);
        b0 = LARGER(b0, v0);
        b1 = LARGER(b1, v1);
        b2 = LARGER(b2, v2);
        b3 = LARGER(b3, v3);
    }
    for (; i + W <= n; i += W) {
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
        long i = 0;                                                                              \
        for (; i + W <= n; i += W) sum += term(W, V, i);                                         \
        for (; i < n; i++) rest += term(1, A, i);                                                \
        return lanes_sum(sum) + rest;                                                            \
    }
#define EXPONENTIAL(lanes, T, i) exp(LOAD(DT, lanes, x, i) - (T)(top))
static A row_sum(__global const MEMORY(DT) *x, long n, A top) ROW_SUM(EXPONENTIAL)

/* The sum of exp(x - top), which y keeps where it holds enough; KEPT gives them back. */
#if EXACT
static A sum_exponentials(__global const MEMORY(DT) *x, __global MEMORY(DT) *y, long n, A top) {
    V sum = (V)((A)0);
    A rest = 0;
    long i = 0;
    for (; i + W <= n; i += W) {
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
#define sum_exponentials(x, y, n, top) row_sum(x, n, top)
#define KEPT(lanes, i) EXPONENTIAL(lanes, VEC(A, lanes), i)
#endif

#define ROW_RESULT(lanes, i)                                                                     \
    {                                                                                            \
        VEC(A, lanes) d = LOAD(DT, lanes, x, i) - (VEC(A, lanes))(top);                          \
        STORE(DT, lanes, y, i, d - (VEC(A, lanes))(s));                                          \
    }
#define ROW_SCALED(lanes, i) STORE(DT, lanes, y, i, KEPT(lanes, i) * (VEC(A, lanes))(s));

__kernel void softmax_rows(__global const MEMORY(DT) *x_, long x_at, __global MEMORY(DT) *y_, long y_at, long n, long units,
                           long per) {
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        __global const MEMORY(DT) *x = x_ + x_at + u * n;
        __global MEMORY(DT) *y = y_ + y_at + u * n;
        A top = row_max(x, n);
#if LOG
        A s = log(row_sum(x, n, top));
        ALONG(i, 0, n, ROW_RESULT)
#else
        A s = 1 / sum_exponentials(x, y, n, top);
        ALONG(i, 0, n, ROW_SCALED)
#endif
    }
}

/* dx = y (g - Σ g y), or for the logarithm g - exp(y) Σ g. */
#if LOG
#define PART(g, y) (g)
#define SLOPE(g, y, s) ((g) - exp(y) * (s))
#else
#define PART(g, y) ((g) * (y))
#define SLOPE(g, y, s) ((y) * ((g) - (s)))
#endif
#define ROW_PART(lanes, T, i) PART(LOAD(DT, lanes, g, i), LOAD(DT, lanes, y, i))
static A row_parts(__global const MEMORY(DT) *y, __global const MEMORY(DT) *g, long n) ROW_SUM(ROW_PART)
#define ROW_SLOPE(lanes, i)                                                                      \
    STORE(DT, lanes, dx, i, SLOPE(LOAD(DT, lanes, g, i), LOAD(DT, lanes, y, i), (VEC(A, lanes))(s)));

__kernel void softmax_slope_rows(__global const MEMORY(DT) *y_, long y_at, __global const MEMORY(DT) *g_, long g_at,
                                 __global MEMORY(DT) *dx_, long dx_at, long n, long units, long per) {
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        __global const MEMORY(DT) *y = y_ + y_at + u * n, *g = g_ + g_at + u * n;
        __global MEMORY(DT) *dx = dx_ + dx_at + u * n;
        A s = row_parts(y, g, n);
        ALONG(i, 0, n, ROW_SLOPE)
    }
}

/* ---- columns ---- */

#define STRETCH 16 /* elements of a line: few enough that their pages stay at hand, and they in the cache */
/* What a stretch adds to the maximum and to the sum of exponentials about it; about 0 while there was nothing but -inf. */
#define ABOUT(top) ((top) == (A)(-INFINITY) ? (A)0 : (top))
#define JOIN_STRETCH(lanes, c)                                                                   \
    {                                                                                            \
        VEC(A, lanes) top = (VEC(A, lanes))((A)(-INFINITY)), sum = (VEC(A, lanes))((A)0);        \
        if (begin > 0) {                                                                         \
            top = LOAD(AT, lanes, tops, c);                                                      \
            sum = LOAD(AT, lanes, sums, c);                                                      \
        }                                                                                        \
        VEC(A, lanes) before = top;                                                              \
        for (long i = begin; i < stop; i++) {                                                    \
            VEC(A, lanes) v = LOAD(DT, lanes, x, i * inner + c);                                 \
            top = LARGER(top, v);                                                                \
        }                                                                                        \
        VEC(A, lanes) about = ABOUT(top);                                                        \
        sum *= exp(before - about);                                                              \
        for (long i = begin; i < stop; i++) sum += exp(LOAD(DT, lanes, x, i * inner + c) - about); \
        STORE(AT, lanes, tops, c, top);                                                          \
        STORE(AT, lanes, sums, c, sum);                                                          \
    }
#define COLUMN_SCALE(lanes, c)                                                                   \
    {                                                                                            \
        VEC(A, lanes) top = LOAD(AT, lanes, tops, c), sum = LOAD(AT, lanes, sums, c);            \
        STORE(AT, lanes, tops, c, ABOUT(top));                                                   \
        STORE(AT, lanes, sums, c, SCALE(sum));                                                   \
    }
#define COLUMN_RESULT(lanes, c)                                                                  \
    {                                                                                            \
        VEC(A, lanes) d = LOAD(DT, lanes, x, i * inner + c) - LOAD(AT, lanes, tops, c);          \
        STORE(DT, lanes, y, i * inner + c, RESULT(d, LOAD(AT, lanes, sums, c)));                 \
    }

__kernel void softmax_columns(__global const MEMORY(DT) *x_, long x_at, __global MEMORY(DT) *y_, long y_at,
                              __global MEMORY(AT) *state, long state_at, long outer, long n, long inner, long block, long units,
                              long per) {
    long blocks = (inner + block - 1) / block, u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long row = u / blocks, first = (u - row * blocks) * block, end = min(inner, first + block);
        __global const MEMORY(DT) *x = x_ + x_at + row * n * inner;
        __global MEMORY(DT) *y = y_ + y_at + row * n * inner;
        __global MEMORY(AT) *tops = state + state_at + row * inner, *sums = tops + outer * inner;
        for (long begin = 0; begin < n; begin += STRETCH) {
            long stop = min(n, begin + STRETCH);
            ALONG(c, first, end, JOIN_STRETCH)
        }
        ALONG(c, first, end, COLUMN_SCALE)
        for (long i = n - 1; i >= 0; i--) ALONG(c, first, end, COLUMN_RESULT)
    }
}

#define ADD_STRETCH(lanes, c)                                                                    \
    {                                                                                            \
        VEC(A, lanes) sum = (VEC(A, lanes))((A)0);                                               \
        for (long i = begin * inner + c; i < stop * inner; i += inner)                           \
            sum += PART(LOAD(DT, lanes, g, i), LOAD(DT, lanes, y, i));                           \
        if (begin > 0) sum += LOAD(AT, lanes, sums, c);                                          \
        STORE(AT, lanes, sums, c, sum);                                                          \
    }
#define COLUMN_SLOPE(lanes, c)                                                                   \
    {                                                                                            \
        long at = i * inner + c;                                                                 \
        STORE(DT, lanes, dx, at, SLOPE(LOAD(DT, lanes, g, at), LOAD(DT, lanes, y, at), LOAD(AT, lanes, sums, c))); \
    }

__kernel void softmax_slope_columns(__global const MEMORY(DT) *y_, long y_at, __global const MEMORY(DT) *g_, long g_at,
                                    __global MEMORY(DT) *dx_, long dx_at, __global MEMORY(AT) *state, long state_at, long n,
                                    long inner, long block, long units, long per) {
    long blocks = (inner + block - 1) / block, u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long row = u / blocks, first = (u - row * blocks) * block, end = min(inner, first + block);
        __global const MEMORY(DT) *y = y_ + y_at + row * n * inner, *g = g_ + g_at + row * n * inner;
        __global MEMORY(DT) *dx = dx_ + dx_at + row * n * inner;
        __global MEMORY(AT) *sums = state + state_at + row * inner;
        for (long begin = 0; begin < n; begin += STRETCH) {
            long stop = min(n, begin + STRETCH);
            ALONG(c, first, end, ADD_STRETCH)
        }
        for (long i = n - 1; i >= 0; i--) ALONG(c, first, end, COLUMN_SLOPE)
    }
}

/* ---- cross-entropy of rows with one class each ----
   log Σ exp(x) - (1 - e) x[t] - e mean x, with smoothing e: NaN where t is no class, 0 where it is to be ignored.  Its slope is
   softmax(x) - (1 - e)[c = t] - e/n, and 0 in both of these cases. */

#define IS_CLASS(t) ((t) >= 0 && (t) < n)
#define IS_IGNORED(t) (ignores && (t) == ignored)
#define DISTANCE(lanes, T, i) (LOAD(DT, lanes, x, i) - (T)(top))
static A row_distances(__global const MEMORY(DT) *x, long n, A top) ROW_SUM(DISTANCE)

static A row_loss(__global const MEMORY(DT) *x, long n, long t, A smoothing) {
    A top = row_max(x, n), loss = log(row_sum(x, n, top)) - (1 - smoothing) * (LOAD(DT, 1, x, t) - top);
    return smoothing > 0 ? loss - smoothing * (row_distances(x, n, top) / (A)n) : loss;
}

__kernel void cross_entropy_rows(__global const MEMORY(DT) *x, long x_at, __global const MEMORY(TT) *t_, long t_at,
                                 __global MEMORY(AT) *y, long y_at, long n, float smoothing, float smoothing_rest, int ignores,
                                 long ignored, long units, long per) {
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long t = LOAD(TT, 1, t_, t_at + u);
        A loss = NAN;
        if (IS_CLASS(t)) loss = row_loss(x + x_at + u * n, n, t, REAL(smoothing));
        STORE(AT, 1, y, y_at + u, IS_IGNORED(t) ? (A)0 : loss);
    }
}

#define CLASS_SLOPE(lanes, i)                                                                    \
    STORE(DT, lanes, y, i, fma(KEPT(lanes, i), (VEC(A, lanes))(scale), (VEC(A, lanes))(-spread)));
#define NO_SLOPE(lanes, i) STORE(DT, lanes, y, i, (VEC(A, lanes))((A)0));

/* g: of each row, `g_stride` elements apart. */
__kernel void cross_entropy_slope_rows(__global const MEMORY(DT) *x_, long x_at, __global const MEMORY(TT) *t_, long t_at,
                                       __global const MEMORY(AT) *g_, long g_at, __global MEMORY(DT) *dx, long dx_at, long n,
                                       float smoothing, float smoothing_rest, int ignores, long ignored, long g_stride, long units,
                                       long per) {
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        __global const MEMORY(DT) *x = x_ + x_at + u * n;
        __global MEMORY(DT) *y = dx + dx_at + u * n;
        long t = LOAD(TT, 1, t_, t_at + u);
        if (!IS_CLASS(t) || IS_IGNORED(t)) {
            ALONG(i, 0, n, NO_SLOPE)
            continue;
        }
        A g = LOAD(AT, 1, g_, g_at + u * g_stride), spread = g * REAL(smoothing) / (A)n, top = row_max(x, n);
        A scale = g / sum_exponentials(x, y, n, top);
        ALONG(i, 0, n, CLASS_SLOPE)
        A own = exp(LOAD(DT, 1, x, t) - top) * scale;
        STORE(DT, 1, y, t, own - (1 - REAL(smoothing)) * g - spread);
    }
}
