/* run.c — replays a plan: new buffers for results, the few changing arguments, every launch, results to their nodes. */
#include "graph/core.h"
#include "plan/run/run.h"

#include <string.h>

/* ---- one argument ---- */

/* A number, or a tensor's offset: one of the kernel's numbers, or an argument by itself. */
static clef_status set(clef__kernel *kernel, const clef__arg *arg, size_t bytes, const void *number) {
    if (arg->at < 0) return clef__kernel_set(kernel, arg->index + (arg->kind == CLEF__ARG_TENSOR), bytes, number);
    clef__kernel_put(kernel, (size_t)arg->at, bytes, number);
    return CLEF_OK;
}

static clef_status set_number(clef__kernel *kernel, const clef__arg *arg, double number) {
    switch (arg->dtype) {
    case CLEF_F64: return set(kernel, arg, sizeof(double), &number);
    case CLEF_I64: return set(kernel, arg, sizeof(int64_t), &(int64_t){clef__whole_number(number)});
    case CLEF_I32:
    case CLEF_U8:
    case CLEF_BOOL: return set(kernel, arg, sizeof(int32_t), &(int32_t){(int32_t)number});
    default: return set(kernel, arg, sizeof(float), &(float){(float)number});
    }
}

/* The constant's number, or one that is part of the plan. */
static clef_status set_constant(clef__kernel *kernel, const clef__arg *arg, const clef__node *constant) {
    if (constant && constant->out->dtype == CLEF_I64 && arg->dtype == CLEF_I64)
        return set(kernel, arg, sizeof(int64_t), &constant->dynamic.i);
    return set_number(kernel, arg, constant ? clef__constant_number(constant) : arg->constant);
}

clef__buffer *clef__place_of(const clef__plan *plan, const clef__graph_view *g, const clef__arg *arg, int64_t *offset) {
    const clef__value *value = &plan->value[arg->value];
    *offset = arg->number;
    if (value->home == CLEF__LEAF_VALUE) {
        *offset += g->captured[value->captured].out->layout.offset;
        return value->own;
    }
    if (value->home == CLEF__OUTPUT_VALUE || value->own) return value->own;
    *offset += (int64_t)(value->offset / clef_dtype_size(arg->dtype));
    return plan->arena[value->device].buffer;
}

clef_status clef__plan_set(clef__plan *plan, const clef__graph_view *g, int launch, int a) {
    clef__kernel *kernel = plan->launch[launch].kernel;
    const clef__arg *arg = &plan->launch[launch].arg[a];
    switch (arg->kind) {
    case CLEF__ARG_TENSOR: {
        int64_t offset;
        clef__buffer *buffer = clef__place_of(plan, g, arg, &offset);
        clef_status status = clef__kernel_set_buffer(kernel, arg->index, buffer);
        return status == CLEF_OK ? set(kernel, arg, sizeof offset, &offset) : status;
    }
    case CLEF__ARG_LONG: return set(kernel, arg, sizeof(int64_t), &arg->number);
    case CLEF__ARG_INT: return set(kernel, arg, sizeof(int32_t), &(int32_t){(int32_t)arg->number});
    case CLEF__ARG_FLOAT: return set(kernel, arg, sizeof(float), &arg->real);
    case CLEF__ARG_DYNAMIC: return set(kernel, arg, sizeof(uint64_t), &g->captured[arg->captured].node->dynamic.u[arg->number]);
    default: return set_constant(kernel, arg, arg->captured < 0 ? NULL : g->captured[arg->captured].node);
    }
}

/* What was set for the last replay stays set: a parameter that is updated in place is where it was. */
static clef_status set_bind(clef__plan *plan, const clef__graph_view *g, clef__bind *bind) {
    const clef__arg *arg = &plan->launch[bind->launch].arg[bind->arg];
    if (arg->kind != CLEF__ARG_TENSOR) return clef__plan_set(plan, g, bind->launch, bind->arg);
    int64_t offset;
    uint64_t buffer = clef__buffer_id(clef__place_of(plan, g, arg, &offset));
    if (bind->buffer == buffer && bind->offset == offset) return CLEF_OK;
    bind->buffer = 0;
    clef_status status = clef__plan_set(plan, g, bind->launch, bind->arg);
    if (status == CLEF_OK) *bind = (clef__bind){bind->launch, bind->arg, buffer, offset};
    return status;
}

static clef_status set_binds(clef__plan *plan, const clef__graph_view *g) {
    clef_status status = CLEF_OK;
    for (int i = 0; status == CLEF_OK && i < plan->n_binds; i++) status = set_bind(plan, g, &plan->bind[i]);
    return status;
}

/* ---- one replay ---- */

/* Makes room for this plan in the arenas, and points its arguments to those that are others than last time. */
static clef_status bind_arenas(clef__plan *plan, clef_context *ctx, clef__arena *arena) {
    bool moved = false;
    for (int d = 0; d < clef__context_devices(ctx); d++) {
        if (!plan->arena_bytes[d] || clef__debug_memory(ctx)) continue;
        if (!arena[d].buffer || clef__buffer_size(arena[d].buffer) < plan->arena_bytes[d]) {
            clef__buffer_release(arena[d].buffer); /* first, as there may not be room for both */
            arena[d] = (clef__arena){clef__buffer_new(clef__device_at(ctx, d), plan->arena_bytes[d]), arena[d].version + 1};
            if (!arena[d].buffer) return clef_error_status(ctx);
        }
        moved |= plan->arena[d].version != arena[d].version;
        plan->arena[d].buffer = arena[d].buffer;
    }
    clef_status status = CLEF_OK;
    for (int i = 0; moved && i < plan->n_prepacked; i++) plan->prepacked[i].bound = 0;
    for (int i = 0; status == CLEF_OK && moved && i < plan->n_arena_binds; i++)
        status = clef__plan_set(plan, NULL, plan->arena_bind[i].launch, plan->arena_bind[i].arg);
    for (int d = 0; status == CLEF_OK && d < clef__context_devices(ctx); d++) plan->arena[d].version = arena[d].version;
    return status;
}

/* Leaves' buffers are looked up; outputs get new ones, but for those that take over a leaf's. */
static clef_status bind_values(clef__plan *plan, clef_context *ctx, clef__graph_view *g) {
    for (int v = 0; v < plan->n_values; v++) {
        clef__value *value = &plan->value[v];
        if (value->home != CLEF__LEAF_VALUE) continue;
        value->own = g->captured[value->captured].out->buffer;
        if (value->own) clef__buffer_retain(value->own);
    }
    for (int v = 0; v < plan->n_values; v++) {
        clef__value *value = &plan->value[v];
        if (value->home != CLEF__OUTPUT_VALUE || value->bytes == 0 || value->donor >= 0) continue;
        value->own = clef__buffer_new(clef__device_at(ctx, value->device), value->bytes);
        if (!value->own) return clef_error_status(ctx);
    }
    return CLEF_OK;
}

/* Last, when nothing can fail any more before the launches: a parameter must survive an evaluation that does not run. */
static void take_over(clef__plan *plan, clef__graph_view *g) {
    for (int v = 0; v < plan->n_values; v++) {
        clef__value *value = &plan->value[v];
        if (value->home != CLEF__OUTPUT_VALUE || value->bytes == 0 || value->donor < 0) continue;
        clef__output *leaf = g->captured[plan->value[value->donor].captured].out;
        value->own = leaf->buffer;
        clef__buffer_renew(value->own);
        leaf->buffer = NULL;
        leaf->donated = true;
    }
}

static void unbind_values(clef__plan *plan) {
    for (int v = 0; v < plan->n_values; v++) {
        clef__value *value = &plan->value[v];
        if (value->home == CLEF__ARENA_VALUE) continue;
        clef__buffer_release(value->own);
        value->own = NULL;
    }
}

/* Was everything that writes this value queued? */
static bool is_written(const clef__plan *plan, int value, int launched) {
    for (int i = launched; i < plan->n_launches; i++)
        for (int a = 0; a < plan->launch[i].n_args; a++) {
            const clef__arg *arg = &plan->launch[i].arg[a];
            if (arg->kind == CLEF__ARG_TENSOR && arg->writes && arg->value == value) return false;
        }
    return true;
}

/* Has the value been overwritten where it lies? */
static bool is_overwritten(const clef__value *leaf, int launched) {
    return leaf->home == CLEF__LEAF_VALUE && leaf->updated && leaf->written < launched;
}

/* After a failure: what was taken over and not written to goes back to where it came from. */
static void give_back(clef__plan *plan, const clef__graph_view *g, int launched) {
    for (int v = 0; v < plan->n_values; v++) {
        clef__value *value = &plan->value[v];
        if (value->home != CLEF__OUTPUT_VALUE || value->donor < 0 || !value->own || value->first < launched) continue;
        if (is_overwritten(&plan->value[value->donor], launched)) continue;
        clef__output *leaf = g->captured[plan->value[value->donor].captured].out;
        leaf->buffer = value->own;
        leaf->donated = false;
        value->own = NULL;
    }
}

/* Leaves that were updated in place have lost their values; the memory goes to results that lie there. */
static void end_leaves(const clef__plan *plan, const clef__graph_view *g, int launched) {
    for (int v = 0; v < plan->n_values; v++) {
        const clef__value *value = &plan->value[v];
        if (!is_overwritten(value, launched)) continue;
        clef__output *leaf = g->captured[value->captured].out;
        if (leaf->buffer) clef__buffer_renew(leaf->buffer); /* what was derived from the former value goes with it */
        clef__buffer_release(leaf->buffer);
        leaf->buffer = NULL;
        leaf->donated = true;
    }
}

/* May a gradient ask for what it was made from? */
static bool is_on_tape(const clef__node *node) {
    for (int k = 0; k < node->n_outputs; k++)
        if (node->out[k].requires_grad) return true;
    return false;
}

/* Outputs take their buffers.  Values that no gradient will ask for forget how they were made. */
static void hand_out(const clef__plan *plan, const clef__graph_view *g, int launched) {
    for (int i = 0; i < plan->n_results; i++) {
        const clef__result *result = &plan->result[i];
        clef__output *out = g->captured[result->captured].out;
        const clef__value *value = &plan->value[result->value];
        if (!value->own || !is_written(plan, result->value, launched) || out->refs == 0) continue; /* nobody can ask for it */
        out->buffer = value->own;
        clef__buffer_retain(out->buffer);
        out->layout = result->layout;
        if (value->home == CLEF__LEAF_VALUE) out->layout.offset += g->captured[value->captured].out->layout.offset;
    }
    for (int i = 0; i < plan->n_results; i++) {
        const clef__output *out = g->captured[plan->result[i].captured].out;
        if (out->buffer && !is_on_tape(out->node)) clef__node_cut(out->node);
    }
}

clef_status clef__plan_run(clef__plan *plan, clef_context *ctx, clef__arena *arena, clef__graph_view *g) {
    int launched = 0;
    clef_status status = bind_arenas(plan, ctx, arena);
    if (status == CLEF_OK) status = bind_values(plan, ctx, g);
    if (status == CLEF_OK) {
        clef__derived_begin(ctx, plan, g); /* now: copies that are kept take what room is left */
        status = clef__derived_bind(plan);
    }
    if (status == CLEF_OK) {
        take_over(plan, g);
        status = set_binds(plan, g);
        if (status == CLEF_OK) status = clef__plan_issue(plan, ctx, g, &launched);
        if (status != CLEF_OK) give_back(plan, g, launched);
        end_leaves(plan, g, launched);
        clef__derived_note(plan, g, launched); /* while all leaves are there */
        hand_out(plan, g, launched);           /* after a failure, what was computed before it: parameters must not be lost */
    }
    clef__derived_end(ctx, plan);
    unbind_values(plan);
    for (int d = 0; d < clef__context_devices(ctx); d++) clef__ahead_limit(clef__device_at(ctx, d));
    return status;
}

clef_status clef__plan_skip(clef__plan *plan, clef_context *ctx, clef__graph_view *g) {
    clef_status status = bind_values(plan, ctx, g);
    if (status == CLEF_OK) {
        take_over(plan, g);
        end_leaves(plan, g, plan->n_launches);
        hand_out(plan, g, plan->n_launches);
    }
    unbind_values(plan);
    return status;
}
