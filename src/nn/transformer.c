/* transformer.c — encoder and decoder layers and stacks of them, named as PyTorch's TransformerEncoder and TransformerDecoder.

   A layer is two or three steps, attention or two linear layers, each with dropout, a shortcut, and a norm before it or after the sum. */
#include "clef/pointwise.h"
#include "nn/language.h"
#include "nn/module.h"
#include <stdio.h>

typedef struct transformer {
    bool decoder;
    int64_t width, heads;
    clef_nn_transformer_options o; /* with defaults filled in */
} transformer;

enum { MOST_INPUTS = 6, MOST_LAYERS = 1024 };

/* What an encoder is called with: x, mask, lengths; a decoder: x, memory, mask, lengths, memory's mask and lengths. */
static bool inputs_of(clef_module *m, const transformer *t, clef_tensor *const *in, int n, int n_out, clef_tensor **given) {
    int most = t->decoder ? 6 : 3, least = t->decoder ? 2 : 1;
    bool fits = n >= least && n <= most && n_out == 1;
    for (int i = 0; i < most; i++) given[i] = fits && i < n ? in[i] : CLEF_NONE;
    for (int i = 0; i < least; i++) fits = fits && given[i] != CLEF_NONE;
    if (!fits)
        clef__fail(m->ctx, CLEF_INVALID, "%s: %d inputs and %d outputs; it takes %s, and gives one", m->type, n, n_out,
                   t->decoder ? "x and memory, then masks and lengths of both" : "x, mask and lengths");
    return fits;
}

/* ---- one layer ---- */

typedef struct step {
    const char *norm, *attention;       /* attention NULL: the two linear layers */
    clef_tensor *keys, *mask, *lengths; /* keys CLEF_NONE: of x itself */
} step;

static clef_tensor *dropped(const clef_module *m, const transformer *t, clef_tensor *x) {
    return t->o.dropout > 0 && clef_is_training(m) ? clef_dropout(x, t->o.dropout) : x;
}

static clef_tensor *inside(clef_module *m, const transformer *t, const step *s, clef_tensor *x) {
    if (!s->attention) {
        clef_tensor *h = clef__forward_child(m, "linear1", x);
        return clef__forward_child(m, "linear2", dropped(m, t, t->o.gelu ? clef_gelu(h) : clef_relu(h)));
    }
    clef_module *child = clef__own_child(m, s->attention);
    clef_tensor *in[] = {x, s->keys, CLEF_NONE, s->mask, s->lengths}, *y = NULL;
    if (!child) return clef__forward_child(m, s->attention, x); /* which says so */
    return clef_call(child, in, 5, &y, 1) == CLEF_OK ? y : NULL;
}

static clef_tensor *run_step(clef_module *m, const transformer *t, const step *s, clef_tensor *x) {
    if (t->o.pre_norm) return clef_add(x, dropped(m, t, inside(m, t, s, clef__forward_child(m, s->norm, x))));
    return clef__forward_child(m, s->norm, clef_add(x, dropped(m, t, inside(m, t, s, x))));
}

static clef_status call_layer(clef_module *m, clef_tensor *const *in, int n, clef_tensor **out, int n_out, void *user) {
    const transformer *t = user;
    clef_tensor *x[MOST_INPUTS];
    if (!inputs_of(m, t, in, n, n_out, x)) return CLEF_INVALID;
    const step encoder[] = {{"norm1", "self_attn", CLEF_NONE, x[1], x[2]}, {"norm2", NULL, NULL, NULL, NULL}},
               decoder[] = {{"norm1", "self_attn", CLEF_NONE, x[2], x[3]},
                            {"norm2", "multihead_attn", x[1], x[4], x[5]},
                            {"norm3", NULL, NULL, NULL, NULL}};
    clef_tensor *y = x[0];
    for (int i = 0; y && i < (t->decoder ? 3 : 2); i++) y = run_step(m, t, t->decoder ? &decoder[i] : &encoder[i], y);
    out[0] = y;
    return y ? CLEF_OK : clef_error_status(m->ctx);
}

static bool add_attention(clef_module *m, const transformer *t, const char *name, bool causal) {
    clef_nn_attention_options o = {.kv_heads = t->o.kv_heads, .no_bias = t->o.no_bias, .causal = causal, .dropout = t->o.dropout};
    return clef__attach(m, name, clef_nn_attention(m->ctx, t->width, t->heads, &o));
}

static bool add_norm(clef_module *m, const transformer *t, const char *name) {
    return clef__attach(m, name, clef__new_plain_norm(m->ctx, t->width, t->o.eps, !t->o.no_bias));
}

static clef_module *make_layer(clef_context *ctx, const transformer *t) {
    clef_nn_options linear = {.no_bias = t->o.no_bias};
    clef_module *m = clef__module_make_call(ctx, t->decoder ? "decoder_layer" : "encoder_layer", call_layer, t, sizeof *t);
    bool made = m && add_attention(m, t, "self_attn", t->o.causal) &&
                (!t->decoder || add_attention(m, t, "multihead_attn", false)) &&
                clef__attach(m, "linear1", clef_nn_linear(ctx, t->width, t->o.hidden, &linear)) &&
                clef__attach(m, "linear2", clef_nn_linear(ctx, t->o.hidden, t->width, &linear)) && add_norm(m, t, "norm1") &&
                add_norm(m, t, "norm2") && (!t->decoder || add_norm(m, t, "norm3"));
    return made ? m : NULL;
}

/* ---- stacks ---- */

/* Inputs follow to where a layer lies. */
static clef_tensor *call_there(clef_module *layer, const transformer *t, clef_tensor *x, clef_tensor *const *in) {
    clef_tensor *here[MOST_INPUTS], *y = NULL;
    int device = clef__context_devices(layer->ctx) > 1 ? clef__module_device(layer) : -1;
    for (int i = 0; i < MOST_INPUTS; i++) {
        here[i] = i ? in[i] : x;
        if (device >= 0 && here[i] != CLEF_NONE) here[i] = clef_to_device(here[i], device);
    }
    return clef_call(layer, here, t->decoder ? 6 : 3, &y, 1) == CLEF_OK ? y : NULL;
}

static clef_status call_stack(clef_module *m, clef_tensor *const *in, int n, clef_tensor **out, int n_out, void *user) {
    const transformer *t = user;
    clef_tensor *x[MOST_INPUTS] = {CLEF_NONE, CLEF_NONE, CLEF_NONE, CLEF_NONE, CLEF_NONE, CLEF_NONE};
    if (!inputs_of(m, t, in, n, n_out, x)) return CLEF_INVALID;
    clef_module *layers = clef__own_child(m, "layers"), *norm = clef__own_child(m, "norm");
    clef_tensor *y = layers ? x[0] : clef__forward_child(m, "layers", x[0]); /* which says so */
    for (int i = 0; layers && y && i < layers->n; i++)
        if (layers->entry[i].kind == CLEF__CHILD) y = call_there(layers->entry[i].child, t, y, x);
    out[0] = !y || !t->o.final_norm ? y : norm ? clef__forward_there(norm, y) : clef__forward_child(m, "norm", y);
    return out[0] ? CLEF_OK : clef_error_status(m->ctx);
}

static clef_module *make_stack(clef_context *ctx, const transformer *t) {
    clef_module *m = clef__module_make_call(ctx, t->decoder ? "decoder" : "encoder", call_stack, t, sizeof *t);
    clef_module *layers = m ? clef__attach(m, "layers", clef_sequential(ctx, NULL, 0)) : NULL;
    char name[24];
    for (int64_t i = 0; layers && i < t->o.layers; i++) {
        snprintf(name, sizeof name, "%lld", (long long)i);
        if (!clef__attach(layers, name, make_layer(ctx, t))) return NULL;
    }
    return layers && (!t->o.final_norm || add_norm(m, t, "norm")) ? m : NULL;
}

/* Fills defaults in; false with a line. */
static bool complete(clef_context *ctx, const char *type, transformer *t, const clef_nn_transformer_options *options) {
    clef_nn_transformer_options *o = &t->o;
    if (!ctx) return false;
    if (options) *o = *options;
    if (!o->layers) o->layers = 6;
    if (!o->hidden) o->hidden = 2048;
    if (o->eps == 0) o->eps = 1e-5;
    if (t->width > 0 && o->layers > 0 && o->layers <= MOST_LAYERS && o->hidden > 0 && o->eps > 0 && o->dropout >= 0 &&
        o->dropout <= 1)
        return true;
    clef__module_refuse(ctx,
                        "%s: width %lld, %lld layers, %lld hidden, eps %g, dropout %g; sizes and eps must be positive, at most %d "
                        "layers, dropout within 0 and 1",
                        type, (long long)t->width, (long long)o->layers, (long long)o->hidden, o->eps, o->dropout, MOST_LAYERS);
    return false;
}

clef_module *clef_nn_encoder_layer(clef_context *ctx, int64_t width, int64_t heads, const clef_nn_transformer_options *options) {
    transformer t = {.width = width, .heads = heads};
    return complete(ctx, "encoder_layer", &t, options) ? make_layer(ctx, &t) : NULL;
}
clef_module *clef_nn_decoder_layer(clef_context *ctx, int64_t width, int64_t heads, const clef_nn_transformer_options *options) {
    transformer t = {.decoder = true, .width = width, .heads = heads};
    return complete(ctx, "decoder_layer", &t, options) ? make_layer(ctx, &t) : NULL;
}
clef_module *clef_nn_encoder(clef_context *ctx, int64_t width, int64_t heads, const clef_nn_transformer_options *options) {
    transformer t = {.width = width, .heads = heads};
    return complete(ctx, "encoder", &t, options) ? make_stack(ctx, &t) : NULL;
}
clef_module *clef_nn_decoder(clef_context *ctx, int64_t width, int64_t heads, const clef_nn_transformer_options *options) {
    transformer t = {.decoder = true, .width = width, .heads = heads};
    return complete(ctx, "decoder", &t, options) ? make_stack(ctx, &t) : NULL;
}
