/* Fit and evaluate with several inputs, outputs and targets: against a loop written by hand, resumed, and what is refused.
   ctest: together plain */
#include "train/train_support.h"
#include "support/device.h"

enum { ITEMS = 96, WORDS = 4, ENTRIES = 7, BATCH = 16, STEPS = 2 * ITEMS / BATCH };

/* Two outputs of the words' mean embedding and the floats: two classes, and a number. */
static clef_status call_net(clef_module *module, clef_tensor *const *in, int n, clef_tensor **out, int m, void *user) {
    (void)user, (void)n, (void)m;
    clef_tensor *words = clef_mean(clef_forward(clef_module_child(module, "words"), in[0]), (int[]){1}, 1, false);
    clef_tensor *both = clef_concat((clef_tensor *[]){words, in[1]}, 2, 1);
    out[0] = clef_forward(clef_module_child(module, "class"), both);
    out[1] = clef_forward(clef_module_child(module, "number"), both);
    return CLEF_OK;
}

static clef_tensor *both_losses(clef_tensor *const *out, int n_outputs, clef_tensor *const *target, int n_targets, void *user) {
    cr_assert(n_outputs == 2 && n_targets == 2 && user);
    ++*(int *)user;
    return clef_add(clef_cross_entropy(out[0], target[0], NULL), clef_mse_loss(out[1], target[1], NULL));
}

typedef struct several {
    clef_context *ctx;
    clef_module *net;
    clef_optimizer *optimizer;
    clef_loader *train, *test;
} several;

static several open_several(int workers) {
    several s = {.ctx = open_seeded(21)};
    clef_context *ctx = s.ctx;
    static int64_t words[ITEMS * WORDS], label[ITEMS];
    static float extra[ITEMS * 3], number[ITEMS];
    for (int i = 0; i < ITEMS; i++) {
        for (int k = 0; k < WORDS; k++) words[i * WORDS + k] = (i * 5 + k * k) % ENTRIES;
        for (int k = 0; k < 3; k++) extra[i * 3 + k] = noise((uint64_t)(i * 3 + k), 5);
        label[i] = i % 2;
        number[i] = (float)words[i * WORDS] / ENTRIES + extra[i * 3];
    }
    clef_field field[] = {{"words", CLEF_SHAPE(WORDS), CLEF_I64, words, false, 0},
                          {"extra", CLEF_SHAPE(3), CLEF_F32, extra, false, 0},
                          {"label", CLEF_SCALAR, CLEF_I64, label, true, 0},
                          {"number", CLEF_SHAPE(1), CLEF_F32, number, true, 0}};
    clef_dataset *data = clef_dataset_fields(ctx, field, 4, ITEMS);
    s.train = clef_loader_open(data, &(clef_loader_options){.batch = BATCH, .shuffle = true, .seed = 3, .workers = workers});
    s.test = clef_loader_open(data, &(clef_loader_options){.batch = 32});
    s.net = clef_module_new_call(ctx, "two", call_net, 2, 2, NULL);
    clef_module_add(s.net, "words", clef_nn_embedding(ctx, ENTRIES, 6));
    clef_module_add(s.net, "number", clef_nn_linear(ctx, 9, 1, NULL));
    clef_module_add(s.net, "class", clef_nn_linear(ctx, 9, 2, NULL));
    s.optimizer = clef_adam(s.net, &(clef_adam_options){.lr = 0.01});
    return s;
}

enum { WEIGHTS = ENTRIES * 6 + 9 + 1 + 18 + 2 };
static void read_weights(const several *s, float out[WEIGHTS]) {
    for (int i = 0, at = 0; i < clef_module_tensors(s->net); i++) {
        clef_tensor *t = clef_module_tensor(s->net, i).tensor;
        cr_assert_eq(clef_read(t, out + at, (size_t)clef_numel(t) * sizeof *out), CLEF_OK, "%s", clef_error(s->ctx));
        at += (int)clef_numel(t);
    }
}

Test(several, fit_is_the_loop_written_by_hand) {
    int calls = 0;
    float fitted[WEIGHTS], by_hand[WEIGHTS];
    double sum = 0;
    const clef_history *h;
    several s = open_several(3), t = open_several(1);
    clef_fit_options o = {
        .train = s.train, .test = s.test, .optimizer = s.optimizer, .epochs = 2, .loss_call = both_losses, .user = &calls};
    cr_assert_eq(clef_fit(s.net, &o, &h), CLEF_OK, "%s", clef_error(s.ctx));
    read_weights(&s, fitted);
    cr_expect_eq(calls, STEPS + 2 * 3);
    for (int epoch = 0; epoch < 2; epoch++) {
        sum = 0;
        for (clef_batch b; clef_next(t.train, &b);) {
            clef_tensor *out[2];
            cr_assert_eq(clef_call(t.net, b.inputs, b.n_inputs, out, 2), CLEF_OK, "%s", clef_error(t.ctx));
            clef_tensor *loss = both_losses(out, 2, b.targets, b.n_targets, &calls);
            clef_backward(loss);
            clef_step(t.optimizer);
            sum += clef_item(loss) / (ITEMS / BATCH);
        }
    }
    read_weights(&t, by_hand);
    cr_expect_arr_eq(fitted, by_hand, sizeof fitted);
    cr_expect_float_eq(h->epoch[1].loss, sum, 1e-6);
    cr_expect(isnan(h->epoch[1].accuracy) && isnan(h->epoch[1].test_accuracy), "two targets have no accuracy");
    clef_evaluation_result r;
    clef_evaluate_options e = {.loss_call = both_losses, .user = &calls};
    cr_assert_eq(clef_evaluate_with(s.net, s.test, &e, &r), CLEF_OK, "%s", clef_error(s.ctx));
    cr_expect(r.items == ITEMS && isnan(r.accuracy) && !r.confusion);
    cr_expect_eq(r.loss, h->epoch[1].test_loss);
    clef_close(s.ctx);
    clef_close(t.ctx);
}

static bool stop_after_one(void *user, const clef_epoch *epoch) { return (void)user, (void)epoch, false; }

Test(several, a_resumed_run_ends_with_the_same_bits) {
    int calls = 0;
    char dir[64];
    float whole[WEIGHTS], resumed[WEIGHTS];
    several s = open_several(1);
    clef_fit_options o = {.train = s.train, .optimizer = s.optimizer, .epochs = 2, .loss_call = both_losses, .user = &calls};
    cr_assert_eq(clef_fit(s.net, &o, NULL), CLEF_OK, "%s", clef_error(s.ctx));
    read_weights(&s, whole);
    clef_close(s.ctx);
    o.checkpoint_dir = fresh_directory(dir);
    o.resume = true;
    for (int part = 0; part < 2; part++) {
        s = open_several(2);
        o.train = s.train, o.optimizer = s.optimizer;
        o.on_epoch = part ? NULL : stop_after_one;
        cr_assert_eq(clef_fit(s.net, &o, NULL), CLEF_OK, "%s", clef_error(s.ctx));
        read_weights(&s, resumed);
        cr_expect_eq(memcmp(whole, resumed, sizeof whole) == 0, part == 1);
        clef_close(s.ctx);
    }
    remove_directory(dir);
}

/* One output of the two: the class; then there is accuracy. */
static clef_status call_class(clef_module *module, clef_tensor *const *in, int n, clef_tensor **out, int m, void *user) {
    clef_tensor *both[2];
    clef_status status = call_net(module, in, n, both, 2, user);
    out[m - 1] = both[0];
    return status;
}

Test(several, inputs_with_one_output_have_accuracy) {
    several s = open_several(1);
    clef_module *one = clef_module_new_call(s.ctx, "one", call_class, 2, 0, NULL);
    static const char *const names[] = {"words", "number", "class"};
    for (int i = 0; i < 3; i++) clef_module_add(one, names[i], clef_module_child(s.net, names[i]));
    int64_t words[8 * WORDS] = {0}, label[8] = {0, 1, 0, 1, 1, 1, 0, 0};
    float extra[8 * 3] = {0};
    clef_field field[] = {{"words", CLEF_SHAPE(WORDS), CLEF_I64, words, false, 0},
                          {"extra", CLEF_SHAPE(3), CLEF_F32, extra, false, 0},
                          {"label", CLEF_SCALAR, CLEF_I64, label, true, 0}};
    clef_loader *data = clef_loader_open(clef_dataset_fields(s.ctx, field, 3, 8), NULL);
    clef_evaluation_result r;
    cr_assert_eq(clef_evaluate(one, data, NULL, NULL, &r), CLEF_OK, "%s", clef_error(s.ctx));
    cr_expect_eq(r.accuracy, 0.5, "all items are the same, four of each class");
    cr_expect(r.confusion && r.confusion[0] + r.confusion[2] == (r.confusion[0] ? 8 : 0));
    const clef_history *h;
    cr_assert_eq(clef_fit(one, &(clef_fit_options){.train = data, .optimizer = s.optimizer}, &h), CLEF_OK, "%s", clef_error(s.ctx));
    cr_expect_eq(h->epoch[0].accuracy, 0.5);
    clef_close(s.ctx);
}

static clef_tensor *no_loss(clef_tensor *const *out, int n_outputs, clef_tensor *const *target, int n_targets, void *user) {
    (void)out, (void)n_outputs, (void)target, (void)n_targets, (void)user;
    return NULL;
}

static clef_tensor *bad_loss(clef_tensor *const *out, int n_outputs, clef_tensor *const *target, int n_targets, void *user) {
    (void)n_outputs, (void)target, (void)n_targets, (void)user;
    return clef_log(clef_mul_scalar(clef_abs(out[0]), -1));
}

Test(several, refusals) {
    several s = open_several(1);
    clef_evaluation_result r;
    clef_fit_options o = {.train = s.train, .optimizer = s.optimizer};
    cr_expect_eq(clef_fit(s.net, &o, NULL), CLEF_INVALID);
    expect_error(s.ctx, CLEF_INVALID, "fit: a loss takes one output and one target, not 2 and 2; give loss_call");
    cr_expect_eq(clef_evaluate(s.net, s.test, clef_mse_loss, NULL, &r), CLEF_INVALID);
    expect_error(s.ctx, CLEF_INVALID, "evaluate: a loss takes one output");
    o.loss_call = no_loss;
    cr_expect_eq(clef_fit(s.net, &o, NULL), CLEF_INVALID);
    expect_error(s.ctx, CLEF_INVALID, "fit: the loss function gave no tensor");
    o.n_outputs = 3;
    cr_expect_eq(clef_fit(s.net, &o, NULL), CLEF_INVALID);
    expect_error(s.ctx, CLEF_INVALID, "call: the two takes 2 inputs and gives 2 outputs, not 2 and 3");
    o.n_outputs = -1;
    cr_expect_eq(clef_fit(s.net, &o, NULL), CLEF_INVALID);
    expect_error(s.ctx, CLEF_INVALID, "fit: n_outputs is -1");
    o.n_outputs = 0, o.loss = clef_mse_loss;
    cr_expect_eq(clef_fit(s.net, &o, NULL), CLEF_INVALID);
    expect_error(s.ctx, CLEF_INVALID, "fit: both loss and loss_call; give one");
    o.loss = NULL, o.loss_call = bad_loss;
    cr_expect_eq(clef_fit(s.net, &o, NULL), CLEF_INVALID);
    expect_error(s.ctx, CLEF_INVALID, "every layer's output is finite, the loss function's is not");
    clef_write(clef_parameter(s.net, "class.bias"), (float[]){NAN, 0}, 8);
    int calls = 0;
    o.loss_call = both_losses, o.user = &calls;
    cr_expect_eq(clef_fit(s.net, &o, NULL), CLEF_INVALID);
    expect_error(s.ctx, CLEF_INVALID, "first bad layer: class (linear), its bias is not finite");
    clef_close(s.ctx);
}

/* A callback freezes a layer and gives the net another head in the middle of a run.  The optimizer does not know the new one: it
   stays as it was made, and has no gradient in the end; the best weights go back where they came from. */
typedef struct surgery {
    clef_module *net;
    float head[12], body[8], bias[4];
} surgery;

static bool operate(void *user, const clef_epoch *epoch) {
    surgery *s = user;
    if (epoch->epoch != 2) return true;
    clef_module_replace(s->net, "1", clef_nn_linear(clef_module_context(s->net), 4, 3, NULL));
    clef_require_grad(clef_parameter(s->net, "0.bias"), false);
    clef_read(clef_parameter(s->net, "1.weight"), s->head, sizeof s->head);
    clef_read(clef_parameter(s->net, "0.weight"), s->body, sizeof s->body);
    clef_read(clef_parameter(s->net, "0.bias"), s->bias, sizeof s->bias);
    return true;
}

Test(several, a_child_replaced_while_training) {
    for (int patience = 0; patience <= 2; patience += 2) {
        clef_context *ctx = open_seeded(2);
        static float x[32 * 2];
        static int64_t y[32];
        for (int i = 0; i < 32; i++) x[2 * i] = noise((uint64_t)i, 1), x[2 * i + 1] = noise((uint64_t)i, 2), y[i] = i % 2;
        clef_loader *data = clef_loader_open(clef_dataset_arrays(ctx, x, CLEF_SHAPE(2), y, 32), NULL);
        clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 2, 4, NULL), clef_nn_linear(ctx, 4, 2, NULL)));
        clef_optimizer *sgd = clef_sgd(net, &(clef_sgd_options){.lr = patience ? 0.1 : 10});
        clef_write(clef_parameter(net, "1.bias"), (float[]){40, 0}, 8); /* so bad that every other head is better */
        surgery s = {.net = net};
        clef_fit_options o = {.train = data,
                              .test = data,
                              .optimizer = sgd,
                              .epochs = patience ? 30 : 6,
                              .early_stop_patience = patience,
                              .on_epoch = operate,
                              .user = &s};
        const clef_history *history;
        cr_assert_eq(clef_fit(net, &o, &history), CLEF_OK, "%s", clef_error(ctx));
        expect_shape(clef_parameter(net, "1.weight"), CLEF_SHAPE(3, 4));
        cr_expect_gt(history->n, 5, "epochs after the operation are better, and remembered");
        float head[12], body[8], bias[4];
        clef_read(clef_parameter(net, "1.weight"), head, sizeof head);
        clef_read(clef_parameter(net, "0.weight"), body, sizeof body);
        clef_read(clef_parameter(net, "0.bias"), bias, sizeof bias);
        cr_expect_arr_eq(head, s.head, sizeof head);
        cr_expect_arr_eq(bias, s.bias, sizeof bias);
        cr_expect_neq(memcmp(body, s.body, sizeof body), 0, "what the optimizer has goes on");
        cr_expect_null(clef_grad_of(clef_parameter(net, "1.weight")), "nothing adds up where nothing is trained");
        clef_close(ctx);
    }
}
