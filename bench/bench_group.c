/* bench_group.c — what working together costs: an all-reduce against copies of as many bytes, and data parallel training against training
   alone.
       bench_group [DEVICES] [reduce|train] [rounds=11]                          ranks by threads
       mpirun -n 2 --bind-to none bench_group [DEVICES] train mpi [rounds=11]    by processes and by threads, in turns

   DEVICES: "0/2", two parts of device 0 (the default), which the whole device is compared with; `mpi` wants as many processes.  The ceiling of
   training is what the ranks take without a group, each its part of the batch, all at the same time: with `mpi`, independent processes. */
#include "clef.h"
#include "clef/transport.h"
#ifdef CLEF_BENCH_MPI
#include "clef/mpi.h"
#endif
#include "peers/timing.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 101, MEGABYTES = 64 };

static int rounds = 11;

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

static clef_status bandwidth(clef_context *ctx, clef_group *all) {
    bool speaks = clef_group_rank(all) == 0;
    if (speaks) printf("%-12s %12s %12s %8s\n", "all-reduce", "ms", "memcpy ms", "ratio");
    for (size_t bytes = (size_t)MEGABYTES << 20; bytes >= 4096; bytes /= 16) {
        double reduce[MOST_ROUNDS], copy[MOST_ROUNDS];
        char *from = malloc(bytes), *to = malloc(bytes);
        if (!from || !to) return free(from), free(to), CLEF_MEMORY;
        memset(from, 1, bytes);
        memset(to, 1, bytes);
        clef_tensor *x = clef_keep(clef_copy(clef_full(ctx, CLEF_SHAPE((int64_t)(bytes / 4)), CLEF_F32, 1)));
        clef_end_step(ctx);
        for (int i = -2; i < rounds; i++) {
            double a = reduce_once(ctx, all, x), b = copy_once(all, to, from, bytes);
            if (i >= 0) reduce[i] = a, copy[i] = b;
        }
        clef_release(x);
        free(from);
        free(to);
        double a = median(reduce, rounds), b = median(copy, rounds);
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

/* ---- ranks by threads, beside those by processes ---- */

/* Two or more ranks that wait until they are told to take a step, as often as they are. */
typedef struct crew {
    const char *devices;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool wanted, over;
    double seconds; /* of the last step; negative: the crew has ended */
    clef_status status;
} crew;

static bool waits_for_order(crew *c) {
    pthread_mutex_lock(&c->lock);
    while (!c->wanted && !c->over) pthread_cond_wait(&c->changed, &c->lock);
    bool goes_on = !c->over;
    pthread_mutex_unlock(&c->lock);
    return goes_on;
}

static void report(crew *c, double seconds) {
    pthread_mutex_lock(&c->lock);
    c->seconds = seconds;
    c->wanted = false;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static clef_status crew_rank(clef_context *ctx, clef_group *all, void *user) {
    crew *c = user;
    bool first = clef_group_rank(all) == 0, goes_on = true;
    trainer t = open_trainer(ctx, all, BATCH / clef_group_size(all));
    while (!clef_error_status(ctx)) {
        if (first) goes_on = waits_for_order(c);
        if (clef_group_broadcast_bytes(all, 0, &goes_on, sizeof goes_on) || !goes_on) break;
        double seconds = train_once(ctx, all, &t);
        if (first && !clef_error_status(ctx)) report(c, seconds);
    }
    return clef_error_status(ctx);
}

static void *crew_thread(void *user) {
    crew *c = user;
    clef_ranks_options options = {.timeout = -1};
    c->status = clef_run_ranks_with(c->devices, &options, crew_rank, c);
    if (c->status != CLEF_OK) fprintf(stderr, "%s\n", clef_error(NULL));
    report(c, -1);
    return NULL;
}

static bool crew_begin(crew *c) {
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    return pthread_create(&c->thread, NULL, crew_thread, c) == 0;
}

static double crew_step(crew *c) {
    pthread_mutex_lock(&c->lock);
    c->wanted = c->seconds >= 0;
    pthread_cond_broadcast(&c->changed);
    while (c->wanted) pthread_cond_wait(&c->changed, &c->lock);
    double seconds = c->seconds;
    pthread_mutex_unlock(&c->lock);
    return seconds;
}

static void crew_end(crew *c) {
    pthread_mutex_lock(&c->lock);
    c->over = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
}

/* ---- the whole ---- */

typedef struct settings {
    const char *devices, *what; /* what: NULL: both */
    char whole[64];
    bool mpi;
} settings;

enum { TOGETHER, ALONE, WHOLE, THREADS, KINDS };

/* All together, each rank its part of the batch; each rank that part alone, at the same time; the whole device, one rank alone; with MPI, ranks by
   threads of this process.  In turns. */
static bool take_turns(clef_context *ctx, clef_group *all, clef_context *big, crew *threads, double t[KINDS][MOST_ROUNDS]) {
    int n = clef_group_size(all);
    trainer together = open_trainer(ctx, all, BATCH / n), alone = open_trainer(ctx, NULL, BATCH / n), one = {0};
    if (big) one = open_trainer(big, NULL, BATCH);
    for (int i = -2; i < rounds && !clef_error_status(ctx); i++) {
        double now[KINDS] = {train_once(ctx, all, &together), train_once(ctx, all, &alone), 0, 0};
        clef_group_barrier(all);
        if (big) now[WHOLE] = train_once(big, NULL, &one);
        if (threads && (now[THREADS] = crew_step(threads)) < 0) return false;
        clef_group_barrier(all);
        for (int k = 0; i >= 0 && k < KINDS; k++) t[k][i] = now[k];
    }
    return clef_error_status(ctx) == CLEF_OK;
}

static void print_training(const settings *s, int n, double t[KINDS][MOST_ROUNDS]) {
    double ms[KINDS];
    for (int k = 0; k < KINDS; k++) ms[k] = 1e3 * median(t[k], rounds);
    printf("%-44s %8s %15s %18s\n", "a step of ResNet-18, batch 64", "ms", "of the ceiling", "of the device");
    if (s->mpi)
        printf("%d processes %32s %8.1f %15.3f %18.3f\n", n, "", ms[TOGETHER], ms[ALONE] / ms[TOGETHER], ms[WHOLE] / ms[TOGETHER]);
    double threads = ms[s->mpi ? THREADS : TOGETHER];
    printf("%d threads   %32s %8.1f %15.3f %18.3f\n", n, "", threads, ms[ALONE] / threads, ms[WHOLE] / threads);
    printf("%d %s, each its part of the batch alone %*s %8.1f\n", n, s->mpi ? "processes" : "threads", s->mpi ? 1 : 3, "",
           ms[ALONE]);
    printf("one rank on device %-25.20s %8.1f\n", s->whole, ms[WHOLE]);
}

static clef_status training(clef_context *ctx, clef_group *all, const settings *s) {
    bool speaks = clef_group_rank(all) == 0;
    double t[KINDS][MOST_ROUNDS] = {{0}};
    clef_context *big = speaks ? clef_open(&(clef_options){.device = s->whole}) : NULL;
    crew threads = {.devices = s->devices}, *beside = speaks && s->mpi ? &threads : NULL;
    if (speaks && !big) return fprintf(stderr, "%s\n", clef_error(NULL)), clef_error_status(NULL);
    if (beside && !crew_begin(beside)) return CLEF_MEMORY;
    bool ok = take_turns(ctx, all, big, beside, t);
    if (beside) crew_end(beside);
    if (speaks && ok) print_training(s, clef_group_size(all), t);
    clef_close(big);
    return ok ? CLEF_OK : CLEF_GROUP;
}

static clef_status measure(clef_context *ctx, clef_group *all, void *user) {
    const settings *s = user;
    clef_status status = CLEF_OK;
    if (!s->what || !strcmp(s->what, "reduce")) status = bandwidth(ctx, all);
    if (status == CLEF_OK && (!s->what || !strcmp(s->what, "train"))) status = training(ctx, all, s);
    return status;
}

static clef_status run(settings *s) {
    if (!s->mpi) return clef_run_ranks(s->devices, measure, s);
#ifdef CLEF_BENCH_MPI
    return clef_run_mpi_with(&(clef_mpi_options){.devices = s->devices}, measure, s);
#else
    return clef_transport_error(CLEF_UNSUPPORTED, "bench_group: it was built without MPI");
#endif
}

int main(int argc, char **argv) {
    settings s = {.devices = "0/2"};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "mpi")) s.mpi = true;
        else if (!strcmp(argv[i], "reduce") || !strcmp(argv[i], "train")) s.what = argv[i];
        else if (!strncmp(argv[i], "rounds=", 7)) rounds = atoi(argv[i] + 7);
        else s.devices = argv[i];
    }
    if (rounds < 1 || rounds > MOST_ROUNDS) return fprintf(stderr, "bench_group: rounds=1 to rounds=%d\n", MOST_ROUNDS), 2;
    snprintf(s.whole, sizeof s.whole, "%.*s", (int)strcspn(s.devices, "/:,"), s.devices);
    clef_status status = run(&s);
    if (status != CLEF_OK) fprintf(stderr, "%s\n", clef_error(NULL));
    return status != CLEF_OK;
}
