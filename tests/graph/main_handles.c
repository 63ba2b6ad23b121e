/* Handles whose time is over, and CLEF_NONE, everywhere a program may use a tensor: found out with a line, never another tensor's
   numbers.
   CLEF_TEST_ALL=1: as many handles as a week of training.
   ctest: cost=20 plain */
#include "graph/graph_internal.h"
#include "support/plain.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static clef_context *ctx;
static int failures;

#define EXPECT(condition) expect(condition, #condition, __LINE__)
static void expect(bool holds, const char *what, int line) {
    if (holds) return;
    failures++;
    fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, line, what, clef_error(ctx));
}

/* The error there (NULL: this thread's) is of this status, and its line is of op and has this word; then it is cleared. */
static void expect_error_in(clef_context *there, clef_status status, const char *op, const char *word, int line) {
    const char *text = clef_error(there);
    bool begins = strncmp(text, op, strlen(op)) == 0 && text[strlen(op)] == ':';
    if (clef_error_status(there) != status || !begins || !strstr(text, word)) {
        failures++;
        fprintf(stderr, "line %d: %s %s … %s wanted, but: %s %s\n", line, clef_status_name(status), op, word,
                clef_status_name(clef_error_status(there)), text);
    }
    clef_clear_error(there);
}
static void expect_error(clef_status status, const char *op, const char *word, int line) {
    expect_error_in(ctx, status, op, word, line);
}

/* What is tried: CLEF_NONE, whose line is this thread's where no other tensor tells the context; else a handle whose step is over.
 */
static bool none;
static void expect_refusal(const char *op, const char *name, int line) {
    char words[80];
    snprintf(words, sizeof words, none ? "%s must be a tensor, not CLEF_NONE" : "%s was a temporary (mul [2,2])", name);
    expect_error_in(none && clef_error_status(ctx) == CLEF_OK ? NULL : ctx, none ? CLEF_INVALID : CLEF_STATE, op, words, line);
}
#define REFUSED(op, name) expect_refusal(op, name, __LINE__)

static void end_steps(int n) {
    for (int i = 0; i < n; i++) {
        clef_scalar(ctx, i);
        clef_end_step(ctx);
    }
}

static clef_tensor *numbers(void) { return clef_from_host(ctx, CLEF_SHAPE(2, 2), CLEF_F32, (float[]){1, 2, 3, 4}); }

/* A handle whose step is over. */
static clef_tensor *ended(void) {
    clef_tensor *t = clef_mul_scalar(numbers(), 2);
    end_steps(2);
    return t;
}

/* ---- what one function after the other says ---- */

#define UNARY(name, ...)     \
    EXPECT(!clef_##name(t)); \
    REFUSED(#name, "x");
#define UNARY_P(name, ...)      \
    EXPECT(!clef_##name(t, 1)); \
    REFUSED(#name, "x");
#define UNARY_PP(name, ...)        \
    EXPECT(!clef_##name(t, 0, 1)); \
    REFUSED(#name, "x");
static void unary_ops(clef_tensor *t) {
#include "unary.def"
}
#define BINARY(name, ...)                \
    EXPECT(!clef_##name(t, good));       \
    REFUSED(#name, "a");                 \
    EXPECT(!clef_##name(good, t));       \
    REFUSED(#name, "b");                 \
    EXPECT(!clef_##name##_scalar(t, 2)); \
    REFUSED(#name, "a");
#define TERNARY(name, ...)               \
    EXPECT(!clef_##name(good, good, t)); \
    REFUSED(#name, "c");
static void binary_ops(clef_tensor *t, clef_tensor *good) {
#include "binary.def"
#include "ternary.def"
}

#define EXPRESSION(op, call) \
    EXPECT(!(call));         \
    REFUSED(op, "")
static void structured_ops(clef_tensor *t, clef_tensor *good) {
    int64_t none[2] = {0};
    clef_tensor *both[2] = {good, t}, *vector = clef_ones(ctx, CLEF_SHAPE(2), CLEF_F32);
    EXPRESSION("to", clef_to(t, CLEF_F16));
    EXPRESSION("sum", clef_sum(t, NULL, 0, false));
    EXPRESSION("mean", clef_mean(t, NULL, 0, false));
    EXPRESSION("max", clef_max(t, NULL, 0, false));
    EXPRESSION("min", clef_min(t, NULL, 0, false));
    EXPRESSION("prod", clef_prod(t, NULL, 0, false));
    EXPRESSION("var", clef_var(t, NULL, 0, false, 0));
    EXPRESSION("std", clef_std(t, NULL, 0, false, 0));
    EXPRESSION("cosine_similarity", clef_cosine_similarity(good, t, 0, 1e-8));
    EXPRESSION("logsumexp", clef_logsumexp(t, NULL, 0, false));
    EXPRESSION("norm", clef_norm(t, 2, NULL, 0, false));
    EXPRESSION("argmax", clef_argmax(t, 0, false));
    EXPRESSION("argmin", clef_argmin(t, 0, false));
    EXPRESSION("reshape", clef_reshape(t, CLEF_SHAPE(4)));
    EXPRESSION("flatten", clef_flatten(t, 0, 1));
    EXPRESSION("squeeze", clef_squeeze(t, 0));
    EXPRESSION("unsqueeze", clef_unsqueeze(t, 0));
    EXPRESSION("transpose", clef_transpose(t, 0, 1));
    EXPRESSION("permute", clef_permute(t, (int[]){1, 0}));
    EXPRESSION("expand", clef_expand(t, CLEF_SHAPE(3, 2, 2)));
    EXPRESSION("slice", clef_slice(t, 0, 0, 1, 1));
    EXPRESSION("flip", clef_flip(t, 0));
    EXPRESSION("concat", clef_concat(both, 2, 0));
    EXPRESSION("stack", clef_stack(both, 2, 0));
    EXPRESSION("pad", clef_pad(t, none, none, 0));
    EXPRESSION("gather", clef_gather(good, 0, t));
    EXPRESSION("scatter_add", clef_scatter_add(t, 0, good, good));
    EXPRESSION("scatter_reduce", clef_scatter_reduce(good, 0, t, good, CLEF_SCATTER_MAX, false));
    EXPRESSION("scatter_reduce", clef_scatter_reduce(good, 0, good, t, CLEF_SCATTER_MEAN, true));
    EXPRESSION("index_add", clef_index_add(good, 0, good, t));
    EXPRESSION("cumsum", clef_cumsum(t, 0));
    EXPRESSION("cumprod", clef_cumprod(t, 0));
    EXPRESSION("embedding", clef_embedding(good, t));
    EXPRESSION("tril", clef_tril(t, 0));
    EXPRESSION("triu", clef_triu(t, 0));
    EXPRESSION("where_scalar", clef_where_scalar(t, good, 0));
    EXPRESSION("masked_fill", clef_masked_fill(good, t, 0));
    EXPRESSION("index_select", clef_index_select(good, 0, t));
    EXPRESSION("scatter", clef_scatter(t, 0, good, good));
    EXPRESSION("scatter_value", clef_scatter_value(good, 0, t, 1));
    EXPRESSION("repeat", clef_repeat(t, (int64_t[]){2, 2}, 2));
    EXPRESSION("repeat_interleave", clef_repeat_interleave(t, 2, 0));
    EXPRESSION("matmul", clef_matmul(good, t));
    EXPRESSION("linear", clef_linear(t, good, CLEF_NONE));
    EXPRESSION("conv2d", clef_conv2d(good, t, CLEF_NONE, NULL));
    EXPRESSION("conv1d", clef_conv1d(good, t, CLEF_NONE, NULL));
    EXPRESSION("upsample_nearest2d", clef_upsample_nearest2d(t, 2, 2));
    EXPRESSION("prelu", clef_prelu(good, t));
    EXPRESSION("max_pool2d", clef_max_pool2d(t, 1, 1, NULL));
    EXPRESSION("avg_pool2d", clef_avg_pool2d(t, 1, 1, NULL));
    EXPRESSION("adaptive_avg_pool2d", clef_adaptive_avg_pool2d(t, 1, 1));
    EXPRESSION("global_avg_pool2d", clef_global_avg_pool2d(t));
    EXPRESSION("softmax", clef_softmax(t, 0));
    EXPRESSION("log_softmax", clef_log_softmax(t, 0));
    EXPRESSION("layer_norm", clef_layer_norm(t, 1, vector, vector, 1e-5));
    EXPRESSION("rms_norm", clef_rms_norm(t, 1, vector, 1e-5));
    EXPRESSION("group_norm", clef_group_norm(t, 1, vector, vector, 1e-5));
    EXPRESSION("instance_norm", clef_instance_norm(t, vector, vector, 1e-5));
    EXPRESSION("batch_norm", clef_batch_norm(good, vector, vector, t, vector, true, 0.1, 1e-5));
    EXPRESSION("dropout", clef_dropout(t, 0.5));
    EXPRESSION("cross_entropy", clef_cross_entropy(good, t, NULL));
    EXPRESSION("nll_loss", clef_nll_loss(t, good, NULL));
    EXPRESSION("mse_loss", clef_mse_loss(good, t, NULL));
    EXPRESSION("l1_loss", clef_l1_loss(t, good, NULL));
    EXPRESSION("huber_loss", clef_huber_loss(t, good, NULL));
    EXPRESSION("bce_with_logits", clef_bce_with_logits(t, good, NULL));
    EXPRESSION("kl_div", clef_kl_div(good, t, NULL));
    EXPRESSION("custom", clef_custom(&(clef_custom_op){.name = "twice", .forward = "x + x"}, &t, 1));
    EXPRESSION("detach", clef_detach(t));
    EXPRESSION("to_device", clef_to_device(t, 0));
    EXPRESSION("copy", clef_copy(t));
    EXPRESSION("keep", clef_keep(t));
    EXPRESSION("require_grad", clef_require_grad(t, true));
}

/* Where CLEF_NONE is an answer. */
static void optional_inputs(clef_tensor *t, clef_tensor *good) {
    clef_tensor *vector = clef_ones(ctx, CLEF_SHAPE(2), CLEF_F32), *y = clef_mul(good, good), *dx;
    EXPRESSION("linear", clef_linear(good, good, t));
    EXPRESSION("conv2d", clef_conv2d(good, good, t, NULL));
    EXPRESSION("layer_norm", clef_layer_norm(good, 1, t, vector, 1e-5));
    EXPRESSION("layer_norm", clef_layer_norm(good, 1, vector, t, 1e-5));
    EXPRESSION("rms_norm", clef_rms_norm(good, 1, t, 1e-5));
    EXPRESSION("group_norm", clef_group_norm(good, 1, t, vector, 1e-5));
    EXPRESSION("group_norm", clef_group_norm(good, 1, vector, t, 1e-5));
    EXPRESSION("batch_norm", clef_batch_norm(good, t, vector, vector, vector, true, 0.1, 1e-5));
    EXPRESSION("batch_norm", clef_batch_norm(good, vector, t, vector, vector, true, 0.1, 1e-5));
    EXPRESSION("backward", clef_backward_from(y, t) == CLEF_OK ? y : NULL);
    EXPRESSION("grad", clef_grad(y, t, &good, 1, false, &dx) == CLEF_OK ? dx : NULL);
    EXPRESSION("set_grad", clef_set_grad(good, t) == CLEF_OK ? good : NULL);
}

#define ACTION(op, call)       \
    EXPECT((call) != CLEF_OK); \
    REFUSED(op, "")
static void actions(clef_tensor *t, clef_tensor *good) {
    float out[4];
    char text[80];
    clef_tensor *parts[2], *y = clef_mul(good, good);
    ACTION("read", clef_read(t, out, sizeof out));
    ACTION("write", clef_write(t, out, sizeof out));
    ACTION("eval", clef_eval(t));
    ACTION("eval", clef_eval_all((clef_tensor *[]){good, t}, 2));
    ACTION("assign", clef_assign(t, good));
    ACTION("assign", clef_assign(good, t));
    ACTION("print", clef_print(t, stdout));
    ACTION("print_plan", clef_print_plan(t, CLEF_PLAN_TEXT, stdout));
    ACTION("format", clef_format(t, text, sizeof text) < 0 ? CLEF_STATE : CLEF_OK);
    ACTION("split", clef_split(t, 0, (int64_t[]){1, 1}, 2, parts));
    ACTION("backward", clef_backward(t));
    ACTION("grad", clef_grad(y, y, &t, 1, false, parts));
    ACTION("set_grad", clef_set_grad(t, good));
    ACTION("init_constant", clef_init_constant(t, 1));
    ACTION("init_normal", clef_init_normal(t, 0, 1));
    ACTION("init_uniform", clef_init_uniform(t, 0, 1));
    ACTION("init_kaiming_normal", clef_init_kaiming_normal(t, 0));
    ACTION("init_orthogonal", clef_init_orthogonal(t, 1));
    ACTION("npy_write", clef_npy_write(t, "ended.npy"));
    EXPECT(clef_safetensors_write(ctx, "ended.safetensors", &(clef_named_tensor){.name = "t", .tensor = t}, 1, NULL) != CLEF_OK);
    if (none) expect_error(CLEF_INVALID, "safetensors_write", "tensor 0 (t) is CLEF_NONE", __LINE__);
    else REFUSED("eval", "t[0]");
    clef_module *net = clef_nn_linear(ctx, 2, 2, NULL);
    ACTION("forward", clef_forward(net, t) ? CLEF_OK : CLEF_STATE);
    ACTION("linear", clef_module_add_buffer(net, "more", t));
    EXPECT(isnan(clef_item(t)));
    REFUSED("item", "t");
    clef_release(t);
    if (!none) REFUSED("release", "t");
}

/* ---- what only asks: nothing fails, and nothing of another tensor is told ---- */
static void questions(clef_tensor *t) {
    EXPECT(!clef_tensor_context(t) && clef_tensor_shape(t).rank == 0 && clef_numel(t) == 0 && clef_tensor_device(t) == -1);
    EXPECT(!clef_grad_of(t) && !clef_requires_grad(t));
    EXPECT(clef_error_status(ctx) == CLEF_OK);
}

static void every_function(clef_tensor *t) {
    clef_tensor *good = clef_require_grad(clef_keep(numbers()), true);
    none = t == CLEF_NONE;
    unary_ops(t);
    binary_ops(t, good);
    structured_ops(t, good);
    if (!none) optional_inputs(t, good);
    actions(t, good);
    questions(t);
    clef_release(good);
    EXPECT(clef_error_status(NULL) == CLEF_OK);
}

/* ---- lifetimes ---- */

static void slots_that_are_used_again(void) {
    clef_tensor *old = ended();
    for (int i = 0; i < 3000; i++) EXPECT(clef_scalar(ctx, i) != old);
    EXPECT(isnan(clef_item(old)));
    expect_error(CLEF_STATE, "item", "was freed steps ago", __LINE__);
    end_steps(2);
}

static void releases(void) {
    end_steps(2 + CLEF_RESULT_STEPS);
    uint64_t before = clef_memory(ctx).buffers;
    clef_tensor *t = clef_keep(numbers()), *leaf = clef_require_grad(clef_keep(clef_scalar(ctx, 3)), true);
    end_steps(3);
    clef_release(t);
    EXPECT(!clef_relu(t));
    expect_error(CLEF_STATE, "relu", "x (data [2,2]) was released", __LINE__);
    clef_release(t);
    expect_error(CLEF_STATE, "release", "was released", __LINE__);
    clef_backward(clef_mul(leaf, leaf));
    clef_tensor *gradient = clef_grad_of(leaf);
    EXPECT(clef_item(gradient) == 6);
    clef_set_grad(leaf, CLEF_NONE);
    EXPECT(isnan(clef_item(gradient)));
    expect_error(CLEF_STATE, "item", "was released", __LINE__);
    clef_release(leaf);
    end_steps(2 + CLEF_RESULT_STEPS);
    EXPECT(clef_memory(ctx).buffers == before);
}

static void closed_contexts(void) {
    clef_context *other = clef_open(NULL);
    clef_tensor *theirs = clef_keep(clef_scalar(other, 5)), *ours = clef_scalar(ctx, 1);
    clef_close(other);
    EXPECT(!clef_add(ours, theirs));
    expect_error(CLEF_INVALID, "add", "b belongs to a context that was closed", __LINE__);
    EXPECT(!clef_relu(theirs) && strstr(clef_error(NULL), "relu: x belongs to a context that was closed"));
    other = clef_open(NULL); /* it gets the same slots */
    clef_tensor *again = clef_keep(clef_scalar(other, 6));
    EXPECT(again != theirs && isnan(clef_item(theirs)) && clef_item(again) == 6);
    clef_close(other);
    clef_clear_error(NULL);
}

static void what_was_never_a_handle(void) {
    int object = 0;
    clef_tensor *wild[] = {(clef_tensor *)&object, (clef_tensor *)1, (clef_tensor *)(uintptr_t)0xdeadbeef,
                           (clef_tensor *)UINTPTR_MAX};
    for (int i = 0; i < 4; i++) {
        EXPECT(!clef_relu(wild[i]));
        EXPECT(clef_error_status(NULL) == CLEF_INVALID);
        clef_clear_error(NULL);
    }
    clef_tensor *future = (clef_tensor *)((uintptr_t)clef_scalar(ctx, 1) + ((uintptr_t)1000 << CLEF__GENERATION_SHIFT));
    EXPECT(!clef_relu(future) && clef_error_status(NULL) == CLEF_INVALID);
    clef_clear_error(NULL);
}

static void null_where_nothing_failed(void) {
    clef_tensor *x = numbers();
    EXPECT(!clef_linear(x, x, NULL));
    expect_error(CLEF_INVALID, "linear", "b is NULL though nothing failed before; CLEF_NONE stands for none", __LINE__);
    EXPECT(!clef_add(NULL, x));
    expect_error(CLEF_INVALID, "add", "a is NULL", __LINE__);
    EXPECT(!clef_relu(NULL) && clef_error_status(ctx) == CLEF_OK);
    EXPECT(!clef_add(clef_matmul(x, clef_ones(ctx, CLEF_SHAPE(3, 1), CLEF_F32)), x)); /* what follows from a failure is silent */
    expect_error(CLEF_SHAPE, "matmul", "", __LINE__);
}

/* NULL is no CLEF_NONE, and the other way round. */
static void no_tensor(void) {
    static clef_tensor *const absent = CLEF_NONE; /* a constant */
    clef_tensor *x = clef_require_grad(clef_keep(numbers()), true), *y = clef_sum(x, NULL, 0, false), *dx;
    EXPECT(absent && !clef__is_handle(absent) && (void *)absent != (void *)ctx);
    EXPECT(!clef_linear(x, CLEF_NONE, CLEF_NONE));
    expect_error(CLEF_INVALID, "linear", "w must be a tensor, not CLEF_NONE", __LINE__);
    EXPECT(!clef_linear(CLEF_NONE, CLEF_NONE, CLEF_NONE));
    expect_error_in(NULL, CLEF_INVALID, "linear", "x must be a tensor, not CLEF_NONE", __LINE__);
    EXPECT(!clef_linear(NULL, x, CLEF_NONE));
    expect_error(CLEF_INVALID, "linear", "x is NULL though nothing failed before", __LINE__);
    EXPECT(!clef_layer_norm(x, 1, CLEF_NONE, NULL, 1e-5));
    expect_error(CLEF_INVALID, "layer_norm", "bias is NULL", __LINE__);
    EXPECT(!clef_conv2d(x, x, NULL, NULL));
    expect_error(CLEF_INVALID, "conv2d", "b is NULL", __LINE__);
    EXPECT(clef_grad(y, NULL, &x, 1, false, &dx) == CLEF_INVALID);
    expect_error(CLEF_INVALID, "grad", "grad is NULL", __LINE__);
    EXPECT(clef_backward_from(y, CLEF_NONE) == CLEF_OK && clef_set_grad(x, NULL) == CLEF_INVALID && clef_grad_of(x));
    expect_error(CLEF_INVALID, "set_grad", "grad is NULL", __LINE__);
    EXPECT(clef_set_grad(x, CLEF_NONE) == CLEF_OK && !clef_grad_of(x) && clef_set_grad(x, CLEF_NONE) == CLEF_OK);
    EXPECT(!clef_linear(clef_matmul(x, clef_ones(ctx, CLEF_SHAPE(3, 1), CLEF_F32)), x, CLEF_NONE)); /* what follows is silent */
    expect_error(CLEF_SHAPE, "matmul", "", __LINE__);
    clef_release(x);
}

/* ---- results of a step ---- */

static clef_tensor *loss_of(clef_module *net) {
    return clef_mean(clef_square(clef_forward(net, clef_ones(ctx, CLEF_SHAPE(4, 3), CLEF_F32))), NULL, 0, false);
}

/* Two optimizers, each of which ends a step, before the first loss is looked at. */
static void adversaries(void) {
    clef_module *net[2] = {clef_nn_linear(ctx, 3, 2, NULL), clef_nn_linear(ctx, 3, 2, NULL)};
    clef_optimizer *opt[2] = {clef_sgd(net[0], &(clef_sgd_options){.lr = 0.1}), clef_sgd(net[1], &(clef_sgd_options){.lr = 0.1})};
    double before = INFINITY;
    for (int i = 0; i < 4; i++) {
        clef_tensor *loss[2], *norm[2];
        for (int k = 0; k < 2; k++) {
            loss[k] = loss_of(net[k]);
            EXPECT(clef_backward(loss[k]) == CLEF_OK);
            norm[k] = clef_clip_grad_norm(net[k], 1);
            EXPECT(clef_step(opt[k]) == CLEF_OK);
        }
        double now = clef_item(loss[0]) + clef_item(loss[1]);
        EXPECT(now < before);
        EXPECT(clef_item(norm[0]) > 0 && clef_item(norm[1]) > 0);
        before = now;
    }
    clef_tensor *last = loss_of(net[0]);
    clef_backward(last);
    clef_end_step(ctx);
    end_steps(CLEF_RESULT_STEPS - 1);
    EXPECT(clef_item(last) > 0);
    end_steps(2);
    EXPECT(isnan(clef_item(last)));
    expect_error(CLEF_STATE, "item", "t was a temporary (reshape []), which ended 2 steps ago; keep", __LINE__);
}

/* ---- slots ---- */

static void slots_retire(void) {
    clef__slots slots = {0};
    clef__tensor *t = clef__slot_take(&slots, ctx);
    uint32_t first = t->slot;
    t->generation = CLEF__LAST_GENERATION;
    atomic_store(&t->handle, 0); /* as if it had been used so often */
    clef__slot_free(&slots, t, (clef__ended){.op = "test"});
    for (int i = 0; i < 2 << CLEF__CHUNK_BITS; i++) {
        t = clef__slot_take(&slots, ctx);
        EXPECT(t && t->slot != first && clef__get(clef__handle(t)) == t);
        clef__slot_free(&slots, t, (clef__ended){.op = "test"});
    }
    clef__slots_close(&slots);
}

/* As a loop of steps does: some live while others come and go. */
static void many_handles(int64_t n) {
    enum { LIVE = 600 };
    clef__slots slots = {0};
    clef__tensor *live[LIVE] = {0};
    clef_tensor *gone = NULL;
    for (int64_t i = 0; i < n; i++) {
        clef__tensor **t = &live[i * 7919 % LIVE];
        if (*t) {
            if (i % 4099 == 0) gone = clef__handle(*t);
            clef__slot_free(&slots, *t, (clef__ended){.op = "test"});
        }
        *t = clef__slot_take(&slots, ctx);
        if (clef__get(gone)) {
            EXPECT(!"a handle that was freed is taken for another's");
            break;
        }
    }
    EXPECT(slots.n == LIVE / (1 << CLEF__CHUNK_BITS) + 1);
    clef__slots_close(&slots);
    EXPECT(!clef__get(gone));
}

int main(void) {
    ctx = clef_open(NULL);
    if (!ctx) return without_context();
    every_function(ended());
    every_function(CLEF_NONE);
    slots_that_are_used_again();
    releases();
    closed_contexts();
    what_was_never_a_handle();
    null_where_nothing_failed();
    no_tensor();
    adversaries();
    slots_retire();
    many_handles(getenv("CLEF_TEST_ALL") ? 1000000000 : 3000000);
    EXPECT(clef_error_status(ctx) == CLEF_OK);
    clef_close(ctx);
    printf("%d failures\n", failures);
    return failures != 0;
}
