/* mpi_serve.c — the thread that calls MPI: it moves on whatever is under way, and rests a little where nothing moves. */
#include "mpi/mpi_link.h"
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- what goes wrong ---- */
void clef__mpi_break(clef__mpi_link *link, clef_status status, int rank, const char *line) {
    pthread_mutex_lock(&link->lock);
    if (!link->broken) {
        link->why.rank = rank;
        snprintf(link->why.line, sizeof link->why.line, "%s", line);
        link->broken = status;
    }
    pthread_mutex_unlock(&link->lock);
}

void clef__mpi_end_run(clef__mpi_link *link, const char *line) {
    if (!*link->end_line) snprintf(link->end_line, sizeof link->end_line, "%s", line);
    clef__mpi_break(link, CLEF_GROUP, -1, line);
}

bool clef__mpi_good(clef__mpi_link *link, int code, const char *call) {
    if (code == MPI_SUCCESS) return true;
    char text[MPI_MAX_ERROR_STRING] = "", line[MPI_MAX_ERROR_STRING + 64];
    int length;
    MPI_Error_string(code, text, &length);
    snprintf(line, sizeof line, "%s: %s", call, text);
    clef__mpi_break(link, CLEF_GROUP, -1, line);
    return false;
}

bool clef__mpi_over(clef__mpi_link *link, MPI_Request *request, MPI_Status *status, const char *call) {
    int over = 0;
    if (*request == MPI_REQUEST_NULL) return false;
    if (clef__mpi_good(link, MPI_Test(request, &over, status), call)) return over;
    *request = MPI_REQUEST_NULL; /* whatever became of it, it is not asked for again */
    return true;
}

/* ---- time ---- */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double clef__mpi_elapsed(clef__mpi_link *link) {
    const double longest = 0.25; /* many times a rest */
    double before = link->clock;
    link->clock = now();
    return link->clock - before < longest ? link->clock - before : longest;
}

struct timespec clef__mpi_after(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += (long)(seconds * 1e9);
    if (t.tv_nsec >= 1000000000L) t.tv_sec++, t.tv_nsec -= 1000000000L;
    return t;
}

void clef__mpi_monotonic(pthread_cond_t *condition) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* The longer nothing has moved, the longer it rests; an exchange that is asked for wakes it. */
static void rest(clef__mpi_link *link, int idle, bool busy) {
    enum { YIELDS = 200 };
    if (busy && idle < YIELDS) {
        sched_yield();
        return;
    }
    double nap = !busy ? 0.02 : idle < 2 * YIELDS ? 5e-5 : 1e-3;
    struct timespec until = clef__mpi_after(nap);
    pthread_mutex_lock(&link->lock);
    if (!link->job || link->job->begun) pthread_cond_timedwait(&link->asked, &link->lock, &until);
    pthread_mutex_unlock(&link->lock);
}

/* ---- serving ---- */
static void answer(clef__mpi_link *link, clef__mpi_job *job) {
    clef__mpi_end_job(link, job);
    pthread_mutex_lock(&link->lock);
    job->done = true;
    job->status = link->broken;
    link->job = NULL;
    pthread_cond_broadcast(&link->answered);
    pthread_mutex_unlock(&link->lock);
}

static int next_waited_for(const clef__mpi_link *link, int rank) { return link->peer[rank].awaits; }

/* Who waits for whom, from this rank on. */
static void describe_waits(const clef__mpi_link *link, size_t used, char *line) {
    int at = link->transport.rank;
    for (int n = 0; n < link->transport.size && next_waited_for(link, at) >= 0; n++, at = next_waited_for(link, at))
        if (used < CLEF_TRANSPORT_LINE)
            used += (size_t)snprintf(line + used, CLEF_TRANSPORT_LINE - used, "%s%s", n ? ", " : "", link->peer[at].wait);
}

/* The one that is waited for may wait itself: the cause is at the end of such a chain, if it has one. */
static void end_waiting(clef__mpi_link *link, const clef__mpi_job *job, int rank) {
    char line[CLEF_TRANSPORT_LINE];
    int last = rank, steps = 0;
    link->peer[link->transport.rank].awaits = rank;
    while (steps++ < link->transport.size && next_waited_for(link, last) >= 0) last = next_waited_for(link, last);
    if (last == rank && next_waited_for(link, rank) < 0) {
        snprintf(line, sizeof line, "sent nothing for %g s", job->timeout);
        clef__mpi_break(link, CLEF_GROUP, rank, line);
        return;
    }
    bool circle = next_waited_for(link, last) >= 0;
    size_t used = circle ? (size_t)snprintf(line, sizeof line, "nobody can go on: ")
                         : (size_t)snprintf(line, sizeof line, "%s sent nothing for %g s: ", link->peer[last].name, job->timeout);
    describe_waits(link, used, line);
    clef__mpi_break(link, CLEF_GROUP, -1, line);
}

static void look_at_time(clef__mpi_link *link, clef__mpi_job *job, bool moved, double elapsed) {
    int rank = clef__mpi_job_waits_for(job);
    job->quiet = moved ? 0 : job->quiet + elapsed;
    if (moved) job->told = false;
    if (job->timeout <= 0 || job->quiet < job->timeout / 2 || rank < 0) return;
    if (!job->told && !link->unusable) clef__mpi_say_what_it_waits_for(link, job, rank);
    if (job->quiet >= job->timeout) end_waiting(link, job, rank);
}

static bool move_exchange(clef__mpi_link *link, clef__mpi_job *job, double elapsed) {
    if (!job) return false;
    bool begins = !job->begun;
    if (begins && !link->broken) clef__mpi_begin_job(link, job);
    bool moved = !link->broken && clef__mpi_move_job(link, job);
    bool done = link->broken || clef__mpi_job_is_done(job);
    if (!done) look_at_time(link, job, moved || begins, elapsed);
    if (done) {
        clef__mpi_move_sends(link);
        answer(link, job);
    }
    return moved || begins;
}

/* What the rank's threads want now: has the rank ended, with or without an exchange that is still to be answered? */
static bool ask(clef__mpi_link *link, clef__mpi_job **job) {
    pthread_mutex_lock(&link->lock);
    *job = link->job;
    bool ended = link->has_ended;
    pthread_mutex_unlock(&link->lock);
    if (ended && *link->line) {
        clef__mpi_break(link, CLEF_GROUP, -1, link->line);
        clef__mpi_say_last_word(link);
    }
    return ended;
}

void clef__mpi_serve(clef__mpi_link *link) {
    clef__mpi_job *job;
    clef__mpi_elapsed(link);
    for (int idle = 0; !ask(link, &job) || job;) {
        double elapsed = clef__mpi_elapsed(link);
        bool moved = !link->unusable && clef__mpi_listen(link);
        moved |= !link->unusable && clef__mpi_move_sends(link);
        moved |= move_exchange(link, job, elapsed);
        if (!link->unusable) clef__mpi_give_sign(link, elapsed);
        idle = moved ? 0 : idle + 1;
        if (!moved) rest(link, idle, job || clef__mpi_has_sends(link));
    }
}

/* ---- the end ---- */
static bool all_over(clef__mpi_link *link) {
    for (int r = 0; r < link->transport.size; r++)
        if (!link->peer[r].has_ended) return false;
    return !clef__mpi_has_sends(link) && clef__mpi_is_drained(link) && clef__mpi_is_understood(link);
}

/* Who is taken for dead: who has not ended and gives no sign of life, or does not take what was sent to him; -1: nobody. */
static int silent_one(clef__mpi_link *link, bool moved, double elapsed) {
    for (int r = 0; r < link->transport.size; r++) {
        clef__mpi_peer *p = &link->peer[r];
        if (moved && p->has_ended) p->silent = 0;
        p->silent += elapsed;
        if (p->silent > CLEF__MPI_SILENCE && (!p->has_ended || p->first || p->received < p->sent)) return r;
    }
    return -1;
}

static void give_up(clef__mpi_link *link, int rank) {
    char line[CLEF__MPI_NAME + 96];
    snprintf(line, sizeof line, "%s has died or hangs: no sign of it for %d s at the end", link->peer[rank].name,
             CLEF__MPI_SILENCE);
    clef__mpi_end_run(link, line);
    link->unusable = true;
}

/* Where all ended well: did another send what this rank never asked for? */
static clef_status look_for_unread(const clef__mpi_link *link, char *line) {
    if (link->broken || *link->line || !link->drained_any) return CLEF_OK;
    snprintf(line, CLEF_TRANSPORT_LINE, "recv: %s sent %s a message that it never received; each clef_send wants a clef_recv",
             link->peer[link->drained_from].name, link->peer[link->transport.rank].name);
    return CLEF_GROUP;
}

clef_status clef__mpi_finish(clef__mpi_link *link, char *line) {
    int idle = 0, silent;
    if (!link->unusable) clef__mpi_say_last_word(link);
    while (!link->unusable && !all_over(link)) {
        double elapsed = clef__mpi_elapsed(link);
        bool moved = clef__mpi_listen(link);
        moved |= clef__mpi_move_sends(link);
        moved |= clef__mpi_drain(link);
        if ((silent = silent_one(link, moved, elapsed)) >= 0) give_up(link, silent);
        idle = moved ? 0 : idle + 1;
        if (!moved) rest(link, idle, true);
    }
    if (!link->unusable) clef__mpi_stop_listening(link);
    bool alone = !*link->end_line && link->why.rank < 0; /* memory, or MPI itself */
    snprintf(line, CLEF_TRANSPORT_LINE, "%s", alone ? link->why.line : link->end_line);
    if (alone) return link->broken;
    return *line ? CLEF_GROUP : look_for_unread(link, line);
}
