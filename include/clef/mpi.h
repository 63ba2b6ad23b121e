/* clef/mpi.h — ranks that are the processes of an MPI program.

   A library of its own, libclef-mpi (CMake: Clef::mpi), so that Clef itself needs no MPI.  The function that clef_run_ranks runs in
   threads runs here once in each process, unchanged:
       int main(void) { return clef_run_mpi(train, NULL) == CLEF_OK ? 0 : (fprintf(stderr, "%s\n", clef_error(NULL)), 1); }
       mpirun -n 4 --bind-to none ./train

   Who calls MPI: one thread alone, which serves the transport until all ranks have ended; `fn` runs in another.  So any thread level of MPI
   will do.  It is the calling thread; where MPI was not initialised, it is a thread of Clef's own, which also initialises MPI and finalises
   it.  A program that calls MPI itself within `fn` must have initialised it with MPI_THREAD_MULTIPLE.  All messages go over a communicator of
   Clef's own.

   Processes must be of one kind of machine: numbers are sent as they lie in memory. */
#ifndef CLEF_MPI_H
#define CLEF_MPI_H
#include "group.h"
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct clef_mpi_options {
    clef_options context; /* of this rank; `device` is not looked at */
    const char
        *devices;      /* as for clef_run_ranks, "0,1", "0/2": process i of the n on a machine has entry i, counted round and round.
                             NULL: $CLEF_DEVICE; without it, all devices that are of the type and platform of the best, and each process
                             has one of n equal parts of it where this is a single CPU of at least n compute units */
    double timeout;    /* seconds that a rank waits for another before the group fails; 0: 300, below 0: for ever */
    const char *name;  /* what error lines call this rank; NULL: "rank 1 (HOST, device 0)" */
    MPI_Comm comm;     /* whose processes are the ranks, in its order; 0: MPI_COMM_WORLD */
    clef_wrap_fn wrap; /* as of clef_ranks_options */
    void *wrap_user;
} clef_mpi_options;

/* Runs `fn` in each process of the communicator with a context of its own, and waits until it has ended in all of them.  Every process
   calls it at once.  CLEF_OK: all succeeded; else clef_error(NULL) says what failed here, or in another process (CLEF_GROUP).  Then MPI is
   not finalised if a process has died, as that would wait for it: return from main, and mpirun ends what is left.  The same after
   MPI_Finalize has not returned for 5 s, though all ranks had ended (CLEF_GROUP, with a line that says so): a process has died in it.
       clef_run_mpi_with(&(clef_mpi_options){.devices = "gpu", .timeout = 60}, train, NULL);  */
CLEF_API clef_status clef_run_mpi(clef_rank_fn fn, void *user);
CLEF_API clef_status clef_run_mpi_with(const clef_mpi_options *options, clef_rank_fn fn, void *user);
/* The same without a word of MPI's own, for programs that load this library as they run and need none else: in the processes of
   MPI_COMM_WORLD.  devices: as in clef_mpi_options; of the options context, timeout and wrap, NULL: defaults.
       run = dlsym(dlopen("libclef-mpi.so.0.1", RTLD_NOW | RTLD_GLOBAL), "clef_run_mpi_ranks");  */
CLEF_API clef_status clef_run_mpi_ranks(const char *devices, const clef_ranks_options *options, clef_rank_fn fn, void *user);

#ifdef __cplusplus
}
#endif
#endif
