/* capture.c — collects the pending graph, and makes the key that finds its plan again. */
#include "graph/core.h"
#include "plan/capture/capture.h"

#include <string.h>

static bool push_node(clef__graph_view *g, clef__node *node) {
    if (!clef__grow(&g->captured, g->n, &g->capacity, sizeof *g->captured)) return false;
    node->mark = g->mark << 32 | (uint32_t)g->n;
    g->captured[g->n++] = (clef__captured){.node = node, .leaf = clef__computed(node), .same_as = -1, .group = -1};
    return true;
}

static int index_of(const clef__graph_view *g, const clef__node *node) {
    return node->mark >> 32 == g->mark ? (int)(uint32_t)node->mark : -1;
}

int clef__captured_of(const clef__graph_view *g, const clef__node *node) {
    int i = index_of(g, node);
    while (i >= 0 && g->captured[i].same_as >= 0) i = g->captured[i].same_as;
    return i;
}

/* Depth first without recursion: inputs before consumers, in the order in which they were written. */
static clef_status visit(clef_context *ctx, clef__graph_view *g, clef__node *root) {
    int depth = 0;
    bool ok = clef__grow(&g->stack, depth, &g->stack_capacity, sizeof *g->stack);
    clef_status status = CLEF_OK;
    if (ok && index_of(g, root) < 0) g->stack[depth++] = (clef__visit){root, 0};
    while (ok && depth) {
        clef__visit *top = &g->stack[depth - 1];
        if (top->node->donated) {
            status = clef__fail(ctx, CLEF_STATE,
                                "eval: a value that %s needs was overwritten by the end of its step; "
                                "read or clef_keep what depends on it before clef_step",
                                depth > 1 ? g->stack[depth - 2].node->op->name : "the result");
            break;
        }
        int needs = top->node->n_inputs + (top->node->after != NULL);
        if (clef__computed(top->node) || top->next == needs) {
            if (index_of(g, top->node) < 0) ok = push_node(g, top->node);
            depth--;
            continue;
        }
        int next = top->next++;
        clef__node *input = next < top->node->n_inputs ? top->node->input[next] : top->node->after;
        if (index_of(g, input) >= 0) continue;
        ok = clef__grow(&g->stack, depth, &g->stack_capacity, sizeof *g->stack);
        if (ok) g->stack[depth++] = (clef__visit){input, 0};
    }
    return ok ? status : clef__fail(ctx, CLEF_MEMORY, "eval: no host memory");
}

/* A constant lies on no device until it is computed.  What was made from it before, on another device than that on which it
   lies since, goes on taking the number. */
static void free_constants(clef__graph_view *g) {
    for (int i = 0; i < g->n; i++) {
        const clef__node *node = g->captured[i].node;
        for (int j = 0; !g->captured[i].leaf && node->op->kind != CLEF__TRANSFER && j < node->n_inputs; j++)
            if (node->input[j]->op == &clef__op_constant && node->input[j]->device != node->device)
                g->captured[index_of(g, node->input[j])].leaf = false;
    }
}

/* Values that something outside this evaluation will want are outputs too; leaves nobody else holds may be overwritten. */
static clef_status mark_outputs(clef_context *ctx, clef__graph_view *g) {
    if (!clef__grow(&g->edges, g->n, &g->edge_capacity, sizeof *g->edges))
        return clef__fail(ctx, CLEF_MEMORY, "eval: no host memory");
    int *edges = g->edges;
    memset(edges, 0, (size_t)g->n * sizeof *edges);
    for (int i = 0; i < g->n; i++) {
        const clef__node *node = g->captured[i].node;
        for (int j = 0; !g->captured[i].leaf && j < node->n_inputs; j++) edges[index_of(g, node->input[j])]++;
        if (!g->captured[i].leaf && node->after) edges[index_of(g, node->after)]++;
    }
    for (int i = 0; i < g->n; i++) {
        clef__captured *captured = &g->captured[i];
        const clef__node *node = captured->node;
        if (!captured->leaf) captured->output |= node->op->kind != CLEF__CONSTANT && node->refs - node->passing > edges[i];
        else
            captured->donatable = node->buffer && node->refs - node->remembered == edges[i] &&
                                  clef__buffer_refs(node->buffer) == 1 && !clef__buffer_pinned(node->buffer) &&
                                  node->layout.offset == 0;
    }
    return CLEF_OK;
}

static void add_word(clef__graph_view *g, uint64_t word, bool *ok) {
    *ok = *ok && clef__grow(&g->key, g->key_words, &g->key_capacity, sizeof word);
    if (!*ok) return;
    g->key[g->key_words++] = word;
    g->hash = (g->hash ^ word) * 0x9e3779b97f4a7c15u;
    g->hash ^= g->hash >> 29;
}

/* Everything a plan depends on, and nothing that changes from step to step. */
static clef_status make_key(clef_context *ctx, clef__graph_view *g) {
    bool ok = true;
    for (int i = 0; ok && i < g->n; i++) {
        const clef__captured *captured = &g->captured[i];
        const clef__node *node = captured->node;
        int inputs = captured->leaf ? 0 : node->n_inputs;
        bool ordered = !captured->leaf && node->after;
        size_t attribute_bytes = captured->leaf ? 0 : node->attribute_bytes;
        add_word(g,
                 (uint64_t)captured->leaf | (uint64_t)captured->donatable << 1 | (uint64_t)captured->output << 2 |
                     (uint64_t)(!captured->leaf && node->has_dynamic) << 3 | (uint64_t)ordered << 4 | (uint64_t)node->dtype << 8 |
                     (uint64_t)node->device << 16 | (uint64_t)node->shape.rank << 24 | (uint64_t)inputs << 32,
                 &ok);
        add_word(g, captured->leaf ? 0 : (uint64_t)(uintptr_t)node->op, &ok);
        add_word(g, attribute_bytes, &ok);
        for (int d = 0; d < node->shape.rank; d++) add_word(g, (uint64_t)node->shape.dim[d], &ok);
        for (int d = 0; captured->leaf && d < node->shape.rank; d++) add_word(g, (uint64_t)node->layout.stride[d], &ok);
        for (int j = 0; j < inputs; j++) add_word(g, (uint64_t)index_of(g, node->input[j]), &ok);
        if (ordered) add_word(g, (uint64_t)index_of(g, node->after), &ok);
        for (size_t b = 0; b < attribute_bytes; b += 8) {
            uint64_t word = 0;
            size_t rest = attribute_bytes - b;
            memcpy(&word, (const char *)node->attributes + b, rest < 8 ? rest : 8);
            add_word(g, word, &ok);
        }
    }
    return ok ? CLEF_OK : clef__fail(ctx, CLEF_MEMORY, "eval: no host memory");
}

clef_status clef__collect(clef_context *ctx, clef__node *const *roots, int n, clef__graph_view *g) {
    g->mark = clef__traversal(ctx);
    clef_status status = CLEF_OK;
    for (int i = 0; status == CLEF_OK && i < n; i++) {
        if (clef__computed(roots[i])) continue;
        status = visit(ctx, g, roots[i]);
        if (status == CLEF_OK) g->captured[index_of(g, roots[i])].output = true;
    }
    if (status == CLEF_OK) free_constants(g);
    if (status == CLEF_OK) status = mark_outputs(ctx, g);
    return status == CLEF_OK ? make_key(ctx, g) : status;
}

void clef__graph_view_free(clef__graph_view *g) {
    clef__free(g->captured);
    clef__free(g->key);
    clef__free(g->stack);
    clef__free(g->edges);
    *g = (clef__graph_view){0};
}

int clef__constant_behind(const clef__graph_view *g, int captured) {
    int base = g->captured[captured].base;
    return !g->captured[base].leaf && g->captured[base].node->op->kind == CLEF__CONSTANT ? base : -1;
}
