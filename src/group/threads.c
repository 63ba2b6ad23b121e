/* threads.c — the transport of ranks that are threads of one process: a hub with a seat for each rank and a mailbox for each pair.

   One lock guards all of it; numbers are copied outside of it.  A seat has a condition of its own.  Whatever its rank may wait for (a
   message, a failure, an end, the last member at a meeting) signals it with the lock held, so that no change is missed. */
#include "group/group.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct message {
    struct message *next;
    size_t n;
    max_align_t bytes[];
} message;

typedef struct mailbox {
    message *first, *last;
} mailbox;

typedef struct seat {
    clef_transport transport;
    clef__hub *hub;
    pthread_cond_t changed;
    bool ended;
    clef_status broken;                                                    /* what all further exchanges give, */
    clef_transport_failure why;                                            /* and why */
    int awaits;                                                            /* whose message it waits for; -1: nobody's */
    void (*describe)(const void *what, int rank, char *text, size_t size); /* what it waits for; NULL: not known */
    const void *what;
    /* Meetings.  A group's meetings are counted at the seat of its first member, which is in one at a time. */
    bool arrived;      /* at one, and waits there */
    const int *member; /* for these */
    int n_members;
    const void *const *own; /* what it shares */
    int present;            /* members that have arrived, of the group that this seat is the first of */
    uint64_t meetings;      /* how many were complete */
} seat;

struct clef__hub {
    int n;
    pthread_mutex_t lock;
    int failed; /* the rank that failed first; -1: none */
    char line[CLEF_TRANSPORT_LINE];
    mailbox *box; /* [n][n]: from, to */
    seat seat[];
};

/* ---- waiting ---- */
typedef struct deadline {
    bool any;
    struct timespec at;
} deadline;

static deadline from_now(double seconds) {
    deadline d = {.any = seconds > 0 && seconds < 1e9};
    if (!d.any) return d;
    clock_gettime(CLOCK_MONOTONIC, &d.at);
    double whole = (double)(int64_t)seconds;
    d.at.tv_sec += (time_t)whole;
    d.at.tv_nsec += (long)((seconds - whole) * 1e9);
    if (d.at.tv_nsec >= 1000000000L) d.at.tv_sec++, d.at.tv_nsec -= 1000000000L;
    return d;
}

/* With the lock held; false once it is too late. */
static bool await_change(seat *me, const deadline *d) {
    if (d->any) return pthread_cond_timedwait(&me->changed, &me->hub->lock, &d->at) != ETIMEDOUT;
    pthread_cond_wait(&me->changed, &me->hub->lock);
    return true;
}

static void signal_all(clef__hub *hub) {
    for (int r = 0; r < hub->n; r++) pthread_cond_broadcast(&hub->seat[r].changed);
}

/* ---- failures ---- */
/* This and all further exchanges of the seat fail for this reason. */
static clef_status break_off(seat *me, clef_status status, int rank, const char *line) {
    me->broken = status;
    me->why.rank = rank;
    snprintf(me->why.line, sizeof me->why.line, "%s", line);
    return status;
}

static mailbox *box_of(clef__hub *hub, int from, int to) { return &hub->box[from * hub->n + to]; }

static int first_absent(const clef__hub *hub, const int *member, int n) {
    for (int m = 0; m < n; m++)
        if (!hub->seat[member[m]].arrived) return member[m];
    return member[0];
}

/* With the lock held: the rank without which this one cannot go on; -1: it can. */
static int blocked_by(clef__hub *hub, int rank) {
    const seat *s = &hub->seat[rank];
    if (s->arrived) return first_absent(hub, s->member, s->n_members);
    return s->awaits >= 0 && !box_of(hub, s->awaits, rank)->first ? s->awaits : -1;
}

/* Who waits for whom, from `rank` on until it comes round. */
static void describe_circle(clef__hub *hub, int rank, char *line) {
    size_t used = (size_t)snprintf(line, CLEF_TRANSPORT_LINE, "nobody can go on: ");
    int at = rank;
    do {
        const seat *s = &hub->seat[at];
        char text[400];
        int next = blocked_by(hub, at);
        if (s->describe) s->describe(s->what, next, text, sizeof text);
        else snprintf(text, sizeof text, "rank %d waits for rank %d", at, next);
        if (used < CLEF_TRANSPORT_LINE)
            used += (size_t)snprintf(line + used, CLEF_TRANSPORT_LINE - used, "%s%s", at == rank ? "" : ", ", text);
        at = next;
    } while (at != rank);
}

/* With the lock held.  A rank that waits sends nothing, so that a circle of such ranks waits for ever.  Whoever closes it finds it. */
static clef_status look_for_circle(seat *me) {
    clef__hub *hub = me->hub;
    char line[CLEF_TRANSPORT_LINE];
    int at = me->transport.rank;
    for (int steps = 0; steps <= hub->n; steps++)
        if ((at = blocked_by(hub, at)) < 0) return CLEF_OK;
    describe_circle(hub, at, line);
    return break_off(me, CLEF_GROUP, -1, line);
}

/* With the lock held: why waiting for this rank is in vain; CLEF_OK: it is not. */
static clef_status in_vain(seat *me, int rank, bool late, double timeout, const char *late_for) {
    clef__hub *hub = me->hub;
    char line[64];
    if (hub->failed >= 0) return break_off(me, CLEF_GROUP, -1, hub->line);
    if (hub->seat[rank].ended) return break_off(me, CLEF_GROUP, rank, "returned");
    if (!late) return look_for_circle(me);
    snprintf(line, sizeof line, "%s for %g s", late_for, timeout);
    return break_off(me, CLEF_GROUP, rank, line);
}

static void hub_fail(const clef_transport *t, const char *line) {
    seat *me = t->state;
    clef__hub *hub = me->hub;
    pthread_mutex_lock(&hub->lock);
    if (!line) me->ended = true;
    else if (hub->failed < 0) {
        hub->failed = t->rank;
        snprintf(hub->line, sizeof hub->line, "%s", line);
    }
    signal_all(hub);
    pthread_mutex_unlock(&hub->lock);
}

static void hub_say(const clef_transport *t, void (*describe)(const void *what, int rank, char *text, size_t size),
                    const void *what) {
    seat *me = t->state;
    pthread_mutex_lock(&me->hub->lock);
    me->describe = describe;
    me->what = what;
    pthread_mutex_unlock(&me->hub->lock);
}

/* ---- messages ---- */
static clef_status send_parcel(seat *me, const clef_parcel *p) {
    clef__hub *hub = me->hub;
    char line[80];
    snprintf(line, sizeof line, "no host memory for a message of %zu bytes", p->n);
    message *sent = p->n < SIZE_MAX - sizeof *sent ? clef__alloc(sizeof *sent + p->n) : NULL;
    if (sent) {
        sent->next = NULL;
        sent->n = p->n;
        if (p->n) memcpy(sent->bytes, p->bytes, p->n);
    }
    pthread_mutex_lock(&hub->lock);
    if (!sent) break_off(me, CLEF_MEMORY, -1, line);
    else {
        mailbox *box = box_of(hub, me->transport.rank, p->rank);
        *(box->first ? &box->last->next : &box->first) = sent;
        box->last = sent;
        pthread_cond_broadcast(&hub->seat[p->rank].changed);
    }
    pthread_mutex_unlock(&hub->lock);
    return sent ? CLEF_OK : CLEF_MEMORY;
}

/* The oldest message from a rank, taken out of its mailbox; NULL if none comes. */
static message *take(seat *me, int from, double timeout) {
    clef__hub *hub = me->hub;
    deadline late = from_now(timeout);
    pthread_mutex_lock(&hub->lock);
    mailbox *box = box_of(hub, from, me->transport.rank);
    bool in_time = true;
    me->awaits = from;
    while (!box->first && in_vain(me, from, !in_time, timeout, "sent nothing") == CLEF_OK) in_time = await_change(me, &late);
    me->awaits = -1;
    message *got = box->first;
    if (got) box->first = got->next;
    pthread_mutex_unlock(&hub->lock);
    return got;
}

static clef_status receive_parcel(seat *me, const clef_parcel *p, double timeout) {
    message *got = take(me, p->rank, timeout);
    if (!got) return me->broken;
    bool fits = got->n == p->n;
    char line[96];
    snprintf(line, sizeof line, "sent %zu bytes instead of %zu", got->n, p->n);
    if (fits && p->n) memcpy(p->bytes, got->bytes, p->n);
    clef__free(got);
    return fits ? CLEF_OK : break_off(me, CLEF_GROUP, p->rank, line);
}

/* Another's failure ends all, also those who would not have to wait. */
static clef_status look_up(seat *me) {
    pthread_mutex_lock(&me->hub->lock);
    if (!me->broken && me->hub->failed >= 0) break_off(me, CLEF_GROUP, -1, me->hub->line);
    pthread_mutex_unlock(&me->hub->lock);
    return me->broken;
}

static clef_status hub_exchange(const clef_transport *t, const clef_parcel *out, int n_out, const clef_parcel *in, int n_in,
                                double timeout, clef_transport_failure *why) {
    seat *me = t->state;
    clef_status status = look_up(me);
    for (int i = 0; i < n_out && status == CLEF_OK; i++) status = send_parcel(me, &out[i]);
    for (int i = 0; i < n_in && status == CLEF_OK; i++) status = receive_parcel(me, &in[i], timeout);
    if (status != CLEF_OK) *why = me->why;
    return status;
}

/* ---- shared memory ---- */
/* With the lock held: the last to arrive lets all go. */
static bool arrive(seat *me, const int *member, int n) {
    clef__hub *hub = me->hub;
    seat *first = &hub->seat[member[0]];
    me->arrived = true;
    me->member = member;
    me->n_members = n;
    if (++first->present < n) return false;
    first->present = 0;
    first->meetings++;
    for (int m = 0; m < n; m++) {
        hub->seat[member[m]].arrived = false;
        pthread_cond_broadcast(&hub->seat[member[m]].changed);
    }
    return true;
}

/* With the lock held. */
static clef_status wait_to_share(seat *me, const int *member, int n, double timeout) {
    clef__hub *hub = me->hub;
    seat *first = &hub->seat[member[0]];
    uint64_t before = first->meetings;
    deadline late = from_now(timeout);
    bool in_time = true;
    if (arrive(me, member, n)) return CLEF_OK;
    while (first->meetings == before) {
        clef_status status = in_vain(me, first_absent(hub, member, n), !in_time, timeout, "did not come to share memory");
        if (status != CLEF_OK) {
            me->arrived = false;
            first->present--;
            return status;
        }
        in_time = await_change(me, &late);
    }
    return CLEF_OK;
}

static clef_status hub_begin_sharing(const clef_transport *t, const int *member, int n, int self, const void *const *own, int n_own,
                                     const void **theirs, double timeout, clef_transport_failure *why) {
    (void)self;
    seat *me = t->state;
    clef__hub *hub = me->hub;
    pthread_mutex_lock(&hub->lock);
    me->own = own;
    clef_status status = me->broken ? me->broken : wait_to_share(me, member, n, timeout);
    for (int i = 0; i < n * n_own && status == CLEF_OK; i++) theirs[i] = hub->seat[member[i / n_own]].own[i % n_own];
    pthread_mutex_unlock(&hub->lock);
    if (status != CLEF_OK) *why = me->why;
    return status;
}

static void hub_meet(const clef_transport *t, const int *member, int n, int self) {
    (void)self;
    seat *me = t->state;
    seat *first = &me->hub->seat[member[0]];
    pthread_mutex_lock(&me->hub->lock);
    uint64_t before = first->meetings;
    if (!arrive(me, member, n))
        while (first->meetings == before) pthread_cond_wait(&me->changed, &me->hub->lock);
    pthread_mutex_unlock(&me->hub->lock);
}

/* ---- the hub ---- */
static void open_seat(clef__hub *hub, int rank) {
    seat *s = &hub->seat[rank];
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    s->hub = hub;
    s->awaits = -1;
    s->transport = (clef_transport){.name = "threads",
                                    .rank = rank,
                                    .size = hub->n,
                                    .state = s,
                                    .exchange = hub_exchange,
                                    .fail = hub_fail,
                                    .begin_sharing = hub_begin_sharing,
                                    .meet = hub_meet,
                                    .say = hub_say};
}

clef__hub *clef__hub_open(int n) {
    clef__hub *hub = clef__calloc(1, sizeof *hub + (size_t)n * sizeof hub->seat[0]);
    if (hub) hub->box = clef__calloc((size_t)n * (size_t)n, sizeof *hub->box);
    if (!hub || !hub->box) {
        clef__free(hub);
        return NULL;
    }
    hub->n = n;
    hub->failed = -1;
    pthread_mutex_init(&hub->lock, NULL);
    for (int r = 0; r < n; r++) open_seat(hub, r);
    return hub;
}

const clef_transport *clef__hub_rank(clef__hub *hub, int rank) { return &hub->seat[rank].transport; }

const char *clef__hub_failure(clef__hub *hub, int *rank) {
    pthread_mutex_lock(&hub->lock);
    *rank = hub->failed;
    pthread_mutex_unlock(&hub->lock);
    return *rank >= 0 ? hub->line : NULL;
}

const void *clef__hub_unread(clef__hub *hub, int *from, int *to, size_t *n) {
    for (int b = 0; b < hub->n * hub->n; b++) {
        const message *m = hub->box[b].first;
        *from = b / hub->n;
        *to = b % hub->n;
        if (m) return *n = m->n, m->bytes;
    }
    return NULL;
}

void clef__hub_close(clef__hub *hub) {
    if (!hub) return;
    for (int b = 0; b < hub->n * hub->n; b++)
        for (message *m = hub->box[b].first, *next; m; m = next) {
            next = m->next;
            clef__free(m);
        }
    for (int r = 0; r < hub->n; r++) pthread_cond_destroy(&hub->seat[r].changed);
    pthread_mutex_destroy(&hub->lock);
    clef__free(hub->box);
    clef__free(hub);
}
