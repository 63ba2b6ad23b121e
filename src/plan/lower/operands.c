/* operands.c — operands of a node that is lowered: its inputs, its output, scratch memory, and the copies that they take. */
#include "graph/core.h"
#include "plan/lower/pointwise.h"

#include <string.h>

static int new_value(const clef__lowering *lw, clef__home home, int captured, size_t bytes) {
    clef__plan *plan = lw->rec->plan;
    if (!clef__record_room(lw->rec, &plan->value, plan->n_values, &plan->value_capacity, sizeof *plan->value)) return 0;
    plan->value[plan->n_values] =
        (clef__value){.home = home, .captured = captured, .device = lw->device, .bytes = bytes, .in_place_of = -1, .donor = -1};
    return plan->n_values++;
}

clef_shape clef__operand_shape(const clef__operand *x) {
    clef_shape shape = {.rank = x->rank};
    for (int i = 0; i < x->rank; i++) shape.dim[i] = x->dim[i];
    return shape;
}

/* A dense operand of this shape in this order over a value. */
static clef__operand dense_operand(int value, clef_dtype dtype, clef_shape shape, const int *order) {
    clef__operand x = {.value = value, .dtype = dtype, .rank = shape.rank};
    clef__layout dense = clef__dense(shape, order);
    memcpy(x.stride, dense.stride, sizeof x.stride);
    memcpy(x.dim, shape.dim, sizeof x.dim);
    return x;
}

bool clef__lower_is_dense(const clef__operand *x, const int *order) {
    return clef__is_dense(clef__operand_shape(x), x->stride, order);
}

bool clef__memory_order(const clef__operand *x, int *order) {
    for (int i = 0; i < x->rank; i++) {
        if (x->dim[i] > 1 && x->stride[i] <= 0) return false;
        int at = i; /* insertion by falling stride; dimensions of 1 go outermost */
        for (; at > 0; at--) {
            int other = order[at - 1];
            bool before = x->dim[i] == 1 ? x->dim[other] != 1 : x->dim[other] != 1 && x->stride[other] < x->stride[i];
            if (!before) break;
            order[at] = other;
        }
        order[at] = i;
    }
    return clef__lower_is_dense(x, order);
}

clef__operand clef__broadcast_operand(clef__operand x, clef_shape shape) {
    clef__operand y = {.value = x.value, .dtype = x.dtype, .rank = shape.rank, .offset = x.offset};
    int missing = shape.rank - x.rank;
    for (int i = 0; i < shape.rank; i++) {
        y.dim[i] = shape.dim[i];
        y.stride[i] = i < missing || x.dim[i - missing] == 1 ? 0 : x.stride[i - missing];
    }
    return y;
}

clef__operand clef__lower_scratch(const clef__lowering *lw, clef_dtype dtype, clef_shape shape) {
    return clef__lower_scratch_in(lw, dtype, shape, NULL);
}

clef__operand clef__lower_scratch_in(const clef__lowering *lw, clef_dtype dtype, clef_shape shape, const int *order) {
    int64_t n = clef_shape_numel(shape);
    size_t bytes = n < 0 || (uint64_t)n > SIZE_MAX / 8 ? SIZE_MAX : (size_t)n * clef_dtype_size(dtype);
    return dense_operand(new_value(lw, CLEF__ARENA_VALUE, -1, bytes), dtype, shape, order);
}

/* A row-major copy, when a consumer cannot take the value as it lies. */
static clef__operand dense_copy(const clef__lowering *lw, clef__operand x, const int *order) {
    clef__operand y = clef__lower_scratch_in(lw, x.dtype, clef__operand_shape(&x), order);
    clef__lower_copy(lw, y, x);
    return y;
}

/* A view of `in`, which is copied first if it cannot be seen that way. */
static clef__operand view_operand(const clef__lowering *lw, const clef__node *node, clef__operand in) {
    clef__layout from = {.offset = in.offset}, to = {0};
    memcpy(from.stride, in.stride, sizeof from.stride);
    if (!node->op->view(node, &from, &to)) {
        in = dense_copy(lw, in, NULL);
        from = (clef__layout){.offset = in.offset};
        memcpy(from.stride, in.stride, sizeof from.stride);
        if (!node->op->view(node, &from, &to)) {
            clef__fail(lw->rec->ctx, CLEF_INTERNAL, "%s: clef bug, please report it: no view even of a row-major copy",
                       node->op->name);
            lw->rec->failed = true;
        }
    }
    clef__operand x = {.value = in.value, .dtype = in.dtype, .rank = node->out->shape.rank, .offset = to.offset};
    memcpy(x.dim, node->out->shape.dim, sizeof x.dim);
    memcpy(x.stride, to.stride, sizeof x.stride);
    return x;
}

/* One element, seen with strides of 0. */
static clef__operand constant_operand(const clef__lowering *lw, int index) {
    const clef__output *out = lw->rec->g->captured[index].out;
    clef__pointwise p = {.n_operands = 1, .n_stores = 1};
    p.operand[0] = (clef__pw_operand){.constant = true, .captured = index, .dtype = out->dtype};
    p.store[0].to = clef__lower_scratch(lw, out->dtype, CLEF_SCALAR);
    clef__lower_pointwise(lw, &p, "constant");
    clef__operand one = p.store[0].to;
    one.rank = 0;
    return clef__broadcast_operand(one, out->shape);
}

static clef__operand leaf_operand(const clef__lowering *lw, int index) {
    const clef__captured *captured = &lw->rec->g->captured[index];
    size_t bytes = (size_t)clef_shape_numel(captured->out->shape) * clef_dtype_size(captured->out->dtype);
    clef__operand x =
        dense_operand(new_value(lw, CLEF__LEAF_VALUE, index, bytes), captured->out->dtype, captured->out->shape, NULL);
    memcpy(x.stride, captured->out->layout.stride, sizeof x.stride);
    if (!lw->rec->failed) lw->rec->plan->value[x.value].donatable = captured->donatable;
    return x;
}

/* Everything else that is no leaf, view or constant was placed by its group before. */
static void place_captured(const clef__lowering *lw, int index) {
    clef__recorder *rec = lw->rec;
    const clef__captured *captured = &rec->g->captured[index];
    clef__lowering there = *lw;
    there.device = captured->out->device;
    clef__operand x =
        captured->leaf ? leaf_operand(&there, index)
        : clef__is_view(captured)
            ? view_operand(&there, captured->node, rec->placed[clef__captured_of(rec->g, captured->node->input[0])].operand)
            : constant_operand(&there, index);
    rec->placed[index] = (clef__placed){true, x};
}

/* As it is stored.  Views of views may be many, so they wait in a list until what they look at is placed.  After a failure strategies
   go on with the right shape over no memory, and nothing of it is launched. */
static clef__operand stored_operand(const clef__lowering *lw, int index) {
    clef__recorder *rec = lw->rec;
    int *waiting = NULL, n = 0, capacity = 0, at = index;
    while (!rec->failed && !rec->placed[at].there) {
        if (!clef__record_room(rec, &waiting, n, &capacity, sizeof at)) break;
        waiting[n++] = at;
        if (!clef__is_view(&rec->g->captured[at])) break;
        at = clef__captured_of(rec->g, rec->g->captured[at].node->input[0]);
    }
    while (n > 0 && !rec->failed) place_captured(lw, waiting[--n]);
    clef__free(waiting);
    const clef__output *out = rec->g->captured[index].out;
    return rec->failed ? dense_operand(0, out->dtype, out->shape, NULL) : rec->placed[index].operand;
}

static int input_of(const clef__lowering *lw, int i) { return clef__captured_of(lw->rec->g, lw->node->input[i]); }

/* A converted weight that waited (clef__place_converted) is converted for the first who wants it so, and views of it are views anew. */
static void convert_waiting(const clef__lowering *lw, int index) {
    clef__recorder *rec = lw->rec;
    int order[CLEF_MAX_RANK], base = rec->g->captured[index].base;
    clef__lowering there = *lw;
    there.device = rec->g->captured[base].out->device;
    clef__operand x = rec->placed[base].operand;
    for (; index != base; index = clef__captured_of(rec->g, rec->g->captured[index].node->input[0]))
        rec->placed[index].there = false;
    if (x.dtype == rec->g->captured[base].out->dtype) return;
    clef__operand y = clef__lower_scratch_in(&there, rec->g->captured[base].out->dtype, clef__operand_shape(&x),
                                             clef__memory_order(&x, order) ? order : NULL);
    clef__lower_copy(&there, y, x);
    rec->placed[base].operand = y;
}

clef__operand clef__captured_operand(const clef__lowering *lw, int index) {
    clef__operand x = stored_operand(lw, index);
    if (x.dtype == lw->rec->g->captured[index].out->dtype) return x;
    convert_waiting(lw, index);
    return stored_operand(lw, index);
}

static bool is_half(clef_dtype dtype) { return dtype == CLEF_F16 || dtype == CLEF_BF16; }

bool clef__place_converted(const clef__lowering *lw) {
    const clef__captured *captured = &lw->rec->g->captured[lw->captured];
    if (captured->node->op != &clef__op_cast || captured->output || captured->out->dtype != CLEF_F32) return false;
    const clef__captured *from = &lw->rec->g->captured[input_of(lw, 0)];
    if (!from->leaf || from->updated || !is_half(from->out->dtype)) return false;
    lw->rec->placed[lw->captured] = (clef__placed){true, clef__lower_in(lw, 0)};
    return true;
}

clef__operand clef__lower_in_stored(const clef__lowering *lw, int i) { return stored_operand(lw, input_of(lw, i)); }

clef__operand clef__lower_in(const clef__lowering *lw, int i) { return clef__captured_operand(lw, input_of(lw, i)); }

clef__operand clef__lower_in_dense(const clef__lowering *lw, int i, const int *order) {
    clef__operand x = clef__lower_in(lw, i);
    return clef__lower_is_dense(&x, order) ? x : dense_copy(lw, x, order);
}

clef__operand clef__lower_output(const clef__lowering *lw, int k, const int *order) {
    const clef__output *out = &lw->node->out[k];
    size_t bytes = (size_t)clef_shape_numel(out->shape) * clef_dtype_size(out->dtype);
    clef__operand x = dense_operand(new_value(lw, CLEF__ARENA_VALUE, lw->captured + k, bytes), out->dtype, out->shape, order);
    lw->rec->placed[lw->captured + k] = (clef__placed){true, x};
    return x;
}

clef__operand clef__lower_out(const clef__lowering *lw, const int *order) { return clef__lower_output(lw, 0, order); }

/* Could new numbers be written where x lies: is it all of memory that the plan may write to? */
static bool is_writable(const clef__lowering *lw, const clef__operand *x) {
    if (lw->rec->failed || !lw->rec->g->captured[lw->captured].overwrites) return false;
    const clef__value *value = &lw->rec->plan->value[x->value];
    int64_t n = clef_shape_numel(clef__operand_shape(x));
    return (value->home == CLEF__ARENA_VALUE || value->donatable) && x->offset == 0 &&
           (size_t)n * clef_dtype_size(x->dtype) == value->bytes;
}

clef__operand clef__lower_updated(const clef__lowering *lw) {
    int order[CLEF_MAX_RANK];
    clef__operand x = clef__lower_in(lw, 0);
    bool dense = clef__memory_order(&x, order);
    if (dense && is_writable(lw, &x)) {
        lw->rec->placed[lw->captured] = (clef__placed){true, x};
        lw->rec->plan->value[x.value].updated = true;
        return x;
    }
    clef__operand y = clef__lower_out(lw, dense ? order : NULL);
    clef__lower_copy(lw, y, x);
    return y;
}

clef__operand clef__lower_apart(const clef__lowering *lw, clef__operand x, const clef__operand *y) {
    return x.value == y->value ? dense_copy(lw, x, NULL) : x;
}

/* The leaf that x is in, or NULL. */
static const clef__captured *leaf_of(const clef__lowering *lw, const clef__operand *x) {
    if (lw->rec->failed || clef__is_computed(x)) return NULL;
    const clef__value *value = &lw->rec->plan->value[x->value];
    return value->home == CLEF__LEAF_VALUE ? &lw->rec->g->captured[value->captured] : NULL;
}

bool clef__lower_lasts(const clef__lowering *lw, const clef__operand *x) {
    const clef__captured *leaf = clef__lower_node(lw)->inference ? leaf_of(lw, x) : NULL;
    return leaf && leaf->lasts;
}

bool clef__lower_stays(const clef__lowering *lw, const clef__operand *x) {
    const clef__captured *leaf = leaf_of(lw, x);
    return leaf && !leaf->updated && !leaf->donatable;
}

int clef__lower_readers(const clef__lowering *lw, const clef__operand *x) {
    if (lw->rec->failed || clef__is_computed(x)) return 1;
    int captured = lw->rec->plan->value[x->value].captured;
    return captured < 0 ? 1 : lw->rec->g->edges[captured];
}

bool clef__lower_wants(const clef__lowering *lw, int k) { return clef__is_wanted(&lw->rec->g->captured[lw->captured + k]); }

/* ---- elementwise work ---- */

void clef__lower_copy(const clef__lowering *lw, clef__operand to, clef__operand from) {
    clef__pointwise p = {.shape = clef__operand_shape(&to), .n_operands = 1, .n_steps = 1, .n_stores = 1};
    p.operand[0] = (clef__pw_operand){.dtype = from.dtype, .x = from};
    p.step[0] = (clef__pw_step){.op = &clef__op_cast, .dtype = to.dtype, .n_inputs = 1, .input = {0}};
    p.store[0].from = CLEF__PW_OPERANDS;
    p.store[0].to = to;
    clef__lower_pointwise(lw, &p, "copy");
}

void clef__lower_add(const clef__lowering *lw, clef__operand to, clef__operand from) {
    clef__pointwise p = {.shape = clef__operand_shape(&to), .n_operands = 2, .n_steps = 1, .n_stores = 1};
    p.operand[0] = (clef__pw_operand){.dtype = to.dtype, .x = to};
    p.operand[1] = (clef__pw_operand){.dtype = from.dtype, .x = from};
    p.step[0] = (clef__pw_step){.op = &clef__op_add, .dtype = to.dtype, .n_inputs = 2, .input = {0, 1}};
    p.store[0].from = CLEF__PW_OPERANDS;
    p.store[0].to = to;
    clef__lower_pointwise(lw, &p, "add");
}

void clef__lower_fill(const clef__lowering *lw, clef__operand to, double value) {
    clef__pointwise p = {.shape = clef__operand_shape(&to), .n_operands = 1, .n_stores = 1};
    p.operand[0] = (clef__pw_operand){.constant = true, .captured = -1, .number = value, .dtype = to.dtype};
    p.store[0].to = to;
    clef__lower_pointwise(lw, &p, "fill");
}
