/* dry.c — dry runs: steps that are planned and measured, and leave no trace; and values that tensors come back to. */
#include "graph/graph_internal.h"
#include "graph/core.h"

#include <string.h>

static void remember(clef__tensor *t) {
    t->before = t->out;
    clef__output_retain(t->out);
    t->out->remembered++;
}

void clef__remember(clef_tensor *handle) {
    clef__tensor *t = clef__get(handle);
    if (t && !t->before) remember(t);
}

void clef__go_back(clef_tensor *handle) {
    clef__tensor *t = clef__get(handle);
    if (t && !clef__dry_run(t->ctx) && !clef__computed(t->out) && clef__computed(t->before)) clef__tensor_set(t, t->before);
}

void clef__forget(clef_tensor *handle) {
    clef__tensor *t = clef__get(handle);
    if (t && !clef__dry_run(t->ctx)) clef__forget_before(t);
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
    memset(graph->largest_on, 0, sizeof graph->largest_on);
    if (on) {
        graph->random_before = clef_random_get(ctx);
        for (clef__tensor *t = graph->kept; t; t = t->next) remember(t);
    } else {
        put_back(graph);
        clef_random_set(ctx, graph->random_before);
    }
    return was;
}

static void add(clef_plan_size *to, const clef_plan_size *more) {
    to->peak_bytes += more->peak_bytes;
    to->input_bytes += more->input_bytes;
    to->result_bytes += more->result_bytes;
    to->temporary_bytes += more->temporary_bytes;
    to->least_temporary_bytes += more->least_temporary_bytes;
    to->prepacked_bytes += more->prepacked_bytes;
    to->written_bytes += more->written_bytes;
    to->launches += more->launches;
    to->flops += more->flops;
    to->bytes += more->bytes;
    to->real_flops += more->real_flops;
}

void clef__note_plan(clef_context *ctx, const clef_plan_size *size) {
    clef__graph *graph = clef__graph_of(ctx);
    clef_plan_size all = {0};
    for (int d = 0; graph && d < clef__context_devices(ctx); d++) {
        add(&all, &size[d]);
        if (size[d].peak_bytes >= graph->largest_on[d].peak_bytes) graph->largest_on[d] = size[d];
    }
    if (graph && all.peak_bytes >= graph->largest.peak_bytes) graph->largest = all;
}

void clef_on_planned_launch(clef_context *ctx, clef_planned_launch_fn fn, void *user) {
    clef__graph *graph = ctx ? clef__graph_of(ctx) : NULL;
    if (!graph) return;
    graph->on_launch = fn;
    graph->on_launch_user = user;
}

void clef__note_launch(clef_context *ctx, const clef_planned_launch *launch) {
    const clef__graph *graph = clef__graph_of(ctx);
    if (graph && graph->on_launch) graph->on_launch(graph->on_launch_user, launch);
}

/* The state of a dry run; NULL, with *size all zero and a line in op's name, if there is none. */
static const clef__graph *measured(clef_context *ctx, const char *op, clef_plan_size *size) {
    if (!size) return clef__fail(ctx, CLEF_INVALID, "%s: size is NULL; give a clef_plan_size", op), NULL;
    *size = (clef_plan_size){0};
    if (!clef__dry_run(ctx)) return clef__fail(ctx, CLEF_STATE, "%s: no dry run is on; see clef_set_dry_run", op), NULL;
    return clef__graph_of(ctx);
}

clef_status clef_plan_memory(clef_context *ctx, clef_plan_size *size) {
    const clef__graph *graph = ctx ? measured(ctx, "plan_memory", size) : NULL;
    if (!graph) return ctx && size ? CLEF_STATE : CLEF_INVALID;
    *size = graph->largest;
    return CLEF_OK;
}

clef_status clef_plan_memory_of(clef_context *ctx, int device, clef_plan_size *size) {
    const clef__graph *graph = ctx ? measured(ctx, "plan_memory_of", size) : NULL;
    if (!graph) return ctx && size ? CLEF_STATE : CLEF_INVALID;
    if (!clef__check_device(ctx, "plan_memory_of", device)) return CLEF_INVALID;
    *size = graph->largest_on[device];
    return CLEF_OK;
}
