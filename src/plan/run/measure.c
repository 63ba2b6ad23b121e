/* measure.c — what a plan takes on each device, known before it runs. */
#include "plan/run/run.h"

#include <math.h>
#include <string.h>

static void add_cost(const clef__node *node, clef_plan_size *size) {
    double flops, bytes;
    clef__node_cost(node, &flops, &bytes);
    size->flops += flops;
    size->bytes += bytes;
}

static void add_launches(const clef__plan *plan, int device, clef_plan_size *size) {
    for (int i = 0; i < plan->n_launches; i++) {
        if (plan->launch[i].device != device) continue;
        size->launches++;
        for (int a = 0; a < plan->launch[i].n_args; a++)
            if (plan->launch[i].arg[a].writes) size->written_bytes += plan->launch[i].arg[a].bytes;
    }
}

static void add_work(const clef__graph_view *g, int device, clef_plan_size *size) {
    for (int i = 0; i < g->n; i++) {
        const clef__captured *captured = &g->captured[i];
        clef__kind kind = captured->node->op->kind;
        if (clef__is_work(captured) && captured->same_as < 0 && kind != CLEF__VIEW && kind != CLEF__CONSTANT &&
            captured->out->device == device)
            add_cost(captured->node, size);
    }
}

static void add_values(const clef__plan *plan, int device, clef_plan_size *size) {
    for (int v = 0; v < plan->n_values; v++) {
        const clef__value *value = &plan->value[v];
        if (value->device != device) continue;
        if (value->home == CLEF__LEAF_VALUE) size->input_bytes += (int64_t)value->bytes;
        if (value->home == CLEF__OUTPUT_VALUE && value->donor < 0) size->result_bytes += (int64_t)value->bytes;
    }
    for (int i = 0; i < plan->n_prepacked; i++) {
        const clef__value *value = &plan->value[plan->prepacked[i].value];
        if (!plan->prepacked[i].inner && value->device == device) size->prepacked_bytes += (int64_t)value->bytes;
    }
}

/* Does it fill what later runs find filled? */
static bool prepares(const clef__plan *plan, int launch) {
    for (int i = 0; i < plan->n_prepacked; i++)
        if (plan->prepacked[i].launch == launch) return true;
    return false;
}

/* Of its operands and results: a value that it names twice is moved once, and so is one that is broadcast. */
static double bytes_of(const clef__plan *plan, const clef__launch *launch) {
    double bytes = 0;
    for (int a = 0; a < launch->n_args; a++) {
        const clef__arg *arg = &launch->arg[a];
        int before = 0;
        while (before < a && (launch->arg[before].kind != CLEF__ARG_TENSOR || launch->arg[before].value != arg->value ||
                              launch->arg[before].writes != arg->writes))
            before++;
        if (arg->kind == CLEF__ARG_TENSOR && before == a) bytes += fmin((double)arg->bytes, (double)plan->value[arg->value].bytes);
    }
    return bytes;
}

void clef__plan_tell(clef_context *ctx, const clef__plan *plan) {
    for (int i = 0; i < plan->n_launches; i++) {
        const clef__launch *launch = &plan->launch[i];
        clef_planned_launch told = {.ops = launch->label,
                                    .kernel = launch->code ? launch->name : "copy",
                                    .device = launch->device,
                                    .flops = launch->flops,
                                    .bytes = bytes_of(plan, launch),
                                    .prepares = prepares(plan, i)};
        memcpy(told.global, launch->global, sizeof told.global);
        memcpy(told.local, launch->local, sizeof told.local);
        clef__note_launch(ctx, &told);
    }
}

clef_plan_size clef__plan_size(const clef__plan *plan, const clef__graph_view *g, int device) {
    clef_plan_size size = {.temporary_bytes = (int64_t)plan->arena_bytes[device],
                           .least_temporary_bytes = (int64_t)plan->lower_bound[device]};
    add_launches(plan, device, &size);
    add_work(g, device, &size);
    add_values(plan, device, &size);
    size.real_flops = size.flops - plan->spared_flops[device];
    size.peak_bytes = size.input_bytes + size.result_bytes + size.temporary_bytes + size.prepacked_bytes;
    return size;
}
