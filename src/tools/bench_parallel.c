/* bench_parallel.c — clef bench parallel: what ranks give together.  How many bytes a second collective operations carry, by size of the
   message and number of ranks, and how a training step scales.

   All ranks run all the time; figures of fewer are those of a smaller group, while the others wait.  Rank 0 has the clock and the
   results.  A rate is the bytes of one rank's message over the time until all have the result. */
#include "bench.h"
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 7, MOST_CALLS = 1000, BATCH = 64, LEAST_BYTES = 1 << 10, MOST_BYTES = 1 << 26, STEP = 16, PARTS = 4 };

typedef struct together {
    clef_context *ctx;
    clef_group *all, *group; /* group: those that are measured; NULL: this rank is none of them */
    int n;                   /* of them */
    const bench_parallel *b;
    /* what is done once */
    int collective;
    clef_tensor *x;
    clef_module *net;
    clef_optimizer *optimizer;
    clef_tensor *labels;
} together;

static const char *const collectives[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast"};
enum { COLLECTIVES = sizeof collectives / sizeof *collectives };

bool bench_is_curve(const char *suite) {
    bool is = !strcmp(suite, "scaling");
    for (int i = 0; i < COLLECTIVES; i++) is |= !strcmp(suite, collectives[i]);
    return is;
}

/* ---- once ---- */
static clef_tensor *communicate(const together *t) {
    switch (t->collective) {
    case 0: return clef_all_reduce(t->x, t->group, CLEF_GROUP_SUM);
    case 1: return clef_reduce_scatter(t->x, t->group, 0, CLEF_GROUP_SUM);
    case 2: return clef_all_gather(t->x, t->group, 0);
    default: return clef_broadcast(t->x, t->group, 0);
    }
}

static bool once(const together *t) {
    if (!t->net) return clef_eval(communicate(t)) == CLEF_OK && clef_end_step(t->ctx) == CLEF_OK;
    clef_tensor *loss = clef_cross_entropy(clef_forward(t->net, t->x), t->labels, NULL);
    return loss && !clef_backward(loss) && !clef_step(t->optimizer);
}

/* Seconds of one of so many calls by all of the group; negative where one failed. */
static double round_of(const together *t, int calls) {
    if (clef_group_barrier(t->group)) return -1;
    double begin = tool_seconds();
    for (int i = 0; i < calls; i++)
        if (!once(t)) return -1;
    if (clef_synchronize(t->ctx) || clef_group_barrier(t->group)) return -1;
    return (tool_seconds() - begin) / calls;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The first rank says how often, as all must do the same. */
static bool sample(const together *t, bench_point *p) {
    double seconds[ROUNDS], first = round_of(t, 1) < 0 ? -1 : round_of(t, 1);
    if (first < 0) return false;
    double wanted = t->b->seconds / ROUNDS / first;
    int64_t calls = wanted < 1 ? 1 : wanted > MOST_CALLS ? MOST_CALLS : (int64_t)wanted;
    if (clef_group_broadcast_bytes(t->group, 0, &calls, sizeof calls)) return false;
    for (int i = 0; i < ROUNDS; i++)
        if ((seconds[i] = round_of(t, (int)calls)) < 0) return false;
    qsort(seconds, ROUNDS, sizeof *seconds, by_size);
    p->seconds = seconds[ROUNDS / 2];
    p->spread = (seconds[3 * ROUNDS / 4] - seconds[ROUNDS / 4]) / 2 / p->seconds;
    return true;
}

/* ---- results ---- */
static bool keep(const together *t, const bench_point *p) {
    if (clef_group_rank(t->all) > 0) return true;
    if (!bench_add(t->b->series, p)) return false;
    t->b->show(t->b->series);
    return true;
}

static void size_text(char *text, size_t size, int n, int64_t bytes) {
    bool mega = bytes >= 1 << 20;
    snprintf(text, size, "%d ranks, %lld %s", n, (long long)(bytes >> (mega ? 20 : 10)), mega ? "MiB" : "KiB");
}

static bool measure_collective(together *t, int64_t bytes) {
    bench_point p = {.bytes = (double)bytes};
    const char *name = collectives[t->collective];
    snprintf(p.suite, sizeof p.suite, "%s", name);
    snprintf(p.name, sizeof p.name, "%s", name);
    snprintf(p.unit, sizeof p.unit, "GB/s");
    size_text(p.shape, sizeof p.shape, t->n, bytes);
    clef_tensor *x = clef_copy(clef_full(t->ctx, CLEF_SHAPE(bytes / 4), CLEF_F32, 1));
    if (!x || clef_eval(x)) return false;
    t->x = clef_keep(x);
    if (clef_end_step(t->ctx) || !sample(t, &p)) return false;
    clef_release(t->x);
    p.rate = 1e-9 * p.bytes / p.seconds;
    return keep(t, &p);
}

static bool make_trainer(together *t, clef_shape item, int64_t items) {
    clef_shape shape = {.rank = item.rank + 1, .dim = {items}};
    for (int d = 0; d < item.rank; d++) shape.dim[d + 1] = item.dim[d];
    t->net = model_make(t->b->model, t->ctx, item, 10);
    clef_replicate(t->net, t->group);
    t->optimizer = clef_adamw(t->net, &(clef_adamw_options){.lr = 1e-3f, .group = t->group});
    t->x = clef_keep(clef_randn(t->ctx, shape));
    t->labels = clef_keep(clef_randint(t->ctx, 0, 10, CLEF_SHAPE(items)));
    return t->net && t->optimizer && t->x && t->labels && clef_end_step(t->ctx) == CLEF_OK;
}

/* One batch, whatever the number of ranks. */
static bool measure_training(together *t) {
    bench_point p = {.bytes = 0};
    int rank = clef_group_rank(t->group);
    snprintf(p.suite, sizeof p.suite, "scaling");
    snprintf(p.name, sizeof p.name, "%s", t->b->model);
    snprintf(p.unit, sizeof p.unit, "images/s");
    snprintf(p.shape, sizeof p.shape, "%d ranks, batch %d", t->n, BATCH);
    if (!make_trainer(t, CLEF_SHAPE(3, 32, 32), BATCH / t->n + (rank < BATCH % t->n)) || !sample(t, &p)) return false;
    p.rate = BATCH / p.seconds;
    bool ok = keep(t, &p);
    clef_release(t->x);
    clef_release(t->labels);
    t->net = NULL; /* it goes with the context */
    return ok;
}

/* ---- the whole ---- */
static bool measure_group(together *t) {
    if (!measure_training(t)) return false;
    for (t->collective = 0; t->n > 1 && t->collective < COLLECTIVES; t->collective++)
        for (int64_t bytes = LEAST_BYTES; bytes <= MOST_BYTES; bytes *= STEP)
            if (!measure_collective(t, bytes)) return false;
    return true;
}

int bench_together(clef_context *ctx, clef_group *all, void *user) {
    const bench_parallel *b = user;
    int size = clef_group_size(all), rank = clef_group_rank(all);
    if (rank == 0) b->begin(ctx);
    for (int n = 1; n <= size; n = n < size && 2 * n > size ? size : 2 * n) {
        together t = {.ctx = ctx, .all = all, .n = n, .b = b};
        t.group = clef_group_split(all, rank < n ? 0 : -1, 0);
        if ((rank < n && !measure_group(&t)) || clef_group_barrier(all)) return EXIT_FAILED;
    }
    return clef_error_status(ctx) ? EXIT_FAILED : EXIT_OK;
}

/* Equal parts of a CPU, as many as it has compute units for; else two ranks on the device. */
bool bench_parts(const clef_device_info *info, char *text, size_t size) {
    int n = 1, used = 0;
    while (n < PARTS && 2 * n <= (int)info->compute_units) n *= 2;
    bool parts = !strcmp(info->type, "cpu") && n > 1;
    for (int i = 0; i < (parts ? n : 2); i++) {
        int added = parts ? snprintf(text + used, size - (size_t)used, "%s%d/%d#%d", i ? "," : "", info->index, n, i)
                          : snprintf(text + used, size - (size_t)used, "%s%d", i ? "," : "", info->index);
        used += added;
        if (added < 0 || (size_t)used >= size) return false;
    }
    return true;
}
