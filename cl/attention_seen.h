/* attention_seen.h — which keys a query sees, and what becomes of its scores: shared by the kernels of attention.

   Before this: common.h, args.h.  Knobs: D, DV: columns of q and k, of v; W; MASKED, MASK_DT, SLOPES, CAP, DROP as attention.cl
   explains them. */
#ifndef D
#define D 64
#endif
#ifndef DV
#define DV 64
#endif
#ifndef W
#define W 4
#endif
#ifndef MASKED
#define MASKED 0
#endif
#ifndef MASK_DT
#define MASK_DT u8
#endif
#ifndef SLOPES
#define SLOPES 0
#endif
#ifndef CAP
#define CAP 0
#endif
#ifndef DROP
#define DROP 0
#endif
#include "exponential.h"
#if DROP
#include "philox.h"
#endif

#define V VEC(float, W)
#define I VEC(int, W)
#define GET(p, at) CAT(VLOAD_, W)((p) + (at))
/* To private memory: vstore16 would go in four. */
#ifdef CLEF_WIDE
#define PUT(p, at, v) (*(CAT3(float, W, _loose) *)((p) + (at)) = (v))
#else
#define PUT(p, at, v) CAT(VSTORE_, W)(v, (p) + (at))
#endif
#define PUT_OUT(p, at, v) STORE(f32, W, p, at, v)
#define PUT_INTS(p, v) CAT(VSTORE_, W)(v, p)
DEFINE_EXP(W)
#define EXP(x) OF_PART(CAT(exp_float, W))(x)

typedef struct { int causal, window, keys; float scale, cap, slope, dropout; long place; ulong element; ulong key; long across, down; } view;

/* Scores from products of queries i with keys j (vectors), -inf where a key is not seen; `slope`: by what a product's gradient is to be
   multiplied; `stays`: the factor of dropout. */
V score(V x, I i, I j, bool whole, view w, __global const MEMORY(MASK_DT) *mask, int tk, V *slope, V *stays) {
    x *= w.scale;
    *slope = (V)(w.scale);
    *stays = (V)(1);
#if CAP
    V bent = tanh(x / w.cap);
    x = bent * w.cap;
    *slope *= 1 - bent * bent;
#endif
#if SLOPES || MASKED || DROP
    int row[W], column[W];
    float part[W];
    PUT_INTS(row, i);
    PUT_INTS(column, j);
#endif
#if SLOPES
    for (int l = 0; l < W; l++) part[l] = w.slope * fabs((float)(row[l] + w.place - column[l]));
    x -= GET(part, 0);
#endif
#if MASKED
    for (int l = 0; l < W; l++) {
        long at = row[l] * w.down + min(column[l], tk - 1) * w.across;
#if MASKED == 1
        part[l] = mask[at] ? 0 : -INFINITY;
#else
        part[l] = mask[at];
#endif
    }
    x += GET(part, 0);
#endif
#if DROP
    for (int l = 0; l < W; l++) {
        ulong at = w.element + (ulong)row[l] * tk + column[l];
        part[l] = philox_uniform(philox(w.key, at / 4).v[at % 4]) >= w.dropout ? 1 / (1 - w.dropout) : 0;
    }
    *stays = GET(part, 0);
#endif
    if (whole) return x;
    I away = i + (I)((int)w.place) - j, seen = j < (I)(w.keys);
    if (w.causal) seen = seen & (away >= (I)(0));
    if (w.window) seen = seen & (away < (I)(w.window)) & (away > (I)(-w.window));
    return seen ? x : (V)(-INFINITY);
}

/* The first key that any query from i0 on sees, and the end of those that any up to i1 sees, so far as places tell. */
long first_key(view w, long i0) { return w.window ? max(0L, i0 + w.place - w.window + 1) : 0; }
long end_of_keys(view w, long i1) {
    long end = w.keys;
    if (w.causal) end = min(end, i1 + w.place + 1);
    return w.window ? min(end, i1 + w.place + w.window) : end;
}

/* The first query that sees any key from j0 on, and the end of those that see any up to j1, likewise. */
long first_query(view w, long j0) {
    long begin = w.causal ? max(0L, j0 - w.place) : 0;
    return w.window ? max(begin, j0 - w.place - w.window + 1) : begin;
}
long end_of_queries(view w, long j0, long j1, long tq) {
    long end = j0 < w.keys ? tq : 0;
    return w.window ? min(end, j1 - w.place + w.window) : end;
}

/* Is every pair of queries i0 … i1 and keys j0 … j1 seen, so far as places tell? */
bool all_seen(view w, long i0, long i1, long j0, long j1) {
    if (j1 >= w.keys || (w.causal && j1 > i0 + w.place)) return false;
    return !w.window || (i1 + w.place - j0 < w.window && j1 - i0 - w.place < w.window);
}

#define FIND_VIEW                                                                                  \
    view w = {causal, window, tk, scale, cap, 0, dropout, shift, 0, 0, mask_inner2, mask_inner1};  \
    if (has_lengths) w.keys = clamp(lengths_base[lengths_offset + item], 0, tk);                   \
    if (has_places) w.place = clamp(places_base[places_offset + (has_places > 1 ? item : 0)], -(1 << 30), 1 << 30);
#define FIND_HEAD                                                                                  \
    __global const MEMORY(MASK_DT) *mask = mask_base + mask_offset + item * mask_outer1 + head * mask_outer2; \
    if (SLOPES) w.slope = slopes_base[slopes_offset + head];                                       \
    if (DROP) w.key = key_base[key_offset], w.element = first + ((ulong)item * heads + head) * tq * tk;
