/* The plan's passes on hand-made structures: no device, no context. */
#include "plan/plan.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* ---- a small graph by hand ---- */

enum { MAX_NODES = 64 };
typedef struct world {
    clef__node node[MAX_NODES];
    clef__node *input[MAX_NODES][4];
    clef__item item[MAX_NODES];
    clef__graph_view g;
} world;

static const clef_op op_leaf = {.name = "leaf", .kind = CLEF__DATA};
static const clef_op op_exp = {.name = "exp", .kind = CLEF__POINTWISE, .params = "x", .text = "exp(x)"};
static const clef_op op_add = {.name = "add", .kind = CLEF__POINTWISE, .params = "ab", .text = "a + b"};
static const clef_op op_sum = {.name = "sum", .kind = CLEF__KERNEL};
static const clef_op op_view = {.name = "view", .kind = CLEF__VIEW};
static const clef_op op_number = {.name = "number", .kind = CLEF__CONSTANT};

static void begin(world *w) {
    *w = (world){0};
    w->g.item = w->item;
    w->g.mark = 7;
}

static int add_node(world *w, const clef_op *op, clef_shape shape, int n, const int *inputs) {
    int at = w->g.n++;
    clef__node *node = &w->node[at];
    *node = (clef__node){.op = op, .refs = 1, .n_inputs = n, .input = w->input[at], .shape = shape, .mark = 7ull << 32 | (uint32_t)at};
    for (int i = 0; i < n; i++) node->input[i] = &w->node[inputs[i]];
    w->item[at] = (clef__item){.node = node, .leaf = op == &op_leaf, .same_as = -1, .group = -1};
    return at;
}
#define NODE(w, op, ...) add_node(w, op, CLEF_SHAPE(4, 8), (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__})
#define LEAF(w) add_node(w, &op_leaf, CLEF_SHAPE(4, 8), 0, NULL)

static clef__grouping fuse(world *w) {
    clef__grouping gr = {0};
    cr_assert_eq(clef__fuse(&w->g, true, &gr), CLEF_OK);
    return gr;
}

static int place_in_order(const clef__grouping *gr, int group) {
    for (int i = 0; i < gr->n_order; i++)
        if (gr->order[i] == group) return i;
    return -1;
}

/* Through views, the group that makes a value; -1 for leaves and constants. */
static int maker(const world *w, int item) {
    item = clef__item_of(&w->g, &w->node[item]);
    while (w->node[item].op == &op_view) item = clef__item_of(&w->g, w->node[item].input[0]);
    return w->item[item].group;
}

/* Every group runs after all it needs, and none needs itself through memory. */
static void check_order(const world *w, const clef__grouping *gr) {
    for (int i = 0; i < w->g.n; i++) {
        int group = w->item[i].group;
        if (group < 0) continue;
        cr_assert_geq(place_in_order(gr, group), 0, "group %d of item %d never runs", group, i);
        for (int j = 0; j < w->node[i].n_inputs; j++) {
            int input = (int)(w->node[i].input[j] - w->node), from = maker(w, input);
            if (from < 0) continue;
            if (from == group) cr_assert_neq(w->node[input].op, &op_view, "item %d reads its own group through a view", i);
            else cr_assert_lt(place_in_order(gr, from), place_in_order(gr, group), "item %d runs before its input %d", i, input);
        }
    }
}

/* ---- simplify ---- */

Test(simplify, equal_expressions_are_computed_once) {
    world w;
    begin(&w);
    int x = LEAF(&w), a = NODE(&w, &op_exp, x), b = NODE(&w, &op_exp, x), c = NODE(&w, &op_add, a, b);
    int d = NODE(&w, &op_add, b, a);
    w.item[d].output = true;
    cr_assert_eq(clef__simplify(&w.g), CLEF_OK);
    cr_assert_eq(w.item[b].same_as, a);
    cr_assert_eq(w.item[d].same_as, c, "a + b and b + a are the same once a and b are");
    cr_assert(w.item[c].output, "what stands for an output is one");
}

Test(simplify, different_values_stay_apart) {
    world w;
    begin(&w);
    int x = LEAF(&w), y = LEAF(&w);
    int a = NODE(&w, &op_exp, x), b = NODE(&w, &op_exp, y), k = add_node(&w, &op_number, CLEF_SCALAR, 0, NULL),
        m = add_node(&w, &op_number, CLEF_SCALAR, 0, NULL), c = NODE(&w, &op_add, x, y), d = NODE(&w, &op_add, y, x);
    w.node[k].has_dynamic = w.node[m].has_dynamic = true;
    int64_t one = 1, two = 2;
    int v = NODE(&w, &op_view, x), u = NODE(&w, &op_view, x);
    w.node[v].attributes = &one;
    w.node[u].attributes = &two;
    w.node[v].attribute_bytes = w.node[u].attribute_bytes = sizeof one;
    cr_assert_eq(clef__simplify(&w.g), CLEF_OK);
    const int apart[] = {a, b, k, m, c, d, v, u};
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++) cr_assert_eq(w.item[apart[i]].same_as, -1, "item %d was merged", apart[i]);
}

/* ---- fuse ---- */

Test(fuse, a_chain_is_one_group) {
    world w;
    begin(&w);
    int x = LEAF(&w), a = NODE(&w, &op_exp, x), b = NODE(&w, &op_exp, a), c = NODE(&w, &op_add, b, x);
    w.item[c].output = true;
    clef__grouping gr = fuse(&w);
    cr_assert_eq(gr.n_order, 1);
    cr_assert_eq(w.item[a].group, w.item[c].group);
    clef__grouping_free(&gr);
}

Test(fuse, branches_meet_in_one_group) {
    world w;
    begin(&w);
    int x = LEAF(&w), y = LEAF(&w), a = NODE(&w, &op_exp, x), b = NODE(&w, &op_exp, y), c = NODE(&w, &op_add, a, b);
    w.item[c].output = true;
    clef__grouping gr = fuse(&w);
    cr_assert_eq(gr.n_order, 1);
    clef__grouping_free(&gr);
}

Test(fuse, a_kernel_between_keeps_groups_apart) {
    world w; /* softmax-like: y = x + expand(sum(x)) with x = exp(leaf) */
    begin(&w);
    int leaf = LEAF(&w), x = NODE(&w, &op_exp, leaf), s = NODE(&w, &op_sum, x), v = NODE(&w, &op_view, s);
    int y = NODE(&w, &op_add, x, v);
    w.item[y].output = true;
    clef__grouping gr = fuse(&w);
    cr_assert_neq(w.item[x].group, w.item[y].group);
    check_order(&w, &gr);
    clef__grouping_free(&gr);
}

Test(fuse, a_view_of_a_member_keeps_groups_apart) {
    world w; /* x + transpose(x) */
    begin(&w);
    int leaf = LEAF(&w), x = NODE(&w, &op_exp, leaf), v = NODE(&w, &op_view, x), y = NODE(&w, &op_add, x, v);
    w.item[y].output = true;
    clef__grouping gr = fuse(&w);
    cr_assert_neq(w.item[x].group, w.item[y].group);
    check_order(&w, &gr);
    clef__grouping_free(&gr);
}

Test(fuse, shapes_and_devices_must_agree) {
    world w;
    begin(&w);
    int x = add_node(&w, &op_leaf, CLEF_SHAPE(8), 0, NULL), a = add_node(&w, &op_exp, CLEF_SHAPE(8), 1, (int[]){x});
    int y = LEAF(&w), b = NODE(&w, &op_add, a, y), c = NODE(&w, &op_exp, b);
    w.node[c].device = 1;
    clef__grouping gr = fuse(&w);
    cr_assert_neq(w.item[a].group, w.item[b].group);
    cr_assert_neq(w.item[b].group, w.item[c].group);
    clef__grouping_free(&gr);
}

Test(fuse, off_means_every_node_alone) {
    world w;
    begin(&w);
    int x = LEAF(&w), a = NODE(&w, &op_exp, x), b = NODE(&w, &op_exp, a);
    clef__grouping gr = {0};
    cr_assert_eq(clef__fuse(&w.g, false, &gr), CLEF_OK);
    cr_assert_eq(gr.n_order, 2);
    cr_assert_neq(w.item[a].group, w.item[b].group);
    clef__grouping_free(&gr);
}

Test(fuse, kernels_keep_within_their_operands) {
    world w; /* the sum of 40 leaves has too many operands for one kernel */
    begin(&w);
    int sum = LEAF(&w);
    for (int i = 0; i < 30; i++) sum = NODE(&w, &op_add, sum, LEAF(&w));
    w.item[sum].output = true;
    clef__grouping gr = fuse(&w);
    cr_assert_geq(gr.n_order, 2);
    check_order(&w, &gr);
    for (int i = 0; i < gr.n_order; i++) cr_assert_lt(gr.group[gr.order[i]].n_members, CLEF__PW_OPERANDS);
    clef__grouping_free(&gr);
}

Test(fuse, random_graphs_run_in_order) {
    srand(1);
    for (int round = 0; round < 400; round++) {
        world w;
        begin(&w);
        LEAF(&w);
        LEAF(&w);
        while (w.g.n < MAX_NODES) {
            int a = rand() % w.g.n, b = rand() % w.g.n;
            switch (rand() % 6) {
            case 0: NODE(&w, &op_sum, a); break;
            case 1: NODE(&w, &op_view, a); break;
            case 2: case 3: NODE(&w, &op_exp, a); break;
            default: NODE(&w, &op_add, a, b);
            }
        }
        cr_assert_eq(clef__simplify(&w.g), CLEF_OK);
        clef__grouping gr = fuse(&w);
        check_order(&w, &gr);
        clef__grouping_free(&gr);
    }
}

/* ---- memory ---- */

Test(place, blocks_alive_together_never_overlap) {
    srand(2);
    for (int round = 0; round < 200; round++) {
        clef__block b[60];
        int n = 1 + rand() % 60;
        for (int i = 0; i < n; i++) {
            int first = rand() % 50;
            b[i] = (clef__block){.bytes = (size_t)(1 + rand() % 5000), .first = first, .last = first + rand() % 12};
        }
        size_t total = clef__place(b, n, 128);
        cr_assert_geq(total, clef__place_lower_bound(b, n));
        for (int i = 0; i < n; i++) {
            cr_assert_eq(b[i].offset % 128, 0);
            cr_assert_leq(b[i].offset + b[i].bytes, total);
            for (int j = 0; j < i; j++) {
                bool together = b[i].first <= b[j].last && b[j].first <= b[i].last;
                bool overlap = b[i].offset < b[j].offset + b[j].bytes && b[j].offset < b[i].offset + b[i].bytes;
                cr_assert(!(together && overlap), "blocks %d and %d share memory", i, j);
            }
        }
    }
}

Test(place, a_chain_needs_two_blocks) {
    clef__block b[10];
    for (int i = 0; i < 10; i++) b[i] = (clef__block){.bytes = 1024, .first = i, .last = i + 1};
    cr_assert_eq(clef__place(b, 10, 128), 2048);
    cr_assert_eq(clef__place_lower_bound(b, 10), 2048);
}

Test(place, nothing_needs_nothing) { cr_assert_eq(clef__place(NULL, 0, 128), 0); }

/* ---- work-groups ---- */

Test(group, no_larger_than_its_kernel_allows) {
    const size_t asked[][3] = {{64, 1, 1}, {8, 8, 1}, {4, 16, 1}, {1, 1, 1}, {48, 3, 2}, {15, 15, 1}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        for (size_t most = 1; most <= 256; most++) {
            size_t local[3] = {asked[i][0], asked[i][1], asked[i][2]};
            clef__fit_group(local, most);
            cr_assert_leq(local[0] * local[1] * local[2], most);
            for (int d = 0; d < 3; d++) cr_assert_eq(asked[i][d] % local[d], 0, "%zu becomes %zu", asked[i][d], local[d]);
            if (asked[i][0] * asked[i][1] * asked[i][2] <= most) cr_assert_eq(memcmp(local, asked[i], sizeof local), 0, "for no reason");
        }
}
