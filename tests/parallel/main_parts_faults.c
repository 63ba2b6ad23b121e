/* clef_backward_parts where each allocation fails once: a line and no leak (AddressSanitizer looks), gradients and buffers as they were, and after
   clef_clear_error the same call gives what it gives without a failure.
   ctest: cost=30 plain */
#include "support/plain.h"
#include <stdlib.h>
#include <string.h>

enum { ITEMS = 6, SIDE = 4, PARTS = 4, MOST = 4096, VALUES = 256 };

static long countdown;
static void *counted(void *user, size_t n) { return (void)user, countdown-- == 0 ? NULL : malloc(n); }
static void *counted_again(void *user, void *p, size_t n) { return (void)user, countdown-- == 0 ? NULL : realloc(p, n); }
static void counted_free(void *user, void *p) { (void)user, free(p); }

static clef_tensor *loss(clef_module *net, const clef_batch *b, void *user) {
    (void)user;
    return clef_cross_entropy(clef_forward(net, b->x), b->y, NULL);
}

static clef_module *make_net(clef_context *ctx) {
    return clef_sequential(ctx,
                           CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 2, 3, NULL), clef_nn_batch_norm2d(ctx, 2, NULL), clef_nn_relu(ctx),
                                       clef_nn_flatten(ctx), clef_nn_dropout(ctx, 0.2), clef_nn_linear(ctx, 8, 3, NULL)));
}

static int read_values(clef_module *net, bool gradients, float *to) {
    int n = 0;
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_named_tensor t = clef_module_tensor(net, i);
        clef_tensor *from = gradients ? t.is_buffer ? NULL : clef_grad_of(t.tensor) : t.tensor;
        if (!from || n + clef_numel(from) > VALUES) continue;
        if (clef_read(clef_to(from, CLEF_F32), to + n, (size_t)clef_numel(from) * sizeof *to) == CLEF_OK)
            n += (int)clef_numel(from);
    }
    return n;
}

static int failures;
static void check(bool holds, long at, const char *what) {
    if (!holds && failures++ < 10) printf("FAILED: allocation %ld: %s\n", at, what);
}

static clef_status call(clef_context *ctx, clef_module *net) {
    float x[ITEMS * SIDE * SIDE];
    int64_t y[ITEMS];
    for (int i = 0; i < ITEMS * SIDE * SIDE; i++) x[i] = (float)(i * 37 % 101) / 100;
    for (int i = 0; i < ITEMS; i++) y[i] = i % 3;
    clef_seed(ctx, 3);
    clef_batch b = {.x = clef_from_host(ctx, CLEF_SHAPE(ITEMS, 1, SIDE, SIDE), CLEF_F32, x),
                    .y = clef_from_host(ctx, CLEF_SHAPE(ITEMS), CLEF_I64, y),
                    .size = ITEMS};
    return clef_backward_parts(net, &b, loss, NULL, &(clef_parts_options){.parts = PARTS}, NULL);
}

static void forget_gradients(clef_module *net) {
    for (int i = 0; i < clef_module_tensors(net); i++)
        if (!clef_module_tensor(net, i).is_buffer) clef_set_grad(clef_module_tensor(net, i).tensor, CLEF_NONE);
}

/* The statistics begin anew, so that each call computes the same. */
static void reset_statistics(clef_module *net) {
    static const float zeros[2] = {0}, ones[2] = {1, 1};
    clef_write(clef_parameter(net, "1.running_mean"), zeros, sizeof zeros);
    clef_write(clef_parameter(net, "1.running_var"), ones, sizeof ones);
    clef_write(clef_parameter(net, "1.num_batches_tracked"), &(int64_t){0}, sizeof(int64_t));
}

/* False when no allocation was left to fail. */
static bool fail_at(clef_context *ctx, clef_module *net, long at, const float *wanted, int n) {
    float before[VALUES], after[VALUES], got[VALUES];
    int values = read_values(net, false, before);
    countdown = at;
    clef_status status = call(ctx, net);
    bool reached = countdown < 0;
    countdown = 1L << 60;
    if (status) {
        check(*clef_error(ctx), at, "a failure without a line");
        clef_clear_error(ctx);
        check(read_values(net, true, got) == 0, at, "a failure left gradients");
        check(read_values(net, false, after) == values && !memcmp(before, after, (size_t)values * sizeof *after), at,
              "a failure changed buffers");
        check(call(ctx, net) == CLEF_OK, at, "the next call fails too");
    }
    check(read_values(net, true, got) == n && !memcmp(got, wanted, (size_t)n * sizeof *got), at, "other gradients");
    forget_gradients(net), reset_statistics(net);
    clef_end_step(ctx);
    return reached;
}

int main(void) {
    float wanted[VALUES];
    countdown = 1L << 60;
    clef_set_allocator(&(clef_allocator){counted, counted_again, counted_free, NULL});
    clef_context *ctx = clef_open(NULL);
    if (!ctx) return without_context();
    clef_module *net = make_net(ctx);
    if (call(ctx, net) != CLEF_OK) printf("FAILED: %s\n", clef_error(ctx)), failures++;
    int n = read_values(net, true, wanted);
    forget_gradients(net), reset_statistics(net);
    clef_end_step(ctx);
    long at = 0;
    while (at < MOST && fail_at(ctx, net, at, wanted, n)) at++;
    check(at > 12 && at < MOST && n > 0, at, "too few or too many allocations");
    printf("%ld allocations, %d failures\n", at, failures);
    clef_close(ctx);
    return failures != 0;
}
