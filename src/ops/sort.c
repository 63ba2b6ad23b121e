/* sort.c — sort, argsort and top-k: the first k of each row in an order, with their indices.  See cl/sort.cl. */
#include "kernels/args.h"
#include "kernels/lanes.h"
#include "ops/ops.h"
#include "sort.args"

CLEF__ARGS(sort_blocks, SORT_BLOCKS_ARGS)
CLEF__ARGS(merge_runs, MERGE_RUNS_ARGS)
CLEF__ARGS(put_indices, PUT_INDICES_ARGS)
CLEF__ARGS(put_values, PUT_VALUES_ARGS)
CLEF__ARGS(place, PLACE_ARGS)

typedef struct order_attributes {
    int64_t dim, k, descending;
} order_attributes;

typedef struct place_attributes {
    int64_t dim, n;
} place_attributes;

/* ---- the first k in order: values and indices ---- */

static bool order_infer(clef__call *call) {
    const order_attributes *a = call->attributes;
    clef_shape shape = call->input[0]->shape;
    bool fits = a->dim >= 0 && a->dim < shape.rank && a->k >= 0 && a->k <= shape.dim[a->dim];
    if (!clef__infer_takes(call, fits, "x has k elements along the dimension")) return false;
    shape.dim[a->dim] = a->k;
    call->out[0] = (clef__type){shape, call->input[0]->dtype};
    call->out[1] = (clef__type){shape, CLEF_I64};
    return true;
}

/* Rows [rows, n] of items, in runs that are in order. */
typedef struct runs {
    clef__operand items;
    int64_t rows, n, run, words;
} runs;

/* What is left of a row of n when each `whole` gives `keep`. */
static int64_t left_of(int64_t n, int64_t whole, int64_t keep) { return n / whole * keep + clef__smaller(n % whole, keep); }

static clef__operand new_items(const clef__lowering *lw, const runs *r) {
    return clef__lower_scratch(lw, CLEF_I64, CLEF_SHAPE(r->rows, r->n, r->words));
}

static void begin_order(const clef__lowering *lw, const char *kernel, clef_dtype dtype, int64_t words) {
    clef__launch_begin(lw, "sort.cl", kernel);
    clef__launch_define(lw, "DT", "%s", clef__token(dtype));
    clef__launch_define(lw, "DOUBLES", "%d", words == 2);
}

enum { LONG_BLOCK = 256, SHORT_BLOCK = 32, GROUP = 16 };

/* Elements of a block.  One that is kept meets half of what is kept of its block, which is little in either case; most of a long block are
   not.  Where work-items are few, they take whole rows, or as much as leaves work for all. */
static int64_t block_of(const clef__lowering *lw, clef__axes axes, int64_t k) {
    bool wide = clef__lower_profile(lw)->wide_items;
    if (k > (wide ? 64 : 16)) return SHORT_BLOCK;
    if (!wide) return LONG_BLOCK;
    int64_t rows = axes.outer * axes.inner, items = clef__lower_items(lw, rows * axes.n, 4096);
    return clef__larger(LONG_BLOCK, clef__ceil_div(axes.n, clef__ceil_div(items, rows)));
}

static runs sort_blocks(const clef__lowering *lw, clef__operand x, clef__axes axes, const order_attributes *a) {
    bool wide = clef_dtype_size(x.dtype) == 8 || axes.n > UINT32_MAX;
    int64_t block = block_of(lw, axes, a->k), keep = clef__smaller(block, a->k);
    runs r = {.rows = axes.outer * axes.inner, .n = left_of(axes.n, block, keep), .run = keep, .words = wide ? 2 : 1};
    r.items = new_items(lw, &r);
    begin_order(lw, "sort_blocks", x.dtype, r.words);
    if (clef__lower_profile(lw)->wide_items && axes.inner == 1 && block > SHORT_BLOCK)
        clef__launch_define(lw, "GROUP", "%d", GROUP);
    /* clang-format off */
    sort_blocks_args args = {
        .x = x, .y = r.items, .descending = a->descending,
        .n = axes.n, .inner = axes.inner, .block = block, .keep = keep,
        .units = clef__lower_units(lw, r.rows * clef__ceil_div(axes.n, block), 8 * clef__smaller(block, axes.n)),
    };
    /* clang-format on */
    pass_sort_blocks(lw, &args);
    clef__launch_end_units(lw, args.units);
    return r;
}

/* Two runs become one, of at most k items. */
static runs merge_runs(const clef__lowering *lw, runs from, clef_dtype dtype, int64_t k) {
    int64_t keep = clef__smaller(2 * from.run, k), chunk = clef__lower_profile(lw)->wide_items ? 4096 : 64;
    chunk = clef__smaller(chunk, keep);
    runs to = from;
    to.n = left_of(from.n, 2 * from.run, keep);
    to.run = keep;
    to.items = new_items(lw, &to);
    begin_order(lw, "merge_runs", dtype, from.words);
    int64_t chunks = clef__ceil_div(from.n, 2 * from.run) * clef__ceil_div(keep, chunk);
    clef__units units = clef__lower_units(lw, from.rows * chunks, 4 * chunk);
    merge_runs_args args = {
        .x = from.items, .y = to.items, .n = from.n, .run = from.run, .keep = keep, .chunk = chunk, .units = units};
    pass_merge_runs(lw, &args);
    clef__launch_end_units(lw, units);
    return to;
}

static void put_outputs(const clef__lowering *lw, runs sorted, clef__operand x, clef__axes axes, int64_t k, const int *order) {
    for (int what = 0; what < 2; what++) {
        if (!clef__lower_wants(lw, what)) continue;
        clef__operand y = clef__lower_output(lw, what, order);
        clef__units units = clef__lower_units(lw, sorted.rows * k, 4);
        begin_order(lw, what ? "put_indices" : "put_values", x.dtype, sorted.words);
        if (what) {
            put_indices_args args = {.items = sorted.items, .y = y, .k = k, .inner = axes.inner, .units = units};
            pass_put_indices(lw, &args);
        } else {
            put_values_args args = {
                .items = sorted.items, .x = x, .y = y, .n = axes.n, .k = k, .inner = axes.inner, .units = units};
            pass_put_values(lw, &args);
        }
        clef__launch_end_units(lw, units);
    }
}

static void order_lower(const clef__lowering *lw) {
    const order_attributes *a = clef__attributes(clef__lower_node(lw));
    int order[CLEF_MAX_RANK];
    clef__axes axes;
    clef__operand x = clef__lower_along(lw, (int)a->dim, order, &axes);
    runs r = sort_blocks(lw, x, axes, a);
    while (r.n > r.run) r = merge_runs(lw, r, x.dtype, a->k);
    put_outputs(lw, r, x, axes, a->k, order);
}

/* ---- its gradient: back to where the values came from ---- */

static bool place_infer(clef__call *call) {
    const place_attributes *a = call->attributes;
    clef_shape shape = call->input[0]->shape;
    bool fits = a->dim >= 0 && a->dim < shape.rank && a->n >= shape.dim[a->dim] && call->input[1]->dtype == CLEF_I64;
    if (!clef__infer_takes(call, fits && clef__same_shape(call, 0, 1), "there is an index for each of at most n elements"))
        return false;
    shape.dim[a->dim] = a->n;
    *call->out = (clef__type){shape, call->input[0]->dtype};
    return true;
}

static void place_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    const place_attributes *a = clef__attributes(node);
    clef_shape from = node->input[0]->shape;
    clef__axes axes = clef__axes_around(from, a->dim);
    clef__operand y = clef__lower_out(lw, NULL);
    if (axes.n < a->n) clef__lower_fill(lw, y, 0);
    if (axes.n == 0) return;
    clef__operand x = clef__lower_in_dense(lw, 0, NULL), index = clef__lower_in_dense(lw, 1, NULL);
    begin_order(lw, "place", x.dtype, 1);
    clef__units units = clef__lower_units(lw, clef_shape_numel(from), 4);
    place_args args = {.x = x, .index = index, .y = y, .n = a->n, .k = axes.n, .inner = axes.inner, .units = units};
    pass_place(lw, &args);
    clef__launch_end_units(lw, units);
}

static void place_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                           clef_tensor **dx) {
    const place_attributes *a = clef__attributes(clef__node_of(y[0]));
    if (wanted[0]) dx[0] = clef_gather(g[0], (int)a->dim, x[1]);
}

static const clef__strategy *const place_strategies[] = {&(const clef__strategy){.name = "elements", .lower = place_lower}, NULL};
static const clef_op op_place = {.name = "sort_backward",
                                 .kind = CLEF__KERNEL,
                                 .infer = place_infer,
                                 .gradient = place_gradient,
                                 .strategies = place_strategies};

static void order_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                           clef_tensor **dx) {
    (void)wanted;
    int64_t dim = ((const order_attributes *)clef__attributes(clef__node_of(y[0])))->dim;
    place_attributes a = {dim, clef_tensor_shape(x[0]).dim[dim]};
    if (g[0]) dx[0] = clef__apply(&op_place, (clef_tensor *[]){g[0], y[1]}, 2, &a, sizeof a);
}

static const clef__strategy *const order_strategies[] = {&(const clef__strategy){.name = "merge", .lower = order_lower}, NULL};
#define ORDER_OP(what) \
    { .name = what, .kind = CLEF__KERNEL, .infer = order_infer, .gradient = order_gradient, .strategies = order_strategies }
static const clef_op op_sort = ORDER_OP("sort"), op_topk = ORDER_OP("topk");

/* ---- the functions ---- */

/* The first k of x along dim (all for op_sort) into both of out; a scalar is a row of one.  False with the error set. */
static bool apply_order(const clef_op *op, const char *name, clef_tensor *x, int64_t k, int dim, bool descending,
                        clef_tensor **out) {
    clef_shape shape = clef_tensor_shape(x);
    clef_context *ctx = clef_tensor_context(x);
    int d = dim;
    if (!clef__normalize_dim(clef__nameable_dims(x), &d)) return clef__refuse_dim(x, name, dim), false;
    int64_t n = shape.rank ? shape.dim[d] : 1;
    if (op == &op_sort) k = n;
    if (k < 0 || k > n)
        return clef__refuse(ctx, name, CLEF_INVALID, "k = %lld is not within 0 … %lld, the size of dimension %d of x %s",
                            (long long)k, (long long)n, dim, clef__shape_text(shape)),
               false;
    order_attributes a = {d, k, descending};
    if (shape.rank == 0) x = clef_unsqueeze(x, 0);
    if (!clef__apply_all(op, &x, 1, &a, sizeof a, out, 2)) return false;
    for (int i = 0; i < 2 && shape.rank == 0 && k == 1; i++) {
        clef_tensor *row = out[i];
        out[i] = clef_reshape(row, CLEF_SCALAR);
        clef__tensor_drop(row);
    }
    return out[0] && out[1];
}

static clef_status order(const clef_op *op, const char *name, clef_tensor *x, int64_t k, int dim, bool descending,
                         clef_tensor **values, clef_tensor **indices) {
    clef_tensor *out[2] = {NULL, NULL};
    clef_status status = CLEF_OK;
    if (!CLEF__GIVEN(name, "x", x)) status = CLEF_INVALID;
    else if (!values && !indices)
        status = clef__fail(clef_tensor_context(x), CLEF_INVALID, "%s: both values and indices are NULL", name);
    else if (!apply_order(op, name, x, k, dim, descending, out)) status = clef_error_status(clef_tensor_context(x));
    clef_tensor **const asked[] = {values, indices};
    for (int i = 0; i < 2; i++) {
        if (asked[i]) *asked[i] = status == CLEF_OK ? out[i] : NULL;
        else clef__tensor_drop(out[i]); /* as long as there is a handle, the end of the step computes it */
    }
    return status;
}

clef_status clef_sort(clef_tensor *x, int dim, bool descending, clef_tensor **values, clef_tensor **indices) {
    return order(&op_sort, "sort", x, 0, dim, descending, values, indices);
}

clef_tensor *clef_argsort(clef_tensor *x, int dim, bool descending) {
    clef_tensor *indices;
    order(&op_sort, "argsort", x, 0, dim, descending, NULL, &indices);
    return indices;
}

clef_status clef_topk(clef_tensor *x, int64_t k, int dim, bool largest, clef_tensor **values, clef_tensor **indices) {
    return order(&op_topk, "topk", x, k, dim, largest, values, indices);
}
