/* clef/optim.h — optimizers, schedules, clipping. */
#ifndef CLEF_OPTIM_H
#define CLEF_OPTIM_H
#include "nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct clef_optimizer clef_optimizer; /* owned by the module's context */

/* Update rules and defaults are PyTorch's; a zero field means its default, given behind each struct.  States are f32 (f64
   for f64 parameters).  The constructors fail with CLEF_INVALID and NULL on numbers out of range. */
/* lr must be given; the rest 0. */
typedef struct clef_sgd_options { double lr, momentum, dampening, weight_decay; bool nesterov; } clef_sgd_options;
/* lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0 (added to the gradient). */
typedef struct clef_adam_options { double lr, beta1, beta2, eps, weight_decay; bool amsgrad; } clef_adam_options;
/* The same, weight_decay 1e-2 (p shrinks by lr·weight_decay per step); no_decay: 0. */
typedef struct clef_adamw_options { double lr, beta1, beta2, eps, weight_decay; bool no_decay; } clef_adamw_options;
/* lr 1e-2, alpha 0.99, eps 1e-8, the rest 0. */
typedef struct clef_rmsprop_options { double lr, alpha, eps, weight_decay, momentum; bool centered; } clef_rmsprop_options;
/* lr 1e-2, eps 1e-10, the rest 0; initial: what the sums of squares start from. */
typedef struct clef_adagrad_options { double lr, lr_decay, eps, weight_decay, initial; } clef_adagrad_options;

/* An optimizer of the module's present parameters, frozen ones too (they are skipped while they have no gradient).
   Weights that wait to be computed are computed now, so that the first step's plan is already every step's.
       clef_optimizer *opt = clef_adam(net, &(clef_adam_options){.lr = 3e-4});  */
CLEF_API clef_optimizer *clef_sgd(clef_module *module, const clef_sgd_options *options);
CLEF_API clef_optimizer *clef_adam(clef_module *module, const clef_adam_options *options);
CLEF_API clef_optimizer *clef_adamw(clef_module *module, const clef_adamw_options *options);
CLEF_API clef_optimizer *clef_rmsprop(clef_module *module, const clef_rmsprop_options *options);
CLEF_API clef_optimizer *clef_adagrad(clef_module *module, const clef_adagrad_options *options);

/* Gives parameters whose name ends in `suffix` their own learning-rate factor and weight decay (a 0 here is 0); a later call
   wins.  CLEF_INVALID when no name ends so.
       clef_optimizer_group(opt, "bias", 1, 0);   biases do not decay  */
CLEF_API clef_status clef_optimizer_group(clef_optimizer *opt, const char *suffix, double lr_scale, double weight_decay);

/* Updates every parameter that has a gradient, clears the gradients, ends the step (see clef/tensor.h).  Does not wait.
   Returns the context's first error if it has one, so this is the one status a training loop needs to look at. */
CLEF_API clef_status clef_step(clef_optimizer *opt);
/* The rate before the groups' factors. */
CLEF_API double clef_learning_rate(const clef_optimizer *opt);
CLEF_API void clef_set_learning_rate(clef_optimizer *opt, double lr);
CLEF_API int64_t clef_optimizer_steps(const clef_optimizer *opt);
CLEF_API clef_context *clef_optimizer_context(const clef_optimizer *opt);

/* ---- clipping, before clef_step ---- */
/* g *= min(1, max_norm / (‖all g‖₂ + 1e-6)); returns the norm before clipping as an expression (0 without gradients). */
CLEF_API clef_tensor *clef_clip_grad_norm(clef_module *module, double max_norm);
/* Every element of every gradient into [-limit, limit]. */
CLEF_API clef_status clef_clip_grad_value(clef_module *module, double limit);

/* ---- schedules: a pure function of the step or epoch counter, plus plateau ---- */
typedef enum clef_schedule_kind {
    CLEF_SCHEDULE_CONSTANT, CLEF_SCHEDULE_STEP, CLEF_SCHEDULE_MULTISTEP, CLEF_SCHEDULE_EXPONENTIAL,
    CLEF_SCHEDULE_COSINE, CLEF_SCHEDULE_ONE_CYCLE, CLEF_SCHEDULE_PLATEAU
} clef_schedule_kind;
typedef struct clef_schedule_options {
    clef_schedule_kind kind;
    int64_t step_size;             /* step */
    const int64_t *milestones;     /* multistep, ascending */
    int n_milestones;
    double gamma;                  /* step, multistep, exponential, plateau; 0: 0.1 (exponential: 0.95) */
    int64_t total;                 /* cosine, one-cycle: length */
    double min_lr;                 /* cosine: what it ends at; plateau: never below */
    double max_lr;                 /* one-cycle, from max/25 to max to max/250000; 0: 10 × the optimizer's lr */
    double pct_start;              /* one-cycle: share of rising; 0: 0.3 */
    int64_t patience;              /* plateau; 0: 10 */
    double threshold;              /* plateau: relative improvement; 0: 1e-4 */
    bool maximize;                 /* plateau: the metric should grow */
    int64_t warmup;                /* any kind: linear from lr/warmup over so many ticks first */
} clef_schedule_options;
typedef struct clef_schedule clef_schedule; /* owned by the context */
/* Takes the optimizer's present rate as its base and sets the rate of tick 0.  Milestones are copied. */
CLEF_API clef_schedule *clef_schedule_new(clef_optimizer *opt, const clef_schedule_options *options);
/* One tick (a step or an epoch, as the caller chooses); sets the optimizer's learning rate. */
CLEF_API clef_status clef_schedule_tick(clef_schedule *schedule);
/* Tells a plateau what the metric is now (a NaN is no improvement); other kinds take no notice. */
CLEF_API clef_status clef_schedule_metric(clef_schedule *schedule, double value);

/* ---- state, for checkpoints: the tensors, then clef_optimizer_set, then clef_schedule_set ---- */
/* Tensor 0 is "step", i64, the updates that each parameter has had; then each parameter's states, named as PyTorch does. */
CLEF_API int clef_optimizer_tensors(const clef_optimizer *opt);
CLEF_API clef_named_tensor clef_optimizer_tensor(const clef_optimizer *opt, int i); /* "0.weight.exp_avg", … */
typedef struct clef_optimizer_state { int64_t steps; double lr; } clef_optimizer_state;
CLEF_API clef_optimizer_state clef_optimizer_get(const clef_optimizer *opt);
/* Also takes the update counts from tensor "step": assign the tensors first. */
CLEF_API void clef_optimizer_set(clef_optimizer *opt, clef_optimizer_state state);
typedef struct clef_schedule_state { int64_t ticks, bad; double best, lr; } clef_schedule_state;
CLEF_API clef_schedule_state clef_schedule_get(const clef_schedule *schedule);
/* Sets the optimizer's rate too. */
CLEF_API void clef_schedule_set(clef_schedule *schedule, clef_schedule_state state);

#ifdef __cplusplus
}
#endif
#endif
