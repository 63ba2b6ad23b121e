/* Batches in parts over the processes of an MPI program: the same bits as on one rank alone; with clef_options.sum_units also where each process has
   a part of the CPU.
   ctest: labels=threads cost=30 plain ranks=1,2,4 */
#include "clef.h"
#include "clef/mpi.h"
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { SIDE = 6, CLASSES = 3, ITEMS = 21, VALUES = 4096, PARTS = 4 };

typedef struct result {
    float value[VALUES];
    int64_t n;
} result;

static clef_tensor *loss(clef_module *net, const clef_batch *part, void *user) {
    (void)user;
    return clef_cross_entropy(clef_forward(net, part->x), part->y, NULL);
}

static clef_module *make_net(clef_context *ctx) {
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 4, 3, NULL), clef_nn_batch_norm2d(ctx, 4, NULL),
                                            clef_nn_relu(ctx), clef_nn_flatten(ctx), clef_nn_dropout(ctx, 0.3),
                                            clef_nn_linear(ctx, 4 * 4 * 4, CLASSES, NULL)));
}

static clef_dataset *make_data(clef_context *ctx) {
    float x[ITEMS * SIDE * SIDE];
    int64_t y[ITEMS];
    for (int i = 0; i < ITEMS * SIDE * SIDE; i++) x[i] = (float)(i * 7919 % 2003) / 1000 - 1;
    for (int i = 0; i < ITEMS; i++) y[i] = i * 5 % CLASSES;
    return clef_dataset_arrays(ctx, x, CLEF_SHAPE(1, SIDE, SIDE), y, ITEMS);
}

/* Three epochs of batches of 9, 9 and 3 items: in the last, a part is empty. */
static clef_status train(clef_context *ctx, clef_group *all, void *user) {
    result *r = user;
    r->n = 0;
    clef_loader *data =
        clef_loader_open(make_data(ctx), &(clef_loader_options){.batch = 9, .shuffle = true, .group = all, .parts = PARTS});
    clef_module *net = make_net(ctx);
    clef_replicate(net, all);
    clef_optimizer *opt = clef_adamw(net, &(clef_adamw_options){.lr = 1e-2, .group = all});
    for (int epoch = 0; epoch < 3; epoch++)
        for (clef_batch b; clef_next(data, &b);) {
            clef_backward_parts(net, &b, loss, NULL, &(clef_parts_options){.group = all}, NULL);
            clef_step(opt);
        }
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_tensor *t = clef_module_tensor(net, i).tensor;
        int64_t n = clef_numel(t);
        if (r->n + n <= VALUES && clef_read(clef_to(t, CLEF_F32), r->value + r->n, (size_t)n * sizeof(float)) == CLEF_OK) r->n += n;
    }
    return clef_error_status(ctx);
}

/* best: the device of the one rank.  devices NULL: each process has its part of the CPU, or a device of its own. */
static int differs(const char *best, const char *devices, int sum_units) {
    static result alone, shared;
    clef_options context = {.no_tuning = true, .sum_units = sum_units};
    clef_status status = clef_run_ranks_with(best, &(clef_ranks_options){.context = context}, train, &alone);
    if (!status) status = clef_run_mpi_with(&(clef_mpi_options){.devices = devices, .context = context}, train, &shared);
    if (status) return fprintf(stderr, "FAILED: %s\n", clef_error(NULL)), 1;
    if (alone.n > 200 && alone.n == shared.n && !memcmp(alone.value, shared.value, (size_t)alone.n * sizeof(float))) return 0;
    fprintf(stderr, "FAILED: on devices %s other bits than on one rank, of %lld and %lld values\n", devices ? devices : "of each",
            (long long)alone.n, (long long)shared.n);
    return 1;
}

int main(int n, char **argument) {
    int provided, wrong = 0, code = 77;
    char best[16];
    clef_device_info info;
    MPI_Init_thread(&n, &argument, MPI_THREAD_FUNNELED, &provided);
    clef_context *ctx = clef_open(NULL);
    if (clef_context_device(ctx, 0, &info)) {
        clef_close(ctx);
        snprintf(best, sizeof best, "%d", info.index);
        wrong = differs(best, best, 0) | differs(best, NULL, 3);
        MPI_Allreduce(&wrong, &code, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    } else printf("skipped: %s\n", clef_error(NULL));
    MPI_Finalize();
    return code;
}
