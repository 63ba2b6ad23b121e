/* bench_pipeline.c — what a pipeline of stages gives, against one rank that computes everything.
       bench_pipeline [devices=0/2] [micro=8] [batch=512] [width=1024] [rounds=11] [least=0.85]

       of the ideal = (one / pipeline) / (s·m / (m + s − 1))      s stages, m micro-batches (Huang et al.: GPipe, 2019)

   pipeline: a step of all ranks, a stage on each.  one: the same micro-batches of the same net on rank 0 alone, while the others wait; so
   all devices should be alike.  The net has four linear layers of `width` a stage.  In turns; medians.  Fails below `least`. */
#include "clef.h"
#include "peers/timing.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 101, LAYERS_OF_STAGE = 8, MOST_STAGES = 16, CLASSES = 10 };

typedef struct settings {
    const char *devices;
    double micro, batch, width, rounds, least;
    double reached;
} settings;

/* ---- a net of equal stages ---- */

typedef struct trainer {
    clef_module *net;
    clef_pipeline *pipe;
    clef_optimizer *opt;
    clef_tensor *x, *y;
} trainer;

/* group NULL: one rank has all of it. */
static trainer open_trainer(clef_context *ctx, clef_group *group, int stages, const settings *s) {
    clef_module *layer[MOST_STAGES * LAYERS_OF_STAGE];
    int cut[MOST_STAGES], n = 0;
    for (int stage = 0; stage < stages; stage++) {
        cut[stage] = LAYERS_OF_STAGE * (stage + 1);
        for (int i = 0; i < LAYERS_OF_STAGE; i += 2) {
            layer[n++] = clef_nn_linear(ctx, (int64_t)s->width, (int64_t)s->width, NULL);
            layer[n++] = clef_nn_relu(ctx);
        }
    }
    trainer t = {.net = clef_sequential(ctx, layer, n)};
    t.pipe = clef_pipeline_new(t.net, group, &(clef_pipeline_options){.micro_batches = (int)s->micro, .cut = group ? cut : NULL});
    t.opt = clef_sgd(t.net, &(clef_sgd_options){.lr = 1e-4f});
    t.x = clef_keep(clef_randn(ctx, CLEF_SHAPE((int64_t)s->batch, (int64_t)s->width)));
    t.y = clef_keep(clef_randint(ctx, 0, CLASSES, CLEF_SHAPE((int64_t)s->batch)));
    clef_end_step(ctx);
    return t;
}

static double take_step(clef_context *ctx, const trainer *t) {
    double begin = now();
    clef_pipeline_step(t->pipe, t->x, t->y, clef_cross_entropy, NULL, NULL);
    clef_step(t->opt);
    clef_synchronize(ctx);
    return now() - begin;
}

/* ---- the whole ---- */

static clef_status measure(clef_context *ctx, clef_group *all, void *user) {
    settings *s = user;
    int stages = clef_group_size(all), rounds = (int)s->rounds;
    bool first = clef_group_rank(all) == 0;
    if (stages > MOST_STAGES) return CLEF_INVALID;
    trainer spread = open_trainer(ctx, all, stages, s), whole = {0};
    if (first) whole = open_trainer(ctx, NULL, stages, s);
    double together[MOST_ROUNDS], one[MOST_ROUNDS];
    for (int i = -2; i < rounds && !clef_error_status(ctx); i++) {
        clef_group_barrier(all);
        double begin = now();
        take_step(ctx, &spread);
        clef_group_barrier(all);
        double a = now() - begin, b = first ? take_step(ctx, &whole) : 0;
        if (i >= 0) together[i] = a, one[i] = b;
    }
    if (clef_error_status(ctx) || !first) return clef_error_status(ctx);
    double a = median(together, rounds), b = median(one, rounds), ideal = stages * s->micro / (s->micro + stages - 1);
    s->reached = b / a / ideal;
    printf("%d stages, %g micro-batches: %.1f ms, one rank %.1f ms: %.2f times as fast, of %.2f at best\n"
           "%.3f of the ideal (at least %.3g)\n",
           stages, s->micro, 1e3 * a, 1e3 * b, b / a, ideal, s->reached, s->least);
    return CLEF_OK;
}

static bool read_word(settings *s, const char *word) {
    const struct {
        const char *name;
        double *to;
    } number[] = {
        {"micro=", &s->micro}, {"batch=", &s->batch}, {"width=", &s->width}, {"rounds=", &s->rounds}, {"least=", &s->least}};
    if (strncmp(word, "devices=", 8) == 0) return s->devices = word + 8, true;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        size_t n = strlen(number[i].name);
        if (strncmp(word, number[i].name, n) == 0) return *number[i].to = strtod(word + n, NULL), *number[i].to > 0;
    }
    return false;
}

int main(int argc, char **argv) {
    settings s = {.devices = "0/2", .micro = 8, .batch = 512, .width = 1024, .rounds = 11, .least = 0.85};
    for (int a = 1; a < argc; a++)
        if (!read_word(&s, argv[a]) || s.rounds > MOST_ROUNDS)
            return fprintf(stderr, "bench_pipeline: \"%s\" is none of its settings; see the head of bench_pipeline.c\n", argv[a]),
                   2;
    if (clef_run_ranks(s.devices, measure, &s) != CLEF_OK) return fprintf(stderr, "%s\n", clef_error(NULL)), 1;
    return s.reached < s.least;
}
