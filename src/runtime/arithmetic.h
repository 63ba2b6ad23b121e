/* arithmetic.h — what every room reckons with. */
#ifndef CLEF_ARITHMETIC_H
#define CLEF_ARITHMETIC_H
#include <stddef.h>
#include <stdint.h>

static inline int64_t clef__smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t clef__larger(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t clef__ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); } /* b > 0 */
static inline int64_t clef__round_up(int64_t n, int64_t step) { return clef__ceil_div(n, step) * step; }

/* n in parts of at most `most`, as equal as can be: so many each. */
static inline int64_t clef__equal_part(int64_t n, int64_t most) { return clef__ceil_div(n, clef__ceil_div(n, most)); }

/* For sums and products of what users give (sizes, paddings, strides): what leaves 64 bits stays at their end, so that it is
   still beyond every limit it is compared with. */
static inline int64_t clef__plus(int64_t a, int64_t b) {
    int64_t sum;
    return !__builtin_add_overflow(a, b, &sum) ? sum : a < 0 ? INT64_MIN : INT64_MAX;
}
static inline int64_t clef__times(int64_t a, int64_t b) {
    int64_t product;
    return !__builtin_mul_overflow(a, b, &product) ? product : (a < 0) != (b < 0) ? INT64_MIN : INT64_MAX;
}

/* FNV-1a: CLEF__HASH_START, or what came before, with n bytes more. */
#define CLEF__HASH_START 0xcbf29ce484222325u
static inline uint64_t clef__hash(uint64_t hash, const void *data, size_t n) {
    for (size_t i = 0; i < n; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return hash;
}
#endif
