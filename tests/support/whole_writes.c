/* Makes Oclgrind's check for uninitialised values hold for buffers that are written in parts or used again: LD_PRELOAD this.

   Oclgrind 21.10 keeps its knowledge of a buffer by the buffer's number.  A write by the host makes that knowledge as long as the
   write, and what lies behind counts as uninitialised for good, whatever kernels write there; a buffer that takes the number of
   one that was given back takes its knowledge too.  So here a write becomes a write of the whole buffer, and no number is free
   again.  What this gives up: what a host's write leaves out counts as initialised, and so does all that
   clEnqueueCopyBuffer brings. */
#include "layer.h"
#include <stdlib.h>
#include <string.h>

EXPORT cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *code) {
    cl_mem memory = REAL(clCreateBuffer)(context, flags, size, host, code);
    if (memory) clRetainMemObject(memory); /* and never released: its number stays taken */
    return memory;
}

EXPORT cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem memory, cl_bool blocking, size_t offset, size_t bytes,
                                   const void *host, cl_uint n, const cl_event *after, cl_event *done) {
    size_t size = 0;
    unsigned char *whole = NULL;
    if (memory && clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof size, &size, NULL) == CL_SUCCESS && host && bytes <= size &&
        offset <= size - bytes && (whole = malloc(size)) &&
        clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, size, whole, n, after, NULL) == CL_SUCCESS) {
        memcpy(whole + offset, host, bytes);
        cl_int code = REAL(clEnqueueWriteBuffer)(queue, memory, CL_TRUE, 0, size, whole, 0, NULL, done);
        free(whole);
        return code;
    }
    free(whole); /* what cannot be is the driver's to refuse */
    return REAL(clEnqueueWriteBuffer)(queue, memory, blocking, offset, bytes, host, n, after, done);
}

EXPORT cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset,
                                  size_t bytes, cl_uint n, const cl_event *after, cl_event *done) {
    void *part = malloc(bytes ? bytes : 1);
    cl_int code =
        part ? clEnqueueReadBuffer(queue, from, CL_TRUE, from_offset, bytes, part, n, after, NULL) : CL_OUT_OF_HOST_MEMORY;
    if (code == CL_SUCCESS) code = clEnqueueWriteBuffer(queue, to, CL_TRUE, to_offset, bytes, part, 0, NULL, done);
    free(part);
    return code;
}
