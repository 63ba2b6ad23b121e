/* consumer.c — a program of its own that uses the installed libclef-mpi: the ranks add up their numbers. */
#include <clef.h>
#include <clef/mpi.h>
#include <stdio.h>

static clef_status add_up(clef_context *ctx, clef_group *all, void *user) {
    clef_tensor *own = clef_full(ctx, CLEF_SHAPE(1), CLEF_F32, clef_group_rank(all) + 1);
    *(double *)user = clef_item(clef_all_reduce(own, all, CLEF_GROUP_SUM));
    int n = clef_group_size(all);
    if (*(double *)user != n * (n + 1) / 2) return CLEF_INTERNAL;
    return clef_error_status(ctx);
}

int main(void) {
    double sum = 0;
    clef_status status = clef_run_mpi(add_up, &sum);
    if (status != CLEF_OK) printf("%s\n", clef_error(NULL));
    else printf("sum %g\n", sum);
    return status != CLEF_OK && status != CLEF_NO_DEVICE;
}
