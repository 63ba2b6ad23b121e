/* eval.c — what triggers work: collects the pending graph, finds or builds its plan, runs it. */
#include "plan/run/run.h"

#include <stdio.h>
#include <string.h>

/* ---- the plan cache ---- */

/* Of plans that are kept; the one that ran last stays whatever it takes. */
enum { MAX_PLANS = 128, KERNEL_BYTES = 1024 /* about what a driver has for one */ };
#define MAX_HOST_BYTES ((size_t)512 << 20)

static void drop_plan(clef__plans *plans, clef__plan **at) {
    clef__plan *plan = *at;
    *at = plan->next;
    plans->n--;
    plans->host_bytes -= plan->host_bytes;
    clef__plan_free(plan);
}

/* The newest first, as in clef__plan_free. */
static void free_plans(clef__plans *plans) {
    while (plans->first) {
        clef__plan **newest = &plans->first;
        for (clef__plan **at = newest; *at; at = &(*at)->next)
            if ((*at)->made > (*newest)->made) newest = at;
        drop_plan(plans, newest);
    }
    plans->weight_bytes = 0;
}

static void close_plans(clef_context *ctx, void *state) {
    clef__plans *plans = state;
    clef__derived_forget(ctx, plans);
    free_plans(plans);
    clef__families_free(plans->selection.family);
    for (int d = 0; d < CLEF__MAX_DEVICES; d++) clef__buffer_release(plans->arena[d].buffer);
    clef__graph_view_free(&plans->view);
    clef__free(plans);
}

clef__plans *clef__plans_of(clef_context *ctx) {
    bool made = !clef__room_state(ctx, CLEF__ROOM_PLAN);
    clef__plans *plans = clef__make_room_state(ctx, CLEF__ROOM_PLAN, sizeof(clef__plans), close_plans);
    const char *rows = made && plans ? clef__env("CLEF_ROWS") : NULL;
    if (rows) snprintf(plans->selection.preferred, sizeof plans->selection.preferred, "%s", rows);
    return plans;
}

void clef__plans_forget(clef_context *ctx) {
    clef__plans *plans = clef__room_state(ctx, CLEF__ROOM_PLAN);
    if (!plans) return;
    clef__derived_forget(ctx, plans);
    free_plans(plans);
}

/* The plan of this key, moved to the front. */
static clef__plan *find_plan(clef__plans *plans, const clef__graph_view *g) {
    for (clef__plan **at = &plans->first; *at; at = &(*at)->next) {
        clef__plan *plan = *at;
        if (plan->hash != g->hash || plan->key_words != g->key_words ||
            memcmp(plan->key, g->key, (size_t)g->key_words * sizeof *g->key) != 0)
            continue;
        *at = plan->next;
        plan->next = plans->first;
        plans->first = plan;
        return plan;
    }
    return NULL;
}

static size_t host_bytes(const clef__plan *plan) {
    size_t bytes = (size_t)plan->n_launches * (sizeof *plan->launch + KERNEL_BYTES) + (size_t)plan->n_values * sizeof *plan->value +
                   (size_t)plan->key_words * sizeof *plan->key;
    for (int i = 0; i < plan->n_launches; i++)
        bytes += (size_t)plan->launch[i].n_args * (sizeof *plan->launch[i].arg + sizeof *plan->bind);
    return bytes;
}

static void remember_plan(clef__plans *plans, clef__plan *plan) {
    plan->next = plans->first;
    plan->made = ++plans->made;
    plans->first = plan;
    if (plan->weight_bytes > plans->weight_bytes) plans->weight_bytes = plan->weight_bytes;
    plans->n++;
    plans->host_bytes += plan->host_bytes = host_bytes(plan);
    while (plans->n > 1 && (plans->n > MAX_PLANS || plans->host_bytes > MAX_HOST_BYTES)) {
        clef__plan **at = &plans->first;
        while ((*at)->next) at = &(*at)->next;
        drop_plan(plans, at);
    }
}

/* A new plan, ready to run and in the cache; NULL with the error set. */
static clef__plan *new_plan(clef_context *ctx, clef__plans *plans, clef__graph_view *g) {
    clef__plan *plan = clef__plan_build(ctx, g);
    if (!plan) return NULL;
    if (clef__plan_ready(ctx, plan) != CLEF_OK || clef__derived_find(ctx, plan) != CLEF_OK) {
        clef__plan_free(plan);
        return NULL;
    }
    clef__counters(ctx)->plans++;
    remember_plan(plans, plan);
    return plan;
}

static clef_status run_graph(clef_context *ctx, clef__plans *plans, clef__graph_view *g) {
    clef__plan *plan = find_plan(plans, g);
    if (plan) clef__counters(ctx)->replays++;
    else plan = new_plan(ctx, plans, g);
    return plan ? clef__plan_run(plan, ctx, plans->arena, g) : clef_error_status(ctx);
}

/* For a device that is not here: results get memory, and no numbers. */
static clef_status plan_graph(clef_context *ctx, clef__graph_view *g) {
    clef__plan *plan = clef__plan_build(ctx, g);
    if (!plan) return clef_error_status(ctx);
    clef_status status = clef__plan_skip(plan, ctx, g);
    clef__plan_free(plan);
    return status;
}

static clef_status measure_graph(clef_context *ctx, clef__graph_view *g) {
    clef__plan *plan = clef__plan_build(ctx, g);
    if (!plan) return clef_error_status(ctx);
    clef_status status = clef__derived_find(ctx, plan);
    clef_plan_size size[CLEF__MAX_DEVICES];
    for (int d = 0; d < clef__context_devices(ctx); d++) size[d] = clef__plan_size(plan, g, d);
    if (status == CLEF_OK) clef__note_plan(ctx, size);
    if (status == CLEF_OK) clef__plan_tell(ctx, plan);
    clef__plan_free(plan);
    return status;
}

static void begin_view(clef__graph_view *g) {
    g->n = g->key_words = 0;
    g->hash = 0;
}

/* After a failure in the middle: finds out which of them can no longer be computed, as others were updated in place. */
static void find_lost(clef_context *ctx, clef__output *const *roots, int n, clef__graph_view *g) {
    for (int i = 0; i < n; i++) {
        begin_view(g);
        clef__collect(ctx, &roots[i], 1, g);
    }
}

clef_status clef__compute(clef_context *ctx, clef__output *const *roots, int n) {
    if (!clef__usable(ctx)) return clef_error_status(ctx);
    /* What follows would plan, build and fail again in each step of a loop that looks at no error, and with values that are lost. */
    if (clef__broken(ctx)) return clef__broken(ctx);
    clef__plans *plans = clef__plans_of(ctx);
    if (!plans) return clef__fail(ctx, CLEF_MEMORY, "eval: no host memory");
    clef__graph_view *g = &plans->view;
    begin_view(g);
    clef_status status = clef__collect(ctx, roots, n, g);
    if (status == CLEF_OK && g->n)
        status = clef__dry_run(ctx) ? measure_graph(ctx, g) : clef__plan_for(ctx) ? plan_graph(ctx, g) : run_graph(ctx, plans, g);
    if (status != CLEF_OK) find_lost(ctx, roots, n, g);
    return status;
}

/* ---- what programs call ---- */

static clef_status compute_one(clef_tensor *t) {
    clef__output *out = clef__output_of(t);
    return clef__compute(out->node->ctx, &out, 1);
}

clef_status clef_eval(clef_tensor *t) { return CLEF__GIVEN("eval", "t", t) ? compute_one(t) : CLEF_INVALID; }

clef_status clef_eval_all(clef_tensor *const *t, int n) {
    if (n == 0) return CLEF_OK;
    if (!clef__given_array(NULL, "eval", "t", t, n)) return CLEF_INVALID;
    clef_context *ctx = clef_tensor_context(t[0]);
    for (int i = 0; i < n; i++)
        if (clef_tensor_context(t[i]) != ctx)
            return clef__fail(ctx, CLEF_INVALID, "eval: tensors 0 and %d belong to different contexts", i);
    clef__output **roots = clef__alloc((size_t)n * sizeof *roots);
    if (!roots) return clef__fail(ctx, CLEF_MEMORY, "eval: no host memory");
    for (int i = 0; i < n; i++) roots[i] = clef__output_of(t[i]);
    clef_status status = clef__compute(ctx, roots, n);
    clef__free(roots);
    return status;
}
