/* Nodes with several outputs: what is computed, what it costs, what is kept, and gradients of each.
   ctest: plain */
#include "graph/core.h"
#include "plan/lower/lower.h"
#include "support/device.h"

static clef_context *ctx;

static void open_device(void) { ctx = open_seeded(0); }
static void close_device(void) { close_clean(ctx); }
TestSuite(outputs, .init = open_device, .fini = close_device);

/* ---- an op of [2n] → its halves, a copy each, and its length as i64 ---- */

enum { FIRST, SECOND, LENGTH, OUTPUTS };

static bool infer_halves(clef__call *call) {
    clef_shape x = call->input[0]->shape;
    if (x.rank != 1 || x.dim[0] % 2) return clef__infer_fail(call, CLEF_SHAPE, "x %s has no two halves", clef__shape_text(x));
    call->out[FIRST] = call->out[SECOND] = (clef__type){CLEF_SHAPE(x.dim[0] / 2), call->input[0]->dtype};
    call->out[LENGTH] = (clef__type){CLEF_SCALAR, CLEF_I64};
    return true;
}

static int made[OUTPUTS]; /* how often each was lowered */

static void lower_halves(const clef__lowering *lw) {
    for (int k = 0; k < OUTPUTS; k++) made[k] += clef__lower_wants(lw, k);
    clef__operand x = clef__lower_in(lw, 0);
    int64_t half = x.dim[0] / 2;
    x.dim[0] = half;
    for (int k = FIRST; k <= SECOND; k++, x.offset += half * x.stride[0])
        if (clef__lower_wants(lw, k) && half > 0) clef__lower_copy(lw, clef__lower_output(lw, k, NULL), x);
        else if (half == 0) clef__lower_output(lw, k, NULL);
    if (clef__lower_wants(lw, LENGTH)) clef__lower_fill(lw, clef__lower_output(lw, LENGTH, NULL), (double)(2 * half));
}

/* dx of what came; 0 for a half to which no gradient came. */
static void gradient_halves(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    clef_tensor *half[2];
    cr_expect(wanted[0] && !g[LENGTH], "no gradient comes to an integer");
    cr_expect_eq(clef_tensor_dtype(y[LENGTH]), CLEF_I64);
    for (int k = 0; k < 2; k++) half[k] = g[k] ? g[k] : clef_zeros(ctx, clef_tensor_shape(y[k]), clef_tensor_dtype(x[0]));
    dx[0] = clef_concat(half, 2, 0);
}

static const clef__strategy *const strategies[] = {&(clef__strategy){.name = "copies", .lower = lower_halves}, NULL};
static const clef_op op_halves = {
    .name = "halves", .kind = CLEF__KERNEL, .infer = infer_halves, .gradient = gradient_halves, .strategies = strategies};

typedef struct halves {
    clef_tensor *y[OUTPUTS];
} halves;

static halves split(clef_tensor *x) {
    halves h;
    clef__apply_all(&op_halves, &x, 1, NULL, 0, h.y, OUTPUTS);
    return h;
}

static clef_tensor *numbers(int n) {
    float v[64];
    for (int i = 0; i < n; i++) v[i] = (float)(i + 1);
    return clef_keep(clef_from_host(ctx, CLEF_SHAPE(n), CLEF_F32, v));
}

static void expect_numbers(clef_tensor *t, int n, double first, double step) {
    float v[64];
    cr_assert_eq(clef_read(t, v, sizeof *v * (size_t)n), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < n; i++) cr_expect_eq(v[i], first + step * i, "element %d is %g", i, v[i]);
}

static bool were_made(int first, int second, int length) {
    bool right = made[FIRST] == first && made[SECOND] == second && made[LENGTH] == length;
    if (!right) fprintf(stderr, "made %d, %d, %d times\n", made[FIRST], made[SECOND], made[LENGTH]);
    return right;
}
static uint64_t launches(void) { return clef_counters_get(ctx).launches; }
static uint64_t plans(void) { return clef_counters_get(ctx).plans; }

/* ---- values and what they cost ---- */

Test(outputs, each_has_its_type_and_value) {
    halves h = split(numbers(8));
    cr_expect(clef_shape_equal(clef_tensor_shape(h.y[SECOND]), CLEF_SHAPE(4)));
    cr_expect_eq(clef_tensor_dtype(h.y[LENGTH]), CLEF_I64);
    cr_expect_eq(clef_eval_all(h.y, OUTPUTS), CLEF_OK);
    expect_numbers(h.y[FIRST], 4, 1, 1);
    expect_numbers(h.y[SECOND], 4, 5, 1);
    cr_expect_eq(clef_item(h.y[LENGTH]), 8);
}

Test(outputs, those_that_nobody_reads_cost_nothing) {
    clef_tensor *x = numbers(8);
    for (int k = 0; k < OUTPUTS; k++) {
        uint64_t before = launches();
        clef_eval(split(x).y[k]);
        cr_expect_eq(launches() - before, 1, "output %d took %d launches", k, (int)(launches() - before));
        cr_expect(were_made(1, k >= SECOND, k >= LENGTH));
        clef_end_step(ctx);
    }
}

Test(outputs, which_are_read_is_another_plan_and_comes_back) {
    clef_tensor *x = numbers(8);
    uint64_t before = plans();
    for (int step = 0; step < 3; step++)
        for (int k = 0; k < OUTPUTS; k++) {
            clef_eval(split(x).y[k]);
            clef_end_step(ctx);
        }
    cr_expect_eq(plans() - before, OUTPUTS);
}

Test(outputs, one_asked_for_later_is_computed_then_alone) {
    halves h = split(numbers(8));
    clef_eval(h.y[SECOND]);
    cr_expect(were_made(0, 1, 0));
    expect_numbers(h.y[FIRST], 4, 1, 1);
    cr_expect(were_made(1, 1, 0));
    uint64_t before = launches();
    expect_numbers(h.y[SECOND], 4, 5, 1);
    cr_expect_eq(launches(), before);
    clef_tensor *both = clef_add(h.y[FIRST], clef_mul(h.y[SECOND], clef_to(h.y[LENGTH], CLEF_F32)));
    expect_numbers(both, 4, 1 + 8 * 5, 9);
    cr_expect(were_made(1, 1, 1));
}

Test(outputs, equal_work_is_done_once) {
    clef_tensor *x = numbers(8);
    halves a = split(x), b = split(x);
    clef_tensor *sum = clef_add(clef_add(a.y[FIRST], b.y[SECOND]), clef_sub(a.y[SECOND], b.y[FIRST]));
    expect_numbers(sum, 4, 10, 2);
    cr_expect(were_made(1, 1, 0));
}

/* A node of which one output is there makes only the others, and another node with equal inputs makes its own. */
Test(outputs, what_is_there_is_no_double_of_what_is_not) {
    clef_tensor *x = numbers(8);
    halves h = split(x);
    clef_eval(h.y[FIRST]);
    halves g = split(x);
    cr_assert_eq(clef_eval_all((clef_tensor *[]){h.y[SECOND], g.y[FIRST], h.y[FIRST]}, 3), CLEF_OK);
    expect_numbers(g.y[FIRST], 4, 1, 1);
    expect_numbers(h.y[SECOND], 4, 5, 1);
    expect_numbers(g.y[SECOND], 4, 5, 1);
    expect_numbers(h.y[FIRST], 4, 1, 1);
}

/* state := first half of what it makes with x; the other half is never read. */
Test(outputs, a_state_does_not_hold_the_steps_before_it) {
    clef_tensor *x = clef_keep(clef_rand(ctx, CLEF_SHAPE(1 << 16))), *state = clef_keep(clef_rand(ctx, CLEF_SHAPE(1 << 16)));
    uint64_t used[3] = {0};
    for (int step = 0; step < 60; step++) {
        halves h = split(clef_concat((clef_tensor *[]){state, x}, 2, 0));
        clef_tensor *next = clef_keep(clef_add(h.y[FIRST], x));
        halves k = split(clef_concat((clef_tensor *[]){next, x}, 2, 0));
        clef_release(state);
        clef_release(next);
        state = clef_keep(k.y[FIRST]);
        clef_end_step(ctx);
        if (step % 20 == 19) used[step / 20] = clef_memory(ctx).used;
    }
    cr_expect_eq(used[1], used[0]);
    cr_expect_eq(used[2], used[0], "%llu bytes, %llu, %llu", (unsigned long long)used[0], (unsigned long long)used[1],
                 (unsigned long long)used[2]);
}

Test(outputs, one_does_not_keep_the_memory_of_others) {
    clef_tensor *x = clef_keep(clef_rand(ctx, CLEF_SHAPE(1 << 20)));
    clef_eval(x);
    clef_end_step(ctx);
    uint64_t before = clef_memory(ctx).used;
    halves h = split(x);
    clef_keep(h.y[FIRST]);
    clef_keep(h.y[SECOND]);
    clef_end_step(ctx);
    uint64_t both = clef_memory(ctx).used - before;
    clef_release(h.y[FIRST]);
    for (int step = 0; step < 2; step++) { /* an empty step would not count */
        clef_scalar(ctx, 0);
        clef_end_step(ctx);
    }
    cr_expect_leq(clef_memory(ctx).used - before, both / 2);
    clef_tensor *rest = clef_sub(h.y[SECOND], clef_slice(x, 0, 1 << 19, 1 << 20, 1));
    cr_expect_eq(clef_item(clef_max(clef_abs(rest), NULL, 0, false)), 0);
}

Test(outputs, empty_ones_are_fine) {
    halves h = split(clef_zeros(ctx, CLEF_SHAPE(0), CLEF_F32));
    cr_expect_eq(clef_eval_all(h.y, OUTPUTS), CLEF_OK);
    cr_expect_eq(clef_numel(h.y[FIRST]), 0);
    cr_expect_eq(clef_item(h.y[LENGTH]), 0);
}

Test(outputs, what_does_not_fit_gives_none_of_them) {
    clef_tensor *x = clef_zeros(ctx, CLEF_SHAPE(3), CLEF_F32);
    halves h = {{x, x, x}};
    cr_expect(!clef__apply_all(&op_halves, &x, 1, NULL, 0, h.y, OUTPUTS));
    for (int k = 0; k < OUTPUTS; k++) cr_expect_null(h.y[k]);
    cr_expect_str_eq(clef_error(ctx), "halves: x [3] has no two halves");
    clef_clear_error(ctx);
}

Test(outputs, are_all_computed_in_eager_mode) {
    setenv("CLEF_EAGER", "1", 1);
    clef_context *eager = open_seeded(0), *lazy = ctx;
    ctx = eager;
    halves h = split(numbers(8));
    uint64_t before = launches();
    expect_numbers(h.y[FIRST], 4, 1, 1);
    expect_numbers(h.y[SECOND], 4, 5, 1);
    cr_expect_eq(launches(), before);
    clef_close(eager);
    ctx = lazy;
}

/* ---- gradients ---- */

static clef_tensor *parameter(int n) { return clef_require_grad(numbers(n), true); }

/* Backward of Σ of some of: 2·first, 3·second; what must come back. */
static void expect_gradient(bool first, bool second) {
    clef_tensor *x = parameter(8);
    halves h = split(x);
    clef_tensor *a = clef_mul_scalar(h.y[FIRST], 2), *b = clef_mul_scalar(h.y[SECOND], 3);
    clef_backward(clef_sum(first && second ? clef_add(a, b) : first ? a : b, NULL, 0, false));
    clef_tensor *dx = clef_grad_of(x);
    expect_numbers(clef_slice(dx, 0, 0, 4, 1), 4, first ? 2 : 0, 0);
    expect_numbers(clef_slice(dx, 0, 4, 8, 1), 4, second ? 3 : 0, 0);
    clef_end_step(ctx);
}
Test(outputs, gradients_come_from_any_of_them) {
    expect_gradient(true, true);
    expect_gradient(true, false);
    expect_gradient(false, true);
}

Test(outputs, only_floats_are_on_the_tape) {
    halves h = split(parameter(8));
    cr_expect(clef_requires_grad(h.y[FIRST]) && clef_requires_grad(h.y[SECOND]));
    cr_expect(!clef_requires_grad(h.y[LENGTH]));
}

Test(outputs, gradients_after_some_were_read) {
    for (int k = 0; k < OUTPUTS; k++) {
        clef_tensor *x = parameter(8);
        halves h = split(x);
        clef_eval(h.y[k]);
        clef_backward(clef_sum(clef_mul(h.y[FIRST], h.y[SECOND]), NULL, 0, false));
        expect_numbers(clef_slice(clef_grad_of(x), 0, 0, 4, 1), 4, 5, 1);
        expect_numbers(clef_slice(clef_grad_of(x), 0, 4, 8, 1), 4, 1, 1);
        clef_end_step(ctx);
    }
}

Test(outputs, one_that_is_a_parameter_ends_the_tape_there) {
    clef_tensor *x = parameter(8);
    halves h = split(x);
    clef_require_grad(clef_keep(h.y[FIRST]), true);
    clef_backward(clef_sum(clef_mul(h.y[FIRST], h.y[SECOND]), NULL, 0, false));
    expect_numbers(clef_grad_of(h.y[FIRST]), 4, 5, 1);
    expect_numbers(clef_slice(clef_grad_of(x), 0, 0, 4, 1), 4, 0, 0);
    expect_numbers(clef_slice(clef_grad_of(x), 0, 4, 8, 1), 4, 1, 1);
}

Test(outputs, second_order) {
    clef_tensor *x = parameter(8), *dx, *ddx;
    halves h = split(x);
    clef_tensor *y = clef_sum(clef_mul(clef_square(h.y[FIRST]), h.y[SECOND]), NULL, 0, false);
    cr_assert_eq(clef_grad(y, CLEF_NONE, &x, 1, true, &dx), CLEF_OK); /* 2ab, a² */
    halves d = split(dx);
    cr_assert_eq(clef_grad(clef_sum(d.y[SECOND], NULL, 0, false), CLEF_NONE, &x, 1, false, &ddx), CLEF_OK);
    expect_numbers(clef_slice(ddx, 0, 0, 4, 1), 4, 2, 2);
    expect_numbers(clef_slice(ddx, 0, 4, 8, 1), 4, 0, 0);
}

/* ---- steps ---- */

/* p := second half of what p and x make, in its own memory. */
Test(outputs, one_becomes_a_parameters_value_in_place) {
    clef_tensor *x = numbers(4), *p = numbers(4);
    clef_eval_all((clef_tensor *[]){x, p}, 2);
    clef_end_step(ctx);
    uint64_t made = 0;
    for (int step = 1; step <= 4; step++) {
        halves h = split(clef_concat((clef_tensor *[]){x, clef_add(p, x)}, 2, 0));
        clef_assign(p, h.y[SECOND]);
        clef_end_step(ctx);
        if (step == 2) made = plans();
        expect_numbers(p, 4, 1 + step, 1 + step);
    }
    cr_expect_eq(plans(), made, "the third step is planned once more");
}

Test(outputs, are_made_once_more_in_a_checkpointed_segment) {
    clef_tensor *x = parameter(8);
    clef_tensor *before = clef_mul_scalar(x, 1);
    clef__checkpointed_segment *segment = clef__checkpointed_segment_begin(ctx);
    halves h = split(clef_exp(clef_mul_scalar(before, 0)));
    clef_tensor *y = clef_mul(h.y[FIRST], clef_mul(h.y[SECOND], h.y[SECOND]));
    clef__checkpointed_segment_end(ctx, segment);
    clef_backward(clef_sum(clef_mul(y, clef_slice(before, 0, 0, 4, 1)), NULL, 0, false));
    expect_numbers(clef_slice(clef_grad_of(x), 0, 0, 4, 1), 4, 1, 0);
    expect_numbers(clef_slice(clef_grad_of(x), 0, 4, 8, 1), 4, 0, 0);
}

Test(outputs, a_dry_run_computes_none) {
    clef_tensor *x = numbers(8);
    clef_eval(x);
    clef_set_dry_run(ctx, true);
    halves h = split(x);
    clef_keep(h.y[FIRST]);
    clef_eval(h.y[SECOND]);
    clef_plan_size size;
    cr_expect_eq(clef_plan_memory(ctx, &size), CLEF_OK);
    cr_expect_eq(size.result_bytes, 2 * 16, "the kept half and the one that is asked for");
    clef_set_dry_run(ctx, false);
    expect_numbers(h.y[FIRST], 4, 1, 1);
}

Test(outputs, are_printed_below_their_node) {
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    clef_print_plan(split(numbers(8)).y[SECOND], CLEF_PLAN_TEXT, stream);
    fclose(stream);
    cr_expect(strstr(text, "= halves %0 : f32 [4]"), "%s", text);
    cr_expect(strstr(text, "= halves output 1 : f32 [4] group 0 output"), "%s", text);
    cr_expect(strstr(text, "= halves output 2 : i64 []"), "%s", text);
    free(text);
}

/* Weights that stay are packed once (derived.c); two outputs of one node are two weights. */
Test(outputs, are_told_apart_where_packed_weights_stay) {
    enum { N = 256, WEIGHT = N * N };
    clef_tensor *first = clef_full(ctx, CLEF_SHAPE(WEIGHT), CLEF_F32, 1), *second = clef_full(ctx, CLEF_SHAPE(WEIGHT), CLEF_F32, 2);
    halves h = split(clef_concat((clef_tensor *[]){first, second}, 2, 0));
    clef_tensor *x = clef_keep(clef_ones(ctx, CLEF_SHAPE(64, N), CLEF_F32)), *w[2];
    for (int k = 0; k < 2; k++) w[k] = clef_keep(h.y[k]);
    clef_end_step(ctx);
    for (int run = 0; run < 8; run++) {
        int k = run / 4; /* the same plan */
        clef_tensor *y = clef_linear(x, clef_reshape(w[k], CLEF_SHAPE(N, N)), CLEF_NONE);
        cr_expect_eq(clef_item(clef_max(y, NULL, 0, false)), (k + 1) * N, "run %d", run);
        clef_end_step(ctx);
    }
}
