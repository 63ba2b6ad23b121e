/* measure.c — what a plan takes, known before it runs. */
#include "plan/run/run.h"

static void add_cost(const clef__node *node, clef_plan_size *size) {
    double flops, bytes;
    clef__node_cost(node, &flops, &bytes);
    size->flops += flops;
    size->bytes += bytes;
}

static int64_t written_bytes(const clef__plan *plan) {
    int64_t bytes = 0;
    for (int i = 0; i < plan->n_launches; i++)
        for (int a = 0; a < plan->launch[i].n_args; a++) bytes += plan->launch[i].arg[a].bytes;
    return bytes;
}

clef_plan_size clef__plan_size(const clef__plan *plan, const clef__graph_view *g) {
    clef_plan_size size = {
        .launches = plan->n_launches, .written_bytes = written_bytes(plan), .least_temporary_bytes = (int64_t)plan->lower_bound};
    for (int i = 0; i < g->n; i++) {
        const clef__captured *captured = &g->captured[i];
        clef__kind kind = captured->node->op->kind;
        if (clef__is_work(captured) && captured->same_as < 0 && kind != CLEF__VIEW && kind != CLEF__CONSTANT)
            add_cost(captured->node, &size);
    }
    size.real_flops = size.flops - plan->spared_flops;
    for (int v = 0; v < plan->n_values; v++) {
        const clef__value *value = &plan->value[v];
        if (value->home == CLEF__LEAF_VALUE) size.input_bytes += (int64_t)value->bytes;
        if (value->home == CLEF__OUTPUT_VALUE && value->donor < 0) size.result_bytes += (int64_t)value->bytes;
    }
    for (int d = 0; d < CLEF__MAX_DEVICES; d++) size.temporary_bytes += (int64_t)plan->arena_bytes[d];
    size.prepacked_bytes = (int64_t)plan->prepacked_bytes;
    size.peak_bytes = size.input_bytes + size.result_bytes + size.temporary_bytes + size.prepacked_bytes;
    return size;
}
