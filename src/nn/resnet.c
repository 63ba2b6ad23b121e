/* resnet.c — ResNet-18 for small images: 3×3 stem without a pool, widths 64 to 512, strides 1, 2, 2, 2.
   He et al., "Deep Residual Learning for Image Recognition", 2015, section 4.2's stem on the 18-layer network.
   Tensor names are torchvision's, so that weight files exchange. */
#include "clef/pointwise.h"
#include "nn/module.h"

static clef_module *conv_no_bias(clef_context *ctx, int64_t in, int64_t out, int kernel, int stride) {
    clef_nn_conv2d_options o = {.no_bias = true, .conv = {.stride = {stride, stride}, .padding = {kernel / 2, kernel / 2}}};
    return clef_nn_conv2d(ctx, in, out, kernel, &o);
}

typedef struct basic_block {
    clef_module *conv1, *bn1, *conv2, *bn2, *downsample;
} basic_block;

static clef_tensor *forward_block(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    const basic_block *b = user;
    clef_tensor *y = clef_relu(clef_forward(b->bn1, clef_forward(b->conv1, x)));
    y = clef_forward(b->bn2, clef_forward(b->conv2, y));
    return clef_relu(clef_add(y, b->downsample ? clef_forward(b->downsample, x) : x));
}

static clef_module *make_block(clef_context *ctx, int64_t in, int64_t out, int stride) {
    clef_module *m = clef__module_make(ctx, "basic_block", forward_block, NULL, sizeof(basic_block));
    if (!m) return NULL;
    basic_block *b = m->user;
    b->conv1 = clef__attach(m, "conv1", conv_no_bias(ctx, in, out, 3, stride));
    b->bn1 = clef__attach(m, "bn1", clef_nn_batch_norm2d(ctx, out, NULL));
    b->conv2 = clef__attach(m, "conv2", conv_no_bias(ctx, out, out, 3, 1));
    b->bn2 = clef__attach(m, "bn2", clef_nn_batch_norm2d(ctx, out, NULL));
    if (!b->conv1 || !b->bn1 || !b->conv2 || !b->bn2) return NULL;
    if (stride == 1 && in == out) return m;
    clef_module *shortcut =
        clef_sequential(ctx, CLEF_LAYERS(conv_no_bias(ctx, in, out, 1, stride), clef_nn_batch_norm2d(ctx, out, NULL)));
    b->downsample = clef__attach(m, "downsample", shortcut);
    return b->downsample ? m : NULL;
}

static clef_module *make_stage(clef_context *ctx, int64_t in, int64_t out, int stride) {
    return clef_sequential(ctx, CLEF_LAYERS(make_block(ctx, in, out, stride), make_block(ctx, out, out, 1)));
}

typedef struct resnet {
    clef_module *conv1, *bn1, *layer[4], *pool, *fc;
} resnet;

static clef_tensor *forward_resnet(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    const resnet *r = user;
    x = clef_relu(clef_forward(r->bn1, clef_forward(r->conv1, x)));
    for (int i = 0; i < 4; i++) x = clef_forward(r->layer[i], x);
    return clef_forward(r->fc, clef_forward(r->pool, x));
}

static bool make_stages(clef_module *m, resnet *r) {
    static const char *const name[4] = {"layer1", "layer2", "layer3", "layer4"};
    for (int i = 0; i < 4; i++) {
        int64_t width = (int64_t)64 << i;
        r->layer[i] = clef__attach(m, name[i], make_stage(m->ctx, i ? width / 2 : 64, width, i ? 2 : 1));
        if (!r->layer[i]) return false;
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
    clef_module *m = clef__module_make(ctx, "resnet18", forward_resnet, NULL, sizeof(resnet));
    if (!m) return NULL;
    resnet *r = m->user;
    r->conv1 = clef__attach(m, "conv1", conv_no_bias(ctx, input.dim[0], 64, 3, 1));
    r->bn1 = clef__attach(m, "bn1", clef_nn_batch_norm2d(ctx, 64, NULL));
    if (!r->conv1 || !r->bn1 || !make_stages(m, r)) return NULL;
    r->pool = clef__attach(m, "avgpool", clef_nn_global_avg_pool2d(ctx));
    r->fc = clef__attach(m, "fc", clef_nn_linear(ctx, 512, classes, NULL));
    return r->pool && r->fc ? m : NULL;
}
