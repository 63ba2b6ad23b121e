/* init.c — initialisers.  The numbers come from the context's Philox generator, so a seed gives the same weights on every
   device.  All but the orthogonal one are lazy: weights that a file replaces are never drawn. */
#include "graph/graph.h"
#include "nn/module.h"
#include "ops/ops.h"
#include <math.h>

static clef_status assign_detached(clef_tensor *t, clef_tensor *value) {
    clef_context *ctx = clef_tensor_context(t);
    clef_status status = CLEF_OK;
    for (CLEF_NO_GRAD(ctx)) status = clef_assign(t, value);
    return status;
}

/* t := raw·scale + shift. */
static clef_status assign_affine(clef_tensor *t, clef_tensor *raw, double scale, double shift) {
    clef_tensor *value = clef_mul_scalar(raw, scale);
    return assign_detached(t, shift != 0 ? clef_add_scalar(value, shift) : value);
}

/* Elements that feed one output, and outputs that one input feeds: [out, in, receptive field…]. */
static clef_status fans(const char *what, clef_tensor *t, double *in, double *out) {
    clef_shape s = clef_tensor_shape(t);
    if (s.rank < 2)
        return clef__fail(clef_tensor_context(t), CLEF_SHAPE, "%s: fan in and fan out need 2 or more dimensions, not %d", what,
                          s.rank);
    double field = 1;
    for (int i = 2; i < s.rank; i++) field *= (double)s.dim[i];
    *in = (double)s.dim[1] * field;
    *out = (double)s.dim[0] * field;
    return CLEF_OK;
}

clef_status clef_init_constant(clef_tensor *t, double value) {
    if (!CLEF__GIVEN("init_constant", "t", t)) return CLEF_INVALID;
    return assign_detached(t, clef_full_like(t, value));
}

clef_status clef_init_uniform(clef_tensor *t, double low, double high) {
    if (!CLEF__GIVEN("init_uniform", "t", t)) return CLEF_INVALID;
    if (!(low <= high)) return clef__fail(clef_tensor_context(t), CLEF_INVALID, "init_uniform: low %g is above high %g", low, high);
    return assign_affine(t, clef__rand_like(t), high - low, low);
}

clef_status clef_init_normal(clef_tensor *t, double mean, double std) {
    if (!CLEF__GIVEN("init_normal", "t", t)) return CLEF_INVALID;
    if (!(std >= 0)) return clef__fail(clef_tensor_context(t), CLEF_INVALID, "init_normal: the deviation %g is negative", std);
    return assign_affine(t, clef__randn_like(t), std, mean);
}

clef_status clef_init_xavier_uniform(clef_tensor *t, double gain) {
    double in = 0, out = 0;
    if (!CLEF__GIVEN("init_xavier_uniform", "t", t)) return CLEF_INVALID;
    clef_status status = fans("init_xavier_uniform", t, &in, &out);
    double bound = status ? 0 : gain * sqrt(6 / (in + out));
    return status ? status : clef_init_uniform(t, -bound, bound);
}

clef_status clef_init_xavier_normal(clef_tensor *t, double gain) {
    double in = 0, out = 0;
    if (!CLEF__GIVEN("init_xavier_normal", "t", t)) return CLEF_INVALID;
    clef_status status = fans("init_xavier_normal", t, &in, &out);
    return status ? status : clef_init_normal(t, 0, gain * sqrt(2 / (in + out)));
}

/* gain / √fan_in with the gain of a leaky relu of slope a. */
static double kaiming_std(double a, double fan_in) { return sqrt(2 / (1 + a * a)) / sqrt(fan_in); }

clef_status clef_init_kaiming_uniform(clef_tensor *t, double a) {
    double in = 0, out = 0;
    if (!CLEF__GIVEN("init_kaiming_uniform", "t", t)) return CLEF_INVALID;
    clef_status status = fans("init_kaiming_uniform", t, &in, &out);
    double bound = status ? 0 : sqrt(3) * kaiming_std(a, in);
    return status ? status : clef_init_uniform(t, -bound, bound);
}

clef_status clef_init_kaiming_normal(clef_tensor *t, double a) {
    double in = 0, out = 0;
    if (!CLEF__GIVEN("init_kaiming_normal", "t", t)) return CLEF_INVALID;
    clef_status status = fans("init_kaiming_normal", t, &in, &out);
    return status ? status : clef_init_normal(t, 0, kaiming_std(a, in));
}

clef_status clef__init_bias(clef_tensor *bias, int64_t fan_in) {
    if (bias == CLEF_NONE) return CLEF_OK;
    double bound = fan_in > 0 ? 1 / sqrt((double)fan_in) : 0;
    return clef_init_uniform(bias, -bound, bound);
}

/* ---- orthogonal ---- */
static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Makes `count` ≤ n vectors of n numbers orthonormal, in order (Gram-Schmidt, each projection done twice: that is enough
   for full precision).  Keeping each vector's direction makes the factor's diagonal positive, which is what draws Q evenly
   from all orthogonal matrices. */
static void orthonormalize(double *v, int64_t count, int64_t n) {
    for (int64_t i = 0; i < count; i++) {
        double *row = v + i * n;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t j = 0; j < i; j++) {
                double along = dot(row, v + j * n, n);
                for (int64_t k = 0; k < n; k++) row[k] -= along * v[j * n + k];
            }
        double scale = 1 / sqrt(dot(row, row, n));
        for (int64_t k = 0; k < n; k++) row[k] *= scale;
    }
}

/* out [rows, cols] from `count` = min(rows, cols) orthonormal vectors v. */
static void place(float *out, const double *v, int64_t rows, int64_t cols, double gain) {
    bool wide = rows <= cols;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) out[r * cols + c] = (float)(gain * (wide ? v[r * cols + c] : v[c * rows + r]));
}

static clef_status fill_orthogonal(clef_tensor *t, double gain, int64_t rows, int64_t cols, float *out, double *v) {
    clef_context *ctx = clef_tensor_context(t);
    int64_t numel = rows * cols;
    clef_status status = clef_read(clef_randn(ctx, CLEF_SHAPE(numel)), out, (size_t)numel * sizeof *out);
    if (status) return status;
    for (int64_t i = 0; i < numel; i++) v[i] = out[i];
    orthonormalize(v, rows < cols ? rows : cols, rows < cols ? cols : rows);
    place(out, v, rows, cols, gain);
    return assign_detached(t, clef_from_host_on(ctx, clef_tensor_device(t), clef_tensor_shape(t), CLEF_F32, out));
}

clef_status clef_init_orthogonal(clef_tensor *t, double gain) {
    if (!CLEF__GIVEN("init_orthogonal", "t", t)) return CLEF_INVALID;
    clef_context *ctx = clef_tensor_context(t);
    clef_shape s = clef_tensor_shape(t);
    if (s.rank < 2) return clef__fail(ctx, CLEF_SHAPE, "init_orthogonal: it needs 2 or more dimensions, not %d", s.rank);
    int64_t numel = clef_numel(t);
    if (numel == 0) return CLEF_OK;
    float *out = clef__calloc((size_t)numel, sizeof *out);
    double *v = clef__calloc((size_t)numel, sizeof *v);
    clef_status status = out && v ? fill_orthogonal(t, gain, s.dim[0], numel / s.dim[0], out, v)
                                  : clef__fail(ctx, CLEF_MEMORY, "init_orthogonal: no memory for %lld numbers", (long long)numel);
    clef__free(out);
    clef__free(v);
    return status;
}
