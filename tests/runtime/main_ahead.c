/* How far the host runs ahead: a loop that reads nothing, on a queue that stands still, is made to wait again and again, neither before
   there is work to do nor much later, and what it computes is right.  The program stands between Clef and the driver's calls.
   ctest: plain */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "clef/opencl.h"
#include "support/plain.h"
#include <dlfcn.h>
#include <unistd.h>

enum { STEPS = 1500, LEAST = 128, SLACK = 8, LIMIT = 600 /* seconds, far above what it takes */ };

static cl_command_queue queue; /* Clef's */
static cl_event gate;          /* while it is not NULL, nothing behind it in the queue runs */
static int launches, waits;    /* launches: since the last wait */

static int complaints;
#define COMPLAIN(...) (complaints++, printf(__VA_ARGS__), putchar('\n'))

static void open_gate(void) {
    if (!gate) return;
    clSetUserEventStatus(gate, CL_COMPLETE);
    clReleaseEvent(gate);
    gate = NULL;
}

static void close_gate(void) {
    cl_context context;
    cl_int code = clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL);
    if (code == CL_SUCCESS) gate = clCreateUserEvent(context, &code);
    if (code == CL_SUCCESS) code = clEnqueueBarrierWithWaitList(queue, 1, &gate, NULL);
    if (code != CL_SUCCESS) COMPLAIN("no gate: %d", code);
}

cl_int clEnqueueNDRangeKernel(cl_command_queue to, cl_kernel kernel, cl_uint rank, const size_t *offset, const size_t *global,
                              const size_t *local, cl_uint n, const cl_event *after, cl_event *done) {
    __typeof__(&clEnqueueNDRangeKernel) real = (__typeof__(real))dlsym(RTLD_NEXT, "clEnqueueNDRangeKernel");
    queue = to;
    launches++;
    return real(to, kernel, rank, offset, global, local, n, after, done);
}

/* What is waited for may lie behind the gate; the next is closed behind all that was queued. */
cl_int clWaitForEvents(cl_uint n, const cl_event *events) {
    __typeof__(&clWaitForEvents) real = (__typeof__(real))dlsym(RTLD_NEXT, "clWaitForEvents");
    if (!gate) return real(n, events);
    int most = (waits++ ? 1 : 2) * LEAST + SLACK;
    if (launches < LEAST || launches > most) COMPLAIN("wait %d: behind %d launches", waits, launches);
    open_gate();
    cl_int code = real(n, events);
    launches = 0;
    close_gate();
    return code;
}

int main(void) {
    clef_context *ctx = clef_open(NULL);
    if (!ctx) return without_context();
    if (clef_device_user_events(ctx, 0, true) != CLEF_VERDICT_YES) return puts("skipped: the driver's user events do not work"), 77;
    alarm(LIMIT);
    clef_tensor *x = clef_keep(clef_zeros(ctx, CLEF_SHAPE(4), CLEF_F32)), *next;
    for (int i = 0; i < STEPS; i++) {
        if (i == 3) { /* all is planned and compiled */
            clef_synchronize(ctx);
            launches = 0;
            close_gate();
        }
        next = clef_keep(clef_add_scalar(x, 1));
        clef_release(x);
        x = next;
        clef_eval(x);
        clef_end_step(ctx);
    }
    open_gate();
    if (waits < STEPS / (LEAST + SLACK) - 2) COMPLAIN("%d launches, %d waits", STEPS, waits);
    float end[4] = {0};
    if (clef_read(x, end, sizeof end) != CLEF_OK || end[0] != STEPS) COMPLAIN("the sum is %g", (double)end[0]);
    clef_release(x);
    clef_close(ctx);
    printf("%d complaints\n", complaints);
    return complaints > 0;
}
