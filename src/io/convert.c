/* convert.c — floating-point formats in files against those of tensors, and byte order. */
#include "graph/graph.h"
#include "io_internal.h"
#include <math.h>
#include <string.h>

bool clef__convertible(clef_dtype from, clef_dtype to) { return from == to || (clef__is_float(from) && clef__is_float(to)); }

/* A binary format with a sign, `exponent` bits and `fraction` bits, in 16 bits, to double: exact. */
static double widen(uint16_t bits, int exponent, int fraction) {
    int e = bits >> fraction & ((1 << exponent) - 1), bias = (1 << (exponent - 1)) - 1;
    double f = bits & ((1 << fraction) - 1), sign = bits >> 15 ? -1.0 : 1.0;
    if (e == (1 << exponent) - 1) return f != 0 ? NAN : sign * INFINITY;
    if (e == 0) return sign * ldexp(f, 1 - bias - fraction);
    return sign * ldexp(f + (1 << fraction), e - bias - fraction);
}

/* The other way: round to nearest, ties to even, in one rounding. */
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

static double get(const void *from, clef_dtype dtype, int64_t i) {
    uint16_t bits = 0;
    if (dtype == CLEF_F32) return ((const float *)from)[i];
    if (dtype == CLEF_F64) return ((const double *)from)[i];
    memcpy(&bits, (const char *)from + 2 * i, 2);
    return dtype == CLEF_F16 ? widen(bits, 5, 10) : widen(bits, 8, 7);
}

static void put_double(void *to, clef_dtype dtype, int64_t i, double value) {
    if (dtype == CLEF_F32) ((float *)to)[i] = (float)value;
    else if (dtype == CLEF_F64) ((double *)to)[i] = value;
    else {
        uint16_t bits = dtype == CLEF_F16 ? narrow(value, 5, 10) : narrow(value, 8, 7);
        memcpy((char *)to + 2 * i, &bits, 2);
    }
}

void clef__convert(const void *from, clef_dtype from_dtype, void *to, clef_dtype to_dtype, int64_t n) {
    if (from_dtype == to_dtype) memcpy(to, from, (size_t)n * clef_dtype_size(to_dtype));
    else
        for (int64_t i = 0; i < n; i++) put_double(to, to_dtype, i, get(from, from_dtype, i));
}

void clef__swap_bytes(void *data, size_t element, uint64_t n) {
    unsigned char *p = data;
    for (uint64_t i = 0; i < n; i++, p += element)
        for (size_t low = 0, high = element - 1; low < high; low++, high--) {
            unsigned char byte = p[low];
            p[low] = p[high];
            p[high] = byte;
        }
}

bool clef__big_endian(void) {
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 0;
}

bool clef__tensor_bytes(clef_shape shape, clef_dtype dtype, uint64_t *bytes) {
    int64_t n = clef_shape_numel(shape);
    uint64_t size = clef_dtype_size(dtype);
    if (n < 0 || size == 0 || (uint64_t)n > (uint64_t)INT64_MAX / size) return false;
    *bytes = (uint64_t)n * size;
    return *bytes <= SIZE_MAX;
}
