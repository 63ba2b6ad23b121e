/* recurrent_fused.c — the steps of a recurrent layer in one direction as one op (kernels/recurrent.h), of which backward is another. */
#include "ops/recurrent.h"

enum { MOST_OPTIONAL = 4, MOST_OUTPUTS = 4 };

static const clef_op op_recurrent, op_recurrent_back;

/* ---- infer ---- */

static clef_shape sequence_shape(clef_shape like, int64_t columns) {
    like.dim[2] = columns;
    return like;
}

static bool is_sequence_of(clef__call *call) {
    clef_shape x = call->input[0]->shape, w = call->input[1]->shape;
    const clef__recurrence *a = call->attributes;
    return clef__infer_takes(call, x.rank == 3 && w.rank == 2 && w.dim[0] == clef__cell_gates(a->cell) * w.dim[1],
                             "input 0 is a sequence, and w [gates·H,H]");
}

static int count_given(int64_t given) {
    int n = 0;
    for (; given; given &= given - 1) n++;
    return n;
}

static bool infer_recurrent(clef__call *call) {
    const clef__recurrence *a = call->attributes;
    if (!is_sequence_of(call)) return false;
    clef_shape x = call->input[0]->shape, w = call->input[1]->shape;
    int64_t hidden = w.dim[1], batch = x.dim[a->batch_first ? 0 : 1], steps = x.dim[a->batch_first ? 1 : 0];
    if (!clef__infer_takes(call, x.dim[2] == w.dim[0] && call->n_inputs == 2 + count_given(a->given), "x has w's rows"))
        return false;
    clef_shape state = CLEF_SHAPE(batch, hidden), shape[MOST_OUTPUTS] = {sequence_shape(x, hidden), state, state};
    shape[a->cell == CLEF__CELL_LSTM ? 3 : 2] = CLEF_SHAPE(steps, batch, clef__cell_saved(a->cell) * hidden);
    for (int k = 0; k < call->n_outputs; k++) call->out[k] = (clef__type){shape[k], call->input[0]->dtype};
    return true;
}

static bool infer_recurrent_back(clef__call *call) {
    const clef__recurrence *a = call->attributes;
    if (!is_sequence_of(call)) return false;
    clef_shape y = call->input[0]->shape, w = call->input[1]->shape, state = CLEF_SHAPE(y.dim[a->batch_first ? 0 : 1], w.dim[1]);
    if (!clef__infer_takes(call, y.dim[2] == w.dim[1] && call->n_inputs == 2 + count_given(a->given), "y has w's columns"))
        return false;
    clef_shape dx = sequence_shape(y, w.dim[0]), shape[] = {dx, state, a->cell == CLEF__CELL_GRU ? dx : state};
    for (int k = 0; k < call->n_outputs; k++) call->out[k] = (clef__type){shape[k], call->input[0]->dtype};
    return true;
}

static void cost_recurrent(const clef__node *node, double *flops, double *bytes) {
    clef_shape w = node->input[1]->shape;
    double rows = (double)clef_shape_numel(node->out->shape) / (double)node->out->shape.dim[2], all = 0;
    for (int i = 0; i < node->n_inputs; i++) all += clef__output_bytes(node->input[i]);
    for (int k = 0; k < node->n_outputs; k++) all += clef__output_bytes(&node->out[k]);
    *flops = 2 * rows * (double)w.dim[0] * (double)w.dim[1];
    *bytes = all;
}

/* ---- gradient ---- */

static clef_tensor *rows_of(clef_tensor *x) {
    clef_shape s = x ? clef_tensor_shape(x) : CLEF_SHAPE(0, 0, 0);
    return clef_reshape(x, CLEF_SHAPE(s.dim[0] * s.dim[1], s.dim[2]));
}

static clef_tensor *product_of_rows(clef_tensor *g, clef_tensor *h) { return clef_matmul(clef_transpose(g, 0, 1), h); }

/* The gates' gradients [b,gates·H] at each item's first step. */
static clef_tensor *at_first_step(clef_tensor *dg, const clef__recurrence *a, clef_tensor *lengths) {
    int along = a->batch_first ? 1 : 0;
    clef_shape s = clef_tensor_shape(dg), one = s;
    one.dim[along] = 1;
    int64_t first = a->backwards ? s.dim[along] - 1 : 0;
    if (!lengths || !a->backwards) return rows_of(clef_slice(dg, along, first, first + 1, 1));
    clef_tensor *index = clef_clamp(clef_sub_scalar(lengths, 1), 0, (double)first);
    index = clef_reshape(index, along ? CLEF_SHAPE(s.dim[0], 1, 1) : CLEF_SHAPE(1, s.dim[1], 1));
    return rows_of(clef_gather(dg, along, clef_expand(index, one)));
}

/* dw = Σ dg(t)ᵀ h(t − 1): one product over all steps but the first, and one of that with h0. */
static clef_tensor *gradient_of_w(clef_tensor *dg, clef_tensor *y, const clef__recurrence *a, clef_tensor *h0,
                                  clef_tensor *lengths) {
    int along = a->batch_first ? 1 : 0, late = a->backwards ? 0 : 1;
    int64_t steps = clef_tensor_shape(y).dim[along];
    clef_tensor *dw = NULL;
    if (steps > 1)
        dw = product_of_rows(rows_of(clef_slice(dg, along, late, steps - 1 + late, 1)),
                             rows_of(clef_slice(y, along, 1 - late, steps - late, 1)));
    if (!h0) return dw;
    clef_tensor *first = product_of_rows(at_first_step(dg, a, lengths), h0);
    return dw ? clef_add(dw, first) : first;
}

/* Inputs behind the first two, in the order of their bits. */
typedef struct optional_inputs {
    clef_tensor *bias, *h0, *c0, *lengths;
    int bias_at, h0_at, c0_at;
} optional_inputs;

static optional_inputs find_optional(const clef__recurrence *a, clef_tensor *const *x) {
    optional_inputs o = {0};
    int at = 2;
    if (a->given & CLEF__HAS_BIAS) o.bias = x[o.bias_at = at++];
    if (a->given & CLEF__HAS_H0) o.h0 = x[o.h0_at = at++];
    if (a->given & CLEF__HAS_C0) o.c0 = x[o.c0_at = at++];
    if (a->given & CLEF__HAS_LENGTHS) o.lengths = x[at];
    return o;
}

static bool differentiate_steps(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const clef__recurrence *a,
                                const optional_inputs *o, clef_tensor **out) {
    bool lstm = a->cell == CLEF__CELL_LSTM, gru = a->cell == CLEF__CELL_GRU;
    clef_tensor *first = lstm ? o->c0 : gru ? o->h0 : NULL, *saved = lstm ? y[3] : gru ? y[2] : NULL;
    clef_tensor *maybe[] = {saved, first, o->lengths, g[0], g[1], lstm ? g[2] : NULL}, *in[8] = {y[0], x[1]};
    static const int bit[] = {CLEF__HAS_SAVED, CLEF__HAS_H0, CLEF__HAS_LENGTHS, CLEF__HAS_GY, CLEF__HAS_GH, CLEF__HAS_GC};
    clef__recurrence back = *a;
    int n = 2;
    back.given = 0;
    for (int i = 0; i < 6; i++) {
        if (!maybe[i]) continue;
        back.given |= bit[i];
        in[n++] = maybe[i];
    }
    return clef__apply_all(&op_recurrent_back, in, n, &back, sizeof back, out, lstm || gru ? 3 : 2);
}

/* The layer as its composition takes it, of inputs that are its own; a GRU's bias is the last part of b_hh. */
static clef__direction direction_of(const clef__recurrence *a, clef_tensor *const *own, const optional_inputs *o) {
    clef_shape x = clef_tensor_shape(own[0]);
    int64_t hidden = clef_tensor_shape(own[1]).dim[1];
    clef_tensor *bias = o->bias ? clef_pad(o->bias, (int64_t[]){2 * hidden}, (int64_t[]){0}, 0) : NULL;
    return (clef__direction){.cell = (clef__cell)a->cell,
                             .batch_first = a->batch_first,
                             .backwards = a->backwards,
                             .batch = x.dim[a->batch_first ? 0 : 1],
                             .steps = x.dim[a->batch_first ? 1 : 0],
                             .hidden = hidden,
                             .w = {.w_hh = own[1], .b_hh = bias},
                             .gates = own[0],
                             .h0 = o->h0,
                             .c0 = o->c0,
                             .lengths = o->lengths};
}

/* Gradients that are to be differentiated again are those of the composition, each by one input alone, and of one output after the other:
   g has a history of its own, in which the layer itself may be. */
static void slopes_of_composed(clef_tensor *const *x, clef_tensor *const *g, const clef__node *node, clef_tensor **dx) {
    const clef__recurrence *a = clef__attributes(node);
    clef_tensor *own[2 + MOST_OPTIONAL], *wide[2 + MOST_OPTIONAL] = {NULL}, *out[CLEF__MOST_STATES];
    int n = node->n_inputs - (a->given & CLEF__HAS_LENGTHS ? 1 : 0);
    for (int i = 0; i < n; i++)
        if (!(wide[i] = clef__to_wide(own[i] = clef__apart(x[i])))) return;
    if (n < node->n_inputs) wide[n] = x[n];
    optional_inputs o = find_optional(a, wide);
    clef__direction d = direction_of(a, wide, &o);
    if (!clef__recurrent_composed(&d, out)) return;
    for (int k = 0; k < clef__recurrent_states(&d); k++) {
        clef_tensor *of_one[2 + MOST_OPTIONAL];
        if (!g[k] || clef__grad_between(out[k], clef__to_wide(g[k]), own, n, of_one) != CLEF_OK) continue;
        for (int i = 0; i < n; i++)
            if (of_one[i]) dx[i] = dx[i] ? clef_add(dx[i], of_one[i]) : of_one[i];
    }
}

static void gradient_recurrent(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                               clef_tensor **dx) {
    const clef__recurrence *a = clef__attributes(clef__node_of(y[0]));
    if (clef_grad_enabled(clef__node_of(y[0])->ctx)) {
        slopes_of_composed(x, g, clef__node_of(y[0]), dx);
        return;
    }
    optional_inputs o = find_optional(a, x);
    clef_tensor *out[3];
    if (!differentiate_steps(x, y, g, a, &o, out)) return;
    clef_tensor *dg = a->cell == CLEF__CELL_GRU ? out[2] : out[0];
    int64_t hidden = clef_tensor_shape(x[1]).dim[1];
    if (wanted[0]) dx[0] = out[0];
    if (wanted[1]) dx[1] = gradient_of_w(dg, y[0], a, o.h0, o.lengths);
    if (o.bias && wanted[o.bias_at])
        dx[o.bias_at] = clef__sum_to(rows_of(clef_slice(dg, 2, 2 * hidden, 3 * hidden, 1)), CLEF_SHAPE(hidden));
    if (o.h0 && wanted[o.h0_at]) dx[o.h0_at] = out[1];
    if (o.c0 && wanted[o.c0_at]) dx[o.c0_at] = out[2];
    for (int k = 0; k < (a->cell >= CLEF__CELL_LSTM ? 3 : 2); k++) { /* nobody else is to have them computed */
        bool given = false;
        for (int i = 0; i < clef__node_of(y[0])->n_inputs; i++) given |= dx[i] == out[k];
        if (!given) clef__tensor_drop(out[k]);
    }
}

static const clef_op op_recurrent = {.name = "recurrent",
                                     .kind = CLEF__KERNEL,
                                     .infer = infer_recurrent,
                                     .gradient = gradient_recurrent,
                                     .strategies = clef__recurrent_strategies,
                                     .cost = cost_recurrent};
static const clef_op op_recurrent_back = {.name = "recurrent_back",
                                          .kind = CLEF__KERNEL,
                                          .infer = infer_recurrent_back,
                                          .strategies = clef__recurrent_back_strategies,
                                          .cost = cost_recurrent};

/* ---- one direction ---- */

bool clef__recurrent_fused(const clef__direction *d, clef_tensor **out) {
    bool lstm = d->cell == CLEF__CELL_LSTM, gru = d->cell == CLEF__CELL_GRU;
    clef_tensor *own = gru && d->w.b_hh ? clef_slice(d->w.b_hh, 0, 2 * d->hidden, 3 * d->hidden, 1) : NULL, *all[MOST_OUTPUTS];
    clef_tensor *maybe[] = {own, d->h0, d->c0, d->lengths}, *in[2 + MOST_OPTIONAL] = {d->gates, d->w.w_hh};
    static const int bit[] = {CLEF__HAS_BIAS, CLEF__HAS_H0, CLEF__HAS_C0, CLEF__HAS_LENGTHS};
    clef__recurrence a = {.cell = d->cell, .backwards = d->backwards, .batch_first = d->batch_first};
    int n = 2, outputs = lstm ? 4 : gru ? 3 : 2;
    for (int i = 0; i < MOST_OPTIONAL; i++) {
        if (!maybe[i]) continue;
        a.given |= bit[i];
        in[n++] = maybe[i];
    }
    if (!clef__apply_all(&op_recurrent, in, n, &a, sizeof a, all, outputs)) return false;
    for (int k = 0; k < clef__recurrent_states(d); k++) out[k] = all[k];
    if (lstm || gru) clef__tensor_drop(all[outputs - 1]); /* what backward needs is for nobody else */
    return true;
}
