/* issue.c — queues a plan's launches, each on its device and behind what it waits for in other queues.

   The host waits for nothing here but those copies that it must make itself (CLEF__LAUNCH_COPY of devices that are not joined), and
   visits (clef__routine.visit) on a device that has no gates. */
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
            status = clef__queue_after(clef__device_at(s->ctx, edge->device), *event_of(plan, edge->before));
    }
    return status;
}

static void release_events(const clef__plan *plan) {
    for (int i = 0; plan->event && i < plan->n_launches + CLEF__MAX_DEVICES; i++) {
        clef__event_release(plan->event[i]);
        plan->event[i] = NULL;
    }
}

/* Those that a failure left between their halves. */
static void drop_passages(const issue *s) {
    for (int v = 0; s->plan->event && v < s->plan->n_values; v++) {
        clef__value *value = &s->plan->value[v];
        clef__passage_drop(clef__device_at(s->ctx, value->device), value->passage);
        value->passage = NULL;
    }
}

/* One on which it does nothing may be lost. */
static bool works_on(const clef__plan *plan, int device) {
    for (int i = 0; i < plan->n_launches; i++)
        if (plan->launch[i].device == device) return true;
    return false;
}

/* Every device waits for the copies that it has a part in; after a failure, here too, each for all there are. */
static clef_status end(issue *s, clef_status status) {
    const clef__plan *plan = s->plan;
    for (int d = 0; d < clef__context_devices(s->ctx); d++) {
        if (status == CLEF_OK) status = wait_for_edges(s, plan->n_launches + d);
        if (status == CLEF_OK && works_on(plan, d)) status = clef__flush(clef__device_at(s->ctx, d));
    }
    for (int d = 0; status != CLEF_OK && plan->event && d < clef__context_devices(s->ctx); d++)
        clef__settle(clef__device_at(s->ctx, d));
    if (status != CLEF_OK) drop_passages(s);
    release_events(plan);
    return status;
}

/* ---- launches ---- */

static clef__span span_of(const issue *s, const clef__arg *arg) {
    int64_t offset;
    clef__buffer *buffer = clef__place_of(s->plan, s->g, arg, &offset);
    return (clef__span){buffer, (size_t)offset * clef_dtype_size(arg->dtype)};
}

static clef_status copy_launch(const issue *s, const clef__launch *launch) {
    if (launch->bytes == 0) return CLEF_OK;
    clef__span to = span_of(s, &launch->arg[0]), from = span_of(s, &launch->arg[1]);
    return clef__buffer_copy(to.buffer, to.offset, from.buffer, from.offset, launch->bytes);
}

static clef_status fetch(issue *s, const clef__launch *launch, clef__event **after, int n, clef__event **done) {
    clef__value *on_the_way = &s->plan->value[launch->arg[0].value];
    clef__span from = span_of(s, &launch->arg[1]);
    on_the_way->passage = clef__fetch_beside(&from, clef__device_at(s->ctx, on_the_way->device), launch->bytes, after, n, done);
    return on_the_way->passage ? CLEF_OK : clef_error_status(s->ctx);
}

static clef_status store(issue *s, const clef__launch *launch, clef__event **after, int n, clef__event **done) {
    clef__value *on_the_way = &s->plan->value[launch->arg[1].value];
    clef__span to = span_of(s, &launch->arg[0]);
    clef__passage *passage = on_the_way->passage;
    on_the_way->passage = NULL;
    return clef__store_beside(&to, passage, launch->bytes, after, n, done);
}

/* The host's own work: the bytes that the launch touches, and the numbers that change. */
static clef_status visit(issue *s, const clef__launch *launch, clef__event **after, int n, clef__event **done) {
    clef__host_span span[CLEF__VISIT_SPANS];
    clef__host_task v = {.work = launch->routine->visit,
                         .what = launch->what,
                         .what_bytes = launch->what_bytes,
                         .span = span,
                         .label = launch->name};
    for (int a = 0; a < launch->n_args; a++) {
        const clef__arg *arg = &launch->arg[a];
        if (arg->kind == CLEF__ARG_DYNAMIC) v.number[arg->number] = s->g->captured[arg->captured].node->dynamic.u[arg->number];
        if (arg->kind != CLEF__ARG_TENSOR) continue;
        span[v.n_spans++] = (clef__host_span){span_of(s, arg), (size_t)arg->bytes, arg->writes};
    }
    return clef__host_visit(clef__device_at(s->ctx, launch->device), &v, after, n, done);
}

/* A copy in a second queue waits there for what its edges name. */
static clef_status launch_beside(issue *s, int i) {
    const clef__launch *launch = &s->plan->launch[i];
    clef__event *after[CLEF__QUEUES], **done = event_of(s->plan, i);
    int n = 0;
    for (; s->edge < s->plan->n_edges && s->plan->edge[s->edge].after == i; s->edge++)
        after[n++] = *event_of(s->plan, s->plan->edge[s->edge].before);
    if (clef__is_visit(launch)) return visit(s, launch, after, n, done);
    if (launch->bytes == 0) return CLEF_OK;
    if (launch->kind == CLEF__LAUNCH_FETCH) return fetch(s, launch, after, n, done);
    if (launch->kind == CLEF__LAUNCH_STORE) return store(s, launch, after, n, done);
    clef__span to = span_of(s, &launch->arg[0]), from = span_of(s, &launch->arg[1]);
    return clef__copy_beside(&to, &from, launch->bytes, after, n, done);
}

static clef_status routine_launch(issue *s, const clef__launch *launch) {
    clef__event *done;
    if (launch->routine->visit) return visit(s, launch, NULL, 0, &done);
    clef__buffer *x[CLEF__ROUTINE_OPERANDS];
    int64_t offset[CLEF__ROUTINE_OPERANDS];
    for (int i = 0; i < CLEF__ROUTINE_OPERANDS; i++) x[i] = clef__place_of(s->plan, s->g, &launch->arg[i], &offset[i]);
    return launch->routine->queue(clef__device_at(s->ctx, launch->device), launch->what, x, offset, launch->label);
}

static clef_status launch_in_queue(issue *s, const clef__launch *launch) {
    switch (launch->kind) {
    case CLEF__LAUNCH_COPY: return copy_launch(s, launch);
    case CLEF__LAUNCH_ROUTINE: return routine_launch(s, launch);
    default: return clef__kernel_launch(launch->kernel, launch->global, launch->local, launch->label);
    }
}

static clef_status launch_one(issue *s, int i) {
    const clef__launch *launch = &s->plan->launch[i];
    if (launch->beside) return launch_beside(s, i);
    clef_status status = wait_for_edges(s, i);
    if (status == CLEF_OK && !launch->idle) status = launch_in_queue(s, launch);
    if (status == CLEF_OK && launch->awaited)
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
    bool news = plan->runs == 0 && has_new_kernel(plan);
    *launched = 0;
    clef_status status = mark_beginning(&s);
    bool chains = status == CLEF_OK && clef__plan_chains(plan, ctx);
    for (int i = 0; status == CLEF_OK && i < plan->n_launches;) {
        int next = chains ? clef__chain_from(plan, i, &status) : i;
        bool chained = next > i;
        if (!chained && status == CLEF_OK) status = launch_one(&s, next++);
        if (status == CLEF_OK && (chained || !plan->launch[i].idle))
            clef__ahead_count(clef__device_at(ctx, plan->launch[i].device));
        if (status == CLEF_OK) i = next;
        if (news) clef__report_compile(ctx, i, plan->n_launches);
        *launched = i;
    }
    status = end(&s, status);
    plan->runs += status == CLEF_OK;
    return status;
}
