/* json.c — see json.h (RFC 8259). */
#include "json.h"
#include <string.h>

bool clef__json_fail(clef__json *json, const char *expected) {
    clef__report_set(json->report, CLEF_FORMAT, "byte %lld of the header: expected %s",
                     (long long)(json->at - json->start), expected);
    return false;
}

static void skip_space(clef__json *json) {
    while (json->at < json->end &&
           (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t'))
        json->at++;
}

bool clef__json_take(clef__json *json, char c) {
    skip_space(json);
    if (json->at == json->end || *json->at != c) return false;
    json->at++;
    return true;
}

bool clef__json_end(clef__json *json) {
    skip_space(json);
    return json->at == json->end || clef__json_fail(json, "nothing but white space after the closing brace");
}

bool clef__json_expect(clef__json *json, char c) {
    char expected[2] = {c, 0};
    return clef__json_take(json, c) || clef__json_fail(json, expected);
}

/* Four hexadecimal digits; -1 if there are none. */
static int32_t hex4(clef__json *json) {
    int32_t value = 0;
    if (json->end - json->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = *json->at++;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

static char *put_utf8(char *out, uint32_t c) {
    if (c < 0x80) return *out++ = (char)c, out;
    if (c < 0x800) *out++ = (char)(0xC0 | c >> 6);
    else {
        if (c < 0x10000) *out++ = (char)(0xE0 | c >> 12);
        else {
            *out++ = (char)(0xF0 | c >> 18);
            *out++ = (char)(0x80 | (c >> 12 & 0x3F));
        }
        *out++ = (char)(0x80 | (c >> 6 & 0x3F));
    }
    *out++ = (char)(0x80 | (c & 0x3F));
    return out;
}

/* After \u: a character or a surrogate pair; NULL on an error. */
static char *unicode_escape(clef__json *json, char *out) {
    int32_t c = hex4(json);
    if (c >= 0xD800 && c < 0xDC00) {
        bool pair = json->end - json->at >= 6 && json->at[0] == '\\' && json->at[1] == 'u';
        if (pair) json->at += 2;
        int32_t low = pair ? hex4(json) : -1;
        c = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00) : -1;
    } else if (c >= 0xDC00 && c < 0xE000) c = -1;
    /* A terminator within a C string would hide what comes after it. */
    if (c <= 0) return clef__json_fail(json, "a \\u escape of a character other than U+0000"), NULL;
    return put_utf8(out, (uint32_t)c);
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

bool clef__json_string(clef__json *json, const char **string) {
    if (!clef__json_take(json, '"')) return clef__json_fail(json, "a string");
    char *out = json->at;
    *string = out;
    while (json->at < json->end && *json->at != '"') {
        if (*json->at == '\\') {
            json->at++;
            if (!(out = escape(json, out))) return false;
            continue;
        }
        int length = (unsigned char)*json->at < 32 ? 0 : clef__utf8_length(json->at, json->end);
        if (length == 0) return clef__json_fail(json, "valid UTF-8 without control characters");
        memmove(out, json->at, (size_t)length);
        out += length;
        json->at += length;
    }
    if (json->at == json->end) return clef__json_fail(json, "the end of a string");
    json->at++;
    *out = 0; /* at the latest over the closing quote */
    return true;
}

bool clef__json_unsigned(clef__json *json, uint64_t *value) {
    skip_space(json);
    char *digits = json->at;
    uint64_t sum = 0;
    for (; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++) {
        unsigned digit = (unsigned)(*json->at - '0');
        if (sum > ((uint64_t)INT64_MAX - digit) / 10) return clef__json_fail(json, "a number below 2^63");
        sum = sum * 10 + digit;
    }
    if (json->at == digits || (*digits == '0' && json->at - digits > 1))
        return clef__json_fail(json, "a whole number without sign and leading zeros");
    if (json->at < json->end && (*json->at == '.' || *json->at == 'e' || *json->at == 'E'))
        return clef__json_fail(json, "a whole number without fraction or exponent");
    *value = sum;
    return true;
}

bool clef__json_more(clef__json *json, char closing) {
    if (clef__json_take(json, ',')) return true;
    if (clef__json_take(json, closing)) return false;
    char expected[] = ", or ?";
    expected[5] = closing;
    return clef__json_fail(json, expected);
}
