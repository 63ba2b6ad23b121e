/* uses.h — the parts of common.h that a program may do without, read by the device and the host (src/runtime/uses.c).

   USES is the sum of those that it needs, everything unless it says so.  A file that calls the functions of USES_MATH defines CALLS_MATH;
   the rest the host finds in options and texts.  Drivers compile all that a program declares, called or not, and some read it once more
   in every process to find the program in their cache. */
#define USES_4 1       /* vectors of so many lanes */
#define USES_8 2
#define USES_16 4
#define USES_LONG 8    /* vectors of longs */
#define USES_DOUBLE 16 /* doubles */
#define USES_HALVES 32 /* f16 and bf16 */
#define USES_BYTES 64  /* u8 and bool */
#define USES_MATH 128  /* functions that are more than an instruction or two: exp, sin … */
#define USES_ALL 255

/* The functions of USES_MATH: of one and of two numbers, and EXPONENT: those with a number and a whole one. */
#define MATH_FUNCTIONS(ONE, TWO, EXPONENT)                                                       \
    ONE(acosh) ONE(asinh) ONE(atan) ONE(atanh) ONE(acos) ONE(asin) ONE(ceil) ONE(cos) ONE(cosh) ONE(erf) ONE(erfc) ONE(exp) \
    ONE(exp2) ONE(expm1) ONE(log) ONE(log10) ONE(log1p) ONE(log2) ONE(rint) ONE(sign) ONE(sin) ONE(sinh) ONE(tan) ONE(tanh) \
    TWO(atan2) TWO(copysign) TWO(fmod) TWO(hypot) TWO(pow) EXPONENT(ilogb) EXPONENT(ldexp)
