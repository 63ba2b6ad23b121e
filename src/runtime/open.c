/* open.c — contexts that are opened together, and their devices: what was chosen, divided into parts, and opened.

   Devices of one platform share an OpenCL context where their driver is known to stand events between their queues (probe.c): then
   one waits for another without the host, copies go straight from one to the other, and what is compiled for one part of a device
   is for all.  Others have a context each.  A device that is open already shares its OpenCL context with who opens it once more. */
#include "runtime/probe.h"
#include <stdio.h>
#include <string.h>

/* ---- one device ---- */

static void build_options(clef__device *d) {
    char text[128] = "";
    int major = 0, minor = 0;
    clGetDeviceInfo(d->id, CL_DEVICE_OPENCL_C_VERSION, sizeof text - 1, text, NULL);
    bool has_12 = sscanf(text, "OpenCL C %d.%d", &major, &minor) == 2 && major * 10 + minor >= 12;
    /* so that a compute unit of 65,536 registers holds two work-groups of 256; kernels are told (GROUP_OF in cl/args.h) */
    bool limits_registers = clef__has_word(d->info.extensions, "cl_nv_compiler_options");
    snprintf(d->options, sizeof d->options, "%s%s%s -DCLEF_LANES=%d", has_12 ? "-cl-std=CL1.2" : "",
             d->info.f64 ? " -DCLEF_F64=1" : "", limits_registers ? " -cl-nv-maxrregcount=128 -DCLEF_REGISTERS=128" : "",
             d->profile.vector);
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

clef__device *clef__device_open(clef_context *ctx, const clef__found *found, cl_context context, cl_command_queue queue,
                                const char *profile, unsigned opening) {
    clef__device *d = clef__calloc(1, sizeof *d);
    if (!d) {
        clef__fail(ctx, CLEF_MEMORY, "open: out of host memory");
        return NULL;
    }
    d->ctx = ctx;
    d->number = ctx->n_devices;
    d->opening = opening;
    d->id = found->id;
    d->divided = found->divided;
    d->units = found->units;
    d->info = found->info;
    if (*ctx->plan_for) clef__absent_take(d, ctx->plan_for);
    d->planned = d->info;
    if (ctx->sum_units) d->planned.compute_units = ctx->sum_units;
    ctx->device[ctx->n_devices++] = d;
    if (!choose_profile(d, profile)) return NULL;
    build_options(d);
    d->saving = clef__cache_saving(d);
    d->crowded = clef__cores_crowded(found);
    if (d->crowded)
        clef__log_line(ctx, CLEF_LOG_INFO,
                       "open: %s may have more threads than this process has cores; CLEF_CHAIN chains its launches", d->info.name);
    d->large_pages = clef__driver_of(&d->info).large_pages && !ctx->debug_memory; /* checkers know the driver's memory, not ours */
    cl_int code = clRetainContext(context);
    if (code == CL_SUCCESS) d->context = context;
    if (code == CL_SUCCESS && !queue) d->compute = clef__queue_new(d, 0, &code);
    else if (code == CL_SUCCESS && (code = clRetainCommandQueue(queue)) == CL_SUCCESS) {
        d->compute = queue;
        d->shared = true;
    }
    if (code == CL_SUCCESS) return d;
    clef__fail_cl(d, code, "open: %s", d->info.name);
    return NULL;
}

/* ---- which devices ---- */

/* A device or a part of one. */
typedef struct chosen {
    clef_context *ctx; /* that it was chosen for, */
    int number;        /* its place among those that are opened together, */
    const char *profile;
    bool isolated;
    clef__found found;
    cl_context context; /* several may have the same, */
    bool joins, owns;   /* this one is about to get it; it was made for this one */
} chosen;

/* Those of all contexts that are opened together, one context's after the other's. */
typedef struct opening {
    chosen *all;
    int n;
    unsigned number; /* from 1 */
    bool shares;     /* one whole device, which may be opened again */
} opening;

static bool divide_all(clef_context *ctx, const clef__choice *choice, int n, int threads, clef__found *found, int *n_found) {
    const clef__found *list;
    clef__devices(&list);
    for (int i = 0; i < n; i++) {
        clef__choice parts = choice[i];
        const clef__found *whole = &list[parts.index];
        if (parts.parts == 0) clef__threads_choose(threads, &whole->info, &parts);
        int made = clef__device_divide(ctx, whole, &parts, &found[*n_found]);
        if (made == 0) return false;
        *n_found += made;
    }
    return true;
}

/* A context whose devices are chosen but not open; NULL after clef__fail. */
static clef_context *begin(opening *o, const clef_options *options, int number) {
    clef__choice choice[CLEF__MAX_DEVICES];
    clef__found found[CLEF__MAX_DEVICES];
    int threads = clef__threads_wanted(options->threads), n_found = 0;
    if (threads < 0) return NULL;
    int n = clef__devices_choose(options->device, choice);
    if (n && !clef__has_room()) return NULL;
    clef_context *ctx = n ? clef__context_new(options) : NULL;
    if (ctx && !divide_all(ctx, choice, n, threads, found, &n_found)) return clef__context_abandon(ctx);
    for (int i = 0; i < n_found; i++)
        o->all[o->n++] =
            (chosen){.ctx = ctx, .number = number, .profile = options->profile, .isolated = options->isolated, .found = found[i]};
    return ctx;
}

/* ---- what they share ---- */

/* ask: if nobody knows yet, clef-probe has to find out. */
static bool may_share(const chosen *a, const chosen *b, bool ask) {
    return a->found.platform == b->found.platform && (a->ctx == b->ctx || !(a->isolated || b->isolated)) &&
           clef__probe_events(a->ctx, &a->found, &b->found, ask) == CLEF_VERDICT_YES;
}

/* Adds it unless it is there; false when there is no room. */
static bool add_id(cl_device_id id[CLEF__MAX_SHARING], cl_uint *n, cl_device_id added) {
    for (cl_uint i = 0; i < *n; i++)
        if (id[i] == added) return true;
    if (*n == CLEF__MAX_SHARING) return false;
    id[(*n)++] = added;
    return true;
}

/* Is all that is opened one whole device, for anybody? */
static bool is_common(const opening *o) {
    bool common = true;
    for (int i = 0; i < o->n; i++)
        common = common && !o->all[i].isolated && !o->all[i].found.divided && o->all[i].found.id == o->all[0].found.id;
    return common;
}

/* The OpenCL context in which another opening has the device, so that nothing is compiled twice and a GPU's own context is there once;
   retained, NULL where there is none that works, or nobody knows yet whether the driver stands it. */
static cl_context join(const chosen *c) {
    cl_context context = may_share(c, c, false) ? clef__context_in_use(c->found.id) : NULL;
    if (!context) return NULL;
    cl_int code;
    cl_command_queue queue = clCreateCommandQueue(context, c->found.id, 0, &code);
    if (queue) {
        code = clFinish(queue);
        clReleaseCommandQueue(queue);
    }
    if (code == CL_SUCCESS) return context;
    clef__context_lost(context);
    clReleaseContext(context);
    return NULL;
}

/* One OpenCL context for device `first` and those behind it that may share one with it: what one of them makes others can use. */
static bool make_context(opening *o, int first) {
    const cl_context_properties on[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)o->all[first].found.platform, 0};
    cl_device_id id[CLEF__MAX_SHARING];
    cl_uint n = 0;
    for (int i = first; i < o->n; i++) {
        chosen *c = &o->all[i];
        c->joins = !c->context && (i == first || may_share(&o->all[first], c, true)) && add_id(id, &n, c->found.id);
    }
    cl_int code = CL_SUCCESS;
    cl_context context = o->shares ? join(&o->all[first]) : NULL;
    if (!context) context = clCreateContext(on, n, id, NULL, NULL, &code);
    if (!context) {
        char what[CLEF__LINE / 2];
        snprintf(what, sizeof what, "open: %s", o->all[first].found.info.name);
        clef__fail_code(o->all[first].ctx, code, what);
        return false;
    }
    o->all[first].owns = true;
    for (int i = first; i < o->n; i++)
        if (o->all[i].joins) o->all[i].context = context;
    return true;
}

static bool open_device(const opening *o, chosen *c) {
    clef__device *d = clef__device_open(c->ctx, &c->found, c->context, NULL, c->profile, o->number);
    return d && clef__programs_open(d, o->shares);
}

/* ---- cores ---- */

/* What is opened of each device, by all contexts. */
static void bind_cores(const opening *o) {
    for (int i = 0; i < o->n; i++) {
        uint32_t units = 0;
        for (int k = 0; k < o->n; k++)
            if (o->all[k].found.whole == o->all[i].found.whole) units += o->all[k].found.info.compute_units;
        clef__cores_bind(o->all[i].ctx, &o->all[i].found, units);
    }
}

/* ---- all or none ---- */

/* The number of the context that failed, or n.  Those that were made are in ctx. */
static int open_contexts(opening *o, const clef_options *options, int n, clef_context **ctx) {
    static const clef_options defaults = {0};
    for (int i = 0; i < n; i++)
        if (!(ctx[i] = begin(o, options ? &options[i] : &defaults, i))) return i;
    o->shares = is_common(o);
    for (int i = 0; i < o->n; i++)
        if (!o->all[i].context && !make_context(o, i)) return o->all[i].number;
    for (int i = 0; i < o->n; i++)
        if (!open_device(o, &o->all[i])) return o->all[i].number;
    bind_cores(o);
    return n;
}

clef_status clef__context_abandon_all(clef_context **ctx, int n, int failed) {
    clef__error why = {clef_error_status(ctx[failed]), ""};
    snprintf(why.line, sizeof why.line, "%s", clef_error(ctx[failed]));
    for (int i = 0; i < n; i++) {
        clef_close(ctx[i]);
        ctx[i] = NULL;
    }
    if (n == 1) clef__set_open_error(&why);
    else clef__fail(NULL, why.status, "open_all: ctx[%d]: %s", failed, why.line);
    return why.status;
}

clef_status clef__context_open_all(const clef_options *options, int n, clef_context **ctx) {
    static atomic_uint count;
    opening o = {.all = clef__calloc((size_t)n, CLEF__MAX_DEVICES * sizeof *o.all), .number = atomic_fetch_add(&count, 1) + 1};
    for (int i = 0; i < n; i++) ctx[i] = NULL;
    if (!o.all) return clef__fail(NULL, CLEF_MEMORY, "%s: out of host memory", n > 1 ? "open_all" : "open");
    int failed = open_contexts(&o, options, n, ctx);
    for (int i = 0; i < o.n; i++) /* a device that was begun holds its context */
        if (o.all[i].owns) clReleaseContext(o.all[i].context);
    clef__free(o.all);
    return failed < n ? clef__context_abandon_all(ctx, n, failed) : CLEF_OK;
}
