/* Products by CLBlast, as a tuning result may ask for: the numbers of plain loops in every order, batch and dtype it takes, replays
   that see where things lie, and Clef's own kernels for the same result where the library is not there.
   ctest: cost=60 plain */
#include "kernels/gemm.h"
#include "support/product.h"
#include "tuning_support.h"

static const char *dir;
static clef_context *ctx;

static void reopen(const char *library) {
    clef_close(ctx);
    if (library) setenv("CLEF_CLBLAST", library, 1);
    else unsetenv("CLEF_CLBLAST");
    ctx = open_in(dir);
}
static void setup(void) {
    unsetenv("CLEF_TUNING");
    unsetenv("CLEF_CACHE");
    dir = io_scratch();
    reopen(getenv("CLEF_CLBLAST"));
    const char *why;
    if (!clef__blas_there(ctx, &why)) cr_skip_test("no CLBlast (Debian: libclblast1): %s", why ? why : "CLEF_CLBLAST=0");
}
static void teardown(void) {
    expect_nothing_left("warning", warnings);
    close_clean(ctx);
    io_remove(dir);
}
TestSuite(library, .init = setup, .fini = teardown);

/* From now on for all the products behind t; t itself is no good any more. */
static void ask(clef_tensor *t) {
    clef__knobs gemm = {0}, tile = {0};
    gemm.value[CLEF__GEMM_LIBRARY] = tile.value[CLEF__TILE_LIBRARY] = 1;
    cr_assert(keep_for(ctx, t, "gemm", &gemm) + keep_for(ctx, t, "tile", &tile) > 0);
}

static bool by_library(clef_tensor *t) { return strstr(plan_text(t), " library ") != NULL; }

/* Memory that the next results of this shape get, so that what is not written shows. */
static void soil(clef_shape shape, clef_dtype dtype) {
    cr_assert_eq(clef_eval(clef_exp(clef_full(ctx, shape, dtype, NAN))), CLEF_OK);
    clef_end_step(ctx);
}

typedef struct turned_product {
    array a, b;
    int order; /* 1: a is transposed, 2: b */
    clef_dtype dtype;
} turned_product;

static clef_tensor *multiply(const turned_product *p) {
    clef_tensor *x = to_device(ctx, p->a, p->dtype), *y = to_device(ctx, p->b, p->dtype);
    return clef_matmul(p->order & 1 ? clef_transpose(x, -1, -2) : x, p->order & 2 ? clef_transpose(y, -1, -2) : y);
}

static void check(int64_t m, int64_t n, int64_t k, int order, clef_dtype dtype) {
    bool ta = order & 1, tb = order & 2;
    turned_product p = {whole_array(matrix(m, k, ta), 1, 4), whole_array(matrix(k, n, tb), 2, 4), order, dtype};
    array want = array_new(CLEF_SHAPE(m, n));
    char what[128];
    snprintf(what, sizeof what, "%s %lld x %lld x %lld, order %d", clef_dtype_name(dtype), (long long)m, (long long)n, (long long)k,
             order);
    product(p.a.v, ta ? 1 : k, ta ? m : 1, p.b.v, tb ? 1 : n, tb ? k : 1, want.v, m, n, k, false);
    ask(multiply(&p));
    soil(want.shape, dtype);
    cr_assert(by_library(multiply(&p)), "%s: %s", what, plan_text(multiply(&p)));
    expect_equal(multiply(&p), want, what);
    free(p.a.v), free(p.b.v), free(want.v);
    clef_end_step(ctx);
}

Test(library, all_four_orders) {
    static const int64_t sizes[][3] = {{33, 47, 29}, {64, 128, 32}, {130, 65, 300}, {520, 516, 77}};
    for (int i = 0; i < 4; i++)
        for (int order = 0; order < 4; order++) check(sizes[i][0], sizes[i][1], sizes[i][2], order, CLEF_F32);
}

Test(library, doubles) {
    clef_device_info info;
    if (!clef_context_device(ctx, 0, &info) || !info.f64) cr_skip_test("the device has no f64");
    for (int order = 0; order < 4; order++) check(33, 47, 29, order, CLEF_F64);
}

static void check_batch(clef_shape a, clef_shape b, int order, int64_t m, int64_t n, int64_t k) {
    enum { Z = 3 };
    bool ta = order & 1, tb = order & 2;
    turned_product p = {whole_array(a, 1, 4), whole_array(b, 2, 4), order, CLEF_F32};
    array want = array_new(CLEF_SHAPE(Z, m, n));
    int64_t step_a = a.rank == 3 ? m * k : 0, step_b = b.rank == 3 ? k * n : 0;
    for (int z = 0; z < Z; z++)
        product(p.a.v + z * step_a, ta ? 1 : k, ta ? m : 1, p.b.v + z * step_b, tb ? 1 : n, tb ? k : 1, want.v + z * m * n, m, n, k,
                false);
    ask(multiply(&p));
    soil(want.shape, CLEF_F32);
    cr_assert(by_library(multiply(&p)), "order %d: %s", order, plan_text(multiply(&p)));
    expect_equal(multiply(&p), want, "a batch");
}

Test(library, batches) {
    check_batch(CLEF_SHAPE(3, 33, 18), CLEF_SHAPE(3, 18, 37), 0, 33, 37, 18);
    check_batch(CLEF_SHAPE(3, 18, 33), CLEF_SHAPE(3, 37, 18), 3, 33, 37, 18);
    check_batch(CLEF_SHAPE(33, 18), CLEF_SHAPE(3, 18, 37), 0, 33, 37, 18);
    check_batch(CLEF_SHAPE(3, 33, 18), CLEF_SHAPE(37, 18), 2, 33, 37, 18);
}

/* The bias is there first, and the product added to it. */
Test(library, biases) {
    enum { M = 33, N = 37, K = 60 };
    array x = whole_array(CLEF_SHAPE(M, K), 1, 4), w = whole_array(CLEF_SHAPE(N, K), 2, 4), b = whole_array(CLEF_SHAPE(N), 3, 50);
    array want = array_new(CLEF_SHAPE(M, N));
    for (int i = 0; i < M * N; i++) want.v[i] = b.v[i % N];
    product(x.v, K, 1, w.v, 1, K, want.v, M, N, K, false);
    for (int asked = 0; asked < 2; asked++) {
        clef_tensor *y = clef_linear(to_device(ctx, x, CLEF_F32), to_device(ctx, w, CLEF_F32), to_device(ctx, b, CLEF_F32));
        if (!asked) {
            ask(y);
            continue;
        }
        cr_assert(by_library(y));
        expect_equal(y, want, "a bias");
    }
}

Test(library, gradients) {
    enum { M = 40, N = 50, K = 60 };
    array a = whole_array(CLEF_SHAPE(M, K), 1, 4), b = whole_array(CLEF_SHAPE(K, N), 2, 4), g = whole_array(CLEF_SHAPE(M, N), 3, 4);
    array da = array_new(a.shape), db = array_new(b.shape);
    product(g.v, N, 1, b.v, 1, N, da.v, M, K, N, false);
    product(a.v, 1, K, g.v, N, 1, db.v, K, N, M, false);
    clef_tensor *x[2] = {to_leaf(ctx, a, CLEF_F32), to_leaf(ctx, b, CLEF_F32)}, *dx[2];
    for (int asked = 0; asked < 2; asked++) {
        cr_assert(clef_grad(clef_matmul(x[0], x[1]), to_device(ctx, g, CLEF_F32), x, 2, false, dx) == CLEF_OK, "%s",
                  clef_error(ctx));
        for (int i = 0; i < 2 && !asked; i++) ask(dx[i]);
    }
    cr_assert(by_library(dx[0]) && by_library(dx[1]));
    expect_equal(dx[0], da, "by a");
    expect_equal(dx[1], db, "by b");
}

/* ---- replays ---- */

enum { PARTS = 3, EDGE = 40 };

/* Σ of (x·y + 1)·y, with what is between in the arena. */
static clef_tensor *chain(clef_tensor *x, clef_tensor *y) { return clef_matmul(clef_add_scalar(clef_matmul(x, y), 1), y); }

static array chain_of(const double *x, const double *y) {
    array first = array_new(CLEF_SHAPE(EDGE, EDGE)), second = array_new(first.shape);
    product(x, EDGE, 1, y, EDGE, 1, first.v, EDGE, EDGE, EDGE, false);
    for (int i = 0; i < EDGE * EDGE; i++) first.v[i]++;
    product(first.v, EDGE, 1, y, EDGE, 1, second.v, EDGE, EDGE, EDGE, false);
    free(first.v);
    return second;
}

/* One plan, on parts of one buffer and then on buffers of their own; a larger plan in between moves the arena. */
static void check_replays(void) {
    array all = whole_array(CLEF_SHAPE(PARTS * EDGE, EDGE), 1, 2);
    clef_tensor *whole = clef_keep(to_device(ctx, all, CLEF_F32)), *part[PARTS], *own[PARTS];
    for (int i = 0; i < PARTS; i++) {
        part[i] = clef_keep(clef_slice(whole, 0, i * EDGE, (i + 1) * EDGE, 1));
        own[i] = clef_keep(to_device(ctx, (array){CLEF_SHAPE(EDGE, EDGE), all.v + i * EDGE * EDGE}, CLEF_F32));
    }
    clef_eval_all(part, PARTS);
    clef_eval_all(own, PARTS);
    ask(chain(part[0], part[1]));
    clef_end_step(ctx);
    uint64_t replays = clef_counters_get(ctx).replays;
    for (int i = 0; i < 2 * PARTS; i++) {
        clef_tensor **from = i < PARTS ? part : own;
        int at = i % PARTS, next = (at + 1) % PARTS;
        array want = chain_of(all.v + at * EDGE * EDGE, all.v + next * EDGE * EDGE);
        clef_tensor *y = chain(from[at], from[next]);
        cr_assert(by_library(y));
        expect_equal(y, want, i < PARTS ? "a part" : "a buffer of its own");
        free(want.v);
        clef_tensor *large = clef_matmul(clef_exp(clef_rand(ctx, CLEF_SHAPE(EDGE << i, EDGE))), part[0]);
        cr_assert_eq(clef_eval(clef_sum(large, NULL, 0, false)), CLEF_OK);
        clef_end_step(ctx);
    }
    cr_expect_geq(clef_counters_get(ctx).replays - replays, 2 * PARTS - 1);
    free(all.v);
}

Test(library, replays_see_where_things_lie) { check_replays(); }

Test(library, in_exact_buffers) {
    clef_close(ctx);
    ctx = open_or_skip(&(clef_options){.cache_dir = dir, .log = note_warning, .debug_memory = true});
    check_replays();
}

Test(library, with_the_tiles_of_a_gpu) {
    clef_close(ctx);
    ctx = open_or_skip(&(clef_options){.cache_dir = dir, .log = note_warning, .profile = "gpu"});
    check_replays();
    check(130, 65, 300, 1, CLEF_F32);
}

/* ---- where it is left alone ---- */

static clef_tensor *view_with_gaps(void) {
    return clef_matmul(clef_slice(clef_rand(ctx, CLEF_SHAPE(40, 80)), 1, 0, 80, 2), clef_rand(ctx, CLEF_SHAPE(40, 50)));
}
static clef_tensor *halves(void) {
    return clef_matmul(clef_to(clef_rand(ctx, CLEF_SHAPE(40, 40)), CLEF_F16),
                       clef_to(clef_rand(ctx, CLEF_SHAPE(40, 40)), CLEF_F16));
}
static clef_tensor *image(void) {
    return clef_conv2d(clef_rand(ctx, CLEF_SHAPE(2, 24, 14, 14)), clef_rand(ctx, CLEF_SHAPE(37, 24, 5, 3)), CLEF_NONE, NULL);
}

Test(library, only_products_of_plain_matrices) {
    clef_tensor *(*const make[])(void) = {view_with_gaps, halves, image};
    for (size_t i = 0; i < sizeof make / sizeof *make; i++) {
        ask(make[i]());
        cr_expect(!by_library(make[i]()), "%zu", i);
        cr_expect_eq(clef_eval(make[i]()), CLEF_OK, "%s", clef_error(ctx));
    }
}

/* The same tuning results without it: Clef's own kernels, and no complaint. */
Test(library, results_that_name_it_do_without) {
    turned_product p = {whole_array(CLEF_SHAPE(40, 50), 1, 4), whole_array(CLEF_SHAPE(50, 60), 2, 4), 0, CLEF_F32};
    array want = array_new(CLEF_SHAPE(40, 60));
    product(p.a.v, 50, 1, p.b.v, 60, 1, want.v, 40, 60, 50, false);
    ask(multiply(&p));
    const char *here = io_path(dir, "tuning.jsonl"), *other[] = {"0", here, "/none.so", NULL};
    for (int i = 0; i < 4; i++) {
        reopen(other[i]);
        cr_expect_eq(by_library(multiply(&p)), !other[i], "CLEF_CLBLAST=%s", other[i]);
        expect_equal(multiply(&p), want, other[i] ? other[i] : "with it");
        cr_assert_str_empty(warnings);
    }
}
