/* memory_order.c — how a tensor's value lies in memory.  Kernels are chosen by that too, and sums are made in another order then: what is to
   go on with the same bits elsewhere must lie as it lay. */
#include "ops/memory_order.h"
#include "graph/core.h"

bool clef__memory_order_of(const clef_tensor *t, int *order) {
    const clef__output *out = clef__output_of(t);
    if (!out || !clef__computed(out) || clef__is_dense(out->shape, out->layout.stride, NULL)) return false;
    for (int d = 0; d < out->shape.rank; d++) { /* sorted by stride, the largest first; those of dimensions of 1 do not matter */
        int at = d;
        for (; at > 0 && out->shape.dim[d] > 1 && out->layout.stride[order[at - 1]] < out->layout.stride[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    return clef__is_dense(out->shape, out->layout.stride, order);
}

bool clef__is_order(const int *order, int rank) {
    unsigned seen = 0;
    for (int d = 0; d < rank; d++) {
        if (order[d] < 0 || order[d] >= rank) return false;
        seen |= 1u << order[d];
    }
    return seen == (1u << rank) - 1;
}

clef_tensor *clef__in_memory_order(clef_tensor *x, const int *order) {
    clef_tensor *dense = clef_copy(clef_permute(x, order));
    return dense ? clef__from_memory_order(dense, order) : NULL;
}

clef_tensor *clef__from_memory_order(clef_tensor *x, const int *order) {
    int inverse[CLEF_MAX_RANK];
    for (int d = 0; d < clef_tensor_shape(x).rank; d++) inverse[order[d]] = d;
    return clef_permute(x, inverse);
}
