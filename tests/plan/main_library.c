/* CLBlast as a candidate of tuning, with another library in its place that errs, fails, dawdles or wins: what is kept, what is
   tried at all, what a fault looks like.  A plain program, so that it also runs under sanitizers. */
/* ctest: cost=20 plain */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "plan/run/run.h"
#include "support/io_files.h"
#include "support/plain.h"
#include <dlfcn.h>
#include <math.h>
#include <time.h>

enum { EDGE = 384, BATCH = 2 };
static const double ample = 1e9, too_little = 29; /* seconds: for whatever a loaded machine takes; for a library's first call */
static clef_context *ctx;
static const char *dir;
static long countdown; /* allocations until one fails; 0: none does */
static bool struck;

/* ---- the clock: the library's hours are not waited for, but added to the time ---- */
static const long *hours; /* in seconds; NULL: none */
int clock_gettime(clockid_t clock, struct timespec *now) {
    __typeof__(&clock_gettime) real = (__typeof__(real))dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, now);
    if (hours) now->tv_sec += *hours;
    return status;
}

/* ---- the library ---- */
static bool is_loaded(void) {
    void *library = dlopen(CLEF_TEST_FAKE_CLBLAST, RTLD_NOW | RTLD_NOLOAD);
    if (library) dlclose(library);
    return library;
}

static int *counter(const char *name) {
    static int none;
    void *library = dlopen(CLEF_TEST_FAKE_CLBLAST, RTLD_NOW | RTLD_NOLOAD);
    int *found = library ? dlsym(library, name) : NULL;
    return found ? found : &none;
}

static void behave(const char *how) {
    setenv("FAKE_CLBLAST", how, 1);
    *counter("fake_calls") = 0;
}

/* ---- work ---- */
static clef_tensor *ones(clef_shape shape) {
    static float one[BATCH * EDGE * EDGE];
    for (int i = 0; i < BATCH * EDGE * EDGE; i++) one[i] = 1;
    return clef_from_host(ctx, shape, CLEF_F32, one);
}
static clef_tensor *product(void) { return clef_matmul(ones(CLEF_SHAPE(EDGE, EDGE)), ones(CLEF_SHAPE(EDGE, EDGE))); }
static clef_tensor *batch(void) { return clef_matmul(ones(CLEF_SHAPE(BATCH, EDGE, EDGE)), ones(CLEF_SHAPE(BATCH, EDGE, EDGE))); }
static clef_status work(clef_context *c, void *user) {
    (void)c;
    clef_status status = clef_eval(product());
    return user || status != CLEF_OK ? status : clef_eval(batch());
}
static bool is_right(void) { return clef_item(clef_mean(product(), NULL, 0, false)) == EDGE; }

static void reopen(const char *library) {
    clef_close(ctx);
    setenv("CLEF_CLBLAST", library, 1);
    ctx = clef_open(&(clef_options){.cache_dir = dir});
}

static clef_tune_result tune_within(double budget, bool one) {
    clef_tune_result r;
    EXPECT(clef_tune(ctx, &(clef_tune_options){.work = work, .user = one ? &r : NULL, .budget = budget, .again = true}, &r) ==
           CLEF_OK);
    EXPECT(clef_error_status(ctx) == CLEF_OK && !r.no_library);
    return r;
}

static clef_tune_result tune(bool one) {
    clef_tune_result r = tune_within(ample, one);
    EXPECT(r.tuned == (one ? 1 : 2));
    return r;
}

static bool kept(void) {
    io_bytes file = io_slurp(io_path(dir, "tuning.jsonl"));
    file.data[file.size] = 0;
    bool there = strstr((char *)file.data, "\"library\":1");
    free(file.data);
    return there;
}

/* ---- what is tried ---- */
static void not_before_it_is_wanted(void) {
    EXPECT(is_right());
    tune_within(too_little, false);
    EXPECT(!is_loaded());
}

static void wrong_numbers(void) {
    behave("wrong");
    EXPECT(tune(false).wrong == 2);
    EXPECT(!kept() && is_right());
}

/* Each routine's pace is asked for once, and found to be hopeless. */
static void too_slow(void) {
    void *library = dlopen(CLEF_TEST_FAKE_CLBLAST, RTLD_NOW);
    EXPECT(library && (hours = dlsym(library, "fake_seconds")));
    reopen(CLEF_TEST_FAKE_CLBLAST);
    behave("slow");
    EXPECT(tune(true).wrong == 0);
    EXPECT(*counter("fake_calls") == 2 && !kept());
    tune(true);
    EXPECT(*counter("fake_calls") == 2);
    hours = NULL;
    dlclose(library);
}

static void failing(void) {
    reopen(CLEF_TEST_FAKE_CLBLAST);
    behave("fail");
    tune(true);
    EXPECT(*counter("fake_calls") == 1 && !kept());
    tune(true);
    EXPECT(*counter("fake_calls") == 1 && is_right());
}

static void winning(void) {
    reopen(CLEF_TEST_FAKE_CLBLAST);
    behave("fast");
    EXPECT(tune(true).improved == 1);
    EXPECT(kept());
    behave("");
    EXPECT(is_right() && *counter("fake_calls") == 1);
    reopen("0");
    EXPECT(is_right() && *counter("fake_calls") == 1);
}

/* ---- faults ---- */
static void a_fault_is_one_line(void) {
    reopen(CLEF_TEST_FAKE_CLBLAST);
    behave("fail");
    EXPECT(isnan(clef_item(clef_mean(product(), NULL, 0, false))));
    EXPECT(clef_error_status(ctx) == CLEF_DEVICE && strstr(clef_error(ctx), "matmul: CLBlast failed with its own status (-2039)"));
    EXPECT(strstr(clef_error(ctx), "[384,384] · [384,384]"));
    clef_clear_error(ctx);
    clef_end_step(ctx);
    behave("");
    EXPECT(is_right());
}

static bool fails(void) { return countdown > 0 && --countdown == 0 && (struck = true); }
static void *take(void *user, size_t bytes) { return (void)user, fails() ? NULL : malloc(bytes); }
static void *retake(void *user, void *old, size_t bytes) { return (void)user, fails() ? NULL : realloc(old, bytes); }
static void drop(void *user, void *old) { (void)user, free(old); }

/* While a plan with its products is made and run. */
static void no_host_memory(void) {
    struck = true;
    for (long n = 1; struck && !io_failures; n++) {
        clef__plans_forget(ctx);
        struck = false;
        countdown = n;
        bool right = is_right();
        countdown = 0;
        EXPECT(right ? clef_error_status(ctx) == CLEF_OK : clef_error_status(ctx) != CLEF_OK);
        clef_clear_error(ctx);
        clef_end_step(ctx);
    }
    EXPECT(is_right());
}

static void the_last_context_lets_go(void) {
    clef_context *first = ctx;
    *counter("fake_clears") = 0;
    ctx = NULL;
    reopen(CLEF_TEST_FAKE_CLBLAST);
    EXPECT(is_right());
    clef_close(ctx);
    EXPECT(*counter("fake_clears") == 0);
    clef_close(first);
    EXPECT(*counter("fake_clears") == 1);
    ctx = NULL;
}

int main(void) {
    unsetenv("CLEF_TUNING");
    unsetenv("CLEF_CACHE");
    setenv("CLEF_COMPILE_THREADS", "1", 1); /* allocations are counted without a lock */
    clef_set_allocator(&(clef_allocator){take, retake, drop, NULL});
    dir = io_scratch();
    reopen(CLEF_TEST_FAKE_CLBLAST);
    if (!ctx) return without_context();
    not_before_it_is_wanted();
    wrong_numbers();
    too_slow();
    failing();
    winning();
    a_fault_is_one_line();
    no_host_memory();
    the_last_context_lets_go();
    io_remove(dir);
    printf("%d failures\n", io_failures);
    return io_failures != 0;
}
