/* data_support.h — made files for the tests of the data room: IDX, CIFAR, gzip of stored blocks, a
   folder of its own. */
#ifndef CLEF_TESTS_DATA_SUPPORT_H
#define CLEF_TESTS_DATA_SUPPORT_H
#include "data/data_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An allocator that counts what is asked of it. */
static size_t asked;
static inline void *count_alloc(void *user, size_t n) {
    (void)user;
    asked += n;
    return malloc(n);
}
static inline void *count_realloc(void *user, void *old, size_t n) {
    (void)user;
    asked += n;
    return realloc(old, n);
}
static inline void count_free(void *user, void *old) {
    (void)user;
    free(old);
}
static const clef_allocator counting = {count_alloc, count_realloc, count_free, NULL};

/* Bytes to be freed with clef__blob_free. */
static inline clef__blob blob_of(const void *bytes, size_t size) {
    clef__blob blob = {clef__alloc(size ? size : 1), size};
    if (size) memcpy(blob.bytes, bytes, size);
    return blob;
}

/* An IDX file of unsigned bytes; element i has the value (i * 7 + salt) % modulus. */
static inline clef__blob idx_file(int rank, const uint32_t *dim, unsigned salt, unsigned modulus) {
    size_t numel = 1, header = 4 + 4 * (size_t)rank;
    for (int d = 0; d < rank; d++) numel *= dim[d];
    clef__blob blob = {clef__calloc(header + numel, 1), header + numel};
    blob.bytes[2] = 8;
    blob.bytes[3] = (uint8_t)rank;
    for (int d = 0; d < rank; d++)
        for (int b = 0; b < 4; b++) blob.bytes[4 + 4 * d + b] = (uint8_t)(dim[d] >> (24 - 8 * b));
    for (size_t i = 0; i < numel; i++) blob.bytes[header + i] = (uint8_t)((i * 7 + salt) % modulus);
    return blob;
}

static inline uint8_t cifar_pixel(size_t i, size_t p) { return (uint8_t)(i * 31 + p * 7 + p / 1024 * 50); }

/* CIFAR records; record i has class (i + salt) % 10 and pixel p the value of cifar_pixel(i, p). */
static inline clef__blob cifar_file(size_t records, unsigned salt) {
    clef__blob blob = {clef__calloc(records ? records : 1, CLEF__CIFAR_RECORD), records * CLEF__CIFAR_RECORD};
    for (size_t i = 0; i < records; i++) {
        uint8_t *r = blob.bytes + i * CLEF__CIFAR_RECORD;
        r[0] = (uint8_t)((i + salt) % 10);
        for (size_t p = 0; p < CLEF__CIFAR_PIXELS; p++) r[1 + p] = cifar_pixel(i, p);
    }
    return blob;
}

/* One gzip member of stored blocks (RFC 1951, 1952): no compressor is needed. */
static inline clef__blob gzip_stored(const clef__blob *from) {
    size_t blocks = from->size / 65535 + 1, at = 10;
    clef__blob to = {clef__calloc(18 + blocks * 5 + from->size, 1), 18 + blocks * 5 + from->size};
    memcpy(to.bytes, "\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
    for (size_t b = 0; b < blocks; b++) {
        size_t n = b + 1 < blocks ? 65535 : from->size - b * 65535;
        to.bytes[at] = b + 1 == blocks;
        to.bytes[at + 1] = (uint8_t)n, to.bytes[at + 2] = (uint8_t)(n >> 8);
        to.bytes[at + 3] = (uint8_t)~n, to.bytes[at + 4] = (uint8_t)(~n >> 8);
        if (n) memcpy(to.bytes + at + 5, from->bytes + b * 65535, n);
        at += 5 + n;
    }
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < from->size; i++) {
        crc ^= from->bytes[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    for (int b = 0; b < 4; b++) {
        to.bytes[at + (size_t)b] = (uint8_t)(~crc >> (8 * b));
        to.bytes[at + 4 + (size_t)b] = (uint8_t)(from->size >> (8 * b));
    }
    return to;
}

/* Writes blob to dir/name and frees it. */
static inline void write_and_free(const char *dir, const char *name, clef__blob blob) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(blob.bytes, 1, blob.size, file) != blob.size || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
    clef__blob_free(&blob);
}

/* A new folder under $TMPDIR or /tmp. */
static inline char *new_folder(char path[256]) {
    const char *base = getenv("TMPDIR");
    snprintf(path, 256, "%s/clef-data-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(path)) {
        perror(path);
        exit(1);
    }
    return path;
}

static inline void remove_file(const char *dir, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}
#endif
