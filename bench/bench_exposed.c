/* bench_exposed.c — how much of the communication of data parallel training is not hidden behind computing, on a slow network.
       bench_exposed [devices=0/2] [bandwidth=0.25] [latency=50] [batch=64] [rounds=11] [model=resnet18|mlp] [most=0.2]

   bandwidth: GB/s of each rank's link, each way; latency: µs of a message (tests/support/delayed.h).

       exposed = (step − step without collectives) / collectives alone

   step: of all ranks together.  Step without collectives: every rank takes the same part of the batch by itself, all at the same time.
   Collectives alone: the same gradients averaged where nothing is computed that they could hide behind, with backward of a sum of all
   parameters in place of the net's, less the same without the group.  In turns; medians.  Fails where exposed is above `most`. */
#include "support/delayed.h"

#include "clef.h"
#include "peers/timing.h"
#include <stdio.h>
#include <string.h>

enum { MOST_ROUNDS = 101, CLASSES = 10 };

typedef struct settings {
    const char *devices, *model;
    double bandwidth, latency, most;
    int64_t batch;
    int rounds;
    delayed_network net;
    double exposed;
} settings;

/* ---- what is measured ---- */

typedef struct trainer {
    clef_module *net;
    clef_optimizer *opt;
    clef_tensor *x, *y;
} trainer;

static clef_module *make_net(clef_context *ctx, const char *model) {
    if (strcmp(model, "mlp") != 0) return clef_model_resnet18(ctx, CLEF_SHAPE(3, 32, 32), CLASSES);
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, 3072, 512, NULL), clef_nn_relu(ctx),
                                            clef_nn_linear(ctx, 512, 512, NULL), clef_nn_relu(ctx),
                                            clef_nn_linear(ctx, 512, CLASSES, NULL)));
}

/* group NULL: it trains alone. */
static trainer open_trainer(clef_context *ctx, clef_group *group, const char *model, int64_t items) {
    trainer t = {.net = make_net(ctx, model)};
    clef_replicate(t.net, group);
    t.opt = clef_sgd(t.net, &(clef_sgd_options){.lr = 1e-3f, .group = group});
    t.x = clef_keep(clef_randn(ctx, CLEF_SHAPE(items, 3, 32, 32)));
    t.y = clef_keep(clef_randint(ctx, 0, CLASSES, CLEF_SHAPE(items)));
    clef_end_step(ctx);
    return t;
}

static clef_tensor *loss_of(const trainer *t) { return clef_cross_entropy(clef_forward(t->net, t->x), t->y, NULL); }

/* Every parameter has a gradient, and none is worth mentioning to compute. */
static clef_tensor *light_loss(const trainer *t) {
    clef_tensor *sum = NULL;
    for (int i = 0, n = clef_module_tensors(t->net); i < n; i++) {
        clef_named_tensor named = clef_module_tensor(t->net, i);
        if (named.is_buffer) continue;
        clef_tensor *mean = clef_mean(named.tensor, NULL, 0, false);
        sum = sum ? clef_add(sum, mean) : mean;
    }
    return sum;
}

static double take_step(clef_context *ctx, clef_group *all, const trainer *t, bool light) {
    clef_group_barrier(all);
    double begin = delayed_now();
    clef_backward(light ? light_loss(t) : loss_of(t));
    clef_step(t->opt);
    clef_synchronize(ctx);
    clef_group_barrier(all);
    return delayed_now() - begin;
}

/* ---- the whole ---- */

enum { STEP, STEP_ALONE, LIGHT, LIGHT_ALONE, KINDS };

static clef_status measure(clef_context *ctx, clef_group *all, void *user) {
    settings *s = user;
    int64_t items = s->batch / clef_group_size(all);
    trainer of[KINDS]; /* each its own: weights come to lie as their gradients do, which are others where backward is light */
    double t[KINDS][MOST_ROUNDS];
    for (int k = 0; k < KINDS; k++) of[k] = open_trainer(ctx, k == STEP || k == LIGHT ? all : NULL, s->model, items);
    for (int i = -2; i < s->rounds && !clef_error_status(ctx); i++)
        for (int k = 0; k < KINDS; k++) {
            double seconds = take_step(ctx, all, &of[k], k >= LIGHT);
            if (i >= 0) t[k][i] = seconds;
        }
    if (clef_error_status(ctx) || clef_group_rank(all) > 0) return clef_error_status(ctx);
    double ms[KINDS];
    for (int k = 0; k < KINDS; k++) ms[k] = 1e3 * median(t[k], s->rounds);
    double collectives = ms[LIGHT] - ms[LIGHT_ALONE];
    s->exposed = (ms[STEP] - ms[STEP_ALONE]) / collectives;
    printf("%s, batch %lld, %d ranks, %.3g GB/s, %.3g us: step %.1f ms, without collectives %.1f ms, collectives alone %.1f ms\n"
           "exposed %.3f (at most %.3g)\n",
           s->model, (long long)s->batch, clef_group_size(all), s->bandwidth, s->latency, ms[STEP], ms[STEP_ALONE], collectives,
           s->exposed, s->most);
    return CLEF_OK;
}

static bool read_word(settings *s, const char *word) {
    const char *value = strchr(word, '=');
    size_t n = value ? (size_t)(value++ - word) : 0;
    double number = value ? strtod(value, NULL) : 0;
#define IS(name) (n == strlen(name) && memcmp(word, name, n) == 0)
    if (IS("devices")) return s->devices = value, true;
    if (IS("model")) return s->model = value, strcmp(value, "resnet18") == 0 || strcmp(value, "mlp") == 0;
    if (!(number > 0)) return false;
    if (IS("bandwidth")) return s->bandwidth = number, true;
    if (IS("latency")) return s->latency = number, true;
    if (IS("batch")) return s->batch = (int64_t)number, true;
    if (IS("rounds")) return s->rounds = (int)number, s->rounds <= MOST_ROUNDS;
    if (IS("most")) return s->most = number, true;
#undef IS
    return false;
}

int main(int argc, char **argv) {
    settings s = {.devices = "0/2", .model = "resnet18", .bandwidth = 0.25, .latency = 50, .batch = 64, .rounds = 11, .most = 0.2};
    for (int a = 1; a < argc; a++)
        if (!read_word(&s, argv[a]))
            return fprintf(stderr, "bench_exposed: \"%s\" is none of its settings; see the head of bench_exposed.c\n", argv[a]), 2;
    s.net.latency = 1e-6 * s.latency;
    s.net.bandwidth = 1e9 * s.bandwidth;
    clef_ranks_options options = {.wrap = delayed_wrap, .wrap_user = &s.net};
    clef_status status = clef_run_ranks_with(s.devices, &options, measure, &s);
    delayed_close(&s.net);
    if (status != CLEF_OK) return fprintf(stderr, "%s\n", clef_error(NULL)), 1;
    return s.exposed > s.most;
}
