/* layers_linear.c — linear, embedding, flatten.  Weights start as PyTorch's do. */
#include "nn/module.h"
#include <math.h>

typedef struct linear {
    clef_tensor *weight, *bias;
} linear;

static clef_tensor *forward_linear(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    const linear *l = user;
    return clef_linear(x, l->weight, l->bias);
}

clef_module *clef_nn_linear(clef_context *ctx, int64_t in, int64_t out, const clef_nn_options *options) {
    if (in < 1 || out < 1)
        return clef__module_refuse(ctx, "linear: %lld inputs and %lld outputs; both must be positive", (long long)in,
                                   (long long)out);
    clef_module *m = clef__module_make(ctx, "linear", forward_linear, NULL, sizeof(linear));
    if (!m) return NULL;
    linear *l = m->user;
    l->weight = clef__new_parameter(m, "weight", CLEF_SHAPE(out, in));
    if (!l->weight || clef_init_kaiming_uniform(l->weight, sqrt(5))) return NULL;
    l->bias = options && options->no_bias ? CLEF_NONE : clef__new_parameter(m, "bias", CLEF_SHAPE(out));
    return clef__init_bias(l->bias, in) == CLEF_OK ? m : NULL;
}

static clef_tensor *forward_embedding(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    return clef_embedding(*(clef_tensor **)user, x);
}

clef_module *clef_nn_embedding(clef_context *ctx, int64_t entries, int64_t width) {
    if (entries < 1 || width < 1)
        return clef__module_refuse(ctx, "embedding: %lld entries of width %lld; both must be positive", (long long)entries,
                                   (long long)width);
    clef_module *m = clef__module_make(ctx, "embedding", forward_embedding, NULL, sizeof(clef_tensor *));
    if (!m) return NULL;
    clef_tensor *weight = clef__new_parameter(m, "weight", CLEF_SHAPE(entries, width));
    if (!weight || clef_init_normal(weight, 0, 1)) return NULL;
    *(clef_tensor **)m->user = weight;
    return m;
}

static clef_tensor *forward_flatten(clef_module *module, clef_tensor *x, void *user) {
    (void)module, (void)user;
    return clef_flatten(x, 1, -1);
}

clef_module *clef_nn_flatten(clef_context *ctx) { return clef__module_make(ctx, "flatten", forward_flatten, NULL, 0); }

bool clef__layer_of(const clef_module *module, clef__layer *layer) {
    if (module->forward == forward_linear) {
        const linear *l = module->user;
        *layer = (clef__layer){.kind = CLEF__LINEAR, .weight = l->weight, .bias = l->bias};
    } else if (module->forward == forward_embedding)
        *layer = (clef__layer){.kind = CLEF__EMBEDDING, .weight = *(clef_tensor **)module->user, .bias = CLEF_NONE};
    else return clef__conv2d_of(module, layer) || clef__projection_of(module, layer);
    return true;
}
