/* gpt.c — GPT-2.  Tensors are named and shaped as in its files; initial weights are nanoGPT's. */
#include "nn/language.h"
#include "nn/module.h"
#include <math.h>
#include <stdio.h>

typedef struct gpt {
    clef__language language;
    clef_gpt_options o;
} gpt;

static gpt *gpt_of(const clef_module *part) { return (gpt *)((const clef__part *)part->user)->of; }

static clef_tensor *forward_attention(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    clef_tensor *part[3], *qkv = clef__forward_child(m, "c_attn", x);
    int64_t own = qkv ? clef_tensor_shape(qkv).dim[2] / 3 : 0, head = gpt_of(m)->o.width / gpt_of(m)->o.heads;
    if (!qkv || clef_split(qkv, 2, (int64_t[]){own, own, own}, 3, part)) return NULL;
    for (int i = 0; i < 3; i++)
        if (!(part[i] = clef__own_heads(m, part[i], head))) return NULL;
    clef_tensor *y = clef__language_attend(m, part[0], part[1], part[2]);
    return clef__language_drop(m, clef__forward_child(m, "c_proj", y));
}

static clef_tensor *forward_mlp(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    clef_tensor *h = clef__forward_child(m, "c_fc", x);
    h = gpt_of(m)->o.exact_gelu ? clef_gelu(h) : clef_gelu_tanh(h);
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
    clef__language *lm = &((gpt *)user)->language;
    if (!clef__language_begin(m, lm, tokens)) return NULL;
    clef_tensor *x = add_positions(m, lm, clef__forward_child(m, "wte", tokens));
    if (lm->dropout > 0 && clef_is_training(m)) x = clef_dropout(x, lm->dropout);
    x = clef__language_wanted(lm, clef__forward_child(m, "h", x));
    return clef__language_head(m, clef__own_child(m, "wte"), clef__forward_child(m, "ln_f", x));
}

const clef_gpt_options *clef__gpt_options_of(const clef_module *net) {
    return net && net->forward == forward_gpt ? &((const gpt *)net->user)->o : NULL;
}

/* ---- making ---- */
static clef_module *make_linear(const gpt *g, clef_context *ctx, int64_t in, int64_t out, int blocks, bool residual) {
    double std = residual ? 0.02 / sqrt(2 * (double)g->o.layers) : 0.02;
    clef__projection p = {
        .in = in, .out = out, .bias = !g->o.no_bias, .transposed = true, .blocks = blocks, .dtype = g->o.dtype, .std = std};
    return clef__new_projection(ctx, &p);
}

static clef_module *make_attention(gpt *g, clef_context *ctx, int64_t layer) {
    clef_module *m = clef__new_part(ctx, "gpt_attention", forward_attention, (clef__part){&g->language, layer});
    bool made = clef__attach(m, "c_attn", make_linear(g, ctx, g->o.width, 3 * g->o.width, 3, false)) &&
                clef__attach(m, "c_proj", make_linear(g, ctx, g->o.width, g->o.width, 1, true));
    return made ? m : NULL;
}

static clef_module *make_mlp(gpt *g, clef_context *ctx, int64_t layer) {
    clef_module *m = clef__new_part(ctx, "gpt_mlp", forward_mlp, (clef__part){&g->language, layer});
    bool made = clef__attach(m, "c_fc", make_linear(g, ctx, g->o.width, g->o.hidden, 1, false)) &&
                clef__attach(m, "c_proj", make_linear(g, ctx, g->o.hidden, g->o.width, 1, true));
    return made ? m : NULL;
}

static clef_module *make_norm(const gpt *g, clef_context *ctx) {
    return clef__new_plain_norm(ctx, g->o.width, g->o.eps, !g->o.no_bias);
}

static clef_module *make_block(gpt *g, clef_context *ctx, int64_t layer) {
    clef_module *m = clef__new_part(ctx, "gpt_block", forward_block, (clef__part){&g->language, layer});
    bool made = clef__attach(m, "ln_1", make_norm(g, ctx)) && clef__attach(m, "attn", make_attention(g, ctx, layer)) &&
                clef__attach(m, "ln_2", make_norm(g, ctx)) && clef__attach(m, "mlp", make_mlp(g, ctx, layer));
    return made ? m : NULL;
}

static clef_module *make_blocks(gpt *g, clef_context *ctx) {
    clef_module *m = clef_sequential(ctx, NULL, 0);
    char name[24];
    for (int64_t i = 0; m && i < g->o.layers; i++) {
        snprintf(name, sizeof name, "%lld", (long long)i);
        if (!clef__attach(m, name, make_block(g, ctx, i))) return NULL;
    }
    return m;
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

static clef_module *make_head(const gpt *g, clef_context *ctx) {
    clef__projection p = {.in = g->o.width, .out = g->o.vocabulary, .dtype = g->o.dtype, .std = 0.02};
    return clef__new_projection(ctx, &p);
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
    gpt made = {.language = {.sizes = sizes, .dropout = o.dropout, .tied = !o.untied}, .o = o};
    clef_module *m = clef__module_make(ctx, "gpt", forward_gpt, &made, sizeof made);
    gpt *g = m ? m->user : NULL;
    bool done = g && clef__attach(m, "wte", clef__new_token_embedding(ctx, o.vocabulary, o.width, o.dtype)) &&
                clef__attach(m, "wpe", clef__new_token_embedding(ctx, o.context, o.width, o.dtype)) &&
                clef__attach(m, "h", make_blocks(g, ctx)) && clef__attach(m, "ln_f", make_norm(g, ctx)) &&
                (!o.untied || clef__attach(m, "lm_head", make_head(g, ctx)));
    return done ? m : NULL;
}
