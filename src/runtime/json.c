/* json.c — see json.h.  Reading: nothing is read at or behind `end`; nothing is written but decoded strings, over their own text.
 */
#include "runtime/json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 32, LONGEST_NUMBER = 63, FIRST_PRINTABLE = 0x20, REPLACEMENT = 0xFFFD };

clef__json clef__json_of(char *text, size_t size) { return (clef__json){.start = text, .at = text, .end = text + size}; }

bool clef__json_fail(clef__json *json, const char *expected) {
    if (!json->expected) json->expected = expected;
    json->end = json->at;
    return false;
}

/* ---- tokens ---- */
char clef__json_peek(clef__json *json) {
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t')) json->at++;
    return json->at < json->end ? *json->at : 0;
}

bool clef__json_at_end(clef__json *json) {
    clef__json_peek(json);
    return json->at == json->end && !json->expected;
}

static bool take_char(clef__json *json, char c) {
    if (clef__json_peek(json) != c) return false;
    json->at++;
    json->opened = c == '{' || c == '[';
    return true;
}

bool clef__json_expect(clef__json *json, const char *token) { return take_char(json, *token) || clef__json_fail(json, token); }

/* expected: ", or " and the closing bracket. */
static bool another(clef__json *json, const char *expected) {
    bool first = json->opened, closed = take_char(json, expected[5]);
    json->opened = false;
    return !closed && !json->expected && (first || take_char(json, ',') || clef__json_fail(json, expected));
}

bool clef__json_element(clef__json *json) { return another(json, ", or ]"); }

const char *clef__json_member(clef__json *json) {
    const char *name = another(json, ", or }") ? clef__json_string(json) : NULL;
    return name && clef__json_expect(json, ":") ? name : NULL;
}

/* ---- strings ---- */
int clef__utf8_length(const char *s, const char *end) {
    const unsigned char *u = (const unsigned char *)s;
    ptrdiff_t left = end - s;
    if (left < 1) return 0;
    if (u[0] < 0x80) return 1;
    int length = u[0] >= 0xF0 ? 4 : u[0] >= 0xE0 ? 3 : 2;
    if (u[0] < 0xC2 || u[0] > 0xF4 || left < length) return 0;
    for (int i = 1; i < length; i++)
        if ((u[i] & 0xC0) != 0x80) return 0;
    if (u[0] == 0xE0 && u[1] < 0xA0) return 0; /* overlong */
    if (u[0] == 0xED && u[1] > 0x9F) return 0; /* a surrogate */
    if (u[0] == 0xF0 && u[1] < 0x90) return 0; /* overlong */
    if (u[0] == 0xF4 && u[1] > 0x8F) return 0; /* above U+10FFFF */
    return length;
}

static char *put_utf8(char *out, int32_t c) {
    static const int lead[] = {0, 0xC0, 0xE0, 0xF0};
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    *out++ = (char)(lead[more] | c >> 6 * more);
    while (more--) *out++ = (char)(0x80 | (c >> 6 * more & 0x3F));
    return out;
}

/* Four hexadecimal digits; -1 if there are none. */
static int32_t hex4(clef__json *json) {
    int32_t value = 0;
    if (json->end - json->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = *json->at++;
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* \u and four digits; -1 if they are not there. */
static int32_t second_half(clef__json *json) {
    if (json->end - json->at < 6 || json->at[0] != '\\' || json->at[1] != 'u') return -1;
    json->at += 2;
    return hex4(json);
}

/* After \u: a character or a surrogate pair. */
static char *unicode_escape(clef__json *json, char *out) {
    int32_t c = hex4(json);
    if (c >= 0xD800 && c < 0xDC00) {
        char *next = json->at;
        int32_t low = second_half(json);
        if (low >= 0xDC00 && low < 0xE000) return put_utf8(out, 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00));
        if (json->lenient) json->at = next;
    }
    /* A terminator within a C string would hide what comes after it. */
    bool none = c == 0 || (c >= 0xD800 && c < 0xE000);
    if (c >= 0 && (!none || json->lenient)) return put_utf8(out, none ? REPLACEMENT : c);
    return clef__json_fail(json, "a \\u escape of a character other than U+0000"), NULL;
}

/* After a backslash. */
static char *escape(clef__json *json, char *out) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = json->at < json->end ? *json->at++ : 0;
    if (c == 'u') return unicode_escape(json, out);
    const char *known = c ? strchr(names, c) : NULL;
    if (!known) return clef__json_fail(json, "one of \" \\ / b f n r t u after a backslash"), NULL;
    *out++ = values[known - names];
    return out;
}

static char *copy_character(clef__json *json, char *out) {
    int length = clef__utf8_length(json->at, json->end);
    if (length == 0 && json->lenient) length = 1;
    if (length == 0 || (unsigned char)*json->at < FIRST_PRINTABLE)
        return clef__json_fail(json, "valid UTF-8 without control characters"), NULL;
    memmove(out, json->at, (size_t)length);
    json->at += length;
    return out + length;
}

const char *clef__json_string(clef__json *json) {
    if (!take_char(json, '"')) return clef__json_fail(json, "a string"), NULL;
    char *string = json->at, *out = string;
    while (out && json->at < json->end && *json->at != '"') {
        bool escaped = *json->at == '\\';
        json->at += escaped;
        out = escaped ? escape(json, out) : copy_character(json, out);
    }
    if (!out || json->at == json->end) return clef__json_fail(json, "the end of a string"), NULL;
    json->at++;
    *out = 0; /* at the latest over the closing quote */
    return string;
}

/* ---- numbers ---- */
static bool is_digit(const clef__json *json) { return json->at < json->end && *json->at >= '0' && *json->at <= '9'; }

bool clef__json_whole(clef__json *json, int64_t *value) {
    char c = clef__json_peek(json), *first = json->at;
    int64_t sum = 0;
    for (; is_digit(json); json->at++) {
        int digit = *json->at - '0';
        if (sum > (INT64_MAX - digit) / 10) return clef__json_fail(json, "a number below 2^63");
        sum = sum * 10 + digit;
    }
    if (json->at == first || (c == '0' && json->at - first > 1))
        return clef__json_fail(json, "a whole number without sign and leading zeros");
    if (json->at < json->end && (*json->at == '.' || *json->at == 'e' || *json->at == 'E'))
        return clef__json_fail(json, "a whole number without fraction or exponent");
    *value = sum;
    return true;
}

static bool take_digits(clef__json *json) {
    const char *first = json->at;
    while (is_digit(json)) json->at++;
    return json->at > first;
}

/* One of these characters. */
static bool take_any(clef__json *json, const char *of) {
    bool is = json->at < json->end && *json->at && strchr(of, *json->at);
    json->at += is;
    return is;
}

static bool take_number(clef__json *json) {
    take_any(json, "-");
    bool good = take_any(json, "0") || take_digits(json);
    if (good && take_any(json, ".")) good = take_digits(json);
    if (good && take_any(json, "eE")) {
        take_any(json, "+-");
        good = take_digits(json);
    }
    return good || clef__json_fail(json, "a number");
}

static bool take_word(clef__json *json, double *value) {
    static const struct {
        const char *word;
        double value;
    } words[] = {{"true", 1}, {"false", 0}, {"null", NAN}};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i].word);
        if ((size_t)(json->end - json->at) < n || memcmp(json->at, words[i].word, n) != 0) continue;
        json->at += n;
        *value = words[i].value;
        return true;
    }
    return false;
}

bool clef__json_double(clef__json *json, double *value) {
    char digits[LONGEST_NUMBER + 1] = "", *end;
    clef__json_peek(json);
    if (take_word(json, value)) return true;
    const char *first = json->at;
    if (!take_number(json)) return false;
    size_t n = (size_t)(json->at - first);
    if (n > LONGEST_NUMBER) return clef__json_fail(json, "a number of up to 63 characters");
    memcpy(digits, first, n);
    *value = strtod(digits, &end);
    return !*end || clef__json_fail(json, "a locale with a decimal point");
}

/* ---- any value ---- */
static bool skip(clef__json *json, int depth) {
    char c = clef__json_peek(json);
    double value;
    if (c == '"') return clef__json_string(json);
    if (c != '{' && c != '[') return take_word(json, &value) || take_number(json);
    if (depth == 0) return clef__json_fail(json, "arrays and objects nested up to 32 deep");
    clef__json_expect(json, c == '{' ? "{" : "[");
    while (c == '{' ? clef__json_member(json) != NULL : clef__json_element(json))
        if (!skip(json, depth - 1)) return false;
    return !json->expected;
}

bool clef__json_skip(clef__json *json) { return skip(json, DEEPEST); }

/* ---- writing ---- */
size_t clef__json_escape(char byte, char out[CLEF__JSON_BYTE]) {
    static const char digit[] = "0123456789abcdef";
    unsigned char c = (unsigned char)byte;
    if (c < FIRST_PRINTABLE) {
        memcpy(out, (const char[]){'\\', 'u', '0', '0', digit[c >> 4], digit[c & 15]}, 6);
        return 6;
    }
    size_t n = 0;
    if (c == '"' || c == '\\') out[n++] = '\\';
    out[n++] = byte;
    return n;
}

void clef__json_put_string(FILE *file, const char *text) {
    char out[CLEF__JSON_BYTE];
    fputc('"', file);
    for (; *text; text++) fwrite(out, 1, clef__json_escape(*text, out), file);
    fputc('"', file);
}
