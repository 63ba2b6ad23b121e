/* open.c — the devices of a context: what was chosen, divided into parts, and opened.

   Devices of one platform share an OpenCL context where their driver is known to stand events between their queues (probe.c): then
   one waits for another without the host, and copies go straight from one to the other.  Others have a context each. */
#include "runtime/probe.h"
#include <stdio.h>
#include <string.h>

/* ---- one device ---- */

static void build_options(clef__device *d) {
    char text[128] = "";
    int major = 0, minor = 0;
    clGetDeviceInfo(d->id, CL_DEVICE_OPENCL_C_VERSION, sizeof text - 1, text, NULL);
    bool has_12 = sscanf(text, "OpenCL C %d.%d", &major, &minor) == 2 && major * 10 + minor >= 12;
    snprintf(d->options, sizeof d->options, "%s%s -DCLEF_LANES=%d", has_12 ? "-cl-std=CL1.2" : "",
             d->info.f64 ? " -DCLEF_F64=1" : "", d->profile.vector);
}

static bool choose_profile(clef__device *d, const char *name) {
    if (!name) name = clef__env("CLEF_PROFILE");
    if (name && !*name) name = NULL;
    if (clef__profile_choose(name, &d->info, &d->profile)) return true;
    char names[256];
    clef__profile_names(names, sizeof names);
    clef__fail(d->ctx, CLEF_INVALID, "open: no device profile is called \"%.80s\"; there are: %s", name, names);
    return false;
}

/* Parts of one device in one OpenCL context: what is compiled for one is for all. */
static clef__device *find_leader(clef__device *d) {
    for (int i = 0; i < d->number; i++) {
        clef__device *before = d->ctx->device[i];
        if (before->context == d->context && before->info.index == d->info.index && strcmp(before->options, d->options) == 0)
            return before->leader;
    }
    return d;
}

clef__device *clef__device_open(clef_context *ctx, const clef__found *found, cl_context context, cl_command_queue queue,
                                const char *profile) {
    clef__device *d = clef__calloc(1, sizeof *d);
    if (!d) {
        clef__fail(ctx, CLEF_MEMORY, "open: out of host memory");
        return NULL;
    }
    d->ctx = ctx;
    d->number = ctx->n_devices;
    d->id = found->id;
    d->divided = found->divided;
    d->info = found->info;
    clef__programs_open(d);
    ctx->device[ctx->n_devices++] = d;
    if (!choose_profile(d, profile)) return NULL;
    build_options(d);
    d->saving = clef__cache_saving(d);
    d->large_pages = clef__driver_of(&d->info).large_pages && !ctx->debug_memory; /* checkers know the driver's memory, not ours */
    cl_int code = clRetainContext(context);
    if (code == CL_SUCCESS) d->context = context;
    if (code == CL_SUCCESS && !queue) d->queue = clef__queue_new(d, &code);
    else if (code == CL_SUCCESS && (code = clRetainCommandQueue(queue)) == CL_SUCCESS) d->queue = queue;
    d->leader = find_leader(d);
    if (code == CL_SUCCESS) return d;
    clef__fail_cl(d, code, "open: %s", d->info.name);
    return NULL;
}

/* ---- which devices ---- */

static bool may_share(clef_context *ctx, const clef__found *a, const clef__found *b) {
    return a->platform == b->platform && clef__probe_events(ctx, a, b, true) == CLEF_VERDICT_YES;
}

/* Devices and parts of devices, in the order in which they were chosen. */
typedef struct opening {
    clef__found found[CLEF__MAX_DEVICES];
    cl_context context[CLEF__MAX_DEVICES]; /* of each; several may have the same */
    int n;
} opening;

static bool divide_all(clef_context *ctx, const clef__choice *chosen, int n, int threads, opening *o) {
    const clef__found *list;
    clef__devices(&list);
    for (int i = 0; i < n; i++) {
        clef__choice parts = chosen[i];
        const clef__found *whole = &list[parts.index];
        if (parts.parts == 0) clef__threads_choose(threads, &whole->info, &parts);
        int made = clef__device_divide(ctx, whole, &parts, &o->found[o->n]);
        if (made == 0) return false;
        o->n += made;
    }
    return true;
}

/* One OpenCL context for device `first` and those behind it that may share one with it: what one of them makes others can use. */
static bool make_context(clef_context *ctx, opening *o, int first) {
    const cl_context_properties on[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)o->found[first].platform, 0};
    cl_device_id id[CLEF__MAX_DEVICES];
    int which[CLEF__MAX_DEVICES], n = 0;
    for (int i = first; i < o->n; i++)
        if (!o->context[i] && (i == first || may_share(ctx, &o->found[first], &o->found[i]))) {
            id[n] = o->found[i].id;
            which[n++] = i;
        }
    cl_int code = CL_SUCCESS;
    cl_context context = clCreateContext(on, (cl_uint)n, id, NULL, NULL, &code);
    if (!context) {
        char what[CLEF__LINE / 2];
        snprintf(what, sizeof what, "open: %s", o->found[first].info.name);
        clef__fail_code(ctx, code, what);
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (i) clRetainContext(context);
        o->context[which[i]] = context;
    }
    return true;
}

static bool open_all(clef_context *ctx, opening *o, const char *profile) {
    bool ok = true;
    for (int i = 0; ok && i < o->n; i++) ok = o->context[i] || make_context(ctx, o, i);
    for (int i = 0; ok && i < o->n; i++) ok = clef__device_open(ctx, &o->found[i], o->context[i], NULL, profile) != NULL;
    return ok;
}

/* A device that was begun holds its context. */
static void let_go(const opening *o) {
    for (int i = 0; i < o->n; i++)
        if (o->context[i]) clReleaseContext(o->context[i]);
}

clef_context *clef__context_open(const clef_options *options) {
    static const clef_options defaults = {0};
    if (!options) options = &defaults;
    clef__choice chosen[CLEF__MAX_DEVICES];
    int threads = clef__threads_wanted(options->threads);
    if (threads < 0) return NULL;
    int n = clef__devices_choose(options->device, chosen);
    if (n && !clef__has_room()) return NULL;
    clef_context *ctx = n ? clef__context_new(options) : NULL;
    if (!ctx) return NULL;
    opening o = {.n = 0};
    bool ok = divide_all(ctx, chosen, n, threads, &o) && open_all(ctx, &o, options->profile);
    let_go(&o);
    return ok ? ctx : clef__context_abandon(ctx);
}
