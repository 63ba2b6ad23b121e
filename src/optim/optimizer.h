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
#include <math.h>

enum { CLEF__MAX_STATES = 4, CLEF__MAX_NUMBERS = 8 };

typedef struct clef__slot {
    clef_tensor *parameter;
    char *name;
    clef_tensor *state[CLEF__MAX_STATES];
    char *state_name[CLEF__MAX_STATES];
    clef_tensor *updated; /* within a step, where states are cut: the new value of this rank's part; NULL: none */
    int64_t count;        /* updates this parameter has had */
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
    int zero;                            /* what is cut over the group's ranks: 1: states; 2: gradients, too */
} clef__rule_setup;

struct clef_optimizer {
    clef_context *ctx;
    const clef__rule *rule;
    void *options;
    clef__slot *slot;
    int n, n_states;
    double initial; /* value of the states before the first update */
    double lr;
    int64_t steps;
    /* Update counts as a tensor [n], for checkpoints.  stale: the tensor is newer than the slots; dirty: the other way. */
    clef_tensor *counts;
    bool stale, dirty;
    clef_group *group; /* NULL: one rank */
    int zero;          /* 0 for one rank */
    double unscale;    /* what gradients are multiplied by in this step; 0: they have no scale */
    clef_tensor *gate; /* bool: does the next step change anything?  NULL: it does */
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
/* A step that leaves parameters and states as they are where the gate, one bool on any device, is false.  It counts all the same. */
clef_status clef__step_if(clef_optimizer *opt, clef_tensor *gate);
/* A step by gradients times this factor; and one that leaves everything as it is, but for the gradients, which are cleared. */
clef_status clef__step_scaled(clef_optimizer *opt, double factor);
clef_status clef__skip_step(clef_optimizer *opt);
/* Does it train this tensor? */
bool clef__optimizer_has(const clef_optimizer *opt, const clef_tensor *parameter);
/* ---- norms of gradients (clip.c), without recording ---- */
/* False after "op: the largest norm is …" where it is no limit. */
bool clef__check_max_norm(clef_context *ctx, const char *op, double max_norm);
/* The sum of the squares of g's elements. */
clef_tensor *clef__squared_norm(clef_tensor *g);
/* What gradients of this norm are multiplied by, and the product. */
clef_tensor *clef__clip_factor(clef_tensor *norm, double max_norm);
clef_tensor *clef__clipped(clef_tensor *g, clef_tensor *factor);
/* ---- states and gradients that are cut over ranks (shard.c) ---- */
/* Elements of each rank's part of a parameter. */
int64_t clef__shard_size(const clef_group *group, const clef_tensor *parameter);
/* All parts of t, [size, elements of a part], and this rank's, [elements]; zeros fill up. */
clef_tensor *clef__shards(const clef_group *group, clef_tensor *t);
clef_tensor *clef__own_shard(const clef_group *group, clef_tensor *t);
/* The tensor of this shape whose parts the ranks have: a collective operation. */
clef_tensor *clef__whole(clef_group *group, clef_tensor *shard, clef_shape shape);
/* Brings what all ranks' slots have in `updated` to all ranks' parameters. */
clef_status clef__gather_parameters(clef_optimizer *opt);
clef_optimizer *clef__optimizer_of(const clef__averaging *a);
/* What clef__averaging.whole is. */
clef_tensor *clef__whole_gradient(clef__averaging *a, const clef_tensor *parameter, clef_tensor *shard);
/* This rank's part of a parameter's averaged gradient; NULL: none. */
clef_tensor *clef__own_gradient(const clef_optimizer *opt, clef_tensor *parameter);
/* For checkpoints: as clef_optimizer_tensor, with the whole of a state that is cut.  gather: its values, a collective operation; else zeros
   that are not computed.  Then this rank's part of a whole value, to be assigned to clef_optimizer_tensor's. */
clef_named_tensor clef__optimizer_whole(const clef_optimizer *opt, int i, bool gather);
clef_tensor *clef__optimizer_part(const clef_optimizer *opt, int i, clef_tensor *whole);
bool clef__optimizer_is_cut(const clef_optimizer *opt);
clef_group *clef__optimizer_group(const clef_optimizer *opt);

/* ---- averages of weights (averaged.c) ---- */
/* An update that leaves averages as they are where the gate, one bool on any device, is false; NULL: it is true. */
clef_status clef__averaged_update_if(clef_averaged *averaged, clef_tensor *gate);
/* Has a parameter an average in place of its own value, of whichever averages?  And has one of those that these are of? */
bool clef__has_average(clef_context *ctx, const clef_tensor *parameter);
bool clef__averaged_in_use(const clef_averaged *averaged);
/* CLEF_STATE, with a line that says so. */
clef_status clef__refuse_averages(clef_context *ctx, const char *op);
bool clef__averaged_has(const clef_averaged *averaged, const clef_tensor *parameter);
void clef__averaged_free(clef_averaged *first); /* and all behind it */

void clef__lbfgs_free(clef_lbfgs *first); /* and all behind it */
void clef__scaler_free(clef_grad_scaler *first);
clef_context *clef__scaler_context(const clef_grad_scaler *scaler);
/* Was a step left out since the last update? */
bool clef__scaler_skipped(const clef_grad_scaler *scaler);
/* Are it and its inverse normal numbers of f32?  Zeros times the inverse then stay zeros on every device. */
static inline bool clef__is_scale(double scale) { return scale >= 0x1p-126 && scale <= 0x1p126; }

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
/* An option, which is 0 where it was left out (and CLEF_ZERO, a negative one, where it is 0 itself). */
static inline double clef__or(double value, double otherwise) { return value != 0 ? value : signbit(value) ? 0 : otherwise; }

/* The room's state: what the context frees at close. */
typedef struct clef__optim {
    clef_optimizer *optimizers;
    clef_averaged *averaged;
    clef_lbfgs *lbfgs;
    clef_grad_scaler *scalers;
    clef_schedule *schedules;
} clef__optim;
clef__optim *clef__optim_state(clef_context *ctx);
#endif
