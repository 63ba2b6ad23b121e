/* prologue.c — pointwise ops that a reduction computes where it reads, so that their result never lies in memory.

   They join the prologue of a kernel if it alone reads what their group makes, and that is large enough for its way through memory
   to be worth a kernel.  Whether their operands lie as one, or repeat (a row for all, a number for each), is known only when they
   are lowered; where they do not, a launch of their own computes them as if nothing had been planned. */
#include "plan/passes/groups.h"
#include "runtime/arithmetic.h"

#include <string.h>

enum { LEAST_BYTES = 16384 };

/* Equal for groups of equal formulas. */
static uint64_t formula_of(clef__graph_view *g, const clef__group *group) {
    uint64_t hash = CLEF__HASH_START;
    for (int m = 0; m < group->n_members; m++) {
        const clef__node *node = g->captured[group->member[m]].node;
        hash = clef__hash(hash, node->op->text, strlen(node->op->text));
        hash = clef__hash(hash, &node->out->dtype, sizeof node->out->dtype);
    }
    return hash;
}

/* Is there a place among the plan's formulas? */
static bool admit(clef__grouping *gr, uint64_t formula) {
    for (int i = 0; i < gr->n_formulas; i++)
        if (gr->formula[i] == formula) return true;
    if (gr->n_formulas == CLEF__PROLOGUES) return false;
    gr->formula[gr->n_formulas++] = formula;
    return true;
}

/* Does nobody but the kernel see anything of the group? */
static bool is_read_once(clef__graph_view *g, const clef__group *group, int result) {
    for (int m = 0; m < group->n_members; m++) g->captured[group->member[m]].inner_uses = 0;
    for (int m = 0; m < group->n_members; m++) {
        const clef__node *node = g->captured[group->member[m]].node;
        for (int j = 0; j < node->n_inputs; j++) g->captured[clef__captured_of(g, node->input[j])].inner_uses++;
    }
    for (int m = 0; m < group->n_members; m++) {
        const clef__captured *captured = &g->captured[group->member[m]];
        if (captured->output || captured->uses != captured->inner_uses + (group->member[m] == result)) return false;
    }
    return true;
}

bool clef__may_join_prologue(clef__graph_view *g, clef__grouping *gr, int captured, int maker) {
    const clef__node *kernel = g->captured[captured].node;
    const clef__group *group = &gr->group[maker];
    int result = clef__captured_of(g, kernel->input[0]);
    if (!kernel->op->prologue || group->kernel >= 0 || g->captured[result].base != result) return false;
    if (clef_shape_numel(kernel->input[0]->shape) * (int64_t)clef_dtype_size(kernel->input[0]->dtype) < LEAST_BYTES) return false;
    return g->captured[result].out->device == kernel->out->device && is_read_once(g, group, result) &&
           clef__only_user(gr, maker, g->captured[captured].group) && admit(gr, formula_of(g, group));
}
