/* cache.c — programs on disk, and verdicts on drivers (probe.c).

   An entry is a header (magic, kind, length, key, checksum) and its payload; the checksum covers every byte but
   itself.  The driver never sees a byte that was not checked: drivers crash on damaged binaries.  A checksum stops
   accidents; attackers are stopped by ownership: the directory is ours and nobody else's to write, entries are
   plain files of ours, opened without following links and looked at after opening.  Entries appear by rename,
   whole or not at all.  Any trouble means working without the cache, never an error. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime/runtime_internal.h"
#include "runtime/sha256.h"
#include "runtime/temporary.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME = 64 + 4 + 1, DIGEST_AT = 56, TRIES = 100 };
static const char format_name[] = "clef-cache 1";
static const char magic[8] = {'C', 'L', 'E', 'F', 'K', 'C', '1', '\n'};
static const uint64_t largest_entry = 256u << 20, default_limit = 256u << 20;

/* ---- entries as bytes ---- */
static void put_number(unsigned char *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get_number(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static void checksum(const unsigned char *header, const void *payload, size_t size, uint8_t digest[32]) {
    clef__sha256 s;
    clef__sha256_begin(&s);
    clef__sha256_add(&s, header, DIGEST_AT);
    clef__sha256_add(&s, payload, size);
    clef__sha256_end(&s, digest);
}

/* magic 8 · kind 4 · zero 4 · payload length 8 · key 32 · SHA-256 of the rest 32 */
void clef__entry_header(unsigned char header[CLEF__ENTRY_HEADER], clef__entry_kind kind, const uint8_t key[32], const void *payload,
                        size_t size) {
    memcpy(header, magic, 8);
    put_number(header + 8, (uint64_t)kind, 4);
    put_number(header + 12, 0, 4);
    put_number(header + 16, size, 8);
    memcpy(header + 24, key, 32);
    checksum(header, payload, size, header + DIGEST_AT);
}

bool clef__entry_check(const unsigned char *bytes, size_t n, const uint8_t key[32], clef__entry *entry) {
    uint8_t digest[32];
    if (n < CLEF__ENTRY_HEADER || memcmp(bytes, magic, 8) != 0) return false;
    uint64_t kind = get_number(bytes + 8, 4), size = get_number(bytes + 16, 8);
    if (kind < CLEF__ENTRY_BINARY || kind > CLEF__ENTRY_PART) return false;
    if (get_number(bytes + 12, 4) != 0 || size != n - CLEF__ENTRY_HEADER) return false;
    if (key && memcmp(bytes + 24, key, 32) != 0) return false;
    checksum(bytes, bytes + CLEF__ENTRY_HEADER, (size_t)size, digest);
    if (memcmp(digest, bytes + DIGEST_AT, 32) != 0) return false;
    *entry = (clef__entry){(clef__entry_kind)kind, bytes + CLEF__ENTRY_HEADER, (size_t)size};
    return true;
}

void clef__cache_key(const clef_device_info *info, const char *source, const char *options, uint8_t key[32]) {
    clef__sha256 s;
    clef__sha256_begin(&s);
    const char *const fields[] = {format_name, clef_version(), source,        options,     info->platform, info->platform_version,
                                  info->name,  info->vendor,   info->version, info->driver};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) clef__sha256_add_text(&s, fields[i]);
    clef__sha256_end(&s, key);
}

static void entry_name(const uint8_t key[32], char name[NAME]) {
    for (int i = 0; i < 32; i++) snprintf(name + 2 * i, 3, "%02x", key[i]);
    memcpy(name + 64, ".bin", 5);
}

static bool is_entry_name(const char *name) {
    return strlen(name) == 68 && strspn(name, "0123456789abcdef") == 64 && strcmp(name + 64, ".bin") == 0;
}

static bool is_temporary_name(const char *name) { return strncmp(name, ".new-", 5) == 0; }

/* ---- the directory ---- */
/* What the name of the cache directory is; false when there is none. */
static bool directory_name(const char *dir, char *path, size_t size) {
    const char *home = clef__env("HOME"), *xdg = clef__env("XDG_CACHE_HOME");
    int n = 0;
    if (!dir) dir = clef__env("CLEF_CACHE_DIR");
    if (dir) n = snprintf(path, size, "%s", dir);
    else if (xdg && *xdg == '/') n = snprintf(path, size, "%s/clef", xdg);
    else if (home && *home == '/') n = snprintf(path, size, "%s/.cache/clef", home);
    return n > 0 && (size_t)n < size;
}

static bool private_to_us(const struct stat *st) { return st->st_uid == geteuid() && (st->st_mode & (S_IWGRP | S_IWOTH)) == 0; }

/* Makes what is missing of the path; failures show when it is opened. */
static void make_directories(const char *path) {
    char part[sizeof((clef_cache_info *)0)->dir];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(part, 0700);
        *slash = '/';
    }
    mkdir(part, 0700);
}

/* A descriptor of the directory, or -1 with errno; EPERM: it is there but not ours alone. */
static int open_directory(const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return -1;
    if (fstat(fd, &st) == 0 && private_to_us(&st)) return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

static uint64_t size_limit(void) {
    const char *text = clef__env("CLEF_CACHE_MAX_MB");
    char *end = NULL;
    unsigned long long mb = text && *text ? strtoull(text, &end, 10) : 0;
    return end && *end == 0 && mb <= UINT64_MAX >> 20 ? (uint64_t)mb << 20 : default_limit;
}

static void drop_all_abandoned(int dir); /* temporaries that killed processes left there */

void clef__cache_open(clef_context *ctx, const char *dir) {
    const char *mode = clef__env("CLEF_CACHE");
    char path[sizeof((clef_cache_info *)0)->dir];
    pthread_mutex_init(&ctx->cache.lock, NULL);
    ctx->cache.dir = -1;
    ctx->cache.limit = size_limit();
    if ((mode && strcmp(mode, "0") == 0) || !directory_name(dir, path, sizeof path)) return;
    make_directories(path);
    ctx->cache.dir = open_directory(path);
    if (ctx->cache.dir < 0)
        clef__log_line(ctx, CLEF_LOG_WARNING, "cache: %s is not used: %s", path,
                       errno == EPERM ? "it must belong to this user and be writable by nobody else" : strerror(errno));
    else drop_all_abandoned(ctx->cache.dir);
}

void clef__cache_close(clef_context *ctx) {
    if (ctx->cache.dir >= 0) close(ctx->cache.dir);
    pthread_mutex_destroy(&ctx->cache.lock);
}

clef__saving clef__cache_saving(const clef__device *device) {
    const char *mode = clef__env("CLEF_CACHE");
    if (device->ctx->cache.dir < 0) return CLEF__SAVE_NOTHING;
    if (mode && strcmp(mode, "force") == 0) return CLEF__SAVE_ALL;
    return clef__driver_of(&device->info).caches ? CLEF__SAVE_FAILURES : CLEF__SAVE_ALL;
}

/* ---- reading ---- */
static bool read_all(int fd, unsigned char *bytes, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t got = read(fd, bytes + at, n - at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += (size_t)got;
    }
    return true;
}

/* O_NONBLOCK keeps a pipe of that name from holding us up. */
clef__reading clef__cache_read(int dir, const char *name, uint64_t largest, unsigned char **bytes, size_t *size) {
    struct stat st;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    *bytes = NULL;
    if (fd < 0) return errno == ELOOP ? CLEF__REFUSED : CLEF__ABSENT;
    bool good = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && private_to_us(&st) && (uint64_t)st.st_size <= largest &&
                (*bytes = clef__alloc((size_t)st.st_size)) != NULL && read_all(fd, *bytes, (size_t)st.st_size);
    close(fd);
    *size = (size_t)st.st_size;
    if (good) return CLEF__WHOLE;
    clef__free(*bytes);
    *bytes = NULL;
    return CLEF__REFUSED;
}

/* The same for an entry, checked. */
static clef__reading read_entry(int dir, const char *name, const uint8_t *key, unsigned char **bytes, clef__entry *entry) {
    size_t size;
    clef__reading result = clef__cache_read(dir, name, largest_entry, bytes, &size);
    if (result != CLEF__WHOLE || clef__entry_check(*bytes, size, key, entry)) return result;
    clef__free(*bytes);
    *bytes = NULL;
    return CLEF__REFUSED;
}

unsigned char *clef__cache_load(clef_context *ctx, const uint8_t key[32], clef__entry *entry) {
    char name[NAME];
    unsigned char *bytes;
    if (ctx->cache.dir < 0) return NULL;
    entry_name(key, name);
    clef__reading result = read_entry(ctx->cache.dir, name, key, &bytes, entry);
    if (result == CLEF__WHOLE) utimensat(ctx->cache.dir, name, NULL, AT_SYMLINK_NOFOLLOW); /* used just now: thrown out last */
    if (result != CLEF__REFUSED) return bytes;
    clef__log_line(ctx, CLEF_LOG_WARNING, "cache: %s is damaged or not ours; it is removed and made anew", name);
    clef__cache_evict(ctx, key);
    return NULL;
}

void clef__cache_evict(clef_context *ctx, const uint8_t key[32]) {
    char name[NAME];
    entry_name(key, name);
    if (ctx->cache.dir >= 0) unlinkat(ctx->cache.dir, name, 0);
}

/* ---- listing ---- */
typedef struct file {
    char name[NAME];
    uint64_t bytes;
    struct timespec used;
} file;

/* Calls visit for every entry and temporary of the directory. */
static bool each_file(int dir, void (*visit)(void *user, int dir, const char *name, const struct stat *st), void *user) {
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    if (!list) {
        if (copy >= 0) close(copy);
        return false;
    }
    for (struct dirent *d; (d = readdir(list));) {
        struct stat st;
        if (!is_entry_name(d->d_name) && !is_temporary_name(d->d_name)) continue;
        if (fstatat(dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) visit(user, dir, d->d_name, &st);
    }
    closedir(list);
    return true;
}

typedef struct listing {
    file *files;
    size_t n, room;
    uint64_t bytes;
} listing;

static void drop_abandoned(void *user, int dir, const char *name, const struct stat *st) {
    (void)user, (void)st;
    if (is_temporary_name(name)) clef__temporary_drop_abandoned(dir, name);
}

static void drop_all_abandoned(int dir) { each_file(dir, drop_abandoned, NULL); }

static void note_file(void *user, int dir, const char *name, const struct stat *st) {
    listing *l = user;
    (void)dir;
    if (is_temporary_name(name)) return;
    l->bytes += (uint64_t)st->st_size;
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 256;
        file *files = clef__realloc(l->files, room * sizeof *files);
        if (!files) return;
        l->files = files;
        l->room = room;
    }
    file *f = &l->files[l->n++];
    memcpy(f->name, name, NAME);
    f->bytes = (uint64_t)st->st_size;
    f->used = st->st_mtim;
}

static int by_use(const void *a, const void *b) {
    const struct timespec *x = &((const file *)a)->used, *y = &((const file *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

/* Keeps the cache below its limit: when it is over, the longest unused go until three quarters are left. */
static void keep_small(clef__cache *cache, uint64_t added) {
    cache->bytes += added;
    if (cache->counted && cache->bytes <= cache->limit) return;
    listing l = {.n = 0};
    if (each_file(cache->dir, note_file, &l)) {
        cache->bytes = l.bytes;
        cache->counted = true;
    }
    if (cache->bytes > cache->limit && l.n > 0) qsort(l.files, l.n, sizeof *l.files, by_use);
    bool over = cache->bytes > cache->limit;
    for (size_t i = 0; over && i < l.n && cache->bytes > cache->limit / 4 * 3; i++)
        if (unlinkat(cache->dir, l.files[i].name, 0) == 0) cache->bytes -= l.files[i].bytes;
    clef__free(l.files);
}

/* ---- writing ---- */
static bool write_all(int fd, const void *data, size_t n) {
    const unsigned char *bytes = data;
    for (size_t at = 0; at < n;) {
        ssize_t put_bytes = write(fd, bytes + at, n - at);
        if (put_bytes < 0 && errno == EINTR) continue;
        if (put_bytes <= 0) return false;
        at += (size_t)put_bytes;
    }
    return true;
}

/* A new file, locked; -1 with errno. */
static int new_temporary(int dir, int mode, char name[64]) {
    static atomic_uint count;
    int fd = -1;
    for (int tries = 0; tries < TRIES && (tries == 0 || (fd < 0 && errno == EEXIST)); tries++) {
        snprintf(name, 64, ".new-%ld-%u-%llx", (long)getpid(), atomic_fetch_add(&count, 1),
                 (unsigned long long)(clef__now() * 1e9));
        fd = clef__temporary_create(dir, name, mode);
    }
    return fd;
}

bool clef__cache_write(int dir, const char *name, int mode, bool sure, const void *head, size_t head_size, const void *body,
                       size_t body_size) {
    char temporary[64];
    int fd = new_temporary(dir, mode, temporary);
    if (fd < 0) return false;
    bool good = write_all(fd, head, head_size) && write_all(fd, body, body_size) && (!sure || fsync(fd) == 0);
    good = good && renameat(dir, temporary, dir, name) == 0; /* before the lock goes */
    int error = errno;
    if (!good) unlinkat(dir, temporary, 0);
    close(fd);
    errno = error;
    return good;
}

void clef__cache_store(clef_context *ctx, const uint8_t key[32], clef__entry_kind kind, const void *payload, size_t size) {
    unsigned char header[CLEF__ENTRY_HEADER];
    char name[NAME];
    clef__cache *cache = &ctx->cache;
    uint64_t bytes = (uint64_t)size + CLEF__ENTRY_HEADER;
    if (cache->dir < 0 || bytes > largest_entry || bytes > cache->limit / 2) return;
    clef__entry_header(header, kind, key, payload, size);
    entry_name(key, name);
    bool sure = kind != CLEF__ENTRY_JOINED && kind != CLEF__ENTRY_PART; /* many, and what is torn is found out */
    bool good = clef__cache_write(cache->dir, name, 0600, sure, header, sizeof header, payload, size);
    int error = errno;
    pthread_mutex_lock(&cache->lock);
    bool news = !good && !cache->told;
    cache->told |= news;
    if (good) keep_small(cache, bytes);
    pthread_mutex_unlock(&cache->lock);
    if (news)
        clef__log_line(ctx, CLEF_LOG_WARNING,
                       "cache: an entry could not be written: %s; what is not stored is compiled anew next time", strerror(error));
}

/* ---- looking at it from outside ---- */
typedef struct inspection {
    clef_cache_info *info;
    bool verify;
    uint64_t removed, kept;
} inspection;

static void inspect_file(void *user, int dir, const char *name, const struct stat *st) {
    inspection *in = user;
    clef__entry entry = {0};
    unsigned char *bytes;
    uint8_t key[32];
    if (is_temporary_name(name)) return;
    in->info->entries++;
    in->info->bytes += (uint64_t)st->st_size;
    if (!in->verify) return;
    for (int i = 0; i < 32; i++) {
        unsigned byte = 0;
        sscanf(name + 2 * i, "%2x", &byte);
        key[i] = (uint8_t)byte;
    }
    if (read_entry(dir, name, key, &bytes, &entry) != CLEF__WHOLE) in->info->damaged++;
    else if (entry.kind == CLEF__ENTRY_FAILURE) in->info->negative++;
    clef__free(bytes);
}

static void remove_file(void *user, int dir, const char *name, const struct stat *st) {
    inspection *in = user;
    (void)st;
    if (unlinkat(dir, name, 0) != 0) in->kept++;
    else if (is_entry_name(name)) in->removed++;
}

/* A directory that is not there is an empty cache: *fd is -1 then. */
static clef_status enter(const char *dir, char *path, size_t size, int *fd) {
    *fd = -1;
    path[0] = 0;
    if (!directory_name(dir, path, size)) return CLEF_OK;
    *fd = open_directory(path);
    if (*fd >= 0 || errno == ENOENT) return CLEF_OK;
    return clef__fail(NULL, CLEF_IO, "cache: %s: %s", path,
                      errno == EPERM ? "it must belong to this user and be writable by nobody else" : strerror(errno));
}

clef_status clef_cache_inspect(const char *dir, bool verify, clef_cache_info *info) {
    int fd;
    if (!info) return clef__fail(NULL, CLEF_INVALID, "cache_inspect: no place for the result");
    *info = (clef_cache_info){.entries = 0};
    clef_status status = enter(dir, info->dir, sizeof info->dir, &fd);
    if (fd < 0) return status;
    inspection in = {.info = info, .verify = verify};
    if (!each_file(fd, inspect_file, &in)) status = clef__fail(NULL, CLEF_IO, "cache: %s cannot be listed", info->dir);
    close(fd);
    return status;
}

clef_status clef_cache_clear(const char *dir, uint64_t *removed) {
    char path[sizeof((clef_cache_info *)0)->dir];
    int fd;
    clef_status status = enter(dir, path, sizeof path, &fd);
    inspection in = {.removed = 0};
    if (fd >= 0) {
        if (!each_file(fd, remove_file, &in)) status = clef__fail(NULL, CLEF_IO, "cache: %s cannot be listed", path);
        else if (in.kept) status = clef__fail(NULL, CLEF_IO, "cache: %llu files of %s stay", (unsigned long long)in.kept, path);
        close(fd);
    }
    if (removed) *removed = in.removed;
    return status;
}
