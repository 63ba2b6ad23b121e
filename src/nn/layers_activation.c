/* layers_activation.c — pointwise functions, PReLU and softmax as layers. */
#include "clef/pointwise.h"
#include "nn/module.h"

/* One of the functions, by how many numbers it takes beside x. */
typedef struct activation {
    clef_tensor *(*plain)(clef_tensor *);
    clef_tensor *(*with)(clef_tensor *, double);
    clef_tensor *(*with_two)(clef_tensor *, double, double);
    double p, q;
} activation;

static clef_tensor *forward_activation(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    const activation *a = user;
    if (a->with_two) return a->with_two(x, a->p, a->q);
    return a->with ? a->with(x, a->p) : a->plain(x);
}

static clef_module *make_activation(clef_context *ctx, const char *type, const activation *a) {
    if (!type || !(a->plain || a->with || a->with_two))
        return clef__module_refuse(ctx, "activation: type and function must not be NULL");
    return clef__module_make(ctx, type, forward_activation, a, sizeof *a);
}

clef_module *clef_nn_activation(clef_context *ctx, const char *type, clef_tensor *(*f)(clef_tensor *)) {
    return make_activation(ctx, type, &(activation){.plain = f});
}

clef_module *clef_nn_activation_with(clef_context *ctx, const char *type, clef_tensor *(*f)(clef_tensor *, double), double p) {
    return make_activation(ctx, type, &(activation){.with = f, .p = p});
}

clef_module *clef_nn_activation_with_two(clef_context *ctx, const char *type, clef_tensor *(*f)(clef_tensor *, double, double),
                                         double p, double q) {
    return make_activation(ctx, type, &(activation){.with_two = f, .p = p, .q = q});
}

clef_module *clef_nn_relu(clef_context *ctx) { return clef_nn_activation(ctx, "relu", clef_relu); }
clef_module *clef_nn_gelu(clef_context *ctx) { return clef_nn_activation(ctx, "gelu", clef_gelu); }
clef_module *clef_nn_silu(clef_context *ctx) { return clef_nn_activation(ctx, "silu", clef_silu); }
clef_module *clef_nn_sigmoid(clef_context *ctx) { return clef_nn_activation(ctx, "sigmoid", clef_sigmoid); }
clef_module *clef_nn_tanh(clef_context *ctx) { return clef_nn_activation(ctx, "tanh", clef_tanh); }

static clef_tensor *forward_prelu(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    return clef_prelu(x, *(clef_tensor **)user);
}

clef_module *clef_nn_prelu(clef_context *ctx, int64_t channels, double slope) {
    if (channels < 1) return clef__module_refuse(ctx, "prelu: %lld slopes; one, or one for each channel", (long long)channels);
    clef_module *m = clef__module_make(ctx, "prelu", forward_prelu, NULL, sizeof(clef_tensor *));
    if (!m) return NULL;
    clef_tensor *weight = clef__new_parameter(m, "weight", CLEF_SHAPE(channels));
    if (!weight || clef_init_constant(weight, slope)) return NULL;
    *(clef_tensor **)m->user = weight;
    return m;
}

static clef_tensor *forward_softmax(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    return clef_softmax(x, *(const int *)user);
}

clef_module *clef_nn_softmax(clef_context *ctx, int dim) {
    return clef__module_make(ctx, "softmax", forward_softmax, &dim, sizeof dim);
}
