/* matrix_unit.h — one product of a matrix unit, C := A · B + C with A [16][16], B [16][8] and C [16][8], by 32 neighbouring
   work-items that go in step.

   Each of them, `lane` of its 32, holds a fragment of either: of A four pairs of elements that are neighbours along k (uint4), of
   B two (uint2), the first of a pair in the lower half; of C four sums (float4).  FRAGMENT_… say which.

   Fragments come from local memory as four blocks of 8 × 8 elements, whose rows of eight lie at multiples of 16 bytes: each of the 32 names
   one row, that of block lane / 8 and number lane % 8, and gets of every block the pair lane % 4 of row lane / 4; or, where blocks lie
   crossed, of column lane / 4.

   Elements may also be on their way from global to local memory by themselves, while work-items multiply others.

   With PTX: mma.sync.aligned.m16n8k16 of NVIDIA's PTX ISA 7.0 (section "Matrix Fragments for mma.m16n8k16"), which devices of compute
   capability 8.0 and later have, ldmatrix.x4 and cp.async.  Else copies are done at once, and fragments and places of rows go through
   local memory, EXCHANGE numbers for each 32: on any device and slow, to show that what holds and names them does so rightly.
   IN: f16 or bf16. */
#ifndef IN
#define IN f16
#endif
enum { LANES = 32 };
#define FRAGMENT_A_ROW(lane, i) ((lane) / 4 + (i) % 2 * 8)
#define FRAGMENT_A_DEPTH(lane, i) ((lane) % 4 * 2 + (i) / 2 * 8)
#define FRAGMENT_B_COLUMN(lane) ((lane) / 4)
#define FRAGMENT_B_DEPTH(lane, i) ((lane) % 4 * 2 + (i) * 8)
#define FRAGMENT_C_ROW(lane, i) ((lane) / 4 + (i) / 2 * 8)
#define FRAGMENT_C_COLUMN(lane, i) ((lane) % 4 * 2 + (i) % 2)

/* LOAD_BLOCKS(n, along, cells, at), a uint4: the n-th of those that were named, by NAME_BLOCKS(n, at) before a MEET(); at: of the
   lane's row in cells; along: rows lie along k, else blocks are crossed. */
#define LOAD_BLOCKS(n, along, cells, at) CAT(LOAD_BLOCKS_, along)(n, cells, at)

/* COPY_EIGHT(to, from, has) copies eight elements of 16 bits to local memory, or zeros; both addresses are multiples of 16 bytes.
   END_COPIES(): those since the last one are a set.  AWAIT_COPIES(n): all sets of this work-item but the last n have arrived; others
   see them after a barrier. */

/* MULTIPLY_FRAGMENTS(c, i, a, j, b) after SHOW_A(i, a) and SHOW_B(j, b) of all that it will be called with, between two
   MEET(), which all work-items of a group must come to. */
#ifdef PTX
#define PTX_f16 "f16"
#define PTX_bf16 "bf16"
static float4 multiply_fragments(uint4 a, uint2 b, float4 c) {
    float c0 = c.s0, c1 = c.s1, c2 = c.s2, c3 = c.s3;
    __asm__ volatile("mma.sync.aligned.m16n8k16.row.col.f32." CAT(PTX_, IN) "." CAT(PTX_, IN) ".f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                     : "r"(a.s0), "r"(a.s1), "r"(a.s2), "r"(a.s3), "r"(b.s0), "r"(b.s1));
    return (float4)(c0, c1, c2, c3);
}
#define LOADS(name, how)                                                                                                      \
    static uint4 name(__local const ushort *row) {                                                                            \
        uint b0, b1, b2, b3;                                                                                                  \
        __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0, %1, %2, %3}, [%4];"                            \
                         : "=r"(b0), "=r"(b1), "=r"(b2), "=r"(b3)                                                             \
                         : "r"((uint)(size_t)row)                                                                             \
                         : "memory");                                                                                         \
        return (uint4)(b0, b1, b2, b3);                                                                                       \
    }
LOADS(load_blocks, "")
LOADS(load_crossed, ".trans")
static void copy_eight(__local ushort *to, __global const ushort *from, bool has) {
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"((uint)(size_t)to), "l"(from), "r"(has ? 16 : 0) : "memory");
}
#define COPY_EIGHT(to, from, has) copy_eight(to, from, has);
#define END_COPIES() __asm__ volatile("cp.async.commit_group;" : : : "memory");
#define AWAIT_COPIES(n) __asm__ volatile("cp.async.wait_group %0;" : : "n"(n) : "memory");
#define NAME_BLOCKS(n, at)
#define LOAD_BLOCKS_1(n, cells, at) load_blocks((cells) + (at))
#define LOAD_BLOCKS_0(n, cells, at) load_crossed((cells) + (at))
#define EXCHANGE(tiles_m, tiles_n) 1
#define SHOW_A(i, a) (void)exchange;
#define SHOW_B(j, b)
#define MEET()
#define MULTIPLY_FRAGMENTS(c, i, a, j, b) c = multiply_fragments(a, b, c);
#else
#define COPY_EIGHT(to, from, has) *(__local ushort8 *)(to) = (has) ? *(__global const ushort8 *)(from) : (ushort8)(0);
#define END_COPIES()
#define AWAIT_COPIES(n)
enum { PAIRS_A = 16 * 8, PAIRS_B = 8 * 8 };
#define PLACES(tiles_m, tiles_n) ((tiles_m) * PAIRS_A + (tiles_n) * PAIRS_B)
#define EXCHANGE(tiles_m, tiles_n) (PLACES(tiles_m, tiles_n) + ((tiles_m) + ((tiles_n) + 1) / 2) * LANES)
static uint load_pair(__local const ushort *cells, __local const uint *rows, int lane) {
    return *(__local const uint *)(cells + rows[lane / 4] + lane % 4 * 2);
}
static uint load_crossed_pair(__local const ushort *cells, __local const uint *rows, int lane) {
    return (uint)cells[rows[lane % 4 * 2] + lane / 4] | (uint)cells[rows[lane % 4 * 2 + 1] + lane / 4] << 16;
}
#define FOUR_BLOCKS(f, cells, rows) (uint4)(f(cells, rows, lane), f(cells, rows + 8, lane), f(cells, rows + 16, lane), f(cells, rows + 24, lane))
#define NAMED_BLOCKS(n) (exchange + PLACES(TILES_M, TILES_N) + (n) * LANES)
#define NAME_BLOCKS(n, at) NAMED_BLOCKS(n)[lane] = (uint)(at);
#define LOAD_BLOCKS_1(n, cells, at) FOUR_BLOCKS(load_pair, cells, NAMED_BLOCKS(n))
#define LOAD_BLOCKS_0(n, cells, at) FOUR_BLOCKS(load_crossed_pair, cells, NAMED_BLOCKS(n))
/* The elements of a pair. */
#define PAIR_f16(p) vload_half2(0, (__local const half *)(p))
#define PAIR_bf16(p) as_float2((uint2)(*(p) << 16, *(p) & 0xffff0000u))
static void show_a(__local uint *to, int lane, uint4 a) {
    to[FRAGMENT_A_ROW(lane, 0) * 8 + FRAGMENT_A_DEPTH(lane, 0) / 2] = a.s0;
    to[FRAGMENT_A_ROW(lane, 1) * 8 + FRAGMENT_A_DEPTH(lane, 1) / 2] = a.s1;
    to[FRAGMENT_A_ROW(lane, 2) * 8 + FRAGMENT_A_DEPTH(lane, 2) / 2] = a.s2;
    to[FRAGMENT_A_ROW(lane, 3) * 8 + FRAGMENT_A_DEPTH(lane, 3) / 2] = a.s3;
}
static void show_b(__local uint *to, int lane, uint2 b) {
    to[FRAGMENT_B_COLUMN(lane) * 8 + FRAGMENT_B_DEPTH(lane, 0) / 2] = b.s0;
    to[FRAGMENT_B_COLUMN(lane) * 8 + FRAGMENT_B_DEPTH(lane, 1) / 2] = b.s1;
}
static float4 multiply_fragments(__local const uint *a, __local const uint *b, int lane, float4 c) {
    PLAIN_LOOP
    for (int i = 0; i < 8; i++) {
#define A_OF(e) CAT(PAIR_, IN)(a + FRAGMENT_C_ROW(lane, e) * 8 + i)
#define B_OF(e) CAT(PAIR_, IN)(b + FRAGMENT_C_COLUMN(lane, e) * 8 + i)
        float2 a0 = A_OF(0), a1 = A_OF(1), a2 = A_OF(2), a3 = A_OF(3), b0 = B_OF(0), b1 = B_OF(1), b2 = B_OF(2), b3 = B_OF(3);
        c = fma((float4)(a0.s0, a1.s0, a2.s0, a3.s0), (float4)(b0.s0, b1.s0, b2.s0, b3.s0), c);
        c = fma((float4)(a0.s1, a1.s1, a2.s1, a3.s1), (float4)(b0.s1, b1.s1, b2.s1, b3.s1), c);
    }
    return c;
}
/* `exchange` is the 32's own, for TILES_M fragments of A and after them those of B. */
#define SHOW_A(i, a) show_a(exchange + (i) * PAIRS_A, lane, a);
#define SHOW_B(j, b) show_b(exchange + TILES_M * PAIRS_A + (j) * PAIRS_B, lane, b);
#define MEET() barrier(CLK_LOCAL_MEM_FENCE);
#define MULTIPLY_FRAGMENTS(c, i, a, j, b)                                                                                     \
    c = multiply_fragments(exchange + (i) * PAIRS_A, exchange + TILES_M * PAIRS_A + (j) * PAIRS_B, lane, c);
#endif
