/* adam.c — Adam, AMSGrad, AdamW.

     m = β1·m + (1-β1)·g        v = β2·v + (1-β2)·g²        t counts this parameter's updates, from 1
     p -= lr/(1-β1^t) · m / (√(v / (1-β2^t)) + eps)

   Adam adds weight_decay·p to g first; AdamW multiplies p by 1 - lr·weight_decay instead; AMSGrad puts the largest v so far
   in v's place.  Kingma and Ba, "Adam", 2015; Loshchilov and Hutter, "Decoupled weight decay regularization", 2019;
   Reddi et al., "On the convergence of Adam and beyond", 2018. */
#include "optim/optimizer.h"
#include <math.h>

typedef struct adam {
    double beta1, beta2, eps;
    bool amsgrad, decoupled;
} adam;

enum { DECAY, TAKE1, BETA2, TAKE2, CORRECTION2, EPS, STEP_SIZE, N_NUMBERS };

static void adam_numbers(const clef__moment *m, double *number) {
    const adam *a = m->options;
    double t = (double)m->count;
    number[DECAY] = a->decoupled ? 1 - m->lr * m->weight_decay : m->weight_decay;
    number[TAKE1] = 1 - a->beta1;
    number[BETA2] = a->beta2;
    number[TAKE2] = 1 - a->beta2;
    number[CORRECTION2] = 1 / sqrt(1 - pow(a->beta2, t));
    number[EPS] = a->eps;
    number[STEP_SIZE] = m->lr / (1 - pow(a->beta1, t));
}

static clef_tensor *adam_update(clef__update *u) {
    const adam *a = u->options;
    clef_tensor *p = u->p, *g = u->g;
    if (u->decays && a->decoupled) p = clef_mul(p, u->number[DECAY]);
    if (u->decays && !a->decoupled) g = clef_add(g, clef_mul(p, u->number[DECAY]));
    clef_tensor *m = clef_add(u->state[0], clef_mul(clef_sub(g, u->state[0]), u->number[TAKE1]));
    clef_tensor *v = clef_add(clef_mul(u->state[1], u->number[BETA2]), clef_mul(clef_square(g), u->number[TAKE2]));
    u->state[0] = m;
    u->state[1] = v;
    if (a->amsgrad) v = u->state[2] = clef_maximum(u->state[2], v);
    clef_tensor *scale = clef_add(clef_mul(clef_sqrt(v), u->number[CORRECTION2]), u->number[EPS]);
    return clef_sub(p, clef_mul(clef_div(m, scale), u->number[STEP_SIZE]));
}

static const clef__rule adam_rule = {"adam", N_NUMBERS, adam_numbers, adam_update};
static const clef__rule adamw_rule = {"adamw", N_NUMBERS, adam_numbers, adam_update};

static clef_optimizer *make(clef_module *module, const clef__rule *rule, const clef_adam_options *o, double decay, bool decoupled) {
    adam a = {clef__or(o->beta1, 0.9), clef__or(o->beta2, 0.999), clef__or(o->eps, 1e-8), o->amsgrad, decoupled};
    double lr = clef__or(o->lr, 1e-3);
    const clef__checked checked[] = {{"lr", lr}, {"beta1", a.beta1}, {"beta2", a.beta2}, {"eps", a.eps}, {"weight_decay", decay}};
    if (!clef__check_options(module, rule->name, checked, 5)) return NULL;
    if (a.beta1 >= 1 || a.beta2 >= 1) {
        clef__fail(clef_module_context(module), CLEF_INVALID, "%s: beta1 %g and beta2 %g must be below 1", rule->name, a.beta1,
                   a.beta2);
        return NULL;
    }
    clef__rule_setup setup = {.rule = rule,
                              .options = &a,
                              .options_bytes = sizeof a,
                              .lr = lr,
                              .weight_decay = decay,
                              .group = o->group,
                              .zero = o->zero,
                              .state = {"exp_avg", "exp_avg_sq", o->amsgrad ? "max_exp_avg_sq" : NULL}};
    return clef__optimizer_new(module, &setup);
}

clef_optimizer *clef_adam(clef_module *module, const clef_adam_options *options) {
    clef_adam_options o = options ? *options : (clef_adam_options){0};
    return make(module, &adam_rule, &o, o.weight_decay, false);
}

clef_optimizer *clef_adamw(clef_module *module, const clef_adamw_options *options) {
    clef_adamw_options o = options ? *options : (clef_adamw_options){0};
    clef_adam_options same = {.lr = o.lr, .beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps, .group = o.group, .zero = o.zero};
    return make(module, &adamw_rule, &same, o.no_decay ? 0 : clef__or(o.weight_decay, 1e-2), true);
}
