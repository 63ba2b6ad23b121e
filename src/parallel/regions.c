/* regions.c — borders between values that are the same on all ranks and values of which each rank has a part.

   What a border does forward costs nothing (a view) or is a collective operation, and backward it is the other. */
#include "group/group.h"
#include "ops/ops.h"
#include "parallel/parallel.h"

/* Hashed as bytes; the group lives as long as the context. */
typedef struct region_attributes {
    clef_group *group;
    int64_t dim;
} region_attributes;

static const region_attributes *attributes_of(const clef_tensor *y) { return clef__attributes(clef__node_of(y)); }

/* ---- x itself ---- */

static bool view_all(const clef__node *node, const clef__layout *in, clef__layout *out) {
    (void)node;
    *out = *in;
    return true;
}

static void sum_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                         clef_tensor **dx) {
    (void)x, (void)wanted;
    dx[0] = clef__same_all_reduce(g[0], attributes_of(y[0])->group);
}

static const clef_op copy_op = {
    .name = "copy_to_group", .kind = CLEF__VIEW, .infer = clef__infer_like, .gradient = sum_gradient, .view = view_all};

/* ---- a part of x ---- */

static bool part_infer(clef__call *call) {
    const region_attributes *a = call->attributes;
    clef__infer_like(call);
    call->out->shape.dim[a->dim] /= a->group->size;
    return clef__infer_takes(call, call->out->shape.dim[a->dim] * a->group->size == call->input[0]->shape.dim[a->dim],
                             "the dimension can be cut into equal parts");
}

static bool view_part(const clef__node *node, const clef__layout *in, clef__layout *out) {
    const region_attributes *a = clef__attributes(node);
    *out = *in;
    if (clef_shape_numel(node->out->shape) > 0) out->offset += a->group->rank * node->out->shape.dim[a->dim] * in->stride[a->dim];
    return true;
}

static void gather_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    (void)x, (void)wanted;
    dx[0] = clef__same_all_gather(g[0], attributes_of(y[0])->group, (int)attributes_of(y[0])->dim);
}

static const clef_op part_op = {
    .name = "scatter_to_group", .kind = CLEF__VIEW, .infer = part_infer, .gradient = gather_gradient, .view = view_part};

/* ---- public ---- */

static bool given(const char *op, clef_tensor *x, const clef_group *group) {
    if (!CLEF__GIVEN(op, "x", x)) return false;
    if (!group || group->ctx == clef_tensor_context(x)) return true;
    clef__fail(clef_tensor_context(x), CLEF_INVALID, "%s: the group belongs to another context; each rank has its own", op);
    return false;
}

static clef_tensor *apply(const clef_op *op, clef_tensor *x, clef_group *group, int dim) {
    if (clef_group_size(group) == 1) return clef__tensor_new(clef__output_of(x));
    return clef__apply(op, &x, 1, &(region_attributes){group, dim}, sizeof(region_attributes));
}

clef_tensor *clef_copy_to_group(clef_tensor *x, clef_group *group) {
    return given("copy_to_group", x, group) ? apply(&copy_op, x, group, 0) : NULL;
}

clef_tensor *clef_scatter_to_group(clef_tensor *x, clef_group *group, int dim) {
    if (!given("scatter_to_group", x, group)) return NULL;
    clef_shape shape = clef_tensor_shape(x);
    if (!clef__normalize_dim(shape.rank, &dim)) return clef__refuse_dim(x, "scatter_to_group", dim), NULL;
    if (shape.dim[dim] % clef_group_size(group))
        return clef__refuse(clef_tensor_context(x), "scatter_to_group", CLEF_SHAPE,
                            "dimension %d of x %s cannot be cut into %d equal parts, one for each rank; clef_pad it", dim,
                            clef__shape_text(shape), clef_group_size(group));
    return apply(&part_op, x, group, dim);
}

clef_tensor *clef_reduce_from_group(clef_tensor *x, clef_group *group) { return clef__same_all_reduce(x, group); }

clef_tensor *clef_gather_from_group(clef_tensor *x, clef_group *group, int dim) { return clef__same_all_gather(x, group, dim); }
