/* Nets under autocast: they learn as in PyTorch under its own (tests/expectations/autocast.def), a recomputed segment has the dtypes of the first
   run, derivatives of derivatives exist, and a weight is cast once.
   ctest: cost=30 together plain */
#include "support/suite.h"

TestSuite(autocast_nets, .init = open_device, .fini = close_device);

enum { STEPS = 24, MOST = 5, ITEMS = 16 };

/* ---- against PyTorch: autocast.py has the same nets ---- */

static clef_tensor *cnn(clef_tensor *const *p) {
    clef_tensor *h =
        clef_conv2d(noise_tensor(ctx, CLEF_SHAPE(ITEMS, 1, 8, 8), 90), p[0], p[1], &(clef_conv2d_options){.same = true});
    return clef_linear(clef_flatten(clef_max_pool2d(clef_relu(h), 2, 2, NULL), 1, -1), p[2], p[3]);
}

static clef_tensor *normed(clef_tensor *x) { return clef_layer_norm(x, 1, CLEF_NONE, CLEF_NONE, 1e-5); }

static clef_tensor *transformer(clef_tensor *const *p) {
    clef_tensor *x = noise_tensor(ctx, CLEF_SHAPE(ITEMS, 6, 16), 91), *part[3];
    clef_tensor *qkv = clef_reshape(clef_linear(normed(x), p[0], CLEF_NONE), CLEF_SHAPE(ITEMS, 6, 3, 2, 8));
    cr_assert_eq(clef_split(clef_permute(qkv, (int[]){2, 0, 3, 1, 4}), 0, (int64_t[]){1, 1, 1}, 3, part), CLEF_OK);
    for (int i = 0; i < 3; i++) part[i] = clef_squeeze(part[i], 0);
    clef_tensor *a = clef_transpose(clef_attention(part[0], part[1], part[2], NULL), 1, 2);
    x = clef_add(x, clef_linear(clef_reshape(a, CLEF_SHAPE(ITEMS, 6, 16)), p[1], CLEF_NONE));
    x = clef_add(x, clef_linear(clef_gelu(clef_linear(normed(x), p[2], CLEF_NONE)), p[3], CLEF_NONE));
    return clef_linear(clef_mean(x, (int[]){1}, 1, false), p[4], CLEF_NONE);
}

typedef struct net {
    clef_tensor *(*forward)(clef_tensor *const *p);
    int n;
    clef_shape shape[MOST];
    double lr;
} net;
static const net cnn_net = {cnn, 4, {{4, {4, 1, 3, 3}}, {1, {4}}, {2, {10, 64}}, {1, {10}}}, 0.3};
static const net transformer_net = {
    transformer, 5, {{2, {48, 16}}, {2, {16, 16}}, {2, {32, 16}}, {2, {16, 32}}, {2, {10, 16}}}, 0.2};

typedef struct curve {
    const char *name;
    const net *net;
    clef_dtype dtype;
    double loss[STEPS];
} curve;
#define AUTOCAST(...)
#define LOSSES(name, dtype, ...) {#name, &name##_net, CLEF_##dtype, {__VA_ARGS__}},
static const curve curves[] = {
#include "../expectations/autocast.def"
};

static void train(const curve *c) {
    clef_module *m = clef_module_new(ctx, c->name, NULL, NULL);
    clef_tensor *p[MOST];
    int64_t label[ITEMS];
    for (int i = 0; i < c->net->n; i++) {
        char name[8];
        snprintf(name, sizeof name, "p%d", i);
        clef_module_add_parameter(m, name, clef_mul_scalar(noise_tensor(ctx, c->net->shape[i], 10 + (uint64_t)i), 0.3));
        p[i] = clef_parameter(m, name);
    }
    for (int i = 0; i < ITEMS; i++) label[i] = i * 7 % 10;
    clef_optimizer *opt = clef_sgd(m, &(clef_sgd_options){.lr = c->net->lr});
    clef_grad_scaler *scaler = c->dtype == CLEF_F16 ? clef_grad_scaler_new(ctx, NULL) : NULL;
    for (int step = 0; step < STEPS; step++) {
        clef_set_autocast(ctx, c->dtype);
        clef_tensor *y = c->net->forward(p);
        clef_tensor *loss = clef_cross_entropy(y, clef_from_host(ctx, CLEF_SHAPE(ITEMS), CLEF_I64, label), NULL);
        clef_set_autocast(ctx, CLEF_F32);
        cr_assert(y && clef_tensor_dtype(y) == c->dtype && clef_tensor_dtype(loss) == CLEF_F32, "%s", clef_error(ctx));
        clef_backward(scaler ? clef_grad_scaler_scale(scaler, loss) : loss);
        for (int i = 0; i < c->net->n; i++) cr_expect_eq(clef_tensor_dtype(clef_grad_of(p[i])), CLEF_F32);
        cr_assert_eq(scaler ? clef_grad_scaler_step(scaler, opt) : clef_step(opt), CLEF_OK, "%s", clef_error(ctx));
        if (scaler) clef_grad_scaler_update(scaler);
        double have = clef_item(loss), most = c->dtype == CLEF_F32 ? 1e-4 : c->dtype == CLEF_F16 ? 4e-3 : 1.2e-2;
        cr_expect_float_eq(have, c->loss[step], most, "%s %s, step %d: %.7g, PyTorch %.7g", c->name, clef_dtype_name(c->dtype),
                           step, have, c->loss[step]);
    }
}

Test(autocast_nets, learn_as_in_pytorch) {
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++) train(&curves[i]);
}

/* ---- derivatives ---- */

/* d/dw of |d loss / d w|², through casts in both directions: close to those of f32, of f32, and the same bits as those of clef_to. */
static void second(clef_dtype low, bool by_hand, float out[16]) {
    clef_tensor *w = clef_require_grad(clef_keep(noise_tensor(ctx, CLEF_SHAPE(4, 4), 1)), true),
                *x = noise_tensor(ctx, CLEF_SHAPE(8, 4), 2), *dw, *ddw;
    if (!by_hand) clef_set_autocast(ctx, low);
    clef_tensor *h = by_hand ? clef_linear(clef_to(x, low), clef_to(w, low), CLEF_NONE) : clef_linear(x, w, CLEF_NONE);
    clef_tensor *y = clef_sum(clef_exp(by_hand ? clef_to(clef_tanh(h), CLEF_F32) : clef_tanh(h)), NULL, 0, false);
    clef_set_autocast(ctx, CLEF_F32);
    cr_assert_eq(clef_grad(y, CLEF_NONE, &w, 1, true, &dw), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(clef_grad(clef_sum(clef_square(dw), NULL, 0, false), CLEF_NONE, &w, 1, false, &ddw), CLEF_OK, "%s",
                 clef_error(ctx));
    cr_expect_eq(clef_tensor_dtype(dw), CLEF_F32);
    cr_expect_eq(clef_tensor_dtype(ddw), CLEF_F32);
    cr_assert_eq(clef_read(ddw, out, 16 * sizeof *out), CLEF_OK, "%s", clef_error(ctx));
    clef_release(w);
    clef_end_step(ctx);
}

Test(autocast_nets, second_derivatives) {
    float plain[16], cast[16], by_hand[16];
    second(CLEF_F32, false, plain);
    for (int i = 0; i < 2; i++) {
        clef_dtype low = i ? CLEF_BF16 : CLEF_F16;
        second(low, false, cast), second(low, true, by_hand);
        cr_expect_arr_eq(cast, by_hand, sizeof cast);
        for (int k = 0; k < 16; k++)
            cr_expect_float_eq(cast[k], plain[k], (i ? 0.1 : 0.02) * (10 + fabsf(plain[k])), "%g %g", cast[k], plain[k]);
    }
}

/* Gradients are made of the dtypes that forward had, whatever is set then; so is a gradient that another forward is made of. */
Test(autocast_nets, backward_does_not_depend_on_the_setting) {
    float slope[2][16];
    for (int on = 0; on < 2; on++) {
        clef_tensor *w = clef_require_grad(clef_keep(noise_tensor(ctx, CLEF_SHAPE(4, 4), 1)), true);
        clef_tensor *loss = clef_sum(clef_matmul(clef_matmul(w, noise_tensor(ctx, CLEF_SHAPE(4, 4), 2)), w), NULL, 0, false);
        if (on) clef_set_autocast(ctx, CLEF_BF16);
        cr_assert_eq(clef_backward(loss), CLEF_OK);
        clef_set_autocast(ctx, CLEF_F32);
        clef_read(clef_grad_of(w), slope[on], sizeof slope[on]);
        clef_release(w);
        clef_end_step(ctx);
    }
    cr_expect_arr_eq(slope[0], slope[1], sizeof slope[0]);
}

/* ---- modules ---- */

static clef_module *three_layers(void) {
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 12, 12, NULL), clef_nn_gelu(ctx),
                                            clef_nn_layer_norm(ctx, CLEF_SHAPE(12), NULL), clef_nn_dropout(ctx, 0.3),
                                            clef_nn_linear(ctx, 12, 12, NULL)));
}

/* The first weight's gradient; the middle layers are computed once more in backward, which is called after autocast was left. */
static void slope_of(bool recompute, clef_dtype low, float out[144]) {
    clef_seed(ctx, 5);
    clef_module *m = three_layers();
    if (recompute) clef_recompute(m, true);
    clef_set_autocast(ctx, low);
    clef_tensor *loss =
        clef_mse_loss(clef_forward(m, noise_tensor(ctx, CLEF_SHAPE(8, 12), 3)), noise_tensor(ctx, CLEF_SHAPE(8, 12), 4), NULL);
    clef_set_autocast(ctx, CLEF_F32);
    cr_assert_eq(clef_backward(loss), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(clef_read(clef_grad_of(clef_parameter(m, "0.weight")), out, 144 * sizeof *out), CLEF_OK, "%s", clef_error(ctx));
    clef_end_step(ctx);
}

Test(autocast_nets, recomputed_segments_have_the_same_dtypes) {
    for (int i = 0; i < 2; i++) {
        clef_dtype low = i ? CLEF_BF16 : CLEF_F16;
        float kept[144], again[144], wide[144];
        slope_of(false, low, kept), slope_of(true, low, again), slope_of(true, CLEF_F32, wide);
        cr_expect_arr_eq(kept, again, sizeof kept);
        cr_expect(memcmp(kept, wide, sizeof kept), "autocast did nothing");
    }
}

/* What a step of three products with one weight takes; by hand it is converted in one place. */
static clef_plan_size step_of(clef_tensor *w, clef_tensor *x, bool by_hand) {
    clef_plan_size size;
    clef_set_dry_run(ctx, true);
    clef_set_autocast(ctx, by_hand ? CLEF_F32 : CLEF_BF16);
    clef_tensor *low = by_hand ? clef_to(w, CLEF_BF16) : w, *y = clef_to(x, CLEF_BF16);
    for (int i = 0; i < 3; i++) y = clef_matmul(y, low);
    clef_set_autocast(ctx, CLEF_F32);
    cr_assert(clef_eval(y) == CLEF_OK && clef_plan_memory(ctx, &size) == CLEF_OK, "%s", clef_error(ctx));
    clef_set_dry_run(ctx, false);
    return size;
}

Test(autocast_nets, a_weight_is_cast_once) {
    clef_tensor *w = clef_keep(noise_tensor(ctx, CLEF_SHAPE(96, 96), 1)), *x = clef_keep(noise_tensor(ctx, CLEF_SHAPE(96, 96), 2));
    clef_plan_size own = step_of(w, x, false), hand = step_of(w, x, true);
    cr_expect_eq(own.launches, hand.launches, "%lld launches, by hand %lld", (long long)own.launches, (long long)hand.launches);
    cr_expect_eq(own.written_bytes, hand.written_bytes);
    cr_expect_eq(own.temporary_bytes, hand.temporary_bytes);
}
