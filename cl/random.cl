/* random.cl — y[0 … n): element 4i + j comes from word j of Philox block first + i; of whole numbers, element 2i + j comes from words 2j
   and 2j + 1.  A unit of work is W blocks, of whole numbers one.

   W: lanes of vectors, a block in each; 1 for whole numbers.
   Checked with: W=1; W=4; W=8. */
#ifndef W
#define W CLEF_LANES
#endif
#define CALLS_MATH
#include "common.h"
#define IN_PLACE
#include "args.h"
#include "random.args"
#define W_PHILOX W
#include "philox.h"

#if W > 1
/* Vector k of four has what is [4·W] in memory from element k · W on. */
typedef VEC(float, W) V;
#define PUT(k, vector)                                                                           \
    if (e + (k + 1) * W <= n) STORE(f32, W, y_base, y_offset + e + k * W, vector);               \
    else OF_PART(scatter_some_f32)(y_base + y_offset + e + k * W, 1, n - e - k * W, vector);
#define LACED(to, low, high) to.even = low, to.odd = high;
#define SCATTER_VECTOR(w) DEFINE_SCATTER_SOME(f32, w)
SCATTER_VECTOR(W)
static void put(__global float *y_base, long y_offset, long e, long n, philox_normals z) {
    V a, b, c, d, t;
    LACED(a, z.v[0].lo, z.v[2].lo)
    LACED(b, z.v[1].lo, z.v[3].lo)
    LACED(c, z.v[0].hi, z.v[2].hi)
    LACED(d, z.v[1].hi, z.v[3].hi)
    LACED(t, a.lo, b.lo)
    PUT(0, t)
    LACED(t, a.hi, b.hi)
    PUT(1, t)
    LACED(t, c.lo, d.lo)
    PUT(2, t)
    LACED(t, c.hi, d.hi)
    PUT(3, t)
}
#else
static void put(__global float *y_base, long y_offset, long e, long n, philox_normals z) {
    for (int j = 0; j < 4 && e + j < n; j++) y_base[y_offset + e + j] = z.v[j];
}
#endif

KERNEL(random_uniform, RANDOM_FLOATS_ARGS) {
    UNPACK(RANDOM_FLOATS_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        philox_block b = philox(seed, first + (ulong)(u * W));
        philox_normals z = {{philox_uniform(b.v[0]), philox_uniform(b.v[1]), philox_uniform(b.v[2]), philox_uniform(b.v[3])}};
        put(y_base, y_offset, 4 * W * u, n, z);
    }
}

KERNEL(random_normal, RANDOM_FLOATS_ARGS) {
    UNPACK(RANDOM_FLOATS_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) put(y_base, y_offset, 4 * W * u, n, philox_normal(philox(seed, first + (ulong)(u * W))));
}

#if W == 1
/* low + ⌊range · r / 2^64⌋ with r of 64 bits; range 0 stands for 2^64. */
KERNEL(random_whole, RANDOM_WHOLE_ARGS) {
    UNPACK(RANDOM_WHOLE_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        philox_block four = philox(seed, first + (ulong)u);
        for (int j = 0; j < 2 && 2 * u + j < n; j++) {
            ulong r = (ulong)four.v[2 * j] << 32 | four.v[2 * j + 1];
            y_base[y_offset + 2 * u + j] = (long)((ulong)low + (range ? mul_hi(r, (ulong)range) : r));
        }
    }
}
#endif
