/* models.c — the small models of the tool.  Layers are numbered as in PyTorch's nn.Sequential; resnet is in resnet.c. */
#include "nn/module.h"

/* Shared refusal: a [c,h,w] input of at least `smallest` pixels each way, and at least one class. */
static bool usable(clef_context *ctx, const char *model, clef_shape input, int64_t classes, int64_t smallest) {
    bool fits = input.rank == 3 && input.dim[0] > 0 && input.dim[1] >= smallest && input.dim[2] >= smallest;
    if (fits && classes > 0) return true;
    char text[96];
    clef__module_refuse(ctx,
                        "model_%s: an input of %s and %lld classes; it wants [c,h,w] with h and w at least %lld, and "
                        "1 class or more",
                        model, clef_shape_format(input, text, sizeof text), (long long)classes, (long long)smallest);
    return false;
}

clef_module *clef_model_mlp(clef_context *ctx, clef_shape input, int64_t classes) {
    if (!usable(ctx, "mlp", input, classes, 1)) return NULL;
    int64_t pixels = clef_shape_numel(input);
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, pixels, 256, NULL), clef_nn_relu(ctx),
                                            clef_nn_linear(ctx, 256, 128, NULL), clef_nn_relu(ctx),
                                            clef_nn_linear(ctx, 128, classes, NULL)));
}

/* Side of an image after a stride-1 convolution and a pool of 2. */
static int64_t conv_pool(int64_t side, int kernel, int padding) { return (side + 2 * padding - kernel + 1) / 2; }

clef_module *clef_model_lenet(clef_context *ctx, clef_shape input, int64_t classes) {
    if (!usable(ctx, "lenet", input, classes, 4)) return NULL;
    int64_t h = input.dim[1], w = input.dim[2];
    int padding = h < 16 || w < 16 ? 2 : 0;
    clef_nn_conv2d_options o = {.conv.padding = {padding, padding}};
    for (int i = 0; i < 2; i++) h = conv_pool(h, 5, padding), w = conv_pool(w, 5, padding);
    return clef_sequential(
        ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, input.dim[0], 6, 5, &o), clef_nn_relu(ctx), clef_nn_max_pool2d(ctx, 2, NULL),
                         clef_nn_conv2d(ctx, 6, 16, 5, &o), clef_nn_relu(ctx), clef_nn_max_pool2d(ctx, 2, NULL),
                         clef_nn_flatten(ctx), clef_nn_linear(ctx, 16 * h * w, 120, NULL), clef_nn_relu(ctx),
                         clef_nn_linear(ctx, 120, 84, NULL), clef_nn_relu(ctx), clef_nn_linear(ctx, 84, classes, NULL)));
}

clef_module *clef_model_cnn(clef_context *ctx, clef_shape input, int64_t classes) {
    if (!usable(ctx, "cnn", input, classes, 4)) return NULL;
    int64_t h = input.dim[1], w = input.dim[2];
    int padding = h < 10 || w < 10 ? 1 : 0;
    clef_nn_conv2d_options o = {.conv.padding = {padding, padding}};
    for (int i = 0; i < 2; i++) h = conv_pool(h, 3, padding), w = conv_pool(w, 3, padding);
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, input.dim[0], 32, 3, &o), clef_nn_relu(ctx),
                                            clef_nn_max_pool2d(ctx, 2, NULL), clef_nn_conv2d(ctx, 32, 64, 3, &o), clef_nn_relu(ctx),
                                            clef_nn_max_pool2d(ctx, 2, NULL), clef_nn_flatten(ctx),
                                            clef_nn_linear(ctx, 64 * h * w, classes, NULL)));
}
