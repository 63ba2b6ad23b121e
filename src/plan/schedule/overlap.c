/* overlap.c — the order of a plan's launches where it has several devices.

   The program's order runs one micro-batch after the other, through all devices and back.  A queue is in order, so a device would wait
   there for what another still computes while it could begin the next micro-batch.  So launches are put in the order in which they could
   start if each took the time that its bytes and operations take by the nominal facts of its device: of those that all they
   need was issued for, the one that can start first, and of several the one that comes first in the program.  This is list scheduling
   (R. L. Graham, Bounds on multiprocessing timing anomalies, 1969); with equal stages it comes to the pipeline of one forward,
   one backward.  No order changes a bit of a result. */
#include "plan/lower/cost.h"
#include "plan/schedule/schedule.h"

#include <math.h>

enum { QUEUES = 2 * CLEF__MAX_DEVICES, NONE = -1 };

typedef struct pair {
    int before, after;
} pair;

/* Who read a value since it was last written; lists of these. */
typedef struct reader {
    int launch, next;
} reader;

typedef struct access {
    int writer, readers;
} access;

typedef struct task {
    double ready, seconds; /* ready: when all it needs has ended */
    int queue, waits_for;  /* waits_for: how many that were not issued yet */
    int first_user;        /* among the pairs, which are sorted by `before` */
} task;

typedef struct overlap {
    clef__plan *plan;
    clef_context *ctx;
    access *of; /* values */
    reader *reader;
    int n_readers, reader_capacity;
    pair *pair;
    int n_pairs, pair_capacity;
    task *task; /* launches */
    int *order, *ready, n_ready;
    int visit; /* the last so far; NONE */
    bool failed;
} overlap;

/* ---- what comes before what ---- */

static void add_pair(overlap *o, int before, int after) {
    if (o->failed || before == NONE || before == after) return;
    o->failed = !clef__grow(&o->pair, o->n_pairs, &o->pair_capacity, sizeof *o->pair);
    if (!o->failed) o->pair[o->n_pairs++] = (pair){before, after};
}

static void after_readers(overlap *o, int value, int after) {
    for (int r = o->of[value].readers; r != NONE; r = o->reader[r].next) add_pair(o, o->reader[r].launch, after);
}

/* Behind the visit before it, those whose results it reads, those that read what it overwrites, and those that read what it may take the
   memory of: in another order it could not, and a parameter would need room twice. */
static void note_needs(overlap *o, int i) {
    const clef__launch *launch = &o->plan->launch[i];
    if (clef__is_visit(launch)) {
        add_pair(o, o->visit, i);
        o->visit = i;
    }
    for (int a = 0; a < launch->n_args; a++) {
        if (launch->arg[a].kind != CLEF__ARG_TENSOR) continue;
        const clef__value *value = &o->plan->value[launch->arg[a].value];
        add_pair(o, o->of[launch->arg[a].value].writer, i);
        if (!launch->arg[a].writes) continue;
        after_readers(o, launch->arg[a].value, i);
        for (int c = 0; c < value->n_candidates; c++)
            if (clef__may_continue(value, &o->plan->value[value->candidate[c]])) after_readers(o, value->candidate[c], i);
    }
}

static void note_accesses(overlap *o, int i) {
    const clef__launch *launch = &o->plan->launch[i];
    for (int a = 0; a < launch->n_args; a++)
        if (launch->arg[a].kind == CLEF__ARG_TENSOR && launch->arg[a].writes) o->of[launch->arg[a].value] = (access){i, NONE};
    for (int a = 0; a < launch->n_args && !o->failed; a++) {
        if (launch->arg[a].kind != CLEF__ARG_TENSOR || launch->arg[a].writes) continue;
        o->failed = !clef__grow(&o->reader, o->n_readers, &o->reader_capacity, sizeof *o->reader);
        if (o->failed) return;
        o->reader[o->n_readers] = (reader){i, o->of[launch->arg[a].value].readers};
        o->of[launch->arg[a].value].readers = o->n_readers++;
    }
}

/* By `before`, stably: a counting sort. */
static void sort_pairs(overlap *o) {
    int n = o->plan->n_launches;
    pair *sorted = clef__alloc(((size_t)o->n_pairs + 1) * sizeof *sorted);
    if (!sorted) {
        o->failed = true;
        return;
    }
    for (int p = 0; p < o->n_pairs; p++) {
        o->task[o->pair[p].before + 1].first_user++;
        o->task[o->pair[p].after].waits_for++;
    }
    for (int i = 0; i < n; i++) o->task[i + 1].first_user += o->task[i].first_user;
    for (int p = 0; p < o->n_pairs; p++) sorted[o->task[o->pair[p].before].first_user++] = o->pair[p];
    for (int i = n; i > 0; i--) o->task[i].first_user = o->task[i - 1].first_user;
    o->task[0].first_user = 0;
    clef__free(o->pair);
    o->pair = sorted;
}

/* ---- how long it takes ---- */

static bool is_copy(const clef__launch *launch) {
    return launch->kind == CLEF__LAUNCH_COPY || launch->kind == CLEF__LAUNCH_FETCH || launch->kind == CLEF__LAUNCH_STORE;
}

static double seconds_of(const overlap *o, const clef__launch *launch) {
    const clef__device *device = clef__device_at(o->ctx, launch->device);
    double bytes = 0;
    for (int a = 0; a < launch->n_args; a++)
        if (launch->arg[a].kind == CLEF__ARG_TENSOR) bytes += (double)o->plan->value[launch->arg[a].value].bytes;
    return clef__device_profile(device)->launch_us * 1e-6 + clef__nominal_seconds(device, launch->flops, bytes);
}

static void note_tasks(overlap *o) {
    for (int i = 0; i < o->plan->n_launches; i++) {
        const clef__launch *launch = &o->plan->launch[i];
        o->task[i].queue = launch->device + (is_copy(launch) || launch->beside ? CLEF__MAX_DEVICES : 0);
        o->task[i].seconds = seconds_of(o, launch);
    }
}

/* ---- the order ---- */

/* The one of those that are ready that can start first. */
static int next_of(const overlap *o, const double free_at[QUEUES], double *start) {
    int best = NONE;
    for (int r = 0; r < o->n_ready; r++) {
        const task *t = &o->task[o->ready[r]];
        double at = fmax(t->ready, free_at[t->queue]);
        if (best == NONE || at < *start || (at == *start && o->ready[r] < o->ready[best])) {
            best = r;
            *start = at;
        }
    }
    return best;
}

static void issue_all(overlap *o) {
    double free_at[QUEUES] = {0};
    int n = o->plan->n_launches;
    for (int i = 0; i < n; i++)
        if (o->task[i].waits_for == 0) o->ready[o->n_ready++] = i;
    for (int k = 0; k < n; k++) {
        double start = 0;
        int r = next_of(o, free_at, &start), i = o->ready[r];
        o->ready[r] = o->ready[--o->n_ready];
        o->order[k] = i;
        double end = free_at[o->task[i].queue] = start + o->task[i].seconds;
        for (int p = o->task[i].first_user; p < o->task[i + 1].first_user; p++) {
            task *user = &o->task[o->pair[p].after];
            user->ready = fmax(user->ready, end);
            if (--user->waits_for == 0) o->ready[o->n_ready++] = o->pair[p].after;
        }
    }
}

static void reorder(overlap *o) {
    clef__plan *plan = o->plan;
    clef__launch *ordered = clef__alloc(((size_t)plan->n_launches + 1) * sizeof *ordered);
    o->failed = !ordered;
    if (!ordered) return;
    for (int k = 0; k < plan->n_launches; k++) ordered[k] = plan->launch[o->order[k]];
    clef__free(plan->launch);
    plan->launch = ordered;
    plan->launch_capacity = plan->n_launches + 1;
}

static void overlap_all(overlap *o) {
    for (int v = 0; v < o->plan->n_values; v++) o->of[v] = (access){NONE, NONE};
    for (int i = 0; i < o->plan->n_launches; i++) {
        note_needs(o, i);
        note_accesses(o, i);
    }
    if (!o->failed) sort_pairs(o);
    if (o->failed) return;
    note_tasks(o);
    issue_all(o);
    reorder(o);
}

/* Copies between them may be left out (seen.c). */
static bool has_several_devices(const clef__plan *plan) {
    for (int i = 1; i < plan->n_launches; i++)
        if (plan->launch[i].device != plan->launch[0].device) return true;
    return false;
}

bool clef__overlap(clef__plan *plan, clef_context *ctx) {
    if (!has_several_devices(plan)) return true;
    overlap o = {.plan = plan, .ctx = ctx, .visit = NONE};
    size_t n = (size_t)plan->n_launches + 1;
    o.of = clef__alloc(((size_t)plan->n_values + 1) * sizeof *o.of);
    o.task = clef__calloc(n, sizeof *o.task);
    o.order = clef__alloc(n * sizeof *o.order);
    o.ready = clef__alloc(n * sizeof *o.ready);
    o.failed = !o.of || !o.task || !o.order || !o.ready;
    if (!o.failed) overlap_all(&o);
    clef__free(o.of);
    clef__free(o.reader);
    clef__free(o.pair);
    clef__free(o.task);
    clef__free(o.order);
    clef__free(o.ready);
    return !o.failed;
}
