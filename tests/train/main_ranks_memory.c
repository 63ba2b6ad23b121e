/* clef_fit on two ranks while one allocation of the host fails: the run succeeds without it, or all ranks end with a line; nobody waits for ever.
   CLEF_CASES: how many of the allocations, spread over all.
   ctest: cost=40 apart plain */
#include "group/ranks.h"
#include <unistd.h>

static atomic_long countdown;

static void *counted(void *user, size_t n) {
    (void)user;
    return atomic_fetch_sub(&countdown, 1) == 0 ? NULL : malloc(n);
}

static void *counted_again(void *user, void *p, size_t n) {
    (void)user;
    return atomic_fetch_sub(&countdown, 1) == 0 ? NULL : realloc(p, n);
}

static void counted_free(void *user, void *p) { (void)user, free(p); }

static clef_status train(clef_context *ctx, clef_group *all, void *dir) {
    clef_dataset *set = clef_dataset_take(clef_digits(ctx, CLEF_TRAIN), 26),
                 *tests = clef_dataset_take(clef_digits(ctx, CLEF_TEST), 9);
    clef_loader *data = clef_loader_open(set, &(clef_loader_options){.batch = 8, .group = all, .shares = (int64_t[]){2, 1}});
    clef_loader *held = clef_loader_open(tests, &(clef_loader_options){.batch = 9, .group = all});
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 2, 3, NULL),
                                                        clef_nn_batch_norm2d(ctx, 2, &(clef_nn_norm_options){.sync = all}),
                                                        clef_nn_flatten(ctx), clef_nn_linear(ctx, 72, 10, NULL)));
    clef_replicate(net, all);
    clef_optimizer *opt = clef_sgd(net, &(clef_sgd_options){.lr = 0.01, .group = all});
    clef_fit_options o = {.train = data,
                          .test = held,
                          .optimizer = opt,
                          .epochs = 2,
                          .checkpoint_dir = dir,
                          .resume = true,
                          .early_stop_patience = 3};
    clef_status status = net && opt && data ? clef_fit(net, &o, NULL) : clef_error_status(ctx);
    return status ? status : clef_error_status(ctx);
}

static clef_status try_at(long at, char *dir) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s/'*", dir);
    if (system(command)) COMPLAIN("cannot empty %s", dir);
    atomic_store(&countdown, at);
    return clef_run_ranks_with("0,0", &(clef_ranks_options){.timeout = 60}, train, dir);
}

int main(void) {
    int code, refused = 0;
    clef_set_allocator(&(clef_allocator){counted, counted_again, counted_free, NULL});
    atomic_store(&countdown, 1L << 60);
    if (!have_device(&code)) return code;
    char dir[] = "/tmp/clef-memory-XXXXXX", command[64];
    if (!mkdtemp(dir)) return 1;
    if (try_at(1L << 60, dir) != CLEF_OK) COMPLAIN("with all memory: %s", clef_error(NULL));
    long all = (1L << 60) - atomic_load(&countdown), cases = cases_from_env("CLEF_CASES", 40);
    for (long k = 0; k < cases; k++) {
        long at = all * k / cases;
        clef_status status = try_at(at, dir);
        refused += status != CLEF_OK;
        if (status != CLEF_OK && !*clef_error(NULL)) COMPLAIN("allocation %ld: a failure without a line", at);
    }
    if (refused < cases / 4) COMPLAIN("only %d of %ld failures were told", refused, cases);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command)) COMPLAIN("cannot remove %s", dir);
    printf("%ld allocations, %d of %ld refused, %d complaints\n", all, refused, cases, atomic_load(&complaints));
    return atomic_load(&complaints) != 0;
}
