/* Opening, errors, random state, rooms, fork, adoption of a program's own OpenCL objects. */
#include "runtime_support.h"
#include "clef/opencl.h"
#include <criterion/criterion.h>
#include <time.h>

static memory_log heard;

static clef_context *open_any(void) {
    heard = (memory_log){0};
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = "", .seed = 5, .log = remember, .log_user = &heard});
    if (!ctx) cr_skip_test("%s", clef_error(NULL));
    return ctx;
}

Test(errors, the_first_one_stays) {
    clef_context *ctx = open_any();
    cr_assert_str_eq(clef_error(ctx), "");
    cr_assert_eq(clef_error_status(ctx), CLEF_OK);
    cr_assert_eq(clef__fail(ctx, CLEF_SHAPE, "conv2d: %d\nchannels", 3), CLEF_SHAPE);
    cr_assert_eq(clef__fail(ctx, CLEF_IO, "second"), CLEF_IO);
    cr_assert_str_eq(clef_error(ctx), "conv2d: 3 channels");
    cr_assert_eq(clef_error_status(ctx), CLEF_SHAPE);
    cr_assert_eq(heard.count[CLEF_LOG_ERROR], 2);
    cr_assert_str_eq(heard.last, "second");
    clef_clear_error(ctx);
    cr_assert_str_eq(clef_error(ctx), "");
    clef__fail(ctx, CLEF_IO, "third");
    cr_assert_str_eq(clef_error(ctx), "third");
    clef_close(ctx);
}

Test(errors, long_lines_are_cut) {
    clef_context *ctx = open_any();
    char text[3 * CLEF__LINE];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    clef__fail(ctx, CLEF_IO, "%s", text);
    cr_assert_eq(strlen(clef_error(ctx)), (size_t)CLEF__LINE - 1);
    clef_close(ctx);
}

/* A lost device stays lost: nothing reaches the driver any more, and closing does not either. */
Test(errors, lost) {
    clef_context *ctx = open_any();
    clef__device *device = clef__device_at(ctx, 0);
    clef__buffer *buffer = clef__buffer_new(device, 100);
    float x = 1;
    cr_assert_eq(clef__fail_cl(device, CL_DEVICE_NOT_AVAILABLE, "finish"), CLEF_LOST);
    cr_assert_not_null(strstr(clef_error(ctx), "finish: CL_DEVICE_NOT_AVAILABLE (-2): the device is gone"));
    clef_clear_error(ctx);
    cr_assert_eq(clef_error_status(ctx), CLEF_LOST);
    cr_assert_eq(clef__buffer_write(buffer, 0, &x, sizeof x), CLEF_LOST);
    cr_assert_eq(clef__buffer_read(buffer, 0, &x, sizeof x), CLEF_LOST);
    cr_assert_eq(clef_synchronize(ctx), CLEF_LOST);
    cr_assert_null(clef__buffer_new(device, 10));
    cr_assert_null(clef__kernel_new(device, add_source, "", "add"));
    clef_close(ctx);
}

/* The others go on; when all are lost, so is the context. */
Test(errors, one_of_two_is_lost) {
    clef_context *ctx = clef_open(&(clef_options){.device = "0/2"});
    if (!ctx) cr_skip_test("no device in two halves here: %s", clef_error(NULL));
    clef__device *first = clef__device_at(ctx, 0), *second = clef__device_at(ctx, 1);
    clef__buffer *here = clef__buffer_new(first, 100), *there = clef__buffer_new(second, 100);
    float x = 1, y = 0;
    cr_assert_eq(clef__fail_cl(second, CL_DEVICE_NOT_AVAILABLE, "finish"), CLEF_LOST);
    cr_assert_str_eq(clef_error(ctx), "finish (device 1): CL_DEVICE_NOT_AVAILABLE (-2): the device is gone");
    cr_assert_eq(clef__buffer_write(there, 0, &x, sizeof x), CLEF_LOST);
    clef_clear_error(ctx);
    cr_assert_eq(clef_error_status(ctx), CLEF_OK);
    cr_assert_eq(clef__buffer_write(here, 0, &x, sizeof x), CLEF_OK);
    cr_assert_eq(clef__buffer_read(here, 0, &y, sizeof y), CLEF_OK);
    cr_assert(y == 1 && add_works(first, add_source));
    cr_assert_eq(clef__buffer_read(there, 0, &y, sizeof y), CLEF_LOST);
    cr_assert(strstr(clef_error(ctx), "device 1 (") == clef_error(ctx) && strstr(clef_error(ctx), "was lost"), "%s",
              clef_error(ctx));
    clef_clear_error(ctx);
    cr_assert_eq(clef__buffer_copy(here, 0, there, 0, sizeof x), CLEF_LOST);
    clef_clear_error(ctx);
    cr_assert_eq(clef_synchronize(ctx), CLEF_LOST);
    clef_clear_error(ctx);
    cr_assert_eq(clef__fail_cl(first, CL_INVALID_COMMAND_QUEUE, "flush"), CLEF_LOST);
    clef_clear_error(ctx);
    cr_assert_eq(clef_error_status(ctx), CLEF_LOST);
    clef_close(ctx);
}

Test(errors, codes_of_opencl) {
    clef_context *ctx = open_any();
    clef__device *device = clef__device_at(ctx, 0);
    cr_assert_eq(clef__fail_cl(device, CL_MEM_OBJECT_ALLOCATION_FAILURE, "x"), CLEF_MEMORY);
    cr_assert_eq(clef__fail_cl(device, CL_OUT_OF_RESOURCES, "x"), CLEF_MEMORY);
    cr_assert_eq(clef__fail_cl(device, CL_INVALID_ARG_SIZE, "x"), CLEF_INVALID);
    cr_assert_eq(clef__fail_cl(device, -12345, "x"), CLEF_DEVICE);
    cr_assert_eq(clef__fail_cl(NULL, CL_INVALID_COMMAND_QUEUE, "x"), CLEF_LOST);
    cr_assert_str_eq(clef__cl_name(CL_INVALID_BUFFER_SIZE), "CL_INVALID_BUFFER_SIZE");
    clef_close(ctx);
}

Test(context, random_state) {
    clef_context *ctx = open_any();
    cr_assert_eq(clef_random_get(ctx).seed, 5u);
    clef_random_state from = clef__random_take(ctx, 1000);
    cr_assert_eq(from.offset, 0u);
    from = clef__random_take(ctx, 24);
    cr_assert_eq(from.offset, 1000u);
    clef_random_state kept = clef_random_get(ctx);
    cr_assert_eq(kept.offset, 1024u);
    clef_seed(ctx, 9);
    cr_assert_eq(clef_random_get(ctx).seed, 9u);
    cr_assert_eq(clef_random_get(ctx).offset, 0u);
    clef_random_set(ctx, kept);
    cr_assert_eq(clef__random_take(ctx, 1).offset, 1024u);
    clef_close(ctx);
}

static char closed[8];
static void close_room(clef_context *ctx, void *state) {
    cr_assert_eq(clef_synchronize(ctx), CLEF_OK); /* the device still lives */
    strcat(closed, state);
}

Test(context, rooms_close_from_the_top) {
    clef_context *ctx = open_any();
    closed[0] = 0;
    cr_assert_null(clef__room_state(ctx, CLEF__ROOM_NN));
    clef__set_room_state(ctx, CLEF__ROOM_GRAPH, "g", close_room);
    clef__set_room_state(ctx, CLEF__ROOM_TRAIN, "t", close_room);
    clef__set_room_state(ctx, CLEF__ROOM_NN, "n", close_room);
    cr_assert_str_eq(clef__room_state(ctx, CLEF__ROOM_NN), "n");
    clef_close(ctx);
    cr_assert_str_eq(closed, "tng");
}

Test(context, switches) {
    clef_context *ctx = open_any();
    cr_assert_not(clef__eager(ctx));
    cr_assert_not(clef__debug_memory(ctx));
    clef_close(ctx);
    setenv("CLEF_EAGER", "yes", 1);
    setenv("CLEF_DEBUG", "memory", 1);
    ctx = open_any();
    cr_assert(clef__eager(ctx));
    cr_assert(clef__debug_memory(ctx));
    clef_close(ctx);
    setenv("CLEF_EAGER", "0", 1);
    cr_assert_not(clef__env_flag("CLEF_EAGER"));
}

static clef_matmul_precision opened_with(const char *variable, const char *option) {
    setenv("CLEF_MATMUL_PRECISION", variable, 1);
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = "", .matmul_precision = option});
    cr_assert(ctx, "%s", clef_error(NULL));
    clef_matmul_precision precision = clef_get_matmul_precision(ctx);
    clef_close(ctx);
    return precision;
}

static void refused_precision(const char *variable, const char *option, const char *says) {
    setenv("CLEF_MATMUL_PRECISION", variable, 1);
    cr_expect_null(clef_open(&(clef_options){.cache_dir = "", .matmul_precision = option}));
    cr_expect_eq(clef_error_status(NULL), CLEF_INVALID);
    cr_expect_str_eq(clef_error(NULL), says);
}

/* The variable is read at opening, the option is stronger, and the setter is stronger than both. */
Test(context, precision_of_products) {
    clef_context *ctx = open_any();
    cr_expect_eq(clef_get_matmul_precision(ctx), CLEF_MATMUL_HIGHEST);
    cr_expect_eq(opened_with("high", NULL), CLEF_MATMUL_HIGH);
    cr_expect_eq(opened_with("highest", NULL), CLEF_MATMUL_HIGHEST);
    cr_expect_eq(opened_with("", NULL), CLEF_MATMUL_HIGHEST);
    cr_expect_eq(opened_with("high", "highest"), CLEF_MATMUL_HIGHEST);
    cr_expect_eq(opened_with("highest", "high"), CLEF_MATMUL_HIGH);
    cr_expect_eq(opened_with("nonsense", "high"), CLEF_MATMUL_HIGH);
    refused_precision("HIGH", NULL, "open: CLEF_MATMUL_PRECISION is \"HIGH\"; it is highest or high");
    refused_precision("high", "higher", "open: matmul_precision is \"higher\"; it is highest or high");
    refused_precision("high", "", "open: matmul_precision is \"\"; it is highest or high");
    cr_expect_eq(clef_get_matmul_precision(ctx), CLEF_MATMUL_HIGHEST, "of a context that was open before");
    clef_close(ctx);
    setenv("CLEF_MATMUL_PRECISION", "high", 1);
    ctx = open_any();
    cr_expect_eq(clef_set_matmul_precision(ctx, CLEF_MATMUL_HIGHEST), CLEF_OK);
    cr_expect_eq(clef_get_matmul_precision(ctx), CLEF_MATMUL_HIGHEST);
    clef_close(ctx);
}

static int reports;
static void report(void *user, int done, int total) { reports += done == 1 && total == 2 && user == &reports; }

Test(context, compile_reports) {
    clef_context *ctx = open_any();
    clef__report_compile(ctx, 1, 2);
    clef_on_compile(ctx, report, &reports);
    clef__report_compile(ctx, 1, 2);
    cr_assert_eq(reports, 1);
    clef_close(ctx);
}

/* Several contexts live side by side, each with its own error. */
Test(context, several) {
    clef_context *a = open_any(), *b = open_any();
    clef__fail(a, CLEF_IO, "a's");
    cr_assert_str_eq(clef_error(b), "");
    cr_assert(add_works(clef__device_at(b, 0), add_source));
    clef_close(a);
    cr_assert(add_works(clef__device_at(b, 0), add_source));
    clef_close(b);
}

/* ---- fork ---- */
static int in_child(clef_context *ctx, clef__kernel *kernel, clef__buffer *buffer) {
    static const size_t one[3] = {1, 1, 1};
    float x = 0;
    if (clef__usable(ctx) || clef_error_status(ctx) != CLEF_STATE) return 1;
    if (clef__kernel_launch(kernel, one, one, NULL) != CLEF_STATE) return 2;
    if (clef__buffer_write(buffer, 0, &x, sizeof x) != CLEF_STATE) return 3;
    if (clef__buffer_read(buffer, 0, &x, sizeof x) != CLEF_STATE) return 4;
    if (clef_synchronize(ctx) != CLEF_STATE) return 5;
    if (clef__buffer_new(clef__device_at(ctx, 0), 10) != NULL) return 6;
    if (clef_open(NULL) != NULL || clef_error_status(NULL) != CLEF_STATE) return 7;
    if (clef_device_count() != 0) return 8;
    clef__kernel_free(kernel);
    clef__buffer_release(buffer);
    clef_close(ctx);
    return 0;
}

Test(fork, child_gets_an_error, .timeout = 600) {
    clef_context *ctx = open_any();
    clef__device *device = clef__device_at(ctx, 0);
    clef__kernel *kernel = clef__kernel_new(device, add_source, "", "add");
    clef__buffer *buffer = clef__buffer_new(device, 100);
    cr_assert_not_null(kernel);
    pid_t child = fork();
    if (child == 0) _exit(in_child(ctx, kernel, buffer));
    int state = 0;
    waitpid(child, &state, 0);
    cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0, "the child failed check %d", WEXITSTATUS(state));
    clef__kernel_free(kernel);
    clef__buffer_release(buffer);
    cr_assert(add_works(device, add_source), "%s", clef_error(ctx)); /* the parent goes on */
    clef_close(ctx);
}

/* A process that forks before it uses OpenCL is fine. */
Test(fork, before_is_fine, .timeout = 600) {
    pid_t child = fork();
    if (child == 0) {
        clef_context *ctx = clef_open(&(clef_options){.cache_dir = ""});
        bool good = !ctx || add_works(clef__device_at(ctx, 0), add_source);
        clef_close(ctx);
        _exit(good ? 0 : 1);
    }
    int state = 0;
    waitpid(child, &state, 0);
    cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0);
}

/* ---- adoption ---- */
typedef struct own {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
} own;

static own make_own(cl_command_queue_properties properties) {
    const clef__found *list;
    if (clef__devices(&list) == 0) cr_skip_test("%s", clef_error(NULL));
    own o = {.device = list[0].id};
    o.context = clCreateContext(NULL, 1, &o.device, NULL, NULL, NULL);
    o.queue = clCreateCommandQueue(o.context, o.device, properties, NULL);
    if (!o.queue) cr_skip_test("the device has no queues that run out of order");
    return o;
}

static void drop_own(own o) {
    clReleaseCommandQueue(o.queue);
    clReleaseContext(o.context);
}

static cl_uint count_context(cl_context context) {
    cl_uint n = 0;
    clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof n, &n, NULL);
    return n;
}

/* The driver's threads let go of a command a moment after clFinish has returned, and of its context with it. */
static bool count_falls_to(cl_context context, cl_uint n) {
    for (int i = 0; i < 10000 && count_context(context) > n; i++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return count_context(context) == n;
}

Test(adopt, context_and_queue) {
    own o = make_own(0);
    cl_uint before = count_context(o.context);
    clef_context *ctx = clef_open_opencl(o.context, o.device, o.queue, &(clef_options){.cache_dir = ""});
    cr_assert_not_null(ctx, "%s", clef_error(NULL));
    cr_assert_eq(clef_opencl_context(ctx), o.context);
    cr_assert_eq(clef_opencl_device(ctx), o.device);
    cr_assert_eq(clef_opencl_queue(ctx), o.queue);
    cr_assert(add_works(clef__device_at(ctx, 0), add_source), "%s", clef_error(ctx));
    clef_close(ctx);
    cr_assert(count_falls_to(o.context, before), "%u holders, %u before", count_context(o.context), before);
    drop_own(o);
}

Test(adopt, own_queue) {
    own o = make_own(0);
    clef_context *ctx = clef_open_opencl(o.context, o.device, NULL, NULL);
    cr_assert_not_null(ctx);
    cr_assert_neq(clef_opencl_queue(ctx), o.queue);
    cr_assert(add_works(clef__device_at(ctx, 0), add_source), "%s", clef_error(ctx));
    clef_close(ctx);
    drop_own(o);
}

Test(adopt, refusals) {
    own o = make_own(0), other = make_own(0);
    cr_assert_null(clef_open_opencl(NULL, o.device, NULL, NULL));
    cr_assert_eq(clef_error_status(NULL), CLEF_INVALID);
    cr_assert_null(clef_open_opencl(o.context, o.device, other.queue, NULL));
    cr_assert_not_null(strstr(clef_error(NULL), "another context"));
    cr_assert_null(clef_open_opencl(o.context, o.device, o.queue, &(clef_options){.plan_for = "a100"}));
    cr_assert_not_null(strstr(clef_error(NULL), "plan_for"), "%s", clef_error(NULL));
    drop_own(o);
    o = make_own(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cr_assert_null(clef_open_opencl(o.context, o.device, o.queue, NULL));
    cr_assert_not_null(strstr(clef_error(NULL), "out of order"), "%s", clef_error(NULL));
    drop_own(o);
    drop_own(other);
}

Test(adopt, wrapped_memory) {
    own o = make_own(0), other = make_own(0);
    clef_context *ctx = clef_open_opencl(o.context, o.device, o.queue, &(clef_options){.cache_dir = ""});
    clef__device *device = clef__device_at(ctx, 0);
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    cl_mem memory = clCreateBuffer(o.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof x, x, NULL);
    cl_mem foreign = clCreateBuffer(other.context, CL_MEM_READ_WRITE, 64, NULL, NULL);
    clef__buffer *buffer = clef__buffer_wrap(device, memory);
    cr_assert_not_null(buffer);
    cr_assert_eq(clef__buffer_size(buffer), sizeof x);
    cr_assert_eq(clef__buffer_mem(buffer), (void *)memory);
    clReleaseMemObject(memory); /* still held by the buffer */
    cr_assert_eq(clef__buffer_read(buffer, 0, y, sizeof y), CLEF_OK);
    cr_assert_arr_eq(x, y, sizeof x);
    cr_assert_eq(clef_memory(ctx).used, 0u); /* not Clef's memory */
    clef__buffer_release(buffer);
    cr_assert_eq(clef_memory(ctx).cached, 0u);
    cr_assert_null(clef__buffer_wrap(device, foreign));
    cr_assert_not_null(strstr(clef_error(ctx), "another OpenCL context"));
    clef_close(ctx);
    clReleaseMemObject(foreign);
    drop_own(o);
    drop_own(other);
}

static void divide(void) {
    const cl_device_partition_property equally[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    const clef__found *list;
    cl_device_id parts[64];
    cl_uint n = 0;
    if (clef__devices(&list) > 0) clCreateSubDevices(list[0].id, equally, 64, parts, &n);
}

static void open_on_one(void) {
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = "", .threads = 1});
    clef_close(ctx);
}

/* A CPU used in part is the same device with fewer compute units. */
Test(open, threads) {
    clef_context *whole = clef_open(&(clef_options){.cache_dir = ""});
    clef_device_info all, some;
    cr_assert(clef_context_device(whole, 0, &all));
    clef_close(whole);
    bool cpu = strcmp(all.type, "cpu") == 0;
    if (!survives(open_on_one)) cr_skip_test("the driver crashes when its device is to be divided");
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = "", .threads = 1});
    if (!ctx && clef_error_status(NULL) == CLEF_UNSUPPORTED) {
        cr_assert_not_null(strstr(clef_error(NULL), "open it whole"), "%s", clef_error(NULL));
        cr_skip_test("the device cannot be divided");
    }
    cr_assert_not_null(ctx, "%s", clef_error(NULL));
    cr_assert(clef_context_device(ctx, 0, &some));
    cr_assert_eq(some.compute_units, cpu ? 1u : all.compute_units);
    cr_assert_eq(some.index, all.index);
    cr_assert(add_works(clef__device_at(ctx, 0), add_source), "%s", clef_error(ctx));
    clef_close(ctx);
}

static uint32_t units_with(int threads, const char *variable) {
    setenv("CLEF_THREADS", variable, 1);
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = "", .threads = threads});
    clef_device_info info = {0};
    clef_context_device(ctx, 0, &info);
    clef_close(ctx);
    unsetenv("CLEF_THREADS");
    return info.compute_units;
}

Test(open, wrong_threads) {
    static const char *const wrong[] = {"0", "-1", "two", "1x", "12345678901234567890"};
    uint32_t all = units_with(0, "");
    cr_assert_gt(all, 0u);
    cr_assert_eq(units_with(0, "999999"), all, "more threads than there are");
    cr_assert_eq(units_with(1 << 20, "two"), all, "the option is stronger than the variable");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert_eq(units_with(0, wrong[i]), 0u, "CLEF_THREADS=%s", wrong[i]);
        cr_assert_eq(clef_error_status(NULL), CLEF_INVALID);
        cr_assert_not_null(strstr(clef_error(NULL), wrong[i]), "%s", clef_error(NULL));
    }
    cr_assert_eq(units_with(-2, ""), 0u);
    cr_assert_not_null(strstr(clef_error(NULL), "threads is -2"), "%s", clef_error(NULL));
}

/* ---- parts of a device, chosen by clef_options.device ---- */
static void open_in_parts(void) { clef_close(clef_open(&(clef_options){.device = "0:1", .cache_dir = ""})); }

static void expect_parts(const char *device, int n, const uint32_t *units) {
    clef_context *ctx = clef_open(&(clef_options){.device = device, .cache_dir = ""});
    cr_assert_not_null(ctx, "%s: %s", device, clef_error(NULL));
    cr_assert_eq(clef_context_device_count(ctx), n, "%s", device);
    for (int i = 0; i < n; i++) {
        clef_device_info part;
        cr_assert(clef_context_device(ctx, i, &part));
        cr_assert_eq(part.compute_units, units[i], "%s, part %d", device, i);
        cr_assert_eq(part.index, 0);
        cr_assert(add_works(clef__device_at(ctx, i), add_source), "%s, part %d: %s", device, i, clef_error(ctx));
    }
    clef_close(ctx);
}

Test(open, parts) {
    clef_device_info whole;
    if (!clef_device_get(0, &whole)) cr_skip_test("%s", clef_error(NULL));
    if (!survives(open_in_parts)) cr_skip_test("the driver crashes when its device is to be divided");
    clef_context *ctx = clef_open(&(clef_options){.device = "0:1", .cache_dir = ""});
    if (!ctx && clef_error_status(NULL) == CLEF_UNSUPPORTED) {
        cr_assert_not_null(strstr(clef_error(NULL), "open it whole"), "%s", clef_error(NULL));
        cr_skip_test("the device cannot be divided");
    }
    clef_close(ctx);
    uint32_t all = whole.compute_units;
    expect_parts("0:1", 1, (uint32_t[]){1});
    expect_parts("0/1", 1, (uint32_t[]){all});
    if (all < 2) return;
    expect_parts("0/2", 2, (uint32_t[]){all / 2, all / 2});
    expect_parts("0:1+1", 2, (uint32_t[]){1, 1});
    expect_parts("0:1, 0", 2, (uint32_t[]){1, all});
}

Test(open, wrong_parts) {
    static const char *const wrong[] = {
        "0/0", "0/99999", "0:0", "0:1+", "0:1+0", "0:999999", "0:9999999999999", "0:1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1"};
    if (clef_device_count() == 0) cr_skip_test("%s", clef_error(NULL));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert_null(clef_open(&(clef_options){.device = wrong[i], .cache_dir = ""}), "%s", wrong[i]);
        cr_assert_eq(clef_error_status(NULL), CLEF_INVALID, "%s", clef_error(NULL));
        cr_assert_not_null(strstr(clef_error(NULL), wrong[i]), "%s", clef_error(NULL));
        cr_assert_not_null(strstr(clef_error(NULL), "compute units; write"), "%s", clef_error(NULL));
    }
    cr_assert_null(clef_open(&(clef_options){.device = "0/x", .cache_dir = ""}));
    cr_assert_not_null(strstr(clef_error(NULL), "not found"), "%s", clef_error(NULL));
}

/* A part of a device is no entry of the list, and works all the same. */
Test(adopt, sub_device) {
    if (!survives(divide)) cr_skip_test("the driver crashes when its device is to be divided");
    own o = make_own(0);
    const cl_device_partition_property equally[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_device_id parts[64];
    cl_uint n = 0;
    if (clCreateSubDevices(o.device, equally, 64, parts, &n) != CL_SUCCESS) {
        drop_own(o);
        cr_skip_test("the device cannot be divided");
    }
    cl_context context = clCreateContext(NULL, 1, &parts[0], NULL, NULL, NULL);
    clef_context *ctx = clef_open_opencl(context, parts[0], NULL, &(clef_options){.cache_dir = ""});
    clef_device_info info;
    cr_assert_not_null(ctx, "%s", clef_error(NULL));
    cr_assert(clef_context_device(ctx, 0, &info));
    cr_assert_eq(info.index, -1);
    cr_assert_eq(info.compute_units, 1u);
    cr_assert(add_works(clef__device_at(ctx, 0), add_source), "%s", clef_error(ctx));
    clef_close(ctx);
    clReleaseContext(context);
    for (cl_uint i = 0; i < n && i < 64; i++) clReleaseDevice(parts[i]);
    drop_own(o);
}
