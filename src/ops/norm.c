/* norm.c — layer, root-mean-square, batch and group normalisation and dropout; gradients of any order. */
#include "ops/ops.h"
#include "kernels/args.h"
#include "kernels/lanes.h"
#include "norm.args"
#include <math.h>

CLEF__ARGS(normalise_rows, NORMALISE_ROWS_ARGS)
CLEF__ARGS(differentiate_rows, DIFFERENTIATE_ROWS_ARGS)

/* ---- what all of them share ---- */

static const clef_op op_normalise;

/* x, m, s, b: m and s have one shape, of x's rank, and are 1 or as long as x; b has it too, or is a number. */
static bool infer_normalise(clef__call *call) {
    clef_shape x = call->input[0]->shape, m = call->input[1]->shape;
    bool fits = m.rank == x.rank, number = call->input[3]->shape.rank == 0 && !call->input[3]->requires_grad;
    for (int i = 0; fits && i < x.rank; i++) fits = m.dim[i] == x.dim[i] || m.dim[i] == 1;
    return clef__infer_takes(call, fits, "the mean has x's rank and is 1 or as long") &&
           clef__infer_takes(call, clef__same_shape(call, 1, 2), "mean and scale have one shape") &&
           clef__infer_takes(call, number || clef__same_shape(call, 1, 3), "mean and shift have one shape") &&
           clef__infer_like(call);
}

/* y = (x − m)·s + b:  dx = g s,  ds = Σ g (x − m),  db = Σ g,  dm = −s Σ g.  The sums run where m is 1 long. */
static void gradient_normalise(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                               clef_tensor **dx) {
    (void)y;
    clef_tensor *plain, *far;
    if (wanted[0]) dx[0] = clef_mul(g[0], x[2]);
    if (!(wanted[1] || wanted[2] || wanted[3]) || !clef__pair_of_sums(g[0], x[0], x[1], &plain, &far)) return;
    if (wanted[1]) dx[1] = clef_neg(clef_mul(x[2], plain));
    if (wanted[2]) dx[2] = far;
    if (wanted[3]) dx[3] = plain;
}

static const clef_op op_normalise = {.name = "normalise",
                                     .kind = CLEF__POINTWISE,
                                     .params = "xmsb",
                                     .text = "(x - m) * s + b",
                                     .infer = infer_normalise,
                                     .gradient = gradient_normalise};

/* Brings mean, scale and shift to x's dtype. */
static clef_tensor *normalise(clef_tensor *x, clef_tensor *mean, clef_tensor *scale, clef_tensor *shift) {
    clef_dtype dtype = clef_tensor_dtype(x);
    return clef__apply(&op_normalise, (clef_tensor *[]){x, clef_to(mean, dtype), clef_to(scale, dtype), clef_to(shift, dtype)}, 4,
                       NULL, 0);
}

enum { SAMPLE = 256 };

/* The mean of some elements, the first along each of `dims`, which stay as 1. */
static clef_tensor *sample_mean(clef_tensor *x, const int *dims, int n) {
    clef_tensor *some = clef_detach(x);
    int64_t most = SAMPLE;
    for (int i = n - 1; i >= 0; i--) {
        int64_t here = clef__larger(1, clef__smaller(clef_tensor_shape(x).dim[dims[i]], most));
        some = clef_slice(some, dims[i], 0, here, 1);
        most /= here;
    }
    return clef_mean(some, dims, n, true);
}

/* Mean and biased variance over `dims`, which stay as 1, in one pass.  Sums are taken about the mean of some elements, so that neither
   a mean far from 0 nor one element far from the others costs digits: a single one would, and be the first. */
static bool moments(clef_tensor *x, const int *dims, int n, clef_tensor **mean, clef_tensor **var) {
    clef_tensor *about = sample_mean(x, dims, n), *first, *second;
    double count = 1;
    for (int i = 0; i < n; i++) count *= (double)clef_tensor_shape(x).dim[dims[i]];
    if (!clef__pair_of_sums(NULL, x, about, &first, &second)) return false;
    clef_tensor *off = clef_div_scalar(first, count);
    *mean = clef_add(about, off);
    /* Rounding may go below 0.  At 0 the gradient passes: it is 0 there, but its own gradient is not. */
    *var = clef_clamp(clef_sub(clef_div_scalar(second, count), clef_square(off)), 0, INFINITY);
    return *mean && *var;
}

static clef_tensor *inverse_deviation(clef_tensor *var, double eps) { return clef_rsqrt(clef_add_scalar(var, eps)); }

/* ---- layer norm (Ba, Kiros, Hinton 2016), RMS norm (Zhang, Sennrich 2019) ----
   One kernel each way while a row stays in the cache (cl/norm.cl).  Longer rows, and gradients that will be differentiated again,
   are written in other expressions.  RMS norm is layer norm that is not centred: its mean is 0, and it has no bias. */

enum { LONGEST_ROW = 1 << 16, MOST_HELD = 8 /* with as many of weight and bias on their way, 16 would spill */ };

typedef struct layer_attributes {
    int64_t n_dims, parts; /* backward: into how many parts the rows are cut for the sums of weight and bias; 0: no sums */
    int64_t centred;
    double eps;
} layer_attributes;

static int64_t row_length(clef_shape shape, int64_t n_dims) {
    int64_t n = 1;
    for (int i = shape.rank - (int)n_dims; i < shape.rank; i++) n *= shape.dim[i];
    return n;
}

/* Inputs from `weight` on (-1: none) are as long as a row of input 0, which has some. */
static bool takes_rows(clef__call *call, int weight) {
    int64_t n_dims = ((const layer_attributes *)call->attributes)->n_dims;
    clef_shape x = call->input[0]->shape;
    bool fits = n_dims >= 1 && n_dims <= x.rank && clef_shape_numel(x) > 0;
    for (int i = weight; fits && i > 0 && i < call->n_inputs; i++)
        fits = clef_shape_numel(call->input[i]->shape) == row_length(x, n_dims);
    return clef__infer_takes(call, fits, "weight and bias fit rows of x");
}

static void launch_rows(const clef__lowering *lw, const char *kernel, clef_dtype dtype, int64_t n, int affine) {
    const layer_attributes *a = clef__attributes(clef__lower_node(lw));
    clef__launch_rows(lw, "norm.cl", kernel, dtype, n);
    clef__launch_held(lw, dtype, n, MOST_HELD);
    clef__launch_define(lw, "AFFINE", "%d", affine);
    clef__launch_define(lw, "CENTRED", "%d", (int)a->centred);
}

static void lower_layer_norm(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    const layer_attributes *a = clef__attributes(node);
    int affine = node->n_inputs - 1;
    int64_t n = row_length(node->out->shape, a->n_dims), rows = clef_shape_numel(node->out->shape) / n;
    clef__operand x = clef__lower_in_dense(lw, 0, NULL), w = affine ? clef__lower_in_dense(lw, 1, NULL) : x,
                  b = affine > 1 ? clef__lower_in_dense(lw, 2, NULL) : x, y = clef__lower_out(lw, NULL);
    clef__epilogue epilogue = clef__lower_epilogue(lw, y);
    launch_rows(lw, "normalise_rows", x.dtype, n, affine);
    clef__units units = clef__lower_rows(lw, rows, n, 4 * n);
    normalise_rows_args args = {.x = x, .w = w, .b = b, .y = y, .n = n, .eps = a->eps, .epilogue = epilogue, .units = units};
    pass_normalise_rows(lw, &args);
    clef__launch_end_rows(lw, n, units);
}

/* Input x, g [, w] → dx and, where there are parts, the sums of each: of g x̂ and, where centred, of g. */
static bool infer_layer_backward(clef__call *call) {
    const layer_attributes *a = call->attributes;
    clef_shape shape = call->input[0]->shape;
    if (!takes_rows(call, call->n_inputs == 3 ? 2 : -1) ||
        !clef__infer_takes(call, clef__same_shape(call, 0, 1), "g has x's shape"))
        return false;
    int64_t n = row_length(shape, a->n_dims), rows = clef_shape_numel(shape) / n;
    if (!clef__infer_takes(call, a->parts >= 0 && a->parts <= rows, "there are no more parts than rows")) return false;
    call->out[0] = (clef__type){shape, call->input[0]->dtype};
    for (int i = 1; i < call->n_outputs; i++) call->out[i] = (clef__type){CLEF_SHAPE(a->parts, n), call->input[0]->dtype};
    return true;
}

static void lower_layer_backward(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    const layer_attributes *a = clef__attributes(node);
    clef_shape shape = node->input[0]->shape;
    bool affine = node->n_inputs == 3;
    int64_t n = row_length(shape, a->n_dims), rows = clef_shape_numel(shape) / n,
            part = a->parts ? clef__ceil_div(rows, a->parts) : 1;
    clef__operand x = clef__lower_in_dense(lw, 0, NULL), g = clef__lower_in_dense(lw, 1, NULL),
                  w = affine ? clef__lower_in_dense(lw, 2, NULL) : x, dx = clef__lower_output(lw, 0, NULL), sums[] = {dx, dx};
    int wants = 0;
    for (int i = 1; i < node->n_outputs; i++)
        if (clef__lower_wants(lw, i)) sums[i - 1] = clef__lower_output(lw, i, NULL), wants |= 1 << (i - 1);
    launch_rows(lw, "differentiate_rows", x.dtype, n, affine);
    clef__launch_define(lw, "SUMS", "%d", wants);
    /* clang-format off */
    differentiate_rows_args args = {
        .x = x, .g = g, .w = w, .dx = dx, .dw = sums[0], .db = sums[1], .n = n, .rows = rows, .part = part,
        .eps = a->eps, .epilogue = clef__lower_epilogue(lw, dx), .units = clef__lower_rows(lw, clef__ceil_div(rows, part), n, 8 * n * part),
    };
    /* clang-format on */
    pass_differentiate_rows(lw, &args);
    clef__launch_end_rows(lw, n, args.units);
}

/* x [, weight [, bias]]: a bias only where centred. */
static bool infer_layer_norm(clef__call *call) {
    const layer_attributes *a = call->attributes;
    return clef__infer_takes(call, call->n_inputs <= (a->centred ? 3 : 2), "a bias is added where rows are centred") &&
           takes_rows(call, 1) && clef__infer_like(call);
}

static const clef__strategy *const layer_strategies[] = {&(const clef__strategy){.name = "rows", .lower = lower_layer_norm}, NULL};
static const clef__strategy *const layer_backward_strategies[] = {
    &(const clef__strategy){.name = "rows", .lower = lower_layer_backward}, NULL};
static const clef_op op_layer_backward = {.name = "layer_norm_backward",
                                          .kind = CLEF__KERNEL,
                                          .epilogue = true,
                                          .infer = infer_layer_backward,
                                          .strategies = layer_backward_strategies};
static const clef_op op_rms_backward = {.name = "rms_norm_backward",
                                        .kind = CLEF__KERNEL,
                                        .epilogue = true,
                                        .infer = infer_layer_backward,
                                        .strategies = layer_backward_strategies};

static int last_dims(clef_tensor *x, int64_t n_dims, int *dims) {
    for (int i = 0; i < n_dims; i++) dims[i] = clef_tensor_shape(x).rank - (int)n_dims + i;
    return (int)n_dims;
}

/* Into how many parts rows are cut, none of them empty: each has sums of its own, which are written and read once more.  A part is a work-item's
   on a CPU and a work-group's on a GPU, of which hundreds are wanted, as far as the sums of long rows do not take much memory. */
static int64_t count_parts(clef_tensor *x, int64_t rows, int64_t n) {
    bool wide = clef__device_profile(clef__device_at(clef_tensor_context(x), clef_tensor_device(x)))->wide_items;
    int64_t most = wide ? 64 : clef__larger(clef__smaller(512, (1 << 21) / n), 64);
    int64_t parts = clef__smaller(clef__ceil_div(rows, wide ? 16 : 4), most);
    return parts ? clef__ceil_div(rows, clef__ceil_div(rows, parts)) : 0;
}

/* dx, and those of weight and bias, as far as there are n inputs. */
static void layer_gradient_in_one(clef_tensor *const *x, int n, clef_tensor *g, const layer_attributes *forward, const bool *wanted,
                                  clef_tensor **dx) {
    bool affine = n > 1;
    clef_shape shape = clef_tensor_shape(x[0]);
    int64_t rows = clef_shape_numel(shape) / row_length(shape, forward->n_dims);
    layer_attributes a = *forward;
    if (affine && (wanted[1] || (n > 2 && wanted[2]))) a.parts = count_parts(x[0], rows, row_length(shape, forward->n_dims));
    clef_tensor *in[] = {clef__to_wide(x[0]), clef__to_wide(g), affine ? x[1] : NULL};
    clef_tensor *out[3];
    const clef_op *op = a.centred ? &op_layer_backward : &op_rms_backward;
    if (!clef__apply_all(op, in, affine ? 3 : 2, &a, sizeof a, out, a.parts ? n : 1)) return;
    if (wanted[0]) dx[0] = clef_to(out[0], clef_tensor_dtype(x[0]));
    for (int i = 1; i < n; i++)
        if (wanted[i]) dx[i] = clef_reshape(clef_sum(out[i], (int[]){0}, 1, false), clef_tensor_shape(x[i]));
}

/* x̂ of wide rows in expressions that have gradients, and the factor that x has in it; NULL when it failed. */
static clef_tensor *standardise(clef_tensor *wide, const layer_attributes *a, clef_tensor **scale) {
    if (!wide) return NULL;
    int dims[CLEF_MAX_RANK], n = last_dims(wide, a->n_dims, dims);
    clef_tensor *mean, *var;
    if (!a->centred) {
        *scale = inverse_deviation(clef_mean(clef_square(wide), dims, n, true), a->eps);
        return clef_mul(wide, *scale);
    }
    if (!moments(wide, dims, n, &mean, &var)) return NULL;
    *scale = inverse_deviation(var, a->eps);
    return normalise(wide, mean, *scale, clef__number(clef_tensor_context(wide), clef_tensor_dtype(wide), 0));
}

/* The same in expressions that have gradients: dx = (a - mean a - x̂ mean(a x̂)) / deviation with a = g w. */
static void layer_gradient_composed(clef_tensor *const *x, int n_inputs, clef_tensor *g, const layer_attributes *forward,
                                    const bool *wanted, clef_tensor **dx) {
    int dims[CLEF_MAX_RANK], n = last_dims(x[0], forward->n_dims, dims);
    clef_tensor *scale, *standard = standardise(clef__to_wide(x[0]), forward, &scale);
    g = clef__to_wide(g);
    if (!g || !standard) return;
    clef_tensor *a = n_inputs > 1 ? clef_mul(g, x[1]) : g;
    clef_tensor *along = clef_mul(standard, clef_mean(clef_mul(a, standard), dims, n, true));
    clef_tensor *across = forward->centred ? clef_sub(a, clef_mean(a, dims, n, true)) : a;
    clef_tensor *slope = clef_mul(scale, clef_sub(across, along));
    if (wanted[0]) dx[0] = clef_to(slope, clef_tensor_dtype(x[0]));
    if (n_inputs > 1 && wanted[1]) dx[1] = clef__sum_to(clef_mul(g, standard), clef_tensor_shape(x[1]));
    if (n_inputs > 2 && wanted[2]) dx[2] = clef__sum_to(g, clef_tensor_shape(x[2]));
}

static void gradient_layer_norm(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                                clef_tensor **dx) {
    const clef__node *node = clef__node_of(y[0]);
    (clef_grad_enabled(node->ctx) ? layer_gradient_composed : layer_gradient_in_one)(x, node->n_inputs, g[0],
                                                                                     clef__attributes(node), wanted, dx);
}

static const clef_op op_layer_norm = {.name = "layer_norm",
                                      .precision = CLEF__FULL_PRECISION,
                                      .kind = CLEF__KERNEL,
                                      .epilogue = true,
                                      .infer = infer_layer_norm,
                                      .gradient = gradient_layer_norm,
                                      .strategies = layer_strategies};

static const clef_op op_rms_norm = {.name = "rms_norm",
                                    .precision = CLEF__FULL_PRECISION,
                                    .kind = CLEF__KERNEL,
                                    .epilogue = true,
                                    .infer = infer_layer_norm,
                                    .gradient = gradient_layer_norm,
                                    .strategies = layer_strategies};

/* y · weight + bias, where these are there. */
static clef_tensor *affinely(clef_tensor *y, clef_tensor *weight, clef_tensor *bias) {
    if (weight != CLEF_NONE) y = clef_mul(y, weight);
    return bias != CLEF_NONE ? clef_add(y, bias) : y;
}

/* No bias without a weight, nor where not centred.  Nothing to normalise, and rows that no cache holds, are composed. */
static clef_tensor *layer_norm(clef_tensor *x, clef_tensor *weight, clef_tensor *bias, const layer_attributes *a) {
    clef_dtype dtype = clef_tensor_dtype(x), wide = dtype == CLEF_F64 ? CLEF_F64 : CLEF_F32;
    clef_tensor *in[3] = {x}, *scale;
    int n = 1;
    if (clef_numel(x) == 0) return clef_to(affinely(x, weight, bias), dtype);
    if (row_length(clef_tensor_shape(x), a->n_dims) > LONGEST_ROW) {
        clef_tensor *y = standardise(clef__to_wide(x), a, &scale);
        return y ? clef_to(affinely(y, weight, bias), dtype) : NULL;
    }
    if (weight != CLEF_NONE) in[n++] = clef_to(weight, wide);
    if (bias != CLEF_NONE) in[n++] = clef_to(bias, wide);
    return clef__apply(a->centred ? &op_layer_norm : &op_rms_norm, in, n, a, sizeof *a);
}

static bool has_last_dims(clef_tensor *x, const char *op, int n_dims) {
    clef_shape shape = clef_tensor_shape(x);
    if (n_dims >= 1 && n_dims <= shape.rank) return true;
    clef__refuse(clef_tensor_context(x), op, CLEF_INVALID, "x %s has no %d last dimensions", clef__shape_text(shape), n_dims);
    return false;
}

static bool fits_last_dims(clef_tensor *x, const char *op, clef_shape last, const char *name, clef_tensor *t) {
    if (t == CLEF_NONE || clef_shape_equal(last, clef_tensor_shape(t))) return true;
    clef__refuse(clef_tensor_context(x), op, CLEF_SHAPE, "%s %s must be %s, the last dimensions of x %s", name,
                 clef__shape_text(clef_tensor_shape(t)), clef__shape_text(last), clef__shape_text(clef_tensor_shape(x)));
    return false;
}

/* An absent weight is ones, an absent bias zeros, where what is done has no form without them. */
static clef_tensor *or_full(clef_tensor *t, clef_tensor *x, clef_shape shape, double value) {
    return t == CLEF_NONE ? clef__constant(clef_tensor_context(x), shape, CLEF_F32, clef_tensor_device(x), value) : t;
}

static clef_shape last_shape(clef_tensor *x, int n_dims) {
    clef_shape shape = clef_tensor_shape(x);
    return clef__shape_of(n_dims, shape.dim + shape.rank - n_dims);
}

clef_tensor *clef_layer_norm(clef_tensor *x, int n_dims, clef_tensor *weight, clef_tensor *bias, double eps) {
    if (!CLEF__GIVEN("layer_norm", "x weight? bias?", x, weight, bias) || !has_last_dims(x, "layer_norm", n_dims)) return NULL;
    clef_shape last = last_shape(x, n_dims);
    if (!fits_last_dims(x, "layer_norm", last, "weight", weight) || !fits_last_dims(x, "layer_norm", last, "bias", bias))
        return NULL;
    x = clef__autocast(clef__to_float(x), CLEF__FULL_PRECISION);
    if (!x) return NULL;
    if (bias != CLEF_NONE) weight = or_full(weight, x, last, 1);
    return layer_norm(x, weight, bias, &(layer_attributes){.n_dims = n_dims, .centred = true, .eps = eps});
}

clef_tensor *clef_rms_norm(clef_tensor *x, int n_dims, clef_tensor *weight, double eps) {
    if (!CLEF__GIVEN("rms_norm", "x weight?", x, weight) || !has_last_dims(x, "rms_norm", n_dims) ||
        !fits_last_dims(x, "rms_norm", last_shape(x, n_dims), "weight", weight))
        return NULL;
    x = clef__autocast(clef__to_float(x), CLEF__FULL_PRECISION);
    return x ? layer_norm(x, weight, CLEF_NONE, &(layer_attributes){.n_dims = n_dims, .eps = eps}) : NULL;
}

/* ---- batch norm (Ioffe, Szegedy 2015) ---- */

/* Is x [n,c,...], and are these of weight, bias, running mean and variance [c] or absent? */
static bool channels_fit(clef_tensor *x, const char *op, clef_tensor *const *channel, int n) {
    clef_shape shape = clef_tensor_shape(x);
    if (shape.rank < 2) {
        clef__refuse(clef_tensor_context(x), op, CLEF_SHAPE, "x %s is not [n,c,...]", clef__shape_text(shape));
        return false;
    }
    for (int i = 0; i < n; i++) {
        clef_shape own = clef_tensor_shape(channel[i]);
        if (channel[i] == CLEF_NONE || (own.rank == 1 && own.dim[0] == shape.dim[1])) continue;
        static const char *const name[] = {"weight", "bias", "running_mean", "running_var"};
        clef__refuse(clef_tensor_context(x), op, CLEF_SHAPE, "%s %s must be [%lld], the channels of x %s", name[i],
                     clef__shape_text(own), (long long)shape.dim[1], clef__shape_text(shape));
        return false;
    }
    return true;
}

static bool batch_norm_fits(clef_tensor *x, clef_tensor *const *channel, bool training) {
    clef_shape shape = clef_tensor_shape(x);
    if (!channels_fit(x, "batch_norm", channel, 4)) return false;
    if (training && clef_shape_numel(shape) > 0 && clef_shape_numel(shape) / shape.dim[1] < 2) {
        clef__refuse(clef_tensor_context(x), "batch_norm", CLEF_SHAPE, "training needs more than one value per channel (x %s)",
                     clef__shape_text(shape));
        return false;
    }
    return true;
}

static bool update_running(clef_tensor *running, clef_tensor *now, double momentum) {
    bool ok = false;
    for (CLEF_NO_GRAD(clef_tensor_context(running))) {
        clef_tensor *fresh = clef_mul_scalar(clef_detach(clef_reshape(now, clef_tensor_shape(running))), momentum);
        ok = clef_assign(running, clef_add(clef_mul_scalar(running, 1 - momentum), fresh)) == CLEF_OK;
    }
    return ok;
}

bool clef__channel_statistics(void *user, clef_tensor *wide, clef__statistics *s) {
    (void)user;
    clef_shape shape = clef_tensor_shape(wide);
    int dims[CLEF_MAX_RANK], n = 0;
    for (int i = 0; i < shape.rank; i++)
        if (i != 1) dims[n++] = i;
    double count = (double)(clef_shape_numel(shape) / shape.dim[1]);
    if (!moments(wide, dims, n, &s->mean, &s->var)) return false;
    s->unbiased = clef_mul_scalar(s->var, count > 1 ? count / (count - 1) : 1);
    return s->unbiased;
}

clef_tensor *clef__batch_norm(clef_tensor *x, const clef__batch_norm_tensors *t, const clef__batch_norm_mode *mode) {
    clef_tensor *weight = t->weight, *bias = t->bias;
    if (!CLEF__GIVEN("batch_norm", "x weight? bias? running_mean running_var", x, weight, bias, t->running_mean, t->running_var))
        return NULL;
    x = clef__to_float(x);
    if (!batch_norm_fits(x, (clef_tensor *[]){weight, bias, t->running_mean, t->running_var}, mode->training && !mode->statistics))
        return NULL;
    clef_shape shape = clef_tensor_shape(x), channels = clef_tensor_shape(t->running_mean);
    weight = or_full(weight, x, channels, 1), bias = or_full(bias, x, channels, 0);
    clef_tensor *wide = clef__to_wide(x);
    clef__statistics s = {.mean = clef__per_channel(t->running_mean, shape.rank),
                          .var = clef__per_channel(t->running_var, shape.rank)};
    if (mode->training && (mode->statistics || clef_numel(x) > 0)) {
        clef__statistics_fn statistics = mode->statistics ? mode->statistics : clef__channel_statistics;
        if (!wide || !statistics(mode->user, wide, &s) || !update_running(t->running_mean, s.mean, mode->momentum) ||
            !update_running(t->running_var, s.unbiased, mode->momentum))
            return NULL;
    }
    clef_tensor *scale = clef_mul(inverse_deviation(s.var, mode->eps), clef__per_channel(weight, shape.rank));
    return clef_to(normalise(wide, s.mean, scale, clef__per_channel(bias, shape.rank)), clef_tensor_dtype(x));
}

clef_tensor *clef_batch_norm(clef_tensor *x, clef_tensor *weight, clef_tensor *bias, clef_tensor *running_mean,
                             clef_tensor *running_var, bool training, double momentum, double eps) {
    return clef__batch_norm(x, &(clef__batch_norm_tensors){weight, bias, running_mean, running_var},
                            &(clef__batch_norm_mode){.training = training, .momentum = momentum, .eps = eps});
}

/* ---- group norm (Wu, He 2018), instance norm (Ulyanov, Vedaldi, Lempitsky 2016) ---- */

static bool groups_fit(clef_tensor *x, const char *op, int64_t groups) {
    clef_shape shape = clef_tensor_shape(x);
    if (groups >= 1 && shape.dim[1] % groups == 0) return true;
    clef__refuse(clef_tensor_context(x), op, CLEF_SHAPE, "%lld groups do not divide the %lld channels of x %s", (long long)groups,
                 (long long)shape.dim[1], clef__shape_text(shape));
    return false;
}

/* The channels of a group are a dimension of their own: mean and variance are over them and what follows, weight and bias are one
   number for each. */
static clef_tensor *group_norm(clef_tensor *x, const char *op, int64_t groups, clef_tensor *weight, clef_tensor *bias, double eps) {
    if (!CLEF__GIVEN(op, "x weight? bias?", x, weight, bias) || !channels_fit(x, op, (clef_tensor *[]){weight, bias}, 2) ||
        !groups_fit(x, op, groups) || !(x = clef__autocast(clef__to_float(x), CLEF__FULL_PRECISION)))
        return NULL;
    clef_shape shape = clef_tensor_shape(x);
    if (clef_numel(x) == 0) {
        if (weight != CLEF_NONE) weight = clef__per_channel(weight, shape.rank);
        if (bias != CLEF_NONE) bias = clef__per_channel(bias, shape.rank);
        return clef_to(affinely(x, weight, bias), clef_tensor_dtype(x));
    }
    int64_t n = shape.dim[0], each = shape.dim[1] / groups;
    clef_shape channels = CLEF_SHAPE(1, groups, each, 1), all = CLEF_SHAPE(n, groups, each, 1);
    clef_tensor *wide = clef_reshape(clef__to_wide(x), CLEF_SHAPE(n, groups, each, -1)), *mean, *var;
    if (!wide || !moments(wide, (int[]){2, 3}, 2, &mean, &var)) return NULL;
    clef_tensor *scale = clef_expand(inverse_deviation(var, eps), all),
                *none = clef__number(clef_tensor_context(x), clef_tensor_dtype(wide), 0);
    if (weight != CLEF_NONE) scale = clef_mul(scale, clef_reshape(weight, channels));
    clef_tensor *shift = bias == CLEF_NONE ? none : clef_expand(clef_reshape(bias, channels), all);
    return clef_to(clef_reshape(normalise(wide, clef_expand(mean, all), scale, shift), shape), clef_tensor_dtype(x));
}

clef_tensor *clef_group_norm(clef_tensor *x, int64_t groups, clef_tensor *weight, clef_tensor *bias, double eps) {
    return group_norm(x, "group_norm", groups, weight, bias, eps);
}

clef_tensor *clef_instance_norm(clef_tensor *x, clef_tensor *weight, clef_tensor *bias, double eps) {
    return group_norm(x, "instance_norm", clef__larger(clef_tensor_shape(x).dim[1], 1), weight, bias, eps);
}

/* ---- dropout (Srivastava et al. 2014) ---- */

clef_tensor *clef_dropout(clef_tensor *x, double p) {
    if (!CLEF__GIVEN("dropout", "x", x)) return NULL;
    x = clef__to_float(x);
    if (!(p >= 0 && p <= 1)) return clef__refuse(clef_tensor_context(x), "dropout", CLEF_INVALID, "p = %g is no probability", p);
    if (p == 0) return x;
    clef_tensor *stays = clef_ge_scalar(clef__rand_items(x), p);
    clef_tensor *none = clef__number(clef_tensor_context(x), clef_tensor_dtype(x), 0);
    return clef_where(stays, clef_mul_scalar(x, p < 1 ? 1 / (1 - p) : 0), none);
}
