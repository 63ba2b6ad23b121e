/* bert.c — BERT with a classifier of whole texts.  Tensors are named and shaped as in Hugging Face's files. */
#include "clef/pointwise.h"
#include "nn/language.h"
#include "nn/module.h"
#include <stdio.h>

typedef struct bert {
    clef__language language;
    clef_bert_options o;
    clef_tensor *lengths, *types; /* of the present run; CLEF_NONE: none */
} bert;

static bert *bert_of(const clef_module *part) { return (bert *)((const clef__part *)part->user)->of; }

/* ---- forward ---- */
/* The first rows of a table, which need no indices. */
static clef_tensor *first_rows(clef_module *m, const char *name, int64_t n) {
    clef_module *table = clef__own_child(m, name);
    if (!table) return clef__forward_child(m, name, CLEF_NONE); /* which says so */
    return clef_to(clef_slice(clef_parameter(table, "weight"), 0, 0, n, 1), CLEF_F32);
}

static clef_tensor *forward_embeddings(clef_module *m, clef_tensor *tokens, void *user) {
    (void)user;
    clef_tensor *types = bert_of(m)->types, *x = clef__forward_child(m, "word_embeddings", tokens);
    x = clef_add(x, first_rows(m, "position_embeddings", clef_tensor_shape(tokens).dim[1]));
    x = clef_add(x, types == CLEF_NONE ? first_rows(m, "token_type_embeddings", 1)
                                       : clef__forward_child(m, "token_type_embeddings", types));
    return clef__language_drop(m, clef__forward_child(m, "LayerNorm", x));
}

static clef_tensor *forward_self(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    const bert *b = bert_of(m);
    clef_tensor *of[3];
    static const char *const name[] = {"query", "key", "value"};
    for (int i = 0; i < 3; i++)
        if (!(of[i] = clef__own_heads(m, clef__forward_child(m, name[i], x), b->o.width / b->o.heads))) return NULL;
    clef_attention_options o = {.lengths = b->lengths == CLEF_NONE ? NULL : b->lengths};
    if (clef_is_training(m)) o.dropout = (float)b->o.dropout;
    return clef__heads_together(clef_attention(of[0], of[1], of[2], &o));
}

/* LayerNorm(x + dense(h)), of inputs h and x. */
static clef_status call_output(clef_module *m, clef_tensor *const *in, int n, clef_tensor **out, int n_out, void *user) {
    (void)n, (void)n_out, (void)user;
    clef_tensor *h = clef__language_drop(m, clef__forward_child(m, "dense", in[0]));
    out[0] = clef__forward_child(m, "LayerNorm", clef_add(h, in[1]));
    return out[0] ? CLEF_OK : clef_error_status(m->ctx);
}

static clef_tensor *add_output(clef_module *m, clef_tensor *h, clef_tensor *x) {
    clef_module *child = clef__own_child(m, "output");
    clef_tensor *in[] = {h, x}, *y = NULL;
    if (!child) return clef__forward_child(m, "output", x); /* which says so */
    return clef_call(child, in, 2, &y, 1) == CLEF_OK ? y : NULL;
}

static clef_tensor *forward_attention(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    return add_output(m, clef__forward_child(m, "self", x), x);
}

static clef_tensor *forward_intermediate(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    clef_tensor *h = clef__forward_child(m, "dense", x);
    return bert_of(m)->o.tanh_gelu ? clef_gelu_tanh(h) : clef_gelu(h);
}

static clef_tensor *forward_layer(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    x = clef__forward_child(m, "attention", x);
    return add_output(m, clef__forward_child(m, "intermediate", x), x);
}

static clef_tensor *forward_encoder(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    return clef__forward_child(m, "layer", x);
}

static clef_tensor *forward_pooler(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    clef_shape s = clef_tensor_shape(x);
    clef_tensor *first = clef_reshape(clef_slice(x, 1, 0, 1, 1), CLEF_SHAPE(s.dim[0], s.dim[2]));
    return clef_tanh(clef__forward_child(m, "dense", first));
}

static clef_tensor *forward_body(clef_module *m, clef_tensor *tokens, void *user) {
    (void)user;
    clef_tensor *x = clef__forward_child(m, "encoder", clef__forward_child(m, "embeddings", tokens));
    return x ? clef__forward_child(m, "pooler", x) : NULL;
}

static bool takes_inputs(clef_module *m, const bert *b, clef_tensor *const *in, int n, int n_out) {
    if (n < 1 || n > 3 || n_out != 1 || in[0] == CLEF_NONE) {
        clef__fail(m->ctx, CLEF_INVALID, "%s: %d inputs and %d outputs; it takes tokens, lengths and types, and gives one", m->type,
                   n, n_out);
        return false;
    }
    char have[96], want[96];
    clef_shape tokens = clef_tensor_shape(in[0]);
    if (!clef__language_takes(m, &b->language, in[0])) return false;
    if (n < 3 || in[2] == CLEF_NONE || clef_shape_equal(tokens, clef_tensor_shape(in[2]))) return true;
    clef__fail(m->ctx, CLEF_SHAPE, "%s: types %s; they are one for each of the tokens %s", m->type,
               clef_shape_format(clef_tensor_shape(in[2]), have, sizeof have), clef_shape_format(tokens, want, sizeof want));
    return false;
}

static clef_status call_bert(clef_module *m, clef_tensor *const *in, int n, clef_tensor **out, int n_out, void *user) {
    bert *b = user;
    if (!takes_inputs(m, b, in, n, n_out)) return clef_error_status(m->ctx);
    b->lengths = n > 1 ? in[1] : CLEF_NONE;
    b->types = n > 2 ? in[2] : CLEF_NONE;
    clef_tensor *x = clef__language_drop(clef__own_child(m, "bert"), clef__forward_child(m, "bert", in[0]));
    out[0] = clef__forward_child(m, "classifier", x);
    return out[0] ? CLEF_OK : clef_error_status(m->ctx);
}

const clef_bert_options *clef__bert_options_of(const clef_module *net) {
    return net && net->call == call_bert ? &((const bert *)net->user)->o : NULL;
}

/* ---- making ---- */
static bool add_linear(const bert *b, clef_module *m, const char *name, int64_t in, int64_t out) {
    clef__projection p = {.in = in, .out = out, .bias = true, .dtype = b->o.dtype, .std = 0.02};
    return m && clef__attach(m, name, clef__new_projection(m->ctx, &p));
}

static bool add_norm(const bert *b, clef_module *m) {
    return clef__attach(m, "LayerNorm", clef__new_plain_norm(m->ctx, b->o.width, b->o.eps, true));
}

static clef_module *add_part(bert *b, clef_module *parent, const char *name, const char *type, clef_forward_fn forward) {
    return parent ? clef__attach(parent, name, clef__new_part(parent->ctx, type, forward, (clef__part){&b->language, 0})) : NULL;
}

static bool add_output_part(bert *b, clef_module *parent, int64_t in) {
    clef__part part = {&b->language, 0};
    clef_module *m = parent ? clef__module_make_call(parent->ctx, "bert_output", call_output, &part, sizeof part) : NULL;
    if (!m) return false;
    m->n_inputs = 2, m->n_outputs = 1;
    return clef__attach(parent, "output", m) && add_linear(b, m, "dense", in, b->o.width) && add_norm(b, m);
}

static bool add_layer(bert *b, clef_module *layers, const char *name) {
    int64_t width = b->o.width;
    clef_module *m = add_part(b, layers, name, "bert_layer", forward_layer),
                *attention = add_part(b, m, "attention", "bert_attention", forward_attention),
                *self = add_part(b, attention, "self", "bert_self_attention", forward_self);
    return add_linear(b, self, "query", width, width) && add_linear(b, self, "key", width, width) &&
           add_linear(b, self, "value", width, width) && add_output_part(b, attention, width) &&
           add_linear(b, add_part(b, m, "intermediate", "bert_intermediate", forward_intermediate), "dense", width, b->o.hidden) &&
           add_output_part(b, m, b->o.hidden);
}

static bool add_embeddings(bert *b, clef_module *body) {
    clef_module *m = add_part(b, body, "embeddings", "bert_embeddings", forward_embeddings);
    const struct {
        const char *name;
        int64_t entries;
    } table[] = {
        {"word_embeddings", b->o.vocabulary}, {"position_embeddings", b->o.context}, {"token_type_embeddings", b->o.types}};
    for (int i = 0; i < 3; i++)
        if (!m || !clef__attach(m, table[i].name, clef__new_token_embedding(m->ctx, table[i].entries, b->o.width, b->o.dtype)))
            return false;
    return add_norm(b, m);
}

static bool add_layers(bert *b, clef_module *body) {
    clef_module *encoder = add_part(b, body, "encoder", "bert_encoder", forward_encoder),
                *layers = encoder ? clef__attach(encoder, "layer", clef_sequential(encoder->ctx, NULL, 0)) : NULL;
    char name[24];
    for (int64_t i = 0; layers && i < b->o.layers; i++) {
        snprintf(name, sizeof name, "%lld", (long long)i);
        if (!add_layer(b, layers, name)) return false;
    }
    return layers;
}

static clef_bert_options filled(const clef_bert_options *options) {
    clef_bert_options o = options ? *options : (clef_bert_options){0};
    if (!o.vocabulary) o.vocabulary = 30522;
    if (!o.context) o.context = 512;
    if (!o.layers) o.layers = 12;
    if (!o.heads) o.heads = 12;
    if (!o.width) o.width = 768;
    if (!o.hidden) o.hidden = 4 * o.width;
    if (!o.types) o.types = 2;
    if (!o.classes) o.classes = 2;
    if (o.eps == 0) o.eps = 1e-12;
    return o;
}

clef_module *clef_nn_bert(clef_context *ctx, const clef_bert_options *options) {
    if (!ctx) return NULL;
    clef_bert_options o = filled(options);
    clef_language_sizes sizes = {.vocabulary = o.vocabulary,
                                 .context = o.context,
                                 .layers = o.layers,
                                 .heads = o.heads,
                                 .kv_heads = o.heads,
                                 .head_width = o.heads > 0 ? o.width / o.heads : 0,
                                 .width = o.width};
    if (o.hidden < 1 || o.types < 1 || o.classes < 1 || (o.heads > 0 && o.width % o.heads))
        return clef__module_refuse(
            ctx, "bert: a width of %lld with %lld heads, hidden %lld, %lld types, %lld classes; heads must divide the width",
            (long long)o.width, (long long)o.heads, (long long)o.hidden, (long long)o.types, (long long)o.classes);
    if (!clef__language_fits(ctx, "bert", &sizes, o.dropout, o.eps, o.dtype)) return NULL;
    bert made = {.language = {.sizes = sizes, .dropout = o.dropout}, .o = o};
    clef_module *m = clef__module_make_call(ctx, "bert", call_bert, &made, sizeof made);
    bert *b = m ? m->user : NULL;
    clef_module *body = add_part(b, m, "bert", "bert_model", forward_body);
    bool done = body && add_embeddings(b, body) && add_layers(b, body) &&
                add_linear(b, add_part(b, body, "pooler", "bert_pooler", forward_pooler), "dense", o.width, o.width) &&
                add_linear(b, m, "classifier", o.width, o.classes);
    return done ? m : NULL;
}
