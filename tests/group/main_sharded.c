/* Optimizers whose states, and gradients, are cut over ranks give what they give without: every rule, clipping, frozen parameters, gradients that
   are missing, accumulation, weights and number of ranks; with the same bits on all ranks, half the memory on two, and checkpoints for
   any number of ranks.   CLEF_CASES, CLEF_SEED.
   ctest: cost=60 apart plain */
#include "graph/graph.h"
#include "ranks.h"
#include <math.h>
#include <unistd.h>

enum { PARAMETERS = 8, STEPS = 4, MOST_RECORDED = 200000, RULES = 6 };

/* Fewer elements than ranks, no multiple of them, none at all, several dtypes and dimensions. */
static const struct {
    clef_shape shape;
    clef_dtype dtype;
} parameter[PARAMETERS] = {
    {{1, {1}}, CLEF_F32}, {{2, {7, 5}}, CLEF_F32}, {{0, {0}}, CLEF_F32},          {{1, {3}}, CLEF_BF16},
    {{1, {0}}, CLEF_F32}, {{1, {513}}, CLEF_BF16}, {{4, {6, 3, 3, 3}}, CLEF_F32}, {{1, {130}}, CLEF_F32},
};

typedef struct scene {
    uint64_t seed;
    int ranks, zero, rule, clip, passes; /* clip: none, norm, value */
    bool freezes, lacks, weighs, reads;
} scene;

static scene now;

/* What a run did, number by number: of zero 0, then compared. */
static double recorded[MOST_RECORDED], tolerance[MOST_RECORDED];
static int n_recorded;

static scene random_scene(uint64_t seed) {
    uint64_t s = seed;
    return (scene){.seed = seed,
                   .ranks = 1 + (int)(seed % 4),
                   .rule = random_below(&s, RULES),
                   .clip = random_below(&s, 3),
                   .passes = 1 + random_below(&s, 2),
                   .freezes = random_below(&s, 2),
                   .lacks = random_below(&s, 2),
                   .weighs = random_below(&s, 2),
                   .reads = random_below(&s, 2)};
}

/* ---- on a rank ---- */

static clef_tensor *nothing(clef_module *module, clef_tensor *x, void *user) { return (void)module, (void)user, x; }

static clef_tensor *numbers(clef_context *ctx, clef_shape shape, uint64_t seed) {
    int64_t n = clef_shape_numel(shape);
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t k = 0; k < n; k++) x[k] = (float)(random_below(&seed, 2001) - 1000) / 1000;
    clef_tensor *t = clef_from_host(ctx, shape, CLEF_F32, x);
    free(x);
    return t;
}

static clef_module *make_module(clef_context *ctx) {
    clef_module *m = clef_module_new(ctx, "parameters", nothing, NULL);
    for (int i = 0; i < PARAMETERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        clef_module_add_parameter(m, name, clef_to(numbers(ctx, parameter[i].shape, 77 + (uint64_t)i), parameter[i].dtype));
    }
    return m;
}

static clef_optimizer *make_optimizer(clef_module *m, clef_group *all, int zero) {
    switch (now.rule) {
    case 0: return clef_sgd(m, &(clef_sgd_options){.lr = 0.1, .momentum = 0.9, .group = all, .zero = zero});
    case 1: return clef_adam(m, &(clef_adam_options){.lr = 0.01, .weight_decay = 0.1, .group = all, .zero = zero});
    case 2: return clef_adamw(m, &(clef_adamw_options){.lr = 0.01, .group = all, .zero = zero});
    case 3: return clef_rmsprop(m, &(clef_rmsprop_options){.momentum = 0.5, .centered = true, .group = all, .zero = zero});
    case 4: return clef_adagrad(m, &(clef_adagrad_options){.initial = 0.1, .group = all, .zero = zero});
    default: return clef_sgd(m, &(clef_sgd_options){.lr = 0.1, .group = all, .zero = zero});
    }
}

static clef_tensor *parameter_of(const clef_module *m, int i) { return clef_module_tensor(m, i).tensor; }

/* Σ of a parabola of each parameter: a gradient that depends on the parameter, on the rank and on the step. */
static void backward(clef_context *ctx, clef_module *m, int rank, int step) {
    for (int i = 0; i < PARAMETERS; i++) {
        bool missing = now.lacks && (i == 1 || (i == 6 && rank == 0));
        if (missing || !clef_requires_grad(parameter_of(m, i))) continue;
        clef_tensor *x = numbers(ctx, parameter[i].shape, (uint64_t)(1000 * step + 10 * rank + i));
        clef_backward(clef_sum(clef_square(clef_sub(clef_to(parameter_of(m, i), CLEF_F32), x)), NULL, 0, false));
    }
}

/* Rank 0 of zero 0 notes what the others are to have; all ranks have the same bits. */
static void record(clef_tensor *t, clef_group *all, int *at, const char *what) {
    int64_t n = clef_numel(t);
    bool half = clef_tensor_dtype(t) == CLEF_BF16;
    size_t bytes = (size_t)n * sizeof(float);
    float *x = calloc((size_t)n + 1, sizeof *x), *others = calloc((size_t)n * MOST_RANKS + 1, sizeof *x);
    clef_read(clef_to(t, CLEF_F32), x, bytes);
    if (bytes && clef_group_gather_bytes(all, x, others, bytes) != CLEF_OK) COMPLAIN("%s", clef_error(clef_tensor_context(t)));
    if (now.ranks > 1 && memcmp(x, others, bytes))
        COMPLAIN("seed %llu, zero %d: rank %d has other bits of %s", (unsigned long long)now.seed, now.zero, clef_group_rank(all),
                 what);
    for (int64_t k = 0; k < n; k++, ++*at) {
        if (now.zero == 0 && clef_group_rank(all) == 0) {
            recorded[*at] = (double)x[k], tolerance[*at] = half ? 0.02 : 2e-6;
            n_recorded = *at + 1;
        } else if (now.zero && fabs((double)x[k] - recorded[*at]) > tolerance[*at] * (1 + fabs(recorded[*at]))) {
            COMPLAIN("seed %llu, zero %d, rank %d of %d, rule %d, clip %d: %s is %.9g at %lld, not %.9g",
                     (unsigned long long)now.seed, now.zero, clef_group_rank(all), now.ranks, now.rule, now.clip, what,
                     (double)x[k], (long long)k, recorded[*at]);
            *at += (int)(n - k);
            break;
        }
    }
    free(x);
    free(others);
}

static void record_gradients(const clef_module *m, clef_group *all, int *at) {
    for (int i = 0; i < PARAMETERS; i++) {
        clef_tensor *g = clef_grad_of(parameter_of(m, i));
        if (g) record(g, all, at, "a gradient");
    }
}

static clef_status train(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    int rank = clef_group_rank(all), at = 0;
    clef_module *m = make_module(ctx);
    clef_optimizer *opt = make_optimizer(m, all, now.zero);
    clef_optimizer_group(opt, "p7", 0.5, 0.2);
    for (int step = 0; step < STEPS; step++) {
        if (now.freezes && step == 2) clef_require_grad(parameter_of(m, 6), false);
        if (now.weighs) clef_group_weight(all, 1 + (rank + step) % 3);
        for (int pass = 0; pass < now.passes; pass++) backward(ctx, m, rank, 2 * step + pass);
        if (now.clip == 1) record(clef_clip_grad_norm(m, 2), all, &at, "the norm");
        if (now.clip == 2) clef_clip_grad_value(m, 0.25);
        if (now.reads) record_gradients(m, all, &at);
        if (now.reads && clef_grad_of(parameter_of(m, 7))) /* what is set stands */
            clef_set_grad(parameter_of(m, 7), clef_mul_scalar(clef_grad_of(parameter_of(m, 7)), 0.5));
        clef_step(opt);
    }
    for (int i = 0; i < PARAMETERS; i++) record(parameter_of(m, i), all, &at, "a parameter");
    if (now.zero && rank == 0 && at != n_recorded)
        COMPLAIN("seed %llu: %d numbers, not %d", (unsigned long long)now.seed, at, n_recorded);
    return clef_error_status(ctx);
}

static void try_scene(uint64_t seed) {
    char devices[2 * MOST_RANKS];
    now = random_scene(seed);
    for (now.zero = 0; now.zero <= 2; now.zero++)
        if (clef_run_ranks(ranks_on_one(now.ranks, devices), train, NULL) != CLEF_OK)
            COMPLAIN("seed %llu, zero %d: %s", (unsigned long long)seed, now.zero, clef_error(NULL));
}

/* ---- checkpoints ---- */

static const char *path;
typedef enum visit { THROUGH, FIRST_HALF, SECOND_HALF } visit;

/* The same on all ranks, so that results depend on no number of them: two steps, a checkpoint, two more. */
static clef_status resume(clef_context *ctx, clef_group *all, void *user) {
    visit v = *(visit *)user;
    int at = 0;
    clef_module *m = make_module(ctx);
    clef_optimizer *opt = make_optimizer(m, all, now.zero);
    clef_checkpoint what = {.module = m, .optimizer = opt};
    if (v == SECOND_HALF) clef_checkpoint_load(ctx, path, &what);
    for (int step = v == SECOND_HALF ? 2 : 0; step < (v == FIRST_HALF ? 2 : 4); step++) {
        backward(ctx, m, 1, step);
        clef_step(opt);
    }
    if (v == FIRST_HALF) {
        clef_status status = clef_checkpoint_save(ctx, path, &what);
        return status ? status : clef_group_barrier(all);
    }
    for (int i = 0; i < PARAMETERS; i++) record(parameter_of(m, i), all, &at, "a resumed parameter");
    return clef_error_status(ctx);
}

static void run_resume(int ranks, int zero, visit v) {
    char devices[2 * MOST_RANKS];
    now.ranks = ranks;
    now.zero = zero;
    if (clef_run_ranks(ranks_on_one(ranks, devices), resume, &v) != CLEF_OK)
        COMPLAIN("resuming on %d: %s", ranks, clef_error(NULL));
}

static void check_checkpoints(void) {
    char name[] = "/tmp/clef_sharded_XXXXXX";
    int fd = mkstemp(name);
    path = name;
    now = (scene){.rule = 3};
    run_resume(1, 0, THROUGH);
    for (int from = 1; from <= 3; from++)
        for (int to = 1; to <= 3; to++) {
            run_resume(from, from == 1 ? 0 : from - 1, FIRST_HALF);
            run_resume(to, 3 - to ? 3 - to : 1, SECOND_HALF);
        }
    close(fd);
    unlink(name);
}

/* ---- memory ---- */

static struct { uint64_t states, gradients; /* bytes on rank 0 */ } used[3];

static const char *const nets[] = {"ResNet-18", "LeNet", "an MLP"};

static clef_module *make_net(clef_context *ctx, int net) {
    if (net == 0) return clef_model_resnet18(ctx, CLEF_SHAPE(3, 32, 32), 10);
    if (net == 1) return clef_model_lenet(ctx, CLEF_SHAPE(1, 28, 28), 10);
    return clef_sequential(
        ctx, CLEF_LAYERS(clef_nn_linear(ctx, 784, 1024, NULL), clef_nn_tanh(ctx), clef_nn_linear(ctx, 1024, 10, NULL)));
}

static void set_gradients(clef_context *ctx, clef_module *m, bool there) {
    for (int i = 0; i < clef_module_tensors(m); i++) {
        clef_tensor *t = clef_module_tensor(m, i).tensor;
        if (clef_requires_grad(t)) clef_set_grad(t, there ? clef_rand(ctx, clef_tensor_shape(t)) : CLEF_NONE);
    }
}

/* What each leaf has, whole or not. */
static void average_gradients(clef_module *m) {
    for (int i = 0; i < clef_module_tensors(m); i++) {
        clef_tensor *t = clef_module_tensor(m, i).tensor;
        if (clef_requires_grad(t) && clef__average_gradient(t) == CLEF_OK) clef_eval(clef__unaveraged(t));
    }
}

/* Temporaries go. */
static void end_steps(clef_context *ctx) {
    for (int i = 0; i < 3; i++) {
        clef_item(clef_scalar(ctx, i));
        clef_end_step(ctx);
    }
    clef_synchronize(ctx);
}

static clef_status weigh(clef_context *ctx, clef_group *all, void *net) {
    clef_module *m = make_net(ctx, *(int *)net);
    clef_replicate(m, all);
    for (int i = 0; i < clef_module_tensors(m); i++) clef_eval(clef_module_tensor(m, i).tensor);
    uint64_t before = clef_memory(ctx).used;
    clef_adam(m, &(clef_adam_options){.group = all, .zero = now.zero});
    uint64_t with_states = clef_memory(ctx).used;
    set_gradients(ctx, m, true);
    average_gradients(m);
    end_steps(ctx);
    uint64_t with_gradients = clef_memory(ctx).used;
    set_gradients(ctx, m, false);
    end_steps(ctx);
    if (clef_group_rank(all) == 0) {
        used[now.zero].states = with_states - before;
        used[now.zero].gradients = with_gradients - clef_memory(ctx).used;
    }
    return clef_error_status(ctx);
}

static void check_half(const char *net, const char *what, uint64_t cut, uint64_t whole) {
    printf("%s, %s: %.3f MB of %.3f on one of two ranks\n", net, what, (double)cut / 1e6, (double)whole / 1e6);
    if (whole == 0 || (double)cut > 0.55 * (double)whole) COMPLAIN("%s: that is more than 0.55 of it", net);
}

static void check_memory(void) {
    for (int net = 0; net < 3; net++) {
        for (now.zero = 0; now.zero <= 2; now.zero++)
            if (clef_run_ranks("0,0", weigh, &net) != CLEF_OK) COMPLAIN("%s: %s", nets[net], clef_error(NULL));
        check_half(nets[net], "states with zero 1", used[1].states, used[0].states);
        check_half(nets[net], "states with zero 2", used[2].states, used[0].states);
        check_half(nets[net], "gradients with zero 2", used[2].gradients, used[0].gradients);
    }
}

/* ---- plans ---- */

/* A step is one plan, which is made once, though numbers move. */
static clef_status count_plans(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    clef_module *layers[] = {clef_nn_linear(ctx, 8, 7, NULL), clef_nn_tanh(ctx), clef_nn_linear(ctx, 7, 1, NULL)};
    clef_module *m = clef_sequential(ctx, layers, 3);
    clef_optimizer *opt = clef_adamw(m, &(clef_adamw_options){.group = all, .zero = now.zero});
    clef_counters then = {0};
    for (int step = 0; step < 9; step++) {
        clef_backward(clef_mean(clef_square(clef_forward(m, clef_rand(ctx, CLEF_SHAPE(4, 8)))), NULL, 0, false));
        clef_clip_grad_norm(m, 1);
        clef_step(opt);
        clef_counters at = clef_counters_get(ctx);
        if (step > 3 && at.plans != then.plans) COMPLAIN("zero %d, step %d: a new plan", now.zero, step);
        if (step > 3 && at.replays != then.replays + 1) COMPLAIN("zero %d, step %d: more than one plan ran", now.zero, step);
        then = at;
    }
    return clef_error_status(ctx);
}

static void check_plans(void) {
    for (now.zero = 0; now.zero <= 2; now.zero++)
        if (clef_run_ranks("0,0", count_plans, NULL) != CLEF_OK) COMPLAIN("plans: %s", clef_error(NULL));
}

/* ---- what is refused ---- */

static void expect_line(clef_context *ctx, const char *part) {
    if (!strstr(clef_error(ctx), part)) COMPLAIN("the line is: %s", clef_error(ctx));
    clef_clear_error(ctx);
}

static clef_status refuse(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    clef_module *m = make_module(ctx);
    if (clef_adam(m, &(clef_adam_options){.group = all, .zero = 3})) COMPLAIN("zero 3 is taken");
    expect_line(ctx, "adam: there is no zero 3");
    if (clef_sgd(m, &(clef_sgd_options){.lr = 1, .zero = -1})) COMPLAIN("zero -1 is taken");
    expect_line(ctx, "sgd: there is no zero -1");
    clef_adam(m, &(clef_adam_options){.group = all, .zero = 2});
    backward(ctx, m, 0, 0);
    clef_clip_grad_norm(m, 1);
    clef_tensor *p = parameter_of(m, 7);
    if (clef_backward(clef_sum(p, NULL, 0, false)) != CLEF_STATE) COMPLAIN("backward adds to gradients that are cut");
    expect_line(ctx, "zero 2");
    return CLEF_OK;
}

int main(void) {
    int code;
    if (!have_device(&code)) return code;
    uint64_t first = (uint64_t)number_from_env("CLEF_SEED", 1), n = (uint64_t)cases_from_env("CLEF_CASES", 12);
    for (uint64_t seed = first; seed < first + n; seed++) try_scene(seed);
    check_checkpoints();
    if (clef_run_ranks("0,0", refuse, NULL) != CLEF_OK) COMPLAIN("%s", clef_error(NULL));
    check_plans();
    check_memory();
    printf("%d complaints\n", atomic_load(&complaints));
    return atomic_load(&complaints) != 0;
}
