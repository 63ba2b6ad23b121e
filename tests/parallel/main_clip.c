/* Clipping by the norm of the whole net, wherever its gradients lie: copies with parts of the batch, copies of a pipeline, and copies whose layers are cut
   over ranks, each with whole states, states that are cut (ZeRO 1) and gradients that are, too (ZeRO 2).  Norms and parameters after some
   steps are those of one device.
   ctest: apart plain */
#include "../group/ranks.h"
#include <math.h>

enum { ITEMS = 8, INPUT = 6, HIDDEN = 10, OUTPUT = 4, STEPS = 3, MOST_VALUES = 200 };

typedef enum way { DATA, PIPELINE, TENSOR, WAYS } way;

typedef struct setting {
    way way;
    int zero;
    double most; /* of the norm; 0: no clipping */
} setting;

typedef struct outcome {
    double norm[STEPS];
    float value[MOST_VALUES];
    int n;
} outcome;

static setting s;
static outcome result[MOST_RANKS];

/* This rank's part of the batch of one step. */
static clef_tensor *part(clef_context *ctx, clef_group *data, int step, int width) {
    float x[ITEMS * HIDDEN];
    int items = ITEMS / clef_group_size(data), first = clef_group_rank(data) * items;
    for (int i = 0; i < items * width; i++) x[i] = (float)((first * width + i + 31 * step + width) * 7919 % 211) / 50 - 2;
    return clef_from_host(ctx, CLEF_SHAPE(items, width), CLEF_F32, x);
}

static double clip(clef_module *net, clef_pipeline *pipe) {
    if (s.most <= 0) return 0;
    return clef_item(s.way == PIPELINE ? clef_pipeline_clip_grad_norm(pipe, s.most)
                     : s.way == TENSOR ? clef_shard_clip_grad_norm(net, s.most)
                                       : clef_clip_grad_norm(net, s.most));
}

static void read_parameters(clef_module *net, outcome *out) {
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_tensor *t = clef_module_tensor(net, i).tensor;
        if (out->n + clef_numel(t) > MOST_VALUES) abort();
        clef_read(t, out->value + out->n, (size_t)clef_numel(t) * sizeof(float));
        out->n += (int)clef_numel(t);
    }
}

/* all of one rank: the reference. */
static clef_status train(clef_context *ctx, clef_group *all, void *user) {
    int rank = clef_group_rank(all);
    bool one = clef_group_size(all) == 1, copies = one || s.way == DATA;
    outcome *out = (outcome *)user + rank;
    clef_group *data = one ? NULL : copies ? all : clef_group_split(all, rank % 2, 0);
    clef_group *model = copies ? NULL : clef_group_split(all, rank / 2, 0);
    clef_module *net = clef_sequential(
        ctx, CLEF_LAYERS(clef_nn_linear(ctx, INPUT, HIDDEN, NULL), clef_nn_tanh(ctx), clef_nn_linear(ctx, HIDDEN, OUTPUT, NULL)));
    if (model && s.way == TENSOR) clef_module_shard(net, "0", model, 0, NULL), clef_module_shard(net, "2", model, 1, NULL);
    clef_pipeline *pipe = s.way == PIPELINE ? clef_pipeline_new(net, model, &(clef_pipeline_options){.micro_batches = 2}) : NULL;
    clef_optimizer *opt = clef_sgd(net, &(clef_sgd_options){.lr = 0.1, .momentum = 0.9, .group = data, .zero = one ? 0 : s.zero});
    for (int step = 0; step < STEPS && !clef_error_status(ctx); step++) {
        clef_tensor *x = part(ctx, data, step, INPUT), *y = part(ctx, data, step, OUTPUT);
        if (pipe) clef_pipeline_step(pipe, x, y, clef_mse_loss, NULL, NULL);
        else clef_backward(clef_mse_loss(clef_forward(net, x), y, NULL));
        out->norm[step] = clip(net, pipe);
        clef_step(opt);
    }
    if (pipe) clef_pipeline_gather(pipe, opt);
    if (model && s.way == TENSOR) clef_module_unshard(net);
    read_parameters(net, out);
    return clef_error_status(ctx);
}

static void compare(const outcome *wanted, int ranks) {
    static const char *const name[] = {"copies", "pipelines", "cut layers"};
    for (int r = 0; r < ranks; r++) {
        double most = 0;
        for (int i = 0; i < wanted->n; i++) most = fmax(most, fabs((double)result[r].value[i] - (double)wanted->value[i]));
        if (result[r].n != wanted->n || !(most <= 2e-5))
            COMPLAIN("%s, zero %d, norm at most %g: rank %d's parameters differ by %g", name[s.way], s.zero, s.most, r, most);
        for (int i = 0; i < STEPS; i++)
            if (!(fabs(result[r].norm[i] - wanted->norm[i]) <= 1e-5 * fabs(wanted->norm[i])))
                COMPLAIN("%s, zero %d, norm at most %g: rank %d's norm of step %d is %.8g, not %.8g", name[s.way], s.zero, s.most,
                         r, i, result[r].norm[i], wanted->norm[i]);
    }
}

static void run(const char *devices, outcome *out, size_t n) {
    memset(out, 0, n * sizeof *out);
    if (clef_run_ranks(devices, train, out) != CLEF_OK) COMPLAIN("way %d, zero %d: %s", (int)s.way, s.zero, clef_error(NULL));
}

int main(void) {
    static const double most[] = {0, 0.3, 1e6};
    static outcome wanted;
    int code;
    if (!have_device(&code)) return code;
    for (int way = 0; way < WAYS; way++)
        for (int m = 0; m < 3; m++) {
            s = (setting){.way = (enum way)way, .most = most[m]};
            run("0", &wanted, 1);
            for (s.zero = 0; s.zero <= 2; s.zero++) {
                run("0,0,0,0", result, 4);
                compare(&wanted, 4);
            }
        }
    printf("%d complaints\n", atomic_load(&complaints));
    return atomic_load(&complaints) != 0;
}
