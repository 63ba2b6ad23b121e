/* Ops with a kernel of the program's own (clef_kernel): every dtype, layouts, sizes that are arguments, gradients, and what is
   refused.
   ctest: plain */
#include "support/device.h"
#include "support/numbers.h"

static clef_context *ctx;

static void open_device(void) { ctx = open_seeded(0); }
static void close_device(void) { close_clean(ctx); }
TestSuite(kernel, .init = open_device, .fini = close_device);

/* ---- the least and the largest of each row, and where the largest is ---- */

static bool infer_range(clef_kernel_call *call) {
    clef_shape x = call->input[0];
    if (x.rank != 2) return call->problem = "x must be a matrix", false;
    for (int k = 0; k < 3; k++) call->output[k] = CLEF_SHAPE(x.dim[0]);
    call->output_dtype[2] = CLEF_I64;
    call->size[0] = x.dim[1];
    call->number[0] = call->n_options ? call->option[0] : 1;
    return true;
}

static const clef_kernel_op row_range = {.name = "max", /* also a function of OpenCL C */
                                         .inputs = "x",
                                         .outputs = "low high at",
                                         .sizes = "n",
                                         .numbers = "factor",
                                         .infer = infer_range,
                                         .functions = "float least(float a, float b) { return b < a ? b : a; }",
                                         .body = "float a = GET(x, i * n), b = a; long where = 0;\n"
                                                 "for (long j = 1; j < n; j++) {\n"
                                                 "    float v = GET(x, i * n + j);\n"
                                                 "    a = least(a, v);\n"
                                                 "    if (v > b) b = v, where = j;\n"
                                                 "}\n"
                                                 "PUT(low, i, a * factor); PUT(high, i, b * factor); PUT(at, i, where);"};

enum { ROWS = 37, COLUMNS = 19 };
static int number_at(int row, int column) { return (row * 7 + column * 13) % 61; }

static clef_tensor *matrix(clef_dtype dtype) {
    float v[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) v[i] = (float)number_at(i / COLUMNS, i % COLUMNS);
    return clef_to(clef_from_host(ctx, CLEF_SHAPE(ROWS, COLUMNS), CLEF_F32, v), dtype);
}

static void expect_range(clef_tensor *const *y, bool of_columns, double factor) {
    int n = of_columns ? ROWS : COLUMNS, rows = of_columns ? COLUMNS : ROWS;
    float low[ROWS], high[ROWS];
    int64_t at[ROWS];
    clef_tensor *wide[2] = {clef_to(y[0], CLEF_F32), clef_to(y[1], CLEF_F32)};
    cr_assert_eq(clef_read(wide[0], low, (size_t)rows * sizeof *low), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(clef_read(wide[1], high, (size_t)rows * sizeof *high), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(clef_read(y[2], at, (size_t)rows * sizeof *at), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < rows; i++) {
        int least = 1000, most = -1, where = 0;
        for (int j = 0; j < n; j++) {
            int v = of_columns ? number_at(j, i) : number_at(i, j);
            if (v < least) least = v;
            if (v > most) most = v, where = j;
        }
        cr_expect(low[i] == least * factor && high[i] == most * factor && at[i] == where, "row %d: %g, %g at %d", i, low[i],
                  high[i], (int)at[i]);
    }
}

static void run(clef_tensor *x, clef_tensor **y) { cr_assert_eq(clef_kernel(&row_range, &x, 1, NULL, 0, y, 3), CLEF_OK); }

Test(kernel, has_every_dtype) {
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_F16, CLEF_BF16, CLEF_F64, CLEF_I32, CLEF_I64, CLEF_U8};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (dtypes[i] == CLEF_F64 && !has_f64(ctx)) continue;
        clef_tensor *y[3];
        run(matrix(dtypes[i]), y);
        cr_expect_eq(clef_tensor_dtype(y[0]), dtypes[i]);
        cr_expect_eq(clef_tensor_dtype(y[2]), CLEF_I64);
        expect_range(y, false, 1);
    }
}

Test(kernel, sees_views_row_major) {
    clef_tensor *y[3];
    run(clef_transpose(matrix(CLEF_F32), 0, 1), y);
    expect_range(y, true, 1);
}

Test(kernel, options_and_sizes_are_arguments) {
    clef_tensor *y[3], *x = matrix(CLEF_F32);
    run(x, y);
    clef_eval_all(y, 3);
    uint64_t before = clef_counters_get(ctx).kernels_built + clef_counters_get(ctx).kernels_from_cache;
    cr_assert_eq(clef_kernel(&row_range, &x, 1, (double[]){-2}, 1, y, 3), CLEF_OK);
    expect_range(y, false, -2);
    clef_tensor *other = clef_slice(x, 1, 0, 5, 1);
    run(other, y);
    cr_expect_eq(clef_eval_all(y, 3), CLEF_OK);
    uint64_t after = clef_counters_get(ctx).kernels_built + clef_counters_get(ctx).kernels_from_cache;
    cr_expect(after - before <= 2, "%d more kernels than a copy and a conversion take", (int)(after - before));
}

Test(kernel, one_output_alone_and_then_another) {
    clef_tensor *y[3];
    run(matrix(CLEF_F32), y);
    cr_expect_eq(clef_item(clef_sum(clef_to(y[2], CLEF_F32), NULL, 0, false)),
                 clef_item(clef_sum(clef_argmax(matrix(CLEF_F32), 1, false), NULL, 0, false)));
    expect_range(y, false, 1);
}

/* ---- an output that is switched off ---- */

static bool infer_sometimes(clef_kernel_call *call) {
    call->output[0] = call->input[0];
    call->output[1] = CLEF_SHAPE(call->option[0] > 0 ? clef_shape_numel(call->input[0]) : 0);
    call->size[0] = call->option[0] > 0;
    return true;
}
static const clef_kernel_op sometimes = {.name = "sometimes",
                                         .inputs = "x",
                                         .outputs = "y z",
                                         .sizes = "on",
                                         .infer = infer_sometimes,
                                         .body = "PUT(y, i, GET(x, i) + 1); if (on) PUT(z, i, 2);"};

Test(kernel, one_output_may_be_empty) {
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(7), CLEF_F32), *y[2];
    for (int on = 0; on < 2; on++) {
        cr_assert_eq(clef_kernel(&sometimes, &x, 1, (double[]){on}, 1, y, 2), CLEF_OK);
        cr_expect_eq(clef_item(clef_sum(y[0], NULL, 0, false)), 14);
        cr_expect_eq(clef_item(clef_sum(y[1], NULL, 0, false)), on * 14);
    }
}

/* ---- u = a·b, v = a + b of equal shapes ---- */

static bool infer_both(clef_kernel_call *call) {
    if (!clef_shape_equal(call->input[0], call->input[1])) return call->problem = "a and b must have one shape", false;
    call->output[0] = call->output[1] = call->input[0];
    return true;
}
static void gradient_both(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted, clef_tensor **dx,
                          const double *option) {
    (void)y, (void)option;
    for (int i = 0; i < 2; i++) {
        clef_tensor *first = g[0] ? clef_mul(g[0], x[1 - i]) : NULL;
        if (wanted[i]) dx[i] = first && g[1] ? clef_add(first, g[1]) : first ? first : g[1];
    }
}
static const clef_kernel_op both = {.name = "both",
                                    .inputs = "a b",
                                    .outputs = "u v",
                                    .infer = infer_both,
                                    .gradient = gradient_both,
                                    .body = "PUT(u, i, GET(a, i) * GET(b, i)); PUT(v, i, GET(a, i) + GET(b, i));"};

Test(kernel, inputs_and_outputs_may_be_one_array) {
    clef_tensor *t[2] = {clef_full(ctx, CLEF_SHAPE(5), CLEF_F32, 3), clef_full(ctx, CLEF_SHAPE(5), CLEF_F32, 4)};
    for (int i = 0; i < 2; i++) cr_assert_eq(clef_kernel(&both, t, 2, NULL, 0, t, 2), CLEF_OK);
    cr_expect_eq(clef_item(clef_mean(t[0], NULL, 0, false)), 12 * 7);
    cr_expect_eq(clef_item(clef_mean(t[1], NULL, 0, false)), 12 + 7);
}

Test(kernel, of_nothing_gives_zeros) {
    clef_tensor *y[3];
    run(clef_zeros(ctx, CLEF_SHAPE(3, 0), CLEF_F32), y);
    cr_expect_eq(clef_item(clef_sum(clef_abs(y[0]), NULL, 0, false)), 0);
    run(clef_zeros(ctx, CLEF_SHAPE(0, 3), CLEF_F32), y);
    cr_expect_eq(clef_numel(y[1]), 0);
    cr_expect_eq(clef_eval_all(y, 3), CLEF_OK);
}

/* ---- gradients ---- */

static clef_tensor *leaf_of(double value) {
    return clef_require_grad(clef_keep(clef_full(ctx, CLEF_SHAPE(5), CLEF_F32, value)), true);
}

Test(kernel, gradients_of_either_output) {
    for (int which = 1; which <= 3; which++) {
        clef_tensor *in[2] = {leaf_of(3), leaf_of(4)}, *y[2];
        cr_assert_eq(clef_kernel(&both, in, 2, NULL, 0, y, 2), CLEF_OK);
        clef_tensor *u = clef_mul_scalar(y[0], 10), *loss = which == 1 ? u : which == 2 ? y[1] : clef_add(u, y[1]);
        clef_backward(clef_sum(loss, NULL, 0, false));
        for (int i = 0; i < 2; i++)
            cr_expect_eq(clef_item(clef_mean(clef_grad_of(in[i]), NULL, 0, false)), (which & 1 ? 10 * (4 - i) : 0) + (which >> 1),
                         "outputs %d, input %d", which, i);
        clef_end_step(ctx);
    }
}

Test(kernel, second_order_goes_through_its_gradients_ops) {
    clef_tensor *in[2] = {leaf_of(3), leaf_of(4)}, *y[2], *dx[2], *ddx;
    clef_kernel(&both, in, 2, NULL, 0, y, 2);
    clef_grad(clef_sum(clef_square(y[0]), NULL, 0, false), CLEF_NONE, in, 2, true, dx); /* da = 2ab² */
    clef_grad(clef_sum(dx[0], NULL, 0, false), CLEF_NONE, &in[1], 1, false, &ddx);      /* 4ab */
    cr_expect_eq(clef_item(clef_mean(ddx, NULL, 0, false)), 48);
}

/* ---- what is refused ---- */

static void refused(const clef_kernel_op *op, clef_tensor *const *x, int n, int m, clef_status status, const char *line) {
    clef_tensor *y[CLEF_KERNEL_MOST] = {x[0]};
    cr_expect_eq(clef_kernel(op, x, n, NULL, 0, y, m), status);
    cr_expect_null(y[0]);
    expect_error(ctx, status, line);
}

Test(kernel, what_does_not_fit_is_one_line) {
    clef_tensor *x = clef_zeros(ctx, CLEF_SHAPE(4), CLEF_F32), *two[2] = {x, clef_zeros(ctx, CLEF_SHAPE(5), CLEF_F32)};
    refused(NULL, &x, 1, 1, CLEF_INVALID, "kernel: needs a name that is a C identifier, a body, and infer");
    refused(&(clef_kernel_op){.name = "a b", .body = "", .infer = infer_both}, &x, 1, 1, CLEF_INVALID,
            "kernel: needs a name that is a C identifier, a body, and infer");
    refused(&(clef_kernel_op){.name = "odd", .body = "", .infer = infer_both, .inputs = "2", .outputs = "y"}, &x, 1, 1,
            CLEF_INVALID, "odd: inputs and outputs need 1 to 16 names that are C identifiers, sizes and numbers at most 16");
    static const clef_kernel_op twice = {.name = "twice", .inputs = "x", .outputs = "x", .body = "", .infer = infer_both},
                                taken = {.name = "taken",
                                         .inputs = "x",
                                         .outputs = "y",
                                         .sizes = "items",
                                         .body = "",
                                         .infer = infer_both};
    refused(&twice, &x, 1, 1, CLEF_INVALID,
            "twice: two of inputs, outputs, sizes and numbers have one name, or one is called i or items");
    refused(&taken, &x, 1, 1, CLEF_INVALID,
            "taken: two of inputs, outputs, sizes and numbers have one name, or one is called i or items");
    refused(&row_range, &x, 1, 2, CLEF_INVALID, "max: 1 inputs and 2 outputs given, but it has 1 (x) and 3 (low high at)");
    refused(&row_range, &x, 1, 3, CLEF_SHAPE, "max: x must be a matrix");
    refused(&both, two, 2, 2, CLEF_SHAPE, "both: a and b must have one shape");
    clef_tensor *y[2];
    cr_expect_eq(clef_kernel(&both, two, 2, NULL, 1, y, 2), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "both: 1 options; 0 to 16, in an array");
}

static void wrong_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                           clef_tensor **dx, const double *option) {
    (void)x, (void)y, (void)wanted, (void)option;
    dx[0] = clef_sum(g[0], NULL, 0, false);
    dx[1] = clef_to(g[0], CLEF_F16);
}

Test(kernel, gradients_that_do_not_fit) {
    clef_tensor *in[2] = {leaf_of(3), leaf_of(4)}, *y[2];
    clef_kernel_op op = both;
    op.name = "mistaken", op.gradient = wrong_gradient;
    clef_kernel(&op, in, 2, NULL, 0, y, 2);
    cr_expect_eq(clef_backward(clef_sum(y[0], NULL, 0, false)), CLEF_SHAPE);
    expect_error(ctx, CLEF_SHAPE, "mistaken: gradient gives [] for input 0, which is [5]");
    clef_require_grad(in[0], false);
    clef_kernel(&op, in, 2, NULL, 0, y, 2);
    cr_expect_eq(clef_backward(clef_sum(y[0], NULL, 0, false)), CLEF_OK);
    cr_expect_eq(clef_tensor_dtype(clef_grad_of(in[1])), CLEF_F32);
    clef_end_step(ctx);
    clef_kernel_op none = both;
    none.name = "none", none.gradient = NULL;
    clef_kernel(&none, in, 2, NULL, 0, y, 2);
    cr_expect_eq(clef_backward(clef_sum(y[0], NULL, 0, false)), CLEF_UNSUPPORTED);
    expect_error(ctx, CLEF_UNSUPPORTED, "none: the op has no gradient");
}

Test(kernel, text_that_does_not_compile_is_an_error_of_its_own) {
    static const clef_kernel_op broken = {
        .name = "broken", .inputs = "a b", .outputs = "u v", .infer = infer_both, .body = "u[i] = ;"};
    clef_tensor *in[2] = {clef_ones(ctx, CLEF_SHAPE(4), CLEF_F32), clef_ones(ctx, CLEF_SHAPE(4), CLEF_F32)}, *y[2];
    cr_expect_eq(clef_kernel(&broken, in, 2, NULL, 0, y, 2), CLEF_OK);
    cr_expect_eq(clef_eval(y[0]), CLEF_BUILD);
    cr_expect(strlen(clef_build_log(ctx)) > 0);
    clef_clear_error(ctx);
}

Test(kernel, nothing_is_computed_behind_one_that_does_not_compile) {
    static const clef_kernel_op broken = {
        .name = "broken", .inputs = "a b", .outputs = "u v", .infer = infer_both, .body = "u[i] = ;"};
    clef_tensor *in[2] = {clef_ones(ctx, CLEF_SHAPE(4), CLEF_F32), clef_ones(ctx, CLEF_SHAPE(4), CLEF_F32)}, *y[2];
    for (int older = 0; older < 2; older++) {
        if (older) clef_reshape(in[0], CLEF_SHAPE(3)); /* an error that came before hides nothing */
        clef_kernel(&broken, in, 2, NULL, 0, y, 2);
        cr_expect_neq(clef_eval(y[0]), CLEF_OK);
        cr_expect_eq(clef_error_status(ctx), older ? CLEF_SHAPE : CLEF_BUILD);
        uint64_t launches = clef_counters_get(ctx).launches;
        cr_expect_neq(clef_eval(clef_neg(in[1])), CLEF_OK);
        cr_expect_eq(clef_counters_get(ctx).launches, launches);
        clef_clear_error(ctx);
        cr_expect_eq(clef_eval(clef_neg(in[1])), CLEF_OK);
    }
}

/* Functions that none of Clef's own kernels calls, or with other types. */
Test(kernel, may_call_any_function_of_opencl_c) {
    static const clef_kernel_op roots = {
        .name = "roots",
        .inputs = "a b",
        .outputs = "u v",
        .infer = infer_both,
        .body = "PUT(u, i, round(cbrt(GET(a, i)))); PUT(v, i, (float)mul_hi((int)GET(a, i), (int)GET(b, i)));"};
    static const clef_kernel_op high = {
        .name = "high",
        .inputs = "a b",
        .outputs = "u v",
        .infer = infer_both,
        .body = "PUT(u, i, (float)mul_hi((int)GET(a, i), (int)GET(b, i))); PUT(v, i, (float)max((int)GET(a, i), (int)GET(b, i)));"};
    const clef_kernel_op *const ops[] = {&roots, &high};
    const double expected[2][2] = {{-2, -1}, {-1, 3}};
    for (int i = 0; i < 2; i++) {
        clef_tensor *in[2] = {clef_full(ctx, CLEF_SHAPE(5), CLEF_F32, -8), clef_full(ctx, CLEF_SHAPE(5), CLEF_F32, 3)}, *y[2];
        cr_assert_eq(clef_kernel(ops[i], in, 2, NULL, 0, y, 2), CLEF_OK);
        for (int k = 0; k < 2; k++) cr_expect_eq(clef_item(clef_mean(y[k], NULL, 0, false)), expected[i][k]);
    }
}
