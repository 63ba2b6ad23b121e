/* Steps and checkpoints with cut states and gradients on two ranks while one allocation of the host fails: the run succeeds without it, or ends
   with a line; nobody waits for ever.
   CLEF_CASES: how many of the allocations, spread over all.
   ctest: cost=20 apart plain */
#include "ranks.h"
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

static clef_status train(clef_context *ctx, clef_group *all, void *path) {
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 5, 3, NULL), clef_nn_linear(ctx, 3, 1, NULL)));
    clef_optimizer *opt = clef_adam(net, &(clef_adam_options){.group = all, .zero = 2});
    if (!opt) return clef_error_status(ctx);
    clef_status status = CLEF_OK;
    for (int step = 0; step < 2 && !status; step++) {
        clef_tensor *loss = clef_mean(clef_square(clef_forward(net, clef_rand(ctx, CLEF_SHAPE(4, 5)))), NULL, 0, false);
        if (loss) clef_backward(loss);
        clef_clip_grad_norm(net, 1);
        status = clef_step(opt);
    }
    clef_checkpoint what = {.module = net, .optimizer = opt};
    if (!status) status = clef_checkpoint_save(ctx, path, &what);
    if (!status) status = clef_group_barrier(all);
    if (!status) status = clef_checkpoint_load(ctx, path, &what);
    return status ? status : clef_error_status(ctx);
}

static clef_status try_at(long at, char *path) {
    atomic_store(&countdown, at);
    return clef_run_ranks_with("0,0", &(clef_ranks_options){.timeout = 60}, train, path);
}

int main(void) {
    int code, refused = 0;
    clef_set_allocator(&(clef_allocator){counted, counted_again, counted_free, NULL});
    atomic_store(&countdown, 1L << 60);
    if (!have_device(&code)) return code;
    char path[] = "/tmp/clef-sharded-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    if (try_at(1L << 60, path) != CLEF_OK) COMPLAIN("with all memory: %s", clef_error(NULL));
    long all = (1L << 60) - atomic_load(&countdown), cases = cases_from_env("CLEF_CASES", 40);
    for (long k = 0; k < cases; k++) {
        long at = all * k / cases;
        clef_status status = try_at(at, path);
        refused += status != CLEF_OK;
        if (status != CLEF_OK && !*clef_error(NULL)) COMPLAIN("allocation %ld: a failure without a line", at);
    }
    if (refused < cases / 4) COMPLAIN("only %d of %ld failures were told", refused, cases);
    close(fd);
    unlink(path);
    printf("%ld allocations, %d of %ld refused, %d complaints\n", all, refused, cases, atomic_load(&complaints));
    return atomic_load(&complaints) != 0;
}
