/* mpi_notice.c — what ranks tell each other beside their messages: that they have ended and how, and that they live. */
#include "mpi/mpi_link.h"
#include <stdio.h>
#include <string.h>

static void hear(clef__mpi_link *link, int from) {
    clef__mpi_peer *p = &link->peer[from];
    const clef__mpi_notice *n = &link->notice;
    p->silent = 0;
    if (n->word == CLEF__MPI_ALIVE) return;
    if (n->word == CLEF__MPI_BLOCKED) {
        p->awaits = n->awaits;
        snprintf(p->wait, sizeof p->wait, "%.390s", n->line);
        return;
    }
    p->sent = n->sent;
    p->has_ended = true;
    if (n->word == CLEF__MPI_FAILED) clef__mpi_end_run(link, n->line);
}

bool clef__mpi_listen(clef__mpi_link *link) {
    MPI_Status status;
    if (clef__mpi_over(link, &link->noticing, &status, "MPI_Irecv")) {
        hear(link, status.MPI_SOURCE);
        return true;
    }
    if (link->noticing == MPI_REQUEST_NULL)
        clef__mpi_good(link,
                       MPI_Irecv(&link->notice, sizeof link->notice, MPI_BYTE, MPI_ANY_SOURCE, CLEF__MPI_TAG_NOTICE, link->comm,
                                 &link->noticing),
                       "MPI_Irecv");
    return false;
}

/* All have said their last word, so that there is none to come. */
void clef__mpi_stop_listening(clef__mpi_link *link) {
    if (link->noticing == MPI_REQUEST_NULL) return;
    MPI_Cancel(&link->noticing);
    MPI_Wait(&link->noticing, MPI_STATUS_IGNORE);
}

static void send_notice(clef__mpi_link *link, int rank, const clef__mpi_notice *n, MPI_Request *request) {
    size_t bytes = offsetof(clef__mpi_notice, line) + strlen(n->line) + 1;
    clef__mpi_good(link, MPI_Isend(n, (int)bytes, MPI_BYTE, rank, CLEF__MPI_TAG_NOTICE, link->comm, request), "MPI_Isend");
}

/* So that those who wait for this rank can tell whom it waits for itself. */
void clef__mpi_say_what_it_waits_for(clef__mpi_link *link, clef__mpi_job *job, int rank) {
    clef__mpi_notice *n = &link->wait;
    for (int r = 0; r < link->transport.size; r++) {
        clef__mpi_over(link, &link->peer[r].waiting, MPI_STATUS_IGNORE, "MPI_Isend");
        if (link->peer[r].waiting != MPI_REQUEST_NULL) return; /* of another exchange, and still on its way */
    }
    job->told = true;
    *n = (clef__mpi_notice){.word = CLEF__MPI_BLOCKED, .awaits = rank};
    if (job->describe) job->describe(job->what, rank, n->line, CLEF__MPI_WAIT);
    else snprintf(n->line, CLEF__MPI_WAIT, "%s waits for %s", link->peer[link->transport.rank].name, link->peer[rank].name);
    for (int r = 0; r < link->transport.size; r++)
        if (r != link->transport.rank) send_notice(link, r, n, &link->peer[r].waiting);
    link->peer[link->transport.rank].awaits = rank;
    snprintf(link->peer[link->transport.rank].wait, CLEF__MPI_WAIT, "%.390s", n->line);
}

/* What was to be sent still is, unless this rank failed.  One that failed as another did passes on the line of that one, so that all are
   told the same, whoever is heard first. */
void clef__mpi_say_last_word(clef__mpi_link *link) {
    if (link->told) return;
    link->told = true;
    if (*link->line) clef__mpi_drop_sends(link);
    for (int r = 0; r < link->transport.size; r++) {
        clef__mpi_notice *n = &link->peer[r].last_word;
        n->sent = clef__mpi_sends_to(link, r);
        n->word = *link->line ? CLEF__MPI_FAILED : CLEF__MPI_ENDED;
        memcpy(n->line, *link->line && *link->end_line ? link->end_line : link->line, sizeof n->line);
        send_notice(link, r, n, &link->peer[r].telling); /* to itself too: it hears how much to drain */
    }
}

void clef__mpi_give_sign(clef__mpi_link *link, double elapsed) {
    link->since_sign += elapsed;
    if (link->since_sign < CLEF__MPI_SILENCE / 10.0 || link->told) return;
    link->since_sign = 0;
    for (int r = 0; r < link->transport.size; r++) {
        clef__mpi_peer *p = &link->peer[r];
        clef__mpi_over(link, &p->alive, MPI_STATUS_IGNORE, "MPI_Isend");
        if (p->has_ended && p->alive == MPI_REQUEST_NULL) send_notice(link, r, &link->sign, &p->alive);
    }
}

bool clef__mpi_is_understood(clef__mpi_link *link) {
    bool all = true;
    for (int r = 0; r < link->transport.size; r++) {
        clef__mpi_peer *p = &link->peer[r];
        clef__mpi_over(link, &p->alive, MPI_STATUS_IGNORE, "MPI_Isend");
        clef__mpi_over(link, &p->telling, MPI_STATUS_IGNORE, "MPI_Isend");
        clef__mpi_over(link, &p->waiting, MPI_STATUS_IGNORE, "MPI_Isend");
        all = all && p->waiting == MPI_REQUEST_NULL && p->alive == MPI_REQUEST_NULL && p->telling == MPI_REQUEST_NULL;
    }
    return all;
}
