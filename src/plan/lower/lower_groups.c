/* lower_groups.c — launches for groups: generated ones for pointwise groups, a strategy's for the others, and what is a result. */
#include "plan/lower/pointwise.h"

#include <string.h>

/* ---- pointwise groups ---- */

static int add_operand(const clef__lowering *lw, clef__pointwise *p, int *known_nodes, int captured) {
    int constant = clef__constant_behind(lw->rec->g, captured), known = constant >= 0 ? constant : captured;
    for (int i = 0; i < p->n_operands; i++)
        if (known_nodes[i] == known) return i;
    clef__pw_operand *operand = &p->operand[p->n_operands];
    known_nodes[p->n_operands] = known;
    *operand = (clef__pw_operand){.dtype = lw->rec->g->captured[captured].out->dtype, .captured = known};
    if (constant >= 0) {
        operand->constant = true;
        operand->dtype = lw->rec->g->captured[constant].out->dtype;
    } else {
        operand->x = clef__broadcast_operand(clef__captured_operand(lw, captured), p->shape);
    }
    return p->n_operands++;
}

static int step_of(const clef__group *group, int captured) {
    for (int i = 0; i < group->n_members; i++)
        if (group->member[i] == captured) return CLEF__PW_OPERANDS + i;
    return -1;
}

void clef__add_steps(const clef__lowering *lw, const clef__group *group, clef__pointwise *p, int *inner_uses) {
    int known_nodes[CLEF__PW_OPERANDS];
    for (int m = 0; m < group->n_members; m++) {
        const clef__node *node = lw->rec->g->captured[group->member[m]].node;
        clef__pw_step *step = &p->step[p->n_steps++];
        *step = (clef__pw_step){.op = node->op, .dtype = node->out->dtype, .n_inputs = node->n_inputs};
        for (int j = 0; j < node->n_inputs; j++) {
            int input = clef__captured_of(lw->rec->g, node->input[j]), from = step_of(group, input);
            step->input[j] = from >= 0 ? from : add_operand(lw, p, known_nodes, input);
            if (step->input[j] >= CLEF__PW_OPERANDS) inner_uses[step->input[j] - CLEF__PW_OPERANDS]++;
        }
    }
}

/* The memory order of the results: of what this plan made (a kernel chose it, and leaves that are updated take it over for
   the steps to come; row-major is what one takes that does not care, so that comes second, and sums over the result do not
   depend on the order of the operands), else of a leaf that may be overwritten, else of the first operand that is whole and dense.
 */
static const int *choose_order(const clef__lowering *lw, const clef__pointwise *p, int *order) {
    int found = -1, best = -1;
    for (int i = 0; !lw->rec->failed && i < p->n_operands; i++) {
        const clef__pw_operand *x = &p->operand[i];
        if (x->constant || !clef__memory_order(&x->x, order)) continue;
        const clef__value *value = &lw->rec->plan->value[x->x.value];
        int rank = value->home == CLEF__LEAF_VALUE ? value->donatable : clef__lower_is_dense(&x->x, NULL) ? 2 : 3;
        if (rank <= best) continue;
        best = rank;
        found = i;
    }
    return found >= 0 && clef__memory_order(&p->operand[found].x, order) ? order : NULL;
}

void clef__lower_group(clef__recorder *rec, const clef__group *group) {
    clef__lowering lw = clef__lowering_of(rec, group->member[0]);
    if (group->n_members == 1 && clef__place_converted(&lw)) return;
    clef__pointwise p = {.shape = lw.node->out->shape};
    int inner_uses[CLEF__PW_STEPS] = {0}, order_memory[CLEF_MAX_RANK];
    clef__add_steps(&lw, group, &p, inner_uses);
    const int *order = choose_order(&lw, &p, order_memory);
    const char *label = lw.node->op->name;
    for (int m = 0; m < group->n_members && !rec->failed; m++) {
        int captured = group->member[m];
        if (!rec->g->captured[captured].output && inner_uses[m] == rec->g->captured[captured].uses)
            continue; /* nobody else wants it */
        clef__lowering member = clef__lowering_of(rec, captured);
        p.store[p.n_stores].from = CLEF__PW_OPERANDS + m;
        p.store[p.n_stores++].to = clef__lower_out(&member, order);
        label = member.node->op->name;
    }
    if (p.n_stores && clef_shape_numel(p.shape) > 0) clef__lower_pointwise(&lw, &p, label);
}

/* ---- everything else ---- */

static void lower_copy(const clef__lowering *lw) {
    clef__operand from = clef__lower_in(lw, 0);
    clef__lower_copy(lw, clef__lower_out(lw, NULL), from);
}

static void launch_transfer(const clef__lowering *lw, clef__launch_kind kind, bool beside, clef__operand to, clef__operand from) {
    clef__launch_begin(lw, NULL, "transfer");
    clef__launch_tensor(lw, to, true);
    clef__launch_tensor(lw, from, false);
    if (lw->rec->failed) return;
    lw->rec->open->kind = kind;
    lw->rec->open->beside = beside;
    lw->rec->open->bytes = (size_t)clef_shape_numel(lw->node->out->shape) * clef_dtype_size(lw->node->out->dtype);
    clef__launch_end(lw, (size_t[3]){1, 1, 1}, (size_t[3]){1, 1, 1});
}

/* In one piece where the devices can do that or the host has to wait, else in two halves.  A value keeps its memory order, so that sums
   over it add as they would where it came from. */
static void lower_transfer(const clef__lowering *lw) {
    clef__lowering source = *lw;
    source.device = lw->node->input[0]->device;
    clef__device *there = clef__device_at(lw->rec->ctx, source.device), *here = clef__device_at(lw->rec->ctx, lw->device);
    int order_memory[CLEF_MAX_RANK];
    clef__operand in = clef__lower_in(&source, 0);
    const int *order = clef__memory_order(&in, order_memory) ? order_memory : NULL;
    clef__operand from = clef__lower_in_dense(&source, 0, order), x = clef__lower_out(lw, order);
    bool joined = clef__devices_joined(there, here);
    if (joined || !clef__devices_pass(there, here)) {
        launch_transfer(lw, CLEF__LAUNCH_COPY, joined, x, from);
        if (!lw->rec->failed) lw->rec->plan->launch[lw->rec->plan->n_launches - 1].visible = clef__devices_see(here, there);
        return;
    }
    clef__operand on_the_way = clef__lower_scratch(lw, CLEF_U8, CLEF_SHAPE(0));
    launch_transfer(&source, CLEF__LAUNCH_FETCH, true, on_the_way, from);
    launch_transfer(lw, CLEF__LAUNCH_STORE, true, x, on_the_way);
}

/* Members of the group on one side of its kernel, which is the first or the last of them. */
static clef__group beside(const clef__group *group, bool behind) {
    clef__group rest = {.member = group->member + behind, .n_members = group->n_members - 1};
    if ((group->member[0] == group->kernel) != behind) rest.n_members = 0;
    return rest;
}

/* The members behind the kernel: in its store already, or by a launch of their own. */
static void lower_epilogue_apart(clef__recorder *rec, const clef__group *epilogue, int kernel) {
    if (rec->epilogue) clef__lower_group(rec, epilogue);
    else rec->placed[epilogue->member[epilogue->n_members - 1]] = rec->placed[kernel];
}

static void lower_by_strategy(const clef__lowering *lw, const clef__group *group) {
    clef__recorder *rec = lw->rec;
    clef__group prologue = beside(group, false), epilogue = beside(group, true);
    rec->tuned = false;
    rec->epilogue = epilogue.n_members ? &group->epilogue : NULL;
    rec->prologue = prologue.n_members ? &prologue : NULL;
    const clef__strategy *strategy = clef__select_strategy(lw);
    if (strategy) {
        rec->plan->spared_flops[lw->device] += clef__spared_flops(lw->node, strategy);
        strategy->lower(lw);
        rec->tuned = false;
        rec->prologue = NULL;
        clef__free(rec->computed);
        rec->computed = NULL;
        if (epilogue.n_members) lower_epilogue_apart(rec, &epilogue, group->kernel);
    } else {
        clef__fail(rec->ctx, CLEF_UNSUPPORTED, "%s: no way to compute %s %s on this device", lw->node->op->name,
                   clef_dtype_name(lw->node->out->dtype), clef__shape_text(lw->node->out->shape));
        rec->failed = true;
    }
}

static bool has_elements(const clef__node *node) {
    for (int k = 0; k < node->n_outputs; k++)
        if (clef_shape_numel(node->out[k].shape) > 0) return true;
    return false;
}

static void lower_nothing(const clef__lowering *lw) {
    for (int k = 0; k < lw->node->n_outputs; k++) clef__lower_output(lw, k, NULL);
}

static void lower_kernel(clef__recorder *rec, const clef__group *group) {
    clef__lowering lw = clef__lowering_of(rec, group->kernel);
    if (lw.node->op->kind == CLEF__TRANSFER) lower_transfer(&lw);
    else if (!has_elements(lw.node)) lower_nothing(&lw);
    else if (lw.node->op->kind == CLEF__COPY) lower_copy(&lw);
    else lower_by_strategy(&lw, group);
}

/* What the kernel's node takes by its definition, in equal parts for the launches from `first` on, unless one of them knows better:
   then the others do little beside it. */
static void note_flops(clef__recorder *rec, const clef__node *node, int first) {
    double flops, bytes;
    clef__plan *plan = rec->plan;
    for (int i = first; i < plan->n_launches; i++)
        if (plan->launch[i].counted) return;
    clef__node_cost(node, &flops, &bytes);
    for (int i = first; i < plan->n_launches; i++) plan->launch[i].flops = flops / (plan->n_launches - first);
}

static void lower_all(clef__recorder *rec, const clef__grouping *gr) {
    for (int i = 0; i < gr->n_order && !rec->failed; i++) {
        const clef__group *group = &gr->group[gr->order[i]];
        int first = rec->plan->n_launches;
        if (group->kernel < 0) clef__lower_group(rec, group);
        else lower_kernel(rec, group);
        if (group->kernel >= 0) note_flops(rec, rec->g->captured[group->kernel].node, first);
    }
}

/* ---- results ---- */

/* A constant that outlives the plan lies in memory whole, so that later steps see the layout of every other step. */
static void place_constant(const clef__lowering *lw) {
    clef__pointwise p = {.shape = lw->node->out->shape, .n_operands = 1, .n_stores = 1};
    p.operand[0] = (clef__pw_operand){.constant = true, .captured = lw->captured, .dtype = lw->node->out->dtype};
    p.store[0].to = clef__lower_out(lw, NULL);
    clef__lower_pointwise(lw, &p, "constant");
}

/* A result lies in the leaf's memory, which no other value may take over then: it is an update in place, or a view of the leaf. */
static void keep_leaf(clef__value *leaf) {
    if (leaf->updated) leaf->taken = true;
    else leaf->donatable = false;
}

static void note_results(clef__recorder *rec) {
    clef__plan *plan = rec->plan;
    plan->result = clef__calloc((size_t)rec->g->n + 1, sizeof *plan->result);
    if (!plan->result) clef__record_fail(rec);
    for (int i = 0; i < rec->g->n && !rec->failed; i++) {
        const clef__captured *captured = &rec->g->captured[i];
        if (captured->leaf || !captured->output) continue;
        clef__lowering lw = clef__lowering_of(rec, clef__captured_of(rec->g, captured->out));
        if (lw.node->op->kind == CLEF__CONSTANT) place_constant(&lw);
        lw.device = captured->out->device;
        clef__operand x = clef__captured_operand(&lw, lw.captured);
        if (rec->failed) return;
        clef__value *value = &plan->value[x.value];
        if (value->home == CLEF__ARENA_VALUE) value->home = CLEF__OUTPUT_VALUE;
        if (value->home == CLEF__LEAF_VALUE) keep_leaf(value);
        clef__result *result = &plan->result[plan->n_results++];
        *result = (clef__result){.captured = i, .value = x.value, .layout = {.offset = x.offset}};
        memcpy(result->layout.stride, x.stride, sizeof x.stride);
    }
}

/* ---- the whole ---- */

void clef__lower_groups(clef__recorder *rec, const clef__grouping *gr) {
    rec->placed = clef__calloc((size_t)rec->g->n + 1, sizeof *rec->placed);
    if (!rec->placed) clef__record_fail(rec);
    lower_all(rec, gr);
    if (!rec->failed) note_results(rec);
}

void clef__record_end(clef__recorder *rec) {
    clef__free(rec->defines.data);
    clef__free(rec->text);
    clef__free(rec->placed);
}
