/* reduce.cl — x [outer, n, inner] → y [outer, splits, inner]: every split joins its `chunk` of the n in a fixed order.

   A unit of work is one (outer, split) for rows (inner = 1), one (outer, split, MANY vectors of columns) for columns; a work-item
   takes `per` units.  Sums go through blocks of partial sums, so the error grows with far less than n.
   DT: what lies in x.  AT: f32 f64 i32 i64 (what is joined).  OT: what lies in y, computed in AT.
   OP: SUM, PRODUCT, LARGEST, SMALLEST; the last two for arg_columns too.  MANY: FOUR, or ONE where a vector is all an item takes. */
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
#define W 16
#endif
#ifndef MANY
#define MANY FOUR
#endif
#include "common.h"
#define WIDE_f32 f32
#define WIDE_f16 f32
#define WIDE_bf16 f32
#define WIDE_f64 f64
#define WIDE_i32 i64
#define WIDE_i64 i64
#define WIDE_u8 i64
#define WIDE_bool i64

#define A COMPUTE(AT)
#define V VEC(A, W)
#include "lanes.h"
#define READ(n, p, i) CONVERT(A, n)(LOAD(DT, n, p, i))

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

static A join_row(__global const MEMORY(DT) *p, long n) {
    V total = (V)(START);
    long i = 0;
    while (i + 4 * W <= n) {
        V s0 = (V)(START), s1 = s0, s2 = s0, s3 = s0;
        long stop = min(n, i + BLOCK * 4 * W);
        for (; i + 4 * W <= stop; i += 4 * W) {
            V v0 = READ(W, p, i), v1 = READ(W, p, i + W), v2 = READ(W, p, i + 2 * W), v3 = READ(W, p, i + 3 * W);
            s0 = JOIN(s0, v0);
            s1 = JOIN(s1, v1);
            s2 = JOIN(s2, v2);
            s3 = JOIN(s3, v3);
        }
        V s01 = JOIN(s0, s1), s23 = JOIN(s2, s3), s = JOIN(s01, s23);
        total = JOIN(total, s);
    }
    for (; i + W <= n; i += W) {
        V v = READ(W, p, i);
        total = JOIN(total, v);
    }
    A r = join_lanes(total);
    for (; i < n; i++) {
        A v = READ(1, p, i);
        r = JOIN(r, v);
    }
    return r;
}

__kernel void reduce_rows(__global const MEMORY(DT) *x, long x_at, __global MEMORY(OT) *y, long y_at, long n, long chunk,
                          long splits, long divide, long units, long per) {
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long row = u / splits, from = (u - row * splits) * chunk;
        A r = join_row(x + x_at + row * n + from, min(chunk, n - from));
        STORE(OT, 1, y, y_at + u, r / (A)divide);
    }
}

/* Goes down `count` lines, taking one vector of each or MANY. */
#define BEGIN_TOTAL(lanes, j) VEC(A, lanes) total##j = (VEC(A, lanes))(START);
#define BEGIN_BLOCK(lanes, j) VEC(A, lanes) s##j = (VEC(A, lanes))(START);
#define TAKE(lanes, j)                                                                           \
    {                                                                                            \
        VEC(A, lanes) v = READ(lanes, p, i * inner + c + j * lanes);                             \
        s##j = JOIN(s##j, v);                                                                    \
    }
#define END_BLOCK(lanes, j) total##j = JOIN(total##j, s##j);
#define PUT(lanes, j) STORE(OT, lanes, to, c + j * lanes, total##j / (VEC(A, lanes))((A)divide));
#define JOIN_COLUMNS(lanes, EACH)                                                                \
    {                                                                                            \
        EACH(BEGIN_TOTAL, lanes)                                                                 \
        for (long i = 0; i < count;) {                                                           \
            EACH(BEGIN_BLOCK, lanes)                                                             \
            for (long stop = min(count, i + BLOCK); i < stop; i++) { EACH(TAKE, lanes) }         \
            EACH(END_BLOCK, lanes)                                                               \
        }                                                                                        \
        EACH(PUT, lanes)                                                                         \
    }
#define JOIN_COLUMN(lanes, at)                                                                   \
    {                                                                                            \
        long c = at;                                                                             \
        JOIN_COLUMNS(lanes, ONE)                                                                 \
    }

__kernel void reduce_columns(__global const MEMORY(DT) *x, long x_at, __global MEMORY(OT) *y, long y_at, long n, long chunk,
                             long splits, long divide, long inner, long units, long per) {
    long width = MANY(COUNT, W) 0, blocks = (inner + width - 1) / width;
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long piece = u / blocks, c = (u - piece * blocks) * width, end = min(inner, c + width);
        long row = piece / splits, from = (piece - row * splits) * chunk, count = min(chunk, n - from);
        __global const MEMORY(DT) *p = x + x_at + (row * n + from) * inner;
        __global MEMORY(OT) *to = y + y_at + piece * inner;
        if (c + width <= inner) JOIN_COLUMNS(W, MANY)
        else ALONG(at, c, end, JOIN_COLUMN)
    }
}

/* Index of the first best of n; the first NaN counts as best. */
#define BETTER_LARGEST(x, best) ((x) > (best))
#define BETTER_SMALLEST(x, best) ((x) < (best))
#define BETTER_SUM BETTER_LARGEST
#define BETTER_PRODUCT BETTER_LARGEST
#define NOT_A_NUMBER(x) LIMIT(NAN_, COMPUTE(DT))(x)
__kernel void arg_columns(__global const MEMORY(DT) *x, long x_at, __global long *y, long y_at, long n, long inner, long units,
                          long per) {
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long row = u / inner;
        __global const MEMORY(DT) *p = x + x_at + row * n * inner + (u - row * inner);
        COMPUTE(DT) best = LOAD(DT, 1, p, 0);
        long at = 0;
        for (long i = 1; i < n; i++) {
            COMPUTE(DT) v = LOAD(DT, 1, p, i * inner);
            if (CAT(BETTER_, OP)(v, best) | (NOT_A_NUMBER(v) & !NOT_A_NUMBER(best))) best = v, at = i;
        }
        y[y_at + u] = at;
    }
}
