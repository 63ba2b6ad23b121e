/* Pointwise ops that a reduction computes where it reads: the same numbers as by launches of their own, without one of them; and
   what somebody else reads, or what does not lie alike, still comes by a launch. ctest: cost=20 */
#include "support/exact.h"
#include "support/suite.h"

TestSuite(prologue, .init = open_device, .fini = close_device);

enum { A = 6, B = 43, C = 70, SIZE = A * B * C }; /* long enough to be worth it in every dtype of two bytes and more */

static clef_tensor *whole(clef_shape shape, uint64_t salt, clef_dtype dtype) {
    array a = whole_array(shape, salt, 3);
    clef_tensor *t = clef_keep(to_device(ctx, a, dtype));
    cr_assert_eq(clef_eval(t), CLEF_OK, "%s", clef_error(ctx));
    free(a.v);
    return t;
}

static int launches_of(clef_tensor *t) {
    uint64_t before = clef_counters_get(ctx).launches;
    cr_assert_eq(clef_eval(t), CLEF_OK, "%s", clef_error(ctx));
    return (int)(clef_counters_get(ctx).launches - before);
}

/* ---- formulas, on the device and beside it ---- */
typedef struct formula {
    const char *name;
    clef_tensor *(*on_device)(clef_tensor *x, clef_tensor *y);
    double (*plain)(double x, double y);
} formula;

static clef_tensor *square(clef_tensor *x, clef_tensor *y) { return (void)y, clef_square(x); }
static double plain_square(double x, double y) { return (void)y, x * x; }
static clef_tensor *triple(clef_tensor *x, clef_tensor *y) { return (void)y, clef_mul_scalar(x, 3); }
static double plain_triple(double x, double y) { return (void)y, 3 * x; }
static clef_tensor *both(clef_tensor *x, clef_tensor *y) { return clef_mul(x, y); }
static double plain_both(double x, double y) { return x * y; }
static clef_tensor *apart(clef_tensor *x, clef_tensor *y) { return clef_square(clef_sub(x, clef_abs(y))); }
static double plain_apart(double x, double y) { return (x - fabs(y)) * (x - fabs(y)); }
static clef_tensor *chosen(clef_tensor *x, clef_tensor *y) { return clef_where(clef_gt(x, y), x, clef_add_scalar(y, 2)); }
static double plain_chosen(double x, double y) { return x > y ? x : y + 2; }
static const formula formulas[] = {{"x²", square, plain_square},
                                   {"3x", triple, plain_triple},
                                   {"x·y", both, plain_both},
                                   {"(x - |y|)²", apart, plain_apart},
                                   {"x > y ? x : y + 2", chosen, plain_chosen}};
enum { FORMULAS = sizeof formulas / sizeof *formulas };

/* ---- reductions ---- */
typedef enum what { SUM, MEAN, LARGEST } what;

static clef_tensor *reduce(what w, clef_tensor *x, const int *dims, int n) {
    return w == SUM ? clef_sum(x, dims, n, true) : w == MEAN ? clef_mean(x, dims, n, true) : clef_max(x, dims, n, true);
}

/* Elements of the result in order; dims: bits. */
static array reduce_plain(what w, const double *v, int dims) {
    const int64_t size[3] = {A, B, C};
    int64_t count = 1, out[3];
    for (int d = 0; d < 3; d++) {
        out[d] = dims >> d & 1 ? 1 : size[d];
        count *= size[d] / out[d];
    }
    array y = array_new(CLEF_SHAPE(out[0], out[1], out[2]));
    for (int64_t i = 0; w == LARGEST && i < clef_shape_numel(y.shape); i++) y.v[i] = -1e30;
    for (int64_t i = 0; i < SIZE; i++) {
        int64_t at = ((i / C / B % out[0]) * out[1] + i / C % B % out[1]) * out[2] + i % C % out[2];
        y.v[at] = w == LARGEST ? fmax(y.v[at], v[i]) : y.v[at] + v[i];
    }
    for (int64_t i = 0; w == MEAN && i < clef_shape_numel(y.shape); i++) y.v[i] = (float)(y.v[i] / (double)count);
    return y;
}

/* The element of y that goes with element i of [A, B, C]. */
static int64_t repeated(clef_shape y, int64_t i) {
    const int64_t index[3] = {i / C / B, i / C % B, i % C};
    int64_t at = 0;
    for (int d = 0; d < y.rank; d++) at = at * y.dim[d] + (y.dim[d] > 1 ? index[d + 3 - y.rank] : 0);
    return at;
}

/* more: launches that the formula takes besides the reduction. */
static void check(const formula *f, what w, int dims, clef_tensor *x, clef_tensor *y, int more, const char *name) {
    int dim[3], n = 0;
    for (int d = 0; d < 3; d++)
        if (dims >> d & 1) dim[n++] = d;
    char text[128];
    snprintf(text, sizeof text, "%s of %s over %d, %s", w == SUM ? "sum" : w == MEAN ? "mean" : "max", f->name, dims, name);
    array a = from_device(x), b = from_device(y), v = array_new(CLEF_SHAPE(A, B, C));
    for (int64_t i = 0; i < SIZE; i++) v.v[i] = f->plain(a.v[i], b.v[repeated(b.shape, i)]);
    array want = reduce_plain(w, v.v, dims);
    clef_tensor *plain = clef_keep(reduce(w, x, dim, n)), *got = clef_keep(reduce(w, f->on_device(x, y), dim, n));
    int launches = launches_of(plain);
    cr_expect_eq(launches_of(got), launches + more, "%s: another number of launches than %d", text, launches + more);
    expect_equal(got, want, text);
    clef_release(plain), clef_release(got);
    free(a.v), free(b.v), free(v.v), free(want.v);
    clef_end_step(ctx);
}

Test(prologue, formulas_over_all_kinds_of_dimensions) {
    static const int dims[] = {1, 2, 4, 7, 3, 6, 5};
    clef_tensor *x = whole(CLEF_SHAPE(A, B, C), 1, CLEF_F32), *y = whole(CLEF_SHAPE(A, B, C), 2, CLEF_F32);
    for (int i = 0; i < (fewest_kernels() ? 2 : few_kernels() ? 4 : 7); i++)
        check(&formulas[i % FORMULAS], SUM, dims[i], x, y, 0, "f32");
    if (test_small()) return;
    for (int f = 2; f < FORMULAS; f++) check(&formulas[f], LARGEST, f < 4 ? 4 : 1, x, y, 0, "f32");
    check(&formulas[3], MEAN, 7, x, y, 0, "f32");
}

/* What a dtype holds of a value it holds in a register as well. */
Test(prologue, dtypes) {
    static const clef_dtype each[] = {CLEF_F16, CLEF_BF16, CLEF_I32};
    for (int i = 0; i < (fewest_kernels() ? 1 : 3); i++) {
        clef_tensor *x = whole(CLEF_SHAPE(A, B, C), 1, each[i]), *y = whole(CLEF_SHAPE(A, B, C), 2, each[i]);
        if (!few_kernels()) check(&formulas[3], LARGEST, 2, x, y, 0, clef_dtype_name(each[i]));
        check(&formulas[2], LARGEST, 4, x, y, 0, clef_dtype_name(each[i]));
    }
    clef_tensor *x = whole(CLEF_SHAPE(A, B, C), 1, CLEF_I32);
    check(&formulas[0], SUM, 4, x, x, 0, "i32 into i64");
    if (few_kernels()) return;
    array big = array_new(CLEF_SHAPE(2, 8192)), want = array_new(CLEF_SHAPE(2, 1));
    for (int i = 0; i < 2 * 8192; i++) big.v[i] = 300; /* whose square f16 does not hold: it is infinite in a register too */
    want.v[0] = want.v[1] = INFINITY;
    expect_equal(clef_max(clef_square(to_device(ctx, big, CLEF_F16)), (const int[]){1}, 1, true), want, "300² in f16");
}

/* An operand that repeats is read where it lies, as long as it is one number or dense all along what a vector may reach. */
Test(prologue, operands_that_repeat) {
    static const struct {
        clef_shape shape;
        int here[5], n_here, apart[3], n_apart;
    } each[] = {
        {{1, {C}}, {4, 3, 5, 2}, 4, {1, 7, 6}, 3}, {{2, {B, 1}}, {4, 2, 3}, 3, {1, 7}, 2}, {{2, {B, C}}, {1, 6, 4}, 3, {7}, 1},
        {{3, {A, 1, 1}}, {1, 4, 6}, 3, {7}, 1},    {{1, {1}}, {7, 4}, 2, {0}, 0},          {{3, {A, 1, C}}, {0}, 0, {4, 2}, 2},
    };
    clef_tensor *x = whole(CLEF_SHAPE(A, B, C), 1, CLEF_F32);
    char name[96];
    for (size_t i = 0; i < sizeof each / sizeof *each; i += fewest_kernels() ? 2 : 1) {
        clef_tensor *y = whole(each[i].shape, 2, CLEF_F32);
        clef_shape_format(each[i].shape, name, sizeof name);
        for (int k = 0; k < each[i].n_here; k++)
            if (k < 1 || !test_small()) check(&formulas[2], SUM, each[i].here[k], x, y, 0, name);
        for (int k = 0; k < each[i].n_apart && !test_small(); k++) check(&formulas[2], SUM, each[i].apart[k], x, y, 1, name);
    }
    clef_tensor *half = whole(CLEF_SHAPE(A, B, C), 1, CLEF_F16), *row = whole(CLEF_SHAPE(C), 2, CLEF_F16);
    check(&formulas[2], LARGEST, 4, half, row, 0, "f16");
}

/* Where tensors do not lie alike their formula has a launch of its own. */
Test(prologue, other_layouts_come_by_a_launch) {
    clef_tensor *x = whole(CLEF_SHAPE(A, B, C), 1, CLEF_F32);
    clef_tensor *transposed = whole(CLEF_SHAPE(C, B, A), 3, CLEF_F32);
    clef_tensor *y = clef_keep(clef_permute(transposed, (const int[]){2, 1, 0}));
    check(&formulas[2], SUM, 4, x, y, 1, "one of them transposed");
    clef_tensor *z = clef_keep(clef_permute(transposed, (const int[]){2, 1, 0}));
    check(&formulas[2], SUM, 4, z, y, 0, "both transposed");
}

static void expect_launches(clef_tensor *t, int launches, const char *text) {
    clef_keep(t);
    cr_expect_eq(launches_of(t), launches, "%s", text);
    clef_release(t);
}

Test(prologue, others_who_read_the_formula_get_it) {
    clef_tensor *x = whole(CLEF_SHAPE(A, B, C), 1, CLEF_F32), *plain = clef_keep(clef_sum(x, NULL, 0, false));
    int launches = launches_of(plain);
    clef_tensor *seen = clef_keep(clef_square(x));
    array v = from_device(x);
    for (int64_t i = 0; i < SIZE; i++) v.v[i] *= v.v[i];
    expect_launches(clef_sum(seen, NULL, 0, false), launches + 1, "a square that is kept");
    expect_equal(seen, v, "the kept square");
    clef_tensor *twice = clef_square(clef_add_scalar(x, 1));
    expect_launches(clef_add(clef_sum(twice, NULL, 0, false), clef_max(twice, NULL, 0, false)), 2 * launches + 2,
                    "a square that two reduce");
    clef_tensor *view = clef_reshape(clef_square(clef_add_scalar(x, 2)), CLEF_SHAPE(SIZE));
    expect_launches(clef_sum(view, NULL, 0, false), launches + 1, "a view of a square");
    clef_tensor *little = whole(CLEF_SHAPE(3, 5), 1, CLEF_F32);
    expect_launches(clef_sum(clef_square(little), NULL, 0, false), 2, "few elements");
    free(v.v);
}

Test(prologue, launches_say_what_precedes) {
    clef_tensor *x = whole(CLEF_SHAPE(A, B, C), 1, CLEF_F32);
    const char *text = plan_text(clef_sum(clef_square(clef_abs(x)), (const int[]){2}, 1, false));
    cr_expect(strstr(text, "abs + square + sum"), "%s", text);
}

/* A kernel for each formula takes long to compile, so a plan has no more than some. */
Test(prologue, no_more_formulas_than_are_worth_it) {
    enum { MANY = 10, MOST = 8 };
    clef_tensor *x = whole(CLEF_SHAPE(A, B, C), 1, CLEF_F32), *plain = clef_keep(clef_sum(x, (const int[]){2}, 1, true)),
                *sum[MANY];
    int launches = launches_of(plain);
    if (test_small()) return;
    for (int i = 0; i < MANY; i++) {
        clef_tensor *y = x;
        for (int k = 0; k <= i; k++) y = clef_neg(y);
        sum[i] = clef_keep(clef_sum(y, (const int[]){2}, 1, true));
    }
    uint64_t before = clef_counters_get(ctx).launches;
    cr_assert_eq(clef_end_step(ctx), CLEF_OK);
    int all = (int)(clef_counters_get(ctx).launches - before);
    cr_expect_geq(all, MANY * launches + 1, "%d launches", all);
    cr_expect_leq(all, MANY * launches + MANY - MOST, "%d launches", all);
    for (int i = 0; i < MANY; i++) {
        array want = from_device(plain);
        for (int64_t k = 0; k < A * B; k++) want.v[k] *= i % 2 ? 1 : -1;
        expect_equal(sum[i], want, "negated");
        free(want.v);
    }
}

Test(prologue, none_without_fusing) {
    setenv("CLEF_FUSE", "0", 1);
    clef_tensor *x = whole(CLEF_SHAPE(A, B, C), 1, CLEF_F32), *plain = clef_keep(clef_sum(x, NULL, 0, false));
    int launches = launches_of(plain);
    expect_launches(clef_sum(clef_square(x), NULL, 0, false), launches + 1, "every op by itself");
    unsetenv("CLEF_FUSE");
}

/* What two reductions read of a deviation each computes anew: its tensor would lie in memory. */
Test(prologue, deviations_are_computed_where_they_are_read) {
    clef_tensor *x = whole(CLEF_SHAPE(A, B, C), 1, CLEF_F32);
    array v = from_device(x);
    double mean = 0, squares = 0;
    for (int i = 0; i < SIZE; i++) mean += v.v[i] / SIZE;
    for (int i = 0; i < SIZE; i++) squares += (v.v[i] - mean) * (v.v[i] - mean);
    free(v.v);
    cr_expect_float_eq(clef_item(clef_std(x, NULL, 0, false, 1)), sqrt(squares / (SIZE - 1)), 1e-5);
    cr_expect_float_eq(clef_item(clef_var(x, NULL, 0, false, 0)), squares / SIZE, 1e-5);
    const char *text = plan_text(clef_std(x, NULL, 0, false, 1));
    cr_expect(strstr(text, "mul + sub + sub + abs + max") && strstr(text, "mul + sub + sub + div + square + sum"), "%s", text);
    text = plan_text(clef_var(x, (const int[]){2}, 1, false, 1));
    cr_expect(strstr(text, "sub + sub + abs + max") && strstr(text, "sub + sub + div + mul + sum"), "%s", text);
}
