/* test_functions.c — the functions of cl/functions.h over a sample of all floats against double, each with its bound in ulp; the same
   bits at every width; pow over pairs.
   ctest: cost=20 */
#include "support/numbers.h"

/* Every 65521st float (a prime, so that all exponents meet all kinds of mantissas), and special ones. */
enum { STEP = 65521, SAMPLE = (int)(((int64_t)1 << 32) / STEP) + 1 };
static const float special[] = {0.0f,    -0.0f,    1.0f,      -1.0f,         0x1p-149f,     -0x1p-149f, 0x1.fffffcp-127f, 0x1p-126f,
                                0x1p20f, -0x1p20f, 0x1.fp19f, 0x1.921fb6p0f, 0x1.921fb6p1f, INFINITY,   -INFINITY,        NAN};
enum { SPECIALS = sizeof special / sizeof *special, COUNT = SAMPLE + SPECIALS };

static double erf_(double x) { return erf(x); }
static double gelu(double x) { return x * (0.5 * erfc(-x * sqrt(0.5))); }

/* bound: measured over all floats of cl/functions.h's range, gelu's where Φ is denormal.  below: the driver's functions beyond it have a bound of their own. */
typedef struct function {
    const char *name;
    clef_tensor *(*f)(clef_tensor *);
    double (*oracle)(double);
    double bound, below, bound_beyond;
} function;
static const function functions[] = {
    {"exp", clef_exp, exp, 0.9, INFINITY, 0},     {"sinh", clef_sinh, sinh, 1.7, INFINITY, 0},
    {"cosh", clef_cosh, cosh, 1.4, INFINITY, 0},  {"tanh", clef_tanh, tanh, 1.4, INFINITY, 0},
    {"erf", clef_erf, erf_, 1.2, INFINITY, 0},    {"erfc", clef_erfc, erfc, 5.4, INFINITY, 0},
    {"gelu", clef_gelu, gelu, 10.1, INFINITY, 0}, {"sin", clef_sin, sin, 1.7, 0x1p20, 4},
    {"cos", clef_cos, cos, 1.9, 0x1p20, 4},       {"tan", clef_tan, tan, 3.8, 0x1p20, 5},
    {"atan", clef_atan, atan, 1.4, INFINITY, 0},  {"asin", clef_asin, asin, 1.9, INFINITY, 0},
    {"acos", clef_acos, acos, 1.3, INFINITY, 0},  {"log2", clef_log2, log2, 1.5, INFINITY, 0},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions, FAMILIES = 7, TOGETHER = 4 };

static float x[COUNT];
static int count; /* of the numbers in x; few where every instruction is interpreted */

static void make_sample(void) {
    int every = few_kernels() ? 64 : 1;
    memcpy(x, special, sizeof special);
    count = SPECIALS;
    for (int i = 0; i < SAMPLE; i += every) x[count++] = bits_float((uint32_t)((int64_t)i * STEP));
}

/* A device where fma is not one instruction has its driver's functions, whose bounds are the driver's. */
static clef_context *open_with_functions(const char *profile) {
    static const clef_custom_op own = {.name = "own", .forward = "x * K(OWN_FUNCTIONS)"};
    clef_context *ctx = open_or_skip(&(clef_options){.profile = profile});
    if (clef_item(clef_custom(&own, (clef_tensor *[]){clef_scalar(ctx, 1)}, 1)) == 1) return ctx;
    clef_close(ctx);
    cr_skip_test("the driver's functions are used here");
    return NULL;
}

/* All functions, or one of each family. */
static int functions_here(void) { return few_kernels() ? FAMILIES : FUNCTIONS; }
static const function *function_here(int i) { return &functions[few_kernels() ? FUNCTIONS / FAMILIES * i : i]; }

/* Several functions to an evaluation, as a kernel costs more to compile than to run. */
static void evaluate(clef_context *ctx, float *y[FUNCTIONS]) {
    clef_tensor *t = clef_keep(clef_from_host(ctx, CLEF_SHAPE(count), CLEF_F32, x)), *all[FUNCTIONS];
    int n = functions_here();
    for (int i = 0; i < n; i++) all[i] = function_here(i)->f(t);
    for (int i = 0; i < n; i += TOGETHER)
        cr_assert(clef_eval_all(all + i, i + TOGETHER < n ? TOGETHER : n - i) == CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < n; i++) y[i] = values(all[i]);
    clef_release(t);
}

/* The last bit of a float of y's size. */
static double ulp_of(double y) {
    int e;
    frexp(y, &e);
    return ldexp(1, e < -125 ? -149 : e - 24);
}

/* What a device may lose that takes denormal numbers for zeros. */
static double flushed_by(clef_context *ctx) {
    clef_tensor *t = clef_from_host(ctx, CLEF_SHAPE(count), CLEF_F32, x);
    float *y = values(clef_mul_scalar(t, 0.5));
    double lost = 0;
    for (int i = 0; i < count; i++)
        if (fabs((double)x[i]) >= 0x1p-148 && y[i] == 0) lost = 0x1p-126;
    free(y);
    return lost;
}

/* How far y is from what is wanted; INFINITY also for a zero of the wrong sign. */
static double ulps_between(float y, double want, double flushed) {
    if (isnan(want) || isnan(y)) return isnan(want) && isnan(y) ? 0 : INFINITY;
    if (want == 0 && flushed == 0 && !signbit(y) != !signbit(want)) return INFINITY;
    double error = fabs((double)y - want);
    return error <= flushed || y == (float)want ? 0 : error / ulp_of(want);
}

static void check(const function *f, const float *y, double flushed) {
    double worst = 0;
    for (int i = 0; i < count; i++) {
        double want = f->oracle((double)x[i]), bound = fabs((double)x[i]) < f->below ? f->bound : f->bound_beyond;
        double ulps = ulps_between(y[i], want, flushed);
        worst = fmax(worst, ulps);
        if (ulps <= bound) continue;
        cr_expect(false, "%s(%a) is %a, not %a: %.2f ulp", f->name, (double)x[i], (double)y[i], want, ulps);
        break;
    }
    if (getenv("CLEF_TEST_BOUNDS")) fprintf(stderr, "%-5s %.2f ulp\n", f->name, worst);
}

Test(functions, bounds) {
    clef_context *ctx = open_with_functions(NULL);
    float *y[FUNCTIONS];
    make_sample();
    double flushed = flushed_by(ctx);
    evaluate(ctx, y);
    for (int i = 0; i < functions_here(); i++) check(function_here(i), y[i], flushed), free(y[i]);
    clef_close(ctx);
}

static void compare(const function *f, const float *a, const float *b) {
    for (int i = 0; i < count; i++) {
        if (!(fabs((double)x[i]) < f->below) || float_bits(a[i]) == float_bits(b[i])) continue;
        cr_expect(false, "%s(%a) is %a and %a", f->name, (double)x[i], (double)a[i], (double)b[i]);
        break;
    }
}

/* Vectors of four give the bits of the device's own, up to where the functions are the driver's. */
Test(functions, widths) {
    clef_context *ctx[] = {open_with_functions(NULL), open_with_functions("minimal")};
    float *y[2][FUNCTIONS];
    make_sample();
    for (int k = 0; k < 2; k++) evaluate(ctx[k], y[k]);
    for (int i = 0; i < functions_here(); i++) compare(function_here(i), y[0][i], y[1][i]), free(y[0][i]), free(y[1][i]);
    clef_close(ctx[0]), clef_close(ctx[1]);
}

/* ---- pow ---- */
static float base[COUNT], exponent[COUNT];
static const float of_2[] = {-149.7f, -126.4f, -30.2f, -1.3f, 0.2f, 5.9f, 88.8f, 127.99f};
static const float exponents[] = {5,        -5,         6,       -7,        0.5f,     -2.5f,     0x1.fffffep23f,
                                  -0x1p24f, 4194303.5f, 0x1p40f, 0x1p-149f, INFINITY, -INFINITY, NAN};
enum { OF_2 = sizeof of_2 / sizeof *of_2, EXPONENTS = sizeof exponents / sizeof *exponents };

/* Every special number to every special exponent; then of the sample, and of numbers around 1, powers of all sizes and kinds. */
static void make_pairs(void) {
    make_sample();
    for (int i = SPECIALS * EXPONENTS; i < count; i++) {
        float a = i % 4 == 1 ? 1 + 0x1p-8f * sinf(x[i]) : x[i];
        double log = log2(fabs((double)a));
        base[i] = i % 4 == 3 ? a : fabsf(a);
        exponent[i] = i % 4 == 3 ? exponents[i / 4 % EXPONENTS] : (float)((of_2[i % OF_2] + i % 101 * 0.003) / log);
        if (exponent[i] == 0) exponent[i] = 1;
    }
    for (int i = 0; i < SPECIALS * EXPONENTS; i++) base[i] = special[i / EXPONENTS], exponent[i] = exponents[i % EXPONENTS];
}

static float *powers(clef_context *ctx) {
    clef_shape shape = CLEF_SHAPE(count);
    float *y = values(clef_pow(clef_from_host(ctx, shape, CLEF_F32, base), clef_from_host(ctx, shape, CLEF_F32, exponent)));
    cr_assert(y, "%s", clef_error(ctx));
    return y;
}

static bool denormal(float v) { return v != 0 && fabs((double)v) < 0x1p-126; }

Test(functions, powers) {
    clef_context *ctx[] = {open_with_functions(NULL), open_with_functions("minimal")};
    make_pairs();
    double flushed = flushed_by(ctx[0]), worst = 0;
    float *y = powers(ctx[0]), *narrow = powers(ctx[1]);
    for (int i = 0; i < count; i++) {
        double want = pow((double)base[i], (double)exponent[i]);
        bool lost = flushed > 0 && (denormal(base[i]) || denormal(exponent[i]));
        double ulps = lost ? 0 : ulps_between(y[i], want, flushed);
        worst = fmax(worst, ulps);
        if (ulps <= 0.92 && (float_bits(y[i]) == float_bits(narrow[i]) || (isnan(y[i]) && isnan(narrow[i])))) continue;
        cr_expect(false, "pow(%a, %a) is %a and %a, not %a: %.2f ulp", (double)base[i], (double)exponent[i], (double)y[i],
                  (double)narrow[i], want, ulps);
        break;
    }
    if (getenv("CLEF_TEST_BOUNDS")) fprintf(stderr, "pow   %.2f ulp\n", worst);
    free(y), free(narrow);
    clef_close(ctx[0]), clef_close(ctx[1]);
}
