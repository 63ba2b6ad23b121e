/* agree.c — do all ranks that share batches share the same ones? */
#include "data/data_internal.h"
#include "group/group.h"

static const char *const name[] = {
    "items",           "as batch",           "for shuffle", "for drop_last", "as seed", "parts of a batch", "as hash of its shares",
    "for shares_auto", "for rebalance_every"};

clef_status clef__agree_on_batches(clef_context *ctx, clef_group *group, const clef__batches *own) {
    int size = clef_group_size(group);
    clef__batches *all = clef__calloc((size_t)size, sizeof *all);
    if (!all) return clef__fail(ctx, CLEF_MEMORY, "loader: out of memory");
    clef_status status = clef_group_gather_bytes(group, own, all, sizeof *all);
    for (int k = 0; k < CLEF__BATCHES_NUMBERS && !status; k++)
        for (int r = 1; r < size && !status; r++)
            if (all[r].number[k] != all[0].number[k])
                status = clef__fail(ctx, CLEF_GROUP, "loader: %s has %lld %s, %s has %lld; ranks that share batches give the same",
                                    clef_group_rank_name(group, 0), (long long)all[0].number[k], name[k],
                                    clef_group_rank_name(group, r), (long long)all[r].number[k]);
    clef__free(all);
    return status;
}
