/* Programs of one device on 1 to 4 ranks that share batches: after some steps the parameters and the optimizer's state are those of one rank
   with whole batches, and the same bits on all ranks.  Optimizers, accumulation, clipping, layers that only some batches use, dropout, uneven
   and empty parts, and losses that do not count every item.   CLEF_CASES: how many programs; CLEF_SEED: the first.
   ctest: cost=30 apart plain */
#include "ranks.h"
#include <math.h>

enum { FEATURES = 6, CLASSES = 3, MOST_VALUES = 4096, RARE = 2 };

/* ---- a random program ---- */

typedef struct program {
    int optimizer, accumulate, clip, epochs, ranks;
    int64_t items, batch;
    bool shuffle, drop_last, dropout, branch, counts, reads, norm;
    uint64_t seed;
    int64_t *label;
    float *x;
} program;

typedef struct result {
    float value[MOST_VALUES];
    int64_t n, updates;
    uint64_t offset;
    double loss;
} result;

static struct {
    program p;
    result rank[MOST_RANKS];
} run;

static program random_program(uint64_t seed) {
    static const int64_t items[] = {17, 20, 26, 33}, batch[] = {3, 6, 8, 16};
    uint64_t s = seed;
    program p = {.seed = seed, .epochs = 2};
    p.ranks = 2 + random_below(&s, 3);
    p.optimizer = random_below(&s, 6);
    p.accumulate = 1 + (int)(seed % 3);
    p.clip = random_below(&s, 3);
    p.items = items[random_below(&s, 4)];
    p.batch = batch[random_below(&s, 4)];
    p.shuffle = random_below(&s, 2);
    p.drop_last = random_below(&s, 4) == 0;
    p.dropout = random_below(&s, 2);
    p.branch = random_below(&s, 2);
    p.reads = seed / 3 % 2;
    p.norm = random_below(&s, 3) == 0;
    p.counts = seed % 5 == 4;
    if (p.counts) p.accumulate = 1; /* a weight is one for the step */
    p.label = malloc((size_t)p.items * sizeof *p.label);
    p.x = malloc((size_t)p.items * FEATURES * sizeof *p.x);
    for (int64_t i = 0; i < p.items; i++) p.label[i] = random_below(&s, 5) == 0 ? RARE : random_below(&s, RARE);
    for (int64_t i = 0; i < p.items * FEATURES; i++) p.x[i] = (float)random_below(&s, 2001) / 1000 - 1;
    return p;
}

static clef_optimizer *make_optimizer(clef_module *m, const program *p, clef_group *all) {
    switch (p->optimizer) {
    case 0: return clef_sgd(m, &(clef_sgd_options){.lr = 0.1, .momentum = 0.9, .group = all});
    case 1: return clef_sgd(m, &(clef_sgd_options){.lr = 0.1, .weight_decay = 0.01, .group = all});
    case 2: return clef_adam(m, &(clef_adam_options){.lr = 0.02, .eps = 1e-3, .amsgrad = true, .group = all});
    case 3: return clef_adamw(m, &(clef_adamw_options){.lr = 0.02, .eps = 1e-3, .group = all});
    case 4: return clef_rmsprop(m, &(clef_rmsprop_options){.momentum = 0.5, .eps = 1e-2, .group = all});
    default: return clef_adagrad(m, &(clef_adagrad_options){.lr = 0.1, .eps = 1e-3, .group = all});
    }
}

static clef_module *make_net(clef_context *ctx, const program *p) {
    clef_module *trunk =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, FEATURES, 8, NULL),
                                         p->norm ? clef_nn_layer_norm(ctx, CLEF_SHAPE(8), NULL) : clef_nn_tanh(ctx),
                                         clef_nn_dropout(ctx, p->dropout ? 0.3 : 0)));
    return clef_sequential(ctx, CLEF_LAYERS(trunk, clef_nn_linear(ctx, 8, CLASSES, NULL), clef_nn_linear(ctx, 8, 1, NULL)));
}

/* ---- the loop, the same for any number of ranks ---- */

/* The third layer sees items of the rare class alone, and runs where there are any. */
static clef_tensor *branch_loss(clef_module *net, clef_tensor *h, clef_tensor *y, int64_t n) {
    int64_t label[64];
    bool any = false;
    if (n) clef_read(y, label, (size_t)n * sizeof *label);
    for (int64_t i = 0; i < n; i++) any |= label[i] == RARE;
    if (!any) return NULL;
    clef_tensor *rare = clef_unsqueeze(clef_to(clef_eq_scalar(y, RARE), CLEF_F32), 1);
    return clef_mean(clef_mul(rare, clef_square(clef_forward(clef_module_child(net, "2"), h))), NULL, 0, false);
}

/* A mean over the items that are not rare; how many they are. */
static clef_tensor *counted_loss(clef_tensor *logits, clef_tensor *y, int64_t n, clef_group *all) {
    int64_t label[64], counts = 0;
    if (n) clef_read(y, label, (size_t)n * sizeof *label);
    for (int64_t i = 0; i < n; i++) counts += label[i] != RARE;
    clef_group_weight(all, (double)counts);
    return clef_cross_entropy(logits, y, &(clef_loss_options){.has_ignore_index = true, .ignore_index = RARE});
}

static clef_tensor *loss_of(const program *p, clef_module *net, const clef_batch *b, clef_group *all) {
    clef_tensor *h = clef_forward(clef_module_child(net, "0"), b->x), *y = clef_forward(clef_module_child(net, "1"), h);
    if (p->counts) return counted_loss(y, b->y, b->size, all);
    clef_tensor *loss = clef_cross_entropy(y, b->y, NULL), *more = p->branch ? branch_loss(net, h, b->y, b->size) : NULL;
    return more ? clef_add(loss, more) : loss;
}

static void clip(const program *p, clef_module *net) {
    if (p->clip == 1) clef_clip_grad_norm(net, 0.3);
    if (p->clip == 2) clef_clip_grad_value(net, 0.05);
}

/* Reading a gradient between two backward passes must change nothing. */
static void read_gradient(clef_module *net) {
    float g[FEATURES * 8];
    clef_tensor *grad = clef_grad_of(clef_parameter(net, "0.0.weight"));
    if (grad) clef_read(grad, g, sizeof g);
}

static void train_epoch(const program *p, clef_loader *data, clef_module *net, clef_optimizer *opt, clef_group *all) {
    int gathered = 0;
    for (clef_batch b; clef_next(data, &b);) {
        clef_backward(loss_of(p, net, &b, all));
        if (p->reads) read_gradient(net);
        if (++gathered < p->accumulate) continue;
        clip(p, net);
        clef_step(opt);
        gathered = 0;
    }
    clip(p, net);
    clef_step(opt);
}

static void collect(clef_tensor *t, result *r) {
    int64_t n = clef_numel(t);
    if (r->n + n <= MOST_VALUES && clef_read(clef_to(t, CLEF_F32), r->value + r->n, (size_t)n * sizeof(float)) == CLEF_OK)
        r->n += n;
}

/* Ranks begin with other weights, which replicate makes those of rank 0. */
static clef_status train(clef_context *ctx, clef_group *all, void *user) {
    const program *p = &run.p;
    result *r = (result *)user + clef_group_rank(all);
    clef_group *group = user == run.rank ? all : NULL;
    clef_dataset *set = clef_dataset_arrays(ctx, p->x, CLEF_SHAPE(FEATURES), p->label, p->items);
    clef_loader_options options = {
        .batch = p->batch, .shuffle = p->shuffle, .drop_last = p->drop_last, .seed = p->seed, .workers = 2, .group = group};
    clef_loader *data = clef_loader_open(set, &options);
    clef_seed(ctx, p->seed + (uint64_t)clef_group_rank(group));
    clef_module *net = make_net(ctx, p);
    clef_replicate(net, group);
    clef_optimizer *opt = make_optimizer(net, p, group);
    for (int e = 0; e < p->epochs; e++) train_epoch(p, data, net, opt, group);
    *r = (result){.offset = clef_random_get(ctx).offset};
    for (int i = 0; i < clef_module_tensors(net); i++) collect(clef_module_tensor(net, i).tensor, r);
    for (int i = 0; i < clef_optimizer_tensors(opt); i++) collect(clef_optimizer_tensor(opt, i).tensor, r);
    return clef_error_status(ctx);
}

/* ---- what must hold ---- */

static void compare(const result *one) {
    const program *p = &run.p;
    for (int r = 0; r < p->ranks; r++) {
        const result *got = &run.rank[r];
        if (got->n != one->n || !one->n)
            COMPLAIN("seed %llu: %lld values on rank %d, not %lld", (unsigned long long)p->seed, (long long)got->n, r,
                     (long long)one->n);
        if (memcmp(got->value, run.rank[0].value, (size_t)got->n * sizeof(float)))
            COMPLAIN("seed %llu: rank %d has other bits than rank 0", (unsigned long long)p->seed, r);
        if (got->offset != one->offset) COMPLAIN("seed %llu: rank %d drew other random numbers", (unsigned long long)p->seed, r);
    }
    double worst = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < one->n; i++) {
        double off = fabs((double)run.rank[0].value[i] - (double)one->value[i]) / fmax(1, fabs((double)one->value[i]));
        if (!(off <= worst)) worst = off, at = i;
    }
    if (!(worst <= 1e-5))
        COMPLAIN("seed %llu, %d ranks, optimizer %d: value %lld is off by %g", (unsigned long long)p->seed, p->ranks, p->optimizer,
                 (long long)at, worst);
}

static void try_program(uint64_t seed) {
    static result one;
    char devices[2 * MOST_RANKS];
    run.p = random_program(seed);
    one = (result){0};
    memset(run.rank, 0, sizeof run.rank);
    if (clef_run_ranks("0", train, &one) != CLEF_OK) COMPLAIN("seed %llu alone: %s", (unsigned long long)seed, clef_error(NULL));
    if (clef_run_ranks(ranks_on_one(run.p.ranks, devices), train, run.rank) != CLEF_OK)
        COMPLAIN("seed %llu on %d ranks: %s", (unsigned long long)seed, run.p.ranks, clef_error(NULL));
    compare(&one);
    free(run.p.label);
    free(run.p.x);
}

int main(void) {
    int code;
    if (!have_device(&code)) return code;
    uint64_t first = (uint64_t)number_from_env("CLEF_SEED", 1), n = (uint64_t)cases_from_env("CLEF_CASES", 15);
    for (uint64_t seed = first; seed < first + n; seed++) try_program(seed);
    printf("%d complaints\n", atomic_load(&complaints));
    return atomic_load(&complaints) != 0;
}
