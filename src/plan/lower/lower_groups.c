/* lower_groups.c — launches for groups: generated ones for pointwise groups, a strategy's for the others, and what is a result. */
#include "plan/lower/pointwise.h"

#include <string.h>

/* ---- pointwise groups ---- */

static int add_operand(const clef__lowering *lw, clef__pointwise *p, int *items, int item) {
    int constant = clef__constant_behind(lw->g, item), known = constant >= 0 ? constant : item;
    for (int i = 0; i < p->n_operands; i++)
        if (items[i] == known) return i;
    clef__pw_operand *operand = &p->operand[p->n_operands];
    items[p->n_operands] = known;
    *operand = (clef__pw_operand){.dtype = lw->g->item[item].node->dtype, .item = known};
    if (constant >= 0) {
        operand->constant = true;
        operand->dtype = lw->g->item[constant].node->dtype;
    } else {
        operand->x = clef__broadcast_operand(clef__item_operand(lw, item), p->shape);
    }
    return p->n_operands++;
}

static int step_of(const clef__group *group, int item) {
    for (int i = 0; i < group->n_members; i++)
        if (group->member[i] == item) return CLEF__PW_OPERANDS + i;
    return -1;
}

void clef__add_steps(const clef__lowering *lw, const clef__group *group, clef__pointwise *p, int *inner_uses) {
    int items[CLEF__PW_OPERANDS];
    for (int m = 0; m < group->n_members; m++) {
        const clef__node *node = lw->g->item[group->member[m]].node;
        clef__pw_step *step = &p->step[p->n_steps++];
        *step = (clef__pw_step){.op = node->op, .dtype = node->dtype, .n_inputs = node->n_inputs};
        for (int j = 0; j < node->n_inputs; j++) {
            int input = clef__item_of(lw->g, node->input[j]), from = step_of(group, input);
            step->input[j] = from >= 0 ? from : add_operand(lw, p, items, input);
            if (step->input[j] >= CLEF__PW_OPERANDS) inner_uses[step->input[j] - CLEF__PW_OPERANDS]++;
        }
    }
}

/* The memory order of the results: of what this plan made (a kernel chose it, and leaves that are updated take it over for
   the steps to come; row-major is what one takes that does not care, so that comes second, and sums over the result do not
   depend on the order of the operands), else of a leaf that may be overwritten, else of the first operand that is whole and dense. */
static const int *choose_order(const clef__lowering *lw, const clef__pointwise *p, int *order) {
    int found = -1, best = -1;
    for (int i = 0; !lw->failed && i < p->n_operands; i++) {
        const clef__pw_operand *x = &p->operand[i];
        if (x->constant || !clef__memory_order(&x->x, order)) continue;
        const clef__value *value = &lw->plan->value[x->x.value];
        int rank = value->home == CLEF__LEAF_VALUE ? value->donatable : clef__lower_is_dense(&x->x, NULL) ? 2 : 3;
        if (rank <= best) continue;
        best = rank;
        found = i;
    }
    return found >= 0 && clef__memory_order(&p->operand[found].x, order) ? order : NULL;
}

void clef__lower_group(const clef__lowering *lw, const clef__group *group) {
    const clef__node *node = lw->g->item[group->member[0]].node;
    clef__pointwise p = {.shape = node->shape};
    lw->node = node;
    lw->device = node->device;
    int inner_uses[CLEF__PW_STEPS] = {0};
    clef__add_steps(lw, group, &p, inner_uses);
    int order_memory[CLEF_MAX_RANK];
    const int *order = choose_order(lw, &p, order_memory);
    const char *label = node->op->name;
    for (int m = 0; m < group->n_members && !lw->failed; m++) {
        int item = group->member[m];
        if (!lw->g->item[item].output && inner_uses[m] == lw->g->item[item].uses) continue; /* nobody else wants it */
        lw->node = lw->g->item[item].node;
        lw->item = item;
        p.store[p.n_stores].from = CLEF__PW_OPERANDS + m;
        p.store[p.n_stores++].to = clef__lower_out(lw, order);
        label = lw->node->op->name;
    }
    if (p.n_stores && clef_shape_numel(p.shape) > 0) clef__lower_pointwise(lw, &p, label);
}

/* ---- everything else ---- */

static void lower_copy(const clef__lowering *lw) {
    if (clef_shape_numel(lw->node->shape) == 0) {
        clef__lower_out(lw, NULL);
        return;
    }
    clef__operand from = clef__lower_in(lw, 0);
    clef__lower_copy(lw, clef__lower_out(lw, NULL), from);
}

static void lower_transfer(const clef__lowering *lw) {
    int to = lw->node->device;
    lw->device = lw->node->input[0]->device;
    clef__operand from = clef__lower_in_dense(lw, 0, NULL);
    lw->device = to;
    clef__operand x = clef__lower_out(lw, NULL);
    clef__launch_begin(lw, NULL, "transfer");
    clef__launch_tensor(lw, x, true);
    clef__launch_tensor(lw, from, false);
    if (lw->failed) return;
    lw->open->kind = CLEF__LAUNCH_COPY;
    clef__launch_end(lw, (size_t[3]){1, 1, 1}, (size_t[3]){1, 1, 1});
}

/* Members of the group on one side of its kernel, which is the first or the last of them. */
static clef__group beside(const clef__group *group, bool behind) {
    clef__group rest = {.member = group->member + behind, .n_members = group->n_members - 1};
    if ((group->member[0] == group->kernel) != behind) rest.n_members = 0;
    return rest;
}

/* The members behind the kernel: in its store already, or by a launch of their own. */
static void lower_following(const clef__lowering *lw, const clef__group *following, int kernel) {
    if (lw->following) {
        clef__lower_group(lw, following);
        return;
    }
    lw->placed[following->member[following->n_members - 1]] = lw->placed[kernel];
}

static void lower_kernel(const clef__lowering *lw, const clef__group *group) {
    if (clef_shape_numel(lw->node->shape) == 0) {
        clef__lower_out(lw, NULL);
        return;
    }
    clef__group preceding = beside(group, false), following = beside(group, true);
    lw->tuned = false;
    lw->following = following.n_members ? &group->following : NULL;
    lw->preceding = preceding.n_members ? &preceding : NULL;
    const clef__strategy *strategy = clef__select_strategy(lw);
    if (strategy) {
        lw->plan->spared_flops += clef__spared_flops(lw->node, strategy);
        strategy->lower(lw);
        lw->tuned = false;
        lw->preceding = NULL;
        clef__free(lw->computed);
        lw->computed = NULL;
        if (following.n_members) lower_following(lw, &following, group->kernel);
    } else {
        clef__fail(lw->ctx, CLEF_UNSUPPORTED, "%s: no way to compute %s %s on this device", lw->node->op->name,
                   clef_dtype_name(lw->node->dtype), clef__shape_text(lw->node->shape));
        lw->failed = true;
    }
}

static void lower_all(const clef__lowering *lw, const clef__grouping *gr) {
    for (int i = 0; i < gr->n_order && !lw->failed; i++) {
        const clef__group *group = &gr->group[gr->order[i]];
        if (group->kernel < 0) {
            clef__lower_group(lw, group);
            continue;
        }
        lw->item = group->kernel;
        lw->node = lw->g->item[lw->item].node;
        lw->device = lw->node->device;
        if (lw->node->op->kind == CLEF__TRANSFER) lower_transfer(lw);
        else if (lw->node->op->kind == CLEF__COPY) lower_copy(lw);
        else lower_kernel(lw, group);
    }
}

/* ---- results ---- */

/* A constant that outlives the plan lies in memory whole, so that later steps see the layout of every other step. */
static void place_constant(const clef__lowering *lw, int item) {
    lw->item = item;
    lw->node = lw->g->item[item].node;
    lw->device = lw->node->device;
    clef__pointwise p = {.shape = lw->node->shape, .n_operands = 1, .n_stores = 1};
    p.operand[0] = (clef__pw_operand){.constant = true, .item = item, .dtype = lw->node->dtype};
    p.store[0].to = clef__lower_out(lw, NULL);
    clef__lower_pointwise(lw, &p, "constant");
}

static void note_results(const clef__lowering *lw) {
    clef__plan *plan = lw->plan;
    plan->result = clef__calloc((size_t)lw->g->n + 1, sizeof *plan->result);
    if (!plan->result) clef__lower_fail(lw);
    for (int i = 0; i < lw->g->n && !lw->failed; i++) {
        const clef__item *item = &lw->g->item[i];
        if (item->leaf || !item->output) continue;
        int same = clef__item_of(lw->g, item->node);
        if (lw->g->item[same].node->op->kind == CLEF__CONSTANT) place_constant(lw, same);
        lw->device = item->node->device;
        clef__operand x = clef__item_operand(lw, same);
        if (lw->failed) return;
        clef__value *value = &plan->value[x.value];
        if (value->home == CLEF__ARENA_VALUE) value->home = CLEF__OUTPUT_VALUE;
        if (value->home == CLEF__LEAF_VALUE) value->donatable = false; /* the result is a view of it */
        clef__result *result = &plan->result[plan->n_results++];
        *result = (clef__result){.item = i, .value = x.value, .layout = {.offset = x.offset}};
        memcpy(result->layout.stride, x.stride, sizeof x.stride);
    }
}

/* ---- the whole ---- */

void clef__lower_groups(const clef__lowering *lw, const clef__grouping *gr) {
    lw->placed = clef__calloc((size_t)lw->g->n + 1, sizeof *lw->placed);
    if (!lw->placed) clef__lower_fail(lw);
    lower_all(lw, gr);
    if (!lw->failed) note_results(lw);
}

void clef__lowering_end(const clef__lowering *lw) {
    clef__free(lw->defines);
    clef__free(lw->text);
    clef__free(lw->placed);
}
