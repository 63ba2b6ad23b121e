/* What a pipeline's stage has in memory: its own parameters, and states of these alone.  Before the first step, after some, after all was
   gathered, and after a step that follows.  And how gathered values lie: as at their owner, to whom a checkpoint may give them back.
   ctest: apart plain */
#include "../group/ranks.h"
#include "ops/memory_order.h"

enum { LAYERS = 8, WIDTH = 256, ITEMS = 8 };

static const uint64_t layer_bytes = (uint64_t)(WIDTH + 1) * WIDTH * sizeof(float);

static clef_module *make_net(clef_context *ctx) {
    clef_module *layer[LAYERS];
    for (int i = 0; i < LAYERS; i++) layer[i] = clef_nn_linear(ctx, WIDTH, WIDTH, NULL);
    return clef_sequential(ctx, layer, LAYERS);
}

/* parameters, states: how many layers' there are to be.  Beside them, gradients of its own layers, and less than three layers' of else. */
static void expect_memory(clef_context *ctx, clef_group *all, const char *when, int parameters, int states) {
    int size = clef_group_size(all);
    uint64_t used = clef_memory(ctx).used, least = (uint64_t)(parameters + 2 * states) * layer_bytes;
    if (used < least || used > least + (uint64_t)(LAYERS / size + 3) * layer_bytes)
        COMPLAIN("rank %d of %d, %s: %.2f layers in memory, not %d of parameters and 2 x %d of states", clef_group_rank(all), size,
                 when, (double)used / (double)layer_bytes, parameters, states);
}

static clef_status take_steps(clef_pipeline *pipe, clef_optimizer *opt, clef_tensor *x, clef_tensor *y, int n) {
    clef_status status = CLEF_OK;
    for (int i = 0; i < n && !status; i++) {
        status = clef_pipeline_step(pipe, x, y, clef_mse_loss, NULL, NULL);
        if (!status) status = clef_step(opt);
    }
    return status ? status : clef_synchronize(clef_optimizer_context(opt));
}

static clef_tensor *weight_of(clef_module *net, int layer) {
    char name[12];
    snprintf(name, sizeof name, "%d", layer);
    return clef_parameter(clef_module_child(net, name), "weight");
}

/* Every second weight comes to lie the other way at its owner. */
static void turn_some(clef_module *net, clef_group *all) {
    int own = LAYERS / clef_group_size(all), first = own * clef_group_rank(all);
    bool was = clef_set_grad_enabled(clef_module_context(net), false);
    for (int i = first; i < first + own; i++)
        if (i % 2) clef_assign(weight_of(net, i), clef__in_memory_order(clef_copy(weight_of(net, i)), (const int[]){1, 0}));
    clef_set_grad_enabled(clef_module_context(net), was);
}

/* All ranks have all weights, with the same numbers at the same places. */
static void expect_turned(clef_module *net, clef_group *all) {
    static _Thread_local float weight[WIDTH * WIDTH];
    for (int i = 0; i < LAYERS; i++) {
        double sum = 0, sums[MOST_RANKS];
        int order[CLEF_MAX_RANK];
        if (clef_read(weight_of(net, i), weight, sizeof weight)) COMPLAIN("layer %d: %s", i, clef_error(clef_module_context(net)));
        for (int k = 0; k < WIDTH * WIDTH; k++) sum += (double)weight[k] * (k + 1);
        clef_group_gather_bytes(all, &sum, sums, sizeof sum);
        for (int r = 0; r < clef_group_size(all); r++)
            if (sums[r] != sum) COMPLAIN("layer %d: rank %d has other weights than rank %d", i, clef_group_rank(all), r);
        if (clef__memory_order_of(weight_of(net, i), order) != (i % 2 == 1))
            COMPLAIN("layer %d lies otherwise at rank %d than at its owner", i, clef_group_rank(all));
    }
}

static clef_status train(clef_context *ctx, clef_group *all, void *user) {
    bool first = *(bool *)user; /* the optimizer is made before the pipeline */
    int own = LAYERS / clef_group_size(all);
    clef_module *net = make_net(ctx);
    clef_optimizer *early = first ? clef_adam(net, NULL) : NULL;
    clef_pipeline *pipe = clef_pipeline_new(net, all, &(clef_pipeline_options){.micro_batches = 2});
    clef_optimizer *opt = first ? early : clef_adam(net, NULL);
    clef_tensor *x = clef_keep(clef_randn(ctx, CLEF_SHAPE(ITEMS, WIDTH))),
                *y = clef_keep(clef_randn(ctx, CLEF_SHAPE(ITEMS, WIDTH)));
    if (clef_end_step(ctx) || !pipe || !opt) return clef_error_status(ctx);
    expect_memory(ctx, all, "before the first step", first ? LAYERS : own, first ? LAYERS : own);
    take_steps(pipe, opt, x, y, 3);
    expect_memory(ctx, all, "after three steps", first ? LAYERS : own, own);
    turn_some(net, all);
    if (clef_pipeline_gather(pipe, opt) || clef_end_step(ctx)) return clef_error_status(ctx);
    expect_memory(ctx, all, "with all gathered", LAYERS, LAYERS);
    expect_turned(net, all);
    take_steps(pipe, opt, x, y, 2);
    expect_memory(ctx, all, "after a step that follows", LAYERS, own);
    return clef_error_status(ctx);
}

int main(void) {
    int code;
    if (!have_device(&code)) return code;
    for (int i = 0; i < 3; i++) {
        bool first = i == 2;
        if (clef_run_ranks(i == 1 ? "0,0,0,0" : "0,0", train, &first)) COMPLAIN("setting %d: %s", i, clef_error(NULL));
    }
    printf("%d complaints\n", atomic_load(&complaints));
    return atomic_load(&complaints) != 0;
}
