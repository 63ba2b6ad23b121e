/* Gradients of many slices of one tensor: one sum, exact, in work that grows with the slices and not with their square.
   ctest: together */
#include "support/device.h"

static clef_context *ctx;

static void open_device(void) { ctx = open_seeded(0); }
static void open_eager(void) { ctx = open_or_skip(&(clef_options){.eager = true}); }
static void close_device(void) { close_clean(ctx); }
TestSuite(slices, .init = open_device, .fini = close_device);
TestSuite(slices_eager, .init = open_eager, .fini = close_device);

enum { A = 5, B = 7, C = 3, ALL = A * B * C };

static uint64_t state = 1;
static int64_t below(int64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

static clef_tensor *whole_numbers(clef_shape shape, float *values) {
    for (int64_t i = 0; i < clef_shape_numel(shape); i++) values[i] = (float)(below(9) - 4);
    return clef_from_host(ctx, shape, CLEF_F32, values);
}

/* x[…, first, first + step, …, …] along one dimension, weighted; `expected` gets the weights where they belong. */
static clef_tensor *weighted_slice(clef_tensor *x, float *expected) {
    static const int64_t size[3] = {A, B, C}, stride[3] = {B * C, C, 1}, steps[] = {1, 1, 1, 2, 3, -1, -2};
    int d = (int)below(3);
    int64_t step = steps[below(7)], first = below(size[d]), count = below(size[d] + 1), at = 0, most = 0;
    for (int64_t i = first; i >= 0 && i < size[d] && most < count; i += step) most++;
    int64_t stop = first + most * step;
    clef_tensor *y = clef_slice(x, d, first, stop < 0 ? INT64_MIN / 2 : stop, step);
    float values[ALL + 1];
    clef_tensor *w = whole_numbers(clef_tensor_shape(y), values);
    int64_t start[3] = {0}, step_of[3] = {1, 1, 1}, n[3] = {A, B, C};
    start[d] = first, step_of[d] = step, n[d] = most;
    for (int64_t i = 0; i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++)
            for (int64_t k = 0; k < n[2]; k++)
                expected[(start[0] + i * step_of[0]) * stride[0] + (start[1] + j * step_of[1]) * stride[1] + start[2] +
                         k * step_of[2]] += values[at++];
    return clef_sum(clef_mul(y, w), NULL, 0, false);
}

static void sum_many(int slices, bool directly) {
    float x_values[ALL], expected[ALL];
    clef_tensor *x = clef_require_grad(clef_keep(whole_numbers(CLEF_SHAPE(A, B, C), x_values)), true);
    clef_tensor *sum = clef_mul_scalar(clef_sum(x, NULL, 0, false), directly ? 5 : 0);
    for (int i = 0; i < ALL; i++) expected[i] = directly ? 5 : 0;
    for (int i = 0; i < slices; i++) sum = clef_add(sum, weighted_slice(x, expected));
    cr_assert_eq(clef_backward(sum), CLEF_OK);
    float *g = values(clef_grad_of(x));
    for (int i = 0; i < ALL; i++)
        cr_assert_eq(g[i], expected[i], "%d slices, element %d: %g, not %g", slices, i, g[i], expected[i]);
    free(g);
    clef_release(x);
    clef_end_step(ctx);
}

Test(slices, gradients_are_exact) {
    for (int i = 0; i < 20; i++) sum_many(1 + i, i % 3 == 0);
}
Test(slices, more_than_a_node_has_inputs) { sum_many(300, true); }
Test(slices_eager, gradients_are_exact) {
    for (int i = 0; i < 4; i++) sum_many(1 + 3 * i, i % 2);
}

/* d²/dx² of Σ x[i]³ over two windows that overlap, and the part between. */
Test(slices, can_be_differentiated_again) {
    float x_values[4] = {1, 2, 3, 4}, expected[4] = {6, 24, 36, 24};
    clef_tensor *x = clef_require_grad(clef_keep(clef_from_host(ctx, CLEF_SHAPE(4), CLEF_F32, x_values)), true), *dx;
    clef_tensor *a = clef_slice(x, 0, 0, 3, 1), *b = clef_slice(x, 0, 1, 4, 1);
    clef_tensor *y =
        clef_add(clef_sum(clef_mul(a, clef_mul(a, a)), NULL, 0, false), clef_sum(clef_mul(b, clef_mul(b, b)), NULL, 0, false));
    cr_assert_eq(clef_grad(y, CLEF_NONE, &x, 1, true, &dx), CLEF_OK);
    cr_assert_eq(clef_backward(clef_sum(dx, NULL, 0, false)), CLEF_OK);
    float *g = values(clef_grad_of(x));
    for (int i = 0; i < 4; i++) cr_assert_eq(g[i], expected[i], "element %d: %g", i, g[i]);
    free(g);
}

/* What all ops of a step read and write, T slices of T rows. */
static double traffic(int64_t t) {
    clef_tensor *x = clef_require_grad(clef_keep(clef_ones(ctx, CLEF_SHAPE(t, 256), CLEF_F32)), true);
    clef_eval(x);
    clef_plan_size size = {0};
    clef_set_dry_run(ctx, true);
    clef_tensor *sum = NULL;
    for (int64_t i = 0; i < t; i++) {
        clef_tensor *row = clef_slice(x, 0, i, i + 1, 1);
        sum = sum ? clef_add(sum, clef_mul(row, row)) : row;
    }
    clef_backward(clef_sum(sum, NULL, 0, false));
    clef_eval(clef_grad_of(x));
    cr_assert_eq(clef_plan_memory(ctx, &size), CLEF_OK);
    clef_set_dry_run(ctx, false);
    clef_release(x);
    return size.bytes;
}

Test(slices, traffic_grows_with_their_number) {
    double t16 = traffic(16), t64 = traffic(64);
    cr_expect_leq(t64, 4.2 * t16, "%g bytes for 16 slices, %g for 64", t16, t64);
}
