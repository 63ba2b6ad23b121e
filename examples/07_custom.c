/* 07_custom.c — an op and a module of one's own.
   The op is a row of OpenCL C: its value and its gradient; it is fused with its neighbours like any other.  The module is
   a C function with parameters; everything else (names, saving, training) comes by itself. */
#include <clef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* snake(x) = x + sin²(x), after Ziyin et al. 2020; its derivative is 1 + sin(2x). */
static const clef_custom_op snake = {.name = "snake", .forward = "x + sin(x) * sin(x)", .backward = {"g * (K(1) + sin(x + x))"}};

/* y = snake(a·x) / a with one trained a for each feature. */
static clef_tensor *scaled_snake(clef_module *module, clef_tensor *x, void *user) {
    (void)user;
    clef_tensor *a = clef_parameter(module, "a");
    clef_tensor *scaled = clef_mul(x, a);
    return clef_div(clef_custom(&snake, &scaled, 1), a);
}

static clef_module *snake_layer(clef_context *ctx, int64_t features) {
    clef_module *module = clef_module_new(ctx, "scaled_snake", scaled_snake, NULL);
    clef_module_add_parameter(module, "a", clef_ones(ctx, CLEF_SHAPE(features), CLEF_F32));
    return module;
}

/* Learns y = sin(3x) + x on [-2, 2]. */
int main(int argc, char **argv) {
    enum { N = 256, WIDTH = 32 };
    float x[N], y[N];
    for (int i = 0; i < N; i++) {
        x[i] = 4.0f * (float)i / (N - 1) - 2;
        y[i] = sinf(3 * x[i]) + x[i];
    }
    clef_context *ctx = clef_open(&(clef_options){.seed = 3});
    if (!ctx) return fprintf(stderr, "skipped: %s\n", clef_error(NULL)), 77;
    clef_tensor *in = clef_keep(clef_from_host(ctx, CLEF_SHAPE(N, 1), CLEF_F32, x));
    clef_tensor *want = clef_keep(clef_from_host(ctx, CLEF_SHAPE(N, 1), CLEF_F32, y));
    clef_module *net = clef_sequential(
        ctx, CLEF_LAYERS(clef_nn_linear(ctx, 1, WIDTH, NULL), snake_layer(ctx, WIDTH), clef_nn_linear(ctx, WIDTH, 1, NULL)));
    clef_optimizer *adam = clef_adam(net, &(clef_adam_options){.lr = 0.02});

    int steps = argc > 1 ? atoi(argv[1]) : 400;
    clef_tensor *loss = NULL;
    for (int step = 0; step < steps; step++) {
        loss = clef_mse_loss(clef_forward(net, in), want, NULL);
        clef_backward(loss);
        clef_step(adam);
    }
    double mse = clef_item(loss);
    printf("mean squared error after %d steps: %.6f\n", steps, mse);
    for (int i = 0; i < clef_module_tensors(net); i++) printf("trained: %s\n", clef_module_tensor(net, i).name);
    if (clef_error_status(ctx)) fprintf(stderr, "%s\n", clef_error(ctx));
    int failed = clef_error_status(ctx) || !(mse < 0.05);
    clef_close(ctx);
    return failed;
}
