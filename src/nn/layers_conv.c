/* layers_conv.c — convolutions, pools and upsampling.  Weights start as PyTorch's do. */
#include "nn/module.h"
#include <math.h>

/* What is wrong with the sizes of a convolution, as the context's error; true if they fit. */
static bool sizes_fit(clef_context *ctx, const char *type, int64_t in, int64_t out, int h, int w, int64_t groups) {
    if (in < 1 || out < 1 || h < 1 || w < 1)
        clef__module_refuse(ctx, "%s: %lld → %lld channels with a %d×%d kernel; all must be positive", type, (long long)in,
                            (long long)out, h, w);
    else if (groups < 1 || in % groups || out % groups)
        clef__module_refuse(ctx, "%s: %lld → %lld channels cannot be cut into %lld groups", type, (long long)in, (long long)out,
                            (long long)groups);
    else return true;
    return false;
}

/* Weight and bias [out], registered; the fan in is dimension 1 and what follows, of a transposed convolution too, as in PyTorch. */
static bool make_filters(clef_module *m, clef_shape shape, int64_t out, bool no_bias, clef_tensor **weight, clef_tensor **bias) {
    *weight = clef__new_parameter(m, "weight", shape);
    if (!*weight || clef_init_kaiming_uniform(*weight, sqrt(5))) return false;
    *bias = no_bias ? CLEF_NONE : clef__new_parameter(m, "bias", CLEF_SHAPE(out));
    return clef__init_bias(*bias, clef_shape_numel(shape) / shape.dim[0]) == CLEF_OK;
}

static int64_t or_one(int64_t groups) { return groups ? groups : 1; }

typedef struct conv2d {
    clef_tensor *weight, *bias;
    clef_conv2d_options options;
} conv2d;

static clef_tensor *forward_conv2d(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    const conv2d *c = user;
    return clef_conv2d(x, c->weight, c->bias, &c->options);
}

clef_module *clef_nn_conv2d(clef_context *ctx, int64_t in, int64_t out, int kernel, const clef_nn_conv2d_options *options) {
    clef_nn_conv2d_options o = options ? *options : (clef_nn_conv2d_options){0};
    int64_t groups = or_one(o.conv.groups);
    int width = o.kernel_w ? o.kernel_w : kernel;
    if (!sizes_fit(ctx, "conv2d", in, out, kernel, width, groups)) return NULL;
    clef_module *m = clef__module_make(ctx, "conv2d", forward_conv2d, &(conv2d){.options = o.conv}, sizeof(conv2d));
    if (!m) return NULL;
    conv2d *c = m->user;
    return make_filters(m, CLEF_SHAPE(out, in / groups, kernel, width), out, o.no_bias, &c->weight, &c->bias) ? m : NULL;
}

typedef struct conv1d {
    clef_tensor *weight, *bias;
    clef_conv1d_options options;
} conv1d;

static clef_tensor *forward_conv1d(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    const conv1d *c = user;
    return clef_conv1d(x, c->weight, c->bias, &c->options);
}

clef_module *clef_nn_conv1d(clef_context *ctx, int64_t in, int64_t out, int kernel, const clef_nn_conv1d_options *options) {
    clef_nn_conv1d_options o = options ? *options : (clef_nn_conv1d_options){0};
    int64_t groups = or_one(o.conv.groups);
    if (!sizes_fit(ctx, "conv1d", in, out, 1, kernel, groups)) return NULL;
    clef_module *m = clef__module_make(ctx, "conv1d", forward_conv1d, &(conv1d){.options = o.conv}, sizeof(conv1d));
    if (!m) return NULL;
    conv1d *c = m->user;
    return make_filters(m, CLEF_SHAPE(out, in / groups, kernel), out, o.no_bias, &c->weight, &c->bias) ? m : NULL;
}

typedef struct conv_transpose2d {
    clef_tensor *weight, *bias;
    clef_conv_transpose2d_options options;
} conv_transpose2d;

static clef_tensor *forward_conv_transpose2d(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    const conv_transpose2d *c = user;
    return clef_conv_transpose2d(x, c->weight, c->bias, &c->options);
}

clef_module *clef_nn_conv_transpose2d(clef_context *ctx, int64_t in, int64_t out, int kernel,
                                      const clef_nn_conv_transpose2d_options *options) {
    clef_nn_conv_transpose2d_options o = options ? *options : (clef_nn_conv_transpose2d_options){0};
    int64_t groups = or_one(o.conv.groups);
    int width = o.kernel_w ? o.kernel_w : kernel;
    if (!sizes_fit(ctx, "conv_transpose2d", in, out, kernel, width, groups)) return NULL;
    conv_transpose2d wanted = {.options = o.conv};
    clef_module *m = clef__module_make(ctx, "conv_transpose2d", forward_conv_transpose2d, &wanted, sizeof wanted);
    if (!m) return NULL;
    conv_transpose2d *c = m->user;
    return make_filters(m, CLEF_SHAPE(in, out / groups, kernel, width), out, o.no_bias, &c->weight, &c->bias) ? m : NULL;
}

bool clef__conv2d_of(const clef_module *module, clef__layer *layer) {
    if (module->forward != forward_conv2d) return false;
    const conv2d *c = module->user;
    *layer = (clef__layer){.kind = CLEF__CONV2D, .weight = c->weight, .bias = c->bias, .conv = c->options};
    return true;
}

typedef struct pool2d {
    clef_tensor *(*pool)(clef_tensor *x, int kh, int kw, const clef_pool2d_options *options);
    int kernel;
    clef_pool2d_options options;
} pool2d;

static clef_tensor *forward_pool2d(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    const pool2d *p = user;
    return p->pool(x, p->kernel, p->kernel, &p->options);
}

static clef_module *make_pool(clef_context *ctx, const char *type, int kernel, const clef_pool2d_options *options,
                              clef_tensor *(*pool)(clef_tensor *, int, int, const clef_pool2d_options *)) {
    if (kernel < 1) return clef__module_refuse(ctx, "%s: the kernel's size is %d; it must be positive", type, kernel);
    pool2d p = {.pool = pool, .kernel = kernel};
    if (options) p.options = *options;
    return clef__module_make(ctx, type, forward_pool2d, &p, sizeof p);
}

clef_module *clef_nn_max_pool2d(clef_context *ctx, int kernel, const clef_pool2d_options *options) {
    return make_pool(ctx, "max_pool2d", kernel, options, clef_max_pool2d);
}

clef_module *clef_nn_avg_pool2d(clef_context *ctx, int kernel, const clef_pool2d_options *options) {
    return make_pool(ctx, "avg_pool2d", kernel, options, clef_avg_pool2d);
}

typedef struct adaptive {
    int h, w;
} adaptive;

static clef_tensor *forward_adaptive(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    const adaptive *a = user;
    return clef_adaptive_avg_pool2d(x, a->h, a->w);
}

clef_module *clef_nn_adaptive_avg_pool2d(clef_context *ctx, int oh, int ow) {
    if (oh < 1 || ow < 1) return clef__module_refuse(ctx, "adaptive_avg_pool2d: an output of %d×%d; both must be positive", oh, ow);
    return clef__module_make(ctx, "adaptive_avg_pool2d", forward_adaptive, &(adaptive){oh, ow}, sizeof(adaptive));
}

static clef_tensor *forward_global(clef_module *module, clef_tensor *x, void *user) {
    (void)module, (void)user;
    return clef_global_avg_pool2d(x);
}

clef_module *clef_nn_global_avg_pool2d(clef_context *ctx) {
    return clef__module_make(ctx, "global_avg_pool2d", forward_global, NULL, 0);
}

static clef_tensor *forward_upsample(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    int factor = *(const int *)user;
    return clef_upsample_nearest2d(x, factor, factor);
}

clef_module *clef_nn_upsample_nearest2d(clef_context *ctx, int factor) {
    if (factor < 1) return clef__module_refuse(ctx, "upsample_nearest2d: the factor is %d; it must be positive", factor);
    return clef__module_make(ctx, "upsample_nearest2d", forward_upsample, &factor, sizeof factor);
}
