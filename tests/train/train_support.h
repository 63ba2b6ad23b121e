/* train_support.h — small runs for the tests of the training room. */
#ifndef CLEF_TESTS_TRAIN_SUPPORT_H
#define CLEF_TESTS_TRAIN_SUPPORT_H
#include <clef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Everything one run needs, made the same way each time. */
typedef struct rig {
    clef_context *ctx;
    clef_loader *train, *test;
    clef_module *net;
    clef_optimizer *optimizer;
    clef_schedule *schedule;
} rig;

typedef struct rig_options {
    int64_t limit;                       /* training images; 0: 320 */
    double lr;                           /* 0: 1e-3 */
    bool dropout, scheduled, sgd, plain; /* plain: images as they are */
    int threads;
} rig_options;

static inline rig rig_open(rig_options o) {
    rig r = {.ctx = clef_open(&(clef_options){.seed = 11})};
    if (!r.ctx) return r;
    clef_dataset *train = clef_dataset_take(clef_digits(r.ctx, CLEF_TRAIN), o.limit ? o.limit : 320);
    r.train = clef_loader_open(
        train,
        &(clef_loader_options){
            .batch = 32, .shuffle = true, .seed = 5, .drop_last = true, .workers = o.threads, .augment = {.shift = !o.plain}});
    r.test = clef_loader_open(clef_digits(r.ctx, CLEF_TEST), &(clef_loader_options){.batch = 180});
    clef_module *last = clef_nn_linear(r.ctx, 32, 10, NULL);
    clef_module *flat = clef_nn_flatten(r.ctx), *first = clef_nn_linear(r.ctx, 64, 32, NULL);
    r.net = o.dropout ? clef_sequential(r.ctx, CLEF_LAYERS(flat, first, clef_nn_relu(r.ctx), clef_nn_dropout(r.ctx, 0.2), last))
                      : clef_sequential(r.ctx, CLEF_LAYERS(flat, first, clef_nn_relu(r.ctx), last));
    double lr = o.lr ? o.lr : 1e-3;
    r.optimizer =
        o.sgd ? clef_sgd(r.net, &(clef_sgd_options){.lr = lr, .momentum = 0.9}) : clef_adam(r.net, &(clef_adam_options){.lr = lr});
    if (o.scheduled)
        r.schedule = clef_schedule_new(r.optimizer, &(clef_schedule_options){.kind = CLEF_SCHEDULE_COSINE, .total = 40});
    return r;
}

static inline clef_fit_options rig_fit(const rig *r) {
    return (clef_fit_options){.train = r->train,
                              .test = r->test,
                              .optimizer = r->optimizer,
                              .schedule = r->schedule,
                              .schedule_per_step = true,
                              .epochs = 1};
}

/* What interrupts a run: a flag that goes up at the report `at`. */
typedef struct stopper {
    volatile int flag;
    int64_t at, seen; /* reports until the flag goes up */
} stopper;

static inline bool raise_flag(void *user, const clef_progress *p) {
    stopper *s = user;
    if (p->to_compile == 0 && ++s->seen >= s->at) s->flag = 1;
    return true;
}

/* Two epochs that go on with what is in `dir` (NULL: a run of its own, without files) and that `s` interrupts, unless it is `at` 0. */
static inline void fit_in_parts(clef_fit_options *options, const char *dir, stopper *s) {
    options->epochs = 2;
    options->checkpoint_dir = dir;
    options->resume = dir != NULL;
    options->on_progress = s->at ? raise_flag : NULL;
    options->user = s;
    options->interrupt = &s->flag;
}

/* Ten batches of 32 items, with a NaN in the fourth if wanted, of which the first `items` are taken. */
enum { POISON_ITEMS = 320, POISON_BATCH = 32, POISON_AT = 3 };
static inline clef_loader *rig_poisoned(const rig *r, bool poisoned, int64_t items) {
    static float x[POISON_ITEMS * 64];
    static int64_t y[POISON_ITEMS];
    for (int i = 0; i < POISON_ITEMS * 64; i++) x[i] = (float)(i * 37 % 101) / 101;
    for (int i = 0; i < POISON_ITEMS; i++) y[i] = i % 10;
    if (poisoned) x[(POISON_AT * POISON_BATCH + 5) * 64] = NAN;
    return clef_loader_open(clef_dataset_arrays(r->ctx, x, CLEF_SHAPE(1, 8, 8), y, items),
                            &(clef_loader_options){.batch = POISON_BATCH});
}

/* All parameters and buffers one after another; the caller frees.  NULL after a failure. */
static inline float *rig_weights(const rig *r, size_t *count) {
    size_t n = 0;
    for (int i = 0; i < clef_module_tensors(r->net); i++) n += (size_t)clef_numel(clef_module_tensor(r->net, i).tensor);
    float *all = malloc((n + 1) * sizeof *all), *at = all;
    for (int i = 0; all && i < clef_module_tensors(r->net); i++) {
        clef_tensor *t = clef_module_tensor(r->net, i).tensor;
        size_t here = (size_t)clef_numel(t);
        if (clef_read(t, at, here * sizeof *at)) return free(all), NULL;
        at += here;
    }
    *count = n;
    return all;
}

/* A new directory below the build's or the system's place for such things. */
static inline char *fresh_directory(char path[64]) {
    snprintf(path, 64, "/tmp/clef-train-XXXXXX");
    return mkdtemp(path);
}

static inline void remove_directory(const char *path) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command)) fprintf(stderr, "could not remove %s\n", path);
}
#endif
