/* Random nets as pipelines of 1 to 4 stages, against one rank that takes the same micro-batches one after the other with clef_forward and
   clef_backward_from: losses, gradients, parameters after an optimizer's steps, running statistics, and the random numbers that follow.

   CLEF_PARALLEL_CASES: how many nets;  CLEF_PARALLEL_FIRST: the first one's seed.
   ctest: cost=60 apart plain */
#include "../group/ranks.h"
#include <math.h>

enum { LAYERS = 12, MOST_VALUES = 4096, STEPS = 3, WIDTH = 6, CLASSES = 5, WORDS = 7 };

typedef enum kind { PLAIN, DROPOUT, NORM, BOTH, TIED, IMAGES, KINDS } kind;

typedef struct plan {
    uint64_t seed;
    kind kind;
    int ranks, micro_batches, items, depth;
    clef_pipeline_schedule schedule;
    bool recompute, own_cut, by_input, clips, eager, frozen, replaces;
} plan;

/* What one rank made of it. */
typedef struct outcome {
    double loss[STEPS], norm[STEPS], next;
    int n;
    float value[MOST_VALUES]; /* of all tensors, one behind the other */
    int64_t counts[64];
} outcome;

static plan make_plan(uint64_t seed) {
    uint64_t r = seed;
    plan p = {.seed = seed, .kind = (kind)random_below(&r, KINDS), .ranks = 1 + random_below(&r, 4)};
    p.micro_batches = 1 + random_below(&r, 8);
    p.items = p.micro_batches + random_below(&r, 2 * p.micro_batches + 3);
    if (p.kind == NORM || p.kind == BOTH || p.kind == IMAGES) p.items = 2 * p.micro_batches + random_below(&r, 9);
    if (random_below(&r, 8) == 0)
        p.items = 1 + random_below(&r, 3), p.kind = p.kind == TIED ? TIED : PLAIN; /* fewer than micro-batches */
    p.depth = p.ranks + random_below(&r, 3);
    p.schedule = random_below(&r, 2) ? CLEF_PIPELINE_GPIPE : CLEF_PIPELINE_1F1B;
    p.recompute = random_below(&r, 3) == 0;
    p.own_cut = random_below(&r, 3) == 0;
    p.by_input = !p.own_cut && random_below(&r, 2);
    p.clips = random_below(&r, 2);
    p.eager = random_below(&r, 8) == 0;
    p.frozen = p.kind == PLAIN && random_below(&r, 4) == 0;
    p.replaces = random_below(&r, 3) == 0;
    return p;
}

/* ---- the net ---- */

static clef_module *head_of(clef_context *ctx, const clef_module *embedding);

static clef_tensor *forward_head(clef_module *head, clef_tensor *x, void *user) {
    (void)user;
    return clef_linear(clef_mean(x, (int[]){1}, 1, false), clef_parameter(head, "weight"), CLEF_NONE);
}

/* Shares the embedding's table. */
static clef_module *head_of(clef_context *ctx, const clef_module *embedding) {
    clef_module *head = clef_module_new(ctx, "head", forward_head, NULL);
    clef_module_add_parameter(head, "weight", clef_parameter(embedding, "weight"));
    return head;
}

static int add_middle(clef_context *ctx, const plan *p, clef_module **layer, int n) {
    for (int i = 0; i < p->depth && n < LAYERS - 3; i++) {
        clef_module *linear = clef_nn_linear(ctx, WIDTH, WIDTH, NULL);
        if (p->kind == DROPOUT || p->kind == BOTH) {
            layer[n++] = clef_sequential(ctx, CLEF_LAYERS(linear, clef_nn_dropout(ctx, 0.3)));
            continue;
        }
        layer[n++] = linear;
        if (i % 2) layer[n++] = clef_nn_tanh(ctx);
    }
    return n;
}

static int add_images(clef_context *ctx, const plan *p, clef_module **layer) {
    int n = 0;
    for (int i = 0; i < p->depth && n < LAYERS - 4; i++) {
        clef_nn_conv2d_options same = {.conv.padding = {1, 1}, .no_bias = true};
        layer[n++] = clef_nn_conv2d(ctx, i ? 3 : 1, 3, 3, &same);
        layer[n++] = clef_nn_batch_norm2d(ctx, 3, NULL);
    }
    layer[n++] = clef_nn_relu(ctx);
    layer[n++] = clef_nn_global_avg_pool2d(ctx);
    layer[n++] = clef_nn_linear(ctx, 3, CLASSES, NULL);
    return n;
}

static clef_tensor *forward_planes(clef_module *m, clef_tensor *x, void *user) {
    (void)m, (void)user;
    return clef_reshape(x, CLEF_SHAPE(clef_tensor_shape(x).dim[0], WIDTH, 1, 1));
}

static clef_module *make_net(clef_context *ctx, const plan *p) {
    clef_module *layer[LAYERS];
    int n = 0;
    clef_seed(ctx, p->seed);
    if (p->kind == IMAGES) n = add_images(ctx, p, layer);
    else if (p->kind == TIED) {
        clef_module *table = clef_nn_embedding(ctx, WORDS, WIDTH);
        layer[n++] = table;
        n = add_middle(ctx, p, layer, n);
        layer[n++] = head_of(ctx, table);
    } else {
        n = add_middle(ctx, p, layer, n);
        if (p->kind == NORM || p->kind == BOTH) {
            layer[n++] = clef_module_new(ctx, "planes", forward_planes, NULL);
            layer[n++] = clef_sequential(ctx, CLEF_LAYERS(clef_nn_batch_norm2d(ctx, WIDTH, NULL), clef_nn_flatten(ctx)));
        }
        layer[n++] = clef_nn_linear(ctx, WIDTH, CLASSES, NULL);
    }
    clef_module *net = clef_sequential(ctx, layer, n);
    if (p->frozen) clef_freeze(layer[0], true);
    if (p->seed % 3 == 0) clef_recompute(layer[n / 2], true);
    return net;
}

static clef_tensor *make_x(clef_context *ctx, const plan *p, int64_t items) {
    if (p->kind == TIED) return clef_randint(ctx, 0, WORDS, CLEF_SHAPE(items, 3));
    return clef_randn(ctx, p->kind == IMAGES ? CLEF_SHAPE(items, 1, 5, 4) : CLEF_SHAPE(items, WIDTH));
}

static clef_tensor *make_y(clef_context *ctx, const plan *p, int64_t items) {
    return clef_randint(ctx, 0, p->kind == TIED ? WORDS : CLASSES, CLEF_SHAPE(items));
}

/* ---- what came out ---- */

static void read_all(clef_context *ctx, clef_module *net, clef_optimizer *opt, outcome *o) {
    o->n = 0;
    int n = clef_module_tensors(net), states = clef_optimizer_tensors(opt);
    for (int i = 0; i < n + states - 1; i++) {
        clef_tensor *t = i < n ? clef_module_tensor(net, i).tensor : clef_optimizer_tensor(opt, i - n + 1).tensor;
        int64_t many = clef_numel(t);
        if (o->n + many > MOST_VALUES) break;
        clef_read(clef_to(t, CLEF_F32), o->value + o->n, (size_t)many * sizeof(float));
        o->n += (int)many;
    }
    clef_tensor *counts = clef_optimizer_tensor(opt, 0).tensor;
    clef_read(counts, o->counts, (size_t)clef_numel(counts) * sizeof(int64_t));
    o->next = clef_item(clef_rand(ctx, CLEF_SHAPE(1)));
}

/* ---- one rank ---- */

static double step_alone(clef_context *ctx, clef_module *net, const plan *p, clef_tensor *x, clef_tensor *y) {
    int64_t start = 0;
    int m = p->micro_batches < p->items ? p->micro_batches : p->items;
    double mean = 0;
    for (int k = 0; k < m; k++) {
        int64_t n = p->items / m + (k < p->items % m), end = start + n;
        double weight = (double)n / p->items;
        clef_tensor *loss =
            clef_cross_entropy(clef_forward(net, clef_slice(x, 0, start, end, 1)), clef_slice(y, 0, start, end, 1), NULL);
        clef_backward_from(loss, clef_full_like(loss, weight));
        mean += weight * clef_item(loss);
        start = end;
    }
    (void)ctx;
    return mean;
}

static clef_optimizer *make_optimizer(clef_module *net, const plan *p) {
    bool normed =
        p->kind == NORM || p->kind == BOTH || p->kind == IMAGES; /* gradients that are 0: Adam would make steps of noise */
    return p->seed % 2 || normed ? clef_sgd(net, &(clef_sgd_options){.lr = 0.1, .momentum = 0.9})
                                 : clef_adam(net, &(clef_adam_options){.lr = 0.01});
}

/* Puts new layers in, for which it wants a new optimizer. */
static clef_optimizer *change_net(clef_module *net, const plan *p, clef_optimizer *opt) {
    if (!p->replaces) return opt;
    clef_context *ctx = clef_module_context(net);
    const char *first = p->kind == DROPOUT || p->kind == BOTH ? "0.0" : p->kind == TIED ? "1" : "0";
    char last[16];
    int behind = 0;
    while (snprintf(last, sizeof last, "%d", behind), clef_module_has(net, last)) behind++;
    snprintf(last, sizeof last, "%d", behind - 1);
    clef_module_replace(net, first,
                        p->kind == IMAGES
                            ? clef_nn_conv2d(ctx, 1, 3, 3, &(clef_nn_conv2d_options){.conv.padding = {1, 1}, .no_bias = true})
                            : clef_nn_linear(ctx, WIDTH, WIDTH, NULL));
    if (p->kind != TIED) clef_module_replace(net, last, clef_nn_linear(ctx, p->kind == IMAGES ? 3 : WIDTH, CLASSES, NULL));
    return make_optimizer(net, p);
}

static void run_alone(const plan *p, outcome *o) {
    clef_context *ctx = clef_open(NULL);
    clef_module *net = make_net(ctx, p);
    clef_optimizer *opt = make_optimizer(net, p);
    for (int i = 0; i < STEPS; i++) {
        if (i == 1) opt = change_net(net, p, opt);
        clef_tensor *x = make_x(ctx, p, p->items), *y = make_y(ctx, p, p->items);
        o->loss[i] = step_alone(ctx, net, p, x, y);
        if (i == 1) o->loss[i] += step_alone(ctx, net, p, x, y); /* gradients add up */
        if (p->clips) o->norm[i] = clef_item(clef_clip_grad_norm(net, 0.5));
        clef_step(opt);
    }
    read_all(ctx, net, opt, o);
    if (clef_error_status(ctx)) COMPLAIN("seed %llu alone: %s", (unsigned long long)p->seed, clef_error(ctx));
    clef_close(ctx);
}

/* ---- the pipeline ---- */

typedef struct piped {
    plan p;
    outcome want;
} piped;

static bool near(double a, double b) { return fabs(a - b) <= 2e-5 * (1 + fabs(b)); }

static void compare(const plan *p, int rank, const outcome *got, const outcome *want) {
    unsigned long long seed = (unsigned long long)p->seed;
    for (int i = 0; i < STEPS; i++)
        if (!near(got->loss[i], want->loss[i]) || !near(got->norm[i], want->norm[i]))
            COMPLAIN("seed %llu, rank %d, step %d: loss %.9g, norm %.9g, not %.9g, %.9g", seed, rank, i, got->loss[i], got->norm[i],
                     want->loss[i], want->norm[i]);
    if (got->n != want->n) COMPLAIN("seed %llu, rank %d: %d numbers, not %d", seed, rank, got->n, want->n);
    double tolerance = p->kind == TIED || p->clips ? 2e-4 : 1e-6; /* elsewhere sums have the same order; pocl gives the same bits */
    int wrong = -1;
    for (int i = got->n - 1; i >= 0; i--)
        if (!(fabs((double)got->value[i] - (double)want->value[i]) <= tolerance * (1 + fabs((double)want->value[i])))) wrong = i;
    if (wrong >= 0)
        COMPLAIN("seed %llu (kind %d, %d stages, %d micro-batches of %d items, %s%s), rank %d, number %d: %.9g, not %.9g", seed,
                 p->kind, p->ranks, p->micro_batches, p->items, p->schedule ? "gpipe" : "1f1b", p->recompute ? ", recompute" : "",
                 rank, wrong, (double)got->value[wrong], (double)want->value[wrong]);
    if (memcmp(got->counts, want->counts, sizeof got->counts)) COMPLAIN("seed %llu, rank %d: other counts of updates", seed, rank);
    if (got->next != want->next) COMPLAIN("seed %llu, rank %d: other random numbers follow", seed, rank);
}

static clef_pipeline *make_pipeline(clef_context *ctx, clef_group *all, clef_module *net, const plan *p) {
    clef_pipeline_options o = {.micro_batches = p->micro_batches, .schedule = p->schedule, .recompute = p->recompute};
    int cut[4] = {0};
    uint64_t r = p->seed * 7;
    for (int s = 1; s < p->ranks; s++) cut[s - 1] = s == 1 ? 1 : cut[s - 2] + 1;
    if (p->ranks > 1 && p->depth > p->ranks) cut[p->ranks - 2] += random_below(&r, 2);
    if (p->own_cut) o.cut = cut;
    clef_random_state random = clef_random_get(ctx);
    if (p->by_input) o.input = make_x(ctx, p, 2);
    clef_random_set(ctx, random);
    return clef_pipeline_new(net, all, &o);
}

static clef_status run_rank(clef_context *ctx, clef_group *all, void *user) {
    const piped *c = user;
    const plan *p = &c->p;
    outcome got = {0};
    clef_module *net = make_net(ctx, p);
    clef_optimizer *opt = make_optimizer(net, p);
    clef_pipeline *pipe = make_pipeline(ctx, all, net, p);
    if (!pipe) return clef_error_status(ctx);
    for (int i = 0; i < STEPS; i++) {
        if (i == 1) opt = change_net(net, p, opt);
        clef_tensor *x = make_x(ctx, p, p->items), *y = make_y(ctx, p, p->items), *mean, *again, *norm = NULL;
        clef_status status = clef_pipeline_step(pipe, x, y, clef_cross_entropy, NULL, &mean);
        if (!status && i == 1) status = clef_pipeline_step(pipe, x, y, clef_cross_entropy, NULL, &again);
        if (status) return status;
        if (p->clips) norm = clef_pipeline_clip_grad_norm(pipe, 0.5);
        if (clef_step(opt)) return clef_error_status(ctx);
        got.loss[i] = clef_item(mean) + (i == 1 ? clef_item(again) : 0);
        if (p->clips) got.norm[i] = clef_item(norm);
    }
    if (clef_pipeline_gather(pipe, opt)) return clef_error_status(ctx);
    read_all(ctx, net, opt, &got);
    compare(p, clef_group_rank(all), &got, &c->want);
    return clef_error_status(ctx);
}

static void run(piped *c) {
    char devices[2 * MOST_RANKS];
    run_alone(&c->p, &c->want);
    clef_ranks_options o = {.context.eager = c->p.eager, .timeout = 120};
    if (clef_run_ranks_with(ranks_on_one(c->p.ranks, devices), &o, run_rank, c))
        COMPLAIN("seed %llu (kind %d, %d stages): %s", (unsigned long long)c->p.seed, c->p.kind, c->p.ranks, clef_error(NULL));
}

int main(void) {
    int code;
    if (!have_device(&code)) return code;
    long cases = cases_from_env("CLEF_PARALLEL_CASES", 24), first = number_from_env("CLEF_PARALLEL_FIRST", 1);
    static piped c;
    for (long i = 0; i < cases && !complaints; i++) {
        memset(&c, 0, sizeof c);
        c.p = make_plan((uint64_t)(first + i));
        run(&c);
    }
    return complaints != 0;
}
