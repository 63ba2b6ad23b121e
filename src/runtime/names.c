/* names.c — a text of C as one of several in the same program: which words name something of its own there, and what it defines.

   C has no names that only a part of a program sees.  So each name of a file stands for another one, with the part's number, and what
   the part defines ends behind it.  A word that is taken for such a name without being one does no harm: it is another word throughout
   the part, unless it is the language's, which common.h names or is_language knows.  One that is overlooked does, if two parts have
   it: then the program does not compile.  Texts name what is theirs by OF_PART and NAME, and may call whatever the driver has. */
#include "runtime/names.h"
#include "runtime/runtime.h"
#include <ctype.h>
#include <string.h>

/* ---- sets of words ---- */

static size_t slot_of(const clef__words *w, const char *word, size_t n) {
    size_t at = 5381;
    for (size_t i = 0; i < n; i++) at = at * 33 ^ (unsigned char)word[i];
    at &= w->slots - 1;
    while (w->word[at].at && (w->word[at].n != n || memcmp(w->word[at].at, word, n) != 0)) at = (at + 1) & (w->slots - 1);
    return at;
}

static bool has(const clef__words *w, const char *word, size_t n) { return w->slots && w->word[slot_of(w, word, n)].at; }

static void grow(clef__words *w) {
    clef__words wider = {.slots = w->slots ? 2 * w->slots : 256};
    wider.word = clef__calloc(wider.slots, sizeof *wider.word);
    for (size_t i = 0; wider.word && i < w->slots; i++)
        if (w->word[i].at) wider.word[slot_of(&wider, w->word[i].at, w->word[i].n)] = w->word[i];
    clef__free(w->word);
    wider.n = w->n;
    wider.failed = w->failed || !wider.word;
    if (!wider.word) wider.slots = wider.n = 0;
    *w = wider;
}

static void add(clef__words *w, const char *word, size_t n) {
    if (2 * w->n >= w->slots) grow(w);
    if (w->failed) return;
    struct clef__word *slot = &w->word[slot_of(w, word, n)];
    w->n += !slot->at;
    *slot = (struct clef__word){word, n};
}

static size_t length_of(const char *at) {
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
    return n;
}

static bool begins_word(char c) { return isalpha((unsigned char)c) || c == '_'; }

static void free_words(clef__words *w) {
    clef__free(w->word);
    *w = (clef__words){0};
}

/* ---- reading ---- */

/* Where it is: behind struct or the like, in the declaration of a constant, in a type's definition, in a list of numbers with names. */
typedef struct reading {
    const char *begin;
    clef__words *names, *macros, *undefined; /* undefined: NULL: nobody asks */
    bool tag, constant, type, list;
    int depth; /* of braces, in a type's definition */
} reading;

static bool is(const char *word, size_t n, const char *what) { return strlen(what) == n && memcmp(word, what, n) == 0; }

static bool is_one_of(const char *word, size_t n, const char *const *what) {
    while (*what && !is(word, n, *what)) what++;
    return *what;
}

/* Words of the language before a parenthesis, and what a vector's numbers are called.  Other functions of the language that a part calls
   without common.h's naming it begin like these. */
static bool is_language(const char *word, size_t n) {
    static const char *const words[] = {"if",       "for",    "while",    "switch", "return", "sizeof", "defined", "_Pragma",
                                        "volatile", "kernel", "__kernel", "lo",     "hi",     "even",   "odd",     NULL};
    static const char *const beginnings[] = {"convert_", "as_", "vload", "vstore", "get_", "atomic_", "atom_", "__"};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (strncmp(word, beginnings[i], strlen(beginnings[i])) == 0) return true;
    return (n == 1 && strchr("xyzw", *word)) || (*word == 's' && n > 1 && strspn(word + 1, "0123456789abcdefABCDEF") == n - 1) ||
           is_one_of(word, n, words);
}

static const char *behind_spaces(const char *at) {
    while (isspace((unsigned char)*at)) at++;
    return at;
}

static const char *behind_string(const char *at) {
    for (at++; *at && *at != '"'; at++) at += *at == '\\' && at[1];
    return at + (*at != 0);
}

static const char *behind_parentheses(const char *at) {
    int depth = 0;
    for (; *at; at++) {
        depth += (*at == '(') - (*at == ')');
        if (depth == 0) return at + 1;
    }
    return at;
}

/* A line that begins with #: what it defines.  The rest of a definition is read as other text is. */
static const char *read_directive(reading *r, const char *at) {
    at = behind_spaces(at + 1);
    size_t n = length_of(at);
    clef__words *words = is(at, n, "define") ? r->macros : is(at, n, "undef") ? r->undefined : NULL;
    if (!words) return at + strcspn(at, "\n");
    at = behind_spaces(at + n);
    n = length_of(at);
    add(words, at, n);
    return at + n;
}

/* Does the word stand for the next number of a list? */
static bool is_listed(const reading *r, const char *at) {
    while (at > r->begin && isspace((unsigned char)at[-1])) at--;
    return r->list && at > r->begin && (at[-1] == '{' || at[-1] == ',');
}

static const char *read_word(reading *r, const char *at) {
    static const char *const tags[] = {"struct", "union", "enum", NULL}, *const constants[] = {"constant", "__constant", NULL};
    size_t n = length_of(at);
    const char *next = behind_spaces(at + n);
    bool called = *next == '(', valued = r->constant && (*next == '[' || *next == '='), tag = r->tag && *next == '{';
    bool type = r->type && r->depth == 0 && *next == ';';
    if (is(at, n, "__attribute__")) return behind_parentheses(next);
    if ((called || valued || tag || type || is_listed(r, at)) && !is_language(at, n)) add(r->names, at, n);
    r->list |= is(at, n, "enum");
    r->tag = is_one_of(at, n, tags);
    r->constant |= is_one_of(at, n, constants);
    r->type |= is(at, n, "typedef");
    return at + n;
}

static const char *read_sign(reading *r, const char *at) {
    if (*at == '"') return behind_string(at);
    if (r->type) r->depth += (*at == '{') - (*at == '}');
    r->list &= *at != '}';
    if (*at == ';' && r->depth == 0) r->type = r->constant = false;
    return at + 1;
}

/* Its names, what it defines and what it ends, added to these. */
static void read_text(clef__words *names, clef__words *macros, clef__words *undefined, const char *text) {
    reading r = {.begin = text, .names = names, .macros = macros, .undefined = undefined};
    for (const char *at = text; *at;) {
        if (*at == '#' && (at == text || at[-1] == '\n')) at = read_directive(&r, at);
        else if (begins_word(*at)) at = read_word(&r, at);
        else if (isdigit((unsigned char)*at)) at += length_of(at);
        else at = read_sign(&r, at);
    }
}

/* ---- options ---- */

/* The next of them; its length is 0 at the end. */
static const char *next_option(const char *at, size_t *n) {
    at += strspn(at, " ");
    *n = strcspn(at, " ");
    return at;
}

/* Does common.h, too, depend on it?  What does not define a word is no part's own either. */
static bool is_shared(const char *option, size_t n) {
    return n < 3 || strncmp(option, "-D", 2) != 0 || !begins_word(option[2]) || option[2] == '_' ||
           strncmp(option + 2, "CLEF_", 5) == 0 || memchr(option, '"', n) || memchr(option, '\'', n) || memchr(option, '\\', n) ||
           memchr(option, '(', n);
}

void clef__shared_options(clef__text *shared, const char *options) {
    size_t n;
    for (const char *at = next_option(options, &n); n; at = next_option(at + n, &n))
        if (is_shared(at, n)) clef__text_add(shared, "%.*s ", (int)n, at);
}

static void put_options(clef__text *to, clef__words *macros, const char *options) {
    size_t n;
    for (const char *at = next_option(options, &n); n; at = next_option(at + n, &n)) {
        if (is_shared(at, n)) continue;
        size_t name = length_of(at + 2), value = name + 3;
        if (value <= n) clef__text_add(to, "#define %.*s %.*s\n", (int)name, at + 2, (int)(n - value), at + value);
        else clef__text_add(to, "#define %.*s 1\n", (int)name, at + 2);
        add(macros, at + 2, name);
    }
}

/* ---- parts ---- */

bool clef__shared_open(clef__shared *shared, const char *common) {
    *shared = (clef__shared){0};
    clef__words names = {0};
    read_text(&names, &shared->macros, &shared->undefined, common);
    free_words(&names);
    for (size_t n; *common; common += n ? n : 1) {
        n = length_of(common);
        if (begins_word(*common)) add(&shared->words, common, n);
    }
    return !shared->words.failed && !shared->macros.failed && !shared->undefined.failed;
}

void clef__shared_close(clef__shared *shared) {
    free_words(&shared->words);
    free_words(&shared->macros);
    free_words(&shared->undefined);
}

/* Does it leave what is shared as it is? */
static bool leaves(const clef__words *macros, const clef__shared *shared) {
    bool well = !macros->failed;
    for (size_t i = 0; i < macros->slots; i++) {
        const struct clef__word *w = &macros->word[i];
        bool defined = w->at && has(&shared->macros, w->at, w->n) && !has(&shared->undefined, w->at, w->n);
        well = well && !defined;
    }
    return well;
}

static void undefine(clef__text *to, const clef__words *words) {
    for (size_t i = 0; i < words->slots; i++)
        if (words->word[i].at) clef__text_add(to, "#undef %.*s\n", (int)words->word[i].n, words->word[i].at);
}

bool clef__part_put(clef__text *to, const clef__shared *shared, const clef__part *part) {
    clef__words names = {0}, macros = {0}, renamed = {0}, unasked = {0};
    read_text(&unasked, &macros, NULL, part->text);
    read_text(&names, &macros, NULL, part->file);
    clef__text_add(to, "\n#undef PART_SUFFIX\n#define PART_SUFFIX _%d\n", part->number);
    put_options(to, &macros, part->options);
    for (size_t i = 0; i < names.slots; i++) {
        const struct clef__word *w = &names.word[i];
        if (!w->at || has(&shared->words, w->at, w->n) || has(&macros, w->at, w->n)) continue;
        clef__text_add(to, "#define %.*s %.*s_%d\n", (int)w->n, w->at, (int)w->n, w->at, part->number);
        add(&renamed, w->at, w->n);
    }
    clef__text_append(to, part->text);
    clef__text_append(to, part->file);
    undefine(to, &macros);
    undefine(to, &renamed);
    bool well = leaves(&macros, shared) && !names.failed && !renamed.failed && !to->failed;
    free_words(&names);
    free_words(&macros);
    free_words(&renamed);
    free_words(&unasked);
    return well;
}
