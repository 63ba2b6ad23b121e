/* bench_group.c — what working together costs: an all-reduce against copies of as many bytes, and data parallel training against training
   alone.   bench_group [DEVICES]   "0/2": two parts of device 0 (the default).  Prints a table. */
#include "clef.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 11, MEGABYTES = 64 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *seconds, int n) {
    qsort(seconds, (size_t)n, sizeof *seconds, by_value);
    return seconds[n / 2];
}

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

int main(int argc, char **argv) {
    clef_status status = clef_run_ranks(argc > 1 ? argv[1] : "0/2", bandwidth, NULL);
    if (status != CLEF_OK) fprintf(stderr, "%s\n", clef_error(NULL));
    return status != CLEF_OK;
}
