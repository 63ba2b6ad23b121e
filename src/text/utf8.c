/* utf8.c — code points of UTF-8 (RFC 3629). */
#include "runtime/json.h"
#include "text/text_internal.h"

int clef__utf8_next(const uint8_t *s, size_t size, uint32_t *code) {
    static const uint8_t lead[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    int length = clef__utf8_length((const char *)s, (const char *)s + size);
    if (length == 0) return 0;
    uint32_t c = s[0] & lead[length];
    for (int i = 1; i < length; i++) c = c << 6 | (s[i] & 0x3F);
    *code = c;
    return length;
}

size_t clef__utf8_check(const uint8_t *s, size_t size) {
    size_t at = 0;
    while (at < size) {
        int length = s[at] < 0x80 ? 1 : clef__utf8_length((const char *)s + at, (const char *)s + size);
        if (length == 0) break;
        at += (size_t)length;
    }
    return at;
}

size_t clef__utf8_put(uint32_t code, uint8_t out[4]) {
    static const uint8_t lead[] = {0, 0xC0, 0xE0, 0xF0};
    size_t more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    out[0] = (uint8_t)(lead[more] | code >> 6 * more);
    for (size_t i = 1; i <= more; i++) out[i] = (uint8_t)(0x80 | (code >> 6 * (more - i) & 0x3F));
    return more + 1;
}
