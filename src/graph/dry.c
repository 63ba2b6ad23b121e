/* dry.c — dry runs: steps that are planned and measured, and leave no trace. */
#include "graph/graph_internal.h"

static void remember(clef__graph *graph) {
    for (clef__tensor *t = graph->kept; t; t = t->next) {
        t->before = t->out;
        clef__output_retain(t->out);
        t->out->remembered++;
    }
}

/* Handles that were kept since go on as they are: what they stand for is pending. */
static void put_back(clef__graph *graph) {
    for (clef__tensor *t = graph->kept; t; t = t->next) {
        if (t->before) clef__tensor_set(t, t->before);
        clef__forget_before(t);
    }
}

bool clef_set_dry_run(clef_context *ctx, bool on) {
    clef__graph *graph = ctx ? clef__graph_of(ctx) : NULL;
    bool was = graph && graph->dry;
    if (!graph || was == on) return was;
    graph->dry = on;
    graph->largest = (clef_plan_size){0};
    if (on) {
        graph->random_before = clef_random_get(ctx);
        remember(graph);
    } else {
        put_back(graph);
        clef_random_set(ctx, graph->random_before);
    }
    return was;
}

void clef__note_plan(clef_context *ctx, const clef_plan_size *size) {
    clef__graph *graph = clef__graph_of(ctx);
    if (graph && size->peak_bytes >= graph->largest.peak_bytes) graph->largest = *size;
}

clef_status clef_plan_memory(clef_context *ctx, clef_plan_size *size) {
    if (!ctx) return CLEF_INVALID;
    if (!size) return clef__fail(ctx, CLEF_INVALID, "plan_memory: size is NULL; give a clef_plan_size");
    *size = (clef_plan_size){0};
    if (!clef__dry_run(ctx)) return clef__fail(ctx, CLEF_STATE, "plan_memory: no dry run is on; see clef_set_dry_run");
    *size = clef__graph_of(ctx)->largest;
    return CLEF_OK;
}
