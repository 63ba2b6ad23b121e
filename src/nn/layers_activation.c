/* layers_activation.c — pointwise functions and softmax as layers. */
#include "clef/pointwise.h"
#include "nn/module.h"

typedef struct activation {
    clef_tensor *(*f)(clef_tensor *);
} activation;

static clef_tensor *forward_activation(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    return ((const activation *)user)->f(x);
}

clef_module *clef_nn_activation(clef_context *ctx, const char *type, clef_tensor *(*f)(clef_tensor *)) {
    if (!type || !f) return clef__module_refuse(ctx, "activation: type and function must not be NULL");
    return clef__module_make(ctx, type, forward_activation, &(activation){f}, sizeof(activation));
}

clef_module *clef_nn_relu(clef_context *ctx) { return clef_nn_activation(ctx, "relu", clef_relu); }
clef_module *clef_nn_gelu(clef_context *ctx) { return clef_nn_activation(ctx, "gelu", clef_gelu); }
clef_module *clef_nn_silu(clef_context *ctx) { return clef_nn_activation(ctx, "silu", clef_silu); }
clef_module *clef_nn_sigmoid(clef_context *ctx) { return clef_nn_activation(ctx, "sigmoid", clef_sigmoid); }
clef_module *clef_nn_tanh(clef_context *ctx) { return clef_nn_activation(ctx, "tanh", clef_tanh); }

static clef_tensor *forward_softmax(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    return clef_softmax(x, *(const int *)user);
}

clef_module *clef_nn_softmax(clef_context *ctx, int dim) {
    return clef__module_make(ctx, "softmax", forward_softmax, &dim, sizeof dim);
}
