/* regions.c — borders between values that are the same on all ranks and values of which each rank has a part.

   What a border does forward costs nothing (a view) or is a collective operation, and backward it is the other. */
#include "group/group.h"
#include "ops/ops.h"
#include "parallel/parallel.h"

static bool given(const char *op, clef_tensor *x, const clef_group *group) {
    if (!CLEF__GIVEN(op, "x", x)) return false;
    if (!group || group->ctx == clef_tensor_context(x)) return true;
    clef__fail(clef_tensor_context(x), CLEF_INVALID, "%s: the group belongs to another context; each rank has its own", op);
    return false;
}

clef_tensor *clef_copy_to_group(clef_tensor *x, clef_group *group) {
    return given("copy_to_group", x, group) ? clef__same_copy(x, group) : NULL;
}

clef_tensor *clef_scatter_to_group(clef_tensor *x, clef_group *group, int dim) {
    if (!given("scatter_to_group", x, group)) return NULL;
    clef_shape shape = clef_tensor_shape(x);
    if (!clef__normalize_dim(shape.rank, &dim)) return clef__refuse_dim(x, "scatter_to_group", dim), NULL;
    if (shape.dim[dim] % clef_group_size(group))
        return clef__refuse(clef_tensor_context(x), "scatter_to_group", CLEF_SHAPE,
                            "dimension %d of x %s cannot be cut into %d equal parts, one for each rank; clef_pad it", dim,
                            clef__shape_text(shape), clef_group_size(group));
    return clef__same_part(x, group, dim);
}

clef_tensor *clef_reduce_from_group(clef_tensor *x, clef_group *group) { return clef__same_all_reduce(x, group); }

clef_tensor *clef_gather_from_group(clef_tensor *x, clef_group *group, int dim) { return clef__same_all_gather(x, group, dim); }
