/* sampling.c — the next token from its logits, on the host, in double precision. */
#include "generator.h"
#include "nn/module.h"
#include "ops/philox.h"
#include <stdlib.h>

typedef struct candidate {
    double p; /* first a logit, then a weight of which the largest is 1 */
    int64_t token;
} candidate;

/* Likely ones first; of equal ones the lowest token. */
static int compare(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->p != y->p) return x->p > y->p ? -1 : 1;
    return x->token < y->token ? -1 : x->token > y->token;
}

static void penalize(candidate *c, const clef_generator *g, int64_t sequence, double penalty) {
    const int64_t *text = g->text + sequence * g->capacity;
    for (int64_t i = g->start[sequence]; i < g->length; i++) {
        candidate *seen = &c[text[i]];
        if (seen->token < 0) continue; /* once */
        seen->p = seen->p > 0 ? seen->p / penalty : seen->p * penalty;
        seen->token = -1;
    }
    for (int64_t i = 0; i < g->sizes.vocabulary; i++) c[i].token = i;
}

static int64_t largest(const candidate *c, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (c[i].p > c[best].p) best = i;
    return best;
}

/* Of sorted weights those that stay. */
static int64_t cut(const candidate *c, int64_t n, const clef_sampling *how) {
    if (how->top_k > 0 && how->top_k < n) n = how->top_k;
    double sum = 0, before = 0;
    for (int64_t i = 0; i < n; i++) sum += c[i].p;
    for (int64_t i = 0; how->top_p > 0 && i < n; i++) {
        before += c[i].p;
        if (before >= how->top_p * sum) n = i + 1;
    }
    while (n > 1 && c[n - 1].p < how->min_p) n--;
    return n;
}

/* In [0,1), by seed, sequence and place. */
static double draw(const clef_generator *g, int64_t sequence, uint64_t seed) {
    philox_block r = philox(seed, (uint64_t)sequence << 40 ^ (uint64_t)g->tokens);
    return (double)(((uint64_t)r.v[0] << 32 | r.v[1]) >> 11) * 0x1p-53;
}

static int64_t choose(const clef_generator *g, int64_t sequence, const clef_sampling *how, candidate *c) {
    int64_t n = g->sizes.vocabulary;
    const float *logits = g->logits + sequence * n;
    for (int64_t i = 0; i < n; i++) c[i] = (candidate){logits[i], i};
    if (how->repeat_penalty > 0 && how->repeat_penalty != 1) penalize(c, g, sequence, how->repeat_penalty);
    int64_t best = largest(c, n);
    if (how->temperature == 0) return best;
    double top = c[best].p, sum = 0;
    for (int64_t i = 0; i < n; i++) c[i].p = exp((c[i].p - top) / how->temperature);
    if (how->top_k > 0 || how->top_p > 0 || how->min_p > 0) {
        qsort(c, (size_t)n, sizeof *c, compare);
        n = cut(c, n, how);
    }
    for (int64_t i = 0; i < n; i++) sum += c[i].p;
    double left = draw(g, sequence, how->seed) * sum;
    int64_t i = 0;
    while (i < n - 1 && left >= c[i].p) left -= c[i++].p;
    return c[i].token;
}

static bool sampling_fits(const clef_sampling *s) {
    return s->temperature >= 0 && s->temperature < INFINITY && s->top_k >= 0 && s->top_p >= 0 && s->top_p <= 1 && s->min_p >= 0 &&
           s->min_p <= 1 && s->repeat_penalty >= 0 && s->repeat_penalty < INFINITY;
}

clef_status clef_generator_sample(clef_generator *g, const clef_sampling *how, int64_t *token) {
    if (!g) return CLEF_INVALID;
    clef_sampling s = how ? *how : (clef_sampling){0};
    if (!token || !sampling_fits(&s))
        return clef__fail(g->ctx, CLEF_INVALID,
                          token ? "generator: temperature, top_k and repeat_penalty are not negative, top_p and min_p within [0,1]"
                                : "generator: token is NULL");
    if (!g->ready) return clef__fail(g->ctx, CLEF_STATE, "generator: it has read nothing yet; clef_generator_prompt begins");
    candidate *c = clef__calloc((size_t)g->sizes.vocabulary, sizeof *c);
    if (!c) return clef__fail(g->ctx, CLEF_MEMORY, "generator: no memory for %lld tokens", (long long)g->sizes.vocabulary);
    for (int64_t i = 0; i < g->batch; i++) token[i] = choose(g, i, &s, c);
    clef__free(c);
    return CLEF_OK;
}
