/* matrix.cl — C[z][m][n] = Σ_k A[z][m][k] · B[z][k][n] (+ bias[n]) as tile.cl makes it, of A and B in a half type and with sums in
   f32, for devices with matrix units (matrix_unit.h), and the epilogue (epilogue.h).

   A work-group owns a tile of C: GM × GN sub-groups of 32 work-items, RM × RN elements each, in fragments of 16 × 8 that stay in
   registers.  It goes along k in blocks of TK: while one block of A and B is multiplied from local memory, the next is on its way
   from global memory into registers.  A block lies in local memory as its operand does in global memory, along k or across, so
   that both are reached in eights; pairs along k, which fragments are made of, are one access in the first case and two in
   the other.  Rows of a block are PAD longer than they need be, or those of one fragment would meet in one bank.

   Results go through local memory in slabs of 16 rows for each sub-group, so that neighbouring work-items write neighbouring fours.
   Splits are gathered by finish (pack.cl).

   Knobs: GM, GN; RM (32 or 64), RN (16 or 32); TK a multiple of 16, PAD (8: eights stay whole); what a work-item loads of a block of
   A, TK · RM / (32 · GN), and of B, TK · RN / (32 · GM), is 8 or 16; A_ALONG, B_ALONG: neighbouring work-items load neighbours
   along k, else along m or n; A_WIDTH, B_WIDTH: 8 where these come in whole eights, else 1; IN: f16 or bf16, storage of A and B;
   OUT: f32, f16 or bf16, storage of C and bias; PTX: see
   matrix_unit.h.
   Checked with: A_ALONG=0 B_ALONG=1; A_WIDTH=1 B_WIDTH=1; GM=1 GN=2 RM=32 RN=16. */
#ifndef IN
#define IN f16
#endif
#ifndef OUT
#define OUT f32
#endif
#ifndef GM
#define GM 2
#endif
#ifndef GN
#define GN 4
#endif
#ifndef RM
#define RM 64
#endif
#ifndef RN
#define RN 32
#endif
#ifndef TK
#define TK 32
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
#define A_WIDTH 8
#endif
#ifndef B_WIDTH
#define B_WIDTH 8
#endif
#include "common.h"
#include "args.h"
#define A_IN IN
#define B_IN IN
#define W 4
#define RESULT OUT
#include "epilogue.h"
#include "tile.h"
#define TILES_M (RM / 16)
#define TILES_N (RN / 8)
#include "matrix_unit.h"

#define SUBGROUPS (GM * GN)
#define ITEMS (SUBGROUPS * 32)
#define TILE_M (GM * RM)
#define TILE_N (GN * RN)

/* A block's cells: rows of depths, or depths of rows. */
#define PITCH(along, tile) (((along) ? TK : (tile)) + PAD)
#define CELLS(along, tile) (((along) ? (tile) : TK) * PITCH(along, tile))
#define CELL(along, tile, row, depth) ((along) ? (row) * PITCH(along, tile) + (depth) : (depth) * PITCH(along, tile) + (row))
#define A_CELLS CELLS(A_ALONG, TILE_M)
#define B_CELLS CELLS(B_ALONG, TILE_N)
#define RESULT_PITCH (TILE_N + PAD)
#define BLOCK_BYTES ((A_CELLS + B_CELLS) * 2)
#define RESULT_BYTES (GM * 16 * RESULT_PITCH * 4)
#define LOCAL_BYTES (BLOCK_BYTES > RESULT_BYTES ? BLOCK_BYTES : RESULT_BYTES)

/* X(i): fragments down a sub-group's part of C.  X(i, j): those along it. */
#define ROWS_32(X) X(0) X(1)
#define ROWS_64(X) ROWS_32(X) X(2) X(3)
#define ROWS(X) CAT(ROWS_, RM)(X)
#define COLUMNS_16(X, i) X(i, 0) X(i, 1)
#define COLUMNS_32(X, i) COLUMNS_16(X, i) X(i, 2) X(i, 3)
#define COLUMNS(X, i) CAT(COLUMNS_, RN)(X, i)

/* X(lane, variable, width, i) for the loads of a share, one or two eights: whole ones or single elements. */
#if TK * RM == 8 * 32 * GN
#define A_SHARE 1
#else
#define A_SHARE 2
#endif
#if TK * RN == 8 * 32 * GM
#define B_SHARE 1
#else
#define B_SHARE 2
#endif
#define LOADS_8_1(X, v) X(, v##0, 8, 0)
#define LOADS_8_2(X, v) X(, v##0, 8, 0) X(, v##1, 8, 1)
#define LOADS_1_1(X, v) EACH_8(X, v##0, 1)
#define LOADS_1_2(X, v) EACH_8(X, v##0, 1) EACH_8(X##_ON, v##1, 1)
#define A_LOADS(X) CAT(CAT3(LOADS_, A_WIDTH, _), A_SHARE)(X, next_a)
#define B_LOADS(X) CAT(CAT3(LOADS_, B_WIDTH, _), B_SHARE)(X, next_b)
#define A_ROW(i) ROW_AT(A_ALONG, A_WIDTH, TILE_M, i)
#define A_DEPTH(i) DEPTH_AT(A_ALONG, A_WIDTH, TILE_M, i)
#define B_COLUMN(i) ROW_AT(B_ALONG, B_WIDTH, TILE_N, i)
#define B_DEPTH(i) DEPTH_AT(B_ALONG, B_WIDTH, TILE_N, i)

/* Bits, in one access where the operand begins at a multiple of eight. */
#define READ_1(p, aligned) (*(p))
#define READ_8(p, aligned) ((aligned) ? *(__global const ushort8 *)(p) : vload8(0, p))
#define IS_ALIGNED(p) (((size_t)(p) & (sizeof(ushort8) - 1)) == 0)
#define FETCH_A(lane, v, w, i)                                                                                       \
    v lane = k + A_DEPTH(i) < k_end ? READ_##w(a + (a_rows[A_ROW(i)] + a_depths[A_DEPTH(i)]), IS_ALIGNED(a))         \
                                    : (VEC(ushort, w))(0);
#define FETCH_B(lane, v, w, i)                                                                                       \
    v lane = k + B_DEPTH(i) < k_end ? READ_##w(b + (b_columns[B_COLUMN(i)] + b_depths[B_DEPTH(i)]), IS_ALIGNED(b))   \
                                    : (VEC(ushort, w))(0);
#define PUT_A(lane, v, w, i) *(__local VEC(ushort, w) *)(a_cells + CELL(A_ALONG, TILE_M, A_ROW(i), A_DEPTH(i))) = v lane;
#define PUT_B(lane, v, w, i) *(__local VEC(ushort, w) *)(b_cells + CELL(B_ALONG, TILE_N, B_COLUMN(i), B_DEPTH(i))) = v lane;
#define FETCH_A_ON(lane, v, w, i) FETCH_A(lane, v, w, (i) + 8)
#define FETCH_B_ON(lane, v, w, i) FETCH_B(lane, v, w, (i) + 8)
#define PUT_A_ON(lane, v, w, i) PUT_A(lane, v, w, (i) + 8)
#define PUT_B_ON(lane, v, w, i) PUT_B(lane, v, w, (i) + 8)

/* Two neighbours along k. */
#define PAIR_1(cells, pitch, row, depth) (*(__local const uint *)(cells + (row) * (pitch) + (depth)))
#define PAIR_0(cells, pitch, row, depth) \
    ((uint)cells[(depth) * (pitch) + (row)] | (uint)cells[((depth) + 1) * (pitch) + (row)] << 16)
#define A_PAIR(row, depth) CAT(PAIR_, A_ALONG)(a_cells, PITCH(A_ALONG, TILE_M), row, depth)
#define B_PAIR(column, depth) CAT(PAIR_, B_ALONG)(b_cells, PITCH(B_ALONG, TILE_N), column, depth)

KERNEL_WITH(__attribute__((reqd_work_group_size(ITEMS, 1, 1))), matrix, TILE_ARGS) {
    UNPACK(TILE_ARGS)
    __local uint4 memory[LOCAL_BYTES / 16];
    __local int a_rows[TILE_M], b_columns[TILE_N], a_depths[TK], b_depths[TK];
    __local uint exchanges[SUBGROUPS * EXCHANGE(TILES_M, TILES_N)];
    __local ushort *a_cells = (__local ushort *)memory, *b_cells = a_cells + A_CELLS;
    __local float *results = (__local float *)memory;
    int item = (int)get_local_id(0), lane = item % LANES, subgroup = item / LANES;
    int first_row = subgroup / GN * RM, first_column = subgroup % GN * RN;
    __local uint *exchange = exchanges + subgroup * EXCHANGE(TILES_M, TILES_N);
    int group = (int)get_group_id(0), n0 = group % tiles_n * TILE_N, m0 = group / tiles_n % tiles_m * TILE_M;
    int z = group / tiles_n / tiles_m, split = z % splits;
    z /= splits;
    __global const ushort *a = (__global const ushort *)a_base + a_offset + z / z2 * az1 + z % z2 * az2;
    __global const ushort *b = (__global const ushort *)b_base + b_offset + z / z2 * bz1 + z % z2 * bz2;
    __global MEMORY(OUT) *c = c_base + c_offset + z / z2 * cz1 + z % z2 * cz2 + split * cs;

    for (int i = item; i < TILE_M; i += ITEMS) {
        int m = m0 + i < M ? m0 + i : 0;
        a_rows[i] = ROW_ADDRESS(m, am1, am2, am3);
    }
    for (int i = item; i < TILE_N; i += ITEMS) b_columns[i] = n0 + i < N ? (n0 + i) * bn : 0;
    levels s = {k2, k3, ak1, ak2, ak3, bk1, bk2, bk3};
    int k = split * run, k_end = min(k + run, K);
    walk depth = walk_from(k + item % TK, s), block = walk_from(TK, s);
    if (item < TK) {
        a_depths[item] = depth.a;
        b_depths[item] = depth.b;
    }
    barrier(CLK_LOCAL_MEM_FENCE);

#define START(i, j) float4 c##i##_##j = (float4)(0);
#define START_ROW(i) COLUMNS(START, i)
    ROWS(START_ROW)
    ushort8 next_a0, next_a1, next_b0, next_b1;
    A_LOADS(FETCH_A)
    B_LOADS(FETCH_B)
    while (k < k_end) {
        barrier(CLK_LOCAL_MEM_FENCE); /* the block before is done with */
        A_LOADS(PUT_A)
        B_LOADS(PUT_B)
        depth = walk_on(depth, block, s);
        if (item < TK) {
            a_depths[item] = depth.a;
            b_depths[item] = depth.b;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        k += TK;
        if (k < k_end) {
            A_LOADS(FETCH_A)
            B_LOADS(FETCH_B)
        }
        for (int l = 0; l < TK; l += 16) {
#define A_AT(i, p) A_PAIR(first_row + i * 16 + FRAGMENT_A_ROW(lane, p), l + FRAGMENT_A_DEPTH(lane, p))
#define B_AT(j, p) B_PAIR(first_column + j * 8 + FRAGMENT_B_COLUMN(lane), l + FRAGMENT_B_DEPTH(lane, p))
#define TAKE_A(i) uint4 a##i = (uint4)(A_AT(i, 0), A_AT(i, 1), A_AT(i, 2), A_AT(i, 3)); SHOW_A(i, a##i)
#define TAKE_B(i, j) uint2 b##j = (uint2)(B_AT(j, 0), B_AT(j, 1)); SHOW_B(j, b##j)
#define MULTIPLY(i, j) MULTIPLY_FRAGMENTS(c##i##_##j, i, a##i, j, b##j)
#define MULTIPLY_ROW(i) COLUMNS(MULTIPLY, i)
            ROWS(TAKE_A)
            COLUMNS(TAKE_B, 0)
            MEET()
            ROWS(MULTIPLY_ROW)
            MEET()
        }
    }

    bias += bias_offset + z % z2 * bias_z;
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
        __global MEMORY(OUT) *to = c + ROW_ADDRESS(m, cm1, cm2, cm3);                                                 \
        __global const MEMORY(OUT) *with = extra + extra_offset + (to - c_base - c_offset);                           \
        float4 sum = *(__local const float4 *)(results + r * RESULT_PITCH + (n - n0));                                \
        if (m < M && cn == 1 && n + 4 <= N) {                                                                         \
            STORE(OUT, 4, to, n, EPILOGUE(4, BIASED(4, sum, n), with, n));                                            \
        } else if (m < M) {                                                                                           \
            EACH_4(STORE_LANE, sum)                                                                                   \
        }                                                                                                             \
    }
    __local float *slab = results + first_row / RM * 16 * RESULT_PITCH + first_column;
    ROWS(STORE_SLAB)
}
