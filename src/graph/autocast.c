/* autocast.c — the setting of autocast, and what it makes of the inputs of an op (clef__precision). */
#include "graph/core.h"
#include "graph/graph_internal.h"

/* Gradients follow from the dtypes that forward had. */
static clef_dtype wanted_dtype(const clef__output *x, clef__precision precision) {
    const clef__graph *graph = clef__graph_of(x->node->ctx);
    bool on = precision != CLEF__AS_GIVEN && graph->autocast != CLEF_F32 && !graph->differentiating;
    if (!on || !clef__is_float(x->dtype) || x->dtype == CLEF_F64) return x->dtype;
    return precision == CLEF__LOW_PRECISION ? graph->autocast : CLEF_F32;
}

clef_tensor *clef__autocast(clef_tensor *x, clef__precision precision) {
    const clef__output *out = x && x != CLEF_NONE ? clef__output_of(x) : NULL;
    return out ? clef__cast(x, wanted_dtype(out, precision)) : x;
}

bool clef__autocast_inputs(const clef_op *op, clef_tensor *const *inputs, int n, clef__output **out) {
    for (int i = 0; op->precision != CLEF__AS_GIVEN && i < n; i++) {
        clef_tensor *x = clef__autocast(inputs[i], op->precision);
        if (!x) return false;
        out[i] = clef__output_of(x);
    }
    return true;
}

clef_dtype clef_set_autocast(clef_context *ctx, clef_dtype dtype) {
    clef__graph *graph = ctx ? clef__graph_of(ctx) : NULL;
    if (!graph) return CLEF_F32;
    clef_dtype was = graph->autocast;
    if (dtype == CLEF_F32 || dtype == CLEF_F16 || dtype == CLEF_BF16) graph->autocast = dtype;
    else
        clef__fail(ctx, CLEF_DTYPE, "set_autocast: %s is no low dtype; give CLEF_F16 or CLEF_BF16, or CLEF_F32 for off",
                   clef_dtype_name(dtype));
    return was;
}

clef_dtype clef_get_autocast(const clef_context *ctx) {
    const clef__graph *graph = ctx ? clef__room_state(ctx, CLEF__ROOM_GRAPH) : NULL;
    return graph ? graph->autocast : CLEF_F32;
}
