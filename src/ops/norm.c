/* norm.c — layer and batch normalisation and dropout; gradients of any order. */
#include "ops/ops.h"
#include "kernels/lanes.h"

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

/* Mean and biased variance over `dims`, which stay as 1, in one pass.  Sums are taken about the first element, so that a mean
   far from 0 costs no digits. */
static bool moments(clef_tensor *x, const int *dims, int n, clef_tensor **mean, clef_tensor **var) {
    clef_tensor *about = clef_detach(x), *first, *second;
    double count = 1;
    for (int i = 0; i < n; i++) {
        count *= (double)clef_tensor_shape(x).dim[dims[i]];
        about = clef_slice(about, dims[i], 0, 1, 1);
    }
    if (!clef__pair_of_sums(NULL, x, about, &first, &second)) return false;
    clef_tensor *off = clef_div_scalar(first, count);
    *mean = clef_add(about, off);
    *var = clef_relu(clef_sub(clef_div_scalar(second, count), clef_square(off))); /* rounding may go below 0 */
    return *mean && *var;
}

static clef_tensor *inverse_deviation(clef_tensor *var, double eps) { return clef_rsqrt(clef_add_scalar(var, eps)); }

/* ---- layer norm (Ba, Kiros, Hinton 2016) ----
   One kernel each way while a row stays in the cache (cl/norm.cl).  Longer rows, and gradients that will be differentiated again,
   are written in other expressions. */

enum { LONGEST_ROW = 1 << 16, PART_ROWS = 16, MOST_PARTS = 64 };

typedef struct layer_attributes {
    int64_t n_dims, parts; /* backward: into how many parts the rows are cut for the sums of weight and bias; 0: no sums */
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

static void launch_rows(const clef__lowering *lw, const char *kernel, clef_dtype dtype, int64_t n, bool affine) {
    clef__launch_lanes(lw, "norm.cl", kernel, dtype, n);
    clef__launch_define(lw, "AFFINE", "%d", affine);
}

static void lower_layer_norm(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    const layer_attributes *a = clef__attributes(node);
    bool affine = node->n_inputs == 3;
    int64_t n = row_length(node->out->shape, a->n_dims), rows = clef_shape_numel(node->out->shape) / n;
    clef__operand x = clef__lower_in_dense(lw, 0, NULL), w = affine ? clef__lower_in_dense(lw, 1, NULL) : x,
                  b = affine ? clef__lower_in_dense(lw, 2, NULL) : x, y = clef__lower_out(lw, NULL);
    clef__epilogue epilogue = clef__lower_epilogue(lw, y);
    launch_rows(lw, "normalise_rows", x.dtype, n, affine);
    clef__launch_tensor(lw, x, false);
    clef__launch_tensor(lw, w, false);
    clef__launch_tensor(lw, b, false);
    clef__launch_tensor(lw, y, true);
    clef__launch_long(lw, n);
    clef__launch_real(lw, a->eps);
    clef__launch_epilogue(lw, &epilogue, y);
    clef__launch_units(lw, rows, 4 * n);
}

/* Input x, g [, w] → dx and, where there are parts, for each of them its sums of g x̂ and of g. */
static bool infer_layer_backward(clef__call *call) {
    const layer_attributes *a = call->attributes;
    clef_shape shape = call->input[0]->shape;
    if (!takes_rows(call, call->n_inputs == 3 ? 2 : -1) ||
        !clef__infer_takes(call, clef__same_shape(call, 0, 1), "g has x's shape"))
        return false;
    int64_t n = row_length(shape, a->n_dims), rows = clef_shape_numel(shape) / n;
    if (!clef__infer_takes(call, a->parts >= 0 && a->parts <= rows, "there are no more parts than rows")) return false;
    call->out[0] = (clef__type){shape, call->input[0]->dtype};
    if (call->n_outputs > 1) call->out[1] = (clef__type){CLEF_SHAPE(a->parts, 2, n), call->input[0]->dtype};
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
                  w = affine ? clef__lower_in_dense(lw, 2, NULL) : x, dx = clef__lower_output(lw, 0, NULL),
                  sums = a->parts ? clef__lower_output(lw, 1, NULL) : dx;
    launch_rows(lw, "differentiate_rows", x.dtype, n, affine);
    clef__launch_tensor(lw, x, false);
    clef__launch_tensor(lw, g, false);
    clef__launch_tensor(lw, w, false);
    clef__launch_tensor(lw, dx, true);
    clef__launch_tensor(lw, sums, true);
    clef__launch_long(lw, n);
    clef__launch_long(lw, rows);
    clef__launch_long(lw, part);
    clef__launch_int(lw, a->parts > 0);
    clef__launch_real(lw, a->eps);
    clef__launch_units(lw, clef__ceil_div(rows, part), 8 * n * part);
}

static bool infer_layer_norm(clef__call *call) { return takes_rows(call, 1) && clef__infer_like(call); }

static const clef__strategy layer_strategies[] = {{.name = "rows", .lower = lower_layer_norm}, {0}};
static const clef__strategy layer_backward_strategies[] = {{.name = "rows", .lower = lower_layer_backward}, {0}};
static const clef_op op_layer_backward = {
    .name = "layer_norm_backward", .kind = CLEF__KERNEL, .infer = infer_layer_backward, .strategies = layer_backward_strategies};

static int last_dims(clef_tensor *x, int64_t n_dims, int *dims) {
    for (int i = 0; i < n_dims; i++) dims[i] = clef_tensor_shape(x).rank - (int)n_dims + i;
    return (int)n_dims;
}

/* Gradients of weight and bias from the backward op's sums. */
static void affine_gradients(clef_tensor *sums, clef_shape weight, const bool *wanted, clef_tensor **dx) {
    clef_tensor *both = clef_sum(sums, (int[]){0}, 1, false);
    for (int i = 1; i <= 2; i++)
        if (wanted[i]) dx[i] = clef_reshape(clef_slice(both, 0, i - 1, i, 1), weight);
}

/* dx, and where there is a weight those of weight and bias. */
static void layer_gradient_in_one(clef_tensor *const *x, clef_tensor *g, const layer_attributes *forward, const bool *wanted,
                                  clef_tensor **dx, bool affine) {
    clef_shape shape = clef_tensor_shape(x[0]);
    int64_t rows = clef_shape_numel(shape) / row_length(shape, forward->n_dims);
    layer_attributes a = *forward;
    if (affine && (wanted[1] || wanted[2])) a.parts = clef__smaller(clef__ceil_div(rows, PART_ROWS), MOST_PARTS);
    if (a.parts) a.parts = clef__ceil_div(rows, clef__ceil_div(rows, a.parts)); /* none of them empty */
    clef_tensor *in[] = {clef__to_wide(x[0]), clef__to_wide(g), affine ? x[1] : NULL};
    clef_tensor *out[2];
    if (!clef__apply_all(&op_layer_backward, in, affine ? 3 : 2, &a, sizeof a, out, a.parts ? 2 : 1)) return;
    if (wanted[0]) dx[0] = clef_to(out[0], clef_tensor_dtype(x[0]));
    if (a.parts) affine_gradients(out[1], clef_tensor_shape(x[1]), wanted, dx);
}

/* The same in expressions that have gradients: dx = (a - mean a - x̂ mean(a x̂)) / deviation with a = g w. */
static void layer_gradient_composed(clef_tensor *const *x, clef_tensor *g, const layer_attributes *forward, const bool *wanted,
                                    clef_tensor **dx, bool affine) {
    int dims[CLEF_MAX_RANK], n = last_dims(x[0], forward->n_dims, dims);
    clef_tensor *wide = clef__to_wide(x[0]), *mean, *var;
    g = clef__to_wide(g);
    if (!g || !wide || !moments(wide, dims, n, &mean, &var)) return;
    clef_tensor *scale = inverse_deviation(var, forward->eps), *a = affine ? clef_mul(g, x[1]) : g;
    clef_tensor *standard = normalise(wide, mean, scale, clef__number(clef_tensor_context(g), clef_tensor_dtype(g), 0));
    clef_tensor *along = clef_mul(standard, clef_mean(clef_mul(a, standard), dims, n, true));
    clef_tensor *slope = clef_mul(scale, clef_sub(clef_sub(a, clef_mean(a, dims, n, true)), along));
    if (wanted[0]) dx[0] = clef_to(slope, clef_tensor_dtype(x[0]));
    if (affine && wanted[1]) dx[1] = clef__sum_to(clef_mul(g, standard), clef_tensor_shape(x[1]));
    if (affine && wanted[2]) dx[2] = clef__sum_to(g, clef_tensor_shape(x[2]));
}

static void gradient_layer_norm(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                                clef_tensor **dx) {
    const layer_attributes *a = clef__attributes(clef__node_of(y[0]));
    bool affine = clef__node_of(y[0])->n_inputs == 3;
    (clef_grad_enabled(clef_tensor_context(y[0])) ? layer_gradient_composed : layer_gradient_in_one)(x, g[0], a, wanted, dx,
                                                                                                     affine);
}

static const clef_op op_layer_norm = {.name = "layer_norm",
                                      .kind = CLEF__KERNEL,
                                      .epilogue = true,
                                      .infer = infer_layer_norm,
                                      .gradient = gradient_layer_norm,
                                      .strategies = layer_strategies};

/* Rows that no cache holds. */
static clef_tensor *composed_layer_norm(clef_tensor *x, int n_dims, clef_tensor *weight, clef_tensor *bias, double eps) {
    int dims[CLEF_MAX_RANK], n = last_dims(x, n_dims, dims);
    clef_tensor *wide = clef__to_wide(x), *mean, *var;
    if (!moments(wide, dims, n, &mean, &var)) return NULL;
    clef_tensor *y =
        normalise(wide, mean, inverse_deviation(var, eps), clef__number(clef_tensor_context(x), clef_tensor_dtype(wide), 0));
    return clef_to(weight != CLEF_NONE ? clef_add(clef_mul(y, weight), bias) : y, clef_tensor_dtype(x));
}

/* weight and bias: both, or neither. */
static clef_tensor *layer_norm(clef_tensor *x, int n_dims, clef_tensor *weight, clef_tensor *bias, double eps) {
    bool affine = weight != CLEF_NONE;
    if (clef_numel(x) == 0) return affine ? clef_to(clef_add(clef_mul(x, weight), bias), clef_tensor_dtype(x)) : x;
    if (row_length(clef_tensor_shape(x), n_dims) > LONGEST_ROW) return composed_layer_norm(x, n_dims, weight, bias, eps);
    clef_dtype wide = clef_tensor_dtype(x) == CLEF_F64 ? CLEF_F64 : CLEF_F32;
    clef_tensor *in[] = {x, affine ? clef_to(weight, wide) : NULL, affine ? clef_to(bias, wide) : NULL};
    return clef__apply(&op_layer_norm, in, affine ? 3 : 1, &(layer_attributes){n_dims, 0, eps}, sizeof(layer_attributes));
}

static bool has_last_dims(clef_tensor *x, int n_dims) {
    clef_shape shape = clef_tensor_shape(x);
    if (n_dims >= 1 && n_dims <= shape.rank) return true;
    clef__refuse(clef_tensor_context(x), "layer_norm", CLEF_INVALID, "x %s has no %d last dimensions", clef__shape_text(shape),
                 n_dims);
    return false;
}

static bool fits_last_dims(clef_tensor *x, clef_shape last, const char *name, clef_tensor *t) {
    if (t == CLEF_NONE || clef_shape_equal(last, clef_tensor_shape(t))) return true;
    clef__refuse(clef_tensor_context(x), "layer_norm", CLEF_SHAPE, "%s %s must be %s, the last dimensions of x %s", name,
                 clef__shape_text(clef_tensor_shape(t)), clef__shape_text(last), clef__shape_text(clef_tensor_shape(x)));
    return false;
}

/* An absent weight is ones, an absent bias zeros, where what is done has no form without them. */
static clef_tensor *or_full(clef_tensor *t, clef_tensor *x, clef_shape shape, double value) {
    return t == CLEF_NONE ? clef_full(clef_tensor_context(x), shape, CLEF_F32, value) : t;
}

clef_tensor *clef_layer_norm(clef_tensor *x, int n_dims, clef_tensor *weight, clef_tensor *bias, double eps) {
    if (!CLEF__GIVEN("layer_norm", "x weight? bias?", x, weight, bias) || !has_last_dims(x, n_dims)) return NULL;
    clef_shape shape = clef_tensor_shape(x), last = {.rank = n_dims};
    for (int i = 0; i < n_dims; i++) last.dim[i] = shape.dim[shape.rank - n_dims + i];
    if (!fits_last_dims(x, last, "weight", weight) || !fits_last_dims(x, last, "bias", bias)) return NULL;
    x = clef__to_float(x);
    if (weight == CLEF_NONE && bias == CLEF_NONE) return layer_norm(x, n_dims, weight, bias, eps);
    return layer_norm(x, n_dims, or_full(weight, x, last, 1), or_full(bias, x, last, 0), eps);
}

/* ---- batch norm (Ioffe, Szegedy 2015) ---- */

static bool batch_norm_fits(clef_tensor *x, clef_tensor *const *channel, bool training) {
    clef_shape shape = clef_tensor_shape(x);
    if (shape.rank < 2) {
        clef__refuse(clef_tensor_context(x), "batch_norm", CLEF_SHAPE, "x %s is not [n,c,...]", clef__shape_text(shape));
        return false;
    }
    for (int i = 0; i < 4; i++) {
        clef_shape own = clef_tensor_shape(channel[i]);
        if (channel[i] == CLEF_NONE || (own.rank == 1 && own.dim[0] == shape.dim[1])) continue;
        static const char *const name[] = {"weight", "bias", "running_mean", "running_var"};
        clef__refuse(clef_tensor_context(x), "batch_norm", CLEF_SHAPE, "%s %s must be [%lld], the channels of x %s", name[i],
                     clef__shape_text(own), (long long)shape.dim[1], clef__shape_text(shape));
        return false;
    }
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

clef_tensor *clef_batch_norm(clef_tensor *x, clef_tensor *weight, clef_tensor *bias, clef_tensor *running_mean,
                             clef_tensor *running_var, bool training, double momentum, double eps) {
    if (!CLEF__GIVEN("batch_norm", "x weight? bias? running_mean running_var", x, weight, bias, running_mean, running_var))
        return NULL;
    x = clef__to_float(x);
    if (!batch_norm_fits(x, (clef_tensor *[]){weight, bias, running_mean, running_var}, training)) return NULL;
    clef_shape shape = clef_tensor_shape(x);
    weight = or_full(weight, x, clef_tensor_shape(running_mean), 1), bias = or_full(bias, x, clef_tensor_shape(running_mean), 0);
    clef_tensor *wide = clef__to_wide(x), *mean = clef__per_channel(running_mean, shape.rank),
                *var = clef__per_channel(running_var, shape.rank);
    if (training && clef_numel(x) > 0) {
        int dims[CLEF_MAX_RANK], n = 0;
        for (int i = 0; i < shape.rank; i++)
            if (i != 1) dims[n++] = i;
        double count = (double)(clef_shape_numel(shape) / shape.dim[1]);
        if (!moments(wide, dims, n, &mean, &var) || !update_running(running_mean, mean, momentum) ||
            !update_running(running_var, clef_mul_scalar(var, count / (count - 1)), momentum))
            return NULL;
    }
    clef_tensor *scale = clef_mul(inverse_deviation(var, eps), clef__per_channel(weight, shape.rank));
    return clef_to(normalise(wide, mean, scale, clef__per_channel(bias, shape.rank)), clef_tensor_dtype(x));
}

/* ---- dropout (Srivastava et al. 2014) ---- */

clef_tensor *clef_dropout(clef_tensor *x, double p) {
    if (!CLEF__GIVEN("dropout", "x", x)) return NULL;
    x = clef__to_float(x);
    if (!(p >= 0 && p <= 1)) return clef__refuse(clef_tensor_context(x), "dropout", CLEF_INVALID, "p = %g is no probability", p);
    if (p == 0) return x;
    clef_tensor *stays = clef_ge_scalar(clef_rand(clef_tensor_context(x), clef_tensor_shape(x)), p);
    clef_tensor *none = clef__number(clef_tensor_context(x), clef_tensor_dtype(x), 0);
    return clef_where(stays, clef_mul_scalar(x, p < 1 ? 1 / (1 - p) : 0), none);
}
