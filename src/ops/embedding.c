/* embedding.c — reading and adding by index: gather, scatter_add, embedding, each the other's gradient; and one-hot.

   An index outside the dimension reads 0 and adds nothing: indices are data, so they cannot be refused when the expression is
   written, and no kernel may leave its memory. */
#include "kernels/lanes.h"
#include "ops/ops.h"

typedef struct index_attributes {
    int64_t dim, rows; /* rows: of the table, in embedding's gradient */
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

/* [outer, n, inner] of a row-major shape around dim. */
static clef__axes around(clef_shape shape, int64_t dim) {
    clef__axes a = {1, shape.dim[dim], 1};
    for (int i = 0; i < dim; i++) a.outer *= shape.dim[i];
    for (int i = (int)dim + 1; i < shape.rank; i++) a.inner *= shape.dim[i];
    return a;
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

static void gather_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    clef__axes from = around(node->input[0]->shape, attributes_of(node)->dim),
               to = around(node->out->shape, attributes_of(node)->dim);
    clef__operand y = clef__lower_out(lw, NULL);
    if (from.n == 0) {
        clef__lower_fill(lw, y, 0);
        return;
    }
    clef__operand x = clef__lower_in_dense(lw, 0, NULL), index = clef__lower_in_dense(lw, 1, NULL);
    begin_rows(lw, "gather", x.dtype, index.dtype, 0);
    clef__launch_tensor(lw, x, false);
    clef__launch_tensor(lw, index, false);
    clef__launch_tensor(lw, y, true);
    clef__launch_long(lw, from.n);
    clef__launch_long(lw, to.n);
    clef__launch_long(lw, to.inner);
    clef__launch_units(lw, to.outer * to.n * to.inner, 4);
}

static void gather_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    (void)wanted;
    clef_tensor *nothing = clef_zeros(clef_tensor_context(y[0]), clef_tensor_shape(x[0]), clef_tensor_dtype(x[0]));
    dx[0] = clef_scatter_add(nothing, (int)attributes_of(clef__node_of(y[0]))->dim, x[1], g[0]);
}

static const clef__strategy gather_strategies[] = {{.name = "elements", .lower = gather_lower}, {0}};
static const clef_op op_gather = {
    .name = "gather", .kind = CLEF__KERNEL, .infer = gather_infer, .gradient = gather_gradient, .strategies = gather_strategies};

/* The corner of x as large as index in all dimensions but d; NULL after refusing an index that is larger. */
static clef_tensor *corner(clef_tensor *x, int d, clef_tensor *index, const char *op) {
    clef_shape have = clef_tensor_shape(x), want = clef_tensor_shape(index);
    bool fits = have.rank == want.rank, same = true;
    for (int i = 0; fits && i < have.rank; i++) {
        if (i == d) want.dim[i] = have.dim[i];
        fits = want.dim[i] <= have.dim[i];
        same &= want.dim[i] == have.dim[i];
    }
    if (!fits)
        return clef__refuse(clef_tensor_context(x), op, CLEF_SHAPE, "index %s reaches beyond x %s outside dimension %d",
                            clef__shape_text(clef_tensor_shape(index)), clef__shape_text(have), d);
    static const int64_t start[CLEF_MAX_RANK], step[CLEF_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    return same ? x : clef__window(x, start, step, want.dim);
}

clef_tensor *clef_gather(clef_tensor *x, int dim, clef_tensor *index) {
    if (!CLEF__GIVEN("gather", "x index", x, index) || !(index = whole(index, "gather"))) return NULL;
    int d = dim;
    if (!clef__normalize_dim(clef_tensor_shape(x).rank, &d)) return clef__refuse_dim(x, "gather", dim);
    index_attributes a = {.dim = d};
    return clef__apply(&op_gather, (clef_tensor *[]){corner(x, d, index, "gather"), index}, 2, &a, sizeof a);
}

/* ---- scatter_add ---- */

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

static void scatter_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    clef__axes to = around(node->out->shape, attributes_of(node)->dim),
               from = around(node->input[1]->shape, attributes_of(node)->dim);
    clef__operand out = clef__lower_out(lw, NULL), y = sum_place(lw, out);
    clef__lower_copy(lw, y, clef__lower_in(lw, 0));
    if (from.outer * from.n * from.inner > 0) {
        clef__operand index = clef__lower_in_dense(lw, 1, NULL);
        clef__operand x = widened(lw, clef__lower_in_dense(lw, 2, NULL), node->input[2]->shape, y.dtype);
        int64_t columns = to.outer * to.inner, wanted = clef__lower_items(lw, columns * from.n, 1024);
        int64_t parts = wanted / columns < 1 ? 1 : wanted / columns > to.n ? to.n : wanted / columns;
        begin_rows(lw, "scatter_add", y.dtype, index.dtype, 0);
        clef__launch_tensor(lw, x, false);
        clef__launch_tensor(lw, index, false);
        clef__launch_tensor(lw, y, true);
        clef__launch_long(lw, to.n);
        clef__launch_long(lw, from.n);
        clef__launch_long(lw, to.inner);
        clef__launch_long(lw, clef__ceil_div(to.n, parts));
        clef__launch_long(lw, parts);
        clef__launch_units(lw, columns * parts, from.n);
    }
    if (y.value != out.value) clef__lower_copy(lw, out, y);
}

static void scatter_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                             clef_tensor **dx) {
    if (wanted[0]) dx[0] = g[0];
    if (wanted[2]) dx[2] = clef_gather(g[0], (int)attributes_of(clef__node_of(y[0]))->dim, x[1]);
}

static const clef__strategy scatter_strategies[] = {{.name = "owners", .lower = scatter_lower}, {0}};
static const clef_op op_scatter = {.name = "scatter_add",
                                   .kind = CLEF__KERNEL,
                                   .infer = scatter_infer,
                                   .gradient = scatter_gradient,
                                   .strategies = scatter_strategies};

/* The canonical form wants index and x of equal size outside d: otherwise the corner of x is scattered into, and put back. */
static clef_tensor *scatter_corner(clef_tensor *x, clef_tensor *part, int d, clef_tensor *index, clef_tensor *src) {
    static const int64_t start[CLEF_MAX_RANK], step[CLEF_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    clef_tensor *nothing = clef_zeros(clef_tensor_context(x), clef_tensor_shape(part), clef_tensor_dtype(part));
    clef_tensor *sums = clef_scatter_add(nothing, d, index, src);
    return clef_add(x, clef__into_window(sums, clef_tensor_shape(x), start, step, 0));
}

clef_tensor *clef_scatter_add(clef_tensor *x, int dim, clef_tensor *index, clef_tensor *src) {
    if (!CLEF__GIVEN("scatter_add", "x index src", x, index, src) || !(index = whole(index, "scatter_add"))) return NULL;
    int d = dim;
    if (!clef__normalize_dim(clef_tensor_shape(x).rank, &d)) return clef__refuse_dim(x, "scatter_add", dim);
    if (!clef_shape_equal(clef_tensor_shape(index), clef_tensor_shape(src)))
        return clef__refuse(clef_tensor_context(x), "scatter_add", CLEF_SHAPE, "index %s and src %s differ",
                            clef__shape_text(clef_tensor_shape(index)), clef__shape_text(clef_tensor_shape(src)));
    clef_dtype dtype = clef__promote(clef_tensor_dtype(x), clef_tensor_dtype(src));
    if (dtype == CLEF_BOOL) dtype = CLEF_I32;
    x = clef_to(x, dtype);
    src = clef_to(src, dtype);
    clef_tensor *part = corner(x, d, index, "scatter_add");
    if (part != x) return part ? scatter_corner(x, part, d, index, src) : NULL;
    index_attributes a = {.dim = d};
    return clef__apply(&op_scatter, (clef_tensor *[]){x, index, src}, 3, &a, sizeof a);
}

/* ---- embedding ---- */

static bool embedding_infer(clef__call *call) {
    clef_shape table = call->input[0]->shape, index = call->input[1]->shape;
    if (table.rank != 2) return clef__infer_fail(call, CLEF_SHAPE, "table %s is not [rows, width]", clef__shape_text(table));
    if (index.rank == CLEF_MAX_RANK)
        return clef__infer_fail(call, CLEF_SHAPE, "index %s has %d dimensions already", clef__shape_text(index), CLEF_MAX_RANK);
    call->out->shape = index;
    call->out->shape.dim[call->out->shape.rank++] = table.dim[1];
    call->out->dtype = call->input[0]->dtype;
    return true;
}

static void embedding_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    clef_shape shape = node->input[0]->shape;
    clef__operand y = clef__lower_out(lw, NULL);
    if (shape.dim[0] == 0) {
        clef__lower_fill(lw, y, 0);
        return;
    }
    clef__operand table = clef__lower_in_dense(lw, 0, NULL), index = clef__lower_in_dense(lw, 1, NULL);
    begin_rows(lw, "read_rows", table.dtype, index.dtype, clef__lower_lanes(lw, shape.dim[1]));
    clef__launch_tensor(lw, table, false);
    clef__launch_tensor(lw, index, false);
    clef__launch_tensor(lw, y, true);
    clef__launch_long(lw, shape.dim[0]);
    clef__launch_long(lw, shape.dim[1]);
    clef__launch_units(lw, clef_shape_numel(node->input[1]->shape), shape.dim[1]);
}

static bool add_rows_infer(clef__call *call) {
    const index_attributes *a = call->attributes;
    clef_shape g = call->input[0]->shape, index = call->input[1]->shape;
    bool fits = g.rank == index.rank + 1;
    for (int i = 0; fits && i < index.rank; i++) fits = g.dim[i] == index.dim[i];
    if (!clef__infer_takes(call, fits, "g has a row for each index")) return false;
    call->out->shape = CLEF_SHAPE(a->rows, g.dim[g.rank - 1]);
    call->out->dtype = call->input[0]->dtype;
    return true;
}

static void add_rows_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    int64_t v = node->out->shape.dim[0], d = node->out->shape.dim[1], m = clef_shape_numel(node->input[1]->shape);
    clef__operand out = clef__lower_out(lw, NULL), y = sum_place(lw, out);
    clef__lower_fill(lw, y, 0);
    if (m > 0) {
        clef__operand index = clef__lower_in_dense(lw, 1, NULL);
        clef__operand x = widened(lw, clef__lower_in_dense(lw, 0, NULL), node->input[0]->shape, y.dtype);
        int lanes = clef__lower_lanes(lw, d);
        int64_t blocks = clef__ceil_div(d, lanes), parts = clef__lower_items(lw, m * d, 1024) / blocks;
        parts = parts < 1 ? 1 : parts > v ? v : parts;
        int64_t rows = clef__ceil_div(v, parts);
        begin_rows(lw, "add_rows", y.dtype, index.dtype, lanes);
        clef__launch_tensor(lw, x, false);
        clef__launch_tensor(lw, index, false);
        clef__launch_tensor(lw, y, true);
        clef__launch_long(lw, v);
        clef__launch_long(lw, d);
        clef__launch_long(lw, m);
        clef__launch_long(lw, rows);
        clef__launch_units(lw, blocks * clef__ceil_div(v, rows), m);
    }
    if (y.value != out.value) clef__lower_copy(lw, out, y);
}

static void add_rows_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                              clef_tensor **dx) {
    (void)y;
    if (wanted[0]) dx[0] = clef_embedding(g[0], x[1]);
}

static const clef__strategy add_rows_strategies[] = {{.name = "owners", .lower = add_rows_lower}, {0}};
static const clef_op op_add_rows = {.name = "embedding_backward",
                                    .kind = CLEF__KERNEL,
                                    .infer = add_rows_infer,
                                    .gradient = add_rows_gradient,
                                    .strategies = add_rows_strategies};

static void embedding_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                               clef_tensor **dx) {
    (void)y;
    index_attributes a = {.rows = clef_tensor_shape(x[0]).dim[0]};
    if (wanted[0]) dx[0] = clef__apply(&op_add_rows, (clef_tensor *[]){g[0], x[1]}, 2, &a, sizeof a);
}

static const clef__strategy embedding_strategies[] = {{.name = "rows", .lower = embedding_lower}, {0}};
static const clef_op op_embedding = {.name = "embedding",
                                     .kind = CLEF__KERNEL,
                                     .infer = embedding_infer,
                                     .gradient = embedding_gradient,
                                     .strategies = embedding_strategies};

clef_tensor *clef_embedding(clef_tensor *table, clef_tensor *index) {
    if (!CLEF__GIVEN("embedding", "table index", table, index) || !(index = whole(index, "embedding"))) return NULL;
    return clef__apply(&op_embedding, (clef_tensor *[]){table, index}, 2, NULL, 0);
}

/* ---- one-hot ---- */

clef_tensor *clef_one_hot(clef_tensor *index, int64_t classes) {
    if (!CLEF__GIVEN("one_hot", "index", index) || !(index = whole(index, "one_hot"))) return NULL;
    clef_context *ctx = clef_tensor_context(index);
    if (classes < 0 || classes > INT32_MAX)
        return clef__refuse(ctx, "one_hot", CLEF_INVALID, "%lld classes, not within 0 … 2^31 - 1", (long long)classes);
    clef_tensor *each = clef_to_device(clef_arange(ctx, 0, (double)classes, 1, CLEF_I64), clef_tensor_device(index));
    return clef_to(clef_eq(clef_unsqueeze(index, -1), each), CLEF_I64);
}
