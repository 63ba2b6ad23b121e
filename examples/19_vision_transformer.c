/* 19_vision_transformer.c — a vision transformer on CIFAR-10: patches of 4 × 4 pixels are tokens, an encoder's layers relate them, and
   their mean decides.  Dosovitskiy et al., "An image is worth 16x16 words", 2021.
       CLEF_DATA=… 19_vision_transformer [BATCHES]      (cifar10/ lies below CLEF_DATA) */
#include <clef.h>
#include <stdio.h>
#include <stdlib.h>

enum { PATCH = 4, TOKENS = (32 / PATCH) * (32 / PATCH), WIDTH = 64, HEADS = 4, BATCH = 50 };

/* x [b,3,32,32] → tokens [b,TOKENS,WIDTH], each with what stands for its place. */
static clef_tensor *forward_tokens(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    clef_tensor *y = clef_forward(clef_module_child(m, "patches"), x);
    return clef_add(clef_transpose(clef_reshape(y, CLEF_SHAPE(-1, WIDTH, TOKENS)), 1, 2), clef_parameter(m, "position"));
}

static clef_tensor *forward_mean(clef_module *m, clef_tensor *x, void *user) {
    return (void)m, (void)user, clef_mean(x, (int[]){1}, 1, false);
}

static clef_module *make_tokens(clef_context *ctx) {
    clef_module *m = clef_module_new(ctx, "tokens", forward_tokens, NULL);
    clef_module_add(m, "patches", clef_nn_conv2d(ctx, 3, WIDTH, PATCH, &(clef_nn_conv2d_options){.conv.stride = {PATCH, PATCH}}));
    clef_module_add_parameter(m, "position", clef_zeros(ctx, CLEF_SHAPE(TOKENS, WIDTH), CLEF_F32));
    clef_init_normal(clef_parameter(m, "position"), 0, 0.02);
    return m;
}

int main(int argc, char **argv) {
    clef_context *ctx = clef_open(&(clef_options){.seed = 1});
    if (!ctx) return fprintf(stderr, "skipped: %s\n", clef_error(NULL)), 77;
    clef_dataset *images = clef_cifar10(ctx, NULL, CLEF_TRAIN);
    if (!images) return fprintf(stderr, "skipped: %s\n", clef_error(ctx)), clef_close(ctx), 77;
    static const float mean[] = {0.4914f, 0.4822f, 0.4465f}, std[] = {0.2470f, 0.2435f, 0.2616f};
    clef_loader *data = clef_loader_open(
        images, &(clef_loader_options){.batch = BATCH, .shuffle = true, .drop_last = true, .seed = 1, .mean = mean, .std = std});
    clef_nn_transformer_options layers = {.layers = 2, .hidden = 2 * WIDTH, .pre_norm = true, .gelu = true, .final_norm = true};
    clef_module *net =
        clef_sequential(ctx, CLEF_LAYERS(make_tokens(ctx), clef_nn_encoder(ctx, WIDTH, HEADS, &layers),
                                         clef_module_new(ctx, "mean", forward_mean, NULL), clef_nn_linear(ctx, WIDTH, 10, NULL)));
    clef_optimizer *adamw = clef_adamw(net, &(clef_adamw_options){.lr = 1e-3f});
    int batches = argc > 1 ? atoi(argv[1]) : 60, done = 0;
    double first = 0, last = 0;
    while (done < batches && !clef_error_status(ctx))
        for (clef_batch b; done < batches && clef_next(data, &b); done++) {
            clef_tensor *loss = clef_cross_entropy(clef_forward(net, b.x), b.y, NULL);
            clef_backward(loss);
            clef_step(adamw);
            if (done < 10 || done >= batches - 10) *(done < 10 ? &first : &last) += clef_item(loss) / 10;
        }
    if (clef_error_status(ctx)) fprintf(stderr, "%s\n", clef_error(ctx));
    printf("mean loss of the first ten batches: %.4f, of the last ten: %.4f\n", first, last);
    return clef_close(ctx), !(last < first);
}
