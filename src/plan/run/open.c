/* open.c — opens contexts that can compute: the runtime's, with the planner behind the graph. */
#include "clef/opencl.h"
#include "plan/run/run.h"

static clef_context *with_planner(clef_context *ctx) {
    if (!ctx || clef__graph_open(ctx, clef__compute)) return ctx;
    return clef__context_abandon(ctx);
}

clef_context *clef_open(const clef_options *options) { return with_planner(clef__context_open(options)); }

clef_context *clef_open_opencl(cl_context context, cl_device_id device, cl_command_queue queue, const clef_options *options) {
    return with_planner(clef__context_adopt(context, device, queue, options));
}
