/* Initialisers: distributions, fans, reproducibility, refusals. */
#include "support/device.h"

static clef_context *ctx;

static void open_context(void) { ctx = open_seeded(11); }
static void close_context(void) { clef_close(ctx); }
TestSuite(init, .init = open_context, .fini = close_context);

typedef struct moments {
    double mean, deviation, low, high;
} moments;

static moments measure(clef_tensor *t) {
    float *v = values(t);
    int64_t n = clef_numel(t);
    moments m = {.low = INFINITY, .high = -INFINITY};
    for (int64_t i = 0; i < n; i++) {
        m.mean += v[i] / (double)n;
        m.low = fmin(m.low, v[i]);
        m.high = fmax(m.high, v[i]);
    }
    for (int64_t i = 0; i < n; i++) m.deviation += (v[i] - m.mean) * (v[i] - m.mean) / (double)n;
    m.deviation = sqrt(m.deviation);
    free(v);
    return m;
}

/* Mean within five standard errors, deviation within 2 %. */
static void expect_moments(clef_tensor *t, double mean, double deviation, const char *what) {
    moments m = measure(t);
    double error = 5 * deviation / sqrt((double)clef_numel(t));
    cr_expect(fabs(m.mean - mean) < error, "%s: mean %g", what, m.mean);
    cr_expect(fabs(m.deviation / deviation - 1) < 0.02, "%s: deviation %g, not %g", what, m.deviation, deviation);
}

static void expect_uniform(clef_tensor *t, double low, double high, const char *what) {
    moments m = measure(t);
    expect_moments(t, (low + high) / 2, (high - low) / sqrt(12), what);
    double edge = (high - low) * 0.01;
    cr_expect(m.low >= low - 1e-7 && m.low < low + edge, "%s: from %g", what, m.low);
    cr_expect(m.high <= high + 1e-7 && m.high > high - edge, "%s: to %g", what, m.high);
}

Test(init, distributions) {
    clef_tensor *t = clef_keep(clef_zeros(ctx, CLEF_SHAPE(64, 32, 3, 3), CLEF_F32)); /* fan in 288, fan out 576 */
    cr_assert_eq(clef_init_constant(t, 0.25), CLEF_OK);
    moments m = measure(t);
    cr_expect(m.low == 0.25 && m.high == 0.25);
    cr_assert_eq(clef_init_uniform(t, -1, 3), CLEF_OK);
    expect_uniform(t, -1, 3, "uniform");
    cr_assert_eq(clef_init_normal(t, 2, 0.5), CLEF_OK);
    expect_moments(t, 2, 0.5, "normal");
    cr_assert_eq(clef_init_xavier_uniform(t, 2), CLEF_OK);
    expect_uniform(t, -2 * sqrt(6.0 / 864), 2 * sqrt(6.0 / 864), "xavier uniform");
    cr_assert_eq(clef_init_xavier_normal(t, 1), CLEF_OK);
    expect_moments(t, 0, sqrt(2.0 / 864), "xavier normal");
    cr_assert_eq(clef_init_kaiming_uniform(t, 0), CLEF_OK);
    expect_uniform(t, -sqrt(6.0 / 288), sqrt(6.0 / 288), "kaiming uniform");
    cr_assert_eq(clef_init_kaiming_normal(t, 0.2), CLEF_OK);
    expect_moments(t, 0, sqrt(2 / 1.04 / 288), "kaiming normal");
}

static double dot(const float *v, int a, int b, int n, int step_vector, int step_element) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)v[a * step_vector + i * step_element] * v[b * step_vector + i * step_element];
    return sum;
}

static void expect_orthogonal(int rows, int cols, double gain) {
    clef_tensor *t = clef_keep(clef_zeros(ctx, CLEF_SHAPE(rows, cols), CLEF_F32));
    cr_assert_eq(clef_init_orthogonal(t, gain), CLEF_OK, "%s", clef_error(ctx));
    float *v = values(t);
    bool wide = rows <= cols;
    int count = wide ? rows : cols, n = wide ? cols : rows;
    for (int a = 0; a < count; a++)
        for (int b = 0; b < count; b++)
            cr_expect_float_eq(dot(v, a, b, n, wide ? cols : 1, wide ? 1 : cols), a == b ? gain * gain : 0, 1e-5, "%d×%d: %d·%d",
                               rows, cols, a, b);
    free(v);
}

Test(init, orthogonal) {
    expect_orthogonal(5, 17, 1);
    expect_orthogonal(17, 5, 2);
    expect_orthogonal(9, 9, 1);
    clef_tensor *line = clef_zeros(ctx, CLEF_SHAPE(4), CLEF_F32);
    cr_expect_eq(clef_init_orthogonal(line, 1), CLEF_SHAPE);
    expect_error(ctx, CLEF_SHAPE, "init_orthogonal");
}

Test(init, defaults_of_layers) {
    clef_module *linear = clef_nn_linear(ctx, 100, 400, NULL), *conv = clef_nn_conv2d(ctx, 16, 256, 3, NULL);
    clef_module *embedding = clef_nn_embedding(ctx, 200, 50);
    expect_uniform(clef_parameter(linear, "weight"), -0.1, 0.1, "linear weight");
    moments bias = measure(clef_parameter(linear, "bias"));
    cr_expect(bias.low >= -0.1 && bias.low < -0.09 && bias.high <= 0.1 && bias.high > 0.09);
    expect_uniform(clef_parameter(conv, "weight"), -1.0 / 12, 1.0 / 12, "conv weight");
    expect_moments(clef_parameter(embedding, "weight"), 0, 1, "embedding weight");
}

Test(init, the_same_seed_gives_the_same_weights) {
    float *first = NULL;
    for (int round = 0; round < 3; round++) {
        clef_seed(ctx, round == 2 ? 78 : 77);
        clef_module *m = clef_model_lenet(ctx, CLEF_SHAPE(1, 28, 28), 10);
        float *v = values(clef_parameter(m, "7.weight"));
        if (!first) first = v;
        bool same = !memcmp(first, v, 30720 * sizeof *v);
        cr_expect_eq(same, round < 2, "round %d", round);
        if (v != first) free(v);
    }
    free(first);
}

Test(init, half_precision) {
    clef_tensor *t = clef_keep(clef_zeros(ctx, CLEF_SHAPE(50, 40), CLEF_F16));
    cr_assert_eq(clef_init_uniform(t, -1, 1), CLEF_OK, "%s", clef_error(ctx));
    cr_expect_eq(clef_tensor_dtype(t), CLEF_F16);
    expect_uniform(clef_to(t, CLEF_F32), -1, 1, "f16");
}

Test(init, refusals) {
    clef_tensor *t = clef_zeros(ctx, CLEF_SHAPE(4), CLEF_F32);
    cr_expect_eq(clef_init_kaiming_normal(t, 0), CLEF_SHAPE);
    expect_error(ctx, CLEF_SHAPE, "init_kaiming_normal: fan in and fan out need 2 or more dimensions, not 1");
    cr_expect_eq(clef_init_uniform(t, 1, 0), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "init_uniform");
    cr_expect_eq(clef_init_normal(t, 0, -1), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "init_normal");
    cr_expect_eq(clef_init_normal(NULL, 0, 1), CLEF_INVALID);
}
