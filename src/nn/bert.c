/* bert.c — BERT with a classifier of whole texts.  Tensors are named and shaped as in Hugging Face's files. */
#include "clef/pointwise.h"
#include "nn/language.h"
#include "nn/module.h"

typedef struct bert {
    clef__language language;
    clef_tensor *lengths, *types; /* of the present run; CLEF_NONE: none */
} bert;

static const bert *bert_of(const clef_module *part) { return (const bert *)clef__language_of_part(part); }
static const clef_bert_options *options_of(const clef_module *part) { return &clef__language_of_part(part)->made.bert; }

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
        if (!(of[i] = clef__own_heads(m, clef__forward_child(m, name[i], x),
                                      b->language.made.bert.width / b->language.made.bert.heads)))
            return NULL;
    clef_attention_options o = {.lengths = b->lengths == CLEF_NONE ? NULL : b->lengths};
    if (clef_is_training(m)) o.dropout = (float)b->language.dropout;
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
    return options_of(m)->tanh_gelu ? clef_gelu_tanh(h) : clef_gelu(h);
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
    b->lengths = b->types = CLEF_NONE; /* a part that is called by itself has none */
    out[0] = clef__forward_child(m, "classifier", x);
    return out[0] ? CLEF_OK : clef_error_status(m->ctx);
}

/* ---- making ---- */
static bool add_linear(clef_module *m, const char *name, int64_t in, int64_t out, clef_dtype dtype) {
    return clef__add_projection(m, name, &(clef__projection){.in = in, .out = out, .bias = true, .dtype = dtype, .std = 0.02});
}

static bool add_norm(clef_module *m, const clef_bert_options *o) {
    return clef__attach(m, "LayerNorm", clef__new_plain_norm(m->ctx, o->width, o->eps, true));
}

static bool add_output_part(clef_module *parent, int64_t in, clef__part part) {
    const clef_bert_options *o = &part.of->made.bert;
    clef_module *m = parent ? clef__module_make_call(parent->ctx, "bert_output", call_output, &part, sizeof part) : NULL;
    if (!m) return false;
    m->n_inputs = 2, m->n_outputs = 1;
    return clef__attach(parent, "output", m) && add_linear(m, "dense", in, o->width, o->dtype) && add_norm(m, o);
}

static bool add_layer(clef_module *layers, const char *name, clef__part part) {
    const clef_bert_options *o = &part.of->made.bert;
    int64_t width = o->width;
    clef_module *m = clef__add_model_part(layers, name, "bert_layer", forward_layer, part),
                *attention = clef__add_model_part(m, "attention", "bert_attention", forward_attention, part),
                *self = clef__add_model_part(attention, "self", "bert_self_attention", forward_self, part);
    return add_linear(self, "query", width, width, o->dtype) && add_linear(self, "key", width, width, o->dtype) &&
           add_linear(self, "value", width, width, o->dtype) && add_output_part(attention, width, part) &&
           add_linear(clef__add_model_part(m, "intermediate", "bert_intermediate", forward_intermediate, part), "dense", width,
                      o->hidden, o->dtype) &&
           add_output_part(m, o->hidden, part);
}

static bool add_embeddings(clef_module *body, clef__part part) {
    const clef_bert_options *o = &part.of->made.bert;
    clef_module *m = clef__add_model_part(body, "embeddings", "bert_embeddings", forward_embeddings, part);
    const struct {
        const char *name;
        int64_t entries;
    } table[] = {{"word_embeddings", o->vocabulary}, {"position_embeddings", o->context}, {"token_type_embeddings", o->types}};
    for (int i = 0; i < 3; i++)
        if (!m || !clef__attach(m, table[i].name, clef__new_token_embedding(m->ctx, table[i].entries, o->width, o->dtype)))
            return false;
    return add_norm(m, o);
}

static bool add_body(clef_module *net, clef__part part) {
    const clef_bert_options *o = &part.of->made.bert;
    clef_module *body = clef__add_model_part(net, "bert", "bert_model", forward_body, part);
    return body && add_embeddings(body, part) &&
           clef__add_layers(clef__add_model_part(body, "encoder", "bert_encoder", forward_encoder, part), "layer", part.of,
                            o->layers, add_layer) &&
           add_linear(clef__add_model_part(body, "pooler", "bert_pooler", forward_pooler, part), "dense", o->width, o->width,
                      o->dtype);
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
    bert made = {.language = {.made = {.kind = CLEF__BERT, .bert = o}, .sizes = sizes, .dropout = o.dropout},
                 .lengths = CLEF_NONE,
                 .types = CLEF_NONE};
    clef_module *m = clef__new_language(ctx, "bert", NULL, call_bert, &made, sizeof made);
    bool done = m && add_body(m, (clef__part){m->language, 0}) && add_linear(m, "classifier", o.width, o.classes, o.dtype);
    return done ? m : NULL;
}
