/* context.c — a context made and closed, and the small state that everything above shares; open.c opens its devices.

   A context closes from the top: the rooms' closers first (train … graph), then devices, then the cache and the
   trace. */
#include "runtime/runtime_internal.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */
static bool env_has(const char *name, const char *word) {
    const char *text = clef__env(name);
    return text && strstr(text, word) != NULL;
}

static bool env_off(const char *name) {
    const char *text = clef__env(name);
    return text && strcmp(text, "0") == 0;
}

/* By the option's word, or the variable's. */
static bool read_precision(const char *option, clef_matmul_precision *precision) {
    const char *variable = clef__env("CLEF_MATMUL_PRECISION"), *word = variable && *variable ? variable : "highest";
    if (option) word = option;
    *precision = strcmp(word, "high") == 0 ? CLEF_MATMUL_HIGH : CLEF_MATMUL_HIGHEST;
    if (*precision == CLEF_MATMUL_HIGH || strcmp(word, "highest") == 0) return true;
    clef__fail(NULL, CLEF_INVALID, "open: %s is \"%.80s\"; it is highest or high",
               option ? "matmul_precision" : "CLEF_MATMUL_PRECISION", word);
    return false;
}

/* An option that is 0 where the variable tells, and below 0 for none; false: the variable is wrong, and said so. */
static bool read_count(int option, const char *variable, int usual, int *count) {
    enum { MOST = 999999 };
    const char *text = option == 0 ? clef__env(variable) : NULL;
    char *end = NULL;
    *count = option > 0 ? option : option < 0 ? 0 : usual;
    if (!text || !*text) return true;
    long n = strtol(text, &end, 10);
    *count = (int)n;
    if (isdigit((unsigned char)*text) && !*end && n <= MOST) return true;
    clef__fail(NULL, CLEF_INVALID, "open: %s is \"%.40s\"; it is a whole number from 0 to %d", variable, text, MOST);
    return false;
}

enum { USUAL_IDLE = 256, WHEN_IT_PAYS = -1 };

clef_context *clef__context_new(const clef_options *options) {
    clef_matmul_precision precision;
    if (options->sum_units < 0) {
        clef__fail(NULL, CLEF_INVALID, "open: sum_units is %d; it is 1 or more, or 0 for as many as the device has",
                   options->sum_units);
        return NULL;
    }
    if (!read_precision(options->matmul_precision, &precision)) return NULL;
    if (options->plan_for && !clef__absent_known(options->plan_for)) return NULL;
    int idle, chain_after;
    if (!read_count(options->idle_programs, "CLEF_IDLE_PROGRAMS", USUAL_IDLE, &idle)) return NULL;
    if (!read_count(options->chain_after, "CLEF_CHAIN", WHEN_IT_PAYS, &chain_after)) return NULL;
    clef_context *ctx = clef__calloc(1, sizeof *ctx);
    if (!ctx) {
        clef__fail(NULL, CLEF_MEMORY, "open: out of host memory");
        return NULL;
    }
    pthread_mutex_init(&ctx->lock, NULL);
    atomic_store(&ctx->cleared, clef__moment()); /* what failed before in another context is tried again */
    ctx->eager = options->eager || clef__env_flag("CLEF_EAGER");
    ctx->debug_memory = options->debug_memory || env_has("CLEF_DEBUG", "memory");
    ctx->log = options->log;
    ctx->log_user = options->log_user;
    ctx->random.seed = options->seed;
    ctx->matmul_precision = precision;
    ctx->idle_programs = idle;
    ctx->sum_units = (uint32_t)options->sum_units;
    if (options->plan_for) snprintf(ctx->plan_for, sizeof ctx->plan_for, "%s", options->plan_for);
    ctx->no_tuning = options->no_tuning || options->plan_for || env_off("CLEF_TUNING");
    ctx->no_affinity = options->no_affinity || env_off("CLEF_AFFINITY");
    ctx->chain_after = chain_after;
    clef__cache_open(ctx, options->cache_dir);
    return clef__trace_open(ctx) == CLEF_OK ? ctx : clef__context_abandon(ctx);
}

clef_context *clef__context_abandon(clef_context *ctx) {
    clef__set_open_error(&ctx->error);
    clef_close(ctx);
    return NULL;
}

/* ---- closing ---- */
/* In a forked child and on a lost device the driver is not called: what it holds is left to it. */
static void close_device(clef__device *d) {
    bool alive = clef__alive(d);
    clef__staging_close(d);
    clef__pool_close(d);
    clef__codes_close(d);
    clef__programs_close(d);
    clef__visits_forget(d);
    clef__ahead_close(d);
    if (alive && d->visits) clReleaseCommandQueue(d->visits);
    if (alive && d->beside) clReleaseCommandQueue(d->beside);
    if (alive && d->compute) clReleaseCommandQueue(d->compute);
    if (alive && d->context) clReleaseContext(d->context);
    if (d->info.index < 0) clef__device_free_texts(&d->info); /* not of the list */
    clef__free(d);
}

bool clef__close(clef_context *ctx) {
    if (!ctx) return true;
    for (int i = 0; i < ctx->n_devices; i++) /* first: pocl takes long to release a kernel that is still queued */
        if (ctx->device[i]->compute && clef__alive(ctx->device[i])) clef__finish(ctx->device[i]);
    clef__help_end(ctx);
    bool rests = clef__porter_rests(ctx); /* a visit that nothing waits for still reads what its room holds */
    for (int r = CLEF__ROOMS - 1; r >= 0; r--)
        if (ctx->room[r].closer && (rests || r > CLEF__ROOM_GROUP)) ctx->room[r].closer(ctx, ctx->room[r].state);
    if (!rests) return false;
    clef__porter_close(ctx);
    clef__blas_close(ctx);
    clef__trace_close(ctx);
    for (int i = ctx->n_devices - 1; i >= 0; i--) close_device(ctx->device[i]);
    clef__tuning_free(&ctx->tuning);
    clef__cache_close(ctx);
    clef__free(ctx->build_log);
    pthread_mutex_destroy(&ctx->lock);
    clef__free(ctx);
    return true;
}

void clef_close(clef_context *ctx) { clef__close(ctx); }

/* ---- rooms ---- */
void *clef__room_state(const clef_context *ctx, clef__room room) { return ctx->room[room].state; }

void clef__set_room_state(clef_context *ctx, clef__room room, void *state, void (*closer)(clef_context *, void *)) {
    ctx->room[room].state = state;
    ctx->room[room].closer = closer;
}

void *clef__make_room_state(clef_context *ctx, clef__room room, size_t bytes, void (*closer)(clef_context *, void *)) {
    if (ctx->room[room].state) return ctx->room[room].state;
    void *state = clef__calloc(1, bytes);
    if (state) clef__set_room_state(ctx, room, state, closer);
    else clef__fail(ctx, CLEF_MEMORY, "context: no host memory for its own lists");
    return state;
}

bool clef__eager(const clef_context *ctx) { return ctx->eager; }

bool clef__debug_memory(const clef_context *ctx) { return ctx->debug_memory; }
const char *clef__plan_for(const clef_context *ctx) { return *ctx->plan_for ? ctx->plan_for : NULL; }

/* ---- precision ---- */
clef_status clef_set_matmul_precision(clef_context *ctx, clef_matmul_precision precision) {
    if (!ctx) return clef__fail(NULL, CLEF_INVALID, "set_matmul_precision: no context");
    if (precision != CLEF_MATMUL_HIGHEST && precision != CLEF_MATMUL_HIGH)
        return clef__fail(ctx, CLEF_INVALID, "set_matmul_precision: %d is neither CLEF_MATMUL_HIGHEST nor CLEF_MATMUL_HIGH",
                          (int)precision);
    ctx->matmul_precision = precision;
    return CLEF_OK;
}

clef_matmul_precision clef_get_matmul_precision(const clef_context *ctx) {
    return ctx ? ctx->matmul_precision : CLEF_MATMUL_HIGHEST;
}

/* ---- random numbers ---- */
void clef_seed(clef_context *ctx, uint64_t seed) {
    if (ctx) ctx->random = (clef_random_state){seed, 0};
}

clef_random_state clef_random_get(const clef_context *ctx) { return ctx ? ctx->random : (clef_random_state){0, 0}; }

void clef_random_set(clef_context *ctx, clef_random_state state) {
    if (ctx) ctx->random = state;
}

clef_random_state clef__random_take(clef_context *ctx, uint64_t count) {
    clef_random_state from = ctx->random;
    ctx->random.offset += count;
    return from;
}

/* ---- devices ---- */
int clef__context_devices(const clef_context *ctx) { return ctx->n_devices; }

clef__device *clef__device_at(const clef_context *ctx, int i) { return i >= 0 && i < ctx->n_devices ? ctx->device[i] : NULL; }

const clef_device_info *clef__device_info(const clef__device *device) { return &device->info; }

const clef_device_info *clef__device_planned(const clef__device *device) { return &device->planned; }

const clef__profile *clef__device_profile(const clef__device *device) { return &device->profile; }

int clef_context_device_count(const clef_context *ctx) { return ctx ? ctx->n_devices : 0; }

bool clef_context_device(const clef_context *ctx, int i, clef_device_info *info) {
    if (!ctx || !info || i < 0 || i >= ctx->n_devices) return false;
    *info = ctx->device[i]->info;
    return true;
}

clef_status clef_synchronize(clef_context *ctx) {
    if (!ctx) return CLEF_INVALID;
    clef_status status = CLEF_OK;
    for (int i = 0; i < ctx->n_devices; i++) {
        clef_status s = clef__finish(ctx->device[i]);
        if (status == CLEF_OK) status = s;
    }
    return status;
}

/* ---- figures ---- */
clef_counters *clef__counters(clef_context *ctx) { return &ctx->counters; }

clef_counters clef_counters_get(const clef_context *ctx) {
    clef_counters counters = ctx ? ctx->counters : (clef_counters){0};
    for (int i = 0; ctx && i < ctx->n_devices; i++) {
        clef__programs *programs = ctx->device[i]->programs;
        bool counted = false; /* parts of a device have theirs in common */
        for (int k = 0; k < i; k++) counted = counted || ctx->device[k]->programs == programs;
        if (programs && !counted) counters.programs += (uint64_t)atomic_load(&programs->loaded);
    }
    return counters;
}

void clef_on_compile(clef_context *ctx, clef_compile_fn fn, void *user) {
    if (!ctx) return;
    ctx->on_compile = fn;
    ctx->on_compile_user = user;
}

void clef__report_compile(clef_context *ctx, int done, int total) {
    if (ctx->on_compile) ctx->on_compile(ctx->on_compile_user, done, total);
}

clef_memory_info clef_memory(const clef_context *ctx) { return ctx ? ctx->memory : (clef_memory_info){0}; }

clef_memory_info clef_memory_of(const clef_context *ctx, int device) {
    const clef__device *d = ctx ? clef__device_at(ctx, device) : NULL;
    return d ? d->memory : (clef_memory_info){0};
}

void clef_memory_reset_peak(clef_context *ctx) {
    if (!ctx) return;
    ctx->memory.peak = ctx->memory.used;
    for (int i = 0; i < ctx->n_devices; i++) ctx->device[i]->memory.peak = ctx->device[i]->memory.used;
}
