/* cast.c — dtypes: conversion, promotion, numbers beside tensors. */
#include "ops/ops.h"
#include <math.h>

static int promotion_rank(clef_dtype dtype) {
    static const int rank[CLEF_DTYPE_COUNT] = {[CLEF_BOOL] = 0, [CLEF_U8] = 1,   [CLEF_I32] = 2, [CLEF_I64] = 3,
                                               [CLEF_F16] = 4,  [CLEF_BF16] = 4, [CLEF_F32] = 5, [CLEF_F64] = 6};
    return rank[dtype];
}

clef_dtype clef__promote(clef_dtype a, clef_dtype b) {
    if (a == b) return a;
    int ra = promotion_rank(a), rb = promotion_rank(b);
    return ra == rb ? CLEF_F32 : ra > rb ? a : b;
}

clef_tensor *clef__to_float(clef_tensor *x) { return x && !clef__is_float(clef_tensor_dtype(x)) ? clef_to(x, CLEF_F32) : x; }

clef_tensor *clef__to_wide(clef_tensor *x) {
    x = clef__to_float(x);
    if (!x) return NULL;
    clef_dtype dtype = clef_tensor_dtype(x);
    return dtype == CLEF_F16 || dtype == CLEF_BF16 ? clef_to(x, CLEF_F32) : x;
}

static bool has_f64(clef_context *ctx, int device) { return clef__device_info(clef__device_at(ctx, device))->f64; }

/* Where x can be f64: on its own device, or, if it is a number, which lies on none, on any; -1: nowhere. */
static int device_for_f64(clef_tensor *x) {
    clef_context *ctx = clef_tensor_context(x);
    if (has_f64(ctx, clef_tensor_device(x))) return clef_tensor_device(x);
    int d = clef__is_number(clef__output_of(x)) ? clef__context_devices(ctx) - 1 : -1;
    while (d >= 0 && !has_f64(ctx, d)) d--;
    return d;
}

clef_tensor *clef_to(clef_tensor *x, clef_dtype dtype) {
    if (!CLEF__GIVEN("to", "x", x)) return NULL;
    clef_context *ctx = clef_tensor_context(x);
    if ((int)dtype < 0 || dtype >= CLEF_DTYPE_COUNT) return clef__refuse(ctx, "to", CLEF_DTYPE, "there is no dtype %d", (int)dtype);
    if (dtype == clef_tensor_dtype(x)) return x;
    int device = dtype == CLEF_F64 ? device_for_f64(x) : clef_tensor_device(x);
    if (device < 0) return clef__refuse(ctx, "to", CLEF_DTYPE, "this device has no f64; use f32");
    return clef__cast(clef_to_device(x, device), dtype);
}

bool clef__is_fraction(double value) { return isnan(value) || (isfinite(value) && value != trunc(value)); }

clef_tensor *clef__number(clef_context *ctx, clef_dtype dtype, double value) {
    return clef__constant(ctx, CLEF_SCALAR, dtype, 0, clef__saturated(dtype, value));
}
