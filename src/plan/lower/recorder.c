/* recorder.c — what a strategy records: launches with their arguments, one after the other; and the facts it may ask for. */
#include "plan/lower/lowering.h"
#include "runtime/arithmetic.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const clef__node *clef__lower_node(const clef__lowering *lw) { return lw->node; }
const clef_device_info *clef__lower_device(const clef__lowering *lw) {
    return clef__device_planned(clef__device_at(lw->rec->ctx, lw->device));
}
const clef__profile *clef__lower_profile(const clef__lowering *lw) {
    return clef__device_profile(clef__device_at(lw->rec->ctx, lw->device));
}

clef__lowering clef__lowering_of(clef__recorder *rec, int captured) {
    const clef__node *node = rec->g->captured[captured].node;
    return (clef__lowering){.rec = rec, .node = node, .captured = captured, .device = node->out->device};
}

void clef__record_fail(clef__recorder *rec) {
    if (!rec->failed) clef__fail(rec->ctx, CLEF_MEMORY, "plan: no host memory");
    rec->failed = true;
}

bool clef__record_room(clef__recorder *rec, void *array_address, int n, int *capacity, size_t size) {
    if (clef__grow(array_address, n, capacity, size)) return true;
    clef__record_fail(rec);
    return false;
}

/* A strategy's calls came in the wrong order. */
static void fail_order(const clef__lowering *lw, const char *call, const char *fact, const char *kernel) {
    if (!lw->rec->failed)
        clef__fail(lw->rec->ctx, CLEF_INTERNAL, "%s: clef bug, please report it: %s %s %s", lw->node ? lw->node->op->name : "plan",
                   call, fact, kernel);
    lw->rec->failed = true;
}

/* ---- launches ---- */

static clef__launch *new_launch(const clef__lowering *lw) {
    clef__plan *plan = lw->rec->plan;
    if (!clef__record_room(lw->rec, &plan->launch, plan->n_launches, &plan->launch_capacity, sizeof *plan->launch)) return NULL;
    clef__launch *launch = &plan->launch[plan->n_launches++];
    *launch = (clef__launch){.device = lw->device, .tuned = lw->rec->tuned};
    return launch;
}

void clef__launch_begin(const clef__lowering *lw, const char *file, const char *kernel) {
    clef__recorder *rec = lw->rec;
    if (rec->open)
        fail_order(lw, kernel ? kernel : "a launch", "begins before the end of", rec->open->name ? rec->open->name : "another");
    rec->open = new_launch(lw);
    clef__free(rec->text);
    rec->text = NULL;
    rec->defines.length = 0;
    clef__text_append(&rec->defines, clef__lower_profile(lw)->wide_items ? "-DCLEF_WIDE=1" : ""); /* see cl/common.h */
    if (!rec->open || rec->defines.failed) {
        clef__record_fail(rec);
        return;
    }
    rec->open->file = file;
    rec->open->name = kernel;
    rec->open->n_kernel_args = 1; /* behind the numbers */
    clef__launch_name(lw, lw->node ? lw->node->op->name : kernel, false);
}

void clef__launch_name(const clef__lowering *lw, const char *name, bool besides) {
    if (lw->rec->failed) return;
    char *label = lw->rec->open->label;
    size_t used = besides ? strlen(label) : 0;
    snprintf(label + used, sizeof lw->rec->open->label - used, "%s%s", besides ? " + " : "", name);
}

void clef__launch_define(const clef__lowering *lw, const char *name, const char *fmt, ...) {
    if (lw->rec->failed) return;
    clef__text *defines = &lw->rec->defines;
    char value[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    const char *const words[] = {defines->length ? " -D" : "-D", name, "=", value};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) clef__text_append(defines, words[i]);
    if (defines->failed) clef__record_fail(lw->rec);
}

size_t clef__number_bytes(const clef__arg *arg) {
    switch (arg->kind) {
    case CLEF__ARG_INT:
    case CLEF__ARG_FLOAT: return 4;
    case CLEF__ARG_CONSTANT: return arg->dtype == CLEF_F64 || arg->dtype == CLEF_I64 ? 8 : 4;
    default: return 8;
    }
}

/* Where the number stands in the kernel's struct, in which each is aligned to its size. */
static int place_number(clef__launch *launch, const clef__arg *arg) {
    size_t size = clef__number_bytes(arg), at = (launch->numbers + size - 1) / size * size;
    launch->numbers = at + size;
    return (int)at;
}

void clef__launch_arg(const clef__lowering *lw, clef__arg arg) {
    if (!lw->rec->open) fail_order(lw, "an argument", "comes outside of", "a launch");
    if (lw->rec->failed) return;
    clef__launch *launch = lw->rec->open;
    if (!clef__record_room(lw->rec, &launch->arg, launch->n_args, &launch->arg_capacity, sizeof arg)) return;
    arg.index = launch->n_kernel_args;
    arg.at = lw->rec->apart ? -1 : place_number(launch, &arg);
    launch->arg[launch->n_args++] = arg;
    launch->n_kernel_args += (arg.kind == CLEF__ARG_TENSOR) + (arg.at < 0);
}

void clef__launch_tensor(const clef__lowering *lw, clef__operand x, bool writes) {
    clef__launch_arg(lw, (clef__arg){.kind = CLEF__ARG_TENSOR,
                                     .writes = writes,
                                     .value = x.value,
                                     .number = x.offset,
                                     .dtype = x.dtype,
                                     .bytes = clef_shape_numel(clef__operand_shape(&x)) * (int64_t)clef_dtype_size(x.dtype)});
}
void clef__launch_unread(const clef__lowering *lw, clef__operand x) {
    clef__launch_arg(lw, (clef__arg){.kind = CLEF__ARG_TENSOR, .value = x.value, .number = x.offset, .dtype = x.dtype});
}
void clef__launch_long(const clef__lowering *lw, int64_t value) {
    clef__launch_arg(lw, (clef__arg){.kind = CLEF__ARG_LONG, .number = value});
}
void clef__launch_int(const clef__lowering *lw, int32_t value) {
    clef__launch_arg(lw, (clef__arg){.kind = CLEF__ARG_INT, .number = value});
}
void clef__launch_longs(const clef__lowering *lw, const int64_t *value, size_t n) {
    for (size_t i = 0; i < n; i++) clef__launch_long(lw, value[i]);
}
void clef__launch_ints(const clef__lowering *lw, const int64_t *value, size_t n) {
    for (size_t i = 0; i < n; i++) clef__launch_int(lw, (int32_t)value[i]);
}
void clef__launch_float(const clef__lowering *lw, float value) {
    clef__launch_arg(lw, (clef__arg){.kind = CLEF__ARG_FLOAT, .real = value});
}
void clef__launch_dynamic(const clef__lowering *lw, int i) {
    clef__launch_arg(lw, (clef__arg){.kind = CLEF__ARG_DYNAMIC, .number = i, .captured = lw->captured});
}
void clef__launch_constant(const clef__lowering *lw, int captured, double number, clef_dtype dtype) {
    clef__launch_arg(lw, (clef__arg){.kind = CLEF__ARG_CONSTANT, .captured = captured, .constant = number, .dtype = dtype});
}

static int number_of(const clef__lowering *lw, int i) {
    return clef__constant_behind(lw->rec->g, clef__captured_of(lw->rec->g, lw->node->input[i]));
}
bool clef__lower_is_number(const clef__lowering *lw, int i) { return number_of(lw, i) >= 0; }
void clef__launch_number(const clef__lowering *lw, int i, clef_dtype dtype) {
    clef__launch_constant(lw, number_of(lw, i), 0, dtype);
}

void clef__launch_text(const clef__lowering *lw, char *text) {
    if (!text) clef__record_fail(lw->rec);
    clef__free(lw->rec->text);
    lw->rec->text = text;
}

void clef__launch_derives(const clef__lowering *lw) {
    if (!lw->rec->failed) lw->rec->open->derives = true;
}
void clef__launch_prepacks(const clef__lowering *lw) {
    if (!lw->rec->failed) lw->rec->open->derives = lw->rec->open->prepacks = true;
}

void clef__launch_flops(const clef__lowering *lw, double flops) {
    if (lw->rec->failed) return;
    lw->rec->open->flops = flops;
    lw->rec->open->counted = true;
}

void clef__launch_end(const clef__lowering *lw, const size_t global[3], const size_t local[3]) {
    if (lw->rec->failed) return;
    for (int i = 0; i < 3; i++) {
        lw->rec->open->local[i] = local[i];
        lw->rec->open->global[i] = (global[i] + local[i] - 1) / local[i] * local[i];
    }
    clef__launch *launch = lw->rec->open;
    launch->numbers = (launch->numbers + 7) / 8 * 8 + 8; /* the struct ends with a long (cl/args.h) */
    if (launch->file || lw->rec->text)
        launch->code =
            clef__code_of(clef__device_at(lw->rec->ctx, launch->device), lw->rec->text, launch->file, lw->rec->defines.data);
    if ((launch->file || lw->rec->text) && !launch->code) clef__record_fail(lw->rec);
    clef__free(lw->rec->text);
    lw->rec->text = NULL;
    lw->rec->open = NULL;
}

void clef__launch_end_1d(const clef__lowering *lw, int64_t items) {
    if (lw->rec->failed) return;
    size_t local = (size_t)clef__lower_profile(lw)->local;
    clef__launch_end(lw, (size_t[3]){(size_t)items, 1, 1}, (size_t[3]){local, 1, 1});
}

struct clef__gemm *clef__lower_product(const clef__lowering *lw) {
    return lw->product;
}

clef__matrix_unit clef__lower_matrix_unit(const clef__lowering *lw) {
    return clef__device_matrix_unit(clef__device_at(lw->rec->ctx, lw->device));
}

bool clef__lower_tf32(const clef__lowering *lw) {
    return clef_get_matmul_precision(lw->rec->ctx) == CLEF_MATMUL_HIGH &&
           clef__device_tf32(clef__device_at(lw->rec->ctx, lw->device));
}

clef__shuffle clef__lower_shuffle(const clef__lowering *lw) {
    return clef__device_shuffle(clef__device_at(lw->rec->ctx, lw->device));
}

void *clef__lower_room(const clef__lowering *lw, size_t bytes) {
    void *room = clef__calloc(1, bytes);
    if (!room) clef__record_fail(lw->rec);
    return room;
}

void clef__launch_routine(const clef__lowering *lw, const clef__routine *routine, const void *what, size_t size) {
    void *copy = clef__alloc(size);
    if (!copy) clef__record_fail(lw->rec);
    if (lw->rec->failed) {
        clef__free(copy);
        return;
    }
    lw->rec->open->kind = CLEF__LAUNCH_ROUTINE;
    lw->rec->open->routine = routine;
    lw->rec->open->what_bytes = size;
    lw->rec->open->beside = routine->visit && clef__device_has_gates(clef__device_at(lw->rec->ctx, lw->device));
    lw->rec->open->what = memcpy(copy, what, size);
    clef__launch_end(lw, (size_t[3]){1, 1, 1}, (size_t[3]){1, 1, 1});
}

int64_t clef__lower_items(const clef__lowering *lw, int64_t n, int64_t at_least) {
    const clef__profile *profile = clef__lower_profile(lw);
    int64_t units = clef__lower_device(lw)->compute_units;
    int64_t most = (units ? units : 1) * profile->items_per_unit * profile->local;
    if (!profile->wide_items) at_least = 1; /* work-items start together, and one alone waits for each of its loads */
    int64_t items = (n + at_least - 1) / (at_least ? at_least : 1);
    return items < 1 ? 1 : items < most ? items : most;
}

bool clef__lower_pays(const clef__lowering *lw, double work) {
    double units = clef__lower_device(lw)->compute_units, us = work / 4096;
    return units < 2 || us * (1 - 1 / units) > clef__lower_profile(lw)->unit_us;
}

int64_t clef__lower_run(const clef__lowering *lw, int64_t n, double work) {
    if (!clef__lower_pays(lw, (double)n * work)) return n < 1 ? 1 : n;
    return clef__ceil_div(n, clef__lower_items(lw, n, 1));
}

bool clef__is_visit(const clef__launch *launch) { return launch->kind == CLEF__LAUNCH_ROUTINE && launch->routine->visit; }

void clef__launch_free(clef__launch *launch) {
    clef__kernel_free(launch->kernel);
    clef__code_release(launch->code);
    clef__free(launch->arg);
    clef__free(launch->what);
}
