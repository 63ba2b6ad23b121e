/* What is packed from weights stays while they do not change: fewer launches, the same bits, and never an old value.
   ctest: cost=20 */
#include "clef/opencl.h"
#include "support/device.h"

enum { ROWS = 20, DEPTH = 96, COLUMNS = 48, REPEATS = 5 };
static clef_context *ctx, *fresh; /* fresh: weights are made anew for each call, so that nothing stays */

static void close_both(void) {
    cr_assert_str_empty(clef_error(ctx));
    cr_assert_str_empty(clef_error(fresh));
    clef_close(ctx);
    clef_close(fresh);
}
static void open_both(void) {
    ctx = open_seeded(1);
    fresh = open_seeded(1);
}
static void open_with_exact_buffers(void) {
    ctx = open_or_skip(&(clef_options){.seed = 1, .debug_memory = true});
    fresh = open_seeded(1);
}
TestSuite(prepack, .init = open_both, .fini = close_both);
TestSuite(prepack_debug, .init = open_with_exact_buffers, .fini = close_both);

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

static clef_tensor *from_left(clef_tensor *x, clef_tensor *w) { return clef_matmul(w, x); }

static const layer linear = {multiply, {2, {ROWS, DEPTH}}, {2, {COLUMNS, DEPTH}}, CLEF_F32};
static const layer half_linear = {multiply, {2, {ROWS, DEPTH}}, {2, {COLUMNS, DEPTH}}, CLEF_F16};
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

Test(prepack, weights_of_a_linear_layer) { keep_until_assigned(&linear, 1); }
Test(prepack, filters_transformed) { keep_until_assigned(&convolution, 1); }
Test(prepack, weights_in_half_precision) { keep_until_assigned(&half_linear, 1); }
Test(prepack, weights_converted_and_then_packed) { keep_until_assigned(&half_from_left, 2); }
Test(prepack_debug, weights_of_a_linear_layer) { /* with memory of its own from the start, one call earlier */
    clef_tensor *w = clef_keep(made(ctx, linear.w, CLEF_F32, 1));
    int first = expect_answer(&linear, w, 1, 1);
    for (uint64_t i = 2; i < REPEATS; i++) cr_assert_eq(expect_answer(&linear, w, 1, i), first - 1);
    clef_assign(w, made(ctx, linear.w, CLEF_F32, 2));
    cr_assert_eq(expect_answer(&linear, w, 2, 9), first);
}

Test(prepack, two_sets_of_weights_in_turn) { /* one plan, and nothing of one for the other */
    clef_tensor *w[2];
    for (uint64_t i = 0; i < 2; i++) w[i] = clef_keep(made(ctx, linear.w, CLEF_F32, i));
    int first = expect_answer(&linear, w[0], 0, 1);
    for (uint64_t i = 0; i < 6; i++) cr_assert_eq(expect_answer(&linear, w[i % 2], i % 2, i), first);
    for (uint64_t i = 0; i < 6; i++) expect_answer(&linear, w[i / 3], i / 3, i);
}

Test(prepack, memory_is_given_back) {
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

enum { BATCHES = 12, COPIES = 4 /* of the weights, that a context has room for */ };

/* Without temporaries. */
static uint64_t used_by_what_stays(void) {
    for (int i = 0; i < 2; i++) made(ctx, CLEF_SHAPE(1), CLEF_F32, 1), clef_end_step(ctx);
    return clef_memory(ctx).used;
}

/* Every batch size has a plan, and each would have a copy; *used: what is in use after each. */
static void run_batches(clef_tensor *w, uint64_t *used) {
    for (int b = 0; b < BATCHES; b++) {
        layer l = linear;
        l.x.dim[0] = ROWS + BATCHES - b; /* the largest first, so that its arena is large enough for all */
        for (uint64_t i = 0; i < 3; i++) expect_answer(&l, w, 1, i);
        used[b] = used_by_what_stays();
    }
}

Test(prepack, many_batch_sizes_share_a_limit) {
    clef_tensor *w = clef_keep(made(ctx, linear.w, CLEF_F32, 1));
    uint64_t used[BATCHES], again[BATCHES];
    run_batches(w, used);
    uint64_t packed = used[1] - used[0];
    cr_expect_geq(packed, COLUMNS * DEPTH * sizeof(float));
    for (int b = 1; b < BATCHES; b++)
        cr_expect_eq(used[b], used[0] + packed * (uint64_t)((b < COPIES ? b : COPIES - 1)), "batch %d", b);
    uint64_t plans = clef_counters_get(ctx).plans;
    run_batches(w, again);
    for (int b = 0; b < BATCHES; b++) cr_expect_eq(again[b], used[BATCHES - 1], "batch %d, once more", b);
    cr_expect_eq(clef_counters_get(ctx).plans, plans, "a plan is not thrown away for what it packed");
}

Test(prepack, is_predicted) {
    clef_tensor *w = clef_keep(made(ctx, linear.w, CLEF_F32, 1)), *x = made(ctx, linear.x, CLEF_F32, 1);
    clef_plan_size size;
    clef_set_dry_run(ctx, true);
    clef_eval(linear.run(x, w));
    cr_assert_eq(clef_plan_memory(ctx, &size), CLEF_OK);
    clef_set_dry_run(ctx, false);
    cr_expect_eq(size.prepacked_bytes, COLUMNS * DEPTH * (int64_t)sizeof(float));
    cr_expect_eq(size.peak_bytes, size.input_bytes + size.result_bytes + size.temporary_bytes + size.prepacked_bytes);
}

Test(prepack, weights_in_a_programs_hands_are_read_each_time) {
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
Test(prepack, training_keeps_nothing) {
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
