/* Errors inside a model say in which layer they are, in the same line. */
#include "support/device.h"
#include "clef/pointwise.h"

static clef_context *ctx;
static int lines;
static void count_lines(void *user, clef_log_level level, const char *line) {
    (void)user, (void)line;
    lines += level == CLEF_LOG_ERROR;
}

static void open_context(void) { ctx = open_or_skip(&(clef_options){.seed = 3, .log = count_lines}); }
static void close_context(void) { close_clean(ctx); }
TestSuite(whereabouts, .init = open_context, .fini = close_context);

static clef_module *linear(int64_t in, int64_t out) { return clef_nn_linear(ctx, in, out, NULL); }
static clef_tensor *row(int64_t n) { return clef_ones(ctx, CLEF_SHAPE(1, n), CLEF_F32); }

static void expect_line(const char *line) {
    cr_expect_str_eq(clef_error(ctx), line);
    clef_clear_error(ctx);
}

/* sequential of residual of sequential: its innermost linear is right for 4 features where `in` is 4. */
static clef_module *deep(int64_t in) {
    clef_module *body = clef_sequential(ctx, CLEF_LAYERS(clef_nn_relu(ctx), linear(in, 4)));
    return clef_sequential(ctx, CLEF_LAYERS(linear(3, 4), clef_nn_residual(ctx, body, NULL, false), clef_nn_relu(ctx)));
}

Test(whereabouts, of_the_innermost_layer_in_one_line) {
    cr_expect_null(clef_forward(deep(5), row(3)));
    cr_expect_eq(lines, 1);
    expect_line("linear: x has 4 features but w wants 5 (x [1,4], w [4,5]); in layer \"1.body.1\" (linear)");
    cr_expect_not_null(clef_forward(deep(4), row(3)));
}

Test(whereabouts, the_outermost_module_is_no_layer) {
    cr_expect_null(clef_forward(linear(5, 4), row(3)));
    expect_line("linear: x has 3 features but w wants 5 (x [1,3], w [4,5])");
    cr_expect_null(clef_linear(row(3), clef_ones(ctx, CLEF_SHAPE(4, 5), CLEF_F32), CLEF_NONE));
    expect_line("linear: x has 3 features but w wants 5 (x [1,3], w [4,5])");
}

/* After a failure nothing is running any more. */
Test(whereabouts, end_with_the_run) {
    clef_module *m = deep(5);
    for (int i = 0; i < 3; i++) {
        cr_expect_null(clef_forward(m, row(3)));
        clef_clear_error(ctx);
    }
    cr_expect_null(clef_reshape(row(3), CLEF_SHAPE(2)));
    cr_expect_null(strstr(clef_error(ctx), "in layer"), "%s", clef_error(ctx));
    clef_clear_error(ctx);
}

/* ---- modules of the program ---- */
static clef_tensor *ask_teacher(clef_module *module, clef_tensor *x, void *teacher) {
    (void)module;
    return clef_forward(teacher, x);
}

Test(whereabouts, of_a_module_that_is_registered_nowhere_are_those_of_who_runs_it) {
    clef_module *student = clef_module_new(ctx, "student", ask_teacher, deep(5));
    cr_expect_null(clef_forward(clef_sequential(ctx, CLEF_LAYERS(linear(3, 3), student)), row(3)));
    expect_line("linear: x has 4 features but w wants 5 (x [1,4], w [4,5]); in layer \"1\" (student)");
}

static clef_status refuse(clef_module *module, clef_tensor *const *in, int n, clef_tensor **out, int m, void *user) {
    (void)module, (void)in, (void)n, (void)out, (void)m, (void)user;
    return CLEF_INVALID;
}

Test(whereabouts, of_a_function_that_only_says_no) {
    clef_module *no = clef_module_new_call(ctx, "no", refuse, 1, 1, NULL);
    cr_expect_null(clef_forward(clef_sequential(ctx, CLEF_LAYERS(clef_nn_relu(ctx), no)), row(3)));
    expect_line("no: its function returned CLEF_INVALID; in layer \"1\" (no)");
}

Test(whereabouts, of_a_layer_that_wants_other_inputs) {
    clef_module *two = clef_module_new_call(ctx, "two", refuse, 2, 1, NULL);
    cr_expect_null(clef_forward(clef_sequential(ctx, CLEF_LAYERS(clef_nn_relu(ctx), two)), row(3)));
    expect_line("forward: the two takes 2 inputs and gives 1 output, not 1 and 1; in layer \"1\" (two)");
}

static clef_status refuse_before(clef_module *module, clef_tensor *const *in, int n, void *user) {
    (void)module, (void)in, (void)n, (void)user;
    return CLEF_INVALID;
}

Test(whereabouts, of_hooks_and_of_layers_that_recompute) {
    clef_module *m = deep(5), *block = clef_module_child(m, "1");
    clef_recompute(block, true);
    cr_expect_null(clef_forward(m, row(3)));
    expect_line("linear: x has 4 features but w wants 5 (x [1,4], w [4,5]); in layer \"1.body.1\" (linear)");
    clef_module_hook(clef_module_child(m, "1.body"), &(clef_hook){.before = refuse_before});
    cr_expect_null(clef_forward(m, row(3)));
    expect_line("sequential: its hook before it returned CLEF_INVALID; in layer \"1.body\" (sequential)");
}

/* A layer that is shared has the name of the parent that runs it. */
Test(whereabouts, of_a_shared_layer) {
    clef_module *shared = linear(4, 4);
    clef_module *first = clef_sequential(ctx, CLEF_LAYERS(shared)),
                *second = clef_sequential(ctx, CLEF_LAYERS(linear(4, 3), shared));
    cr_expect_null(clef_forward(clef_sequential(ctx, CLEF_LAYERS(first, second)), row(4)));
    expect_line("linear: x has 3 features but w wants 4 (x [1,3], w [4,4]); in layer \"1.1\" (linear)");
}

/* Long names and lines: the place is never what is cut off. */
Test(whereabouts, fit_in_a_line) {
    char name[900];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    clef_module *outer = clef_sequential(ctx, NULL, 0);
    cr_assert_eq(clef_module_add(outer, name, linear(5, 4)), CLEF_OK);
    cr_expect_null(clef_forward(outer, row(3)));
    cr_expect_not_null(strstr(clef_error(ctx), "linear: x has 3 features"));
    cr_expect_not_null(strstr(clef_error(ctx), "nnn\" (linear)"), "%s", clef_error(ctx));
    clef_clear_error(ctx);
}

Test(whereabouts, in_fit) {
    float x[24] = {0};
    int64_t y[8] = {0};
    clef_dataset *data = clef_dataset_arrays(ctx, x, CLEF_SHAPE(3), y, 8);
    clef_loader *loader = clef_loader_open(data, &(clef_loader_options){.batch = 4});
    clef_module *m = deep(5);
    clef_fit_options o = {.train = loader, .optimizer = clef_sgd(m, &(clef_sgd_options){.lr = 1})};
    cr_expect_eq(clef_fit(m, &o, NULL), CLEF_SHAPE);
    expect_line("linear: x has 4 features but w wants 5 (x [4,4], w [4,5]); in layer \"1.body.1\" (linear)");
}
