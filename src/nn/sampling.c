/* sampling.c — the next token from its logits, on the host, in double precision. */
#include "generator.h"
#include "nn/module.h"
#include "ops/philox.h"
#include <math.h>
#include <stdlib.h>

enum {
    LIKELY = 64, /* so many tokens are sorted first where top_p is wanted, */
    MORE = 8,    /* so many times more where their sum is too small, */
    MANY = 8,    /* and all where that would be an n-th of them: a heap so large is slower */
    LANES = 16,  /* of logits that are compared side by side, */
    BLOCK = 512  /* and so many before it is asked whether the largest is among them */
};

/* Likely ones first; of equal ones the lowest token. */
static int compare(const void *a, const void *b) {
    const clef__candidate *x = a, *y = b;
    if (x->p != y->p) return x->p > y->p ? -1 : 1;
    return x->token < y->token ? -1 : x->token > y->token;
}

static bool comes_before(const clef__candidate *x, const clef__candidate *y) { return compare(x, y) < 0; }

static void swap(clef__candidate *x, clef__candidate *y) {
    clef__candidate was = *x;
    *x = *y, *y = was;
}

/* In a heap of n with the least likely on top, the one at `at` sinks to its place. */
static void sink(clef__candidate *c, int64_t n, int64_t at) {
    for (int64_t below; (below = 2 * at + 1) < n; at = below) {
        if (below + 1 < n && comes_before(&c[below], &c[below + 1])) below++;
        if (comes_before(&c[below], &c[at])) return;
        swap(&c[below], &c[at]);
    }
}

/* The m likeliest of n come to the front, in order.  A vocabulary is long, and few of it are wanted: all are compared, few move. */
static void sort_likeliest(clef__candidate *c, int64_t n, int64_t m) {
    for (int64_t i = m < n ? m / 2 : 0; i-- > 0;) sink(c, m, i);
    for (int64_t i = m; i < n; i++) {
        if (!comes_before(&c[i], &c[0])) continue;
        swap(&c[i], &c[0]);
        sink(c, m, 0);
    }
    qsort(c, (size_t)m, sizeof *c, compare);
}

static void penalize(clef__candidate *c, const clef_generator *g, int64_t sequence, double penalty) {
    const int64_t *text = g->text + sequence * g->capacity;
    for (int64_t i = g->start[sequence]; i < g->length; i++) {
        clef__candidate *seen = &c[text[i]];
        if (seen->token < 0) continue; /* once */
        seen->p = seen->p > 0 ? seen->p / penalty : seen->p * penalty;
        seen->token = -1;
    }
    for (int64_t i = 0; i < g->sizes.vocabulary; i++) c[i].token = i;
}

static int64_t largest(const clef__candidate *c, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (c[i].p > c[best].p) best = i;
    return best;
}

/* The same of logits as they are: the largest of each block, side by side, then the place in the first block that has it. */
static float largest_of_block(const float *x, int64_t n) {
    float most[LANES], all = -INFINITY;
    for (int j = 0; j < LANES; j++) most[j] = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) most[j] = x[i + j] > most[j] ? x[i + j] : most[j];
    for (; i < n; i++) most[0] = x[i] > most[0] ? x[i] : most[0];
    for (int j = 0; j < LANES; j++) all = most[j] > all ? most[j] : all;
    return all;
}

static int64_t largest_logit(const float *x, int64_t n) {
    float top = -INFINITY;
    int64_t at = 0;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        float most = largest_of_block(x + begin, clef__smaller(BLOCK, n - begin));
        if (most > top) top = most, at = begin;
    }
    while (x[at] != top) at++;
    return at;
}

/* Of n weights the likeliest, as few as make this sum; they come to the front, in order.  None of the rest is larger than c[m - 1], so at
   least (sum - before) / c[m - 1] more are needed. */
static int64_t likeliest_by_sum(clef__candidate *c, int64_t n, double sum) {
    for (int64_t m = clef__smaller(LIKELY, n);;) {
        double before = 0;
        sort_likeliest(c, n, m);
        for (int64_t i = 0; i < m; i++) {
            before += c[i].p;
            if (before >= sum) return i + 1;
        }
        if (m == n) return n;
        double next = fmax((double)(MORE * m), (double)m + (sum - before) / c[m - 1].p); /* infinite where c[m - 1] underflowed */
        m = next * MANY < (double)n ? (int64_t)next : n;
    }
}

/* Of n weights those that are large enough, as the largest is; how many. */
static int64_t large_enough(clef__candidate *c, int64_t n, double least) {
    int64_t large = 0;
    for (int64_t i = 0; i < n; i++)
        if (c[i].p >= least) c[large++] = c[i];
    return large;
}

static double sum_of(const clef__candidate *c, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += c[i].p;
    return sum;
}

/* In [0,1), by seed, sequence and place. */
static double draw(const clef_generator *g, int64_t sequence, uint64_t seed) {
    philox_block r = philox(seed, (uint64_t)sequence << 40 ^ (uint64_t)g->tokens);
    return (double)(((uint64_t)r.v[0] << 32 | r.v[1]) >> 11) * 0x1p-53;
}

static int64_t choose(const clef_generator *g, int64_t sequence, const clef_sampling *how) {
    int64_t n = g->sizes.vocabulary;
    const float *logits = g->logits + sequence * n;
    clef__candidate *c = g->candidate;
    bool penalized = how->repeat_penalty > 0 && how->repeat_penalty != 1;
    if (how->temperature == 0 && !penalized) return largest_logit(logits, n);
    for (int64_t i = 0; i < n; i++) c[i] = (clef__candidate){logits[i], i};
    if (penalized) penalize(c, g, sequence, how->repeat_penalty);
    int64_t best = largest(c, n);
    if (how->temperature == 0) return best;
    double top = c[best].p;
    if (how->top_k > 0 && how->top_k < n) sort_likeliest(c, n, how->top_k), n = how->top_k;
    for (int64_t i = 0; i < n; i++) c[i].p = exp((c[i].p - top) / how->temperature);
    double sum = sum_of(c, n);
    if (how->min_p > 0) n = large_enough(c, n, how->min_p);
    if (how->top_p > 0 && how->top_p < 1) n = likeliest_by_sum(c, n, how->top_p * sum);
    double left = draw(g, sequence, how->seed) * sum_of(c, n);
    int64_t i = 0;
    while (i < n - 1 && left >= c[i].p) left -= c[i++].p;
    return c[i].token;
}

static bool sampling_fits(const clef_sampling *s) {
    return s->temperature >= 0 && s->temperature < INFINITY && s->top_k >= 0 && s->top_p >= 0 && s->top_p <= 1 && s->min_p >= 0 &&
           s->min_p <= 1 && s->repeat_penalty >= 0 && s->repeat_penalty < INFINITY;
}

/* The first logit that is no number below +inf; n: none.  So many are looked at together, as nearly always all are good. */
static int64_t first_bad(const float *x, int64_t n) {
    int64_t i = 0;
    for (int bad = 0; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) bad |= !(x[i + j] < INFINITY);
        if (bad) break;
    }
    while (i < n && x[i] < INFINITY) i++;
    return i;
}

clef_status clef__check_logits(const clef_generator *g, int64_t sequence) {
    const float *logits = g->logits + sequence * g->sizes.vocabulary;
    int64_t bad = first_bad(logits, g->sizes.vocabulary);
    if (bad == g->sizes.vocabulary) return CLEF_OK;
    return clef__fail(g->ctx, CLEF_INVALID,
                      "generator: sequence %lld, token %lld: the logit is %s; look for parameters that are not finite",
                      (long long)sequence, (long long)bad, isnan(logits[bad]) ? "NaN" : "infinite");
}

/* Beams may come to an end where every token is excluded; a sequence must go on. */
static clef_status check_possible(const clef_generator *g, int64_t sequence) {
    const float *logits = g->logits + sequence * g->sizes.vocabulary;
    for (int64_t i = 0; i < g->sizes.vocabulary; i++)
        if (logits[i] > -INFINITY) return CLEF_OK;
    return clef__fail(g->ctx, CLEF_INVALID, "generator: sequence %lld: every logit is -inf, so no token is possible",
                      (long long)sequence);
}

clef_status clef_generator_sample(clef_generator *g, const clef_sampling *how, int64_t *token) {
    if (!g) return CLEF_INVALID;
    clef_sampling s = how ? *how : (clef_sampling){0};
    if (!token || !sampling_fits(&s))
        return clef__fail(g->ctx, CLEF_INVALID,
                          token ? "generator: temperature, top_k and repeat_penalty are not negative, top_p and min_p within [0,1]"
                                : "generator: token is NULL");
    if (!g->ready) return clef__fail(g->ctx, CLEF_STATE, "generator: it has read nothing yet; clef_generator_prompt begins");
    for (int64_t i = 0; i < g->batch; i++)
        if (clef__check_logits(g, i) || check_possible(g, i)) return CLEF_INVALID;
    for (int64_t i = 0; i < g->batch; i++) token[i] = choose(g, i, &s);
    return CLEF_OK;
}
