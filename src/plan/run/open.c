/* open.c — opens contexts that can compute: the runtime's, with the planner behind the graph. */
#include "clef/opencl.h"
#include "plan/run/run.h"

clef_status clef_open_all(const clef_options *options, int n, clef_context **ctx) {
    if (n < 1 || !ctx)
        return clef__fail(NULL, CLEF_INVALID, "open_all: %s; give a place for each of one context or more",
                          ctx ? "no contexts are asked for" : "no place for the contexts is given");
    clef_status status = clef__context_open_all(options, n, ctx);
    for (int i = 0; status == CLEF_OK && i < n; i++)
        if (!clef__graph_open(ctx[i], clef__compute)) status = clef__context_abandon_all(ctx, n, i);
    return status;
}

clef_context *clef_open(const clef_options *options) {
    clef_context *ctx;
    return clef_open_all(options, 1, &ctx) == CLEF_OK ? ctx : NULL;
}

clef_context *clef_open_opencl(cl_context context, cl_device_id device, cl_command_queue queue, const clef_options *options) {
    clef_context *ctx = clef__context_adopt(context, device, queue, options);
    return !ctx || clef__graph_open(ctx, clef__compute) ? ctx : clef__context_abandon(ctx);
}
