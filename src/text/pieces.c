/* pieces.c — WordPiece as BERT has it (J. Devlin et al.: BERT, 2019; Y. Wu et al.: Google's Neural Machine Translation System, 2016): the text
   is normalized and split at white space and punctuation; of each word the longest beginning that is a token is taken, then that of the
   rest, whose tokens begin with "##".  A word that cannot be had so is one unknown token. */
#include "text/pieces.h"
#include "text/normal.h"
#include "text/split.h"
#include <string.h>

/* A word as it grows, behind room for the prefix of what continues one. */
typedef struct word {
    const clef_tokenizer *t;
    clef__ids *out;
    uint8_t bytes[CLEF__PREFIX_MOST + 4 * CLEF__WORD_MOST];
    size_t size; /* without the prefix */
    int characters;
} word;

/* The longest token at `at` of the word, before `end`; -1: there is none. */
static int32_t longest_piece(word *w, size_t at, size_t *end) {
    const clef__pieces *p = &w->t->pieces;
    uint8_t *begin = w->bytes + CLEF__PREFIX_MOST + at, before[CLEF__PREFIX_MOST];
    size_t prefix = at ? (size_t)p->prefix_size : 0;
    memcpy(before, begin - prefix, prefix); /* the end of the piece before, for the moment */
    memcpy(begin - prefix, p->prefix, prefix);
    int32_t id = -1;
    for (size_t size = w->size - at; id < 0 && size > 0; size--) {
        if (at + size < w->size && (begin[size] & 0xC0) == 0x80) continue; /* within a character */
        id = clef__tokens_find(&w->t->tokens, begin - prefix, prefix + size);
        *end = at + size;
    }
    memcpy(begin - prefix, before, prefix);
    return id;
}

static void end_word(word *w) {
    int32_t ids[CLEF__WORD_MOST];
    int n = 0;
    bool known = w->characters <= w->t->pieces.most;
    for (size_t at = 0, end = 0; known && at < w->size; at = end) {
        int32_t id = longest_piece(w, at, &end);
        known = id >= 0;
        if (known) ids[n++] = id;
    }
    for (int i = 0; known && i < n; i++) clef__ids_put(w->out, ids[i]);
    if (!known) clef__ids_put(w->out, w->t->pieces.unknown);
    w->size = 0;
    w->characters = 0;
}

/* Of a word that is too long anyway the end is not kept. */
static void add_code(word *w, uint32_t code) {
    if (w->characters++ < w->t->pieces.most) w->size += clef__utf8_put(code, w->bytes + CLEF__PREFIX_MOST + w->size);
}

static void take_normal(word *w, uint32_t code) {
    bool space = clef__is_space(code), alone = space || clef__is_punctuation(code);
    if (alone && w->characters) end_word(w);
    if (space) return;
    add_code(w, code);
    if (alone) end_word(w);
}

static void take(word *w, uint32_t code) {
    const clef__pieces *p = &w->t->pieces;
    if (p->cleans && clef__is_control(code)) return;
    bool chinese = p->parts_chinese && clef__is_chinese(code);
    uint32_t part[CLEF__NORMAL_CODES] = {code}, low[CLEF__NORMAL_CODES];
    if (chinese && w->characters) end_word(w);
    int n = p->strips ? clef__stripped(code, part) : 1;
    for (int i = 0; i < n; i++) {
        int m = p->lowers ? clef__lowered(part[i], low) : (low[0] = part[i], 1);
        for (int j = 0; j < m; j++) take_normal(w, low[j]);
    }
    if (chinese && w->characters) end_word(w);
}

void clef__encode_pieces(const clef_tokenizer *t, const uint8_t *text, size_t at, size_t end, clef__ids *out) {
    word w = {.t = t, .out = out};
    for (uint32_t code = 0; at < end;) {
        int length = clef__utf8_next(text + at, end - at, &code);
        at += length ? (size_t)length : 1;
        take(&w, code);
    }
    if (w.characters) end_word(&w);
}

/* Before these no space is written, where the file says so. */
static bool is_close(const uint8_t *bytes, size_t size) {
    static const char *const close[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
    for (size_t i = 0; i < sizeof close / sizeof *close; i++) {
        size_t n = strlen(close[i]);
        if (size >= n && memcmp(bytes, close[i], n) == 0) return true;
    }
    return false;
}

size_t clef__decode_piece(const clef_tokenizer *t, const clef__token *token, bool first, bool *space) {
    const clef__pieces *p = &t->pieces;
    const uint8_t *bytes = t->tokens.bytes + token->at;
    *space = false;
    if (!p->there || first) return 0;
    if (token->size >= (uint32_t)p->prefix_size && memcmp(bytes, p->prefix, (size_t)p->prefix_size) == 0)
        return (size_t)p->prefix_size;
    *space = !(p->cleans_up && is_close(bytes, token->size));
    return 0;
}

bool clef__pieces_end(clef_tokenizer *t, clef__why *why) {
    clef__pieces *p = &t->pieces;
    if (!p->there) return true;
    p->unknown = clef__tokens_find(&t->tokens, p->unknown_text, strlen(p->unknown_text));
    if (p->unknown >= 0) return true;
    return clef__wrong(why, CLEF_FORMAT, "has no token \"%s\" for words that it does not know", p->unknown_text);
}
