/* 12_data_parallel.c — the loop of one device on several, each with its part of every batch.
       12_data_parallel [DEVICES [EPOCHS]]      0/2: the first device in two halves; 0,1: the first and the second (clef devices) */
#include <clef.h>
#include <stdio.h>
#include <stdlib.h>

static clef_status train(clef_context *ctx, clef_group *all, void *user) {
    int epochs = *(int *)user;
    clef_loader *data = clef_loader_open(clef_digits(ctx, CLEF_TRAIN),
                                         &(clef_loader_options){.batch = 32, .shuffle = true, .group = all}); /* 1 of 3 */
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 32, 3, NULL), clef_nn_relu(ctx),
                                                        clef_nn_max_pool2d(ctx, 2, NULL), clef_nn_flatten(ctx),
                                                        clef_nn_dropout(ctx, 0.2), clef_nn_linear(ctx, 32 * 3 * 3, 10, NULL)));
    clef_replicate(net, all);                                                               /* 2 */
    clef_optimizer *opt = clef_adamw(net, &(clef_adamw_options){.lr = 2e-3, .group = all}); /* 3 */

    for (int epoch = 1; epoch <= epochs; epoch++)
        for (clef_batch b; clef_next(data, &b);) {
            clef_backward(clef_cross_entropy(clef_forward(net, b.x), b.y, NULL));
            clef_step(opt);
        }

    clef_evaluation_result result;
    clef_status status = clef_evaluate(net, clef_loader_open(clef_digits(ctx, CLEF_TEST), NULL), NULL, NULL, &result);
    if (!status) printf("%s: test accuracy %.3f\n", clef_group_rank_name(all, clef_group_rank(all)), result.accuracy);
    return status ? status : result.accuracy > 0.9 ? clef_error_status(ctx) : CLEF_STATE;
}

int main(int argc, char **argv) {
    int epochs = argc > 2 ? atoi(argv[2]) : 6;
    clef_status status = clef_run_ranks(argc > 1 ? argv[1] : "0/2", train, &epochs);
    if (status) fprintf(stderr, "%s\n", clef_error(NULL));
    return status == CLEF_NO_DEVICE ? 77 : status != CLEF_OK;
}
