/* Any host allocation and any OpenCL call may fail while plans run over two devices: the N-th one, once or from then on, N = 1, 2, …
   and more thinly later, until a run passes untouched.  Devices read each other's memory and, in the other rounds, copies go from one to
   the other, or through the host behind user events.  No run may hang, crash, leak, give a wrong number or fail without an error line; a context that saw a failure
   works again afterwards.
   CLEF_TEST_DELAY (support/delays.c): commands begin late, so that those of a run that failed are still on their way in the next one;
   then only the runs in which every later OpenCL call fails, between devices that share nothing.
   ctest: cost=60 plain */
#include "support/opencl_faults.h"
#include "support/plain.h"
#include <unistd.h>

enum { NUMBERS = 1 << 14, STEPS = 3, DENSE = 64, PATIENCE = 60 /* seconds for a run */ };

static float row[NUMBERS];

static struct {
    long n; /* the call that fails */
    bool of_opencl, again, after;
} at; /* after: when all works again */

static bool wrong_number(int step, int i, float got) {
    printf("step %d, number %d: %g; %s%s call %ld%s\n", step, i, (double)got, at.after ? "after " : "",
           at.of_opencl ? "OpenCL" : "allocation", at.n, at.again ? " and all later ones failed" : " failed");
    exit(1);
}

/* p goes over in each step and comes back as its gradient; what is read must be what it is without failures. */
static bool work(clef_context *ctx) {
    static float got[NUMBERS]; /* a read that fails may still write there */
    for (int i = 0; i < NUMBERS; i++) row[i] = (float)(i % 100);
    clef_tensor *p = clef_require_grad(clef_keep(clef_from_host(ctx, CLEF_SHAPE(NUMBERS), CLEF_F32, row)), true);
    bool good = p != NULL;
    for (int s = 0; good && s < STEPS; s++) {
        clef_tensor *there = clef_to_device(clef_mul_scalar(p, 2), 1), *back = clef_to_device(clef_add_scalar(there, 1), 0);
        clef_tensor *loss = clef_sum(clef_mul(back, p), NULL, 0, false), *g; /* of 2p² + p: the gradient is 4p + 1 */
        good = clef_grad(loss, CLEF_NONE, &p, 1, false, &g) == CLEF_OK;
        good = good && clef_assign(p, clef_sub(g, clef_mul_scalar(p, 3))) == CLEF_OK; /* p + 1 */
        good = good && clef_read(back, got, sizeof got) == CLEF_OK;
        for (int i = 0; good && i < NUMBERS; i++) good = got[i] == 2 * (row[i] + (float)s) + 1 || wrong_number(s, i, got[i]);
        good = clef_end_step(ctx) == CLEF_OK && good;
    }
    clef_release(p);
    return good;
}

/* One run with the N-th call failing.  False when something is not as it must be; *complete: nothing failed. */
static bool run(clef_context *ctx, long n, bool again, bool *complete) {
    alarm(PATIENCE);
    ctx->room[CLEF__ROOM_PLAN].closer(ctx, ctx->room[CLEF__ROOM_PLAN].state); /* plans are built anew, programs stay */
    clef__set_room_state(ctx, CLEF__ROOM_PLAN, NULL, NULL);
    fail_call(n, again);
    at.n = n, at.of_opencl = opencl_faults, at.again = again, at.after = false;
    *complete = work(ctx);
    fail_no_more();
    at.after = true;
    if (*complete == (clef_error_status(ctx) != CLEF_OK))
        return printf("%s: %s\n", *complete ? "an error nobody told of" : "failed without an error", clef_error(ctx)), false;
    clef_clear_error(ctx);
    clef_end_step(ctx);
    clef_end_step(ctx);
    clef_clear_error(ctx);
    if (!work(ctx)) return printf("does not recover%s: %s\n", countdown ? ", and calls still fail" : "", clef_error(ctx)), false;
    return true;
}

static bool sweep(clef_context *ctx, bool of_opencl, bool again, int *runs) {
    opencl_faults = of_opencl;
    for (long n = 1;; n += n < DENSE ? 1 : n / 16, ++*runs) {
        bool complete;
        if (!run(ctx, n, again, &complete)) {
            printf("%s call %ld %s\n", of_opencl ? "OpenCL" : "allocation", n, again ? "and all later ones" : "");
            return false;
        }
        if (!struck) return complete;
    }
}

/* Without and with an OpenCL context that both devices share, and there without and with copies. */
static int sweep_all(const char *probe, const char *zero_copy, bool late) {
    int runs = 0;
    setenv("CLEF_PROBE", probe, 1);
    setenv("CLEF_ZERO_COPY", zero_copy, 1);
    clef_context *ctx = clef_open(&(clef_options){.device = "0/2"});
    if (!ctx && clef_error_status(NULL) == CLEF_UNSUPPORTED) return printf("skipped: %s\n", clef_error(NULL)), 77;
    if (!ctx) return without_context();
    bool good = work(ctx);
    for (int sort = late ? 3 : 0; good && sort < 4; sort++) good = sweep(ctx, sort & 1, sort & 2, &runs);
    const clef__device *here = clef__device_at(ctx, 0), *there = clef__device_at(ctx, 1);
    bool joined = clef__devices_joined(here, there), sees = clef__devices_see(here, there);
    clef_close(ctx);
    for (int i = 0; late && ledger && i < PATIENCE; i++) usleep(100000); /* the layer's own are counted too */
    if (good && (live || ledger)) return printf("%ld allocations and %ld OpenCL objects leak\n", live, ledger), 1;
    printf("%d runs, %s\n", runs, sees ? "without copies" : joined ? "in one OpenCL context" : "through the host");
    return !good;
}

int main(void) {
    setenv("POCL_MAX_PTHREAD_COUNT", "2", 0); /* two units, and parts, on a machine with one core too */
    setenv("CLEF_CACHE_DIR", "", 1);          /* none: what it keeps of the driver is asked once */
    setvbuf(stdout, NULL, _IOLBF, 0);
    clef_set_allocator(&(clef_allocator){take, retake, drop, NULL});
    clef_device_count(); /* the list of devices stays with the process */
    live = ledger = 0;
    bool late = getenv("CLEF_TEST_DELAY") != NULL;
    int status = sweep_all(CLEF_TEST_SOURCE "/tests/support/probe_apart.sh", "0", late);
    for (int zero_copy = 0; !late && status == 0 && zero_copy < 2; zero_copy++)
        status = sweep_all(CLEF_TEST_BUILD "/clef-probe", zero_copy ? "1" : "0", late);
    return status;
}
