/* Numbers that move: windows read and written at a place that is another in each step, with one plan; and writing them in place, which
   no reader of the old value may notice.
   ctest: cost=40 together plain */
#include "clef/opencl.h"
#include "support/modes.h"
#include "support/numbers.h"

static clef_context *ctx;
static void open_device(void) { ctx = open_seeded(1); }
static void close_device(void) { close_clean(ctx); }
TestSuite(moving, .init = open_device, .fini = close_device);

/* ---- helpers ---- */

static clef_tensor *place(int64_t i) { return clef_integer(ctx, i); }
static clef_tensor *row(int64_t n, float first) {
    float data[64];
    for (int64_t i = 0; i < n; i++) data[i] = first + (float)i;
    return clef_from_host(ctx, CLEF_SHAPE(n), CLEF_F32, data);
}
/* A kept tensor 1, 2, …, computed. */
static clef_tensor *cache(int64_t n) {
    clef_tensor *t = clef_keep(row(n, 1));
    cr_assert_eq(clef_end_step(ctx), CLEF_OK);
    return t;
}
static void expect_values(clef_tensor *t, int n, const float *wanted) {
    float got[64] = {0};
    cr_assert_eq(clef_read(t, got, (size_t)n * sizeof *got), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < n; i++) cr_assert_eq(got[i], wanted[i], "element %d is %g, not %g", i, got[i], wanted[i]);
}
#define EXPECT(t, ...) expect_values(t, (int)(sizeof((float[]){__VA_ARGS__}) / sizeof(float)), (float[]){__VA_ARGS__})
#define OK(call) cr_assert_eq(call, CLEF_OK, "%s", clef_error(ctx))

/* How often the plan that t would get updates in place. */
static int updates_in_place(clef_tensor *t) {
    int n = 0;
    for (const char *at = plan_text(t); (at = strstr(at, "updated in place")); at++) n++;
    return n;
}
static void expect_in_place(clef_tensor *t, int launches) {
    char line[64];
    snprintf(line, sizeof line, ": %d launches", launches);
    cr_assert(updates_in_place(t) > 0, "not in place: %s", plan_text(t));
    cr_assert(strstr(plan_text(t), line), "not %d launches: %s", launches, plan_text(t));
}

/* ---- exact integers ---- */

Test(moving, integers_are_exact) {
    static const int64_t numbers[] = {0, -1, INT64_MAX, INT64_MIN, INT64_MAX - 1, (1LL << 53) + 1, -(1LL << 60) - 7};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int64_t got = 5, copy = 5;
        float f = 0;
        clef_tensor *n = clef_integer(ctx, numbers[i]), *data = clef_from_host(ctx, CLEF_SCALAR, CLEF_I64, &numbers[i]);
        OK(clef_read(n, &got, sizeof got));
        OK(clef_read(clef_minimum(clef_integer(ctx, numbers[i]), data), &copy, sizeof copy));
        cr_assert_eq(got, numbers[i]);
        OK(clef_read(clef_to(clef_integer(ctx, numbers[i]), CLEF_F32), &f, sizeof f));
        cr_assert_eq(f, (float)numbers[i]);
        cr_assert_eq(copy, numbers[i]);
        clef_end_step(ctx);
    }
    cr_assert_eq(clef_counters_get(ctx).plans, 3, "every number has the same plans");
}

Test(moving, equal_numbers_of_two_constants_are_not_merged) { /* tomorrow they differ */
    clef_tensor *t = cache(6);
    uint64_t plans = 0;
    for (int i = 0; i < 4; i++) {
        clef_tensor *a = clef_slice_at(t, 0, place(1), 2), *b = clef_slice_at(t, 0, place(1 + i), 2);
        EXPECT(clef_add(a, clef_mul_scalar(b, 10)), 2 + 10 * (2.f + (float)i), 3 + 10 * (3.f + (float)i));
        clef_end_step(ctx);
        if (i == 0) plans = clef_counters_get(ctx).plans;
    }
    cr_assert_eq(clef_counters_get(ctx).plans, plans);
    clef_tensor *at = place(2), *a = clef_slice_at(t, 0, at, 2), *b = clef_slice_at(t, 0, at, 2), *sum = clef_add(a, b);
    cr_assert(strstr(plan_text(sum), ": 2 launches"), "one number, one window: %s", plan_text(sum));
    EXPECT(sum, 6, 8);
}

Test(moving, a_count_masks_without_a_new_plan) {
    clef_tensor *x = cache(5);
    uint64_t plans = 0;
    for (int n = 1; n <= 5; n++) {
        clef_tensor *seen = clef_lt(clef_arange(ctx, 0, 5, 1, CLEF_I64), clef_integer(ctx, n));
        float *p = values(clef_softmax(clef_where(seen, x, clef_full(ctx, CLEF_SCALAR, CLEF_F32, -INFINITY)), 0));
        double sum = 0;
        for (int i = 0; i < n; i++) sum += exp(i);
        for (int i = 0; i < 5; i++) cr_expect_float_eq(p[i], i < n ? exp(i) / sum : 0, 1e-6);
        free(p);
        clef_end_step(ctx);
        if (n == 1) plans = clef_counters_get(ctx).plans;
    }
    cr_assert_eq(clef_counters_get(ctx).plans, plans);
}

/* ---- in place, or a copy where the old value is wanted ---- */

Test(moving, an_assignment_writes_its_window_only) {
    clef_tensor *t = cache(6);
    for (int i = 0; i < 4; i++) {
        OK(clef_assign_at(t, 0, place(i), row(2, 100.f * (float)i)));
        expect_in_place(t, 1);
        OK(clef_end_step(ctx));
    }
    EXPECT(t, 0, 100, 200, 300, 301, 6);
}

Test(moving, several_in_one_step_are_all_in_place) {
    clef_tensor *t = cache(6);
    OK(clef_assign_at(t, 0, place(1), row(1, 20)));
    OK(clef_assign_at(t, 0, place(2), row(1, 30)));
    OK(clef_assign_at(t, 0, place(1), row(3, 70)));
    expect_in_place(t, 3);
    EXPECT(t, 1, 70, 71, 72, 5, 6);
}

Test(moving, readers_of_the_old_value_run_before_and_of_the_new_after) {
    clef_tensor *t = cache(6), *twice = clef_mul_scalar(clef_slice(t, 0, 1, 4, 1), 2), *old = clef_sum(t, NULL, 0, false);
    OK(clef_assign_at(t, 0, place(1), row(3, 100)));
    clef_tensor *both = clef_add(twice, clef_slice(t, 0, 1, 4, 1)), *new = clef_sum(t, NULL, 0, false);
    clef_tensor *all = clef_add(both, clef_add(clef_mul_scalar(old, 1000), clef_mul_scalar(new, 100000)));
    cr_assert(updates_in_place(all), "%s", plan_text(all));
    float rest = 21 * 1000 + 315 * 100000.f;
    EXPECT(all, 104 + rest, 107 + rest, 110 + rest);
    EXPECT(t, 1, 100, 101, 102, 5, 6);
}

Test(moving, a_reader_made_later_of_the_old_value_runs_before_too) {
    clef_tensor *t = cache(4), *old = clef_detach(t);
    OK(clef_assign_at(t, 0, place(0), row(2, 50)));
    clef_tensor *y[] = {t, clef_add_scalar(old, 1000)};
    OK(clef_eval_all(y, 2));
    EXPECT(t, 50, 51, 3, 4);
    EXPECT(y[1], 1001, 1002, 1003, 1004);
}

Test(moving, what_needs_both_values_makes_a_copy) {
    clef_tensor *t = cache(4), *old = clef_detach(t);
    OK(clef_assign_at(t, 0, place(0), row(2, 50)));
    clef_tensor *y = clef_add(clef_mul_scalar(t, 100), old);
    EXPECT(y, 5001, 5102, 303, 404);
    EXPECT(t, 50, 51, 3, 4);
}

Test(moving, a_kept_value_or_view_of_it_stays) {
    clef_tensor *t = cache(4), *view = clef_keep(clef_slice(t, 0, 1, 3, 1)), *twice = clef_keep(clef_mul_scalar(t, 2));
    OK(clef_assign_at(t, 0, place(0), row(3, 50)));
    OK(clef_end_step(ctx));
    EXPECT(view, 2, 3);
    EXPECT(twice, 2, 4, 6, 8);
    EXPECT(t, 50, 51, 52, 4);
    clef_tensor *same = clef_keep(clef_copy(t)), *alias = clef_keep(clef_detach(t));
    OK(clef_assign_at(t, 0, place(2), row(2, 7)));
    OK(clef_end_step(ctx));
    EXPECT(same, 50, 51, 52, 4);
    EXPECT(alias, 50, 51, 52, 4);
    EXPECT(t, 50, 51, 7, 8);
}

Test(moving, an_expression_of_the_step_stays_until_its_step_is_over) {
    clef_tensor *t = cache(4), *twice = clef_mul_scalar(t, 2);
    OK(clef_assign_at(t, 0, place(0), row(3, 50)));
    EXPECT(t, 50, 51, 52, 4);
    EXPECT(twice, 2, 4, 6, 8);
    clef_tensor *late = clef_mul_scalar(t, 2);
    OK(clef_end_step(ctx));
    OK(clef_assign_at(t, 0, place(0), row(1, 9)));
    expect_in_place(t, 1);
    EXPECT(t, 9, 51, 52, 4);
    float out[4];
    cr_assert_neq(clef_read(late, out, sizeof out), CLEF_OK);
    expect_error(ctx, CLEF_STATE, "overwritten");
}

Test(moving, a_window_of_itself_is_read_before_it_is_written) {
    clef_tensor *t = cache(6);
    OK(clef_assign_at(t, 0, place(0), clef_slice(t, 0, 1, 6, 1)));
    expect_in_place(t, 2);
    EXPECT(t, 2, 3, 4, 5, 6, 6);
    OK(clef_assign_at(t, 0, place(1), clef_slice(t, 0, 0, 5, 1)));
    expect_in_place(t, 2);
    EXPECT(t, 2, 2, 3, 4, 5, 6);
    OK(clef_assign_at(t, 0, place(0), clef_flip(t, 0)));
    expect_in_place(t, 2);
    EXPECT(t, 6, 5, 4, 3, 2, 2);
    clef_tensor *n = clef_keep(clef_from_host(ctx, CLEF_SHAPE(3), CLEF_I64, (int64_t[]){2, 0, 1})); /* says itself where */
    clef_end_step(ctx);
    OK(clef_assign_at(n, 0, clef_slice(n, 0, 2, 3, 1), clef_from_host(ctx, CLEF_SHAPE(2), CLEF_I64, (int64_t[]){8, 9})));
    EXPECT(clef_to(n, CLEF_F32), 2, 8, 9);
}

Test(moving, a_strided_tensor_is_updated_where_it_lies) {
    float data[6] = {1, 2, 3, 4, 5, 6};
    clef_tensor *x = clef_from_host(ctx, CLEF_SHAPE(2, 3), CLEF_F32, data), *t = clef_keep(clef_transpose(x, 0, 1));
    clef_end_step(ctx), clef_scalar(ctx, 0), clef_end_step(ctx); /* x goes */
    for (int i = 0; i < 2; i++) {
        OK(clef_assign_at(t, 0, place(1), clef_reshape(row(2, 10 + (float)i), CLEF_SHAPE(1, 2))));
        OK(clef_assign_at(t, 1, place(i), clef_reshape(row(3, 30), CLEF_SHAPE(3, 1))));
        OK(clef_end_step(ctx));
    }
    EXPECT(t, 30, 30, 11, 31, 32, 32);
}

Test(moving, a_programs_own_buffer_is_left_alone) {
    float data[4] = {1, 2, 3, 4};
    cl_mem mine = clCreateBuffer(clef_opencl_context(ctx), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof data, data, NULL);
    clef_tensor *t = clef_keep(clef_from_opencl(ctx, mine, 0, CLEF_SHAPE(4), CLEF_F32));
    for (int i = 0; i < 3; i++) {
        OK(clef_assign_at(t, 0, place(i), row(1, 50)));
        OK(clef_end_step(ctx));
    }
    EXPECT(t, 50, 50, 50, 4);
    OK(clEnqueueReadBuffer(clef_opencl_queue(ctx), mine, CL_TRUE, 0, sizeof data, data, 0, NULL, NULL) == CL_SUCCESS ? CLEF_OK
                                                                                                                     : CLEF_DEVICE);
    cr_assert_eq(data[0], 1);
    clReleaseMemObject(mine);
}

Test(moving, a_gradient_that_needs_the_old_value_gets_it) {
    clef_tensor *t = cache(3), *w = parameter(clef_full(ctx, CLEF_SHAPE(3), CLEF_F32, 2));
    for (int early = 0; early < 2; early++) { /* backward after the assignment, and after it was done too */
        clef_tensor *loss = clef_sum(clef_mul(w, t), NULL, 0, false);
        if (early) clef_item(loss);
        OK(clef_assign_at(t, 0, place(0), row(1, 10 + (float)early)));
        if (early) OK(clef_eval(t));
        clef_set_grad(w, CLEF_NONE);
        OK(clef_backward(loss));
        OK(clef_end_step(ctx));
        EXPECT(clef_grad_of(w), early ? 10 : 1, 2, 3);
        EXPECT(t, 10 + (float)early, 2, 3);
    }
}

Test(moving, a_parameter_can_be_assigned_to) {
    clef_tensor *w = parameter(row(4, 1));
    for (int i = 0; i < 3; i++) {
        clef_set_grad(w, CLEF_NONE);
        clef_tensor *loss = clef_sum(clef_square(w), NULL, 0, false);
        OK(clef_backward(loss));
        OK(clef_end_step(ctx));
        OK(clef_assign_at(w, 0, place(i), row(1, 100)));
        cr_assert(clef_requires_grad(w));
        OK(clef_end_step(ctx));
    }
    EXPECT(w, 100, 100, 100, 4);
    EXPECT(clef_grad_of(w), 200, 200, 6, 8);
}

/* What is packed from weights that are updated in place is packed anew. */
Test(moving, weights_written_in_place_are_packed_anew) {
    enum { ROWS = 20, DEPTH = 96, COLUMNS = 48 };
    clef_tensor *w = clef_keep(clef_ones(ctx, CLEF_SHAPE(COLUMNS, DEPTH), CLEF_F32)),
                *x = clef_keep(clef_ones(ctx, CLEF_SHAPE(ROWS, DEPTH), CLEF_F32));
    clef_tensor *many =
        clef_keep(clef_reshape(clef_arange(ctx, 0, 5 * COLUMNS * DEPTH, 1, CLEF_F32), CLEF_SHAPE(5, COLUMNS, DEPTH)));
    OK(clef_end_step(ctx));
    for (int i = 0; i < 5; i++) {
        if (i > 2) OK(clef_assign_at(w, 0, place(i), clef_full(ctx, CLEF_SHAPE(1, DEPTH), CLEF_F32, 3)));
        float *y = values(clef_linear(x, w, CLEF_NONE));
        for (int c = 0; c < COLUMNS; c++) cr_assert_eq(y[c], (c > 2 && c <= i ? 3 : 1) * DEPTH);
        clef_tensor *one = clef_reshape(clef_slice_at(many, 0, place(i), 1), CLEF_SHAPE(COLUMNS, DEPTH));
        float *z = values(clef_linear(clef_slice(x, 0, 0, 16, 1),
                                      clef_sub(one, clef_full(ctx, CLEF_SCALAR, CLEF_F32, i * COLUMNS * DEPTH)), CLEF_NONE));
        for (int c = 0; c < COLUMNS; c++) cr_assert_eq(z[c], DEPTH * (DEPTH - 1) / 2 + c * DEPTH * DEPTH);
        free(y), free(z);
        OK(clef_end_step(ctx));
    }
}

/* ---- a number from the device ---- */

Test(moving, a_computed_number_is_brought_into_range) {
    clef_tensor *t = cache(5);
    static const int64_t at[] = {INT64_MIN, -1, 0, 2, 3, 4, INT64_MAX};
    static const int nearest[] = {0, 0, 0, 2, 3, 3, 3};
    for (int i = 0; i < 7; i++)
        for (int narrow = 0; narrow < 2; narrow++) {
            if (narrow && (i == 0 || i == 6)) continue;
            clef_tensor *n = clef_to(clef_from_host(ctx, CLEF_SHAPE(1), CLEF_I64, &at[i]), narrow ? CLEF_I32 : CLEF_I64);
            EXPECT(clef_slice_at(t, 0, n, 2), 1 + (float)nearest[i], 2 + (float)nearest[i]);
            float want[5] = {1, 2, 3, 4, 5};
            want[nearest[i]] = want[nearest[i] + 1] = 0;
            expect_values(clef_slice_update(t, 0, n, clef_zeros(ctx, CLEF_SHAPE(2), CLEF_F32)), 5, want);
        }
    EXPECT(clef_slice_at(t, 0, clef_argmax(t, 0, true), 1), 5);
    EXPECT(clef_slice_at(t, 0, clef_add_scalar(place(1), 1), 1), 3);
    EXPECT(clef_slice_at(t, 0, clef_full(ctx, CLEF_SHAPE(1, 1), CLEF_U8, 3), 2), 4, 5);
}

/* ---- every dtype, rank and dimension ---- */

static void window(clef_shape shape, int dim, int64_t start, int64_t length, const double *x, const double *value, double *part,
                   double *whole) {
    int64_t n = clef_shape_numel(shape), inner = 1, k = 0;
    for (int d = dim + 1; d < shape.rank; d++) inner *= shape.dim[d];
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / inner % shape.dim[dim];
        bool inside = at >= start && at < start + length;
        if (inside) part[k] = x[i];
        whole[i] = inside ? value[k] : x[i];
        k += inside;
    }
}

static void check_window(clef_shape shape, clef_dtype dtype, int dim, int64_t start, int64_t length, uint64_t salt) {
    int64_t n = clef_shape_numel(shape);
    clef_shape part_shape = shape;
    part_shape.dim[dim] = length;
    int64_t m = clef_shape_numel(part_shape);
    double *x = spread(n, 0, 200, salt), *v = spread(m, 0, 200, salt + 1), *part = calloc((size_t)m + 1, 8),
           *whole = calloc((size_t)n + 1, 8);
    clef_tensor *a = tensor_of(ctx, shape, dtype, x), *b = tensor_of(ctx, part_shape, dtype, v), *t = clef_keep(clef_copy(a));
    window(shape, dim, start, length, x, v, part, whole);
    clef_tensor *at = salt % 2 ? place(start) : clef_from_host(ctx, CLEF_SCALAR, CLEF_I64, &start);
    expect_numbers(clef_slice_at(a, dim - shape.rank, at, length), part, 0, 0, "slice_at");
    expect_numbers(clef_slice_update(a, dim, at, b), whole, 0, 0, "slice_update");
    OK(clef_end_step(ctx));
    OK(clef_assign_at(t, dim, place(start), clef_copy(b)));
    expect_numbers(t, whole, 0, 0, "assign_at");
    clef_release(t);
    OK(clef_end_step(ctx));
    free(x), free(v), free(part), free(whole);
}

static void check_all_windows(void) {
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_F64, CLEF_F16, CLEF_BF16, CLEF_I32, CLEF_I64, CLEF_U8, CLEF_BOOL};
    static const int64_t sizes[CLEF_MAX_RANK] = {3, 1, 2, 4, 1, 2, 3, 5};
    uint64_t salt = 0;
    for (int rank = 1; rank <= CLEF_MAX_RANK; rank++)
        for (int dim = 0; dim < rank; dim++)
            for (int64_t length = 0; length <= sizes[dim]; length += dim % 2 ? 1 : 2) {
                clef_shape shape = {.rank = rank};
                for (int d = 0; d < rank; d++) shape.dim[d] = sizes[d];
                clef_dtype dtype = dtypes[salt++ % 8];
                if (dtype == CLEF_F64 && !has_f64(ctx)) dtype = CLEF_F32;
                check_window(shape, dtype, dim, (int64_t)(salt % (uint64_t)(sizes[dim] - length + 1)), length, salt);
            }
    check_window(CLEF_SHAPE(7, 1000), CLEF_F32, 0, 2, 3, 1);
    check_window(CLEF_SHAPE(3, 50, 67), CLEF_F16, 1, 13, 20, 2);
    check_window(CLEF_SHAPE(5, 9001), CLEF_U8, 1, 1, 8999, 3);
    check_window(CLEF_SHAPE(0, 4), CLEF_F32, 1, 1, 2, 4);
    check_window(CLEF_SHAPE(4, 0), CLEF_F32, 1, 0, 0, 5);
}

Test(moving, every_dtype_rank_and_dimension) { check_all_windows(); }
Test(moving, every_dtype_rank_and_dimension_on_a_gpu) {
    clef_close(ctx);
    ctx = open_as_gpu();
    check_all_windows();
}

Test(moving, windows_of_views) {
    clef_tensor *x = clef_reshape(clef_arange(ctx, 0, 24, 1, CLEF_F32), CLEF_SHAPE(4, 6));
    EXPECT(clef_slice_at(clef_transpose(x, 0, 1), 0, place(4), 1), 4, 10, 16, 22);
    EXPECT(clef_slice_at(clef_flip(x, 1), 1, place(1), 1), 4, 10, 16, 22);
    EXPECT(clef_slice_at(clef_slice(x, 0, 1, 4, 2), 1, place(2), 2), 8, 9, 20, 21);
    EXPECT(clef_slice_at(clef_expand(clef_slice(x, 0, 2, 3, 1), CLEF_SHAPE(3, 6)), 0, place(1), 1), 12, 13, 14, 15, 16, 17);
    EXPECT(clef_slice_at(
               clef_slice_update(clef_transpose(x, 0, 1), 1, place(2), clef_flip(clef_reshape(row(6, 1), CLEF_SHAPE(6, 1)), 0)), 0,
               place(1), 2),
           1, 7, 5, 19, 2, 8, 4, 20);
    EXPECT(clef_slice_update(clef_full(ctx, CLEF_SHAPE(4), CLEF_F32, 7), 0, place(1), clef_ones(ctx, CLEF_SHAPE(2), CLEF_F32)), 7,
           1, 1, 7);
    EXPECT(clef_slice_update(row(3, 1), 0, place(1), clef_full(ctx, CLEF_SHAPE(1), CLEF_I32, 9)), 1, 9, 3);
}

/* ---- what is refused ---- */

Test(moving, what_does_not_fit_is_one_line) {
    clef_tensor *t = cache(5), *x = clef_reshape(clef_arange(ctx, 0, 24, 1, CLEF_F32), CLEF_SHAPE(4, 6)), *two = row(2, 1);
    cr_assert_null(clef_slice_at(t, 0, place(4), 2));
    expect_error(ctx, CLEF_INVALID, "slice_at: start 4 is not within 0 … 3, for 2 of dimension 0 of x [5]");
    cr_assert_null(clef_slice_at(t, 0, place(-1), 2));
    expect_error(ctx, CLEF_INVALID, "start -1");
    cr_assert_null(clef_slice_at(t, 0, clef_unsqueeze(clef_to(place(4), CLEF_I32), 0), 2));
    expect_error(ctx, CLEF_INVALID, "start 4");
    cr_assert_null(clef_slice_at(t, 0, place(INT64_MIN), 2));
    expect_error(ctx, CLEF_INVALID, "start -9223372036854775808");
    cr_assert_null(clef_slice_at(t, 0, place(0), 6));
    expect_error(ctx, CLEF_INVALID, "slice_at: length 6 is not within 0 … 5");
    cr_assert_null(clef_slice_at(t, 1, place(0), 1));
    expect_error(ctx, CLEF_INVALID, "no dimension 1");
    cr_assert_null(clef_slice_at(t, 0, clef_scalar(ctx, 1), 1));
    expect_error(ctx, CLEF_DTYPE, "start is f32, not a whole number");
    cr_assert_null(clef_slice_at(t, 0, clef_zeros(ctx, CLEF_SHAPE(2), CLEF_I64), 1));
    expect_error(ctx, CLEF_SHAPE, "start [2] is not one number");
    cr_assert_null(clef_slice_update(x, 1, place(0), two));
    expect_error(ctx, CLEF_SHAPE, "slice_update: value [2] is no window along dimension 1 of x [4,6]");
    cr_assert_null(clef_slice_update(x, 1, place(5), clef_slice(x, 1, 0, 2, 1)));
    expect_error(ctx, CLEF_INVALID, "slice_update: start 5");
    cr_assert_eq(clef_assign_at(t, 0, place(4), two), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "assign_at: start 4");
    cr_assert_eq(clef_assign_at(t, 0, place(0), x), CLEF_SHAPE);
    expect_error(ctx, CLEF_SHAPE, "assign_at: value [4,6]");
    clef_tensor *kept = clef_keep(place(4)); /* computed, and still known */
    clef_end_step(ctx);
    cr_assert_null(clef_slice_at(t, 0, kept, 2));
    expect_error(ctx, CLEF_INVALID, "start 4");
    cr_assert_null(clef_slice_at(NULL, 0, NULL, 1));
    cr_assert_null(clef_slice_update(t, 0, kept, NULL));
    expect_error(ctx, CLEF_INVALID, "value is NULL");
    cr_assert_eq(clef_slice_update(t, 0, place(5), clef_zeros(ctx, CLEF_SHAPE(0), CLEF_F32)), t);
    OK(clef_assign_at(t, 0, place(5), clef_zeros(ctx, CLEF_SHAPE(0), CLEF_F32)));
    OK(clef_assign_at(t, -1, place(3), clef_from_host(ctx, CLEF_SHAPE(2), CLEF_I32, (int32_t[]){70, 80})));
    EXPECT(t, 1, 2, 3, 70, 80);
}

/* ---- gradients ---- */

Test(moving, gradients_go_where_the_numbers_came_from) {
    clef_tensor *x = parameter(row(5, 1)), *v = parameter(row(2, 10)), *at = place(2), *g[2];
    clef_tensor *loss = clef_sum(clef_mul(clef_slice_update(x, 0, at, v), row(5, 1)), NULL, 0, false);
    OK(clef_grad(loss, CLEF_NONE, (clef_tensor *[]){x, v}, 2, false, g));
    EXPECT(g[0], 1, 2, 0, 0, 5);
    EXPECT(g[1], 3, 4);
    OK(clef_grad(clef_sum(clef_square(clef_slice_at(x, 0, at, 2)), NULL, 0, false), CLEF_NONE, &x, 1, true, g));
    EXPECT(g[0], 0, 0, 6, 8, 0);
    clef_tensor *second;
    OK(clef_grad(clef_sum(clef_square(g[0]), NULL, 0, false), CLEF_NONE, &x, 1, false, &second));
    EXPECT(second, 0, 0, 24, 32, 0);
}

static int64_t at_step;
static clef_tensor *forward_window(clef_module *m, clef_tensor *x, void *user) {
    (void)m, (void)user;
    clef_tensor *part = clef_exp(clef_slice_at(x, 0, place(at_step), 2));
    return clef_slice_update(clef_sin(x), 0, place(at_step + 1), part);
}
Test(moving, recomputing_gives_the_same_gradients) {
    clef_tensor *x = parameter(row(6, 0));
    float *wanted[3];
    for (int recompute = 0; recompute < 2; recompute++) {
        clef_module *m = clef_module_new(ctx, "window", forward_window, NULL);
        clef_recompute(m, recompute);
        for (at_step = 0; at_step < 3; at_step++) {
            clef_set_grad(x, CLEF_NONE);
            OK(clef_backward(clef_sum(clef_square(clef_forward(m, clef_forward(m, x))), NULL, 0, false)));
            OK(clef_end_step(ctx));
            float *g = values(clef_grad_of(x));
            if (recompute) cr_assert_eq(memcmp(g, wanted[at_step], 6 * sizeof *g), 0);
            if (recompute) free(g), free(wanted[at_step]);
            else wanted[at_step] = g;
        }
    }
}

/* ---- decoding by hand ---- */

enum { HEADS = 2, WIDTH = 4, TOKENS = 12 };

/* One token: its key and value go into the cache, and its query sees those so far. */
static clef_tensor *decode(clef_tensor *keys, clef_tensor *vals, int64_t token) {
    int64_t capacity = clef_tensor_shape(keys).dim[1];
    clef_shape one = CLEF_SHAPE(HEADS, 1, WIDTH);
    clef_tensor *q = noise_tensor(ctx, one, 3 * (uint64_t)token), *now = place(token);
    clef_assign_at(keys, 1, now, noise_tensor(ctx, one, 3 * (uint64_t)token + 1));
    clef_assign_at(vals, 1, now, noise_tensor(ctx, one, 3 * (uint64_t)token + 2));
    clef_tensor *seen = clef_le(clef_arange(ctx, 0, (double)capacity, 1, CLEF_I64), now);
    clef_tensor *scores = clef_matmul(q, clef_transpose(keys, 1, 2));
    return clef_matmul(clef_softmax(clef_where(seen, scores, clef_full(ctx, CLEF_SCALAR, CLEF_F32, -INFINITY)), 2), vals);
}

static void expect_attention(const float *y, int64_t token) {
    for (int h = 0; h < HEADS; h++) {
        double weight[TOKENS], sum = 0;
        for (int64_t t = 0; t <= token; t++) {
            double score = 0;
            for (int d = 0; d < WIDTH; d++)
                score += (double)noise((uint64_t)(h * WIDTH + d), 3 * (uint64_t)token) *
                         (double)noise((uint64_t)(h * WIDTH + d), 3 * (uint64_t)t + 1);
            sum += weight[t] = exp(score);
        }
        for (int d = 0; d < WIDTH; d++) {
            double want = 0;
            for (int64_t t = 0; t <= token; t++)
                want += weight[t] / sum * (double)noise((uint64_t)(h * WIDTH + d), 3 * (uint64_t)t + 2);
            cr_assert_float_eq(y[h * WIDTH + d], want, 1e-5, "token %d", (int)token);
        }
    }
}

static clef_tensor *empty_cache(int64_t capacity) {
    clef_tensor *t = clef_keep(clef_zeros(ctx, CLEF_SHAPE(HEADS, capacity, WIDTH), CLEF_F32));
    clef_end_step(ctx);
    return t;
}

Test(moving, decoding_makes_no_plan_and_no_kernel_after_the_third_token) {
    clef_tensor *keys = empty_cache(64), *vals = empty_cache(64);
    clef_counters third = {0};
    for (int64_t token = 0; token < TOKENS; token++) {
        clef_tensor *out = decode(keys, vals, token);
        if (token > 1) cr_assert_eq(updates_in_place(out), 2, "token %d: %s", (int)token, plan_text(out));
        float *y = values(out);
        expect_attention(y, token);
        free(y);
        OK(clef_end_step(ctx));
        if (token == 2) third = clef_counters_get(ctx);
    }
    clef_counters last = clef_counters_get(ctx);
    cr_assert_eq(last.plans, third.plans);
    cr_assert_eq(last.kernels_built + last.kernels_from_cache, third.kernels_built + third.kernels_from_cache);
}

/* Bytes written by a step that puts a token into the cache and looks at it and its neighbour. */
static int64_t bytes_of_a_step(int64_t capacity) {
    clef_tensor *keys = empty_cache(capacity);
    clef_plan_size size;
    clef_set_dry_run(ctx, true);
    clef_tensor *before = clef_slice_at(keys, 1, place(6), 2);
    OK(clef_assign_at(keys, 1, place(7), clef_ones(ctx, CLEF_SHAPE(HEADS, 1, WIDTH), CLEF_F32)));
    OK(clef_assign_at(keys, 1, place(8), clef_ones(ctx, CLEF_SHAPE(HEADS, 1, WIDTH), CLEF_F32)));
    OK(clef_eval(clef_add(before, clef_slice_at(keys, 1, place(7), 2))));
    OK(clef_plan_memory(ctx, &size));
    clef_set_dry_run(ctx, false);
    cr_assert_eq(size.result_bytes, (int64_t)sizeof(float) * HEADS * 2 * WIDTH, "the cache takes no new memory");
    return size.written_bytes;
}

Test(moving, what_a_step_writes_does_not_grow_with_the_capacity) {
    int64_t small = bytes_of_a_step(64), large = bytes_of_a_step(4096), window_bytes = (int64_t)sizeof(float) * HEADS * WIDTH;
    cr_assert_eq(small, large);
    cr_assert_leq(small, 10 * window_bytes, "%d bytes", (int)small);
}

/* ---- random programs against plain C ----
   A few tensors that are written to, a pool of what was read of them, and beside each the numbers that it must have. */

enum { PROGRAMS = 60, TENSORS = 3, POOL = 24, STEPS = 4, ACTIONS = 10, MOST = 128 };

typedef struct entry {
    clef_tensor *t;
    double v[MOST];
    int kept;  /* how many steps more */
    bool sure; /* it can be read: kept, computed or only waiting since the last evaluation */
} entry;

typedef struct program {
    uint64_t state, seed;
    entry tensor[TENSORS], pool[POOL];
    int n, lost, read;
} program;

static uint64_t roll(program *p, uint64_t n) {
    p->state = p->state * 6364136223846793005u + 1442695040888963407u;
    return (p->state >> 33) % n;
}

static void expect_entry(program *p, entry *e, const char *what) {
    double *got = numbers(e->t);
    for (int64_t i = 0; i < clef_numel(e->t); i++)
        cr_assert_eq(got[i], e->v[i], "program %d, %s: element %d is %g, not %g", (int)p->seed, what, (int)i, got[i], e->v[i]);
    free(got);
    p->read++;
}

static entry *some(program *p) {
    for (int tries = 0; tries < 4 && p->n; tries++) {
        entry *e = &p->pool[roll(p, (uint64_t)p->n)];
        if (e->sure && roll(p, 2)) return e;
    }
    return &p->tensor[roll(p, TENSORS)];
}

static void add_entry(program *p, entry e) {
    cr_assert(e.t, "program %d: %s", (int)p->seed, clef_error(ctx));
    for (int i = 0; i < TENSORS; i++)
        if (e.t == p->tensor[i].t) return; /* given back, as there was nothing to do: it will change */
    if (p->n == POOL) return;
    e.sure = true;
    e.kept = roll(p, 4) ? 0 : 1 + (int)roll(p, 2);
    if (e.kept) clef_keep(e.t);
    p->pool[p->n++] = e;
}

/* Something was computed: expressions that were not may have lost what they need. */
static void note_evaluation(program *p) {
    for (int i = 0; i < p->n; i++) p->pool[i].sure &= p->pool[i].kept > 0;
}

static clef_tensor *some_start(program *p, int64_t last, int64_t *at) {
    *at = (int64_t)roll(p, (uint64_t)last + 1);
    if (roll(p, 3)) return place(*at);
    int64_t given = *at == 0 && roll(p, 2) ? -5 : *at == last && roll(p, 2) ? last + 3 : *at;
    return clef_from_host(ctx, CLEF_SCALAR, CLEF_I64, &given);
}

static clef_shape random_window(program *p, clef_shape shape, int *dim) {
    *dim = (int)roll(p, (uint64_t)shape.rank);
    shape.dim[*dim] = 1 + (int64_t)roll(p, (uint64_t)shape.dim[*dim]);
    return shape;
}

static void read_window(program *p) {
    entry *x = some(p), y = {0};
    int dim;
    clef_shape shape = clef_tensor_shape(x->t), part = random_window(p, shape, &dim);
    int64_t at, length = part.dim[dim];
    clef_tensor *start = some_start(p, shape.dim[dim] - length, &at);
    double none[MOST] = {0}, whole[MOST];
    window(shape, dim, at, length, x->v, none, y.v, whole);
    y.t = roll(p, 3) ? clef_slice_at(x->t, dim, start, length) : clef_slice(x->t, dim, at, at + length, 1);
    add_entry(p, y);
}

/* A window's worth of numbers for x: new ones, or a window of something of the same shape, x itself too. */
static entry some_value(program *p, const entry *x, int dim, clef_shape part) {
    entry value = {0}, *from = some(p);
    clef_shape shape = clef_tensor_shape(x->t);
    if (roll(p, 2) && clef_shape_equal(clef_tensor_shape(from->t), shape)) {
        int64_t at = (int64_t)roll(p, (uint64_t)(shape.dim[dim] - part.dim[dim] + 1));
        double none[MOST] = {0}, whole[MOST];
        window(shape, dim, at, part.dim[dim], from->v, none, value.v, whole);
        value.t = roll(p, 2) ? clef_slice(from->t, dim, at, at + part.dim[dim], 1)
                             : clef_slice_at(from->t, dim, place(at), part.dim[dim]);
        return value;
    }
    for (int64_t i = 0; i < clef_shape_numel(part); i++) value.v[i] = (double)roll(p, 200);
    value.t = tensor_of(ctx, part, clef_tensor_dtype(x->t), value.v);
    return value;
}

static void write_window(program *p, bool assigns) {
    entry *x = assigns ? &p->tensor[roll(p, TENSORS)] : some(p), y = {0};
    int dim;
    clef_shape shape = clef_tensor_shape(x->t), part = random_window(p, shape, &dim);
    entry value = some_value(p, x, dim, part);
    int64_t at;
    clef_tensor *start = some_start(p, shape.dim[dim] - part.dim[dim], &at);
    double read[MOST];
    window(shape, dim, at, part.dim[dim], x->v, value.v, read, y.v);
    if (assigns) {
        OK(clef_assign_at(x->t, dim, start, value.t));
        memcpy(x->v, y.v, sizeof y.v);
    } else {
        y.t = clef_slice_update(x->t, dim, start, value.t);
        add_entry(p, y);
    }
}

static void compute(program *p) {
    entry *a = some(p), *b = some(p), y = {0};
    bool two = clef_shape_equal(clef_tensor_shape(a->t), clef_tensor_shape(b->t)) && roll(p, 3);
    for (int64_t i = 0; i < clef_numel(a->t); i++) y.v[i] = two ? (a->v[i] > b->v[i] ? a->v[i] : b->v[i]) : a->v[i] == 1;
    clef_dtype dtype = clef_tensor_dtype(p->tensor[0].t);
    y.t = two ? clef_maximum(a->t, b->t) : clef_to(clef_eq_scalar(a->t, 1), dtype);
    add_entry(p, y);
}

static void look_elsewise(program *p) {
    entry *x = some(p), y = *x;
    clef_shape shape = clef_tensor_shape(x->t);
    int64_t rows = shape.dim[0], columns = clef_numel(x->t) / rows;
    if (roll(p, 3) == 0) y.t = clef_detach(x->t);
    else if (roll(p, 2) || shape.rank != 2) y.t = clef_reshape(x->t, CLEF_SHAPE(columns, rows));
    else {
        y.t = clef_transpose(x->t, 0, 1);
        for (int64_t i = 0; i < rows * columns; i++) y.v[i % columns * rows + i / columns] = x->v[i];
    }
    add_entry(p, y);
}

/* A tensor becomes another expression of its shape. */
static void assign_whole(program *p) {
    entry *to = &p->tensor[roll(p, TENSORS)], *from = some(p);
    if (!clef_shape_equal(clef_tensor_shape(to->t), clef_tensor_shape(from->t))) return;
    OK(clef_assign(to->t, from->t));
    memcpy(to->v, from->v, sizeof to->v);
}

static void read_some(program *p) {
    int at = p->n ? (int)roll(p, (uint64_t)p->n) : -1;
    entry *e = at >= 0 ? &p->pool[at] : &p->tensor[0];
    bool sure = at < 0 || e->sure;
    double first;
    if (!sure && clef_eval(e->t) == CLEF_STATE) { /* never a wrong number */
        p->lost++;
        clef_clear_error(ctx);
        return;
    }
    expect_entry(p, e, "read");
    first = e->v[0];
    note_evaluation(p);
    e->sure = first == e->v[0];
}

static void end_of_step(program *p) {
    int n = 0;
    OK(clef_end_step(ctx));
    for (int i = 0; i < TENSORS; i++) expect_entry(p, &p->tensor[i], "at the end");
    for (int i = 0; i < p->n; i++) {
        if (!p->pool[i].kept) continue;
        expect_entry(p, &p->pool[i], "kept");
        if (--p->pool[i].kept) p->pool[n++] = p->pool[i];
        else clef_release(p->pool[i].t);
    }
    p->n = n;
}

static void run_program(uint64_t seed) {
    static const clef_shape shapes[] = {{1, {9}}, {2, {4, 6}}, {2, {5, 5}}, {3, {3, 4, 5}}};
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_F32, CLEF_I64, CLEF_U8, CLEF_F32};
    program p = {.state = seed * 77777, .seed = seed};
    clef_dtype dtype = dtypes[roll(&p, 5)];
    clef_shape shape = shapes[roll(&p, 4)];
    for (int i = 0; i < TENSORS; i++) {
        for (int k = 0; k < MOST; k++) p.tensor[i].v[k] = (double)roll(&p, 200);
        p.tensor[i].t = clef_keep(tensor_of(ctx, shape, dtype, p.tensor[i].v));
    }
    for (int step = 0; step < STEPS; step++) {
        for (int a = 0; a < ACTIONS; a++) switch (roll(&p, 12)) {
            case 0:
            case 1:
            case 2: read_window(&p); break;
            case 3:
            case 4:
            case 5: write_window(&p, true); break;
            case 6: write_window(&p, false); break;
            case 7: look_elsewise(&p); break;
            case 8: assign_whole(&p); break;
            case 9: read_some(&p); break;
            default: compute(&p);
            }
        end_of_step(&p);
    }
    for (int i = 0; i < p.n; i++) clef_release(p.pool[i].t);
    for (int i = 0; i < TENSORS; i++) clef_release(p.tensor[i].t);
    cr_assert_gt(p.read, p.lost);
}

static void run_programs(mode m, int n) {
    clef_close(ctx);
    setenv("CLEF_JOIN", "0", 1); /* programs have kernels in common, not sets of them */
    ctx = open_mode(m, NULL);
    const char *only = getenv("CLEF_MOVING_SEED"), *many = getenv("CLEF_MOVING_PROGRAMS");
    if (many) n = atoi(many);
    for (int i = 1; i <= n && !only; i++) run_program((uint64_t)i + 1000 * (uint64_t)m);
    if (only) run_program(strtoull(only, NULL, 10));
}

/* Lazily, all of a step is computed together, and readers of a temporary of the step before come first.  Eagerly the update is computed
   before they are made: it leaves the temporary alone. */
Test(moving, a_temporary_of_the_step_before_is_updated_and_read_in_both_modes) {
    clef_context *lazy = ctx;
    setenv("CLEF_EAGER", "1", 1);
    clef_context *eager = open_seeded(1);
    unsetenv("CLEF_EAGER");
    for (int mode = 0; mode < 4; mode++) {
        ctx = mode & 1 ? eager : lazy;
        clef_tensor *y = clef_add_scalar(row(3, 1), 1);
        if (mode & 2) expect_values(y, 3, (float[]){2, 3, 4});
        clef_end_step(ctx);
        clef_tensor *first = clef_slice_update(y, 0, place(0), row(1, 10)), *second = clef_slice_update(y, 0, place(2), row(1, 20));
        clef_tensor *moved = clef_assign_at(first, 0, place(1), row(1, 30)) == CLEF_OK ? first : NULL;
        expect_values(clef_add(clef_add(y, moved), second), 3, (float[]){14, 36, 28});
        clef_end_step(ctx);
        clef_end_step(ctx);
    }
    ctx = lazy;
    close_clean(eager);
}

Test(moving, random_programs) { run_programs(FUSED, PROGRAMS); }
Test(moving, random_programs_with_every_op_alone) { run_programs(ALONE, PROGRAMS / 2); }
Test(moving, random_programs_eagerly) { run_programs(EAGER, PROGRAMS / 4); }
Test(moving, random_programs_in_exact_buffers) { run_programs(EXACT, PROGRAMS / 2); }
