/* merge.c — words into tokens by byte-pair encoding (R. Sennrich, B. Haddow, A. Birch: Neural Machine Translation of Rare Words with
   Subword Units, 2016): of all neighbours that are a merge, those of the lowest rank become one token, the leftmost first, until none are
   left.  A heap finds them, so that a word of n units takes n log n steps. */
#include "text/merge.h"
#include "text/pairs.h"

void clef__merger_free(clef__merger *m) {
    clef__free(m->symbol);
    clef__free(m->heap);
    *m = (clef__merger){0};
}

static bool is_before(const clef__candidate *a, const clef__candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(clef__merger *m, clef__candidate c) {
    size_t at = m->in_heap++;
    for (; at > 0 && is_before(&c, &m->heap[(at - 1) / 2]); at = (at - 1) / 2) m->heap[at] = m->heap[(at - 1) / 2];
    m->heap[at] = c;
}

static clef__candidate pop(clef__merger *m) {
    clef__candidate top = m->heap[0], last = m->heap[--m->in_heap];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < m->in_heap) {
        if (child + 1 < m->in_heap && is_before(&m->heap[child + 1], &m->heap[child])) child++;
        if (!is_before(&m->heap[child], &last)) break;
        m->heap[at] = m->heap[child];
        at = child;
    }
    m->heap[at] = last;
    return top;
}

/* A symbol and its neighbour, if they are a merge. */
static void consider(const clef_tokenizer *t, clef__merger *m, int32_t at) {
    if (at < 0 || m->symbol[at].next < 0) return;
    const int32_t *rank = clef__pairs_find(&t->pairs, m->symbol[at].id, m->symbol[m->symbol[at].next].id);
    if (rank) push(m, (clef__candidate){*rank, at});
}

/* Is it still there, as the neighbours that it was? */
static bool still_there(const clef_tokenizer *t, const clef__merger *m, clef__candidate c) {
    const clef__symbol *s = &m->symbol[c.at];
    const clef__merge *merge = &t->merge[c.rank];
    return s->id == merge->left && s->next >= 0 && m->symbol[s->next].id == merge->right;
}

static void join(const clef_tokenizer *t, clef__merger *m, clef__candidate c) {
    clef__symbol *s = &m->symbol[c.at], *gone = &m->symbol[s->next];
    s->id = t->merge[c.rank].id;
    s->next = gone->next;
    gone->id = -1;
    if (s->next >= 0) m->symbol[s->next].before = c.at;
    consider(t, m, s->before);
    consider(t, m, c.at);
}

/* Every symbol is considered once at first, and each merge, of which there are fewer, considers two. */
static bool make_room(clef__merger *m, size_t units) {
    if (units <= m->room) return true;
    size_t room = units * 2;
    clef__symbol *symbol = room < INT32_MAX / 2 ? clef__realloc(m->symbol, room * sizeof *symbol) : NULL;
    if (symbol) m->symbol = symbol;
    clef__candidate *heap = symbol ? clef__realloc(m->heap, room * 3 * sizeof *heap) : NULL;
    if (heap) m->heap = heap, m->room = room;
    return heap != NULL;
}

/* The word's units as symbols; false with why. */
static bool take_units(const clef_tokenizer *t, clef__merger *m, const uint8_t *text, size_t begin, size_t end, clef__why *why) {
    m->n = 0;
    for (size_t at = begin; at < end;) {
        size_t length = 1;
        if (!t->of_bytes) length = (size_t)clef__utf8_length((const char *)text + at, (const char *)text + end);
        int32_t id = t->of_bytes ? t->unit[text[at]] : clef__tokens_find(&t->tokens, text + at, length);
        if (id < 0) return clef__no_token(t, text, at, end, why);
        m->symbol[m->n] = (clef__symbol){.id = id, .before = m->n - 1, .next = m->n + 1};
        m->n++;
        at += length;
    }
    m->symbol[m->n - 1].next = -1;
    return true;
}

bool clef__merge_word(const clef_tokenizer *t, clef__merger *m, const uint8_t *text, size_t begin, size_t end, clef__ids *out,
                      clef__why *why) {
    int32_t whole = t->whole_words ? clef__tokens_find(&t->tokens, text + begin, end - begin) : -1;
    if (whole >= 0) return clef__ids_put(out, whole), true;
    if (!make_room(m, end - begin)) return clef__wrong(why, CLEF_MEMORY, "has a word of %zu bytes, which is too long", end - begin);
    if (!take_units(t, m, text, begin, end, why)) return false;
    m->in_heap = 0;
    for (int32_t i = 0; i < m->n; i++) consider(t, m, i);
    while (m->in_heap > 0) {
        clef__candidate c = pop(m);
        if (still_there(t, m, c)) join(t, m, c);
    }
    for (int32_t i = 0; i >= 0; i = m->symbol[i].next) clef__ids_put(out, m->symbol[i].id);
    return true;
}
