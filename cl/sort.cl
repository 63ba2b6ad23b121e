/* sort.cl — the first k of each row of n elements in ascending or descending order, with their indices; k = n sorts.

   x is [outer, n, inner], a row runs along n.  An ITEM is an element's key, whose unsigned order is the one wanted, followed by its
   index, so no two items of a row are equal and equal elements keep their order.  Each block of `block` elements gives its first `keep`
   items, in order: a run.  Then pairs of runs are merged, as often as it takes, and no run gets longer than k.

   DT: what lies in x.  DOUBLES: an ITEM is two words, for keys of 64 bits and for rows of 2^32 elements; else it is one.  GROUP: so many
   elements side by side (inner is 1) are left out at once if none of them comes before the last one kept, or 0: each is looked at by itself.
   Checked with: GROUP=16; GROUP=16 DT=i64. */
#ifndef DT
#define DT f32
#endif
#ifndef DOUBLES
#define DOUBLES CAT(WORDS_, DT)
#endif
#ifndef GROUP
#define GROUP 0
#endif
#define WORDS_f32 0
#define WORDS_f16 0
#define WORDS_bf16 0
#define WORDS_f64 1
#define WORDS_i32 0
#define WORDS_i64 1
#define WORDS_u8 0
#define WORDS_bool 0
#include "common.h"
#define IN_PLACE
#include "args.h"
#include "sort.args"

/* An element that is only moved: bits. */
#define MOVED_f32 uint
#define MOVED_f16 ushort
#define MOVED_bf16 ushort
#define MOVED_f64 ulong
#define MOVED_i32 uint
#define MOVED_i64 ulong
#define MOVED_u8 uchar
#define MOVED_bool uchar
typedef CAT(MOVED_, DT) moved_bits;
/* What lies in memory, beside dtypes. */
#define MEMORY_moved moved_bits
#define MEMORY_items ulong

/* ---- keys: NaN is the largest, and -0 equals 0 ---- */
uint key_float(float v) {
    uint b = as_uint(v), size = b & 0x7fffffffu;
    if (size > 0x7f800000u) return 0xffffffffu;
    return size == 0 || b == size ? size | 0x80000000u : ~b;
}
#ifdef CLEF_F64
ulong key_double(double v) {
    ulong b = as_ulong(v), size = b & 0x7ffffffffffffffful;
    if (size > 0x7ff0000000000000ul) return 0xfffffffffffffffful;
    return size == 0 || b == size ? size | 0x8000000000000000ul : ~b;
}
#endif
uint key_int(int v) { return (uint)v ^ 0x80000000u; }
ulong key_long(long v) { return (ulong)v ^ 0x8000000000000000ul; }
#define KEY(v) CAT(key_, COMPUTE(DT))(v)
#define KEY_float uint
#define KEY_double ulong
#define KEY_int uint
#define KEY_long ulong
typedef CAT(KEY_, COMPUTE(DT)) key_type;

#if DOUBLES
typedef ulong2 item;
#define BEFORE(a, b) ((a).x < (b).x || ((a).x == (b).x && (a).y < (b).y))
#define GET(p, i) vload2(i, p)
#define PUT(p, i, v) vstore2(v, i, p)
#define INDEX(v) ((long)(v).y)
#define FIRST_WORD(v) (v).x
static item item_of(key_type key, long index, int descending) { return (item)(descending ? (key_type)~key : key, (ulong)index); }
#else
typedef ulong item;
#define BEFORE(a, b) ((a) < (b))
#define GET(p, i) ((p)[i])
#define PUT(p, i, v) ((p)[i] = (v))
#define INDEX(v) ((long)((v) & 0xffffffffu))
#define FIRST_WORD(v) (uint)((v) >> 32)
static item item_of(key_type key, long index, int descending) {
    return (ulong)(descending ? ~key : key) << 32 | (ulong)index;
}
#endif
#define WORDS (1 + DOUBLES) /* of an item */

/* How many of a row of n are left when each `whole` gives `keep`. */
static long left_of(long n, long whole, long keep) { return n / whole * keep + min(n % whole, keep); }

#if GROUP
/* Does one of a group come before the last item kept, of whose first word this is? */
static bool has_earlier(__global const MEMORY(DT) *from, int descending, key_type last) {
    const key_type flip = descending ? ~(key_type)0 : 0;
    int found = 0;
    for (int i = 0; i < GROUP; i++) found |= (KEY(LOAD(DT, 1, from, i)) ^ flip) < last;
    return found;
}
#endif

/* y: rows [outer · inner] of the items that are left of n.  A unit is one block of one row. */
KERNEL(sort_blocks, SORT_BLOCKS_ARGS) {
    UNPACK(SORT_BLOCKS_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    long blocks = (n + block - 1) / block, left = left_of(n, block, keep);
    for (; u < last; u++) {
        long i = u % inner, b = u / inner % blocks, o = u / inner / blocks, begin = b * block, end = min(n, begin + block);
        __global const MEMORY(DT) *from = x_base + x_offset + o * n * inner + i;
        __global ulong *to = y_base + y_offset + ((o * inner + i) * left + b * keep) * WORDS;
        long count = 0, most = min(keep, end - begin);
        item bound = 0; /* the last of those that are kept, once they are as many as may be */
#if GROUP
        long looked = begin; /* at all groups before this one */
#endif
        for (long k = begin; k < end; k++) {
#if GROUP
            if (count == most && k >= looked) {
                while (k + GROUP <= end && !has_earlier(from + k, descending, FIRST_WORD(bound))) k += GROUP;
                looked = k + GROUP;
                if (k == end) break;
            }
#endif
            item v = item_of(KEY(LOAD(DT, 1, from, k * inner)), k, descending);
            if (count == most && !BEFORE(v, bound)) continue;
            long at = count < most ? count++ : most - 1; /* the last one falls out */
            for (; at > 0 && BEFORE(v, GET(to, at - 1)); at--) PUT(to, at, GET(to, at - 1));
            PUT(to, at, v);
            if (count == most) bound = GET(to, most - 1);
        }
    }
}

/* Merge path (Odeh, Green, Mwassi, Shmueli, Birk, "Merge path - parallel merging made simple", 2012): how many of the first `count`
   items of two merged runs come from a. */
static long path_at(__global const ulong *a, long na, __global const ulong *b, long nb, long count) {
    long low = max(0L, count - nb), high = min(count, na);
    while (low < high) {
        long middle = (low + high) / 2;
        if (BEFORE(GET(a, middle), GET(b, count - 1 - middle))) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Items begin … end - 1 of runs a and b merged. */
static void merge_two(__global const ulong *a, long na, __global const ulong *b, long nb, __global ulong *to, long begin, long end) {
    long i = path_at(a, na, b, nb, begin), j = begin - i;
    for (long k = begin; k < end; k++) {
        bool first = j >= nb || (i < na && BEFORE(GET(a, i), GET(b, j)));
        PUT(to, k, first ? GET(a, i) : GET(b, j));
        i += first;
        j += !first;
    }
}

/* x: rows of n items in runs of `run`, the last of them shorter; y: rows of what is left, in runs of `keep`, of which a unit makes a
   chunk. */
KERNEL(merge_runs, MERGE_RUNS_ARGS) {
    UNPACK(MERGE_RUNS_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    long pairs = (n + 2 * run - 1) / (2 * run), chunks = (keep + chunk - 1) / chunk, left = left_of(n, 2 * run, keep);
    for (; u < last; u++) {
        long begin = u % chunks * chunk, pair = u / chunks % pairs, row = u / chunks / pairs, at = pair * 2 * run;
        long na = min(run, n - at), nb = clamp(n - at - run, 0L, run);
        __global const ulong *a = x_base + x_offset + (row * n + at) * WORDS;
        __global ulong *to = y_base + y_offset + (row * left + pair * keep) * WORDS;
        merge_two(a, na, a + na * WORDS, nb, to, begin, min(begin + chunk, min(keep, na + nb)));
    }
}

/* y [outer, k, inner]: the indices of items [outer · inner, k].  A unit is one element of y. */
KERNEL(put_indices, PUT_INDICES_ARGS) {
    UNPACK(PUT_INDICES_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long i = u % inner, at = u / inner % k, o = u / inner / k;
        y_base[y_offset + u] = INDEX(GET(items_base + items_offset, (o * inner + i) * k + at));
    }
}

/* y [outer, k, inner]: the elements of x that these items stand for. */
KERNEL(put_values, PUT_VALUES_ARGS) {
    UNPACK(PUT_VALUES_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long i = u % inner, at = u / inner % k, o = u / inner / k;
        long index = INDEX(GET(items_base + items_offset, (o * inner + i) * k + at));
        y_base[y_offset + u] = x_base[x_offset + (o * n + index) * inner + i];
    }
}

/* y[o, index[o, j, i], i] = x[o, j, i] of y [outer, n, inner], which was filled before; no index occurs twice in a row.  A unit is one
   element of x. */
KERNEL(place, PLACE_ARGS) {
    UNPACK(PLACE_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        long o = u / inner / k, to = index_base[index_offset + u];
        if (to == clamp(to, 0L, n - 1)) y_base[y_offset + (o * n + to) * inner + u % inner] = x_base[x_offset + u];
    }
}
