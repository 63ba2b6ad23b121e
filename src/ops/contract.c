/* contract.c — what an op takes for granted of its callers within the library. */
#include "ops/ops.h"

bool clef__infer_takes(clef__call *call, bool holds, const char *what) {
    if (holds) return true;
    const clef__node *last = call->input[call->n_inputs - 1];
    return clef__infer_fail(call, CLEF_INTERNAL, "clef bug, please report it: not so that %s (%d inputs, %s … %s)", what, call->n_inputs,
                            clef__shape_text(call->input[0]->shape), clef__shape_text(last->shape));
}

bool clef__same_shape(const clef__call *call, int i, int k) {
    return clef_shape_equal(call->input[i]->shape, call->input[k]->shape);
}
