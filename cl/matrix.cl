/* matrix.cl — C[z][m][n] = Σ_k A[z][m][k] · B[z][k][n] (+ bias[n]) as tile.cl makes it, of A and B in a half type, or of f32 that is
   rounded to TF32 where it is multiplied, and with sums in f32, for devices with matrix units (matrix_unit.h), and the epilogue (epilogue.h).

   A work-group owns a tile of C: GM × GN sub-groups of 32 work-items, RM × RN elements each, in fragments of 16 × 8 that stay in
   registers.  It goes along k in blocks of TK, which tile.h tells.  A block lies in local memory as its operand does in global memory,
   along k or across, so that both are reached in runs of 16 bytes.  Rows of a block are PAD longer than they need be (of f32 along k half
   of that), or those of one fragment would meet in one bank.  With STAGES, copies to local memory go on by themselves (copies.h), and no
   register holds what is on its way.

   Results go through local memory in slabs of 16 rows for each sub-group, so that neighbouring work-items write neighbouring fours.
   Splits are gathered by finish (pack.cl).

   Knobs: GM, GN; RM (32 or 64), RN (16 or 32); TK a multiple of 16, of f32 of 8, PAD (8: runs stay whole); what a work-item loads of a
   block of A, TK · RM / (32 · GN), and of B, TK · RN / (32 · GM), is 1, 2 or 4 runs, 4 with STAGES alone; STAGES (1; more with FLAT alone);
   A_ALONG, B_ALONG: neighbouring work-items load neighbours along k, else along m or n; A_WIDTH, B_WIDTH: 8, of f32 4, where these come in
   whole runs, else 1; IN: f16, bf16 or f32, storage of A and B;
   FLAT: k is one level (both widths are those of runs); OUT: f32, f16 or bf16, storage of C and bias; PTX: see matrix_unit.h.
   Checked with: A_ALONG=0 B_ALONG=1; A_WIDTH=1 B_WIDTH=1; GM=1 GN=2 RN=16 TK=32; FLAT=1; FLAT=1 GM=2 GN=2 RM=64 TK=32 STAGES=3;
   IN=f32 A_ALONG=0 B_ALONG=1; IN=f32 A_WIDTH=1 B_WIDTH=1; IN=f32 FLAT=1 GM=2 GN=2 RM=64 TK=8 STAGES=3. */
#ifndef IN
#define IN f16
#endif
#ifndef OUT
#define OUT f32
#endif
#ifndef GM
#define GM 4
#endif
#ifndef GN
#define GN 4
#endif
#ifndef RM
#define RM 32
#endif
#ifndef RN
#define RN 32
#endif
#ifndef TK
#define TK (8 * RUN)
#endif
#ifndef PAD
#define PAD 8
#endif
#ifndef A_ALONG
#define A_ALONG 1
#endif
#ifndef B_ALONG
#define B_ALONG 0
#endif
#ifndef A_WIDTH
#define A_WIDTH RUN
#endif
#ifndef B_WIDTH
#define B_WIDTH RUN
#endif
#ifndef FLAT
#define FLAT 0
#endif
#ifndef STAGES
#define STAGES 1
#endif
#include "common.h"
#include "args.h"
#define A_IN IN
#define B_IN IN
#define W 4
#define RESULT OUT
#include "epilogue.h"
#if RM == 64
#define MR 4
#else
#define MR 2
#endif
#if RN == 32
#define NV 4
#define COLUMN_PAIRS(X) X(0, 1) X(2, 3)
#else
#define NV 2
#define COLUMN_PAIRS(X) X(0, 1)
#endif
#include "registers.h"
#define TILES_M MR /* fragments down a sub-group's part of C, and along it */
#define TILES_N NV
#include "matrix_unit.h"
#if STAGES > 1
#include "copies.h"
#endif

#define REQUIRED __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
#if STAGES > 1
#define TILE_KERNEL KERNEL_WITH(REQUIRED, matrix_stages, TILE_ARGS)
#else
#define TILE_KERNEL KERNEL_WITH(REQUIRED, matrix, TILE_ARGS)
#endif
#define A_ELEMENT RAW
#define B_ELEMENT RAW
#define SUBGROUPS (GM * GN)
#define ITEMS (SUBGROUPS * 32)
#define TILE_M (GM * RM)
#define TILE_N (GN * RN)
#define SPAN (16 * TK)

/* A block's cells: rows of depths, or depths of rows. */
#if IN_WORD == 2
#define PITCH(along, tile) (((along) ? TK : (tile)) + PAD)
#define RAW_BYTES 2
#else
#define PITCH(along, tile) ((along) ? TK + PAD / 2 : (tile) + PAD)
#define RAW_BYTES 4
#endif
#define CELLS(along, tile) (((along) ? (tile) : TK) * PITCH(along, tile))
#define CELL(along, tile, row, depth) ((along) ? (row) * PITCH(along, tile) + (depth) : (depth) * PITCH(along, tile) + (row))
#define A_CELLS CELLS(A_ALONG, TILE_M)
#define B_CELLS CELLS(B_ALONG, TILE_N)
#define RESULT_PITCH (TILE_N + PAD)
#define BLOCK_CELLS (A_CELLS + B_CELLS)
#define BLOCK_BYTES (STAGES * BLOCK_CELLS * RAW_BYTES)
#define RESULT_BYTES (GM * 16 * RESULT_PITCH * 4)
#define LOCAL_BYTES (BLOCK_BYTES > RESULT_BYTES ? BLOCK_BYTES : RESULT_BYTES)

#define DECLARE_BLOCKS                                                                                                \
    __local uint4 memory[LOCAL_BYTES / 16];                                                                           \
    __local uint exchanges[SUBGROUPS * EXCHANGE(TILES_M, TILES_N)];                                                   \
    __local RAW *a_cells = (__local RAW *)memory, *b_cells = a_cells + A_CELLS;                                 \
    int lane, subgroup, first_row, first_column;                                                                      \
    __local uint *exchange;
#define FIND_PLACE                                                                                                    \
    lane = item % LANES, subgroup = item / LANES;                                                                     \
    first_row = subgroup / GN * RM, first_column = subgroup % GN * RN;                                                \
    exchange = exchanges + subgroup * EXCHANGE(TILES_M, TILES_N);

/* ---- loads ---- */

/* X(lane, variable, width, i) for the loads of a share, one, two or four runs: whole ones or, of two at most, single elements. */
#if TK * RM == RUN * 32 * GN
#define A_SHARE 1
#elif TK * RM == 2 * RUN * 32 * GN
#define A_SHARE 2
#else
#define A_SHARE 4
#endif
#if TK * RN == RUN * 32 * GM
#define B_SHARE 1
#elif TK * RN == 2 * RUN * 32 * GM
#define B_SHARE 2
#else
#define B_SHARE 4
#endif
#define LOADS_8_1(X, v) X(, v##0, 8, 0)
#define LOADS_8_2(X, v) LOADS_8_1(X, v) X(, v##1, 8, 1)
#define LOADS_8_4(X, v) LOADS_8_2(X, v) X(, v##2, 8, 2) X(, v##3, 8, 3)
#define LOADS_4_1(X, v) X(, v##0, 4, 0)
#define LOADS_4_2(X, v) LOADS_4_1(X, v) X(, v##1, 4, 1)
#define LOADS_4_4(X, v) LOADS_4_2(X, v) X(, v##2, 4, 2) X(, v##3, 4, 3)
#if RUN == 8
#define SINGLES(X, v)                                                                                                 \
    X(.s0, v, 1, 0) X(.s1, v, 1, 1) X(.s2, v, 1, 2) X(.s3, v, 1, 3) X(.s4, v, 1, 4) X(.s5, v, 1, 5) X(.s6, v, 1, 6)      \
    X(.s7, v, 1, 7)
#else
#define SINGLES(X, v) X(.s0, v, 1, 0) X(.s1, v, 1, 1) X(.s2, v, 1, 2) X(.s3, v, 1, 3)
#endif
#define LOADS_1_1(X, v) SINGLES(X, v##0)
#define LOADS_1_2(X, v) SINGLES(X, v##0) SINGLES(X##_ON, v##1)
#define A_LOADS(X) CAT(CAT3(LOADS_, A_WIDTH, _), A_SHARE)(X, next_a)
#define B_LOADS(X) CAT(CAT3(LOADS_, B_WIDTH, _), B_SHARE)(X, next_b)

/* Bits, in one access where the operand begins at a multiple of a run. */
#define READ_1(p, aligned) (*(p))
#define READ_4(p, aligned) ((aligned) ? *(__global const uint4 *)(p) : vload4(0, p))
#define READ_8(p, aligned) ((aligned) ? *(__global const ushort8 *)(p) : vload8(0, p))
#define IS_ALIGNED(p) (((size_t)(p) & (sizeof(VEC(RAW, RUN)) - 1)) == 0)
#define FETCH_A(lane, v, w, i) v lane = whole || HAS_A(i) ? READ_##w(A_AT(i), whole) : (VEC(RAW, w))(0);
#define FETCH_B(lane, v, w, i) v lane = whole || HAS_B(i) ? READ_##w(B_AT(i), whole) : (VEC(RAW, w))(0);
#define BEGIN_A(lane, v, w, i) BEGIN(a, a_rows[A_ROW + A_ROW_ON(i)], A_DEPTH + A_DEPTH_ON(i), i)
#define BEGIN_B(lane, v, w, i) BEGIN(b, b_columns[B_COLUMN + B_COLUMN_ON(i)], B_DEPTH + B_DEPTH_ON(i), i)
#define MOVE_A(lane, v, w, i) MOVE(a, i)
#define MOVE_B(lane, v, w, i) MOVE(b, i)
#define A_CELL(i) (a_cells + CELL(A_ALONG, TILE_M, A_ROW, A_DEPTH) + CELL(A_ALONG, TILE_M, A_ROW_ON(i), A_DEPTH_ON(i)))
#define B_CELL(i) (b_cells + CELL(B_ALONG, TILE_N, B_COLUMN, B_DEPTH) + CELL(B_ALONG, TILE_N, B_COLUMN_ON(i), B_DEPTH_ON(i)))
#define PUT_A(lane, v, w, i) *(__local VEC(RAW, w) *)A_CELL(i) = v lane;
#define PUT_B(lane, v, w, i) *(__local VEC(RAW, w) *)B_CELL(i) = v lane;
/* Blocks in stages: straight into local memory, `to` elements from where it begins. */
#define COPY_A(lane, v, w, i) COPY(A_CELL(i) + to, A_AT(i), HAS_A(i), IS_ALIGNED(a))
#define COPY_B(lane, v, w, i) COPY(B_CELL(i) + to, B_AT(i), HAS_B(i), IS_ALIGNED(b))
#define FETCH_A_ON(lane, v, w, i) FETCH_A(lane, v, w, (i) + RUN)
#define FETCH_B_ON(lane, v, w, i) FETCH_B(lane, v, w, (i) + RUN)
#define PUT_A_ON(lane, v, w, i) PUT_A(lane, v, w, (i) + RUN)
#define PUT_B_ON(lane, v, w, i) PUT_B(lane, v, w, (i) + RUN)

/* ---- sums: c[row of fragments][column of them] ---- */

#define START(i, j) float4 c##i##_##j = (float4)(0);
#define START_ROW(i) COLUMNS(START, i)
#define START_SUMS                                                                                                    \
    ROWS(START_ROW)                                                                                                   \
    ON_THEIR_WAY

#if STAGES > 1
#define ON_THEIR_WAY
#define BLOCK_AT from
#else
#define ON_THEIR_WAY VEC(RAW, RUN) next_a0, next_a1, next_b0, next_b1;
#define BLOCK_AT 0
#endif

/* Where the lane's row of a run begins: of a fragment of A, and of two of B; or its own element. */
#if IN_WORD == 1 && !A_ALONG
#define A_PLACE(i) CELL(0, TILE_M, first_row + i * 16 + lane / 4, l + lane % 4)
#else
#define A_PLACE(i)                                                                                                    \
    CELL(A_ALONG, TILE_M, first_row + i * 16 + lane / 8 % 2 * 8 + (A_ALONG ? lane % 8 : 0), l + lane / 16 * RUN + (A_ALONG ? 0 : lane % 8))
#endif
#if IN_WORD == 1 && !B_ALONG
#define B_PLACE(j) CELL(0, TILE_N, first_column + j * 8 + lane / 4, l + lane % 4)
#else
#define B_PLACE(j)                                                                                                    \
    CELL(B_ALONG, TILE_N, first_column + j * 8 + lane / 16 * 8 + (B_ALONG ? lane % 8 : 0), l + lane / 8 % 2 * RUN + (B_ALONG ? 0 : lane % 8))
#endif
#define NAME_A(i) NAME_BLOCKS(i, A_PLACE(i))
#define NAME_B(j, n) NAME_BLOCKS(MR + j / 2, B_PLACE(j))
#define TAKE_A(i)                                                                                                     \
    uint4 a##i = LOAD_BLOCKS(i, A_ALONG, a_cells + BLOCK_AT, A_PLACE(i), 8, 4 * PITCH(0, TILE_M));                    \
    SHOW_A(i, a##i)
#define TAKE_B(j, n)                                                                                                  \
    uint4 both##j = LOAD_BLOCKS(MR + j / 2, B_ALONG, b_cells + BLOCK_AT, B_PLACE(j), 4 * PITCH(0, TILE_N), 8);                                 \
    uint2 b##j = both##j.lo, b##n = both##j.hi;                                                                       \
    SHOW_B(j, b##j)                                                                                                   \
    SHOW_B(n, b##n)
#define MULTIPLY(i, j) MULTIPLY_FRAGMENTS(c##i##_##j, i, a##i, j, b##j)
#define MULTIPLY_ROW(i) COLUMNS(MULTIPLY, i)
#define MULTIPLY_BLOCK                                                                                                \
    _Pragma("unroll") for (int l = 0; l < TK; l += UNIT_DEPTH) {                                                              \
        ROWS(NAME_A)                                                                                                  \
        COLUMN_PAIRS(NAME_B)                                                                                          \
        MEET()                                                                                                        \
        ROWS(TAKE_A)                                                                                                  \
        COLUMN_PAIRS(TAKE_B)                                                                                          \
        MEET()                                                                                                        \
        ROWS(MULTIPLY_ROW)                                                                                            \
    }

/* ---- stores ---- */

#define STORE_LANE(lane, v, e)                                                                                        \
    if (n + e < N) STORE(OUT, 1, to, (n + e) * cn, EPILOGUE(1, BIASED(1, v lane, n + e), with, (n + e) * cn));
#define KEEP(i, j)                                                                                                    \
    *(__local float2 *)(slab + FRAGMENT_C_ROW(lane, 0) * RESULT_PITCH + j * 8 + FRAGMENT_C_COLUMN(lane, 0)) = c##i##_##j.lo; \
    *(__local float2 *)(slab + FRAGMENT_C_ROW(lane, 2) * RESULT_PITCH + j * 8 + FRAGMENT_C_COLUMN(lane, 2)) = c##i##_##j.hi;
#define STORE_SLAB(i)                                                                                                 \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                     \
    COLUMNS(KEEP, i)                                                                                                  \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                     \
    for (int u = item; u < GM * 16 * (TILE_N / 4); u += ITEMS) {                                                      \
        int r = u / (TILE_N / 4), n = n0 + u % (TILE_N / 4) * 4, m = m0 + r / 16 * RM + i * 16 + r % 16;              \
        long at = kept.c + ROW_ADDRESS(m, cm1, cm2, cm3);                                                             \
        __global MEMORY(OUT) *to = c_base + (c_offset + at);                                                          \
        __global const MEMORY(OUT) *with = extra + (extra_offset + at);                                               \
        float4 sum = *(__local const float4 *)(results + r * RESULT_PITCH + (n - n0));                                \
        if (m < M && cn == 1 && n + 4 <= N) {                                                                         \
            STORE(OUT, 4, to, n, EPILOGUE(4, BIASED(4, sum, n), with, n));                                            \
        } else if (m < M) {                                                                                           \
            EACH_4(STORE_LANE, sum)                                                                                   \
        }                                                                                                             \
    }
#define STORE_TILE                                                                                                    \
    __local float *results = (__local float *)memory, *slab = results + first_row / RM * 16 * RESULT_PITCH + first_column; \
    ROWS(STORE_SLAB)

#include "tile.h"
