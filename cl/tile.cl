/* tile.cl — C[z][m][n] = Σ_k A[z][m][k] · B[z][k][n] (+ bias[n]) as gemm.cl makes it, for devices whose work-groups share
   memory, and the epilogue (epilogue.h).

   A work-group of GM × GN owns a tile of C, RM × RN elements per work-item in named accumulators: a private array need not
   stay in registers.  It goes along k in blocks of TK: while one block of A and B is multiplied from local memory, the next is
   on its way from global memory into registers.  A work-item's rows and columns come in fours, GM and GN fours apart, so that
   neighbours read and write neighbouring fours.  Rows of a block are PAD longer than they need be, or columns would meet in one bank.

   Nothing is packed: an element's address is that of its row plus that of its depth, and both stand in tables in local
   memory.  Rows are found once; each of TK work-items walks with one depth through the three levels of k, by addition with
   carry.  Rows beyond M and columns beyond N read the first one and are not stored; beyond k both A and B are zero.

   Splits are gathered by finish (pack.cl).

   Knobs: GM, GN, RM, RN (4 or 8), TK, PAD (a multiple of 4): TK · RM / GN and TK · RN / GM are 4, 8 or 16;
   A_ALONG, B_ALONG: neighbouring work-items load neighbours along k, else along m or n; A_WIDTH, B_WIDTH: 4 where these
   come in whole fours, else 1; IN: f32, f64, i32 or i64, what sums are made in; A_IN: f32, f16, bf16,
   f64, i32 or i64, storage of A; B_IN: f32, f16, bf16, f64, i32 or i64, storage of B; OUT: storage of C and bias.
   Checked with: A_ALONG=0 B_ALONG=1; A_WIDTH=1 B_WIDTH=1; GM=8 GN=8 RM=4 RN=4. */
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
#define TK 16
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
#include "common.h"
#include "args.h"
#define W 4
#define RESULT OUT
#include "epilogue.h"
#include "tile.h"

#define S COMPUTE(IN)
#define V VEC(S, 4)
#define ITEMS (GM * GN)
#define TILE_M (GM * RM)
#define TILE_N (GN * RN)
#define A_PITCH (TILE_M + PAD)
#define B_PITCH (TILE_N + PAD)

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

#define FMA(x, y, z) CAT(FMA_, IN)(x, y, z)

/* X(i, element i of the column of A): the work-item's rows.  X(i, j): its fours of columns. */
#define ROWS_4(X) X(0, a0.s0) X(1, a0.s1) X(2, a0.s2) X(3, a0.s3)
#define ROWS_8(X) ROWS_4(X) X(4, a1.s0) X(5, a1.s1) X(6, a1.s2) X(7, a1.s3)
#define ROWS(X) CAT(ROWS_, RM)(X)
#define COLUMNS_4(X, i) X(i, 0)
#define COLUMNS_8(X, i) X(i, 0) X(i, 1)
#define COLUMNS(X, i) CAT(COLUMNS_, RN)(X, i)

/* X(lanes, width, i) for the loads of a share: single elements or fours. */
#define FOURS_4(X, w) X(, w, 0)
#define FOURS_8(X, w) X(.s0123, w, 0) X(.s4567, w, 1)
#define FOURS_16(X, w) FOURS_8(X, w) X(.s89ab, w, 2) X(.scdef, w, 3)
#define LOADS_1(share, X) CAT(EACH_, share)(X, 1)
#define LOADS_4(share, X) CAT(FOURS_, share)(X, 4)
#define A_LOADS(X) CAT(LOADS_, A_WIDTH)(A_SHARE, X)
#define B_LOADS(X) CAT(LOADS_, B_WIDTH)(B_SHARE, X)

/* Where in a block a work-item's i-th load begins. */
#define A_ROW(i) ROW_AT(A_ALONG, A_WIDTH, TILE_M, i)
#define A_DEPTH(i) DEPTH_AT(A_ALONG, A_WIDTH, TILE_M, i)
#define B_COLUMN(i) ROW_AT(B_ALONG, B_WIDTH, TILE_N, i)
#define B_DEPTH(i) DEPTH_AT(B_ALONG, B_WIDTH, TILE_N, i)

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

#define FETCH_A(lanes, w, i)                                                                     \
    next_a lanes = k + A_DEPTH(i) < k_end ? CAT(READ_, w)(A_IN, a + (a_rows[A_ROW(i)] + a_depths[A_DEPTH(i)]), IS_ALIGNED(a)) \
                                          : (VEC(S, w))(0);
#define FETCH_B(lanes, w, i)                                                                     \
    next_b lanes = k + B_DEPTH(i) < k_end                                                        \
                       ? CAT(READ_, w)(B_IN, b + (b_columns[B_COLUMN(i)] + b_depths[B_DEPTH(i)]), IS_ALIGNED(b)) \
                       : (VEC(S, w))(0);

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
#define PUT_A(lanes, w, i) PUT(w, A_ALONG, a_cells + (A_DEPTH(i) * A_PITCH + A_ROW(i)), A_PITCH, next_a lanes)
#define PUT_B(lanes, w, i) PUT(w, B_ALONG, b_cells + (B_DEPTH(i) * B_PITCH + B_COLUMN(i)), B_PITCH, next_b lanes)

KERNEL_WITH(__attribute__((reqd_work_group_size(ITEMS, 1, 1))), tile, TILE_ARGS) {
    UNPACK(TILE_ARGS)
    __local V a_block[TK * A_PITCH / 4], b_block[TK * B_PITCH / 4];
    __local int a_rows[TILE_M], b_columns[TILE_N], a_depths[TK], b_depths[TK];
    __local S *a_cells = (__local S *)a_block, *b_cells = (__local S *)b_block;
    int item = (int)get_local_id(0), x = item % GN, y = item / GN;
    int group = (int)get_group_id(0), n0 = group % tiles_n * TILE_N, m0 = group / tiles_n % tiles_m * TILE_M;
    int z = group / tiles_n / tiles_m, split = z % splits;
    z /= splits;
    __global const MEMORY(A_IN) *a = a_base + a_offset + z / z2 * az1 + z % z2 * az2;
    __global const MEMORY(B_IN) *b = b_base + b_offset + z / z2 * bz1 + z % z2 * bz2;
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

#define START(i, j) V c##i##_##j = (V)(0);
#define START_ROW(i, value) COLUMNS(START, i)
    ROWS(START_ROW)
    VEC(S, A_SHARE) next_a;
    VEC(S, B_SHARE) next_b;
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
#pragma unroll 4
        for (int l = 0; l < TK; l++) {
            __local const V *row_a = a_block + (l * (A_PITCH / 4) + y), *row_b = b_block + (l * (B_PITCH / 4) + x);
            V a0 = row_a[0], b0 = row_b[0];
#if RM == 8
            V a1 = row_a[GM];
#endif
#if RN == 8
            V b1 = row_b[GN];
#endif
#define MULTIPLY(i, j) c##i##_##j = FMA(a_element, b##j, c##i##_##j);
#define MULTIPLY_ROW(i, value)                                                                       \
    {                                                                                            \
        V a_element = (V)(value);                                                                    \
        COLUMNS(MULTIPLY, i)                                                                     \
    }
            ROWS(MULTIPLY_ROW)
        }
    }

#define COLUMN(j) (n0 + ((j) * GN + x) * 4)
    bias += bias_offset + z % z2 * bias_z;
#define STORE_LANE(lane, v, n, e)                                                                \
    if ((n) + e < N) STORE(OUT, 1, to, ((n) + e) * cn, EPILOGUE(1, BIASED(1, v lane, (n) + e), with, ((n) + e) * cn));
#define STORE_FOUR(i, j)                                                                         \
    if (cn == 1 && COLUMN(j) + 4 <= N)                                                           \
        STORE(OUT, 4, to, COLUMN(j), EPILOGUE(4, BIASED(4, c##i##_##j, COLUMN(j)), with, COLUMN(j))); \
    else {                                                                                       \
        EACH_4(STORE_LANE, c##i##_##j, COLUMN(j))                                                \
    }
#define STORE_ROW(i, value)                                                                          \
    {                                                                                            \
        int m = m0 + ((i) / 4 * GM + y) * 4 + (i) % 4;                                           \
        __global MEMORY(OUT) *to = c + ROW_ADDRESS(m, cm1, cm2, cm3);     \
        __global const MEMORY(OUT) *with = extra + extra_offset + (to - c_base - c_offset);      \
        if (m < M) {                                                                             \
            COLUMNS(STORE_FOUR, i)                                                               \
        }                                                                                        \
    }
    ROWS(STORE_ROW)
}
