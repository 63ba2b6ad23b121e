/* stated_units.h — a program that includes this answers clGetDeviceInfo itself: while stated_units is not 0, every device has so
   many compute units, on which the partition of work and costs depend. */
#ifndef CLEF_TESTS_STATED_UNITS_H
#define CLEF_TESTS_STATED_UNITS_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>
#include <dlfcn.h>
#include <string.h>

static cl_uint stated_units;

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t room, void *to, size_t *needed) {
    __typeof__(&clGetDeviceInfo) real = (__typeof__(real))dlsym(RTLD_NEXT, "clGetDeviceInfo");
    cl_int status = real(device, what, room, to, needed);
    if (stated_units && status == CL_SUCCESS && what == CL_DEVICE_MAX_COMPUTE_UNITS && to)
        memcpy(to, &stated_units, sizeof stated_units);
    return status;
}
#endif
