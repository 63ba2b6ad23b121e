/* tuning.c — tuning results: a file of lines (tuning_line.c) in the cache's directory, under the cache's rules.

   It is read once per context.  Whoever writes takes a lock, reads what is there by then, puts its own results to it and
   renames a new file into place: nobody loses what another has found.  Damaged lines are left out, lines of other schemas
   carried along.  Of two lines with the same key the later one counts, so files can be merged by `cat`. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime/arithmetic.h"
#include "runtime/runtime_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_TRIES = 500, LOCK_WAIT_MS = 10 };
static const char file_name[] = "tuning.jsonl", lock_name[] = "tuning.lock";
static const uint64_t largest_file = 4u << 20;

bool clef__tuning_on(const clef_context *ctx) { return !ctx->no_tuning; }

/* ---- entries ---- */
static uint64_t hash_text(uint64_t hash, const char *text) { return clef__hash(hash, text, strlen(text) + 1); }

static uint64_t hash_key(const clef__tuned *t) {
    const char *const parts[] = {t->platform, t->version, t->device, t->driver, t->profile,
                                 t->family,   t->kernel,  t->dtype,  t->bucket};
    uint64_t hash = 0xcbf29ce484222325u ^ (uint64_t)t->units;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) hash = hash_text(hash, parts[i]);
    return hash;
}

static bool same_choice(const clef__tuned *a, const clef__tuned *b) {
    return a->units == b->units && strcmp(a->bucket, b->bucket) == 0 && strcmp(a->family, b->family) == 0 &&
           strcmp(a->kernel, b->kernel) == 0 && strcmp(a->dtype, b->dtype) == 0 && strcmp(a->device, b->device) == 0 &&
           strcmp(a->driver, b->driver) == 0 && strcmp(a->profile, b->profile) == 0 && strcmp(a->platform, b->platform) == 0 &&
           strcmp(a->version, b->version) == 0;
}

static clef__tuning_entry *find_entry(const clef__tuning *tuning, const clef__tuning_entry *e) {
    for (int i = 0; i < tuning->n; i++) {
        clef__tuning_entry *other = &tuning->entry[i];
        if (other->hash != e->hash || !other->parts != !e->parts) continue;
        if (e->parts ? same_choice(&other->t, &e->t) : strcmp(other->line, e->line) == 0) return other;
    }
    return NULL;
}

static void free_entry(clef__tuning_entry *e) {
    clef__free(e->line);
    clef__free(e->parts);
}

void clef__tuning_free(clef__tuning *tuning) {
    for (int i = 0; i < tuning->n; i++) free_entry(&tuning->entry[i]);
    clef__free(tuning->entry);
    *tuning = (clef__tuning){0};
}

/* ---- merging ---- */
typedef enum understanding { NONSENSE, UNDERSTOOD, NO_MEMORY } understanding;

/* *e takes over the line, unless it is nonsense. */
static understanding understand(char *line, clef__tuning_entry *e) {
    *e = (clef__tuning_entry){.line = line, .parts = clef__strdup(line)};
    if (!e->parts) return NO_MEMORY;
    if (clef__tuned_parse(e->parts, &e->t)) {
        e->hash = hash_key(&e->t);
        return UNDERSTOOD;
    }
    clef__free(e->parts);
    e->parts = NULL;
    e->hash = hash_text(0, line);
    return clef__tuned_foreign(line) ? UNDERSTOOD : NONSENSE;
}

static bool put_entry(clef__tuning *to, clef__tuning_entry *e) {
    clef__tuning_entry *old = find_entry(to, e);
    if (old) {
        free_entry(old);
        *old = *e;
        return true;
    }
    if (!clef__grow(&to->entry, to->n, &to->capacity, sizeof *to->entry)) return false;
    to->entry[to->n++] = *e;
    return true;
}

static bool merge_line(clef__tuning *to, const char *text, size_t n, int *damaged) {
    clef__tuning_entry e;
    if (n == 0 || (n == 1 && *text == '\r')) return true;
    bool whole = n < CLEF__TUNING_LINE && !memchr(text, 0, n);
    char *line = whole ? clef__alloc(n + 1) : NULL;
    if (line) {
        memcpy(line, text, n);
        line[n] = 0;
    }
    understanding u = !whole ? NONSENSE : line ? understand(line, &e) : NO_MEMORY;
    if (u == UNDERSTOOD && put_entry(to, &e)) return true;
    if (u == UNDERSTOOD) clef__free(e.parts);
    clef__free(line);
    *damaged += u == NONSENSE;
    return u == NONSENSE;
}

bool clef__tuning_merge(clef__tuning *to, const char *text, size_t size, int *damaged) {
    *damaged = 0;
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t n = end ? (size_t)(end - text) - at : size - at;
        if (!merge_line(to, text + at, n, damaged)) return false;
        at += n + 1;
    }
    return true;
}

static bool merge_all(clef__tuning *to, const clef__tuning *from) {
    int damaged;
    for (int i = 0; i < from->n; i++)
        if (!merge_line(to, from->entry[i].line, strlen(from->entry[i].line), &damaged)) return false;
    return true;
}

/* ---- the file ---- */
/* CLEF_IO if there is one that is not to be read, CLEF_MEMORY; without error lines. */
static clef_status read_file(clef_context *ctx, clef__tuning *to) {
    unsigned char *bytes;
    size_t size;
    int damaged = 0;
    if (ctx->cache.dir < 0) return CLEF_OK;
    clef__reading reading = clef__cache_read(ctx->cache.dir, file_name, largest_file, &bytes, &size);
    if (reading == CLEF__REFUSED) {
        clef__log_line(ctx, CLEF_LOG_WARNING, "tuning: %s is not used: it must be a plain file of this user's, of at most %d MB",
                       file_name, (int)(largest_file >> 20));
        errno = EPERM;
    }
    if (reading != CLEF__WHOLE) return reading == CLEF__ABSENT ? CLEF_OK : CLEF_IO;
    bool good = clef__tuning_merge(to, (const char *)bytes, size, &damaged);
    clef__free(bytes);
    if (damaged) clef__log_line(ctx, CLEF_LOG_WARNING, "tuning: %d damaged lines of %s are left out", damaged, file_name);
    return good ? CLEF_OK : CLEF_MEMORY;
}

/* Closed by whoever closes the descriptor, and by the system for those who are killed. */
static int lock_file(int dir) {
    int fd = openat(dir, lock_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    for (int i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (i == LOCK_TRIES || (errno != EWOULDBLOCK && errno != EINTR)) {
            close(fd);
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOCK_WAIT_MS * 1000000L}, NULL);
    }
    return fd;
}

/* Lines of the first entries are dropped where all would be too much for a file that can be read again. */
static void put_lines(clef__text *to, const clef__tuning *tuning) {
    size_t bytes = 0;
    int first = tuning->n;
    while (first > 0 && (bytes += strlen(tuning->entry[first - 1].line) + 1) <= largest_file) first--;
    for (int i = first; i < tuning->n; i++) {
        clef__text_append(to, tuning->entry[i].line);
        clef__text_put(to, "\n", 1);
    }
}

static clef_status write_lines(int dir, const char *name, int mode, const clef__tuning *tuning) {
    clef__text text = {0};
    put_lines(&text, tuning);
    if (text.failed) return CLEF_MEMORY;
    bool written = clef__cache_write(dir, name, mode, true, "", 0, text.data ? text.data : "", text.length);
    clef__free(text.data);
    return written ? CLEF_OK : CLEF_IO;
}

static clef_status no_memory(clef_context *ctx) { return clef__fail(ctx, CLEF_MEMORY, "tuning: no host memory"); }

/* What is on disk by now, with `more`, back to the disk.  A file that cannot be read is not overwritten: it may be full of
   results. */
static clef_status save(clef_context *ctx, const clef__tuning *more) {
    clef__tuning all = {0};
    if (ctx->cache.dir < 0) return CLEF_OK;
    int lock = lock_file(ctx->cache.dir);
    clef_status status = lock < 0 ? CLEF_IO : read_file(ctx, &all);
    if (status == CLEF_OK && !merge_all(&all, more)) status = CLEF_MEMORY;
    if (status == CLEF_OK) status = write_lines(ctx->cache.dir, file_name, 0600, &all);
    if (status == CLEF_IO) clef__log_line(ctx, CLEF_LOG_WARNING, "tuning: results could not be written: %s", strerror(errno));
    if (lock >= 0) close(lock);
    clef__tuning_free(&all);
    return status == CLEF_MEMORY ? no_memory(ctx) : CLEF_OK;
}

/* ---- results ---- */
static void load_results(clef_context *ctx) {
    if (ctx->tuning_loaded) return;
    ctx->tuning_loaded = true;
    if (read_file(ctx, &ctx->tuning) == CLEF_MEMORY)
        clef__log_line(ctx, CLEF_LOG_WARNING, "tuning: no host memory for all results");
}

static clef__tuned on_device(const clef__device *device, const clef__tuned *key) {
    clef__tuned t = *key;
    const clef_device_info *info = &device->info;
    t.schema = CLEF__TUNING_SCHEMA;
    t.platform = info->platform;
    t.version = info->platform_version;
    t.device = info->name;
    t.driver = info->driver;
    t.profile = device->profile.name;
    t.units = device->planned.compute_units;
    return t;
}

const clef__tuned *clef__tuned_find(clef__device *device, const clef__tuned *key) {
    clef_context *ctx = device->ctx;
    if (ctx->no_tuning) return NULL;
    load_results(ctx);
    if (ctx->tuning.n == 0) return NULL;
    clef__tuning_entry wanted = {.parts = "", .t = on_device(device, key)};
    wanted.hash = hash_key(&wanted.t);
    const clef__tuning_entry *e = find_entry(&ctx->tuning, &wanted);
    return e ? &e->t : NULL;
}

clef_status clef__tuned_keep(clef__device *device, const clef__tuned *result, int n) {
    clef_context *ctx = device->ctx;
    clef__text text = {0};
    clef__tuning added = {0};
    int damaged;
    load_results(ctx);
    for (int i = 0; i < n; i++) {
        clef__tuned t = on_device(device, &result[i]);
        clef__tuned_put(&text, &t);
    }
    bool good = !text.failed && clef__tuning_merge(&added, text.data ? text.data : "", text.length, &damaged) &&
                merge_all(&ctx->tuning, &added);
    clef__free(text.data);
    clef_status status = good ? save(ctx, &added) : no_memory(ctx);
    clef__tuning_free(&added);
    return status;
}

/* ---- files of the user's ---- */
/* The directory of path, opened, and the name within it. */
static int open_parent(const char *path, const char **name) {
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    char *dir = !slash ? clef__strdup(".") : clef__asprintf("%.*s", slash == path ? 1 : (int)(slash - path), path);
    int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int error = dir ? errno : ENOMEM;
    clef__free(dir);
    errno = error;
    return fd;
}

static int count_results(const clef__tuning *tuning) {
    int n = 0;
    for (int i = 0; i < tuning->n; i++) n += tuning->entry[i].parts != NULL;
    return n;
}

clef_status clef__tuning_export(clef_context *ctx, const char *path, int *n) {
    clef__tuning all = {0};
    const char *name;
    load_results(ctx);
    bool good = merge_all(&all, &ctx->tuning) && read_file(ctx, &all) != CLEF_MEMORY; /* others may have found better ones */
    int dir = good ? open_parent(path, &name) : -1;
    clef_status status = !good ? CLEF_MEMORY : dir < 0 ? CLEF_IO : write_lines(dir, name, 0666, &all);
    if (status == CLEF_MEMORY) no_memory(ctx);
    if (status == CLEF_IO) clef__fail(ctx, CLEF_IO, "tuning: %.400s cannot be written: %s", path, strerror(errno));
    if (dir >= 0) close(dir);
    *n = count_results(&all);
    clef__tuning_free(&all);
    return status;
}

/* The whole file; NULL after clef__fail. */
static char *slurp(clef_context *ctx, const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        clef__fail(ctx, CLEF_IO, "tuning: %.400s cannot be read: %s", path, strerror(errno));
        return NULL;
    }
    char *bytes = clef__alloc(largest_file + 1);
    *size = bytes ? fread(bytes, 1, largest_file + 1, file) : 0;
    bool failed = ferror(file);
    fclose(file);
    if (bytes && !failed && *size <= largest_file) return bytes;
    if (!bytes) no_memory(ctx);
    else if (failed) clef__fail(ctx, CLEF_IO, "tuning: %.400s cannot be read", path);
    else clef__fail(ctx, CLEF_FORMAT, "tuning: %.400s is larger than %d MB", path, (int)(largest_file >> 20));
    clef__free(bytes);
    return NULL;
}

clef_status clef__tuning_import(clef_context *ctx, const char *path, int *n) {
    size_t size;
    int damaged = 0;
    clef__tuning added = {0};
    char *bytes = slurp(ctx, path, &size);
    *n = 0;
    if (!bytes) return clef_error_status(ctx);
    load_results(ctx);
    bool good = clef__tuning_merge(&added, bytes, size, &damaged);
    clef__free(bytes);
    *n = count_results(&added);
    clef_status status = CLEF_OK;
    if (good && *n == 0) status = clef__fail(ctx, CLEF_FORMAT, "tuning: %.400s holds no tuning results", path);
    else if (!good || !merge_all(&ctx->tuning, &added)) status = no_memory(ctx);
    if (status == CLEF_OK && damaged)
        clef__log_line(ctx, CLEF_LOG_WARNING, "tuning: %d damaged lines of %.400s are left out", damaged, path);
    if (status == CLEF_OK) status = save(ctx, &added);
    clef__tuning_free(&added);
    return status;
}
