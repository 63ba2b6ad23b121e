/* functions.h — functions of floats for the texts of pointwise_math.h, where a driver's own go lane by lane.

   LET(f, y, x) declares y = f(x) and values on the way to it, y_a, y_b …  For float it is straight-line code for a vector T of W
   lanes: additions, products, fma, one division at most, and integers made from the bits.  No product meets an addition outside
   fma, so every driver computes the same bits, at every width.  For double it is the driver's function.
   All errors are in ulp, measured over all 2^32 floats against the functions of double. */
#define LET(f, y, x) CAT(LET_##f##_, ELEMENT)(y, x)
#define RETURN_FUNCTION(f, x) LET(f, value, x) return value;

/* a + b·x + c·x² …, the innermost product first. */
#define POLYNOMIAL_2(x, a, b) fma(x, K(b), K(a))
#define POLYNOMIAL_3(x, a, ...) fma(x, POLYNOMIAL_2(x, __VA_ARGS__), K(a))
#define POLYNOMIAL_4(x, a, ...) fma(x, POLYNOMIAL_3(x, __VA_ARGS__), K(a))
#define POLYNOMIAL_5(x, a, ...) fma(x, POLYNOMIAL_4(x, __VA_ARGS__), K(a))
#define POLYNOMIAL_6(x, a, ...) fma(x, POLYNOMIAL_5(x, __VA_ARGS__), K(a))
#define POLYNOMIAL_7(x, a, ...) fma(x, POLYNOMIAL_6(x, __VA_ARGS__), K(a))
#define POLYNOMIAL_8(x, a, ...) fma(x, POLYNOMIAL_7(x, __VA_ARGS__), K(a))
#define POLYNOMIAL_9(x, a, ...) fma(x, POLYNOMIAL_8(x, __VA_ARGS__), K(a))
#define POLYNOMIAL_10(x, a, ...) fma(x, POLYNOMIAL_9(x, __VA_ARGS__), K(a))

/* A float of this size has no fraction: adding it rounds, and the whole number stands in the last bits of the sum. */
#define ROUNDING 0x1.8p23f
#define BITS(x) AS_(int, W)(x)
#define FROM_BITS(i) AS_(float, W)(i)
#define WITH_SIGN(y, x) FROM_BITS(BITS(y) | (BITS(x) & INT_MIN)) /* y >= 0 */
#define LOWERED_TO(x, bound) SEL((x) > K(bound), K(bound), x) /* NaN stays */

/* ---- the error function and its kin ----
   e^-(h + rest) for 0 <= h < 106 and a small rest: e^-h = 2^n·e^r with n whole and |r| <= ln2 / 2, degree 6.  n gets an offset,
   so that 2^n is a normal float and the last product alone may be rounded to a denormal one. */
#define LET_EXP_MINUS(y, h, rest)                                                                \
    const T y##_t = fma(h, K(-1.44269502f), K(ROUNDING + 157)), y##_n = y##_t - K(ROUNDING + 157); \
    const T y##_r = fma(y##_n, K(1.90465421e-9f), fma(y##_n, K(-0.693147182f), -(h))) - (rest);  \
    const T y##_p = POLYNOMIAL_7(y##_r, 1, 1, 0.49999994f, 0.166665211f, 0.0416682921f, 0.00836871564f, 0.00138186989f); \
    const T y = y##_p * FROM_BITS(BITS(y##_t) << 23) * K(0x1p-30f);

/* e^(u²)·erfc(u) for 0 <= u <= 10.3: (1 - q)·(degree 9 in q) with q = (u - 3) / (u + 3), which one step of Newton's makes exact. */
#define LET_ERFCX(y, u)                                                                          \
    const T y##_s = K(1) / ((u) + K(3)), y##_c = fma(y##_s, K(-6), K(1));                        \
    const T y##_q = fma(y##_s, fma(-y##_c, u, fma(y##_c + K(1), K(-3), u)), y##_c);              \
    const T y##_p = POLYNOMIAL_10(y##_q, 0.179001153f, -0.147232413f, 0.0983713046f, -0.0517443717f, 0.0199222788f, \
                                  -0.00447290251f, -0.000206824887f, 0.000511793012f, -7.81638373e-05f, -5.23550261e-05f); \
    const T y = fma(-y##_q, y##_p, y##_p);

/* e^(-x²) and e^(x²)·erfc(|x|); the square is exact, its last half being the rest. */
#define LET_ERFC_FACTORS(y, x)                                                                   \
    const T y##_a = LOWERED_TO(fabs(x), 10.25f), y##_h = y##_a * y##_a;                          \
    LET_EXP_MINUS(y##_e, y##_h, fma(y##_a, y##_a, -y##_h))                                       \
    LET_ERFCX(y##_f, y##_a)

#define LET_ERFC_double(y, x) const T y = erfc(x);
#define LET_ERFC_float(y, x)                                                                     \
    LET_ERFC_FACTORS(y, x)                                                                       \
    const T y = SEL(x < K(0), fma(-y##_e, y##_f, K(2)), y##_e * y##_f);

/* Up to 1 a polynomial: x + x·(degree 6 in x²). */
#define LET_ERF_double(y, x) const T y = erf(x);
#define LET_ERF_float(y, x)                                                                      \
    LET_ERFC_FACTORS(y, x)                                                                       \
    const T y##_z = (x) * (x);                                                                   \
    const T y##_p = POLYNOMIAL_7(y##_z, 0.128379166f, -0.37612626f, 0.112835787f, -0.0268533472f, 0.0051871622f, \
                                 -0.00079978531f, 7.80690316e-05f);                              \
    const T y = SEL(fabs(x) < K(1), fma(x, y##_p, x), WITH_SIGN(fma(-y##_e, y##_f, K(1)), x));

/* The normal distribution's CDF, erfc(-x / √2) / 2, and on the way to it y_e = e^(-x²/2). */
#define LET_PHI_double(y, x) const T y##_e = exp(K(-0.5f) * (x) * (x)), y = K(0.5f) * erfc(-(x) * SQRT1_2);
#define LET_PHI_float(y, x)                                                                      \
    const T y##_a = LOWERED_TO(fabs(x), 14.5f), y##_b = K(0.5f) * y##_a, y##_h = y##_a * y##_b;  \
    LET_EXP_MINUS(y##_e, y##_h, fma(y##_a, y##_b, -y##_h))                                       \
    const T y##_u = y##_a * SQRT1_2;                                                             \
    LET_ERFCX(y##_f, y##_u)                                                                      \
    const T y##_g = K(0.5f) * y##_f;                                                             \
    const T y = SEL(x > K(0), fma(-y##_e, y##_g, K(1)), y##_e * y##_g);

/* ---- circular functions ----
   |x| = n·π/2 + r with n whole and |r| <= π/4 or a little more.  π/2 comes in three floats: the first difference is exact, as both
   its terms are multiples of the last bit of the first float.  y_s = sin(r), degree 7, y_c = cos(r), degree 8; y_q: n in the last
   bits.  For |x| < 2^20; beyond that the values mean nothing. */
#define LET_QUARTERS(y, x)                                                                       \
    const T y##_t = fma(fabs(x), K(0.636619747f), K(ROUNDING)), y##_n = y##_t - K(ROUNDING);     \
    const T y##_1 = fma(y##_n, K(-1.57079637f), fabs(x));                                        \
    const T y##_r = fma(y##_n, K(1.71512451e-15f), fma(y##_n, K(4.37113883e-8f), y##_1)), y##_z = y##_r * y##_r; \
    const T y##_s = fma(y##_r * y##_z, POLYNOMIAL_3(y##_z, -0.166666538f, 0.00833209511f, -0.0001950554f), y##_r); \
    const T y##_c = POLYNOMIAL_5(y##_z, 1, -0.5f, 0.0416666418f, -0.00138871302f, 2.44120856e-05f); \
    const I y##_q = BITS(y##_t), y##_odd = (y##_q & 1) != 0;
#define NEGATED_IF(bit, y) FROM_BITS(BITS(y) ^ ((bit) << 31))
#define SIGN_OF(x) (BITS(x) >> 31 & 1)

#define LET_SIN_SMALL(y, x) LET_QUARTERS(y, x) const T y = NEGATED_IF(SIGN_OF(x) ^ y##_q >> 1, SEL(y##_odd, y##_c, y##_s));
#define LET_COS_SMALL(y, x) LET_QUARTERS(y, x) const T y = NEGATED_IF((y##_q + 1) >> 1, SEL(y##_odd, y##_s, y##_c));
#define LET_TAN_SMALL(y, x)                                                                      \
    LET_QUARTERS(y, x)                                                                           \
    const T y = NEGATED_IF(SIGN_OF(x) ^ y##_q, SEL(y##_odd, y##_c, y##_s) / SEL(y##_odd, y##_s, y##_c));
