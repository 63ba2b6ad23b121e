/* The same bits, whatever the number of ranks: programs that cut their batches into P parts end on 1, 2 and 4 ranks with equal parameters, buffers,
   states of the optimizer, gradients and losses.  LeNet with dropout, batch norm, attention, and layers that only some parts use; uneven batches and empty
   parts, accumulation, clipping.  And what the numbers mean: the mean gradient of the whole batch, statistics weighted by items.
   CLEF_STEPS: steps of a program; CLEF_CASES: how many programs; CLEF_SEED: the first.
   ctest: cost=90 apart plain */
#include "group/ranks.h"
#include "support/attention_block.h"
#include <math.h>

enum { SIDE = 8, FEATURES = SIDE * SIDE, CLASSES = 4, RARE = 3, MOST_VALUES = 1 << 16, MOST_ITEMS = 64 };
enum { LENET, NORMS, ATTENTION, BRANCH, MIXED, NETS };

typedef struct program {
    int net, parts, optimizer, accumulate, clip, steps;
    int64_t items, batch;
    bool shuffle, averages; /* averages: the optimizer has the group too */
    uint64_t seed;
} program;

typedef struct result {
    float value[MOST_VALUES];
    int64_t n;
    uint64_t offset;
} result;

static struct {
    program p;
    int ranks;
    float x[MOST_ITEMS * FEATURES];
    int64_t y[MOST_ITEMS];
    result reference, rank[MOST_RANKS];
} run;

static program random_program(uint64_t seed) {
    static const int64_t items[] = {37, 41, 48, 33}, batch[] = {16, 12, 24, 8};
    uint64_t s = seed;
    program p = {.seed = seed, .net = (int)(seed % NETS), .steps = (int)number_from_env("CLEF_STEPS", 20)};
    p.parts = 1 << (seed / NETS + 2 + seed) % 4;
    p.optimizer = random_below(&s, 3);
    p.accumulate = 1 + random_below(&s, 2);
    p.clip = random_below(&s, 3);
    p.items = items[random_below(&s, 4)];
    p.batch = batch[random_below(&s, 4)];
    p.shuffle = random_below(&s, 2);
    p.averages = random_below(&s, 2);
    for (int64_t i = 0; i < p.items * FEATURES; i++) run.x[i] = (float)random_below(&s, 2001) / 1000 - 1;
    for (int64_t i = 0; i < p.items; i++) run.y[i] = random_below(&s, 6) == 0 ? RARE : random_below(&s, RARE);
    return p;
}

/* ---- nets ---- */

static bool has_f64(clef_context *ctx) {
    clef_device_info info;
    return clef_context_device(ctx, 0, &info) && info.f64;
}

static clef_module *make_lenet(clef_context *ctx) {
    return clef_sequential(ctx,
                           CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 6, 3, NULL), clef_nn_relu(ctx), clef_nn_conv2d(ctx, 6, 8, 3, NULL),
                                       clef_nn_relu(ctx), clef_nn_max_pool2d(ctx, 2, NULL), clef_nn_flatten(ctx),
                                       clef_nn_dropout(ctx, 0.3), clef_nn_linear(ctx, 8 * 2 * 2, 20, NULL), clef_nn_tanh(ctx),
                                       clef_nn_dropout(ctx, 0.5), clef_nn_linear(ctx, 20, CLASSES, NULL)));
}

static clef_module *make_norms(clef_context *ctx) {
    return clef_sequential(
        ctx, CLEF_LAYERS(clef_nn_batch_norm2d(ctx, 1, NULL), clef_nn_conv2d(ctx, 1, 5, 3, NULL), clef_nn_batch_norm2d(ctx, 5, NULL),
                         clef_nn_relu(ctx), clef_nn_conv2d(ctx, 5, 6, 3, NULL), clef_nn_batch_norm2d(ctx, 6, NULL),
                         clef_nn_relu(ctx), clef_nn_flatten(ctx), clef_nn_linear(ctx, 6 * 4 * 4, CLASSES, NULL)));
}

static clef_module *make_branch(clef_context *ctx) {
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, FEATURES, 10, NULL), clef_nn_linear(ctx, 10, CLASSES, NULL),
                                            clef_nn_linear(ctx, 10, 1, NULL), clef_nn_linear(ctx, 10, 1, NULL)));
}

/* Parameters of three dtypes, and buffers: one that counts parts, one that some parts change, one that none does. */
static clef_module *make_mixed(clef_context *ctx) {
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, FEATURES, CLASSES, NULL)));
    clef_module_add_parameter(net, "scale", clef_to(clef_rand(ctx, CLEF_SHAPE(CLASSES)), has_f64(ctx) ? CLEF_F64 : CLEF_BF16));
    clef_module_add_parameter(net, "shift", clef_to(clef_rand(ctx, CLEF_SHAPE(CLASSES)), CLEF_F16));
    clef_module_add_buffer(net, "seen", clef_full(ctx, CLEF_SCALAR, CLEF_I32, 5));
    clef_module_add_buffer(net, "rare", clef_full(ctx, CLEF_SHAPE(3), CLEF_F32, -0.3));
    clef_module_add_buffer(net, "mask", clef_full(ctx, CLEF_SHAPE(2), CLEF_F32, -INFINITY));
    return net;
}

static clef_module *make_net(clef_context *ctx, int net) {
    switch (net) {
    case LENET: return make_lenet(ctx);
    case NORMS: return make_norms(ctx);
    case ATTENTION: return attention_block(ctx, SIDE, CLASSES);
    case MIXED: return make_mixed(ctx);
    default: return make_branch(ctx);
    }
}

static bool has_rare(const clef_batch *b) {
    int64_t label[MOST_ITEMS];
    bool any = false;
    if (clef_read(b->y, label, (size_t)b->size * sizeof *label) != CLEF_OK) return false;
    for (int64_t i = 0; i < b->size; i++) any |= label[i] == RARE;
    return any;
}

/* Layer 2 is used by parts with a rare item, layer 3 by none. */
static clef_tensor *branched(clef_module *net, const clef_batch *b) {
    clef_tensor *h = clef_tanh(layer(net, 0, clef_reshape(b->x, CLEF_SHAPE(-1, FEATURES))));
    clef_tensor *loss = clef_cross_entropy(layer(net, 1, h), b->y, NULL);
    return has_rare(b) ? clef_add(loss, clef_mean(clef_square(layer(net, 2, h)), NULL, 0, false)) : loss;
}

static clef_tensor *mixed(clef_module *net, const clef_batch *b) {
    clef_context *ctx = clef_module_context(net);
    clef_tensor *scale = clef_parameter(net, "scale"), *shift = clef_parameter(net, "shift"), *rare = clef_parameter(net, "rare");
    for (CLEF_NO_GRAD(ctx)) {
        clef_assign(clef_parameter(net, "seen"), clef_add_scalar(clef_parameter(net, "seen"), 1));
        if (has_rare(b)) clef_assign(rare, clef_add(clef_mul_scalar(rare, 0.7), clef_mean(b->x, NULL, 0, false)));
    }
    clef_tensor *y = layer(net, 0, clef_reshape(b->x, CLEF_SHAPE(-1, FEATURES)));
    return clef_cross_entropy(clef_add(clef_mul(y, clef_to(scale, CLEF_F32)), clef_to(shift, CLEF_F32)), b->y, NULL);
}

static clef_tensor *loss_of(clef_module *net, const clef_batch *b, void *user) {
    switch (*(int *)user) {
    case ATTENTION: return clef_cross_entropy(attend(net, SIDE, b->x), b->y, NULL);
    case BRANCH: return branched(net, b);
    case MIXED: return mixed(net, b);
    default: return clef_cross_entropy(clef_forward(net, b->x), b->y, NULL);
    }
}

/* ---- a run ---- */

static clef_optimizer *make_optimizer(clef_module *m, const program *p, clef_group *group) {
    switch (p->optimizer) {
    case 0: return clef_sgd(m, &(clef_sgd_options){.lr = 0.05, .momentum = 0.9, .group = group});
    case 1: return clef_adam(m, &(clef_adam_options){.lr = 0.01, .amsgrad = true, .group = group});
    default: return clef_adamw(m, &(clef_adamw_options){.lr = 0.01, .group = group});
    }
}

static void collect(clef_tensor *t, result *r) {
    int64_t n = clef_numel(t);
    if (r->n + n > MOST_VALUES) COMPLAIN("more than %d values", MOST_VALUES);
    else if (clef_read(clef_to(t, CLEF_F32), r->value + r->n, (size_t)n * sizeof(float)) == CLEF_OK) r->n += n;
}

static void collect_missing(clef_module *net, result *r) {
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_named_tensor t = clef_module_tensor(net, i);
        if (!t.is_buffer && r->n < MOST_VALUES) r->value[r->n++] = clef_grad_of(t.tensor) ? 1 : 0;
    }
}

static void clip(const program *p, clef_module *net) {
    if (p->clip == 1) clef_clip_grad_norm(net, 0.5);
    if (p->clip == 2) clef_clip_grad_value(net, 0.05);
}

static bool one_step(const program *p, clef_loader *data, clef_module *net, clef_optimizer *opt, clef_group *all, result *r) {
    clef_batch b;
    clef_tensor *loss;
    int net_kind = p->net;
    for (int i = 0; i < p->accumulate; i++) {
        if (!clef_next(data, &b) && !clef_next(data, &b)) return false;
        if (clef_backward_parts(net, &b, loss_of, &net_kind, &(clef_parts_options){.group = all}, &loss)) return false;
        collect(loss, r);
    }
    collect_missing(net, r);
    clip(p, net);
    return clef_step(opt) == CLEF_OK;
}

static clef_status train(clef_context *ctx, clef_group *all, void *user) {
    const program *p = &run.p;
    result *r = (result *)user + clef_group_rank(all);
    clef_dataset *set = clef_dataset_arrays(ctx, run.x, CLEF_SHAPE(1, SIDE, SIDE), run.y, p->items);
    clef_loader *data = clef_loader_open(
        set, &(clef_loader_options){.batch = p->batch, .shuffle = p->shuffle, .seed = p->seed, .group = all, .parts = p->parts});
    clef_seed(ctx, p->seed + (uint64_t)clef_group_rank(all));
    clef_module *net = make_net(ctx, p->net);
    clef_replicate(net, all);
    clef_optimizer *opt = make_optimizer(net, p, p->averages ? all : NULL);
    r->n = 0;
    for (int i = 0; i < p->steps && one_step(p, data, net, opt, all, r); i++) {
    }
    if (p->net == MIXED && clef_item(clef_to(clef_parameter(net, "seen"), CLEF_F64)) != 5 + p->steps * p->accumulate)
        COMPLAIN("seed %llu: a batch counted otherwise than once", (unsigned long long)p->seed);
    for (int i = 0; i < clef_module_tensors(net); i++) collect(clef_module_tensor(net, i).tensor, r);
    for (int i = 0; i < clef_optimizer_tensors(opt); i++) collect(clef_optimizer_tensor(opt, i).tensor, r);
    r->offset = clef_random_get(ctx).offset;
    return clef_error_status(ctx);
}

static void compare(const char *devices) {
    const program *p = &run.p;
    for (int r = 0; r < run.ranks; r++) {
        const result *got = &run.rank[r], *one = &run.reference;
        int64_t at = 0;
        while (at < one->n && !memcmp(&got->value[at], &one->value[at], sizeof(float))) at++;
        if (got->n != one->n || !one->n || at < one->n)
            COMPLAIN("seed %llu, net %d, %d parts, rank %d of \"%s\": value %lld of %lld is %a, not %a",
                     (unsigned long long)p->seed, p->net, p->parts, r, devices, (long long)at, (long long)one->n,
                     (double)got->value[at], (double)one->value[at]);
        if (got->offset != one->offset)
            COMPLAIN("seed %llu, rank %d of \"%s\" drew other random numbers", (unsigned long long)p->seed, r, devices);
    }
}

static bool run_on(const char *devices, int sum_units, result *into) {
    clef_ranks_options options = {.context = {.no_tuning = true, .sum_units = sum_units}};
    if (clef_run_ranks_with(devices, &options, train, into) == CLEF_OK) return true;
    COMPLAIN("seed %llu on \"%s\": %s", (unsigned long long)run.p.seed, devices, clef_error(NULL));
    return false;
}

static void try_program(uint64_t seed) {
    char devices[2 * MOST_RANKS];
    run.p = random_program(seed);
    if (!run_on("0", 0, &run.reference)) return;
    for (run.ranks = 2; run.ranks <= 4 && run.ranks <= run.p.parts; run.ranks *= 2)
        if (run_on(ranks_on_one(run.ranks, devices), 0, run.rank)) compare(devices);
}

/* Halves of a device and the whole of it, where it can be divided. */
static void try_halves(uint64_t seed) {
    clef_context *halves = clef_open(&(clef_options){.device = "0/2"});
    clef_close(halves);
    run.p = random_program(seed);
    run.p.parts = 4;
    run.ranks = 2;
    if (halves && run_on("0", 3, &run.reference) && run_on("0/2", 3, run.rank)) compare("0/2");
}

/* ---- what the numbers mean ---- */

static void fill_batch(clef_context *ctx, clef_batch *b, int64_t n, int parts) {
    *b = (clef_batch){.x = clef_from_host(ctx, CLEF_SHAPE(n, 1, SIDE, SIDE), CLEF_F32, run.x),
                      .y = clef_from_host(ctx, CLEF_SHAPE(n), CLEF_I64, run.y),
                      .size = n,
                      .parts = parts};
}

static int64_t read_gradients(clef_module *net, float *to) {
    int64_t n = 0;
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_tensor *t = clef_module_tensor(net, i).tensor, *g = clef_module_tensor(net, i).is_buffer ? NULL : clef_grad_of(t);
        if (g && clef_read(g, to + n, (size_t)clef_numel(g) * sizeof *to) == CLEF_OK) n += clef_numel(g);
        clef_set_grad(t, CLEF_NONE);
    }
    return n;
}

/* LeNet in evaluation, where dropout draws nothing. */
static void check_mean_gradient(clef_context *ctx, int64_t n, int parts) {
    static float plain[MOST_VALUES], by_parts[MOST_VALUES];
    clef_batch b;
    clef_tensor *loss = NULL;
    int kind = LENET;
    clef_module *net = make_lenet(ctx);
    clef_set_training(net, false);
    fill_batch(ctx, &b, n, parts);
    clef_tensor *whole = loss_of(net, &b, &kind);
    clef_backward(whole);
    int64_t values = read_gradients(net, plain);
    clef_status status = clef_backward_parts(net, &b, loss_of, &kind, NULL, &loss);
    double off = fabs(clef_item(loss) - clef_item(whole));
    if (status || read_gradients(net, by_parts) != values)
        COMPLAIN("%lld items in %d parts: %s", (long long)n, parts, clef_error(ctx));
    for (int64_t i = 0; i < values; i++) off = fmax(off, fabs((double)plain[i] - (double)by_parts[i]));
    if (!(off <= 1e-5)) COMPLAIN("%lld items in %d parts: the mean gradient is off by %g", (long long)n, parts, off);
}

/* Running statistics of a norm of the inputs: Σ n_p/n · (0.9·old + 0.1·now_p), and one batch was tracked. */
static void check_statistics(clef_context *ctx, int64_t n, int parts) {
    clef_batch b;
    int kind = NORMS;
    float mean, var;
    clef_module *net = make_norms(ctx);
    fill_batch(ctx, &b, n, parts);
    clef_backward_parts(net, &b, loss_of, &kind, &(clef_parts_options){.parts = parts}, NULL);
    double want_mean = 0, want_var = 0;
    for (int64_t p = 0, at = 0; p < parts; p++) {
        int64_t items = n / parts + (p < n % parts), count = items * FEATURES;
        double sum = 0, squares = 0;
        for (int64_t i = at * FEATURES; i < at * FEATURES + count; i++) sum += (double)run.x[i];
        for (int64_t i = at * FEATURES; i < at * FEATURES + count; i++) squares += pow((double)run.x[i] - sum / (double)count, 2);
        if (items) want_mean += (double)items / (double)n * 0.1 * sum / (double)count;
        if (items) want_var += (double)items / (double)n * (0.9 + 0.1 * squares / (double)(count - 1));
        at += items;
    }
    clef_tensor *running[] = {clef_parameter(net, "0.running_mean"), clef_parameter(net, "0.running_var")};
    clef_read(running[0], &mean, sizeof mean), clef_read(running[1], &var, sizeof var);
    double tracked = clef_item(clef_to(clef_parameter(net, "0.num_batches_tracked"), CLEF_F64));
    if (!(fabs((double)mean - want_mean) < 1e-6 && fabs((double)var - want_var) < 1e-6) || tracked != 1)
        COMPLAIN("%lld items in %d parts: statistics %g %g of %g batches, not %g %g of 1", (long long)n, parts, (double)mean,
                 (double)var, tracked, want_mean, want_var);
}

/* A gradient of parts and one of a plain backward, in either order: both count, as means over all items. */
static clef_status mix(clef_context *ctx, clef_group *all, void *user) {
    static const int64_t items = 6;
    float *out = user, value;
    int kind = LENET;
    clef_dataset *set = clef_dataset_arrays(ctx, run.x, CLEF_SHAPE(1, SIDE, SIDE), run.y, items);
    clef_loader *data = clef_loader_open(set, &(clef_loader_options){.batch = items, .group = all, .parts = 4});
    clef_module *net = make_lenet(ctx);
    clef_replicate(net, all);
    clef_set_training(net, false);
    clef_optimizer *opt = clef_sgd(net, &(clef_sgd_options){.lr = 1, .group = all});
    clef_tensor *w = clef_parameter(net, "10.bias");
    for (int turn = 0; turn < 3; turn++) {
        clef_batch b;
        if (!clef_next(data, &b) && !clef_next(data, &b)) break;
        if (turn == 1) clef_backward(loss_of(net, &b, &kind));
        clef_backward_parts(net, &b, loss_of, &kind, &(clef_parts_options){.group = all}, NULL);
        if (turn == 2) clef_backward(loss_of(net, &b, &kind));
        clef_tensor *g = clef_grad_of(w);
        if (clef_read(clef_slice(g, 0, 0, 1, 1), &value, sizeof value) == CLEF_OK && !clef_group_rank(all)) out[turn] = value;
        for (int i = 0; i < clef_module_tensors(net); i++) clef_set_grad(clef_module_tensor(net, i).tensor, CLEF_NONE);
        clef_step(opt);
    }
    return clef_error_status(ctx);
}

static void check_mixing(void) {
    float g[3] = {0};
    if (clef_run_ranks("0,0", mix, g) != CLEF_OK) COMPLAIN("mixing: %s", clef_error(NULL));
    for (int turn = 1; turn < 3; turn++)
        if (g[0] == 0 || !(fabsf(g[turn] - 2 * g[0]) < 1e-6F))
            COMPLAIN("turn %d: %g is not twice %g", turn, (double)g[turn], (double)g[0]);
}

/* A dry run leaves no trace; later steps make no new plans. */
static void check_plans(clef_context *ctx) {
    clef_batch b;
    clef_plan_size size;
    int kind = NORMS;
    float mean = 1;
    clef_module *net = make_norms(ctx);
    clef_optimizer *opt = clef_sgd(net, &(clef_sgd_options){.lr = 0.1});
    fill_batch(ctx, &b, 16, 4);
    clef_set_dry_run(ctx, true);
    clef_status status = clef_backward_parts(net, &b, loss_of, &kind, NULL, NULL);
    if (status || clef_plan_memory(ctx, &size) || !size.peak_bytes) COMPLAIN("dry run: %s", clef_error(ctx));
    clef_set_dry_run(ctx, false);
    clef_read(clef_parameter(net, "0.running_mean"), &mean, sizeof mean);
    if (mean != 0) COMPLAIN("a dry run changed statistics");
    uint64_t plans = 0;
    for (int step = 0; step < 6; step++) {
        fill_batch(ctx, &b, 16, 4);
        clef_backward_parts(net, &b, loss_of, &kind, NULL, NULL);
        clef_step(opt);
        if (step == 3) plans = clef_counters_get(ctx).plans;
    }
    if (clef_counters_get(ctx).plans != plans)
        COMPLAIN("%llu new plans after three steps", (unsigned long long)(clef_counters_get(ctx).plans - plans));
}

/* ---- what is refused ---- */

static clef_tensor *no_loss(clef_module *net, const clef_batch *b, void *user) { return (void)net, (void)b, (void)user, NULL; }

static clef_tensor *fails_late(clef_module *net, const clef_batch *b, void *user) {
    return b->first == 0 ? loss_of(net, b, user) : clef_reshape(b->x, CLEF_SHAPE(1));
}

static void expect(clef_context *ctx, clef_status got, const char *text) {
    if (got == CLEF_OK || !strstr(clef_error(ctx), text)) COMPLAIN("\"%s\" where \"%s\" belongs", clef_error(ctx), text);
    clef_clear_error(ctx);
}

static void check_refusals(clef_context *ctx) {
    clef_batch b;
    int kind = NORMS;
    float mean = 1;
    clef_module *net = make_norms(ctx);
    fill_batch(ctx, &b, 8, 0);
    expect(ctx, clef_backward_parts(net, &b, loss_of, &kind, NULL, NULL), "parts is 0; it must be a power of two");
    expect(ctx, clef_backward_parts(net, &b, loss_of, &kind, &(clef_parts_options){.parts = 6}, NULL),
           "parts is 6; it must be a power of two");
    expect(ctx, clef_backward_parts(net, &b, no_loss, NULL, &(clef_parts_options){.parts = 2}, NULL), "the loss is NULL");
    expect(ctx, clef_backward_parts(net, &b, NULL, NULL, &(clef_parts_options){.parts = 2}, NULL), "the loss is NULL");
    expect(ctx, clef_backward_parts(net, &b, fails_late, &kind, &(clef_parts_options){.parts = 2}, NULL), "reshape");
    clef_read(clef_parameter(net, "0.running_mean"), &mean, sizeof mean);
    if (mean != 0 || clef_grad_of(clef_parameter(net, "1.weight"))) COMPLAIN("a failure changed a buffer or left a gradient");
    b.parts = 4;
    expect(ctx, clef_backward_parts(net, &b, loss_of, &kind, &(clef_parts_options){.parts = 2}, NULL), "another number");
    b.first = 1;
    expect(ctx, clef_backward_parts(net, &b, loss_of, &kind, NULL, NULL), "the parts of this rank are 0 to 8");
    b.first = 0, b.size = 7;
    expect(ctx, clef_backward_parts(net, &b, loss_of, &kind, NULL, NULL), "its first dimension must be the 7 items");
    clef_dataset *set = clef_digits(ctx, CLEF_TEST);
    expect(ctx, clef_loader_open(set, &(clef_loader_options){.parts = 3}) ? CLEF_OK : clef_error_status(ctx),
           "parts is 3; it must be a power of two");
}

static void check_meaning(void) {
    clef_context *ctx = clef_open(NULL);
    run.p = random_program(7);
    for (int parts = 1; parts <= 8; parts *= 2)
        for (int64_t n = 3; n <= 32; n += 13) {
            check_mean_gradient(ctx, n, parts);
            check_statistics(ctx, n, parts);
        }
    if (clef_error_status(ctx)) COMPLAIN("%s", clef_error(ctx));
    check_plans(ctx);
    check_refusals(ctx);
    clef_close(ctx);
    check_mixing();
    if (clef_open(&(clef_options){.sum_units = -1}) || !strstr(clef_error(NULL), "sum_units is -1"))
        COMPLAIN("sum_units of -1 was not refused");
}

int main(void) {
    int code;
    if (!have_device(&code)) return code;
    uint64_t first = (uint64_t)number_from_env("CLEF_SEED", 1), n = (uint64_t)cases_from_env("CLEF_CASES", 16);
    check_meaning();
    for (uint64_t seed = first; seed < first + n; seed++) try_program(seed);
    for (uint64_t seed = first; seed < first + NETS; seed++) try_halves(4 * NETS + seed);
    printf("%d complaints\n", atomic_load(&complaints));
    return atomic_load(&complaints) != 0;
}
