/* clef/transport.h — how bytes go from one rank to another, for those who bring a transport of their own.

   A transport is a table of a few functions on host memory.  Clef has two: threads of one process, which see each other's memory
   (clef_run_ranks), and MPI (clef/mpi.h).  Everything above, what is sent and in which order, is Clef's.

   One thread of a rank calls these at a time but `fail`, not always the same one.  Between each two ranks messages arrive in the order in which they
   were sent.  None of the functions may call Clef. */
#ifndef CLEF_TRANSPORT_H
#define CLEF_TRANSPORT_H
#include "group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct clef_parcel {
    int rank; /* whom it goes to, or comes from */
    void *bytes;
    size_t n;
} clef_parcel;

enum { CLEF_TRANSPORT_LINE = 1024 };

/* Why a function failed. */
typedef struct clef_transport_failure {
    int rank; /* from 0: `line` says what this rank did, to stand behind its name: "sent nothing for 300 s"; -1: it stands for itself */
    char line[CLEF_TRANSPORT_LINE];
} clef_transport_failure;

typedef struct clef_transport clef_transport;
struct clef_transport {
    const char *name; /* "threads"; in error lines */
    int rank, size;
    void *state;
    /* Sends n_out parcels and receives n_in, in any order among them but for those of one pair of ranks.  It returns when all of `in` have
       arrived and `out` may be overwritten; it may not wait for the receivers of `out` to call it (it copies, or sends later from a copy).
       A rank may send to itself.  An incoming message has exactly the size asked for; else it fails.  0 parcels: nothing.
       timeout: seconds without any progress after which it fails; 0: for ever.  On failure *why says why: of a rank that told `fail` a
       line, that line.  CLEF_GROUP where another rank is the cause.  After one failure it always fails, for the same reason. */
    clef_status (*exchange)(const clef_transport *t, const clef_parcel *out, int n_out, const clef_parcel *in, int n_in,
                            double timeout, clef_transport_failure *why);
    /* Tells all other ranks, now or at their next exchange, that this rank has failed with this line; the first such line is what all are
       told.  NULL: it has ended, and only those fail that wait for it.  Never waits long; from any thread. */
    void (*fail)(const clef_transport *t, const char *line);
    /* NULL, or for ranks that see each other's memory: every one of the n `member` ranks, this one among them at `self`, offers pointers, and
       all get everyone's: theirs[m·n_own + i] is own[i] of member m.  It succeeds for all or for none.  Then each calls `meet`, which
       waits for all, equally often, at least once; what the pointers point to stays as it is said until the last of these.  As somebody
       reads one's memory until then, `meet` waits for as long as it takes; members do nothing between the two but copy and compute.  Ranks
       have exchanged messages and agreed who the members are before. */
    clef_status (*begin_sharing)(const clef_transport *t, const int *member, int n, int self, const void *const *own, int n_own,
                                 const void **theirs, double timeout, clef_transport_failure *why);
    void (*meet)(const clef_transport *t, const int *member, int n, int self);
    /* NULL, or what this rank's next exchanges are for, so that a line can tell who waits for whom: describe(what, r, text, size) writes it
       of waiting for rank r.  The transport may call that, from any thread, while it lets this rank wait.  describe NULL: nothing more. */
    void (*say)(const clef_transport *t, void (*describe)(const void *what, int rank, char *text, size_t size), const void *what);
};

/* Opens a context for this rank, runs `fn` with the group of all ranks of the transport, closes the context, and tells the other ranks
   how it ended.  What clef_run_ranks does in each of its threads, and clef_run_mpi in its process.  The transport must live until it
   returns, and until the process ends where a device was lost and clef_close had to leave something.  options: of the context; name: of
   this rank in error lines, NULL: "rank 0 (DEVICE)".  timeout: as of clef_ranks_options.  The line of a failure is in clef_error(NULL). */
CLEF_API clef_status clef_run_rank(const clef_transport *transport, const clef_options *options, const char *name, double timeout,
                                   clef_rank_fn fn, void *user);
/* Makes `line` this thread's open error, as a failure of clef_run_rank does: for what goes wrong with the transport around it.  Returns
   the status. */
CLEF_API clef_status clef_transport_error(clef_status status, const char *line);
/* Which device the i-th (from 0) of n ranks on this machine opens, into `device` of `size` bytes: entry i of a list as for clef_run_ranks,
   counted round and round.  NULL: of $CLEF_DEVICE; without it, of all devices that have the type and platform of the best.  Where
   that is a single CPU of n compute units or more, and CLEF_THREADS does not say how many to use, "0/2#1": one of n equal parts of it. */
CLEF_API clef_status clef_rank_device(const char *devices, int i, int n, char *device, size_t size);

#ifdef __cplusplus
}
#endif
#endif
