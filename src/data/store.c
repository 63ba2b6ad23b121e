/* store.c — the bytes of datasets, once for all contexts of a process that use the same ones, read only.

   Ranks that are threads open the same data, each for its context.  Files are known by what the system says of them, so that a file that was
   changed is another one; arrays of the program by their content. */
#include "data/data_internal.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct clef__stored {
    clef__stored *next;
    int users;   /* datasets, and those who wait for the bytes */
    bool making; /* by the first of them */
    clef__blob blob;
    char key[]; /* "": it is nobody else's */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t made = PTHREAD_COND_INITIALIZER;
static clef__stored *first;

static clef__stored *find(const char *key) {
    clef__stored *s = *key ? first : NULL;
    while (s && strcmp(s->key, key) != 0) s = s->next;
    return s;
}

static clef__stored *add(const char *key) {
    size_t length = strlen(key) + 1;
    clef__stored *s = clef__alloc(sizeof *s + length);
    if (!s) return NULL;
    *s = (clef__stored){.next = first, .users = 1, .making = true};
    memcpy(s->key, key, length);
    return first = s;
}

/* With the lock held. */
static void leave(clef__stored *s) {
    if (--s->users > 0) return;
    clef__stored **at = &first;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    clef__blob_free(&s->blob);
    clef__free(s);
}

/* With the lock held: one who made it may have failed, and then the next tries, for a line of its own. */
static clef__stored *join(const char *key, bool *mine) {
    clef__stored *s = find(key);
    *mine = !s;
    if (!s) return add(key);
    s->users++;
    while (s->making) pthread_cond_wait(&made, &lock);
    if (!s->blob.bytes) *mine = s->making = true;
    return s;
}

clef__stored *clef__store(const char *key, bool (*make)(void *user, clef__blob *blob), void *user) {
    bool mine;
    pthread_mutex_lock(&lock);
    clef__stored *s = join(key, &mine);
    pthread_mutex_unlock(&lock);
    if (!s || !mine) return s;
    clef__blob blob = {0};
    bool ok = make(user, &blob);
    pthread_mutex_lock(&lock);
    if (ok) s->blob = blob;
    s->making = false;
    pthread_cond_broadcast(&made);
    if (!ok) leave(s);
    pthread_mutex_unlock(&lock);
    return ok ? s : NULL;
}

void clef__store_leave(clef__stored *s) {
    if (!s) return;
    pthread_mutex_lock(&lock);
    leave(s);
    pthread_mutex_unlock(&lock);
}

const clef__blob *clef__stored_blob(const clef__stored *s) { return &s->blob; }

size_t clef__store_bytes(void) {
    size_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (const clef__stored *s = first; s; s = s->next) bytes += s->blob.size;
    pthread_mutex_unlock(&lock);
    return bytes;
}

/* ---- what identifies them ---- */

void clef__store_key(char *key, const char *what, const char *path) {
    struct stat facts;
    *key = 0;
    if (stat(path, &facts) != 0) return;
    snprintf(key, CLEF__STORE_KEY, "%s %" PRIuMAX ":%" PRIuMAX " %jd bytes %jd.%09ld %jd.%09ld", what, (uintmax_t)facts.st_dev,
             (uintmax_t)facts.st_ino, (intmax_t)facts.st_size, (intmax_t)facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec,
             (intmax_t)facts.st_ctim.tv_sec, facts.st_ctim.tv_nsec);
}

/* FNV-1a (Fowler, Noll, Vo), eight bytes at a time */
static uint64_t hash_bytes(const unsigned char *bytes, size_t n) {
    uint64_t hash = 0xcbf29ce484222325u ^ n, word = 0;
    for (; n >= sizeof word; n -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = (hash ^ word) * 0x100000001b3u;
        hash ^= hash >> 32;
    }
    for (; n; n--) hash = (hash ^ *bytes++) * 0x100000001b3u;
    return hash;
}

static bool copy(void *user, clef__blob *blob) {
    const clef__blob *from = user;
    *blob = (clef__blob){clef__alloc(from->size ? from->size : 1), from->size};
    if (blob->bytes && from->size) memcpy(blob->bytes, from->bytes, from->size);
    return blob->bytes != NULL;
}

clef__stored *clef__store_copy(const void *bytes, size_t n) {
    clef__blob from = {(uint8_t *)bytes, n};
    char key[CLEF__STORE_KEY];
    snprintf(key, sizeof key, "copy %zu bytes %016" PRIx64, n, hash_bytes(bytes, n));
    clef__stored *s = clef__store(key, copy, &from);
    if (!s || n == 0 || memcmp(s->blob.bytes, bytes, n) == 0) return s;
    clef__store_leave(s); /* equal hashes of other bytes */
    return clef__store("", copy, &from);
}
