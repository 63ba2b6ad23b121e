/* devices_plan.h — clef devices --plan: shares and speed of devices that train a model together. */
#ifndef CLEF_TOOL_DEVICES_PLAN_H
#define CLEF_TOOL_DEVICES_PLAN_H
#include "tool.h"

typedef struct devices_plan {
    const common_options *common;
    ranks list;    /* .devices: which */
    workload work; /* the model and its data */
    int64_t batch;
} devices_plan;

/* Measures on its device, a rank of several; rank 0 prints.  For ranks_run. */
int devices_plan_rank(clef_context *ctx, clef_group *all, void *plan);

#endif
