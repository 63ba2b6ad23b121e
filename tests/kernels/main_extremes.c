/* Every op with options and shapes at the ends of their types, for the sanitizers: each gives a tensor of the right shape or NULL
   with one line, and what is small is computed.
   ctest: cost=20 plain */
#include "support/plain.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef __int128 wide;

static clef_context *ctx;
static int failures;
static char what[200];
#define SAY(...) snprintf(what, sizeof what, __VA_ARGS__)

static const int ints[] = {INT_MIN, INT_MIN + 1, -2, -1, 0, 1, 2, 3, INT_MAX / 2, INT_MAX - 1, INT_MAX};
static const int64_t longs[] = {INT64_MIN, INT64_MIN + 1,    INT32_MIN,     -3,       -1, 0, 1, 2, 4,
                                5,         (int64_t)1 << 40, INT64_MAX - 1, INT64_MAX};
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static void fail(const char *why) {
    failures++;
    fprintf(stderr, "%s: %s: %s\n", what, why, clef_error(ctx));
}

/* Was this refused as users are told it will be? */
static void expect_refusal(void) {
    static const clef_status good[] = {CLEF_INVALID, CLEF_SHAPE, CLEF_DTYPE, CLEF_UNSUPPORTED, CLEF_MEMORY};
    bool known = false;
    for (int i = 0; i < COUNT(good); i++) known |= clef_error_status(ctx) == good[i];
    if (!known || !*clef_error(ctx)) fail(clef_status_name(clef_error_status(ctx)));
    clef_clear_error(ctx);
}

enum { SMALL = 4096 };

/* t was refused, or is sound; computed, where that is cheap. */
static bool check(clef_tensor *t, bool compute) {
    if (!t) return expect_refusal(), false;
    static char bytes[8 * SMALL];
    int64_t n = clef_numel(t);
    if (n < 0 || clef_error_status(ctx) != CLEF_OK) fail("a tensor, and an error");
    if (compute && n > 0 && n <= SMALL && clef_read(t, bytes, (size_t)n * clef_dtype_size(clef_tensor_dtype(t))) != CLEF_OK)
        fail("reading");
    clef_clear_error(ctx);
    return true;
}

/* The same, where it is known whether there is a result, and of which shape; rank -1: there is none. */
static void check_shape(clef_tensor *t, clef_shape shape, bool compute) {
    char have[96], want[96], line[256];
    bool right = t ? clef_shape_equal(clef_tensor_shape(t), shape) : shape.rank < 0;
    snprintf(line, sizeof line, "%s, not %s", t ? clef_shape_format(clef_tensor_shape(t), have, sizeof have) : "nothing",
             shape.rank < 0 ? "nothing" : clef_shape_format(shape, want, sizeof want));
    if (!right) fail(line);
    check(t, compute && right);
}
static const clef_shape no_shape = {.rank = -1};

static clef_tensor *counted(clef_shape shape) {
    return clef_reshape(clef_arange(ctx, 0, (double)clef_shape_numel(shape), 1, CLEF_F32), shape);
}
static clef_tensor *leaf(clef_tensor *t) { return clef_require_grad(clef_keep(clef_copy(t)), true); }

/* ---- windows ---- */

/* ⌊(in + 2p - reach)/s⌋ + 1, or -1. */
static int64_t windows(int64_t in, int64_t padding, wide reach, int64_t stride) {
    wide room = (wide)in + 2 * padding - reach;
    return room < 0 || (room / stride + 1) > INT64_MAX ? -1 : (int64_t)(room / stride + 1);
}

static void gradient(clef_tensor *y, clef_tensor *x) {
    clef_tensor *dx;
    if (clef_grad(clef_sum(y, NULL, 0, false), CLEF_NONE, &x, 1, false, &dx) != CLEF_OK) fail("gradient");
    check_shape(dx, clef_tensor_shape(x), true);
}

static void pool(clef_tensor *x, int kernel, int stride, int padding, int average) {
    SAY("%s_pool2d, window %d, stride %d, padding %d", average ? "avg" : "max", kernel, stride, padding);
    clef_pool2d_options o = {.stride = {stride, stride}, .padding = {padding, padding}};
    clef_tensor *y = average ? clef_avg_pool2d(x, kernel, kernel, &o) : clef_max_pool2d(x, kernel, kernel, &o);
    bool good = kernel > 0 && stride >= 0 && padding >= 0 && padding <= kernel / 2 && (int64_t)kernel * kernel <= INT32_MAX;
    int64_t oh = good ? windows(3, padding, kernel, stride ? stride : kernel) : -1,
            ow = good ? windows(4, padding, kernel, stride ? stride : kernel) : -1;
    check_shape(y, oh > 0 && ow > 0 ? CLEF_SHAPE(1, 2, oh, ow) : no_shape, true);
    if (y) gradient(y, x);
}

static void pools(void) {
    clef_tensor *x = leaf(counted(CLEF_SHAPE(1, 2, 3, 4)));
    for (int k = 0; k < COUNT(ints); k++)
        for (int s = 0; s < COUNT(ints); s++)
            for (int p = 0; p < COUNT(ints); p++)
                for (int average = 0; average < 2; average++) pool(x, ints[k], ints[s], ints[p], average);
    for (int h = 0; h < COUNT(ints); h++)
        for (int w = 0; w < COUNT(ints); w++) {
            SAY("pools of %d by %d", ints[h], ints[w]);
            check(clef_max_pool2d(x, ints[h], ints[w], &(clef_pool2d_options){.padding = {INT_MAX / 2, INT_MAX / 2}}), true);
            check(clef_adaptive_avg_pool2d(x, ints[h], ints[w]), true);
            check(clef_adaptive_avg_pool2d(clef_zeros(ctx, CLEF_SHAPE(0, 2, 3, 4), CLEF_F32), ints[h], ints[w]), true);
        }
    clef_release(x);
    clef_end_step(ctx);
}

static void convolution(clef_tensor *x, clef_tensor *w, int stride, int padding, int dilation, bool compute) {
    SAY("conv2d, stride %d, padding %d, dilation %d", stride, padding, dilation);
    clef_conv2d_options o = {.stride = {stride, stride}, .padding = {padding, padding}, .dilation = {dilation, dilation}};
    clef_shape in = clef_tensor_shape(x), filter = clef_tensor_shape(w);
    bool good = stride >= 0 && padding >= 0 && dilation >= 0;
    int64_t size[2] = {-1, -1};
    for (int d = 0; good && d < 2; d++)
        size[d] =
            windows(in.dim[2 + d], padding, (wide)(dilation ? dilation : 1) * (filter.dim[2 + d] - 1) + 1, stride ? stride : 1);
    good =
        good && size[0] > 0 && size[1] > 0 && ((wide)in.dim[2] + 2 * (wide)padding) * (in.dim[3] + 2 * (wide)padding) <= INT32_MAX;
    clef_tensor *y = clef_conv2d(x, w, CLEF_NONE, &o);
    check_shape(y, good ? CLEF_SHAPE(1, 2, size[0], size[1]) : no_shape, compute);
    if (y && compute && clef_numel(y) <= SMALL) gradient(y, x), gradient(y, w);
}

static void convolutions(void) {
    clef_tensor *x = leaf(counted(CLEF_SHAPE(1, 2, 4, 3))),
                *w[2] = {leaf(counted(CLEF_SHAPE(2, 2, 1, 1))), leaf(counted(CLEF_SHAPE(2, 2, 2, 2)))};
    for (int k = 0; k < 2; k++)
        for (int s = 0; s < COUNT(ints); s++)
            for (int p = 0; p < COUNT(ints); p++)
                for (int d = 0; d < COUNT(ints); d++) {
                    bool few = ints[p] <= 1 && (ints[s] > 3 || ints[s] == 2) && (ints[d] == 1 || ints[d] > 3);
                    convolution(x, w[k], ints[s], ints[p], ints[d], few);
                }
    for (int i = 0; i < COUNT(ints); i++) {
        SAY("conv2d with %d", ints[i]);
        check(clef_conv2d(x, w[1], CLEF_NONE, &(clef_conv2d_options){.groups = ints[i]}), true);
        check(clef_conv2d(x, w[1], CLEF_NONE, &(clef_conv2d_options){.stride = {ints[i], 1}, .same = true}), true);
        check(clef_conv2d(x, w[1], CLEF_NONE, &(clef_conv2d_options){.dilation = {ints[i], ints[i]}, .same = true}), false);
        clef_tensor *much = clef_zeros(ctx, CLEF_SHAPE(0, 2, INT64_MAX / 4, 1), CLEF_F32);
        check(clef_conv2d(much, w[0], CLEF_NONE, &(clef_conv2d_options){.padding = {ints[i], ints[i]}}), true);
        check(clef_conv2d(x, clef_zeros(ctx, CLEF_SHAPE(0, 2, INT64_MAX / 4, 1), CLEF_F32), CLEF_NONE,
                          &(clef_conv2d_options){.dilation = {ints[i], 1}}),
              true);
        check(clef_max_pool2d(much, 2, 1, &(clef_pool2d_options){.padding = {1, 0}, .stride = {ints[i], 1}}), true);
    }
    clef_release(x), clef_release(w[0]), clef_release(w[1]);
    clef_end_step(ctx);
}

/* ---- ranges ---- */

/* Python's rules. */
static int64_t range_length(int64_t n, int64_t start, int64_t stop, int64_t step) {
    wide bound[2] = {start, stop}, low = step > 0 ? 0 : -1, high = n + low, length = 0;
    for (int i = 0; i < 2; i++) {
        if (bound[i] < 0) bound[i] += n;
        bound[i] = bound[i] < low ? low : bound[i] > high ? high : bound[i];
    }
    if (step > 0 && bound[1] > bound[0]) length = (bound[1] - bound[0] + step - 1) / step;
    if (step < 0 && bound[1] < bound[0]) length = (bound[0] - bound[1] - (wide)step - 1) / -(wide)step;
    return (int64_t)length;
}

static void slices(void) {
    clef_tensor *x = counted(CLEF_SHAPE(5, 2)), *huge = clef_zeros(ctx, CLEF_SHAPE(INT64_MAX, 0), CLEF_F32);
    for (int a = 0; a < COUNT(longs); a++)
        for (int b = 0; b < COUNT(longs); b++)
            for (int s = 0; s < COUNT(longs); s++) {
                int64_t step = longs[s];
                SAY("slice %lld : %lld : %lld", (long long)longs[a], (long long)longs[b], (long long)step);
                clef_tensor *y = clef_slice(x, 0, longs[a], longs[b], step);
                check_shape(y, step ? CLEF_SHAPE(range_length(5, longs[a], longs[b], step), 2) : no_shape, a == b + 1 && step != 1);
                y = clef_slice(huge, 0, longs[a], longs[b], step);
                check_shape(y, step ? CLEF_SHAPE(range_length(INT64_MAX, longs[a], longs[b], step), 0) : no_shape, false);
            }
    SAY("the last of a slice with a long step");
    if (clef_item(clef_sum(clef_slice(x, 0, 1, 5, INT64_MAX), NULL, 0, false)) != 5) fail("another row");
    if (clef_item(clef_sum(clef_slice(x, 0, -1, INT64_MIN, INT64_MIN), NULL, 0, false)) != 17) fail("another row");
    clef_end_step(ctx);
}

static void paddings(void) {
    clef_tensor *x = counted(CLEF_SHAPE(2)), *none = clef_zeros(ctx, CLEF_SHAPE(0, INT64_MAX), CLEF_F32);
    for (int a = 0; a < COUNT(longs); a++)
        for (int b = 0; b < COUNT(longs); b++) {
            SAY("pad by %lld and %lld", (long long)longs[a], (long long)longs[b]);
            bool good = longs[a] >= 0 && longs[b] >= 0 && longs[a] <= INT32_MAX && longs[b] <= INT32_MAX;
            check_shape(clef_pad(x, &longs[a], &longs[b], 7), good ? CLEF_SHAPE(2 + longs[a] + longs[b]) : no_shape, true);
            check(clef_pad(none, (int64_t[]){0, longs[a]}, (int64_t[]){0, longs[b]}, 7), true);
            int64_t sizes[] = {longs[a], longs[b]};
            clef_tensor *parts[2];
            if ((clef_split(x, 0, sizes, 2, parts) == CLEF_OK) !=
                (longs[a] >= 0 && longs[b] >= 0 && (wide)longs[a] + longs[b] == 2))
                fail("split");
            clef_clear_error(ctx);
            if ((clef_split(none, 1, sizes, 2, parts) == CLEF_OK) !=
                (longs[a] >= 0 && longs[b] >= 0 && (wide)longs[a] + longs[b] == INT64_MAX))
                fail("split");
            clef_clear_error(ctx);
        }
    SAY("concat of much");
    check(clef_concat((clef_tensor *[]){none, none, none}, 3, 1), true);
    static const double ends[] = {-INFINITY, -1e308, -1e19, -1, -0.5, 0, 0.5, 3, 1e10, 1e19, 1e308, INFINITY, NAN};
    for (int a = 0; a < COUNT(ends); a++)
        for (int b = 0; b < COUNT(ends); b++)
            for (int s = 0; s < COUNT(ends); s++)
                for (int d = -1; d <= CLEF_DTYPE_COUNT; d++) {
                    SAY("arange %g : %g : %g, dtype %d", ends[a], ends[b], ends[s], d);
                    check(clef_arange(ctx, ends[a], ends[b], ends[s], (clef_dtype)d), false);
                }
    clef_end_step(ctx);
}

/* ---- shapes ---- */

static void making(clef_shape shape) {
    char text[200];
    SAY("making %s of rank %d", clef_shape_format(shape, text, sizeof text), shape.rank);
    bool good = clef_shape_numel(shape) >= 0 && clef_shape_numel(shape) <= INT64_MAX / 8;
    for (int d = -1; d <= CLEF_DTYPE_COUNT; d++)
        check_shape(clef_zeros(ctx, shape, (clef_dtype)d), good && d >= 0 && d < CLEF_DTYPE_COUNT ? shape : no_shape, false);
    check_shape(clef_rand(ctx, shape), good ? shape : no_shape, false);
    check_shape(clef_full(ctx, shape, CLEF_I64, NAN), good ? shape : no_shape, false);
    check(clef_expand(clef_scalar(ctx, 1), shape), false);
    check(clef_expand(counted(CLEF_SHAPE(1, 3)), shape), false);
    check(clef_reshape(counted(CLEF_SHAPE(2, 3)), shape), false);
    check(clef_reshape(clef_zeros(ctx, CLEF_SHAPE(0, 3), CLEF_F32), shape), false);
    if (!good || shape.rank < 1) return;
    clef_tensor *x = clef_zeros(ctx, shape, CLEF_F32);
    for (int i = 0; i < COUNT(ints); i++) { /* none of it is computed */
        check(clef_sum(x, &ints[i], 1, false), false);
        check(clef_max(x, &ints[i], 1, true), false);
        check(clef_var(x, &ints[i], 1, false, ints[i]), false);
        check(clef_softmax(x, ints[i]), false);
        check(clef_layer_norm(x, ints[i], CLEF_NONE, CLEF_NONE, 1e-5), false);
        check(clef_concat((clef_tensor *[]){x, x, x}, 3, ints[i]), false);
    }
    check(clef_matmul(x, x), false);
    check(clef_mean(x, NULL, 0, false), false);
    check(clef_mul(clef_unsqueeze(x, -1), x), false);
}

static void shapes(void) {
    static const int64_t sizes[] = {INT64_MIN, -1, 0, 1, 3, (int64_t)1 << 31, (int64_t)1 << 59, INT64_MAX};
    for (int rank = -1; rank <= 9; rank++) {
        clef_shape shape = {.rank = rank};
        for (int i = 0; i < CLEF_MAX_RANK; i++) shape.dim[i] = 1;
        making(shape);
        for (int a = 0; a < COUNT(sizes) && rank > 0 && rank <= 8; a++)
            for (int b = 0; b < COUNT(sizes) && (rank < 4 || rank == 8); b++) {
                shape.dim[0] = sizes[a], shape.dim[rank - 1] = sizes[b];
                making(shape);
            }
        clef_end_step(ctx);
    }
    static const int ranks[] = {INT_MIN, INT_MAX};
    for (int i = 0; i < 2; i++) making((clef_shape){.rank = ranks[i]});
    for (int i = 0; i < COUNT(longs); i++) {
        SAY("eye of %lld", (long long)longs[i]);
        check(clef_eye(ctx, longs[i], CLEF_F32), longs[i] < 10);
    }
}

/* ---- dimensions: of rank 0, of rank 8, of nothing ---- */

static void dimensions(clef_tensor *x) {
    clef_shape shape = clef_tensor_shape(x);
    char text[96];
    clef_shape_format(shape, text, sizeof text);
    int many[CLEF_MAX_RANK + 2] = {0}, rank = shape.rank ? shape.rank : 1;
    clef_tensor *index = clef_to(x, CLEF_I32), *parts[1];
    for (int i = 0; i < COUNT(ints); i++) {
        int d = ints[i];
        bool there = d >= -rank && d < rank;
        SAY("dimension %d of %s", d, text);
        clef_tensor *(*const reductions[])(clef_tensor *, const int *, int, bool) = {clef_sum, clef_mean, clef_max,
                                                                                     clef_min, clef_prod, clef_logsumexp};
        for (int k = 0; k < COUNT(reductions); k++)
            for (int keep = 0; keep < 2; keep++)
                if (check(reductions[k](x, &d, 1, keep), i % 3 == k % 3) != there) fail("reduction");
        if (check(clef_softmax(x, d), true) != there || check(clef_log_softmax(x, d), false) != there) fail("softmax");
        bool some = there && (shape.rank == 0 || shape.dim[d < 0 ? d + rank : d] > 0);
        if (check(clef_argmax(x, d, false), true) != some || check(clef_argmin(x, d, true), false) != some) fail("argmax");
        check(clef_var(x, &d, 1, false, d), true), check(clef_norm(x, 2, &d, 1, false), false),
            check(clef_norm(x, INFINITY, &d, 1, false), true);
        check(clef_flatten(x, d, d), true), check(clef_flatten(x, 0, d), false), check(clef_squeeze(x, d), false),
            check(clef_unsqueeze(x, d), false);
        check(clef_transpose(x, d, 0), false), check(clef_flip(x, d), true), check(clef_slice(x, d, 0, 1, 1), true);
        check(clef_concat((clef_tensor *[]){x, x}, 2, d), true), check(clef_stack((clef_tensor *[]){x, x}, 2, d), false);
        check(clef_gather(x, d, index), true), check(clef_scatter_add(x, d, index, x), true);
        check(clef_scatter(x, d, index, x), true), check(clef_scatter_value(x, d, index, 1), true);
        check(clef_index_select(x, d, index), true), check(clef_repeat_interleave(x, 2, d), false);
        check(clef_std(x, &d, 1, false, d), true), check(clef_cumsum(x, d), true), check(clef_cumprod(x, d), false);
        check(clef_scatter_reduce(x, d, index, x, CLEF_SCATTER_MAX, false), true);
        check(clef_scatter_reduce(x, d, index, x, CLEF_SCATTER_MEAN, true), false), check(clef_index_add(x, d, index, x), true);
        check(clef_cosine_similarity(x, x, d, 1e-8), false);
        check(clef_rms_norm(x, d, CLEF_NONE, 1e-5), true), check(clef_group_norm(x, d, CLEF_NONE, CLEF_NONE, 1e-5), true);
        check(clef_layer_norm(x, d, CLEF_NONE, CLEF_NONE, 1e-5), true);
        clef_split(x, d, (int64_t[]){1}, 1, parts), clef_clear_error(ctx);
    }
    SAY("all of %s", text);
    check(clef_tril(x, INT64_MAX), true), check(clef_triu(x, INT64_MIN), true), check(clef_masked_fill(x, index, 1), false);
    for (int n = 0; n < COUNT(many); n++) check(clef_sum(x, many, n, false), false);
    check(clef_sum(x, NULL, INT_MIN, false), true), check(clef_var(x, NULL, 0, false, INT_MAX), true),
        check(clef_argmax(x, 0, true), true);
    check(clef_matmul(x, x), true), check(clef_linear(x, x, CLEF_NONE), true), check(clef_embedding(x, index), true),
        check(clef_embedding(counted(CLEF_SHAPE(2, 2)), index), true);
    check(clef_cross_entropy(x, index, NULL), true), check(clef_nll_loss(x, index, NULL), true),
        check(clef_cross_entropy(x, x, NULL), true), check(clef_mse_loss(x, x, NULL), true);
    check(clef_conv2d(x, x, CLEF_NONE, NULL), true), check(clef_max_pool2d(x, 1, 1, NULL), true),
        check(clef_adaptive_avg_pool2d(x, 1, 1), true), check(clef_global_avg_pool2d(x), true);
    check(clef_relu(x), true), check(clef_add(x, x), true), check(clef_dropout(x, 0.5), true);
    clef_tensor *c = clef_keep(clef_zeros(ctx, CLEF_SHAPE(2), CLEF_F32));
    check(clef_batch_norm(x, c, c, c, c, false, 0.1, 1e-5), true), check(clef_layer_norm(x, 1, c, c, 1e-5), true);
    clef_release(c);
    clef_end_step(ctx);
}

/* ---- numbers ---- */

static void options(void) {
    static const double numbers[] = {-INFINITY, -1, 0, 0.5, 1, 2, 1e308, INFINITY, NAN};
    clef_tensor *x = counted(CLEF_SHAPE(2, 3)), *label = clef_arange(ctx, 0, 2, 1, CLEF_I64);
    for (int i = 0; i < COUNT(numbers); i++) {
        double v = numbers[i];
        SAY("with the number %g", v);
        check(clef_dropout(x, v), true), check(clef_norm(x, v, NULL, 0, false), v <= 2),
            check(clef_huber_loss(x, x, &(clef_loss_options){.delta = v}), false);
        check(clef_cross_entropy(x, label, &(clef_loss_options){.label_smoothing = v}), true),
            check(clef_layer_norm(x, 1, CLEF_NONE, CLEF_NONE, v), true);
    }
    for (int i = 0; i < COUNT(longs); i++) {
        SAY("with the class %lld", (long long)longs[i]);
        clef_loss_options o = {.has_ignore_index = true, .ignore_index = longs[i]};
        check(clef_cross_entropy(x, clef_from_host(ctx, CLEF_SHAPE(2), CLEF_I64, (int64_t[]){longs[i], 1}), &o), true);
        check(clef_nll_loss(x, clef_from_host(ctx, CLEF_SHAPE(2), CLEF_I64, (int64_t[]){longs[i], 1}), NULL), true);
        check(clef_gather(x, 1, clef_from_host(ctx, CLEF_SHAPE(2, 1), CLEF_I64, (int64_t[]){longs[i], 0})), true);
        check(clef_embedding(x, clef_from_host(ctx, CLEF_SHAPE(1), CLEF_I64, &longs[i])), true);
        check(clef_scatter_add(x, 0, clef_from_host(ctx, CLEF_SHAPE(1, 1), CLEF_I64, &longs[i]),
                               clef_ones(ctx, CLEF_SHAPE(1, 1), CLEF_F32)),
              true);
    }
    clef_end_step(ctx);
}

/* Layers whose weights nobody could hold are refused, or fail for want of memory. */
static void layers(void) {
    static const int64_t sizes[] = {INT64_MIN, -1, 0, (int64_t)1 << 59, INT64_MAX};
    for (int a = 0; a < COUNT(sizes); a++) {
        SAY("layers of %lld", (long long)sizes[a]);
        for (int b = 0; b < COUNT(sizes); b++)
            if (clef_nn_linear(ctx, sizes[a], sizes[b], NULL) || clef_nn_embedding(ctx, sizes[a], sizes[b])) fail("a layer");
            else expect_refusal();
        if (clef_nn_conv2d(ctx, sizes[a], sizes[a], INT_MAX, NULL) || clef_nn_conv2d(ctx, 1, 1, INT_MAX, NULL))
            fail("a convolution");
        else expect_refusal();
        if (clef_nn_layer_norm(ctx, CLEF_SHAPE(sizes[a], 1 << 20), NULL)) fail("a norm");
        else expect_refusal();
    }
    clef_optimizer *opt = clef_sgd(clef_nn_linear(ctx, 1, 1, NULL), &(clef_sgd_options){.lr = 0.1});
    for (int kind = -1; kind <= CLEF_SCHEDULE_PLATEAU + 1; kind++)
        for (int i = 0; i < COUNT(longs); i++) {
            SAY("schedule %d with %lld", kind, (long long)longs[i]);
            clef_set_learning_rate(opt, 0.1);
            clef_schedule *s = clef_schedule_new(opt, &(clef_schedule_options){.kind = (clef_schedule_kind)kind,
                                                                               .step_size = longs[i],
                                                                               .total = longs[i],
                                                                               .warmup = i % 2 ? longs[i] : 0,
                                                                               .patience = longs[i],
                                                                               .milestones = &longs[i],
                                                                               .n_milestones = 1});
            if (!s) {
                expect_refusal();
                continue;
            }
            for (int t = 0; t < COUNT(longs); t++) {
                clef_schedule_tick(s);
                if (longs[t] >= 0 && longs[t] < INT64_MAX)
                    clef_schedule_set(s, (clef_schedule_state){.ticks = longs[t], .lr = 0.1, .best = 1});
                if (!(clef_learning_rate(opt) >= 0)) fail("the learning rate is no number");
            }
        }
}

int main(void) {
    ctx = clef_open(&(clef_options){.seed = 1});
    if (!ctx) return without_context();
    pools(), convolutions(), slices(), paddings(), shapes(), options(), layers();
    dimensions(clef_scalar(ctx, 3));
    dimensions(clef_zeros(ctx, CLEF_SHAPE(0), CLEF_F32));
    dimensions(clef_zeros(ctx, CLEF_SHAPE(2, 0, 3, 1), CLEF_F32));
    dimensions(clef_zeros(ctx, CLEF_SHAPE(0, 2, 0, INT64_MAX / 4), CLEF_F32));
    dimensions(counted(CLEF_SHAPE(1, 2, 1, 1, 2, 1, 1, 1)));
    clef_close(ctx);
    printf("%d failed\n", failures);
    return failures != 0;
}
