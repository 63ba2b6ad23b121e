/* clef_run_mpi: the same program as by clef_run_ranks gives the same bits on every rank; and what comes of failures, early ends, and
   communicators that are not the whole.
   ctest: labels=threads cost=40 apart plain ranks=1,2,3 */
#include "clef.h"
#include "clef/mpi.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int rank, size, wrong;

#define CHECK(that, ...)                                                            \
    do {                                                                            \
        if (that) break;                                                            \
        fprintf(stderr, "FAILED on rank %d, line %d: %s: ", rank, __LINE__, #that); \
        fprintf(stderr, __VA_ARGS__);                                               \
        fputc('\n', stderr);                                                        \
        wrong++;                                                                    \
    } while (0)

/* ---- one program, twice ---- */
enum { MOST_RANKS = 4, ROOM = 1 << 18 };

/* What each rank has read, one behind the other. */
typedef struct results {
    size_t used;
    unsigned char bytes[ROOM];
} results;

static void keep(results *to, clef_tensor *y) {
    size_t n = (size_t)clef_numel(y) * clef_dtype_size(clef_tensor_dtype(y));
    if (!y || to->used + n > ROOM || clef_read(y, to->bytes + to->used, n) != CLEF_OK) return;
    to->used += n;
}

static float value(int seed, int r, int i) {
    return (float)((seed * 7919 + r * 104729 + (int64_t)i * 1299721) % 20011) / 977.0f - 10.0f;
}

static clef_tensor *make(clef_context *ctx, clef_dtype dtype, int seed, int r, clef_shape shape) {
    int n = (int)clef_shape_numel(shape);
    float *at = malloc((size_t)(n + 1) * sizeof *at);
    if (!at) return NULL;
    for (int i = 0; i < n; i++) at[i] = value(seed, r, i);
    clef_tensor *t = clef_to(clef_from_host(ctx, shape, CLEF_F32, at), dtype);
    free(at);
    return t;
}

static void reductions(clef_context *ctx, clef_group *all, results *to) {
    static const clef_dtype dtype[] = {CLEF_F32, CLEF_F16, CLEF_BF16, CLEF_I32, CLEF_I64};
    int r = clef_group_rank(all), n = clef_group_size(all);
    for (int d = 0; d < 5; d++)
        for (int reduction = CLEF_GROUP_SUM; reduction <= CLEF_GROUP_MAX; reduction++) {
            if (reduction == CLEF_GROUP_MEAN && dtype[d] >= CLEF_I32) continue;
            clef_tensor *x = make(ctx, dtype[d], d * 8 + reduction, r, CLEF_SHAPE(3, 5 * n));
            keep(to, clef_all_reduce(x, all, (clef_group_reduction)reduction));
            keep(to, clef_reduce_scatter(x, all, 1, (clef_group_reduction)reduction));
        }
}

static void movements(clef_context *ctx, clef_group *all, results *to) {
    int r = clef_group_rank(all), n = clef_group_size(all);
    clef_tensor *x = make(ctx, CLEF_F32, 50, r, CLEF_SHAPE(2 * n, 3));
    keep(to, clef_all_gather(x, all, 1));
    keep(to, clef_all_to_all(x, all, 0));
    keep(to, clef_broadcast(x, all, n - 1));
    if (n > 1) clef_send(x, all, (r + 1) % n);
    if (n > 1) keep(to, clef_recv(ctx, all, (r + n - 1) % n, CLEF_SHAPE(2 * n, 3), CLEF_F32));
    /* Large enough for messages in several parts. */
    keep(to, clef_sum(clef_all_reduce(make(ctx, CLEF_F32, 51, r, CLEF_SHAPE(30000)), all, CLEF_GROUP_SUM), (int[]){0}, 1, false));
    clef_group *half = clef_group_split(all, r % 2, -r);
    keep(to, clef_all_reduce(x, half, CLEF_GROUP_MEAN));
}

static clef_status program(clef_context *ctx, clef_group *all, void *user) {
    results *to = (results *)user + clef_group_rank(all);
    reductions(ctx, all, to);
    movements(ctx, all, to);
    clef_group_barrier(all);
    return clef_error_status(ctx);
}

static void check_same_bits(void) {
    results *by_mpi = calloc(MOST_RANKS, sizeof *by_mpi), *by_threads = calloc(MOST_RANKS, sizeof *by_threads);
    clef_status status = clef_run_mpi_with(&(clef_mpi_options){.devices = "0"}, program, by_mpi);
    CHECK(status == CLEF_OK, "%s", clef_error(NULL));
    status = clef_run_ranks(size == 1 ? "0" : size == 2 ? "0,0" : size == 3 ? "0,0,0" : "0,0,0,0", program, by_threads);
    CHECK(status == CLEF_OK, "%s", clef_error(NULL));
    const results *a = &by_mpi[rank], *b = &by_threads[rank];
    CHECK(a->used > 1000, "only %zu bytes", a->used);
    CHECK(a->used == b->used && memcmp(a->bytes, b->bytes, a->used) == 0, "other bits than by threads (%zu and %zu bytes)", a->used,
          b->used);
    free(by_mpi);
    free(by_threads);
}

/* ---- failures ---- */
static int victim;

/* The victim fails in its third round; the others wait for it. */
static clef_status fails(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    for (int i = 0; i < 5; i++) {
        if (i == 3 && clef_group_rank(all) == victim)
            clef_matmul(clef_ones(ctx, CLEF_SHAPE(2, 3), CLEF_F32), clef_ones(ctx, CLEF_SHAPE(2, 3), CLEF_F32));
        if (clef_error_status(ctx) != CLEF_OK) return clef_error_status(ctx);
        clef_item(clef_all_reduce(clef_full(ctx, CLEF_SHAPE(1), CLEF_F32, i), all, CLEF_GROUP_SUM));
    }
    return clef_error_status(ctx);
}

static void check_failures(void) {
    char name[40];
    for (victim = 0; victim < size; victim++) {
        snprintf(name, sizeof name, "worker %d", rank);
        clef_clear_error(NULL);
        clef_status status = clef_run_mpi_with(&(clef_mpi_options){.devices = "0", .name = name}, fails, NULL);
        snprintf(name, sizeof name, "worker %d: matmul: ", victim);
        CHECK(status == (rank == victim ? CLEF_SHAPE : CLEF_GROUP), "%s: %s", clef_status_name(status), clef_error(NULL));
        CHECK(strstr(clef_error(NULL), name), "%s", clef_error(NULL));
    }
}

/* The victim returns at once, without an error; what the others wait for never comes. */
static clef_status returns(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    if (clef_group_rank(all) == victim) return CLEF_OK;
    clef_item(clef_all_reduce(clef_full(ctx, CLEF_SHAPE(1), CLEF_F32, 1), all, CLEF_GROUP_SUM));
    return clef_error_status(ctx);
}

/* The victim stays away for longer than the others wait. */
static clef_status stays_away(clef_context *ctx, clef_group *all, void *user) {
    (void)ctx;
    (void)user;
    clef_group_barrier(all);
    if (clef_group_rank(all) == victim) {
        struct timespec longer = {4, 0};
        nanosleep(&longer, NULL);
    }
    return clef_group_barrier(all);
}

static void check_absence(void) {
    for (victim = 0; victim < size && size > 1; victim++) {
        char name[24];
        clef_clear_error(NULL);
        snprintf(name, sizeof name, "rank %d (", victim);
        clef_status status = clef_run_mpi_with(&(clef_mpi_options){.devices = "0"}, returns, NULL);
        CHECK(status == CLEF_GROUP && strstr(clef_error(NULL), "returned"), "%s: %s", clef_status_name(status), clef_error(NULL));
        CHECK(strstr(clef_error(NULL), name), "%s", clef_error(NULL));
        clef_clear_error(NULL);
        status = clef_run_mpi_with(&(clef_mpi_options){.devices = "0", .timeout = 2}, stays_away, NULL);
        CHECK(status == CLEF_GROUP && strstr(clef_error(NULL), "sent nothing for 2 s"), "%s: %s", clef_status_name(status),
              clef_error(NULL));
    }
}

/* Every rank meets the next one first, in a group of the two: the time-out ends it, with a line that tells who waits for whom. */
static clef_status goes_in_a_circle(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    int n = clef_group_size(all), r = clef_group_rank(all);
    clef_group *pair[MOST_RANKS];
    for (int i = 0; i < n; i++) pair[i] = clef_group_split(all, r == i || r == (i + 1) % n ? 0 : -1, 0);
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(4), CLEF_F32);
    clef_eval(clef_all_reduce(x, pair[r], CLEF_GROUP_SUM));
    clef_eval(clef_all_reduce(x, pair[(r + n - 1) % n], CLEF_GROUP_SUM));
    return clef_error_status(ctx);
}

static void check_circle(void) {
    clef_clear_error(NULL);
    clef_status status = clef_run_mpi_with(&(clef_mpi_options){.devices = "0", .timeout = 4}, goes_in_a_circle, NULL);
    CHECK(status == CLEF_GROUP && strstr(clef_error(NULL), "nobody can go on: "), "%s: %s", clef_status_name(status),
          clef_error(NULL));
    for (int r = 0; r < size; r++) {
        char part[64];
        snprintf(part, sizeof part, " of ranks %d,%d", r < (r + 1) % size ? r : 0, r < (r + 1) % size ? r + 1 : r);
        CHECK(strstr(clef_error(NULL), part), "no \"%s\" in %s", part, clef_error(NULL));
    }
}

/* The last rank sends what nobody asks for: the first is told at its end, the others end well. */
static clef_status sends_unasked(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(4), CLEF_F32);
    if (clef_group_rank(all) == clef_group_size(all) - 1) clef_send(x, all, 0);
    return clef_error_status(ctx);
}

static void check_unasked(void) {
    clef_clear_error(NULL);
    clef_status status = clef_run_mpi_with(&(clef_mpi_options){.devices = "0"}, sends_unasked, NULL);
    bool told = status == CLEF_GROUP && strstr(clef_error(NULL), "a message that it never received");
    CHECK(rank ? status == CLEF_OK : told, "%s: %s", clef_status_name(status), clef_error(NULL));
}

/* Nobody waits in vain for a rank that has no device. */
static clef_status never(clef_context *ctx, clef_group *all, void *user) {
    (void)ctx;
    (void)all;
    *(int *)user = 1;
    return CLEF_OK;
}

static void check_openings(void) {
    int ran = 0;
    clef_clear_error(NULL);
    clef_status status = clef_run_mpi_with(&(clef_mpi_options){.devices = rank == size - 1 ? "no such device" : "0"}, never, &ran);
    CHECK(status == (rank == size - 1 ? CLEF_INVALID : CLEF_GROUP), "%s: %s", clef_status_name(status), clef_error(NULL));
    CHECK(!ran && strstr(clef_error(NULL), "no such device"), "%s", clef_error(NULL));
    clef_clear_error(NULL);
    status = clef_run_mpi_with(&(clef_mpi_options){.devices = "0,,1"}, never, &ran);
    CHECK(status == CLEF_INVALID && !ran && strstr(clef_error(NULL), "empty part"), "%s", clef_error(NULL));
    clef_clear_error(NULL);
    CHECK(clef_run_mpi(NULL, NULL) == CLEF_INVALID && !strcmp(clef_error(NULL), "run_mpi: fn is NULL"), "%s", clef_error(NULL));
    clef_clear_error(NULL);
    CHECK(clef_run_mpi_with(&(clef_mpi_options){.comm = MPI_COMM_NULL}, never, &ran) == CLEF_STATE, "%s", clef_error(NULL));
}

/* ---- parts of the world, and of the machine ---- */
static clef_status count(clef_context *ctx, clef_group *all, void *user) {
    (void)ctx;
    int n = 1, each[MOST_RANKS] = {0};
    clef_status status = clef_group_gather_bytes(all, &n, each, sizeof n);
    for (int r = 0; r < clef_group_size(all); r++) *(int *)user += each[r];
    return status;
}

static void check_communicators(void) {
    MPI_Comm part;
    int counted = 0, expected;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &part);
    MPI_Comm_size(part, &expected);
    clef_status status = clef_run_mpi_with(&(clef_mpi_options){.comm = part, .devices = "0"}, count, &counted);
    CHECK(status == CLEF_OK && counted == expected, "%d of %d: %s", counted, expected, clef_error(NULL));
    MPI_Comm_free(&part);
    /* Each with what it is given by itself. */
    counted = 0;
    status = clef_run_mpi(count, &counted);
    CHECK(status == CLEF_OK && counted == size, "%d of %d: %s", counted, size, clef_error(NULL));
}

static void *from_another_thread(void *status) {
    *(clef_status *)status = clef_run_mpi(count, NULL);
    if (!strstr(clef_error(NULL), "only the thread that initialised MPI")) *(clef_status *)status = CLEF_OK;
    return NULL;
}

static void check_threads(void) {
    pthread_t thread;
    clef_status status = CLEF_OK;
    pthread_create(&thread, NULL, from_another_thread, &status);
    pthread_join(thread, NULL);
    CHECK(status == CLEF_STATE, "%s", clef_status_name(status));
}

int main(void) {
    int level, all = 0;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    clef_context *held = clef_open(NULL); /* what all runs have in common is compiled once */
    clef_device_events(held, 0, 0, true);
    if (clef_device_count() > 0) {
        check_same_bits();
        check_failures();
        check_absence();
        if (size > 1) check_unasked();
        if (size > 2) check_circle();
        check_openings();
        check_communicators();
        check_threads();
    }
    clef_close(held);
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s%d ranks: %s\n", clef_device_count() ? "" : "skipped: no device; ", size, all ? "FAILED" : "as expected");
    MPI_Finalize();
    return all ? 1 : clef_device_count() ? 0 : 77;
}
