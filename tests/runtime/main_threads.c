/* Threads that share nothing but the process: each trains in a context of its own, with a loader that has workers, and all of
   them write and read one cache of kernels.  Twice, as the second round finds the cache full.  For ThreadSanitizer; and
   every thread must end with the same bits.
   ctest: labels=threads */
#include "support/io_files.h"
#include "support/plain.h"
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 3, ROUNDS = 2, STEPS = 6, ITEMS = 40, PIXELS = 64 };
static char dir[512];
static atomic_int fetched;

typedef struct runner {
    pthread_t thread;
    int number;
    float losses[2 * STEPS];
} runner;

/* Called by the loader's workers. */
static bool fetch(void *user, int64_t i, float *x, int64_t *y) {
    (void)user;
    for (int p = 0; p < PIXELS; p++) x[p] = (float)((i * 31 + p * 7) % 17) / 17;
    *y = i % 10;
    atomic_fetch_add(&fetched, 1);
    return true;
}

static void train(clef_context *ctx, clef_dataset *data, float *losses) {
    clef_loader_options options = {.batch = 8, .shuffle = true, .workers = 3, .prefetch = 4, .seed = 5, .augment = {.shift = 1}};
    clef_loader *loader = clef_loader_open(data, &options);
    clef_module *net =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, PIXELS, 16, NULL), clef_nn_relu(ctx),
                                         clef_nn_dropout(ctx, 0.2), clef_nn_linear(ctx, 16, 10, NULL)));
    clef_optimizer *optimizer = clef_adam(net, NULL);
    for (int i = 0; i < STEPS;) {
        clef_batch b;
        if (!clef_next(loader, &b)) {
            if (!EXPECT(clef_error_status(ctx) == CLEF_OK)) break;
            continue; /* the end of an epoch */
        }
        clef_tensor *loss = clef_cross_entropy(clef_forward(net, b.x), b.y, NULL);
        clef_backward(loss);
        clef_step(optimizer);
        losses[i++] = (float)clef_item(loss);
    }
    clef_loader_close(loader);
}

/* The last failure without a context is this thread's own. */
static void fail_alone(int number) {
    char name[32];
    snprintf(name, sizeof name, "nonesuch-%d", number);
    for (int i = 0; i < 20; i++) {
        clef_context *none = clef_open(&(clef_options){.device = name});
        EXPECT(!none && strstr(clef_error(NULL), name));
    }
}

static void *run(void *user) {
    runner *r = user;
    clef_context *ctx = clef_open(&(clef_options){.seed = 7, .cache_dir = dir});
    if (!EXPECT(ctx)) return NULL;
    fail_alone(r->number);
    train(ctx, clef_digits(ctx, CLEF_TRAIN), r->losses);
    train(ctx, clef_dataset_callback(ctx, CLEF_SHAPE(1, 8, 8), ITEMS, 10, fetch, NULL), r->losses + STEPS);
    EXPECT(clef_error_status(ctx) == CLEF_OK);
    clef_close(ctx);
    return NULL;
}

int main(void) {
    static runner runners[ROUNDS * THREADS];
    clef_context *ctx = clef_open(NULL);
    if (!ctx) return without_context();
    clef_close(ctx);
    setenv("CLEF_CACHE", "force", 1);
    snprintf(dir, sizeof dir, "%s", io_scratch());
    for (int round = 0; round < ROUNDS; round++) {
        runner *first = runners + round * THREADS;
        for (int i = 0; i < THREADS; i++) {
            first[i].number = i;
            if (!EXPECT(pthread_create(&first[i].thread, NULL, run, first + i) == 0)) return 1;
        }
        for (int i = 0; i < THREADS; i++) pthread_join(first[i].thread, NULL);
    }
    for (int i = 1; i < ROUNDS * THREADS; i++) EXPECT(memcmp(runners[i].losses, runners[0].losses, sizeof runners[0].losses) == 0);
    EXPECT(runners[0].losses[0] > 0 && atomic_load(&fetched) >= ROUNDS * THREADS * STEPS * 8);
    printf("threads: %d runs, first loss %.9g, last %.9g, %d files cached, %d failures\n", ROUNDS * THREADS,
           (double)runners[0].losses[0], (double)runners[0].losses[2 * STEPS - 1], io_count(dir), io_failures);
    io_remove(dir);
    return io_failures != 0;
}
