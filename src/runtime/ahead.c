/* ahead.c — how far the host may run ahead of a device.

   A loop that reads nothing is never made to wait by its own calls, and no driver need say stop: memory that commands hold would
   grow with every step, and pocl takes longer for each command the more there are (six short epochs of two ranks took 73 s; with
   this 0.8 s).  So commands are counted, and behind the plan that completes so many there is a mark; whoever is about to set the
   next one waits for this one first.  At most two plans and twice as many commands are then under way, and at least as many are left
   to do while the host wakes up. */
#include "runtime/runtime_internal.h"

enum { COMMANDS = 128 };

void clef__ahead_count(clef__device *device) { device->ahead.commands++; }

void clef__ahead_close(clef__device *device) {
    if (device->ahead.mark && clef__alive(device)) clReleaseEvent(device->ahead.mark);
    device->ahead.mark = NULL;
}

/* Failures are told of by those who wait for what was computed: here they mean that there is nothing to wait for. */
void clef__ahead_limit(clef__device *device) {
    clef__ahead *ahead = &device->ahead;
    cl_event mark = NULL;
    if (ahead->commands < COMMANDS || !clef__alive(device)) return;
    if (clEnqueueMarkerWithWaitList(clef__queue(device), 0, NULL, &mark) != CL_SUCCESS) mark = NULL;
    clFlush(device->compute);
    if (ahead->mark) {
        clef__wait_for_event(ahead->mark, NULL);
        clReleaseEvent(ahead->mark);
    }
    ahead->mark = mark;
    ahead->commands = 0;
}
