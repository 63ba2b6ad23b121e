/* buffer.c — device buffers, pooled by size class.

   Classes are multiples of 128 up to 1 KiB, then eight per octave, so at most an eighth is wasted.  A released
   buffer can be handed out again at once: the queue is in order, so its old readers run before its new writers.
   The debug mode gives each request a buffer of its exact size and none is reused, so that checkers see overruns.
 */
#include "runtime/runtime_internal.h"

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* The class of `bytes` (at least 1 and far below the largest size_t), and its size. */
static int class_of(size_t bytes, size_t *size) {
    if (bytes <= 1024) {
        *size = round_up(bytes, 128);
        return (int)(*size / 128) - 1;
    }
    int e = 10;
    while ((bytes - 1) >> (e + 1)) e++;
    size_t eighth = (bytes - 1) >> (e - 3); /* 8 … 15 */
    *size = (eighth + 1) << (e - 3);
    return (e - 9) * 8 + (int)eighth - 8;
}

static void link_live(clef__buffer *b) {
    clef__pool *pool = &b->device->pool;
    b->previous = NULL;
    b->next = pool->live;
    if (b->next) b->next->previous = b;
    pool->live = b;
}

static void unlink_live(clef__buffer *b) {
    if (b->previous) b->previous->next = b->next;
    else b->device->pool.live = b->next;
    if (b->next) b->next->previous = b->previous;
}

/* Figures are kept for each device and for all together, as the peak of a sum is no sum of peaks. */
static void count(clef_memory_info *m, int buffers, int64_t used, int64_t cached) {
    m->buffers += (uint64_t)(int64_t)buffers;
    m->used += (uint64_t)used;
    m->cached += (uint64_t)cached;
    if (m->used > m->peak) m->peak = m->used;
}

static void count_both(clef__device *device, int buffers, int64_t used, int64_t cached) {
    count(&device->memory, buffers, used, cached);
    count(&device->ctx->memory, buffers, used, cached);
}

/* What of it counts as Clef's. */
static int64_t own_bytes(const clef__buffer *b) { return b->wrapped ? 0 : (int64_t)b->size; }

static void count_live(const clef__buffer *b) { count_both(b->device, 1, own_bytes(b), 0); }

/* Another value from now on. */
static void renew(clef__buffer *b) {
    clef_context *ctx = b->device->ctx;
    if (b->derived && ctx->value_gone) ctx->value_gone(ctx, b->value);
    b->derived = false;
    b->value = ++ctx->values;
}

static void forget_use(clef__buffer *b) {
    if (b->last && clef__alive(b->device)) clReleaseEvent(b->last);
    b->last = NULL;
}

/* So that who fills it beside the queue knows when. */
static void mark_use(clef__buffer *b) {
    forget_use(b);
    b->used = true;
    if (!clef__uploads_beside(b->device, b->size)) return;
    if (clEnqueueMarkerWithWaitList(clef__queue(b->device), 0, NULL, &b->last) != CL_SUCCESS) b->last = NULL;
}

/* Of a chain that uses it by its address the driver does not know. */
static void give_back(clef__buffer *b) {
    forget_use(b);
    if (b->address && clef__alive(b->device)) clef__queue_wait(clef__queue(b->device));
    if (clef__alive(b->device)) clReleaseMemObject(b->memory);
    clef__free(b);
}

uint64_t clef__pool_trim(clef__device *device) {
    uint64_t bytes = 0;
    for (int c = 0; c < CLEF__POOL_CLASSES; c++)
        for (clef__buffer *b; (b = device->pool.cached[c]);) {
            device->pool.cached[c] = b->next;
            bytes += b->size;
            give_back(b);
        }
    count_both(device, 0, 0, -(int64_t)bytes);
    return bytes;
}

void clef__pool_close(clef__device *device) {
    clef__pool_trim(device);
    for (clef__buffer *b; (b = device->pool.live);) {
        device->pool.live = b->next;
        give_back(b);
    }
}

static bool exhausted(cl_int code) {
    return code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES || code == CL_OUT_OF_HOST_MEMORY ||
           code == CL_INVALID_BUFFER_SIZE;
}

/* A new cl_mem of *size; where it insists and there is no room, once more after the cache was emptied, then for no more than
   `least`. */
static cl_mem create(clef__device *device, size_t *size, size_t least, bool insists, cl_int *code) {
    cl_mem memory = device->large_pages && *size >= CLEF__LARGE_PAGE ? clef__pages_buffer(device, *size) : NULL;
    if (!memory) memory = clCreateBuffer(device->context, CL_MEM_READ_WRITE, *size, NULL, code);
    if (memory) return memory;
    if (insists && exhausted(*code)) {
        if (device->ctx->memory_short) device->ctx->memory_short(device->ctx);
        uint64_t freed = clef__pool_trim(device);
        clef__log_line(device->ctx, CLEF_LOG_WARNING, "memory: no room for %zu bytes on %s; %llu cached bytes given back", *size,
                       clef__device_text(device).text, (unsigned long long)freed);
        clef__queue_wait(clef__queue(device));
        *size = least;
        memory = clCreateBuffer(device->context, CL_MEM_READ_WRITE, *size, NULL, code);
    }
    return memory;
}

static clef__buffer *fresh(clef__device *device, size_t size, size_t least, bool insists, cl_int *code) {
    /* Cached buffers of sizes that are no longer asked for must not pile up. */
    const clef_memory_info *m = &device->memory;
    if (m->cached > (64u << 20) && m->used + m->cached > 2 * m->peak) clef__pool_trim(device);
    clef__buffer *b = clef__calloc(1, sizeof *b);
    if (!b) {
        *code = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    b->device = device;
    b->id = ++device->pool.made;
    b->memory = create(device, &size, least, insists, code);
    b->size = size;
    if (b->memory) return b;
    clef__free(b);
    return NULL;
}

static bool allowed(const clef__device *device, size_t bytes) {
    uint64_t limit = device->info.max_alloc_bytes;
    return bytes > 0 && bytes <= SIZE_MAX / 4 && (!limit || bytes <= limit);
}

/* From the pool, or fresh; NULL with the reason in *code. */
static clef__buffer *obtain(clef__device *device, size_t bytes, bool insists, cl_int *code) {
    uint64_t limit = device->info.max_alloc_bytes;
    size_t least = device->ctx->debug_memory ? bytes : round_up(bytes, 128), size = bytes;
    clef__buffer **head = device->ctx->debug_memory ? NULL : &device->pool.cached[class_of(bytes, &size)], *b;
    if (limit && least > limit) least = bytes;
    if (limit && size > limit) size = least;
    if (head && *head && (*head)->size >= bytes) {
        b = *head;
        *head = b->next;
        count_both(device, 0, 0, -(int64_t)b->size);
    } else if (!(b = fresh(device, size, least, insists, code))) return NULL;
    b->refs = 1;
    b->value = ++device->ctx->values;
    link_live(b);
    count_live(b);
    return b;
}

clef__buffer *clef__buffer_new(clef__device *device, size_t bytes) {
    cl_int code = CL_SUCCESS;
    if (clef__ready(device) != CLEF_OK) return NULL;
    if (!allowed(device, bytes)) {
        clef__fail(device->ctx, CLEF_MEMORY, "memory: %zu bytes in one piece, but %s allows 1 to %llu; a smaller batch helps",
                   bytes, clef__device_text(device).text, (unsigned long long)device->info.max_alloc_bytes);
        return NULL;
    }
    clef__buffer *b = obtain(device, bytes, true, &code);
    if (!b)
        clef__fail_cl(device, code, "memory: %zu bytes on %s, which holds %llu already", bytes, device->info.name,
                      (unsigned long long)device->memory.used);
    return b;
}

clef__buffer *clef__buffer_try(clef__device *device, size_t bytes) {
    cl_int code = CL_SUCCESS;
    return clef__alive(device) && allowed(device, bytes) ? obtain(device, bytes, false, &code) : NULL;
}

clef__buffer *clef__buffer_wrap(clef__device *device, void *memory) {
    if (clef__ready(device) != CLEF_OK) return NULL;
    size_t size = 0;
    cl_context context = NULL;
    cl_int code = memory ? clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof size, &size, NULL) : CL_INVALID_MEM_OBJECT;
    if (code == CL_SUCCESS) code = clGetMemObjectInfo(memory, CL_MEM_CONTEXT, sizeof(cl_context), &context, NULL);
    if (code != CL_SUCCESS) {
        clef__fail_cl(device, code, "wrap");
        return NULL;
    }
    if (context != device->context) {
        clef__fail(device->ctx, CLEF_INVALID,
                   "wrap: the buffer belongs to another OpenCL context; adopt that one with clef_open_opencl");
        return NULL;
    }
    clef__buffer *b = clef__calloc(1, sizeof *b);
    if (!b) {
        clef__fail(device->ctx, CLEF_MEMORY, "wrap: out of host memory");
        return NULL;
    }
    clRetainMemObject(memory);
    *b = (clef__buffer){
        .device = device, .memory = memory, .id = ++device->pool.made, .size = size, .refs = 1, .wrapped = true, .pinned = true};
    link_live(b);
    count_live(b);
    return b;
}

void *clef__buffer_address(clef__buffer *b) {
    if (b->address) return b->address;
    cl_int code = CL_SUCCESS;
    void *address = clEnqueueMapBuffer(clef__queue(b->device), b->memory, CL_TRUE, CL_MAP_READ, 0, b->size, 0, NULL, NULL, &code);
    if (code == CL_SUCCESS) code = clEnqueueUnmapMemObject(clef__queue(b->device), b->memory, address, 0, NULL, NULL);
    return code == CL_SUCCESS ? b->address = address : NULL;
}

void clef__buffer_retain(clef__buffer *buffer) { buffer->refs++; }

void clef__buffer_release(clef__buffer *b) {
    if (!b || --b->refs > 0) return;
    renew(b);
    unlink_live(b);
    count_both(b->device, -1, -own_bytes(b), 0);
    if (b->pinned || b->device->ctx->debug_memory) {
        give_back(b);
        return;
    }
    mark_use(b);
    size_t size;
    int c = class_of(b->size, &size);
    /* One that was cut short of its class (by the device's limit) goes to the end, where only a fitting request
     * finds it. */
    clef__buffer **at = &b->device->pool.cached[c];
    while (b->size < size && *at) at = &(*at)->next;
    b->next = *at;
    *at = b;
    count_both(b->device, 0, 0, (int64_t)b->size);
}

void clef__buffer_pin(clef__buffer *buffer) { buffer->pinned = true; }

bool clef__buffer_pinned(const clef__buffer *buffer) { return buffer->pinned; }

size_t clef__buffer_size(const clef__buffer *buffer) { return buffer->size; }

int clef__buffer_refs(const clef__buffer *buffer) { return buffer->refs; }

clef__device *clef__buffer_device(const clef__buffer *buffer) { return buffer->device; }

uint64_t clef__buffer_id(const clef__buffer *buffer) { return buffer->id; }

uint64_t clef__buffer_value(const clef__buffer *buffer) { return buffer->value; }

void clef__buffer_renew(clef__buffer *buffer) { renew(buffer); }

void clef__buffer_derive(clef__buffer *buffer) { buffer->derived = true; }

bool clef__buffer_derived(const clef__buffer *buffer) { return buffer->derived; }

void clef__on_memory(clef_context *ctx, void (*gone)(clef_context *ctx, uint64_t value), void (*short_of)(clef_context *ctx)) {
    ctx->value_gone = gone;
    ctx->memory_short = short_of;
}

void *clef__buffer_mem(const clef__buffer *buffer) { return buffer->memory; }
