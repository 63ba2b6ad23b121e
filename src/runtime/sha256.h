/* sha256.h — SHA-256 (FIPS 180-4), for cache keys and checksums. */
#ifndef CLEF_SHA256_H
#define CLEF_SHA256_H
#include <stddef.h>
#include <stdint.h>

typedef struct clef__sha256 {
    uint32_t h[8];
    uint64_t bytes;
    uint8_t block[64];
} clef__sha256;

void clef__sha256_begin(clef__sha256 *s);
void clef__sha256_add(clef__sha256 *s, const void *data, size_t n);
void clef__sha256_end(clef__sha256 *s, uint8_t digest[32]);
/* Adds the length, then the text, so that neighbouring fields cannot run into each other. */
void clef__sha256_add_text(clef__sha256 *s, const char *text);
#endif
