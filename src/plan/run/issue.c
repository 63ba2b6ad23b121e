/* issue.c — queues a plan's launches, each on its device and behind what it waits for in other queues.

   The host waits for nothing here but copies that go through it (edges.c says which do not). */
#include "plan/run/run.h"

/* The replay that is queued. */
typedef struct issue {
    clef__plan *plan;
    clef_context *ctx;
    const clef__graph_view *g;
    int edge; /* the first that no launch has waited for yet */
} issue;

/* ---- events ---- */

/* Of what edges wait for: launches, and behind them the devices' queues as the plan began. */
static clef__event **event_of(const clef__plan *plan, int before) {
    return &plan->event[before >= 0 ? before : plan->n_launches - 1 - before];
}

static clef_status mark_beginning(issue *s) {
    clef_status status = CLEF_OK;
    for (int e = 0; status == CLEF_OK && e < s->plan->n_edges; e++) {
        int before = s->plan->edge[e].before;
        if (before >= 0 || *event_of(s->plan, before)) continue;
        status = clef__queue_mark(clef__device_at(s->ctx, -1 - before), event_of(s->plan, before));
    }
    return status;
}

/* Before launch `after`, or the end of a device's part, the compute queues wait that must. */
static clef_status wait_for_edges(issue *s, int after) {
    clef_status status = CLEF_OK;
    for (const clef__plan *plan = s->plan; s->edge < plan->n_edges && plan->edge[s->edge].after == after; s->edge++) {
        const clef__edge *edge = &plan->edge[s->edge];
        if (status == CLEF_OK && edge->device >= 0)
            status = clef__queue_after(clef__device_at(s->ctx, edge->device), event_of(plan, edge->before), 1);
    }
    return status;
}

static void release_events(const clef__plan *plan) {
    for (int i = 0; plan->event && i < plan->n_launches + CLEF__MAX_DEVICES; i++) {
        clef__event_release(plan->event[i]);
        plan->event[i] = NULL;
    }
}

/* Every device waits for the copies that it has a part in; after a failure each for all there are. */
static clef_status end(issue *s, clef_status status) {
    const clef__plan *plan = s->plan;
    for (int d = 0; d < clef__context_devices(s->ctx); d++) {
        clef__device *device = clef__device_at(s->ctx, d);
        if (status == CLEF_OK) status = wait_for_edges(s, plan->n_launches + d);
        else if (plan->event) clef__settle(device);
        if (status == CLEF_OK) status = clef__flush(device);
    }
    release_events(plan);
    return status;
}

/* ---- launches ---- */

static clef_status copy_beside(issue *s, int i, const clef__span *to, const clef__span *from, size_t bytes) {
    clef__event *after[2 * CLEF__MAX_DEVICES];
    int n = 0;
    for (; s->edge < s->plan->n_edges && s->plan->edge[s->edge].after == i; s->edge++)
        after[n++] = *event_of(s->plan, s->plan->edge[s->edge].before);
    return clef__copy_beside(to, from, bytes, after, n, event_of(s->plan, i));
}

static clef_status copy_launch(issue *s, int i) {
    const clef__launch *launch = &s->plan->launch[i];
    size_t size = clef_dtype_size(launch->arg[0].dtype), bytes = s->plan->value[launch->arg[0].value].bytes;
    if (bytes == 0) return CLEF_OK;
    int64_t to_offset, from_offset;
    clef__span to = {clef__place_of(s->plan, s->g, &launch->arg[0], &to_offset), 0};
    clef__span from = {clef__place_of(s->plan, s->g, &launch->arg[1], &from_offset), 0};
    to.offset = (size_t)to_offset * size;
    from.offset = (size_t)from_offset * size;
    return clef__runs_beside(s->plan, s->ctx, launch) ? copy_beside(s, i, &to, &from, bytes)
                                                      : clef__buffer_copy(to.buffer, to.offset, from.buffer, from.offset, bytes);
}

static clef_status routine_launch(const issue *s, const clef__launch *launch) {
    clef__buffer *x[CLEF__ROUTINE_OPERANDS];
    int64_t offset[CLEF__ROUTINE_OPERANDS];
    for (int i = 0; i < CLEF__ROUTINE_OPERANDS; i++) x[i] = clef__place_of(s->plan, s->g, &launch->arg[i], &offset[i]);
    return launch->routine->queue(clef__device_at(s->ctx, launch->device), launch->what, x, offset, launch->label);
}

static clef_status launch_kind(issue *s, int i) {
    const clef__launch *launch = &s->plan->launch[i];
    switch (launch->kind) {
    case CLEF__LAUNCH_COPY: return copy_launch(s, i);
    case CLEF__LAUNCH_ROUTINE: return routine_launch(s, launch);
    default: return clef__kernel_launch(launch->kernel, launch->global, launch->local, launch->label);
    }
}

static clef_status launch_one(issue *s, int i) {
    const clef__launch *launch = &s->plan->launch[i];
    bool beside = clef__runs_beside(s->plan, s->ctx, launch);
    clef_status status = beside ? CLEF_OK : wait_for_edges(s, i); /* a copy beside takes them along */
    if (status == CLEF_OK && !launch->idle) status = launch_kind(s, i);
    if (status == CLEF_OK && launch->awaited && !beside)
        status = clef__queue_mark(clef__device_at(s->ctx, launch->device), event_of(s->plan, i));
    return status;
}

static bool has_new_kernel(const clef__plan *plan) {
    for (int i = 0; i < plan->n_launches; i++)
        if (plan->launch[i].kernel && clef__kernel_is_new(plan->launch[i].kernel)) return true;
    return false;
}

clef_status clef__plan_issue(clef__plan *plan, clef_context *ctx, const clef__graph_view *g, int *launched) {
    issue s = {.plan = plan, .ctx = ctx, .g = g};
    bool news = !plan->ran && has_new_kernel(plan);
    *launched = 0;
    clef_status status = mark_beginning(&s);
    for (int i = 0; status == CLEF_OK && i < plan->n_launches; i++) {
        status = launch_one(&s, i);
        if (news) clef__report_compile(ctx, i + 1, plan->n_launches);
        *launched += status == CLEF_OK;
    }
    status = end(&s, status);
    plan->ran |= status == CLEF_OK;
    return status;
}
