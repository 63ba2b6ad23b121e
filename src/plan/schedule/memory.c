/* memory.c — where values lie: in-place continuation, donated buffers, and offsets in one arena per device by lifetime (place.c).
 */
#include "plan/schedule/schedule.h"

/* ---- lifetimes of a plan's values ---- */

static void note_lifetimes(clef__plan *plan) {
    for (int v = 0; v < plan->n_values; v++) plan->value[v].first = plan->value[v].last = plan->value[v].written = -1;
    for (int i = 0; i < plan->n_launches; i++)
        for (int a = 0; a < plan->launch[i].n_args; a++) {
            const clef__arg *arg = &plan->launch[i].arg[a];
            if (arg->kind != CLEF__ARG_TENSOR) continue;
            clef__value *value = &plan->value[arg->value];
            if (value->first < 0) value->first = i;
            if (arg->writes && value->written < 0) value->written = i;
            value->last = i;
        }
}

/* A visit of the host lasts until a launch needs what one wrote.  If others took its memory before, they would have to wait for it. */
static void lengthen_visits(clef__plan *plan) {
    int until = plan->n_launches - 1;
    for (int i = 0; i < plan->n_launches; i++)
        for (int a = 0; clef__is_visit(&plan->launch[i]) && a < plan->launch[i].n_args; a++)
            if (plan->launch[i].arg[a].kind == CLEF__ARG_TENSOR && plan->launch[i].arg[a].writes)
                plan->value[plan->launch[i].arg[a].value].visited = true;
    for (int i = plan->n_launches - 1; i >= 0; i--)
        for (int a = 0; a < plan->launch[i].n_args; a++) {
            const clef__arg *arg = &plan->launch[i].arg[a];
            if (arg->kind != CLEF__ARG_TENSOR) continue;
            clef__value *value = &plan->value[arg->value];
            if (clef__is_visit(&plan->launch[i])) value->last = value->last > until ? value->last : until;
            else if (value->visited && !arg->writes) until = i;
        }
}

bool clef__may_continue(const clef__value *v, const clef__value *from) {
    if (from->bytes != v->bytes || from->device != v->device) return false;
    return v->home == CLEF__ARENA_VALUE ? from->home == CLEF__ARENA_VALUE
                                        : v->home == CLEF__OUTPUT_VALUE && from->home == CLEF__LEAF_VALUE && from->donatable;
}

/* A value may continue the memory of one that is read for the last time, element by element, by the launch that makes it. */
static void continue_in_place(clef__plan *plan) {
    for (int v = 0; v < plan->n_values; v++) {
        clef__value *value = &plan->value[v];
        for (int c = 0; c < value->n_candidates; c++) {
            clef__value *from = &plan->value[value->candidate[c]];
            if (from->taken || from->last != value->first || !clef__may_continue(value, from)) continue;
            if (value->home == CLEF__ARENA_VALUE) value->in_place_of = value->candidate[c];
            else value->donor = value->candidate[c];
            from->taken = true;
            break;
        }
    }
}

static bool lies_in(const clef__value *value, int device) {
    return value->home == CLEF__ARENA_VALUE && value->device == device && value->first >= 0;
}

/* The block of the value whose memory v continues, noted for all in between: each is asked for once, however long the chain. */
static int find_block(const clef__plan *plan, int *block_of, int v) {
    int root = v;
    while (block_of[root] < 0) root = plan->value[root].in_place_of;
    for (int next; block_of[v] < 0; v = next) {
        next = plan->value[v].in_place_of;
        block_of[v] = block_of[root];
    }
    return block_of[root];
}

/* One block for every chain of in-place values of a device; block_of[v] says which. */
static int make_blocks(const clef__plan *plan, int device, clef__block *block, int *block_of) {
    int n = 0;
    for (int v = 0; v < plan->n_values; v++) {
        const clef__value *value = &plan->value[v];
        block_of[v] = -1;
        if (!lies_in(value, device) || value->in_place_of >= 0) continue;
        block_of[v] = n;
        block[n++] = (clef__block){.bytes = value->bytes, .first = value->first, .last = value->last};
    }
    for (int v = 0; v < plan->n_values; v++) { /* a value may continue one of a higher number */
        const clef__value *value = &plan->value[v];
        if (!lies_in(value, device) || value->in_place_of < 0) continue;
        clef__block *chain = &block[find_block(plan, block_of, v)];
        if (chain->last < value->last) chain->last = value->last;
    }
    return n;
}

clef_status clef__plan_place(clef__plan *plan, clef_context *ctx) {
    note_lifetimes(plan);
    lengthen_visits(plan);
    continue_in_place(plan);
    clef__block *block = clef__alloc((size_t)(plan->n_values + 1) * sizeof *block);
    int *block_of = clef__alloc((size_t)(plan->n_values + 1) * sizeof *block_of);
    clef_status status = block && block_of ? CLEF_OK : clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
    for (int d = 0; status == CLEF_OK && d < clef__context_devices(ctx); d++) {
        int n = make_blocks(plan, d, block, block_of);
        plan->arena_bytes[d] = clef__place(block, n, 128, NULL);
        plan->lower_bound[d] = clef__place_lower_bound(block, n);
        if (plan->arena_bytes[d] == SIZE_MAX || plan->lower_bound[d] == SIZE_MAX)
            status = clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
        for (int v = 0; status == CLEF_OK && v < plan->n_values; v++) {
            clef__value *value = &plan->value[v];
            if (lies_in(value, d)) value->offset = block[block_of[v]].offset;
        }
    }
    clef__free(block);
    clef__free(block_of);
    return status;
}
