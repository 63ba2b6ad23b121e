/* Who holds a tensor: keeping and releasing, owners inside the library, temporaries that pile up. */
#include "graph/graph.h"
#include "support/device.h"

static clef_context *ctx;

static void open_device(void) { ctx = open_seeded(0); }
static void close_device(void) { close_clean(ctx); }
TestSuite(lifetime, .init = open_device, .fini = close_device);

static clef_tensor *number(float value) { return clef_from_host(ctx, CLEF_SCALAR, CLEF_F32, &value); }
static uint64_t buffers(void) { return clef_memory(ctx).buffers; }
static void end_steps(int n) {
    for (int i = 0; i < n; i++) {
        clef_scalar(ctx, i);
        clef_end_step(ctx);
    }
}

Test(lifetime, each_keep_wants_its_release) {
    clef_tensor *x = clef_keep(number(3));
    end_steps(3);
    clef_tensor *same = clef_keep(clef_to(x, CLEF_F32)); /* nothing to do: x itself */
    clef_release(same);
    cr_assert_eq(buffers(), 1, "x was kept by someone else, too");
    cr_assert_eq(clef_item(x), 3);
    clef_release(x);
    cr_assert_eq(buffers(), 0);
}

Test(lifetime, a_release_does_not_shorten_a_temporary) {
    clef_tensor *x = number(3);
    clef_release(clef_keep(clef_reshape(x, CLEF_SCALAR)));
    cr_assert_eq(buffers(), 1, "x is still a temporary of this step");
    clef_release(x);
    cr_assert_eq(clef_item(x), 3, "which nobody keeps");
    end_steps(1);
    cr_assert_eq(clef_item(x), 3);
    end_steps(2);
    cr_assert_eq(buffers(), 0);
}

Test(lifetime, a_kept_gradient_outlives_its_clearing) {
    clef_tensor *x = clef_require_grad(clef_keep(number(3)), true);
    clef_backward(clef_mul(x, x));
    clef_release(clef_grad_of(x)); /* not kept by us: nothing happens */
    clef_tensor *g = clef_keep(clef_grad_of(x));
    clef_set_grad(x, CLEF_NONE);
    clef_backward(clef_mul_scalar(x, 5));
    cr_assert_neq(clef_grad_of(x), g);
    end_steps(3);
    cr_assert_eq(clef_item(g), 6);
    clef_release(x);
    cr_assert_eq(clef_item(g), 6);
    clef_release(g);
    end_steps(1 + CLEF_RESULT_STEPS); /* what backward was called on lives as long */
    cr_assert_eq(buffers(), 0);
}

Test(lifetime, modules_and_optimizers_hold_what_is_theirs) {
    clef_module *net = clef_nn_linear(ctx, 2, 1, NULL);
    clef_optimizer *adam = clef_adam(net, NULL);
    clef_tensor *w = clef_module_tensor(net, 0).tensor, *m = clef_optimizer_tensor(adam, 1).tensor;
    clef_release(w);
    clef_release(clef_keep(w));
    clef_release(m);
    end_steps(3);
    clef_backward(clef_sum(clef_forward(net, clef_ones(ctx, CLEF_SHAPE(1, 2), CLEF_F32)), NULL, 0, false));
    cr_assert_eq(clef_step(adam), CLEF_OK);
    float two[2];
    cr_assert_eq(clef_read(w, two, sizeof two), CLEF_OK);
    cr_assert_eq(clef_read(m, two, sizeof two), CLEF_OK);
}

static int warnings;
static void count_warnings(void *user, clef_log_level level, const char *line) {
    (void)user;
    warnings += level == CLEF_LOG_WARNING && strstr(line, "clef_end_step") != NULL;
}

Test(steps, a_loop_that_ends_no_step_is_told) {
    ctx = clef_open(&(clef_options){.log = count_warnings});
    cr_assert(ctx, "%s", clef_error(NULL));
    for (int i = 0; i < 200000; i++) clef_scalar(ctx, i);
    cr_assert_eq(warnings, 1, "once in a step");
    clef_end_step(ctx);
    for (int i = 0; i < 1000; i++) clef_scalar(ctx, i);
    cr_assert_eq(warnings, 1);
    clef_close(ctx);
}
