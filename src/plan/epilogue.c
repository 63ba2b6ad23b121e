/* epilogue.c — pointwise ops that a product, a convolution or layer norm does in its store: their input never lies in memory.

   An op follows if nobody else reads what the kernel makes, shapes and dtypes are equal, and its place among those of
   cl/epilogue.h is behind those that follow already.  Ops are known by their formulas. */
#include "plan/plan.h"
#include "../../cl/after.h"

#include <string.h>

/* What takes the one number, and the one operand, that there are. */
enum { NUMBERED = AFTER_SCALE | AFTER_LEAK, EXTRA = AFTER_ADD | AFTER_GATE };

/* input: where the kernel's result may stand, -1: anywhere. */
static const struct { int after; const char *name, *params, *text; int input; } follower[] = {
    {AFTER_SCALE, "mul", "ab", "a * b", -1},
    {AFTER_ADD, "add", "ab", "a + b", -1},
    {AFTER_GATE, "relu_backward", "yg", "SEL(y <= K(0), K(0), g)", 1},
    {AFTER_RELU, "relu", "x", "SEL(x <= K(0), K(0), x)", 0},
    {AFTER_LEAK, "leaky_relu", "xp", "SEL(x > K(0), x, p * x)", 0},
};
enum { FOLLOWERS = sizeof follower / sizeof *follower };

static int what_follows(const clef_op *op, int j) {
    for (int i = 0; i < FOLLOWERS; i++)
        if (strcmp(op->params, follower[i].params) == 0 && strcmp(op->text, follower[i].text) == 0)
            return follower[i].input < 0 || follower[i].input == j ? follower[i].after : 0;
    return 0;
}

static bool alike(const clef__node *a, const clef__node *b) {
    return a->dtype == b->dtype && a->device == b->device && clef_shape_equal(a->shape, b->shape);
}

/* The last of a kernel's group, read here only, and made of something. */
static bool is_open_end(const clef__graph_view *g, const clef__group *group, int item) {
    if (group->kernel < 0) return false;
    const clef__node *kernel = g->item[group->kernel].node;
    bool open = kernel->op->epilogue && group->member[group->n_members - 1] == item &&
                g->item[item].uses == 1 && !g->item[item].output && clef_shape_numel(kernel->shape) > 0;
    for (int i = 0; open && i < kernel->n_inputs; i++) open = clef_shape_numel(kernel->input[i]->shape) > 0;
    return open;
}

/* Would the operand otherwise be made by the kernel that adds it, and never lie in memory either? */
static bool is_passing(const clef__graph_view *g, clef__grouping *gr, int item) {
    return g->item[item].base == item && g->item[item].group >= 0 && g->item[item].uses == 1 && !g->item[item].output &&
           gr->group[clef__group_of(gr, g->item[item].group)].kernel < 0;
}

bool clef__may_follow(const clef__graph_view *g, clef__grouping *gr, int item, int j, clef__following *out) {
    const clef__node *node = g->item[item].node;
    int after = what_follows(node->op, j), from = clef__item_of(g, node->input[j]);
    if (!after || g->item[from].base != from || g->item[from].group < 0) return false;
    int maker = clef__group_of(gr, g->item[from].group);
    const clef__group *group = &gr->group[maker];
    if (!is_open_end(g, group, from) || !clef__only_user(gr, maker, g->item[item].group)) return false;
    if (!alike(node, g->item[from].node) || after <= group->following.after) return false;
    *out = group->following;
    out->after |= after;
    if (after == AFTER_RELU) return true;
    int other = clef__item_of(g, node->input[1 - j]);
    if (after & NUMBERED) {
        out->scale = clef__constant_behind(g, other);
        return out->scale >= 0 && !(group->following.after & NUMBERED);
    }
    if (group->following.after & AFTER_ADD) return false;
    out->extra = other;
    return clef__constant_behind(g, other) < 0 && alike(node, g->item[other].node) && !is_passing(g, gr, other);
}

/* ---- lowering ---- */

static bool lies_as(const clef__operand *x, const clef__operand *y) {
    clef_shape shape = clef__operand_shape(x);
    return x->dtype == y->dtype && clef_shape_equal(shape, clef__operand_shape(y)) && clef__same_strides(shape, x->stride, y->stride);
}

clef__epilogue clef__lower_epilogue(clef__lowering *l, clef__operand out) {
    const clef__following *following = l->following;
    clef__epilogue epilogue = {0};
    if (!following) return epilogue;
    epilogue.after = following->after;
    epilogue.scale = following->scale;
    if (following->after & EXTRA) {
        epilogue.extra = clef__item_operand(l, following->extra);
        if (!lies_as(&epilogue.extra, &out)) return (clef__epilogue){0};
    }
    l->following = NULL;
    return epilogue;
}

void clef__launch_epilogue(clef__lowering *l, const clef__epilogue *epilogue, clef__operand out) {
    clef__operand extra = epilogue->after & EXTRA ? epilogue->extra : out; /* which then is not read */
    if (epilogue->after & EXTRA) extra.offset += out.offset;
    clef__launch_tensor(l, extra, false);
    clef__launch_constant(l, epilogue->after & NUMBERED ? epilogue->scale : -1, 1, out.dtype);
    clef__launch_int(l, epilogue->after);
    for (int i = 0; i < FOLLOWERS; i++)
        if (epilogue->after & follower[i].after) clef__launch_name(l, follower[i].name, true);
}
