/* clef_place_auto where any host allocation may fail, the N-th for N = 1, 2, … in ever longer steps, until one call passes untouched:
   each fails with a line and leaves the context as it was.  Then a net in two halves of a device, where the driver can divide it, is
   trained; and a generator's calls.  A plain program, so that it also runs under sanitizers.
   ctest: cost=10 plain */
#include "support/plain.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long countdown; /* 0: no allocation fails */

static bool fails(void) { return countdown > 0 && --countdown == 0; }
static void *allocate(void *user, size_t bytes) { return (void)user, fails() ? NULL : malloc(bytes); }
static void *reallocate(void *user, void *old, size_t bytes) { return (void)user, fails() ? NULL : realloc(old, bytes); }
static void release(void *user, void *old) { (void)user, free(old); }

static int failures;
static void check(bool ok, const char *what, const char *line) {
    if (ok) return;
    failures++;
    fprintf(stderr, "%s: %s\n", what, line);
}

static clef_module *make_net(clef_context *ctx) {
    clef_nn_conv2d_options padded = {.conv.padding = {1, 1}};
    clef_module *body =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 4, 4, 3, &padded), clef_nn_batch_norm2d(ctx, 4, NULL)));
    clef_module *block = clef_nn_residual(ctx, body, NULL, true);
    clef_recompute(block, true);
    clef_module *head =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_max_pool2d(ctx, 2, NULL), clef_nn_dropout(ctx, 0.2), clef_nn_flatten(ctx),
                                         clef_nn_linear(ctx, 64, 8, NULL), clef_nn_gelu(ctx), clef_nn_linear(ctx, 8, 3, NULL)));
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 4, 3, &padded), block, head));
}

static clef_tensor *images(clef_context *ctx) { return clef_ones(ctx, CLEF_SHAPE(6, 1, 8, 8), CLEF_F32); }

/* How many allocations could fail. */
static long sweep(clef_context *ctx, clef_module *net) {
    clef_random_state random = clef_random_get(ctx);
    for (long n = 1;; n += 1 + n / 64) {
        clef_tensor *x = images(ctx);
        countdown = n;
        clef_status status = clef_place_auto(net, x, NULL);
        bool struck = countdown == 0;
        countdown = 0;
        bool said = clef_error_status(ctx) == status && (status == CLEF_OK || *clef_error(ctx));
        check(said && (struck || status == CLEF_OK), "an allocation that fails", clef_error(ctx));
        clef_clear_error(ctx);
        check(!clef_set_dry_run(ctx, false) && clef_grad_enabled(ctx) && clef_random_get(ctx).offset == random.offset,
              "the context is not as it was", "");
        check(clef_end_step(ctx) == CLEF_OK, "end of the step", clef_error(ctx));
        if (!struck || failures) return n;
    }
}

static int lies_on(const clef_module *net, int device) {
    int n = 0;
    for (int i = 0; i < clef_module_tensors(net); i++) n += clef_tensor_device(clef_module_tensor(net, i).tensor) == device;
    return n;
}

/* All of a module moves, or nothing. */
static void move(clef_context *ctx, clef_module *net) {
    clef_module_to(net, 0);
    int all = clef_module_tensors(net);
    for (long n = 1;; n++) {
        countdown = n;
        clef_status status = clef_module_to(net, 1);
        bool struck = countdown == 0;
        countdown = 0;
        check(lies_on(net, status == CLEF_OK) == all, "a part of the module moved", clef_error(ctx));
        clef_clear_error(ctx);
        if (!struck || failures) return;
        clef_module_to(net, 0);
        clef_end_step(ctx);
    }
}

static void train(clef_context *ctx, clef_module *net) {
    clef_optimizer *opt = clef_adam(net, &(clef_adam_options){.lr = 0.01});
    for (int i = 0; i < 2; i++) {
        clef_tensor *loss = clef_mean(clef_square(clef_forward(net, images(ctx))), NULL, 0, false);
        clef_backward(loss);
        clef_step(opt);
        check(isfinite(clef_item(loss)), "a step", clef_error(ctx));
    }
}

/* A generator that could not put its sequences in order, or begin, is as it was, or is not read from. */
static void generate(clef_context *ctx) {
    clef_module *net =
        clef_nn_gpt(ctx, &(clef_gpt_options){.vocabulary = 11, .context = 8, .layers = 1, .heads = 1, .width = 4, .dropout = 0});
    clef_generator *g = clef_generator_new(net, &(clef_generator_options){.batch = 2});
    int64_t text[] = {3, 1, 4}, length[] = {3, 2}, swapped[] = {1, 0}, next[] = {2, 5};
    const int64_t *prompts[] = {text, text};
    float after[22];
    clef_generator_prompt(g, prompts, length);
    clef_generator_feed(g, next);
    memcpy(after, clef_generator_logits(g), sizeof after);
    for (int begins = 0; begins < 2; begins++)
        for (long n = 1;; n++) {
            check(clef_generator_prompt(g, prompts, length) == CLEF_OK, "a prompt", clef_error(ctx));
            countdown = n;
            clef_status status = begins ? clef_generator_prompt(g, prompts, length) : clef_generator_reorder(g, swapped);
            bool struck = countdown == 0;
            countdown = 0;
            clef_clear_error(ctx);
            bool reads = clef_generator_logits(g) != NULL, fed = clef_generator_feed(g, next) == CLEF_OK;
            check(reads == fed && (reads || status != CLEF_OK), begins ? "after a prompt" : "after reordering", clef_error(ctx));
            bool as_before = fed && memcmp(clef_generator_logits(g), after, sizeof after) == 0;
            check(as_before || !fed || (status == CLEF_OK && !begins), "a failed call changed something", clef_error(ctx));
            clef_clear_error(ctx);
            if (!struck || failures) break;
        }
    clef_generator_close(g);
}

int main(void) {
    clef_set_allocator(&(clef_allocator){allocate, reallocate, release, NULL});
    clef_context *ctx = clef_open(&(clef_options){.device = "0/2", .seed = 1});
    if (!ctx) ctx = clef_open(NULL);
    if (!ctx) return without_context();
    clef_module *net = make_net(ctx);
    long tried = sweep(ctx, net);
    check(tried > 100, "too few allocations were seen", clef_error(ctx));
    train(ctx, net);
    if (clef_context_device_count(ctx) > 1) move(ctx, net);
    clef_placement placement;
    clef_place_auto(net, images(ctx), &(clef_place_options){.transfer_gb_per_second = 1e3, .placement = &placement});
    check(placement.n == clef_context_device_count(ctx) && placement.part[placement.n - 1].layers > 0, "the cut", clef_error(ctx));
    train(ctx, net);
    generate(ctx);
    printf("%ld allocations, %d devices\n", tried, placement.n);
    clef_close(ctx);
    return failures != 0;
}
