/* bench_group.c — what working together costs: an all-reduce against copies of as many bytes, and data parallel training against training
   alone.   bench_group [DEVICES]   "0/2": two parts of device 0 (the default), which the whole device is compared with. */
#include "clef.h"
#include "peers/timing.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 11, MEGABYTES = 64 };

/* ---- all-reduce ---- */

/* All ranks copy at once: seconds of one round, between two barriers. */
static double copy_once(clef_group *all, char *to, const char *from, size_t bytes) {
    clef_group_barrier(all);
    double begin = now();
    memcpy(to, from, bytes);
    clef_group_barrier(all);
    return now() - begin;
}

static double reduce_once(clef_context *ctx, clef_group *all, clef_tensor *x) {
    clef_synchronize(ctx);
    clef_group_barrier(all);
    double begin = now();
    clef_eval(clef_all_reduce(x, all, CLEF_GROUP_SUM));
    clef_synchronize(ctx);
    clef_group_barrier(all);
    double seconds = now() - begin;
    clef_end_step(ctx);
    return seconds;
}

static clef_status bandwidth(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    bool speaks = clef_group_rank(all) == 0;
    if (speaks) printf("%-12s %12s %12s %8s\n", "all-reduce", "ms", "memcpy ms", "ratio");
    for (size_t bytes = (size_t)MEGABYTES << 20; bytes >= 4096; bytes /= 16) {
        double reduce[ROUNDS], copy[ROUNDS];
        char *from = malloc(bytes), *to = malloc(bytes);
        if (!from || !to) return free(from), free(to), CLEF_MEMORY;
        memset(from, 1, bytes);
        memset(to, 1, bytes);
        clef_tensor *x = clef_keep(clef_copy(clef_full(ctx, CLEF_SHAPE((int64_t)(bytes / 4)), CLEF_F32, 1)));
        clef_end_step(ctx);
        for (int i = -2; i < ROUNDS; i++) {
            double a = reduce_once(ctx, all, x), b = copy_once(all, to, from, bytes);
            if (i >= 0) reduce[i] = a, copy[i] = b;
        }
        clef_release(x);
        free(from);
        free(to);
        double a = median(reduce, ROUNDS), b = median(copy, ROUNDS);
        if (speaks) printf("%9zu KB %12.3f %12.3f %8.2f\n", bytes >> 10, 1e3 * a, 1e3 * b, b / a);
    }
    return clef_error_status(ctx);
}

/* ---- training ---- */

enum { BATCH = 64, CLASSES = 10 };

typedef struct trainer {
    clef_module *net;
    clef_optimizer *opt;
    clef_tensor *x, *y;
} trainer;

/* ResNet-18 for images [3,32,32]; without a group it trains alone. */
static trainer open_trainer(clef_context *ctx, clef_group *group, int64_t items) {
    trainer t = {.net = clef_model_resnet18(ctx, CLEF_SHAPE(3, 32, 32), CLASSES)};
    clef_replicate(t.net, group);
    t.opt = clef_adamw(t.net, &(clef_adamw_options){.lr = 1e-3f, .group = group});
    t.x = clef_keep(clef_randn(ctx, CLEF_SHAPE(items, 3, 32, 32)));
    t.y = clef_keep(clef_randint(ctx, 0, CLASSES, CLEF_SHAPE(items)));
    clef_end_step(ctx);
    return t;
}

static double train_once(clef_context *ctx, clef_group *all, const trainer *t) {
    clef_group_barrier(all);
    double begin = now();
    clef_backward(clef_cross_entropy(clef_forward(t->net, t->x), t->y, NULL));
    clef_step(t->opt);
    clef_synchronize(ctx);
    clef_group_barrier(all);
    return now() - begin;
}

/* All together, each rank its part of the batch; each rank that part alone, at the same time; the whole device, one rank alone.  In turn. */
static clef_status training(clef_context *ctx, clef_group *all, void *user) {
    const char *whole = user;
    int n = clef_group_size(all);
    bool speaks = clef_group_rank(all) == 0;
    clef_context *big = speaks ? clef_open(&(clef_options){.device = whole}) : NULL;
    trainer together = open_trainer(ctx, all, BATCH / n), alone = open_trainer(ctx, NULL, BATCH / n), one = {0};
    if (speaks && !big) return clef_error_status(NULL);
    if (speaks) one = open_trainer(big, NULL, BATCH);
    double t[3][ROUNDS];
    for (int i = -2; i < ROUNDS; i++) {
        double a = train_once(ctx, all, &together), b = train_once(ctx, all, &alone), c = 0;
        clef_group_barrier(all);
        if (speaks) c = train_once(big, NULL, &one);
        clef_group_barrier(all);
        if (i >= 0) t[0][i] = a, t[1][i] = b, t[2][i] = c;
    }
    double a = median(t[0], ROUNDS), b = median(t[1], ROUNDS), c = median(t[2], ROUNDS);
    if (speaks && clef_error_status(ctx) == CLEF_OK)
        printf("ResNet-18, batch %d, a step of %d ranks: %.1f ms; without the group %.1f ms (ratio %.3f); one rank on device %s "
               "%.1f ms (ratio %.3f)\n",
               BATCH, n, 1e3 * a, 1e3 * b, b / a, whole, 1e3 * c, c / a);
    clef_close(big);
    return clef_error_status(ctx);
}

int main(int argc, char **argv) {
    const char *devices = argc > 1 ? argv[1] : "0/2";
    char whole[64];
    snprintf(whole, sizeof whole, "%.*s", (int)strcspn(devices, "/:,"), devices);
    clef_status status = clef_run_ranks(devices, bandwidth, NULL);
    if (status == CLEF_OK) status = clef_run_ranks(devices, training, whole);
    if (status != CLEF_OK) fprintf(stderr, "%s\n", clef_error(NULL));
    return status != CLEF_OK;
}
