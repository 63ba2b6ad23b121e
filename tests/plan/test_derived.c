/* What is packed from weights stays while they do not change: fewer launches, the same bits, and never an old value.
   ctest: cost=20 together */
#include "runtime/runtime_internal.h"
#include "clef/opencl.h"
#include "support/device.h"

enum { ROWS = 20, DEPTH = 96, COLUMNS = 48, REPEATS = 5 };
static clef_context *ctx, *fresh; /* fresh: weights are made anew for each call, so that nothing stays */

static void close_both(void) {
    close_clean(ctx);
    close_clean(fresh);
}
static void open_both(void) {
    ctx = open_seeded(1);
    fresh = open_seeded(1);
}
static void open_with_exact_buffers(void) {
    ctx = open_or_skip(&(clef_options){.seed = 1, .debug_memory = true});
    fresh = open_seeded(1);
}
TestSuite(derived, .init = open_both, .fini = close_both);
TestSuite(derived_debug, .init = open_with_exact_buffers, .fini = close_both);

/* One layer: what it computes, and how its input and its weights look. */
typedef struct layer {
    clef_tensor *(*run)(clef_tensor *x, clef_tensor *w);
    clef_shape x, w;
    clef_dtype dtype;
} layer;

static clef_tensor *multiply(clef_tensor *x, clef_tensor *w) { return clef_linear(x, w, CLEF_NONE); }
static clef_tensor *convolve(clef_tensor *x, clef_tensor *w) {
    return clef_conv2d(x, w, CLEF_NONE, &(clef_conv2d_options){.padding = {1, 1}});
}

static clef_tensor *from_right(clef_tensor *x, clef_tensor *w) { return clef_matmul(x, w); }
static clef_tensor *from_left(clef_tensor *x, clef_tensor *w) { return clef_matmul(w, x); }

static const layer linear = {multiply, {2, {ROWS, DEPTH}}, {2, {COLUMNS, DEPTH}}, CLEF_F32};
static const layer half_linear = {multiply, {2, {ROWS, DEPTH}}, {2, {COLUMNS, DEPTH}}, CLEF_F16};
static const layer from_few_rows = {from_right, {2, {ROWS, 1024}}, {2, {1024, 512}}, CLEF_F32};
static const layer half_from_left = {from_left, {2, {1024, 64}}, {2, {64, 1024}}, CLEF_F16};
static const layer convolution = {convolve, {4, {2, 32, 14, 14}}, {4, {32, 32, 3, 3}}, CLEF_F32};

static clef_tensor *made(clef_context *of, clef_shape shape, clef_dtype dtype, uint64_t salt) {
    clef_tensor *t = clef_to(noise_tensor(of, shape, salt), dtype);
    cr_assert_eq(clef_eval(t), CLEF_OK, "%s", clef_error(of));
    return t;
}

static float *answer(clef_context *of, const layer *l, clef_tensor *w, uint64_t salt) {
    float *y = values(clef_to(l->run(made(of, l->x, l->dtype, salt), w), CLEF_F32));
    clef_end_step(of);
    return y;
}

/* The answer with these weights, to the bit, whatever the plan has kept; returns how many launches it took. */
static int expect_answer(const layer *l, clef_tensor *w, uint64_t weights, uint64_t salt) {
    clef_tensor *x = made(ctx, l->x, l->dtype, salt), *y = clef_to(l->run(x, w), CLEF_F32);
    uint64_t before = clef_counters_get(ctx).launches;
    float *got = values(y), *wanted = answer(fresh, l, made(fresh, l->w, l->dtype, weights), salt);
    int launches = (int)(clef_counters_get(ctx).launches - before);
    cr_assert_eq(memcmp(got, wanted, (size_t)clef_numel(y) * sizeof *got), 0, "weights %d, call %d: other numbers", (int)weights,
                 (int)salt);
    clef_end_step(ctx);
    free(got);
    free(wanted);
    return launches;
}

/* Calls with weights that stay: each launches as much as the first until what stays is known, then less.  Returns how much less. */
static int settle(const layer *l, clef_tensor *w, uint64_t weights) {
    int launches[REPEATS];
    for (int i = 0; i < REPEATS; i++) launches[i] = expect_answer(l, w, weights, 100 + (uint64_t)i);
    cr_assert_eq(launches[1], launches[0], "the second call fills memory of its own");
    for (int i = 3; i < REPEATS; i++) cr_assert_eq(launches[i], launches[2]);
    return launches[0] - launches[2];
}

static void keep_until_assigned(const layer *l, int less) {
    clef_tensor *w = clef_keep(made(ctx, l->w, l->dtype, 1));
    cr_assert_eq(settle(l, w, 1), less);
    for (uint64_t i = 2; i < 4; i++) {
        clef_assign(w, made(ctx, l->w, l->dtype, i));
        clef_end_step(ctx);
        cr_assert_eq(settle(l, w, i), less, "after an assignment");
    }
    clef_release(w);
}

Test(derived, weights_of_a_linear_layer) { keep_until_assigned(&linear, 1); }
Test(derived, filters_transformed) { keep_until_assigned(&convolution, 1); }
Test(derived, weights_in_half_precision) { keep_until_assigned(&half_linear, 1); }
Test(derived, weights_converted) { keep_until_assigned(&half_from_left, 1); }
Test(derived_debug, weights_of_a_linear_layer) { keep_until_assigned(&linear, 1); }

/* A matrix that few rows meet is read as it lies, but for a parameter in inference: there the panels are free.  The same bits, also
   of sums that go in blocks.  Gradients are no inference. */
Test(derived, a_form_that_stays_is_chosen_as_it_is_free) {
    clef_tensor *w = clef_keep(made(ctx, from_few_rows.w, CLEF_F32, 1));
    for (int trains = 0; trains < 2; trains++)
        for (int records = 0; records < 2; records++) {
            clef_require_grad(w, trains);
            clef_set_grad_enabled(ctx, records);
            cr_assert_eq(settle(&from_few_rows, w, 1), trains && !records, "parameter %d, recorded %d", trains, records);
        }
    clef_set_grad_enabled(ctx, true);
    for (int i = 0; i < 4; i++) { /* dx = g·v reads v as it lies: one launch, where a packing would be another */
        clef_tensor *v = clef_require_grad(clef_keep(made(ctx, CLEF_SHAPE(512, 1024), CLEF_F32, 2)), true), *dx;
        clef_tensor *x = clef_require_grad(clef_keep(made(ctx, CLEF_SHAPE(ROWS, 1024), CLEF_F32, 3)), true);
        clef_tensor *y = clef_keep(clef_linear(x, v, CLEF_NONE)), *g = clef_keep(made(ctx, CLEF_SHAPE(ROWS, 512), CLEF_F32, 4));
        clef_eval(y);
        cr_assert_eq(clef_grad(y, g, &x, 1, false, &dx), CLEF_OK, "%s", clef_error(ctx));
        uint64_t before = clef_counters_get(ctx).launches;
        clef_eval(dx);
        cr_expect_eq(clef_counters_get(ctx).launches - before, 1);
        clef_release(v), clef_release(x), clef_release(y), clef_release(g);
        clef_end_step(ctx);
    }
}

/* One plan; there is room for the form of one of them, and nothing of one is read for the other. */
Test(derived, sets_of_weights_in_turn) {
    clef_tensor *w[3];
    for (uint64_t i = 0; i < 3; i++) w[i] = clef_keep(made(ctx, linear.w, CLEF_F32, i));
    int first = expect_answer(&linear, w[0], 0, 1);
    uint64_t used = 0;
    for (uint64_t i = 0; i < 12; i++) {
        cr_assert_leq(expect_answer(&linear, w[i % 3], i % 3, i), first);
        if (i == 5) used = clef_memory(ctx).used;
    }
    cr_expect_eq(clef_memory(ctx).used, used, "one form at a time");
    for (uint64_t i = 0; i < 9; i++) expect_answer(&linear, w[i / 3], i / 3, i);
}

Test(derived, memory_is_given_back) {
    clef_tensor *w = clef_keep(made(ctx, linear.w, CLEF_F32, 1));
    uint64_t packed = COLUMNS * DEPTH * sizeof(float), used[4];
    for (int i = 0; i < 4; i++) {
        if (i == 3) clef_assign(w, made(ctx, linear.w, CLEF_F32, 2)), clef_end_step(ctx);
        expect_answer(&linear, w, i < 3 ? 1 : 2, 7);
        clef_end_step(ctx);
        used[i] = clef_memory(ctx).used;
    }
    cr_expect_geq(used[1], used[0] + packed);
    cr_expect_eq(used[2], used[1]);
    cr_expect_eq(used[3], used[0]);
}

enum { BATCHES = 12 };

/* Without temporaries. */
static uint64_t used_by_what_stays(void) {
    for (int i = 0; i < 2; i++) made(ctx, CLEF_SHAPE(1), CLEF_F32, 1), clef_end_step(ctx);
    return clef_memory(ctx).used;
}

/* The window goes to the memory that the packed form was made from: the form is another then. */
Test(derived, weights_updated_in_place) {
    clef_tensor *w = clef_keep(made(ctx, linear.w, CLEF_F32, 1)), *same = clef_keep(made(fresh, linear.w, CLEF_F32, 1));
    for (int i = 0; i < 12; i++) {
        if (i % 4 == 3) {
            clef_shape rows = CLEF_SHAPE(2, DEPTH);
            cr_assert_eq(clef_assign_at(w, 0, clef_integer(ctx, i), made(ctx, rows, CLEF_F32, 50 + (uint64_t)i)), CLEF_OK);
            clef_end_step(ctx);
            clef_assign(same, clef_slice_update(same, 0, clef_integer(fresh, i), made(fresh, rows, CLEF_F32, 50 + (uint64_t)i)));
            clef_end_step(fresh);
        }
        clef_tensor *y = linear.run(made(ctx, linear.x, CLEF_F32, 7), w);
        float *got = values(y), *wanted = answer(fresh, &linear, clef_copy(same), 7);
        cr_assert_eq(memcmp(got, wanted, ROWS * COLUMNS * sizeof *got), 0, "call %d: other numbers", i);
        free(got), free(wanted);
        clef_end_step(ctx);
    }
}

/* Every batch size has a plan, but all of them read one packed weight, from their first run on. */
Test(derived, many_batch_sizes_share_one_form) {
    clef_tensor *w = clef_keep(made(ctx, linear.w, CLEF_F32, 1));
    layer l = linear;
    l.x.dim[0] = 2 * ROWS; /* the largest first, so that its arena is large enough for all */
    int less = settle(&l, w, 1);
    uint64_t used = used_by_what_stays(), plans = clef_counters_get(ctx).plans;
    for (int b = 1; b <= BATCHES; b++) {
        l.x.dim[0] = 2 * ROWS - b;
        int first = expect_answer(&l, w, 1, 1), next = expect_answer(&l, w, 1, 2);
        cr_expect_eq(first, next, "batch %d packs nothing", b);
        cr_expect_eq(used_by_what_stays(), used, "batch %d", b);
    }
    cr_expect_eq(less, 1);
    cr_expect_geq(clef_counters_get(ctx).plans, plans + BATCHES);
    clef_release(w);
    cr_expect_leq(used_by_what_stays(), used - 2 * COLUMNS * DEPTH * sizeof(float), "the form goes with its value, at once");
}

static int packs_in(clef_tensor *t) {
    char *text = NULL;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    cr_assert_eq(clef_print_plan(t, CLEF_PLAN_TEXT, stream), CLEF_OK);
    fclose(stream);
    int n = 0;
    for (const char *at = text; (at = strstr(at, "pack.cl")); at++) n++;
    free(text);
    return n;
}

/* An unrolled net packs its weight once, however many steps it has. */
Test(derived, an_unrolled_net_packs_its_weight_once) {
    clef_tensor *w = clef_keep(made(ctx, linear.w, CLEF_F32, 1)),
                *v = clef_keep(made(ctx, CLEF_SHAPE(DEPTH, COLUMNS), CLEF_F32, 2));
    for (int steps = 1; steps <= 64; steps *= 8) {
        clef_tensor *h = made(ctx, linear.x, CLEF_F32, 3);
        for (int t = 0; t < steps; t++) h = clef_tanh(clef_linear(clef_tanh(clef_linear(h, w, CLEF_NONE)), v, CLEF_NONE));
        cr_expect_eq(packs_in(h), 2, "%d steps", steps);
    }
}

/* An LSTM's cell (Hochreiter and Schmidhuber, 1997) by hand, its four gates side by side; the gradient of its last state's sum. */
static clef_tensor *unrolled_lstm(int steps, clef_tensor *wx, clef_tensor *wh, clef_tensor *x) {
    enum { BATCH = 16 };
    clef_tensor *h = clef_zeros(ctx, CLEF_SHAPE(BATCH, COLUMNS), CLEF_F32), *c = h, *gate[4];
    for (int t = 0; t < steps; t++) {
        clef_tensor *now = clef_reshape(clef_slice(x, 0, t, t + 1, 1), CLEF_SHAPE(BATCH, DEPTH));
        clef_tensor *sum = clef_add(clef_linear(now, wx, CLEF_NONE), clef_linear(h, wh, CLEF_NONE));
        clef_split(sum, 1, (const int64_t[]){COLUMNS, COLUMNS, COLUMNS, COLUMNS}, 4, gate);
        c = clef_add(clef_mul(clef_sigmoid(gate[1]), c), clef_mul(clef_sigmoid(gate[0]), clef_tanh(gate[2])));
        h = clef_mul(clef_sigmoid(gate[3]), clef_tanh(c));
    }
    cr_assert_eq(clef_backward(clef_sum(h, NULL, 0, false)), CLEF_OK, "%s", clef_error(ctx));
    return clef_grad_of(wh);
}

static void measure_lstm(int steps, int *packs, double *bytes) {
    clef_tensor *wx = clef_require_grad(clef_keep(made(ctx, CLEF_SHAPE(4 * COLUMNS, DEPTH), CLEF_F32, 1)), true);
    clef_tensor *wh = clef_require_grad(clef_keep(made(ctx, CLEF_SHAPE(4 * COLUMNS, COLUMNS), CLEF_F32, 2)), true);
    clef_tensor *x = clef_keep(made(ctx, CLEF_SHAPE(steps, 16, DEPTH), CLEF_F32, 3));
    clef_set_dry_run(ctx, true);
    clef_tensor *g = unrolled_lstm(steps, wx, wh, x);
    *packs = packs_in(g);
    clef_eval_all((clef_tensor *[]){g, clef_grad_of(wx)}, 2);
    clef_plan_size size;
    cr_assert_eq(clef_plan_memory(ctx, &size), CLEF_OK);
    *bytes = size.bytes;
    clef_set_dry_run(ctx, false);
    clef_release(wx), clef_release(wh), clef_release(x);
    clef_end_step(ctx);
}

Test(derived, an_lstm_of_64_steps_packs_as_often_as_one_of_8) {
    int packs[3];
    double bytes[3];
    for (int i = 0; i < 3; i++) measure_lstm((int[]){8, 16, 64}[i], &packs[i], &bytes[i]);
    cr_expect_eq(packs[2], packs[0]);
    cr_expect_leq(bytes[2], 4.3 * bytes[1], "traffic: %g bytes for 16 steps, %g for 64", bytes[1], bytes[2]);
}

/* The image is padded once for both, and for the gradients by both filters. */
static int pads_of(int filters, clef_tensor *x, bool backward) {
    clef_tensor *y = NULL, *w[2];
    for (int i = 0; i < filters; i++) {
        w[i] = clef_require_grad(clef_keep(made(ctx, CLEF_SHAPE(8, 4, 5, 5), CLEF_F32, (uint64_t)i)), true);
        clef_tensor *one = clef_conv2d(x, w[i], CLEF_NONE, &(clef_conv2d_options){.padding = {2, 2}});
        y = y ? clef_add(y, one) : one;
    }
    clef_tensor *all = clef_sum(y, NULL, 0, false);
    int n = 0;
    if (backward) {
        clef_backward(all);
        for (int i = 0; i < filters; i++) {
            clef_tensor *g = clef_sum(clef_grad_of(w[i]), NULL, 0, false);
            all = i ? clef_add(all, g) : g;
        }
    }
    n = packs_in(all);
    for (int i = 0; i < filters; i++) clef_release(w[i]);
    clef_end_step(ctx);
    return n;
}

Test(derived, two_convolutions_share_one_padded_image) {
    clef_tensor *x = clef_keep(made(ctx, CLEF_SHAPE(2, 4, 12, 12), CLEF_F32, 1));
    int one = pads_of(1, x, false), two = pads_of(2, x, false);
    if (one == 0) cr_skip_test("this device's kernels take images as they lie");
    cr_expect_eq(two, 2 * one - 1);
    cr_expect_eq(pads_of(2, x, true), pads_of(1, x, true));
}

/* Two equal copies of x transposed become one, which the sum reads in two orders: it must not lie where that one does. */
Test(derived, a_form_read_in_two_orders_is_not_written_over) {
    for (int64_t n = 8; n <= 512; n *= 8) {
        clef_tensor *x = clef_keep(made(ctx, CLEF_SHAPE(n / 2, 2 * n), CLEF_F32, 1)), *w = made(ctx, CLEF_SHAPE(n, n), CLEF_F32, 2);
        clef_tensor *turned = clef_transpose(x, 0, 1), *one = clef_reshape(turned, CLEF_SHAPE(n, n));
        clef_tensor *other = clef_transpose(clef_reshape(clef_reshape(turned, CLEF_SHAPE(n * n)), CLEF_SHAPE(n, n)), 0, 1);
        float *got = values(clef_matmul(clef_add(one, other), w)), *host = values(x), *sum = calloc((size_t)(n * n), sizeof *sum);
        for (int64_t i = 0; i < n * n; i++)
            for (int64_t side = 0; side < 2; side++) {
                int64_t at = side ? i % n * n + i / n : i; /* of the transposed, [2n, n/2] */
                sum[i] += host[at % (n / 2) * 2 * n + at / (n / 2)];
            }
        float *wanted = values(clef_matmul(clef_from_host(ctx, CLEF_SHAPE(n, n), CLEF_F32, sum), w));
        for (int64_t i = 0; i < n * n; i++) cr_assert_float_eq(got[i], wanted[i], 1e-3 * n, "n %d, element %d", (int)n, (int)i);
        free(got), free(host), free(sum), free(wanted);
        clef_release(x);
        clef_end_step(ctx);
    }
}

Test(derived, is_predicted) {
    clef_tensor *w = clef_keep(made(ctx, linear.w, CLEF_F32, 1)), *x = made(ctx, linear.x, CLEF_F32, 1);
    clef_plan_size size;
    clef_set_dry_run(ctx, true);
    clef_eval(linear.run(x, w));
    cr_assert_eq(clef_plan_memory(ctx, &size), CLEF_OK);
    clef_set_dry_run(ctx, false);
    cr_expect_eq(size.prepacked_bytes, COLUMNS * DEPTH * (int64_t)sizeof(float));
    cr_expect_eq(size.peak_bytes, size.input_bytes + size.result_bytes + size.temporary_bytes + size.prepacked_bytes);
}

Test(derived, weights_in_a_programs_hands_are_read_each_time) {
    float *data = calloc(COLUMNS * DEPTH, sizeof *data);
    cl_mem mine = clCreateBuffer(clef_opencl_context(ctx), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, COLUMNS * DEPTH * sizeof *data,
                                 data, NULL);
    clef_tensor *w = clef_from_opencl(ctx, mine, 0, linear.w, CLEF_F32);
    for (int i = 0; i < REPEATS; i++) {
        for (int k = 0; k < COLUMNS * DEPTH; k++) data[k] = (float)i;
        cr_assert_eq(
            clEnqueueWriteBuffer(clef_opencl_queue(ctx), mine, CL_TRUE, 0, COLUMNS * DEPTH * sizeof *data, data, 0, NULL, NULL),
            CL_SUCCESS);
        float *y = values(clef_linear(clef_ones(ctx, linear.x, CLEF_F32), w, CLEF_NONE));
        for (int k = 0; k < ROWS * COLUMNS; k++) cr_assert_eq(y[k], (float)(i * DEPTH));
        free(y);
        clef_end_step(ctx);
    }
    clef_release(w);
    clReleaseMemObject(mine);
    free(data);
}

/* Updated weights are others in each step: nothing stays. */
Test(derived, training_keeps_nothing) {
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, DEPTH, COLUMNS, NULL), clef_nn_relu(ctx),
                                                        clef_nn_linear(ctx, COLUMNS, COLUMNS, NULL)));
    clef_optimizer *opt = clef_sgd(net, &(clef_sgd_options){.lr = 0.01});
    uint64_t used = 0;
    int steady = 3 + CLEF_RESULT_STEPS; /* as many losses are held from then on */
    for (int i = 0; i < steady + 4; i++) {
        clef_tensor *y = clef_forward(net, made(ctx, linear.x, CLEF_F32, (uint64_t)i));
        clef_backward(clef_mean(clef_mul(y, y), NULL, 0, false));
        cr_assert_eq(clef_step(opt), CLEF_OK);
        if (i == steady) used = clef_memory(ctx).used;
    }
    cr_expect_eq(clef_memory(ctx).used, used);
}
