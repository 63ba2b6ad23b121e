/* resume_rank FOLDER STEPS VICTIM MILLISECONDS RESULT: ranks that train in parts, write a checkpoint every few steps, and go on from the last one that
   is there.  VICTIM kills itself some time after the first step; -1: nobody does.  Rank 0 writes hashes of parameters, buffers, states and losses
   to RESULT when all steps are done.  FOLDER gets a file for every process, named after its number, and checkpoints.  The ranks are threads where
   CLEF_RANKS names their devices, else processes of MPI.  For tests/mpi/resume.sh. */
#include "clef.h"
#include "clef/mpi.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SIDE = 6,
    CLASSES = 3,
    ITEMS = 61,
    PARTS = 4,
    EVERY = 3,
    PATIENCE = 4 /* s: longer than a busy disk takes for a checkpoint */
};

static const char *folder, *result;
static long steps, milliseconds;
static int victim;

static clef_tensor *loss_of(clef_module *net, const clef_batch *part, void *user) {
    (void)user;
    return clef_cross_entropy(clef_forward(net, part->x), part->y, NULL);
}

static clef_module *make_net(clef_context *ctx) {
    return clef_sequential(ctx,
                           CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 4, 3, NULL), clef_nn_batch_norm2d(ctx, 4, NULL), clef_nn_relu(ctx),
                                       clef_nn_flatten(ctx), clef_nn_dropout(ctx, 0.3), clef_nn_linear(ctx, 4 * 4 * 4, 16, NULL),
                                       clef_nn_tanh(ctx), clef_nn_linear(ctx, 16, CLASSES, NULL)));
}

static clef_dataset *make_data(clef_context *ctx) {
    static float x[ITEMS * SIDE * SIDE];
    static int64_t y[ITEMS];
    for (int i = 0; i < ITEMS * SIDE * SIDE; i++) x[i] = (float)(i * 7919 % 2003) / 1000 - 1;
    for (int i = 0; i < ITEMS; i++) y[i] = i * 5 % CLASSES;
    return clef_dataset_arrays(ctx, x, CLEF_SHAPE(1, SIDE, SIDE), y, ITEMS);
}

static void *kill_this(void *unused) {
    struct timespec moment = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    char path[4096];
    (void)unused;
    snprintf(path, sizeof path, "%s/killed", folder);
    nanosleep(&moment, NULL);
    fclose(fopen(path, "w")); /* when it was */
    kill(getpid(), SIGKILL);
    return NULL;
}

/* FNV-1a (Fowler, Noll, Vo) of the bytes of a tensor */
static uint64_t hash_of(clef_tensor *t) {
    uint64_t hash = 0xcbf29ce484222325u;
    size_t n = (size_t)clef_numel(t) * clef_dtype_size(clef_tensor_dtype(t));
    unsigned char *bytes = malloc(n + 1);
    if (bytes && clef_read(t, bytes, n) == CLEF_OK)
        for (size_t i = 0; i < n; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    free(bytes);
    return hash;
}

static void write_result(clef_module *net, clef_optimizer *opt, double loss, clef_context *ctx) {
    char part[4096];
    snprintf(part, sizeof part, "%s.part", result); /* it may be killed in the midst of it */
    FILE *f = fopen(part, "w");
    if (!f) return;
    fprintf(f, "loss %a\nrandom %llu\n", loss, (unsigned long long)clef_random_get(ctx).offset);
    for (int i = 0; i < clef_module_tensors(net); i++)
        fprintf(f, "%s %016llx\n", clef_module_tensor(net, i).name, (unsigned long long)hash_of(clef_module_tensor(net, i).tensor));
    for (int i = 0; i < clef_optimizer_tensors(opt); i++)
        fprintf(f, "%s %016llx\n", clef_optimizer_tensor(opt, i).name,
                (unsigned long long)hash_of(clef_optimizer_tensor(opt, i).tensor));
    fclose(f);
    rename(part, result);
}

static clef_status train(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    char path[4096];
    pthread_t killer;
    clef_tensor *loss = NULL;
    double last = 0;
    snprintf(path, sizeof path, "%s/last.ckpt", folder);
    clef_loader *data = clef_loader_open(
        make_data(ctx), &(clef_loader_options){.batch = 16, .shuffle = true, .seed = 3, .group = all, .parts = PARTS});
    clef_module *net = make_net(ctx);
    clef_replicate(net, all);
    clef_optimizer *opt = clef_adamw(net, &(clef_adamw_options){.lr = 1e-2, .group = all});
    clef_checkpoint state = {.module = net, .optimizer = opt, .loader = data, .group = all};
    if (access(path, F_OK) == 0 && clef_checkpoint_load(ctx, path, &state)) return clef_error_status(ctx);
    if (state.epoch && !clef_group_rank(all)) printf("resumed after %lld\n", (long long)state.epoch);
    for (int64_t step = state.epoch; step < steps && !clef_error_status(ctx); step++) {
        clef_batch b;
        if (!clef_next(data, &b) && !clef_next(data, &b)) break;
        if (clef_backward_parts(net, &b, loss_of, NULL, &(clef_parts_options){.group = all}, &loss)) break;
        if (step == steps - 1) last = clef_item(loss);
        if (clef_step(opt)) break;
        if (step == state.epoch) clef_group_barrier(all);
        if (step == state.epoch && clef_group_rank(all) == victim) pthread_create(&killer, NULL, kill_this, NULL);
        state.epoch = step % EVERY == EVERY - 1 ? step + 1 : state.epoch;
        if (state.epoch == step + 1 && clef_checkpoint_save(ctx, path, &state)) break;
    }
    if (!clef_error_status(ctx) && !clef_group_rank(all)) write_result(net, opt, last, ctx);
    return clef_error_status(ctx);
}

int main(int argc, char **argv) {
    char path[4096];
    if (argc < 6) return 2;
    folder = argv[1], steps = atol(argv[2]), victim = atoi(argv[3]), milliseconds = atol(argv[4]), result = argv[5];
    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(path, sizeof path, "%s/pids/%ld", folder, (long)getpid());
    fclose(fopen(path, "w"));
    const char *threads = getenv("CLEF_RANKS");
    clef_options context = {.no_tuning = true, .sum_units = 2};
    clef_ranks_options options = {.context = context, .timeout = PATIENCE};
    clef_status status =
        threads ? clef_run_ranks_with(threads, &options, train, NULL)
                : clef_run_mpi_with(&(clef_mpi_options){.devices = "0", .context = context, .timeout = PATIENCE}, train, NULL);
    if (status) printf("ended: %s\n", clef_error(NULL));
    return status == CLEF_NO_DEVICE ? 77 : status ? 1 : 0;
}
