/* recurrent_definition.h — recurrent layers in double precision, one element after the other, by PyTorch's and ONNX's definitions. */
#ifndef CLEF_TESTS_RECURRENT_DEFINITION_H
#define CLEF_TESTS_RECURRENT_DEFINITION_H
#include "support/plain.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RNN, RELU, LSTM, GRU, MOST_LAYERS = 3, OF_RUN = 6, MOST_INPUTS = 3 + OF_RUN * 2 * MOST_LAYERS };
enum { W_IH, W_HH, B_IH, B_HH, W_HR, W_PEEP };

/* One problem: sizes, modes, and the numbers of all tensors; absent ones are NULL. */
typedef struct problem {
    int cell, t, b, in, h, width, layers, ways, gates;
    bool backwards, batch_first, reset_before, coupled;
    double clip;
    clef_recurrent_activation apply[2][3];
    int32_t *lengths;
    clef_dtype dtype;
    double *data[MOST_INPUTS]; /* x, h0, c0, then those of each run */
    int64_t size[MOST_INPUTS];
    clef_shape shape[MOST_INPUTS];
    bool wanted[MOST_INPUTS];
    double *g[3]; /* of y, h, c; NULL: no part of the loss */
    int64_t out[3];
} problem;

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double named(const char *name, double x, double alpha, double beta) {
    if (strcmp(name, "Affine") == 0) return alpha * x + beta;
    if (strcmp(name, "Elu") == 0) return x >= 0 ? x : alpha * (exp(x) - 1);
    if (strcmp(name, "HardSigmoid") == 0) return fmax(0, fmin(1, alpha * x + beta));
    if (strcmp(name, "LeakyRelu") == 0) return x >= 0 ? x : alpha * x;
    if (strcmp(name, "Relu") == 0) return fmax(0, x);
    if (strcmp(name, "ScaledTanh") == 0) return alpha * tanh(beta * x);
    if (strcmp(name, "Sigmoid") == 0) return sigmoid(x);
    if (strcmp(name, "Softplus") == 0) return log(1 + exp(x));
    if (strcmp(name, "Softsign") == 0) return x / (1 + fabs(x));
    if (strcmp(name, "Tanh") == 0) return tanh(x);
    return x > alpha ? x : 0;
}

/* ONNX's activation 0 … 2 of x, in this direction. */
static double act(const problem *p, int way, int which, double x) {
    static const struct {
        const char *name;
        double alpha, beta;
    } usual[] = {{"Affine", 1, 0},       {"Elu", 1, 0},        {"HardSigmoid", 0.2, 0.5},
                 {"LeakyRelu", 0.01, 0}, {"ScaledTanh", 1, 1}, {"ThresholdedRelu", 1, 0}};
    const clef_recurrent_activation *a = p->apply[way][which].name ? &p->apply[way][which] : &p->apply[0][which];
    const char *name = a->name ? a->name : which > 0 || p->cell == RNN ? "Tanh" : p->cell == RELU ? "Relu" : "Sigmoid";
    double alpha = a->alpha, beta = a->beta;
    for (size_t i = 0; !a->has_alpha_beta && i < sizeof usual / sizeof *usual; i++)
        if (strcmp(usual[i].name, name) == 0) alpha = usual[i].alpha, beta = usual[i].beta;
    return named(name, p->clip > 0 && which < 2 ? fmax(-p->clip, fmin(p->clip, x)) : x, alpha, beta);
}

/* Row k of w [.,columns] times x. */
static double row_times(const double *w, int k, const double *x, int columns) {
    double sum = 0;
    for (int i = 0; i < columns; i++) sum += w[k * columns + i] * x[i];
    return sum;
}

static double peep(double *const *w, int gate, int h, int j, double c) { return w[W_PEEP] ? w[W_PEEP][gate * h + j] * c : 0; }

static void step_lstm(const problem *p, int way, double *const *w, double (*sum)[64 * 4], double *h, double *c) {
    double out[64];
    int n = p->h;
    for (int j = 0; j < n; j++) {
#define BOTH(k) (sum[0][(k)*n + j] + sum[1][(k)*n + j])
        double i = act(p, way, 0, BOTH(0) + peep(w, 0, n, j, c[j]));
        double f = p->coupled ? 1 - i : act(p, way, 0, BOTH(1) + peep(w, 1, n, j, c[j]));
        c[j] = f * c[j] + i * act(p, way, 1, BOTH(2));
        out[j] = act(p, way, 0, BOTH(3) + peep(w, 2, n, j, c[j])) * act(p, way, 2, c[j]);
    }
    for (int j = 0; j < p->width; j++) h[j] = w[W_HR] ? row_times(w[W_HR], j, out, n) : out[j];
}

static void step_gru(const problem *p, int way, double *const *w, double (*sum)[64 * 4], double *h) {
    double r[64], was[64], reset[64];
    int n = p->h;
    for (int j = 0; j < n; j++) {
        r[j] = act(p, way, 0, BOTH(0));
        was[j] = h[j];
        reset[j] = r[j] * h[j];
    }
    for (int j = 0; j < n; j++) {
        double bias = w[B_HH] ? w[B_HH][2 * n + j] : 0, own = sum[1][2 * n + j];
        double hidden = p->reset_before ? row_times(w[W_HH], 2 * n + j, reset, n) + bias : r[j] * own;
        double z = act(p, way, 0, BOTH(1)), new = act(p, way, 1, sum[0][2 * n + j] + hidden);
        h[j] = (1 - z) * new + z *was[j];
    }
}

/* One step of one item: state h, c in place. */
static void step(const problem *p, int way, double *const *w, const double *x, int in, double *h, double *c) {
    double sum[2][64 * 4];
    int n = p->h;
    for (int k = 0; k < p->gates * n; k++) {
        sum[0][k] = (w[B_IH] ? w[B_IH][k] : 0) + row_times(w[W_IH], k, x, in);
        sum[1][k] = (w[B_HH] ? w[B_HH][k] : 0) + row_times(w[W_HH], k, h, p->width);
    }
    if (p->cell == LSTM) step_lstm(p, way, w, sum, h, c);
    else if (p->cell == GRU) step_gru(p, way, w, sum, h);
    else
        for (int j = 0; j < n; j++) h[j] = act(p, way, 0, BOTH(0));
}

static int64_t at(const problem *p, int t, int b, int width) {
    return (int64_t)(p->batch_first ? b * p->t + t : t * p->b + b) * width;
}

/* Of one item in one direction of a layer, whose input is x. */
static void define_item(const problem *p, int run, int b, const double *x, int columns, double *y, double *const *out) {
    double state[64] = {0}, inner[64] = {0};
    int n = p->lengths ? p->lengths[b] : p->t, way = run % p->ways, width = p->width;
    int64_t from = (int64_t)(run * p->b + b) * width, from_c = (int64_t)(run * p->b + b) * p->h;
    if (p->data[1]) memcpy(state, p->data[1] + from, (size_t)width * sizeof *state);
    if (p->data[2]) memcpy(inner, p->data[2] + from_c, (size_t)p->h * sizeof *inner);
    for (int s = 0; s < n; s++) {
        int t = way || p->backwards ? n - 1 - s : s;
        step(p, way, p->data + 3 + OF_RUN * run, x + at(p, t, b, columns), columns, state, inner);
        memcpy(y + at(p, t, b, p->ways * width) + way * width, state, (size_t)width * sizeof *state);
    }
    memcpy(out[1] + from, state, (size_t)width * sizeof *state);
    if (out[2]) memcpy(out[2] + from_c, inner, (size_t)p->h * sizeof *inner);
}

/* y, h, c by the definition. */
static void define(const problem *p, double *const *out) {
    int columns = p->in;
    size_t bytes = (size_t)(p->t * p->b) * 128 * sizeof(double);
    double *x = calloc(1, bytes + 1), *y = calloc(1, bytes + 1);
    memcpy(x, p->data[0], (size_t)p->size[0] * sizeof *x);
    for (int layer = 0; layer < p->layers; layer++) {
        memset(y, 0, bytes);
        for (int way = 0; way < p->ways; way++)
            for (int b = 0; b < p->b; b++) define_item(p, layer * p->ways + way, b, x, columns, y, out);
        columns = p->ways * p->width;
        memcpy(x, y, bytes);
    }
    memcpy(out[0], y, (size_t)p->out[0] * sizeof *y);
    free(x);
    free(y);
}
#endif
