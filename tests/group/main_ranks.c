/* clef_run_ranks: devices of a list, ranks that fail in all ways, what hosts do together, and what a NULL group gives.
   ctest: labels=threads apart plain cost=10 */
#define _GNU_SOURCE 1 /* pthread_setattr_default_np */
#include "clef/transport.h"
#include "expect.h"
#include "support/plain.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static bool error_is(clef_status status, clef_status wanted, const char *part) {
    bool same = status == wanted && clef_error_status(NULL) == wanted && strstr(clef_error(NULL), part);
    if (!same) printf("status %s, line: %s\n", clef_status_name(status), clef_error(NULL));
    return same;
}

/* ---- a group of none ---- */
static void without_a_group(void) {
    char a[3] = "ab", b[3] = "";
    EXPECT(clef_group_rank(NULL) == 0 && clef_group_size(NULL) == 1, "rank and size");
    EXPECT(strcmp(clef_group_rank_name(NULL, 0), "rank 0") == 0, "%s", clef_group_rank_name(NULL, 0));
    EXPECT(strcmp(clef_group_rank_name(NULL, 1), "no rank of the group") == 0, "%s", clef_group_rank_name(NULL, 1));
    EXPECT(!clef_group_split(NULL, 0, 0) && clef_group_barrier(NULL) == CLEF_OK, "split and barrier");
    EXPECT(clef_group_broadcast_bytes(NULL, 0, a, 3) == CLEF_OK && strcmp(a, "ab") == 0, "broadcast_bytes");
    EXPECT(clef_group_gather_bytes(NULL, a, b, 3) == CLEF_OK && strcmp(b, "ab") == 0, "gather_bytes");
    EXPECT(clef_group_gather_bytes(NULL, NULL, NULL, 0) == CLEF_OK, "gather_bytes of none");
    EXPECT(error_is(clef_group_broadcast_bytes(NULL, 1, a, 3), CLEF_INVALID, "there is no rank 1 in a group of 1"), "root");
    EXPECT(error_is(clef_group_broadcast_bytes(NULL, 0, NULL, 3), CLEF_INVALID, "bytes is NULL, but there are 3"), "no bytes");
    EXPECT(error_is(clef_group_gather_bytes(NULL, NULL, b, 3), CLEF_INVALID, "own is NULL, but there are 3 bytes"), "no own");
    EXPECT(error_is(clef_group_gather_bytes(NULL, a, NULL, 3), CLEF_INVALID, "all is NULL, but there are 3 bytes"), "no all");
}

/* ---- what hosts do together ---- */
enum { MANY = 100003 };
static atomic_int arrived;

static void bytes(clef_group *g) {
    int rank = clef_group_rank(g), size = clef_group_size(g);
    unsigned char *own = malloc(MANY), *all = malloc((size_t)size * MANY);
    for (size_t n = 1; n <= MANY; n = n * 46 + 3) {
        memset(own, 10 + rank, n);
        EXPECT(clef_group_gather_bytes(g, own, all, n) == CLEF_OK, "gather_bytes of %zu", n);
        for (int r = 0; r < size; r++) EXPECT(all[r * n] == 10 + r && all[(r + 1) * n - 1] == 10 + r, "%zu bytes of rank %d", n, r);
        memset(all, 0, n * (size_t)size);
        memset(all + rank * n, 20 + rank, n); /* in place */
        EXPECT(clef_group_gather_bytes(g, all + rank * n, all, n) == CLEF_OK, "gather_bytes of %zu in place", n);
        for (int r = 0; r < size; r++) EXPECT(all[r * n] == 20 + r && all[(r + 1) * n - 1] == 20 + r, "%zu bytes of rank %d", n, r);
        for (int root = 0; root < size; root++) {
            memset(own, 30 + rank, n);
            EXPECT(clef_group_broadcast_bytes(g, root, own, n) == CLEF_OK, "broadcast_bytes of %zu", n);
            EXPECT(own[0] == 30 + root && own[n - 1] == 30 + root, "%zu bytes from rank %d", n, root);
        }
    }
    free(own);
    free(all);
}

static clef_status together(clef_context *ctx, clef_group *all, void *user) {
    int rank = clef_group_rank(all), size = *(int *)user;
    char usual[16];
    EXPECT(clef_group_size(all) == size, "%d ranks of %d", clef_group_size(all), size);
    snprintf(usual, sizeof usual, "rank %d (", rank);
    EXPECT(strstr(clef_group_rank_name(all, rank), usual), "%s", clef_group_rank_name(all, rank));
    for (int k = 1; k <= 5; k++) {
        atomic_fetch_add(&arrived, 1);
        EXPECT(clef_group_barrier(all) == CLEF_OK, "%s", clef_error(ctx));
        EXPECT(atomic_load(&arrived) >= k * size, "the barrier let go too early");
        EXPECT(clef_group_barrier(all) == CLEF_OK, "%s", clef_error(ctx));
    }
    bytes(all);
    clef_group *odd = clef_group_split(all, rank % 2, -rank), *some = clef_group_split(all, rank == 0 ? -1 : 4, 0);
    EXPECT(odd && clef_group_size(odd) == (size + 1 - rank % 2) / 2, "size of a half");
    EXPECT(clef_group_rank(odd) == clef_group_size(odd) - 1 - rank / 2, "keys are the order: %d is %d", rank, clef_group_rank(odd));
    EXPECT(strcmp(clef_group_rank_name(odd, clef_group_rank(odd)), clef_group_rank_name(all, rank)) == 0, "names of a half");
    EXPECT(rank == 0 ? !some : clef_group_size(some) == size - 1 && clef_group_rank(some) == rank - 1, "a group without rank 0");
    bytes(odd);
    bytes(some);
    bytes(all);
    return clef_error_status(ctx);
}

/* ---- failures ---- */
typedef enum trouble { NONE, ERROR, STATUS_ALONE, EARLY, OTHERS, BAD_ROOT, EXTRA } trouble;
typedef struct failing {
    trouble what;
    int rank;
    char told[4][1024]; /* what each rank's context said at the end */
} failing;

static clef_status fails(clef_context *ctx, clef_group *all, void *user) {
    failing *f = user;
    int rank = clef_group_rank(all);
    char byte[4] = {0};
    clef_group_barrier(all);
    if (rank == f->rank) switch (f->what) {
        case ERROR: clef_reshape(clef_zeros(ctx, CLEF_SHAPE(4), CLEF_F32), CLEF_SHAPE(3)); break;
        case STATUS_ALONE: return CLEF_IO;
        case EARLY: return CLEF_OK;
        case OTHERS: clef_group_broadcast_bytes(all, 0, byte, 4); break;
        case BAD_ROOT: clef_group_broadcast_bytes(all, 9, byte, 4); break;
        default: break;
        }
    clef_group_barrier(all);
    if (f->what == EXTRA && rank == f->rank) clef_group_barrier(all);
    snprintf(f->told[rank], sizeof f->told[rank], "%s", clef_error(ctx));
    return clef_error_status(ctx);
}

static void failure(trouble what, clef_status status, const char *line, const char *told) {
    static const char *const names[] = {"zero", "one", "two"};
    clef_ranks_options options = {.timeout = 60, .name = names};
    for (int rank = 0; rank < 3; rank++) {
        failing f = {.what = what, .rank = rank};
        char want[256], want_told[256];
        snprintf(want, sizeof want, line, names[rank]);
        snprintf(want_told, sizeof want_told, told, names[rank]);
        EXPECT(error_is(clef_run_ranks_with("0,0,0", &options, fails, &f), status, want), "trouble %d; wanted: %s", (int)what,
               want);
        for (int r = 0; r < 3; r++)
            EXPECT(r == rank || what == EXTRA || strstr(f.told[r], want_told), "trouble %d, rank %d was told: %s", (int)what, r,
                   f.told[r]);
    }
}

static void all_failures(void) {
    failing none = {.what = NONE};
    EXPECT(clef_run_ranks("0,0,0", fails, &none) == CLEF_OK, "%s", clef_error(NULL));
    failure(ERROR, CLEF_SHAPE, "%s: reshape: ", "barrier: %s: reshape: ");
    failure(STATUS_ALONE, CLEF_IO, "%s: its function returned CLEF_IO", "barrier: %s: its function returned CLEF_IO");
    failure(EARLY, CLEF_GROUP, "%s returned while ", "barrier: %s returned while ");
    failure(OTHERS, CLEF_GROUP, "%s does broadcast number 1 of u8 [4]", "%s does broadcast number 1 of u8 [4]");
    failure(BAD_ROOT, CLEF_INVALID, "%s: broadcast_bytes: there is no rank 9 in a group of 3",
            "barrier: %s: broadcast_bytes: there is no");
    failure(EXTRA, CLEF_GROUP, "returned while %s waited for barrier number 2", "");
}

/* A rank is told of the failure and goes on as if nothing was. */
static clef_status looks_away(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    if (clef_group_rank(all) == 1) return CLEF_OK;
    clef_group_barrier(all);
    clef_clear_error(ctx);
    return CLEF_OK;
}

static clef_status silent(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    return clef_group_rank(all) == 1 ? CLEF_OK : clef_group_barrier(all) == CLEF_OK ? clef_error_status(ctx) : CLEF_GROUP;
}

/* ---- lists of devices ---- */
static atomic_int ran;
static clef_status counts(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    atomic_fetch_add(&ran, 1 + 100 * clef_group_rank(all));
    return clef_context_device_count(ctx) == 1 ? CLEF_OK : CLEF_INTERNAL;
}

static void lists(void) {
    EXPECT(error_is(clef_run_ranks("0,nonesuch", counts, NULL), CLEF_INVALID, "ctx[1]: open: device \"nonesuch\""),
           "a device that is not there");
    EXPECT(error_is(clef_run_ranks("0,,0", counts, NULL), CLEF_INVALID, "run_ranks: the devices \"0,,0\" have an empty part"),
           "empty part");
    EXPECT(error_is(clef_run_ranks("", counts, NULL), CLEF_INVALID, "have an empty part"), "empty list");
    EXPECT(error_is(clef_run_ranks("0/999", counts, NULL), CLEF_INVALID, "make more than 256 ranks"), "too many");
    EXPECT(error_is(clef_run_ranks(NULL, counts, NULL), CLEF_INVALID, "run_ranks: devices is NULL"), "no devices");
    EXPECT(error_is(clef_run_ranks("0", NULL, NULL), CLEF_INVALID, "run_ranks: fn is NULL"), "no function");
    EXPECT(error_is(clef_run_rank(NULL, NULL, NULL, 0, counts, NULL), CLEF_INVALID, "run_rank: transport is NULL"), "no transport");
    EXPECT(atomic_load(&ran) == 0, "something ran all the same");
    EXPECT(clef_run_ranks(" 0 , 0,0", counts, NULL) == CLEF_OK && atomic_load(&ran) == 303, "%s", clef_error(NULL));
}

/* ---- no thread, no memory ---- */
/* Threads with a stack that no machine has. */
static void without_threads(void) {
#ifdef __GLIBC__
    pthread_attr_t usual, huge;
    pthread_getattr_default_np(&usual);
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, (size_t)1 << 50);
    if (pthread_setattr_default_np(&huge) == 0)
        EXPECT(error_is(clef_run_ranks("0,0", counts, NULL), CLEF_MEMORY, "): its thread did not start"), "no threads");
    pthread_setattr_default_np(&usual);
#endif
}

static atomic_long countdown;
static void *counted(void *user, size_t n) {
    (void)user;
    return atomic_fetch_sub(&countdown, 1) == 0 ? NULL : malloc(n);
}
static void *counted_again(void *user, void *p, size_t n) {
    (void)user;
    return atomic_fetch_sub(&countdown, 1) == 0 ? NULL : realloc(p, n);
}
static void counted_free(void *user, void *p) { (void)user, free(p); }

static clef_status little(clef_context *ctx, clef_group *all, void *user) {
    char own[4] = "abc", both[8];
    (void)user;
    clef_group *half = clef_group_split(all, 0, 0);
    clef_group_gather_bytes(half, own, both, 4);
    return clef_error_status(ctx);
}

/* Each allocation fails once.  What Clef can do without is no failure. */
static long without_memory(void) {
    long at = 0, refused = 0, left = -1;
    for (; left < 0 && at < 4000; at++) {
        atomic_store(&countdown, at);
        clef_status status = clef_run_ranks("0,0", little, NULL);
        left = atomic_load(&countdown);
        refused += status != CLEF_OK;
        EXPECT(status == CLEF_OK || *clef_error(NULL), "allocation %ld: a failure without a line", at);
    }
    EXPECT(at < 4000 && refused > 30, "%ld allocations, %ld failures", at, refused);
    return at;
}

int main(void) {
    clef_set_allocator(&(clef_allocator){counted, counted_again, counted_free, NULL});
    atomic_store(&countdown, 1L << 60);
    clef_context *ctx = clef_open(NULL);
    if (!ctx) return without_context();
    clef_close(ctx);
    without_a_group();
    for (int n = 2; n <= 4; n++) {
        atomic_store(&arrived, 0);
        EXPECT(clef_run_ranks(&"0,0,0,0"[8 - 2 * n], together, &n) == CLEF_OK, "%s", clef_error(NULL));
    }
    all_failures();
    EXPECT(error_is(clef_run_ranks("0,0", looks_away, NULL), CLEF_GROUP, "returned while rank 0"),
           "a failure that was looked away from");
    EXPECT(error_is(clef_run_ranks_with("0,0", &(clef_ranks_options){.timeout = -1}, silent, NULL), CLEF_GROUP, "returned while"),
           "no time-out");
    lists();
    without_threads();
    long allocations = without_memory();
    printf("ranks: %ld allocations, %d failures\n", allocations, atomic_load(&failures));
    return atomic_load(&failures) != 0;
}
