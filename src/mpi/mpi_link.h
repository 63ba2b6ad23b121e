/* mpi_link.h — the transport of ranks that are MPI processes.

   One thread of a process calls MPI, the one that has opened the link: it serves (mpi_serve.c) what the rank's own threads ask for by the
   table of the transport (mpi_transport.c), and moves messages on while these compute, so that nobody waits for a message longer than
   it travels.

   A message is a head, its size and up to CLEF__MPI_EAGER bytes of it, and, if it is larger, pieces of at most link->piece bytes.  Of each
   pair of ranks one head or piece is under way at a time (mpi_message.c).  Beside them go notices (mpi_notice.c): the last word of each rank,
   after which it sends nothing, and signs of life to those who have ended and wait.

   It uses the public headers only and is linked like any program; memory comes from malloc. */
#ifndef CLEF_MPI_LINK_H
#define CLEF_MPI_LINK_H
#include "clef/mpi.h"
#include "clef/transport.h"
#include <pthread.h>

enum {
    CLEF__MPI_EAGER = 4096,    /* a message of so many bytes goes with its head */
    CLEF__MPI_PIECE = 1 << 26, /* bytes of a piece: MPI counts in int */
    CLEF__MPI_NAME = 160,      /* bytes of a rank's name */
    CLEF__MPI_WAIT = 400,      /* bytes of what it waits for */
    CLEF__MPI_SILENCE = 5      /* seconds after which those who wait for others to end take a silent one for dead */
};

enum { CLEF__MPI_TAG_HEAD = 1, CLEF__MPI_TAG_PIECE, CLEF__MPI_TAG_NOTICE };

typedef struct clef__mpi_head {
    uint64_t n; /* of the whole message */
    unsigned char bytes[CLEF__MPI_EAGER];
} clef__mpi_head;

/* A message on its way out: a copy. */
typedef struct clef__mpi_outgoing clef__mpi_outgoing;
struct clef__mpi_outgoing {
    clef__mpi_outgoing *next;
    size_t posted, end; /* bytes, the 8 of the size among them */
    uint64_t message[]; /* the size, the bytes */
};

/* What arrives for one parcel of an exchange. */
typedef struct clef__mpi_arrival {
    enum { CLEF__MPI_WAITS, CLEF__MPI_HEAD, CLEF__MPI_PIECES, CLEF__MPI_ARRIVED } stage;
    size_t at; /* bytes of the parcel that are there */
    MPI_Request request;
    clef__mpi_head head;
} clef__mpi_arrival;

/* An exchange that another thread waits for. */
typedef struct clef__mpi_job {
    const clef_parcel *out, *in;
    int n_out, n_in;
    double timeout; /* 0: for ever */
    bool begun, done;
    clef_status status;                                                    /* once it is done */
    double quiet;                                                          /* seconds since anything arrived */
    bool told;                                                             /* the others were told that it waits */
    void (*describe)(const void *what, int rank, char *text, size_t size); /* what it waits for; NULL: not known */
    const void *what;
    clef__mpi_arrival *arrival; /* [n_in] */
} clef__mpi_job;

typedef enum clef__mpi_word { CLEF__MPI_ALIVE, CLEF__MPI_BLOCKED, CLEF__MPI_ENDED, CLEF__MPI_FAILED } clef__mpi_word;

/* As many bytes of it travel as its line needs. */
typedef struct clef__mpi_notice {
    uint64_t sent;        /* heads and pieces to the one who gets this, in all; with a last word */
    int32_t word, awaits; /* awaits: for whom it waits */
    char line[CLEF_TRANSPORT_LINE];
} clef__mpi_notice;

/* Another rank, as this one sees it. */
typedef struct clef__mpi_peer {
    char name[CLEF__MPI_NAME];
    clef__mpi_outgoing *first, *last; /* messages to it, the first under way */
    MPI_Request sending;
    uint64_t posted, received; /* heads and pieces */
    bool has_ended;            /* by its last word, */
    uint64_t sent;             /* which says how many there are in all */
    double silent;             /* seconds */
    int awaits;                /* whom it waits for, as it said; -1: nobody, or it has sent something since */
    char wait[CLEF__MPI_WAIT]; /* and for what */
    MPI_Request alive, telling, waiting;
    clef__mpi_notice last_word; /* to it */
} clef__mpi_peer;

typedef struct clef__mpi_link clef__mpi_link;
struct clef__mpi_link {
    clef_transport transport;
    MPI_Comm comm;
    clef__mpi_peer *peer; /* [size] */
    size_t piece;         /* bytes */
    /* What the rank's threads ask for; lock guards it. */
    pthread_mutex_t lock;
    pthread_cond_t asked, answered;
    clef__mpi_job *job;
    void (*describe)(const void *what, int rank, char *text, size_t size);
    const void *what;
    bool has_ended;                 /* `fail` was called, */
    char line[CLEF_TRANSPORT_LINE]; /* with this; "": with none */
    clef_status broken;             /* what all exchanges give from now on, */
    clef_transport_failure why;     /* and why; written by the serving thread alone */
    /* Of the serving thread. */
    char end_line[CLEF_TRANSPORT_LINE]; /* of the first other rank that failed or died; "": none */
    bool told;                          /* the last word was said */
    bool unusable;                      /* MPI may still write where it was asked to: it is not called any more */
    MPI_Request noticing;               /* receives the next notice */
    clef__mpi_notice notice;
    clef__mpi_notice sign; /* of life */
    clef__mpi_notice wait; /* that this rank waits */
    double clock;          /* of the last look at it */
    double since_sign;     /* seconds */
    void *drained;         /* a message that nobody asked for */
    MPI_Request draining;
    int drained_from;
    bool drained_any;     /* of the rank `drained_from` */
    clef__mpi_link *next; /* of those that are closed but unusable */
};

/* mpi_transport.c.  A link over a communicator of its own, made of `comm`.  All processes call this at once, and all succeed or none; NULL:
   line (of CLEF_TRANSPORT_LINE bytes) says why.  name: of this rank. */
clef__mpi_link *clef__mpi_open(MPI_Comm comm, const char *name, char *line);
/* After clef__mpi_finish.  What MPI may still use stays. */
void clef__mpi_close(clef__mpi_link *link);

/* mpi_serve.c.  Serves until transport.fail is called.  By the thread that opened the link, as the next one. */
void clef__mpi_serve(clef__mpi_link *link);
/* Then waits until all ranks have ended and nothing is under way any more.  CLEF_GROUP where another failed or died: line says which. */
clef_status clef__mpi_finish(clef__mpi_link *link, char *line);

/* From now on all exchanges fail for this reason, if there was none before.  rank: as of clef_transport_failure. */
void clef__mpi_break(clef__mpi_link *link, clef_status status, int rank, const char *line);
/* The same, as another rank failed or died. */
void clef__mpi_end_run(clef__mpi_link *link, const char *line);
/* Is it MPI_SUCCESS?  Else the link breaks. */
bool clef__mpi_good(clef__mpi_link *link, int code, const char *call);
/* Has the request of this call come to its end?  Not where there is none. */
bool clef__mpi_over(clef__mpi_link *link, MPI_Request *request, MPI_Status *status, const char *call);
/* Seconds since the last call, of those in which this process ran: one that was suspended did not wait for the others. */
double clef__mpi_elapsed(clef__mpi_link *link);
/* The moment so many seconds from now, for waits on a condition made by clef__mpi_monotonic. */
struct timespec clef__mpi_after(double seconds);
void clef__mpi_monotonic(pthread_cond_t *condition);

/* mpi_message.c.  Those that return bool say whether anything has moved, but for the questions. */
bool clef__mpi_begin_job(clef__mpi_link *link, clef__mpi_job *job); /* false: the link is broken */
bool clef__mpi_move_job(clef__mpi_link *link, clef__mpi_job *job);
bool clef__mpi_job_is_done(const clef__mpi_job *job);
/* Which rank it waits for. */
int clef__mpi_job_waits_for(const clef__mpi_job *job);
/* Nothing is received for it any more; where that cannot be had, the link is unusable. */
void clef__mpi_end_job(clef__mpi_link *link, clef__mpi_job *job);
bool clef__mpi_move_sends(clef__mpi_link *link);
bool clef__mpi_has_sends(const clef__mpi_link *link);
void clef__mpi_drop_sends(clef__mpi_link *link);                   /* those that are not under way */
uint64_t clef__mpi_sends_to(const clef__mpi_link *link, int rank); /* heads and pieces in all, those to come among them */

/* mpi_drain.c.  Messages of ranks that have ended which nobody asked for: without receiving them MPI cannot end. */
bool clef__mpi_drain(clef__mpi_link *link);
bool clef__mpi_is_drained(const clef__mpi_link *link);

/* mpi_notice.c. */
bool clef__mpi_listen(clef__mpi_link *link); /* has a notice come? */
void clef__mpi_stop_listening(clef__mpi_link *link);
void clef__mpi_say_what_it_waits_for(clef__mpi_link *link, clef__mpi_job *job, int rank);
void clef__mpi_say_last_word(clef__mpi_link *link);
void clef__mpi_give_sign(clef__mpi_link *link, double elapsed); /* of life, to those who have ended */
bool clef__mpi_is_understood(clef__mpi_link *link);             /* have the notices left? */
#endif
