/* common.h — storage types, computing types, loads and stores, shared by every kernel.

   A dtype token is one of f32 f16 bf16 f64 i32 i64 u8 bool.  LOAD(f16, 16, p, i) reads 16 elements from p[i] on and gives a
   float16; STORE(bf16, 16, p, i, v) rounds to nearest even and writes.  Half storage needs no extension (vload_half is core). */
#ifndef CLEF_COMMON_H
#define CLEF_COMMON_H
#ifdef CLEF_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#include "uses.h"
#if !defined(USES) || !defined(CLEF_DECLARES)
#undef USES
#define USES USES_ALL
#endif
#include "declarations.h"

/* Of a part of a chain, which is linked with others; until CHAIN_PART (chained.h). */
#ifdef CHAINED_AS
#pragma clang attribute push(__attribute__((internal_linkage)), apply_to = function)
#endif

/* How a kernel begins that may become a part of a chain, where it is a function (chained.h): ENTRY(attributes) void name(PLACE_OF_ITEM …).  Its
   memory of the work-group is ROOM_OF_ITEM, once. */
#define ENTRY(attributes) __kernel attributes
#define PLACE_OF_ITEM
#define ROOM_OF_ITEM(type, name, n) __local type name[n];

/* Clang warns of a call with vectors wider than the CPU's registers, as objects made for another CPU would pass them elsewhere.  In a
   program that is compiled at once there are none, and two registers of doubles for one of floats are meant. */
#if defined(__clang__) && defined(__has_warning)
#if __has_warning("-Wpsabi")
#pragma clang diagnostic ignored "-Wpsabi"
#endif
#endif

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define CAT3_(a, b, c) a##b##c
#define CAT3(a, b, c) CAT3_(a, b, c)

/* Before a loop that is short or rare: unrolling or vectorising it would only cost compile time. */
#ifdef __clang__
#define PLAIN_LOOP _Pragma("clang loop vectorize(disable) unroll(disable)")
#else
#define PLAIN_LOOP
#endif

/* Before a function that is called seldom, where the driver is known to stand it: compiled by itself it takes less time than as a part of
   its caller. */
#ifdef CLEF_DECLARES
#define BY_ITSELF __attribute__((noinline))
#else
#define BY_ITSELF
#endif

/* Memory that will be read or written in a while; hints where the compiler makes code for a CPU (an intermediate language has
   none).  It need not exist. */
#if defined(__has_builtin) && (defined(__x86_64__) || defined(__i386__) || defined(__aarch64__) || defined(__riscv))
#if __has_builtin(__builtin_prefetch)
#define PREFETCH_READ(p) __builtin_prefetch((const void *)(size_t)(p), 0)
#define PREFETCH_WRITE(p) __builtin_prefetch((const void *)(size_t)(p), 1)
#define PREFETCH_TO_L2(p) __builtin_prefetch((const void *)(size_t)(p), 0, 2)
#endif
#endif
#ifndef PREFETCH_READ
#define PREFETCH_READ(p) (void)(p)
#define PREFETCH_WRITE(p) (void)(p)
#define PREFETCH_TO_L2(p) (void)(p)
#endif

/* A whole vector to memory that no cache can hold: written past them, as it need not be read in first then.  Only for a CPU whose
   loads and stores keep their order without being told. */
#if defined(__has_builtin) && (defined(__x86_64__) || defined(__i386__))
#if __has_builtin(__builtin_nontemporal_store)
#define STORE_PAST(p, v) __builtin_nontemporal_store(v, p)
#endif
#endif
#ifndef STORE_PAST
#define STORE_PAST(p, v) (*(p) = (v))
#endif

/* LACE(n, low, high, x, y) of vectors of n lanes: low := x0 y0 x1 y1 …, from the lower halves of x and y, high := the same from the upper
   halves.  Where the compiler can be told so, that is one instruction each.  Of even and odd parts it makes twice as many, and takes longer. */
#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)
#define LOW_2 0, 2
#define LOW_4 0, 4, 1, 5
#define LOW_8 0, 8, 1, 9, 2, 10, 3, 11
#define LOW_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_2 1, 3
#define HIGH_4 2, 6, 3, 7
#define HIGH_8 4, 12, 5, 13, 6, 14, 7, 15
#define HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define LACE(n, low, high, x, y)                                                                       \
    low = __builtin_shufflevector(x, y, CAT(LOW_, n)), high = __builtin_shufflevector(x, y, CAT(HIGH_, n));
#endif
#endif
#ifndef LACE
#define LACE(n, low, high, x, y) low.even = (x).lo, low.odd = (y).lo, high.even = (x).hi, high.odd = (y).hi;
#endif

/* VEC(float, 16) is float16, VEC(float, 1) is float. */
#define VEC_1(t) t
#define VEC_2(t) t##2
#define VEC_4(t) t##4
#define VEC_8(t) t##8
#define VEC_16(t) t##16
#define VEC_(t, n) VEC_##n(t)
#define VEC(t, n) VEC_(t, n)

/* X(n) for the vectors that there are helpers for: those in use, up to CLEF_LANES, which is what the device's profile has.
   Helpers are not static, unused or not: clang would put them into kernels earlier, and pocl then makes several times the instructions of them. */
#ifndef CLEF_LANES
#define CLEF_LANES 16
#endif
#if USES & USES_4
#define IF_4(x) x
#else
#define IF_4(x)
#endif
#if USES & USES_8 && CLEF_LANES >= 8
#define IF_8(x) x
#else
#define IF_8(x)
#endif
#if USES & USES_16 && CLEF_LANES >= 16
#define IF_16(x) x
#else
#define IF_16(x)
#endif
#define EACH_WIDTH(X) IF_4(X(4)) IF_8(X(8)) IF_16(X(16))

/* What lies in memory, and what kernels compute in. */
#define MEMORY_f32 float
#define MEMORY_f16 half
#define MEMORY_bf16 ushort
#define MEMORY_f64 double
#define MEMORY_i32 int
#define MEMORY_i64 long
#define MEMORY_u8 uchar
#define MEMORY_bool uchar
#define MEMORY(dt) CAT(MEMORY_, dt)
#define COMPUTE_f32 float
#define COMPUTE_f16 float
#define COMPUTE_bf16 float
#define COMPUTE_f64 double
#define COMPUTE_i32 int
#define COMPUTE_i64 long
#define COMPUTE_u8 int
#define COMPUTE_bool int
#define COMPUTE(dt) CAT(COMPUTE_, dt)
/* x·y + z in a dtype's computing type. */
#define FMA_f32(x, y, z) fma(x, y, z)
#define FMA_f16(x, y, z) fma(x, y, z)
#define FMA_bf16(x, y, z) fma(x, y, z)
#define FMA_f64(x, y, z) fma(x, y, z)
#define FMA_i32(x, y, z) ((x) * (y) + (z))
#define FMA_i64(x, y, z) ((x) * (y) + (z))
/* The integer type as wide as a computing type: what comparisons of vectors give. */
#define MASK_float int
#define MASK_double long
#define MASK_int int
#define MASK_long long

/* Plain vector loads go through vloadn (no alignment needed beyond the element's). */
#define VLOAD_1(p) (*(p))
#define VLOAD_2(p) vload2(0, p)
#define VLOAD_4(p) vload4(0, p)
#define VLOAD_8(p) vload8(0, p)
#define VLOAD_16(p) vload16(0, p)
#define VSTORE_1(v, p) (*(p) = (v))
#define VSTORE_2(v, p) vstore2(v, 0, p)
#define VSTORE_4(v, p) vstore4(v, 0, p)
#define VSTORE_8(v, p) vstore8(v, 0, p)
#define VSTORE_16(v, p) vstore16(v, 0, p)
#define HLOAD_1(p) vload_half(0, p)
#define HLOAD_2(p) vload_half2(0, p)
#define HLOAD_4(p) vload_half4(0, p)
#define HLOAD_8(p) vload_half8(0, p)
#define HLOAD_16(p) vload_half16(0, p)
#define HSTORE_1(v, p) vstore_half_rte(v, 0, p)
#define HSTORE_2(v, p) vstore_half2_rte(v, 0, p)
#define HSTORE_4(v, p) vstore_half4_rte(v, 0, p)
#define HSTORE_8(v, p) vstore_half8_rte(v, 0, p)
#define HSTORE_16(v, p) vstore_half16_rte(v, 0, p)
#define CONVERT_(t, n) CAT(convert_, VEC(t, n))
#define CONVERT(t, n) CONVERT_(t, n)
#define AS_(t, n) CAT(as_, VEC(t, n))

#define LOAD_f16(n, p) CAT(half_load_, n)(p)
#define LOAD_bf16(n, p) AS_(float, n)(CONVERT(uint, n)(LOAD_SHORT(n, p)) << 16)
#define LOAD_f64(n, p) VLOAD_##n(p)
#define LOAD_i32(n, p) VLOAD_##n(p)
#define LOAD_i64(n, p) VLOAD_##n(p)
#define LOAD_u8(n, p) CONVERT(int, n)(LOAD_BYTE(n, p))
#define LOAD_bool(n, p) CONVERT(int, n)(LOAD_BYTE(n, p))
#define LOAD_(dt, n, p) LOAD_##dt(n, p)
#define LOAD(dt, n, p, i) LOAD_(dt, n, (p) + (i))

#ifdef CLEF_WIDE
/* A vector through a pointer to global memory that promises only the element's alignment: one load or store, where vload16 comes
   in parts (on which compilers then compute where two such vectors meet) and vstore16 goes in four, or in 16 if they are bytes. */
#define DEFINE_LOOSE(t, bytes)                                                                   \
    typedef t t##1_loose;                                                                        \
    typedef t##4 t##4_loose __attribute__((aligned(bytes)));                                     \
    typedef t##8 t##8_loose __attribute__((aligned(bytes)));                                     \
    typedef t##16 t##16_loose __attribute__((aligned(bytes)));
DEFINE_LOOSE(float, 4)
DEFINE_LOOSE(ushort, 2)
DEFINE_LOOSE(uchar, 1)
#define LOOSE(t, n, p) (*(__global t##n##_loose *)(p))
#define LOAD_f32(n, p) LOOSE(float, n, p)
#define LOAD_SHORT(n, p) LOOSE(ushort, n, p)
#define LOAD_BYTE(n, p) LOOSE(uchar, n, p)
#define STORE_f32(n, p, v) (LOOSE(float, n, p) = (v))
#define STORE_SHORT(n, p, v) (LOOSE(ushort, n, p) = (v))
#define STORE_BYTE(n, p, v) (LOOSE(uchar, n, p) = (v))
#else
#define LOAD_f32(n, p) VLOAD_##n(p)
#define LOAD_SHORT(n, p) VLOAD_##n(p)
#define LOAD_BYTE(n, p) VLOAD_##n(p)
#define STORE_f32(n, p, v) VSTORE_##n(v, p)
#define STORE_SHORT(n, p, v) VSTORE_##n(v, p)
#define STORE_BYTE(n, p, v) VSTORE_##n(v, p)
#endif

/* Vectors of halves go through a register of their bits: OpenCL promises that vload_halfn and vstore_halfn need only a half's
   alignment, but pocl's ask for the vector's wherever the conversion and the access to memory come apart. */
#if USES & USES_HALVES
#define DEFINE_HALF(n)                                                                           \
    VEC(float, n) CAT(half_load_, n)(__global const half *p) {                                   \
        VEC(ushort, n) bits = LOAD_SHORT(n, (__global const ushort *)p);                         \
        return HLOAD_##n((const half *)&bits);                                                   \
    }                                                                                            \
    void CAT(half_store_, n)(VEC(float, n) v, __global half *p) {                                \
        VEC(ushort, n) bits;                                                                     \
        HSTORE_##n(v, (half *)&bits);                                                            \
        STORE_SHORT(n, (__global ushort *)p, bits);                                              \
    }
EACH_WIDTH(DEFINE_HALF)
float half_load_1(__global const half *p) { return vload_half(0, p); }
void half_store_1(float v, __global half *p) { vstore_half_rte(v, 0, p); }

/* bf16: round to nearest even on the upper half; a NaN keeps its sign and becomes quiet. */
#define BF16_BITS(n)                                                                             \
    VEC(ushort, n) CAT(bf16_bits_, n)(VEC(float, n) v) {                                  \
        VEC(uint, n) u = AS_(uint, n)(v);                                                        \
        VEC(uint, n) even = u + 0x7fffu + ((u >> 16) & 1u);                                      \
        VEC(uint, n) quiet = u | 0x400000u;                                                      \
        VEC(uint, n) r = (v != v) ? quiet : even;                                                \
        return CONVERT(ushort, n)(r >> 16);                                                      \
    }
BF16_BITS(1)
EACH_WIDTH(BF16_BITS)
#endif

#define STORE_f16(n, p, v) CAT(half_store_, n)(v, p)
#define STORE_bf16(n, p, v) STORE_SHORT(n, p, CAT(bf16_bits_, n)(v))
#define STORE_f64(n, p, v) VSTORE_##n(v, p)
#define STORE_i32(n, p, v) VSTORE_##n(v, p)
#define STORE_i64(n, p, v) VSTORE_##n(v, p)
#define STORE_u8(n, p, v) STORE_BYTE(n, p, CONVERT(uchar, n)(v))
#define STORE_bool(n, p, v) STORE_BYTE(n, p, CONVERT(uchar, n)(v))
#define STORE_(dt, n, p, v) STORE_##dt(n, p, v)
#define STORE(dt, n, p, i, v) STORE_(dt, n, (p) + (i), v)

/* X(lane) for every lane, through names instead of an array: rusticl loses what is written into unrolled private arrays. */
#define EACH_1(X, with) X(, with, 0)
#define EACH_2(X, with) X(.s0, with, 0) X(.s1, with, 1)
#define EACH_4(X, with) EACH_2(X, with) X(.s2, with, 2) X(.s3, with, 3)
#define EACH_8(X, with)                                                                          \
    EACH_4(X, with) X(.s4, with, 4) X(.s5, with, 5) X(.s6, with, 6) X(.s7, with, 7)
#define EACH_16(X, with)                                                                         \
    EACH_8(X, with) X(.s8, with, 8) X(.s9, with, 9) X(.sa, with, 10) X(.sb, with, 11)            \
    X(.sc, with, 12) X(.sd, with, 13) X(.se, with, 14) X(.sf, with, 15)

/* A generated kernel's functions carry its name, as several kernels are compiled as one program. */
#define NAMED(x) CAT(NAME, x)

/* A function whose name is pasted together, once in each part of a program (src/runtime/names.c), which has a suffix of its own. */
#define PART_SUFFIX
#define OF_PART(x) CAT(x, PART_SUFFIX)

/* Up to `count` elements `stride` apart, the rest zero; and back. */
#define GATHER_LANE(lane, dt, j) v lane = j < count ? LOAD(dt, 1, p, j * stride) : (COMPUTE(dt))0;
#define DEFINE_GATHER(dt, n)                                                                     \
    VEC(COMPUTE(dt), n) OF_PART(CAT(gather_, dt))(__global const MEMORY(dt) *p, long stride, long count) { \
        VEC(COMPUTE(dt), n) v;                                                                   \
        EACH_##n(GATHER_LANE, dt)                                                                \
        return v;                                                                                \
    }
#define SCATTER_LANE(lane, dt, j) if (j < count) STORE_SCALAR(dt, p, j * stride, v lane);
#define DEFINE_SCATTER(dt, n)                                                                    \
    void OF_PART(CAT(scatter_, dt))(__global MEMORY(dt) *p, long stride, long count, VEC(COMPUTE(dt), n) v) { \
        EACH_##n(SCATTER_LANE, dt)                                                               \
    }
#define STORE_SCALAR(dt, p, i, v) STORE(dt, 1, p, i, v)

/* The same for what is left at the end of a row, `count` being no constant: on a CPU a loop over lanes in memory, as code with a branch
   for each lane takes half of a kernel's time to compile.  Elsewhere a loop too: with a branch for each lane, rusticl stores four elements
   where `count` is 1. */
#if defined(__clang__) && (defined(__x86_64__) || defined(__i386__) || defined(__aarch64__) || defined(__riscv))
#define LANES_IN_MEMORY(dt, n) union { COMPUTE(dt) lane[n]; VEC(COMPUTE(dt), n) all; }
#define DEFINE_GATHER_SOME(dt, n)                                                                \
    BY_ITSELF VEC(COMPUTE(dt), n) OF_PART(CAT(gather_some_, dt))(__global const MEMORY(dt) *p, long stride, long count) { \
        LANES_IN_MEMORY(dt, n) v = {{0}};                                                        \
        PLAIN_LOOP for (long j = 0; j < count; j++) v.lane[j] = LOAD(dt, 1, p, j * stride);      \
        return v.all;                                                                            \
    }
#define DEFINE_SCATTER_SOME(dt, n)                                                               \
    BY_ITSELF void OF_PART(CAT(scatter_some_, dt))(__global MEMORY(dt) *p, long stride, long count, VEC(COMPUTE(dt), n) v) { \
        LANES_IN_MEMORY(dt, n) from = {.all = v};                                                \
        PLAIN_LOOP for (long j = 0; j < count; j++) STORE_SCALAR(dt, p, j * stride, from.lane[j]); \
    }
#else
#define DEFINE_GATHER_SOME(dt, n)                                                                \
    VEC(COMPUTE(dt), n) OF_PART(CAT(gather_some_, dt))(__global const MEMORY(dt) *p, long stride, long count) { \
        return OF_PART(CAT(gather_, dt))(p, stride, count);                                               \
    }
#define PICK_LANE(lane, dt, k) if (j == k) x = v lane;
#define DEFINE_SCATTER_SOME(dt, n)                                                               \
    void OF_PART(CAT(scatter_some_, dt))(__global MEMORY(dt) *p, long stride, long count, VEC(COMPUTE(dt), n) v) { \
        PLAIN_LOOP for (long j = 0; j < count; j++) {                                            \
            COMPUTE(dt) x = 0;                                                                   \
            EACH_##n(PICK_LANE, dt)                                                              \
            STORE_SCALAR(dt, p, j * stride, x);                                                  \
        }                                                                                        \
    }
#endif

/* A float rounded to what f16 or bf16 can hold. */
#define ROUND_bf16(n, v) AS_(float, n)(CONVERT(uint, n)(CAT(bf16_bits_, n)(v)) << 16)
#define ROUND_f16(n, v) CAT(round_f16_, n)(v)
#if USES & USES_HALVES
#define DEFINE_ROUND_F16(n)                                                                      \
    VEC(float, n) CAT(round_f16_, n)(VEC(float, n) v) {                                          \
        VEC(ushort, n) t;                                                                        \
        CAT(HSTORE_, n)(v, (half *)&t);                                                          \
        return CAT(HLOAD_, n)((half *)&t);                                                       \
    }
DEFINE_ROUND_F16(1)
EACH_WIDTH(DEFINE_ROUND_F16)
#endif

#include "pointwise_math.h"
#endif
