/* search.c — looks for the fastest knobs for one benchmark: makes a plan for each configuration, checks its numbers (check.c) and
   times it.

   Other knobs often come to the same plan; it is known by its fingerprint and not tried again. */
#include "plan/tune/tune.h"
#include "runtime/arithmetic.h"

#include <string.h>

enum {
    ROUNDS = 3,           /* the best of so many counts */
    MOST_RUNS = 200,      /* that are timed together */
    KERNELS_ON_A_CPU = 4, /* its compilers are slow, and the rules good there */
    WORTH_PERCENT = 97    /* of the standard's time: less of a gain may be chance */
};
static const double round_seconds = 0.01; /* that a timing takes at least */
static const double far_behind = 1.5;     /* times the fastest: not worth a second look */
static const double hopeless = 10;        /* times the fastest: not worth a first look */
static const double long_run = 0.5;       /* seconds in which a machine's moods even out: one round will do */

static clef__device *device_of(const clef__search *s) { return clef__device_at(s->ctx, s->benchmark->key.device); }

const clef__candidate *clef__search_best(const clef__search *s) { return s->best.plan ? &s->best : &s->standard; }

/* ---- one candidate ---- */

static void drop_candidate(clef__candidate *c) {
    if (c->plan) clef__plan_free(c->plan);
    clef__graph_view_free(&c->g);
    *c = (clef__candidate){0};
}

/* The node as it was before it was computed. */
static void forget_value(clef__search *s) {
    clef__buffer_release(s->node->out->buffer);
    s->node->out->buffer = NULL;
}

static bool plan_candidate(clef__search *s, const clef__knobs *knobs, clef__candidate *c) {
    clef__tuning_override override = {.key = &s->benchmark->key, .knobs = *knobs};
    *c = (clef__candidate){.knobs = *knobs};
    forget_value(s);
    s->plans->selection.override = &override;
    clef__blas_allow(s->ctx, s->library);
    if (clef__collect(s->ctx, &(clef__output *){s->node->out}, 1, &c->g) == CLEF_OK) c->plan = clef__plan_build(s->ctx, &c->g);
    if (c->plan) c->plan->timed = true;
    clef__blas_allow(s->ctx, true);
    s->plans->selection.override = NULL;
    return c->plan;
}

static uint64_t fingerprint(const clef__plan *plan) {
    uint64_t hash = CLEF__HASH_START;
    for (int i = 0; i < plan->n_launches; i++) {
        const clef__launch *launch = &plan->launch[i];
        if (launch->name) hash = clef__hash(hash, launch->name, strlen(launch->name));
        uint64_t code = launch->code ? launch->code->number : 0;
        hash = clef__hash(hash, &code, sizeof code);
        hash = clef__hash(hash, &launch->kind, sizeof launch->kind);
        hash = clef__hash(hash, launch->global, sizeof launch->global);
        hash = clef__hash(hash, launch->local, sizeof launch->local);
        for (int a = 0; a < launch->n_args; a++) hash = clef__hash(hash, &launch->arg[a].number, sizeof launch->arg[a].number);
    }
    return hash;
}

static bool is_new(clef__search *s, const clef__plan *plan) {
    uint64_t print = fingerprint(plan);
    for (int i = 0; i < s->n_seen; i++)
        if (s->seen[i] == print) return false;
    if (!clef__grow(&s->seen, s->n_seen, &s->seen_capacity, sizeof print)) return false;
    s->seen[s->n_seen++] = print;
    return true;
}

static bool run_candidate(clef__search *s, clef__candidate *c) {
    forget_value(s);
    return clef__plan_run(c->plan, s->ctx, s->plans->arena, &c->g) == CLEF_OK;
}

/* Seconds of one of `runs` runs. */
static bool timed(clef__search *s, clef__candidate *c, int runs, double *seconds) {
    bool ok = clef__finish(device_of(s)) == CLEF_OK;
    double begin = clef__now();
    for (int i = 0; ok && i < runs; i++) ok = run_candidate(s, c);
    ok = ok && clef__finish(device_of(s)) == CLEF_OK;
    *seconds = (clef__now() - begin) / runs;
    return ok;
}

static int runs_for(double seconds) {
    return seconds * MOST_RUNS <= round_seconds ? MOST_RUNS : seconds < round_seconds ? (int)(round_seconds / seconds) + 1 : 1;
}

static int rounds_for(double seconds) { return seconds > long_run ? 1 : ROUNDS; }

/* Once is enough for what is far behind. */
static bool measure_candidate(clef__search *s, clef__candidate *c, double limit) {
    double seconds;
    if (!timed(s, c, 1, &c->seconds)) return false;
    int runs = runs_for(c->seconds);
    for (int i = c->seconds > long_run; i < rounds_for(c->seconds) && (i == 0 || c->seconds <= limit); i++) {
        if (!timed(s, c, runs, &seconds)) return false;
        if (i == 0 || seconds < c->seconds) c->seconds = seconds;
    }
    return true;
}

/* ---- are the numbers right? ---- */

static bool is_right(clef__search *s, const clef__candidate *c) {
    bool right = clef__check_value(&s->check);
    if (!right && !s->check.unread) {
        char text[128];
        clef__knobs_text(s->benchmark->key.family, &c->knobs, text, sizeof text);
        s->wrong++;
        clef__log_line(s->ctx, CLEF_LOG_WARNING, "tune: %s %s with %s gives wrong numbers and is not used",
                       s->benchmark->key.family->name, s->benchmark->key.bucket, *text ? text : "its usual knobs");
    }
    return right;
}

/* ---- the search ---- */

/* May these knobs be compiled?  Notes them as a kernel more, where they are one. */
static bool may_compile(clef__search *s, const clef__knobs *knobs) {
    const clef__family *family = s->benchmark->key.family;
    clef__knobs compiled = *knobs;
    for (int i = 0; i < family->n_knobs; i++)
        if (!family->knob[i].compiled) compiled.value[i] = 0;
    for (int i = 0; i < s->n_variants; i++)
        if (memcmp(&s->variant[i], &compiled, sizeof compiled) == 0) return true;
    if (s->n_variants >= s->most_variants || !clef__grow(&s->variant, s->n_variants, &s->variant_capacity, sizeof compiled))
        return false;
    s->variant[s->n_variants++] = compiled;
    return true;
}

/* May this plan run?  A routine may take longer than the whole search: one of an unknown speed is not tried, nor one that is far
   too slow. */
static bool may_run(clef__search *s, const clef__plan *plan) {
    int i = 0;
    while (i < plan->n_launches && !plan->launch[i].routine) i++;
    if (i == plan->n_launches) return true;
    double expected = plan->launch[i].routine->seconds(device_of(s), plan->launch[i].what, s->deadline);
    return expected < hopeless * clef__search_best(s)->seconds && clef__now() + 2 * expected < s->deadline;
}

/* One that cannot be built or run is no failure of the search, unless the device is lost with it. */
static void forgive(clef__search *s) {
    s->stopped |= clef_error_status(s->ctx) == CLEF_LOST;
    clef_clear_error(s->ctx);
}

/* Any that is right is better than a standard that is not. */
static void keep_best(clef__search *s, clef__candidate *c) {
    if ((s->standard_right || s->best.plan) && c->seconds >= clef__search_best(s)->seconds) return;
    drop_candidate(&s->best);
    s->best = *c;
    *c = (clef__candidate){0};
}

static void tell(clef__search *s) {
    if (s->report && !s->report(s->user, s)) s->stopped = true;
}

static void try_knobs(clef__search *s, const clef__knobs *knobs) {
    clef__candidate c = {0};
    if (s->stopped || clef__now() + 2 * clef__search_best(s)->seconds >= s->deadline || !may_compile(s, knobs)) return;
    bool ok = plan_candidate(s, knobs, &c);
    if (ok && !is_new(s, c.plan)) {
        drop_candidate(&c);
        return;
    }
    if (ok && !may_run(s, c.plan)) {
        drop_candidate(&c);
        if (clef_error_status(s->ctx) != CLEF_OK) forgive(s);
        return;
    }
    ok = ok && clef__plan_ready(s->ctx, c.plan) == CLEF_OK && run_candidate(s, &c);
    s->tried++;
    if (ok && is_right(s, &c) && measure_candidate(s, &c, far_behind * clef__search_best(s)->seconds)) keep_best(s, &c);
    drop_candidate(&c);
    if (clef_error_status(s->ctx) != CLEF_OK) forgive(s);
    tell(s);
}

static void try_seeds(clef__search *s) {
    const clef__family *family = s->benchmark->key.family;
    const char *profile = clef__device_profile(device_of(s))->name;
    for (int i = 0; i < family->n_seeds; i++)
        if (clef__has_word(family->seed[i].profiles, profile)) try_knobs(s, &family->seed[i].knobs);
}

/* A knob's neighbouring values, or all where it is left alone so far. */
static void descend(clef__search *s, int k) {
    const clef__knob *knob = &s->benchmark->key.family->knob[k];
    clef__knobs from = clef__search_best(s)->knobs;
    for (int i = 0; knob->value[i]; i++) {
        bool beside = knob->value[i + 1] == from.value[k] || (i > 0 && knob->value[i - 1] == from.value[k]);
        if (from.value[k] && !beside) continue;
        clef__knobs to = from;
        to.value[k] = knob->value[i];
        try_knobs(s, &to);
    }
}

/* The winner against the standard once more, in turns, as the machine may have changed its pace meanwhile. */
static void confirm(clef__search *s) {
    double standard, best, least_standard = s->standard.seconds, least_best = s->best.seconds;
    bool ok = s->best.plan;
    for (int i = 0; ok && i < rounds_for(s->standard.seconds); i++) {
        ok = timed(s, &s->standard, runs_for(s->standard.seconds), &standard) &&
             timed(s, &s->best, runs_for(s->best.seconds), &best);
        if (ok && (i == 0 || standard < least_standard)) least_standard = standard;
        if (ok && (i == 0 || best < least_best)) least_best = best;
    }
    s->standard.seconds = least_standard;
    s->best.seconds = least_best;
    if (!ok || (s->standard_right && least_best * 100 > least_standard * WORTH_PERCENT)) drop_candidate(&s->best);
    if (clef_error_status(s->ctx) != CLEF_OK) forgive(s);
}

static bool make_standard(clef__search *s) {
    static const clef__knobs none;
    s->node = clef__benchmark_node(s->ctx, s->benchmark);
    if (s->node) clef__output_retain(s->node->out); /* what nobody refers to gets no memory */
    return s->node && may_compile(s, &none) && plan_candidate(s, &none, &s->standard) && is_new(s, s->standard.plan) &&
           clef__plan_ready(s->ctx, s->standard.plan) == CLEF_OK && clef__finish(device_of(s)) == CLEF_OK;
}

static bool note_standard(clef__search *s) {
    if (!timed(s, &s->standard, 1, &s->standard.seconds)) return false;
    s->stopped = clef__now() + (CLEF__LEAST_RUNS - 1) * s->standard.seconds > s->deadline;
    if (s->stopped) return true;
    clef__check_begin(&s->check, s->benchmark, s->node->out);
    s->standard_right = is_right(s, &s->standard);
    return !s->check.unread && measure_candidate(s, &s->standard, s->standard.seconds);
}

clef_status clef__search_begin(clef__search *s) {
    s->most_variants = clef__device_profile(device_of(s))->wide_items ? KERNELS_ON_A_CPU : INT32_MAX;
    if (make_standard(s) && note_standard(s)) return CLEF_OK;
    clef_status status = clef_error_status(s->ctx);
    return status != CLEF_OK ? status : clef__fail(s->ctx, CLEF_MEMORY, "tune: no host memory");
}

void clef__search_run(clef__search *s) {
    try_seeds(s);
    for (int k = 0; k < s->benchmark->key.family->n_knobs; k++) descend(s, k);
    confirm(s);
}

void clef__search_end(clef__search *s) {
    drop_candidate(&s->best);
    drop_candidate(&s->standard);
    clef__free(s->seen);
    clef__free(s->variant);
    clef__check_end(&s->check);
    if (!s->node) return;
    clef__output_release(s->node->out);
    clef__node_release(s->node);
}
