/* layers_norm.c — batch, layer, RMS, group and instance norm, dropout: the layers that care about the mode or keep statistics. */
#include "clef/pointwise.h"
#include "group/group.h"
#include "nn/module.h"
#include "ops/ops.h"

/* Of [n,channels] and [n,channels,l], or of images. */
typedef struct batch_norm {
    bool images;
    clef_tensor *weight, *bias, *mean, *var, *batches;
    double eps, momentum;
    clef_group *sync; /* whose ranks' items are normalised together; NULL: those of this rank */
} batch_norm;

static clef_tensor *forward_batch_norm(clef_module *module, clef_tensor *x, void *user) {
    const batch_norm *b = user;
    clef_shape shape = clef_tensor_shape(x);
    if (b->images ? shape.rank != 4 : shape.rank != 2 && shape.rank != 3) {
        clef__fail(module->ctx, CLEF_SHAPE, "%s: x has %d dimensions; it wants %s", clef_module_type(module), shape.rank,
                   b->images ? "[n,c,h,w]" : "[n,c] or [n,c,l]");
        return NULL;
    }
    bool training = clef_is_training(module);
    clef__batch_norm_mode mode = {.training = training, .momentum = b->momentum, .eps = b->eps};
    if (clef_group_size(b->sync) > 1) mode.statistics = clef__statistics_of_ranks, mode.user = b->sync;
    clef_tensor *y = clef__batch_norm(x, &(clef__batch_norm_tensors){b->weight, b->bias, b->mean, b->var}, &mode);
    if (training && y)
        for (CLEF_NO_GRAD(module->ctx)) clef_assign(b->batches, clef_add_scalar(b->batches, 1));
    return y;
}

static void set_sync(clef_module *module, void *group) {
    if (module->forward == forward_batch_norm) ((batch_norm *)module->user)->sync = group;
}

clef_status clef_module_sync_batch_norm(clef_module *module, clef_group *group) {
    if (!module) return CLEF_INVALID;
    if (group && group->ctx != module->ctx)
        return clef__fail(module->ctx, CLEF_INVALID,
                          "sync_batch_norm: the group belongs to another context; each rank has its own");
    clef__module_visit(module, set_sync, group);
    return CLEF_OK;
}

/* The affine pair of a norm: ones and zeros, registered; or none. */
static bool make_affine(clef_module *m, bool none, clef_shape shape, clef_tensor **weight, clef_tensor **bias) {
    *weight = *bias = CLEF_NONE;
    if (none) return true;
    *weight = clef__new_parameter(m, "weight", shape);
    *bias = clef__new_parameter(m, "bias", shape);
    return *weight && *bias && clef_init_constant(*weight, 1) == CLEF_OK;
}

static clef_module *make_batch_norm(clef_context *ctx, const char *type, bool images, int64_t channels,
                                    const clef_nn_norm_options *options) {
    clef_nn_norm_options o = options ? *options : (clef_nn_norm_options){0};
    if (channels < 1 || !(o.eps >= 0) || !(o.momentum >= 0 && o.momentum <= 1))
        return clef__module_refuse(ctx,
                                   "%s: %lld channels, eps %g, momentum %g; channels must be positive, "
                                   "eps not negative, momentum at most 1",
                                   type, (long long)channels, o.eps, o.momentum);
    if (o.sync && o.sync->ctx != ctx)
        return clef__module_refuse(ctx, "%s: the group of sync belongs to another context; each rank has its own", type);
    clef_module *m = clef__module_make(ctx, type, forward_batch_norm, NULL, sizeof(batch_norm));
    if (!m) return NULL;
    batch_norm *b = m->user;
    b->images = images;
    b->sync = o.sync;
    b->eps = o.eps > 0 ? o.eps : 1e-5;
    b->momentum = o.momentum > 0 ? o.momentum : 0.1;
    clef_shape shape = CLEF_SHAPE(channels);
    if (!make_affine(m, o.no_affine, shape, &b->weight, &b->bias)) return NULL;
    b->mean = clef__new_buffer(m, "running_mean", shape, CLEF_F32, 0);
    b->var = clef__new_buffer(m, "running_var", shape, CLEF_F32, 1);
    b->batches = clef__new_buffer(m, "num_batches_tracked", CLEF_SCALAR, CLEF_I64, 0);
    return b->mean && b->var && b->batches ? m : NULL;
}

clef_module *clef_nn_batch_norm2d(clef_context *ctx, int64_t channels, const clef_nn_norm_options *options) {
    return make_batch_norm(ctx, "batch_norm2d", true, channels, options);
}

clef_module *clef_nn_batch_norm1d(clef_context *ctx, int64_t channels, const clef_nn_norm_options *options) {
    return make_batch_norm(ctx, "batch_norm1d", false, channels, options);
}

/* Of layer norm and, without a bias, of RMS norm. */
typedef struct layer_norm {
    clef_tensor *weight, *bias;
    clef_shape shape;
    double eps;
} layer_norm;

static bool ends_in(const clef_module *module, clef_tensor *x, clef_shape wanted) {
    clef_shape have = clef_tensor_shape(x), tail = {.rank = wanted.rank};
    for (int i = 0; i < tail.rank && have.rank >= tail.rank; i++) tail.dim[i] = have.dim[have.rank - tail.rank + i];
    if (clef_shape_equal(tail, wanted)) return true;
    char x_text[96], wanted_text[96];
    clef__fail(module->ctx, CLEF_SHAPE, "%s: x %s does not end in the normalised shape %s", clef_module_type(module),
               clef_shape_format(have, x_text, sizeof x_text), clef_shape_format(wanted, wanted_text, sizeof wanted_text));
    return false;
}

static clef_tensor *forward_layer_norm(clef_module *module, clef_tensor *x, void *user) {
    const layer_norm *l = user;
    return ends_in(module, x, l->shape) ? clef_layer_norm(x, l->shape.rank, l->weight, l->bias, l->eps) : NULL;
}

static clef_tensor *forward_rms_norm(clef_module *module, clef_tensor *x, void *user) {
    const layer_norm *l = user;
    return ends_in(module, x, l->shape) ? clef_rms_norm(x, l->shape.rank, l->weight, l->eps) : NULL;
}

/* A module without parameters yet; its struct is *l. */
static clef_module *make_layer_norm(clef_context *ctx, const char *type, clef_forward_fn forward, clef_shape normalized, double eps,
                                    double usual_eps, layer_norm **l) {
    if (normalized.rank < 1 || clef_shape_numel(normalized) < 1 || !(eps >= 0))
        return clef__module_refuse(ctx,
                                   "%s: the normalised shape needs at least one positive dimension, and "
                                   "eps (%g) must not be negative",
                                   type, eps);
    layer_norm wanted = {.weight = CLEF_NONE, .bias = CLEF_NONE, .shape = normalized, .eps = eps > 0 ? eps : usual_eps};
    clef_module *m = clef__module_make(ctx, type, forward, &wanted, sizeof wanted);
    if (m) *l = m->user;
    return m;
}

clef_module *clef_nn_layer_norm(clef_context *ctx, clef_shape normalized, const clef_nn_norm_options *options) {
    clef_nn_norm_options o = options ? *options : (clef_nn_norm_options){0};
    layer_norm *l;
    clef_module *m = make_layer_norm(ctx, "layer_norm", forward_layer_norm, normalized, o.eps, 1e-5, &l);
    return m && make_affine(m, o.no_affine, normalized, &l->weight, &l->bias) ? m : NULL;
}

clef_module *clef_nn_rms_norm(clef_context *ctx, clef_shape normalized, const clef_nn_norm_options *options) {
    clef_nn_norm_options o = options ? *options : (clef_nn_norm_options){0};
    layer_norm *l;
    clef_module *m = make_layer_norm(ctx, "rms_norm", forward_rms_norm, normalized, o.eps, 0x1p-23, &l);
    if (!m || o.no_affine) return m;
    l->weight = clef__new_parameter(m, "weight", normalized);
    return l->weight && clef_init_constant(l->weight, 1) == CLEF_OK ? m : NULL;
}

typedef struct group_norm {
    clef_tensor *weight, *bias;
    int64_t groups, channels;
    double eps;
} group_norm;

static clef_tensor *forward_group_norm(clef_module *module, clef_tensor *x, void *user) {
    const group_norm *l = user;
    clef_shape shape = clef_tensor_shape(x);
    if (shape.rank >= 2 && shape.dim[1] == l->channels) return clef_group_norm(x, l->groups, l->weight, l->bias, l->eps);
    char text[96];
    clef__fail(module->ctx, CLEF_SHAPE, "group_norm: x %s is not [n,%lld,...]", clef_shape_format(shape, text, sizeof text),
               (long long)l->channels);
    return NULL;
}

clef_module *clef_nn_group_norm(clef_context *ctx, int64_t groups, int64_t channels, const clef_nn_norm_options *options) {
    clef_nn_norm_options o = options ? *options : (clef_nn_norm_options){0};
    if (groups < 1 || channels < 1 || channels % groups || !(o.eps >= 0))
        return clef__module_refuse(ctx,
                                   "group_norm: %lld groups of %lld channels, eps %g; groups must be positive and "
                                   "divide the channels, eps not be negative",
                                   (long long)groups, (long long)channels, o.eps);
    group_norm wanted = {.groups = groups, .channels = channels, .eps = o.eps > 0 ? o.eps : 1e-5};
    clef_module *m = clef__module_make(ctx, "group_norm", forward_group_norm, &wanted, sizeof wanted);
    group_norm *l = m ? m->user : NULL;
    return m && make_affine(m, o.no_affine, CLEF_SHAPE(channels), &l->weight, &l->bias) ? m : NULL;
}

static clef_tensor *forward_instance_norm(clef_module *module, clef_tensor *x, void *user) {
    const group_norm *l = user;
    clef_shape shape = clef_tensor_shape(x);
    if (shape.rank == 4 && shape.dim[1] == l->channels) return clef_instance_norm(x, l->weight, l->bias, l->eps);
    char text[96];
    clef__fail(module->ctx, CLEF_SHAPE, "instance_norm2d: x %s is not [n,%lld,h,w]", clef_shape_format(shape, text, sizeof text),
               (long long)l->channels);
    return NULL;
}

clef_module *clef_nn_instance_norm2d(clef_context *ctx, int64_t channels, const clef_nn_instance_norm_options *options) {
    clef_nn_instance_norm_options o = options ? *options : (clef_nn_instance_norm_options){0};
    if (channels < 1 || !(o.eps >= 0))
        return clef__module_refuse(ctx, "instance_norm2d: %lld channels, eps %g; channels must be positive, eps not negative",
                                   (long long)channels, o.eps);
    group_norm wanted = {.groups = channels, .channels = channels, .eps = o.eps > 0 ? o.eps : 1e-5};
    clef_module *m = clef__module_make(ctx, "instance_norm2d", forward_instance_norm, &wanted, sizeof wanted);
    group_norm *l = m ? m->user : NULL;
    return m && make_affine(m, !o.affine, CLEF_SHAPE(channels), &l->weight, &l->bias) ? m : NULL;
}

static clef_tensor *forward_dropout(clef_module *module, clef_tensor *x, void *user) {
    double p = *(const double *)user;
    return clef_is_training(module) && p > 0 ? clef_dropout(x, p) : x;
}

clef_module *clef_nn_dropout(clef_context *ctx, double p) {
    if (!(p >= 0 && p <= 1)) return clef__module_refuse(ctx, "dropout: the probability %g is not within [0,1]", p);
    return clef__module_make(ctx, "dropout", forward_dropout, &p, sizeof p);
}
