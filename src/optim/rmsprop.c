/* rmsprop.c — gradients over the root of their running mean square.

     g += weight_decay·p        s = α·s + (1-α)·g²        centered: a = α·a + (1-α)·g, then s - a² in s's place
     p -= lr · g / (√s + eps)   with momentum: buf = momentum·buf + g / (√s + eps), p -= lr·buf

   Hinton, "Neural networks for machine learning", lecture 6e, 2012; Graves, "Generating sequences with recurrent neural
   networks", 2013 (centered); eps outside the root as in PyTorch. */
#include "optim/optimizer.h"

enum { DECAY, ALPHA, TAKE, EPS, MOMENTUM, LR, N_NUMBERS };

static void rmsprop_numbers(const clef__moment *m, double *number) {
    const clef_rmsprop_options *o = m->options;
    number[DECAY] = m->weight_decay;
    number[ALPHA] = o->alpha;
    number[TAKE] = 1 - o->alpha;
    number[EPS] = o->eps;
    number[MOMENTUM] = o->momentum;
    number[LR] = m->lr;
}

/* States: the mean square, then the mean if centered, then the buffer if there is momentum. */
static clef_tensor *rmsprop_update(clef__update *u) {
    const clef_rmsprop_options *o = u->options;
    clef_tensor *g = u->decays ? clef_add(u->g, clef_mul(u->p, u->number[DECAY])) : u->g;
    clef_tensor *s = clef_add(clef_mul(u->state[0], u->number[ALPHA]), clef_mul(clef_square(g), u->number[TAKE]));
    u->state[0] = s;
    if (o->centered) {
        u->state[1] = clef_add(u->state[1], clef_mul(clef_sub(g, u->state[1]), u->number[TAKE]));
        s = clef_sub(s, clef_square(u->state[1]));
    }
    clef_tensor *move = clef_div(g, clef_add(clef_sqrt(s), u->number[EPS]));
    if (o->momentum != 0) {
        int buffer = o->centered ? 2 : 1;
        move = u->state[buffer] = clef_add(clef_mul(u->state[buffer], u->number[MOMENTUM]), move);
    }
    return clef_sub(u->p, clef_mul(move, u->number[LR]));
}

static const clef__rule rmsprop_rule = {"rmsprop", N_NUMBERS, rmsprop_numbers, rmsprop_update};

clef_optimizer *clef_rmsprop(clef_module *module, const clef_rmsprop_options *options) {
    clef_rmsprop_options o = options ? *options : (clef_rmsprop_options){0};
    o.lr = clef__or(o.lr, 1e-2);
    o.alpha = clef__or(o.alpha, 0.99);
    o.eps = clef__or(o.eps, 1e-8);
    const clef__checked checked[] = {
        {"lr", o.lr}, {"alpha", o.alpha}, {"eps", o.eps}, {"weight_decay", o.weight_decay}, {"momentum", o.momentum}};
    if (!clef__check_options(module, "rmsprop", checked, 5)) return NULL;
    clef__rule_setup setup = {.rule = &rmsprop_rule,
                              .options = &o,
                              .options_bytes = sizeof o,
                              .lr = o.lr,
                              .weight_decay = o.weight_decay,
                              .group = o.group,
                              .zero = o.zero,
                              .state = {"square_avg"}};
    int n = 1;
    if (o.centered) setup.state[n++] = "grad_avg";
    if (o.momentum != 0) setup.state[n] = "momentum_buffer";
    return clef__optimizer_new(module, &setup);
}
