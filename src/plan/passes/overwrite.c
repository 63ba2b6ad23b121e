/* overwrite.c — which updates (clef_op.updates) may write into the memory of the value that they update.

   One may if nobody wants the former value afterwards: no result is it or a view of it, nobody outside holds a leaf of it, and
   none of its other readers depends on the update.  Those readers then run before the update: it needs their groups as it needs
   those that make its inputs, so pointwise readers are never fused into something later.  An update that may not copies the value
   first. */
#include "plan/passes/groups.h"

typedef struct search {
    clef__graph_view *g;
    clef__grouping *gr;
    uint64_t *visited; /* captured nodes: the number of the last search that came there */
    uint64_t number;
    int *stack, *next; /* next: while they are put in order, which of what comes before is next */
    int capacity;      /* of gr->reader */
} search;

/* The captured node that stands for the work behind an input. */
static int maker_of(const clef__graph_view *g, const clef__output *input) {
    int i = clef__captured_of(g, input);
    const clef__captured *captured = &g->captured[i];
    return captured->leaf ? i : i - (int)(captured->out - captured->node->out);
}

/* What runs before captured node i, one after the other; -1 behind the last. */
static int before(const search *s, int i, int at) {
    const clef__captured *captured = &s->g->captured[i];
    const clef__node *node = captured->node;
    if (captured->leaf) return -1;
    if (at < node->n_inputs) return maker_of(s->g, node->input[at]);
    at -= node->n_inputs;
    if (node->after && at-- == 0) return maker_of(s->g, node->after);
    return at < captured->n_readers ? s->gr->reader[captured->reader + at] : -1;
}

/* ---- may it? ---- */

static bool is_live(const clef__captured *captured) { return clef__is_work(captured) && captured->same_as < 0; }

/* Is the value nobody's result, and does no one outside hold it? */
static bool is_free(const clef__graph_view *g, int base) {
    const clef__captured *captured = &g->captured[base];
    if (captured->leaf ? !captured->donatable : captured->node->op->kind == CLEF__CONSTANT) return false;
    for (int i = 0; i < g->n; i++)
        if (g->captured[i].output && g->captured[i].base == base) return false;
    return true;
}

static bool reads(const clef__graph_view *g, int i, int base) {
    const clef__captured *captured = &g->captured[i];
    if (!is_live(captured) || clef__is_view(captured)) return false;
    for (int j = 0; j < captured->node->n_inputs; j++)
        if (g->captured[clef__captured_of(g, captured->node->input[j])].base == base) return true;
    return false;
}

/* Does the captured node depend on the update, on a path that this search did not follow yet? */
static bool depends(search *s, int from, int update) {
    int n = 0;
    if (s->visited[from] == s->number) return false;
    s->visited[from] = s->number;
    s->stack[n++] = from;
    while (n) {
        int i = s->stack[--n], earlier;
        for (int at = 0; (earlier = before(s, i, at)) >= 0; at++) {
            if (earlier == update) return true;
            if (s->visited[earlier] == s->number) continue;
            s->visited[earlier] = s->number;
            s->stack[n++] = earlier;
        }
    }
    return false;
}

/* False without host memory. */
static bool consider(search *s, int update) {
    clef__graph_view *g = s->g;
    clef__grouping *gr = s->gr;
    clef__captured *captured = &g->captured[update];
    int base = g->captured[clef__captured_of(g, captured->node->input[0])].base, first = gr->n_readers;
    if (!is_free(g, base)) return true;
    s->number++;
    for (int i = 0; i < g->n; i++) {
        if (i == update || !reads(g, i, base)) continue;
        if (depends(s, i, update)) {
            gr->n_readers = first;
            return true;
        }
        if (!clef__grow(&gr->reader, gr->n_readers, &s->capacity, sizeof i)) return false;
        gr->reader[gr->n_readers++] = i;
    }
    captured->overwrites = true;
    captured->reader = first;
    captured->n_readers = gr->n_readers - first;
    return true;
}

/* ---- in an order in which readers come first ---- */

static void put_in_order(search *s) {
    int depth = 0;
    s->number++;
    for (int i = 0; i < s->g->n; i++) {
        if (s->visited[i] != s->number) s->stack[depth++] = i;
        s->visited[i] = s->number;
        s->next[i] = 0;
        while (depth) {
            int top = s->stack[depth - 1], earlier = before(s, top, s->next[top]++);
            if (earlier < 0) s->gr->sequence[s->gr->n_sequence++] = s->stack[--depth];
            if (earlier < 0 || s->visited[earlier] == s->number) continue;
            s->visited[earlier] = s->number;
            s->next[earlier] = 0;
            s->stack[depth++] = earlier;
        }
    }
}

static bool consider_all(search *s) {
    bool ok = true;
    for (int i = 0; ok && i < s->g->n; i++)
        if (is_live(&s->g->captured[i]) && s->g->captured[i].node->op->updates) ok = consider(s, i);
    return ok;
}

static bool has_updates(const clef__graph_view *g) {
    for (int i = 0; i < g->n; i++)
        if (is_live(&g->captured[i]) && g->captured[i].node->op->updates) return true;
    return false;
}

bool clef__find_overwrites(clef__graph_view *g, clef__grouping *gr) {
    if (!has_updates(g)) return true;
    size_t n = (size_t)g->n + 1;
    search s = {.g = g, .gr = gr};
    s.visited = clef__calloc(n, sizeof *s.visited);
    s.stack = clef__alloc(n * sizeof *s.stack);
    s.next = clef__alloc(n * sizeof *s.next);
    gr->sequence = clef__alloc(n * sizeof *gr->sequence);
    bool ok = s.visited && s.stack && s.next && gr->sequence && consider_all(&s);
    if (ok) put_in_order(&s);
    clef__free(s.visited);
    clef__free(s.stack);
    clef__free(s.next);
    return ok;
}
