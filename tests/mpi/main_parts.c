/* Batches in parts over the processes of an MPI program: the same bits as on one rank alone, and as threads; with clef_options.sum_units also where
   each process has a part of the CPU.  LeNet with dropout, a net with batch norm, a block of a transformer.   CLEF_STEPS: how many.
   ctest: labels=threads cost=30 apart plain ranks=1,2,4 */
#include "clef.h"
#include "clef/mpi.h"
#include "support/attention_block.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 8, PIXELS = SIDE * SIDE, CLASSES = 3, ITEMS = 21, VALUES = 1 << 15, PARTS = 4 };
enum { LENET, NORMS, BLOCK, NETS };

static int net_kind;

typedef struct result {
    float value[VALUES];
    int64_t n;
} result;

static clef_tensor *loss(clef_module *net, const clef_batch *part, void *user) {
    (void)user;
    return clef_cross_entropy(net_kind == BLOCK ? attend(net, SIDE, part->x) : clef_forward(net, part->x), part->y, NULL);
}

static clef_module *make_net(clef_context *ctx) {
    if (net_kind == LENET)
        return clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 4, 3, NULL), clef_nn_relu(ctx),
                                                clef_nn_max_pool2d(ctx, 2, NULL), clef_nn_flatten(ctx), clef_nn_dropout(ctx, 0.3),
                                                clef_nn_linear(ctx, 4 * 3 * 3, 12, NULL), clef_nn_tanh(ctx),
                                                clef_nn_dropout(ctx, 0.5), clef_nn_linear(ctx, 12, CLASSES, NULL)));
    if (net_kind == NORMS)
        return clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 4, 3, NULL), clef_nn_batch_norm2d(ctx, 4, NULL),
                                                clef_nn_relu(ctx), clef_nn_flatten(ctx), clef_nn_dropout(ctx, 0.3),
                                                clef_nn_linear(ctx, 4 * 6 * 6, CLASSES, NULL)));
    return attention_block(ctx, SIDE, CLASSES);
}

static clef_dataset *make_data(clef_context *ctx) {
    float x[ITEMS * SIDE * SIDE];
    int64_t y[ITEMS];
    for (int i = 0; i < ITEMS * SIDE * SIDE; i++) x[i] = (float)(i * 7919 % 2003) / 1000 - 1;
    for (int i = 0; i < ITEMS; i++) y[i] = i * 5 % CLASSES;
    return clef_dataset_arrays(ctx, x, CLEF_SHAPE(1, SIDE, SIDE), y, ITEMS);
}

/* Batches of 9, 9 and 3 items: in the last, a part is empty. */
static clef_status train(clef_context *ctx, clef_group *all, void *user) {
    result *r = user;
    r->n = 0;
    clef_loader *data =
        clef_loader_open(make_data(ctx), &(clef_loader_options){.batch = 9, .shuffle = true, .group = all, .parts = PARTS});
    clef_module *net = make_net(ctx);
    clef_replicate(net, all);
    clef_optimizer *opt = clef_adamw(net, &(clef_adamw_options){.lr = 1e-2, .group = all});
    clef_tensor *mean;
    clef_batch b;
    for (long step = 0, steps = getenv("CLEF_STEPS") ? atol(getenv("CLEF_STEPS")) : 9; step < steps; step++) {
        if ((!clef_next(data, &b) && !clef_next(data, &b)) ||
            clef_backward_parts(net, &b, loss, NULL, &(clef_parts_options){.group = all}, &mean))
            return clef_error_status(ctx);
        if (r->n < VALUES / 2) r->value[r->n++] = (float)clef_item(mean);
        clef_step(opt);
    }
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_tensor *t = clef_module_tensor(net, i).tensor;
        int64_t n = clef_numel(t);
        if (r->n + n <= VALUES && clef_read(clef_to(t, CLEF_F32), r->value + r->n, (size_t)n * sizeof(float)) == CLEF_OK) r->n += n;
    }
    return clef_error_status(ctx);
}

static clef_status train_thread(clef_context *ctx, clef_group *all, void *user) {
    return train(ctx, all, (result *)user + clef_group_rank(all));
}

/* best: the device of the one rank.  devices NULL: each process has its part of the CPU, or a device of its own. */
static int differs(const char *best, const char *devices, int sum_units) {
    static result alone, threads[PARTS], shared;
    char as_threads[2 * PARTS + 1] = "";
    clef_options context = {.no_tuning = true, .sum_units = sum_units};
    clef_status status = clef_run_ranks_with(best, &(clef_ranks_options){.context = context}, train, &alone);
    int ranks, rank;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < ranks; i++) snprintf(as_threads + (i ? 2 * i - 1 : 0), 3, "%s%.1s", i ? "," : "", best);
    if (!status && devices && rank == 0 && ranks > 1 && strlen(best) == 1)
        status = clef_run_ranks_with(as_threads, &(clef_ranks_options){.context = context}, train_thread, threads);
    else threads[0] = alone;
    if (!status) status = clef_run_mpi_with(&(clef_mpi_options){.devices = devices, .context = context}, train, &shared);
    if (status) return fprintf(stderr, "FAILED: %s\n", clef_error(NULL)), 1;
    size_t bytes = (size_t)alone.n * sizeof(float);
    bool as_mpi = alone.n == shared.n && !memcmp(alone.value, shared.value, bytes),
         as_thread = alone.n == threads[0].n && !memcmp(alone.value, threads[0].value, bytes);
    if (alone.n > 200 && as_mpi && as_thread) return 0;
    fprintf(stderr, "FAILED: net %d on devices %s: other bits than on one rank%s%s, of %lld values\n", net_kind,
            devices ? devices : "of each", as_mpi ? "" : ", as processes", as_thread ? "" : ", as threads", (long long)alone.n);
    return 1;
}

int main(int n, char **argument) {
    int provided, wrong = 0, code = 77;
    char best[16];
    clef_device_info info;
    MPI_Init_thread(&n, &argument, MPI_THREAD_FUNNELED, &provided);
    clef_context *ctx = clef_open(NULL);
    if (clef_context_device(ctx, 0, &info)) { /* open to the end, so that what all runs have in common is compiled once */
        clef_device_events(ctx, info.index, info.index, true);
        snprintf(best, sizeof best, "%d", info.index);
        for (net_kind = 0; net_kind < NETS; net_kind++) wrong |= differs(best, best, 0) | differs(best, NULL, 3);
        MPI_Allreduce(&wrong, &code, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    } else printf("skipped: %s\n", clef_error(NULL));
    clef_close(ctx);
    MPI_Finalize();
    return code;
}
