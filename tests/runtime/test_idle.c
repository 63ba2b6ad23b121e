/* Programs that nobody holds: so many stay, those that were held last; held ones and their numbers stay whatever comes.
   ctest: plain */
#include "runtime_support.h"
#include "support/joined.h"
#include <criterion/criterion.h>

enum { KEPT = 3 };
static clef_context *ctx;
static clef__device *device;

static void open_with(const clef_options *options) {
    ctx = clef_open(options);
    if (!ctx && clef_error_status(NULL) == CLEF_NO_DEVICE) cr_skip_test("%s", clef_error(NULL));
    cr_assert_not_null(ctx, "%s", clef_error(NULL));
    device = clef__device_at(ctx, 0);
}
static void setup(void) {
    unsetenv("CLEF_IDLE_PROGRAMS");
    open_with(&(clef_options){.cache_dir = "", .idle_programs = KEPT, .isolated = true});
}
static void teardown(void) { clef_close(ctx); }
TestSuite(idle, .init = setup, .fini = teardown);

static uint64_t built(void) { return clef_counters_get(ctx).kernels_built; }
static uint64_t in_memory(void) { return clef_counters_get(ctx).programs; }
static uint64_t released(void) { return clef_counters_get(ctx).programs_released; }

/* A kernel that tells n. */
static clef__kernel *kernel_of(int n) {
    char text[96];
    snprintf(text, sizeof text, "__kernel void f(__global int *x) { x[0] = %d; }\n", n);
    return clef__kernel_new(device, text, "", "f");
}

static int told_by(clef__kernel *k) {
    int told = -1;
    clef__buffer *x = clef__buffer_new(device, sizeof told);
    cr_assert(k, "%s", clef_error(ctx));
    cr_assert_eq(clef__kernel_set_buffer(k, 0, x), CLEF_OK);
    cr_assert_eq(clef__kernel_launch(k, (size_t[]){1, 1, 1}, (size_t[]){1, 1, 1}, "f"), CLEF_OK);
    cr_assert_eq(clef__buffer_read(x, 0, &told, sizeof told), CLEF_OK);
    clef__buffer_release(x);
    return told;
}

static void expect_told(int n) {
    clef__kernel *k = kernel_of(n);
    cr_expect_eq(told_by(k), n);
    clef__kernel_free(k);
}

Test(idle, so_many_stay) {
    for (int i = 0; i < 10; i++) {
        expect_told(i);
        cr_expect_eq(in_memory(), (uint64_t)(i < KEPT ? i + 1 : KEPT));
    }
    cr_expect_eq(released(), 10u - KEPT);
    cr_expect_eq(built(), 10u);
    for (int i = 10 - KEPT; i < 10; i++) expect_told(i);
    cr_expect_eq(built(), 10u, "they are in memory");
    expect_told(0);
    cr_expect_eq(built(), 11u, "it is compiled again");
}

/* The order is that of the last use. */
Test(idle, those_used_last_stay) {
    for (int i = 0; i < KEPT; i++) expect_told(i);
    expect_told(0);
    expect_told(KEPT); /* in the place of 1 */
    uint64_t before = built();
    expect_told(0);
    cr_expect_eq(built(), before);
    expect_told(1);
    cr_expect_eq(built(), before + 1);
}

Test(idle, what_is_held_stays) {
    clef__kernel *held[5], *again = NULL;
    for (int i = 0; i < 5; i++) held[i] = kernel_of(i);
    for (int i = 5; i < 15; i++) expect_told(i);
    cr_expect_eq(in_memory(), 5u + KEPT);
    for (int i = 0; i < 5; i++) cr_expect_eq(told_by(held[i]), i);
    again = kernel_of(2);
    clef__kernel_free(held[2]);
    for (int i = 15; i < 20; i++) expect_told(i);
    cr_expect_eq(told_by(again), 2, "of two kernels one is left");
    cr_expect_eq(built(), 20u);
    clef__kernel_free(again);
    for (int i = 0; i < 5; i++)
        if (i != 2) clef__kernel_free(held[i]);
    cr_expect_eq(in_memory(), (uint64_t)KEPT);
}

/* A kernel may be freed while it is queued. */
Test(idle, what_is_queued_runs) {
    clef_close(ctx);
    open_with(&(clef_options){.cache_dir = "", .idle_programs = -1, .isolated = true});
    static const char text[] =
        "__kernel void f(__global int *x) { for (int i = 0; i < 100000; i++) x[0] = x[0] * 3 + 1; x[0] = 7; }\n";
    int told = 0;
    clef__kernel *k = clef__kernel_new(device, text, "", "f");
    clef__buffer *x = clef__buffer_new(device, sizeof told);
    cr_assert_eq(clef__kernel_set_buffer(k, 0, x), CLEF_OK);
    for (int i = 0; i < 20; i++) cr_assert_eq(clef__kernel_launch(k, (size_t[]){1, 1, 1}, (size_t[]){1, 1, 1}, "f"), CLEF_OK);
    clef__kernel_free(k);
    cr_expect_eq(in_memory(), 0u);
    cr_assert_eq(clef__buffer_read(x, 0, &told, sizeof told), CLEF_OK);
    cr_expect_eq(told, 7);
    clef__buffer_release(x);
}

/* ---- how many ---- */

static int most_idle(const char *variable, int option) {
    if (variable) setenv("CLEF_IDLE_PROGRAMS", variable, 1);
    else unsetenv("CLEF_IDLE_PROGRAMS");
    clef_context *c = clef_open(&(clef_options){.cache_dir = "", .idle_programs = option, .isolated = true});
    int most = c ? clef__device_at(c, 0)->programs->idle.most : -1;
    clef_close(c);
    return most;
}

Test(idle, option_and_variable) {
    cr_expect_eq(most_idle(NULL, 0), 256);
    cr_expect_eq(most_idle("", 0), 256);
    cr_expect_eq(most_idle("5", 0), 5);
    cr_expect_eq(most_idle("0", 0), 0);
    cr_expect_eq(most_idle("5", 9), 9);
    cr_expect_eq(most_idle("5", -1), 0);
    for (int i = 0; i < 4; i++) {
        cr_expect_eq(most_idle(((const char *[]){"-1", "some", "3x", "1000000"})[i], 0), -1);
        cr_expect_eq(clef_error_status(NULL), CLEF_INVALID);
        cr_expect_not_null(strstr(clef_error(NULL), "CLEF_IDLE_PROGRAMS"), "%s", clef_error(NULL));
    }
}

/* ---- sources that do not compile ---- */

Test(idle, failures_are_forgotten_too) {
    char text[96];
    device->programs->failed.most = KEPT;
    for (int i = 0; i < 4 * KEPT; i++) {
        snprintf(text, sizeof text, "__kernel void f(__global int *x) { x[%d] = nonesuch; }\n", i);
        cr_expect_null(clef__kernel_new(device, text, "", "f"));
        cr_expect_eq(clef_error_status(ctx), CLEF_BUILD);
        clef_clear_error(ctx);
        cr_expect_eq(device->programs->failed.n, i < KEPT ? i + 1 : KEPT);
        cr_expect_eq(device->programs->idle.n, 0);
    }
    cr_expect_eq(in_memory(), 0u);
    cr_expect_eq(released(), 0u, "there was nothing of the driver's");
}

/* Else whoever looks at no error would have it built for ever. */
Test(idle, a_failure_is_known_though_no_program_stays) {
    clef_close(ctx);
    open_with(&(clef_options){.cache_dir = "", .idle_programs = -1, .isolated = true});
    static const char text[] = "__kernel void f(__global int *x) { x[0] = nonesuch; }\n";
    cr_expect_null(clef__kernel_new(device, text, "", "f"));
    clef__program *failed = device->programs->failed.newest;
    cr_assert_not_null(failed);
    cr_expect_eq(failed->state, CLEF__FAILED);
    cr_expect_null(clef__kernel_new(device, text, "", "f"));
    cr_expect_eq(device->programs->failed.newest, failed);
    cr_expect_eq(device->programs->failed.n, 1);
    expect_told(1);
    cr_expect_eq(in_memory(), 0u);
}

/* ---- codes ---- */

static clef__code *code_of(int n) {
    char text[128];
    snprintf(text, sizeof text, "#ifndef NAME\n#define NAME f\n#endif\n__kernel void NAME(__global int *x) { x[0] = %d; }\n", n);
    return clef__code_of(device, text, NULL, "");
}

static void expect_code(clef__code *code, int n) {
    cr_assert(clef__code_compile(device, code, "f"), "%s", clef_error(ctx));
    clef__kernel *k = clef__kernel_of(device, code->program, "f");
    cr_expect_eq(told_by(k), n);
    clef__kernel_free(k);
}

Test(idle, a_code_holds_its_program) {
    clef__code *code = code_of(100), *same = code_of(100);
    cr_assert_eq(code, same);
    expect_code(code, 100);
    clef__code_release(same);
    for (int i = 0; i < 2 * KEPT; i++) expect_told(i);
    uint64_t before = built();
    expect_code(code, 100);
    cr_expect_eq(built(), before);
    clef__code_release(code);
    cr_expect_eq(in_memory(), (uint64_t)KEPT);
    code = code_of(100);
    cr_assert_not(clef__code_claim(code), "its program is idle, and found again");
    clef__code_release(code);
    for (int i = 0; i < 2 * KEPT; i++) expect_told(i);
    before = built();
    code = code_of(100);
    cr_assert(clef__code_claim(code), "its program is gone");
    expect_code(code, 100);
    cr_expect_eq(built(), before + 1);
    clef__code_release(code);
    clef__code_release(NULL);
}

Test(idle, a_thousand_codes_stay) {
    enum { CODES = 3000, STAY = 1024 };
    clef__code *held = code_of(0);
    uint64_t number = held->number;
    for (int i = 1; i < CODES; i++) clef__code_release(code_of(i));
    cr_expect_eq(device->codes.n, STAY + 1u);
    cr_expect_eq(code_of(0), held);
    for (int i = 1; i < CODES; i++) {
        clef__code *code = code_of(i);
        cr_assert(code != held && code->number > number, "numbers of codes are not used again");
        clef__code_release(code);
    }
    cr_expect_eq(device->codes.n, STAY + 1u);
}

/* ---- joined programs ---- */

enum { PARTS = 5 };
static void join(clef__code *part[PARTS]) {
    for (int i = 0; i < PARTS; i++) part[i] = code_of(200 + i);
    compile_joined(device, part, PARTS, "f");
}

Test(idle, parts_go_together) {
    clef__code *part[PARTS];
    join(part);
    cr_expect_eq(built(), 1u);
    for (int i = 1; i < PARTS; i++) clef__code_release(part[i]);
    for (int i = 0; i < 2 * KEPT; i++) expect_told(i);
    cr_expect_eq(in_memory(), 1u + KEPT, "while one part is held all are there");
    join(part);
    cr_expect_eq(built(), 1u + 2 * KEPT);
    for (int i = 0; i < PARTS; i++) expect_code(part[i], 200 + i);
    clef__code_release(part[0]);
    for (int i = 0; i < PARTS; i++) clef__code_release(part[i]);
    for (int i = 0; i < KEPT; i++) expect_told(i + 50);
    cr_expect_eq(in_memory(), (uint64_t)KEPT);
    uint64_t before = built();
    join(part);
    cr_expect_eq(built(), before + 1, "they are compiled together again");
    for (int i = 0; i < PARTS; i++) expect_code(part[i], 200 + i);
    for (int i = 0; i < PARTS; i++) clef__code_release(part[i]);
}

/* ---- the cache on disk ---- */

Test(idle, loaded_again_from_disk) {
    const char *dir = temporary_dir();
    setenv("CLEF_CACHE", "force", 1);
    clef_close(ctx);
    open_with(&(clef_options){.cache_dir = dir, .idle_programs = -1, .isolated = true});
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 4; i++) expect_told(i);
    cr_expect_eq(in_memory(), 0u);
    cr_expect_eq(built(), 4u);
    cr_expect_eq(clef_counters_get(ctx).kernels_from_cache, 8u);
    remove_dir(dir);
}
