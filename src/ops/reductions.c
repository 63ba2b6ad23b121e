/* reductions.c — sums and their kin.

   A reduce node keeps the reduced dimensions as 1; the public functions drop them by a view. */
#include "kernels/reduce.h"
#include "ops/ops.h"
#include <math.h>
#include <string.h>

/* ---- the ops ---- */

typedef struct reduce_attributes {
    int64_t mask; /* bit d: dimension d is reduced */
} reduce_attributes;

typedef struct reduce_op {
    clef_op op;
    const char *token;    /* of reduce.cl */
    double of_nothing;    /* what changes no result: a float; whole numbers have their own ends */
    bool widens, divides; /* whole numbers give i64; the sum is divided by the count */
} reduce_op;

static bool reduce_infer(clef__call *call) {
    const reduce_op *op = (const reduce_op *)call->op;
    const reduce_attributes *a = call->attributes;
    clef_shape from = call->input[0]->shape;
    if (!clef__infer_takes(call, a->mask >= 0 && a->mask >> from.rank == 0, "x has the dimensions")) return false;
    call->out->dtype = call->input[0]->dtype;
    if (op->widens && !clef__is_float(call->out->dtype)) call->out->dtype = CLEF_I64;
    call->out->shape = from;
    for (int i = 0; i < from.rank; i++)
        if (a->mask >> i & 1) call->out->shape.dim[i] = 1;
    return true;
}

/* What is joined: wide enough for the result. */
static clef_dtype joined_dtype(const reduce_op *op, clef_dtype dtype) {
    if (dtype == CLEF_F64) return CLEF_F64;
    if (clef__is_float(dtype)) return CLEF_F32;
    return op->widens || dtype == CLEF_I64 ? CLEF_I64 : CLEF_I32;
}

/* ∓inf of maxima and minima is the smallest and the largest number that a dtype has. */
static double of_nothing(const reduce_op *op, clef_dtype dtype) {
    if (!isinf(op->of_nothing)) return op->of_nothing;
    if (dtype == CLEF_BOOL || dtype == CLEF_U8) return op->of_nothing < 0 ? 0 : dtype == CLEF_U8 ? UINT8_MAX : 1;
    return clef__saturated(dtype, op->of_nothing);
}

static void reduce_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    const reduce_op *op = (const reduce_op *)node->op;
    clef__lower_reduction(lw, &(clef__reduction_spec){.token = op->token,
                                                      .mask = ((const reduce_attributes *)clef__attributes(node))->mask,
                                                      .joined = joined_dtype(op, node->input[0]->dtype),
                                                      .divides = op->divides,
                                                      .of_nothing = of_nothing(op, node->out->dtype)});
}

static const clef__strategy *const reduce_strategies[] = {&(const clef__strategy){.name = "stages", .lower = reduce_lower}, NULL};

/* ---- gradients ---- */

static int64_t mask_of(clef_tensor *y) { return ((const reduce_attributes *)clef__attributes(clef__node_of(y)))->mask; }

static void sum_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                         clef_tensor **dx) {
    (void)y, (void)wanted;
    dx[0] = clef_expand(g[0], clef_tensor_shape(x[0]));
}

/* g / n.  What begins a backward pass is a number and stays one, which takes no launch. */
static clef_tensor *share_gradient(clef_tensor *g, int64_t n) {
    const clef__output *out = clef__output_of(g);
    if (!clef__is_number(out) || clef_dtype_size(out->dtype) < sizeof(float)) return clef_div_scalar(g, (double)n);
    return clef__constant(clef_tensor_context(g), out->shape, out->dtype, out->device,
                          clef__constant_number(out->node) / (double)n);
}

static void mean_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                          clef_tensor **dx) {
    (void)wanted;
    clef_shape shape = clef_tensor_shape(x[0]);
    dx[0] = clef_expand(share_gradient(g[0], clef__reduced_count(shape, mask_of(y[0]))), shape);
}

static clef_tensor *sum_over(clef_tensor *x, int64_t mask);

/* Equals share the gradient; of half types there may be more than those can count. */
static void extreme_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                             clef_tensor **dx) {
    (void)wanted;
    clef_dtype dtype = clef_tensor_dtype(x[0]);
    clef_tensor *chosen = clef_eq(x[0], y[0]), *wide = clef__to_wide(g[0]);
    clef_tensor *count = sum_over(clef_to(chosen, clef_tensor_dtype(wide)), mask_of(y[0]));
    dx[0] = clef_mul(clef_to(chosen, dtype), clef_to(clef_div(wide, count), dtype));
}

/* The product of the others: y/x without zeros; with one zero only that element has any. */
static void prod_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                          clef_tensor **dx);

#define REDUCE_OP(name_, precision_, token_, of_nothing_, widens_, divides_, gradient_) \
    static const reduce_op reduce_##name_ = {                                           \
        .op = {.name = #name_,                                                          \
               .precision = precision_,                                                 \
               .kind = CLEF__KERNEL,                                                    \
               .prologue = true,                                                        \
               .infer = reduce_infer,                                                   \
               .gradient = gradient_,                                                   \
               .strategies = reduce_strategies},                                        \
        .token = token_,                                                                \
        .of_nothing = of_nothing_,                                                      \
        .widens = widens_,                                                              \
        .divides = divides_,                                                            \
    };
REDUCE_OP(sum, CLEF__FULL_PRECISION, "SUM", 0, true, false, sum_gradient)
REDUCE_OP(mean, CLEF__AS_GIVEN, "SUM", NAN, false, true, mean_gradient)
REDUCE_OP(max, CLEF__AS_GIVEN, "LARGEST", -INFINITY, false, false, extreme_gradient)
REDUCE_OP(min, CLEF__AS_GIVEN, "SMALLEST", INFINITY, false, false, extreme_gradient)
REDUCE_OP(prod, CLEF__FULL_PRECISION, "PRODUCT", 1, true, false, prod_gradient)

static clef_tensor *reduce_over(const reduce_op *op, clef_tensor *x, int64_t mask) {
    return clef__apply(&op->op, &x, 1, &(reduce_attributes){mask}, sizeof(reduce_attributes));
}

static clef_tensor *sum_over(clef_tensor *x, int64_t mask) { return reduce_over(&reduce_sum, x, mask); }

enum { MOST_FACTORS = 1024 };

/* Of each factor the product of the others, in a form that can be differentiated wherever zeros are: n times n of them. */
static clef_tensor *products_of_others(clef_tensor *x, int64_t mask) {
    clef_shape shape = clef_tensor_shape(x), moved = {.rank = shape.rank};
    int order[CLEF_MAX_RANK], back[CLEF_MAX_RANK], at = 0;
    for (int reduced = 0; reduced < 2; reduced++)
        for (int d = 0; d < shape.rank; d++)
            if ((mask >> d & 1) == reduced) moved.dim[at] = shape.dim[d], back[d] = at, order[at++] = d;
    int64_t n = clef__reduced_count(shape, mask), rows = clef_shape_numel(shape) / n;
    clef_tensor *flat = clef_reshape(clef_permute(x, order), CLEF_SHAPE(rows, 1, n)), *i = clef__count_beside(x, n, CLEF_I32);
    clef_tensor *own = clef_eq(clef_unsqueeze(i, 0), clef_unsqueeze(i, 1)),
                *one = clef__number(clef_tensor_context(x), clef_tensor_dtype(x), 1);
    clef_tensor *others = clef_where(own, one, clef_expand(flat, CLEF_SHAPE(rows, n, n)));
    return clef_permute(clef_reshape(reduce_over(&reduce_prod, others, 4), moved), back);
}

static void prod_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                          clef_tensor **dx) {
    (void)wanted;
    clef_dtype dtype = clef_tensor_dtype(x[0]);
    int64_t n = clef__reduced_count(clef_tensor_shape(x[0]), mask_of(y[0]));
    if (clef_grad_enabled(clef_tensor_context(x[0])) && n > 1 && n <= MOST_FACTORS && clef_numel(x[0]) > 0) {
        dx[0] = clef_mul(g[0], products_of_others(x[0], mask_of(y[0])));
        return;
    }
    clef_tensor *zero = clef_eq_scalar(x[0], 0), *one = clef__number(clef_tensor_context(y[0]), dtype, 1),
                *none = clef__number(clef_tensor_context(y[0]), dtype, 0);
    clef_tensor *zeros = sum_over(clef_to(zero, CLEF_I32), mask_of(y[0]));
    clef_tensor *safe = clef_where(zero, one, x[0]), *rest = reduce_over(&reduce_prod, safe, mask_of(y[0]));
    clef_tensor *alone = clef_logical_and(zero, clef_eq_scalar(zeros, 1));
    clef_tensor *slope = clef_where(clef_eq_scalar(zeros, 0), clef_div(rest, safe), clef_where(alone, rest, none));
    dx[0] = clef_mul(g[0], slope);
}

/* ---- public ---- */

/* Bits of the dimensions in dims; all for n = 0; -1 after refusing.  A scalar has one dimension to name, of 1. */
static int64_t dims_mask(clef_tensor *x, const char *op, const int *dims, int n) {
    if (!CLEF__GIVEN(op, "x", x)) return -1;
    int64_t mask = 0, all = ((int64_t)1 << clef_tensor_shape(x).rank) - 1;
    int rank = clef__nameable_dims(x);
    if (n < 0 || (n && !dims)) {
        clef__refuse(clef_tensor_context(x), op, CLEF_INVALID, n < 0 ? "%d dimensions" : "%d dimensions in a NULL array", n);
        return -1;
    }
    if (n == 0) return all;
    for (int i = 0; i < n; i++) {
        int d = dims[i];
        if (!clef__normalize_dim(rank, &d) || mask >> d & 1) {
            clef__refuse(clef_tensor_context(x), op, CLEF_INVALID, "dimension %d is out of range or there twice (x %s)", dims[i],
                         clef__shape_text(clef_tensor_shape(x)));
            return -1;
        }
        mask |= (int64_t)1 << d;
    }
    return mask & all;
}

int clef__nameable_dims(clef_tensor *x) { return (int)clef__larger(clef_tensor_shape(x).rank, 1); }

static clef_tensor *drop_dims(clef_tensor *y, int64_t mask, bool keep) {
    if (!y || keep) return y;
    clef_shape from = clef_tensor_shape(y), to = {0};
    for (int i = 0; i < from.rank; i++)
        if (!(mask >> i & 1)) to.dim[to.rank++] = from.dim[i];
    return clef_reshape(y, to);
}

static clef_tensor *reduce(const reduce_op *op, clef_tensor *x, const int *dims, int n, bool keep) {
    int64_t mask = dims_mask(x, op->op.name, dims, n);
    return mask < 0 ? NULL : drop_dims(reduce_over(op, x, mask), mask, keep);
}

bool clef__is_of_empty_share(clef_tensor *x) {
    clef_context *ctx = clef_tensor_context(x); /* of NULL, after a failure: none */
    return ctx && clef_numel(x) == 0 && clef__has_empty_share(ctx);
}

clef_tensor *clef_sum(clef_tensor *x, const int *dims, int n, bool keep) { return reduce(&reduce_sum, x, dims, n, keep); }
clef_tensor *clef_mean(clef_tensor *x, const int *dims, int n, bool keep) {
    return reduce(clef__is_of_empty_share(x) ? &reduce_sum : &reduce_mean, clef__to_float(x), dims, n, keep);
}
clef_tensor *clef_max(clef_tensor *x, const int *dims, int n, bool keep) { return reduce(&reduce_max, x, dims, n, keep); }
clef_tensor *clef_min(clef_tensor *x, const int *dims, int n, bool keep) { return reduce(&reduce_min, x, dims, n, keep); }
clef_tensor *clef_prod(clef_tensor *x, const int *dims, int n, bool keep) { return reduce(&reduce_prod, x, dims, n, keep); }

/* What numbers are taken about: x · scale (NULL: x) less its first element less the mean of that, so that a large mean costs no
   digits. */
typedef struct around {
    clef_tensor *x, *scale, *first, *mean;
    bool anew; /* whoever reads it computes it where it reads: a number for each row or column repeats as prologues want it */
} around;

static clef_tensor *scaled(clef_tensor *x, const around *a) { return a->scale ? clef_mul(x, a->scale) : x; }

/* y, which was just made, is computed after z, and so not together with an equal one before it (src/plan/passes/simplify.c). */
static clef_tensor *made_after(clef_tensor *y, clef_tensor *z) {
    clef__output *of = y && z ? clef__output_of(y) : NULL;
    if (!of || clef__computed(of) || of->node->after) return y;
    of->node->after = clef__output_of(z);
    clef__output_retain(of->node->after);
    return y;
}

/* Of `anew`, nodes of its own after z, as what two read would lie in memory. */
static clef_tensor *far_of(const around *a, clef_tensor *z) {
    if (!a->anew) z = NULL;
    clef_tensor *x = a->scale ? made_after(scaled(a->x, a), z) : a->x, *far = clef_sub(x, a->first);
    return clef_sub(a->scale ? far : made_after(far, z), a->mean);
}

static around around_mean(clef_tensor *x, clef_tensor *scale, int64_t mask) {
    int64_t left = (((int64_t)1 << clef_tensor_shape(x).rank) - 1) & ~mask;
    around a = {.x = x, .scale = scale, .first = clef_detach(x), .anew = (mask & (mask + 1)) == 0 || (left & (left + 1)) == 0};
    for (int d = 0; d < clef_tensor_shape(x).rank; d++)
        if (mask >> d & 1) a.first = clef_slice(a.first, d, 0, 1, 1);
    if (!scale && a.anew && clef_numel(a.first) > 1)
        a.first = clef_copy(a.first); /* prologues read what is dense, as a product is */
    a.first = scaled(a.first, &a);
    clef_tensor *sum = sum_over(clef_sub(scaled(x, &a), a.first), mask);
    a.mean = clef_div_scalar(sum, (double)clef__reduced_count(clef_tensor_shape(x), mask));
    return a;
}

/* The largest |x|, or 1 where that is 0: no square of x over it overflows.  No gradient goes through it, as it cancels. */
static clef_tensor *scale_of(clef_tensor *x, int64_t mask) {
    clef_tensor *top = clef_detach(reduce_over(&reduce_max, clef_abs(x), mask));
    return top ? clef_where_scalar(clef_gt_scalar(top, 0), top, 1) : NULL;
}

/* What squares of distances from the mean are divided by; 0 if there are not more than `correction`. */
static double freedom(clef_tensor *x, int64_t mask, int correction) {
    double count = (double)clef__reduced_count(clef_tensor_shape(x), mask) - correction;
    return count > 0 ? count : 0;
}

/* top · Σ far·(far/top) / count with top the largest |far|: the squares overflow only where their mean does. */
clef_tensor *clef_var(clef_tensor *x, const int *dims, int n, bool keep, int correction) {
    int64_t mask = dims_mask(x, "var", dims, n);
    if (mask < 0) return NULL;
    clef_dtype dtype = clef_tensor_dtype(clef__to_float(x));
    around a = around_mean(clef__to_wide(x), NULL, mask);
    clef_tensor *top = scale_of(far_of(&a, a.mean), mask), *far = far_of(&a, top);
    clef_tensor *mean = clef_div_scalar(sum_over(clef_mul(far, clef_div(far, top)), mask), freedom(x, mask, correction));
    return clef_to(drop_dims(clef_mul(mean, top), mask, keep), dtype);
}

/* log Σ exp(x - m) + m with m = max x, which is only a shift: no gradient goes through it. */
clef_tensor *clef_logsumexp(clef_tensor *x, const int *dims, int n, bool keep) {
    x = clef__autocast(x, CLEF__FULL_PRECISION);
    int64_t mask = dims_mask(x, "logsumexp", dims, n);
    if (mask < 0) return NULL;
    clef_dtype dtype = clef_tensor_dtype(clef__to_float(x));
    clef_tensor *wide = clef__to_wide(x), *top = clef_detach(reduce_over(&reduce_max, wide, mask));
    if (!top) return NULL;
    clef_tensor *shift = clef_where(clef_isinf(top), clef__number(clef_tensor_context(x), clef_tensor_dtype(top), 0), top);
    clef_tensor *y = clef_add(clef_log(sum_over(clef_exp(clef_sub(wide, shift)), mask)), shift);
    return clef_to(drop_dims(y, mask, keep), dtype);
}

/* sqrt with gradient 0 at 0. */
static clef_tensor *root(clef_tensor *s) {
    if (!s) return NULL;
    clef_tensor *zero = clef_eq_scalar(s, 0), *one = clef__number(clef_tensor_context(s), clef_tensor_dtype(s), 1);
    return clef_where(zero, clef__number(clef_tensor_context(s), clef_tensor_dtype(s), 0), clef_sqrt(clef_where(zero, one, s)));
}

clef_tensor *clef_norm(clef_tensor *x, double p, const int *dims, int n, bool keep) {
    x = clef__autocast(x, CLEF__FULL_PRECISION);
    int64_t mask = dims_mask(x, "norm", dims, n);
    if (mask < 0) return NULL;
    if (!(p > 0)) return clef__refuse(clef_tensor_context(x), "norm", CLEF_INVALID, "p = %g is not positive", p);
    clef_dtype dtype = clef_tensor_dtype(clef__to_float(x));
    clef_tensor *wide = clef__to_wide(x), *y;
    if (isinf(p) && clef__reduced_count(clef_tensor_shape(x), mask) > 0) y = reduce_over(&reduce_max, clef_abs(wide), mask);
    else if (p == 1 || isinf(p)) y = sum_over(clef_abs(wide), mask);
    else if (p == 2) y = root(sum_over(clef_square(wide), mask));
    else y = clef_pow_scalar(sum_over(clef_pow_scalar(clef_abs(wide), p), mask), 1 / p);
    return clef_to(drop_dims(y, mask, keep), dtype);
}

/* The square root of the sum of squares, finite wherever it is; its gradient at 0 is 0.  top: scale_of x. */
static clef_tensor *length(clef_tensor *x, clef_tensor *top, int64_t mask) {
    return clef_mul(top, root(sum_over(clef_square(clef_div(x, top)), mask)));
}

/* 2⁻⁴⁰ where numbers are so large that sums of them may overflow, else 1. */
static clef_tensor *room_for_sums(clef_tensor *x, int64_t mask) {
    clef_context *ctx = clef_tensor_context(x);
    clef_dtype dtype = clef_tensor_dtype(x);
    return clef_where(clef_gt_scalar(scale_of(x, mask), 1e25), clef__number(ctx, dtype, 0x1p-40), clef__number(ctx, dtype, 1));
}

clef_tensor *clef_std(clef_tensor *x, const int *dims, int n, bool keep, int correction) {
    int64_t mask = dims_mask(x, "std", dims, n);
    if (mask < 0) return NULL;
    clef_tensor *wide = clef__to_wide(x);
    if (!wide) return NULL;
    clef_tensor *room = room_for_sums(wide, mask);
    around a = around_mean(wide, room, mask);
    clef_tensor *top = scale_of(far_of(&a, a.mean), mask), *far = length(far_of(&a, top), top, mask);
    clef_tensor *deviation = clef_div(clef_div_scalar(far, sqrt(freedom(x, mask, correction))), room);
    return clef_to(drop_dims(deviation, mask, keep), clef_tensor_dtype(clef__to_float(x)));
}

clef_tensor *clef_cosine_similarity(clef_tensor *a, clef_tensor *b, int dim, double eps) {
    if (!CLEF__GIVEN("cosine_similarity", "a b", a, b)) return NULL;
    clef_context *ctx = clef_tensor_context(a);
    clef_shape both;
    if (!clef__broadcast(clef_tensor_shape(a), clef_tensor_shape(b), &both))
        return clef__refuse(ctx, "cosine_similarity", CLEF_SHAPE, "a %s and b %s do not broadcast",
                            clef__shape_text(clef_tensor_shape(a)), clef__shape_text(clef_tensor_shape(b)));
    if (!(eps >= 0)) return clef__refuse(ctx, "cosine_similarity", CLEF_INVALID, "eps = %g is negative", eps);
    a = clef__autocast(a, CLEF__FULL_PRECISION), b = clef__autocast(b, CLEF__FULL_PRECISION);
    if (!a || !b) return NULL;
    clef_dtype dtype = clef__promote(clef_tensor_dtype(clef__to_float(a)), clef_tensor_dtype(clef__to_float(b)));
    clef_tensor *x = clef_expand(clef__to_wide(a), both), *y = clef_expand(clef__to_wide(b), both);
    int64_t mask = dims_mask(x, "cosine_similarity", &dim, 1);
    if (mask < 0) return NULL;
    x = clef_div(x, clef_maximum_scalar(length(x, scale_of(x, mask), mask), eps));
    y = clef_div(y, clef_maximum_scalar(length(y, scale_of(y, mask), mask), eps));
    return clef_to(drop_dims(sum_over(clef_mul(x, y), mask), mask, false), dtype);
}

/* ---- argmax, argmin ---- */

static bool arg_infer(clef__call *call) {
    int64_t d = *(const int64_t *)call->attributes;
    if (!clef__infer_takes(call, d >= 0 && d < call->input[0]->shape.rank, "x has the dimension")) return false;
    call->out->shape = call->input[0]->shape;
    call->out->dtype = CLEF_I64;
    if (call->out->shape.dim[d] == 0)
        return clef__infer_fail(call, CLEF_SHAPE, "x %s has no elements to choose from", clef__shape_text(call->out->shape));
    call->out->shape.dim[d] = 1;
    return true;
}

/* In the program of the extreme itself. */
static void arg_lower(const clef__lowering *lw, const reduce_op *extreme) {
    const clef__node *node = clef__lower_node(lw);
    clef__lower_arg(lw, (int)*(const int64_t *)clef__attributes(node), extreme->token,
                    joined_dtype(extreme, node->input[0]->dtype));
}

static void argmax_lower(const clef__lowering *lw) { arg_lower(lw, &reduce_max); }
static void argmin_lower(const clef__lowering *lw) { arg_lower(lw, &reduce_min); }
static const clef__strategy *const argmax_strategies[] = {&(const clef__strategy){.name = "scan", .lower = argmax_lower}, NULL};
static const clef__strategy *const argmin_strategies[] = {&(const clef__strategy){.name = "scan", .lower = argmin_lower}, NULL};
static const clef_op op_argmax = {.name = "argmax", .kind = CLEF__KERNEL, .infer = arg_infer, .strategies = argmax_strategies};
static const clef_op op_argmin = {.name = "argmin", .kind = CLEF__KERNEL, .infer = arg_infer, .strategies = argmin_strategies};

static clef_tensor *arg(const clef_op *op, clef_tensor *x, int dim, bool keep) {
    if (!CLEF__GIVEN(op->name, "x", x)) return NULL;
    int at = dim;
    if (!clef__normalize_dim(clef__nameable_dims(x), &at)) return clef__refuse_dim(x, op->name, dim);
    int64_t d = at;
    if (clef_tensor_shape(x).rank == 0) return clef_reshape(arg(op, clef_unsqueeze(x, 0), dim, false), CLEF_SCALAR);
    clef_tensor *y = clef__apply(op, &x, 1, &d, sizeof d);
    return drop_dims(y, (int64_t)1 << d, keep);
}

clef_tensor *clef_argmax(clef_tensor *x, int dim, bool keep) { return arg(&op_argmax, x, dim, keep); }
clef_tensor *clef_argmin(clef_tensor *x, int dim, bool keep) { return arg(&op_argmin, x, dim, keep); }
