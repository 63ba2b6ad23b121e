/* What every function gives under autocast, against PyTorch (tests/expectations/autocast.def): a function of clef/ops.h or of the op tables that
   has no row there, or a row without a function here, does not compile or fails in frame/autocast.  And that it is the program with clef_to
   in these places, bit for bit, with its gradients.
   ctest: cost=60 plain */
#include "support/suite.h"

TestSuite(autocast, .init = open_device, .fini = close_device);

enum { MOST = 3 };

/* x [4,4], and w and v [16,4]; used once each, so that no sum of gradients is made in one dtype here and in another there. */
typedef clef_tensor *call(clef_tensor *x, clef_tensor *w, clef_tensor *v);
#define CALL(name, expression)                                                        \
    static clef_tensor *call_##name(clef_tensor *x, clef_tensor *w, clef_tensor *v) { \
        (void)x, (void)w, (void)v;                                                    \
        return expression;                                                            \
    }

static clef_tensor *beside(clef_tensor *w) { return clef_slice(w, 0, 0, 4, 1); }
static clef_tensor *bias(clef_tensor *v, int64_t n) { return clef_reshape(clef_slice(v, 0, 0, n / 4, 1), CLEF_SHAPE(n)); }
static clef_tensor *image(clef_tensor *x) { return clef_reshape(x, CLEF_SHAPE(1, 1, 4, 4)); }
static clef_tensor *heads(clef_tensor *x) { return clef_reshape(x, CLEF_SHAPE(1, 2, 2, 4)); }
static clef_tensor *sequence(clef_tensor *x) { return clef_reshape(x, CLEF_SHAPE(4, 1, 4)); }
static clef_tensor *channels(double value) { return clef_full(ctx, CLEF_SHAPE(4), CLEF_F32, value); }
static clef_tensor *places(clef_shape shape) {
    return clef_reshape(clef_remainder_scalar(clef_arange(ctx, 0, (double)clef_shape_numel(shape), 1, CLEF_I64), 4), shape);
}
static clef_tensor *whole(double n) { return clef_integer(ctx, (int64_t)n); }

/* ---- the op tables ---- */
#define UNARY(name, ...) CALL(name, clef_##name(x))
#define UNARY_P(name, ...) CALL(name, clef_##name(x, 0.3))
#define UNARY_PP(name, ...) CALL(name, clef_##name(x, 0.1, 0.7))
#include "unary.def"
#define BINARY(name, ...) CALL(name, clef_##name(x, beside(w)))
#include "binary.def"
CALL(where, clef_where(clef_gt_scalar(v, 0.5), w, clef_repeat(x, (int64_t[]){4, 1}, 2)))
CALL(lerp, clef_lerp(x, beside(w), beside(v)))

/* ---- clef/ops.h ---- */
#define OVER ((int[]){1}), 1, false
CALL(sum, clef_sum(x, OVER))
CALL(mean, clef_mean(x, OVER))
CALL(max, clef_max(x, OVER))
CALL(min, clef_min(x, OVER))
CALL(prod, clef_prod(x, OVER))
CALL(var, clef_var(x, OVER, 1))
CALL(std, clef_std(x, OVER, 1))
CALL(logsumexp, clef_logsumexp(x, OVER))
CALL(norm, clef_norm(x, 3, OVER))
CALL(cosine_similarity, clef_cosine_similarity(x, beside(w), 1, 1e-8))
CALL(argmax, clef_argmax(x, 1, false))
CALL(argmin, clef_argmin(x, 1, false))
CALL(reshape, clef_reshape(x, CLEF_SHAPE(16)))
CALL(flatten, clef_flatten(x, 0, 1))
CALL(squeeze, clef_squeeze(clef_reshape(x, CLEF_SHAPE(1, 16)), 0))
CALL(unsqueeze, clef_unsqueeze(x, 0))
CALL(transpose, clef_transpose(x, 0, 1))
CALL(permute, clef_permute(x, (int[]){1, 0}))
CALL(expand, clef_expand(x, CLEF_SHAPE(1, 4, 4)))
CALL(slice, clef_slice(x, 0, 1, 3, 1))
CALL(slice_at, clef_slice_at(x, 0, whole(1), 2))
CALL(slice_update, clef_slice_update(w, 0, whole(1), x))
CALL(flip, clef_flip(x, 0))
CALL(concat, clef_concat((clef_tensor *[]){x, w}, 2, 0))
CALL(stack, clef_stack((clef_tensor *[]){v, w}, 2, 0))
static clef_tensor *call_split(clef_tensor *x, clef_tensor *w, clef_tensor *v) {
    clef_tensor *part[2];
    (void)w, (void)v;
    return clef_split(x, 0, (int64_t[]){1, 3}, 2, part) == CLEF_OK ? part[1] : NULL;
}
CALL(pad, clef_pad(x, (int64_t[]){1, 0}, (int64_t[]){0, 2}, 0))
CALL(gather, clef_gather(x, 0, places(CLEF_SHAPE(4, 4))))
CALL(scatter_add, clef_scatter_add(w, 0, places(CLEF_SHAPE(4, 4)), x))
CALL(index_add, clef_index_add(w, 0, places(CLEF_SHAPE(4)), x))
CALL(scatter_reduce, clef_scatter_reduce(w, 0, places(CLEF_SHAPE(4, 4)), x, CLEF_SCATTER_MAX, true))
CALL(embedding, clef_embedding(x, places(CLEF_SHAPE(3))))
CALL(cumsum, clef_cumsum(x, 1))
CALL(cumprod, clef_cumprod(x, 1))
static clef_tensor *call_sort(clef_tensor *x, clef_tensor *w, clef_tensor *v) {
    clef_tensor *values = NULL, *at;
    (void)w, (void)v;
    clef_sort(x, 1, false, &values, &at);
    return values;
}
CALL(argsort, clef_argsort(x, 1, false))
static clef_tensor *call_topk(clef_tensor *x, clef_tensor *w, clef_tensor *v) {
    clef_tensor *values = NULL, *at;
    (void)w, (void)v;
    clef_topk(x, 2, 1, true, &values, &at);
    return values;
}
CALL(tril, clef_tril(x, 0))
CALL(triu, clef_triu(x, 0))
CALL(where_scalar, clef_where_scalar(clef_gt_scalar(beside(w), 0.5), x, 1))
CALL(masked_fill, clef_masked_fill(x, clef_gt_scalar(beside(w), 0.5), 1))
CALL(index_select, clef_index_select(x, 0, places(CLEF_SHAPE(3))))
CALL(scatter, clef_scatter(w, 0, places(CLEF_SHAPE(4, 4)), x))
CALL(scatter_value, clef_scatter_value(x, 0, places(CLEF_SHAPE(4, 4)), 0.25))
CALL(prelu, clef_prelu(x, bias(v, 4)))
CALL(repeat, clef_repeat(x, (int64_t[]){2, 1}, 2))
CALL(repeat_interleave, clef_repeat_interleave(x, 2, 0))
CALL(matmul, clef_matmul(w, x))
CALL(linear, clef_linear(x, w, bias(v, 16)))
CALL(conv2d, clef_conv2d(image(x), clef_reshape(beside(w), CLEF_SHAPE(4, 1, 2, 2)), bias(v, 4), NULL))
CALL(conv1d, clef_conv1d(clef_unsqueeze(x, 0), clef_reshape(beside(w), CLEF_SHAPE(4, 4, 1)), bias(v, 4), NULL))
CALL(conv_transpose2d, clef_conv_transpose2d(image(x), clef_reshape(beside(w), CLEF_SHAPE(1, 4, 2, 2)), bias(v, 4), NULL))
CALL(max_pool2d, clef_max_pool2d(image(x), 2, 2, NULL))
CALL(avg_pool2d, clef_avg_pool2d(image(x), 2, 2, NULL))
CALL(adaptive_avg_pool2d, clef_adaptive_avg_pool2d(image(x), 3, 3))
CALL(global_avg_pool2d, clef_global_avg_pool2d(image(x)))
CALL(upsample_nearest2d, clef_upsample_nearest2d(image(x), 2, 2))
CALL(softmax, clef_softmax(x, 1))
CALL(log_softmax, clef_log_softmax(x, 1))
CALL(layer_norm, clef_layer_norm(x, 1, channels(2), channels(1), 1e-5))
CALL(batch_norm, clef_batch_norm(x, channels(2), channels(1), clef_keep(channels(0)), clef_keep(channels(1)), true, 0.1, 1e-5))
CALL(rms_norm, clef_rms_norm(x, 1, channels(2), 1e-6))
CALL(group_norm, clef_group_norm(clef_unsqueeze(x, 0), 2, channels(2), channels(1), 1e-5))
CALL(instance_norm, clef_instance_norm(clef_unsqueeze(x, 0), channels(2), channels(1), 1e-5))
CALL(dropout, (clef_seed(ctx, 3), clef_dropout(x, 0.4)))
CALL(attention, clef_attention(heads(x), heads(beside(w)), heads(beside(v)), &(clef_attention_options){.causal = true}))
CALL(rotary, clef_rotary(heads(x), whole(3), NULL))
static clef_tensor *both(clef_tensor *y, clef_tensor *h) { return clef_concat((clef_tensor *[]){y, h}, 2, 0); }
static clef_tensor *call_rnn(clef_tensor *x, clef_tensor *w, clef_tensor *v) {
    clef_recurrent_weights own = {beside(w), clef_slice(v, 0, 0, 4, 1), bias(clef_slice(v, 0, 4, 5, 1), 4), CLEF_NONE, NULL, NULL};
    clef_tensor *y, *h, *h0 = clef_reshape(clef_slice(v, 0, 5, 6, 1), CLEF_SHAPE(1, 1, 4));
    clef_rnn(sequence(x), h0, &own, 1, NULL, &y, &h);
    return both(y, h);
}
/* With an activation that is f32 where it stands alone: step by step, in other ops. */
static clef_tensor *call_gru(clef_tensor *x, clef_tensor *w, clef_tensor *v) {
    clef_recurrent_weights own = {clef_slice(w, 0, 0, 12, 1), clef_slice(v, 0, 0, 12, 1), NULL, NULL, NULL, NULL};
    clef_recurrent_options o = {.activations = {{{.name = "Softplus"}}}};
    clef_tensor *y, *h;
    clef_gru(sequence(x), CLEF_NONE, &own, 1, &o, &y, &h);
    return both(y, h);
}
static clef_tensor *call_lstm(clef_tensor *x, clef_tensor *w, clef_tensor *v) {
    clef_recurrent_weights own = {w, v, NULL, NULL, NULL, NULL};
    clef_tensor *y, *h, *c;
    clef_lstm(sequence(x), CLEF_NONE, CLEF_NONE, &own, 1, NULL, &y, &h, &c);
    return both(y, c);
}
CALL(reorder_gates, clef_reorder_gates(x, "zr", "rz"))
CALL(cross_entropy, clef_cross_entropy(x, places(CLEF_SHAPE(4)), NULL))
CALL(nll_loss, clef_nll_loss(x, places(CLEF_SHAPE(4)), NULL))
CALL(mse_loss, clef_mse_loss(x, beside(w), NULL))
CALL(l1_loss, clef_l1_loss(x, beside(w), NULL))
CALL(huber_loss, clef_huber_loss(x, beside(w), NULL))
CALL(kl_div, clef_kl_div(x, beside(w), NULL))
CALL(bce_with_logits, clef_bce_with_logits(x, beside(w), NULL))
static const clef_custom_op cube = {.name = "cube", .forward = "x*x*x", .backward = {"K(3)*x*x*g"}};
CALL(custom, clef_custom(&cube, &x, 1))

typedef struct row {
    const char *name;
    call *fn;
    clef_dtype of_half, of_single; /* what it gives under autocast to f16 */
} row;
#define AUTOCAST(name, of_half, of_single) {#name, call_##name, CLEF_##of_half, CLEF_##of_single},
#define LOSSES(...)
static const row rows[] = {
#include "../expectations/autocast.def"
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Values and gradients; as bytes. */
typedef struct found {
    int64_t n;
    float value[256], slope[MOST][64];
} found;

/* Numbers in (0,1), where all functions but acosh have values. */
static clef_tensor *leaf(clef_shape shape, uint64_t salt, clef_dtype dtype) {
    clef_tensor *t = clef_add_scalar(clef_mul_scalar(noise_tensor(ctx, shape, salt), 0.45), 0.5);
    return clef_require_grad(clef_keep(clef_to(t, dtype)), true);
}

static clef_dtype dtype_of(const row *r, clef_dtype given, clef_dtype autocast) {
    clef_tensor *x = clef_zeros(ctx, CLEF_SHAPE(4, 4), given), *w = clef_zeros(ctx, CLEF_SHAPE(16, 4), given);
    clef_set_autocast(ctx, autocast);
    clef_tensor *y = r->fn(x, w, clef_copy(w));
    clef_set_autocast(ctx, CLEF_F32);
    cr_assert(y, "%s: %s", r->name, clef_error(ctx));
    return clef_tensor_dtype(y);
}

/* Of inputs of dtype `given`, which the program itself converts to `to`. */
static found run(const row *r, clef_dtype given, clef_dtype to, clef_dtype autocast) {
    found f = {0};
    clef_tensor *own[MOST] = {leaf(CLEF_SHAPE(4, 4), 1, given), leaf(CLEF_SHAPE(16, 4), 2, given),
                              leaf(CLEF_SHAPE(16, 4), 3, given)};
    cr_assert_eq(clef_set_autocast(ctx, autocast), CLEF_F32);
    clef_tensor *y = r->fn(clef_to(own[0], to), clef_to(own[1], to), clef_to(own[2], to));
    cr_assert_eq(clef_set_autocast(ctx, CLEF_F32), autocast, "%s", r->name);
    cr_assert(y, "%s: %s", r->name, clef_error(ctx));
    f.n = clef_numel(y);
    clef_tensor *wide = clef_to(y, CLEF_F32),
                *loss = clef_sum(clef_mul(wide, noise_tensor(ctx, clef_tensor_shape(y), 7)), NULL, 0, false);
    if (clef_requires_grad(loss)) cr_assert_eq(clef_backward(loss), CLEF_OK, "%s: %s", r->name, clef_error(ctx));
    cr_assert_eq(clef_read(wide, f.value, (size_t)f.n * sizeof(float)), CLEF_OK, "%s: %s", r->name, clef_error(ctx));
    for (int i = 0; i < MOST; i++) {
        clef_tensor *g = clef_grad_of(own[i]);
        if (g)
            cr_expect_eq(clef_tensor_dtype(g), given, "%s: gradient %d is %s", r->name, i, clef_dtype_name(clef_tensor_dtype(g)));
        if (g) clef_read(clef_to(g, CLEF_F32), f.slope[i], (size_t)clef_numel(g) * sizeof(float));
        clef_release(own[i]);
    }
    clef_end_step(ctx);
    return f;
}

static clef_dtype lowered(clef_dtype dtype, clef_dtype low) { return dtype == CLEF_F16 ? low : dtype; }

/* Values are compared where there is something to cast, and in what stays as it is, where there might be. */
static void check(const row *r, clef_dtype low, bool values) {
    bool casts = r->of_half == r->of_single && (r->of_half == CLEF_F16 || r->of_half == CLEF_F32);
    clef_dtype to = lowered(r->of_half, low), given = casts && to == CLEF_F32 ? low : CLEF_F32;
    for (int half = 0; half < 2; half++) {
        clef_dtype of = half ? low : CLEF_F32, want = lowered(half ? r->of_half : r->of_single, low), have = dtype_of(r, of, low);
        cr_expect_eq(have, want, "%s of %s gives %s, not %s", r->name, clef_dtype_name(of), clef_dtype_name(have),
                     clef_dtype_name(want));
    }
    if (!values) return;
    found on = run(r, given, given, low), by_hand = run(r, given, casts ? to : given, CLEF_F32);
    cr_expect(on.n == by_hand.n && !memcmp(on.value, by_hand.value, sizeof on.value), "%s: other values", r->name);
    for (int i = 0; i < MOST; i++)
        cr_expect(!memcmp(on.slope[i], by_hand.slope[i], sizeof on.slope[i]), "%s: other gradients of input %d", r->name, i);
}

Test(autocast, every_function_f16) {
    for (int i = 0; i < ROWS; i++) check(&rows[i], CLEF_F16, !few_kernels() || i % 8 == 0);
}
/* Kernels are those of f16 with another type. */
Test(autocast, every_function_bf16) {
    for (int i = 0; i < ROWS; i++) check(&rows[i], CLEF_BF16, i % 8 == 0);
}

/* Whole numbers and f64 stay: in products, too. */
Test(autocast, leaves_other_types_alone) {
    clef_dtype dtypes[] = {CLEF_I32, CLEF_I64, CLEF_F64};
    clef_device_info info;
    cr_assert(clef_context_device(ctx, 0, &info));
    clef_set_autocast(ctx, CLEF_F16);
    for (int i = 0; i < (info.f64 ? 3 : 2); i++) {
        clef_tensor *x = clef_to(clef_ones(ctx, CLEF_SHAPE(2, 2), CLEF_F32), dtypes[i]);
        cr_expect_eq(clef_tensor_dtype(clef_matmul(x, x)), dtypes[i]);
        cr_expect_eq(clef_tensor_dtype(clef_sum(x, NULL, 0, false)), dtypes[i] == CLEF_F64 ? CLEF_F64 : CLEF_I64);
        cr_expect_eq(clef_item(clef_sum(clef_matmul(x, x), NULL, 0, false)), 8);
    }
    /* a half type that is not the one of autocast becomes it */
    clef_tensor *other = clef_ones(ctx, CLEF_SHAPE(2, 2), CLEF_BF16);
    cr_expect_eq(clef_tensor_dtype(clef_matmul(other, clef_ones(ctx, CLEF_SHAPE(2, 2), CLEF_F32))), CLEF_F16);
    clef_set_autocast(ctx, CLEF_F32);
}

/* A fraction is that of f32, not of f16 made f32. */
Test(autocast, numbers_beside_tensors_are_f32) {
    clef_tensor *x = clef_full(ctx, CLEF_SHAPE(1), CLEF_F16, 3);
    clef_set_autocast(ctx, CLEF_F16);
    clef_tensor *y = clef_pow_scalar(x, 0.1);
    clef_set_autocast(ctx, CLEF_F32);
    cr_expect_float_eq(clef_item(clef_reshape(y, CLEF_SCALAR)), pow(3, (double)0.1f), 1e-6);
}

/* Settings nest, and neither a step nor an error changes them; they are each context's own. */
Test(autocast, settings) {
    clef_context *other = open_seeded(2);
    cr_expect_eq(clef_get_autocast(ctx), CLEF_F32);
    cr_expect_eq(clef_set_autocast(ctx, CLEF_F16), CLEF_F32);
    clef_dtype was = clef_set_autocast(ctx, CLEF_BF16);
    cr_expect_eq(was, CLEF_F16);
    cr_expect_eq(clef_get_autocast(other), CLEF_F32);
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(2, 3), CLEF_F32);
    cr_expect(!clef_matmul(x, x) && !clef_attention(x, x, x, NULL) && clef_get_autocast(ctx) == CLEF_BF16);
    expect_error(ctx, CLEF_SHAPE, "matmul: a has 3 columns but b has 2 rows (a [2,3], b [2,3])");
    clef_recurrent_weights none = {x, x, NULL, NULL, NULL, NULL};
    clef_tensor *y;
    cr_expect(clef_rnn(clef_reshape(x, CLEF_SHAPE(2, 1, 3)), CLEF_NONE, &none, 1, NULL, &y, NULL) &&
              clef_get_autocast(ctx) == CLEF_BF16);
    clef_clear_error(ctx);
    clef_end_step(ctx);
    cr_expect_eq(clef_set_autocast(ctx, CLEF_I32), CLEF_BF16);
    expect_error(ctx, CLEF_DTYPE, "set_autocast: i32 is no low dtype; give CLEF_F16 or CLEF_BF16, or CLEF_F32 for off");
    cr_expect_eq(clef_set_autocast(ctx, was), CLEF_BF16);
    clef_tensor *z = clef_ones(ctx, CLEF_SHAPE(2, 2), CLEF_F32);
    cr_expect_eq(clef_tensor_dtype(clef_matmul(z, z)), CLEF_F16);
    cr_expect_eq(clef_set_autocast(ctx, CLEF_F32), CLEF_F16);
    cr_expect_eq(clef_tensor_dtype(clef_matmul(z, z)), CLEF_F32);
    cr_expect_eq(clef_set_autocast(NULL, CLEF_F16), CLEF_F32);
    cr_expect_eq(clef_get_autocast(NULL), CLEF_F32);
    close_clean(other);
}
