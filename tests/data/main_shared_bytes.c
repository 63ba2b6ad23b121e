/* Bytes of datasets, shared by all contexts of a process: ranks that open the same file or the same arrays at once take the memory of one; others
   get their own; a file that changed is another one; what is shared lives as long as one of its datasets.
   ctest: labels=threads cost=5 plain */
#include "data/data_internal.h"
#include "group/ranks.h"
#include <pthread.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SHADOWED = true }; /* the memory of the process is also the sanitizer's */
#else
enum { SHADOWED = false };
#endif
enum { RANKS = 4, ITEMS = 12000, SIDE = 32, PIXELS = SIDE * SIDE, ROUNDS = 20 };
static const size_t images_bytes = 16 + (size_t)ITEMS * PIXELS, labels_bytes = 8 + (size_t)ITEMS;

static char folder[] = "/tmp/clef-shared-XXXXXX", images[64], labels[64];
static float *array;

static void put_big_endian(unsigned char *to, uint32_t x) {
    for (int i = 0; i < 4; i++) to[i] = (unsigned char)(x >> (24 - 8 * i));
}

/* add: to every pixel. */
static void write_files(int add) {
    unsigned char *bytes = calloc(images_bytes, 1);
    bytes[2] = 8, bytes[3] = 3;
    put_big_endian(bytes + 4, ITEMS), put_big_endian(bytes + 8, SIDE), put_big_endian(bytes + 12, SIDE);
    for (size_t i = 16; i < images_bytes; i++) bytes[i] = (unsigned char)(i * 31 + (size_t)add);
    FILE *f = fopen(images, "wb");
    fwrite(bytes, 1, images_bytes, f);
    fclose(f);
    memset(bytes, 0, 8);
    bytes[2] = 8, bytes[3] = 1;
    put_big_endian(bytes + 4, ITEMS);
    for (size_t i = 8; i < labels_bytes; i++) bytes[i] = (unsigned char)(i % 7);
    f = fopen(labels, "wb");
    fwrite(bytes, 1, labels_bytes, f);
    fclose(f);
    free(bytes);
}

static void check_items(clef_dataset *data, int add) {
    static _Thread_local float x[PIXELS];
    int64_t y;
    for (int64_t i = 0; i < ITEMS; i += 997) {
        if (clef_dataset_get(data, i, x, &y)) COMPLAIN("item %lld cannot be read", (long long)i);
        for (int p = 0; p < PIXELS; p += 101) {
            float want = (float)(unsigned char)((16 + (size_t)i * PIXELS + (size_t)p) * 31 + (size_t)add) * (1.0F / 255.0F);
            if (x[p] != want) COMPLAIN("item %lld: pixel %d is %g, not %g", (long long)i, p, (double)x[p], (double)want);
        }
        if (y != (i + 8) % 7) COMPLAIN("item %lld: class %lld", (long long)i, (long long)y);
    }
}

/* MiB of this process that are in memory. */
static double resident(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static double grown[3];

static clef_status open_all(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    bool speaks = clef_group_rank(all) == 0;
    clef_group_barrier(all);
    double before = resident();
    clef_group_barrier(all);
    clef_dataset *idx = clef_idx(ctx, images, labels);
    check_items(idx, 0);
    clef_group_barrier(all);
    double with_idx = resident();
    if (speaks && clef__store_bytes() != images_bytes + labels_bytes) COMPLAIN("files: %zu bytes", clef__store_bytes());
    clef_group_barrier(all);
    clef_dataset *arrays = clef_dataset_arrays(ctx, array, CLEF_SHAPE(PIXELS), NULL, ITEMS / 2);
    clef_group_barrier(all);
    double with_arrays = resident();
    size_t bytes = (size_t)ITEMS / 2 * PIXELS * sizeof(float);
    if (speaks && clef__store_bytes() != images_bytes + labels_bytes + bytes) COMPLAIN("arrays: %zu bytes", clef__store_bytes());
    float x[PIXELS];
    if (clef_dataset_get(arrays, 77, x, NULL) || memcmp(x, array + 77 * PIXELS, sizeof x)) COMPLAIN("item 77 has other numbers");
    if (speaks) grown[0] = with_idx - before, grown[1] = with_arrays - with_idx;
    clef_group_barrier(all);
    return clef_error_status(ctx);
}

/* Each rank changes an element of its own copy. */
static clef_status open_own(clef_context *ctx, clef_group *all, void *user) {
    float own[64];
    int rank = clef_group_rank(all);
    (void)user;
    for (int i = 0; i < 64; i++) own[i] = (float)i;
    own[5] = (float)rank;
    clef_dataset *data = clef_dataset_arrays(ctx, own, CLEF_SHAPE(8), NULL, 8);
    own[5] = -1; /* it has a copy */
    clef_group_barrier(all);
    float x[8];
    if (clef_dataset_get(data, 0, x, NULL) || x[5] != (float)rank) COMPLAIN("rank %d has %g", rank, (double)x[5]);
    if (clef__store_bytes() != RANKS * sizeof own) COMPLAIN("own arrays: %zu bytes", clef__store_bytes());
    clef_group_barrier(all);
    return clef_error_status(ctx);
}

/* The first context goes, the second still reads; a file that was written again is read again. */
static void check_lives(void) {
    clef_context *a = clef_open(NULL), *b = clef_open(NULL), *c = clef_open(NULL);
    clef_idx(a, images, labels);
    clef_dataset *second = clef_idx(b, images, labels);
    clef_close(a);
    check_items(second, 0);
    write_files(1);
    clef_dataset *other = clef_idx(c, images, labels);
    check_items(other, 1);
    check_items(second, 0);
    clef_close(b);
    check_items(other, 1);
    clef_close(c);
    if (clef__store_bytes()) COMPLAIN("%zu bytes are left", clef__store_bytes());
}

/* A damaged file: each of those who wait for it gets its own line, and the next one that is whole is read. */
static atomic_int refused;

static void *open_damaged(void *unused) {
    clef_context *ctx = clef_open(NULL);
    if (!clef_idx(ctx, images, labels) && strstr(clef_error(ctx), "where its header promises")) atomic_fetch_add(&refused, 1);
    clef_close(ctx);
    return unused;
}

static void check_damaged(void) {
    if (truncate(images, 1000)) COMPLAIN("the file cannot be cut");
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread[RANKS];
        for (int r = 0; r < RANKS; r++) pthread_create(&thread[r], NULL, open_damaged, NULL);
        for (int r = 0; r < RANKS; r++) pthread_join(thread[r], NULL);
    }
    if (atomic_load(&refused) != RANKS * ROUNDS) COMPLAIN("%d refusals", atomic_load(&refused));
    if (clef__store_bytes()) COMPLAIN("%zu bytes are left", clef__store_bytes());
}

int main(void) {
    int code;
    char devices[2 * MOST_RANKS];
    if (!have_device(&code)) return code;
    if (!mkdtemp(folder)) return 1;
    snprintf(images, sizeof images, "%s/images", folder);
    snprintf(labels, sizeof labels, "%s/labels", folder);
    array = malloc((size_t)ITEMS / 2 * PIXELS * sizeof *array);
    for (size_t i = 0; i < (size_t)ITEMS / 2 * PIXELS; i++) array[i] = (float)(i % 10007);
    write_files(0);
    if (clef_run_ranks(ranks_on_one(RANKS, devices), open_all, NULL)) COMPLAIN("%s", clef_error(NULL));
    if (clef__store_bytes()) COMPLAIN("%zu bytes are left", clef__store_bytes());
    double files = (double)images_bytes / (1 << 20), arrays = (double)ITEMS / 2 * PIXELS * sizeof(float) / (1 << 20);
    printf("%d ranks: files of %.1f MiB take %.1f, arrays of %.1f MiB %.1f\n", RANKS, files, grown[0], arrays, grown[1]);
    if (!SHADOWED && (grown[0] > 2 * files || grown[1] > 2 * arrays)) COMPLAIN("the memory of several");
    if (clef_run_ranks(ranks_on_one(RANKS, devices), open_own, NULL)) COMPLAIN("%s", clef_error(NULL));
    check_lives();
    check_damaged();
    unlink(images), unlink(labels), rmdir(folder);
    free(array);
    printf("%d complaints\n", atomic_load(&complaints));
    return atomic_load(&complaints) != 0;
}
