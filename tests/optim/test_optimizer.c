/* What all optimizers share: state and its round trip, accumulation, clipping, plans that stay, refusals.
   ctest: cost=15 plain together */
#include "support/device.h"
#include "clef/pointwise.h"
#include "graph/graph.h"

static clef_context *ctx;

static void open_context(void) { ctx = open_seeded(5); }
static void close_context(void) { clef_close(ctx); }
TestSuite(optimizer, .init = open_context, .fini = close_context);

static clef_module *small_net(void) {
    clef_seed(ctx, 21);
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 5, 7, NULL), clef_nn_tanh(ctx), clef_nn_linear(ctx, 7, 3, NULL)));
}

static clef_tensor *loss_of(clef_module *m, int first, int n) {
    clef_tensor *x = clef_slice(noise_tensor(ctx, CLEF_SHAPE(12, 5), 1), 0, first, first + n, 1);
    clef_tensor *y = clef_slice(noise_tensor(ctx, CLEF_SHAPE(12, 3), 2), 0, first, first + n, 1);
    return clef_mse_loss(clef_forward(m, x), y, &(clef_loss_options){.reduction = CLEF_REDUCE_SUM});
}

static void train(clef_module *m, clef_optimizer *opt, int steps) {
    for (int i = 0; i < steps; i++) {
        cr_assert_eq(clef_backward(loss_of(m, i % 3 * 4, 4)), CLEF_OK);
        cr_assert_eq(clef_step(opt), CLEF_OK, "%s", clef_error(ctx));
    }
}

/* All bytes of a module's and an optimizer's tensors. */
typedef struct snapshot {
    int n;
    size_t bytes[40];
    char *data[40];
} snapshot;

static clef_tensor *tensor_at(clef_module *m, clef_optimizer *opt, int i) {
    int n = clef_module_tensors(m);
    return i < n ? clef_module_tensor(m, i).tensor : clef_optimizer_tensor(opt, i - n).tensor;
}

static snapshot take(clef_module *m, clef_optimizer *opt) {
    snapshot s = {.n = clef_module_tensors(m) + (opt ? clef_optimizer_tensors(opt) : 0)};
    for (int i = 0; i < s.n; i++) {
        clef_tensor *t = tensor_at(m, opt, i);
        s.bytes[i] = (size_t)clef_numel(t) * clef_dtype_size(clef_tensor_dtype(t));
        s.data[i] = malloc(s.bytes[i]);
        cr_assert_eq(clef_read(t, s.data[i], s.bytes[i]), CLEF_OK);
    }
    return s;
}

static void put_back(const snapshot *s, clef_module *m, clef_optimizer *opt) {
    for (int i = 0; i < s->n; i++) cr_assert_eq(clef_write(tensor_at(m, opt, i), s->data[i], s->bytes[i]), CLEF_OK);
}

static void expect_same(const snapshot *a, const snapshot *b, const char *what) {
    cr_assert_eq(a->n, b->n);
    for (int i = 0; i < a->n; i++) cr_expect_arr_eq(a->data[i], b->data[i], a->bytes[i], "%s: tensor %d differs", what, i);
}

static void drop(snapshot *s) {
    for (int i = 0; i < s->n; i++) free(s->data[i]);
}

static clef_optimizer *make(clef_module *m, int which) {
    switch (which) {
    case 0: return clef_sgd(m, &(clef_sgd_options){.lr = 0.01, .momentum = 0.9, .dampening = 0.1});
    case 1: return clef_adam(m, &(clef_adam_options){.lr = 0.01, .amsgrad = true});
    case 2: return clef_rmsprop(m, &(clef_rmsprop_options){.lr = 0.01, .momentum = 0.5, .centered = true});
    default: return clef_adagrad(m, &(clef_adagrad_options){.lr = 0.01, .lr_decay = 0.1});
    }
}

/* Five steps, then five more: the same bits as five steps, saved into a fresh module and optimizer, then five more. */
Test(optimizer, state_round_trip_continues_identically) {
    for (int which = 0; which < 4; which++) {
        clef_module *a = small_net();
        clef_optimizer *first = make(a, which);
        train(a, first, 5);
        clef_set_learning_rate(first, 0.02);
        snapshot middle = take(a, first);
        clef_optimizer_state state = clef_optimizer_get(first);
        cr_expect_eq(state.steps, 5);
        train(a, first, 5);
        snapshot end = take(a, first);

        clef_module *b = small_net();
        clef_optimizer *second = make(b, which);
        put_back(&middle, b, second);
        clef_optimizer_set(second, state);
        cr_expect_eq(clef_learning_rate(second), 0.02);
        train(b, second, 5);
        snapshot again = take(b, second);
        expect_same(&end, &again, "continued");
        cr_expect_eq(clef_optimizer_steps(second), 10);
        drop(&middle), drop(&end), drop(&again);
    }
}

/* Back to what was saved, by handles that were taken before: the counts, too. */
Test(optimizer, a_run_goes_back) {
    clef_module *m = small_net();
    clef_optimizer *opt = make(m, 1);
    train(m, opt, 3);
    snapshot saved = take(m, opt);
    clef_optimizer_state state = clef_optimizer_get(opt);
    clef_tensor *t[40];
    for (int i = 0; i < saved.n; i++) t[i] = tensor_at(m, opt, i);
    train(m, opt, 3);
    snapshot end = take(m, opt);
    for (int again = 0; again < 2; again++) {
        train(m, opt, 2);
        for (int i = 0; i < saved.n; i++) cr_assert_eq(clef_write(t[i], saved.data[i], saved.bytes[i]), CLEF_OK);
        clef_optimizer_set(opt, state);
        train(m, opt, 3);
        snapshot now = take(m, opt);
        expect_same(&end, &now, "gone back");
        drop(&now);
    }
    drop(&saved), drop(&end);
}

Test(optimizer, state_names) {
    clef_module *m = small_net();
    clef_optimizer *adam = clef_adam(m, NULL), *plain = clef_sgd(m, &(clef_sgd_options){.lr = 0.1});
    static const char *const name[] = {"step", "0.weight.exp_avg", "0.weight.exp_avg_sq", "0.bias.exp_avg"};
    cr_assert_eq(clef_optimizer_tensors(adam), 9);
    for (int i = 0; i < 4; i++) cr_expect_str_eq(clef_optimizer_tensor(adam, i).name, name[i]);
    cr_expect_null(clef_optimizer_tensor(adam, 9).tensor);
    cr_expect_eq(clef_optimizer_tensors(plain), 1);
    cr_expect_eq(clef_learning_rate(adam), 1e-3);
    cr_expect_eq(clef_optimizer_context(adam), ctx);
    train(m, plain, 2);
    int64_t count[4];
    cr_assert_eq(clef_read(clef_optimizer_tensor(plain, 0).tensor, count, sizeof count), CLEF_OK);
    for (int i = 0; i < 4; i++) cr_expect_eq(count[i], 2);
}

/* Three backward passes of 4 before a step do what one pass of 12 does. */
Test(optimizer, accumulated_gradients_equal_the_big_batch) {
    clef_module *a = small_net(), *b = small_net();
    clef_optimizer *oa = make(a, 1), *ob = make(b, 1);
    for (int step = 0; step < 3; step++) {
        cr_assert_eq(clef_backward(loss_of(a, 0, 12)), CLEF_OK);
        for (int part = 0; part < 3; part++) {
            cr_assert_eq(clef_backward(loss_of(b, 4 * part, 4)), CLEF_OK);
            if (part < 2) cr_assert_eq(clef_end_step(ctx), CLEF_OK);
        }
        for (int i = 0; i < 4; i++) {
            float *ga = values(clef_grad_of(clef_module_tensor(a, i).tensor));
            float *gb = values(clef_grad_of(clef_module_tensor(b, i).tensor));
            for (int64_t k = 0; k < clef_numel(clef_module_tensor(a, i).tensor); k++)
                cr_expect(fabs(ga[k] - gb[k]) <= 2e-5 * (1 + fabs(ga[k])), "step %d: %g and %g", step, ga[k], gb[k]);
            free(ga), free(gb);
        }
        cr_assert_eq(clef_step(oa), CLEF_OK);
        cr_assert_eq(clef_step(ob), CLEF_OK);
    }
}

Test(optimizer, frozen_parameters_stay) {
    clef_module *m = small_net();
    clef_freeze(clef_module_child(m, "0"), true);
    clef_optimizer *opt = clef_adamw(m, &(clef_adamw_options){.lr = 0.1, .weight_decay = 0.5});
    snapshot before = take(m, NULL);
    train(m, opt, 2);
    snapshot after = take(m, NULL);
    for (int i = 0; i < 4; i++) cr_expect_eq(!memcmp(before.data[i], after.data[i], before.bytes[i]), i < 2, "tensor %d", i);
    drop(&before), drop(&after);
}

/* The rate, the bias corrections and the clipping change; the plan must not. */
Test(optimizer, changing_numbers_make_no_new_plan) {
    if (getenv("CLEF_EAGER")) cr_skip_test("eager: every op has its own plan");
    clef_module *m = small_net();
    clef_optimizer *opt = clef_adamw(m, NULL);
    clef_schedule *s = clef_schedule_new(opt, &(clef_schedule_options){.kind = CLEF_SCHEDULE_COSINE, .total = 20, .warmup = 4});
    uint64_t plans = 0, used = 0;
    int steady = 3 + CLEF_RESULT_STEPS; /* as many losses and norms are held from then on */
    for (int i = 0; i < steady + 8; i++) {
        cr_assert_eq(clef_backward(loss_of(m, 0, 4)), CLEF_OK);
        clef_clip_grad_norm(m, 1.0 / (i + 1));
        cr_assert_eq(clef_step(opt), CLEF_OK);
        clef_schedule_tick(s);
        if (i == 3) plans = clef_counters_get(ctx).plans;
        if (i == steady) used = clef_memory(ctx).used;
    }
    cr_expect_eq(clef_counters_get(ctx).plans, plans, "%d more plans after step 4", (int)(clef_counters_get(ctx).plans - plans));
    cr_expect_eq(clef_memory(ctx).used, used, "steps must not pile up memory");
}

/* From the second step on: in the first, weights and states take over how their gradients lie. */
Test(optimizer, states_are_updated_in_place) {
    if (getenv("CLEF_EAGER")) cr_skip_test("eager: no plan to overwrite in");
    clef_module *m = small_net();
    clef_optimizer *opt = clef_adam(m, NULL);
    clef_tensor *state = clef_optimizer_tensor(opt, 1).tensor;
    cr_assert_not_null(clef__output_of(state)->buffer, "states must be computed when the optimizer is made");
    train(m, opt, 1);
    const clef__buffer *before = clef__output_of(state)->buffer;
    for (int i = 1; i < 5; i++) {
        train(m, opt, 1);
        cr_expect_eq(clef__output_of(state)->buffer, before, "step %d", i);
    }
}

Test(optimizer, clip_norm) {
    clef_module *m = small_net();
    double square = 0;
    for (int i = 0; i < 4; i++) {
        clef_tensor *p = clef_module_tensor(m, i).tensor, *g = noise_tensor(ctx, clef_tensor_shape(p), (uint64_t)(i + 50));
        float *v = values(g);
        for (int64_t k = 0; k < clef_numel(p); k++) square += (double)v[k] * v[k];
        clef_set_grad(p, g);
        free(v);
    }
    float *was = values(clef_grad_of(clef_parameter(m, "2.weight")));
    double norm = sqrt(square);
    cr_expect_float_eq(clef_item(clef_clip_grad_norm(m, 100)), norm, 1e-5 * norm);
    float *same = values(clef_grad_of(clef_parameter(m, "2.weight")));
    cr_expect_arr_eq(was, same, 21 * sizeof(float), "small gradients must stay as they are");
    cr_expect_float_eq(clef_item(clef_clip_grad_norm(m, 0.5)), norm, 1e-5 * norm);
    cr_expect_float_eq(clef_item(clef_clip_grad_norm(m, 0.5)), 0.5, 1e-5);
    float *less = values(clef_grad_of(clef_parameter(m, "2.weight")));
    for (int k = 0; k < 21; k++) cr_expect_float_eq(less[k], was[k] * 0.5 / norm, 1e-6);
    free(was), free(same), free(less);
    clef_zero_grad(m);
    cr_expect_eq(clef_item(clef_clip_grad_norm(m, 1)), 0);
    cr_expect_null(clef_clip_grad_norm(m, -1));
    expect_error(ctx, CLEF_INVALID, "clip_grad_norm");
}

Test(optimizer, clip_value) {
    clef_module *m = small_net();
    clef_tensor *p = clef_parameter(m, "2.bias");
    clef_set_grad(p, clef_from_host(ctx, CLEF_SHAPE(3), CLEF_F32, (float[]){-2, 0.25f, 7}));
    cr_assert_eq(clef_clip_grad_value(m, 0.5), CLEF_OK);
    float *g = values(clef_grad_of(p));
    cr_expect_eq(g[0], -0.5f);
    cr_expect_eq(g[1], 0.25f);
    cr_expect_eq(g[2], 0.5f);
    free(g);
    cr_expect_eq(clef_clip_grad_value(m, NAN), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "clip_grad_value");
}

Test(optimizer, shared_parameters_move_once) {
    clef_module *tied = clef_nn_linear(ctx, 3, 3, &(clef_nn_options){.no_bias = true});
    clef_module *m = clef_sequential(ctx, CLEF_LAYERS(tied, tied));
    clef_optimizer *opt = clef_sgd(m, &(clef_sgd_options){.lr = 1});
    clef_tensor *p = clef_parameter(m, "0.weight");
    float *before = values(p);
    clef_set_grad(p, clef_ones(ctx, CLEF_SHAPE(3, 3), CLEF_F32));
    cr_assert_eq(clef_step(opt), CLEF_OK);
    float *after = values(p);
    cr_expect_float_eq(before[4] - after[4], 1, 1e-6);
    free(before), free(after);
}

Test(optimizer, a_step_reports_the_first_error) {
    clef_module *m = small_net();
    clef_optimizer *opt = make(m, 0);
    clef_tensor *y = clef_forward(m, clef_zeros(ctx, CLEF_SHAPE(2, 6), CLEF_F32));
    cr_expect_null(y);
    clef_backward(y);
    cr_expect_eq(clef_step(opt), CLEF_SHAPE);
    clef_clear_error(ctx);
    train(m, opt, 1);
}

Test(optimizer, refusals) {
    clef_module *m = small_net();
    cr_expect_null(clef_sgd(m, NULL));
    expect_error(ctx, CLEF_INVALID, "sgd: lr is 0");
    cr_expect_null(clef_sgd(m, &(clef_sgd_options){.lr = -1}));
    expect_error(ctx, CLEF_INVALID, "sgd: lr is -1");
    cr_expect_null(clef_sgd(m, &(clef_sgd_options){.lr = 1, .nesterov = true}));
    expect_error(ctx, CLEF_INVALID, "nesterov");
    cr_expect_null(clef_adam(m, &(clef_adam_options){.beta1 = 1}));
    expect_error(ctx, CLEF_INVALID, "adam: beta1 1");
    cr_expect_null(clef_adamw(m, &(clef_adamw_options){.lr = NAN}));
    expect_error(ctx, CLEF_INVALID, "adamw: lr");
    cr_expect_eq(clef_optimizer_group(clef_adam(m, NULL), "gamma", 1, 0), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "no parameter's name ends in \"gamma\"");
    cr_expect_eq(clef_optimizer_group(clef_adam(m, NULL), "bais", 1, 0), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "did you mean \"bias\"?");
    cr_expect_eq(clef_optimizer_group(clef_adam(m, NULL), "bias", INFINITY, 0), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "lr_scale (inf) and weight_decay (0) ≥ 0 and finite");
    cr_expect_null(clef_adam(clef_sequential(ctx, CLEF_LAYERS(clef_nn_relu(ctx), clef_nn_flatten(ctx))), NULL));
    expect_error(ctx, CLEF_INVALID, "adam: the sequential has no floating parameter to train");
    cr_expect_null(clef_adam(NULL, NULL));
    cr_expect_eq(clef_step(NULL), CLEF_INVALID);
}
