/* shuffle.c — can work-items of a device give each other values within a sub-group (cl/shuffle.h)?

   As with matrix units, only a device that says it knows the instructions is asked; then a kernel swaps numbers at every distance
   (cl/shuffle_probe.cl), and where it does not compile or one number is wrong, there are none.  No error of this ever reaches the
   context. */
#include "runtime/runtime_internal.h"
#include <stdio.h>
#include <string.h>

enum { GROUP = 256, BITS = 5, LEAST = 7 };
#ifndef CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV
#define CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV 0x4000 /* of cl_nv_device_attribute_query */
#endif

/* Both halves of a number differ from those of all others. */
static cl_long number(int i) { return (cl_long)i << 32 | (cl_long)(1000 + 3 * i); }

static bool run_probe(clef__device *device, cl_kernel kernel) {
    cl_long values[GROUP], found[BITS][GROUP];
    void *host[2] = {values, found};
    const size_t bytes[2] = {sizeof values, sizeof found}, items = GROUP;
    cl_mem memory[2] = {NULL};
    cl_int code = CL_SUCCESS;
    for (int i = 0; i < GROUP; i++) values[i] = number(i);
    memset(found, 0, sizeof found);
    for (int i = 0; i < 2 && code == CL_SUCCESS; i++) {
        memory[i] = clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes[i], host[i], &code);
        if (code == CL_SUCCESS) code = clSetKernelArg(kernel, (cl_uint)i, sizeof memory[i], &memory[i]);
    }
    if (code == CL_SUCCESS) code = clEnqueueNDRangeKernel(device->queue, kernel, 1, NULL, &items, &items, 0, NULL, NULL);
    if (code == CL_SUCCESS) code = clEnqueueReadBuffer(device->queue, memory[1], CL_TRUE, 0, bytes[1], found, 0, NULL, NULL);
    for (int i = 0; i < 2; i++)
        if (memory[i]) clReleaseMemObject(memory[i]);
    bool right = code == CL_SUCCESS;
    for (int i = 0; i < BITS * GROUP; i++) right &= found[i / GROUP][i % GROUP] == number(i % GROUP ^ 1 << i / GROUP);
    return right;
}

bool clef__shuffle_probe(clef__device *device, const char *options) {
    if (!clef__alive(device)) return false;
    const char *source = clef__embedded("shuffle_probe.cl");
    char all[256];
    cl_int code = CL_SUCCESS;
    snprintf(all, sizeof all, "%s %s", device->options, options);
    cl_program program = clCreateProgramWithSource(device->context, 1, &source, NULL, &code);
    bool built = program && clBuildProgram(program, 1, &device->id, all, NULL, NULL) == CL_SUCCESS;
    cl_kernel kernel = built ? clCreateKernel(program, "shuffle_probe", &code) : NULL;
    bool right = kernel && run_probe(device, kernel);
    if (kernel) clReleaseKernel(kernel);
    if (program) clReleaseProgram(program);
    return right;
}

static clef__shuffle find_shuffle(clef__device *device) {
    const char *asked = clef__env("CLEF_SHUFFLE");
    cl_uint capability = 0;
    if (asked && strcmp(asked, "0") == 0) return CLEF__NO_SHUFFLE;
    if (asked && strcmp(asked, "emulated") == 0) return CLEF__SHUFFLE_EMULATED;
    if (!clef__alive(device) || !clef__has_word(device->info.extensions, "cl_nv_device_attribute_query") ||
        clGetDeviceInfo(device->id, CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV, sizeof capability, &capability, NULL) != CL_SUCCESS ||
        capability < LEAST)
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
