/* eval.c — what triggers work: collects the pending graph, finds or builds its plan, runs it. */
#include "graph/core.h"
#include "plan/plan.h"

#include <string.h>

/* ---- collecting ---- */

static bool push_item(clef__graph_view *g, clef__node *node) {
    if (!clef__grow(&g->item, g->n, &g->capacity, sizeof *g->item)) return false;
    node->mark = g->mark << 32 | (uint32_t)g->n;
    g->item[g->n++] = (clef__item){.node = node, .leaf = clef__computed(node), .same_as = -1, .group = -1};
    return true;
}

static int index_of(const clef__graph_view *g, const clef__node *node) {
    return node->mark >> 32 == g->mark ? (int)(uint32_t)node->mark : -1;
}

int clef__item_of(const clef__graph_view *g, const clef__node *node) {
    int i = index_of(g, node);
    while (i >= 0 && g->item[i].same_as >= 0) i = g->item[i].same_as;
    return i;
}

/* Depth first without recursion: inputs before consumers, in the order in which they were written. */
static clef_status visit(clef_context *ctx, clef__graph_view *g, clef__node *root) {
    int depth = 0;
    bool ok = clef__grow(&g->stack, depth, &g->stack_capacity, sizeof *g->stack);
    clef_status status = CLEF_OK;
    if (ok && index_of(g, root) < 0) g->stack[depth++] = (clef__visit){root, 0};
    while (ok && depth) {
        clef__visit *top = &g->stack[depth - 1];
        if (top->node->spent) {
            status = clef__fail(ctx, CLEF_STATE, "eval: a value that %s needs was overwritten by the end of its step; "
                                "read or clef_keep what depends on it before clef_step",
                                depth > 1 ? g->stack[depth - 2].node->op->name : "the result");
            break;
        }
        int needs = top->node->n_inputs + (top->node->after != NULL);
        if (clef__computed(top->node) || top->next == needs) {
            if (index_of(g, top->node) < 0) ok = push_item(g, top->node);
            depth--;
            continue;
        }
        int next = top->next++;
        clef__node *input = next < top->node->n_inputs ? top->node->input[next] : top->node->after;
        if (index_of(g, input) >= 0) continue;
        ok = clef__grow(&g->stack, depth, &g->stack_capacity, sizeof *g->stack);
        if (ok) g->stack[depth++] = (clef__visit){input, 0};
    }
    return ok ? status : clef__fail(ctx, CLEF_MEMORY, "eval: no host memory");
}

/* A constant lies on no device until it is computed.  What was made from it before, on another device than that on which it
   lies since, goes on taking the number. */
static void free_constants(clef__graph_view *g) {
    for (int i = 0; i < g->n; i++) {
        const clef__node *node = g->item[i].node;
        for (int j = 0; !g->item[i].leaf && node->op->kind != CLEF__TRANSFER && j < node->n_inputs; j++)
            if (node->input[j]->op == &clef__op_constant && node->input[j]->device != node->device)
                g->item[index_of(g, node->input[j])].leaf = false;
    }
}

/* Values that something outside this evaluation will want are outputs too; leaves nobody else holds may be overwritten. */
static clef_status mark_outputs(clef_context *ctx, clef__graph_view *g) {
    if (!clef__grow(&g->edges, g->n, &g->edge_capacity, sizeof *g->edges)) return clef__fail(ctx, CLEF_MEMORY, "eval: no host memory");
    int *edges = g->edges;
    memset(edges, 0, (size_t)g->n * sizeof *edges);
    for (int i = 0; i < g->n; i++) {
        const clef__node *node = g->item[i].node;
        for (int j = 0; !g->item[i].leaf && j < node->n_inputs; j++) edges[index_of(g, node->input[j])]++;
        if (!g->item[i].leaf && node->after) edges[index_of(g, node->after)]++;
    }
    for (int i = 0; i < g->n; i++) {
        clef__item *item = &g->item[i];
        const clef__node *node = item->node;
        if (!item->leaf)
            item->output |= node->op->kind != CLEF__CONSTANT && node->refs - node->passing > edges[i];
        else
            item->donatable = node->buffer && node->refs - node->remembered == edges[i] && clef__buffer_refs(node->buffer) == 1 &&
                              !clef__buffer_pinned(node->buffer) && node->layout.offset == 0;
    }
    return CLEF_OK;
}

static void add_word(clef__graph_view *g, uint64_t word, bool *ok) {
    *ok = *ok && clef__grow(&g->key, g->key_words, &g->key_capacity, sizeof word);
    if (!*ok) return;
    g->key[g->key_words++] = word;
    g->hash = (g->hash ^ word) * 0x9e3779b97f4a7c15u;
    g->hash ^= g->hash >> 29;
}

/* Everything a plan depends on, and nothing that changes from step to step. */
static clef_status make_key(clef_context *ctx, clef__graph_view *g) {
    bool ok = true;
    for (int i = 0; ok && i < g->n; i++) {
        const clef__item *item = &g->item[i];
        const clef__node *node = item->node;
        int inputs = item->leaf ? 0 : node->n_inputs;
        bool ordered = !item->leaf && node->after;
        size_t attribute_bytes = item->leaf ? 0 : node->attribute_bytes;
        add_word(g, (uint64_t)item->leaf | (uint64_t)item->donatable << 1 | (uint64_t)item->output << 2 |
                        (uint64_t)(!item->leaf && node->has_dynamic) << 3 | (uint64_t)ordered << 4 | (uint64_t)node->dtype << 8 |
                        (uint64_t)node->device << 16 | (uint64_t)node->shape.rank << 24 | (uint64_t)inputs << 32, &ok);
        add_word(g, item->leaf ? 0 : (uint64_t)(uintptr_t)node->op, &ok);
        add_word(g, attribute_bytes, &ok);
        for (int d = 0; d < node->shape.rank; d++) add_word(g, (uint64_t)node->shape.dim[d], &ok);
        for (int d = 0; item->leaf && d < node->shape.rank; d++) add_word(g, (uint64_t)node->layout.stride[d], &ok);
        for (int j = 0; j < inputs; j++) add_word(g, (uint64_t)index_of(g, node->input[j]), &ok);
        if (ordered) add_word(g, (uint64_t)index_of(g, node->after), &ok);
        for (size_t b = 0; b < attribute_bytes; b += 8) {
            uint64_t word = 0;
            size_t rest = attribute_bytes - b;
            memcpy(&word, (const char *)node->attributes + b, rest < 8 ? rest : 8);
            add_word(g, word, &ok);
        }
    }
    return ok ? CLEF_OK : clef__fail(ctx, CLEF_MEMORY, "eval: no host memory");
}

clef_status clef__collect(clef_context *ctx, clef__node *const *roots, int n, clef__graph_view *g) {
    g->mark = clef__traversal(ctx);
    clef_status status = CLEF_OK;
    for (int i = 0; status == CLEF_OK && i < n; i++) {
        if (clef__computed(roots[i])) continue;
        status = visit(ctx, g, roots[i]);
        if (status == CLEF_OK) g->item[index_of(g, roots[i])].output = true;
    }
    if (status == CLEF_OK) free_constants(g);
    if (status == CLEF_OK) status = mark_outputs(ctx, g);
    return status == CLEF_OK ? make_key(ctx, g) : status;
}

void clef__graph_view_free(clef__graph_view *g) {
    clef__free(g->item);
    clef__free(g->key);
    clef__free(g->stack);
    clef__free(g->edges);
    *g = (clef__graph_view){0};
}

/* ---- the plan cache ---- */

enum { MAX_PLANS = 128 };

static void drop_plan(clef__plans *plans, clef__plan **at) {
    clef__plan *plan = *at;
    *at = plan->next;
    plans->n--;
    plans->prepacked_bytes -= plan->prepacked_bytes;
    clef__plan_free(plan);
}

/* The newest first, as in clef__plan_free. */
static void free_plans(clef__plans *plans) {
    while (plans->first) {
        clef__plan **newest = &plans->first;
        for (clef__plan **at = newest; *at; at = &(*at)->next)
            if ((*at)->made > (*newest)->made) newest = at;
        drop_plan(plans, newest);
    }
    plans->weight_bytes = 0;
}

static void close_plans(clef_context *ctx, void *state) {
    (void)ctx;
    clef__plans *plans = state;
    free_plans(plans);
    clef__families_free(plans->family);
    for (int d = 0; d < CLEF__MAX_DEVICES; d++) clef__buffer_release(plans->arena[d].buffer);
    clef__graph_view_free(&plans->view);
    clef__free(plans);
}

clef__plans *clef__plans_of(clef_context *ctx) {
    return clef__make_room_state(ctx, CLEF__ROOM_PLAN, sizeof(clef__plans), close_plans);
}

void clef__plans_forget(clef_context *ctx) {
    clef__plans *plans = clef__room_state(ctx, CLEF__ROOM_PLAN);
    if (plans) free_plans(plans);
}

/* The plan of this key, moved to the front. */
static clef__plan *find_plan(clef__plans *plans, const clef__graph_view *g) {
    for (clef__plan **at = &plans->first; *at; at = &(*at)->next) {
        clef__plan *plan = *at;
        if (plan->hash != g->hash || plan->key_words != g->key_words ||
            memcmp(plan->key, g->key, (size_t)g->key_words * sizeof *g->key) != 0)
            continue;
        *at = plan->next;
        plan->next = plans->first;
        plans->first = plan;
        return plan;
    }
    return NULL;
}

static void remember_plan(clef__plans *plans, clef__plan *plan) {
    plan->next = plans->first;
    plan->made = ++plans->made;
    plans->first = plan;
    if (plan->weight_bytes > plans->weight_bytes) plans->weight_bytes = plan->weight_bytes;
    if (++plans->n <= MAX_PLANS) return;
    clef__plan **at = &plans->first;
    while ((*at)->next) at = &(*at)->next;
    drop_plan(plans, at);
}

/* A new plan, ready to run and in the cache; NULL with the error set. */
static clef__plan *new_plan(clef_context *ctx, clef__plans *plans, clef__graph_view *g) {
    clef__plan *plan = clef__plan_build(ctx, g);
    if (!plan) return NULL;
    if (clef__plan_ready(ctx, plan) != CLEF_OK || clef__prepack_find(ctx, plan) != CLEF_OK) {
        clef__plan_free(plan);
        return NULL;
    }
    clef__counters(ctx)->plans++;
    remember_plan(plans, plan);
    return plan;
}

static clef_status run(clef_context *ctx, clef__plans *plans, clef__graph_view *g) {
    clef__plan *plan = find_plan(plans, g);
    if (plan) clef__counters(ctx)->replays++;
    else plan = new_plan(ctx, plans, g);
    return plan ? clef__plan_run(plan, ctx, plans->arena, g) : clef_error_status(ctx);
}

static clef_status measure(clef_context *ctx, clef__graph_view *g) {
    clef__plan *plan = clef__plan_build(ctx, g);
    if (!plan) return clef_error_status(ctx);
    clef_status status = clef__prepack_find(ctx, plan);
    clef_plan_size size = clef__plan_size(plan, g);
    if (status == CLEF_OK) clef__note_plan(ctx, &size);
    clef__plan_free(plan);
    return status;
}

/* Does the sticky error say that the device cannot compute?  What follows would plan, build and fail again in each step of a
   loop that looks at no error, and with values that are lost; clef_clear_error asks for it. */
static bool is_broken(const clef_context *ctx) {
    clef_status status = clef_error_status(ctx);
    return status == CLEF_BUILD || status == CLEF_DEVICE || status == CLEF_LOST;
}

clef_status clef__evaluate(clef_context *ctx, clef__node *const *roots, int n) {
    if (!clef__usable(ctx) || is_broken(ctx)) return clef_error_status(ctx);
    clef__plans *plans = clef__plans_of(ctx);
    if (!plans) return clef__fail(ctx, CLEF_MEMORY, "eval: no host memory");
    clef__graph_view *g = &plans->view;
    g->n = g->key_words = 0;
    g->hash = 0;
    clef_status status = clef__collect(ctx, roots, n, g);
    if (status == CLEF_OK && g->n) status = clef__dry_run(ctx) ? measure(ctx, g) : run(ctx, plans, g);
    return status;
}
