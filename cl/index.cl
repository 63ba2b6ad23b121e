/* index.cl — reading, adding and placing by index, and counting up.  An index outside 0 … n-1 reads 0 and changes nothing.

   Where several elements go to one place, one work-item owns the place and takes them in the order of the indices: the same
   bits every time, without atomics.
   DT: f32 f16 bf16 f64 i32 i64 u8 bool.  IT: i32 i64 (of the indices).  W: lanes of a vector along a row.  JOIN: what
   scatter makes of what is there and what comes.  BASED: what add_rows adds to is given.
   Checked with: JOIN=JOIN_TAKE; JOIN=JOIN_LARGEST; JOIN=JOIN_SMALLEST; W=1; BASED=1. */
#ifndef DT
#define DT f32
#endif
#ifndef IT
#define IT i32
#endif
#ifndef W
#define W CLEF_LANES
#endif
#ifndef JOIN
#define JOIN JOIN_ADD
#endif
#ifndef BASED
#define BASED 0
#endif
#define JOIN_ADD(old, v) ((old) + (v))
#define JOIN_TAKE(old, v) (v)
#define JOIN_LARGEST(old, v) ((old) >= (v) || (old) != (old) ? (old) : (v))
#define JOIN_SMALLEST(old, v) ((old) <= (v) || (old) != (old) ? (old) : (v))
#include "common.h"
#define IN_PLACE
#include "args.h"
#include "index.args"
#define A COMPUTE(DT)
#include "lanes.h"

/* y[o,j,i] = x[o, index[o,j,i], i]; x [outer, n, inner], y [outer, m, inner].  A unit is one element of y.  A line is one along which j does
   not change, or one of all j where inner is 1.  `shared`: inner is 1, and each o has the index [m]. */
KERNEL(gather, GATHER_ARGS) {
    UNPACK(GATHER_ARGS)
    const long step = inner > 1, line = inner > 1 ? inner : m;
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    while (u < last) {
        long whole = u / line, done = u - whole * line, o = inner > 1 ? whole / m : whole, stop = min(last, u + line - done);
        __global const MEMORY(DT) *from = x_base + x_offset + o * n * inner + done * step;
        __global const MEMORY(IT) *index = index_base + index_offset - (shared ? o * m : 0);
        for (; u < stop; u++, from += step) {
            long k = index[u], near = (ulong)k < (ulong)n ? k : 0; /* no branch around the load: some drivers take arguments wrongly in branches */
            A v = LOAD(DT, 1, from, near * inner);
            STORE(DT, 1, y_base, y_offset + u, k == near ? v : (A)0);
        }
    }
}

/* ---- places and their owners: see src/kernels/owners.h; `size` lies between copies ---- */

/* What a unit owns: rows low … high - 1 of the `all` in a block that begins at column `first`, of a copy to which elements begin …
   stop - 1 of m go. */
typedef struct { long low, high, first, end, begin, stop, outer, copy; } owner;
static owner owner_of(long u, long all, long inner, long m, long rows, long parts, long block, long blocks, long copies, long chunk) {
    owner w;
    long column = u / parts;
    w.low = (u - column * parts) * rows;
    w.high = min(all, w.low + rows);
    w.copy = column % copies;
    column /= copies;
    w.begin = w.copy * chunk;
    w.stop = min(m, w.begin + chunk);
    w.outer = column / blocks;
    w.first = (column - w.outer * blocks) * block;
    w.end = min(inner, w.first + block);
    return w;
}

/* y[o, index[o,j,i], i] = JOIN(y[o, index[o,j,i], i], x[o,j,i]); y [outer, n, inner], x [outer, m, inner].  Lines as above. */
KERNEL(scatter, SCATTER_ARGS) {
    UNPACK(SCATTER_ARGS)
    const long step = inner > 1;
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        owner w = owner_of(u, n, inner, m, rows, parts, block, blocks, copies, chunk);
        long lines = w.stop - w.begin, line = w.end - w.first, at = (w.outer * m + w.begin) * inner + w.first;
        if (inner == 1) line = lines, lines = 1;
        __global MEMORY(DT) *all = y_base + y_offset + w.copy * size + w.outer * n * inner + w.first;
        for (; lines > 0; lines--, at += inner) {
            __global const MEMORY(IT) *index = index_base + index_offset + at;
            __global const MEMORY(DT) *from = x_base + x_offset + at;
            __global MEMORY(DT) *to = all;
            for (long i = 0; i < line; i++, to += step) {
                long k = index[i];
                if (k < w.low || k >= w.high) continue;
                A v = LOAD(DT, 1, from, i);
                STORE(DT, 1, to, k * inner, JOIN(LOAD(DT, 1, to, k * inner), v));
            }
        }
    }
}

/* y[e] += the sum of x[copy, e].  A unit is a block of elements. */
KERNEL(add_copies, ADD_COPIES_ARGS) {
    UNPACK(ADD_COPIES_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
#define ADD_EACH(lanes, e)                                                                         \
    {                                                                                              \
        VEC(A, lanes) sum = LOAD(DT, lanes, x_base, x_offset + e);                                 \
        for (long copy = 1; copy < copies; copy++) sum += LOAD(DT, lanes, x_base, x_offset + copy * size + e); \
        STORE(DT, lanes, y_base, y_offset + e, LOAD(DT, lanes, y_base, y_offset + e) + sum);       \
    }
    for (; u < last; u++) ALONG(e, u * block, min(size, u * block + block), ADD_EACH)
}

/* y[o, r, :] = x[o, index[r], :], rows of d; x [outer, v, d], y [outer, m, d].  A unit is one row. */
KERNEL(read_rows, READ_ROWS_ARGS) {
    UNPACK(READ_ROWS_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long k = index_base[index_offset + u % m], c = 0;
        bool inside = k == clamp(k, 0L, v - 1);
        __global const MEMORY(DT) *from = x_base + x_offset + (inside ? (u / m * v + k) * d : 0);
        __global MEMORY(DT) *to = y_base + y_offset + u * d;
        for (; inside && c + W <= d; c += W) STORE(DT, W, to, c, LOAD(DT, W, from, c));
        for (; inside && c < d; c++) STORE(DT, 1, to, c, LOAD(DT, 1, from, c));
        for (; c < d; c++) STORE(DT, 1, to, c, (A)0);
    }
}

/* y[o, index[r], :] = start + the sum of x[o, r, :]; y and start [outer, v, d], x [outer, m, d].  BASED: 0: from zeros. */
#if BASED
#define START(lanes, c) LOAD(DT, lanes, start, c)
#else
#define START(lanes, c) ((void)start, (VEC(A, lanes))(0))
#endif
#define BEGIN_WITH(lanes, c) STORE(DT, lanes, to, c, START(lanes, c));
#define ADD_TO(lanes, c) STORE(DT, lanes, to, c, LOAD(DT, lanes, to, c) + LOAD(DT, lanes, from, c));
KERNEL(add_rows, ADD_ROWS_ARGS) {
    UNPACK(ADD_ROWS_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        owner w = owner_of(u, v, d, m, rows, parts, block, blocks, copies, chunk);
        long place = w.outer * v * d + w.first, width = w.end - w.first;
        __global MEMORY(DT) *all = y_base + y_offset + w.copy * size + place;
        for (long k = w.low; k < w.high; k++) {
            __global const MEMORY(DT) *start = start_base + start_offset + place + k * d;
            __global MEMORY(DT) *to = all + k * d;
            ALONG(c, 0, width, BEGIN_WITH)
        }
        for (long r = w.begin; r < w.stop; r++) {
            long k = index_base[index_offset + r];
            if (k < w.low || k >= w.high) continue;
            __global const MEMORY(DT) *from = x_base + x_offset + (w.outer * m + r) * d + w.first;
            __global MEMORY(DT) *to = all + k * d;
            ALONG(c, 0, width, ADD_TO)
        }
    }
}

/* y[i] = start + i·increment; the bits of both as numbers of the computing type. */
#define NUMBER_float(b) as_float((int)(b))
#ifdef CLEF_F64
#define NUMBER_double(b) as_double(b)
#endif
#define NUMBER_int(b) ((int)(b))
#define NUMBER_long(b) (b)
#define NUMBER_(t) NUMBER_##t
#define NUMBER(t) NUMBER_(t)
#define ADD_float(a, i, s) fma((float)(i), s, a)
#define ADD_double(a, i, s) fma((double)(i), s, a)
#define ADD_int(a, i, s) ((a) + (int)(i) * (s))
#define ADD_long(a, i, s) ((a) + (i) * (s))
#define ADD_(t) ADD_##t
#define ADD(t) ADD_(t)
KERNEL(count_up, COUNT_UP_ARGS) {
    UNPACK(COUNT_UP_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    A a = NUMBER(A)(start), s = NUMBER(A)(increment);
    for (; u < last; u++) STORE(DT, 1, y_base, y_offset + u, ADD(A)(a, u, s));
}
