/* sums.c — two sums in one pass: see ops.h and cl/sums.cl. */
#include "ops/ops.h"
#include "kernels/args.h"
#include "kernels/reduce.h"
#include "sums.args"

CLEF__ARGS(sum_rows, SUM_ROWS_ARGS)
CLEF__ARGS(sum_columns, SUM_COLUMNS_ARGS)

typedef struct sums_attributes {
    int64_t mask; /* bit d: summed over dimension d */
} sums_attributes;

static const clef_op op_own_sums, op_sums_with;

/* ---- infer: x, m [, g] → two of m's shape ---- */

static bool infer_sums(clef__call *call) {
    const sums_attributes *a = call->attributes;
    clef_shape x = call->input[0]->shape, m = call->input[1]->shape;
    bool fits = m.rank == x.rank && a->mask != 0;
    for (int i = 0; fits && i < m.rank; i++) fits = m.dim[i] == (a->mask >> i & 1 ? 1 : x.dim[i]);
    if (!clef__infer_takes(call, fits, "m has x's rank and is 1 long where x is summed, somewhere at least") ||
        !clef__infer_takes(call, call->n_inputs < 3 || clef__same_shape(call, 0, 2), "g has x's shape"))
        return false;
    call->out[0] = call->out[1] = (clef__type){m, call->input[0]->dtype};
    return true;
}

/* ---- lowering ---- */

/* The dimensions of the innermost reduced run in memory order become 1. */
static clef_shape without_innermost(clef_shape shape, const int *order, int64_t mask) {
    int i = shape.rank - 1;
    while (i >= 0 && (!(mask >> order[i] & 1) || shape.dim[order[i]] == 1)) i--;
    for (; i >= 0 && (mask >> order[i] & 1 || shape.dim[order[i]] == 1); i--) shape.dim[order[i]] = 1;
    return shape;
}

/* m for every sum of the first stage, in x's memory order. */
static clef__operand spread_mean(const clef__lowering *lw, clef_shape shape, const int *order, int64_t mask) {
    clef_shape first = without_innermost(shape, order, mask);
    clef__operand m = clef__broadcast_operand(clef__lower_in(lw, 1), first);
    if (clef__lower_is_dense(&m, order)) return m;
    clef__operand to = clef__lower_scratch_in(lw, m.dtype, first, order);
    clef__lower_copy(lw, to, m);
    return to;
}

/* What a launch sums: g and g·(x − m), x − m and its square, or what either of them left in parts. */
typedef enum kind { OF_G, OF_OWN, OF_PARTS } kind;
typedef struct summed {
    kind kind;
    clef__operand x, g, m;
} summed;

/* One launch: [outer, n, inner] → two of [outer, splits, inner]. */
static void launch_sums(const clef__lowering *lw, const summed *of, const clef__operand *y, clef__axes axes, int64_t splits) {
    clef__cut cut = clef__cut_of(lw, axes, splits);
    clef__launch_cut(lw, "sums.cl", axes.inner == 1 ? "sum_rows" : "sum_columns", of->x.dtype, &cut);
    clef__launch_define(lw, "OWN", "%d", of->kind == OF_OWN);
    clef__launch_define(lw, "JOIN", "%d", of->kind == OF_PARTS);
    if (axes.inner == 1) {
        sum_rows_args args = {.x = of->x, .g = of->g, .m = of->m, .y0 = y[0], .y1 = y[1], .cut = cut};
        pass_sum_rows(lw, &args);
    } else {
        sum_columns_args args = {.x = of->x, .g = of->g, .m = of->m, .y0 = y[0], .y1 = y[1], .cut = cut};
        pass_sum_columns(lw, &args);
    }
    clef__launch_end_cut(lw, &cut);
}

/* The same into y, or without one into scratch; what it leaves is what is summed next. */
static void sum_on(const clef__lowering *lw, summed *of, const clef__operand *y, clef__axes axes, int64_t splits) {
    clef__operand to[2];
    for (int k = 0; k < 2; k++) to[k] = y ? y[k] : clef__lower_scratch(lw, of->x.dtype, CLEF_SHAPE(axes.outer, splits, axes.inner));
    launch_sums(lw, of, to, axes, splits);
    *of = (summed){OF_PARTS, to[0], to[1], to[0]}; /* m is not read */
}

/* Sums over one run of dimensions, in two launches if it pays. */
static void sum_run(const clef__lowering *lw, summed *of, const clef__operand *y, clef__axes axes) {
    int64_t splits = clef__reduce_splits(lw, axes);
    if (splits > 1) {
        sum_on(lw, of, NULL, axes, splits);
        axes.n = splits;
    }
    sum_on(lw, of, y, axes, 1);
}

static void lower_nothing(const clef__lowering *lw) {
    for (int k = 0; k < 2; k++) clef__lower_fill(lw, clef__lower_output(lw, k, NULL), 0);
}

static void lower_sums(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    const sums_attributes *a = clef__attributes(node);
    clef_shape shape = node->input[0]->shape;
    int order[CLEF_MAX_RANK], at;
    if (clef_shape_numel(shape) == 0) {
        lower_nothing(lw);
        return;
    }
    clef__operand x = clef__lower_in_any_order(lw, 0, order), m = spread_mean(lw, shape, order, a->mask), y[2];
    bool own = node->n_inputs < 3;
    summed of = {own ? OF_OWN : OF_G, x, own ? x : clef__lower_in_dense(lw, 2, order), m};
    clef__runs runs = clef__find_runs(&x, order, a->mask);
    for (int k = 0; k < 2; k++) y[k] = clef__lower_output(lw, k, order);
    while (runs.reduced > 1) {
        sum_run(lw, &of, NULL, clef__innermost(&runs, &at));
        clef__drop_run(&runs, at);
    }
    sum_run(lw, &of, y, clef__innermost(&runs, &at));
}

/* ---- gradients ---- */

static bool apply_sums(clef_tensor *g, clef_tensor *x, clef_tensor *m, const sums_attributes *a, clef_tensor **sums) {
    return clef__apply_all(g ? &op_sums_with : &op_own_sums, (clef_tensor *[]){x, m, g}, g ? 3 : 2, a, sizeof *a, sums, 2);
}

/* a + b, where either may be absent. */
static clef_tensor *sum_of(clef_tensor *a, clef_tensor *b) { return a && b ? clef_add(a, b) : a ? a : b; }

/* s0 = Σ d, s1 = Σ d² with d = x − m:  dx = g0 + 2 g1 d,  dm = −Σ dx */
static void gradient_own_sums(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                              clef_tensor **dx) {
    (void)y;
    clef_tensor *first = g[0] ? clef_expand(g[0], clef_tensor_shape(x[0])) : NULL;
    clef_tensor *slope = sum_of(first, g[1] ? clef_mul(clef_mul_scalar(g[1], 2), clef_sub(x[0], x[1])) : NULL);
    if (wanted[0]) dx[0] = slope;
    if (wanted[1]) dx[1] = clef_neg(clef__sum_to(slope, clef_tensor_shape(x[1])));
}

/* s0 = Σ a, s1 = Σ a d:  da = g0 + g1 d,  dx = g1 a,  dm = −g1 s0 */
static void gradient_sums_with(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                               clef_tensor **dx) {
    clef_tensor *first = g[0] ? clef_expand(g[0], clef_tensor_shape(x[0])) : NULL;
    if (wanted[0] && g[1]) dx[0] = clef_mul(g[1], x[2]);
    if (wanted[1] && g[1]) dx[1] = clef_neg(clef_mul(g[1], y[0]));
    if (wanted[2]) dx[2] = sum_of(first, g[1] ? clef_mul(g[1], clef_sub(x[0], x[1])) : NULL);
}

static const clef__strategy *const strategies[] = {&(const clef__strategy){.name = "one pass", .lower = lower_sums}, NULL};
static const clef_op op_own_sums = {/* of x - m and of its square */
                                    .name = "centred_sums",
                                    .kind = CLEF__KERNEL,
                                    .infer = infer_sums,
                                    .gradient = gradient_own_sums,
                                    .strategies = strategies};
static const clef_op op_sums_with = {/* of g and of g times x - m */
                                     .name = "sums_with",
                                     .kind = CLEF__KERNEL,
                                     .infer = infer_sums,
                                     .gradient = gradient_sums_with,
                                     .strategies = strategies};

bool clef__pair_of_sums(clef_tensor *g, clef_tensor *x, clef_tensor *m, clef_tensor **first, clef_tensor **second) {
    if (!x || !m) return false;
    clef_shape have = clef_tensor_shape(m);
    sums_attributes a = {0};
    for (int i = 0; i < have.rank; i++)
        if (have.dim[i] == 1) a.mask |= (int64_t)1 << i;
    clef_tensor *sums[2];
    bool ok = apply_sums(g, x, m, &a, sums);
    *first = sums[0];
    *second = sums[1];
    return ok;
}
