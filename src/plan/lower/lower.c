/* lower.c — the functions of lower.h: operands, scratch memory, launches. */
#include "graph/core.h"
#include "plan/lower/pointwise.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const clef__node *clef__lower_node(const clef__lowering *l) { return l->node; }
const clef_device_info *clef__lower_device(const clef__lowering *l) {
    return clef__device_info(clef__device_at(l->ctx, l->device));
}
const clef__profile *clef__lower_profile(const clef__lowering *l) {
    return clef__device_profile(clef__device_at(l->ctx, l->device));
}

void clef__lower_fail(clef__lowering *l) {
    if (!l->failed) clef__fail(l->ctx, CLEF_MEMORY, "plan: no host memory");
    l->failed = true;
}

/* Room for one more element of an array; failing fails the lowering. */
static bool grow(clef__lowering *l, void *array_address, int n, int *capacity, size_t size) {
    if (clef__grow(array_address, n, capacity, size)) return true;
    clef__lower_fail(l);
    return false;
}

/* ---- values and operands ---- */

static int new_value(clef__lowering *l, clef__home home, int item, size_t bytes) {
    clef__plan *plan = l->plan;
    if (!grow(l, &plan->value, plan->n_values, &plan->value_capacity, sizeof *plan->value)) return 0;
    plan->value[plan->n_values] = (clef__value){.home = home, .item = item, .device = l->device, .bytes = bytes,
                                                .in_place_of = -1, .donor = -1};
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

clef__operand clef__lower_scratch(clef__lowering *l, clef_dtype dtype, clef_shape shape) {
    return clef__lower_scratch_in(l, dtype, shape, NULL);
}

clef__operand clef__lower_scratch_in(clef__lowering *l, clef_dtype dtype, clef_shape shape, const int *order) {
    int64_t n = clef_shape_numel(shape);
    size_t bytes = n < 0 || (uint64_t)n > SIZE_MAX / 8 ? SIZE_MAX : (size_t)n * clef_dtype_size(dtype);
    return dense_operand(new_value(l, CLEF__ARENA_VALUE, -1, bytes), dtype, shape, order);
}

/* A row-major copy, when a consumer cannot take the value as it lies. */
static clef__operand dense_copy(clef__lowering *l, clef__operand x, const int *order) {
    clef__operand y = clef__lower_scratch_in(l, x.dtype, clef__operand_shape(&x), order);
    clef__lower_copy(l, y, x);
    return y;
}

/* A view of `in`, which is copied first if it cannot be seen that way. */
static clef__operand view_operand(clef__lowering *l, const clef__node *node, clef__operand in) {
    clef__layout from = {.offset = in.offset}, to = {0};
    memcpy(from.stride, in.stride, sizeof from.stride);
    if (!node->op->view(node, &from, &to)) {
        in = dense_copy(l, in, NULL);
        from = (clef__layout){.offset = in.offset};
        memcpy(from.stride, in.stride, sizeof from.stride);
        if (!node->op->view(node, &from, &to)) {
            clef__fail(l->ctx, CLEF_INTERNAL, "%s: clef bug, please report it: no view even of a row-major copy", node->op->name);
            l->failed = true;
        }
    }
    clef__operand x = {.value = in.value, .dtype = node->dtype, .rank = node->shape.rank, .offset = to.offset};
    memcpy(x.dim, node->shape.dim, sizeof x.dim);
    memcpy(x.stride, to.stride, sizeof x.stride);
    return x;
}

/* One element, seen with strides of 0. */
static clef__operand constant_operand(clef__lowering *l, int index) {
    const clef__node *node = l->g->item[index].node;
    clef__pointwise p = {.n_operands = 1, .n_stores = 1};
    p.operand[0] = (clef__pw_operand){.constant = true, .item = index, .dtype = node->dtype};
    p.store[0].to = clef__lower_scratch(l, node->dtype, CLEF_SCALAR);
    clef__lower_pointwise(l, &p, "constant");
    clef__operand one = p.store[0].to;
    one.rank = 0;
    return clef__broadcast_operand(one, node->shape);
}

static clef__operand leaf_operand(clef__lowering *l, int index) {
    const clef__item *item = &l->g->item[index];
    size_t bytes = (size_t)clef_shape_numel(item->node->shape) * clef_dtype_size(item->node->dtype);
    clef__operand x = dense_operand(new_value(l, CLEF__LEAF_VALUE, index, bytes), item->node->dtype, item->node->shape, NULL);
    memcpy(x.stride, item->node->layout.stride, sizeof x.stride);
    if (!l->failed) l->plan->value[x.value].donatable = item->donatable;
    return x;
}

/* Has it a place that is good on the device that is being lowered for?  A constant is wherever it is wanted. */
static bool placed_here(const clef__lowering *l, int index) {
    const clef__item *item = &l->g->item[index];
    const clef__placed *placed = &l->placed[index];
    return placed->there && (item->leaf || item->node->op->kind != CLEF__CONSTANT ||
                             l->plan->value[placed->operand.value].device == l->device);
}

/* Everything else that is no leaf, view or constant was placed by its group before. */
static void place_item(clef__lowering *l, int index) {
    const clef__item *item = &l->g->item[index];
    int device = l->device;
    if (item->leaf || clef__is_view(item)) l->device = item->node->device;
    clef__operand x = item->leaf            ? leaf_operand(l, index)
                      : clef__is_view(item) ? view_operand(l, item->node, l->placed[clef__item_of(l->g, item->node->input[0])].operand)
                                            : constant_operand(l, index);
    l->placed[index] = (clef__placed){true, x};
    l->device = device;
}

/* Views of views may be many, so they wait in a list until what they look at is placed.  After a failure strategies go on
   with the right shape over no memory, and nothing of it is launched. */
clef__operand clef__item_operand(clef__lowering *l, int index) {
    int *waiting = NULL, n = 0, capacity = 0, at = index, device = l->device;
    while (!l->failed && !placed_here(l, at)) {
        if (!grow(l, &waiting, n, &capacity, sizeof at)) break;
        waiting[n++] = at;
        if (!clef__is_view(&l->g->item[at])) break;
        l->device = l->g->item[at].node->device;
        at = clef__item_of(l->g, l->g->item[at].node->input[0]);
    }
    while (n > 0 && !l->failed) place_item(l, waiting[--n]);
    clef__free(waiting);
    l->device = device;
    const clef__node *node = l->g->item[index].node;
    return l->failed ? dense_operand(0, node->dtype, node->shape, NULL) : l->placed[index].operand;
}

clef__operand clef__lower_in(clef__lowering *l, int i) {
    return clef__item_operand(l, clef__item_of(l->g, l->node->input[i]));
}

clef__operand clef__lower_in_dense(clef__lowering *l, int i, const int *order) {
    clef__operand x = clef__lower_in(l, i);
    return clef__lower_is_dense(&x, order) ? x : dense_copy(l, x, order);
}

clef__operand clef__lower_out(clef__lowering *l, const int *order) {
    size_t bytes = (size_t)clef_shape_numel(l->node->shape) * clef_dtype_size(l->node->dtype);
    clef__operand out = dense_operand(new_value(l, CLEF__ARENA_VALUE, l->item, bytes), l->node->dtype, l->node->shape, order);
    l->placed[l->item] = (clef__placed){true, out};
    return out;
}

/* ---- elementwise work ---- */

void clef__lower_copy(clef__lowering *l, clef__operand to, clef__operand from) {
    clef__pointwise p = {.shape = clef__operand_shape(&to), .n_operands = 1, .n_steps = 1, .n_stores = 1};
    p.operand[0] = (clef__pw_operand){.dtype = from.dtype, .x = from};
    p.step[0] = (clef__pw_step){.op = &clef__op_cast, .dtype = to.dtype, .n_inputs = 1, .input = {0}};
    p.store[0].from = CLEF__PW_OPERANDS;
    p.store[0].to = to;
    clef__lower_pointwise(l, &p, "copy");
}

void clef__lower_fill(clef__lowering *l, clef__operand to, double value) {
    clef__pointwise p = {.shape = clef__operand_shape(&to), .n_operands = 1, .n_stores = 1};
    p.operand[0] = (clef__pw_operand){.constant = true, .item = -1, .number = value, .dtype = to.dtype};
    p.store[0].to = to;
    clef__lower_pointwise(l, &p, "fill");
}

/* ---- launches ---- */

static clef__launch *new_launch(clef__lowering *l) {
    clef__plan *plan = l->plan;
    if (!grow(l, &plan->launch, plan->n_launches, &plan->launch_capacity, sizeof *plan->launch)) return NULL;
    clef__launch *launch = &plan->launch[plan->n_launches++];
    *launch = (clef__launch){.device = l->device, .tuned = l->tuned};
    return launch;
}

void clef__launch_begin(clef__lowering *l, const char *file, const char *kernel) {
    if (l->open && !l->failed) {
        clef__fail(l->ctx, CLEF_INTERNAL, "%s: clef bug, please report it: kernel %s begins before %s has ended", l->node ? l->node->op->name : "plan",
                   kernel ? kernel : "(none)", l->open->name ? l->open->name : "(none)");
        l->failed = true;
    }
    l->open = new_launch(l);
    clef__free(l->defines);
    clef__free(l->text);
    l->text = NULL;
    l->defines = clef__strdup(clef__lower_profile(l)->wide_items ? "-DCLEF_WIDE=1" : ""); /* see cl/common.h */
    if (!l->open || !l->defines) {
        clef__lower_fail(l);
        return;
    }
    l->open->file = file;
    l->open->name = kernel;
    clef__launch_name(l, l->node ? l->node->op->name : kernel, false);
}

void clef__launch_name(clef__lowering *l, const char *name, bool besides) {
    if (l->failed) return;
    char *label = l->open->label;
    size_t used = besides ? strlen(label) : 0;
    snprintf(label + used, sizeof l->open->label - used, "%s%s", besides ? " + " : "", name);
}

void clef__launch_define(clef__lowering *l, const char *name, const char *fmt, ...) {
    if (l->failed) return;
    char value[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    char *longer = clef__asprintf("%s%s-D%s=%s", l->defines, *l->defines ? " " : "", name, value);
    if (!longer) {
        clef__lower_fail(l);
        return;
    }
    clef__free(l->defines);
    l->defines = longer;
}

void clef__launch_arg(clef__lowering *l, clef__arg arg) {
    if (l->failed) return;
    clef__launch *launch = l->open;
    if (!grow(l, &launch->arg, launch->n_args, &launch->arg_capacity, sizeof arg)) return;
    arg.index = launch->n_kernel_args;
    launch->arg[launch->n_args++] = arg;
    launch->n_kernel_args += arg.kind == CLEF__ARG_TENSOR ? 2 : 1;
}

void clef__launch_tensor(clef__lowering *l, clef__operand x, bool writes) {
    clef__launch_arg(l, (clef__arg){.kind = CLEF__ARG_TENSOR, .writes = writes, .value = x.value, .number = x.offset, .dtype = x.dtype});
}
void clef__launch_long(clef__lowering *l, int64_t value) { clef__launch_arg(l, (clef__arg){.kind = CLEF__ARG_LONG, .number = value}); }
void clef__launch_int(clef__lowering *l, int32_t value) { clef__launch_arg(l, (clef__arg){.kind = CLEF__ARG_INT, .number = value}); }
void clef__launch_longs(clef__lowering *l, const int64_t *value, size_t n) {
    for (size_t i = 0; i < n; i++) clef__launch_long(l, value[i]);
}
void clef__launch_ints(clef__lowering *l, const int64_t *value, size_t n) {
    for (size_t i = 0; i < n; i++) clef__launch_int(l, (int32_t)value[i]);
}
void clef__launch_float(clef__lowering *l, float value) { clef__launch_arg(l, (clef__arg){.kind = CLEF__ARG_FLOAT, .real = value}); }
void clef__launch_dynamic(clef__lowering *l, int i) {
    clef__launch_arg(l, (clef__arg){.kind = CLEF__ARG_DYNAMIC, .number = i, .item = l->item});
}
void clef__launch_constant(clef__lowering *l, int item, double number, clef_dtype dtype) {
    clef__launch_arg(l, (clef__arg){.kind = CLEF__ARG_CONSTANT, .item = item, .constant = number, .dtype = dtype});
}

static int number_of(const clef__lowering *l, int i) {
    return clef__constant_behind(l->g, clef__item_of(l->g, l->node->input[i]));
}
bool clef__lower_is_number(const clef__lowering *l, int i) { return number_of(l, i) >= 0; }
void clef__launch_number(clef__lowering *l, int i, clef_dtype dtype) { clef__launch_constant(l, number_of(l, i), 0, dtype); }

void clef__launch_prepacks(clef__lowering *l) {
    if (!l->failed) l->open->prepacks = true;
}

void clef__launch_end(clef__lowering *l, const size_t global[3], const size_t local[3]) {
    if (l->failed) return;
    for (int i = 0; i < 3; i++) {
        l->open->local[i] = local[i];
        l->open->global[i] = (global[i] + local[i] - 1) / local[i] * local[i];
    }
    clef__launch *launch = l->open;
    if (launch->file || l->text) launch->code = clef__code_of(clef__device_at(l->ctx, launch->device), l->text, launch->file, l->defines);
    if ((launch->file || l->text) && !launch->code) clef__lower_fail(l);
    clef__free(l->text);
    l->text = NULL;
    l->open = NULL;
}

void clef__launch_end_1d(clef__lowering *l, int64_t items) {
    if (l->failed) return;
    size_t local = (size_t)clef__lower_profile(l)->local;
    clef__launch_end(l, (size_t[3]){(size_t)items, 1, 1}, (size_t[3]){local, 1, 1});
}

clef__matrix_unit clef__lower_matrix_unit(const clef__lowering *l) { return clef__device_matrix_unit(clef__device_at(l->ctx, l->device)); }

void clef__launch_routine(clef__lowering *l, const clef__routine *routine, const void *what, size_t size) {
    void *copy = clef__alloc(size);
    if (!copy) clef__lower_fail(l);
    if (l->failed) {
        clef__free(copy);
        return;
    }
    l->open->kind = CLEF__LAUNCH_ROUTINE;
    l->open->routine = routine;
    l->open->what = memcpy(copy, what, size);
    clef__launch_end(l, (size_t[3]){1, 1, 1}, (size_t[3]){1, 1, 1});
}

int64_t clef__lower_items(const clef__lowering *l, int64_t n, int64_t at_least) {
    const clef__profile *profile = clef__lower_profile(l);
    int64_t units = clef__lower_device(l)->compute_units;
    int64_t most = (units ? units : 1) * profile->items_per_unit * profile->local;
    int64_t items = (n + at_least - 1) / (at_least ? at_least : 1);
    return items < 1 ? 1 : items < most ? items : most;
}

void clef__launch_free(clef__launch *launch) {
    clef__kernel_free(launch->kernel);
    clef__free(launch->arg);
    clef__free(launch->what);
}
