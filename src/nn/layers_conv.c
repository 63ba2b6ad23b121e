/* layers_conv.c — conv2d and the pools.  Weights start as PyTorch's do. */
#include "nn/module.h"
#include <math.h>

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
    int64_t groups = o.conv.groups ? o.conv.groups : 1, width = o.kernel_w ? o.kernel_w : kernel;
    if (in < 1 || out < 1 || kernel < 1 || width < 1)
        return clef__module_refuse(ctx, "conv2d: %lld → %lld channels with a %d×%lld kernel; all must be positive", (long long)in,
                                   (long long)out, kernel, (long long)width);
    if (groups < 1 || in % groups || out % groups)
        return clef__module_refuse(ctx, "conv2d: %lld → %lld channels cannot be cut into %lld groups", (long long)in,
                                   (long long)out, (long long)groups);
    clef_module *m = clef__module_make(ctx, "conv2d", forward_conv2d, &(conv2d){.options = o.conv}, sizeof(conv2d));
    if (!m) return NULL;
    conv2d *c = m->user;
    c->weight = clef__new_parameter(m, "weight", CLEF_SHAPE(out, in / groups, kernel, width));
    if (!c->weight || clef_init_kaiming_uniform(c->weight, sqrt(5))) return NULL;
    c->bias = o.no_bias ? CLEF_NONE : clef__new_parameter(m, "bias", CLEF_SHAPE(out));
    return clef__init_bias(c->bias, in / groups * kernel * width) == CLEF_OK ? m : NULL;
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
