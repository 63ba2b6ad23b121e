/* declarations.h — the functions of OpenCL C that kernels call; a part of common.h.

   Some drivers (cl/drivers.def) read a header of 17,000 lines for every program, which takes several times as long as a program of
   Clef's.  Where they can be told not to, CLEF_DECLARES is defined, and a program declares here what it calls, in the words of that
   header: attributes are part of what the compiler makes of a call.  A user's text may call more; if it does not compile so, it gets
   the driver's header.  It must not compile to something else: of a name, all overloads that another would stand in for are
   declared.  Elsewhere this file is empty. */
#ifdef CLEF_DECLARES

/* ---- functions: X(n, f, t) for numbers (n is empty) and vectors, F(X, f) of all floating types ---- */
#define VECTORS(X, ...) X(2, __VA_ARGS__) X(4, __VA_ARGS__) X(8, __VA_ARGS__) X(16, __VA_ARGS__)
#define EACH(X, ...) X(, __VA_ARGS__) X(4, __VA_ARGS__) X(8, __VA_ARGS__) X(16, __VA_ARGS__)
#ifdef CLEF_F64
#define F(X, f) EACH(X, f, float) EACH(X, f, double)
#define EACH_ELEMENT(X) X(float) X(int) X(long) X(double)
#else
#define F(X, f) EACH(X, f, float)
#define EACH_ELEMENT(X) X(float) X(int) X(long)
#endif
#define OVERLOADED __attribute__((overloadable))
#define VALUE __attribute__((overloadable, const))
#define READING __attribute__((overloadable, pure))

VALUE size_t get_global_id(uint);
VALUE size_t get_global_size(uint);
VALUE size_t get_local_id(uint);
VALUE size_t get_group_id(uint);
OVERLOADED __attribute__((convergent)) void barrier(uint);

#define OF_1(n, f, t) VALUE t##n f(t##n);
#define OF_2(n, f, t) VALUE t##n f(t##n, t##n);
#define OF_3(n, f, t) VALUE t##n f(t##n, t##n, t##n);
F(OF_1, acosh) F(OF_1, asinh) F(OF_1, atan) F(OF_1, atanh) F(OF_1, acos) F(OF_1, asin) F(OF_1, ceil) F(OF_1, cos) F(OF_1, cosh)
F(OF_1, erf) F(OF_1, erfc) F(OF_1, exp) F(OF_1, exp2) F(OF_1, expm1) F(OF_1, fabs) F(OF_1, floor) F(OF_1, log) F(OF_1, log10)
F(OF_1, log1p) F(OF_1, log2) F(OF_1, rint) F(OF_1, rsqrt) F(OF_1, sign) F(OF_1, sin) F(OF_1, sinh) F(OF_1, sqrt) F(OF_1, tan)
F(OF_1, tanh) F(OF_1, trunc) F(OF_2, atan2) F(OF_2, copysign) F(OF_2, fmax) F(OF_2, fmin) F(OF_2, fmod) F(OF_2, hypot)
F(OF_2, pow) F(OF_3, fma)
#define OF_INTEGERS(X, f) EACH(X, f, int) EACH(X, f, long)
OF_INTEGERS(OF_2, max)
OF_INTEGERS(OF_2, min)
OF_INTEGERS(OF_3, clamp)
#define ANY(n, t) VALUE int any(t##n);
EACH(ANY, int)
EACH(ANY, long)
OF_2(, mul_hi, int)
OF_2(, mul_hi, uint)
OF_2(, mul_hi, long)
OF_2(, mul_hi, ulong)
#define EXPONENTS(f, t)                                                                          \
    VALUE int f(t);                                                                              \
    VALUE t ldexp(t, int);
EXPONENTS(ilogb, float)
#ifdef CLEF_F64
EXPONENTS(ilogb, double)
#endif

/* ---- conversions ---- */
#define TO(n, to, from) VALUE to##n convert_##to##n(from##n);
#define TO_SATURATED(n, to, from) VALUE to##n convert_##to##n##_sat(from##n);
#define FROM_ELEMENT(from) EACH(TO, int, from) EACH(TO, long, from) EACH(TO, float, from)
EACH_ELEMENT(FROM_ELEMENT)
EACH(TO, uchar, int)
EACH(TO, int, uchar)
EACH(TO, ushort, uint)
EACH(TO, uint, ushort)
EACH(TO_SATURATED, int, float)
EACH(TO_SATURATED, long, float)
#ifdef CLEF_F64
#define FROM_ELEMENT_TO_DOUBLE(from) EACH(TO, double, from)
EACH_ELEMENT(FROM_ELEMENT_TO_DOUBLE)
EACH(TO_SATURATED, int, double)
EACH(TO_SATURATED, long, double)
#endif

/* ---- memory ---- */
#define IN_SPACE(n, t, space)                                                                    \
    READING t##n vload##n(size_t, const space t *);                                              \
    OVERLOADED void vstore##n(t##n, size_t, space t *);
#define HALVES_IN_SPACE(n, space)                                                                \
    READING float##n vload_half##n(size_t, const space half *);                                  \
    OVERLOADED void vstore_half##n##_rte(float##n, size_t, space half *);
#define IN_MEMORY(t) VECTORS(IN_SPACE, t, __global) VECTORS(IN_SPACE, t, __local) VECTORS(IN_SPACE, t, __private)
EACH_ELEMENT(IN_MEMORY)
IN_MEMORY(uchar)
IN_MEMORY(uint)
IN_MEMORY(ulong)
IN_MEMORY(ushort)
EACH(HALVES_IN_SPACE, __global)
EACH(HALVES_IN_SPACE, __local)
EACH(HALVES_IN_SPACE, __private)
HALVES_IN_SPACE(2, __local)

#undef VECTORS
#undef EACH
#undef F
#undef EACH_ELEMENT
#undef OVERLOADED
#undef VALUE
#undef READING
#undef OF_1
#undef OF_2
#undef OF_3
#undef OF_INTEGERS
#undef ANY
#undef EXPONENTS
#undef TO
#undef TO_SATURATED
#undef FROM_ELEMENT
#undef FROM_ELEMENT_TO_DOUBLE
#undef IN_SPACE
#undef HALVES_IN_SPACE
#undef IN_MEMORY
#endif
