/* scan.cl — prefix sums, or products, along the n of x [outer, n, inner], in stages that are the same on every device: each chunk of
   `length` elements is summed, the sums are scanned in the same way, and each chunk is scanned from what came before it.  A row of
   products is one chunk: the product of a chunk by itself may be 0 or infinite where that of all before it and it is neither.

   DT: what lies in x.  OT: f32 f16 bf16 f64 i64 (what lies in y).  Sums are formed in OT's computing type.
   `reverse`: sums begin at the last element.  A unit of work is one chunk of `strip` columns, of one where STRIP is 0.
   PRODUCT: numbers are multiplied.  STRIP: the most columns that go down side by side, W at a time, or 0.  LINES: 4: so many units take their
   steps in turn, as each step waits for the one before it; or 1.  Neither changes the order of any sum.
   Checked with: PRODUCT=1; STRIP=1024; LINES=4; STRIP=1024 W=1. */
#ifndef DT
#define DT f32
#endif
#ifndef OT
#define OT CAT(RESULT_, DT)
#endif
#ifndef PRODUCT
#define PRODUCT 0
#endif
#ifndef STRIP
#define STRIP 0
#endif
#ifndef LINES
#define LINES 1
#endif
#ifndef W
#define W CLEF_LANES
#endif
#if PRODUCT
#define JOIN(a, b) ((a) * (b))
#define START 1
#else
#define JOIN(a, b) ((a) + (b))
#define START 0
#endif
#define RESULT_f32 f32
#define RESULT_f16 f16
#define RESULT_bf16 bf16
#define RESULT_f64 f64
#define RESULT_i32 i64
#define RESULT_i64 i64
#define RESULT_u8 i64
#define RESULT_bool i64
#include "common.h"
#define IN_PLACE
#include "args.h"
#include "scan.args"
#include "lanes.h"

#define A COMPUTE(OT)
#define SUMS CAT(WIDE_, OT) /* the dtype of A */

/* Lines first, first + step, … of x make up one chunk, of columns `column` to column + width - 1; its sums begin at `sums`. */
typedef struct { long first, step, count, sums, width, chunk; } chunk_place;

static chunk_place place_of(long u, long n, long length, long inner, long strip, int reverse) {
    long chunks = (n + length - 1) / length, strips = (inner + strip - 1) / strip;
    long row = u / strips, column = (u - row * strips) * strip, o = row / chunks;
    chunk_place p;
    p.chunk = row - o * chunks;
    long begin = p.chunk * length;
    p.first = (o * n + (reverse ? n - 1 - begin : begin)) * inner + column;
    p.step = reverse ? -inner : inner;
    p.count = min(length, n - begin);
    p.sums = row * inner + column;
    p.width = min(strip, inner - column);
    return p;
}

#if STRIP
#define TOTAL(lanes, c) (*(VEC(A, lanes) *)((A *)total + (c)))
#define BEGIN(lanes, c) TOTAL(lanes, c) = (VEC(A, lanes))(START);
#define ADD(lanes, c) TOTAL(lanes, c) = JOIN(TOTAL(lanes, c), CONVERT(A, lanes)(LOAD(DT, lanes, x, c)));
#define PUT_SUM(lanes, c) STORE(SUMS, lanes, sums_base + sums_offset + p.sums, c, TOTAL(lanes, c));
#define PUT_FROM(lanes, c, start)                                                                \
    {                                                                                            \
        ADD(lanes, c)                                                                            \
        STORE(OT, lanes, y, c, JOIN(start, TOTAL(lanes, c)));                                    \
    }
#define PUT_FIRST(lanes, c) PUT_FROM(lanes, c, (VEC(A, lanes))(START))
#define PUT(lanes, c) PUT_FROM(lanes, c, LOAD(SUMS, lanes, before, c))

/* sums [outer, chunks, inner] */
KERNEL(sum_chunks, SUM_CHUNKS_ARGS) {
    UNPACK(SUM_CHUNKS_ARGS)
    VEC(A, W) total[STRIP / W];
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        chunk_place p = place_of(u, n, length, inner, strip, reverse);
        __global const MEMORY(DT) *x = x_base + x_offset + p.first;
        ALONG(c, 0, p.width, BEGIN)
        for (long k = 0; k < p.count; k++, x += p.step) ALONG(c, 0, p.width, ADD)
        ALONG(c, 0, p.width, PUT_SUM)
    }
}

/* sums: scanned; not read where there is one chunk only. */
KERNEL(scan_chunks, SCAN_CHUNKS_ARGS) {
    UNPACK(SCAN_CHUNKS_ARGS)
    VEC(A, W) total[STRIP / W];
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        chunk_place p = place_of(u, n, length, inner, strip, reverse);
        __global const MEMORY(DT) *x = x_base + x_offset + p.first;
        __global MEMORY(OT) *y = y_base + y_offset + p.first;
        ALONG(c, 0, p.width, BEGIN)
        if (p.chunk) {
            __global const A *before = sums_base + sums_offset + p.sums - inner;
            for (long k = 0; k < p.count; k++, x += p.step, y += p.step) ALONG(c, 0, p.width, PUT)
        } else for (long k = 0; k < p.count; k++, x += p.step, y += p.step) ALONG(c, 0, p.width, PUT_FIRST)
    }
}

#else
#define BEGIN(i)                                                                                 \
    chunk_place p##i = place_of(u + i, n, length, inner, strip, reverse);                              \
    long at##i = p##i.first;                                                                     \
    A sum##i = START;
#define ADD(i) sum##i = JOIN(sum##i, (A)LOAD(DT, 1, x_base, x_offset + at##i));
#define ADD_NEXT(i) ADD(i) at##i += p##i.step;
#define ADD_REST(i)                                                                              \
    for (long k = common; k < p##i.count; k++) { ADD_NEXT(i) }                                    \
    sums_base[sums_offset + u + i] = sum##i;
#define BEFORE(i) A before##i = p##i.chunk ? sums_base[sums_offset + u + i - inner] : START;
#define PUT_NEXT(i)                                                                              \
    ADD(i)                                                                                       \
    STORE(OT, 1, y_base, y_offset + at##i, JOIN(before##i, sum##i));                             \
    at##i += p##i.step;
#define PUT_REST(i) for (long k = common; k < p##i.count; k++) { PUT_NEXT(i) }
#define FOUR(X) X(0) X(1) X(2) X(3)
#define COMMON min(min(p0.count, p1.count), min(p2.count, p3.count))

/* sums [outer, chunks, inner] */
KERNEL(sum_chunks, SUM_CHUNKS_ARGS) {
    UNPACK(SUM_CHUNKS_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
#if LINES == 4
    for (; u + 4 <= last; u += 4) {
        FOUR(BEGIN)
        const long common = COMMON;
        for (long k = 0; k < common; k++) { FOUR(ADD_NEXT) }
        FOUR(ADD_REST)
    }
#endif
    for (; u < last; u++) {
        const long common = 0;
        BEGIN(0)
        ADD_REST(0)
    }
}

/* sums: scanned; not read where there is one chunk only. */
KERNEL(scan_chunks, SCAN_CHUNKS_ARGS) {
    UNPACK(SCAN_CHUNKS_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
#if LINES == 4
    for (; u + 4 <= last; u += 4) {
        FOUR(BEGIN)
        FOUR(BEFORE)
        const long common = COMMON;
        for (long k = 0; k < common; k++) { FOUR(PUT_NEXT) }
        FOUR(PUT_REST)
    }
#endif
    for (; u < last; u++) {
        const long common = 0;
        BEGIN(0)
        BEFORE(0)
        PUT_REST(0)
    }
}
#endif
