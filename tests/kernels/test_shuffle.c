/* What work-groups find of rows and columns, joined by shuffles (cl/shuffle.h) with local memory in their place, on whatever device there
   is: whole numbers exactly, softmax, norms and losses with their gradients against f64, NaN and infinities; and the probe that a
   device's own have to pass.  With CLEF_TEST_SHUFFLE set, by the device's own shuffles, in sub-groups of every size that it has.
   ctest: plain */
#include "plan/tuning_support.h"
#include "runtime/runtime.h"
#include "support/exact.h"
#include "support/numbers.h"

static clef_context *ctx;
static bool own_shuffles(void) { return getenv("CLEF_TEST_SHUFFLE") != NULL; }
static void open_device(void) {
    if (!own_shuffles()) setenv("CLEF_SHUFFLE", "emulated", 1);
    ctx = open_as_gpu();
    if (own_shuffles() && !clef__device_shuffle(clef__device_at(ctx, 0)).subgroup) cr_skip_test("shuffles that kernels can reach");
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

/* Of [outer, n, inner] the sums and maxima over n. */
typedef struct sizes {
    int64_t outer, n, inner;
} sizes;
static void find_whole(sizes s, array x, array sum, array top) {
    for (int64_t i = 0; i < s.outer * s.inner; i++) {
        const double *line = x.v + i / s.inner * s.n * s.inner + i % s.inner;
        top.v[i] = -INFINITY;
        for (int64_t k = 0; k < s.n; k++) sum.v[i] += line[k * s.inner], top.v[i] = fmax(top.v[i], line[k * s.inner]);
    }
}

/* In f64 with bits that f32 does not have. */
static void check_whole(sizes s, clef_dtype dtype) {
    clef_shape to = CLEF_SHAPE(s.outer, s.inner);
    array x = whole_array(CLEF_SHAPE(s.outer, s.n, s.inner), 1, 50), sum = array_new(to), top = array_new(to);
    for (int64_t i = 0; i < s.outer * s.n * s.inner; i++) x.v[i] *= dtype == CLEF_F64 ? 1 + 0x1p-30 : 1;
    find_whole(s, x, sum, top);
    clef_tensor *t = clef_keep(to_device(ctx, x, dtype));
    expect_equal(clef_sum(t, (int[]){1}, 1, false), sum, clef_dtype_name(dtype));
    expect_equal(clef_max(t, (int[]){1}, 1, false), top, clef_dtype_name(dtype));
    clef_release(t);
    free(x.v), free(sum.v), free(top.v);
    clef_end_step(ctx);
}

Test(shuffle, whole_numbers_are_exact) {
    const sizes small = {ROWS, 131, 1};
    for (int i = 0; i < LENGTHS; i++) check_whole((sizes){ROWS, lengths[i], 1}, CLEF_F32);
    check_whole(small, CLEF_I32);
    check_whole(small, CLEF_I64);
    if (has_f64(ctx)) check_whole(small, CLEF_F64);
}

/* Fewer side by side than a sub-group has lanes, and as many and more; of small teams and of large ones. */
static const sizes columns[] = {{2, 70, 2}, {2, 70, 5}, {1, 20, 9}, {2, 70, 40}, {1, 601, 3}, {2, 300, 21}};
enum { COLUMNS = sizeof columns / sizeof *columns };
Test(shuffle, columns_are_exact) {
    for (int i = 0; i < COLUMNS; i++) check_whole(columns[i], CLEF_F32);
    if (few_kernels()) return;
    check_whole(columns[1], CLEF_I64);
    if (has_f64(ctx)) check_whole(columns[1], CLEF_F64);
}

/* Numbers of which both words matter. */
Test(shuffle, both_words_of_i64_come_through) {
    enum { N = 131 };
    int64_t x[ROWS][N], sum[ROWS] = {0}, top[ROWS], found[ROWS];
    for (int r = 0; r < ROWS; r++) top[r] = INT64_MIN;
    for (int i = 0; i < ROWS * N; i++) {
        int64_t v = (int64_t)(1e15 * (double)noise((uint64_t)i, 5)) + i, *s = &sum[i / N], *m = &top[i / N];
        x[i / N][i % N] = v, *s += v, *m = v > *m ? v : *m;
    }
    clef_tensor *t = clef_from_host(ctx, CLEF_SHAPE(ROWS, N), CLEF_I64, x);
    clef_tensor *most = clef_max(t, (int[]){1}, 1, false);
    cr_assert_eq(clef_read(clef_sum(t, (int[]){1}, 1, false), found, sizeof found), CLEF_OK, "%s", clef_error(ctx));
    cr_expect(memcmp(found, sum, sizeof sum) == 0);
    cr_assert_eq(clef_read(most, found, sizeof found), CLEF_OK, "%s", clef_error(ctx));
    cr_expect(memcmp(found, top, sizeof top) == 0);
}

static void expect_near(clef_tensor *t, array want, double bound, const char *what) {
    int64_t n = clef_shape_numel(want.shape);
    array y = from_device(t);
    for (int64_t i = 0; i < n; i++)
        cr_assert(fabs(y.v[i] - want.v[i]) <= bound * (1 + fabs(want.v[i])), "%s: %g, not %g", what, y.v[i], want.v[i]);
    free(y.v);
}

/* What each is of a row x, and its gradient for Σ g·y. */
typedef void (*row_function)(const double *x, const double *g, int64_t n, double *y, double *dx);
static double log_of_sum(const double *x, int64_t n) {
    double top = largest(x, n), sum = 0;
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - top);
    return top + log(sum);
}
static void row_softmax(const double *x, const double *g, int64_t n, double *y, double *dx) {
    double all = log_of_sum(x, n), with = 0;
    for (int64_t i = 0; i < n; i++) y[i] = exp(x[i] - all), with += g[i] * y[i];
    for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (g[i] - with);
}
static void row_log_softmax(const double *x, const double *g, int64_t n, double *y, double *dx) {
    double all = log_of_sum(x, n), plain = 0;
    for (int64_t i = 0; i < n; i++) y[i] = x[i] - all, plain += g[i];
    for (int64_t i = 0; i < n; i++) dx[i] = g[i] - exp(y[i]) * plain;
}
static void row_norm(const double *x, const double *g, int64_t n, double *y, double *dx) {
    double mean = 0, spread = 0, plain = 0, with = 0, m = (double)n;
    for (int64_t i = 0; i < n; i++) mean += x[i] / m;
    for (int64_t i = 0; i < n; i++) spread += (x[i] - mean) * (x[i] - mean) / m;
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) / sqrt(spread + 0.5), plain += g[i] / m, with += g[i] * y[i] / m;
    for (int64_t i = 0; i < n; i++) dx[i] = (g[i] - plain - y[i] * with) / sqrt(spread + 0.5);
}

static clef_tensor *soft(clef_tensor *x) { return clef_softmax(x, 1); }
static clef_tensor *log_soft(clef_tensor *x) { return clef_log_softmax(x, 1); }
static clef_tensor *norm(clef_tensor *x) { return clef_layer_norm(x, 1, CLEF_NONE, CLEF_NONE, 0.5); }
static const struct {
    const char *name;
    clef_tensor *(*op)(clef_tensor *);
    row_function row;
} functions[] = {{"softmax", soft, row_softmax}, {"log_softmax", log_soft, row_log_softmax}, {"layer_norm", norm, row_norm}};
enum { FUNCTIONS = sizeof functions / sizeof *functions };
/* Softmax takes rusticl a minute to compile. */
static int first_function(void) { return few_kernels() ? FUNCTIONS - 1 : 0; }

static void check_function(int k, int64_t n, clef_dtype dtype) {
    array x = whole_array(CLEF_SHAPE(ROWS, n), 2, 8), g = noise_array(x.shape, 3), y = array_new(x.shape), dx = array_new(x.shape);
    for (int64_t at = 0; at < ROWS * n; at += n) functions[k].row(x.v + at, g.v + at, n, y.v + at, dx.v + at);
    double bound = dtype == CLEF_F64 ? 4e-14 : 8e-6;
    clef_tensor *t = to_leaf(ctx, x, dtype), *found = clef_keep(functions[k].op(t)), *d;
    expect_near(found, y, bound, functions[k].name);
    cr_assert_eq(clef_grad(found, to_device(ctx, g, dtype), &t, 1, false, &d), CLEF_OK, "%s", clef_error(ctx));
    expect_near(d, dx, bound, functions[k].name);
    clef_release(t), clef_release(found);
    free(x.v), free(g.v), free(y.v), free(dx.v);
    clef_end_step(ctx);
}

/* Every member of a team writes with what all of them found. */
Test(shuffle, rows_and_their_gradients) {
    for (int i = 0; i < LENGTHS; i++)
        for (int k = first_function(); k < FUNCTIONS; k++) {
            check_function(k, lengths[i], CLEF_F32);
            if (i == 1 && has_f64(ctx) && !few_kernels()) check_function(k, lengths[i], CLEF_F64);
        }
}

static void check_classes(int64_t n, double smoothing) {
    array x = whole_array(CLEF_SHAPE(ROWS, n), 4, 8), loss = array_new(CLEF_SHAPE(ROWS)), dx = array_new(x.shape);
    int32_t target[ROWS];
    for (int r = 0; r < ROWS; r++) {
        const double *row = x.v + r * n, all = log_of_sum(row, n);
        target[r] = (int32_t)(r * (n - 1) / 2);
        for (int64_t i = 0; i < n; i++) {
            double wanted = smoothing / (double)n + (i == target[r] ? 1 - smoothing : 0);
            loss.v[r] -= wanted * (row[i] - all);
            dx.v[r * n + i] = exp(row[i] - all) - wanted;
        }
    }
    clef_loss_options o = {.reduction = CLEF_REDUCE_NONE, .label_smoothing = smoothing};
    clef_tensor *t = to_leaf(ctx, x, CLEF_F32), *d;
    clef_tensor *found = clef_keep(clef_cross_entropy(t, clef_from_host(ctx, CLEF_SHAPE(ROWS), CLEF_I32, target), &o));
    expect_near(found, loss, 8e-6, "cross_entropy");
    cr_assert_eq(clef_grad(found, clef_ones(ctx, CLEF_SHAPE(ROWS), CLEF_F32), &t, 1, false, &d), CLEF_OK, "%s", clef_error(ctx));
    expect_near(d, dx, 8e-6, "cross_entropy");
    clef_release(t), clef_release(found);
    free(x.v), free(loss.v), free(dx.v);
    clef_end_step(ctx);
}

Test(shuffle, losses_and_their_gradients) {
    if (few_kernels()) return;
    for (int i = 0; i < LENGTHS; i++) check_classes(lengths[i], i % 2 ? 0.25 : 0);
}

/* Members that have no element in the last round leave the row below alone, which another thread may be at: seen on pocl, now and then. */
Test(shuffle, rows_end_where_they_end) {
    enum { MANY = 511, N = 9 * 64 - 4, TURNS = 20 };
    if (few_kernels()) return;
    array x = whole_array(CLEF_SHAPE(MANY, N), 4, 8), dx = array_new(x.shape);
    int32_t target[MANY] = {0};
    for (int r = 0; r < MANY; r++) {
        double all = log_of_sum(x.v + r * N, N);
        for (int i = 0; i < N; i++) dx.v[r * N + i] = exp(x.v[r * N + i] - all) - (i == 0);
    }
    clef_tensor *t = to_leaf(ctx, x, CLEF_F32), *d;
    for (int turn = 0; turn < (test_small() ? 2 : TURNS); turn++) {
        clef_tensor *loss = clef_cross_entropy(t, clef_from_host(ctx, CLEF_SHAPE(MANY), CLEF_I32, target),
                                               &(clef_loss_options){.reduction = CLEF_REDUCE_SUM});
        cr_assert_eq(clef_grad(loss, CLEF_NONE, &t, 1, false, &d), CLEF_OK, "%s", clef_error(ctx));
        expect_near(d, dx, 8e-6, "cross_entropy");
        clef_end_step(ctx);
    }
    clef_release(t);
    free(x.v), free(dx.v);
}

/* The later half of each line is one number: whoever writes it, what comes of it has the same bits, as all have the same sums. */
static void expect_agreement(clef_tensor *y, sizes s, const char *what) {
    array found = from_device(y);
    for (int64_t i = 0; i < s.outer * s.inner; i++) {
        const double *line = found.v + i / s.inner * s.n * s.inner + i % s.inner;
        for (int64_t k = s.n / 2; k < s.n; k++)
            cr_assert(line[k * s.inner] == line[(s.n - 1) * s.inner], "%s: %.17g and %.17g in line %d", what, line[k * s.inner],
                      line[(s.n - 1) * s.inner], (int)i);
    }
    free(found.v);
}

static void check_agreement(sizes s) {
    array x = noise_array(CLEF_SHAPE(s.outer, s.n, s.inner), 6);
    for (int64_t i = 0; i < s.outer * s.n * s.inner; i++) x.v[i] = i / s.inner % s.n < s.n / 2 ? 9 * x.v[i] : 0.7;
    clef_tensor *t = clef_keep(to_device(ctx, x, CLEF_F32));
    if (!few_kernels()) expect_agreement(clef_softmax(t, 1), s, "softmax");
    if (s.inner == 1) expect_agreement(clef_layer_norm(t, 2, CLEF_NONE, CLEF_NONE, 0.5), s, "layer_norm");
    clef_release(t);
    free(x.v);
    clef_end_step(ctx);
}

Test(shuffle, members_have_the_same_bits) {
    for (int i = 0; i < LENGTHS; i++) check_agreement((sizes){2 * ROWS, lengths[i], 1});
    for (int i = 0; i < COLUMNS; i++) check_agreement(columns[i]);
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

static const int subgroups[] = {8, 16, 32, 64};
enum { SUBGROUPS = sizeof subgroups / sizeof *subgroups };

Test(shuffle, the_probe_sees_what_is_wrong) {
    clef__device *device = clef__device_at(ctx, 0);
    for (int i = 0; i < SUBGROUPS; i++) {
        cr_expect(clef__shuffle_probe(device, subgroups[i], ""), "sub-groups of %d", subgroups[i]);
        if (few_kernels()) continue; /* Oclgrind tells of what the broken one reads */
        cr_expect(!clef__shuffle_probe(device, subgroups[i], "-Dget_local_id=get_group_id"), "sub-groups of %d", subgroups[i]);
    }
    cr_expect(!clef__shuffle_probe(device, 32, "-DSUBGROUP_PLACE=0"), "where members are");
    cr_expect(!clef__shuffle_probe(device, 32, "-DSUBGROUP_PLACE=unknown"), "a kernel that does not compile");
}

/* What the suite's own size does not show. */
static void check_size(int size) {
    char text[8];
    snprintf(text, sizeof text, "%d", size);
    setenv("CLEF_SHUFFLE", text, 1);
    close_clean(ctx);
    ctx = open_as_gpu();
    clef__shuffle found = clef__device_shuffle(clef__device_at(ctx, 0));
    if (!found.subgroup) return;
    cr_assert_eq(found.subgroup, size);
    check_whole((sizes){ROWS, 131, 1}, CLEF_I64);
    check_whole((sizes){ROWS, 4503, 1}, CLEF_F32);
    for (int i = 0; i < COLUMNS; i++) check_whole(columns[i], CLEF_F32);
}

Test(shuffle, sizes_of_sub_groups) {
    if (!own_shuffles()) return; /* what stands in for them has one */
    for (int i = 0; i < SUBGROUPS; i++) check_size(subgroups[i]);
}
