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
CLEF__ARGS(arg_columns, ARG_COLUMNS_ARGS)

int64_t clef__reduced_count(clef_shape shape, int64_t mask) {
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        if (mask >> i & 1) count *= shape.dim[i];
    return count;
}

/* A work-item joins columns of [n, inner]: on a CPU a strip of lines, LEAST_SPLIT of them before
   they meet others; on a GPU a vector. */
enum { LEAST_SPLIT = 256, WIDE_ROW = 512, TEAMS = 4 /* that keep a compute unit busy */ };

static int64_t strip_of(const clef__lowering *lw, clef__axes axes) {
    if (axes.inner == 1) return 1;
    return clef__lower_profile(lw)->wide_items ? CLEF__STRIP : clef__lower_lanes(lw, axes.inner);
}

void clef__launch_reduction(const clef__lowering *lw, const char *file, const char *kernel, clef_dtype dtype, clef__axes axes) {
    if (axes.inner == 1) clef__launch_rows(lw, file, kernel, dtype, axes.n);
    else clef__launch_lanes(lw, file, kernel, dtype, axes.inner);
    clef__launch_define(lw, "STRIP", "%d", clef__lower_profile(lw)->wide_items ? CLEF__STRIP : 0);
}

clef__cut clef__cut_of(const clef__lowering *lw, clef__axes axes, int64_t splits) {
    int64_t chunk = clef__ceil_div(axes.n, splits), strip = strip_of(lw, axes);
    int64_t units = axes.outer * splits * clef__ceil_div(axes.inner, strip);
    return (clef__cut){.n = axes.n,
                       .chunk = chunk,
                       .splits = splits,
                       .inner = axes.inner,
                       .strip = strip,
                       .units = axes.inner == 1 ? clef__lower_rows(lw, units, axes.n, chunk)
                                                : clef__lower_units(lw, units, chunk * clef__smaller(strip, axes.inner))};
}

static void begin_reduce(const clef__lowering *lw, const char *kernel, const char *token, clef_dtype from, clef_dtype joined,
                         clef_dtype to, clef__axes axes) {
    clef__launch_reduction(lw, "reduce.cl", kernel, from, axes);
    clef__launch_define(lw, "AT", "%s", clef__token(joined));
    clef__launch_define(lw, "OT", "%s", clef__token(to));
    clef__launch_define(lw, "OP", "%s", token);
}

/* One launch: x [outer, n, inner] → y [outer, splits, inner]. */
static void launch_reduce(const clef__lowering *lw, const char *token, clef__operand x, clef__operand y, clef_dtype joined,
                          clef__axes axes, int64_t splits, int64_t divide) {
    clef__cut cut = clef__cut_of(lw, axes, splits);
    begin_reduce(lw, axes.inner == 1 ? "reduce_rows" : "reduce_columns", token, x.dtype, joined, y.dtype, axes);
    if (axes.inner == 1) {
        int lanes = clef__lower_row_lanes(lw, axes.n);
        reduce_rows_args args = {.x = x, .x_lanes = lanes, .y = y, .divide = divide, .cut = cut};
        pass_reduce_rows(lw, &args);
        clef__launch_end_rows(lw, axes.n, cut.units);
    } else {
        int lanes = clef__lower_lanes(lw, axes.inner);
        reduce_columns_args args = {.x = x, .x_lanes = lanes, .y = y, .divide = divide, .cut = cut};
        pass_reduce_columns(lw, &args);
        clef__launch_end_units(lw, cut.units);
    }
}

/* On a GPU wide rows are many vectors, so work is plenty even if every item goes down a few lines only. */
int64_t clef__reduce_splits(const clef__lowering *lw, clef__axes axes) {
    bool rows = axes.inner == 1, wide = clef__lower_profile(lw)->wide_items;
    int64_t least = rows ? 4096 : 64, units = axes.outer * clef__ceil_div(axes.inner, strip_of(lw, axes));
    int64_t splits = clef__lower_items(lw, axes.outer * axes.n * axes.inner, 4096) / units;
    if (rows && clef__lower_team(lw, axes.n) > 1) splits = TEAMS * clef__lower_device(lw)->compute_units / units;
    if (wide && !rows) splits = clef__larger(splits, axes.n / LEAST_SPLIT);
    if (!wide && axes.inner >= WIDE_ROW) splits = axes.n / least;
    splits = clef__smaller(splits, axes.n / least);
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

void clef__lower_arg(const clef__lowering *lw, int dim, clef_dtype joined, bool smallest) {
    int order[CLEF_MAX_RANK];
    clef__axes axes;
    clef__operand x = clef__lower_along(lw, dim, order, &axes), y = clef__lower_out(lw, order);
    begin_reduce(lw, "arg_columns", "SUM", x.dtype, joined, joined, axes);
    clef__units units = clef__lower_units(lw, axes.outer * axes.inner, axes.n);
    arg_columns_args args = {.x = x, .y = y, .smallest = smallest, .n = axes.n, .inner = axes.inner, .units = units};
    pass_arg_columns(lw, &args);
    clef__launch_end_units(lw, units);
}
