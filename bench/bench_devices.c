/* bench_devices.c — several devices in one process: a copy between two, and micro-batches that overlap.
       bench_devices [DEVICES [WIDTH [BATCH]]]      0/2: the first device in two halves; 0,1: the first and the second (clef devices)

   The copy is of 64 MB, beside memcpy of as many bytes.  The training step has four micro-batches of a net of four linear layers of
   WIDTH and one of classes, cut over both devices; the same step with each micro-batch over before the next begins; and the whole
   net on all of the first choice's device.  Everything takes turns; medians. */
#include "peers/timing.h"
#include <clef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 24, MICRO_BATCHES = 4, LINEAR = 5, CLASSES = 10, COPIED = 16 << 20 /* floats */ };

static clef_context *open_devices(const char *devices) {
    clef_context *ctx = clef_open(&(clef_options){.device = devices, .seed = 1});
    if (!ctx) fprintf(stderr, "skipped: %s\n", clef_error(NULL));
    return ctx;
}

static float *numbers(size_t n) {
    float *data = malloc(n * sizeof *data);
    for (size_t i = 0; data && i < n; i++) data[i] = (float)(i * 7919 % 1000) / 1000 - 0.5f;
    return data;
}

/* ---- the copy ---- */

static void copies(clef_context *ctx) {
    double there[ROUNDS], here[ROUNDS];
    float *from = numbers(COPIED), *to = malloc(COPIED * sizeof *to);
    clef_tensor *x = clef_keep(clef_from_host(ctx, CLEF_SHAPE(COPIED), CLEF_F32, from));
    clef_eval(x);
    clef_synchronize(ctx);
    for (int i = 0; i < ROUNDS; i++) {
        clef_end_step(ctx);
        double begin = now();
        clef_eval(clef_to_device(x, 1));
        clef_synchronize(ctx);
        there[i] = now() - begin;
        begin = now();
        memcpy(to, from, COPIED * sizeof *to);
        here[i] = now() - begin;
        from[i] = to[COPIED - 1 - i]; /* so that no copy is left out */
    }
    double copy = median(there, ROUNDS), host = median(here, ROUNDS);
    printf("copy of 64 MB        %7.2f ms   memcpy %.2f ms, ratio %.2f\n", 1e3 * copy, 1e3 * host, host / copy);
    clef_release(x);
    free(from);
    free(to);
}

/* ---- the training step ---- */

typedef struct training {
    clef_context *ctx;
    clef_module *net;
    clef_optimizer *optimizer;
    float *x;
    int64_t *y, width, batch;
    int last; /* device of the second part */
} training;

static void begin_training(training *t, clef_context *ctx, int64_t width, int64_t batch, int last) {
    *t = (training){.ctx = ctx, .width = width, .batch = batch, .last = last};
    clef_module *first = clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, width, width, NULL), clef_nn_relu(ctx),
                                                          clef_nn_linear(ctx, width, width, NULL), clef_nn_relu(ctx)));
    clef_module *second =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, width, width, NULL), clef_nn_relu(ctx),
                                         clef_nn_linear(ctx, width, width, NULL), clef_nn_linear(ctx, width, CLASSES, NULL)));
    clef_module_to(second, last);
    t->net = clef_sequential(ctx, CLEF_LAYERS(first, second));
    t->optimizer = clef_sgd(t->net, &(clef_sgd_options){.lr = 0.001});
    t->x = numbers((size_t)(batch * width));
    t->y = malloc((size_t)batch * sizeof *t->y);
    for (int64_t i = 0; i < batch; i++) t->y[i] = i % CLASSES;
}

static void end_training(training *t) {
    free(t->x);
    free(t->y);
}

static void micro_batch(const training *t, bool alone) {
    clef_tensor *x = clef_from_host(t->ctx, CLEF_SHAPE(t->batch, t->width), CLEF_F32, t->x);
    clef_tensor *y = clef_from_host_on(t->ctx, t->last, CLEF_SHAPE(t->batch), CLEF_I64, t->y);
    clef_backward(clef_cross_entropy(clef_forward(t->net, x), y, NULL));
    if (!alone) return;
    clef_tensor *gradient[2 * LINEAR];
    int n = clef_module_tensors(t->net);
    for (int i = 0; i < n; i++) gradient[i] = clef_grad_of(clef_module_tensor(t->net, i).tensor);
    clef_eval_all(gradient, n);
    clef_synchronize(t->ctx);
}

static double step(const training *t, bool alone) {
    double begin = now();
    for (int m = 0; m < MICRO_BATCHES; m++) micro_batch(t, alone);
    clef_step(t->optimizer);
    clef_synchronize(t->ctx);
    return now() - begin;
}

static void trainings(clef_context *two, clef_context *one, int64_t width, int64_t batch) {
    double together[ROUNDS], alone[ROUNDS], whole[ROUNDS];
    training cut, uncut;
    begin_training(&cut, two, width, batch, 1);
    begin_training(&uncut, one, width, batch, 0);
    for (int warm = 0; warm < 3; warm++) step(&cut, false), step(&cut, true), step(&uncut, false);
    for (int i = 0; i < ROUNDS; i++) {
        together[i] = step(&cut, false);
        alone[i] = step(&cut, true);
        whole[i] = step(&uncut, false);
    }
    double t = median(together, ROUNDS), a = median(alone, ROUNDS), w = median(whole, ROUNDS);
    printf(
        "step, overlapping    %7.2f ms   one micro-batch after the other %.2f ms, ratio %.2f; on one device %.2f ms, ratio %.2f\n",
        1e3 * t, 1e3 * a, a / t, 1e3 * w, w / t);
    end_training(&cut);
    end_training(&uncut);
}

int main(int argc, char **argv) {
    const char *devices = argc > 1 ? argv[1] : "0/2";
    char first[64];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(devices, "/:,"), devices);
    clef_context *two = open_devices(devices), *one = two ? open_devices(first) : NULL;
    if (!one || clef_context_device_count(two) < 2) return 77;
    copies(two);
    trainings(two, one, argc > 2 ? atoi(argv[2]) : 768, argc > 3 ? atoi(argv[3]) : 96);
    bool bad = clef_error_status(two) || clef_error_status(one);
    if (bad) fprintf(stderr, "%s%s\n", clef_error(two), clef_error(one));
    clef_close(one);
    clef_close(two);
    return bad;
}
