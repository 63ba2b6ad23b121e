/* same.c — borders between values that are the same on all ranks and values of which each rank has a part: the two that move nothing.

   Forward they are views, and backward collective operations (collective.c), whose gradients are these views again. */
#include "group/group.h"
#include "ops/ops.h"

/* Hashed as bytes; the group lives as long as the context. */
typedef struct region_attributes {
    clef_group *group;
    int64_t dim;
} region_attributes;

static const region_attributes *attributes_of(const clef_tensor *y) { return clef__attributes(clef__node_of(y)); }

/* ---- x itself ---- */

static void sum_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                         clef_tensor **dx) {
    (void)x, (void)wanted;
    dx[0] = clef__same_all_reduce(g[0], attributes_of(y[0])->group);
}

static const clef_op copy_op = {
    .name = "copy_to_group", .kind = CLEF__VIEW, .infer = clef__infer_like, .gradient = sum_gradient, .view = clef__view_all};

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
    const region_attributes *a = attributes_of(y[0]);
    clef_shape shape = clef_tensor_shape(g[0]), folded = {.rank = 3, .dim = {1, shape.dim[a->dim], 1}};
    (void)wanted;
    for (int d = 0; d < shape.rank; d++)
        if (d != a->dim) folded.dim[d < a->dim ? 0 : 2] *= shape.dim[d];
    bool full = shape.rank == CLEF_MAX_RANK; /* a gathering wants one dimension more */
    clef_tensor *all = clef__same_all_gather(full ? clef_reshape(g[0], folded) : g[0], a->group, full ? 1 : (int)a->dim);
    dx[0] = full ? clef_reshape(all, clef_tensor_shape(x[0])) : all;
}

static const clef_op part_op = {
    .name = "scatter_to_group", .kind = CLEF__VIEW, .infer = part_infer, .gradient = gather_gradient, .view = view_part};

/* ---- calls ---- */

static clef_tensor *apply(const clef_op *op, clef_tensor *x, clef_group *group, int dim) {
    if (clef_group_size(group) == 1) return clef__tensor_new(clef__output_of(x));
    return clef__apply(op, &x, 1, &(region_attributes){group, dim}, sizeof(region_attributes));
}

clef_tensor *clef__same_copy(clef_tensor *x, clef_group *group) { return apply(&copy_op, x, group, 0); }

clef_tensor *clef__same_part(clef_tensor *x, clef_group *group, int dim) { return apply(&part_op, x, group, dim); }
