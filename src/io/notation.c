/* notation.c — UTF-8, and numbers as text that come back bit for bit. */
#include "io_internal.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

bool clef__utf8_valid(const char *s) {
    for (const char *end = s + strlen(s); s < end;) {
        int length = clef__utf8_length(s, end);
        if (!length) return false;
        s += length;
    }
    return true;
}

/* ---- numbers ---- */
clef__number clef__exact(double value) {
    clef__number number;
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const char *sign = bits >> 63 ? "-" : "";
    if (isnan(value)) snprintf(number.text, sizeof number.text, "nan");
    else if (isinf(value)) snprintf(number.text, sizeof number.text, "%sinf", sign);
    else {
        int exponent = (int)(bits >> 52 & 0x7FF);
        uint64_t mantissa = bits & ((UINT64_C(1) << 52) - 1);
        int power = exponent ? exponent - 1023 : mantissa ? -1022 : 0;
        snprintf(number.text, sizeof number.text, "%s0x%d.%013" PRIx64 "p%+d", sign, exponent != 0, mantissa, power);
    }
    return number;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/* Reads what clef__exact writes, and nothing else: writing the value again must give the same text. */
bool clef__parse_exact(const char *text, double *value) {
    const char *p = text;
    bool negative = *p == '-';
    if (negative) p++;
    if (strcmp(p, "inf") == 0) *value = INFINITY;
    else if (strcmp(p, "nan") == 0) *value = NAN;
    else {
        if (p[0] != '0' || p[1] != 'x' || (p[2] != '0' && p[2] != '1') || p[3] != '.') return false;
        uint64_t mantissa = (uint64_t)(p[2] - '0');
        p += 4;
        for (int i = 0; i < 13; i++) {
            int digit = hex_digit(*p);
            if (digit < 0) return false;
            mantissa = mantissa << 4 | (uint64_t)digit;
            p++;
        }
        if (*p++ != 'p' || (*p != '+' && *p != '-')) return false;
        int sign = *p++ == '-' ? -1 : 1, power = 0;
        for (; *p >= '0' && *p <= '9' && power < 10000; p++) power = power * 10 + (*p - '0');
        *value = ldexp((double)mantissa, sign * power - 52);
    }
    if (negative) *value = -*value;
    return strcmp(clef__exact(*value).text, text) == 0;
}

clef__number clef__decimal(int64_t value) {
    clef__number number;
    snprintf(number.text, sizeof number.text, "%" PRId64, value);
    return number;
}

clef__number clef__unsigned(uint64_t value) {
    clef__number number;
    snprintf(number.text, sizeof number.text, "%" PRIu64, value);
    return number;
}

bool clef__parse_unsigned(const char *text, uint64_t *value) {
    uint64_t sum = 0;
    if (!*text || (text[0] == '0' && text[1])) return false;
    for (; *text; text++) {
        unsigned digit = (unsigned)(*text - '0');
        if (digit > 9 || sum > (UINT64_MAX - digit) / 10) return false;
        sum = sum * 10 + digit;
    }
    *value = sum;
    return true;
}

bool clef__parse_decimal(const char *text, int64_t *value) {
    bool negative = *text == '-';
    uint64_t size;
    if (!clef__parse_unsigned(text + negative, &size)) return false;
    if (size > (uint64_t)INT64_MAX + negative || (negative && size == 0)) return false;
    *value = negative ? -(int64_t)(size - 1) - 1 : (int64_t)size;
    return true;
}
