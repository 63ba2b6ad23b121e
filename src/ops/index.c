/* index.c — reading, adding and placing by index: gather, scatters, index_select, index_add, embedding, one-hot.  Reading is the
   gradient of adding, and the other way round.

   An index outside the dimension reads 0 and places nothing: indices are data, so they cannot be refused when the expression is
   written, and no kernel may leave its memory. */
#include "index.args"
#include "kernels/args.h"
#include "kernels/lanes.h"
#include "kernels/owners.h"
#include "ops/ops.h"

CLEF__ARGS(owned, OWNED_ARGS)
CLEF__ARGS(gather, GATHER_ARGS)
CLEF__ARGS(scatter, SCATTER_ARGS)
CLEF__ARGS(read_rows, READ_ROWS_ARGS)
CLEF__ARGS(add_rows, ADD_ROWS_ARGS)
CLEF__ARGS(add_copies, ADD_COPIES_ARGS)

typedef struct index_attributes {
    int64_t dim, rows; /* rows: along dim of the result, in index_add */
    int64_t replaces;  /* of extremes: x itself does not count where numbers come */
} index_attributes;

static const index_attributes *attributes_of(const clef__node *node) { return clef__attributes(node); }

/* Indices as i32 or i64; NULL after refusing other dtypes. */
static clef_tensor *whole(clef_tensor *index, const char *op) {
    clef_dtype dtype = clef_tensor_dtype(index);
    if (clef__is_float(dtype) || dtype == CLEF_BOOL)
        return clef__refuse(clef_tensor_context(index), op, CLEF_DTYPE, "index is %s, not a whole number", clef_dtype_name(dtype));
    return dtype == CLEF_U8 ? clef_to(index, CLEF_I32) : index;
}

static void begin_rows(const clef__lowering *lw, const char *kernel, clef_dtype dtype, clef_dtype index, int lanes) {
    clef__launch_begin(lw, "index.cl", kernel);
    clef__launch_define(lw, "DT", "%s", clef__token(dtype));
    clef__launch_define(lw, "IT", "%s", clef__token(index));
    if (lanes) clef__launch_define(lw, "W", "%d", lanes);
}

/* ---- gather ---- */

/* Is index as large as x in all dimensions but the attribute's? */
static bool takes_index(clef__call *call) {
    int64_t dim = ((const index_attributes *)call->attributes)->dim;
    clef_shape x = call->input[0]->shape, index = call->input[1]->shape;
    bool fits = dim >= 0 && dim < x.rank && index.rank == x.rank;
    for (int i = 0; fits && i < x.rank; i++) fits = i == dim || index.dim[i] == x.dim[i];
    return clef__infer_takes(call, fits, "index fits x");
}

static bool gather_infer(clef__call *call) {
    if (!takes_index(call)) return false;
    call->out->shape = call->input[1]->shape;
    call->out->dtype = call->input[0]->dtype;
    return true;
}

/* y [outer, m, inner].  shared: one index [m] for all of outer, and inner is 1. */
static void launch_gather(const clef__lowering *lw, clef__operand y, clef__axes from, int64_t m, bool shared) {
    clef__operand x = clef__lower_in_dense(lw, 0, NULL), index = clef__lower_in_dense(lw, 1, NULL);
    begin_rows(lw, "gather", x.dtype, index.dtype, 0);
    clef__units units = clef__lower_units(lw, from.outer * m * from.inner, 4);
    gather_args args = {.x = x, .index = index, .y = y, .n = from.n, .m = m, .inner = from.inner, .shared = shared, .units = units};
    pass_gather(lw, &args);
    clef__launch_end_units(lw, units);
}

static void gather_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    clef__axes from = clef__axes_around(node->input[0]->shape, attributes_of(node)->dim),
               to = clef__axes_around(node->out->shape, attributes_of(node)->dim);
    clef__operand y = clef__lower_out(lw, NULL);
    if (from.n == 0) {
        clef__lower_fill(lw, y, 0);
        return;
    }
    launch_gather(lw, y, from, to.n, false);
}

static void gather_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    (void)wanted;
    dx[0] = clef_scatter_add(clef_zeros_like(x[0]), (int)attributes_of(clef__node_of(y[0]))->dim, x[1], g[0]);
}

static const clef__strategy *const gather_strategies[] = {&(const clef__strategy){.name = "elements", .lower = gather_lower}, NULL};
static const clef_op op_gather = {
    .name = "gather", .kind = CLEF__KERNEL, .infer = gather_infer, .gradient = gather_gradient, .strategies = gather_strategies};

/* *reached: x's shape as far as index goes in all dimensions but d; false after refusing an index that is larger. */
static bool find_corner(clef_tensor *x, int d, clef_tensor *index, const char *op, clef_shape *reached) {
    clef_shape have = clef_tensor_shape(x);
    *reached = clef_tensor_shape(index);
    bool fits = have.rank == reached->rank;
    for (int i = 0; fits && i < have.rank; i++) {
        if (i == d) reached->dim[i] = have.dim[i];
        fits = reached->dim[i] <= have.dim[i];
    }
    if (!fits)
        clef__refuse(clef_tensor_context(x), op, CLEF_SHAPE, "index %s reaches beyond x %s outside dimension %d",
                     clef__shape_text(clef_tensor_shape(index)), clef__shape_text(have), d);
    return fits;
}

static const int64_t corner_start[CLEF_MAX_RANK], corner_step[CLEF_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};

/* That corner of x; NULL after refusing. */
static clef_tensor *corner(clef_tensor *x, int d, clef_tensor *index, const char *op) {
    clef_shape reached;
    if (!find_corner(x, d, index, op, &reached)) return NULL;
    return clef_shape_equal(reached, clef_tensor_shape(x)) ? x : clef__window(x, corner_start, corner_step, reached.dim);
}

clef_tensor *clef_gather(clef_tensor *x, int dim, clef_tensor *index) {
    if (!CLEF__GIVEN("gather", "x index", x, index) || !(index = whole(index, "gather"))) return NULL;
    int d = dim;
    if (!clef__normalize_dim(clef_tensor_shape(x).rank, &d)) return clef__refuse_dim(x, "gather", dim);
    index_attributes a = {.dim = d};
    return clef__apply(&op_gather, (clef_tensor *[]){corner(x, d, index, "gather"), index}, 2, &a, sizeof a);
}

/* ---- scatter_add, scatter, and the largest and smallest of what is scattered ---- */

static const clef_op op_scatter_add, op_scatter_max, op_scatter_min;

/* What comes of the old number and the new one, by its name in index.cl. */
static const char *join_of(const clef_op *op) {
    if (op == &op_scatter_add) return "JOIN_ADD";
    return op == &op_scatter_max ? "JOIN_LARGEST" : op == &op_scatter_min ? "JOIN_SMALLEST" : "JOIN_TAKE";
}

static bool scatter_infer(clef__call *call) {
    return takes_index(call) && clef__infer_takes(call, clef__same_shape(call, 1, 2), "src has index's shape") &&
           clef__infer_like(call);
}

/* Sums in storage of 16 bits would lose most of what is added: these go through f32. */
static clef__operand sum_place(const clef__lowering *lw, clef__operand y) {
    bool half = y.dtype == CLEF_F16 || y.dtype == CLEF_BF16;
    return half ? clef__lower_scratch(lw, CLEF_F32, clef__lower_node(lw)->out->shape) : y;
}

static clef__operand widened(const clef__lowering *lw, clef__operand x, clef_shape shape, clef_dtype dtype) {
    if (x.dtype == dtype) return x;
    clef__operand wide = clef__lower_scratch(lw, dtype, shape);
    clef__lower_copy(lw, wide, x);
    return wide;
}

static owned_args owned_by(const clef__owners *o, clef__axes places) {
    /* clang-format off */
    return (owned_args){.rows = o->rows, .parts = o->parts, .block = o->block, .blocks = o->blocks,
                        .copies = o->copies, .chunk = o->chunk, .size = places.outer * places.n * places.inner};
    /* clang-format on */
}

static clef__units units_of(const clef__lowering *lw, const clef__owners *o, clef__axes places, int64_t reads) {
    return clef__lower_units(lw, places.outer * o->blocks * o->copies * o->parts, o->chunk * reads);
}

/* Where what comes to y is summed first: y itself, or room for copies of it. */
static clef__operand copies_for(const clef__lowering *lw, const clef__owners *o, clef__operand y, int64_t size) {
    return o->copies > 1 ? clef__lower_scratch(lw, y.dtype, CLEF_SHAPE(o->copies, size)) : y;
}

/* y, of `size` elements, += its copies. */
static void add_copies(const clef__lowering *lw, clef__operand y, clef__operand copies, int64_t n, int64_t size) {
    const clef__profile *profile = clef__lower_profile(lw);
    int lanes = clef__lower_lanes(lw, size);
    int64_t block = profile->wide_items ? clef__ceil_div(size, clef__lower_items(lw, size, 1024) * lanes) * lanes : lanes;
    clef__launch_begin(lw, "index.cl", "add_copies");
    clef__launch_define(lw, "DT", "%s", clef__token(y.dtype));
    clef__launch_define(lw, "W", "%d", lanes);
    add_copies_args args = {.x = copies, .y = y, .copies = n, .size = size, .block = block};
    args.units = clef__lower_units(lw, clef__ceil_div(size, block), block * n);
    pass_add_copies(lw, &args);
    clef__launch_end_units(lw, args.units);
}

static void launch_scatter(const clef__lowering *lw, clef__operand y, clef__axes to, int64_t m) {
    const clef__node *node = clef__lower_node(lw);
    clef__operand index = clef__lower_in_dense(lw, 1, NULL);
    clef__operand x = widened(lw, clef__lower_in_dense(lw, 2, NULL), node->input[2]->shape, y.dtype);
    clef__owners o = clef__lower_owners(lw, to, m, (int64_t)clef_dtype_size(y.dtype), true, node->op == &op_scatter_add);
    owned_args owned = owned_by(&o, to);
    clef__operand sums = copies_for(lw, &o, y, owned.size);
    if (o.copies > 1) clef__lower_fill(lw, sums, 0);
    begin_rows(lw, "scatter", y.dtype, index.dtype, 0);
    clef__launch_define(lw, "JOIN", "%s", join_of(node->op));
    /* clang-format off */
    scatter_args args = {
        .x = x, .index = index, .y = sums, .n = to.n, .m = m, .inner = to.inner, .owned = owned,
        .units = units_of(lw, &o, to, o.block),
    };
    /* clang-format on */
    pass_scatter(lw, &args);
    clef__launch_end_units(lw, args.units);
    if (o.copies > 1) add_copies(lw, y, sums, o.copies, owned.size);
}

static void scatter_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    bool adds = node->op == &op_scatter_add;
    clef__axes to = clef__axes_around(node->out->shape, attributes_of(node)->dim),
               from = clef__axes_around(node->input[1]->shape, attributes_of(node)->dim);
    clef__operand out = clef__lower_out(lw, NULL), y = adds ? sum_place(lw, out) : out;
    clef__lower_copy(lw, y, clef__lower_in(lw, 0));
    if (from.outer * from.n * from.inner > 0) launch_scatter(lw, y, to, from.n);
    if (y.value != out.value) clef__lower_copy(lw, out, y);
}

static void scatter_add_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                                 clef_tensor **dx) {
    if (wanted[0]) dx[0] = g[0];
    if (wanted[2]) dx[2] = clef_gather(g[0], (int)attributes_of(clef__node_of(y[0]))->dim, x[1]);
}

/* Where the element of src for this index is the one that is in the result: where the last number placed there is its own. */
static clef_tensor *winners(clef_tensor *x, int d, clef_tensor *index) {
    clef_shape shape = clef_tensor_shape(index), along = {.rank = shape.rank};
    int64_t n = shape.dim[d];
    for (int i = 0; i < shape.rank; i++) along.dim[i] = i == d ? n : 1;
    clef_dtype dtype = n < INT32_MAX ? CLEF_I32 : CLEF_I64;
    clef_tensor *count = clef__count_beside(index, n, dtype);
    clef_tensor *own = clef_expand(clef_reshape(count, along), shape);
    clef_tensor *none = clef__constant(clef_tensor_context(x), clef_tensor_shape(x), dtype, clef_tensor_device(x), 0);
    clef_tensor *last = clef_scatter(none, d, index, own);
    return clef_eq(clef_gather(last, d, index), own);
}

/* What was replaced gets no gradient, nor what was replaced in turn. */
static void scatter_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                             clef_tensor **dx) {
    int d = (int)attributes_of(clef__node_of(y[0]))->dim;
    if (wanted[0]) dx[0] = clef_scatter_value(g[0], d, x[1], 0);
    if (wanted[2]) dx[2] = clef_where_scalar(winners(x[0], d, x[1]), clef_gather(g[0], d, x[1]), 0);
}

/* Equals share the gradient, as those of clef_max do. */
static void extreme_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                             clef_tensor **dx) {
    int d = (int)attributes_of(clef__node_of(y[0]))->dim;
    clef_tensor *wide = clef__to_wide(g[0]);
    if (!wide) return;
    clef_dtype dtype = clef_tensor_dtype(x[0]), joined = clef_tensor_dtype(wide);
    clef_tensor *own = clef_to(clef_eq(x[0], y[0]), joined);
    if (attributes_of(clef__node_of(y[0]))->replaces) own = clef_scatter_value(own, d, x[1], 0);
    clef_tensor *placed = clef_to(clef_eq(x[2], clef_gather(y[0], d, x[1])), joined);
    clef_tensor *share = clef_div(wide, clef_scatter_add(own, d, x[1], placed));
    if (wanted[0]) dx[0] = clef_to(clef_mul(own, share), dtype);
    if (wanted[2]) dx[2] = clef_to(clef_mul(placed, clef_gather(share, d, x[1])), dtype);
}

static const clef__strategy *const scatter_strategies[] = {&(const clef__strategy){.name = "owners", .lower = scatter_lower}, NULL};
static const clef_op op_scatter_add = {.name = "scatter_add",
                                       .kind = CLEF__KERNEL,
                                       .infer = scatter_infer,
                                       .gradient = scatter_add_gradient,
                                       .strategies = scatter_strategies};
static const clef_op op_scatter = {.name = "scatter",
                                   .kind = CLEF__KERNEL,
                                   .infer = scatter_infer,
                                   .gradient = scatter_gradient,
                                   .strategies = scatter_strategies};
#define EXTREME_OP(what) \
    { .name = what, .kind = CLEF__KERNEL, .infer = scatter_infer, .gradient = extreme_gradient, .strategies = scatter_strategies }
static const clef_op op_scatter_max = EXTREME_OP("scatter_max"), op_scatter_min = EXTREME_OP("scatter_min");

/* Dimension d, counted from 0, of x, whole indices and src of their shape; false after refusing. */
static bool scatter_takes(clef_tensor *x, int dim, clef_tensor **index, clef_tensor *src, const char *op, int *d) {
    if (!CLEF__GIVEN(op, "x index src", x, *index, src) || !(*index = whole(*index, op))) return false;
    *d = dim;
    if (!clef__normalize_dim(clef_tensor_shape(x).rank, d)) return clef__refuse_dim(x, op, dim), false;
    if (clef_shape_equal(clef_tensor_shape(*index), clef_tensor_shape(src))) return true;
    clef__refuse(clef_tensor_context(x), op, CLEF_SHAPE, "index %s and src %s differ", clef__shape_text(clef_tensor_shape(*index)),
                 clef__shape_text(clef_tensor_shape(src)));
    return false;
}

/* The canonical form wants index and x of equal size outside d: otherwise the corner of x is scattered into, and put back. */
static clef_tensor *scatter_corner(clef_tensor *x, clef_tensor *part, int d, clef_tensor *index, clef_tensor *src) {
    clef_tensor *sums = clef_scatter_add(clef_zeros_like(clef__to_wide(part)), d, index, clef__to_wide(src));
    clef_tensor *all = clef_add(clef__to_wide(x), clef__into_window(sums, clef_tensor_shape(x), corner_start, corner_step, 0));
    return clef_to(all, clef_tensor_dtype(x));
}

clef_tensor *clef__scatter_add(const char *name, clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src) {
    int d;
    if (!scatter_takes(x, dim, &index, src, name, &d)) return NULL;
    clef_dtype dtype = clef__promote(clef_tensor_dtype(x), clef_tensor_dtype(src));
    if (dtype == CLEF_BOOL) dtype = CLEF_I32;
    x = clef_to(x, dtype);
    src = clef_to(src, dtype);
    clef_tensor *part = corner(x, d, index, name);
    if (part != x) return part ? scatter_corner(x, part, d, index, src) : NULL;
    index_attributes a = {.dim = d};
    return clef__apply(&op_scatter_add, (clef_tensor *[]){x, index, src}, 3, &a, sizeof a);
}

clef_tensor *clef_scatter_add(clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src) {
    return clef__scatter_add("scatter_add", x, dim, index, src);
}

/* An index that is smaller than x outside d goes on as -1, which places nothing. */
static clef_tensor *place(const clef_op *op, const char *name, clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src,
                          bool replaces) {
    int d;
    clef_shape reached;
    if (!scatter_takes(x, dim, &index, src, name, &d) || !find_corner(x, d, index, name, &reached)) return NULL;
    clef_dtype dtype = clef__promote(clef_tensor_dtype(x), clef_tensor_dtype(src));
    x = clef_to(x, dtype);
    src = clef_to(src, dtype);
    if (!clef_shape_equal(reached, clef_tensor_shape(x))) {
        clef_shape full = clef_tensor_shape(x);
        full.dim[d] = clef_tensor_shape(index).dim[d];
        index = clef__into_window(index, full, corner_start, corner_step, -1);
        src = clef__into_window(src, full, corner_start, corner_step, 0);
    }
    index_attributes a = {.dim = d, .replaces = replaces};
    return clef__apply(op, (clef_tensor *[]){x, index, src}, 3, &a, sizeof a);
}

clef_tensor *clef__scatter(const char *name, clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src) {
    return place(&op_scatter, name, x, dim, index, src, false);
}

clef_tensor *clef__scatter_extreme(const char *name, bool largest, clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src,
                                   bool replaces) {
    return place(largest ? &op_scatter_max : &op_scatter_min, name, x, dim, index, src, replaces);
}

clef_tensor *clef_scatter(clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src) {
    return clef__scatter("scatter", x, dim, index, src);
}

/* ---- index_select and embedding: slices along a dimension, of which a table's rows are one ---- */

/* x with dimension dim replaced by index's dimensions. */
static bool select_infer(clef__call *call) {
    int64_t dim = ((const index_attributes *)call->attributes)->dim;
    clef_shape x = call->input[0]->shape, index = call->input[1]->shape, *y = &call->out->shape;
    bool fits = dim >= 0 && dim < x.rank && x.rank - 1 + index.rank <= CLEF_MAX_RANK;
    if (!clef__infer_takes(call, fits, "x has the dimension, and the result not too many")) return false;
    for (int i = 0; i < dim; i++) y->dim[y->rank++] = x.dim[i];
    for (int i = 0; i < index.rank; i++) y->dim[y->rank++] = index.dim[i];
    for (int i = (int)dim + 1; i < x.rank; i++) y->dim[y->rank++] = x.dim[i];
    call->out->dtype = call->input[0]->dtype;
    return true;
}

static void select_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    clef__axes from = clef__axes_around(node->input[0]->shape, attributes_of(node)->dim);
    int64_t m = clef_shape_numel(node->input[1]->shape);
    clef__operand y = clef__lower_out(lw, NULL);
    if (from.n == 0) {
        clef__lower_fill(lw, y, 0);
        return;
    }
    if (from.inner == 1) {
        launch_gather(lw, y, from, m, true);
        return;
    }
    clef__operand x = clef__lower_in_dense(lw, 0, NULL), index = clef__lower_in_dense(lw, 1, NULL);
    begin_rows(lw, "read_rows", x.dtype, index.dtype, clef__lower_lanes(lw, from.inner));
    clef__units units = clef__lower_units(lw, from.outer * m, from.inner);
    read_rows_args args = {.x = x, .index = index, .y = y, .v = from.n, .d = from.inner, .m = m, .units = units};
    pass_read_rows(lw, &args);
    clef__launch_end_units(lw, units);
}

/* g with index's dimensions replaced by the rows; a third input is what the slices are added to. */
static bool index_add_infer(clef__call *call) {
    const index_attributes *a = call->attributes;
    clef_shape g = call->input[0]->shape, index = call->input[1]->shape, *y = &call->out->shape;
    int64_t after = a->dim + index.rank;
    bool fits = a->dim >= 0 && a->rows >= 0 && after <= g.rank;
    for (int i = 0; fits && i < index.rank; i++) fits = g.dim[a->dim + i] == index.dim[i];
    if (!clef__infer_takes(call, fits, "g has a slice for each index")) return false;
    for (int i = 0; i < a->dim; i++) y->dim[y->rank++] = g.dim[i];
    y->dim[y->rank++] = a->rows;
    for (int i = (int)after; i < g.rank; i++) y->dim[y->rank++] = g.dim[i];
    call->out->dtype = call->input[0]->dtype;
    bool based = call->n_inputs < 3 || (clef_shape_equal(call->input[2]->shape, *y) && call->input[2]->dtype == call->out->dtype);
    return clef__infer_takes(call, based, "what is added to has the result's shape");
}

static void launch_index_add(const clef__lowering *lw, clef__operand y, clef__axes to, int64_t m, bool based) {
    clef__operand index = clef__lower_in_dense(lw, 1, NULL), start = y;
    clef__operand x = widened(lw, clef__lower_in_dense(lw, 0, NULL), clef__lower_node(lw)->input[0]->shape, y.dtype);
    clef__owners o = clef__lower_owners(lw, to, m, (int64_t)clef_dtype_size(y.dtype), false, true);
    owned_args owned = owned_by(&o, to);
    clef__operand sums = copies_for(lw, &o, y, owned.size);
    if (o.copies > 1 && based) clef__lower_copy(lw, y, clef__lower_in(lw, 2));
    else if (o.copies > 1) clef__lower_fill(lw, y, 0);
    else if (based) start = widened(lw, clef__lower_in_dense(lw, 2, NULL), clef__lower_node(lw)->out->shape, y.dtype);
    begin_rows(lw, "add_rows", y.dtype, index.dtype, clef__lower_lanes(lw, to.inner));
    clef__launch_define(lw, "BASED", "%d", based && o.copies == 1);
    /* clang-format off */
    add_rows_args args = {
        .x = x, .index = index, .y = sums, .start = start, .v = to.n, .d = to.inner, .m = m, .owned = owned,
        .units = units_of(lw, &o, to, 1 + o.block),
    };
    /* clang-format on */
    pass_add_rows(lw, &args);
    clef__launch_end_units(lw, args.units);
    if (o.copies > 1) add_copies(lw, y, sums, o.copies, owned.size);
}

static void index_add_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    int64_t m = clef_shape_numel(node->input[1]->shape);
    bool based = node->n_inputs == 3;
    clef__operand out = clef__lower_out(lw, NULL), y = sum_place(lw, out);
    if (m > 0) launch_index_add(lw, y, clef__axes_around(node->out->shape, attributes_of(node)->dim), m, based);
    else if (based) clef__lower_copy(lw, y, clef__lower_in(lw, 2));
    else clef__lower_fill(lw, y, 0);
    if (y.value != out.value) clef__lower_copy(lw, out, y);
}

static const clef_op op_index_select, op_index_add;

static void index_add_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                               clef_tensor **dx) {
    index_attributes a = {.dim = attributes_of(clef__node_of(y[0]))->dim};
    if (wanted[0]) dx[0] = clef__apply(&op_index_select, (clef_tensor *[]){g[0], x[1]}, 2, &a, sizeof a);
    if (clef__node_of(y[0])->n_inputs == 3 && wanted[2]) dx[2] = g[0];
}

static void select_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    index_attributes a = {.dim = attributes_of(clef__node_of(y[0]))->dim};
    a.rows = clef_tensor_shape(x[0]).dim[a.dim];
    if (wanted[0]) dx[0] = clef__apply(&op_index_add, (clef_tensor *[]){g[0], x[1]}, 2, &a, sizeof a);
}

static bool embedding_infer(clef__call *call) {
    clef_shape table = call->input[0]->shape, index = call->input[1]->shape;
    if (table.rank != 2) return clef__infer_fail(call, CLEF_SHAPE, "table %s is not [rows, width]", clef__shape_text(table));
    if (index.rank == CLEF_MAX_RANK)
        return clef__infer_fail(call, CLEF_SHAPE, "index %s has %d dimensions already", clef__shape_text(index), CLEF_MAX_RANK);
    return select_infer(call);
}

static const clef__strategy *const index_add_strategies[] = {&(const clef__strategy){.name = "owners", .lower = index_add_lower},
                                                             NULL};
static const clef__strategy *const select_strategies[] = {&(const clef__strategy){.name = "rows", .lower = select_lower}, NULL};
static const clef_op op_index_add = {.name = "index_add",
                                     .kind = CLEF__KERNEL,
                                     .infer = index_add_infer,
                                     .gradient = index_add_gradient,
                                     .strategies = index_add_strategies};
static const clef_op op_index_select = {.name = "index_select",
                                        .kind = CLEF__KERNEL,
                                        .infer = select_infer,
                                        .gradient = select_gradient,
                                        .strategies = select_strategies};
static const clef_op op_embedding = {.name = "embedding",
                                     .kind = CLEF__KERNEL,
                                     .infer = embedding_infer,
                                     .gradient = select_gradient,
                                     .strategies = select_strategies};

clef_tensor *clef_index_select(clef_tensor *x, int dim, clef_tensor *index) {
    if (!CLEF__GIVEN("index_select", "x index", x, index) || !(index = whole(index, "index_select"))) return NULL;
    int d = dim;
    if (!clef__normalize_dim(clef_tensor_shape(x).rank, &d)) return clef__refuse_dim(x, "index_select", dim);
    if (clef_tensor_shape(index).rank != 1)
        return clef__refuse(clef_tensor_context(x), "index_select", CLEF_SHAPE,
                            "index %s must have one dimension; clef_gather takes an index for each element",
                            clef__shape_text(clef_tensor_shape(index)));
    index_attributes a = {.dim = d};
    return clef__apply(&op_index_select, (clef_tensor *[]){x, index}, 2, &a, sizeof a);
}

static bool index_add_fits(clef_tensor *x, int d, clef_tensor *index, clef_tensor *src) {
    clef_shape wanted = clef_tensor_shape(x), at = clef_tensor_shape(index);
    wanted.dim[d] = at.rank == 1 ? at.dim[0] : -1;
    if (clef_shape_equal(wanted, clef_tensor_shape(src))) return true;
    clef__refuse(clef_tensor_context(x), "index_add", CLEF_SHAPE,
                 "index %s must have one dimension, and src %s a slice of x %s for each of it along dimension %d",
                 clef__shape_text(at), clef__shape_text(clef_tensor_shape(src)), clef__shape_text(clef_tensor_shape(x)), d);
    return false;
}

/* All is summed in f32 where it is of a half type, and once rounded. */
clef_tensor *clef_index_add(clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src) {
    if (!CLEF__GIVEN("index_add", "x index src", x, index, src) || !(index = whole(index, "index_add"))) return NULL;
    int d = dim;
    if (!clef__normalize_dim(clef_tensor_shape(x).rank, &d)) return clef__refuse_dim(x, "index_add", dim);
    if (!index_add_fits(x, d, index, src)) return NULL;
    clef_dtype dtype = clef__promote(clef_tensor_dtype(x), clef_tensor_dtype(src));
    if (dtype == CLEF_BOOL) dtype = CLEF_I32;
    clef_dtype summed = dtype == CLEF_F16 || dtype == CLEF_BF16 ? CLEF_F32 : dtype;
    index_attributes a = {.dim = d, .rows = clef_tensor_shape(x).dim[d]};
    clef_tensor *in[] = {clef_to(src, summed), index, clef_to(x, summed)};
    return clef_to(clef__apply(&op_index_add, in, 3, &a, sizeof a), dtype);
}

clef_tensor *clef_embedding(clef_tensor *table, clef_tensor *index) {
    if (!CLEF__GIVEN("embedding", "table index", table, index) || !(index = whole(index, "embedding"))) return NULL;
    return clef__apply(&op_embedding, (clef_tensor *[]){table, index}, 2, &(index_attributes){0}, sizeof(index_attributes));
}

/* ---- one-hot ---- */

clef_tensor *clef_one_hot(clef_tensor *index, int64_t classes) {
    if (!CLEF__GIVEN("one_hot", "index", index) || !(index = whole(index, "one_hot"))) return NULL;
    clef_context *ctx = clef_tensor_context(index);
    if (classes < 0 || classes > INT32_MAX)
        return clef__refuse(ctx, "one_hot", CLEF_INVALID, "%lld classes, not within 0 … 2^31 - 1", (long long)classes);
    clef_tensor *each = clef__count_beside(index, classes, CLEF_I64);
    return clef_to(clef_eq(clef_unsqueeze(index, -1), each), CLEF_I64);
}
