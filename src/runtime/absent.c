/* absent.c — devices that are not here, as cl/devices.def describes them (clef_options.plan_for): what is opened in their place takes
   their facts, and so their profile, strategies and launches.  Nothing runs there. */
#include "runtime/runtime_internal.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct row {
    const char *key, *platform, *name, *extensions;
    uint32_t units, mhz;
    uint64_t gib, local_kib;
    bool dedicated;
    uint32_t in_step;
    size_t group;
    uint32_t lanes;
    const char *target;
} row;

static const row rows[] = {
#define DEVICE(key, platform, name, extensions, units, mhz, gib, kib, dedicated, in_step, group, lanes, target, ...) \
    {#key, platform, name, extensions, units, mhz, gib, kib, dedicated, in_step, group, lanes, target},
#include "devices.def"
#undef DEVICE
};
enum { ROWS = sizeof rows / sizeof *rows };

static const row *find_row(const char *key) {
    for (int i = 0; i < ROWS; i++)
        if (strcasecmp(rows[i].key, key) == 0) return &rows[i];
    return NULL;
}

bool clef__absent_known(const char *key) {
    if (find_row(key)) return true;
    char names[256] = "";
    size_t used = 0;
    for (int i = 0; i < ROWS && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", rows[i].key);
    clef__fail(NULL, CLEF_INVALID, "open: plan_for knows no device \"%.40s\"; there are: %s", key, names);
    return false;
}

/* Instructions of PTX that multiply matrices are those of compute capability 8.0 and later; "sm_80" is such a one. */
static clef__matrix_unit unit_of(const row *r) {
    enum { LEAST = '8' };
    return strncmp(r->target, "sm_", 3) == 0 && r->target[3] >= LEAST ? CLEF__PTX : CLEF__NO_MATRIX_UNIT;
}

/* That it swaps rightly is taken on trust. */
static clef__shuffle shuffle_of(const row *r) {
    if (strncmp(r->target, "sm_", 3) == 0) return (clef__shuffle){32, "PTX"};
    bool told = clef__has_word(r->extensions, "cl_intel_required_subgroup_size");
    return told && clef__has_word(r->extensions, "cl_khr_subgroup_shuffle") ? (clef__shuffle){16, "KHR_SHUFFLE"}
                                                                            : (clef__shuffle){0, NULL};
}

/* The number and the texts about the driver stay those of the device that is here. */
void clef__absent_take(clef__device *device, const char *key) {
    const row *r = find_row(key);
    clef_device_info *info = &device->info;
    info->name = r->name;
    info->platform = r->platform;
    info->extensions = r->extensions;
    info->type = "gpu";
    info->compute_units = r->units;
    info->clock_mhz = r->mhz;
    info->vector_width = r->lanes;
    info->global_bytes = r->gib << 30;
    info->max_alloc_bytes = r->gib << 28;
    info->local_bytes = r->local_kib << 10;
    info->max_work_group = r->group;
    info->local_is_dedicated = r->dedicated;
    info->group_multiple = r->in_step;
    info->f64 = clef__has_word(r->extensions, "cl_khr_fp64");
    info->f16 = clef__has_word(r->extensions, "cl_khr_fp16");
    device->matrix_asked = device->tf32_asked = true;
    device->matrix_unit = unit_of(r);
    device->tf32 = device->matrix_unit != CLEF__NO_MATRIX_UNIT;
    device->shuffle_asked = true;
    device->shuffle = shuffle_of(r);
}
