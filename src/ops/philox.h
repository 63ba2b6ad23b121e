/* philox.h — the device's random numbers on the host: cl/philox.h with C's own spelling. */
#ifndef CLEF_PHILOX_H
#define CLEF_PHILOX_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#define CLEF_PHILOX_HOST
#define PHILOX_FN static inline
#define PHILOX_FMA fmaf
#define PHILOX_OF_WHOLE(i) ((float)(int32_t)(i))
#define PHILOX_LANE 0
typedef uint32_t philox_u32;
typedef uint32_t philox_key;
typedef float philox_f32;
typedef uint64_t philox_u64;
static inline float philox_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static inline uint32_t philox_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}
#define PHILOX_FLOAT(bits) philox_float(bits)
#define PHILOX_BITS(f) philox_bits(f)
#include "../../cl/philox.h"
#endif
