/* delayed.h — a transport that takes as long as a network: in front of another one (clef_ranks_options.wrap).

       delayed_network net = {.latency = 50e-6, .bandwidth = 1e9};
       clef_run_ranks_with("0/2", &(clef_ranks_options){.wrap = delayed_wrap, .wrap_user = &net}, train, NULL);
       delayed_close(&net);

   Every rank has a link of `bandwidth` bytes a second each way.  A message occupies the sender's link for n / bandwidth, is on its way for
   `latency`, and occupies the receiver's link for n / bandwidth, as its bytes come in while others leave: with free links it is there
   after latency + n / bandwidth.  Ahead of each goes a small one that says when it left, by a clock that all ranks of a machine have in
   common.  The receiver sleeps until the message would be there.  Ranks do not see each other's memory. */
#ifndef DELAYED_H
#define DELAYED_H
#include "clef/transport.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { DELAYED_RANKS = 64 };

typedef struct delayed_link {
    clef_transport transport; /* first: what Clef is given */
    const clef_transport *of;
    struct delayed_network *net;
    double out_free, in_free; /* when the link will be */
} delayed_link;

typedef struct delayed_network {
    double latency, bandwidth;    /* seconds; bytes a second; a bandwidth of 0 delays nothing */
    atomic_bool off;              /* delays nothing until it is false again */
    atomic_llong messages, bytes; /* that were sent so far, by all ranks of this process */
    delayed_link *link[DELAYED_RANKS];
} delayed_network;

static inline double delayed_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void delayed_sleep_until(double when) {
    struct timespec t = {.tv_sec = (time_t)when};
    t.tv_nsec = (long)((when - (double)t.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) continue;
}

static inline double delayed_later(double a, double b) { return a > b ? a : b; }

/* When the message's first byte would be at the receiver. */
static inline double delayed_depart(delayed_link *link, size_t n) {
    delayed_network *net = link->net;
    atomic_fetch_add(&net->messages, 1);
    atomic_fetch_add(&net->bytes, (long long)n);
    if (atomic_load(&net->off) || !(net->bandwidth > 0)) return 0;
    double begin = delayed_later(delayed_now(), link->out_free);
    link->out_free = begin + (double)n / net->bandwidth;
    return begin + net->latency;
}

/* Of a message whose first byte is there at `first`: when its last one is. */
static inline double delayed_arrive(delayed_link *link, double first, size_t n) {
    if (!(first > 0)) return 0;
    return link->in_free = delayed_later(first, link->in_free) + (double)n / link->net->bandwidth;
}

static inline clef_status delayed_exchange(const clef_transport *t, const clef_parcel *out, int n_out, const clef_parcel *in,
                                           int n_in, double timeout, clef_transport_failure *why) {
    delayed_link *link = t->state;
    size_t n = (size_t)n_out + (size_t)n_in;
    clef_parcel *parcel = malloc((2 * n + 1) * sizeof *parcel);
    double *first = malloc((n + 1) * sizeof *first), there = 0;
    *why = (clef_transport_failure){-1, "no host memory for a delayed message"};
    clef_status status = CLEF_MEMORY;
    if (parcel && first) {
        for (int i = 0; i < n_out + n_in; i++) {
            const clef_parcel *p = i < n_out ? &out[i] : &in[i - n_out];
            if (i < n_out) first[i] = delayed_depart(link, p->n);
            parcel[2 * i] = (clef_parcel){p->rank, &first[i], sizeof *first};
            parcel[2 * i + 1] = *p;
        }
        status = link->of->exchange(link->of, parcel, 2 * n_out, parcel + 2 * n_out, 2 * n_in, timeout, why);
    }
    for (int i = 0; status == CLEF_OK && i < n_in; i++)
        there = delayed_later(there, delayed_arrive(link, first[n_out + i], in[i].n));
    if (there > 0) delayed_sleep_until(there);
    free(parcel);
    free(first);
    return status;
}

static inline void delayed_fail(const clef_transport *t, const char *line) {
    const delayed_link *link = t->state;
    link->of->fail(link->of, line);
}

/* clef_wrap_fn; user: a delayed_network. */
static inline const clef_transport *delayed_wrap(const clef_transport *of, void *user) {
    delayed_network *net = user;
    delayed_link *link = of->rank < DELAYED_RANKS ? calloc(1, sizeof *link) : NULL;
    if (!link) return NULL;
    link->of = of;
    link->net = net;
    link->transport = (clef_transport){
        .name = "delayed", .rank = of->rank, .size = of->size, .state = link, .exchange = delayed_exchange, .fail = delayed_fail};
    free(net->link[of->rank]);
    net->link[of->rank] = link;
    return &link->transport;
}

/* When no rank runs any more. */
static inline void delayed_close(delayed_network *net) {
    for (int r = 0; r < DELAYED_RANKS; r++) {
        free(net->link[r]);
        net->link[r] = NULL;
    }
}
#endif
