/* 13_mpi.c — the processes of an MPI program fit a line together: each has points of its own, and gradients are averaged over all.
       mpirun -n 4 --bind-to none ./13_mpi */
#include <clef.h>
#include <clef/mpi.h>
#include <math.h>
#include <stdio.h>

enum { POINTS = 64, STEPS = 200 };

/* y = 3x − 1 at points that are other ones for every rank.  The start is the same, as the seed is. */
static clef_status fit_line(clef_context *ctx, clef_group *all, void *user) {
    float x[POINTS], y[POINTS];
    for (int i = 0; i < POINTS; i++) {
        x[i] = (float)((i * clef_group_size(all) + clef_group_rank(all)) % 97) / 48.5f - 1;
        y[i] = 3 * x[i] - 1;
    }
    clef_tensor *in = clef_keep(clef_from_host(ctx, CLEF_SHAPE(POINTS, 1), CLEF_F32, x));
    clef_tensor *target = clef_keep(clef_from_host(ctx, CLEF_SHAPE(POINTS, 1), CLEF_F32, y));
    clef_module *line = clef_nn_linear(ctx, 1, 1, NULL);
    clef_tensor *parameter[] = {clef_parameter(line, "weight"), clef_parameter(line, "bias")};
    clef_optimizer *opt = clef_sgd(line, &(clef_sgd_options){.lr = 0.3});
    for (int step = 0; step < STEPS; step++) {
        clef_backward(clef_mse_loss(clef_forward(line, in), target, NULL));
        for (int p = 0; p < 2; p++)
            clef_set_grad(parameter[p], clef_all_reduce(clef_grad_of(parameter[p]), all, CLEF_GROUP_MEAN));
        clef_step(opt);
    }
    double *found = user;
    for (int p = 0; p < 2; p++) found[p] = clef_item(parameter[p]);
    if (clef_group_rank(all) == 0) printf("%d ranks: y = %.3f x %+.3f\n", clef_group_size(all), found[0], found[1]);
    return clef_error_status(ctx);
}

int main(void) {
    double found[2] = {0, 0};
    clef_status status = clef_run_mpi(fit_line, found);
    if (status != CLEF_OK) fprintf(stderr, "%s\n", clef_error(NULL));
    return status == CLEF_NO_DEVICE ? 77 : !(fabs(found[0] - 3) < 0.01 && fabs(found[1] + 1) < 0.01);
}
