/* mpi_message.c — messages as heads and pieces: on their way out, and for the parcels of an exchange. */
#include "mpi/mpi_link.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- out ---- */
static const size_t size_bytes = sizeof(uint64_t);

/* Bytes of the next head or piece; 0: all are posted. */
static size_t next_part(const clef__mpi_link *link, const clef__mpi_outgoing *m, size_t posted) {
    size_t left = m->end - posted;
    if (posted == 0) return left - size_bytes <= CLEF__MPI_EAGER ? left : size_bytes;
    return left < link->piece ? left : link->piece;
}

static void post_part(clef__mpi_link *link, int rank) {
    clef__mpi_peer *p = &link->peer[rank];
    clef__mpi_outgoing *m = p->first;
    size_t n = next_part(link, m, m->posted);
    int tag = m->posted ? CLEF__MPI_TAG_PIECE : CLEF__MPI_TAG_HEAD;
    if (!clef__mpi_good(link, MPI_Isend((char *)m->message + m->posted, (int)n, MPI_BYTE, rank, tag, link->comm, &p->sending),
                        "MPI_Isend"))
        return;
    m->posted += n;
    p->posted++;
}

static bool move_sends_to(clef__mpi_link *link, int rank) {
    clef__mpi_peer *p = &link->peer[rank];
    bool moved = clef__mpi_over(link, &p->sending, MPI_STATUS_IGNORE, "MPI_Isend");
    if (p->sending != MPI_REQUEST_NULL) return moved;
    if (p->first && p->first->posted == p->first->end) {
        clef__mpi_outgoing *gone = p->first;
        p->first = gone->next;
        free(gone);
        moved = true;
    }
    if (p->first && !link->unusable) post_part(link, rank);
    return moved;
}

bool clef__mpi_move_sends(clef__mpi_link *link) {
    bool moved = false;
    for (int r = 0; r < link->transport.size; r++)
        while (link->peer[r].first && move_sends_to(link, r)) moved = true;
    return moved;
}

bool clef__mpi_has_sends(const clef__mpi_link *link) {
    for (int r = 0; r < link->transport.size; r++)
        if (link->peer[r].first) return true;
    return false;
}

static void free_messages(clef__mpi_outgoing *m) {
    for (clef__mpi_outgoing *next; m; m = next) {
        next = m->next;
        free(m);
    }
}

/* The one under way ends with what is posted of it. */
void clef__mpi_drop_sends(clef__mpi_link *link) {
    for (int r = 0; r < link->transport.size; r++) {
        clef__mpi_outgoing **from = &link->peer[r].first;
        if (*from && (*from)->posted) {
            (*from)->end = (*from)->posted;
            from = &(*from)->next;
        }
        free_messages(*from);
        *from = NULL;
    }
}

uint64_t clef__mpi_sends_to(const clef__mpi_link *link, int rank) {
    uint64_t n = link->peer[rank].posted;
    for (const clef__mpi_outgoing *m = link->peer[rank].first; m; m = m->next)
        for (size_t posted = m->posted; posted < m->end; posted += next_part(link, m, posted)) n++;
    return n;
}

/* ---- an exchange ---- */
static clef__mpi_outgoing *copy_parcel(const clef_parcel *parcel) {
    clef__mpi_outgoing *m = parcel->n < SIZE_MAX - sizeof *m - size_bytes ? malloc(sizeof *m + size_bytes + parcel->n) : NULL;
    if (!m) return NULL;
    m->next = NULL;
    m->posted = 0;
    m->end = size_bytes + parcel->n;
    m->message[0] = parcel->n;
    if (parcel->n) memcpy(m->message + 1, parcel->bytes, parcel->n);
    return m;
}

static void queue(clef__mpi_peer *p, clef__mpi_outgoing *m) {
    for (p->last = p->first; p->last && p->last->next;) p->last = p->last->next;
    *(p->first ? &p->last->next : &p->first) = m;
}

static bool without_memory(clef__mpi_link *link, size_t bytes) {
    char line[80];
    snprintf(line, sizeof line, "no host memory for a message of %zu bytes", bytes);
    clef__mpi_break(link, CLEF_MEMORY, -1, line);
    return false;
}

bool clef__mpi_begin_job(clef__mpi_link *link, clef__mpi_job *job) {
    size_t bytes = (size_t)job->n_in * sizeof *job->arrival;
    job->begun = true;
    job->arrival = malloc(bytes ? bytes : 1);
    if (!job->arrival) return without_memory(link, bytes);
    for (int i = 0; i < job->n_in; i++) {
        job->arrival[i].stage = CLEF__MPI_WAITS;
        job->arrival[i].request = MPI_REQUEST_NULL;
    }
    for (int i = 0; i < job->n_out; i++) {
        clef__mpi_outgoing *m = copy_parcel(&job->out[i]);
        if (!m) return without_memory(link, job->out[i].n);
        queue(&link->peer[job->out[i].rank], m);
    }
    return true;
}

static void receive(clef__mpi_link *link, clef__mpi_arrival *a, void *to, size_t n, int from, int tag) {
    clef__mpi_good(link, MPI_Irecv(to, (int)n, MPI_BYTE, from, tag, link->comm, &a->request), "MPI_Irecv");
}

static void receive_piece(clef__mpi_link *link, clef__mpi_arrival *a, const clef_parcel *parcel) {
    size_t left = parcel->n - a->at;
    if (left == 0) a->stage = CLEF__MPI_ARRIVED;
    else
        receive(link, a, (char *)parcel->bytes + a->at, left < link->piece ? left : link->piece, parcel->rank, CLEF__MPI_TAG_PIECE);
}

static void wrong_size(clef__mpi_link *link, const clef_parcel *parcel, uint64_t n) {
    char line[96];
    snprintf(line, sizeof line, "sent %llu bytes instead of %zu", (unsigned long long)n, parcel->n);
    clef__mpi_break(link, CLEF_GROUP, parcel->rank, line);
}

static void take_head(clef__mpi_link *link, clef__mpi_arrival *a, const clef_parcel *parcel, size_t count) {
    uint64_t n = a->head.n;
    size_t with_it = count - size_bytes;
    if (n != parcel->n || with_it != (n <= CLEF__MPI_EAGER ? n : 0)) {
        wrong_size(link, parcel, n);
        return;
    }
    if (with_it) memcpy(parcel->bytes, a->head.bytes, with_it);
    a->at = with_it;
    a->stage = CLEF__MPI_PIECES;
    receive_piece(link, a, parcel);
}

static void take_part(clef__mpi_link *link, clef__mpi_arrival *a, const clef_parcel *parcel, const MPI_Status *status) {
    int count = 0;
    link->peer[parcel->rank].received++;
    link->peer[parcel->rank].awaits = -1;
    clef__mpi_good(link, MPI_Get_count(status, MPI_BYTE, &count), "MPI_Get_count");
    if (a->stage == CLEF__MPI_HEAD) {
        take_head(link, a, parcel, (size_t)count);
        return;
    }
    a->at += (size_t)count;
    receive_piece(link, a, parcel);
}

/* Of one rank the parcels come one behind the other. */
static bool is_next(const clef__mpi_job *job, int i) {
    for (int j = 0; j < i; j++)
        if (job->in[j].rank == job->in[i].rank && job->arrival[j].stage != CLEF__MPI_ARRIVED) return false;
    return true;
}

static bool move_arrival(clef__mpi_link *link, clef__mpi_job *job, int i) {
    clef__mpi_arrival *a = &job->arrival[i];
    MPI_Status status;
    if (a->stage == CLEF__MPI_WAITS && is_next(job, i)) {
        a->stage = CLEF__MPI_HEAD;
        receive(link, a, &a->head, sizeof a->head, job->in[i].rank, CLEF__MPI_TAG_HEAD);
    }
    if (!clef__mpi_over(link, &a->request, &status, "MPI_Irecv") || link->broken) return false;
    take_part(link, a, &job->in[i], &status);
    return true;
}

/* A rank that has ended, and whose messages have all been received, sends no more. */
static void look_for_the_ended(clef__mpi_link *link, const clef__mpi_job *job) {
    for (int i = 0; i < job->n_in; i++) {
        const clef__mpi_peer *p = &link->peer[job->in[i].rank];
        if (job->arrival[i].stage == CLEF__MPI_HEAD && p->has_ended && p->received == p->sent)
            clef__mpi_break(link, CLEF_GROUP, job->in[i].rank, "returned");
    }
}

bool clef__mpi_move_job(clef__mpi_link *link, clef__mpi_job *job) {
    bool moved = false;
    for (int i = 0; i < job->n_in && !link->broken; i++)
        while (job->arrival[i].stage != CLEF__MPI_ARRIVED && move_arrival(link, job, i)) moved = true;
    if (!moved && !link->broken) look_for_the_ended(link, job);
    return moved;
}

int clef__mpi_job_waits_for(const clef__mpi_job *job) {
    for (int i = 0; i < job->n_in; i++)
        if (job->arrival[i].stage != CLEF__MPI_ARRIVED) return job->in[i].rank;
    return -1;
}

bool clef__mpi_job_is_done(const clef__mpi_job *job) { return clef__mpi_job_waits_for(job) < 0; }

/* A receive that has met its message cannot be taken back: it ends soon, as the sender's serving thread sees to it, unless that has
   died. */
static bool cancel(clef__mpi_link *link, clef__mpi_arrival *a, int from) {
    MPI_Status status;
    int cancelled = 0;
    clef__mpi_elapsed(link);
    MPI_Cancel(&a->request);
    for (double waited = 0; !clef__mpi_over(link, &a->request, &status, "MPI_Irecv"); waited += clef__mpi_elapsed(link)) {
        if (waited > CLEF__MPI_SILENCE) return false;
        clef__mpi_move_sends(link);
        sched_yield();
    }
    MPI_Test_cancelled(&status, &cancelled);
    if (!cancelled) link->peer[from].received++;
    return true;
}

void clef__mpi_end_job(clef__mpi_link *link, clef__mpi_job *job) {
    for (int i = 0; i < job->n_in && job->arrival; i++)
        if (job->arrival[i].request != MPI_REQUEST_NULL && !link->unusable)
            link->unusable = !cancel(link, &job->arrival[i], job->in[i].rank);
    if (!link->unusable) free(job->arrival);
}
