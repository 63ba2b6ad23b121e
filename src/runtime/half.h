/* half.h — numbers in the 16-bit floating formats: f16 (IEEE 754 binary16) and bf16 (the upper half of a binary32). */
#ifndef CLEF_HALF_H
#define CLEF_HALF_H
#include <stdint.h>

/* Exact.  A NaN keeps its sign, and of bf16 its payload. */
double clef__from_f16(uint16_t bits);
double clef__from_bf16(uint16_t bits);
/* To nearest, ties to even, in one rounding; what is too large is infinite.  A NaN keeps its sign alone. */
uint16_t clef__to_f16(double value);
uint16_t clef__to_bf16(double value);
#endif
