/* layers_recurrent.c — RNN, LSTM and GRU layers and their cells, with PyTorch's names and initial weights. */
#include "nn/module.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RNN, LSTM, GRU };

typedef struct recurrent {
    int kind;
    bool cell; /* one step of x [b,in] */
    int runs;  /* layers · directions */
    int64_t hidden;
    clef_nn_recurrent_options o;
    clef_recurrent_weights weights[];
} recurrent;

static clef_tensor *input_at(clef_tensor *const *in, int n, int at) { return at < n ? in[at] : CLEF_NONE; }

/* A cell's states and x as sequences of one step. */
static clef_tensor *raised(clef_tensor *t) { return t == CLEF_NONE ? t : clef_unsqueeze(t, 0); }

static clef_status call_recurrent(clef_module *module, clef_tensor *const *in, int n, clef_tensor **out, int m, void *user) {
    const recurrent *r = user;
    int states = r->kind == LSTM ? 2 : 1, most = 1 + states + (r->cell ? 0 : 1), outputs = r->cell ? states : 1 + states;
    if (n > most || m > outputs)
        return clef__fail(module->ctx, CLEF_INVALID, "%s: %d inputs and %d outputs; it takes up to %d and gives up to %d",
                          module->type, n, m, most, outputs);
    clef_tensor *x = in[0], *h0 = input_at(in, n, 1), *c0 = states == 2 ? input_at(in, n, 2) : CLEF_NONE,
                *y[3] = {NULL, NULL, NULL};
    if (r->cell && clef_tensor_shape(x).rank != 2)
        return clef__fail(module->ctx, CLEF_SHAPE, "%s: x has %d dimensions; it wants [b,in]", module->type,
                          clef_tensor_shape(x).rank);
    if (r->cell) x = raised(x), h0 = raised(h0), c0 = raised(c0);
    clef_recurrent_options o = r->o.recurrent;
    if (!clef_is_training(module)) o.dropout = 0;
    o.lengths = r->cell ? CLEF_NONE : input_at(in, n, 1 + states);
    clef_tensor **first = r->cell ? NULL : &y[0], **h = r->cell || m > 1 ? &y[1] : NULL,
                **c = r->cell ? (m > 1 ? &y[2] : NULL)
                      : m > 2 ? &y[2]
                              : NULL;
    clef_status status = r->kind == LSTM  ? clef_lstm(x, h0, c0, r->weights, r->runs, &o, first, h, c)
                         : r->kind == GRU ? clef_gru(x, h0, r->weights, r->runs, &o, first, h)
                                          : clef_rnn(x, h0, r->weights, r->runs, &o, first, h);
    for (int k = 0; k < m && status == CLEF_OK; k++) out[k] = r->cell ? clef_squeeze(y[k + 1], 0) : y[k];
    return status;
}

static clef_tensor *new_weight(clef_module *m, const char *what, const char *suffix, clef_shape shape, int64_t hidden) {
    char name[64];
    double bound = 1 / sqrt((double)hidden);
    snprintf(name, sizeof name, "%s%s", what, suffix);
    clef_tensor *t = clef__new_parameter(m, name, shape);
    return t && clef_init_uniform(t, -bound, bound) == CLEF_OK ? t : NULL;
}

static bool make_weights(clef_module *m, recurrent *r, int run, int64_t in) {
    int directions = r->o.recurrent.bidirectional ? 2 : 1, layer = run / directions;
    int64_t gates = (r->kind == LSTM  ? 4
                     : r->kind == GRU ? 3
                                      : 1) *
                    r->hidden,
            width = r->o.projection ? r->o.projection : r->hidden;
    clef_recurrent_weights *w = &r->weights[run];
    char suffix[32] = "";
    if (!r->cell) snprintf(suffix, sizeof suffix, "_l%d%s", layer, run % directions ? "_reverse" : "");
    w->w_ih = new_weight(m, "weight_ih", suffix, CLEF_SHAPE(gates, layer ? directions * width : in), r->hidden);
    w->w_hh = new_weight(m, "weight_hh", suffix, CLEF_SHAPE(gates, width), r->hidden);
    w->b_ih = w->b_hh = w->w_hr = w->w_peep = CLEF_NONE;
    if (!r->o.no_bias) {
        w->b_ih = new_weight(m, "bias_ih", suffix, CLEF_SHAPE(gates), r->hidden);
        w->b_hh = new_weight(m, "bias_hh", suffix, CLEF_SHAPE(gates), r->hidden);
    }
    if (r->o.projection) w->w_hr = new_weight(m, "weight_hr", suffix, CLEF_SHAPE(width, r->hidden), r->hidden);
    if (r->o.peepholes) w->w_peep = new_weight(m, "weight_peep", suffix, CLEF_SHAPE(3 * r->hidden), r->hidden);
    return w->w_ih && w->w_hh && w->b_ih && w->b_hh && w->w_hr && w->w_peep;
}

static clef_module *make(clef_context *ctx, const char *type, int kind, bool cell, int64_t in, int64_t hidden,
                         const clef_nn_recurrent_options *options) {
    clef_nn_recurrent_options o = options ? *options : (clef_nn_recurrent_options){0};
    if (o.recurrent.layers == 0) o.recurrent.layers = 1;
    if (cell)
        o.recurrent.layers = 1, o.recurrent.bidirectional = o.recurrent.backwards = o.recurrent.batch_first = false,
        o.projection = 0;
    if (kind != LSTM && (o.projection || o.peepholes))
        return clef__module_refuse(ctx, "%s: projection and peepholes are an LSTM's only", type);
    if (o.recurrent.bidirectional && o.recurrent.backwards)
        return clef__module_refuse(ctx, "%s: bidirectional and backwards; both directions are there with bidirectional alone",
                                   type);
    if (in < 1 || in > INT32_MAX || hidden < 1 || hidden > INT32_MAX || o.projection < 0 || o.projection > INT32_MAX ||
        o.recurrent.layers < 1 || o.recurrent.layers > 1000 || !(o.recurrent.dropout >= 0 && o.recurrent.dropout <= 1))
        return clef__module_refuse(ctx,
                                   "%s: %lld inputs, %lld units, projection %lld, %d layers, dropout %g; sizes must be positive "
                                   "and below 2^31, dropout within 0 and 1",
                                   type, (long long)in, (long long)hidden, (long long)o.projection, o.recurrent.layers,
                                   o.recurrent.dropout);
    int runs = o.recurrent.layers * (o.recurrent.bidirectional ? 2 : 1);
    size_t bytes = sizeof(recurrent) + (size_t)runs * sizeof(clef_recurrent_weights);
    clef_module *m = clef__module_make_call(ctx, type, call_recurrent, NULL, bytes);
    if (!m) return NULL;
    recurrent *r = m->user;
    r->kind = kind;
    r->cell = cell;
    r->runs = runs;
    r->hidden = hidden;
    r->o = o;
    for (int run = 0; run < runs; run++)
        if (!make_weights(m, r, run, in)) return NULL;
    return m;
}

clef_module *clef_nn_rnn(clef_context *ctx, int64_t in, int64_t hidden, const clef_nn_recurrent_options *options) {
    return make(ctx, "rnn", RNN, false, in, hidden, options);
}
clef_module *clef_nn_lstm(clef_context *ctx, int64_t in, int64_t hidden, const clef_nn_recurrent_options *options) {
    return make(ctx, "lstm", LSTM, false, in, hidden, options);
}
clef_module *clef_nn_gru(clef_context *ctx, int64_t in, int64_t hidden, const clef_nn_recurrent_options *options) {
    return make(ctx, "gru", GRU, false, in, hidden, options);
}
clef_module *clef_nn_rnn_cell(clef_context *ctx, int64_t in, int64_t hidden, const clef_nn_recurrent_options *options) {
    return make(ctx, "rnn_cell", RNN, true, in, hidden, options);
}
clef_module *clef_nn_lstm_cell(clef_context *ctx, int64_t in, int64_t hidden, const clef_nn_recurrent_options *options) {
    return make(ctx, "lstm_cell", LSTM, true, in, hidden, options);
}
clef_module *clef_nn_gru_cell(clef_context *ctx, int64_t in, int64_t hidden, const clef_nn_recurrent_options *options) {
    return make(ctx, "gru_cell", GRU, true, in, hidden, options);
}
