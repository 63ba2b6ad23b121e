/* arithmetic.h — what every room reckons with. */
#ifndef CLEF_ARITHMETIC_H
#define CLEF_ARITHMETIC_H
#include <stdint.h>

static inline int64_t clef__smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t clef__larger(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t clef__ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
#endif
