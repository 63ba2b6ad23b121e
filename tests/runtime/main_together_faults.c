/* Contexts opened together, where any host allocation and any OpenCL call may fail: the N-th one, once or from then on, N = 1, 2, …
   until a run passes untouched.  Either all of them open or none, with a line that names one; none leaks, each that fails has a line,
   and all work again afterwards.  Where the code means that a device is lost, one context loses it and the others work.  Then builds
   that fail for the moment while several contexts want the program.
   ctest: cost=80 plain */
#include "support/opencl_faults.h"
#include "runtime_support.h"
#include "support/plain.h"

enum { RANKS = 3, TURNS = 30, PATIENCE = 60 /* seconds for a run */ };
static clef_context *ctx[RANKS];
static const char *cache_dir;
static const char other_source[] = "__kernel void add(__global float *x, float y) { x[get_global_id(0)] -= -y; }\n";
static int failures;

#define EXPECT(condition, ...) \
    ((condition) ? (void)0 : (void)(failures++, printf("%s:%d: ", __FILE__, __LINE__), printf(__VA_ARGS__), printf("\n")))

static clef_status open_all(void) {
    static const char *const devices[RANKS] = {"0/2#0", "0/2#1", "0/2#0"};
    clef_options options[RANKS] = {{0}};
    for (int i = 0; i < RANKS; i++) options[i] = (clef_options){.device = devices[i], .cache_dir = cache_dir};
    return clef_open_all(options, RANKS, ctx);
}

static void close_all(void) {
    for (int i = 0; i < RANKS; i++) clef_close(ctx[i]);
}

static clef__device *device_of(int i) { return clef__device_at(ctx[i], 0); }

/* ---- one call fails ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { DENSE = 8 }; /* each takes long there, and is tried without sanitizers too */
#else
enum { DENSE = 1 << 20 };
#endif

static bool adds(int i, const char *source) {
    static float x[RANKS][ADDED]; /* of each: what one reads late is not what another looks at */
    return add_works_in(device_of(i), source, x[i]);
}

static void expect_none(clef_status status) {
    const char *line = clef_error(NULL);
    EXPECT(status == clef_error_status(NULL) && strncmp(line, "open_all: ", 10) == 0 && !strchr(line, '\n'), "\"%s\"", line);
    for (int i = 0; i < RANKS; i++) EXPECT(!ctx[i], "context %d is open: %s", i, line);
}

/* What each does; true when nothing failed. */
static bool work(void) {
    bool all = true;
    for (int i = 0; i < RANKS; i++) {
        bool good = adds(i, i ? other_source : add_source) && adds(i, add_source);
        EXPECT(good == (clef_error_status(ctx[i]) == CLEF_OK), "context %d %s: %s", i, good ? "works" : "fails",
               clef_error(ctx[i]));
        all = all && good;
    }
    return all;
}

/* A lost device leaves to its driver what that may still read or write.  This driver is well in truth, so that the test need not leak
   it; test_together closes contexts with a lost device. */
static void find_again(clef__device *device) {
    REAL(clFinish)(device->compute);
    atomic_store(&device->lost, false);
}

/* Once nothing fails any more; `lost`: one may have lost its device. */
static void recover(bool lost) {
    int gone = 0;
    for (int i = 0; i < RANKS; i++) {
        clef_synchronize(ctx[i]);
        clef_clear_error(ctx[i]);
        bool is_gone = clef_error_status(ctx[i]) == CLEF_LOST;
        gone += is_gone;
        if (is_gone) find_again(device_of(i));
        else EXPECT(adds(i, add_source), "context %d does not recover: %s", i, clef_error(ctx[i]));
    }
    EXPECT(gone <= lost, "%d contexts have lost their device", gone);
}

/* True when nothing failed. */
static bool run(long n, bool again, bool lost) {
    alarm(PATIENCE);
    fail_call(n, again);
    clef_status status = open_all();
    bool complete = status == CLEF_OK && work();
    fail_no_more();
    if (status == CLEF_OK) {
        recover(lost);
        EXPECT(live && ledger, "the calls were not seen");
    } else expect_none(status);
    if (status == CLEF_OK) close_all();
    EXPECT(live == 0, "%ld allocations leak", (long)live);
    EXPECT(lost || ledger == 0, "%ld OpenCL objects leak", (long)ledger); /* while it is lost nothing is released */
    live = ledger = 0;
    return complete;
}

/* Of OpenCL's some two hundred calls the first sweep lets each fail; the later ones let every third fail, each beginning at another, as
   what they do then is mostly the same, and the first call.  CLEF_TEST_WHOLE=1: each in all. */
static long first_of_sweep(bool of_opencl, long *step) {
    static int sweeps;
    int number = of_opencl ? sweeps++ : 0;
    *step = number == 0 || DENSE < 1 << 20 || whole_form() ? 1 : 3;
    return *step == 1 ? 1 : 1 + (number + number / 3) % 3; /* there are three sorts, with a cache and without */
}

static void sweep(bool of_opencl, bool again, bool lost) {
    long step, first = first_of_sweep(of_opencl, &step);
    opencl_faults = of_opencl;
    for (long n = 1;; n = n < first ? first : n + step + n / DENSE) {
        bool complete = run(n, again, lost);
        if (failures)
            printf("%s call %ld%s%s\n", of_opencl ? "OpenCL" : "allocation", n, again ? " and all later ones" : "",
                   lost ? ", which loses a device" : "");
        EXPECT(struck || complete, "fails untouched");
        if (failures || !struck) return;
    }
}

static void sweep_all(const char *dir) {
    cache_dir = dir;
    for (int sort = 0; sort < 4 && !failures; sort++) sweep(sort & 1, sort & 2, false);
    fault_code = CL_DEVICE_NOT_AVAILABLE;
    if (!failures) sweep(true, false, true);
    fault_code = CL_OUT_OF_RESOURCES;
}

/* Any call fails while a context joins one that has the device open. */
static void sweep_joining(bool of_opencl) {
    const clef_options whole = {.device = "0", .cache_dir = cache_dir};
    opencl_faults = of_opencl;
    ctx[1] = clef_open(&whole);
    if (!ctx[1] || !adds(1, add_source)) exit(1);
    if (clef_device_events(ctx[1], 0, 0, true) != CLEF_VERDICT_YES) {
        clef_close(ctx[1]);
        return;
    }
    long before = live, objects = ledger;
    for (long n = 1; !failures; n++) {
        fail_call(n, false);
        ctx[0] = clef_open(&whole);
        bool good = ctx[0] && adds(0, add_source), shared = ctx[0] && device_of(0)->context == device_of(1)->context;
        fail_no_more();
        if (ctx[0]) clef_clear_error(ctx[0]);
        EXPECT(!ctx[0] || adds(0, add_source), "joining, call %ld: %s", n, clef_error(ctx[0]));
        EXPECT(adds(1, other_source), "joining, call %ld, the other: %s", n, clef_error(ctx[1]));
        clef_close(ctx[0]);
        EXPECT(struck || (good && shared), "joining fails untouched");
        if (n == 1 && !failures) before = live, objects = ledger; /* what the other compiled meanwhile */
        EXPECT(live == before && ledger == objects, "joining, call %ld: %ld allocations and %ld OpenCL objects leak", n,
               live - before, ledger - objects);
        if (!struck) break;
        if (!shared) { /* the OpenCL context may count as lost */
            clef_close(ctx[1]);
            ctx[1] = clef_open(&whole);
            if (!ctx[1] || !adds(1, add_source) || !adds(1, other_source)) exit(1);
            before = live, objects = ledger;
        }
    }
    clef_close(ctx[1]);
    EXPECT(live == 0 && ledger == 0, "%ld allocations and %ld OpenCL objects leak", (long)live, (long)ledger);
}

/* ---- a build fails for the moment ---- */

static bool builds_one(int i, const char *source) {
    clef__kernel *k = clef__kernel_new(device_of(i), source, "", "add");
    clef__kernel_free(k);
    return k != NULL;
}

/* Who has not cleared an error since is told of it, and does not try again. */
static void tried_again_once_cleared(void) {
    int copies = device_of(RANKS - 1)->programs == device_of(0)->programs ? 1 : 2; /* drivers.def: queues */
    builds = 0;
    for (int turn = 0; turn < 2 * RANKS; turn++) {
        int i = turn % RANKS;
        EXPECT(!builds_one(i, add_source) && clef_error_status(ctx[i]) == CLEF_BUILD, "%s", clef_error(ctx[i]));
        EXPECT(strstr(clef_build_log(ctx[i]), fault_log), "context %d was told \"%s\"", i, clef_build_log(ctx[i]));
    }
    EXPECT(builds == copies, "%ld builds", (long)builds);
    clef_clear_error(ctx[1]);
    for (int i = RANKS - 1; i >= 0; i--) EXPECT(!builds_one(i, add_source), "a build that must fail");
    EXPECT(builds == copies + 1, "%ld builds", (long)builds);
}

static void *fail_and_clear(void *user) {
    int i = *(const int *)user;
    long good = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        good += !builds_one(i, other_source) && clef_error_status(ctx[i]) == CLEF_BUILD &&
                strstr(clef_build_log(ctx[i]), fault_log) != NULL;
        clef_clear_error(ctx[i]);
    }
    return good == TURNS ? user : NULL;
}

/* All of them, at the same time, again and again. */
static void tried_again_by_several(void) {
    static const int number[RANKS] = {0, 1, 2};
    pthread_t thread[RANKS];
    builds = 0;
    for (int i = 0; i < RANKS; i++) pthread_create(&thread[i], NULL, fail_and_clear, (void *)(uintptr_t)&number[i]);
    for (int i = 0; i < RANKS; i++) {
        void *good;
        pthread_join(thread[i], &good);
        EXPECT(good, "context %d was not told of each failure", i);
    }
    EXPECT(builds > 0 && builds <= RANKS * TURNS, "%ld builds", (long)builds);
}

/* A context that shares what failed, but was opened since. */
static void tried_again_by_who_comes(void) {
    const clef_options whole = {.device = "0", .cache_dir = ""};
    ctx[0] = clef_open(&whole);
    builds_fail = true;
    EXPECT(ctx[0] && !builds_one(0, add_source), "a build that must fail");
    builds_fail = false;
    ctx[1] = clef_open(&whole);
    if (failures || !ctx[1]) exit(1);
    EXPECT(device_of(0)->programs == device_of(1)->programs, "they do not share");
    EXPECT(builds_one(1, add_source) && !builds_one(1, "error"), "%s", clef_error(ctx[1]));
    clef_close(ctx[0]);
    clef_close(ctx[1]);
}

static void builds_of_the_moment(void) {
    cache_dir = "";
    fault_code = CL_BUILD_PROGRAM_FAILURE;
    fault_log = "no room left";
    EXPECT(open_all() == CLEF_OK, "%s", clef_error(NULL));
    if (failures) return;
    builds_fail = true;
    tried_again_once_cleared();
    tried_again_by_several();
    builds_fail = false;
    for (int i = 0; i < RANKS; i++) {
        clef_clear_error(ctx[i]);
        EXPECT(builds_one(i, add_source) && builds_one(i, other_source), "context %d: %s", i, clef_error(ctx[i]));
    }
    close_all();
    tried_again_by_who_comes();
    fault_log = NULL;
    EXPECT(live == 0 && ledger == 0, "%ld allocations and %ld OpenCL objects leak", (long)live, (long)ledger);
}

int main(void) {
    setenv("POCL_MAX_PTHREAD_COUNT", "2", 0); /* two units, and parts, on a machine with one core too */
    setenv("CLEF_CACHE", "force", 1);
    setenv("CLEF_PROBE", CLEF_TEST_BUILD "/clef-probe", 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *dir = cache_dir = temporary_dir();
    clef_set_allocator(&(clef_allocator){take, retake, drop, NULL});
    clef_status status = open_all(); /* the list of devices and what is known of the driver stay with the process */
    if (status == CLEF_UNSUPPORTED) return printf("skipped: %s\n", clef_error(NULL)), remove_dir(dir), 77;
    if (status) return remove_dir(dir), without_context();
    bool shared = device_of(0)->context == device_of(1)->context;
    close_all();
    live = ledger = 0;
    sweep_all(dir);
    if (!failures) sweep_all(""); /* once more through the compiler */
    for (int sort = 0; sort < 2 && shared && !failures; sort++) sweep_joining(sort);
    if (!failures && shared) builds_of_the_moment();
    printf("%s: %ld calls could have failed: %d failures\n", shared ? "in one OpenCL context" : "apart", calls, failures);
    remove_dir(dir);
    return failures != 0;
}
