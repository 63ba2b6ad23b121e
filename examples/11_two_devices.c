/* 11_two_devices.c — a net cut over two devices: convolutions on the first, the rest on the second.
       11_two_devices [DEVICES [EPOCHS]]      0/2: the first device in two halves; 0,1: the first and the second (clef devices) */
#include <clef.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    clef_context *ctx = clef_open(&(clef_options){.device = argc > 1 ? argv[1] : "0/2", .seed = 1});
    if (!ctx) return fprintf(stderr, "skipped: %s\n", clef_error(NULL)), 77;

    clef_module *first =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 32, 3, NULL), clef_nn_relu(ctx), clef_nn_max_pool2d(ctx, 2, NULL)));
    clef_module *second =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, 32 * 3 * 3, 64, NULL), clef_nn_relu(ctx),
                                         clef_nn_dropout(ctx, 0.2), clef_nn_linear(ctx, 64, 10, NULL)));
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(first, second)); /* brings values to where the next layer lies */
    clef_module_to(second, 1); /* parameters; the optimizer's state lies beside them, targets beside the outputs */

    clef_fit_options options = {
        .train = clef_loader_open(clef_digits(ctx, CLEF_TRAIN), &(clef_loader_options){.batch = 32, .shuffle = true}),
        .test = clef_loader_open(clef_digits(ctx, CLEF_TEST), NULL),
        .optimizer = clef_adamw(net, &(clef_adamw_options){.lr = 2e-3}),
        .epochs = argc > 2 ? atoi(argv[2]) : 6,
        .bar = stderr};
    const clef_history *history;
    double accuracy = clef_fit(net, &options, &history) ? 0 : history->epoch[history->n - 1].test_accuracy;
    if (clef_error_status(ctx)) fprintf(stderr, "%s\n", clef_error(ctx));
    printf("test accuracy %.3f, on devices %d and %d\n", accuracy, clef_tensor_device(clef_parameter(net, "0.0.weight")),
           clef_tensor_device(clef_parameter(net, "1.1.weight")));
    return clef_close(ctx), !(accuracy > 0.9);
}
