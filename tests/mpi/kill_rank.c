/* kill_rank VICTIM MILLISECONDS FOLDER: ranks that work together for ever, until one kills itself in the midst of it.  Each of the others prints
   how it ended, "rank 0 ended: LINE".  FOLDER gets a file for every process, named after its number.  For tests/mpi/kill.sh. */
#include "clef.h"
#include "clef/mpi.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MANY = 300000 };

static long milliseconds;

static void *kill_this(void *unused) {
    struct timespec moment = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    (void)unused;
    nanosleep(&moment, NULL);
    kill(getpid(), SIGKILL);
    return NULL;
}

static clef_status work(clef_context *ctx, clef_group *all, void *user) {
    const char *const *argv = user;
    pthread_t killer;
    char path[4096];
    snprintf(path, sizeof path, "%s/%ld", argv[3], (long)getpid());
    fclose(fopen(path, "w"));
    clef_tensor *x = clef_keep(clef_ones(ctx, CLEF_SHAPE(MANY), CLEF_F32));
    clef_group_barrier(all);
    if (clef_group_rank(all) == atoi(argv[1])) pthread_create(&killer, NULL, kill_this, NULL);
    for (long step = 0; clef_error_status(ctx) == CLEF_OK; step++) {
        clef_tensor *sum = clef_all_reduce(x, all, CLEF_GROUP_SUM);
        if (step % 3 == 0) clef_eval(sum);
        if (step % 5 == 0) clef_group_barrier(all);
        if (step % 7 == 0) clef_synchronize(ctx);
    }
    return clef_error_status(ctx);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    milliseconds = atol(argv[2]);
    clef_run_mpi_with(&(clef_mpi_options){.devices = "0", .timeout = 2}, work, argv);
    printf("ended: %s\n", clef_error(NULL));
    return clef_error_status(NULL) == CLEF_NO_DEVICE ? 77 : 1;
}
