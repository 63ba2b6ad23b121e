/* lapse.c — references that need not be heeded when a value is updated where it lies.

   A temporary that was not computed in its step can no longer be read, but its handle lives for a step more, and with it the nodes
   below and their references to values: a loop that reads one result in each step would never find a value alone.  So what only such
   handles hold is followed, as if they were gone.  A node lapses when all references to it did, and then those of its inputs.
   In eager mode nothing does: an update is computed before the expressions of its step that come next are made, and they may read the former
   value, as they do where all of them are computed together. */
#include "graph/graph_internal.h"

static bool has_lapsed(const clef__node *node, uint64_t traversal, uint64_t mark) {
    for (int k = 0; k < node->n_outputs; k++)
        if (node->out[k].mark >> 32 == mark || clef__lapsed(&node->out[k], traversal) < node->out[k].refs) return false;
    return true;
}

/* One reference less; the list with the node, if that has lapsed now. */
static clef__node *lapse(clef__output *out, uint64_t traversal, uint64_t mark, clef__node *list) {
    out->lapse = traversal << 32 | (uint32_t)(clef__lapsed(out, traversal) + 1);
    if (!has_lapsed(out->node, traversal, mark)) return list;
    out->node->next_dead = list;
    return out->node;
}

uint64_t clef__find_lapsed(clef_context *ctx, uint64_t mark) {
    clef__graph *graph = clef__graph_of(ctx);
    uint64_t traversal = clef__traversal(ctx);
    clef__node *list = NULL;
    for (clef__tensor *t = clef__eager(ctx) ? NULL : graph->temporaries; t; t = t->next) {
        clef__fetch_next(t);
        if (t->until <= graph->step) list = lapse(t->out, traversal, mark, list);
    }
    while (list) {
        clef__node *node = list;
        list = node->next_dead;
        for (int i = 0; i < node->n_inputs; i++) list = lapse(node->input[i], traversal, mark, list);
        if (node->after) list = lapse(node->after, traversal, mark, list);
    }
    return traversal;
}
