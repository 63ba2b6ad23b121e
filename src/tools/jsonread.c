/* jsonread.c — reads one line that holds one JSON object (RFC 8259), as if somebody had damaged it. */
#include "jsonl.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 32 };

static const char *skip_space(const char *p) { return p + strspn(p, " \t\r\n"); }

static char *put_utf8(char *to, unsigned long c) {
    if (c < 0x80) *to++ = (char)c;
    else {
        int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        *to++ = (char)((0xf00 >> more & 0xff) | c >> 6 * more);
        while (more--) *to++ = (char)(0x80 | (c >> 6 * more & 0x3f));
    }
    return to;
}

static bool read_hex4(const char *p, unsigned long *out) {
    char digits[5] = {0};
    if (strspn(p, "0123456789abcdefABCDEF") < 4) return false;
    memcpy(digits, p, 4);
    *out = strtoul(digits, NULL, 16);
    return true;
}

/* Behind "\u": one character, of two halves if need be; a half alone and U+0000 become U+FFFD. */
static const char *read_unicode(const char *p, char **to) {
    unsigned long c, low;
    if (!read_hex4(p, &c)) return NULL;
    p += 4;
    if (c >> 10 == 0x36 && p[0] == '\\' && p[1] == 'u' && read_hex4(p + 2, &low) && low >> 10 == 0x37) {
        c = 0x10000 + ((c & 0x3ff) << 10) + (low & 0x3ff);
        p += 6;
    }
    *to = put_utf8(*to, c == 0 || c >> 11 == 0x1b ? 0xfffd : c);
    return p;
}

/* p: behind the quote; text: as long as what is left of the line, which a string never outgrows. */
static const char *read_string(const char *p, char *text) {
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    while (*p != '"') {
        if ((unsigned char)*p < 0x20) return NULL;
        if (*p != '\\') *text++ = *p++;
        else if (p[1] == 'u') {
            if (!(p = read_unicode(p + 2, &text))) return NULL;
        } else {
            const char *at = p[1] ? strchr(from, p[1]) : NULL;
            if (!at) return NULL;
            *text++ = into[at - from];
            p += 2;
        }
    }
    *text = 0;
    return p + 1;
}

/* strtod alone would take "inf", "0x1" and "+1" as well. */
static const char *read_number(const char *p, double *number) {
    char *end;
    size_t length = strspn(p, "-+.0123456789eE");
    if (*p == '+' || *p == '.') return NULL;
    *number = strtod(p, &end);
    return length > 0 && end == p + length ? end : NULL;
}

static const char *read_word(const char *p, double *number) {
    static const struct {
        const char *word;
        double value;
    } words[] = {{"true", 1}, {"false", 0}, {"null", NAN}};
    for (int i = 0; i < 3; i++)
        if (!strncmp(p, words[i].word, strlen(words[i].word))) {
            *number = words[i].value;
            return p + strlen(words[i].word);
        }
    return read_number(p, number);
}

typedef struct reader {
    json_member member;
    void *user;
    char *key, *text; /* each as long as the line */
} reader;

/* One value; `text` then holds a string's.  *kind: 's' string, 'n' number or word, 'c' container. */
static const char *read_value(const reader *r, const char *p, int depth, char *kind, double *number);

static const char *read_members(const reader *r, const char *p, int depth) {
    bool object = *p == '{';
    char close = object ? '}' : ']', kind;
    double number;
    p = skip_space(p + 1);
    if (*p == close) return p + 1;
    for (;; p = skip_space(p + 1)) {
        if (object) {
            if (*p != '"' || !(p = read_string(p + 1, r->key)) || *(p = skip_space(p)) != ':') return NULL;
            p = skip_space(p + 1);
        }
        if (!(p = read_value(r, p, depth, &kind, &number))) return NULL;
        if (depth == 0 && kind != 'c') r->member(r->user, r->key, kind == 's' ? r->text : NULL, number);
        p = skip_space(p);
        if (*p == close) return p + 1;
        if (*p != ',') return NULL;
    }
}

static const char *read_value(const reader *r, const char *p, int depth, char *kind, double *number) {
    *number = NAN;
    *kind = *p == '"' ? 's' : *p == '{' || *p == '[' ? 'c' : 'n';
    if (*kind == 's') return read_string(p + 1, r->text);
    if (*kind == 'n') return read_word(p, number);
    return depth < DEEPEST ? read_members(r, p, depth + 1) : NULL;
}

bool json_read(const char *line, json_member member, void *user) {
    size_t size = strlen(line) + 1;
    reader r = {member, user, malloc(size), malloc(size)};
    const char *p = skip_space(line);
    bool ok = r.key && r.text && *p == '{' && (p = read_members(&r, p, 0)) && !*skip_space(p);
    free(r.key);
    free(r.text);
    return ok;
}
