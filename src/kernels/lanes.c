/* lanes.c — work along the runs of dense memory: which run, how many vector lanes, how many work-items. */
#include "kernels/lanes.h"
#include "runtime/arithmetic.h"

clef__operand clef__lower_in_any_order(const clef__lowering *lw, int i, int *order) {
    clef__operand x = clef__lower_in(lw, i);
    if (clef__memory_order(&x, order)) return x;
    for (int d = 0; d < x.rank; d++) order[d] = d;
    return clef__lower_in_dense(lw, i, NULL);
}

clef__axes clef__axes_around(clef_shape shape, int64_t dim) {
    clef__axes a = {1, shape.dim[dim], 1};
    for (int i = 0; i < dim; i++) a.outer *= shape.dim[i];
    for (int i = (int)dim + 1; i < shape.rank; i++) a.inner *= shape.dim[i];
    return a;
}

clef__operand clef__lower_along(const clef__lowering *lw, int dim, int *order, clef__axes *axes) {
    clef__operand x = clef__lower_in_any_order(lw, 0, order);
    *axes = (clef__axes){1, x.dim[dim], 1};
    int i = 0;
    for (; order[i] != dim; i++) axes->outer *= x.dim[order[i]];
    for (i++; i < x.rank; i++) axes->inner *= x.dim[order[i]];
    return x;
}

clef__units clef__lower_units(const clef__lowering *lw, int64_t n, int64_t work) {
    if (!clef__lower_pays(lw, (double)n * (double)work)) return (clef__units){n, clef__larger(n, 1)};
    int64_t items = clef__lower_items(lw, n, work >= 4096 ? 1 : 4096 / (work + 1) + 1);
    return (clef__units){n, clef__ceil_div(n, items)};
}

void clef__launch_end_units(const clef__lowering *lw, clef__units units) {
    clef__launch_end_1d(lw, clef__ceil_div(units.n, units.per));
}

int clef__lower_lanes(const clef__lowering *lw, int64_t n) {
    int lanes = clef__lower_profile(lw)->vector;
    if (lanes > 4 && lanes > n) lanes = 4; /* few variants: a program more costs a first start more than lanes save */
    return lanes < 4 || lanes > n ? 1 : lanes;
}

void clef__launch_lanes(const clef__lowering *lw, const char *file, const char *kernel, clef_dtype dtype, int64_t n) {
    clef__launch_begin(lw, file, kernel);
    clef__launch_define(lw, "DT", "%s", clef__token(dtype));
    clef__launch_define(lw, "W", "%d", clef__lower_lanes(lw, n));
}

/* ---- rows ---- */

enum { LONG_ROW = 4096 };

int clef__lower_team(const clef__lowering *lw, int64_t n) {
    const clef__profile *profile = clef__lower_profile(lw);
    if (profile->wide_items || profile->local < CLEF__SMALL_TEAM || n < CLEF__SMALL_TEAM) return 1;
    return n >= LONG_ROW && clef__lower_device(lw)->max_work_group >= CLEF__LARGE_TEAM ? CLEF__LARGE_TEAM : CLEF__SMALL_TEAM;
}

int clef__lower_row_lanes(const clef__lowering *lw, int64_t n) {
    return clef__lower_lanes(lw, clef__lower_team(lw, n) > 1 ? 1 : n); /* members read side by side, one element each */
}

void clef__launch_team(const clef__lowering *lw, int team) {
    clef__shuffle shuffle = clef__lower_shuffle(lw);
    clef__launch_define(lw, "TEAM", "%d", team);
    if (shuffle.subgroup) clef__launch_define(lw, "SUBGROUP", "%d", shuffle.subgroup);
    if (shuffle.by) clef__launch_define(lw, shuffle.by, "1");
}

void clef__launch_rows(const clef__lowering *lw, const char *file, const char *kernel, clef_dtype dtype, int64_t n) {
    int team = clef__lower_team(lw, n);
    clef__launch_lanes(lw, file, kernel, dtype, team > 1 ? 1 : n);
    if (team == 1) return;
    clef__launch_team(lw, team);
}

enum { LEAST_HELD = 4 };

void clef__launch_held(const clef__lowering *lw, clef_dtype dtype, int64_t n, int64_t most) {
    int64_t team = clef__lower_team(lw, n), held = LEAST_HELD;
    if (dtype == CLEF_F64) most /= 4;
    if (team == 1 || n > most * team) return;
    while (held * team < n) held *= 2;
    clef__launch_define(lw, "HELD", "%d", (int)held);
}

clef__units clef__lower_rows(const clef__lowering *lw, int64_t rows, int64_t n, int64_t work) {
    return clef__lower_team(lw, n) > 1 ? (clef__units){rows, 1} : clef__lower_units(lw, rows, work);
}

void clef__launch_end_teams(const clef__lowering *lw, int64_t teams, int team) {
    clef__launch_end(lw, (size_t[3]){(size_t)teams * (size_t)team, 1, 1}, (size_t[3]){(size_t)team, 1, 1});
}

void clef__launch_end_rows(const clef__lowering *lw, int64_t n, clef__units rows) {
    int team = clef__lower_team(lw, n);
    if (team > 1) clef__launch_end_teams(lw, rows.n, team);
    else clef__launch_end_units(lw, rows);
}

void clef__launch_real(const clef__lowering *lw, double value) {
    clef__launch_float(lw, (float)value);
    clef__launch_float(lw, (float)(value - (double)(float)value));
}
