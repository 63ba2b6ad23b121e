/* Recompute: the same bits as a plain run in every mode, each side effect once, and less memory.
   ctest: cost=60 apart plain */
#include "clef/pointwise.h"
#include "support/modes.h"

enum { CHANNELS = 6, SIDE = 8, BATCH = 4, STEPS = 3 };

static clef_context *ctx;
static clef_module *shared; /* used by two blocks */
static bool plain;          /* nothing recomputes */

static clef_module *again(clef_module *m) {
    clef_recompute(m, !plain);
    return m;
}

static clef_module *conv(void) {
    return clef_nn_conv2d(ctx, CHANNELS, CHANNELS, 3, &(clef_nn_conv2d_options){.conv.padding = {1, 1}});
}

static clef_module *block(void) {
    return clef_nn_residual(ctx,
                            clef_sequential(ctx, CLEF_LAYERS(conv(), clef_nn_batch_norm2d(ctx, CHANNELS, NULL), clef_nn_relu(ctx),
                                                             clef_nn_dropout(ctx, 0.3), conv())),
                            NULL, true);
}

/* ---- nets ---- */

static clef_module *chain(void) { return clef_sequential(ctx, CLEF_LAYERS(again(block()), again(block()), again(block()))); }

static clef_module *nested(void) {
    clef_module *inner =
        clef_sequential(ctx, CLEF_LAYERS(again(clef_sequential(ctx, CLEF_LAYERS(again(block()), block()))), again(block())));
    return clef_sequential(ctx, CLEF_LAYERS(again(inner), block()));
}

static clef_module *twice(void) {
    shared = again(block());
    return clef_sequential(ctx, CLEF_LAYERS(again(clef_sequential(ctx, CLEF_LAYERS(shared, shared))), block(), shared));
}

static clef_module *without_parameters(void) {
    return clef_sequential(ctx, CLEF_LAYERS(conv(),
                                            again(clef_sequential(ctx, CLEF_LAYERS(clef_nn_relu(ctx), clef_nn_dropout(ctx, 0.5)))),
                                            conv(), again(clef_nn_tanh(ctx))));
}

static clef_tensor *taken; /* made inside of one module, used in another */
static clef_tensor *forward_giver(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    taken = clef_exp(clef_mul_scalar(clef_forward(clef_module_child(m, "0"), x), 0.1));
    return clef_mul(taken, x);
}
static clef_tensor *forward_taker(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    return clef_add(clef_mul(clef_sin(x), taken), clef_forward(clef_module_child(m, "0"), x));
}
static clef_module *custom(clef_forward_fn forward) {
    clef_module *m = clef_module_new(ctx, "custom", forward, NULL);
    clef_module_add(m, "0", conv());
    return again(m);
}
static clef_module *handing_over(void) {
    return clef_sequential(ctx, CLEF_LAYERS(custom(forward_giver), block(), custom(forward_taker)));
}

static clef_tensor *forward_masked(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    clef_tensor *parts[] = {clef_forward(clef_module_child(m, "0"), x),
                            clef_transpose(clef_mul(x, clef_rand(ctx, clef_tensor_shape(x))), 2, 3)};
    clef_tensor *y = clef_concat(parts, 2, 1);
    return clef_add(clef_slice(y, 1, 0, CHANNELS, 1), clef_softmax(clef_slice(y, 1, CHANNELS, 2 * CHANNELS, 1), 1));
}
static clef_module *views_and_random(void) {
    return clef_sequential(ctx, CLEF_LAYERS(custom(forward_masked), custom(forward_masked), conv()));
}

/* ---- the same bits ---- */

typedef clef_module *net_fn(void);
typedef struct outcome {
    float *number;
    size_t n;
    clef_random_state random;
} outcome;

static void keep_numbers(outcome *o, clef_tensor *t) {
    size_t n = (size_t)clef_numel(t);
    float *v = values(clef_to(t, CLEF_F32));
    o->number = realloc(o->number, (o->n + n) * sizeof *o->number);
    memcpy(o->number + o->n, v, n * sizeof *v);
    o->n += n;
    free(v);
}

/* Losses, and after the last step all parameters and statistics. */
static outcome train(net_fn *make, bool is_plain, bool read_loss_first) {
    outcome o = {0};
    clef_seed(ctx, 1);
    plain = is_plain;
    clef_module *net = make();
    clef_optimizer *opt = clef_sgd(net, &(clef_sgd_options){.lr = 0.05, .momentum = 0.9});
    clef_tensor *x = clef_keep(noise_tensor(ctx, CLEF_SHAPE(BATCH, CHANNELS, SIDE, SIDE), 1));
    for (int i = 0; i < STEPS; i++) {
        clef_tensor *loss = clef_mean(clef_square(clef_forward(net, x)), NULL, 0, false);
        if (read_loss_first) clef_item(loss);
        cr_assert_eq(clef_backward(loss), CLEF_OK, "%s", clef_error(ctx));
        cr_assert_eq(clef_step(opt), CLEF_OK, "%s", clef_error(ctx));
        keep_numbers(&o, loss);
    }
    for (int i = 0; i < clef_module_tensors(net); i++) keep_numbers(&o, clef_module_tensor(net, i).tensor);
    o.random = clef_random_get(ctx);
    cr_assert_str_empty(clef_error(ctx));
    clef_release(x);
    clef_end_step(ctx);
    return o;
}

static void expect_same(outcome a, outcome b, const char *what, mode m) {
    cr_assert_eq(a.n, b.n);
    cr_expect_eq(a.random.offset, b.random.offset, "%s, %s: other random numbers follow", what, mode_names[m]);
    size_t differ = 0;
    for (size_t i = 0; i < a.n; i++) differ += memcmp(&a.number[i], &b.number[i], sizeof(float)) != 0;
    cr_expect_eq(differ, 0, "%s, %s: %zu of %zu numbers differ", what, mode_names[m], differ, a.n);
    cr_expect(isfinite(a.number[0]) && a.number[0] != a.number[1], "%s: training moves", what);
    free(b.number);
}

/* All nets in one context, as each would have every kernel compiled again. */
static void expect_same_training(mode m) {
    static const struct {
        const char *what;
        net_fn *make;
    } nets[] = {{"a chain of blocks", chain},
                {"blocks in blocks", nested},
                {"a shared block", twice},
                {"blocks without parameters", without_parameters},
                {"a value handed from block to block", handing_over},
                {"views and random numbers", views_and_random}};
    ctx = open_mode(m, NULL);
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        outcome wanted = train(nets[i].make, true, false);
        expect_same(wanted, train(nets[i].make, false, false), nets[i].what, m);
        if (m == FUSED) expect_same(wanted, train(nets[i].make, false, true), "loss read before backward", m);
        free(wanted.number);
    }
    clef_close(ctx);
}

Test(recompute, trains_to_the_same_bits) { expect_same_training(FUSED); }
Test(recompute, trains_to_the_same_bits_alone) { expect_same_training(ALONE); }
Test(recompute, trains_to_the_same_bits_eagerly) { expect_same_training(EAGER); }
Test(recompute, trains_to_the_same_bits_in_exact_buffers) { expect_same_training(EXACT); }

/* ---- gradients ---- */

/* Is the gradient of the input, if it wants any, the same; and that of |gradient|² (second order)? */
static outcome gradients(bool is_plain, bool input_wants, int order) {
    outcome o = {0};
    ctx = open_seeded(0);
    plain = is_plain;
    clef_module *net =
        clef_sequential(ctx, CLEF_LAYERS(again(clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 5, 7, NULL), clef_nn_tanh(ctx),
                                                                                clef_nn_linear(ctx, 7, 5, NULL)))),
                                         again(clef_nn_tanh(ctx))));
    clef_tensor *x = clef_require_grad(clef_keep(noise_tensor(ctx, CLEF_SHAPE(3, 5), 2)), input_wants);
    clef_tensor *y = clef_sum(clef_square(clef_forward(net, x)), NULL, 0, false), *dx;
    if (order == 2) {
        cr_assert_eq(clef_grad(y, CLEF_NONE, &x, 1, true, &dx), CLEF_OK, "%s", clef_error(ctx));
        keep_numbers(&o, dx);
        y = clef_sum(clef_square(dx), NULL, 0, false);
    }
    cr_assert_eq(clef_backward(y), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < clef_module_tensors(net); i++) keep_numbers(&o, clef_grad_of(clef_module_tensor(net, i).tensor));
    if (input_wants) keep_numbers(&o, clef_grad_of(x));
    o.random = clef_random_get(ctx);
    clef_close(ctx);
    return o;
}

Test(recompute, gradients_of_the_input_and_of_gradients) {
    for (int wants = 0; wants < 2; wants++)
        for (int order = 1; order <= 1 + wants; order++) {
            outcome wanted = gradients(true, wants, order);
            expect_same(wanted, gradients(false, wants, order), order == 2 ? "second order" : "first order", FUSED);
            free(wanted.number);
        }
}

Test(recompute, long_chains_need_no_stack) {
    ctx = open_seeded(0);
    clef_module *layer[3000];
    for (int i = 0; i < 3000; i++) layer[i] = clef_nn_activation(ctx, "neg", clef_neg);
    clef_module *net = clef_sequential(ctx, layer, 3000);
    clef_recompute(net, true);
    clef_tensor *x = clef_require_grad(clef_keep(clef_scalar(ctx, 3)), true);
    clef_backward(clef_square(clef_forward(net, x)));
    cr_expect_eq(clef_item(clef_grad_of(x)), 6);
    clef_close(ctx);
}

/* ---- once ---- */

static clef_tensor *forward_counting(clef_module *m, clef_tensor *x, void *user) {
    ++*(int *)user;
    return clef_forward(clef_module_child(m, "0"), x);
}

Test(recompute, forward_and_its_effects_happen_once) {
    ctx = open_seeded(0);
    int calls = 0;
    clef_module *m = clef_module_new(ctx, "counting", forward_counting, &calls);
    clef_module *norm = clef_nn_batch_norm2d(ctx, CHANNELS, NULL);
    clef_module_add(m, "0", norm);
    clef_recompute(m, true);
    for (int i = 0; i < 3; i++) {
        clef_backward(clef_sum(clef_square(clef_forward(m, noise_tensor(ctx, CLEF_SHAPE(2, CHANNELS, 3, 3), 1))), NULL, 0, false));
        clef_end_step(ctx);
    }
    cr_expect_eq(calls, 3);
    cr_expect_eq(clef_item(clef_parameter(norm, "num_batches_tracked")), 3);
    clef_recompute(NULL, true);
    cr_expect_str_empty(clef_error(ctx));
    clef_close(ctx);
}

/* ---- less memory ---- */

static clef_plan_size step_size(clef_module *net, clef_shape input) {
    clef_plan_size size;
    clef_tensor *x = clef_keep(clef_zeros(ctx, input, CLEF_F32));
    clef_eval(x);
    clef_set_dry_run(ctx, true);
    clef_backward(clef_mean(clef_square(clef_forward(net, x)), NULL, 0, false));
    clef_end_step(ctx);
    cr_assert_eq(clef_plan_memory(ctx, &size), CLEF_OK, "%s", clef_error(ctx));
    clef_zero_grad(net);
    clef_set_dry_run(ctx, false);
    clef_release(x);
    return size;
}

/* Sixteen layers in blocks of four; the dry run's numbers, fused and not. */
Test(recompute, memory_goes_and_work_comes) {
    for (mode m = FUSED; m <= ALONE; m++) {
        clef_module *part[4], *layer[8];
        ctx = open_mode(m, NULL);
        for (int i = 0; i < 4; i++) {
            for (int j = 0; j < 8; j++) layer[j] = j % 2 ? clef_nn_tanh(ctx) : clef_nn_linear(ctx, 64, 64, NULL);
            part[i] = clef_sequential(ctx, layer, 8);
        }
        clef_module *net = clef_sequential(ctx, part, 4);
        clef_plan_size before = step_size(net, CLEF_SHAPE(4096, 64));
        for (int i = 0; i < 4; i++) clef_recompute(part[i], true);
        clef_plan_size after = step_size(net, CLEF_SHAPE(4096, 64));
        cr_expect_lt(after.temporary_bytes, before.temporary_bytes * 0.7, "%s: %lld of %lld bytes", mode_names[m],
                     (long long)after.temporary_bytes, (long long)before.temporary_bytes);
        cr_expect(after.flops > before.flops * 1.2 && after.flops < before.flops * 1.4,
                  "one more forward is a third more work, not %g of %g", after.flops, before.flops);
        for (int i = 0; i < 4; i++) clef_recompute(part[i], false);
        cr_expect_eq(step_size(net, CLEF_SHAPE(4096, 64)).temporary_bytes, before.temporary_bytes);
        clef_close(ctx);
    }
}

/* A block that begins with a pointwise op behind a pointwise op: its copy must not join the kernel that makes the input. */
Test(recompute, copies_do_not_join_forward) {
    clef_module *part[6];
    ctx = open_seeded(0);
    for (int i = 0; i < 6; i++)
        part[i] =
            again(clef_sequential(ctx, CLEF_LAYERS(clef_nn_tanh(ctx), clef_nn_activation(ctx, "sin", clef_sin),
                                                   clef_nn_linear(ctx, 64, 64, NULL), clef_nn_activation(ctx, "cos", clef_cos))));
    int64_t one = 4096 * 64 * 4, size = step_size(clef_sequential(ctx, part, 6), CLEF_SHAPE(4096, 64)).temporary_bytes;
    cr_expect_lt(size, 10 * one, "%g activations", (double)size / (double)one);
    clef_close(ctx);
}

/* A block within a recomputed one: only the inside of the inner one is there at a time. */
Test(recompute, nesting_saves_more) {
    clef_module *inner[4], *layer[8];
    ctx = open_seeded(0);
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 8; j++) layer[j] = j % 2 ? clef_nn_tanh(ctx) : clef_nn_linear(ctx, 64, 64, NULL);
        inner[i] = clef_sequential(ctx, layer, 8);
    }
    clef_module *outer = clef_sequential(ctx, inner, 4);
    clef_recompute(outer, true);
    int64_t flat = step_size(outer, CLEF_SHAPE(4096, 64)).temporary_bytes;
    for (int i = 0; i < 4; i++) clef_recompute(inner[i], true);
    cr_expect_lt(step_size(outer, CLEF_SHAPE(4096, 64)).temporary_bytes, flat * 0.7);
    clef_close(ctx);
}

Test(recompute, resnet18_takes_less_than_half) {
    static const char *const name[] = {"layer1.0", "layer1.1", "layer2.0", "layer2.1",
                                       "layer3.0", "layer3.1", "layer4.0", "layer4.1"};
    ctx = open_seeded(0);
    clef_module *net = clef_model_resnet18(ctx, CLEF_SHAPE(3, 32, 32), 10);
    clef_plan_size before = step_size(net, CLEF_SHAPE(32, 3, 32, 32));
    for (int i = 0; i < 8; i++) clef_recompute(clef_module_child(net, name[i]), true);
    clef_plan_size after = step_size(net, CLEF_SHAPE(32, 3, 32, 32));
    cr_expect_lt(after.temporary_bytes, before.temporary_bytes * 0.6, "%lld of %lld bytes", (long long)after.temporary_bytes,
                 (long long)before.temporary_bytes);
    clef_close(ctx);
}
