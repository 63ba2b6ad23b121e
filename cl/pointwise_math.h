/* pointwise_math.h — what the texts of the op tables are made of; the last part of common.h.

   In pointwise text: T is the computing type (a vector of W), ELEMENT the type of one lane (float, double, int or long), I the
   mask type.  K(0.5): a constant.  SEL(c, a, b): c ? a : b lane by lane, c from a comparison.  BOOL(c): a comparison as 0 or 1.
   MASK(b): a truth value (0 or 1) as a condition for SEL.
   A text is an expression, or one macro RETURN_… that is the whole body of a function. */
#ifndef CLEF_POINTWISE_MATH_H
#define CLEF_POINTWISE_MATH_H
#define K(c) ((T)(c))
#define SEL(c, a, b) SELECT_((T)(b), (T)(a), c)
#define SELECT_(b, a, c) ((c) ? (a) : (b))
#define BOOL(c) (CONVERT(int, W)(c) & 1)
#define MASK(b) (CONVERT_I(b) != 0)

/* A constant in full precision of f64 without a double literal: m / 2^e, m of 53 bits. */
#define FIX53(m, scale) (K(m) * K(scale))
#define SQRT1_2 FIX53(6369051672525773L, 0x1p-53f)
#define INV_SQRT2PI FIX53(7186705221432913L, 0x1p-54f)
#define SQRT2_PI FIX53(7186705221432913L, 0x1p-53f)
#define TWO_SQRTPI FIX53(5081767996463981L, 0x1p-52f)
#define LN2 FIX53(6243314768165359L, 0x1p-53f)
#define INV_LN2 FIX53(6497320848556798L, 0x1p-52f)
#define INV_LN10 FIX53(7823553867474189L, 0x1p-54f)
#define SELU_SCALE FIX53(4731936575131954L, 0x1p-52f)
#define SELU_BOTH FIX53(7917775536320560L, 0x1p-52f) /* scale times alpha */
#define GELU_CUBIC FIX53(6444110634811895L, 0x1p-57f)

/* x kept within ±bound; NaN stays NaN. */
#define WITHIN(x, bound) SEL((x) > K(bound), K(bound), SEL((x) < K(-(bound)), K(-(bound)), x))

#include "functions.h"

/* ---- circular functions: factor·f(x) ----
   Large floats need a reduction with many digits of π, which is the driver's; it gets those lanes apart from the others, as on some
   drivers one such lane sends all lanes that way, which is wrong for small ones. */
#define RETURN_CIRCULAR(factor, f, x) CAT(RETURN_CIRCULAR_, ELEMENT)(factor, ALONE_##f, LET_##f, x)
#define RETURN_CIRCULAR_double(factor, f, let, x) return factor * f(x);
#define RETURN_CIRCULAR_float(factor, f, let, x)                                                 \
    const I large = fabs(x) >= K(0x1p20f);                                                       \
    CAT(CIRCULAR_, SOURCE_float)(factor, f, let, x)
#define CIRCULAR_OWN(factor, f, let, x)                                                          \
    let(small, x)                                                                                \
    if (CAT(ANY_, W)(large)) return factor * SEL(large, f(SEL(large, x, K(0x1p30f))), small);    \
    return factor * small;
#define CIRCULAR_DRIVER(factor, f, let, x)                                                       \
    if (CAT(ANY_, W)(large)) return factor * SEL(large, f(SEL(large, x, K(0x1p30f))), f(SEL(large, K(0), x))); \
    return factor * f(x);
#define LET_sin LET_SIN_SMALL
#define LET_cos LET_COS_SMALL
#define LET_tan LET_TAN_SMALL
#define ALONE_sin(x) sin(x)
#define ALONE_tan(x) tan(x)
/* cos of what no compiler can tell to be x: some compute sin(x) and cos(x) that meet in a kernel by one function with other last bits,
   and a value would depend on what it was fused with.  Only x = -0 changes (to +0), for which the cosine is the same. */
#define ALONE_cos(x) cos((x) + K(0))
/* any() of a vector of int, which some drivers ask lane by lane. */
#define ANY_16(c) ANY_8((c).lo | (c).hi)
#define ANY_8(c) ANY_4(((c).lo | (c).hi))
#define ANY_4(c) ((as_long2(c).x | as_long2(c).y) != 0)
#define ANY_1(c) (c)

/* ---- whole numbers: quotients, remainders, powers ----
   Defined for all operands, as in NumPy: x / 0 and x % 0 are 0, the least number / -1 wraps to itself. */
#define LEAST_int INT_MIN
#define LEAST_long LONG_MIN
#define LEAST K(CAT(LEAST_, ELEMENT))
#define DIVISOR(a, b) SEL((b == K(0)) | ((b == K(-1)) & (a == LEAST)), K(1), b)
/* Is r, a remainder with the sign of the dividend, on the other side of 0 than b? */
#define OPPOSITE(r, b) ((r != K(0)) & ((r < K(0)) != (b < K(0))))

/* LET_FMOD: r, the remainder with the sign of the dividend. */
#define LET_FMOD(r, a, b) CAT(LET_FMOD_, ELEMENT)(r, a, b)
#define LET_FMOD_float(r, a, b) const T r = fmod(a, b);
#define LET_FMOD_double(r, a, b) LANE_BY_LANE(r, fmod, a, b)
#define LET_FMOD_int(r, a, b) const T r = a % DIVISOR(a, b);
#define LET_FMOD_long(r, a, b) LET_FMOD_int(r, a, b)
/* Of double vectors some drivers spoil lanes: all that stand beside a zero, infinity or NaN, and some of small numbers. */
#define LANE_BY_LANE(r, f, a, b)                                                                 \
    double r##_x[W];                                                                             \
    double r##_y[W];                                                                             \
    CAT(VSTORE_, W)(a, r##_x);                                                                   \
    CAT(VSTORE_, W)(b, r##_y);                                                                   \
    for (int k = 0; k < W; k++) r##_x[k] = f(r##_x[k], r##_y[k]);                                \
    const T r = CAT(VLOAD_, W)(r##_x);

#define RETURN_FMOD(a, b)                                                                        \
    LET_FMOD(r, a, b)                                                                            \
    return r;

#define RETURN_REMAINDER(a, b)                                                                   \
    LET_FMOD(r, a, b)                                                                            \
    return r + SEL(OPPOSITE(r, b), b, K(0));

#define RETURN_TRUNC_DIVIDE(a, b) CAT(RETURN_TRUNC_DIVIDE_, ELEMENT)(a, b)
#define RETURN_TRUNC_DIVIDE_int(a, b) return SEL(b == K(0), K(0), a / DIVISOR(a, b));
#define RETURN_TRUNC_DIVIDE_long(a, b) RETURN_TRUNC_DIVIDE_int(a, b)
/* From the exact remainder, as a / b may round up to a whole number; where there is none, from a / b. */
#define RETURN_TRUNC_DIVIDE_float(a, b)                                                          \
    LET_FMOD(r, a, b)                                                                            \
    return SEL(r != r, trunc(a / b), rint((a - r) / b));
#define RETURN_TRUNC_DIVIDE_double(a, b) RETURN_TRUNC_DIVIDE_float(a, b)

#define RETURN_FLOOR_DIVIDE(a, b) CAT(RETURN_FLOOR_DIVIDE_, ELEMENT)(a, b)
#define RETURN_FLOOR_DIVIDE_int(a, b)                                                            \
    const T d = DIVISOR(a, b);                                                                   \
    const T r = a % d;                                                                           \
    return SEL(b == K(0), K(0), a / d - SEL(OPPOSITE(r, d), K(1), K(0)));
#define RETURN_FLOOR_DIVIDE_long(a, b) RETURN_FLOOR_DIVIDE_int(a, b)
#define RETURN_FLOOR_DIVIDE_float(a, b)                                                          \
    LET_FMOD(r, a, b)                                                                            \
    return SEL(b == K(0), a / b, rint((a - r) / b) - SEL(OPPOSITE(r, b), K(1), K(0)));
#define RETURN_FLOOR_DIVIDE_double(a, b) RETURN_FLOOR_DIVIDE_float(a, b)

/* Powers of whole numbers wrap; those with a negative exponent are 1 / a^|b| towards 0, and 0 for a = 0.  any() asks for the
   sign bit, which -n has as long as bits are left. */
#define RETURN_POWER(a, b) CAT(RETURN_POWER_, ELEMENT)(a, b)
#define RETURN_POWER_float(a, b)                                                                 \
    LET_POWER_BY_PRODUCTS(y, a, b)                                                               \
    if (CAT(ANY_, W)(y_other)) {                                                                 \
        CAT(LET_POW_, SOURCE_float)(z, a, b)                                                     \
        return SEL(y_other, z, y);                                                               \
    }                                                                                            \
    return y;
#define RETURN_POWER_double(a, b)                                                                \
    LET_POWER_BY_PRODUCTS(y, a, b)                                                               \
    if (CAT(ANY_, W)(CONVERT(int, W)(y_other))) {                                                \
        LANE_BY_LANE(r, pow, a, b)                                                               \
        return SEL(y_other, r, y);                                                               \
    }                                                                                            \
    return y;
/* Of floats, y = a^b for the exponents that most powers have, -3 to 4 and whole: products of a, or of 1/a, as a's own may overflow
   where 1 over them is not 0.  3.33 ulp.  y_other: lanes whose exponent is another.  What a lane gets depends on its own
   exponent alone. */
#define ROUNDED_float(b) ((b) + K(ROUNDING) - K(ROUNDING)) /* where it matters, |b| is small; rint takes long on some drivers */
#define ROUNDED_double(b) rint(b)
#define LET_POWER_BY_PRODUCTS(y, a, b)                                                           \
    const T y##_n = fabs(b);                                                                     \
    const I y##_other = (y##_n > K(4)) | (b < K(-3)) | (CAT(ROUNDED_, ELEMENT)(b) != b);         \
    const T y##_1 = SEL(b < K(0), K(1) / a, a), y##_2 = y##_1 * y##_1;                           \
    const T y##_even = SEL(y##_n == K(4), y##_2 * y##_2, SEL(y##_n >= K(2), y##_2, K(1)));       \
    const T y = SEL((y##_n == K(1)) | (y##_n == K(3)), y##_even * y##_1, y##_even);
#define RETURN_POWER_int(a, b)                                                                   \
    VEC(CAT(u, ELEMENT), W) base = AS_(CAT(u, ELEMENT), W)(a);                                   \
    VEC(CAT(u, ELEMENT), W) y = 1;                                                               \
    for (T n = max(b, K(0)); any(-n); n >>= 1, base *= base) y = (n & K(1)) != K(0) ? y * base : y; \
    const T inverse = SEL(a == K(1), K(1), SEL(a == K(-1), K(1) - K(2) * (b & K(1)), K(0)));     \
    return SEL(b < K(0), inverse, AS_(ELEMENT, W)(y));
#define RETURN_POWER_long(a, b) RETURN_POWER_int(a, b)

/* Floats (of type t) on their way to whole numbers: 0 for NaN, of which not every driver's saturating conversion makes 0; the low
   8 bits without the fraction, NaN for what is not finite. */
#define OR_ZERO(t, x) SELECT_((t)(0), x, (x) == (x))
#define LOW_BYTE(t, x) (trunc(x) - (t)(256) * floor(trunc(x) / (t)(256)))

/* ---- activations ----
   Derivatives are written without terms of the kind 1 - tanh², which depend on how exactly tanh ends at 1, and with x kept where
   its factor has long become 0, so that no product overflows. */
/* The normal distribution's PDF; its CDF Φ is PHI of functions.h. */
#define PDF(x) (INV_SQRT2PI * exp(K(-0.5f) * (x) * (x)))
#define SIGMOID(x) (K(1) / (K(1) + exp(-(x))))
/* a·sigmoid(v), without a product. */
#define RETURN_SIGMOID_OF(a, v)                                                                  \
    const T minus = -(v);                                                                        \
    LET(EXP, e, minus) return (a) / (K(1) + e);
/* Of v, which is evaluated often: s = sigmoid(v) and r = sigmoid(-v), from one exponential that does not overflow; 0 where it would be
   less than the least normal number, as CPUs take a hundred cycles for a product with such a one. */
#define LEAST_EXPONENT_float -87
#define LEAST_EXPONENT_double -708
#define SIGMOIDS(v)                                                                              \
    const T least = K(CAT(LEAST_EXPONENT_, ELEMENT));                                            \
    const T minus = SEL(-fabs(v) < least, least, -fabs(v));                                      \
    LET(EXP, power, minus)                                                                       \
    const T e = SEL(minus > least, power, power - power);                                        \
    const T whole = K(1) / (K(1) + e);                                                           \
    const T s = SEL(v > K(0), K(1), e) * whole;                                                  \
    const T r = SEL(v > K(0), e, K(1)) * whole;
#define RETURN_SILU_D1(x, g) SIGMOIDS(x) return g * s * (K(1) + x * r);
#define RETURN_SILU_D2(x, g) SIGMOIDS(x) return g * s * r * (K(2) + x * (r - s));
#define SOFTPLUS(x) (fmax(x, K(0)) + log1p(exp(-fabs(x))))
#define RETURN_GELU(x) LET(PHI, phi, x) return x * phi;
#define RETURN_GELU_D1(x, g) LET(PHI, phi, x) return g * (phi + x * (INV_SQRT2PI * phi_e));
#define GELU_D2(x) (PDF(x) * (K(2) - WITHIN(x, 64) * WITHIN(x, 64)))
/* The tanh approximation of gelu is x·s(v) with the sigmoid s and v = 2·√(2/π)·(x + 0.044715·x³). */
#define GELU_V(x) (K(2) * SQRT2_PI * (x) * (K(1) + GELU_CUBIC * (x) * (x)))
#define GELU_DV(x) (K(2) * SQRT2_PI * (K(1) + K(3) * GELU_CUBIC * (x) * (x)))
#define GELU_DDV(x) (K(12) * SQRT2_PI * GELU_CUBIC * (x))
#define RETURN_GELU_TANH_D1(x, g)                                                                \
    const T z = WITHIN(x, 32);                                                                   \
    const T v = GELU_V(z);                                                                       \
    SIGMOIDS(v) return g * s * (K(1) + z * r * GELU_DV(z));
#define RETURN_GELU_TANH_D2(x, g)                                                                \
    const T z = WITHIN(x, 32);                                                                   \
    const T v = GELU_V(z);                                                                       \
    const T d = GELU_DV(z);                                                                      \
    SIGMOIDS(v) return g * s * r * (K(2) * d + z * (GELU_DDV(z) + d * d * (r - s)));
/* tanh(softplus(x)) = 1 - 2/(1 + (1 + eˣ)²), from e = exp(-|x|) as t/w with positive terms only. */
#define MISH_TERMS(x)                                                                            \
    const T e = exp(-fabs(x));                                                                   \
    const T w = SEL(x > K(0), K(1) + K(2) * e * (K(1) + e), e * (e + K(2)) + K(2));              \
    const T t = SEL(x > K(0), K(1) + K(2) * e, e * (e + K(2))) / w;
#define RETURN_MISH(x) MISH_TERMS(x) return x * t;
/* With s = sigmoid(x) and u = 1 - t²: mish' = t + x·s·u, mish'' = u·s·(2 + x·(1 - s - 2·t·s)). */
#define MISH_SLOPES(x)                                                                           \
    const T z = WITHIN(x, 1024);                                                                 \
    MISH_TERMS(z)                                                                                \
    const T s = SEL(z > K(0), K(1), e) / (K(1) + e);                                             \
    const T q = (K(1) + e) / w;                                                                  \
    const T u = SEL(z > K(0), K(4) * e * e, K(4)) * q * q;
#define RETURN_MISH_D1(x, g) MISH_SLOPES(x) return g * (t + z * s * u);
#define RETURN_MISH_D2(x, g) MISH_SLOPES(x) return g * u * s * (K(2) + z * (K(1) - s - K(2) * t * s));
#endif
