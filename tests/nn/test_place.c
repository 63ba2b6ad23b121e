/* Nets over several devices: sequentials that are placed by hand and by clef_place_auto, and the cut of a chain against all cuts there
   are.  Here a CPU in two halves is two devices.
   ctest: cost=30 apart plain */
#include "nn/chain.h"
#include "support/device.h"

/* ---- the chain: whole numbers, so that sums are exact ---- */

enum { CHAINS = 600, MOST_UNITS = 8, MOST_DEVICES = 4 };

typedef struct random_chain {
    clef__chain chain;
    double seconds[MOST_UNITS * MOST_DEVICES], bytes[MOST_UNITS], work[MOST_UNITS], border[MOST_UNITS], limit[MOST_DEVICES];
} random_chain;

static uint64_t state;
static int dice(int n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)(state >> 33) % n;
}

static void throw_chain(random_chain *r) {
    clef__chain *c = &r->chain;
    *r = (random_chain){.chain = {.units = 1 + dice(MOST_UNITS), .devices = 1 + dice(MOST_DEVICES), .transfer = 1}};
    for (int i = 0; i < c->units * c->devices; i++) r->seconds[i] = dice(20);
    for (int u = 0; u < c->units; u++) r->bytes[u] = dice(10), r->work[u] = dice(10), r->border[u] = dice(6);
    for (int d = 0; d < c->devices; d++) r->limit[d] = dice(3) ? 10 + dice(40) : 1000;
    c->home = dice(c->devices + 1) - 1;
    c->both_ways = dice(2);
    c->parts = dice(3) ? dice(6) : 0;
    c->seconds = r->seconds, c->bytes = r->bytes, c->work = r->work, c->border = r->border, c->limit = r->limit;
}

/* What units begin … end - 1 take on device d; false if it has no room for them. */
static bool price(const clef__chain *c, int d, int begin, int end, double *seconds) {
    double bytes = 0, work = 0;
    *seconds = 0;
    for (int u = begin; u < end; u++) {
        *seconds += c->seconds[u * c->devices + d];
        bytes += c->bytes[u];
        work = c->work[u] > work ? c->work[u] : work;
    }
    if (begin == end) return true;
    if (begin > 0 || c->home != d) *seconds += c->border[begin];
    if (c->both_ways && end < c->units) *seconds += c->border[end];
    return bytes + work + c->border[begin] <= c->limit[d];
}

typedef struct cost {
    double whole, sum;
} cost;

static bool is_less(cost a, cost b) { return a.whole < b.whole || (a.whole == b.whole && a.sum < b.sum); }

/* Of a whole cut; infinite if it does not fit. */
static cost cost_of(const clef__chain *c, const int *end) {
    double sum = 0, most = 0, seconds;
    for (int d = 0; d < c->devices; d++) {
        if (!price(c, d, d ? end[d - 1] : 0, end[d], &seconds)) return (cost){INFINITY, INFINITY};
        sum += seconds;
        most = seconds > most ? seconds : most;
    }
    return (cost){c->parts ? (sum + (c->parts - 1) * most) / c->parts : most, sum};
}

/* The least of all cuts that begin with end[0 … d - 1]. */
static cost least(const clef__chain *c, int *end, int d) {
    cost best = {INFINITY, INFINITY};
    int from = d ? end[d - 1] : 0;
    for (end[d] = d == c->devices - 1 ? c->units : from; end[d] <= c->units; end[d]++) {
        cost here = d == c->devices - 1 ? cost_of(c, end) : least(c, end, d + 1);
        if (is_less(here, best)) best = here;
    }
    return best;
}

Test(chain, is_cut_as_well_as_by_trying_all) {
    int unfit = 0, empty = 0;
    for (int i = 0; i < CHAINS; i++) {
        random_chain r;
        int end[MOST_DEVICES], scratch[MOST_DEVICES];
        throw_chain(&r);
        cost wanted = least(&r.chain, scratch, 0);
        clef__cut cut = clef__chain_cut(&r.chain, end);
        cr_assert_eq(cut, isinf(wanted.whole) ? CLEF__NONE_FITS : CLEF__CUT, "chain %d", i);
        unfit += cut == CLEF__NONE_FITS;
        if (cut != CLEF__CUT) continue;
        cr_assert_eq(end[r.chain.devices - 1], r.chain.units);
        for (int d = 1; d < r.chain.devices; d++) empty += end[d] == end[d - 1];
        cost got = cost_of(&r.chain, end);
        cr_assert_eq(got.whole, wanted.whole, "chain %d: %g instead of %g", i, got.whole, wanted.whole);
        if (!r.chain.parts) cr_assert_eq(got.sum, wanted.sum, "chain %d: sum %g instead of %g", i, got.sum, wanted.sum);
    }
    cr_expect(unfit > CHAINS / 50 && unfit < CHAINS / 2 && empty > CHAINS / 10, "%d do not fit, %d devices are empty", unfit,
              empty);
}

Test(chain, of_equal_units_is_cut_in_equal_runs) {
    double seconds[40 * 4], none[40] = {0}, limit[4] = {1, 1, 1, 1};
    int end[4];
    for (int i = 0; i < 40 * 4; i++) seconds[i] = 1;
    clef__chain c = {40, 4, seconds, none, none, none, limit, .transfer = 1};
    cr_assert_eq(clef__chain_cut(&c, end), CLEF__CUT);
    for (int d = 0; d < 4; d++) cr_expect_eq(end[d], 10 * (d + 1));
}

/* ---- nets ---- */

enum { BATCH = 8, STEPS = 3, SIDE = 8, CHANNELS = 4, CLASSES = 10, LAYERS = 11 };

static clef_context *ctx;

static void open_halves(void) {
    ctx = clef_open(&(clef_options){.device = "0/2", .seed = 3});
    if (!ctx) cr_skip_test("no device in two halves here: %s", clef_error(NULL));
}
static void open_one(void) { ctx = open_seeded(3); }
static void close_context(void) {
    if (ctx) close_clean(ctx);
}
TestSuite(placed, .init = open_halves, .fini = close_context, .timeout = 300);
TestSuite(alone, .init = open_one, .fini = close_context, .timeout = 300);

static clef_module *conv(int64_t in, int64_t out) {
    return clef_nn_conv2d(ctx, in, out, 3, &(clef_nn_conv2d_options){.conv.padding = {1, 1}});
}

/* Sequentials in sequentials, layers without parameters at the start of each, a block that recomputes: 11 layers. */
static clef_module *new_net(void) {
    clef_module *block = clef_nn_residual(
        ctx, clef_sequential(ctx, CLEF_LAYERS(conv(CHANNELS, CHANNELS), clef_nn_batch_norm2d(ctx, CHANNELS, NULL))), NULL, true);
    clef_recompute(block, true);
    clef_module *features =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_relu(ctx), conv(CHANNELS, CHANNELS), clef_nn_batch_norm2d(ctx, CHANNELS, NULL),
                                         clef_nn_relu(ctx), clef_nn_dropout(ctx, 0.3), block));
    clef_module *head =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_max_pool2d(ctx, 2, NULL), clef_nn_flatten(ctx), clef_nn_linear(ctx, 64, 32, NULL),
                                         clef_nn_linear(ctx, 32, CLASSES, NULL)));
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(conv(1, CHANNELS), features, head));
    cr_assert(net, "%s", clef_error(ctx));
    return net;
}

static clef_tensor *images(void) { return clef_zeros(ctx, CLEF_SHAPE(BATCH, 1, SIDE, SIDE), CLEF_F32); }

static int device_of(clef_module *net, const char *name) { return clef_tensor_device(clef_parameter(net, name)); }

static void place(clef_module *net, clef_place_options options, clef_placement *p) {
    options.placement = p;
    cr_assert_eq(clef_place_auto(net, images(), &options), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(p->n, clef_context_device_count(ctx));
}

/* All parameters and floating buffers one after another; for free(). */
static float *weights_of(clef_module *net, size_t *n) {
    enum { ROOM = 8192 };
    float *all = malloc(ROOM * sizeof *all);
    *n = 0;
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_tensor *t = clef_module_tensor(net, i).tensor;
        if (clef_tensor_dtype(t) != CLEF_F32) continue;
        size_t here = (size_t)clef_numel(t);
        cr_assert_leq(*n + here, ROOM);
        cr_assert_eq(clef_read(t, all + *n, here * sizeof *all), CLEF_OK, "%s", clef_error(ctx));
        *n += here;
    }
    return all;
}

static void expect_the_same(const float *got, const float *wanted, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++) cr_assert_eq(got[i], wanted[i], "%s: number %zu is %g, not %g", what, i, got[i], wanted[i]);
}

/* Some steps of Adam; the weights after them, for free(). */
static float *trained(clef_module *net, size_t *n) {
    clef_optimizer *opt = clef_adam(net, &(clef_adam_options){.lr = 0.01});
    clef_loader *loader = clef_loader_open(clef_digits(ctx, CLEF_TRAIN), &(clef_loader_options){.batch = BATCH});
    clef_batch b;
    for (int step = 0; step < STEPS && clef_next(loader, &b); step++) {
        clef_tensor *y = clef_forward(net, b.x);
        clef_backward(clef_cross_entropy(y, clef_to_device(b.y, clef_tensor_device(y)), NULL));
        cr_assert_eq(clef_step(opt), CLEF_OK, "%s", clef_error(ctx));
    }
    clef_loader_close(loader);
    return weights_of(net, n);
}

static float *trained_on_one(size_t *n) {
    clef_seed(ctx, 7);
    return trained(new_net(), n);
}

/* ---- by hand ---- */

Test(placed, by_hand_gives_the_bits_of_one_device) {
    static const char *const second[] = {"2", "1", "2.3", "1.5", "0"};
    size_t n, m;
    float *wanted = trained_on_one(&n);
    for (size_t i = 0; i < sizeof second / sizeof *second; i++) {
        clef_seed(ctx, 7);
        clef_module *net = new_net();
        cr_assert_eq(clef_module_to(clef_module_child(net, second[i]), 1), CLEF_OK, "%s", clef_error(ctx));
        float *got = trained(net, &m);
        cr_assert_eq(n, m);
        expect_the_same(got, wanted, n, second[i]);
        free(got);
    }
    free(wanted);
}

static clef_status note_device(clef_module *m, clef_tensor *const *in, int n, clef_tensor *const *out, int k, void *user) {
    (void)m, (void)in, (void)n, (void)k;
    *(int *)user = clef_tensor_device(out[0]);
    return CLEF_OK;
}

static int run_where(clef_module *net, const char *layer) {
    int device = -1;
    clef_module *m = clef_module_child(net, layer);
    int64_t id = clef_module_hook(m, &(clef_hook){.after = note_device, .user = &device});
    cr_assert(clef_forward(net, images()), "%s", clef_error(ctx));
    clef_module_unhook(m, id);
    return device;
}

Test(placed, layers_without_parameters_follow_their_input) {
    clef_module *net = new_net();
    clef_module_to(clef_module_child(net, "1.1"), 1);
    clef_module_to(clef_module_child(net, "2"), 1);
    cr_expect_eq(run_where(net, "0"), 0);
    cr_expect_eq(run_where(net, "1.0"), 0);
    cr_expect_eq(run_where(net, "1.1"), 1);
    cr_expect_eq(run_where(net, "1.2"), 0);
    cr_expect_eq(run_where(net, "1.4"), 0);
    cr_expect_eq(run_where(net, "2.0"), 0, "a sequential brings values to its own layers");
    cr_expect_eq(run_where(net, "2.1"), 0);
    cr_expect_eq(run_where(net, "2.2"), 1);
    clef_tensor *there = clef_to_device(images(), 1);
    cr_expect_eq(clef_tensor_device(clef_forward(clef_sequential(ctx, CLEF_LAYERS(clef_nn_relu(ctx))), there)), 1);
}

static clef_tensor *forward_parts(clef_module *net, clef_tensor *x, void *user) {
    cr_expect_eq(clef_tensor_device(x), *(int *)user, "its input was moved");
    for (int i = 0; i < 2; i++) {
        clef_tensor *w = clef_parameter(net, i ? "b" : "a");
        x = clef_mul(clef_to_device(x, clef_tensor_device(w)), w);
    }
    return x;
}

Test(placed, what_lies_on_several_devices_brings_values_itself) {
    int wanted = 0;
    clef_module *parts = clef_module_new(ctx, "parts", forward_parts, &wanted);
    clef_module_add_parameter(parts, "a", clef_from_host_on(ctx, 1, CLEF_SCALAR, CLEF_F32, &(float){2}));
    clef_module_add_parameter(parts, "b", clef_from_host_on(ctx, 0, CLEF_SCALAR, CLEF_F32, &(float){3}));
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_relu(ctx), parts));
    cr_expect_eq(clef_item(clef_forward(net, clef_scalar(ctx, 5))), 30, "%s", clef_error(ctx));
    clef_module_to(net, 1);
    wanted = 1;
    cr_expect_eq(clef_item(clef_forward(net, clef_scalar(ctx, 5))), 30, "%s", clef_error(ctx));
}

/* ---- by clef_place_auto ---- */

Test(placed, halves_share_the_work) {
    clef_placement p;
    size_t n, m;
    float *wanted = trained_on_one(&n);
    clef_seed(ctx, 7);
    clef_module *net = new_net();
    place(net, (clef_place_options){0}, &p);
    cr_expect(p.part[0].layers > 0 && p.part[1].layers > 0, "%d and %d layers", p.part[0].layers, p.part[1].layers);
    cr_expect_eq(p.part[0].layers + p.part[1].layers, LAYERS);
    cr_expect_str_eq(p.part[0].first, "0");
    cr_expect_str_eq(p.part[1].last, "2.3");
    cr_expect_eq(p.seconds, fmax(p.part[0].seconds, p.part[1].seconds));
    cr_expect_eq(device_of(net, "0.weight"), 0);
    cr_expect_eq(device_of(net, "2.3.weight"), 1);
    float *got = trained(net, &m);
    expect_the_same(got, wanted, n, "placed");
    free(got);
    free(wanted);
}

Test(placed, what_one_device_cannot_hold_is_cut_and_trains) {
    clef_placement p, whole;
    size_t n, m;
    float *wanted = trained_on_one(&n);
    clef_seed(ctx, 7);
    clef_module *net = new_net();
    place(net, (clef_place_options){.micro_batches = 1}, &whole);
    cr_expect(whole.part[0].layers == LAYERS && whole.part[1].layers == 0, "there is room on the first");
    uint64_t half = (uint64_t)whole.part[0].bytes * 3 / 4, memory[] = {half, half};
    cr_expect_eq(clef_place_auto(net, images(), &(clef_place_options){.devices = (int[]){1}, .n_devices = 1, .memory = memory}),
                 CLEF_MEMORY);
    cr_expect_eq(device_of(net, "0.weight"), 0, "nothing moves");
    expect_error(ctx, CLEF_MEMORY, "place_auto: the net needs");
    place(net, (clef_place_options){.memory = memory, .micro_batches = 1}, &p);
    for (int i = 0; i < 2; i++)
        cr_expect(p.part[i].layers > 0 && p.part[i].bytes <= (int64_t)half && p.part[i].memory == (int64_t)half);
    float *got = trained(net, &m);
    expect_the_same(got, wanted, n, "cut");
    free(got);
    free(wanted);
}

/* Where a run says that it lies, its parameters do. */
Test(placed, report_and_parameters_agree) {
    for (int order = 0; order < 2; order++) {
        clef_module *net = new_net();
        clef_placement p;
        place(net, (clef_place_options){.devices = order ? (int[]){1, 0} : (int[]){0, 1}, .n_devices = 2}, &p);
        for (int i = 0; i < 2; i++) {
            cr_expect_eq(p.part[i].device, i ^ order);
            cr_expect(p.part[i].layers > 0 && p.part[i].bytes > 0 && p.part[i].bytes <= p.part[i].memory && p.part[i].seconds > 0);
        }
        cr_expect_eq(device_of(net, "0.weight"), order);
        cr_expect_eq(device_of(net, "2.3.weight"), !order);
        cr_assert_eq(clef_eval(clef_forward(net, images())), CLEF_OK, "%s", clef_error(ctx));
    }
}

Test(placed, summary_tells_what_lies_where) {
    char text[4096];
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 4, 8, NULL), clef_nn_linear(ctx, 8, 2, NULL)));
    clef_module_to(clef_module_child(net, "1"), 1);
    cr_assert(clef_summary(net, CLEF_SHAPE(3, 4), text, sizeof text) > 0, "%s", clef_error(ctx));
    cr_expect(strstr(text, "device 0: parameters and buffers 160 B\ndevice 1: parameters and buffers 72 B\n"), "%s", text);
}

Test(placed, resnet_is_cut_between_its_blocks) {
    clef_module *net = clef_model_resnet18(ctx, CLEF_SHAPE(3, 32, 32), CLASSES);
    clef_placement p;
    cr_assert_eq(clef_place_auto(net, clef_zeros(ctx, CLEF_SHAPE(16, 3, 32, 32), CLEF_F32), &(clef_place_options){.placement = &p}),
                 CLEF_OK, "%s", clef_error(ctx));
    cr_expect_str_eq(p.part[0].first, "conv1");
    cr_expect_eq(strncmp(p.part[1].first, "layer", 5), 0, "%s", p.part[1].first);
    cr_expect_str_eq(p.part[1].last, "fc");
    double first = p.part[0].seconds, second = p.part[1].seconds;
    cr_expect(first < 1.5 * second && second < 1.5 * first, "%g and %g s", first, second);
}

Test(placed, layers_that_share_a_tensor_stay_together) {
    clef_module *shared = clef_nn_linear(ctx, 64, 64, NULL);
    clef_module *net =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, 64, 64, NULL), shared,
                                         clef_nn_linear(ctx, 64, 64, NULL), shared, clef_nn_linear(ctx, 64, 64, NULL)));
    clef_placement p;
    place(net, (clef_place_options){0}, &p);
    cr_expect_eq(device_of(net, "2.weight"), device_of(net, "3.weight"));
    cr_expect(p.part[0].layers > 0 && p.part[1].layers > 0);
}

Test(placed, leaves_no_trace_but_the_place) {
    clef_seed(ctx, 5);
    clef_module *net = new_net();
    clef_set_training(clef_module_child(net, "1.4"), false);
    size_t n, m;
    float *before = weights_of(net, &n);
    clef_random_state random = clef_random_get(ctx);
    clef_placement p;
    place(net, (clef_place_options){0}, &p);
    place(net, (clef_place_options){.inference = true}, &p);
    cr_expect_eq(clef_random_get(ctx).offset, random.offset);
    cr_expect(clef_is_training(net) && !clef_is_training(clef_module_child(net, "1.4")), "modes");
    cr_expect(clef_grad_enabled(ctx) && !clef_set_dry_run(ctx, false));
    float *after = weights_of(net, &m);
    expect_the_same(after, before, n, "a tensor of the net");
    free(before);
    free(after);
}

/* ---- estimates ---- */

static clef_placement_part estimate(clef_place_options options, int batch) {
    static clef_module *net;
    static const clef_context *of;
    if (of != ctx) net = new_net();
    of = ctx;
    clef_placement p;
    options.placement = &p;
    options.micro_batches = 1;
    cr_assert_eq(clef_place_auto(net, clef_zeros(ctx, CLEF_SHAPE(batch, 1, SIDE, SIDE), CLEF_F32), &options), CLEF_OK, "%s",
                 clef_error(ctx));
    cr_assert_eq(p.part[0].layers, LAYERS);
    return p.part[0];
}

Test(alone, training_takes_more_than_inference_and_large_batches_more_than_small) {
    clef_placement_part train = estimate((clef_place_options){0}, BATCH), large = estimate((clef_place_options){0}, 2 * BATCH),
                        bare = estimate((clef_place_options){.optimizer_states = -1}, BATCH),
                        momentum = estimate((clef_place_options){.optimizer_states = 1}, BATCH),
                        inference = estimate((clef_place_options){.inference = true}, BATCH);
    int64_t parameters = 4 * clef_parameter_count(new_net());
    cr_expect_eq(train.bytes - momentum.bytes, parameters);
    cr_expect_eq(momentum.bytes - bare.bytes, parameters);
    cr_expect(inference.bytes > parameters && inference.bytes < bare.bytes && inference.seconds < train.seconds);
    cr_expect(large.bytes > train.bytes && large.seconds > train.seconds);
}

static int64_t bytes_of(clef_module *net) {
    clef_placement p;
    place(net, (clef_place_options){0}, &p);
    return p.part[0].bytes;
}

/* The inside of a block that recomputes does not stay. */
Test(alone, recomputing_takes_less) {
    enum { BLOCKS = 6 };
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(conv(1, 8))), *block[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        block[i] = clef_sequential(ctx, CLEF_LAYERS(conv(8, 8), clef_nn_relu(ctx), conv(8, 8), clef_nn_relu(ctx), conv(8, 8)));
        clef_module_add(net, (char[]){(char)('1' + i), 0}, block[i]);
    }
    int64_t kept = bytes_of(net);
    for (int i = 0; i < BLOCKS; i++) clef_recompute(block[i], true);
    cr_expect_lt(bytes_of(net), kept);
}

/* What a whole step takes, by its plan.  Its results are parameters and states, which take no new memory from the second step on. */
static double planned(clef_module *net, clef_tensor *x) {
    clef_tensor *classes = clef_zeros(ctx, CLEF_SHAPE(clef_tensor_shape(x).dim[0]), CLEF_I64);
    clef_optimizer *opt = clef_adam(net, NULL);
    clef_plan_size size;
    for (int i = 0; i < clef_module_tensors(net); i++) clef_eval(clef_module_tensor(net, i).tensor);
    clef_set_dry_run(ctx, true);
    cr_assert_eq(clef_backward(clef_cross_entropy(clef_forward(net, x), classes, NULL)), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(clef_step(opt), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(clef_plan_memory(ctx, &size), CLEF_OK, "%s", clef_error(ctx));
    clef_set_dry_run(ctx, false);
    return (double)(size.peak_bytes - size.result_bytes);
}

/* Blocks as in residual nets, one behind the other. */
static clef_module *blocks(void) {
    enum { BLOCKS = 4 };
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(conv(1, 16)));
    for (int i = 0; i < BLOCKS; i++) {
        clef_module *body = clef_sequential(ctx, CLEF_LAYERS(conv(16, 16), clef_nn_batch_norm2d(ctx, 16, NULL), clef_nn_relu(ctx),
                                                             conv(16, 16), clef_nn_batch_norm2d(ctx, 16, NULL)));
        clef_module_add(net, (char[]){(char)('1' + i), 0}, clef_nn_residual(ctx, body, NULL, true));
    }
    clef_module_add(net, "pool", clef_nn_global_avg_pool2d(ctx));
    clef_module_add(net, "fc", clef_nn_linear(ctx, 16, CLASSES, NULL));
    return net;
}

Test(alone, estimate_is_near_the_plan) {
    enum { NETS = 4 };
    clef_module *net[NETS] = {clef_model_cnn(ctx, CLEF_SHAPE(1, 28, 28), CLASSES),
                              clef_model_mlp(ctx, CLEF_SHAPE(1, 28, 28), CLASSES),
                              clef_model_lenet(ctx, CLEF_SHAPE(1, 28, 28), CLASSES), blocks()};
    for (int i = 0; i < NETS; i++) {
        clef_tensor *x = clef_zeros(ctx, CLEF_SHAPE(64, 1, 28, 28), CLEF_F32);
        clef_placement p;
        cr_assert_eq(clef_place_auto(net[i], x, &(clef_place_options){.placement = &p}), CLEF_OK, "%s", clef_error(ctx));
        double plan = planned(net[i], x), ratio = (double)p.part[0].bytes / plan;
        cr_expect(ratio > 0.5 && ratio < 2, "net %d: %.0f KiB estimated, %.0f KiB by the plan", i, (double)p.part[0].bytes / 1024,
                  plan / 1024);
    }
}

/* ---- one device ---- */

Test(alone, nothing_is_moved_and_nothing_computed) {
    clef_module *net = new_net();
    clef_set_training(net, false);
    static char before[1 << 16];
    strcpy(before, plan_text(clef_forward(net, images())));
    uint64_t launches = clef_counters_get(ctx).launches;
    clef_placement p;
    place(net, (clef_place_options){0}, &p);
    cr_expect_eq(p.part[0].layers, LAYERS);
    if (!getenv("CLEF_EAGER")) cr_expect_eq(clef_counters_get(ctx).launches, launches);
    const char *after = plan_text(clef_forward(net, images()));
    cr_expect(!strstr(after, "transfer"), "%s", after);
    cr_expect_str_eq(after, before);
}

/* ---- errors ---- */

#define REFUSED(status, part, ...)                               \
    do {                                                         \
        cr_expect_eq(clef_place_auto(__VA_ARGS__), status);      \
        expect_error(ctx, status, part);                         \
        cr_expect_eq(device_of(net, "0.weight"), 0, "it moved"); \
    } while (0)

Test(placed, what_cannot_be_done_is_refused_and_nothing_moves) {
    clef_module *net = new_net(), *block = clef_module_child(net, "1.5");
    clef_tensor *x = images();
    clef_placement p = {.n = 7};
    REFUSED(CLEF_INVALID, "the residual has a forward of its own", block, x, NULL);
    REFUSED(CLEF_INVALID, "no parameters", clef_sequential(ctx, CLEF_LAYERS(clef_nn_relu(ctx))), x, NULL);
    REFUSED(CLEF_INVALID, "no parameters", clef_sequential(ctx, NULL, 0), x, NULL);
    REFUSED(CLEF_INVALID, "device 2 of 2", net, x, &(clef_place_options){.devices = (int[]){0, 2}, .n_devices = 2});
    REFUSED(CLEF_INVALID, "device -1 of 2", net, x, &(clef_place_options){.devices = (int[]){-1}, .n_devices = 1});
    REFUSED(CLEF_INVALID, "listed twice", net, x, &(clef_place_options){.devices = (int[]){1, 1}, .n_devices = 2});
    REFUSED(CLEF_INVALID, "n_devices is 3", net, x, &(clef_place_options){.devices = (int[]){0, 1, 0}, .n_devices = 3});
    REFUSED(CLEF_INVALID, "n_devices is 0", net, x, &(clef_place_options){.devices = (int[]){0}});
    REFUSED(CLEF_INVALID, "micro_batches is -1", net, x, &(clef_place_options){.micro_batches = -1});
    REFUSED(CLEF_INVALID, "transfer_gb_per_second", net, x, &(clef_place_options){.transfer_gb_per_second = NAN});
    REFUSED(CLEF_INVALID, "input", net, CLEF_NONE, NULL);
    REFUSED(CLEF_SHAPE, "conv2d", net, clef_zeros(ctx, CLEF_SHAPE(2, 3, SIDE, SIDE), CLEF_F32),
            &(clef_place_options){.placement = &p});
    cr_expect_eq(p.n, 0);
    cr_expect_eq(clef_place_auto(NULL, x, NULL), CLEF_INVALID);
    cr_expect_eq(clef_error_status(ctx), CLEF_OK);
    clef_context *other = clef_open(NULL);
    REFUSED(CLEF_INVALID, "another context", net, clef_zeros(other, CLEF_SHAPE(1), CLEF_F32), NULL);
    clef_close(other);
}

Test(placed, what_does_not_fit_is_named) {
    clef_module *net = new_net();
    uint64_t small[] = {9000, 9000}, uneven[] = {1000, 100000};
    REFUSED(CLEF_MEMORY, "in training, but device 0 has 8.8 KiB, device 1 has 8.8 KiB; layer ", net, images(),
            &(clef_place_options){.memory = small});
    REFUSED(CLEF_MEMORY, "in inference, but device 0 has 1000 B, device 1 has 9", net, images(),
            &(clef_place_options){.memory = (uint64_t[]){1000, 10000}, .inference = true});
    cr_assert_eq(clef_place_auto(net, images(), &(clef_place_options){.memory = uneven, .inference = true}), CLEF_OK, "%s",
                 clef_error(ctx));
    cr_expect_eq(device_of(net, "0.weight"), 1, "the first has no room for any layer");
}
