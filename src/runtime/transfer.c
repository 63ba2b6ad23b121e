/* transfer.c — bytes between host and device.

   Writes never wait: host bytes are copied into stages of our own, which stay untouched until the queue has passed
   them. Small writes share one open stage; a marker behind its last write says when it is free again.  Writes that
   are too large to be worth a copy, or that find no stage, block instead.

   Where the device has memory of its own, stages are memory that the driver has pinned: it is read by the device itself while the
   host goes on, where other memory is copied once more by the driver's thread.  There large writes go in pieces, and wait only where more is
   flying than may.  What fills a buffer that nothing uses goes through the second queue, so that a batch is brought while the kernels
   of the step before run; the compute queue waits for it. */
#include "runtime/runtime_internal.h"
#include <string.h>

enum {
    STAGE = 1 << 18,      /* bytes of a shared stage */
    SMALL = STAGE / 4,    /* larger writes get a stage of their own */
    DIRECT = 1 << 25,     /* from here on a write blocks and needs no copy */
    FLYING_MAX = 1 << 28, /* staged bytes that may be waiting at once */
    IDLE_MAX = 1 << 26,   /* staged bytes kept for reuse */
    PIECE = 1 << 24,      /* of such a write where stages are pinned */
    HOP = 1 << 22         /* piece of a copy from device to device */
};

static bool pins(clef__device *device) {
    clef__staging *st = &device->staging;
    if (st->asked) return st->pins;
    const char *wanted = clef__env("CLEF_PINNED");
    st->pins = wanted && *wanted ? strcmp(wanted, "0") != 0 : !clef__has_memory_of_host(device);
    st->asked = true;
    return st->pins;
}

/* Memory of the driver's, mapped in a queue where nothing else is waited for. */
static bool pin(clef__device *device, clef__stage *s) {
    cl_int code = CL_SUCCESS;
    clef__staging *st = &device->staging;
    if (!st->queue) st->queue = clef__queue_new(device, 0, &code);
    if (code == CL_SUCCESS)
        s->pinned = clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, s->size, NULL, &code);
    if (code == CL_SUCCESS)
        s->bytes = clEnqueueMapBuffer(st->queue, s->pinned, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, s->size, 0, NULL, NULL, &code);
    if (code == CL_SUCCESS) return true;
    if (s->pinned) clReleaseMemObject(s->pinned);
    s->pinned = NULL;
    return false;
}

/* What is pinned is left to a device that is lost. */
static void free_stage(clef__device *device, clef__stage *s) {
    if (!s->pinned) clef__free(s->bytes);
    else if (clef__alive(device)) {
        clEnqueueUnmapMemObject(device->staging.queue, s->pinned, s->bytes, 0, NULL, NULL);
        clFlush(device->staging.queue);
        clReleaseMemObject(s->pinned);
    }
    clef__free(s);
}

static void make_idle(clef__device *device, clef__stage *s) {
    clef__staging *st = &device->staging;
    s->used = 0;
    if (st->idle_bytes + s->size > IDLE_MAX) {
        free_stage(device, s);
        return;
    }
    s->next = st->idle;
    st->idle = s;
    st->idle_bytes += s->size;
}

static void release(cl_event *event) {
    if (*event) clReleaseEvent(*event);
    *event = NULL;
}

/* The oldest stage in flight has landed, well or badly. */
static void land(clef__device *device, cl_int state) {
    clef__staging *st = &device->staging;
    clef__stage *s = st->oldest;
    st->oldest = s->next;
    if (!st->oldest) st->newest = NULL;
    st->flying_bytes -= s->size;
    release(&s->filled);
    release(&s->done);
    if (state < 0) clef__fail_cl(device, state, "write: queued work");
    make_idle(device, s);
}

/* Does the driver say that nothing touches it any more?  *state: the worse one of its events. */
static bool is_over(const clef__stage *s, cl_int *state) {
    const cl_event event[] = {s->filled, s->done};
    *state = CL_COMPLETE;
    for (int i = 0; i < 2; i++) {
        cl_int one = CL_QUEUED;
        if (!event[i]) continue;
        if (clGetEventInfo(event[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof one, &one, NULL) != CL_SUCCESS) return false;
        if (one > CL_COMPLETE) return false;
        if (one < *state) *state = one;
    }
    return s->filled || s->done;
}

/* Takes in what has landed.  A stage of which the driver does not say so keeps flying: it may still be read or written. */
static void collect(clef__device *device) {
    cl_int state;
    while (device->staging.oldest && is_over(device->staging.oldest, &state)) land(device, state);
}

/* False when even waiting fails. */
static bool wait_oldest(clef__device *device) {
    const clef__stage *s = device->staging.oldest;
    cl_int state = CL_COMPLETE;
    bool over = true;
    if (s->filled) clef__wait_for_event(s->filled, &over);
    if (s->done && over) clef__wait_for_event(s->done, &over);
    if (s->filled || s->done) over = over && is_over(s, &state);
    else over = clFinish(device->compute) == CL_SUCCESS;
    if (over) land(device, state);
    return over;
}

void clef__stage_fly(clef__device *device, clef__stage *s, cl_event done) {
    clef__staging *st = &device->staging;
    s->done = done;
    s->next = NULL;
    if (st->newest) st->newest->next = s;
    else st->oldest = s;
    st->newest = s;
    st->flying_bytes += s->size;
}

/* A driver that has no memory to pin leaves a stage of our own. */
static clef__stage *new_stage(clef__device *device, size_t size) {
    clef__stage *s = clef__calloc(1, sizeof *s);
    if (!s) return NULL;
    s->size = size;
    if (pins(device) && pin(device, s)) return s;
    s->bytes = clef__alloc(size);
    if (s->bytes) return s;
    clef__free(s);
    return NULL;
}

clef__stage *clef__stage_take(clef__device *device, size_t bytes) {
    clef__staging *st = &device->staging;
    size_t size = STAGE;
    while (size < bytes) size *= 2;
    collect(device);
    while (st->oldest && st->flying_bytes + size > FLYING_MAX)
        if (!wait_oldest(device)) return NULL;
    for (clef__stage **at = &st->idle; *at; at = &(*at)->next)
        if ((*at)->size == size) {
            clef__stage *s = *at;
            *at = s->next;
            st->idle_bytes -= s->size;
            return s;
        }
    return new_stage(device, size);
}

void clef__stage_return(clef__device *device, clef__stage *s) { make_idle(device, s); }

/* Sends the open stage off behind a marker; without one it has landed when the queue is finished. */
static void seal(clef__device *device) {
    clef__staging *st = &device->staging;
    cl_event done = NULL;
    if (clEnqueueMarkerWithWaitList(clef__queue(device), 0, NULL, &done) != CL_SUCCESS) done = NULL;
    clef__stage_fly(device, st->open, done);
    st->open = NULL;
    if (!done) wait_oldest(device);
}

static clef_status write_blocking(clef__buffer *b, size_t offset, const void *host, size_t bytes) {
    clef__device *device = b->device;
    cl_int code = clEnqueueWriteBuffer(clef__queue(device), b->memory, CL_TRUE, offset, bytes, host, 0, NULL, NULL);
    if (code == CL_SUCCESS) return CLEF_OK;
    device->unsettled |= clef__queue_wait(clef__queue(device)) != CL_SUCCESS; /* it may still read what lies in `host` */
    return clef__fail_cl(device, code, "write: %zu bytes", bytes);
}

static clef_status write_small(clef__buffer *b, size_t offset, const void *host, size_t bytes) {
    clef__device *device = b->device;
    clef__staging *st = &device->staging;
    if (st->open && st->open->used + bytes > st->open->size) seal(device);
    if (!st->open && !(st->open = clef__stage_take(device, STAGE))) return write_blocking(b, offset, host, bytes);
    unsigned char *at = st->open->bytes + st->open->used;
    memcpy(at, host, bytes);
    st->open->used += (bytes + 63) / 64 * 64;
    cl_int code = clEnqueueWriteBuffer(clef__queue(device), b->memory, CL_FALSE, offset, bytes, at, 0, NULL, NULL);
    return code == CL_SUCCESS ? CLEF_OK : clef__fail_cl(device, code, "write: %zu bytes", bytes);
}

/* Through a stage of its own.  In the second queue, which it then hurries on, behind `after` (NULL: nothing), or in the compute queue. */
static clef_status write_staged(clef__buffer *b, size_t offset, const void *host, size_t bytes, bool beside, cl_event after) {
    clef__device *device = b->device;
    cl_command_queue queue = beside ? device->beside : clef__queue(device);
    clef__stage *s = clef__stage_take(device, bytes);
    if (!s) return write_blocking(b, offset, host, bytes);
    memcpy(s->bytes, host, bytes);
    cl_event done = NULL;
    cl_int code =
        clEnqueueWriteBuffer(queue, b->memory, CL_FALSE, offset, bytes, s->bytes, after != NULL, after ? &after : NULL, &done);
    if (code != CL_SUCCESS) {
        make_idle(device, s);
        return clef__fail_cl(device, code, "write: %zu bytes", bytes);
    }
    if (device->ctx->trace && clRetainEvent(done) == CL_SUCCESS)
        (beside ? clef__trace_beside : clef__trace_event)(device, "write", done);
    clef__stage_fly(device, s, done);
    if (beside) clFlush(queue);
    return CLEF_OK;
}

static clef_status write_pieces(clef__buffer *b, size_t offset, const void *host, size_t bytes, bool beside, cl_event after) {
    clef_status status = CLEF_OK;
    for (size_t at = 0, piece = bytes < DIRECT ? bytes : PIECE; at < bytes && status == CLEF_OK; at += piece) {
        if (piece > bytes - at) piece = bytes - at;
        status = write_staged(b, offset + at, (const unsigned char *)host + at, piece, beside, after);
    }
    return status;
}

static bool inside(const clef__buffer *b, size_t offset, size_t bytes, const char *what) {
    if (offset <= b->size && bytes <= b->size - offset) return true;
    clef__fail(b->device->ctx, CLEF_INVALID, "%s: bytes %zu to %zu of a buffer of %zu", what, offset, offset + bytes, b->size);
    return false;
}

/* While nothing is under way kernels find what the host writes, as the host what they wrote (read_here); a command would end the launch that
   stays for the next run. */
static bool writes_here(const clef__buffer *b) {
    return b->address && clef__context_devices(b->device->ctx) == 1 && clef__chain_is_done(b->device);
}

clef_status clef__buffer_write(clef__buffer *b, size_t offset, const void *host, size_t bytes) {
    clef_status status = clef__ready(b->device);
    if (status != CLEF_OK) return status;
    if (!inside(b, offset, bytes, "write")) return CLEF_INVALID;
    if (bytes == 0) return CLEF_OK;
    if (writes_here(b)) {
        memcpy((unsigned char *)b->address + offset, host, bytes);
        return CLEF_OK;
    }
    if (bytes <= SMALL) return write_small(b, offset, host, bytes);
    if (bytes >= DIRECT && !pins(b->device)) return write_blocking(b, offset, host, bytes);
    return write_pieces(b, offset, host, bytes, false, NULL);
}

bool clef__uploads_beside(clef__device *device, size_t bytes) {
    return bytes > SMALL && clef__alive(device) && pins(device) && clef__queues_meet(device);
}

/* Whatever is queued for the device from now on waits until its second queue has done what it was given. */
static clef_status wait_beside(clef__device *device) {
    cl_event done = NULL;
    cl_int code = clEnqueueMarkerWithWaitList(device->beside, 0, NULL, &done);
    if (code == CL_SUCCESS) code = clFlush(device->beside);
    if (code == CL_SUCCESS) code = clEnqueueBarrierWithWaitList(clef__queue(device), 1, &done, NULL);
    if (done) clReleaseEvent(done);
    if (code != CL_SUCCESS) clef__queue_wait(device->beside);
    return code == CL_SUCCESS ? CLEF_OK : clef__fail_cl(device, code, "wait for a write");
}

clef_status clef__buffer_fill(clef__buffer *b, const void *host, size_t bytes) {
    clef__device *device = b->device;
    bool known = !b->used || b->last;
    cl_int code;
    if (!known || !clef__uploads_beside(device, bytes) || bytes > b->size) return clef__buffer_write(b, 0, host, bytes);
    clef_status status = clef__ready(device);
    if (status != CLEF_OK) return status;
    clef__queue_beside(device, &code);
    if (code == CL_SUCCESS && b->last) code = clFlush(device->compute); /* other queues may only wait for what is on its way */
    if (code != CL_SUCCESS) return clef__fail_cl(device, code, "write: %zu bytes", bytes);
    status = write_pieces(b, 0, host, bytes, true, b->last);
    b->used = true;
    clef_status joined = wait_beside(device);
    return status == CLEF_OK ? joined : status;
}

/* Where the chain that computed it left it: a command of the driver's for that takes longer than a small net. */
static clef_status read_here(clef__buffer *b, size_t offset, void *host, size_t bytes) {
    cl_int code = clef__chain_wait(b->device);
    if (code != CL_SUCCESS) return clef__fail_cl(b->device, code, "read: %zu bytes", bytes);
    memcpy(host, (const unsigned char *)b->address + offset, bytes);
    return clef__porter_status(b->device->ctx);
}

clef_status clef__buffer_read(clef__buffer *b, size_t offset, void *host, size_t bytes) {
    clef__device *device = b->device;
    clef_status status = clef__ready(device);
    if (status != CLEF_OK) return status;
    if (!inside(b, offset, bytes, "read")) return CLEF_INVALID;
    if (bytes == 0) return CLEF_OK;
    if (b->address && clef__chain_is_last(device)) return read_here(b, offset, host, bytes);
    cl_event done = NULL;
    cl_int code = clEnqueueReadBuffer(clef__queue(device), b->memory, CL_FALSE, offset, bytes, host, 0, NULL, &done);
    if (code != CL_SUCCESS) return clef__fail_cl(device, code, "read: %zu bytes", bytes);
    code = clef__event_wait(device, done);
    if (code != CL_SUCCESS)
        device->unsettled |= clef__queue_wait(clef__queue(device)) != CL_SUCCESS; /* it may still write into `host` */
    if (code == CL_SUCCESS && device->ctx->trace) clef__trace_event(device, "read", done);
    else clReleaseEvent(done);
    if (code != CL_SUCCESS) return clef__fail_cl(device, code, "read: %zu bytes", bytes);
    return clef__porter_status(device->ctx); /* what lies there may not be what was meant to */
}

static clef_status copy_through_host(clef__buffer *to, size_t to_offset, clef__buffer *from, size_t from_offset, size_t bytes) {
    size_t piece = bytes < HOP ? bytes : HOP;
    void *host = clef__alloc(piece);
    if (!host) return clef__fail(to->device->ctx, CLEF_MEMORY, "copy: out of host memory");
    clef_status status = CLEF_OK;
    for (size_t at = 0; at < bytes && status == CLEF_OK; at += piece) {
        if (piece > bytes - at) piece = bytes - at;
        status = clef__buffer_read(from, from_offset + at, host, piece);
        if (status == CLEF_OK) status = clef__buffer_write(to, to_offset + at, host, piece);
    }
    clef__free(host);
    return status;
}

clef_status clef__buffer_copy(clef__buffer *to, size_t to_offset, clef__buffer *from, size_t from_offset, size_t bytes) {
    clef__device *device = to->device;
    clef_status status = clef__ready(device);
    if (status != CLEF_OK) return status;
    if (!inside(to, to_offset, bytes, "copy") || !inside(from, from_offset, bytes, "copy")) return CLEF_INVALID;
    if (bytes == 0) return CLEF_OK;
    if (from->device != device) return copy_through_host(to, to_offset, from, from_offset, bytes);
    cl_event done = NULL;
    cl_int code = clEnqueueCopyBuffer(clef__queue(device), from->memory, to->memory, from_offset, to_offset, bytes, 0, NULL,
                                      device->ctx->trace ? &done : NULL);
    if (code != CL_SUCCESS) return clef__fail_cl(device, code, "copy: %zu bytes", bytes);
    if (done) clef__trace_event(device, "copy", done);
    return CLEF_OK;
}

/* Stages that the driver may still read (waiting failed, or the device is lost) are left alone. */
void clef__staging_close(clef__device *device) {
    clef__staging *st = &device->staging;
    if (!clef__alive(device)) return;
    if (st->open) seal(device);
    while (st->oldest && wait_oldest(device)) {
    }
    for (clef__stage *s; (s = st->idle);) {
        st->idle = s->next;
        free_stage(device, s);
    }
    if (st->queue) clReleaseCommandQueue(st->queue);
    st->queue = NULL;
}
