/* node_memory.c — nodes, and their memory, which is kept by size for those that come next.

   A step makes as many nodes as the one before, which go in between.  Given back to the heap they would leave it in pieces that it joins
   and cuts again, and the next ones would lie where no cache has them. */
#include "graph/graph_internal.h"

#include <string.h>

enum { UNIT = 64, MOST_SPARE = 16 << 20 /* bytes: a large step's nodes, but not all that a program ever had at once */ };

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) || \
    __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif

void clef__free_spare_nodes(clef__graph *graph) {
    for (int i = 0; i < CLEF__NODE_CLASSES; i++)
        for (clef__node *node; (node = graph->spare[i]);) {
            graph->spare[i] = node->next_dead;
            clef__free(node);
        }
    graph->spare_bytes = 0;
}

/* Sanitizers and the debug mode are to see who goes on using a node's memory; a program's own allocator keeps it in its own way, and
   may count or refuse every node. */
static bool is_kept(const clef_context *ctx) { return !SANITIZED && !clef__debug_memory(ctx) && !clef__has_allocator(); }

/* All zero, of at least so many bytes; NULL without host memory. */
static clef__node *take(clef_context *ctx, clef__graph *graph, size_t bytes) {
    size_t units = (bytes + UNIT - 1) / UNIT, size_class = units < CLEF__NODE_CLASSES ? units : 0; /* 0: too large to be kept */
    clef__node *node = is_kept(ctx) ? graph->spare[size_class] : NULL;
    if (node) {
        graph->spare[size_class] = node->next_dead;
        graph->spare_bytes -= size_class * UNIT;
        clef__fetch(node->next_dead, size_class * UNIT);
        memset(node, 0, bytes);
    } else node = clef__calloc(1, units * UNIT);
    if (node) node->size_class = (uint16_t)size_class;
    return node;
}

clef__node *clef__node_new(clef_context *ctx, const clef_op *op, int n_inputs, const clef__type *type, int n_outputs, int device,
                           const void *attributes, size_t bytes) {
    clef__graph *graph = clef__graph_of(ctx);
    const size_t pointer = sizeof(clef__output *), outputs = (size_t)n_outputs * sizeof(clef__output);
    const size_t before_inputs = outputs + (bytes + pointer - 1) / pointer * pointer;
    clef__node *node = graph ? take(ctx, graph, sizeof(clef__node) + before_inputs + (size_t)n_inputs * pointer) : NULL;
    if (!node) {
        clef__fail(ctx, CLEF_MEMORY, "%s: no host memory for a node", op->name);
        return NULL;
    }
    node->op = op;
    node->ctx = ctx;
    node->refs = 1;
    node->n_inputs = n_inputs;
    node->n_outputs = n_outputs;
    node->input = (clef__output **)((char *)node->out + before_inputs);
    node->made = graph->nodes++;
    node->segment = clef__checkpointed_segment_retain(graph->segment);
    for (int k = 0; k < n_outputs; k++)
        node->out[k] = (clef__output){.node = node, .shape = type[k].shape, .dtype = type[k].dtype, .device = device};
    node->attribute_bytes = bytes;
    if (bytes) node->attributes = memcpy(node->out + n_outputs, attributes, bytes);
    return node;
}

void clef__set_input(clef__node *node, int i, clef__output *input) {
    node->input[i] = input;
    clef__output_retain(input);
}

void clef__node_free(clef__graph *graph, clef__node *node) {
    if (!node->size_class || !is_kept(node->ctx)) {
        clef__free(node);
        return;
    }
    /* Other sizes may be wanted now than those that are kept. */
    if (graph->spare_bytes >= MOST_SPARE) clef__free_spare_nodes(graph);
    graph->spare_bytes += node->size_class * UNIT;
    node->next_dead = graph->spare[node->size_class];
    graph->spare[node->size_class] = node;
}
