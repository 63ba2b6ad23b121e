/* tune.c — clef_tune: finds the benchmarks in the user's work by a dry run, measures them one by one and saves what is best. */
#include "plan/tune/tune.h"

#include <stdio.h>
#include <stdlib.h>

static const double default_budget = 60, least_share = 4; /* seconds: a search in less is not worth its compiling */
enum { LIBRARY_SHARE = 10 };                              /* a library's first call may take one part of so many of the budget */
enum { SHARES = 3 }; /* of an even part of what is left may go to one benchmark: those with most work come first */

/* ---- what there is to choose ---- */

static int by_work(const void *a, const void *b) {
    double x = ((const clef__benchmark *)a)->work, y = ((const clef__benchmark *)b)->work;
    return (x < y) - (x > y);
}

static clef_status find_benchmarks(clef_context *ctx, clef__plans *plans, const clef_tune_options *options,
                                   clef__benchmarks *found) {
    uint64_t before = clef__failures(ctx);
    clef_set_dry_run(ctx, true);
    plans->selection.note = clef__benchmark_note;
    plans->selection.user = found;
    clef_status status = options->work(ctx, options->user);
    plans->selection.note = NULL;
    clef_set_dry_run(ctx, false);
    if (status == CLEF_OK) status = clef__failed_since(ctx, before);
    if (status == CLEF_OK && found->failed) status = clef__fail(ctx, CLEF_MEMORY, "tune: no host memory");
    if (found->n) qsort(found->benchmark, (size_t)found->n, sizeof *found->benchmark, by_work);
    return status;
}

/* ---- measuring ---- */

typedef struct tuner {
    clef_context *ctx;
    const clef_tune_options *options;
    clef_tune_result result;
    int done;
    double begin, end;
    double pace; /* the best of the measured times in floors: how far this device is from its peak; 0: not known yet */
} tuner;

static bool report(const tuner *t, const clef__search *s, bool finished) {
    char name[256], best[128];
    const clef__tuning_key *c = &s->benchmark->key;
    const clef__candidate *fastest = clef__search_best(s);
    if (!t->options->on_progress) return true;
    snprintf(name, sizeof name, "%s %s %s", c->family->name, clef_dtype_name(c->dtype), c->bucket);
    clef__knobs_text(c->family, &fastest->knobs, best, sizeof best);
    clef_tune_progress p = {.done = t->done,
                            .total = t->result.benchmarks,
                            .benchmark = name,
                            .best = best,
                            .seconds = fastest->seconds,
                            .default_seconds = s->standard.seconds,
                            .tried = s->tried,
                            .wrong = s->wrong,
                            .finished = finished,
                            .spent = clef__now() - t->begin};
    return t->options->on_progress(t->options->user, &p);
}

static bool report_candidate(void *user, const clef__search *s) { return report(user, s, false); }

static int64_t nanoseconds(double seconds) { return (int64_t)(seconds * 1e9 + 0.5); }

/* A benchmark is done when it was searched to the end, or something better was found. */
static clef_status keep(tuner *t, const clef__search *s, bool whole) {
    const clef__candidate *best = clef__search_best(s);
    if (best == &s->standard && !s->standard_right)
        clef__log_line(t->ctx, CLEF_LOG_WARNING, "tune: %s %s: no knobs were found that give right numbers; try another driver",
                       s->benchmark->key.family->name, s->benchmark->key.bucket);
    if (best == &s->standard && !(whole && s->standard_right)) return CLEF_OK;
    clef__tuned found = clef__tuning_key_result(&s->benchmark->key, &best->knobs);
    found.ns = nanoseconds(best->seconds);
    found.default_ns = nanoseconds(s->standard.seconds);
    t->result.tuned++;
    t->result.improved += best != &s->standard;
    return clef__tuned_keep(clef__device_at(t->ctx, s->benchmark->key.device), &found, 1);
}

/* Seconds that a benchmark may take. */
static double share_of(const tuner *t) {
    double rest = t->end - clef__now(), share = rest * SHARES / (t->result.benchmarks - t->done);
    if (share < least_share) share = least_share;
    return share < rest ? share : rest;
}

static void note_pace(tuner *t, const clef__search *s) {
    double floor = clef__benchmark_floor(t->ctx, s->benchmark), pace = floor > 0 ? s->standard.seconds / floor : 0;
    if (pace > 0 && (t->pace == 0 || pace < t->pace)) t->pace = pace;
}

static clef_status search(tuner *t, clef__search *s) {
    note_pace(t, s);
    if (s->stopped) return CLEF_OK; /* it takes too long: left */
    int before = t->result.tuned;
    clef__search_run(s);
    clef_status status = keep(t, s, !s->stopped && clef__now() < s->deadline);
    t->done++;
    if (status == CLEF_OK && (s->stopped || !report(t, s, t->result.tuned > before)))
        status = clef_error_status(t->ctx) != CLEF_OK ? clef_error_status(t->ctx) : CLEF_INTERRUPTED;
    return status;
}

static bool affords_library(const tuner *t, int device) {
    return t->end - t->begin >= LIBRARY_SHARE * clef__blas_start_seconds(clef__device_at(t->ctx, device));
}

/* What does not fit the device is passed over, as its work could not run either; and what does not fit the budget. */
static clef_status tune_one(tuner *t, clef__plans *plans, const clef__benchmark *benchmark) {
    double share = share_of(t), floor = clef__benchmark_floor(t->ctx, benchmark) * (t->pace > 1 ? t->pace : 1);
    if (floor * CLEF__LEAST_RUNS > share) return CLEF_OK;
    clef__search s = {.ctx = t->ctx,
                      .plans = plans,
                      .benchmark = benchmark,
                      .report = report_candidate,
                      .user = t,
                      .library = affords_library(t, benchmark->key.device),
                      .deadline = clef__now() + share};
    clef_status status = clef__search_begin(&s);
    if (status == CLEF_OK) {
        status = search(t, &s);
    } else if (status != CLEF_LOST) {
        clef_clear_error(t->ctx);
        status = CLEF_OK;
    }
    t->result.wrong += s.wrong;
    clef__search_end(&s);
    return status;
}

static bool is_known(const tuner *t, const clef__tuning_key *key) {
    clef__tuned wanted = clef__tuning_key_result(key, NULL);
    return !t->options->again && clef__tuned_find(clef__device_at(t->ctx, key->device), &wanted);
}

static clef_status tune_all(tuner *t, clef__plans *plans, const clef__benchmarks *benchmarks) {
    clef_status status = CLEF_OK;
    t->result.benchmarks = benchmarks->n;
    for (int i = 0; i < benchmarks->n; i++) t->result.known += is_known(t, &benchmarks->benchmark[i].key);
    t->done = t->result.known;
    if (t->done < benchmarks->n && affords_library(t, 0)) clef__blas_there(t->ctx, &t->result.no_library);
    for (int i = 0; status == CLEF_OK && i < benchmarks->n && clef__now() < t->end; i++)
        if (!is_known(t, &benchmarks->benchmark[i].key)) status = tune_one(t, plans, &benchmarks->benchmark[i]);
    return status;
}

/* ---- public ---- */

static clef_status may_tune(clef_context *ctx, const clef_tune_options *options) {
    if (!ctx) return CLEF_INVALID;
    if (clef_error_status(ctx) != CLEF_OK) return clef_error_status(ctx);
    if (!clef__usable(ctx)) return clef_error_status(ctx);
    if (!options || !options->work) return clef__fail(ctx, CLEF_INVALID, "tune: no work is given; set clef_tune_options.work");
    if (!(options->budget >= 0))
        return clef__fail(ctx, CLEF_INVALID, "tune: a budget of %g seconds; give 0 or more", options->budget);
    if (!clef__tuning_on(ctx)) return clef__fail(ctx, CLEF_STATE, "tune: tuning is switched off (CLEF_TUNING=0 or no_tuning)");
    if (clef__dry_run(ctx)) return clef__fail(ctx, CLEF_STATE, "tune: a dry run is on; end it first");
    return CLEF_OK;
}

clef_status clef_tune(clef_context *ctx, const clef_tune_options *options, clef_tune_result *result) {
    if (result) *result = (clef_tune_result){0};
    clef_status status = may_tune(ctx, options);
    clef__plans *plans = status == CLEF_OK ? clef__plans_of(ctx) : NULL;
    if (!plans) return status != CLEF_OK ? status : clef_error_status(ctx);
    double begin = clef__now();
    tuner t = {
        .ctx = ctx, .options = options, .begin = begin, .end = begin + (options->budget > 0 ? options->budget : default_budget)};
    clef__benchmarks benchmarks = {0};
    status = find_benchmarks(ctx, plans, options, &benchmarks);
    if (status == CLEF_OK) status = tune_all(&t, plans, &benchmarks);
    clef__plans_forget(ctx);
    clef__benchmark_free(&benchmarks);
    t.result.seconds = clef__now() - begin;
    if (result) *result = t.result;
    return status;
}

clef_status clef_tune_export(clef_context *ctx, const char *path, int *n) {
    int written = 0;
    if (!ctx) return CLEF_INVALID;
    if (!path) return clef__fail(ctx, CLEF_INVALID, "tune_export: the path is NULL");
    clef_status status = clef__tuning_export(ctx, path, &written);
    if (n) *n = written;
    return status;
}

clef_status clef_tune_import(clef_context *ctx, const char *path, int *n) {
    int read = 0;
    if (!ctx) return CLEF_INVALID;
    if (!path) return clef__fail(ctx, CLEF_INVALID, "tune_import: the path is NULL");
    clef_status status = clef__tuning_import(ctx, path, &read);
    if (status == CLEF_OK) clef__plans_forget(ctx);
    if (n) *n = read;
    return status;
}
