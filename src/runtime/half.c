/* half.c — see half.h. */
#include "runtime/half.h"
#include <math.h>
#include <string.h>

double clef__from_f16(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                       : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                      : ldexp(fraction, -24);
    return bits >> 15 ? -magnitude : magnitude;
}

double clef__from_bf16(uint16_t bits) {
    uint32_t all = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &all, sizeof value);
    return value;
}

/* Into a sign, `exponent` bits and `fraction` bits. */
static uint16_t narrow(double value, int exponent, int fraction) {
    uint16_t sign = signbit(value) ? 0x8000 : 0, all = (uint16_t)(((1 << exponent) - 1) << fraction);
    int bias = (1 << (exponent - 1)) - 1, e;
    if (isnan(value)) return (uint16_t)(sign | all | 1 << (fraction - 1));
    double size = fabs(value);
    if (isinf(value)) return sign | all;
    if (size == 0) return sign;
    frexp(size, &e); /* size = m · 2^e, 1/2 ≤ m < 1 */
    int lowest = 1 - bias, power = e - 1 < lowest ? lowest : e - 1;
    /* In units of the last place; a carry out of the fraction moves on into the exponent by itself. */
    double units = ldexp(size, fraction - power), whole = floor(units), rest = units - whole;
    if (rest > 0.5 || (rest == 0.5 && fmod(whole, 2) != 0)) whole += 1;
    double bits = whole + (double)(power - lowest) * (1 << fraction);
    return bits >= all ? sign | all : (uint16_t)(sign | (uint16_t)bits);
}

uint16_t clef__to_f16(double value) { return narrow(value, 5, 10); }

uint16_t clef__to_bf16(double value) { return narrow(value, 8, 7); }
