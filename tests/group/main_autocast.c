/* Ranks under autocast: replicas, the stages of a pipeline and layers that are cut learn as one rank does, and replicas have the same bits.  What goes
   between stages has the dtype of the layers, whichever setting the call before had.
   ctest: apart plain labels=threads */
#include "ranks.h"
#include <math.h>

enum { RANKS = 2, ITEMS = 16, WIDTH = 20, STEPS = 3, MOST_VALUES = 2 * WIDTH * WIDTH + 2 * WIDTH };
typedef enum way { ALONE, COPIES, STAGES, CUT, WAYS } way;
static const char *const way_name[WAYS] = {"one rank", "replicas", "a pipeline", "cut layers"};

typedef struct scene {
    way way;
    clef_dtype low;
    float value[RANKS][MOST_VALUES]; /* the weights in the end */
} scene;

static void train(clef_context *ctx, clef_group *all, const scene *c, clef_module *net) {
    int rows = c->way == COPIES ? ITEMS / RANKS : ITEMS, first = c->way == COPIES ? clef_group_rank(all) * rows * WIDTH : 0;
    clef_pipeline *pipe =
        c->way == STAGES ? clef_pipeline_new(net, all, &(clef_pipeline_options){.micro_batches = 2, .cut = (int[]){1}}) : NULL;
    clef_optimizer *opt = clef_sgd(net, &(clef_sgd_options){.lr = 0.5, .momentum = 0.9, .group = c->way == COPIES ? all : NULL});
    for (int step = 0; step < STEPS; step++) {
        clef_tensor *x = rows_of_numbers(ctx, rows, WIDTH, 100 * step + first),
                    *y = rows_of_numbers(ctx, rows, WIDTH, 50 + step + first);
        if (step > 0) clef_set_autocast(ctx, c->low);
        if (pipe) clef_pipeline_step(pipe, x, y, clef_mse_loss, NULL, NULL);
        clef_tensor *loss = pipe ? NULL : clef_mse_loss(clef_forward(net, x), y, NULL);
        clef_set_autocast(ctx, CLEF_F32);
        if (loss) clef_backward(loss);
        clef_step(opt);
    }
    if (pipe) clef_pipeline_gather(pipe, opt);
}

static clef_status run_rank(clef_context *ctx, clef_group *all, void *user) {
    scene *c = user;
    clef_module *net =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, WIDTH, WIDTH, NULL), clef_nn_linear(ctx, WIDTH, WIDTH, NULL)));
    if (c->way != ALONE) clef_replicate(net, all);
    if (c->way == CUT) clef_module_shard(net, "0", all, 0, NULL), clef_module_shard(net, "1", all, 1, NULL);
    train(ctx, all, c, net);
    if (c->way == CUT) clef_module_unshard(net);
    for (int i = 0, n = 0; i < clef_module_tensors(net); i++) {
        clef_tensor *t = clef_module_tensor(net, i).tensor;
        clef_read(t, c->value[clef_group_rank(all)] + n, (size_t)clef_numel(t) * sizeof(float));
        n += (int)clef_numel(t);
    }
    return clef_error_status(ctx);
}

static void run(scene *c, way how, clef_dtype low) {
    *c = (scene){.way = how, .low = low};
    clef_ranks_options options = {.context = {.seed = 3}};
    if (clef_run_ranks_with(how == ALONE ? "0" : "0,0", &options, run_rank, c) != CLEF_OK)
        COMPLAIN("%s: %s", way_name[how], clef_error(NULL));
    if (how != ALONE && memcmp(c->value[0], c->value[1], sizeof c->value[0]) != 0)
        COMPLAIN("%s: the ranks have other weights", way_name[how]);
}

static double distance(const scene *a, const scene *b) {
    double most = 0;
    for (int i = 0; i < MOST_VALUES; i++) most = fmax(most, fabs((double)a->value[0][i] - (double)b->value[0][i]));
    return most;
}

int main(void) {
    static scene wide, one, several;
    int code;
    if (!have_device(&code)) return code;
    run(&wide, ALONE, CLEF_F32);
    for (int i = 0; i < 2; i++) {
        clef_dtype low = i ? CLEF_BF16 : CLEF_F16;
        run(&one, ALONE, low);
        double lost = distance(&wide, &one);
        if (lost == 0) COMPLAIN("autocast to %s changed nothing", clef_dtype_name(low));
        for (way how = COPIES; how < WAYS; how++) {
            run(&several, how, low);
            double off = distance(&one, &several);
            if (off > 4 * lost || distance(&wide, &several) == 0)
                COMPLAIN("%s, %s: weights are %g from those of one rank, which are %g from those of f32", way_name[how],
                         clef_dtype_name(low), off, lost);
        }
    }
    printf("%d complaints\n", atomic_load(&complaints));
    return atomic_load(&complaints) != 0;
}
