/* convert.c — floating-point formats in files against those of tensors, and byte order. */
#include "graph/graph.h"
#include "io_internal.h"
#include "runtime/half.h"
#include <math.h>
#include <string.h>

bool clef__convertible(clef_dtype from, clef_dtype to) { return from == to || (clef__is_float(from) && clef__is_float(to)); }

static double get(const void *from, clef_dtype dtype, int64_t i) {
    uint16_t bits = 0;
    if (dtype == CLEF_F32) return ((const float *)from)[i];
    if (dtype == CLEF_F64) return ((const double *)from)[i];
    memcpy(&bits, (const char *)from + 2 * i, 2);
    double value = dtype == CLEF_F16 ? clef__from_f16(bits) : clef__from_bf16(bits);
    return isnan(value) ? NAN : value; /* in files a NaN is just that */
}

static void put_double(void *to, clef_dtype dtype, int64_t i, double value) {
    if (dtype == CLEF_F32) ((float *)to)[i] = (float)value;
    else if (dtype == CLEF_F64) ((double *)to)[i] = value;
    else {
        uint16_t bits = dtype == CLEF_F16 ? clef__to_f16(value) : clef__to_bf16(value);
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
