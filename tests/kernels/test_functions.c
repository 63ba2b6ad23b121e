/* test_functions.c — the functions of cl/functions.h over a sample of all floats against double, each with its bound in ulp; the same
   bits at every width.
   ctest: cost=10 */
#include "support/numbers.h"

/* Every 65521st float (a prime, so that all exponents meet all kinds of mantissas), and special ones. */
enum { STEP = 65521, SAMPLE = (int)(((int64_t)1 << 32) / STEP) + 1 };
static const float special[] = {0.0f,    -0.0f,    1.0f,      -1.0f,         0x1p-149f,     -0x1p-149f, 0x1.fffffcp-127f, 0x1p-126f,
                                0x1p20f, -0x1p20f, 0x1.fp19f, 0x1.921fb6p0f, 0x1.921fb6p1f, INFINITY,   -INFINITY,        NAN};
enum { SPECIALS = sizeof special / sizeof *special, COUNT = SAMPLE + SPECIALS };

static double erf_(double x) { return erf(x); }
static double gelu(double x) { return x * (0.5 * erfc(-x * sqrt(0.5))); }

/* bound: measured over all floats, gelu's where Φ is denormal.  below: the driver's functions beyond it have a bound of their own. */
typedef struct function {
    const char *name;
    clef_tensor *(*f)(clef_tensor *);
    double (*oracle)(double);
    double bound, below, bound_beyond;
} function;
static const function functions[] = {
    {"erf", clef_erf, erf_, 1.1, INFINITY, 0}, {"erfc", clef_erfc, erfc, 4.6, INFINITY, 0},
    {"gelu", clef_gelu, gelu, 8, INFINITY, 0}, {"sin", clef_sin, sin, 1.6, 0x1p20, 4},
    {"cos", clef_cos, cos, 1.6, 0x1p20, 4},    {"tan", clef_tan, tan, 3, 0x1p20, 5},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static clef_tensor *sample(clef_context *ctx, float *x) {
    for (int i = 0; i < SAMPLE; i++) x[i] = bits_float((uint32_t)((int64_t)i * STEP));
    memcpy(x + SAMPLE, special, sizeof special);
    return clef_from_host(ctx, CLEF_SHAPE(COUNT), CLEF_F32, x);
}

/* The last bit of a float of y's size. */
static double ulp_of(double y) {
    int e;
    frexp(y, &e);
    return ldexp(1, e < -125 ? -149 : e - 24);
}

/* On a device that takes denormal numbers for zeros, below is 2^-126; it may do so before and after. */
static double smallest_of(clef_context *ctx) {
    clef_tensor *t = clef_from_host(ctx, CLEF_SHAPE(1), CLEF_F32, (float[]){0x1p-140f});
    return clef_item(clef_mul_scalar(clef_mul_scalar(t, 0.5), 0x1p100)) == 0x1p-41 ? 0 : 0x1p-126;
}

static void check(const function *f, const float *x, const float *y, double flushed) {
    double worst = 0;
    for (int i = 0; i < COUNT; i++) {
        double want = f->oracle((double)x[i]), bound = fabs((double)x[i]) < f->below ? f->bound : f->bound_beyond;
        if (isnan(want) && isnan(y[i])) continue;
        double error = fabs((double)y[i] - want), ulps = error <= flushed || y[i] == (float)want ? 0 : error / ulp_of(want);
        bool sign = want != 0 || flushed > 0 || !signbit(y[i]) == !signbit(want);
        worst = fmax(worst, ulps);
        if (ulps <= bound && sign) continue;
        cr_expect(false, "%s(%a) is %a, not %a: %.2f ulp", f->name, (double)x[i], (double)y[i], want, ulps);
        break;
    }
    if (getenv("CLEF_TEST_BOUNDS")) fprintf(stderr, "%-5s %.2f ulp\n", f->name, worst);
}

Test(functions, bounds) {
    clef_context *ctx = open_seeded(1);
    static float x[COUNT];
    clef_tensor *t = clef_keep(sample(ctx, x));
    double flushed = smallest_of(ctx);
    for (int i = 0; i < FUNCTIONS; i++) {
        float *y = values(functions[i].f(t));
        check(&functions[i], x, y, flushed);
        free(y);
    }
    clef_release(t);
    clef_close(ctx);
}

/* Vectors of four give the bits of the device's own, up to where the functions are not the driver's. */
Test(functions, widths) {
    clef_context *ctx[] = {open_seeded(1), open_or_skip(&(clef_options){.profile = "minimal"})};
    static float x[COUNT];
    for (int i = 0; i < FUNCTIONS; i++) {
        float *y[2];
        for (int k = 0; k < 2; k++) y[k] = values(functions[i].f(sample(ctx[k], x)));
        for (int j = 0; j < COUNT; j++) {
            if (!(fabs((double)x[j]) < functions[i].below) || float_bits(y[0][j]) == float_bits(y[1][j])) continue;
            cr_expect(false, "%s(%a) is %a and %a", functions[i].name, (double)x[j], (double)y[0][j], (double)y[1][j]);
            break;
        }
        free(y[0]), free(y[1]);
    }
    clef_close(ctx[0]), clef_close(ctx[1]);
}
