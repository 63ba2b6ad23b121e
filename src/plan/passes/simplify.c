/* simplify.c — common subexpressions: nodes with the same op, attributes and inputs are computed once.

   Dead code needs no pass: only what the results need was collected.  Nodes with a dynamic value are never merged, as
   their values may differ at the next replay (so those that have an effect never are); nor are those that wait for different ones, as they are to come apart. */
#include "plan/passes/groups.h"

#include <string.h>

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    return hash ^ hash >> 32;
}

static uint64_t hash_work(const clef__graph_view *g, const clef__node *node) {
    uint64_t hash = mix((uint64_t)(uintptr_t)node->op, (uint64_t)node->out->dtype << 8 | (uint64_t)node->out->device);
    if (node->after) hash = mix(hash, (uint64_t)clef__captured_of(g, node->after));
    for (int i = 0; i < node->n_inputs; i++) hash = mix(hash, (uint64_t)clef__captured_of(g, node->input[i]));
    for (int i = 0; i < node->out->shape.rank; i++) hash = mix(hash, (uint64_t)node->out->shape.dim[i]);
    const unsigned char *bytes = node->attributes;
    for (size_t i = 0; i < node->attribute_bytes; i++) hash = mix(hash, bytes[i]);
    return hash;
}

static bool same_work(const clef__graph_view *g, const clef__node *a, const clef__node *b) {
    if (a->op != b->op || a->n_inputs != b->n_inputs || a->n_outputs != b->n_outputs || a->attribute_bytes != b->attribute_bytes ||
        a->after != b->after)
        return false;
    if (a->attribute_bytes && memcmp(a->attributes, b->attributes, a->attribute_bytes) != 0) return false;
    for (int i = 0; i < a->n_inputs; i++)
        if (clef__captured_of(g, a->input[i]) != clef__captured_of(g, b->input[i])) return false;
    for (int k = 0; k < a->n_outputs; k++)
        if (!clef__same_type(&a->out[k], &b->out[k])) return false;
    return true;
}

/* A node of which some outputs are there already only makes the others: it is nobody's double. */
static bool may_be_shared(const clef__captured *first) {
    bool whole = clef__is_work(first) && !first->node->has_dynamic;
    for (int k = 0; whole && k < first->node->n_outputs; k++) whole = !first[k].there;
    return whole;
}

clef_status clef__simplify(clef__graph_view *g) {
    size_t slots = 16;
    while (slots < 2 * (size_t)g->n) slots *= 2;
    int *table = clef__alloc(slots * sizeof *table); /* open addressing; the first output's place or -1 */
    if (!table) return CLEF_MEMORY;
    memset(table, 0xff, slots * sizeof *table);
    for (int i = 0; i < g->n; i++) {
        const clef__node *node = g->captured[i].node;
        if (!may_be_shared(&g->captured[i])) continue;
        size_t at = hash_work(g, node) & (slots - 1);
        while (table[at] >= 0 && !same_work(g, g->captured[table[at]].node, node)) at = (at + 1) & (slots - 1);
        for (int k = 0; table[at] >= 0 && k < node->n_outputs; k++) g->captured[i + k].same_as = table[at] + k;
        if (table[at] < 0) table[at] = i;
    }
    clef__free(table);
    for (int i = g->n - 1; i >= 0; i--)
        if (g->captured[i].same_as >= 0) g->captured[g->captured[i].same_as].output |= g->captured[i].output;
    return CLEF_OK;
}
