/* The transport of MPI processes: random exchanges against what must arrive, large messages, wrong sizes, failures, early ends, time-outs,
   and memory that runs out.  Every case opens a link of its own and closes it with nothing left under way.
   ctest: labels=threads cost=20 ranks=1,2,3,4 */
#include "mpi/mpi_link.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int rank, size;
static int wrong;
static const char *current;

#define CHECK(that, ...)                                                                         \
    do {                                                                                         \
        if (that) break;                                                                         \
        fprintf(stderr, "FAILED on rank %d, %s, line %d: %s: ", rank, current, __LINE__, #that); \
        fprintf(stderr, __VA_ARGS__);                                                            \
        fputc('\n', stderr);                                                                     \
        wrong++;                                                                                 \
    } while (0)

/* ---- memory that runs out: the linker brings calls of malloc and calloc here ---- */
static long spare = -1; /* allocations that still succeed; below 0: all */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t m);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t m);
static bool has_spare(void) { return spare < 0 || spare-- > 0; }
void *__wrap_malloc(size_t n) { return has_spare() ? __real_malloc(n) : NULL; }
void *__wrap_calloc(size_t n, size_t m) { return has_spare() ? __real_calloc(n, m) : NULL; }

/* ---- a case: a program for the rank's thread, and what must come of it ---- */
typedef struct test_case {
    const char *name;
    void (*program)(const clef_transport *t); /* calls t->fail at its end */
    size_t piece;                             /* 0: the usual */
    bool fails;                               /* does somebody tell of a failure? */
} test_case;

static void *run_program(void *of) {
    const clef_transport *t = ((void **)of)[1];
    ((const test_case *)((void **)of)[0])->program(t);
    return NULL;
}

static void run_case(const test_case *c) {
    char line[CLEF_TRANSPORT_LINE] = "", name[40];
    pthread_t thread;
    current = c->name;
    snprintf(name, sizeof name, "rank %d (here)", rank);
    clef__mpi_link *link = clef__mpi_open(MPI_COMM_WORLD, name, line);
    CHECK(link, "%s", line);
    if (!link) return;
    if (c->piece) link->piece = c->piece;
    void *what[] = {(void *)c, &link->transport};
    pthread_create(&thread, NULL, run_program, what);
    clef__mpi_serve(link);
    clef_status status = clef__mpi_finish(link, line);
    pthread_join(thread, NULL);
    CHECK((status != CLEF_OK) == c->fails, "%s: %s", clef_status_name(status), line);
    CHECK(!link->unusable, "MPI is left with something");
    clef__mpi_close(link);
}

static clef_status exchange(const clef_transport *t, const clef_parcel *out, int n_out, const clef_parcel *in, int n_in,
                            clef_transport_failure *why) {
    why->rank = -2;
    why->line[0] = 0;
    return t->exchange(t, out, n_out, in, n_in, 60, why);
}
static clef_status send_one(const clef_transport *t, int to, void *bytes, size_t n) {
    clef_transport_failure why;
    return exchange(t, &(clef_parcel){to, bytes, n}, 1, NULL, 0, &why);
}
static clef_status receive_one(const clef_transport *t, int from, void *bytes, size_t n, clef_transport_failure *why) {
    return exchange(t, NULL, 0, &(clef_parcel){from, bytes, n}, 1, why);
}

/* ---- random exchanges ---- */
static uint32_t mix(uint32_t a, uint32_t b) {
    uint32_t h = (a ^ (b * 0x9E3779B9u)) * 0x85EBCA6Bu;
    return (h ^ (h >> 13)) * 0xC2B2AE35u ^ h >> 7;
}

enum { ROUNDS = 60, MOST_EACH = 3 };

/* What goes from a to b in a round follows from a hash, which all know. */
static int parcels_between(uint32_t round, int a, int b) {
    return (int)(mix(mix(round, (uint32_t)a), (uint32_t)b + 77) % (MOST_EACH + 1));
}
static size_t parcel_size(uint32_t round, int a, int b, int k) {
    static const size_t sizes[] = {0, 1, 7, 999, 1000, 1001, 4095, 4096, 4097, 5096, 6096, 30001};
    return sizes[mix(mix(mix(round, (uint32_t)a), (uint32_t)b), (uint32_t)k) % (sizeof sizes / sizeof *sizes)];
}
static unsigned char byte_of(uint32_t round, int a, int b, int k, size_t i) {
    return (unsigned char)(mix(mix(mix(round * 31 + (uint32_t)k, (uint32_t)a), (uint32_t)b), (uint32_t)i) >> 5);
}

typedef struct parcels {
    clef_parcel of[4 * 4 * MOST_EACH];
    int n;
} parcels;

static void add(parcels *p, uint32_t round, int from, int to, bool filled) {
    for (int k = 0; k < parcels_between(round, from, to); k++) {
        size_t n = parcel_size(round, from, to, k);
        unsigned char *bytes = malloc(n + 1);
        for (size_t i = 0; i < n; i++) bytes[i] = filled ? byte_of(round, from, to, k, i) : 0;
        bytes[n] = 0xA5; /* an overrun would show */
        p->of[p->n++] = (clef_parcel){filled ? to : from, bytes, n};
    }
}

static void check_and_free(parcels *in, uint32_t round) {
    for (int i = 0; i < in->n;) {
        int from = in->of[i].rank;
        for (int k = 0; k < parcels_between(round, from, rank); k++, i++) {
            const unsigned char *bytes = in->of[i].bytes;
            size_t good = 0;
            while (good < in->of[i].n && bytes[good] == byte_of(round, from, rank, k, good)) good++;
            CHECK(good == in->of[i].n && bytes[good] == 0xA5, "round %u, from rank %d, parcel %d, byte %zu", round, from, k, good);
            free(in->of[i].bytes);
        }
    }
}

/* All at once; or all out before anything in, in any order; or each rank's in its turn. */
static void random_exchanges(const clef_transport *t) {
    clef_transport_failure why;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        parcels out = {.n = 0}, in = {.n = 0};
        for (int r = 0; r < size; r++) add(&out, round, rank, r, true);
        for (int r = 0; r < size; r++) add(&in, round, (r + (int)round) % size, rank, false);
        clef_status status;
        if (round % 3 == 0) status = exchange(t, out.of, out.n, in.of, in.n, &why);
        else {
            status = exchange(t, out.of, out.n, NULL, 0, &why);
            for (int i = 0; i < out.n; i++) memset(out.of[i].bytes, 0xEE, out.of[i].n); /* it is the caller's again */
            if (round % 3 == 1 && status == CLEF_OK) status = exchange(t, NULL, 0, in.of, in.n, &why);
            for (int i = 0; round % 3 == 2 && i < in.n && status == CLEF_OK; i++) status = exchange(t, NULL, 0, &in.of[i], 1, &why);
        }
        CHECK(status == CLEF_OK, "round %u: %s", round, why.line);
        check_and_free(&in, round);
        for (int i = 0; i < out.n; i++) free(out.of[i].bytes);
    }
    t->fail(t, NULL);
}

/* Nobody receives before all have sent, so that whoever waits for a receiver waits for ever. */
static void large_messages(const clef_transport *t) {
    size_t n = getenv("CLEF_TEST_HUGE") ? ((size_t)1 << 31) + 12345 : 3 * 1000 * 1000 + 1;
    clef_transport_failure why;
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    uint32_t *sent = malloc((n / 4 + 1) * 4), *got = calloc(n / 4 + 1, 4);
    for (size_t i = 0; i < n / 4 + 1; i++) sent[i] = (uint32_t)(i * 2654435761u) ^ (uint32_t)rank;
    CHECK(send_one(t, to, sent, n) == CLEF_OK, "send");
    memset(sent, 0, n);
    CHECK(receive_one(t, from, got, n, &why) == CLEF_OK, "%s", why.line);
    size_t good = 0;
    while (good < n / 4 && got[good] == ((uint32_t)(good * 2654435761u) ^ (uint32_t)from)) good++;
    CHECK(good == n / 4, "word %zu of %zu", good, n / 4);
    free(sent);
    free(got);
    t->fail(t, NULL);
}

/* Sent, never received: the end waits for nobody's exchange. */
static void unreceived(const clef_transport *t) {
    size_t n = 500000;
    char *bytes = calloc(n, 1);
    for (int r = 0; r < size; r++) {
        CHECK(send_one(t, r, bytes, n) == CLEF_OK, "send");
        CHECK(send_one(t, r, bytes, 100) == CLEF_OK, "send");
    }
    free(bytes);
    t->fail(t, NULL);
}

/* ---- failures ---- */
/* What all give who wait for what does not come, now and later. */
static void expect_failure(const clef_transport *t, int from, int cause, const char *said) {
    clef_transport_failure why, again;
    char bytes[8];
    clef_status status = receive_one(t, from, bytes, sizeof bytes, &why);
    CHECK(status == CLEF_GROUP && why.rank == cause && strcmp(why.line, said) == 0,
          "%s, rank %d, \"%s\" instead of rank %d, \"%s\"", clef_status_name(status), why.rank, why.line, cause, said);
    status = exchange(t, NULL, 0, NULL, 0, &again);
    CHECK(status == CLEF_GROUP && again.rank == why.rank && strcmp(again.line, why.line) == 0, "%s \"%s\"",
          clef_status_name(status), again.line);
}

static int victim; /* who does wrong */
static size_t wanted, given;

/* The victim sends `given` bytes where the next rank wants `wanted`; the others wait for that one. */
static void wrong_size(const clef_transport *t) {
    if (size == 1) return t->fail(t, NULL);
    int reader = (victim + 1) % size;
    char *bytes = calloc(wanted + given + 1, 1), said[80];
    clef_transport_failure why;
    if (rank == victim) {
        CHECK(send_one(t, reader, bytes, given) == CLEF_OK, "send");
        expect_failure(t, reader, -1, "reader: wrong size");
    } else if (rank == reader) {
        bytes[wanted] = 42;
        clef_status status = receive_one(t, victim, bytes, wanted, &why);
        snprintf(said, sizeof said, "sent %zu bytes instead of %zu", given, wanted);
        CHECK(status == CLEF_GROUP && why.rank == victim && strcmp(why.line, said) == 0, "%s: rank %d %s", clef_status_name(status),
              why.rank, why.line);
        CHECK(bytes[wanted] == 42, "overrun");
        t->fail(t, "reader: wrong size");
    } else expect_failure(t, reader, -1, "reader: wrong size");
    free(bytes);
    if (rank != reader) t->fail(t, "told");
}

static void one_fails(const clef_transport *t) {
    if (rank == victim) return t->fail(t, "the victim's line");
    expect_failure(t, (rank + 1) % size, -1, "the victim's line");
    t->fail(t, "told");
}

/* It waits for another while a thread of its own fails. */
static void *fail_aside(void *of) {
    const clef_transport *t = of;
    struct timespec moment = {0, 20 * 1000 * 1000};
    nanosleep(&moment, NULL);
    t->fail(t, "the victim's line");
    return NULL;
}
static void fails_aside(const clef_transport *t) {
    pthread_t aside;
    if (rank == victim) pthread_create(&aside, NULL, fail_aside, (void *)t);
    expect_failure(t, (rank + 1) % size, -1, "the victim's line");
    if (rank == victim) pthread_join(aside, NULL);
    else t->fail(t, "told");
}

/* What was sent before still arrives; then those who wait are told. */
static void one_ends(const clef_transport *t) {
    clef_transport_failure why;
    char bytes[6000] = "";
    if (size == 1) return t->fail(t, NULL);
    if (rank == victim) {
        memset(bytes, 7, sizeof bytes);
        for (int r = 0; r < size; r++)
            if (r != victim) CHECK(send_one(t, r, bytes, sizeof bytes) == CLEF_OK, "send");
        return t->fail(t, NULL);
    }
    clef_status status = receive_one(t, victim, bytes, sizeof bytes, &why);
    CHECK(status == CLEF_OK && bytes[0] == 7 && bytes[5999] == 7, "%s", why.line);
    /* Each sees it for itself: nobody tells of a failure before all have. */
    expect_failure(t, victim, victim, "returned");
    t->fail(t, NULL);
}

/* The victim does not come; the others do not wait for ever. */
static void time_out(const clef_transport *t) {
    clef_transport_failure why = {.rank = -2};
    char bytes[8];
    if (size == 1) return t->fail(t, NULL);
    if (rank == victim) expect_failure(t, (victim + 1) % size, -1, "it timed out");
    else {
        clef_status status = t->exchange(t, NULL, 0, &(clef_parcel){victim, bytes, sizeof bytes}, 1, 0.2, &why);
        bool first = why.rank == victim && !strcmp(why.line, "sent nothing for 0.2 s"),
             told = why.rank == -1 && !strcmp(why.line, "it timed out");
        CHECK(status == CLEF_GROUP && (first || told), "%s: rank %d %s", clef_status_name(status), why.rank, why.line);
    }
    t->fail(t, rank == victim ? "told" : "it timed out");
}

/* It works alone for longer than a silent one is waited for, and nothing fails: those who have ended know that it lives. */
static void works_on(const clef_transport *t) {
    struct timespec longer = {CLEF__MPI_SILENCE + 2, 0};
    if (rank == victim) nanosleep(&longer, NULL);
    t->fail(t, NULL);
}

/* ---- memory ---- */
static long lacking; /* which allocation of the exchange fails */
static void no_memory(const clef_transport *t) {
    clef_transport_failure why;
    char bytes[100] = "";
    if (rank != victim) {
        if (size > 1) expect_failure(t, victim, -1, "no memory");
        return t->fail(t, "told");
    }
    clef_parcel both[2] = {{victim, bytes, 50}, {victim, bytes + 50, 50}};
    spare = lacking;
    clef_status status = exchange(t, both, 2, NULL, 0, &why);
    spare = -1;
    CHECK(status == CLEF_MEMORY && why.rank == -1 && strstr(why.line, "no host memory"), "%s: %s", clef_status_name(status),
          why.line);
    t->fail(t, "no memory");
}

/* One lacks memory for its link: all are told, and nothing is left. */
static void no_link(void) {
    char line[CLEF_TRANSPORT_LINE] = "", said[80];
    current = "a link without memory";
    for (victim = 0; victim < size; victim++)
        for (long n = 0; n < 2; n++) {
            /* Only what Clef asks for by itself: what MPI needs is not counted, as it is not linked into this program. */
            if (rank == victim) spare = n;
            clef__mpi_link *link = clef__mpi_open(MPI_COMM_WORLD, "x", line);
            spare = -1;
            snprintf(said, sizeof said, "rank %d: no host memory for its link to the others", victim);
            CHECK(!link && strcmp(line, said) == 0, "%s", line);
        }
}

static void run_cases(void) {
    run_case(&(test_case){"random exchanges", random_exchanges, 1000, false});
    run_case(&(test_case){"random exchanges in large pieces", random_exchanges, 0, false});
    run_case(&(test_case){"large messages", large_messages, 0, false});
    run_case(&(test_case){"large messages in pieces", large_messages, 70001, false});
    run_case(&(test_case){"unreceived", unreceived, 0, true});
    run_case(&(test_case){"unreceived in pieces", unreceived, 70001, true});
    static const size_t sizes[][2] = {{10, 20},     {20, 10},     {0, 1},           {1, 0},
                                      {4096, 4097}, {4097, 4096}, {300000, 200000}, {200000, 9}};
    for (victim = 0; victim < size; victim++) {
        for (int s = 0; s < 8; s++) {
            given = sizes[s][0];
            wanted = sizes[s][1];
            run_case(&(test_case){"wrong size", wrong_size, 70001, size > 1});
        }
        run_case(&(test_case){"one fails", one_fails, 0, true});
        if (size > 1) run_case(&(test_case){"one fails in another thread", fails_aside, 0, true});
        run_case(&(test_case){"one ends", one_ends, 1000, false});
        run_case(&(test_case){"time-out", time_out, 0, size > 1});
        for (lacking = 0; lacking < 3; lacking++) run_case(&(test_case){"no memory", no_memory, 0, true});
    }
    no_link();
    victim = 0;
    run_case(&(test_case){"one works on alone", works_on, 0, false});
}

int main(void) {
    int level, all = 0;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    run_cases();
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks: %s\n", size, all ? "FAILED" : "as expected");
    MPI_Finalize();
    return all != 0;
}
