/* 13_mpi.c — data parallel training whose ranks are the processes of an MPI program, on one machine or on many.
       mpirun -n 4 --bind-to none ./13_mpi [EPOCHS] */
#include <clef.h>
#include <clef/mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* As for threads (12_data_parallel.c): nothing here knows of MPI. */
static clef_status train(clef_context *ctx, clef_group *all, void *user) {
    clef_loader *data =
        clef_loader_open(clef_digits(ctx, CLEF_TRAIN), &(clef_loader_options){.batch = 32, .shuffle = true, .group = all});
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, 64, 64, NULL), clef_nn_relu(ctx),
                                                        clef_nn_linear(ctx, 64, 10, NULL)));
    clef_replicate(net, all);
    clef_optimizer *opt = clef_adamw(net, &(clef_adamw_options){.lr = 2e-3, .group = all});
    for (int epoch = 0; epoch < *(int *)user; epoch++)
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
    int epochs = argc > 1 ? atoi(argv[1]) : 6;
    clef_status status = clef_run_mpi(train, &epochs);
    if (status) fprintf(stderr, "%s\n", clef_error(NULL));
    return status == CLEF_NO_DEVICE ? 77 : status != CLEF_OK;
}
