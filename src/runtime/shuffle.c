/* shuffle.c — can work-items of a device give each other values within a sub-group (cl/shuffle.h)?

   As with matrix units, only a device that says it knows the instructions is asked; then a kernel swaps numbers at every distance
   (cl/shuffle_probe.cl), and where it does not compile or one number is wrong, there are none.  No error of this ever reaches the
   context. */
#include "runtime/runtime_internal.h"
#include <string.h>

enum { GROUP = 256, BITS = 5, LEAST = 7 };

/* Both halves of a number differ from those of all others. */
static cl_long number(int i) { return (cl_long)i << 32 | (cl_long)(1000 + 3 * i); }

bool clef__shuffle_probe(clef__device *device, const char *options) {
    cl_long values[GROUP], found[BITS][GROUP] = {{0}};
    for (int i = 0; i < GROUP; i++) values[i] = number(i);
    const clef__trial_memory m[] = {{values, sizeof values}, {found, sizeof found}};
    bool right = clef__try_kernel(device, "shuffle_probe", options, GROUP, m, 2);
    for (int i = 0; i < BITS * GROUP; i++) right &= found[i / GROUP][i % GROUP] == number(i % GROUP ^ 1 << i / GROUP);
    return right;
}

static clef__shuffle find_shuffle(clef__device *device) {
    const char *asked = clef__env("CLEF_SHUFFLE");
    if (asked && strcmp(asked, "0") == 0) return CLEF__NO_SHUFFLE;
    if (asked && strcmp(asked, "emulated") == 0) return CLEF__SHUFFLE_EMULATED;
    if (!clef__alive(device) ||
        !clef__device_says(device, "cl_nv_device_attribute_query", CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV, LEAST))
        return CLEF__NO_SHUFFLE;
    bool works = clef__shuffle_probe(device, "-DPTX");
    clef__log_line(device->ctx, CLEF_LOG_INFO, "%s: shuffles by PTX %s", device->info.name,
                   works ? "join what work-items of a row find" : "do not do what they should, and are left alone");
    return works ? CLEF__SHUFFLE_PTX : CLEF__NO_SHUFFLE;
}

clef__shuffle clef__device_shuffle(clef__device *device) {
    if (!device->shuffle_asked) device->shuffle = find_shuffle(device);
    device->shuffle_asked = true;
    return device->shuffle;
}
