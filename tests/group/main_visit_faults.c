/* Any OpenCL call may fail while two ranks sum gradients beside their kernels: the N-th one, once or from then on, N = 1, 2, … and more thinly
   later, until a run passes untouched.  No run may hang, crash, leak, give a wrong number or fail without a line.
   ctest: cost=40 apart plain */
#include "ranks.h"
#include "support/opencl_faults.h"
#include <unistd.h>

enum { NUMBERS = 20000, SUMS = 3, STEPS = 2, DENSE = 16, PATIENCE = 60 /* seconds for a run */ };

static struct {
    long n; /* the call that fails; 0: none */
    bool again;
} at;

/* Of x = 1, 2, … and rank r's r + 1 times that, the sum is 3 · x. */
static bool sum_all(clef_context *ctx, clef_group *all, int step) {
    static float got[2][NUMBERS];
    float *mine = got[clef_group_rank(all)];
    clef_tensor *sum[SUMS];
    for (int s = 0; s < SUMS; s++) {
        clef_tensor *x = clef_full(ctx, CLEF_SHAPE(NUMBERS), CLEF_F32, (clef_group_rank(all) + 1) * (step + s));
        sum[s] = clef_all_reduce(clef_add(x, clef_arange(ctx, 0, NUMBERS, 1, CLEF_F32)), all, CLEF_GROUP_SUM);
    }
    bool good = clef_eval_all(sum, SUMS) == CLEF_OK;
    for (int s = 0; good && s < SUMS; s++) {
        good = clef_read(sum[s], mine, sizeof got[0]) == CLEF_OK;
        for (int i = 0; good && i < NUMBERS; i += 97)
            if (mine[i] != 3 * (float)(step + s) + 2 * (float)i)
                COMPLAIN("a wrong sum: %g at %d, call %ld", (double)mine[i], i, at.n);
    }
    return clef_end_step(ctx) == CLEF_OK && good;
}

static clef_status sum_failing(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    if (!sum_all(ctx, all, 0) || clef_group_barrier(all) != CLEF_OK) return clef_error_status(ctx);
    if (clef_group_rank(all) == 0) fail_call(at.n, at.again);
    for (int s = 1; s <= STEPS; s++)
        if (!sum_all(ctx, all, s)) break;
    return clef_error_status(ctx);
}

static clef_status sum_on(const char *devices) {
    return clef_run_ranks_with(devices, &(clef_ranks_options){.timeout = PATIENCE / 2}, sum_failing, NULL);
}

/* Did a call fail? */
static bool run(const char *devices, long n, bool again) {
    at.n = n, at.again = again;
    alarm(PATIENCE);
    clef_status status = sum_on(devices);
    bool hit = fail_no_more();
    if (status != CLEF_OK && (!hit || !*clef_error(NULL)))
        COMPLAIN("call %ld%s: %s", n, again ? " and all later ones" : "", clef_error(NULL));
    if (n > 0 && (ledger || live))
        COMPLAIN("call %ld%s: %ld OpenCL objects and %ld allocations leak", n, again ? " and all later ones" : "", (long)ledger,
                 (long)live);
    ledger = live = 0;
    return hit;
}

int main(void) {
    int code, runs = 0;
    setenv("POCL_MAX_PTHREAD_COUNT", "2", 0); /* two units, and parts, on a machine with one core too */
    setenv("CLEF_CACHE_DIR", "", 1);
    opencl_faults = true;
    clef_set_allocator(&(clef_allocator){take, retake, drop, NULL});
    if (!have_device(&code)) return code;
    const char *devices = sum_on("0/2") == CLEF_UNSUPPORTED ? "0,0" : "0/2"; /* some drivers cannot divide a device */
    run(devices, 0, false);                 /* what it allocates and does not free stays with the process */
    for (int again = 0; again < 2; again++) /* the second more thinly: where all calls fail, waiting takes its second of tries */
        for (long n = 1; run(devices, n, again) && !complaints; n += again ? 1 + n / 2 : n < DENSE ? 1 : n / 4) runs++;
    printf("%d runs in which a call failed\n", runs);
    return complaints != 0;
}
