/* random.c — tensors from Philox counters, draws by weight, and regular tensors (arange, eye).

   A random node takes its counters when it is made; seed and first counter reach the kernel as changing arguments, so every
   step draws new numbers with the same plan. */
#include "draw.args"
#include "index.args"
#include "kernels/args.h"
#include "kernels/lanes.h"
#include "ops/ops.h"
#include "random.args"
#include <float.h>
#include <math.h>
#include <string.h>

CLEF__ARGS(random_floats, RANDOM_FLOATS_ARGS)
CLEF__ARGS(random_whole, RANDOM_WHOLE_ARGS)
CLEF__ARGS(whole_weights, WHOLE_WEIGHTS_ARGS)
CLEF__ARGS(draw, DRAW_ARGS)
CLEF__ARGS(race, RACE_ARGS)
CLEF__ARGS(count_up, COUNT_UP_ARGS)

/* ---- random ---- */

static void random_lower(const clef__lowering *lw, const char *kernel) {
    clef__operand y = clef__lower_out(lw, NULL);
    int64_t n = clef_shape_numel(clef__lower_node(lw)->out->shape);
    int lanes = clef__lower_profile(lw)->wide_items ? clef__lower_profile(lw)->vector : 1;
    clef__launch_begin(lw, "random.cl", kernel);
    clef__launch_define(lw, "W", "%d", lanes);
    random_floats_args args = {.y = y, .n = n, .units = clef__lower_units(lw, clef__ceil_div(n, 4 * lanes), 32 * lanes)};
    pass_random_floats(lw, &args);
    clef__launch_end_units(lw, args.units);
}

static void uniform_lower(const clef__lowering *lw) { random_lower(lw, "random_uniform"); }
static void normal_lower(const clef__lowering *lw) { random_lower(lw, "random_normal"); }
static const clef__strategy *const uniform_strategies[] = {&(const clef__strategy){.name = "philox", .lower = uniform_lower}, NULL};
static const clef__strategy *const normal_strategies[] = {&(const clef__strategy){.name = "philox", .lower = normal_lower}, NULL};
static const clef_op op_rand = {.name = "rand", .kind = CLEF__KERNEL, .strategies = uniform_strategies};
static const clef_op op_randn = {.name = "randn", .kind = CLEF__KERNEL, .strategies = normal_strategies};

/* per: elements from one counter. */
static clef_tensor *random_tensor(clef_context *ctx, const clef_op *op, clef_shape shape, clef_dtype dtype, int device,
                                  uint64_t per, const void *attributes, size_t bytes) {
    if (!ctx) return NULL;
    int64_t n = shape.rank >= 0 && shape.rank <= CLEF_MAX_RANK ? clef_shape_numel(shape) : -1;
    clef_random_state at = clef__random_take(ctx, n > 0 ? ((uint64_t)n + per - 1) / per : 0);
    return clef__source(ctx, op, shape, dtype, device, attributes, bytes, at.seed, at.offset);
}

clef_tensor *clef_rand(clef_context *ctx, clef_shape shape) { return random_tensor(ctx, &op_rand, shape, CLEF_F32, 0, 4, NULL, 0); }
clef_tensor *clef_randn(clef_context *ctx, clef_shape shape) {
    return random_tensor(ctx, &op_randn, shape, CLEF_F32, 0, 4, NULL, 0);
}
static clef_tensor *beside(clef_tensor *x, const clef_op *op) {
    return random_tensor(clef_tensor_context(x), op, clef_tensor_shape(x), CLEF_F32, clef_tensor_device(x), 4, NULL, 0);
}
clef_tensor *clef__rand_like(clef_tensor *x) { return beside(x, &op_rand); }

/* n elements beside x of a sequence that has `all`, from element `first` on.  They begin within a block of four. */
static clef_tensor *uniform_window(clef_tensor *x, int64_t first, int64_t n, int64_t all) {
    clef_context *ctx = clef_tensor_context(x);
    clef_random_state at = clef__random_take(ctx, ((uint64_t)all + 3) / 4);
    int64_t skipped = n ? first % 4 : 0;
    clef_tensor *blocks = clef__source(ctx, &op_rand, CLEF_SHAPE(skipped + n), CLEF_F32, clef_tensor_device(x), NULL, 0, at.seed,
                                       at.offset + (uint64_t)first / 4);
    return clef_reshape(skipped ? clef_slice(blocks, 0, skipped, skipped + n, 1) : blocks, clef_tensor_shape(x));
}

clef_tensor *clef__rand_items(clef_tensor *x) {
    clef__share share = clef__window_of(clef_tensor_context(x));
    clef_shape shape = clef_tensor_shape(x);
    if (!x || share.all == share.items || shape.rank == 0 || shape.dim[0] != share.items) return clef__rand_like(x);
    int64_t each = 1;
    for (int d = 1; d < shape.rank; d++) each *= shape.dim[d];
    return uniform_window(x, share.first * each, share.items * each, share.all * each);
}

clef_tensor *clef__randn_like(clef_tensor *x) { return beside(x, &op_randn); }

static clef_tensor *like(clef_tensor *x, const clef_op *op) {
    clef_context *ctx = clef_tensor_context(x);
    clef_dtype dtype = clef_tensor_dtype(x);
    if (!clef__is_float(dtype))
        return clef__refuse(ctx, op->name, CLEF_DTYPE, "like a tensor of %s; random numbers need a floating dtype",
                            clef_dtype_name(dtype));
    return clef_to(beside(x, op), dtype);
}

clef_tensor *clef_rand_like(clef_tensor *x) { return CLEF__GIVEN("rand_like", "x", x) ? like(x, &op_rand) : NULL; }
clef_tensor *clef_randn_like(clef_tensor *x) { return CLEF__GIVEN("randn_like", "x", x) ? like(x, &op_randn) : NULL; }

/* ---- random whole numbers ---- */

typedef struct whole_attributes {
    int64_t low, range; /* range: high - low modulo 2^64; 0: all numbers of 64 bits */
} whole_attributes;

static void whole_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    const whole_attributes *a = clef__attributes(node);
    clef__operand y = clef__lower_out(lw, NULL);
    int64_t n = clef_shape_numel(node->out->shape);
    clef__launch_begin(lw, "random.cl", "random_whole");
    clef__launch_define(lw, "W", "1");
    random_whole_args args = {.y = y, .low = a->low, .range = a->range, .n = n, .units = clef__lower_units(lw, (n + 1) / 2, 32)};
    pass_random_whole(lw, &args);
    clef__launch_end_units(lw, args.units);
}

static const clef__strategy *const whole_strategies[] = {&(const clef__strategy){.name = "philox", .lower = whole_lower}, NULL};
static const clef_op op_randint = {.name = "randint", .kind = CLEF__KERNEL, .strategies = whole_strategies};

static clef_tensor *random_whole(clef_context *ctx, int64_t low, uint64_t range, clef_shape shape, int device) {
    whole_attributes a = {low, (int64_t)range};
    return random_tensor(ctx, &op_randint, shape, CLEF_I64, device, 2, &a, sizeof a);
}

clef_tensor *clef_randint(clef_context *ctx, int64_t low, int64_t high, clef_shape shape) {
    if (!ctx) return NULL;
    if (low >= high)
        return clef__refuse(ctx, "randint", CLEF_INVALID, "there is no whole number in [%lld, %lld)", (long long)low,
                            (long long)high);
    return random_whole(ctx, low, (uint64_t)high - (uint64_t)low, shape, 0);
}

/* ---- draws by weight: see cl/draw.cl ---- */

static int64_t row_of(const clef__node *node) {
    clef_shape x = node->input[0]->shape;
    return x.dim[x.rank - 1];
}

/* Weights [..., n] and the largest of each row [..., 1]. */
static bool takes_weights(clef__call *call) {
    clef_shape x = call->input[0]->shape, top = call->input[1]->shape;
    bool fits = x.rank > 0 && top.rank == x.rank && top.dim[x.rank - 1] == 1 && call->input[0]->dtype == call->input[1]->dtype;
    for (int i = 0; fits && i < x.rank - 1; i++) fits = x.dim[i] == top.dim[i];
    return clef__infer_takes(call, fits, "top has a weight for each row");
}

static bool whole_weights_infer(clef__call *call) {
    *call->out = (clef__type){call->input[0]->shape, CLEF_I64};
    return takes_weights(call);
}

static bool race_infer(clef__call *call) {
    *call->out = (clef__type){call->input[0]->shape, CLEF_F32};
    return takes_weights(call) && clef__infer_takes(call, clef__same_shape(call, 0, 2) && call->input[2]->dtype == CLEF_I64,
                                                    "there are random bits for each weight");
}

static bool draw_infer(clef__call *call) {
    clef_shape sums = call->input[0]->shape, bits = call->input[1]->shape;
    bool fits = sums.rank > 0 && bits.rank == sums.rank && sums.dim[sums.rank - 1] > 0;
    for (int i = 0; fits && i < sums.rank - 1; i++) fits = sums.dim[i] == bits.dim[i];
    *call->out = (clef__type){bits, CLEF_I64};
    return clef__infer_takes(call, fits && call->input[0]->dtype == CLEF_I64 && call->input[1]->dtype == CLEF_I64,
                             "there is a row of sums for each row of random bits");
}

/* Begins a launch over all inputs x, each row-major, and the output, which it returns. */
static clef__operand begin_draw(const clef__lowering *lw, const char *kernel, clef_dtype dtype, clef__operand x[3]) {
    const clef__node *node = clef__lower_node(lw);
    clef__operand y = clef__lower_out(lw, NULL);
    for (int i = 0; i < node->n_inputs; i++) x[i] = clef__lower_in_dense(lw, i, NULL);
    clef__launch_begin(lw, "draw.cl", kernel);
    clef__launch_define(lw, "DT", "%s", clef__token(dtype));
    return y;
}

/* The elements of the output. */
static clef__units elements_of(const clef__lowering *lw, int64_t work) {
    return clef__lower_units(lw, clef_shape_numel(clef__lower_node(lw)->out->shape), work);
}

/* As many bits as leave the sum of n within 62. */
static void whole_weights_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    int64_t n = row_of(node);
    int bits = 62;
    for (int64_t most = 1; most < n; most *= 2) bits--;
    clef__operand x[3], y = begin_draw(lw, "whole_weights", node->input[0]->dtype, x);
    whole_weights_args args = {.x = x[0], .top = x[1], .y = y, .bits = bits, .n = n, .units = elements_of(lw, 4)};
    pass_whole_weights(lw, &args);
    clef__launch_end_units(lw, args.units);
}

static void race_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    clef__operand x[3], y = begin_draw(lw, "race", node->input[0]->dtype, x);
    race_args args = {.x = x[0], .top = x[1], .random = x[2], .y = y, .n = row_of(node), .units = elements_of(lw, 64)};
    pass_race(lw, &args);
    clef__launch_end_units(lw, args.units);
}

static void draw_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    clef_shape shape = node->out->shape;
    clef__operand x[3], y = begin_draw(lw, "draw", CLEF_F32, x);
    draw_args args = {
        .sums = x[0], .random = x[1], .y = y, .n = row_of(node), .draws = shape.dim[shape.rank - 1], .units = elements_of(lw, 64)};
    pass_draw(lw, &args);
    clef__launch_end_units(lw, args.units);
}

#define DRAW_OP(op) \
    { .name = "multinomial", .kind = CLEF__KERNEL, .infer = op##_infer, .strategies = op##_strategies }
static const clef__strategy *const whole_weights_strategies[] = {
    &(const clef__strategy){.name = "whole", .lower = whole_weights_lower}, NULL};
static const clef__strategy *const race_strategies[] = {&(const clef__strategy){.name = "race", .lower = race_lower}, NULL};
static const clef__strategy *const draw_strategies[] = {&(const clef__strategy){.name = "search", .lower = draw_lower}, NULL};
static const clef_op op_whole_weights = DRAW_OP(whole_weights), op_race = DRAW_OP(race), op_draw = DRAW_OP(draw);

clef_tensor *clef__random_bits_beside(clef_tensor *x, clef_shape shape) {
    return random_whole(clef_tensor_context(x), 0, 0, shape, clef_tensor_device(x));
}

static clef_tensor *draw_with_replacement(clef_tensor *x, clef_tensor *top, clef_shape shape) {
    clef_tensor *whole = clef__apply(&op_whole_weights, (clef_tensor *[]){x, top}, 2, NULL, 0);
    return clef__apply(&op_draw, (clef_tensor *[]){clef_cumsum(whole, -1), clef__random_bits_beside(x, shape)}, 2, NULL, 0);
}

/* Scores of 0 are of weights of 0. */
static clef_tensor *draw_without_replacement(clef_tensor *x, clef_tensor *top, int64_t n) {
    clef_tensor *in[] = {x, top, clef__random_bits_beside(x, clef_tensor_shape(x))}, *score, *at;
    if (clef_topk(clef__apply(&op_race, in, 3, NULL, 0), n, -1, true, &score, &at) != CLEF_OK) return NULL;
    return clef_where(clef_gt_scalar(score, 0), at, clef__number(clef_tensor_context(x), CLEF_I64, -1));
}

clef_tensor *clef_multinomial(clef_tensor *weights, int64_t n, bool replacement) {
    if (!CLEF__GIVEN("multinomial", "weights", weights)) return NULL;
    clef_context *ctx = clef_tensor_context(weights);
    clef_shape shape = clef_tensor_shape(weights);
    int last = shape.rank - 1;
    if (last < 0 || shape.dim[last] == 0)
        return clef__refuse(ctx, "multinomial", CLEF_SHAPE, "weights %s is not [..., k] with k > 0", clef__shape_text(shape));
    if (n < 0 || (!replacement && n > shape.dim[last]))
        return clef__refuse(ctx, "multinomial", CLEF_INVALID, "%lld draws from %lld weights%s", (long long)n,
                            (long long)shape.dim[last], n < 0 ? "" : "; more need replacement");
    shape.dim[last] = n;
    if (!clef__check_type(ctx, "multinomial", shape, CLEF_I64, 0)) return NULL;
    clef_tensor *x = clef_detach(clef__to_wide(weights));
    bool is_double = clef_tensor_dtype(x) == CLEF_F64;
    x = clef_where(clef_gt_scalar(x, 0), clef_clamp(x, 0, is_double ? DBL_MAX : FLT_MAX),
                   clef__number(ctx, clef_tensor_dtype(x), 0));
    clef_tensor *top = clef_max(x, &last, 1, true);
    return replacement ? draw_with_replacement(x, top, shape) : draw_without_replacement(x, top, n);
}

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
    count_up_args args = {
        .y = y, .start = a->start, .increment = a->step, .units = clef__lower_units(lw, clef_shape_numel(node->out->shape), 1)};
    pass_count_up(lw, &args);
    clef__launch_end_units(lw, args.units);
}

static const clef__strategy *const arange_strategies[] = {&(const clef__strategy){.name = "count", .lower = arange_lower}, NULL};
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
    return clef__source(ctx, &op_arange, CLEF_SHAPE(n > 0 ? (int64_t)n : 0), dtype, 0, &a, sizeof a, 0, 0);
}

clef_tensor *clef__count_beside(clef_tensor *x, int64_t n, clef_dtype dtype) {
    arange_attributes a = {bits_of(dtype, 0), bits_of(dtype, 1)};
    return clef__source(clef_tensor_context(x), &op_arange, CLEF_SHAPE(n), dtype, clef_tensor_device(x), &a, sizeof a, 0, 0);
}

clef_tensor *clef_eye(clef_context *ctx, int64_t n, clef_dtype dtype) {
    if (!ctx) return NULL;
    if (n < 0) return clef__refuse(ctx, "eye", CLEF_INVALID, "n = %lld is negative", (long long)n);
    clef_tensor *i = clef_arange(ctx, 0, (double)n, 1, CLEF_I64);
    return clef_to(clef_eq(clef_unsqueeze(i, 1), i), dtype);
}
