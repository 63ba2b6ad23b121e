/* io_files.h — for tests of files: scratch directories, whole files as bytes, hand-made safetensors. */
#ifndef CLEF_TEST_IO_FILES_H
#define CLEF_TEST_IO_FILES_H
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct io_bytes {
    uint8_t *data;
    size_t size;
} io_bytes;

/* A new directory under $TMPDIR or /tmp; its path stays valid. */
static inline const char *io_scratch(void) {
    static char path[512];
    const char *base = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/clef-io-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(path)) perror(path), exit(1);
    return path;
}

/* "<dir>/<name>" in one of 64 rotating buffers of the thread. */
static inline const char *io_path(const char *dir, const char *name) {
    static _Thread_local char buffers[64][1024];
    static _Thread_local int next;
    char *path = buffers[next++ % 64];
    snprintf(path, sizeof buffers[0], "%s/%s", dir, name);
    return path;
}

/* Entries of a directory but . and .. */
static inline int io_count(const char *dir) {
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (d) closedir(d);
    return n;
}

static inline void io_remove(const char *dir) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) unlink(io_path(dir, e->d_name));
    if (d) closedir(d);
    rmdir(dir);
}

/* The same with all that is below it. */
static inline void io_remove_tree(const char *dir) {
    char command[640];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command) != 0) fprintf(stderr, "%s stays\n", dir);
}

static inline io_bytes io_slurp(const char *path) {
    io_bytes b = {0};
    FILE *f = fopen(path, "rb");
    if (!f) return b;
    fseek(f, 0, SEEK_END);
    b.size = (size_t)ftell(f);
    rewind(f);
    b.data = malloc(b.size + 1);
    if (fread(b.data, 1, b.size, f) != b.size) perror(path), exit(1);
    fclose(f);
    return b;
}

static inline void io_spit(const char *path, const void *data, size_t size) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) perror(path), exit(1);
}

/* 8 bytes of length, the header's text, the data. */
static inline io_bytes io_safetensors(const char *header, const void *data, size_t data_size) {
    size_t length = strlen(header);
    io_bytes b = {malloc(8 + length + data_size + 1), 8 + length + data_size};
    for (int i = 0; i < 8; i++) b.data[i] = (uint8_t)((uint64_t)length >> (8 * i));
    memcpy(b.data + 8, header, length);
    if (data_size) memcpy(b.data + 8 + length, data, data_size);
    return b;
}

/* A .npy file of version 1.0 (or another) from the text of its dictionary. */
static inline io_bytes io_npy(int version, const char *header, const void *data, size_t data_size) {
    size_t length = strlen(header), start = version == 1 ? 10 : 12;
    io_bytes b = {malloc(start + length + data_size + 1), start + length + data_size};
    memcpy(b.data, "\x93NUMPY", 6);
    b.data[6] = (uint8_t)version;
    b.data[7] = 0;
    for (size_t i = 8; i < start; i++) b.data[i] = (uint8_t)(length >> (8 * (i - 8)));
    memcpy(b.data + start, header, length);
    if (data_size) memcpy(b.data + start + length, data, data_size);
    return b;
}

/* In plain programs: counts and tells failures. */
static int io_failures;
static inline int io_expect(int good, const char *what, const char *file, int line) {
    if (!good) {
        fprintf(stderr, "%s:%d: %s\n", file, line, what);
        io_failures++;
    }
    return good;
}
#define EXPECT(condition) io_expect((condition) != 0, #condition, __FILE__, __LINE__)
#endif
