/* cast.c — dtypes: conversion, promotion, numbers beside tensors. */
#include "ops/ops.h"
#include <math.h>

bool clef__is_float(clef_dtype dtype) {
    return dtype == CLEF_F32 || dtype == CLEF_F16 || dtype == CLEF_BF16 || dtype == CLEF_F64;
}

static int promotion_rank(clef_dtype dtype) {
    static const int rank[CLEF_DTYPE_COUNT] = { [CLEF_BOOL] = 0, [CLEF_U8] = 1,   [CLEF_I32] = 2, [CLEF_I64] = 3,
                                                [CLEF_F16] = 4,  [CLEF_BF16] = 4, [CLEF_F32] = 5, [CLEF_F64] = 6 };
    return rank[dtype];
}

clef_dtype clef__promote(clef_dtype a, clef_dtype b) {
    if (a == b) return a;
    int ra = promotion_rank(a), rb = promotion_rank(b);
    return ra == rb ? CLEF_F32 : ra > rb ? a : b;
}

clef_tensor *clef__to_float(clef_tensor *x) {
    return x && !clef__is_float(clef_tensor_dtype(x)) ? clef_to(x, CLEF_F32) : x;
}

clef_tensor *clef__to_wide(clef_tensor *x) {
    x = clef__to_float(x);
    if (!x) return NULL;
    clef_dtype dtype = clef_tensor_dtype(x);
    return dtype == CLEF_F16 || dtype == CLEF_BF16 ? clef_to(x, CLEF_F32) : x;
}

typedef struct cast_attributes {
    int64_t dtype;
} cast_attributes;

static bool cast_infer(clef__call *call) {
    const cast_attributes *a = call->attributes;
    call->shape = call->input[0]->shape;
    call->dtype = (clef_dtype)a->dtype;
    return true;
}

static void cast_gradient(clef_tensor *const *x, clef_tensor *y, clef_tensor *g, const bool *wanted, clef_tensor **dx) {
    (void)wanted;
    clef_dtype from = clef_tensor_dtype(x[0]);
    if (clef__is_float(from) && clef__is_float(clef_tensor_dtype(y))) dx[0] = clef_to(g, from);
}

const clef_op clef__op_cast = {
    .name = "to", .kind = CLEF__POINTWISE, .params = "x", .text = "CAST", .infer = cast_infer, .gradient = cast_gradient,
};

clef_tensor *clef_to(clef_tensor *x, clef_dtype dtype) {
    if (!CLEF__GIVEN("to", "x", x)) return NULL;
    clef_context *ctx = clef_tensor_context(x);
    if ((int)dtype < 0 || dtype >= CLEF_DTYPE_COUNT) return clef__refuse(ctx, "to", CLEF_DTYPE, "there is no dtype %d", (int)dtype);
    if (dtype == clef_tensor_dtype(x)) return x;
    if (dtype == CLEF_F64 && !clef__device_info(clef__device_at(ctx, clef_tensor_device(x)))->f64)
        return clef__refuse(ctx, "to", CLEF_DTYPE, "this device has no f64; use f32");
    bool wraps = clef_tensor_dtype(x) == CLEF_I64 && (dtype == CLEF_I32 || dtype == CLEF_U8); /* where numbers saturate */
    if (clef__is_number(clef__node_of(x)) && !wraps) {
        clef_tensor *y = clef_full(ctx, clef_tensor_shape(x), dtype, clef__node_of(x)->dynamic.f);
        if (y) clef__node_of(y)->device = clef__node_of(x)->device;
        return y;
    }
    return clef__apply(&clef__op_cast, &x, 1, &(cast_attributes){ dtype }, sizeof(cast_attributes));
}

bool clef__is_fraction(double value) { return isnan(value) || (isfinite(value) && value != trunc(value)); }

double clef__saturated(clef_dtype dtype, double value) {
    if (clef__is_float(dtype)) return value;
    if (isnan(value)) return 0;
    return dtype == CLEF_I64 ? fmin(fmax(value, -0x1p63), 0x1p63) : fmin(fmax(value, INT32_MIN), INT32_MAX);
}

clef_tensor *clef__number(clef_context *ctx, clef_dtype dtype, double value) {
    return clef__constant(ctx, CLEF_SCALAR, dtype, 0, clef__saturated(dtype, value));
}
