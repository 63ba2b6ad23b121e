/* gemm.cl — C[z][m][n] = Σ_k A[z][m][k] · B[z][k][n] (+ bias[n]), for products and convolutions alike, and the epilogue (epilogue.h).

   A work-item owns `tiles` row tiles times `panels` column panels.  A tile is MR rows by NV vectors of W lanes, one named
   accumulator each, so that they stay in registers.  A is read by address: rows in three levels (m1, m2, m3), k in three
   levels (k1, k2, k3) with any strides, so an image needs no im2col.  B is a row of NV·W lanes per k, `ldb` apart: packed
   panels (pack.cl), or a row-major matrix as it lies.  Rows beyond M repeat the last one and are not stored; no branch
   stands in the k loop.  With splits > 1 each split sums its own run of k into its own C.  A long k goes in blocks, all tiles
   of a work-item for each, so that what a block reads of A and B stays in a cache; C gathers the blocks' sums.

   With ROOM > 0 a work-item packs what a block reads of A first, into as many elements of local memory: [tile][k][MR].  Then one
   address serves all rows of a tile, and the k loop reads it in order, however A lies.  On a CPU local memory belongs to a thread,
   so it stays in the cache from one work-item to the next.

   Knobs: MR, NV, W; ROOM; UNIT: the rows of a tile follow one another in A, so that one address serves them all there too;
   ALONG: so do the depths of a run, and the addresses of all steps share one index; IN: f32, f64, i32 or i64, what A is and sums are
   made in; B_IN: f32, f16, bf16, f64, i32 or i64, storage of B, which is converted in registers; OUT: storage of C and bias.
   Checked with: UNIT=1; NV=2 UNIT=1; ROOM=2048; ALONG=1; ROOM=2048 ALONG=1 MR=6 NV=2 W=8. */
#ifndef IN
#define IN f32
#endif
#ifndef B_IN
#define B_IN f32
#endif
#ifndef OUT
#define OUT f32
#endif
#ifndef MR
#define MR 4
#endif
#ifndef NV
#define NV 1
#endif
#ifndef UNIT
#define UNIT 0
#endif
#ifndef ALONG
#define ALONG 0
#endif
#ifndef ROOM
#define ROOM 0
#endif
#ifndef W
#define W 4
#endif
#include "common.h"
#include "args.h"
#include "gemm.args"
#include "registers.h"
#include "transpose.h"
#define RESULT OUT
#include "epilogue.h"

#define NR (NV * W)
#define B_AHEAD 16 /* so many rows of B before its turn one is asked for: where rows are far apart, nobody else does */
#define S COMPUTE(IN)
#define V VEC(S, W)

/* ---- rows ---- */

/* A row: its two inner levels, and where it lies in A and C.  `to_next` steps on, with carry. */
typedef struct { int r2, r3; long a, c; } row;
typedef struct { int m2, m3; long a3, a2, a1, c3, c2, c1; } steps;
static row row_at(int m, steps s) {
    int r3 = m % s.m3, r2 = m / s.m3 % s.m2, r1 = m / s.m3 / s.m2;
    row r = {r2, r3, r3 * s.a3 + r2 * s.a2 + r1 * s.a1, r3 * s.c3 + r2 * s.c2 + r1 * s.c1};
    return r;
}
static row to_next(row r, steps s) {
    r.a += s.a3;
    r.c += s.c3;
    if (++r.r3 == s.m3) {
        r.r3 = 0;
        r.a += s.a2 - s.m3 * s.a3;
        r.c += s.c2 - s.m3 * s.c3;
        if (++r.r2 == s.m2) {
            r.r2 = 0;
            r.a += s.a1 - s.m2 * s.a2;
            r.c += s.c1 - s.m2 * s.c2;
        }
    }
    return r;
}

/* Where the rows of a tile lie in A and C, from r on; those beyond `left` repeat the last one.  Returns the next tile's first. */
static row find_rows(row r, steps s, int left, long *a_row, long *c_row) {
    if (left == MR && r.r3 + MR < s.m3) { /* as most do: without a carry */
        PLAIN_LOOP
        for (int i = 0; i < MR; i++) {
            a_row[i] = r.a + i * s.a3;
            c_row[i] = r.c + i * s.c3;
        }
        row next = {r.r2, r.r3 + MR, r.a + MR * s.a3, r.c + MR * s.c3};
        return next;
    }
    PLAIN_LOOP
    for (int i = 0; i < MR; i++) {
        a_row[i] = r.a;
        c_row[i] = r.c;
        if (i + 1 < left) r = to_next(r, s);
    }
    return to_next(r, s);
}

/* ---- A packed into local memory ---- */

#if ROOM
/* A tile's rows, W at a time: from the first of these, or the last W if there are fewer left. */
#define ROW_GROUPS(r) for (int r = 0, next; r < MR; r = next)
#define AFTER_GROUP(r) (r + W < MR && r + 2 * W > MR ? MR - W : r + W)

/* As many of `run` depths as fill squares of W × W, contiguous along k; returns how many.  A vector longer than a tile runs over into
   what is written next. */
static int pack_along(__global const MEMORY(IN) *a, const long *row, __local S *to, int run) {
    int k = 0;
    PLAIN_LOOP
    for (; k + W <= run; k += W) {
        PLAIN_LOOP
        ROW_GROUPS(r) {
            next = AFTER_GROUP(r);
#define TAKE(q) V a##q = LOAD(IN, W, a, row[min(r + q, MR - 1)] + k), b##q;
            LINES(TAKE)
            TRANSPOSE(a, b)
#define GIVE(q) CAT(VSTORE_, W)(CAT(TURNED(a, b), q), to + (k + q) * MR + r);
            LINES(GIVE)
        }
    }
    return k;
}

/* `run` depths of rows that follow one another, of which there are W or more. */
static void pack_across(__global const MEMORY(IN) *a, long step, __local S *to, int run) {
    PLAIN_LOOP
    for (int k = 0; k < run; k++) {
        PLAIN_LOOP
        ROW_GROUPS(r) {
            next = AFTER_GROUP(r);
            CAT(VSTORE_, W)(LOAD(IN, W, a, k * step + r), to + k * MR + r);
        }
    }
}

/* `run` depths of a tile, a `step` apart. */
static void pack_run(__global const MEMORY(IN) *a, const long *row, long step, bool follow, __local S *to, int run) {
    int k = 0;
    if (step == 1) k = pack_along(a, row, to, run);
    else if (follow) pack_across(a + row[0], step, to, k = run);
    PLAIN_LOOP
    for (; k < run; k++) {
        PLAIN_LOOP
        for (int r = 0; r < MR; r++) to[k * MR + r] = a[row[r] + k * step];
    }
}

/* Depths in A: their two inner levels. */
typedef struct { int k2, k3; long a3, a2, a1; } depths;

/* All tiles of a work-item, from k_begin to k_end; rows beyond m_end repeat the last one. */
static void pack_rows(__global const MEMORY(IN) *a, steps s, depths d, int m_begin, int m_end, int k_begin, int k_end,
                      __local S *to) {
    row r = row_at(m_begin, s);
    PLAIN_LOOP
    for (int m = m_begin; m < m_end; m += MR) {
        bool follow = s.a3 == 1 && r.r3 + max(MR, W) <= s.m3 && m + MR <= m_end;
        long a_row[MR];
        PLAIN_LOOP
        for (int i = 0; i < MR; i++) {
            a_row[i] = r.a;
            if (m + i + 1 < m_end) r = to_next(r, s);
        }
        PLAIN_LOOP
        for (int k = k_begin; k < k_end; k += d.k3) {
            int level = k / d.k3, run = min(d.k3, k_end - k);
            pack_run(a + level / d.k2 * d.a1 + level % d.k2 * d.a2, a_row, d.a3, follow, to, run);
            to += run * MR;
        }
    }
}
#endif

/* ---- the sums of a tile: c[row][vector] ---- */

#define FMA(x, y, z) CAT(FMA_, IN)(x, y, z)
#define START(i, j) V c##i##_##j = (V)(0);
#define START_ROW(i) COLUMNS(START, i)
/* They will be written. */
#define TOUCH(i, j)                                                                                    \
    if (j * W * sizeof(*corner) % 64 == 0) PREFETCH_WRITE(corner + c_row[i] + j * W);
#define TOUCH_ROW(i) COLUMNS(TOUCH, i)

/* One depth; A_AT(i) is what row i of A has there, NEXT_A goes on to the next. */
#define FETCH(i, j) V b##j = LOAD(B_IN, W, bp, j * W);
#define SOON(i, j)                                                                                     \
    if (j * W * sizeof(*bp) % 64 == 0) PREFETCH_READ(bp + B_AHEAD * ldb + j * W);
#define MULTIPLY(i, j) c##i##_##j = FMA((V)(x), b##j, c##i##_##j);
#define STEP_ROW(i)                                                                                    \
    {                                                                                                  \
        S x = A_AT(i);                                                                                 \
        COLUMNS(MULTIPLY, i)                                                                           \
    }
#define STEP                                                                                           \
    {                                                                                                  \
        COLUMNS(FETCH, 0)                                                                              \
        COLUMNS(SOON, 0)                                                                               \
        ROWS(STEP_ROW)                                                                                 \
        bp += ldb;                                                                                     \
        NEXT_A                                                                                         \
    }
#define TWO_STEPS                                                                                      \
    {                                                                                                  \
        STEP STEP                                                                                      \
    }

/* All depths of a block.  BEGIN_BLOCK comes once for all of a work-item's tiles. */
#if ROOM
#define BEGIN_BLOCK pack_rows(a, s, (depths){k2, k3, ak3, ak2, ak1}, m_begin, m_end, k_begin, k_end, packed);
#define A_AT(i) ap[i]
#define NEXT_A ap += MR;
#define SUM_BLOCK                                                                                      \
    __local const S *ap = packed + (m - m_begin) * (k_end - k_begin);                                  \
    int k = k_begin;                                                                                   \
    PLAIN_LOOP                                                                                         \
    for (; k + 2 <= k_end; k += 2) TWO_STEPS                                                           \
    if (k < k_end) STEP
#else
#define BEGIN_BLOCK int begin1 = begin / k2, begin2 = begin % k2;
#define ADDRESS(i) __global const MEMORY(IN) *a##i = a + a_row[i];
#if UNIT
#define ADDRESSES ADDRESS(0)
#define A_AT(i) a0[at + i]
#else
#define ADDRESSES ROWS(ADDRESS)
#define A_AT(i) a##i[at]
#endif
#define NEXT_A at += ALONG ? 1 : ak3;
/* A comes from memory while its first panel of B stays in a cache: four lines on in a tile's rows, and what the next tile has here, are asked
   for, a line at a time. */
#if UNIT
#define AHEAD(i)
#else
#define AHEAD(i)                                                                                       \
    PREFETCH_READ(a##i + at + 256 / sizeof(*a));                                                       \
    PREFETCH_TO_L2(a##i + at + MR * am3);
#endif
#define IS_FIRST (panel == (int)get_global_id(0) * panels)
#if NV > 1
#define MANY_STEPS                                                                                     \
    PLAIN_LOOP                                                                                         \
    while (i + 2 <= run) {                                                                             \
        int stop = min(i + 16, run & ~1);                                                              \
        if (IS_FIRST && stop == i + 16) {                                                              \
            ROWS(AHEAD)                                                                                \
        }                                                                                              \
        PLAIN_LOOP                                                                                     \
        for (; i < stop; i += 2) TWO_STEPS                                                             \
    }
#elif UNIT
#define MANY_STEPS
#else
#define MANY_STEPS                                                                                     \
    PLAIN_LOOP                                                                                         \
    for (; i + 16 <= run; i += 16) {                                                                   \
        ROWS(AHEAD)                                                                                    \
        PLAIN_LOOP                                                                                     \
        for (int u = 0; u < 16; u++) STEP                                                              \
    }
#endif
#define SUM_BLOCK                                                                                      \
    ADDRESSES                                                                                          \
    int s1 = begin1, s2 = begin2;                                                                      \
    PLAIN_LOOP                                                                                         \
    for (int k = k_begin; k < k_end; k += k3) {                                                        \
        long at = s1 * ak1 + s2 * ak2;                                                                 \
        int run = min(k3, k_end - k), i = 0;                                                           \
        MANY_STEPS                                                                                     \
        PLAIN_LOOP                                                                                     \
        for (; i < run; i++) STEP                                                                      \
        if (++s2 == k2) {                                                                              \
            s2 = 0;                                                                                    \
            s1++;                                                                                      \
        }                                                                                              \
    }
#endif

/* ---- what becomes of them ---- */

/* The bias of a panel's columns, zeros beyond N. */
BY_ITSELF static void find_bias(__global const MEMORY(OUT) *bias, int n, int N, S *lane) {
    PLAIN_LOOP
    for (int j = 0; j < NR; j++) lane[j] = n + j < N ? LOAD(OUT, 1, bias, n + j) : 0;
}
#define NOTHING(i, j) V bias##j = (V)(0);
#define FROM_LANES(i, j) bias##j = CAT(VLOAD_, W)(lane + j * W);
#define ADD_BIAS(i, j) c##i##_##j += bias##j;
#define ADD_BIAS_ROW(i) COLUMNS(ADD_BIAS, i)

/* A tile that C has as a whole, contiguous: what earlier blocks summed is added, and the sums are stored. */
#define ADD(i, j) c##i##_##j += LOAD(OUT, W, corner + c_row[i], j * W);
#define ADD_ROW(i) COLUMNS(ADD, i)
#define PUT(i, j) STORE(OUT, W, corner + c_row[i], j * W, c##i##_##j);
#define PUT_ROW(i)                                                                                     \
    if (i < left) {                                                                                    \
        COLUMNS(PUT, i)                                                                                \
    }

/* Another: its elements go through private memory.  A row's from `begin` to `end`, added to what is there or not. */
#define SPILL(i, j) CAT(VSTORE_, W)(c##i##_##j, tile + i * NR + j * W);
#define SPILL_ROW(i) COLUMNS(SPILL, i)
BY_ITSELF static void put_part(S *tile, __global MEMORY(OUT) *to, int begin, int end, long cn, bool again) {
    int j = begin;
    PLAIN_LOOP
    for (int e = begin; again && e < end; e++) tile[e] += LOAD(OUT, 1, to, e * cn);
    PLAIN_LOOP
    for (; cn == 1 && j + 4 <= end; j += 4) STORE(OUT, 4, to, j, VLOAD_4(tile + j));
    PLAIN_LOOP
    for (; j < end; j++) STORE(OUT, 1, to, j * cn, tile[j]);
}

KERNEL(gemm, GEMM_ARGS) {
    UNPACK(GEMM_ARGS)
#if ROOM
    ROOM_OF_ITEM(S, packed, ROOM)
#endif
    int z = (int)get_global_id(2);
    int split = z % splits;
    z /= splits;
    __global const MEMORY(IN) *a = a_base + a_offset + z / z2 * az1 + z % z2 * az2;
    __global const MEMORY(B_IN) *b = b_base + b_offset + z / z2 * bz1 + z % z2 * bz2;
    __global MEMORY(OUT) *c = c_base + c_offset + z / z2 * cz1 + z % z2 * cz2 + split * cs;
    bias += bias_offset + z % z2 * bias_z;
    int first = split * split_runs, last = min(first + split_runs, (K + k3 - 1) / k3); /* this split's runs of k3 */
    steps s = {m2, m3, am3, am2, am1, cm3, cm2, cm1};
    int panel_end = min(((int)get_global_id(0) + 1) * panels, (N + NR - 1) / NR);
    int m_begin = (int)get_global_id(1) * tiles * MR, m_end = min(m_begin + tiles * MR, M);

    PLAIN_LOOP
    for (int begin = first; begin < last; begin += block) {
        int k_begin = begin * k3, k_end = min(min(begin + block, last) * k3, K);
        bool again = begin > first, whole = begin + block >= last; /* are there earlier blocks, later ones? */
        bool with_bias = whole && ops & EPILOGUE_BIAS, with_ops = whole && ops & ~EPILOGUE_BIAS;
        BEGIN_BLOCK
        PLAIN_LOOP
        for (int panel = (int)get_global_id(0) * panels; panel < panel_end; panel++) {
            /* A matrix read as it lies must not be read past its end: the last panel moves back and leaves out `skip`. */
            int n = direct ? min(panel * NR, N - NR) : panel * NR;
            int skip = panel * NR - n;
            __global const MEMORY(B_IN) *b_panel = b + (direct ? (long)n : panel * panel_stride) + k_begin * ldb;
            __global MEMORY(OUT) *corner = c + n * cn;
            COLUMNS(NOTHING, 0)
            if (with_bias) {
                S lane[NR];
                find_bias(bias, n, N, lane);
                COLUMNS(FROM_LANES, 0)
            }
            row r = row_at(m_begin, s);
            PLAIN_LOOP
            for (int m = m_begin; m < m_end; m += MR) {
                int left = min(m_end - m, MR);
                long a_row[MR], c_row[MR];
                __global const MEMORY(B_IN) *bp = b_panel;
                r = find_rows(r, s, left, a_row, c_row);
                ROWS(START_ROW)
                ROWS(TOUCH_ROW)
                SUM_BLOCK
                if (with_bias) {
                    ROWS(ADD_BIAS_ROW)
                }
                if (cn == 1 && skip == 0 && n + NR <= N) {
                    if (again) {
                        ROWS(ADD_ROW)
                    }
                    ROWS(PUT_ROW)
                } else {
                    S tile[MR * NR];
                    ROWS(SPILL_ROW)
                    PLAIN_LOOP
                    for (int i = 0; i < left; i++) put_part(tile + i * NR, corner + c_row[i], skip, min(NR, N - n), cn, again);
                }
                PLAIN_LOOP
                for (int i = 0; with_ops && i < left; i++) {
                    __global MEMORY(OUT) *to = corner + c_row[i] + skip * cn;
                    epilogue_row(to, extra + extra_offset + (to - c_base - c_offset), cn, min(NR, N - n) - skip, scale, ops);
                }
            }
        }
    }
}
