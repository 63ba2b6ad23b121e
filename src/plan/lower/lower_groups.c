/* lower_groups.c — launches for groups: generated ones for pointwise groups, a strategy's for the others, and what is a result. */
#include "plan/lower/pointwise.h"

#include <string.h>

/* ---- pointwise groups ---- */

static int add_operand(clef__lowering *l, clef__pointwise *p, int *items, int item) {
    int constant = clef__constant_behind(l->g, item), known = constant >= 0 ? constant : item;
    for (int i = 0; i < p->n_operands; i++)
        if (items[i] == known) return i;
    clef__pw_operand *operand = &p->operand[p->n_operands];
    items[p->n_operands] = known;
    *operand = (clef__pw_operand){.dtype = l->g->item[item].node->dtype, .item = known};
    if (constant >= 0) {
        operand->constant = true;
        operand->dtype = l->g->item[constant].node->dtype;
    } else {
        operand->x = clef__broadcast_operand(clef__item_operand(l, item), p->shape);
    }
    return p->n_operands++;
}

static int step_of(const clef__group *group, int item) {
    for (int i = 0; i < group->n_members; i++)
        if (group->member[i] == item) return CLEF__PW_OPERANDS + i;
    return -1;
}

void clef__add_steps(clef__lowering *l, const clef__group *group, clef__pointwise *p, int *inner_uses) {
    int items[CLEF__PW_OPERANDS];
    for (int m = 0; m < group->n_members; m++) {
        const clef__node *node = l->g->item[group->member[m]].node;
        clef__pw_step *step = &p->step[p->n_steps++];
        *step = (clef__pw_step){.op = node->op, .dtype = node->dtype, .n_inputs = node->n_inputs};
        for (int j = 0; j < node->n_inputs; j++) {
            int input = clef__item_of(l->g, node->input[j]), from = step_of(group, input);
            step->input[j] = from >= 0 ? from : add_operand(l, p, items, input);
            if (step->input[j] >= CLEF__PW_OPERANDS) inner_uses[step->input[j] - CLEF__PW_OPERANDS]++;
        }
    }
}

/* The memory order of the results: of what this plan made (a kernel chose it, and leaves that are updated take it over for
   the steps to come; row-major is what one takes that does not care, so that comes second, and sums over the result do not
   depend on the order of the operands), else of a leaf that may be overwritten, else of the first operand that is whole and dense. */
static const int *choose_order(const clef__lowering *l, const clef__pointwise *p, int *order) {
    int found = -1, best = -1;
    for (int i = 0; !l->failed && i < p->n_operands; i++) {
        const clef__pw_operand *x = &p->operand[i];
        if (x->constant || !clef__memory_order(&x->x, order)) continue;
        const clef__value *value = &l->plan->value[x->x.value];
        int rank = value->home == CLEF__LEAF_VALUE ? value->donatable : clef__lower_is_dense(&x->x, NULL) ? 2 : 3;
        if (rank <= best) continue;
        best = rank;
        found = i;
    }
    return found >= 0 && clef__memory_order(&p->operand[found].x, order) ? order : NULL;
}

void clef__lower_group(clef__lowering *l, const clef__group *group) {
    const clef__node *node = l->g->item[group->member[0]].node;
    clef__pointwise p = {.shape = node->shape};
    l->node = node;
    l->device = node->device;
    int inner_uses[CLEF__PW_STEPS] = {0};
    clef__add_steps(l, group, &p, inner_uses);
    int order_memory[CLEF_MAX_RANK];
    const int *order = choose_order(l, &p, order_memory);
    const char *label = node->op->name;
    for (int m = 0; m < group->n_members && !l->failed; m++) {
        int item = group->member[m];
        if (!l->g->item[item].output && inner_uses[m] == l->g->item[item].uses) continue; /* nobody else wants it */
        l->node = l->g->item[item].node;
        l->item = item;
        p.store[p.n_stores].from = CLEF__PW_OPERANDS + m;
        p.store[p.n_stores++].to = clef__lower_out(l, order);
        label = l->node->op->name;
    }
    if (p.n_stores && clef_shape_numel(p.shape) > 0) clef__lower_pointwise(l, &p, label);
}

/* ---- everything else ---- */

static void lower_copy(clef__lowering *l) {
    if (clef_shape_numel(l->node->shape) == 0) {
        clef__lower_out(l, NULL);
        return;
    }
    clef__operand from = clef__lower_in(l, 0);
    clef__lower_copy(l, clef__lower_out(l, NULL), from);
}

static void lower_transfer(clef__lowering *l) {
    int to = l->node->device;
    l->device = l->node->input[0]->device;
    clef__operand from = clef__lower_in_dense(l, 0, NULL);
    l->device = to;
    clef__operand x = clef__lower_out(l, NULL);
    clef__launch_begin(l, NULL, "transfer");
    clef__launch_tensor(l, x, true);
    clef__launch_tensor(l, from, false);
    if (l->failed) return;
    l->open->kind = CLEF__LAUNCH_COPY;
    clef__launch_end(l, (size_t[3]){1, 1, 1}, (size_t[3]){1, 1, 1});
}

/* Members of the group on one side of its kernel, which is the first or the last of them. */
static clef__group beside(const clef__group *group, bool behind) {
    clef__group rest = {.member = group->member + behind, .n_members = group->n_members - 1};
    if ((group->member[0] == group->kernel) != behind) rest.n_members = 0;
    return rest;
}

/* The members behind the kernel: in its store already, or by a launch of their own. */
static void lower_following(clef__lowering *l, const clef__group *following, int kernel) {
    if (l->following) {
        clef__lower_group(l, following);
        return;
    }
    l->placed[following->member[following->n_members - 1]] = l->placed[kernel];
}

static void lower_kernel(clef__lowering *l, const clef__group *group) {
    if (clef_shape_numel(l->node->shape) == 0) {
        clef__lower_out(l, NULL);
        return;
    }
    clef__group preceding = beside(group, false), following = beside(group, true);
    l->tuned = false;
    l->following = following.n_members ? &group->following : NULL;
    l->preceding = preceding.n_members ? &preceding : NULL;
    const clef__strategy *strategy = clef__select_strategy(l);
    if (strategy) {
        l->plan->spared_flops += clef__spared_flops(l->node, strategy);
        strategy->lower(l);
        l->tuned = false;
        l->preceding = NULL;
        clef__free(l->computed);
        l->computed = NULL;
        if (following.n_members) lower_following(l, &following, group->kernel);
    } else {
        clef__fail(l->ctx, CLEF_UNSUPPORTED, "%s: no way to compute %s %s on this device", l->node->op->name,
                   clef_dtype_name(l->node->dtype), clef__shape_text(l->node->shape));
        l->failed = true;
    }
}

static void lower_all(clef__lowering *l, const clef__grouping *gr) {
    for (int i = 0; i < gr->n_order && !l->failed; i++) {
        const clef__group *group = &gr->group[gr->order[i]];
        if (group->kernel < 0) {
            clef__lower_group(l, group);
            continue;
        }
        l->item = group->kernel;
        l->node = l->g->item[l->item].node;
        l->device = l->node->device;
        if (l->node->op->kind == CLEF__TRANSFER) lower_transfer(l);
        else if (l->node->op->kind == CLEF__COPY) lower_copy(l);
        else lower_kernel(l, group);
    }
}

/* ---- results ---- */

/* A constant that outlives the plan lies in memory whole, so that later steps see the layout of every other step. */
static void place_constant(clef__lowering *l, int item) {
    l->item = item;
    l->node = l->g->item[item].node;
    l->device = l->node->device;
    clef__pointwise p = {.shape = l->node->shape, .n_operands = 1, .n_stores = 1};
    p.operand[0] = (clef__pw_operand){.constant = true, .item = item, .dtype = l->node->dtype};
    p.store[0].to = clef__lower_out(l, NULL);
    clef__lower_pointwise(l, &p, "constant");
}

static void note_results(clef__lowering *l) {
    clef__plan *plan = l->plan;
    plan->result = clef__calloc((size_t)l->g->n + 1, sizeof *plan->result);
    if (!plan->result) clef__lower_fail(l);
    for (int i = 0; i < l->g->n && !l->failed; i++) {
        const clef__item *item = &l->g->item[i];
        if (item->leaf || !item->output) continue;
        int same = clef__item_of(l->g, item->node);
        if (l->g->item[same].node->op->kind == CLEF__CONSTANT) place_constant(l, same);
        l->device = item->node->device;
        clef__operand x = clef__item_operand(l, same);
        if (l->failed) return;
        clef__value *value = &plan->value[x.value];
        if (value->home == CLEF__ARENA_VALUE) value->home = CLEF__OUTPUT_VALUE;
        if (value->home == CLEF__LEAF_VALUE) value->donatable = false; /* the result is a view of it */
        clef__result *result = &plan->result[plan->n_results++];
        *result = (clef__result){.item = i, .value = x.value, .layout = {.offset = x.offset}};
        memcpy(result->layout.stride, x.stride, sizeof x.stride);
    }
}

/* ---- the whole ---- */

void clef__lower_groups(clef__lowering *l, const clef__grouping *gr) {
    l->placed = clef__calloc((size_t)l->g->n + 1, sizeof *l->placed);
    if (!l->placed) clef__lower_fail(l);
    lower_all(l, gr);
    if (!l->failed) note_results(l);
}

void clef__lowering_end(clef__lowering *l) {
    clef__free(l->defines);
    clef__free(l->text);
    clef__free(l->placed);
}
