/* philox.h — random numbers that are the same bits on every device and on the host (src/ops/philox.h includes this too).

   Philox 4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
   The normal distribution comes from Box and Muller's formula (1958) in exactly rounded operations only: integers, single
   products, and fma; no library function that may differ between devices. */
#ifndef CLEF_PHILOX_HOST
/* W_PHILOX: so many numbers side by side, one in each lane of vectors; or 1. */
#ifndef W_PHILOX
#define W_PHILOX 1
#endif
#define PHILOX_FN static inline
#define PHILOX_FMA(x, y, z) fma(x, y, (philox_f32)(z))
#define PHILOX_FLOAT(bits) AS_(float, W_PHILOX)((philox_u32)(bits))
#define PHILOX_BITS(f) AS_(uint, W_PHILOX)(f)
#define PHILOX_OF_WHOLE(i) CONVERT(float, W_PHILOX)(AS_(int, W_PHILOX)(i))
#define PHILOX_LANE CAT(PHILOX_LANE_, W_PHILOX)
#define PHILOX_LANE_1 0
#define PHILOX_LANE_4 (uint4)(0, 1, 2, 3)
#define PHILOX_LANE_8 (uint8)(0, 1, 2, 3, 4, 5, 6, 7)
#define PHILOX_LANE_16 (uint16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
typedef VEC(uint, W_PHILOX) philox_u32;
typedef VEC(int, W_PHILOX) philox_i32;
typedef VEC(float, W_PHILOX) philox_f32;
typedef uint philox_key;
typedef ulong philox_u64;
#endif

typedef struct philox_block { philox_u32 v[4]; } philox_block;
typedef struct philox_normals { philox_f32 v[4]; } philox_normals;

/* The product of 64 bits of x and m: its upper half, and *low. */
#if defined(CLEF_PHILOX_HOST) || W_PHILOX == 1
PHILOX_FN philox_u32 philox_product(philox_u32 x, philox_key m, philox_u32 *low) {
    philox_u64 product = (philox_u64)m * x;
    *low = (philox_u32)product;
    return (philox_u32)(product >> 32);
}
#else
/* Of lanes in pairs, as CPUs multiply every other one. */
#define PAIRS_4 2
#define PAIRS_8 4
#define PAIRS_16 8
#define PHILOX_PAIRS CAT(PAIRS_, W_PHILOX)
PHILOX_FN philox_u32 philox_product(philox_u32 x, philox_key m, philox_u32 *low) {
    VEC(ulong, PHILOX_PAIRS) lower = 0xffffffffu, both = AS_(ulong, PHILOX_PAIRS)(x);
    VEC(ulong, PHILOX_PAIRS) first = (both & lower) * m, second = (both >> 32) * m;
    *low = AS_(uint, W_PHILOX)((first & lower) | (second << 32));
    return AS_(uint, W_PHILOX)((first >> 32) | (second & ~lower));
}
#endif

PHILOX_FN philox_block philox_rounds(philox_block c, philox_key key0, philox_key key1) {
    for (int round = 0; round < 10; round++) {
        philox_block next;
        next.v[2] = philox_product(c.v[0], 0xD2511F53u, &next.v[3]) ^ c.v[3] ^ key1;
        next.v[0] = philox_product(c.v[2], 0xCD9E8D57u, &next.v[1]) ^ c.v[1] ^ key0;
        c = next;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return c;
}

/* Four words: number `counter` of the stream `seed`; of lane i number counter + i. */
PHILOX_FN philox_block philox(philox_u64 seed, philox_u64 counter) {
    philox_block c;
    philox_key low = (philox_key)counter, high = (philox_key)(counter >> 32);
    c.v[0] = low + PHILOX_LANE;
    c.v[1] = c.v[0] < low ? (philox_u32)(high + 1) : (philox_u32)(high);
    c.v[2] = c.v[3] = 0;
    return philox_rounds(c, (philox_key)seed, (philox_key)(seed >> 32));
}

/* Uniform on [0, 1): a multiple of 2^-24. */
PHILOX_FN philox_f32 philox_uniform(philox_u32 word) { return PHILOX_OF_WHOLE(word >> 8) * PHILOX_FLOAT(0x33800000u); }

/* ln(1 + f) as a polynomial, fitted on 1 + f in [sqrt(1/2), sqrt(2)]. */
PHILOX_FN philox_f32 philox_log1p(philox_f32 f) {
    philox_f32 f2 = f * f, p = 0.06674393f;
    p = PHILOX_FMA(p, f, -0.11644486f);
    p = PHILOX_FMA(p, f, 0.11904003f);
    p = PHILOX_FMA(p, f, -0.12411569f);
    p = PHILOX_FMA(p, f, 0.14218044f);
    p = PHILOX_FMA(p, f, -0.16667631f);
    p = PHILOX_FMA(p, f, 0.20002195f);
    p = PHILOX_FMA(p, f, -0.25000018f);
    p = PHILOX_FMA(p, f, 0.3333331f);
    return PHILOX_FMA(f2 * f, p, PHILOX_FMA((philox_f32)(-0.5f), f2, f));
}

/* -2 ln(k / 2^24) for k in 1 … 2^24. */
PHILOX_FN philox_f32 philox_log(philox_u32 k) {
    philox_u32 bits = PHILOX_BITS(PHILOX_OF_WHOLE(k));
    philox_f32 exponent = PHILOX_OF_WHOLE((bits >> 23) - (127 + 24));
    philox_f32 m = PHILOX_FLOAT((bits & 0x7fffffu) | 0x3f800000u);
    exponent = m > 1.41421356f ? exponent + 1.0f : exponent;
    m = m > 1.41421356f ? m * 0.5f : m;
    return -2.0f * PHILOX_FMA(exponent, (philox_f32)(0.69314718f), philox_log1p(m - 1.0f));
}

#if defined(CLEF_PHILOX_HOST) || W_PHILOX == 1
/* -ln(1 - v) for v = (bits, made odd) / 2^64, rounded: a standard exponential, with all digits where it is small. */
PHILOX_FN float philox_exponential(philox_u64 bits) {
    float v = (float)(bits | 1) * PHILOX_FLOAT(0x1f800000u);
    if (v < 0.25f) return -philox_log1p(-v);
    philox_u32 k = v < 1.0f ? (philox_u32)((1.0f - v) * 16777216.0f) : 1;
    return 0.5f * philox_log(k ? k : 1);
}

/* 1 / a for normal a > 0 with normal 1 / a, by Newton's method from a guess on the bits; not always rounded to nearest. */
PHILOX_FN float philox_reciprocal(float a) {
    float y = PHILOX_FLOAT(0x7ef311c7u - PHILOX_BITS(a));
    for (int i = 0; i < 4; i++) y = PHILOX_FMA(y, PHILOX_FMA(-a, y, 1.0f), y);
    return y;
}

#endif

/* Square root by Newton's method from a guess on the bits. */
PHILOX_FN philox_f32 philox_root(philox_f32 a) {
    philox_f32 y = PHILOX_FLOAT(0x5f3759dfu - (PHILOX_BITS(a) >> 1)), h = 0.5f * a;
    for (int i = 0; i < 3; i++) {
        philox_f32 z = h * y;
        y = y * PHILOX_FMA(-z, y, 1.5f);
    }
    philox_f32 s = a * y;
    s = PHILOX_FMA(0.5f * y, PHILOX_FMA(-s, s, a), s);
    return a == 0.0f ? a : s;
}

/* Standard normals from two words: radius from the first, angle from the second. */
PHILOX_FN void philox_pair(philox_u32 radius, philox_u32 angle, philox_f32 *first, philox_f32 *second) {
    philox_f32 r = philox_root(philox_log((radius >> 8) + 1));
    philox_u32 turn = angle >> 8, quarter = (turn + 0x200000u) >> 22;
    philox_f32 t = PHILOX_OF_WHOLE(turn - (quarter << 22)) * PHILOX_FLOAT(0x33800000u), t2 = t * t; /* in turns, |t| ≤ 1/8 */
    philox_f32 s = 41.472893f, c = 59.22029f;
    s = PHILOX_FMA(s, t2, -76.69787f);
    c = PHILOX_FMA(c, t2, -85.44285f);
    s = PHILOX_FMA(s, t2, 81.6052f);
    c = PHILOX_FMA(c, t2, 64.939316f);
    s = PHILOX_FMA(s, t2, -41.3417f);
    c = PHILOX_FMA(c, t2, -19.739208f);
    s = PHILOX_FMA(s, t2, 6.2831855f) * t;
    c = PHILOX_FMA(c, t2, 1.0f);
    philox_u32 sign = quarter << 30 & 0x80000000u; /* of the half */
    philox_f32 x = (quarter & 1) != 0 ? -s : c, y = (quarter & 1) != 0 ? c : s;
    *first = r * PHILOX_FLOAT(PHILOX_BITS(x) ^ sign);
    *second = r * PHILOX_FLOAT(PHILOX_BITS(y) ^ sign);
}

PHILOX_FN philox_normals philox_normal(philox_block b) {
    philox_normals n;
    philox_pair(b.v[0], b.v[1], &n.v[0], &n.v[1]);
    philox_pair(b.v[2], b.v[3], &n.v[2], &n.v[3]);
    return n;
}
