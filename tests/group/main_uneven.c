/* Ranks of unequal speed (support/slow_device.c, preloaded): shares of a batch that follow measured speed; parameters as one rank's, whatever the
   shares; a device that becomes slower; one that is too slow for any items; checkpoints.  And the rule alone, without devices.
   CLEF_TEST_ALL=1, on a quiet machine: the shares are near those of the speeds.
   ctest: cost=60 serial */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_DEFAULT */
#endif
#include "data/data_internal.h"
#include "ranks.h"
#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

/* ---- the rule ---- */

enum { MOST_UNITS = 64 };

static double slowest(const int64_t *cost, const int64_t *items, int n) {
    double most = 0;
    for (int r = 0; r < n; r++) most = fmax(most, (double)cost[r] * (double)items[r]);
    return most;
}

/* No other shares in whole steps are done earlier: of three ranks, all are tried. */
static void division_is_best(uint64_t seed) {
    uint64_t s = seed;
    int64_t cost[3], items[3], other[3], size = 1 + random_below(&s, 47), step = size / 48 ? size / 48 : 1;
    for (int r = 0; r < 3; r++) cost[r] = 1 + random_below(&s, random_below(&s, 2) ? 10 : 100000);
    clef__balance_divide(cost, 3, size, items);
    if (items[0] + items[1] + items[2] != size)
        COMPLAIN("seed %llu: the items of %lld get lost", (unsigned long long)seed, (long long)size);
    for (other[0] = 0; other[0] <= size; other[0] += step)
        for (other[1] = 0; other[0] + other[1] <= size; other[1] += step) {
            other[2] = size - other[0] - other[1];
            if (slowest(cost, other, 3) < slowest(cost, items, 3))
                COMPLAIN("seed %llu: %lld:%lld:%lld is faster", (unsigned long long)seed, (long long)other[0], (long long)other[1],
                         (long long)other[2]);
        }
}

/* Ranks whose step takes a + b·n; measured with some noise.  The shares end where the slowest is near the best there is, after few changes. */
static void search_ends(uint64_t seed) {
    uint64_t s = seed;
    int n = 2 + random_below(&s, 3), rounds = 0, changes = 0;
    int64_t size = 64 + random_below(&s, 400), fixed[4], each[4];
    clef__balance b;
    clef__speed speed[4];
    if (!clef__balance_open(&b, n, size)) abort();
    for (int r = 0; r < n; r++) fixed[r] = random_below(&s, 100000), each[r] = 1000 + random_below(&s, 20000);
    for (; !b.fixed && rounds < 40; rounds++) {
        for (int r = 0; r < n; r++) {
            int64_t exact = fixed[r] + each[r] * b.items[r];
            speed[r] = (clef__speed){b.items[r], exact + exact * (random_below(&s, 41) - 20) / 1000};
        }
        if (!clef__balance_learn(&b, speed)) continue;
        changes++;
        memcpy(b.items, b.next, (size_t)n * sizeof *b.items);
    }
    double most = 0, mean = 0;
    for (int r = 0; r < n; r++) most = fmax(most, (double)(fixed[r] + each[r] * b.items[r]));
    for (int r = 0; r < n; r++) mean += (double)(fixed[r] + each[r] * b.items[r]) / n;
    if (!b.fixed || changes > 8) COMPLAIN("seed %llu: %d rounds, %d changes, no end", (unsigned long long)seed, rounds, changes);
    int64_t sum = 0;
    for (int r = 0; r < n; r++) sum += b.items[r];
    if (sum != size) COMPLAIN("seed %llu: %lld items of %lld", (unsigned long long)seed, (long long)sum, (long long)size);
    if (most > 1.3 * mean) COMPLAIN("seed %llu: the slowest takes %g times the mean", (unsigned long long)seed, most / mean);
    clef__balance_close(&b);
}

/* ---- training ---- */

enum { ITEMS = 512, SIDE = 32, FEATURES = SIDE * SIDE, CHANNELS = 16, CLASSES = 8, BATCH = 64, MOST_VALUES = 65536 };

typedef struct setting {
    int ranks, steps, accumulate;
    int64_t every;
    int slower_at; /* step after which rank `slower` takes `factor` times as long; 0: never */
    int slower;
    double factor;
    bool equal;         /* no shares_auto: the reference */
    const char *path;   /* checkpoint to write at the end, or */
    const char *resume; /* to begin with */
} setting;

typedef struct outcome {
    float value[MOST_VALUES];
    int64_t n, share[MOST_RANKS], first[MOST_RANKS], at_slower[MOST_RANKS], sizes;
    bool fixed, lost;
} outcome;

static setting s;
static outcome result[MOST_RANKS], control[MOST_RANKS], reference;
static void (*slow)(int number, double factor);

static clef_dataset *make_data(clef_context *ctx) {
    static float x[ITEMS * FEATURES];
    static int64_t y[ITEMS];
    static atomic_int made;
    if (!atomic_exchange(&made, 1))
        for (int i = 0; i < ITEMS * FEATURES; i++) x[i] = (float)((int64_t)i * 7919 % 1013) / 507 - 1;
    for (int i = 0; i < ITEMS; i++) y[i] = i * 31 % CLASSES;
    return clef_dataset_arrays(ctx, x, CLEF_SHAPE(1, SIDE, SIDE), y, ITEMS);
}

/* Smooth throughout: with a max pool, sums in another order could take the gradient to another pixel. */
static clef_module *make_net(clef_context *ctx) {
    clef_nn_conv2d_options same = {.conv.padding = {1, 1}};
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, CHANNELS, 3, &same), clef_nn_tanh(ctx),
                                            clef_nn_conv2d(ctx, CHANNELS, CHANNELS, 3, &same), clef_nn_tanh(ctx),
                                            clef_nn_avg_pool2d(ctx, 2, NULL), clef_nn_dropout(ctx, 0.2), clef_nn_flatten(ctx),
                                            clef_nn_linear(ctx, CHANNELS * SIDE * SIDE / 4, CLASSES, NULL)));
}

static void read_parameters(clef_module *net, outcome *out) {
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_named_tensor t = clef_module_tensor(net, i);
        if (out->n + clef_numel(t.tensor) > MOST_VALUES) abort();
        clef_read(t.tensor, out->value + out->n, (size_t)clef_numel(t.tensor) * sizeof(float));
        out->n += clef_numel(t.tensor);
    }
}

/* Counts the sizes of batches, which are to be few, and whether the ranks have all items. */
static void note_batch(outcome *out, const clef_batch *b, clef_loader *data, int step) {
    int64_t share[MOST_RANKS] = {0}, sum = 0;
    int n = clef_loader_shares(data, share, MOST_RANKS);
    for (int r = 0; r < n; r++) sum += share[r];
    if (n && (sum != BATCH || b->all != BATCH)) out->lost = true;
    if (memcmp(out->share, share, sizeof share) != 0) out->sizes++;
    memcpy(out->share, share, sizeof share);
    if (step == 0) memcpy(out->first, share, sizeof share);
}

static clef_status train(clef_context *ctx, clef_group *all, void *user) {
    int rank = clef_group_rank(all), step = 0;
    outcome *out = (outcome *)user + rank;
    clef_module *net = make_net(ctx);
    clef_replicate(net, all);
    clef_optimizer *opt = clef_sgd(net, &(clef_sgd_options){.lr = 0.05, .group = all});
    clef_loader *data = clef_loader_open(make_data(ctx), &(clef_loader_options){.batch = BATCH,
                                                                                .shuffle = true,
                                                                                .seed = 3,
                                                                                .group = all,
                                                                                .shares_auto = !s.equal && all,
                                                                                .rebalance_every = s.equal ? 0 : s.every});
    clef_checkpoint state = {.module = net, .optimizer = opt, .loader = data, .group = all};
    if (s.resume && clef_checkpoint_load(ctx, s.resume, &state)) return clef_error_status(ctx);
    while (step < s.steps && clef_error_status(ctx) == CLEF_OK)
        for (clef_batch b; step < s.steps && clef_next(data, &b); step++) {
            note_batch(out, &b, data, step);
            clef_tensor *loss = clef_cross_entropy(clef_forward(net, b.x), b.y, NULL);
            clef_backward(clef_mul_scalar(loss, 1.0 / s.accumulate));
            if ((step + 1) % s.accumulate == 0) clef_step(opt);
            if (step + 1 == s.slower_at) {
                memcpy(out->at_slower, out->share, sizeof out->share);
                clef_group_barrier(all);
                if (rank == 0) slow(s.slower, s.factor);
            }
        }
    out->fixed = clef_loader_shares_fixed(data);
    if (s.path) clef_checkpoint_save(ctx, s.path, &state);
    read_parameters(net, out);
    return clef_error_status(ctx);
}

static void run(setting setting, const char *devices, outcome *out) {
    s = setting;
    memset(out, 0, sizeof *out * (size_t)(devices[1] ? s.ranks : 1));
    if (clef_run_ranks(devices, train, out) != CLEF_OK) COMPLAIN("%s: %s", devices, clef_error(NULL));
}

static double difference(const outcome *a, const outcome *b) {
    double most = 0;
    for (int64_t i = 0; i < a->n; i++) most = fmax(most, fabs((double)a->value[i] - (double)b->value[i]));
    return most;
}

/* Sums go in another order, and steps make the difference grow: with other shares no more than with equal ones, but for chance. */
static void compare_with_one(const char *what) {
    const setting was = s;
    setting equal = s;
    equal.equal = true;
    equal.slower_at = 0;
    equal.path = equal.resume = NULL;
    run(equal, "0", &reference);
    run(equal, "0,0", control);
    s = was;
    double shared = difference(&reference, &result[0]), usual = difference(&reference, &control[0]);
    printf("    parameters differ from those of one rank by %.2g, with equal shares by %.2g\n", shared, usual);
    if (!(shared <= 20 * usual + 1e-6)) COMPLAIN("%s: parameters differ by %g from those of one rank", what, shared);
    for (int r = 1; r < s.ranks; r++)
        if (memcmp(result[0].value, result[r].value, sizeof result[0].value) != 0)
            COMPLAIN("%s: rank %d ends with others", what, r);
    for (int r = 0; r < s.ranks; r++) {
        if (result[r].lost) COMPLAIN("%s: rank %d's batches are not whole", what, r);
        if (memcmp(result[0].share, result[r].share, sizeof result[0].share) != 0)
            COMPLAIN("%s: rank %d has other shares", what, r);
    }
}

static void print_shares(const char *what, const int64_t *share) {
    printf("%-28s", what);
    for (int r = 0; r < s.ranks; r++) printf("%s%lld", r ? ":" : " ", (long long)share[r]);
    printf("  %lld sizes\n", (long long)result[0].sizes);
}

static double speed_ratio(const int64_t *share, int fast, int other) { return (double)share[fast] / (double)share[other]; }

/* Other programs can make a device slow, too: how near it comes is looked at with CLEF_TEST_ALL=1, on a machine that has nothing else to do. */
static bool is_near(double x, double wanted) {
    if (!number_from_env("CLEF_TEST_ALL", 0)) return wanted == 1 || x > 1;
    return x > wanted / 1.3 && x < wanted * 1.3;
}

static void expect_ratio(const char *what, const int64_t *share, int fast, int other, double wanted) {
    print_shares(what, share);
    if (!is_near(speed_ratio(share, fast, other), wanted))
        COMPLAIN("%s: ratio %g, not %g", what, speed_ratio(share, fast, other), wanted);
    if (result[0].sizes > 20) COMPLAIN("%s: %lld sizes", what, (long long)result[0].sizes);
}

static void all_of_it(void) {
    char path[128];
    snprintf(path, sizeof path, "/tmp/clef_uneven_%ld.ckpt", (long)getpid());
    slow(1, 3);
    run((setting){.ranks = 2, .steps = 80, .accumulate = 1, .path = path}, "0/2", result);
    expect_ratio("three times as slow", result[0].share, 0, 1, 3);
    if (!result[0].fixed) COMPLAIN("after %d steps shares are still looked for", s.steps);
    compare_with_one("three times as slow");
    int64_t found[MOST_RANKS];
    memcpy(found, result[0].share, sizeof found);

    run((setting){.ranks = 2, .steps = 4, .accumulate = 1, .resume = path}, "0/2", result);
    print_shares("resumed", result[0].first);
    if (memcmp(found, result[0].first, sizeof found) != 0 || !result[0].fixed) COMPLAIN("a resumed run has other shares");
    run((setting){.ranks = 3, .steps = 2, .accumulate = 1, .resume = path}, "0/2,0", result);
    if (result[0].fixed || result[0].first[0] != 22) COMPLAIN("with another number of ranks shares are not looked for anew");
    remove(path);

    slow(1, 1);
    run((setting){.ranks = 2, .steps = 120, .accumulate = 2, .every = 5, .slower_at = 60, .slower = 1, .factor = 4}, "0/2", result);
    print_shares("equally fast, by two batches", result[0].at_slower);
    if (!is_near(speed_ratio(result[0].at_slower, 0, 1), 1)) COMPLAIN("equal devices have unequal shares");
    expect_ratio("then four times as slow", result[0].share, 0, 1, 4);
    compare_with_one("becomes slower");

    slow(1, 100);
    run((setting){.ranks = 2, .steps = 30, .accumulate = 1}, "0/2", result);
    print_shares("100 times as slow", result[0].share);
    if (result[0].share[1] != 0) COMPLAIN("a device that is far too slow has items");
    compare_with_one("100 times as slow");
    slow(1, 1);
}

/* What cannot be. */
static clef_status refused(clef_context *ctx, clef_group *all, void *user) {
    const clef_loader_options *given = user;
    clef_loader_options o = *given;
    o.group = all;
    return clef_loader_open(make_data(ctx), &o) ? CLEF_OK : clef_error_status(ctx);
}

static void expect_refusal(clef_loader_options o, const char *says) {
    clef_status status = clef_run_ranks("0,0", refused, &o);
    if (status != CLEF_INVALID || !strstr(clef_error(NULL), says)) COMPLAIN("\"%s\" and not \"%s\"", clef_error(NULL), says);
}

static clef_status sets(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    clef_loader *data = clef_loader_open(make_data(ctx), &(clef_loader_options){.batch = 10, .group = all});
    int64_t share[3] = {0}, wanted[] = {0, 7};
    clef_batch b;
    if (!clef_loader_shares_fixed(data) || clef_loader_shares(data, share, 3) != 2 || share[0] != 5) COMPLAIN("equal shares");
    if (clef_loader_set_shares(data, wanted, 2) != CLEF_OK || !clef_next(data, &b) || b.size != 10 * clef_group_rank(all))
        COMPLAIN("shares that are set");
    wanted[0] = -1;
    if (clef_loader_set_shares(data, wanted, 2) != CLEF_INVALID) COMPLAIN("a share below 0");
    clef_clear_error(ctx);
    wanted[0] = wanted[1] = 0;
    if (clef_loader_set_shares(data, wanted, 2) != CLEF_INVALID) COMPLAIN("no shares at all");
    clef_clear_error(ctx);
    if (clef_loader_set_shares(data, share, 3) != CLEF_INVALID) COMPLAIN("another number of shares");
    clef_clear_error(ctx);
    return CLEF_OK;
}

int main(void) {
    int code;
    for (uint64_t seed = 0; seed < 300; seed++) division_is_best(seed), search_ends(seed);
    if (!have_device(&code)) return atomic_load(&complaints) ? 1 : code;
    int64_t two[] = {1, 1};
    expect_refusal((clef_loader_options){.shares_auto = true, .shares = two}, "given or found by shares_auto");
    expect_refusal((clef_loader_options){.shares_auto = true, .parts = 2}, "parts of a batch are equally large");
    expect_refusal((clef_loader_options){.rebalance_every = 2}, "set shares_auto");
    expect_refusal((clef_loader_options){.shares_auto = true, .rebalance_every = -1}, "rebalance_every is a number");
    if (clef_run_ranks("0,0", sets, NULL) != CLEF_OK) COMPLAIN("%s", clef_error(NULL));
    void *symbol = dlsym(RTLD_DEFAULT, "test_slow_device");
    memcpy(&slow, &symbol, sizeof slow);
    clef_context *half = clef_open(&(clef_options){.device = "0/2"});
    clef_close(half);
    let_go(); /* the layer counts devices anew when all queues are gone */
    if (slow && half) all_of_it();
    printf("%d complaints\n", atomic_load(&complaints));
    return atomic_load(&complaints) != 0;
}
