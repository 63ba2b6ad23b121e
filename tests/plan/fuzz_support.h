/* fuzz_support.h — what tests of random programs share: chance that depends on a seed only, numbers from the environment, and
   results of which all NaNs are one. */
#ifndef CLEF_TESTS_FUZZ_SUPPORT_H
#define CLEF_TESTS_FUZZ_SUPPORT_H
#include "clef.h"
#include <stdlib.h>
#include <string.h>

/* splitmix64: a number below n. */
static inline uint64_t roll_from(uint64_t *state, uint64_t n) {
    *state += 0x9e3779b97f4a7c15u;
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (x ^ (x >> 31)) % n;
}

static inline uint64_t number_from(const char *name, uint64_t otherwise) {
    const char *value = getenv(name);
    return value && *value ? strtoull(value, NULL, 10) : otherwise;
}

/* All NaNs are one: which of two a sum passes on is not defined. */
static inline void unite_nans(unsigned char *data, int64_t n, clef_dtype dtype) {
    for (int64_t i = 0; i < n; i++) {
        float f;
        double d;
        uint16_t h;
        if (dtype == CLEF_F32 && (memcpy(&f, data + 4 * i, 4), f != f)) memset(data + 4 * i, 0xff, 4);
        if (dtype == CLEF_F64 && (memcpy(&d, data + 8 * i, 8), d != d)) memset(data + 8 * i, 0xff, 8);
        if (dtype == CLEF_F16 && (memcpy(&h, data + 2 * i, 2), (h & 0x7fff) > 0x7c00)) memset(data + 2 * i, 0xff, 2);
        if (dtype == CLEF_BF16 && (memcpy(&h, data + 2 * i, 2), (h & 0x7fff) > 0x7f80)) memset(data + 2 * i, 0xff, 2);
    }
}
#endif
