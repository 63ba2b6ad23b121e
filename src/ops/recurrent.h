/* recurrent.h — one layer of a recurrent net in one direction, read from a call and checked: what its ways to compute share. */
#ifndef CLEF_RECURRENT_H
#define CLEF_RECURRENT_H
#include "kernels/recurrent.h"
#include "ops/ops.h"

enum { CLEF__MOST_STATES = 3 }; /* y, h, c */

typedef struct clef__direction {
    clef__cell cell;
    bool batch_first, backwards;
    int64_t batch, steps, hidden;
    clef_recurrent_weights w;       /* NULL where absent */
    clef_tensor *gates;             /* x W_ihᵀ with the biases of joint_bias (recurrent.c), [t,b,gates·H] or [b,t,gates·H] */
    clef_tensor *h0, *c0, *lengths; /* [b,…]; NULL where absent */
    double clip;                    /* 0: none */
    bool reset_before, coupled;     /* as in clef_recurrent_options */
    clef_recurrent_activation apply[3]; /* f, g, h; NULL: the cell's own */
} clef__direction;

/* What a cell has for activation 0 … 2: f of gates, g of what is new, h of c. */
static inline const char *clef__usual_activation(clef__cell cell, int which) {
    return which > 0 || cell == CLEF__CELL_TANH ? "Tanh" : cell == CLEF__CELL_RELU ? "Relu" : "Sigmoid";
}
static inline int clef__recurrent_states(const clef__direction *d) { return d->cell == CLEF__CELL_LSTM ? 3 : 2; }

/* Two ways to have y, h and of an LSTM c in out; false when it failed. */
/* As one op, whose kernels know PyTorch's definitions; a projection is a product of its own. */
bool clef__recurrent_fused(const clef__direction *d, clef_tensor **out);
/* Step by step in other ops: all options, gradients of any order. */
bool clef__recurrent_composed(const clef__direction *d, clef_tensor **out);

/* ---- activations (recurrent_activations.c) ---- */
/* a of x; a.name is one of the table. */
clef_tensor *clef__recurrent_activate(const clef_recurrent_activation *a, clef_tensor *x);
/* Is there an activation of this name? */
bool clef__is_recurrent_activation(const char *name);
/* Their names for an error line. */
extern const char clef__recurrent_activation_names[];
#endif
