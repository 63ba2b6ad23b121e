/* What pipelines and shards refuse, each with one line; steps where any host allocation may fail; and a rank that ends before the others.
   ctest: labels=threads cost=20 apart plain */
#include "../group/ranks.h"

static _Atomic long countdown; /* 0: no allocation fails */
static bool fails(void) { return countdown > 0 && --countdown == 0; }
static void *allocate(void *user, size_t bytes) { return (void)user, fails() ? NULL : malloc(bytes); }
static void *reallocate(void *user, void *old, size_t bytes) { return (void)user, fails() ? NULL : realloc(old, bytes); }
static void release(void *user, void *old) { (void)user, free(old); }

static clef_module *make_net(clef_context *ctx) {
    clef_seed(ctx, 3);
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 4, 6, NULL), clef_nn_dropout(ctx, 0.2),
                                            clef_nn_linear(ctx, 6, 6, NULL), clef_nn_linear(ctx, 6, 3, NULL)));
}

static clef_tensor *inputs(clef_context *ctx) { return clef_ones(ctx, CLEF_SHAPE(5, 4), CLEF_F32); }
static clef_tensor *targets(clef_context *ctx) { return clef_zeros(ctx, CLEF_SHAPE(5), CLEF_I64); }

/* ---- refusals ---- */

static void expect(clef_context *ctx, clef_status status, const char *words) {
    if (clef_error_status(ctx) != status || !strstr(clef_error(ctx), words))
        COMPLAIN("%s (%s), not %s with \"%s\"", clef_status_name(clef_error_status(ctx)), clef_error(ctx), clef_status_name(status),
                 words);
    clef_clear_error(ctx);
}

static clef_tensor *each_loss(clef_tensor *x, clef_tensor *y, const clef_loss_options *options) {
    (void)options;
    return clef_cross_entropy(x, y, &(clef_loss_options){.reduction = CLEF_REDUCE_NONE});
}

static void refuse_steps(clef_context *ctx) {
    clef_module *net = make_net(ctx);
    clef_pipeline *pipe = clef_pipeline_new(net, NULL, NULL);
    clef_pipeline_step(pipe, inputs(ctx), clef_zeros(ctx, CLEF_SHAPE(4), CLEF_I64), clef_cross_entropy, NULL, NULL);
    expect(ctx, CLEF_SHAPE, "pipeline_step: x [5,4] and y [4]");
    clef_pipeline_step(pipe, inputs(ctx), targets(ctx), NULL, NULL, NULL);
    expect(ctx, CLEF_INVALID, "pipeline_step: loss is NULL");
    clef_pipeline_step(pipe, inputs(ctx), targets(ctx), each_loss, NULL, NULL);
    expect(ctx, CLEF_SHAPE, "one number");
    clef_pipeline_step(pipe, clef_ones(ctx, CLEF_SHAPE(5, 7), CLEF_F32), targets(ctx), clef_cross_entropy, NULL, NULL);
    expect(ctx, CLEF_SHAPE, "linear");
    clef_pipeline_clip_grad_norm(pipe, -1);
    expect(ctx, CLEF_INVALID, "pipeline_clip_grad_norm");
    clef_freeze(net, true);
    clef_pipeline_step(pipe, inputs(ctx), targets(ctx), clef_cross_entropy, NULL, NULL);
    expect(ctx, CLEF_STATE, "no parameter that wants a gradient");
    if (clef_pipeline_step(NULL, NULL, NULL, NULL, NULL, NULL) != CLEF_INVALID || clef_pipeline_new(NULL, NULL, NULL) ||
        clef_pipeline_gather(NULL, NULL) != CLEF_INVALID || clef_pipeline_first_layer(pipe, 2) != -1)
        COMPLAIN("NULL, or a stage that there is not");
}

static clef_status refuse_on_two(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    clef_module *net = make_net(ctx);
    clef_pipeline_new(clef_module_child(net, "0"), all, NULL);
    expect(ctx, CLEF_INVALID, "clef_sequential");
    clef_pipeline_new(net, all, &(clef_pipeline_options){.micro_batches = -1});
    expect(ctx, CLEF_INVALID, "micro_batches is -1");
    clef_pipeline_new(net, all, &(clef_pipeline_options){.cut = (int[]){4}});
    expect(ctx, CLEF_INVALID, "cut[0] is 4");
    clef_pipeline_new(clef_sequential(ctx, CLEF_LAYERS(clef_nn_relu(ctx), clef_nn_linear(ctx, 4, 4, NULL))), all, NULL);
    expect(ctx, CLEF_INVALID, "cannot be cut into 2 stages");
    clef_module *norm = clef_nn_batch_norm2d(ctx, 2, NULL);
    clef_pipeline_new(clef_sequential(ctx, CLEF_LAYERS(norm, norm)), all, &(clef_pipeline_options){.cut = (int[]){1}});
    expect(ctx, CLEF_INVALID, "share the buffer \"running_mean\"");
    clef_module *twin = clef_nn_linear(ctx, 4, 4, NULL),
                *both = clef_sequential(ctx, CLEF_LAYERS(twin, clef_nn_linear(ctx, 4, 4, NULL)));
    clef_pipeline *pipe = clef_pipeline_new(both, all, &(clef_pipeline_options){.cut = (int[]){1}});
    clef_module_replace(both, "1", twin);
    clef_pipeline_step(pipe, inputs(ctx), targets(ctx), clef_cross_entropy, NULL, NULL);
    expect(ctx, CLEF_STATE, "other stages have a parameter [4,4]");
    clef_module_remove(both, "1");
    clef_pipeline_step(pipe, inputs(ctx), targets(ctx), clef_cross_entropy, NULL, NULL);
    expect(ctx, CLEF_STATE, "has 1 layers, and had 2");
    clef_module_shard(net, "2.*", all, 0, NULL);
    expect(ctx, CLEF_INVALID, "no layer's name matches \"2.*\"");
    clef_module_shard(net, "?", all, 0, NULL);
    expect(ctx, CLEF_INVALID, "is a dropout");
    clef_module_shard(net, "3", all, 0, NULL);
    expect(ctx, CLEF_SHAPE, "weight [3,6] of the linear \"3\" cannot be cut into 2");
    clef_module_shard(net, "2", all, 2, NULL);
    expect(ctx, CLEF_INVALID, "dim is 2");
    if (clef_parameter_count(net) != 4 * 6 + 6 + 6 * 6 + 6 + 6 * 3 + 3) COMPLAIN("a refusal cut something");
    clef_module_shard(net, "2", all, 1, NULL);
    clef_module_shard(net, "2", all, 1, NULL);
    expect(ctx, CLEF_INVALID, "is cut already");
    clef_scatter_to_group(clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32), all, 0);
    expect(ctx, CLEF_SHAPE, "scatter_to_group");
    clef_parallel_cross_entropy(clef_ones(ctx, CLEF_SHAPE(2, 3), CLEF_F32), clef_ones(ctx, CLEF_SHAPE(2, 3), CLEF_F32), all, NULL);
    expect(ctx, CLEF_DTYPE, "class indices");
    return CLEF_OK;
}

static void refuse_fit(clef_module *net, clef_fit_options o, const char *words) {
    o.train = o.train ? o.train : clef_loader_open(clef_digits(clef_module_context(net), CLEF_TEST), NULL);
    clef_fit(net, &o, NULL);
    expect(clef_module_context(net), CLEF_INVALID, words);
}

/* What clef_fit wants of a net that ranks have parts of. */
static clef_status refuse_fits(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), make_net(ctx), make_net(ctx)));
    clef_pipeline *pipe = clef_pipeline_new(net, all, NULL), *other = clef_pipeline_new(make_net(ctx), all, NULL);
    clef_optimizer *opt = clef_adam(net, NULL), *zero = clef_adam(make_net(ctx), &(clef_adam_options){.group = all, .zero = 1});
    clef_loader *shared = clef_loader_open(clef_digits(ctx, CLEF_TEST), &(clef_loader_options){.group = all});
    clef_loss_options sum = {.reduction = CLEF_REDUCE_SUM};
    refuse_fit(net, (clef_fit_options){.optimizer = opt, .pipeline = pipe}, "wants .group");
    refuse_fit(net, (clef_fit_options){.optimizer = opt, .pipeline = pipe, .group = all, .train = shared}, "one .group");
    refuse_fit(net, (clef_fit_options){.optimizer = zero, .pipeline = pipe, .group = all}, "the optimizer averages");
    refuse_fit(net, (clef_fit_options){.optimizer = opt, .pipeline = pipe, .group = all, .parts = 2}, "does not go with parts");
    refuse_fit(net, (clef_fit_options){.optimizer = opt, .pipeline = other, .group = all}, "not the one of .pipeline");
    refuse_fit(net, (clef_fit_options){.optimizer = opt, .pipeline = pipe, .group = all, .n_outputs = 2}, "of one output");
    refuse_fit(net, (clef_fit_options){.optimizer = opt, .pipeline = pipe, .group = all, .loss_options = &sum}, "that is a mean");
    refuse_fit(net, (clef_fit_options){.optimizer = opt, .pipeline = pipe, .group = all, .accumulate = 2}, "no accumulate");
    clef_module_shard(net, "1.2", all, 0, NULL);
    refuse_fit(net, (clef_fit_options){.optimizer = opt}, "wants .group");
    if (clef_shard_clip_grad_norm(net, -1) || clef_shard_clip_grad_norm(NULL, 1)) COMPLAIN("a norm below 0, or of nothing");
    expect(ctx, CLEF_INVALID, "shard_clip_grad_norm");
    clef_module *gpt = clef_nn_gpt(ctx, &(clef_gpt_options){.vocabulary = 5, .context = 4, .layers = 1, .heads = 2, .width = 8});
    clef_module_shard(gpt, "h.*.attn.c_attn", all, 0, &(clef_shard_options){.gather_output = true});
    expect(ctx, CLEF_INVALID, "leave gather_output out");
    return CLEF_OK;
}

/* ---- memory ---- */

static void sweep(clef_context *ctx) {
    clef_random_state random = clef_random_get(ctx);
    for (long n = 1; !complaints; n += 1 + n / 48) {
        clef_module *net = make_net(ctx);
        clef_random_set(ctx, random);
        clef_tensor *x = inputs(ctx), *y = targets(ctx), *mean = NULL;
        countdown = n;
        clef_pipeline *pipe =
            clef_pipeline_new(net, NULL, &(clef_pipeline_options){.micro_batches = 2, .schedule = CLEF_PIPELINE_GPIPE});
        clef_status status = pipe ? clef_pipeline_step(pipe, x, y, clef_cross_entropy, NULL, &mean) : clef_error_status(ctx);
        bool struck = countdown == 0;
        countdown = 0;
        bool done = status == CLEF_OK;
        if (!done && (!struck || clef_error_status(ctx) == CLEF_OK || (pipe && clef_random_get(ctx).offset != random.offset)))
            COMPLAIN("allocation %ld: %s: %s", n, clef_status_name(status), clef_error(ctx));
        clef_clear_error(ctx);
        if (clef_set_dry_run(ctx, false) || !clef_grad_enabled(ctx)) COMPLAIN("allocation %ld: the context is not as it was", n);
        clef_zero_grad(net);
        clef_end_step(ctx);
        clef_clear_error(ctx);
        if (!struck) return;
    }
}

/* ---- a rank that ends ---- */

static clef_status leave(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    clef_pipeline *pipe = clef_pipeline_new(make_net(ctx), all, &(clef_pipeline_options){.micro_batches = 3});
    clef_tensor *mean = NULL;
    for (int i = 0; i < 3; i++) {
        if (i == 1 && clef_group_rank(all) == 1) return clef_set_dry_run(ctx, true), CLEF_STATE;
        if (clef_pipeline_step(pipe, inputs(ctx), targets(ctx), clef_cross_entropy, NULL, &mean)) return clef_error_status(ctx);
        clef_item(mean);
    }
    if (clef_error_status(ctx) != CLEF_GROUP || !strstr(clef_error(ctx), "rank 1"))
        COMPLAIN("a rank that ended: %s", clef_error(ctx));
    return clef_error_status(ctx);
}

int main(void) {
    int code;
    clef_set_allocator(&(clef_allocator){.allocate = allocate, .reallocate = reallocate, .release = release});
    if (!have_device(&code)) return code;
    clef_context *ctx = clef_open(NULL);
    refuse_steps(ctx);
    sweep(ctx);
    clef_close(ctx);
    if (clef_run_ranks("0,0", refuse_on_two, NULL)) COMPLAIN("two ranks: %s", clef_error(NULL));
    if (clef_run_ranks("0,0", refuse_fits, NULL)) COMPLAIN("fit on two ranks: %s", clef_error(NULL));
    if (clef_run_ranks("0,0", leave, NULL) != CLEF_STATE) COMPLAIN("a rank that ended: %s", clef_error(NULL));
    return complaints != 0;
}
