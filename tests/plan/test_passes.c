/* The plan's passes on hand-made structures: no device, no context. */
#include "plan/run/run.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- a graph by hand ---- */

enum { MAX_NODES = 64 };
typedef struct world {
    clef__node **node; /* of one output each */
    clef__output *(*input)[4];
    clef__captured *captured;
    clef__graph_view g;
} world;

static const clef_op op_leaf = {.name = "leaf", .kind = CLEF__DATA};
static const clef_op op_exp = {.name = "exp", .kind = CLEF__POINTWISE, .params = "x", .text = "exp(x)"};
static const clef_op op_add = {.name = "add", .kind = CLEF__POINTWISE, .params = "ab", .text = "a + b", .store = EPILOGUE_ADD};
static const clef_op op_sum = {.name = "sum", .kind = CLEF__KERNEL};
static const clef_op op_view = {.name = "view", .kind = CLEF__VIEW};
static const clef_op op_update = {.name = "update", .kind = CLEF__KERNEL, .updates = true};
static const clef_op op_number = {.name = "number", .kind = CLEF__CONSTANT};

static void begin_for(world *w, int n) {
    *w = (world){.node = calloc((size_t)n, sizeof *w->node),
                 .input = calloc((size_t)n, sizeof *w->input),
                 .captured = calloc((size_t)n, sizeof *w->captured),
                 .g.mark = 7};
    w->g.captured = w->captured;
}
static void begin(world *w) { begin_for(w, MAX_NODES); } /* in a process that soon ends */
static void end(world *w) {
    for (int i = 0; i < w->g.n; i++) free(w->node[i]);
    free(w->node);
    free(w->input);
    free(w->captured);
}

static int add_node(world *w, const clef_op *op, clef_shape shape, int n, const int *inputs) {
    int at = w->g.n++;
    clef__node *node = w->node[at] = calloc(1, sizeof *node + sizeof *node->out);
    *node = (clef__node){.op = op, .refs = 1, .n_inputs = n, .n_outputs = 1, .input = w->input[at]};
    node->out[0] = (clef__output){.node = node, .refs = 1, .shape = shape, .mark = 7ull << 32 | (uint32_t)at};
    for (int i = 0; i < n; i++) node->input[i] = w->node[inputs[i]]->out;
    w->captured[at] = (clef__captured){.out = node->out, .node = node, .leaf = op == &op_leaf, .same_as = -1, .group = -1};
    return at;
}
#define NODE(w, op, ...) add_node(w, op, CLEF_SHAPE(4, 8), (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__})
#define LEAF(w) add_node(w, &op_leaf, CLEF_SHAPE(4, 8), 0, NULL)

static int index_of(const clef__output *out) { return (int)(uint32_t)out->mark; }

static clef__grouping fuse(world *w) {
    clef__grouping gr = {0};
    cr_assert_eq(clef__fuse(&w->g, true, &gr), CLEF_OK);
    return gr;
}

/* Every group runs after all it needs, and none needs itself through memory. */
static void check_order(const world *w, const clef__grouping *gr) {
    int *place = malloc((size_t)(gr->n + 1) * sizeof *place), *maker = malloc((size_t)w->g.n * sizeof *maker);
    for (int i = 0; i < gr->n; i++) place[i] = -1;
    for (int i = 0; i < gr->n_order; i++) {
        cr_assert_eq(place[gr->order[i]], -1, "group %d runs twice", gr->order[i]);
        place[gr->order[i]] = i;
    }
    for (int i = 0; i < w->g.n; i++) { /* through views, the group that makes a value; -1 for leaves and constants */
        int same = clef__captured_of(&w->g, w->node[i]->out);
        maker[i] = same != i                    ? maker[same]
                   : w->node[i]->op == &op_view ? maker[index_of(w->node[i]->input[0])]
                                                : w->captured[i].group;
    }
    for (int i = 0; i < w->g.n; i++) {
        int group = w->captured[i].group;
        if (group < 0) continue;
        if (place[group] < 0) cr_assert_fail("group %d of item %d never runs", group, i);
        for (int j = 0; j < w->node[i]->n_inputs; j++) {
            int input = index_of(w->node[i]->input[j]), from = maker[input];
            if (from < 0) continue;
            if (from == group && w->node[input]->op == &op_view) cr_assert_fail("item %d reads its own group through a view", i);
            if (from != group && place[from] >= place[group]) cr_assert_fail("item %d runs before its input %d", i, input);
        }
    }
    free(place);
    free(maker);
}

/* ---- simplify ---- */

Test(simplify, equal_expressions_are_computed_once) {
    world w;
    begin(&w);
    int x = LEAF(&w), a = NODE(&w, &op_exp, x), b = NODE(&w, &op_exp, x), c = NODE(&w, &op_add, a, b);
    int d = NODE(&w, &op_add, b, a);
    w.captured[d].output = true;
    cr_assert_eq(clef__simplify(&w.g), CLEF_OK);
    cr_assert_eq(w.captured[b].same_as, a);
    cr_assert_eq(w.captured[d].same_as, c, "a + b and b + a are the same once a and b are");
    cr_assert(w.captured[c].output, "what stands for an output is one");
}

Test(simplify, different_values_stay_apart) {
    world w;
    begin(&w);
    int x = LEAF(&w), y = LEAF(&w);
    int a = NODE(&w, &op_exp, x), b = NODE(&w, &op_exp, y), k = add_node(&w, &op_number, CLEF_SCALAR, 0, NULL),
        m = add_node(&w, &op_number, CLEF_SCALAR, 0, NULL), c = NODE(&w, &op_add, x, y), d = NODE(&w, &op_add, y, x);
    w.node[k]->has_dynamic = w.node[m]->has_dynamic = true;
    int64_t one = 1, two = 2;
    int v = NODE(&w, &op_view, x), u = NODE(&w, &op_view, x);
    w.node[v]->attributes = &one;
    w.node[u]->attributes = &two;
    w.node[v]->attribute_bytes = w.node[u]->attribute_bytes = sizeof one;
    cr_assert_eq(clef__simplify(&w.g), CLEF_OK);
    const int apart[] = {a, b, k, m, c, d, v, u};
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        cr_assert_eq(w.captured[apart[i]].same_as, -1, "item %d was merged", apart[i]);
}

/* ---- fuse ---- */

Test(fuse, a_chain_is_one_group) {
    world w;
    begin(&w);
    int x = LEAF(&w), a = NODE(&w, &op_exp, x), b = NODE(&w, &op_exp, a), c = NODE(&w, &op_add, b, x);
    w.captured[c].output = true;
    clef__grouping gr = fuse(&w);
    cr_assert_eq(gr.n_order, 1);
    cr_assert_eq(w.captured[a].group, w.captured[c].group);
    clef__grouping_free(&gr);
}

Test(fuse, branches_meet_in_one_group) {
    world w;
    begin(&w);
    int x = LEAF(&w), y = LEAF(&w), a = NODE(&w, &op_exp, x), b = NODE(&w, &op_exp, y), c = NODE(&w, &op_add, a, b);
    w.captured[c].output = true;
    clef__grouping gr = fuse(&w);
    cr_assert_eq(gr.n_order, 1);
    clef__grouping_free(&gr);
}

Test(fuse, a_kernel_between_keeps_groups_apart) {
    world w; /* softmax-like: y = x + expand(sum(x)) with x = exp(leaf) */
    begin(&w);
    int leaf = LEAF(&w), x = NODE(&w, &op_exp, leaf), s = NODE(&w, &op_sum, x), v = NODE(&w, &op_view, s);
    int y = NODE(&w, &op_add, x, v);
    w.captured[y].output = true;
    clef__grouping gr = fuse(&w);
    cr_assert_neq(w.captured[x].group, w.captured[y].group);
    check_order(&w, &gr);
    clef__grouping_free(&gr);
}

Test(fuse, a_view_of_a_member_keeps_groups_apart) {
    world w; /* x + transpose(x) */
    begin(&w);
    int leaf = LEAF(&w), x = NODE(&w, &op_exp, leaf), v = NODE(&w, &op_view, x), y = NODE(&w, &op_add, x, v);
    w.captured[y].output = true;
    clef__grouping gr = fuse(&w);
    cr_assert_neq(w.captured[x].group, w.captured[y].group);
    check_order(&w, &gr);
    clef__grouping_free(&gr);
}

Test(fuse, shapes_and_devices_must_agree) {
    world w;
    begin(&w);
    int x = add_node(&w, &op_leaf, CLEF_SHAPE(8), 0, NULL), a = add_node(&w, &op_exp, CLEF_SHAPE(8), 1, (int[]){x});
    int y = LEAF(&w), b = NODE(&w, &op_add, a, y), c = NODE(&w, &op_exp, b);
    w.node[c]->out->device = 1;
    clef__grouping gr = fuse(&w);
    cr_assert_neq(w.captured[a].group, w.captured[b].group);
    cr_assert_neq(w.captured[b].group, w.captured[c].group);
    clef__grouping_free(&gr);
}

/* What a kernel made is read once by those that do not wait for each other. */
Test(fuse, readers_of_one_value_share_a_group) {
    world w;
    begin(&w);
    int x = LEAF(&w), y = LEAF(&w), s = NODE(&w, &op_sum, x), a = NODE(&w, &op_exp, s), k = NODE(&w, &op_sum, a);
    int behind = NODE(&w, &op_add, s, k), beside = NODE(&w, &op_exp, NODE(&w, &op_add, s, y)), of_leaf = NODE(&w, &op_exp, y);
    int few = add_node(&w, &op_sum, CLEF_SHAPE(1, 8), 1, (int[]){x}), wide = NODE(&w, &op_add, few, x),
        wider = NODE(&w, &op_exp, few);
    int out[] = {a, behind, beside, of_leaf, wide, wider};
    for (size_t i = 0; i < sizeof out / sizeof *out; i++) w.captured[out[i]].output = true;
    clef__grouping gr = fuse(&w);
    cr_expect_eq(clef__group_of(&gr, w.captured[a].group), clef__group_of(&gr, w.captured[beside].group));
    cr_expect_neq(clef__group_of(&gr, w.captured[a].group), clef__group_of(&gr, w.captured[behind].group),
                  "a kernel waits for the one");
    cr_expect_neq(clef__group_of(&gr, w.captured[a].group), clef__group_of(&gr, w.captured[of_leaf].group));
    cr_expect_neq(clef__group_of(&gr, w.captured[wide].group), clef__group_of(&gr, w.captured[wider].group),
                  "they read few numbers");
    check_order(&w, &gr);
    clef__grouping_free(&gr);
}

Test(fuse, off_means_every_node_alone) {
    world w;
    begin(&w);
    int x = LEAF(&w), a = NODE(&w, &op_exp, x), b = NODE(&w, &op_exp, a);
    clef__grouping gr = {0};
    cr_assert_eq(clef__fuse(&w.g, false, &gr), CLEF_OK);
    cr_assert_eq(gr.n_order, 2);
    cr_assert_neq(w.captured[a].group, w.captured[b].group);
    clef__grouping_free(&gr);
}

Test(fuse, kernels_keep_within_their_operands) {
    world w; /* the sum of 40 leaves has too many operands for one kernel */
    begin(&w);
    int sum = LEAF(&w);
    for (int i = 0; i < 30; i++) sum = NODE(&w, &op_add, sum, LEAF(&w));
    w.captured[sum].output = true;
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
            case 2:
            case 3: NODE(&w, &op_exp, a); break;
            default: NODE(&w, &op_add, a, b);
            }
        }
        cr_assert_eq(clef__simplify(&w.g), CLEF_OK);
        clef__grouping gr = fuse(&w);
        check_order(&w, &gr);
        clef__grouping_free(&gr);
        end(&w);
    }
}

Test(fuse, arguments_keep_within_what_every_device_takes) {
    for (int rank = 1; rank <= CLEF_MAX_RANK; rank++) {
        world w;
        begin(&w);
        clef_shape shape = {.rank = rank};
        for (int d = 0; d < rank; d++) shape.dim[d] = 2;
        int sum = add_node(&w, &op_leaf, shape, 0, NULL), leaves = 1;
        for (; leaves < 24; leaves++) sum = add_node(&w, &op_add, shape, 2, (int[]){sum, add_node(&w, &op_leaf, shape, 0, NULL)});
        w.captured[sum].output = true;
        clef__grouping gr = fuse(&w);
        check_order(&w, &gr);
        for (int i = 0; i < gr.n_order; i++) { /* a group of n members reads n + 1 values and stores one */
            int tensors = gr.group[gr.order[i]].n_members + 2;
            cr_assert_leq(clef__pointwise_bytes(shape, 0, tensors), 1024, "rank %d, %d tensors", rank, tensors);
        }
        if (rank <= 3) cr_assert_eq(gr.n_order, 2, "only as many kernels as operands make necessary");
        clef__grouping_free(&gr);
        end(&w);
    }
}

/* ---- large graphs ---- */

static int many; /* nodes */

/* Plans a graph of so many nodes that `next` makes one by one; returns how many edges were followed. */
static uint64_t plan_many(int (*next)(world *w), bool fused) {
    world w;
    begin_for(&w, many + 2);
    LEAF(&w);
    LEAF(&w);
    int last = 0;
    while (w.g.n < many) {
        last = next(&w);
        w.node[last]->has_dynamic = true; /* so that equal ones stay apart */
    }
    w.captured[last].output = true;
    cr_assert_eq(clef__simplify(&w.g), CLEF_OK);
    clef__grouping gr = {0};
    cr_assert_eq(clef__fuse(&w.g, fused, &gr), CLEF_OK);
    uint64_t steps = gr.steps;
    check_order(&w, &gr);
    clef__grouping_free(&gr);
    end(&w);
    return steps;
}

static int add_first(world *w) { return NODE(w, &op_add, w->g.n - 1, 0); }
static int add_both(world *w) { return NODE(w, &op_add, w->g.n - 1, w->g.n - 2); }
static int exp_or_sum(world *w) { return NODE(w, w->g.n % 2 ? &op_sum : &op_exp, w->g.n - 1); }
static int all_of_one(world *w) { return w->g.n == 2 ? NODE(w, &op_exp, 0) : NODE(w, &op_add, 2, w->g.n % 2); }
static int ladder(world *w) { return NODE(w, w->g.n % 3 ? &op_add : &op_sum, w->g.n - 1, w->g.n > 40 ? w->g.n - 40 : 2); }
static int far_and_near(world *w) { return NODE(w, w->g.n % 5 ? &op_add : &op_sum, w->g.n - 1, rand() % w->g.n); }
static int stack_of_views(world *w) {
    return w->g.n == 2 ? NODE(w, &op_exp, 0) : w->g.n < many / 2 ? NODE(w, &op_view, w->g.n - 1) : NODE(w, &op_sum, many / 2 - 1);
}
/* Weights that decay: each update has one input from the beginning and one from the end. */
static int early_and_late(world *w) {
    int n = w->g.n, third = many / 3;
    return n < third       ? NODE(w, &op_exp, n % 2)
           : n < 2 * third ? NODE(w, n % 2 ? &op_sum : &op_exp, n - 1)
                           : NODE(w, &op_add, n - 2 * third + 2, 2 * third - 1);
}

/* Windows written one after the other, each result read before the next. */
static int update_and_read(world *w) {
    int n = w->g.n;
    return n == 2 ? NODE(w, &op_exp, 0) : n % 2 ? NODE(w, &op_sum, n - 1) : NODE(w, &op_update, n - 2, 1);
}

/* Many readers of one value, each read by a kernel. */
static int readers_of_one(world *w) {
    int n = w->g.n, half = many / 2;
    return n == 2 ? NODE(w, &op_sum, 0) : n < half ? NODE(w, &op_add, 2, n % 2) : NODE(w, &op_sum, n - half + 3, n - 1);
}

Test(fuse, large_graphs_take_no_more_than_their_share) {
    int (*const shapes[])(world *) = {add_first,    add_both,       exp_or_sum,     all_of_one,      ladder,
                                      far_and_near, stack_of_views, early_and_late, update_and_read, readers_of_one};
    enum { SOME = 12500, TIMES = 8 };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int fused = 0; fused < 2; fused++) {
            many = SOME;
            uint64_t once = plan_many(shapes[i], fused);
            many = TIMES * SOME;
            uint64_t more = plan_many(shapes[i], fused);
            cr_expect_leq(more, 2 * TIMES * once, "shape %zu: %" PRIu64 " steps instead of %" PRIu64, i, more, once);
        }
}

/* ---- work-groups ---- */

Test(group, no_larger_than_its_kernel_allows) {
    const size_t asked[][3] = {{64, 1, 1}, {8, 8, 1}, {4, 16, 1}, {1, 1, 1}, {48, 3, 2}, {15, 15, 1}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        for (size_t most = 1; most <= 256; most++) {
            size_t local[3] = {asked[i][0], asked[i][1], asked[i][2]};
            clef__fit_group(local, most);
            cr_assert_leq(local[0] * local[1] * local[2], most);
            for (int d = 0; d < 3; d++) cr_assert_eq(asked[i][d] % local[d], 0, "%zu becomes %zu", asked[i][d], local[d]);
            if (asked[i][0] * asked[i][1] * asked[i][2] <= most)
                cr_assert_eq(memcmp(local, asked[i], sizeof local), 0, "for no reason");
        }
}
