/* cores.c — the threads of a CPU's driver, each on a core of its own; and how many cores this process may use.

   A driver's threads sleep between bursts of work.  When they wake up together the system may put two on one core, where they take turns
   for tens of milliseconds, until it moves one: work that comes now and then has part of the machine.  Libraries whose caller is one
   of the threads do not know this.  So each thread is bound to a core, once in a process, when the first context opens the device:
   as many native kernels as it has compute units wait for each other, which takes a thread for each, and then each binds its own.

   Only where they are the only threads for those cores: the whole device is opened, at once or in parts, and the process may run on as
   many cores as it has compute units.  Parts of a CPU that several processes share would meet on the same cores.

   A driver has a thread for each core of the machine, of which a container may leave the process few: by a mask, or by a quota of their
   time, which systems give in control groups (Linux: Documentation/admin-guide/cgroup-v2.rst, cpu.max; scheduler/sched-bwc.rst). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* CPU_SET */
#endif
#include "runtime/runtime_internal.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- quotas ---- */

enum { GROUP_PATH = 4096 };

/* How many numbers the file has, two at most. */
static int read_numbers(const char *directory, const char *name, long long number[2]) {
    char path[GROUP_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "r");
    int n = file ? fscanf(file, "%lld %lld", &number[0], &number[1]) : 0;
    if (file) fclose(file);
    return n > 0 ? n : 0;
}

/* Of one control group: the time that it has in a period by that, rounded up; 0: no limit. */
static uint32_t quota_of(const char *directory) {
    long long of[2] = {0, 0}, period[2] = {0, 0}; /* version 2 has both in one file */
    if (read_numbers(directory, "cpu.max", of) < 2) {
        if (read_numbers(directory, "cpu.cfs_quota_us", of) == 0 || read_numbers(directory, "cpu.cfs_period_us", period) == 0)
            return 0;
        of[1] = period[0];
    }
    return of[0] > 0 && of[1] > 0 ? (uint32_t)((of[0] - 1) / of[1] + 1) : 0;
}

static uint32_t lesser(uint32_t a, uint32_t b) { return a && (!b || a < b) ? a : b; } /* of those that are not 0 */

/* Of the group at `path` and those above it. */
static uint32_t least_quota(const char *mount, const char *controller, char *path) {
    char directory[GROUP_PATH + 32];
    uint32_t least = 0;
    for (;;) {
        snprintf(directory, sizeof directory, "%s%s%s", mount, controller, path);
        least = lesser(least, quota_of(directory));
        char *name = strrchr(path, '/');
        if (!name) return least;
        *name = '\0';
    }
}

/* Lines are "number:controllers:path", version 2's without controllers.  A path that is not there, as in a container that sees the files
   of its own group alone, leaves those above it. */
uint32_t clef__cores_quota(const char *groups, const char *mount) {
    char line[GROUP_PATH];
    uint32_t least = 0;
    FILE *file = fopen(groups, "r");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        for (char *comma = ++controllers; (comma = strchr(comma, ','));) *comma = ' ';
        if (*controllers && !clef__has_word(controllers, "cpu")) continue;
        least = lesser(least, least_quota(mount, *controllers ? "/cpu" : "", path));
    }
    if (file) fclose(file);
    return least;
}

#if defined(__linux__)
#include <sched.h>

bool clef__cores_crowded(const clef__found *found) {
    cpu_set_t allowed;
    uint32_t threads = found->units ? found->units : found->info.compute_units;
    if (!clef__driver_of(&found->info).gathers) return false;
    uint32_t quota = clef__cores_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    return (quota && quota < threads) ||
           (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) < (int)threads);
}

/* ---- binding ---- */

/* What the native kernels of one device have in common. */
typedef struct meeting {
    int threads;
    atomic_int came, bound; /* came below 0: it is off, as not all came in time */
    cpu_set_t allowed;
} meeting;

enum { OFF = INT_MIN / 2 };
static const double PATIENCE = 0.5; /* seconds that one waits for the others: other work may have the threads or the cores */

static int nth_core(const cpu_set_t *allowed, int n) {
    int core = 0;
    while (!CPU_ISSET(core, allowed) || n-- > 0) core++;
    return core;
}

/* Have all come?  Either each is told so or none. */
static bool all_here(meeting *m) {
    for (double end = clef__now() + PATIENCE;; sched_yield()) {
        int came = atomic_load(&m->came);
        if (came == m->threads) return true;
        if (came < 0 || (clef__now() > end && atomic_compare_exchange_strong(&m->came, &came, OFF))) return false;
    }
}

static void CL_CALLBACK come(void *argument) {
    meeting *m = *(meeting **)argument;
    int number = atomic_fetch_add(&m->came, 1);
    if (number < 0 || !all_here(m)) return;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(nth_core(&m->allowed, number), &own);
    if (sched_setaffinity(0, sizeof own, &own) == 0) atomic_fetch_add(&m->bound, 1);
}

/* Calls `come` in as many threads of the driver at the same time.  In a context of its own, as one for parts has no queue for the whole. */
static bool gather(cl_device_id id, meeting *m) {
    cl_int code = CL_SUCCESS;
    cl_context context = clCreateContext(NULL, 1, &id, NULL, NULL, &code);
    cl_command_queue queue = context ? clCreateCommandQueue(context, id, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code) : NULL;
    for (int i = 0; i < m->threads && code == CL_SUCCESS; i++)
        code = clEnqueueNativeKernel(queue, come, (void *)&m, sizeof m, 0, NULL, NULL, 0, NULL, NULL);
    if (code != CL_SUCCESS) atomic_store(&m->came, OFF);
    if (queue) clFinish(queue);
    if (queue) clReleaseCommandQueue(queue);
    if (context) clReleaseContext(context);
    return atomic_load(&m->bound) == m->threads;
}

/* Its meeting; NULL: there was one before in this process.  It stays, as kernels may come when nobody waits for them any more. */
static meeting *meeting_of(cl_device_id id) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static meeting all[CLEF__MAX_DEVICES];
    static cl_device_id of[CLEF__MAX_DEVICES];
    static int n;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < n && of[i] != id) i++;
    bool first = i == n && n < CLEF__MAX_DEVICES;
    if (first) of[n++] = id;
    pthread_mutex_unlock(&lock);
    return first ? &all[i] : NULL;
}

void clef__cores_bind(clef_context *ctx, const clef__found *found, uint32_t opened) {
    cpu_set_t allowed;
    if (!clef__driver_of(&found->info).gathers || ctx->no_affinity || found->units < 2 || opened < found->units) return;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) != (int)found->units) return;
    meeting *m = meeting_of(found->whole);
    if (!m) return;
    m->threads = (int)found->units;
    m->allowed = allowed;
    bool bound = gather(found->whole, m);
    clef__log_line(ctx, CLEF_LOG_DEBUG, "open: the %d threads of %s %s", m->threads, found->info.name,
                   bound ? "have a core each" : "are where the system puts them");
}
#else
bool clef__cores_crowded(const clef__found *found) {
    (void)found;
    return false;
}

void clef__cores_bind(clef_context *ctx, const clef__found *found, uint32_t opened) {
    (void)ctx;
    (void)found;
    (void)opened;
}
#endif
