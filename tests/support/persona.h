/* persona.h — devices that are less than they are: a program that includes this answers clGetDeviceInfo itself and lies while
   a persona is played, and holds Clef to the lie: launches and buffers beyond it fail as they would on such a device. */
#ifndef CLEF_TESTS_PERSONA_H
#define CLEF_TESTS_PERSONA_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "runtime/runtime_internal.h"
#include <dlfcn.h>
#include <string.h>

typedef struct persona {
    const char *name;
    cl_device_type type;
    size_t group;
    cl_ulong local_bytes, max_alloc;
    cl_uint lanes;
    bool no_f64, no_compiler;
    const char *version, *c_version, *profile; /* profile: what Clef should take it for; NULL: it cannot be used */
} persona;

static const persona *played;
#define REAL(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))

static cl_int answer(const void *value, size_t bytes, size_t room, void *to, size_t *needed) {
    if (to && room < bytes) return CL_INVALID_VALUE;
    if (to) memcpy(to, value, bytes);
    if (needed) *needed = bytes;
    return CL_SUCCESS;
}

cl_int clGetDeviceInfo(cl_device_id d, cl_device_info what, size_t n, void *v, size_t *needed) {
    const persona *p = played;
    const cl_bool compiler = p && !p->no_compiler;
    const cl_device_fp_config none = 0;
    const cl_device_local_mem_type dedicated = CL_LOCAL;
    const size_t in_step = 32;
    switch (p ? what : 0) {
    case CL_DEVICE_TYPE: return answer(&p->type, sizeof p->type, n, v, needed);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE: return answer(&p->group, sizeof p->group, n, v, needed);
    case CL_DEVICE_LOCAL_MEM_SIZE: return answer(&p->local_bytes, sizeof p->local_bytes, n, v, needed);
    case CL_DEVICE_LOCAL_MEM_TYPE: return answer(&dedicated, sizeof dedicated, n, v, needed);
    case CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE: return answer(&in_step, sizeof in_step, n, v, needed);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE: return answer(&p->max_alloc, sizeof p->max_alloc, n, v, needed);
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT:
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT: return answer(&p->lanes, sizeof p->lanes, n, v, needed);
    case CL_DEVICE_COMPILER_AVAILABLE: return answer(&compiler, sizeof compiler, n, v, needed);
    case CL_DEVICE_EXTENSIONS:
        if (p->no_f64) return answer("", 1, n, v, needed);
        break;
    case CL_DEVICE_DOUBLE_FP_CONFIG:
        if (p->no_f64) return answer(&none, sizeof none, n, v, needed);
        break;
    case CL_DEVICE_VERSION:
        if (p->version) return answer(p->version, strlen(p->version) + 1, n, v, needed);
        break;
    case CL_DEVICE_OPENCL_C_VERSION:
        if (p->c_version) return answer(p->c_version, strlen(p->c_version) + 1, n, v, needed);
        break;
    default: break;
    }
    return REAL(clGetDeviceInfo)(d, what, n, v, needed);
}

static cl_ulong local_bytes_of(cl_command_queue queue, cl_kernel kernel) {
    cl_device_id d = NULL;
    cl_ulong bytes = 0;
    clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof d, &d, NULL);
    clGetKernelWorkGroupInfo(kernel, d, CL_KERNEL_LOCAL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    return bytes;
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *offset, const size_t *global,
                              const size_t *local, cl_uint n, const cl_event *wait, cl_event *event) {
    size_t items = 1;
    for (cl_uint i = 0; local && i < dims; i++) items *= local[i];
    if (played && items > played->group) return CL_INVALID_WORK_GROUP_SIZE;
    if (played && local_bytes_of(queue, kernel) > played->local_bytes) return CL_OUT_OF_RESOURCES;
    return REAL(clEnqueueNDRangeKernel)(queue, kernel, dims, offset, global, local, n, wait, event);
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t bytes, void *host, cl_int *status) {
    if (!played || bytes <= played->max_alloc) return REAL(clCreateBuffer)(context, flags, bytes, host, status);
    if (status) *status = CL_INVALID_BUFFER_SIZE;
    return NULL;
}
#endif
