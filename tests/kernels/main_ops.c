/* Every family of ops with its gradients, as a plain program for the sanitizers; once with buffers of exact size, once with
   the pool.  Whole numbers give sums that must be exact; elsewhere results must be finite.
   ctest: cost=30 plain */
#include "support/plain.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static clef_context *ctx;
static int failures;

static void fail(const char *what, double have, double want) {
    failures++;
    fprintf(stderr, "%s: %.9g instead of %.9g: %s\n", what, have, want, clef_error(ctx));
    clef_clear_error(ctx);
}

/* No text of Clef's own calls what it did not declare, which costs a program several times as long to compile. */
static void note(void *user, clef_log_level level, const char *line) {
    (void)user;
    (void)level;
    if (!strstr(line, "all declarations")) return;
    failures++;
    fprintf(stderr, "%s\n", line);
}

/* NaN as want: any finite number. */
static void expect(const char *what, double have, double want) {
    if (isnan(want) ? !isfinite(have) : have != want) fail(what, have, want);
}

static clef_tensor *whole(clef_shape shape, clef_dtype dtype, int modulus) {
    clef_tensor *i = clef_remainder_scalar(clef_arange(ctx, 0, (double)clef_shape_numel(shape), 1, CLEF_I32), modulus);
    return clef_keep(clef_to(clef_reshape(i, shape), dtype));
}

static double total(clef_tensor *t) { return clef_item(clef_sum(clef_to(t, CLEF_F32), NULL, 0, false)); }

static clef_tensor *leaf(clef_tensor *t) { return clef_require_grad(t, true); }

/* Differentiates the sum of y; checks y's sum and those of the gradients, and lets the leaves go. */
static void differentiate(const char *what, clef_tensor *y, double want, clef_tensor *const *leaves, const double *gradient,
                          int n) {
    clef_tensor *loss = clef_sum(clef_to(y, CLEF_F32), NULL, 0, false);
    clef_backward(loss);
    expect(what, clef_item(loss), want);
    for (int i = 0; i < n; i++) {
        expect(what, total(clef_grad_of(leaves[i])), gradient ? gradient[i] : NAN);
        clef_set_grad(leaves[i], CLEF_NONE);
        clef_release(leaves[i]);
    }
    clef_end_step(ctx);
}
#define LEAVES(...) \
    (clef_tensor *[]) { __VA_ARGS__ }
#define NUMBERS(...) \
    (double[]) { __VA_ARGS__ }

/* ---- pointwise ---- */
#define UNARY(name, ...) \
    if (strcmp(#name, "acosh")) y = clef_add(y, clef_to(clef_##name(x), CLEF_F32));
#define UNARY_P(name, ...) y = clef_add(y, clef_to(clef_##name(x, 0.3), CLEF_F32));
#define UNARY_PP(name, ...) y = clef_add(y, clef_to(clef_##name(x, -0.2, 0.4), CLEF_F32));
static clef_tensor *every_unary(clef_tensor *x) {
    clef_tensor *y = clef_scalar(ctx, 0);
#include "unary.def"
    return y;
}
#define BINARY(name, ...) y = clef_add(y, clef_to(clef_##name(a, b), CLEF_F32));
static clef_tensor *every_binary(clef_tensor *a, clef_tensor *b) {
    clef_tensor *y = clef_scalar(ctx, 0);
#include "binary.def"
    return y;
}

/* 0.5 lies in the domain of every function but acosh. */
static void pointwise(void) {
    clef_tensor *x = leaf(clef_keep(clef_full(ctx, CLEF_SHAPE(5, 7), CLEF_F32, 0.5)));
    differentiate("unary", every_unary(x), NAN, LEAVES(x), NULL, 1);
    x = leaf(clef_keep(clef_full(ctx, CLEF_SHAPE(5, 1), CLEF_F32, 2)));
    clef_tensor *z = leaf(clef_keep(clef_full(ctx, CLEF_SHAPE(7), CLEF_F32, 3)));
    differentiate("binary", every_binary(x, z), NAN, LEAVES(x, z), NULL, 2);
    static const clef_dtype halves[] = {CLEF_F16, CLEF_BF16};
    for (int d = 0; d < 2; d++) {
        x = leaf(whole(CLEF_SHAPE(5, 7), halves[d], 5)), z = leaf(whole(CLEF_SHAPE(7), halves[d], 3));
        differentiate("halves", clef_relu(clef_mul(x, z)), 60, LEAVES(x, z), NUMBERS(24, 40), 2);
    }
    static const clef_dtype counts[] = {CLEF_I32, CLEF_I64, CLEF_U8};
    for (int d = 0; d < 3; d++) {
        clef_tensor *n = whole(CLEF_SHAPE(3, 11), counts[d], 5), *m = whole(CLEF_SHAPE(11), counts[d], 3), *least;
        expect("integers", total(clef_sub(clef_mul(clef_add(n, n), n), n)), 2 * 185 - 63);
        /* with divisors of 0, also of the lanes beyond a row's end, and the quotient that overflows */
        least = clef_full(ctx, CLEF_SHAPE(5), counts[d], -0x1p63);
        expect("quotients", total(clef_add(clef_floor_divide(n, m), clef_remainder(n, m))), 34);
        expect("quotients", total(clef_add(clef_trunc_divide(n, m), clef_fmod(n, m))), 34);
        expect("least / -1", total(clef_eq(clef_floor_divide_scalar(least, -1), least)), 5);
        clef_release(m);
        clef_release(n);
    }
    x = leaf(whole(CLEF_SHAPE(33), CLEF_F32, 4)), z = leaf(whole(CLEF_SHAPE(33), CLEF_F32, 3));
    differentiate("where, lerp", clef_add(clef_where(clef_gt(x, z), x, z), clef_lerp(x, z, clef_scalar(ctx, 0.5))), NAN,
                  LEAVES(x, z), NULL, 2);
}

/* ---- reductions, movement, index ---- */
static void reductions(void) {
    static const int last[] = {-1};
    /* Of forty, eight are the largest, and share its gradient: an eighth is exact, while a seventh is as a driver divides. */
    clef_tensor *x = leaf(whole(CLEF_SHAPE(6, 40), CLEF_F32, 5));
    clef_tensor *y = clef_add(clef_sum(x, last, 1, true), clef_mul(clef_max(x, last, 1, true), clef_min(x, last, 1, true)));
    differentiate("sum, max, min", clef_expand(y, CLEF_SHAPE(6, 40)), 480 * 40, LEAVES(x), NUMBERS(6 * 40 * 40 + 4 * 40 * 6), 1);
    x = leaf(clef_keep(clef_add(whole(CLEF_SHAPE(3, 5), CLEF_F32, 3), clef_scalar(ctx, 1))));
    y = clef_add(clef_prod(x, last, 1, false), clef_add(clef_var(x, last, 1, false, 1), clef_logsumexp(x, last, 1, false)));
    y = clef_add(y, clef_add(clef_norm(x, 2, last, 1, false), clef_norm(x, 3, last, 1, false)));
    differentiate("prod, var, logsumexp, norm", y, NAN, LEAVES(x), NULL, 1);
    x = whole(CLEF_SHAPE(4, 10), CLEF_I32, 10);
    expect("argmax - argmin", total(clef_sub(clef_argmax(x, 1, false), clef_argmin(x, 1, false))), 36);
    clef_release(x);
}

static void movement(void) {
    clef_tensor *x = leaf(whole(CLEF_SHAPE(4, 6), CLEF_F32, 24)), *parts[2];
    clef_tensor *y = clef_flip(clef_slice(clef_transpose(x, 0, 1), 0, 5, 0, -2), 1);
    y = clef_pad(y, (int64_t[]){1, 2}, (int64_t[]){0, 3}, 2);
    y = clef_concat(LEAVES(y, clef_slice(y, 0, 0, 2, 1)), 2, 0);
    clef_split(y, 1, (int64_t[]){4, 5}, 2, parts);
    y = clef_stack(LEAVES(clef_slice(parts[1], 1, 0, 4, 1), parts[0]), 2, 1);
    differentiate("movement", clef_squeeze(clef_unsqueeze(clef_permute(y, (int[]){2, 0, 1}), 0), 0), NAN, LEAVES(x), NULL, 1);
    x = leaf(whole(CLEF_SHAPE(4, 6), CLEF_F32, 24));
    y = clef_slice_update(x, 1, clef_integer(ctx, 2),
                          clef_slice_at(x, 1, clef_from_host(ctx, CLEF_SCALAR, CLEF_I64, (int64_t[]){9}), 3));
    differentiate("slice_at, slice_update", y, 276 + 12, LEAVES(x), NUMBERS(24), 1);
    x = leaf(whole(CLEF_SHAPE(5, 3), CLEF_F32, 15));
    clef_tensor *at = whole(CLEF_SHAPE(7, 3), CLEF_I64, 5), *row = whole(CLEF_SHAPE(2, 4), CLEF_I32, 5);
    y = clef_scatter_add(x, 0, at, clef_gather(x, 0, at));
    double rows = total(clef_embedding(x, row)), both = total(clef_gather(x, 0, at));
    y = clef_add(clef_sum(y, NULL, 0, false), clef_sum(clef_embedding(x, row), NULL, 0, false));
    differentiate("gather, scatter, embedding", y, 105 + both + rows, LEAVES(x), NUMBERS(15 + 21 + 24), 1);
    clef_release(at), clef_release(row);
    x = leaf(whole(CLEF_SHAPE(5, 3), CLEF_F32, 15)), at = whole(CLEF_SHAPE(4), CLEF_I32, 3);
    y = clef_add(clef_index_select(x, 1, at), clef_slice(clef_repeat(x, (int64_t[]){1, 2}, 2), 1, 0, 4, 1));
    differentiate("index_select, repeat", y, 270, LEAVES(x), NUMBERS(40), 1);
    clef_release(at);
    x = leaf(whole(CLEF_SHAPE(5, 3), CLEF_F32, 15)), at = whole(CLEF_SHAPE(7, 2), CLEF_I64, 3);
    clef_tensor *z = leaf(whole(CLEF_SHAPE(7, 2), CLEF_F32, 14));
    y = clef_triu(clef_scatter(x, 0, at, z), -2);
    differentiate("scatter, triu", y, NAN, LEAVES(x, z), NULL, 2);
    clef_release(at);
    x = leaf(whole(CLEF_SHAPE(5, 2), CLEF_F32, 10)), z = leaf(whole(CLEF_SHAPE(7, 2), CLEF_F32, 14));
    at = whole(CLEF_SHAPE(7, 2), CLEF_I64, 3), row = whole(CLEF_SHAPE(7), CLEF_I32, 5);
    y = clef_add(clef_scatter_reduce(x, 0, at, z, CLEF_SCATTER_MAX, true), clef_index_add(x, 0, row, z));
    differentiate("scatter_reduce, index_add", y, NAN, LEAVES(x, z), NULL, 2);
    clef_release(at), clef_release(row);
}

static void order(void) {
    clef_tensor *x = leaf(whole(CLEF_SHAPE(3, 70, 2), CLEF_F32, 17)), *values, *indices, *few;
    clef_sort(x, 1, false, &values, &indices);
    double sum = total(values), places = total(indices);
    expect("argsort", total(clef_argsort(x, 1, true)), places);
    expect("indices", places, 6 * 69 * 35);
    clef_topk(x, 5, 1, true, &few, NULL);
    expect("topk", total(few), 6 * (16 * 4 + 15));
    differentiate("sort, topk", clef_add(clef_sum(values, NULL, 0, false), clef_sum(few, NULL, 0, false)), sum + 6 * 79, LEAVES(x),
                  NUMBERS(420 + 30), 1);
    x = leaf(whole(CLEF_SHAPE(2, 1500), CLEF_F32, 1));
    differentiate("cumsum", clef_cumsum(x, 1), 0, LEAVES(x), NUMBERS(2 * 1500 * 1501 / 2), 1);
    x = leaf(clef_keep(clef_ones(ctx, CLEF_SHAPE(2, 1500), CLEF_F32)));
    differentiate("cumprod", clef_cumprod(x, 1), 3000, LEAVES(x), NUMBERS(2 * 1500 * 1501 / 2), 1);
    clef_tensor *at = clef_randint(ctx, 0, 7, CLEF_SHAPE(40)), *w = clef_copy(clef_ones(ctx, CLEF_SHAPE(3, 50), CLEF_F32));
    expect("one_hot", total(clef_one_hot(at, 7)), 40);
    expect("multinomial", total(clef_multinomial(w, 50, false)), 3 * 49 * 25);
    expect("multinomial", total(clef_lt_scalar(clef_multinomial(w, 70, true), 50)), 210);
    clef_end_step(ctx);
}

/* ---- products and images: all ones, so every sum is a count ---- */
static clef_tensor *ones(clef_shape shape, clef_dtype dtype) { return leaf(clef_keep(clef_ones(ctx, shape, dtype))); }

static void products(void) {
    static const clef_dtype floats[] = {CLEF_F32, CLEF_F16, CLEF_BF16};
    for (int d = 0; d < 3; d++) {
        clef_tensor *a = ones(CLEF_SHAPE(3, 5, 17), floats[d]), *b = ones(CLEF_SHAPE(17, 9), floats[d]);
        differentiate("matmul", clef_matmul(a, b), 15 * 9 * 17, LEAVES(a, b), NUMBERS(255 * 9, 153 * 15), 2);
    }
    clef_tensor *x = ones(CLEF_SHAPE(5, 7), CLEF_F32), *w = ones(CLEF_SHAPE(3, 7), CLEF_F32), *b = ones(CLEF_SHAPE(3), CLEF_F32);
    differentiate("linear", clef_linear(x, w, b), 15 * 8, LEAVES(x, w, b), NUMBERS(35 * 3, 21 * 5, 15), 3);
    x = ones(CLEF_SHAPE(2, 4, 7, 5), CLEF_F32), w = ones(CLEF_SHAPE(6, 2, 3, 3), CLEF_F32), b = ones(CLEF_SHAPE(6), CLEF_F32);
    clef_conv2d_options o = {.stride = {2, 1}, .padding = {1, 0}, .groups = 2};
    differentiate("conv2d", clef_conv2d(x, w, b, &o), NAN, LEAVES(x, w, b), NULL, 3);
    x = ones(CLEF_SHAPE(2, 3, 6, 6), CLEF_F32), w = ones(CLEF_SHAPE(4, 3, 3, 3), CLEF_F32);
    differentiate("conv2d", clef_conv2d(x, w, CLEF_NONE, NULL), 2 * 4 * 16 * 27, LEAVES(x, w),
                  NUMBERS(2 * 4 * 16 * 27, 2 * 4 * 16 * 27), 2);
    x = ones(CLEF_SHAPE(2, 1, 12, 14), CLEF_F32), w = ones(CLEF_SHAPE(6, 1, 3, 3), CLEF_F32);
    differentiate("conv2d", clef_conv2d(x, w, CLEF_NONE, NULL), 2 * 6 * 120 * 9, LEAVES(x, w),
                  NUMBERS(2 * 6 * 120 * 9, 2 * 6 * 120 * 9), 2);
}

static void images(void) {
    clef_tensor *x = leaf(whole(CLEF_SHAPE(2, 3, 7, 6), CLEF_F32, 42));
    clef_tensor *y = clef_max_pool2d(x, 3, 2, &(clef_pool2d_options){.stride = {2, 1}, .padding = {1, 1}});
    differentiate("max_pool2d", y, NAN, LEAVES(x), NUMBERS((double)clef_numel(y)), 1);
    x = leaf(whole(CLEF_SHAPE(2, 3, 7, 6), CLEF_F32, 42));
    y = clef_add(clef_sum(clef_avg_pool2d(x, 2, 2, NULL), NULL, 0, false), clef_sum(clef_global_avg_pool2d(x), NULL, 0, false));
    differentiate("average pools", clef_add(y, clef_sum(clef_adaptive_avg_pool2d(x, 3, 4), NULL, 0, false)), NAN, LEAVES(x), NULL,
                  1);
    x = leaf(clef_keep(clef_randn(ctx, CLEF_SHAPE(4, 3, 5, 5))));
    clef_tensor *w = ones(CLEF_SHAPE(3), CLEF_F32), *b = ones(CLEF_SHAPE(3), CLEF_F32);
    clef_tensor *mean = clef_keep(clef_zeros(ctx, CLEF_SHAPE(3), CLEF_F32)),
                *var = clef_keep(clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32));
    differentiate("batch_norm", clef_square(clef_batch_norm(x, w, b, mean, var, true, 0.1, 1e-5)), NAN, LEAVES(x, w, b), NULL, 3);
    expect("running_var", total(var), NAN);
    clef_release(mean), clef_release(var);
    x = leaf(clef_keep(clef_randn(ctx, CLEF_SHAPE(6, 20)))), w = ones(CLEF_SHAPE(20), CLEF_F32), b = ones(CLEF_SHAPE(20), CLEF_F32);
    differentiate("layer_norm, softmax", clef_mul(clef_softmax(clef_layer_norm(x, 1, w, b, 1e-5), 1), clef_log_softmax(x, 0)), NAN,
                  LEAVES(x, w, b), NULL, 3);
}

static void row_norms(void) {
    clef_tensor *x = leaf(clef_keep(clef_randn(ctx, CLEF_SHAPE(5, 6, 7)))), *w = ones(CLEF_SHAPE(7), CLEF_F32);
    differentiate("rms_norm", clef_square(clef_rms_norm(x, 1, w, 1e-5)), NAN, LEAVES(x, w), NULL, 2);
    x = leaf(clef_keep(clef_randn(ctx, CLEF_SHAPE(5, 6, 7)))), w = ones(CLEF_SHAPE(6), CLEF_F32);
    clef_tensor *b = ones(CLEF_SHAPE(6), CLEF_F32);
    differentiate("group_norm", clef_square(clef_group_norm(x, 3, w, b, 1e-5)), NAN, LEAVES(x, w, b), NULL, 3);
}

/* ---- losses, random numbers, custom ops ---- */
static void losses(void) {
    clef_tensor *x = leaf(clef_keep(clef_randn(ctx, CLEF_SHAPE(6, 4)))), *y = clef_keep(clef_rand(ctx, CLEF_SHAPE(6, 4)));
    clef_tensor *label = whole(CLEF_SHAPE(6), CLEF_I64, 4);
    clef_loss_options smooth = {.label_smoothing = 0.1, .has_ignore_index = true, .ignore_index = 2};
    clef_tensor *loss = clef_add(clef_cross_entropy(x, label, &smooth), clef_nll_loss(clef_log_softmax(x, 1), label, NULL));
    loss = clef_add(loss, clef_add(clef_mse_loss(x, y, NULL), clef_l1_loss(x, y, NULL)));
    loss = clef_add(loss, clef_add(clef_huber_loss(x, y, NULL), clef_bce_with_logits(x, y, NULL)));
    differentiate("losses", loss, NAN, LEAVES(x), NULL, 1);
    clef_release(y), clef_release(label);
    x = ones(CLEF_SHAPE(1000), CLEF_F32);
    clef_tensor *kept = clef_keep(clef_dropout(x, 0.5));
    double sum = total(kept);
    expect("dropout", fabs(sum - 1000) < 200 && fmod(sum, 2) == 0, 1);
    differentiate("dropout", kept, sum, LEAVES(x), NUMBERS(sum), 1);
    clef_release(kept);
    static const clef_custom_op cube = {.name = "cube", .forward = "x*x*x", .backward = {"K(3)*x*x*g"}};
    x = leaf(whole(CLEF_SHAPE(10), CLEF_F32, 10));
    differentiate("custom", clef_custom(&cube, LEAVES(x), 1), 2025, LEAVES(x), NUMBERS(3 * 285), 1);
}

int main(void) {
    for (int debug = 1; debug >= 0; debug--) {
        ctx = clef_open(&(clef_options){.seed = 3, .debug_memory = debug, .log = note});
        if (!ctx) return without_context();
        pointwise(), reductions(), movement(), order(), products(), images(), row_norms(), losses();
        clef_close(ctx);
    }
    printf("%d failed\n", failures);
    return failures != 0;
}
