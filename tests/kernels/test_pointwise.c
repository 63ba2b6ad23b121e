/* test_pointwise.c — every row of cl/unary.def, binary.def and ternary.def against its row of tests/oracle.def: values in every
   dtype, first and second derivatives against differences of the oracle, shapes, dtypes.  (Special values: test_expectations.c.)
   ctest: cost=50 */
#include "support/numbers.h"

/* A table row without an oracle names something undeclared; an oracle without a row is an unused function; counts must agree. */
#define ORACLE(name, low, high, ulps, p_, q_, expression)                                                \
    static double oracle_##name(double x, double p, double q) { return (void)p, (void)q, (expression); } \
    static const double span_##name[] = {low, high, ulps, p_, q_};
#define ORACLE2(name, al, ah, bl, bh, ulps, expression)                    \
    static double oracle_##name(double a, double b) { return expression; } \
    static const double span_##name[] = {al, ah, bl, bh, ulps};
#define ORACLE3(name, low, high, ulps, expression)                                   \
    static double oracle_##name(double a, double b, double c) { return expression; } \
    static const double span_##name[] = {low, high, ulps};
#include "oracle.def"

#define ORACLE(...) +1
#define ORACLE2(...)
#define ORACLE3(...)
enum {
    oracles = 0
#include "oracle.def"
};
#define UNARY(...) +1
#define BINARY(...) +1
#define TERNARY(...) +1
enum {
    unaries = 0
#include "unary.def"
};
enum {
    binaries = 0
#include "binary.def"
};
enum {
    ternaries = 0
#include "ternary.def"
};
#define ORACLE(...)
#define ORACLE2(...) +1
#define ORACLE3(...) +1
enum {
    more_oracles = 0
#include "oracle.def"
};
_Static_assert((int)oracles == (int)unaries, "every row of unary.def has one row in oracle.def");
_Static_assert((int)more_oracles == (int)binaries + (int)ternaries,
               "every row of binary.def and ternary.def has one in oracle.def");

typedef enum domain { NUMBER, FLOAT, ROUND, FLOAT_TEST, NUMBER_TEST, COMPARE, LOGIC, CHOOSE } domain;
typedef struct unary_row {
    const char *name, *backward, *second;
    domain domain;
    double (*oracle)(double, double, double);
    const double *span; /* low, high, ulps, p, q */
    clef_tensor *(*f)(clef_tensor *);
    clef_tensor *(*fp)(clef_tensor *, double);
    clef_tensor *(*fpq)(clef_tensor *, double, double);
} unary_row;
typedef struct binary_row {
    const char *name;
    bool slopes;
    domain domain;
    double (*oracle)(double, double);
    const double *span; /* a_low, a_high, b_low, b_high, ulps */
    clef_tensor *(*f)(clef_tensor *, clef_tensor *);
    clef_tensor *(*number)(clef_tensor *, double);
} binary_row;

#define UNARY(n, d, forward, params, b, s, ...) {#n, #b, #s, d, oracle_##n, span_##n, .f = clef_##n},
#define UNARY_P(n, d, forward, params, b, s, ...) {#n, #b, #s, d, oracle_##n, span_##n, .fp = clef_##n},
#define UNARY_PP(n, d, forward, params, b, s, ...) {#n, #b, #s, d, oracle_##n, span_##n, .fpq = clef_##n},
static const unary_row unary[] = {
#include "unary.def"
};
#define BINARY(n, d, forward, da, ...) \
    {#n, sizeof #da != sizeof "ZERO" || #da[0] != 'Z', d, oracle_##n, span_##n, clef_##n, clef_##n##_scalar},
static const binary_row binary[] = {
#include "binary.def"
};
enum { N_UNARY = sizeof unary / sizeof *unary, N_BINARY = sizeof binary / sizeof *binary };

static bool zero(const char *text) { return strcmp(text, "ZERO") == 0; }
static bool test_domain(domain d) { return d == FLOAT_TEST || d == NUMBER_TEST; }
static double oracle_at(const unary_row *r, double x) { return r->oracle(x, r->span[3], r->span[4]); }
static clef_tensor *apply(const unary_row *r, clef_tensor *x) {
    return r->f ? r->f(x) : r->fp ? r->fp(x, r->span[3]) : r->fpq(x, r->span[3], r->span[4]);
}

/* The oracle jumps or has a corner at x: differences of it mean nothing there. */
static bool corner(const unary_row *r, double x, double h) {
    double left = (oracle_at(r, x) - oracle_at(r, x - h)) / h, right = (oracle_at(r, x + h) - oracle_at(r, x)) / h;
    return fabs(left - right) > 0.05 * (1 + fabs(left) + fabs(right));
}

/* Roundings of the row's own computing, plus one into storage, plus what is flushed. */
static double bound_of(const unary_row *r, clef_dtype dtype, double y) {
    double compute = dtype == CLEF_F64 ? 0x1p-53 : 0x1p-24;
    double inner = r->span[2] * compute * (fabs(y) + (r->span[2] > 1 ? 1 : 0) * 0.25);
    return inner + (dtype == CLEF_F16 || dtype == CLEF_BF16 ? rounding_of(dtype) * fabs(y) + 0x1p-25 : 0);
}

static int size(void) { return test_small() ? 19 : 1003; }

static void check_values(const unary_row *r, clef_dtype dtype, const double *x, int n, clef_tensor *y) {
    double *have = numbers(y), worst = 0;
    for (int i = 0; i < n; i++) {
        double want = oracle_at(r, x[i]), bound = bound_of(r, dtype, want), err = fabs(have[i] - want);
        if (bound > 0 && err / bound > worst) worst = err / bound;
        if (close_to(have[i], want, bound)) continue;
        cr_expect(false, "%s(%.9g) in %s is %.9g, not %.9g (bound %.3g)", r->name, x[i], clef_dtype_name(dtype), have[i], want,
                  bound);
        break;
    }
    if (getenv("CLEF_TEST_BOUNDS")) fprintf(stderr, "%-12s %-5s err/bound %.2f\n", r->name, clef_dtype_name(dtype), worst);
    free(have);
}

static void check_slope(const unary_row *r, const double *x, int n, clef_tensor *dx, const double *g, double rel, double abs_) {
    double *have = numbers(dx), h = 1e-6;
    for (int i = 0; i < n; i++) {
        if (corner(r, x[i], 1e-5)) continue;
        double want = g[i] * (oracle_at(r, x[i] + h) - oracle_at(r, x[i] - h)) / (2 * h);
        if (zero(r->backward)) want = 0;
        if (close_to(have[i], want, abs_ + rel * fabs(want))) continue;
        cr_expect(false, "%s'(%.9g)·%.3g is %.9g, not %.9g", r->name, x[i], g[i], have[i], want);
        break;
    }
    free(have);
}

static void check_second(const unary_row *r, const double *x, int n, clef_tensor *ddx, const double *gh, double rel, double abs_) {
    double *have = numbers(ddx), h = 1e-4;
    for (int i = 0; i < n; i++) {
        if (corner(r, x[i], 3e-4)) continue;
        double want = gh[i] * (oracle_at(r, x[i] + h) - 2 * oracle_at(r, x[i]) + oracle_at(r, x[i] - h)) / (h * h);
        if (zero(r->second)) want = 0;
        if (close_to(have[i], want, abs_ + rel * fabs(want))) continue;
        cr_expect(false, "%s''(%.9g)·%.3g is %.9g, not %.9g", r->name, x[i], gh[i], have[i], want);
        break;
    }
    free(have);
}

/* Value, slope and curvature of one row. */
typedef struct trial {
    const unary_row *row;
    double *x, *g, *h;
    clef_tensor *tx, *out[3]; /* y, dx, ddx; NULL where there is none */
} trial;

static void prepare(clef_context *ctx, trial *t, const unary_row *r, clef_dtype dtype) {
    int n = size();
    *t = (trial){r, spread(n, r->span[0], r->span[1], 3), spread(n, -1, 1, 4), spread(n, 0.5, 1, 5), NULL, {NULL, NULL, NULL}};
    clef_shape shape = CLEF_SHAPE(n);
    t->tx = parameter(tensor_of(ctx, shape, dtype, t->x));
    clef_tensor *g = tensor_of(ctx, shape, dtype, t->g), *h = tensor_of(ctx, shape, dtype, t->h);
    t->out[0] = apply(r, t->tx);
    cr_assert(t->out[0], "%s: %s", r->name, clef_error(ctx));
    cr_expect(clef_tensor_dtype(t->out[0]) == (test_domain(r->domain) ? CLEF_BOOL : dtype), "%s gives %s", r->name,
              clef_dtype_name(clef_tensor_dtype(t->out[0])));
    if (test_domain(r->domain)) return;
    cr_assert(clef_grad(t->out[0], g, &t->tx, 1, true, &t->out[1]) == CLEF_OK, "%s: %s", r->name, clef_error(ctx));
    if (zero(r->backward) || zero(r->second) || dtype == CLEF_F64) return; /* f32 tells enough of second derivatives */
    cr_assert(clef_grad(t->out[1], h, &t->tx, 1, false, &t->out[2]) == CLEF_OK, "%s: %s", r->name, clef_error(ctx));
}

static void check_trial(trial *t, clef_dtype dtype) {
    int n = size();
    bool wide = dtype == CLEF_F64;
    check_values(t->row, dtype, t->x, n, t->out[0]);
    if (t->out[1]) check_slope(t->row, t->x, n, t->out[1], t->g, wide ? 1e-6 : 1e-4, wide ? 1e-7 : 2e-5);
    for (int i = 0; i < n; i++) t->g[i] *= t->h[i];
    if (t->out[2]) check_second(t->row, t->x, n, t->out[2], t->g, wide ? 1e-4 : 1e-3, wide ? 1e-5 : 1e-4);
    clef_release(t->tx);
    free(t->x), free(t->g), free(t->h);
}

/* Vectors of four instead of the device's own: wide vectors of double take a compiler long. */
static clef_context *open_narrow(void) { return open_or_skip(&(clef_options){.profile = "minimal"}); }

/* Several rows to an evaluation, as a kernel costs more to compile than to run. */
static void check_rows(clef_dtype dtype, int part, int parts) {
    enum { TOGETHER = 4 };
    clef_context *ctx = dtype == CLEF_F64 ? open_narrow() : open_seeded(1);
    if (dtype == CLEF_F64 && !has_f64(ctx)) cr_skip_test("this device has no f64");
    int step = test_small() ? 3 * parts : parts;
    for (int i = part; i < N_UNARY; i += TOGETHER * step) {
        trial t[TOGETHER];
        clef_tensor *all[3 * TOGETHER];
        int trials = 0, n = 0;
        for (int k = i; k < N_UNARY && trials < TOGETHER; k += step) prepare(ctx, &t[trials++], &unary[k], dtype);
        for (int k = 0; k < 3 * trials; k++)
            if (t[k / 3].out[k % 3]) all[n++] = t[k / 3].out[k % 3];
        cr_assert(clef_eval_all(all, n) == CLEF_OK, "%s … : %s", t[0].row->name, clef_error(ctx));
        for (int k = 0; k < trials; k++) check_trial(&t[k], dtype);
        clef_end_step(ctx);
    }
    clef_close(ctx);
}
Test(pointwise, unary_f32_even) { check_rows(CLEF_F32, 0, 2); }
Test(pointwise, unary_f32_odd) { check_rows(CLEF_F32, 1, 2); }
Test(pointwise, unary_f64) { check_rows(CLEF_F64, 0, 1); }

/* Storage in 16 bits is computed in f32, so some rows tell of all; a common x makes them one kernel. */
static void check_halves(clef_dtype dtype) {
    clef_context *ctx = open_narrow();
    enum { EVERY = 6, ROWS = (N_UNARY + EVERY - 1) / EVERY };
    int n = size();
    double *x = spread(n, 0.1, 0.95, 7);
    clef_tensor *t = tensor_of(ctx, CLEF_SHAPE(n), dtype, x), *y[ROWS];
    for (int k = 0; k < ROWS; k++) y[k] = apply(&unary[EVERY * k], t);
    for (int k = 0; k < ROWS; k += 4)
        cr_assert(clef_eval_all(y + k, ROWS - k < 4 ? ROWS - k : 4) == CLEF_OK, "%s", clef_error(ctx));
    for (int k = 0; k < ROWS; k++) check_values(&unary[EVERY * k], dtype, x, n, y[k]);
    free(x);
    clef_close(ctx);
}
Test(pointwise, unary_f16) { check_halves(CLEF_F16); }
Test(pointwise, unary_bf16) { check_halves(CLEF_BF16); }

/* Rows that take whole numbers give whole numbers; the others give f32. */
Test(pointwise, unary_whole_numbers) {
    clef_context *ctx = open_seeded(1);
    static const clef_dtype dtypes[] = {CLEF_I64, CLEF_U8};
    for (int d = 0; d < (test_small() ? 1 : 2); d++) {
        clef_tensor *y[N_UNARY];
        double *x = spread(97, dtypes[d] == CLEF_U8 ? 0 : -9, 10, 11);
        int rows = 0, row[N_UNARY];
        clef_tensor *t = tensor_of(ctx, CLEF_SHAPE(97), dtypes[d], x);
        for (int i = 0; i < N_UNARY; i++) {
            domain in = unary[i].domain;
            if (in == NUMBER || in == ROUND || in == NUMBER_TEST) row[rows] = i, y[rows++] = apply(&unary[i], t);
            else if (in == FLOAT) cr_expect(clef_tensor_dtype(apply(&unary[i], t)) == CLEF_F32, "%s", unary[i].name);
        }
        for (int i = 0; i < rows; i += 4)
            cr_assert(clef_eval_all(y + i, rows - i < 4 ? rows - i : 4) == CLEF_OK, "%s", clef_error(ctx));
        for (int k = 0; k < rows; k++) {
            double *have = numbers(y[k]);
            for (int i = 0; i < 97; i++) {
                double want = oracle_at(&unary[row[k]], x[i]);
                if (dtypes[d] == CLEF_U8) want = (double)((int)want & 255);
                cr_expect(have[i] == want, "%s(%g) in %s is %g, not %g", unary[row[k]].name, x[i], clef_dtype_name(dtypes[d]),
                          have[i], want);
            }
            free(have);
        }
        free(x);
        clef_end_step(ctx);
    }
    clef_close(ctx);
}

/* ---- binary ---- */

static double *broadcast_oracle(const binary_row *r, const double *a, const double *b) { /* a [5,1,7], b [3,1] */
    double *y = malloc(105 * sizeof *y);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 7; k++) y[(i * 3 + j) * 7 + k] = r->oracle(a[i * 7 + k], b[j]);
    return y;
}

/* The oracle jumps between a and its neighbours. */
static bool jumps(const binary_row *r, double a, double b) {
    double h = 1e-5;
    return fabs(r->oracle(a + h, b) - r->oracle(a - h, b)) > 0.05 || fabs(r->oracle(a, b + h) - r->oracle(a, b - h)) > 0.05;
}

static void check_broadcast_slopes(const binary_row *r, const double *a, const double *b, clef_tensor *const *d, const double *g,
                                   double tolerance) {
    double *da = numbers(d[0]), *db = numbers(d[1]), wa[35] = {0}, wb[3] = {0}, h = 1e-6;
    bool skip_a[35] = {0}, skip_b[3] = {0};
    for (int i = 0; i < 105; i++) {
        int ia = i / 21 * 7 + i % 7, ib = i / 7 % 3;
        wa[ia] += g[i] * (r->oracle(a[ia] + h, b[ib]) - r->oracle(a[ia] - h, b[ib])) / (2 * h);
        wb[ib] += g[i] * (r->oracle(a[ia], b[ib] + h) - r->oracle(a[ia], b[ib] - h)) / (2 * h);
        if (jumps(r, a[ia], b[ib])) skip_a[ia] = skip_b[ib] = true;
    }
    for (int i = 0; i < 35; i++)
        cr_expect(skip_a[i] || close_to(da[i], wa[i], tolerance * (1 + fabs(wa[i]))), "d %s / da[%d] is %.9g, not %.9g", r->name, i,
                  da[i], wa[i]);
    for (int i = 0; i < 3; i++)
        cr_expect(skip_b[i] || close_to(db[i], wb[i], 20 * tolerance * (1 + fabs(wb[i]))), "d %s / db[%d] is %.9g, not %.9g",
                  r->name, i, db[i], wb[i]);
    free(da), free(db);
}

static void check_binary(clef_context *ctx, const binary_row *r, clef_dtype dtype) {
    double *a = spread(35, r->span[0], r->span[1], 21), *b = spread(3, r->span[2], r->span[3], 22), *g = spread(105, -1, 1, 23);
    clef_tensor *x[2] = {parameter(tensor_of(ctx, CLEF_SHAPE(5, 1, 7), dtype, a)),
                         parameter(tensor_of(ctx, CLEF_SHAPE(3, 1), dtype, b))};
    clef_tensor *y = r->f(x[0], x[1]), *d[2] = {y, y};
    expect_shape(y, CLEF_SHAPE(5, 3, 7));
    cr_expect(clef_tensor_dtype(y) == (r->domain == COMPARE || r->domain == LOGIC ? CLEF_BOOL : dtype));
    if (r->slopes) {
        clef_tensor *tg = tensor_of(ctx, CLEF_SHAPE(5, 3, 7), dtype, g);
        cr_assert(clef_grad(y, tg, x, 2, false, d) == CLEF_OK, "%s: %s", r->name, clef_error(ctx));
    }
    cr_assert(clef_eval_all((clef_tensor *[]){y, d[0], d[1]}, 3) == CLEF_OK, "%s: %s", r->name, clef_error(ctx));
    double *want = broadcast_oracle(r, a, b), *have = numbers(y), u = dtype == CLEF_F64 ? 0x1p-53 : 0x1p-24;
    for (int i = 0; i < 105; i++) {
        int ia = i / 21 * 7 + i % 7, ib = i / 7 % 3;
        bool ok = close_to(have[i], want[i], r->span[4] * u * (fabs(want[i]) + (r->span[4] > 1))) ||
                  (r->domain != COMPARE && r->domain != LOGIC && jumps(r, a[ia], b[ib]));
        cr_expect(ok, "%s(%.9g, %.9g) in %s is %.9g, not %.9g", r->name, a[ia], b[ib], clef_dtype_name(dtype), have[i], want[i]);
    }
    if (r->slopes) check_broadcast_slopes(r, a, b, d, g, dtype == CLEF_F64 ? 1e-6 : 1e-4);
    clef_release(x[0]), clef_release(x[1]);
    free(a), free(b), free(g), free(want), free(have);
}

static void check_binaries(clef_dtype dtype) {
    clef_context *ctx = dtype == CLEF_F64 ? open_narrow() : open_seeded(1);
    if (dtype == CLEF_F64 && !has_f64(ctx)) cr_skip_test("this device has no f64");
    for (int i = 0; i < N_BINARY; i++) {
        check_binary(ctx, &binary[i], dtype);
        clef_end_step(ctx);
    }
    clef_close(ctx);
}
/* Remainders are exact; sizes leave any number of lanes over, and lanes stand beside zeros, infinities and NaN. */
Test(pointwise, remainders_of_doubles_are_exact) {
    clef_context *ctx = open_or_skip(&(clef_options){0});
    static const double some[] = {440, 1346781, 3e9, 1, 0, -7, INFINITY, 5.5, NAN, -1e300, 2},
                        by[] = {274, 274, 1, 6e-8, 2, 0, 3, -INFINITY, 2, 1e-3, NAN, 7, -3};
    enum { MOST = 33 };
    for (int n = 1; n <= MOST; n += fewest_kernels() ? 8 : 1) {
        double a[MOST], b[MOST];
        for (int i = 0; i < n; i++) a[i] = some[(i * 5 + n) % 11], b[i] = by[(i * 3 + n) % 13];
        clef_tensor *x = clef_from_host(ctx, CLEF_SHAPE(n), CLEF_F64, a), *y = clef_from_host(ctx, CLEF_SHAPE(n), CLEF_F64, b);
        if (!x) break; /* no f64 here */
        double *rest = numbers(clef_fmod(x, y)), *same = numbers(clef_remainder(x, y));
        for (int i = 0; i < n; i++) {
            double r = fmod(a[i], b[i]), s = r != 0 && (r < 0) != (b[i] < 0) ? r + b[i] : r;
            cr_expect(rest[i] == r || (isnan(r) && isnan(rest[i])), "fmod(%g, %g) = %.17g, not %.17g; of %d", a[i], b[i], rest[i],
                      r, n);
            cr_expect(same[i] == s || (isnan(s) && isnan(same[i])), "%g %% %g = %.17g, not %.17g; of %d", a[i], b[i], same[i], s,
                      n);
        }
        free(rest), free(same);
        clef_end_step(ctx);
    }
    clef_clear_error(ctx);
    clef_close(ctx);
}

Test(pointwise, binary_f32) { check_binaries(CLEF_F32); }
Test(pointwise, binary_f64) { check_binaries(CLEF_F64); }

/* What the oracle gives in whole numbers: no fraction, 0 where it is not finite, u8 in 8 bits. */
static double whole_oracle(const binary_row *r, clef_dtype dtype, double a, double b) {
    double y = r->oracle(a, b);
    y = isfinite(y) ? trunc(y) : 0;
    return dtype == CLEF_U8 ? (double)((int)y & 255) : y;
}

/* Exponents that are products and others, each beside the other; also where a power of a overflows and 1 over it does not. */
Test(pointwise, powers_by_products) {
    enum { N = 16 };
    static double base[N] = {0, -0.0, 1, -1, 2, -3, 0.75, INFINITY, -INFINITY, NAN, 0x1p66, -0x1p66, 0x1p-40, 0x1p-66, 0x1p43, 7};
    static const double exponent[] = {0, 1, 2, 3, 4, -1, -2, -3, -4, 5, 0.5, -2.5, NAN, INFINITY};
    enum { EXPONENTS = sizeof exponent / sizeof *exponent };
    clef_context *ctx = open_seeded(1);
    double a[N * EXPONENTS], b[N * EXPONENTS], want[N * EXPONENTS];
    for (int e = 0; e < EXPONENTS; e++) {
        for (int i = 0; i < N; i++) {
            int k = i * EXPONENTS + e;
            a[k] = base[i], b[k] = exponent[e], want[k] = pow(base[i], exponent[e]);
            want[k] = fabs(want[k]) < 0x1p-126 ? 0 : (double)(float)want[k]; /* devices may have no denormal numbers */
        }
        double one[N];
        for (int i = 0; i < N; i++) one[i] = want[i * EXPONENTS + e];
        clef_tensor *x = tensor_of(ctx, CLEF_SHAPE(N), CLEF_F32, base);
        expect_numbers(clef_pow_scalar(x, exponent[e]), one, 0x1p-126, 4e-6, "power with a number");
    }
    clef_shape shape = CLEF_SHAPE(N * EXPONENTS);
    clef_tensor *y = clef_pow(tensor_of(ctx, shape, CLEF_F32, a), tensor_of(ctx, shape, CLEF_F32, b));
    expect_numbers(y, want, 0x1p-126, 4e-6, "powers of many exponents");
    clef_close(ctx);
}

/* Whole numbers, equal pairs among them, and a number instead of b. */
Test(pointwise, binary_whole_numbers) {
    clef_context *ctx = open_seeded(1);
    static const clef_dtype dtypes[] = {CLEF_I32, CLEF_U8};
    for (int d = 0; d < (test_small() ? 1 : 2); d++) {
        double *a = spread(64, dtypes[d] == CLEF_U8 ? 0 : -4, 5, 31), *b = spread(64, dtypes[d] == CLEF_U8 ? 0 : -4, 5, 32);
        clef_tensor *ta = tensor_of(ctx, CLEF_SHAPE(64), dtypes[d], a), *tb = tensor_of(ctx, CLEF_SHAPE(64), dtypes[d], b);
        clef_tensor *y[N_BINARY], *z[N_BINARY], *all[2 * N_BINARY];
        int n = 0;
        for (int i = 0; i < N_BINARY; i++) {
            y[i] = binary[i].f(ta, tb), z[i] = binary[i].number(ta, 3);
            bool whole = clef_tensor_dtype(y[i]) != CLEF_F32 && clef_tensor_dtype(z[i]) != CLEF_F32;
            cr_expect(whole == (binary[i].domain != FLOAT), "%s of %s", binary[i].name, clef_dtype_name(dtypes[d]));
            if (whole) all[n++] = y[i];
            if (whole && i % 4 == 0) all[n++] = z[i];
        }
        for (int i = 0; i < n; i += 4) cr_assert(clef_eval_all(all + i, n - i < 4 ? n - i : 4) == CLEF_OK, "%s", clef_error(ctx));
        for (int i = 0; i < N_BINARY; i++) {
            if (binary[i].domain == FLOAT) continue;
            double *have = numbers(y[i]), *number = i % 4 == 0 ? numbers(z[i]) : NULL;
            for (int k = 0; k < 64; k++) {
                double want = whole_oracle(&binary[i], dtypes[d], a[k], b[k]), want3 = whole_oracle(&binary[i], dtypes[d], a[k], 3);
                cr_expect(have[k] == want, "%s(%g, %g) in %s is %g", binary[i].name, a[k], b[k], clef_dtype_name(dtypes[d]),
                          have[k]);
                cr_expect(!number || number[k] == want3, "%s(%g, 3) in %s is %g", binary[i].name, a[k], clef_dtype_name(dtypes[d]),
                          number ? number[k] : 0);
            }
            free(have), free(number);
        }
        free(a), free(b);
        clef_end_step(ctx);
    }
    clef_close(ctx);
}

/* ---- ternary ---- */

Test(pointwise, where_and_lerp) {
    clef_context *ctx = open_seeded(1);
    double *a = spread(15, span_lerp[0], span_lerp[1], 41), *b = spread(5, -2, 2, 42), *c = spread(3, -2, 2, 43), want[15],
           chosen[15];
    for (int i = 0; i < 15; i += 2) a[i] = 0;
    clef_tensor *ta = tensor_of(ctx, CLEF_SHAPE(3, 5), CLEF_F32, a), *tb = parameter(tensor_of(ctx, CLEF_SHAPE(5), CLEF_F32, b));
    clef_tensor *tc = parameter(tensor_of(ctx, CLEF_SHAPE(3, 1), CLEF_F32, c)), *d[2];
    double db[5] = {0}, dc[3] = {0}, lb[5] = {0}, lc[3] = {0};
    for (int i = 0; i < 15; i++) {
        chosen[i] = oracle_where(a[i], b[i % 5], c[i / 5]);
        want[i] = oracle_lerp(a[i], b[i % 5], c[i / 5]);
        *(a[i] != 0 ? &db[i % 5] : &dc[i / 5]) += 1;
        lb[i % 5] += c[i / 5];
        lc[i / 5] += b[i % 5] - a[i];
    }
    clef_tensor *w = clef_where(ta, tb, tc), *l = clef_lerp(ta, tb, tc), *in[2] = {tb, tc};
    expect_numbers(w, chosen, 0, span_where[2], "where");
    expect_numbers(l, want, span_lerp[2] * 0x1p-24, span_lerp[2] * 0x1p-24, "lerp");
    clef_grad(w, clef_ones(ctx, CLEF_SHAPE(3, 5), CLEF_F32), in, 2, false, d);
    expect_numbers(d[0], db, 0, 0, "d where / db");
    expect_numbers(d[1], dc, 0, 0, "d where / dc");
    clef_grad(l, clef_ones(ctx, CLEF_SHAPE(3, 5), CLEF_F32), in, 2, false, d);
    expect_numbers(d[0], lb, 1e-5, 0, "d lerp / db");
    expect_numbers(d[1], lc, 1e-5, 0, "d lerp / dc");
    free(a), free(b), free(c);
    clef_close(ctx);
}

/* ---- shapes and dtypes ---- */

/* Odd sizes, slices with steps, transposes, flips and broadcasts give what a plain copy gives. */
Test(pointwise, any_strides) {
    clef_context *ctx = open_seeded(1);
    double *x = spread(7 * 9 * 5, -3, 3, 51);
    clef_tensor *t = tensor_of(ctx, CLEF_SHAPE(7, 9, 5), CLEF_F32, x);
    clef_tensor *views[] = {clef_slice(t, 1, 1, 9, 3),     clef_transpose(t, 0, 2),
                            clef_flip(clef_flip(t, 2), 0), clef_slice(t, 2, 3, 4, 1),
                            clef_slice(t, 0, -1, -6, -2),  clef_expand(clef_slice(t, 0, 2, 3, 1), CLEF_SHAPE(4, 9, 5))};
    for (int i = 0; i < 6; i++) {
        double *in = numbers(clef_copy(views[i])); /* read as a copy, computed as a view */
        for (int64_t k = 0; k < clef_numel(views[i]); k++) in[k] = in[k] * in[k] + 1;
        expect_numbers(clef_add_scalar(clef_square(views[i]), 1), in, 0, 3 * 0x1p-24, "x*x + 1 of a view");
        free(in);
    }
    free(x);
    clef_close(ctx);
}

Test(pointwise, empty_and_scalar) {
    clef_context *ctx = open_seeded(1);
    clef_tensor *e = clef_zeros(ctx, CLEF_SHAPE(3, 0, 2), CLEF_F32), *s = clef_scalar(ctx, 2);
    clef_tensor *y = clef_exp(clef_add(e, s));
    expect_shape(y, CLEF_SHAPE(3, 0, 2));
    cr_expect(clef_eval(y) == CLEF_OK, "%s", clef_error(ctx));
    cr_expect(clef_item(clef_mul(s, clef_add_scalar(s, 1))) == 6);
    expect_shape(clef_add(clef_zeros(ctx, CLEF_SHAPE(1, 4), CLEF_F32), clef_zeros(ctx, CLEF_SHAPE(0, 1), CLEF_F32)),
                 CLEF_SHAPE(0, 4));
    clef_close(ctx);
}

/* The common dtype of every pair, as one letter: f32 f, f16 h, bf16 b, f64 d, i32 i, i64 l, u8 u, bool ?. */
static const clef_dtype dtype_of[128] = {['f'] = CLEF_F32, ['h'] = CLEF_F16, ['b'] = CLEF_BF16, ['d'] = CLEF_F64,
                                         ['i'] = CLEF_I32, ['l'] = CLEF_I64, ['u'] = CLEF_U8,   ['?'] = CLEF_BOOL};
static const char *const common_table[] = {/* a, then with ? u i l h b f d for b */
                                           "? ?uilhbfd", "u uuilhbfd", "i iiilhbfd", "l llllhbfd",
                                           "h hhhhhffd", "b bbbbfbfd", "f fffffffd", "d dddddddd"};

static void expect_dtypes(clef_tensor *y, char want, const char *function, char a, char b) {
    cr_expect(y && clef_tensor_dtype(y) == dtype_of[(int)want], "%s of %c and %c is %s, not %c", function, a, b,
              clef_dtype_name(clef_tensor_dtype(y)), want);
}

Test(pointwise, promotion) {
    clef_context *ctx = open_seeded(1);
    for (int i = 0; i < (has_f64(ctx) ? 8 : 7); i++)
        for (int j = 0; j < (has_f64(ctx) ? 8 : 7); j++) {
            char da = common_table[i][0], db = common_table[j][0], both = common_table[i][2 + j];
            char whole = both == '?' ? 'i' : both, fraction = strchr("?uil", both) ? 'f' : both;
            clef_tensor *a = clef_ones(ctx, CLEF_SHAPE(2), dtype_of[(int)da]),
                        *b = clef_ones(ctx, CLEF_SHAPE(2, 1), dtype_of[(int)db]);
            expect_dtypes(clef_add(a, b), whole, "add", da, db);
            expect_dtypes(clef_remainder(a, b), whole, "remainder", da, db);
            expect_dtypes(clef_pow(a, b), whole, "pow", da, db);
            expect_dtypes(clef_div(a, b), fraction, "div", da, db);
            expect_dtypes(clef_lt(a, b), '?', "lt", da, db);
            expect_dtypes(clef_logical_and(a, b), '?', "logical_and", da, db);
            expect_dtypes(clef_where(b, a, b), both, "where", da, db);
        }
    clef_close(ctx);
}

/* A number beside a tensor: the tensor's dtype, unless that is whole and cannot hold it. */
Test(pointwise, promotion_of_numbers) {
    clef_context *ctx = open_seeded(1);
    static const struct {
        char tensor;
        double number;
        char add, div;
    } beside[] = {{'?', 1, 'i', 'f'},    {'u', 255, 'u', 'f'},      {'u', 256, 'i', 'f'}, {'u', -1, 'i', 'f'},
                  {'i', 3, 'i', 'f'},    {'i', 0.5, 'f', 'f'},      {'i', NAN, 'f', 'f'}, {'i', 1e10, 'i', 'f'},
                  {'l', 1e10, 'l', 'f'}, {'l', INFINITY, 'l', 'f'}, {'h', 0.1, 'h', 'h'}, {'b', 1e9, 'b', 'b'},
                  {'f', 1e300, 'f', 'f'}};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(2), dtype_of[(int)beside[i].tensor]);
        expect_dtypes(clef_add_scalar(x, beside[i].number), beside[i].add, "add_scalar", beside[i].tensor, ' ');
        expect_dtypes(clef_div_scalar(x, beside[i].number), beside[i].div, "div_scalar", beside[i].tensor, ' ');
        expect_dtypes(clef_lt_scalar(x, beside[i].number), '?', "lt_scalar", beside[i].tensor, ' ');
    }
    clef_tensor *i = clef_ones(ctx, CLEF_SHAPE(2), CLEF_I32), *big = clef_full(ctx, CLEF_SCALAR, CLEF_I64, 16777217);
    cr_expect(clef_item(clef_sum(clef_clamp(i, -INFINITY, INFINITY), NULL, 0, false)) == 2);
    cr_expect(clef_item(clef_eq(big, clef_full(ctx, CLEF_SCALAR, CLEF_F32, 16777216))) == 1, "i64 is compared with f32 in f32");
    cr_expect(clef_item(clef_eq(big, clef_full(ctx, CLEF_SCALAR, CLEF_I32, 16777216))) == 0);
    cr_expect(clef_item(clef_remainder_scalar(big, 2)) == 1);
    cr_expect(clef_item(clef_maximum(i = clef_full(ctx, CLEF_SCALAR, CLEF_I32, 5), clef_full(ctx, CLEF_SCALAR, CLEF_U8, 7))) == 7);
    cr_expect(clef_item(clef_minimum_scalar(i, 1e10)) == 5, "a number saturates");
    clef_close(ctx);
}

Test(pointwise, casts) {
    clef_context *ctx = open_seeded(1);
    double x[6] = {0, 0.5, -1.75, 3, 200, 1.0009765625}, truth[6] = {0, 1, 1, 1, 1, 1}, whole[6] = {0, 0, -1, 3, 200, 1};
    double bf16[6] = {0, 0.5, -1.75, 3, 200, 1};
    clef_tensor *t = tensor_of(ctx, CLEF_SHAPE(6), CLEF_F32, x);
    expect_numbers(clef_to(t, CLEF_BOOL), truth, 0, 0, "to bool");
    expect_numbers(clef_to(t, CLEF_I32), whole, 0, 0, "to i32");
    expect_numbers(clef_to(t, CLEF_I64), whole, 0, 0, "to i64");
    expect_numbers(clef_to(t, CLEF_F16), x, 0, 0, "to f16");
    expect_numbers(clef_to(t, CLEF_BF16), bf16, 0, 0, "to bf16");
    expect_numbers(clef_to(clef_to(t, CLEF_BF16), CLEF_F32), bf16, 0, 0, "to bf16 and back in one kernel");
    cr_expect(clef_to(t, CLEF_F32) == t, "the same dtype is the same tensor");
    clef_tensor *p = parameter(tensor_of(ctx, CLEF_SHAPE(6), CLEF_F16, x)), *dx;
    cr_assert(clef_grad(clef_to(p, CLEF_F32), t, &p, 1, false, &dx) == CLEF_OK, "%s", clef_error(ctx));
    cr_expect(clef_tensor_dtype(dx) == CLEF_F16);
    expect_numbers(dx, x, 0, 0, "gradient of a cast");
    clef_close(ctx);
}

Test(pointwise, errors) {
    clef_context *ctx = open_seeded(1);
    cr_expect(!clef_add(clef_ones(ctx, CLEF_SHAPE(2, 3), CLEF_F32), clef_ones(ctx, CLEF_SHAPE(4), CLEF_F32)));
    expect_error(ctx, CLEF_SHAPE, "add: shapes [2,3] and [4]");
    cr_expect(!clef_relu(NULL) && !clef_add(NULL, NULL) && !clef_mul_scalar(NULL, 2) && !clef_where(NULL, NULL, NULL));
    cr_expect(clef_error_status(ctx) == CLEF_OK);
    clef_close(ctx);
}

/* ---- custom ---- */

static const clef_custom_op cube = {.name = "cube", .forward = "x * x * x", .backward = {"K(3) * x * x * g"}};
static const clef_custom_op scaled = {.name = "scaled", .forward = "x * y", .backward = {"y * g", NULL}};

Test(pointwise, custom) {
    clef_context *ctx = open_seeded(1);
    double x[3] = {-1, 2, 3}, y[3] = {-1, 8, 27}, d[3] = {3, 12, 27}, two[3] = {-2, 4, 6}, twos[3] = {2, 2, 2};
    clef_tensor *p = parameter(tensor_of(ctx, CLEF_SHAPE(3), CLEF_F32, x)), *t = clef_custom(&cube, &p, 1), *dx;
    expect_numbers(t, y, 0, 0, "cube");
    clef_grad(t, clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32), &p, 1, false, &dx);
    expect_numbers(dx, d, 0, 0, "cube'");
    clef_tensor *s = clef_custom(&scaled, (clef_tensor *[]){p, clef_scalar(ctx, 2)}, 2);
    expect_numbers(s, two, 0, 0, "scaled");
    clef_grad(s, clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32), &p, 1, false, &dx);
    expect_numbers(dx, twos, 0, 0, "scaled'");
    cr_expect(!clef_custom(&(clef_custom_op){.name = "no name", .forward = "x"}, &p, 1));
    expect_error(ctx, CLEF_INVALID, "C identifier");
    static const clef_custom_op broken = {.name = "broken", .forward = "x +* y"};
    cr_expect(clef_eval(clef_custom(&broken, &p, 1)) == CLEF_BUILD);
    clef_clear_error(ctx);
    cr_expect(strlen(clef_build_log(ctx)) > 0);
    clef_close(ctx);
}
