/* What main_faults does with one error code, here with others: a list of devices that cannot be made, builds that fail with a
   log, a lost device; and fit with its loader.  Some calls of the many; all with CLEF_TEST_ALL=1.
   ctest: cost=30 plain */
#include "support/opencl_faults.h"
#include "runtime_support.h"
#include "support/plain.h"

static int failures;
static bool expect(bool good, const char *what, const char *about) {
    failures += !good;
    if (!good) printf("%s: %s\n", about, what);
    return good;
}
#define EXPECT(condition, about) expect(condition, #condition, about)

static bool all_of_them(void) {
    const char *all = getenv("CLEF_TEST_ALL");
    return all && *all == '1';
}

static void fail_at(long n, bool again) {
    opencl_faults = true;
    fail_call(n, again);
}

static bool one_line(const char *line) { return *line && !strchr(line, '\n'); }

/* ---- listing: in children, as a list stays with its process ---- */
enum { BAD = 1, STRUCK = 2 };
static int list_with_failure(long n, cl_int code) {
    fault_code = code;
    fail_at(n, false);
    clef_context *first = clef_open(&(clef_options){.cache_dir = ""});
    bool good = first || one_line(clef_error(NULL));
    bool hit = fail_no_more();
    clef_context *second = clef_open(&(clef_options){.cache_dir = ""});
    clef_device_info info;
    good =
        good && second && clef_context_device(second, 0, &info) && *info.name && info.compute_units > 0 && info.max_alloc_bytes > 0;
    if (!good) printf("listing: call %ld, %s: \"%s\"\n", n, clef__cl_name(code), clef_error(NULL));
    return (good ? 0 : BAD) | (hit ? STRUCK : 0);
}

static void list_failing(void) {
    int result = STRUCK;
    for (long n = 1; result == STRUCK; n += all_of_them() ? 1 : 1 + n / 3) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            result = list_with_failure(n, n % 2 ? CL_OUT_OF_HOST_MEMORY : CL_OUT_OF_RESOURCES);
            fflush(stdout);
            _exit(result);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (!EXPECT(WIFEXITED(status), "listing")) return;
        result = WEXITSTATUS(status);
        EXPECT(!(result & BAD), "listing");
    }
}

/* ---- builds ---- */
/* The compiler blames nothing: an error with what it said, no second build without clef_clear_error, nothing on disk. */
static void build_of_the_moment(const char *dir) {
    static const char source[] = "__kernel void m(__global int *x) { x[0] = 4711; }";
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = dir});
    clef__device *device = clef__device_at(ctx, 0);
    fault_code = CL_BUILD_PROGRAM_FAILURE;
    fault_log = "error: unable to open output file: No space left on device\nDevice failed to build the program\n";
    builds = 0;
    fail_at(2, false); /* after clCreateProgramWithSource */
    for (int i = 0; i < 100; i++) EXPECT(!clef__kernel_new(device, source, "", "m"), "a build of the moment");
    EXPECT(struck && builds == 1, "a build of the moment is not tried again at once");
    EXPECT(clef_error_status(ctx) == CLEF_BUILD && strstr(clef_error(ctx), "No space left on device") && one_line(clef_error(ctx)),
           clef_error(ctx));
    fault_log = NULL;
    fail_no_more();
    clef_clear_error(ctx);
    clef__kernel *k = clef__kernel_new(device, source, "", "m");
    EXPECT(k && builds == 2, "it is tried again when the error was cleared");
    clef__kernel_free(k);
    clef_close(ctx);
}

/* A loop that looks at no error, where no kernel can be built, builds no more than once what its first step needs. */
static void loop_that_looks_at_nothing(void) {
    static const cl_int codes[] = {CL_BUILD_PROGRAM_FAILURE, CL_OUT_OF_RESOURCES, CL_INVALID_BUILD_OPTIONS};
    for (int i = 0; i < 3; i++) {
        clef_context *ctx = clef_open(&(clef_options){.cache_dir = ""}); /* it has no programs yet */
        float y = 0;
        int answers = 0;
        fault_code = codes[i];
        builds = 0;
        builds_fail = true;
        for (int step = 0; step < 50; step++, clef_end_step(ctx))
            answers += clef_read(clef_sum(clef_exp(clef_rand(ctx, CLEF_SHAPE(20))), NULL, 0, false), &y, sizeof y) == CLEF_OK;
        builds_fail = false;
        EXPECT(answers == 0 && builds > 0 && builds < 8, "a loop that looks at no error");
        clef_clear_error(ctx);
        EXPECT(clef_read(clef_sum(clef_exp(clef_rand(ctx, CLEF_SHAPE(20))), NULL, 0, false), &y, sizeof y) == CLEF_OK,
               clef_error(ctx));
        clef_close(ctx);
    }
}

/* The compiler blames the source: one build for this process, and one for the next, which knows it from the disk. */
static void build_of_a_wrong_source(const char *dir) {
    static const char source[] = "__kernel void w(__global int *x) { x[0] = 4712; }";
    builds = 0;
    for (int i = 0; i < 2; i++) {
        clef_context *ctx = clef_open(&(clef_options){.cache_dir = dir});
        fault_code = CL_BUILD_PROGRAM_FAILURE;
        fault_log = "error: program.cl:1:42 <Spelling=<scratch space>:1:1>: expected expression\n"; /* as pocl says it */
        fail_at(2, false);
        for (int j = 0; j < 3; j++) {
            EXPECT(!clef__kernel_new(clef__device_at(ctx, 0), source, "", "w"), "a wrong source");
            bool from_disk = strstr(clef_error(ctx), "clef cache clear") != NULL;
            EXPECT(strstr(clef_error(ctx), "expected expression") && from_disk == (i == 1), clef_error(ctx));
            clef_clear_error(ctx);
        }
        fail_no_more();
        fault_log = NULL;
        clef_close(ctx);
    }
    EXPECT(builds == 1, "a wrong source is built once");
}

/* ---- a run of fit ---- */
typedef struct rig {
    clef_module *net;
    clef_optimizer *optimizer;
    clef_loader *loader;
} rig;

static bool make_rig(clef_context *ctx, rig *r) {
    clef_seed(ctx, 7);
    r->net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, 64, 10, NULL)));
    r->optimizer = clef_sgd(r->net, &(clef_sgd_options){.lr = 0.1});
    r->loader =
        clef_loader_open(clef_dataset_take(clef_digits(ctx, CLEF_TRAIN), 32), &(clef_loader_options){.batch = 16, .workers = 1});
    return r->net && r->optimizer && r->loader;
}

static clef_status fit(const rig *r, const char *dir) {
    return clef_fit(
        r->net, &(clef_fit_options){.train = r->loader, .test = r->loader, .optimizer = r->optimizer, .checkpoint_dir = dir}, NULL);
}

/* The N-th call of a run fails with this code: an error, no crash; a run of its own works afterwards, unless the device is lost. */
static bool fit_failing(clef_context *ctx, long n, const char *dir) {
    rig r, after;
    char about[128];
    snprintf(about, sizeof about, "fit: call %ld, %s", n, clef__cl_name(fault_code));
    fail_at(n, n % 3 == 0);
    clef_status status = make_rig(ctx, &r) ? fit(&r, dir) : clef_error_status(ctx);
    bool hit = fail_no_more();
    EXPECT(!status == !clef_error_status(ctx) && (!status || one_line(clef_error(ctx))), about);
    bool lost = clef_error_status(ctx) == CLEF_LOST;
    clef_clear_error(ctx);
    if (lost) {
        bool made = r.net && r.optimizer && r.loader;
        EXPECT(clef_error_status(ctx) == CLEF_LOST && (!made || fit(&r, dir) == CLEF_LOST), about);
        return false;
    }
    if (hit) EXPECT(make_rig(ctx, &after) && fit(&after, dir) == CLEF_OK, about);
    if (failures) printf("%s: %s\n", about, clef_error(ctx));
    return hit && !failures;
}

static void fit_with_codes(const char *dir) {
    static const cl_int codes[] = {CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY,   CL_INVALID_VALUE,
                                   CL_INVALID_KERNEL_ARGS,           CL_DEVICE_NOT_AVAILABLE, CL_INVALID_COMMAND_QUEUE};
    enum { CODES = sizeof codes / sizeof *codes };
    for (int i = 0; i < CODES && !failures; i++) {
#if defined(__SANITIZE_ADDRESS__)
        if (codes[i] == CL_DEVICE_NOT_AVAILABLE || codes[i] == CL_INVALID_COMMAND_QUEUE)
            continue; /* what a lost device may still read is left to it, which counts as a leak */
#endif
        clef_context *ctx = clef_open(&(clef_options){.cache_dir = dir});
        fault_code = codes[i];
        bool on = true;
        for (long n = 1 + i; on; n += all_of_them() ? 1 : 7 + n / 2) {
            on = fit_failing(ctx, n, dir);
            if (clef_error_status(ctx) != CLEF_LOST) continue;
            clef_close(ctx); /* what it held is left to the driver */
            ctx = clef_open(&(clef_options){.cache_dir = dir});
            on = !failures && (all_of_them() || n < 50);
        }
        clef_close(ctx);
    }
}

int main(void) {
    setenv("CLEF_CACHE", "force", 1);
    setenv("CLEF_COMPILE_THREADS", "1", 1); /* calls are counted without a lock */
    const char *dir = temporary_dir();
    list_failing();
    clef_context *ctx = clef_open(NULL);
    if (!ctx) return without_context();
    clef_close(ctx);
    build_of_the_moment(dir);
    build_of_a_wrong_source(dir);
    loop_that_looks_at_nothing();
    fit_with_codes(dir);
    remove_dir(dir);
    printf("%d failures\n", failures);
    return failures != 0;
}
