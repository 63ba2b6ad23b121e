/* gpt.c — GPT-2.  Tensors are named and shaped as in its files; initial weights are nanoGPT's. */
#include "nn/language.h"
#include "nn/module.h"
#include <math.h>

static const clef_gpt_options *options_of(const clef_module *part) { return &clef__language_of_part(part)->made.gpt; }

static clef_tensor *forward_attention(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    clef_tensor *part[3], *qkv = clef__forward_child(m, "c_attn", x);
    int64_t own = qkv ? clef_tensor_shape(qkv).dim[2] / 3 : 0, head = options_of(m)->width / options_of(m)->heads;
    if (!qkv || clef_split(qkv, 2, (int64_t[]){own, own, own}, 3, part)) return NULL;
    for (int i = 0; i < 3; i++)
        if (!(part[i] = clef__own_heads(m, part[i], head))) return NULL;
    clef_tensor *y = clef__language_attend(m, part[0], part[1], part[2]);
    return clef__language_drop(m, clef__forward_child(m, "c_proj", y));
}

static clef_tensor *forward_mlp(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    clef_tensor *h = clef__forward_child(m, "c_fc", x);
    h = options_of(m)->exact_gelu ? clef_gelu(h) : clef_gelu_tanh(h);
    return clef__language_drop(m, clef__forward_child(m, "c_proj", h));
}

static clef_tensor *forward_block(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    x = clef_add(x, clef__forward_child(m, "attn", clef__forward_child(m, "ln_1", x)));
    return clef_add(x, clef__forward_child(m, "mlp", clef__forward_child(m, "ln_2", x)));
}

/* Whole sequences take the first rows of the table as they are. */
static clef_tensor *add_positions(clef_module *m, const clef__language *lm, clef_tensor *x) {
    clef_module *wpe = clef__own_child(m, "wpe");
    if (lm->past || !wpe) return clef_add(x, clef__forward_child(m, "wpe", lm->positions));
    clef_tensor *rows = clef_slice(clef_parameter(wpe, "weight"), 0, 0, clef_tensor_shape(x).dim[1], 1);
    return clef_add(x, clef_to(rows, CLEF_F32));
}

static clef_tensor *forward_gpt(clef_module *m, clef_tensor *tokens, void *user) {
    clef__language *lm = user;
    if (!clef__language_begin(m, lm, tokens)) return NULL;
    clef_tensor *x = add_positions(m, lm, clef__forward_child(m, "wte", tokens));
    if (lm->dropout > 0 && clef_is_training(m)) x = clef_dropout(x, lm->dropout);
    x = clef__language_wanted(lm, clef__forward_child(m, "h", x));
    return clef__language_head(m, clef__own_child(m, "wte"), clef__forward_child(m, "ln_f", x));
}

/* ---- making ---- */
static bool add_linear(clef_module *m, const char *name, clef__projection p, bool residual) {
    const clef_gpt_options *o = options_of(m);
    p.bias = !o->no_bias, p.transposed = true, p.dtype = o->dtype;
    p.std = residual ? 0.02 / sqrt(2 * (double)o->layers) : 0.02;
    return clef__add_projection(m, name, &p);
}

static bool add_norm(clef_module *m, const char *name, const clef_gpt_options *o) {
    return clef__attach(m, name, clef__new_plain_norm(m->ctx, o->width, o->eps, !o->no_bias));
}

static bool add_attention(clef_module *block, clef__part part) {
    int64_t width = part.of->made.gpt.width;
    clef_module *m = clef__add_model_part(block, "attn", "gpt_attention", forward_attention, part);
    return m && add_linear(m, "c_attn", (clef__projection){.in = width, .out = 3 * width, .blocks = 3}, false) &&
           add_linear(m, "c_proj", (clef__projection){.in = width, .out = width, .blocks = 1}, true);
}

static bool add_mlp(clef_module *block, clef__part part) {
    int64_t width = part.of->made.gpt.width, hidden = part.of->made.gpt.hidden;
    clef_module *m = clef__add_model_part(block, "mlp", "gpt_mlp", forward_mlp, part);
    return m && add_linear(m, "c_fc", (clef__projection){.in = width, .out = hidden, .blocks = 1}, false) &&
           add_linear(m, "c_proj", (clef__projection){.in = hidden, .out = width, .blocks = 1}, true);
}

static bool add_block(clef_module *layers, const char *name, clef__part part) {
    const clef_gpt_options *o = &part.of->made.gpt;
    clef_module *m = clef__add_model_part(layers, name, "gpt_block", forward_block, part);
    return m && add_norm(m, "ln_1", o) && add_attention(m, part) && add_norm(m, "ln_2", o) && add_mlp(m, part);
}

static clef_gpt_options filled(const clef_gpt_options *options) {
    clef_gpt_options o = options ? *options : (clef_gpt_options){0};
    if (!o.vocabulary) o.vocabulary = 50257;
    if (!o.context) o.context = 1024;
    if (!o.layers) o.layers = 12;
    if (!o.heads) o.heads = 12;
    if (!o.width) o.width = 768;
    if (!o.hidden) o.hidden = 4 * o.width;
    if (o.eps == 0) o.eps = 1e-5;
    return o;
}

clef_module *clef_nn_gpt(clef_context *ctx, const clef_gpt_options *options) {
    if (!ctx) return NULL;
    clef_gpt_options o = filled(options);
    int64_t head = o.heads > 0 ? o.width / o.heads : 0;
    clef_language_sizes sizes = {.vocabulary = o.vocabulary,
                                 .context = o.context,
                                 .layers = o.layers,
                                 .heads = o.heads,
                                 .kv_heads = o.heads,
                                 .head_width = head,
                                 .width = o.width};
    if (o.hidden < 1 || (o.heads > 0 && o.width % o.heads))
        return clef__module_refuse(ctx, "gpt: a width of %lld with %lld heads, hidden %lld; heads must divide the width",
                                   (long long)o.width, (long long)o.heads, (long long)o.hidden);
    if (!clef__language_fits(ctx, "gpt", &sizes, o.dropout, o.eps, o.dtype)) return NULL;
    clef__language made = {.made = {.kind = CLEF__GPT, .gpt = o}, .sizes = sizes, .dropout = o.dropout, .tied = !o.untied};
    clef_module *m = clef__new_language(ctx, "gpt", forward_gpt, NULL, &made, sizeof made);
    clef__projection lm_head = {.in = o.width, .out = o.vocabulary, .dtype = o.dtype, .std = 0.02};
    bool done = m && clef__attach(m, "wte", clef__new_token_embedding(ctx, o.vocabulary, o.width, o.dtype)) &&
                clef__attach(m, "wpe", clef__new_token_embedding(ctx, o.context, o.width, o.dtype)) &&
                clef__add_layers(m, "h", m->language, o.layers, add_block) && add_norm(m, "ln_f", &o) &&
                (!o.untied || clef__add_projection(m, "lm_head", &lm_head));
    return done ? m : NULL;
}
