/* memory.c — where values lie: in-place continuation, donated buffers, and offsets in one arena per device by lifetime.

   Placement is greedy by size: the largest block first, each at the lowest offset that is free during its whole life
   (Pisarchyk & Lee 2020, "Efficient Memory Management for Deep Neural Net Inference", found this close to optimal). */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* ---- placement, on plain structs ---- */

static int by_size(const void *a, const void *b) {
    const clef__block *x = *(clef__block *const *)a, *y = *(clef__block *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : x > y;
}

static bool overlap_in_time(const clef__block *a, const clef__block *b) { return a->first <= b->last && b->first <= a->last; }

static size_t align_up(size_t n, size_t alignment) { return (n + alignment - 1) / alignment * alignment; }

/* The lowest offset at which `block` clears those of placed[0..n) (sorted by offset) that live at the same time.  They are
   copies that lie side by side, as with tens of thousands of values this loop is all that planning does. */
static size_t lowest_gap(const clef__block *block, const clef__block *placed, int n, size_t alignment) {
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        if (!overlap_in_time(block, &placed[i])) continue;
        if (at + block->bytes <= placed[i].offset) break;
        size_t end = align_up(placed[i].offset + placed[i].bytes, alignment);
        if (end > at) at = end;
    }
    return at;
}

/* Behind all of a lower or the same offset. */
static void insert(clef__block *placed, int n, clef__block block) {
    int low = 0, high = n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (placed[middle].offset <= block.offset) low = middle + 1;
        else high = middle;
    }
    memmove(&placed[low + 1], &placed[low], (size_t)(n - low) * sizeof *placed);
    placed[low] = block;
}

size_t clef__place(clef__block *block, int n, size_t alignment) {
    clef__block **sorted = clef__alloc((size_t)(n + 1) * sizeof *sorted), *placed = clef__alloc((size_t)(n + 1) * sizeof *placed);
    size_t total = 0;
    bool ok = sorted && placed;
    for (int i = 0; ok && i < n; i++) sorted[i] = &block[i];
    if (ok) qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    for (int i = 0; ok && i < n; i++) {
        clef__block *b = sorted[i];
        b->offset = lowest_gap(b, placed, i, alignment);
        insert(placed, i, *b);
        if (b->offset + b->bytes > total) total = b->offset + b->bytes;
    }
    clef__free(sorted);
    clef__free(placed);
    return ok ? align_up(total, alignment) : SIZE_MAX;
}

/* One walk over time: what begins is added, what has ended is taken away (numbers wrap, their sums do not). */
size_t clef__place_lower_bound(const clef__block *block, int n) {
    int end = 0;
    for (int i = 0; i < n; i++)
        if (block[i].last >= end) end = block[i].last + 1;
    size_t *change = clef__calloc((size_t)end + 1, sizeof *change), alive = 0, most = 0;
    if (!change) return SIZE_MAX;
    for (int i = 0; i < n; i++) {
        change[block[i].first] += block[i].bytes;
        change[block[i].last + 1] -= block[i].bytes;
    }
    for (int t = 0; t < end; t++) {
        alive += change[t];
        if (alive > most) most = alive;
    }
    clef__free(change);
    return most;
}

/* ---- lifetimes of a plan's values ---- */

static void note_lifetimes(clef__plan *plan) {
    for (int v = 0; v < plan->n_values; v++) plan->value[v].first = plan->value[v].last = -1;
    for (int i = 0; i < plan->n_launches; i++)
        for (int a = 0; a < plan->launch[i].n_args; a++) {
            const clef__arg *arg = &plan->launch[i].arg[a];
            if (arg->kind != CLEF__ARG_TENSOR) continue;
            clef__value *value = &plan->value[arg->value];
            if (value->first < 0) value->first = i;
            value->last = i;
        }
}

static int root_of(const clef__plan *plan, int v) {
    while (plan->value[v].in_place_of >= 0) v = plan->value[v].in_place_of;
    return v;
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

/* One block for every chain of in-place values of a device; block_of[v] says which. */
static int make_blocks(const clef__plan *plan, int device, clef__block *block, int *block_of) {
    int n = 0;
    for (int v = 0; v < plan->n_values; v++) {
        const clef__value *value = &plan->value[v];
        if (value->home != CLEF__ARENA_VALUE || value->device != device || value->first < 0 || value->in_place_of >= 0) continue;
        block_of[v] = n;
        block[n++] = (clef__block){.bytes = value->bytes, .first = value->first, .last = value->last};
    }
    for (int v = 0; v < plan->n_values; v++) { /* a value may continue one of a higher number */
        const clef__value *value = &plan->value[v];
        if (value->home != CLEF__ARENA_VALUE || value->device != device || value->first < 0 || value->in_place_of < 0) continue;
        block_of[v] = block_of[root_of(plan, v)];
        if (block[block_of[v]].last < value->last) block[block_of[v]].last = value->last;
    }
    return n;
}

clef_status clef__plan_memory(clef__plan *plan, clef_context *ctx) {
    note_lifetimes(plan);
    continue_in_place(plan);
    clef__block *block = clef__alloc((size_t)(plan->n_values + 1) * sizeof *block);
    int *block_of = clef__alloc((size_t)(plan->n_values + 1) * sizeof *block_of);
    clef_status status = block && block_of ? CLEF_OK : clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
    for (int d = 0; status == CLEF_OK && d < clef__device_count(ctx); d++) {
        int n = make_blocks(plan, d, block, block_of);
        plan->arena_bytes[d] = clef__place(block, n, 128);
        if (d == 0) plan->lower_bound = clef__place_lower_bound(block, n);
        if (plan->arena_bytes[d] == SIZE_MAX || plan->lower_bound == SIZE_MAX) status = clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
        for (int v = 0; status == CLEF_OK && v < plan->n_values; v++) {
            clef__value *value = &plan->value[v];
            if (value->home == CLEF__ARENA_VALUE && value->device == d && value->first >= 0)
                value->offset = block[block_of[v]].offset;
        }
    }
    clef__free(block);
    clef__free(block_of);
    return status;
}
