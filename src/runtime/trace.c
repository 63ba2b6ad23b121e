/* trace.c — CLEF_TRACE=file: what the device did when, as a Chrome trace (chrome://tracing, Perfetto).

   A file that cannot be written is an error when it is opened, as who set CLEF_TRACE is waiting for it; what fails later
   ends in a line of the log, and in this thread's open error, as the context is gone by then.
   Events are kept until the queue is finished or many have gathered, then read and released.  Device clocks are
   their own; a marker at the first event ties each of them to the host's.  A second context of the process writes
   file.2, and so on. */
#include "runtime/json.h"
#include "runtime/runtime_internal.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { GATHER = 4096, BESIDE = 500, HOST = 1000, VISITS = 1001 }; /* the last three: tracks */

typedef struct pending {
    cl_event begin, event; /* begin: where it ended something began that ends with `event`; NULL: one that runs by itself */
    int device;
    bool beside; /* in its second queue */
    char label[64];
} pending;

struct clef__trace {
    FILE *file;
    char *path;
    bool some; /* rows written */
    int n;
    bool tied[CLEF__MAX_DEVICES], named[CLEF__MAX_DEVICES]; /* named: the track of the second queue */
    double shift[CLEF__MAX_DEVICES];                        /* host seconds minus device seconds */
    double begin;
    pthread_mutex_t lock; /* of the file: kernels are compiled in several threads */
    pending pending[GATHER];
};

double clef__now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void free_trace(clef__trace *t) {
    if (!t) return;
    clef__free(t->path);
    clef__free(t);
}

clef_status clef__trace_open(clef_context *ctx) {
    static atomic_int opened;
    const char *name = clef__env("CLEF_TRACE");
    if (!name || !*name) return CLEF_OK;
    clef__trace *t = clef__calloc(1, sizeof *t);
    int number = atomic_fetch_add(&opened, 1) + 1;
    if (t) t->path = number == 1 ? clef__strdup(name) : clef__asprintf("%s.%d", name, number);
    if (!t || !t->path) {
        free_trace(t);
        return clef__fail(ctx, CLEF_MEMORY, "open: no host memory for the trace");
    }
    t->file = fopen(t->path, "w");
    if (!t->file) {
        clef__fail(ctx, CLEF_IO, "open: the trace %s (CLEF_TRACE) cannot be written: %s", t->path, strerror(errno));
        free_trace(t);
        return CLEF_IO;
    }
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", t->file);
    t->begin = clef__now();
    pthread_mutex_init(&t->lock, NULL);
    ctx->trace = t;
    return CLEF_OK;
}

/* Times in seconds of the host's clock. */
static void put_row(clef__trace *t, const char *label, int track, double begin, double end) {
    pthread_mutex_lock(&t->lock);
    fputs(t->some ? ",\n{\"name\":" : "\n{\"name\":", t->file);
    t->some = true;
    clef__json_put_string(t->file, label);
    fprintf(t->file, ",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f}", track, (begin - t->begin) * 1e6,
            (end - begin) * 1e6);
    pthread_mutex_unlock(&t->lock);
}

static void put_track(clef__trace *t, int track, const char *name) {
    pthread_mutex_lock(&t->lock);
    fprintf(t->file, "%s\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":", t->some ? "," : "",
            track);
    t->some = true;
    clef__json_put_string(t->file, name);
    fputs("}}", t->file);
    pthread_mutex_unlock(&t->lock);
}

static bool times(cl_event event, double *begin, double *end) {
    cl_ulong a = 0, b = 0;
    if (clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof a, &a, NULL) != CL_SUCCESS) return false;
    if (clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof b, &b, NULL) != CL_SUCCESS) return false;
    *begin = 1e-9 * (double)a;
    *end = 1e-9 * (double)b;
    return true;
}

static void release(const pending *p) {
    clReleaseEvent(p->event);
    if (p->begin) clReleaseEvent(p->begin);
}

static int track_of(const pending *p) { return p->device + (p->beside ? BESIDE : 0); }

static void collect(clef_context *ctx, int device) {
    clef__trace *t = ctx->trace;
    int kept = 0;
    for (int i = 0; i < t->n; i++) {
        pending p = t->pending[i];
        double begin, end, earlier;
        if (p.device != device) {
            t->pending[kept++] = p;
            continue;
        }
        if (times(p.event, &begin, &end) && (!p.begin || times(p.begin, &earlier, &begin)))
            put_row(t, p.label, track_of(&p), begin + t->shift[device], end + t->shift[device]);
        release(&p);
    }
    t->n = kept;
}

/* Ties the device's clock to the host's by a marker that ends as we look; without one its own times are written.
 */
static void tie(clef__device *device) {
    clef__trace *t = device->ctx->trace;
    cl_event mark = NULL;
    double begin, end;
    t->tied[device->number] = true;
    put_track(t, device->number, device->info.name);
    if (clEnqueueMarkerWithWaitList(device->queue, 0, NULL, &mark) != CL_SUCCESS) return;
    if (clWaitForEvents(1, &mark) == CL_SUCCESS && times(mark, &begin, &end)) t->shift[device->number] = clef__now() - end;
    clReleaseEvent(mark);
}

static void name_beside(clef__trace *t, const clef__device *device) {
    char name[128];
    snprintf(name, sizeof name, "%.100s: copies beside", device->info.name);
    put_track(t, device->number + BESIDE, name);
    t->named[device->number] = true;
}

static void add(clef__device *device, const char *label, pending p) {
    clef__trace *t = device->ctx->trace;
    p.device = device->number;
    snprintf(p.label, sizeof p.label, "%s", label);
    if (t->n == GATHER) {
        clef__queue_wait(device->queue);
        collect(device->ctx, device->number);
    }
    if (t->n == GATHER) { /* full of another device's */
        release(&p);
        return;
    }
    if (!t->tied[device->number]) tie(device);
    if (p.beside && !t->named[device->number]) name_beside(t, device);
    t->pending[t->n++] = p;
}

void clef__trace_event(clef__device *device, const char *label, cl_event event) { add(device, label, (pending){.event = event}); }

void clef__trace_beside(clef__device *device, const char *label, cl_event event) {
    add(device, label, (pending){.event = event, .beside = true});
}

void clef__trace_span(clef__device *device, const char *label, cl_event begin, cl_event end) {
    add(device, label, (pending){.begin = begin, .event = end});
}

void clef__trace_host(clef_context *ctx, const char *label, double begin, double end) {
    if (ctx->trace) put_row(ctx->trace, label, HOST, begin, end);
}

void clef__trace_visit(clef_context *ctx, const char *label, double begin, double end) {
    if (ctx->trace) put_row(ctx->trace, label, VISITS, begin, end);
}

void clef__trace_collect(clef__device *device) {
    if (device->ctx->trace) collect(device->ctx, device->number);
}

void clef__trace_close(clef_context *ctx) {
    clef__trace *t = ctx->trace;
    if (!t) return;
    for (int i = 0; i < t->n && clef__all_alive(ctx); i++) release(&t->pending[i]);
    put_track(t, HOST, "host: programs");
    put_track(t, VISITS, "host: between commands");
    fputs("\n]}\n", t->file);
    bool bad = ferror(t->file);
    bad = fclose(t->file) != 0 || bad;
    if (bad) {
        int error = errno;
        clef__log_line(ctx, CLEF_LOG_WARNING, "trace: %s is not whole: %s", t->path, strerror(error));
        clef__fail(NULL, CLEF_IO, "trace: %s is not whole: %s", t->path, strerror(error));
    }
    pthread_mutex_destroy(&t->lock);
    free_trace(t);
    ctx->trace = NULL;
}
