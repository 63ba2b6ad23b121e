/* tile.h — the kernel of tile.cl and of matrix.cl: how a work-group goes along k, whatever it multiplies with.

   A tile of C is TILE_M × TILE_N, made by ITEMS work-items from blocks of A and B that are TK deep: while one block is multiplied from
   local memory, the next is on its way from global memory into registers.  An element's address is that of its row plus that of
   its depth.  Both stand in tables in local memory: rows are found once, depths through the three levels of k, SPAN of them at a
   time.  A row that all loads of a work-item share is part of its operand's address, and a depth that they share of the block's.  With
   FLAT, k is one level, and the address of each load stays in a register that goes on by a block.  Rows beyond M and columns beyond N
   read the first one and are not stored; beyond k both A and B are zero.

   With STAGES, local memory holds so many blocks one behind the other, a ring: one is multiplied while copies fill the others.  With
   OPERANDS_KEPT, which is for FLAT, where the operands begin and their last whole block are read from local memory for each block, and take
   no registers while one is multiplied.

   Before it is included a file defines: TILE_KERNEL, the kernel's name and attributes; A_ELEMENT and B_ELEMENT, as what memory is read;
   SPAN, a multiple of TK; DECLARE_BLOCKS, where blocks lie in local memory; FIND_PLACE, what a work-item's number (item) says of its
   place; START_SUMS, its sums and registers; A_LOADS(X) and B_LOADS(X), X for each of its loads, X being FETCH_A, FETCH_B (into
   registers), PUT_A, PUT_B (into local memory), BEGIN_A, BEGIN_B, MOVE_A and MOVE_B (BEGIN(…) and MOVE(…) of that load);
   MULTIPLY_BLOCK and STORE_TILE.  With STAGES also BLOCK_CELLS, elements of a block in local memory, X for COPY_A and COPY_B (from global
   memory to `to`, an element of the ring), END_COPIES and AWAIT_COPIES (copies.h); MULTIPLY_BLOCK takes the block at `from`. */
#include "tile.args"
#ifndef STAGES
#define STAGES 1
#endif
#ifndef OPERANDS_KEPT
#define OPERANDS_KEPT 0
#endif

/* Where in a block a work-item's first load of `width` elements begins, row (of A's rows or B's columns) and depth, and how much
   further its i-th does: that is a constant, which costs no register.  With BESIDE, of four loads along a row the first two are of neighbours
   and the others of those 32 items on: a sub-group that turns what it loads then puts 16 rows of two depths into all banks, not 8 of four. */
#ifndef BESIDE
#define BESIDE 0
#endif
#define IN_TWO(width) (BESIDE && TK / width == 4)
#define ROW_AT(along, width, tile)                                                               \
    ((along) ? IN_TWO(width) ? item / 64 * 16 + item % 32 / 2 : item / (TK / width) : item % (tile / width) * width)
#define ROW_ON(along, width, i) ((along) ? (i) * (ITEMS * width / TK) : 0)
#define DEPTH_AT(along, width, tile)                                                             \
    ((along) ? (IN_TWO(width) ? item % 2 + item % 64 / 32 * 2 : item % (TK / width)) * width : item / (tile / width))
#define DEPTH_ON(along, width, tile, i) ((along) ? 0 : (i) * (ITEMS * width / tile))
#define A_ROW ROW_AT(A_ALONG, A_WIDTH, TILE_M)
#define A_ROW_ON(i) ROW_ON(A_ALONG, A_WIDTH, i)
#define A_DEPTH DEPTH_AT(A_ALONG, A_WIDTH, TILE_M)
#define A_DEPTH_ON(i) DEPTH_ON(A_ALONG, A_WIDTH, TILE_M, i)
#define B_COLUMN ROW_AT(B_ALONG, B_WIDTH, TILE_N)
#define B_COLUMN_ON(i) ROW_ON(B_ALONG, B_WIDTH, i)
#define B_DEPTH DEPTH_AT(B_ALONG, B_WIDTH, TILE_N)
#define B_DEPTH_ON(i) DEPTH_ON(B_ALONG, B_WIDTH, TILE_N, i)
/* Does it begin before the end of k? */
#define HAS_A(i) (A_DEPTH_ON(i) < k_end - k - A_DEPTH)
#define HAS_B(i) (B_DEPTH_ON(i) < k_end - k - B_DEPTH)
/* A row of three levels, in elements. */
#define ROW_ADDRESS(m, s1, s2, s3) ((m) / m3 / m2 * (s1) + (m) / m3 % m2 * (s2) + (m) % m3 * (s3))

/* An element in memory; what is done before all, before each span, before each block's loads, and for the next block. */
#if FLAT
#define A_AT(i) (a + a_at##i)
#define B_AT(i) (b + b_at##i)
#define BEGIN(of, row, depth, i) uint of##_at##i = (row) + (k + (depth)) * of##k3;
#define MOVE(of, i) of##_at##i += TK * of##k3;
#define DECLARE_DEPTHS
#define FIND_ADDRESSES A_LOADS(BEGIN_A) B_LOADS(BEGIN_B)
#define SPANS
#define FIND_DEPTHS int span_end = k_end;
#if OPERANDS_KEPT
#define FIND_BLOCK                                                                               \
    __global const A_ELEMENT *a = kept.a;                                                        \
    __global const B_ELEMENT *b = kept.b;
#else
#define FIND_BLOCK
#endif
#define NEXT_BLOCK A_LOADS(MOVE_A) B_LOADS(MOVE_B)
#else
#define ONE_ROW(along, width, tile) (!(along) || (tile) * TK == ITEMS * (width))
#define A_ONE_ROW ONE_ROW(A_ALONG, A_WIDTH, TILE_M)
#define B_ONE_COLUMN ONE_ROW(B_ALONG, B_WIDTH, TILE_N)
#define A_AT(i) (a_from + (A_ALONG ? 0 : a_here[A_DEPTH_ON(i)]) + (A_ONE_ROW ? 0 : (a_rows + A_ROW)[A_ROW_ON(i)]))
#define B_AT(i) (b_from + (B_ALONG ? 0 : b_here[B_DEPTH_ON(i)]) + (B_ONE_COLUMN ? 0 : (b_columns + B_COLUMN)[B_COLUMN_ON(i)]))
#define DECLARE_DEPTHS __local int a_depths[SPAN], b_depths[SPAN];
#define FIND_ADDRESSES                                                                           \
    if (A_ONE_ROW) a += a_rows[A_ROW];                                                           \
    if (B_ONE_COLUMN) b += b_columns[B_COLUMN];
#define SPANS while (k < k_end)
/* The depths of the span before were last read two barriers ago. */
#define FIND_DEPTHS                                                                              \
    int span = k, span_end = min(k + SPAN, k_end);                                               \
    PLAIN_LOOP for (int i = k + item; i < span_end; i += ITEMS) {                                \
        int r3 = i % k3, r2 = i / k3 % k2, r1 = i / k3 / k2;                                     \
        a_depths[i - k] = r1 * ak1 + r2 * ak2 + r3 * ak3;                                        \
        b_depths[i - k] = r1 * bk1 + r2 * bk2 + r3 * bk3;                                        \
    }                                                                                            \
    barrier(CLK_LOCAL_MEM_FENCE);
/* A shared depth is read once, before any load asks whether it is beyond k. */
#define FIND_BLOCK                                                                               \
    __local const int *a_here = a_depths + (k - span + A_DEPTH), *b_here = b_depths + (k - span + B_DEPTH); \
    __global const A_ELEMENT *a_from = A_ALONG ? a + *a_here : a;                                \
    __global const B_ELEMENT *b_from = B_ALONG ? b + *b_here : b;
#define NEXT_BLOCK
#endif

/* A whole block of aligned operands is read with nothing asked; the others, of which each load asks whether it begins before the end of k,
   are few: the last of k, and all where an operand is not aligned. */
#define FETCH(is_whole)                                                                          \
    {                                                                                            \
        const bool whole = is_whole;                                                             \
        FIND_BLOCK                                                                               \
        A_LOADS(FETCH_A)                                                                         \
        B_LOADS(FETCH_B)                                                                         \
    }
#define FETCH_BLOCK(begins)                                                                      \
    if (k <= LAST_WHOLE) FETCH(true)                                                             \
    else if (begins) FETCH(false)
#define BOTH_ALIGNED ((A_WIDTH == 1 || IS_ALIGNED(a)) && (B_WIDTH == 1 || IS_ALIGNED(b)))
#define LAST_WHOLE_BEFORE(end) (BOTH_ALIGNED ? (end) - TK : k - 1)
#if OPERANDS_KEPT
#define LAST_WHOLE kept.last_whole
#define FIND_LAST_WHOLE
#else
#define LAST_WHOLE last_whole
#define FIND_LAST_WHOLE int last_whole = LAST_WHOLE_BEFORE(span_end);
#endif

#define COPY_BLOCK                                                                               \
    {                                                                                            \
        if (k < k_end) {                                                                         \
            FIND_BLOCK                                                                           \
            A_LOADS(COPY_A)                                                                      \
            B_LOADS(COPY_B)                                                                      \
            NEXT_BLOCK                                                                           \
        }                                                                                        \
        END_COPIES()                                                                             \
        k += TK;                                                                                 \
    }
#define NEXT_STAGE(at) at = at == (STAGES - 1) * BLOCK_CELLS ? 0 : at + BLOCK_CELLS;

/* What a work-group's stores will want, kept in local memory: registers are for sums.  none: 0, which no compiler can know, so that
   what follows from a work-item's number is found once more for the stores, and not held in registers, or spilled, while sums are made. */
#if OPERANDS_KEPT
typedef struct { long c, bias; int m0, n0, none; __global const A_ELEMENT *a; __global const B_ELEMENT *b; int last_whole; } place;
#define OPERANDS , a, b, LAST_WHOLE_BEFORE(k_end)
#else
typedef struct { long c, bias; int m0, n0, none; } place;
#define OPERANDS
#endif

TILE_KERNEL {
    UNPACK(TILE_ARGS)
    __local place kept;
    __local int a_rows[TILE_M], b_columns[TILE_N];
    DECLARE_DEPTHS
    int item = (int)get_local_id(0);
    DECLARE_BLOCKS
    FIND_PLACE
    int group = (int)get_group_id(0), n0 = group % tiles_n * TILE_N, m0 = group / tiles_n % tiles_m * TILE_M;
    int z = group / tiles_n / tiles_m, split = z % splits;
    z /= splits;
    __global const A_ELEMENT *a = (__global const A_ELEMENT *)a_base + a_offset + z / z2 * az1 + z % z2 * az2;
    __global const B_ELEMENT *b = (__global const B_ELEMENT *)b_base + b_offset + z / z2 * bz1 + z % z2 * bz2;
    int k = split * run, k_end = min(k + run, K);
    if (item == 0) {
        place here = {z / z2 * cz1 + z % z2 * cz2 + split * cs, bias_offset + z % z2 * bias_z, m0, n0, 0 OPERANDS};
        kept = here;
    }

    for (int i = item; i < TILE_M; i += ITEMS) {
        int m = m0 + i < M ? m0 + i : 0;
        a_rows[i] = ROW_ADDRESS(m, am1, am2, am3);
    }
    for (int i = item; i < TILE_N; i += ITEMS) b_columns[i] = n0 + i < N ? (n0 + i) * bn : 0;
    barrier(CLK_LOCAL_MEM_FENCE);

    START_SUMS
    FIND_ADDRESSES
#if STAGES > 1
    int from = 0, to = 0;
    for (; to < (STAGES - 1) * BLOCK_CELLS; to += BLOCK_CELLS) COPY_BLOCK
    PLAIN_LOOP while (k - (STAGES - 1) * TK < k_end) {
        AWAIT_COPIES(STAGES - 2)
        barrier(CLK_LOCAL_MEM_FENCE); /* this block is there, and the one before is done with: copies take its place */
        COPY_BLOCK
        MULTIPLY_BLOCK
        NEXT_STAGE(from)
        NEXT_STAGE(to)
    }
#else
    SPANS {
        FIND_DEPTHS
        FIND_LAST_WHOLE
        FETCH_BLOCK(true)
        while (k < span_end) {
            barrier(CLK_LOCAL_MEM_FENCE); /* the block before is done with */
            A_LOADS(PUT_A)
            B_LOADS(PUT_B)
            NEXT_BLOCK
            barrier(CLK_LOCAL_MEM_FENCE);
            k += TK;
            FETCH_BLOCK(k < span_end)
            MULTIPLY_BLOCK
        }
    }
#endif
    item = (int)((uint)(get_local_id(0) + (size_t)kept.none) % ITEMS);
    FIND_PLACE
    m0 = kept.m0;
    n0 = kept.n0;
    bias += kept.bias;
    STORE_TILE
}
