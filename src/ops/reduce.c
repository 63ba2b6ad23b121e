/* reduce.c — sums and their kin.

   A reduce node keeps the reduced dimensions as 1; the public functions drop them by a view.  A kernel sees the operand in
   memory order as [outer, n, inner]; when kept and reduced dimensions alternate more often, one stage after the other goes
   through scratch.  Long reductions with few results are split in two stages.  The order of joining is fixed: no atomics. */
#include "ops/reduce.h"
#include <math.h>
#include <string.h>

/* ---- how an operand lies ---- */

clef__operand clef__lower_in_any_order(clef__lowering *l, int i, int *order) {
    clef__operand x = clef__lower_in(l, i);
    if (clef__memory_order(&x, order)) return x;
    for (int d = 0; d < x.rank; d++) order[d] = d;
    return clef__lower_in_dense(l, i, NULL);
}

clef__operand clef__lower_along(clef__lowering *l, int dim, int *order, clef__axes *axes) {
    clef__operand x = clef__lower_in_any_order(l, 0, order);
    *axes = (clef__axes){ 1, x.dim[dim], 1 };
    int i = 0;
    for (; order[i] != dim; i++) axes->outer *= x.dim[order[i]];
    for (i++; i < x.rank; i++) axes->inner *= x.dim[order[i]];
    return x;
}

/* ---- the ops ---- */

typedef struct reduce_attributes {
    int64_t mask; /* bit d: dimension d is reduced */
} reduce_attributes;

typedef struct reduce_op {
    clef_op op;
    const char *token; /* of reduce.cl */
    double of_nothing; /* what changes no result: a float; whole numbers have their own ends */
    bool widens, divides; /* whole numbers give i64; the sum is divided by the count */
} reduce_op;

static int64_t reduced_count(clef_shape shape, int64_t mask) {
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        if (mask >> i & 1) count *= shape.dim[i];
    return count;
}

static bool reduce_infer(clef__call *call) {
    const reduce_op *op = (const reduce_op *)call->op;
    const reduce_attributes *a = call->attributes;
    clef_shape from = call->input[0]->shape;
    if (!clef__infer_takes(call, a->mask >= 0 && a->mask >> from.rank == 0, "x has the dimensions")) return false;
    call->dtype = call->input[0]->dtype;
    if (op->widens && !clef__is_float(call->dtype)) call->dtype = CLEF_I64;
    call->shape = from;
    for (int i = 0; i < from.rank; i++)
        if (a->mask >> i & 1) call->shape.dim[i] = 1;
    return true;
}

void clef__launch_units(clef__lowering *l, int64_t units, int64_t work) {
    int64_t items = clef__lower_items(l, units, work >= 4096 ? 1 : 4096 / (work + 1) + 1);
    int64_t per = clef__ceil_div(units, items);
    clef__launch_long(l, units);
    clef__launch_long(l, per);
    clef__launch_end_1d(l, clef__ceil_div(units, per));
}

int clef__lower_lanes(const clef__lowering *l, int64_t n) {
    int lanes = clef__lower_profile(l)->vector;
    if (lanes > 4 && lanes > n) lanes = 4; /* few variants: a program more costs a first start more than lanes save */
    return lanes < 4 || lanes > n ? 1 : lanes;
}

void clef__launch_lanes(clef__lowering *l, const char *file, const char *kernel, clef_dtype dtype, int64_t n) {
    clef__launch_begin(l, file, kernel);
    clef__launch_define(l, "DT", "%s", clef__token(dtype));
    clef__launch_define(l, "W", "%d", clef__lower_lanes(l, n));
}

void clef__launch_real(clef__lowering *l, double value) {
    clef__launch_float(l, (float)value);
    clef__launch_float(l, (float)(value - (double)(float)value));
}

/* What is joined: wide enough for the result. */
static clef_dtype joined_dtype(const reduce_op *op, clef_dtype dtype) {
    if (dtype == CLEF_F64) return CLEF_F64;
    if (clef__is_float(dtype)) return CLEF_F32;
    return op->widens || dtype == CLEF_I64 ? CLEF_I64 : CLEF_I32;
}

/* A work-item joins columns of [n, inner]: on a CPU a strip of lines, PIECE of them before they meet others; on a GPU a vector. */
enum { PIECE = 256, WIDE_ROW = 512 };

static int64_t strip_of(const clef__lowering *l, clef__axes axes) {
    if (axes.inner == 1) return 1;
    return clef__lower_profile(l)->wide_items ? CLEF__STRIP : clef__lower_lanes(l, axes.inner);
}

/* Elements that lie side by side. */
static int64_t run_of(clef__axes axes) { return axes.inner == 1 ? axes.n : axes.inner; }

void clef__launch_reduction(clef__lowering *l, const char *file, const char *kernel, clef_dtype dtype, clef__axes axes) {
    clef__launch_lanes(l, file, kernel, dtype, run_of(axes));
    clef__launch_define(l, "STRIP", "%d", clef__lower_profile(l)->wide_items ? CLEF__STRIP : 0);
}

void clef__launch_cut(clef__lowering *l, clef__axes axes, int64_t splits) {
    int64_t chunk = clef__ceil_div(axes.n, splits), strip = strip_of(l, axes);
    clef__launch_long(l, axes.n);
    clef__launch_long(l, chunk);
    clef__launch_long(l, splits);
    if (axes.inner > 1) clef__launch_long(l, axes.inner);
    if (axes.inner > 1) clef__launch_long(l, strip);
    clef__launch_units(l, axes.outer * splits * clef__ceil_div(axes.inner, strip), chunk * clef__smaller(strip, axes.inner));
}

static void begin_reduce(clef__lowering *l, const char *kernel, const char *token, clef_dtype from, clef_dtype joined, clef_dtype to,
                         clef__axes axes) {
    clef__launch_reduction(l, "reduce.cl", kernel, from, axes);
    clef__launch_define(l, "AT", "%s", clef__token(joined));
    clef__launch_define(l, "OT", "%s", clef__token(to));
    clef__launch_define(l, "OP", "%s", token);
}

/* One launch: x [outer, n, inner] → y [outer, splits, inner]. */
static void launch_reduce(clef__lowering *l, const char *token, clef__operand x, clef__operand y, clef_dtype joined,
                          clef__axes axes, int64_t splits, int64_t divide) {
    begin_reduce(l, axes.inner == 1 ? "reduce_rows" : "reduce_columns", token, x.dtype, joined, y.dtype, axes);
    clef__launch_read(l, &x, clef__lower_lanes(l, run_of(axes)));
    clef__launch_tensor(l, y, true);
    clef__launch_long(l, divide);
    clef__launch_cut(l, axes, splits);
}

/* On a GPU wide rows are many vectors, so work is plenty even if every item goes down a few lines only. */
int64_t clef__reduce_splits(const clef__lowering *l, clef__axes axes) {
    bool rows = axes.inner == 1, wide = clef__lower_profile(l)->wide_items;
    int64_t least = rows ? 4096 : 64, units = axes.outer * clef__ceil_div(axes.inner, strip_of(l, axes));
    int64_t splits = clef__lower_items(l, axes.outer * axes.n * axes.inner, 4096) / units;
    if (wide && !rows) splits = clef__larger(splits, axes.n / PIECE);
    if (!wide && axes.inner >= WIDE_ROW) splits = axes.n / least;
    splits = clef__smaller(splits, axes.n / least);
    return splits > 1 ? clef__ceil_div(axes.n, clef__ceil_div(axes.n, splits)) : 1;
}

/* Reduces one run of dimensions, in two launches if it pays. */
static void reduce_run(clef__lowering *l, const char *token, clef__operand x, clef__operand y, clef_dtype joined,
                       clef__axes axes, int64_t divide) {
    int64_t splits = clef__reduce_splits(l, axes);
    if (splits > 1) {
        clef__operand parts = clef__lower_scratch(l, joined, CLEF_SHAPE(axes.outer, splits, axes.inner));
        launch_reduce(l, token, x, parts, joined, axes, splits, 1);
        x = parts;
        axes.n = splits;
    }
    launch_reduce(l, token, x, y, joined, axes, 1, divide);
}

void clef__lower_sum(clef__lowering *l, clef__operand x, clef__operand y, clef__axes axes) {
    reduce_run(l, "SUM", x, y, x.dtype, axes, 1);
}

clef__runs clef__find_runs(const clef__operand *x, const int *order, int64_t mask) {
    clef__runs r = { 0 };
    for (int i = 0; i < x->rank; i++) {
        int64_t size = x->dim[order[i]];
        bool reduced = mask >> order[i] & 1;
        if (size == 1) continue;
        if (r.n && r.is_reduced[r.n - 1] == reduced) {
            r.size[r.n - 1] *= size;
            continue;
        }
        r.size[r.n] = size;
        r.is_reduced[r.n++] = reduced;
        r.reduced += reduced;
    }
    return r;
}

clef__axes clef__innermost(const clef__runs *r, int *at) {
    clef__axes axes = { 1, 1, 1 };
    int i = r->n - 1;
    for (; i >= 0 && !r->is_reduced[i]; i--) axes.inner *= r->size[i];
    *at = i;
    if (i >= 0) axes.n = r->size[i];
    for (i--; i >= 0; i--) axes.outer *= r->size[i];
    return axes;
}

void clef__drop_run(clef__runs *r, int at) {
    r->reduced--;
    r->size[at] = 1;
    r->is_reduced[at] = false; /* a kept run of 1 between kept runs changes nothing */
}

/* What is reduced: computed where it is read, or in memory. */
static clef__operand read_operand(clef__lowering *l, int64_t mask, int *order) {
    clef__operand x;
    if (!clef__lower_prologue(l, mask, &x)) return clef__lower_in_any_order(l, 0, order);
    clef__memory_order(&x, order);
    return x;
}

/* ∓inf of maxima and minima is the smallest and the largest number that a dtype has. */
static double of_nothing(const reduce_op *op, clef_dtype dtype) {
    if (!isinf(op->of_nothing)) return op->of_nothing;
    if (dtype == CLEF_BOOL || dtype == CLEF_U8) return op->of_nothing < 0 ? 0 : dtype == CLEF_U8 ? UINT8_MAX : 1;
    return clef__saturated(dtype, op->of_nothing);
}

static void reduce_lower(clef__lowering *l) {
    const clef__node *node = clef__lower_node(l);
    const reduce_op *op = (const reduce_op *)node->op;
    int64_t mask = ((const reduce_attributes *)clef__attributes(node))->mask, count = reduced_count(node->input[0]->shape, mask);
    if (count == 0) {
        clef__lower_fill(l, clef__lower_out(l, NULL), of_nothing(op, node->dtype));
        return;
    }
    int order[CLEF_MAX_RANK], at;
    clef__operand x = read_operand(l, mask, order), out = clef__lower_out(l, order);
    clef_dtype joined = joined_dtype(op, x.dtype);
    clef__runs r = clef__find_runs(&x, order, mask);
    while (r.reduced > 1) {
        clef__axes axes = clef__innermost(&r, &at);
        clef__operand next = clef__lower_scratch(l, joined, CLEF_SHAPE(axes.outer, axes.inner));
        reduce_run(l, op->token, x, next, joined, axes, 1);
        clef__drop_run(&r, at);
        x = next;
    }
    clef__axes axes = clef__innermost(&r, &at);
    reduce_run(l, op->token, x, out, joined, axes, op->divides ? count : 1);
}

static const clef__strategy reduce_strategies[] = { { .name = "stages", .lower = reduce_lower }, { 0 } };

/* ---- gradients ---- */

static int64_t mask_of(clef_tensor *y) { return ((const reduce_attributes *)clef__attributes(clef__node_of(y)))->mask; }

static void sum_gradient(clef_tensor *const *x, clef_tensor *y, clef_tensor *g, const bool *wanted, clef_tensor **dx) {
    (void)y, (void)wanted;
    dx[0] = clef_expand(g, clef_tensor_shape(x[0]));
}

/* g / n.  What begins a backward pass is a number and stays one, which takes no launch. */
static clef_tensor *share(clef_tensor *g, int64_t n) {
    const clef__node *node = clef__node_of(g);
    if (!clef__is_number(node) || clef_dtype_size(node->dtype) < sizeof(float)) return clef_div_scalar(g, (double)n);
    return clef__constant(clef_tensor_context(g), node->shape, node->dtype, node->device, node->dynamic.f / (double)n);
}

static void mean_gradient(clef_tensor *const *x, clef_tensor *y, clef_tensor *g, const bool *wanted, clef_tensor **dx) {
    (void)wanted;
    clef_shape shape = clef_tensor_shape(x[0]);
    dx[0] = clef_expand(share(g, reduced_count(shape, mask_of(y))), shape);
}

static clef_tensor *sum_over(clef_tensor *x, int64_t mask);

/* Equals share the gradient. */
static void extreme_gradient(clef_tensor *const *x, clef_tensor *y, clef_tensor *g, const bool *wanted, clef_tensor **dx) {
    (void)wanted;
    clef_tensor *chosen = clef_to(clef_eq(x[0], y), clef_tensor_dtype(x[0]));
    dx[0] = clef_mul(chosen, clef_div(g, sum_over(chosen, mask_of(y))));
}

/* The product of the others: y/x without zeros; with one zero only that element has any. */
static void prod_gradient(clef_tensor *const *x, clef_tensor *y, clef_tensor *g, const bool *wanted, clef_tensor **dx);

#define REDUCE_OP(name_, token_, of_nothing_, widens_, divides_, gradient_)                      \
    static const reduce_op reduce_##name_ = {                                                    \
        .op = { .name = #name_, .kind = CLEF__KERNEL, .prologue = true, .infer = reduce_infer, .gradient = gradient_, \
                .strategies = reduce_strategies },                                               \
        .token = token_, .of_nothing = of_nothing_, .widens = widens_, .divides = divides_,      \
    };
REDUCE_OP(sum, "SUM", 0, true, false, sum_gradient)
REDUCE_OP(mean, "SUM", NAN, false, true, mean_gradient)
REDUCE_OP(max, "LARGEST", -INFINITY, false, false, extreme_gradient)
REDUCE_OP(min, "SMALLEST", INFINITY, false, false, extreme_gradient)
REDUCE_OP(prod, "PRODUCT", 1, true, false, prod_gradient)

static clef_tensor *reduce_over(const reduce_op *op, clef_tensor *x, int64_t mask) {
    return clef__apply(&op->op, &x, 1, &(reduce_attributes){ mask }, sizeof(reduce_attributes));
}

static clef_tensor *sum_over(clef_tensor *x, int64_t mask) { return reduce_over(&reduce_sum, x, mask); }

static void prod_gradient(clef_tensor *const *x, clef_tensor *y, clef_tensor *g, const bool *wanted, clef_tensor **dx) {
    (void)wanted;
    clef_dtype dtype = clef_tensor_dtype(x[0]);
    clef_tensor *zero = clef_eq_scalar(x[0], 0), *one = clef__number(clef_tensor_context(y), dtype, 1), *none = clef__number(clef_tensor_context(y), dtype, 0);
    clef_tensor *zeros = sum_over(clef_to(zero, CLEF_I32), mask_of(y));
    clef_tensor *safe = clef_where(zero, one, x[0]), *rest = reduce_over(&reduce_prod, safe, mask_of(y));
    clef_tensor *alone = clef_logical_and(zero, clef_eq_scalar(zeros, 1));
    clef_tensor *slope = clef_where(clef_eq_scalar(zeros, 0), clef_div(rest, safe), clef_where(alone, rest, none));
    dx[0] = clef_mul(g, slope);
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
    clef_shape from = clef_tensor_shape(y), to = { 0 };
    for (int i = 0; i < from.rank; i++)
        if (!(mask >> i & 1)) to.dim[to.rank++] = from.dim[i];
    return clef_reshape(y, to);
}

static clef_tensor *reduce(const reduce_op *op, clef_tensor *x, const int *dims, int n, bool keep) {
    int64_t mask = dims_mask(x, op->op.name, dims, n);
    return mask < 0 ? NULL : drop_dims(reduce_over(op, x, mask), mask, keep);
}

clef_tensor *clef_sum(clef_tensor *x, const int *dims, int n, bool keep) { return reduce(&reduce_sum, x, dims, n, keep); }
clef_tensor *clef_mean(clef_tensor *x, const int *dims, int n, bool keep) {
    return reduce(&reduce_mean, clef__to_float(x), dims, n, keep);
}
clef_tensor *clef_max(clef_tensor *x, const int *dims, int n, bool keep) { return reduce(&reduce_max, x, dims, n, keep); }
clef_tensor *clef_min(clef_tensor *x, const int *dims, int n, bool keep) { return reduce(&reduce_min, x, dims, n, keep); }
clef_tensor *clef_prod(clef_tensor *x, const int *dims, int n, bool keep) { return reduce(&reduce_prod, x, dims, n, keep); }

/* x about its mean.  The first element is subtracted before anything is added up, so that a large mean costs no digits. */
static clef_tensor *centred(clef_tensor *x, int64_t mask) {
    clef_tensor *first = clef_detach(x);
    for (int d = 0; d < clef_tensor_shape(x).rank; d++)
        if (mask >> d & 1) first = clef_slice(first, d, 0, 1, 1);
    clef_tensor *far = clef_sub(x, first);
    return clef_sub(far, clef_div_scalar(sum_over(far, mask), (double)reduced_count(clef_tensor_shape(x), mask)));
}

/* top · Σ far·(far/top) / count with top the largest |far|: the squares overflow only where their mean does.  No gradient goes
   through top, which cancels. */
clef_tensor *clef_var(clef_tensor *x, const int *dims, int n, bool keep, int correction) {
    int64_t mask = dims_mask(x, "var", dims, n);
    if (mask < 0) return NULL;
    clef_dtype dtype = clef_tensor_dtype(clef__to_float(x));
    clef_tensor *far = centred(clef__to_wide(x), mask), *top = clef_detach(reduce_over(&reduce_max, clef_abs(far), mask));
    if (!top) return NULL;
    top = clef_where(clef_gt_scalar(top, 0), top, clef__number(clef_tensor_context(x), clef_tensor_dtype(top), 1));
    double count = (double)reduced_count(clef_tensor_shape(x), mask) - correction;
    clef_tensor *mean = clef_div_scalar(sum_over(clef_mul(far, clef_div(far, top)), mask), count > 0 ? count : 0);
    return clef_to(drop_dims(clef_mul(mean, top), mask, keep), dtype);
}

/* log Σ exp(x - m) + m with m = max x, which is only a shift: no gradient goes through it. */
clef_tensor *clef_logsumexp(clef_tensor *x, const int *dims, int n, bool keep) {
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
    int64_t mask = dims_mask(x, "norm", dims, n);
    if (mask < 0) return NULL;
    if (!(p > 0)) return clef__refuse(clef_tensor_context(x), "norm", CLEF_INVALID, "p = %g is not positive", p);
    clef_dtype dtype = clef_tensor_dtype(clef__to_float(x));
    clef_tensor *wide = clef__to_wide(x), *y;
    if (isinf(p) && reduced_count(clef_tensor_shape(x), mask) > 0) y = reduce_over(&reduce_max, clef_abs(wide), mask);
    else if (p == 1 || isinf(p)) y = sum_over(clef_abs(wide), mask);
    else if (p == 2) y = root(sum_over(clef_square(wide), mask));
    else y = clef_pow_scalar(sum_over(clef_pow_scalar(clef_abs(wide), p), mask), 1 / p);
    return clef_to(drop_dims(y, mask, keep), dtype);
}

/* ---- argmax, argmin ---- */

static bool arg_infer(clef__call *call) {
    int64_t d = *(const int64_t *)call->attributes;
    if (!clef__infer_takes(call, d >= 0 && d < call->input[0]->shape.rank, "x has the dimension")) return false;
    call->shape = call->input[0]->shape;
    call->dtype = CLEF_I64;
    if (call->shape.dim[d] == 0)
        return clef__infer_fail(call, CLEF_SHAPE, "x %s has no elements to choose from", clef__shape_text(call->shape));
    call->shape.dim[d] = 1;
    return true;
}

/* In the program of a sum. */
static void arg_lower(clef__lowering *l, bool smallest) {
    int order[CLEF_MAX_RANK];
    clef__axes axes;
    clef__operand x = clef__lower_along(l, (int)*(const int64_t *)clef__attributes(clef__lower_node(l)), order, &axes);
    clef__operand y = clef__lower_out(l, order);
    clef_dtype joined = joined_dtype(&reduce_sum, x.dtype);
    begin_reduce(l, "arg_columns", "SUM", x.dtype, joined, joined, axes);
    clef__launch_tensor(l, x, false);
    clef__launch_tensor(l, y, true);
    clef__launch_int(l, smallest);
    clef__launch_long(l, axes.n);
    clef__launch_long(l, axes.inner);
    clef__launch_units(l, axes.outer * axes.inner, axes.n);
}

static void argmax_lower(clef__lowering *l) { arg_lower(l, false); }
static void argmin_lower(clef__lowering *l) { arg_lower(l, true); }
static const clef__strategy argmax_strategies[] = { { .name = "scan", .lower = argmax_lower }, { 0 } };
static const clef__strategy argmin_strategies[] = { { .name = "scan", .lower = argmin_lower }, { 0 } };
static const clef_op op_argmax = { .name = "argmax", .kind = CLEF__KERNEL, .infer = arg_infer, .strategies = argmax_strategies };
static const clef_op op_argmin = { .name = "argmin", .kind = CLEF__KERNEL, .infer = arg_infer, .strategies = argmin_strategies };

static clef_tensor *arg(const clef_op *op, clef_tensor *x, int dim, bool keep) {
    if (!CLEF__GIVEN(op->name, "x", x)) return NULL;
    int at = dim;
    if (!clef__normalize_dim(clef__nameable_dims(x), &at))
        return clef__refuse(clef_tensor_context(x), op->name, CLEF_INVALID, "x %s has no dimension %d", clef__shape_text(clef_tensor_shape(x)), dim);
    int64_t d = at;
    if (clef_tensor_shape(x).rank == 0) return clef_reshape(arg(op, clef_unsqueeze(x, 0), dim, false), CLEF_SCALAR);
    clef_tensor *y = clef__apply(op, &x, 1, &d, sizeof d);
    return drop_dims(y, (int64_t)1 << d, keep);
}

clef_tensor *clef_argmax(clef_tensor *x, int dim, bool keep) { return arg(&op_argmax, x, dim, keep); }
clef_tensor *clef_argmin(clef_tensor *x, int dim, bool keep) { return arg(&op_argmin, x, dim, keep); }
