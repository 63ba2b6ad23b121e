/* softmax.c — softmax and log-softmax along one dimension; gradients of any order from other ops. */
#include "ops/ops.h"

typedef struct softmax_attributes {
    int64_t dim;
} softmax_attributes;

static int dim_of(clef_tensor *y) { return (int)((const softmax_attributes *)clef__attributes(y->node))->dim; }

static bool softmax_infer(clef__call *call) {
    call->shape = call->input[0]->shape;
    call->dtype = call->input[0]->dtype;
    return true;
}

static void softmax_launch(clef__lowering *l, int logarithm) {
    const softmax_attributes *a = clef__attributes(clef__lower_node(l));
    int order[CLEF_MAX_RANK];
    clef__axes axes;
    clef__operand x = clef__lower_along(l, (int)a->dim, order, &axes), y = clef__lower_out(l, order);
    bool rows = axes.inner == 1;
    int lanes = clef__lower_lanes(l, rows ? axes.n : axes.inner);
    clef__launch_begin(l, "softmax.cl", rows ? "softmax_rows" : "softmax_columns");
    clef__launch_define(l, "DT", "%s", clef__token(x.dtype));
    clef__launch_define(l, "LOG", "%d", logarithm);
    clef__launch_define(l, "W", "%d", lanes);
    clef__launch_tensor(l, x, false);
    clef__launch_tensor(l, y, true);
    clef__launch_long(l, axes.n);
    if (!rows) clef__launch_long(l, axes.inner);
    clef__launch_units(l, axes.outer * (rows ? 1 : (axes.inner + lanes - 1) / lanes), 4 * axes.n * (rows ? 1 : lanes));
}

static void softmax_lower(clef__lowering *l) { softmax_launch(l, 0); }
static void log_softmax_lower(clef__lowering *l) { softmax_launch(l, 1); }

/* dx = y·(g - Σ g·y) */
static void softmax_gradient(clef_tensor *const *x, clef_tensor *y, clef_tensor *g, const bool *wanted, clef_tensor **dx) {
    (void)x, (void)wanted;
    clef_tensor *mean = clef_sum(clef_mul(g, y), (int[]){ dim_of(y) }, 1, true);
    dx[0] = clef_mul(y, clef_sub(g, mean));
}

/* dx = g - exp(y)·Σ g */
static void log_softmax_gradient(clef_tensor *const *x, clef_tensor *y, clef_tensor *g, const bool *wanted, clef_tensor **dx) {
    (void)x, (void)wanted;
    dx[0] = clef_sub(g, clef_mul(clef_exp(y), clef_sum(g, (int[]){ dim_of(y) }, 1, true)));
}

static const clef__strategy softmax_strategies[] = { { .name = "lines", .lower = softmax_lower }, { 0 } };
static const clef__strategy log_softmax_strategies[] = { { .name = "lines", .lower = log_softmax_lower }, { 0 } };
static const clef_op op_softmax = { .name = "softmax", .onnx = "Softmax", .doc = "exp(x) / sum exp(x) along a dimension",
                                    .kind = CLEF__KERNEL, .infer = softmax_infer, .gradient = softmax_gradient,
                                    .strategies = softmax_strategies };
static const clef_op op_log_softmax = { .name = "log_softmax", .onnx = "LogSoftmax", .doc = "log(softmax(x)), without overflow",
                                        .kind = CLEF__KERNEL, .infer = softmax_infer, .gradient = log_softmax_gradient,
                                        .strategies = log_softmax_strategies };

static clef_tensor *along(const clef_op *op, clef_tensor *x, int dim) {
    x = clef__to_float(x);
    if (!x) return NULL;
    int d = dim;
    if (!clef__normalize_dim(clef_tensor_shape(x).rank, &d))
        return clef__refuse(x->ctx, op->name, CLEF_INVALID, "x %s has no dimension %d", clef__shape_text(clef_tensor_shape(x)), dim);
    return clef__apply(op, &x, 1, &(softmax_attributes){ d }, sizeof(softmax_attributes));
}

clef_tensor *clef_softmax(clef_tensor *x, int dim) { return along(&op_softmax, x, dim); }
clef_tensor *clef_log_softmax(clef_tensor *x, int dim) { return along(&op_log_softmax, x, dim); }
