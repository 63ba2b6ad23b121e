/* fuse.c — which pointwise nodes share a kernel, and in which order groups run.

   Every pointwise node starts as a group of its own and joins the groups of its producers while
     - the shapes are equal and the devices are,
     - no path leaves one group and comes back to the other through a third (the merged kernel would wait for itself),
     - the kernel keeps within its limits of operands and steps.
   A group that is needed by one of its own consumers through a view stays apart: its value must lie in memory first. */
#include "plan/plan.h"

#include <string.h>

static int find(const clef__grouping *gr, int i) {
    while (gr->group[i].merged_into >= 0) i = gr->group[i].merged_into;
    return i;
}

/* The item whose memory `item` looks at, and whether views lie between. */
static int base_of(const clef__graph_view *g, int item, bool *through_view) {
    *through_view = false;
    while (!g->item[item].leaf && g->item[item].node->op->kind == CLEF__VIEW) {
        item = clef__item_of(g, g->item[item].node->input[0]);
        *through_view = true;
    }
    return item;
}

static bool add_edge(clef__group *group, clef__group_edge edge) {
    if (!clef__grow(&group->edge, group->n_edges, &group->edge_capacity, sizeof edge)) return false;
    group->edge[group->n_edges++] = edge;
    return true;
}

static bool add_member(clef__group *group, int item) {
    if (!clef__grow(&group->member, group->n_members, &group->member_capacity, sizeof item)) return false;
    int at = group->n_members++;
    while (at > 0 && group->member[at - 1] > item) {
        group->member[at] = group->member[at - 1];
        at--;
    }
    group->member[at] = item;
    return true;
}

static int last_member(const clef__grouping *gr, int i) { return gr->group[i].member[gr->group[i].n_members - 1]; }

/* Does `from` depend on `to`?  (Indices do not prune this: a fused group may hold later items than its consumers.) */
static bool reaches(clef__grouping *gr, int from, int to) {
    if (from == to) return true;
    clef__group *group = &gr->group[from];
    if (group->visited == gr->visit) return false;
    group->visited = gr->visit;
    for (int i = 0; i < group->n_edges; i++)
        if (reaches(gr, find(gr, group->edge[i].group), to)) return true;
    return false;
}

/* Would a kernel of a and b wait for itself by way of a's dependencies? */
static bool conflict(clef__grouping *gr, int a, int b) {
    gr->visit++;
    for (int i = 0; i < gr->group[a].n_edges; i++) {
        clef__group_edge edge = gr->group[a].edge[i];
        int to = find(gr, edge.group);
        if (to == a) continue;
        if (to == b) {
            if (edge.through_view) return true;
        } else if (reaches(gr, to, b)) {
            return true;
        }
    }
    return false;
}

/* Operands that a kernel of these two groups would have at most: distinct inputs, and results seen outside. */
static int count_operands(const clef__graph_view *g, const clef__grouping *gr, const int *uses, int a, int b) {
    int seen[CLEF__PW_OPERANDS], n = 0, inner_uses, total = 0;
    int both[2] = {a, b};
    for (int k = 0; k < 2; k++)
        for (int m = 0; m < gr->group[both[k]].n_members; m++) {
            int item = gr->group[both[k]].member[m];
            const clef__node *node = g->item[item].node;
            for (int j = 0; j < node->n_inputs; j++) {
                int input = clef__item_of(g, node->input[j]), group = g->item[input].group;
                if (group >= 0 && (find(gr, group) == a || find(gr, group) == b)) continue;
                bool known = false;
                for (int s = 0; s < n; s++) known |= seen[s] == input;
                if (known) continue;
                if (n == CLEF__PW_OPERANDS) return n + 1;
                seen[n++] = input;
            }
            inner_uses = 0;
            for (int k2 = 0; k2 < 2; k2++)
                for (int m2 = 0; m2 < gr->group[both[k2]].n_members; m2++) {
                    const clef__node *user = g->item[gr->group[both[k2]].member[m2]].node;
                    for (int j = 0; j < user->n_inputs; j++) inner_uses += clef__item_of(g, user->input[j]) == item;
                }
            total += g->item[item].output || inner_uses < uses[item];
        }
    return total + n;
}

static bool may_merge(const clef__graph_view *g, clef__grouping *gr, const int *uses, int a, int b) {
    const clef__group *x = &gr->group[a], *y = &gr->group[b];
    if (!x->pointwise || !y->pointwise || x->n_members + y->n_members > CLEF__PW_STEPS) return false;
    const clef__node *p = g->item[x->member[0]].node, *q = g->item[y->member[0]].node;
    if (p->device != q->device || !clef_shape_equal(p->shape, q->shape)) return false;
    return !conflict(gr, a, b) && !conflict(gr, b, a) && count_operands(g, gr, uses, a, b) <= CLEF__PW_OPERANDS;
}

/* b's members and edges move to a. */
static bool merge(clef__grouping *gr, int a, int b) {
    clef__group *x = &gr->group[a], *y = &gr->group[b];
    for (int i = 0; i < y->n_members; i++)
        if (!add_member(x, y->member[i])) return false;
    for (int i = 0; i < y->n_edges; i++)
        if (!add_edge(x, y->edge[i])) return false;
    y->merged_into = a;
    return true;
}

static bool new_group(clef__graph_view *g, clef__grouping *gr, int item) {
    int at = gr->n++;
    clef__group *group = &gr->group[at];
    *group = (clef__group){.merged_into = -1, .pointwise = g->item[item].node->op->kind == CLEF__POINTWISE};
    g->item[item].group = at;
    bool ok = add_member(group, item);
    for (int j = 0; ok && j < g->item[item].node->n_inputs; j++) {
        bool through_view;
        int input = base_of(g, clef__item_of(g, g->item[item].node->input[j]), &through_view);
        if (g->item[input].group >= 0)
            ok = add_edge(group, (clef__group_edge){g->item[input].group, through_view});
    }
    return ok;
}

static bool join_producers(clef__graph_view *g, clef__grouping *gr, const int *uses, int item) {
    const clef__node *node = g->item[item].node;
    for (int j = 0; j < node->n_inputs; j++) {
        int producer = g->item[clef__item_of(g, node->input[j])].group;
        if (producer < 0) continue;
        int a = find(gr, producer), b = find(gr, g->item[item].group);
        if (a != b && may_merge(g, gr, uses, a, b) && !merge(gr, a, b)) return false;
    }
    return true;
}

/* Dependencies first, otherwise by the place of the last member in the program. */
static void emit(clef__grouping *gr, int i) {
    clef__group *group = &gr->group[i];
    if (group->visited == gr->visit) return;
    group->visited = gr->visit;
    for (int e = 0; e < group->n_edges; e++) {
        int to = find(gr, group->edge[e].group);
        if (to != i) emit(gr, to);
    }
    gr->order[gr->n_order++] = i;
}

static bool order_groups(const clef__graph_view *g, clef__grouping *gr) {
    gr->order = clef__alloc((size_t)(gr->n + 1) * sizeof *gr->order);
    if (!gr->order) return false;
    gr->visit++;
    for (int i = 0; i < g->n; i++) {
        if (g->item[i].group < 0) continue;
        int group = find(gr, g->item[i].group);
        g->item[i].group = group;
        if (last_member(gr, group) == i) emit(gr, group);
    }
    return true;
}

clef_status clef__fuse(clef__graph_view *g, bool fuse, clef__grouping *gr) {
    int *uses = clef__calloc((size_t)g->n + 1, sizeof *uses);
    gr->group = clef__calloc((size_t)g->n + 1, sizeof *gr->group);
    bool ok = uses && gr->group;
    for (int i = 0; ok && i < g->n; i++) {
        if (g->item[i].leaf || g->item[i].same_as >= 0) continue;
        for (int j = 0; j < g->item[i].node->n_inputs; j++) uses[clef__item_of(g, g->item[i].node->input[j])]++;
    }
    for (int i = 0; ok && i < g->n; i++) {
        const clef__item *item = &g->item[i];
        clef__kind kind = item->node->op->kind;
        if (item->leaf || item->same_as >= 0 || kind == CLEF__VIEW || kind == CLEF__CONSTANT) continue;
        ok = new_group(g, gr, i);
        if (ok && fuse && kind == CLEF__POINTWISE) ok = join_producers(g, gr, uses, i);
    }
    ok = ok && order_groups(g, gr);
    clef__free(uses);
    return ok ? CLEF_OK : CLEF_MEMORY;
}

void clef__grouping_free(clef__grouping *gr) {
    for (int i = 0; i < gr->n; i++) {
        clef__free(gr->group[i].member);
        clef__free(gr->group[i].edge);
    }
    clef__free(gr->group);
    clef__free(gr->order);
    *gr = (clef__grouping){0};
}
