/* lines.cl — products with one to seven rows in parts: part[z][split][m][n] = Σ_k A[z][m][k] · B[z][k][n] over the depths of a split,
   where lines of B lie along n.  finish (pack.cl) adds the parts up.

   A work-item owns `columns` columns of a split, whose sums stay in a first-level cache, and adds lines of B to them.  It takes its
   `run` lines as MR runs, one line of each at a time: a few streams that each go on from line to line are what caches fetch ahead of
   best.  Every element of B is read once.

   Knobs: MR: runs of lines; NV: rows of A; W: lanes; IN: f32, f64, i32 or i64, what sums are made in; A_IN, B_IN: f32, f16, bf16, f64,
   i32 or i64, storage of A and B, which are converted in registers.
   Checked with: B_IN=f16 NV=7. */
#ifndef IN
#define IN f32
#endif
#ifndef A_IN
#define A_IN f32
#endif
#ifndef B_IN
#define B_IN f32
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
#include "lines.args"
#include "registers.h"

#define A COMPUTE(IN)
#define FMA(x, y, z) CAT(FMA_, IN)(x, y, z)

/* ---- a step: w columns from n on of the lines of `LINES` ---- */

#define SUM_AT(j) (sums + (long)(j) * N)
#define TAKE_1(i, j) A sum##j = LOAD(IN, 1, SUM_AT(j), n);
#define TAKE_W(i, j) VEC(A, W) sum##j = LOAD(IN, W, SUM_AT(j), n);
#define ADD_1(i, j) sum##j = FMA(line, x##i##_##j, sum##j);
#define ADD_W(i, j) sum##j = FMA(line, (VEC(A, W))(x##i##_##j), sum##j);
#define PUT_1(i, j) STORE(IN, 1, SUM_AT(j), n, sum##j);
#define PUT_W(i, j) STORE(IN, W, SUM_AT(j), n, sum##j);
#define ADD_LINE_1(i)                                                                              \
    {                                                                                              \
        A line = LOAD(B_IN, 1, b##i, n);                                                           \
        COLUMNS(ADD_1, i)                                                                          \
    }
#define ADD_LINE_W(i)                                                                              \
    {                                                                                              \
        VEC(A, W) line = LOAD(B_IN, W, b##i, n);                                                   \
        COLUMNS(ADD_W, i)                                                                          \
    }
#define ADD_LINES(LINES)                                                                           \
    int n = from;                                                                                  \
    PLAIN_LOOP                                                                                     \
    for (; n + W <= to; n += W) {                                                                  \
        COLUMNS(TAKE_W, 0)                                                                         \
        LINES(ADD_LINE_W)                                                                          \
        COLUMNS(PUT_W, 0)                                                                          \
    }                                                                                              \
    PLAIN_LOOP                                                                                     \
    for (; n < to; n++) {                                                                          \
        COLUMNS(TAKE_1, 0)                                                                         \
        LINES(ADD_LINE_1)                                                                          \
        COLUMNS(PUT_1, 0)                                                                          \
    }

/* ---- lines, and what each row has of them ---- */

#define FACTOR(i, j) A x##i##_##j = (A)LOAD(A_IN, 1, a, j * am + (k + i * each) * ak);
#define FIND_LINE(i)                                                                               \
    __global const MEMORY(B_IN) *b##i = b + (k + i * each) * bk;                                   \
    COLUMNS(FACTOR, i)
#define ONE_LINE(X) X(0)

KERNEL(add_lines, ADD_LINES_ARGS) {
    UNPACK(ADD_LINES_ARGS)
    int from = (int)get_global_id(0) * columns, to = min(from + columns, N);
    int split = (int)get_global_id(1), z = (int)get_global_id(2);
    __global const MEMORY(A_IN) *a = a_base + a_offset + z / z2 * az1 + z % z2 * az2;
    __global const MEMORY(B_IN) *b = b_base + b_offset + z / z2 * bz1 + z % z2 * bz2;
    __global MEMORY(IN) *sums = part_base + part_offset + ((long)z * splits + split) * NV * N;
    int k = split * run, end = min(k + run, K), each = (end - k) / MR;
#define CLEAR(i, j) STORE(IN, 1, SUM_AT(j), n, (A)0);
    for (int n = from; n < to; n++) {
        COLUMNS(CLEAR, 0)
    }
    PLAIN_LOOP
    for (int last = k + each; k < last; k++) {
        ROWS(FIND_LINE)
        ADD_LINES(ROWS)
    }
    PLAIN_LOOP
    for (k += (MR - 1) * each; k < end; k++) {
        ONE_LINE(FIND_LINE)
        ADD_LINES(ONE_LINE)
    }
}
