/* overwrite.c — which updates (clef_op.updates) may write into the memory of the value that they update.

   One may if nobody wants the former value afterwards: no result is it or a view of it, nobody outside holds a leaf of it, and
   none of its other readers depends on the update.  Those readers then run before the update: it needs their groups as it needs
   those that make its inputs, so pointwise readers are never fused into something later.  An update that may not copies the value
   first. */
#include "plan/passes/groups.h"

typedef struct search {
    clef__graph_view *g;
    clef__grouping *gr;
    bool *wanted;              /* of values: it or a view of it is a result */
    int *first_read, *reading; /* the captured nodes that read value i: reading[first_read[i] … first_read[i + 1]] */
    int latest;                /* of the readers that run before an update, as far as known; -1: none */
    uint64_t *visited;         /* captured nodes: the number of the last search that came there */
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

/* ---- who reads what ---- */

static bool is_live(const clef__captured *captured) { return clef__is_work(captured) && captured->same_as < 0; }

static int value_of(const clef__graph_view *g, const clef__output *input) { return g->captured[clef__captured_of(g, input)].base; }

/* The value that a captured node reads as input j; -1 if an earlier input is of that value too. */
static int read_as(const clef__graph_view *g, int i, int j) {
    const clef__node *node = g->captured[i].node;
    int value = value_of(g, node->input[j]);
    for (int k = 0; k < j; k++)
        if (value_of(g, node->input[k]) == value) return -1;
    return value;
}

static bool is_reader(const clef__captured *captured) { return is_live(captured) && !clef__is_view(captured); }

/* Counted first; then, from the last, each is put before those behind it. */
static bool note_readers(search *s) {
    const clef__graph_view *g = s->g;
    int n = 0, value;
    for (int i = 0; i < g->n; i++) {
        if (g->captured[i].output) s->wanted[g->captured[i].base] = true;
        for (int j = 0; is_reader(&g->captured[i]) && j < g->captured[i].node->n_inputs; j++)
            if ((value = read_as(g, i, j)) >= 0) s->first_read[value]++;
    }
    for (int i = 0; i <= g->n; i++) n = s->first_read[i] += n;
    if (!(s->reading = clef__alloc(((size_t)n + 1) * sizeof *s->reading))) return false;
    for (int i = g->n - 1; i >= 0; i--)
        for (int j = 0; is_reader(&g->captured[i]) && j < g->captured[i].node->n_inputs; j++)
            if ((value = read_as(g, i, j)) >= 0) s->reading[--s->first_read[value]] = i;
    return true;
}

/* ---- may it? ---- */

/* Is the value nobody's result, and does no one outside hold it? */
static bool is_free(const search *s, int value) {
    const clef__captured *captured = &s->g->captured[value];
    return !s->wanted[value] && (captured->leaf ? captured->donatable : captured->node->op->kind != CLEF__CONSTANT);
}

/* Does the captured node depend on the update, on a path that this search did not follow yet?  What was captured before the update
   does so only by way of another update that waits for a later reader; while there is none, the search is short. */
static bool depends(search *s, int from, int update) {
    int n = 0;
    if (s->visited[from] == s->number || (from < update && s->latest < update)) return false;
    s->visited[from] = s->number;
    s->stack[n++] = from;
    while (n) {
        int i = s->stack[--n], earlier;
        for (int at = 0; (earlier = before(s, i, at)) >= 0; at++) {
            s->gr->steps++;
            if (earlier == update) return true;
            if (s->visited[earlier] == s->number || (earlier < update && s->latest < update)) continue;
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
    int value = value_of(g, captured->node->input[0]), first = gr->n_readers;
    if (!is_free(s, value)) return true;
    s->number++;
    for (int at = s->first_read[value]; at < s->first_read[value + 1]; at++) {
        int i = s->reading[at];
        gr->steps++;
        if (i == update) continue;
        if (depends(s, i, update)) {
            gr->n_readers = first;
            return true;
        }
        if (!clef__grow(&gr->reader, gr->n_readers, &s->capacity, sizeof i)) return false;
        gr->reader[gr->n_readers++] = i;
    }
    for (int at = first; at < gr->n_readers; at++) s->latest = gr->reader[at] > s->latest ? gr->reader[at] : s->latest;
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
    search s = {.g = g, .gr = gr, .latest = -1};
    s.wanted = clef__calloc(n, sizeof *s.wanted);
    s.first_read = clef__calloc(n, sizeof *s.first_read);
    s.visited = clef__calloc(n, sizeof *s.visited);
    s.stack = clef__alloc(n * sizeof *s.stack);
    s.next = clef__alloc(n * sizeof *s.next);
    gr->sequence = clef__alloc(n * sizeof *gr->sequence);
    bool ok = s.wanted && s.first_read && s.visited && s.stack && s.next && gr->sequence && note_readers(&s) && consider_all(&s);
    if (ok) put_in_order(&s);
    clef__free(s.wanted);
    clef__free(s.first_read);
    clef__free(s.reading);
    clef__free(s.visited);
    clef__free(s.stack);
    clef__free(s.next);
    return ok;
}
