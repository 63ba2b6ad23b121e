/* attention.cl — y = softmax(scale·q·kᵀ + …)·v and its gradients, without the matrix of weights in memory.

   A work-item owns a block of NR = NV·W rows, which lie along vector lanes: queries in the forward pass and for dq, keys for dk and dv.
   It packs them once, [column][lane], and goes over the rows of the other side in strips of STRIP.  Both products of a strip are
   register tiles that read the other side as it lies, a number at a time, and the block a vector at a time:
       against:  strip[m][lane] = Σ_e rows[m][e] · block[e][lane]
       along:    sums[e][lane] += Σ_m rows[m][e] · strip[m][lane]
   Maximum and sum of the softmax are kept per lane and corrected from strip to strip; Milakov and Gimelshein, "Online normalizer
   calculation for softmax", 2018; Dao et al., "FlashAttention", 2022.  The forward pass saves log Σ exp of each query, +inf where it
   sees no key, and the gradients compute the weights from it again.  Every sum has a fixed order.
   Knobs: D, DV: columns of q and k, of v.  MR: rows of a tile; TD, TV: columns of a tile, divisors of D and DV; NV, W.  MASKED: 0 none, 1
   true where seen, 2 added; MASK_DT: u8 or f32.  SLOPES, CAP, DROP: 1 where there is such an option.
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
#define CALLS_MATH
#include "common.h"
#include "args.h"
#include "attention.args"
#include "transpose.h"
#include "attention_seen.h"

#define NR (NV * W)
#define STRIP (8 * MR)

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

/* A strip of products becomes dS, where `slopes_too` holds g·vᵀ; and that the weights that v was summed with. */
V slope_of(V x, V gv, V about, V dot, I i, I j, bool whole, view w, __global const MEMORY(MASK_DT) *mask, int tk, V *weight) {
    V slope, stays, s = score(x, i, j, whole, w, mask, tk, &slope, &stays), p = EXP(s - about);
    *weight = p * stays;
    V ds = p * fma(gv, stays, -dot) * slope;
    return p == (V)(0) ? (V)(0) : ds;
}

KERNEL(attention_queries, ATTENTION_QUERIES_ARGS) {
    UNPACK(ATTENTION_QUERIES_ARGS)
    float packed[D * NR], of_g[DV * NR], sums_of[D * NR], strip[STRIP * NR], strip_g[STRIP * NR], about[NR], dot[NR], one[NR];
    int ids[NR];
    for (int l = 0; l < NR; l++) ids[l] = l, one[l] = 1;
    long blocks = (tq + NR - 1) / NR, u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        int i0 = (int)(u % blocks) * NR, head = (int)(u / blocks % heads), item = (int)(u / blocks / heads), rows = min(NR, tq - i0);
        long row = ((long)item * heads + head) * tq + i0;
        FIND_VIEW
        FIND_HEAD
        __global const float *kp = k_base + k_offset + item * ks1 + head / shared * ks2;
        __global const float *vp = v_base + v_offset + item * vs1 + head / shared * vs2;
        pack(q_base + q_offset + item * qs1 + head * qs2 + i0 * qs3, qs3, rows, D, 1, packed);
        pack(g_base + g_offset + item * gs1 + head * gs2 + i0 * gs3, gs3, rows, DV, 1, of_g);
        clear(sums_of, D * NR);
        for (int l = 0; l < NR; l++) {
            about[l] = l < rows ? sums_base[sums_offset + row + l] : INFINITY;
            dot[l] = l < rows ? dots_base[dots_offset + row + l] : 0;
        }
        long begin = first_key(w, i0), end = end_of_keys(w, i0 + rows - 1);
        for (long j0 = begin; j0 < end; j0 += STRIP) {
            int count = (int)min((long)STRIP, end - j0);
            bool whole = all_seen(w, i0, i0 + rows - 1, j0, j0 + count - 1);
            against_d(kp + j0 * ks3, ks3, count, packed, strip);
            against_dv(vp + j0 * vs3, vs3, count, of_g, strip_g);
            for (int at = 0; at < count * NR; at += W) {
                int v = at % NR;
                V weight;
                PUT(strip, at, slope_of(GET(strip, at), GET(strip_g, at), GET(about, v), GET(dot, v), min((I)(i0) + GET(ids, v), (I)(tq - 1)),
                                        (I)((int)j0 + at / NR), whole, w, mask, tk, &weight));
            }
            along_d(kp + j0 * ks3, ks3, count, strip, sums_of);
        }
        unpack(sums_of, one, dq_base + dq_offset + item * ds1 + head * ds2 + i0 * ds3, ds3, rows, D);
    }
}

KERNEL(attention_keys, ATTENTION_KEYS_ARGS) {
    UNPACK(ATTENTION_KEYS_ARGS)
    float packed[D * NR], of_v[DV * NR], sums_k[D * NR], sums_v[DV * NR], strip[STRIP * NR], strip_g[STRIP * NR], one[NR];
    int ids[NR];
    for (int l = 0; l < NR; l++) ids[l] = l, one[l] = 1;
    long blocks = (tk + NR - 1) / NR, u = (long)get_global_id(0) * per, last = min(units, u + per), few = heads / shared;
    for (; u < last; u++) {
        int j0 = (int)(u % blocks) * NR, group = (int)(u / blocks % few), item = (int)(u / blocks / few), rows = min(NR, tk - j0);
        int head = group * shared;
        FIND_VIEW
        pack(k_base + k_offset + item * ks1 + group * ks2 + j0 * ks3, ks3, rows, D, 1, packed);
        pack(v_base + v_offset + item * vs1 + group * vs2 + j0 * vs3, vs3, rows, DV, 1, of_v);
        clear(sums_k, D * NR);
        clear(sums_v, DV * NR);
        long begin = 0, end = j0 < w.keys ? tq : 0;
        if (causal) begin = max(begin, j0 - w.place);
        if (window) begin = max(begin, j0 - w.place - window + 1), end = min(end, j0 + rows - 1 - w.place + window);
        for (; head < (group + 1) * shared; head++) {
            FIND_HEAD
            __global const float *qp = q_base + q_offset + item * qs1 + head * qs2;
            __global const float *gp = g_base + g_offset + item * gs1 + head * gs2;
            long row = ((long)item * heads + head) * tq;
            for (long i0 = begin; i0 < end; i0 += STRIP) {
                int count = (int)min((long)STRIP, end - i0);
                bool whole = all_seen(w, i0, i0 + count - 1, j0, j0 + rows - 1);
                against_d(qp + i0 * qs3, qs3, count, packed, strip);
                against_dv(gp + i0 * gs3, gs3, count, of_v, strip_g);
                for (int at = 0; at < count * NR; at += W) {
                    long i = i0 + at / NR;
                    V weight, about = (V)(sums_base[sums_offset + row + i]), dot = (V)(dots_base[dots_offset + row + i]);
                    PUT(strip_g, at, slope_of(GET(strip, at), GET(strip_g, at), about, dot, (I)((int)i), (I)(j0) + GET(ids, at % NR), whole, w,
                                              mask, tk, &weight));
                    PUT(strip, at, weight);
                }
                along_d(qp + i0 * qs3, qs3, count, strip_g, sums_k);
                along_dv(gp + i0 * gs3, gs3, count, strip, sums_v);
            }
        }
        unpack(sums_k, one, dk_base + dk_offset + item * dks1 + group * dks2 + j0 * dks3, dks3, rows, D);
        unpack(sums_v, one, dv_base + dv_offset + item * dvs1 + group * dvs2 + j0 * dvs3, dvs3, rows, DV);
    }
}
