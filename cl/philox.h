/* philox.h — random numbers that are the same bits on every device and on the host (src/ops/philox.h includes this too).

   Philox 4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
   The normal distribution comes from Box and Muller's formula (1958) in exactly rounded operations only: integers, single
   products, and fma; no library function that may differ between devices. */
#ifndef CLEF_PHILOX_HOST
#define PHILOX_FN static inline
#define PHILOX_FMA fma
#define PHILOX_FLOAT(bits) as_float(bits)
#define PHILOX_BITS(f) as_uint(f)
typedef uint philox_u32;
typedef ulong philox_u64;
#endif

typedef struct philox_block { philox_u32 v[4]; } philox_block;
typedef struct philox_normals { float v[4]; } philox_normals;

PHILOX_FN philox_block philox_rounds(philox_block c, philox_u32 key0, philox_u32 key1) {
    for (int round = 0; round < 10; round++) {
        philox_u64 a = (philox_u64)0xD2511F53u * c.v[0], b = (philox_u64)0xCD9E8D57u * c.v[2];
        philox_block next;
        next.v[0] = (philox_u32)(b >> 32) ^ c.v[1] ^ key0;
        next.v[1] = (philox_u32)b;
        next.v[2] = (philox_u32)(a >> 32) ^ c.v[3] ^ key1;
        next.v[3] = (philox_u32)a;
        c = next;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return c;
}

/* Four words: number `counter` of the stream `seed`. */
PHILOX_FN philox_block philox(philox_u64 seed, philox_u64 counter) {
    philox_block c;
    c.v[0] = (philox_u32)counter;
    c.v[1] = (philox_u32)(counter >> 32);
    c.v[2] = c.v[3] = 0;
    return philox_rounds(c, (philox_u32)seed, (philox_u32)(seed >> 32));
}

/* Uniform on [0, 1): a multiple of 2^-24. */
PHILOX_FN float philox_uniform(philox_u32 word) { return (float)(word >> 8) * PHILOX_FLOAT(0x33800000u); }

/* ln(1 + f) as a polynomial, fitted on 1 + f in [sqrt(1/2), sqrt(2)]. */
PHILOX_FN float philox_log1p(float f) {
    float f2 = f * f, p = 0.06674393f;
    p = PHILOX_FMA(p, f, -0.11644486f);
    p = PHILOX_FMA(p, f, 0.11904003f);
    p = PHILOX_FMA(p, f, -0.12411569f);
    p = PHILOX_FMA(p, f, 0.14218044f);
    p = PHILOX_FMA(p, f, -0.16667631f);
    p = PHILOX_FMA(p, f, 0.20002195f);
    p = PHILOX_FMA(p, f, -0.25000018f);
    p = PHILOX_FMA(p, f, 0.3333331f);
    return PHILOX_FMA(f2 * f, p, PHILOX_FMA(-0.5f, f2, f));
}

/* -2 ln(k / 2^24) for k in 1 … 2^24. */
PHILOX_FN float philox_log(philox_u32 k) {
    philox_u32 bits = PHILOX_BITS((float)k);
    int exponent = (int)(bits >> 23) - 127 - 24;
    float m = PHILOX_FLOAT((bits & 0x7fffffu) | 0x3f800000u);
    if (m > 1.41421356f) {
        m *= 0.5f;
        exponent++;
    }
    return -2.0f * PHILOX_FMA((float)exponent, 0.69314718f, philox_log1p(m - 1.0f));
}

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

/* Square root by Newton's method from a guess on the bits. */
PHILOX_FN float philox_root(float a) {
    if (a == 0.0f) return 0.0f;
    float y = PHILOX_FLOAT(0x5f3759dfu - (PHILOX_BITS(a) >> 1)), h = 0.5f * a;
    for (int i = 0; i < 3; i++) {
        float z = h * y;
        y = y * PHILOX_FMA(-z, y, 1.5f);
    }
    float s = a * y;
    return PHILOX_FMA(0.5f * y, PHILOX_FMA(-s, s, a), s);
}

/* Standard normals from two words: radius from the first, angle from the second. */
PHILOX_FN void philox_pair(philox_u32 radius, philox_u32 angle, float *first, float *second) {
    float r = philox_root(philox_log((radius >> 8) + 1));
    philox_u32 turn = angle >> 8, quarter = (turn + 0x200000u) >> 22;
    float t = (float)((int)turn - (int)(quarter << 22)) * PHILOX_FLOAT(0x33800000u), t2 = t * t; /* in turns, |t| ≤ 1/8 */
    float s = 41.472893f, c = 59.22029f;
    s = PHILOX_FMA(s, t2, -76.69787f);
    c = PHILOX_FMA(c, t2, -85.44285f);
    s = PHILOX_FMA(s, t2, 81.6052f);
    c = PHILOX_FMA(c, t2, 64.939316f);
    s = PHILOX_FMA(s, t2, -41.3417f);
    c = PHILOX_FMA(c, t2, -19.739208f);
    s = PHILOX_FMA(s, t2, 6.2831855f) * t;
    c = PHILOX_FMA(c, t2, 1.0f);
    float x = quarter & 1 ? -s : c, y = quarter & 1 ? c : s;
    if (quarter & 2) x = -x, y = -y;
    *first = r * x;
    *second = r * y;
}

PHILOX_FN philox_normals philox_normal(philox_block b) {
    philox_normals n;
    philox_pair(b.v[0], b.v[1], &n.v[0], &n.v[1]);
    philox_pair(b.v[2], b.v[3], &n.v[2], &n.v[3]);
    return n;
}
