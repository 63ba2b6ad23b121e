/* devices_plan.c — clef devices --plan: how devices would share the batches of a model, and how fast they would train it together.

   All is measured in training steps of the model.  One device after the other takes the whole batch alone.  Then all compute at the same time, as
   they would in training, but each for itself: the whole batch, and an equal part of it.  A line through both gives the seconds of any
   number of items.  Shares are those with which the slowest is done first.  At last all train together with these shares. */
#include "devices_plan.h"
#include <stdlib.h>
#include <string.h>

enum { WARM = 2, LEAST_STEPS = 3, MOST_STEPS = 1000 };
#define SECONDS 0.5 /* of each measurement, at least */

/* What a rank tells the others: seconds of a step with the whole batch alone; beside the others with the whole batch, and with `items`. */
typedef struct trial {
    double alone, whole, part;
    int64_t items;
} trial;

/* ---- a measured trial ---- */

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of steps with so many items the time that a quarter needs no longer for, as what disturbs a step only makes it longer; negative where one
   failed.  steps: so many, or 0: as many as there is time for. */
static double usual_step(clef_context *ctx, workload *w, int64_t steps) {
    static _Thread_local double seconds[MOST_STEPS];
    int n = 0;
    double begun = tool_seconds();
    while (n < MOST_STEPS && (steps ? n < steps : n < LEAST_STEPS || tool_seconds() - begun < SECONDS)) {
        double begin = tool_seconds();
        if (workload_queue(ctx, w) || clef_synchronize(ctx)) return -1;
        seconds[n++] = tool_seconds() - begin;
    }
    qsort(seconds, (size_t)n, sizeof *seconds, by_size);
    return seconds[n / 4];
}

/* Of all ranks at the same time, or with turns of one after the other. */
static double measure(clef_context *ctx, clef_group *all, workload *w, int64_t items, bool turns, int64_t steps) {
    double seconds = 0;
    w->batch = items;
    for (int i = 0; i < WARM; i++)
        if (workload_queue(ctx, w)) return -1;
    if (clef_synchronize(ctx)) return -1;
    for (int turn = 0; turn < (turns ? clef_group_size(all) : 1) && seconds >= 0; turn++) {
        if (clef_group_barrier(all)) return -1;
        if (!turns || turn == clef_group_rank(all)) seconds = usual_step(ctx, w, steps);
    }
    return seconds < 0 || clef_group_barrier(all) ? -1 : seconds;
}

static bool try_model(clef_context *ctx, clef_group *all, const devices_plan *p, trial *t) {
    workload w = p->work;
    int64_t size = clef_group_size(all);
    t->items = p->batch / size > 0 ? p->batch / size : 1;
    if (!workload_model(&w, ctx)) return false;
    t->alone = measure(ctx, all, &w, p->batch, true, 0);
    t->whole = t->alone > 0 ? measure(ctx, all, &w, p->batch, false, 0) : -1;
    t->part = t->whole > 0 ? measure(ctx, all, &w, t->items, false, 0) : -1;
    return t->part > 0;
}

/* Of a step of all ranks together, which exchange their gradients.  All take as many steps: as the slowest has time for. */
static double try_together(clef_context *ctx, clef_group *all, const devices_plan *p, int64_t items, double expected) {
    workload w = p->work;
    double steps = SECONDS / expected;
    w.group = all;
    if (!workload_model(&w, ctx)) return -1;
    return measure(ctx, all, &w, items, false,
                   steps < LEAST_STEPS  ? LEAST_STEPS
                   : steps > MOST_STEPS ? MOST_STEPS
                                        : (int64_t)steps);
}

/* ---- shares ---- */

/* Seconds of a step with n items: on the line through both measurements, as far as that rises. */
static double seconds_of(const trial *t, int64_t batch, int64_t n) {
    if (n == 0) return 0;
    double each = batch > t->items ? (t->whole - t->part) / (double)(batch - t->items) : 0;
    double most = t->whole / (double)batch;
    if (each <= 0 || each > most) each = most; /* noise, or a driver that is faster with small batches */
    double fixed = t->whole - each * (double)batch;
    return fixed + each * (double)n;
}

/* One item after the other goes to the device that is done first with it. */
static void divide(const trial *t, int size, int64_t batch, int64_t *share) {
    for (int r = 0; r < size; r++) share[r] = 0;
    for (int64_t i = 0; i < batch; i++) {
        int best = 0;
        for (int r = 1; r < size; r++)
            if (seconds_of(&t[r], batch, share[r] + 1) < seconds_of(&t[best], batch, share[best] + 1)) best = r;
        share[best]++;
    }
}

/* ---- what is told ---- */

static double slowest(const trial *t, int size, int64_t batch, const int64_t *share) {
    double most = 0;
    for (int r = 0; r < size; r++)
        if (seconds_of(&t[r], batch, share[r]) > most) most = seconds_of(&t[r], batch, share[r]);
    return most;
}

/* What was found. */
typedef struct finding {
    const devices_plan *plan;
    clef_group *all;
    int size;
    trial *trial;   /* of each rank */
    int64_t *share; /* of each rank */
    double step;    /* seconds, of all together */
} finding;

static void rank_as_json(clef_group *all, int r, const devices_plan *p, const trial *t, int64_t share) {
    json j = json_begin(stdout);
    json_text(&j, "event", "device");
    json_whole(&j, "rank", r);
    json_text(&j, "name", clef_group_rank_name(all, r));
    json_number(&j, "seconds_alone", t->alone);
    json_number(&j, "items_per_second_alone", (double)p->batch / t->alone);
    json_whole(&j, "share", share);
    json_number(&j, "seconds", seconds_of(t, p->batch, share));
    json_end(&j);
}

static void as_json(const finding *f) {
    const devices_plan *p = f->plan;
    for (int r = 0; r < f->size; r++) rank_as_json(f->all, r, p, &f->trial[r], f->share[r]);
    json j = json_begin(stdout);
    json_text(&j, "event", "plan");
    json_text(&j, "model", p->work.model);
    json_whole(&j, "batch", p->batch);
    json_number(&j, "seconds_computing", slowest(f->trial, f->size, p->batch, f->share));
    json_number(&j, "seconds", f->step);
    json_number(&j, "items_per_second", (double)p->batch / f->step);
    json_end(&j);
}

/* The shares as --shares takes them: a run has no device without one. */
static void print_command(const finding *f) {
    const devices_plan *p = f->plan;
    for (int r = 0; r < f->size; r++)
        if (f->share[r] == 0) return;
    printf("clef train --data %s --model %s --batch %lld --devices %s --shares ", p->work.data.name, p->work.model,
           (long long)p->batch, p->list.devices);
    for (int r = 0; r < f->size; r++) printf("%s%lld", r ? ":" : "", (long long)f->share[r]);
    printf("\n");
}

static void as_text(const finding *f) {
    const devices_plan *p = f->plan;
    double batch = (double)p->batch, best = 0;
    printf("%s, batch %lld\n", p->work.model, (long long)p->batch);
    printf("%9s %9s %7s %9s\n", "alone ms", "items/s", "share", "its ms");
    for (int r = 0; r < f->size; r++) {
        const trial *t = &f->trial[r];
        if (batch / t->alone > best) best = batch / t->alone;
        tool_line(stdout, "%9.2f %9.0f %7lld %9.2f  %s", 1e3 * t->alone, batch / t->alone, (long long)f->share[r],
                  1e3 * seconds_of(t, p->batch, f->share[r]), clef_group_rank_name(f->all, r));
    }
    if (f->size == 1) return;
    printf("%9.2f %9.0f %7lld %9.2f  together: %.2f times the fastest\n", 1e3 * f->step, batch / f->step, (long long)p->batch,
           1e3 * slowest(f->trial, f->size, p->batch, f->share), batch / f->step / best);
    print_command(f);
}

static bool find(finding *f, clef_context *ctx) {
    int rank = clef_group_rank(f->all);
    trial own = {0};
    if (!try_model(ctx, f->all, f->plan, &own) || clef_group_gather_bytes(f->all, &own, f->trial, sizeof own)) return false;
    divide(f->trial, f->size, f->plan->batch, f->share);
    f->step = try_together(ctx, f->all, f->plan, f->share[rank], slowest(f->trial, f->size, f->plan->batch, f->share));
    return f->step > 0;
}

int devices_plan_rank(clef_context *ctx, clef_group *all, void *user) {
    const devices_plan *p = user;
    finding f = {.plan = p, .all = all, .size = clef_group_size(all)};
    f.trial = calloc((size_t)f.size, sizeof *f.trial);
    f.share = calloc((size_t)f.size, sizeof *f.share);
    bool ok = f.trial && f.share && find(&f, ctx);
    if (ok && clef_group_rank(all) == 0) (p->common->json ? as_json : as_text)(&f);
    free(f.trial);
    free(f.share);
    return ok ? EXIT_OK : EXIT_FAILED;
}
