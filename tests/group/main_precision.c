/* Ranks that set the precision of products otherwise than each other: each computes as its own context says, and weights that share gradients
   are the same bits on all of them after every step, those of a pipeline's stages, too.  On matrix units that local memory stands in for.
   ctest: apart plain */
#include "ranks.h"

enum { RANKS = 2, ITEMS = 16, WIDTH = 20, STEPS = 3, MOST_VALUES = 2 * WIDTH * WIDTH + 2 * WIDTH };

typedef struct scene {
    bool differ; /* rank 1 rounds, and rank 0 does not */
    bool pipeline;
    float first[RANKS][WIDTH * WIDTH]; /* a product of the same numbers on both */
    float value[RANKS][MOST_VALUES];   /* the weights in the end */
    int n[RANKS];
} scene;

static void train(clef_context *ctx, clef_group *all, const scene *c, clef_module *net) {
    int rank = clef_group_rank(all), half = ITEMS / RANKS;
    clef_pipeline *pipe =
        c->pipeline ? clef_pipeline_new(net, all, &(clef_pipeline_options){.micro_batches = 2, .cut = (int[]){1}}) : NULL;
    clef_optimizer *opt = clef_sgd(net, &(clef_sgd_options){.lr = 0.5, .momentum = 0.9, .group = c->pipeline ? NULL : all});
    for (int step = 0; step < STEPS; step++) {
        clef_tensor *x = rows_of_numbers(ctx, half, WIDTH, 100 * step + (c->pipeline ? 0 : rank * half * WIDTH)),
                    *y = rows_of_numbers(ctx, half, WIDTH, 50 + step);
        if (pipe) clef_pipeline_step(pipe, x, y, clef_mse_loss, NULL, NULL);
        else clef_backward(clef_mse_loss(clef_forward(net, x), y, NULL));
        clef_step(opt);
    }
    if (pipe) clef_pipeline_gather(pipe, opt);
}

static clef_status run_rank(clef_context *ctx, clef_group *all, void *user) {
    scene *c = user;
    int rank = clef_group_rank(all);
    clef_set_matmul_precision(ctx, c->differ && rank == 1 ? CLEF_MATMUL_HIGH : CLEF_MATMUL_HIGHEST);
    clef_read(clef_matmul(rows_of_numbers(ctx, WIDTH, WIDTH, 1), rows_of_numbers(ctx, WIDTH, WIDTH, 2)), c->first[rank],
              sizeof c->first[rank]);
    clef_module *net =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, WIDTH, WIDTH, NULL), clef_nn_linear(ctx, WIDTH, WIDTH, NULL)));
    if (!c->pipeline) clef_replicate(net, all);
    train(ctx, all, c, net);
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_tensor *t = clef_module_tensor(net, i).tensor;
        clef_read(t, c->value[rank] + c->n[rank], (size_t)clef_numel(t) * sizeof(float));
        c->n[rank] += (int)clef_numel(t);
    }
    return clef_error_status(ctx);
}

static void run(scene *c, bool differ, bool pipeline) {
    *c = (scene){.differ = differ, .pipeline = pipeline};
    clef_ranks_options options = {.context = {.profile = "gpu", .seed = 3}};
    const char *what = pipeline ? "pipeline" : "data parallel";
    if (clef_run_ranks_with("0,0", &options, run_rank, c) != CLEF_OK) COMPLAIN("%s: %s", what, clef_error(NULL));
    if (c->n[0] != MOST_VALUES) COMPLAIN("%s: %d values, not %d", what, c->n[0], MOST_VALUES);
    if (memcmp(c->value[0], c->value[1], sizeof c->value[0]) != 0) COMPLAIN("%s: the ranks have other weights", what);
    if ((memcmp(c->first[0], c->first[1], sizeof c->first[0]) != 0) != differ)
        COMPLAIN("%s: products of the ranks %s", what, differ ? "are the same bits" : "differ");
}

int main(void) {
    static scene alike, differing;
    int code;
    setenv("CLEF_MATRIX", "emulated", 1);
    if (!have_device(&code)) return code;
    for (int pipeline = 0; pipeline < 2; pipeline++) {
        run(&alike, false, pipeline);
        run(&differing, true, pipeline);
        if (memcmp(alike.value, differing.value, sizeof alike.value) == 0) COMPLAIN("rank 1's setting changed nothing");
    }
    printf("%d complaints\n", atomic_load(&complaints));
    return atomic_load(&complaints) != 0;
}
