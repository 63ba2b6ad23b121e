/* Modes within fit and evaluate: what was set on a module holds, what is frozen does not move, and all is put back.
   ctest: plain */
#include "train/train_support.h"
#include <criterion/criterion.h>
#include <math.h>

/* Two batch norms before a linear layer: "0.0" is the backbone's, "1" another. */
typedef struct norms {
    rig r;
    clef_module *net, *backbone;
    clef_optimizer *optimizer;
} norms;

static norms norms_open(void) {
    norms n = {.r = rig_open((rig_options){.limit = 64, .plain = true})};
    clef_context *ctx = n.r.ctx;
    n.backbone = clef_sequential(ctx, CLEF_LAYERS(clef_nn_batch_norm2d(ctx, 1, NULL)));
    n.net = clef_sequential(
        ctx, CLEF_LAYERS(n.backbone, clef_nn_batch_norm2d(ctx, 1, NULL), clef_nn_flatten(ctx), clef_nn_linear(ctx, 64, 10, NULL)));
    n.optimizer = clef_sgd(n.net, &(clef_sgd_options){.lr = 0.01});
    return n;
}

static void fit(const norms *n) {
    clef_fit_options options = {.train = n->r.train, .test = n->r.test, .optimizer = n->optimizer, .epochs = 2};
    cr_assert_eq(clef_fit(n->net, &options, NULL), CLEF_OK, "%s", clef_error(n->r.ctx));
}

static double number(const norms *n, const char *name) { return clef_item(clef_parameter(n->net, name)); }

/* Did the statistics of this batch norm see `batches` batches? */
static void expect_batches(const norms *n, const char *layer, double batches) {
    char name[64];
    snprintf(name, sizeof name, "%s.num_batches_tracked", layer);
    cr_expect_eq(number(n, name), batches, "%s: %g batches, not %g", layer, number(n, name), batches);
    snprintf(name, sizeof name, "%s.running_mean", layer);
    cr_expect_eq(number(n, name) == 0, batches == 0, "%s: mean %g", layer, number(n, name));
}

Test(modes, what_was_set_on_a_module_holds_within_fit) {
    norms n = norms_open();
    clef_set_training(n.backbone, false);
    fit(&n);
    expect_batches(&n, "0.0", 0);
    expect_batches(&n, "1", 4);
    cr_expect(clef_is_training(n.net) && !clef_is_training(n.backbone), "modes must be put back");
    cr_expect(!clef_is_training(clef_module_child(n.backbone, "0")));
    clef_set_training(n.net, true); /* counts for everything below, as in PyTorch */
    fit(&n);
    expect_batches(&n, "0.0", 4);
    clef_close(n.r.ctx);
}

Test(modes, a_net_in_evaluation_is_trained_all_the_same) {
    norms n = norms_open();
    clef_set_training(n.net, false);
    fit(&n);
    expect_batches(&n, "0.0", 4);
    cr_expect(!clef_is_training(n.net) && !clef_is_training(clef_module_child(n.net, "1")), "modes must be put back");
    clef_set_training(n.net, true);
    clef_set_training(n.backbone, false);
    clef_set_training(clef_module_child(n.net, "1"), false);
    clef_set_training(clef_module_child(n.net, "1"), true);
    fit(&n);
    expect_batches(&n, "0.0", 4);
    expect_batches(&n, "1", 8);
    clef_close(n.r.ctx);
}

Test(modes, what_is_frozen_does_not_move) {
    norms n = norms_open();
    clef_freeze(n.backbone, true);
    cr_expect(!clef_is_training(n.backbone) && clef_is_training(n.net));
    clef_set_training(n.net, true);
    cr_expect(!clef_is_training(clef_module_child(n.net, "0.0")), "only thawing it ends it");
    double weight = number(&n, "0.0.weight");
    fit(&n);
    expect_batches(&n, "0.0", 0);
    expect_batches(&n, "1", 4);
    cr_expect_eq(number(&n, "0.0.weight"), weight);
    for (clef_batch b; clef_next(n.r.train, &b);) { /* a loop by hand is no other thing */
        clef_backward(clef_cross_entropy(clef_forward(n.net, b.x), b.y, NULL));
        cr_assert_eq(clef_step(n.optimizer), CLEF_OK, "%s", clef_error(n.r.ctx));
    }
    expect_batches(&n, "0.0", 0);
    clef_freeze(n.backbone, false);
    cr_expect(clef_is_training(clef_module_child(n.net, "0.0")));
    fit(&n);
    expect_batches(&n, "0.0", 4);
    cr_expect(clef_requires_grad(clef_parameter(n.net, "0.0.weight")));
    clef_close(n.r.ctx);
}

Test(modes, evaluate_and_summary_put_back_what_was) {
    norms n = norms_open();
    clef_evaluation_result e;
    char text[2048];
    clef_set_training(n.backbone, false);
    for (int i = 0; i < 2; i++) {
        if (i) clef_set_training(n.net, false), clef_set_training(n.backbone, true);
        cr_assert_eq(clef_evaluate(n.net, n.r.test, NULL, NULL, &e), CLEF_OK, "%s", clef_error(n.r.ctx));
        cr_assert(clef_summary(n.net, CLEF_SHAPE(1, 1, 8, 8), text, sizeof text) > 0);
        cr_expect_eq(clef_is_training(n.net), i == 0);
        cr_expect_eq(clef_is_training(n.backbone), i == 1);
    }
    expect_batches(&n, "0.0", 0);
    expect_batches(&n, "1", 0);
    clef_close(n.r.ctx);
}
