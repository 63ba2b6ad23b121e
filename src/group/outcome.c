/* outcome.c — what one rank found out, and all must know: how something ended that not all ranks did, or that may have ended otherwise. */
#include "group/group.h"
#include <stdio.h>

typedef struct outcome {
    clef_status status;
    char line[CLEF_TRANSPORT_LINE];
} outcome;

clef_status clef__group_agree_line(clef_group *group, clef_status own, char *line) {
    int size = clef_group_size(group);
    if (size == 1) return own;
    outcome mine = {.status = own}, *all = clef__calloc((size_t)size, sizeof *all);
    if (!all) return clef__fail(group->ctx, CLEF_MEMORY, "no host memory for what %d ranks say", size);
    if (own) snprintf(mine.line, sizeof mine.line, "%s", line);
    clef_status status = clef_group_gather_bytes(group, &mine, all, sizeof mine);
    if (status) snprintf(line, CLEF_TRANSPORT_LINE, "%s", clef_error(group->ctx));
    for (int r = 0; r < size && !status; r++) {
        if (all[r].status) snprintf(line, CLEF_TRANSPORT_LINE, "%s", all[r].line);
        status = all[r].status;
    }
    clef__free(all);
    return status;
}

clef_status clef__group_agree(clef_group *group, clef_status own) {
    char line[CLEF_TRANSPORT_LINE] = "";
    if (clef_group_size(group) == 1) return own;
    if (own) {
        const char *error = clef_error(group->ctx);
        snprintf(line, sizeof line, "%.1000s", *error ? error : clef_status_name(own));
        clef_clear_error(group->ctx); /* or nothing could be told: after an error nobody meets */
    }
    clef_status status = clef__group_agree_line(group, own, line);
    return status ? clef__fail(group->ctx, status, "%s", line) : CLEF_OK;
}
