/* The tree of modules: names, modes, freezing, user-defined modules, what is refused. */
#include "support/device.h"
#include "clef/pointwise.h"

static clef_context *ctx;

static void open_context(void) { ctx = open_seeded(3); }
static void close_context(void) { clef_close(ctx); }
TestSuite(modules, .init = open_context, .fini = close_context);

static clef_module *nested(void) {
    return clef_sequential(
        ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 2, 3, NULL), clef_nn_relu(ctx),
                         clef_sequential(ctx, CLEF_LAYERS(clef_nn_batch_norm2d(ctx, 2, NULL), clef_nn_dropout(ctx, 0.5))),
                         clef_nn_flatten(ctx), clef_nn_linear(ctx, 8, 3, NULL)));
}

Test(modules, names_follow_the_state_dict_convention) {
    static const char *const name[] = {
        "0.weight", "0.bias", "2.0.weight", "2.0.bias", "2.0.running_mean", "2.0.running_var", "2.0.num_batches_tracked",
        "4.weight", "4.bias"};
    clef_module *m = nested();
    cr_assert_eq(clef_module_tensors(m), 9);
    for (int i = 0; i < 9; i++) cr_expect_str_eq(clef_module_tensor(m, i).name, name[i]);
    cr_expect_null(clef_module_tensor(m, 9).tensor);
    cr_expect_null(clef_module_tensor(m, -1).name);
    cr_expect_eq(clef_parameter_count(m), 18 + 2 + 4 + 24 + 3);
    cr_expect_str_eq(clef_module_type(clef_module_child(m, "2.1")), "dropout");
    cr_expect_eq(clef_module_context(m), ctx);
    cr_expect_eq(clef_error_status(ctx), CLEF_OK);
}

Test(modules, a_name_that_is_mistyped_is_said) {
    clef_module *m = nested(), *named = clef_sequential(ctx, NULL, 0);
    cr_expect_null(clef_parameter(m, "4.wieght"));
    expect_error(ctx, CLEF_INVALID, "no parameter or buffer \"4.wieght\"; did you mean \"4.weight\"?");
    cr_expect_null(clef_parameter(m, "nonsense"));
    expect_error(ctx, CLEF_INVALID, "no parameter or buffer \"nonsense\"");
    cr_expect_null(clef_parameter(m, NULL));
    expect_error(ctx, CLEF_INVALID, "parameter: ");
    cr_assert_eq(clef_module_add(named, "backbone", m), CLEF_OK);
    cr_expect_null(clef_module_child(named, "bakcbone.2"));
    expect_error(ctx, CLEF_INVALID, "a sequential there has no child \"bakcbone\"; did you mean \"backbone\"?");
    cr_expect_null(clef_module_child(m, "2.5"));
    expect_error(ctx, CLEF_INVALID, "\"2.5\" leads to no module");
    cr_expect_null(clef_module_child(m, "2."));
    expect_error(ctx, CLEF_INVALID, "\"2.\" leads to no module");
    cr_expect_null(clef_module_child(m, "4.weight"));
    expect_error(ctx, CLEF_INVALID, "\"4.weight\" leads to no module");
    cr_expect(clef_module_has(m, "4.weight") && clef_module_has(m, "2.0.running_mean") && clef_module_has(m, "2.1"));
    cr_expect(!clef_module_has(m, "4.weights") && !clef_module_has(m, "2.") && !clef_module_has(m, "") &&
              !clef_module_has(m, NULL) && !clef_module_has(NULL, "2") && !clef_module_has(m, "4.weight.2"));
    cr_expect_eq(clef_error_status(ctx), CLEF_OK, "asking is no error");
}

Test(modules, modes_reach_the_whole_tree) {
    clef_module *m = nested();
    cr_expect(clef_is_training(clef_module_child(m, "2.1")));
    clef_set_training(m, false);
    cr_expect(!clef_is_training(m) && !clef_is_training(clef_module_child(m, "2.1")));
    clef_set_training(clef_module_child(m, "2"), true);
    cr_expect(!clef_is_training(m) && clef_is_training(clef_module_child(m, "2.1")));
    clef_set_training(m, true);
    cr_expect(clef_is_training(m));
}

Test(modules, frozen_parameters_get_no_gradient) {
    clef_module *m = clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 3, 4, NULL), clef_nn_linear(ctx, 4, 2, NULL)));
    clef_freeze(clef_module_child(m, "0"), true);
    clef_tensor *loss = clef_sum(clef_forward(m, clef_ones(ctx, CLEF_SHAPE(1, 3), CLEF_F32)), NULL, 0, false);
    cr_assert_eq(clef_backward(loss), CLEF_OK);
    cr_expect_null(clef_grad_of(clef_parameter(m, "0.weight")));
    cr_expect_not_null(clef_grad_of(clef_parameter(m, "1.weight")));
    clef_zero_grad(m);
    cr_expect_null(clef_grad_of(clef_parameter(m, "1.weight")));
    clef_freeze(m, false);
    cr_expect(clef_requires_grad(clef_parameter(m, "0.weight")));
}

/* y = gain·child(x) + shift, with a parameter, a buffer, a child and user data. */
static clef_tensor *forward_scaled(clef_module *module, clef_tensor *x, void *user) {
    ++*(int *)user;
    clef_tensor *y = clef_mul(clef_forward(clef_module_child(module, "inner"), x), clef_parameter(module, "gain"));
    return clef_add(y, clef_parameter(module, "shift"));
}

Test(modules, user_defined) {
    int calls = 0;
    clef_module *m = clef_module_new(ctx, "scaled", forward_scaled, &calls);
    cr_assert_eq(clef_module_add_parameter(m, "gain", clef_full(ctx, CLEF_SHAPE(2), CLEF_F32, 3)), CLEF_OK);
    cr_assert_eq(clef_module_add_buffer(m, "shift", clef_ones(ctx, CLEF_SCALAR, CLEF_F32)), CLEF_OK);
    cr_assert_eq(clef_module_add(m, "inner", clef_nn_relu(ctx)), CLEF_OK);
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(m));
    float *y = values(clef_forward(net, clef_from_host(ctx, CLEF_SHAPE(2), CLEF_F32, (float[]){-4, 2})));
    cr_expect_eq(y[0], 1);
    cr_expect_eq(y[1], 7);
    cr_expect_eq(calls, 1);
    cr_expect_str_eq(clef_module_tensor(net, 0).name, "0.gain");
    cr_expect_str_eq(clef_module_tensor(net, 1).name, "0.shift");
    cr_expect(clef_module_tensor(net, 1).is_buffer);
    free(y);
}

Test(modules, shared_weights_count_once) {
    clef_module *tied = clef_nn_linear(ctx, 3, 3, NULL);
    clef_module *m = clef_sequential(ctx, CLEF_LAYERS(tied, clef_nn_relu(ctx), tied));
    cr_expect_eq(clef_module_tensors(m), 4);
    cr_expect_eq(clef_parameter(m, "0.weight"), clef_parameter(m, "2.weight"));
    cr_expect_eq(clef_parameter_count(m), 12);
}

Test(modules, integer_parameters_want_no_gradient) {
    int calls = 0;
    clef_module *m = clef_module_new(ctx, "table", forward_scaled, &calls);
    cr_expect_eq(clef_module_add_parameter(m, "index", clef_zeros(ctx, CLEF_SHAPE(2), CLEF_I64)), CLEF_OK);
    cr_expect(!clef_requires_grad(clef_parameter(m, "index")));
    clef_freeze(m, false);
    cr_expect_eq(clef_error_status(ctx), CLEF_OK);
}

Test(modules, refusals) {
    clef_module *m = clef_sequential(ctx, NULL, 0), *other = clef_sequential(ctx, NULL, 0);
    clef_tensor *t = clef_zeros(ctx, CLEF_SHAPE(1), CLEF_F32);
    cr_expect_eq(clef_module_add_parameter(m, "w", t), CLEF_OK);
    cr_expect_eq(clef_module_add_buffer(m, "w", t), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "already something named \"w\"");
    cr_expect_eq(clef_module_add(m, "a.b", other), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "\"a.b\" is empty or has a dot");
    cr_expect_eq(clef_module_add(m, "", other), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "empty");
    cr_expect_eq(clef_module_add(m, "self", m), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "would contain itself");
    cr_expect_eq(clef_module_add(m, "down", other), CLEF_OK);
    cr_expect_eq(clef_module_add(other, "up", m), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "would contain itself");
    cr_expect_eq(clef_module_add(m, "none", NULL), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "child \"none\" is NULL");
    cr_expect_null(clef_sequential(ctx, CLEF_LAYERS(clef_nn_relu(ctx), NULL)));
    expect_error(ctx, CLEF_INVALID, "sequential: layer 1 is NULL");
    cr_expect_null(clef_module_new(ctx, NULL, NULL, NULL));
    expect_error(ctx, CLEF_INVALID, "module_new: type must not be NULL");
    cr_expect_null(clef_forward(NULL, t));
    cr_expect_eq(clef_error_status(ctx), CLEF_OK);
    cr_expect_null(clef_forward(m, NULL));
    expect_error(ctx, CLEF_INVALID, "forward: x is NULL though nothing failed before");
}

/* Tensors of no layer: an optimizer takes them, and a file; running them is an error that says so. */
Test(modules, without_a_forward_hold_what_is_trained) {
    clef_module *m = clef_module_new(ctx, "parameters", NULL, NULL), *in = clef_sequential(ctx, CLEF_LAYERS(clef_nn_relu(ctx), m));
    cr_assert_eq(clef_module_add_parameter(m, "x", clef_full(ctx, CLEF_SHAPE(3), CLEF_F32, 2)), CLEF_OK);
    cr_assert_eq(clef_module_add_buffer(m, "b", clef_ones(ctx, CLEF_SHAPE(2), CLEF_I64)), CLEF_OK);
    clef_optimizer *opt = clef_sgd(m, &(clef_sgd_options){.lr = 0.25});
    cr_assert_not_null(opt, "%s", clef_error(ctx));
    for (int i = 0; i < 2; i++) { /* of Σ x²: x -= 0.25·2x */
        cr_assert_eq(clef_backward(clef_sum(clef_square(clef_parameter(m, "x")), NULL, 0, false)), CLEF_OK);
        cr_assert_eq(clef_step(opt), CLEF_OK);
    }
    float x[3];
    cr_assert_eq(clef_read(clef_parameter(m, "x"), x, sizeof x), CLEF_OK);
    for (int i = 0; i < 3; i++) cr_expect_eq(x[i], 0.5f);
    cr_expect_eq(clef_parameter_count(m), 3);
    clef_tensor *t = clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32);
    cr_expect_null(clef_forward(m, t));
    expect_error(ctx, CLEF_INVALID, "parameters: it has no forward function, only what is registered in it");
    cr_expect_null(clef_forward(in, t));
    expect_error(ctx, CLEF_INVALID, "only what is registered in it; in layer \"1\" (parameters)");
    cr_expect_eq(clef_call(m, &t, 1, (clef_tensor *[1]){NULL}, 1), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "parameters: it has no forward function");
}
