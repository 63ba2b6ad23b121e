/* opencl_faults.h — the N-th host allocation or OpenCL call fails.  A program that includes this defines the OpenCL functions
   that Clef calls and passes them on to the real ones, so it sees every call. */
#ifndef CLEF_TESTS_OPENCL_FAULTS_H
#define CLEF_TESTS_OPENCL_FAULTS_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "runtime/runtime_internal.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the N-th call fails ---- */
static long countdown; /* 0: never */
static bool for_ever, struck;
static long calls;         /* that could have failed */
static atomic_long ledger; /* OpenCL objects made and not released */
static cl_int fault_code = CL_OUT_OF_RESOURCES;
static const char *fault_log; /* what a compiler says when it is told to fail (fault_code CL_BUILD_PROGRAM_FAILURE) */
static atomic_long builds;    /* calls of clBuildProgram */
static bool builds_fail;      /* all of them, whatever the countdown */
static bool buffers_fail;     /* all that would be made */

static uint32_t storm; /* not 0: calls fail at random, one in four */

static bool comes_to_nought(void) {
    calls++;
    if (storm) return (storm = storm * 1664525u + 1013904223u) >> 30 == 0;
    if (countdown > 0 && --countdown == 0) {
        struck = true;
        if (for_ever) countdown = 1;
        return true;
    }
    return false;
}

/* Clef has threads of its own, which may be counting. */
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

static bool fails(void) {
    pthread_mutex_lock(&counting);
    bool now = comes_to_nought();
    pthread_mutex_unlock(&counting);
    return now;
}

/* The n-th call from here on fails, and with `again` all later ones. */
static inline void fail_call(long n, bool again) {
    pthread_mutex_lock(&counting);
    countdown = n;
    for_ever = again;
    struck = false;
    pthread_mutex_unlock(&counting);
}

/* All works again.  Did a call fail? */
static inline bool fail_no_more(void) {
    pthread_mutex_lock(&counting);
    countdown = 0;
    bool hit = struck;
    pthread_mutex_unlock(&counting);
    return hit;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define CREATES_UNLESS(refused, type, name, parameters, arguments) \
    type name parameters {                                         \
        if (refused || (opencl_faults && fails())) {               \
            if (code) *code = fault_code;                          \
            return NULL;                                           \
        }                                                          \
        type made = REAL(name) arguments;                          \
        if (made) ledger++;                                        \
        return made;                                               \
    }
#define CREATES(type, name, parameters, arguments) CREATES_UNLESS(false, type, name, parameters, arguments)
#define DOES(name, parameters, arguments)                \
    cl_int name parameters {                             \
        if (opencl_faults && fails()) return fault_code; \
        return REAL(name) arguments;                     \
    }
#define ENQUEUES(name, parameters, arguments)            \
    cl_int name parameters {                             \
        if (opencl_faults && fails()) return fault_code; \
        cl_int result = REAL(name) arguments;            \
        if (result == CL_SUCCESS && event) ledger++;     \
        return result;                                   \
    }
#define RETAINS(name, type)                              \
    cl_int name(type object) {                           \
        if (opencl_faults && fails()) return fault_code; \
        cl_int result = REAL(name)(object);              \
        if (result == CL_SUCCESS) ledger++;              \
        return result;                                   \
    }
#define RELEASES(name, type)       \
    cl_int name(type object) {     \
        ledger--;                  \
        return REAL(name)(object); \
    }
static bool opencl_faults;

CREATES(cl_context, clCreateContext,
        (const cl_context_properties *p, cl_uint n, const cl_device_id *d,
         void(CL_CALLBACK *f)(const char *, const void *, size_t, void *), void *u, cl_int *code),
        (p, n, d, f, u, code))
CREATES(cl_command_queue, clCreateCommandQueue, (cl_context c, cl_device_id d, cl_command_queue_properties p, cl_int *code),
        (c, d, p, code))
CREATES_UNLESS(buffers_fail, cl_mem, clCreateBuffer, (cl_context c, cl_mem_flags f, size_t n, void *h, cl_int *code),
               (c, f, n, h, code))
CREATES(cl_program, clCreateProgramWithSource, (cl_context c, cl_uint n, const char **s, const size_t *l, cl_int *code),
        (c, n, s, l, code))
CREATES(cl_program, clCreateProgramWithBinary,
        (cl_context c, cl_uint n, const cl_device_id *d, const size_t *l, const unsigned char **b, cl_int *s, cl_int *code),
        (c, n, d, l, b, s, code))
CREATES(cl_kernel, clCreateKernel, (cl_program p, const char *name, cl_int *code), (p, name, code))
cl_int clBuildProgram(cl_program p, cl_uint n, const cl_device_id *d, const char *o, void(CL_CALLBACK *f)(cl_program, void *),
                      void *u) {
    builds++;
    return builds_fail || (opencl_faults && fails()) ? fault_code : REAL(clBuildProgram)(p, n, d, o, f, u);
}
cl_int clGetProgramBuildInfo(cl_program p, cl_device_id d, cl_program_build_info w, size_t n, void *v, size_t *r) {
    if (fault_log && w == CL_PROGRAM_BUILD_LOG) {
        if (r) *r = strlen(fault_log) + 1;
        if (v) snprintf(v, n, "%s", fault_log);
        return CL_SUCCESS;
    }
    return opencl_faults && fails() ? fault_code : REAL(clGetProgramBuildInfo)(p, d, w, n, v, r);
}
DOES(clGetPlatformIDs, (cl_uint n, cl_platform_id *p, cl_uint *r), (n, p, r))
DOES(clGetDeviceIDs, (cl_platform_id p, cl_device_type t, cl_uint n, cl_device_id *d, cl_uint *r), (p, t, n, d, r))
DOES(clGetPlatformInfo, (cl_platform_id p, cl_platform_info w, size_t n, void *v, size_t *r), (p, w, n, v, r))
DOES(clGetProgramInfo, (cl_program p, cl_program_info w, size_t n, void *v, size_t *r), (p, w, n, v, r))
DOES(clGetDeviceInfo, (cl_device_id d, cl_device_info w, size_t n, void *v, size_t *r), (d, w, n, v, r))
DOES(clGetKernelWorkGroupInfo, (cl_kernel k, cl_device_id d, cl_kernel_work_group_info w, size_t n, void *v, size_t *r),
     (k, d, w, n, v, r))
DOES(clGetEventInfo, (cl_event e, cl_event_info w, size_t n, void *v, size_t *r), (e, w, n, v, r))
DOES(clSetKernelArg, (cl_kernel k, cl_uint i, size_t n, const void *v), (k, i, n, v))
DOES(clWaitForEvents, (cl_uint n, const cl_event *e), (n, e))
DOES(clFlush, (cl_command_queue q), (q))
DOES(clFinish, (cl_command_queue q), (q))
ENQUEUES(clEnqueueNDRangeKernel,
         (cl_command_queue q, cl_kernel k, cl_uint d, const size_t *o, const size_t *g, const size_t *l, cl_uint n,
          const cl_event *w, cl_event *event),
         (q, k, d, o, g, l, n, w, event))
ENQUEUES(clEnqueueWriteBuffer,
         (cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, const void *p, cl_uint n, const cl_event *w,
          cl_event *event),
         (q, m, b, o, s, p, n, w, event))
ENQUEUES(clEnqueueReadBuffer,
         (cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, void *p, cl_uint n, const cl_event *w, cl_event *event),
         (q, m, b, o, s, p, n, w, event))
ENQUEUES(clEnqueueCopyBuffer,
         (cl_command_queue q, cl_mem a, cl_mem b, size_t o, size_t p, size_t s, cl_uint n, const cl_event *w, cl_event *event),
         (q, a, b, o, p, s, n, w, event))
ENQUEUES(clEnqueueMarkerWithWaitList, (cl_command_queue q, cl_uint n, const cl_event *w, cl_event *event), (q, n, w, event))
ENQUEUES(clEnqueueBarrierWithWaitList, (cl_command_queue q, cl_uint n, const cl_event *w, cl_event *event), (q, n, w, event))
void *clEnqueueMapBuffer(cl_command_queue q, cl_mem m, cl_bool b, cl_map_flags f, size_t o, size_t s, cl_uint n, const cl_event *w,
                         cl_event *event, cl_int *code) {
    if (opencl_faults && fails()) return *code = fault_code, NULL;
    void *at = REAL(clEnqueueMapBuffer)(q, m, b, f, o, s, n, w, event, code);
    if (at && event) ledger++;
    return at;
}
ENQUEUES(clEnqueueUnmapMemObject, (cl_command_queue q, cl_mem m, void *at, cl_uint n, const cl_event *w, cl_event *event),
         (q, m, at, n, w, event))
CREATES(cl_event, clCreateUserEvent, (cl_context c, cl_int *code), (c, code))
RETAINS(clRetainContext, cl_context)
RETAINS(clRetainEvent, cl_event)
RETAINS(clRetainProgram, cl_program)
RELEASES(clReleaseContext, cl_context)
RELEASES(clReleaseCommandQueue, cl_command_queue)
RELEASES(clReleaseMemObject, cl_mem)
RELEASES(clReleaseProgram, cl_program)
RELEASES(clReleaseKernel, cl_kernel)
RELEASES(clReleaseEvent, cl_event)

cl_int clCreateKernelsInProgram(cl_program p, cl_uint n, cl_kernel *kernels, cl_uint *made) {
    if (opencl_faults && fails()) return fault_code;
    cl_int result = REAL(clCreateKernelsInProgram)(p, n, kernels, made);
    if (result == CL_SUCCESS && kernels) ledger += n;
    return result;
}

/* ---- host memory ---- */
static atomic_long live;

static inline void *take(void *user, size_t bytes) {
    (void)user;
    if (!opencl_faults && fails()) return NULL;
    void *p = malloc(bytes);
    live += p != NULL;
    return p;
}

static inline void *retake(void *user, void *old, size_t bytes) {
    (void)user;
    return !opencl_faults && fails() ? NULL : realloc(old, bytes);
}

static inline void drop(void *user, void *old) {
    (void)user;
    live--;
    free(old);
}
#endif
