/* runtime_support.h — what the runtime's tests share: a kernel, temporary directories, a log that remembers. */
#ifndef RUNTIME_SUPPORT_H
#define RUNTIME_SUPPORT_H
#include "runtime/runtime_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char add_source[] = "__kernel void add(__global float *x, float y) { x[get_global_id(0)] += y; }\n";

/* Makes a fresh directory of the calling process under $TMPDIR. */
static inline const char *temporary_dir(void) {
    static char path[256];
    const char *base = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/clef-test-XXXXXX", base && *base ? base : "/tmp");
    return mkdtemp(path);
}

static inline void remove_dir(const char *path) {
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0) fprintf(stderr, "%s stays\n", path);
}

/* Adds y to so many floats on the device and says whether the sums came back right in x, where a read that fails may still write
   until the device is finished. */
enum { ADDED = 300 };
static inline bool add_works_in(clef__device *device, const char *source, float x[ADDED]) {
    static const size_t global[3] = {ADDED, 1, 1}, local[3] = {1, 1, 1}, bytes = ADDED * sizeof *x;
    float y = 0.5f;
    bool good = true;
    for (int i = 0; i < ADDED; i++) x[i] = (float)i;
    clef__kernel *kernel = clef__kernel_new(device, source, "", "add");
    clef__buffer *buffer = clef__buffer_new(device, bytes);
    good = kernel && buffer && clef__buffer_write(buffer, 0, x, bytes) == CLEF_OK;
    memset(x, 0, bytes);
    good = good && clef__kernel_set_buffer(kernel, 0, buffer) == CLEF_OK && clef__kernel_set(kernel, 1, sizeof y, &y) == CLEF_OK;
    good = good && clef__kernel_launch(kernel, global, local, "add") == CLEF_OK;
    good = good && clef__buffer_read(buffer, 0, x, bytes) == CLEF_OK;
    for (int i = 0; good && i < ADDED; i++) good = x[i] == (float)i + 0.5f;
    clef__buffer_release(buffer);
    clef__kernel_free(kernel);
    return good;
}

static inline bool add_works(clef__device *device, const char *source) {
    static _Thread_local float x[ADDED];
    return add_works_in(device, source, x);
}

/* Runs what() in a child, before OpenCL is started here: some drivers crash where others return an error. */
static inline bool survives(void (*what)(void)) {
    pid_t child = fork();
    if (child == 0) {
        what();
        _exit(0);
    }
    int state = 1;
    return child > 0 && waitpid(child, &state, 0) == child && state == 0;
}

/* A log callback that keeps the last lines and counts by level. */
typedef struct memory_log {
    int count[4];
    char last[CLEF__LINE], all[8192];
} memory_log;

static inline void remember(void *user, clef_log_level level, const char *line) {
    memory_log *log = user;
    log->count[level]++;
    snprintf(log->last, sizeof log->last, "%s", line);
    size_t used = strlen(log->all);
    snprintf(log->all + used, sizeof log->all - used, "%s\n", line);
}
#endif
