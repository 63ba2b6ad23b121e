/* core.c — the ops of core.h, and what the public interface offers of them in this room. */
#include "graph/core.h"
#include "runtime/half.h"

#include <math.h>

/* dy/dx is 1. */
static void same_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                          clef_tensor **dx) {
    (void)x, (void)y, (void)wanted;
    dx[0] = g[0];
}

/* ---- data and constants ---- */

const clef_op clef__op_data = {.name = "data", .kind = CLEF__DATA};
const clef_op clef__op_constant = {.name = "constant", .kind = CLEF__CONSTANT};

clef__output *clef__data_output(clef_context *ctx, clef_shape shape, clef_dtype dtype, int device, clef__buffer *buffer) {
    clef__node *node = clef__node_new(ctx, &clef__op_data, 0, &(clef__type){shape, dtype}, 1, device, NULL, 0);
    if (!node) return NULL;
    clef__output *out = &node->out[0];
    clef__output_retain(out);
    clef__node_release(node);
    out->layout = clef__dense(shape, NULL);
    out->buffer = buffer;
    return out;
}

static clef_tensor *constant_of_bits(clef_context *ctx, clef_shape shape, clef_dtype dtype, int device, uint64_t bits) {
    return clef__source(ctx, &clef__op_constant, shape, dtype, device, NULL, 0, bits, 0);
}

clef_tensor *clef__constant_integer(clef_context *ctx, clef_shape shape, int device, int64_t value) {
    return constant_of_bits(ctx, shape, CLEF_I64, device, (uint64_t)value);
}

clef_tensor *clef__constant(clef_context *ctx, clef_shape shape, clef_dtype dtype, int device, double value) {
    union {
        double f;
        uint64_t u;
    } bits = {.f = value};
    if (dtype == CLEF_I64) return clef__constant_integer(ctx, shape, device, clef__whole_number(clef__saturated(dtype, value)));
    return constant_of_bits(ctx, shape, dtype, device, bits.u);
}

double clef__saturated(clef_dtype dtype, double value) {
    if (clef__is_float(dtype)) return value;
    if (isnan(value)) return 0;
    return dtype == CLEF_I64 ? fmin(fmax(value, -0x1p63), 0x1p63) : fmin(fmax(value, INT32_MIN), INT32_MAX);
}

/* The low 8 bits of a number without its fraction, as of its two's complement; 0 of what is not finite. */
static double low_byte(double value) {
    double low = isfinite(value) ? fmod(trunc(value), 256) : 0;
    return low < 0 ? low + 256 : low;
}

double clef__held(clef_dtype dtype, double value) {
    float single = (float)value;
    switch (dtype) {
    case CLEF_F16: return isnan(value) ? single : clef__from_f16(clef__to_f16(single));
    case CLEF_BF16: return isnan(value) ? single : clef__from_bf16(clef__to_bf16(single));
    case CLEF_BOOL: return value != 0;
    case CLEF_U8: return low_byte(value);
    case CLEF_F32: return single;
    case CLEF_F64: return value;
    default: return trunc(clef__saturated(dtype, value));
    }
}

/* ---- the same value elsewhere ---- */

bool clef__view_all(const clef__node *node, const clef__layout *in, clef__layout *out) {
    (void)node;
    *out = *in;
    return true;
}

static void transfer_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                              clef_tensor **dx) {
    (void)y, (void)wanted;
    dx[0] = clef_to_device(g[0], clef_tensor_device(x[0]));
}

const clef_op clef__op_alias = {.name = "alias", .kind = CLEF__VIEW, .infer = clef__infer_like, .view = clef__view_all};
const clef_op clef__op_copy = {.name = "copy", .kind = CLEF__COPY, .infer = clef__infer_like, .gradient = same_gradient};
const clef_op clef__op_transfer = {
    .name = "transfer", .kind = CLEF__TRANSFER, .infer = clef__infer_like, .gradient = transfer_gradient};

clef_tensor *clef_detach(clef_tensor *t) {
    return !CLEF__GIVEN("detach", "t", t) ? NULL : clef__apply(&clef__op_alias, &t, 1, NULL, 0);
}

clef_tensor *clef_copy(clef_tensor *t) { return CLEF__GIVEN("copy", "t", t) ? clef__apply(&clef__op_copy, &t, 1, NULL, 0) : NULL; }

bool clef__check_device(clef_context *ctx, const char *op, int device) {
    int devices = clef__context_devices(ctx);
    if (device >= 0 && device < devices) return true;
    clef__fail(ctx, CLEF_INVALID, "%s: device %d of %d; open several with clef_options.device", op, device, devices);
    return false;
}

clef_tensor *clef_to_device(clef_tensor *t, int device) {
    if (!CLEF__GIVEN("to_device", "t", t)) return NULL;
    if (clef_tensor_device(t) == device) return t;
    clef_context *ctx = clef_tensor_context(t);
    if (!clef__check_device(ctx, "to_device", device)) return NULL;
    const clef__output *out = clef__output_of(t);
    if (clef__is_number(out)) return constant_of_bits(ctx, out->shape, out->dtype, device, out->node->dynamic.u[0]);
    int64_t attribute = device;
    return clef__apply(&clef__op_transfer, &t, 1, &attribute, sizeof attribute);
}

/* ---- the same value in another dtype ---- */

static bool cast_infer(clef__call *call) {
    call->out->shape = call->input[0]->shape;
    const int64_t *dtype = call->attributes;
    call->out->dtype = (clef_dtype)*dtype;
    return true;
}

static void cast_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                          clef_tensor **dx) {
    (void)wanted;
    clef_dtype from = clef_tensor_dtype(x[0]);
    if (clef__is_float(from) && clef__is_float(clef_tensor_dtype(y[0]))) dx[0] = clef__cast(g[0], from);
}

/* Its text depends on both dtypes: the plan writes it. */
const clef_op clef__op_cast = {
    .name = "to", .kind = CLEF__POINTWISE, .params = "x", .text = "CAST", .infer = cast_infer, .gradient = cast_gradient};

/* A constant's number in another dtype, as a tensor of it would be converted: i64 to the smaller floats through f32. */
static double converted(const clef__node *constant, clef_dtype dtype) {
    bool through_f32 = constant->out->dtype == CLEF_I64 && clef__is_float(dtype) && dtype != CLEF_F64;
    return clef__held(dtype, through_f32 ? (double)(float)constant->dynamic.i : clef__constant_number(constant));
}

/* Does the conversion keep some bits only?  Numbers saturate. */
static bool wraps(const clef__node *constant, clef_dtype dtype) {
    int64_t i = constant->dynamic.i;
    return constant->out->dtype == CLEF_I64 && ((dtype == CLEF_I32 && i != (int32_t)i) || (dtype == CLEF_U8 && i != (uint8_t)i));
}

clef_tensor *clef__cast(clef_tensor *x, clef_dtype dtype) {
    const clef__output *out = clef__output_of(x);
    if (out->dtype == dtype) return x;
    if (clef__is_number(out) && !wraps(out->node, dtype))
        return clef__constant(out->node->ctx, out->shape, dtype, out->device, converted(out->node, dtype));
    int64_t attribute = dtype;
    return clef__apply(&clef__op_cast, &x, 1, &attribute, sizeof attribute);
}

/* ---- rows of the tables ---- */

/* A gradient has the shape of its input, as nothing was broadcast. */
#define BINARY(...)
#define BINARY_CORE(name_, domain_, forward, da, db, ...)                                                                  \
    static void name_##_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *dy, const bool *wanted, \
                                 clef_tensor **dx) {                                                                       \
        clef_tensor *g = dy[0];                                                                                            \
        (void)x, (void)y, (void)wanted;                                                                                    \
        dx[0] = da, dx[1] = db;                                                                                            \
    }                                                                                                                      \
    const clef_op clef__op_##name_ = {.name = #name_,                                                                      \
                                      .kind = CLEF__POINTWISE,                                                             \
                                      .params = "ab",                                                                      \
                                      .text = #forward,                                                                    \
                                      .store = STORE_OF(name_),                                                            \
                                      .gradient = name_##_gradient};
#include "../../cl/binary.def"
