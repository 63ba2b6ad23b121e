/* Training on the embedded digits: it learns, it is deterministic, it stops when it should and says why.
   ctest: plain together */
#include "train/train_support.h"
#include "support/device.h"
#include <math.h>

static float *weights_after(rig_options o, int64_t epochs, size_t *count, double *loss) {
    const clef_history *h;
    rig r = rig_open(o);
    clef_fit_options options = rig_fit(&r);
    options.epochs = epochs;
    cr_assert_eq(clef_fit(r.net, &options, &h), CLEF_OK, "%s", clef_error(r.ctx));
    *loss = h->epoch[h->n - 1].loss;
    float *w = rig_weights(&r, count);
    clef_close(r.ctx);
    return w;
}

Test(fit, learns_the_digits) {
    const clef_history *h;
    rig r = rig_open((rig_options){.limit = 1437, .lr = 3e-3, .plain = true});
    clef_fit_options options = rig_fit(&r);
    options.epochs = 6;
    cr_assert_eq(clef_fit(r.net, &options, &h), CLEF_OK, "%s", clef_error(r.ctx));
    cr_assert_eq(h->n, 6);
    cr_assert(h->epoch[5].loss < h->epoch[0].loss / 2, "loss %g, then %g", h->epoch[0].loss, h->epoch[5].loss);
    cr_assert(h->epoch[5].test_accuracy > 0.9, "test accuracy %g", h->epoch[5].test_accuracy);
    cr_assert(h->epoch[5].accuracy > 0.9 && h->epoch[5].accuracy <= 1);
    cr_assert(h->items_per_second > 0 && h->seconds > 0);
    cr_assert_eq(h->epoch[5].epoch, 6);
    cr_assert(!h->stopped_early && !h->interrupted);
    clef_close(r.ctx);
}

Test(fit, the_same_seed_gives_the_same_bits) {
    size_t n, m;
    double loss_a, loss_b;
    float *a = weights_after((rig_options){.dropout = true, .threads = 1}, 2, &n, &loss_a);
    float *b = weights_after((rig_options){.dropout = true, .threads = 3}, 2, &m, &loss_b);
    cr_assert(a && b && n == m);
    cr_assert_eq(memcmp(a, b, n * sizeof *a), 0);
    cr_assert_eq(loss_a, loss_b);
    free(a);
    free(b);
}

/* The meters against a loop written by hand: same batches, same losses, same counts. */
Test(fit, reports_the_mean_loss_and_the_share_of_right_answers) {
    const clef_history *h;
    rig r = rig_open((rig_options){.limit = 128}), s = rig_open((rig_options){.limit = 128});
    clef_fit_options options = rig_fit(&r);
    cr_assert_eq(clef_fit(r.net, &options, &h), CLEF_OK, "%s", clef_error(r.ctx));
    double loss = 0, right = 0, items = 0;
    for (clef_batch b; clef_next(s.train, &b);) {
        int64_t guess[32], truth[32];
        clef_tensor *out = clef_forward(s.net, b.x), *l = clef_cross_entropy(out, b.y, NULL);
        clef_read(clef_argmax(out, 1, false), guess, sizeof guess);
        clef_read(b.y, truth, sizeof truth);
        for (int i = 0; i < 32; i++) right += guess[i] == truth[i];
        loss += clef_item(l) * (double)b.size;
        items += (double)b.size;
        clef_backward(l);
        clef_step(s.optimizer);
    }
    cr_assert_eq(items, 128);
    cr_assert_float_eq(h->epoch[0].loss, loss / items, 1e-5);
    cr_assert_float_eq(h->epoch[0].accuracy, right / items, 1e-6);
    clef_close(r.ctx);
    clef_close(s.ctx);
}

static bool third_epoch_is_enough(void *user, const clef_epoch *epoch) {
    ++*(int *)user;
    return epoch->epoch < 3;
}

Test(fit, a_callback_can_stop) {
    const clef_history *h;
    int calls = 0;
    rig r = rig_open((rig_options){0});
    clef_fit_options options = rig_fit(&r);
    options.epochs = 10;
    options.on_epoch = third_epoch_is_enough;
    options.user = &calls;
    cr_assert_eq(clef_fit(r.net, &options, &h), CLEF_OK);
    cr_assert_eq(h->n, 3);
    cr_assert_eq(calls, 3);
    clef_close(r.ctx);
}

/* With a rate that is far too high the first epoch is the best one: its weights come back. */
Test(fit, early_stop_restores_the_best_weights) {
    const clef_history *h;
    rig r = rig_open((rig_options){.lr = 0.6});
    clef_fit_options options = rig_fit(&r);
    options.epochs = 60;
    options.early_stop_patience = 2;
    cr_assert_eq(clef_fit(r.net, &options, &h), CLEF_OK, "%s", clef_error(r.ctx));
    cr_assert(h->stopped_early);
    cr_assert(h->n < 60);
    double best = INFINITY;
    for (int i = 0; i < h->n; i++) best = fmin(best, h->epoch[i].test_loss);
    cr_assert_eq(best, h->epoch[h->n - 3].test_loss, "patience counts from the best epoch");
    clef_evaluation_result e;
    cr_assert_eq(clef_evaluate(r.net, r.test, NULL, NULL, &e), CLEF_OK);
    cr_assert_eq(e.loss, best);
    clef_close(r.ctx);
}

static clef_tensor *root_of_negative(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    (void)user;
    return clef_sqrt(clef_add_scalar(x, -1e4));
}

Test(fit, a_loss_that_is_no_number_names_the_layer) {
    rig r = rig_open((rig_options){0});
    clef_module *inner = clef_sequential(
        r.ctx, CLEF_LAYERS(clef_nn_linear(r.ctx, 64, 16, NULL), clef_module_new(r.ctx, "root", root_of_negative, NULL)));
    clef_module *net = clef_sequential(r.ctx, CLEF_LAYERS(clef_nn_flatten(r.ctx), inner, clef_nn_linear(r.ctx, 16, 10, NULL)));
    clef_fit_options options = rig_fit(&r);
    options.optimizer = clef_sgd(net, &(clef_sgd_options){.lr = 0.1});
    cr_assert_eq(clef_fit(net, &options, NULL), CLEF_INVALID);
    const char *line = clef_error(r.ctx);
    cr_assert(strstr(line, "epoch 1, batch 1 "), "%s", line);
    cr_assert(strstr(line, "1.1 (root)"), "%s", line);
    clef_close(r.ctx);
}

/* Through every kind of module, not only sequential ones: the innermost one by its dotted name. */
Test(fit, the_bad_layer_is_named_inside_other_modules) {
    rig r = rig_open((rig_options){0});
    clef_module *body = clef_sequential(
        r.ctx, CLEF_LAYERS(clef_nn_linear(r.ctx, 64, 64, NULL), clef_nn_relu(r.ctx), clef_nn_linear(r.ctx, 64, 64, NULL)));
    clef_module *net = clef_sequential(
        r.ctx, CLEF_LAYERS(clef_nn_flatten(r.ctx), clef_nn_residual(r.ctx, body, NULL, true), clef_nn_linear(r.ctx, 64, 10, NULL)));
    clef_fit_options options = rig_fit(&r);
    options.optimizer = clef_sgd(net, &(clef_sgd_options){.lr = 0.1});
    cr_assert_eq(clef_init_constant(clef_parameter(net, "1.body.2.bias"), NAN), CLEF_OK, "%s", clef_error(r.ctx));
    cr_assert_eq(clef_fit(net, &options, NULL), CLEF_INVALID);
    cr_assert(strstr(clef_error(r.ctx), "first bad layer: 1.body.2 (linear), its bias is not finite"), "%s", clef_error(r.ctx));
    clef_close(r.ctx);
}

/* The weights after one epoch of n images without a bad one. */
static float *weights_without_a_bad_one(bool sgd, const float *x, const int64_t *y, int64_t n, size_t *count) {
    rig r = rig_open((rig_options){.sgd = sgd});
    clef_fit_options options = rig_fit(&r);
    options.test = NULL;
    options.train = clef_loader_open(clef_dataset_arrays(r.ctx, x, CLEF_SHAPE(1, 8, 8), y, n), &(clef_loader_options){.batch = 32});
    cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_OK, "%s", clef_error(r.ctx));
    float *w = rig_weights(&r, count);
    clef_close(r.ctx);
    return w;
}

/* One bad pixel in the whole training set: the batch that holds it is named, and the weights stay what they were before it, whatever
   momentum an optimizer has. */
static void expect_spared(bool sgd) {
    static float x[320 * 64];
    static int64_t y[320];
    rig r = rig_open((rig_options){.sgd = sgd});
    for (int i = 0; i < 320 * 64; i++) x[i] = (float)(i % 7) / 7;
    for (int i = 0; i < 320; i++) y[i] = i % 10;
    size_t m = 0;
    float *before = weights_without_a_bad_one(sgd, x, y, 96, &m);
    x[100 * 64 + 3] = NAN;
    clef_dataset *data = clef_dataset_arrays(r.ctx, x, CLEF_SHAPE(1, 8, 8), y, 320);
    clef_fit_options options = rig_fit(&r);
    options.test = NULL;
    options.train = clef_loader_open(data, &(clef_loader_options){.batch = 32});
    options.epochs = 3;
    cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_INVALID);
    cr_assert(strstr(clef_error(r.ctx), "epoch 1, batch 4 "), "%s", clef_error(r.ctx));
    cr_assert(strstr(clef_error(r.ctx), "data"), "%s", clef_error(r.ctx));
    size_t n = 0;
    clef_clear_error(r.ctx);
    float *w = rig_weights(&r, &n);
    cr_assert(w);
    cr_assert_eq(n, m);
    for (size_t i = 0; i < n; i++) cr_assert_eq(w[i], before[i], "%zu: %.9g, not %.9g", i, w[i], before[i]);
    free(w), free(before);
    clef_close(r.ctx);
}
/* Also where the program has looked at the first batch itself. */
Test(fit, bad_data_is_named_behind_a_batch_that_was_taken) {
    static float x[320 * 64];
    static int64_t y[320];
    rig r = rig_open((rig_options){0});
    x[100 * 64 + 3] = NAN;
    clef_dataset *data = clef_dataset_arrays(r.ctx, x, CLEF_SHAPE(1, 8, 8), y, 320);
    clef_fit_options options = rig_fit(&r);
    options.test = NULL;
    options.train = clef_loader_open(data, &(clef_loader_options){.batch = 32});
    clef_batch first;
    cr_assert(clef_next(options.train, &first));
    cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_INVALID);
    cr_expect(strstr(clef_error(r.ctx), "epoch 1, batch 4 ") && strstr(clef_error(r.ctx), "look at the data"), "%s",
              clef_error(r.ctx));
    clef_close(r.ctx);
}

Test(fit, bad_data_is_named_and_spares_the_weights) {
    expect_spared(false);
    expect_spared(true);
}

/* A plateau lowers the rate by what epochs say, also where it is asked after every step. */
Test(fit, a_plateau_may_be_asked_per_step) {
    rig r = rig_open((rig_options){.lr = 1e-12});
    r.schedule =
        clef_schedule_new(r.optimizer, &(clef_schedule_options){.kind = CLEF_SCHEDULE_PLATEAU, .patience = 1, .gamma = 0.5});
    clef_fit_options options = rig_fit(&r);
    options.schedule_per_step = true;
    options.epochs = 6;
    cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_OK, "%s", clef_error(r.ctx));
    cr_expect(clef_learning_rate(r.optimizer) < 0.6e-12, "%g", clef_learning_rate(r.optimizer));
    clef_close(r.ctx);
}

Test(fit, accumulated_small_batches_equal_one_large_batch) {
    size_t n, m;
    float *w[2];
    for (int small = 0; small < 2; small++) {
        rig r = rig_open((rig_options){.sgd = true, .lr = 0.1});
        clef_fit_options options = rig_fit(&r);
        clef_dataset *data = clef_dataset_take(clef_digits(r.ctx, CLEF_TRAIN), 256);
        options.test = NULL;
        options.train = clef_loader_open(data, &(clef_loader_options){.batch = small ? 16 : 64});
        options.accumulate = small ? 4 : 1;
        cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_OK, "%s", clef_error(r.ctx));
        cr_assert_eq(clef_optimizer_steps(r.optimizer), 4);
        w[small] = rig_weights(&r, small ? &m : &n);
        clef_close(r.ctx);
    }
    cr_assert(w[0] && w[1] && n == m);
    for (size_t i = 0; i < n; i++) cr_assert_float_eq(w[0][i], w[1][i], 1e-5);
    free(w[0]);
    free(w[1]);
}

Test(fit, writes_a_csv_line_per_epoch) {
    char dir[64], path[128], line[512];
    rig r = rig_open((rig_options){0});
    clef_fit_options options = rig_fit(&r);
    cr_assert(fresh_directory(dir));
    snprintf(path, sizeof path, "%s/log.csv", dir);
    options.csv = path;
    options.epochs = 3;
    cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_OK, "%s", clef_error(r.ctx));
    FILE *file = fopen(path, "r");
    cr_assert(file && fgets(line, sizeof line, file));
    cr_assert(!strncmp(line, "epoch,loss,accuracy,test_loss,", 30));
    for (int epoch = 1; epoch <= 3; epoch++) {
        cr_assert(fgets(line, sizeof line, file));
        cr_assert_eq(atoi(line), epoch);
        int commas = 0;
        for (char *p = line; *p; p++) commas += *p == ',';
        cr_assert_eq(commas, 7);
    }
    cr_assert(!fgets(line, sizeof line, file));
    fclose(file);
    clef_close(r.ctx);
    remove_directory(dir);
}

Test(fit, wrong_options_are_one_clear_line) {
    rig r = rig_open((rig_options){0}), other = rig_open((rig_options){0});
    clef_fit_options options = rig_fit(&r);
    options.resume = true;
    cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_INVALID);
    cr_assert(strstr(clef_error(r.ctx), "checkpoint_dir"));
    clef_clear_error(r.ctx);
    options = rig_fit(&other);
    cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_INVALID);
    cr_assert(strstr(clef_error(r.ctx), "different contexts"));
    clef_clear_error(r.ctx);
    cr_assert_eq(clef_fit(r.net, &(clef_fit_options){.train = r.train}, NULL), CLEF_INVALID);
    clef_clear_error(r.ctx);
    options = rig_fit(&r);
    options.csv = "/dev/null/none/log.csv";
    cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_IO);
    cr_assert(strstr(clef_error(r.ctx), "/dev/null/none/log.csv"));
    clef_close(other.ctx);
    clef_close(r.ctx);
}
