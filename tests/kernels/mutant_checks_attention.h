/* mutant_checks_attention.h — checks of attention and its gradients by the definition in double precision. */
#ifndef CLEF_TESTS_MUTANT_CHECKS_ATTENTION_H
#define CLEF_TESTS_MUTANT_CHECKS_ATTENTION_H

/* Several blocks of rows and strips of the other side, the last of each not full. */
enum { ATT_B = 2, ATT_H = 4, ATT_HK = 2, ATT_Q = 45, ATT_K = 131, ATT_MOST = 1500, ATT_D = 14, ATT_V = 10 };

typedef struct attending {
    int tq, tk;
    bool causal;
    int window, places[ATT_B], lengths[ATT_B];
    double cap, slope; /* of head h: slope · (h + 1) */
    bool deep;         /* all scores are -91, and values large */
    float *mask;       /* [tq,tk], added */
    float *q, *k, *v, *g, *y, *dq, *dk, *dv;
} attending;

static double dot_of(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* The score, and in *slope what its gradient is to be multiplied by. */
static double attended_score(const attending *a, int b, int h, int i, int j, const float *q, const float *k, double *slope) {
    double s = dot_of(q, k, ATT_D) / sqrt(ATT_D), place = i + a->places[b];
    *slope = 1 / sqrt(ATT_D);
    if (a->cap > 0) {
        double t = tanh(s / a->cap);
        s = t * a->cap, *slope *= 1 - t * t;
    }
    bool seen = j < a->lengths[b] && (!a->causal || j <= place) && (!a->window || fabs(place - j) < a->window);
    s += (double)a->mask[i * a->tk + j] - a->slope * (h + 1) * fabs(place - j);
    return seen ? s : -INFINITY;
}

static void attended_row(attending *a, int b, int h, int i) {
    double p[ATT_MOST], slope[ATT_MOST], top = -INFINITY, sum = 0, whole_dot = 0;
    int64_t row = ((int64_t)b * ATT_H + h) * a->tq + i, keys = ((int64_t)b * ATT_HK + h / (ATT_H / ATT_HK)) * a->tk;
    const float *q = a->q + row * ATT_D, *g = a->g + row * ATT_V, *k = a->k + keys * ATT_D, *v = a->v + keys * ATT_V;
    for (int j = 0; j < a->tk; j++) top = fmax(top, p[j] = attended_score(a, b, h, i, j, q, k + j * ATT_D, &slope[j]));
    for (int j = 0; j < a->tk; j++) sum += p[j] = top == -INFINITY ? 0 : exp(p[j] - top);
    for (int j = 0; j < a->tk; j++) {
        p[j] = sum > 0 ? p[j] / sum : 0;
        whole_dot += p[j] * dot_of(g, v + j * ATT_V, ATT_V);
        for (int e = 0; e < ATT_V; e++) {
            a->y[row * ATT_V + e] += (float)(p[j] * (double)v[j * ATT_V + e]);
            a->dv[(keys + j) * ATT_V + e] += (float)(p[j] * (double)g[e]);
        }
    }
    for (int j = 0; j < a->tk; j++) {
        double ds = p[j] * (dot_of(g, v + j * ATT_V, ATT_V) - whole_dot) * slope[j];
        for (int e = 0; e < ATT_D; e++) {
            a->dq[row * ATT_D + e] += (float)(ds * (double)k[j * ATT_D + e]);
            a->dk[(keys + j) * ATT_D + e] += (float)(ds * (double)q[e]);
        }
    }
}

static float *some(int64_t n, uint32_t salt) {
    float *v = whole(n, salt, -64, 64);
    for (int64_t i = 0; i < n; i++) v[i] /= 32;
    return v;
}

/* mask: as the option of the call. */
static void check_attention(attending *a, clef_tensor *mask) {
    int nq = ATT_B * ATT_H * a->tq, nk = ATT_B * ATT_HK * a->tk;
    a->q = some(nq * ATT_D, 1), a->k = some(nk * ATT_D, 2), a->v = some(nk * ATT_V, 3), a->g = some(nq * ATT_V, 4);
    for (int i = 0; a->deep && i < nq * ATT_D; i++) a->q[i] = sqrtf(91 / sqrtf(ATT_D));
    for (int i = 0; a->deep && i < nk * ATT_D; i++) a->k[i] = -sqrtf(91 / sqrtf(ATT_D));
    for (int i = 0; a->deep && i < nk * ATT_V; i++) a->v[i] += 3;
    a->y = zeros(nq * ATT_V), a->dq = zeros(nq * ATT_D), a->dk = zeros(nk * ATT_D), a->dv = zeros(nk * ATT_V);
    for (int r = 0; r < nq; r++) attended_row(a, r / a->tq / ATT_H, r / a->tq % ATT_H, r % a->tq);
    float slopes[ATT_H];
    for (int h = 0; h < ATT_H; h++) slopes[h] = (float)(a->slope * (h + 1));
    clef_attention_options o = {.causal = a->causal,
                                .window = a->window,
                                .softcap = (float)a->cap,
                                .mask = mask,
                                .lengths = clef_from_host(ctx, CLEF_SHAPE(ATT_B), CLEF_I32, a->lengths),
                                .offset = clef_from_host(ctx, CLEF_SHAPE(ATT_B), CLEF_I32, a->places),
                                .slopes = a->slope > 0 ? put(CLEF_SHAPE(ATT_H), slopes) : NULL};
    clef_tensor *in[3] = {leaf(CLEF_SHAPE(ATT_B, ATT_H, a->tq, ATT_D), a->q), leaf(CLEF_SHAPE(ATT_B, ATT_HK, a->tk, ATT_D), a->k),
                          leaf(CLEF_SHAPE(ATT_B, ATT_HK, a->tk, ATT_V), a->v)};
    clef_tensor *y = clef_attention(in[0], in[1], in[2], &o), *d[3];
    differentiate(y, put(CLEF_SHAPE(ATT_B, ATT_H, a->tq, ATT_V), a->g), in, 3, d);
    clef_eval_all(d, 3); /* in one plan */
    expect_near(y, a->y, nq * ATT_V, 2e-4);
    expect_near(d[0], a->dq, nq * ATT_D, 2e-4);
    expect_near(d[1], a->dk, nk * ATT_D, 1e-3);
    expect_near(d[2], a->dv, nk * ATT_V, 1e-3);
    for (int i = 0; i < 3; i++) clef_release(in[i]);
}

/* Places, a soft cap, slopes and a mask that is added. */
static void attended(void) {
    attending a = {
        .tq = ATT_Q, .tk = ATT_K, .causal = true, .places = {ATT_K - ATT_Q, 3}, .lengths = {ATT_K, ATT_K}, .cap = 2, .slope = 0.01};
    a.mask = some(ATT_Q * ATT_K, 5);
    check_attention(&a, put(CLEF_SHAPE(ATT_Q, ATT_K), a.mask));
}

/* Windows, lengths, and a mask of bytes. */
static void attended_windows(void) {
    attending a = {.tq = ATT_Q, .tk = ATT_K, .window = 80, .places = {40, 3}, .lengths = {ATT_K, 77}};
    float *seen = whole(ATT_Q * ATT_K, 6, 0, 3);
    a.mask = zeros(ATT_Q * ATT_K);
    for (int i = 0; i < ATT_Q * ATT_K; i++) a.mask[i] = seen[i] > 0 ? 0 : -INFINITY;
    check_attention(&a, clef_gt_scalar(put(CLEF_SHAPE(ATT_Q, ATT_K), seen), 0));
}

/* Windows alone, whose inner strips are seen whole. */
static void attended_strips(void) {
    attending a = {
        .tq = ATT_Q, .tk = ATT_K, .window = 80, .places = {40, 3}, .lengths = {ATT_K, 100}, .mask = zeros(ATT_Q * ATT_K)};
    check_attention(&a, NULL);
}

/* Few queries: several pieces of many keys; and windows, which leave out keys. */
static void attended_few(void) {
    attending a = {.tq = 3,
                   .tk = ATT_MOST,
                   .causal = true,
                   .places = {ATT_MOST - 3, 300},
                   .lengths = {ATT_MOST, ATT_MOST},
                   .cap = 2,
                   .slope = 0.01};
    a.mask = some(a.tq * a.tk, 5);
    check_attention(&a, put(CLEF_SHAPE(a.tq, a.tk), a.mask));
}
static void attended_few_windows(void) {
    attending a = {.tq = 3, .tk = ATT_K, .window = 70, .places = {40, 3}, .lengths = {ATT_K, 77}};
    float *seen = whole(a.tq * a.tk, 6, 0, 3);
    a.mask = zeros(a.tq * a.tk);
    for (int i = 0; i < a.tq * a.tk; i++) a.mask[i] = seen[i] > 0 ? 0 : -INFINITY;
    check_attention(&a, clef_gt_scalar(put(CLEF_SHAPE(a.tq, a.tk), seen), 0));
}
/* Few keys, all seen: what lies beyond the last of a vector has weight. */
static void attended_short(void) {
    enum { QUERIES = 3, KEYS = 21 };
    attending a = {.tq = QUERIES, .tk = KEYS, .lengths = {KEYS, KEYS}, .mask = zeros(QUERIES * KEYS)};
    check_attention(&a, NULL);
}
/* Scores so far below 0 that a key that is not there, whose score is 0, would weigh more than a float can. */
static void attended_deep(void) {
    enum { QUERIES = 3, KEYS = 21 };
    attending a = {.tq = QUERIES, .tk = KEYS, .lengths = {KEYS, KEYS}, .deep = true, .mask = zeros(QUERIES * KEYS)};
    check_attention(&a, NULL);
}
/* A window that leaves out queries of the first keys, so that a strip of those ends within a tile. */
static void attended_near(void) {
    attending a = {
        .tq = ATT_Q, .tk = ATT_K, .window = 30, .places = {40, 43}, .lengths = {ATT_K, ATT_K}, .mask = zeros(ATT_Q * ATT_K)};
    check_attention(&a, NULL);
}
#endif
