/* adopt.c — living inside a program's own OpenCL context (clef/opencl.h). */
#include "runtime/runtime_internal.h"
#include "clef/opencl.h"

static clef_context *refuse_adoption(clef_status status, const char *why) {
    clef__fail(NULL, status, "open_opencl: %s", why);
    return NULL;
}

/* A driver may list the parents of sub-devices instead of them. */
static bool holds(cl_context context, cl_device_id device) {
    cl_device_id ids[64], parent = NULL;
    size_t bytes = 0;
    if (clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof ids, ids, &bytes) != CL_SUCCESS) return false;
    clGetDeviceInfo(device, CL_DEVICE_PARENT_DEVICE, sizeof parent, &parent, NULL);
    for (size_t i = 0; i < bytes / sizeof *ids; i++)
        if (ids[i] == device || (parent && ids[i] == parent)) return true;
    return false;
}

/* NULL when the queue will do. */
static const char *queue_fault(cl_command_queue queue, cl_context context, cl_device_id device) {
    cl_context its_context = NULL;
    cl_device_id its_device = NULL;
    cl_command_queue_properties properties = 0;
    if (clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof its_context, &its_context, NULL) != CL_SUCCESS ||
        clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof its_device, &its_device, NULL) != CL_SUCCESS ||
        clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL) != CL_SUCCESS)
        return "not a command queue";
    if (its_context != context || its_device != device) return "the queue belongs to another context or device";
    if (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) return "the queue is out of order; give one in order, or NULL";
    return NULL;
}

static bool profiles(cl_command_queue queue) {
    cl_command_queue_properties properties = 0;
    clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
    return properties & CL_QUEUE_PROFILING_ENABLE;
}

/* The device of the list, or facts gathered for one outside it (a sub-device), which then belong to the context.
 */
static bool facts(cl_device_id device, clef__found *out) {
    const clef__found *known = clef__devices_find(device);
    if (known) {
        *out = *known;
        return true;
    }
    cl_platform_id platform = NULL;
    return clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL) == CL_SUCCESS &&
           clef__device_facts(platform, device, out);
}

clef_context *clef__context_adopt(void *context, void *device, void *queue, const clef_options *options) {
    static const clef_options defaults = {0};
    if (!options) options = &defaults;
    if (!context || !device) return refuse_adoption(CLEF_INVALID, "no context or no device given");
    if (options->plan_for)
        return refuse_adoption(CLEF_INVALID, "plan_for is for contexts that Clef opens; this one has its device");
    if (!clef__start()) return NULL;
    if (!holds(context, device)) return refuse_adoption(CLEF_INVALID, "the device does not belong to the context");
    const char *fault = queue ? queue_fault(queue, context, device) : NULL;
    if (fault) return refuse_adoption(CLEF_INVALID, fault);
    clef__found found;
    if (!facts(device, &found)) return refuse_adoption(CLEF_DEVICE, "the device does not say what it is");
    clef_context *ctx = found.unusable ? refuse_adoption(CLEF_UNSUPPORTED, found.unusable) : clef__context_new(options);
    if (!ctx && found.info.index < 0) clef__device_free_texts(&found.info);
    if (ctx && clef__traces(ctx) && queue && !profiles(queue))
        clef__log_line(ctx, CLEF_LOG_WARNING,
                       "trace: the queue has no CL_QUEUE_PROFILING_ENABLE, so that nothing of the device comes into the trace");
    clef__device *d = ctx ? clef__device_open(ctx, &found, context, queue, options->profile, 0) : NULL;
    if (ctx && !(d && clef__programs_open(d, false))) return clef__context_abandon(ctx);
    return ctx;
}

cl_context clef_opencl_context(const clef_context *ctx) { return ctx ? ctx->device[0]->context : NULL; }

cl_device_id clef_opencl_device(const clef_context *ctx) { return ctx ? ctx->device[0]->id : NULL; }

cl_command_queue clef_opencl_queue(const clef_context *ctx) {
    if (ctx) ctx->device[0]->shared = true;
    return ctx ? ctx->device[0]->compute : NULL;
}
