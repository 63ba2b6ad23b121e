/* How far the host runs ahead: before a queue that stands still a loop that reads nothing is made to wait, not before it has queued
   work to do and not much later, and what it computes is right.  The program stands between Clef and the driver's calls.
   ctest: plain */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "clef/opencl.h"
#include "support/plain.h"
#include <dlfcn.h>

enum { STEPS = 1000, LEAST = 128, MOST = 2 * LEAST + 8 };

static cl_command_queue queue; /* Clef's */
static cl_event gate;          /* while it is not NULL, nothing behind it in the queue runs */
static int launches, launches_at_wait;

static int complaints;
#define COMPLAIN(...) (complaints++, printf(__VA_ARGS__), putchar('\n'))

static void open_gate(void) {
    if (!gate) return;
    clSetUserEventStatus(gate, CL_COMPLETE);
    clReleaseEvent(gate);
    gate = NULL;
}

cl_int clEnqueueNDRangeKernel(cl_command_queue to, cl_kernel kernel, cl_uint rank, const size_t *offset, const size_t *global,
                              const size_t *local, cl_uint n, const cl_event *after, cl_event *done) {
    __typeof__(&clEnqueueNDRangeKernel) real = (__typeof__(real))dlsym(RTLD_NEXT, "clEnqueueNDRangeKernel");
    queue = to;
    launches++;
    return real(to, kernel, rank, offset, global, local, n, after, done);
}

cl_int clWaitForEvents(cl_uint n, const cl_event *events) {
    __typeof__(&clWaitForEvents) real = (__typeof__(real))dlsym(RTLD_NEXT, "clWaitForEvents");
    if (gate) launches_at_wait = launches;
    open_gate();
    return real(n, events);
}

static bool close_gate(clef_context *ctx) {
    cl_int code;
    gate = clCreateUserEvent(clef_opencl_context(ctx), &code);
    if (gate && clEnqueueBarrierWithWaitList(queue, 1, &gate, NULL) == CL_SUCCESS) return true;
    open_gate();
    return false;
}

int main(void) {
    clef_context *ctx = clef_open(NULL);
    if (!ctx) return without_context();
    clef_tensor *x = clef_keep(clef_zeros(ctx, CLEF_SHAPE(4), CLEF_F32)), *next;
    for (int i = 0; i <= STEPS; i++) {
        if (i == 1) { /* all is compiled */
            clef_synchronize(ctx);
            launches = 0;
            if (!close_gate(ctx)) return puts("skipped: the driver has no user events"), 77;
        }
        next = clef_keep(clef_add_scalar(x, 1));
        clef_release(x);
        x = next;
        clef_eval(x);
        clef_end_step(ctx);
    }
    if (gate) COMPLAIN("%d launches are under way and nobody waits", launches);
    open_gate();
    if (launches_at_wait < LEAST || launches_at_wait > MOST)
        COMPLAIN("the host waits with %d launches under way", launches_at_wait);
    float end[4] = {0};
    if (clef_read(x, end, sizeof end) != CLEF_OK || end[0] != STEPS + 1) COMPLAIN("the sum is %g", (double)end[0]);
    clef_release(x);
    clef_close(ctx);
    printf("%d complaints\n", complaints);
    return complaints > 0;
}
