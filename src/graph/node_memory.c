/* node_memory.c — the memory of nodes, kept by size for those that come next.

   A step makes as many nodes as the one before, which go in between.  Given back to the heap they would leave it in pieces that it joins
   and cuts again, and the next ones would lie where no cache has them. */
#include "graph/graph_internal.h"

#include <string.h>

enum { UNIT = 64, MOST_SPARE = 16 << 20 /* bytes: a large step's nodes, but not all that a program ever had at once */ };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CHECKED = true };
#else
enum { CHECKED = false };
#endif

clef__node *clef__node_take(clef__graph *graph, size_t bytes) {
    size_t units = (bytes + UNIT - 1) / UNIT, room = units < CLEF__NODE_ROOMS ? units : 0; /* 0: too large to be kept */
    clef__node *node = graph->spare[room];
    if (node) {
        graph->spare[room] = node->next_dead;
        graph->spare_bytes -= room * UNIT;
        clef__fetch(node->next_dead, room * UNIT);
        memset(node, 0, bytes);
    } else node = clef__calloc(1, units * UNIT);
    if (node) node->room = (uint16_t)room;
    return node;
}

/* Where a checker looks on, or in the debug mode, none is used again, so that it sees who goes on using one. */
void clef__node_give(clef__graph *graph, clef__node *node) {
    if (!node->room || graph->spare_bytes >= MOST_SPARE || CHECKED || clef__debug_memory(node->ctx)) {
        clef__free(node);
        return;
    }
    graph->spare_bytes += node->room * UNIT;
    node->next_dead = graph->spare[node->room];
    graph->spare[node->room] = node;
}

void clef__nodes_close(clef__graph *graph) {
    for (int room = 0; room < CLEF__NODE_ROOMS; room++)
        for (clef__node *node = graph->spare[room], *next; node; node = next) {
            next = node->next_dead;
            clef__free(node);
        }
}
