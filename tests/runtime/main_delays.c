/* The layer of support/delays.c finds what it is made for.  Two queues of one context hand a buffer from one to the other, in a process
   for each kind of delay: with an event between them the data are right whatever is late, without one they are wrong; the calls
   return at once, and what is queued in order happens in order. */
#include "support/io_files.h"
#include "support/plain.h"
#include "support/programs.h"
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS /* clCreateCommandQueue, without a successor in 1.2 */
#include <CL/cl.h>
#include <time.h>

enum { ROUNDS = 16, N = 1024, MOST_PLATFORMS = 16 };

static cl_context context;
static cl_command_queue first, second;
static cl_kernel fill;
static cl_mem a, b;
static double calling, waiting; /* seconds in the calls that are delayed; until their commands were over */

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the machine ---- */

static cl_device_id some_device(void) {
    cl_platform_id platform[MOST_PLATFORMS];
    cl_uint n = 0;
    char name[64] = "";
    cl_device_id device;
    if (clGetPlatformIDs(MOST_PLATFORMS, platform, &n) != CL_SUCCESS) return NULL;
    for (cl_uint i = 0; i < n && i < MOST_PLATFORMS; i++)
        if (clGetPlatformInfo(platform[i], CL_PLATFORM_NAME, sizeof name, name, NULL) == CL_SUCCESS &&
            strcmp(name, "Portable Computing Language") == 0 &&
            clGetDeviceIDs(platform[i], CL_DEVICE_TYPE_CPU, 1, &device, NULL) == CL_SUCCESS)
            return device;
    return NULL;
}

static bool begin(cl_device_id device) {
    const char *source = "__kernel void fill(__global int *x, int value) { x[get_global_id(0)] = value; }";
    context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    first = clCreateCommandQueue(context, device, 0, NULL);
    second = clCreateCommandQueue(context, device, 0, NULL);
    a = clCreateBuffer(context, CL_MEM_READ_WRITE, N * sizeof(cl_int), NULL, NULL);
    b = clCreateBuffer(context, CL_MEM_READ_WRITE, N * sizeof(cl_int), NULL, NULL);
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, NULL);
    if (clBuildProgram(program, 1, &device, "", NULL, NULL) != CL_SUCCESS) return false;
    fill = clCreateKernel(program, "fill", NULL);
    clReleaseProgram(program);
    return fill && a && b && first && second;
}

static void end(void) {
    clReleaseKernel(fill);
    clReleaseMemObject(a);
    clReleaseMemObject(b);
    clReleaseCommandQueue(first);
    clReleaseCommandQueue(second);
    clReleaseContext(context);
}

/* ---- commands ---- */

static void all_of(cl_int *x, cl_int value) {
    for (int i = 0; i < N; i++) x[i] = value;
}
static bool is_all(const cl_int *x, cl_int value) {
    for (int i = 0; i < N; i++)
        if (x[i] != value) return false;
    return true;
}

static void write_now(cl_command_queue queue, cl_mem to, cl_int value, const cl_event *after) {
    cl_int x[N];
    all_of(x, value);
    clEnqueueWriteBuffer(queue, to, CL_TRUE, 0, sizeof x, x, after != NULL, after, NULL);
}

static bool read_now(cl_command_queue queue, cl_mem from, cl_int value, const cl_event *after) {
    cl_int x[N];
    clEnqueueReadBuffer(queue, from, CL_TRUE, 0, sizeof x, x, after != NULL, after, NULL);
    return is_all(x, value);
}

static void queue_fill(cl_command_queue queue, cl_mem to, cl_int value, cl_event *done) {
    clSetKernelArg(fill, 0, sizeof to, &to);
    clSetKernelArg(fill, 1, sizeof value, &value);
    clEnqueueNDRangeKernel(queue, fill, 1, NULL, &(size_t){N}, &(size_t){16}, 0, NULL, done);
}

static void queue_copy(cl_mem from, cl_mem to, cl_event *done) {
    clEnqueueCopyBuffer(first, from, to, 0, 0, N * sizeof(cl_int), 0, NULL, done);
}

/* ---- one round: the first queue does something with b, then the second reads or writes b ---- */

static cl_int host[N];

static void queue_one(const char *kind, int value, cl_event *done) {
    double start = seconds();
    switch (*kind) {
    case 'c': queue_copy(a, b, done); break;
    case 'k': queue_fill(first, b, value, done); break;
    case 'r': clEnqueueReadBuffer(first, b, CL_FALSE, 0, sizeof host, host, 0, NULL, done); break;
    default: clEnqueueWriteBuffer(first, b, CL_FALSE, 0, sizeof host, host, 0, NULL, done);
    }
    clFlush(first);
    calling += seconds() - start;
}

static bool round_is_right(const char *kind, int value, bool with_event) {
    bool reads = *kind == 'r';
    cl_event done = NULL;
    write_now(first, a, value, NULL);
    write_now(first, b, reads ? value : -1, NULL);
    all_of(host, value);
    double start = seconds();
    queue_one(kind, value, &done);
    bool right = true;
    if (reads) write_now(second, b, -1, with_event ? &done : NULL);
    else right = read_now(second, b, value, with_event ? &done : NULL);
    clWaitForEvents(1, &done);
    waiting += seconds() - start;
    clReleaseEvent(done);
    return reads ? is_all(host, value) : right;
}

static int wrong_rounds(const char *kind, bool with_event) {
    int wrong = 0;
    for (int i = 0; i < ROUNDS; i++) wrong += !round_is_right(kind, i + 1, with_event);
    return wrong;
}

/* In one queue nothing overtakes anything. */
static int wrong_in_order(void) {
    int wrong = 0;
    for (int i = 1; i <= ROUNDS; i++) {
        all_of(host, i);
        clEnqueueWriteBuffer(first, a, CL_FALSE, 0, sizeof host, host, 0, NULL, NULL);
        queue_fill(first, b, -1, NULL);
        queue_copy(a, b, NULL);
        queue_fill(first, a, -2, NULL);
        wrong += !read_now(first, b, i, NULL) || !read_now(first, a, -2, NULL);
    }
    return wrong;
}

/* ---- processes ---- */

static int one_process(const char *kind) {
    cl_device_id device = some_device();
    if (!device || !begin(device)) return 1;
    int ordered = wrong_rounds(kind, true);
    double called = calling, waited = waiting;
    int forgetful = wrong_rounds(kind, false);
    printf("%d %d %d %.6f %.6f\n", ordered, forgetful, wrong_in_order(), called, waited);
    end();
    return 0;
}

static void try_delays(const char *program, const char *kind, const char *delays) {
    char command[2000];
    int ordered, forgetful, in_order;
    double called, waited;
    snprintf(command, sizeof command, "LD_PRELOAD='%s' CLEF_TEST_DELAY=%s '%s' %s", CLEF_TEST_DELAYS, delays, program, kind);
    answer answer = answer_of(command);
    EXPECT(answer.code == 0);
    if (!EXPECT(sscanf(answer.first, "%d %d %d %lf %lf", &ordered, &forgetful, &in_order, &called, &waited) == 5)) return;
    EXPECT(ordered == 0);
    EXPECT(in_order == 0);
    EXPECT(forgetful >= (strcmp(kind, delays) == 0 ? ROUNDS / 8 : 0)); /* where all is late, the second queue is, too */
    EXPECT(waited > ROUNDS * 0.5e-3 && called < waited / 2);
    printf("%s with %s late: without an event %d of %d rounds wrong; %.1f ms in calls, %.0f ms until they were over\n", kind,
           delays, forgetful, ROUNDS, 1e3 * called, 1e3 * waited);
}

int main(int argc, char **argv) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    printf("skipped: sanitizers want to be the first library\n");
    return 77;
#endif
    static const char *const kinds[] = {"copies", "kernels", "reads", "writes"};
    setenv("POCL_DEVICES", "pthread", 0);
    if (argc > 1) return one_process(argv[1]);
    if (!some_device()) return printf("skipped: no pocl here\n"), 77;
    for (int i = 0; i < 4; i++) try_delays(argv[0], kinds[i], kinds[i]);
    try_delays(argv[0], "copies", "all");
    return io_failures != 0;
}
