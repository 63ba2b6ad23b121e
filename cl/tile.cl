/* tile.cl — C[z][m][n] = Σ_k A[z][m][k] · B[z][k][n] (+ bias[n]) as gemm.cl makes it, for devices whose work-groups share
   memory, and the epilogue (epilogue.h).

   A work-group of GM × GN owns a tile of C, RM × RN elements per work-item in named accumulators: a private array need not
   stay in registers.  It goes along k in blocks of TK, which tile.h tells; nothing is packed.  A work-item's rows and columns come in
   fours, GM and GN fours apart, so that neighbours read and write neighbouring fours.  Rows of a block are PAD longer than they need
   be, or columns would meet in one bank.  Splits are gathered by finish (pack.cl).

   Knobs: GM, GN, RM, RN (4 or 8), TK, PAD (a multiple of 4): TK · RM / GN and TK · RN / GM are 4, 8 or 16;
   A_ALONG, B_ALONG: neighbouring work-items load neighbours along k, else along m or n; A_WIDTH, B_WIDTH: 4 where these
   come in whole fours, else 1; FLAT: k is one level (both widths are 4); IN: f32, f64, i32 or i64, what sums are made in; A_IN: f32, f16, bf16,
   f64, i32 or i64, storage of A; B_IN: f32, f16, bf16, f64, i32 or i64, storage of B; OUT: storage of C and bias.
   Checked with: A_ALONG=0 B_ALONG=1; A_WIDTH=1 B_WIDTH=1; GM=8 GN=8 RM=4 RN=4; FLAT=1; FLAT=1 TK=16; FLAT=1 TK=16 GM=32. */
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

#define TILE_KERNEL KERNEL_WITH(GROUP_OF(ITEMS), tile, TILE_ARGS)
#define S COMPUTE(IN)
#define V VEC(S, 4)
#define A_ELEMENT MEMORY(A_IN)
#define B_ELEMENT MEMORY(B_IN)
#define ITEMS (GM * GN)
#define SPAN (32 * TK)
#define OPERANDS_KEPT (FLAT && TK > 8) /* or, with twice the elements on their way, it would want more than 128 registers */
#define TILE_M (GM * RM)
#define TILE_N (GN * RN)
#define A_PITCH (TILE_M + PAD)
#define B_PITCH (TILE_N + PAD)

#define DECLARE_BLOCKS                                                                           \
    __local V a_block[TK * A_PITCH / 4], b_block[TK * B_PITCH / 4];                              \
    __local S *a_cells = (__local S *)a_block, *b_cells = (__local S *)b_block;                  \
    int x = item % GN, y = item / GN;                                                            \
    __local const V *rows_a = a_block + y, *rows_b = b_block + x;

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
    next_a lanes = HAS_A(i) ? CAT(READ_, w)(A_IN, A_AT(i), IS_ALIGNED(a)) : (VEC(S, w))(0);
#define FETCH_B(lanes, w, i) \
    next_b lanes = HAS_B(i) ? CAT(READ_, w)(B_IN, B_AT(i), IS_ALIGNED(b)) : (VEC(S, w))(0);

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
#define A_CELL(i) (a_cells + (A_DEPTH * A_PITCH + A_ROW) + (A_DEPTH_ON(i) * A_PITCH + A_ROW_ON(i)))
#define B_CELL(i) (b_cells + (B_DEPTH * B_PITCH + B_COLUMN) + (B_DEPTH_ON(i) * B_PITCH + B_COLUMN_ON(i)))
#define PUT_A(lanes, w, i) PUT(w, A_ALONG, A_CELL(i), A_PITCH, next_a lanes)
#define PUT_B(lanes, w, i) PUT(w, B_ALONG, B_CELL(i), B_PITCH, next_b lanes)

/* ---- sums: c[row][four of columns] ---- */

#define FMA(x, y, z) CAT(FMA_, IN)(x, y, z)
#define START(i, j) V c##i##_##j = (V)(0);
#define START_ROW(i) COLUMNS(START, i)
#define START_SUMS                                                                               \
    ROWS(START_ROW)                                                                              \
    VEC(S, A_SHARE) next_a;                                                                      \
    VEC(S, B_SHARE) next_b;

/* Rows of A and fours of B of one depth. */
#if RM == 8
#define TAKE_ROWS V a0 = row_a[0], a1 = row_a[GM];
#else
#define TAKE_ROWS V a0 = row_a[0];
#endif
#define TAKE_COLUMN(i, j) V b##j = row_b[j * GN];
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
#define MULTIPLY_BLOCK                                                                           \
    _Pragma("unroll 16") for (int l = 0; l < TK; l++) {                                           \
        __local const V *row_a = rows_a + l * (A_PITCH / 4), *row_b = rows_b + l * (B_PITCH / 4); \
        TAKE_ROWS                                                                                \
        COLUMNS(TAKE_COLUMN, 0)                                                                  \
        ROWS(MULTIPLY_ROW)                                                                       \
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
