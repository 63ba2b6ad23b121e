/* No program that Clef builds for a training step has a warning in its build log or makes its compiler print, on a CPU with 16, 8
   and 4 float lanes; but a program that does not compile has all that its compiler said in clef_build_log.  Exit 77: no device.
   ctest: cost=30 plain */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "support/io_files.h"
#include "support/plain.h"
#include "runtime/runtime_internal.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the child: trains, and prints what the logs say on standard output ---- */

/* Every program passes here on its way to the driver. */
cl_int clBuildProgram(cl_program program, cl_uint n, const cl_device_id *device, const char *options,
                      void(CL_CALLBACK *notify)(cl_program, void *), void *user) {
    __typeof__(&clBuildProgram) build = (__typeof__(&clBuildProgram))dlsym(RTLD_NEXT, "clBuildProgram");
    static char log[65536];
    cl_int code = build(program, n, device, options, notify, user);
    if (code == CL_SUCCESS &&
        clGetProgramBuildInfo(program, device[0], CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL) == CL_SUCCESS &&
        strstr(log, "warning"))
        printf("build log (%s):\n%s\n", options, log);
    return code;
}

static clef_module *make_net(clef_context *ctx) {
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 3, 16, 3, NULL), clef_nn_batch_norm2d(ctx, 16, NULL),
                                            clef_nn_relu(ctx), clef_nn_max_pool2d(ctx, 2, NULL), clef_nn_flatten(ctx),
                                            clef_nn_linear(ctx, 16 * 9, 20, NULL)));
}

static clef_status train(clef_context *ctx) {
    int64_t label[4] = {0, 1, 2, 3};
    clef_module *net = make_net(ctx);
    clef_optimizer *opt = clef_adam(net, NULL);
    clef_tensor *y = clef_from_host(ctx, CLEF_SHAPE(4), CLEF_I64, label);
    clef_status status = clef_backward(clef_cross_entropy(clef_forward(net, clef_rand(ctx, CLEF_SHAPE(4, 3, 8, 8))), y, NULL));
    return status == CLEF_OK ? clef_step(opt) : status;
}

/* Two registers of doubles or longs for one of floats, and the half types' helpers. */
static clef_status compute_in(clef_context *ctx, clef_dtype dtype) {
    clef_tensor *x = clef_to(clef_rand(ctx, CLEF_SHAPE(100)), dtype);
    return clef_eval(clef_sum(clef_mul(clef_pow(x, x), clef_exp(x)), NULL, 0, false));
}

/* A division by zero is warned of, an unknown name is an error; what the compiler prints about that is its own affair. */
static bool says_all(clef_context *ctx) {
    static const clef_custom_op op = {.name = "bad", .forward = "x + 1 / 0 + unknown"};
    bool silent = freopen("/dev/null", "w", stderr);
    bool all = silent && clef_eval(clef_custom(&op, (clef_tensor *[]){clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32)}, 1)) == CLEF_BUILD &&
               strstr(clef_build_log(ctx), "division by zero") && strstr(clef_build_log(ctx), "unknown");
    if (!all) printf("an incomplete log: %s\n", clef_build_log(ctx));
    return all;
}

static int child(void) {
    clef_context *ctx = clef_open(NULL);
    if (!ctx) return without_context();
    clef_device_info info;
    clef_context_device(ctx, 0, &info);
    bool ok = train(ctx) == CLEF_OK;
    for (clef_dtype dtype = 0; ok && dtype < CLEF_DTYPE_COUNT; dtype++)
        if (dtype == CLEF_F16 || dtype == CLEF_BF16 || (dtype == CLEF_F64 && info.f64)) ok = compute_in(ctx, dtype) == CLEF_OK;
    ok = ok && clef_eval(clef_sum(clef_add_scalar(clef_ones(ctx, CLEF_SHAPE(100), CLEF_I64), 1), NULL, 0, false)) == CLEF_OK;
    if (!ok) printf("%s\n", clef_error(ctx));
    if (ok && strcmp(info.platform, "Portable Computing Language") == 0) ok = says_all(ctx);
    printf("%u lanes\n", info.vector_width);
    clef_close(ctx);
    return !ok;
}

/* ---- the parent: the same as each CPU ---- */

static const char *text_of(const char *dir, const char *name) {
    io_bytes file = io_slurp(io_path(dir, name));
    if (file.data) file.data[file.size] = 0;
    return file.data ? (char *)file.data : "";
}

/* pocl finds nothing in an empty cache, so it compiles all.  lanes 0: whatever there are. */
static int run_as(const char *self, const char *dir, const char *cpu, int lanes) {
    char command[2048], expected[32];
    snprintf(command, sizeof command, "%s%s POCL_CACHE_DIR='%s/%s' '%s' child >'%s/out' 2>'%s/err'",
             *cpu ? "LD_PRELOAD='" CLEF_TEST_PRETEND_CPU "' PRETEND_CPU=" : "", cpu, dir, *cpu ? cpu : "own", self, dir, dir);
    int status = system(command), code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    const char *out = text_of(dir, "out"), *err = text_of(dir, "err");
    snprintf(expected, sizeof expected, "%d lanes\n", lanes);
    if (code == 77 || (code == 0 && lanes && !strstr(out, expected) && !*err)) {
        printf("skipped: %s",
               code == 77 ? out + strcspn(out, ":") + 2 : "this OpenCL does not ask the LLVM that pretend_cpu stands in for\n");
        return 77;
    }
    bool quiet = code == 0 && !*err && !strstr(out, "build log");
    if (!quiet) fprintf(stderr, "as %s: exit code %d\n%s%s", *cpu ? cpu : "it is", code, out, err);
    return !quiet;
}

int main(int n, char **argument) {
    if (n > 1) return child();
    const char *dir = io_scratch();
    int failed = run_as(argument[0], dir, "", 0);
    if (*CLEF_TEST_PRETEND_CPU && failed == 0) failed = run_as(argument[0], dir, "avx2", 8);
    if (*CLEF_TEST_PRETEND_CPU && failed == 0) failed = run_as(argument[0], dir, "sse", 4);
    io_remove_tree(dir);
    return failed;
}
