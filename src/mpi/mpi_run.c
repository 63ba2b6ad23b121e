/* mpi_run.c — clef_run_mpi: MPI itself, which device this process has, and the rank in a thread of its own. */
#include "mpi/mpi_link.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct run {
    const clef_mpi_options *options;
    clef_rank_fn fn;
    void *user;
    clef__mpi_link *link;
    char host[MPI_MAX_PROCESSOR_NAME];
    int local, n_local; /* which of the processes on this machine it is */
    clef_status status;
    char line[CLEF_TRANSPORT_LINE];
} run;

/* ---- MPI ---- */
static clef_status refuse(const char *why) {
    char line[CLEF_TRANSPORT_LINE];
    snprintf(line, sizeof line, "run_mpi: %s", why);
    return clef_transport_error(CLEF_STATE, line);
}

/* May this thread call it? */
static clef_status look_at_thread(void) {
    int level = MPI_THREAD_SINGLE, is_main = 0;
    MPI_Query_thread(&level);
    MPI_Is_thread_main(&is_main);
    if (level >= MPI_THREAD_SERIALIZED || is_main) return CLEF_OK;
    return refuse(
        "only the thread that initialised MPI may call it; call this there, or ask MPI_Init_thread for MPI_THREAD_SERIALIZED");
}

/* Of the options, where they name one. */
static clef_status choose_comm(const clef_mpi_options *options, MPI_Comm *comm) {
    static const clef_mpi_options none;
    int between = 0;
    *comm = options->comm == none.comm ? MPI_COMM_WORLD : options->comm;
    if (*comm == MPI_COMM_NULL) return refuse("comm is MPI_COMM_NULL");
    MPI_Comm_test_inter(*comm, &between);
    return between ? refuse("comm is an intercommunicator; ranks are the processes of an intracommunicator") : CLEF_OK;
}

static void count_neighbours(run *r) {
    MPI_Comm machine;
    r->local = 0;
    r->n_local = 1;
    if (MPI_Comm_split_type(r->link->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine) != MPI_SUCCESS) return;
    MPI_Comm_rank(machine, &r->local);
    MPI_Comm_size(machine, &r->n_local);
    MPI_Comm_free(&machine);
}

/* ---- the rank ---- */
static clef_status run_on_device(run *r) {
    char device[256], name[CLEF__MPI_NAME + 256];
    const clef_transport *own = &r->link->transport, *t = r->options->wrap ? r->options->wrap(own, r->options->wrap_user) : own;
    clef_options options = r->options->context;
    if (!t) {
        snprintf(r->line, sizeof r->line, "rank %d (%.80s): wrap returned NULL", own->rank, r->host);
        own->fail(own, r->line);
        return CLEF_MEMORY;
    }
    clef_status status = clef_rank_device(r->options->devices, r->local, r->n_local, device, sizeof device);
    if (status != CLEF_OK) {
        snprintf(r->line, sizeof r->line, "rank %d (%.80s): %.800s", t->rank, r->host, clef_error(NULL));
        t->fail(t, r->line);
        return status;
    }
    options.device = device;
    snprintf(name, sizeof name, "rank %d (%.80s, device %.50s)", t->rank, r->host, device);
    status = clef_run_rank(t, &options, r->options->name ? r->options->name : name, r->options->timeout, r->fn, r->user);
    if (status != CLEF_OK) snprintf(r->line, sizeof r->line, "%s", clef_error(NULL));
    return status;
}

static void *rank_thread(void *of) {
    run *r = of;
    r->status = run_on_device(r);
    return NULL;
}

/* The first failure: this rank's own, or what is known of the others at the end. */
static clef_status run_rank(run *r) {
    pthread_t thread;
    char line[CLEF_TRANSPORT_LINE];
    const clef_transport *t = &r->link->transport;
    int code = pthread_create(&thread, NULL, rank_thread, r);
    if (code != 0) {
        r->status = CLEF_MEMORY;
        snprintf(r->line, sizeof r->line, "rank %d (%.80s): its thread did not start (error %d of the system)", t->rank, r->host,
                 code);
        t->fail(t, r->line);
    }
    clef__mpi_serve(r->link);
    clef_status end = clef__mpi_finish(r->link, line);
    if (code == 0) pthread_join(thread, NULL);
    return r->status != CLEF_OK ? clef_transport_error(r->status, r->line) : clef_transport_error(end, line);
}

static clef_status run_over(run *r, MPI_Comm comm, bool *usable) {
    char name[CLEF__MPI_NAME], line[CLEF_TRANSPORT_LINE];
    int rank = 0, length;
    MPI_Get_processor_name(r->host, &length);
    MPI_Comm_rank(comm, &rank);
    snprintf(name, sizeof name, "rank %d (%.80s)", rank, r->host);
    r->link = clef__mpi_open(comm, name, line);
    if (!r->link) return clef_transport_error(CLEF_GROUP, line);
    count_neighbours(r);
    clef_status status = run_rank(r);
    *usable = !r->link->unusable;
    clef__mpi_close(r->link);
    return status;
}

static clef_status run_in_mpi(run *r, bool *usable) {
    MPI_Comm comm;
    clef_status status = choose_comm(r->options, &comm);
    *usable = true;
    return status == CLEF_OK ? run_over(r, comm, usable) : status;
}

/* ---- MPI that is Clef's ---- */
/* From MPI_Init to MPI_Finalize in one thread, as MPI wants it.  Nobody can end MPI_Finalize, which waits for all processes, when one of them is
   killed inside it: so the caller waits for that thread, and goes on without it if need be. */
typedef struct life {
    run run;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { CLEF__MPI_RUNS, CLEF__MPI_FINALISES, CLEF__MPI_FINALISED } stage;
    clef_status status; /* of the run, */
    char line[CLEF_TRANSPORT_LINE];
} life;

static void reach(life *l, int stage) {
    pthread_mutex_lock(&l->lock);
    l->stage = stage;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

static void *live(void *of) {
    life *l = of;
    int level;
    bool usable = false;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS) l->status = refuse("MPI_Init_thread failed");
    else l->status = run_in_mpi(&l->run, &usable);
    snprintf(l->line, sizeof l->line, "%s", clef_error(NULL));
    reach(l, CLEF__MPI_FINALISES);
    if (usable) MPI_Finalize();
    reach(l, CLEF__MPI_FINALISED);
    return NULL;
}

/* In short waits: the time while this process was suspended counts as one of them. */
static bool is_finalised(life *l) {
    enum { EACH = 10 }; /* in a second */
    pthread_mutex_lock(&l->lock);
    while (l->stage == CLEF__MPI_RUNS) pthread_cond_wait(&l->changed, &l->lock);
    for (int i = 0; i < CLEF__MPI_SILENCE * EACH && l->stage != CLEF__MPI_FINALISED; i++) {
        struct timespec until = clef__mpi_after(1.0 / EACH);
        pthread_cond_timedwait(&l->changed, &l->lock, &until);
    }
    bool finalised = l->stage == CLEF__MPI_FINALISED;
    pthread_mutex_unlock(&l->lock);
    return finalised;
}

static clef_status never_finalised(const life *l) {
    char line[160];
    snprintf(line, sizeof line,
             "run_mpi: MPI_Finalize has not returned for %d s: a process has died in it or hangs; all ranks had ended before",
             CLEF__MPI_SILENCE);
    return l->status == CLEF_OK ? clef_transport_error(CLEF_GROUP, line) : clef_transport_error(l->status, l->line);
}

static clef_status run_with_own_mpi(const run *r) {
    pthread_t thread;
    life *l = calloc(1, sizeof *l);
    if (!l) return clef_transport_error(CLEF_MEMORY, "run_mpi: no host memory for MPI's thread");
    l->run = *r;
    pthread_mutex_init(&l->lock, NULL);
    clef__mpi_monotonic(&l->changed);
    int code = pthread_create(&thread, NULL, live, l);
    if (code == 0 && !is_finalised(l)) {
        pthread_detach(thread);
        return never_finalised(l); /* the thread still has it */
    }
    if (code == 0) pthread_join(thread, NULL);
    clef_status status = code == 0 ? clef_transport_error(l->status, l->line)
                                   : clef_transport_error(CLEF_MEMORY, "run_mpi: MPI's thread did not start");
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
    return status;
}

/* ---- the calls ---- */
clef_status clef_run_mpi_with(const clef_mpi_options *options, clef_rank_fn fn, void *user) {
    static const clef_mpi_options defaults;
    run r = {.options = options ? options : &defaults, .fn = fn, .user = user};
    int initialised = 0, finalised = 0;
    bool usable;
    if (!fn) return clef_transport_error(CLEF_INVALID, "run_mpi: fn is NULL");
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    if (finalised)
        return refuse("MPI was finalised; a program that runs ranks more than once calls MPI_Init_thread and MPI_Finalize itself");
    if (!initialised) return run_with_own_mpi(&r);
    clef_status status = look_at_thread();
    return status == CLEF_OK ? run_in_mpi(&r, &usable) : status;
}

clef_status clef_run_mpi(clef_rank_fn fn, void *user) { return clef_run_mpi_with(NULL, fn, user); }

clef_status clef_run_mpi_ranks(const char *devices, const clef_ranks_options *options, clef_rank_fn fn, void *user) {
    clef_mpi_options as = {.devices = devices};
    if (options) {
        as.context = options->context;
        as.timeout = options->timeout;
        as.wrap = options->wrap;
        as.wrap_user = options->wrap_user;
    }
    return clef_run_mpi_with(&as, fn, user);
}
