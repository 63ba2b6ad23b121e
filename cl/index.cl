/* index.cl — reading, adding and placing by index, and counting up.  An index outside 0 … n-1 reads 0 and changes nothing.

   Where several elements go to one place, one work-item owns the place and takes them in the order of the indices: the same
   bits every time, without atomics.
   DT: f32 f16 bf16 f64 i32 i64 u8 bool.  IT: i32 i64 (of the indices).  W: lanes of a vector along a row.  JOIN: what
   scatter makes of what is there and what comes.
   Checked with: JOIN=JOIN_TAKE; JOIN=JOIN_LARGEST; JOIN=JOIN_SMALLEST; W=1. */
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
#define JOIN_ADD(old, v) ((old) + (v))
#define JOIN_TAKE(old, v) (v)
#define JOIN_LARGEST(old, v) ((old) >= (v) || (old) != (old) ? (old) : (v))
#define JOIN_SMALLEST(old, v) ((old) <= (v) || (old) != (old) ? (old) : (v))
#include "common.h"
#define IN_PLACE
#include "args.h"
#include "index.args"
#define A COMPUTE(DT)

/* y[o,j,i] = x[o, index[o,j,i], i]; x [outer, n, inner], y [outer, m, inner].  A unit is one element of y. */
KERNEL(gather, GATHER_ARGS) {
    UNPACK(GATHER_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long o = u / (m * inner), i = u % inner, k = index_base[index_offset + u];
        long near = clamp(k, 0L, n - 1); /* no branch around the load: some drivers take arguments wrongly in branches */
        A v = LOAD(DT, 1, x_base, x_offset + (o * n + near) * inner + i);
        STORE(DT, 1, y_base, y_offset + u, k == near ? v : (A)0);
    }
}

/* y[o, index[o,j,i], i] = JOIN(y[o, index[o,j,i], i], x[o,j,i]); y [outer, n, inner], x [outer, m, inner].  A unit owns `rows` of the
   n of one (o,i). */
KERNEL(scatter, SCATTER_ARGS) {
    UNPACK(SCATTER_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long column = u / parts, o = column / inner, i = column % inner, low = (u % parts) * rows, high = min(n, low + rows);
        for (long j = 0; j < m; j++) {
            long from = (o * m + j) * inner + i, k = index_base[index_offset + from], to = (o * n + k) * inner + i;
            if (k < low || k >= high) continue;
            A v = LOAD(DT, 1, x_base, x_offset + from);
            STORE(DT, 1, y_base, y_offset + to, JOIN(LOAD(DT, 1, y_base, y_offset + to), v));
        }
    }
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

/* y[o, index[r], :] += x[o, r, :]; y [outer, v, d] was filled before, x [outer, m, d].  A unit owns one of `parts` of the v rows of
   an o, `rows` of them, in a block of W columns. */
KERNEL(add_rows, ADD_ROWS_ARGS) {
    UNPACK(ADD_ROWS_ARGS)
    long blocks = (d + W - 1) / W, u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long o = u / blocks / parts, low = u / blocks % parts * rows, high = min(v, low + rows);
        long begin = u % blocks * W, end = min(d, begin + W);
        for (long r = 0; r < m; r++) {
            long k = index_base[index_offset + r];
            if (k < low || k >= high) continue;
            __global const MEMORY(DT) *from = x_base + x_offset + (o * m + r) * d;
            __global MEMORY(DT) *to = y_base + y_offset + (o * v + k) * d;
            if (end - begin == W) {
                VEC(A, W) sum = LOAD(DT, W, to, begin) + LOAD(DT, W, from, begin);
                STORE(DT, W, to, begin, sum);
            } else {
                for (long c = begin; c < end; c++) {
                    A sum = LOAD(DT, 1, to, c) + LOAD(DT, 1, from, c);
                    STORE(DT, 1, to, c, sum);
                }
            }
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
