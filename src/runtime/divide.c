/* divide.c — a CPU used in part: a sub-device of some of its compute units (clef_options.threads). */
#include "runtime/runtime_internal.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIGITS = 6 };

int clef__threads_wanted(int option) {
    const char *text = clef__env("CLEF_THREADS");
    if (option < 0) clef__fail(NULL, CLEF_INVALID, "open: threads is %d; it is 1 or more, or 0 for all of the device's", option);
    if (option != 0 || !text || !*text) return option;
    size_t digits = 0;
    while (isdigit((unsigned char)text[digits])) digits++;
    if (!text[digits] && digits <= MOST_DIGITS && atoi(text) > 0) return atoi(text);
    clef__fail(NULL, CLEF_INVALID, "open: CLEF_THREADS is \"%.40s\"; it is a whole number from 1 to 999999", text);
    return -1;
}

static bool divides_by_counts(cl_device_id device) {
    cl_device_partition_property kinds[16] = {0};
    size_t bytes = 0;
    if (clGetDeviceInfo(device, CL_DEVICE_PARTITION_PROPERTIES, sizeof kinds, kinds, &bytes) != CL_SUCCESS) return false;
    for (size_t i = 0; i < bytes / sizeof *kinds; i++)
        if (kinds[i] == CL_DEVICE_PARTITION_BY_COUNTS) return true;
    return false;
}

bool clef__device_divide(clef_context *ctx, clef__found *found, int threads) {
    const cl_device_partition_property by_counts[] = {CL_DEVICE_PARTITION_BY_COUNTS, threads,
                                                      CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    cl_device_id part = NULL;
    if (threads == 0 || strcmp(found->info.type, "cpu") != 0 || (uint32_t)threads >= found->info.compute_units) return true;
    cl_int code = divides_by_counts(found->id) ? clCreateSubDevices(found->id, by_counts, 1, &part, NULL) : CL_INVALID_VALUE;
    if (code != CL_SUCCESS) {
        clef__fail(ctx, CLEF_UNSUPPORTED,
                   "open: the driver of %s cannot keep %d of its %u compute units apart (%s); open it without threads",
                   found->info.name, threads, found->info.compute_units, clef__cl_name(code));
        return false;
    }
    found->id = part;
    found->divided = true;
    found->info.compute_units = (uint32_t)threads;
    return true;
}
