/* bench_clef.c — Clef's side of bench/compare.py: reads cases, times them, answers.

   Protocol, shared by every peer: on start one line "ready NAME VERSION | DEVICE"; then for each line of standard input, a
   suite and key=value pairs ("gemm m=512 n=512 k=512 ta=0 tb=1 calls=20"), one line: "seconds S" (of one call, the mean over
   `calls` queued calls that are waited for once), or "skip REASON".  Operands are random, and enough copies of them are used in
   turn that none is still in a cache.

   With ways=1 in the line nothing is timed: the answer is "rows" and what the library logs of its choices, one after the other:
   "matmul: gemm of dot=3e-05 gemm=2e-05 seconds; ".  With copies=N there are so many copies of the operands.  precision=high or highest:
   how products of f32 are computed (clef_set_matmul_precision); CLEF_MATMUL_PRECISION unless given. */
#include "clef.h"
#include "job.h"
#include "suite_lm.h"
#include "suite_ops.h"
#include "suite_rnn.h"
#include "fma_chains.h"

/* ---- gemm ---- */

static clef_tensor *run_gemm(const job *j, clef_tensor *const *x) {
    clef_tensor *a = number(j->line, "ta", 0) != 0 ? clef_transpose(x[0], 0, 1) : x[0];
    clef_tensor *b = number(j->line, "tb", 0) != 0 ? clef_transpose(x[1], 0, 1) : x[1];
    return clef_matmul(a, b);
}

static void gemm(const char *line) {
    int64_t m = (int64_t)number(line, "m", 1), n = (int64_t)number(line, "n", 1), k = (int64_t)number(line, "k", 1);
    job j = {.line = line, .run = run_gemm};
    clef_shape shape[] = {number(line, "ta", 0) != 0 ? CLEF_SHAPE(k, m) : CLEF_SHAPE(m, k),
                          number(line, "tb", 0) != 0 ? CLEF_SHAPE(n, k) : CLEF_SHAPE(k, n)};
    make_inputs(&j, 2, shape);
    answer(&j);
}

/* ---- convolution: dir = forward, data or weight; nchw=1: images and filters lie as a user's own do, not channels-last ---- */

static clef_tensor *run_conv(const job *j, clef_tensor *const *x) {
    char dir[16] = "forward";
    word(j->line, "dir", dir, sizeof dir);
    int stride = (int)number(j->line, "stride", 1), pad = (int)number(j->line, "pad", 0);
    clef_conv2d_options options = {.stride = {stride, stride}, .padding = {pad, pad}, .groups = (int)number(j->line, "groups", 1)};
    if (strcmp(dir, "forward") == 0) return clef_conv2d(x[0], x[1], CLEF_NONE, &options);
    clef_tensor *of = strcmp(dir, "data") == 0 ? x[0] : x[1], *dx = NULL;
    bool was = clef_set_grad_enabled(ctx, true);
    clef_require_grad(of, true);
    clef_tensor *y = clef_conv2d(x[0], x[1], CLEF_NONE, &options);
    clef_grad(y, x[2], &of, 1, false, &dx);
    clef_require_grad(of, false);
    clef_set_grad_enabled(ctx, was);
    return dx;
}

/* Images and filters lie as they do in a training step after its first update, channels last; the peers choose their layouts too.
 */
static void put_channels_last(job *j) {
    static const int order[3][4] = {{0, 3, 1, 2}, {3, 2, 0, 1}, {0, 3, 1, 2}}; /* of n,h,w,c  kh,kw,c,o  n,h,w,c */
    for (int c = 0; c < j->copies; c++)
        for (int i = 0; i < 3; i++) {
            clef_shape shape = clef_tensor_shape(j->input[c][i]), lies = shape;
            for (int d = 0; d < 4; d++) lies.dim[order[i][d]] = shape.dim[d];
            clef_tensor *turned = clef_keep(clef_permute(clef_reshape(j->input[c][i], lies), order[i]));
            clef_eval(turned);
            clef_release(j->input[c][i]);
            j->input[c][i] = turned;
        }
    clef_end_step(ctx);
}

static void conv(const char *line) {
    int64_t n = (int64_t)number(line, "n", 1), c = (int64_t)number(line, "c", 1), h = (int64_t)number(line, "h", 1),
            w = (int64_t)number(line, "w", 1), o = (int64_t)number(line, "o", 1), kh = (int64_t)number(line, "kh", 1),
            kw = (int64_t)number(line, "kw", 1), stride = (int64_t)number(line, "stride", 1), pad = (int64_t)number(line, "pad", 0),
            groups = (int64_t)number(line, "groups", 1);
    job j = {.line = line, .run = run_conv};
    clef_shape shape[] = {CLEF_SHAPE(n, c, h, w), CLEF_SHAPE(o, c / groups, kh, kw),
                          CLEF_SHAPE(n, o, (h + 2 * pad - kh) / stride + 1, (w + 2 * pad - kw) / stride + 1)};
    make_inputs(&j, 3, shape);
    if (number(line, "nchw", 0) == 0) put_channels_last(&j);
    answer(&j);
}

/* ---- pointwise chains, reductions, normalisation ---- */

/* ops steps on x [rows, columns], a broadcast row and a broadcast column in turn. */
static clef_tensor *run_pointwise(const job *j, clef_tensor *const *x) {
    clef_tensor *y = x[0];
    int ops = (int)number(j->line, "ops", 1);
    for (int i = 0; i < ops; i++) {
        switch (i % 4) {
        case 0: y = clef_add(y, x[1]); break;
        case 1: y = clef_mul(y, x[2]); break;
        case 2: y = clef_relu(y); break;
        default: y = clef_sub(y, x[0]);
        }
    }
    return y;
}

static void pointwise(const char *line) {
    int64_t rows = (int64_t)number(line, "rows", 1), columns = (int64_t)number(line, "columns", 1);
    job j = {.line = line, .run = run_pointwise};
    clef_shape shape[] = {CLEF_SHAPE(rows, columns), CLEF_SHAPE(columns), CLEF_SHAPE(rows, 1)};
    make_inputs(&j, 3, shape);
    answer(&j);
}

/* One row of the unary table, with parameters of 0.5, or -0.5 and 0.5. */
static clef_tensor *run_unary(const job *j, clef_tensor *const *x) {
    char op[16] = "";
    word(j->line, "op", op, sizeof op);
#define UNARY(name, ...) \
    if (strcmp(op, #name) == 0) return clef_##name(x[0]);
#define UNARY_P(name, ...) \
    if (strcmp(op, #name) == 0) return clef_##name(x[0], 0.5);
#define UNARY_PP(name, ...) \
    if (strcmp(op, #name) == 0) return clef_##name(x[0], -0.5, 0.5);
#include "../cl/unary.def"
    return NULL;
}

static void unary(const char *line) {
    job j = {.line = line, .run = run_unary};
    make_inputs(&j, 1, (clef_shape[]){CLEF_SHAPE((int64_t)number(line, "rows", 1), (int64_t)number(line, "columns", 1))});
    answer(&j);
}

static clef_tensor *run_reduce(const job *j, clef_tensor *const *x) {
    char op[16] = "sum";
    word(j->line, "op", op, sizeof op);
    int dim = (int)number(j->line, "dim", 1);
    if (strcmp(op, "max") == 0) return clef_max(x[0], &dim, 1, false);
    if (strcmp(op, "softmax") == 0) return clef_softmax(x[0], dim);
    return clef_sum(x[0], &dim, 1, false);
}

static void reduce(const char *line) {
    job j = {.line = line, .run = run_reduce};
    clef_shape shape[] = {CLEF_SHAPE((int64_t)number(line, "rows", 1), (int64_t)number(line, "columns", 1))};
    make_inputs(&j, 1, shape);
    answer(&j);
}

static clef_tensor *run_norm(const job *j, clef_tensor *const *x) {
    char op[16] = "layer";
    word(j->line, "op", op, sizeof op);
    if (strcmp(op, "layer") == 0) return clef_layer_norm(x[0], 1, x[1], x[2], 1e-5);
    return clef_batch_norm(x[0], x[1], x[2], clef_copy(x[1]), clef_copy(x[2]), true, 0.1, 1e-5);
}

static void norm(const char *line) {
    char op[16] = "layer";
    word(line, "op", op, sizeof op);
    job j = {.line = line, .run = run_norm};
    int64_t rows = (int64_t)number(line, "rows", 1), columns = (int64_t)number(line, "columns", 1),
            side = (int64_t)number(line, "side", 1);
    bool layer = strcmp(op, "layer") == 0;
    clef_shape shape[] = {layer ? CLEF_SHAPE(rows, columns) : CLEF_SHAPE(rows, columns, side, side), CLEF_SHAPE(columns),
                          CLEF_SHAPE(columns)};
    make_inputs(&j, 3, shape);
    answer(&j);
}

/* ---- attention: dir = forward, or both: the gradients of q, k and v too ---- */

static clef_tensor *run_attention(const job *j, clef_tensor *const *x) {
    char dir[16] = "forward";
    word(j->line, "dir", dir, sizeof dir);
    bool both = strcmp(dir, "both") == 0, was = clef_set_grad_enabled(ctx, both);
    clef_attention_options options = {.causal = number(j->line, "causal", 0) != 0};
    clef_tensor *all[4] = {NULL};
    for (int i = 0; i < 3; i++) clef_require_grad(x[i], both);
    all[3] = clef_attention(x[0], x[1], x[2], &options);
    if (both) clef_grad(all[3], x[3], x, 3, false, all);
    clef_set_grad_enabled(ctx, was);
    if (both) clef_eval_all(all, 4);
    return all[3];
}

static void attention(const char *line) {
    int64_t b = (int64_t)number(line, "b", 1), h = (int64_t)number(line, "h", 1), tq = (int64_t)number(line, "t", 1),
            tk = (int64_t)number(line, "keys", (double)tq), d = (int64_t)number(line, "d", 64);
    job j = {.line = line, .run = run_attention};
    clef_shape shape[] = {CLEF_SHAPE(b, h, tq, d), CLEF_SHAPE(b, h, tk, d), CLEF_SHAPE(b, h, tk, d), CLEF_SHAPE(b, h, tq, d)};
    make_inputs(&j, 4, shape);
    answer(&j);
}

/* ---- training steps: `calls` steps on random batches already on the device ---- */

static clef_module *make_model(const char *name, clef_shape input) {
    if (strcmp(name, "lenet") == 0) return clef_model_lenet(ctx, input, 10);
    if (strcmp(name, "cnn") == 0) return clef_model_cnn(ctx, input, 10);
    if (strcmp(name, "resnet18") == 0) return clef_model_resnet18(ctx, input, 10);
    if (strcmp(name, "mlp") == 0) return clef_model_mlp(ctx, input, 10);
    if (strcmp(name, "mlp3") != 0) return NULL;
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, clef_shape_numel(input), 1024, NULL),
                                            clef_nn_relu(ctx), clef_nn_linear(ctx, 1024, 1024, NULL), clef_nn_relu(ctx),
                                            clef_nn_linear(ctx, 1024, 10, NULL)));
}

static void train_steps(clef_module *net, clef_optimizer *opt, clef_tensor *const *x, clef_tensor *const *y, int calls) {
    for (int i = 0; i < calls; i++) {
        clef_backward(clef_cross_entropy(clef_forward(net, x[i % 4]), y[i % 4], NULL));
        clef_step(opt);
    }
    clef_synchronize(ctx);
}

typedef struct training {
    char key[64];
    clef_module *net;
    clef_optimizer *opt;
    clef_tensor *x[4], *y[4];
} training;

/* A model stays open between the rounds of its case, as its peers' do; NULL after a line that says why there is none. */
static training *open_training(const char *line) {
    static training t;
    char model[32], key[64];
    if (!word(line, "model", model, sizeof model)) *model = 0;
    int64_t batch = (int64_t)number(line, "batch", 32), c = (int64_t)number(line, "c", 1), side = (int64_t)number(line, "side", 28);
    snprintf(key, sizeof key, "%s/%lld", model, (long long)batch);
    if (strcmp(t.key, key) == 0) return &t;
    t.net = make_model(model, CLEF_SHAPE(c, side, side));
    if (!t.net) {
        printf("skip unknown model %s\n", model);
        return NULL;
    }
    t.opt = clef_sgd(t.net, &(clef_sgd_options){.lr = 1e-3, .momentum = 0.9});
    int64_t *labels = malloc((size_t)batch * sizeof *labels);
    for (int64_t i = 0; i < batch; i++) labels[i] = i % 10;
    for (int i = 0; i < 4; i++) {
        clef_release(t.x[i]);
        clef_release(t.y[i]);
        t.x[i] = clef_keep(clef_randn(ctx, CLEF_SHAPE(batch, c, side, side)));
        t.y[i] = clef_keep(clef_from_host(ctx, CLEF_SHAPE(batch), CLEF_I64, labels));
    }
    free(labels);
    train_steps(t.net, t.opt, t.x, t.y, 3);
    snprintf(t.key, sizeof t.key, "%s", key);
    return &t;
}

static void train(const char *line) {
    training *t = open_training(line);
    if (!t) return;
    int calls = (int)number(line, "calls", 10);
    double begin = now();
    train_steps(t->net, t->opt, t->x, t->y, calls);
    if (clef_error_status(ctx) == CLEF_OK) printf("seconds %.9g\n", (now() - begin) / calls);
    else printf("skip %s\n", clef_error(ctx));
    clef_clear_error(ctx);
}

/* ---- answers of a trained model, one batch after the other, each read before the next is asked for ---- */

/* Seconds of each of so many answers, `pause` seconds apart. */
static void time_answers(training *t, size_t bytes, double pause, int calls, double *seconds) {
    const struct timespec rest = {.tv_nsec = (long)(1e9 * pause)};
    float *y = malloc(bytes);
    clef_set_training(t->net, false);
    bool was = clef_set_grad_enabled(ctx, false);
    for (int i = -4; i < calls; i++) { /* the first fill what is kept of the weights */
        if (pause > 0) nanosleep(&rest, NULL);
        double begin = now();
        clef_read(clef_forward(t->net, t->x[(i + 4) % 4]), y, bytes);
        clef_end_step(ctx);
        if (i >= 0) seconds[i] = now() - begin;
    }
    clef_set_grad_enabled(ctx, was);
    clef_set_training(t->net, true);
    free(y);
}

enum { MOST_CALLS = 1000 };

/* The mean of all, or the percentile p. */
static void infer_after(const char *line, double pause) {
    static double seconds[MOST_CALLS];
    training *t = open_training(line);
    if (!t) return;
    int calls = (int)fmin(MOST_CALLS, number(line, "calls", 10)), p = (int)number(line, "p", 0);
    double result = 0;
    time_answers(t, (size_t)number(line, "batch", 32) * 10 * sizeof(float), pause, calls, seconds);
    for (int i = 0; i < calls; i++) result += seconds[i] / calls;
    qsort(seconds, (size_t)calls, sizeof *seconds, by_value);
    if (p) result = seconds[(calls - 1) * p / 100];
    if (clef_error_status(ctx) == CLEF_OK) printf("seconds %.9g\n", result);
    else printf("skip %s\n", clef_error(ctx));
    clef_clear_error(ctx);
}

static void infer(const char *line) { infer_after(line, 0); }

/* A service that is asked now and then: caches and threads have gone to sleep. */
static void idle(const char *line) { infer_after(line, 0.01); }

/* One epoch of LeNet on MNIST with shuffling and loading, as `clef train` runs it: batch 100, SGD with momentum. */
static void epoch(const char *line) {
    static clef_module *net;
    static clef_optimizer *opt;
    static clef_loader *data;
    if (!net) {
        clef_dataset *mnist = clef_mnist(ctx, NULL, CLEF_TRAIN);
        data = clef_loader_open(mnist, &(clef_loader_options){.batch = 100, .shuffle = true});
        net = clef_model_lenet(ctx, CLEF_SHAPE(1, 28, 28), 10);
        opt = clef_sgd(net, &(clef_sgd_options){.lr = 0.05, .momentum = 0.9});
    }
    int64_t left = (int64_t)number(line, "batches", 600);
    double begin = now();
    for (clef_batch b; left > 0 && clef_next(data, &b); left--) {
        clef_backward(clef_cross_entropy(clef_forward(net, b.x), b.y, NULL));
        clef_step(opt);
    }
    clef_synchronize(ctx);
    if (clef_error_status(ctx) == CLEF_OK) printf("seconds %.9g\n", now() - begin);
    else printf("skip %s\n", clef_error(ctx));
    clef_clear_error(ctx);
}

/* ---- the host's own time: what this thread computes per launch of a step that is replayed, whatever else runs here ---- */

static double thread_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* part=replay: the step's graph is there and only clef_end_step is timed; else making it and the optimizer's update too. */
static double host_seconds(const training *t, bool replay) {
    clef_zero_grad(t->net);
    double begin = thread_time();
    clef_backward(clef_cross_entropy(clef_forward(t->net, t->x[0]), t->y[0], NULL));
    if (replay) begin = thread_time();
    if (replay) clef_end_step(ctx);
    else clef_step(t->opt);
    double seconds = thread_time() - begin;
    clef_synchronize(ctx);
    return seconds;
}

/* Seconds per launch, the median of `calls` steps after two that may plan. */
static void host(const char *line) {
    static double seconds[MOST_CALLS];
    training *t = open_training(line);
    if (!t) return;
    char part[16] = "";
    word(line, "part", part, sizeof part);
    int calls = (int)number(line, "calls", 10);
    if (calls > MOST_CALLS) calls = MOST_CALLS;
    uint64_t before = 0;
    for (int i = -2; i < calls; i++) {
        if (i == 0) before = clef_counters_get(ctx).launches;
        double took = host_seconds(t, strcmp(part, "replay") == 0);
        if (i >= 0) seconds[i] = took;
    }
    qsort(seconds, (size_t)calls, sizeof *seconds, by_value);
    double launches = (double)(clef_counters_get(ctx).launches - before) / calls;
    if (clef_error_status(ctx) == CLEF_OK) printf("seconds %.9g\n", seconds[calls / 2] / launches);
    else printf("skip %s\n", clef_error(ctx));
    clef_clear_error(ctx);
}

/* ---- what the machine can do ---- */

/* y = x + 1 on 64 MiB: 128 MiB read and written. */
static clef_tensor *run_stream(const job *j, clef_tensor *const *x) {
    (void)j;
    return clef_add_scalar(x[0], 1);
}

static void stream(const char *line) {
    job j = {.line = line, .run = run_stream};
    make_inputs(&j, 1, (clef_shape[]){CLEF_SHAPE(16 << 20)});
    answer(&j);
}

/* 2 · 12 · 1024 · 12288 FLOPs, almost no memory. */
static clef_tensor *run_peak(const job *j, clef_tensor *const *x) {
    (void)j;
    return fma_chains(x[0], true, FMA_ROUNDS);
}

static void peak(const char *line) {
    job j = {.line = line, .run = run_peak};
    make_inputs(&j, 1, (clef_shape[]){CLEF_SHAPE(3 << 12)});
    answer(&j);
}

static const struct suite {
    const char *name;
    void (*run)(const char *line);
} suites[] = {{"gemm", gemm},
              {"conv", conv},
              {"pointwise", pointwise},
              {"unary", unary},
              {"reduce", reduce},
              {"norm", norm},
              {"attention", attention},
              {"train", train},
              {"infer", infer},
              {"idle", idle},
              {"epoch", epoch},
              {"host", host},
              {"stream", stream},
              {"peak", peak},
              {"rnn", rnn},
              {"lm", lm},
              {"ops", ops}};

static void set_precision(const char *line, clef_matmul_precision usual) {
    char wanted[16];
    bool given = word(line, "precision", wanted, sizeof wanted);
    clef_set_matmul_precision(ctx, !given ? usual : strcmp(wanted, "high") == 0 ? CLEF_MATMUL_HIGH : CLEF_MATMUL_HIGHEST);
}

int main(void) {
    /* Chains are made while a case warms up, as torch.compile compiles then. */
    ctx = clef_open(&(clef_options){.log = note_choice, .chain_after = getenv("CLEF_CHAIN") ? 0 : 2});
    if (!ctx) {
        fprintf(stderr, "%s\n", clef_error(NULL));
        return 77;
    }
    clef_device_info info;
    clef_matmul_precision usual = clef_get_matmul_precision(ctx);
    clef_context_device(ctx, 0, &info);
    printf("ready clef %s | %s, %s\n", clef_version(), info.name, info.driver);
    fflush(stdout);
    for (char line[512]; fgets(line, sizeof line, stdin);) {
        bool known = false;
        line[strcspn(line, "\n")] = 0;
        for (size_t i = 0; i < sizeof suites / sizeof *suites; i++) {
            size_t n = strlen(suites[i].name);
            if (strncmp(line, suites[i].name, n) != 0 || (line[n] != ' ' && line[n])) continue;
            set_precision(line, usual);
            suites[i].run(line);
            known = true;
        }
        if (!known) printf("skip unknown suite\n");
        fflush(stdout);
    }
    clef_close(ctx);
    return 0;
}
