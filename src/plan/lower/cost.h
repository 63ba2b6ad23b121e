/* cost.h — how long a launch takes, by the nominal facts of its device's profile.

   Nothing here is measured: equal devices, drivers and numbers of compute units must come to equal plans, whatever else runs. */
#ifndef CLEF_COST_H
#define CLEF_COST_H
#include "plan/lower/lower.h"

/* What a launch does. */
typedef struct clef__work {
    double flops;      /* with those computed in vain, up to whole tiles */
    double efficiency; /* fraction of the peak at which it does them where there are enough of them; 0: they take no time */
    double bytes;      /* that memory moves */
    double groups;     /* parts that compute units can work on at the same time; 0: as many as wanted */
} clef__work;

/* Its start, and the longer of its arithmetic and its memory's time, times what a last wave of groups leaves idle. */
double clef__launch_seconds(const clef__lowering *lw, const clef__work *work);
/* The same without its start: for a part of a launch. */
double clef__work_seconds(const clef__lowering *lw, const clef__work *work);
/* What so much work takes on a device at its peak: for work that is not being lowered. */
double clef__nominal_seconds(const clef__device *device, double flops, double bytes);
/* Bytes that surely stay in the cache of a compute unit while a work-item uses them again: by the profile's size of it. */
int64_t clef__cached_bytes(const clef__lowering *lw);
#endif
