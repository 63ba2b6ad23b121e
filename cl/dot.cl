/* dot.cl — products with one to four columns: C[z][m][n] = Σ_k A[z][m][k] · B[z][k][n] (+ bias[m][n]), where rows of A lie along
   k, and the epilogue (epilogue.h).

   Lanes go along k, so that every element of A is read once and in long runs: such a product is as fast as memory.  A work-item
   takes `rows` rows as MR runs, one row of each at a time: a few streams that each go on from row to row are what caches fetch
   ahead of best.  It first puts the columns of B side by side unless they lie so.

   Knobs: MR: runs of rows; NV: columns; W: lanes; IN: f32, f64, i32 or i64, what sums are made in; A_IN: f32, f16, bf16, f64, i32 or
   i64, storage of A, which is converted in registers; B_IN, OUT: storage of B, of C and bias. */
#ifndef IN
#define IN f32
#endif
#ifndef A_IN
#define A_IN f32
#endif
#ifndef B_IN
#define B_IN f32
#endif
#ifndef OUT
#define OUT f32
#endif
#ifndef MR
#define MR 4
#endif
#ifndef NV
#define NV 1
#endif
#ifndef W
#define W 4
#endif
#include "common.h"
#include "args.h"
#include "dot.args"
#include "registers.h"
#include "lanes.h"
#define RESULT OUT
#include "epilogue.h"

#define A COMPUTE(IN)
#define V VEC(A, W)
DEFINE_FOLD(total, PLUS)

#define FMA(x, y, z) CAT(FMA_, IN)(x, y, z)

KERNEL(dot_rows, DOT_ROWS_ARGS) {
    UNPACK(DOT_ROWS_ARGS)
    int item = (int)get_global_id(0), z = (int)get_global_id(1), end = min((item + 1) * rows, M);
    __global const MEMORY(A_IN) *a = a_base + a_offset + z / z2 * az1 + z % z2 * az2;
    __global const MEMORY(B_IN) *b = b_base + b_offset + z / z2 * bz1 + z % z2 * bz2;
    __global MEMORY(OUT) *c = c_base + c_offset + z / z2 * cz1 + z % z2 * cz2;
    bias += bias_offset + z % z2 * bias_z;
    __global const MEMORY(OUT) *with = extra + extra_offset + (c - c_base - c_offset);
#ifdef ALIKE
    __global const MEMORY(IN) *column = b;
    long apart = bn;
#else
    __global MEMORY(IN) *column = columns_base + columns_offset + ((long)z * items + item) * NV * K;
    long apart = K;
    PLAIN_LOOP
    for (int k = 0; k < K; k++) {
#define TAKE(i, j) STORE(IN, 1, column, j * apart + k, (A)LOAD(B_IN, 1, b, k * bk + j * bn));
        COLUMNS(TAKE, 0)
    }
#endif
    int run = (end - item * rows + MR - 1) / MR;
    PLAIN_LOOP
    for (int m = item * rows; m < item * rows + run; m++) {
#define START(i, j) V sum##i##_##j = (V)(0);
#define START_ROW(i)                                                                                   \
    int m##i = m + i * run;                                                                            \
    __global const MEMORY(A_IN) *a##i = a + min(m##i, end - 1) * am;                                   \
    COLUMNS(START, i)
        ROWS(START_ROW)
        int k = 0;
        PLAIN_LOOP
        for (; k + W <= K; k += W) {
#define FETCH(i, j) V b##j = LOAD(IN, W, column, j * apart + k);
            COLUMNS(FETCH, 0)
#define MULTIPLY(i, j) sum##i##_##j = FMA(x, b##j, sum##i##_##j);
#define MULTIPLY_ROW(i)                                                                                \
    {                                                                                                  \
        V x = LOAD(A_IN, W, a##i, k);                                                                  \
        COLUMNS(MULTIPLY, i)                                                                           \
    }
            ROWS(MULTIPLY_ROW)
        }
#define FOLD(i, j) A t##i##_##j = total(sum##i##_##j);
#define FOLD_ROW(i) COLUMNS(FOLD, i)
        ROWS(FOLD_ROW)
        PLAIN_LOOP
        for (; k < K; k++) {
#define LAST(i, j) t##i##_##j = FMA(x, LOAD(IN, 1, column, j * apart + k), t##i##_##j);
#define LAST_ROW(i)                                                                                    \
    {                                                                                                  \
        A x = LOAD(A_IN, 1, a##i, k);                                                                  \
        COLUMNS(LAST, i)                                                                               \
    }
            ROWS(LAST_ROW)
        }
#define PUT(i, j)                                                                                      \
    {                                                                                                  \
        long at = m##i * cm + j * cn;                                                                  \
        A whole = BIASED(1, t##i##_##j, m##i * bias_m + j * bias_n);                                   \
        STORE(OUT, 1, c, at, EPILOGUE(1, whole, with, at));                                            \
    }
#define PUT_ROW(i)                                                                                     \
    if (m##i < end) {                                                                                  \
        COLUMNS(PUT, i)                                                                                \
    }
        ROWS(PUT_ROW)
    }
}
