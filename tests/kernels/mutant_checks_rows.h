/* mutant_checks_rows.h — the checks of mutant_checks.h for layer norm, softmax and losses of classes. */
#ifndef CLEF_TESTS_MUTANT_CHECKS_ROWS_H
#define CLEF_TESTS_MUTANT_CHECKS_ROWS_H

/* ---- layer norm ---- */
/* Rows of whole numbers far from zero, weights and a bias; with the gradients of Σ g·y. */
static void check_layer_norm(int64_t rows, int64_t n, bool backward) {
    float *x = whole(rows * n, 1, 500, 509), *w = whole(n, 2, 1, 5), *b = whole(n, 3, -9, 9), *g = whole(rows * n, 4, -3, 4);
    float *y = zeros(rows * n), *dx = zeros(rows * n), *dw = zeros(n), *db = zeros(n);
    for (int64_t r = 0; r < rows; r++) {
        const float *v = x + r * n, *s = g + r * n;
        double mean = 0, var = 0, plain = 0, far = 0;
        for (int64_t i = 0; i < n; i++) mean += v[i] / (double)n;
        for (int64_t i = 0; i < n; i++) var += (v[i] - mean) * (v[i] - mean) / (double)n;
        double scale = 1 / sqrt(var + 3);
        for (int64_t i = 0; i < n; i++) {
            double a = s[i] * w[i], standard = (v[i] - mean) * scale;
            y[r * n + i] = (float)(standard * w[i] + b[i]);
            plain += a / (double)n, far += a * standard / (double)n;
            dw[i] += (float)(s[i] * standard), db[i] += s[i];
        }
        for (int64_t i = 0; i < n; i++) dx[r * n + i] = (float)((s[i] * w[i] - plain - (v[i] - mean) * scale * far) * scale);
    }
    clef_tensor *in[3] = {leaf(CLEF_SHAPE(rows, n), x), leaf(CLEF_SHAPE(n), w), leaf(CLEF_SHAPE(n), b)}, *d[3];
    clef_tensor *out = clef_layer_norm(in[0], 1, in[1], in[2], 3);
    expect_near(out, y, rows * n, 1e-4);
    if (backward) {
        differentiate(out, put(CLEF_SHAPE(rows, n), g), in, 3, d);
        expect_near(d[0], dx, rows * n, 1e-4);
        expect_near(d[1], dw, n, 1e-3);
        expect_near(d[2], db, n, 1e-4);
    }
    for (int i = 0; i < 3; i++) clef_release(in[i]);
}

static void layer_rows(void) { check_layer_norm(7, 47, false); }
static void layer_slopes(void) {
    for (int i = 0; i < 2; i++) check_layer_norm(37, 23, true); /* three parts, the last shorter; then where sums lie already */
    check_layer_norm(3, 7, true);
}

static void layer_teams(void) { check_layer_norm(9, 2131, true); }
static void layer_held(void) { check_layer_norm(37, 131, true); }

/* ---- RMS norm ---- */
static void square_rows(void) {
    enum { ROWS = 37, N = 23, COUNT = ROWS * N }; /* three parts, the last of them shorter */
    float *x = whole(COUNT, 1, 3, 9), *w = whole(N, 2, 1, 5), *g = whole(COUNT, 3, -3, 6);
    float *y = zeros(COUNT), *dx = zeros(COUNT), *dw = zeros(N);
    for (int r = 0; r < ROWS; r++) {
        double squares = 0, far = 0;
        for (int i = r * N; i < (r + 1) * N; i++) squares += x[i] * x[i] / (double)N;
        double scale = 1 / sqrt(squares + 3);
        for (int i = r * N; i < (r + 1) * N; i++) far += g[i] * w[i % N] * x[i] * scale / N;
        for (int i = r * N; i < (r + 1) * N; i++) {
            y[i] = (float)(x[i] * scale * w[i % N]);
            dx[i] = (float)(scale * (g[i] * w[i % N] - x[i] * scale * far));
            dw[i % N] += (float)(g[i] * x[i] * scale);
        }
    }
    clef_tensor *in[2] = {leaf(CLEF_SHAPE(ROWS, N), x), leaf(CLEF_SHAPE(N), w)}, *d[2], *out = clef_rms_norm(in[0], 1, in[1], 3);
    expect_near(out, y, COUNT, 1e-4);
    differentiate(out, put(CLEF_SHAPE(ROWS, N), g), in, 2, d);
    expect_near(d[0], dx, COUNT, 1e-4);
    expect_near(d[1], dw, N, 1e-3);
    clef_release(in[0]), clef_release(in[1]);
}

/* ---- softmax ---- */
/* Lines far above and far below zero, with one element far above the others: a wrong maximum overflows.  One begins with
   nothing but -inf. */
static void check_softmax(int64_t outer, int64_t n, int64_t inner, bool backward) {
    float *x = whole(outer * n * inner, 1, -2, 2), *y = zeros(outer * n * inner), *l = zeros(outer * n * inner);
    float *g = whole(outer * n * inner, 2, -3, 4), *dy = zeros(outer * n * inner), *dl = zeros(outer * n * inner);
    for (int64_t i = 0; i < outer * inner; i++) {
        int64_t at = i / inner * n * inner + i % inner;
        for (int64_t k = 0; k < n; k++) x[at + k * inner] += (i % 2 ? 200 : -200) + (i % 4 >= 2 && k == 7 * i % n ? 150 : 0);
        for (int64_t k = 0; i == 1 && !backward && k < n - 2; k++) x[at + k * inner] = -INFINITY;
        double top = x[at], sum = 0, plain = 0, with = 0;
        for (int64_t k = 0; k < n; k++) top = fmax(top, x[at + k * inner]);
        for (int64_t k = 0; k < n; k++) sum += exp(x[at + k * inner] - top);
        for (int64_t k = 0; k < n; k++) {
            l[at + k * inner] = (float)(x[at + k * inner] - top - log(sum));
            y[at + k * inner] = (float)exp(x[at + k * inner] - top - log(sum));
            plain += g[at + k * inner], with += (double)g[at + k * inner] * y[at + k * inner];
        }
        for (int64_t k = 0; k < n; k++) {
            dl[at + k * inner] = (float)(g[at + k * inner] - y[at + k * inner] * plain);
            dy[at + k * inner] = (float)(y[at + k * inner] * (g[at + k * inner] - with));
        }
    }
    clef_shape shape = CLEF_SHAPE(outer, n, inner);
    clef_tensor *t = leaf(shape, x), *soft = clef_softmax(t, 1), *logs = clef_log_softmax(t, 1), *d;
    if (backward) {
        differentiate(soft, put(shape, g), &t, 1, &d);
        expect_near(d, dy, outer * n * inner, 1e-4);
        differentiate(logs, put(shape, g), &t, 1, &d);
        expect_near(d, dl, outer * n * inner, 1e-3);
    } else {
        expect_near(soft, y, outer * n * inner, 1e-5);
        wrong += !logs;
        for (int64_t i = 0; i < outer * n * inner; i++) l[i] = isinf(l[i]) ? 1 : l[i]; /* infinities have no distance */
        expect_near(clef_where(clef_isinf(logs), clef_ones(ctx, CLEF_SCALAR, CLEF_F32), logs), l, outer * n * inner, 1e-3);
    }
    clef_release(t);
}

static void softmax_rows(void) {
    check_softmax(23, 11, 1, false);
    check_softmax(5, 43, 1, false);
}
static void softmax_columns(void) {
    check_softmax(3, 5, 11, false);
    check_softmax(2, 37, 7, false); /* four times eight lines, and five */
}
static void softmax_splits(void) { check_softmax(2, 701, 67, false); }
/* Too short for teams; two stretches. */
static void softmax_vectors(void) {
    check_softmax(2, 13, 7, false);
    check_softmax(3, 13, 7, true);
}
static void softmax_team_columns(void) {
    check_softmax(2, 83, 35, false);
    check_softmax(2, 83, 35, true);
}
static void softmax_team_splits(void) { check_softmax(2, 3101, 5, false); }
static void softmax_teams(void) {
    check_softmax(3, 2331, 1, false);
    check_softmax(3, 2331, 1, true);
    check_softmax(2, 8503, 1, false);
}
static void softmax_held(void) {
    check_softmax(3, 331, 1, false);
    check_softmax(3, 331, 1, true);
}
static void softmax_slopes(void) {
    check_softmax(5, 11, 1, true);
    check_softmax(3, 37, 7, true);
}

/* ---- losses of classes ---- */
/* A target that is to be ignored (if `ignores`), and one that is no class. */
static void check_classes(int n, double smoothing, bool ignores, bool mean) {
    enum { ROWS = 9 };
    float *x = whole(ROWS * n, 1, -3, 3), *each = zeros(ROWS), *dx = zeros(ROWS * n), *weight = whole(ROWS, 2, 1, 5);
    int32_t target[ROWS];
    for (int r = 0; r < ROWS; r++) {
        double sum = 0, loss = 0;
        target[r] = r == 4 && !mean ? n : r % 2 ? n - 1 : r % n;
        bool counts = target[r] < n && !(ignores && target[r] == 0);
        for (int c = 0; c < n; c++) sum += exp(x[r * n + c]);
        for (int c = 0; c < n; c++) {
            double wanted = smoothing / n + (c == target[r] ? 1 - smoothing : 0);
            loss -= wanted * (x[r * n + c] - log(sum));
            dx[r * n + c] = counts ? (float)((mean ? 1.0 / ROWS : weight[r]) * (exp(x[r * n + c]) / sum - wanted)) : 0;
        }
        each[r] = counts ? (float)loss : target[r] < n ? 0 : NAN;
    }
    clef_loss_options o = {.reduction = mean ? CLEF_REDUCE_MEAN : CLEF_REDUCE_NONE,
                           .label_smoothing = smoothing,
                           .has_ignore_index = ignores,
                           .ignore_index = 0};
    clef_tensor *t = leaf(CLEF_SHAPE(ROWS, n), x), *d;
    clef_tensor *y = clef_cross_entropy(t, clef_from_host(ctx, CLEF_SHAPE(ROWS), CLEF_I32, target), &o);
    if (!mean) {
        clef_tensor *bad = clef_isnan(y), *none = clef_full(ctx, CLEF_SCALAR, CLEF_F32, -1);
        for (int r = 0; r < ROWS; r++) each[r] = isnan(each[r]) ? -1 : each[r];
        expect_near(clef_where(bad, none, y), each, ROWS, 1e-4);
    }
    float one = 1;
    clef_tensor *all =
        smoothing > 0 ? clef_ones(ctx, CLEF_SCALAR, CLEF_F32) : put(CLEF_SCALAR, &one); /* an argument, or in memory */
    differentiate(y, mean ? all : put(CLEF_SHAPE(ROWS), weight), &t, 1, &d);
    expect_near(d, dx, (int64_t)ROWS * n, 1e-4);
    clef_release(t);
}

static void class_losses(void) {
    check_classes(11, 0, false, false);
    check_classes(11, 0.25, true, false);
    check_classes(7, 0.1, false, true);
    check_classes(7, 0, false, true);
}
static void class_teams(void) {
    check_classes(2131, 0.25, true, false);
    check_classes(2331, 0, false, true);
}
static void class_held(void) {
    check_classes(131, 0.25, true, false);
    check_classes(331, 0, false, true);
}
#endif
