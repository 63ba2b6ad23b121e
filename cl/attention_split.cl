/* attention_split.cl — attention of few queries beside many keys, as when text is made: y = softmax(scale·q·kᵀ + …)·v.

   The keys that the queries see are partitioned into `pieces`, each a unit of work: R rows at most of queries that share a head of keys,
   so that k and v are read once.  Only keys that are seen are read.  Lanes lie along columns: the products of W keys with a query
   are W vectors, which a tree of joined() adds up to one of W sums.  A piece writes what it has summed, [DV], its maximum and its sum of weights;
   attention_joined adds the pieces up in their order.  Where there is one piece, that is the result.
   Knobs: D, DV: columns of q and k, of v.  R: rows; W; those of attention_seen.h: MASKED, MASK_DT, SLOPES, CAP, DROP.
   Checked with: MASKED=1 SLOPES=1 CAP=1 DROP=1; MASKED=2; W=8 D=70 DV=70; W=16.  */
#ifndef R
#define R 1
#endif
#define CALLS_MATH
#include "common.h"
#include "args.h"
#include "attention.args"
#include "attention_seen.h"

#define STRIP 64
#define PART (DV + 2) /* what a piece has of a row: sums, maximum, sum of weights */

/* ---- products with W keys ---- */

/* Sums of neighbours, of a and then of b. */
V joined(V a, V b) { return (V)(a.even + a.odd, b.even + b.odd); }

/* Σ of the lanes: q·k, a vector of columns at a time. */
V product(__global const float *k, const float *q) {
    V sum = (V)(0);
    float rest = 0;
    for (int e = 0; e + W <= D; e += W) sum = fma(GET(k, e), GET(q, e), sum);
    for (int e = D / W * W; e < D; e++) rest = fma(k[e], q[e], rest);
    sum.s0 += rest;
    return sum;
}
#define PRODUCT_1(i) product(k + min(i, most) * apart, q)
#define PRODUCT_2(i) joined(PRODUCT_1(i), PRODUCT_1(i + 1))
#define PRODUCT_4(i) joined(PRODUCT_2(i), PRODUCT_2(i + 2))
#define PRODUCT_8(i) joined(PRODUCT_4(i), PRODUCT_4(i + 4))
#define PRODUCT_16(i) joined(PRODUCT_8(i), PRODUCT_8(i + 8))
/* Of keys 0 … W - 1; those beyond `most` repeat it. */
V products(__global const float *k, long apart, int most, const float *q) { return CAT(PRODUCT_, W)(0); }

/* ---- sums of values ---- */

/* sums[e] += Σ_m p[m] · v[m][e] for n vectors of columns from e on; even and odd keys apart, as one sum would wait for itself. */
#define ZERO(j) V a##j = GET(sums, e + j * W), b##j = (V)(0);
#define ADD_EVEN(j) a##j = fma((V)(p[m]), GET(v, e + j * W), a##j);
#define ADD_ODD(j) b##j = fma((V)(p[m + 1]), GET(v + apart, e + j * W), b##j);
#define SAVE(j) PUT(sums, e + j * W, a##j + b##j);
#define LIST_1(X) X(0)
#define LIST_4(X) X(0) X(1) X(2) X(3)
#define DEFINE_ADD(n)                                                                              \
    void add_##n(__global const float *v, long apart, int count, const float *p, float *sums, int e) { \
        LIST_##n(ZERO)                                                                             \
        int m = 0;                                                                                 \
        PLAIN_LOOP                                                                                 \
        for (; m + 1 < count; m += 2, v += 2 * apart) {                                            \
            LIST_##n(ADD_EVEN)                                                                     \
            LIST_##n(ADD_ODD)                                                                      \
        }                                                                                          \
        if (m < count) { LIST_##n(ADD_EVEN) }                                                      \
        LIST_##n(SAVE)                                                                             \
    }
DEFINE_ADD(1)
DEFINE_ADD(4)

void add_values(__global const float *v, long apart, int count, const float *p, float *sums) {
    int e = 0;
    for (; e + 4 * W <= DV; e += 4 * W) add_4(v, apart, count, p, sums, e);
    for (; e + W <= DV; e += W) add_1(v, apart, count, p, sums, e);
    for (; e < DV; e++)
        for (int m = 0; m < count; m++) sums[e] = fma(p[m], v[m * apart + e], sums[e]);
}

/* ---- a row of a strip ---- */

/* The largest of n numbers, a multiple of W; and their sum. */
float largest(const float *p, int n) {
    float part[W], x = -INFINITY;
    V most = GET(p, 0);
    for (int m = W; m < n; m += W) most = GET(p, m) > most ? GET(p, m) : most;
    PUT(part, 0, most);
    for (int l = 0; l < W; l++) x = part[l] > x ? part[l] : x;
    return x;
}
float total(const float *p, int n) {
    float part[W], x = 0;
    V sum = (V)(0);
    for (int m = 0; m < n; m += W) sum += GET(p, m);
    PUT(part, 0, sum);
    for (int l = 0; l < W; l++) x += part[l];
    return x;
}
float weight_about(float x, float about) { return x == -INFINITY ? 0 : exp(x - about); }

/* Scores of keys j0 … j0 + count - 1; -inf up to the next multiple of W. */
void score_row(float *strip, __global const float *k, long apart, const float *q, int i, int j0, int count, bool whole, view w,
               __global const MEMORY(MASK_DT) *mask, int tk, I ids) {
    V slope, stays;
    PLAIN_LOOP
    for (int m = 0; m < count; m += W) {
        V x = products(k + m * apart, apart, count - 1 - m, q);
        x = score(x, (I)(i), (I)(j0 + m) + ids, whole, w, mask, tk, &slope, &stays);
        PUT(strip, m, (I)(m) + ids < (I)(count) ? x : (V)(-INFINITY));
    }
}

/* Scores become weights about the maximum so far, of which *top and *sum are told, and by which factor sums before it are to be corrected. */
float weigh_row(float *strip, int n, float *top, float *sum, int i, int j0, view w, __global const MEMORY(MASK_DT) *mask, int tk, I ids) {
    float most = largest(strip, n), before = *top;
    *top = most > before ? most : before;
    float about = *top == -INFINITY ? 0 : *top, corrected = weight_about(before, about);
    for (int m = 0; m < n; m += W) PUT(strip, m, EXP(GET(strip, m) - about));
    *sum = fma(*sum, corrected, total(strip, n));
#if DROP
    V slope, stays;
    for (int m = 0; m < n; m += W) {
        score((V)(0), (I)(i), (I)(j0 + m) + ids, true, w, mask, tk, &slope, &stays);
        PUT(strip, m, GET(strip, m) * stays);
    }
#endif
    return corrected;
}

/* ---- kernels ---- */

/* A unit of work: rows n0 … n0 + rows - 1 of those that share head `group` of keys, beside a piece of the keys. */
typedef struct { int piece, n0, rows, group, item; } unit;
unit unit_of(long u, int pieces, int all, int few) {
    int blocks = (all + R - 1) / R, n0 = (int)(u / pieces % blocks) * R;
    return (unit){(int)(u % pieces), n0, min(R, all - n0), (int)(u / pieces / blocks % few), (int)(u / pieces / blocks / few)};
}

/* Row n of those that share a head of keys: query i of a head. */
typedef struct { int head, i; } row;
row row_of(int n, int group, int shared, int tq) { return (row){group * shared + n / tq, n % tq}; }

void start_row(__global const float *from, float *query, float *sums, float *top, float *sum) {
    for (int e = 0; e < D; e++) query[e] = from[e];
    for (int e = 0; e < DV; e++) sums[e] = 0;
    *top = -INFINITY, *sum = 0;
}
void save_part(__global float *part, const float *sums, float top, float sum) {
    for (int e = 0; e < DV; e++) part[e] = sums[e];
    part[DV] = top, part[DV + 1] = sum;
}
/* The result, where there is one piece. */
void save_row(__global float *y, __global float *log_sum, const float *sums, float top, float sum) {
    float factor = sum == 0 ? 0 : 1 / sum;
    for (int e = 0; e < DV; e++) y[e] = sums[e] * factor;
    *log_sum = sum == 0 ? INFINITY : top + log(sum);
}

KERNEL(attention_split, ATTENTION_SPLIT_ARGS) {
    UNPACK(ATTENTION_SPLIT_ARGS)
    float sums_of[R * DV], strip[STRIP], query[R * D], top[R], sum[R], lane[W];
    for (int l = 0; l < W; l++) lane[l] = l;
    I ids = CONVERT(int, W)(GET(lane, 0));
    long next = (long)get_global_id(0) * per, last = min(units, next + per);
    for (; next < last; next++) {
        unit u = unit_of(next, pieces, shared * tq, heads / shared);
        int item = u.item, n1 = u.n0 + u.rows - 1;
        bool same = u.n0 / tq == n1 / tq;
        int i0 = same ? u.n0 % tq : 0, i1 = same ? n1 % tq : tq - 1;
        FIND_VIEW
        __global const float *kp = k_base + k_offset + item * ks1 + u.group * ks2, *vp = v_base + v_offset + item * vs1 + u.group * vs2;
        long begin = first_key(w, i0), end = end_of_keys(w, i1), each = (max(end - begin, 0L) + pieces - 1) / pieces;
        begin += each * u.piece, end = min(end, begin + each);
        for (int r = 0; r < u.rows; r++) {
            row at = row_of(u.n0 + r, u.group, shared, tq);
            start_row(q_base + q_offset + item * qs1 + at.head * qs2 + at.i * qs3, query + r * D, sums_of + r * DV, top + r, sum + r);
        }
        for (long j0 = begin; j0 < end; j0 += STRIP) {
            int count = (int)min((long)STRIP, end - j0), n = (count + W - 1) / W * W;
            bool whole = all_seen(w, i0, i1, j0, j0 + count - 1);
            for (int r = 0; r < u.rows; r++) {
                row at = row_of(u.n0 + r, u.group, shared, tq);
                int head = at.head;
                FIND_HEAD
                score_row(strip, kp + j0 * ks3, ks3, query + r * D, at.i, (int)j0, count, whole, w, mask, tk, ids);
                float corrected = weigh_row(strip, n, top + r, sum + r, at.i, (int)j0, w, mask, tk, ids);
                for (int e = 0; e < DV && corrected != 1; e++) sums_of[r * DV + e] *= corrected;
                add_values(vp + j0 * vs3, vs3, count, strip, sums_of + r * DV);
            }
        }
        for (int r = 0; r < u.rows; r++) {
            row at = row_of(u.n0 + r, u.group, shared, tq);
            long to = ((long)item * heads + at.head) * tq + at.i;
            if (pieces > 1) save_part(parts_base + parts_offset + (to * pieces + u.piece) * PART, sums_of + r * DV, top[r], sum[r]);
            else save_row(y_base + y_offset + item * ys1 + at.head * ys2 + at.i * ys3, sums_base + sums_offset + to, sums_of + r * DV, top[r], sum[r]);
        }
    }
}

KERNEL(attention_joined, ATTENTION_JOINED_ARGS) {
    UNPACK(ATTENTION_JOINED_ARGS)
    float sums_of[DV];
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        __global const float *part = parts_base + parts_offset + u * pieces * PART;
        __global float *to = y_base + y_offset + u / tq / heads * ys1 + u / tq % heads * ys2 + u % tq * ys3;
        float top = -INFINITY, sum = 0;
        for (int p = 0; p < pieces; p++) top = part[p * PART + DV] > top ? part[p * PART + DV] : top;
        for (int e = 0; e < DV; e++) sums_of[e] = 0;
        for (int p = 0; p < pieces; p++) {
            float factor = weight_about(part[p * PART + DV], top);
            sum = fma(part[p * PART + DV + 1], factor, sum);
            for (int e = 0; e < DV; e++) sums_of[e] = fma(part[p * PART + e], factor, sums_of[e]);
        }
        for (int e = 0; e < DV; e++) to[e] = sum == 0 ? 0 : sums_of[e] / sum;
        sums_base[sums_offset + u] = sum == 0 ? INFINITY : top + log(sum);
    }
}
