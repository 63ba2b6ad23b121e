/* schedule.c — learning rates over time: pure functions of the tick counter t ≥ 0, and plateau.

   With a warm-up of w ticks the rate is base·(t+1)/w while t < w, and the kind's own function of t - w afterwards.
     constant     base
     step         base·γ^⌊t/step_size⌋                    multistep    base·γ^(milestones ≤ t)
     exponential  base·γ^t                                cosine       min + (base-min)·(1+cos(π·t/total))/2
     one-cycle    max/25 → max over pct_start of total, then → max/250,000, both along half a cosine
     both of these stay at their last rate when t passes total, so that a run that goes on longer does not begin to learn fast again
     plateau      ·γ, not below min_lr, after more than `patience` metrics in a row without improvement
   Loshchilov and Hutter, "SGDR", 2017 (cosine); Smith and Topin, "Super-convergence", 2018 (one-cycle). */
#include "optim/optimizer.h"
#include <math.h>
#include <string.h>

static double half_cosine(double from, double to, double share) {
    const double pi = 3.14159265358979323846;
    return to + (from - to) * (1 + cos(pi * share)) / 2;
}

static double one_cycle(const clef_schedule_options *o, int64_t t) {
    double start = o->max_lr / 25, end = start / 1e4;
    double rise = o->pct_start * (double)o->total - 1, last = (double)o->total - 1, at = fmin((double)t, last);
    if (at <= rise) return half_cosine(start, o->max_lr, rise > 0 ? at / rise : 1);
    return half_cosine(o->max_lr, end, last > rise ? (at - rise) / (last - rise) : 1);
}

static double multistep(const clef_schedule *s, int64_t t) {
    int passed = 0;
    while (passed < s->o.n_milestones && s->o.milestones[passed] <= t) passed++;
    return s->base * pow(s->o.gamma, passed);
}

/* The rate at tick t, warm-up aside. */
static double rate(const clef_schedule *s, int64_t t) {
    const clef_schedule_options *o = &s->o;
    switch (o->kind) {
    case CLEF_SCHEDULE_STEP: return s->base * pow(o->gamma, (double)(t / o->step_size));
    case CLEF_SCHEDULE_MULTISTEP: return multistep(s, t);
    case CLEF_SCHEDULE_EXPONENTIAL: return s->base * pow(o->gamma, (double)t);
    case CLEF_SCHEDULE_COSINE: return half_cosine(s->base, o->min_lr, fmin(1, (double)t / (double)o->total));
    case CLEF_SCHEDULE_ONE_CYCLE: return one_cycle(o, t);
    case CLEF_SCHEDULE_PLATEAU: return s->state.lr;
    case CLEF_SCHEDULE_CONSTANT: break;
    }
    return s->base;
}

static void apply(clef_schedule *s) {
    int64_t t = s->state.ticks, warmup = s->o.warmup;
    double lr;
    if (t < warmup) lr = (s->o.kind == CLEF_SCHEDULE_PLATEAU ? s->state.lr : s->base) * (double)(t + 1) / (double)warmup;
    else lr = rate(s, t - warmup);
    if (s->o.kind != CLEF_SCHEDULE_PLATEAU) s->state.lr = lr;
    clef_set_learning_rate(s->opt, lr);
}

/* ---- making ---- */
static const char *fault(const clef_schedule_options *o) {
    if (o->kind < CLEF_SCHEDULE_CONSTANT || o->kind > CLEF_SCHEDULE_PLATEAU) return "the kind is unknown";
    if (o->kind == CLEF_SCHEDULE_STEP && o->step_size < 1) return "step_size must be at least 1";
    if (o->kind == CLEF_SCHEDULE_MULTISTEP && (o->n_milestones < 0 || (o->n_milestones && !o->milestones)))
        return "milestones must be an array of n_milestones numbers";
    for (int i = 1; o->kind == CLEF_SCHEDULE_MULTISTEP && i < o->n_milestones; i++)
        if (o->milestones[i] < o->milestones[i - 1]) return "milestones must ascend";
    bool has_length = o->kind == CLEF_SCHEDULE_COSINE || o->kind == CLEF_SCHEDULE_ONE_CYCLE;
    if (has_length && o->total < 1) return "total must be at least 1";
    if (!(o->pct_start >= 0 && o->pct_start <= 1)) return "pct_start must lie within [0,1]";
    if (o->warmup < 0 || o->patience < 0) return "warmup and patience must not be negative";
    const double number[] = {o->gamma, o->min_lr, o->max_lr, o->threshold};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (!(number[i] >= 0 && isfinite(number[i]))) return "gamma, min_lr, max_lr and threshold are finite and not negative";
    return NULL;
}

static void fill_defaults(clef_schedule_options *o, double base) {
    o->gamma = clef__or(o->gamma, o->kind == CLEF_SCHEDULE_EXPONENTIAL ? 0.95 : 0.1);
    o->max_lr = clef__or(o->max_lr, 10 * base);
    o->pct_start = clef__or(o->pct_start, 0.3);
    o->threshold = clef__or(o->threshold, 1e-4);
    if (o->patience == 0) o->patience = 10;
}

static bool copy_milestones(clef_schedule_options *o) {
    const int64_t *from = o->milestones;
    o->milestones = NULL;
    if (o->kind != CLEF_SCHEDULE_MULTISTEP || o->n_milestones == 0) return true;
    int64_t *copy = clef__calloc((size_t)o->n_milestones, sizeof *copy);
    if (copy) memcpy(copy, from, (size_t)o->n_milestones * sizeof *copy);
    o->milestones = copy;
    return copy != NULL;
}

clef_schedule *clef_schedule_new(clef_optimizer *opt, const clef_schedule_options *options) {
    if (!opt) return NULL;
    clef_schedule_options o = options ? *options : (clef_schedule_options){0};
    const char *wrong = fault(&o);
    if (wrong) {
        clef__fail(opt->ctx, CLEF_INVALID, "schedule: %s", wrong);
        return NULL;
    }
    clef__optim *room = clef__optim_state(opt->ctx);
    clef_schedule *s = room ? clef__calloc(1, sizeof *s) : NULL;
    if (!s || !copy_milestones(&o)) {
        clef__free(s);
        clef__fail(opt->ctx, CLEF_MEMORY, "schedule: no memory");
        return NULL;
    }
    fill_defaults(&o, opt->lr);
    *s = (clef_schedule){.opt = opt, .o = o, .base = opt->lr, .next = room->schedules};
    s->state = (clef_schedule_state){.best = o.maximize ? -INFINITY : INFINITY, .lr = s->base};
    room->schedules = s;
    apply(s);
    return s;
}

/* ---- time ---- */
clef_status clef_schedule_tick(clef_schedule *schedule) {
    if (!schedule) return CLEF_INVALID;
    schedule->state.ticks++;
    apply(schedule);
    return CLEF_OK;
}

/* A relative improvement by more than the threshold; a NaN is none. */
static bool improves(const clef_schedule *s, double value) {
    if (isinf(s->state.best)) return s->o.maximize ? value > s->state.best : value < s->state.best;
    return s->o.maximize ? value > s->state.best * (1 + s->o.threshold) : value < s->state.best * (1 - s->o.threshold);
}

clef_status clef_schedule_metric(clef_schedule *schedule, double value) {
    if (!schedule) return CLEF_INVALID;
    if (schedule->o.kind != CLEF_SCHEDULE_PLATEAU) return CLEF_OK;
    clef_schedule_state *state = &schedule->state;
    if (improves(schedule, value)) {
        state->best = value;
        state->bad = 0;
    } else if (++state->bad > schedule->o.patience) {
        state->lr = fmax(state->lr * schedule->o.gamma, fmin(schedule->o.min_lr, state->lr));
        state->bad = 0;
    }
    apply(schedule);
    return CLEF_OK;
}

clef_schedule_state clef_schedule_get(const clef_schedule *schedule) {
    return schedule ? schedule->state : (clef_schedule_state){0};
}

void clef_schedule_set(clef_schedule *schedule, clef_schedule_state state) {
    if (!schedule) return;
    schedule->state = state;
    apply(schedule);
}
