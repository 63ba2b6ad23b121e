/* lower.c — the functions of lower.h: operands, scratch memory, launches. */
#include "graph/core.h"
#include "plan/lower/pointwise.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const clef__node *clef__lower_node(const clef__lowering *lw) { return lw->node; }
const clef_device_info *clef__lower_device(const clef__lowering *lw) {
    return clef__device_info(clef__device_at(lw->ctx, lw->device));
}
const clef__profile *clef__lower_profile(const clef__lowering *lw) {
    return clef__device_profile(clef__device_at(lw->ctx, lw->device));
}

void clef__lower_fail(const clef__lowering *lw) {
    if (!lw->failed) clef__fail(lw->ctx, CLEF_MEMORY, "plan: no host memory");
    lw->failed = true;
}

/* Room for one more element of an array; failing fails the lowering. */
static bool grow(const clef__lowering *lw, void *array_address, int n, int *capacity, size_t size) {
    if (clef__grow(array_address, n, capacity, size)) return true;
    clef__lower_fail(lw);
    return false;
}

/* ---- values and operands ---- */

static int new_value(const clef__lowering *lw, clef__home home, int item, size_t bytes) {
    clef__plan *plan = lw->plan;
    if (!grow(lw, &plan->value, plan->n_values, &plan->value_capacity, sizeof *plan->value)) return 0;
    plan->value[plan->n_values] = (clef__value){.home = home, .item = item, .device = lw->device, .bytes = bytes,
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
            clef__fail(lw->ctx, CLEF_INTERNAL, "%s: clef bug, please report it: no view even of a row-major copy", node->op->name);
            lw->failed = true;
        }
    }
    clef__operand x = {.value = in.value, .dtype = node->dtype, .rank = node->shape.rank, .offset = to.offset};
    memcpy(x.dim, node->shape.dim, sizeof x.dim);
    memcpy(x.stride, to.stride, sizeof x.stride);
    return x;
}

/* One element, seen with strides of 0. */
static clef__operand constant_operand(const clef__lowering *lw, int index) {
    const clef__node *node = lw->g->item[index].node;
    clef__pointwise p = {.n_operands = 1, .n_stores = 1};
    p.operand[0] = (clef__pw_operand){.constant = true, .item = index, .dtype = node->dtype};
    p.store[0].to = clef__lower_scratch(lw, node->dtype, CLEF_SCALAR);
    clef__lower_pointwise(lw, &p, "constant");
    clef__operand one = p.store[0].to;
    one.rank = 0;
    return clef__broadcast_operand(one, node->shape);
}

static clef__operand leaf_operand(const clef__lowering *lw, int index) {
    const clef__item *item = &lw->g->item[index];
    size_t bytes = (size_t)clef_shape_numel(item->node->shape) * clef_dtype_size(item->node->dtype);
    clef__operand x = dense_operand(new_value(lw, CLEF__LEAF_VALUE, index, bytes), item->node->dtype, item->node->shape, NULL);
    memcpy(x.stride, item->node->layout.stride, sizeof x.stride);
    if (!lw->failed) lw->plan->value[x.value].donatable = item->donatable;
    return x;
}

/* Has it a place that is good on the device that is being lowered for?  A constant is wherever it is wanted. */
static bool placed_here(const clef__lowering *lw, int index) {
    const clef__item *item = &lw->g->item[index];
    const clef__placed *placed = &lw->placed[index];
    return placed->there && (item->leaf || item->node->op->kind != CLEF__CONSTANT ||
                             lw->plan->value[placed->operand.value].device == lw->device);
}

/* Everything else that is no leaf, view or constant was placed by its group before. */
static void place_item(const clef__lowering *lw, int index) {
    const clef__item *item = &lw->g->item[index];
    int device = lw->device;
    if (item->leaf || clef__is_view(item)) lw->device = item->node->device;
    clef__operand x = item->leaf            ? leaf_operand(lw, index)
                      : clef__is_view(item) ? view_operand(lw, item->node, lw->placed[clef__item_of(lw->g, item->node->input[0])].operand)
                                            : constant_operand(lw, index);
    lw->placed[index] = (clef__placed){true, x};
    lw->device = device;
}

/* Views of views may be many, so they wait in a list until what they look at is placed.  After a failure strategies go on
   with the right shape over no memory, and nothing of it is launched. */
clef__operand clef__item_operand(const clef__lowering *lw, int index) {
    int *waiting = NULL, n = 0, capacity = 0, at = index, device = lw->device;
    while (!lw->failed && !placed_here(lw, at)) {
        if (!grow(lw, &waiting, n, &capacity, sizeof at)) break;
        waiting[n++] = at;
        if (!clef__is_view(&lw->g->item[at])) break;
        lw->device = lw->g->item[at].node->device;
        at = clef__item_of(lw->g, lw->g->item[at].node->input[0]);
    }
    while (n > 0 && !lw->failed) place_item(lw, waiting[--n]);
    clef__free(waiting);
    lw->device = device;
    const clef__node *node = lw->g->item[index].node;
    return lw->failed ? dense_operand(0, node->dtype, node->shape, NULL) : lw->placed[index].operand;
}

clef__operand clef__lower_in(const clef__lowering *lw, int i) {
    return clef__item_operand(lw, clef__item_of(lw->g, lw->node->input[i]));
}

clef__operand clef__lower_in_dense(const clef__lowering *lw, int i, const int *order) {
    clef__operand x = clef__lower_in(lw, i);
    return clef__lower_is_dense(&x, order) ? x : dense_copy(lw, x, order);
}

clef__operand clef__lower_out(const clef__lowering *lw, const int *order) {
    size_t bytes = (size_t)clef_shape_numel(lw->node->shape) * clef_dtype_size(lw->node->dtype);
    clef__operand out = dense_operand(new_value(lw, CLEF__ARENA_VALUE, lw->item, bytes), lw->node->dtype, lw->node->shape, order);
    lw->placed[lw->item] = (clef__placed){true, out};
    return out;
}

/* ---- elementwise work ---- */

void clef__lower_copy(const clef__lowering *lw, clef__operand to, clef__operand from) {
    clef__pointwise p = {.shape = clef__operand_shape(&to), .n_operands = 1, .n_steps = 1, .n_stores = 1};
    p.operand[0] = (clef__pw_operand){.dtype = from.dtype, .x = from};
    p.step[0] = (clef__pw_step){.op = &clef__op_cast, .dtype = to.dtype, .n_inputs = 1, .input = {0}};
    p.store[0].from = CLEF__PW_OPERANDS;
    p.store[0].to = to;
    clef__lower_pointwise(lw, &p, "copy");
}

void clef__lower_fill(const clef__lowering *lw, clef__operand to, double value) {
    clef__pointwise p = {.shape = clef__operand_shape(&to), .n_operands = 1, .n_stores = 1};
    p.operand[0] = (clef__pw_operand){.constant = true, .item = -1, .number = value, .dtype = to.dtype};
    p.store[0].to = to;
    clef__lower_pointwise(lw, &p, "fill");
}

/* ---- launches ---- */

static clef__launch *new_launch(const clef__lowering *lw) {
    clef__plan *plan = lw->plan;
    if (!grow(lw, &plan->launch, plan->n_launches, &plan->launch_capacity, sizeof *plan->launch)) return NULL;
    clef__launch *launch = &plan->launch[plan->n_launches++];
    *launch = (clef__launch){.device = lw->device, .tuned = lw->tuned};
    return launch;
}

void clef__launch_begin(const clef__lowering *lw, const char *file, const char *kernel) {
    if (lw->open && !lw->failed) {
        clef__fail(lw->ctx, CLEF_INTERNAL, "%s: clef bug, please report it: kernel %s begins before %s has ended", lw->node ? lw->node->op->name : "plan",
                   kernel ? kernel : "(none)", lw->open->name ? lw->open->name : "(none)");
        lw->failed = true;
    }
    lw->open = new_launch(lw);
    clef__free(lw->defines);
    clef__free(lw->text);
    lw->text = NULL;
    lw->defines = clef__strdup(clef__lower_profile(lw)->wide_items ? "-DCLEF_WIDE=1" : ""); /* see cl/common.h */
    if (!lw->open || !lw->defines) {
        clef__lower_fail(lw);
        return;
    }
    lw->open->file = file;
    lw->open->name = kernel;
    clef__launch_name(lw, lw->node ? lw->node->op->name : kernel, false);
}

void clef__launch_name(const clef__lowering *lw, const char *name, bool besides) {
    if (lw->failed) return;
    char *label = lw->open->label;
    size_t used = besides ? strlen(label) : 0;
    snprintf(label + used, sizeof lw->open->label - used, "%s%s", besides ? " + " : "", name);
}

void clef__launch_define(const clef__lowering *lw, const char *name, const char *fmt, ...) {
    if (lw->failed) return;
    char value[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    char *longer = clef__asprintf("%s%s-D%s=%s", lw->defines, *lw->defines ? " " : "", name, value);
    if (!longer) {
        clef__lower_fail(lw);
        return;
    }
    clef__free(lw->defines);
    lw->defines = longer;
}

void clef__launch_arg(const clef__lowering *lw, clef__arg arg) {
    if (lw->failed) return;
    clef__launch *launch = lw->open;
    if (!grow(lw, &launch->arg, launch->n_args, &launch->arg_capacity, sizeof arg)) return;
    arg.index = launch->n_kernel_args;
    launch->arg[launch->n_args++] = arg;
    launch->n_kernel_args += arg.kind == CLEF__ARG_TENSOR ? 2 : 1;
}

void clef__launch_tensor(const clef__lowering *lw, clef__operand x, bool writes) {
    clef__launch_arg(lw, (clef__arg){.kind = CLEF__ARG_TENSOR, .writes = writes, .value = x.value, .number = x.offset, .dtype = x.dtype});
}
void clef__launch_long(const clef__lowering *lw, int64_t value) { clef__launch_arg(lw, (clef__arg){.kind = CLEF__ARG_LONG, .number = value}); }
void clef__launch_int(const clef__lowering *lw, int32_t value) { clef__launch_arg(lw, (clef__arg){.kind = CLEF__ARG_INT, .number = value}); }
void clef__launch_longs(const clef__lowering *lw, const int64_t *value, size_t n) {
    for (size_t i = 0; i < n; i++) clef__launch_long(lw, value[i]);
}
void clef__launch_ints(const clef__lowering *lw, const int64_t *value, size_t n) {
    for (size_t i = 0; i < n; i++) clef__launch_int(lw, (int32_t)value[i]);
}
void clef__launch_float(const clef__lowering *lw, float value) { clef__launch_arg(lw, (clef__arg){.kind = CLEF__ARG_FLOAT, .real = value}); }
void clef__launch_dynamic(const clef__lowering *lw, int i) {
    clef__launch_arg(lw, (clef__arg){.kind = CLEF__ARG_DYNAMIC, .number = i, .item = lw->item});
}
void clef__launch_constant(const clef__lowering *lw, int item, double number, clef_dtype dtype) {
    clef__launch_arg(lw, (clef__arg){.kind = CLEF__ARG_CONSTANT, .item = item, .constant = number, .dtype = dtype});
}

static int number_of(const clef__lowering *lw, int i) {
    return clef__constant_behind(lw->g, clef__item_of(lw->g, lw->node->input[i]));
}
bool clef__lower_is_number(const clef__lowering *lw, int i) { return number_of(lw, i) >= 0; }
void clef__launch_number(const clef__lowering *lw, int i, clef_dtype dtype) { clef__launch_constant(lw, number_of(lw, i), 0, dtype); }

void clef__launch_prepacks(const clef__lowering *lw) {
    if (!lw->failed) lw->open->prepacks = true;
}

void clef__launch_end(const clef__lowering *lw, const size_t global[3], const size_t local[3]) {
    if (lw->failed) return;
    for (int i = 0; i < 3; i++) {
        lw->open->local[i] = local[i];
        lw->open->global[i] = (global[i] + local[i] - 1) / local[i] * local[i];
    }
    clef__launch *launch = lw->open;
    if (launch->file || lw->text) launch->code = clef__code_of(clef__device_at(lw->ctx, launch->device), lw->text, launch->file, lw->defines);
    if ((launch->file || lw->text) && !launch->code) clef__lower_fail(lw);
    clef__free(lw->text);
    lw->text = NULL;
    lw->open = NULL;
}

void clef__launch_end_1d(const clef__lowering *lw, int64_t items) {
    if (lw->failed) return;
    size_t local = (size_t)clef__lower_profile(lw)->local;
    clef__launch_end(lw, (size_t[3]){(size_t)items, 1, 1}, (size_t[3]){local, 1, 1});
}

clef__matrix_unit clef__lower_matrix_unit(const clef__lowering *lw) { return clef__device_matrix_unit(clef__device_at(lw->ctx, lw->device)); }

void clef__launch_routine(const clef__lowering *lw, const clef__routine *routine, const void *what, size_t size) {
    void *copy = clef__alloc(size);
    if (!copy) clef__lower_fail(lw);
    if (lw->failed) {
        clef__free(copy);
        return;
    }
    lw->open->kind = CLEF__LAUNCH_ROUTINE;
    lw->open->routine = routine;
    lw->open->what = memcpy(copy, what, size);
    clef__launch_end(lw, (size_t[3]){1, 1, 1}, (size_t[3]){1, 1, 1});
}

int64_t clef__lower_items(const clef__lowering *lw, int64_t n, int64_t at_least) {
    const clef__profile *profile = clef__lower_profile(lw);
    int64_t units = clef__lower_device(lw)->compute_units;
    int64_t most = (units ? units : 1) * profile->items_per_unit * profile->local;
    int64_t items = (n + at_least - 1) / (at_least ? at_least : 1);
    return items < 1 ? 1 : items < most ? items : most;
}

void clef__launch_free(clef__launch *launch) {
    clef__kernel_free(launch->kernel);
    clef__free(launch->arg);
    clef__free(launch->what);
}
