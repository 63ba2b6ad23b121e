/* recurrent_composed.c — a recurrent layer step by step in other ops: the definition of all its options, and the way to compute those that
   no kernel knows. */
#include "ops/recurrent.h"

enum { F, G, H }; /* ONNX's activations: of gates, of what is new, of c */

typedef struct state {
    clef_tensor *h, *c; /* c: of an LSTM */
} state;

static int time_dim(const clef__direction *d) { return d->batch_first ? 1 : 0; }

static clef_tensor *activate(const clef__direction *d, int which, clef_tensor *x) {
    clef_recurrent_activation a = d->apply[which];
    if (!a.name) a.name = clef__usual_activation(d->cell, which);
    bool clips = d->clip > 0 && which != H; /* c is not bounded, as in ONNX Runtime */
    return clef__recurrent_activate(&a, clips ? clef_clamp(x, -d->clip, d->clip) : x);
}

/* Units of gate k on: n gates' columns of x, or of w and bias rows. */
static clef_tensor *columns(const clef__direction *d, clef_tensor *x, int k, int n) {
    return clef_slice(x, 1, k * d->hidden, (k + n) * d->hidden, 1);
}
static clef_tensor *rows(const clef__direction *d, clef_tensor *w, int k, int n) {
    return clef_slice(w, 0, k * d->hidden, (k + n) * d->hidden, 1);
}

/* ---- a step of each cell: x [b,gates·H] are the step's products with the input ---- */

/* The input of gate k, of which a peephole sees c. */
static clef_tensor *seeing(const clef__direction *d, clef_tensor *gate, int peephole, clef_tensor *c) {
    return d->w.w_peep ? clef_add(gate, clef_mul(rows(d, d->w.w_peep, peephole, 1), c)) : gate;
}

static state step_lstm(const clef__direction *d, clef_tensor *x, state s) {
    clef_tensor *sum = clef_add(x, clef_linear(s.h, d->w.w_hh, CLEF_NONE));
    clef_tensor *i = activate(d, F, seeing(d, columns(d, sum, 0, 1), 0, s.c));
    clef_tensor *f = d->coupled ? clef_add_scalar(clef_neg(i), 1) : activate(d, F, seeing(d, columns(d, sum, 1, 1), 1, s.c));
    s.c = clef_add(clef_mul(f, s.c), clef_mul(i, activate(d, G, columns(d, sum, 2, 1))));
    s.h = clef_mul(activate(d, F, seeing(d, columns(d, sum, 3, 1), 2, s.c)), activate(d, H, s.c));
    if (d->w.w_hr) s.h = clef_linear(s.h, d->w.w_hr, CLEF_NONE);
    return s;
}

static state step_gru(const clef__direction *d, clef_tensor *x, state s) {
    clef_tensor *sum = clef_add(columns(d, x, 0, 2), clef_linear(s.h, rows(d, d->w.w_hh, 0, 2), CLEF_NONE));
    clef_tensor *r = activate(d, F, columns(d, sum, 0, 1)), *z = activate(d, F, columns(d, sum, 1, 1));
    clef_tensor *w = rows(d, d->w.w_hh, 2, 1), *bias = d->w.b_hh && !d->reset_before ? rows(d, d->w.b_hh, 2, 1) : CLEF_NONE;
    clef_tensor *hidden = d->reset_before ? clef_linear(clef_mul(r, s.h), w, CLEF_NONE) : clef_mul(r, clef_linear(s.h, w, bias));
    clef_tensor *n = activate(d, G, clef_add(columns(d, x, 2, 1), hidden));
    s.h = clef_add(n, clef_mul(z, clef_sub(s.h, n)));
    return s;
}

static state step(const clef__direction *d, clef_tensor *x, state s) {
    if (d->cell == CLEF__CELL_LSTM) return step_lstm(d, x, s);
    if (d->cell == CLEF__CELL_GRU) return step_gru(d, x, s);
    s.h = activate(d, F, clef_add(x, clef_linear(s.h, d->w.w_hh, CLEF_NONE)));
    return s;
}

/* ---- steps in time ---- */

/* x with each item's own steps in the opposite order, and what is beyond them where it was; twice that is x. */
static clef_tensor *reversed(const clef__direction *d, clef_tensor *x) {
    int along = time_dim(d);
    if (!d->lengths) return clef_flip(x, along);
    clef_tensor *time =
        clef_reshape(clef__count_beside(x, d->steps, CLEF_I32), along ? CLEF_SHAPE(1, d->steps, 1) : CLEF_SHAPE(d->steps, 1, 1));
    clef_tensor *length = clef_reshape(d->lengths, along ? CLEF_SHAPE(d->batch, 1, 1) : CLEF_SHAPE(1, d->batch, 1));
    clef_tensor *last = clef_sub_scalar(clef_clamp(length, 0, (double)d->steps), 1);
    clef_tensor *from = clef_where(clef_le(time, last), clef_sub(last, time), time);
    return clef_gather(x, along, clef_expand(from, clef_tensor_shape(x)));
}

static clef_tensor *at_step(const clef__direction *d, clef_tensor *x, int64_t at) {
    return clef_squeeze(clef_slice(x, time_dim(d), at, at + 1, 1), time_dim(d));
}

static clef_tensor *or_zeros(const clef__direction *d, clef_tensor *t, int64_t width) {
    clef_tensor *like = d->gates;
    clef_dtype dtype = clef_tensor_dtype(like);
    return t ? t
             : clef__constant(clef_tensor_context(like), CLEF_SHAPE(d->batch, width), dtype, clef_tensor_device(like),
                              clef__held(dtype, 0));
}

bool clef__recurrent_composed(const clef__direction *d, clef_tensor **out) {
    clef_tensor **y = clef__calloc((size_t)d->steps, sizeof *y), *x = d->backwards ? reversed(d, d->gates) : d->gates;
    if (!y) return clef__fail(clef_tensor_context(d->gates), CLEF_MEMORY, "recurrent: no host memory"), false;
    state s = {.h = or_zeros(d, d->h0, clef_tensor_shape(d->w.w_hh).dim[1])};
    if (d->cell == CLEF__CELL_LSTM) s.c = or_zeros(d, d->c0, d->hidden);
    for (int64_t t = 0; t < d->steps && s.h; t++) {
        state next = step(d, at_step(d, x, t), s);
        y[t] = next.h;
        if (d->lengths) {
            clef_tensor *goes_on = clef_reshape(clef_gt_scalar(d->lengths, (double)t), CLEF_SHAPE(d->batch, 1));
            y[t] = clef_where_scalar(goes_on, next.h, 0);
            next.h = clef_where(goes_on, next.h, s.h);
            if (next.c) next.c = clef_where(goes_on, next.c, s.c);
        }
        s = next;
    }
    out[0] = s.h ? clef_stack(y, (int)d->steps, time_dim(d)) : NULL;
    if (out[0] && d->backwards) out[0] = reversed(d, out[0]);
    out[1] = s.h;
    out[2] = s.c;
    clef__free(y);
    return out[0] != NULL;
}
