/* learn.c — merges from a text: the most frequent pair of neighbours becomes a token, again and again; of equally frequent ones that with
   the lowest numbers.  Words are counted once and merged as often as they differ; a pair knows the words that it may be in, and a heap
   finds the next one.  Counts of pairs fall while others are merged, so what comes from the heap is looked at again. */
#include "text/merge.h"
#include "text/pairs.h"
#include "text/split.h"
#include <string.h>

typedef struct word {
    int32_t *id;
    int32_t n;
    int64_t count;
} word;

typedef struct pair {
    int32_t left, right;
    int64_t count;
    int32_t *word; /* where it may be */
    int words, room;
} pair;

typedef struct candidate {
    int64_t count;
    int32_t pair;
} candidate;

typedef struct learner {
    clef_tokenizer *t;
    clef__tokens seen; /* distinct words */
    word *word;
    int words, words_room;
    int32_t *symbols; /* of all words */
    clef__pairs index;
    pair *pair;
    int pairs, pairs_room;
    candidate *heap;
    int in_heap, heap_room;
} learner;

static void free_learner(learner *l) {
    for (int i = 0; i < l->pairs; i++) clef__free(l->pair[i].word);
    clef__free(l->pair);
    clef__free(l->heap);
    clef__free(l->word);
    clef__free(l->symbols);
    clef__pairs_free(&l->index);
    clef__tokens_free(&l->seen);
}

/* ---- words ---- */
static bool count_words(learner *l, const uint8_t *text, size_t size) {
    for (size_t at = 0; at < size;) {
        size_t end = clef__word_end(l->t->pattern[0], text, at, size);
        int32_t id = clef__tokens_find(&l->seen, text + at, end - at);
        if (id < 0) {
            if (!clef__tokens_put(&l->seen, id = l->seen.n, text + at, end - at)) return false;
            if (!clef__grow(&l->word, l->words, &l->words_room, sizeof *l->word)) return false;
            l->word[l->words++] = (word){0};
        }
        l->word[id].count++;
        at = end;
    }
    return true;
}

static bool make_symbols(learner *l) {
    int32_t *symbol = l->symbols = clef__alloc((l->seen.used + 1) * sizeof *symbol);
    for (int w = 0; symbol && w < l->words; w++) {
        const clef__token *token = &l->seen.token[w];
        l->word[w].id = symbol;
        l->word[w].n = (int32_t)token->size;
        for (uint32_t i = 0; i < token->size; i++) *symbol++ = l->t->unit[l->seen.bytes[token->at + i]];
    }
    return l->symbols != NULL;
}

/* ---- pairs, the most frequent first ---- */
static bool is_before(const learner *l, const candidate *a, const candidate *b) {
    const pair *p = &l->pair[a->pair], *q = &l->pair[b->pair];
    if (a->count != b->count) return a->count > b->count;
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

static bool push(learner *l, candidate c) {
    if (!clef__grow(&l->heap, l->in_heap, &l->heap_room, sizeof *l->heap)) return false;
    int at = l->in_heap++;
    for (; at > 0 && is_before(l, &c, &l->heap[(at - 1) / 2]); at = (at - 1) / 2) l->heap[at] = l->heap[(at - 1) / 2];
    l->heap[at] = c;
    return true;
}

static candidate pop(learner *l) {
    candidate top = l->heap[0], last = l->heap[--l->in_heap];
    int at = 0, child;
    while ((child = 2 * at + 1) < l->in_heap) {
        if (child + 1 < l->in_heap && is_before(l, &l->heap[child + 1], &l->heap[child])) child++;
        if (!is_before(l, &l->heap[child], &last)) break;
        l->heap[at] = l->heap[child];
        at = child;
    }
    l->heap[at] = last;
    return top;
}

/* Adds to a pair's count; where it is more, the word is noted. */
static bool change(learner *l, int32_t left, int32_t right, int64_t by, int32_t in) {
    int32_t *at = clef__pairs_put(&l->index, left, right);
    if (!at) return false;
    if (*at < 0) {
        if (!clef__grow(&l->pair, l->pairs, &l->pairs_room, sizeof *l->pair)) return false;
        l->pair[ *at = l->pairs++] = (pair){.left = left, .right = right};
    }
    pair *p = &l->pair[*at];
    p->count += by;
    if (by < 0 || (p->words > 0 && p->word[p->words - 1] == in)) return true;
    if (!clef__grow(&p->word, p->words, &p->room, sizeof *p->word)) return false;
    p->word[p->words++] = in;
    return true;
}

static bool count_pairs(learner *l) {
    for (int32_t w = 0; w < l->words; w++)
        for (int32_t i = 0; i + 1 < l->word[w].n; i++)
            if (!change(l, l->word[w].id[i], l->word[w].id[i + 1], l->word[w].count, w)) return false;
    for (int32_t p = 0; p < l->pairs; p++)
        if (!push(l, (candidate){l->pair[p].count, p})) return false;
    return true;
}

/* ---- merging ---- */
static bool merge_in_word(learner *l, int32_t in, int32_t left, int32_t right, int32_t id) {
    word *w = &l->word[in];
    int32_t n = 0;
    bool ok = true;
    for (int32_t i = 0; i < w->n; i++) {
        bool here = w->id[i] == left && i + 1 < w->n && w->id[i + 1] == right;
        if (here && n > 0) ok = ok && change(l, w->id[n - 1], left, -w->count, in) && change(l, w->id[n - 1], id, w->count, in);
        if (here && i + 2 < w->n)
            ok = ok && change(l, right, w->id[i + 2], -w->count, in) && change(l, id, w->id[i + 2], w->count, in);
        w->id[n++] = here ? id : w->id[i];
        i += here;
    }
    w->n = n;
    return ok;
}

/* The token of both; a new one unless there is one with these bytes already. */
static int32_t joined(learner *l, int32_t left, int32_t right, clef__why *why) {
    uint8_t both[1024];
    clef__tokens *tokens = &l->t->tokens;
    clef__token a = tokens->token[left], b = tokens->token[right];
    if ((size_t)a.size + b.size > sizeof both) return -1; /* a word of one letter a thousand times: no token */
    memcpy(both, tokens->bytes + a.at, a.size);
    memcpy(both + a.size, tokens->bytes + b.at, b.size);
    int32_t id = clef__tokens_find(tokens, both, (size_t)a.size + b.size);
    if (id < 0 && clef__tokens_put(tokens, tokens->n, both, (size_t)a.size + b.size)) id = tokens->n - 1;
    return id >= 0 && clef__tokenizer_merge(l->t, left, right, why) ? id : -2;
}

/* Merges the pair everywhere; pairs that came with it go to the heap. */
static bool merge_pair(learner *l, int32_t number, clef__why *why) {
    pair p = l->pair[number];
    int first_new = l->pairs;
    int32_t id = joined(l, p.left, p.right, why);
    if (id == -1) return true;
    bool ok = id >= 0;
    l->pair[number].word = NULL; /* it grows no more */
    l->pair[number].words = l->pair[number].room = 0;
    for (int i = 0; ok && i < p.words; i++) ok = merge_in_word(l, p.word[i], p.left, p.right, id);
    for (int32_t k = first_new; ok && k < l->pairs; k++) ok = push(l, (candidate){l->pair[k].count, k});
    clef__free(p.word);
    return ok;
}

static bool learn_merges(learner *l, int64_t size, clef__why *why) {
    while (l->t->tokens.n < size && l->in_heap > 0) {
        candidate top = pop(l);
        int64_t count = l->pair[top.pair].count;
        if (top.count != count) { /* less than it was */
            if (!push(l, (candidate){count, top.pair})) return false;
        } else if (count < 1) break;
        else if (!merge_pair(l, top.pair, why)) return false;
    }
    return true;
}

/* ---- the tokenizer ---- */
/* Special tokens, then all bytes in the order of their characters in vocabulary files. */
static bool put_first(clef_tokenizer *t, const clef_tokenizer_learn_options *o, clef__why *why) {
    for (int i = 0; i < o->n_special; i++) {
        clef__added special = {.id = t->tokens.n, .special = true};
        if (!clef__tokenizer_add(t, special, o->special[i], strlen(o->special[i]), why)) return false;
        t->added[i].only = false;
    }
    for (uint32_t code = 0; code < 0x200; code++) {
        int byte = clef__code_byte(code);
        if (byte >= 0 && !clef__tokens_put(&t->tokens, t->tokens.n, (uint8_t[]){(uint8_t)byte}, 1))
            return clef__wrong(why, CLEF_MEMORY, "needs more memory than there is");
    }
    clef__tokenizer_find_units(t);
    return true;
}

static bool learn(clef_tokenizer *t, const uint8_t *text, size_t size, const clef_tokenizer_learn_options *o, clef__why *why) {
    learner l = {.t = t};
    *why = (clef__why){0};
    size_t bad = clef__utf8_check(text, size);
    if (size == 0) return clef__wrong(why, CLEF_FORMAT, "is empty; give some text");
    if (bad < size) return clef__wrong(why, CLEF_FORMAT, "is not UTF-8 at byte %zu; convert it", bad);
    t->of_bytes = true;
    t->pattern[t->n_patterns++] = clef__pattern_default();
    if (!put_first(t, o, why)) return false;
    bool ok = count_words(&l, text, size) && make_symbols(&l) && count_pairs(&l) && learn_merges(&l, o->size ? o->size : 1024, why);
    free_learner(&l);
    if (!ok && why->status == CLEF_OK) clef__wrong(why, CLEF_MEMORY, "needs more memory than there is");
    return ok;
}

static const char *wrong_options(const clef_tokenizer_learn_options *o) {
    if (o->n_special < 0 || (o->n_special > 0 && !o->special)) return "special is NULL, or n_special below 0";
    for (int i = 0; i < o->n_special; i++) {
        size_t size = o->special[i] ? strlen(o->special[i]) : 0;
        if (size < 2) return "a special token has two characters or more";
        if (clef__utf8_check((const uint8_t *)o->special[i], size) < size) return "a special token is not UTF-8";
        for (int j = 0; j < i; j++)
            if (strcmp(o->special[i], o->special[j]) == 0) return "a special token is there twice";
    }
    if (o->size < 0 || (o->size > 0 && o->size < 256 + o->n_special) || o->size > CLEF__TOKENS_MOST / 4)
        return "size is 256 and the special tokens, or more, or 0 for 1024";
    return NULL;
}

clef_tokenizer *clef_tokenizer_learn(clef_context *ctx, const char *text, size_t size,
                                     const clef_tokenizer_learn_options *options) {
    static const clef_tokenizer_learn_options defaults;
    const clef_tokenizer_learn_options *o = options ? options : &defaults;
    clef__why why;
    if (!ctx) return NULL;
    const char *wrong = text ? wrong_options(o) : "text is NULL";
    if (wrong) return clef__fail(ctx, CLEF_INVALID, "tokenizer_learn: %s", wrong), NULL;
    clef_tokenizer *t = clef__tokenizer_new(ctx, "tokenizer_learn");
    if (!t || learn(t, (const uint8_t *)text, size, o, &why)) return t;
    return clef__tokenizer_refuse(t, "tokenizer_learn", "the text", &why);
}
