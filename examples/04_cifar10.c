/* 04_cifar10.c — a small convolutional network on CIFAR-10 with cross-entropy and a line every 100 batches.
       CLEF_DATA=… 04_cifar10 [BATCHES]      (cifar10/ with the binary files, plain or gzip, lies below CLEF_DATA) */
#include <clef.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    clef_context *ctx = clef_open(NULL);
    if (!ctx) return fprintf(stderr, "skipped: %s\n", clef_error(NULL)), 77;
    clef_dataset *images = clef_cifar10(ctx, NULL, CLEF_TRAIN);
    if (!images) return fprintf(stderr, "skipped: %s\n", clef_error(ctx)), clef_close(ctx), 77;

    static const float mean[] = {0.4914f, 0.4822f, 0.4465f}, std[] = {0.2470f, 0.2435f, 0.2616f};
    clef_loader *data = clef_loader_open(
        images,
        &(clef_loader_options){
            .batch = 50, .shuffle = true, .drop_last = true, .seed = 1, .mean = mean, .std = std, .augment = {.flip = true}});
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 3, 32, 3, NULL), clef_nn_relu(ctx),
                                                        clef_nn_max_pool2d(ctx, 2, NULL), /* 32 → 30 → 15 */
                                                        clef_nn_conv2d(ctx, 32, 64, 3, NULL), clef_nn_relu(ctx),
                                                        clef_nn_max_pool2d(ctx, 2, NULL), /* 15 → 13 → 6 */
                                                        clef_nn_flatten(ctx), clef_nn_linear(ctx, 64 * 6 * 6, 10, NULL)));
    clef_optimizer *opt = clef_adam(net, NULL); /* lr 0.001 */

    int batches = argc > 1 ? atoi(argv[1]) : 100, done = 0;
    float zero = 0;
    clef_tensor *sum = clef_keep(clef_from_host(ctx, CLEF_SCALAR, CLEF_F32, &zero));
    while (done < batches && !clef_error_status(ctx))
        for (clef_batch b; done < batches && clef_next(data, &b);) {
            clef_tensor *loss = clef_cross_entropy(clef_forward(net, b.x), b.y, NULL);
            clef_assign(sum, clef_add(sum, clef_detach(loss))); /* added up on the device: no waiting */
            clef_backward(loss);
            clef_step(opt);
            if (++done % 100) continue;
            printf("batch %4d  mean loss of the last 100: %.4f\n", done, clef_item(sum) / 100);
            clef_write(sum, &zero, sizeof zero);
        }
    int failed = clef_error_status(ctx) != CLEF_OK;
    if (failed) fprintf(stderr, "%s\n", clef_error(ctx));
    clef_close(ctx);
    return failed;
}
