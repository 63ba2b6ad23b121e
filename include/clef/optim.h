/* clef/optim.h — optimizers, schedules, clipping. */
#ifndef CLEF_OPTIM_H
#define CLEF_OPTIM_H
#include "group.h"
#include "nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct clef_optimizer clef_optimizer; /* owned by the module's context */

/* 0 in a field of these options whose 0 means another number.
       clef_adam(critic, &(clef_adam_options){.lr = 1e-4, .beta1 = CLEF_ZERO});  */
#define CLEF_ZERO (-0.0)

/* ---- update rules ----
   p is a parameter, g its gradient, lr the rate times the group's factor, λ weight_decay; all is element by
   element, and g += λ·p comes first except in AdamW.  Rules and defaults are PyTorch's; a zero field means
   its default, given above each struct, and CLEF_ZERO the number 0 itself.  States begin at 0 and are f32 (f64 for f64 parameters). */
/* lr must be given; the rest 0.  nesterov needs a momentum and no dampening. */
typedef struct clef_sgd_options {
    double lr, momentum, dampening, weight_decay;
    bool nesterov;
    clef_group *group;
    int zero;
} clef_sgd_options;
/* lr 1e-3, beta1 0.9, beta2 0.999 (both below 1), eps 1e-8, weight_decay 0. */
typedef struct clef_adam_options {
    double lr, beta1, beta2, eps, weight_decay;
    bool amsgrad;
    clef_group *group;
    int zero;
} clef_adam_options;
/* The same, weight_decay 1e-2; no_decay: 0. */
typedef struct clef_adamw_options {
    double lr, beta1, beta2, eps, weight_decay;
    bool no_decay;
    clef_group *group;
    int zero;
} clef_adamw_options;
/* lr 1e-2, alpha 0.99, eps 1e-8, the rest 0. */
typedef struct clef_rmsprop_options {
    double lr, alpha, eps, weight_decay, momentum;
    bool centered;
    clef_group *group;
    int zero;
} clef_rmsprop_options;
/* lr 1e-2, eps 1e-10, the rest 0; initial: what the sums of squares start from. */
typedef struct clef_adagrad_options {
    double lr, lr_decay, eps, weight_decay, initial;
    clef_group *group;
    int zero;
} clef_adagrad_options;

/* Data parallel training: with a group, gradients are averaged over its ranks before anything is done with them, weighted by each rank's part of
   the batch (clef_loader_options.group) or as clef_group_weight says.  Every rank makes the optimizer of an equal module (clef_replicate),
   and uses gradients at the same point of the program: the first of clipping, clef_grad_of and clef_step averages those of all the
   optimizer's parameters that want one.  A gradient that is missing on some ranks counts as zero there; one that is missing on all stays
   missing.  A gradient that clef_set_grad gave before counts like one of backward; one given after stands as it is.  Of several optimizers of
   a parameter, the one made last averages its gradients.  CLEF_INVALID for a group of another context. */
/* .zero beside .group: what is cut over the ranks of the group, so that n ranks hold 1/n of it each.  Every parameter is cut into n equal parts
   of its elements; a rank updates its parts, and the new values go to all.  Steps give what they would give without it, up to rounding.
     0   nothing
     1   the optimizer's states
     2   gradients, too: once averaged, a rank has those of its parts alone.  Until then, while backward adds some up, they are whole.
         clef_grad_of gathers: every rank calls it at the same point.  CLEF_STATE for a backward between averaging and clef_step.
   Clipping, clef_set_grad (of a whole gradient), frozen parameters and clef_optimizer_group are as ever.  Checkpoints hold whole states, for any
   number of ranks and any .zero: every rank calls clef_checkpoint_save, and the group's rank 0 writes the file.  Nothing is cut where a group
   has one rank; CLEF_INVALID for another number.  Rajbhandari, Rasley, Ruwase and He, "ZeRO: Memory optimizations toward training trillion
   parameter models", 2020.
       clef_adamw(net, &(clef_adamw_options){.group = all, .zero = 2})  */
/* Each makes an optimizer of the module's present floating parameters, frozen ones too (they are skipped
   while they have no gradient).  It belongs to the module's context.  Weights that wait to be computed are
   computed now, so that the first step's plan is already every step's.  NULL on failure: CLEF_INVALID for a
   number that is negative, not finite or out of range, and for a module without parameters, else that of
   computing the weights.
       clef_optimizer *opt = clef_adam(net, &(clef_adam_options){.lr = 3e-4});  */

/* p -= lr·g; with momentum μ and dampening d: b = μ·b + (1-d)·g (first b = g), p -= lr·b;
   Nesterov's: p -= lr·(g + μ·b).  Sutskever et al., "On the importance of initialization and momentum in
   deep learning", 2013. */
CLEF_API clef_optimizer *clef_sgd(clef_module *module, const clef_sgd_options *options);
/* m = β1·m + (1-β1)·g, v = β2·v + (1-β2)·g², p -= lr·m̂ / (√v̂ + eps), where m̂ = m/(1-β1^t), v̂ = v/(1-β2^t)
   and t counts this parameter's updates from 1; amsgrad: the largest v so far in v's place.  Kingma and Ba,
   "Adam", 2015; Reddi et al., "On the convergence of Adam and beyond", 2018. */
CLEF_API clef_optimizer *clef_adam(clef_module *module, const clef_adam_options *options);
/* p *= 1 - lr·λ, then Adam's update by the plain gradient.  Loshchilov and Hutter, "Decoupled weight decay
   regularization", 2019. */
CLEF_API clef_optimizer *clef_adamw(clef_module *module, const clef_adamw_options *options);
/* s = α·s + (1-α)·g², u = g / (√s + eps), p -= lr·u; momentum μ: b = μ·b + u, p -= lr·b;
   centered: a = α·a + (1-α)·g and s - a² in s's place.  Hinton, "Neural networks for machine learning",
   lecture 6e, 2012; centered: Graves, "Generating sequences with recurrent neural networks", 2013. */
CLEF_API clef_optimizer *clef_rmsprop(clef_module *module, const clef_rmsprop_options *options);
/* s = s + g², p -= lr/(1 + (t-1)·lr_decay) · g / (√s + eps); s begins at initial.  Duchi, Hazan and Singer,
   "Adaptive subgradient methods for online learning and stochastic optimization", 2011. */
CLEF_API clef_optimizer *clef_adagrad(clef_module *module, const clef_adagrad_options *options);

/* Gives parameters whose name ends in `suffix` their own learning-rate factor and weight decay (a 0 here is
   0); a later call wins.  CLEF_INVALID when no name ends so or a number is negative.
       clef_optimizer_group(opt, "bias", 1, 0);   biases do not decay  */
CLEF_API clef_status clef_optimizer_group(clef_optimizer *opt, const char *suffix, double lr_scale, double weight_decay);

/* Updates every parameter that has a gradient, clears the gradients, ends the step (see clef/tensor.h).  Does
   not wait.  Returns the context's first error if it has one, so this is the one status a training loop needs
   to look at.  CLEF_LOST: a parameter on a device that is left has its value from before the step, or after it, and can be read and
   saved once clef_clear_error was called.  CLEF_STATE, and nothing happens, while parameters have averages (clef_averaged_use). */
CLEF_API clef_status clef_step(clef_optimizer *opt);
/* The rate before the groups' factors; NaN for NULL. */
CLEF_API double clef_learning_rate(const clef_optimizer *opt);
/* Sets that rate from the next step on; a schedule sets it anew at its next tick.  Makes no new plan. */
CLEF_API void clef_set_learning_rate(clef_optimizer *opt, double lr);
/* Calls of clef_step so far, those before a checkpoint included; 0 for NULL. */
CLEF_API int64_t clef_optimizer_steps(const clef_optimizer *opt);
/* The context that owns it; NULL for NULL. */
CLEF_API clef_context *clef_optimizer_context(const clef_optimizer *opt);

/* ---- scaled losses: so that gradients that pass through half types neither vanish nor overflow ----
   A net is trained with half types under autocast (clef_set_autocast), where the program makes them, by clef_to in a module's function, or with
   parameters of such a type (clef_nn_gpt).  bf16 has f32's range and needs no scale; f16 has gradients above 65504 as infinite, below 6e-8 as 0.
   The loss times a scale goes to backward; the step divides the gradients by it in f32, and is left out where one is not finite:
       scale·backoff after a step that was left out,   scale·growth after `interval` updates without one
   as torch.amp.GradScaler.  Micikevicius et al., "Mixed precision training", 2018.
       clef_grad_scaler *scaler = clef_grad_scaler_new(ctx, NULL);
       for (clef_batch b; clef_next(data, &b);) {
           clef_backward(clef_grad_scaler_scale(scaler, clef_cross_entropy(clef_forward(net, b.x), b.y, NULL)));
           clef_grad_scaler_step(scaler, opt);
           clef_grad_scaler_update(scaler);
       }  */
typedef struct clef_grad_scaler_options {
    double scale;     /* at first, from 2⁻¹²⁶ to 2¹²⁶, which it never leaves; 0: 65536 */
    double growth;    /* 0: 2 */
    double backoff;   /* 0: 0.5 */
    int64_t interval; /* 0: 2000 */
} clef_grad_scaler_options;
typedef struct clef_grad_scaler clef_grad_scaler; /* owned by the context */
/* NULL and CLEF_INVALID for a scale out of range, a growth below 1, a backoff above 1 or one of these that is not finite. */
CLEF_API clef_grad_scaler *clef_grad_scaler_new(clef_context *ctx, const clef_grad_scaler_options *options);
/* loss·scale, in f32 (f64 for f64), for clef_backward. */
CLEF_API clef_tensor *clef_grad_scaler_scale(clef_grad_scaler *scaler, clef_tensor *loss);
/* clef_clip_grad_norm of the gradients without the scale, of which it returns the norm; before the step. */
CLEF_API clef_tensor *clef_grad_scaler_clip_norm(clef_grad_scaler *scaler, clef_module *module, double max_norm);
/* clef_step of the gradients without the scale where all of the optimizer's are finite; else they are cleared and the step ends, and
   parameters, states and counts stay as they are.  Waits for the gradients.  Ranks that average gradients decide alike.  For several
   optimizers of one loss, one after the other. */
CLEF_API clef_status clef_grad_scaler_step(clef_grad_scaler *scaler, clef_optimizer *opt);
/* The next scale, once behind the steps of a loss. */
CLEF_API void clef_grad_scaler_update(clef_grad_scaler *scaler);
typedef struct clef_grad_scaler_state {
    double scale;
    int64_t good; /* updates in a row without a step that was left out, since the scale grew */
} clef_grad_scaler_state;
/* The present scale and count, for checkpoints (clef_checkpoint.scaler); zeros for NULL. */
CLEF_API clef_grad_scaler_state clef_grad_scaler_get(const clef_grad_scaler *scaler);
/* Puts them back.  The context's error is CLEF_INVALID for a scale out of range or a negative count, and nothing changes. */
CLEF_API void clef_grad_scaler_set(clef_grad_scaler *scaler, clef_grad_scaler_state state);

/* ---- L-BFGS: for a loss that is the same function at every call, such as of a whole data set ----
   It asks for the loss several times in each step, so it takes a function.  In the vector x of all parameters, with gradient g:
       x += t·d, d = -H·g, H from the last `history` pairs s = t·d and y, the change of g, by the two-loop recursion, which begins with
       H = (y·s)/(y·y) of the newest pair; d = -g at first
   t is lr, in the very first iteration at most lr/Σ|g|; with strong_wolfe it is sought, from there on, for a loss that falls enough and a slope
   that is small enough (10⁻⁴ and 0.9 in the strong Wolfe conditions).  Rules and defaults are PyTorch's (torch.optim.LBFGS), but that
   there a search of one or two iterations may have too few evaluations to move at all.  Liu and Nocedal,
   "On the limited memory BFGS method for large scale optimization", 1989; Nocedal and Wright, "Numerical optimization", 2006. */
typedef struct clef_lbfgs_options {
    double lr;               /* 0: 1 */
    int max_iter, max_eval;  /* iterations and evaluations of one step; 0: 20, and max_iter·5/4, with strong_wolfe at least 25 */
    double tolerance_grad;   /* ends a step where no |element| of g is larger; 0: 1e-7 */
    double tolerance_change; /* or none of t·d is, or the loss changes by less; 0: 1e-9 */
    int history;             /* pairs, each of two vectors of the parameters' size; 0: 100 */
    bool strong_wolfe;
} clef_lbfgs_options;
typedef struct clef_lbfgs clef_lbfgs; /* owned by the module's context */
/* Makes it for the module's present floating parameters; its vectors are f32, f64 where a parameter is, and lie where the first parameter does.
   NULL and CLEF_INVALID for a number that is negative or not finite, and for a module without parameters.  It is one rank's: gradients are not
   averaged.
       clef_lbfgs *opt = clef_lbfgs_new(net, &(clef_lbfgs_options){.strong_wolfe = true});  */
CLEF_API clef_lbfgs *clef_lbfgs_new(clef_module *module, const clef_lbfgs_options *options);
/* The loss of the present parameters, of one element, made anew by each call; NULL is a failure.  What it makes ends with the call, kept tensors
   apart. */
typedef clef_tensor *(*clef_closure_fn)(void *user);
/* One step: up to max_iter iterations, each with clef_backward of one loss or more.  Waits for every loss.  *loss (may be NULL): of the first
   evaluation, before anything moved.  Gradients are cleared.  After a failure the parameters are where the last iteration that succeeded left
   them: CLEF_INVALID if a loss or gradient is not finite where the step begins, or after an iteration without a line search, which passes such
   lengths by, or if products of gradients overflow the vectors' dtype; CLEF_STATE inside its own closure, and while the module has averages.
   Without a line search nobody asks for the loss where the last iteration leads: it may be infinite there, which the next step finds.  Its
   pairs are not in checkpoints: a run that is resumed gathers them anew.
       double loss;
       for (int i = 0; i < 10; i++) clef_lbfgs_step(opt, loss_of_all, &data, &loss);  */
CLEF_API clef_status clef_lbfgs_step(clef_lbfgs *lbfgs, clef_closure_fn closure, void *user, double *loss);
typedef struct clef_lbfgs_state {
    int64_t iterations, evaluations; /* of all steps */
    double loss;                     /* the last one that was evaluated where the parameters are, or one iteration before */
} clef_lbfgs_state;
/* Zeros for NULL and before the first step. */
CLEF_API clef_lbfgs_state clef_lbfgs_get(const clef_lbfgs *lbfgs);

/* ---- averages of weights ----
   a is the average of a parameter p over the updates n = 1, 2, …:
       a = p at first, then decay·a + (1 - decay)·p; with decay 0: (p_1 + … + p_n)/n
   Often a better model than the last weights.  The first is Polyak averaging with forgetting, as in torch.optim.swa_utils.AveragedModel with
   get_ema_multi_avg_fn, the second its default.  Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", 1992; Izmailov
   et al., "Averaging weights leads to wider optima and better generalization" (SWA), 2018. */
typedef struct clef_averaged_options {
    double decay; /* from 0 to below 1, of f32 up to 1 - 6e-8, often 0.999; 0: all updates count the same */
    bool buffers; /* floating buffers are averaged, too; false: there are no averages of them, and the module's own are used */
} clef_averaged_options;
typedef struct clef_averaged clef_averaged; /* owned by the module's context */
/* Averages of the module's present floating parameters, which begin as copies of them, on their devices, f32 (f64 for f64 parameters).  The
   decay is rounded to such a type, and must be below 1 there.  NULL on failure: CLEF_INVALID for a decay out of range and for a module without
   floating parameters.  NULL options: all defaults.  Ranks whose parameters have the same bits have averages with the same bits; not of a
   module whose layers are spread over ranks.
       clef_averaged *mean = clef_averaged_new(net, &(clef_averaged_options){.decay = 0.999});  */
CLEF_API clef_averaged *clef_averaged_new(clef_module *module, const clef_averaged_options *options);
/* Takes the present parameters into the averages, mostly after clef_step.  Does not wait; all updates but the first have one plan.  CLEF_STATE
   while the module has averages, these or others.
       clef_step(opt);
       clef_averaged_update(mean);  */
CLEF_API clef_status clef_averaged_update(clef_averaged *averaged);
/* true: gives the module the averages, to evaluate or save it, and keeps its own values aside; false: gives them back, bit for bit.  Of half
   types the averages are rounded.  Batch norm's statistics are those of the last weights, unless .buffers is set: run the module over training
   data in training mode to have its own.  Does nothing where it is so already.  CLEF_STATE while other averages of one of the parameters are in
   use; clef_step, clef_lbfgs_step and loading a checkpoint refuse, too, until the module has its own again.
       clef_averaged_use(mean, true);
       clef_evaluate(net, tests, NULL, NULL, &result);
       clef_averaged_use(mean, false);  */
CLEF_API clef_status clef_averaged_use(clef_averaged *averaged, bool use);
/* Updates so far, those before a checkpoint included; 0 for NULL. */
CLEF_API int64_t clef_averaged_updates(const clef_averaged *averaged);
/* For checkpoints (clef_checkpoint.averaged does it): how many averages there are, average i, named as its parameter, and the number of
   updates, which is put back after the averages were assigned. */
CLEF_API int clef_averaged_tensors(const clef_averaged *averaged);
CLEF_API clef_named_tensor clef_averaged_tensor(const clef_averaged *averaged, int i);
CLEF_API void clef_averaged_set(clef_averaged *averaged, int64_t updates);
/* The context that owns it; NULL for NULL. */
CLEF_API clef_context *clef_averaged_context(const clef_averaged *averaged);

/* ---- clipping, before clef_step ---- */
/* g *= min(1, max_norm / (‖all g‖₂ + 1e-6)); returns the norm before clipping as a temporary scalar (0
   without gradients).  NULL and CLEF_INVALID unless max_norm ≥ 0.  Pascanu, Mikolov and Bengio, "On the
   difficulty of training recurrent neural networks", 2013. */
CLEF_API clef_tensor *clef_clip_grad_norm(clef_module *module, double max_norm);
/* Every element of every gradient into [-limit, limit]; CLEF_INVALID unless limit ≥ 0. */
CLEF_API clef_status clef_clip_grad_value(clef_module *module, double limit);

/* ---- schedules: a pure function of the tick t = 0, 1, … (a step or an epoch), plus plateau ----
     constant     base, the optimizer's rate when the schedule was made
     step         base·γ^⌊t/step_size⌋               multistep  base·γ^(number of milestones ≤ t)
     exponential  base·γ^t                           cosine     min + (base - min)·(1 + cos(π·t/total))/2
     one-cycle    max/25 → max over pct_start of total, then → max/250,000, both along half a cosine
     plateau      ·γ, not below min, after more than `patience` metrics in a row without improvement
   Past its end (t ≥ total) the cosine stays at min and one-cycle at its last rate; PyTorch's
   CosineAnnealingLR rises again there.
   Warm-up of w ticks: base·(t+1)/w first, then the kind's own function of t - w.  Cosine: Loshchilov and
   Hutter, "SGDR", 2017; one-cycle: Smith and Topin, "Super-convergence", 2018. */
typedef enum clef_schedule_kind {
    CLEF_SCHEDULE_CONSTANT,
    CLEF_SCHEDULE_STEP,
    CLEF_SCHEDULE_MULTISTEP,
    CLEF_SCHEDULE_EXPONENTIAL,
    CLEF_SCHEDULE_COSINE,
    CLEF_SCHEDULE_ONE_CYCLE,
    CLEF_SCHEDULE_PLATEAU
} clef_schedule_kind;
typedef struct clef_schedule_options {
    clef_schedule_kind kind;
    int64_t step_size;         /* step */
    const int64_t *milestones; /* multistep, ascending */
    int n_milestones;
    double gamma;     /* step, multistep, exponential, plateau; 0: 0.1 (exponential: 0.95) */
    int64_t total;    /* cosine, one-cycle: length */
    double min_lr;    /* cosine: what it ends at; plateau: never below */
    double max_lr;    /* one-cycle: its peak; 0: 10 × the optimizer's lr */
    double pct_start; /* one-cycle: share of rising; 0: 0.3 */
    int64_t patience; /* plateau; 0: 10 */
    double threshold; /* plateau: relative improvement; 0: 1e-4 */
    bool maximize;    /* plateau: the metric should grow; not in clef_fit, whose metric is a loss */
    int64_t warmup;   /* any kind: linear from lr/warmup over so many ticks first */
} clef_schedule_options;
typedef struct clef_schedule clef_schedule; /* owned by the context */
/* Takes the optimizer's present rate as its base and sets the rate of tick 0.  Milestones are copied; the
   schedule belongs to the context.  NULL and CLEF_INVALID for options out of range.
       clef_schedule_new(opt, &(clef_schedule_options){.kind = CLEF_SCHEDULE_COSINE, .total = 30})  */
CLEF_API clef_schedule *clef_schedule_new(clef_optimizer *opt, const clef_schedule_options *options);
/* One tick (a step or an epoch, as the caller chooses); sets the optimizer's learning rate.  Call it after
   the step. */
CLEF_API clef_status clef_schedule_tick(clef_schedule *schedule);
/* Tells a plateau what the metric is now (a NaN is no improvement); other kinds take no notice. */
CLEF_API clef_status clef_schedule_metric(clef_schedule *schedule, double value);

/* ---- state, for checkpoints: the tensors, then clef_optimizer_set, then clef_schedule_set ---- */
/* Number of state tensors; 0 for NULL. */
CLEF_API int clef_optimizer_tensors(const clef_optimizer *opt);
/* State tensor i, the optimizer's own: number 0 is "step", i64, the updates that each parameter has had; then
   each parameter's states, named as PyTorch does ("0.weight.exp_avg"); with .zero this rank's part of each, flat, zeros behind the last
   element.  All zero if there is none. */
CLEF_API clef_named_tensor clef_optimizer_tensor(const clef_optimizer *opt, int i);
typedef struct clef_optimizer_state {
    int64_t steps;
    double lr;
} clef_optimizer_state;
/* What of the state is no tensor; zeros for NULL. */
CLEF_API clef_optimizer_state clef_optimizer_get(const clef_optimizer *opt);
/* Puts it back, and takes the update counts from tensor "step", which clef_optimizer_get and clef_optimizer_tensor bring up to date: assign
   the tensors first.  For another rate alone there is clef_set_learning_rate. */
CLEF_API void clef_optimizer_set(clef_optimizer *opt, clef_optimizer_state state);
typedef struct clef_schedule_state {
    int64_t ticks, bad; /* bad, best: a plateau's metrics without improvement in a row, and the best one */
    double best, lr;
} clef_schedule_state;
/* The whole state of a schedule, for checkpoints; its options are not in it.  Zeros for NULL. */
CLEF_API clef_schedule_state clef_schedule_get(const clef_schedule *schedule);
/* Puts it back; sets the optimizer's rate too. */
CLEF_API void clef_schedule_set(clef_schedule *schedule, clef_schedule_state state);

#ifdef __cplusplus
}
#endif
#endif
