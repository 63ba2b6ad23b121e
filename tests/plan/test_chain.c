/* Launches that go as one: the same bits as one by one, whatever is trained, and nothing where it may not be.
   ctest: cost=130 apart together */
#include "clef.h"
#include "clef/opencl.h"
#include "runtime/runtime_internal.h"
#include "support/device.h"
#include <string.h>
#include <unistd.h>

enum { STEPS = 5, BATCH = 6, CLASSES = 5, TOKENS = 11, CONTEXT = 8 };

static void mend_text(void) { clef__embedded_hook = NULL; }
TestSuite(chain, .fini = mend_text);

/* ---- nets, and what they learn from ---- */

typedef struct task {
    const char *name;
    clef_module *(*net)(clef_context *ctx);
    clef_shape x;
    bool half;   /* under autocast to bf16 */
    bool tokens; /* x is of whole numbers below TOKENS, and so is what is wanted of each */
} task;

static clef_module *lenet(clef_context *ctx) { return clef_model_lenet(ctx, CLEF_SHAPE(1, 16, 16), CLASSES); }
static clef_module *normed(clef_context *ctx) {
    clef_nn_conv2d_options padded = {.conv.padding = {1, 1}}, apart = {.conv.padding = {1, 1}, .conv.groups = 8};
    clef_module *body =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 8, 8, 3, &padded), clef_nn_batch_norm2d(ctx, 8, NULL)));
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 3, 8, 3, &padded), clef_nn_residual(ctx, body, NULL, true),
                                            clef_nn_conv2d(ctx, 8, 8, 3, &apart), clef_nn_avg_pool2d(ctx, 2, NULL),
                                            clef_nn_dropout(ctx, 0.2), clef_nn_flatten(ctx), clef_nn_linear(ctx, 8 * 49, 40, NULL),
                                            clef_nn_layer_norm(ctx, CLEF_SHAPE(40), NULL), clef_nn_gelu(ctx),
                                            clef_nn_linear(ctx, 40, CLASSES, NULL)));
}
static clef_module *gpt(clef_context *ctx) {
    return clef_nn_gpt(
        ctx, &(clef_gpt_options){.vocabulary = TOKENS, .context = CONTEXT, .layers = 2, .heads = 2, .width = 32, .dropout = 0.1});
}
static clef_module *lstm(clef_context *ctx) {
    return clef_nn_lstm_language(ctx, &(clef_lstm_language_options){.vocabulary = TOKENS, .layers = 2, .width = 24});
}

static const task tasks[] = {
    {"lenet", lenet, {4, {BATCH, 1, 16, 16}}, false, false},
    {"lenet in bf16", lenet, {4, {BATCH, 1, 16, 16}}, true, false},
    {"norms and dropout", normed, {4, {BATCH, 3, 14, 14}}, false, false},
    {"gpt", gpt, {2, {BATCH, CONTEXT}}, false, true},
    {"lstm", lstm, {2, {BATCH, CONTEXT}}, false, true},
};
enum { TASKS = sizeof tasks / sizeof *tasks };

static clef_tensor *numbers(clef_context *ctx, clef_shape shape, int below) {
    int64_t data[256];
    for (int64_t i = 0; i < clef_shape_numel(shape); i++) data[i] = (i * i + 3 * i) % below;
    return clef_keep(clef_from_host(ctx, shape, CLEF_I64, data));
}

static void expect_ok(clef_context *ctx, clef_status status) { cr_assert_eq(status, CLEF_OK, "%s", clef_error(ctx)); }

/* What training leaves. */
typedef struct outcome {
    float weight[1 << 15];
    size_t n;
    uint64_t last; /* launches of the last step */
} outcome;

static void read_weights(clef_context *ctx, clef_module *net, outcome *o) {
    o->n = 0;
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_tensor *t = clef_module_tensor(net, i).tensor;
        size_t here = clef_tensor_dtype(t) == CLEF_F32 ? (size_t)clef_numel(t) : 0;
        cr_assert_leq(o->n + here, sizeof o->weight / sizeof *o->weight);
        if (here) expect_ok(ctx, clef_read(t, o->weight + o->n, here * sizeof(float)));
        o->n += here;
    }
}

static void train(clef_context *ctx, const task *t, outcome *o) {
    clef_seed(ctx, 3);
    if (t->half) clef_set_autocast(ctx, CLEF_BF16);
    clef_module *net = t->net(ctx);
    cr_assert(net, "%s", clef_error(ctx));
    clef_optimizer *adam = clef_adamw(net, &(clef_adamw_options){.lr = 0.01});
    clef_tensor *x = t->tokens ? numbers(ctx, t->x, TOKENS) : clef_keep(noise_tensor(ctx, t->x, 5));
    clef_tensor *wanted = t->tokens ? numbers(ctx, CLEF_SHAPE(BATCH * CONTEXT), TOKENS) : numbers(ctx, CLEF_SHAPE(BATCH), CLASSES);
    for (int i = 0; i < STEPS; i++) {
        uint64_t before = clef_counters_get(ctx).launches;
        clef_tensor *y = clef_forward(net, x);
        if (t->tokens) y = clef_reshape(y, CLEF_SHAPE(BATCH * CONTEXT, TOKENS));
        expect_ok(ctx, clef_backward(clef_cross_entropy(y, wanted, NULL)));
        clef_clip_grad_norm(net, 1);
        expect_ok(ctx, clef_step(adam));
        expect_ok(ctx, clef_end_step(ctx));
        o->last = clef_counters_get(ctx).launches - before;
    }
    read_weights(ctx, net, o);
    clef_release(x);
    clef_release(wanted);
}

/* The same bits with and without chains; how often a step of each is launched. */
static void compare(const task *t, clef_options o, uint64_t launches[2]) {
    static outcome apart, chained;
    for (int i = 0; i < 2; i++) {
        o.chain_after = i ? 2 : -1;
        clef_context *ctx = open_or_skip(&o);
        train(ctx, t, i ? &chained : &apart);
        launches[i] = i ? chained.last : apart.last;
        close_clean(ctx);
    }
    cr_assert_eq(chained.n, apart.n);
    cr_expect(memcmp(chained.weight, apart.weight, apart.n * sizeof(float)) == 0, "%s: other bits", t->name);
}

static bool device_chains(void) {
    clef_context *ctx = open_or_skip(&(clef_options){.chain_after = 1});
    bool chains = clef__device_chains(clef__device_at(ctx, 0));
    clef_close(ctx);
    return chains;
}

/* ---- the same bits ---- */

Test(chain, training_has_the_same_bits_and_few_launches) {
    bool chains = device_chains();
    for (int i = 0; i < TASKS; i++) {
        uint64_t launches[2];
        compare(&tasks[i], (clef_options){0}, launches);
        cr_expect(launches[0] > 10, "%s: %d launches", tasks[i].name, (int)launches[0]);
        if (chains) cr_expect(launches[1] <= 3, "%s: %d launches as chains", tasks[i].name, (int)launches[1]);
        else cr_expect_eq(launches[1], launches[0], "this driver's kernels are not known to make chains");
    }
}

/* As pocl compiles them fastest: what its optimizer makes of the usual device's kernels in a chain shows above. */
Test(chain, other_kernels_too) {
    static const char *const profiles[] = {"cpu", "cpu_avx2", "minimal", "gpu"};
    setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 1);
    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++) {
        uint64_t launches[2];
        compare(&tasks[i % TASKS], (clef_options){.profile = profiles[i]}, launches);
        cr_expect_leq(launches[1], launches[0]);
    }
}

Test(chain, exact_buffers) {
    uint64_t launches[2];
    compare(&tasks[2], (clef_options){.debug_memory = true}, launches);
}

Test(chain, parts_of_a_device) {
    clef_context *ctx = clef_open(&(clef_options){.device = "0/2"});
    if (!ctx) cr_skip_test("%s", clef_error(NULL));
    clef_close(ctx);
    uint64_t launches[2];
    compare(&tasks[3], (clef_options){.device = "0/2#1"}, launches);
}

/* ---- numbers and memory that change from run to run ---- */

/* y = (a·x + k) twice over, as several launches: a product keeps them apart. */
static clef_tensor *sum_of(clef_tensor *x, clef_tensor *w, double k) {
    clef_tensor *y = clef_add_scalar(clef_matmul(x, w), k);
    return clef_add_scalar(clef_matmul(y, w), -k);
}

/* Many runs under way at once, each with another number: their memory is known to the chain, so nothing waits in between. */
Test(chain, every_run_has_its_own_arguments) {
    enum { N = 256, RUNS = 40 };
    static float identity[N * N], got[N * N];
    clef_context *ctx = open_or_skip(&(clef_options){.chain_after = 1});
    for (int i = 0; i < N; i++) identity[i * N + i] = 1;
    clef_tensor *w = clef_keep(clef_from_host(ctx, CLEF_SHAPE(N, N), CLEF_F32, identity));
    clef_tensor *all = clef_keep(clef_zeros(ctx, CLEF_SHAPE(N, N), CLEF_F32));
    for (int r = 0; r < RUNS; r++) {
        expect_ok(ctx, clef_assign(all, clef_add(all, sum_of(clef_mul_scalar(w, r), w, r + 1))));
        expect_ok(ctx, clef_eval(all));
        expect_ok(ctx, clef_end_step(ctx));
    }
    expect_ok(ctx, clef_read(all, got, sizeof got));
    for (int i = 0; i < N * N; i++) cr_assert_eq(got[i], RUNS * (RUNS - 1) / 2 * identity[i], "element %d: %g", i, got[i]);
    clef_release(all);
    clef_release(w);
    close_clean(ctx);
}

/* Sums of what is computed where it is read, with numbers that are arguments of their own; 3 more in each run. */
static void sums(clef_context *ctx, clef_dtype dtype, double got[4]) {
    clef_tensor *x = clef_keep(clef_full(ctx, CLEF_SHAPE(6, 3000), dtype, 1));
    expect_ok(ctx, clef_eval(x));
    for (int r = 0; r < 4; r++) {
        clef_tensor *rows = clef_sum(clef_add_scalar(clef_mul_scalar(x, r + 1), 3 * r), (int[]){1}, 1, false);
        got[r] = clef_item(clef_sum(clef_mul_scalar(clef_copy(rows), r + 1), NULL, 0, false));
        expect_ok(ctx, clef_end_step(ctx));
    }
    clef_release(x);
}

Test(chain, constants_of_every_type) {
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_F16, CLEF_BF16, CLEF_I32, CLEF_I64, CLEF_U8, CLEF_F64};
    clef_context *ctx = open_or_skip(&(clef_options){.chain_after = 1}), *never = open_or_skip(&(clef_options){.chain_after = -1});
    clef_device_info info;
    cr_assert(clef_context_device(ctx, 0, &info));
    uint64_t launches = clef_counters_get(ctx).launches;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes - !info.f64; d++) {
        double got[4], wanted[4];
        sums(ctx, dtypes[d], got);
        sums(never, dtypes[d], wanted);
        for (int r = 0; r < 4; r++) cr_assert_eq(got[r], wanted[r], "%s, run %d: %g", clef_dtype_name(dtypes[d]), r, got[r]);
    }
    launches = clef_counters_get(ctx).launches - launches;
    if (device_chains()) cr_assert_lt(launches, clef_counters_get(never).launches);
    close_clean(ctx);
    close_clean(never);
}

/* Buffers of its own that a program gives and takes away at once. */
Test(chain, memory_goes_after_the_launch_that_uses_it) {
    enum { N = 512, RUNS = 6 };
    clef_context *ctx = open_or_skip(&(clef_options){.chain_after = 1});
    static float data[N * N], other[N * N], got[N * N];
    for (int i = 0; i < N * N; i++) data[i] = (float)(i % 7 - 3), other[i] = 100;
    clef_tensor *w = clef_keep(clef_full(ctx, CLEF_SHAPE(N, N), CLEF_F32, 1)),
                *few = clef_keep(noise_tensor(ctx, CLEF_SHAPE(8), 1));
    for (int r = 0; r < RUNS; r++) {
        cl_int code;
        cl_mem memory =
            clCreateBuffer(clef_opencl_context(ctx), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof data, data, &code);
        cr_assert_eq(code, CL_SUCCESS);
        clef_tensor *x = clef_from_opencl(ctx, memory, 0, CLEF_SHAPE(N, N), CLEF_F32), *y = clef_keep(sum_of(x, w, 0));
        clReleaseMemObject(memory);
        expect_ok(ctx, clef_eval(y));
        clef_release(x);
        expect_ok(ctx, clef_end_step(ctx));
        expect_ok(ctx, clef_eval(clef_add_scalar(few, r))); /* with it goes the memory, while the launch runs, and others get it */
        cl_mem over[4];
        for (int i = 0; i < 4; i++)
            over[i] =
                clCreateBuffer(clef_opencl_context(ctx), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof other, other, &code);
        for (int i = 0; i < 4; i++) clReleaseMemObject(over[i]);
        expect_ok(ctx, clef_read(y, got, sizeof got));
        for (int i = 0; i < N; i++) {
            float sum = 0;
            for (int j = 0; j < N; j++) sum += data[i * N + j];
            cr_assert_eq(got[i * N], N * sum, "run %d, row %d", r, i);
        }
        clef_release(y);
    }
    clef_release(few);
    clef_release(w);
    close_clean(ctx);
}

/* Read where it lies as long as the chain was the last command; after any other that one is waited for. */
Test(chain, results_are_read_where_they_lie) {
    enum { N = 96, RUNS = 48, WAYS = 4 };
    static float identity[N * N], got[N * N], given[N * N];
    clef_context *ctx = open_or_skip(&(clef_options){.chain_after = 1});
    clef__device *device = clef__device_at(ctx, 0);
    for (int i = 0; i < N; i++) identity[i * N + i] = 1;
    clef_tensor *w = clef_keep(clef_from_host(ctx, CLEF_SHAPE(N, N), CLEF_F32, identity));
    for (int r = 0; r < RUNS; r++) {
        int way = r % WAYS;
        clef_tensor *y = clef_keep(sum_of(clef_mul_scalar(w, r), w, r + 1)), *z = NULL;
        expect_ok(ctx, clef_eval(y));
        float wanted = (float)r, added = 0;
        if (way == 0 && r > WAYS && clef__device_chains(device)) cr_assert(clef__chain_is_last(device), "run %d", r);
        if (way == 1) z = clef_keep(clef_add_scalar(y, 1)); /* one launch */
        if (way == 2) expect_ok(ctx, clef_assign(y, clef_add_scalar(y, added = 5)));
        for (int i = 0; i < N * N; i++) given[i] = (float)(r + i % 3);
        if (way == 3) z = clef_keep(clef_from_host(ctx, CLEF_SHAPE(N, N), CLEF_F32, given));
        if (z || way == 2) expect_ok(ctx, clef_eval(z ? z : y));
        bool first = (z || way == 2) && r < WAYS; /* such a plan is no chain yet */
        if (first || way == 3) cr_assert_not(clef__chain_is_last(device), "run %d", r);
        expect_ok(ctx, clef_read(y, got, sizeof got));
        for (int i = 0; i < N * N; i++) cr_assert_eq(got[i], wanted * identity[i] + added, "run %d, element %d: %g", r, i, got[i]);
        if (z) expect_ok(ctx, clef_read(z, got, sizeof got));
        for (int i = 0; z && i < N * N; i++)
            cr_assert_eq(got[i], way == 1 ? wanted * identity[i] + 1 : given[i], "run %d, element %d: %g", r, i, got[i]);
        clef_release(y);
        clef_release(z);
        expect_ok(ctx, clef_end_step(ctx));
    }
    clef_release(w);
    close_clean(ctx);
}

/* However many steps it has: behind so many commands a mark would be set (ahead.c), and the chain would no longer be the last one.  The first
   run is no chain, and its mark stands behind the second one. */
Test(chain, is_one_command) {
    enum { N = 16, STEPS_OF_CHAIN = 300, RUNS = 5 };
    clef_context *ctx = open_or_skip(&(clef_options){.chain_after = 1});
    clef__device *device = clef__device_at(ctx, 0);
    clef_tensor *w = clef_keep(clef_eye(ctx, N, CLEF_F32)), *first = clef_keep(clef_rand(ctx, CLEF_SHAPE(N, N)));
    expect_ok(ctx, clef_eval(first));
    for (int r = 0; r < RUNS; r++) {
        clef_tensor *y = first;
        for (int i = 0; i < STEPS_OF_CHAIN; i++) y = clef_matmul(y, w);
        expect_ok(ctx, clef_eval(y));
        if (r > 1 && clef__device_chains(device)) cr_assert(clef__chain_is_last(device), "run %d", r);
        expect_ok(ctx, clef_end_step(ctx));
    }
    clef_release(first);
    clef_release(w);
    close_clean(ctx);
}

/* ---- runs that follow in a launch under way ---- */

/* x ← x + r for every r below `runs`, in bursts until one has followed. */
static bool adds_right(clef_context *ctx, int runs) {
    enum { N = 1 << 19, BURSTS = 50 };
    static float got[N];
    clef__device *device = clef__device_at(ctx, 0);
    int bursts = 0;
    clef_tensor *x = clef_keep(clef_zeros(ctx, CLEF_SHAPE(N), CLEF_F32));
    while (bursts < BURSTS && (device->followed == 0 || bursts < 3)) {
        for (int r = 0; r < runs; r++) {
            expect_ok(ctx, clef_assign(x, clef_add_scalar(x, r)));
            expect_ok(ctx, clef_eval(x));
        }
        expect_ok(ctx, clef_end_step(ctx));
        bursts++;
    }
    expect_ok(ctx, clef_read(x, got, sizeof got));
    clef_release(x);
    for (int i = 0; i < N; i++)
        if (got[i] != (float)(bursts * runs * (runs - 1) / 2)) return false;
    return true;
}

Test(chain, runs_of_one_launch_follow_one_another) {
    clef_context *ctx = open_or_skip(&(clef_options){.chain_after = 1});
    clef__device *device = clef__device_at(ctx, 0);
    cr_assert(adds_right(ctx, 200)); /* more than there are rooms */
    cr_assert_eq(device->followed > 0, clef__device_chains(device));
    close_clean(ctx);
}

/* A launch stays for a moment where runs are little and each is waited for, also while the next one's numbers are written. */
Test(chain, little_runs_that_are_waited_for_follow_one_another) {
    enum { MOST = 200000, LEAST = 2000 };
    clef_context *ctx = open_or_skip(&(clef_options){.chain_after = 1});
    clef__device *device = clef__device_at(ctx, 0);
    clef_tensor *x = clef_keep(clef_zeros(ctx, CLEF_SHAPE(2), CLEF_F32));
    float got[2], given = 0;
    bool chains = clef__device_chains(device) && device->info.compute_units > 1 && !device->crowded;
    uint64_t written = 0; /* runs that followed behind a write */
    for (int r = 0; r < LEAST || (chains && r < MOST && (device->followed < 20 || written < 5)); r++) {
        uint64_t before = device->followed;
        bool writes = r % 3 == 0;
        if (writes) expect_ok(ctx, clef_write(x, (float[]){given = (float)(r % 100), given}, sizeof got));
        clef_tensor *y = clef_keep(clef_add_scalar(x, r % 5));
        expect_ok(ctx, clef_eval(y));
        expect_ok(ctx, clef_read(y, got, sizeof got));
        clef_release(y);
        expect_ok(ctx, clef_end_step(ctx));
        float wanted = given + (float)(r % 5);
        cr_assert(got[0] == wanted && got[1] == wanted, "run %d: %g, not %g", r, got[0], wanted);
        written += writes ? device->followed - before : 0;
        if (r % 7 == 0) expect_ok(ctx, clef__finish(device));
    }
    cr_assert_eq(device->followed >= 20 && written >= 5, chains);
    clef_release(x);
    close_clean(ctx);
}

/* The program's commands may lie between any two. */
Test(chain, nothing_follows_in_a_queue_that_the_program_has) {
    clef_context *ctx = open_or_skip(&(clef_options){.chain_after = 1});
    cr_assert(clef_opencl_queue(ctx));
    cr_assert(adds_right(ctx, 20));
    cr_assert_eq(clef__device_at(ctx, 0)->followed, 0);
    close_clean(ctx);
}

/* What a program may do between two runs, in any order, beside the same on the host. */
Test(chain, runs_writes_and_reads_in_any_order) {
    enum { N = 3000, TURNS = 4000, KINDS = 7 };
    static float now[N], got[N];
    clef_context *ctx = open_or_skip(&(clef_options){.chain_after = 1});
    clef_tensor *x = clef_keep(clef_zeros(ctx, CLEF_SHAPE(N), CLEF_F32)),
                *one = clef_keep(clef_full(ctx, CLEF_SHAPE(1), CLEF_F32, 1));
    uint64_t state = 7;
    for (int t = 0, kind = 0; t < TURNS; t++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int again = (int)(state >> 40) % 4, k = (int)(state >> 50) % 9 - 4;
        if (again == 0) kind = (int)(state >> 33) % KINDS; /* else what it did before: runs of one plan follow one another */
        for (int i = 0; i < N; i++) {
            if (kind == 0) now[i] += (float)k;
            if (kind == 1) now[i] = (float)k - now[i];
            if (kind == 2) now[i] = (float)((i + t) % 11);
            if (kind == 5) now[i] = fminf(fmaxf(now[i], -64), 64);
        }
        if (kind == 0) expect_ok(ctx, clef_assign(x, clef_add_scalar(x, k)));
        if (kind == 1) expect_ok(ctx, clef_assign(x, clef_add_scalar(clef_neg(x), k)));
        if (kind == 2) expect_ok(ctx, clef_write(x, now, sizeof now));
        if (kind == 4) expect_ok(ctx, clef_eval(clef_cumsum(clef_add_scalar(one, k), 0))); /* has nothing to do with x */
        if (kind == 5) expect_ok(ctx, clef_assign(x, clef_clamp(x, -64, 64)));
        if (kind == 6) expect_ok(ctx, clef_end_step(ctx));
        expect_ok(ctx, clef_eval(x));
        if (kind != 3) continue;
        expect_ok(ctx, clef_read(x, got, sizeof got));
        for (int i = 0; i < N; i++) cr_assert_eq(got[i], now[i], "turn %d, element %d: %g, not %g", t, i, got[i], now[i]);
    }
    expect_ok(ctx, clef_read(x, got, sizeof got));
    cr_assert(memcmp(got, now, sizeof got) == 0);
    clef_release(one);
    clef_release(x);
    close_clean(ctx);
}

/* A program that has the queue may have put something into it. */
Test(chain, results_behind_commands_of_the_program) {
    enum { N = 16, RUNS = 6 };
    clef_context *ctx = open_or_skip(&(clef_options){.chain_after = 1});
    float got[N * N];
    clef_tensor *w = clef_keep(clef_full(ctx, CLEF_SHAPE(N, N), CLEF_F32, 1));
    for (int r = 0; r < RUNS; r++) {
        clef_tensor *y = clef_keep(sum_of(w, w, r));
        size_t offset = 0;
        expect_ok(ctx, clef_eval(y));
        cl_command_queue queue = clef_opencl_queue(ctx);
        cl_mem memory = clef_opencl_buffer(y, &offset);
        cr_assert(memory, "%s", clef_error(ctx));
        const float over = (float)(100 + r);
        cr_assert_eq(clEnqueueFillBuffer(queue, memory, &over, sizeof over, offset, sizeof got, 0, NULL, NULL), CL_SUCCESS);
        expect_ok(ctx, clef_read(y, got, sizeof got));
        for (int i = 0; i < N * N; i++) cr_assert_eq(got[i], over, "run %d: %g", r, got[i]);
        clef_release(y);
        expect_ok(ctx, clef_end_step(ctx));
    }
    clef_release(w);
    close_clean(ctx);
}

/* Memory that the host may not look into has no address there. */
Test(chain, memory_without_an_address_is_used_one_by_one) {
    enum { N = 24 };
    clef_context *ctx = open_or_skip(&(clef_options){.chain_after = 1});
    float ones[N * N], got[N * N];
    for (int i = 0; i < N * N; i++) ones[i] = 1;
    cl_int code;
    cl_mem memory = clCreateBuffer(clef_opencl_context(ctx), CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS | CL_MEM_COPY_HOST_PTR,
                                   sizeof ones, ones, &code);
    cr_assert_eq(code, CL_SUCCESS);
    clef_tensor *x = clef_from_opencl(ctx, memory, 0, CLEF_SHAPE(N, N), CLEF_F32);
    clef_tensor *w = clef_keep(clef_full(ctx, CLEF_SHAPE(N, N), CLEF_F32, 1));
    clReleaseMemObject(memory);
    for (int r = 0; r < 4; r++) {
        expect_ok(ctx, clef_read(sum_of(x, w, r), got, sizeof got));
        for (int i = 0; i < N * N; i++) cr_assert_eq(got[i], N * (N + r) - r, "run %d: %g", r, got[i]);
        expect_ok(ctx, clef_end_step(ctx));
    }
    clef_release(x);
    clef_release(w);
    close_clean(ctx);
}

/* ---- when, and when not ---- */

static uint64_t launches_of_a_run(clef_context *ctx, int runs) {
    uint64_t before = 0;
    for (int r = 0; r < runs; r++) {
        before = clef_counters_get(ctx).launches;
        clef_tensor *x = clef_randn(ctx, CLEF_SHAPE(16, 16));
        expect_ok(ctx, clef_eval(sum_of(x, clef_softmax(x, 1), 1)));
        expect_ok(ctx, clef_end_step(ctx));
    }
    return clef_counters_get(ctx).launches - before;
}

Test(chain, begins_after_so_many_runs) {
    if (!device_chains()) cr_skip_test("no chains on this device");
    clef_context *ctx = open_or_skip(&(clef_options){.chain_after = 3}), *never = open_or_skip(&(clef_options){.chain_after = -1});
    uint64_t all = launches_of_a_run(never, 6);
    cr_assert_eq(launches_of_a_run(ctx, 3), all);
    cr_assert_eq(launches_of_a_run(ctx, 1), 1);
    close_clean(ctx);
    close_clean(never);
}

Test(chain, begins_by_itself_when_it_pays) {
    if (!device_chains()) cr_skip_test("no chains on this device");
    unsetenv("CLEF_CHAIN");
    clef_context *ctx = open_or_skip(NULL);
    if (!clef__device_chains(clef__device_at(ctx, 0))) cr_skip_test("this process has fewer cores than the device units");
    clef_tensor *w = clef_keep(noise_tensor(ctx, CLEF_SHAPE(8, 8), 1));
    uint64_t launches = 0;
    for (int r = 0; r < 5000; r++) {
        clef_tensor *y = w;
        for (int i = 0; i < 40; i++) y = clef_matmul(y, w);
        launches = clef_counters_get(ctx).launches;
        expect_ok(ctx, clef_eval(y));
        expect_ok(ctx, clef_end_step(ctx));
        launches = clef_counters_get(ctx).launches - launches;
        if (r == 20) cr_assert_geq(launches, 40, "nothing has paid yet");
    }
    cr_assert_eq(launches, 1);
    clef_release(w);
    close_clean(ctx);
}

Test(chain, the_variable) {
    setenv("CLEF_CHAIN", "0", 1);
    clef_context *ctx = open_or_skip(NULL);
    cr_assert_not(clef__device_chains(clef__device_at(ctx, 0)));
    close_clean(ctx);
    setenv("CLEF_CHAIN", "soon", 1);
    cr_assert_null(clef_open(NULL));
    cr_assert_str_eq(clef_error(NULL), "open: CLEF_CHAIN is \"soon\"; it is a whole number from 0 to 999999");
    ctx = open_or_skip(&(clef_options){.chain_after = 1}); /* the option counts */
    close_clean(ctx);
}

/* Do these tests test?  What is broken in the chain's own text shows. */
static const struct {
    const char *file, *from, *to;
} faults[] = {{"chain.cl", "i / w % h", "i / h % w"},
              {"chain.cl", "i / w / h", "0"},
              {"chain.cl", "s < steps", "s < steps - 1"},
              {"chained.h", "chain_place[d]", "chain_place[2 - (d)]"},
              {"chain.cl", "== RUN_HAS_NEXT", "> RUN_ENDED"}};
static int fault;

static const char *changed(const char *file, const char *text) {
    static char other[1 << 14];
    if (strcmp(file, faults[fault].file) != 0) return text;
    const char *at = strstr(text, faults[fault].from);
    cr_assert(at, "%s is another one by now", file);
    snprintf(other, sizeof other, "%.*s%s%s", (int)(at - text), text, faults[fault].to, at + strlen(faults[fault].from));
    return other;
}

/* A range of three dimensions: products of a batch, the first run one by one, the second as a chain.  True: the same bits. */
static bool repeats_products(void) {
    enum { N = 3 * 72 * 72 };
    static float y[2][N];
    clef_context *ctx = open_or_skip(&(clef_options){.chain_after = 1});
    clef_tensor *x =
        clef_keep(noise_tensor(ctx, CLEF_SHAPE(3, 72, 72), 1 + (uint64_t)fault)); /* memory may hold what a test before left */
    expect_ok(ctx, clef_eval(x));
    for (int i = 0; i < 2; i++) {
        expect_ok(ctx, clef_read(clef_matmul(clef_matmul(x, x), x), y[i], sizeof y[i]));
        expect_ok(ctx, clef_end_step(ctx));
    }
    clef_release(x);
    close_clean(ctx);
    return memcmp(y[0], y[1], sizeof y[0]) == 0;
}

Test(chain, ranges_of_three_dimensions) { cr_assert(repeats_products()); }

static void expect_noticed(void) {
    if (!device_chains()) cr_skip_test("no chains on this device");
    clef__embedded_hook = changed;
    cr_assert_not(repeats_products(), "%s: %s", faults[fault].file, faults[fault].from);
}

Test(chain, wrong_rows_are_noticed) { fault = 0, expect_noticed(); }
Test(chain, wrong_planes_are_noticed) { fault = 1, expect_noticed(); }
Test(chain, missing_steps_are_noticed) { fault = 2, expect_noticed(); }
Test(chain, wrong_places_are_noticed) { fault = 3, expect_noticed(); }

Test(chain, runs_that_are_forgotten_are_noticed) {
    if (!device_chains()) cr_skip_test("no chains on this device");
    fault = 4;
    clef__embedded_hook = changed;
    clef_context *ctx = open_or_skip(&(clef_options){.chain_after = 1});
    cr_assert_not(adds_right(ctx, 100));
    clef_close(ctx);
}

static const char *broken(const char *file, const char *text) {
    return strcmp(file, "chain.cl") == 0 ? "this is no program" : text;
}

Test(chain, one_that_cannot_be_made_is_none) {
    clef__embedded_hook = broken;
    uint64_t launches[2];
    compare(&tasks[0], (clef_options){0}, launches);
    cr_assert_eq(launches[1], launches[0]);
}

Test(chain, a_trace_shows_every_launch) {
    char path[] = "/tmp/clef_chain_XXXXXX";
    int file = mkstemp(path);
    cr_assert(file >= 0);
    close(file);
    clef_context *never = open_or_skip(&(clef_options){.chain_after = -1});
    uint64_t all = launches_of_a_run(never, 4);
    close_clean(never);
    setenv("CLEF_TRACE", path, 1);
    clef_context *ctx = open_or_skip(&(clef_options){.chain_after = 1});
    cr_assert_gt(all, 1);
    cr_assert_eq(launches_of_a_run(ctx, 4), all);
    clef_close(ctx);
    remove(path);
}
