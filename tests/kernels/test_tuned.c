/* Products and convolutions cut in every way that tuning may choose: bit for bit the numbers of the rules' own cut, on whole
   numbers, whose sums are exact in any order.
   ctest: cost=40 */
#include "kernels/gemm.h"
#include "plan/tuning_support.h"
#include "support/exact.h"

static const char *dir;
static clef_context *ctx;
static const clef__family *family; /* of this device's products */
static void setup(void) {
    setenv("CLEF_CLBLAST", "0", 1); /* tests/plan/test_library.c tries it, whose kernels take long to compile */
    dir = io_scratch();
    setenv("CLEF_ROWS", "product", 1); /* convolutions too, whatever would be faster */
    ctx = open_in(dir);
    family = clef__device_profile(clef__device_at(ctx, 0))->block ? &clef__tile_family : &clef__gemm_family;
}
static void teardown(void) {
    close_clean(ctx);
    io_remove(dir);
}
TestSuite(tuned, .init = setup, .fini = teardown);

enum { OUTPUTS = 3 };
typedef void work(clef_tensor *out[OUTPUTS]); /* pending, from the same whole numbers each time */
static int outputs(void) { return few_kernels() ? 1 : OUTPUTS; }

static clef_tensor *whole(clef_shape shape, uint64_t salt) {
    array a = whole_array(shape, salt, 3);
    clef_tensor *t = to_device(ctx, a, CLEF_F32);
    free(a.v);
    return t;
}

/* Long enough for blocks and splits; edges in all directions; B as it lies and transposed; a bias. */
static void products(clef_tensor *out[OUTPUTS]) {
    int64_t m = test_small() ? 9 : 45, n = test_small() ? 13 : 83, k = test_small() ? 21 : 2600;
    clef_tensor *a = whole(CLEF_SHAPE(m, k), 1), *b = whole(CLEF_SHAPE(k, n), 2), *transposed = whole(CLEF_SHAPE(n, k), 3);
    out[0] = clef_matmul(a, b);
    out[1] = clef_linear(a, transposed, whole(CLEF_SHAPE(n), 4));
    out[2] = clef_matmul(clef_transpose(whole(CLEF_SHAPE(2, 7, 5), 5), -1, -2), whole(CLEF_SHAPE(2, 7, 33), 6));
}

/* In whole fours, in three orders, with edges beyond one tile of 256 by 128. */
static void products_of_fours(clef_tensor *out[OUTPUTS]) {
    enum { M = 260, N = 132, K = 72 };
    clef_tensor *a = whole(CLEF_SHAPE(M, K), 1), *b = whole(CLEF_SHAPE(K, N), 2);
    out[0] = clef_matmul(a, b);
    out[1] = clef_linear(a, whole(CLEF_SHAPE(N, K), 3), whole(CLEF_SHAPE(N), 4));
    out[2] = clef_matmul(clef_transpose(whole(CLEF_SHAPE(K, M), 5), -1, -2), b);
}

static void convolutions(clef_tensor *out[OUTPUTS]) {
    int64_t c = test_small() ? 2 : 24, o = test_small() ? 3 : 37, side = test_small() ? 5 : 14;
    clef_tensor *x = clef_require_grad(clef_keep(whole(CLEF_SHAPE(2, c, side, side), 1)), true);
    clef_tensor *w = clef_require_grad(clef_keep(whole(CLEF_SHAPE(o, c, 5, 3), 2)), true);
    out[0] = clef_conv2d(x, w, CLEF_NONE, &(clef_conv2d_options){.padding = {2, 1}, .stride = {1, 2}});
    clef_tensor *g = whole(clef_tensor_shape(out[0]), 3);
    cr_assert_eq(clef_grad(out[0], g, (clef_tensor *[]){x, w}, 2, false, out + 1), CLEF_OK, "%s", clef_error(ctx));
    clef_release(x);
    clef_release(w);
}

/* The outputs under these knobs equal `want`; knobs are kept for all that each output asks for. */
static void expect_same(work *make, const clef__knobs *knobs, const array want[OUTPUTS]) {
    clef_tensor *out[OUTPUTS];
    char text[128];
    clef__knobs_text(family, knobs, text, sizeof text);
    make(out);
    for (int i = 0; i < outputs(); i++) cr_assert(keep_for(ctx, out[i], family->name, knobs) > 0);
    make(out);
    cr_assert(strstr(plan_text(out[0]), " tuned"), "%s is not used", text);
    for (int i = 0; i < outputs(); i++) expect_equal(out[i], want[i], text);
    clef_end_step(ctx);
}

static void try_all(work *make) {
    clef_tensor *out[OUTPUTS];
    array want[OUTPUTS];
    make(out);
    for (int i = 0; i < outputs(); i++) want[i] = from_device(out[i]);
    const char *profile = clef__device_profile(clef__device_at(ctx, 0))->name;
    int seeds = 0;
    int wanted = few_kernels() ? 1 : test_small() ? 2 : family->n_seeds;
    for (int i = 0; i < family->n_seeds && seeds < wanted; i++) {
        if (!strstr(family->seed[i].profiles, profile)) continue;
        expect_same(make, &family->seed[i].knobs, want);
        seeds++;
    }
    cr_assert(seeds >= (few_kernels() ? 1 : test_small() ? 2 : 8), "%d seeds for %s", seeds, profile);
    for (int k = 0; k < family->n_knobs && !test_small(); k++)
        for (int i = 0; family->knob[k].value[i]; i++) {
            clef__knobs knobs = {0};
            knobs.value[k] = family->knob[k].value[i];
            expect_same(make, &knobs, want);
        }
    for (int i = 0; i < outputs(); i++) free(want[i].v);
}

Test(tuned, products_are_the_same_numbers) {
    if (few_kernels()) return; /* the extremes below are products */
    try_all(products);
}
Test(tuned, products_of_fours_are_the_same_numbers) {
    if (test_small() || family != &clef__tile_family) return; /* what has blocks 16 deep */
    clef_tensor *out[OUTPUTS];
    array want[OUTPUTS];
    products_of_fours(out);
    for (int i = 0; i < OUTPUTS; i++) want[i] = from_device(out[i]);
    for (int shape = 6; shape <= 7; shape++)
        for (int splits = 1; splits <= 2; splits++) {
            clef__knobs knobs = {{[CLEF__TILE_SHAPE] = shape, [CLEF__TILE_SPLITS] = splits}};
            expect_same(products_of_fours, &knobs, want);
        }
    for (int i = 0; i < OUTPUTS; i++) free(want[i].v);
}
Test(tuned, convolutions_and_gradients_are_the_same_numbers) { try_all(convolutions); }

/* The largest and the smallest of everything together, on sizes that hardly allow it. */
Test(tuned, extremes_on_small_sizes) {
    static const int64_t sizes[][3] = {{1, 1, 1}, {2, 3, 1}, {1, 70, 9}, {70, 1, 9}, {5, 64, 3}};
    for (int largest = 0; largest < 2; largest++) {
        clef__knobs knobs = {0};
        for (int k = 0; k < family->n_knobs; k++)
            for (int i = 0; family->knob[k].value[i] && (largest || i == 0); i++) knobs.value[k] = family->knob[k].value[i];
        for (size_t i = 0; i < (test_small() ? 2 : sizeof sizes / sizeof sizes[0]); i++) {
            array a = whole_array(CLEF_SHAPE(sizes[i][0], sizes[i][2]), 1, 3),
                  b = whole_array(CLEF_SHAPE(sizes[i][2], sizes[i][1]), 2, 3);
            array want = from_device(clef_matmul(to_device(ctx, a, CLEF_F32), to_device(ctx, b, CLEF_F32)));
            keep_for(ctx, clef_matmul(to_device(ctx, a, CLEF_F32), to_device(ctx, b, CLEF_F32)), family->name, &knobs);
            expect_equal(clef_matmul(to_device(ctx, a, CLEF_F32), to_device(ctx, b, CLEF_F32)), want,
                         largest ? "largest" : "smallest");
            free(a.v), free(b.v), free(want.v);
        }
    }
}
