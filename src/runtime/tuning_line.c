/* tuning_line.c — one tuning result as one line of JSON:

       {"schema":1,"platform":"…","version":"…","device":"…","driver":"…","profile":"…","units":2,"family":"gemm",
        "kernel":"…","dtype":"f32","bucket":"…","knobs":{"rows":8},"ns":1000,"default_ns":1200}

   Numbers are whole, so that no locale changes them.  Files may lie: whatever is not just this is no result. */
#include "runtime/runtime_internal.h"
#include <string.h>

enum { SMALLEST = 0x20 }; /* characters below are control characters */

typedef struct field {
    const char *name;
    size_t offset;
} field;
#define FIELD(name) {#name, offsetof(clef__tuned, name)}
static const field texts[] = {FIELD(platform), FIELD(version), FIELD(device), FIELD(driver), FIELD(profile),
                              FIELD(family),   FIELD(kernel),  FIELD(dtype),  FIELD(bucket)};
static const field numbers[] = {FIELD(schema), FIELD(units), FIELD(ns), FIELD(default_ns)};
enum { TEXTS = sizeof texts / sizeof texts[0], NUMBERS = sizeof numbers / sizeof numbers[0], KNOBS = 1u << (TEXTS + NUMBERS) };

static const char **text_of(const clef__tuned *t, int i) { return (const char **)((char *)t + texts[i].offset); }
static int64_t *number_of(const clef__tuned *t, int i) { return (int64_t *)((char *)t + numbers[i].offset); }

/* ---- reading ---- */
static bool take(char **at, char c) {
    *at += strspn(*at, " \t");
    if (**at != c)
        return false;
    ++*at;
    return true;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* After \u: four digits of a character below 0x80, all that we ever escape. */
static int small_character(char **at) {
    int value = 0;
    for (int i = 0; i < 4; i++, ++*at) {
        int digit = hex_digit(**at);
        if (digit < 0)
            return 0;
        value = value * 16 + digit;
    }
    return value < 0x80 ? value : 0;
}

/* After a backslash; 0: no character that may stand there. */
static char escaped(char **at) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = *(*at)++;
    const char *known = c ? strchr(names, c) : NULL;
    return c == 'u' ? (char)small_character(at) : known ? values[known - names] : 0;
}

/* Decoded in place, as it gets no longer, and ended by a zero byte. */
static bool take_text(char **at, const char **text) {
    if (!take(at, '"'))
        return false;
    char *out = *at;
    *text = out;
    for (;;) {
        char c = *(*at)++;
        if (c == '"')
            break;
        if (c == '\\')
            c = escaped(at);
        else if ((unsigned char)c < SMALLEST)
            return false;
        if (!c)
            return false;
        *out++ = c;
    }
    *out = 0;
    return true;
}

static bool take_number(char **at, int64_t *value) {
    *at += strspn(*at, " \t");
    size_t digits = strspn(*at, "0123456789");
    if (digits == 0 || digits > 18)
        return false;
    *value = 0;
    for (; digits; digits--, ++*at) *value = *value * 10 + (**at - '0');
    return true;
}

static bool take_knobs(char **at, clef__tuned *t) {
    if (!take(at, '{'))
        return false;
    if (take(at, '}'))
        return true;
    do {
        int64_t value;
        if (t->n_knobs == CLEF__TUNED_KNOBS || !take_text(at, &t->knob[t->n_knobs].name) || !take(at, ':') ||
            !take_number(at, &value) || value > INT32_MAX)
            return false;
        t->knob[t->n_knobs++].value = (int)value;
    } while (take(at, ','));
    return take(at, '}');
}

/* What follows a name; *seen notes what was there, and nothing may be there twice. */
static bool take_value(char **at, const char *name, clef__tuned *t, unsigned *seen) {
    unsigned bit = 0;
    bool good = false;
    for (int i = 0; i < TEXTS; i++)
        if (strcmp(texts[i].name, name) == 0) {
            bit = 1u << i;
            good = take_text(at, text_of(t, i));
        }
    for (int i = 0; i < NUMBERS; i++)
        if (strcmp(numbers[i].name, name) == 0) {
            bit = 1u << (TEXTS + i);
            good = take_number(at, number_of(t, i));
        }
    if (strcmp(name, "knobs") == 0) {
        bit = KNOBS;
        good = take_knobs(at, t);
    }
    good = good && !(*seen & bit);
    *seen |= bit;
    return good;
}

bool clef__tuned_parse(char *line, clef__tuned *t) {
    unsigned seen = 0;
    const char *name;
    *t = (clef__tuned){0};
    if (!take(&line, '{'))
        return false;
    do {
        if (!take_text(&line, &name) || !take(&line, ':') || !take_value(&line, name, t, &seen))
            return false;
    } while (take(&line, ','));
    if (!take(&line, '}') || line[strspn(line, " \t\r")])
        return false;
    return seen == KNOBS * 2u - 1 && t->schema == CLEF__TUNING_SCHEMA;
}

bool clef__tuned_foreign(const char *line) {
    static const char start[] = "{\"schema\":";
    size_t n = strlen(line);
    if (strncmp(line, start, sizeof start - 1) != 0 || line[n - 1] != '}')
        return false;
    char *at = (char *)line + sizeof start - 1;
    int64_t schema;
    return take_number(&at, &schema) && (*at == ',' || *at == '}') && schema != CLEF__TUNING_SCHEMA;
}

/* ---- writing ---- */
static void put_text(clef__text *to, const char *text) {
    clef__text_put(to, "\"", 1);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            clef__text_add(to, "\\%c", *text);
        else if ((unsigned char)*text < SMALLEST)
            clef__text_add(to, "\\u%04x", (unsigned)*text);
        else
            clef__text_put(to, text, 1);
    }
    clef__text_put(to, "\"", 1);
}

static void put_texts(clef__text *to, const clef__tuned *t, int from, int end) {
    for (int i = from; i < end; i++) {
        clef__text_add(to, ",\"%s\":", texts[i].name);
        put_text(to, *text_of(t, i));
    }
}

void clef__tuned_put(clef__text *to, const clef__tuned *t) {
    clef__text_add(to, "{\"schema\":%lld", (long long)t->schema);
    put_texts(to, t, 0, 5);
    clef__text_add(to, ",\"units\":%lld", (long long)t->units);
    put_texts(to, t, 5, TEXTS);
    clef__text_append(to, ",\"knobs\":{");
    for (int i = 0; i < t->n_knobs; i++) {
        clef__text_append(to, i ? "," : "");
        put_text(to, t->knob[i].name);
        clef__text_add(to, ":%d", t->knob[i].value);
    }
    clef__text_add(to, "},\"ns\":%lld,\"default_ns\":%lld}\n", (long long)t->ns, (long long)t->default_ns);
}
