/* clef_fit with averages of the weights: kept, tested, saved and resumed.
   ctest: plain together */
#include "train/train_support.h"
#include "support/device.h"
#include <math.h>

static const rig_options kind = {.dropout = true, .scheduled = true, .lr = 3e-3};

static float *averages(const clef_averaged *a, size_t *count) {
    float *all = malloc(4096 * sizeof *all);
    *count = 0;
    for (int i = 0; i < clef_averaged_tensors(a); i++) {
        clef_tensor *t = clef_averaged_tensor(a, i).tensor;
        size_t n = (size_t)clef_numel(t);
        cr_assert_eq(clef_read(t, all + *count, n * sizeof *all), CLEF_OK);
        *count += n;
    }
    return all;
}

/* The definition, over the weights after each step of a loop written by hand. */
Test(averages, are_those_of_all_steps) {
    rig r = rig_open(kind), s = rig_open(kind);
    clef_averaged *mean = clef_averaged_new(r.net, &(clef_averaged_options){.decay = 0.8});
    clef_fit_options options = rig_fit(&r);
    options.averaged = mean;
    cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_OK, "%s", clef_error(r.ctx));
    size_t n = 0, m = 0, steps = 0;
    float *got = averages(mean, &n);
    double *want = calloc(n, sizeof *want);
    for (clef_batch b; clef_next(s.train, &b); steps++) {
        clef_backward(clef_cross_entropy(clef_forward(s.net, b.x), b.y, NULL));
        cr_assert_eq(clef_step(s.optimizer), CLEF_OK);
        clef_schedule_tick(s.schedule);
        float *w = rig_weights(&s, &m);
        cr_assert_eq(n, m);
        for (size_t i = 0; i < n; i++) want[i] = steps ? 0.8 * want[i] + 0.2 * (double)w[i] : (double)w[i];
        free(w);
    }
    cr_expect_eq(clef_averaged_updates(mean), (int64_t)steps);
    for (size_t i = 0; i < n; i++) cr_assert_float_eq(got[i], want[i], 1e-5, "%zu: %g, not %g", i, (double)got[i], want[i]);
    free(got), free(want);
    clef_close(r.ctx), clef_close(s.ctx);
}

/* What is tested and saved as the best are the averages; what is trained are the weights, as without them. */
Test(averages, are_tested_and_saved_as_the_best) {
    char dir[64], path[128];
    cr_assert(fresh_directory(dir));
    const clef_history *h;
    rig r = rig_open(kind), s = rig_open(kind), t = rig_open(kind);
    clef_averaged *mean = clef_averaged_new(r.net, &(clef_averaged_options){.decay = 0.9});
    clef_fit_options options = rig_fit(&r), plain = rig_fit(&s);
    options.averaged = mean;
    options.test_averaged = true;
    options.checkpoint_dir = dir;
    options.epochs = plain.epochs = 2;
    cr_assert_eq(clef_fit(r.net, &options, &h), CLEF_OK, "%s", clef_error(r.ctx));
    cr_assert_eq(clef_fit(s.net, &plain, NULL), CLEF_OK);
    cr_assert(h->epoch[1].test_loss < h->epoch[0].test_loss, "the last epoch is the best one");
    size_t n = 0, m = 0;
    float *own = rig_weights(&r, &n), *without = rig_weights(&s, &m), *average = averages(mean, &m);
    cr_assert_eq(memcmp(own, without, n * sizeof *own), 0);
    snprintf(path, sizeof path, "%s/best.ckpt", dir);
    cr_assert_eq(clef_load(t.net, path), CLEF_OK, "%s", clef_error(t.ctx));
    float *best = rig_weights(&t, &m);
    cr_assert_eq(memcmp(best, average, n * sizeof *best), 0);
    snprintf(path, sizeof path, "%s/last.ckpt", dir);
    cr_assert_eq(clef_load(t.net, path), CLEF_OK);
    float *last = rig_weights(&t, &m);
    cr_assert_eq(memcmp(last, own, n * sizeof *last), 0);
    clef_evaluation_result e;
    cr_assert_eq(clef_averaged_use(mean, true), CLEF_OK);
    cr_assert_eq(clef_evaluate(r.net, r.test, NULL, NULL, &e), CLEF_OK);
    cr_expect_float_eq(e.loss, h->epoch[1].test_loss, 1e-6);
    free(own), free(without), free(average), free(best), free(last);
    clef_close(r.ctx), clef_close(s.ctx), clef_close(t.ctx);
    remove_directory(dir);
}

/* The rate grows until nothing gets better: the averages of the best epoch come back. */
Test(averages, of_the_best_epoch_come_back) {
    rig r = rig_open((rig_options){.lr = 1e-2});
    const clef_history *h;
    clef_averaged *mean = clef_averaged_new(r.net, &(clef_averaged_options){.decay = 0.9});
    clef_fit_options options = rig_fit(&r);
    options.averaged = mean;
    options.test_averaged = true;
    options.epochs = 60;
    options.early_stop_patience = 2;
    cr_assert_eq(clef_fit(r.net, &options, &h), CLEF_OK, "%s", clef_error(r.ctx));
    cr_assert(h->stopped_early);
    double best = INFINITY;
    for (int i = 0; i < h->n; i++) best = fmin(best, h->epoch[i].test_loss);
    clef_evaluation_result e;
    cr_assert_eq(clef_evaluate(r.net, r.test, NULL, NULL, &e), CLEF_OK);
    cr_expect_float_eq(e.loss, best, 1e-6);
    clef_close(r.ctx);
}

static clef_status part(const char *dir, int64_t interrupt_after, float **average, size_t *n) {
    rig r = rig_open(kind);
    clef_averaged *mean = clef_averaged_new(r.net, NULL);
    clef_fit_options options = rig_fit(&r);
    stopper s = {.at = interrupt_after};
    options.averaged = mean;
    fit_in_parts(&options, dir, &s);
    clef_status status = clef_fit(r.net, &options, NULL);
    cr_assert(status == CLEF_OK || status == CLEF_INTERRUPTED, "%s", clef_error(r.ctx));
    if (status == CLEF_OK) *average = averages(mean, n);
    clef_close(r.ctx);
    return status;
}

Test(averages, of_a_resumed_run_have_the_same_bits) {
    char dir[64];
    float *whole, *parts;
    size_t n = 0, m = 0;
    cr_assert(fresh_directory(dir));
    cr_assert_eq(part(NULL, 0, &whole, &n), CLEF_OK);
    int times = 0;
    for (clef_status status = CLEF_INTERRUPTED; status == CLEF_INTERRUPTED && times < 40; times++)
        status = part(dir, 1 + times % 3, &parts, &m);
    cr_assert(times > 2 && n == m);
    cr_assert_eq(memcmp(whole, parts, n * sizeof *whole), 0);
    free(whole), free(parts);
    remove_directory(dir);
}

/* The fourth batch holds a NaN: whenever fit notices, averages and their count are those of the steps before. */
Test(averages, count_what_was_taken) {
    for (int accumulate = 1; accumulate <= 2; accumulate++) {
        rig r = rig_open((rig_options){.plain = true});
        clef_averaged *mean = clef_averaged_new(r.net, NULL);
        clef_fit_options options = rig_fit(&r);
        options.train = rig_poisoned(&r, true, POISON_ITEMS);
        options.averaged = mean;
        options.accumulate = accumulate;
        cr_expect_eq(clef_fit(r.net, &options, NULL), CLEF_INVALID);
        cr_expect(strstr(clef_error(r.ctx), "batch 4 is not finite"), "%s", clef_error(r.ctx));
        cr_expect_eq(clef_averaged_updates(mean), POISON_AT / accumulate, "%lld", (long long)clef_averaged_updates(mean));
        clef_close(r.ctx);
    }
}

Test(averages, refusals) {
    rig r = rig_open(kind), s = rig_open(kind);
    clef_fit_options options = rig_fit(&r);
    options.test_averaged = true;
    cr_expect_eq(clef_fit(r.net, &options, NULL), CLEF_INVALID);
    cr_expect_str_eq(clef_error(r.ctx), "fit: test_averaged needs averaged");
    clef_clear_error(r.ctx);
    options.averaged = clef_averaged_new(s.net, NULL);
    cr_expect_eq(clef_fit(r.net, &options, NULL), CLEF_INVALID);
    cr_expect_str_eq(clef_error(r.ctx), "fit: the averages belong to another context");
    clef_clear_error(r.ctx);
    options.averaged = clef_averaged_new(clef_nn_linear(r.ctx, 2, 2, NULL), NULL);
    cr_expect_eq(clef_fit(r.net, &options, NULL), CLEF_INVALID);
    cr_expect_str_eq(clef_error(r.ctx), "fit: the averages are of none of the module's parameters; make them of this module");
    clef_clear_error(r.ctx);
    options = rig_fit(&r);
    options.averaged = clef_averaged_new(r.net, NULL);
    cr_assert_eq(clef_averaged_use(options.averaged, true), CLEF_OK);
    cr_expect_eq(clef_fit(r.net, &options, NULL), CLEF_STATE);
    cr_expect(strstr(clef_error(r.ctx), "fit: the module has the averaged weights"), "%s", clef_error(r.ctx));
    cr_expect_eq(clef_optimizer_steps(r.optimizer), 0);
    clef_close(r.ctx), clef_close(s.ctx);
}

/* ---- ranks ---- */
static float of_rank[2][4096];

static clef_status train(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    clef_dataset *data = clef_dataset_take(clef_digits(ctx, CLEF_TRAIN), 96);
    clef_loader *batches = clef_loader_open(data, &(clef_loader_options){.batch = 32, .shuffle = true, .seed = 5, .group = all});
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, 64, 10, NULL)));
    clef_replicate(net, all);
    clef_optimizer *opt = clef_adam(net, &(clef_adam_options){.lr = 1e-2, .group = all});
    clef_averaged *mean = clef_averaged_new(net, &(clef_averaged_options){.decay = 0.9});
    clef_fit_options o = {.train = batches, .optimizer = opt, .epochs = 2, .averaged = mean, .test_averaged = true};
    clef_status status = clef_fit(net, &o, NULL);
    float *at = of_rank[clef_group_rank(all)];
    for (int i = 0; i < clef_averaged_tensors(mean) && !status; i++) {
        clef_tensor *t = clef_averaged_tensor(mean, i).tensor;
        status = clef_read(t, at, (size_t)clef_numel(t) * sizeof *at);
        at += clef_numel(t);
    }
    return status;
}

Test(averages, have_the_same_bits_on_all_ranks) {
    clef_status status = clef_run_ranks("0/2", train, NULL);
    if (status == CLEF_NO_DEVICE || status == CLEF_UNSUPPORTED) cr_skip_test("%s", clef_error(NULL));
    cr_assert_eq(status, CLEF_OK, "%s", clef_error(NULL));
    cr_expect_neq(of_rank[0][0], 0);
    cr_expect_arr_eq(of_rank[0], of_rank[1], sizeof of_rank[0]);
}
