/* A child trains and saves a checkpoint after every step; it is killed at a random moment and started again from its file,
   until it has done all steps.  The file always loads, and the end equals a run that was never killed.
   ctest: timeout=300 */
#include "support/io_files.h"
#include "training.h"
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { STEPS = 150, KILLS = 25 };

/* Trains to the last step from whatever the file says, telling its parent of every step through `tell`. */
static int child(const char *path, int steps, int tell) {
    training t;
    if (!training_open(&t, 3)) {
        fprintf(stderr, "%s\n", clef_error(t.ctx));
        return 1;
    }
    clef_checkpoint parts = training_parts(&t);
    if (access(path, F_OK) == 0 && clef_checkpoint_load(t.ctx, path, &parts) != CLEF_OK) {
        fprintf(stderr, "%s\n", clef_error(t.ctx));
        return 2;
    }
    t.steps = parts.epoch;
    while (t.steps < steps) {
        if (!training_run(&t, 1)) return 3;
        parts = training_parts(&t);
        if (clef_checkpoint_save(t.ctx, path, &parts) != CLEF_OK) {
            fprintf(stderr, "%s\n", clef_error(t.ctx));
            return 4;
        }
        if (tell >= 0 && write(tell, "s", 1) != 1) return 5;
    }
    clef_close(t.ctx);
    return 0;
}

static pid_t start(const char *program, const char *path, int *told) {
    int ends[2];
    char steps[16], tell[16];
    if (pipe(ends) != 0) return -1;
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        snprintf(steps, sizeof steps, "%d", STEPS);
        snprintf(tell, sizeof tell, "%d", ends[1]);
        execl(program, program, path, steps, tell, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *told = ends[0];
    return pid;
}

static void pause_for(double time) {
    struct timespec t = {(time_t)time, (long)(1e9 * (time - (double)(time_t)time))};
    nanosleep(&t, NULL);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void expect_same_files(const char *a, const char *b) {
    io_bytes x = io_slurp(a), y = io_slurp(b);
    EXPECT(x.size > 0 && x.size == y.size && memcmp(x.data, y.data, x.size) == 0);
    free(x.data);
    free(y.data);
}

int main(int argc, char **argv) {
    if (argc == 4) return child(argv[1], atoi(argv[2]), atoi(argv[3]));
    if (clef_device_count() == 0) {
        printf("skipped: no OpenCL device\n");
        return 77;
    }
    char dir[512], path[600], whole[600];
    snprintf(dir, sizeof dir, "%s", io_scratch());
    snprintf(path, sizeof path, "%s/killed.ckpt", dir);
    snprintf(whole, sizeof whole, "%s/whole.ckpt", dir);
    unsigned random = 4711;
    int killed = 0, told;
    for (bool done = false; !done && io_failures == 0;) {
        pid_t pid = start(argv[0], path, &told);
        char s;
        /* Some steps, then any moment of the next one. */
        random = random * 1103515245u + 12345u;
        int before = 1 + (int)(random >> 16) % 4, got = 0;
        double last = seconds(), step = 0.001;
        while (got < before && read(told, &s, 1) == 1) {
            step = seconds() - last, last = seconds();
            got++;
        }
        random = random * 1103515245u + 12345u;
        if (killed < KILLS && got == before) {
            pause_for((step < 0.1 ? step : 0.1) * (double)(random >> 8) / 0x1p24);
            kill(pid, SIGKILL);
        }
        while (read(told, &s, 1) == 1) continue;
        close(told);
        int status;
        waitpid(pid, &status, 0);
        if (WIFSIGNALED(status)) killed++;
        else EXPECT(WEXITSTATUS(status) == 0);
        done = WIFEXITED(status);
    }
    printf("checkpoint: killed %d times\n", killed);
    EXPECT(killed == KILLS);
    pid_t pid = fork();
    if (pid == 0) {
        char steps[16];
        snprintf(steps, sizeof steps, "%d", STEPS);
        execl(argv[0], argv[0], whole, steps, "-1", (char *)NULL);
        _exit(127);
    }
    int status;
    waitpid(pid, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    expect_same_files(path, whole);
    EXPECT(io_count(dir) == 2);
    io_remove(dir);
    printf("checkpoint: %d failures\n", io_failures);
    return io_failures != 0;
}
