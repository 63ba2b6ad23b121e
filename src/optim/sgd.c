/* sgd.c — stochastic gradient descent with momentum, Nesterov's too.

     g += weight_decay·p                    buf = g (first update), momentum·buf + (1-dampening)·g (later)
     p -= lr·buf                            Nesterov: p -= lr·(g + momentum·buf)

   Sutskever et al., "On the importance of initialization and momentum in deep learning", 2013, as PyTorch writes it. */
#include "optim/optimizer.h"

enum { DECAY, MOMENTUM, TAKEN, LR, N_NUMBERS };

/* The buffer starts as zeros, so a weight of 1 on the first gradient makes the buffer that gradient. */
static void sgd_numbers(const clef__moment *m, double *number) {
    const clef_sgd_options *o = m->options;
    number[DECAY] = m->weight_decay;
    number[MOMENTUM] = o->momentum;
    number[TAKEN] = m->count == 1 ? 1 : 1 - o->dampening;
    number[LR] = m->lr;
}

static clef_tensor *sgd_update(clef__update *u) {
    const clef_sgd_options *o = u->options;
    clef_tensor *g = u->decays ? clef_add(u->g, clef_mul(u->p, u->number[DECAY])) : u->g;
    if (o->momentum != 0) {
        clef_tensor *taken = o->dampening != 0 ? clef_mul(g, u->number[TAKEN]) : g;
        u->state[0] = clef_add(clef_mul(u->state[0], u->number[MOMENTUM]), taken);
        g = o->nesterov ? clef_add(g, clef_mul(u->state[0], u->number[MOMENTUM])) : u->state[0];
    }
    return clef_sub(u->p, clef_mul(g, u->number[LR]));
}

static const clef__rule sgd_rule = {"sgd", N_NUMBERS, sgd_numbers, sgd_update};

clef_optimizer *clef_sgd(clef_module *module, const clef_sgd_options *options) {
    clef_sgd_options o = options ? *options : (clef_sgd_options){0};
    const clef__checked checked[] = {
        {"lr", o.lr}, {"momentum", o.momentum}, {"dampening", o.dampening}, {"weight_decay", o.weight_decay}};
    if (!clef__check_options(module, "sgd", checked, 4)) return NULL;
    clef_context *ctx = clef_module_context(module);
    if (o.lr == 0) {
        clef__fail(ctx, CLEF_INVALID, "sgd: lr is 0; give a learning rate");
        return NULL;
    }
    if (o.nesterov && (o.momentum == 0 || o.dampening != 0)) {
        clef__fail(ctx, CLEF_INVALID, "sgd: nesterov needs a momentum (%g) and no dampening (%g)", o.momentum, o.dampening);
        return NULL;
    }
    clef__rule_setup setup = {.rule = &sgd_rule,
                              .options = &o,
                              .options_bytes = sizeof o,
                              .lr = o.lr,
                              .weight_decay = o.weight_decay,
                              .group = o.group,
                              .zero = o.zero};
    if (o.momentum != 0) setup.state[0] = "momentum_buffer";
    return clef__optimizer_new(module, &setup);
}
