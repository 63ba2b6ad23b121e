/* shuffle.c — can work-items of a device give each other values within a sub-group (cl/shuffle.h)?

   As with matrix units, only a device that says it knows the instructions is asked; then a kernel swaps numbers at every distance
   (cl/shuffle_probe.cl), and where it does not compile, one number is wrong, or work-items are in other places than shuffle.h says, there
   are none.  No error of this ever reaches the context.

   What was probed must hold for other kernels too.  A sub-group of PTX has 32 work-items always; elsewhere a compiler may choose for each
   kernel, so only devices are asked whose kernels can require a size (cl_intel_required_subgroup_size). */
#include "runtime/runtime_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 256, BITS = 6, LEAST = 7, PTX_SIZE = 32, MOST_SIZES = 16 };

/* In the order in which they are tried.  16 before 32, as of the devices that have both a work-item has twice the registers then. */
static const struct {
    const char *by, *extension;
} ways[] = {{"PTX", NULL}, {"KHR_SHUFFLE", "cl_khr_subgroup_shuffle"}, {"INTEL_SHUFFLE", "cl_intel_subgroups"}};
static const int sizes[] = {16, 32, 8, 64};

/* ---- the probe ---- */
/* Both halves of a number differ from those of all others. */
static cl_long number(int i) { return (cl_long)i << 32 | (cl_long)(1000 + 3 * i); }

bool clef__shuffle_probe(clef__device *device, int subgroup, const char *options) {
    char all[128];
    cl_long values[GROUP], found[BITS + 1][GROUP] = {{0}};
    for (int i = 0; i < GROUP; i++) values[i] = number(i);
    const clef__trial_memory m[] = {{values, sizeof values}, {found, sizeof found}};
    snprintf(all, sizeof all, "-DSUBGROUP=%d %s", subgroup, options);
    bool right = clef__try_kernel(device, "shuffle_probe", all, GROUP, m, 2);
    for (int bit = 0; 1 << bit < subgroup; bit++)
        for (int i = 0; i < GROUP; i++) right &= found[bit][i] == number(i ^ 1 << bit);
    for (int i = 0; i < GROUP; i++) right &= found[BITS][i] == ((cl_long)subgroup << 32 | i);
    return right;
}

/* ---- the answer ---- */
static bool can_require(const clef__device *device, int size) {
    size_t all[MOST_SIZES], bytes = 0;
    if (!clef__has_word(device->info.extensions, "cl_intel_required_subgroup_size") ||
        clGetDeviceInfo(device->id, CL_DEVICE_SUB_GROUP_SIZES_INTEL, sizeof all, all, &bytes) != CL_SUCCESS)
        return false;
    for (size_t i = 0; i < bytes / sizeof *all; i++)
        if (all[i] == (size_t)size) return true;
    return false;
}

static bool device_says(const clef__device *device, size_t way, int size) {
    if (ways[way].extension) return clef__has_word(device->info.extensions, ways[way].extension) && can_require(device, size);
    return size == PTX_SIZE &&
           clef__device_says(device, "cl_nv_device_attribute_query", CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV, LEAST);
}

static bool swaps(clef__device *device, size_t way, int size) {
    char options[32];
    snprintf(options, sizeof options, "-D%s=1", ways[way].by);
    bool works = clef__shuffle_probe(device, size, options);
    clef__log_line(device->ctx, CLEF_LOG_INFO, "%s: shuffles by %s in sub-groups of %d %s", device->info.name, ways[way].by, size,
                   works ? "join what work-items of a row find" : "do not do what they should, and are left alone");
    return works;
}

/* only: the one size that is asked for; 0: all. */
static clef__shuffle first_that_swaps(clef__device *device, long only) {
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            if ((!only || only == sizes[i]) && device_says(device, way, sizes[i]) && swaps(device, way, sizes[i]))
                return (clef__shuffle){sizes[i], ways[way].by};
    return (clef__shuffle){0, NULL};
}

static clef__shuffle find_shuffle(clef__device *device) {
    const char *asked = clef__env("CLEF_SHUFFLE");
    if (!clef__alive(device) || (asked && strcmp(asked, "0") == 0)) return (clef__shuffle){0, NULL};
    if (asked && strcmp(asked, "emulated") == 0) return (clef__shuffle){PTX_SIZE, NULL};
    return first_that_swaps(device, asked ? strtol(asked, NULL, 10) : 0);
}

clef__shuffle clef__device_shuffle(clef__device *device) {
    if (!device->shuffle_asked) device->shuffle = find_shuffle(device);
    device->shuffle_asked = true;
    return device->shuffle;
}
