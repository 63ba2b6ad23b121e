/* order.c — in which order groups run: dependencies first, otherwise as the program made the nodes.

   Backward makes the nodes of a layer before those of the layers below it, so in this order what it needs from forward can go
   early.  Groups that no other needs (updates, statistics) are the exception: the program may make them last, as optimizers do,
   but their results lie in memory of their own whenever they run, while what they read, the gradients, may be gone after them.
   So they run as soon as they can. */
#include "plan/passes/groups.h"

#include <stdlib.h>

typedef struct place {
    uint64_t key;
    int group;
} place;

/* Who reads the memory of a captured node: the last group that others need, and the one that none does. */
typedef struct readers {
    uint64_t made;
    int final;
} readers;
enum { NONE = -1, SEVERAL = -2 };

typedef struct order {
    clef__graph_view *g;
    clef__grouping *gr;
    place *place;
    readers *of; /* captured nodes */
    int *stack, n;
} order;

static bool is_final(clef__grouping *gr, int group) {
    const clef__group_edges *users = &gr->group[group].users;
    for (int i = 0; i < users->n; i++)
        if (clef__group_of(gr, users->edge[i].group) != group) return false;
    return true;
}

/* A group is made with the last of its members. */
static void note_groups(order *o) {
    for (int i = 0; i < o->g->n; i++) {
        clef__captured *captured = &o->g->captured[i];
        o->of[i] = (readers){.final = NONE};
        if (captured->group < 0) continue;
        captured->group = clef__group_of(o->gr, captured->group);
        clef__group *group = &o->gr->group[captured->group];
        if (captured->node->made > group->made) group->made = captured->node->made;
        if (group->member[group->n_members - 1] != i) continue;
        group->final = is_final(o->gr, captured->group);
        o->place[o->n++].group = captured->group;
    }
}

static void note_readers(order *o) {
    for (int i = 0; i < o->g->n; i++) {
        const clef__captured *captured = &o->g->captured[i];
        const clef__group *group = &o->gr->group[captured->group < 0 ? 0 : captured->group];
        for (int j = 0; captured->group >= 0 && clef__is_work(captured) && j < captured->node->n_inputs; j++) {
            readers *r = &o->of[o->g->captured[clef__captured_of(o->g, captured->node->input[j])].base];
            if (group->final) r->final = r->final == NONE || r->final == captured->group ? captured->group : SEVERAL;
            else if (group->made > r->made) r->made = group->made;
        }
    }
}

/* When the last of what a final group needs was made, and the last reader of what it may overwrite: a parameter stays where it
   is only if all that want its old value ran before. */
static uint64_t earliest(const order *o, int index) {
    const clef__group *group = &o->gr->group[index];
    uint64_t ready = 0;
    for (int i = 0; i < group->needs.n; i++) {
        int needed = clef__group_of(o->gr, group->needs.edge[i].group);
        if (needed != index && o->gr->group[needed].made > ready) ready = o->gr->group[needed].made;
    }
    for (int m = 0; m < group->n_members; m++) {
        const clef__node *node = o->g->captured[group->member[m]].node;
        for (int j = 0; j < node->n_inputs; j++) {
            int base = o->g->captured[clef__captured_of(o->g, node->input[j])].base;
            if (!o->g->captured[base].donatable) continue;
            if (o->of[base].final == SEVERAL) return group->made;
            if (o->of[base].made > ready) ready = o->of[base].made;
        }
    }
    return ready;
}

/* Of equal keys the first runs first, so a final group follows the group it waited for. */
static int by_key(const void *a, const void *b) {
    const place *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1) : x->group - y->group;
}

/* This group behind all it needs that has no place yet; depth first, with a stack of its own as chains may be long. */
static void emit(clef__grouping *gr, int *stack, int first) {
    int depth = 0;
    if (gr->group[first].visited != gr->visit) stack[depth++] = first;
    gr->group[first].visited = gr->visit;
    while (depth) {
        clef__group *group = &gr->group[stack[depth - 1]];
        if (group->emitted == group->needs.n) {
            gr->order[gr->n_order++] = stack[--depth];
            continue;
        }
        int next = clef__group_of(gr, group->needs.edge[group->emitted++].group);
        if (gr->group[next].visited == gr->visit) continue;
        gr->group[next].visited = gr->visit;
        stack[depth++] = next;
    }
}

static void order_all(order *o) {
    note_groups(o);
    note_readers(o);
    for (int i = 0; i < o->n; i++) {
        const clef__group *group = &o->gr->group[o->place[i].group];
        o->place[i].key = group->final ? 2 * earliest(o, o->place[i].group) + 1 : 2 * group->made;
    }
    if (o->n) qsort(o->place, (size_t)o->n, sizeof *o->place, by_key);
    o->gr->visit++;
    for (int i = 0; i < o->n; i++) emit(o->gr, o->stack, o->place[i].group);
}

bool clef__order(clef__graph_view *g, clef__grouping *gr) {
    order o = {.g = g, .gr = gr};
    gr->order = clef__alloc((size_t)(gr->n + 1) * sizeof *gr->order);
    o.place = clef__alloc((size_t)(gr->n + 1) * sizeof *o.place);
    o.stack = clef__alloc((size_t)(gr->n + 1) * sizeof *o.stack);
    o.of = clef__alloc((size_t)(g->n + 1) * sizeof *o.of);
    bool ok = gr->order && o.place && o.stack && o.of;
    if (ok) order_all(&o);
    clef__free(o.place);
    clef__free(o.stack);
    clef__free(o.of);
    return ok;
}
