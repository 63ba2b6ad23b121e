/* numbers.h — tensors of any dtype from and to doubles on the host, and comparison with a reference in double. */
#ifndef CLEF_TESTS_NUMBERS_H
#define CLEF_TESTS_NUMBERS_H
#include "support/device.h"
#include <stdio.h>

static inline bool has_f64(clef_context *ctx) {
    clef_device_info info;
    return clef_context_device(ctx, 0, &info) && info.f64;
}

/* The floating dtypes to try on this device: all, or f32 only where every instruction is interpreted. */
static const clef_dtype float_dtypes[] = {CLEF_F32, CLEF_F16, CLEF_BF16, CLEF_F64};
static inline int float_dtypes_here(clef_context *ctx) { return test_small() ? 1 : has_f64(ctx) ? 4 : 3; }

/* Half the distance between neighbours around 1: the relative error of one rounding. */
static inline double rounding_of(clef_dtype dtype) {
    return dtype == CLEF_F64    ? 0x1p-53
           : dtype == CLEF_F32  ? 0x1p-24
           : dtype == CLEF_F16  ? 0x1p-11
           : dtype == CLEF_BF16 ? 0x1p-8
                                : 0;
}

/* What is computed in f32 (f64 in f64) within `absolute` + `relative`·|want| there, and then stored once as dtype. */
typedef struct bounds {
    double absolute, relative;
} bounds;
static inline bounds stored_bounds(clef_dtype dtype, double absolute, double relative) {
    double wide = dtype == CLEF_F64 ? 0x1p-29 : 1;
    bool half = dtype == CLEF_F16 || dtype == CLEF_BF16;
    return (bounds){absolute * wide + (dtype == CLEF_F16 ? 0x1p-25 : 0), relative * wide + (half ? rounding_of(dtype) : 0)};
}

static inline uint32_t float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float bits_float(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* To nearest, halves to even, by the C library: scaling makes the last place of a half the last place of an integer. */
static inline uint16_t half_bits(double v) {
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    double a = fabs(v);
    if (isnan(v)) return 0x7e00;
    if (a >= 65520) return sign | 0x7c00;
    int e;
    frexp(a, &e);
    if (e < -13) e = -13;
    double steps = nearbyint(ldexp(a, 11 - e));                /* in units of 2^(e-11) */
    if (a == 0 || steps < 1024) return sign | (uint16_t)steps; /* subnormal */
    return (uint16_t)(sign + ((e + 13) << 10) + (int)(steps - 1024) + 1024);
}

static inline double half_value(uint16_t h) {
    int e = h >> 10 & 31, m = h & 1023;
    double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

static inline uint16_t bf16_bits(double v) {
    uint32_t u = float_bits((float)v);
    if (isnan(v)) return 0x7fc0;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline void store_number(clef_dtype dtype, void *data, int64_t i, double v) {
    switch (dtype) {
    case CLEF_F32: ((float *)data)[i] = (float)v; break;
    case CLEF_F64: ((double *)data)[i] = v; break;
    case CLEF_F16: ((uint16_t *)data)[i] = half_bits(v); break;
    case CLEF_BF16: ((uint16_t *)data)[i] = bf16_bits(v); break;
    case CLEF_I32: ((int32_t *)data)[i] = (int32_t)v; break;
    case CLEF_I64: ((int64_t *)data)[i] = (int64_t)v; break;
    case CLEF_BOOL: ((uint8_t *)data)[i] = v != 0; break;
    default: ((uint8_t *)data)[i] = (uint8_t)(int64_t)v;
    }
}

static inline double load_number(clef_dtype dtype, const void *data, int64_t i) {
    switch (dtype) {
    case CLEF_F32: return (double)((const float *)data)[i];
    case CLEF_F64: return ((const double *)data)[i];
    case CLEF_F16: return half_value(((const uint16_t *)data)[i]);
    case CLEF_BF16: return (double)bits_float((uint32_t)((const uint16_t *)data)[i] << 16);
    case CLEF_I32: return ((const int32_t *)data)[i];
    case CLEF_I64: return (double)((const int64_t *)data)[i];
    default: return ((const uint8_t *)data)[i];
    }
}

/* Uploads v as dtype, and puts what was stored back into v. */
static inline clef_tensor *tensor_of(clef_context *ctx, clef_shape shape, clef_dtype dtype, double *v) {
    int64_t n = clef_shape_numel(shape);
    void *data = malloc((size_t)(n ? n : 1) * 8);
    for (int64_t i = 0; i < n; i++) {
        store_number(dtype, data, i, v[i]);
        v[i] = load_number(dtype, data, i);
    }
    clef_tensor *t = clef_from_host(ctx, shape, dtype, data);
    free(data);
    cr_assert(t, "%s", clef_error(ctx));
    return t;
}

/* The elements of any tensor as doubles; the caller frees. */
static inline double *numbers(clef_tensor *t) {
    cr_assert(t, "NULL instead of a tensor");
    int64_t n = clef_numel(t);
    clef_dtype dtype = clef_tensor_dtype(t);
    void *data = malloc((size_t)(n ? n : 1) * 8);
    double *v = malloc((size_t)(n ? n : 1) * sizeof *v);
    clef_status status = clef_read(t, data, (size_t)n * clef_dtype_size(dtype));
    cr_assert(status == CLEF_OK, "%s", clef_error(clef_tensor_context(t)));
    for (int64_t i = 0; i < n; i++) v[i] = load_number(dtype, data, i);
    free(data);
    return v;
}

/* n numbers in [low, high) that depend on nothing but salt; the caller frees. */
static inline double *spread(int64_t n, double low, double high, uint64_t salt) {
    double *v = malloc((size_t)(n ? n : 1) * sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = low + (high - low) * (0.5 + 0.5 * (double)noise((uint64_t)i, salt));
    return v;
}

/* Kept, of whole numbers from low to high - 1, many of them more than once. */
static inline clef_tensor *kept_whole(clef_context *ctx, clef_shape shape, clef_dtype dtype, int low, int high, uint64_t salt) {
    int64_t n = clef_shape_numel(shape);
    double *x = spread(n, low, high, salt);
    for (int64_t i = 0; i < n; i++) x[i] = floor(x[i]);
    clef_tensor *t = clef_keep(tensor_of(ctx, shape, dtype, x));
    free(x);
    return t;
}

/* Kept, of rank 3, with every kind of strides: transposed, turned round, in steps, broadcast; and one that is still to be computed. */
enum { VIEWS = 7 };
static inline void kept_views(clef_context *ctx, clef_tensor *view[VIEWS]) {
    clef_tensor *t = kept_whole(ctx, CLEF_SHAPE(4, 37, 6), CLEF_F32, -9, 9, 7);
    view[0] = clef_transpose(t, 0, 1);
    view[1] = clef_transpose(t, 1, 2);
    view[2] = clef_flip(t, 1);
    view[3] = clef_slice(t, 1, 3, 36, 2);
    view[4] = clef_slice(t, 2, 1, 4, 1);
    view[5] = clef_expand(clef_slice(t, 1, 5, 6, 1), CLEF_SHAPE(3, 4, 8, 6));
    view[6] = clef_add_scalar(clef_permute(t, (int[]){2, 0, 1}), 1);
    for (int i = 0; i < VIEWS; i++) clef_keep(view[i]);
    clef_release(t);
}

/* NaN matches NaN, infinities their sign, numbers within bound. */
static inline bool close_to(double have, double want, double bound) {
    if (isnan(want) || isnan(have)) return isnan(want) && isnan(have);
    if (isinf(want) || isinf(have)) return have == want;
    return fabs(have - want) <= bound;
}

/* Every element of t within absolute + relative·|want|; one failure per tensor. */
static inline void expect_numbers(clef_tensor *t, const double *want, double absolute, double relative, const char *what) {
    double *have = numbers(t);
    int64_t n = clef_numel(t), bad = 0;
    for (int64_t i = 0; i < n; i++) {
        if (close_to(have[i], want[i], absolute + relative * fabs(want[i])) || bad++) continue;
        cr_expect(false, "%s: element %lld of %lld is %.9g, not %.9g (%s)", what, (long long)i, (long long)n, have[i], want[i],
                  clef_dtype_name(clef_tensor_dtype(t)));
    }
    if (bad) cr_expect(false, "%s: %lld of %lld elements are wrong", what, (long long)bad, (long long)n);
    free(have);
}

static inline clef_tensor *parameter(clef_tensor *t) { return clef_require_grad(clef_keep(t), true); }

/* Σ g·f(x) by central differences for every x; f fills y from the n_in inputs; the caller frees. */
typedef void (*reference_fn)(const double *x, double *y, const void *user);
static inline double *slopes(reference_fn f, const void *user, const double *x, int64_t n_in, int64_t n_out, const double *g,
                             double step) {
    double *dx = malloc((size_t)(n_in ? n_in : 1) * sizeof *dx), *at = malloc((size_t)(n_in + 1) * sizeof *at);
    double *up = malloc((size_t)(n_out + 1) * sizeof *up), *down = malloc((size_t)(n_out + 1) * sizeof *down);
    memcpy(at, x, (size_t)n_in * sizeof *at);
    for (int64_t i = 0; i < n_in; i++) {
        at[i] = x[i] + step;
        f(at, up, user);
        at[i] = x[i] - step;
        f(at, down, user);
        at[i] = x[i];
        dx[i] = 0;
        for (int64_t k = 0; k < n_out; k++) dx[i] += g[k] * (up[k] - down[k]) / (2 * step);
    }
    free(at), free(up), free(down);
    return dx;
}
#endif
