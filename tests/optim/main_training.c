/* Small training runs through every layer, optimizer and schedule, from opening to closing, for the sanitizers.
   Exit 77: no device.
   ctest: cost=15 plain */
#include "support/plain.h"
#include <math.h>
#include <stdio.h>

static int failures;

static void check(bool ok, const char *what, const clef_context *ctx) {
    if (ok) return;
    failures++;
    fprintf(stderr, "%s: %s\n", what, clef_error(ctx));
}

static clef_module *make_net(clef_context *ctx) {
    clef_nn_conv2d_options padded = {.conv.padding = {1, 1}};
    clef_module *body =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 4, 4, 3, &padded), clef_nn_batch_norm2d(ctx, 4, NULL)));
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 4, 3, &padded), clef_nn_residual(ctx, body, NULL, true),
                                            clef_nn_max_pool2d(ctx, 2, NULL), clef_nn_dropout(ctx, 0.2), clef_nn_flatten(ctx),
                                            clef_nn_linear(ctx, 64, 8, NULL), clef_nn_layer_norm(ctx, CLEF_SHAPE(8), NULL),
                                            clef_nn_gelu(ctx), clef_nn_linear(ctx, 8, 3, NULL)));
}

static clef_optimizer *make_optimizer(clef_module *m, int which) {
    switch (which) {
    case 0: return clef_sgd(m, &(clef_sgd_options){.lr = 0.1, .momentum = 0.9, .nesterov = true});
    case 1: return clef_adam(m, &(clef_adam_options){.lr = 0.02, .amsgrad = true});
    case 2: return clef_adamw(m, &(clef_adamw_options){.lr = 0.02});
    case 3: return clef_rmsprop(m, &(clef_rmsprop_options){.centered = true, .momentum = 0.5});
    default: return clef_adagrad(m, &(clef_adagrad_options){.lr = 0.1});
    }
}

static double step(clef_context *ctx, clef_module *net, clef_optimizer *opt, clef_tensor *x, clef_tensor *y) {
    clef_tensor *loss = clef_cross_entropy(clef_forward(net, x), y, NULL);
    check(clef_backward(loss) == CLEF_OK, "backward", ctx);
    clef_clip_grad_norm(net, 1);
    check(clef_clip_grad_value(net, 0.5) == CLEF_OK, "clip", ctx);
    check(clef_step(opt) == CLEF_OK, "step", ctx);
    return clef_item(loss);
}

static void train(clef_context *ctx, int which) {
    clef_module *net = make_net(ctx);
    clef_optimizer *opt = make_optimizer(net, which);
    int64_t milestones[] = {2, 4}, label[6] = {0, 1, 2, 0, 1, 2};
    clef_schedule *schedule =
        clef_schedule_new(opt, &(clef_schedule_options){.kind = which == 0 ? CLEF_SCHEDULE_MULTISTEP : CLEF_SCHEDULE_CONSTANT,
                                                        .gamma = 0.5,
                                                        .milestones = milestones,
                                                        .n_milestones = 2,
                                                        .warmup = which});
    check(opt && schedule, "making", ctx);
    check(clef_optimizer_group(opt, "bias", 0.5, 0) == CLEF_OK, "group", ctx);
    clef_seed(ctx, 9);
    clef_tensor *x = clef_keep(clef_randn(ctx, CLEF_SHAPE(6, 1, 8, 8)));
    clef_tensor *y = clef_keep(clef_from_host(ctx, CLEF_SHAPE(6), CLEF_I64, label));
    double first = step(ctx, net, opt, x, y), last = first;
    for (int i = 0; i < 6; i++) {
        clef_schedule_tick(schedule);
        last = step(ctx, net, opt, x, y);
    }
    check(isfinite(last) && last < first, "the loss must fall", ctx);
    clef_release(x);
    clef_release(y);
}

int main(void) {
    clef_context *ctx = clef_open(NULL);
    if (!ctx) return without_context();
    char text[4096];
    for (int which = 0; which < 5; which++) train(ctx, which);
    check(clef_summary(make_net(ctx), CLEF_SHAPE(1, 1, 8, 8), text, sizeof text) > 0, "summary", ctx);
    check(clef_model_resnet18(ctx, CLEF_SHAPE(3, 8, 8), 10) != NULL, "resnet18", ctx);
    check(clef_nn_linear(ctx, -1, 1, NULL) == NULL, "a refusal", ctx);
    clef_close(ctx);
    return failures != 0;
}
