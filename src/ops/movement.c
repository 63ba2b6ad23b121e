/* movement.c — the same elements seen in another shape or order: reshape, permute, expand.  All are views: strides over the input's
   memory. */
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

static clef_shape attributes_to_shape(const shape_attributes *a) { return clef__shape_of(a->rank, a->dim); }

static bool reshape_infer(clef__call *call) {
    call->out->dtype = call->input[0]->dtype;
    call->out->shape = attributes_to_shape(call->attributes);
    int64_t count = clef_shape_numel(call->input[0]->shape);
    return clef__infer_takes(call, clef_shape_numel(call->out->shape) == count, "both shapes have as many elements");
}

/* Matches runs of old and new dimensions with equal products; within a run the old ones must be dense. */
static bool reshape_view(const clef__node *node, const clef__layout *in, clef__layout *out) {
    clef_shape old = node->input[0]->shape, new = node->out->shape;
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

static void reshape_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                             clef_tensor **dx) {
    (void)y, (void)wanted;
    dx[0] = clef_reshape(g[0], clef_tensor_shape(x[0]));
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

clef_tensor *clef__refuse_dim(clef_tensor *x, const char *op, int dim) {
    return clef__refuse(clef_tensor_context(x), op, CLEF_INVALID, "x %s has no dimension %d",
                        clef__shape_text(clef_tensor_shape(x)), dim);
}

clef_tensor *clef_flatten(clef_tensor *x, int first_dim, int last_dim) {
    if (!CLEF__GIVEN("flatten", "x", x)) return NULL;
    clef_shape from = clef_tensor_shape(x), to = {0};
    int a = first_dim, b = last_dim, rank = from.rank ? from.rank : 1;
    if (from.rank == 0) from = CLEF_SHAPE(1);
    if (!clef__normalize_dim(rank, &a)) return clef__refuse_dim(x, "flatten", first_dim);
    if (!clef__normalize_dim(rank, &b)) return clef__refuse_dim(x, "flatten", last_dim);
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
    if (!clef__normalize_dim(from.rank, &d)) return clef__refuse_dim(x, "squeeze", dim);
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
    if (!clef__normalize_dim(to.rank, &d)) return clef__refuse_dim(x, "unsqueeze", dim);
    for (int i = 0; i < to.rank; i++) to.dim[i] = i == d ? 1 : from.dim[i - (i > d)];
    return clef_reshape(x, to);
}

clef_tensor *clef__apart(clef_tensor *x) { return clef_squeeze(clef_unsqueeze(x, 0), 0); }

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
    call->out->dtype = call->input[0]->dtype;
    call->out->shape.rank = x.rank;
    for (int i = 0; i < x.rank; i++) call->out->shape.dim[i] = x.dim[order->dim[i]];
    return true;
}

static bool permute_view(const clef__node *node, const clef__layout *in, clef__layout *out) {
    const shape_attributes *order = clef__attributes(node);
    *out = (clef__layout){.offset = in->offset};
    for (int i = 0; i < order->rank; i++) out->stride[i] = in->stride[order->dim[i]];
    return true;
}

static void permute_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                             clef_tensor **dx) {
    (void)x, (void)wanted;
    const shape_attributes *order = clef__attributes(clef__node_of(y[0]));
    int inverse[CLEF_MAX_RANK];
    for (int i = 0; i < order->rank; i++) inverse[order->dim[i]] = i;
    dx[0] = clef_permute(g[0], inverse);
}

static const clef_op op_permute = {
    .name = "permute", .kind = CLEF__VIEW, .infer = permute_infer, .gradient = permute_gradient, .view = permute_view};

clef_tensor *clef_permute(clef_tensor *x, const int *order) {
    if (!CLEF__GIVEN("permute", "x", x)) return NULL;
    int rank = clef_tensor_shape(x).rank;
    if (!order && rank) return clef__refuse(clef_tensor_context(x), "permute", CLEF_INVALID, "order is NULL");
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
    if (!clef__normalize_dim(rank, &da)) return clef__refuse_dim(x, "transpose", a);
    if (!clef__normalize_dim(rank, &db)) return clef__refuse_dim(x, "transpose", b);
    for (int i = 0; i < rank; i++) order[i] = i == da ? db : i == db ? da : i;
    return clef_permute(x, order);
}

/* ---- expand ---- */

static bool expand_infer(clef__call *call) {
    clef_shape both, to = attributes_to_shape(call->attributes);
    call->out->dtype = call->input[0]->dtype;
    call->out->shape = to;
    return clef__infer_takes(call, clef__broadcast(call->input[0]->shape, to, &both) && clef_shape_equal(both, to),
                             "x broadcasts to the shape");
}

static bool expand_view(const clef__node *node, const clef__layout *in, clef__layout *out) {
    clef_shape from = node->input[0]->shape, to = node->out->shape;
    *out = (clef__layout){.offset = in->offset};
    for (int i = 1; i <= from.rank; i++) out->stride[to.rank - i] = from.dim[from.rank - i] == 1 ? 0 : in->stride[from.rank - i];
    return true;
}

static void expand_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    (void)y, (void)wanted;
    dx[0] = clef__sum_to(g[0], clef_tensor_shape(x[0]));
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
