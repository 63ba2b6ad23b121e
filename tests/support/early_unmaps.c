/* Refuses to queue the end of a mapping before its begin has run, as rusticl 22.3 does: LD_PRELOAD this.  Clef must find out (clef-probe) and wait. */
#include "layer.h"
#include <pthread.h>

enum { MOST = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    cl_mem memory; /* NULL: a free place */
    void *at;
    cl_event begun;
} mappings[MOST];

static void note(cl_mem memory, void *at, cl_event begun) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST; i++) {
        if (mappings[i].memory) continue;
        mappings[i].memory = memory;
        mappings[i].at = at;
        mappings[i].begun = begun;
        begun = NULL;
        break;
    }
    pthread_mutex_unlock(&lock);
    if (begun) clReleaseEvent(begun);
}

EXPORT void *clEnqueueMapBuffer(cl_command_queue queue, cl_mem memory, cl_bool blocking, cl_map_flags flags, size_t offset,
                                size_t bytes, cl_uint n, const cl_event *after, cl_event *done, cl_int *code) {
    cl_event begun = NULL;
    void *at = REAL(clEnqueueMapBuffer)(queue, memory, blocking, flags, offset, bytes, n, after, &begun, code);
    if (!at) return NULL;
    if (done && clRetainEvent(begun) == CL_SUCCESS) *done = begun;
    note(memory, at, begun);
    return at;
}

static cl_int has_begun(cl_mem memory, const void *at) {
    cl_int state = CL_COMPLETE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST; i++) {
        if (mappings[i].memory != memory || mappings[i].at != at) continue;
        clGetEventInfo(mappings[i].begun, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
        if (state > CL_COMPLETE) break;
        clReleaseEvent(mappings[i].begun);
        mappings[i].memory = NULL;
        break;
    }
    pthread_mutex_unlock(&lock);
    return state <= CL_COMPLETE;
}

EXPORT cl_int clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem memory, void *at, cl_uint n, const cl_event *after,
                                      cl_event *done) {
    if (!has_begun(memory, at)) return CL_INVALID_VALUE;
    return REAL(clEnqueueUnmapMemObject)(queue, memory, at, n, after, done);
}
