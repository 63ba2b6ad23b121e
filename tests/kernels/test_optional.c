/* test_optional.c — inputs that may be CLEF_NONE: what ones or zeros in their place give, with gradients, in every dtype; and the
   names that did so before. ctest: cost=20 */
#include "support/numbers.h"

static clef_context *ctx;
static void open_context(void) { ctx = open_seeded(1); }
static void close_context(void) { clef_close(ctx); }
TestSuite(optional, .init = open_context, .fini = close_context);

static clef_tensor *linear(clef_tensor *const *in) { return clef_linear(in[0], in[1], in[2]); }
static clef_tensor *conv2d(clef_tensor *const *in) { return clef_conv2d(in[0], in[1], in[2], NULL); }
static clef_tensor *layer_norm(clef_tensor *const *in) { return clef_layer_norm(in[0], 1, in[1], in[2], 1e-5); }
static clef_tensor *batch_norm(clef_tensor *const *in) {
    clef_shape shape = CLEF_SHAPE(clef_tensor_shape(in[0]).dim[1]);
    return clef_batch_norm(in[0], in[1], in[2], clef_full(ctx, shape, CLEF_F32, 0.25), clef_full(ctx, shape, CLEF_F32, 2), false,
                           0.1, 1e-5);
}

typedef struct benchmark {
    const char *name;
    clef_tensor *(*make)(clef_tensor *const *in);
    clef_shape shape[3];
    int optional;     /* bit i: input i may be CLEF_NONE */
    double absent[3]; /* what then stands in its place */
} benchmark;
static const benchmark benchmarks[] = {{"linear", linear, {{2, {5, 7}}, {2, {3, 7}}, {1, {3}}}, 4, {0}},
                                       {"conv2d", conv2d, {{4, {2, 3, 6, 5}}, {4, {4, 3, 3, 3}}, {1, {4}}}, 4, {0}},
                                       {"layer_norm", layer_norm, {{2, {5, 9}}, {1, {9}}, {1, {9}}}, 6, {0, 1, 0}},
                                       {"batch_norm", batch_norm, {{3, {3, 4, 5}}, {1, {4}}, {1, {4}}}, 6, {0, 1, 0}}};

static void expect_same(clef_tensor *a, clef_tensor *b, const char *op, const char *what, int absent, clef_dtype dtype) {
    cr_assert(a && b, "%s: %s", op, clef_error(ctx));
    cr_assert(clef_shape_equal(clef_tensor_shape(a), clef_tensor_shape(b)) && clef_tensor_dtype(a) == clef_tensor_dtype(b));
    double *have = numbers(a), *want = numbers(b);
    for (int64_t i = 0; i < clef_numel(a); i++)
        cr_expect(have[i] == want[i], "%s %s, absent %d, %s: [%d] is %.9g, not %.9g", op, clef_dtype_name(dtype), absent, what,
                  (int)i, have[i], want[i]);
    free(have), free(want);
}

/* `absent`: bit i is set where input i is CLEF_NONE. */
static void check(const benchmark *s, clef_dtype dtype, int absent, bool again) {
    bool floating = dtype == CLEF_F32 || dtype == CLEF_F16 || dtype == CLEF_BF16 || dtype == CLEF_F64;
    clef_tensor *in[3], *full[3], *leaf[3], *d[2][3];
    int n = 0;
    for (int i = 0; i < 3; i++) {
        double *v = spread(clef_shape_numel(s->shape[i]), -3, 4, 10 + (uint64_t)i);
        for (int64_t k = 0; k < clef_shape_numel(s->shape[i]); k++) v[k] = absent >> i & 1 ? s->absent[i] : rint(2 * v[k]);
        full[i] = in[i] = clef_keep(tensor_of(ctx, s->shape[i], dtype, v));
        if (absent >> i & 1) in[i] = CLEF_NONE;
        else if (floating) leaf[n++] = clef_require_grad(in[i], true);
        free(v);
    }
    clef_tensor *y = s->make(in), *want = s->make(full);
    expect_same(y, want, s->name, "result", absent, dtype);
    clef_tensor *g = clef_to(clef_sub_scalar(clef_rand(ctx, clef_tensor_shape(y)), 0.5), dtype);
    if (n) {
        cr_assert(clef_grad(y, g, leaf, n, again, d[0]) == CLEF_OK && clef_grad(want, g, leaf, n, again, d[1]) == CLEF_OK, "%s",
                  clef_error(ctx));
        for (int i = 0; i < n; i++) expect_same(d[0][i], d[1][i], s->name, "gradient", absent, dtype);
    }
    for (int i = 0; i < 3; i++) clef_release(full[i]);
    clef_end_step(ctx);
}

Test(optional, as_ones_and_zeros) {
    for (size_t i = 0; i < sizeof benchmarks / sizeof *benchmarks; i++) {
        const benchmark *s = &benchmarks[i];
        for (int d = 0; d < float_dtypes_here(ctx); d++) check(s, float_dtypes[d], s->optional, false);
        if (few_kernels()) continue;
        for (int absent = 2; s->optional == 6 && absent < 6; absent += 2)
            check(s, CLEF_F32, absent, false), check(s, CLEF_F32, absent, true);
        if (s->optional == 4) check(s, CLEF_I32, s->optional, false);
    }
}

Test(optional, a_batch_norm_without_weight_and_bias_is_the_plan_of_ones_and_zeros) {
    clef_tensor *x = noise_tensor(ctx, CLEF_SHAPE(3, 4, 5), 1), *w = clef_ones(ctx, CLEF_SHAPE(4), CLEF_F32),
                *b = clef_zeros(ctx, CLEF_SHAPE(4), CLEF_F32);
    char *plan = strdup(plan_text(batch_norm((clef_tensor *[]){x, CLEF_NONE, CLEF_NONE})));
    cr_expect_str_eq(plan_text(batch_norm((clef_tensor *[]){x, w, b})), plan);
    free(plan);
}

Test(optional, a_shape_that_does_not_fit_is_named) {
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(3, 4), CLEF_F32), *bad = clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32);
    cr_expect_null(clef_layer_norm(x, 1, CLEF_NONE, bad, 1e-5));
    expect_error(ctx, CLEF_SHAPE, "layer_norm: bias [3] must be [4], the last dimensions of x [3,4]");
    cr_expect_null(batch_norm((clef_tensor *[]){x, CLEF_NONE, bad}));
    expect_error(ctx, CLEF_SHAPE, "batch_norm: bias [3] must be [4], the channels of x [3,4]");
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

Test(optional, deprecated_names_do_the_same) {
    clef_tensor *x = noise_tensor(ctx, CLEF_SHAPE(1, 2, 4, 4), 1), *w = noise_tensor(ctx, CLEF_SHAPE(3, 2, 3, 3), 2),
                *b = noise_tensor(ctx, CLEF_SHAPE(3), 3);
    clef_tensor *m = noise_tensor(ctx, CLEF_SHAPE(5, 4), 4);
    expect_same(clef_conv2d_bias(x, w, b, NULL), clef_conv2d(x, w, b, NULL), "conv2d", "result", 0, CLEF_F32);
    expect_same(clef_linear_no_bias(x, m), clef_linear(x, m, CLEF_NONE), "linear", "result", 4, CLEF_F32);
    expect_same(clef_layer_norm_plain(x, 2, 1e-5), clef_layer_norm(x, 2, CLEF_NONE, CLEF_NONE, 1e-5), "layer_norm", "result", 6,
                CLEF_F32);
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_dropout(ctx, 0.5)));
    clef_evaluation(net);
    cr_expect(!clef_is_training(net) && !clef_is_training(clef_module_child(net, "0")));
    clef_train(net);
    cr_expect(clef_is_training(net) && clef_is_training(clef_module_child(net, "0")));
}
