/* Modules with several inputs and outputs: what goes in and out, what is refused, recompute, modes; hooks; the summary. */
#include "support/device.h"
#include "clef/pointwise.h"
#include <limits.h>

static clef_context *ctx;
static void open_context(void) { ctx = open_seeded(3); }
static void close_context(void) { clef_close(ctx); }
TestSuite(calls, .init = open_context, .fini = close_context);
TestSuite(hooks, .init = open_context, .fini = close_context);

static clef_tensor *row(float a, float b) { return clef_from_host(ctx, CLEF_SHAPE(1, 2), CLEF_F32, (float[]){a, b}); }

static void expect_row(clef_tensor *t, float a, float b) {
    float *v = values(t);
    cr_expect(v[0] == a && v[1] == b, "(%g %g) instead of (%g %g)", v[0], v[1], a, b);
    free(v);
}

/* sum = a·gain + b (b absent: 0), difference = a·gain - b. */
static clef_status call_pair(clef_module *module, clef_tensor *const *in, int n, clef_tensor **out, int m, void *user) {
    if (user) ++*(int *)user;
    cr_expect(n == 2 && m == 2 && !out[0] && !out[1]);
    clef_tensor *a = clef_mul(in[0], clef_parameter(module, "gain"));
    out[0] = in[1] == CLEF_NONE ? a : clef_add(a, in[1]);
    out[1] = in[1] == CLEF_NONE ? a : clef_sub(a, in[1]);
    return CLEF_OK;
}

static clef_module *pair(int *calls) {
    clef_module *m = clef_module_new_call(ctx, "pair", call_pair, 2, 2, calls);
    cr_assert_eq(clef_module_add_parameter(m, "gain", clef_full(ctx, CLEF_SCALAR, CLEF_F32, 3)), CLEF_OK);
    return m;
}

Test(calls, several_inputs_and_outputs) {
    int calls = 0;
    clef_tensor *out[2];
    clef_module *m = pair(&calls);
    cr_assert_eq(clef_call(m, (clef_tensor *[]){row(1, 2), row(10, 20)}, 2, out, 2), CLEF_OK, "%s", clef_error(ctx));
    expect_row(out[0], 13, 26);
    expect_row(out[1], -7, -14);
    cr_assert_eq(clef_call(m, (clef_tensor *[]){row(1, 2), CLEF_NONE}, 2, out, 2), CLEF_OK);
    expect_row(out[1], 3, 6);
    cr_expect_eq(calls, 2);
    cr_assert_eq(clef_call(m, (clef_tensor *[]){row(1, 2), row(1, 1)}, 2, out, 2), CLEF_OK);
    cr_assert_eq(clef_backward(clef_sum(clef_mul(out[0], out[1]), NULL, 0, false)), CLEF_OK); /* Σ (ag)² - b²: 2g·Σa² */
    cr_expect_eq(clef_item(clef_grad_of(clef_parameter(m, "gain"))), 2 * 3 * 5);
}

Test(calls, one_and_one_works_on_every_module) {
    clef_module *m = clef_nn_linear(ctx, 2, 2, NULL);
    clef_tensor *x = row(1, -2), *y;
    cr_assert_eq(clef_call(m, &x, 1, &y, 1), CLEF_OK);
    float *called = values(y), *forward = values(clef_forward(m, x));
    cr_expect_arr_eq(called, forward, 2 * sizeof *called);
    free(called), free(forward);
}

/* As many outputs as inputs, each plus one. */
static clef_status call_more(clef_module *module, clef_tensor *const *in, int n, clef_tensor **out, int m, void *user) {
    (void)module, (void)user;
    for (int i = 0; i < m && i < n; i++) out[i] = clef_add_scalar(in[i], 1);
    return CLEF_OK;
}

Test(calls, forward_is_a_call_of_one_and_one) {
    clef_module *any = clef_module_new_call(ctx, "more", call_more, 0, 0, NULL);
    expect_row(clef_forward(clef_sequential(ctx, CLEF_LAYERS(any, any)), row(1, 2)), 3, 4);
    cr_expect_null(clef_forward(pair(NULL), row(1, 2)));
    expect_error(ctx, CLEF_INVALID, "forward: the pair takes 2 inputs and gives 2 outputs, not 1 and 1");
}

static clef_status call_lazy(clef_module *module, clef_tensor *const *in, int n, clef_tensor **out, int m, void *user) {
    (void)module, (void)n, (void)m;
    out[0] = in[0];
    return *(const clef_status *)user;
}

Test(calls, refusals) {
    clef_tensor *x = row(1, 2), *in[2] = {x, x}, *out[2] = {x, x}, *many[3] = {x, x, x};
    clef_module *m = pair(NULL), *linear = clef_nn_linear(ctx, 2, 2, NULL);
    cr_expect_eq(clef_call(m, in, 1, out, 2), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "call: the pair takes 2 inputs and gives 2 outputs, not 1 and 2");
    cr_expect(!out[0] && !out[1]);
    cr_expect_eq(clef_call(linear, in, 2, out, 1), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "the linear takes 1 input and gives 1 output, not 2 and 1");
    cr_expect_eq(clef_call(m, in, 2, NULL, 2), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "call: outputs is NULL");
    cr_expect_eq(clef_call(m, NULL, 2, out, 2), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "call: inputs is NULL");
    cr_expect_eq(clef_call(m, many, 2, many + 1, 2), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "outputs lies over inputs");
    cr_expect_eq(many[1], x, "inputs must stay");
    cr_expect_eq(clef_call(m, (clef_tensor *[]){x, NULL}, 2, out, 2), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "call: inputs[1] is NULL though nothing failed before");
    cr_expect_eq(clef_call(linear, (clef_tensor *[]){CLEF_NONE}, 1, out, 1), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "call: inputs[0] must be a tensor, not CLEF_NONE");
    cr_expect_eq(clef_call(NULL, in, 2, out, 2), CLEF_INVALID);
    cr_expect_null(clef_module_new_call(ctx, "m", NULL, 1, 1, NULL));
    expect_error(ctx, CLEF_INVALID, "type and call must not be NULL");
    cr_expect_null(clef_module_new_call(ctx, "m", call_more, -1, 1, NULL));
    expect_error(ctx, CLEF_INVALID, "-1 inputs and 1 outputs; give 1 to 256");
}

Test(calls, failures_leave_no_output) {
    clef_tensor *x = row(1, 2), *out[2] = {x, x}, *in[2] = {x, x};
    clef_status status = CLEF_OK;
    clef_module *lazy = clef_module_new_call(ctx, "lazy", call_lazy, 1, 2, &status);
    cr_expect_eq(clef_call(lazy, in, 1, out, 2), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "lazy: outputs[1] is NULL though nothing failed before");
    cr_expect(!out[0] && !out[1]);
    status = CLEF_UNSUPPORTED;
    cr_expect_eq(clef_call(lazy, in, 1, out, 2), CLEF_UNSUPPORTED);
    expect_error(ctx, CLEF_UNSUPPORTED, "lazy: its function returned CLEF_UNSUPPORTED");
    cr_expect_eq(clef_call(pair(NULL), (clef_tensor *[]){x, clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32)}, 2, out, 2), CLEF_SHAPE);
    expect_error(ctx, CLEF_SHAPE, "add: shapes");
    cr_expect(!out[0] && !out[1]);
}

/* Two towers with dropout, which share a layer; the outputs read both. */
static clef_status call_towers(clef_module *module, clef_tensor *const *in, int n, clef_tensor **out, int m, void *user) {
    (void)user, (void)n, (void)m;
    clef_module *a = clef_module_child(module, "a"), *b = clef_module_child(module, "b"), *drop = clef_module_child(module, "drop");
    clef_tensor *x = clef_tanh(clef_forward(drop, clef_forward(a, in[0]))), *z = clef_exp(clef_forward(a, clef_forward(b, in[1])));
    out[0] = clef_mul(x, z);
    out[1] = clef_sub(clef_sin(out[0]), z);
    return CLEF_OK;
}

static clef_module *towers(clef_context *c) {
    clef_module *m = clef_module_new_call(c, "towers", call_towers, 2, 2, NULL);
    clef_module_add(m, "a", clef_nn_linear(c, 4, 4, NULL));
    clef_module_add(m, "b", clef_nn_linear(c, 3, 4, NULL));
    clef_module_add(m, "drop", clef_nn_dropout(c, 0.5));
    return m;
}

/* The gradients of both weights and one output, in a context of their own; returns its launches. */
static uint64_t gradients(bool recomputed, float out[12 + 16 + 20]) {
    clef_context *c = open_seeded(7);
    clef_module *m = towers(c);
    clef_recompute(m, recomputed);
    clef_tensor *y[2], *in[2] = {noise_tensor(c, CLEF_SHAPE(5, 4), 1), noise_tensor(c, CLEF_SHAPE(5, 3), 2)};
    cr_assert_eq(clef_call(m, in, 2, y, 2), CLEF_OK);
    clef_keep(y[0]);
    cr_assert_eq(clef_backward(clef_sum(clef_mul(y[0], y[1]), NULL, 0, false)), CLEF_OK, "%s", clef_error(c));
    clef_read(clef_grad_of(clef_parameter(m, "b.weight")), out, 12 * sizeof *out);
    clef_read(clef_grad_of(clef_parameter(m, "a.weight")), out + 12, 16 * sizeof *out);
    clef_read(y[0], out + 28, 20 * sizeof *out);
    cr_assert_str_empty(clef_error(c));
    uint64_t launches = clef_counters_get(c).launches;
    clef_close(c);
    return launches;
}

Test(calls, recomputing_gives_the_same_bits) {
    float plain[48], again[48];
    uint64_t once = gradients(false, plain), twice = gradients(true, again);
    if (!getenv("CLEF_EAGER")) cr_expect(twice > once, "%d launches, %d without recompute", (int)twice, (int)once);
    cr_expect_arr_eq(plain, again, sizeof plain);
}

Test(calls, modes_and_freezing_reach_inside) {
    clef_module *m = towers(ctx);
    clef_tensor *out[2], *in[2] = {noise_tensor(ctx, CLEF_SHAPE(5, 4), 1), noise_tensor(ctx, CLEF_SHAPE(5, 3), 2)};
    clef_freeze(clef_module_child(m, "a"), true);
    clef_set_training(m, false);
    cr_assert_eq(clef_call(m, in, 2, out, 2), CLEF_OK);
    float *first = values(out[0]);
    cr_assert_eq(clef_call(m, in, 2, out, 2), CLEF_OK);
    float *second = values(out[0]);
    cr_expect_arr_eq(first, second, 20 * sizeof *first, "nothing is dropped in evaluation");
    free(first), free(second);
    cr_assert_eq(clef_backward(clef_sum(out[1], NULL, 0, false)), CLEF_OK);
    cr_expect_null(clef_grad_of(clef_parameter(m, "a.weight")));
    cr_expect_not_null(clef_grad_of(clef_parameter(m, "b.weight")));
}

/* ---- hooks ---- */
static char events[256];
typedef struct spy {
    char name;
    clef_status fail;
    int64_t removes; /* a hook to remove while it runs */
    bool adds;
} spy;
static spy added = {.name = 'n'};

static clef_status before(clef_module *module, clef_tensor *const *in, int n, void *user) {
    spy *s = user;
    snprintf(events + strlen(events), sizeof events - strlen(events), "%c<%d ", s->name, n);
    cr_expect(in[0] != NULL);
    if (s->removes) cr_expect_eq(clef_module_unhook(module, s->removes), CLEF_OK);
    if (s->adds) cr_expect_gt(clef_module_hook(module, &(clef_hook){.before = before, .user = &added}), 0);
    s->adds = false;
    s->removes = 0;
    return CLEF_OK;
}

static clef_status after(clef_module *module, clef_tensor *const *in, int n, clef_tensor *const *out, int m, void *user) {
    const spy *s = user;
    (void)module, (void)in, (void)n;
    snprintf(events + strlen(events), sizeof events - strlen(events), "%c>%d ", s->name, m);
    cr_expect(clef_numel(out[m - 1]) == 2);
    return s->fail;
}

static void run_pair(clef_module *m, clef_status want, const char *what) {
    clef_tensor *out[2];
    *events = 0;
    cr_expect_eq(clef_call(m, (clef_tensor *[]){row(1, 2), row(3, 4)}, 2, out, 2), want, "%s", clef_error(ctx));
    cr_expect_str_eq(events, what);
    cr_expect_eq(!out[0] && !out[1], want != CLEF_OK);
}

static int64_t hook(clef_module *m, spy *s) { return clef_module_hook(m, &(clef_hook){before, after, s}); }

Test(hooks, see_inputs_and_outputs_in_order) {
    clef_module *m = pair(NULL);
    spy a = {.name = 'a'}, b = {.name = 'b'};
    int64_t first = hook(m, &a), second = hook(m, &b);
    cr_expect(first > 0 && second > 0 && first != second);
    run_pair(m, CLEF_OK, "a<2 b<2 a>2 b>2 ");
    cr_expect_eq(clef_module_unhook(m, first), CLEF_OK);
    run_pair(m, CLEF_OK, "b<2 b>2 ");
    cr_expect_eq(clef_module_unhook(m, first), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "module_unhook: the pair has no hook");
    cr_expect_eq(clef_module_hook(m, NULL), 0);
    expect_error(ctx, CLEF_INVALID, "hook is NULL");
    cr_expect_eq(clef_module_hook(m, &(clef_hook){0}), 0);
    expect_error(ctx, CLEF_INVALID, "give one of them");
}

Test(hooks, may_come_and_go_while_the_module_runs) {
    clef_module *m = pair(NULL);
    spy a = {.name = 'a', .adds = true}, b = {.name = 'b'}, c = {.name = 'c'};
    hook(m, &a);
    a.removes = hook(m, &b);
    hook(m, &c);
    run_pair(m, CLEF_OK, "a<2 c<2 a>2 c>2 ");
    run_pair(m, CLEF_OK, "a<2 c<2 n<2 a>2 c>2 ");
    c.removes = 3; /* itself */
    run_pair(m, CLEF_OK, "a<2 c<2 n<2 a>2 ");
    run_pair(m, CLEF_OK, "a<2 n<2 a>2 ");
}

Test(hooks, can_fail_the_run) {
    clef_module *m = pair(NULL);
    spy a = {.name = 'a', .fail = CLEF_UNSUPPORTED}, b = {.name = 'b'};
    hook(m, &a), hook(m, &b);
    run_pair(m, CLEF_UNSUPPORTED, "a<2 b<2 a>2 ");
    expect_error(ctx, CLEF_UNSUPPORTED, "pair: its hook after it returned CLEF_UNSUPPORTED");
    clef_module *linear = clef_nn_linear(ctx, 2, 2, NULL);
    hook(linear, &a);
    cr_expect_null(clef_forward(linear, row(1, 2)));
    expect_error(ctx, CLEF_UNSUPPORTED, "linear: its hook after it returned");
}

Test(hooks, of_layers_inside_and_of_recomputed_ones) {
    clef_module *inner = clef_nn_linear(ctx, 2, 2, NULL), *m = clef_sequential(ctx, CLEF_LAYERS(inner, clef_nn_relu(ctx)));
    spy a = {.name = 'a'};
    hook(inner, &a);
    clef_recompute(m, true);
    *events = 0;
    cr_assert_eq(clef_backward(clef_sum(clef_forward(m, row(1, 2)), NULL, 0, false)), CLEF_OK);
    cr_expect_str_eq(events, "a<1 a>1 ");
}

/* ---- the summary ---- */
static clef_status call_listed(clef_module *module, clef_tensor *const *in, int n, clef_tensor **out, int m, void *user) {
    (void)user, (void)n, (void)m;
    clef_module *shared = clef_module_child(module, "shared");
    clef_tensor *words = clef_mean(clef_forward(clef_module_child(module, "words"), in[0]), (int[]){1}, 1, false);
    clef_tensor *mixed = clef_matmul(words, clef_parameter(module, "mix")); /* made here, read by a child */
    out[0] = clef_forward(shared, clef_forward(shared, mixed));
    out[1] = clef_concat((clef_tensor *[]){mixed, in[1]}, 2, 1);
    return CLEF_OK;
}

Test(calls, summary_shows_what_runs) {
    clef_module *m = clef_module_new_call(ctx, "a_type_with_a_rather_long_name", call_listed, 2, 2, NULL);
    clef_module_add_parameter(m, "mix", clef_ones(ctx, CLEF_SHAPE(6, 5), CLEF_F32));
    clef_module_add(m, "words", clef_nn_embedding(ctx, 10, 6));
    clef_module_add(m, "shared", clef_nn_linear(ctx, 5, 5, NULL));
    clef_module_add(m, "a_name_that_is_longer_than_its_column", clef_nn_linear(ctx, 2, 2, NULL));
    clef_tensor *in[2] = {clef_zeros(ctx, CLEF_SHAPE(3, 4), CLEF_I64), clef_zeros(ctx, CLEF_SHAPE(3, 2), CLEF_F32)};
    uint64_t launches = clef_counters_get(ctx).launches;
    char text[4096];
    int length = clef_summary_call(m, in, 2, 2, text, sizeof text);
    cr_assert_eq(length, (int)strlen(text), "%s", clef_error(ctx));
    cr_expect_eq(clef_counters_get(ctx).launches, launches, "a summary must compute nothing");
    cr_expect_str_eq(text, "layer                  type              output                parameters            MACs     memory\n"
                           "words                  embedding         [3,4,6]                       60               0      288 B\n"
                           "shared                 linear            [3,5]                         30              75       60 B\n"
                           "shared                 linear            [3,5]                      again              75       60 B\n"
                           "-                      a_type_with_a_r.. [3,5]                         30              90        0 B\n"
                           "                                         [3,7]                                                  84 B\n"
                           "..nger_than_its_column linear            never called                   6                           \n"
                           "input 0 [3,4] i64\n"
                           "input 1 [3,2] f32\n"
                           "126 parameters, 240 MACs\n"
                           "memory: parameters 504 B, gradients 504 B, buffers 0 B, layer outputs 492 B\n");
    cr_expect_eq(clef_summary_call(m, in, 1, 2, text, sizeof text), -1);
    expect_error(ctx, CLEF_INVALID, "takes 2 inputs");
    cr_expect_eq(clef_summary(m, CLEF_SHAPE(3, 4), text, sizeof text), -1);
    expect_error(ctx, CLEF_INVALID, "takes 2 inputs");
}

/* ---- replacing and removing ---- */
TestSuite(children, .init = open_context, .fini = close_context);

static clef_module *scale(float by) {
    clef_module *m = clef_nn_linear(ctx, 2, 2, &(clef_nn_options){.no_bias = true});
    cr_assert_eq(clef_write(clef_parameter(m, "weight"), (float[]){by, 0, 0, by}, 4 * sizeof(float)), CLEF_OK);
    return m;
}

Test(children, are_replaced_in_their_place) {
    clef_module *old = scale(2), *m = clef_sequential(ctx, CLEF_LAYERS(scale(3), old, scale(5)));
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(m));
    expect_row(clef_forward(net, row(1, 2)), 30, 60);
    cr_expect_str_eq(clef_module_tensor(net, 1).name, "0.1.weight");
    cr_assert_eq(clef_module_replace(net, "0.1", clef_nn_relu(ctx)), CLEF_OK);
    expect_row(clef_forward(net, row(1, -2)), 15, 0);
    cr_expect_eq(clef_module_tensors(net), 2);
    cr_expect_str_eq(clef_module_tensor(net, 1).name, "0.2.weight");
    expect_row(clef_forward(old, row(1, 2)), 2, 4);
    cr_assert_eq(clef_module_remove(net, "0.0"), CLEF_OK);
    expect_row(clef_forward(net, row(1, 2)), 5, 10);
    cr_expect(!clef_module_has(m, "0") && clef_module_has(m, "1"));
    cr_assert_eq(clef_module_add(m, "0", old), CLEF_OK, "its name is free again");
}

Test(children, of_blocks_are_found_by_name) {
    clef_module *m = clef_nn_residual(ctx, scale(2), scale(10), false);
    cr_assert_eq(clef_module_replace(m, "body", scale(4)), CLEF_OK);
    expect_row(clef_forward(m, row(1, 2)), 14, 28);
    cr_assert_eq(clef_module_remove(m, "shortcut"), CLEF_OK);
    expect_row(clef_forward(m, row(1, 2)), 5, 10);
    cr_assert_eq(clef_module_remove(m, "body"), CLEF_OK);
    cr_expect_null(clef_forward(m, row(1, 2)));
    expect_error(ctx, CLEF_INVALID, "residual: its child \"body\" was removed");
    clef_module *resnet = clef_model_resnet18(ctx, CLEF_SHAPE(1, 8, 8), 10);
    cr_assert_eq(clef_module_replace(resnet, "fc", clef_nn_linear(ctx, 512, 3, NULL)), CLEF_OK);
    expect_shape(clef_forward(resnet, clef_zeros(ctx, CLEF_SHAPE(2, 1, 8, 8), CLEF_F32)), CLEF_SHAPE(2, 3));
}

Test(children, that_are_replaced_stay_as_the_optimizer_left_them) {
    clef_module *old = scale(2), *m = clef_sequential(ctx, CLEF_LAYERS(scale(3), old));
    clef_optimizer *sgd = clef_sgd(m, &(clef_sgd_options){.lr = 0.5});
    clef_module *new = scale(7);
    cr_assert_eq(clef_module_replace(m, "1", new), CLEF_OK);
    cr_assert_eq(clef_backward(clef_sum(clef_forward(m, row(1, 1)), NULL, 0, false)), CLEF_OK);
    cr_assert_eq(clef_step(sgd), CLEF_OK, "%s", clef_error(ctx));
    expect_row(clef_parameter(m, "0.weight"), 3 - 3.5f, -3.5f); /* d/dw = 7 everywhere */
    expect_row(clef_parameter(old, "weight"), 2, 0);
    expect_row(clef_parameter(new, "weight"), 7, 0);
    cr_expect_not_null(clef_grad_of(clef_parameter(new, "weight")), "nobody takes it");
}

Test(children, refusals) {
    clef_module *inner = clef_sequential(ctx, CLEF_LAYERS(scale(2))), *m = clef_sequential(ctx, CLEF_LAYERS(inner));
    cr_expect_eq(clef_module_replace(m, "0.0", m), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "sequential: child \"0\" would contain itself");
    cr_expect_eq(clef_module_replace(m, "0.0", inner), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "would contain itself");
    cr_expect_eq(clef_module_replace(m, "0.1", scale(1)), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "module_replace: \"0.1\" leads to no module");
    cr_expect_eq(clef_module_replace(m, "0", NULL), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "child \"0\" is NULL");
    cr_expect_eq(clef_module_remove(m, "0.0.weight"), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "module_remove: \"0.0.weight\" leads to no module");
    cr_expect_eq(clef_module_remove(m, NULL), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "module_remove");
    cr_expect_eq(clef_module_tensors(m), 1);
}
