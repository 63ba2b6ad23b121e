/* sequence.c — the order of ops that have an effect outside of their results, such as messages to other ranks.

   Evaluation is lazy: a program that reads one result cuts its plan in two, and what is computed when differs from rank to rank.  So such
   a node comes `after` the one made before it, whoever reads what.  Evaluating one first evaluates all earlier ones, and the last of
   them is computed with its step even where nobody reads it.  What they compute is kept while anybody could ask for it (capture.c), as
   nothing of it can be computed twice. */
#include "graph/graph_internal.h"

static void set_last(clef__graph *graph, clef__output *out) {
    if (out) clef__output_retain(out);
    clef__output_release(graph->ordered);
    graph->ordered = out;
}

void clef__sequence_settle(clef__graph *graph) {
    if (graph->ordered && clef__computed(graph->ordered)) set_last(graph, NULL);
}

/* One of its results that has to be computed; NULL: none, it is over as it begins. */
static clef__output *pending_of(clef__node *node) {
    for (int k = 0; k < node->n_outputs; k++)
        if (!clef__computed(&node->out[k])) return &node->out[k];
    return NULL;
}

/* In a dry run nothing runs, so nothing comes behind it either. */
void clef__sequence(clef__node *node) {
    clef__graph *graph = clef__graph_of(node->ctx);
    node->has_dynamic = true;
    node->dynamic.u[0] = CLEF__UNNUMBERED;
    if (graph->dry) return;
    clef__sequence_settle(graph);
    node->after = graph->ordered;
    if (node->after) clef__output_retain(node->after);
    node->dynamic.u[0] = node->op->ordered(node);
    if (pending_of(node)) set_last(graph, pending_of(node));
}

clef_status clef__run_ordered(clef_context *ctx) {
    clef__graph *graph = clef__graph_of(ctx);
    if (!graph) return CLEF_MEMORY;
    clef__sequence_settle(graph);
    return graph->ordered && !graph->dry ? graph->evaluate(ctx, &graph->ordered, 1) : CLEF_OK;
}
