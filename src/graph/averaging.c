/* averaging.c — what the graph knows of ranks: the part of a batch that is this rank's, and that gradients are averaged at first use.

   A leaf whose gradients are averaged holds one of two things.  What backward left is `weighted`: this rank's part, of which the parts of all
   ranks add up to the average.  What was averaged, or set by the program, stands for itself; more of backward makes it a part first. */
#include "graph/graph_internal.h"

void clef__set_share(clef_context *ctx, clef__share share) {
    clef__graph *graph = clef__graph_of(ctx);
    if (graph) graph->share = share;
}

clef__share clef__share_of(clef_context *ctx) {
    const clef__graph *graph = ctx ? clef__graph_of(ctx) : NULL; /* of a handle that is none, which its op refuses later */
    return graph ? graph->share : (clef__share){0};
}

void clef__set_window(clef_context *ctx, clef__share window) {
    clef__graph *graph = clef__graph_of(ctx);
    if (graph) graph->window = window;
}

clef__share clef__window_of(clef_context *ctx) {
    const clef__graph *graph = ctx ? clef__graph_of(ctx) : NULL;
    return graph && graph->window.all ? graph->window : clef__share_of(ctx);
}

bool clef__has_empty_share(clef_context *ctx) {
    clef__share share = clef__share_of(ctx);
    return share.all > 0 && share.items == 0;
}

void clef__average_by(clef_tensor *parameter, clef__averaging *a) {
    clef__tensor *t = clef__get(parameter);
    if (t) t->averaging = a;
}

clef_tensor *clef__unaveraged(const clef_tensor *parameter) {
    const clef__tensor *t = clef__get(parameter);
    return t ? clef__handle(t->grad) : NULL;
}

/* Under handles that nobody else has, all of which are made before the first leaf takes one. */
clef_status clef__set_averaged(clef_tensor *const *parameter, clef_tensor **grad, int n) {
    int made = 0;
    for (; made < n; made++) {
        clef_tensor *own = grad[made] ? clef__tensor_new(clef__output_of(grad[made])) : NULL;
        if (grad[made] && !own) break;
        grad[made] = own;
    }
    for (int i = 0; i < made && made < n; i++) clef__tensor_drop(grad[i]);
    if (made < n) return CLEF_MEMORY;
    for (int i = 0; i < n; i++) {
        clef__tensor *leaf = clef__get(parameter[i]);
        if (grad[i]) clef__take_gradient(leaf, grad[i]);
        if (grad[i]) clef__note_gradient(leaf, false);
        if (leaf->averaging) leaf->averaging->state = CLEF__AVERAGING_DONE;
    }
    return CLEF_OK;
}

clef_status clef__average_gradient(const clef_tensor *parameter) {
    const clef__tensor *t = clef__get(parameter);
    clef__averaging *a = t ? t->averaging : NULL;
    return a && a->state != CLEF__AVERAGING_DONE ? a->average(a) : CLEF_OK;
}

/* Parts of one factor are added as they are, and multiplied by it as they are summed: no gradient is gone through for that alone. */
clef_tensor *clef__add_part(clef__tensor *leaf, clef_tensor *gradient, clef_tensor *(*add)(clef_tensor *, clef_tensor *)) {
    clef__averaging *a = leaf->averaging;
    clef_tensor *old = clef__handle(leaf->grad);
    if (leaf->sharded)
        return clef__refuse(
            leaf->ctx, "backward", CLEF_STATE,
            "the gradients were averaged and cut over the ranks (zero 2) before: clip them, or look at them, after the "
            "last backward of a step");
    double share = a->share(a);
    leaf->next_factor = share;
    if (!old || !leaf->weighted || leaf->factor == share) return add(old, gradient);
    leaf->next_factor = 1;
    clef_tensor *part = a->scale(a, gradient, share), *before = a->scale(a, old, leaf->factor);
    return part && before ? add(before, part) : NULL;
}

void clef__note_gradient(clef__tensor *leaf, bool part) {
    clef__averaging *a = leaf->averaging;
    leaf->sharded = NULL;
    if (!a) return;
    leaf->weighted = part;
    if (part) leaf->factor = leaf->next_factor;
    if (part || a->state == CLEF__AVERAGING_IDLE) a->state = CLEF__AVERAGING_OPEN;
}

/* ---- a gradient that is put aside ---- */

void clef__gradient_aside(clef_tensor *parameter, clef__aside *a) {
    const clef__tensor *leaf = clef__get(parameter);
    *a = (clef__aside){.weighted = leaf->weighted, .factor = leaf->factor, .sharded = leaf->sharded};
    if (leaf->grad) a->gradient = clef_keep(clef__handle(leaf->grad));
    clef_set_grad(parameter, CLEF_NONE);
}

clef_status clef__gradient_back(clef_tensor *parameter, clef__aside *a) {
    clef__tensor *leaf = clef__get(parameter);
    clef_set_grad(parameter, CLEF_NONE);
    clef_tensor *own = a->gradient ? clef__tensor_new(clef__output_of(a->gradient)) : NULL;
    clef_status status = a->gradient && !own ? CLEF_MEMORY : CLEF_OK;
    if (own) {
        clef__take_gradient(leaf, own);
        leaf->weighted = a->weighted, leaf->factor = a->factor, leaf->sharded = a->sharded;
    }
    clef_release(a->gradient);
    *a = (clef__aside){0};
    return status;
}

/* ---- averages that are cut ---- */

clef_tensor *clef__gradient_shard(const clef_tensor *parameter, clef__averaging **by) {
    const clef__tensor *t = clef__get(parameter);
    *by = t ? t->sharded : NULL;
    return *by ? clef__handle(t->grad) : NULL;
}

clef_status clef__set_gradient_shard(clef_tensor *parameter, clef__averaging *by, clef_tensor *shard) {
    clef_tensor *own = clef__tensor_new(clef__output_of(shard));
    if (!own) return CLEF_MEMORY;
    clef__tensor *leaf = clef__get(parameter);
    if (leaf->grad && leaf->grad->keeps > 0)
        clef_set_grad(parameter, CLEF_NONE); /* who kept the whole has it; else it goes at once */
    clef__take_gradient(leaf, own);
    clef__note_gradient(leaf, false);
    leaf->sharded = by;
    return CLEF_OK;
}

clef_tensor *clef__visible_gradient(const clef__tensor *leaf) {
    clef_tensor *g = clef__handle(leaf->grad);
    clef__averaging *by = leaf->sharded;
    return by && g ? by->whole(by, clef__handle(leaf), g) : g;
}
