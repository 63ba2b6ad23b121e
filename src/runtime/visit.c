/* visit.c — the host's own work on a device's memory, between its commands.

   A queue of the device for visits alone maps the memory and unmaps it behind a gate, both queued at once; the porter (porter.c) waits for
   the first, works, and opens the gate.  So nobody waits who does not need the result: kernels go on in the compute queue, and the host
   goes on with the next step.  A device whose driver does not stand user events or events between queues is waited for instead.

   That queue is out of order where the device has such queues, and events say what waits for what: one visit for the one before it.  In order each map
   would only begin when the one before it was over, and some drivers do one command at a time, kernels of the compute queue in turn: of a visit
   to twenty tensors the last was mapped twenty kernels later. */
#include "runtime/runtime_internal.h"
#include <string.h>

bool clef__device_has_gates(clef__device *device) {
    if (!device->gates_asked) {
        device->has_gates =
            clef__queues_meet(device) && clef_device_user_events(device->ctx, device->info.index, true) == CLEF_VERDICT_YES;
        device->gates_asked = true;
    }
    return device->has_gates;
}

/* One visit: the errand, then what it is about, then where its spans are mapped. */
typedef struct visit {
    clef__errand errand;
    clef__device *device;
    clef_status (*work)(const void *what, const uint64_t *number, void *const *memory, char *line);
    uint64_t number[2];
    clef__reached *reached; /* where visits are timed */
    const char *label;
    void *what, **memory; /* memory: where each span is mapped, */
    int n;
    cl_event mapped[]; /* and when it is */
} visit;

static visit *new_visit(clef__device *device, const clef__host_task *from) {
    size_t n = (size_t)from->n_spans;
    visit *v = clef__alloc(sizeof *v + n * (sizeof *v->mapped + sizeof *v->memory) + from->what_bytes);
    if (!v) return NULL;
    *v = (visit){.device = device,
                 .work = from->work,
                 .number = {from->number[0], from->number[1]},
                 .label = from->label,
                 .n = from->n_spans};
    v->memory = (void **)(v->mapped + n);
    v->what = v->memory + n;
    if (from->what_bytes) memcpy(v->what, from->what, from->what_bytes);
    return v;
}

/* For all maps, or until waiting for one fails: that takes long, and then nothing can be done with the others either. */
static cl_int wait_for_maps(const visit *v) {
    cl_int code = CL_SUCCESS;
    for (int i = 0; i < v->n && code == CL_SUCCESS; i++) code = clef__wait_for_event(v->mapped[i], NULL);
    return code;
}

static void release_all(cl_event *event, int n) {
    for (int i = 0; i < n; i++)
        if (event[i]) clReleaseEvent(event[i]);
}

static clef_status work(const visit *v, bool there, char *line) {
    double begin = clef__now();
    line[0] = 0;
    clef_status status = v->work(v->what, v->number, there ? v->memory : NULL, line);
    clef__trace_visit(v->device->ctx, v->label, begin, clef__now());
    v->device->ctx->visit_ready = 0; /* what hosts do together is no visit */
    return status;
}

/* In the porter's thread. */
static void run(clef__errand *errand) {
    visit *v = (visit *)errand;
    char line[CLEF__VISIT_LINE];
    cl_int code = wait_for_maps(v);
    release_all(v->mapped, v->n);
    v->device->ctx->visit_ready = clef__reached_take(v->reached);
    clef_status status = work(v, code == CL_SUCCESS, line);
    if (code != CL_SUCCESS) clef__fail_later_cl(v->device, code, errand->cleared, v->label);
    else if (status != CLEF_OK) clef__fail_later(v->device->ctx, status, errand->cleared, line);
}

/* ---- mapping ---- */

/* All behind the same events.  On failure v->n are mapped, and are to be unmapped again. */
static cl_int map_all(cl_command_queue queue, visit *v, const clef__host_span *span, const cl_event *after, int n) {
    cl_int code = CL_SUCCESS;
    for (int i = 0, spans = v->n; i < spans && code == CL_SUCCESS; i++) {
        v->mapped[i] = NULL;
        v->memory[i] = clEnqueueMapBuffer(queue, span[i].at.buffer->memory, CL_FALSE,
                                          span[i].writes ? CL_MAP_WRITE_INVALIDATE_REGION : CL_MAP_READ, span[i].at.offset,
                                          span[i].bytes, (cl_uint)n, n ? after : NULL, &v->mapped[i], &code);
        v->n = code == CL_SUCCESS ? i + 1 : i;
    }
    return code;
}

/* Each behind its map and the gate, unless that is NULL; unmapped: their events, NULL: nobody needs them. */
static cl_int unmap_all(cl_command_queue queue, const visit *v, const clef__host_span *span, cl_event gate, cl_event *unmapped) {
    cl_int code = CL_SUCCESS;
    for (int i = 0; i < v->n && code == CL_SUCCESS; i++) {
        cl_event after[] = {gate, v->mapped[i]};
        code = clEnqueueUnmapMemObject(queue, span[i].at.buffer->memory, v->memory[i], gate ? 2 : 0, gate ? after : NULL,
                                       unmapped ? &unmapped[i] : NULL);
    }
    return code;
}

static clef_status failed(clef__device *device, cl_int code, const char *label) {
    return clef__fail_cl(device, code, "%s: the device's memory could not be mapped", label);
}

/* ---- beside the kernels ---- */

static cl_command_queue queue_of(clef__device *device, cl_int *code) {
    cl_command_queue_properties can = 0;
    *code = CL_SUCCESS;
    if (device->visits) return device->visits;
    *code = clGetDeviceInfo(device->id, CL_DEVICE_QUEUE_PROPERTIES, sizeof can, &can, NULL);
    if (*code != CL_SUCCESS) return NULL;
    can &= CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
    return device->visits = clef__queue_new(device, can, code);
}

/* What a visit waits for, and how it ends. */
typedef struct ends {
    cl_event *after, *unmapped; /* owned; the first are only borrowed, the second have a reference each */
    int n_after;
} ends;

static bool open_ends(ends *e, const clef__device *device, const visit *v, clef__event *const *after, int n) {
    e->n_after = n + device->n_unmapped;
    e->after = clef__alloc((size_t)(e->n_after + 1) * sizeof *e->after);
    e->unmapped = clef__calloc((size_t)v->n + 1, sizeof *e->unmapped);
    for (int i = 0; e->after && i < n; i++) e->after[i] = (cl_event)after[i];
    for (int i = 0; e->after && i < device->n_unmapped; i++) e->after[n + i] = device->unmapped[i];
    return e->after && e->unmapped;
}

void clef__visits_forget(clef__device *device) {
    if (clef__alive(device)) release_all(device->unmapped, device->n_unmapped);
    clef__free(device->unmapped);
    device->unmapped = NULL;
    device->n_unmapped = 0;
}

/* The next visit waits for these. */
static void leave_behind(clef__device *device, ends *e, int n) {
    clef__visits_forget(device);
    device->unmapped = e->unmapped;
    device->n_unmapped = n;
    e->unmapped = NULL;
}

static void close_ends(ends *e, int n) {
    if (e->unmapped) release_all(e->unmapped, n);
    clef__free(e->unmapped);
    clef__free(e->after);
}

/* Both ends.  *mapped: something was, and is unmapped when the gate opens. */
static cl_int queue_both(cl_command_queue queue, visit *v, const clef__host_span *span, const ends *e, cl_event gate, bool *mapped,
                         cl_event *done) {
    cl_int code = map_all(queue, v, span, e->after, e->n_after);
    cl_int unmapped = unmap_all(queue, v, span, gate, e->unmapped);
    *mapped = v->n > 0;
    if (code == CL_SUCCESS) code = unmapped;
    if (code == CL_SUCCESS) code = clEnqueueMarkerWithWaitList(queue, (cl_uint)v->n, e->unmapped, done);
    return code == CL_SUCCESS ? clFlush(queue) : code;
}

/* The errand is sent between the ends.  On failure the host waits for what was queued: nothing of it is left behind. */
static clef_status visit_beside(clef__device *device, visit *v, const clef__host_span *span, clef__event *const *after, int n,
                                cl_event *done) {
    const char *label = v->label;
    ends e = {0};
    int spans = v->n;
    bool mapped = false;
    cl_int code = CL_OUT_OF_HOST_MEMORY;
    cl_command_queue queue = open_ends(&e, device, v, after, n) ? queue_of(device, &code) : NULL;
    cl_event gate = queue ? clCreateUserEvent(device->context, &code) : NULL;
    if (gate) code = queue_both(queue, v, span, &e, gate, &mapped, done);
    if (code == CL_SUCCESS && atomic_load(&device->ctx->times_visits)) v->reached = clef__reached_new(after, n);
    v->errand.run = run;
    v->errand.gate = gate;
    if (code == CL_SUCCESS && clef__porter_send(device->ctx, &v->errand)) {
        leave_behind(device, &e, spans);
        close_ends(&e, spans);
        return CLEF_OK;
    }
    if (gate) clSetUserEventStatus(gate, CL_COMPLETE);
    if (queue) clef__queue_wait(queue);
    if (gate) clReleaseEvent(gate);
    if (mapped) release_all(v->mapped, v->n);
    close_ends(&e, spans);
    clef__reached_take(v->reached);
    clef__free(v);
    return failed(device, code != CL_SUCCESS ? code : CL_OUT_OF_HOST_MEMORY, label);
}

/* ---- or the caller waits ---- */

static clef_status visit_here(clef__device *device, visit *v, const clef__host_span *span) {
    char line[CLEF__VISIT_LINE];
    clef__porter_settle(device->ctx); /* of another device: visits are made in their order */
    cl_int code = map_all(clef__queue(device), v, span, NULL, 0);
    for (int i = 0; i < v->n; i++) {
        cl_int waited = clef__event_wait(device, v->mapped[i]);
        if (code == CL_SUCCESS) code = waited;
    }
    release_all(v->mapped, v->n);
    device->ctx->visit_ready = -1;
    clef_status status = code == CL_SUCCESS ? work(v, true, line) : failed(device, code, v->label);
    if (code == CL_SUCCESS && status != CLEF_OK) clef__fail(device->ctx, status, "%s", line);
    cl_int unmapped = unmap_all(clef__queue(device), v, span, NULL, NULL);
    if (status == CLEF_OK && unmapped != CL_SUCCESS) status = failed(device, unmapped, v->label);
    clef__free(v);
    return status;
}

/* ---- the whole ---- */

void clef__time_visits(clef_context *ctx, bool on) { atomic_store(&ctx->times_visits, on); }

double clef__visit_ready(const clef_context *ctx) { return ctx ? ctx->visit_ready : 0; }

clef_status clef__host_visit(clef__device *device, const clef__host_task *visit_asked, clef__event *const *after, int n,
                             clef__event **done) {
    clef_status status = clef__ready(device);
    *done = NULL;
    if (status != CLEF_OK) return status;
    visit *v = new_visit(device, visit_asked);
    if (!v) return clef__fail(device->ctx, CLEF_MEMORY, "%s: no host memory", visit_asked->label);
    if (!clef__device_has_gates(device)) return visit_here(device, v, visit_asked->span);
    if (!clef__porter_hire(device->ctx)) { /* what is planned to run beside it waits for an event */
        clef__free(v);
        return clef__fail(device->ctx, CLEF_MEMORY, "%s: the thread for it did not start", visit_asked->label);
    }
    return visit_beside(device, v, visit_asked->span, after, n, (cl_event *)done);
}

clef_status clef__visits_settle(clef_context *ctx) {
    for (int d = 0; d < ctx->n_devices; d++) clef__flush(ctx->device[d]);
    clef__porter_settle(ctx);
    return clef__porter_status(ctx);
}
