/* optimizer.h — inside the optim room: the machinery all update rules share.

   An optimizer has one slot per parameter.  A rule is a row: it says which numbers of this step it needs (computed on the
   host in double, handed to kernels as arguments, so they never make a new plan) and how parameter and state follow from
   them as expressions.  The machinery reads gradients, assigns the results and ends the step. */
#ifndef CLEF_OPTIM_OPTIMIZER_H
#define CLEF_OPTIM_OPTIMIZER_H
#include "clef/optim.h"
#include "clef/pointwise.h"
#include "graph/graph.h"
#include "runtime/runtime.h"

enum { CLEF__MAX_STATES = 4, CLEF__MAX_NUMBERS = 8 };

typedef struct clef__slot {
    clef_tensor *parameter;
    char *name;
    clef_tensor *state[CLEF__MAX_STATES];
    char *state_name[CLEF__MAX_STATES];
    int64_t count; /* updates this parameter has had */
    double lr_scale, weight_decay;
} clef__slot;

/* What a rule needs to know of this step and slot. */
typedef struct clef__moment {
    const void *options;
    double lr, weight_decay;
    int64_t count; /* from 1 */
} clef__moment;

/* One parameter's update: p, g and state come in computed as f32 (or f64), new states replace the old ones in `state`. */
typedef struct clef__update {
    const void *options;
    clef_tensor *p, *g;
    clef_tensor *state[CLEF__MAX_STATES];
    clef_tensor *number[CLEF__MAX_NUMBERS];
    bool decays; /* weight decay is not 0 */
} clef__update;

typedef struct clef__rule {
    const char *name;
    int n_numbers;
    void (*numbers)(const clef__moment *m, double *number);
    clef_tensor *(*update)(clef__update *u); /* the new p */
} clef__rule;

/* What a rule's constructor found out from its options. */
typedef struct clef__rule_setup {
    const clef__rule *rule;
    const void *options;
    size_t options_bytes;
    double lr, weight_decay;
    const char *state[CLEF__MAX_STATES]; /* names; NULL ends */
    double initial;                      /* value of the states before the first update */
    clef_group *group;                   /* over which gradients are averaged; NULL: none */
} clef__rule_setup;

struct clef_optimizer {
    clef_context *ctx;
    const clef__rule *rule;
    void *options;
    clef__slot *slot;
    int n, n_states;
    double lr;
    int64_t steps;
    /* Update counts as a tensor [n], for checkpoints.  stale: the tensor is newer than the slots; dirty: the other way. */
    clef_tensor *counts;
    bool stale, dirty;
    clef_group *group; /* NULL: one rank */
    clef__averaging averaging;
    clef_optimizer *next;
};

struct clef_schedule {
    clef_optimizer *opt;
    clef_schedule_options o; /* defaults filled in; milestones is our copy */
    double base;
    clef_schedule_state state; /* lr: plateau's present rate, before warm-up */
    clef_schedule *next;
};

clef_optimizer *clef__optimizer_new(clef_module *module, const clef__rule_setup *setup);
/* Does it train this tensor? */
bool clef__optimizer_has(const clef_optimizer *opt, const clef_tensor *parameter);
/* average.c: from now on the optimizer's gradients are averaged over the group; false with the context's error. */
bool clef__average_over(clef_optimizer *opt, clef_group *group);
/* The step is over: its gradients, and the weight that was given for it. */
void clef__end_averaging(clef_optimizer *opt);
/* NULL after "rule: value of name is out of range" unless all of n values are finite and not negative. */
typedef struct clef__checked {
    const char *name;
    double value;
} clef__checked;
bool clef__check_options(clef_module *module, const char *rule, const clef__checked *option, int n);
static inline double clef__or(double value, double otherwise) { return value != 0 ? value : otherwise; }

/* The room's state: what the context frees at close. */
typedef struct clef__optim {
    clef_optimizer *optimizers;
    clef_schedule *schedules;
} clef__optim;
clef__optim *clef__optim_state(clef_context *ctx);
#endif
