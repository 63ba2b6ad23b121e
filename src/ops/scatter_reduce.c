/* scatter_reduce.c — sums, means and extremes of what is scattered to one place. */
#include "ops/ops.h"
#include <math.h>

static const char name[] = "scatter_reduce";

/* The number that changes no result. */
static double of_nothing(clef_scatter_reduction reduction, clef_dtype dtype) {
    bool bytes = dtype == CLEF_U8 || dtype == CLEF_BOOL;
    if (reduction == CLEF_SCATTER_MAX) return bytes ? 0 : -INFINITY;
    if (reduction == CLEF_SCATTER_MIN) return dtype == CLEF_U8 ? UINT8_MAX : bytes ? 1 : INFINITY;
    return 0;
}

/* x with this number in all places that index names. */
static clef_tensor *cleared(clef_tensor *x, int dim, clef_tensor *index, double value) {
    clef_dtype dtype = clef_tensor_dtype(x);
    return clef__scatter(
        name, x, dim, index,
        clef__constant(clef_tensor_context(x), clef_tensor_shape(index), dtype, clef_tensor_device(x), clef__held(dtype, value)));
}

/* The sums over how many numbers each has; one that nothing came to is divided by 1. */
static clef_tensor *scatter_mean(clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src, bool include_self) {
    clef_dtype dtype = clef_tensor_dtype(x), wide = clef__is_float(dtype) ? clef_tensor_dtype(clef__to_wide(x)) : CLEF_I64;
    clef_context *ctx = clef_tensor_context(x);
    int device = clef_tensor_device(x);
    clef_tensor *start = clef__constant(ctx, clef_tensor_shape(x), CLEF_I64, device, include_self),
                *one = clef__constant(ctx, clef_tensor_shape(index), CLEF_I64, device, 1);
    clef_tensor *sum = clef__scatter_add(name, clef_to(x, wide), dim, index, clef_to(src, wide));
    clef_tensor *count = clef_maximum_scalar(clef__scatter_add(name, start, dim, index, one), 1);
    return clef_to(clef__is_float(dtype) ? clef_div(sum, clef_to(count, wide)) : clef_floor_divide(sum, count), dtype);
}

clef_tensor *clef_scatter_reduce(clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src, clef_scatter_reduction reduction,
                                 bool include_self) {
    if (!CLEF__GIVEN(name, "x index src", x, index, src)) return NULL;
    if (reduction < CLEF_SCATTER_SUM || reduction > CLEF_SCATTER_MIN)
        return clef__refuse(clef_tensor_context(x), name, CLEF_INVALID, "there is no reduction %d", (int)reduction);
    clef_dtype dtype = clef__promote(clef_tensor_dtype(x), clef_tensor_dtype(src));
    bool extreme = reduction == CLEF_SCATTER_MAX || reduction == CLEF_SCATTER_MIN;
    if (dtype == CLEF_BOOL && !extreme) dtype = CLEF_I32;
    x = clef_to(x, dtype), src = clef_to(src, dtype);
    if (!include_self && x) x = cleared(x, dim, index, of_nothing(reduction, dtype));
    if (!x || !src) return NULL;
    if (extreme) return clef__scatter_extreme(name, reduction == CLEF_SCATTER_MAX, x, dim, index, src, !include_self);
    return reduction == CLEF_SCATTER_MEAN ? scatter_mean(x, dim, index, src, include_self)
                                          : clef__scatter_add(name, x, dim, index, src);
}
