/* passage.c — bytes from a device to one of another OpenCL context, through the host, while the host and both devices go on.

   No event of one context is known in another.  So the sender's second queue reads into host memory, and the receiver's writes from
   there, behind a user event, a gate; the context's porter (porter.c) waits for the read and then opens it. */
#include "runtime/probe.h"

struct clef__passage {
    clef__device *from;
    clef__stage *stage; /* `filled` is the read */
};

/* One that was stored: when `fetched` is over, its gate opens. */
typedef struct store {
    clef__errand errand;
    cl_event fetched;
    clef__device *from;
} store;

static void wait_for_fetch(clef__errand *errand) {
    store *s = (store *)errand;
    cl_int code = clef__wait_for_event(s->fetched, NULL);
    if (code != CL_SUCCESS) clef__fail_later_cl(s->from, code, errand->cleared, "copy through the host");
    clReleaseEvent(s->fetched);
}

/* Takes over a reference of the gate.  False when it cannot be done. */
static bool send(clef__device *from, cl_event fetched, cl_event gate) {
    store *s = clef__alloc(sizeof *s);
    if (!s) return false;
    *s = (store){.errand = {.run = wait_for_fetch, .gate = gate}, .fetched = fetched, .from = from};
    if (clRetainEvent(fetched) == CL_SUCCESS) {
        if (clef__porter_send(from->ctx, &s->errand)) return true;
        clReleaseEvent(fetched);
    }
    clef__free(s);
    return false;
}

/* ---- one passage ---- */

bool clef__devices_pass(clef__device *from, clef__device *to) { return clef__device_has_gates(from) && clef__device_has_gates(to); }

static clef_status failed(clef__device *device, cl_int code, size_t bytes) {
    return clef__fail_cl(device, code, "copy: %zu bytes through the host", bytes);
}

static cl_int queue_fetch(const clef__span *from, clef__passage *p, size_t bytes, clef__event *const *after, int n) {
    cl_int code;
    cl_command_queue queue = clef__queue_beside(p->from, &code);
    if (code == CL_SUCCESS)
        code = clEnqueueReadBuffer(queue, from->buffer->memory, CL_FALSE, from->offset, bytes, p->stage->bytes, (cl_uint)n,
                                   n ? (const cl_event *)after : NULL, &p->stage->filled);
    return code == CL_SUCCESS ? clFlush(queue) : code;
}

clef__passage *clef__fetch_beside(const clef__span *from, clef__device *to, size_t bytes, clef__event *const *after, int n,
                                  clef__event **done) {
    clef__device *device = from->buffer->device;
    *done = NULL;
    if (clef__ready(device) != CLEF_OK) return NULL;
    clef__passage *p = clef__calloc(1, sizeof *p);
    if (p) p->stage = clef__stage_take(to, bytes);
    if (!p || !p->stage) {
        clef__fail(device->ctx, CLEF_MEMORY, "copy: no host memory for %zu bytes", bytes);
        clef__free(p);
        return NULL;
    }
    p->from = device;
    cl_int code = queue_fetch(from, p, bytes, after, n);
    cl_event fetched = p->stage->filled;
    if (code == CL_SUCCESS) code = clRetainEvent(fetched);
    if (code != CL_SUCCESS) {
        failed(device, code, bytes);
        clef__passage_drop(to, p);
        return NULL;
    }
    *done = (clef__event *)fetched;
    if (device->ctx->trace && clRetainEvent(fetched) == CL_SUCCESS) clef__trace_beside(device, "fetch", fetched);
    return p;
}

/* The write behind the gate and what else must come before it.  On success the stage flies. */
static cl_int queue_store(const clef__span *to, clef__passage *p, size_t bytes, clef__event *const *after, int n, cl_event gate,
                          cl_event *done) {
    clef__device *device = to->buffer->device;
    cl_event wait[CLEF__QUEUES + 1];
    cl_int code;
    for (int i = 0; i < n; i++) wait[i] = (cl_event)after[i];
    wait[n] = gate;
    cl_command_queue queue = clef__queue_beside(device, &code);
    if (code == CL_SUCCESS)
        code = clEnqueueWriteBuffer(queue, to->buffer->memory, CL_FALSE, to->offset, bytes, p->stage->bytes, (cl_uint)n + 1, wait,
                                    done);
    if (code == CL_SUCCESS) code = clRetainEvent(*done); /* the stage's */
    if (code != CL_SUCCESS) return code;
    clef__stage_fly(device, p->stage, *done);
    p->stage = NULL;
    return clFlush(queue);
}

/* The write is queued, with or without its end known, but nobody is there to open the gate later. */
static void open_here(const clef__device *to, cl_event fetched, cl_event gate) {
    clef__wait_for_event(fetched, NULL);
    clSetUserEventStatus(gate, CL_COMPLETE);
    clef__queue_wait(to->beside);
}

clef_status clef__store_beside(const clef__span *to, clef__passage *p, size_t bytes, clef__event *const *after, int n,
                               clef__event **done) {
    clef__device *device = to->buffer->device;
    clef_context *ctx = device->ctx;
    cl_int code = CL_OUT_OF_HOST_MEMORY;
    cl_event event = NULL, gate = NULL, fetched = p->stage->filled;
    *done = NULL;
    if (clef__porter_hire(ctx)) gate = clCreateUserEvent(device->context, &code);
    if (gate) code = queue_store(to, p, bytes, after, n, gate, &event);
    if (event && code == CL_SUCCESS && send(p->from, fetched, gate)) gate = NULL;
    else if (event) open_here(device, fetched, gate);
    if (gate) clReleaseEvent(gate);
    clef__passage_drop(device, p);
    *done = (clef__event *)event;
    if (code != CL_SUCCESS) return failed(device, code, bytes);
    if (ctx->trace && clRetainEvent(event) == CL_SUCCESS) clef__trace_beside(device, "store", event);
    return CLEF_OK;
}

void clef__passage_drop(clef__device *to, clef__passage *p) {
    if (!p) return;
    if (p->stage && p->stage->filled) clef__stage_fly(to, p->stage, NULL); /* it may still be written */
    else if (p->stage) clef__stage_return(to, p->stage);
    clef__free(p);
}
