/* 15_time_series.c — an LSTM that forecasts a time series: the next value of a sum of two waves, after 24 values.  Each of its hidden
   states goes through a linear layer, and the forecasts of all steps count. */
#include <clef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 24, BATCH = 32, HIDDEN = 32 };

/* `batch` windows of the series, and for each value the next one. */
static void windows(unsigned *state, float *x, float *next) {
    for (int b = 0; b < BATCH; b++) {
        double start = (double)((*state = *state * 1664525u + 1013904223u) >> 16) / 64;
        for (int t = 0; t <= STEPS; t++) {
            float value = (float)(0.6 * sin(0.31 * (start + t)) + 0.4 * sin(0.9 * (start + t) + 1));
            if (t < STEPS) x[t * BATCH + b] = value;
            if (t > 0) next[(t - 1) * BATCH + b] = value;
        }
    }
}

int main(int argc, char **argv) {
    static float x[STEPS * BATCH], next[STEPS * BATCH];
    int rounds = argc > 1 ? atoi(argv[1]) : 400;
    unsigned state = 1;
    double loss = 1;
    clef_context *ctx = clef_open(&(clef_options){.seed = 1});
    if (!ctx) return fprintf(stderr, "skipped: %s\n", clef_error(NULL)), 77;
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_lstm(ctx, 1, HIDDEN, NULL), clef_nn_linear(ctx, HIDDEN, 1, NULL)));
    clef_optimizer *adam = clef_adam(net, &(clef_adam_options){.lr = 1e-2f});
    for (int i = 0; i < rounds; i++) {
        windows(&state, x, next);
        clef_shape shape = CLEF_SHAPE(STEPS, BATCH, 1);
        clef_tensor *forecast = clef_forward(net, clef_from_host(ctx, shape, CLEF_F32, x));
        clef_tensor *error = clef_mse_loss(forecast, clef_from_host(ctx, shape, CLEF_F32, next), NULL);
        clef_backward(error);
        clef_step(adam);
        if (i + 1 == rounds) loss = clef_item(error);
    }
    if (clef_error_status(ctx)) fprintf(stderr, "%s\n", clef_error(ctx));
    printf("mean squared error of the next value: %.5f\n", loss);
    return clef_close(ctx), !(loss < 0.01);
}
