/* training.h — a small training run with everything a checkpoint holds: dropout and batch norm (random numbers,
   buffers), Adam, a schedule per step, a shuffled loader with augmentation; and a smaller one that starts fast. */
#ifndef CLEF_TEST_IO_TRAINING_H
#define CLEF_TEST_IO_TRAINING_H
#include "clef.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct training {
    clef_context *ctx;
    clef_module *net;
    clef_optimizer *optimizer;
    clef_schedule *schedule;
    clef_loader *loader;
    int64_t steps;
} training;

static clef_log_fn training_log; /* of those that are opened from now on */
static int training_sum_units;   /* likewise */

static inline void training_full_net(training *t) {
    t->net = clef_sequential(t->ctx, CLEF_LAYERS(clef_nn_conv2d(t->ctx, 1, 2, 3, NULL), clef_nn_batch_norm2d(t->ctx, 2, NULL),
                                                 clef_nn_relu(t->ctx), clef_nn_flatten(t->ctx), clef_nn_dropout(t->ctx, 0.25),
                                                 clef_nn_linear(t->ctx, 2 * 6 * 6, 10, NULL)));
    t->optimizer = clef_adam(t->net, &(clef_adam_options){.lr = 1e-2});
}

static inline void training_fast_net(training *t) {
    t->net = clef_sequential(
        t->ctx, CLEF_LAYERS(clef_nn_flatten(t->ctx), clef_nn_dropout(t->ctx, 0.25), clef_nn_linear(t->ctx, 64, 10, NULL)));
    t->optimizer = clef_sgd(t->net, &(clef_sgd_options){.lr = 1e-2, .momentum = 0.9});
}

/* False when anything fails; ctx may be NULL on return. */
static inline bool training_open(training *t, uint64_t seed, bool fast) {
    *t = (training){.ctx = clef_open(&(clef_options){.seed = seed, .log = training_log, .sum_units = training_sum_units})};
    if (!t->ctx) return false;
    if (fast) training_fast_net(t);
    else training_full_net(t);
    clef_set_training(t->net, true);
    t->schedule = clef_schedule_new(t->optimizer, &(clef_schedule_options){.kind = CLEF_SCHEDULE_COSINE, .total = 40, .warmup = 3});
    clef_dataset *data = clef_dataset_take(clef_digits(t->ctx, CLEF_TRAIN), 80);
    t->loader = clef_loader_open(
        data, &(clef_loader_options){.batch = 16, .shuffle = true, .seed = seed, .augment = {.shift = 1, .cutout = 2}});
    return t->net && t->optimizer && t->schedule && t->loader;
}

static inline bool training_run(training *t, int steps) {
    for (int i = 0; i < steps;) {
        clef_batch b;
        if (!clef_next(t->loader, &b)) {
            if (clef_error_status(t->ctx) != CLEF_OK) return false;
            continue; /* the end of an epoch */
        }
        clef_backward(clef_cross_entropy(clef_forward(t->net, b.x), b.y, NULL));
        clef_step(t->optimizer);
        clef_schedule_tick(t->schedule);
        t->steps++;
        i++;
    }
    return clef_error_status(t->ctx) == CLEF_OK;
}

static inline clef_checkpoint training_parts(const training *t) {
    return (clef_checkpoint){.module = t->net,
                             .optimizer = t->optimizer,
                             .schedule = t->schedule,
                             .loader = t->loader,
                             .epoch = t->steps,
                             .metric = 0.1 * (double)t->steps,
                             .note = "--lr 0.01"};
}

/* All bytes of all state, for comparisons; the caller frees.  NULL on failure. */
static inline unsigned char *training_bytes(const training *t, size_t *size) {
    unsigned char *out = NULL;
    *size = 0;
    int models = clef_module_tensors(t->net), n = models + clef_optimizer_tensors(t->optimizer);
    for (int i = 0; i < n; i++) {
        clef_named_tensor named = i < models ? clef_module_tensor(t->net, i) : clef_optimizer_tensor(t->optimizer, i - models);
        size_t bytes = (size_t)clef_numel(named.tensor) * clef_dtype_size(clef_tensor_dtype(named.tensor));
        out = realloc(out, *size + bytes + 256);
        if (clef_read(named.tensor, out + *size, bytes) != CLEF_OK) return free(out), NULL;
        *size += bytes;
    }
    clef_optimizer_state o = clef_optimizer_get(t->optimizer);
    clef_schedule_state s = clef_schedule_get(t->schedule);
    clef_random_state r = clef_random_get(t->ctx);
    clef_loader_state l = clef_loader_get(t->loader);
#define ADD(value) (memcpy(out + *size, &(value), sizeof(value)), *size += sizeof(value))
    ADD(o.steps), ADD(o.lr), ADD(s.ticks), ADD(s.bad), ADD(s.best), ADD(s.lr), ADD(r.seed), ADD(r.offset);
    ADD(l.epoch), ADD(l.batch), ADD(l.seed);
#undef ADD
    return out;
}
#endif
