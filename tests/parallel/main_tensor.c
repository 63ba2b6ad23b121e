/* Layers in shards, and losses of split logits, on 1 to 4 ranks against one rank that has all of it: outputs, gradients, parameters
   after steps, and what clef_module_unshard brings back.

   CLEF_PARALLEL_CASES: how many nets;  CLEF_PARALLEL_FIRST: the first one's seed.
   ctest: cost=60 apart plain */
#include "../group/ranks.h"
#include "nn/module.h"
#include <math.h>

enum { MOST_VALUES = 16384, STEPS = 3 };

typedef enum kind { MLP, WORDS, CONV, ATTENTION, LOSS, KINDS } kind;

typedef struct plan {
    uint64_t seed;
    kind kind;
    int ranks, items;
    int64_t unit; /* sizes are `ranks` times this */
    bool gathers, whole_input, by_columns, no_bias, ignores, tied;
    double smoothing;
    clef_reduction reduction;
    clef_dtype dtype;
} plan;

typedef struct outcome {
    double loss[STEPS];
    int n;
    float value[MOST_VALUES]; /* tensors, one behind the other; gradients of the first step before them */
} outcome;

static plan make_plan(uint64_t seed) {
    uint64_t r = seed;
    plan p = {.seed = seed, .kind = (kind)random_below(&r, KINDS), .ranks = 1 + random_below(&r, 4)};
    p.items = 1 + random_below(&r, 6);
    p.unit = 1 + random_below(&r, 3);
    p.gathers = random_below(&r, 2);
    p.whole_input = random_below(&r, 2);
    p.by_columns = random_below(&r, 2);
    p.no_bias = random_below(&r, 3) == 0;
    p.ignores = random_below(&r, 2);
    p.tied = random_below(&r, 2);
    p.smoothing = random_below(&r, 2) ? 0.1 : 0;
    p.reduction = (clef_reduction)random_below(&r, 3);
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_F16, CLEF_BF16};
    p.dtype = dtypes[random_below(&r, 3)];
    return p;
}

static int64_t wide(const plan *p) { return 12 * p->unit; } /* 1 to 4 ranks can cut it */

/* ---- nets; with a group, their layers are cut ---- */

static clef_tensor *forward_tied_head(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    return clef_forward(clef_module_child(m, "out"), clef_mean(x, (int[]){1}, 1, false));
}

/* Attention whose heads are shared out: queries, keys and values by columns, the projection by rows. */
static clef_tensor *forward_attention(clef_module *m, clef_tensor *x, void *user) {
    (void)user;
    const char *const name[] = {"q", "k", "v"};
    clef_tensor *part[3];
    clef_shape in = clef_tensor_shape(x);
    for (int i = 0; i < 3; i++) {
        clef_tensor *y = clef_forward(clef_module_child(m, name[i]), x);
        clef_shape heads = CLEF_SHAPE(in.dim[0], in.dim[1], clef_tensor_shape(y).dim[2] / 2, 2);
        part[i] = clef_permute(clef_reshape(y, heads), (int[]){0, 2, 1, 3});
    }
    clef_tensor *score = clef_softmax(clef_matmul(part[0], clef_transpose(part[1], 2, 3)), -1);
    clef_tensor *y = clef_permute(clef_matmul(score, part[2]), (int[]){0, 2, 1, 3});
    clef_shape shape = clef_tensor_shape(y);
    y = clef_reshape(y, CLEF_SHAPE(in.dim[0], in.dim[1], shape.dim[2] * shape.dim[3]));
    return clef_add(x, clef_forward(clef_module_child(m, "o"), y));
}

static clef_module *make_attention(clef_context *ctx, const plan *p) {
    clef_module *m = clef_module_new(ctx, "attention", forward_attention, NULL);
    const char *const name[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) clef_module_add(m, name[i], clef_nn_linear(ctx, 12, 24, &(clef_nn_options){.no_bias = p->no_bias}));
    clef_module_add(m, "o", clef_nn_linear(ctx, 24, 12, NULL));
    return m;
}

static clef_module *make_words(clef_context *ctx, const plan *p) {
    clef_module *table = clef_nn_embedding(ctx, 24, wide(p)), *head = clef_module_new(ctx, "head", forward_tied_head, NULL);
    clef_module *out = clef_nn_linear(ctx, wide(p), 24, &(clef_nn_options){.no_bias = true});
    clef_module_add(head, "out", out);
    return clef_sequential(ctx, CLEF_LAYERS(table, head));
}

static clef_module *make_net(clef_context *ctx, const plan *p) {
    clef_seed(ctx, p->seed);
    clef_nn_options o = {.no_bias = p->no_bias};
    clef_nn_conv2d_options c = {.conv.padding = {1, 1}, .no_bias = p->no_bias};
    switch (p->kind) {
    case WORDS: return make_words(ctx, p);
    case ATTENTION: return clef_sequential(ctx, CLEF_LAYERS(make_attention(ctx, p), clef_nn_layer_norm(ctx, CLEF_SHAPE(12), NULL)));
    case CONV:
        return clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 2, wide(p), 3, &c), clef_nn_relu(ctx),
                                                clef_nn_conv2d(ctx, wide(p), 5, 3, &c), clef_nn_global_avg_pool2d(ctx)));
    default:
        return clef_sequential(ctx,
                               CLEF_LAYERS(clef_nn_linear(ctx, 6, 8, &o), clef_nn_tanh(ctx), clef_nn_linear(ctx, 8, wide(p), &o),
                                           clef_nn_gelu(ctx), clef_nn_linear(ctx, wide(p), 6, &o)));
    }
}

/* A column that is gathered wants a row whose input is whole, and the other way round. */
static clef_status cut(clef_module *net, clef_group *all, const plan *p) {
    clef_shard_options column = {.gather_output = p->gathers}, row = {.whole_input = p->gathers};
    if (p->kind == ATTENTION) {
        clef_status status = clef_module_shard(net, "0.?", all, 0, NULL); /* q, k, v and o */
        if (!status) status = clef_module_unshard(net);
        const char *const name[] = {"0.q", "0.k", "0.v"};
        for (int i = 0; i < 3 && !status; i++) status = clef_module_shard(net, name[i], all, 0, NULL);
        return status ? status : clef_module_shard(net, "*.o", all, 1, NULL);
    }
    if (p->kind == WORDS && p->by_columns) {
        column.gather_output = true;
        clef_status status = clef_module_shard(net, "0", all, 1, &column);
        row.whole_input = true;
        return status ? status : clef_module_shard(net, "1.out", all, 1, &row);
    }
    if (p->kind == WORDS) {
        column.gather_output = true;
        clef_status status = clef_module_shard(net, "0", all, 0, NULL);
        return status ? status : clef_module_shard(net, "*.out", all, 0, &column);
    }
    if (p->kind == CONV) {
        clef_status status = clef_module_shard(net, "0", all, 0, &column);
        return status ? status : clef_module_shard(net, "2", all, 1, &row);
    }
    clef_status status = clef_module_shard(net, "2", all, 0, &column);
    return status ? status : clef_module_shard(net, "4", all, 1, &row);
}

static clef_tensor *make_x(clef_context *ctx, const plan *p) {
    if (p->kind == WORDS) return clef_randint(ctx, 0, 24, CLEF_SHAPE(p->items, 3));
    if (p->kind == CONV) return clef_randn(ctx, CLEF_SHAPE(p->items, 2, 4, 5));
    return clef_randn(ctx, p->kind == ATTENTION ? CLEF_SHAPE(p->items, 4, 12) : CLEF_SHAPE(p->items, 6));
}

/* Any function of all outputs. */
static clef_tensor *loss_of(clef_tensor *y) { return clef_mean(clef_mul(clef_sin(y), y), NULL, 0, false); }

/* ---- training ---- */

static void append(outcome *o, clef_tensor *t) {
    int64_t n = clef_numel(t);
    if (!t || o->n + n > MOST_VALUES) return;
    clef_read(clef_to(t, CLEF_F32), o->value + o->n, (size_t)n * sizeof(float));
    o->n += (int)n;
}

/* gradients: those of parameters that are whole here. */
static void train(clef_context *ctx, clef_module *net, const plan *p, outcome *o) {
    clef_optimizer *opt =
        clef_sgd(net, &(clef_sgd_options){.lr = 0.5, .momentum = 0.5}); /* Adam would make steps of noise, where a gradient is 0 */
    for (int i = 0; i < STEPS; i++) {
        clef_tensor *loss = loss_of(clef_forward(net, make_x(ctx, p)));
        clef_backward(loss);
        if (i == 0 && p->kind == MLP) append(o, clef_grad_of(clef_parameter(net, "0.weight")));
        clef_step(opt);
        o->loss[i] = clef_item(loss);
    }
    clef_module_unshard(net);
    for (int i = 0; i < clef_module_tensors(net); i++) append(o, clef_module_tensor(net, i).tensor);
    append(o, clef_forward(net, make_x(ctx, p))); /* whole again, it computes without the group */
}

/* ---- losses ---- */

static clef_loss_options loss_options(const plan *p) {
    return (clef_loss_options){
        .reduction = p->reduction, .label_smoothing = p->smoothing, .has_ignore_index = p->ignores, .ignore_index = -7};
}

/* own: this rank's part of the logits, split; all of them for one rank. */
static void lose(clef_context *ctx, clef_group *all, const plan *p, outcome *o) {
    clef_seed(ctx, p->seed);
    int n = clef_group_size(all);
    clef_shape shape = p->by_columns ? CLEF_SHAPE(p->items, wide(p), 3) : CLEF_SHAPE(p->items, wide(p));
    clef_tensor *whole = clef_to(clef_mul_scalar(clef_randn(ctx, shape), 9), p->dtype);
    clef_tensor *target = clef_randint(ctx, 0, wide(p), p->by_columns ? CLEF_SHAPE(p->items, 3) : CLEF_SHAPE(p->items));
    if (p->ignores)
        target = clef_where(clef_lt_scalar(clef_rand(ctx, clef_tensor_shape(target)), 0.4),
                            clef_full(ctx, clef_tensor_shape(target), CLEF_I64, -7), target);
    clef_tensor *own = clef_copy(clef_scatter_to_group(whole, all, 1));
    clef_eval(own);
    own = clef_require_grad(clef_keep(own), true);
    clef_loss_options options = loss_options(p);
    clef_tensor *loss = n > 1 ? clef_parallel_cross_entropy(own, target, all, &options) : clef_cross_entropy(own, target, &options);
    append(o, loss);
    clef_backward(p->reduction == CLEF_REDUCE_NONE ? clef_sum(clef_mul(loss, clef_add_scalar(clef_detach(loss), 1)), NULL, 0, false)
                                                   : loss);
    append(o, clef_gather_from_group(clef_grad_of(own), all, 1));
}

/* ---- both ---- */

typedef struct both {
    plan p;
    outcome want;
} both;

static void compare(const plan *p, int rank, const outcome *got, const outcome *want) {
    unsigned long long seed = (unsigned long long)p->seed;
    double tolerance = p->kind != LOSS ? 2e-4 : p->dtype == CLEF_F32 ? 4e-6 : 1e-2;
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(got->loss[i] - want->loss[i]) <= 2e-5 * (1 + fabs(want->loss[i]))))
            COMPLAIN("seed %llu (kind %d), rank %d, step %d: loss %.9g, not %.9g", seed, p->kind, rank, i, got->loss[i],
                     want->loss[i]);
    if (got->n != want->n || want->n == 0) COMPLAIN("seed %llu, rank %d: %d numbers, not %d", seed, rank, got->n, want->n);
    for (int i = 0; i < got->n; i++) {
        double a = (double)got->value[i], b = (double)want->value[i];
        if (fabs(a - b) <= tolerance * (1 + fabs(b)) || (isnan(a) && isnan(b))) continue;
        COMPLAIN("seed %llu (kind %d, %d ranks), rank %d, number %d of %d: %.9g, not %.9g", seed, p->kind, p->ranks, rank, i,
                 got->n, a, b);
        return;
    }
}

static clef_status run_rank(clef_context *ctx, clef_group *all, void *user) {
    const both *c = user;
    static _Thread_local outcome got;
    memset(&got, 0, sizeof got);
    if (c->p.kind == LOSS) lose(ctx, all, &c->p, &got);
    else {
        clef_module *net = make_net(ctx, &c->p);
        int64_t whole = clef_parameter_count(net);
        if (cut(net, all, &c->p)) return clef_error_status(ctx);
        if (c->p.ranks > 1 && clef_parameter_count(net) >= whole)
            COMPLAIN("seed %llu: nothing was cut", (unsigned long long)c->p.seed);
        train(ctx, net, &c->p, &got);
    }
    compare(&c->p, clef_group_rank(all), &got, &c->want);
    return clef_error_status(ctx);
}

static void run(both *c) {
    char devices[2 * MOST_RANKS];
    clef_context *ctx = clef_open(NULL);
    if (c->p.kind == LOSS) lose(ctx, NULL, &c->p, &c->want);
    else train(ctx, make_net(ctx, &c->p), &c->p, &c->want);
    if (clef_error_status(ctx)) COMPLAIN("seed %llu alone: %s", (unsigned long long)c->p.seed, clef_error(ctx));
    clef_close(ctx);
    clef_ranks_options o = {.timeout = 120};
    if (clef_run_ranks_with(ranks_on_one(c->p.ranks, devices), &o, run_rank, c))
        COMPLAIN("seed %llu (kind %d, %d ranks): %s", (unsigned long long)c->p.seed, c->p.kind, c->p.ranks, clef_error(NULL));
}

/* Two layers share a weight.  One is made whole again; both compute as before they were cut. */
static clef_status unshard_one(clef_context *ctx, clef_group *all, void *user) {
    float before[2][18], after[2][18];
    int64_t index[3] = {0, 11, 5};
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_embedding(ctx, 12, 6), clef_nn_embedding(ctx, 12, 6)));
    clef_module *layer[2] = {clef_module_child(net, "0"), clef_module_child(net, "1")};
    *(clef_tensor **)layer[1]->user = clef_parameter(layer[0], "weight");
    clef_replicate(net, all);
    for (int i = 0; i < 2; i++)
        clef_read(clef_forward(layer[i], clef_from_host(ctx, CLEF_SHAPE(3), CLEF_I64, index)), before[i], sizeof before[i]);
    clef_status status = clef_module_shard(net, "?", all, 0, NULL);
    if (clef_tensor_shape(clef_parameter(layer[0], "weight")).dim[0] != 6) COMPLAIN("the shared weight was not cut once");
    if (!status) status = clef_module_unshard(layer[*(int *)user]);
    for (int i = 0; i < 2 && !status; i++)
        status = clef_read(clef_forward(layer[i], clef_from_host(ctx, CLEF_SHAPE(3), CLEF_I64, index)), after[i], sizeof after[i]);
    if (!status && memcmp(before, after, sizeof before) != 0) COMPLAIN("layer %d whole: other numbers", *(int *)user);
    return status ? status : clef_error_status(ctx);
}

int main(void) {
    int code;
    if (!have_device(&code)) return code;
    long cases = cases_from_env("CLEF_PARALLEL_CASES", 30), first = number_from_env("CLEF_PARALLEL_FIRST", 1);
    static both c;
    for (long i = 0; i < cases && !complaints; i++) {
        memset(&c, 0, sizeof c);
        c.p = make_plan((uint64_t)(first + i));
        run(&c);
    }
    for (int i = 0; i < 2; i++)
        if (clef_run_ranks("0,0", unshard_one, &i)) COMPLAIN("layer %d whole: %s", i, clef_error(NULL));
    return complaints != 0;
}
