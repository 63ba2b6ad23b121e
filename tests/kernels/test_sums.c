/* test_sums.c — the two sums behind normalisation, and their gradients: whole numbers, so every bit must be right, however the
   operands lie and wherever the work is cut. */
#include "ops/ops.h"
#include "support/device.h"
#include "support/exact.h"

#include <criterion/criterion.h>

static clef_context *ctx;
static void open_device(void) { ctx = open_seeded(1); }
static void close_device(void) { clef_close(ctx); }
TestSuite(sums, .init = open_device, .fini = close_device);

/* Element of m's shape that element i of x belongs to. */
static int64_t kept_index(clef_shape x, clef_shape m, int64_t i) {
    int64_t at = 0, scale = 1;
    for (int d = x.rank - 1; d >= 0; d--) {
        if (m.dim[d] != 1) at += i % x.dim[d] * scale, scale *= m.dim[d];
        i /= x.dim[d];
    }
    return at;
}

/* s0 = Σ a, s1 = Σ a (x − m); where t and u weigh them, dx, dm and dg of Σ t s0 + u s1. */
typedef struct answer {
    array s0, s1, dx, dm, dg;
} answer;

static answer reference(array x, array m, const array *g, array t, array u) {
    answer r = {array_new(m.shape), array_new(m.shape), array_new(x.shape), array_new(m.shape), array_new(x.shape)};
    int64_t n = clef_shape_numel(x.shape);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = kept_index(x.shape, m.shape, i);
        double far = x.v[i] - m.v[k], a = g ? g->v[i] : far;
        r.s0.v[k] += a;
        r.s1.v[k] += a * far;
        r.dg.v[i] = t.v[k] + u.v[k] * far;
        r.dx.v[i] = g ? u.v[k] * a : t.v[k] + 2 * u.v[k] * far;
        r.dm.v[k] -= r.dx.v[i];
    }
    return r;
}

/* x with its dimensions in another order in memory. */
static clef_tensor *channels_last(clef_tensor *x) {
    int to[CLEF_MAX_RANK], back[CLEF_MAX_RANK], rank = clef_tensor_shape(x).rank;
    for (int i = 0; i < rank; i++) to[i] = i == 0 ? 0 : i == rank - 1 ? 1 : i + 1;
    for (int i = 0; i < rank; i++) back[to[i]] = i;
    return clef_permute(clef_copy(clef_permute(x, to)), back);
}

static void check(clef_shape shape, clef_shape kept, bool with, bool last, clef_dtype dtype) {
    char what[160];
    snprintf(what, sizeof what, "%s of %s over %s%s", with ? "g and x" : "x", clef__shape_text(shape), clef__shape_text(kept),
             last ? ", channels last" : "");
    array x = whole_array(shape, 1, 4), g = whole_array(shape, 2, 3), m = whole_array(kept, 3, 2), t = whole_array(kept, 4, 2),
          u = whole_array(kept, 5, 2);
    answer want = reference(x, m, with ? &g : NULL, t, u);
    clef_tensor *in[3] = {to_leaf(ctx, x, dtype), to_leaf(ctx, m, dtype), to_leaf(ctx, g, dtype)}, *s0, *s1, *d[3];
    clef_tensor *a = last ? channels_last(in[0]) : clef_mul_scalar(in[0], 1);
    cr_assert(clef__pair_of_sums(with ? in[2] : NULL, a, in[1], &s0, &s1), "%s: %s", what, clef_error(ctx));
    expect_equal(s0, want.s0, what);
    expect_equal(s1, want.s1, what);
    clef_tensor *all = clef_add(clef_sum(clef_mul(s0, to_device(ctx, t, dtype)), NULL, 0, false),
                                clef_sum(clef_mul(s1, to_device(ctx, u, dtype)), NULL, 0, false));
    cr_assert_eq(clef_grad(all, CLEF_NONE, in, with ? 3 : 2, false, d), CLEF_OK, "%s: %s", what, clef_error(ctx));
    expect_equal(d[0], want.dx, what);
    expect_equal(d[1], want.dm, what);
    if (with) expect_equal(d[2], want.dg, what);
    const array used[] = {x, g, m, t, u, want.s0, want.s1, want.dx, want.dm, want.dg};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++) free(used[i].v);
    for (int i = 0; i < 3; i++) clef_release(in[i]);
    clef_end_step(ctx);
}

Test(sums, over_all_but_the_channels) {
    static const int64_t sizes[][4] = {{2, 3, 4, 5},  {3, 17, 1, 2},  {2, 40, 3, 3},  {1, 1, 1, 1},
                                       {5, 16, 9, 7}, {33, 1, 3, 21}, {4, 70, 20, 20}};
    for (size_t i = 0; i < (test_small() ? 3 : sizeof sizes / sizeof *sizes); i++)
        for (int form = 0; form < 4; form++)
            check(CLEF_SHAPE(sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]), CLEF_SHAPE(1, sizes[i][1], 1, 1), form & 1,
                  form & 2, CLEF_F32);
}

Test(sums, over_the_last_dimensions) {
    for (int form = 0; form < 2; form++) {
        check(CLEF_SHAPE(5, 37), CLEF_SHAPE(5, 1), form, false, CLEF_F32);
        check(CLEF_SHAPE(3, 131), CLEF_SHAPE(3, 1), form, false, CLEF_F32); /* on a GPU a row by a work-group */
        check(CLEF_SHAPE(3, 2, 5, 7), CLEF_SHAPE(3, 2, 1, 1), form, false, CLEF_F32);
        check(CLEF_SHAPE(3, 4, 5, 7), CLEF_SHAPE(3, 1, 1, 1), form, true, CLEF_F32);
        if (!test_small()) check(CLEF_SHAPE(2, 30011), CLEF_SHAPE(2, 1), form, false, CLEF_F32);
    }
}

/* Lines longer than a strip, and more than go together. */
Test(sums, over_long_lines) {
    int64_t n = test_small() ? 130 : 530, wide = test_small() ? 515 : 2077;
    array x = whole_array(CLEF_SHAPE(n, wide), 1, 4), sum = array_new(CLEF_SHAPE(wide)), most = array_new(CLEF_SHAPE(wide));
    for (int64_t c = 0; c < wide; c++) most.v[c] = x.v[c];
    for (int64_t i = 0; i < n * wide; i++) {
        sum.v[i % wide] += x.v[i];
        if (x.v[i] > most.v[i % wide]) most.v[i % wide] = x.v[i];
    }
    expect_equal(clef_sum(to_device(ctx, x, CLEF_F32), (int[]){0}, 1, false), sum, "sum of rows");
    expect_equal(clef_max(to_device(ctx, x, CLEF_F32), (int[]){0}, 1, false), most, "largest of rows");
    free(x.v), free(sum.v), free(most.v);
    if (!test_small())
        for (int with = 0; with < 2; with++) check(CLEF_SHAPE(n, wide), CLEF_SHAPE(1, wide), with, false, CLEF_F32);
}

/* Columns that a team shares on a GPU, of all widths about those that fit it, and too short, just as long and longer than it takes. */
Test(sums, over_columns_of_any_size) {
    static const int64_t widths[] = {3, 33, 1, 2, 4, 5, 6, 7, 8, 9, 31, 130}, lines[] = {65, 16, 1000, 1, 2, 15, 63, 64, 257};
    int n_widths = test_small() ? 2 : 12, n_lines = test_small() ? 2 : 9;
    for (int i = 0; i < n_widths * n_lines; i++) {
        int64_t inner = widths[i / n_lines], n = lines[i % n_lines], outer = i % 3 ? 1 : 2;
        check(CLEF_SHAPE(outer, n, inner), CLEF_SHAPE(outer, 1, inner), i & 1, false, CLEF_F32);
    }
    if (!test_small())
        for (int with = 0; with < 2; with++) {
            check(CLEF_SHAPE(57600, 6), CLEF_SHAPE(1, 6), with, false, CLEF_F32);
            check(CLEF_SHAPE(40, 5000), CLEF_SHAPE(1, 5000), with, false, CLEF_F32);
        }
}

Test(sums, over_dimensions_that_alternate) {
    for (int form = 0; form < 4; form++) {
        check(CLEF_SHAPE(3, 4, 5, 6), CLEF_SHAPE(1, 4, 1, 6), form & 1, form & 2, CLEF_F32);
        check(CLEF_SHAPE(3, 4, 5, 6), CLEF_SHAPE(3, 1, 5, 1), form & 1, form & 2, CLEF_F32);
    }
}

Test(sums, in_double_precision) {
    clef_device_info info;
    if (!clef_context_device(ctx, 0, &info) || !info.f64) cr_skip_test("this device has no f64");
    check(CLEF_SHAPE(2, 19, 4, 5), CLEF_SHAPE(1, 19, 1, 1), true, true, CLEF_F64);
    check(CLEF_SHAPE(5, 37), CLEF_SHAPE(5, 1), false, false, CLEF_F64);
    check(CLEF_SHAPE(70, 19), CLEF_SHAPE(1, 19), true, false, CLEF_F64);
}

/* What parts of a long column left is summed in one launch, of both. */
Test(sums, both_are_joined_at_once) {
    if (getenv("CLEF_EAGER")) cr_skip_test("counts the launches of a plan");
    clef_shape shape = CLEF_SHAPE(57600, 6), kept = CLEF_SHAPE(1, 6);
    clef_tensor *x = noise_tensor(ctx, shape, 1), *m = noise_tensor(ctx, kept, 2), *s0, *s1;
    cr_assert_eq(clef_eval(x), CLEF_OK);
    cr_assert_eq(clef_eval(m), CLEF_OK);
    cr_assert(clef__pair_of_sums(NULL, x, m, &s0, &s1));
    uint64_t before = clef_counters_get(ctx).launches;
    cr_assert_eq(clef_eval(clef_concat((clef_tensor *[]){s0, s1}, 2, 0)), CLEF_OK);
    cr_expect_leq(clef_counters_get(ctx).launches - before, 2 + 2, "the parts, their sums, and two copies");
}

/* What cannot be is an error line, never a write. */
Test(sums, of_shapes_that_contradict) {
    clef_tensor *x = clef_zeros(ctx, CLEF_SHAPE(2, 3, 4), CLEF_F32), *s0, *s1;
    const clef_shape wrong[] = {CLEF_SHAPE(3, 1),    CLEF_SHAPE(3),       CLEF_SCALAR,
                                CLEF_SHAPE(2, 3, 4), CLEF_SHAPE(1, 2, 1), CLEF_SHAPE(1, 1, 3, 1)};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect(!clef__pair_of_sums(NULL, x, clef_zeros(ctx, wrong[i], CLEF_F32), &s0, &s1), "%s", clef__shape_text(wrong[i]));
        expect_error(ctx, CLEF_INTERNAL, "centred_sums: clef bug");
    }
    cr_expect(!clef__pair_of_sums(clef_zeros(ctx, CLEF_SHAPE(2, 3), CLEF_F32), x, clef_zeros(ctx, CLEF_SHAPE(1, 3, 1), CLEF_F32),
                                  &s0, &s1));
    expect_error(ctx, CLEF_INTERNAL, "sums_with: clef bug");
}

/* A gradient of a gradient: d²/dx² of Σ u (x − m)² is 2 u, by way of both ops. */
Test(sums, differentiate_twice) {
    array x = whole_array(CLEF_SHAPE(2, 3, 4), 1, 4), m = whole_array(CLEF_SHAPE(1, 3, 1), 2, 2), want = array_new(x.shape);
    clef_tensor *p = to_leaf(ctx, x, CLEF_F32), *s0, *s1, *d, *dd;
    cr_assert(clef__pair_of_sums(NULL, p, to_device(ctx, m, CLEF_F32), &s0, &s1));
    cr_assert_eq(clef_grad(clef_sum(s1, NULL, 0, false), CLEF_NONE, &p, 1, true, &d), CLEF_OK, "%s", clef_error(ctx));
    cr_assert(clef__pair_of_sums(d, p, to_device(ctx, m, CLEF_F32), &s0, &s1)); /* Σ 2 (x − m)² */
    cr_assert_eq(clef_grad(clef_sum(s1, NULL, 0, false), CLEF_NONE, &p, 1, false, &dd), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < 24; i++) want.v[i] = 4 * (x.v[i] - m.v[i / 4 % 3]);
    expect_equal(dd, want, "second derivative");
    free(x.v), free(m.v), free(want.v);
}
