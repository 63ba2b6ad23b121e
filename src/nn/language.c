/* language.c — what language models share (language.h). */
#include "nn/language.h"
#include "nn/module.h"
#include <stdio.h>

/* ---- layers ---- */
typedef struct projection {
    clef_tensor *weight, *bias;
    bool transposed;
    int blocks;
} projection;

/* Weights of a half type are converted on the way into the product. */
static clef_tensor *weight_for(clef_tensor *weight, clef_tensor *x) { return clef_to(weight, clef_tensor_dtype(x)); }

static clef_tensor *forward_projection(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    const projection *p = user;
    clef_tensor *w = weight_for(p->weight, x);
    return clef_linear(x, p->transposed ? clef_transpose(w, 0, 1) : w, p->bias == CLEF_NONE ? CLEF_NONE : weight_for(p->bias, x));
}

static clef_tensor *new_weight(clef_module *m, const char *name, clef_shape shape, clef_dtype dtype, double std) {
    clef_tensor *t = clef_zeros(m->ctx, shape, dtype);
    if (!t || clef_module_add_parameter(m, name, t)) return NULL;
    return std == 0 || clef_init_normal(t, 0, std) == CLEF_OK ? t : NULL;
}

clef_module *clef__new_projection(clef_context *ctx, const clef__projection *o) {
    clef_module *m = clef__module_make(ctx, "linear", forward_projection, NULL, sizeof(projection));
    if (!m) return NULL;
    projection *p = m->user;
    p->transposed = o->transposed;
    p->blocks = o->blocks;
    p->weight = new_weight(m, "weight", o->transposed ? CLEF_SHAPE(o->in, o->out) : CLEF_SHAPE(o->out, o->in), o->dtype, o->std);
    p->bias = o->bias ? new_weight(m, "bias", CLEF_SHAPE(o->out), o->dtype, 0) : CLEF_NONE;
    return p->weight && p->bias ? m : NULL;
}

bool clef__projection_of(const clef_module *module, clef__layer *layer) {
    if (module->forward != forward_projection) return false;
    const projection *p = module->user;
    *layer =
        (clef__layer){.kind = CLEF__LINEAR, .weight = p->weight, .bias = p->bias, .transposed = p->transposed, .blocks = p->blocks};
    return true;
}

static clef_tensor *forward_embedding(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    return clef_to(clef_embedding(*(clef_tensor **)user, x), CLEF_F32);
}

clef_module *clef__new_token_embedding(clef_context *ctx, int64_t entries, int64_t width, clef_dtype dtype) {
    clef_module *m = clef__module_make(ctx, "embedding", forward_embedding, NULL, sizeof(clef_tensor *));
    clef_tensor *weight = m ? new_weight(m, "weight", CLEF_SHAPE(entries, width), dtype, 0.02) : NULL;
    if (weight) *(clef_tensor **)m->user = weight;
    return weight ? m : NULL;
}

typedef struct plain_norm {
    clef_tensor *weight, *bias;
    double eps;
} plain_norm;

static clef_tensor *forward_norm(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    const plain_norm *n = user;
    return clef_layer_norm(x, 1, n->weight, n->bias, n->eps);
}

clef_module *clef__new_plain_norm(clef_context *ctx, int64_t width, double eps, bool bias) {
    clef_module *m = clef__module_make(ctx, "layer_norm", forward_norm, &(plain_norm){.eps = eps}, sizeof(plain_norm));
    if (!m) return NULL;
    plain_norm *n = m->user;
    n->weight = clef__new_parameter(m, "weight", CLEF_SHAPE(width));
    n->bias = bias ? clef__new_parameter(m, "bias", CLEF_SHAPE(width)) : CLEF_NONE;
    return n->weight && n->bias && clef_init_constant(n->weight, 1) == CLEF_OK ? m : NULL;
}

/* ---- parts ---- */
clef_module *clef__new_language(clef_context *ctx, const char *type, clef_forward_fn forward, clef_call_fn call, const void *made,
                                size_t bytes) {
    clef_module *m =
        forward ? clef__module_make(ctx, type, forward, made, bytes) : clef__module_make_call(ctx, type, call, made, bytes);
    if (m) m->language = m->user;
    return m;
}

clef__language *clef__language_of(const clef_module *net) { return net ? net->language : NULL; }
clef__language *clef__language_of_part(const clef_module *part) { return ((const clef__part *)part->user)->of; }

clef_module *clef__add_model_part(clef_module *parent, const char *name, const char *type, clef_forward_fn forward,
                                  clef__part part) {
    return parent ? clef__attach(parent, name, clef__module_make(parent->ctx, type, forward, &part, sizeof part)) : NULL;
}

bool clef__add_projection(clef_module *parent, const char *name, const clef__projection *options) {
    return parent && clef__attach(parent, name, clef__new_projection(parent->ctx, options));
}

bool clef__add_layers(clef_module *parent, const char *name, clef__language *of, int64_t n, clef__add_layer add) {
    clef_module *layers = parent ? clef__attach(parent, name, clef_sequential(parent->ctx, NULL, 0)) : NULL;
    char number[24];
    for (int64_t i = 0; layers && i < n; i++) {
        snprintf(number, sizeof number, "%lld", (long long)i);
        if (!add(layers, number, (clef__part){of, i})) return false;
    }
    return layers;
}

clef_tensor *clef__language_drop(const clef_module *part, clef_tensor *x) {
    double p = clef__language_of_part(part)->dropout;
    return p > 0 && clef_is_training(part) ? clef_dropout(x, p) : x;
}

/* ---- sizes ---- */
static bool wrong(clef_context *ctx, const char *type, const char *what) {
    clef__fail(ctx, CLEF_INVALID, "%s: %s", type, what);
    return false;
}

bool clef__language_fits(clef_context *ctx, const char *type, const clef_language_sizes *s, double dropout, double eps,
                         clef_dtype dtype) {
    bool attends = s->heads != 0;
    if (s->vocabulary < 1 || s->context < 1 || s->layers < 1 || s->width < 1 ||
        (attends && (s->heads < 1 || s->kv_heads < 1 || s->head_width < 1)))
        return wrong(ctx, type, "a size is negative; they must be positive, or 0 for the default");
    int64_t largest = clef__larger(clef__larger(s->vocabulary, s->context), clef__larger(s->width, s->heads));
    if (clef__larger(largest, s->head_width) > INT32_MAX || (attends && s->heads > INT32_MAX / s->head_width))
        return wrong(ctx, type, "a size is 2^31 or more");
    if (s->layers > CLEF__LANGUAGE_LAYERS_MOST) return wrong(ctx, type, "more than 1024 layers");
    if (attends && s->heads % s->kv_heads) return wrong(ctx, type, "heads must be a multiple of kv_heads");
    if (!(dropout >= 0 && dropout < 1)) return wrong(ctx, type, "dropout must be within [0,1)");
    if (!(eps >= 0)) return wrong(ctx, type, "eps must not be negative");
    if (dtype != CLEF_F32 && dtype != CLEF_F16 && dtype != CLEF_BF16) return wrong(ctx, type, "weights are f32, f16 or bf16");
    return true;
}

clef_language_sizes clef_language_sizes_of(const clef_module *net) {
    const clef__language *lm = clef__language_of(net);
    return lm && lm->made.kind != CLEF__BERT ? lm->sizes : (clef_language_sizes){0};
}

/* ---- one run ---- */
/* Of tokens [b,t] that follow a past, each one's place in its item: column - start. */
static clef_tensor *positions_after(const clef__past *past, clef_tensor *columns) {
    if (!past->start) return columns;
    clef_tensor *from_start = clef_sub(clef_unsqueeze(columns, 0), clef_unsqueeze(past->start, 1));
    return clef_maximum_scalar(from_start, 0); /* what stands before a start is seen by nobody */
}

bool clef__language_takes(clef_module *net, const clef__language *lm, clef_tensor *tokens) {
    clef_shape shape = clef_tensor_shape(tokens);
    char text[96];
    clef_shape_format(shape, text, sizeof text);
    if (shape.rank != 2) {
        clef__fail(net->ctx, CLEF_SHAPE, "%s: tokens %s; it wants [b,t]", net->type, text);
        return false;
    }
    if (!lm->past && shape.dim[1] > lm->sizes.context) {
        clef__fail(net->ctx, CLEF_SHAPE, "%s: tokens %s are more than its context of %lld; give it the last ones", net->type, text,
                   (long long)lm->sizes.context);
        return false;
    }
    return true;
}

bool clef__language_begin(clef_module *net, clef__language *lm, clef_tensor *tokens) {
    if (!clef__language_takes(net, lm, tokens)) return false;
    clef_shape shape = clef_tensor_shape(tokens);
    lm->seen = CLEF_NONE;
    lm->positions = clef__count_beside(tokens, shape.dim[1], CLEF_I64);
    if (!lm->past) return lm->positions;
    lm->positions = positions_after(lm->past, clef_add(lm->positions, lm->past->position));
    lm->offset = clef_to(clef_reshape(lm->past->position, CLEF_SHAPE(1)), CLEF_I32);
    if (lm->past->start) {
        clef_tensor *column = clef__count_beside(tokens, lm->past->capacity, CLEF_I64);
        clef_tensor *seen = clef_ge(clef_unsqueeze(column, 0), clef_unsqueeze(lm->past->start, 1));
        lm->seen = clef_reshape(seen, CLEF_SHAPE(shape.dim[0], 1, 1, lm->past->capacity));
    }
    return lm->positions && lm->offset && lm->seen;
}

clef_tensor *clef__language_wanted(const clef__language *lm, clef_tensor *x) {
    return lm->past ? clef_slice_at(x, 1, lm->past->row, 1) : x;
}

clef_tensor *clef__language_head(clef_module *net, clef_module *embedding, clef_tensor *x) {
    const clef__language *lm = clef__language_of(net);
    if (!lm->tied) return clef__forward_child(net, "lm_head", x);
    return clef_linear(x, weight_for(clef_parameter(embedding, "weight"), x), CLEF_NONE);
}

clef_tensor *clef__language_next(clef_module *net, clef_tensor *tokens, const clef__past *past) {
    clef__language *lm = clef__language_of(net);
    lm->past = past;
    clef_tensor *logits = clef_forward(net, tokens);
    lm->past = NULL;
    return logits;
}

/* ---- attention ---- */
clef_tensor *clef__heads_apart(clef_tensor *x, int64_t heads) {
    clef_shape s = clef_tensor_shape(x);
    return clef_transpose(clef_reshape(x, CLEF_SHAPE(s.dim[0], s.dim[1], heads, s.dim[2] / heads)), 1, 2);
}

clef_tensor *clef__own_heads(const clef_module *part, clef_tensor *x, int64_t head_width) {
    if (x && clef_tensor_shape(x).rank != 3)
        return clef__refuse(part->ctx, part->type, CLEF_SHAPE, "queries, keys or values have %d dimensions; x is [b,t,width]",
                            clef_tensor_shape(x).rank);
    int64_t width = x ? clef_tensor_shape(x).dim[2] : head_width;
    if (width % head_width == 0) return x ? clef__heads_apart(x, width / head_width) : NULL;
    return clef__refuse(
        part->ctx, part->type, CLEF_SHAPE,
        "%lld columns of queries, keys or values are no whole heads of %lld; cut them over ranks that divide the heads",
        (long long)width, (long long)head_width);
}

clef_tensor *clef__heads_together(clef_tensor *x) {
    clef_shape s = clef_tensor_shape(x);
    return clef_reshape(clef_transpose(x, 1, 2), CLEF_SHAPE(s.dim[0], s.dim[2], s.dim[1] * s.dim[3]));
}

clef_tensor *clef__language_attend(const clef_module *part, clef_tensor *q, clef_tensor *k, clef_tensor *v) {
    const clef__part *of = part->user;
    const clef__language *lm = of->of;
    const clef__past *past = lm->past;
    clef_attention_options o = {.causal = true};
    if (clef_is_training(part)) o.dropout = (float)lm->dropout;
    if (past) {
        clef_tensor *key = past->key[of->layer], *value = past->value[of->layer];
        if (clef_assign_at(key, 2, past->position, k) || clef_assign_at(value, 2, past->position, v)) return NULL;
        k = key, v = value;
        o.offset = lm->offset;
        o.mask = lm->seen == CLEF_NONE ? NULL : lm->seen;
    }
    return clef__heads_together(clef_attention(q, k, v, &o));
}
