/* Lazy evaluation on a device: what runs, what is replayed, what is kept, what is overwritten.
   ctest: cost=30 apart plain */
#include "graph/core.h"
#include "plan/run/run.h"
#include "support/counting.h"
#include "support/device.h"

static clef_context *ctx;

static void open_device(void) { ctx = open_seeded(0); }
static void close_device(void) { close_clean(ctx); }
TestSuite(eval, .init = open_device, .fini = close_device);
TestSuite(dry, .init = open_device, .fini = close_device);

static clef_tensor *vector(int64_t n, float first, float step) {
    float data[4096];
    for (int64_t i = 0; i < n; i++) data[i] = first + step * (float)i;
    return clef_from_host(ctx, CLEF_SHAPE(n), CLEF_F32, data);
}

static uint64_t launches(void) { return clef_counters_get(ctx).launches; }

static void expect_values(clef_tensor *t, int n, const float *wanted) {
    float got[64];
    cr_assert_eq(clef_read(t, got, (size_t)n * sizeof(float)), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < n; i++) cr_assert_eq(got[i], wanted[i], "element %d is %g, not %g", i, got[i], wanted[i]);
}
#define EXPECT(t, ...) expect_values(t, (int)(sizeof((float[]){__VA_ARGS__}) / sizeof(float)), (float[]){__VA_ARGS__})

Test(eval, nothing_runs_before_a_result_is_needed) {
    clef_tensor *y = clef_exp(vector(10, 0, 1));
    cr_assert_eq(launches(), 0);
    cr_assert_eq(clef_eval(y), CLEF_OK);
    cr_assert_eq(launches(), 1);
    clef_eval(y);
    cr_assert_eq(launches(), 1, "a computed value is not computed again");
}

Test(eval, dead_code_is_never_launched) {
    clef_tensor *x = vector(10, 0, 1), *y = clef_add_scalar(x, 1);
    for (int i = 0; i < 5; i++) clef_sum(clef_exp(x), NULL, 0, false);
    EXPECT(y, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
    cr_assert_eq(launches(), 1);
}

Test(eval, chains_run_as_one_launch) {
    clef_tensor *x = vector(100, 0, 0.01f), *y = x;
    for (int i = 0; i < 8; i++) y = clef_mul_scalar(clef_sin(y), 2);
    clef_eval(y);
    cr_assert_eq(launches(), 1);
    double wanted = 0.5;
    for (int i = 0; i < 8; i++) wanted = 2 * sin(wanted);
    cr_assert_float_eq(clef_item(clef_slice(y, 0, 50, 51, 1)), wanted, 1e-5);
}

Test(eval, a_changing_scalar_makes_no_new_plan) {
    clef_tensor *x = clef_keep(vector(3, 1, 1));
    for (int i = 0; i < 5; i++) {
        EXPECT(clef_mul(x, clef_scalar(ctx, i)), 1.f * i, 2.f * i, 3.f * i);
        clef_end_step(ctx);
    }
    cr_assert_eq(clef_counters_get(ctx).plans, 1);
    cr_assert_eq(clef_counters_get(ctx).replays, 4);
}

Test(eval, another_shape_makes_another_plan) {
    clef_eval(clef_exp(vector(10, 0, 1)));
    clef_eval(clef_exp(vector(11, 0, 1)));
    clef_eval(clef_exp(vector(10, 0, 1)));
    cr_assert_eq(clef_counters_get(ctx).plans, 2);
}

static void count_compiling(void *user, int done, int total) {
    (void)done, (void)total;
    ++*(int *)user;
}

/* A new plan asks its kernels' compiler nothing, and nobody is told of compiling, where another plan has them already. */
Test(eval, a_new_plan_of_known_kernels_compiles_nothing) {
    int told = 0;
    clef_eval(clef_exp(vector(11, 0, 1)));
    uint64_t plans = clef_counters_get(ctx).plans, built = clef_counters_get(ctx).kernels_built;
    clef_on_compile(ctx, count_compiling, &told);
    clef_eval(clef_exp(vector(12, 0, 1)));
    cr_assert_eq(clef_counters_get(ctx).plans, plans + 1);
    cr_assert_eq(clef_counters_get(ctx).kernels_built, built);
    cr_assert_eq(told, 0, "told %d times", told);
    clef_eval(clef_exp(clef_exp(vector(12, 0, 1))));
    cr_assert(told > 0, "another kernel is told of");
    clef_on_compile(ctx, NULL, NULL);
}

/* ---- the key of a plan ---- */

static void fill_with_one(const clef__lowering *lw) {
    clef__operand y = clef__lower_out(lw, NULL);
    clef__lower_fill(lw, y, 1);
}
static const clef__strategy *const fill_strategies[] = {&(clef__strategy){.name = "fill", .lower = fill_with_one}, NULL};
static const clef_op op_odd = {.name = "odd", .kind = CLEF__KERNEL, .strategies = fill_strategies};

/* Begins a launch while another is open. */
static void begin_twice(const clef__lowering *lw) {
    clef__operand y = clef__lower_out(lw, NULL);
    clef__launch_begin(lw, "random.cl", "random_uniform");
    clef__lower_fill(lw, y, 1);
}
static const clef__strategy *const twice_strategies[] = {&(clef__strategy){.name = "twice", .lower = begin_twice}, NULL};
static const clef_op op_twice = {.name = "twice", .kind = CLEF__KERNEL, .strategies = twice_strategies};

/* Records an argument of no launch. */
static void argue_alone(const clef__lowering *lw) {
    clef__lower_out(lw, NULL);
    clef__launch_int(lw, 1);
}
static const clef__strategy *const alone_strategies[] = {&(clef__strategy){.name = "alone", .lower = argue_alone}, NULL};
static const clef_op op_alone = {.name = "alone", .kind = CLEF__KERNEL, .strategies = alone_strategies};

Test(eval, an_argument_belongs_to_a_launch) {
    clef_tensor *x = vector(3, 1, 1);
    cr_assert_eq(clef_eval(clef__apply(&op_alone, &x, 1, NULL, 0)), CLEF_INTERNAL);
    cr_assert(strstr(clef_error(ctx), "alone: ") && strstr(clef_error(ctx), "outside of a launch"), "%s", clef_error(ctx));
    clef_clear_error(ctx);
}

Test(eval, a_launch_cannot_begin_in_another) {
    clef_tensor *x = vector(3, 1, 1);
    cr_assert_eq(clef_eval(clef__apply(&op_twice, &x, 1, NULL, 0)), CLEF_INTERNAL);
    cr_assert(strstr(clef_error(ctx), "twice: ") && strstr(clef_error(ctx), "pointwise begins before the end of random_uniform"),
              "%s", clef_error(ctx));
    clef_clear_error(ctx);
    cr_assert_eq(clef_item(clef_sum(vector(3, 1, 1), NULL, 0, false)), 6);
}

/* ---- how much work pays for a second compute unit ---- */

static struct {
    int64_t none, edge, below, above, many;
    bool pays;
} run;
enum { MANY = 100000000 };

static void ask_runs(const clef__lowering *lw) {
    double units = clef__lower_device(lw)->compute_units, start = clef__lower_profile(lw)->unit_us;
    run.pays = units < 2 || start == 0;
    run.none = clef__lower_run(lw, 0, 1);
    run.edge = units < 2 ? 1 : (int64_t)(4096 * start * units / (units - 1));
    run.below = clef__lower_run(lw, run.edge - 1, 1);
    run.above = clef__lower_run(lw, run.edge + 1, 1);
    run.many = clef__lower_run(lw, MANY, 1);
    fill_with_one(lw);
}
static const clef__strategy *const runs_strategies[] = {&(clef__strategy){.name = "runs", .lower = ask_runs}, NULL};
static const clef_op op_runs = {.name = "runs", .kind = CLEF__KERNEL, .strategies = runs_strategies};

Test(eval, little_work_is_one_work_item) {
    clef_tensor *x = vector(3, 1, 1);
    cr_assert_eq(clef_eval(clef__apply(&op_runs, &x, 1, NULL, 0)), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(run.none, 1, "never zero: kernels divide by it");
    cr_assert(run.many < MANY, "much work is for all units");
    if (run.pays) cr_skip_test("two compute units, and a profile that says what the second one costs");
    cr_assert_eq(run.below, run.edge - 1);
    cr_assert(run.above < run.edge);
}

static bool same_key(clef_tensor *const *a, int n, clef_tensor *const *b, int m) {
    clef__graph_view g = {0}, h = {0};
    clef__output *roots[2][4];
    for (int i = 0; i < n; i++) roots[0][i] = clef__output_of(a[i]);
    for (int i = 0; i < m; i++) roots[1][i] = clef__output_of(b[i]);
    cr_assert_eq(clef__collect(ctx, roots[0], n, &g), CLEF_OK);
    cr_assert_eq(clef__collect(ctx, roots[1], m, &h), CLEF_OK);
    bool same = g.key_words == h.key_words && memcmp(g.key, h.key, (size_t)g.key_words * sizeof *g.key) == 0;
    clef__graph_view_free(&g);
    clef__graph_view_free(&h);
    return same;
}

static clef_tensor *dynamic_alias(clef_tensor *x, uint64_t value) {
    clef_tensor *y = clef__apply(&clef__op_alias, &x, 1, NULL, 0);
    clef__node_of(y)->has_dynamic = true;
    clef__node_of(y)->dynamic.u[0] = value;
    return y;
}

Test(eval, a_key_tells_dynamic_nodes_from_others) {
    clef_tensor *x = vector(3, 1, 1), *a = clef__apply(&clef__op_alias, &x, 1, NULL, 0), *b = dynamic_alias(x, 1);
    cr_assert(!same_key(&a, 1, &b, 1), "nodes with a dynamic value are not merged, so the plans differ");
    clef_tensor *c = dynamic_alias(x, 3);
    cr_assert(same_key(&b, 1, &c, 1), "the value itself is no part of the key");
}

Test(eval, a_key_tells_attributes_from_further_nodes) {
    clef_tensor *two[2];
    for (int i = 0; i < 2; i++) two[i] = clef__source(ctx, &op_odd, CLEF_SCALAR, CLEF_F32, 0, NULL, 0, 0, 0);
    clef__graph_view g = {0};
    clef__output *root = clef__output_of(two[0]);
    cr_assert_eq(clef__collect(ctx, &root, 1, &g), CLEF_OK);
    clef_tensor *one = clef__source(ctx, &op_odd, CLEF_SCALAR, CLEF_F32, 0, g.key, (size_t)g.key_words * 8, 0, 0);
    cr_assert(!same_key(two, 2, &one, 1), "attributes that look like a node");
    clef__graph_view_free(&g);
    int64_t zero = 0;
    clef_tensor *none = two[0], *some = clef__source(ctx, &op_odd, CLEF_SCALAR, CLEF_F32, 0, &zero, sizeof zero, 0, 0);
    cr_assert(!same_key(&none, 1, &some, 1));
}

Test(eval, assignment_leaves_earlier_expressions_alone) {
    clef_tensor *p = clef_keep(vector(2, 1, 1)), *old = clef_mul_scalar(p, 10);
    cr_assert_eq(clef_assign(p, clef_add_scalar(p, 5)), CLEF_OK);
    EXPECT(p, 6, 7);
    EXPECT(old, 10, 20);
}

Test(eval, an_update_takes_over_its_memory) {
    clef_tensor *p = clef_keep(vector(1000, 0, 1));
    for (int i = 0; i < 4; i++) {
        clef_assign(p, clef_mul_scalar(p, 2));
        clef_end_step(ctx);
    }
    uint64_t buffers = clef_memory(ctx).buffers;
    clef__buffer *before = clef__output_of(p)->buffer;
    for (int i = 0; i < 4; i++) {
        clef_assign(p, clef_mul_scalar(p, 2));
        clef_end_step(ctx);
        cr_assert_eq(clef__output_of(p)->buffer, before, "step %d moved the parameter", i);
    }
    cr_assert_eq(clef_memory(ctx).buffers, buffers);
    cr_assert_eq(clef_item(clef_slice(p, 0, 3, 4, 1)), 3 * 256);
}

Test(eval, a_trained_parameter_stays_where_it_is) {
    clef_tensor *w = clef_require_grad(clef_keep(vector(1000, 0, 1)), true);
    clef__buffer *before = NULL;
    for (int i = 0; i < 6; i++) {
        clef_backward(clef_sum(clef_mul(w, w), NULL, 0, false));
        clef_assign(w, clef_sub(w, clef_mul_scalar(clef_grad_of(w), 0.25)));
        clef_set_grad(w, CLEF_NONE);
        clef_end_step(ctx);
        if (i >= 2) cr_assert_eq(clef__output_of(w)->buffer, before, "step %d moved the parameter", i);
        before = clef__output_of(w)->buffer;
    }
    cr_assert_eq(clef_item(clef_slice(w, 0, 64, 65, 1)), 1);
}

Test(eval, a_view_of_a_parameter_survives_its_update) {
    clef_tensor *w = clef_keep(vector(4, 1, 1));
    for (int i = 0; i < 2; i++) {
        clef_scalar(ctx, i);
        clef_end_step(ctx);
    }
    clef_tensor *v = clef_keep(clef_reshape(w, CLEF_SHAPE(2, 2)));
    clef_assign(w, clef_add_scalar(w, 100));
    clef_end_step(ctx);
    EXPECT(v, 1, 2, 3, 4);
    EXPECT(w, 101, 102, 103, 104);
}

Test(eval, an_update_waits_for_other_readers) {
    clef_tensor *p = clef_keep(vector(4, 1, 1)), *total = clef_keep(clef_sum(p, NULL, 0, false));
    clef_assign(p, clef_mul_scalar(p, 3));
    clef_end_step(ctx);
    EXPECT(p, 3, 6, 9, 12);
    cr_assert_eq(clef_item(total), 10);
}

Test(eval, reading_early_does_not_overwrite_what_kept_values_need) {
    clef_tensor *p = clef_keep(vector(4, 1, 1)), *momentum = clef_keep(vector(4, 10, 10));
    for (int i = 0; i < 2; i++) {
        clef_scalar(ctx, i);
        clef_end_step(ctx);
    }
    clef_tensor *moved = clef_mul_scalar(momentum, 2);
    clef_assign(p, clef_add(p, moved));
    clef_assign(momentum, moved);
    EXPECT(p, 21, 42, 63, 84); /* before the end of the step, which computes both */
    cr_assert_eq(clef_end_step(ctx), CLEF_OK, "%s", clef_error(ctx));
    EXPECT(momentum, 20, 40, 60, 80);
}

Test(eval, what_was_overwritten_is_an_error_not_a_wrong_number) {
    clef_tensor *p = clef_keep(vector(4, 1, 1)), *square = clef_mul(p, p);
    clef_assign(p, clef_sub(p, clef_sum(square, NULL, 0, false)));
    clef_end_step(ctx);
    float out[4];
    cr_assert_neq(clef_read(square, out, sizeof out), CLEF_OK);
    cr_assert(strstr(clef_error(ctx), "overwritten"), "%s", clef_error(ctx));
    clef_clear_error(ctx);
}

Test(eval, a_loss_can_be_read_before_and_after_the_step) {
    clef_tensor *w = clef_require_grad(clef_keep(vector(4, 1, 1)), true);
    for (int early = 0; early < 2; early++) {
        clef_tensor *loss = clef_sum(clef_mul(w, w), NULL, 0, false);
        clef_backward(loss);
        if (early) cr_assert_eq(clef_item(loss), 30 * 0.25);
        clef_assign(w, clef_sub(w, clef_mul_scalar(clef_grad_of(w), 0.25)));
        clef_set_grad(w, CLEF_NONE);
        clef_end_step(ctx);
        if (!early) cr_assert_eq(clef_item(loss), 30);
    }
    EXPECT(w, 0.25, 0.5, 0.75, 1);
}

Test(eval, partial_results_are_not_computed_twice) {
    clef_tensor *w = clef_require_grad(clef_keep(vector(64, 0, 0.1f)), true);
    clef_tensor *hidden = clef_softmax(w, 0), *loss = clef_sum(clef_mul(hidden, hidden), NULL, 0, false);
    clef_backward(loss);
    clef_item(loss);
    cr_assert(clef__output_of(hidden)->buffer, "backward still needs it, so it is kept");
}

Test(eval, temporaries_live_one_step_longer) {
    clef_tensor *y = clef_add_scalar(vector(2, 1, 1), 1);
    clef_eval(y);
    clef_end_step(ctx);
    EXPECT(y, 2, 3);
    clef_end_step(ctx); /* nothing was made since: this step does not count */
    EXPECT(y, 2, 3);
}

Test(eval, kept_tensors_are_computed_by_the_end_of_the_step) {
    clef_tensor *y = clef_keep(clef_add_scalar(vector(2, 1, 1), 1));
    for (int i = 0; i < 4; i++) {
        clef_full(ctx, CLEF_SCALAR, CLEF_F32, i);
        clef_end_step(ctx);
    }
    cr_assert(clef__output_of(y)->buffer);
    EXPECT(y, 2, 3);
    clef_release(y);
}

/* The sum of the squares of x·x', whose [n,n] product lies in the arena. */
static double through_arena(int64_t n) {
    float data[512] = {0};
    for (int64_t i = 0; i < n; i++) data[i] = (float)(i % 3);
    clef_tensor *x = clef_from_host(ctx, CLEF_SHAPE(n, 1), CLEF_F32, data), *y = clef_matmul(x, clef_transpose(x, 0, 1));
    double sum = clef_item(clef_sum(clef_mul(y, y), NULL, 0, false)), squares = 0;
    for (int64_t i = 0; i < n; i++) squares += data[i] * data[i];
    cr_assert_eq(sum, squares * squares, "%s", clef_error(ctx));
    clef_end_step(ctx);
    clef_scalar(ctx, 0);
    clef_end_step(ctx);
    return sum;
}

Test(eval, plans_of_many_shapes_share_an_arena) {
    through_arena(512);
    clef_synchronize(ctx);
    clef_memory_reset_peak(ctx);
    uint64_t used = clef_memory(ctx).used;
    for (int64_t n = 512; n > 480; n--) through_arena(n);
    cr_assert_leq(clef_memory(ctx).used, used + 4096, "%llu bytes more", (unsigned long long)(clef_memory(ctx).used - used));
    cr_assert_leq(clef_memory(ctx).peak, used + 3 * 512 * 512 * sizeof(float));
}

Test(eval, plans_follow_an_arena_that_grows) {
    for (int round = 0; round < 2; round++)
        for (int64_t n = 16; n <= 512; n *= 2) {
            through_arena(n);
            through_arena(16);
        }
    cr_assert_eq(clef_counters_get(ctx).plans, 6, "the others are replays");
}

Test(eval, scalars_and_empty_tensors_work) {
    cr_assert_eq(clef_item(clef_add(clef_scalar(ctx, 2), clef_scalar(ctx, 3))), 5);
    clef_tensor *none = clef_zeros(ctx, CLEF_SHAPE(3, 0), CLEF_F32);
    cr_assert_eq(clef_read(clef_exp(none), NULL, 0), CLEF_OK);
    cr_assert_eq(clef_item(clef_sum(none, NULL, 0, false)), 0);
    EXPECT(clef_sum(none, (int[]){1}, 1, false), 0, 0, 0);
}

Test(eval, views_share_memory_and_read_in_order) {
    float data[6] = {1, 2, 3, 4, 5, 6};
    clef_tensor *x = clef_from_host(ctx, CLEF_SHAPE(2, 3), CLEF_F32, data), *t = clef_transpose(x, 0, 1);
    clef_eval(t);
    cr_assert_eq(launches(), 0, "a view is no work");
    EXPECT(t, 1, 4, 2, 5, 3, 6);
    EXPECT(clef_add(t, t), 2, 8, 4, 10, 6, 12);
    EXPECT(clef_reshape(t, CLEF_SHAPE(6)), 1, 4, 2, 5, 3, 6);
    EXPECT(clef_flip(clef_slice(x, 1, 0, 3, 2), 0), 4, 6, 1, 3);
}

Test(eval, views_may_be_stacked_as_high_as_one_likes) {
    clef_tensor *x = clef_reshape(vector(6, 1, 1), CLEF_SHAPE(2, 3)), *y = x, *z = clef_full(ctx, CLEF_SHAPE(2, 3), CLEF_F32, 2);
    for (int i = 0; i < 100000; i++) y = clef_transpose(y, 0, 1), z = clef_transpose(z, 0, 1);
    EXPECT(clef_add(y, z), 3, 4, 5, 6, 7, 8);
    EXPECT(clef_matmul(clef_transpose(y, 0, 1), z), 10, 10, 10, 14, 14, 14, 18, 18, 18);
    EXPECT(clef_copy(y), 1, 2, 3, 4, 5, 6);
}

Test(eval, constants_that_are_kept_lie_in_memory) {
    clef_tensor *z = clef_keep(clef_full(ctx, CLEF_SHAPE(3), CLEF_F32, 7));
    clef_end_step(ctx);
    cr_assert_eq(clef__output_of(z)->layout.stride[0], 1);
    EXPECT(z, 7, 7, 7);
    EXPECT(clef_full(ctx, CLEF_SHAPE(2), CLEF_F32, -1), -1, -1);
}

/* The same program, whatever the mode. */
static double program(clef_context *c) {
    float data[60];
    for (int i = 0; i < 60; i++) data[i] = (float)(i % 7) - 3;
    clef_tensor *w = clef_require_grad(clef_keep(clef_from_host(c, CLEF_SHAPE(5, 12), CLEF_F32, data)), true);
    for (int i = 0; i < 3; i++) {
        clef_tensor *h = clef_relu(clef_matmul(w, clef_transpose(w, 0, 1)));
        clef_tensor *loss = clef_mean(clef_mul(clef_tanh(clef_mul_scalar(h, 0.1)), h), NULL, 0, false);
        clef_backward(loss);
        clef_assign(w, clef_sub(w, clef_mul_scalar(clef_grad_of(w), 0.01)));
        clef_set_grad(w, CLEF_NONE);
        clef_end_step(c);
    }
    return clef_item(clef_sum(clef_mul(w, w), NULL, 0, false));
}

Test(modes, eager_unfused_and_exact_buffers_agree) {
    clef_context *plain = clef_open(NULL), *eager = clef_open(&(clef_options){.eager = true}),
                 *exact = clef_open(&(clef_options){.debug_memory = true});
    double wanted = program(plain);
    cr_assert(isfinite(wanted) && wanted > 0, "%s", clef_error(plain));
    cr_assert_float_eq(program(eager), wanted, 1e-5 * wanted, "%s", clef_error(eager));
    cr_assert_eq(program(exact), wanted, "%s", clef_error(exact));
    setenv("CLEF_FUSE", "0", 1);
    clef_context *alone = clef_open(NULL);
    cr_assert_float_eq(program(alone), wanted, 1e-5 * wanted, "%s", clef_error(alone));
    cr_assert_gt(clef_counters_get(alone).launches, clef_counters_get(plain).launches);
    clef_close(plain);
    clef_close(eager);
    clef_close(exact);
    clef_close(alone);
}

Test(print, a_stream_that_takes_nothing_is_an_error) {
    open_device();
    FILE *full = fopen("/dev/full", "w");
    if (!full) cr_skip_test("/dev/full is missing");
    setvbuf(full, NULL, _IONBF, 0);
    clef_tensor *y = clef_keep(clef_exp(vector(10, 0, 1)));
    for (int computed = 0; computed < 2; computed++) {
        cr_expect_eq(clef_print_plan(y, CLEF_PLAN_TEXT, full), CLEF_IO);
        expect_error(ctx, CLEF_IO, "print_plan");
        clef_eval(y);
    }
    clef_release(y);
    fclose(full);
}

Test(print, a_plan_can_be_read) {
    open_device();
    char text[8192] = {0};
    FILE *file = tmpfile();
    clef_tensor *y = clef_softmax(clef_exp(vector(10, 0, 1)), 0);
    cr_assert_eq(clef_print_plan(y, CLEF_PLAN_TEXT, file), CLEF_OK);
    rewind(file);
    cr_assert_gt(fread(text, 1, sizeof text - 1, file), 0);
    cr_assert(strstr(text, "exp") && strstr(text, "softmax") && strstr(text, "memory: arena") && strstr(text, "output"), "%s",
              text);
    rewind(file);
    cr_assert_eq(clef_print_plan(y, CLEF_PLAN_GRAPHVIZ, file), CLEF_OK);
    rewind(file);
    cr_assert_gt(fread(text, 1, sizeof text - 1, file), 0);
    cr_assert(strncmp(text, "digraph", 7) == 0 && strstr(text, "->"));
    clef_tensor *values = NULL, *places = NULL;
    cr_assert_eq(clef_topk(vector(10, 0, 1), 3, 0, true, &values, &places), CLEF_OK);
    memset(text, 0, sizeof text);
    rewind(file);
    cr_assert_eq(clef_print_plan(clef_add(values, clef_to(places, CLEF_F32)), CLEF_PLAN_GRAPHVIZ, file), CLEF_OK);
    rewind(file);
    cr_assert_gt(fread(text, 1, sizeof text - 1, file), 0);
    cr_assert(strstr(text, "output 1") && !strstr(text, "n-1"), "every output has an edge: %s", text);
    fclose(file);
    close_device();
}

Test(print, tensors_look_like_numpy) {
    open_device();
    char text[256];
    cr_assert_gt(clef_format(clef_reshape(vector(4, 1, 1), CLEF_SHAPE(2, 2)), text, sizeof text), 0);
    cr_assert_str_eq(text, "[[1, 2],\n [3, 4]] f32 [2,2]");
    cr_assert_gt(clef_format(vector(2000, 0, 1), text, sizeof text), 0);
    cr_assert_str_eq(text, "[0, 1, 2, …, 1997, 1998, 1999] f32 [2000]");
    cr_assert_eq(clef_format(clef_scalar(ctx, 1.5), text, 3), (int)strlen("1.5 f32 []"), "the length it needs");
    close_device();
}

Test(devices, values_travel) {
    setenv("POCL_DEVICES", "pthread basic", 1);
    clef_context *two = clef_open(&(clef_options){.device = "0,1"});
    if (!two) cr_skip_test("no two devices here: %s", clef_error(NULL));
    float data[5] = {1, 2, 3, 4, 5}, out[5];
    clef_tensor *x = clef_require_grad(clef_keep(clef_from_host(two, CLEF_SHAPE(5), CLEF_F32, data)), true);
    clef_tensor *y = clef_mul(clef_to_device(clef_mul_scalar(x, 2), 1), clef_to_device(x, 1));
    cr_assert_eq(clef_tensor_device(y), 1);
    cr_assert_eq(clef_read(y, out, sizeof out), CLEF_OK, "%s", clef_error(two));
    for (int i = 0; i < 5; i++) cr_assert_eq(out[i], 2 * data[i] * data[i]);
    clef_backward(clef_sum(y, NULL, 0, false));
    cr_assert_eq(clef_tensor_device(clef_grad_of(x)), 0);
    cr_assert_eq(clef_read(clef_grad_of(x), out, sizeof out), CLEF_OK, "%s", clef_error(two));
    for (int i = 0; i < 5; i++) cr_assert_eq(out[i], 4 * data[i]);
    cr_assert_null(clef_add(x, y), "inputs on two devices are refused");
    cr_assert(strstr(clef_error(two), "clef_to_device"), "%s", clef_error(two));
    clef_close(two);
}

/* Ops that make numbers of their own make them where their input lies; the same numbers everywhere. */
Test(devices, ops_make_what_they_need_beside_their_input) {
    setenv("POCL_DEVICES", "pthread basic", 1);
    clef_context *two = clef_open(&(clef_options){.device = "0,1", .seed = 5});
    if (!two) cr_skip_test("no two devices here: %s", clef_error(NULL));
    static const int64_t label[4] = {2, 0, 1, 1};
    float data[12], got[2][12];
    for (int i = 0; i < 12; i++) data[i] = (float)(i * 7 % 12);
    for (int op = 0; op < 7; op++) {
        for (int device = 0; device < 2; device++) {
            clef_seed(two, 5);
            clef_tensor *p = clef_require_grad(clef_keep(clef_from_host(two, CLEF_SHAPE(4, 3), CLEF_F32, data)), true), *g[1];
            clef_tensor *x = clef_to_device(p, device);
            clef_tensor *t = clef_to_device(clef_from_host(two, CLEF_SHAPE(4), CLEF_I64, label), device);
            clef_tensor *column = clef_unsqueeze(t, 1), *y = NULL;
            switch (op) {
            case 0: y = clef_dropout(x, 0.5); break;
            case 1: y = clef_tril(x, 0); break;
            case 2: y = clef_to(clef_one_hot(t, 3), CLEF_F32); break;
            case 3: y = clef_scatter(x, 1, column, clef_mul_scalar(column, 10)); break;
            case 4: y = clef_to(clef_multinomial(clef_add_scalar(x, 1), 3, false), CLEF_F32); break;
            case 5: y = clef_mul(clef_max(x, (int[]){1}, 1, true), x); break;
            default: /* a gradient that has one itself */
                cr_assert_eq(clef_grad(clef_cross_entropy(x, t, NULL), CLEF_NONE, &p, 1, true, g), CLEF_OK, "%s", clef_error(two));
                y = clef_square(g[0]);
            }
            if (op != 2 && op != 4) {
                cr_assert_eq(clef_grad(clef_sum(y, NULL, 0, false), CLEF_NONE, &p, 1, false, g), CLEF_OK, "op %d: %s", op,
                             clef_error(two));
                y = clef_add(clef_to_device(y, 0), g[0]);
            }
            cr_assert_eq(clef_read(y, got[device], sizeof data), CLEF_OK, "op %d, device %d: %s", op, device, clef_error(two));
        }
        for (int i = 0; i < 12; i++) cr_assert_float_eq(got[0][i], got[1][i], 1e-6, "op %d: %g and %g", op, got[0][i], got[1][i]);
    }
    clef_close(two);
}

Test(devices, a_constant_lies_on_every_device_that_reads_it) {
    setenv("POCL_DEVICES", "pthread basic", 1);
    clef_context *two = clef_open(&(clef_options){.device = "0,1"});
    if (!two) cr_skip_test("no two devices here: %s", clef_error(NULL));
    float data[6] = {1, 2, 3, 4, 5, 6}, out[3];
    clef_tensor *x = clef_from_host(two, CLEF_SHAPE(3, 2), CLEF_F32, data), *k = clef_full(two, CLEF_SHAPE(2, 1), CLEF_F32, 10);
    clef_tensor *z = clef_keep(clef_full(two, CLEF_SHAPE(2, 2), CLEF_F32, 3)),
                *wide = clef_keep(clef_expand(z, CLEF_SHAPE(3, 2, 2)));
    clef_tensor *far = clef_to_device(x, 1), *there = clef_matmul(far, k), *here = clef_matmul(x, k);
    clef_tensor *sum = clef_add(clef_to_device(there, 0), here), *more = clef_matmul(far, z);
    clef_tensor *rows = clef_matmul(clef_expand(k, CLEF_SHAPE(2, 3)), x); /* a view of a constant lies on the first device */
    clef_keep(sum), clef_keep(more), clef_keep(rows);
    cr_assert_eq(clef_end_step(two), CLEF_OK, "%s", clef_error(two));
    cr_assert_eq(clef_read(clef_reshape(sum, CLEF_SHAPE(3)), out, sizeof out), CLEF_OK, "%s", clef_error(two));
    for (int i = 0; i < 3; i++) cr_assert_eq(out[i], 20 * (data[2 * i] + data[2 * i + 1]));
    cr_assert_eq(clef_item(clef_sum(more, NULL, 0, false)), 126);
    cr_assert_eq(clef_item(clef_sum(rows, NULL, 0, false)), 420);
    cr_assert_eq(clef_item(clef_sum(wide, NULL, 0, false)), 36);
    clef__output *kept = clef__output_of(z);
    cr_assert_eq(kept->device, 0);
    cr_assert_eq(clef__buffer_device(kept->buffer), clef__device_at(two, 0), "a kept constant lies where its node says");
    cr_assert_eq(kept->layout.stride[1], 1, "and whole");
    cr_assert_eq(clef_item(clef_sum(z, NULL, 0, false)), 12);
    clef_close(two);
}

Test(devices, views_and_casts_of_constants_lie_nowhere) {
    setenv("POCL_DEVICES", "pthread basic", 1);
    clef_context *two = clef_open(&(clef_options){.device = "0,1"});
    if (!two) cr_skip_test("no two devices here: %s", clef_error(NULL));
    float data[4] = {1, 2, 0, 4};
    clef_tensor *x = clef_to_device(clef_from_host(two, CLEF_SHAPE(2, 2), CLEF_F32, data), 1);
    clef_tensor *k = clef_full(two, CLEF_SHAPE(2), CLEF_F32, 2.75),
                *wide = clef_expand(clef_reshape(k, CLEF_SHAPE(1, 2)), CLEF_SHAPE(2, 2));
    cr_assert_eq(clef_item(clef_sum(clef_add(x, wide), NULL, 0, false)), 18, "%s", clef_error(two));
    cr_assert_eq(clef_item(clef_sum(clef_mul(x, clef_to(clef_to(wide, CLEF_I32), CLEF_F32)), NULL, 0, false)), 14, "%s",
                 clef_error(two));
    cr_assert_eq(clef_item(clef_sum(clef_logical_xor(x, clef_ones(two, CLEF_SCALAR, CLEF_I32)), NULL, 0, false)), 1, "%s",
                 clef_error(two));
    clef_tensor *w = clef_require_grad(clef_keep(clef_ones(two, CLEF_SHAPE(2), CLEF_F32)), true);
    cr_assert_eq(clef_backward(clef_sum(clef_mul_scalar(clef_expand(w, CLEF_SHAPE(3, 2)), 2), NULL, 0, false)), CLEF_OK);
    cr_assert_eq(clef_item(clef_sum(clef_grad_of(w), NULL, 0, false)), 12, "a parameter's views lead to it");
    clef_close(two);
}

Test(devices, a_constant_computed_late_lies_on_one_device_only) {
    setenv("POCL_DEVICES", "pthread basic", 1);
    clef_context *two = clef_open(&(clef_options){.device = "0,1"});
    if (!two) cr_skip_test("no two devices here: %s", clef_error(NULL));
    float data[4] = {1, 2, 3, 4};
    clef_tensor *x = clef_to_device(clef_from_host(two, CLEF_SHAPE(2, 2), CLEF_F32, data), 1);
    clef_tensor *k = clef_keep(clef_full(two, CLEF_SHAPE(2, 2), CLEF_F32, 10));
    clef_tensor *product = clef_matmul(x, k), *sum = clef_add(x, k);
    cr_assert_eq(clef_eval(k), CLEF_OK);
    cr_assert_eq(clef_item(clef_sum(product, NULL, 0, false)), 200, "%s", clef_error(two));
    cr_assert_eq(clef_item(clef_sum(sum, NULL, 0, false)), 50, "%s", clef_error(two));
    cr_assert_eq(clef_item(clef_sum(k, NULL, 0, false)), 40, "%s", clef_error(two));
    clef_close(two);
}

Test(errors, one_line_each) {
    open_device();
    float out[3];
    clef_tensor *x = vector(3, 0, 1);
    cr_assert_null(clef_add(x, vector(4, 0, 1)));
    cr_assert(strstr(clef_error(ctx), "add: ") && strstr(clef_error(ctx), "[3]") && strstr(clef_error(ctx), "[4]"), "%s",
              clef_error(ctx));
    cr_assert_eq(clef_error_status(ctx), CLEF_SHAPE);
    clef_read(x, out, 8);
    cr_assert(strstr(clef_error(ctx), "add: "), "the first error stays");
    clef_clear_error(ctx);
    cr_assert_eq(clef_read(x, out, 8), CLEF_INVALID);
    cr_assert(strstr(clef_error(ctx), "read: 8 bytes"), "%s", clef_error(ctx));
    clef_clear_error(ctx);
    cr_assert(isnan(clef_item(x)));
    cr_assert(strstr(clef_error(ctx), "item: "), "%s", clef_error(ctx));
    clef_clear_error(ctx);
    cr_assert_neq(clef_assign(x, clef_scalar(ctx, 1)), CLEF_OK);
    cr_assert(strstr(clef_error(ctx), "assign: "), "%s", clef_error(ctx));
    clef_clear_error(ctx);
    cr_assert_null(clef_zeros(ctx, CLEF_SHAPE(-1, 3), CLEF_F32));
    cr_assert(strstr(clef_error(ctx), "negative"), "%s", clef_error(ctx));
    clef_clear_error(ctx);
    cr_assert_null(clef_exp(NULL));
    cr_assert_null(clef_zeros(ctx, CLEF_SHAPE(INT64_MAX / 2, 8), CLEF_F32));
    clef_clear_error(ctx);
    close_device();
}

/* ---- dry runs ---- */

/* As on a GPU, where 3 × 3 filters of 32 channels go by Winograd's method: 64 tiles of 16 products
   and the transforms; 1 × 1 ones do not. */
Test(dry_gpu, flops_as_defined_and_as_done) {
    ctx = open_as_gpu();
    for (int kernel = 3; kernel >= 1; kernel -= 2) {
        clef_set_dry_run(ctx, true);
        clef_tensor *x = noise_tensor(ctx, CLEF_SHAPE(1, 32, 16, 16), 1),
                    *w = noise_tensor(ctx, CLEF_SHAPE(32, 32, kernel, kernel), 2);
        clef_eval(clef_conv2d(x, w, CLEF_NONE, &(clef_conv2d_options){.same = true}));
        clef_plan_size size;
        cr_assert_eq(clef_plan_memory(ctx, &size), CLEF_OK);
        cr_expect_eq(size.flops, 2.0 * 256 * 32 * 32 * kernel * kernel);
        cr_expect_eq(size.real_flops, kernel == 1 ? size.flops : 64.0 * (2 * 16 * 32 * 32 + 32 * 32 + 24 * 32) + 28 * 32 * 32, "%g",
                     size.real_flops);
        clef_set_dry_run(ctx, false);
    }
    clef_close(ctx);
}

Test(dry, a_step_is_measured_and_leaves_no_trace) {
    clef_tensor *w = clef_require_grad(clef_keep(vector(1000, 1, 0)), true);
    cr_assert_eq(clef_eval(w), CLEF_OK);
    clef_random_state random = clef_random_get(ctx);
    uint64_t launches = clef_counters_get(ctx).launches, used = clef_memory(ctx).used;
    cr_assert(!clef_set_dry_run(ctx, true) && clef_set_dry_run(ctx, true));
    clef_tensor *loss = clef_sum(clef_square(clef_mul(w, clef_rand(ctx, CLEF_SHAPE(1000)))), NULL, 0, false);
    cr_assert_eq(clef_backward(loss), CLEF_OK);
    cr_assert_eq(clef_assign(w, clef_sub(w, clef_mul_scalar(clef_grad_of(w), 0.1))), CLEF_OK);
    clef_set_grad(w, CLEF_NONE);
    loss = NULL;
    cr_assert_eq(clef_end_step(ctx), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(clef_end_step(ctx), CLEF_OK);
    clef_plan_size size;
    cr_assert_eq(clef_plan_memory(ctx, &size), CLEF_OK);
    cr_expect_eq(size.input_bytes, 4000);
    cr_expect(size.launches >= 2 && size.flops >= 4000 && size.bytes >= 8000);
    cr_expect(size.temporary_bytes >= size.least_temporary_bytes && size.least_temporary_bytes > 0);
    cr_expect_eq(size.peak_bytes, size.input_bytes + size.result_bytes + size.temporary_bytes + size.prepacked_bytes);
    cr_expect_eq(clef_counters_get(ctx).launches, launches);
    cr_expect_eq(clef_memory(ctx).used, used);
    float out[1000];
    cr_expect_eq(clef_read(w, out, sizeof out), CLEF_STATE);
    clef_clear_error(ctx);
    cr_assert(clef_set_dry_run(ctx, false));
    cr_expect_eq(clef_random_get(ctx).offset, random.offset);
    cr_assert_eq(clef_read(w, out, sizeof out), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < 1000; i++) cr_assert_eq(out[i], 1);
    cr_expect_eq(clef_plan_memory(ctx, &size), CLEF_STATE);
    clef_clear_error(ctx);
}

Test(dry, what_is_predicted_is_what_is_taken) {
    clef_tensor *x = clef_keep(clef_rand(ctx, CLEF_SHAPE(100, 200))), *y;
    cr_assert_eq(clef_eval(x), CLEF_OK);
    clef_plan_size size;
    for (int dry = 1; dry >= 0; dry--) {
        uint64_t used = clef_memory(ctx).used;
        clef_set_dry_run(ctx, dry);
        y = clef_keep(clef_matmul(clef_exp(clef_matmul(x, clef_transpose(x, 0, 1))), x));
        cr_assert_eq(clef_eval(y), CLEF_OK, "%s", clef_error(ctx));
        if (dry) {
            cr_assert_eq(clef_plan_memory(ctx, &size), CLEF_OK);
            clef_set_dry_run(ctx, false);
            clef_release(y);
        } else {
            int64_t taken = (int64_t)(clef_memory(ctx).used - used), told = size.result_bytes + size.temporary_bytes;
            cr_expect(taken >= told && taken <= told + told / 4, "%lld bytes were taken, %lld foreseen", (long long)taken,
                      (long long)told);
        }
    }
}

/* ---- updates and replays ---- */

static clef_module *deep_net(void) {
    clef_module *layer[16];
    for (int i = 0; i < 16; i++) layer[i] = i % 2 ? clef_nn_tanh(ctx) : clef_nn_linear(ctx, 256, 256, NULL);
    return clef_sequential(ctx, layer, 16);
}

static void train_step(clef_module *net, clef_optimizer *opt, clef_tensor *x) {
    clef_backward(clef_sum(clef_square(clef_forward(net, x)), NULL, 0, false));
    clef_step(opt);
}

/* Eight gradients of 256 KiB, of which one or two need to be there at a time. */
Test(eval, an_update_frees_its_gradient) {
    clef_module *net = deep_net();
    clef_optimizer *opt = clef_sgd(net, &(clef_sgd_options){.lr = 0.01, .momentum = 0.9});
    clef_tensor *x = clef_keep(vector(256, 0, 0.01));
    for (int i = 0; i < 2; i++) train_step(net, opt, x);
    clef_plan_size size;
    clef_set_dry_run(ctx, true);
    train_step(net, opt, x);
    cr_assert_eq(clef_plan_memory(ctx, &size), CLEF_OK);
    clef_set_dry_run(ctx, false);
    cr_expect_lt(size.temporary_bytes, 5 * 256 << 10, "%lld bytes", (long long)size.temporary_bytes);
    cr_expect_lt(size.result_bytes, 1 << 10, "all updates in place: %lld bytes", (long long)size.result_bytes);
}

/* q := q + p, then p := 2p: the first must run first, as p is overwritten where it lies. */
Test(eval, an_update_runs_after_others_that_read_its_old_value) {
    clef_tensor *q = clef_keep(vector(1000, 0, 0)), *p = clef_keep(vector(1000, 1, 0));
    clef__buffer *before = NULL;
    for (int i = 0; i < 6; i++) {
        clef_assign(q, clef_add(q, p));
        clef_assign(p, clef_mul_scalar(p, 2));
        clef_end_step(ctx);
        if (i >= 2) cr_assert_eq(clef__output_of(p)->buffer, before, "step %d moved p", i);
        before = clef__output_of(p)->buffer;
    }
    cr_assert_eq(clef_item(clef_slice(q, 0, 5, 6, 1)), 63);
}

/* One plan, first on one part of a buffer, then on another. */
Test(replays, see_that_an_input_lies_elsewhere) {
    open_device();
    clef_tensor *whole = clef_keep(vector(8, 0, 1)), *part[2];
    for (int i = 0; i < 2; i++) part[i] = clef_keep(clef_slice(whole, 0, 4 * i, 4 * i + 4, 1));
    clef_eval_all(part, 2);
    for (int i = 0; i < 2; i++) EXPECT(clef_mul_scalar(part[i], 10), 40 * i, 40 * i + 10, 40 * i + 20, 40 * i + 30);
    cr_assert_geq(clef_counters_get(ctx).replays, 1);
    close_device();
}

Test(replays, allocate_no_host_memory) {
    count_allocations();
    open_device();
    clef_module *net = deep_net();
    clef_tensor *x = clef_keep(vector(256, 0, 0.01));
    int steady = 4 + CLEF_RESULT_STEPS; /* as many losses are held from then on */
    for (int i = 0; i <= steady; i++) {
        clef_zero_grad(net);
        clef_backward(clef_sum(clef_square(clef_forward(net, x)), NULL, 0, false));
        uint64_t replays = clef_counters_get(ctx).replays;
        int before = allocations;
        clef_end_step(ctx);
        if (i < steady) continue;
        cr_expect_eq(clef_counters_get(ctx).replays, replays + 1);
        cr_expect_eq(allocations, before, "%d allocations", allocations - before);
    }
    close_device();
}

Test(eval, a_gradient_that_is_a_number_takes_no_launch) {
    clef_tensor *x = clef_require_grad(clef_keep(noise_tensor(ctx, CLEF_SHAPE(5, 3), 1)), true);
    clef_tensor *classes = clef_from_host(ctx, CLEF_SHAPE(5), CLEF_I64, (int64_t[]){0, 1, 2, 0, 1});
    clef_tensor *loss = clef_keep(clef_cross_entropy(x, classes, NULL));
    cr_assert_eq(clef_eval(loss), CLEF_OK);
    cr_assert_eq(clef_backward(loss), CLEF_OK);
    uint64_t before = launches();
    cr_assert_eq(clef_eval(clef_grad_of(x)), CLEF_OK);
    cr_assert_eq(launches(), before + 1, "1/5 is an argument");
    clef_release(loss), clef_release(x);
}
