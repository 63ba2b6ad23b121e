/* L-BFGS takes the steps that PyTorch's takes, in f64; and what a program may do wrong.
   ctest: plain together */
#include "support/device.h"
#include "support/numbers.h"

static clef_context *ctx;
static void open_context(void) { ctx = open_seeded(5); }
static void close_context(void) { close_clean(ctx); }
TestSuite(lbfgs, .init = open_context, .fini = close_context);

enum { MOST = 16 };
static double number(int i) { return (double)((i * 37) % 61 - 30) / 40; }

static clef_tensor *row_of(int first, clef_shape shape, clef_dtype dtype) {
    double value[MOST];
    float narrow[MOST];
    for (int64_t i = 0; i < clef_shape_numel(shape); i++) narrow[i] = (float)(value[i] = number(first + (int)i));
    return clef_from_host(ctx, shape, dtype, dtype == CLEF_F64 ? (void *)value : narrow);
}

/* ---- the functions of lbfgs.py ---- */
typedef struct problem {
    clef_module *m;
    clef_dtype dtype;
    int calls, fails_at, infinite_at; /* 0: never */
    double last;
} problem;

static clef_tensor *of_call(problem *p, clef_tensor *loss) {
    p->calls++;
    if (p->calls == p->fails_at) return NULL;
    return p->calls == p->infinite_at ? clef_mul_scalar(loss, INFINITY) : loss;
}

static clef_module *make_rosenbrock(clef_dtype dtype) {
    const double x[] = {-1.2, 1, 0.5};
    const float narrow[] = {-1.2f, 1, 0.5f};
    clef_module *m = clef_module_new(ctx, "parameters", NULL, NULL);
    clef_module_add_parameter(m, "x", clef_from_host(ctx, CLEF_SHAPE(3), dtype, dtype == CLEF_F64 ? (const void *)x : narrow));
    return m;
}

static clef_tensor *rosenbrock(void *user) {
    problem *p = user;
    clef_tensor *x = clef_parameter(p->m, "x"), *a = clef_slice(x, 0, 0, 2, 1), *b = clef_slice(x, 0, 1, 3, 1);
    clef_tensor *valley = clef_mul_scalar(clef_square(clef_sub(b, clef_square(a))), 100);
    return of_call(p, clef_sum(clef_add(valley, clef_square(clef_add_scalar(a, -1))), NULL, 0, false));
}

static clef_module *make_net(clef_dtype dtype) {
    clef_module *m = clef_module_new(ctx, "parameters", NULL, NULL);
    clef_module_add_parameter(m, "a", row_of(0, CLEF_SHAPE(3, 2), dtype));
    clef_module_add_parameter(m, "b", row_of(6, CLEF_SHAPE(3), dtype));
    clef_module_add_parameter(m, "c", row_of(9, CLEF_SHAPE(1, 3), dtype));
    clef_module_add_parameter(m, "d", row_of(12, CLEF_SHAPE(1), dtype));
    return m;
}

static clef_tensor *net(void *user) {
    problem *p = user;
    clef_tensor *x = row_of(100, CLEF_SHAPE(6, 2), p->dtype), *y = row_of(200, CLEF_SHAPE(6, 1), p->dtype);
    clef_tensor *h = clef_tanh(clef_linear(x, clef_parameter(p->m, "a"), clef_parameter(p->m, "b")));
    return of_call(p, clef_mse_loss(clef_linear(h, clef_parameter(p->m, "c"), clef_parameter(p->m, "d")), y, NULL));
}

static int read_all(clef_module *m, double *out) {
    int n = 0;
    for (int i = 0; i < clef_module_tensors(m); i++) {
        clef_tensor *t = clef_module_tensor(m, i).tensor;
        float narrow[MOST];
        int64_t here = clef_numel(t);
        if (clef_tensor_dtype(t) == CLEF_F64) cr_assert_eq(clef_read(t, out + n, (size_t)here * sizeof *out), CLEF_OK);
        else {
            cr_assert_eq(clef_read(clef_to(t, CLEF_F32), narrow, (size_t)here * sizeof *narrow), CLEF_OK);
            for (int64_t k = 0; k < here; k++) out[n + k] = narrow[k];
        }
        n += (int)here;
    }
    return n;
}

/* ---- PyTorch's steps ---- */
typedef struct expected {
    double loss;
    int64_t iterations, evaluations;
    double parameter[MOST];
} expected;

static clef_lbfgs *lbfgs;
static problem present;
static clef_closure_fn closure;

static void start(clef_module *m, clef_closure_fn f, clef_lbfgs_options o) {
    present = (problem){.m = m, .dtype = CLEF_F64};
    closure = f;
    lbfgs = clef_lbfgs_new(m, &o);
    cr_assert_not_null(lbfgs, "%s", clef_error(ctx));
}

static void take_step(const expected *want, int line) {
    double loss = 0, got[MOST];
    cr_assert_eq(clef_lbfgs_step(lbfgs, closure, &present, &loss), CLEF_OK, "%s", clef_error(ctx));
    clef_lbfgs_state state = clef_lbfgs_get(lbfgs);
    cr_assert(state.iterations == want->iterations && state.evaluations == want->evaluations,
              "line %d: %lld iterations with %lld evaluations, not %lld with %lld", line, (long long)state.iterations,
              (long long)state.evaluations, (long long)want->iterations, (long long)want->evaluations);
    cr_expect_float_eq(loss, want->loss, 1e-7 * (1 + fabs(want->loss)), "line %d: loss %.15g, not %.15g", line, loss, want->loss);
    int n = read_all(present.m, got);
    for (int i = 0; i < n; i++)
        cr_expect_float_eq(got[i], want->parameter[i], 1e-7, "line %d, %d: %.15g, not %.15g", line, i, got[i], want->parameter[i]);
}

Test(lbfgs, takes_the_steps_of_pytorch) {
    if (!has_f64(ctx)) cr_skip_test("no f64 on this device");
#define RUN(function, rate, iterations, evaluations, pairs, wolfe, steps) \
    start(make_##function(CLEF_F64), function,                            \
          (clef_lbfgs_options){                                           \
              .lr = rate, .max_iter = iterations, .max_eval = evaluations, .history = pairs, .strong_wolfe = (wolfe) != 0});
#define STEP(loss, iterations, evaluations, ...) take_step(&(expected){loss, iterations, evaluations, {__VA_ARGS__}}, __LINE__);
#include "expectations/lbfgs.def"
#undef RUN
#undef STEP
}

/* ---- other dtypes, devices and calls ---- */
Test(lbfgs, finds_the_minimum_in_f32_and_of_halves) {
    clef_dtype dtype[] = {CLEF_F32, CLEF_F16};
    for (int i = 0; i < (few_kernels() ? 1 : 2); i++) {
        problem p = {.m = make_rosenbrock(dtype[i]), .dtype = dtype[i]};
        clef_lbfgs *l = clef_lbfgs_new(p.m, &(clef_lbfgs_options){.strong_wolfe = true});
        double first, last, x[3];
        cr_assert_eq(clef_lbfgs_step(l, rosenbrock, &p, &first), CLEF_OK, "%s", clef_error(ctx));
        for (int k = 0; k < 3; k++) cr_assert_eq(clef_lbfgs_step(l, rosenbrock, &p, &last), CLEF_OK, "%s", clef_error(ctx));
        read_all(p.m, x);
        for (int k = 0; k < 3; k++) cr_expect_float_eq(x[k], 1, dtype[i] == CLEF_F32 ? 1e-4 : 0.1, "%g", x[k]);
        cr_expect(last < first / 1000);
        cr_expect_null(clef_grad_of(clef_parameter(p.m, "x")), "gradients are cleared");
    }
}

/* Memory is that of the pairs and a few vectors more, however many iterations a step has. */
enum { LONG = 1 << 14 };

static clef_tensor *long_valley(void *user) {
    clef_tensor *x = user, *a = clef_slice(x, 0, 0, LONG - 1, 1), *b = clef_slice(x, 0, 1, LONG, 1);
    clef_tensor *valley = clef_mul_scalar(clef_square(clef_sub(b, clef_square(a))), 100);
    return clef_mean(clef_add(valley, clef_square(clef_add_scalar(a, -1))), NULL, 0, false);
}

Test(lbfgs, memory_does_not_grow_with_iterations) {
    static const int iterations[] = {6, 6, 30};
    for (int wolfe = 0; wolfe < 2; wolfe++) {
        clef_module *m = clef_module_new(ctx, "parameters", NULL, NULL);
        clef_module_add_parameter(m, "x", noise_tensor(ctx, CLEF_SHAPE(LONG), 3));
        size_t used = 0;
        for (int i = 0; i < 3; i++) {
            clef_lbfgs_options o = {.lr = wolfe ? 1 : 0.01,
                                    .max_iter = iterations[i],
                                    .max_eval = 100,
                                    .history = 2,
                                    .tolerance_grad = 1e-30,
                                    .tolerance_change = 1e-30,
                                    .strong_wolfe = wolfe != 0};
            clef_lbfgs *l = clef_lbfgs_new(m, &o);
            clef_assign(clef_parameter(m, "x"), noise_tensor(ctx, CLEF_SHAPE(LONG), 3));
            size_t before = (size_t)clef_memory(ctx).used;
            cr_assert_eq(clef_lbfgs_step(l, long_valley, clef_parameter(m, "x"), NULL), CLEF_OK, "%s", clef_error(ctx));
            cr_assert(clef_lbfgs_get(l).iterations > iterations[i] / 2, "%d: %lld, %g", wolfe,
                      (long long)clef_lbfgs_get(l).iterations, clef_lbfgs_get(l).loss);
            size_t more = (size_t)clef_memory(ctx).used - before;
            if (i < 2) used = more;
            cr_expect(more <= used + LONG * sizeof(float), "%d iterations: %zu bytes, not %zu", iterations[i], more, used);
        }
    }
}

/* Batches of a loader are temporaries, as is what a program made before. */
static clef_tensor *of_batch(void *user) {
    void **of = user;
    return clef_mse_loss(clef_forward(of[0], of[1]), of[2], NULL);
}

Test(lbfgs, the_programs_temporaries_live_on) {
    clef_module *m = clef_nn_linear(ctx, 3, 1, NULL);
    clef_tensor *x = clef_rand(ctx, CLEF_SHAPE(8, 3)), *y = clef_sum(x, (int[]){1}, 1, true);
    clef_lbfgs *l = clef_lbfgs_new(m, &(clef_lbfgs_options){.strong_wolfe = true, .history = 3});
    for (int i = 0; i < 2; i++)
        cr_assert_eq(clef_lbfgs_step(l, of_batch, (void *[]){m, x, y}, NULL), CLEF_OK, "%s", clef_error(ctx));
    double left = clef_item(of_batch((void *[]){m, x, y}));
    cr_expect(left < 1e-7, "%g", left);
}

Test(lbfgs, the_same_bits_each_time) {
    double a[MOST], b[MOST];
    for (int i = 0; i < 2; i++) {
        problem p = {.m = make_net(CLEF_F32), .dtype = CLEF_F32};
        clef_lbfgs *l = clef_lbfgs_new(p.m, &(clef_lbfgs_options){.strong_wolfe = true, .history = 4});
        for (int k = 0; k < 2; k++) cr_assert_eq(clef_lbfgs_step(l, net, &p, NULL), CLEF_OK);
        read_all(p.m, i ? b : a);
    }
    cr_expect_arr_eq(a, b, 13 * sizeof *a);
}

/* Whatever fails, the parameters are where the last iteration that succeeded led. */
Test(lbfgs, failures_leave_the_last_good_parameters) {
    double before[MOST], after[MOST];
    for (int wolfe = 0; wolfe < 2; wolfe++) {
        problem p = {.m = make_rosenbrock(CLEF_F32), .fails_at = 2};
        clef_lbfgs *l = clef_lbfgs_new(p.m, &(clef_lbfgs_options){.lr = 1e-3, .strong_wolfe = wolfe != 0});
        read_all(p.m, before);
        cr_expect_eq(clef_lbfgs_step(l, rosenbrock, &p, NULL), CLEF_INVALID);
        expect_error(ctx, CLEF_INVALID, "lbfgs_step: the closure gave no loss");
        read_all(p.m, after);
        cr_expect_arr_eq(before, after, 3 * sizeof *before);
    }
    problem p = {.m = make_rosenbrock(CLEF_F32), .infinite_at = 3};
    clef_lbfgs *l = clef_lbfgs_new(p.m, &(clef_lbfgs_options){.lr = 1e-3});
    cr_expect_eq(clef_lbfgs_step(l, rosenbrock, &p, NULL), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "the loss or its gradient is not finite after a step");
    read_all(p.m, after);
    cr_expect(after[0] != -1.2f && fabs(after[0] + 1.2) < 0.1, "%g", after[0]);
    p.infinite_at = 4;
    cr_expect_eq(clef_lbfgs_step(l, rosenbrock, &p, NULL), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "is not finite where the step begins, so nothing was moved");
    problem q = {.m = make_rosenbrock(CLEF_F32), .infinite_at = 2};
    l = clef_lbfgs_new(q.m, &(clef_lbfgs_options){.strong_wolfe = true});
    cr_expect_eq(clef_lbfgs_step(l, rosenbrock, &q, NULL), CLEF_OK, "the search passes it by: %s", clef_error(ctx));
    cr_expect(clef_lbfgs_get(l).loss < 10, "%g", clef_lbfgs_get(l).loss);
}

/* A failed first iteration leaves nothing behind: the next step is a first one. */
Test(lbfgs, begins_anew_after_a_failure) {
    double x[2][MOST];
    for (int fails = 0; fails < 2; fails++) {
        problem p = {.m = make_rosenbrock(CLEF_F32)};
        clef_lbfgs *l = clef_lbfgs_new(p.m, &(clef_lbfgs_options){.lr = 0.1, .max_iter = 2});
        p.fails_at = fails ? 2 : 0;
        if (fails) cr_expect_eq(clef_lbfgs_step(l, rosenbrock, &p, NULL), CLEF_INVALID);
        clef_clear_error(ctx);
        p.fails_at = 0;
        cr_assert_eq(clef_lbfgs_step(l, rosenbrock, &p, NULL), CLEF_OK, "%s", clef_error(ctx));
        read_all(p.m, x[fails]);
    }
    cr_expect_arr_eq(x[0], x[1], 3 * sizeof *x[0]);
}

static clef_tensor *large(void *user) {
    problem *p = user;
    return clef_sum(clef_mul_scalar(clef_parameter(p->m, "x"), 3e20), NULL, 0, false);
}

static clef_tensor *again(void *user) {
    cr_expect_eq(clef_lbfgs_step(lbfgs, again, user, NULL), CLEF_STATE);
    expect_error(ctx, CLEF_STATE, "lbfgs_step: its closure calls it again");
    return rosenbrock(user);
}

Test(lbfgs, says_what_is_wrong) {
    problem p = {.m = make_rosenbrock(CLEF_F32)};
    clef_lbfgs *l = clef_lbfgs_new(p.m, &(clef_lbfgs_options){0});
    cr_expect_eq(clef_lbfgs_step(l, large, &p, NULL), CLEF_INVALID, "loss and gradient are finite, its square is not");
    expect_error(ctx, CLEF_INVALID, "lbfgs_step: sums of products of the gradient's elements are too large for f32");
    start(p.m, rosenbrock, (clef_lbfgs_options){.lr = 1e-3, .max_iter = 1});
    cr_expect_eq(clef_lbfgs_step(lbfgs, again, &p, NULL), CLEF_OK, "%s", clef_error(ctx));
}

/* ---- several devices ---- */
static clef_tensor *of_moved(void *user) {
    clef_module *m = user;
    clef_context *own = clef_module_context(m);
    clef_tensor *x = clef_full(own, CLEF_SHAPE(2, 3), CLEF_F32, 0.5);
    x = clef_to_device(x, clef_tensor_device(clef_parameter(m, "weight")));
    return clef_mean(clef_square(clef_add_scalar(clef_forward(m, x), -1)), NULL, 0, false);
}

Test(lbfgs, follows_a_module_that_moves) {
    float after[2][6];
    for (int moves = 0; moves < 2; moves++) {
        clef_context *own = open_or_skip(&(clef_options){.device = "0/2", .seed = 3});
        if (clef_context_device_count(own) < 2) {
            clef_close(own);
            cr_skip_test("one device only");
        }
        clef_module *m = clef_nn_linear(own, 3, 2, NULL);
        clef_lbfgs *l = clef_lbfgs_new(m, &(clef_lbfgs_options){.lr = 0.1, .max_iter = 3});
        for (int i = 0; i < 3; i++) {
            cr_assert_eq(clef_lbfgs_step(l, of_moved, m, NULL), CLEF_OK, "%s", clef_error(own));
            if (moves) cr_assert_eq(clef_module_to(m, i == 0), CLEF_OK);
        }
        cr_assert_eq(clef_read(clef_parameter(m, "weight"), after[moves], sizeof after[0]), CLEF_OK);
        close_clean(own);
    }
    for (int i = 0; i < 6; i++) cr_expect_float_eq(after[0][i], after[1][i], 1e-6, "%g, %g", after[0][i], after[1][i]);
}

Test(lbfgs, refusals) {
    clef_module *m = make_rosenbrock(CLEF_F32);
    cr_expect_null(clef_lbfgs_new(m, &(clef_lbfgs_options){.lr = -1}));
    expect_error(ctx, CLEF_INVALID, "lbfgs: lr is -1");
    cr_expect_null(clef_lbfgs_new(m, &(clef_lbfgs_options){.history = -1}));
    expect_error(ctx, CLEF_INVALID, "lbfgs: history is -1");
    cr_expect_null(clef_lbfgs_new(clef_nn_relu(ctx), NULL));
    expect_error(ctx, CLEF_INVALID, "lbfgs: the relu has no floating parameter to train");
    cr_expect_null(clef_lbfgs_new(NULL, NULL));
    clef_lbfgs *l = clef_lbfgs_new(m, NULL);
    cr_expect_eq(clef_lbfgs_step(l, NULL, NULL, NULL), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "lbfgs_step: the closure is NULL");
    cr_expect_eq(clef_lbfgs_step(NULL, rosenbrock, NULL, NULL), CLEF_INVALID);
    cr_expect(clef_lbfgs_get(NULL).iterations == 0 && clef_lbfgs_get(l).iterations == 0);
}
