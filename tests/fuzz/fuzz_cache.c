/* Any bytes as a cache entry: never a read outside of them; what is accepted must be what the header says.

   A checksum cannot be guessed, so half of the inputs get a right one: the rest of the header is then what is
   tested. */
#include "runtime/runtime_internal.h"
#include "runtime/sha256.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const unsigned char *bytes, size_t n) {
    clef__entry entry;
    if (!clef__entry_check(bytes, n, NULL, &entry)) return;
    if (entry.payload < bytes || entry.payload + entry.size != bytes + n) abort();
    if (entry.kind < CLEF__ENTRY_BINARY || entry.kind > CLEF__ENTRY_PART) abort();
    uint8_t key[32], wrong[32];
    memcpy(key, bytes + 24, 32);
    memcpy(wrong, key, 32);
    wrong[31] ^= 1;
    if (!clef__entry_check(bytes, n, key, &entry) || clef__entry_check(bytes, n, wrong, &entry)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check(data, size);
    if (size < CLEF__ENTRY_HEADER) return 0;
    unsigned char *bytes = malloc(size);
    if (!bytes) return 0;
    clef__sha256 s;
    memcpy(bytes, data, size);
    if (data[0] & 1) memcpy(bytes, "CLEFKC1\n", 8);
    if (data[1] & 1) bytes[8] = (unsigned char)(1 + data[8] % 6), memset(bytes + 9, 0, 7);
    if (data[2] & 1)
        for (int i = 0; i < 8; i++) bytes[16 + i] = (unsigned char)((uint64_t)(size - CLEF__ENTRY_HEADER) >> (8 * i));
    clef__sha256_begin(&s);
    clef__sha256_add(&s, bytes, 56);
    clef__sha256_add(&s, bytes + CLEF__ENTRY_HEADER, size - CLEF__ENTRY_HEADER);
    clef__sha256_end(&s, bytes + 56);
    check(bytes, size);
    free(bytes);
    return 0;
}
