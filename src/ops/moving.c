/* moving.c — windows whose place is a number that may change from step to step without a new plan: slice_at, slice_update, assign_at.

   The number is a tensor of one whole number.  Where it is a constant, it is checked when the expression is written and reaches the
   kernel as an argument; a computed one is read by the kernel, which keeps it within range.  Each op is the other's gradient. */
#include "kernels/args.h"
#include "kernels/lanes.h"
#include "moving.args"
#include "ops/ops.h"
#include "plan/lower/space.h"

typedef struct moving_attributes {
    int64_t dim, length;
} moving_attributes;

static const moving_attributes *attributes_of(const clef__node *node) { return clef__attributes(node); }

static clef_shape window_shape(clef_shape shape, const moving_attributes *a) {
    shape.dim[a->dim] = a->length;
    return shape;
}

/* ---- the kernel ---- */

/* What moves elements of this size. */
static const char *token_of(clef_dtype dtype) {
    static const char *const tokens[] = {[1] = "u8", [2] = "bf16", [4] = "i32", [8] = "i64"};
    return tokens[clef_dtype_size(dtype)];
}

/* The number: an input that is nothing else, or lies in memory. */
typedef struct place {
    bool host;
    int input;
    clef__operand memory;
} place;
static void pass_place(const clef__lowering *lw, const place *p) {
    if (p->host) clef__launch_number(lw, p->input, CLEF_I64);
    else clef__launch_tensor(lw, p->memory, false);
}

enum { OUTER = CLEF_MAX_RANK - 1 }; /* dimensions around a row: for each its size and two strides */
#define CLEF__FIELD_START(name, none) place name;
#define CLEF__PASS_START(name, none) pass_place(lw, &args->name);
#define CLEF__FIELD_OUTER(name, none) int64_t name[3 * OUTER];
#define CLEF__PASS_OUTER(name, none) clef__launch_longs(lw, args->name, 3 * OUTER);
CLEF__ARGS(move_window, MOVE_WINDOW_ARGS)

/* On a CPU a few long blocks of a row, on a GPU one vector each. */
static void set_rows(const clef__lowering *lw, move_window_args *args, const clef__space *s, int lanes) {
    int inner = s->rank - 1;
    int64_t rows = 1;
    args->columns = s->dim[inner], args->from_column = s->stride[0][inner], args->to_column = s->stride[1][inner];
    for (int d = 0; d < OUTER; d++) {
        int at = d - (OUTER - inner); /* from the innermost outwards; 1 where there are fewer */
        rows *= at < 0 ? 1 : s->dim[at];
        args->outer[3 * d] = at < 0 ? 1 : s->dim[at];
        for (int i = 0; i < 2; i++) args->outer[3 * d + 1 + i] = at < 0 ? 0 : s->stride[i][at];
    }
    bool wide = clef__lower_profile(lw)->wide_items;
    args->block = wide ? 4096 : lanes, args->blocks = clef__ceil_div(args->columns, args->block);
    args->units = rows * args->blocks;
    int64_t items = clef__lower_items(lw, args->units, clef__larger(1, 4096 / args->columns));
    args->per = clef__ceil_div(args->units, items);
}

/* Copies a window, `from` beginning start · from_step elements further on and `to` start · to_step; start is the last input. */
static void lower_move(const clef__lowering *lw, clef__operand from, clef__operand to, int64_t from_step, int64_t to_step) {
    const clef__node *node = clef__lower_node(lw);
    int start = node->n_inputs - 1;
    bool host = clef__lower_is_number(lw, start);
    clef__operand number = host ? to : clef__lower_apart(lw, clef__lower_in(lw, start), &to);
    clef__pointwise p = {.shape = clef__operand_shape(&from), .n_operands = 1, .n_stores = 1};
    p.operand[0].x = from;
    p.store[0].to = to;
    clef__space s;
    clef__space_make(&s, &p, clef__lower_profile(lw)->vector);
    int inner = s.rank - 1, lanes = s.stride[0][inner] == 1 && s.stride[1][inner] == 1 ? clef__lower_lanes(lw, s.dim[inner]) : 1;
    clef__launch_begin(lw, "moving.cl", "move_window");
    clef__launch_define(lw, "DT", "%s", token_of(to.dtype));
    clef__launch_define(lw, "HOST", "%d", host);
    if (!host) clef__launch_define(lw, "IT", "%s", clef__token(number.dtype));
    clef__launch_define(lw, "W", "%d", lanes);
    int64_t most = node->input[0]->shape.dim[attributes_of(node)->dim] - attributes_of(node)->length;
    move_window_args args = {
        .from = from, .to = to, .number = {host, start, number}, .most = most, .from_step = from_step, .to_step = to_step};
    set_rows(lw, &args, &s, lanes);
    pass_move_window(lw, &args);
    clef__launch_end_1d(lw, clef__ceil_div(args.units, args.per));
}

/* x in the dimensions of the window, which begins where x does. */
static clef__operand window_in(clef__operand x, const moving_attributes *a) {
    x.dim[a->dim] = a->length;
    return x;
}

/* What is read and written is the window, whatever it lies in. */
static void move_cost(const clef__node *node, double *flops, double *bytes) {
    clef_shape shape = window_shape(node->input[0]->shape, attributes_of(node));
    *flops = 0;
    *bytes = 2.0 * (double)clef_shape_numel(shape) * (double)clef_dtype_size(node->out->dtype);
}

/* Is there a window of that length, and one whole number for its place? */
static bool takes_window(clef__call *call) {
    const moving_attributes *a = call->attributes;
    const clef__output *x = call->input[0], *start = call->input[call->n_inputs - 1];
    bool fits = a->dim >= 0 && a->dim < x->shape.rank && a->length >= 0 && a->length <= x->shape.dim[a->dim];
    bool number = clef_shape_numel(start->shape) == 1 && (start->dtype == CLEF_I32 || start->dtype == CLEF_I64);
    return clef__infer_takes(call, fits && number, "the window fits x, and start is one whole number");
}

/* ---- slice_at ---- */

static bool slice_at_infer(clef__call *call) {
    if (!takes_window(call)) return false;
    call->out->shape = window_shape(call->input[0]->shape, call->attributes);
    call->out->dtype = call->input[0]->dtype;
    return true;
}

static void slice_at_lower(const clef__lowering *lw) {
    const moving_attributes *a = attributes_of(clef__lower_node(lw));
    clef__operand x = clef__lower_in(lw, 0), y = clef__lower_out(lw, NULL);
    lower_move(lw, window_in(x, a), y, x.stride[a->dim], 0);
}

static void slice_at_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                              clef_tensor **dx) {
    (void)wanted;
    dx[0] = clef_slice_update(clef_zeros_like(x[0]), (int)attributes_of(clef__node_of(y[0]))->dim, x[1], g[0]);
}

static const clef__strategy *const slice_at_strategies[] = {&(const clef__strategy){.name = "window", .lower = slice_at_lower},
                                                            NULL};
static const clef_op op_slice_at = {.name = "slice_at",
                                    .kind = CLEF__KERNEL,
                                    .infer = slice_at_infer,
                                    .gradient = slice_at_gradient,
                                    .strategies = slice_at_strategies,
                                    .cost = move_cost};

/* ---- slice_update ---- */

static bool slice_update_infer(clef__call *call) {
    if (!takes_window(call)) return false;
    clef_shape window = window_shape(call->input[0]->shape, call->attributes);
    bool fits = clef_shape_equal(call->input[1]->shape, window) && call->input[1]->dtype == call->input[0]->dtype;
    return clef__infer_takes(call, fits, "value is a window of x") && clef__infer_like(call);
}

static void slice_update_lower(const clef__lowering *lw) {
    const moving_attributes *a = attributes_of(clef__lower_node(lw));
    clef__operand y = clef__lower_updated(lw), value = clef__lower_apart(lw, clef__lower_in(lw, 1), &y);
    lower_move(lw, value, window_in(y, a), 0, y.stride[a->dim]);
}

static void slice_update_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                                  clef_tensor **dx) {
    const moving_attributes *a = attributes_of(clef__node_of(y[0]));
    if (wanted[0]) dx[0] = clef_slice_update(g[0], (int)a->dim, x[2], clef_zeros_like(x[1]));
    if (wanted[1]) dx[1] = clef_slice_at(g[0], (int)a->dim, x[2], a->length);
}

static const clef__strategy *const slice_update_strategies[] = {
    &(const clef__strategy){.name = "window", .lower = slice_update_lower}, NULL};
static const clef_op op_slice_update = {.name = "slice_update",
                                        .kind = CLEF__KERNEL,
                                        .infer = slice_update_infer,
                                        .gradient = slice_update_gradient,
                                        .strategies = slice_update_strategies,
                                        .updates = true,
                                        .cost = move_cost};

/* ---- what programs call ---- */

/* start as i32 or i64, in range if it is known; NULL with the error set. */
static clef_tensor *place_of(clef_tensor *start, const char *op, clef_shape x, const moving_attributes *a) {
    clef_context *ctx = clef_tensor_context(start);
    clef_dtype dtype = clef_tensor_dtype(start);
    if (clef__is_float(dtype) || dtype == CLEF_BOOL)
        return clef__refuse(ctx, op, CLEF_DTYPE, "start is %s, not a whole number; clef_integer makes one", clef_dtype_name(dtype));
    if (clef_numel(start) != 1)
        return clef__refuse(ctx, op, CLEF_SHAPE, "start %s is not one number", clef__shape_text(clef_tensor_shape(start)));
    int64_t last = x.dim[a->dim] - a->length;
    const clef__node *node = clef__node_of(start);
    int64_t at = node->op->kind != CLEF__CONSTANT ? 0 : clef__whole_number(clef__constant_number(node));
    if (node->op->kind == CLEF__CONSTANT && dtype == CLEF_I64) at = node->dynamic.i;
    if (at < 0 || at > last)
        return clef__refuse(ctx, op, CLEF_INVALID, "start %lld is not within 0 … %lld, for %lld of dimension %d of x %s",
                            (long long)at, (long long)last, (long long)a->length, (int)a->dim, clef__shape_text(x));
    return dtype == CLEF_U8 ? clef_to(start, CLEF_I32) : start;
}

clef_tensor *clef_slice_at(clef_tensor *x, int dim, clef_tensor *start, int64_t length) {
    if (!CLEF__GIVEN("slice_at", "x start", x, start)) return NULL;
    clef_shape shape = clef_tensor_shape(x);
    int d = dim;
    if (!clef__normalize_dim(shape.rank, &d)) return clef__refuse_dim(x, "slice_at", dim);
    if (length < 0 || length > shape.dim[d])
        return clef__refuse(clef_tensor_context(x), "slice_at", CLEF_INVALID,
                            "length %lld is not within 0 … %lld, dimension %d of x %s", (long long)length, (long long)shape.dim[d],
                            d, clef__shape_text(shape));
    moving_attributes a = {d, length};
    start = place_of(start, "slice_at", shape, &a);
    return start ? clef__apply(&op_slice_at, (clef_tensor *[]){x, start}, 2, &a, sizeof a) : NULL;
}

/* x with the window, on behalf of `op`. */
static clef_tensor *update(clef_tensor *x, const char *op, int dim, clef_tensor *start, clef_tensor *value) {
    clef_context *ctx = clef_tensor_context(x);
    clef_shape shape = clef_tensor_shape(x), window = clef_tensor_shape(value);
    int d = dim;
    if (!clef__normalize_dim(shape.rank, &d)) return clef__refuse_dim(x, op, dim);
    bool fits = window.rank == shape.rank;
    for (int i = 0; fits && i < shape.rank; i++) fits = i == d ? window.dim[i] <= shape.dim[i] : window.dim[i] == shape.dim[i];
    if (!fits)
        return clef__refuse(ctx, op, CLEF_SHAPE, "value %s is no window along dimension %d of x %s", clef__shape_text(window), d,
                            clef__shape_text(shape));
    moving_attributes a = {d, window.dim[d]};
    start = place_of(start, op, shape, &a);
    if (!start || a.length == 0) return start ? x : NULL;
    return clef__apply(&op_slice_update, (clef_tensor *[]){x, clef_to(value, clef_tensor_dtype(x)), start}, 3, &a, sizeof a);
}

clef_tensor *clef_slice_update(clef_tensor *x, int dim, clef_tensor *start, clef_tensor *value) {
    if (!CLEF__GIVEN("slice_update", "x start value", x, start, value)) return NULL;
    return update(x, "slice_update", dim, start, value);
}

/* A number that is computed already is brought along; one that is none yet lies nowhere. */
static clef_tensor *beside(clef_tensor *t, clef_tensor *x) {
    return clef__is_number(clef__output_of(x)) ? x : clef_to_device(x, clef_tensor_device(t));
}

clef_status clef_assign_at(clef_tensor *t, int dim, clef_tensor *start, clef_tensor *value) {
    if (!CLEF__GIVEN("assign_at", "t start value", t, start, value)) return CLEF_INVALID;
    clef_context *ctx = clef_tensor_context(t);
    if (clef_tensor_context(start) != ctx || clef_tensor_context(value) != ctx)
        return clef__fail(ctx, CLEF_INVALID, "assign_at: start or value belongs to another context");
    bool was = clef_set_grad_enabled(ctx, false);
    start = beside(t, start), value = beside(t, value);
    clef_tensor *next = start && value ? update(t, "assign_at", dim, start, value) : NULL;
    clef_set_grad_enabled(ctx, was);
    if (!next || next == t) return next ? CLEF_OK : clef_error_status(ctx);
    clef_status status = clef_assign(t, next);
    clef__tensor_drop(next); /* else t's new value would seem to be wanted by somebody besides t */
    return status;
}
