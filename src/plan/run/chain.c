/* chain.c — which of a plan's launches go as one (runtime: chain.c), and from which run on.

   Between two launches of a small net a CPU's driver does nothing but put threads to sleep and wake them.  Launches of single
   work-items that follow one another in one queue become the steps of a chain: the same kernels with the same arguments, in
   the same order, to the same bits.  Its program is another one, compiled when the plan has run so often that this pays.

   A plan that is one chain, of one launch even, spares that launch, too, when the host is ahead: it follows in the launch of the run before.
   So it does when it is little and the host waits for every run. */
#include "plan/run/run.h"
#include "runtime/text.h"

#include <string.h>

/* What compiling a part takes when the driver does not have it yet.  A chain is made when the launches that it would have spared have cost
   as much, so a plan that is given up the next moment has taken no more than twice as long. */
static const double PART_SECONDS = 0.25;

enum { MOST_PARTS = 256 };                 /* more would be one long wait */
static const double MOST_ITEMS = 1u << 31; /* they are counted in 32 bits */

struct clef__plan_chain {
    clef__chain *chain;  /* NULL: not made, or not to be made */
    bool useless;        /* nothing is spared, the driver makes none of it, or it cannot be used */
    int spared;          /* launches that follow another one of their chain */
    bool whole;          /* of all launches: a run may follow in the launch of the one before */
    uint64_t all_spared; /* by all runs until now, had they been chains */
    unsigned waits;      /* of the host for the device, before the last run */
    int parts;
    int first[MOST_PARTS]; /* of each part: a launch of it */
    int part[];            /* of each launch; -1: it stands alone */
};

/* ---- parts ---- */

/* A kernel of Clef's own, one work-item to a group, in the queue. */
static bool fits(const clef__launch *launch) {
    bool ours = launch->kernel && (launch->file || strcmp(launch->name, CLEF__GENERATED) == 0);
    bool alone = launch->local[0] * launch->local[1] * launch->local[2] == 1;
    double items = (double)launch->global[0] * (double)launch->global[1] * (double)launch->global[2];
    return ours && alone && !launch->beside && !launch->awaited && items < MOST_ITEMS;
}

static bool same_kernel(const clef__launch *a, const clef__launch *b) {
    return a->code == b->code && strcmp(a->name, b->name) == 0;
}

/* The number of the launch's kernel among the parts; -1: it does not fit, or there are too many. */
static int part_of(clef__plan_chain *c, const clef__plan *plan, int i) {
    int p = 0;
    if (!fits(&plan->launch[i])) return -1;
    while (p < c->parts && !same_kernel(&plan->launch[c->first[p]], &plan->launch[i])) p++;
    if (p == MOST_PARTS) return -1;
    if (p == c->parts) c->first[c->parts++] = i;
    return p;
}

/* On one device, in one queue? */
static bool is_plain(const clef__plan *plan) {
    for (int i = 0; i < plan->n_launches; i++)
        if (plan->launch[i].device != plan->launch[0].device) return false;
    return plan->n_edges == 0;
}

/* NULL: no host memory. */
static clef__plan_chain *look_at(const clef__plan *plan) {
    clef__plan_chain *c = clef__calloc(1, sizeof *c + (size_t)plan->n_launches * sizeof *c->part);
    for (int i = 0; c && i < plan->n_launches; i++) {
        c->part[i] = part_of(c, plan, i);
        c->spared += i > 0 && c->part[i] >= 0 && c->part[i - 1] >= 0;
        c->whole = c->part[i] >= 0 && (i == 0 || c->whole);
    }
    if (c) c->useless = !(c->spared > 0 || c->whole) || !is_plain(plan);
    return c;
}

/* How a number that is an argument of its own is read from a word. */
static const char *number_of(const clef__arg *arg) {
    bool constant = arg->kind == CLEF__ARG_CONSTANT, whole = !clef__is_float(arg->dtype);
    if (constant && arg->dtype == CLEF_F64) return ", as_double(args[%d])";
    if (arg->kind == CLEF__ARG_FLOAT || (constant && !whole)) return ", as_float((int)args[%d])";
    if (arg->kind == CLEF__ARG_INT || (constant && arg->dtype != CLEF_I64)) return ", (int)args[%d]";
    return ", (long)args[%d]";
}

/* The call of a launch's kernel with the arguments at `args`: pointers and numbers by their index, the struct of numbers behind them. */
static char *call_of(const clef__launch *launch) {
    clef__text text = {0};
    bool generated = !launch->file;
    clef__text_add(&text, "%s(PASSED_PLACE *(__global const ", generated ? "NAME" : launch->name);
    clef__text_add(&text, generated ? "NAMED(_numbers)" : "%s_numbers", launch->name);
    clef__text_add(&text, " *)(args + %d)", launch->n_kernel_args);
    for (int a = 0, index = 1; a < launch->n_args; a++) {
        const clef__arg *arg = &launch->arg[a];
        if (arg->kind == CLEF__ARG_TENSOR) clef__text_add(&text, ", (__global void *)args[%d]", index++);
        if (arg->at < 0) clef__text_add(&text, number_of(arg), index++);
    }
    clef__text_append(&text, ");");
    return text.data;
}

/* ---- when ---- */

/* A host that waited for nothing since the last run is ahead: this one would follow in its launch. */
static void count_spared(const clef__plan *plan, const clef__device *device) {
    clef__plan_chain *c = plan->chain;
    unsigned waits = clef__device_waits(device);
    bool ahead = plan->runs > 0 && waits == c->waits;
    c->all_spared += (uint64_t)c->spared + (ahead && c->whole);
    c->waits = waits;
}

static bool is_due(const clef__plan *plan, clef_context *ctx, const clef__device *device) {
    const clef__plan_chain *c = plan->chain;
    int after = clef__chain_after(ctx);
    if (after >= 0) return plan->runs >= (uint64_t)after;
    return (double)c->all_spared * clef__device_profile(device)->launch_us * 1e-6 >= c->parts * PART_SECONDS;
}

static clef__chain *compile(const clef__plan *plan, clef__device *device) {
    const clef__plan_chain *c = plan->chain;
    clef__chain_part part[MOST_PARTS];
    clef__chain *chain = NULL;
    int n = 0;
    for (bool well = true; well && n < c->parts; n += well) {
        const clef__launch *launch = &plan->launch[c->first[n]];
        part[n] = (clef__chain_part){launch->code, launch->kernel, call_of(launch)};
        well = part[n].call;
    }
    if (n == c->parts) chain = clef__chain_new(device, part, n, plan->n_launches);
    while (n > 0) clef__free(part[--n].call);
    return chain;
}

bool clef__plan_chains(clef__plan *plan, clef_context *ctx) {
    if (plan->n_launches == 0 || plan->timed) return false;
    clef__device *device = clef__device_at(ctx, plan->launch[0].device);
    if (!clef__device_chains(device)) return false;
    if (!plan->chain && !(plan->chain = look_at(plan))) return false; /* there may be memory the next time */
    clef__plan_chain *c = plan->chain;
    if (c->useless) return false;
    if (c->chain) return true;
    count_spared(plan, device);
    if (!is_due(plan, ctx, device)) return false;
    c->chain = compile(plan, device);
    c->useless = !c->chain;
    return c->chain;
}

void clef__plan_unchain(clef__plan *plan) {
    if (plan->chain) clef__chain_free(plan->chain->chain);
    clef__free(plan->chain);
    plan->chain = NULL;
}

/* ---- queueing ---- */

int clef__chain_from(clef__plan *plan, int i, clef_status *status) {
    const int *part = plan->chain->part;
    int end = i, steps = 0;
    while (end < plan->n_launches && part[end] >= 0) steps += !plan->launch[end++].idle;
    if (steps < (plan->n_launches == 1 ? 1 : 2) || plan->chain->useless) return i;
    for (int k = i; k < end; k++) {
        const clef__launch *launch = &plan->launch[k];
        if (launch->idle || clef__chain_step(plan->chain->chain, part[k], launch->kernel, launch->global)) continue;
        plan->chain->useless = true; /* as some memory has no address, or there is none: from now on one by one */
        return i;
    }
    *status = clef__chain_launch(plan->chain->chain);
    return *status == CLEF_OK ? end : i;
}
