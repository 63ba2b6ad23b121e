/* clef_fit with a pipeline of two ranks, loader threads, test data, a checkpoint and a resume: what it ends with is what one device ends with.  Two
   copies of one with dropout, and batches that they share unequally: a run that is resumed ends with the bits of one that is not.
   ctest: labels=threads apart plain */
#include "../group/ranks.h"
#include "support/plain.h"
#include <math.h>
#include <unistd.h>

enum { ITEMS = 48, BATCH = 16, EPOCHS = 2, WEIGHTS = 16 * 10 };

static char dir[] = "/tmp/clef-stages-XXXXXX";
static float weights[2][WEIGHTS]; /* of one device, of the pipeline */

static clef_module *make_net(clef_context *ctx, uint64_t seed) {
    clef_seed(ctx, seed);
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, 64, 16, NULL), clef_nn_tanh(ctx),
                                            clef_nn_linear(ctx, 16, 10, NULL)));
}

/* group NULL: one device.  Else it begins anew, and resumes what an earlier run left in dir. */
static clef_status fit(clef_context *ctx, clef_group *group, int epochs, float *into) {
    clef_module *net = make_net(ctx, group && epochs > 1 ? 4 : 3); /* one that resumes must not need its own weights */
    clef_replicate(net, group);
    clef_pipeline *pipe = group ? clef_pipeline_new(net, group, &(clef_pipeline_options){.micro_batches = 4}) : NULL;
    clef_optimizer *opt = clef_adam(net, &(clef_adam_options){.lr = 0.01});
    clef_dataset *set = clef_dataset_take(clef_digits(ctx, CLEF_TRAIN), ITEMS),
                 *held = clef_dataset_take(clef_digits(ctx, CLEF_TEST), BATCH);
    clef_loader *data = clef_loader_open(set, &(clef_loader_options){.batch = BATCH, .shuffle = true, .seed = 5, .workers = 2});
    clef_loader *test = clef_loader_open(held, &(clef_loader_options){.batch = BATCH});
    clef_fit_options o = {.train = data,
                          .test = test,
                          .optimizer = opt,
                          .epochs = epochs,
                          .group = group,
                          .pipeline = pipe,
                          .checkpoint_dir = group ? dir : NULL,
                          .resume = group != NULL};
    clef_status status = clef_error_status(ctx) ? clef_error_status(ctx) : clef_fit(net, &o, NULL);
    if (status == CLEF_OK && group) status = clef_pipeline_gather(pipe, opt);
    if (status == CLEF_OK) status = clef_read(clef_parameter(net, "3.weight"), into, sizeof *weights);
    clef_loader_close(data);
    clef_loader_close(test);
    return status;
}

static clef_status in_stages(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    float own[WEIGHTS];
    clef_status status = CLEF_OK;
    for (int epochs = 1; epochs <= EPOCHS && status == CLEF_OK; epochs++)
        status = fit(ctx, all, epochs, clef_group_rank(all) == 0 ? weights[1] : own);
    return status;
}

/* ---- copies ---- */

typedef struct copied {
    int epochs;
    bool keeps; /* checkpoints in dir, and resumes */
    float *into;
} copied;

static clef_status in_copies(clef_context *ctx, clef_group *all, void *user) {
    const copied *c = user;
    int rank = clef_group_rank(all);
    clef_group *row = clef_group_split(all, rank / 2, 0), *copies = clef_group_split(all, rank % 2, 0);
    clef_seed(ctx, 3);
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, 64, 16, NULL),
                                                        clef_nn_dropout(ctx, 0.3), clef_nn_linear(ctx, 16, 10, NULL)));
    clef_pipeline *pipe = clef_pipeline_new(net, row, &(clef_pipeline_options){.micro_batches = 2});
    clef_optimizer *opt = clef_adamw(net, &(clef_adamw_options){.lr = 0.01, .group = copies});
    clef_dataset *set = clef_dataset_take(clef_digits(ctx, CLEF_TRAIN), 33);
    clef_loader *data = clef_loader_open(set, &(clef_loader_options){.batch = 11, .shuffle = true, .group = copies});
    clef_fit_options o = {.train = data,
                          .optimizer = opt,
                          .epochs = c->epochs,
                          .group = all,
                          .pipeline = pipe,
                          .checkpoint_dir = c->keeps ? dir : NULL,
                          .resume = c->keeps};
    clef_status status = clef_fit(net, &o, NULL);
    if (status == CLEF_OK && rank == 0) status = clef_read(clef_parameter(net, "3.weight"), c->into, sizeof *weights);
    return status;
}

static void check_copies(void) {
    const copied run[] = {{2, false, weights[0]}, {1, true, weights[1]}, {2, true, weights[1]}};
    for (int i = 0; i < 3; i++)
        if (clef_run_ranks_with("0,0,0,0", &(clef_ranks_options){.timeout = 120}, in_copies, (void *)&run[i]) != CLEF_OK)
            COMPLAIN("copies, run %d: %s", i, clef_error(NULL));
    if (memcmp(weights[0], weights[1], sizeof *weights)) COMPLAIN("copies that resume end with other bits");
}

static void clear_dir(void) {
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'/*", dir);
    if (system(command)) COMPLAIN("cannot clear %s", dir);
}

int main(void) {
    int code;
    if (!have_device(&code)) return code;
    if (!mkdtemp(dir)) return 1;
    clef_context *ctx = clef_open(NULL);
    if (fit(ctx, NULL, EPOCHS, weights[0]) != CLEF_OK) COMPLAIN("one device: %s", clef_error(ctx));
    clef_close(ctx);
    if (clef_run_ranks_with("0,0", &(clef_ranks_options){.timeout = 120}, in_stages, NULL) != CLEF_OK)
        COMPLAIN("%s", clef_error(NULL));
    double most = 0, largest = 0;
    for (int i = 0; i < WEIGHTS; i++) {
        most = fmax(most, fabs((double)weights[0][i] - (double)weights[1][i]));
        largest = fmax(largest, fabs((double)weights[0][i]));
    }
    if (!(largest > 0) || !(most <= 1e-5 * largest)) COMPLAIN("weights differ by %g of %g", most, largest);
    clear_dir();
    check_copies();
    clear_dir();
    if (rmdir(dir)) COMPLAIN("cannot remove %s", dir);
    printf("they differ by %.2g of %.2g; %d complaints\n", most, largest, atomic_load(&complaints));
    return atomic_load(&complaints) != 0;
}
