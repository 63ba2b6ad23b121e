/* 03_conv_mse.c — Keras' Conv2D(32, 3×3, padding "same", activation relu) on 28×28×1 images, Adam, mean squared error.
   The targets come from a second layer of the same form; the first one learns to do what it does.
       03_conv_mse [STEPS] */
#include <clef.h>
#include <stdio.h>
#include <stdlib.h>

static clef_module *layer(clef_context *ctx) {
    return clef_sequential(
        ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 32, 3, &(clef_nn_conv2d_options){.conv = {.same = true}}), clef_nn_relu(ctx)));
}

int main(int argc, char **argv) {
    clef_context *ctx = clef_open(&(clef_options){.seed = 7});
    if (!ctx) return fprintf(stderr, "skipped: %s\n", clef_error(NULL)), 77;
    clef_module *teacher = layer(ctx), *student = layer(ctx);
    clef_optimizer *adam = clef_adam(student, &(clef_adam_options){.lr = 0.01});
    clef_freeze(teacher, true);

    int steps = argc > 1 ? atoi(argv[1]) : 150;
    double first = 0, last = 0;
    for (int step = 0; step < steps; step++) {
        clef_tensor *x = clef_rand(ctx, CLEF_SHAPE(16, 1, 28, 28));
        clef_tensor *loss = clef_mse_loss(clef_forward(student, x), clef_forward(teacher, x), NULL);
        clef_backward(loss);
        clef_step(adam);
        if (step % 50 == 0 || step == steps - 1) {
            last = clef_item(loss); /* waits for the device: not in every step */
            if (step == 0) first = last;
            printf("step %3d  mse %.6f\n", step + 1, last);
        }
    }
    if (clef_error_status(ctx)) fprintf(stderr, "%s\n", clef_error(ctx));
    int failed = clef_error_status(ctx) || (steps >= 100 && !(last < first / 5));
    clef_close(ctx);
    return failed;
}
