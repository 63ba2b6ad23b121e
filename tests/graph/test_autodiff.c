/* The tape: what gets a gradient, how gradients add up, second order, and what is refused.
   ctest: plain together */
#include "graph/core.h"
#include "support/device.h"

static clef_context *ctx;

static void open_device(void) { ctx = open_seeded(0); }
static void close_device(void) { close_clean(ctx); }
TestSuite(autodiff, .init = open_device, .fini = close_device);

static clef_tensor *leaf(double value) {
    float v = (float)value;
    return clef_require_grad(clef_keep(clef_from_host(ctx, CLEF_SCALAR, CLEF_F32, &v)), true);
}
static double grad(clef_tensor *x) { return clef_item(clef_grad_of(x)); }

Test(autodiff, product_rule) {
    clef_tensor *x = leaf(3), *y = leaf(4);
    clef_backward(clef_mul(clef_mul(x, x), y));
    cr_assert_eq(grad(x), 24);
    cr_assert_eq(grad(y), 9);
}

Test(autodiff, gradients_add_up_until_cleared) {
    clef_tensor *x = leaf(3);
    clef_backward(clef_mul(x, x));
    clef_backward(clef_mul_scalar(x, 10));
    cr_assert_eq(grad(x), 16);
    clef_set_grad(x, CLEF_NONE);
    cr_assert_null(clef_grad_of(x));
    clef_backward(clef_mul_scalar(x, 2));
    cr_assert_eq(grad(x), 2);
}

Test(autodiff, a_gradient_belongs_to_its_leaf) {
    clef_tensor *x = leaf(3);
    clef_backward(clef_mul(x, x));
    clef_tensor *g = clef_keep(clef_grad_of(x));
    clef_release(g);
    clef_backward(clef_mul(x, x));
    cr_assert_eq(clef_grad_of(x), g, "the handle stays the same while gradients add up");
    cr_assert_eq(clef_item(g), 12);
}

Test(autodiff, many_ways_to_one_leaf) {
    clef_tensor *x = leaf(2), *y = x; /* y = x·2^20 by doubling: exponentially many paths, linearly many nodes */
    for (int i = 0; i < 20; i++) y = clef_add(y, y);
    clef_backward(y);
    cr_assert_eq(grad(x), 1048576);
}

Test(autodiff, deep_chains_need_no_stack) {
    clef_tensor *x = leaf(1), *y = x;
    for (int i = 0; i < 3000; i++) y = clef_add_scalar(y, 0);
    clef_backward(y);
    cr_assert_eq(grad(x), 1);
}

Test(autodiff, broadcasts_are_summed) {
    clef_tensor *x = leaf(3), *m = clef_full(ctx, CLEF_SHAPE(4, 5), CLEF_F32, 2);
    clef_backward(clef_sum(clef_mul(m, x), NULL, 0, false));
    cr_assert_eq(grad(x), 40);
    cr_assert_eq(clef_tensor_shape(clef_grad_of(x)).rank, 0);
}

/* So that a sum which the program writes and one that backward makes are one common subexpression. */
Test(autodiff, gradients_are_added_by_the_op_of_add) {
    clef_tensor *x = leaf(3), *y = leaf(4), *row = clef_from_host(ctx, CLEF_SHAPE(2), CLEF_F32, (float[]){1, 2}), *dx = NULL;
    cr_assert_eq(clef_grad(clef_add(clef_mul(x, y), clef_exp(x)), CLEF_NONE, &x, 1, false, &dx), CLEF_OK);
    cr_expect_eq(clef__node_of(dx)->op, &clef__op_add);
    cr_expect_eq(clef__node_of(clef_add(x, y))->op, &clef__op_add);
    cr_expect_neq(clef__node_of(clef_add(x, row))->op, &clef__op_add, "its gradient is not that of equal shapes");
}

Test(autodiff, detach_and_no_grad_cut) {
    clef_tensor *x = leaf(3);
    clef_backward(clef_mul(x, clef_detach(x)));
    cr_assert_eq(grad(x), 3);
    clef_tensor *y = NULL;
    for (CLEF_NO_GRAD(ctx)) y = clef_mul(x, x);
    cr_assert(!clef_requires_grad(y));
    cr_assert(clef_grad_enabled(ctx));
    cr_assert_eq(clef_item(y), 9);
}

Test(autodiff, from_a_given_gradient) {
    clef_tensor *x = leaf(3), *y = clef_mul(clef_full(ctx, CLEF_SHAPE(2), CLEF_F32, 1), x);
    clef_backward_from(y, clef_from_host(ctx, CLEF_SHAPE(2), CLEF_F32, (float[]){5, 7}));
    cr_assert_eq(grad(x), 12);
}

Test(autodiff, grad_gives_expressions_and_leaves_leaves_alone) {
    clef_tensor *x = leaf(3), *y = leaf(5), *dx[2];
    cr_assert_eq(clef_grad(clef_mul(x, x), CLEF_NONE, (clef_tensor *[]){x, y}, 2, false, dx), CLEF_OK);
    cr_assert_eq(clef_item(dx[0]), 6);
    cr_assert_eq(clef_item(dx[1]), 0, "y has no part in it");
    cr_assert_null(clef_grad_of(x));
}

Test(autodiff, higher_orders) {
    clef_tensor *x = leaf(2), *d1, *d2, *d3, *y = clef_mul(clef_mul(x, x), clef_mul(x, x));
    clef_grad(y, CLEF_NONE, &x, 1, true, &d1);
    clef_grad(d1, CLEF_NONE, &x, 1, true, &d2);
    clef_grad(d2, CLEF_NONE, &x, 1, false, &d3);
    cr_assert_eq(clef_item(d1), 32);
    cr_assert_eq(clef_item(d2), 48);
    cr_assert_eq(clef_item(d3), 48);
}

Test(autodiff, a_gradient_penalty_trains) {
    clef_tensor *x = leaf(0.5), *dx;
    clef_grad(clef_tanh(x), CLEF_NONE, &x, 1, true, &dx);
    clef_backward(clef_mul(dx, dx)); /* d/dx (1 - tanh²x)² = -4 tanh x (1 - tanh²x)² */
    double t = tanh(0.5), wanted = -4 * t * (1 - t * t) * (1 - t * t);
    cr_assert_float_eq(grad(x), wanted, 1e-6);
}

Test(autodiff, the_tape_ends_with_the_step) {
    clef_tensor *x = leaf(3), *h = clef_keep(clef_mul(x, x)), *dx;
    clef_end_step(ctx);
    cr_assert_eq(clef_item(h), 9);
    cr_assert_eq(clef_backward(clef_mul(x, h)), CLEF_STATE, "half of the gradient would be missing");
    expect_error(ctx, CLEF_STATE, "the result depends on the mul [] of a step that has ended");
    cr_assert_null(clef_grad_of(x));
    cr_assert_eq(clef_grad(clef_mul(x, h), CLEF_NONE, &x, 1, false, &dx), CLEF_STATE);
    expect_error(ctx, CLEF_STATE, "grad: the result depends on");
    cr_assert_eq(clef_grad(clef_mul(x, h), CLEF_NONE, (clef_tensor *[]){h}, 1, false, &dx), CLEF_OK, "it is asked for itself");
    cr_assert_eq(clef_item(dx), 3);
    clef_tensor *later = clef_require_grad(clef_full(ctx, CLEF_SCALAR, CLEF_F32, 5), true);
    cr_assert_eq(clef_grad(clef_mul(later, h), CLEF_NONE, &later, 1, false, &dx), CLEF_OK, "h was there before it");
    cr_assert_eq(clef_item(dx), 9);
    clef_backward(clef_mul(x, clef_detach(h)));
    cr_assert_eq(grad(x), 9);
    cr_assert_eq(clef_backward(h), CLEF_STATE);
    expect_error(ctx, CLEF_STATE, "a step that has ended");
    clef_release(h);
}

/* What is kept of an op without a gradient of its own, or of a gradient, or in a dry run, ends no tape. */
Test(autodiff, tapes_that_go_on) {
    clef_tensor *x = clef_require_grad(clef_keep(clef_arange(ctx, 1, 5, 1, CLEF_F32)), true), *top, *places, *dx;
    clef_topk(clef_square(x), 2, 0, true, &top, &places);
    clef_keep(places);
    clef_end_step(ctx);
    cr_assert_eq(clef_backward(clef_sum(top, NULL, 0, false)), CLEF_OK, "%s", clef_error(ctx));
    float *g = values(clef_grad_of(x));
    cr_expect(g[2] == 6 && g[3] == 8 && g[0] == 0);
    free(g);
    clef_release(places);
    clef_set_grad(x, CLEF_NONE);

    clef_grad(clef_sum(clef_pow_scalar(x, 3), NULL, 0, false), CLEF_NONE, &x, 1, true, &dx);
    clef_set_grad(x, dx); /* the gradient is a number, dx is not */
    cr_expect(!clef_requires_grad(clef_grad_of(x)));
    clef_end_step(ctx);
    clef_set_grad(x, CLEF_NONE);
    cr_assert_eq(clef_backward(clef_sum(dx, NULL, 0, false)), CLEF_OK, "%s", clef_error(ctx));
    g = values(clef_grad_of(x));
    cr_expect_eq(g[3], 24);
    free(g);
    clef_set_grad(x, CLEF_NONE);

    clef_tensor *kept = clef_keep(clef_square(x));
    clef_eval(kept);
    bool dry = clef_set_dry_run(ctx, true);
    clef_eval(clef_neg(kept));
    clef_end_step(ctx);
    clef_set_dry_run(ctx, dry);
    cr_assert_eq(clef_backward(clef_sum(kept, NULL, 0, false)), CLEF_OK, "%s", clef_error(ctx));
    clef_release(kept);
    clef_release(x);
}

Test(autodiff, assigning_starts_anew) {
    clef_tensor *x = leaf(3);
    clef_assign(x, clef_mul(x, x));
    clef_backward(clef_mul(x, x));
    cr_assert_eq(grad(x), 18, "d x² at x = 9, not d x⁴ at x = 3");
}

static void refused(clef_status status, const char *word) {
    cr_assert_neq(status, CLEF_OK);
    cr_assert(strstr(clef_error(ctx), word), "%s", clef_error(ctx));
    clef_clear_error(ctx);
}

Test(autodiff, the_tape_ends_at_a_value_that_a_parameter_had) {
    clef_tensor *a = leaf(3), *w = clef_require_grad(clef_keep(clef_mul_scalar(a, 2)), true);
    clef_tensor *y = clef_add(clef_mul_scalar(w, 5), a), *z = clef_mul_scalar(w, 5);
    clef_assign(w, clef_scalar(ctx, 7));
    clef_backward(y);
    cr_assert_eq(grad(a), 1, "nothing goes on to what w's old value was made of");
    cr_assert_null(clef_grad_of(w), "nor to w, which has another value");
    refused(clef_backward(z), "another value");
    cr_assert_eq(clef_item(z), 30);
}

Test(autodiff, a_gradient_wanted_of_an_expression_is_said) {
    clef_tensor *x = leaf(3), *y = clef_mul(x, x), *dy;
    cr_assert_null(clef_grad_of(x), "a parameter has none yet, which is no mistake");
    cr_assert_eq(clef_error_status(ctx), CLEF_OK);
    cr_assert_null(clef_require_grad(y, true));
    refused(clef_error_status(ctx), "require_grad: this mul is a temporary");
    clef_tensor *loss = clef_mul_scalar(y, 5);
    cr_assert_eq(clef_backward(loss), CLEF_OK);
    cr_assert_eq(grad(x), 30, "goes through y as if nobody had asked");
    cr_assert_null(clef_grad_of(y));
    refused(clef_error_status(ctx), "grad_of: this mul is an expression");
    cr_assert_eq(clef_grad(loss, CLEF_NONE, &y, 1, false, &dy), CLEF_OK);
    cr_assert_eq(clef_item(dy), 5);
}

Test(autodiff, what_is_refused) {
    clef_tensor *x = leaf(3), *v = clef_mul(clef_full(ctx, CLEF_SHAPE(2), CLEF_F32, 1), x);
    refused(clef_backward(v), "not a scalar");
    refused(clef_backward(clef_scalar(ctx, 1)), "wants a gradient");
    refused(clef_backward_from(v, x), "shape");
    cr_assert_null(clef_require_grad(clef_keep(clef_zeros(ctx, CLEF_SCALAR, CLEF_I32)), true));
    refused(clef_error_status(ctx), "i32");
}

Test(autodiff, a_gradient_must_fit_its_leaf) {
    clef_tensor *x = leaf(3), *two = clef_zeros(ctx, CLEF_SHAPE(2), CLEF_F32), *half = clef_zeros(ctx, CLEF_SCALAR, CLEF_F16);
    clef_context *other = clef_open(NULL);
    clef_tensor *foreign = clef_zeros(other, CLEF_SCALAR, CLEF_F32);
    for (int has_one = 0; has_one < 2; has_one++) {
        refused(clef_set_grad(x, two), "[2]");
        refused(clef_set_grad(x, half), "f16");
        refused(clef_set_grad(x, foreign), "another context");
        if (has_one) cr_assert_eq(grad(x), 6);
        else cr_assert_null(clef_grad_of(x));
        cr_assert_eq(clef_set_grad(x, clef_scalar(ctx, 6)), CLEF_OK);
    }
    refused(clef_backward_from(clef_mul(x, x), half), "f16");
    refused(clef_backward_from(clef_mul(x, x), foreign), "another context");
    cr_assert_eq(clef_set_grad(NULL, NULL), CLEF_INVALID);
    clef_close(other);
}

Test(autodiff, tensors_of_two_contexts_do_not_mix) {
    clef_context *other = clef_open(NULL);
    clef_tensor *x = leaf(3), *foreign = clef_scalar(other, 1), *dx = x, *mixed[] = {x, foreign};
    refused(clef_eval_all(mixed, 2), "different contexts");
    refused(clef_grad(clef_mul(x, x), CLEF_NONE, &foreign, 1, false, &dx), "another context");
    cr_assert_null(dx);
    refused(clef_grad(clef_mul(x, x), foreign, &x, 1, false, &dx), "another context");
    close_clean(other);
}

Test(autodiff, an_old_error_neither_hides_a_new_one_nor_makes_one) {
    static const clef_custom_op cube = {.name = "cube", .forward = "x * x * x", .backward = {"3 * x * x * g"}};
    clef_tensor *x = leaf(2), *w = leaf(5), *dx;
    cr_assert_eq(clef_grad(clef_custom(&cube, &x, 1), CLEF_NONE, &x, 1, true, &dx), CLEF_OK);
    cr_assert_null(clef_reshape(x, CLEF_SHAPE(3)));
    cr_assert_eq(clef_backward(clef_add(dx, w)), CLEF_UNSUPPORTED, "a custom op has no second derivative");
    cr_assert_null(clef_grad_of(w), "all gradients or none");
    cr_assert_eq(clef_backward(clef_mul(x, x)), CLEF_OK);
    cr_assert_eq(grad(x), 4);
    refused(clef_error_status(ctx), "reshape");
}

/* In a process of its own: pocl asks once what devices there are. */
TestAlone(two_devices, a_gradient_lies_with_its_leaf) {
    setenv("POCL_DEVICES", "pthread basic", 1);
    ctx = clef_open(&(clef_options){.device = "0,1"});
    if (!ctx) cr_skip_test("no two devices here: %s", clef_error(NULL));
    clef_tensor *x = leaf(3);
    refused(clef_set_grad(x, clef_to_device(clef_from_host(ctx, CLEF_SCALAR, CLEF_F32, &(float){1}), 1)), "device");
    clef_tensor *far = clef_require_grad(clef_keep(clef_to_device(clef_scalar(ctx, 2), 1)), true), *dx[2];
    cr_assert_eq(clef_grad(clef_mul(x, x), CLEF_NONE, (clef_tensor *[]){x, far}, 2, false, dx), CLEF_OK);
    cr_assert_eq(clef_tensor_device(dx[1]), 1, "zeros, but where they belong");
    clef_close(ctx);
}

/* ---- the N-th allocation fails ---- */

static long countdown;
static void *take(void *user, size_t bytes) {
    (void)user;
    return countdown > 0 && --countdown == 0 ? NULL : malloc(bytes);
}
static void *retake(void *user, void *old, size_t bytes) {
    (void)user;
    return countdown > 0 && --countdown == 0 ? NULL : realloc(old, bytes);
}
static void drop(void *user, void *old) {
    (void)user;
    free(old);
}

/* A mistake in an op's gradient is an error line, not another tensor's memory. */
static void mistaken_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                              clef_tensor **dx) {
    (void)x, (void)y, (void)wanted;
    dx[0] = clef_expand(g[0], CLEF_SHAPE(3, 1));
}

Test(autodiff, a_gradient_of_another_shape_is_found_out) {
    static const clef_op mistaken = {
        .name = "mistaken", .kind = CLEF__POINTWISE, .params = "x", .text = "x", .gradient = mistaken_gradient};
    clef_tensor *x = leaf(2);
    cr_expect_eq(clef_backward(clef__apply(&mistaken, &x, 1, NULL, 0)), CLEF_INTERNAL);
    expect_error(ctx, CLEF_INTERNAL, "mistaken: clef bug, please report it: the gradient of input 0 is [3,1], not []");
    cr_expect(!clef_grad_of(x));
}

Test(no_memory, backward_gives_all_gradients_or_none) {
    clef_set_allocator(&(clef_allocator){take, retake, drop, NULL});
    open_device();
    clef_tensor *x = leaf(3), *y = leaf(4), *z = leaf(5);
    cr_assert_eq(clef_backward(clef_add(clef_mul(x, y), z)), CLEF_OK);
    clef_set_grad(z, CLEF_NONE);
    for (long n = 1, failed = 1; failed; n++) {
        clef_tensor *loss = clef_add(clef_mul(x, y), z);
        cr_assert(loss);
        countdown = n;
        clef_status status = clef_backward(loss);
        failed = countdown == 0;
        countdown = 0;
        cr_assert_eq(status, failed ? CLEF_MEMORY : CLEF_OK, "allocation %ld: %s", n, clef_status_name(status));
        clef_clear_error(ctx);
        cr_assert_eq(clef_grad_of(z) != NULL, !failed, "allocation %ld", n);
        cr_assert(clef_grad_of(x) && clef_grad_of(y), "allocation %ld lost what was there", n);
        cr_assert_eq(grad(x), failed ? 4 : 8, "allocation %ld", n);
        cr_assert_eq(grad(y), failed ? 3 : 6, "allocation %ld", n);
    }
    close_device();
}

Test(no_memory, grad_gives_all_results_or_none) {
    clef_set_allocator(&(clef_allocator){take, retake, drop, NULL});
    open_device();
    clef_tensor *x = leaf(3), *y = leaf(4), *dx[2];
    for (long n = 1, failed = 1; failed; n++) {
        clef_tensor *square = clef_mul(x, x);
        countdown = n;
        clef_status status = clef_grad(square, CLEF_NONE, (clef_tensor *[]){x, y}, 2, false, dx);
        failed = countdown == 0;
        countdown = 0;
        cr_assert_eq(status, failed ? CLEF_MEMORY : CLEF_OK, "allocation %ld: %s", n, clef_status_name(status));
        clef_clear_error(ctx);
        for (int i = 0; i < 2; i++) cr_assert_eq(dx[i] != NULL, !failed, "allocation %ld", n);
    }
    cr_assert_eq(clef_item(dx[0]), 6);
    close_device();
}
