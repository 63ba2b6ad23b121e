/* scan.cl — prefix sums, or products, along the n of x [outer, n, inner], in stages that are the same on every device: each chunk of
   `length` elements is summed, the sums are scanned in the same way, and each chunk is scanned from what came before it.  A row of
   products is one chunk: the product of a chunk by itself may be 0 or infinite where that of all before it and it is neither.

   DT: what lies in x.  OT: f32 f16 bf16 f64 i64 (what lies in y).  Sums are formed in OT's computing type.
   `reverse`: sums begin at the last element.  A unit of work is one chunk of one column.
   PRODUCT: numbers are multiplied.  Checked with: PRODUCT=1. */
#ifndef DT
#define DT f32
#endif
#ifndef OT
#define OT CAT(RESULT_, DT)
#endif
#ifndef PRODUCT
#define PRODUCT 0
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

/* Elements first, first + step, … of x make up one chunk. */
typedef struct { long first, step, count, chunk; } chunk_place;

static chunk_place place_of(long u, long n, long length, long inner, int reverse) {
    long chunks = (n + length - 1) / length, i = u % inner, chunk = u / inner % chunks, o = u / inner / chunks, begin = chunk * length;
    chunk_place p;
    p.first = (o * n + (reverse ? n - 1 - begin : begin)) * inner + i;
    p.step = reverse ? -inner : inner;
    p.count = min(length, n - begin);
    p.chunk = chunk;
    return p;
}

/* sums [outer, chunks, inner] */
KERNEL(sum_chunks, SUM_CHUNKS_ARGS) {
    UNPACK(SUM_CHUNKS_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        chunk_place p = place_of(u, n, length, inner, reverse);
        A sum = START;
        for (long k = 0, at = x_offset + p.first; k < p.count; k++, at += p.step) sum = JOIN(sum, (A)LOAD(DT, 1, x_base, at));
        sums_base[sums_offset + u] = sum;
    }
}

/* sums: scanned; not read where there is one chunk only. */
KERNEL(scan_chunks, SCAN_CHUNKS_ARGS) {
    UNPACK(SCAN_CHUNKS_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        chunk_place p = place_of(u, n, length, inner, reverse);
        A before = p.chunk ? sums_base[sums_offset + u - inner] : START, sum = START;
        for (long k = 0, at = p.first; k < p.count; k++, at += p.step) {
            sum = JOIN(sum, (A)LOAD(DT, 1, x_base, x_offset + at));
            STORE(OT, 1, y_base, y_offset + at, JOIN(before, sum));
        }
    }
}
