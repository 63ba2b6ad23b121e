/* trial.c — one group of a kernel is run to see what a device makes of it (matrix.c, shuffle.c).  No error of it reaches the context. */
#include "runtime/runtime_internal.h"
#include <stdio.h>

static bool run(clef__device *device, cl_kernel kernel, size_t items, const clef__trial_memory *m, int n) {
    cl_mem memory[CLEF__TRIAL_MEMORIES] = {NULL};
    cl_int code = CL_SUCCESS;
    int last = n - 1;
    for (int i = 0; i < n && code == CL_SUCCESS; i++) {
        memory[i] = clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, m[i].bytes, m[i].host, &code);
        if (code == CL_SUCCESS) code = clSetKernelArg(kernel, (cl_uint)i, sizeof memory[i], &memory[i]);
    }
    if (code == CL_SUCCESS) code = clEnqueueNDRangeKernel(clef__queue(device), kernel, 1, NULL, &items, &items, 0, NULL, NULL);
    if (code == CL_SUCCESS)
        code = clEnqueueReadBuffer(clef__queue(device), memory[last], CL_TRUE, 0, m[last].bytes, m[last].host, 0, NULL, NULL);
    for (int i = 0; i < n; i++)
        if (memory[i]) clReleaseMemObject(memory[i]);
    return code == CL_SUCCESS;
}

bool clef__try_kernel(clef__device *device, const char *name, const char *options, size_t items, const clef__trial_memory *m,
                      int n) {
    if (!clef__alive(device)) return false;
    char file[64], all[256];
    snprintf(file, sizeof file, "%s.cl", name);
    snprintf(all, sizeof all, "%s %s", device->options, options);
    char *source = clef__asprintf("%s%s", clef__embedded("common.h"), clef__embedded(file));
    cl_int code = CL_SUCCESS;
    cl_program program = source ? clCreateProgramWithSource(device->context, 1, (const char **)&source, NULL, &code) : NULL;
    bool built = program && clBuildProgram(program, 1, &device->id, all, NULL, NULL) == CL_SUCCESS;
    cl_kernel kernel = built ? clCreateKernel(program, name, &code) : NULL;
    bool done = kernel && run(device, kernel, items, m, n);
    if (kernel) clReleaseKernel(kernel);
    if (program) clReleaseProgram(program);
    clef__free(source);
    return done;
}

bool clef__device_says(const clef__device *device, const char *extension, cl_device_info fact, cl_uint least) {
    cl_uint value = 0;
    return clef__has_word(device->info.extensions, extension) &&
           clGetDeviceInfo(device->id, fact, sizeof value, &value, NULL) == CL_SUCCESS && value >= least;
}
