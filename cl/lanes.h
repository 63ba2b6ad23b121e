/* lanes.h — what kernels that work along rows share: vectors V of W lanes of the computing type A (both theirs), joined to one
   number; loops of vectors and of what is left behind them. */

/* The dtype in which many elements of another are joined. */
#define WIDE_f32 f32
#define WIDE_f16 f32
#define WIDE_bf16 f32
#define WIDE_f64 f64
#define WIDE_i32 i64
#define WIDE_i64 i64
#define WIDE_u8 i64
#define WIDE_bool i64

/* DEFINE_FOLD(name, JOIN): A name(V v) joins halves with halves, in a fixed order. */
#define FOLD_1(JOIN, v) return v;
#define FOLD_2(JOIN, v) return JOIN(v.x, v.y);
#define FOLD_4(JOIN, v) VEC(A, 2) v2 = JOIN(v.lo, v.hi); FOLD_2(JOIN, v2)
#define FOLD_8(JOIN, v) VEC(A, 4) v4 = JOIN(v.lo, v.hi); FOLD_4(JOIN, v4)
#define FOLD_16(JOIN, v) VEC(A, 8) v8 = JOIN(v.lo, v.hi); FOLD_8(JOIN, v8)
#define DEFINE_FOLD(name, JOIN) static A name(V v) { CAT(FOLD_, W)(JOIN, v) }
#define PLUS(a, b) ((a) + (b))
/* NaN wins over every number. */
#define LARGER(a, x) ((((x) > (a)) | ((x) != (x))) ? (x) : (a))

/* body(lanes, i) for begin ≤ i < end: W elements at a time, then one. */
#define ALONG(i, begin, end, body)                                                               \
    {                                                                                            \
        long i = begin;                                                                          \
        for (; i + W <= end; i += W) body(W, i)                                                  \
        for (; i < end; i++) body(1, i)                                                          \
    }

/* A number that the host handed over as two floats, as one is too coarse for f64. */
#define REAL(v) ((A)v + (A)v##_rest)
