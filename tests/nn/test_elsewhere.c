/* Every op and every layer once on another device than the first: the same bits, gradients too, and all of it lies there.  Here a CPU
   in two halves is two devices.
   ctest: cost=60 plain together */
#include "graph/core.h"
#include "support/device.h"

static clef_context *ctx;

static void open_halves(void) {
    ctx = clef_open(&(clef_options){.device = "0/2", .seed = 3});
    if (!ctx) cr_skip_test("no device in two halves here: %s", clef_error(NULL));
}
static void close_halves(void) {
    if (ctx) close_clean(ctx);
}
TestSuite(elsewhere, .init = open_halves, .fini = close_halves, .timeout = 600);

/* ---- what ops are given ---- */

enum { PARAMETERS = 8, OPS_MOST = 256 };
typedef struct given {
    union {
        struct {
            clef_tensor *x, *y, *p; /* [4,6,8,8]; p is within (0,1) */
            clef_tensor *w, *v, *u; /* [6,6,3,3], [6], [6] */
            clef_tensor *m, *rows;  /* [8,12], [4,10] */
        };
        clef_tensor *parameter[PARAMETERS];
    };
    clef_tensor *label, *place, *flag; /* i64 [4] below 4, i64 [4,6,8,8] below 4, bool [4,6,8,8] */
    clef_tensor *mean, *var;           /* [6], running */
} given;

static clef_tensor *floats(int device, clef_shape shape, uint64_t salt, float low, float high) {
    static float data[4 * 6 * 8 * 8];
    for (int64_t i = 0; i < clef_shape_numel(shape); i++) data[i] = low + (high - low) * (noise((uint64_t)i, salt) + 1) / 2;
    return clef_keep(clef_from_host_on(ctx, device, shape, CLEF_F32, data));
}

static clef_tensor *whole(int device, clef_shape shape, uint64_t salt) {
    static int64_t data[4 * 6 * 8 * 8];
    for (int64_t i = 0; i < clef_shape_numel(shape); i++) data[i] = (int64_t)((noise((uint64_t)i, salt) + 1) * 2) % 4;
    return clef_keep(clef_from_host_on(ctx, device, shape, CLEF_I64, data));
}

static given make_given(int device) {
    clef_shape image = CLEF_SHAPE(4, 6, 8, 8);
    given g = {.x = floats(device, image, 1, -1, 1),
               .y = floats(device, image, 2, -1, 1),
               .p = floats(device, image, 3, 0.1f, 0.9f),
               .w = floats(device, CLEF_SHAPE(6, 6, 3, 3), 4, -1, 1),
               .v = floats(device, CLEF_SHAPE(6), 5, -1, 1),
               .u = floats(device, CLEF_SHAPE(6), 6, -1, 1),
               .m = floats(device, CLEF_SHAPE(8, 12), 7, -1, 1),
               .rows = floats(device, CLEF_SHAPE(4, 10), 8, -1, 1),
               .label = whole(device, CLEF_SHAPE(4), 9),
               .place = whole(device, image, 10),
               .mean = floats(device, CLEF_SHAPE(6), 11, -1, 1),
               .var = floats(device, CLEF_SHAPE(6), 12, 0.5f, 1)};
    g.flag = clef_keep(clef_gt(g.x, g.y));
    cr_assert_eq(clef_eval(g.flag), CLEF_OK);
    for (int i = 0; i < PARAMETERS; i++) cr_assert(clef_require_grad(g.parameter[i], true), "%s", clef_error(ctx));
    return g;
}

/* ---- ops of a user's own ---- */

static const clef_custom_op cube = {.name = "cube", .forward = "x*x*x", .backward = {"K(3)*x*x*g"}};

static bool doubled_infer(clef_kernel_call *call) {
    call->output[0] = call->input[0];
    return true;
}
static void doubled_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                             clef_tensor **dx, const double *option) {
    (void)x, (void)y, (void)wanted, (void)option;
    dx[0] = clef_mul_scalar(g[0], 2);
}
static const clef_kernel_op doubled = {.name = "doubled",
                                       .inputs = "x",
                                       .outputs = "y",
                                       .infer = doubled_infer,
                                       .gradient = doubled_gradient,
                                       .body = "PUT(y, i, 2 * GET(x, i));"};

/* ---- ops with several results, added ---- */

static clef_tensor *add_indices(clef_status status, clef_tensor *values, clef_tensor *indices) {
    return status == CLEF_OK ? clef_add(values, clef_to(indices, CLEF_F32)) : NULL;
}
static clef_tensor *sorted(clef_tensor *x) {
    clef_tensor *values, *indices;
    clef_status status = clef_sort(x, -1, true, &values, &indices);
    return add_indices(status, values, indices);
}
static clef_tensor *largest(clef_tensor *x) {
    clef_tensor *values, *indices;
    clef_status status = clef_topk(x, 3, -1, true, &values, &indices);
    return add_indices(status, values, indices);
}
static clef_tensor *parted(clef_tensor *x) {
    clef_tensor *part[2];
    return clef_split(x, 1, (int64_t[]){2, 4}, 2, part) == CLEF_OK ? clef_concat((clef_tensor *[]){part[1], part[0]}, 2, 1) : NULL;
}
static clef_tensor *run_kernel(clef_tensor *x) {
    clef_tensor *y;
    return clef_kernel(&doubled, &x, 1, NULL, 0, &y, 1) == CLEF_OK ? y : NULL;
}
static clef_tensor *batch_norm(const given *g, bool training) {
    clef_tensor *mean = clef_keep(clef_copy(g->mean)), *var = clef_keep(clef_copy(g->var));
    return clef_batch_norm(g->x, g->v, g->u, mean, var, training, 0.1, 1e-5);
}

/* ---- the list; rows of the tables of pointwise ops stand before it ---- */

#define OPS(OP)                                                                                                            \
    OP(sum, clef_sum(g->x, (int[]){1, 3}, 2, false))                                                                       \
    OP(mean, clef_mean(g->x, (int[]){0, 2}, 2, true))                                                                      \
    OP(max, clef_max(g->x, (int[]){2}, 1, false))                                                                          \
    OP(min, clef_min(g->x, NULL, 0, false))                                                                                \
    OP(prod, clef_prod(g->x, (int[]){3}, 1, false))                                                                        \
    OP(var, clef_var(g->x, (int[]){1, 2}, 2, false, 1))                                                                    \
    OP(logsumexp, clef_logsumexp(g->x, (int[]){3}, 1, false))                                                              \
    OP(norm, clef_norm(g->x, 2, (int[]){1}, 1, false))                                                                     \
    OP(norm_3, clef_norm(g->x, 3, (int[]){1}, 1, false))                                                                   \
    OP(norm_largest, clef_norm(g->x, INFINITY, (int[]){1}, 1, false))                                                      \
    OP(argmax, clef_argmax(g->x, 1, false))                                                                                \
    OP(argmin, clef_argmin(g->x, 1, false))                                                                                \
    OP(transpose, clef_copy(clef_transpose(g->x, 1, 3)))                                                                   \
    OP(permute, clef_reshape(clef_permute(g->x, (int[]){2, 0, 3, 1}), CLEF_SHAPE(8, -1)))                                  \
    OP(flatten, clef_flatten(g->x, 1, -1))                                                                                 \
    OP(expand, clef_add(clef_expand(clef_unsqueeze(clef_unsqueeze(g->v, 1), 2), CLEF_SHAPE(6, 8, 8)), g->x))               \
    OP(slice, clef_slice(g->x, 2, 7, 1, -2))                                                                               \
    OP(slice_at, clef_slice_at(g->x, 1, clef_slice(g->label, 0, 0, 1, 1), 2))                                              \
    OP(slice_at_number, clef_slice_at(g->x, 1, clef_integer(ctx, 3), 2))                                                   \
    OP(slice_update, clef_slice_update(g->x, 1, clef_integer(ctx, 2), clef_slice(g->y, 1, 0, 3, 1)))                       \
    OP(flip, clef_flip(g->x, 2))                                                                                           \
    OP(concat, clef_concat((clef_tensor *[]){g->x, g->y}, 2, 1))                                                           \
    OP(stack, clef_stack((clef_tensor *[]){g->x, g->y}, 2, 1))                                                             \
    OP(split, parted(g->x))                                                                                                \
    OP(pad, clef_pad(g->x, (int64_t[]){0, 1, 2, 0}, (int64_t[]){1, 0, 0, 1}, 0.5))                                         \
    OP(gather, clef_gather(g->x, 2, g->place))                                                                             \
    OP(scatter_add, clef_scatter_add(g->x, 2, g->place, g->y))                                                             \
    OP(scatter_add_corner, clef_scatter_add(g->x, 2, clef_slice(g->place, 0, 0, 3, 1), clef_slice(g->y, 0, 0, 3, 1)))      \
    OP(scatter, clef_scatter(g->x, 2, g->place, g->y))                                                                     \
    OP(scatter_value, clef_scatter_value(g->x, 1, g->place, 0.25))                                                         \
    OP(embedding, clef_embedding(g->m, g->label))                                                                          \
    OP(one_hot, clef_one_hot(g->label, 5))                                                                                 \
    OP(cumsum, clef_cumsum(g->x, 2))                                                                                       \
    OP(sort, sorted(g->x))                                                                                                 \
    OP(argsort, clef_argsort(g->x, 1, false))                                                                              \
    OP(topk, largest(g->x))                                                                                                \
    OP(multinomial, clef_multinomial(g->p, 5, true))                                                                       \
    OP(multinomial_once, clef_multinomial(g->p, 5, false))                                                                 \
    OP(tril, clef_tril(g->x, 1))                                                                                           \
    OP(triu, clef_triu(g->x, -1))                                                                                          \
    OP(where_scalar, clef_where_scalar(g->flag, g->x, 0.5))                                                                \
    OP(masked_fill, clef_masked_fill(g->x, g->flag, -1))                                                                   \
    OP(index_select, clef_index_select(g->x, 1, g->label))                                                                 \
    OP(repeat, clef_repeat(g->m, (int64_t[]){2, 1, 3}, 3))                                                                 \
    OP(repeat_interleave, clef_repeat_interleave(g->x, 2, 1))                                                              \
    OP(matmul, clef_matmul(g->x, clef_reshape(g->m, CLEF_SHAPE(8, 12))))                                                   \
    OP(linear, clef_linear(g->x, clef_transpose(g->m, 0, 1), CLEF_NONE))                                                   \
    OP(conv2d, clef_conv2d(g->x, g->w, g->v, &(clef_conv2d_options){.padding = {1, 1}}))                                   \
    OP(conv2d_stride, clef_conv2d(g->x, g->w, CLEF_NONE, &(clef_conv2d_options){.stride = {2, 2}, .same = true}))          \
    OP(conv2d_groups, clef_conv2d(g->x, clef_slice(g->w, 1, 0, 1, 1), CLEF_NONE, &(clef_conv2d_options){.groups = 6}))     \
    OP(conv_transpose2d, clef_conv_transpose2d(g->x, g->w, g->v, &(clef_conv_transpose2d_options){.stride = {2, 2}}))      \
    OP(max_pool2d, clef_max_pool2d(g->x, 3, 3, &(clef_pool2d_options){.stride = {2, 2}, .padding = {1, 1}}))               \
    OP(avg_pool2d, clef_avg_pool2d(g->x, 2, 2, NULL))                                                                      \
    OP(adaptive_avg_pool2d, clef_adaptive_avg_pool2d(g->x, 3, 3))                                                          \
    OP(global_avg_pool2d, clef_global_avg_pool2d(g->x))                                                                    \
    OP(softmax, clef_softmax(g->x, 1))                                                                                     \
    OP(log_softmax, clef_log_softmax(g->x, -1))                                                                            \
    OP(layer_norm, clef_layer_norm(clef_permute(g->x, (int[]){0, 2, 3, 1}), 1, g->v, g->u, 1e-5))                          \
    OP(layer_norm_weight, clef_layer_norm(clef_permute(g->x, (int[]){0, 2, 3, 1}), 1, g->v, CLEF_NONE, 1e-5))              \
    OP(batch_norm, batch_norm(g, true))                                                                                    \
    OP(batch_norm_running, batch_norm(g, false))                                                                           \
    OP(rms_norm, clef_rms_norm(g->x, 2, CLEF_NONE, 1e-6))                                                                  \
    OP(group_norm, clef_group_norm(g->x, 3, g->v, CLEF_NONE, 1e-5))                                                        \
    OP(instance_norm, clef_instance_norm(g->x, CLEF_NONE, g->u, 1e-5))                                                     \
    OP(conv1d, clef_conv1d(clef_reshape(g->x, CLEF_SHAPE(4, 6, 64)), clef_reshape(g->w, CLEF_SHAPE(6, 6, 9)), g->v, NULL)) \
    OP(prelu, clef_prelu(g->x, g->v))                                                                                      \
    OP(upsample_nearest2d, clef_upsample_nearest2d(g->x, 2, 3))                                                            \
    OP(std, clef_std(g->x, (int[]){1, 2}, 2, false, 1))                                                                    \
    OP(cumprod, clef_cumprod(g->x, 2))                                                                                     \
    OP(cosine_similarity, clef_cosine_similarity(g->x, g->p, 1, 1e-8))                                                     \
    OP(index_add, clef_index_add(g->x, 0, g->label, g->y))                                                                 \
    OP(scatter_max, clef_scatter_reduce(g->x, 2, g->place, g->y, CLEF_SCATTER_MAX, false))                                 \
    OP(scatter_mean, clef_scatter_reduce(g->x, 2, g->place, g->y, CLEF_SCATTER_MEAN, true))                                \
    OP(kl_div, clef_kl_div(g->x, g->p, NULL))                                                                              \
    OP(pos_weight, clef_bce_with_logits(g->x, g->p, &(clef_loss_options){.pos_weight = clef_slice(g->m, 1, 0, 8, 1)}))     \
    OP(dropout, clef_dropout(g->x, 0.4))                                                                                   \
    OP(cross_entropy, clef_cross_entropy(g->rows, g->label, &(clef_loss_options){.label_smoothing = 0.1}))                 \
    OP(cross_entropy_ignoring, clef_cross_entropy(g->rows, g->label, &(clef_loss_options){.has_ignore_index = true}))      \
    OP(cross_entropy_shares, clef_cross_entropy(g->rows, clef_softmax(clef_flip(g->rows, 1), 1), NULL))                    \
    OP(nll_loss, clef_nll_loss(clef_log_softmax(g->rows, 1), g->label, NULL))                                              \
    OP(mse_loss, clef_mse_loss(g->x, g->y, NULL))                                                                          \
    OP(l1_loss, clef_l1_loss(g->x, g->y, NULL))                                                                            \
    OP(huber_loss, clef_huber_loss(g->x, g->y, &(clef_loss_options){.delta = 0.5}))                                        \
    OP(bce_with_logits, clef_bce_with_logits(g->x, g->p, NULL))                                                            \
    OP(custom, clef_custom(&cube, (clef_tensor *[]){g->x}, 1))                                                             \
    OP(kernel, run_kernel(g->x))                                                                                           \
    OP(to_f16, clef_to(clef_to(g->x, CLEF_F16), CLEF_F32))                                                                 \
    OP(to_bf16, clef_mul(clef_to(g->x, CLEF_BF16), clef_to(g->y, CLEF_BF16)))                                              \
    OP(to_i32, clef_to(clef_mul_scalar(g->x, 100), CLEF_I32))                                                              \
    OP(pow_number, clef_pow(g->p, clef_scalar(ctx, 3)))                                                                    \
    OP(number_pow, clef_pow(clef_scalar(ctx, 3), g->p))                                                                    \
    OP(pow_scalar, clef_pow_scalar(g->p, 2.5))                                                                             \
    OP(where_numbers, clef_mul(clef_where(g->flag, clef_scalar(ctx, 2), clef_scalar(ctx, 3)), g->x))                       \
    OP(zeros_like, clef_add(clef_zeros_like(g->x), g->x))                                                                  \
    OP(full_like, clef_copy(clef_full_like(g->x, 3)))                                                                      \
    OP(rand_like, clef_rand_like(g->x))                                                                                    \
    OP(randn_like, clef_randn_like(g->x))                                                                                  \
    OP(constants, clef_div(clef_sub(clef_full(ctx, CLEF_SHAPE(8), CLEF_F32, 2), g->x), clef_scalar(ctx, 3)))

typedef struct op_row {
    const char *name;
    clef_tensor *(*apply)(const given *g);
} op_row;

#define UNARY(name, ...) \
    static clef_tensor *apply_##name(const given *g) { return clef_##name(g->p); }
#define UNARY_P(name, ...) \
    static clef_tensor *apply_##name(const given *g) { return clef_##name(g->p, 0.5); }
#define UNARY_PP(name, ...) \
    static clef_tensor *apply_##name(const given *g) { return clef_##name(g->p, 0.3, 0.6); }
#include "unary.def"
#define BINARY(name, ...) \
    static clef_tensor *apply_##name(const given *g) { return clef_##name(g->p, g->y); }
#include "binary.def"
#define TERNARY(name, ...) \
    static clef_tensor *apply_##name(const given *g) { return clef_##name(g->flag, g->x, g->y); }
#include "ternary.def"
#define OP(name, ...) \
    static clef_tensor *apply_op_##name(const given *g) { return __VA_ARGS__; }
OPS(OP)
#undef OP

static const op_row ops[] = {
#define UNARY(name, ...) {#name, apply_##name},
#include "unary.def"
#define BINARY(name, ...) {#name, apply_##name},
#include "binary.def"
#define TERNARY(name, ...) {#name, apply_##name},
#include "ternary.def"
#define OP(name, ...) {#name, apply_op_##name},
    OPS(OP)
#undef OP
};
enum { N_OPS = sizeof ops / sizeof *ops };

/* ---- results as bytes ---- */

typedef struct answer {
    size_t bytes;
    void *data;
} answer;

static answer read_answer(clef_tensor *t, int device, const char *what) {
    answer a = {.bytes = (size_t)clef_numel(t) * clef_dtype_size(clef_tensor_dtype(t))};
    cr_assert_eq(clef_tensor_device(t), device, "%s lies on %d", what, clef_tensor_device(t));
    a.data = malloc(a.bytes + 1);
    cr_assert_eq(clef_read(t, a.data, a.bytes), CLEF_OK, "%s: %s", what, clef_error(ctx));
    return a;
}

static void expect_same(answer *a, answer *b, const char *what, int output) {
    cr_expect(a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0), "%s: output %d differs", what,
              output);
    free(a->data);
    free(b->data);
}

/* Of an op: its result, and the gradients of the parameters that it depends on. */
typedef struct answers {
    answer of[1 + PARAMETERS];
} answers;

static void compute_all(int device, answers *all) {
    given g = make_given(device);
    for (int i = 0; i < N_OPS; i++) {
        clef_tensor *dx[PARAMETERS] = {0};
        clef_seed(ctx, 11);
        clef_tensor *y = ops[i].apply(&g);
        cr_assert(y, "%s on %d: %s", ops[i].name, device, clef_error(ctx));
        if (clef_requires_grad(y)) {
            clef_status status = clef_grad(clef_sum(clef_square(y), NULL, 0, false), CLEF_NONE, g.parameter, PARAMETERS, false, dx);
            cr_assert_eq(status, CLEF_OK, "%s on %d: %s", ops[i].name, device, clef_error(ctx));
        }
        all[i].of[0] = read_answer(y, device, ops[i].name);
        for (int k = 0; k < PARAMETERS; k++)
            if (dx[k] && !clef__is_number(clef__output_of(dx[k]))) all[i].of[1 + k] = read_answer(dx[k], device, ops[i].name);
        cr_assert_eq(clef_end_step(ctx), CLEF_OK, "%s: %s", ops[i].name, clef_error(ctx));
    }
}

Test(elsewhere, every_op_and_its_gradient) {
    static answers first[N_OPS], second[N_OPS];
    cr_assert_lt(N_OPS, OPS_MOST);
    compute_all(0, first);
    compute_all(1, second);
    for (int i = 0; i < N_OPS; i++)
        for (int k = 0; k <= PARAMETERS; k++) expect_same(&first[i].of[k], &second[i].of[k], ops[i].name, k);
}

/* The status of making nodes for the second derivative of an op; nothing is computed. */
static clef_status differentiate_twice(const op_row *op, const given *g) {
    clef_tensor *dx[PARAMETERS] = {0}, *again[PARAMETERS], *sum = NULL, *y = op->apply(g);
    if (y && clef_requires_grad(y))
        clef_grad(clef_sum(clef_square(y), NULL, 0, false), CLEF_NONE, g->parameter, PARAMETERS, true, dx);
    for (int i = 0; i < PARAMETERS; i++) {
        if (!dx[i] || !clef_requires_grad(dx[i])) continue;
        clef_tensor *part = clef_sum(clef_square(dx[i]), NULL, 0, false);
        sum = sum ? clef_add(sum, part) : part;
    }
    if (sum) clef_grad(sum, CLEF_NONE, g->parameter, PARAMETERS, false, again);
    clef_status status = clef_error_status(ctx);
    cr_expect(!strstr(clef_error(ctx), "lie on devices"), "%s: %s", op->name, clef_error(ctx));
    clef_clear_error(ctx);
    return status;
}

Test(elsewhere, second_derivatives_mix_no_devices) {
    given here = make_given(0), there = make_given(1);
    for (int i = 0; i < N_OPS; i++)
        cr_expect_eq(differentiate_twice(&ops[i], &there), differentiate_twice(&ops[i], &here), "%s", ops[i].name);
}

/* Where only the second device has f64, what is computed there is made of its own numbers alone. */
Test(elsewhere, doubles_beside_a_device_without) {
    clef_device_info *first = (clef_device_info *)(uintptr_t)clef__device_info(clef__device_at(ctx, 0));
    if (!first->f64) cr_skip_test("no f64 on any device");
    given g = make_given(1);
    first->f64 = false;
    for (int i = 0; i < PARAMETERS; i++)
        g.parameter[i] = clef_require_grad(clef_keep(clef_copy(clef_to(clef_detach(g.parameter[i]), CLEF_F64))), true);
    g.mean = clef_to(g.mean, CLEF_F64), g.var = clef_to(g.var, CLEF_F64);
    for (int i = 0; i < N_OPS; i++) {
        clef_tensor *dx[PARAMETERS] = {0}, *y = ops[i].apply(&g);
        cr_assert(y, "%s: %s", ops[i].name, clef_error(ctx));
        if (clef_requires_grad(y))
            clef_grad(clef_sum(clef_square(y), NULL, 0, false), CLEF_NONE, g.parameter, PARAMETERS, false, dx);
        cr_assert_eq(clef_error_status(ctx), CLEF_OK, "%s: %s", ops[i].name, clef_error(ctx));
    }
    clef_tensor *narrow = clef_keep(clef_from_host(ctx, CLEF_SCALAR, CLEF_F32, &(float){2})),
                *wide = clef_keep(clef_copy(clef_sum(g.v, NULL, 0, false)));
    cr_expect_eq(clef_assign(wide, narrow), CLEF_OK, "%s", clef_error(ctx));
    cr_expect_eq(clef_item(wide), 2);
    cr_expect_eq(clef_assign(narrow, clef_mul_scalar(wide, 2)), CLEF_OK, "%s", clef_error(ctx));
    cr_expect_eq(clef_item(narrow), 4);
    cr_expect_null(clef_to(narrow, CLEF_F64));
    expect_error(ctx, CLEF_DTYPE, "no f64");
    first->f64 = true;
}

/* ---- layers ---- */

#define LAYERS(LAYER)                                                                                                           \
    LAYER(linear, clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, 6 * 64, 5, NULL))))                \
    LAYER(conv2d, clef_nn_conv2d(ctx, 6, 7, 3, NULL))                                                                           \
    LAYER(pools, clef_sequential(ctx, CLEF_LAYERS(clef_nn_max_pool2d(ctx, 2, NULL), clef_nn_avg_pool2d(ctx, 2, NULL))))         \
    LAYER(adaptive, clef_nn_adaptive_avg_pool2d(ctx, 3, 2))                                                                     \
    LAYER(batch_norm2d, clef_nn_batch_norm2d(ctx, 6, NULL))                                                                     \
    LAYER(layer_norm, clef_nn_layer_norm(ctx, CLEF_SHAPE(8, 8), NULL))                                                          \
    LAYER(rms_norm, clef_nn_rms_norm(ctx, CLEF_SHAPE(8), NULL))                                                                 \
    LAYER(group_norm, clef_nn_group_norm(ctx, 2, 6, NULL))                                                                      \
    LAYER(dropout, clef_nn_dropout(ctx, 0.3))                                                                                   \
    LAYER(activations, clef_sequential(ctx, CLEF_LAYERS(clef_nn_gelu(ctx), clef_nn_silu(ctx), clef_nn_softmax(ctx, 1))))        \
    LAYER(conv_transpose2d, clef_nn_conv_transpose2d(ctx, 6, 4, 2, NULL))                                                       \
    LAYER(upsample, clef_nn_upsample_nearest2d(ctx, 2))                                                                         \
    LAYER(instance_norm2d, clef_nn_instance_norm2d(ctx, 6, &(clef_nn_instance_norm_options){.affine = true}))                   \
    LAYER(prelu, clef_nn_prelu(ctx, 6, 0.25))                                                                                   \
    LAYER(residual, clef_nn_residual(ctx, clef_nn_batch_norm2d(ctx, 6, NULL), NULL, true))                                      \
    LAYER(lenet, clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 6, 1, 1, NULL), clef_nn_adaptive_avg_pool2d(ctx, 16, 16), \
                                                  clef_model_lenet(ctx, CLEF_SHAPE(1, 16, 16), 10))))

typedef struct layer_row {
    const char *name;
    clef_module *(*make)(void);
} layer_row;

#define LAYER(name, ...) \
    static clef_module *make_##name(void) { return __VA_ARGS__; }
LAYERS(LAYER)
#undef LAYER

static const layer_row layers[] = {
#define LAYER(name, ...) {#name, make_##name},
    LAYERS(LAYER)
#undef LAYER
};
enum { N_LAYERS = sizeof layers / sizeof *layers, TENSORS = 32 };

/* The output, the module's tensors after it, and the gradients; initial values are drawn where the layer lies. */
static int run_layer(const layer_row *row, int device, answer *out) {
    clef_seed(ctx, 5);
    clef_module *layer = row->make();
    cr_assert(layer && clef_module_to(layer, device) == CLEF_OK, "%s: %s", row->name, clef_error(ctx));
    for (int i = 0; i < clef_module_tensors(layer); i++) {
        clef_named_tensor t = clef_module_tensor(layer, i);
        if (!t.is_buffer) cr_assert_eq(clef_init_normal(t.tensor, 0, 0.1), CLEF_OK, "%s", clef_error(ctx));
    }
    clef_tensor *x = clef_require_grad(floats(device, CLEF_SHAPE(4, 6, 8, 8), 1, -1, 1), true), *y = clef_forward(layer, x);
    cr_assert_eq(clef_backward(clef_sum(clef_square(y), NULL, 0, false)), CLEF_OK, "%s: %s", row->name, clef_error(ctx));
    int n = 0;
    out[n++] = read_answer(y, device, row->name);
    out[n++] = read_answer(clef_grad_of(x), device, row->name);
    for (int i = 0; i < clef_module_tensors(layer); i++) {
        clef_named_tensor t = clef_module_tensor(layer, i);
        cr_assert_lt(n + 2, TENSORS);
        out[n++] = read_answer(t.tensor, device, t.name);
        if (!t.is_buffer) out[n++] = read_answer(clef_grad_of(t.tensor), device, t.name);
    }
    return n;
}

Test(elsewhere, every_layer) {
    for (int i = 0; i < N_LAYERS; i++) {
        answer first[TENSORS], second[TENSORS];
        int n = run_layer(&layers[i], 0, first);
        cr_assert_eq(run_layer(&layers[i], 1, second), n);
        for (int k = 0; k < n; k++) expect_same(&first[k], &second[k], layers[i].name, k);
    }
}

/* ---- initialisers draw where the parameter lies ---- */

Test(elsewhere, initialisers) {
    clef_tensor *t[2];
    for (int how = 0; how < 5; how++) {
        answer a[2];
        for (int device = 0; device < 2; device++) {
            clef_seed(ctx, 7);
            t[device] = floats(device, CLEF_SHAPE(6, 10), 1, -1, 1);
            clef_status status = how == 0   ? clef_init_uniform(t[device], -1, 2)
                                 : how == 1 ? clef_init_normal(t[device], 1, 2)
                                 : how == 2 ? clef_init_orthogonal(t[device], 1)
                                 : how == 3 ? clef_init_kaiming_uniform(t[device], 0)
                                            : clef_init_constant(t[device], 0.1);
            cr_assert_eq(status, CLEF_OK, "%s", clef_error(ctx));
            cr_expect(!strstr(plan_text(t[device]), "transfer"), "initialiser %d draws elsewhere", how);
            a[device] = read_answer(t[device], device, "initialised");
        }
        expect_same(&a[0], &a[1], "initialiser", how);
    }
}
