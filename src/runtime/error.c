/* error.c — the first error of a context stays, as one line; errors before there is a context stay with their
   thread. Nothing is printed: lines go to the log callback, outside of any lock. */
#include "runtime/runtime_internal.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static _Thread_local clef__error open_error;

void clef__set_open_error(const clef__error *error) { open_error = *error; }

/* ---- fork ---- */
static atomic_bool started, stale; /* OpenCL was used here; …in the process this one was forked from */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void in_child(void) {
    if (atomic_load(&started)) atomic_store(&stale, true);
    clef__trace_after_fork();
}

static void watch_forks(void) { pthread_atfork(clef__trace_before_fork, clef__trace_after_fork, in_child); }

bool clef__forked(void) { return atomic_load_explicit(&stale, memory_order_relaxed); }

static const char after_fork[] = "OpenCL was started before fork and does not work in the child; start it after fork, or exec";

bool clef__start(void) {
    pthread_once(&fork_once, watch_forks);
    atomic_store(&started, true);
    if (clef__forked()) clef__fail(NULL, CLEF_STATE, "open: %s", after_fork);
    return !clef__forked();
}

bool clef__usable(clef_context *ctx) {
    if (!clef__forked()) return true;
    clef__fail(ctx, CLEF_STATE, "context: %s", after_fork);
    return false;
}

static bool is_lost(const clef__device *device) { return atomic_load_explicit(&device->lost, memory_order_relaxed); }

bool clef__alive(const clef__device *device) { return !is_lost(device) && !clef__forked(); }

bool clef__all_alive(const clef_context *ctx) {
    for (int i = 0; i < ctx->n_devices; i++)
        if (!clef__alive(ctx->device[i])) return false;
    return true;
}

/* A context goes on while it has one. */
static bool has_device(const clef_context *ctx) {
    for (int i = 0; i < ctx->n_devices; i++)
        if (!is_lost(ctx->device[i])) return true;
    return ctx->n_devices == 0;
}

/* The line of the loss may have been cleared since. */
clef_status clef__ready(clef__device *device) {
    if (clef__alive(device)) return device->unsettled ? clef__settle(device) : CLEF_OK;
    if (!clef__usable(device->ctx)) return CLEF_STATE;
    if (clef_error_status(device->ctx) == CLEF_LOST) return CLEF_LOST;
    return clef__fail(device->ctx, CLEF_LOST,
                      "%s was lost, and what lay there; what lies on other devices can be read and saved, and the rest needs a new "
                      "context",
                      clef__device_text(device).text);
}

/* ---- lines ---- */
/* Line breaks of drivers' texts would make two lines of one. */
static void one_line(char *line) {
    for (char *c = line; *c; c++)
        if (*c == '\n' || *c == '\r' || *c == '\t') *c = ' ';
}

static void keep(clef_context *ctx, clef_status status, const char *line) {
    if (!ctx) {
        open_error.status = status;
        snprintf(open_error.line, sizeof open_error.line, "%s", line);
        return;
    }
    pthread_mutex_lock(&ctx->lock);
    ctx->failures++;
    ctx->latest = status;
    bool breaks = status == CLEF_BUILD || status == CLEF_DEVICE || status == CLEF_LOST;
    if (breaks && ctx->broken == CLEF_OK) ctx->broken = status;
    if (ctx->error.status == CLEF_OK) {
        snprintf(ctx->error.line, sizeof ctx->error.line, "%s", line);
        ctx->error.status = status;
    }
    pthread_mutex_unlock(&ctx->lock);
    clef__log_line(ctx, CLEF_LOG_ERROR, "%s", line);
}

void clef__set_whereabouts(clef_context *ctx, void (*whereabouts)(clef_context *ctx, char *text, size_t size)) {
    ctx->whereabouts = whereabouts;
}

/* Is it about what the program asked for?  Other failures, such as of a device, may come from work of long before. */
static bool is_of_a_call(clef_status status) { return status == CLEF_INVALID || status == CLEF_SHAPE || status == CLEF_DTYPE; }

clef_status clef__fail(clef_context *ctx, clef_status status, const char *fmt, ...) {
    char line[CLEF__LINE], where[CLEF__LINE / 2] = "";
    if (ctx && ctx->whereabouts && is_of_a_call(status)) ctx->whereabouts(ctx, where, sizeof where);
    size_t room = sizeof line - strlen(where);
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, room, fmt, args);
    va_end(args);
    strcat(line, where);
    one_line(line);
    keep(ctx, status, line);
    return status;
}

uint64_t clef__failures(const clef_context *ctx) { return ctx->failures; }

clef_status clef__failed_since(const clef_context *ctx, uint64_t before) { return ctx->failures == before ? CLEF_OK : ctx->latest; }

clef_status clef__broken(const clef_context *ctx) { return ctx->broken; }

typedef struct cl_row {
    cl_int code;
    clef_status status;
    const char *name, *hint;
} cl_row;

static const cl_row *find_row(cl_int code) {
    static const cl_row rows[] = {
#define X(name, value, status, hint) {value, CLEF_##status, #name, hint},
#include "clerrors.def"
#undef X
    };
    static const cl_row other = {0, CLEF_DEVICE, "unknown OpenCL error", "the driver failed"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].code == code) return &rows[i];
    return &other;
}

const char *clef__cl_name(cl_int code) { return find_row(code)->name; }

clef_status clef__cl_status(cl_int code) { return find_row(code)->status; }

void clef__note_loss(clef__device *device, cl_int code) {
    const clef_context *ctx = device->ctx;
    if (clef__cl_status(code) != CLEF_LOST) return;
    for (int i = 0; i < ctx->n_devices; i++)
        if (ctx->device[i] == device || (code == CL_INVALID_CONTEXT && ctx->device[i]->context == device->context)) {
            atomic_store(&ctx->device[i]->lost, true);
            clef__context_lost(ctx->device[i]->context);
        }
}

clef_status clef__fail_code(clef_context *ctx, cl_int code, const char *what) {
    const cl_row *row = find_row(code);
    return clef__fail(ctx, row->status, "%s: %s (%d): %s", what, row->name, (int)code, row->hint);
}

clef_status clef__fail_cl(clef__device *device, cl_int code, const char *fmt, ...) {
    char what[CLEF__LINE / 2], which[24] = "", line[sizeof what + sizeof which];
    if (device) clef__note_loss(device, code);
    if (device && device->ctx->n_devices > 1) snprintf(which, sizeof which, " (device %d)", device->number);
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    snprintf(line, sizeof line, "%s%s", what, which);
    return clef__fail_code(device ? device->ctx : NULL, code, line);
}

clef__device_label clef__device_text(const clef__device *device) {
    clef__device_label label;
    if (device->ctx->n_devices == 1) snprintf(label.text, sizeof label.text, "%s", device->info.name);
    else snprintf(label.text, sizeof label.text, "device %d (%s)", device->number, device->info.name);
    return label;
}

void clef__log_line(clef_context *ctx, clef_log_level level, const char *fmt, ...) {
    if (!ctx || !ctx->log) return;
    char line[CLEF__LINE];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    one_line(line);
    ctx->log(ctx->log_user, level, line);
}

uint64_t clef__moment(void) {
    static atomic_uint_least64_t moments;
    return atomic_fetch_add(&moments, 1) + 1;
}

/* ---- public ---- */
const char *clef_error(const clef_context *ctx) { return ctx ? ctx->error.line : open_error.line; }

clef_status clef_error_status(const clef_context *ctx) { return ctx ? ctx->error.status : open_error.status; }

void clef_clear_error(clef_context *ctx) {
    if (!ctx) {
        open_error = (clef__error){0};
        return;
    }
    pthread_mutex_lock(&ctx->lock);
    if (has_device(ctx)) {
        ctx->error = (clef__error){0};
        ctx->broken = CLEF_OK;
    }
    atomic_store(&ctx->cleared, clef__moment());
    pthread_mutex_unlock(&ctx->lock);
}

const char *clef_build_log(const clef_context *ctx) { return ctx && ctx->build_log ? ctx->build_log : ""; }
