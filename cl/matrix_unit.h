/* matrix_unit.h — one product of a matrix unit, C := A · B + C with A [16][16], B [16][8] and C [16][8], by 32 neighbouring
   work-items that go in step.

   Each of them, `lane` of its 32, holds a fragment of either: of A four pairs of elements that are neighbours along k (uint4), of
   B two (uint2), the first of a pair in the lower half; of C four sums (float4).  FRAGMENT_… say which.

   Fragments come from local memory as four blocks of 8 × 8 elements, whose rows of eight lie at multiples of 16 bytes: each of the 32 names
   one row, that of block lane / 8 and number lane % 8, and gets of every block the pair lane % 4 of row lane / 4; or, where blocks lie
   crossed, of column lane / 4.

   Of f32 A is [16][8] and B [8][8]: where half types have a pair there is one element, and four in 16 bytes.  Fragments are rounded to TF32,
   f32 with 10 bits of mantissa: to nearest, ties away from zero.  From blocks that lie crossed each of the 32 reads its own four elements.

   With PTX: mma.sync.aligned.m16n8k16 of NVIDIA's PTX ISA 7.0 (section "Matrix Fragments for mma.m16n8k16"; of f32 m16n8k8 and
   cvt.rna.tf32), which devices of compute capability 8.0 and later have, ldmatrix.x4 and cp.async.  Else copies are done at once, and
   fragments and places of rows go through local memory, EXCHANGE numbers for each 32: on any device and slow, to show that what holds
   and names them does so rightly.
   IN: f16, bf16 or f32. */
#ifndef IN
#define IN f16
#endif
#define IN_WORD_f16 2
#define IN_WORD_bf16 2
#define IN_WORD_f32 1
#define IN_WORD CAT(IN_WORD_, IN) /* elements in 32 bits, */
#if IN_WORD == 2
#define RAW ushort
#define RUN 8        /* in 16 bytes, */
#define UNIT_DEPTH 16 /* and along k in one product */
#else
#define RAW uint
#define RUN 4
#define UNIT_DEPTH 8
#endif
enum { LANES = 32 };
#define FRAGMENT_A_ROW(lane, i) ((lane) / 4 + (i) % 2 * 8)
#define FRAGMENT_A_DEPTH(lane, i) ((lane) % 4 * IN_WORD + (i) / 2 * RUN)
#define FRAGMENT_B_COLUMN(lane) ((lane) / 4)
#define FRAGMENT_B_DEPTH(lane, i) ((lane) % 4 * IN_WORD + (i) * RUN)
#define FRAGMENT_C_ROW(lane, i) ((lane) / 4 + (i) / 2 * 8)
#define FRAGMENT_C_COLUMN(lane, i) ((lane) % 4 * 2 + (i) % 2)

/* LOAD_BLOCKS(n, along, cells, at, second, third), a uint4: the n-th of those that were named, by NAME_BLOCKS(n, at) before a MEET(); at: of
   the lane's row in cells; along: rows lie along k, else blocks are crossed.  Of f32 that lies crossed, at: of the lane's element of the first
   block, lane % 4 along k and lane / 4 across; second, third: from there to those of the blocks after it. */
#define LOAD_BLOCKS(n, along, cells, at, second, third) CAT(LOAD_BLOCKS_, along)(n, cells, at, second, third)

/* MULTIPLY_FRAGMENTS(c, i, a, j, b) after SHOW_A(i, a) and SHOW_B(j, b) of all that it will be called with, between two
   MEET(), which all work-items of a group must come to. */
#ifdef PTX
#define PTX_f16 "k16.row.col.f32.f16.f16"
#define PTX_bf16 "k16.row.col.f32.bf16.bf16"
#define PTX_f32 "k8.row.col.f32.tf32.tf32"
static float4 multiply_fragments(uint4 a, uint2 b, float4 c) {
    float c0 = c.s0, c1 = c.s1, c2 = c.s2, c3 = c.s3;
    __asm__ volatile("mma.sync.aligned.m16n8" CAT(PTX_, IN) ".f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                     : "r"(a.s0), "r"(a.s1), "r"(a.s2), "r"(a.s3), "r"(b.s0), "r"(b.s1));
    return (float4)(c0, c1, c2, c3);
}
#define LOADS(name, how)                                                                                                      \
    static uint4 name(__local const RAW *row) {                                                                              \
        uint b0, b1, b2, b3;                                                                                                  \
        __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0, %1, %2, %3}, [%4];"                            \
                         : "=r"(b0), "=r"(b1), "=r"(b2), "=r"(b3)                                                             \
                         : "r"((uint)(size_t)row)                                                                             \
                         : "memory");                                                                                         \
        return (uint4)(b0, b1, b2, b3);                                                                                       \
    }
LOADS(load_blocks, "")
#if IN_WORD == 2
LOADS(load_crossed, ".trans")
#else
static uint nearest(uint x) {
    uint y;
    __asm__("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(as_float(x)));
    return y;
}
static uint4 rounded(uint4 x) { return (uint4)(nearest(x.s0), nearest(x.s1), nearest(x.s2), nearest(x.s3)); }
#endif
#define NAME_BLOCKS(n, at)
#if IN_WORD == 2
#define LOAD_BLOCKS_1(n, cells, at, second, third) load_blocks((cells) + (at))
#define LOAD_BLOCKS_0(n, cells, at, second, third) load_crossed((cells) + (at))
#else
#define LOAD_BLOCKS_1(n, cells, at, second, third) rounded(load_blocks((cells) + (at)))
#endif
#define EXCHANGE(tiles_m, tiles_n) 1
#define SHOW_A(i, a) (void)exchange;
#define SHOW_B(j, b)
#define MEET()
#define MULTIPLY_FRAGMENTS(c, i, a, j, b) c = multiply_fragments(a, b, c);
#else
enum { PAIRS_A = 16 * 8, PAIRS_B = 8 * 8 };
#define PLACES(tiles_m, tiles_n) ((tiles_m) * PAIRS_A + (tiles_n) * PAIRS_B)
#define EXCHANGE(tiles_m, tiles_n) (PLACES(tiles_m, tiles_n) + ((tiles_m) + ((tiles_n) + 1) / 2) * LANES)
#if IN_WORD == 2
static uint load_pair(__local const ushort *cells, __local const uint *rows, int lane) {
    return *(__local const uint *)(cells + rows[lane / 4] + lane % 4 * 2);
}
static uint load_crossed_pair(__local const ushort *cells, __local const uint *rows, int lane) {
    return (uint)cells[rows[lane % 4 * 2] + lane / 4] | (uint)cells[rows[lane % 4 * 2 + 1] + lane / 4] << 16;
}
#else
static uint load_word(__local const uint *cells, __local const uint *rows, int lane) { return cells[rows[lane / 4] + lane % 4]; }
/* Numbers with all bits of the exponent set stay what they are. */
static uint4 rounded(uint4 x) { return (x & 0x7f800000u) == 0x7f800000u ? x : (x + 0x1000u) & ~0x1fffu; }
#endif
#define FOUR_BLOCKS(f, cells, rows) (uint4)(f(cells, rows, lane), f(cells, rows + 8, lane), f(cells, rows + 16, lane), f(cells, rows + 24, lane))
#define NAMED_BLOCKS(n) (exchange + PLACES(TILES_M, TILES_N) + (n) * LANES)
#define NAME_BLOCKS(n, at) NAMED_BLOCKS(n)[lane] = (uint)(at);
#if IN_WORD == 2
#define LOAD_BLOCKS_1(n, cells, at, second, third) FOUR_BLOCKS(load_pair, cells, NAMED_BLOCKS(n))
#define LOAD_BLOCKS_0(n, cells, at, second, third) FOUR_BLOCKS(load_crossed_pair, cells, NAMED_BLOCKS(n))
#else
#define LOAD_BLOCKS_1(n, cells, at, second, third) rounded(FOUR_BLOCKS(load_word, cells, NAMED_BLOCKS(n)))
#endif
/* The elements of a pair. */
#define PAIR_f16(p) vload_half2(0, (__local const half *)(p))
#define PAIR_bf16(p) as_float2((uint2)(*(p) << 16, *(p) & 0xffff0000u))
static void show_a(__local uint *to, int lane, uint4 a) {
    to[FRAGMENT_A_ROW(lane, 0) * 8 + FRAGMENT_A_DEPTH(lane, 0) / IN_WORD] = a.s0;
    to[FRAGMENT_A_ROW(lane, 1) * 8 + FRAGMENT_A_DEPTH(lane, 1) / IN_WORD] = a.s1;
    to[FRAGMENT_A_ROW(lane, 2) * 8 + FRAGMENT_A_DEPTH(lane, 2) / IN_WORD] = a.s2;
    to[FRAGMENT_A_ROW(lane, 3) * 8 + FRAGMENT_A_DEPTH(lane, 3) / IN_WORD] = a.s3;
}
static void show_b(__local uint *to, int lane, uint2 b) {
    to[FRAGMENT_B_COLUMN(lane) * 8 + FRAGMENT_B_DEPTH(lane, 0) / IN_WORD] = b.s0;
    to[FRAGMENT_B_COLUMN(lane) * 8 + FRAGMENT_B_DEPTH(lane, 1) / IN_WORD] = b.s1;
}
static float4 multiply_fragments(__local const uint *a, __local const uint *b, int lane, float4 c) {
    PLAIN_LOOP
    for (int i = 0; i < 8; i++) {
#if IN_WORD == 2
#define A_OF(e) CAT(PAIR_, IN)(a + FRAGMENT_C_ROW(lane, e) * 8 + i)
#define B_OF(e) CAT(PAIR_, IN)(b + FRAGMENT_C_COLUMN(lane, e) * 8 + i)
        float2 a0 = A_OF(0), a1 = A_OF(1), a2 = A_OF(2), a3 = A_OF(3), b0 = B_OF(0), b1 = B_OF(1), b2 = B_OF(2), b3 = B_OF(3);
        c = fma((float4)(a0.s0, a1.s0, a2.s0, a3.s0), (float4)(b0.s0, b1.s0, b2.s0, b3.s0), c);
        c = fma((float4)(a0.s1, a1.s1, a2.s1, a3.s1), (float4)(b0.s1, b1.s1, b2.s1, b3.s1), c);
#else
#define A_OF(e) a[FRAGMENT_C_ROW(lane, e) * 8 + i]
#define B_OF(e) b[FRAGMENT_C_COLUMN(lane, e) * 8 + i]
        c = fma(as_float4((uint4)(A_OF(0), A_OF(1), A_OF(2), A_OF(3))), as_float4((uint4)(B_OF(0), B_OF(1), B_OF(2), B_OF(3))), c);
#endif
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
#if IN_WORD == 1
#define LOAD_BLOCKS_0(n, cells, at, second, third)                                                                            \
    rounded((uint4)((cells)[at], (cells)[(at) + (second)], (cells)[(at) + (third)], (cells)[(at) + (second) + (third)]))
#endif
