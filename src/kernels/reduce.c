/* reduce.c — reductions in stages.

   A kernel sees the operand in memory order as [outer, n, inner]; when kept and reduced dimensions alternate more often, one stage
   after the other goes through scratch.  Long reductions with few results are split in two stages.  The order of joining is fixed:
   no atomics. */
#include "kernels/reduce.h"
#include "kernels/args.h"
#include "reduce.args"
#include "runtime/arithmetic.h"

CLEF__ARGS(reduce_rows, REDUCE_ROWS_ARGS)
CLEF__ARGS(reduce_columns, REDUCE_COLUMNS_ARGS)
CLEF__ARGS(arg_rows, ARG_ROWS_ARGS)
CLEF__ARGS(arg_columns, ARG_COLUMNS_ARGS)

int64_t clef__reduced_count(clef_shape shape, int64_t mask) {
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        if (mask >> i & 1) count *= shape.dim[i];
    return count;
}

/* A work-item joins columns of [n, inner]: on a CPU a strip of lines, LEAST_SPLIT of them before they meet others; on a GPU a vector, or
   one that a team goes down together. */
enum { LEAST_SPLIT = 256, PLACE_STRIP = 64, WIDE_ROW = 512, TEAMS = 4 /* large ones, that keep a compute unit busy */ };

/* Columns side by side in a team: as many as are read in one go, and no more than there are. */
enum { ACROSS = 32 };
static int64_t across_of(int64_t inner) {
    int64_t across = 1;
    while (across < inner && across < ACROSS) across *= 2;
    return across;
}

/* A team is worth its joining where columns are long, or long enough and too few for all work-items of the device. */
enum { FEW_LINES = 16, MANY_LINES = 64, MANY_COLUMNS = 1024 /* for a compute unit */ };
static int column_team(const clef__lowering *lw, clef__axes axes) {
    const clef__profile *profile = clef__lower_profile(lw);
    const clef_device_info *device = clef__lower_device(lw);
    if (axes.inner == 1 || profile->wide_items || profile->local < CLEF__SMALL_TEAM || axes.n < FEW_LINES) return 1;
    if (axes.n < MANY_LINES && axes.outer * axes.inner / MANY_COLUMNS >= device->compute_units) return 1;
    bool large = axes.n >= 2 * CLEF__LARGE_TEAM / across_of(axes.inner);
    return large && device->max_work_group >= CLEF__LARGE_TEAM ? CLEF__LARGE_TEAM : CLEF__SMALL_TEAM;
}

bool clef__has_team_columns(const clef__lowering *lw, clef__axes axes) { return column_team(lw, axes) > 1; }

static int64_t strip_of(const clef__lowering *lw, clef__axes axes) {
    if (axes.inner == 1) return 1;
    if (column_team(lw, axes) > 1) return across_of(axes.inner);
    return clef__lower_profile(lw)->wide_items ? CLEF__STRIP : clef__lower_lanes(lw, axes.inner);
}

static void define_strip(const clef__lowering *lw) {
    clef__launch_define(lw, "STRIP", "%d", clef__lower_profile(lw)->wide_items ? CLEF__STRIP : 0);
}

void clef__launch_reduction(const clef__lowering *lw, const char *file, const char *kernel, clef_dtype dtype, clef__axes axes) {
    if (axes.inner == 1) clef__launch_rows(lw, file, kernel, dtype, axes.n);
    else clef__launch_lanes(lw, file, kernel, dtype, axes.inner);
    define_strip(lw);
}

static clef__units units_of(const clef__lowering *lw, clef__axes axes, const clef__cut *cut) {
    int64_t units = axes.outer * cut->splits * clef__ceil_div(axes.inner, cut->strip);
    if (axes.inner == 1) return clef__lower_rows(lw, units, axes.n, cut->chunk);
    if (cut->team > 1) return (clef__units){units, 1};
    return clef__lower_units(lw, units, cut->chunk * clef__smaller(cut->strip, axes.inner));
}

clef__cut clef__cut_of(const clef__lowering *lw, clef__axes axes, int64_t splits) {
    clef__cut cut = {.n = axes.n,
                     .chunk = clef__ceil_div(axes.n, splits),
                     .splits = splits,
                     .inner = axes.inner,
                     .strip = strip_of(lw, axes),
                     .team = column_team(lw, axes)};
    cut.units = units_of(lw, axes, &cut);
    cut.lanes = axes.inner == 1 ? clef__lower_row_lanes(lw, axes.n) : clef__lower_lanes(lw, cut.team > 1 ? 1 : axes.inner);
    return cut;
}

void clef__launch_cut(const clef__lowering *lw, const char *file, const char *kernel, clef_dtype dtype, const clef__cut *cut) {
    if (cut->team == 1) {
        clef__launch_reduction(lw, file, kernel, dtype, (clef__axes){1, cut->n, cut->inner});
        return;
    }
    clef__launch_lanes(lw, file, kernel, dtype, 1);
    clef__launch_team(lw, cut->team);
    define_strip(lw);
}

void clef__launch_end_cut(const clef__lowering *lw, const clef__cut *cut) {
    if (cut->inner == 1) clef__launch_end_rows(lw, cut->n, cut->units);
    else if (cut->team > 1) clef__launch_end_teams(lw, cut->units.n, cut->team);
    else clef__launch_end_units(lw, cut->units);
}

static void define_join(const clef__lowering *lw, const char *token, clef_dtype joined, clef_dtype to) {
    clef__launch_define(lw, "AT", "%s", clef__token(joined));
    clef__launch_define(lw, "OT", "%s", clef__token(to));
    clef__launch_define(lw, "OP", "%s", token);
}

/* One launch: x [outer, n, inner] → y [outer, splits, inner]. */
static void launch_reduce(const clef__lowering *lw, const char *token, clef__operand x, clef__operand y, clef_dtype joined,
                          clef__axes axes, int64_t splits, int64_t divide) {
    clef__cut cut = clef__cut_of(lw, axes, splits);
    clef__launch_cut(lw, "reduce.cl", axes.inner == 1 ? "reduce_rows" : "reduce_columns", x.dtype, &cut);
    define_join(lw, token, joined, y.dtype);
    if (axes.inner == 1) {
        reduce_rows_args args = {.x = x, .x_lanes = cut.lanes, .y = y, .divide = divide, .cut = cut};
        pass_reduce_rows(lw, &args);
    } else {
        reduce_columns_args args = {.x = x, .x_lanes = cut.lanes, .y = y, .divide = divide, .cut = cut};
        pass_reduce_columns(lw, &args);
    }
    clef__launch_end_cut(lw, &cut);
}

/* So many that every compute unit has its TEAMS, of which each member has some lines to wait for together. */
enum { LEAST_LINES = 32 };
static int64_t team_splits(const clef__lowering *lw, clef__axes axes, int team) {
    int64_t across = across_of(axes.inner), teams = axes.outer * clef__ceil_div(axes.inner, across);
    int64_t wanted = TEAMS * clef__lower_device(lw)->compute_units * CLEF__LARGE_TEAM / team;
    return clef__smaller(wanted / teams, axes.n / (LEAST_LINES * team / across));
}

/* Without teams wide rows of a GPU are many vectors, so work is plenty even if every item goes down a few lines only. */
static int64_t item_splits(const clef__lowering *lw, clef__axes axes) {
    bool rows = axes.inner == 1, wide = clef__lower_profile(lw)->wide_items;
    int64_t least = rows ? 4096 : 64, units = axes.outer * clef__ceil_div(axes.inner, strip_of(lw, axes));
    int64_t splits = clef__lower_items(lw, axes.outer * axes.n * axes.inner, 4096) / units;
    if (rows && clef__lower_team(lw, axes.n) > 1) splits = TEAMS * clef__lower_device(lw)->compute_units / units;
    if (wide && !rows) splits = clef__larger(splits, axes.n / LEAST_SPLIT);
    if (!wide && axes.inner >= WIDE_ROW) splits = axes.n / least;
    return clef__smaller(splits, axes.n / least);
}

int64_t clef__reduce_splits(const clef__lowering *lw, clef__axes axes) {
    int team = column_team(lw, axes);
    int64_t splits = team > 1 ? team_splits(lw, axes, team) : item_splits(lw, axes);
    return splits > 1 ? clef__ceil_div(axes.n, clef__ceil_div(axes.n, splits)) : 1;
}

/* Reduces one run of dimensions, in two launches if it pays. */
static void reduce_run(const clef__lowering *lw, const char *token, clef__operand x, clef__operand y, clef_dtype joined,
                       clef__axes axes, int64_t divide) {
    int64_t splits = clef__reduce_splits(lw, axes);
    if (splits > 1) {
        clef__operand parts = clef__lower_scratch(lw, joined, CLEF_SHAPE(axes.outer, splits, axes.inner));
        launch_reduce(lw, token, x, parts, joined, axes, splits, 1);
        x = parts;
        axes.n = splits;
    }
    launch_reduce(lw, token, x, y, joined, axes, 1, divide);
}

void clef__lower_sum(const clef__lowering *lw, clef__operand x, clef__operand y, clef__axes axes) {
    reduce_run(lw, "SUM", x, y, x.dtype, axes, 1);
}

clef__runs clef__find_runs(const clef__operand *x, const int *order, int64_t mask) {
    clef__runs r = {0};
    for (int i = 0; i < x->rank; i++) {
        int64_t size = x->dim[order[i]];
        bool reduced = mask >> order[i] & 1;
        if (size == 1) continue;
        if (r.n && r.is_reduced[r.n - 1] == reduced) {
            r.size[r.n - 1] *= size;
            continue;
        }
        r.size[r.n] = size;
        r.is_reduced[r.n++] = reduced;
        r.reduced += reduced;
    }
    return r;
}

clef__axes clef__innermost(const clef__runs *r, int *at) {
    clef__axes axes = {1, 1, 1};
    int i = r->n - 1;
    for (; i >= 0 && !r->is_reduced[i]; i--) axes.inner *= r->size[i];
    *at = i;
    if (i >= 0) axes.n = r->size[i];
    for (i--; i >= 0; i--) axes.outer *= r->size[i];
    return axes;
}

void clef__drop_run(clef__runs *r, int at) {
    r->reduced--;
    r->size[at] = 1;
    r->is_reduced[at] = false; /* a kept run of 1 between kept runs changes nothing */
}

/* What is reduced: computed where it is read, or in memory. */
static clef__operand read_operand(const clef__lowering *lw, int64_t mask, int *order) {
    clef__operand x;
    if (!clef__lower_prologue(lw, mask, &x)) return clef__lower_in_any_order(lw, 0, order);
    clef__memory_order(&x, order);
    return x;
}

void clef__lower_reduction(const clef__lowering *lw, const clef__reduction_spec *how) {
    int64_t count = clef__reduced_count(clef__lower_node(lw)->input[0]->shape, how->mask);
    if (count == 0) {
        clef__lower_fill(lw, clef__lower_out(lw, NULL), how->of_nothing);
        return;
    }
    int order[CLEF_MAX_RANK], at;
    clef__operand x = read_operand(lw, how->mask, order), out = clef__lower_out(lw, order);
    clef__runs r = clef__find_runs(&x, order, how->mask);
    while (r.reduced > 1) {
        clef__axes axes = clef__innermost(&r, &at);
        clef__operand next = clef__lower_scratch(lw, how->joined, CLEF_SHAPE(axes.outer, axes.inner));
        reduce_run(lw, how->token, x, next, how->joined, axes, 1);
        clef__drop_run(&r, at);
        x = next;
    }
    clef__axes axes = clef__innermost(&r, &at);
    reduce_run(lw, how->token, x, out, how->joined, axes, how->divides ? count : 1);
}

/* Strips of columns so narrow that every compute unit has some, where a work-item goes along lines. */
static int64_t place_strip(const clef__lowering *lw, clef__axes axes, int lanes) {
    if (!clef__lower_profile(lw)->wide_items) return lanes;
    int64_t parts = clef__ceil_div(clef__lower_items(lw, axes.outer * axes.n * axes.inner, 4096), axes.outer);
    int64_t strip = clef__round_up(clef__ceil_div(axes.inner, parts), PLACE_STRIP);
    return clef__smaller(strip, CLEF__STRIP);
}

static void lower_arg_columns(const clef__lowering *lw, const char *token, clef_dtype joined, clef__operand x, clef__operand y,
                              clef__axes axes) {
    clef__launch_lanes(lw, "reduce.cl", "arg_columns", x.dtype, axes.inner);
    define_strip(lw);
    define_join(lw, token, joined, x.dtype);
    clef__launch_define(lw, "PLACE_IN", "%s", axes.n > INT32_MAX ? "long" : "int");
    int64_t strip = place_strip(lw, axes, clef__lower_lanes(lw, axes.inner));
    clef__units units =
        clef__lower_units(lw, axes.outer * clef__ceil_div(axes.inner, strip), axes.n * clef__smaller(strip, axes.inner));
    arg_columns_args args = {.x = x, .y = y, .n = axes.n, .inner = axes.inner, .strip = strip, .units = units};
    pass_arg_columns(lw, &args);
    clef__launch_end_units(lw, units);
}

static void lower_arg_rows(const clef__lowering *lw, const char *token, clef_dtype joined, clef__operand x, clef__operand y,
                           clef__axes axes) {
    clef__launch_rows(lw, "reduce.cl", "arg_rows", x.dtype, axes.n);
    define_strip(lw);
    define_join(lw, token, joined, x.dtype);
    clef__launch_define(lw, "PLACE_IN", "int");
    clef__units units = clef__lower_rows(lw, axes.outer, axes.n, axes.n);
    arg_rows_args args = {.x = x, .y = y, .n = axes.n, .units = units};
    pass_arg_rows(lw, &args);
    clef__launch_end_rows(lw, axes.n, units);
}

void clef__lower_arg(const clef__lowering *lw, int dim, const char *token, clef_dtype joined) {
    int order[CLEF_MAX_RANK];
    clef__axes axes;
    clef__operand x = clef__lower_along(lw, dim, order, &axes), y = clef__lower_out(lw, order);
    bool rows = axes.inner == 1 && axes.n <= INT32_MAX; /* a team's place is an int */
    (rows ? lower_arg_rows : lower_arg_columns)(lw, token, joined, x, y, axes);
}
