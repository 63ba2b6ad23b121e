/* scan.c — prefix sums and products: see cl/scan.cl. */
#include "kernels/args.h"
#include "kernels/lanes.h"
#include "ops/ops.h"
#include "scan.args"

CLEF__ARGS(scanned, SCANNED_ARGS)
CLEF__ARGS(sum_chunks, SUM_CHUNKS_ARGS)
CLEF__ARGS(scan_chunks, SCAN_CHUNKS_ARGS)

typedef struct scan_attributes {
    int64_t dim, reverse; /* reverse: sums begin at the last element */
} scan_attributes;

enum { CHUNK = 1024, /* of sums */ STRIP = 1024, LINES = 4 };

static const clef_op op_cumprod;

/* i64 for whole numbers, as a sum. */
static clef_dtype result_dtype(clef_dtype dtype) { return clef__is_float(dtype) ? dtype : CLEF_I64; }

static bool scan_infer(clef__call *call) {
    int64_t d = ((const scan_attributes *)call->attributes)->dim;
    clef_shape x = call->input[0]->shape;
    *call->out = (clef__type){x, result_dtype(call->input[0]->dtype)};
    return clef__infer_takes(call, d >= 0 && d < x.rank, "x has the dimension");
}

/* Columns that a unit takes: as many as leave work for all units where a work-item goes along memory by itself, else one. */
static int64_t strip_of(const clef__lowering *lw, clef__axes axes, int64_t chunks) {
    if (!clef__lower_profile(lw)->wide_items || axes.inner == 1) return 1;
    int64_t lanes = clef__lower_profile(lw)->vector, items = clef__lower_items(lw, axes.outer * axes.n * axes.inner, 1024);
    int64_t strips = clef__ceil_div(items, axes.outer * chunks); /* that many or more */
    return clef__smaller(clef__ceil_div(axes.inner, strips * lanes) * lanes, STRIP);
}

static void begin_scan(const clef__lowering *lw, const char *kernel, clef__operand x, clef_dtype to, int64_t inner) {
    bool wide = clef__lower_profile(lw)->wide_items;
    clef__launch_begin(lw, "scan.cl", kernel);
    clef__launch_define(lw, "PRODUCT", "%d", clef__lower_node(lw)->op == &op_cumprod);
    clef__launch_define(lw, "DT", "%s", clef__token(x.dtype));
    clef__launch_define(lw, "OT", "%s", clef__token(to));
    if (wide && inner > 1) {
        clef__launch_define(lw, "STRIP", "%d", STRIP);
        clef__launch_define(lw, "W", "%d", clef__lower_lanes(lw, inner));
    } else if (wide) clef__launch_define(lw, "LINES", "%d", LINES);
}

/* y := x scanned along n, both [outer, n, inner] in memory; so are the sums of chunks, with fewer n. */
static void scan_levels(const clef__lowering *lw, clef__operand x, clef__operand y, clef__axes axes, int64_t reverse) {
    clef__operand sums = y; /* not read */
    int64_t length = clef__lower_node(lw)->op == &op_cumprod ? clef__larger(axes.n, 1) : CHUNK,
            chunks = clef__ceil_div(axes.n, length);
    int64_t strip = strip_of(lw, axes, chunks);
    clef__units units =
        clef__lower_units(lw, axes.outer * chunks * clef__ceil_div(axes.inner, strip), clef__smaller(axes.n, length) * strip);
    scanned_args scanned = {.reverse = reverse, .n = axes.n, .length = length, .inner = axes.inner, .strip = strip};
    if (chunks > 1) {
        clef_dtype wide = y.dtype == CLEF_F16 || y.dtype == CLEF_BF16 ? CLEF_F32 : y.dtype;
        clef__operand each = clef__lower_scratch(lw, wide, CLEF_SHAPE(axes.outer, chunks, axes.inner));
        begin_scan(lw, "sum_chunks", x, y.dtype, axes.inner);
        sum_chunks_args args = {.x = x, .sums = each, .scanned = scanned, .units = units};
        pass_sum_chunks(lw, &args);
        clef__launch_end_units(lw, units);
        sums = clef__lower_scratch(lw, wide, CLEF_SHAPE(axes.outer, chunks, axes.inner));
        scan_levels(lw, each, sums, (clef__axes){axes.outer, chunks, axes.inner}, 0);
    }
    begin_scan(lw, "scan_chunks", x, y.dtype, axes.inner);
    scan_chunks_args args = {.x = x, .sums = sums, .y = y, .scanned = scanned, .units = units};
    pass_scan_chunks(lw, &args);
    clef__launch_end_units(lw, units);
}

static void scan_lower(const clef__lowering *lw) {
    const scan_attributes *a = clef__attributes(clef__lower_node(lw));
    int order[CLEF_MAX_RANK];
    clef__axes axes;
    clef__operand x = clef__lower_along(lw, (int)a->dim, order, &axes);
    scan_levels(lw, x, clef__lower_out(lw, order), axes, a->reverse);
}

static clef_tensor *apply_scan(clef_tensor *x, int64_t dim, bool reverse);

static void scan_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                          clef_tensor **dx) {
    (void)x, (void)wanted;
    const scan_attributes *a = clef__attributes(clef__node_of(y[0]));
    dx[0] = apply_scan(g[0], a->dim, !a->reverse);
}

static const clef__strategy *const scan_strategies[] = {&(const clef__strategy){.name = "chunks", .lower = scan_lower}, NULL};
static const clef_op op_cumsum = {.name = "cumsum",
                                  .precision = CLEF__FULL_PRECISION,
                                  .kind = CLEF__KERNEL,
                                  .infer = scan_infer,
                                  .gradient = scan_gradient,
                                  .strategies = scan_strategies};

static clef_tensor *apply_scan(clef_tensor *x, int64_t dim, bool reverse) {
    scan_attributes a = {dim, reverse};
    return clef__apply(&op_cumsum, &x, 1, &a, sizeof a);
}

/* ---- products ---- */

static clef_tensor *apply_product(clef_tensor *x, int64_t dim) {
    return clef__apply(&op_cumprod, &x, 1, &(scan_attributes){.dim = dim}, sizeof(scan_attributes));
}

/* Up to the first zero of a row y/x is the product of the other factors, at it the product that leaves it out, and beyond it all of
   them have the zero. */
static clef_tensor *product_slopes(clef_tensor *x, clef_tensor *g, int64_t dim) {
    clef_tensor *zero = clef_eq_scalar(x, 0), *zeros = clef_cumsum(zero, (int)dim);
    clef_tensor *first = clef_logical_and(zero, clef_eq_scalar(zeros, 1));
    clef_tensor *without = apply_product(clef_where_scalar(clef_logical_not(first), x, 1), dim);
    clef_tensor *before =
        clef_div(apply_scan(clef_mul(g, apply_product(x, dim)), dim, true), clef_where_scalar(clef_logical_not(zero), x, 1));
    clef_tensor *at = clef_where_scalar(first, apply_scan(clef_mul(g, without), dim, true), 0);
    return clef_where(clef_eq_scalar(zeros, 0), before, at);
}

/* The same in a form that can be differentiated wherever zeros are: for each of the n factors the n prefix products without it. */
static clef_tensor *product_slopes_composed(clef_tensor *x, clef_tensor *g, int dim) {
    int last = clef_tensor_shape(x).rank - 1;
    clef_tensor *along = clef_transpose(x, dim, last), *dy = clef_transpose(g, dim, last);
    clef_shape moved = clef_tensor_shape(along);
    int64_t n = moved.dim[last], rows = clef_shape_numel(moved) / n;
    clef_tensor *i = clef__count_beside(x, n, CLEF_I32), *other = clef_ne(clef_unsqueeze(i, 0), clef_unsqueeze(i, 1));
    clef_tensor *factors = clef_expand(clef_reshape(along, CLEF_SHAPE(rows, 1, n)), CLEF_SHAPE(rows, n, n));
    clef_tensor *products = apply_product(clef_where_scalar(other, factors, 1), 2);
    clef_tensor *each = clef_triu(clef_mul(products, clef_reshape(dy, CLEF_SHAPE(rows, 1, n))), 0);
    return clef_transpose(clef_reshape(clef_sum(each, (int[]){2}, 1, false), moved), dim, last);
}

enum { MOST_FACTORS = 1024, MOST_PRODUCTS = 1 << 26 }; /* of a row; in memory at a time */

static void product_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                             clef_tensor **dx) {
    (void)wanted;
    int64_t dim = ((const scan_attributes *)clef__attributes(clef__node_of(y[0])))->dim, n = clef_tensor_shape(x[0]).dim[dim];
    clef_tensor *factors = clef__to_wide(x[0]), *dy = clef__to_wide(g[0]);
    int64_t all = clef_numel(x[0]);
    bool composed = clef_grad_enabled(clef_tensor_context(x[0])) && n <= MOST_FACTORS && all > 0 && all * n <= MOST_PRODUCTS;
    clef_tensor *slopes = composed ? product_slopes_composed(factors, dy, (int)dim) : product_slopes(factors, dy, dim);
    dx[0] = clef_to(slopes, clef_tensor_dtype(x[0]));
}

static const clef_op op_cumprod = {.name = "cumprod",
                                   .precision = CLEF__FULL_PRECISION,
                                   .kind = CLEF__KERNEL,
                                   .infer = scan_infer,
                                   .gradient = product_gradient,
                                   .strategies = scan_strategies};

/* ---- the functions ---- */

/* x itself where it is a scalar: one element long. */
static clef_tensor *scan(const clef_op *op, clef_tensor *x, int dim) {
    if (!CLEF__GIVEN(op->name, "x", x) || !(x = clef__autocast(x, op->precision))) return NULL;
    scan_attributes a = {0};
    int d = dim;
    if (!clef__normalize_dim(clef__nameable_dims(x), &d)) return clef__refuse_dim(x, op->name, dim);
    if (clef_tensor_shape(x).rank == 0) return clef_to(x, result_dtype(clef_tensor_dtype(x)));
    a.dim = d;
    return clef__apply(op, &x, 1, &a, sizeof a);
}

clef_tensor *clef_cumsum(clef_tensor *x, int dim) { return scan(&op_cumsum, x, dim); }
clef_tensor *clef_cumprod(clef_tensor *x, int dim) { return scan(&op_cumprod, x, dim); }
