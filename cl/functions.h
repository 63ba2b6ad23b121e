/* functions.h — functions of floats for the texts of pointwise_math.h, where a driver's own go lane by lane.

   LET(f, y, x) declares y = f(x) and values on the way to it, y_a, y_b …  For float it is straight-line code for a vector T of W
   lanes: additions, products, fma, one division at most, and integers made from the bits.  No product meets an addition outside
   fma, so the bits depend neither on what a compiler contracts nor on the width.  For double it is the driver's function.
   Errors are in ulp, the largest of all floats from 2^-27 to 2^20 in size, of both signs, unless another is named, against the functions
   of double. */
#define LET(f, y, x) CAT(LET_##f##_, CAT(SOURCE_, ELEMENT))(y, x)
#define RETURN_FUNCTION(f, x) LET(f, value, x) return value;

/* Where fma is one instruction.  Elsewhere it is a call or a hundred instructions, and the driver's functions are better. */
#if defined(FP_FAST_FMAF) || defined(__FMA__)
#define OWN_FUNCTIONS 1
#define SOURCE_float OWN
#else
#define OWN_FUNCTIONS 0
#define SOURCE_float DRIVER
#endif
#define SOURCE_double DRIVER

/* a + b·x + c·x² …, the innermost product first. */
#define POLYNOMIAL_2(x, a, b) fma(x, K(b), K(a))
#define POLYNOMIAL_3(x, a, b, c) fma(x, POLYNOMIAL_2(x, b, c), K(a))
#define POLYNOMIAL_4(x, a, b, c, d) fma(x, POLYNOMIAL_3(x, b, c, d), K(a))
#define POLYNOMIAL_5(x, a, b, c, d, e) fma(x, POLYNOMIAL_4(x, b, c, d, e), K(a))
#define POLYNOMIAL_6(x, a, b, c, d, e, f) fma(x, POLYNOMIAL_5(x, b, c, d, e, f), K(a))
#define POLYNOMIAL_7(x, a, b, c, d, e, f, g) fma(x, POLYNOMIAL_6(x, b, c, d, e, f, g), K(a))
#define POLYNOMIAL_8(x, a, b, c, d, e, f, g, h) fma(x, POLYNOMIAL_7(x, b, c, d, e, f, g, h), K(a))
#define POLYNOMIAL_9(x, a, b, c, d, e, f, g, h, i) fma(x, POLYNOMIAL_8(x, b, c, d, e, f, g, h, i), K(a))
#define POLYNOMIAL_10(x, a, b, c, d, e, f, g, h, i, j) fma(x, POLYNOMIAL_9(x, b, c, d, e, f, g, h, i, j), K(a))

/* A float of this size has no fraction: adding it rounds, and the whole number stands in the last bits of the sum. */
#define ROUNDING 0x1.8p23f
#define BITS(x) AS_(int, W)(x)
#define FROM_BITS(i) AS_(float, W)(i)
#define WITH_SIGN(y, x) FROM_BITS(BITS(y) | (BITS(x) & INT_MIN)) /* y >= 0 */
#define LOWERED_TO(x, bound) SEL((x) > K(bound), K(bound), x) /* NaN stays */
#define RAISED_TO(x, bound) SEL((x) < K(bound), K(bound), x)

/* ---- the error function and its kin ----
   unit·e^-(h + rest) for 0 <= h < 106 and a small rest: e^-h = 2^n·e^r with n whole and |r| <= ln2 / 2, degree 6.  n gets an offset,
   so that 2^n is a normal float and the last product alone may be rounded to a denormal one. */
#define LET_EXP_MINUS(y, h, rest, last)                                                          \
    const T y##_t = fma(h, K(-1.44269502f), K(ROUNDING + 157)), y##_n = y##_t - K(ROUNDING + 157); \
    const T y##_r = fma(y##_n, K(1.90465421e-9f), fma(y##_n, K(-0.693147182f), -(h))) - (rest);  \
    const T y##_p = POLYNOMIAL_7(y##_r, 1, 1, 0.49999994f, 0.166665211f, 0.0416682921f, 0.00836871564f, 0.00138186989f); \
    const T y = y##_p * FROM_BITS(BITS(y##_t) << 23) * K((last) * 0x1p-30f);

/* e^(u²)·erfc(u) / 2 for 0 <= u <= 10.3, of d = u + 7/4: 1/d·(degree 9 in q) with q = (u - 7/4) / (u + 7/4).  Errors of d and
   of 1/d count twice in it at most; with 3 in place of 7/4 that would be 3.4 times, and less wants a higher degree. */
#define LET_HALF_ERFCX(y, d)                                                                     \
    const T y##_s = K(1) / (d), y##_q = fma(y##_s, K(-3.5f), K(1));                              \
    const T y##_p = POLYNOMIAL_10(y##_q, 0.498701423f, -0.303528577f, 0.089673847f, 0.00811131112f, -0.0113482988f, \
                                  -0.00146448717f, 0.00172022101f, 0.000542744587f, -0.000199121569f, -0.000112935726f); \
    const T y = y##_s * y##_p;

/* 2·e^(-x²) and e^(x²)·erfc(|x|) / 2; the square is exact, its last half being the rest. */
#define LET_ERFC_FACTORS(y, x)                                                                   \
    const T y##_a = LOWERED_TO(fabs(x), 10.25f), y##_h = y##_a * y##_a;                          \
    LET_EXP_MINUS(y##_e, y##_h, fma(y##_a, y##_a, -y##_h), 2)                                    \
    LET_HALF_ERFCX(y##_f, y##_a + K(1.75f))

/* 5.39 ulp. */
#define LET_ERFC_DRIVER(y, x) const T y = erfc(x);
#define LET_ERFC_OWN(y, x)                                                                     \
    LET_ERFC_FACTORS(y, x)                                                                       \
    const T y = SEL(x < K(0), fma(-y##_e, y##_f, K(2)), y##_e * y##_f);

/* Up to 1 a polynomial: x + x·(degree 6 in x²).  1.16 ulp. */
#define LET_ERF_DRIVER(y, x) const T y = erf(x);
#define LET_ERF_OWN(y, x)                                                                      \
    LET_ERFC_FACTORS(y, x)                                                                       \
    const T y##_z = (x) * (x);                                                                   \
    const T y##_p = POLYNOMIAL_7(y##_z, 0.128379166f, -0.37612626f, 0.112835787f, -0.0268533472f, 0.0051871622f, \
                                 -0.00079978531f, 7.80690316e-05f);                              \
    const T y = SEL(fabs(x) < K(1), fma(x, y##_p, x), WITH_SIGN(fma(-y##_e, y##_f, K(1)), x));

/* The normal distribution's CDF, erfc(-x / √2) / 2, and on the way to it y_e = e^(-x²/2).  5.56 ulp. */
#define LET_PHI_DRIVER(y, x) const T y##_e = exp(K(-0.5f) * (x) * (x)), y = K(0.5f) * erfc(-(x) * SQRT1_2);
#define LET_PHI_OWN(y, x)                                                                      \
    const T y##_a = LOWERED_TO(fabs(x), 14.5f), y##_b = K(0.5f) * y##_a, y##_h = y##_a * y##_b;  \
    LET_EXP_MINUS(y##_e, y##_h, fma(y##_a, y##_b, -y##_h), 1)                                    \
    LET_HALF_ERFCX(y##_f, fma(y##_a, SQRT1_2, K(1.75f)))                                         \
    const T y = SEL(x > K(0), fma(-y##_e, y##_f, K(1)), y##_e * y##_f);

/* ---- exponential and hyperbolic functions ----
   e^a = 2^n·y_p with n whole and |r| <= ln2 / 2, degree 6.  y_i is n. */
#define WHOLE_POWER(i) FROM_BITS(((i) + 127) << 23) /* 2^i, -126 <= i <= 127 */
#define LET_EXP_PARTS(y, a)                                                                      \
    const T y##_t = fma(a, K(1.44269502f), K(ROUNDING)), y##_n = y##_t - K(ROUNDING);            \
    const T y##_r = fma(y##_n, K(1.90465421e-9f), fma(y##_n, K(-0.693147182f), a));              \
    const T y##_p = POLYNOMIAL_7(y##_r, 1, 1, 0.49999994f, 0.166665211f, 0.0416682921f, 0.00836871564f, 0.00138186989f); \
    const I y##_i = BITS(y##_t) - BITS(K(ROUNDING));

/* 2^n in two steps, as it may be no normal float; the last one alone rounds.  0.89 ulp. */
#define LET_EXP_DRIVER(y, x) const T y = exp(x);
#define LET_EXP_OWN(y, x)                                                                        \
    const T y##_u = LOWERED_TO(x, 89), y##_a = RAISED_TO(y##_u, -104);                            \
    LET_EXP_PARTS(y, y##_a)                                                                      \
    const T y = y##_p * WHOLE_POWER(y##_i >> 1) * WHOLE_POWER(y##_i - (y##_i >> 1));

/* 1 / (1 + e^-x).  For x < -88.4 the power of two overflows to infinity, so it is 0.  2.48 ulp from -87 on. */
#define LET_SIGMOID_DRIVER(y, x) const T y = K(1) / (K(1) + exp(-(x)));
#define LET_SIGMOID_OWN(y, x)                                                                    \
    const T y##_m = -(x), y##_u = LOWERED_TO(y##_m, 89), y##_a = RAISED_TO(y##_u, -87);          \
    LET_EXP_PARTS(y, y##_a)                                                                      \
    const T y = K(1) / fma(y##_p, WHOLE_POWER(y##_i), K(1));

/* e^|x| / 2, which is finite wherever cosh is. */
#define LET_HALF_EXP(y, x)                                                                       \
    const T y##_a = LOWERED_TO(fabs(x), 90);                                                     \
    LET_EXP_PARTS(y, y##_a)                                                                      \
    const T y = y##_p * WHOLE_POWER(y##_i - 2) * K(2);

/* Up to 1 x + x³·(degree 3 in x²).  1.62 ulp. */
#define LET_SINH_DRIVER(y, x) const T y = sinh(x);
#define LET_SINH_OWN(y, x)                                                                       \
    LET_HALF_EXP(y##_h, x)                                                                       \
    const T y##_b = fabs(x), y##_z = y##_b * y##_b;                                              \
    const T y##_q = POLYNOMIAL_4(y##_z, 0.166666672f, 0.0083333496f, 0.0001983616f, 2.81695134e-06f); \
    const T y##_l = y##_h - K(0.25f) / y##_h;                                                    \
    const T y = WITH_SIGN(SEL(y##_b < K(1), fma(y##_b * y##_z, y##_q, y##_b), y##_l), x);

/* 1.35 ulp. */
#define LET_COSH_DRIVER(y, x) const T y = cosh(x);
#define LET_COSH_OWN(y, x)                                                                       \
    LET_HALF_EXP(y##_h, x)                                                                       \
    const T y = y##_h + K(0.25f) / y##_h;

/* Up to 5/8 x + x³·(degree 4 in x²), then 1 - 2 / (e^2|x| + 1).  1.36 ulp.  Drivers may end beside 1. */
#define LET_TANH_DRIVER(y, x) const T y = SEL(fabs(x) >= K(20), copysign(K(1), x), tanh(x));
#define LET_TANH_OWN(y, x)                                                                       \
    const T y##_b = fabs(x), y##_z = y##_b * y##_b, y##_c = LOWERED_TO(y##_b, 10), y##_a = y##_c + y##_c; \
    LET_EXP_PARTS(y, y##_a)                                                                      \
    const T y##_l = K(1) - K(2) / fma(y##_p, WHOLE_POWER(y##_i), K(1));                          \
    const T y##_q = POLYNOMIAL_5(y##_z, -0.333332717f, 0.133311525f, -0.053714104f, 0.0205517113f, -0.0056039053f); \
    const T y = WITH_SIGN(SEL(y##_b < K(0.625f), fma(y##_b * y##_z, y##_q, y##_b), y##_l), x);

/* ---- circular functions ----
   |x| = n·π/2 + r with n whole and |r| <= π/4 or a little more.  π/2 comes in three floats: the first difference is exact, as both
   its terms are multiples of the last bit of the first float.  y_s = sin(r), degree 7, y_c = cos(r), degree 8; y_q: n in the last
   bits.  For |x| < 2^20; beyond that the values mean nothing.  sin 1.67,
   cos 1.81, tan 3.70 ulp. */
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

/* ---- inverse circular functions ----
   atan: up to 1 x + x³·(degree 8 in x²); beyond it π/2 - atan(1/x).  1.39 ulp. */
#define HALF_PI 1.57079637f
#define HALF_PI_REST -4.37113883e-8f
#define LET_ATAN_DRIVER(y, x) const T y = atan(x);
#define LET_ATAN_OWN(y, x)                                                                     \
    const T y##_a = fabs(x);                                                                     \
    const T y##_u = SEL(y##_a > K(1), K(1), y##_a) / SEL(y##_a > K(1), y##_a, K(1)), y##_z = y##_u * y##_u; \
    const T y##_p = POLYNOMIAL_9(y##_z, -0.333332986f, 0.19998531f, -0.142640516f, 0.109511755f, -0.0840048045f, \
                                 0.0579066873f, -0.0311271884f, 0.0108874794f, -0.00178757648f); \
    const T y##_t = fma(y##_u * y##_z, y##_p, y##_u);                                            \
    const T y = WITH_SIGN(SEL(y##_a > K(1), K(HALF_PI) - y##_t + K(HALF_PI_REST), y##_t), x);

/* asin: up to 1/2 x + x³·(degree 4 in x²); beyond it π/2 - 2·asin(√((1 - x) / 2)).  y_t is the asin of |x| or of that root.
   asin 1.90, acos 1.27 ulp. */
#define LET_ARC(y, x)                                                                            \
    const I y##_large = fabs(x) > K(0.5f);                                                       \
    const T y##_z = SEL(y##_large, fma(fabs(x), K(-0.5f), K(0.5f)), (x) * (x));                  \
    const T y##_u = SEL(y##_large, sqrt(y##_z), fabs(x));                                        \
    const T y##_p = POLYNOMIAL_5(y##_z, 0.166667521f, 0.0749531016f, 0.0454690196f, 0.0241855029f, 0.042157013f); \
    const T y##_t = fma(y##_u * y##_z, y##_p, y##_u);
#define LET_ASIN_DRIVER(y, x) const T y = asin(x);
#define LET_ASIN_OWN(y, x)                                                                     \
    LET_ARC(y, x)                                                                                \
    const T y = WITH_SIGN(SEL(y##_large, fma(y##_t, K(-2), K(HALF_PI)) + K(HALF_PI_REST), y##_t), x);
#define LET_ACOS_DRIVER(y, x) const T y = acos(x);
#define LET_ACOS_OWN(y, x)                                                                     \
    LET_ARC(y, x)                                                                                \
    const T y##_v = K(HALF_PI) - WITH_SIGN(y##_t, x) + K(HALF_PI_REST);                          \
    const T y##_w = fma(y##_t, K(-2), K(2 * HALF_PI)) + K(2 * HALF_PI_REST);                     \
    const T y = SEL(y##_large, SEL(x > K(0), K(2) * y##_t, y##_w), y##_v);

/* ---- log2 and pow ----
   x = 2^e·(1 + f) with √½ <= 1 + f < √2.  A denormal x is taken 2^24 times as large. */
#define SQRT1_2_BITS 0x3f3504f3
#define LET_EXPONENT_AND_REST(y, x)                                                              \
    const I y##_small = x < K(0x1p-126f);                                                        \
    const I y##_i = BITS(SEL(y##_small, x * K(0x1p24f), x)) - SQRT1_2_BITS;                      \
    const T y##_e = CONVERT(float, W)(y##_i >> 23) - SEL(y##_small, K(24), K(0));                \
    const T y##_f = FROM_BITS((y##_i & 0x7fffff) + SQRT1_2_BITS) - K(1);

/* e + f·(degree 9 in f).  1.47 ulp. */
#define LET_LOG2_DRIVER(y, x) const T y = log2(x);
#define LET_LOG2_OWN(y, x)                                                                     \
    LET_EXPONENT_AND_REST(y, x)                                                                  \
    const T y##_p = POLYNOMIAL_10(y##_f, 1.44269502f, -0.721347511f, 0.480902225f, -0.360688299f, 0.288389623f, \
                                  -0.239646301f, 0.207414687f, -0.193522841f, 0.171481594f, -0.0874847323f); \
    const T y##_l = SEL(x == K(0), K(-INFINITY), SEL(x < K(INFINITY), fma(y##_f, y##_p, y##_e), x)); \
    const T y = SEL(x < K(0), K(NAN), y##_l);

/* log2(x) for x >= 0 as the sum of y and the far smaller y_rest, within 2^-34 of it: e + s·(c + c/3·s² + …), s = f / (2 + f), c = 2 / ln2.
   All but the last terms of the sum, from s⁵ on, are such pairs, of which the larger is named first. */
#define LET_LOG2_PAIR(y, x)                                                                      \
    LET_EXPONENT_AND_REST(y, x)                                                                  \
    const T y##_d = y##_f + K(2), y##_v = K(1) / y##_d, y##_s = y##_f * y##_v;                   \
    const T y##_s1 = fma(-y##_s, y##_f - (y##_d - K(2)), fma(-y##_s, y##_d, y##_f)) * y##_v;     \
    const T y##_z = y##_s * y##_s, y##_z1 = fma(y##_s + y##_s, y##_s1, fma(y##_s, y##_s, -y##_z)); \
    const T y##_q = POLYNOMIAL_3(y##_z, 0.57708019f, 0.411848068f, 0.337858617f);                \
    const T y##_b = fma(y##_z, y##_q, K(0.961796701f));                                          \
    const T y##_b1 = fma(y##_z, y##_q, K(0.961796701f) - y##_b) + K(-7.02846203e-9f);            \
    const T y##_c = fma(y##_z, y##_b, K(2.88539004f));                                           \
    const T y##_c1 = fma(y##_z, y##_b, K(2.88539004f) - y##_c) + fma(y##_z1, y##_b, fma(y##_z, y##_b1, K(3.851926e-8f))); \
    const T y##_l = fma(y##_s, y##_c, y##_e);                                                    \
    const T y##_rest = fma(y##_s1, y##_c, fma(y##_s, y##_c1, fma(y##_s, y##_c, y##_e - y##_l))); \
    const T y = SEL(x == K(0), K(-INFINITY), SEL(x < K(INFINITY), y##_l, x));

/* |a|^b = 2^t, t = b·log2|a| = n + r with n whole and |r| <= 1/2, degree 6; 2^n in two steps, as it may be no normal float.  No power
   with |b| > 2^31 is another than that with ±POW_MOST, nor one with |t| > 160.  y_k is b, where that is whole: an odd one keeps the
   sign of a, and a < 0 has no power with a fraction.  Not for b = 0.  0.91 ulp, the largest of 500 million pairs. */
#define POW_MOST 0x1.fffffep30f /* the largest float that is an int; even */
#define LET_POW_DRIVER(y, a, b) const T y = pow(a, b);
#define LET_POW_OWN(y, a, b)                                                                     \
    const T y##_a = fabs(a), y##_e = LOWERED_TO(b, POW_MOST), y##_b = RAISED_TO(y##_e, -POW_MOST); \
    LET_LOG2_PAIR(y##_l, y##_a)                                                                  \
    const T y##_g = y##_b * y##_l, y##_h = LOWERED_TO(y##_g, 160);                               \
    const T y##_t = RAISED_TO(y##_h, -160) + K(ROUNDING + 254), y##_n = y##_t - K(ROUNDING + 254); \
    const T y##_u = fma(y##_b, y##_l_rest, fma(y##_b, y##_l, -y##_n));                           \
    const T y##_v = LOWERED_TO(y##_u, 1), y##_r = RAISED_TO(y##_v, -1);                          \
    const T y##_p = POLYNOMIAL_7(y##_r, 1, 0.693147242f, 0.240226507f, 0.0555029735f, 0.00961803086f, 0.00134100008f, \
                                 0.000154697322f);                                               \
    const I y##_i = BITS(y##_t), y##_j = y##_i >> 1;                                             \
    const T y##_m = y##_p * FROM_BITS(y##_j << 23) * FROM_BITS((y##_i - y##_j) << 23);           \
    const I y##_k = CONVERT(int, W)(SEL((b) == (b), y##_b, K(0))), y##_whole = CONVERT(float, W)(y##_k) == y##_b; \
    const T y##_s = SEL(y##_whole, NEGATED_IF(SIGN_OF(a) & y##_k, y##_m), y##_m);                \
    const T y##_f = SEL(((a) < K(0)) & ((a) > K(-INFINITY)), SEL(y##_whole, y##_s, K(NAN)), y##_s); \
    const T y = SEL((a) == K(1), K(1), y##_f);
