/* What goes wrong in training is said, in one line and with a status: nothing ends silently.
   ctest: plain */
#include "train/train_support.h"
#include <criterion/criterion.h>
#include <math.h>

static void expect_line(const rig *r, clef_status status, const char *part) {
    cr_expect_eq(status, CLEF_INVALID, "%s", clef_status_name(status));
    cr_expect_eq(clef_error_status(r->ctx), CLEF_INVALID);
    cr_expect(strstr(clef_error(r->ctx), part), "\"%s\" does not say \"%s\"", clef_error(r->ctx), part);
    clef_clear_error(r->ctx);
}

/* No infinity and no NaN for many steps, only numbers beyond reason. */
Test(sayings, training_that_diverges) {
    rig r = rig_open((rig_options){.sgd = true, .lr = 1e9});
    clef_fit_options options = rig_fit(&r);
    options.epochs = 3;
    expect_line(&r, clef_fit(r.net, &options, NULL), "training diverges");
    clef_close(r.ctx);
}

/* Large numbers alone are no divergence. */
Test(sayings, a_large_loss_is_none) {
    static float x[64], y[64];
    rig r = rig_open((rig_options){0});
    for (int i = 0; i < 64; i++) x[i] = (float)i / 64, y[i] = 1e6f * (float)i;
    clef_module *net = clef_nn_linear(r.ctx, 1, 1, NULL);
    clef_loader *data = clef_loader_open(clef_dataset_pairs(r.ctx, x, CLEF_SHAPE(1), y, CLEF_SHAPE(1), 64),
                                         &(clef_loader_options){.batch = 16, .shuffle = true});
    clef_fit_options options = {
        .train = data, .optimizer = clef_sgd(net, &(clef_sgd_options){.lr = 0.1}), .epochs = 5, .loss = clef_mse_loss};
    cr_expect_eq(clef_fit(net, &options, NULL), CLEF_OK, "%s", clef_error(r.ctx));
    clef_close(r.ctx);
}

typedef struct labels {
    rig r;
    int64_t y[64];
    clef_loader *loader;
} labels;

static void labels_open(labels *l, int64_t odd) {
    static float x[64 * 64];
    l->r = rig_open((rig_options){0});
    for (int i = 0; i < 64 * 64; i++) x[i] = (float)(i % 13) / 13;
    for (int i = 0; i < 64; i++) l->y[i] = i % 10;
    l->y[37] = odd;
    clef_dataset *data = clef_dataset_arrays(l->r.ctx, x, CLEF_SHAPE(1, 8, 8), l->y, 64);
    l->loader = clef_loader_open(data, &(clef_loader_options){.batch = 16});
}

static void expect_odd_label(int64_t odd, const char *fit_says, const char *evaluate_says) {
    labels l;
    labels_open(&l, odd);
    clef_evaluation_result e;
    clef_fit_options options = {.train = l.loader, .optimizer = l.r.optimizer, .epochs = 2};
    expect_line(&l.r, clef_fit(l.r.net, &options, NULL), fit_says);
    expect_line(&l.r, clef_evaluate(l.r.net, l.loader, NULL, NULL, &e), evaluate_says);
    clef_loss_options ignore = {.has_ignore_index = true, .ignore_index = odd};
    options.loss_options = &ignore;
    cr_expect_eq(clef_fit(l.r.net, &options, NULL), CLEF_OK, "%s", clef_error(l.r.ctx));
    cr_expect_eq(clef_evaluate(l.r.net, l.loader, NULL, &ignore, &e), CLEF_OK, "%s", clef_error(l.r.ctx));
    cr_expect(isfinite(e.loss));
    clef_close(l.r.ctx);
}

Test(sayings, labels_that_are_no_class) {
    expect_odd_label(10, "epoch 1, batch 3 is not finite; label 10 of its item 5 is no class of the module's 10 outputs",
                     "evaluate: label 10 of item 37 is no class of the module's 10 outputs");
    expect_odd_label(-1, "label -1 of its item 5", "label -1 of item 37");
}

/* One label per pixel. */
static clef_tensor *pixels(clef_module *module, clef_tensor *x, void *user) {
    (void)user;
    clef_tensor *y = clef_mul(clef_expand(x, CLEF_SHAPE(clef_tensor_shape(x).dim[0], 3, 8, 8)), clef_parameter(module, "gain"));
    return y;
}

static clef_tensor *pixel_loss(clef_tensor *output, clef_tensor *target, const clef_loss_options *options) {
    int64_t n = clef_tensor_shape(target).dim[0];
    clef_tensor *each = clef_expand(clef_reshape(target, CLEF_SHAPE(n, 1, 1)), CLEF_SHAPE(n, 8, 8));
    return clef_cross_entropy(output, each, options);
}

Test(sayings, labels_of_a_loss_of_ones_own) {
    labels l;
    labels_open(&l, 5);
    clef_module *net = clef_module_new(l.r.ctx, "pixels", pixels, NULL);
    clef_module_add_parameter(net, "gain", clef_ones(l.r.ctx, CLEF_SHAPE(1, 3, 1, 1), CLEF_F32));
    clef_fit_options options = {.train = l.loader, .optimizer = clef_adam(net, NULL), .loss = pixel_loss};
    expect_line(&l.r, clef_fit(net, &options, NULL), "label 3 of its item 3 is no class of the module's 3 outputs");
    clef_close(l.r.ctx);
}

static clef_tensor *no_tensor(clef_module *module, clef_tensor *x, void *user) {
    (void)module, (void)x, (void)user;
    return NULL;
}

static clef_tensor *no_loss(clef_tensor *output, clef_tensor *target, const clef_loss_options *options) {
    (void)output, (void)target, (void)options;
    return NULL;
}

/* Nothing that is left out or mixed up passes for a training of zero steps. */
Test(sayings, what_is_missing) {
    static float x[64], y[64];
    rig r = rig_open((rig_options){0});
    clef_evaluation_result e;
    clef_fit_options options = rig_fit(&r);
    options.optimizer = clef_adam(clef_nn_linear(r.ctx, 2, 2, NULL), NULL);
    expect_line(&r, clef_fit(r.net, &options, NULL), "fit: the optimizer trains none of the module's parameters");
    options = rig_fit(&r);
    options.loss = no_loss;
    expect_line(&r, clef_fit(r.net, &options, NULL), "fit: the loss function gave no tensor");
    options = rig_fit(&r);
    options.schedule = clef_schedule_new(r.optimizer, &(clef_schedule_options){.kind = CLEF_SCHEDULE_PLATEAU, .maximize = true});
    expect_line(&r, clef_fit(r.net, &options, NULL), "fit: the schedule is a plateau that maximizes");

    clef_module *net = clef_sequential(r.ctx, CLEF_LAYERS(clef_nn_linear(r.ctx, 1, 1, NULL)));
    clef_loader *bare = clef_loader_open(clef_dataset_arrays(r.ctx, x, CLEF_SHAPE(1), NULL, 64), NULL);
    clef_loader *numbers = clef_loader_open(clef_dataset_pairs(r.ctx, x, CLEF_SHAPE(1), y, CLEF_SHAPE(1), 64), NULL);
    options = (clef_fit_options){.train = bare, .optimizer = clef_adam(net, NULL)};
    expect_line(&r, clef_fit(net, &options, NULL), "fit: the data has no targets");
    expect_line(&r, clef_evaluate(net, bare, NULL, NULL, &e), "evaluate: the data has no targets");
    options.train = numbers;
    expect_line(&r, clef_fit(net, &options, NULL), "is always 0 of one output per item");
    expect_line(&r, clef_evaluate(net, numbers, NULL, NULL, &e), "is always 0 of one output per item");
    options.loss = clef_mse_loss;
    cr_expect_eq(clef_fit(net, &options, NULL), CLEF_OK, "%s", clef_error(r.ctx));
    clef_module_add(net, "nothing", clef_module_new(r.ctx, "nothing", no_tensor, NULL));
    expect_line(&r, clef_fit(net, &options, NULL), "call: the forward of the sequential gave no tensor");
    clef_close(r.ctx);
}

/* An optimizer of the head alone: what it does not train has no gradient afterwards, and none in the norm. */
Test(sayings, an_optimizer_of_a_part) {
    rig r = rig_open((rig_options){.limit = 64});
    clef_fit_options options = rig_fit(&r);
    options.optimizer = clef_adam(clef_module_child(r.net, "3"), NULL);
    options.clip_norm = 1;
    options.accumulate = 2;
    options.schedule = NULL;
    cr_expect_eq(clef_fit(r.net, &options, NULL), CLEF_OK, "%s", clef_error(r.ctx));
    cr_expect_null(clef_grad_of(clef_parameter(r.net, "1.weight")));
    cr_expect_eq(clef_optimizer_steps(options.optimizer), 1);
    clef_close(r.ctx);
}

static bool fails(void *user, const clef_epoch *epoch) {
    (void)epoch;
    return clef_reshape(user, CLEF_SHAPE(7)) == NULL;
}

/* What a callback left behind counts, after the last epoch too. */
Test(sayings, an_error_of_a_callback) {
    rig r = rig_open((rig_options){0});
    clef_fit_options options = rig_fit(&r);
    options.on_epoch = fails;
    options.user = clef_keep(clef_zeros(r.ctx, CLEF_SHAPE(3), CLEF_F32));
    cr_expect_eq(clef_fit(r.net, &options, NULL), CLEF_SHAPE, "%s", clef_error(r.ctx));
    clef_close(r.ctx);
}
