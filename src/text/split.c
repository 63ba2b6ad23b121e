/* split.c — the words of a text: the patterns of GPT-2 (A. Radford et al.: Language Models are Unsupervised Multitask Learners, 2019),
   Llama 3 and Qwen 2, each alternative in its order, with Unicode's classes. */
#include "text/split.h"
#include "text/runs.h"
#include "text/text_internal.h"
#include <string.h>

/* ---- classes of characters ---- */
typedef enum class { OTHER, LETTER, NUMBER, SPACE } class;
typedef struct class_run {
    clef__run run;
    class class;
} class_run;
#define COMPOSES(first, last)
#define R(first, last, class) {{first, last}, class},
static const class_run classes[] = {
#include "text/unicode.def"
};
#undef R
#undef COMPOSES
#define R(first, last, class)
#define COMPOSES(first, last) {first, last},
static const clef__run composing[] = {
#include "text/unicode.def"
};

static class class_of(uint32_t code) {
    if (code < 128) {
        uint32_t letter = code | 32;
        if (letter >= 'a' && letter <= 'z') return LETTER;
        if (code >= '0' && code <= '9') return NUMBER;
        return code == ' ' || (code >= 9 && code <= 13) ? SPACE : OTHER;
    }
    const class_run *r = CLEF__FIND_RUN(classes, code);
    return r ? r->class : OTHER;
}

bool clef__is_space(uint32_t code) { return class_of(code) == SPACE; }

bool clef__may_compose(uint32_t code) { return code >= 0x300 && CLEF__FIND_RUN(composing, code); }

/* ---- patterns ---- */
#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"
static const clef__pattern patterns[] = {
    {CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", false, 0, false, false},
    {"(?i:" CONTRACTIONS
     ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     true, 3, true, true},
    {"(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     true, 1, true, true},
};

const clef__pattern *clef__pattern_default(void) { return &patterns[0]; }

const clef__pattern *clef__pattern_of(const char *regex) {
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (strcmp(patterns[i].regex, regex) == 0) return &patterns[i];
    return NULL;
}

/* ---- matching ---- */
typedef struct cursor {
    const uint8_t *text;
    size_t end;
} cursor;

/* A character and where the next one is; OTHER of no bytes at the end, and of one where none is whole. */
typedef struct character {
    uint32_t code;
    class class;
    size_t next;
} character;

static character look(const cursor *c, size_t at) {
    uint32_t code = 0;
    int length = at < c->end ? clef__utf8_next(c->text + at, c->end - at, &code) : 0;
    if (length) return (character){code, class_of(code), at + (size_t)length};
    return (character){0, OTHER, at + (at < c->end)};
}

static bool is_line_end(const character *x) { return x->code == '\n' || x->code == '\r'; }

/* Behind the run of this class, at most `most` characters long. */
static size_t run_end(const cursor *c, size_t at, class wanted, int most) {
    for (int n = 0; at < c->end && (most == 0 || n < most); n++) {
        character x = look(c, at);
        if (x.class != wanted) break;
        at = x.next;
    }
    return at;
}

static bool is_letter(const character *x, char letter, bool folds) {
    if (x->code == (uint32_t)letter) return true;
    return folds && (x->code == (uint32_t)(letter - 32) || (letter == 's' && x->code == 0x17F)); /* the long s */
}

/* Behind 's, 't, 're, 've, 'm, 'll, 'd; 0: there is none. */
static size_t contraction_end(const clef__pattern *p, const cursor *c, size_t at) {
    static const char *const ends[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (c->text[at] != '\'') return 0;
    for (int i = 0; i < 7; i++) {
        size_t behind = at + 1;
        const char *letter = ends[i];
        for (; *letter && behind < c->end; letter++) {
            character x = look(c, behind);
            if (!is_letter(&x, *letter, p->folds)) break;
            behind = x.next;
        }
        if (!*letter) return behind;
    }
    return 0;
}

/* Behind white space, which leaves its last character to the word that follows. */
static size_t space_end(const clef__pattern *p, const cursor *c, size_t at) {
    size_t last = at, lines = 0, behind = at;
    while (behind < c->end) {
        character x = look(c, behind);
        if (x.class != SPACE) break;
        last = behind;
        behind = x.next;
        if (is_line_end(&x)) lines = behind;
    }
    if (p->lines && lines) return lines;
    return behind == c->end || last == at ? behind : last;
}

/* Behind a run of other characters and, where the pattern says so, line ends. */
static size_t other_end(const clef__pattern *p, const cursor *c, size_t at) {
    at = run_end(c, at, OTHER, 0);
    while (p->lines && at < c->end && (c->text[at] == '\n' || c->text[at] == '\r')) at++;
    return at;
}

size_t clef__word_end(const clef__pattern *p, const uint8_t *text, size_t at, size_t end) {
    cursor c = {text, end};
    size_t contraction = contraction_end(p, &c, at);
    if (contraction) return contraction;
    character x = look(&c, at), y = look(&c, x.next);
    bool space = x.code == ' ', there = x.next < end;
    bool before = p->any_before ? (x.class == OTHER || x.class == SPACE) && !is_line_end(&x) : space;
    if (x.class == LETTER) return run_end(&c, at, LETTER, 0);
    if (before && y.class == LETTER) return run_end(&c, x.next, LETTER, 0);
    if (x.class == NUMBER) return run_end(&c, at, NUMBER, p->numbers);
    if (p->numbers == 0 && space && y.class == NUMBER) return run_end(&c, x.next, NUMBER, 0);
    if (x.class == OTHER) return other_end(p, &c, at);
    if (space && there && y.class == OTHER) return other_end(p, &c, x.next);
    return space_end(p, &c, at);
}
