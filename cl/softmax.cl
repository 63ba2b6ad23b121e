/* softmax.cl — softmax and log-softmax of x [outer, n, inner] over n, each line in one work-item: the maximum, then the sum
   of exp(x - maximum), then the results; x is read three times and stays in cache.

   rows: inner = 1, W lanes along n.  columns: W lines beside each other.
   DT: f32 f16 bf16 f64.  LOG: 1 for the logarithm. */
#ifndef DT
#define DT f32
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
#define LARGER(a, x) ((((x) > (a)) | ((x) != (x))) ? (x) : (a))
/* From x - maximum and what `scale` returned. */
#if LOG
#define RESULT(d, s) ((d) - (s))
#define SCALE(sum) log(sum)
#else
#define RESULT(d, s) (exp(d) * (s))
#define SCALE(sum) (1 / (sum))
#endif

static A lanes_max(V v) {
    A lane[W], r;
    CAT(VSTORE_, W)(v, lane);
    r = lane[0];
    for (int k = 1; k < W; k++) r = LARGER(r, lane[k]);
    return r;
}

static A lanes_sum(V v) {
    A lane[W];
    CAT(VSTORE_, W)(v, lane);
    for (int step = W / 2; step > 0; step /= 2)
        for (int k = 0; k < step; k++) lane[k] += lane[k + step];
    return lane[0];
}

static A row_max(__global const MEMORY(DT) *x, long n) {
    V best = (V)((A)(-INFINITY));
    long i = 0;
    for (; i + W <= n; i += W) {
        V v = LOAD(DT, W, x, i);
        best = LARGER(best, v);
    }
    A top = lanes_max(best);
    for (; i < n; i++) {
        A v = LOAD(DT, 1, x, i);
        top = LARGER(top, v);
    }
    return top;
}

static A row_sum(__global const MEMORY(DT) *x, long n, A top) {
    V sum = (V)((A)0);
    long i = 0;
    for (; i + W <= n; i += W) sum += exp(LOAD(DT, W, x, i) - (V)(top));
    A total = lanes_sum(sum);
    for (; i < n; i++) total += exp(LOAD(DT, 1, x, i) - top);
    return total;
}

__kernel void softmax_rows(__global const MEMORY(DT) *x_, long x_at, __global MEMORY(DT) *y_, long y_at, long n, long units,
                           long per) {
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        __global const MEMORY(DT) *x = x_ + x_at + u * n;
        __global MEMORY(DT) *y = y_ + y_at + u * n;
        A top = row_max(x, n), s = SCALE(row_sum(x, n, top));
        long i = 0;
        for (; i + W <= n; i += W) {
            V d = LOAD(DT, W, x, i) - (V)(top);
            STORE(DT, W, y, i, RESULT(d, (V)(s)));
        }
        for (; i < n; i++) {
            A d = LOAD(DT, 1, x, i) - top;
            STORE(DT, 1, y, i, RESULT(d, s));
        }
    }
}

#define SOFTMAX_COLUMNS(name, lanes)                                                             \
    static void name(__global const MEMORY(DT) *x, __global MEMORY(DT) *y, long n, long inner) { \
        VEC(A, lanes) top = LOAD(DT, lanes, x, 0), sum = (VEC(A, lanes))((A)0);                  \
        for (long i = 1; i < n; i++) {                                                           \
            VEC(A, lanes) v = LOAD(DT, lanes, x, i * inner);                                     \
            top = LARGER(top, v);                                                                \
        }                                                                                        \
        for (long i = 0; i < n; i++) sum += exp(LOAD(DT, lanes, x, i * inner) - top);            \
        VEC(A, lanes) s = SCALE(sum);                                                            \
        for (long i = 0; i < n; i++) {                                                           \
            VEC(A, lanes) d = LOAD(DT, lanes, x, i * inner) - top;                               \
            STORE(DT, lanes, y, i * inner, RESULT(d, s));                                        \
        }                                                                                        \
    }
SOFTMAX_COLUMNS(columns, W)
#if W > 1
SOFTMAX_COLUMNS(column, 1)
#else
#define column columns
#endif

__kernel void softmax_columns(__global const MEMORY(DT) *x, long x_at, __global MEMORY(DT) *y, long y_at, long n, long inner,
                              long units, long per) {
    long blocks = (inner + W - 1) / W, u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long row = u / blocks, c = (u - row * blocks) * W, at = row * n * inner + c;
        if (c + W <= inner) {
            columns(x + x_at + at, y + y_at + at, n, inner);
        } else {
            for (; c < inner; c++, at++) column(x + x_at + at, y + y_at + at, n, inner);
        }
    }
}
