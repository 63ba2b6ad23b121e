/* The data room under sanitizers, as a plain program: mutated files, failing allocations, loaders closed, moved
   and abandoned while their threads work, a fork in between.
   ctest: labels=threads */
#include "data_support.h"
#include "support/plain.h"
#include <stdatomic.h>
#include <sys/wait.h>

#define EXPECT(condition)                                                                 \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

/* ---- hostile bytes ---- */
static uint64_t state = 88172645463325252u;
static uint32_t draw(uint32_t below) { /* xorshift64 */
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 32) % below;
}

static void unpack_both(clef__blob blob) {
    clef__why why = {0};
    clef__idx_file idx;
    int64_t records;
    clef__blob copy = blob_of(blob.bytes, blob.size);
    if (clef__idx_unpack(&copy, &idx, &why)) EXPECT(copy.size == idx.header + idx.numel);
    clef__blob_free(&copy);
    if (clef__cifar_unpack(&blob, &records, &why)) EXPECT(blob.size == (size_t)records * CLEF__CIFAR_RECORD);
    clef__blob_free(&blob);
}

static void hostile_bytes(void) {
    clef__blob seed[4] = {idx_file(3, (uint32_t[]){3, 4, 5}, 0, 256), cifar_file(2, 0)};
    seed[2] = gzip_stored(&seed[0]);
    seed[3] = gzip_stored(&seed[1]);
    for (int round = 0; round < 2000; round++) {
        const clef__blob *from = &seed[draw(4)];
        clef__blob blob = blob_of(from->bytes, from->size);
        for (uint32_t n = draw(4); n > 0; n--) blob.bytes[draw(blob.size < 40 ? (uint32_t)blob.size : 40)] = (uint8_t)draw(256);
        if (draw(3) == 0) blob.size = draw((uint32_t)blob.size + 1);
        unpack_both(blob);
    }
    for (int i = 0; i < 4; i++) clef__blob_free(&seed[i]);
}

/* ---- failing allocations ---- */
static atomic_long left = -1; /* allocations until one fails; below 0: never */
static atomic_long alive;

static bool fails(void) { return atomic_load(&left) >= 0 && atomic_fetch_sub(&left, 1) == 0; }

static void *try_alloc(void *user, size_t n) {
    (void)user;
    void *p = fails() ? NULL : malloc(n);
    if (p) atomic_fetch_add(&alive, 1);
    return p;
}

static void *try_realloc(void *user, void *old, size_t n) {
    (void)user;
    void *p = fails() ? NULL : realloc(old, n);
    if (p && !old) atomic_fetch_add(&alive, 1);
    return p;
}

static void give_back(void *user, void *old) {
    (void)user;
    if (old) atomic_fetch_sub(&alive, 1);
    free(old);
}

/* Every allocation of reading a file fails in turn; nothing leaks. */
static void failing_reads(const char *path) {
    bool ok = false;
    long n = 0, before = atomic_load(&alive);
    for (; !ok; n++) {
        clef__why why = {0};
        clef__idx_file idx;
        clef__blob blob;
        atomic_store(&left, n);
        ok = clef__blob_read(path, &blob, &why) && clef__idx_unpack(&blob, &idx, &why);
        clef__blob_free(&blob);
        atomic_store(&left, -1);
        EXPECT(ok || why.status == CLEF_MEMORY);
        EXPECT(atomic_load(&alive) == before);
    }
    EXPECT(n > 1);
}

static clef_dataset *some_fields(clef_context *ctx) {
    static const int64_t words[160][2];
    static const float x[160][3];
    static const uint8_t label[160];
    const clef_field field[] = {{"words", CLEF_SHAPE(2), CLEF_I64, words, false, 0},
                                {NULL, CLEF_SHAPE(1, 3), CLEF_F32, x, false, 0},
                                {"label", CLEF_SCALAR, CLEF_U8, label, true, 5}};
    return clef_dataset_fields(ctx, field, 3, 160);
}

/* Every allocation from opening a dataset to its third batch fails in turn: an error and no crash, and afterwards
   the context still works. */
static void failing_loaders(clef_context *ctx, bool fields) {
    const clef_loader_options o = {.batch = 50, .shuffle = true, .workers = 2, .augment = {.rotation = 5}};
    bool unharmed = false;
    for (long n = 0; !unharmed; n++) {
        clef_batch b;
        int got = 0;
        atomic_store(&left, n);
        clef_loader *loader = clef_loader_open(fields ? some_fields(ctx) : clef_digits(ctx, CLEF_TEST), &o);
        while (got < 3 && clef_next(loader, &b)) got++;
        unharmed = atomic_exchange(&left, -1) >= 0;
        EXPECT(got == 3 || clef_error_status(ctx) == CLEF_MEMORY);
        EXPECT(n < 10000);
        clef_clear_error(ctx);
        clef_loader_close(loader);
    }
}

/* ---- loaders ---- */
typedef struct source {
    int64_t fails_at;
} source;

static bool fetch(void *user, int64_t i, float *x, int64_t *y) {
    const source *s = user;
    for (int p = 0; p < 12; p++) x[p] = (float)(i + p);
    *y = i % 7;
    return i != s->fails_at;
}

static clef_loader *open_one(clef_context *ctx, source *s, int round) {
    const clef_loader_options o = {.batch = 1 + round % 9,
                                   .shuffle = round % 2,
                                   .workers = 1 + round % 4,
                                   .prefetch = 1 + round % 3,
                                   .seed = (uint64_t)round,
                                   .augment = {.shift = round % 3, .flip = true, .rotation = round % 5}};
    clef_dataset *data = round % 3 ? clef_digits(ctx, round % 2 ? CLEF_TEST : CLEF_TRAIN)
                                   : clef_dataset_callback(ctx, CLEF_SHAPE(3, 4), 60, 7, fetch, s);
    clef_loader *loader = clef_loader_open(data, &o);
    EXPECT(loader);
    return loader;
}

static void take_some(clef_context *ctx, clef_loader *loader, int n) {
    clef_batch b;
    for (int i = 0; i < n; i++)
        if (clef_next(loader, &b)) {
            int64_t y[16];
            EXPECT(b.size <= 16 && clef_read(b.y, y, (size_t)b.size * sizeof *y) == CLEF_OK);
        }
    clef_clear_error(ctx);
}

static void abandoned_loaders(clef_context *ctx) {
    static source good = {-1}, bad = {31}; /* some loaders outlive this call */
    for (int round = 0; round < 40; round++) {
        clef_loader *loader = open_one(ctx, round % 6 ? &good : &bad, round);
        take_some(ctx, loader, round % 13);
        clef_loader_state place = clef_loader_get(loader);
        if (round % 4 == 0) EXPECT(clef_loader_set(loader, place) == CLEF_OK);
        if (round % 4 == 1) clef_loader_set(loader, (clef_loader_state){.epoch = 3, .batch = 1});
        take_some(ctx, loader, round % 5);
        if (round % 3) clef_loader_close(loader); /* the rest: with the context, threads and all */
    }
}

/* The child has no threads: nothing to wait for, nothing to join. */
static void forked_child(clef_context *ctx) {
    static source good = {-1};
    clef_loader *loader = open_one(ctx, &good, 3);
    take_some(ctx, loader, 2);
    pid_t child = fork();
    if (child == 0) {
        clef_batch b;
        alarm(20);
        bool next = clef_next(loader, &b);
        clef_loader_close(loader);
        _exit(next ? 1 : 0);
    }
    int status = 1;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    take_some(ctx, loader, 2);
}

int main(void) {
    clef_set_allocator(&(clef_allocator){try_alloc, try_realloc, give_back, NULL});
    char dir[256], path[300];
    clef__blob images = idx_file(3, (uint32_t[]){3, 4, 5}, 0, 256);
    snprintf(path, sizeof path, "%s/images", new_folder(dir));
#ifdef CLEF_HAVE_ZLIB
    write_and_free(dir, "images", gzip_stored(&images));
    clef__blob_free(&images);
#else
    write_and_free(dir, "images", images);
#endif
    hostile_bytes();
    failing_reads(path);
    remove_file(dir, "images");
    rmdir(dir);
    clef_close(clef_open(NULL)); /* what is kept for the process is there from now on */
    long before = atomic_load(&alive);
    clef_context *ctx = clef_open(NULL);
    if (!ctx) return without_context();
    failing_loaders(ctx, false);
    failing_loaders(ctx, true);
    abandoned_loaders(ctx);
    forked_child(ctx);
    clef_close(ctx);
    EXPECT(atomic_load(&alive) == before);
    return 0;
}
