/* finalize_rank HOW MICROSECONDS FOLDER: ranks that end well, and of which the last does not come out of MPI_Finalize.  HOW: "hangs", it stays in
   there; "killed", it kills itself so long after it went in.  Each of the others prints "ended: " and its line, if it has one, and
   FOLDER gets a file for every process, named after its number.  For tests/mpi/finalize.sh. */
#include "clef.h"
#include "clef/mpi.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool is_victim, hangs;
static long microseconds;

static void *kill_this(void *unused) {
    struct timespec moment = {0, microseconds * 1000};
    (void)unused;
    nanosleep(&moment, NULL);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* In front of MPI's own, as its interface for profilers allows. */
int MPI_Finalize(void) {
    pthread_t killer;
    while (is_victim && hangs) pause();
    if (is_victim) pthread_create(&killer, NULL, kill_this, NULL);
    int code = PMPI_Finalize();
    if (is_victim) pthread_join(killer, NULL);
    return code;
}

static clef_status work(clef_context *ctx, clef_group *all, void *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%ld", (const char *)folder, (long)getpid());
    fclose(fopen(path, "w"));
    is_victim = clef_group_rank(all) == clef_group_size(all) - 1;
    clef_item(clef_all_reduce(clef_ones(ctx, CLEF_SHAPE(1), CLEF_F32), all, CLEF_GROUP_SUM));
    return clef_error_status(ctx);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    hangs = !strcmp(argv[1], "hangs");
    microseconds = atol(argv[2]);
    clef_status status = clef_run_mpi_with(&(clef_mpi_options){.devices = "0"}, work, argv[3]);
    printf("ended: %s\n", status ? clef_error(NULL) : "well");
    return status == CLEF_NO_DEVICE ? 77 : status ? 1 : 0;
}
