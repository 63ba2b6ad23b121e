/* Every layer: its tensors' names and shapes, the shape and the values of its output.
   ctest: plain together */
#include "support/device.h"
#include "clef/pointwise.h"

static clef_context *ctx;

static void open_context(void) { ctx = open_seeded(3); }
static void close_context(void) { clef_close(ctx); }
TestSuite(layers, .init = open_context, .fini = close_context);

static void expect_tensor(const clef_module *m, int i, const char *name, clef_shape shape, bool is_buffer) {
    clef_named_tensor t = clef_module_tensor(m, i);
    cr_assert_str_eq(t.name, name);
    cr_expect_eq(t.is_buffer, is_buffer, "%s", name);
    expect_shape(t.tensor, shape);
    cr_expect_eq(clef_requires_grad(t.tensor), !is_buffer, "%s", name);
    cr_expect_eq(clef_parameter(m, name), t.tensor);
}

static clef_tensor *run_on(clef_module *m, clef_shape input) { return clef_forward(m, clef_zeros(ctx, input, CLEF_F32)); }

Test(layers, linear) {
    clef_module *m = clef_nn_linear(ctx, 5, 3, NULL);
    cr_assert_eq(clef_module_tensors(m), 2);
    expect_tensor(m, 0, "weight", CLEF_SHAPE(3, 5), false);
    expect_tensor(m, 1, "bias", CLEF_SHAPE(3), false);
    cr_expect_str_eq(clef_module_type(m), "linear");
    clef_tensor *x = noise_tensor(ctx, CLEF_SHAPE(2, 5), 1), *y = clef_forward(m, x);
    expect_shape(y, CLEF_SHAPE(2, 3));
    float *w = values(clef_parameter(m, "weight")), *b = values(clef_parameter(m, "bias")), *xv = values(x), *yv = values(y);
    for (int i = 0; i < 6; i++) {
        double sum = b[i % 3];
        for (int k = 0; k < 5; k++) sum += (double)w[i % 3 * 5 + k] * xv[i / 3 * 5 + k];
        cr_expect_float_eq(yv[i], sum, 1e-6);
    }
    free(w), free(b), free(xv), free(yv);
    clef_module *plain = clef_nn_linear(ctx, 5, 3, &(clef_nn_options){.no_bias = true});
    cr_expect_eq(clef_module_tensors(plain), 1);
    expect_shape(run_on(plain, CLEF_SHAPE(4, 2, 5)), CLEF_SHAPE(4, 2, 3));
    cr_expect_null(clef_nn_linear(ctx, 0, 3, NULL));
    expect_error(ctx, CLEF_INVALID, "linear: 0 inputs and 3 outputs");
}

Test(layers, conv2d) {
    clef_module *m = clef_nn_conv2d(ctx, 4, 6, 3, NULL);
    expect_tensor(m, 0, "weight", CLEF_SHAPE(6, 4, 3, 3), false);
    expect_tensor(m, 1, "bias", CLEF_SHAPE(6), false);
    expect_shape(run_on(m, CLEF_SHAPE(2, 4, 8, 7)), CLEF_SHAPE(2, 6, 6, 5));
    clef_module *wide = clef_nn_conv2d(
        ctx, 4, 6, 3,
        &(clef_nn_conv2d_options){.conv = {.stride = {2, 1}, .padding = {1, 2}, .groups = 2}, .no_bias = true, .kernel_w = 5});
    cr_expect_eq(clef_module_tensors(wide), 1);
    expect_tensor(wide, 0, "weight", CLEF_SHAPE(6, 2, 3, 5), false);
    expect_shape(run_on(wide, CLEF_SHAPE(1, 4, 8, 8)), CLEF_SHAPE(1, 6, 4, 8));
    cr_expect_null(clef_nn_conv2d(ctx, 4, 6, 3, &(clef_nn_conv2d_options){.conv.groups = 3}));
    expect_error(ctx, CLEF_INVALID, "conv2d: 4 → 6 channels cannot be cut into 3 groups");
    cr_expect_null(clef_nn_conv2d(ctx, 4, 6, 0, NULL));
    expect_error(ctx, CLEF_INVALID, "conv2d: 4 → 6 channels with a 0×0 kernel");
}

/* Uniform within ±bound, and not much less: of hundreds of numbers the largest is near it. */
static void expect_bound(clef_tensor *t, double bound) {
    double top = clef_item(clef_max(clef_abs(t), NULL, 0, false));
    cr_expect(top <= bound && top > 0.9 * bound, "%g, not %g", top, bound);
}

Test(layers, conv1d) {
    clef_module *m = clef_nn_conv1d(ctx, 8, 16, 5, NULL);
    cr_assert_eq(clef_module_tensors(m), 2);
    expect_tensor(m, 0, "weight", CLEF_SHAPE(16, 8, 5), false);
    expect_tensor(m, 1, "bias", CLEF_SHAPE(16), false);
    expect_bound(clef_parameter(m, "weight"), 1 / sqrt(40));
    expect_shape(run_on(m, CLEF_SHAPE(2, 8, 9)), CLEF_SHAPE(2, 16, 5));
    cr_expect_null(run_on(m, CLEF_SHAPE(2, 8, 9, 9)));
    expect_error(ctx, CLEF_SHAPE, "conv1d: x must be [n,c,l] and w [o,c/groups,k] (x [2,8,9,9], w [16,8,5])");
    cr_expect_null(clef_nn_conv1d(ctx, 4, 6, 3, &(clef_nn_conv1d_options){.conv.groups = 4}));
    expect_error(ctx, CLEF_INVALID, "conv1d: 4 → 6 channels cannot be cut into 4 groups");
    cr_expect_null(clef_nn_conv1d(ctx, 4, 6, -1, NULL));
    expect_error(ctx, CLEF_INVALID, "conv1d: 4 → 6 channels with a 1×-1 kernel");
}

Test(layers, conv_transpose2d) {
    clef_module *m = clef_nn_conv_transpose2d(ctx, 8, 4, 4, &(clef_nn_conv_transpose2d_options){.conv.stride = {2, 2}});
    cr_assert_eq(clef_module_tensors(m), 2);
    expect_tensor(m, 0, "weight", CLEF_SHAPE(8, 4, 4, 4), false);
    expect_tensor(m, 1, "bias", CLEF_SHAPE(4), false);
    expect_bound(clef_parameter(m, "weight"), 1 / sqrt(4 * 16));
    expect_shape(run_on(m, CLEF_SHAPE(2, 8, 3, 1)), CLEF_SHAPE(2, 4, 8, 4));
    cr_expect_null(run_on(m, CLEF_SHAPE(2, 4, 3, 1)));
    expect_error(ctx, CLEF_SHAPE, "conv_transpose2d: w must have a filter for each channel of x");
    cr_expect_null(clef_nn_conv_transpose2d(ctx, 4, 6, 3, &(clef_nn_conv_transpose2d_options){.conv.groups = -2}));
    expect_error(ctx, CLEF_INVALID, "conv_transpose2d: 4 → 6 channels cannot be cut into -2 groups");
}

Test(layers, upsample_nearest2d) {
    clef_module *m = clef_nn_upsample_nearest2d(ctx, 3);
    expect_shape(run_on(m, CLEF_SHAPE(2, 1, 4, 5)), CLEF_SHAPE(2, 1, 12, 15));
    expect_shape(run_on(m, CLEF_SHAPE(0, 1, 4, 5)), CLEF_SHAPE(0, 1, 12, 15));
    cr_expect_null(run_on(m, CLEF_SHAPE(4, 5)));
    expect_error(ctx, CLEF_SHAPE, "upsample_nearest2d: x [4,5] is not [n,c,h,w]");
    cr_expect_null(clef_nn_upsample_nearest2d(ctx, 0));
    expect_error(ctx, CLEF_INVALID, "upsample_nearest2d: the factor is 0");
}

Test(layers, pools) {
    clef_shape x = CLEF_SHAPE(2, 3, 9, 8);
    expect_shape(run_on(clef_nn_max_pool2d(ctx, 2, NULL), x), CLEF_SHAPE(2, 3, 4, 4));
    expect_shape(run_on(clef_nn_max_pool2d(ctx, 3, &(clef_pool2d_options){.stride = {1, 2}, .padding = {1, 1}}), x),
                 CLEF_SHAPE(2, 3, 9, 4));
    expect_shape(run_on(clef_nn_avg_pool2d(ctx, 2, NULL), x), CLEF_SHAPE(2, 3, 4, 4));
    expect_shape(run_on(clef_nn_adaptive_avg_pool2d(ctx, 4, 3), x), CLEF_SHAPE(2, 3, 4, 3));
    expect_shape(run_on(clef_nn_global_avg_pool2d(ctx), x), CLEF_SHAPE(2, 3));
    expect_shape(run_on(clef_nn_flatten(ctx), x), CLEF_SHAPE(2, 216));
    cr_expect_null(clef_nn_max_pool2d(ctx, 0, NULL));
    expect_error(ctx, CLEF_INVALID, "max_pool2d: the kernel's size is 0");
}

/* Statistics of the batch in training, the running ones afterwards. */
Test(layers, batch_norm2d) {
    clef_module *m = clef_nn_batch_norm2d(ctx, 3, NULL);
    cr_assert_eq(clef_module_tensors(m), 5);
    expect_tensor(m, 0, "weight", CLEF_SHAPE(3), false);
    expect_tensor(m, 1, "bias", CLEF_SHAPE(3), false);
    expect_tensor(m, 2, "running_mean", CLEF_SHAPE(3), true);
    expect_tensor(m, 3, "running_var", CLEF_SHAPE(3), true);
    expect_tensor(m, 4, "num_batches_tracked", CLEF_SCALAR, true);
    cr_expect_eq(clef_tensor_dtype(clef_parameter(m, "num_batches_tracked")), CLEF_I64);
    clef_tensor *x = clef_keep(noise_tensor(ctx, CLEF_SHAPE(4, 3, 5, 5), 2));
    float *xv = values(x), *y = values(clef_forward(m, x));
    cr_assert_eq(clef_end_step(ctx), CLEF_OK);
    float *mean = values(clef_parameter(m, "running_mean")), *var = values(clef_parameter(m, "running_var"));
    for (int c = 0; c < 3; c++) {
        double sum = 0, square = 0;
        for (int i = 0; i < 100; i++) sum += xv[i / 25 * 75 + c * 25 + i % 25];
        for (int i = 0; i < 100; i++) square += pow(xv[i / 25 * 75 + c * 25 + i % 25] - sum / 100, 2);
        cr_expect_float_eq(mean[c], 0.1 * sum / 100, 1e-6);
        cr_expect_float_eq(var[c], 0.9 + 0.1 * square / 99, 1e-6);
        cr_expect_float_eq(y[c * 25], (xv[c * 25] - sum / 100) / sqrt(square / 100 + 1e-5), 1e-5);
    }
    cr_expect_eq(clef_item(clef_parameter(m, "num_batches_tracked")), 1);
    clef_set_training(m, false);
    float *z = values(clef_forward(m, x));
    cr_expect_float_eq(z[0], (xv[0] - mean[0]) / sqrt(var[0] + 1e-5), 1e-5);
    clef_end_step(ctx);
    cr_expect_eq(clef_item(clef_parameter(m, "num_batches_tracked")), 1, "evaluation must not count batches");
    free(xv), free(y), free(z), free(mean), free(var);
    cr_expect_null(run_on(m, CLEF_SHAPE(4, 3)));
    expect_error(ctx, CLEF_SHAPE, "batch_norm2d: x has 2 dimensions");
    clef_set_training(m, true);
    cr_expect_null(run_on(m, CLEF_SHAPE(4, 2, 5, 5)));
    clef_clear_error(ctx);
    cr_expect_eq(clef_item(clef_parameter(m, "num_batches_tracked")), 1, "a batch that was refused does not count");
    cr_expect_null(clef_nn_batch_norm2d(ctx, 3, &(clef_nn_norm_options){.eps = NAN}));
    expect_error(ctx, CLEF_INVALID, "batch_norm2d: 3 channels, eps nan");
    cr_expect_null(clef_nn_batch_norm2d(ctx, 3, &(clef_nn_norm_options){.momentum = NAN}));
    expect_error(ctx, CLEF_INVALID, "momentum nan");
}

Test(layers, batch_norm2d_without_affine) {
    clef_module *m = clef_nn_batch_norm2d(ctx, 2, &(clef_nn_norm_options){.no_affine = true, .momentum = 0.5, .eps = 1e-3});
    cr_assert_eq(clef_module_tensors(m), 3);
    expect_tensor(m, 0, "running_mean", CLEF_SHAPE(2), true);
    float *y = values(clef_forward(m, clef_full(ctx, CLEF_SHAPE(1, 2, 2, 2), CLEF_F32, 3)));
    cr_expect_float_eq(y[0], 0, 1e-6);
    clef_end_step(ctx);
    float *mean = values(clef_parameter(m, "running_mean"));
    cr_expect_float_eq(mean[1], 1.5, 1e-6);
    free(y), free(mean);
}

Test(layers, batch_norm1d) {
    clef_module *m = clef_nn_batch_norm1d(ctx, 3, NULL);
    cr_assert_eq(clef_module_tensors(m), 5);
    expect_tensor(m, 0, "weight", CLEF_SHAPE(3), false);
    expect_tensor(m, 2, "running_mean", CLEF_SHAPE(3), true);
    expect_shape(run_on(m, CLEF_SHAPE(4, 3)), CLEF_SHAPE(4, 3));
    expect_shape(run_on(m, CLEF_SHAPE(1, 3, 5)), CLEF_SHAPE(1, 3, 5));
    cr_assert_eq(clef_end_step(ctx), CLEF_OK);
    cr_expect_eq(clef_item(clef_parameter(m, "num_batches_tracked")), 2);
    cr_expect_null(run_on(m, CLEF_SHAPE(4, 3, 2, 2)));
    expect_error(ctx, CLEF_SHAPE, "batch_norm1d: x has 4 dimensions; it wants [n,c] or [n,c,l]");
    cr_expect_null(run_on(m, CLEF_SHAPE(1, 3)));
    expect_error(ctx, CLEF_SHAPE, "batch_norm: training needs more than one value per channel");
    cr_expect_null(clef_nn_batch_norm1d(ctx, 0, NULL));
    expect_error(ctx, CLEF_INVALID, "batch_norm1d: 0 channels");
}

Test(layers, instance_norm2d) {
    cr_expect_eq(clef_module_tensors(clef_nn_instance_norm2d(ctx, 3, NULL)), 0, "PyTorch's has no parameters by itself");
    clef_module *m = clef_nn_instance_norm2d(ctx, 3, &(clef_nn_instance_norm_options){.affine = true});
    cr_assert_eq(clef_module_tensors(m), 2);
    expect_tensor(m, 0, "weight", CLEF_SHAPE(3), false);
    expect_tensor(m, 1, "bias", CLEF_SHAPE(3), false);
    expect_shape(run_on(m, CLEF_SHAPE(2, 3, 4, 5)), CLEF_SHAPE(2, 3, 4, 5));
    cr_expect_null(run_on(m, CLEF_SHAPE(2, 4, 4, 5)));
    expect_error(ctx, CLEF_SHAPE, "instance_norm2d: x [2,4,4,5] is not [n,3,h,w]");
    cr_expect_null(clef_nn_instance_norm2d(ctx, 3, &(clef_nn_instance_norm_options){.eps = -1}));
    expect_error(ctx, CLEF_INVALID, "instance_norm2d: 3 channels, eps -1");
}

Test(layers, prelu) {
    clef_module *m = clef_nn_prelu(ctx, 3, 0.25);
    cr_assert_eq(clef_module_tensors(m), 1);
    expect_tensor(m, 0, "weight", CLEF_SHAPE(3), false);
    cr_expect_eq(clef_item(clef_sum(clef_parameter(m, "weight"), NULL, 0, false)), 0.75);
    cr_expect_null(run_on(m, CLEF_SHAPE(2, 4)));
    expect_error(ctx, CLEF_SHAPE, "prelu: weight [3] is neither one number nor one for each channel of x [2,4]");
    cr_expect_null(clef_nn_prelu(ctx, 0, 0.25));
    expect_error(ctx, CLEF_INVALID, "prelu: 0 slopes");
}

Test(layers, layer_norm) {
    clef_module *m = clef_nn_layer_norm(ctx, CLEF_SHAPE(2, 3), NULL);
    expect_tensor(m, 0, "weight", CLEF_SHAPE(2, 3), false);
    expect_tensor(m, 1, "bias", CLEF_SHAPE(2, 3), false);
    expect_shape(run_on(m, CLEF_SHAPE(5, 2, 3)), CLEF_SHAPE(5, 2, 3));
    clef_module *plain = clef_nn_layer_norm(ctx, CLEF_SHAPE(4), &(clef_nn_norm_options){.no_affine = true});
    cr_expect_eq(clef_module_tensors(plain), 0);
    float *y = values(clef_forward(plain, clef_arange(ctx, 0, 4, 1, CLEF_F32)));
    cr_expect_float_eq(y[3], 1.5 / sqrt(1.25 + 1e-5), 1e-5);
    free(y);
    cr_expect_null(run_on(plain, CLEF_SHAPE(4, 3)));
    expect_error(ctx, CLEF_SHAPE, "layer_norm: x [4,3] does not end in the normalised shape [4]");
}

Test(layers, rms_norm) {
    clef_module *m = clef_nn_rms_norm(ctx, CLEF_SHAPE(2, 3), NULL);
    cr_assert_eq(clef_module_tensors(m), 1);
    expect_tensor(m, 0, "weight", CLEF_SHAPE(2, 3), false);
    float *y = values(clef_forward(m, clef_full(ctx, CLEF_SHAPE(5, 2, 3), CLEF_F32, 1e-3)));
    cr_expect_float_eq(y[29], 1e-3 / sqrt(1e-6 + 0x1p-23), 1e-5, "the usual eps is 2^-23");
    free(y);
    clef_module *plain = clef_nn_rms_norm(ctx, CLEF_SHAPE(2), &(clef_nn_norm_options){.no_affine = true, .eps = 3.5});
    cr_expect_eq(clef_module_tensors(plain), 0);
    y = values(clef_forward(plain, clef_arange(ctx, 0, 2, 1, CLEF_F32)));
    cr_expect_float_eq(y[1], 0.5, 1e-6);
    free(y);
    cr_expect_null(run_on(plain, CLEF_SHAPE(4, 3)));
    expect_error(ctx, CLEF_SHAPE, "rms_norm: x [4,3] does not end in the normalised shape [2]");
    cr_expect_null(clef_nn_rms_norm(ctx, CLEF_SHAPE(2), &(clef_nn_norm_options){.eps = -1}));
    expect_error(ctx, CLEF_INVALID, "rms_norm: the normalised shape");
}

Test(layers, group_norm) {
    clef_module *m = clef_nn_group_norm(ctx, 2, 4, NULL);
    expect_tensor(m, 0, "weight", CLEF_SHAPE(4), false);
    expect_tensor(m, 1, "bias", CLEF_SHAPE(4), false);
    float *y = values(clef_forward(m, clef_reshape(clef_arange(ctx, 0, 8, 1, CLEF_F32), CLEF_SHAPE(1, 4, 2))));
    cr_expect_float_eq(y[3], 1.5 / sqrt(1.25 + 1e-5), 1e-5);
    cr_expect_float_eq(y[4], -1.5 / sqrt(1.25 + 1e-5), 1e-5);
    free(y);
    cr_expect_eq(clef_module_tensors(clef_nn_group_norm(ctx, 4, 4, &(clef_nn_norm_options){.no_affine = true})), 0);
    cr_expect_null(run_on(m, CLEF_SHAPE(2, 6, 3)));
    expect_error(ctx, CLEF_SHAPE, "group_norm: x [2,6,3] is not [n,4,...]");
    cr_expect_null(clef_nn_group_norm(ctx, 3, 4, NULL));
    expect_error(ctx, CLEF_INVALID, "group_norm: 3 groups of 4 channels");
}

Test(layers, dropout) {
    clef_module *m = clef_nn_dropout(ctx, 0.25);
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(4001), CLEF_F32);
    float *y = values(clef_forward(m, x));
    int zeros = 0;
    for (int i = 0; i < 4001; i++) {
        zeros += y[i] == 0;
        cr_assert(y[i] == 0 || fabs(y[i] - 4.0 / 3) < 1e-6);
    }
    cr_expect(zeros > 850 && zeros < 1150, "%d of 4001 dropped", zeros);
    clef_set_training(m, false);
    cr_expect_eq(clef_forward(m, x), x);
    free(y);
    cr_expect_null(clef_nn_dropout(ctx, 1.5));
    expect_error(ctx, CLEF_INVALID, "dropout: the probability 1.5");
}

Test(layers, embedding) {
    clef_module *m = clef_nn_embedding(ctx, 10, 4);
    expect_tensor(m, 0, "weight", CLEF_SHAPE(10, 4), false);
    clef_tensor *y = clef_forward(m, clef_from_host(ctx, CLEF_SHAPE(2), CLEF_I64, (int64_t[]){7, 0}));
    expect_shape(y, CLEF_SHAPE(2, 4));
    float *w = values(clef_parameter(m, "weight")), *yv = values(y);
    cr_expect_arr_eq(yv, w + 28, 4 * sizeof(float));
    cr_expect_arr_eq(yv + 4, w, 4 * sizeof(float));
    free(w), free(yv);
}

Test(layers, activations) {
    clef_tensor *x = clef_from_host(ctx, CLEF_SHAPE(1, 2), CLEF_F32, (float[]){-1, 2});
    const struct {
        clef_module *m;
        const char *type;
        double at2;
    } row[] = {{clef_nn_relu(ctx), "relu", 2},
               {clef_nn_gelu(ctx), "gelu", 1.9544997361036416},
               {clef_nn_silu(ctx), "silu", 1.7615941559557649},
               {clef_nn_sigmoid(ctx), "sigmoid", 0.8807970779778823},
               {clef_nn_tanh(ctx), "tanh", 0.9640275800758169},
               {clef_nn_softmax(ctx, -1), "softmax", 0.9525741268224334},
               {clef_nn_activation(ctx, "square", clef_square), "square", 4},
               {clef_nn_activation_with(ctx, "softshrink", clef_softshrink, 0.5), "softshrink", 1.5},
               {clef_nn_activation_with_two(ctx, "threshold", clef_threshold, 2, 7), "threshold", 7}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        float *y = values(clef_forward(row[i].m, x));
        cr_expect_float_eq(y[1], row[i].at2, 1e-6, "%s(2) = %.9g", row[i].type, y[1]);
        cr_expect_str_eq(clef_module_type(row[i].m), row[i].type);
        free(y);
    }
    cr_expect_null(clef_nn_activation_with(ctx, "elu", NULL, 1));
    expect_error(ctx, CLEF_INVALID, "activation: type and function must not be NULL");
}

Test(layers, residual) {
    clef_module *half = clef_nn_activation(ctx, "neg", clef_neg), *twice = clef_nn_activation(ctx, "square", clef_square);
    clef_tensor *x = clef_from_host(ctx, CLEF_SHAPE(2), CLEF_F32, (float[]){0.5f, 3});
    float *y = values(clef_forward(clef_nn_residual(ctx, half, twice, true), x));
    cr_expect_eq(y[0], 0);
    cr_expect_eq(y[1], 6);
    float *z = values(clef_forward(clef_nn_residual(ctx, twice, NULL, false), x));
    cr_expect_eq(z[0], 0.75f);
    cr_expect_eq(z[1], 12);
    free(y), free(z);
    clef_module *named = clef_nn_residual(ctx, clef_nn_linear(ctx, 2, 2, NULL),
                                          clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 2, 2, NULL))), false);
    cr_expect_str_eq(clef_module_tensor(named, 0).name, "body.weight");
    cr_expect_str_eq(clef_module_tensor(named, 3).name, "shortcut.0.bias");
    cr_expect_null(clef_nn_residual(ctx, NULL, NULL, false));
    expect_error(ctx, CLEF_INVALID, "residual: body is NULL");
}
