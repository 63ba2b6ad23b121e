/* trace.c — CLEF_TRACE=file: what the device did when, as a Chrome trace (chrome://tracing, Perfetto).

   A file that cannot be written is an error when it is opened, as who set CLEF_TRACE is waiting for it; what fails later
   ends in a line of the log, and in this thread's open error, as the context is gone by then.
   Events are kept until the queue is finished or many have gathered, then read and released.  Device clocks are
   their own; a marker at the first event ties each of them to the host's.

   Contexts that are open at the same time, such as those of ranks, write into one file: each is a process of it, with a thread for each
   queue and for what its host does.  One that is opened when all others are closed writes file.2, and so on.  Ranks that do not see each
   other's memory, as they are processes, write file.rank0, file.rank1, …: with times of the machine's clock and processes of different
   numbers, so that their events need only be put together. */
#include "runtime/json.h"
#include "runtime/runtime_internal.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { GATHER = 4096, BESIDE = 500, HOST = 1000, VISITS = 1001, COLLECTIVES = 1002 }; /* all but the first: tracks */

typedef struct pending {
    cl_event begin, event; /* begin: where it ended something began that ends with `event`; NULL: one that runs by itself */
    int device;
    bool beside; /* in its second queue */
    char label[64];
} pending;

/* Of contexts that are open at the same time. */
typedef struct trace_file {
    struct trace_file *next; /* of all that are open */
    FILE *out;
    char *path;
    bool some; /* rows written */
    int rank;  /* as of clef__trace_rank */
    int error; /* of opening it */
    int contexts, users;
    double begin;
    pthread_mutex_t lock; /* kernels are compiled in several threads, and contexts have their own */
} trace_file;

struct clef__trace {
    trace_file *file;
    int process;
    char name[200];                                         /* of the process */
    bool meets;                                             /* there are collective operations */
    int n, capacity, most;                                  /* most: pending before some are read */
    bool tied[CLEF__MAX_DEVICES], named[CLEF__MAX_DEVICES]; /* named: the track of the second queue */
    double shift[CLEF__MAX_DEVICES];                        /* host seconds minus device seconds */
    pending *pending;
};

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static trace_file *current; /* which contexts of no rank join, while it is open */
static trace_file *files;
static _Thread_local int own_rank = -1;

double clef__now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the file ---- */
void clef__trace_rank(int rank) { own_rank = rank; }

static void free_file(trace_file *f) {
    if (f) clef__free(f->path);
    clef__free(f);
}

/* NULL without memory; without `out` where it cannot be written. */
static trace_file *open_file(const char *name) {
    static int opened;
    trace_file *f = clef__calloc(1, sizeof *f);
    int number = own_rank >= 0 ? 0 : ++opened;
    if (f && own_rank >= 0) f->path = clef__asprintf("%s.rank%d", name, own_rank);
    else if (f) f->path = number == 1 ? clef__strdup(name) : clef__asprintf("%s.%d", name, number);
    if (!f || !f->path) return free_file(f), NULL;
    f->out = fopen(f->path, "w");
    f->error = errno;
    if (!f->out) return f;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", f->out);
    f->rank = own_rank;
    f->begin = own_rank >= 0 ? 0 : clef__now();
    pthread_mutex_init(&f->lock, NULL);
    f->next = files;
    return files = f;
}

static void close_file(clef_context *ctx, trace_file *f) {
    fputs("\n]}\n", f->out);
    bool bad = ferror(f->out);
    bad = fclose(f->out) != 0 || bad;
    if (bad) {
        int error = errno;
        clef__log_line(ctx, CLEF_LOG_WARNING, "trace: %s is not whole: %s", f->path, strerror(error));
        clef__fail(NULL, CLEF_IO, "trace: %s is not whole: %s", f->path, strerror(error));
    }
    pthread_mutex_destroy(&f->lock);
    free_file(f);
}

/* The file that is open, or a new one.  Nothing is told of while the registry is locked: who is told may fork. */
static trace_file *join_file(clef_context *ctx, const char *name) {
    pthread_mutex_lock(&registry);
    trace_file *f = own_rank < 0 && current ? current : open_file(name);
    bool open = f && f->out;
    if (open) f->users++;
    if (open && f->rank < 0) current = f;
    pthread_mutex_unlock(&registry);
    if (open) return f;
    if (!f) clef__fail(ctx, CLEF_MEMORY, "open: no host memory for the trace");
    else clef__fail(ctx, CLEF_IO, "open: the trace %s (CLEF_TRACE) cannot be written: %s", f->path, strerror(f->error));
    free_file(f);
    return NULL;
}

static void leave_file(clef_context *ctx, trace_file *f) {
    pthread_mutex_lock(&registry);
    bool last = --f->users == 0;
    if (last && f == current) current = NULL;
    trace_file **at = &files;
    while (last && *at != f) at = &(*at)->next;
    if (last) *at = f->next;
    pthread_mutex_unlock(&registry);
    if (last) close_file(ctx, f);
}

/* A process and its child would both have in their buffers what is not written yet. */
void clef__trace_before_fork(void) {
    pthread_mutex_lock(&registry);
    for (trace_file *f = files; f; f = f->next) {
        pthread_mutex_lock(&f->lock);
        fflush(f->out);
    }
}

void clef__trace_after_fork(void) {
    for (trace_file *f = files; f; f = f->next) pthread_mutex_unlock(&f->lock);
    pthread_mutex_unlock(&registry);
}

clef_status clef__trace_open(clef_context *ctx) {
    const char *name = clef__env("CLEF_TRACE");
    if (!name || !*name) return CLEF_OK;
    clef__trace *t = clef__calloc(1, sizeof *t);
    if (!t) return clef__fail(ctx, CLEF_MEMORY, "open: no host memory for the trace");
    t->most = GATHER;
    t->file = join_file(ctx, name);
    if (!t->file) {
        clef__free(t);
        return clef_error_status(ctx);
    }
    pthread_mutex_lock(&t->file->lock);
    t->process = t->file->rank >= 0 ? t->file->rank + 1 : ++t->file->contexts;
    pthread_mutex_unlock(&t->file->lock);
    ctx->trace = t;
    return CLEF_OK;
}

/* ---- rows ---- */
static FILE *begin_row(clef__trace *t) {
    pthread_mutex_lock(&t->file->lock);
    fputs(t->file->some ? ",\n" : "\n", t->file->out);
    t->file->some = true;
    return t->file->out;
}

static void end_row(clef__trace *t) { pthread_mutex_unlock(&t->file->lock); }

/* In microseconds, by whole numbers, which no locale changes. */
static void put_time(FILE *out, const char *name, double seconds) {
    long long nanoseconds = llround(seconds * 1e9), size = nanoseconds < 0 ? -nanoseconds : nanoseconds;
    fprintf(out, ",\"%s\":%s%lld.%03lld", name, nanoseconds < 0 ? "-" : "", size / 1000, size % 1000);
}

/* Times in seconds of the host's clock.  args: NULL, or a JSON object. */
static void put_row(clef__trace *t, const char *label, int track, double begin, double end, const char *args) {
    FILE *out = begin_row(t);
    fputs("{\"name\":", out);
    clef__json_put_string(out, label);
    fprintf(out, ",\"ph\":\"X\",\"pid\":%d,\"tid\":%d", t->process, track);
    put_time(out, "ts", begin - t->file->begin);
    put_time(out, "dur", end - begin);
    if (args) fprintf(out, ",\"args\":%s", args);
    fputc('}', out);
    end_row(t);
}

/* kind: what is named, a "thread" or a "process". */
static void put_name(clef__trace *t, const char *kind, int track, const char *name) {
    FILE *out = begin_row(t);
    fprintf(out, "{\"name\":\"%s_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":", kind, t->process, track);
    clef__json_put_string(out, name);
    fputs("}}", out);
    end_row(t);
}

static void put_track(clef__trace *t, int track, const char *name) { put_name(t, "thread", track, name); }

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
            put_row(t, p.label, track_of(&p), begin + t->shift[device], end + t->shift[device], NULL);
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
    if (clEnqueueMarkerWithWaitList(clef__queue(device), 0, NULL, &mark) != CL_SUCCESS) return;
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
    if (t->n >= t->most) {
        clef__queue_wait(clef__queue(device));
        collect(device->ctx, device->number);
        t->most = t->n > GATHER / 2 ? 2 * t->n : GATHER; /* those of other devices wait for these */
    }
    if (!clef__grow(&t->pending, t->n, &t->capacity, sizeof *t->pending)) {
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
    if (ctx->trace) put_row(ctx->trace, label, HOST, begin, end, NULL);
}

void clef__trace_visit(clef_context *ctx, const char *label, double begin, double end) {
    if (ctx->trace) put_row(ctx->trace, label, VISITS, begin, end, NULL);
}

bool clef__traces(const clef_context *ctx) { return ctx->trace != NULL; }

void clef__trace_collective(clef_context *ctx, const char *label, double begin, double end, const char *args) {
    if (!ctx->trace) return;
    ctx->trace->meets = true;
    put_row(ctx->trace, label, COLLECTIVES, begin, end, args);
}

void clef__trace_name(clef_context *ctx, const char *name) {
    if (ctx->trace) snprintf(ctx->trace->name, sizeof ctx->trace->name, "%s", name);
}

void clef__trace_collect(clef__device *device) {
    if (device->ctx->trace) collect(device->ctx, device->number);
}

void clef__trace_close(clef_context *ctx) {
    clef__trace *t = ctx->trace;
    if (!t || clef__forked()) return; /* the file is the parent's */
    for (int i = 0; i < t->n && clef__all_alive(ctx); i++) release(&t->pending[i]);
    put_track(t, HOST, "host: programs");
    put_track(t, VISITS, "host: between commands");
    if (t->meets) put_track(t, COLLECTIVES, "collective operations");
    if (*t->name) put_name(t, "process", 0, t->name);
    leave_file(ctx, t->file);
    clef__free(t->pending);
    clef__free(t);
    ctx->trace = NULL;
}
