/* adagrad.c — gradients over the root of the sum of their squares.

     g += weight_decay·p        s = s + g²        p -= lr / (1 + (t-1)·lr_decay) · g / (√s + eps)

   Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization", 2011. */
#include "optim/optimizer.h"

enum { DECAY, EPS, LR, N_NUMBERS };

static void adagrad_numbers(const clef__moment *m, double *number) {
    const clef_adagrad_options *o = m->options;
    number[DECAY] = m->weight_decay;
    number[EPS] = o->eps;
    number[LR] = m->lr / (1 + (double)(m->count - 1) * o->lr_decay);
}

static clef_tensor *adagrad_update(clef__update *u) {
    clef_tensor *g = u->decays ? clef_add(u->g, clef_mul(u->p, u->number[DECAY])) : u->g;
    u->state[0] = clef_add(u->state[0], clef_square(g));
    clef_tensor *move = clef_div(g, clef_add(clef_sqrt(u->state[0]), u->number[EPS]));
    return clef_sub(u->p, clef_mul(move, u->number[LR]));
}

static const clef__rule adagrad_rule = {"adagrad", N_NUMBERS, adagrad_numbers, adagrad_update};

clef_optimizer *clef_adagrad(clef_module *module, const clef_adagrad_options *options) {
    clef_adagrad_options o = options ? *options : (clef_adagrad_options){0};
    o.lr = clef__or(o.lr, 1e-2);
    o.eps = clef__or(o.eps, 1e-10);
    const clef__checked checked[] = {
        {"lr", o.lr}, {"lr_decay", o.lr_decay}, {"eps", o.eps}, {"weight_decay", o.weight_decay}, {"initial", o.initial}};
    if (!clef__check_options(module, "adagrad", checked, 5)) return NULL;
    clef__rule_setup setup = {.rule = &adagrad_rule,
                              .options = &o,
                              .options_bytes = sizeof o,
                              .lr = o.lr,
                              .weight_decay = o.weight_decay,
                              .group = o.group,
                              .zero = o.zero,
                              .state = {"sum"},
                              .initial = o.initial};
    return clef__optimizer_new(module, &setup);
}
