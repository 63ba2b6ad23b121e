/* window.c — parts of a tensor: slice, flip, pad, concat, stack, split.

   A slice is a view; padding and concat copy.  A slice and "into a window of zeros" are each other's gradients, so every gradient
   here can be differentiated again. */
#include "ops/ops.h"
#include "runtime/arithmetic.h"

#include <stddef.h>
#include <string.h>

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

static clef_shape window_shape(const window_attributes *a) { return clef__shape_of(a->rank, a->dim); }

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
    call->out->dtype = call->input[0]->dtype;
    call->out->shape = window_shape(call->attributes);
    return clef__infer_takes(call, lies_within(call->attributes, call->out->shape, call->input[0]->shape),
                             "the window lies within x");
}

static bool window_infer(clef__call *call) {
    call->out->dtype = call->input[0]->dtype;
    call->out->shape = window_shape(call->attributes);
    return clef__infer_takes(call, lies_within(call->attributes, call->input[0]->shape, call->out->shape),
                             "x lies within the block");
}

static bool slice_view(const clef__node *node, const clef__layout *in, clef__layout *out) {
    const window_attributes *a = clef__attributes(node);
    *out = (clef__layout){.offset = in->offset};
    bool empty = clef_shape_numel(node->out->shape) == 0; /* its start may lie behind the end */
    for (int i = 0; i < a->rank; i++) {
        if (!empty) out->offset += a->start[i] * in->stride[i];
        out->stride[i] = a->step[i] * in->stride[i];
    }
    return true;
}

static void slice_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                           clef_tensor **dx) {
    (void)wanted;
    const window_attributes *a = clef__attributes(clef__node_of(y[0]));
    dx[0] = clef__into_window(g[0], clef_tensor_shape(x[0]), a->start, a->step, 0);
}

static const clef_op op_slice = {
    .name = "slice", .kind = CLEF__VIEW, .infer = slice_infer, .gradient = slice_gradient, .view = slice_view};

clef_tensor *clef__window(clef_tensor *x, const int64_t *start, const int64_t *step, const int64_t *count) {
    if (!x) return NULL;
    window_attributes a = window_to_attributes(clef__shape_of(clef_tensor_shape(x).rank, count), start, step);
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

static void window_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    (void)wanted;
    const window_attributes *a = clef__attributes(clef__node_of(y[0]));
    dx[0] = clef__window(g[0], a->start, a->step, clef_tensor_shape(x[0]).dim);
}

static clef_tensor *windows_sum(clef_tensor *const *term, int n);

static const clef__strategy *const window_strategies[] = {&(const clef__strategy){.name = "fill and copy", .lower = window_lower},
                                                          NULL};
static const clef_op op_window = {.name = "pad",
                                  .kind = CLEF__KERNEL,
                                  .infer = window_infer,
                                  .gradient = window_gradient,
                                  .sum = windows_sum,
                                  .strategies = window_strategies};

clef_tensor *clef__into_window(clef_tensor *x, clef_shape shape, const int64_t *start, const int64_t *step, double value) {
    if (!x) return NULL;
    window_attributes a = window_to_attributes(shape, start, step);
    a.value = value;
    return clef__apply(&op_window, &x, 1, &a, sizeof a);
}

/* Python's rules for a bound: from the end if negative, then into [low, high]. */
/* ---- several at once: the sum of gradients of many slices ---- */

typedef struct window {
    int64_t start[CLEF_MAX_RANK], step[CLEF_MAX_RANK];
} window;
/* Of as many windows as there are inputs. */
typedef struct windows_attributes {
    int64_t rank, dim[CLEF_MAX_RANK];
    window window[CLEF__MAX_INPUTS];
} windows_attributes;

static window_attributes window_at(const windows_attributes *all, int i) {
    return window_to_attributes(clef__shape_of(all->rank, all->dim), all->window[i].start, all->window[i].step);
}

static bool windows_infer(clef__call *call) {
    const windows_attributes *all = call->attributes;
    call->out->shape = clef__shape_of(all->rank, all->dim);
    call->out->dtype = call->input[0]->dtype;
    bool fits = true;
    for (int i = 0; fits && i < call->n_inputs; i++) {
        window_attributes a = window_at(all, i);
        fits = lies_within(&a, call->input[i]->shape, call->out->shape) && call->input[i]->dtype == call->out->dtype;
    }
    return clef__infer_takes(call, fits, "the windows lie within the block");
}

/* The elements from the first to the last of window i along dimension d. */
static void span_of(const clef__node *node, int i, int d, int64_t *low, int64_t *high) {
    const window *w = &((const windows_attributes *)clef__attributes(node))->window[i];
    int64_t last = w->start[d] + (node->input[i]->shape.dim[d] - 1) * w->step[d];
    *low = clef__smaller(w->start[d], last);
    *high = clef__larger(w->start[d], last);
}

/* Does window i reach into one before it?  Their surroundings are compared: yes also where one lies in the gaps of another. */
static bool meets_earlier(const clef__node *node, int i) {
    for (int k = 0; k < i; k++) {
        bool apart = clef_shape_numel(node->input[k]->shape) == 0;
        for (int d = 0; !apart && d < node->out->shape.rank; d++) {
            int64_t low, high, other_low, other_high;
            span_of(node, i, d, &low, &high);
            span_of(node, k, d, &other_low, &other_high);
            apart = high < other_low || other_high < low;
        }
        if (!apart) return true;
    }
    return false;
}

static void windows_lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    const windows_attributes *all = clef__attributes(node);
    clef__operand out = clef__lower_out(lw, NULL);
    int64_t covered = 0;
    bool meets[CLEF__MAX_INPUTS], any = false;
    for (int i = 0; i < node->n_inputs; i++) {
        int64_t n = clef_shape_numel(node->input[i]->shape);
        meets[i] = n > 0 && meets_earlier(node, i);
        any |= meets[i];
        covered += n;
    }
    if (any || covered < clef_shape_numel(node->out->shape)) clef__lower_fill(lw, out, 0);
    for (int i = 0; i < node->n_inputs; i++) {
        window_attributes a = window_at(all, i);
        if (clef_shape_numel(node->input[i]->shape) == 0) continue;
        clef__operand to = window_of(out, &a, node->input[i]->shape, a.start), from = clef__lower_in(lw, i);
        if (meets[i]) clef__lower_add(lw, to, from);
        else clef__lower_copy(lw, to, from);
    }
}

static void windows_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                             clef_tensor **dx) {
    const clef__node *node = clef__node_of(y[0]);
    const windows_attributes *all = clef__attributes(node);
    for (int i = 0; i < node->n_inputs; i++)
        if (wanted[i]) dx[i] = clef__window(g[0], all->window[i].start, all->window[i].step, clef_tensor_shape(x[i]).dim);
}

static const clef__strategy *const windows_strategies[] = {&(const clef__strategy){.name = "copies", .lower = windows_lower}, NULL};
static const clef_op op_windows = {.name = "windows",
                                   .kind = CLEF__KERNEL,
                                   .infer = windows_infer,
                                   .gradient = windows_gradient,
                                   .strategies = windows_strategies};

/* Adding them up one after the other would read and write the whole of x for each slice.  NULL where one is computed already, and
   has forgotten what it was made from, or is no sum with zeros. */
static clef_tensor *windows_sum(clef_tensor *const *term, int n) {
    clef_tensor *part[CLEF__MAX_INPUTS], *sum = NULL;
    windows_attributes all;
    int parts = 0;
    for (; parts < n; parts++) {
        const clef__node *node = clef__node_of(term[parts]);
        const window_attributes *a = clef__attributes(node);
        if (node->n_inputs == 0 || a->value != 0 || !(part[parts] = clef__tensor_new(node->input[0]))) break;
        if (parts == 0) all.rank = a->rank, memcpy(all.dim, a->dim, sizeof all.dim);
        memcpy(all.window[parts].start, a->start, sizeof a->start);
        memcpy(all.window[parts].step, a->step, sizeof a->step);
    }
    if (parts == n)
        sum = clef__apply(&op_windows, part, n, &all, offsetof(windows_attributes, window) + (size_t)n * sizeof(window));
    while (parts > 0) clef__tensor_drop(part[--parts]);
    return sum;
}

static int64_t slice_bound(int64_t bound, int64_t n, int64_t low, int64_t high) {
    if (bound < 0) bound += n;
    return bound < low ? low : bound > high ? high : bound;
}

clef_tensor *clef_slice(clef_tensor *x, int dim, int64_t start, int64_t stop, int64_t step) {
    if (!CLEF__GIVEN("slice", "x", x)) return NULL;
    clef_shape shape = clef_tensor_shape(x);
    int d = dim;
    if (!clef__normalize_dim(shape.rank, &d)) return clef__refuse_dim(x, "slice", dim);
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
    if (!clef__normalize_dim(shape.rank, &d)) return clef__refuse_dim(x, "flip", dim);
    return clef_slice(x, d, -1, INT64_MIN / 2, -1);
}

clef_tensor *clef_pad(clef_tensor *x, const int64_t *before, const int64_t *after, double value) {
    if (!CLEF__GIVEN("pad", "x", x)) return NULL;
    clef_shape shape = clef_tensor_shape(x);
    int64_t steps[CLEF_MAX_RANK];
    if ((!before || !after) && shape.rank)
        return clef__refuse(clef_tensor_context(x), "pad", CLEF_INVALID, "%s is NULL", before ? "after" : "before");
    for (int i = 0; i < shape.rank; i++) {
        if (before[i] < 0 || after[i] < 0 || before[i] > INT32_MAX || after[i] > INT32_MAX)
            return clef__refuse(clef_tensor_context(x), "pad", CLEF_INVALID,
                                "padding %lld, %lld of dimension %d is not within 0 … 2^31; cut "
                                "with clef_slice",
                                (long long)before[i], (long long)after[i], i);
        shape.dim[i] = clef__plus(shape.dim[i], before[i] + after[i]);
        steps[i] = 1;
    }
    return clef_shape_equal(shape, clef_tensor_shape(x))
               ? x
               : clef__into_window(x, shape, before, steps, clef__held(clef_tensor_dtype(x), value));
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
    call->out->shape = shape;
    call->out->dtype = call->input[0]->dtype;
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

static void concat_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    int d = (int)*(const int64_t *)clef__attributes(clef__node_of(y[0]));
    int64_t at = 0;
    for (int i = 0; i < clef__node_of(y[0])->n_inputs; i++) {
        int64_t n = clef_tensor_shape(x[i]).dim[d];
        if (wanted[i]) dx[i] = clef_slice(g[0], d, at, at + n, 1);
        at += n;
    }
}

static const clef__strategy *const concat_strategies[] = {&(const clef__strategy){.name = "copies", .lower = concat_lower}, NULL};
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
    if (!clef__normalize_dim(clef_tensor_shape(x[0]).rank + stacked, &d)) return clef__refuse_dim(x[0], op, dim);
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
    if (!clef__normalize_dim(shape.rank, &d)) return clef__refuse_dim(x, "split", dim), CLEF_INVALID;
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
