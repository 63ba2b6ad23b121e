/* predict.c — clef bench --predict: how long cases would take on a GPU that is not here, by its row of cl/devices.def.

   The context plans for that device (clef_options.plan_for), so the launches are those that it would get.  Each takes

       max(multiply-adds / rate, bytes / bandwidth) + start

   rate: of the compute unit that has most work-groups, ⌈groups / units⌉, the least of what it multiplies, what it issues (loops.def tells
   how many instructions go with a multiply-add), what its local memory delivers, and what so many work-items keep in flight: each of
   their sums waits LATENCY cycles for itself; of that, what such a loop was seen to reach.  Bytes are those of the operands and
   results, each once, from memory.

   What it leaves out: work-items that go along memory alone, operands that are read again or are still in a cache, clocks that change. */
#include "bench.h"
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

enum { LATENCY = 4, HALF_EACH = 64 }; /* HALF_EACH: `each` of half types on matrix units */

typedef struct loop {
    const char *kernel;
    double sums, registers, each, nvidia, other, bytes, reached;
} loop;

typedef struct gpu {
    const char *key, *name;
    double units, mhz, in_step;
    size_t issued; /* where a loop has its instructions */
    double fma, matrix, gb_per_second, registers, items, groups, launch_us, issue, local_bytes;
} gpu;

static const gpu gpus[] = {
#define DEVICE(key, platform, name, extensions, units, mhz, gib, kib, dedicated, in_step, group, lanes, target, loops, fma, \
               matrix, gb_per_second, mib, registers, items, groups, unit_kib, launch_us, issue, local_bytes)               \
    {#key,  name,   units,     mhz,   in_step,    offsetof(loop, loops), fma, matrix, gb_per_second, registers,             \
     items, groups, launch_us, issue, local_bytes},
#include "../../cl/devices.def"
#undef DEVICE
};
enum { GPUS = sizeof gpus / sizeof *gpus };

static const loop loops[] = {
#define LOOP(...) {__VA_ARGS__},
#include "loops.def"
#undef LOOP
};

/* On matrix units f32 has rows of its own. */
static const loop *loop_of(const char *kernel, bool tf32) {
    char name[64];
    const loop *l = loops;
    snprintf(name, sizeof name, "%.50s%s", kernel, tf32 && bench_by_units(kernel) ? "_tf32" : "");
    while (*l->kernel && strcmp(l->kernel, name)) l++;
    return l;
}

const char *bench_gpus(void) {
    static const char keys[] =
#define DEVICE(key, ...) ", " #key
#include "../../cl/devices.def"
#undef DEVICE
        ;
    return keys + strlen(", ");
}

static const gpu *gpu_of(const char *key_or_name) {
    for (int i = 0; i < GPUS; i++)
        if (!strcasecmp(gpus[i].key, key_or_name) || !strcmp(gpus[i].name, key_or_name)) return &gpus[i];
    return NULL;
}

const char *bench_predicted(const char *key_or_name) {
    const gpu *g = gpu_of(key_or_name);
    return g ? g->key : NULL;
}

/* ---- one launch ---- */
/* Work-groups that a compute unit holds at a time. */
static double resident(const gpu *g, const loop *l, double items) {
    return fmax(1, floor(fmin(fmin(g->groups, g->items / items), g->registers / (items * l->registers))));
}

static double instructions(const gpu *g, const loop *l) { return *(const double *)((const char *)l + g->issued); }

/* Multiply-adds of a compute unit per cycle with so many work-items on it.  An instruction of matrix units takes as long for TF32 as for
   half types, and does half as many. */
static double rate_of(const gpu *g, const loop *l, double items) {
    double rate = l->each > 1 ? g->matrix * l->each / HALF_EACH : g->fma;
    rate = fmin(rate, g->issue * l->each / instructions(g, l));
    if (l->bytes > 0) rate = fmin(rate, g->local_bytes / l->bytes);
    return l->reached * fmin(rate, items * l->sums / LATENCY);
}

static double issue_seconds(const gpu *g, const clef_planned_launch *launch, bool tf32) {
    const loop *l = loop_of(launch->kernel, tf32);
    double items = (double)(launch->local[0] * launch->local[1] * launch->local[2]);
    double groups = (double)launch->global[0] * (double)launch->global[1] * (double)launch->global[2] / items;
    double busiest = ceil(groups / g->units), full = ceil(items / g->in_step) * g->in_step;
    double rate = rate_of(g, l, items * fmin(busiest, resident(g, l, full)));
    return busiest * (launch->flops / 2 / groups) / (rate * g->mhz * 1e6);
}

/* ---- one case ---- */
typedef struct total {
    const gpu *g;
    bool tf32;                        /* products of f32 on matrix units */
    double seconds, starts, by_bytes; /* by_bytes: of launches that wait for memory */
    int launches;
} total;

static void add_launch(void *user, const clef_planned_launch *launch) {
    if (launch->prepares) return;
    total *t = user;
    double issue = issue_seconds(t->g, launch, t->tf32), memory = launch->bytes / (t->g->gb_per_second * 1e9);
    t->launches++;
    t->starts += t->g->launch_us * 1e-6;
    t->seconds += fmax(issue, memory) + t->g->launch_us * 1e-6;
    if (memory >= issue) t->by_bytes += memory;
}

/* The roof consists of what the maker publishes. */
static bool make_roof(const gpu *g, const bench_case *c, bench_point *p) {
    bool peak = !strcmp(c->suite, "fma");
    if (!peak && strcmp(c->suite, "copy")) return false;
    p->seconds = peak ? c->flops / (2 * g->fma * g->units * g->mhz * 1e6) : c->bytes / (g->gb_per_second * 1e9);
    return true;
}

bool bench_predict(clef_context *ctx, const bench_case *c, const char *key, bench_point *p, char *why, size_t size) {
    total t = {.g = gpu_of(key), .tf32 = !c->half && (c->tf32 || clef_get_matmul_precision(ctx) == CLEF_MATMUL_HIGH)};
    if (!bench_plan(ctx, c, add_launch, &t, p)) return false;
    snprintf(why, size, "as published");
    if (!make_roof(t.g, c, p)) {
        double peak = (t.tf32 ? 1 : 2) * t.g->matrix * t.g->units * t.g->mhz * 1e6, started = 100 * t.starts / t.seconds;
        p->seconds = t.seconds;
        int used = snprintf(why, size, "%d launch%s, %.0f %% starting, %.0f %% memory", t.launches, t.launches == 1 ? "" : "es",
                            started, 100 * t.by_bytes / t.seconds);
        if ((c->half || c->tf32) && peak > 0)
            snprintf(why + used, size - (size_t)used, ", %.0f %% of the matrix units", 100 * p->flops / peak / p->seconds);
    }
    p->rate = bench_rate(c, p);
    return true;
}
