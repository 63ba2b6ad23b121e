/* llama.c — Llama and what is built like it.  Tensors are named as in Hugging Face's files. */
#include "nn/language.h"
#include "nn/module.h"
#include <math.h>
#include <stdio.h>

typedef struct llama {
    clef__language language;
    clef_llama_options o;
    clef_tensor *position; /* of this run, as clef_rotary takes it */
} llama;

static llama *llama_of(const clef_module *part) { return (llama *)((const clef__part *)part->user)->of; }

static clef_tensor *rotate(const llama *l, clef_tensor *x) {
    return clef_rotary(x, l->position, &(clef_rotary_options){.base = l->o.rope_base});
}

static clef_tensor *heads_of(clef_module *m, const char *name, clef_tensor *x) {
    return clef__own_heads(m, clef__forward_child(m, name, x), llama_of(m)->o.head_width);
}

static clef_tensor *forward_attention(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    const llama *l = llama_of(m);
    clef_tensor *q = heads_of(m, "q_proj", x), *k = heads_of(m, "k_proj", x), *v = heads_of(m, "v_proj", x);
    if (!q || !k || !v) return NULL;
    clef_tensor *y = clef__language_attend(m, rotate(l, q), rotate(l, k), v);
    return clef__language_drop(m, clef__forward_child(m, "o_proj", y));
}

static clef_tensor *forward_mlp(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    clef_tensor *h = clef_mul(clef_silu(clef__forward_child(m, "gate_proj", x)), clef__forward_child(m, "up_proj", x));
    return clef__language_drop(m, clef__forward_child(m, "down_proj", h));
}

static clef_tensor *forward_block(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    x = clef_add(x, clef__forward_child(m, "self_attn", clef__forward_child(m, "input_layernorm", x)));
    return clef_add(x, clef__forward_child(m, "mlp", clef__forward_child(m, "post_attention_layernorm", x)));
}

/* Where all sequences start in one column, the first token's position stands for all. */
static clef_tensor *rotary_position(const clef__language *lm) {
    if (!lm->past) return CLEF_NONE;
    return lm->past->start ? lm->positions : clef_reshape(lm->past->position, CLEF_SHAPE(1));
}

static clef_tensor *forward_body(clef_module *m, clef_tensor *tokens, void *user) {
    (void)user;
    llama *l = llama_of(m);
    clef_tensor *x = clef__forward_child(m, "embed_tokens", tokens);
    l->position = rotary_position(&l->language);
    x = clef__language_wanted(&l->language, clef__forward_child(m, "layers", clef__language_drop(m, x)));
    return clef__forward_child(m, "norm", x);
}

static clef_tensor *forward_llama(clef_module *m, clef_tensor *tokens, void *user) {
    clef__language *lm = &((llama *)user)->language;
    if (!clef__language_begin(m, lm, tokens)) return NULL;
    clef_tensor *x = clef__forward_child(m, "model", tokens);
    clef_module *body = clef__own_child(m, "model");
    return clef__language_head(m, body ? clef__own_child(body, "embed_tokens") : NULL, x);
}

const clef_llama_options *clef__llama_options_of(const clef_module *net) {
    return net && net->forward == forward_llama ? &((const llama *)net->user)->o : NULL;
}

/* ---- making ---- */
static clef_module *make_linear(const llama *l, clef_context *ctx, int64_t in, int64_t out, bool bias, bool residual) {
    double std = residual ? 0.02 / sqrt(2 * (double)l->o.layers) : 0.02;
    return clef__new_projection(ctx, &(clef__projection){.in = in, .out = out, .bias = bias, .dtype = l->o.dtype, .std = std});
}

static clef_module *make_attention(llama *l, clef_context *ctx, int64_t layer) {
    const clef_llama_options *o = &l->o;
    int64_t all = o->heads * o->head_width, kv = o->kv_heads * o->head_width;
    clef_module *m = clef__new_part(ctx, "llama_attention", forward_attention, (clef__part){&l->language, layer});
    bool made = clef__attach(m, "q_proj", make_linear(l, ctx, o->width, all, o->qkv_bias, false)) &&
                clef__attach(m, "k_proj", make_linear(l, ctx, o->width, kv, o->qkv_bias, false)) &&
                clef__attach(m, "v_proj", make_linear(l, ctx, o->width, kv, o->qkv_bias, false)) &&
                clef__attach(m, "o_proj", make_linear(l, ctx, all, o->width, false, true));
    return made ? m : NULL;
}

static clef_module *make_mlp(llama *l, clef_context *ctx, int64_t layer) {
    clef_module *m = clef__new_part(ctx, "llama_mlp", forward_mlp, (clef__part){&l->language, layer});
    bool made = clef__attach(m, "gate_proj", make_linear(l, ctx, l->o.width, l->o.hidden, false, false)) &&
                clef__attach(m, "up_proj", make_linear(l, ctx, l->o.width, l->o.hidden, false, false)) &&
                clef__attach(m, "down_proj", make_linear(l, ctx, l->o.hidden, l->o.width, false, true));
    return made ? m : NULL;
}

static clef_module *make_norm(const llama *l, clef_context *ctx) {
    return clef_nn_rms_norm(ctx, CLEF_SHAPE(l->o.width), &(clef_nn_norm_options){.eps = l->o.eps});
}

static clef_module *make_block(llama *l, clef_context *ctx, int64_t layer) {
    clef_module *m = clef__new_part(ctx, "llama_block", forward_block, (clef__part){&l->language, layer});
    bool made = clef__attach(m, "self_attn", make_attention(l, ctx, layer)) && clef__attach(m, "mlp", make_mlp(l, ctx, layer)) &&
                clef__attach(m, "input_layernorm", make_norm(l, ctx)) &&
                clef__attach(m, "post_attention_layernorm", make_norm(l, ctx));
    return made ? m : NULL;
}

static clef_module *make_blocks(llama *l, clef_context *ctx) {
    clef_module *m = clef_sequential(ctx, NULL, 0);
    char name[24];
    for (int64_t i = 0; m && i < l->o.layers; i++) {
        snprintf(name, sizeof name, "%lld", (long long)i);
        if (!clef__attach(m, name, make_block(l, ctx, i))) return NULL;
    }
    return m;
}

static clef_module *make_body(llama *l, clef_context *ctx) {
    clef_module *m = clef__new_part(ctx, "llama_model", forward_body, (clef__part){&l->language, 0});
    bool made = clef__attach(m, "embed_tokens", clef__new_token_embedding(ctx, l->o.vocabulary, l->o.width, l->o.dtype)) &&
                clef__attach(m, "layers", make_blocks(l, ctx)) && clef__attach(m, "norm", make_norm(l, ctx));
    return made ? m : NULL;
}

static int64_t usual_hidden(int64_t width) {
    int64_t wanted = (8 * width + 2) / 3, step = width < 256 ? 32 : 256;
    return (wanted + step - 1) / step * step;
}

static clef_llama_options filled(const clef_llama_options *options) {
    clef_llama_options o = options ? *options : (clef_llama_options){0};
    if (!o.vocabulary) o.vocabulary = 32000;
    if (!o.context) o.context = 2048;
    if (!o.layers) o.layers = 32;
    if (!o.heads) o.heads = 32;
    if (!o.kv_heads) o.kv_heads = o.heads;
    if (!o.width) o.width = 4096;
    if (!o.head_width && o.heads > 0) o.head_width = o.width / o.heads;
    if (!o.hidden && o.width > 0) o.hidden = usual_hidden(o.width);
    if (o.rope_base == 0) o.rope_base = 10000;
    if (o.eps == 0) o.eps = 1e-5;
    return o;
}

clef_module *clef_nn_llama(clef_context *ctx, const clef_llama_options *options) {
    if (!ctx) return NULL;
    clef_llama_options o = filled(options);
    clef_language_sizes sizes = {.vocabulary = o.vocabulary,
                                 .context = o.context,
                                 .layers = o.layers,
                                 .heads = o.heads,
                                 .kv_heads = o.kv_heads,
                                 .head_width = o.head_width,
                                 .width = o.width};
    if (o.hidden < 1 || o.head_width % 2 || !(o.rope_base > 0))
        return clef__module_refuse(ctx, "llama: heads of %lld, hidden %lld, rope_base %g; rotary positions want an even head",
                                   (long long)o.head_width, (long long)o.hidden, o.rope_base);
    if (!clef__language_fits(ctx, "llama", &sizes, o.dropout, o.eps, o.dtype)) return NULL;
    llama made = {.language = {.sizes = sizes, .dropout = o.dropout, .tied = o.tied}, .o = o};
    clef_module *m = clef__module_make(ctx, "llama", forward_llama, &made, sizeof made);
    llama *l = m ? m->user : NULL;
    bool done = l && clef__attach(m, "model", make_body(l, ctx)) &&
                (o.tied || clef__attach(m, "lm_head", make_linear(l, ctx, o.width, o.vocabulary, false, false)));
    return done ? m : NULL;
}
