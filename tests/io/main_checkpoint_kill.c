/* A child trains and saves a checkpoint after every step; it is killed at a random moment and started again from
   its file, until it has done all steps.  The file always loads, and the end equals a run that was never killed.
   ctest: cost=15 cached plain */
#include "support/io_files.h"
#include "support/plain.h"
#include "training.h"
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__)
enum { KILLS = 3 }; /* starting takes long there, and the file is the same */
#else
enum { KILLS = 100 };
#endif

/* Trains to the last step from whatever the file says, telling its parent of every step through `tell`. */
static int child(const char *path, int64_t steps, int tell) {
    training t;
    if (!training_open(&t, 3, true)) {
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
        if (write(tell, "s", 1) != 1) return 5;
    }
    clef_close(t.ctx);
    return 0;
}

static pid_t start(const char *program, const char *path, int64_t steps, int *told) {
    int ends[2];
    char until[32], tell[16];
    if (pipe(ends) != 0) return -1;
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        snprintf(until, sizeof until, "%lld", (long long)steps);
        snprintf(tell, sizeof tell, "%d", ends[1]);
        execl(program, program, path, until, tell, (char *)NULL);
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

/* Lets a child make some steps, kills it at any moment of the next one, and returns how many it told of. */
static int kill_one(const char *program, const char *path, unsigned *random) {
    int told = -1, steps = 0, status;
    pid_t pid = start(program, path, INT32_MAX, &told);
    char s;
    *random = *random * 1103515245u + 12345u;
    int before = 1 + (int)(*random >> 16) % 3;
    double last = seconds(), step = 0.001;
    while (steps < before && read(told, &s, 1) == 1) {
        step = seconds() - last, last = seconds();
        steps++;
    }
    *random = *random * 1103515245u + 12345u;
    if (steps == before) pause_for((step < 0.1 ? step : 0.1) * (double)(*random >> 8) / 0x1p24);
    kill(pid, SIGKILL);
    while (read(told, &s, 1) == 1) steps++;
    close(told);
    waitpid(pid, &status, 0);
    EXPECT(WIFSIGNALED(status));
    return steps;
}

static void run_to(const char *program, const char *path, int64_t steps) {
    int told = -1, status;
    pid_t pid = start(program, path, steps, &told);
    for (char s; read(told, &s, 1) == 1;) continue;
    close(told);
    waitpid(pid, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    if (argc == 4) return child(argv[1], atoll(argv[2]), atoi(argv[3]));
    if (clef_device_count() == 0) return without_context();
    char dir[512], path[600], whole[600];
    snprintf(dir, sizeof dir, "%s", io_scratch());
    snprintf(path, sizeof path, "%s/killed.ckpt", dir);
    snprintf(whole, sizeof whole, "%s/whole.ckpt", dir);
    unsigned random = 4711;
    int64_t told = 0;
    for (int k = 0; k < KILLS && io_failures == 0; k++) told += kill_one(argv[0], path, &random);
    /* A child may have been killed between saving and telling: hence not `told` alone. */
    run_to(argv[0], path, told + KILLS + 1);
    run_to(argv[0], whole, told + KILLS + 1);
    printf("checkpoint: killed %d times on the way to step %lld\n", KILLS, (long long)told + KILLS + 1);
    expect_same_files(path, whole);
    EXPECT(io_count(dir) == 2);
    io_remove(dir);
    printf("checkpoint: %d failures\n", io_failures);
    return io_failures != 0;
}
