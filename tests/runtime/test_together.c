/* Contexts that are opened together: what they share, what stays apart, and what is left when some of them close or fail. */
#include "clef/opencl.h"
#include "runtime_support.h"
#include <criterion/criterion.h>

enum { MOST = 4 };
static clef_context *ctx[MOST];

/* Two units, and parts, on a machine with one core too. */
static void divide_in_two(void) {
    setenv("POCL_MAX_PTHREAD_COUNT", "2", 0);
    setenv("CLEF_CACHE_DIR", "", 1);
    setenv("CLEF_PROBE", CLEF_TEST_BUILD "/clef-probe", 1);
}

static clef_status open_on(int n, const char *const *devices) {
    clef_options options[MOST] = {{0}};
    for (int i = 0; i < n; i++) options[i].device = devices[i];
    return clef_open_all(options, n, ctx);
}

static const char *const halves[] = {"0/2#0", "0/2#1", "0/2#0", "0/2#1"};

/* Four contexts on the two halves of device 0; skips where it has none. */
static void open_halves(void) {
    clef_status status = open_on(MOST, halves);
    if (status == CLEF_NO_DEVICE || status == CLEF_UNSUPPORTED) cr_skip_test("%s", clef_error(NULL));
    cr_assert_eq(status, CLEF_OK, "%s", clef_error(NULL));
}

/* …in one OpenCL context; skips where the driver stands no such thing. */
static void open_shared(void) {
    open_halves();
    if (clef__device_at(ctx[0], 0)->context != clef__device_at(ctx[1], 0)->context) cr_skip_test("the driver stands no sharing");
}

static void close_all(int n) {
    for (int i = 0; i < n; i++) clef_close(ctx[i]);
}

static clef__device *device_of(int i) { return clef__device_at(ctx[i], 0); }

static void expect_works(int i, const char *source) {
    cr_expect(add_works(device_of(i), source), "context %d: %s", i, clef_error(ctx[i]));
}

static uint64_t built(int n) {
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) sum += clef_counters_get(ctx[i]).kernels_built;
    return sum;
}

static void expect_refused(clef_status wanted, int n, const char *const *parts_of_line) {
    for (int i = 0; i < n; i++) cr_expect_null(ctx[i], "context %d", i);
    cr_expect_eq(clef_error_status(NULL), wanted, "%s", clef_error(NULL));
    cr_expect_null(strchr(clef_error(NULL), '\n'));
    for (; *parts_of_line; parts_of_line++)
        cr_expect_not_null(strstr(clef_error(NULL), *parts_of_line), "%s: %s", *parts_of_line, clef_error(NULL));
}
#define LINE(...) ((const char *const[]){__VA_ARGS__, NULL})

TestSuite(together, .init = divide_in_two, .timeout = 300);

/* ---- what is shared ---- */

/* So many of the contexts run the same programs (drivers.def: queues). */
static int sharing(void) {
    int queues = clef__driver_of(&device_of(0)->info).queues;
    return queues ? queues : MOST;
}

Test(together, one_opencl_context_and_one_compilation) {
    open_shared();
    for (int i = 1; i < MOST; i++) {
        cr_expect_eq(device_of(i)->context, device_of(0)->context);
        cr_expect_eq(device_of(i)->id, device_of(i % 2)->id, "the same part");
        cr_expect_neq(device_of(i)->compute, device_of(0)->compute);
        cr_expect_eq(device_of(i)->programs, device_of(i / sharing() * sharing())->programs);
        cr_expect_eq(device_of(i)->programs == device_of(0)->programs, i < sharing());
    }
    cr_expect_neq(device_of(0)->id, device_of(1)->id, "the two parts");
    cr_expect_eq(device_of(0)->programs->n, 2u, "each part once");
    for (int i = 0; i < MOST; i++) expect_works(i, add_source);
    cr_expect_eq(clef_counters_get(ctx[0]).kernels_built, 1u);
    cr_expect_eq(built(MOST), (uint64_t)(MOST / sharing()));
    close_all(MOST);
}

Test(together, drivers_that_stand_no_sharing) {
    setenv("CLEF_PROBE", "0", 1);
    open_halves();
    for (int i = 0; i < MOST; i++) {
        expect_works(i, add_source);
        for (int k = 0; k < i; k++) {
            cr_expect_neq(device_of(i)->context, device_of(k)->context);
            cr_expect_neq(device_of(i)->programs, device_of(k)->programs);
        }
    }
    cr_expect_eq(built(MOST), (uint64_t)MOST);
    close_all(MOST);
}

/* Devices of one platform have an OpenCL context in common, but programs of their own; so have other profiles. */
Test(together, programs_are_for_equal_devices) {
    setenv("POCL_DEVICES", "pthread pthread", 1);
    if (open_on(2, (const char *const[]){"0", "1"})) cr_skip_test("%s", clef_error(NULL));
    if (device_of(0)->context == device_of(1)->context) cr_expect_neq(device_of(0)->programs, device_of(1)->programs);
    for (int i = 0; i < 2; i++) expect_works(i, add_source);
    cr_expect_eq(built(2), 2u);
    close_all(2);
    clef_options options[2] = {{.device = "0", .profile = "cpu_avx512"}, {.device = "0", .profile = "minimal"}};
    cr_assert_eq(clef_open_all(options, 2, ctx), CLEF_OK, "%s", clef_error(NULL));
    cr_expect_neq(device_of(0)->programs, device_of(1)->programs);
    for (int i = 0; i < 2; i++) expect_works(i, add_source);
    close_all(2);
}

/* A driver may count wrongly what runs a kernel in several sizes at the same time, and end the process (drivers.def: queues). */
Test(together, queues_that_run_one_kernel_in_several_sizes) {
    static const char source[] = "__kernel void work(__global int *x, int n) {"
                                 "    int a = x[0];"
                                 "    for (int i = 0; i < n; i++) a = a * 3 + (a >> 3);"
                                 "    x[0] = a;"
                                 "}";
    static const size_t one[3] = {1, 1, 1}, more[3] = {4, 1, 1};
    static const int little = 1, much = 300 * 1000 * 1000; /* half a second or more */
    clef__kernel *kernel[MOST];
    clef__buffer *buffer[MOST];
    setenv("POCL_MAX_PTHREAD_COUNT", "8", 1);
    cr_assert_eq(open_on(MOST, (const char *const[]){"0", "0", "0", "0"}), CLEF_OK, "%s", clef_error(NULL));
    int queues = clef__driver_of(&device_of(0)->info).queues;
    if (queues == 0) cr_skip_test("no limit is known");
    for (int i = 0; i < MOST; i++) {
        cr_expect_eq(device_of(i)->programs->copy, 1 + i / queues);
        cr_expect((device_of(i)->programs == device_of(0)->programs) == (i < queues), "context %d", i);
        kernel[i] = clef__kernel_new(device_of(i), source, "", "work");
        buffer[i] = clef__buffer_new(device_of(i), sizeof(int));
        cr_assert(kernel[i] && buffer[i], "%s", clef_error(ctx[i]));
        cr_assert_eq(clef__buffer_write(buffer[i], 0, &little, sizeof little), CLEF_OK);
        cr_assert_eq(clef__kernel_set_buffer(kernel[i], 0, buffer[i]), CLEF_OK);
    }
    for (int n = 0; n < 2; n++) /* so that it is compiled before they run it at the same time */
        for (int i = 0; i < MOST - 1; i++) {
            cr_assert_eq(clef__kernel_set(kernel[i], 1, sizeof(int), n ? &much : &little), CLEF_OK);
            cr_assert_eq(clef__kernel_launch(kernel[i], one, one, "work"), CLEF_OK, "%s", clef_error(ctx[i]));
            if (n == 0) cr_assert_eq(clef__finish(device_of(i)), CLEF_OK);
            else cr_assert_eq(clFlush(device_of(i)->compute), CL_SUCCESS);
        }
    nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
    cr_assert_eq(clef__kernel_set(kernel[MOST - 1], 1, sizeof(int), &little), CLEF_OK);
    cr_assert_eq(clef__kernel_launch(kernel[MOST - 1], more, one, "work"), CLEF_OK, "%s", clef_error(ctx[MOST - 1]));
    for (int i = MOST - 1; i >= 0; i--) {
        cr_expect_eq(clef__finish(device_of(i)), CLEF_OK, "%s", clef_error(ctx[i]));
        clef__buffer_release(buffer[i]);
        clef__kernel_free(kernel[i]);
    }
    close_all(MOST);
    cr_assert_eq(open_on(1, (const char *const[]){"0"}), CLEF_OK);
    cr_expect_eq(device_of(0)->programs->copy, 1, "those that closed are not counted");
    close_all(1);
}

/* Several devices in each. */
Test(together, several_devices_in_each) {
    clef_status status = open_on(2, (const char *const[]){"0/2", "0/2#1, 0/2#0"});
    if (status) cr_skip_test("%s", clef_error(NULL));
    for (int d = 0; d < 2; d++) {
        cr_assert_eq(clef_context_device_count(ctx[d]), 2);
        cr_expect_eq(clef__device_at(ctx[0], d)->id, clef__device_at(ctx[1], 1 - d)->id);
        for (int i = 0; i < 2; i++) cr_expect(add_works(clef__device_at(ctx[i], d), add_source), "%s", clef_error(ctx[i]));
    }
    bool shared = clef__device_at(ctx[0], 0)->context == clef__device_at(ctx[1], 0)->context;
    cr_expect_eq(built(2), shared ? 4u / (unsigned)sharing() : 4u);
    close_all(2);
}

/* An OpenCL context holds so many devices at most; more of them get another. */
Test(together, more_devices_than_one_opencl_context_takes) {
    enum { DIVISIONS = 5 };
    static const char *const divisions[DIVISIONS] = {"0/16", "0/15", "0/14", "0/13", "0/12"};
    setenv("POCL_MAX_PTHREAD_COUNT", "16", 1);
    clef_options options[DIVISIONS] = {{0}};
    clef_context *all[DIVISIONS];
    for (int i = 0; i < DIVISIONS; i++) options[i].device = divisions[i];
    if (clef_open_all(options, DIVISIONS, all)) cr_skip_test("%s", clef_error(NULL));
    clef__device *first = clef__device_at(all[0], 0), *last = clef__device_at(all[DIVISIONS - 1], 11);
    if (first->context != clef__device_at(all[0], 1)->context) cr_skip_test("the driver stands no sharing");
    cl_uint queues = (cl_uint)clef__driver_of(&first->info).queues; /* that may run the same programs */
    cr_expect_eq(first->programs->n, queues ? queues : CLEF__MAX_SHARING);
    cr_expect_eq(last->programs->n, queues ? queues : 16u + 15 + 14 + 13 + 12 - CLEF__MAX_SHARING);
    cr_expect_neq(first->context, last->context);
    cr_expect(add_works(first, add_source), "%s", clef_error(all[0]));
    cr_expect(add_works(last, add_source), "%s", clef_error(all[DIVISIONS - 1]));
    for (int i = 0; i < DIVISIONS; i++) clef_close(all[i]);
}

/* The rest is each context's own. */
Test(together, options_and_state_are_their_own) {
    static memory_log heard[2];
    clef_options options[2] = {{.seed = 3, .eager = true, .log = remember, .log_user = &heard[0]},
                               {.seed = 4, .debug_memory = true, .log = remember, .log_user = &heard[1]}};
    if (clef_open_all(options, 2, ctx)) cr_skip_test("%s", clef_error(NULL));
    cr_expect_eq(clef_random_get(ctx[0]).seed, 3u);
    cr_expect_eq(clef_random_get(ctx[1]).seed, 4u);
    cr_expect(clef__eager(ctx[0]) && !clef__eager(ctx[1]) && clef__debug_memory(ctx[1]) && !clef__debug_memory(ctx[0]));
    for (int i = 0; i < 2; i++) expect_works(i, add_source);
    clef__fail(ctx[1], CLEF_IO, "only here");
    cr_expect_eq(clef_error_status(ctx[0]), CLEF_OK);
    cr_expect_eq(heard[0].count[CLEF_LOG_ERROR], 0);
    cr_expect_eq(heard[1].count[CLEF_LOG_ERROR], 1);
    close_all(2);
}

Test(together, no_options) {
    if (clef_open_all(NULL, 3, ctx)) cr_skip_test("%s", clef_error(NULL));
    for (int i = 0; i < 3; i++) expect_works(i, add_source);
    cr_expect_eq(built(3), device_of(0)->context == device_of(1)->context ? 1u + (sharing() < 3) : 3u, "a device that is whole");
    close_all(3);
    cr_assert_eq(clef_open_all(NULL, 1, ctx), CLEF_OK);
    close_all(1);
}

/* ---- parts ---- */

/* The number of a part means that of the whole division, in any context. */
Test(together, parts_of_one_division) {
    clef_context *whole = clef_open(&(clef_options){.device = "0:1+1"});
    if (!whole) cr_skip_test("%s", clef_error(NULL));
    for (int part = 0; part < 2; part++) {
        clef_device_info info;
        clef_context *one = clef_open(&(clef_options){.device = part ? "0:1+1#1" : "0:1+1#0"});
        cr_assert_not_null(one, "%s", clef_error(NULL));
        cr_expect_eq(clef_context_device_count(one), 1);
        cr_expect(clef_context_device(one, 0, &info) && info.compute_units == 1);
        cr_expect_eq(clef__device_at(one, 0)->id, clef__device_at(whole, part)->id);
        cr_expect(add_works(clef__device_at(one, 0), add_source), "%s", clef_error(one));
        clef_close(one);
    }
    clef_close(whole);
}

Test(together, parts_that_are_not_there) {
    static const char *const wrong[] = {"0/2#2",  "0/2#",    "0/2#x",   "0/2#-1",   "0/2# 1",          "0/2#+1",
                                        "0/2#1x", "0/2#1#1", "0:1+1#2", "0:1#1",    "0/2#1+1",         "0/2#99999999999999999999",
                                        "0#0",    "0/0#0",   "0:#0",    "0, 0/2#2", "0:1+1#4294967296"};
    if (clef_device_count() == 0) cr_skip_test("%s", clef_error(NULL));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *last = strrchr(wrong[i], ' ') && wrong[i][1] == ',' ? strrchr(wrong[i], ' ') + 1 : wrong[i];
        ctx[0] = clef_open(&(clef_options){.device = wrong[i]});
        expect_refused(CLEF_INVALID, 1, LINE("open: device ", last));
    }
    cr_expect_null(clef_open(&(clef_options){.device = "0/2#2"}));
    cr_expect_not_null(strstr(clef_error(NULL), "they count from 0"), "%s", clef_error(NULL));
    cr_expect_null(clef_open(&(clef_options){.device = "0/2#"}));
    cr_expect_not_null(strstr(clef_error(NULL), "behind # stands the number of a part"), "%s", clef_error(NULL));
}

/* ---- all or none ---- */

Test(together, none_when_one_fails) {
    if (clef_device_count() == 0) cr_skip_test("%s", clef_error(NULL));
    for (int bad = 0; bad < 3; bad++) {
        char which[16];
        const char *devices[3] = {"0", "0", "0"};
        snprintf(which, sizeof which, "ctx[%d]", bad);
        devices[bad] = "nonesuch";
        cr_expect_eq(open_on(3, devices), CLEF_INVALID);
        expect_refused(CLEF_INVALID, 3, LINE("open_all: ", which, "\"nonesuch\" not found"));
        clef_options options[3] = {{0}};
        options[bad].profile = "nonesuch"; /* found out once all are begun */
        cr_expect_eq(clef_open_all(options, 3, ctx), CLEF_INVALID);
        expect_refused(CLEF_INVALID, 3, LINE("open_all: ", which, "no device profile is called \"nonesuch\""));
        options[bad] = (clef_options){.threads = -1};
        cr_expect_eq(clef_open_all(options, 3, ctx), CLEF_INVALID);
        expect_refused(CLEF_INVALID, 3, LINE("open_all: ", which, "threads is -1"));
    }
}

Test(together, wrong_arguments) {
    for (int n = -1; n <= 0; n++) {
        cr_expect_eq(clef_open_all(NULL, n, ctx), CLEF_INVALID);
        expect_refused(CLEF_INVALID, MOST, LINE("open_all: no contexts are asked for"));
    }
    cr_expect_eq(clef_open_all(NULL, 2, NULL), CLEF_INVALID);
    expect_refused(CLEF_INVALID, MOST, LINE("open_all: no place"));
}

Test(together, no_device) {
    setenv("OCL_ICD_VENDORS", "/dev/null/none", 1);
    cr_expect_eq(clef_open_all(NULL, 2, ctx), CLEF_NO_DEVICE);
    expect_refused(CLEF_NO_DEVICE, 2, LINE("open_all: ctx[0]", "no OpenCL platform"));
}

/* ---- the first goes, the others stay ---- */

Test(together, programs_outlive_who_compiled_them) {
    open_shared();
    expect_works(0, add_source);
    int sharers = sharing();
    clef_close(ctx[0]);
    ctx[0] = NULL;
    for (int i = 1; i < MOST; i++) {
        expect_works(i, add_source);
        cr_expect_eq(clef_counters_get(ctx[i]).kernels_built, i % sharers == 0);
        clef_close(ctx[i]);
    }
}

static const char wrong_source[] = "__kernel void add(__global float *x, float y) { x[0] = nonesuch; }\n";

/* Each who asks for it is told, with the log; nobody asks the compiler again. */
Test(together, a_wrong_source_is_told_to_all) {
    open_shared();
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < MOST; i++) {
            cr_expect_null(clef__kernel_new(device_of(i), wrong_source, "", "add"));
            cr_expect_eq(clef_error_status(ctx[i]), CLEF_BUILD);
            cr_expect_not_null(strstr(clef_error(ctx[i]), "nonesuch"), "%s", clef_error(ctx[i]));
            cr_expect_not_null(strstr(clef_build_log(ctx[i]), "nonesuch"), "%s", clef_build_log(ctx[i]));
            clef_clear_error(ctx[i]);
            if (i + 1 < MOST && !round) cr_expect_eq(clef_error_status(ctx[i + 1]), CLEF_OK, "nobody else is told");
        }
    for (int i = 0; i < MOST; i++) expect_works(i, add_source);
    close_all(MOST);
}

/* One whose device is gone leaves the others their programs, whenever it closes. */
Test(together, one_device_is_lost) {
    for (int lost = 0; lost < 2; lost++) {
        open_shared();
        expect_works(lost, add_source);
        cr_expect_eq(clef__fail_cl(device_of(lost), CL_DEVICE_NOT_AVAILABLE, "finish"), CLEF_LOST);
        for (int i = 0; i < MOST; i++) {
            if (i == lost) continue;
            cr_expect_eq(clef_error_status(ctx[i]), CLEF_OK);
            expect_works(i, add_source);
        }
        expect_works(3, "__kernel void add(__global float *x, float y) { x[get_global_id(0)] -= -y; }\n");
        cr_expect_null(clef__kernel_new(device_of(lost), add_source, "", "add"));
        cr_expect_eq(clef_error_status(ctx[lost]), CLEF_LOST);
        for (int i = 0; i < MOST; i++) clef_close(ctx[lost ? i : MOST - 1 - i]);
    }
}

/* A program that could not be built on a device that was then lost is built for the others. */
Test(together, a_loss_while_compiling_is_one_contexts_own) {
    open_shared();
    cl_context context = device_of(0)->context;
    device_of(0)->context = NULL; /* CL_INVALID_CONTEXT, as after a driver's reset */
    cr_expect_null(clef__kernel_new(device_of(0), add_source, "", "add"));
    device_of(0)->context = context;
    cr_expect_eq(clef_error_status(ctx[0]), CLEF_LOST, "%s", clef_error(ctx[0]));
    for (int i = 1; i < MOST; i++) expect_works(i, add_source);
    cr_expect_eq(built(MOST), (uint64_t)(MOST / sharing()));
    close_all(MOST);
    clReleaseContext(context); /* whose reference a lost device leaves to the driver */
}

/* ---- one after the other ---- */

static bool open_whole(int i, const char *profile) {
    ctx[i] = clef_open(&(clef_options){.device = "0", .profile = profile});
    if (!ctx[i] && clef_error_status(NULL) == CLEF_NO_DEVICE) cr_skip_test("%s", clef_error(NULL));
    cr_assert_not_null(ctx[i], "%s", clef_error(NULL));
    return i == 0 || device_of(i)->context == device_of(0)->context;
}

/* Device 0 in contexts 0 and 1; skips where the driver stands no sharing. */
static void open_two(void) {
    open_whole(0, NULL);
    expect_works(0, add_source);
    if (clef_device_events(ctx[0], 0, 0, true) != CLEF_VERDICT_YES) cr_skip_test("the driver stands no sharing");
    cr_assert(open_whole(1, NULL));
}

Test(together, a_device_that_is_open_shares_what_is_compiled) {
    open_two();
    cr_expect_eq(device_of(1)->programs, device_of(0)->programs);
    cr_expect_neq(device_of(1)->compute, device_of(0)->compute);
    cr_expect_not(clef__devices_joined(device_of(0), device_of(1)), "no queue waits for another's");
    expect_works(1, add_source);
    cr_expect_eq(built(2), 1u);
    clef_close(ctx[0]);
    expect_works(1, add_source);
    cr_expect_eq(clef_counters_get(ctx[1]).kernels_built, 0u);
    clef_close(ctx[1]);
    open_whole(0, NULL);
    expect_works(0, add_source);
    cr_expect_eq(built(1), 1u, "nothing outlives the last of them");
    clef_close(ctx[0]);
}

Test(together, other_options_and_parts_have_programs_of_their_own) {
    open_two();
    cr_expect(open_whole(2, "minimal"), "in the same OpenCL context");
    cr_expect_neq(device_of(2)->programs, device_of(0)->programs);
    expect_works(2, add_source);
    cr_expect_eq(clef_counters_get(ctx[2]).kernels_built, 1u);
    ctx[3] = clef_open(&(clef_options){.device = "0/2"});
    if (ctx[3]) {
        cr_expect_neq(device_of(3)->context, device_of(0)->context);
        expect_works(3, add_source);
    }
    close_all(MOST);
}

Test(together, a_part_shares_with_no_whole_device) {
    open_shared();
    expect_works(0, add_source);
    clef_close(ctx[3]);
    cr_expect_not(open_whole(3, NULL));
    cr_expect_eq(device_of(0)->programs->n, 2u);
    cr_expect_eq(device_of(3)->programs->n, 1u);
    expect_works(3, add_source);
    expect_works(1, add_source);
    close_all(MOST);
}

Test(together, an_isolated_context_is_nobody_elses) {
    open_two();
    ctx[2] = clef_open(&(clef_options){.device = "0", .isolated = true});
    cr_assert_not_null(ctx[2], "%s", clef_error(NULL));
    cr_expect_neq(device_of(2)->context, device_of(0)->context);
    close_all(2);
    open_whole(0, NULL);
    cr_expect_neq(device_of(2)->context, device_of(0)->context);
    expect_works(2, add_source);
    expect_works(0, add_source);
    clef_close(ctx[2]);
    clef_close(ctx[0]);
    const clef_options both[] = {{.device = "0"}, {.device = "0", .isolated = true}};
    cr_assert_eq(clef_open_all(both, 2, ctx), CLEF_OK, "%s", clef_error(NULL));
    cr_expect_neq(device_of(0)->context, device_of(1)->context, "also of those opened together");
    close_all(2);
}

static void *open_and_close(void *good) {
    for (int i = 0; i < 20; i++) {
        clef_context *mine = clef_open(&(clef_options){.device = "0"});
        *(bool *)good = *(bool *)good && mine && add_works(clef__device_at(mine, 0), add_source);
        clef_close(mine);
    }
    return NULL;
}

Test(together, threads_open_and_close_one_device) {
    pthread_t thread[3];
    bool good[3] = {true, true, true};
    open_two();
    close_all(2);
    for (int i = 0; i < 3; i++) cr_assert_eq(pthread_create(&thread[i], NULL, open_and_close, &good[i]), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
        cr_expect(good[i], "thread %d: %s", i, clef_error(NULL));
    }
}

Test(together, a_lost_device_is_opened_anew) {
    open_two();
    cr_expect_eq(clef__fail_cl(device_of(0), CL_DEVICE_NOT_AVAILABLE, "finish"), CLEF_LOST);
    expect_works(1, add_source);
    cr_expect_not(open_whole(2, NULL));
    cr_expect_neq(device_of(2)->programs, device_of(1)->programs);
    cr_expect(!open_whole(3, NULL) && device_of(3)->context == device_of(2)->context, "with who came after the loss");
    expect_works(2, add_source);
    expect_works(3, add_source);
    close_all(MOST);
}

/* Nor by way of those that have other options. */
Test(together, a_lost_opencl_context_is_lost_for_all_who_come) {
    open_two();
    clef_close(ctx[1]);
    cr_expect(open_whole(1, "minimal"));
    cl_context lost = device_of(0)->context;
    cr_expect_eq(clef__fail_cl(device_of(0), CL_INVALID_CONTEXT, "finish"), CLEF_LOST);
    clef_close(ctx[0]);
    open_whole(0, NULL);
    cr_expect_neq(device_of(0)->context, lost);
    cr_expect_neq(device_of(0)->programs, device_of(1)->programs);
    expect_works(0, add_source);
    open_whole(2, "minimal");
    cr_expect_eq(device_of(2)->context, device_of(0)->context);
    expect_works(2, add_source);
    close_all(3);
}

/* A program's own OpenCL context is not for others. */
Test(together, an_adopted_context_stays_apart) {
    open_whole(0, NULL);
    cl_device_id id = device_of(0)->id;
    clef_close(ctx[0]);
    cl_context own = clCreateContext(NULL, 1, &id, NULL, NULL, NULL);
    cr_assert_not_null(own);
    ctx[0] = clef_open_opencl(own, id, NULL, NULL);
    cr_assert_not_null(ctx[0], "%s", clef_error(NULL));
    expect_works(0, add_source);
    cr_expect_not(open_whole(1, NULL));
    expect_works(1, add_source);
    cr_expect_eq(built(2), 2u);
    close_all(2);
    clReleaseContext(own);
}

/* ---- fork ---- */
Test(together, a_forked_child_gets_errors_and_may_close) {
    open_halves();
    expect_works(0, add_source);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        bool good = clef_synchronize(ctx[1]) == CLEF_STATE;
        clef_context *more[2];
        good = good && clef_open_all(NULL, 2, more) == CLEF_STATE && !more[0] && !more[1];
        close_all(MOST);
        _exit(!good);
    }
    int state = 1;
    cr_assert(child > 0 && waitpid(child, &state, 0) == child);
    cr_expect_eq(state, 0);
    for (int i = 0; i < MOST; i++) expect_works(i, add_source);
    close_all(MOST);
}
