/* mpi_transport.c — the table of the transport: what the rank's threads call, and the link behind it. */
#include "mpi/mpi_link.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the table ---- */
static clef_status exchange(const clef_transport *t, const clef_parcel *out, int n_out, const clef_parcel *in, int n_in,
                            double timeout, clef_transport_failure *why) {
    clef__mpi_link *link = t->state;
    clef__mpi_job job = {.out = out, .in = in, .n_out = n_out, .n_in = n_in, .timeout = timeout};
    job.describe = link->describe;
    job.what = link->what;
    pthread_mutex_lock(&link->lock);
    if (link->broken) job.status = link->broken;
    else if (link->has_ended) job.status = CLEF_STATE; /* nobody serves any more */
    else {
        link->job = &job;
        pthread_cond_signal(&link->asked);
        while (!job.done) pthread_cond_wait(&link->answered, &link->lock);
    }
    if (job.status == CLEF_STATE) *why = (clef_transport_failure){.rank = t->rank, .line = "has ended"};
    else if (job.status != CLEF_OK) *why = link->why;
    pthread_mutex_unlock(&link->lock);
    return job.status;
}

static void fail(const clef_transport *t, const char *line) {
    clef__mpi_link *link = t->state;
    pthread_mutex_lock(&link->lock);
    if (!link->has_ended) {
        link->has_ended = true;
        snprintf(link->line, sizeof link->line, "%s", line ? line : "");
    }
    pthread_cond_signal(&link->asked);
    pthread_mutex_unlock(&link->lock);
}

static void say(const clef_transport *t, void (*describe)(const void *what, int rank, char *text, size_t size), const void *what) {
    clef__mpi_link *link = t->state; /* read by whoever asks for an exchange, in the same thread */
    link->describe = describe;
    link->what = what;
}

/* ---- the link ---- */
static void forget(clef__mpi_link *link) {
    pthread_cond_destroy(&link->asked);
    pthread_cond_destroy(&link->answered);
    pthread_mutex_destroy(&link->lock);
    free(link->peer);
    free(link);
}

static clef__mpi_link *new_link(MPI_Comm comm, int rank, int size) {
    clef__mpi_link *link = calloc(1, sizeof *link);
    clef__mpi_peer *peer = calloc((size_t)size, sizeof *peer);
    if (!link || !peer) {
        free(link);
        free(peer);
        return NULL;
    }
    link->transport =
        (clef_transport){.name = "MPI", .rank = rank, .size = size, .state = link, .exchange = exchange, .fail = fail, .say = say};
    link->comm = comm;
    link->peer = peer;
    link->piece = CLEF__MPI_PIECE;
    link->noticing = link->draining = MPI_REQUEST_NULL;
    for (int r = 0; r < size; r++) {
        peer[r].sending = peer[r].alive = peer[r].telling = peer[r].waiting = MPI_REQUEST_NULL;
        peer[r].awaits = -1;
    }
    clef__mpi_monotonic(&link->asked);
    pthread_cond_init(&link->answered, NULL);
    pthread_mutex_init(&link->lock, NULL);
    return link;
}

/* All learn whether one of them has no memory. */
static bool all_have(clef__mpi_link *link, MPI_Comm comm, int rank, char *line) {
    int mine = link ? -1 : rank, lacking = -1;
    int code = MPI_Allreduce(&mine, &lacking, 1, MPI_INT, MPI_MAX, comm);
    if (code == MPI_SUCCESS && lacking < 0) return true;
    if (code == MPI_SUCCESS) snprintf(line, CLEF_TRANSPORT_LINE, "rank %d: no host memory for its link to the others", lacking);
    else snprintf(line, CLEF_TRANSPORT_LINE, "MPI_Allreduce failed (error %d)", code);
    return false;
}

/* Each name into its peer: to MPI, an array of names that lie a peer apart. */
static bool gather_names(clef__mpi_link *link, const char *name, char *line) {
    char own[CLEF__MPI_NAME] = "";
    MPI_Datatype text, strided;
    snprintf(own, sizeof own, "%s", name);
    MPI_Type_contiguous(sizeof own, MPI_CHAR, &text);
    MPI_Type_create_resized(text, 0, sizeof *link->peer, &strided);
    MPI_Type_commit(&strided);
    int code = MPI_Allgather(own, sizeof own, MPI_CHAR, link->peer->name, 1, strided, link->comm);
    MPI_Type_free(&strided);
    MPI_Type_free(&text);
    if (code != MPI_SUCCESS) snprintf(line, CLEF_TRANSPORT_LINE, "MPI_Allgather failed (error %d)", code);
    return code == MPI_SUCCESS;
}

clef__mpi_link *clef__mpi_open(MPI_Comm comm, const char *name, char *line) {
    int rank, size;
    int code = MPI_Comm_dup(comm, &comm);
    if (code != MPI_SUCCESS) {
        snprintf(line, CLEF_TRANSPORT_LINE, "MPI_Comm_dup failed (error %d)", code);
        return NULL;
    }
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    clef__mpi_link *link = new_link(comm, rank, size);
    if (all_have(link, comm, rank, line) && gather_names(link, name, line)) return link;
    if (link) forget(link);
    MPI_Comm_free(&comm);
    return NULL;
}

/* What MPI may still write to or read from stays where it is until the process ends, within sight of who looks for leaks. */
void clef__mpi_close(clef__mpi_link *link) {
    static clef__mpi_link *kept;
    if (link->unusable) {
        link->next = kept;
        kept = link;
        return;
    }
    MPI_Comm_free(&link->comm);
    forget(link);
}
