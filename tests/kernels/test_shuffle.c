/* What work-groups find of rows, joined by shuffles (cl/shuffle.h) with local memory in their place, on whatever device there is:
   whole numbers exactly, softmax and norms against f64, NaN and infinities; and the probe that a device's own have to pass.  With
   CLEF_TEST_SHUFFLE set, by the device's own shuffles. ctest: plain */
#include "plan/tuning_support.h"
#include "runtime/runtime.h"
#include "support/exact.h"
#include "support/numbers.h"

static clef_context *ctx;
static void open_device(void) {
    bool own = getenv("CLEF_TEST_SHUFFLE") != NULL;
    if (!own) setenv("CLEF_SHUFFLE", "emulated", 1);
    ctx = open_as_gpu();
    if (own && clef__device_shuffle(clef__device_at(ctx, 0)) == CLEF__NO_SHUFFLE) cr_skip_test("shuffles that kernels can reach");
}
static void close_device(void) { close_clean(ctx); }
TestSuite(shuffle, .init = open_device, .fini = close_device);

/* Rows of a small team and of a large one, of lengths that are no multiples of it. */
static const int64_t lengths[] = {67, 131, 4503};
enum { ROWS = 3, LENGTHS = sizeof lengths / sizeof *lengths };

static double largest(const double *x, int64_t n) {
    double top = -INFINITY;
    for (int64_t i = 0; i < n; i++) top = fmax(top, x[i]);
    return top;
}

static void check_whole(int64_t n, clef_dtype dtype) {
    array x = whole_array(CLEF_SHAPE(ROWS, n), 1, 50), sum = array_new(CLEF_SHAPE(ROWS)), top = array_new(CLEF_SHAPE(ROWS));
    for (int64_t i = 0; i < ROWS * n; i++) sum.v[i / n] += x.v[i];
    for (int r = 0; r < ROWS; r++) top.v[r] = largest(x.v + r * n, n);
    clef_tensor *t = clef_keep(to_device(ctx, x, dtype));
    expect_equal(clef_sum(t, (int[]){1}, 1, false), sum, clef_dtype_name(dtype));
    expect_equal(clef_max(t, (int[]){1}, 1, false), top, clef_dtype_name(dtype));
    clef_release(t);
    free(x.v), free(sum.v), free(top.v);
    clef_end_step(ctx);
}

Test(shuffle, whole_numbers_are_exact) {
    for (int i = 0; i < LENGTHS; i++) {
        check_whole(lengths[i], CLEF_F32);
        check_whole(lengths[i], CLEF_I32);
        if (has_f64(ctx)) check_whole(lengths[i], CLEF_F64);
    }
}

static void expect_near(clef_tensor *t, array want, double bound, const char *what) {
    int64_t n = clef_shape_numel(want.shape);
    array y = from_device(t);
    for (int64_t i = 0; i < n; i++)
        cr_assert(fabs(y.v[i] - want.v[i]) <= bound * (1 + fabs(want.v[i])), "%s: %g, not %g", what, y.v[i], want.v[i]);
    free(y.v);
}

/* Every member of a team writes with what all of them found. */
static void check_rows(int64_t n) {
    array x = whole_array(CLEF_SHAPE(ROWS, n), 2, 8), soft = array_new(x.shape), norm = array_new(x.shape);
    for (int r = 0; r < ROWS; r++) {
        const double *row = x.v + r * n;
        double top = largest(row, n), sum = 0, mean = 0, spread = 0;
        for (int64_t i = 0; i < n; i++) sum += exp(row[i] - top), mean += row[i] / (double)n;
        for (int64_t i = 0; i < n; i++) spread += (row[i] - mean) * (row[i] - mean) / (double)n;
        for (int64_t i = 0; i < n; i++) soft.v[r * n + i] = row[i] - top - log(sum);
        for (int64_t i = 0; i < n; i++) norm.v[r * n + i] = (row[i] - mean) / sqrt(spread + 0.5);
    }
    clef_tensor *t = clef_keep(to_device(ctx, x, CLEF_F32));
    expect_near(clef_log_softmax(t, 1), soft, 4e-6, "log_softmax");
    expect_near(clef_layer_norm(t, 1, CLEF_NONE, CLEF_NONE, 0.5), norm, 4e-6, "layer_norm");
    clef_release(t);
    free(x.v), free(soft.v), free(norm.v);
    clef_end_step(ctx);
}

Test(shuffle, all_members_have_what_was_found) {
    for (int i = 0; i < LENGTHS; i++) check_rows(lengths[i]);
}

/* Wherever it stands, that is in whatever lane. */
Test(shuffle, nan_and_infinities_come_through) {
    enum { N = 70 };
    float x[N][N];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < N * N; i++) x[i / N][i % N] = i / N == i % N ? (k ? NAN : INFINITY) : -0.0f;
        clef_tensor *t = clef_from_host(ctx, CLEF_SHAPE(N, N), CLEF_F32, x);
        array top = from_device(clef_max(t, (int[]){1}, 1, false)), sum = from_device(clef_sum(t, (int[]){1}, 1, false));
        for (int i = 0; i < N; i++)
            cr_assert(k ? isnan(top.v[i]) && isnan(sum.v[i]) : isinf(top.v[i]) && isinf(sum.v[i]), "lane %d", i);
        free(top.v), free(sum.v);
        clef_end_step(ctx);
    }
}

Test(shuffle, the_probe_sees_what_is_wrong) {
    clef__device *device = clef__device_at(ctx, 0);
    cr_expect(clef__shuffle_probe(device, ""));
    if (few_kernels()) return; /* Oclgrind tells of what the broken one reads */
    cr_expect(!clef__shuffle_probe(device, "-Dget_local_id=get_group_id"));
}
