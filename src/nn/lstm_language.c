/* lstm_language.c — a language model of LSTM layers.  Tensors are named as in PyTorch's example word_language_model. */
#include "clef/pointwise.h"
#include "nn/language.h"
#include "nn/module.h"

/* A saved state [b,layers,width] as the layers want it, [layers,b,width]: zeros for items that have had no token yet. */
static clef_tensor *state_before(const clef__past *past, clef_tensor *saved) {
    clef_tensor *begun = past->start ? clef_lt(past->start, past->position) : clef_gt_scalar(past->position, 0);
    clef_tensor *zero = clef_to_device(clef_scalar(clef_tensor_context(saved), 0), clef_tensor_device(saved));
    return clef_where(clef_reshape(begun, CLEF_SHAPE(1, -1, 1)), clef_transpose(saved, 0, 1), zero);
}

static clef_tensor *run_layers(clef_module *lstm, const clef__past *past, clef_tensor *x) {
    if (!past) return clef_forward(lstm, x);
    clef_tensor *in[] = {x, state_before(past, past->key[0]), state_before(past, past->value[0])}, *out[3] = {NULL, NULL, NULL};
    if (clef_call(lstm, in, 3, out, 3) || clef_assign(past->key[0], clef_transpose(out[1], 0, 1)) ||
        clef_assign(past->value[0], clef_transpose(out[2], 0, 1)))
        return NULL;
    return out[0];
}

static clef_tensor *forward_lstm(clef_module *m, clef_tensor *tokens, void *user) {
    clef__language *lm = user;
    clef_module *lstm = clef__own_child(m, "rnn");
    if (!clef__language_takes(m, lm, tokens)) return NULL;
    if (!lstm) return clef__fail(m->ctx, CLEF_STATE, "%s: its child rnn is not there", m->type), NULL;
    clef_tensor *x = clef__forward_child(m, "encoder", tokens);
    if (lm->dropout > 0 && clef_is_training(m)) x = clef_dropout(x, lm->dropout);
    x = clef__language_wanted(lm, run_layers(lstm, lm->past, x));
    if (lm->dropout > 0 && clef_is_training(m)) x = clef_dropout(x, lm->dropout);
    return clef__forward_child(m, "decoder", x);
}

static clef_lstm_language_options filled(const clef_lstm_language_options *options) {
    clef_lstm_language_options o = options ? *options : (clef_lstm_language_options){0};
    if (!o.vocabulary) o.vocabulary = 256;
    if (!o.context) o.context = 64;
    if (!o.layers) o.layers = 2;
    if (!o.width) o.width = 256;
    return o;
}

clef_module *clef_nn_lstm_language(clef_context *ctx, const clef_lstm_language_options *options) {
    if (!ctx) return NULL;
    clef_lstm_language_options o = filled(options);
    clef_language_sizes sizes = {.vocabulary = o.vocabulary, .context = o.context, .layers = o.layers, .width = o.width};
    if (!clef__language_fits(ctx, "lstm_language", &sizes, o.dropout, 0, CLEF_F32)) return NULL;
    clef__language made = {.made = {.kind = CLEF__LSTM, .lstm = o}, .sizes = sizes, .dropout = o.dropout};
    clef_module *m = clef__new_language(ctx, "lstm_language", forward_lstm, NULL, &made, sizeof made);
    clef_nn_recurrent_options layers = {
        .recurrent = {.layers = (int)o.layers, .batch_first = true, .dropout = o.layers > 1 ? o.dropout : 0}};
    bool done = m && clef__attach(m, "encoder", clef_nn_embedding(ctx, o.vocabulary, o.width)) &&
                clef__attach(m, "rnn", clef_nn_lstm(ctx, o.width, o.width, &layers)) &&
                clef__attach(m, "decoder", clef_nn_linear(ctx, o.width, o.vocabulary, NULL));
    return done ? m : NULL;
}
