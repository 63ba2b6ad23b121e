/* random.cl — y[0 … n): element 4i + j comes from word j of Philox block first + i; of whole numbers, element 2i + j comes from words 2j
   and 2j + 1.  A unit of work is one block. */
#define CALLS_MATH
#include "common.h"
#define IN_PLACE
#include "args.h"
#include "random.args"
#include "philox.h"

KERNEL(random_uniform, RANDOM_FLOATS_ARGS) {
    UNPACK(RANDOM_FLOATS_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        philox_block b = philox(seed, first + (ulong)u);
        for (int j = 0; j < 4 && 4 * u + j < n; j++) y_base[y_offset + 4 * u + j] = philox_uniform(b.v[j]);
    }
}

KERNEL(random_normal, RANDOM_FLOATS_ARGS) {
    UNPACK(RANDOM_FLOATS_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        philox_normals z = philox_normal(philox(seed, first + (ulong)u));
        for (int j = 0; j < 4 && 4 * u + j < n; j++) y_base[y_offset + 4 * u + j] = z.v[j];
    }
}

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
