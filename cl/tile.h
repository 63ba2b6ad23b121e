/* tile.h — the kernel of tile.cl and of matrix.cl: how a work-group goes along k, whatever it multiplies with.

   A tile of C is TILE_M × TILE_N, made by ITEMS work-items from blocks of A and B that are TK deep: while one block is multiplied from
   local memory, the next is on its way from global memory into registers.  An element's address is that of its row plus that of
   its depth, and both stand in tables in local memory.  Rows are found once; each of TK work-items walks with one depth through the
   three levels of k, by addition with carry, which it does in the table: registers are for sums, and what is added are arguments.  With FLAT, k is one level, and the
   address of each load stays in a register that goes on by a block.  Rows beyond M and columns beyond N read the first one and are not
   stored; beyond k both A and B are zero.

   Before it is included a file defines: TILE_KERNEL, the kernel's name and attributes; A_ELEMENT and B_ELEMENT, as what memory is read;
   DECLARE_BLOCKS, where blocks lie in local memory, and a work-item's place; START_SUMS, its sums and registers; A_LOADS(X) and
   B_LOADS(X), X for each of its loads, X being FETCH_A, FETCH_B (into registers), PUT_A, PUT_B (into local memory), BEGIN_A, BEGIN_B,
   MOVE_A and MOVE_B (BEGIN(…) and MOVE(…) of that load); HOLDS_ROWS: A's rows stay in registers without FLAT, too; MULTIPLY_BLOCK and
   STORE_TILE. */
#include "tile.args"

/* Where in a block a work-item's i-th load of `width` elements begins: row (of A's rows or B's columns) and depth. */
#define ROW_AT(along, width, tile, i) ((along) ? item / (TK / width) + (i) * (ITEMS * width / TK) : item % (tile / width) * width)
#define DEPTH_AT(along, width, tile, i) ((along) ? item % (TK / width) * width : item / (tile / width) + (i) * (ITEMS * width / tile))
#define A_ROW(i) ROW_AT(A_ALONG, A_WIDTH, TILE_M, i)
#define A_DEPTH(i) DEPTH_AT(A_ALONG, A_WIDTH, TILE_M, i)
#define B_COLUMN(i) ROW_AT(B_ALONG, B_WIDTH, TILE_N, i)
#define B_DEPTH(i) DEPTH_AT(B_ALONG, B_WIDTH, TILE_N, i)
/* A row of three levels, in elements. */
#define ROW_ADDRESS(m, s1, s2, s3) ((m) / m3 / m2 * (s1) + (m) / m3 % m2 * (s2) + (m) % m3 * (s3))

/* An element in memory, where a block's first depths lie, and how all go on by a block. */
#if FLAT
#define A_AT(i) (a + a_at##i)
#define B_AT(i) (b + b_at##i)
#define BEGIN(of, row, depth, i) int of##_at##i = (row) + (k + (depth)) * of##k3;
#define MOVE(of, i) of##_at##i += TK * of##k3;
#define SHOW_DEPTHS
#define FIND_ADDRESSES A_LOADS(BEGIN_A) B_LOADS(BEGIN_B)
#define NEXT_BLOCK A_LOADS(MOVE_A) B_LOADS(MOVE_B)
#else
#if HOLDS_ROWS
#define A_AT(i) (a + (a_row##i + depths[A_DEPTH(i)].a))
#define BEGIN(of, row, depth, i) int of##_row##i = row;
#define FIND_ADDRESSES A_LOADS(BEGIN_A)
#else
#define A_AT(i) (a + (a_rows[A_ROW(i)] + depths[A_DEPTH(i)].a))
#define FIND_ADDRESSES
#endif
#define B_AT(i) (b + (b_columns[B_COLUMN(i)] + depths[B_DEPTH(i)].b))

/* A depth on its way along k: its two inner levels, and where it lies in A and B. */
typedef struct { int r2, r3, a, b; } walk;

/* One work-item walks with each depth of a block. */
#define SHOW_DEPTHS                                                                              \
    __local walk depths[TK];                                                                     \
    if (item < TK) {                                                                             \
        int r3 = (k + item) % k3, r2 = (k + item) / k3 % k2, r1 = (k + item) / k3 / k2;          \
        walk w = {r2, r3, r1 * ak1 + r2 * ak2 + r3 * ak3, r1 * bk1 + r2 * bk2 + r3 * bk3};       \
        depths[item] = w;                                                                        \
    }
#define NEXT_BLOCK                                                                               \
    if (item < TK) {                                                                             \
        walk w = depths[item];                                                                   \
        w.a += on_a;                                                                             \
        w.b += on_b;                                                                             \
        w.r3 += on3;                                                                             \
        w.r2 += on2;                                                                             \
        if (w.r3 >= k3) {                                                                        \
            w.r3 -= k3;                                                                          \
            w.r2++;                                                                              \
            w.a += carry_a2;                                                                     \
            w.b += carry_b2;                                                                     \
        }                                                                                        \
        if (w.r2 >= k2) {                                                                        \
            w.r2 -= k2;                                                                          \
            w.a += carry_a1;                                                                     \
            w.b += carry_b1;                                                                     \
        }                                                                                        \
        depths[item] = w;                                                                        \
    }
#endif

TILE_KERNEL {
    UNPACK(TILE_ARGS)
    __local int a_rows[TILE_M], b_columns[TILE_N];
    int item = (int)get_local_id(0);
    DECLARE_BLOCKS
    int group = (int)get_group_id(0), n0 = group % tiles_n * TILE_N, m0 = group / tiles_n % tiles_m * TILE_M;
    int z = group / tiles_n / tiles_m, split = z % splits;
    z /= splits;
    __global const A_ELEMENT *a = (__global const A_ELEMENT *)a_base + a_offset + z / z2 * az1 + z % z2 * az2;
    __global const B_ELEMENT *b = (__global const B_ELEMENT *)b_base + b_offset + z / z2 * bz1 + z % z2 * bz2;
    __global MEMORY(OUT) *c = c_base + c_offset + z / z2 * cz1 + z % z2 * cz2 + split * cs;
    bias += bias_offset + z % z2 * bias_z;

    for (int i = item; i < TILE_M; i += ITEMS) {
        int m = m0 + i < M ? m0 + i : 0;
        a_rows[i] = ROW_ADDRESS(m, am1, am2, am3);
    }
    for (int i = item; i < TILE_N; i += ITEMS) b_columns[i] = n0 + i < N ? (n0 + i) * bn : 0;
    int k = split * run, k_end = min(k + run, K);
    SHOW_DEPTHS
    barrier(CLK_LOCAL_MEM_FENCE);

    START_SUMS
    FIND_ADDRESSES
    A_LOADS(FETCH_A)
    B_LOADS(FETCH_B)
    while (k < k_end) {
        barrier(CLK_LOCAL_MEM_FENCE); /* the block before is done with */
        A_LOADS(PUT_A)
        B_LOADS(PUT_B)
        NEXT_BLOCK
        barrier(CLK_LOCAL_MEM_FENCE);
        k += TK;
        if (k < k_end) {
            A_LOADS(FETCH_A)
            B_LOADS(FETCH_B)
        }
        MULTIPLY_BLOCK
    }
    STORE_TILE
}
