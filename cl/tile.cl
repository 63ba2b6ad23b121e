/* tile.cl — C[z][m][n] = Σ_k A[z][m][k] · B[z][k][n] (+ bias[n]) as gemm.cl makes it, for devices whose work-groups share
   memory, and the epilogue (epilogue.h).

   A work-group of GM × GN owns a tile of C, RM × RN elements per work-item in named accumulators: a private array need not
   stay in registers.  It goes along k in blocks of TK, which tile.h tells; nothing is packed.  A work-item's rows and columns come in
   fours, GM and GN fours apart, so that neighbours read and write neighbouring fours.  Rows of a block are PAD longer than they need
   be, or columns would meet in one bank.  Splits are gathered by finish (pack.cl).

   With STAGES, copies to local memory go on by themselves (copies.h), and no register holds what is on its way.  A that lies along k does so in
   local memory too, as what is copied cannot be turned, and four depths of a row are read at a time.

   Knobs: GM, GN, RM, RN (4 or 8), TK, PAD (a multiple of 4): TK · RM / GN and TK · RN / GM are 4, 8 or 16;
   A_ALONG, B_ALONG: neighbouring work-items load neighbours along k, else along m or n; A_WIDTH, B_WIDTH: 4 where these
   come in whole fours, else 1; FLAT: k is one level (both widths are 4); IN: f32, f64, i32 or i64, what sums are made in; A_IN: f32, f16, bf16,
   f64, i32 or i64, storage of A; B_IN: f32, f16, bf16, f64, i32 or i64, storage of B; OUT: storage of C and bias; STAGES (1; more with FLAT, all
   in f32, RM and RN of 8 and B_ALONG=0); PTX: see copies.h.
   Checked with: A_ALONG=0 B_ALONG=1; A_WIDTH=1 B_WIDTH=1; GM=8 GN=8 RM=4 RN=4; FLAT=1; FLAT=1 TK=16; FLAT=1 TK=16 GM=32;
   FLAT=1 TK=16 STAGES=2; FLAT=1 TK=16 STAGES=2 A_ALONG=0. */
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
#ifndef GM
#define GM 16
#endif
#ifndef GN
#define GN 16
#endif
#ifndef RM
#define RM 8
#endif
#ifndef RN
#define RN 8
#endif
#ifndef TK
#define TK 8
#endif
#ifndef PAD
#define PAD 4
#endif
#ifndef A_ALONG
#define A_ALONG 1
#endif
#ifndef B_ALONG
#define B_ALONG 0
#endif
#ifndef A_WIDTH
#define A_WIDTH 4
#endif
#ifndef B_WIDTH
#define B_WIDTH 4
#endif
#ifndef FLAT
#define FLAT 0
#endif
#ifndef STAGES
#define STAGES 1
#endif
#include "common.h"
#include "args.h"
#define W 4
#define RESULT OUT
#include "epilogue.h"
#define MR RM
#if RN == 8
#define NV 2
#else
#define NV 1
#endif
#include "registers.h"

#define S COMPUTE(IN)
#define V VEC(S, 4)
#if STAGES > 1
#define TILE_KERNEL KERNEL_WITH(GROUP_OF(ITEMS), tile_stages, TILE_ARGS)
#define RAW S
#define RUN 4
#include "copies.h"
#else
#define TILE_KERNEL KERNEL_WITH(GROUP_OF(ITEMS), tile, TILE_ARGS)
#endif
#define A_ELEMENT MEMORY(A_IN)
#define B_ELEMENT MEMORY(B_IN)
#define ITEMS (GM * GN)
#define BESIDE (STAGES == 1 && ITEMS % 64 == 0)
#define SPAN (32 * TK)
#define OPERANDS_KEPT (FLAT && TK > 8) /* or, with twice the elements on their way, it would want more than 128 registers */
#define TILE_M (GM * RM)
#define TILE_N (GN * RN)
/* Where an element lies in its block. */
#define A_LIES_ALONG (STAGES > 1 && A_ALONG)
#define A_PITCH ((A_LIES_ALONG ? TK : TILE_M) + PAD)
#define B_PITCH (TILE_N + PAD)
#define A_CELLS ((A_LIES_ALONG ? TILE_M : TK) * A_PITCH)
#define BLOCK_CELLS (A_CELLS + TK * B_PITCH)
#define A_CELL_OF(row, depth) (A_LIES_ALONG ? (row) * A_PITCH + (depth) : (depth) * A_PITCH + (row))
#define B_CELL_OF(column, depth) ((depth) * B_PITCH + (column))

#define DECLARE_BLOCKS                                                                           \
    __local V memory[STAGES * BLOCK_CELLS / 4];                                                  \
    __local S *a_cells = (__local S *)memory, *b_cells = a_cells + A_CELLS;                      \
    int x, y;
#define FIND_PLACE x = item % GN, y = item / GN;

/* ---- loads ---- */

/* Elements of a block that one work-item loads, as numbers that can be pasted. */
#if TK * RM == 4 * GN
#define A_SHARE 4
#elif TK * RM == 8 * GN
#define A_SHARE 8
#else
#define A_SHARE 16
#endif
#if TK * RN == 4 * GM
#define B_SHARE 4
#elif TK * RN == 8 * GM
#define B_SHARE 8
#else
#define B_SHARE 16
#endif

/* X(lanes, width, i) for the loads of a share: single elements or fours. */
#define FOURS_4(X, w) X(, w, 0)
#define FOURS_8(X, w) X(.s0123, w, 0) X(.s4567, w, 1)
#define FOURS_16(X, w) FOURS_8(X, w) X(.s89ab, w, 2) X(.scdef, w, 3)
#define LOADS_1(share, X) CAT(EACH_, share)(X, 1)
#define LOADS_4(share, X) CAT(FOURS_, share)(X, 4)
#define A_LOADS(X) CAT(LOADS_, A_WIDTH)(A_SHARE, X)
#define B_LOADS(X) CAT(LOADS_, B_WIDTH)(B_SHARE, X)

/* Fours in one access where the operand begins at a multiple of them. */
#define READ_1(dt, p, aligned) LOAD(dt, 1, p, 0)
#define READ_4(dt, p, aligned) CAT(FOUR_, dt)(p, aligned)
#define FOUR_AS(t, p, aligned) ((aligned) ? *(__global const VEC(t, 4) *)(p) : vload4(0, p))
#define FOUR_f32(p, aligned) FOUR_AS(float, p, aligned)
#define FOUR_f64(p, aligned) FOUR_AS(double, p, aligned)
#define FOUR_i32(p, aligned) FOUR_AS(int, p, aligned)
#define FOUR_i64(p, aligned) FOUR_AS(long, p, aligned)
#define FOUR_f16(p, aligned) LOAD(f16, 4, p, 0)
#define FOUR_bf16(p, aligned) LOAD(bf16, 4, p, 0)
#define IS_ALIGNED(p) (((size_t)(p) & (sizeof(V) - 1)) == 0)

#define FETCH_A(lanes, w, i) \
    next_a lanes = whole || HAS_A(i) ? CAT(READ_, w)(A_IN, A_AT(i), whole) : (VEC(S, w))(0);
#define FETCH_B(lanes, w, i) \
    next_b lanes = whole || HAS_B(i) ? CAT(READ_, w)(B_IN, B_AT(i), whole) : (VEC(S, w))(0);

#define BEGIN_A(lanes, w, i) BEGIN(a, a_rows[A_ROW + A_ROW_ON(i)], A_DEPTH + A_DEPTH_ON(i), i)
#define BEGIN_B(lanes, w, i) BEGIN(b, b_columns[B_COLUMN + B_COLUMN_ON(i)], B_DEPTH + B_DEPTH_ON(i), i)
#define MOVE_A(lanes, w, i) MOVE(a, i)
#define MOVE_B(lanes, w, i) MOVE(b, i)

/* Into local memory, where the elements of one depth lie together. */
#define PUT_1_0(cell, pitch, v) *(cell) = v;
#define PUT_1_1(cell, pitch, v) *(cell) = v;
#define PUT_4_0(cell, pitch, v) *(__local V *)(cell) = v;
#define PUT_4_1(cell, pitch, v)                                                                  \
    {                                                                                            \
        V four = v;                                                                              \
        (cell)[0] = four.s0;                                                                     \
        (cell)[pitch] = four.s1;                                                                 \
        (cell)[2 * pitch] = four.s2;                                                             \
        (cell)[3 * pitch] = four.s3;                                                             \
    }
#define PUT(w, along, cell, pitch, v) CAT(CAT3(PUT_, w, _), along)(cell, pitch, v)
#define A_CELL(i) (a_cells + A_CELL_OF(A_ROW, A_DEPTH) + A_CELL_OF(A_ROW_ON(i), A_DEPTH_ON(i)))
#define B_CELL(i) (b_cells + B_CELL_OF(B_COLUMN, B_DEPTH) + B_CELL_OF(B_COLUMN_ON(i), B_DEPTH_ON(i)))
#define PUT_A(lanes, w, i) PUT(w, A_ALONG, A_CELL(i), A_PITCH, next_a lanes)
#define PUT_B(lanes, w, i) PUT(w, B_ALONG, B_CELL(i), B_PITCH, next_b lanes)
/* Blocks in stages: straight into local memory, `to` elements from where it begins. */
#define COPY_A(lanes, w, i) COPY(A_CELL(i) + to, A_AT(i), HAS_A(i), IS_ALIGNED(a))
#define COPY_B(lanes, w, i) COPY(B_CELL(i) + to, B_AT(i), HAS_B(i), IS_ALIGNED(b))

/* ---- sums: c[row][four of columns] ---- */

#define FMA(x, y, z) CAT(FMA_, IN)(x, y, z)
#define START(i, j) V c##i##_##j = (V)(0);
#define START_ROW(i) COLUMNS(START, i)
#define START_SUMS                                                                               \
    ROWS(START_ROW)                                                                              \
    ON_THEIR_WAY
#if STAGES > 1
#define ON_THEIR_WAY
#define BLOCK_AT from
#else
#define ON_THEIR_WAY                                                                             \
    VEC(S, A_SHARE) next_a;                                                                      \
    VEC(S, B_SHARE) next_b;
#define BLOCK_AT 0
#endif

/* Four depths of a block, from l on: rows of A and fours of B of one of them are read as they are multiplied; of an A that lies along k,
   runs of all four of each row before. */
#define FOUR(p) (*(__local const V *)(p))
#define A_FOUR(row, depth) FOUR(a_cells + BLOCK_AT + A_CELL_OF(y * 4, l) + A_CELL_OF((row) / 4 * GM * 4 + (row) % 4, depth))
#define B_FOUR(j, depth) FOUR(b_cells + BLOCK_AT + B_CELL_OF(x * 4, l) + B_CELL_OF((j) * GN * 4, depth))
#define TAKE_RUN(i) V run##i = A_FOUR(i, 0);
#if STAGES > 1 && A_ALONG
#define TAKE_RUNS ROWS(TAKE_RUN)
#define TAKE_ROWS(d)                                                                             \
    V a0 = (V)(run0.s##d, run1.s##d, run2.s##d, run3.s##d), a1 = (V)(run4.s##d, run5.s##d, run6.s##d, run7.s##d);
#elif RM == 8
#define TAKE_RUNS
#define TAKE_ROWS(d) V a0 = A_FOUR(0, d), a1 = A_FOUR(4, d);
#else
#define TAKE_RUNS
#define TAKE_ROWS(d) V a0 = A_FOUR(0, d);
#endif
#define TAKE_COLUMN(d, j) V b##j = B_FOUR(j, d);
#define ELEMENT_0 a0.s0
#define ELEMENT_1 a0.s1
#define ELEMENT_2 a0.s2
#define ELEMENT_3 a0.s3
#define ELEMENT_4 a1.s0
#define ELEMENT_5 a1.s1
#define ELEMENT_6 a1.s2
#define ELEMENT_7 a1.s3
#define MULTIPLY(i, j) c##i##_##j = FMA(a_element, b##j, c##i##_##j);
#define MULTIPLY_ROW(i)                                                                          \
    {                                                                                            \
        V a_element = (V)(ELEMENT_##i);                                                          \
        COLUMNS(MULTIPLY, i)                                                                     \
    }
#define MULTIPLY_DEPTH(d)                                                                        \
    {                                                                                            \
        TAKE_ROWS(d)                                                                             \
        COLUMNS(TAKE_COLUMN, d)                                                                  \
        ROWS(MULTIPLY_ROW)                                                                       \
    }
#define MULTIPLY_BLOCK                                                                           \
    _Pragma("unroll 4") for (int l = 0; l < TK; l += 4) {                                        \
        TAKE_RUNS                                                                                \
        MULTIPLY_DEPTH(0)                                                                        \
        MULTIPLY_DEPTH(1)                                                                        \
        MULTIPLY_DEPTH(2)                                                                        \
        MULTIPLY_DEPTH(3)                                                                        \
    }

/* ---- stores ---- */

#define COLUMN(j) (n0 + ((j) * GN + x) * 4)
#define STORE_LANE(lane, v, e)                                                                   \
    if (n + e < N) STORE(OUT, 1, to, (n + e) * cn, EPILOGUE(1, BIASED(1, v lane, n + e), with, (n + e) * cn));
#define STORE_FOUR(i, j)                                                                         \
    if (cn == 1 && COLUMN(j) + 4 <= N)                                                           \
        STORE(OUT, 4, to, COLUMN(j), EPILOGUE(4, BIASED(4, c##i##_##j, COLUMN(j)), with, COLUMN(j))); \
    else {                                                                                       \
        int n = COLUMN(j);                                                                       \
        EACH_4(STORE_LANE, c##i##_##j)                                                           \
    }
#define STORE_ROW(i)                                                                             \
    {                                                                                            \
        int m = m0 + ((i) / 4 * GM + y) * 4 + (i) % 4;                                           \
        long at = kept.c + ROW_ADDRESS(m, cm1, cm2, cm3);                                        \
        __global MEMORY(OUT) *to = c_base + (c_offset + at);                                     \
        __global const MEMORY(OUT) *with = extra + (extra_offset + at);                          \
        if (m < M) {                                                                             \
            COLUMNS(STORE_FOUR, i)                                                               \
        }                                                                                        \
    }
#define STORE_TILE ROWS(STORE_ROW)

#include "tile.h"
