/* clef/opencl.h — living together with a program's own OpenCL objects.

   Ownership: an adopted context, device or queue is retained by Clef until clef_close; a wrapped cl_mem until its
   tensor is released.  What Clef hands out stays Clef's: retain it to keep it longer.
   Order: Clef enqueues into one in-order queue; adopt your own queue, or call clef_synchronize (or wait on an event
   of clef_opencl_queue) before the other side touches shared memory. */
#ifndef CLEF_OPENCL_H
#define CLEF_OPENCL_H
#include "context.h"
#include "tensor.h"
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif
#ifdef __APPLE__
#include <OpenCL/cl.h>
#else
#include <CL/cl.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Opens Clef inside a program's own context.  queue may be NULL (Clef makes one); it must be in-order. */
CLEF_API clef_context *clef_open_opencl(cl_context context, cl_device_id device, cl_command_queue queue,
                                        const clef_options *options);
CLEF_API cl_context clef_opencl_context(const clef_context *ctx);
CLEF_API cl_device_id clef_opencl_device(const clef_context *ctx);
CLEF_API cl_command_queue clef_opencl_queue(const clef_context *ctx);
/* A kept tensor over the caller's buffer: row-major from byte `offset`, which must be a multiple of the element size. */
CLEF_API clef_tensor *clef_from_opencl(clef_context *ctx, cl_mem buffer, size_t offset, clef_shape shape, clef_dtype dtype);
/* Evaluates t into row-major memory and hands out its buffer; *offset (bytes) says where in it t begins. */
CLEF_API cl_mem clef_opencl_buffer(clef_tensor *t, size_t *offset);

#ifdef __cplusplus
}
#endif
#endif
