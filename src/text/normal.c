/* normal.c — see normal.h; the tables are normal.def. */
#include "text/normal.h"
#include "text/runs.h"

/* ---- tables ---- */
typedef struct other {
    clef__run run;
    uint32_t to[CLEF__NORMAL_CODES];
} other;
typedef struct shift {
    clef__run run;
    int32_t far;
    uint32_t step;
} shift;

/* Each table takes its rows of the file, and leaves out the others'. */
#define C(first, last) {0x##first, 0x##last},
#define M(first, last)
#define P(first, last)
#define D(code, a, b, c)
#define L(first, last, far, step)
#define W(code, a, b)
static const clef__run controls[] = {
#include "text/normal.def"
};
#undef C
#undef M
#define C(first, last)
#define M(first, last) {0x##first, 0x##last},
static const clef__run marks[] = {
#include "text/normal.def"
};
#undef M
#undef P
#define M(first, last)
#define P(first, last) {0x##first, 0x##last},
static const clef__run punctuation[] = {
#include "text/normal.def"
};
#undef P
#undef D
#define P(first, last)
#define D(code, a, b, c) {{0x##code, 0x##code}, {0x##a, 0x##b, 0x##c}},
static const other decompositions[] = {
#include "text/normal.def"
};
#undef D
#undef L
#define D(code, a, b, c)
#define L(first, last, far, step) {{0x##first, 0x##last}, far, step},
static const shift shifts[] = {
#include "text/normal.def"
};
#undef L
#undef W
#define L(first, last, far, step)
#define W(code, a, b) {{0x##code, 0x##code}, {0x##a, 0x##b}},
static const other twos[] = {
#include "text/normal.def"
};

/* ---- classes ---- */
bool clef__is_control(uint32_t code) {
    if (code == '\t' || code == '\n' || code == '\r') return false;
    return code == 0xFFFD || CLEF__FIND_RUN(controls, code);
}

bool clef__is_punctuation(uint32_t code) {
    if (code >= 128) return CLEF__FIND_RUN(punctuation, code);
    uint32_t letter = code | 32;
    return code > 32 && code < 127 && !(code >= '0' && code <= '9') && !(letter >= 'a' && letter <= 'z');
}

bool clef__is_chinese(uint32_t code) {
    static const clef__run chinese[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
                                        {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
    return code >= 0x3400 && CLEF__FIND_RUN(chinese, code);
}

static bool is_mark(uint32_t code) { return code >= 0x300 && CLEF__FIND_RUN(marks, code); }

/* ---- characters as others ---- */
/* Syllables of Hangul are made of a consonant, a vowel and maybe another consonant (Unicode, chapter 3.12). */
static int strip_hangul(uint32_t syllable, uint32_t out[CLEF__NORMAL_CODES]) {
    enum { VOWELS = 21, ENDS = 28 };
    out[0] = 0x1100 + syllable / (VOWELS * ENDS);
    out[1] = 0x1161 + syllable / ENDS % VOWELS;
    out[2] = 0x11A7 + syllable % ENDS;
    return syllable % ENDS ? 3 : 2;
}

static int put(const other *from, uint32_t out[CLEF__NORMAL_CODES]) {
    int n = 0;
    for (; n < CLEF__NORMAL_CODES && from->to[n]; n++) out[n] = from->to[n];
    return n;
}

int clef__stripped(uint32_t code, uint32_t out[CLEF__NORMAL_CODES]) {
    out[0] = code;
    if (code < 128) return 1;
    if (code >= 0xAC00 && code <= 0xD7A3) return strip_hangul(code - 0xAC00, out);
    if (is_mark(code)) return 0;
    const other *d = CLEF__FIND_RUN(decompositions, code);
    return d ? put(d, out) : 1;
}

int clef__lowered(uint32_t code, uint32_t out[CLEF__NORMAL_CODES]) {
    out[0] = code >= 'A' && code <= 'Z' ? code + 32 : code;
    if (code < 128) return 1;
    const other *two = CLEF__FIND_RUN(twos, code);
    if (two) return put(two, out);
    const shift *s = CLEF__FIND_RUN(shifts, code);
    if (s && (code - s->run.first) % s->step == 0) out[0] = (uint32_t)((int32_t)code + s->far);
    return 1;
}
