/* bench_measure.c — how long one call of a case takes.

   Operands are random, and as many copies of them are used in turn as fill 128 MiB, so that none is still in a cache.  Compiling
   and a call to warm up come first.  Then calls are queued that take some 10 ms together and waited for once; the figure is the
   median of such rounds, the spread half the distance of their quartiles. */
#include "bench.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    clef_context *ctx;
    const bench_case *c;
    clef_tensor *input[BENCH_COPIES][BENCH_INPUTS], *labels;
    int copies;
    clef_matmul_precision before; /* of the context */
    clef_module *net;
    clef_optimizer *optimizer;
    clef_generator *generator;
} job;

static int copies_of(const bench_case *c) {
    double bytes = 0;
    for (int i = 0; i < c->n_inputs; i++) bytes += 4 * (double)clef_shape_numel(c->input[i]);
    double copies = ceil((128 << 20) / bytes);
    return c->model ? 4 : copies < 1 ? 1 : copies > BENCH_COPIES ? BENCH_COPIES : (int)copies;
}

static clef_tensor *random_tokens(job *j, clef_shape shape) {
    return clef_to(clef_mul_scalar(clef_rand(j->ctx, shape), (double)j->c->vocabulary), CLEF_I64);
}

static clef_tensor *classes_of(job *j, int64_t batch) {
    int64_t label[256];
    for (int64_t i = 0; i < batch; i++) label[i] = i % 10;
    return clef_from_host(j->ctx, CLEF_SHAPE(batch), CLEF_I64, label);
}

static bool make_optimizer(job *j) {
    j->optimizer = j->c->vocabulary ? clef_adamw(j->net, &(clef_adamw_options){.lr = 1e-3, .beta2 = 0.99, .weight_decay = 0.1})
                                    : clef_sgd(j->net, &(clef_sgd_options){.lr = 1e-3, .momentum = 0.9});
    return j->optimizer;
}

static bool make_generator(job *j) {
    clef_set_training(j->net, false);
    j->generator = clef_generator_new(j->net, NULL);
    return j->generator;
}

static bool make_net(job *j) {
    clef_shape input = j->c->input[0], item = {.rank = input.rank - 1};
    memcpy(item.dim, input.dim + 1, (size_t)item.rank * sizeof *item.dim);
    clef_tensor *y = j->c->vocabulary ? random_tokens(j, input) : classes_of(j, input.dim[0]);
    j->labels = y ? clef_keep(y) : NULL;
    j->net = j->labels ? j->c->model(j->ctx, item, j->c->vocabulary ? j->c->vocabulary : 10) : NULL;
    return j->net && (j->c->generates ? make_generator(j) : make_optimizer(j));
}

static clef_tensor *random_input(job *j, int i) {
    if (j->c->vocabulary) return random_tokens(j, j->c->input[i]);
    clef_tensor *t = clef_randn(j->ctx, j->c->input[i]);
    if (i >= 2 && j->c->small > 0) t = clef_mul_scalar(t, j->c->small);
    return t && j->c->half ? clef_to(t, CLEF_F16) : t;
}

static bool open_job(job *j) {
    j->copies = copies_of(j->c);
    j->before = clef_get_matmul_precision(j->ctx);
    if (j->c->tf32) clef_set_matmul_precision(j->ctx, CLEF_MATMUL_HIGH);
    for (int c = 0; c < j->copies; c++)
        for (int i = 0; i < j->c->n_inputs; i++) {
            clef_tensor *t = random_input(j, i);
            if (!t) return false;
            j->input[c][i] = clef_keep(t);
        }
    return (!j->c->model || make_net(j)) && clef_end_step(j->ctx) == CLEF_OK;
}

static void close_job(job *j) {
    for (int c = 0; c < j->copies; c++)
        for (int i = 0; i < j->c->n_inputs; i++) clef_release(j->input[c][i]);
    clef_release(j->labels);
    clef_generator_close(j->generator);
    clef_set_matmul_precision(j->ctx, j->before);
}

/* Where the cache is full the text begins anew, which costs a prompt of one token. */
static bool next_token(job *j) {
    int64_t token = 1, one = 1, length = clef_generator_length(j->generator);
    clef_status status = length == 0 || length >= j->c->input[0].dim[1]
                             ? clef_generator_prompt(j->generator, (const int64_t *[]){&token}, &one)
                             : clef_generator_feed(j->generator, &token);
    return !status && !clef_generator_sample(j->generator, NULL, &token);
}

static bool call(job *j, int i) {
    clef_tensor *const *x = j->input[i % j->copies];
    if (j->generator) return next_token(j);
    if (!j->c->model) return j->c->once(j->c, x) && clef_end_step(j->ctx) == CLEF_OK;
    bool text = j->c->vocabulary;
    clef_tensor *loss = clef_cross_entropy(clef_forward(j->net, x[0]), j->labels, &(clef_loss_options){.classes_last = text});
    return loss && !clef_backward(loss) && (!text || clef_clip_grad_norm(j->net, 1)) && !clef_step(j->optimizer);
}

/* Seconds of one of so many calls; negative if one failed. */
static double round_of(job *j, int calls) {
    double begin = tool_seconds();
    for (int i = 0; i < calls; i++)
        if (!call(j, i)) return -1;
    bool done = clef_synchronize(j->ctx) == CLEF_OK && clef_end_step(j->ctx) == CLEF_OK;
    return done ? (tool_seconds() - begin) / calls : -1;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool sample(job *j, double budget, bench_point *p) {
    enum { MOST = 1000, LEAST = 3, MOST_CALLS = 200 };
    static double samples[MOST];
    double length = budget / 10 < 0.01 ? budget / 10 : 0.01, first = round_of(j, 1) < 0 ? -1 : round_of(j, 1);
    if (first < 0) return false;
    if (first > 1 && first > 4 * budget) { /* a device that slow is not asked again */
        p->seconds = first;
        return true;
    }
    int n = 0, calls = first * MOST_CALLS < length ? MOST_CALLS : (int)(length / first) + 1;
    for (double end = tool_seconds() + budget; n < MOST && (n < LEAST || tool_seconds() < end); n++)
        if ((samples[n] = round_of(j, calls)) < 0) return false;
    qsort(samples, (size_t)n, sizeof *samples, by_size);
    p->seconds = samples[n / 2];
    p->spread = (samples[3 * n / 4] - samples[n / 4]) / 2 / p->seconds;
    return true;
}

bool bench_by_units(const char *kernel) { return !strcmp(kernel, "matrix") || !strcmp(kernel, "matrix_stages"); }

/* Tells somebody else of launches, too. */
typedef struct watch {
    clef_planned_launch_fn fn;
    void *user;
    bool units;
} watch;

static void watch_launch(void *user, const clef_planned_launch *launch) {
    watch *w = user;
    w->units |= bench_by_units(launch->kernel);
    if (w->fn) w->fn(w->user, launch);
}

/* Bytes of a training step's images or tokens, and labels. */
static double batch_bytes(const bench_case *c) {
    double inputs = (double)clef_shape_numel(c->input[0]);
    return c->vocabulary ? 16 * inputs : 4 * inputs + 8 * (double)c->input[0].dim[0];
}

/* What one call does, from its plan: the FLOPs of the methods that were chosen, and of a training step those of its ops and bytes:
   what it starts from, read and, but for the batch, written again.  A generator reads what no dry run computes. */
static bool count_call(job *j, clef_planned_launch_fn fn, void *user, bench_point *p) {
    clef_plan_size size;
    p->real_flops = p->flops;
    if (j->generator) return true;
    watch w = {.fn = fn, .user = user};
    clef_set_dry_run(j->ctx, true);
    clef_on_planned_launch(j->ctx, watch_launch, &w);
    bool ok = call(j, 0) && clef_plan_memory(j->ctx, &size) == CLEF_OK;
    clef_on_planned_launch(j->ctx, NULL, NULL);
    clef_set_dry_run(j->ctx, false);
    if (!ok) return false;
    if (j->c->model) p->flops = size.flops;
    p->real_flops = j->c->half || w.units ? 0 : p->flops - (size.flops - size.real_flops); /* the roof is one of f32 */
    if (!j->c->model) return true;
    p->bytes = 2 * (double)size.input_bytes - batch_bytes(j->c);
    return true;
}

/* Seconds of the probe's best round; infinite if it failed. */
static double probe_seconds(clef_context *ctx, bool fused) {
    bench_case c = bench_fma_probe(fused);
    job j = {.ctx = ctx, .c = &c};
    double best = INFINITY;
    bool ok = open_job(&j) && round_of(&j, 1) >= 0;
    for (int i = 0; ok && i < 5; i++) {
        double seconds = round_of(&j, 10);
        ok = seconds >= 0;
        if (ok) best = fmin(best, seconds);
    }
    close_job(&j);
    return best;
}

/* An emulated fma() takes ten times as long as an expression, and minutes to compile in long chains. */
static bool has_fma(clef_context *ctx) { return probe_seconds(ctx, true) < 4 * probe_seconds(ctx, false); }

static bench_point point_of(const bench_case *c) {
    bench_point p = {.flops = c->flops, .bytes = c->bytes};
    snprintf(p.suite, sizeof p.suite, "%s", c->suite);
    snprintf(p.name, sizeof p.name, "%s", c->name);
    memcpy(p.shape, c->shape, sizeof p.shape);
    snprintf(p.unit, sizeof p.unit, "%s", c->unit);
    return p;
}

double bench_rate(const bench_case *c, const bench_point *p) {
    return (c->model ? c->items : 1e-9 * (strcmp(c->unit, "GB/s") ? c->flops : c->bytes)) / p->seconds;
}

/* Two calls before the one that is looked at, as an optimizer's first one makes its state. */
bool bench_plan(clef_context *ctx, const bench_case *c, clef_planned_launch_fn fn, void *user, bench_point *p) {
    job j = {.ctx = ctx, .c = c};
    *p = point_of(c);
    bool ok = open_job(&j) && call(&j, 0) && call(&j, 1) && count_call(&j, fn, user, p);
    close_job(&j);
    return ok;
}

static void note_units(void *user, const clef_planned_launch *launch) { *(bool *)user |= bench_by_units(launch->kernel); }

bool bench_uses_units(clef_context *ctx, const bench_case *c) {
    bool uses = false;
    bench_point p;
    return bench_plan(ctx, c, note_units, &uses, &p) && uses;
}

bool bench_measure(clef_context *ctx, const bench_case *c, double budget, bench_point *p) {
    bench_case expression = *c;
    job j = {.ctx = ctx, .c = c};
    if (!strcmp(c->suite, "fma") && !has_fma(ctx)) {
        expression.v[0] = false;
        j.c = &expression;
    }
    *p = point_of(c);
    bool ok = open_job(&j) && sample(&j, budget, p) && count_call(&j, NULL, NULL, p);
    p->rate = bench_rate(c, p);
    close_job(&j);
    return ok;
}
