/* movement.c — the same elements seen or laid out differently.

   Reshape, permute, expand and slice are views (strides over the input's memory); concat and padding copy.  A slice and
   "into a window of zeros" are each other's gradients, so every gradient here can be differentiated again. */
#include "ops/ops.h"

/* ---- reshape ---- */

typedef struct shape_attributes {
    int64_t rank, dim[CLEF_MAX_RANK];
} shape_attributes;

static shape_attributes shape_to_attributes(clef_shape shape) {
    shape_attributes a = {.rank = shape.rank};
    for (int i = 0; i < shape.rank; i++) a.dim[i] = shape.dim[i];
    return a;
}

static clef_shape shape_of(int64_t rank, const int64_t *dim) {
    clef_shape shape = {.rank = (int)rank};
    for (int i = 0; i < rank; i++) shape.dim[i] = dim[i];
    return shape;
}

static clef_shape attributes_to_shape(const shape_attributes *a) { return shape_of(a->rank, a->dim); }

static bool reshape_infer(clef__call *call) {
    call->dtype = call->input[0]->dtype;
    call->shape = attributes_to_shape(call->attributes);
    int64_t count = clef_shape_numel(call->input[0]->shape);
    return clef__infer_takes(call, clef_shape_numel(call->shape) == count, "both shapes have as many elements");
}

/* Matches runs of old and new dimensions with equal products; within a run the old ones must be dense. */
static bool reshape_view(const clef__node *node, const clef__layout *in, clef__layout *out) {
    clef_shape old = node->input[0]->shape, new = node->shape;
    *out = clef__dense(new, NULL);
    out->offset = in->offset;
    if (clef_shape_numel(new) == 0) return true;
    int i = old.rank - 1, j = new.rank - 1;
    while (i >= 0 || j >= 0) {
        int64_t have = i >= 0 ? old.dim[i] : 1, want = j >= 0 ? new.dim[j] : 1, stride = i >= 0 ? in->stride[i] : 1;
        if (have == 1 && i >= 0) {
            i--;
            continue;
        }
        int first = j;
        while (have != want) {
            if (have < want) { /* join the next outer old dimension to this run */
                i--;
                if (old.dim[i] != 1 && in->stride[i] != stride * have) return false;
                have *= old.dim[i];
            } else {
                want *= new.dim[--j];
            }
        }
        for (int k = first; k >= 0 && k >= j; k--) {
            out->stride[k] = stride;
            stride *= new.dim[k];
        }
        i--, j--;
    }
    return true;
}

static void reshape_gradient(clef_tensor *const *x, clef_tensor *y, clef_tensor *g, const bool *wanted, clef_tensor **dx) {
    (void)y, (void)wanted;
    dx[0] = clef_reshape(g, clef_tensor_shape(x[0]));
}

static const clef_op op_reshape = {
    .name = "reshape", .kind = CLEF__VIEW, .infer = reshape_infer, .gradient = reshape_gradient, .view = reshape_view};

/* Replaces a -1 by what is left; false if that does not come out. */
static bool complete_shape(clef_shape from, clef_shape *to) {
    int hole = -1;
    int64_t numel = clef_shape_numel(from);
    for (int i = 0; i < to->rank; i++) {
        if (to->dim[i] >= 0) continue;
        if (to->dim[i] != -1 || hole >= 0) return false;
        hole = i;
        to->dim[i] = 1;
    }
    int64_t rest = clef_shape_numel(*to);
    if (hole < 0) return rest == numel;
    if (rest <= 0 || numel % rest) return false;
    to->dim[hole] = numel / rest;
    return true;
}

clef_tensor *clef_reshape(clef_tensor *x, clef_shape shape) {
    if (!CLEF__GIVEN("reshape", "x", x)) return NULL;
    clef_shape from = clef_tensor_shape(x), to = shape;
    if (shape.rank < 0 || shape.rank > CLEF_MAX_RANK || !complete_shape(from, &to))
        return clef__refuse(clef_tensor_context(x), "reshape", CLEF_SHAPE, "%s does not fit into %s", clef__shape_text(from),
                            clef__shape_text(shape));
    if (clef_shape_equal(from, to)) return x;
    shape_attributes a = shape_to_attributes(to);
    return clef__apply(&op_reshape, &x, 1, &a, sizeof a);
}

static clef_tensor *refuse_null(clef_tensor *x, const char *op, const char *array) {
    return clef__refuse(clef_tensor_context(x), op, CLEF_INVALID, "%s is NULL", array);
}

static clef_tensor *refuse_dim(clef_tensor *x, const char *op, int dim) {
    return clef__refuse(clef_tensor_context(x), op, CLEF_INVALID, "x %s has no dimension %d",
                        clef__shape_text(clef_tensor_shape(x)), dim);
}

clef_tensor *clef_flatten(clef_tensor *x, int first_dim, int last_dim) {
    if (!CLEF__GIVEN("flatten", "x", x)) return NULL;
    clef_shape from = clef_tensor_shape(x), to = {0};
    int a = first_dim, b = last_dim, rank = from.rank ? from.rank : 1;
    if (from.rank == 0) from = CLEF_SHAPE(1);
    if (!clef__normalize_dim(rank, &a)) return refuse_dim(x, "flatten", first_dim);
    if (!clef__normalize_dim(rank, &b)) return refuse_dim(x, "flatten", last_dim);
    if (a > b)
        return clef__refuse(clef_tensor_context(x), "flatten", CLEF_INVALID, "dimension %d comes after %d", first_dim, last_dim);
    for (int i = 0; i < rank; i++) {
        if (i > a && i <= b) to.dim[to.rank - 1] *= from.dim[i];
        else to.dim[to.rank++] = from.dim[i];
    }
    return clef_reshape(x, to);
}

clef_tensor *clef_squeeze(clef_tensor *x, int dim) {
    if (!CLEF__GIVEN("squeeze", "x", x)) return NULL;
    clef_shape from = clef_tensor_shape(x), to = {.rank = from.rank - 1};
    int d = dim;
    if (!clef__normalize_dim(from.rank, &d)) return refuse_dim(x, "squeeze", dim);
    if (from.dim[d] != 1)
        return clef__refuse(clef_tensor_context(x), "squeeze", CLEF_SHAPE, "dimension %d of x %s is not 1", dim,
                            clef__shape_text(from));
    for (int i = 0; i < to.rank; i++) to.dim[i] = from.dim[i + (i >= d)];
    return clef_reshape(x, to);
}

clef_tensor *clef_unsqueeze(clef_tensor *x, int dim) {
    if (!CLEF__GIVEN("unsqueeze", "x", x)) return NULL;
    clef_shape from = clef_tensor_shape(x), to = {.rank = from.rank + 1};
    int d = dim;
    if (from.rank == CLEF_MAX_RANK)
        return clef__refuse(clef_tensor_context(x), "unsqueeze", CLEF_SHAPE, "x %s has %d dimensions already",
                            clef__shape_text(from), CLEF_MAX_RANK);
    if (!clef__normalize_dim(to.rank, &d)) return refuse_dim(x, "unsqueeze", dim);
    for (int i = 0; i < to.rank; i++) to.dim[i] = i == d ? 1 : from.dim[i - (i > d)];
    return clef_reshape(x, to);
}

clef_tensor *clef__per_channel(clef_tensor *v, int rank) {
    clef_shape shape = {.rank = rank};
    for (int i = 0; i < rank; i++) shape.dim[i] = i == 1 ? clef_numel(v) : 1;
    return clef_reshape(v, shape);
}

/* ---- permute ---- */

static bool permute_infer(clef__call *call) {
    const shape_attributes *order = call->attributes;
    clef_shape x = call->input[0]->shape;
    bool fits = order->rank == x.rank;
    for (int i = 0; fits && i < x.rank; i++) fits = order->dim[i] >= 0 && order->dim[i] < x.rank;
    if (!clef__infer_takes(call, fits, "x has the dimensions")) return false;
    call->dtype = call->input[0]->dtype;
    call->shape.rank = x.rank;
    for (int i = 0; i < x.rank; i++) call->shape.dim[i] = x.dim[order->dim[i]];
    return true;
}

static bool permute_view(const clef__node *node, const clef__layout *in, clef__layout *out) {
    const shape_attributes *order = clef__attributes(node);
    *out = (clef__layout){.offset = in->offset};
    for (int i = 0; i < order->rank; i++) out->stride[i] = in->stride[order->dim[i]];
    return true;
}

static void permute_gradient(clef_tensor *const *x, clef_tensor *y, clef_tensor *g, const bool *wanted, clef_tensor **dx) {
    (void)x, (void)wanted;
    const shape_attributes *order = clef__attributes(clef__node_of(y));
    int inverse[CLEF_MAX_RANK];
    for (int i = 0; i < order->rank; i++) inverse[order->dim[i]] = i;
    dx[0] = clef_permute(g, inverse);
}

static const clef_op op_permute = {
    .name = "permute", .kind = CLEF__VIEW, .infer = permute_infer, .gradient = permute_gradient, .view = permute_view};

clef_tensor *clef_permute(clef_tensor *x, const int *order) {
    if (!CLEF__GIVEN("permute", "x", x)) return NULL;
    int rank = clef_tensor_shape(x).rank;
    if (!order && rank) return refuse_null(x, "permute", "order");
    shape_attributes a = {.rank = rank};
    unsigned seen = 0;
    bool moved = false;
    for (int i = 0; i < rank; i++) {
        int d = order[i];
        if (!clef__normalize_dim(rank, &d) || seen & 1u << d)
            return clef__refuse(clef_tensor_context(x), "permute", CLEF_INVALID,
                                "order[%d] = %d is out of range or there twice (x %s)", i, order[i],
                                clef__shape_text(clef_tensor_shape(x)));
        seen |= 1u << d;
        moved |= d != i;
        a.dim[i] = d;
    }
    return moved ? clef__apply(&op_permute, &x, 1, &a, sizeof a) : x;
}

clef_tensor *clef_transpose(clef_tensor *x, int a, int b) {
    if (!CLEF__GIVEN("transpose", "x", x)) return NULL;
    int rank = clef_tensor_shape(x).rank, order[CLEF_MAX_RANK], da = a, db = b;
    if (!clef__normalize_dim(rank, &da)) return refuse_dim(x, "transpose", a);
    if (!clef__normalize_dim(rank, &db)) return refuse_dim(x, "transpose", b);
    for (int i = 0; i < rank; i++) order[i] = i == da ? db : i == db ? da : i;
    return clef_permute(x, order);
}

/* ---- expand ---- */

static bool expand_infer(clef__call *call) {
    clef_shape both, to = attributes_to_shape(call->attributes);
    call->dtype = call->input[0]->dtype;
    call->shape = to;
    return clef__infer_takes(call, clef__broadcast(call->input[0]->shape, to, &both) && clef_shape_equal(both, to),
                             "x broadcasts to the shape");
}

static bool expand_view(const clef__node *node, const clef__layout *in, clef__layout *out) {
    clef_shape from = node->input[0]->shape, to = node->shape;
    *out = (clef__layout){.offset = in->offset};
    for (int i = 1; i <= from.rank; i++) out->stride[to.rank - i] = from.dim[from.rank - i] == 1 ? 0 : in->stride[from.rank - i];
    return true;
}

static void expand_gradient(clef_tensor *const *x, clef_tensor *y, clef_tensor *g, const bool *wanted, clef_tensor **dx) {
    (void)y, (void)wanted;
    dx[0] = clef__sum_to(g, clef_tensor_shape(x[0]));
}

static const clef_op op_expand = {
    .name = "expand", .kind = CLEF__VIEW, .infer = expand_infer, .gradient = expand_gradient, .view = expand_view};

clef_tensor *clef_expand(clef_tensor *x, clef_shape shape) {
    if (!CLEF__GIVEN("expand", "x", x)) return NULL;
    clef_shape from = clef_tensor_shape(x), both;
    if (clef_shape_equal(from, shape)) return x;
    bool sound = shape.rank >= 0 && shape.rank <= CLEF_MAX_RANK;
    for (int i = 0; sound && i < shape.rank; i++) sound = shape.dim[i] >= 0;
    if (!sound || !clef__broadcast(from, shape, &both) || !clef_shape_equal(both, shape))
        return clef__refuse(clef_tensor_context(x), "expand", CLEF_SHAPE, "%s does not broadcast to %s", clef__shape_text(from),
                            clef__shape_text(shape));
    shape_attributes a = shape_to_attributes(shape);
    return clef__apply(&op_expand, &x, 1, &a, sizeof a);
}

clef_tensor *clef__sum_to(clef_tensor *x, clef_shape shape) {
    if (!x) return NULL;
    clef_shape from = clef_tensor_shape(x);
    int dims[CLEF_MAX_RANK], n = 0, extra = from.rank - shape.rank;
    for (int i = 0; i < from.rank; i++)
        if (from.dim[i] != 1 && (i < extra || shape.dim[i - extra] == 1)) dims[n++] = i;
    return clef_reshape(n ? clef_sum(x, dims, n, true) : x, shape);
}

/* ---- slices, and their adjoint ---- */

typedef struct window_attributes {
    int64_t rank, start[CLEF_MAX_RANK], step[CLEF_MAX_RANK], dim[CLEF_MAX_RANK];
    double value;
} window_attributes;

static window_attributes window_to_attributes(clef_shape shape, const int64_t *start, const int64_t *step) {
    window_attributes a = {.rank = shape.rank};
    for (int i = 0; i < shape.rank; i++) a.start[i] = start[i], a.step[i] = step[i], a.dim[i] = shape.dim[i];
    return a;
}

static clef_shape window_shape(const window_attributes *a) { return shape_of(a->rank, a->dim); }

/* Do the elements start[d] + i·step[d], inner.dim[d] of them, lie within outer?  An empty window lies anywhere. */
static bool lies_within(const window_attributes *a, clef_shape inner, clef_shape outer) {
    bool within = inner.rank == outer.rank;
    if (clef_shape_numel(inner) == 0) return within;
    for (int i = 0; within && i < inner.rank; i++) {
        int64_t first = a->start[i], last = clef__plus(first, clef__times(inner.dim[i] - 1, a->step[i]));
        within = first >= 0 && first < outer.dim[i] && last >= 0 && last < outer.dim[i];
    }
    return within;
}

static bool slice_infer(clef__call *call) {
    call->dtype = call->input[0]->dtype;
    call->shape = window_shape(call->attributes);
    return clef__infer_takes(call, lies_within(call->attributes, call->shape, call->input[0]->shape), "the window lies within x");
}

static bool window_infer(clef__call *call) {
    call->dtype = call->input[0]->dtype;
    call->shape = window_shape(call->attributes);
    return clef__infer_takes(call, lies_within(call->attributes, call->input[0]->shape, call->shape), "x lies within the block");
}

static bool slice_view(const clef__node *node, const clef__layout *in, clef__layout *out) {
    const window_attributes *a = clef__attributes(node);
    *out = (clef__layout){.offset = in->offset};
    bool empty = clef_shape_numel(node->shape) == 0; /* its start may lie behind the end */
    for (int i = 0; i < a->rank; i++) {
        if (!empty) out->offset += a->start[i] * in->stride[i];
        out->stride[i] = a->step[i] * in->stride[i];
    }
    return true;
}

static void slice_gradient(clef_tensor *const *x, clef_tensor *y, clef_tensor *g, const bool *wanted, clef_tensor **dx) {
    (void)wanted;
    const window_attributes *a = clef__attributes(clef__node_of(y));
    dx[0] = clef__into_window(g, clef_tensor_shape(x[0]), a->start, a->step, 0);
}

static const clef_op op_slice = {
    .name = "slice", .kind = CLEF__VIEW, .infer = slice_infer, .gradient = slice_gradient, .view = slice_view};

clef_tensor *clef__window(clef_tensor *x, const int64_t *start, const int64_t *step, const int64_t *count) {
    if (!x) return NULL;
    window_attributes a = window_to_attributes(shape_of(clef_tensor_shape(x).rank, count), start, step);
    return clef__apply(&op_slice, &x, 1, &a, sizeof a);
}

/* The part of `to` that x covers. */
static clef__operand window_of(clef__operand to, const window_attributes *a, clef_shape shape, const int64_t *start) {
    for (int i = 0; i < to.rank; i++) {
        to.offset += start[i] * to.stride[i];
        to.stride[i] *= a ? a->step[i] : 1;
        to.dim[i] = shape.dim[i];
    }
    return to;
}

static void window_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    const window_attributes *a = clef__attributes(node);
    clef_shape inner = node->input[0]->shape;
    clef__operand out = clef__lower_out(lw, NULL);
    clef__lower_fill(lw, out, a->value);
    if (clef_shape_numel(inner) > 0) clef__lower_copy(lw, window_of(out, a, inner, a->start), clef__lower_in(lw, 0));
}

static void window_gradient(clef_tensor *const *x, clef_tensor *y, clef_tensor *g, const bool *wanted, clef_tensor **dx) {
    (void)wanted;
    const window_attributes *a = clef__attributes(clef__node_of(y));
    dx[0] = clef__window(g, a->start, a->step, clef_tensor_shape(x[0]).dim);
}

static const clef__strategy window_strategies[] = {{.name = "fill and copy", .lower = window_lower}, {0}};
static const clef_op op_window = {
    .name = "pad", .kind = CLEF__KERNEL, .infer = window_infer, .gradient = window_gradient, .strategies = window_strategies};

clef_tensor *clef__into_window(clef_tensor *x, clef_shape shape, const int64_t *start, const int64_t *step, double value) {
    if (!x) return NULL;
    window_attributes a = window_to_attributes(shape, start, step);
    a.value = value;
    return clef__apply(&op_window, &x, 1, &a, sizeof a);
}

/* Python's rules for a bound: from the end if negative, then into [low, high]. */
static int64_t slice_bound(int64_t bound, int64_t n, int64_t low, int64_t high) {
    if (bound < 0) bound += n;
    return bound < low ? low : bound > high ? high : bound;
}

clef_tensor *clef_slice(clef_tensor *x, int dim, int64_t start, int64_t stop, int64_t step) {
    if (!CLEF__GIVEN("slice", "x", x)) return NULL;
    clef_shape shape = clef_tensor_shape(x);
    int d = dim;
    if (!clef__normalize_dim(shape.rank, &d)) return refuse_dim(x, "slice", dim);
    if (step == 0) return clef__refuse(clef_tensor_context(x), "slice", CLEF_INVALID, "step is 0");
    int64_t n = shape.dim[d], starts[CLEF_MAX_RANK] = {0}, steps[CLEF_MAX_RANK], low = step > 0 ? 0 : -1, high = n + low;
    step = step > n ? clef__larger(n, 1) : step < -n ? -clef__larger(n, 1) : step;
    start = slice_bound(start, n, low, high);
    stop = slice_bound(stop, n, low, high);
    int64_t count = step > 0 ? clef__ceil_div(stop - start, step) : clef__ceil_div(start - stop, -step);
    for (int i = 0; i < shape.rank; i++) steps[i] = 1;
    shape.dim[d] = (step > 0 ? stop > start : stop < start) ? count : 0;
    if (shape.dim[d] == n && step == 1) return x;
    starts[d] = start;
    steps[d] = step;
    return clef__window(x, starts, steps, shape.dim);
}

clef_tensor *clef_flip(clef_tensor *x, int dim) {
    if (!CLEF__GIVEN("flip", "x", x)) return NULL;
    clef_shape shape = clef_tensor_shape(x);
    int d = dim;
    if (!clef__normalize_dim(shape.rank, &d)) return refuse_dim(x, "flip", dim);
    return clef_slice(x, d, -1, INT64_MIN / 2, -1);
}

clef_tensor *clef_pad(clef_tensor *x, const int64_t *before, const int64_t *after, double value) {
    if (!CLEF__GIVEN("pad", "x", x)) return NULL;
    clef_shape shape = clef_tensor_shape(x);
    int64_t steps[CLEF_MAX_RANK];
    if ((!before || !after) && shape.rank) return refuse_null(x, "pad", before ? "after" : "before");
    for (int i = 0; i < shape.rank; i++) {
        if (before[i] < 0 || after[i] < 0 || before[i] > INT32_MAX || after[i] > INT32_MAX)
            return clef__refuse(clef_tensor_context(x), "pad", CLEF_INVALID,
                                "padding %lld, %lld of dimension %d is not within 0 … 2^31; cut "
                                "with clef_slice",
                                (long long)before[i], (long long)after[i], i);
        shape.dim[i] = clef__plus(shape.dim[i], before[i] + after[i]);
        steps[i] = 1;
    }
    return clef_shape_equal(shape, clef_tensor_shape(x)) ? x : clef__into_window(x, shape, before, steps, value);
}

/* ---- concat ---- */

static bool concat_infer(clef__call *call) {
    int64_t d = *(const int64_t *)call->attributes;
    clef_shape shape = call->input[0]->shape;
    if (!clef__infer_takes(call, d >= 0 && d < shape.rank, "x has the dimension")) return false;
    for (int i = 1; i < call->n_inputs; i++) {
        clef_shape other = call->input[i]->shape;
        bool fits = other.rank == shape.rank;
        for (int k = 0; fits && k < shape.rank; k++) fits = k == d || other.dim[k] == shape.dim[k];
        if (!fits)
            return clef__infer_fail(call, CLEF_SHAPE, "input %d %s does not fit to %s along dimension %d", i,
                                    clef__shape_text(other), clef__shape_text(call->input[0]->shape), (int)d);
        shape.dim[d] = clef__plus(shape.dim[d], other.dim[d]);
    }
    call->shape = shape;
    call->dtype = call->input[0]->dtype;
    return true;
}

static void concat_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    int d = (int)*(const int64_t *)clef__attributes(node);
    clef__operand out = clef__lower_out(lw, NULL);
    int64_t start[CLEF_MAX_RANK] = {0};
    for (int i = 0; i < node->n_inputs; i++) {
        clef_shape piece = node->input[i]->shape;
        if (clef_shape_numel(piece) == 0) continue;
        clef__lower_copy(lw, window_of(out, NULL, piece, start), clef__lower_in(lw, i));
        start[d] += piece.dim[d];
    }
}

static void concat_gradient(clef_tensor *const *x, clef_tensor *y, clef_tensor *g, const bool *wanted, clef_tensor **dx) {
    int d = (int)*(const int64_t *)clef__attributes(clef__node_of(y));
    int64_t at = 0;
    for (int i = 0; i < clef__node_of(y)->n_inputs; i++) {
        int64_t n = clef_tensor_shape(x[i]).dim[d];
        if (wanted[i]) dx[i] = clef_slice(g, d, at, at + n, 1);
        at += n;
    }
}

static const clef__strategy concat_strategies[] = {{.name = "copies", .lower = concat_lower}, {0}};
static const clef_op op_concat = {
    .name = "concat", .kind = CLEF__KERNEL, .infer = concat_infer, .gradient = concat_gradient, .strategies = concat_strategies};

/* A node has at most CLEF__MAX_INPUTS inputs: more are joined in groups first. */
static clef_tensor *concat_many(clef_tensor *const *x, int n, int64_t d) {
    if (n <= CLEF__MAX_INPUTS) return clef__apply(&op_concat, x, n, &d, sizeof d);
    clef_tensor *group[CLEF__MAX_INPUTS];
    int per = n / CLEF__MAX_INPUTS + 1, groups = 0;
    for (int i = 0; i < n; i += per) group[groups++] = concat_many(x + i, n - i < per ? n - i : per, d);
    return clef__apply(&op_concat, group, groups, &d, sizeof d);
}

/* Brings all to a common dtype, and into one more dimension if stacked. */
static clef_tensor *join(clef_tensor *const *x, int n, int dim, const char *op, bool stacked) {
    if (!clef__given_array(NULL, op, "x", x, n)) return NULL;
    clef_context *ctx = clef_tensor_context(x[0]);
    int d = dim;
    if (!clef__normalize_dim(clef_tensor_shape(x[0]).rank + stacked, &d)) return refuse_dim(x[0], op, dim);
    clef_dtype dtype = clef_tensor_dtype(x[0]);
    for (int i = 1; i < n; i++) dtype = clef__promote(dtype, clef_tensor_dtype(x[i]));
    clef_tensor **same = clef__calloc((size_t)n, sizeof *same);
    if (!same) return clef__refuse(ctx, op, CLEF_MEMORY, "no host memory");
    for (int i = 0; i < n; i++) same[i] = clef_to(stacked ? clef_unsqueeze(x[i], d) : x[i], dtype);
    clef_tensor *y = concat_many(same, n, d);
    clef__free(same);
    return y;
}

clef_tensor *clef_concat(clef_tensor *const *x, int n, int dim) { return join(x, n, dim, "concat", false); }
clef_tensor *clef_stack(clef_tensor *const *x, int n, int dim) { return join(x, n, dim, "stack", true); }

clef_status clef_split(clef_tensor *x, int dim, const int64_t *sizes, int n, clef_tensor **parts) {
    for (int i = 0; parts && i < n; i++) parts[i] = NULL;
    if (!CLEF__GIVEN("split", "x", x)) return CLEF_INVALID;
    if (n < 1 || !sizes || !parts)
        return clef__fail(clef_tensor_context(x), CLEF_INVALID, "split: %d parts%s", n,
                          n < 1 ? "" : ", but an array of them is NULL");
    clef_shape shape = clef_tensor_shape(x);
    int d = dim;
    if (!clef__normalize_dim(shape.rank, &d)) return refuse_dim(x, "split", dim), CLEF_INVALID;
    int64_t at = 0, left = shape.dim[d];
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 0 || sizes[i] > left) left = -1;
        else left -= sizes[i];
    }
    if (left != 0)
        return clef__fail(clef_tensor_context(x), CLEF_SHAPE, "split: the sizes do not add up to dimension %d of x %s", dim,
                          clef__shape_text(shape));
    for (int i = 0; i < n; at += sizes[i++])
        if (!(parts[i] = clef_slice(x, d, at, at + sizes[i], 1))) return clef_error_status(clef_tensor_context(x));
    return CLEF_OK;
}
