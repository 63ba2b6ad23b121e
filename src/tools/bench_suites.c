/* bench_suites.c — what clef bench measures: operands, FLOPs and the bytes that must move at least, case by case.

   Counting: a multiply-add is two FLOPs, any other pointwise operation one per element.  Bytes are those of each operand read once
   and each result written once; what a kernel moves on top of that is its loss. */
#include "bench.h"
#include "fma_chains.h"
#include <stdlib.h>
#include <string.h>

bench_case *bench_append(bench_list *l, bench_case c) {
    static bench_case spare;
    if (l->n == l->room) {
        int room = 2 * l->room + 32;
        bench_case *more = realloc(l->c, (size_t)room * sizeof *more);
        if (!more) return l->failed = true, &spare;
        l->c = more;
        l->room = room;
    }
    l->c[l->n] = c;
    return &l->c[l->n++];
}

bool bench_queue(clef_tensor *t) { return t && clef_eval(t) == CLEF_OK; }

double bench_numel(clef_shape s) { return (double)clef_shape_numel(s); }

void bench_want_gradients(clef_tensor *const *x, int n, bool wanted) {
    for (int i = 0; i < n; i++) clef_require_grad(x[i], wanted);
}

/* ---- what the device can do: bandwidth and multiply-adds ---- */
static bool copy_once(const bench_case *c, clef_tensor *const *x) { return (void)c, bench_queue(clef_add_scalar(x[0], 1)); }

static void copy(bench_list *l) {
    double bytes = 2.0 * (64 << 20);
    bench_append(l, (bench_case){.suite = "copy",
                                 .name = "copy",
                                 .unit = "GB/s",
                                 .shape = "64 MiB read, 64 MiB written",
                                 .flops = 16 << 20,
                                 .bytes = bytes,
                                 .input = {CLEF_SHAPE(16 << 20)},
                                 .n_inputs = 1,
                                 .once = copy_once});
}

/* v: by fma(), a probe of a few rounds. */
static bool fma_once(const bench_case *c, clef_tensor *const *x) {
    return bench_queue(fma_chains(x[0], c->v[0], c->v[1] ? 1 : FMA_ROUNDS));
}

bench_case bench_fma_probe(bool fused) {
    return (bench_case){.input = {CLEF_SHAPE(1 << 16)}, .n_inputs = 1, .v = {fused, true}, .once = fma_once};
}

/* A GPU would spend few numbers' time on launching. */
static void fma_peak(bench_list *l, bool gpu) {
    int64_t n = gpu ? 1 << 18 : 3 << 12;
    bench_case *c = bench_append(l, (bench_case){.suite = "fma",
                                                 .name = "fma",
                                                 .unit = "GFLOP/s",
                                                 .flops = 2.0 * (double)n * FMA_CHAINS * FMA_ROUNDS,
                                                 .bytes = 8.0 * (double)n,
                                                 .input = {CLEF_SHAPE(n)},
                                                 .n_inputs = 1,
                                                 .v = {true},
                                                 .once = fma_once});
    snprintf(c->shape, sizeof c->shape, "%d chains of %d for each number", FMA_CHAINS, FMA_ROUNDS);
}

/* ---- matrix products; v: is a, is b transposed ---- */
static bool matmul_once(const bench_case *c, clef_tensor *const *x) {
    clef_tensor *a = c->v[0] ? clef_transpose(x[0], 0, 1) : x[0], *b = c->v[1] ? clef_transpose(x[1], 0, 1) : x[1];
    return bench_queue(clef_matmul(a, b));
}

/* The last ones are for GPUs alone. */
static void gemm(bench_list *l, bool gpu) {
    enum { FOR_GPUS = 3, F32 = 0, F16, TF32 };
    static const struct {
        int m, n, k, ta, tb, in;
    } s[] = {{256, 256, 256, 0, 0, 0},      {512, 512, 512, 0, 0, 0},      {1024, 1024, 1024, 0, 0, 0},
             {1024, 1024, 1024, 0, 1, 0},   {1024, 1024, 1024, 1, 0, 0},   {64, 1024, 1024, 0, 0, 0},
             {1024, 64, 1024, 0, 0, 0},     {4096, 4096, 4096, 0, 0, F32}, {4096, 4096, 4096, 0, 0, F16},
             {4096, 4096, 4096, 0, 0, TF32}};
    for (size_t i = 0; i < sizeof s / sizeof *s - (gpu ? 0 : FOR_GPUS); i++) {
        double m = s[i].m, n = s[i].n, k = s[i].k;
        clef_shape a = s[i].ta ? CLEF_SHAPE(s[i].k, s[i].m) : CLEF_SHAPE(s[i].m, s[i].k);
        clef_shape b = s[i].tb ? CLEF_SHAPE(s[i].n, s[i].k) : CLEF_SHAPE(s[i].k, s[i].n);
        bench_case *c = bench_append(l, (bench_case){.suite = "gemm",
                                                     .name = "matmul",
                                                     .unit = "GFLOP/s",
                                                     .flops = 2 * m * n * k,
                                                     .bytes = (s[i].in == F16 ? 2 : 4) * (m * k + k * n + m * n),
                                                     .half = s[i].in == F16,
                                                     .tf32 = s[i].in == TF32,
                                                     .input = {a, b},
                                                     .n_inputs = 2,
                                                     .v = {s[i].ta, s[i].tb},
                                                     .once = matmul_once});
        snprintf(c->shape, sizeof c->shape, "%d x %d x %d%s", s[i].m, s[i].n, s[i].k,
                 s[i].ta           ? ", a transposed"
                 : s[i].tb         ? ", b transposed"
                 : s[i].in == F16  ? ", f16"
                 : s[i].in == TF32 ? ", TF32"
                                   : "");
    }
}

/* ---- convolution; v: stride, padding, groups, direction ---- */
enum { FORWARD, DATA, WEIGHT };

static clef_tensor *gradient(clef_tensor *y, clef_tensor *g, clef_tensor *of) {
    clef_tensor *dx = NULL;
    return y && clef_grad(y, g, &of, 1, false, &dx) == CLEF_OK ? dx : NULL;
}

static bool conv_once(const bench_case *c, clef_tensor *const *x) {
    clef_conv2d_options options = {.stride = {c->v[0], c->v[0]}, .padding = {c->v[1], c->v[1]}, .groups = c->v[2]};
    if (c->v[3] == FORWARD) return bench_queue(clef_conv2d(x[0], x[1], CLEF_NONE, &options));
    clef_tensor *of = x[c->v[3] == DATA ? 0 : 1];
    clef_require_grad(of, true);
    bool ok = bench_queue(gradient(clef_conv2d(x[0], x[1], CLEF_NONE, &options), x[2], of));
    clef_require_grad(of, false);
    return ok;
}

static void conv(bench_list *l) {
    static const char *const direction[] = {"conv2d", "conv2d_data", "conv2d_weight"};
    static const struct {
        int n, c, side, o, kernel, stride, pad, groups;
    } s[] = {{8, 3, 224, 64, 7, 2, 3, 1},   {8, 64, 56, 64, 3, 1, 1, 1},   {8, 64, 56, 256, 1, 1, 0, 1},
             {8, 128, 28, 128, 3, 1, 1, 1}, {8, 256, 14, 256, 3, 1, 1, 1}, {8, 96, 28, 96, 3, 1, 1, 96}};
    for (int d = FORWARD; d <= WEIGHT; d++)
        for (size_t i = 0; i < sizeof s / sizeof *s; i++) {
            int side = (s[i].side + 2 * s[i].pad - s[i].kernel) / s[i].stride + 1, inside = s[i].c / s[i].groups;
            clef_shape x = CLEF_SHAPE(s[i].n, s[i].c, s[i].side, s[i].side),
                       w = CLEF_SHAPE(s[i].o, inside, s[i].kernel, s[i].kernel), y = CLEF_SHAPE(s[i].n, s[i].o, side, side);
            bench_case *c = bench_append(l, (bench_case){.suite = "conv",
                                                         .name = direction[d],
                                                         .unit = "GFLOP/s",
                                                         .flops = 2 * bench_numel(y) * inside * s[i].kernel * s[i].kernel,
                                                         .bytes = 4 * (bench_numel(x) + bench_numel(w) + bench_numel(y)),
                                                         .input = {x, w, y},
                                                         .n_inputs = d == FORWARD ? 2 : 3,
                                                         .once = conv_once,
                                                         .v = {s[i].stride, s[i].pad, s[i].groups, d}});
            int used = snprintf(c->shape, sizeof c->shape, "%dx%dx%dx%d, %d of %dx%d", s[i].n, s[i].c, s[i].side, s[i].side, s[i].o,
                                s[i].kernel, s[i].kernel);
            if (s[i].stride > 1) snprintf(c->shape + used, sizeof c->shape - (size_t)used, ", stride %d", s[i].stride);
            if (s[i].groups > 1) snprintf(c->shape + used, sizeof c->shape - (size_t)used, ", depthwise");
        }
}

/* ---- pointwise; v: how many ops ---- */
enum { SIDE = 2048 };

/* Broadcast rows and columns in turn with others, as a fused chain meets them. */
static bool chain_once(const bench_case *c, clef_tensor *const *x) {
    clef_tensor *y = x[0];
    for (int i = 0; i < c->v[0]; i++)
        y = i % 4 == 0 ? clef_add(y, x[1]) : i % 4 == 1 ? clef_mul(y, x[2]) : i % 4 == 2 ? clef_relu(y) : clef_sub(y, x[0]);
    return bench_queue(y);
}

static bool gelu_once(const bench_case *c, clef_tensor *const *x) { return (void)c, bench_queue(clef_gelu(x[0])); }

static void pointwise(bench_list *l) {
    double n = (double)SIDE * SIDE;
    bench_case c = {.suite = "pointwise",
                    .unit = "GB/s",
                    .bytes = 8 * n,
                    .n_inputs = 3,
                    .once = chain_once,
                    .input = {CLEF_SHAPE(SIDE, SIDE), CLEF_SHAPE(SIDE), CLEF_SHAPE(SIDE, 1)}};
    for (int ops = 1; ops <= 8; ops += ops == 1 ? 3 : 4) {
        c.name = ops == 1 ? "add" : "chain";
        c.flops = ops * n;
        c.v[0] = ops;
        snprintf(c.shape, sizeof c.shape, ops == 1 ? "%dx%d and a row" : "%dx%d, %d ops", SIDE, SIDE, ops);
        bench_append(l, c);
    }
    c.name = "gelu";
    c.flops = n;
    c.n_inputs = 1;
    c.once = gelu_once;
    snprintf(c.shape, sizeof c.shape, "%dx%d", SIDE, SIDE);
    bench_append(l, c);
}

/* ---- reductions and softmax; v: along which dimension, which of them ---- */
static bool reduce_once(const bench_case *c, clef_tensor *const *x) {
    int dim = c->v[0];
    return bench_queue(c->v[1] == 2   ? clef_softmax(x[0], dim)
                       : c->v[1] == 1 ? clef_max(x[0], &dim, 1, false)
                                      : clef_sum(x[0], &dim, 1, false));
}

static void reduce(bench_list *l) {
    static const char *const op[] = {"sum", "max", "softmax"};
    double n = (double)SIDE * SIDE;
    for (int i = 0; i < 3; i++)
        for (int dim = 1; dim >= 0; dim--) {
            /* A softmax: maximum, difference, exponential, sum, quotient. */
            bench_case *c = bench_append(l, (bench_case){.suite = "reduce",
                                                         .name = op[i],
                                                         .unit = "GB/s",
                                                         .flops = (i == 2 ? 5 : 1) * n,
                                                         .bytes = i == 2 ? 8 * n : 4 * (n + SIDE),
                                                         .input = {CLEF_SHAPE(SIDE, SIDE)},
                                                         .n_inputs = 1,
                                                         .v = {dim, i},
                                                         .once = reduce_once});
            snprintf(c->shape, sizeof c->shape, "%dx%d, along %s", SIDE, SIDE, dim ? "rows" : "columns");
        }
}

/* ---- normalisation: x, weight, bias, gradient, running mean and variance; v: batch or layer, with gradients ---- */
static clef_tensor *normalised(const bench_case *c, clef_tensor *const *x) {
    return c->v[0] ? clef_batch_norm(x[0], x[1], x[2], x[4], x[5], true, 0.1, 1e-5) : clef_layer_norm(x[0], 1, x[1], x[2], 1e-5);
}

static bool norm_once(const bench_case *c, clef_tensor *const *x) {
    clef_tensor *dx[3];
    if (!c->v[1]) return bench_queue(normalised(c, x));
    bench_want_gradients(x, 3, true);
    clef_tensor *y = normalised(c, x);
    bool ok = y && clef_grad(y, x[3], x, 3, false, dx) == CLEF_OK && clef_eval_all(dx, 3) == CLEF_OK;
    bench_want_gradients(x, 3, false);
    return ok;
}

/* Forward: mean, variance, scaling, 8 FLOPs for each number.  The gradients take twice as many again, and read x and g to write dx.
 */
static void norm(bench_list *l) {
    static const char *const name[] = {"layer_norm", "layer_norm_gradient", "batch_norm", "batch_norm_gradient"};
    for (int i = 0; i < 4; i++) {
        bool batch = i >= 2, with = i % 2;
        clef_shape x = batch ? CLEF_SHAPE(32, 64, 32, 32) : CLEF_SHAPE(2048, 768), w = CLEF_SHAPE(batch ? 64 : 768);
        bench_case *c = bench_append(l, (bench_case){.suite = "norm",
                                                     .name = name[i],
                                                     .unit = "GB/s",
                                                     .flops = (with ? 24 : 8) * bench_numel(x),
                                                     .bytes = (with ? 12 : 8) * bench_numel(x),
                                                     .input = {x, w, w, x, w, w},
                                                     .n_inputs = 6,
                                                     .v = {batch, with},
                                                     .once = norm_once});
        snprintf(c->shape, sizeof c->shape, "%s", batch ? "32x64x32x32" : "2048x768");
    }
}

/* ---- training steps: forward, backward, SGD with momentum ---- */
static clef_tensor *mean_of_positions(clef_tensor *x) { return clef_mean(x, (int[]){1}, 1, false); }

/* A block of a transformer as GPT-2 has it, and classes of its mean. */
static clef_module *model_block(clef_context *ctx, clef_shape input, int64_t classes) {
    int64_t width = input.dim[input.rank - 1];
    clef_module *layers[] = {
        clef_nn_encoder_layer(ctx, width, 12,
                              &(clef_nn_transformer_options){.hidden = 4 * width, .pre_norm = true, .causal = true, .gelu = true}),
        clef_nn_activation(ctx, "mean_of_positions", mean_of_positions), clef_nn_linear(ctx, width, classes, NULL)};
    return clef_sequential(ctx, layers, sizeof layers / sizeof *layers);
}

static void train(bench_list *l, bool gpu, bool resnet18) {
    static const struct {
        const char *name;
        clef_module *(*make)(clef_context *ctx, clef_shape input, int64_t classes);
        clef_shape input;
        const char *items;
    } m[] = {{"MLP", clef_model_mlp, {4, {100, 1, 28, 28}}, "images"},
             {"LeNet", clef_model_lenet, {4, {100, 1, 28, 28}}, "images"},
             {"CNN", clef_model_cnn, {4, {64, 3, 32, 32}}, "images"},
             {"ResNet-18", clef_model_resnet18, {4, {32, 3, 32, 32}}, "images"},
             {"block", model_block, {3, {8, 512, 768}}, "texts of 512"}};
    for (size_t i = 0; i < sizeof m / sizeof *m; i++) {
        if ((m[i].make == clef_model_resnet18 && !resnet18) || (m[i].make == model_block && !gpu)) continue;
        bench_case *c = bench_append(l, (bench_case){.suite = "train",
                                                     .name = "train",
                                                     .unit = "images/s",
                                                     .items = (double)m[i].input.dim[0],
                                                     .n_inputs = 1,
                                                     .input = {m[i].input},
                                                     .model = m[i].make});
        snprintf(c->shape, sizeof c->shape, "%s, %d %s a step", m[i].name, (int)m[i].input.dim[0], m[i].items);
    }
}

/* ---- choosing ---- */
static bool is_wanted(const bench_case *c, const char *const *words) {
    if (!*words) return true;
    for (; *words; words++)
        if (!strcmp(*words, c->suite) || !strcmp(*words, c->name)) return true;
    return false;
}

/* Copy and fma come first. */
static bench_list all_cases(bool gpu, bool resnet18) {
    bench_list l = {0};
    copy(&l);
    fma_peak(&l, gpu);
    gemm(&l, gpu);
    conv(&l);
    pointwise(&l);
    reduce(&l);
    norm(&l);
    bench_attention(&l, gpu);
    bench_rnn(&l);
    train(&l, gpu, resnet18);
    bench_language(&l, gpu);
    return l;
}

bool bench_knows(const char *word) {
    bool known = false;
    bench_list l = all_cases(false, false);
    for (int i = 0; i < l.n; i++) known |= is_wanted(&l.c[i], (const char *[]){word, NULL});
    free(l.c);
    return known;
}

/* Copy and fma stay wherever something is to be judged by them. */
bench_case *bench_cases(const char *const *words, bool gpu, bool resnet18, int *n) {
    bench_list l = all_cases(gpu, resnet18);
    int kept = 0, others = 0;
    for (int i = 2; i < l.n; i++) others += is_wanted(&l.c[i], words);
    for (int i = 0; i < l.n; i++)
        if (is_wanted(&l.c[i], words) || (i < 2 && others)) l.c[kept++] = l.c[i];
    *n = kept;
    if (!l.failed) return l.c;
    free(l.c);
    return NULL;
}
