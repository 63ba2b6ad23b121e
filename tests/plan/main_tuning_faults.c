/* clef_tune while host memory runs out: the N-th allocation fails, N = 1, 2, … until one run passes untouched.  No crash and no
   leak; what fails says so; results that were kept can be used.  A plain program, so that it also runs under sanitizers. */
/* ctest: cost=30 */
#include "clef.h"
#include "support/io_files.h"
#include "support/plain.h"

static long countdown, live; /* countdown 0: never */
static bool struck;

static bool fails(void) {
    if (countdown == 0 || --countdown > 0) return false;
    return struck = true;
}

static void *take(void *user, size_t bytes) {
    (void)user;
    void *p = fails() ? NULL : malloc(bytes);
    live += p != NULL;
    return p;
}

static void *retake(void *user, void *old, size_t bytes) {
    (void)user;
    return fails() ? NULL : realloc(old, bytes);
}

static void drop(void *user, void *old) {
    (void)user;
    live--;
    free(old);
}

static clef_tensor *product(clef_context *ctx) {
    return clef_matmul(clef_rand(ctx, CLEF_SHAPE(40, 50)), clef_rand(ctx, CLEF_SHAPE(50, 36)));
}

static clef_status work(clef_context *ctx, void *user) {
    (void)user;
    return clef_eval(product(ctx));
}

/* Two configurations, as more would take long; the rest of the search is the same again. */
static bool twice(void *user, const clef_tune_progress *p) {
    (void)user;
    return p->tried < 2;
}

static bool run(clef_context *ctx, long n) {
    clef_tune_result r;
    countdown = n;
    struck = false;
    clef_status status = clef_tune(ctx, &(clef_tune_options){.work = work, .on_progress = twice, .budget = 100, .again = true}, &r);
    countdown = 0;
    if (status != CLEF_OK && status != CLEF_INTERRUPTED && clef_error_status(ctx) == CLEF_OK)
        return printf("failed without an error\n"), false;
    clef_clear_error(ctx);
    clef_end_step(ctx);
    if (clef_eval(product(ctx)) == CLEF_OK && clef_end_step(ctx) == CLEF_OK) return true;
    return printf("does not recover: %s\n", clef_error(ctx)), false;
}

int main(void) {
    unsetenv("CLEF_TUNING");
    unsetenv("CLEF_CACHE");
    setenv("CLEF_COMPILE_THREADS", "1", 1); /* allocations are counted without a lock */
    clef_set_allocator(&(clef_allocator){take, retake, drop, NULL});
    const char *dir = io_scratch();
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = dir});
    if (!ctx) return without_context();
    clef_close(ctx);
    live = 0; /* the list of devices stays with the process */
    ctx = clef_open(&(clef_options){.cache_dir = dir});
    int runs = 0;
    bool good = run(ctx, 0);
    struck = true;
    for (long n = 1; good && struck; n += 1 + n / 16, runs++)
        if (!(good = run(ctx, n))) printf("with allocation %ld failing\n", n);
    clef_close(ctx);
    if (live) printf("%ld allocations leak\n", live);
    printf("%d failures injected: %s\n", runs, good && !live ? "all handled" : "not all handled");
    io_remove(dir);
    return !good || live;
}
