/* random.c — tensors from Philox counters, and regular ones (arange, eye).

   A random node takes its counters when it is made; seed and first counter reach the kernel as changing arguments, so every
   step draws new numbers with the same plan. */
#include "kernels/lanes.h"
#include "ops/ops.h"
#include <math.h>
#include <string.h>

/* ---- random ---- */

static void random_lower(const clef__lowering *lw, const char *kernel) {
    clef__operand y = clef__lower_out(lw, NULL);
    int64_t n = clef_shape_numel(clef__lower_node(lw)->out->shape);
    clef__launch_begin(lw, "random.cl", kernel);
    clef__launch_tensor(lw, y, true);
    clef__launch_dynamic(lw, 0);
    clef__launch_dynamic(lw, 1);
    clef__launch_long(lw, n);
    clef__launch_units(lw, (n + 3) / 4, 32);
}

static void uniform_lower(const clef__lowering *lw) { random_lower(lw, "random_uniform"); }
static void normal_lower(const clef__lowering *lw) { random_lower(lw, "random_normal"); }
static const clef__strategy uniform_strategies[] = {{.name = "philox", .lower = uniform_lower}, {0}};
static const clef__strategy normal_strategies[] = {{.name = "philox", .lower = normal_lower}, {0}};
static const clef_op op_rand = {.name = "rand", .kind = CLEF__KERNEL, .strategies = uniform_strategies};
static const clef_op op_randn = {.name = "randn", .kind = CLEF__KERNEL, .strategies = normal_strategies};

static clef_tensor *random_tensor(clef_context *ctx, const clef_op *op, clef_shape shape) {
    if (!ctx) return NULL;
    int64_t n = shape.rank >= 0 && shape.rank <= CLEF_MAX_RANK ? clef_shape_numel(shape) : -1;
    clef_random_state at = clef__random_take(ctx, n > 0 ? ((uint64_t)n + 3) / 4 : 0);
    return clef__source(ctx, op, shape, CLEF_F32, NULL, 0, at.seed, at.offset);
}

clef_tensor *clef_rand(clef_context *ctx, clef_shape shape) { return random_tensor(ctx, &op_rand, shape); }
clef_tensor *clef_randn(clef_context *ctx, clef_shape shape) { return random_tensor(ctx, &op_randn, shape); }

/* ---- counting ---- */

typedef struct arange_attributes {
    int64_t start, step; /* bits in the computing type */
} arange_attributes;

static int64_t bits_of(clef_dtype dtype, double value) {
    int64_t bits = 0;
    float narrow = (float)value;
    if (!clef__is_float(dtype)) return (int64_t)value;
    if (dtype == CLEF_F64) memcpy(&bits, &value, sizeof value);
    else memcpy(&bits, &narrow, sizeof narrow); /* low half on little-endian hosts, which OpenCL's are */
    return bits;
}

static void arange_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    const arange_attributes *a = clef__attributes(node);
    clef__operand y = clef__lower_out(lw, NULL);
    clef__launch_begin(lw, "index.cl", "count_up");
    clef__launch_define(lw, "DT", "%s", clef__token(node->out->dtype));
    clef__launch_tensor(lw, y, true);
    clef__launch_long(lw, a->start);
    clef__launch_long(lw, a->step);
    clef__launch_units(lw, clef_shape_numel(node->out->shape), 1);
}

static const clef__strategy arange_strategies[] = {{.name = "count", .lower = arange_lower}, {0}};
static const clef_op op_arange = {.name = "arange", .kind = CLEF__KERNEL, .strategies = arange_strategies};

clef_tensor *clef_arange(clef_context *ctx, double start, double stop, double step, clef_dtype dtype) {
    if (!ctx) return NULL;
    if ((int)dtype < 0 || dtype >= CLEF_DTYPE_COUNT || dtype == CLEF_BOOL)
        return clef__refuse(ctx, "arange", CLEF_DTYPE, "dtype %d does not count", (int)dtype);
    double n = ceil((stop - start) / step);
    if (!(step != 0) || !isfinite(start) || !isfinite(step) || !(n < 0x1p62))
        return clef__refuse(ctx, "arange", CLEF_INVALID, "from %g to %g in steps of %g never ends", start, stop, step);
    if (!clef__is_float(dtype) && (start != trunc(start) || step != trunc(step) || fabs(start) >= 0x1p62 || fabs(step) >= 0x1p62))
        return clef__refuse(ctx, "arange", CLEF_INVALID, "start %g and step %g must be whole for %s", start, step,
                            clef_dtype_name(dtype));
    arange_attributes a = {bits_of(dtype, start), bits_of(dtype, step)};
    return clef__source(ctx, &op_arange, CLEF_SHAPE(n > 0 ? (int64_t)n : 0), dtype, &a, sizeof a, 0, 0);
}

clef_tensor *clef_eye(clef_context *ctx, int64_t n, clef_dtype dtype) {
    if (!ctx) return NULL;
    if (n < 0) return clef__refuse(ctx, "eye", CLEF_INVALID, "n = %lld is negative", (long long)n);
    clef_tensor *i = clef_arange(ctx, 0, (double)n, 1, CLEF_I64);
    return clef_to(clef_eq(clef_unsqueeze(i, 1), i), dtype);
}
