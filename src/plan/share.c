/* share.c — which launches of a plan have the same program: it is looked for once, by the first of them.

   A program is found by a hash that no accident makes equal, and takes tens of microseconds to compute from some ten KiB of text.  A
   plan has few different texts and may have tens of thousands of launches. */
#include "plan/plan.h"
#include "runtime/arithmetic.h"

#include <string.h>

/* What is generated alone begins as all of it does. */
static const char *own_text(const clef__launch *launch) {
    if (!launch->source) return "";
    return launch->source + (launch->file ? 0 : strlen(clef__embedded("common.h")));
}

static uint64_t hash_of(const clef__launch *launch) {
    const char *text = own_text(launch);
    uint64_t hash = clef__hash(CLEF__HASH_START + (uint64_t)launch->device, text, strlen(text));
    hash = clef__hash(hash, launch->options, strlen(launch->options));
    return launch->file ? clef__hash(hash, launch->file, strlen(launch->file)) : hash;
}

static bool same_program(const clef__launch *a, const clef__launch *b) {
    if (a->device != b->device || !a->source != !b->source || !a->file != !b->file || strcmp(a->options, b->options) != 0) return false;
    return (!a->file || strcmp(a->file, b->file) == 0) && (!a->source || strcmp(a->source, b->source) == 0);
}

int *clef__same_programs(const clef__plan *plan) {
    size_t slots = 16;
    while (slots < 2 * (size_t)plan->n_launches) slots *= 2;
    int *table = clef__alloc(slots * sizeof *table), *first = clef__alloc(((size_t)plan->n_launches + 1) * sizeof *first);
    if (table) memset(table, 0xff, slots * sizeof *table); /* open addressing; launch or -1 */
    for (int i = 0; table && first && i < plan->n_launches; i++) {
        const clef__launch *launch = &plan->launch[i];
        first[i] = i;
        if (launch->kind != CLEF__LAUNCH_KERNEL) continue;
        size_t at = hash_of(launch) & (slots - 1);
        while (table[at] >= 0 && !same_program(&plan->launch[table[at]], launch)) at = (at + 1) & (slots - 1);
        if (table[at] < 0) table[at] = i;
        first[i] = table[at];
    }
    if (!table) {
        clef__free(first);
        first = NULL;
    }
    clef__free(table);
    return first;
}
