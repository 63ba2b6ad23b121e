/* Half weights that are converted to f32 for a product are read as they are stored: no launch converts them, and the bits are those of
   the same product with the weights in f32.  Whoever else reads them gets them converted.
   ctest: cost=20 */
#include "support/suite.h"

TestSuite(stored, .init = open_device, .fini = close_device);

/* A weight of a half type and the same in f32; both are parameters or neither is. */
typedef struct pair {
    clef_tensor *half, *wide;
} pair;

static pair weights(clef_shape shape, clef_dtype dtype, bool parameters) {
    pair w = {.half = clef_keep(clef_to(noise_tensor(ctx, shape, 7), dtype))};
    cr_assert_eq(clef_eval(w.half), CLEF_OK, "%s", clef_error(ctx));
    w.wide = clef_keep(clef_to(w.half, CLEF_F32));
    cr_assert_eq(clef_eval(w.wide), CLEF_OK, "%s", clef_error(ctx));
    clef_end_step(ctx);
    clef_require_grad(w.half, parameters);
    clef_require_grad(w.wide, parameters);
    return w;
}

static void release(pair w) {
    clef_release(w.half);
    clef_release(w.wide);
    clef_end_step(ctx);
}

static clef_tensor *known(clef_shape shape, uint64_t salt) {
    clef_tensor *x = noise_tensor(ctx, shape, salt);
    cr_assert_eq(clef_eval(x), CLEF_OK, "%s", clef_error(ctx));
    return x;
}

/* The ways in which a product meets a weight. */
enum { LINEAR, BIASED, ACROSS, ALONG, STACKED, BEHIND, WAYS };
static const char *const way_name[] = {"linear", "biased", "across", "along", "stacked", "behind"};

static clef_shape weight_shape(int way, int64_t n, int64_t k) {
    if (way == LINEAR || way == BIASED || way == ALONG) return CLEF_SHAPE(n, k);
    return way == STACKED ? CLEF_SHAPE(2, k, n) : CLEF_SHAPE(k, n);
}

static clef_tensor *meet(int way, clef_tensor *x, clef_tensor *w, clef_tensor *bias) {
    clef_tensor *v = clef_to(w, CLEF_F32);
    switch (way) {
    case LINEAR: return clef_linear(x, v, CLEF_NONE);
    case BIASED: return clef_relu(clef_linear(x, v, clef_to(bias, CLEF_F32)));
    case ALONG: return clef_matmul(x, clef_transpose(v, 0, 1));
    case BEHIND: return clef_linear(x, clef_transpose(v, 0, 1), CLEF_NONE);
    default: return clef_matmul(x, v);
    }
}

/* Some calls, as what is packed from a parameter stays from the second on. */
static void expect_same(int way, int64_t m, int64_t n, int64_t k, clef_dtype dtype, bool parameters) {
    pair w = weights(weight_shape(way, n, k), dtype, parameters), b = weights(CLEF_SHAPE(n), dtype, parameters);
    clef_set_grad_enabled(ctx, !parameters);
    for (uint64_t call = 0; call < (fewest_kernels() ? 2 : 4); call++) {
        clef_tensor *x = known(CLEF_SHAPE(m, k), call), *y[2];
        int launches[2];
        float *have[2];
        for (int i = 0; i < 2; i++) {
            uint64_t before = clef_counters_get(ctx).launches;
            y[i] = meet(way, x, i ? w.wide : w.half, i ? b.wide : b.half);
            have[i] = values(y[i]);
            launches[i] = (int)(clef_counters_get(ctx).launches - before);
        }
        cr_expect(memcmp(have[0], have[1], (size_t)clef_numel(y[0]) * sizeof *have[0]) == 0,
                  "%s %s m %d n %d k %d call %d: other bits", way_name[way], clef_dtype_name(dtype), (int)m, (int)n, (int)k,
                  (int)call);
        if (way != BIASED) /* else the bias is converted */
            cr_expect(launches[0] == launches[1], "%s m %d n %d k %d: %d launches instead of %d", way_name[way], (int)m, (int)n,
                      (int)k, launches[0], launches[1]);
        free(have[0]), free(have[1]);
        clef_end_step(ctx);
    }
    clef_set_grad_enabled(ctx, true);
    release(b);
    release(w);
}

Test(stored, products_read_half_weights) {
    static const int64_t sizes[][3] = {{1, 70, 130}, {3, 33, 64}, {4, 512, 96}, {5, 48, 77}, {37, 150, 1037}, {170, 96, 200}};
    for (size_t i = 0; i < (fewest_kernels() ? 1 : few_kernels() ? 2 : sizeof sizes / sizeof *sizes); i++)
        for (int way = 0; way < (few_kernels() ? 3 : WAYS); way++)
            for (int parameters = 0; parameters < 2; parameters++)
                expect_same(way, sizes[i][0], sizes[i][1], sizes[i][2], (i + (size_t)way) % 2 ? CLEF_F16 : CLEF_BF16, parameters);
}

Test(stored, without_any_element) {
    expect_same(LINEAR, 0, 5, 7, CLEF_BF16, false);
    expect_same(LINEAR, 3, 0, 7, CLEF_BF16, false);
    expect_same(BIASED, 3, 5, 0, CLEF_F16, false);
    expect_same(STACKED, 1, 1, 1, CLEF_BF16, true);
}

Test(stored, kernels_of_a_gpu) {
    if (few_kernels()) return;
    close_device();
    ctx = open_as_gpu();
    for (int way = 0; way < WAYS; way++) expect_same(way, 65, 40, 36, way % 2 ? CLEF_F16 : CLEF_BF16, way % 3 == 0);
}

static void expect_bits(clef_tensor *a, clef_tensor *b, const char *what) {
    float *x = values(a), *y = values(b);
    cr_expect(memcmp(x, y, (size_t)clef_numel(a) * sizeof *x) == 0, "%s: other bits", what);
    free(x), free(y);
}

/* The weight's gradient is that of the wide one, rounded. */
Test(stored, gradients) {
    for (int d = 0; d < 2; d++) {
        clef_dtype dtype = d ? CLEF_F16 : CLEF_BF16;
        pair w = weights(CLEF_SHAPE(40, 52), dtype, true);
        for (int call = 0; call < 3; call++) {
            clef_tensor *g[2][2];
            for (int i = 0; i < 2; i++) {
                clef_tensor *x = clef_require_grad(known(CLEF_SHAPE(9, 52), 3), true), *of[] = {x, i ? w.wide : w.half};
                clef_tensor *y = meet(LINEAR, x, of[1], NULL);
                cr_assert_eq(clef_grad(y, known(CLEF_SHAPE(9, 40), 4), of, 2, false, g[i]), CLEF_OK, "%s", clef_error(ctx));
            }
            expect_bits(g[0][0], g[1][0], "dx");
            expect_bits(clef_to(g[0][1], CLEF_F32), clef_to(clef_to(g[1][1], dtype), CLEF_F32), "dw");
            clef_end_step(ctx);
        }
        release(w);
    }
}

/* Beside a product others read the weight, whole and through views, before it and after it. */
Test(stored, who_else_reads_it_gets_it_converted) {
    pair w = weights(CLEF_SHAPE(24, 24), CLEF_BF16, false);
    for (int first = 0; first < 2; first++) {
        clef_tensor *y[2], *all[2];
        for (int i = 0; i < 2; i++) {
            clef_tensor *v = clef_to(i ? w.wide : w.half, CLEF_F32), *t = clef_transpose(v, 0, 1), *x = known(CLEF_SHAPE(3, 24), 5);
            y[i] = first ? clef_softmax(t, 1) : clef_matmul(x, t);
            all[i] = clef_matmul(clef_matmul(first ? x : y[i], t), clef_softmax(first ? y[i] : t, 1));
            all[i] = clef_add(clef_matmul(all[i], clef_slice(t, 0, 0, 24, 1)), clef_sum(clef_cumsum(v, 1), NULL, 0, false));
        }
        expect_bits(all[0], all[1], "mixed readers");
        expect_bits(y[0], y[1], "the first reader");
        clef_end_step(ctx);
    }
    release(w);
}

/* A weight that is overwritten in the same evaluation is read before. */
Test(stored, a_weight_that_is_updated) {
    for (int call = 0; call < 3; call++) {
        clef_tensor *x = clef_keep(known(CLEF_SHAPE(2, 20), 6)),
                    *w = clef_keep(clef_to(noise_tensor(ctx, CLEF_SHAPE(16, 20), 7), CLEF_BF16));
        clef_tensor *want = clef_keep(clef_linear(x, clef_to(w, CLEF_F32), CLEF_NONE)), *rows, *all[2];
        cr_assert_eq(clef_eval(want), CLEF_OK, "%s", clef_error(ctx));
        clef_end_step(ctx); /* so that nobody else holds the weight */
        rows = clef_to(known(CLEF_SHAPE(3, 20), 8), CLEF_BF16);
        clef_tensor *former = clef_to(w, CLEF_F32);
        cr_assert_eq(clef_assign(w, clef_slice_update(w, 0, clef_integer(ctx, 4), rows)), CLEF_OK);
        all[0] = w;
        all[1] = clef_linear(x, former, CLEF_NONE); /* made behind the update, it would run behind it */
        cr_assert_eq(clef_eval_all(all, 2), CLEF_OK, "%s", clef_error(ctx));
        expect_bits(all[1], want, "before the update");
        expect_bits(clef_to(clef_slice(w, 0, 4, 7, 1), CLEF_F32), clef_to(rows, CLEF_F32), "rows that are new");
        clef_release(want), clef_release(w), clef_release(x);
        clef_end_step(ctx);
    }
}

/* The converted weight may itself be a result. */
Test(stored, a_result_beside_a_product) {
    pair w = weights(CLEF_SHAPE(16, 20), CLEF_F16, false);
    clef_tensor *x = known(CLEF_SHAPE(2, 20), 6), *wide = clef_to(w.half, CLEF_F32),
                *all[] = {clef_linear(x, wide, CLEF_NONE), wide};
    cr_assert_eq(clef_eval_all(all, 2), CLEF_OK, "%s", clef_error(ctx));
    expect_bits(all[0], clef_linear(x, w.wide, CLEF_NONE), "the product");
    expect_bits(all[1], w.wide, "the weight");
    release(w);
}

/* What is packed of a parameter in inference takes no more memory than the parameter. */
Test(stored, panels_stay_in_the_half_type) {
    int64_t n = few_kernels() ? 64 : 512, k = few_kernels() ? 128 : 1024;
    pair w = weights(CLEF_SHAPE(n, k), CLEF_BF16, true);
    clef_set_grad_enabled(ctx, false);
    size_t before = 0;
    for (int call = 0; call < 5; call++) {
        clef_tensor *x = known(CLEF_SHAPE(40, k), 6);
        free(values(meet(LINEAR, x, w.half, NULL)));
        clef_end_step(ctx);
        if (call == 0) before = clef_memory(ctx).used;
    }
    cr_expect(clef_memory(ctx).used <= before + (size_t)(2 * n * k) + 4096, "%zu bytes more",
              (size_t)clef_memory(ctx).used - before);
    clef_set_grad_enabled(ctx, true);
    release(w);
}
