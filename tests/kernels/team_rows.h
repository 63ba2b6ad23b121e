/* team_rows.h — lengths of rows that a work-group shares on a GPU: about where its members hold 4, 8, 16 or 32 elements each, or none (HELD,
   cl/lanes.h). */
#ifndef CLEF_TESTS_TEAM_ROWS_H
#define CLEF_TESTS_TEAM_ROWS_H
#include "support/device.h"
#include <string.h>

static const int team_rows[] = {300, 1900, 65, 1024, 513, 8192, 64, 256, 257, 512, 1025, 2048, 2049, 4095, 4096, 8193};
static inline int n_team_rows(void) { return few_kernels() ? 1 : test_small() ? 5 : (int)(sizeof team_rows / sizeof *team_rows); }

/* Once for all CPUs: not again where another profile is to be tried. */
static inline clef_context *open_for_team_rows(void) {
    const char *profile = getenv("CLEF_PROFILE");
    if (profile && *profile && strncmp(profile, "gpu", 3) != 0) cr_skip_test("profile %s: work-groups share no rows", profile);
    return open_as_gpu();
}

#endif
