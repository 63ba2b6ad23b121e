/* sealed.h — checkpoints changed by hand, with a checksum that is right again: what lies behind it is to be tested, too. */
#ifndef CLEF_TEST_SEALED_H
#define CLEF_TEST_SEALED_H
#include "io/io_internal.h"
#include "support/io_files.h"

/* Where `text` begins in the bytes; -1 if it is not there. */
static inline long sealed_find(io_bytes file, const char *text) {
    size_t length = strlen(text);
    for (size_t at = 0; at + length <= file.size; at++)
        if (memcmp(file.data + at, text, length) == 0) return (long)at;
    return -1;
}

/* Puts the right checksum in, where there is one. */
static inline void sealed_seal(io_bytes file) {
    static const char key[] = "\"clef.crc32c\":\"";
    long at = sealed_find(file, key);
    char digits[9];
    if (at < 0 || (size_t)at + sizeof key - 1 + 8 > file.size) return;
    memcpy(file.data + at + sizeof key - 1, "00000000", 8);
    snprintf(digits, sizeof digits, "%08x", (unsigned)clef__crc32c(0, file.data, file.size));
    memcpy(file.data + at + sizeof key - 1, digits, 8);
}

/* A copy with the first `from` of the header replaced; nothing if it is not there.  The caller frees. */
static inline io_bytes sealed_replace(io_bytes file, const char *from, const char *to) {
    long at = sealed_find(file, from);
    if (at < 0) return (io_bytes){0};
    size_t old = strlen(from), new = strlen(to), rest = file.size - (size_t)at - old;
    io_bytes out = {malloc(file.size + new), file.size - old + new};
    uint64_t length = 0;
    memcpy(out.data, file.data, (size_t)at);
    memcpy(out.data + at, to, new);
    memcpy(out.data + (size_t)at + new, file.data + (size_t)at + old, rest);
    for (int i = 7; i >= 0; i--) length = length << 8 | file.data[i];
    length += new - old;
    for (int i = 0; i < 8; i++) out.data[i] = (uint8_t)(length >> (8 * i));
    return out;
}

/* The same from file to file, sealed; false if `from` is not there. */
static inline bool sealed_patch(const char *source, const char *target, const char *from, const char *to) {
    io_bytes file = io_slurp(source), out = sealed_replace(file, from, to);
    if (out.data) {
        sealed_seal(out);
        io_spit(target, out.data, out.size);
    }
    free(file.data);
    free(out.data);
    return out.data != NULL;
}
#endif
