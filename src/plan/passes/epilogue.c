/* epilogue.c — pointwise ops that a product, a convolution or layer norm does in its store: their input never lies in memory.  Of a kernel
   with several outputs the first one has an epilogue.

   An op joins the epilogue if nobody else reads what the kernel makes, shapes and dtypes are equal, and its place among those of
   cl/epilogue.h is behind those that are in it already.  The rows of the op tables say what a store may do of them (clef_op). */
#include "plan/passes/groups.h"

/* What a store may do of an op whose input j it has: a gate opens and shuts for the second one. */
static int epilogue_op(const clef_op *op, int j) {
    bool either = op->store & (EPILOGUE_SCALE | EPILOGUE_ADD);
    return either || j == (op->store == EPILOGUE_GATE ? 1 : 0) ? op->store : 0;
}

/* The last of a kernel's group, read here only, and made of something. */
static bool is_open_end(const clef__graph_view *g, const clef__group *group, int captured) {
    if (group->kernel < 0) return false;
    const clef__node *kernel = g->captured[group->kernel].node;
    bool open = kernel->op->epilogue && group->member[group->n_members - 1] == captured && g->captured[captured].uses == 1 &&
                !g->captured[captured].output && clef_shape_numel(kernel->out->shape) > 0;
    for (int i = 0; open && i < kernel->n_inputs; i++) open = clef_shape_numel(kernel->input[i]->shape) > 0;
    return open;
}

/* Would the operand otherwise be made by the kernel that adds it, and never lie in memory either? */
static bool is_passing(const clef__graph_view *g, clef__grouping *gr, int captured) {
    return g->captured[captured].base == captured && g->captured[captured].group >= 0 && g->captured[captured].uses == 1 &&
           !g->captured[captured].output && gr->group[clef__group_of(gr, g->captured[captured].group)].kernel < 0;
}

bool clef__may_join_epilogue(const clef__graph_view *g, clef__grouping *gr, int captured, int j, clef__epilogue_ops *out) {
    const clef__node *node = g->captured[captured].node;
    int ops = epilogue_op(node->op, j), from = clef__captured_of(g, node->input[j]);
    if (!ops || g->captured[from].base != from || g->captured[from].group < 0) return false;
    int maker = clef__group_of(gr, g->captured[from].group);
    const clef__group *group = &gr->group[maker];
    if (!is_open_end(g, group, from) || clef__path_between(gr, maker, g->captured[captured].group)) return false;
    if (!clef__same_type(node->out, g->captured[from].out) || ops <= group->epilogue.ops) return false;
    *out = group->epilogue;
    out->ops |= ops;
    if (ops == EPILOGUE_RELU) return true;
    int other = clef__captured_of(g, node->input[1 - j]);
    if (clef__epilogue_takes_number(ops)) {
        out->scale = clef__constant_behind(g, other);
        return out->scale >= 0 && !clef__epilogue_takes_number(group->epilogue.ops);
    }
    if (group->epilogue.ops & EPILOGUE_ADD) return false;
    out->extra = other;
    return clef__constant_behind(g, other) < 0 && clef__same_type(node->out, g->captured[other].out) && !is_passing(g, gr, other);
}

const char *clef__epilogue_op_name(int bit) {
    switch (bit) {
    case EPILOGUE_SCALE: return "mul";
    case EPILOGUE_ADD: return "add";
    case EPILOGUE_GATE: return "relu_backward";
    case EPILOGUE_RELU: return "relu";
    default: return "leaky_relu";
    }
}
