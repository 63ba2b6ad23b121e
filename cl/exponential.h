/* exponential.h — the exponential of what is not above 0, for the kernels of softmax and attention: DEFINE_EXP(n) gives
   OF_PART(exp_float) of n lanes. */
/* e^x for x ≤ 0, to the last bit or the one before it; 0 where a float would lose digits.  Half the work of exp, which must
   answer for every x: 2^k is put together from k's bits, which adding 1.5 · 2^23 brings to the end of a float. */
#define ROUNDER 12582912.0f
#define DEFINE_EXP(n)                                                                            \
    VEC(float, n) OF_PART(CAT(exp_float, n))(VEC(float, n) x) {                                     \
        VEC(float, n) t = fma(x, (VEC(float, n))(1.44269504f), (VEC(float, n))(ROUNDER)), k = t - ROUNDER; \
        VEC(float, n) r = fma(k, (VEC(float, n))(-1.42860677e-6f), fma(k, (VEC(float, n))(-0.693145752f), x)); \
        VEC(float, n) p = fma(r, (VEC(float, n))(1.37462188e-3f), (VEC(float, n))(8.37034732e-3f)); \
        p = fma(r, p, (VEC(float, n))(4.16697636e-2f));                                          \
        p = fma(r, p, (VEC(float, n))(1.66665062e-1f));                                          \
        p = fma(r, p, (VEC(float, n))(4.99999881e-1f));                                          \
        p = fma(r, p, (VEC(float, n))(1));                                                       \
        p = fma(r, p, (VEC(float, n))(1));                                                       \
        p *= AS_(float, n)((AS_(int, n)(t) << 23) + 0x3f800000);                                 \
        return x < -87.3f ? (VEC(float, n))(0) : p;                                              \
    }
