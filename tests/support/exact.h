/* exact.h — whole numbers on the device and beside it: sums of their products are exact in any order, so kernels must match
   a plain C loop bit for bit.  And the bound for the others: |err| <= 4·sqrt(n)·u·S + 2u·|ref|, S the sum of |products|. */
#ifndef CLEF_TESTS_EXACT_H
#define CLEF_TESTS_EXACT_H
#include "support/device.h"
#include <stdio.h>

/* Numbers beside the device, in double. */
typedef struct array {
    clef_shape shape;
    double *v;
} array;

static inline array array_new(clef_shape shape) {
    int64_t n = clef_shape_numel(shape);
    return (array){shape, calloc((size_t)(n ? n : 1), sizeof(double))};
}

/* Whole numbers in [-range, range]. */
static inline array whole_array(clef_shape shape, uint64_t salt, int range) {
    array a = array_new(shape);
    for (int64_t i = 0; i < clef_shape_numel(shape); i++)
        a.v[i] = floor((noise((uint64_t)i, salt) + 1) / 2 * (2 * range + 1)) - range;
    return a;
}

/* Numbers in [-1, 1) with 24 bits. */
static inline array noise_array(clef_shape shape, uint64_t salt) {
    array a = array_new(shape);
    for (int64_t i = 0; i < clef_shape_numel(shape); i++) a.v[i] = noise((uint64_t)i, salt);
    return a;
}

static inline clef_tensor *to_device(clef_context *ctx, array a, clef_dtype dtype) {
    int64_t n = clef_shape_numel(a.shape);
    float *f = malloc((size_t)(n ? n : 1) * sizeof *f);
    clef_tensor *t;
    if (dtype == CLEF_F64) return clef_from_host(ctx, a.shape, CLEF_F64, a.v);
    for (int64_t i = 0; i < n; i++) f[i] = (float)a.v[i];
    t = clef_from_host(ctx, a.shape, CLEF_F32, f);
    free(f);
    return dtype == CLEF_F32 ? t : clef_to(t, dtype);
}

/* The same as a leaf that wants a gradient. */
static inline clef_tensor *to_leaf(clef_context *ctx, array a, clef_dtype dtype) {
    return clef_require_grad(clef_keep(to_device(ctx, a, dtype)), true);
}

/* What the device holds, as doubles. */
static inline array from_device(clef_tensor *t) {
    cr_assert(t, "NULL instead of a tensor");
    clef_context *ctx = clef_tensor_context(t);
    array a = array_new(clef_tensor_shape(t));
    int64_t n = clef_numel(t);
    if (clef_tensor_dtype(t) == CLEF_F64) {
        cr_assert(clef_read(t, a.v, (size_t)n * sizeof *a.v) == CLEF_OK, "%s", clef_error(ctx));
        return a;
    }
    float *f = values(clef_tensor_dtype(t) == CLEF_F32 ? t : clef_to(t, CLEF_F32));
    for (int64_t i = 0; i < n; i++) a.v[i] = f[i];
    free(f);
    return a;
}

/* Equal shape and every element; says where the first difference lies. */
static inline void expect_equal(clef_tensor *t, array want, const char *what) {
    array have = from_device(t);
    char a[96], b[96];
    cr_assert(clef_shape_equal(have.shape, want.shape), "%s: %s instead of %s", what, clef_shape_format(have.shape, a, sizeof a),
              clef_shape_format(want.shape, b, sizeof b));
    int64_t n = clef_shape_numel(want.shape), wrong = 0, first = -1;
    for (int64_t i = 0; i < n; i++) {
        if (have.v[i] == want.v[i]) continue;
        if (first < 0) first = i;
        wrong++;
    }
    cr_assert(wrong == 0, "%s: %lld of %lld elements differ; the first at %lld is %.9g instead of %.9g", what, (long long)wrong,
              (long long)n, (long long)first, have.v[first < 0 ? 0 : first], want.v[first < 0 ? 0 : first]);
    free(have.v);
}

/* Every element within the bound for a sum of n products whose absolute values add up to scale. */
static inline void expect_bounded(clef_tensor *t, array want, array scale, double n, const char *what) {
    array have = from_device(t);
    const double u = 0x1p-24;
    double worst = 0;
    for (int64_t i = 0; i < clef_shape_numel(want.shape); i++) {
        double bound = 4 * sqrt(n) * u * scale.v[i] + 2 * u * fabs(want.v[i]) + 1e-38;
        double ratio = fabs(have.v[i] - want.v[i]) / bound;
        if (!(ratio <= worst)) worst = ratio;
    }
    cr_assert(worst <= 1, "%s: error is %.3g of what is allowed", what, worst);
    free(have.v);
}

/* Rows of a CSV file of $CLEF_SHAPES without its header; where there is none, the few rows of `built_in`. */
static inline FILE *shapes_file(const char *name, const char *built_in) {
    char path[4096], line[512];
    const char *dir = getenv("CLEF_SHAPES");
    snprintf(path, sizeof path, "%s/%s", dir && *dir ? dir : ".", name);
    FILE *f = dir && *dir ? fopen(path, "r") : NULL;
    if (f && fgets(line, sizeof line, f)) return f;
    if (f) fclose(f);
    f = fmemopen((void *)built_in, strlen(built_in), "r");
    cr_assert(f, "no memory");
    return f;
}
#endif
