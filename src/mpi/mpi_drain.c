/* mpi_drain.c — messages of ranks that have ended which nobody asked for. */
#include "mpi/mpi_link.h"
#include <stdlib.h>

static bool owes(const clef__mpi_link *link, int rank) {
    const clef__mpi_peer *p = &link->peer[rank];
    return p->has_ended && p->received < p->sent;
}

bool clef__mpi_is_drained(const clef__mpi_link *link) {
    for (int r = 0; r < link->transport.size; r++)
        if (owes(link, r)) return false;
    return link->draining == MPI_REQUEST_NULL;
}

/* Begins to receive what has come from this rank, of either kind. */
static void begin(clef__mpi_link *link, int rank, int tag) {
    MPI_Message message;
    MPI_Status status;
    int come = 0, n = 0;
    if (!clef__mpi_good(link, MPI_Improbe(rank, tag, link->comm, &come, &message, &status), "MPI_Improbe") || !come) return;
    MPI_Get_count(&status, MPI_BYTE, &n);
    link->drained = malloc(n ? (size_t)n : 1);
    link->drained_from = rank;
    /* Without memory it stays where it is, and with it whatever MPI has of this link. */
    if (link->drained) clef__mpi_good(link, MPI_Imrecv(link->drained, n, MPI_BYTE, &message, &link->draining), "MPI_Imrecv");
    else link->unusable = true;
}

bool clef__mpi_drain(clef__mpi_link *link) {
    if (link->draining != MPI_REQUEST_NULL) {
        if (!clef__mpi_over(link, &link->draining, MPI_STATUS_IGNORE, "MPI_Imrecv")) return false;
        free(link->drained);
        link->drained = NULL;
        link->peer[link->drained_from].received++;
        link->drained_any = true;
        return true;
    }
    for (int tag = CLEF__MPI_TAG_HEAD; tag <= CLEF__MPI_TAG_PIECE; tag++)
        for (int r = 0; r < link->transport.size && link->draining == MPI_REQUEST_NULL && !link->unusable; r++)
            if (owes(link, r)) begin(link, r, tag);
    return link->draining != MPI_REQUEST_NULL;
}
