/* llama.c — Llama and what is built like it.  Tensors are named as in Hugging Face's files. */
#include "nn/language.h"
#include "nn/module.h"
#include <math.h>

typedef struct llama {
    clef__language language;
    clef_tensor *position; /* of this run, as clef_rotary takes it */
} llama;

static const llama *llama_of(const clef_module *part) { return (const llama *)clef__language_of_part(part); }

static clef_tensor *rotate(const llama *l, clef_tensor *x) {
    return clef_rotary(x, l->position, &(clef_rotary_options){.base = l->language.made.llama.rope_base});
}

static clef_tensor *heads_of(clef_module *m, const char *name, clef_tensor *x) {
    return clef__own_heads(m, clef__forward_child(m, name, x), clef__language_of_part(m)->made.llama.head_width);
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
    llama *l = (llama *)clef__language_of_part(m);
    clef_tensor *x = clef__forward_child(m, "embed_tokens", tokens);
    l->position = rotary_position(&l->language);
    x = clef__language_wanted(&l->language, clef__forward_child(m, "layers", clef__language_drop(m, x)));
    l->position = CLEF_NONE; /* a part that is called by itself begins at 0 */
    return clef__forward_child(m, "norm", x);
}

static clef_tensor *forward_llama(clef_module *m, clef_tensor *tokens, void *user) {
    clef__language *lm = &((llama *)user)->language;
    if (!clef__language_begin(m, lm, tokens)) return NULL;
    clef_tensor *x = clef__forward_child(m, "model", tokens);
    clef_module *body = clef__own_child(m, "model");
    return clef__language_head(m, body ? clef__own_child(body, "embed_tokens") : NULL, x);
}

/* ---- making ---- */
enum { PLAIN = 0, BIAS = 1, RESIDUAL = 2 };

static bool add_linear(clef_module *m, const char *name, int64_t in, int64_t out, int kind) {
    const clef_llama_options *o = &clef__language_of_part(m)->made.llama;
    double std = kind & RESIDUAL ? 0.02 / sqrt(2 * (double)o->layers) : 0.02;
    return clef__add_projection(m, name,
                                &(clef__projection){.in = in, .out = out, .bias = kind & BIAS, .dtype = o->dtype, .std = std});
}

static bool add_attention(clef_module *block, clef__part part) {
    const clef_llama_options *o = &part.of->made.llama;
    int64_t all = o->heads * o->head_width, kv = o->kv_heads * o->head_width;
    int kind = o->qkv_bias ? BIAS : PLAIN;
    clef_module *m = clef__add_model_part(block, "self_attn", "llama_attention", forward_attention, part);
    return m && add_linear(m, "q_proj", o->width, all, kind) && add_linear(m, "k_proj", o->width, kv, kind) &&
           add_linear(m, "v_proj", o->width, kv, kind) && add_linear(m, "o_proj", all, o->width, RESIDUAL);
}

static bool add_mlp(clef_module *block, clef__part part) {
    const clef_llama_options *o = &part.of->made.llama;
    clef_module *m = clef__add_model_part(block, "mlp", "llama_mlp", forward_mlp, part);
    return m && add_linear(m, "gate_proj", o->width, o->hidden, PLAIN) && add_linear(m, "up_proj", o->width, o->hidden, PLAIN) &&
           add_linear(m, "down_proj", o->hidden, o->width, RESIDUAL);
}

static bool add_norm(clef_module *m, const char *name, const clef_llama_options *o) {
    return clef__attach(m, name, clef_nn_rms_norm(m->ctx, CLEF_SHAPE(o->width), &(clef_nn_norm_options){.eps = o->eps}));
}

static bool add_block(clef_module *layers, const char *name, clef__part part) {
    const clef_llama_options *o = &part.of->made.llama;
    clef_module *m = clef__add_model_part(layers, name, "llama_block", forward_block, part);
    return m && add_attention(m, part) && add_mlp(m, part) && add_norm(m, "input_layernorm", o) &&
           add_norm(m, "post_attention_layernorm", o);
}

static clef_module *add_body(clef_module *net, clef__language *of) {
    const clef_llama_options *o = &of->made.llama;
    clef_module *m = clef__add_model_part(net, "model", "llama_model", forward_body, (clef__part){of, 0});
    bool done = m && clef__attach(m, "embed_tokens", clef__new_token_embedding(m->ctx, o->vocabulary, o->width, o->dtype)) &&
                clef__add_layers(m, "layers", of, o->layers, add_block) && add_norm(m, "norm", o);
    return done ? m : NULL;
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
    if (o.heads > 0 && !(options && options->head_width) && o.width % o.heads)
        return clef__module_refuse(ctx, "llama: %lld columns for %lld heads; width is a multiple of heads, or head_width is given",
                                   (long long)o.width, (long long)o.heads);
    if (o.hidden < 1 || o.head_width % 2 || !(o.rope_base > 0))
        return clef__module_refuse(ctx, "llama: heads of %lld, hidden %lld, rope_base %g; rotary positions want an even head",
                                   (long long)o.head_width, (long long)o.hidden, o.rope_base);
    if (!clef__language_fits(ctx, "llama", &sizes, o.dropout, o.eps, o.dtype)) return NULL;
    llama made = {.language = {.made = {.kind = CLEF__LLAMA, .llama = o}, .sizes = sizes, .dropout = o.dropout, .tied = o.tied},
                  .position = CLEF_NONE};
    clef_module *m = clef__new_language(ctx, "llama", forward_llama, NULL, &made, sizeof made);
    clef__projection head = {.in = o.width, .out = o.vocabulary, .dtype = o.dtype, .std = 0.02};
    bool done = m && add_body(m, m->language) && (o.tied || clef__add_projection(m, "lm_head", &head));
    return done ? m : NULL;
}
