/* passage.c — bytes from a device to one of another OpenCL context, through the host, while the host and both devices go on.

   No event of one context is known in another.  So the sender's second queue reads into host memory, and the receiver's writes from
   there, behind a user event; a thread of the context waits for the read and then completes that event.  Passages are opened in
   the order in which they were queued, which is an order in which they can be: each waits for earlier ones only.

   A user event never gets an error: some drivers stall a queue for good then, others say that all went well.  What failed is noted,
   the work behind it goes on with what is there, and the next that waits for results gets the error. */
#include "runtime/probe.h"
#include <time.h>

struct clef__passage {
    clef__device *from;
    clef__stage *stage;
    cl_event fetched;
};

/* What went wrong. */
typedef struct failure {
    cl_int code;
    clef__device *from;
    uint64_t cleared; /* when the context's error was, before that copy was queued */
} failure;

/* One that was stored: when `fetched` is over, `gate` opens. */
typedef struct errand {
    struct errand *next;
    cl_event fetched, gate;
    failure otherwise; /* all but its code */
} errand;

struct clef__porter {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    errand *first, **end;
    bool stop;
    failure failed; /* that nobody was told of; CL_SUCCESS: none */
};

enum { MOMENT = 1000000 /* ns */, TRIES = 1000 };

/* Until nothing is read into the host's memory any more; returns how it went.  Where waiting fails the event is asked: the queue may
   have to wait for gates that only this thread opens. */
static cl_int wait_for(cl_event fetched) {
    cl_int code = clWaitForEvents(1, &fetched), state = CL_QUEUED;
    for (int i = 0; code != CL_SUCCESS && state > CL_COMPLETE && i < TRIES; i++) {
        if (clGetEventInfo(fetched, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL) == CL_SUCCESS &&
            state <= CL_COMPLETE)
            break;
        nanosleep(&(struct timespec){.tv_nsec = MOMENT}, NULL);
    }
    return code;
}

/* ---- the thread ---- */

static void open_gate(clef__porter *porter, errand *e) {
    e->otherwise.code = wait_for(e->fetched);
    if (e->otherwise.code != CL_SUCCESS) {
        pthread_mutex_lock(&porter->lock);
        porter->failed = e->otherwise;
        pthread_mutex_unlock(&porter->lock);
    }
    clSetUserEventStatus(e->gate, CL_COMPLETE);
    clReleaseEvent(e->fetched);
    clReleaseEvent(e->gate);
}

static errand *next_errand(clef__porter *porter) {
    pthread_mutex_lock(&porter->lock);
    while (!porter->first && !porter->stop) pthread_cond_wait(&porter->changed, &porter->lock);
    errand *e = porter->first;
    if (e && !(porter->first = e->next)) porter->end = &porter->first;
    pthread_mutex_unlock(&porter->lock);
    return e;
}

static void *work(void *user) {
    clef__porter *porter = user;
    for (errand *e; (e = next_errand(porter));) {
        open_gate(porter, e);
        clef__free(e);
    }
    return NULL;
}

static clef__porter *hire(void) {
    clef__porter *porter = clef__calloc(1, sizeof *porter);
    if (!porter) return NULL;
    pthread_mutex_init(&porter->lock, NULL);
    pthread_cond_init(&porter->changed, NULL);
    porter->end = &porter->first;
    if (pthread_create(&porter->thread, NULL, work, porter) == 0) return porter;
    pthread_cond_destroy(&porter->changed);
    pthread_mutex_destroy(&porter->lock);
    clef__free(porter);
    return NULL;
}

/* Of a lost device the thread may wait forever, and in a forked child there is none. */
void clef__porter_close(clef_context *ctx) {
    clef__porter *porter = ctx->porter;
    ctx->porter = NULL;
    if (!porter || !clef__all_alive(ctx)) return;
    pthread_mutex_lock(&porter->lock);
    porter->stop = true;
    pthread_cond_signal(&porter->changed);
    pthread_mutex_unlock(&porter->lock);
    pthread_join(porter->thread, NULL);
    pthread_cond_destroy(&porter->changed);
    pthread_mutex_destroy(&porter->lock);
    clef__free(porter);
}

/* One from before the error was cleared is about work that the program has given up. */
clef_status clef__porter_status(clef_context *ctx) {
    clef__porter *porter = ctx->porter;
    if (!porter) return CLEF_OK;
    pthread_mutex_lock(&porter->lock);
    failure failed = porter->failed;
    porter->failed.code = CL_SUCCESS;
    pthread_mutex_unlock(&porter->lock);
    if (failed.code == CL_SUCCESS || failed.cleared != atomic_load(&ctx->cleared)) return CLEF_OK;
    return clef__fail_cl(failed.from, failed.code, "copy through the host");
}

/* Takes over a reference of both events.  False when it cannot be done. */
static bool send(const clef__passage *p, cl_event gate) {
    const clef_context *ctx = p->from->ctx;
    clef__porter *porter = ctx->porter;
    errand *e = clef__alloc(sizeof *e);
    if (!e) return false;
    *e = (errand){.fetched = p->fetched, .gate = gate, .otherwise = {.from = p->from, .cleared = atomic_load(&ctx->cleared)}};
    pthread_mutex_lock(&porter->lock);
    *porter->end = e;
    porter->end = &e->next;
    pthread_cond_signal(&porter->changed);
    pthread_mutex_unlock(&porter->lock);
    return true;
}

/* ---- one passage ---- */

static bool passes(const clef__device *device) {
    const clef__found found = {.id = device->id, .info = device->info, .divided = device->divided};
    return clef__probe_events(device->ctx, &found, &found, true) == CLEF_VERDICT_YES &&
           clef_device_user_events(device->ctx, device->info.index, true) == CLEF_VERDICT_YES;
}

bool clef__devices_pass(const clef__device *from, const clef__device *to) { return passes(from) && passes(to); }

static clef_status failed(clef__device *device, cl_int code, size_t bytes) {
    return clef__fail_cl(device, code, "copy: %zu bytes through the host", bytes);
}

static cl_int queue_fetch(const clef__span *from, clef__passage *p, size_t bytes, clef__event *const *after, int n) {
    cl_int code;
    cl_command_queue queue = clef__queue_beside(p->from, &code);
    if (code == CL_SUCCESS)
        code = clEnqueueReadBuffer(queue, from->buffer->memory, CL_FALSE, from->offset, bytes, p->stage->bytes, (cl_uint)n,
                                   n ? (const cl_event *)after : NULL, &p->fetched);
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
    if (code == CL_SUCCESS) code = clRetainEvent(p->fetched);
    if (code != CL_SUCCESS) {
        failed(device, code, bytes);
        clef__passage_drop(to, p);
        return NULL;
    }
    *done = (clef__event *)p->fetched;
    if (device->ctx->trace && clRetainEvent(p->fetched) == CL_SUCCESS) clef__trace_beside(device, "fetch", p->fetched);
    return p;
}

/* The write behind the gate and what else must come before it.  On success the stage flies. */
static cl_int queue_store(const clef__span *to, clef__passage *p, size_t bytes, clef__event *const *after, int n, cl_event gate,
                          cl_event *done) {
    clef__device *device = to->buffer->device;
    cl_event wait[2 * CLEF__MAX_DEVICES + 1];
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
static void open_here(const clef__passage *p, const clef__device *to, cl_event gate) {
    wait_for(p->fetched);
    clSetUserEventStatus(gate, CL_COMPLETE);
    clef__queue_wait(to->beside);
}

clef_status clef__store_beside(const clef__span *to, clef__passage *p, size_t bytes, clef__event *const *after, int n,
                               clef__event **done) {
    clef__device *device = to->buffer->device;
    clef_context *ctx = device->ctx;
    cl_int code = CL_SUCCESS;
    cl_event event = NULL, gate = NULL;
    *done = NULL;
    if (!ctx->porter) ctx->porter = hire();
    if (ctx->porter) gate = clCreateUserEvent(device->context, &code);
    else code = CL_OUT_OF_HOST_MEMORY;
    if (gate) code = queue_store(to, p, bytes, after, n, gate, &event);
    if (event && code == CL_SUCCESS && send(p, gate)) p->fetched = gate = NULL;
    else if (event) open_here(p, device, gate);
    if (gate) clReleaseEvent(gate);
    clef__passage_drop(device, p);
    *done = (clef__event *)event;
    if (code != CL_SUCCESS) return failed(device, code, bytes);
    if (ctx->trace && clRetainEvent(event) == CL_SUCCESS) clef__trace_beside(device, "store", event);
    return CLEF_OK;
}

void clef__passage_drop(clef__device *to, clef__passage *p) {
    if (!p) return;
    if (p->fetched) {
        if (p->stage) wait_for(p->fetched);
        clReleaseEvent(p->fetched);
    }
    if (p->stage) clef__stage_return(to, p->stage);
    clef__free(p);
}
