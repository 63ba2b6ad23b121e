/* clef/opencl.h — living together with a program's own OpenCL objects.

   Ownership: an adopted context, device or queue is retained by Clef until clef_close; a wrapped cl_mem until
   its tensor is released.  What Clef hands out stays Clef's: retain it to keep it longer.
   Values: Clef never writes to a wrapped cl_mem, nor to one it has handed out, and gives neither to another
   tensor: new values (clef_assign, clef_step) go to other memory, so ask again after each of them.  Writing to
   a wrapped cl_mem changes its tensor and what is a view of it; other results computed before stay as they
   are.  One handed out is for reading only, as other tensors may lie in it, too.
   Order: Clef enqueues into one in-order queue; adopt your own queue, or call clef_synchronize (or wait on an
   event of clef_opencl_queue) before the other side touches shared memory.  Clef's calls may wait
   once more than 128 of its commands are under way, so what its queue waits for must not depend on what the
   same thread does later. */
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

/* Opens Clef inside a program's own context, on one of its devices.  queue may be NULL (Clef makes one); it
   must be in-order and of that context and device.  options.device and options.threads are not looked at.  NULL on failure:
   clef_error(NULL) has the line, clef_error_status(NULL) CLEF_INVALID for a misfit, CLEF_UNSUPPORTED for a
   device that Clef cannot use.
       clef_context *ctx = clef_open_opencl(context, device, queue, NULL);  */
CLEF_API clef_context *clef_open_opencl(cl_context context, cl_device_id device, cl_command_queue queue,
                                        const clef_options *options);
/* The OpenCL context of the (first) device; Clef's own (clRetainContext to keep it); NULL for NULL. */
CLEF_API cl_context clef_opencl_context(const clef_context *ctx);
/* The (first) OpenCL device; NULL for NULL. */
CLEF_API cl_device_id clef_opencl_device(const clef_context *ctx);
/* The in-order queue that all work of the (first) device goes through; Clef's own (clRetainCommandQueue);
   NULL for NULL. */
CLEF_API cl_command_queue clef_opencl_queue(const clef_context *ctx);
/* A kept tensor over the caller's buffer, without a copy: row-major from byte `offset`, which must be a
   multiple of the element's size.  The buffer is retained until clef_release and while a view of it
   lives.  NULL on failure: CLEF_INVALID
   for a buffer of another OpenCL context (of one that Clef's contexts share, the caller sees to the order) or a bad offset, CLEF_SHAPE if the shape reaches beyond the buffer. */
CLEF_API clef_tensor *clef_from_opencl(clef_context *ctx, cl_mem buffer, size_t offset, clef_shape shape, clef_dtype dtype);
/* Queues the computing of t into row-major memory and hands out its buffer, without waiting; *offset (bytes)
   says where in it t begins.  It stays valid while t lives and keeps its value, and for longer if it is
   retained: it then holds this value until it is released, whatever becomes of t.  NULL on failure (CLEF_SHAPE
   for a tensor without elements).
       size_t at; cl_mem y = clef_opencl_buffer(t, &at);  */
CLEF_API cl_mem clef_opencl_buffer(clef_tensor *t, size_t *offset);

#ifdef __cplusplus
}
#endif
#endif
