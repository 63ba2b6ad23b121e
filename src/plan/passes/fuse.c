/* fuse.c — which pointwise nodes share a kernel, and which are done where a kernel that is none stores (epilogue.c) or
   loads (prologue.c).

   Every pointwise node starts as a group of its own and joins the groups of its producers while
     - the shapes are equal and the devices are,
     - no path leaves one group and comes back to the other through a third (the merged kernel would wait for itself),
     - the kernel keeps within its limits of operands, steps and bytes of arguments.
   A group that is needed by one of its own consumers through a view stays apart: its value must lie in memory first.
   When all have joined, groups that read the same value, of their shape, do as well: it is read once, and launched once.

   Every group has a level above those of all it depends on, so a path between two groups runs through levels between theirs.
   What lies there is searched up to a budget, so that the work grows with the size of the graph and no faster; a search that
   does not come to its end counts as a path. */
#include "plan/passes/groups.h"

enum { BUDGET = 2048, SIBLINGS = 8 /* how many users of a value away */ };

/* Where most is needed: five numbers, and the outer dimensions; a constant; pointer, offset and strides of a tensor. */
size_t clef__pointwise_bytes(clef_shape shape, int constants, int tensors) {
    size_t rank = 0;
    for (int d = 0; d < shape.rank; d++) rank += shape.dim[d] != 1;
    size_t outer = rank > 1 ? rank - 1 : 0;
    return sizeof(int64_t) * (5 + outer + (size_t)constants + (size_t)tensors * (2 + outer + 1));
}

int clef__group_of(clef__grouping *gr, int i) {
    clef__group *group = gr->group;
    gr->steps++;
    while (group[i].merged_into >= 0) {
        int next = group[i].merged_into;
        if (group[next].merged_into >= 0) group[i].merged_into = group[next].merged_into;
        i = next;
    }
    return i;
}

bool clef__only_user(clef__grouping *gr, int group, int user) {
    const clef__group_edges *users = &gr->group[group].users;
    for (int i = 0; i < users->n; i++) {
        int other = clef__group_of(gr, users->edge[i].group);
        if (other != group && other != user) return false;
    }
    return true;
}

static bool add_edge(clef__group_edges *edges, clef__group_edge edge) {
    if (!clef__grow(&edges->edge, edges->n, &edges->capacity, sizeof edge)) return false;
    edges->edge[edges->n++] = edge;
    return true;
}

static bool add_member(clef__group *group, int captured) {
    if (!clef__grow(&group->member, group->n_members, &group->member_capacity, sizeof captured)) return false;
    int at = group->n_members++;
    while (at > 0 && group->member[at - 1] > captured) {
        group->member[at] = group->member[at - 1];
        at--;
    }
    group->member[at] = captured;
    return true;
}

/* ---- may two groups be one? ---- */

static bool reads_through_view(clef__grouping *gr, int reader, int of) {
    const clef__group_edges *needs = &gr->group[reader].needs;
    for (int i = 0; i < needs->n; i++)
        if (needs->edge[i].through_view && clef__group_of(gr, needs->edge[i].group) == of) return true;
    return false;
}

bool clef__path_between(clef__grouping *gr, int low, int high) {
    int n = 0, looked = 0;
    gr->queue[n++].group = low;
    gr->group[low].visited = ++gr->visit;
    for (int at = 0; at < n; at++) {
        const clef__group_edges *users = &gr->group[gr->queue[at].group].users;
        for (int i = 0; i < users->n; i++) {
            int user = clef__group_of(gr, users->edge[i].group);
            clef__group *group = &gr->group[user];
            if (looked++ == BUDGET || (user == high && at > 0)) return true;
            if (user == high || group->visited == gr->visit || group->level >= gr->group[high].level) continue;
            group->visited = gr->visit;
            gr->queue[n++].group = user;
        }
    }
    return false;
}

/* Brings low to the level of high, and everything that depends on low above that.  Only for groups without a path between. */
static bool lift(clef__grouping *gr, int low, int high) {
    int n = 0, looked = 0;
    gr->queue[n++] = (clef__lifted){low, gr->group[low].level};
    gr->group[low].level = gr->group[high].level;
    for (int at = 0; at < n; at++) {
        int from = gr->queue[at].group;
        const clef__group_edges *users = &gr->group[from].users;
        for (int i = 0; i < users->n; i++) {
            int user = clef__group_of(gr, users->edge[i].group);
            if (user == high || user == from || gr->group[user].level > gr->group[from].level) continue;
            if (looked++ == BUDGET) {
                while (n--) gr->group[gr->queue[n].group].level = gr->queue[n].level;
                return false;
            }
            gr->queue[n++] = (clef__lifted){user, gr->group[user].level};
            gr->group[user].level = gr->group[from].level + 1;
        }
    }
    return true;
}

static clef_shape shape_of(const clef__graph_view *g, const clef__grouping *gr, int group) {
    return g->captured[gr->group[group].member[0]].out->shape;
}

/* Would a kernel of these two groups keep within its limits?  Its operands are distinct inputs, and results seen outside. */
static bool fits_one_kernel(clef__graph_view *g, clef__grouping *gr, int a, int b) {
    int seen[CLEF__PW_OPERANDS], n = 0, constants = 0, stores = 0;
    const clef__group *both[2] = {&gr->group[a], &gr->group[b]};
    for (int k = 0; k < 2; k++)
        for (int m = 0; m < both[k]->n_members; m++) g->captured[both[k]->member[m]].inner_uses = 0;
    for (int k = 0; k < 2; k++)
        for (int m = 0; m < both[k]->n_members; m++) {
            const clef__node *node = g->captured[both[k]->member[m]].node;
            for (int j = 0; j < node->n_inputs; j++) {
                int input = clef__captured_of(g, node->input[j]),
                    group = g->captured[input].group >= 0 ? clef__group_of(gr, g->captured[input].group) : -1;
                if (group == a || group == b) {
                    g->captured[input].inner_uses++;
                    continue;
                }
                bool constant = clef__constant_behind(g, input) >= 0, known = false;
                if (constant) input = clef__constant_behind(g, input);
                for (int s = 0; s < n; s++) known |= seen[s] == input;
                if (known) continue;
                if (n == CLEF__PW_OPERANDS) return false;
                seen[n++] = input;
                constants += constant;
            }
        }
    for (int k = 0; k < 2; k++)
        for (int m = 0; m < both[k]->n_members; m++) {
            const clef__captured *captured = &g->captured[both[k]->member[m]];
            stores += captured->output || captured->inner_uses < captured->uses;
        }
    clef_shape shape = shape_of(g, gr, a);
    return n + stores <= CLEF__PW_OPERANDS && clef__pointwise_bytes(shape, constants, n - constants + stores) <= CLEF__PW_BYTES;
}

static bool alike(const clef__graph_view *g, const clef__grouping *gr, int a, int b) {
    const clef__group *x = &gr->group[a], *y = &gr->group[b];
    if (x->kernel >= 0 || y->kernel >= 0 || x->n_members + y->n_members > CLEF__PW_STEPS) return false;
    bool beside = g->captured[x->member[0]].out->device == g->captured[y->member[0]].out->device;
    return beside && clef_shape_equal(shape_of(g, gr, a), shape_of(g, gr, b));
}

/* Says yes only after both are on one level. */
static bool may_merge(clef__graph_view *g, clef__grouping *gr, int a, int b) {
    if (!alike(g, gr, a, b) || !fits_one_kernel(g, gr, a, b)) return false;
    if (gr->group[a].level == gr->group[b].level) return true;
    int low = gr->group[a].level < gr->group[b].level ? a : b, high = low == a ? b : a;
    return !reads_through_view(gr, high, low) && !clef__path_between(gr, low, high) && lift(gr, low, high);
}

/* b's members and edges move to a. */
static bool merge(clef__grouping *gr, int a, int b) {
    clef__group *x = &gr->group[a], *y = &gr->group[b];
    bool ok = true;
    for (int i = 0; ok && i < y->n_members; i++) ok = add_member(x, y->member[i]);
    for (int i = 0; ok && i < y->needs.n; i++) ok = add_edge(&x->needs, y->needs.edge[i]);
    for (int i = 0; ok && i < y->users.n; i++) ok = add_edge(&x->users, y->users.edge[i]);
    y->merged_into = a;
    return ok;
}

/* ---- one captured node after the other ---- */

/* The group runs behind the one that makes a captured node, or, of an update, that reads what it overwrites. */
static bool add_need(clef__graph_view *g, clef__grouping *gr, int at, int input) {
    clef__group *group = &gr->group[at];
    int base = g->captured[input].base, maker = g->captured[base].group;
    if (maker < 0) return true;
    maker = clef__group_of(gr, maker);
    if (group->level <= gr->group[maker].level) group->level = gr->group[maker].level + 1;
    return add_edge(&group->needs, (clef__group_edge){maker, base != input}) &&
           add_edge(&gr->group[maker].users, (clef__group_edge){at, base != input});
}

static bool new_group(clef__graph_view *g, clef__grouping *gr, int captured) {
    int at = gr->n++;
    clef__group *group = &gr->group[at];
    const clef__node *node = g->captured[captured].node;
    *group = (clef__group){.merged_into = -1, .kernel = node->op->kind == CLEF__POINTWISE ? -1 : captured};
    for (int k = 0; k < node->n_outputs; k++) g->captured[captured + k].group = at;
    bool ok = add_member(group, captured);
    int n = node->n_inputs + (node->after != NULL);
    for (int j = 0; ok && j < n; j++) {
        const clef__output *needed = j < node->n_inputs ? node->input[j] : node->after;
        ok = add_need(g, gr, at, clef__captured_of(g, needed));
    }
    const clef__captured *update = &g->captured[captured];
    for (int r = 0; ok && r < update->n_readers; r++) ok = add_need(g, gr, at, gr->reader[update->reader + r]);
    return ok;
}

static bool join_producers(clef__graph_view *g, clef__grouping *gr, int captured) {
    const clef__node *node = g->captured[captured].node;
    for (int j = 0; j < node->n_inputs; j++) {
        int producer = g->captured[clef__captured_of(g, node->input[j])].group;
        if (producer < 0) continue;
        int a = clef__group_of(gr, producer), b = clef__group_of(gr, g->captured[captured].group);
        if (a != b && may_merge(g, gr, a, b) && !merge(gr, a, b)) return false;
    }
    return true;
}

/* The group of a kernel that takes the captured node into its store: nothing that waits for that
   group is waited for here, so no path can come back to it.  -1: none. */
static int find_store(clef__graph_view *g, clef__grouping *gr, int captured, clef__epilogue_ops *epilogue) {
    const clef__node *node = g->captured[captured].node;
    for (int j = 0; j < node->n_inputs; j++)
        if (clef__may_join_epilogue(g, gr, captured, j, epilogue))
            return clef__group_of(gr, g->captured[clef__captured_of(g, node->input[j])].group);
    return -1;
}

/* Only now, as a group that has a second one's values to store can no longer be computed where one of its own is read. */
static bool join_siblings(clef__graph_view *g, clef__grouping *gr) {
    for (int p = 0; p < gr->n; p++) {
        const clef__group *maker = &gr->group[p];
        if (maker->merged_into >= 0) continue;
        clef_shape made = g->captured[maker->member[maker->n_members - 1]].out->shape;
        for (int i = 0; i < maker->users.n; i++)
            for (int k = i + 1; k < maker->users.n && k <= i + SIBLINGS; k++) {
                int a = clef__group_of(gr, maker->users.edge[i].group), b = clef__group_of(gr, maker->users.edge[k].group);
                if (a == b || a == p || b == p || !clef_shape_equal(made, shape_of(g, gr, a))) continue;
                if (may_merge(g, gr, a, b) && !merge(gr, a, b)) return false;
            }
    }
    return true;
}

static bool join_pointwise(clef__graph_view *g, clef__grouping *gr, int captured) {
    clef__epilogue_ops epilogue;
    int a = find_store(g, gr, captured, &epilogue), b = g->captured[captured].group;
    if (a < 0 || !lift(gr, a, b)) return join_producers(g, gr, captured);
    gr->group[a].epilogue = epilogue;
    return merge(gr, a, b);
}

/* A kernel computes what one group makes for it alone, so again no path can come back. */
static bool join_maker(clef__graph_view *g, clef__grouping *gr, int captured) {
    const clef__node *node = g->captured[captured].node;
    int maker = node->n_inputs ? g->captured[clef__captured_of(g, node->input[0])].group : -1;
    if (maker < 0 || !clef__may_join_prologue(g, gr, captured, clef__group_of(gr, maker))) return true;
    return merge(gr, g->captured[captured].group, clef__group_of(gr, maker));
}

/* How often every captured node is read, and whose memory it looks at. */
static void note_uses(clef__graph_view *g) {
    for (int i = 0; i < g->n; i++) g->captured[i].uses = 0;
    for (int i = 0; i < g->n; i++) {
        clef__captured *captured = &g->captured[i];
        captured->base = clef__is_view(captured) ? g->captured[clef__captured_of(g, captured->node->input[0])].base : i;
        for (int j = 0; clef__is_work(captured) && captured->same_as < 0 && j < captured->node->n_inputs; j++)
            g->captured[clef__captured_of(g, captured->node->input[j])].uses++;
    }
}

clef_status clef__fuse(clef__graph_view *g, bool fuse, clef__grouping *gr) {
    note_uses(g);
    gr->group = clef__calloc((size_t)g->n + 1, sizeof *gr->group);
    gr->queue = clef__alloc((BUDGET + 2) * sizeof *gr->queue);
    bool ok = gr->group && gr->queue && clef__find_overwrites(g, gr);
    for (int at = 0; ok && at < g->n; at++) {
        int i = gr->sequence ? gr->sequence[at] : at;
        const clef__captured *captured = &g->captured[i];
        clef__kind kind = captured->node->op->kind;
        if (!clef__is_work(captured) || captured->same_as >= 0 || kind == CLEF__VIEW || kind == CLEF__CONSTANT) continue;
        ok = new_group(g, gr, i);
        if (ok && fuse && kind == CLEF__POINTWISE) ok = join_pointwise(g, gr, i);
        if (ok && fuse && kind == CLEF__KERNEL) ok = join_maker(g, gr, i);
    }
    if (ok && fuse) ok = join_siblings(g, gr);
    return ok && clef__order(g, gr) ? CLEF_OK : CLEF_MEMORY;
}
void clef__grouping_free(clef__grouping *gr) {
    for (int i = 0; i < gr->n; i++) {
        clef__free(gr->group[i].member);
        clef__free(gr->group[i].needs.edge);
        clef__free(gr->group[i].users.edge);
    }
    clef__free(gr->group);
    clef__free(gr->order);
    clef__free(gr->queue);
    clef__free(gr->reader);
    clef__free(gr->sequence);
    *gr = (clef__grouping){0};
}
