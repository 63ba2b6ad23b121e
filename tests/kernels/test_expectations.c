/* test_expectations.c — the rows of the op tables against tables that an independent reference computed (tests/expectations/):
   values and derivatives at zeros, corners, tiny, large and infinite numbers and NaN, in every dtype that can hold them; arithmetic
   of whole numbers at their limits; what floats become in whole numbers.
   ctest: cost=60 */
#include "support/numbers.h"
#include <float.h>

#define ANYTHING 0x1.adp-1001 /* no number that is expected anywhere */
#define POINTS(x, ...) static const double points[] = {__VA_ARGS__};
#define VALUES(name, ...) static const double value_##name[] = {__VA_ARGS__};
#define SLOPES(name, ...) static const double slope_##name[] = {__VA_ARGS__};
#define CURVATURES(name, ...) static const double curvature_##name[] = {__VA_ARGS__};
#include "expectations/unary.def"
enum { N_POINTS = sizeof points / sizeof *points };

/* Those of a row, found by its name: a row that is younger than the tables has none yet, and only its oracle (oracle.def). */
#undef POINTS
#undef VALUES
#undef SLOPES
#undef CURVATURES
#define POINTS(x, ...)
#define VALUES(name, ...) {#name, {value_##name, slope_##name, curvature_##name}},
#define SLOPES(name, ...)
#define CURVATURES(name, ...)
static const struct {
    const char *name;
    const double *order[3];
} tables[] = {
#include "expectations/unary.def"
};

static const double *table_of(const char *name, int order) {
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (strcmp(tables[i].name, name) == 0) return tables[i].order[order];
    return NULL;
}

/* The parameters that the tables were made with. */
#define PARAMETERS_leaky_relu 0.125, 0
#define PARAMETERS_elu 0.75, 0
#define PARAMETERS_celu 1.5, 0
#define PARAMETERS_hardshrink 0.5, 0
#define PARAMETERS_softshrink 0.5, 0
#define PARAMETERS_clamp -1, 2
#define PARAMETERS_threshold 1, 3

typedef struct row {
    const char *name;
    double p, q;
    clef_tensor *(*f)(clef_tensor *);
    clef_tensor *(*fp)(clef_tensor *, double);
    clef_tensor *(*fpq)(clef_tensor *, double, double);
} row;
#define UNARY(n, ...) {#n, 0, 0, clef_##n, NULL, NULL},
#define UNARY_P(n, ...) {#n, PARAMETERS_##n, NULL, clef_##n, NULL},
#define UNARY_PP(n, ...) {#n, PARAMETERS_##n, NULL, NULL, clef_##n},
static const row rows[] = {
#include "unary.def"
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static clef_tensor *apply(const row *r, clef_tensor *x) { return r->f ? r->f(x) : r->fp ? r->fp(x, r->p) : r->fpq(x, r->p, r->q); }

static bool is_half(clef_dtype dtype) { return dtype == CLEF_F16 || dtype == CLEF_BF16; }

/* v as this dtype holds it. */
static double held(clef_dtype dtype, double v) {
    uint64_t data;
    store_number(dtype, &data, 0, v);
    return load_number(dtype, &data, 0);
}

static double least_normal(clef_dtype dtype) { return dtype == CLEF_F64 ? DBL_MIN : dtype == CLEF_F16 ? 0x1p-14 : FLT_MIN; }

/* Within some roundings of the computing type, one into storage, what may be flushed, and `absolute` such roundings of 1. */
static bool expected(clef_dtype dtype, double have, double want, double relative, double absolute) {
    double u = dtype == CLEF_F64 ? 0x1p-53 : 0x1p-24, to = held(dtype, want);
    double slack = relative * u + (rounding_of(dtype) > u ? rounding_of(dtype) : 0);
    if (want == ANYTHING || close_to(have, to, fabs(to) * slack + absolute * u + least_normal(dtype))) return true;
    /* the last number before infinity, or the first one beyond */
    return fabs(want) < INFINITY && close_to(have, held(dtype, want * (1 - 2 * slack)), fabs(want) * slack);
}

static const char *const order_name[] = {"", "'", "''"};

static void check(const row *r, int order, clef_dtype dtype, const int *at, const double *x, int n, clef_tensor *y) {
    /* derivatives of tanh and its like come from their rounded result, so what is lost there is lost beside 1 */
    const double *want = table_of(r->name, order), *slope = order < 2 ? table_of(r->name, order + 1) : NULL;
    double relative[] = {100, 200, 2000}, absolute[] = {0, 4, 16}, *have = numbers(y), half = dtype == CLEF_F16 ? 0x1p13 : 0x1p16;
    double coarse = order && is_half(dtype) ? half : 1;
    for (int i = 0; want && i < n; i++) {
        /* of double the driver's functions are called, with x / √2, say: what rounds there counts as often as they magnify it */
        double turn = slope && dtype == CLEF_F64 ? fabs(x[i] * slope[at[i]] / want[at[i]]) : 0, more = isfinite(turn) ? turn : 0;
        cr_expect(expected(dtype, have[i], want[at[i]], relative[order] * coarse + more, absolute[order] * coarse),
                  "%s%s(%.9g) in %s is %.17g, not %.17g", r->name, order_name[order], x[i], clef_dtype_name(dtype), have[i],
                  want[at[i]]);
    }
    free(have);
}

/* Wide vectors of double take a compiler long. */
static clef_context *open_for(clef_dtype dtype) {
    return open_or_skip(&(clef_options){.seed = 1, .profile = dtype == CLEF_F64 ? "minimal" : NULL});
}

/* Several rows to an evaluation, all points of a row in one tensor.  16-bit dtypes are computed in f32, so some rows tell of all.
 */
static void check_rows(clef_dtype dtype, int orders) {
    enum { TOGETHER = 8 };
    clef_context *ctx = open_for(dtype);
    if (dtype == CLEF_F64 && !has_f64(ctx)) cr_skip_test("this device has no f64");
    double x[N_POINTS];
    int at[N_POINTS], n = 0, step = few_kernels() ? 12 : test_small() || is_half(dtype) ? 4 : 1;
    for (int i = 0; i < N_POINTS; i++)
        if (held(dtype, points[i]) == points[i] || isnan(points[i])) at[n] = i, x[n++] = points[i];
    clef_tensor *tx = parameter(tensor_of(ctx, CLEF_SHAPE(n), dtype, x)), *ones = clef_keep(clef_ones(ctx, CLEF_SHAPE(n), dtype));
    for (int i = dtype == CLEF_BF16 ? step / 2 : 0; i < N_ROWS; i += TOGETHER * step) {
        clef_tensor *y[TOGETHER][3] = {{NULL}}, *all[3 * TOGETHER];
        int count = 0;
        for (int k = 0; k < TOGETHER && i + k * step < N_ROWS; k++) {
            const row *r = &rows[i + k * step];
            all[count++] = y[k][0] = apply(r, tx);
            cr_assert(y[k][0], "%s: %s", r->name, clef_error(ctx));
            for (int o = 1; o < orders && clef_requires_grad(y[k][o - 1]); o++) {
                cr_assert(clef_grad(y[k][o - 1], ones, &tx, 1, o + 1 < orders, &y[k][o]) == CLEF_OK, "%s: %s", r->name,
                          clef_error(ctx));
                all[count++] = y[k][o];
            }
        }
        cr_assert(clef_eval_all(all, count) == CLEF_OK, "%s …: %s", rows[i].name, clef_error(ctx));
        for (int k = 0; k < TOGETHER && i + k * step < N_ROWS; k++)
            for (int o = 0; o < orders && y[k][o]; o++) check(&rows[i + k * step], o, dtype, at, x, n, y[k][o]);
        clef_end_step(ctx);
    }
    clef_close(ctx);
}
Test(expectations, unary_f32) { check_rows(CLEF_F32, 3); }
Test(expectations, unary_f16) { check_rows(CLEF_F16, 2); }
Test(expectations, unary_bf16) { check_rows(CLEF_BF16, 2); }
Test(expectations, unary_f64) { check_rows(CLEF_F64, 3); }

/* One lane that needs another way of computing must not change its neighbours, wherever it stands in a vector. */
Test(expectations, lanes_do_not_meet) {
    static const double odd[] = {3e7, -0x1p100, INFINITY, NAN};
    enum { LANES = 16, N = 5 * LANES * LANES };
    clef_context *ctx = open_seeded(1);
    double x[N], want[3][N];
    for (int i = 0; i < N; i++) {
        int v = i / LANES;
        x[i] = v < 4 * LANES && i % LANES == v % LANES ? odd[v / LANES] : ldexp(1 + i % 7, -8 - i % 5) * (i % 2 ? -1 : 1);
    }
    clef_tensor *t = tensor_of(ctx, CLEF_SHAPE(N), CLEF_F32, x), *y[3] = {clef_sin(t), clef_cos(t), clef_tan(t)};
    for (int i = 0; i < N; i++) want[0][i] = sin(x[i]), want[1][i] = cos(x[i]), want[2][i] = tan(x[i]);
    cr_assert(clef_eval_all(y, 3) == CLEF_OK, "%s", clef_error(ctx));
    for (int k = 0; k < 3; k++) expect_numbers(y[k], want[k], 0, 8 * 0x1p-24, k == 0 ? "sin" : k == 1 ? "cos" : "tan");
    clef_close(ctx);
}

/* ---- two operands ---- */
#define PAIRS_A(a, ...) static const double pairs_a[] = {__VA_ARGS__};
#define PAIRS_B(b, ...) static const double pairs_b[] = {__VA_ARGS__};
#define VALUES2(name, ...) static const double value2_##name[] = {__VA_ARGS__};
#define SLOPES_A(name, ...) static const double slope_a_##name[] = {__VA_ARGS__};
#define SLOPES_B(name, ...) static const double slope_b_##name[] = {__VA_ARGS__};
#include "expectations/binary.def"
enum { N_PAIRS = sizeof pairs_a / sizeof *pairs_a };

typedef struct pair_row {
    const char *name;
    clef_tensor *(*f)(clef_tensor *, clef_tensor *);
    const double *want[3];
} pair_row;
#define PAIR(n)                                                \
    {                                                          \
#n, clef_##n, { value2_##n, slope_a_##n, slope_b_##n } \
    }
static const pair_row pair_rows[] = {PAIR(div), PAIR(floor_divide), PAIR(trunc_divide), PAIR(remainder), PAIR(fmod),
                                     PAIR(pow), PAIR(maximum),      PAIR(minimum),      PAIR(atan2)};
enum { N_PAIR_ROWS = sizeof pair_rows / sizeof *pair_rows };

static void check_pairs(clef_dtype dtype) {
    clef_context *ctx = open_for(dtype);
    if (dtype == CLEF_F64 && !has_f64(ctx)) cr_skip_test("this device has no f64");
    double a[N_PAIRS], b[N_PAIRS];
    memcpy(a, pairs_a, sizeof a), memcpy(b, pairs_b, sizeof b);
    clef_tensor *x[2] = {parameter(tensor_of(ctx, CLEF_SHAPE(N_PAIRS), dtype, a)),
                         parameter(tensor_of(ctx, CLEF_SHAPE(N_PAIRS), dtype, b))};
    clef_tensor *ones = clef_keep(clef_ones(ctx, CLEF_SHAPE(N_PAIRS), dtype));
    for (int i = 0; i < N_PAIR_ROWS; i += few_kernels() ? 4 : 1) {
        const pair_row *r = &pair_rows[i];
        clef_tensor *out[3] = {r->f(x[0], x[1])};
        cr_assert(clef_grad(out[0], ones, x, 2, false, out + 1) == CLEF_OK, "%s: %s", r->name, clef_error(ctx));
        cr_assert(clef_eval_all(out, 3) == CLEF_OK, "%s: %s", r->name, clef_error(ctx));
        for (int o = 0; o < 3; o++) {
            double *have = numbers(out[o]);
            for (int k = 0; k < N_PAIRS; k++)
                cr_expect(expected(dtype, have[k], r->want[o][k], 200, 0), "%s%s(%.9g, %.9g) in %s is %.9g, not %.9g",
                          o == 0   ? ""
                          : o == 1 ? "d/da "
                                   : "d/db ",
                          r->name, a[k], b[k], clef_dtype_name(dtype), have[k], r->want[o][k]);
            free(have);
        }
        clef_end_step(ctx);
    }
    clef_close(ctx);
}
Test(expectations, binary_f32) { check_pairs(CLEF_F32); }
Test(expectations, binary_f64) { check_pairs(CLEF_F64); }

/* ---- whole numbers ---- */
#define WHOLE_A(dtype, ...) static const int64_t whole_a_##dtype[] = {__VA_ARGS__};
#define WHOLE_B(dtype, ...) static const int64_t whole_b_##dtype[] = {__VA_ARGS__};
#define WHOLE(name, dtype, ...) static const int64_t whole_##name##_##dtype[] = {__VA_ARGS__};
#define CAST_FROM(x, ...) static const double cast_from[] = {__VA_ARGS__};
#define CAST_TO(dtype, ...) static const int64_t cast_to_##dtype[] = {__VA_ARGS__};
#include "expectations/whole.def"
enum { N_CASTS = sizeof cast_from / sizeof *cast_from };

static void pack(clef_dtype dtype, void *data, int64_t i, int64_t v) {
    if (dtype == CLEF_I64) ((int64_t *)data)[i] = v;
    else store_number(dtype, data, i, (double)v);
}

/* Unlike load_number without a rounding of large i64. */
static int64_t unpack(clef_dtype dtype, const void *data, int64_t i) {
    return dtype == CLEF_I64 ? ((const int64_t *)data)[i] : (int64_t)load_number(dtype, data, i);
}

static clef_tensor *whole_tensor(clef_context *ctx, clef_dtype dtype, const int64_t *v, int n) {
    int64_t data[256];
    cr_assert(n <= 256);
    for (int i = 0; i < n; i++) pack(dtype, data, i, v[i]);
    return clef_from_host(ctx, CLEF_SHAPE(n), dtype, data);
}

static void expect_whole(clef_tensor *y, const int64_t *want, int n, const char *what) {
    clef_dtype dtype = clef_tensor_dtype(y);
    int64_t data[256];
    cr_assert(clef_read(y, data, (size_t)n * clef_dtype_size(dtype)) == CLEF_OK, "%s", clef_error(clef_tensor_context(y)));
    for (int i = 0; i < n; i++)
        cr_expect(unpack(dtype, data, i) == want[i], "%s in %s: element %d is %lld, not %lld", what, clef_dtype_name(dtype), i,
                  (long long)unpack(dtype, data, i), (long long)want[i]);
}

typedef struct whole_row {
    clef_dtype dtype;
    int n;
    const int64_t *a, *b, *want[5];
} whole_row;
#define WHOLE_ROW(code, d)                                                                                     \
    {                                                                                                          \
        code, sizeof whole_a_##d / sizeof *whole_a_##d, whole_a_##d, whole_b_##d, {                            \
            whole_floor_divide_##d, whole_trunc_divide_##d, whole_remainder_##d, whole_fmod_##d, whole_pow_##d \
        }                                                                                                      \
    }
static const whole_row whole_rows[] = {WHOLE_ROW(CLEF_I32, i32), WHOLE_ROW(CLEF_I64, i64), WHOLE_ROW(CLEF_U8, u8)};

Test(expectations, whole_numbers) {
    static const char *const name[] = {"floor_divide", "trunc_divide", "remainder", "fmod", "pow"};
    clef_context *ctx = open_seeded(1);
    for (int i = 0; i < 3; i++) {
        const whole_row *r = &whole_rows[i];
        clef_tensor *a = whole_tensor(ctx, r->dtype, r->a, r->n), *b = whole_tensor(ctx, r->dtype, r->b, r->n);
        clef_tensor *y[] = {clef_floor_divide(a, b), clef_trunc_divide(a, b), clef_remainder(a, b), clef_fmod(a, b),
                            clef_pow(a, b)};
        cr_assert(clef_eval_all(y, 5) == CLEF_OK, "%s", clef_error(ctx));
        for (int k = 0; k < 5; k++) {
            cr_expect(clef_tensor_dtype(y[k]) == r->dtype, "%s of %s", name[k], clef_dtype_name(r->dtype));
            expect_whole(y[k], r->want[k], r->n, name[k]);
        }
    }
    clef_close(ctx);
}

/* A number becomes what an element of a tensor becomes, in a kernel as in clef_full and in a conversion of it. */
Test(expectations, floats_become_whole_numbers) {
    static const struct {
        clef_dtype dtype;
        const int64_t *want;
    } to[] = {{CLEF_I32, cast_to_i32}, {CLEF_I64, cast_to_i64}, {CLEF_U8, cast_to_u8}};
    clef_context *ctx = open_seeded(1);
    double x[N_CASTS];
    memcpy(x, cast_from, sizeof x);
    for (int d = 0; d < (has_f64(ctx) ? 2 : 1); d++) {
        clef_tensor *t = tensor_of(ctx, CLEF_SHAPE(N_CASTS), d ? CLEF_F64 : CLEF_F32, x);
        clef_tensor *y[] = {clef_to(t, CLEF_I32), clef_to(t, CLEF_I64), clef_to(t, CLEF_U8)};
        cr_assert(clef_eval_all(y, 3) == CLEF_OK, "%s", clef_error(ctx));
        memcpy(x, cast_from, sizeof x);
        for (int i = 0; i < 3; i++) {
            int64_t want[N_CASTS];
            for (int k = 0; k < N_CASTS; k++) { /* the tables are of f64; what f32 rounds to another whole number is left out */
                bool same = d || !isfinite(x[k]) || trunc((double)(float)x[k]) == trunc(x[k]);
                want[k] = same ? to[i].want[k] : INT64_C(-12345);
            }
            int64_t data[N_CASTS];
            cr_assert(clef_read(y[i], data, N_CASTS * clef_dtype_size(to[i].dtype)) == CLEF_OK);
            for (int k = 0; k < N_CASTS; k++)
                cr_expect(want[k] == -12345 || unpack(to[i].dtype, data, k) == want[k], "%.17g to %s is %lld, not %lld", x[k],
                          clef_dtype_name(to[i].dtype), (long long)unpack(to[i].dtype, data, k), (long long)want[k]);
        }
    }
    for (int i = 0; i < 3; i++) {
        clef_tensor *all[N_CASTS];
        for (int k = 0; k < N_CASTS; k++) all[k] = clef_full(ctx, CLEF_SHAPE(1), to[i].dtype, cast_from[k]);
        expect_whole(clef_concat(all, N_CASTS, 0), to[i].want, N_CASTS, "full");
    }
    clef_tensor *most = clef_full(ctx, CLEF_SHAPE(1), CLEF_I64, 1e20);
    expect_whole(clef_to(most, CLEF_U8), (int64_t[]){255}, 1, "the largest i64 to u8");
    expect_whole(clef_to(most, CLEF_I32), (int64_t[]){-1}, 1, "the largest i64 to i32");
    expect_whole(clef_ge_scalar(most, 1e20), (int64_t[]){1}, 1, "saturated numbers compare as equal");
    clef_close(ctx);
}
