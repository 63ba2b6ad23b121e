/* softmax_teams.c — softmax and its gradient along columns that teams share (cl/softmax_teams.cl). */
#include "kernels/softmax_teams.h"
#include "kernels/args.h"
#include "kernels/reduce.h"
#include "softmax_teams.args"

CLEF__ARGS(team_softmax, TEAM_SOFTMAX_ARGS)
CLEF__ARGS(team_parts, TEAM_PARTS_ARGS)
CLEF__ARGS(team_whole, TEAM_WHOLE_ARGS)
CLEF__ARGS(team_results, TEAM_RESULTS_ARGS)
CLEF__ARGS(team_slope, TEAM_SLOPE_ARGS)

static void begin(const clef__lowering *lw, const char *kernel, clef_dtype dtype, const clef__cut *cut, int logarithm) {
    clef__launch_cut(lw, "softmax_teams.cl", kernel, dtype, cut);
    clef__launch_define(lw, "LOG", "%d", logarithm);
}

/* The teams of one launch, or columns in splits where these would leave compute units with too few loads under way. */
enum { LEAST_TEAMS = 2 /* for a compute unit */ };
static clef__cut cut_of(const clef__lowering *lw, clef__axes axes) {
    clef__cut whole = clef__cut_of(lw, axes, 1);
    if (whole.units.n >= LEAST_TEAMS * (int64_t)clef__lower_device(lw)->compute_units) return whole;
    return clef__cut_of(lw, axes, clef__reduce_splits(lw, axes));
}

/* Maximum and sum of each split, of the whole, and the results. */
static void launch_in_splits(const clef__lowering *lw, clef__operand x, clef__operand y, clef__axes axes, const clef__cut *cut,
                             int logarithm) {
    clef_dtype wide = x.dtype == CLEF_F64 ? CLEF_F64 : CLEF_F32;
    clef_shape each = CLEF_SHAPE(axes.outer, cut->splits, axes.inner), all = CLEF_SHAPE(axes.outer, axes.inner);
    clef__operand top = clef__lower_scratch(lw, wide, each), sum = clef__lower_scratch(lw, wide, each),
                  about = clef__lower_scratch(lw, wide, all), scale = clef__lower_scratch(lw, wide, all);
    clef__cut joined = *cut; /* so that one program has all three kernels */
    joined.n = joined.chunk = cut->splits;
    joined.units.n = cut->units.n / cut->splits;
    joined.splits = 1;
    team_parts_args parts = {.x = x, .top = top, .sum = sum, .cut = *cut};
    team_whole_args whole = {.top = top, .sum = sum, .about = about, .scale = scale, .cut = joined};
    team_results_args results = {.x = x, .about = about, .scale = scale, .y = y, .cut = *cut};
    begin(lw, "team_parts", x.dtype, cut, logarithm);
    pass_team_parts(lw, &parts);
    clef__launch_end_cut(lw, cut);
    begin(lw, "team_whole", x.dtype, &joined, logarithm);
    pass_team_whole(lw, &whole);
    clef__launch_end_cut(lw, &joined);
    begin(lw, "team_results", x.dtype, cut, logarithm);
    pass_team_results(lw, &results);
    clef__launch_end_cut(lw, cut);
}

void clef__launch_team_softmax(const clef__lowering *lw, clef__operand x, clef__operand y, clef__axes axes, int logarithm) {
    clef__cut cut = cut_of(lw, axes);
    if (cut.splits > 1) {
        launch_in_splits(lw, x, y, axes, &cut, logarithm);
        return;
    }
    team_softmax_args args = {.x = x, .y = y, .cut = cut};
    begin(lw, "team_softmax", x.dtype, &cut, logarithm);
    pass_team_softmax(lw, &args);
    clef__launch_end_cut(lw, &cut);
}

void clef__launch_team_slope(const clef__lowering *lw, clef__operand y, clef__operand g, clef__operand dx, clef__axes axes,
                             int logarithm) {
    clef__cut cut = clef__cut_of(lw, axes, 1);
    team_slope_args args = {.y = y, .g = g, .dx = dx, .cut = cut};
    begin(lw, "team_slope", y.dtype, &cut, logarithm);
    pass_team_slope(lw, &args);
    clef__launch_end_cut(lw, &cut);
}
