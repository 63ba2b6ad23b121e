/* Any host allocation and any OpenCL call may fail: the N-th one, once or from then on, N = 1, 2, … until a run
   passes untouched.  No run may crash, leak host memory or OpenCL objects, or fail without an error line; a
   context that saw one failure must work again afterwards.

   A plain program, so that it also runs under sanitizers.  Other codes, builds and lists: main_fault_codes.c. */
/* ctest: cost=30 plain */
#include "support/opencl_faults.h"
#include "runtime_support.h"
#include "support/plain.h"
#include <math.h>

/* ---- the work ---- */
static const char *cache_dir;
static bool complete; /* the last run did all it wanted */

static bool upload_and_copy(clef__device *device) {
    static unsigned char host[300000], back[300000];
    bool good = true;
    for (size_t i = 0; i < sizeof host; i++) host[i] = (unsigned char)(i * 7);
    memset(back, 0, sizeof back);
    clef__buffer *a = clef__buffer_new(device, sizeof host), *b = clef__buffer_new(device, sizeof host);
    good = a && b && clef__buffer_fill(a, host, sizeof host) == CLEF_OK; /* a stage of its own */
    for (size_t at = 0; good && at < sizeof host; at += 60000)
        good = clef__buffer_write(a, at, host + at, 60000) == CLEF_OK; /* shared stages */
    good = good && clef__buffer_copy(b, 0, a, 0, sizeof host) == CLEF_OK && clef__flush(device) == CLEF_OK;
    good = good && clef__buffer_read(b, 0, back, sizeof back) == CLEF_OK;
    if (good && memcmp(host, back, sizeof host) != 0) {
        printf("wrong bytes without an error\n");
        exit(1);
    }
    clef__buffer_release(a);
    clef__buffer_release(b);
    return good;
}

/* What was kept is found, or there is an error. */
static bool keep_a_result(clef__device *device) {
    const clef__tuned t = {.family = "f", .kernel = "k", .dtype = "f32", .bucket = "b", .n_knobs = 1, .knob = {{"rows", 8}}};
    return clef__tuned_keep(device, &t, 1) == CLEF_OK && clef__tuned_find(device, &t);
}

static bool work(clef__device *device) {
    bool good =
        upload_and_copy(device) && keep_a_result(device) && add_works(device, add_source) && clef__finish(device) == CLEF_OK;
    return good && clef__kernel_new(device, "__kernel void g(__global int *x) { x[0] = nonesuch; }", "", "g") == NULL &&
           clef_error_status(device->ctx) == CLEF_BUILD;
}

/* A read for which no call could wait may still go on, into memory that is used again from here on. */
static void stop_failing(clef_context *ctx) {
    fail_no_more();
    clef_status status = clef_error_status(ctx);
    clef_synchronize(ctx);
    if (status == CLEF_OK) clef_clear_error(ctx);
}

/* One run with the N-th call failing.  Returns false when something is not as it must be. */
static bool run(long n, bool again) {
    fail_call(n, again);
    complete = false;
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = cache_dir});
    if (!ctx && clef_error_status(NULL) == CLEF_OK) return printf("open failed without an error\n"), false;
    if (ctx) {
        clef__device *device = clef__device_at(ctx, 0);
        complete = work(device);
        if (!complete && clef_error_status(ctx) == CLEF_OK) return printf("failed without an error\n"), false;
        stop_failing(ctx);
        clef_clear_error(ctx);
        if (!add_works(device, add_source)) return printf("does not recover: %s\n", clef_error(ctx)), false;
        if (ledger == 0 || live == 0) return printf("the calls were not seen\n"), false;
        clef_close(ctx);
    }
    fail_no_more();
    if (live || ledger) return printf("%ld allocations and %ld OpenCL objects leak\n", live, ledger), false;
    return true;
}

static bool sweep(bool of_opencl, bool again, int *runs) {
    opencl_faults = of_opencl;
    for (long n = 1;; n++, ++*runs) {
        if (!run(n, again)) {
            printf("%s call %ld %s\n", of_opencl ? "OpenCL" : "allocation", n, again ? "and all later ones" : "");
            return false;
        }
        if (!struck) return complete;
    }
}

/* ---- a step of training: a convolution, a view, a loss, backward, clipping, updates in place ---- */
enum { WEIGHTS = 2 * 9 + 2 + 8 * 3 + 3 };
typedef struct trainee {
    clef_module *net;
    clef_optimizer *opt;
} trainee;
static float weights[2][WEIGHTS]; /* of a run without failures, before and after the step */

static bool begin_training(clef_context *ctx, trainee *t) {
    *t = (trainee){0};
    clef_seed(ctx, 7);
    t->net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 2, 3, NULL), clef_nn_gelu(ctx), clef_nn_flatten(ctx),
                                              clef_nn_linear(ctx, 8, 3, NULL)));
    t->opt = clef_sgd(t->net, &(clef_sgd_options){.lr = 0.1, .momentum = 0.9});
    bool good = t->net && t->opt;
    for (int i = 0; good && i < 2; i++) /* what made the parameters goes: they can be updated in place */
        good = clef_scalar(ctx, i) && clef_end_step(ctx) == CLEF_OK;
    return good;
}

static bool step(clef_context *ctx, const trainee *t) {
    static const int64_t label[] = {0, 1, 2, 0};
    static float x[4 * 16];
    for (int i = 0; i < 4 * 16; i++) x[i] = (float)(i * 7 % 11) / 11;
    clef_tensor *in = clef_from_host(ctx, CLEF_SHAPE(4, 1, 4, 4), CLEF_F32, x);
    clef_tensor *target = clef_from_host(ctx, CLEF_SHAPE(4), CLEF_I64, label);
    clef_tensor *loss = clef_cross_entropy(clef_forward(t->net, in), target, NULL);
    return clef_backward(loss) == CLEF_OK && clef_clip_grad_norm(t->net, 1) && clef_step(t->opt) == CLEF_OK && clef_item(loss) > 0;
}

/* All parameters in one row; one that cannot be read becomes NaN. */
static bool read_weights(const trainee *t, float *row) {
    bool all = true;
    int at = 0;
    for (int i = 0; i < clef_module_tensors(t->net); i++) {
        clef_named_tensor w = clef_module_tensor(t->net, i);
        if (w.is_buffer) continue;
        int n = (int)clef_numel(w.tensor);
        bool good = clef_read(w.tensor, row + at, (size_t)n * sizeof *row) == CLEF_OK;
        for (int k = 0; !good && k < n; k++) row[at + k] = NAN;
        all &= good;
        at += n;
    }
    return all && at == WEIGHTS;
}

/* Has each parameter a value that it has without failures, too, before or after the step?  When
   OpenCL failed in the middle of a step, some may be lost; then reading them is an error. */
static bool in_a_known_state(const trainee *t, bool may_be_lost) {
    float row[WEIGHTS];
    bool all = read_weights(t, row), good = all || may_be_lost;
    for (int i = 0, at = 0; good && i < clef_module_tensors(t->net); i++) {
        clef_named_tensor w = clef_module_tensor(t->net, i);
        size_t n = w.is_buffer ? 0 : (size_t)clef_numel(w.tensor);
        good = (may_be_lost && isnan(row[at])) || memcmp(row + at, weights[0] + at, n * sizeof *row) == 0 ||
               memcmp(row + at, weights[1] + at, n * sizeof *row) == 0;
        if (!good)
            printf("%s has a value it never had: %g, and neither %g nor %g\n", w.name, row[at], weights[0][at], weights[1][at]);
        at += (int)n;
    }
    return good;
}

static bool train(clef_context *ctx, trainee *t) { return begin_training(ctx, t) && step(ctx, t); }

/* The next evaluation plans anew.  (Programs stay: loading them again would take most of the time.) */
static void forget_plans(clef_context *ctx) {
    ctx->room[CLEF__ROOM_PLAN].closer(ctx, ctx->room[CLEF__ROOM_PLAN].state);
    clef__set_room_state(ctx, CLEF__ROOM_PLAN, NULL, NULL);
}

static bool note_weights(clef_context *ctx) {
    trainee t;
    return begin_training(ctx, &t) && read_weights(&t, weights[0]) && step(ctx, &t) && read_weights(&t, weights[1]);
}

/* The N-th allocation or OpenCL call fails, in a context that lives on: what was being trained is
   left in a known state, and another training gives the numbers it gives without failures. */
static bool train_failing(clef_context *ctx, long n, bool again) {
    trainee first, second;
    float row[WEIGHTS];
    forget_plans(ctx);
    fail_call(n, again);
    complete = train(ctx, &first);
    stop_failing(ctx);
    if (complete == (clef_error_status(ctx) != CLEF_OK))
        return printf("%s\n", complete ? "an error nobody told of" : "failed without an error"), false;
    clef_clear_error(ctx);
    if (first.net && first.opt && !in_a_known_state(&first, opencl_faults))
        return printf("the parameters are lost: %s\n", clef_error(ctx)), false;
    clef_clear_error(ctx);
    if (!train(ctx, &second) || !read_weights(&second, row)) return printf("does not recover: %s\n", clef_error(ctx)), false;
    return memcmp(row, weights[1], sizeof row) == 0 || (printf("recovers with other numbers\n"), false);
}

/* ---- two updates in place, of two dtypes so that each is a launch of its own, and of which each wants the other's former value ---- */

static bool update_both(clef_context *ctx, clef_tensor *a, clef_tensor *b) {
    clef_tensor *to_a = clef_to(clef_sum(b, NULL, 0, false), CLEF_F32), *to_b = clef_to(clef_sum(a, NULL, 0, false), CLEF_I32);
    return clef_assign(a, clef_add(a, to_a)) == CLEF_OK && clef_assign(b, clef_add(b, to_b)) == CLEF_OK &&
           clef_end_step(ctx) == CLEF_OK;
}

/* A call fails between them: the second can have no value any more, but the context goes on. */
static bool update_failing(clef_context *ctx, long n, bool again) {
    clef_tensor *a = clef_keep(clef_ones(ctx, CLEF_SHAPE(300), CLEF_F32)),
                *b = clef_keep(clef_ones(ctx, CLEF_SHAPE(200), CLEF_I32));
    bool made = clef_eval(a) == CLEF_OK && clef_eval(b) == CLEF_OK;
    for (int i = 0; made && i < 2; i++) made = clef_scalar(ctx, i) && clef_end_step(ctx) == CLEF_OK; /* what made them goes */
    forget_plans(ctx);
    fail_call(n, again);
    complete = update_both(ctx, a, b);
    stop_failing(ctx);
    clef_clear_error(ctx);
    bool goes_on = made && clef_item(clef_add(clef_scalar(ctx, 1), clef_scalar(ctx, 2))) == 3 && clef_end_step(ctx) == CLEF_OK;
    if (!goes_on) printf("other steps fail: %s\n", clef_error(ctx));
    clef_release(a);
    clef_release(b);
    return goes_on;
}

/* ---- inference: weights that stay for a while, so that what is packed from them stays too ---- */
enum { LEAST = 8, MOST = 12, INPUTS = 24, OUTPUTS = 40 };

static const char turns[] =
    "0001000110"; /* kept, given back; where that fails, the old ones come back, or the new ones once more */

static clef_tensor *same_rows(clef_context *ctx, int rows, float first, float step) {
    float data[OUTPUTS * INPUTS];
    for (int i = 0; i < rows * INPUTS; i++) data[i] = first + step * (float)(i / INPUTS);
    return clef_from_host(ctx, CLEF_SHAPE(rows, INPUTS), CLEF_F32, data);
}

/* y = x·wᵀ, read; false if it is another than it must be.  x: `items` rows of x0; which: the weights. */
static bool answer(clef_context *ctx, clef_tensor *const *weight, int which, int items, int x0, int *failed) {
    float y[MOST * OUTPUTS];
    size_t bytes = (size_t)(items * OUTPUTS) * sizeof *y;
    bool good = clef_read(clef_linear(same_rows(ctx, items, (float)x0, 0), weight[which], CLEF_NONE), y, bytes) == CLEF_OK;
    bool right = good == (clef_error_status(ctx) == CLEF_OK);
    for (int i = 0; good && i < items * OUTPUTS; i++)
        right &= y[i] == (float)(INPUTS * x0 * (which ? 100 - i % OUTPUTS : i % OUTPUTS));
    *failed += !good;
    clef_clear_error(ctx);
    return right;
}

/* Calls with two sets of weights, and with the other one of another plan, which uses the same
   temporary memory.  One that fails is `failed`; false if another answers wrong, or an error and its line do not come together. */
static bool answer_all(clef_context *ctx, int *failed) {
    clef_tensor *weight[2] = {clef_keep(same_rows(ctx, OUTPUTS, 0, 1)), clef_keep(same_rows(ctx, OUTPUTS, 100, -1))};
    bool made = weight[0] && weight[1], right = true;
    *failed = !made;
    for (int call = 0; made && turns[call]; call++) {
        int which = turns[call] - '0';
        right &= answer(ctx, weight, which, LEAST, call + 1, failed) && answer(ctx, weight, !which, MOST, call + 1, failed);
        *failed += clef_end_step(ctx) != CLEF_OK;
        clef_clear_error(ctx);
    }
    for (int i = 0; i < 2; i++) clef_release(weight[i]);
    return right;
}

static bool answer_failing(clef_context *ctx, long n, bool again) {
    int failed;
    forget_plans(ctx);
    fail_call(n, again);
    bool right = answer_all(ctx, &failed);
    complete = !failed;
    stop_failing(ctx);
    clef_clear_error(ctx);
    right = right && answer_all(ctx, &failed) && !failed;
    return right || (printf("wrong answers, or errors where there are none: %s\n", clef_error(ctx)), false);
}

#if defined(__SANITIZE_ADDRESS__)
enum { DENSE = 16 }; /* each takes long there, and is tried without sanitizers too */
#else
enum { DENSE = 64 };
#endif

/* Every one of the first, then more and more thinly; all with CLEF_TEST_ALL=1. */
static long next(long n) {
    const char *all = getenv("CLEF_TEST_ALL");
    return n + 1 + (all && *all == '1' ? 0 : n / DENSE);
}

typedef bool failing_work(clef_context *ctx, long n, bool again);
static const char *what_fails(failing_work *work) {
    return work == train_failing ? "training" : work == answer_failing ? "inference" : "updates";
}

/* `failing` with a failure at the N-th call, for all N. */
static bool living_on(failing_work *failing, bool of_opencl, bool again, int *runs) {
    opencl_faults = of_opencl;
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = cache_dir});
    bool good = note_weights(ctx);
    if (!good) printf("training fails untouched: %s\n", clef_error(ctx));
    struck = true;
    for (long n = 1; good && struck; n = next(n), ++*runs) {
        good = failing(ctx, n, again);
        if (!good)
            printf("%s, %s %ld%s\n", what_fails(failing), of_opencl ? "OpenCL call" : "allocation", n,
                   again ? " and all later ones" : "");
    }
    clef_close(ctx);
    if (live || ledger) printf("%ld allocations and %ld OpenCL objects leak\n", live, ledger);
    return good && complete && live == 0 && ledger == 0;
}

/* Calls fail at random while bytes move: some uploads fail, but none succeeds with wrong bytes
   (upload_and_copy looks). */
static bool weather(void) {
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = ""});
    int good = 0;
    opencl_faults = true;
    for (uint32_t i = 0; i < 1000; i++) {
        storm = i + 1;
        good += upload_and_copy(clef__device_at(ctx, 0));
    }
    storm = 0;
    good += upload_and_copy(clef__device_at(ctx, 0));
    clef_close(ctx);
    printf("%d of 1000 uploads passed the storm\n", good - 1);
    return good > 1 && good < 1000 && live == 0 && ledger == 0;
}

/* A buffer that had to be cut short of its size class must not be handed out for more than it holds. */
static bool short_buffer(void) {
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = ""});
    clef__device *device = clef__device_at(ctx, 0);
    opencl_faults = true;
    clef__buffer *whole = clef__buffer_new(device, 1100000);
    size_t size = clef__buffer_size(whole), cut_size;
    fail_call(1, false);
    clef__buffer *cut = clef__buffer_new(device, 1100000);
    cut_size = clef__buffer_size(cut);
    clef__buffer_release(cut);
    clef__buffer *next = clef__buffer_new(device, size);
    bool good = cut_size >= 1100000 && cut_size < size && clef__buffer_size(next) >= size;
    clef__buffer_release(whole);
    clef__buffer_release(next);
    clef_close(ctx);
    if (!good) printf("a buffer of %zu bytes was cut to %zu and handed out for %zu\n", size, cut_size, size);
    return good;
}

/* A plan whose packed weights could be kept, but for want of memory: the same answer without the copy, and no error. */
static bool copies_are_not_needed(void) {
    enum { ROWS = 20, DEPTH = 96, COLUMNS = 200 };
    static float first[ROWS * COLUMNS], later[ROWS * COLUMNS];
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = cache_dir, .seed = 1});
    clef_tensor *w = clef_keep(clef_rand(ctx, CLEF_SHAPE(COLUMNS, DEPTH))), *x = clef_keep(clef_rand(ctx, CLEF_SHAPE(ROWS, DEPTH)));
    opencl_faults = false;
    bool good = true;
    for (int i = 0; good && i < 5; i++) {
        good = clef_read(clef_linear(x, w, CLEF_NONE), i ? later : first, sizeof first) == CLEF_OK &&
               clef_end_step(ctx) == CLEF_OK && (i == 0 || memcmp(first, later, sizeof first) == 0);
        buffers_fail = i > 0; /* w and x are there since the first step, what their plan needs lies in the pool since the second */
    }
    buffers_fail = false;
    good = good && clef_error_status(ctx) == CLEF_OK;
    if (!good) printf("without memory for a copy: %s\n", clef_error(ctx));
    clef_close(ctx);
    return good;
}

int main(void) {
    int runs = 0;
    const char *dir = cache_dir = temporary_dir();
    setenv("CLEF_CACHE", "force", 1);
    setenv("CLEF_COMPILE_THREADS", "1", 1); /* calls are counted without a lock */
    clef_set_allocator(&(clef_allocator){take, retake, drop, NULL});
    clef_context *ctx = clef_open(NULL); /* the list of devices stays with the process */
    if (!ctx) return without_context();
    clef_close(ctx);
    live = ledger = 0;
    bool good = sweep(false, false, &runs) && sweep(false, true, &runs) && sweep(true, false, &runs) && sweep(true, true, &runs);
    setenv("CLEF_PINNED", "1", 1); /* uploads through the driver's memory, and beside kernels */
    good = good && sweep(false, false, &runs) && sweep(true, false, &runs) && sweep(true, true, &runs) && weather();
    unsetenv("CLEF_PINNED");
    for (int i = 0; good && i < 3; i++)
        good = living_on(train_failing, i == 2, i == 1, &runs) && living_on(answer_failing, i == 2, i == 1, &runs) &&
               living_on(update_failing, i == 2, i == 1, &runs);
    cache_dir = ""; /* once more without the cache, through the compiler */
    good = good && sweep(true, false, &runs);
    good = good && short_buffer() && weather() && copies_are_not_needed();
    printf("%d failures injected: %s\n", runs, good ? "all handled" : "not all handled");
    remove_dir(dir);
    return !good;
}
