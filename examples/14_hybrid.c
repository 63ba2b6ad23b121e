/* 14_hybrid.c — a grid of ranks: each row of it is a pipeline of two stages, each column has the same stage and another part of the data.
       14_hybrid [DEVICES [EPOCHS]]      an even number of them; 0,0,0,0: four ranks on the first device (clef devices) */
#include <clef.h>
#include <stdio.h>
#include <stdlib.h>

enum { STAGES = 2 };

static clef_module *make_net(clef_context *ctx) {
    return clef_sequential(ctx,
                           CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 32, 3, NULL), clef_nn_relu(ctx), clef_nn_max_pool2d(ctx, 2, NULL),
                                       clef_nn_flatten(ctx), clef_nn_linear(ctx, 32 * 3 * 3, 64, NULL), clef_nn_relu(ctx),
                                       clef_nn_dropout(ctx, 0.2), clef_nn_linear(ctx, 64, 10, NULL)));
}

static clef_status train(clef_context *ctx, clef_group *all, void *user) {
    int epochs = *(int *)user, rank = clef_group_rank(all);
    clef_group *row = clef_group_split(all, rank / STAGES, 0);    /* a pipeline */
    clef_group *column = clef_group_split(all, rank % STAGES, 0); /* the same stage of all pipelines */
    clef_module *net = make_net(ctx);
    clef_replicate(net, column);
    clef_pipeline *pipe = clef_pipeline_new(
        net, row, &(clef_pipeline_options){.micro_batches = 4, .input = clef_zeros(ctx, CLEF_SHAPE(8, 1, 8, 8), CLEF_F32)});
    clef_optimizer *opt = clef_adamw(net, &(clef_adamw_options){.lr = 2e-3, .group = column});
    clef_loader *data =
        clef_loader_open(clef_digits(ctx, CLEF_TRAIN), &(clef_loader_options){.batch = 32, .shuffle = true, .group = column});

    for (int epoch = 1; epoch <= epochs; epoch++)
        for (clef_batch b; clef_next(data, &b);) {
            clef_pipeline_step(pipe, b.x, b.y, clef_cross_entropy, NULL, NULL);
            clef_step(opt);
        }

    clef_pipeline_gather(pipe, NULL); /* now every rank has the whole net */
    clef_evaluation_result result;
    clef_status status = clef_evaluate(net, clef_loader_open(clef_digits(ctx, CLEF_TEST), NULL), NULL, NULL, &result);
    if (status) return status;
    printf("%s: layers %d to %d, test accuracy %.3f\n", clef_group_rank_name(all, rank),
           clef_pipeline_first_layer(pipe, rank % STAGES), clef_pipeline_first_layer(pipe, rank % STAGES + 1) - 1, result.accuracy);
    return result.accuracy > 0.9 ? clef_error_status(ctx) : CLEF_STATE;
}

int main(int argc, char **argv) {
    int epochs = argc > 2 ? atoi(argv[2]) : 6;
    clef_status status = clef_run_ranks(argc > 1 ? argv[1] : "0,0,0,0", train, &epochs);
    if (status) fprintf(stderr, "%s\n", clef_error(NULL));
    return status == CLEF_NO_DEVICE ? 77 : status != CLEF_OK;
}
