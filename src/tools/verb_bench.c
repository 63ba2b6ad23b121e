/* verb_bench.c — clef bench: what this device gives to Clef, in figures that can be compared.

   Each figure is the median of repetitions that together take about --seconds; compiling and two warm-up runs come before.
   Work is queued and waited for once per repetition, through the public API only. */
#include "tool.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct bench_options {
    common_options common;
    double seconds;
} bench_options;
static bench_options o = {.seconds = 0.5};

static const arg args[] = {
    {"seconds", ARG_NUMBER, "X", offsetof(bench_options, seconds), "to spend on each figure; default 0.5"},
    COMMON_ARGS};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One thing to measure: `once` queues a repetition; `work` is its bytes, operations or images, shown × scale as unit. */
typedef struct bench {
    const char *name, *shape, *unit;
    double work, scale;
    bool (*once)(void *state);
    void *state;
} bench;

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool timed(clef_context *ctx, const bench *b, double *seconds) {
    double start = now();
    if (!b->once(b->state) || clef_end_step(ctx) || clef_synchronize(ctx)) return false;
    *seconds = now() - start;
    return true;
}

static bool median(clef_context *ctx, const bench *b, double *result) {
    enum { MOST = 1000, LEAST = 3, WARM_UPS = 2 };
    static double samples[MOST];
    int n = 0;
    for (int i = 0; i < WARM_UPS; i++)
        if (!timed(ctx, b, &samples[0])) return false;
    for (double end = now() + o.seconds; n < MOST && (n < LEAST || now() < end); n++)
        if (!timed(ctx, b, &samples[n])) return false;
    qsort(samples, (size_t)n, sizeof *samples, by_size);
    *result = samples[n / 2];
    return true;
}

static bool report(clef_context *ctx, const bench *b) {
    double seconds;
    if (!median(ctx, b, &seconds)) return false;
    double rate = b->work * b->scale / seconds;
    if (!o.common.json) {
        printf("%-8s %-28s %10.3f ms %10.1f %s\n", b->name, b->shape, 1e3 * seconds, rate, b->unit);
        fflush(stdout);
        return true;
    }
    json j = json_begin(stdout);
    json_text(&j, "event", "result");
    json_text(&j, "name", b->name);
    json_text(&j, "shape", b->shape);
    json_number(&j, "seconds", seconds);
    json_number(&j, "rate", rate);
    json_text(&j, "unit", b->unit);
    json_end(&j);
    return true;
}

/* ---- the figures ---- */
typedef struct operands {
    clef_context *ctx;
    clef_tensor *a, *b;
    clef_module *net;
    clef_optimizer *optimizer;
} operands;

static clef_tensor *random_kept(clef_context *ctx, clef_shape shape) {
    clef_tensor *t = clef_randn(ctx, shape);
    return t ? clef_keep(t) : NULL;
}

static bool queue(clef_tensor *t) { return t && clef_eval(t) == CLEF_OK; }

static bool copy_once(void *state) { return queue(clef_add_scalar(((operands *)state)->a, 1)); }

static bool copy(clef_context *ctx) {
    operands s = {.ctx = ctx, .a = random_kept(ctx, CLEF_SHAPE(16 << 20))};
    bool ok = report(ctx, &(bench){"copy", "64 MiB read, 64 MiB written", "GB/s", 2.0 * (64 << 20), 1e-9, copy_once, &s});
    clef_release(s.a);
    return ok;
}

/* Independent chains of multiply-adds for each element, short enough that a CPU sees many of them at once and that
   compilers keep the whole expression in registers. */
enum { CHAINS = 12, CHAIN_LENGTH = 12 };

/* "fma(fma(x, x, K(0.01f)), x, K(0.01f)) + fma(…": chain c is y := y·x + c/100. */
static const char *chains_text(void) {
    static char text[CHAINS * CHAIN_LENGTH * 24];
    char *end = text;
    for (int c = 1; c <= CHAINS; c++) {
        end += sprintf(end, c > 1 ? " + " : "");
        for (int i = 0; i < CHAIN_LENGTH; i++) end += sprintf(end, "fma(");
        end += sprintf(end, "x");
        for (int i = 0; i < CHAIN_LENGTH; i++) end += sprintf(end, ", x, K(0.%02df))", c);
    }
    return text;
}

static bool fma_once(void *state) {
    static clef_custom_op op = {.name = "fma_chains"};
    if (!op.forward) op.forward = chains_text();
    return queue(clef_custom(&op, (clef_tensor *[]){((operands *)state)->a}, 1));
}

static bool fma_peak(clef_context *ctx) {
    enum { N = 1 << 19 };
    operands s = {.ctx = ctx, .a = random_kept(ctx, CLEF_SHAPE(N))};
    double work = 2.0 * N * CHAINS * CHAIN_LENGTH;
    bool ok = report(ctx, &(bench){"fma", "12 chains of 12, 512 Ki times", "GFLOP/s", work, 1e-9, fma_once, &s});
    clef_release(s.a);
    return ok;
}

static bool matmul_once(void *state) {
    operands *s = state;
    return queue(clef_matmul(s->a, s->b));
}

static bool matmul(clef_context *ctx) {
    static const struct {
        int64_t n;
        const char *shape;
    } sizes[] = {{256, "256 x 256 x 256"}, {1024, "1024 x 1024 x 1024"}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t n = sizes[i].n;
        operands s = {.ctx = ctx, .a = random_kept(ctx, CLEF_SHAPE(n, n)), .b = random_kept(ctx, CLEF_SHAPE(n, n))};
        double work = 2.0 * (double)n * (double)n * (double)n;
        bool ok = report(ctx, &(bench){"matmul", sizes[i].shape, "GFLOP/s", work, 1e-9, matmul_once, &s});
        clef_release(s.a);
        clef_release(s.b);
        if (!ok) return false;
    }
    return true;
}

static bool conv_once(void *state) {
    operands *s = state;
    return queue(clef_conv2d(s->a, s->b, &(clef_conv2d_options){.padding = {1, 1}}));
}

static bool conv2d(clef_context *ctx) {
    enum { N = 8, C = 64, SIDE = 56 };
    operands s = {.ctx = ctx, .a = random_kept(ctx, CLEF_SHAPE(N, C, SIDE, SIDE)), .b = random_kept(ctx, CLEF_SHAPE(C, C, 3, 3))};
    double work = 2.0 * N * C * C * 9 * SIDE * SIDE;
    bool ok = report(ctx, &(bench){"conv2d", "8x64x56x56, 64 of 3x3", "GFLOP/s", work, 1e-9, conv_once, &s});
    clef_release(s.a);
    clef_release(s.b);
    return ok;
}

static bool train_once(void *state) {
    operands *s = state;
    clef_tensor *loss = clef_cross_entropy(clef_forward(s->net, s->a), s->b, NULL);
    return loss && !clef_backward(loss) && !clef_step(s->optimizer);
}

static bool training(clef_context *ctx) {
    enum { BATCH = 100 };
    int64_t labels[BATCH];
    for (int i = 0; i < BATCH; i++) labels[i] = i % 10;
    operands s = {.ctx = ctx, .a = random_kept(ctx, CLEF_SHAPE(BATCH, 1, 28, 28))};
    clef_tensor *y = clef_from_host(ctx, CLEF_SHAPE(BATCH), CLEF_I64, labels);
    s.b = y ? clef_keep(y) : NULL;
    s.net = clef_model_lenet(ctx, CLEF_SHAPE(1, 28, 28), 10);
    s.optimizer = s.net ? clef_sgd(s.net, &(clef_sgd_options){.lr = 0.01, .momentum = 0.9}) : NULL;
    if (!s.optimizer) return false;
    bool ok = report(ctx, &(bench){"train", "LeNet, 100 images a step", "images/s", BATCH, 1, train_once, &s});
    clef_release(s.a);
    clef_release(s.b);
    return ok;
}

static const struct {
    const char *name;
    bool (*run)(clef_context *ctx);
} figures[] = {{"copy", copy}, {"fma", fma_peak}, {"matmul", matmul}, {"conv2d", conv2d}, {"train", training}};

static int run(const char *operand) {
    int code = EXIT_OK;
    clef_context *ctx = tool_open("bench", &o.common, &code);
    if (!ctx) return code;
    if (!o.common.quiet) fprintf(stderr, "device %s\n", tool_device_name(ctx));
    for (size_t i = 0; i < sizeof figures / sizeof *figures && code == EXIT_OK; i++)
        if ((!operand || !strcmp(operand, figures[i].name)) && !figures[i].run(ctx)) code = tool_failed("bench", ctx);
    clef_close(ctx);
    return code;
}

const verb verb_bench = {"bench", "copy|fma|matmul|conv2d|train", "Measure this device through Clef.", args, &o, run};
