/* recurrent_activations.c — activations of recurrent layers by ONNX's names. */
#include "ops/recurrent.h"
#include <string.h>

typedef clef_tensor *activation(clef_tensor *x, double alpha, double beta);

static clef_tensor *affine(clef_tensor *x, double alpha, double beta) { return clef_add_scalar(clef_mul_scalar(x, alpha), beta); }
static clef_tensor *elu(clef_tensor *x, double alpha, double beta) { return (void)beta, clef_elu(x, alpha); }
static clef_tensor *hard_sigmoid(clef_tensor *x, double alpha, double beta) { return clef_clamp(affine(x, alpha, beta), 0, 1); }
static clef_tensor *leaky_relu(clef_tensor *x, double alpha, double beta) { return (void)beta, clef_leaky_relu(x, alpha); }
static clef_tensor *relu(clef_tensor *x, double alpha, double beta) { return (void)alpha, (void)beta, clef_relu(x); }
static clef_tensor *scaled_tanh(clef_tensor *x, double alpha, double beta) {
    return clef_mul_scalar(clef_tanh(clef_mul_scalar(x, beta)), alpha);
}
static clef_tensor *sigmoid(clef_tensor *x, double alpha, double beta) { return (void)alpha, (void)beta, clef_sigmoid(x); }
static clef_tensor *softplus(clef_tensor *x, double alpha, double beta) { return (void)alpha, (void)beta, clef_softplus(x); }
static clef_tensor *softsign(clef_tensor *x, double alpha, double beta) { return (void)alpha, (void)beta, clef_softsign(x); }
static clef_tensor *hyperbolic(clef_tensor *x, double alpha, double beta) { return (void)alpha, (void)beta, clef_tanh(x); }
static clef_tensor *thresholded(clef_tensor *x, double alpha, double beta) { return (void)beta, clef_threshold(x, alpha, 0); }

/* With the alpha and beta that count where none are given. */
static const struct {
    const char *name;
    activation *apply;
    double alpha, beta;
} table[] = {
    {"Affine", affine, 1, 0},
    {"Elu", elu, 1, 0},
    {"HardSigmoid", hard_sigmoid, 0.2, 0.5},
    {"LeakyRelu", leaky_relu, 0.01, 0},
    {"Relu", relu, 0, 0},
    {"ScaledTanh", scaled_tanh, 1, 1},
    {"Sigmoid", sigmoid, 0, 0},
    {"Softplus", softplus, 0, 0},
    {"Softsign", softsign, 0, 0},
    {"Tanh", hyperbolic, 0, 0},
    {"ThresholdedRelu", thresholded, 1, 0},
};
const char clef__recurrent_activation_names[] =
    "Affine, Elu, HardSigmoid, LeakyRelu, Relu, ScaledTanh, Sigmoid, Softplus, Softsign, Tanh or ThresholdedRelu";

static size_t find(const char *name) {
    size_t i = 0;
    while (i < sizeof table / sizeof *table && strcmp(table[i].name, name) != 0) i++;
    return i;
}

bool clef__is_recurrent_activation(const char *name) { return find(name) < sizeof table / sizeof *table; }

clef_tensor *clef__recurrent_activate(const clef_recurrent_activation *a, clef_tensor *x) {
    size_t i = find(a->name);
    bool own = a->has_alpha_beta;
    return table[i].apply(x, own ? a->alpha : table[i].alpha, own ? a->beta : table[i].beta);
}
