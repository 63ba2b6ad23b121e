/* profile.c — which row of cl/profile.def a device gets, from the facts it reports.

   The first row of the device's type begins a chain; where a row asks for more than the device has, its fallback
   is asked, down to `minimal`, which asks for nothing. */
#include "runtime/runtime_internal.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
#define PROFILE(name, ...) ROW_##name,
#include "profile.def"
#undef PROFILE
    ROWS
};

typedef struct row {
    int fallback;
    const char *type; /* "": any */
    uint32_t lanes;   /* the least it asks for */
    size_t group;
    uint64_t local_bytes;
    bool dedicated;
    uint32_t in_step;
    clef__profile profile;
} row;

static const row rows[ROWS] = {
/* clang-format off */
#define PROFILE(name, fallback, type, lanes, group, local_bytes, dedicated, in_step, ...) \
    [ROW_##name] = {ROW_##fallback, type, lanes, group, local_bytes, dedicated, in_step, {#name, __VA_ARGS__}},
#include "profile.def"
#undef PROFILE
    /* clang-format on */
};

static bool row_fits(const row *r, const clef_device_info *info) {
    uint32_t in_step = info->group_multiple ? info->group_multiple : 32;
    return (!*r->type || strcmp(r->type, info->type) == 0) && info->vector_width >= r->lanes && info->max_work_group >= r->group &&
           info->local_bytes >= r->local_bytes && (info->local_is_dedicated || !r->dedicated) && in_step >= r->in_step;
}

static int by_facts(const clef_device_info *info) {
    int at = 0;
    while (at < ROWS - 1 && *rows[at].type && strcmp(rows[at].type, info->type) != 0) at++;
    while (!row_fits(&rows[at], info) && rows[at].fallback != at) at = rows[at].fallback;
    return at;
}

bool clef__profile_choose(const char *name, const clef_device_info *info, clef__profile *profile) {
    int at = name ? 0 : by_facts(info);
    while (name && at < ROWS && strcasecmp(rows[at].profile.name, name) != 0) at++;
    if (at == ROWS) return false;
    *profile = rows[at].profile;
    /* a forced profile still may not ask for a larger work-group than there is */
    if ((size_t)profile->local > info->max_work_group) profile->local = (int)info->max_work_group;
    return true;
}

void clef__profile_names(char *text, size_t size) {
    size_t used = 0;
    for (int i = 0; i < ROWS && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", rows[i].profile.name);
}

clef__driver clef__driver_of(const clef_device_info *info) {
    static const struct {
        const char *platform, *type;
        clef__driver driver;
    } drivers[] = {
#define DRIVER(platform, type, caches, large_pages, gathers, queues, chains, in_turn, declares) \
    {platform, type, {caches, large_pages, gathers, queues, chains, in_turn, declares}},
#include "drivers.def"
#undef DRIVER
    };
    for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++)
        if (strcmp(info->platform, drivers[i].platform) == 0 && strcmp(info->type, drivers[i].type) == 0) return drivers[i].driver;
    return (clef__driver){.declares = ""};
}
