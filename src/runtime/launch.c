/* launch.c — kernels with their arguments, and the queue. */
#include "runtime/runtime_internal.h"
#include <math.h>
#include <string.h>

typedef struct argument {
    clef__buffer *buffer; /* NULL: a number */
    uint64_t number;
} argument;

struct clef__kernel {
    clef__device *device;
    clef__program *program;
    cl_kernel kernel;
    size_t max_group;
    unsigned char *numbers; /* argument 0; NULL: it is one like the others */
    size_t numbers_bytes;
    bool stale;    /* the driver has other numbers */
    argument *arg; /* what was set, for chains; NULL: argument 0 is one like the others */
    int args;
    char name[];
};

/* Largest work-group.  A kernel that is built for one size has that size, whatever the driver says it may have: rusticl names
   the width of its vectors. */
static size_t largest_group(cl_kernel kernel, const clef__device *device) {
    size_t most = 0, asked[3] = {0};
    if (clGetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, NULL) != CL_SUCCESS ||
        most == 0)
        most = 1;
    if (clGetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof asked, asked, NULL) == CL_SUCCESS &&
        asked[0] * asked[1] * asked[2] > most)
        most = asked[0] * asked[1] * asked[2];
    return most < device->info.max_work_group ? most : device->info.max_work_group;
}

clef__program *clef__program_ready(clef__device *device, const char *source, const char *options, const char *name) {
    return clef__ready(device) == CLEF_OK ? clef__program_get(device, source, options, name) : NULL;
}

clef__kernel *clef__kernel_new(clef__device *device, const char *source, const char *options, const char *name) {
    clef__program *program = clef__program_ready(device, source, options, name);
    clef__kernel *kernel = program ? clef__kernel_of(device, program, name) : NULL;
    clef__program_release(device, program);
    return kernel;
}

clef__kernel *clef__kernel_of(clef__device *device, clef__program *program, const char *name) {
    clef__kernel *k = clef__calloc(1, sizeof *k + strlen(name) + 1);
    if (!k) {
        clef__fail(device->ctx, CLEF_MEMORY, "kernel %s: out of host memory", name);
        return NULL;
    }
    k->device = device;
    k->program = program;
    memcpy(k->name, name, strlen(name) + 1);
    cl_int code = CL_SUCCESS;
    char of_part[CLEF__JOINED_NAME];
    clef__part_kernel(program->number, name, of_part);
    k->kernel = clCreateKernel(program->program, program->whole ? of_part : name, &code);
    if (!k->kernel) {
        clef__fail_cl(device, code, "kernel %s", name);
        clef__free(k);
        return NULL;
    }
    pthread_mutex_lock(&device->programs->lock);
    clef__program_hold(device->programs, program);
    pthread_mutex_unlock(&device->programs->lock);
    k->max_group = largest_group(k->kernel, device);
    return k;
}

void clef__kernel_free(clef__kernel *kernel) {
    if (!kernel) return;
    if (clef__alive(kernel->device)) clReleaseKernel(kernel->kernel);
    clef__program_release(kernel->device, kernel->program);
    clef__free(kernel->numbers);
    clef__free(kernel->arg);
    clef__free(kernel);
}

bool clef__kernel_reserve(clef__kernel *kernel, int args, size_t bytes) {
    kernel->numbers = clef__calloc(1, bytes);
    kernel->numbers_bytes = bytes;
    kernel->stale = true;
    kernel->arg = clef__calloc((size_t)args, sizeof *kernel->arg);
    kernel->args = args;
    return kernel->numbers && kernel->arg;
}

void clef__kernel_put(clef__kernel *kernel, size_t at, size_t bytes, const void *value) {
    if (memcmp(kernel->numbers + at, value, bytes) == 0) return;
    memcpy(kernel->numbers + at, value, bytes);
    kernel->stale = true;
}

static clef_status send_numbers(clef__kernel *kernel) {
    if (!kernel->numbers || !kernel->stale) return CLEF_OK;
    clef_status status = clef__kernel_set(kernel, 0, kernel->numbers_bytes, kernel->numbers);
    kernel->stale = status != CLEF_OK;
    return status;
}

size_t clef__kernel_max_group(const clef__kernel *kernel) { return kernel->max_group; }

clef_status clef__kernel_set(clef__kernel *kernel, int index, size_t bytes, const void *value) {
    clef_status status = clef__ready(kernel->device);
    if (status != CLEF_OK) return status;
    if (kernel->arg && index > 0) {
        kernel->arg[index] = (argument){0};
        memcpy(&kernel->arg[index].number, value, bytes);
    }
    cl_int code = clSetKernelArg(kernel->kernel, (cl_uint)index, bytes, value);
    return code == CL_SUCCESS ? CLEF_OK : clef__fail_cl(kernel->device, code, "kernel %s: argument %d", kernel->name, index);
}

clef_status clef__kernel_set_buffer(clef__kernel *kernel, int index, clef__buffer *buffer) {
    clef_status status = clef__kernel_set(kernel, index, sizeof(cl_mem), &buffer->memory);
    if (kernel->arg) kernel->arg[index].buffer = buffer;
    return status;
}

/* ---- for chains ---- */

int clef__kernel_words(const clef__kernel *kernel) { return kernel->args + (int)((kernel->numbers_bytes + 7) / 8); }

bool clef__kernel_write(const clef__kernel *kernel, uint64_t *to) {
    for (int i = 1; i < kernel->args; i++) {
        const argument *arg = &kernel->arg[i];
        to[i] = arg->buffer ? (uint64_t)(uintptr_t)clef__buffer_address(arg->buffer) : arg->number;
        if (arg->buffer && !to[i]) return false;
    }
    memcpy(to + kernel->args, kernel->numbers, kernel->numbers_bytes);
    return true;
}

bool clef__kernel_local_bytes(const clef__kernel *kernel, size_t *bytes) {
    cl_ulong found = 0;
    cl_int code =
        clGetKernelWorkGroupInfo(kernel->kernel, kernel->device->id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof found, &found, NULL);
    *bytes = (size_t)found;
    return code == CL_SUCCESS;
}

/* ---- the queue ---- */

static clef_status check_range(const clef__kernel *k, const size_t global[3], const size_t local[3]) {
    size_t group = 1;
    bool fits = true;
    for (int i = 0; i < 3 && fits; i++) {
        fits = local[i] > 0 && global[i] % local[i] == 0 && local[i] <= k->max_group / group;
        if (fits) group *= local[i];
    }
    if (fits) return CLEF_OK;
    return clef__fail(k->device->ctx, CLEF_INVALID,
                      "kernel %s: %zu×%zu×%zu work-items in groups of %zu×%zu×%zu, but %s allows groups of %zu "
                      "that divide the range",
                      k->name, global[0], global[1], global[2], local[0], local[1], local[2], k->device->info.name, k->max_group);
}

static clef_status enqueue(clef__kernel *kernel, const size_t global[3], const size_t local[3], const char *label) {
    clef__device *device = kernel->device;
    clef_status status = clef__ready(device);
    if (status != CLEF_OK) return status;
    if (global[0] == 0 || global[1] == 0 || global[2] == 0) return CLEF_OK;
    if ((status = check_range(kernel, global, local)) != CLEF_OK) return status;
    if ((status = send_numbers(kernel)) != CLEF_OK) return status;
    cl_event done = NULL;
    cl_int code = clEnqueueNDRangeKernel(clef__queue(device), kernel->kernel, 3, NULL, global, local, 0, NULL,
                                         device->ctx->trace ? &done : NULL);
    if (code != CL_SUCCESS) return clef__fail_cl(device, code, "kernel %s", kernel->name);
    device->ctx->counters.launches++;
    if (done) clef__trace_event(device, label ? label : "kernel", done);
    return CLEF_OK;
}

bool clef__kernel_is_new(const clef__kernel *kernel) {
    return !atomic_load_explicit(&kernel->program->launched, memory_order_relaxed);
}

/* A driver that compiles a kernel when it first runs does so behind the queue, where nobody sees it. */
static clef_status launch_new(clef__kernel *kernel, const size_t global[3], const size_t local[3], const char *label) {
    clef__device *device = kernel->device;
    clef_status status = clef__finish(device);
    double begin = clef__now();
    if (status == CLEF_OK) status = enqueue(kernel, global, local, label);
    if (status == CLEF_OK) status = clef__finish(device);
    device->ctx->counters.compile_seconds += clef__now() - begin;
    return status;
}

clef_status clef__kernel_launch(clef__kernel *kernel, const size_t global[3], const size_t local[3], const char *label) {
    bool wait = clef__kernel_is_new(kernel) && kernel->device->ctx->on_compile;
    clef_status status = (wait ? launch_new : enqueue)(kernel, global, local, label);
    if (status == CLEF_OK) atomic_store_explicit(&kernel->program->launched, true, memory_order_relaxed);
    return status;
}

clef_status clef__flush(clef__device *device) {
    clef_status status = clef__ready(device);
    if (status != CLEF_OK) return status;
    cl_int code = clFlush(device->compute);
    return code == CL_SUCCESS ? CLEF_OK : clef__fail_cl(device, code, "flush");
}

cl_int clef__queue_wait(cl_command_queue queue) {
    cl_int code = clEnqueueMarkerWithWaitList(queue, 0, NULL, NULL);
    return code == CL_SUCCESS ? clFinish(queue) : code;
}

enum { WAITS = 512, TRIALS = 16 };
static const double MOMENT = 200e-6;    /* seconds that an event is watched at most, */
static const double PATIENCE = 2;       /* and times the shortest trial that watched */
static const double BETTER = 0.9;       /* of the time of sleeping is better */
static const unsigned WATCHED = 0x6996; /* bit i: trial i watches; both kinds equally often in each half, quarter and pair */

/* All that waits for what is in the queue from here on waits for one more command. */
cl_command_queue clef__queue(clef__device *device) {
    if (device->last) clef__chain_end(device->last);
    device->last = NULL;
    return device->compute;
}

static bool is_counted(const clef__end *end) {
    return end->counter && atomic_load_explicit(end->counter, memory_order_acquire) >= end->total;
}

/* Complete or failed, or nobody knows. */
static bool is_over(const clef__end *end) {
    cl_int state = CL_QUEUED;
    if (end->counter) return is_counted(end);
    cl_int code = clGetEventInfo(end->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    return code != CL_SUCCESS || state <= CL_COMPLETE;
}

/* Tells of failures, too. */
static cl_int wait_for(const clef__end *end) { return is_counted(end) ? CL_SUCCESS : clWaitForEvents(1, &end->event); }

static void watch(const clef__end *end, double until) {
    while (!is_over(end) && clef__now() < until) {
    }
}

/* A thread that sleeps wakes up tens of microseconds late, longer than little work takes.  To ask the driver for the event's state
   meanwhile takes a core from work that wants all of them.  Which is better depends on the work and the machine: of so many waits the
   first are made both ways, the others in the way of the shorter least time, which other programs disturb least.  Only time depends
   on it. */
cl_int clef__end_wait(clef__device *device, const clef__end *end) {
    clef__waits *waits = &device->waits;
    waits->all++;
    clFlush(device->compute);
    if (is_over(end)) return wait_for(end); /* no trial */
    if (end->stays) {
        watch(end, clef__now() + MOMENT);
        return wait_for(end);
    }
    unsigned wait = waits->count++ % WAITS;
    if (wait == 0) waits->watched = waits->slept = INFINITY;
    bool tried = wait < TRIALS;
    bool watched = tried ? WATCHED >> wait & 1 : waits->watched < BETTER * waits->slept;
    double begin = clef__now();
    if (watched) watch(end, begin + (tried ? MOMENT : fmin(MOMENT, PATIENCE * waits->watched)));
    cl_int code = wait_for(end);
    double *least = watched ? &waits->watched : &waits->slept;
    if (tried) *least = fmin(*least, clef__now() - begin);
    return code;
}

unsigned clef__device_waits(const clef__device *device) { return device->waits.all; }

cl_int clef__event_wait(clef__device *device, cl_event event) { return clef__end_wait(device, &(clef__end){.event = event}); }

clef_status clef__finish(clef__device *device) {
    clef_status status = clef__ready(device);
    if (status != CLEF_OK) return status;
    cl_event end = NULL;
    cl_int code = clEnqueueMarkerWithWaitList(clef__queue(device), 0, NULL, &end);
    if (code == CL_SUCCESS) {
        clef__event_wait(device, end); /* of work that failed clFinish tells */
        clReleaseEvent(end);
        code = clFinish(device->compute);
    }
    if (code != CL_SUCCESS) return clef__fail_cl(device, code, "finish");
    clef__trace_collect(device);
    return clef__porter_status(device->ctx);
}
