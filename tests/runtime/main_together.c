/* Contexts opened together, each used by a thread of its own at the same time on the two halves of a device: they train to the bits of
   a context alone, and compile together as many programs as it does.  Then they close in every order, while the rest goes on, and all
   at once.  For ThreadSanitizer, too.
   ctest: labels=threads plain */
#include "runtime_support.h"
#include "support/io_files.h"
#include "support/plain.h"

enum { RANKS = 4, STEPS = 4, ITEMS = 8, PIXELS = 64, CLASSES = 10, ORDERS = 24, AT_ONCE = 6 };
static const char *const halves[RANKS] = {"0/2#0", "0/2#1", "0/2#0", "0/2#1"};
static pthread_barrier_t start;

typedef struct rank {
    clef_context *ctx;
    pthread_t thread;
    const char *source;
    float losses[STEPS];
    bool works;
} rank;

/* ---- what each does ---- */

static void train(rank *r) {
    static const int64_t label[ITEMS] = {0, 1, 2, 3, 4, 5, 6, 7};
    float x[ITEMS * PIXELS];
    clef_context *ctx = r->ctx;
    for (int i = 0; i < ITEMS * PIXELS; i++) x[i] = (float)(i * 7 % 17) / 17;
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 4, 3, NULL), clef_nn_gelu(ctx), clef_nn_flatten(ctx),
                                                        clef_nn_linear(ctx, 4 * 6 * 6, CLASSES, NULL)));
    clef_optimizer *optimizer = clef_adam(net, NULL);
    for (int i = 0; i < STEPS; i++) {
        clef_tensor *in = clef_from_host(ctx, CLEF_SHAPE(ITEMS, 1, 8, 8), CLEF_F32, x);
        clef_tensor *target = clef_from_host(ctx, CLEF_SHAPE(ITEMS), CLEF_I64, label);
        clef_tensor *loss = clef_cross_entropy(clef_forward(net, in), target, NULL);
        clef_backward(loss);
        clef_step(optimizer);
        r->losses[i] = (float)clef_item(loss);
    }
}

static void *train_with_others(void *user) {
    rank *r = user;
    pthread_barrier_wait(&start);
    train(r);
    return NULL;
}

static void *add(void *user) {
    rank *r = user;
    r->works = add_works(clef__device_at(r->ctx, 0), r->source);
    return NULL;
}

static void *compile_and_close(void *user) {
    rank *r = user;
    pthread_barrier_wait(&start);
    add(r);
    clef_close(r->ctx);
    return NULL;
}

/* In a thread for each that is open. */
static void run_all(rank *ranks, void *(*what)(void *)) {
    for (int i = 0; i < RANKS; i++)
        if (ranks[i].ctx && !EXPECT(pthread_create(&ranks[i].thread, NULL, what, &ranks[i]) == 0)) exit(1);
    for (int i = 0; i < RANKS; i++)
        if (ranks[i].ctx) pthread_join(ranks[i].thread, NULL);
}

static clef_status open_ranks(rank *ranks) {
    clef_options options[RANKS] = {{0}};
    clef_context *ctx[RANKS];
    for (int i = 0; i < RANKS; i++) options[i] = (clef_options){.device = halves[i], .seed = 5};
    clef_status status = clef_open_all(options, RANKS, ctx);
    for (int i = 0; i < RANKS; i++) ranks[i].ctx = ctx[i];
    return status;
}

static uint64_t built(const rank *ranks) {
    uint64_t sum = 0;
    for (int i = 0; i < RANKS; i++) sum += clef_counters_get(ranks[i].ctx).kernels_built;
    return sum;
}

static bool in_one(const rank *ranks) {
    return clef__device_at(ranks[0].ctx, 0)->context == clef__device_at(ranks[1].ctx, 0)->context;
}

/* ---- they train ---- */

static void train_all(bool shared) {
    static rank ranks[RANKS], alone;
    EXPECT(open_ranks(ranks) == CLEF_OK && in_one(ranks) == shared);
    alone.ctx = clef_open(&(clef_options){.device = halves[0], .seed = 5});
    if (!EXPECT(alone.ctx)) return;
    train(&alone);
    uint64_t wanted = clef_counters_get(alone.ctx).kernels_built;
    run_all(ranks, train_with_others);
    for (int i = 0; i < RANKS; i++) {
        EXPECT(clef_error_status(ranks[i].ctx) == CLEF_OK);
        EXPECT(memcmp(ranks[i].losses, alone.losses, sizeof alone.losses) == 0);
    }
    EXPECT(alone.losses[0] > alone.losses[STEPS - 1] && wanted > 0);
    int queues = clef__driver_of(&clef__device_at(alone.ctx, 0)->info).queues; /* that run the same programs; 0: all */
    int copies = shared ? (queues ? (RANKS + queues - 1) / queues : 1) : RANKS;
    EXPECT(built(ranks) == (uint64_t)copies * wanted);
    printf("together: loss %.9g, %llu programs built alone, %llu by %d contexts\n", (double)alone.losses[STEPS - 1],
           (unsigned long long)wanted, (unsigned long long)built(ranks), RANKS);
    for (int i = 0; i < RANKS; i++) clef_close(ranks[i].ctx);
    clef_close(alone.ctx);
}

/* ---- they close ---- */

/* The number-th permutation. */
static void order_of(int number, int order[RANKS]) {
    for (int i = 0; i < RANKS; i++) order[i] = i;
    for (int i = 0; i < RANKS; i++) {
        int k = i + number % (RANKS - i), taken = order[k];
        number /= RANKS - i;
        order[k] = order[i];
        order[i] = taken;
    }
}

/* Those that are left compute, each in its thread, with a program that is news and, for half of them, the same. */
static void go_on(rank *ranks, int turn) {
    static char source[2][128];
    for (int i = 0; i < 2; i++)
        snprintf(source[i], sizeof source[i],
                 "__kernel void add(__global float *x, float y) { x[get_global_id(0)] += y + 0 * %d; }", 2 * turn + i);
    for (int i = 0; i < RANKS; i++) {
        ranks[i].works = true;
        ranks[i].source = source[i / 2];
    }
    run_all(ranks, add);
    for (int i = 0; i < RANKS; i++) EXPECT(ranks[i].works);
}

static void close_in_order(int number) {
    rank ranks[RANKS] = {{0}};
    int order[RANKS];
    order_of(number, order);
    if (!EXPECT(open_ranks(ranks) == CLEF_OK)) return;
    for (int i = 0; i < RANKS; i++) {
        go_on(ranks, i);
        clef_close(ranks[order[i]].ctx);
        ranks[order[i]].ctx = NULL;
    }
}

static void close_at_once(void) {
    rank ranks[RANKS] = {{0}};
    if (!EXPECT(open_ranks(ranks) == CLEF_OK)) return;
    for (int i = 0; i < RANKS; i++) ranks[i].source = add_source;
    run_all(ranks, compile_and_close);
    for (int i = 0; i < RANKS; i++) EXPECT(ranks[i].works);
}

/* With the OpenCL context shared, or with one for each. */
static int run(const char *probe, bool shared) {
    rank ranks[RANKS];
    setenv("CLEF_PROBE", probe, 1);
    clef_status status = open_ranks(ranks);
    if (status == CLEF_UNSUPPORTED) return printf("skipped: %s\n", clef_error(NULL)), 77;
    if (status) return without_context();
    bool as_wanted = in_one(ranks) == shared;
    for (int i = 0; i < RANKS; i++) clef_close(ranks[i].ctx);
    if (!as_wanted) return printf("skipped: the driver stands no sharing\n"), 77;
    train_all(shared);
    for (int i = 0; i < (shared ? ORDERS : 1); i++) close_in_order(i);
    for (int i = 0; i < AT_ONCE; i++) close_at_once();
    return io_failures != 0;
}

int main(void) {
    setenv("POCL_MAX_PTHREAD_COUNT", "2", 0); /* two units, and parts, on a machine with one core too */
    setenv("CLEF_CACHE_DIR", "", 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    pthread_barrier_init(&start, NULL, RANKS);
    int apart = run("0", false);
    int status = apart ? apart : run(CLEF_TEST_BUILD "/clef-probe", true);
    pthread_barrier_destroy(&start);
    return status;
}
