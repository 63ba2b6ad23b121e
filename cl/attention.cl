/* attention.cl — y = softmax(scale·q·kᵀ + …)·v and its gradients, without the matrix of weights in memory.

   A work-item owns blocks of NR = NV·W rows, which lie along vector lanes: queries in the forward pass, keys in the gradients.
   It packs a block once, [column][lane], and goes over the rows of the other side in strips of STRIP.  Both products of a strip are
   register tiles that read the other side as it lies, a number at a time, and the block a vector at a time:
       against:  strip[m][lane] = Σ_e rows[m][e] · block[e][lane]
       along:    sums[e][lane] += Σ_m rows[m][e] · strip[m][lane]
   The gradients compute a strip of weights and one of slopes once for dk, dv and dq.  dq is a sum over keys, which are partitioned into
   `pieces` (every pieces-th block is one's); each has an array for it, in rows of DN columns and with MR rows to spare, so that all
   tiles are whole, and a second launch adds the arrays up in their order:
       across:   dq[m][e] += Σ_lane strip[m][lane] · block[lane][e]
   Maximum and sum of the softmax are kept per lane and corrected from strip to strip; Milakov and Gimelshein, "Online normalizer
   calculation for softmax", 2018; Dao et al., "FlashAttention", 2022.  The forward pass saves log Σ exp of each query, +inf where it
   sees no key, and the gradients compute the weights from it again.  Every sum has a fixed order.
   Knobs: D, DV: columns of q and k, of v.  MR: rows of a tile; TD, TV: columns of a tile, divisors of D and DV; NV, W.  QUERIES, KEYS: 1
   where gradients of queries, of keys and values are wanted.  MASKED: 0 none, 1 true where seen, 2 added; MASK_DT: u8 or f32.  SLOPES,
   CAP, DROP: 1 where there is such an option.
   Checked with: MASKED=1 SLOPES=1 CAP=1 DROP=1; MASKED=2.  */
#ifndef MR
#define MR 4
#endif
#ifndef TD
#define TD 4
#endif
#ifndef TV
#define TV 4
#endif
#ifndef NV
#define NV 2
#endif
#ifndef QUERIES
#define QUERIES 1
#endif
#ifndef KEYS
#define KEYS 1
#endif
#define CALLS_MATH
#include "common.h"
#include "args.h"
#include "attention.args"
#include "transpose.h"
#include "attention_seen.h"

#define NR (NV * W)
#define STRIP (8 * MR)
#define DN ((D + NR - 1) / NR * NR)

/* ---- products ---- */

#define START(i, j) V c##i##_##j = (V)(0);
#define START_ROW(i) COLUMNS(START, i)
#define FETCH(i, j) V b##j = GET(from, j * W);
#define MULTIPLY(i, j) c##i##_##j = fma((V)(x), b##j, c##i##_##j);
#define PUT_SUM(i, j) PUT(to, i * NR + j * W, c##i##_##j);
#define PUT_SUM_ROW(i) COLUMNS(PUT_SUM, i)

/* strip[m][lane] of `count` rows, up to whole tiles: those beyond repeat the last one. */
#define ROW_AT(i) __global const float *a##i = rows + min(m + i, count - 1) * apart;
#define AGAINST_ROW(i) { float x = a##i[e]; COLUMNS(MULTIPLY, i) }
#define DEFINE_AGAINST(name, columns)                                                              \
    void name(__global const float *rows, long apart, int count, const float *block, float *strip) { \
        PLAIN_LOOP                                                                                 \
        for (int m = 0; m < count; m += MR) {                                                      \
            const float *from = block;                                                             \
            float *to = strip + m * NR;                                                            \
            ROWS(ROW_AT)                                                                           \
            ROWS(START_ROW)                                                                        \
            PLAIN_LOOP                                                                             \
            for (int e = 0; e < columns; e++) {                                                    \
                COLUMNS(FETCH, 0)                                                                  \
                ROWS(AGAINST_ROW)                                                                  \
                from += NR;                                                                        \
            }                                                                                      \
            ROWS(PUT_SUM_ROW)                                                                      \
        }                                                                                          \
    }
DEFINE_AGAINST(against_d, D)
DEFINE_AGAINST(against_dv, DV)

/* sums[e][lane] += …, a tile of so many columns at a time. */
#define BEFORE(i, j) V c##i##_##j = GET(to, i * NR + j * W);
#define BEFORE_ROW(i) COLUMNS(BEFORE, i)
#define ALONG_ROW(i) { float x = a[i]; COLUMNS(MULTIPLY, i) }
#define DEFINE_ALONG(name, columns, tile)                                                          \
    void name(__global const float *rows, long apart, int count, const float *strip, float *sums) { \
        PLAIN_LOOP                                                                                 \
        for (int e = 0; e < columns; e += tile) {                                                  \
            __global const float *a = rows + e;                                                    \
            const float *from = strip;                                                             \
            float *to = sums + e * NR;                                                             \
            CAT(ROWS_, tile)(BEFORE_ROW)                                                           \
            PLAIN_LOOP                                                                             \
            for (int m = 0; m < count; m++) {                                                      \
                COLUMNS(FETCH, 0)                                                                  \
                CAT(ROWS_, tile)(ALONG_ROW)                                                        \
                from += NR;                                                                        \
                a += apart;                                                                        \
            }                                                                                      \
            CAT(ROWS_, tile)(PUT_SUM_ROW)                                                          \
        }                                                                                          \
    }
DEFINE_ALONG(along_d, D, TD)
DEFINE_ALONG(along_dv, DV, TV)

/* block[e][lane] from `count` rows times a factor, zeros in the lanes beyond; and back, each lane times its own. */
#define TAKE_ROW(i) V b##i, a##i = l + i < count ? GET(rows + (l + i) * apart, e) * factor : (V)(0);
#define PUT_COLUMN(i) PUT(block, (e + i) * NR + l, CAT(TURNED(a, b), i));
void pack(__global const float *rows, long apart, int count, int columns, float factor, float *block) {
    PLAIN_LOOP
    for (int l = 0; l < NR; l += W) {
        int e = 0;
        PLAIN_LOOP
        for (; e + W <= columns; e += W) {
            LINES(TAKE_ROW)
            TRANSPOSE(a, b)
            LINES(PUT_COLUMN)
        }
        for (; e < columns; e++)
            for (int i = l; i < l + W; i++) block[e * NR + i] = i < count ? rows[i * apart + e] * factor : 0;
    }
}
#define TAKE_COLUMN(i) V b##i, a##i = GET(block, (e + i) * NR + l) * GET(factor, l);
#define PUT_ROW(i) PUT(tile, i * W, CAT(TURNED(a, b), i));
void unpack(const float *block, const float *factor, __global float *rows, long apart, int count, int columns) {
    float tile[W * W];
    PLAIN_LOOP
    for (int l = 0; l < count; l += W) {
        int e = 0, lanes = min(W, count - l);
        PLAIN_LOOP
        for (; e + W <= columns; e += W) {
            LINES(TAKE_COLUMN)
            TRANSPOSE(a, b)
            LINES(PUT_ROW)
            PLAIN_LOOP
            for (int i = 0; i < lanes; i++) PUT_OUT(rows + (l + i) * apart, e, GET(tile, i * W));
        }
        for (; e < columns; e++)
            for (int i = l; i < l + lanes; i++) rows[i * apart + e] = block[e * NR + i] * factor[i];
    }
}
void clear(float *block, int n) {
    for (int i = 0; i < n; i += W) PUT(block, i, (V)(0));
}

/* ---- forward ---- */

/* A strip of scores becomes weights about the maximum so far; `factor` corrects what was summed before. */
void weigh(float *strip, int count, float *top, float *sum, float *factor, int i0, int j0, bool whole, view w,
           __global const MEMORY(MASK_DT) *mask, int tq, int tk, const int *ids) {
    for (int v = 0; v < NR; v += W) {
        V before = GET(top, v), most = before, more = (V)(0), slope, stays;
        I i = min((I)(i0) + GET(ids, v), (I)(tq - 1));
        for (int m = 0; m < count; m++) {
            V x = score(GET(strip, m * NR + v), i, (I)(j0 + m), whole, w, mask, tk, &slope, &stays);
            PUT(strip, m * NR + v, x);
            most = x > most ? x : most;
        }
        V about = most == (V)(-INFINITY) ? (V)(0) : most, corrected = EXP(before - about);
        for (int m = 0; m < count; m++) {
            V e = EXP(GET(strip, m * NR + v) - about);
            more += e;
#if DROP
            score((V)(0), i, (I)(j0 + m), true, w, mask, tk, &slope, &stays);
            e *= stays;
#endif
            PUT(strip, m * NR + v, e);
        }
        PUT(top, v, most);
        PUT(sum, v, fma(GET(sum, v), corrected, more));
        PUT(factor, v, corrected);
    }
}

KERNEL(attention_forward, ATTENTION_FORWARD_ARGS) {
    UNPACK(ATTENTION_FORWARD_ARGS)
    float packed[D * NR], sums_of[DV * NR], strip[STRIP * NR], top[NR], sum[NR], factor[NR];
    int ids[NR];
    for (int l = 0; l < NR; l++) ids[l] = l;
    long blocks = (tq + NR - 1) / NR, u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        int i0 = (int)(u % blocks) * NR, head = (int)(u / blocks % heads), item = (int)(u / blocks / heads), rows = min(NR, tq - i0);
        FIND_VIEW
        FIND_HEAD
        __global const float *kp = k_base + k_offset + item * ks1 + head / shared * ks2;
        __global const float *vp = v_base + v_offset + item * vs1 + head / shared * vs2;
        pack(q_base + q_offset + item * qs1 + head * qs2 + i0 * qs3, qs3, rows, D, 1, packed);
        clear(sums_of, DV * NR);
        for (int l = 0; l < NR; l++) top[l] = -INFINITY, sum[l] = 0;
        long begin = first_key(w, i0), end = end_of_keys(w, i0 + rows - 1);
        for (long j0 = begin; j0 < end; j0 += STRIP) {
            int count = (int)min((long)STRIP, end - j0);
            against_d(kp + j0 * ks3, ks3, count, packed, strip);
            bool whole = all_seen(w, i0, i0 + rows - 1, j0, j0 + count - 1);
            weigh(strip, count, top, sum, factor, i0, (int)j0, whole, w, mask, tq, tk, ids);
            for (int e = 0; e < DV * NR && j0 > begin; e += W) PUT(sums_of, e, GET(sums_of, e) * GET(factor, e % NR));
            along_dv(vp + j0 * vs3, vs3, count, strip, sums_of);
        }
        for (int l = 0; l < NR; l++) {
            if (l < rows) sums_base[sums_offset + ((long)item * heads + head) * tq + i0 + l] = sum[l] == 0 ? INFINITY : top[l] + log(sum[l]);
            factor[l] = sum[l] == 0 ? 0 : 1 / sum[l];
        }
        unpack(sums_of, factor, y_base + y_offset + item * ys1 + head * ys2 + i0 * ys3, ys3, rows, DV);
    }
}

/* ---- gradients ---- */

/* A strip of products becomes dS, where `gv` is g·vᵀ; and the weights that v was summed with. */
V slope_of(V x, V gv, V about, V dot, I i, I j, bool whole, view w, __global const MEMORY(MASK_DT) *mask, int tk, V *weight) {
    V slope, stays, s = score(x, i, j, whole, w, mask, tk, &slope, &stays), p = EXP(s - about);
    *weight = p * stays;
    V ds = p * fma(gv, stays, -dot) * slope;
    return p == (V)(0) ? (V)(0) : ds;
}

/* A strip of scores becomes weights, and one of g·vᵀ slopes, zeros up to a whole tile, of queries from i0 on. */
void weigh_slopes(float *strip, float *strip_g, int count, __global const float *sums, __global const float *dots, long i0, int j0, bool whole,
                  view w, __global const MEMORY(MASK_DT) *mask, int tk, const int *ids) {
    for (int m = 0; m < count; m++) {
        V about = (V)(sums[i0 + m]), dot = (V)(dots[i0 + m]), weight;
        I i = (I)((int)i0 + m);
        for (int at = m * NR; at < (m + 1) * NR; at += W) {
            I j = (I)(j0) + GET(ids, at - m * NR);
            PUT(strip_g, at, slope_of(GET(strip, at), GET(strip_g, at), about, dot, i, j, whole, w, mask, tk, &weight));
            PUT(strip, at, weight);
        }
    }
    for (int at = count * NR; at % (MR * NR); at += W) PUT(strip_g, at, (V)(0));
}

/* sums[m][e] += Σ_lane strip[m][lane] · rows[lane][e] of `count` rows, up to whole tiles. */
#define BEFORE_OUT(i, j) V c##i##_##j = LOAD(f32, W, to, i * DN + j * W);
#define BEFORE_OUT_ROW(i) COLUMNS(BEFORE_OUT, i)
#define ACROSS_ROW(i) { float x = a[i * NR]; COLUMNS(MULTIPLY, i) }
#define PUT_SUM_OUT(i, j) PUT_OUT(to, i * DN + j * W, c##i##_##j);
#define PUT_SUM_OUT_ROW(i) COLUMNS(PUT_SUM_OUT, i)
void across(const float *strip, int count, const float *rows, __global float *sums) {
    PLAIN_LOOP
    for (int e = 0; e < DN; e += NR) {
        PLAIN_LOOP
        for (int m = 0; m < count; m += MR) {
            const float *a = strip + m * NR, *from = rows + e;
            __global float *to = sums + m * DN + e;
            ROWS(BEFORE_OUT_ROW)
            PLAIN_LOOP
            for (int l = 0; l < NR; l++) {
                COLUMNS(FETCH, 0)
                ROWS(ACROSS_ROW)
                from += DN;
                a++;
            }
            ROWS(PUT_SUM_OUT_ROW)
        }
    }
}

/* rows[lane][e], zeros beyond `count` and beyond D. */
void copy_rows(__global const float *from, long apart, int count, float *rows) {
    clear(rows, NR * DN);
    for (int l = 0; l < count; l++) {
        int e = 0;
        for (; e + W <= D; e += W) PUT(rows, l * DN + e, GET(from + l * apart, e));
        for (; e < D; e++) rows[l * DN + e] = from[l * apart + e];
    }
}

KERNEL(attention_gradients, ATTENTION_GRADIENTS_ARGS) {
    UNPACK(ATTENTION_GRADIENTS_ARGS)
    float packed[D * NR], of_v[DV * NR], sums_k[D * NR], sums_v[DV * NR], rows_of[NR * DN], strip[STRIP * NR], strip_g[STRIP * NR], one[NR];
    int ids[NR];
    for (int l = 0; l < NR; l++) ids[l] = l, one[l] = 1;
    long u = (long)get_global_id(0) * per, last = min(units, u + per), few = heads / shared, part = (tq + MR) * DN;
    for (; u < last; u++) {
        int piece = (int)(u % pieces), first_head = (int)(u / pieces % few) * shared, item = (int)(u / pieces / few);
        __global float *parts = parts_base + parts_offset + (((long)item * heads + first_head) * pieces + piece) * part;
        FIND_VIEW
        for (int h = 0; QUERIES && h < shared; h++)
            for (long at = 0; at < part; at += W) PUT_OUT(parts, h * pieces * part + at, (V)(0));
        for (long at = (long)piece * NR; at < tk; at += (long)pieces * NR) {
            int j0 = (int)at, rows = min(NR, tk - j0), group = first_head / shared;
            __global const float *kp = k_base + k_offset + item * ks1 + group * ks2 + j0 * ks3;
            pack(kp, ks3, rows, D, 1, packed);
            pack(v_base + v_offset + item * vs1 + group * vs2 + j0 * vs3, vs3, rows, DV, 1, of_v);
            if (QUERIES) copy_rows(kp, ks3, rows, rows_of);
            clear(sums_k, D * NR);
            clear(sums_v, DV * NR);
            long begin = first_query(w, j0), end = end_of_queries(w, j0, j0 + rows - 1, tq);
            for (int head = first_head; head < first_head + shared; head++) {
                FIND_HEAD
                __global const float *qp = q_base + q_offset + item * qs1 + head * qs2, *gp = g_base + g_offset + item * gs1 + head * gs2;
                long row = ((long)item * heads + head) * tq;
                for (long i0 = begin; i0 < end; i0 += STRIP) {
                    int count = (int)min((long)STRIP, end - i0);
                    bool whole = all_seen(w, i0, i0 + count - 1, j0, j0 + NR - 1);
                    against_d(qp + i0 * qs3, qs3, count, packed, strip);
                    against_dv(gp + i0 * gs3, gs3, count, of_v, strip_g);
                    weigh_slopes(strip, strip_g, count, sums_base + sums_offset + row, dots_base + dots_offset + row, i0, j0, whole, w, mask, tk,
                                 ids);
                    if (KEYS) along_d(qp + i0 * qs3, qs3, count, strip_g, sums_k), along_dv(gp + i0 * gs3, gs3, count, strip, sums_v);
                    if (QUERIES) across(strip_g, count, rows_of, parts + (head - first_head) * pieces * part + i0 * DN);
                }
            }
            if (KEYS) {
                unpack(sums_k, one, dk_base + dk_offset + item * dks1 + group * dks2 + j0 * dks3, dks3, rows, D);
                unpack(sums_v, one, dv_base + dv_offset + item * dvs1 + group * dvs2 + j0 * dvs3, dvs3, rows, DV);
            }
        }
    }
}

/* dq: its pieces added up in their order. */
KERNEL(attention_summed, ATTENTION_SUMMED_ARGS) {
    UNPACK(ATTENTION_SUMMED_ARGS)
    float tile[W];
    long u = (long)get_global_id(0) * per, last = min(units, u + per), part = (tq + MR) * DN;
    for (; u < last; u++) {
        __global const float *from = parts_base + parts_offset + u / tq * pieces * part + u % tq * DN;
        __global float *to = dq_base + dq_offset + u / tq / heads * ds1 + u / tq % heads * ds2 + u % tq * ds3;
        for (int e = 0; e < D; e += W) {
            V sum = LOAD(f32, W, from, e);
            for (int p = 1; p < pieces; p++) sum += LOAD(f32, W, from, p * part + e);
            PUT(tile, 0, sum);
            if (e + W <= D) PUT_OUT(to, e, sum);
            else
                for (int i = 0; e + i < D; i++) to[e + i] = tile[i];
        }
    }
}
