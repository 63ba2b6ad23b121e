/* normal.c — see normal.h; the tables are normal.def. */
#include "text/normal.h"
#include <stddef.h>

/* ---- tables ---- */
typedef struct run {
    uint32_t first, last;
} run;
typedef struct decomposition {
    uint32_t code, to[CLEF__NORMAL_CODES];
} decomposition;
typedef struct shift {
    uint32_t first, last;
    int32_t far;
    uint32_t step;
} shift;
typedef struct two {
    uint32_t code, to[2];
} two;

/* Each table takes its rows of the file, and leaves out the others'. */
#define C(first, last) {0x##first, 0x##last},
#define M(first, last)
#define P(first, last)
#define D(code, a, b, c)
#define L(first, last, far, step)
#define W(code, a, b)
static const run controls[] = {
#include "text/normal.def"
};
#undef C
#undef M
#define C(first, last)
#define M(first, last) {0x##first, 0x##last},
static const run marks[] = {
#include "text/normal.def"
};
#undef M
#undef P
#define M(first, last)
#define P(first, last) {0x##first, 0x##last},
static const run punctuation[] = {
#include "text/normal.def"
};
#undef P
#undef D
#define P(first, last)
#define D(code, a, b, c) {0x##code, {0x##a, 0x##b, 0x##c}},
static const decomposition decompositions[] = {
#include "text/normal.def"
};
#undef D
#undef L
#define D(code, a, b, c)
#define L(first, last, far, step) {0x##first, 0x##last, far, step},
static const shift shifts[] = {
#include "text/normal.def"
};
#undef L
#undef W
#define L(first, last, far, step)
#define W(code, a, b) {0x##code, {0x##a, 0x##b}},
static const two twos[] = {
#include "text/normal.def"
};
#define LENGTH(table) (sizeof table / sizeof *table)

static bool is_in(const run *runs, size_t n, uint32_t code) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (runs[middle].last < code) low = middle + 1;
        else high = middle;
    }
    return low < n && runs[low].first <= code;
}

/* ---- classes ---- */
bool clef__is_control(uint32_t code) {
    if (code == '\t' || code == '\n' || code == '\r') return false;
    return code == 0xFFFD || is_in(controls, LENGTH(controls), code);
}

bool clef__is_punctuation(uint32_t code) {
    if (code >= 128) return is_in(punctuation, LENGTH(punctuation), code);
    uint32_t letter = code | 32;
    return code > 32 && code < 127 && !(code >= '0' && code <= '9') && !(letter >= 'a' && letter <= 'z');
}

bool clef__is_chinese(uint32_t code) {
    static const run chinese[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
                                  {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
    return code >= 0x3400 && is_in(chinese, LENGTH(chinese), code);
}

bool clef__is_mark(uint32_t code) { return code >= 0x300 && is_in(marks, LENGTH(marks), code); }

/* ---- characters as others ---- */
/* Syllables of Hangul are made of a consonant, a vowel and maybe another consonant (Unicode, chapter 3.12). */
static int strip_hangul(uint32_t syllable, uint32_t out[CLEF__NORMAL_CODES]) {
    enum { VOWELS = 21, ENDS = 28 };
    out[0] = 0x1100 + syllable / (VOWELS * ENDS);
    out[1] = 0x1161 + syllable / ENDS % VOWELS;
    out[2] = 0x11A7 + syllable % ENDS;
    return syllable % ENDS ? 3 : 2;
}

int clef__stripped(uint32_t code, uint32_t out[CLEF__NORMAL_CODES]) {
    size_t low = 0, high = LENGTH(decompositions);
    out[0] = code;
    if (code < 128) return 1;
    if (code >= 0xAC00 && code <= 0xD7A3) return strip_hangul(code - 0xAC00, out);
    if (clef__is_mark(code)) return 0;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (decompositions[middle].code < code) low = middle + 1;
        else high = middle;
    }
    if (low == LENGTH(decompositions) || decompositions[low].code != code) return 1;
    int n = 0;
    for (; n < CLEF__NORMAL_CODES && decompositions[low].to[n]; n++) out[n] = decompositions[low].to[n];
    return n;
}

int clef__lowered(uint32_t code, uint32_t out[CLEF__NORMAL_CODES]) {
    size_t low = 0, high = LENGTH(shifts);
    out[0] = code >= 'A' && code <= 'Z' ? code + 32 : code;
    if (code < 128) return 1;
    for (size_t i = 0; i < LENGTH(twos); i++)
        if (twos[i].code == code) return out[0] = twos[i].to[0], out[1] = twos[i].to[1], 2;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (shifts[middle].last < code) low = middle + 1;
        else high = middle;
    }
    const shift *s = low < LENGTH(shifts) ? &shifts[low] : NULL;
    if (s && s->first <= code && (code - s->first) % s->step == 0) out[0] = (uint32_t)((int32_t)code + s->far);
    return 1;
}
