/* Compiling, launching, tracing. */
#include "runtime_support.h"
#include "uses.h"
#include "support/joined.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static clef_context *ctx;
static clef__device *device;
static const size_t one[3] = {1, 1, 1};

static void setup(void) {
    ctx = clef_open(&(clef_options){.cache_dir = ""});
    if (!ctx) cr_skip_test("%s", clef_error(NULL));
    device = clef__device_at(ctx, 0);
}

static void teardown(void) { clef_close(ctx); }

TestSuite(program, .init = setup, .fini = teardown);

Test(program, compiled_once) {
    clef__kernel *a = clef__kernel_new(device, add_source, "-DA=1", "add");
    clef__kernel *b = clef__kernel_new(device, add_source, "-DA=1", "add");
    cr_assert(a && b && a != b);
    cr_assert_eq(clef_counters_get(ctx).kernels_built, 1u);
    cr_assert_gt(clef_counters_get(ctx).compile_seconds, 0.0);
    clef__kernel *c = clef__kernel_new(device, add_source, "-DA=2", "add");
    cr_assert_eq(clef_counters_get(ctx).kernels_built, 2u);
    cr_assert_eq(clef_counters_get(ctx).kernels_from_cache, 0u);
    clef__kernel_free(a);
    clef__kernel_free(b);
    clef__kernel_free(c);
    clef__kernel_free(NULL);
}

/* Arguments belong to the kernel object and stay set. */
Test(program, arguments_stay) {
    clef__kernel *a = clef__kernel_new(device, add_source, NULL, "add"), *b = clef__kernel_new(device, add_source, NULL, "add");
    clef__buffer *x = clef__buffer_new(device, 4), *y = clef__buffer_new(device, 4);
    float zero = 0, one_f = 1, ten = 10, got;
    clef__buffer_write(x, 0, &zero, 4);
    clef__buffer_write(y, 0, &zero, 4);
    clef__kernel_set_buffer(a, 0, x);
    clef__kernel_set(a, 1, 4, &one_f);
    clef__kernel_set_buffer(b, 0, y);
    clef__kernel_set(b, 1, 4, &ten);
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(clef__kernel_launch(a, one, one, "a"), CLEF_OK);
        cr_assert_eq(clef__kernel_launch(b, one, one, "b"), CLEF_OK);
    }
    clef__buffer_read(x, 0, &got, 4);
    cr_assert_eq(got, 5.f);
    clef__buffer_read(y, 0, &got, 4);
    cr_assert_eq(got, 50.f);
    cr_assert_eq(clef_counters_get(ctx).launches, 10u);
    clef__buffer_release(x);
    clef__buffer_release(y);
    clef__kernel_free(a);
    clef__kernel_free(b);
}

Test(program, failed_build) {
    static const char broken[] = "__kernel void f(__global int *x) {\n  x[0] = nonesuch;\n}\n";
    cr_assert_null(clef__kernel_new(device, broken, "", "f"));
    cr_assert_eq(clef_error_status(ctx), CLEF_BUILD);
    cr_assert_not_null(strstr(clef_error(ctx), "kernel f does not compile"), "%s", clef_error(ctx));
    cr_assert_not_null(strstr(clef_error(ctx), "nonesuch"), "%s", clef_error(ctx));
    cr_assert_not_null(strstr(clef_build_log(ctx), "nonesuch"));
    double once = clef_counters_get(ctx).compile_seconds;
    clef_clear_error(ctx);
    cr_assert_null(clef__kernel_new(device, broken, "", "f")); /* remembered, not compiled again */
    cr_assert_eq(clef_counters_get(ctx).compile_seconds, once);
    cr_assert_eq(clef_error_status(ctx), CLEF_BUILD);
    cr_assert_eq(clef_counters_get(ctx).kernels_built, 0u);
}

Test(program, missing_kernel) {
    cr_assert_null(clef__kernel_new(device, add_source, "", "subtract"));
    cr_assert_eq(clef_error_status(ctx), CLEF_BUILD);
    cr_assert_not_null(strstr(clef_error(ctx), "subtract"));
}

Test(program, f64_is_announced) {
    static const char source[] = "#ifdef CLEF_F64\n#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
                                 "__kernel void f(__global int *x) { double d = x[0]; x[0] = (int)(d / 3); }\n"
                                 "#else\n__kernel void f(__global int *x) { x[0] /= 3; }\n#endif\n";
    clef__kernel *k = clef__kernel_new(device, source, "", "f");
    cr_assert_not_null(k, "%s", clef_build_log(ctx));
    clef__kernel_free(k);
}

Test(program, wrong_launches) {
    clef__kernel *k = clef__kernel_new(device, add_source, "", "add");
    size_t most = clef__kernel_max_group(k);
    cr_assert_geq(most, 1u);
    cr_assert_leq(most, clef__device_info(device)->max_work_group);
    const size_t wrong[][3] = {{most * 2, 1, 1}, {most, 2, 1}, {0, 1, 1}, {SIZE_MAX / 2, 4, 1}, {SIZE_MAX, SIZE_MAX, SIZE_MAX}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const size_t global[3] = {most * 4, 4, 1};
        cr_assert_eq(clef__kernel_launch(k, global, wrong[i], "x"), CLEF_INVALID, "%zu", i);
        cr_assert_eq(clef_error_status(ctx), CLEF_INVALID);
        clef_clear_error(ctx);
    }
    cr_assert_eq(clef__kernel_launch(k, (size_t[]){5, 1, 1}, (size_t[]){2, 1, 1}, "x"), CLEF_INVALID);
    cr_assert_eq(clef__kernel_launch(k, (size_t[]){5, 0, 1}, one, "x"), CLEF_OK); /* an empty range is no work */
    cr_assert_eq(clef_counters_get(ctx).launches, 0u);
    clef_clear_error(ctx);
    float y = 0;
    cr_assert_neq(clef__kernel_set(k, 7, sizeof y, &y), CLEF_OK);
    cr_assert_eq(clef_error_status(ctx), CLEF_INVALID);
    clef__kernel_free(k);
}

Test(program, embedded_files) {
    cr_assert_null(clef__embedded("nonesuch.cl"));
    const char *common = clef__embedded("common.h");
    cr_assert_not_null(common);
    cr_assert_not_null(strstr(common, "#define LOAD("));
}

/* ---- codes, and several as one program ---- */
#define NAMED "#ifndef NAME\n#define NAME f\n#endif\n"
static int told_by_kernel(clef__kernel *k) {
    if (!k) return -1;
    int told = 0;
    clef__buffer *x = clef__buffer_new(device, sizeof told);
    cr_assert_eq(clef__kernel_set_buffer(k, 0, x), CLEF_OK);
    cr_assert_eq(clef__kernel_launch(k, (size_t[]){1, 1, 1}, (size_t[]){1, 1, 1}, "f"), CLEF_OK);
    cr_assert_eq(clef__buffer_read(x, 0, &told, sizeof told), CLEF_OK);
    clef__buffer_release(x);
    clef__kernel_free(k);
    return told;
}

static clef__code *code_of(const char *text) { return clef__code_of(device, text, NULL, ""); }

static int told_by_code(const char *text) {
    clef__code *code = code_of(text);
    return clef__code_compile(device, code, "f") ? told_by_kernel(clef__kernel_of(device, code->program, "f")) : -1;
}

static void join(const char *const *text, int n, int in_vain) {
    clef__code *all[64];
    for (int i = 0; i < n; i++) all[i] = code_of(text[i]);
    compile_joined(device, all, n, "f");
    for (int i = 0; i < n; i++) in_vain -= all[i]->program == NULL;
    cr_expect_eq(in_vain, 0);
}

Test(program, equal_codes_are_one) {
    cr_assert_eq(code_of("a"), code_of("a"));
    cr_assert_neq(code_of("a"), code_of("b"));
    cr_assert_neq(code_of("a"), clef__code_of(device, "a", NULL, "-DX=1"));
    cr_assert_neq(code_of("a"), clef__code_of(device, "a", "common.h", ""));
    cr_assert_neq(clef__code_of(device, NULL, "common.h", ""), clef__code_of(device, "", "common.h", ""));
    clef__code *many[1000];
    for (int i = 0; i < 2000; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", i % 1000);
        if (i >= 1000) cr_assert_eq(many[i % 1000], code_of(text));
        else many[i] = code_of(text);
    }
}

Test(program, a_code_is_claimed_once_until_it_was_compiled) {
    clef__code *good = code_of("__kernel void f(__global int *x) { x[0] = 7; }\n"), *bad = code_of("no C\n");
    cr_assert(clef__code_claim(good) && !clef__code_claim(good) && clef__code_claim(bad));
    cr_assert(clef__code_compile(device, good, "f"), "%s", clef_error(ctx));
    cr_assert_not(clef__code_claim(good), "it is compiled");
    cr_assert_not(clef__code_compile(device, bad, "f"));
    cr_assert(clef__code_claim(bad), "it failed, and can be tried again");
    clef_clear_error(ctx);
}

/* A code's text stands behind common.h, and before its file. */
Test(program, text_and_files) {
    cr_assert_eq(told_by_code("__kernel void f(__global int *x) { x[0] = sizeof(MEMORY(f16)); }\n"), 2);
    clef__code *both = clef__code_of(device, "#define random_uniform f\n", "random.cl", "");
    cr_assert(clef__code_compile(device, both, "f"), "%s", clef_error(ctx));
    clef__kernel *k = clef__kernel_of(device, both->program, "f");
    cr_assert(k, "%s", clef_error(ctx));
    clef__kernel_free(k);
}

#define TELLS(n) NAMED "__kernel void NAME(__global int *x) { x[0] = 10 + " #n "; }\n"
Test(program, joined_codes_are_programs_of_their_own) {
    const char *all[] = {TELLS(1), TELLS(2), TELLS(1), TELLS(3)};
    cr_assert_eq(told_by_code(TELLS(3)), 13); /* before: no part of what is joined */
    join(all, 4, 0);
    cr_assert_eq(clef_counters_get(ctx).kernels_built, 2u);
    const int told[] = {11, 12, 11, 13};
    for (int i = 0; i < 4; i++) cr_assert_eq(told_by_code(all[i]), told[i]);
    join(all, 4, 0);
    cr_assert_eq(clef_counters_get(ctx).kernels_built, 2u, "all of them were known");
    cr_assert_eq(told_by_code(TELLS(4)), 14);
    cr_assert_eq(clef_counters_get(ctx).kernels_built, 3u);
}

Test(program, a_joined_code_that_does_not_compile_hurts_no_other) {
    const char *all[] = {TELLS(1), TELLS(nonesuch), TELLS(2)};
    join(all, 3, 3); /* but looked for when they are wanted */
    cr_assert_eq(clef_error_status(ctx), CLEF_OK);
    cr_assert_eq(told_by_code(all[0]), 11);
    cr_assert_eq(told_by_code(all[2]), 12);
    cr_assert_eq(told_by_code(all[1]), -1);
    cr_assert_eq(clef_error_status(ctx), CLEF_BUILD);
    clef_clear_error(ctx);
}

Test(program, more_than_one_program_of_joined_codes) {
    enum { MANY = 37 };
    char text[MANY][128];
    const char *all[MANY];
    for (int i = 0; i < MANY; i++) {
        snprintf(text[i], sizeof text[i], NAMED "__kernel void NAME(__global int *x) { x[0] = %d; }\n", i);
        all[i] = text[i];
    }
    join(all, MANY, 0);
    cr_assert_eq(clef_counters_get(ctx).kernels_built, 3u);
    for (int i = 0; i < MANY; i++) cr_assert_eq(told_by_code(all[i]), i);
    cr_assert_eq(clef_counters_get(ctx).kernels_built, 3u);
}

/* ---- threads ---- */
enum { THREADS = 4, PROGRAMS = 3 };
static const char *sources[PROGRAMS];

static void *builder(void *user) {
    static _Thread_local int made;
    (void)user;
    for (int i = 0; i < PROGRAMS; i++) {
        clef__kernel *k = clef__kernel_new(device, sources[i], "", "f");
        made += k != NULL;
        clef__kernel_free(k);
    }
    return (void *)(intptr_t)made;
}

/* Four threads want the same programs at the same time: each is compiled once, and one failure reaches all. */
Test(program, several_threads) {
    sources[0] = "__kernel void f(__global int *x) { x[0] = 1; }";
    sources[1] = "__kernel void f(__global int *x) { x[0] = nonesuch; }";
    sources[2] = "__kernel void f(__global int *x) { x[0] = 3; }";
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, builder, NULL);
    for (int i = 0; i < THREADS; i++) {
        void *made;
        pthread_join(threads[i], &made);
        cr_assert_eq((intptr_t)made, PROGRAMS - 1);
    }
    cr_assert_eq(clef_counters_get(ctx).kernels_built, 2u);
    cr_assert_eq(clef_error_status(ctx), CLEF_BUILD);
}

static void *worker(void *user) {
    clef_context *own = clef_open(&(clef_options){.cache_dir = ""});
    bool good = own != NULL;
    (void)user;
    for (int i = 0; good && i < 20; i++) good = add_works(clef__device_at(own, 0), add_source);
    clef_close(own);
    return (void *)(intptr_t)good;
}

Test(program, a_context_per_thread) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, worker, NULL);
    for (int i = 0; i < THREADS; i++) {
        void *good;
        pthread_join(threads[i], &good);
        cr_assert((intptr_t)good);
    }
}

/* ---- tracing ---- */
static char *slurp(const char *path) {
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    if (file) {
        text[fread(text, 1, (1 << 20) - 1, file)] = 0;
        fclose(file);
    }
    return text;
}

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) n++;
    return n;
}

Test(trace, chrome_format) {
    char path[300], second[310];
    const char *dir = temporary_dir();
    snprintf(path, sizeof path, "%s/trace.json", dir);
    snprintf(second, sizeof second, "%s.2", path);
    setenv("CLEF_TRACE", path, 1);
    setup();
    for (int i = 0; i < 7; i++) cr_assert(add_works(device, add_source));
    clef__kernel *k = clef__kernel_new(device, add_source, "", "add");
    clef__buffer *b = clef__buffer_new(device, 100);
    float y = 1;
    clef__kernel_set_buffer(k, 0, b);
    clef__kernel_set(k, 1, 4, &y);
    for (int i = 0; i < 5000; i++) clef__kernel_launch(k, one, one, "many \"quoted\"");
    clef__kernel_free(k);
    clef__buffer_release(b);
    teardown();
    char *text = slurp(path);
    cr_assert_eq(text[0], '{');
    cr_assert_eq(count(text, "\"name\":\"add\""), 7 + 1, "7 launches and one compilation");
    cr_assert_eq(count(text, "\"name\":\"read\""), 7);
    cr_assert_eq(count(text, "many \\\"quoted\\\""), 5000);
    cr_assert_eq(count(text, "{"), count(text, "}"));
    cr_assert_eq(strcmp(text + strlen(text) - 3, "]}\n"), 0);
    free(text);
    setup(); /* a second context of the process writes beside it */
    teardown();
    cr_assert_eq(access(second, R_OK), 0);
    remove_dir(dir);
}

/* Events of a device whose program is not waited for must not keep out those of another. */
Test(trace, many_events_of_several_devices, .timeout = 300) {
    static char path[256];
    const char *dir = temporary_dir();
    snprintf(path, sizeof path, "%s/trace.json", dir);
    setenv("CLEF_TRACE", path, 1);
    clef_context *both = clef_open(&(clef_options){.device = "0:1+1", .cache_dir = ""});
    if (!both) cr_skip_test("%s", clef_error(NULL));
    for (int i = 0; i < 2; i++) {
        clef__device *d = clef__device_at(both, i);
        clef__kernel *k = clef__kernel_new(d, add_source, "", "add");
        clef__buffer *b = clef__buffer_new(d, 100);
        float y = 1;
        clef__kernel_set_buffer(k, 0, b);
        clef__kernel_set(k, 1, 4, &y);
        for (int n = 0; n < (i ? 500 : 4500); n++) clef__kernel_launch(k, one, one, i ? "second" : "first");
        clef__kernel_free(k);
        clef__buffer_release(b);
    }
    pid_t child = fork();
    if (child == 0) {
        clef_close(both);
        exit(0); /* with what it has of the file in its buffers */
    }
    waitpid(child, NULL, 0);
    clef_close(both);
    char *text = slurp(path);
    cr_expect_eq(count(text, "\"first\""), 4500, "%d", count(text, "\"first\""));
    cr_expect_eq(count(text, "\"second\""), 500, "%d", count(text, "\"second\""));
    cr_expect_eq(count(text, "{"), count(text, "}"));
    cr_expect_eq(count(text, "displayTimeUnit"), 1);
    free(text);
    remove_dir(dir);
}

Test(trace, a_file_that_cannot_be_written_is_an_error) {
    setenv("CLEF_TRACE", "/dev/null/none/trace", 1);
    cr_assert_null(clef_open(&(clef_options){.cache_dir = ""}));
    cr_expect_eq(clef_error_status(NULL), CLEF_IO);
    cr_expect(strstr(clef_error(NULL), "the trace /dev/null/none/trace (CLEF_TRACE) cannot be written: Not a directory"), "%s",
              clef_error(NULL));
}

Test(trace, a_full_disk_is_told_of) {
    if (access("/dev/full", W_OK) != 0) cr_skip_test("/dev/full is missing");
    memory_log log = {0};
    setenv("CLEF_TRACE", "/dev/full", 1);
    clef_context *traced = clef_open(&(clef_options){.cache_dir = "", .log = remember, .log_user = &log});
    if (!traced) cr_skip_test("%s", clef_error(NULL));
    clef_close(traced);
    cr_expect(strstr(log.last, "trace: /dev/full is not whole: No space left on device"), "%s", log.all);
    cr_expect_eq(clef_error_status(NULL), CLEF_IO);
}

/* What a program needs of common.h follows from the words of its options, its text and its file. */
Test(uses, by_words) {
    cr_expect_eq(clef__uses(NULL, "", "-DDT=f32 -DW=16"), USES_4 | USES_16);
    cr_expect_eq(clef__uses(NULL, "#define CALLS_MATH", "-DDT=bf16 -DW=8"), USES_4 | USES_8 | USES_HALVES | USES_MATH);
    cr_expect_eq(clef__uses("\n#define W 8\nx * y", NULL, ""), USES_8);
    cr_expect_eq(clef__uses("#define W 8\nROUND_f16(W, ROUND_bf16(W, v))", NULL, ""), USES_8 | USES_HALVES);
    cr_expect_eq(clef__uses("expand(f32), long at = 1e2f + 0x1p2f;", NULL, ""), USES_4 | USES_8 | USES_16);
    cr_expect_eq(clef__uses("#define W 4\nLOAD(f64, 4, p, 0)", NULL, ""), USES_4 | USES_DOUBLE | USES_LONG);
    cr_expect_eq(clef__uses("#define W 4\nf(1.0)", NULL, ""), USES_4 | USES_DOUBLE);
    cr_expect_eq(clef__uses("#define W 4\nf(1e3) + M_PI", NULL, ""), USES_4 | USES_DOUBLE);
    cr_expect_eq(clef__uses("#define W 16\nconst long16 a; STORE(u8, exp(x))", NULL, ""),
                 USES_16 | USES_LONG | USES_BYTES | USES_MATH);
    cr_expect_eq(clef__uses("#define W 4\nRETURN_GELU(x)", NULL, ""), USES_4 | USES_MATH);
}
