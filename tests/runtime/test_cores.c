/* Threads of a CPU's driver that are bound to cores.  Every test runs in a process of its own, as they are bound once in a process. */
#define _GNU_SOURCE
#include "runtime_support.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <sched.h>
#include <sys/stat.h>

/* How many threads of this process may run on one core alone, and on how many different cores those are. */
static int bound_threads(int *cores) {
    cpu_set_t all, own;
    int bound = 0, n;
    CPU_ZERO(&all);
    DIR *threads = opendir("/proc/self/task");
    cr_assert_not_null(threads);
    for (struct dirent *entry; (entry = readdir(threads));) {
        if (entry->d_name[0] == '.' || sched_getaffinity(atoi(entry->d_name), sizeof own, &own) != 0 || CPU_COUNT(&own) != 1)
            continue;
        bound++;
        CPU_OR(&all, &all, &own);
    }
    n = CPU_COUNT(&all);
    closedir(threads);
    *cores = n;
    return bound;
}

/* The compute units of a whole CPU whose threads can be bound, all that this process may use; no test else. */
static int units(void) {
    clef_device_info info;
    cpu_set_t allowed;
    unsetenv("CLEF_AFFINITY");
    unsetenv("CLEF_THREADS");
    unsetenv("POCL_AFFINITY");
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = "", .no_affinity = true});
    if (!ctx) cr_skip_test("%s", clef_error(NULL));
    bool whole = clef_context_device_count(ctx) == 1 && !clef__device_at(ctx, 0)->divided;
    clef_context_device(ctx, 0, &info);
    clef_close(ctx);
    if (!whole || !clef__driver_of(&info).gathers || info.compute_units < 2) cr_skip_test("nothing to bind on %s", info.name);
    cr_assert(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    if (CPU_COUNT(&allowed) != (int)info.compute_units) cr_skip_test("this process may not use all compute units");
    return (int)info.compute_units;
}

static void expect_bound(const clef_options *options, int wanted) {
    clef_context *ctx = clef_open(options);
    cr_assert_not_null(ctx, "%s", clef_error(NULL));
    int cores, bound = bound_threads(&cores);
    cr_assert_eq(bound, wanted, "%d threads are bound, not %d", bound, wanted);
    cr_assert_eq(cores, wanted, "they have %d cores", cores);
    float x[ADDED];
    cr_assert(add_works_in(clef__device_at(ctx, 0), add_source, x));
    clef_close(ctx);
}

Test(cores, each_thread_has_one) {
    int n = units();
    expect_bound(&(clef_options){.cache_dir = ""}, n);
    expect_bound(&(clef_options){.cache_dir = "", .no_affinity = true}, n); /* once bound they stay */
    cpu_set_t allowed;
    cr_assert(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    cr_assert_eq(CPU_COUNT(&allowed), n, "the thread that opened the device was bound");
}

/* Parts that are opened together are the whole. */
Test(cores, parts_have_theirs) {
    int n = units();
    clef_device_info info;
    char device[32];
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = "", .no_affinity = true});
    clef_context_device(ctx, 0, &info);
    clef_close(ctx);
    snprintf(device, sizeof device, "%d:1+%d", info.index, n - 1);
    ctx = clef_open(&(clef_options){.device = device, .cache_dir = ""});
    if (!ctx) cr_skip_test("%s", clef_error(NULL));
    int cores, bound = bound_threads(&cores);
    cr_assert(bound == n && cores == n, "%d threads are bound, to %d cores", bound, cores);
    clef_close(ctx);
}

Test(cores, not_where_one_says_so) {
    units();
    expect_bound(&(clef_options){.cache_dir = "", .no_affinity = true}, 0);
    setenv("CLEF_AFFINITY", "0", 1);
    expect_bound(&(clef_options){.cache_dir = ""}, 0);
}

Test(cores, not_for_some_units) {
    units();
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = "", .threads = 1});
    if (!ctx) cr_skip_test("%s", clef_error(NULL));
    int cores;
    cr_assert_eq(bound_threads(&cores), 0);
    clef_close(ctx);
}

/* Two of its threads could only meet on one core. */
Test(cores, not_where_the_process_has_fewer) {
    units();
    cpu_set_t all, one;
    cr_assert(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    for (int i = 0; CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    cr_assert(sched_setaffinity(0, sizeof one, &one) == 0);
    expect_bound(&(clef_options){.cache_dir = ""}, 1); /* this thread */
}

/* Work of another queue keeps a thread: after a while the device is open without them bound. */
static atomic_bool kept = true;
static void CL_CALLBACK keep(void *nothing) {
    (void)nothing;
    while (atomic_load(&kept)) sched_yield();
}

Test(cores, busy_threads_are_left_alone) {
    units();
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = "", .no_affinity = true});
    cl_command_queue queue = clef__device_at(ctx, 0)->compute;
    cr_assert(clEnqueueNativeKernel(queue, keep, NULL, 0, 0, NULL, NULL, 0, NULL, NULL) == CL_SUCCESS);
    cr_assert(clFlush(queue) == CL_SUCCESS);
    clef_options other = {.cache_dir = ""};
    expect_bound(&other, 0);
    atomic_store(&kept, false);
    cr_assert(clFinish(queue) == CL_SUCCESS);
    expect_bound(&other, 0); /* it is not tried again */
    clef_close(ctx);
}

/* ---- how many ---- */

static void put(const char *directory, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    for (char *at = path + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        mkdir(path, 0700);
    }
    FILE *file = fopen(path, "w");
    cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0, "%s", path);
}

static void expect_quota(const char *directory, const char *groups, uint32_t wanted) {
    char path[256];
    put(directory, "groups", groups);
    snprintf(path, sizeof path, "%s/groups", directory);
    cr_expect_eq(clef__cores_quota(path, directory), wanted, "%u, not %u: %s", clef__cores_quota(path, directory), wanted, groups);
}

Test(cores, quotas_of_control_groups) {
    char directory[] = "/tmp/clef_cores_XXXXXX";
    cr_assert_not_null(mkdtemp(directory));
    put(directory, "free/cpu.max", "max 100000\n");
    put(directory, "two/cpu.max", "200000 100000\n");
    put(directory, "two/part/cpu.max", "250000 100000\n");
    put(directory, "two/half/cpu.max", "50000 100000\n");
    put(directory, "cpu/none/cpu.cfs_quota_us", "-1\n");
    put(directory, "cpu/none/cpu.cfs_period_us", "100000\n");
    put(directory, "cpu/three/cpu.cfs_quota_us", "210000\n");
    put(directory, "cpu/three/cpu.cfs_period_us", "100000\n");
    expect_quota(directory, "", 0);
    expect_quota(directory, "no group\n0::\n::::\n", 0);
    expect_quota(directory, "0::/free\n", 0);
    expect_quota(directory, "0::/two\n", 2);
    expect_quota(directory, "0::/two/part\n", 2);
    expect_quota(directory, "0::/two/half\n", 1);
    expect_quota(directory, "0::/two/gone/with/all\n", 2);
    expect_quota(directory, "0::/free", 0);
    expect_quota(directory, "3:cpu,cpuacct:/three\n0::/\n", 3);
    expect_quota(directory, "3:cpuset:/three\n2:memory:/two\n", 0);
    expect_quota(directory, "3:cpuacct,cpu:/three/x\n0::/two\n", 2);
    expect_quota(directory, "1:cpu:/none\n", 0);
    put(directory, "cpu.max", "100000 100000\n");
    expect_quota(directory, "0::/two\n", 1);
    cr_expect_eq(clef__cores_quota("/nonesuch", directory), 0u);
    remove_dir(directory);
}

/* A container may leave a process few cores of a machine. */
Test(cores, more_threads_than_cores) {
    cpu_set_t one;
    setenv("POCL_MAX_PTHREAD_COUNT", "8", 1);
    unsetenv("CLEF_CHAIN");
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    cr_assert(sched_setaffinity(0, sizeof one, &one) == 0);
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = ""});
    if (!ctx) cr_skip_test("%s", clef_error(NULL));
    clef__device *device = clef__device_at(ctx, 0);
    clef__driver driver = clef__driver_of(&device->info);
    cr_expect_eq(device->crowded, driver.gathers);
    device->crowded = true;
    cr_expect_not(clef__device_chains(device), "threads that wait would keep that core");
    device->crowded = false;
    cr_expect_eq(clef__device_chains(device), driver.chains);
    clef_close(ctx);
    ctx = clef_open(&(clef_options){.cache_dir = "", .chain_after = 2});
    device = clef__device_at(ctx, 0);
    cr_expect_eq(clef__device_chains(device), driver.chains, "as it was asked for");
    clef_close(ctx);
}
