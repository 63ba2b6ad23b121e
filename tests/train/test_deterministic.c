/* The same seed and weights give the same bits, a hundred times over: convolution, pooling and matmul (LeNet), dropout and
   batch norm, and the gradient of an embedding, whose rows collide.  Elsewhere, too: in a context without buffer reuse.
   ctest: together plain */
#include "support/device.h"

enum { BATCH = 16, STEPS = 2, RUNS = 100 };

typedef clef_module *make_net(clef_context *ctx);

static clef_module *lenet(clef_context *ctx) { return clef_model_lenet(ctx, CLEF_SHAPE(1, 8, 8), 10); }

static clef_module *with_dropout(clef_context *ctx) {
    clef_nn_conv2d_options padded = {.conv.padding = {1, 1}};
    return clef_sequential(ctx,
                           CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 8, 3, &padded), clef_nn_batch_norm2d(ctx, 8, NULL), clef_nn_gelu(ctx),
                                       clef_nn_dropout(ctx, 0.3), clef_nn_avg_pool2d(ctx, 2, NULL), clef_nn_flatten(ctx),
                                       clef_nn_linear(ctx, 128, 10, NULL), clef_nn_layer_norm(ctx, CLEF_SHAPE(10), NULL)));
}

/* 64 pixels in 17 shades are words of a small vocabulary. */
static clef_module *with_embedding(clef_context *ctx) {
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_embedding(ctx, 17, 4), clef_nn_flatten(ctx),
                                            clef_nn_dropout(ctx, 0.1), clef_nn_linear(ctx, 256, 10, NULL)));
}

/* A net, its optimizer, one batch, and what everything was at the start. */
typedef struct trial {
    clef_context *ctx;
    clef_module *net;
    clef_optimizer *optimizer;
    clef_tensor *x, *y;
    char *start;
} trial;

static int tensors(const trial *t) { return clef_module_tensors(t->net) + clef_optimizer_tensors(t->optimizer); }

static clef_tensor *tensor(const trial *t, int i) {
    int n = clef_module_tensors(t->net);
    return i < n ? clef_module_tensor(t->net, i).tensor : clef_optimizer_tensor(t->optimizer, i - n).tensor;
}

static size_t bytes(clef_tensor *t) { return (size_t)clef_numel(t) * clef_dtype_size(clef_tensor_dtype(t)); }

static size_t state_bytes(const trial *t) {
    size_t n = 0;
    for (int i = 0; i < tensors(t); i++) n += bytes(tensor(t, i));
    return n;
}

/* Weights, statistics and the optimizer's states; the caller frees. */
static char *state(const trial *t) {
    char *all = malloc(state_bytes(t) + 1), *at = all;
    for (int i = 0; i < tensors(t); at += bytes(tensor(t, i)), i++)
        cr_assert(clef_read(tensor(t, i), at, bytes(tensor(t, i))) == CLEF_OK, "%s", clef_error(t->ctx));
    return all;
}

static trial open_trial(make_net *make, bool words, bool debug_memory) {
    trial t = {.ctx = open_or_skip(&(clef_options){.seed = 8, .debug_memory = debug_memory})};
    clef_loader *data = clef_loader_open(clef_digits(t.ctx, CLEF_TRAIN), &(clef_loader_options){.batch = BATCH});
    clef_batch batch;
    cr_assert(clef_next(data, &batch), "%s", clef_error(t.ctx));
    t.x = clef_keep(words ? clef_to(clef_mul(batch.x, clef_scalar(t.ctx, 16)), CLEF_I32) : batch.x);
    t.y = clef_keep(batch.y);
    t.net = make(t.ctx);
    t.optimizer = clef_adam(t.net, &(clef_adam_options){.lr = 1e-2});
    cr_assert(t.optimizer, "%s", clef_error(t.ctx));
    t.start = state(&t);
    return t;
}

static void close_trial(trial *t) {
    free(t->start);
    clef_close(t->ctx);
}

/* Puts everything back and trains; the state afterwards (the caller frees) and the last loss. */
static char *run(trial *t, float *loss) {
    clef_seed(t->ctx, 21);
    const char *at = t->start;
    for (int i = 0; i < tensors(t); at += bytes(tensor(t, i)), i++)
        cr_assert(clef_write(tensor(t, i), at, bytes(tensor(t, i))) == CLEF_OK, "%s", clef_error(t->ctx));
    clef_optimizer_set(t->optimizer, (clef_optimizer_state){.lr = 1e-2});
    for (int i = 0; i < STEPS; i++) {
        clef_tensor *l = clef_cross_entropy(clef_forward(t->net, t->x), t->y, NULL);
        clef_backward(l);
        cr_assert(clef_step(t->optimizer) == CLEF_OK, "%s", clef_error(t->ctx));
        cr_assert(clef_read(l, loss, sizeof *loss) == CLEF_OK, "%s", clef_error(t->ctx));
    }
    return state(t);
}

static void expect_same_bits(make_net *make, bool words) {
    float loss, again;
    trial t = open_trial(make, words, false);
    char *want = run(&t, &loss);
    size_t n = state_bytes(&t);
    cr_assert(memcmp(want, t.start, n), "nothing was trained");
    for (int i = 1; i < RUNS; i++) {
        char *have = run(&t, &again);
        cr_assert(!memcmp(&loss, &again, sizeof loss), "run %d: a loss of %.9g, not %.9g", i + 1, (double)again, (double)loss);
        cr_assert(!memcmp(have, want, n), "run %d: other weights", i + 1);
        free(have);
    }
    close_trial(&t);
    t = open_trial(make, words, true);
    char *have = run(&t, &again);
    cr_assert(!memcmp(&loss, &again, sizeof loss), "without reuse: a loss of %.9g, not %.9g", (double)again, (double)loss);
    cr_assert(!memcmp(have, want, n), "without reuse: other weights");
    free(have), free(want);
    close_trial(&t);
}

Test(deterministic, lenet) { expect_same_bits(lenet, false); }

Test(deterministic, dropout_and_norms) { expect_same_bits(with_dropout, false); }

Test(deterministic, embedding) { expect_same_bits(with_embedding, true); }

/* The comparison sees something: other random numbers drop others. */
Test(deterministic, dropout_depends_on_the_seed) {
    trial t = open_trial(with_dropout, false, false);
    double loss[2];
    for (int i = 0; i < 2; i++) {
        clef_seed(t.ctx, 21 + (uint64_t)i);
        for (CLEF_NO_GRAD(t.ctx)) loss[i] = clef_item(clef_cross_entropy(clef_forward(t.net, t.x), t.y, NULL));
    }
    cr_assert_neq(loss[0], loss[1]);
    close_trial(&t);
}
