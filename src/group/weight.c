/* weight.c — how much a rank counts in an average: by its part of the items of the batch, or as the program says. */
#include "group/group.h"

#include <math.h>

clef_status clef_group_weight(clef_group *group, double weight) {
    if (!group) return CLEF_OK;
    if (!(isfinite(weight) && weight >= 0))
        return clef__fail(group->ctx, CLEF_INVALID, "group_weight: %g is no weight; it must be a number ≥ 0", weight);
    group->weight = weight;
    group->weight_given = true;
    return CLEF_OK;
}

bool clef__group_weight_given(const clef_group *group, double *weight) {
    if (group->weight_given) *weight = group->weight;
    return group->weight_given;
}

void clef__group_forget_weight(clef_group *group) { group->weight_given = false; }

void clef__group_set_items(clef_group *group, int64_t items, int64_t all) {
    group->items = items;
    group->all_items = all;
}

double clef__group_share(const clef_group *group) {
    return group->all_items ? (double)group->items / (double)group->all_items : 1.0 / group->size;
}
