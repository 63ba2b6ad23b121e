/* order.c — in which order groups run: dependencies first, otherwise as the program made the nodes.

   Backward makes the nodes of a layer before those of the layers below it, so in this order what it needs from forward can go
   early.  Groups that no other needs (updates, statistics) are the exception: the program may make them last, as optimizers do,
   but their results lie in memory of their own whenever they run, while what they read, the gradients, may be gone after them.
   So they run as soon as they can.

   So do ops with an effect (clef_op.ordered) and what is made for them alone, one effect after the other: other ranks wait for what they
   send, and what follows here goes on beside them. */
#include "plan/passes/groups.h"

#include <stdlib.h>

typedef struct place {
    uint64_t key, turn, made; /* turn and made: 0 unless the group is urgent */
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

static int compare(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }

/* Of equal keys the first runs first, so a final group follows the group it waited for. */
static int by_key(const void *a, const void *b) {
    const place *x = a, *y = b;
    int sign = compare(x->key, y->key);
    if (!sign) sign = compare(x->turn, y->turn);
    if (!sign) sign = compare(x->made, y->made);
    return sign ? sign : x->group - y->group;
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

/* All of them, in the order of their keys where they do not need each other. */
static void emit_all(order *o) {
    for (int i = 0; i < o->n; i++) o->gr->group[o->place[i].group].emitted = 0;
    o->gr->n_order = 0;
    o->gr->visit++;
    for (int i = 0; i < o->n; i++) emit(o->gr, o->stack, o->place[i].group);
}

/* ---- urgent groups ---- */

static bool has_effect(const clef__graph_view *g, const clef__group *group) {
    return group->kernel >= 0 && g->captured[group->kernel].node->op->ordered;
}

static bool any_effect(const order *o) {
    bool any = false;
    for (int i = 0; i < o->n && !any; i++) any = has_effect(o->g, &o->gr->group[o->place[i].group]);
    return any;
}

static bool all_users_urgent(clef__grouping *gr, int i) {
    const clef__group_edges *users = &gr->group[i].users;
    bool any = false;
    for (int u = 0; u < users->n; u++) {
        int user = clef__group_of(gr, users->edge[u].group);
        if (user == i) continue;
        if (!gr->group[user].urgent) return false;
        any = true;
    }
    return any;
}

static uint64_t when_ready(clef__grouping *gr, int i) {
    const clef__group_edges *needs = &gr->group[i].needs;
    uint64_t ready = 0;
    for (int k = 0; k < needs->n; k++) {
        int index = clef__group_of(gr, needs->edge[k].group);
        const clef__group *needed = &gr->group[index];
        uint64_t made = needed->urgent ? needed->ready : needed->made;
        if (index != i && made > ready) ready = made;
    }
    return ready;
}

/* When the first of the effects was made that an urgent group is for. */
static uint64_t turn_of(const order *o, int i) {
    const clef__group *group = &o->gr->group[i];
    if (has_effect(o->g, group)) return group->made;
    uint64_t first = UINT64_MAX;
    for (int u = 0; u < group->users.n; u++) {
        int user = clef__group_of(o->gr, group->users.edge[u].group);
        if (user != i && o->gr->group[user].turn < first) first = o->gr->group[user].turn;
    }
    return first;
}

/* Dependencies come first in the order there is, so users are known from its end, and needs from its beginning. */
static void find_urgent(order *o) {
    clef__grouping *gr = o->gr;
    for (int i = gr->n_order - 1; i >= 0; i--) {
        clef__group *group = &gr->group[gr->order[i]];
        group->urgent = has_effect(o->g, group) || all_users_urgent(gr, gr->order[i]);
        if (group->urgent) group->turn = turn_of(o, gr->order[i]);
    }
    for (int i = 0; i < gr->n_order; i++)
        if (gr->group[gr->order[i]].urgent) gr->group[gr->order[i]].ready = when_ready(gr, gr->order[i]);
}

/* ---- the whole ---- */

static uint64_t key_of(const order *o, int index) {
    const clef__group *group = &o->gr->group[index];
    if (group->urgent) return 2 * group->ready + 1;
    return group->final ? 2 * earliest(o, index) + 1 : 2 * group->made;
}

static void sort_places(order *o) {
    for (int i = 0; i < o->n; i++) {
        const clef__group *group = &o->gr->group[o->place[i].group];
        place *p = &o->place[i];
        *p = (place){key_of(o, p->group), group->urgent ? group->turn : 0, group->urgent ? group->made : 0, p->group};
    }
    if (o->n) qsort(o->place, (size_t)o->n, sizeof *o->place, by_key);
    emit_all(o);
}

static void order_all(order *o) {
    note_groups(o);
    note_readers(o);
    sort_places(o);
    if (!any_effect(o)) return;
    find_urgent(o);
    sort_places(o);
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
