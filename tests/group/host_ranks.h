/* host_ranks.h — what tests of meetings share: ranks that are threads, without contexts or devices. */
#ifndef CLEF_TESTS_HOST_RANKS_H
#define CLEF_TESTS_HOST_RANKS_H
#include "expect.h"
#include "group/group.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 5 };

/* ---- ranks without contexts ---- */
typedef struct rank {
    clef_transport transport; /* the hub's, with shared memory or without */
    clef__rank of;
    clef_group all;
    int member[MOST];
    char name[MOST][CLEF__RANK_NAME];
    uint64_t seed;
    int trial, size;
    clef_status status; /* of the last meeting, and its line */
    char line[CLEF_TRANSPORT_LINE];
    pthread_t thread;
} rank;

typedef void rank_fn(rank *r);
static rank ranks[MOST];
static rank_fn *running;

static void *run_rank(void *r) {
    running(r);
    return NULL;
}

static inline clef__hub *open_ranks(int n, bool shares, double timeout, uint64_t seed, int trial) {
    clef__hub *hub = clef__hub_open(n);
    for (int i = 0; i < n; i++) {
        rank *r = &ranks[i];
        memset(r, 0, sizeof *r);
        r->transport = *clef__hub_rank(hub, i);
        if (!shares) r->transport.begin_sharing = NULL;
        r->of = (clef__rank){.transport = &r->transport, .timeout = timeout};
        r->all = (clef_group){.of = &r->of, .rank = i, .size = n, .member = r->member, .name = r->name, .weight = -1};
        for (int m = 0; m < n; m++) {
            r->member[m] = m;
            snprintf(r->name[m], CLEF__RANK_NAME, "rank %d (host)", m);
        }
        r->seed = seed;
        r->trial = trial;
        r->size = n;
    }
    return hub;
}

static inline void run_all(int n, rank_fn *fn) {
    running = fn;
    for (int i = 0; i < n; i++)
        if (pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]) != 0) perror("pthread_create"), exit(1);
    for (int i = 0; i < n; i++) pthread_join(ranks[i].thread, NULL);
}

static inline void with_ranks(int n, bool shares, double timeout, uint64_t seed, int trial, rank_fn *fn) {
    clef__hub *hub = open_ranks(n, shares, timeout, seed, trial);
    run_all(n, fn);
    clef__hub_close(hub);
}

static inline clef_status meet(rank *r, const clef_group *g, clef__meeting *m) {
    r->status = clef__meet(g, m, r->line);
    return r->status;
}

static inline void expect_on_all(int n, clef_status status, const char *line) {
    for (int i = 0; i < n; i++)
        EXPECT(ranks[i].status == status && strcmp(ranks[i].line, line) == 0, "rank %d: status %d, %s\n    wanted: %s", i,
               (int)ranks[i].status, ranks[i].line, line);
}

static inline void end_hanging(int signal) {
    (void)signal;
    static const char text[] = "FAILED: hangs\n";
    if (write(1, text, sizeof text - 1) < 0) _exit(2);
    _exit(1);
}

static inline void watch_for_hangs(unsigned seconds) {
    signal(SIGALRM, end_hanging);
    alarm(seconds);
}
#endif
