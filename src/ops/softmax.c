/* softmax.c — softmax and log-softmax along one dimension, losses of classes; gradients of any order. */
#include "ops/ops.h"
#include "kernels/args.h"
#include "kernels/reduce.h"
#include "kernels/softmax_teams.h"
#include "softmax.args"
#include <math.h>

CLEF__ARGS(softmax_rows, SOFTMAX_ROWS_ARGS)
CLEF__ARGS(softmax_columns, SOFTMAX_COLUMNS_ARGS)
CLEF__ARGS(softmax_parts, SOFTMAX_PARTS_ARGS)
CLEF__ARGS(softmax_whole, SOFTMAX_WHOLE_ARGS)
CLEF__ARGS(softmax_results, SOFTMAX_RESULTS_ARGS)
CLEF__ARGS(softmax_slope_rows, SOFTMAX_SLOPE_ROWS_ARGS)
CLEF__ARGS(softmax_slope_columns, SOFTMAX_SLOPE_COLUMNS_ARGS)
CLEF__ARGS(cross_entropy_rows, CROSS_ENTROPY_ROWS_ARGS)
CLEF__ARGS(cross_entropy_slope_rows, CROSS_ENTROPY_SLOPE_ROWS_ARGS)

typedef struct softmax_attributes {
    int64_t dim;
} softmax_attributes;

static int dim_of(clef_tensor *y) { return (int)((const softmax_attributes *)clef__attributes(clef__node_of(y)))->dim; }

static bool softmax_infer(clef__call *call) {
    int64_t d = ((const softmax_attributes *)call->attributes)->dim;
    return clef__infer_takes(call, d >= 0 && d < call->input[0]->shape.rank, "x has the dimension") && clef__infer_like(call);
}

static bool slope_infer(clef__call *call) {
    return clef__infer_takes(call, clef__same_shape(call, 0, 1), "g has y's shape") && softmax_infer(call);
}

/* ---- lowering ---- */

enum { CACHED = 1 << 15, NARROWEST = 64 }; /* elements that a second-level cache surely holds; columns */

/* Is a column too long to be still in the cache when it is read again, even if few go together? */
static bool too_long(clef__axes axes) { return axes.n * clef__smaller(axes.inner, NARROWEST) > CACHED; }

/* Columns that a work-item goes down together: so few that their elements are still in the cache when they are read again, or many
   where they would not be anyway, as whole pages are read faster; but something for every compute unit. */
static int64_t columns_of(const clef__lowering *lw, clef__axes axes) {
    if (!clef__lower_profile(lw)->wide_items) return clef__lower_lanes(lw, axes.inner);
    int64_t block = too_long(axes) ? CLEF__STRIP : clef__smaller(CACHED / axes.n, CLEF__STRIP);
    int64_t units = clef__larger(clef__lower_device(lw)->compute_units, 1);
    int64_t fair = clef__ceil_div(axes.inner, clef__ceil_div(units, axes.outer));
    return clef__round_up(clef__smaller(block, fair), NARROWEST);
}

/* Rows, or blocks of columns. */
static clef__units units_of(const clef__lowering *lw, clef__axes axes, int64_t block) {
    if (axes.inner == 1) return clef__lower_rows(lw, axes.outer, axes.n, 4 * axes.n);
    return clef__lower_units(lw, axes.outer * clef__ceil_div(axes.inner, block), 4 * axes.n * block);
}

enum { MOST_HELD = 32 }; /* gradients hold two values of each element */
static void begin_softmax(const clef__lowering *lw, const char *kernel, clef_dtype dtype, clef__axes axes, int logarithm) {
    clef__launch_reduction(lw, "softmax.cl", kernel, dtype, axes);
    if (axes.inner == 1) clef__launch_held(lw, dtype, axes.n, MOST_HELD);
    clef__launch_define(lw, "LOG", "%d", logarithm);
}

/* Are these whole vectors of what is computed, and more of them than any cache holds? */
static bool goes_past_caches(const clef__lowering *lw, clef__operand y, clef__axes axes) {
    uint64_t cache = clef__lower_device(lw)->cache_bytes,
             bytes = (uint64_t)(axes.outer * axes.n * axes.inner) * clef_dtype_size(y.dtype);
    bool whole = axes.inner % clef__lower_profile(lw)->vector == 0 && y.offset == 0;
    return whole && cache > 0 && bytes > cache && (y.dtype == CLEF_F32 || y.dtype == CLEF_F64);
}

/* Long columns: maximum and sum of each split, of the whole, and the results, each launch reading memory as it lies. */
static void launch_in_splits(const clef__lowering *lw, clef__operand x, clef__operand y, clef__axes axes, int logarithm) {
    int64_t splits = clef__reduce_splits(lw, axes);
    clef_dtype wide = x.dtype == CLEF_F64 ? CLEF_F64 : CLEF_F32;
    clef_shape each = CLEF_SHAPE(axes.outer, splits, axes.inner), all = CLEF_SHAPE(axes.outer, axes.inner);
    clef__operand top = clef__lower_scratch(lw, wide, each), sum = clef__lower_scratch(lw, wide, each),
                  about = clef__lower_scratch(lw, wide, all), scale = clef__lower_scratch(lw, wide, all);
    clef__axes joined = {axes.outer, splits, axes.inner};
    int64_t block = columns_of(lw, joined);
    softmax_parts_args parts = {.x = x, .top = top, .sum = sum, .cut = clef__cut_of(lw, axes, splits)};
    /* clang-format off */
    softmax_whole_args whole = {
        .top = top, .sum = sum, .about = about, .scale = scale,
        .n = splits, .inner = axes.inner, .block = block, .units = units_of(lw, joined, block),
    };
    /* clang-format on */
    softmax_results_args results = {.x = x, .about = about, .scale = scale, .y = y, .cut = parts.cut};
    begin_softmax(lw, "softmax_parts", x.dtype, axes, logarithm);
    pass_softmax_parts(lw, &parts);
    clef__launch_end_units(lw, parts.cut.units);
    begin_softmax(lw, "softmax_whole", x.dtype, axes, logarithm);
    pass_softmax_whole(lw, &whole);
    clef__launch_end_units(lw, whole.units);
    begin_softmax(lw, "softmax_results", x.dtype, axes, logarithm);
    clef__launch_define(lw, "PAST", "%d", goes_past_caches(lw, y, axes));
    pass_softmax_results(lw, &results);
    clef__launch_end_units(lw, results.cut.units);
}

static void softmax_launch(const clef__lowering *lw, int logarithm) {
    const softmax_attributes *a = clef__attributes(clef__lower_node(lw));
    int order[CLEF_MAX_RANK];
    clef__axes axes;
    clef__operand x = clef__lower_along(lw, (int)a->dim, order, &axes), y = clef__lower_out(lw, order);
    if (clef__has_team_columns(lw, axes)) {
        clef__launch_team_softmax(lw, x, y, axes, logarithm);
        return;
    }
    if (axes.inner > 1 && clef__lower_profile(lw)->wide_items && too_long(axes)) {
        launch_in_splits(lw, x, y, axes, logarithm);
        return;
    }
    bool rows = axes.inner == 1;
    int64_t block = rows ? 1 : columns_of(lw, axes);
    clef__units units = units_of(lw, axes, block);
    begin_softmax(lw, rows ? "softmax_rows" : "softmax_columns", x.dtype, axes, logarithm);
    if (rows) {
        softmax_rows_args args = {.x = x, .y = y, .n = axes.n, .units = units};
        pass_softmax_rows(lw, &args);
        clef__launch_end_rows(lw, axes.n, units);
    } else {
        softmax_columns_args args = {.x = x, .y = y, .n = axes.n, .inner = axes.inner, .block = block, .units = units};
        pass_softmax_columns(lw, &args);
        clef__launch_end_units(lw, units);
    }
}

static void softmax_lower(const clef__lowering *lw) { softmax_launch(lw, 0); }
static void log_softmax_lower(const clef__lowering *lw) { softmax_launch(lw, 1); }

/* Inputs y, g → dx. */
static void slope_launch(const clef__lowering *lw, int logarithm) {
    const softmax_attributes *a = clef__attributes(clef__lower_node(lw));
    int order[CLEF_MAX_RANK];
    clef__axes axes;
    clef__operand y = clef__lower_along(lw, (int)a->dim, order, &axes), g = clef__lower_in_dense(lw, 1, order),
                  dx = clef__lower_out(lw, order);
    if (clef__has_team_columns(lw, axes)) {
        clef__launch_team_slope(lw, y, g, dx, axes, logarithm);
        return;
    }
    bool rows = axes.inner == 1;
    int64_t block = rows ? 1 : columns_of(lw, axes);
    clef__units units = units_of(lw, axes, block);
    begin_softmax(lw, rows ? "softmax_slope_rows" : "softmax_slope_columns", y.dtype, axes, logarithm);
    if (rows) {
        softmax_slope_rows_args args = {.y = y, .g = g, .dx = dx, .n = axes.n, .units = units};
        pass_softmax_slope_rows(lw, &args);
        clef__launch_end_rows(lw, axes.n, units);
    } else {
        softmax_slope_columns_args args = {
            .y = y, .g = g, .dx = dx, .n = axes.n, .inner = axes.inner, .block = block, .units = units};
        pass_softmax_slope_columns(lw, &args);
        clef__launch_end_units(lw, units);
    }
}

static void softmax_slope_lower(const clef__lowering *lw) { slope_launch(lw, 0); }
static void log_softmax_slope_lower(const clef__lowering *lw) { slope_launch(lw, 1); }

/* ---- gradients: one kernel, or expressions that have gradients themselves where those may be asked for ---- */

#define SLOPE_OP(name_)                                                                \
    static const clef__strategy *const name_##_slope_strategies[] = {                  \
        &(const clef__strategy){.name = "lines", .lower = name_##_slope_lower}, NULL}; \
    static const clef_op op_##name_##_slope = {                                        \
        .name = #name_ "_backward", .kind = CLEF__KERNEL, .infer = slope_infer, .strategies = name_##_slope_strategies};
SLOPE_OP(softmax)
SLOPE_OP(log_softmax)

static clef_tensor *slope(const clef_op *op, clef_tensor *y, clef_tensor *g) {
    softmax_attributes a = {dim_of(y)};
    return clef__apply(op, (clef_tensor *[]){y, g}, 2, &a, sizeof a);
}

/* dx = y·(g - Σ g·y) */
static void softmax_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                             clef_tensor **dx) {
    (void)x, (void)wanted;
    dx[0] = clef_grad_enabled(clef_tensor_context(y[0]))
                ? clef_mul(y[0], clef_sub(g[0], clef_sum(clef_mul(g[0], y[0]), (int[]){dim_of(y[0])}, 1, true)))
                : slope(&op_softmax_slope, y[0], g[0]);
}

/* dx = g - exp(y)·Σ g */
static void log_softmax_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                                 clef_tensor **dx) {
    (void)x, (void)wanted;
    dx[0] = clef_grad_enabled(clef_tensor_context(y[0]))
                ? clef_sub(g[0], clef_mul(clef_exp(y[0]), clef_sum(g[0], (int[]){dim_of(y[0])}, 1, true)))
                : slope(&op_log_softmax_slope, y[0], g[0]);
}

static const clef__strategy *const softmax_strategies[] = {&(const clef__strategy){.name = "lines", .lower = softmax_lower}, NULL};
static const clef__strategy *const log_softmax_strategies[] = {&(const clef__strategy){.name = "lines", .lower = log_softmax_lower},
                                                               NULL};
static const clef_op op_softmax = {.name = "softmax",
                                   .precision = CLEF__FULL_PRECISION,
                                   .kind = CLEF__KERNEL,
                                   .infer = softmax_infer,
                                   .gradient = softmax_gradient,
                                   .strategies = softmax_strategies};
static const clef_op op_log_softmax = {.name = "log_softmax",
                                       .precision = CLEF__FULL_PRECISION,
                                       .kind = CLEF__KERNEL,
                                       .infer = softmax_infer,
                                       .gradient = log_softmax_gradient,
                                       .strategies = log_softmax_strategies};

static clef_tensor *along(const clef_op *op, clef_tensor *x, int dim) {
    if (!CLEF__GIVEN(op->name, "x", x)) return NULL;
    x = clef__to_float(x);
    int d = dim;
    if (!clef__normalize_dim(clef__nameable_dims(x), &d)) return clef__refuse_dim(x, op->name, dim);
    if (clef_tensor_shape(x).rank == 0) return clef_reshape(along(op, clef_unsqueeze(x, 0), 0), CLEF_SCALAR);
    return clef__apply(op, &x, 1, &(softmax_attributes){d}, sizeof(softmax_attributes));
}

clef_tensor *clef_softmax(clef_tensor *x, int dim) { return along(&op_softmax, x, dim); }
clef_tensor *clef_log_softmax(clef_tensor *x, int dim) { return along(&op_log_softmax, x, dim); }

/* ---- losses of classes along dimension 1: input x, target; for slopes also g of each ---- */

typedef struct class_attributes {
    int64_t ignores, ignored;
    double smoothing;
} class_attributes;

static clef_dtype class_dtype(clef_dtype dtype) { return dtype == CLEF_F64 ? CLEF_F64 : CLEF_F32; }

/* x [n,c,...] and target [n,...]. */
static bool takes_classes(clef__call *call) {
    clef_shape x = call->input[0]->shape;
    return clef__infer_takes(call, clef__is_class_shape(x, call->input[1]->shape), "target is x without its classes");
}

static bool class_infer(clef__call *call) {
    if (!takes_classes(call)) return false;
    call->out->shape = call->input[1]->shape;
    call->out->dtype = class_dtype(call->input[0]->dtype);
    return true;
}

/* How x lies, seen with its classes innermost, and what is left of that without them. */
static clef__axes class_rows(const clef__lowering *lw, int *order, int *kept) {
    clef_shape shape = clef__lower_node(lw)->input[0]->shape;
    clef__operand x = clef__lower_in(lw, 0);
    if (!clef__memory_order(&x, order))
        for (int d = 0; d < shape.rank; d++) order[d] = d;
    int n = 0;
    for (int i = 0; i < shape.rank; i++)
        if (order[i] != 1) order[n++] = order[i];
    order[n] = 1;
    for (int i = 0; i < n; i++) kept[i] = order[i] - (order[i] > 1);
    return (clef__axes){clef_shape_numel(shape) / shape.dim[1], shape.dim[1], 1};
}

static void class_begin(const clef__lowering *lw, const char *kernel, clef__operand x, clef__operand t, clef__axes axes) {
    clef__launch_rows(lw, "softmax.cl", kernel, x.dtype, axes.n);
    clef__launch_held(lw, x.dtype, axes.n, MOST_HELD);
    clef__launch_define(lw, "TT", "%s", clef__token(t.dtype));
}

static void class_lower(const clef__lowering *lw) {
    const class_attributes *a = clef__attributes(clef__lower_node(lw));
    int order[CLEF_MAX_RANK], kept[CLEF_MAX_RANK];
    if (clef__lower_node(lw)->input[0]->shape.dim[1] == 0) { /* so no target is a class */
        clef__lower_fill(lw, clef__lower_out(lw, NULL), NAN);
        return;
    }
    clef__axes axes = class_rows(lw, order, kept);
    clef__operand x = clef__lower_in_dense(lw, 0, order), t = clef__lower_in_dense(lw, 1, kept), y = clef__lower_out(lw, kept);
    class_begin(lw, "cross_entropy_rows", x, t, axes);
    /* clang-format off */
    cross_entropy_rows_args args = {
        .x = x, .t = t, .y = y, .n = axes.n, .smoothing = a->smoothing, .ignores = a->ignores, .ignored = a->ignored,
        .units = units_of(lw, axes, 1),
    };
    /* clang-format on */
    pass_cross_entropy_rows(lw, &args);
    clef__launch_end_rows(lw, axes.n, args.units);
}

static bool is_one_number(const clef__operand *x) {
    for (int d = 0; d < x->rank; d++)
        if (x->dim[d] > 1 && x->stride[d] != 0) return false;
    return true;
}

static void class_slope_lower(const clef__lowering *lw) {
    const class_attributes *a = clef__attributes(clef__lower_node(lw));
    int order[CLEF_MAX_RANK], kept[CLEF_MAX_RANK];
    clef__axes axes = class_rows(lw, order, kept);
    clef__operand x = clef__lower_in_dense(lw, 0, order), t = clef__lower_in_dense(lw, 1, kept);
    bool number = clef__lower_is_number(lw, 2); /* as behind a mean of losses; then x stands in and is not read as g */
    clef__operand g = number ? x : clef__lower_in(lw, 2);
    bool same = !number && is_one_number(&g);
    if (!same && !number) g = clef__lower_in_dense(lw, 2, kept);
    clef__operand dx = clef__lower_out(lw, order);
    class_begin(lw, "cross_entropy_slope_rows", x, t, axes);
    /* clang-format off */
    cross_entropy_slope_rows_args args = {
        .x = x, .t = t, .g = g, .dx = dx,
        .n = axes.n, .smoothing = a->smoothing, .ignores = a->ignores, .ignored = a->ignored,
        .g_stride = number ? -1 : same ? 0 : 1, .g_number = {2, class_dtype(dx.dtype)},
        .units = units_of(lw, axes, 1),
    };
    /* clang-format on */
    pass_cross_entropy_slope_rows(lw, &args);
    clef__launch_end_rows(lw, axes.n, args.units);
}

/* x, target and g, which is of target's shape. */
static bool class_slope_infer(clef__call *call) {
    return takes_classes(call) && clef__infer_takes(call, clef__same_shape(call, 1, 2), "g has target's shape") &&
           clef__infer_like(call);
}

static const clef__strategy *const class_strategies[] = {&(const clef__strategy){.name = "rows", .lower = class_lower}, NULL};
static const clef__strategy *const class_slope_strategies[] = {&(const clef__strategy){.name = "rows", .lower = class_slope_lower},
                                                               NULL};
static const clef_op op_class_slope = {
    .name = "cross_entropy_backward", .kind = CLEF__KERNEL, .infer = class_slope_infer, .strategies = class_slope_strategies};

/* g·(softmax x - (1 - e)·[class is the target] - e/n), and 0 where that loss does not count. */
static clef_tensor *class_slope_composed(clef_tensor *x, clef_tensor *target, clef_tensor *g, const class_attributes *a) {
    clef_shape shape = clef_tensor_shape(x);
    double classes = (double)shape.dim[1];
    clef_tensor *wide = clef__to_wide(x), *none = clef__number(clef_tensor_context(x), clef_tensor_dtype(g), 0);
    clef_tensor *hit = clef_to(clef__is_target(shape, target), clef_tensor_dtype(g));
    clef_tensor *wanted = clef_add_scalar(clef_mul_scalar(hit, 1 - a->smoothing), a->smoothing / classes);
    clef_tensor *counts = clef_logical_and(clef_ge_scalar(target, 0), clef_lt_scalar(target, classes));
    if (a->ignores) counts = clef_logical_and(counts, clef_ne_scalar(target, (double)a->ignored));
    clef_tensor *each = clef_unsqueeze(clef_where(counts, g, none), 1);
    return clef_to(clef_mul(each, clef_sub(clef_softmax(wide, 1), wanted)), clef_tensor_dtype(x));
}

static void class_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                           clef_tensor **dx) {
    const class_attributes *a = clef__attributes(clef__node_of(y[0]));
    if (!wanted[0]) return;
    dx[0] = clef_grad_enabled(clef_tensor_context(y[0]))
                ? class_slope_composed(x[0], x[1], g[0], a)
                : clef__apply(&op_class_slope, (clef_tensor *[]){x[0], x[1], g[0]}, 3, a, sizeof *a);
}

static const clef_op op_class_losses = {.name = "cross_entropy",
                                        .kind = CLEF__KERNEL,
                                        .infer = class_infer,
                                        .gradient = class_gradient,
                                        .strategies = class_strategies};

bool clef__is_class_shape(clef_shape x, clef_shape target) {
    if (x.rank < 2 || target.rank != x.rank - 1) return false;
    for (int i = 0; i < target.rank; i++)
        if (target.dim[i] != x.dim[i + (i > 0)]) return false;
    return true;
}

clef_tensor *clef__class_losses(clef_tensor *x, clef_tensor *target, double smoothing, bool ignores, int64_t ignored) {
    class_attributes a = {ignores, ignores ? ignored : 0, smoothing};
    return clef__apply(&op_class_losses, (clef_tensor *[]){x, target}, 2, &a, sizeof a);
}

clef_tensor *clef__is_target(clef_shape shape, clef_tensor *target) {
    clef_tensor *classes = clef__count_beside(target, shape.dim[1], CLEF_I32);
    return clef_eq(clef_unsqueeze(target, 1), clef__per_channel(classes, shape.rank));
}
