/* args.c — parsing, checking and describing the options of a verb. */
#include "args.h"
#include <clef/base.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INDENT = 28, USAGE_INDENT = 7 }; /* of the column that explains, and of usage that goes on, in --help */

/* Is word one of "a|b|c"? */
static bool is_choice(const char *choices, const char *word) {
    size_t length = strlen(word);
    for (const char *p = choices; length > 0 && p; p = strchr(p, '|'), p = p ? p + 1 : NULL)
        if (!strncmp(p, word, length) && (p[length] == '|' || !p[length])) return true;
    return false;
}

static const arg *find_arg(const arg *args, const char *name, size_t length) {
    for (; args->name; args++)
        if (strlen(args->name) == length && !strncmp(args->name, name, length)) return args;
    return NULL;
}

const char *args_hint(const char *word, const char *choices) {
    enum { MOST = 64 };
    static char words[1024], hint[128];
    const char *each[MOST], *meant = NULL;
    int n = 0;
    hint[0] = 0;
    if (strlen(choices) >= sizeof words) return hint;
    strcpy(words, choices);
    for (char *save, *w = strtok_r(words, "| ", &save); w && n < MOST; w = strtok_r(NULL, "| ", &save)) each[n++] = w;
    if ((meant = clef_closest(word, each, n))) snprintf(hint, sizeof hint, "; did you mean %.90s?", meant);
    return hint;
}

/* All options of a verb as choices: "--device|--seed|…". */
static const char *all_options(const verb *v) {
    static char text[1024];
    size_t used = 0;
    for (const arg *a = v->args; a->name && used < sizeof text; a++)
        used += (size_t)snprintf(text + used, sizeof text - used, "|--%s", a->name);
    return text;
}

static bool read_count(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *out = value;
    return !errno && end != text && !*end && value >= 1;
}

static bool read_seed(const char *text, uint64_t *out) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    *out = value;
    return !errno && end != text && !*end && *text != '-';
}

static bool read_number(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && isfinite(*out) && *out >= 0;
}

/* Puts a value where it belongs; returns what it should have been, or NULL. */
static const char *store(const arg *a, char *base, const char *value) {
    void *field = base + a->offset;
    switch (a->kind) {
    case ARG_FLAG: *(bool *)field = true; return NULL;
    case ARG_TEXT: *(const char **)field = value; return *value ? NULL : "a value";
    case ARG_COUNT: return read_count(value, field) ? NULL : "a whole number from 1";
    case ARG_SEED: return read_seed(value, field) ? NULL : "a whole number from 0";
    case ARG_NUMBER: return read_number(value, field) ? NULL : "a number from 0";
    case ARG_CHOICE: *(const char **)field = value; return is_choice(a->meta, value) ? NULL : a->meta;
    }
    return NULL;
}

static bool wrong(const verb *v, const char *what, const char *word) {
    fprintf(stderr, "clef %s: %s %s; see clef %s --help\n", v->name, what, word, v->name);
    return false;
}

static bool unknown(const verb *v, const char *option) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(option, "="), option);
    fprintf(stderr, "clef %s: unknown option %s%s; see clef %s --help\n", v->name, option, args_hint(name, all_options(v)),
            v->name);
    return false;
}

/* One option, with its value in the same word (after '=') or in the next one; *i moves on. */
static bool option(const verb *v, int argc, char **argv, int *i) {
    const char *word = argv[*i] + 2, *equals = strchr(word, '=');
    const arg *a = find_arg(v->args, word, equals ? (size_t)(equals - word) : strlen(word));
    if (!a) return unknown(v, argv[*i]);
    if (a->kind == ARG_FLAG && equals) return wrong(v, "no value belongs to", argv[*i]);
    if (a->kind != ARG_FLAG && !equals && *i + 1 >= argc) return wrong(v, "a value is missing after", argv[*i]);
    const char *value = a->kind == ARG_FLAG ? "" : equals ? equals + 1 : argv[++*i];
    const char *wanted = store(a, v->options, value);
    if (!wanted) return true;
    fprintf(stderr, "clef %s: --%s wants %s, not \"%s\"%s; see clef %s --help\n", v->name, a->name, wanted, value,
            a->kind == ARG_CHOICE ? args_hint(value, a->meta) : "", v->name);
    return false;
}

/* One word that is no option, the n-th of them. */
static bool operand_fits(const verb *v, int n, const char *word) {
    size_t length = v->operands ? strlen(v->operands) : 0;
    if (length > 3 && !strcmp(v->operands + length - 3, "...")) return *word || wrong(v, "empty word", "\"\"");
    if (n > 0 || !v->operands) return wrong(v, "surplus word", word);
    if (is_choice(v->operands, word)) return true;
    fprintf(stderr, "clef %s: wants %s, not \"%s\"%s\n", v->name, v->operands, word, args_hint(word, v->operands));
    return false;
}

bool args_parse(const verb *v, int argc, char **argv, const char **operands) {
    int n = 0;
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "-h")) ((common_options *)v->options)->help = true;
        else if (argv[i][0] == '-' && argv[i][1] == '-') {
            if (!option(v, argc, argv, &i)) return false;
        } else if (argv[i][0] == '-') return unknown(v, argv[i]);
        else if (!operand_fits(v, n, argv[i])) return false;
        else operands[n++] = argv[i];
    }
    operands[n] = NULL;
    return true;
}

/* In lines of up to 80 columns, from the second on indented as the first is. */
static void wrapped(FILE *out, const char *text) {
    int column = INDENT;
    for (const char *word = text; *word;) {
        int length = (int)strcspn(word, " ");
        if (column > INDENT && column + 1 + length > 80) column = fprintf(out, "\n%*s", INDENT, "") - 1;
        else if (column > INDENT) column += fprintf(out, " ");
        column += fprintf(out, "%.*s", length, word);
        word += length + (word[length] == ' ');
    }
    fputc('\n', out);
}

/* The line of usage, in lines of up to 80 columns: a choice of words is broken behind a bar. */
static void usage(FILE *out, const verb *v) {
    const char *rest = v->operands ? v->operands : "";
    int column = fprintf(out, "usage: clef %s%s", v->name, *rest ? " " : "");
    while (*rest) {
        int length = (int)strcspn(rest, "|");
        length += rest[length] == '|';
        if (column + length > 80) column = fprintf(out, "\n%*s", USAGE_INDENT, "") - 1;
        column += fprintf(out, "%.*s", length, rest);
        rest += length;
    }
    if (column + 9 > 80) fprintf(out, "\n%*s[OPTION]\n", USAGE_INDENT, "");
    else fputs(" [OPTION]\n", out);
}

void args_help(const verb *v, FILE *out) {
    usage(out, v);
    fprintf(out, "%s\n\n", v->summary);
    for (const arg *a = v->args; a->name; a++) {
        int width = fprintf(out, "  --%s%s%s", a->name, a->meta ? " " : "", a->meta ? a->meta : "");
        if (width > INDENT - 2) {
            fputc('\n', out);
            width = 0;
        }
        fprintf(out, "%*s", INDENT - width, "");
        wrapped(out, a->help);
    }
}
