/* uses.c — which parts of common.h a program needs (cl/uses.h), by the words of its options and of the text before its file.

   Too little found is no error: a program that does not compile so is compiled with everything (code.c). */
#include "runtime/runtime_internal.h"
#include "uses.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A word that ends with `_` stands for all that begin so. */
#define CALLED(f) {#f, USES_MATH},
static const struct {
    const char *word;
    int uses;
} words[] = {{"i64", USES_LONG},
             {"f64", USES_DOUBLE | USES_LONG},
             {"long4", USES_LONG},
             {"double4", USES_DOUBLE | USES_LONG},
             {"long8", USES_LONG},
             {"double8", USES_DOUBLE | USES_LONG},
             {"long16", USES_LONG},
             {"double16", USES_DOUBLE | USES_LONG},
             {"double", USES_DOUBLE},
             {"f16", USES_HALVES},
             {"bf16", USES_HALVES},
             {"ROUND_f16", USES_HALVES},
             {"ROUND_bf16", USES_HALVES},
             {"u8", USES_BYTES},
             {"bool", USES_BYTES},
             {"M_", USES_DOUBLE},
             {"DBL_", USES_DOUBLE},
             {"RETURN_", USES_MATH},
             {"CALLS_MATH", USES_MATH},
             {"GELU_", USES_MATH},
             {"SIGMOID", USES_MATH},
             {"SOFTPLUS", USES_MATH},
             {"PDF", USES_MATH},
             {"LET", USES_MATH},
             MATH_FUNCTIONS(CALLED, CALLED, CALLED)};

static int uses_of_word(const char *word, size_t n) {
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i].word);
        bool begins = words[i].word[length - 1] == '_';
        if (*word == *words[i].word && (begins ? n > length : n == length) && memcmp(word, words[i].word, length) == 0)
            return words[i].uses;
    }
    return 0;
}

/* A constant without a suffix f is a double, and what is called with it may be. */
static int uses_of_number(const char *number, size_t n) {
    bool hexadecimal = n > 1 && (number[1] == 'x' || number[1] == 'X'), real = false;
    for (size_t i = 0; i < n; i++) real |= number[i] == '.' || (strchr(hexadecimal ? "pP" : "eE", number[i]) != NULL);
    return real && number[n - 1] != 'f' && number[n - 1] != 'F' ? USES_DOUBLE : 0;
}

static size_t length_of_word(const char *at) {
    bool number = isdigit((unsigned char)*at);
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || at[n] == '_' || (number && at[n] == '.')) n++;
    return n;
}

static int uses_of_text(const char *text) {
    int uses = 0;
    while (*text) {
        size_t n = length_of_word(text);
        if (isdigit((unsigned char)*text)) uses |= uses_of_number(text, n);
        else if (n) uses |= uses_of_word(text, n);
        text += n ? n : 1;
    }
    return uses;
}

/* The widths of the vectors that a text or options define, with `mark` before each. */
static int uses_of_widths(const char *text, const char *mark) {
    int uses = 0;
    while ((text = strstr(text, mark))) {
        int width = atoi(text += strlen(mark));
        uses |= width == 4 ? USES_4 : width == 8 ? USES_8 : width == 16 ? USES_16 : 0;
    }
    return uses;
}

int clef__uses(const char *text, const char *file, const char *options) {
    int widths =
        uses_of_widths(options, "-DW=") | uses_of_widths(options, "-DHALF=") | (text ? uses_of_widths(text, "#define W ") : 0);
    int uses = uses_of_text(options) | (text ? uses_of_text(text) : 0);
    if (file && strstr(file, "CALLS_MATH")) uses |= USES_MATH;
    if (!widths) uses |= USES_4 | USES_8 | USES_16;
    return uses | widths | (file ? USES_4 : 0); /* some files do what W lanes leave in fours */
}
