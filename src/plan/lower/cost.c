/* cost.c — see cost.h. */
#include "plan/lower/cost.h"

#include <math.h>

static double units_of(const clef_device_info *device) { return fmax(device->compute_units, 1); }

/* How much longer than in equal parts: units wait for those that have one group more. */
static double waves(double groups, double units) { return groups > 0 ? ceil(groups / units) * units / groups : 1; }

/* Caches move bytes several times as fast as memory, as far as these fit. */
static double memory_seconds(const clef__profile *profile, double bytes, double units) {
    enum { CACHE_SPEED = 4 };
    double cached = fmin(bytes, profile->cache_kb * 1024 * units);
    return (cached / CACHE_SPEED + bytes - cached) / (profile->gb_per_second * 1e9);
}

static double peak(const clef__profile *profile, double units) { return profile->flops_per_cycle * profile->ghz * 1e9 * units; }

double clef__nominal_seconds(const clef__device *device, double flops, double bytes) {
    const clef__profile *profile = clef__device_profile(device);
    double units = units_of(clef__device_planned(device));
    return fmax(flops / peak(profile, units), memory_seconds(profile, bytes, units));
}

double clef__work_seconds(const clef__lowering *lw, const clef__work *work) {
    const clef__profile *profile = clef__lower_profile(lw);
    double units = units_of(clef__lower_device(lw));
    double arithmetic = work->efficiency > 0 ? work->flops / (peak(profile, units) * work->efficiency) : 0;
    return fmax(arithmetic, memory_seconds(profile, work->bytes, units)) * waves(work->groups, units);
}

double clef__launch_seconds(const clef__lowering *lw, const clef__work *work) {
    return clef__lower_profile(lw)->launch_us * 1e-6 + clef__work_seconds(lw, work);
}

/* The rest is for what passes by. */
int64_t clef__cached_bytes(const clef__lowering *lw) { return (int64_t)(clef__lower_profile(lw)->cache_kb * 1024) * 3 / 8; }
