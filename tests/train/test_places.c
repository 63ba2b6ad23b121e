/* A module on another device than the first, or on two: every optimizer, dropout, batch norm, clipping, fit, evaluation, checkpoints
   and resuming give the bits that they give on one device of the same kind.  Here a CPU in two halves is two devices.
   ctest: cost=60 apart plain */
#include "train/parted_net.h"
#include "train/train_support.h"
#include <time.h>

enum { BATCH = 16, STEPS = 4, RULES = 5 };

static void open_halves(void) {
    ctx = clef_open(&(clef_options){.device = "0/2", .seed = 3});
    if (!ctx) cr_skip_test("no device in two halves here: %s", clef_error(NULL));
}
static void close_halves(void) {
    if (ctx) close_clean(ctx);
}
TestSuite(places, .init = open_halves, .fini = close_halves, .timeout = 300);

static clef_optimizer *new_optimizer(clef_module *net, int rule) {
    switch (rule) {
    case 0: return clef_sgd(net, &(clef_sgd_options){.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-3});
    case 1: return clef_adam(net, &(clef_adam_options){.lr = 0.01, .amsgrad = true});
    case 2: return clef_adamw(net, &(clef_adamw_options){.lr = 0.01});
    case 3: return clef_rmsprop(net, &(clef_rmsprop_options){.lr = 0.01, .momentum = 0.5});
    default: return clef_adagrad(net, &(clef_adagrad_options){.lr = 0.05});
    }
}

static void expect_the_same(clef_module *net, const float *wanted, size_t n, const char *what, int which) {
    size_t m;
    float *got = weights_of(net, &m);
    cr_assert_eq(n, m);
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(got[i], wanted[i], "%s %d: weight %zu is %g, not %g", what, which, i, got[i], wanted[i]);
    free(got);
}

/* STEPS steps by hand with the gradients clipped; the weights after them, for free(). */
static float *trained(place where, int rule, size_t *n) {
    clef_seed(ctx, 7);
    clef_module *net = new_net();
    put(net, where);
    clef_optimizer *opt = new_optimizer(net, rule);
    cr_assert(opt, "%s", clef_error(ctx));
    clef_loader *loader =
        clef_loader_open(clef_digits(ctx, CLEF_TRAIN), &(clef_loader_options){.batch = BATCH, .device = where == SECOND});
    clef_batch b;
    for (int step = 0; step < STEPS && clef_next(loader, &b); step++) {
        cr_assert_eq(clef_tensor_device(b.x), where == SECOND);
        if (where == MOVING && step == STEPS / 2) put(net, BOTH);
        clef_tensor *y = clef_forward(net, b.x);
        cr_assert_eq(clef_backward(clef_cross_entropy(y, clef_to_device(b.y, clef_tensor_device(y)), NULL)), CLEF_OK, "%s",
                     clef_error(ctx));
        cr_assert(clef_clip_grad_norm(net, 0.5), "%s", clef_error(ctx));
        cr_assert_eq(clef_step(opt), CLEF_OK, "rule %d, place %d: %s", rule, where, clef_error(ctx));
    }
    for (int i = 1; i < clef_optimizer_tensors(opt); i++) {
        clef_named_tensor t = clef_optimizer_tensor(opt, i);
        bool head = t.name[0] == 'h';
        cr_assert_eq(clef_tensor_device(t.tensor), where == SECOND || (where != FIRST && !head), "%s", t.name);
    }
    clef_loader_close(loader);
    return weights_of(net, n);
}

Test(places, every_optimizer_steps_anywhere) {
    for (int rule = 0; rule < RULES; rule++) {
        size_t n, m;
        float *wanted = trained(FIRST, rule, &n);
        for (place where = SECOND; where < PLACES; where++) {
            float *got = trained(where, rule, &m);
            cr_assert_eq(n, m);
            for (size_t i = 0; i < n; i++)
                cr_assert_eq(got[i], wanted[i], "rule %d, place %d: weight %zu is %g, not %g", rule, where, i, got[i], wanted[i]);
            free(got);
        }
        free(wanted);
    }
}

/* ---- fit ---- */

typedef struct outcome {
    double loss, accuracy;
    float *weights;
    size_t n;
} outcome;

static clef_fit_options fit_options(clef_module *net) {
    return (clef_fit_options){
        .train = clef_loader_open(clef_dataset_take(clef_digits(ctx, CLEF_TRAIN), 160),
                                  &(clef_loader_options){.batch = BATCH, .shuffle = true, .seed = 5}),
        .test = clef_loader_open(clef_dataset_take(clef_digits(ctx, CLEF_TEST), 80), &(clef_loader_options){.batch = 40}),
        .optimizer = clef_adam(net, &(clef_adam_options){.lr = 5e-3}),
        .epochs = 2,
        .accumulate = 2,
        .clip_norm = 1,
    };
}

/* The meters are read about every quarter of a second: after every batch, if this is what their reader takes. */
static bool take_your_time(void *user, const clef_progress *progress) {
    (void)user, (void)progress;
    nanosleep(&(struct timespec){.tv_nsec = 260000000}, NULL);
    return true;
}
static bool slowly;

/* With a folder: an epoch, then a second from the checkpoint, by a net that was made anew elsewhere. */
static outcome fitted(place where, place then, const char *folder) {
    const clef_history *h;
    for (int part = folder ? 0 : 1;; part++) {
        clef_seed(ctx, 9);
        clef_module *net = new_net();
        put(net, part ? then : where);
        clef_fit_options o = fit_options(net);
        o.checkpoint_dir = folder;
        o.on_progress = slowly ? take_your_time : NULL;
        o.resume = part > 0 && folder;
        if (part == 0) o.epochs = 1;
        cr_assert_eq(clef_fit(net, &o, &h), CLEF_OK, "%s", clef_error(ctx));
        if (part == 0) continue;
        put(net, then);
        outcome r = {.loss = h->epoch[h->n - 1].loss, .accuracy = h->epoch[h->n - 1].test_accuracy};
        r.weights = weights_of(net, &r.n);
        return r;
    }
}

static void expect_equal(const outcome *a, outcome b, const char *what) {
    cr_assert_eq(a->loss, b.loss, "%s: loss %.9g, not %.9g", what, b.loss, a->loss);
    cr_assert_eq(a->accuracy, b.accuracy, "%s: accuracy %g, not %g", what, b.accuracy, a->accuracy);
    cr_assert_eq(a->n, b.n);
    for (size_t i = 0; i < b.n; i++)
        cr_assert_eq(a->weights[i], b.weights[i], "%s: weight %zu is %.9g, not %.9g", what, i, b.weights[i], a->weights[i]);
    free(b.weights);
}

Test(places, fit_evaluates_and_resumes_anywhere) {
    char path[64];
    outcome wanted = fitted(FIRST, FIRST, NULL);
    expect_equal(&wanted, fitted(SECOND, SECOND, NULL), "second");
    expect_equal(&wanted, fitted(BOTH, BOTH, NULL), "both");
    for (place then = FIRST; then <= BOTH; then++) {
        fresh_directory(path);
        expect_equal(&wanted, fitted(then == FIRST ? BOTH : FIRST, then, path), "resumed");
        remove_directory(path);
    }
    free(wanted.weights);
}

Test(places, when_the_meters_are_read_changes_no_bit) {
    outcome wanted = fitted(FIRST, FIRST, NULL);
    slowly = true;
    expect_equal(&wanted, fitted(FIRST, FIRST, NULL), "read after every batch");
    slowly = false;
    free(wanted.weights);
}

/* ---- moving ---- */

Test(places, gradients_move_with_their_parameters) {
    size_t n;
    clef_module *net = new_net();
    clef_tensor *w = clef_parameter(net, "tail.1.weight"), *x = clef_randn(ctx, CLEF_SHAPE(2, 1, 8, 8));
    cr_assert_eq(clef_backward(clef_sum(clef_square(clef_forward(net, x)), NULL, 0, false)), CLEF_OK);
    float *before = weights_of(net, &n), *gradient = values(clef_grad_of(w));
    put(net, BOTH);
    cr_assert_eq(clef_tensor_device(clef_grad_of(w)), 1);
    cr_assert(clef_requires_grad(w));
    float *after = values(clef_grad_of(w));
    cr_assert_eq(memcmp(gradient, after, (size_t)clef_numel(w) * sizeof *after), 0);
    expect_the_same(net, before, n, "moved", 0);
    put(net, FIRST);
    expect_the_same(net, before, n, "moved back", 0);
    free(before);
    free(gradient);
    free(after);
}

Test(places, wrong_devices_are_refused_and_nothing_moves) {
    clef_module *net = new_net();
    for (int device = -1; device <= 2; device += 3) {
        cr_assert_eq(clef_module_to(net, device), CLEF_INVALID);
        cr_assert(strstr(clef_error(ctx), "device"), "%s", clef_error(ctx));
        clef_clear_error(ctx);
        cr_assert_null(clef_loader_open(clef_digits(ctx, CLEF_TEST), &(clef_loader_options){.device = device}));
        cr_assert(strstr(clef_error(ctx), "no such device"), "%s", clef_error(ctx));
        clef_clear_error(ctx);
        cr_assert_null(clef_from_host_on(ctx, device, CLEF_SCALAR, CLEF_F32, &(float){1}));
        clef_clear_error(ctx);
    }
    put(net, FIRST);
}

Test(places, like_a_tensor_there) {
    clef_tensor *x = clef_from_host_on(ctx, 1, CLEF_SHAPE(3, 5), CLEF_F32, (float[15]){0});
    cr_assert_eq(clef_tensor_device(x), 1);
    clef_seed(ctx, 1);
    clef_tensor *here = clef_randn(ctx, CLEF_SHAPE(3, 5));
    clef_seed(ctx, 1);
    clef_tensor *there = clef_randn_like(x),
                *sum = clef_add(clef_add(clef_add(clef_zeros_like(x), clef_ones_like(x)), clef_full_like(x, 2)), there);
    cr_assert_eq(clef_tensor_device(sum), 1);
    float *a = values(here), *b = values(sum);
    for (int i = 0; i < 15; i++) cr_assert_eq(a[i] + 3, b[i]);
    free(a);
    free(b);
    cr_assert_null(clef_rand_like(clef_to(x, CLEF_I32)));
    cr_assert_eq(clef_error_status(ctx), CLEF_DTYPE);
    clef_clear_error(ctx);
}
