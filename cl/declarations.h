/* declarations.h — the functions of OpenCL C that kernels call; a part of common.h.

   Some drivers (cl/drivers.def) read a header of 17,000 lines for every program, which takes several times as long as a program of
   Clef's.  Where they can be told not to, CLEF_DECLARES is defined, and a program declares here what it calls, in the words of that
   header: attributes are part of what the compiler makes of a call.  A user's text may call more; if it does not compile so, it gets
   the driver's header.  It must not compile to something else: of a name, all overloads that another would stand in for are
   declared.  Elsewhere this file is empty.  Numbers come first, vectors of the widths in use. */
#ifdef CLEF_DECLARES

/* ---- functions: X(n, f, t) for numbers (n is empty) and vectors, F(X, f) of all floating types ---- */
#if USES & USES_4
#define OF_4(X, a, b) X(4, a, b)
#else
#define OF_4(X, a, b)
#endif
#if USES & USES_8
#define OF_8(X, a, b) X(8, a, b)
#else
#define OF_8(X, a, b)
#endif
#if USES & USES_16
#define OF_16(X, a, b) X(16, a, b)
#else
#define OF_16(X, a, b)
#endif
#define VECTORS(X, a, b) OF_4(X, a, b) OF_8(X, a, b) OF_16(X, a, b)
#define EACH(X, a, b) X(, a, b) VECTORS(X, a, b)
#if USES & USES_LONG
#define LONGS(X, a, b) VECTORS(X, a, b)
#else
#define LONGS(X, a, b)
#endif
#if defined(CLEF_F64) && USES & USES_DOUBLE
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

#define OF_ONE(n, f, t) VALUE t##n f(t##n);
#define OF_TWO(n, f, t) VALUE t##n f(t##n, t##n);
#define OF_THREE(n, f, t) VALUE t##n f(t##n, t##n, t##n);
F(OF_ONE, fabs) F(OF_ONE, floor) F(OF_ONE, rsqrt) F(OF_ONE, sqrt) F(OF_ONE, trunc) F(OF_TWO, fmax) F(OF_TWO, fmin)
F(OF_THREE, fma)
#if USES & USES_MATH
#define DECLARE_ONE(f) F(OF_ONE, f)
#define DECLARE_TWO(f) F(OF_TWO, f)
#define NOT_HERE(f)
MATH_FUNCTIONS(DECLARE_ONE, DECLARE_TWO, NOT_HERE)
#define EXPONENTS(f, t)                                                                          \
    VALUE int f(t);                                                                              \
    VALUE t ldexp(t, int);
EXPONENTS(ilogb, float)
#if defined(CLEF_F64) && USES & USES_DOUBLE
EXPONENTS(ilogb, double)
#endif
#endif
#define OF_INTEGERS(X, f) EACH(X, f, int) X(, f, long) LONGS(X, f, long)
OF_INTEGERS(OF_TWO, max)
OF_INTEGERS(OF_TWO, min)
OF_INTEGERS(OF_THREE, clamp)
#define TO_INT(n, f, t) VALUE int f(t##n);
EACH(TO_INT, any, int)
TO_INT(, any, long) LONGS(TO_INT, any, long)
OF_TWO(, mul_hi, int)
OF_TWO(, mul_hi, uint)
OF_TWO(, mul_hi, long)
OF_TWO(, mul_hi, ulong)

/* ---- conversions ---- */
#define TO(n, to, from) VALUE to##n convert_##to##n(from##n);
#define TO_SATURATED(n, to, from) VALUE to##n convert_##to##n##_sat(from##n);
#define NUMBER_FROM(from) TO(, int, from) TO(, long, from) TO(, float, from)
EACH_ELEMENT(NUMBER_FROM)
#define BETWEEN(X, a, b) X(TO, a, a) X(TO, a, b) X(TO, b, a) X(TO, b, b)
BETWEEN(VECTORS, int, float)
BETWEEN(LONGS, int, long)
BETWEEN(LONGS, long, float)
TO(, uchar, int) TO(, int, uchar)
TO(, ushort, uint) TO(, uint, ushort)
EACH(TO_SATURATED, int, float)
TO_SATURATED(, long, float) LONGS(TO_SATURATED, long, float)
#if USES & USES_BYTES
VECTORS(TO, uchar, int)
VECTORS(TO, int, uchar)
#endif
#if USES & USES_HALVES
VECTORS(TO, ushort, uint)
VECTORS(TO, uint, ushort)
#endif
#if defined(CLEF_F64) && USES & USES_DOUBLE
#define WITH_DOUBLE(t) VECTORS(TO, t, double) EACH(TO, double, t)
WITH_DOUBLE(int) WITH_DOUBLE(long) WITH_DOUBLE(float)
EACH(TO, double, double)
EACH(TO_SATURATED, int, double)
EACH(TO_SATURATED, long, double)
#endif

/* ---- memory ----
   Stores are made here, one for each vector: pocl's comes in parts, which take its compiler long to join. */
#define MADE_HERE static inline __attribute__((overloadable, always_inline))
#define LOOSE_VECTOR(n, t, x) typedef t##n t##n##_anywhere __attribute__((aligned(sizeof(t))));
#define IN_SPACE(n, t, space)                                                                    \
    READING t##n vload##n(size_t, const space t *);                                              \
    MADE_HERE void vstore##n(t##n v, size_t i, space t *p) { *(space t##n##_anywhere *)(p + n * i) = v; }
#define HALVES_IN_SPACE(n, t, space)                                                             \
    READING t##n vload_half##n(size_t, const space half *);                                      \
    OVERLOADED void vstore_half##n##_rte(t##n, size_t, space half *);
#define IN_MEMORY(t) VECTORS(LOOSE_VECTOR, t, ) VECTORS(IN_SPACE, t, __global) VECTORS(IN_SPACE, t, __local) VECTORS(IN_SPACE, t, __private)
#define PAIR_IN_MEMORY(t) LOOSE_VECTOR(2, t, ) IN_SPACE(2, t, __global) IN_SPACE(2, t, __local) IN_SPACE(2, t, __private)
IN_MEMORY(float)
IN_MEMORY(int)
IN_MEMORY(uint)
#if USES & USES_LONG
IN_MEMORY(long)
IN_MEMORY(ulong)
PAIR_IN_MEMORY(ulong)
#endif
#if defined(CLEF_F64) && USES & USES_DOUBLE
IN_MEMORY(double)
#endif
#if USES & USES_BYTES
IN_MEMORY(uchar)
#endif
#if USES & USES_HALVES
IN_MEMORY(ushort)
EACH(HALVES_IN_SPACE, float, __global)
EACH(HALVES_IN_SPACE, float, __local)
EACH(HALVES_IN_SPACE, float, __private)
HALVES_IN_SPACE(2, float, __local)
#endif

#undef OF_4
#undef OF_8
#undef OF_16
#undef VECTORS
#undef EACH
#undef LONGS
#undef F
#undef EACH_ELEMENT
#undef OVERLOADED
#undef VALUE
#undef READING
#undef OF_ONE
#undef OF_TWO
#undef OF_THREE
#undef EXPONENTS
#undef DECLARE_ONE
#undef DECLARE_TWO
#undef NOT_HERE
#undef OF_INTEGERS
#undef TO_INT
#undef TO
#undef TO_SATURATED
#undef NUMBER_FROM
#undef BETWEEN
#undef WITH_DOUBLE
#undef MADE_HERE
#undef LOOSE_VECTOR
#undef IN_SPACE
#undef HALVES_IN_SPACE
#undef IN_MEMORY
#undef PAIR_IN_MEMORY
#endif
