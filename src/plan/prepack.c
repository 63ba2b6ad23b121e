/* prepack.c — weights that are packed, transformed or converted stay so while they do not change.

   A product wants a matrix packed in panels, Winograd's convolution wants filters transformed, a half-precision product wants
   floats: launches that fill scratch memory from one leaf alone.  Nodes are immutable, so while the leaf is the same node they
   would write the same again.  The second time that it is, they write to memory of their own, and from then on they do not
   run; when it is another node, as after an update, that memory is given back.  Training pays nothing for it: a parameter
   that is updated in the same plan is another node each time. */
#include "plan/plan.h"

/* With what they keep, contexts take no more than this part of a device's memory: room for what must be there comes first. */
enum { PART_OF_DEVICE = 2 };

/* ---- finding them ---- */

/* The leaf that fills a value: the value itself, or what one found earlier fills it from; -1: none. */
static int leaf_behind(const clef__plan *plan, int value) {
    if (plan->value[value].home == CLEF__LEAF_VALUE) return value;
    for (int i = 0; i < plan->n_prepacked; i++)
        if (plan->prepacked[i].value == value) return plan->prepacked[i].leaf;
    return -1;
}

/* What a launch writes and what it reads, if it only brings a value into another form and nothing else changes from run to run.  Of
   generated ones, those from one value into scratch memory are copies. */
static bool one_from_one(const clef__launch *launch, int *to, int *from) {
    *to = *from = -1;
    if (launch->kind != CLEF__LAUNCH_KERNEL || (launch->file && !launch->prepacks)) return false;
    for (int a = 0; a < launch->n_args; a++) {
        const clef__arg *arg = &launch->arg[a];
        if (arg->kind == CLEF__ARG_DYNAMIC || (arg->kind == CLEF__ARG_CONSTANT && arg->item >= 0)) return false;
        if (arg->kind != CLEF__ARG_TENSOR) continue;
        int *side = arg->writes ? to : from;
        if (*side >= 0 && *side != arg->value) return false;
        *side = arg->value;
    }
    return *to >= 0 && *from >= 0 && *to != *from;
}

/* Does this launch alone write the value, and does none continue its memory? */
static bool stays(const clef__plan *plan, int launch, int v) {
    const clef__value *value = &plan->value[v];
    if (value->home != CLEF__ARENA_VALUE || value->item >= 0 || value->in_place_of >= 0 || value->taken) return false;
    for (int i = value->first; i <= value->last; i++)
        for (int a = 0; i != launch && a < plan->launch[i].n_args; a++) {
            const clef__arg *arg = &plan->launch[i].arg[a];
            if (arg->kind == CLEF__ARG_TENSOR && arg->writes && arg->value == v) return false;
        }
    return true;
}

clef_status clef__prepack_find(clef_context *ctx, clef__plan *plan) {
    plan->prepacked = clef__calloc((size_t)plan->n_launches + 1, sizeof *plan->prepacked);
    if (!plan->prepacked) return clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
    for (int i = 0; i < plan->n_launches; i++) {
        int to, from;
        if (!one_from_one(&plan->launch[i], &to, &from) || !stays(plan, i, to)) continue;
        int leaf = leaf_behind(plan, from);
        if (leaf >= 0) plan->prepacked[plan->n_prepacked++] = (clef__prepacked){.launch = i, .value = to, .leaf = leaf};
    }
    return CLEF_OK;
}

/* ---- at each replay ---- */

/* All arguments that point to a value, anew. */
static clef_status rebind(clef__plan *plan, int v) {
    clef_status status = CLEF_OK;
    for (int i = plan->value[v].first; i <= plan->value[v].last; i++)
        for (int a = 0; status == CLEF_OK && a < plan->launch[i].n_args; a++) {
            const clef__arg *arg = &plan->launch[i].arg[a];
            if (plan->launch[i].kind == CLEF__LAUNCH_KERNEL && arg->kind == CLEF__ARG_TENSOR && arg->value == v)
                status = clef__plan_set(plan, NULL, i, a);
        }
    return status;
}

static bool affordable(clef_context *ctx, clef__device *device, size_t bytes) {
    clef_memory_info memory = clef_memory(ctx);
    return memory.used + memory.cached + bytes <= clef__device_info(device)->global_bytes / PART_OF_DEVICE;
}

static clef_status move_out(clef_context *ctx, clef__plan *plan, clef__prepacked *p) {
    clef__value *value = &plan->value[p->value];
    clef__device *device = clef__device_at(ctx, value->device);
    if (value->own || !affordable(ctx, device, value->bytes)) return CLEF_OK;
    value->own = clef__buffer_new(device, value->bytes);
    if (!value->own) return clef_error_status(ctx);
    p->moved = true;
    return rebind(plan, p->value);
}

static clef_status move_back(clef__plan *plan, clef__prepacked *p) {
    clef__value *value = &plan->value[p->value];
    if (!p->moved) return CLEF_OK;
    clef__buffer_release(value->own);
    value->own = NULL;
    clef_status status = rebind(plan, p->value);
    p->moved = status != CLEF_OK; /* then once more next time */
    return status;
}

clef_status clef__prepack_begin(clef_context *ctx, clef__plan *plan, const clef__graph_view *g) {
    clef_status status = CLEF_OK;
    for (int i = 0; status == CLEF_OK && i < plan->n_prepacked; i++) {
        clef__prepacked *p = &plan->prepacked[i];
        const clef__node *leaf = g->item[plan->value[p->leaf].item].node;
        bool same = p->seen && p->made == leaf->made && !clef__buffer_pinned(leaf->buffer);
        plan->launch[p->launch].idle = same && p->filled;
        if (same && p->filled) continue;
        p->seen = p->filled = false; /* if anything fails now */
        status = same ? move_out(ctx, plan, p) : move_back(plan, p);
    }
    return status;
}

void clef__prepack_end(clef__plan *plan, const clef__graph_view *g, int launched) {
    for (int i = 0; i < plan->n_prepacked && plan->prepacked[i].launch < launched; i++) {
        clef__prepacked *p = &plan->prepacked[i];
        p->made = g->item[plan->value[p->leaf].item].node->made;
        p->seen = true;
        p->filled = plan->value[p->value].own != NULL;
    }
}
