/* beams.c — beam search: of each prompt the continuations whose sums of log probabilities are largest, several followed at once.

   Each step looks at all tokens that may follow all beams.  Of the best ones, those that end a text become results, if they are among the
   first `beams`, and the others are followed.  A prompt is done when it has as many results as beams, and the best beam's score of the
   moment is no larger than the least of them. */
#include "generator.h"
#include "nn/module.h"
#include <math.h>
#include <string.h>

typedef struct continuation {
    double sum; /* of log probabilities */
    int64_t beam, token;
} continuation;

typedef struct result {
    double score;
    int64_t row, n; /* its tokens in `found` */
    bool ended;
} result;

typedef struct search {
    clef_generator *g;
    clef_beam_options o;
    int64_t prompts, made, seen; /* made: tokens so far; seen: continuations that a step looks at */
    int64_t *running, *next;     /* [batch,tokens]: of each beam */
    double *sum, *next_sum;      /* [batch]; -inf: nobody follows it */
    int64_t *from, *token;       /* [batch]: what the generator is told */
    const int64_t **prompt;      /* [batch] */
    int64_t *length;             /* [batch] */
    int64_t *n_results;          /* [prompts] */
    bool *done;                  /* [prompts] */
    result *results;             /* [prompts,beams], best first */
    continuation *best;          /* [seen] */
} search;

static void free_search(search *s) {
    clef__free(s->running);
    clef__free(s->next);
    clef__free(s->sum);
    clef__free(s->next_sum);
    clef__free(s->from);
    clef__free(s->token);
    clef__free(s->prompt);
    clef__free(s->length);
    clef__free(s->n_results);
    clef__free(s->done);
    clef__free(s->results);
    clef__free(s->best);
}

static bool make_search(search *s) {
    size_t batch = (size_t)s->g->batch, cells = batch * (size_t)s->o.tokens;
    clef__free(s->g->found);
    s->g->found = clef__calloc(cells, sizeof *s->g->found);
    s->running = clef__calloc(cells, sizeof *s->running);
    s->next = clef__calloc(cells, sizeof *s->next);
    s->sum = clef__calloc(batch, sizeof *s->sum);
    s->next_sum = clef__calloc(batch, sizeof *s->next_sum);
    s->from = clef__calloc(batch, sizeof *s->from);
    s->token = clef__calloc(batch, sizeof *s->token);
    s->n_results = clef__calloc(batch, sizeof *s->n_results);
    s->done = clef__calloc(batch, sizeof *s->done);
    s->results = clef__calloc(batch, sizeof *s->results);
    s->best = clef__calloc((size_t)s->seen, sizeof *s->best);
    return s->g->found && s->running && s->next && s->sum && s->next_sum && s->from && s->token && s->n_results && s->done &&
           s->results && s->best;
}

/* ---- what may follow ---- */
static bool is_end(const search *s, int64_t token) {
    for (int i = 0; i < s->o.n_end_tokens; i++)
        if (s->o.end_token[i] == token) return true;
    return false;
}

/* log Σ exp */
static double log_sum(const float *logits, int64_t n) {
    double top = logits[0], sum = 0;
    for (int64_t i = 1; i < n; i++) top = logits[i] > top ? logits[i] : top;
    for (int64_t i = 0; i < n; i++) sum += exp(logits[i] - top);
    return top + log(sum);
}

/* Of equal ones the first stays before the others. */
static int64_t insert(continuation *best, int64_t n, int64_t most, continuation c) {
    if (n == most && !(c.sum > best[n - 1].sum)) return n;
    int64_t i = n < most ? n++ : n - 1;
    for (; i > 0 && c.sum > best[i - 1].sum; i--) best[i] = best[i - 1];
    best[i] = c;
    return n;
}

/* The likeliest continuations of a prompt's beams, into s->best; how many there are. */
static int64_t find_best(search *s, int64_t p) {
    int64_t n = 0, vocabulary = s->g->sizes.vocabulary;
    for (int64_t b = p * s->o.beams; b < (p + 1) * s->o.beams; b++) {
        const float *logits = s->g->logits + b * vocabulary;
        if (s->sum[b] == -INFINITY) continue;
        double before = s->sum[b] - log_sum(logits, vocabulary);
        for (int64_t t = 0; t < vocabulary; t++)
            if (logits[t] > -INFINITY) n = insert(s->best, n, s->seen, (continuation){before + logits[t], b, t});
    }
    return n;
}

/* ---- one step ---- */
static double score_of(const search *s, double sum, int64_t n) { return sum / pow((double)n, s->o.length_penalty); }

static void add_result(search *s, int64_t p, const continuation *c) {
    result *list = s->results + p * s->o.beams, new = {score_of(s, c->sum, s->made + 1), 0, s->made + 1, is_end(s, c->token)};
    int64_t *n = &s->n_results[p];
    if (*n == s->o.beams && !(new.score > list[*n - 1].score)) return;
    new.row = *n < s->o.beams ? p * s->o.beams + *n : list[*n - 1].row;
    int64_t *row = s->g->found + new.row * s->o.tokens;
    memcpy(row, s->running + c->beam * s->o.tokens, (size_t)s->made * sizeof *row);
    row[s->made] = c->token;
    int64_t i = *n < s->o.beams ? (*n)++ : *n - 1;
    for (; i > 0 && new.score > list[i - 1].score; i--) list[i] = list[i - 1];
    list[i] = new;
}

static void follow(search *s, int64_t b, const continuation *c) {
    int64_t *row = s->next + b * s->o.tokens;
    memcpy(row, s->running + c->beam * s->o.tokens, (size_t)s->made * sizeof *row);
    row[s->made] = s->token[b] = c->token;
    s->from[b] = c->beam;
    s->next_sum[b] = c->sum;
}

static bool is_done(const search *s, int64_t p) {
    int64_t first = p * s->o.beams, n = s->n_results[p];
    if (s->next_sum[first] == -INFINITY) return true;
    return n == s->o.beams && score_of(s, s->next_sum[first], s->made + 1) <= s->results[first + n - 1].score;
}

static void step_prompt(search *s, int64_t p) {
    int64_t first = p * s->o.beams, followed = 0, n = s->done[p] ? 0 : find_best(s, p);
    bool last = s->made + 1 == s->o.tokens;
    for (int64_t i = 0; i < n; i++) {
        const continuation *c = &s->best[i];
        bool ends = last || is_end(s, c->token);
        if (ends && i < s->o.beams) add_result(s, p, c);
        if (!ends && followed < s->o.beams) follow(s, first + followed++, c);
    }
    for (int64_t b = first + followed; b < first + s->o.beams; b++) {
        s->from[b] = b;
        s->token[b] = 0; /* it is read with the others, and nobody looks at it */
        s->next_sum[b] = -INFINITY;
    }
    s->done[p] = s->done[p] || is_done(s, p);
}

static bool step(search *s) {
    bool more = false;
    for (int64_t p = 0; p < s->prompts; p++) {
        step_prompt(s, p);
        more = more || !s->done[p];
    }
    int64_t *running = s->running;
    double *sum = s->sum;
    s->running = s->next, s->next = running;
    s->sum = s->next_sum, s->next_sum = sum;
    return ++s->made < s->o.tokens && more;
}

static clef_status say_progress(const search *s) {
    if (!s->o.on_progress || s->o.on_progress(s->o.user, s->made, s->o.tokens)) return CLEF_OK;
    return clef__fail(s->g->ctx, CLEF_INTERRUPTED, "generator: the search was stopped after %lld of %lld tokens",
                      (long long)s->made, (long long)s->o.tokens);
}

/* Of rows that are followed: nobody looks at the others. */
static clef_status check_followed(const search *s) {
    for (int64_t b = 0; b < s->g->batch; b++) {
        if (s->done[b / s->o.beams] || s->sum[b] == -INFINITY) continue;
        clef_status status = clef__check_logits(s->g, b);
        if (status) return status;
    }
    return CLEF_OK;
}

static clef_status run_search(search *s) {
    clef_status status = CLEF_OK;
    for (int64_t b = 0; b < s->g->batch; b++) s->sum[b] = b % s->o.beams ? -INFINITY : 0; /* all begin with the same text */
    while (!status && !(status = check_followed(s)) && step(s)) {
        status = say_progress(s);
        if (!status) status = clef_generator_reorder(s->g, s->from);
        if (!status) status = clef_generator_feed(s->g, s->token);
    }
    return status;
}

/* ---- the whole ---- */
static clef_status read_options(search *s, const clef_beam_options *options) {
    clef_generator *g = s->g;
    s->o = options ? *options : (clef_beam_options){0};
    if (!s->o.beams) s->o.beams = g->batch;
    if (!s->o.best) s->o.best = 1;
    if (!s->o.end_token) s->o.end_token = g->sizes.end_token, s->o.n_end_tokens = g->sizes.n_end_tokens;
    if (s->o.beams < 1 || g->batch % s->o.beams)
        return clef__fail(g->ctx, CLEF_INVALID, "generator: %lld beams in a batch of %lld; they must divide it",
                          (long long)s->o.beams, (long long)g->batch);
    if (s->o.best < 1 || s->o.best > s->o.beams || s->o.tokens < 0 || s->o.tokens > INT32_MAX || s->o.n_end_tokens < 0 ||
        !isfinite(s->o.length_penalty))
        return clef__fail(g->ctx, CLEF_INVALID,
                          "generator: the %lld best of %lld beams, %lld tokens, length_penalty %g; best is 1 to beams, tokens not "
                          "negative and below 2^31, the penalty finite",
                          (long long)s->o.best, (long long)s->o.beams, (long long)s->o.tokens, s->o.length_penalty);
    s->prompts = g->batch / s->o.beams;
    s->seen = s->o.beams * clef__larger(2, 1 + (int64_t)s->o.n_end_tokens); /* enough where every beam may end in every way */
    return CLEF_OK;
}

/* Reads each prompt once for each of its beams. */
static clef_status read_prompts(search *s, const int64_t *const *prompt, const int64_t *length) {
    clef_generator *g = s->g;
    if (!prompt || !length) return clef__fail(g->ctx, CLEF_INVALID, "generator: prompt or length is NULL");
    s->prompt = clef__calloc((size_t)g->batch, sizeof *s->prompt);
    s->length = clef__calloc((size_t)g->batch, sizeof *s->length);
    if (!s->prompt || !s->length)
        return clef__fail(g->ctx, CLEF_MEMORY, "generator: no memory for %lld beams", (long long)g->batch);
    for (int64_t b = 0; b < g->batch; b++) {
        s->prompt[b] = prompt[b / s->o.beams];
        s->length[b] = length[b / s->o.beams];
    }
    return clef_generator_prompt(g, s->prompt, s->length);
}

/* The last token of a result is not read, so that it needs no room. */
static clef_status fit_tokens(search *s) {
    int64_t room = s->g->capacity - s->g->length + 1;
    if (!s->o.tokens) s->o.tokens = room;
    if (s->o.tokens <= room || s->g->slide) return CLEF_OK;
    return clef__fail(s->g->ctx, CLEF_STATE,
                      "generator: %lld tokens after a prompt of %lld, but a capacity of %lld; .slide drops the first ones",
                      (long long)s->o.tokens, (long long)s->g->length, (long long)s->g->capacity);
}

static void hand_out(const search *s, clef_beam *found) {
    for (int64_t i = 0; i < s->prompts * s->o.best; i++) {
        int64_t p = i / s->o.best, k = i % s->o.best;
        const result *r = &s->results[p * s->o.beams + k];
        if (k < s->n_results[p]) found[i] = (clef_beam){s->g->found + r->row * s->o.tokens, r->n, r->score, r->ended};
        else found[i] = (clef_beam){.score = -INFINITY};
    }
}

clef_status clef_generator_beams(clef_generator *g, const int64_t *const *prompt, const int64_t *length,
                                 const clef_beam_options *options, clef_beam *found) {
    if (!g) return CLEF_INVALID;
    if (!found) return clef__fail(g->ctx, CLEF_INVALID, "generator: found is NULL");
    search s = {.g = g};
    clef_status status = read_options(&s, options);
    if (!status) status = read_prompts(&s, prompt, length);
    if (!status) status = fit_tokens(&s);
    if (!status && !make_search(&s))
        status = clef__fail(g->ctx, CLEF_MEMORY, "generator: no memory for %lld beams of %lld tokens", (long long)g->batch,
                            (long long)s.o.tokens);
    if (!status) status = run_search(&s);
    if (!status) hand_out(&s, found);
    free_search(&s);
    return status;
}
