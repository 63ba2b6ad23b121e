/* norm.c — layer and batch normalisation and dropout, written in other expressions, so their gradients follow. */
#include "ops/sums.h"

/* ---- what all of them share ---- */

static const clef_op op_normalise;

/* y = (x − m)·s + b:  dx = g s,  ds = Σ g (x − m),  db = Σ g,  dm = −s Σ g.  The sums run where m is 1 long; s and b have m's
   shape, or want no gradient. */
static void gradient_normalise(clef_tensor *const *x, clef_tensor *y, clef_tensor *g, const bool *wanted, clef_tensor **dx) {
    (void)y;
    clef_tensor *plain, *far;
    if (wanted[0]) dx[0] = clef_mul(g, x[2]);
    if (!(wanted[1] || wanted[2] || wanted[3]) || !clef__pair_of_sums(g, x[0], x[1], &plain, &far)) return;
    if (wanted[1]) dx[1] = clef_neg(clef_mul(x[2], plain));
    if (wanted[2]) dx[2] = far;
    if (wanted[3]) dx[3] = plain;
}

static const clef_op op_normalise = {.name = "normalise", .doc = "(x - mean) times scale plus shift", .kind = CLEF__POINTWISE,
                                     .params = "xmsb", .text = "(x - m) * s + b", .gradient = gradient_normalise};

/* scale and shift: of mean's shape, or scalars without gradient; all of x's dtype after this. */
static clef_tensor *normalise(clef_tensor *x, clef_tensor *mean, clef_tensor *scale, clef_tensor *shift) {
    clef_dtype dtype = clef_tensor_dtype(x);
    return clef__apply(&op_normalise, (clef_tensor *[]){x, clef_to(mean, dtype), clef_to(scale, dtype), clef_to(shift, dtype)}, 4, NULL, 0);
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

/* ---- layer norm (Ba, Kiros, Hinton 2016) ---- */

static clef_tensor *layer_norm(clef_tensor *x, int n_dims) {
    if (!x) return NULL;
    int rank = clef_tensor_shape(x).rank;
    if (n_dims < 1 || n_dims > rank)
        return clef__refuse(x->ctx, "layer_norm", CLEF_INVALID, "x %s has no %d last dimensions",
                            clef__shape_text(clef_tensor_shape(x)), n_dims);
    return clef__to_wide(x);
}

static clef_tensor *layer_standardised(clef_tensor *wide, int n_dims, double eps) {
    if (!wide) return NULL;
    int rank = clef_tensor_shape(wide).rank, dims[CLEF_MAX_RANK];
    for (int i = 0; i < n_dims; i++) dims[i] = rank - n_dims + i;
    if (clef_numel(wide) == 0) return wide;
    clef_tensor *mean, *var;
    if (!moments(wide, dims, n_dims, &mean, &var)) return NULL;
    return normalise(wide, mean, inverse_deviation(var, eps), clef__number(wide->ctx, clef_tensor_dtype(wide), 0));
}

clef_tensor *clef_layer_norm_plain(clef_tensor *x, int n_dims, double eps) {
    x = clef__to_float(x);
    clef_tensor *wide = layer_norm(x, n_dims);
    return wide ? clef_to(layer_standardised(wide, n_dims, eps), clef_tensor_dtype(x)) : NULL;
}

clef_tensor *clef_layer_norm(clef_tensor *x, int n_dims, clef_tensor *weight, clef_tensor *bias, double eps) {
    x = clef__to_float(x);
    clef_tensor *wide = weight && bias ? layer_norm(x, n_dims) : NULL;
    if (!wide) return NULL;
    clef_shape shape = clef_tensor_shape(x), last = { .rank = n_dims };
    for (int i = 0; i < n_dims; i++) last.dim[i] = shape.dim[shape.rank - n_dims + i];
    if (!clef_shape_equal(last, clef_tensor_shape(weight)) || !clef_shape_equal(last, clef_tensor_shape(bias)))
        return clef__refuse(x->ctx, "layer_norm", CLEF_SHAPE, "weight %s and bias %s must be %s, the last dimensions of x %s",
                            clef__shape_text(clef_tensor_shape(weight)), clef__shape_text(clef_tensor_shape(bias)),
                            clef__shape_text(last), clef__shape_text(shape));
    clef_tensor *y = clef_add(clef_mul(layer_standardised(wide, n_dims, eps), weight), bias);
    return clef_to(y, clef_tensor_dtype(x));
}

/* ---- batch norm (Ioffe, Szegedy 2015) ---- */

static bool batch_norm_fits(clef_tensor *x, clef_tensor *const *channel, bool training) {
    clef_shape shape = clef_tensor_shape(x);
    if (shape.rank < 2) {
        clef__refuse(x->ctx, "batch_norm", CLEF_SHAPE, "x %s is not [n,c,...]", clef__shape_text(shape));
        return false;
    }
    for (int i = 0; i < 4; i++) {
        clef_shape own = clef_tensor_shape(channel[i]);
        if (own.rank == 1 && own.dim[0] == shape.dim[1]) continue;
        static const char *const name[] = { "weight", "bias", "running_mean", "running_var" };
        clef__refuse(x->ctx, "batch_norm", CLEF_SHAPE, "%s %s must be [%lld], the channels of x %s", name[i], clef__shape_text(own),
                     (long long)shape.dim[1], clef__shape_text(shape));
        return false;
    }
    if (training && shape.dim[1] > 0 && clef_shape_numel(shape) / shape.dim[1] < 2) {
        clef__refuse(x->ctx, "batch_norm", CLEF_SHAPE, "training needs more than one value per channel (x %s)", clef__shape_text(shape));
        return false;
    }
    return true;
}

static bool update_running(clef_tensor *running, clef_tensor *now, double momentum) {
    bool ok = false;
    for (CLEF_NO_GRAD(running->ctx)) {
        clef_tensor *fresh = clef_mul_scalar(clef_detach(clef_reshape(now, clef_tensor_shape(running))), momentum);
        ok = clef_assign(running, clef_add(clef_mul_scalar(running, 1 - momentum), fresh)) == CLEF_OK;
    }
    return ok;
}

clef_tensor *clef_batch_norm(clef_tensor *x, clef_tensor *weight, clef_tensor *bias, clef_tensor *running_mean,
                             clef_tensor *running_var, bool training, double momentum, double eps) {
    x = clef__to_float(x);
    if (!x || !weight || !bias || !running_mean || !running_var) return NULL;
    if (!batch_norm_fits(x, (clef_tensor *[]){ weight, bias, running_mean, running_var }, training)) return NULL;
    clef_shape shape = clef_tensor_shape(x);
    clef_tensor *wide = clef__to_wide(x), *mean = clef__per_channel(running_mean, shape.rank),
                *var = clef__per_channel(running_var, shape.rank);
    if (training && clef_numel(x) > 0) {
        int dims[CLEF_MAX_RANK], n = 0;
        for (int i = 0; i < shape.rank; i++)
            if (i != 1) dims[n++] = i;
        double count = (double)(clef_shape_numel(shape) / shape.dim[1]);
        if (!moments(wide, dims, n, &mean, &var) || !update_running(running_mean, mean, momentum) ||
            !update_running(running_var, clef_mul_scalar(var, count / (count - 1)), momentum)) return NULL;
    }
    clef_tensor *scale = clef_mul(inverse_deviation(var, eps), clef__per_channel(weight, shape.rank));
    return clef_to(normalise(wide, mean, scale, clef__per_channel(bias, shape.rank)), clef_tensor_dtype(x));
}

/* ---- dropout (Srivastava et al. 2014) ---- */

clef_tensor *clef_dropout(clef_tensor *x, double p) {
    x = clef__to_float(x);
    if (!x) return NULL;
    if (!(p >= 0 && p <= 1)) return clef__refuse(x->ctx, "dropout", CLEF_INVALID, "p = %g is no probability", p);
    if (p == 0) return x;
    clef_tensor *stays = clef_ge_scalar(clef_rand(x->ctx, clef_tensor_shape(x)), p);
    clef_tensor *none = clef__number(x->ctx, clef_tensor_dtype(x), 0);
    return clef_where(stays, clef_mul_scalar(x, p < 1 ? 1 / (1 - p) : 0), none);
}
