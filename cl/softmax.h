/* softmax.h — the arithmetic of softmax (LOG=0) and log-softmax (LOG=1) that all its kernels share, on A of W lanes. */
#ifndef LOG
#define LOG 0
#endif
#include "exponential.h"
DEFINE_EXP(1)
#if W > 1
DEFINE_EXP(W)
#endif
#define EXP_float(lanes, x) OF_PART(CAT(exp_float, lanes))(x)
#define EXP_double(lanes, x) exp(x)
#define EXP(lanes, x) CAT3(EXP, _, A)(lanes, x)

/* What is taken from each element before its exponential: the maximum, or 0 where there was nothing but -inf. */
#define ABOUT(top) ((top) == (A)(-INFINITY) ? (A)0 : (top))

/* From x - maximum and what `SCALE` gave. */
#if LOG
#define RESULT(lanes, d, s) ((d) - (s))
#define SCALE(sum) log(sum)
#else
#define RESULT(lanes, d, s) (EXP(lanes, d) * (s))
#define SCALE(sum) (1 / (sum))
#endif

/* dx = y (g - Σ g y), or for the logarithm g - exp(y) Σ g. */
#if LOG
#define PART(g, y) ((void)(y), (g))
#define SLOPE(lanes, g, y, s) ((g) - EXP(lanes, y) * (s))
#else
#define PART(g, y) ((g) * (y))
#define SLOPE(lanes, g, y, s) ((y) * ((g) - (s)))
#endif
