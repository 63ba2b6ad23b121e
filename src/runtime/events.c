/* events.c — queues that wait for one another: marks, waits, and copies beside the kernels.

   A device has its compute queue, which everything goes to, once a plan copies between it and another device a second queue, in
   which copies run while it computes, and a third for visits of the host (visit.c).  The first two are in order, and visits come one after
   the other; what connects the three is said with events by who runs a plan (plan/run/issue.c).  Between plans a device's compute queue has waited for all that other queues did to its memory, copies in
   second queues and kernels of other devices that read it, so nobody else has to know of these. */
#include "runtime/probe.h"
#include <string.h>

cl_command_queue clef__queue_new(const clef__device *device, cl_command_queue_properties also, cl_int *code) {
    return clCreateCommandQueue(device->context, device->id, also | (device->ctx->trace ? CL_QUEUE_PROFILING_ENABLE : 0), code);
}

cl_command_queue clef__queue_beside(clef__device *device, cl_int *code) {
    *code = CL_SUCCESS;
    if (!device->beside) device->beside = clef__queue_new(device, 0, code);
    return device->beside;
}

bool clef__queues_meet(clef__device *device) {
    if (!device->meet_asked) {
        const clef__found found = {.id = device->id, .info = device->info, .divided = device->divided};
        device->meet = clef__probe_events(device->ctx, &found, &found, true) == CLEF_VERDICT_YES;
        device->meet_asked = true;
    }
    return device->meet;
}

bool clef__devices_joined(const clef__device *a, const clef__device *b) {
    return a->context == b->context && a->opening == b->opening;
}

bool clef__has_memory_of_host(const clef__device *device) {
    cl_bool unified = CL_FALSE;
    return strcmp(device->info.type, "cpu") == 0 &&
           clGetDeviceInfo(device->id, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof unified, &unified, NULL) == CL_SUCCESS && unified;
}

bool clef__devices_see(const clef__device *a, const clef__device *b) {
    const char *wanted = clef__env("CLEF_ZERO_COPY");
    return !(wanted && strcmp(wanted, "0") == 0) && clef__devices_joined(a, b) && a->info.index == b->info.index &&
           clef__has_memory_of_host(a) && clef__has_memory_of_host(b);
}

void clef__event_release(clef__event *event) {
    if (event) clReleaseEvent((cl_event)event);
}

clef_status clef__queue_mark(clef__device *device, clef__event **event) {
    clef_status status = clef__ready(device);
    cl_event mark = NULL;
    *event = NULL;
    if (status != CLEF_OK) return status;
    cl_int code = clEnqueueMarkerWithWaitList(clef__queue(device), 0, NULL, &mark);
    if (code == CL_SUCCESS) code = clFlush(device->compute); /* other queues may only wait for what is on its way */
    *event = (clef__event *)mark;
    return code == CL_SUCCESS ? CLEF_OK : clef__fail_cl(device, code, "mark");
}

clef_status clef__queue_after(clef__device *device, clef__event *event) {
    clef_status status = clef__ready(device);
    if (status != CLEF_OK) return status;
    cl_int code = clEnqueueBarrierWithWaitList(clef__queue(device), 1, (const cl_event *)&event, NULL);
    return code == CL_SUCCESS ? CLEF_OK : clef__fail_cl(device, code, "wait for another queue");
}

clef_status clef__copy_beside(const clef__span *to, const clef__span *from, size_t bytes, clef__event *const *after, int n,
                              clef__event **done) {
    clef__device *device = to->buffer->device;
    clef_status status = clef__ready(device);
    cl_int code;
    cl_event event = NULL;
    *done = NULL;
    if (status == CLEF_OK) status = clef__ready(from->buffer->device);
    if (status != CLEF_OK) return status;
    cl_command_queue queue = clef__queue_beside(device, &code);
    if (code == CL_SUCCESS)
        code = clEnqueueCopyBuffer(queue, from->buffer->memory, to->buffer->memory, from->offset, to->offset, bytes, (cl_uint)n,
                                   n ? (const cl_event *)after : NULL, &event);
    if (code == CL_SUCCESS) code = clFlush(queue);
    *done = (clef__event *)event;
    if (code != CL_SUCCESS)
        return clef__fail_cl(device, code, "copy: %zu bytes from device %d", bytes, from->buffer->device->number);
    if (device->ctx->trace && clRetainEvent(event) == CL_SUCCESS) clef__trace_beside(device, "transfer", event);
    return CLEF_OK;
}

clef_status clef__settle(clef__device *device) {
    if (!clef__alive(device)) return CLEF_OK;
    cl_int code = device->visits ? clef__queue_wait(device->visits) : CL_SUCCESS;
    if (code == CL_SUCCESS && device->beside) code = clef__queue_wait(device->beside);
    if (code == CL_SUCCESS) code = clef__queue_wait(clef__queue(device));
    device->unsettled = code != CL_SUCCESS;
    return code == CL_SUCCESS ? CLEF_OK : clef__fail_cl(device, code, "wait for what was queued");
}
