/* visit.c — the host's own work on a device's memory, between its commands.

   The device's second queue maps the memory and unmaps it behind a gate, both queued at once; the porter (porter.c) waits for the first,
   works, and opens the gate.  So nobody waits who does not need the result: kernels go on in the compute queue, and the host goes on with
   the next step.  A device whose driver does not stand user events or events between queues is waited for instead. */
#include "runtime/probe.h"
#include <string.h>

bool clef__device_has_gates(clef__device *device) {
    if (!device->gates_asked) {
        const clef__found found = {.id = device->id, .info = device->info, .divided = device->divided};
        device->has_gates = clef__probe_events(device->ctx, &found, &found, true) == CLEF_VERDICT_YES &&
                            clef_device_user_events(device->ctx, device->info.index, true) == CLEF_VERDICT_YES;
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
    cl_event mapped;
    clef__reached *reached; /* where visits are timed */
    const char *label;
    void *what;
    int n;
    void *memory[];
} visit;

static visit *new_visit(clef__device *device, const clef__host_task *from) {
    size_t memory = (size_t)from->n_spans * sizeof(void *);
    visit *v = clef__alloc(sizeof *v + memory + from->what_bytes);
    if (!v) return NULL;
    *v = (visit){.device = device,
                 .work = from->work,
                 .number = {from->number[0], from->number[1]},
                 .label = from->label,
                 .n = from->n_spans};
    v->what = (char *)v->memory + memory;
    if (from->what_bytes) memcpy(v->what, from->what, from->what_bytes);
    return v;
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
    cl_int code = clef__wait_for_event(v->mapped, NULL);
    clReleaseEvent(v->mapped);
    v->device->ctx->visit_ready = clef__reached_take(v->reached);
    clef_status status = work(v, code == CL_SUCCESS, line);
    if (code != CL_SUCCESS) clef__fail_later_cl(v->device, code, errand->cleared, v->label);
    else if (status != CLEF_OK) clef__fail_later(v->device->ctx, status, errand->cleared, line);
}

/* ---- mapping ---- */

/* The first waits for `after`, the others come behind it in the queue; *mapped is the last one's. */
static cl_int map_all(cl_command_queue queue, visit *v, const clef__host_span *span, clef__event *const *after, int n,
                      cl_event *mapped) {
    cl_int code = CL_SUCCESS;
    for (int i = 0; i < v->n; i++) {
        cl_uint waits = i == 0 ? (cl_uint)n : 0;
        v->memory[i] = clEnqueueMapBuffer(
            queue, span[i].at.buffer->memory, CL_FALSE, span[i].writes ? CL_MAP_WRITE_INVALIDATE_REGION : CL_MAP_READ,
            span[i].at.offset, span[i].bytes, waits, waits ? (const cl_event *)after : NULL, i == v->n - 1 ? mapped : NULL, &code);
        if (code == CL_SUCCESS) continue;
        v->n = i; /* these are mapped, and unmapped again */
        return code;
    }
    return CL_SUCCESS;
}

static cl_int unmap_all(cl_command_queue queue, const visit *v, const clef__host_span *span, const cl_event *gate, cl_event *done) {
    cl_int code = CL_SUCCESS;
    for (int i = 0; i < v->n && code == CL_SUCCESS; i++)
        code = clEnqueueUnmapMemObject(queue, span[i].at.buffer->memory, v->memory[i], gate && i == 0, gate && i == 0 ? gate : NULL,
                                       done && i == v->n - 1 ? done : NULL);
    return code;
}

static clef_status failed(clef__device *device, cl_int code, const char *label) {
    return clef__fail_cl(device, code, "%s: the device's memory could not be mapped", label);
}

/* ---- beside the kernels ---- */

/* Queues both ends; the errand is sent in between.  On failure the host waits for what was queued: nothing of it is left behind. */
static clef_status visit_beside(clef__device *device, visit *v, const clef__host_span *span, clef__event *const *after, int n,
                                cl_event *done) {
    const char *label = v->label;
    cl_int code;
    cl_command_queue queue = clef__queue_beside(device, &code);
    cl_event gate = code == CL_SUCCESS ? clCreateUserEvent(device->context, &code) : NULL;
    if (code == CL_SUCCESS) code = map_all(queue, v, span, after, n, &v->mapped);
    bool mapped = v->mapped != NULL;
    if (mapped) code = unmap_all(queue, v, span, &gate, done);
    if (code == CL_SUCCESS) code = clFlush(queue);
    if (code == CL_SUCCESS && atomic_load(&device->ctx->times_visits)) v->reached = clef__reached_new(after, n);
    v->errand.run = run;
    v->errand.gate = gate;
    if (code == CL_SUCCESS && clef__porter_send(device->ctx, &v->errand)) return CLEF_OK;
    if (gate) clSetUserEventStatus(gate, CL_COMPLETE);
    if (gate && !mapped) unmap_all(queue, v, span, NULL, NULL);
    if (queue) clef__queue_wait(queue);
    if (gate) clReleaseEvent(gate);
    if (v->mapped) clReleaseEvent(v->mapped);
    clef__reached_take(v->reached);
    clef__free(v);
    return failed(device, code != CL_SUCCESS ? code : CL_OUT_OF_HOST_MEMORY, label);
}

/* ---- or the caller waits ---- */

static clef_status visit_here(clef__device *device, visit *v, const clef__host_span *span) {
    char line[CLEF__VISIT_LINE];
    cl_event mapped = NULL;
    clef__porter_settle(device->ctx); /* of another device: visits are made in their order */
    cl_int code = map_all(device->queue, v, span, NULL, 0, &mapped);
    if (mapped) {
        cl_int waited = clef__event_wait(device, mapped);
        if (code == CL_SUCCESS) code = waited;
        clReleaseEvent(mapped);
    }
    device->ctx->visit_ready = -1;
    clef_status status = code == CL_SUCCESS ? work(v, true, line) : failed(device, code, v->label);
    if (code == CL_SUCCESS && status != CLEF_OK) clef__fail(device->ctx, status, "%s", line);
    cl_int unmapped = unmap_all(device->queue, v, span, NULL, NULL);
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
    if (!clef__device_has_gates(device) || !clef__porter_hire(device->ctx)) return visit_here(device, v, visit_asked->span);
    return visit_beside(device, v, visit_asked->span, after, n, (cl_event *)done);
}

clef_status clef__visits_settle(clef_context *ctx) {
    for (int d = 0; d < ctx->n_devices; d++) clef__flush(ctx->device[d]);
    clef__porter_settle(ctx);
    return clef__porter_status(ctx);
}
