/* 02_loop.c — a training loop written by hand: no frees, no waiting, every line a plain call.
       02_loop [EPOCHS]        on the handwritten digits that are built into the library */
#include <clef.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    clef_context *ctx = clef_open(NULL);
    if (!ctx) return fprintf(stderr, "skipped: %s\n", clef_error(NULL)), 77;

    clef_loader *data =
        clef_loader_open(clef_digits(ctx, CLEF_TRAIN), &(clef_loader_options){.batch = 32, .shuffle = true, .drop_last = true});
    clef_module *net =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 32, 3, NULL), clef_nn_relu(ctx), clef_nn_max_pool2d(ctx, 2, NULL),
                                         clef_nn_flatten(ctx), clef_nn_linear(ctx, 32 * 3 * 3, 10, NULL)));
    clef_optimizer *opt = clef_adamw(net, &(clef_adamw_options){.lr = 2e-3});

    int epochs = argc > 1 ? atoi(argv[1]) : 3;
    for (int epoch = 1; epoch <= epochs; epoch++) {
        clef_tensor *loss = NULL;
        for (clef_batch b; clef_next(data, &b);) {
            loss = clef_cross_entropy(clef_forward(net, b.x), b.y, NULL);
            clef_backward(loss);
            clef_step(opt);
        }
        printf("epoch %d  last loss %.4f\n", epoch, clef_item(loss));
    }

    /* One check for the whole program: the first failure sticks, ends the loop and is here. */
    int failed = clef_error_status(ctx) || clef_save(net, "digits.safetensors");
    if (failed) fprintf(stderr, "%s\n", clef_error(ctx));
    clef_close(ctx);
    return failed;
}
