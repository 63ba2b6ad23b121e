/* test_norm.c — layer norm, RMS norm, group norm, batch norm with its running statistics, dropout.
   ctest: cost=50 */
#include "support/numbers.h"
#include "team_rows.h"

/* Standardises lines of x [n,c,d]: over c and d (layer) or over n and d (batch), then times weight plus bias per position. */
enum { N = 3, C = 4, D = 5 };
typedef struct form {
    bool batch;
    const double *weight, *bias;
} form;
static double *mean_of, *var_of; /* of the last reference call */

static void reference(const double *x, double *y, const void *user) {
    const form *f = user;
    static double means[C + N], vars[C + N];
    mean_of = means, var_of = vars;
    int groups = f->batch ? C : N, count = N * C * D / groups;
    for (int k = 0; k < groups; k++) {
        double mean = 0, var = 0;
        for (int i = 0; i < N * C * D; i++)
            if ((f->batch ? i / D % C : i / (C * D)) == k) mean += x[i] / count;
        for (int i = 0; i < N * C * D; i++)
            if ((f->batch ? i / D % C : i / (C * D)) == k) var += (x[i] - mean) * (x[i] - mean) / count;
        means[k] = mean, vars[k] = var;
        for (int i = 0; i < N * C * D; i++) {
            if ((f->batch ? i / D % C : i / (C * D)) != k) continue;
            int at = f->batch ? i / D % C : i % (C * D);
            y[i] = (x[i] - mean) / sqrt(var + 1e-5) * (f->weight ? f->weight[at] : 1) + (f->bias ? f->bias[at] : 0);
        }
    }
}

static void check(clef_tensor *y, clef_tensor *p, const form *f, const double *x) {
    clef_context *ctx = clef_tensor_context(y);
    double want[N * C * D], *g = spread(N * C * D, -1, 1, 5);
    reference(x, want, f);
    clef_dtype dtype = clef_tensor_dtype(p);
    bounds of_y = stored_bounds(dtype, 2e-6, 4e-6), of_dx = stored_bounds(dtype, 2e-5, 1e-4);
    cr_expect(clef_tensor_dtype(y) == dtype);
    expect_numbers(y, want, of_y.absolute, of_y.relative, f->batch ? "batch_norm" : "layer_norm");
    clef_tensor *dx;
    cr_assert(clef_grad(y, tensor_of(ctx, CLEF_SHAPE(N, C, D), dtype, g), &p, 1, false, &dx) == CLEF_OK, "%s", clef_error(ctx));
    double *slope = slopes(reference, f, x, N * C * D, N * C * D, g, 1e-6);
    expect_numbers(dx, slope, fmax(of_dx.absolute, 2e-8), of_dx.relative, "gradient"); /* slopes in double are good to 1e-8 */
    free(g), free(slope);
}

static void check_layer_norm(clef_context *ctx, clef_dtype dtype) {
    double *x = spread(N * C * D, -2, 3, 1), *w = spread(C * D, 0.5, 2, 2), *b = spread(C * D, -1, 1, 3);
    clef_tensor *p = parameter(tensor_of(ctx, CLEF_SHAPE(N, C, D), dtype, x));
    clef_tensor *tw = tensor_of(ctx, CLEF_SHAPE(C, D), dtype, w), *tb = tensor_of(ctx, CLEF_SHAPE(C, D), dtype, b);
    check(clef_layer_norm(p, 2, tw, tb, 1e-5), p, &(form){false, w, b}, x);
    check(clef_layer_norm(p, 2, tw, CLEF_NONE, 1e-5), p, &(form){false, w, NULL}, x);
    if (dtype == CLEF_F32) check(clef_layer_norm(p, 2, CLEF_NONE, tb, 1e-5), p, &(form){false, NULL, b}, x);
    if (dtype == CLEF_F32) check(clef_layer_norm(p, 2, CLEF_NONE, CLEF_NONE, 1e-5), p, &(form){false, NULL, NULL}, x);
    free(x), free(w), free(b);
    clef_release(p);
    clef_end_step(ctx);
}

Test(norm, layer_norm) {
    clef_context *ctx = open_seeded(1);
    for (int d = 0; d < float_dtypes_here(ctx); d++) check_layer_norm(ctx, float_dtypes[d]);
    clef_tensor *p = clef_ones(ctx, CLEF_SHAPE(N, C, D), CLEF_F32), *w = clef_ones(ctx, CLEF_SHAPE(C, D), CLEF_F32);
    clef_tensor *half = clef_layer_norm(clef_to(p, CLEF_F16), 2, w, w, 1e-5);
    cr_expect(clef_tensor_dtype(half) == CLEF_F16, "x decides, not the weight");
    cr_expect(!clef_layer_norm(p, 1, w, w, 1e-5));
    expect_error(ctx, CLEF_SHAPE, "layer_norm: weight [4,5]");
    cr_expect(!clef_layer_norm(p, 4, CLEF_NONE, CLEF_NONE, 1e-5));
    expect_error(ctx, CLEF_INVALID, "layer_norm");
    clef_close(ctx);
}

/* Rows of odd lengths, one that no cache holds, and gradients of weight and bias over several parts of the rows. */
static void check_rows(clef_context *ctx, int64_t rows, int64_t n) {
    double *x = spread(rows * n, -2, 3, 1), *w = spread(n, 0.5, 2, 2), *b = spread(n, -1, 1, 3), *g = spread(rows * n, -1, 1, 5);
    double *y = calloc((size_t)(rows * n), sizeof *y), *dx = calloc((size_t)(rows * n), sizeof *dx),
           *dw = calloc((size_t)n, sizeof *dw), *db = calloc((size_t)n, sizeof *db);
    for (int64_t i = 0; i < rows * n; i++) x[i] = (double)(float)x[i], g[i] = (double)(float)g[i];
    for (int64_t i = 0; i < n; i++) w[i] = (double)(float)w[i], b[i] = (double)(float)b[i];
    for (int64_t r = 0; r < rows; r++) {
        const double *v = x + r * n, *s = g + r * n;
        double mean = 0, var = 0, plain = 0, far = 0;
        for (int64_t i = 0; i < n; i++) mean += v[i] / (double)n;
        for (int64_t i = 0; i < n; i++) var += (v[i] - mean) * (v[i] - mean) / (double)n;
        double scale = 1 / sqrt(var + 1e-5);
        for (int64_t i = 0; i < n; i++) {
            double standard = (v[i] - mean) * scale;
            y[r * n + i] = standard * w[i] + b[i];
            dw[i] += s[i] * standard, db[i] += s[i];
            plain += s[i] * w[i] / (double)n, far += s[i] * w[i] * standard / (double)n;
        }
        for (int64_t i = 0; i < n; i++) dx[r * n + i] = (s[i] * w[i] - plain - (v[i] - mean) * scale * far) * scale;
    }
    clef_tensor *in[3] = {parameter(tensor_of(ctx, CLEF_SHAPE(rows, n), CLEF_F32, x)),
                          parameter(tensor_of(ctx, CLEF_SHAPE(n), CLEF_F32, w)),
                          parameter(tensor_of(ctx, CLEF_SHAPE(n), CLEF_F32, b))},
                *d[3];
    clef_tensor *out = clef_layer_norm(in[0], 1, in[1], in[2], 1e-5), *seed = tensor_of(ctx, CLEF_SHAPE(rows, n), CLEF_F32, g);
    expect_numbers(out, y, 4e-6, 4e-6, "layer_norm of rows");
    cr_assert(clef_grad(out, seed, in, 3, false, d) == CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(d[0], dx, 2e-5, 1e-4, "gradient of rows");
    expect_numbers(d[1], dw, 2e-6 * (double)rows, 1e-4, "gradient of the weight");
    expect_numbers(d[2], db, 2e-6 * (double)rows, 1e-4, "gradient of the bias");
    for (int i = 1; i < 3; i++) {
        clef_tensor *alone;
        cr_assert(clef_grad(out, seed, &in[i], 1, false, &alone) == CLEF_OK, "%s", clef_error(ctx));
        expect_numbers(alone, i == 1 ? dw : db, 2e-6 * (double)rows, 1e-4, "gradient of one of them alone");
    }
    cr_assert(clef_grad(out, seed, in, 3, true, d) == CLEF_OK, "%s", clef_error(ctx)); /* in expressions of their own */
    expect_numbers(d[0], dx, 2e-5, 1e-4, "gradient of rows, differentiable");
    expect_numbers(d[1], dw, 2e-6 * (double)rows, 1e-4, "gradient of the weight, differentiable");
    expect_numbers(d[2], db, 2e-6 * (double)rows, 1e-4, "gradient of the bias, differentiable");
    out = clef_layer_norm(in[0], 1, in[1], CLEF_NONE, 1e-5);
    for (int64_t i = 0; i < rows * n; i++) y[i] -= b[i % n];
    expect_numbers(out, y, 4e-6, 4e-6, "layer_norm of rows without a bias");
    cr_assert(clef_grad(out, seed, in, 2, false, d) == CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(d[0], dx, 2e-5, 1e-4, "gradient of rows without a bias");
    expect_numbers(d[1], dw, 2e-6 * (double)rows, 1e-4, "gradient of the weight alone");
    for (int i = 0; i < 3; i++) clef_release(in[i]);
    clef_end_step(ctx);
    free(x), free(w), free(b), free(g), free(y), free(dx), free(dw), free(db);
}

Test(norm, layer_norm_of_rows) {
    clef_context *ctx = open_seeded(1);
    check_rows(ctx, 5, 1);
    check_rows(ctx, 3, 17);
    if (!few_kernels()) check_rows(ctx, 37, 131); /* three parts; on a GPU a row by a work-group */
    if (!test_small()) {
        check_rows(ctx, 1100, 3); /* as many parts as there may be */
        check_rows(ctx, 2, 70001);
    }
    cr_expect(clef_numel(clef_layer_norm(clef_zeros(ctx, CLEF_SHAPE(0, 3), CLEF_F32), 1, CLEF_NONE, CLEF_NONE, 1e-5)) == 0);
    clef_close(ctx);
}

/* The second derivative against differences of the first, in f64. */
Test(norm, layer_norm_differentiates_twice) {
    clef_context *ctx = open_seeded(1);
    if (!has_f64(ctx)) cr_skip_test("this device has no f64");
    double *x = spread(12, -2, 2, 5), *g = spread(12, -1, 1, 6), *h = spread(12, -1, 1, 7), *first[2], e = 1e-5;
    clef_tensor *tg = clef_keep(tensor_of(ctx, CLEF_SHAPE(3, 4), CLEF_F64, g)),
                *w = clef_keep(tensor_of(ctx, CLEF_SHAPE(4), CLEF_F64, h)), *dx, *ddx;
    clef_tensor *p = parameter(tensor_of(ctx, CLEF_SHAPE(3, 4), CLEF_F64, x));
    cr_assert(clef_grad(clef_layer_norm(p, 1, w, w, 1e-5), tg, &p, 1, true, &dx) == CLEF_OK, "%s", clef_error(ctx));
    cr_assert(clef_grad(dx, tensor_of(ctx, CLEF_SHAPE(3, 4), CLEF_F64, h), &p, 1, false, &ddx) == CLEF_OK, "%s", clef_error(ctx));
    double *have = numbers(ddx);
    for (int i = 0; i < 12; i++) {
        for (int side = 0; side < 2; side++) {
            x[i] += side ? -2 * e : e;
            clef_tensor *q = parameter(tensor_of(ctx, CLEF_SHAPE(3, 4), CLEF_F64, x));
            cr_assert(clef_grad(clef_layer_norm(q, 1, w, w, 1e-5), tg, &q, 1, false, &dx) == CLEF_OK, "%s", clef_error(ctx));
            first[side] = numbers(dx);
        }
        x[i] += e;
        double sum = 0;
        for (int k = 0; k < 12; k++) sum += h[k] * (first[0][k] - first[1][k]) / (2 * e);
        cr_expect(close_to(have[i], sum, 1e-6 + 1e-5 * fabs(sum)), "second derivative %d is %.9g, not %.9g", i, have[i], sum);
        free(first[0]), free(first[1]);
    }
    free(x), free(g), free(h), free(have);
    clef_close(ctx);
}

/* ---- RMS norm ---- */

/* Rows of x [rows,n], with all gradients by their formulas in double, both as usual and such that they could go on. */
static void check_rms(clef_context *ctx, int64_t rows, int64_t n, clef_dtype dtype) {
    clef_dtype wide = dtype == CLEF_F64 ? CLEF_F64 : CLEF_F32;
    double *x = spread(rows * n, -2, 3, 1), *w = spread(n, 0.5, 2, 2), *g = spread(rows * n, -1, 1, 5);
    double *y = calloc((size_t)(rows * n), sizeof *y), *dx = calloc((size_t)(rows * n), sizeof *dx),
           *dw = calloc((size_t)n, sizeof *dw);
    clef_tensor *in[2] = {parameter(tensor_of(ctx, CLEF_SHAPE(rows, n), dtype, x)),
                          parameter(tensor_of(ctx, CLEF_SHAPE(n), wide, w))},
                *seed = tensor_of(ctx, CLEF_SHAPE(rows, n), dtype, g), *d[2];
    for (int64_t r = 0; r < rows; r++) {
        const double *v = x + r * n, *s = g + r * n;
        double squares = 0, far = 0;
        for (int64_t i = 0; i < n; i++) squares += v[i] * v[i] / (double)n;
        double scale = 1 / sqrt(squares + 1e-5);
        for (int64_t i = 0; i < n; i++) far += s[i] * w[i] * v[i] * scale / (double)n;
        for (int64_t i = 0; i < n; i++) {
            y[r * n + i] = v[i] * scale * w[i];
            dx[r * n + i] = (s[i] * w[i] - v[i] * scale * far) * scale;
            dw[i] += s[i] * v[i] * scale;
        }
    }
    bounds of_y = stored_bounds(dtype, 2e-6, 4e-6), of_dx = stored_bounds(dtype, 2e-5, 1e-4),
           of_dw = stored_bounds(wide, 2e-6 * (double)rows, 1e-4);
    clef_tensor *out = clef_rms_norm(in[0], 1, in[1], 1e-5);
    cr_expect(clef_tensor_dtype(out) == dtype, "x decides, not the weight");
    expect_numbers(out, y, of_y.absolute, of_y.relative, "rms_norm");
    for (int again = 0; again < 2; again++) {
        cr_assert(clef_grad(out, seed, in, 2, again, d) == CLEF_OK, "%s", clef_error(ctx));
        expect_numbers(d[0], dx, of_dx.absolute, of_dx.relative, "gradient of rms_norm");
        expect_numbers(d[1], dw, of_dw.absolute, of_dw.relative, "gradient of its weight");
    }
    clef_release(in[0]), clef_release(in[1]);
    clef_end_step(ctx);
    free(x), free(w), free(g), free(y), free(dx), free(dw);
}

Test(norm, rows_of_teams) {
    clef_context *ctx = open_for_team_rows();
    for (int i = 0; i < n_team_rows(); i++) {
        check_rows(ctx, 5, team_rows[i]);
        if (i < 5) check_rms(ctx, 3, team_rows[i], CLEF_F32);
    }
    for (int d = 0; !test_small() && d < float_dtypes_here(ctx); d++)
        check_rms(ctx, 3, 500, float_dtypes[d]), check_rms(ctx, 3, 513, float_dtypes[d]);
    clef_close(ctx);
}

Test(norm, rms_norm) {
    clef_context *ctx = open_seeded(1);
    for (int d = 0; d < float_dtypes_here(ctx); d++) check_rms(ctx, 3, 17, float_dtypes[d]);
    check_rms(ctx, 5, 1, CLEF_F32);
    if (!few_kernels()) check_rms(ctx, 37, 131, CLEF_F32); /* three parts; on a GPU a row by a work-group */
    if (!test_small()) {
        check_rms(ctx, 1100, 3, CLEF_F32); /* as many parts as there may be */
        check_rms(ctx, 2, 70001, CLEF_F32);
    }
    clef_tensor *x = clef_arange(ctx, 1, 5, 1, CLEF_I32); /* mean of squares 7.5 */
    clef_tensor *y = clef_rms_norm(clef_reshape(x, CLEF_SHAPE(2, 2)), 2, CLEF_NONE, 0);
    cr_expect(clef_tensor_dtype(y) == CLEF_F32);
    expect_numbers(y, (double[]){1 / sqrt(7.5), 2 / sqrt(7.5), 3 / sqrt(7.5), 4 / sqrt(7.5)}, 0, 1e-6, "without a weight");
    cr_expect(!clef_rms_norm(x, 2, CLEF_NONE, 1e-5));
    expect_error(ctx, CLEF_INVALID, "rms_norm: x [4] has no 2 last dimensions");
    cr_expect(!clef_rms_norm(x, 1, clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32), 1e-5));
    expect_error(ctx, CLEF_SHAPE, "rms_norm: weight [3] must be [4], the last dimensions of x [4]");
    clef_close(ctx);
}

/* ---- group norm ---- */

typedef struct grouped {
    int groups;
    const double *weight, *bias;
} grouped;

/* Of x [n,c,d]: each group of an item is a run of memory. */
static void group_reference(const double *x, double *y, const void *user) {
    const grouped *f = user;
    int length = C * D / f->groups;
    for (int begin = 0; begin < N * C * D; begin += length) {
        double mean = 0, var = 0;
        for (int i = begin; i < begin + length; i++) mean += x[i] / length;
        for (int i = begin; i < begin + length; i++) var += (x[i] - mean) * (x[i] - mean) / length;
        for (int i = begin; i < begin + length; i++) {
            int c = i / D % C;
            y[i] = (x[i] - mean) / sqrt(var + 1e-5) * (f->weight ? f->weight[c] : 1) + (f->bias ? f->bias[c] : 0);
        }
    }
}

static void check_group_norm(clef_context *ctx, int groups, clef_dtype dtype, bool affine) {
    clef_dtype wide = dtype == CLEF_F64 ? CLEF_F64 : CLEF_F32;
    double *x = spread(N * C * D, -2, 3, 1), *w = spread(C, 0.5, 2, 2), *b = spread(C, -1, 1, 3), *g = spread(N * C * D, -1, 1, 5),
           y[N * C * D];
    clef_tensor *p = parameter(tensor_of(ctx, CLEF_SHAPE(N, C, D), dtype, x)), *tw = tensor_of(ctx, CLEF_SHAPE(C), wide, w),
                *tb = tensor_of(ctx, CLEF_SHAPE(C), wide, b), *tg = tensor_of(ctx, CLEF_SHAPE(N, C, D), dtype, g), *dx;
    grouped f = {groups, affine ? w : NULL, affine ? b : NULL};
    group_reference(x, y, &f);
    bounds of_y = stored_bounds(dtype, 4e-6, 4e-6), of_dx = stored_bounds(dtype, 2e-5, 1e-4);
    clef_tensor *out = affine ? clef_group_norm(p, groups, tw, tb, 1e-5) : clef_group_norm(p, groups, CLEF_NONE, CLEF_NONE, 1e-5);
    cr_expect(clef_tensor_dtype(out) == dtype);
    expect_numbers(out, y, of_y.absolute, of_y.relative, "group_norm");
    cr_assert(clef_grad(out, tg, &p, 1, false, &dx) == CLEF_OK, "%s", clef_error(ctx));
    double *slope = slopes(group_reference, &f, x, N * C * D, N * C * D, g, 1e-6);
    expect_numbers(dx, slope, fmax(of_dx.absolute, 2e-8), of_dx.relative, "gradient of group_norm");
    if (groups == C)
        expect_numbers(clef_instance_norm(p, affine ? tw : CLEF_NONE, affine ? tb : CLEF_NONE, 1e-5), y, of_y.absolute,
                       of_y.relative, "instance_norm");
    clef_release(p);
    free(x), free(w), free(b), free(g), free(slope);
    clef_end_step(ctx);
}

Test(norm, group_norm) {
    clef_context *ctx = open_seeded(1);
    for (int d = 0; d < float_dtypes_here(ctx); d++) check_group_norm(ctx, 2, float_dtypes[d], true);
    for (int groups = 1; groups <= C; groups *= 2) check_group_norm(ctx, groups, CLEF_F32, groups != 2);
    check_group_norm(ctx, 2, CLEF_F32, false);
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(2, 4, 3), CLEF_F32), *three = clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32);
    cr_expect(!clef_group_norm(x, 3, CLEF_NONE, CLEF_NONE, 1e-5));
    expect_error(ctx, CLEF_SHAPE, "group_norm: 3 groups do not divide the 4 channels of x [2,4,3]");
    cr_expect(!clef_group_norm(x, 0, CLEF_NONE, CLEF_NONE, 1e-5));
    expect_error(ctx, CLEF_SHAPE, "group_norm: 0 groups");
    cr_expect(!clef_group_norm(x, 2, CLEF_NONE, three, 1e-5));
    expect_error(ctx, CLEF_SHAPE, "group_norm: bias [3] must be [4], the channels of x [2,4,3]");
    cr_expect(!clef_instance_norm(three, CLEF_NONE, CLEF_NONE, 1e-5));
    expect_error(ctx, CLEF_SHAPE, "instance_norm: x [3] is not [n,c,...]");
    clef_close(ctx);
}

/* Training, its running statistics (in f32 beside halves, as models keep them), and inference with these. */
static void check_batch_norm(clef_context *ctx, clef_dtype dtype) {
    clef_dtype wide = dtype == CLEF_F64 ? CLEF_F64 : CLEF_F32;
    bounds of_y = stored_bounds(dtype, 4e-6, 4e-6), of_running = stored_bounds(wide, 1e-6, 1e-6);
    double *x = spread(N * C * D, -2, 3, 1), *w = spread(C, 0.5, 2, 2), *b = spread(C, -1, 1, 3), zeros[C] = {0},
           ones[C] = {1, 1, 1, 1};
    clef_tensor *p = parameter(tensor_of(ctx, CLEF_SHAPE(N, C, D), dtype, x));
    clef_tensor *tw = clef_keep(tensor_of(ctx, CLEF_SHAPE(C), dtype, w)), *tb = clef_keep(tensor_of(ctx, CLEF_SHAPE(C), dtype, b));
    clef_tensor *mean = clef_keep(tensor_of(ctx, CLEF_SHAPE(C), wide, zeros)),
                *var = clef_keep(tensor_of(ctx, CLEF_SHAPE(C), wide, ones));
    clef_tensor *y = clef_batch_norm(p, tw, tb, mean, var, true, 0.1, 1e-5);
    check(y, p, &(form){true, w, b}, x);
    double unbiased = (double)(N * D) / (N * D - 1), want_mean[C], want_var[C], want[N * C * D];
    reference(x, want, &(form){true, w, b});
    for (int c = 0; c < C; c++) want_mean[c] = 0.1 * mean_of[c], want_var[c] = 0.9 + 0.1 * unbiased * var_of[c];
    clef_end_step(ctx);
    expect_numbers(mean, want_mean, of_running.absolute, of_running.relative, "running mean");
    expect_numbers(var, want_var, of_running.absolute, of_running.relative, "running variance");
    cr_expect(!clef_requires_grad(mean));
    for (int i = 0; i < N * C * D; i++) {
        int c = i / D % C;
        want[i] = (x[i] - want_mean[c]) / sqrt(want_var[c] + 1e-5) * w[c] + b[c];
    }
    expect_numbers(clef_batch_norm(p, tw, tb, mean, var, false, 0.1, 1e-5), want, of_y.absolute, of_y.relative, "inference");
    expect_numbers(mean, want_mean, of_running.absolute, of_running.relative, "inference changes nothing");
    free(x), free(w), free(b);
}

Test(norm, batch_norm) {
    clef_context *ctx = open_seeded(1);
    for (int d = 0; d < float_dtypes_here(ctx); d++) check_batch_norm(ctx, float_dtypes[d]);
    clef_tensor *four = clef_keep(clef_ones(ctx, CLEF_SHAPE(C), CLEF_F32));
    cr_expect(!clef_batch_norm(clef_ones(ctx, CLEF_SHAPE(1, C), CLEF_F32), four, four, four, four, true, 0.1, 1e-5));
    expect_error(ctx, CLEF_SHAPE, "more than one value per channel");
    cr_expect(!clef_batch_norm(clef_ones(ctx, CLEF_SHAPE(2, 3), CLEF_F32), four, four, four, four, true, 0.1, 1e-5));
    expect_error(ctx, CLEF_SHAPE, "batch_norm: weight [4] must be [3]");
    clef_close(ctx);
}

Test(norm, a_mean_far_from_zero_costs_no_digits) {
    clef_context *ctx = open_seeded(1);
    double *x = spread(N * C * D, 9998, 10002, 1), want[N * C * D];
    for (int i = 0; i < N * C * D; i++) x[i] = (double)(float)x[i];
    clef_tensor *t = tensor_of(ctx, CLEF_SHAPE(N, C, D), CLEF_F32, x), *w = clef_ones(ctx, CLEF_SHAPE(C), CLEF_F32),
                *b = clef_zeros(ctx, CLEF_SHAPE(C), CLEF_F32);
    reference(x, want, &(form){true, NULL, NULL});
    expect_numbers(clef_batch_norm(t, w, b, clef_keep(clef_copy(b)), clef_keep(clef_copy(w)), true, 0.1, 1e-5), want, 1e-3, 0,
                   "batch_norm");
    reference(x, want, &(form){false, NULL, NULL});
    expect_numbers(clef_layer_norm(t, 2, CLEF_NONE, CLEF_NONE, 1e-5), want, 1e-3, 0, "layer_norm");
    free(x);
    clef_close(ctx);
}

/* One element far from the others, the first of all, as a border or a first token may be. */
Test(norm, an_outlier_costs_no_digits) {
    clef_context *ctx = open_seeded(1);
    enum { LONG = 10000 };
    double *x = spread(LONG, -1.7, 1.7, 5), mean = 0, var = 0;
    x[0] = 1000;
    for (int i = 0; i < LONG; i++) mean += x[i] / LONG;
    for (int i = 0; i < LONG; i++) var += (x[i] - mean) * (x[i] - mean) / LONG;
    clef_tensor *p = tensor_of(ctx, CLEF_SHAPE(1, 1, 100, 100), CLEF_F32, x);
    double *y = numbers(clef_group_norm(p, 1, CLEF_NONE, CLEF_NONE, 1e-5));
    cr_assert(y, "%s", clef_error(ctx));
    for (int i = 0; i < LONG; i++) {
        double want = (x[i] - mean) / sqrt(var + 1e-5);
        cr_expect_float_eq(y[i], want, 1e-5 + 1e-6 * fabs(want), "%d", i);
    }
    free(x), free(y);
    clef_close(ctx);
}

Test(norm, dropout) {
    clef_context *ctx = open_seeded(7);
    int n = test_small() ? 200 : 20000;
    clef_tensor *p = parameter(clef_copy(clef_full(ctx, CLEF_SHAPE(n), CLEF_F32, 3))), *y = clef_dropout(p, 0.25), *dx;
    cr_assert(clef_grad(y, clef_ones(ctx, CLEF_SHAPE(n), CLEF_F32), &p, 1, false, &dx) == CLEF_OK, "%s", clef_error(ctx));
    cr_assert(clef_eval_all((clef_tensor *[]){y, dx}, 2) == CLEF_OK);
    double *have = numbers(y), *slope = numbers(dx), kept = 0;
    for (int i = 0; i < n; i++) {
        kept += have[i] != 0;
        cr_expect(have[i] == 0 ? slope[i] == 0 : fabs(have[i] - 4) < 1e-6 && fabs(slope[i] - 4.0 / 3) < 1e-6, "%d: %g %g", i,
                  have[i], slope[i]);
    }
    cr_expect(fabs(kept / n - 0.75) < 2 / sqrt(n), "%g are kept", kept / n);
    double *other = numbers(clef_dropout(p, 0.25)), same = 0;
    for (int i = 0; i < n; i++) same += other[i] == have[i];
    cr_expect(same < 0.9 * n, "the next mask is another");
    cr_expect(clef_dropout(p, 0) == p);
    cr_expect(clef_item(clef_sum(clef_dropout(p, 1), NULL, 0, false)) == 0);
    cr_expect(!clef_dropout(p, 1.5));
    expect_error(ctx, CLEF_INVALID, "dropout: p = 1.5");
    free(have), free(slope), free(other);
    clef_close(ctx);
}
