/* resnet.c — ResNet-18 for small images: 3×3 stem without a pool, widths 64 to 512, strides 1, 2, 2, 2.
   He et al., "Deep Residual Learning for Image Recognition", 2015, section 4.2's stem on the 18-layer network.
   Tensor names are torchvision's, so that weight files exchange. */
#include "clef/pointwise.h"
#include "nn/module.h"

static clef_module *conv_no_bias(clef_context *ctx, int64_t in, int64_t out, int kernel, int stride) {
    clef_nn_conv2d_options o = {.no_bias = true, .conv = {.stride = {stride, stride}, .padding = {kernel / 2, kernel / 2}}};
    return clef_nn_conv2d(ctx, in, out, kernel, &o);
}

/* The children are asked for by name: they may have been replaced. */
static clef_tensor *forward_block(clef_module *module, clef_tensor *x, void *user) {
    (void)user;
    clef_module *downsample = clef__own_child(module, "downsample");
    clef_tensor *y = clef_relu(clef__forward_child(module, "bn1", clef__forward_child(module, "conv1", x)));
    y = clef__forward_child(module, "bn2", clef__forward_child(module, "conv2", y));
    return clef_relu(clef_add(y, downsample ? clef_forward(downsample, x) : x));
}

static clef_module *make_block(clef_context *ctx, int64_t in, int64_t out, int stride) {
    clef_module *m = clef__module_make(ctx, "basic_block", forward_block, NULL, 0);
    bool made = clef__attach(m, "conv1", conv_no_bias(ctx, in, out, 3, stride)) &&
                clef__attach(m, "bn1", clef_nn_batch_norm2d(ctx, out, NULL)) &&
                clef__attach(m, "conv2", conv_no_bias(ctx, out, out, 3, 1)) &&
                clef__attach(m, "bn2", clef_nn_batch_norm2d(ctx, out, NULL));
    if (!made) return NULL;
    if (stride == 1 && in == out) return m;
    clef_module *shortcut =
        clef_sequential(ctx, CLEF_LAYERS(conv_no_bias(ctx, in, out, 1, stride), clef_nn_batch_norm2d(ctx, out, NULL)));
    return clef__attach(m, "downsample", shortcut) ? m : NULL;
}

static clef_module *make_stage(clef_context *ctx, int64_t in, int64_t out, int stride) {
    return clef_sequential(ctx, CLEF_LAYERS(make_block(ctx, in, out, stride), make_block(ctx, out, out, 1)));
}

static const char *const stage[4] = {"layer1", "layer2", "layer3", "layer4"};

static bool make_stages(clef_module *m) {
    for (int i = 0; i < 4; i++) {
        int64_t width = (int64_t)64 << i;
        if (!clef__attach(m, stage[i], make_stage(m->ctx, i ? width / 2 : 64, width, i ? 2 : 1))) return false;
    }
    return true;
}

clef_module *clef_model_resnet18(clef_context *ctx, clef_shape input, int64_t classes) {
    if (input.rank != 3 || input.dim[0] < 1 || input.dim[1] < 1 || input.dim[2] < 1 || classes < 1) {
        char text[96];
        return clef__module_refuse(ctx,
                                   "model_resnet18: an input of %s and %lld classes; it wants [c,h,w] and 1 class or "
                                   "more",
                                   clef_shape_format(input, text, sizeof text), (long long)classes);
    }
    clef_module *m = clef__module_make(ctx, "resnet18", clef__forward_sequential, NULL, 0);
    bool made = clef__attach(m, "conv1", conv_no_bias(ctx, input.dim[0], 64, 3, 1)) &&
                clef__attach(m, "bn1", clef_nn_batch_norm2d(ctx, 64, NULL)) && clef__attach(m, "relu", clef_nn_relu(ctx)) &&
                make_stages(m) && clef__attach(m, "avgpool", clef_nn_global_avg_pool2d(ctx)) &&
                clef__attach(m, "fc", clef_nn_linear(ctx, 512, classes, NULL));
    return made ? m : NULL;
}
