/* capture.c — collects the pending graph, and makes the key that finds its plan again. */
#include "graph/core.h"
#include "plan/capture/capture.h"

#include <string.h>

static bool push(clef__graph_view *g, clef__output *out, bool leaf) {
    if (!clef__grow(&g->captured, g->n, &g->capacity, sizeof *g->captured)) return false;
    g->captured[g->n++] = (clef__captured){.out = out, .node = out->node, .leaf = leaf, .same_as = -1, .group = -1};
    return true;
}

static int index_of(const clef__graph_view *g, const clef__output *out) {
    return out->mark >> 32 == g->mark ? (int)(uint32_t)out->mark : -1;
}

static bool push_leaf(clef__graph_view *g, clef__output *out) {
    out->mark = g->mark << 32 | (uint32_t)g->n;
    return push(g, out, true);
}

/* All outputs of a node.  What is computed already is not computed again, but has a place here too; it is read as a leaf. */
static bool push_node(clef__graph_view *g, clef__node *node) {
    bool ok = true;
    for (int k = 0; ok && k < node->n_outputs; k++) {
        bool there = clef__computed(&node->out[k]);
        if (!there) node->out[k].mark = g->mark << 32 | (uint32_t)g->n;
        ok = push(g, &node->out[k], false);
        if (ok) g->captured[g->n - 1].there = there;
    }
    return ok;
}

int clef__captured_of(const clef__graph_view *g, const clef__output *out) {
    int i = index_of(g, out);
    while (i >= 0 && g->captured[i].same_as >= 0) i = g->captured[i].same_as;
    return i;
}

/* Depth first without recursion: inputs before consumers, in the order in which they were written. */
static clef_status visit(clef_context *ctx, clef__graph_view *g, clef__output *root) {
    int depth = 0;
    bool ok = clef__grow(&g->stack, depth, &g->stack_capacity, sizeof *g->stack);
    clef_status status = CLEF_OK;
    if (ok && index_of(g, root) < 0) g->stack[depth++] = (clef__visit){root, 0};
    while (ok && depth) {
        clef__visit *top = &g->stack[depth - 1];
        clef__node *node = top->out->node;
        if (top->out->donated) {
            root->lost = true;
            status = clef__fail(ctx, CLEF_STATE,
                                "eval: a value that %s needs was overwritten by the end of its step, or by clef_assign_at; "
                                "read or clef_keep what depends on it before",
                                depth > 1 ? g->stack[depth - 2].out->node->op->name : "the result");
            break;
        }
        bool leaf = clef__computed(top->out);
        if (leaf || top->next == node->n_inputs + (node->after != NULL)) {
            if (index_of(g, top->out) < 0) ok = leaf ? push_leaf(g, top->out) : push_node(g, node);
            depth--;
            continue;
        }
        int next = top->next++;
        clef__output *input = next < node->n_inputs ? node->input[next] : node->after;
        if (index_of(g, input) >= 0) continue;
        ok = clef__grow(&g->stack, depth, &g->stack_capacity, sizeof *g->stack);
        if (ok) g->stack[depth++] = (clef__visit){input, 0};
    }
    return ok ? status : clef__fail(ctx, CLEF_MEMORY, "eval: no host memory");
}

/* How many inputs of captured nodes read each. */
static void count_edges(const clef__graph_view *g) {
    memset(g->edges, 0, (size_t)g->n * sizeof *g->edges);
    for (int i = 0; i < g->n; i++) {
        const clef__node *node = g->captured[i].node;
        if (!clef__is_work(&g->captured[i])) continue;
        for (int j = 0; j < node->n_inputs; j++) g->edges[index_of(g, node->input[j])]++;
        if (node->after) g->edges[index_of(g, node->after)]++;
    }
}

/* The leaf that a captured node updates, itself or a view of it; -1: none. */
static int updated_leaf(const clef__graph_view *g, const clef__captured *captured) {
    const clef__output *out = captured->node->input[0];
    while (!clef__computed(out) && out->node->op->kind == CLEF__VIEW) out = out->node->input[0];
    return g->captured[index_of(g, out)].leaf ? index_of(g, out) : -1;
}

static bool mark_updated(const clef__graph_view *g) {
    bool any = false;
    for (int i = 0; i < g->n; i++) {
        if (!clef__is_work(&g->captured[i]) || !g->captured[i].node->op->updates) continue;
        int leaf = updated_leaf(g, &g->captured[i]);
        if (leaf >= 0) any = g->captured[leaf].updated = true;
    }
    return any;
}

/* Does nobody outside of this evaluation look at it again?  At one that is updated, nobody who still can. */
static bool is_donatable(const clef__graph_view *g, int i, uint64_t lapses) {
    const clef__output *out = g->captured[i].out;
    int claims = out->refs - out->remembered - (g->captured[i].updated ? clef__lapsed(out, lapses) : 0);
    return out->buffer && claims == g->edges[i] && clef__buffer_refs(out->buffer) == 1 && !clef__buffer_pinned(out->buffer) &&
           out->layout.offset == 0;
}

/* Temporaries are no reason to compute a value, as it can be computed later; but what has an effect cannot. */
static int claims_on(const clef__output *out) { return out->refs - out->remembered - (out->node->op->ordered ? 0 : out->passing); }

/* Values that something outside this evaluation will want are outputs too; leaves nobody else holds may be overwritten. */
static clef_status mark_outputs(clef_context *ctx, clef__graph_view *g) {
    if (!clef__grow(&g->edges, g->n, &g->edge_capacity, sizeof *g->edges))
        return clef__fail(ctx, CLEF_MEMORY, "eval: no host memory");
    count_edges(g);
    uint64_t lapses = mark_updated(g) ? clef__find_lapsed(ctx, g->mark) : 0;
    for (int i = 0; i < g->n; i++) {
        clef__captured *captured = &g->captured[i];
        const clef__output *out = captured->out;
        if (captured->there) continue;
        if (!captured->leaf) captured->output |= captured->node->op->kind != CLEF__CONSTANT && claims_on(out) > g->edges[i];
        else {
            captured->donatable = is_donatable(g, i, lapses);
            captured->lasts = out->requires_grad && out->buffer && !clef__buffer_pinned(out->buffer) && !captured->donatable &&
                              !captured->updated;
        }
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

/* What computes a node: the op, its attributes and where its inputs come from. */
static void add_work(clef__graph_view *g, const clef__node *node, bool *ok) {
    add_word(g, (uint64_t)(uintptr_t)node->op, ok);
    add_word(g,
             (uint64_t)node->has_dynamic | (uint64_t)(node->after != NULL) << 1 | (uint64_t)node->inference << 2 |
                 (uint64_t)node->n_outputs << 8 | (uint64_t)node->n_inputs << 24 | (uint64_t)node->attribute_bytes << 40,
             ok);
    for (int j = 0; j < node->n_inputs; j++) add_word(g, (uint64_t)index_of(g, node->input[j]), ok);
    if (node->after) add_word(g, (uint64_t)index_of(g, node->after), ok);
    for (size_t b = 0; b < node->attribute_bytes; b += 8) {
        uint64_t word = 0;
        size_t rest = node->attribute_bytes - b;
        memcpy(&word, (const char *)node->attributes + b, rest < 8 ? rest : 8);
        add_word(g, word, ok);
    }
}

/* Everything a plan depends on, and nothing that changes from step to step.  Which outputs of a node are wanted follows from who
   reads them. */
static clef_status make_key(clef_context *ctx, clef__graph_view *g) {
    bool ok = true;
    add_word(g, (uint64_t)clef_get_matmul_precision(ctx), &ok);
    for (int i = 0; ok && i < g->n; i++) {
        const clef__captured *captured = &g->captured[i];
        const clef__output *out = captured->out;
        add_word(g,
                 (uint64_t)captured->leaf | (uint64_t)captured->donatable << 1 | (uint64_t)captured->output << 2 |
                     (uint64_t)captured->there << 3 | (uint64_t)captured->lasts << 4 | (uint64_t)out->dtype << 8 |
                     (uint64_t)out->device << 16 | (uint64_t)out->shape.rank << 24,
                 &ok);
        for (int d = 0; d < out->shape.rank; d++) add_word(g, (uint64_t)out->shape.dim[d], &ok);
        for (int d = 0; captured->leaf && d < out->shape.rank; d++) add_word(g, (uint64_t)out->layout.stride[d], &ok);
        if (clef__is_work(captured)) add_work(g, captured->node, &ok);
    }
    return ok ? CLEF_OK : clef__fail(ctx, CLEF_MEMORY, "eval: no host memory");
}

clef_status clef__collect(clef_context *ctx, clef__output *const *roots, int n, clef__graph_view *g) {
    g->mark = clef__traversal(ctx);
    clef_status status = CLEF_OK;
    for (int i = 0; status == CLEF_OK && i < n; i++) {
        if (clef__computed(roots[i])) continue;
        status = visit(ctx, g, roots[i]);
        if (status == CLEF_OK) g->captured[index_of(g, roots[i])].output = true;
    }
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
