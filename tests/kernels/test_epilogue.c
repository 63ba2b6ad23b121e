/* What follows a product, a convolution or layer norm in its store (cl/epilogue.h): the same numbers as by ops of their own,
   without a launch more, in every kernel that stores results; and what may not follow does not.
   ctest: cost=60 */
#include "support/exact.h"
#include "support/suite.h"

TestSuite(epilogue, .init = open_device, .fini = close_device);

enum { SCALE = 1, ADD = 2, GATE = 4, RELU = 8, LEAK = 16 };

/* Whole numbers that stay in memory. */
static clef_tensor *whole(clef_shape shape, uint64_t salt, clef_dtype dtype) {
    array a = whole_array(shape, salt, 2);
    clef_tensor *t = to_leaf(ctx, a, dtype);
    cr_assert_eq(clef_eval(t), CLEF_OK, "%s", clef_error(ctx));
    free(a.v);
    return t;
}

/* ---- results to be stored ---- */
typedef struct maker {
    const char *name;
    clef_tensor *(*make)(const struct maker *m, uint64_t salt);
    clef_dtype dtype;
    int64_t m, n, k; /* of a product */
    clef_shape x, w; /* of a convolution */
    clef_conv2d_options options;
    bool large; /* too much for an interpreter */
    bool apart; /* done by a launch of its own */
} maker;

static clef_tensor *product(const maker *m, uint64_t salt) {
    return clef_matmul(whole(CLEF_SHAPE(m->m, m->k), salt, m->dtype), whole(CLEF_SHAPE(m->k, m->n), salt + 1, m->dtype));
}

static clef_tensor *batch(const maker *m, uint64_t salt) {
    return clef_matmul(whole(CLEF_SHAPE(2, m->m, m->k), salt, m->dtype), whole(CLEF_SHAPE(2, m->k, m->n), salt + 1, m->dtype));
}

static clef_tensor *linear(const maker *m, uint64_t salt) {
    return clef_linear(whole(CLEF_SHAPE(m->m, m->k), salt, m->dtype), whole(CLEF_SHAPE(m->n, m->k), salt + 1, m->dtype),
                       whole(CLEF_SHAPE(m->n), salt + 2, m->dtype));
}

static clef_tensor *forward(const maker *m, uint64_t salt) {
    return clef_conv2d(whole(m->x, salt, m->dtype), whole(m->w, salt + 1, m->dtype),
                       whole(CLEF_SHAPE(m->w.dim[0]), salt + 2, m->dtype), &m->options);
}

static clef_tensor *backward(const maker *m, uint64_t salt) {
    clef_tensor *x = whole(m->x, salt, m->dtype), *y = clef_conv2d(x, whole(m->w, salt + 1, m->dtype), CLEF_NONE, &m->options),
                *dx = NULL;
    clef_grad(y, whole(clef_tensor_shape(y), salt + 2, m->dtype), &x, 1, false, &dx);
    return dx;
}

static const maker makers[] = {
    {"matmul", product, CLEF_F32, .m = 13, .n = 21, .k = 7},
    {"matmul in tiles", product, CLEF_F32, .m = 37, .n = 45, .k = 35},
    {"matmul, packed", product, CLEF_F32, .m = 120, .n = 131, .k = 800, .large = true},
    {"matmul in blocks", product, CLEF_F32, .m = 14, .n = 141, .k = 2101, .large = true},
    {"matmul in splits", product, CLEF_F32, .m = 3, .n = 21, .k = 1301},
    {"matmul of one column", product, CLEF_F32, .m = 29, .n = 1, .k = 37},
    {"matmul of three rows", product, CLEF_F32, .m = 3, .n = 29, .k = 37},
    {"batch", batch, CLEF_F32, .m = 13, .n = 21, .k = 7},
    {"batch in splits", batch, CLEF_F32, .m = 3, .n = 9, .k = 600},
    {"linear", linear, CLEF_F32, .m = 30, .n = 45, .k = 35},
    {"matmul f16", product, CLEF_F16, .m = 13, .n = 21, .k = 7},
    {"matmul bf16", product, CLEF_BF16, .m = 13, .n = 21, .k = 7},
    {"conv2d", forward, CLEF_F32, .x = {4, {2, 6, 7, 6}}, .w = {4, {10, 3, 3, 2}},
     .options = {.stride = {2, 1}, .padding = {1, 0}, .groups = 2}},
    {"conv2d of few channels", forward, CLEF_F32, .x = {4, {2, 1, 17, 18}}, .w = {4, {6, 1, 5, 4}}},
    {"conv2d of few channels, f16", forward, CLEF_F16, .x = {4, {3, 5, 11, 10}}, .w = {4, {8, 5, 2, 3}},
     .options = {.padding = {1, 1}}, .large = true},
    {"conv2d by winograd", forward, CLEF_F32, .x = {4, {25, 72, 4, 3}}, .w = {4, {20, 72, 3, 3}}, .options = {.padding = {1, 1}},
     .large = true},
    {"conv2d by winograd, bf16", forward, CLEF_BF16, .x = {4, {33, 8, 2, 8}}, .w = {4, {20, 8, 3, 3}},
     .options = {.padding = {1, 0}}, .large = true},
    {"conv2d by winograd, wide", forward, CLEF_F32, .x = {4, {2, 32, 12, 11}}, .w = {4, {33, 32, 3, 3}},
     .options = {.padding = {1, 1}}, .large = true},
    {"conv2d, depthwise", forward, CLEF_F32, .x = {4, {3, 5, 20, 16}}, .w = {4, {5, 1, 3, 3}},
     .options = {.padding = {1, 1}, .groups = 5}},
    {"backward, depthwise", backward, CLEF_F32, .x = {4, {2, 6, 9, 23}}, .w = {4, {6, 1, 3, 3}},
     .options = {.stride = {2, 1}, .padding = {1, 1}, .groups = 6}},
    {"conv2d, grouped", forward, CLEF_F32, .x = {4, {2, 32, 9, 20}}, .w = {4, {32, 4, 3, 3}},
     .options = {.padding = {1, 1}, .groups = 8}},
    {"backward, grouped", backward, CLEF_F32, .x = {4, {1, 32, 9, 20}}, .w = {4, {32, 4, 3, 3}},
     .options = {.stride = {2, 1}, .padding = {1, 1}, .groups = 8}},
    {"backward in phases", backward, CLEF_F32, .x = {4, {2, 40, 8, 8}}, .w = {4, {6, 40, 3, 3}},
     .options = {.stride = {2, 2}, .padding = {1, 1}}},
    {"backward with pixels that no tap reaches", backward, CLEF_F32, .x = {4, {2, 40, 8, 8}}, .w = {4, {6, 40, 1, 1}},
     .options = {.stride = {2, 2}}, .apart = true},
};
enum { PRODUCTS = 12, MAKERS = sizeof makers / sizeof *makers };

/* ---- the same beside the device ---- */
/* relu: that of extra, which is computed and wants a gradient; what flows back through it passes its gate. */
static clef_tensor *follow(clef_tensor *p, int after, clef_tensor *extra, clef_tensor *relu) {
    if (after & SCALE) p = clef_mul_scalar(p, 2);
    if (after & ADD) p = clef_add(p, extra);
    if (after & GATE) {
        clef_tensor *g = p;
        clef_grad(relu, g, &extra, 1, false, &p);
    }
    if (after & RELU) p = clef_relu(p);
    return after & LEAK ? clef_leaky_relu(p, 2) : p;
}

static void follow_plain(array *p, int after, const array *extra) {
    for (int64_t i = 0; i < clef_shape_numel(p->shape); i++) {
        double v = p->v[i] * (after & SCALE ? 2 : 1) + (after & ADD ? extra->v[i] : 0);
        if (after & GATE && extra->v[i] <= 0) v = 0;
        if (after & RELU && v <= 0) v = 0;
        p->v[i] = after & LEAK && v <= 0 ? 2 * v : v;
    }
}

static int launches_of_all(clef_tensor **t, int n) {
    uint64_t before = clef_counters_get(ctx).launches;
    cr_assert_eq(clef_eval_all(t, n), CLEF_OK, "%s", clef_error(ctx));
    return (int)(clef_counters_get(ctx).launches - before);
}

static int launches_of(clef_tensor *t) { return launches_of_all(&t, 1); }

static void check(const maker *m) {
    static const int each[] = {SCALE | ADD | RELU, GATE | LEAK, SCALE | GATE | RELU, SCALE, ADD, GATE, RELU};
    size_t n = test_small() ? 2 : sizeof each / sizeof *each,
           first = few_kernels() ? (size_t)(m - makers) / (fewest_kernels() ? 2 : 1) % n : 0;
    if (few_kernels()) n = first + 1; /* one of the two, in turn */
    clef_tensor *plain = clef_keep(m->make(m, 1)), *extra = clef_keep(m->make(m, 11));
    int launches = launches_of(plain);
    launches_of(extra);
    clef_require_grad(extra, true);
    array e = from_device(extra);
    for (size_t i = first; i < n; i++) {
        char what[96];
        snprintf(what, sizeof what, "%s, then %d", m->name, each[i]);
        array want = from_device(plain);
        follow_plain(&want, each[i], &e);
        clef_tensor *relu = clef_keep(clef_relu(extra));
        launches_of(relu);
        clef_tensor *got = clef_keep(follow(m->make(m, 1), each[i], extra, relu));
        cr_expect_eq(launches_of(got), launches + m->apart, "%s: another number of launches than %d", what, launches + m->apart);
        expect_equal(got, want, what);
        clef_release(got);
        clef_release(relu);
        free(want.v);
        clef_end_step(ctx);
    }
    clef_release(plain);
    clef_release(extra);
    free(e.v);
}

static void check_some(int from, int to) {
    for (int i = from; i < to; i += fewest_kernels() ? 2 : 1)
        if (!(makers[i].large && test_small())) check(&makers[i]);
}

Test(epilogue, products) { check_some(0, PRODUCTS); }
Test(epilogue, convolutions) { check_some(PRODUCTS, MAKERS); }

/* ---- layer and RMS norm, whose results are no whole numbers ---- */

static clef_tensor *norm(bool rms, clef_tensor *x, clef_tensor *w, clef_tensor *b) {
    return rms ? clef_rms_norm(x, 1, w, 1e-5) : clef_layer_norm(x, 1, w, b, 1e-5);
}

static void check_norm(bool rms, int64_t rows, int64_t n, clef_dtype dtype, int after) {
    char what[96];
    snprintf(what, sizeof what, "%s norm of %d × %d %s, then %d", rms ? "RMS" : "layer", (int)rows, (int)n, clef_dtype_name(dtype),
             after);
    clef_tensor *x = clef_keep(to_device(ctx, noise_array(CLEF_SHAPE(rows, n), 1), dtype));
    clef_tensor *w = whole(CLEF_SHAPE(n), 2, CLEF_F32), *b = whole(CLEF_SHAPE(n), 3, CLEF_F32);
    clef_tensor *plain = clef_keep(norm(rms, x, w, b)),
                *extra = clef_keep(to_leaf(ctx, noise_array(CLEF_SHAPE(rows, n), 4), dtype));
    launches_of(x);
    int launches = launches_of(plain);
    clef_tensor *relu = clef_keep(clef_relu(extra));
    launches_of(relu);
    array want = from_device(follow(plain, after, extra, relu));
    clef_tensor *got = clef_keep(follow(norm(rms, x, w, b), after, extra, relu));
    cr_expect_eq(launches_of(got), launches, "%s: another number of launches than %d", what, launches);
    expect_equal(got, want, what);
    clef_release(x), clef_release(plain), clef_release(extra), clef_release(relu), clef_release(got);
    free(want.v);
    clef_end_step(ctx);
}

static void check_norms(bool rms) {
    static const clef_dtype each[] = {CLEF_F32, CLEF_F16, CLEF_BF16};
    for (int i = 0; i < (test_small() ? 1 : 3); i++) {
        check_norm(rms, 5, 21, each[i], SCALE | ADD | RELU);
        check_norm(rms, 7, 35, each[i], ADD | LEAK);
        check_norm(rms, 3, 64, each[i], GATE);
    }
}

Test(epilogue, layer_norm) { check_norms(false); }
Test(epilogue, rms_norm) { check_norms(true); }

/* ---- their gradients: of a kernel with several results the first one is followed ---- */

enum { X, WEIGHT };

/* As a step has them: that of x goes on, that of the weight is summed up over rows. */
static void norm_gradients(bool rms, clef_tensor *const *in, clef_tensor *g, int n, clef_tensor **dx) {
    clef_grad(norm(rms, in[X], in[WEIGHT], CLEF_NONE), g, in, n, false, dx);
}

static void check_norm_gradient(bool rms, int64_t rows, int64_t n, int wanted, int after) {
    char what[96];
    snprintf(what, sizeof what, "%s norm of %d × %d, %d gradients, then %d", rms ? "RMS" : "layer", (int)rows, (int)n, wanted,
             after);
    clef_shape shape = CLEF_SHAPE(rows, n);
    clef_tensor *in[] = {to_leaf(ctx, noise_array(shape, 1), CLEF_F32), to_leaf(ctx, noise_array(CLEF_SHAPE(n), 2), CLEF_F32)};
    clef_tensor *g = clef_keep(to_device(ctx, noise_array(shape, 3), CLEF_F32)),
                *extra = clef_keep(to_leaf(ctx, noise_array(shape, 4), CLEF_F32)), *relu = clef_keep(clef_relu(extra)), *plain[2],
                *got[2];
    launches_of(g), launches_of(relu);
    norm_gradients(rms, in, g, wanted, plain);
    for (int i = 0; i < wanted; i++) clef_keep(plain[i]);
    int launches = launches_of_all(plain, wanted);
    array want = from_device(follow(plain[X], after, extra, relu)), weight = from_device(plain[wanted - 1]);
    norm_gradients(rms, in, g, wanted, got);
    got[X] = follow(got[X], after, extra, relu);
    for (int i = 0; i < wanted; i++) clef_keep(got[i]);
    cr_expect_eq(launches_of_all(got, wanted), launches, "%s: another number of launches than %d", what, launches);
    expect_equal(got[X], want, what);
    if (wanted > 1) expect_equal(got[WEIGHT], weight, what);
    for (int i = 0; i < wanted; i++) clef_release(plain[i]), clef_release(got[i]), clef_release(in[i]);
    if (wanted == 1) clef_release(in[WEIGHT]);
    clef_release(g), clef_release(extra), clef_release(relu);
    free(want.v), free(weight.v);
    clef_end_step(ctx);
}

Test(epilogue, gradients_of_norms) {
    for (int rms = 0; rms < 2; rms++)
        for (int wanted = 1; wanted <= 2; wanted++) {
            check_norm_gradient(rms, 5, 21, wanted, ADD);
            check_norm_gradient(rms, 37, 35, wanted, SCALE | ADD | RELU);
            check_norm_gradient(rms, 3, 64, wanted, GATE);
        }
}

/* What is added is made of another result of the kernel: it cannot be there when the kernel stores. */
Test(epilogue, an_operand_made_of_another_result_stays_apart) {
    enum { M = 20, N = 24 };
    clef_tensor *in[] = {to_leaf(ctx, noise_array(CLEF_SHAPE(M, N), 1), CLEF_F32),
                         to_leaf(ctx, noise_array(CLEF_SHAPE(N), 2), CLEF_F32)};
    clef_tensor *g = clef_keep(to_device(ctx, noise_array(CLEF_SHAPE(M, N), 3), CLEF_F32)), *dx[2];
    for (int pass = 0; pass < 2; pass++) { /* with the sums made before the addition, and behind it */
        norm_gradients(false, in, g, 2, dx);
        clef_keep(dx[X]), clef_keep(dx[WEIGHT]);
        launches_of_all(dx, 2);
        clef_tensor *other = clef_keep(clef_softmax(clef_add(in[X], dx[WEIGHT]), 1));
        array want = from_device(clef_add(dx[X], other));
        clef_release(dx[X]), clef_release(dx[WEIGHT]), clef_release(other);
        norm_gradients(false, in, g, 2, dx);
        other = clef_softmax(clef_add(in[X], dx[WEIGHT]), 1);
        expect_equal(pass ? clef_add(other, dx[X]) : clef_add(dx[X], other), want, "a sum of two results");
        free(want.v);
        clef_end_step(ctx);
    }
    clef_release(in[X]), clef_release(in[WEIGHT]), clef_release(g);
}

/* ---- what keeps its own launch ---- */

/* One product more launches than the product by itself has, and the numbers are right. */
static void expect_apart(clef_tensor *got, int launches, const double *want, int64_t n, const char *what) {
    array a = {clef_tensor_shape(got), malloc((size_t)n * sizeof(double))};
    memcpy(a.v, want, (size_t)n * sizeof(double));
    clef_keep(got);
    cr_expect_eq(launches_of(got), launches, "%s", what);
    expect_equal(got, a, what);
    clef_release(got);
    free(a.v);
}

enum { ROWS = 5, COLUMNS = 6, SIZE = ROWS * COLUMNS };
static const maker little = {"little", product, CLEF_F32, .m = ROWS, .n = COLUMNS, .k = 7};

Test(epilogue, others_who_read_the_product_get_it) {
    clef_tensor *plain = clef_keep(product(&little, 1));
    int launches = launches_of(plain);
    array p = from_device(plain);
    double want[SIZE];
    for (int i = 0; i < SIZE; i++) want[i] = fmax(p.v[i], 0);
    clef_tensor *seen = clef_keep(product(&little, 1));
    expect_apart(clef_relu(seen), launches + 1, want, SIZE, "a product that is kept");
    expect_equal(seen, p, "the kept product");
    for (int i = 0; i < SIZE; i++) want[i] = fmax(p.v[i], 0) - p.v[i];
    clef_tensor *twice = product(&little, 1);
    expect_apart(clef_sub(clef_relu(twice), twice), launches + 1, want, SIZE, "a product that is read twice");
    clef_tensor *doubled = product(&little, 1);
    for (int i = 0; i < SIZE; i++) want[i] = 2 * p.v[i];
    expect_apart(clef_add(doubled, doubled), launches + 1, want, SIZE, "a product added to itself");
    clef_release(seen);
    clef_release(plain);
    free(p.v);
}

Test(epilogue, operands_of_other_shapes_or_orders_stay_apart) {
    clef_tensor *plain = clef_keep(product(&little, 1)), *row = whole(CLEF_SHAPE(COLUMNS), 5, CLEF_F32);
    clef_tensor *transposed = whole(CLEF_SHAPE(COLUMNS, ROWS), 6, CLEF_F32);
    int launches = launches_of(plain);
    array p = from_device(plain), r = from_device(row), t = from_device(transposed);
    double want[SIZE];
    for (int i = 0; i < SIZE; i++) want[i] = p.v[i] + r.v[i % COLUMNS];
    expect_apart(clef_add(product(&little, 1), row), launches + 1, want, SIZE, "one row for all");
    for (int i = 0; i < SIZE; i++) want[i] = fmax(p.v[i] + t.v[i % COLUMNS * ROWS + i / COLUMNS], 0);
    expect_apart(clef_relu(clef_add(product(&little, 1), clef_transpose(transposed, 0, 1))), launches + 1, want, SIZE,
                 "a transposed operand");
    for (int i = 0; i < SIZE; i++) want[i] = fmax(p.v[i], 0) * 2;
    expect_apart(clef_mul_scalar(clef_relu(product(&little, 1)), 2), launches + 1, want, SIZE, "a factor behind relu");
    for (int i = 0; i < SIZE; i++) want[i] = 2 * p.v[i] > 0 ? 2 * p.v[i] : p.v[i];
    expect_apart(clef_leaky_relu(clef_mul_scalar(product(&little, 1), 2), 0.5), launches + 1, want, SIZE, "a factor, then another");
    for (int i = 0; i < SIZE; i++) want[i] = fmax(p.v[i], 0);
    clef_tensor *view = clef_reshape(product(&little, 1), CLEF_SHAPE(SIZE));
    expect_apart(clef_relu(view), launches + 1, want, SIZE, "relu of a view");
    free(p.v), free(r.v), free(t.v);
    clef_release(plain);
}

/* What is added comes from pointwise ops of its own, or from another product. */
Test(epilogue, sums_of_two) {
    clef_tensor *plain = clef_keep(product(&little, 1)), *other = clef_keep(product(&little, 11)),
                *x = whole(CLEF_SHAPE(ROWS, COLUMNS), 3, CLEF_F32);
    int launches = launches_of(plain);
    launches_of(other);
    array p = from_device(plain), q = from_device(other), v = from_device(x);
    double want[SIZE];
    for (int i = 0; i < SIZE; i++) want[i] = p.v[i] + v.v[i] * v.v[i];
    expect_apart(clef_add(product(&little, 1), clef_square(x)), launches + 1, want, SIZE, "a square that nobody else reads");
    for (int i = 0; i < SIZE; i++) want[i] = fmax(p.v[i] + q.v[i], 0);
    expect_apart(clef_relu(clef_add(product(&little, 1), product(&little, 11))), 2 * launches, want, SIZE, "two products");
    free(p.v), free(q.v), free(v.v);
    clef_release(plain);
    clef_release(other);
}

Test(epilogue, none_without_fusing) {
    setenv("CLEF_FUSE", "0", 1);
    clef_tensor *plain = clef_keep(product(&little, 1));
    int launches = launches_of(plain);
    array p = from_device(plain);
    double want[SIZE];
    for (int i = 0; i < SIZE; i++) want[i] = fmax(2 * p.v[i], 0);
    expect_apart(clef_relu(clef_mul_scalar(product(&little, 1), 2)), launches + 2, want, SIZE, "every op by itself");
    free(p.v);
    clef_release(plain);
    unsetenv("CLEF_FUSE");
}

Test(epilogue, launches_say_what_follows) {
    clef_tensor *e = whole(CLEF_SHAPE(ROWS, COLUMNS), 3, CLEF_F32);
    const char *text = plan_text(clef_relu(clef_add(clef_mul_scalar(product(&little, 1), 2), e)));
    cr_expect(strstr(text, "matmul + mul + add + relu"), "%s", text);
    text = plan_text(clef_leaky_relu(clef_layer_norm(e, 1, CLEF_NONE, CLEF_NONE, 1e-5), 0.1));
    cr_expect(strstr(text, "layer_norm + leaky_relu"), "%s", text);
}

/* Factors change from step to step without another plan. */
Test(epilogue, factors_are_read_anew) {
    clef_tensor *plain = clef_keep(product(&little, 1));
    launches_of(plain);
    array p = from_device(plain);
    for (int step = 1; step < 4; step++) {
        uint64_t plans = clef_counters_get(ctx).plans;
        array want = array_new(p.shape);
        for (int i = 0; i < SIZE; i++) want.v[i] = p.v[i] * step * 0.5;
        expect_equal(clef_mul_scalar(product(&little, 1), step * 0.5), want, "a product times a number");
        if (step > 1) cr_expect_eq(clef_counters_get(ctx).plans, plans);
        free(want.v);
    }
    free(p.v);
    clef_release(plain);
}
