/* CLBlast beneath the plans: loaded or not, faults as one line, its pace, its place in a trace.
   ctest: cost=20 */
#include "runtime_support.h"
#include <criterion/criterion.h>
#include <math.h>

static clef_context *ctx;
static void open_with(const char *library) {
    if (library) setenv("CLEF_CLBLAST", library, 1);
    else unsetenv("CLEF_CLBLAST");
    ctx = clef_open(NULL);
    if (!ctx && clef_error_status(NULL) == CLEF_NO_DEVICE) cr_skip_test("%s", clef_error(NULL));
    cr_assert(ctx, "%s", clef_error(NULL));
}
static void open_or_skip(void) {
    const char *why;
    open_with(getenv("CLEF_CLBLAST"));
    if (!clef__blas_there(ctx, &why)) cr_skip_test("no CLBlast (Debian: libclblast1): %s", why ? why : "CLEF_CLBLAST=0");
}
static clef__device *device(void) { return clef__device_at(ctx, 0); }

enum { N = 16 };
static const clef__blas_matrix dense = {.ld = N, .step = N * N};
static clef__blas_product square(void) {
    return (clef__blas_product){.dtype = CLEF_F32, .m = N, .n = N, .k = N, .batch = 1, .matrix = {dense, dense, dense}};
}

/* All elements 1 and 2, so that each of their product is 2·N. */
static clef_status multiply(const clef__blas_product *p, int64_t offset, float *result) {
    float one[N * N], two[N * N];
    for (int i = 0; i < N * N; i++) one[i] = 1, two[i] = 2;
    clef__buffer *x[3];
    for (int i = 0; i < 3; i++) {
        x[i] = clef__buffer_new(device(), sizeof one);
        clef__buffer_write(x[i], 0, i == 0 ? one : two, sizeof one);
    }
    clef_status status = clef__blas_multiply(device(), p, x, (int64_t[]){offset, 0, 0}, "a test");
    if (status == CLEF_OK) status = clef__buffer_read(x[2], 0, result, sizeof one);
    for (int i = 0; i < 3; i++) clef__buffer_release(x[i]);
    return status;
}

Test(blas, absent) {
    static const struct {
        const char *library, *why;
    } all[] = {{"0", NULL}, {"/none.so", "/none.so"}, {CLEF_TEST_SOURCE "/README.md", "README.md"}, {"libc.so.6", "CLBlastSgemm"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *why = "";
        open_with(all[i].library);
        for (int again = 0; again < 2; again++) cr_assert_not(clef__blas_there(ctx, &why), "%s", all[i].library);
        cr_expect(all[i].why ? why && strstr(why, all[i].why) : !why, "%s: %s", all[i].library, why);
        cr_expect_str_empty(clef_error(ctx));
        clef_close(ctx);
    }
}

/* Contexts after one another, and two at a time: what the library holds goes with the last. */
Test(blas, contexts_come_and_go) {
    for (int i = 0; i < 2; i++) {
        float result[N * N];
        clef__blas_product p = square();
        open_or_skip();
        clef_context *other = ctx;
        open_or_skip();
        cr_assert_eq(multiply(&p, 0, result), CLEF_OK, "%s", clef_error(ctx));
        cr_expect_eq(result[N * N - 1], 2 * N);
        clef_close(ctx);
        ctx = other;
        p.adds = true;
        cr_assert_eq(multiply(&p, 0, result), CLEF_OK, "%s", clef_error(ctx));
        cr_expect_eq(result[N * N - 1], 2 * N + 2);
        clef_close(ctx);
    }
}

Test(blas, faults_are_one_line) {
    float result[N * N];
    clef__blas_product p = square();
    open_or_skip();
    p.matrix[0].ld = 1;
    cr_expect_eq(multiply(&p, 0, result), CLEF_DEVICE);
    cr_expect(strstr(clef_error(ctx), "a test: CLBlast failed") && strstr(clef_error(ctx), "(-1016)") &&
                  strstr(clef_error(ctx), "f32 1 × [16,16] · [16,16]") && strstr(clef_error(ctx), "CLEF_CLBLAST=0"),
              "%s", clef_error(ctx));
    clef_clear_error(ctx);
    p = square();
    cr_expect_eq(multiply(&p, 1, result), CLEF_DEVICE, "the buffer ends before the matrix does");
    clef_clear_error(ctx);
    cr_expect_eq(multiply(&p, INT32_MAX - N, result), CLEF_UNSUPPORTED);
    cr_expect(strstr(clef_error(ctx), "2^31"), "%s", clef_error(ctx));
    clef_clear_error(ctx);
    cr_expect_eq(multiply(&p, 0, result), CLEF_OK);
    clef_close(ctx);
}

Test(blas, its_pace) {
    clef__blas_product p = square();
    open_or_skip();
    clef_memory_info before = clef_memory(ctx);
    cr_expect_eq(clef__blas_pace(device(), &p), 0);
    clef__blas_measure(device(), &p);
    double pace = clef__blas_pace(device(), &p);
    cr_expect(pace > 0 && pace < 1e-6, "%g seconds for each operation", pace);
    p.batch = 2;
    cr_expect_eq(clef__blas_pace(device(), &p), 0, "another routine");
    cr_expect_eq(clef_memory(ctx).buffers, before.buffers);
    cr_expect_str_empty(clef_error(ctx));
    clef_close(ctx);
}

Test(blas, a_trace_shows_it) {
    char path[512], text[8192] = "";
    const char *dir = temporary_dir();
    float result[N * N];
    clef__blas_product p = square();
    snprintf(path, sizeof path, "%s/trace.json", dir);
    setenv("CLEF_TRACE", path, 1);
    open_or_skip();
    for (int i = 0; i < 3; i++) cr_assert_eq(multiply(&p, 0, result), CLEF_OK, "%s", clef_error(ctx));
    clef_close(ctx);
    FILE *file = fopen(path, "r");
    cr_assert(file && fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    remove_dir(dir);
    int rows = 0;
    for (const char *at = text; (at = strstr(at, "\"a test\"")); at++) rows++;
    cr_expect_eq(rows, 3, "%s", text);
    cr_expect_not(strstr(text, "\"dur\":-"), "%s", text);
}
