/* reduce.c — reductions in stages.

   A kernel sees the operand in memory order as [outer, n, inner]; when kept and reduced dimensions alternate more often, one stage after
   the other goes through scratch.  Long reductions with few results are split in two stages.  The order of joining is fixed: no
   atomics. */
#include "kernels/reduce.h"
#include "runtime/arithmetic.h"

int64_t clef__reduced_count(clef_shape shape, int64_t mask) {
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        if (mask >> i & 1) count *= shape.dim[i];
    return count;
}

/* A work-item joins columns of [n, inner]: on a CPU a strip of lines, PIECE of them before they meet others; on a GPU a vector. */
enum { PIECE = 256, WIDE_ROW = 512 };

static int64_t strip_of(const clef__lowering *l, clef__axes axes) {
    if (axes.inner == 1) return 1;
    return clef__lower_profile(l)->wide_items ? CLEF__STRIP : clef__lower_lanes(l, axes.inner);
}

/* Elements that lie side by side. */
static int64_t run_of(clef__axes axes) { return axes.inner == 1 ? axes.n : axes.inner; }

void clef__launch_reduction(clef__lowering *l, const char *file, const char *kernel, clef_dtype dtype, clef__axes axes) {
    clef__launch_lanes(l, file, kernel, dtype, run_of(axes));
    clef__launch_define(l, "STRIP", "%d", clef__lower_profile(l)->wide_items ? CLEF__STRIP : 0);
}

void clef__launch_cut(clef__lowering *l, clef__axes axes, int64_t splits) {
    int64_t chunk = clef__ceil_div(axes.n, splits), strip = strip_of(l, axes);
    clef__launch_long(l, axes.n);
    clef__launch_long(l, chunk);
    clef__launch_long(l, splits);
    if (axes.inner > 1) clef__launch_long(l, axes.inner);
    if (axes.inner > 1) clef__launch_long(l, strip);
    clef__launch_units(l, axes.outer * splits * clef__ceil_div(axes.inner, strip), chunk * clef__smaller(strip, axes.inner));
}

static void begin_reduce(clef__lowering *l, const char *kernel, const char *token, clef_dtype from, clef_dtype joined, clef_dtype to,
                         clef__axes axes) {
    clef__launch_reduction(l, "reduce.cl", kernel, from, axes);
    clef__launch_define(l, "AT", "%s", clef__token(joined));
    clef__launch_define(l, "OT", "%s", clef__token(to));
    clef__launch_define(l, "OP", "%s", token);
}

/* One launch: x [outer, n, inner] → y [outer, splits, inner]. */
static void launch_reduce(clef__lowering *l, const char *token, clef__operand x, clef__operand y, clef_dtype joined,
                          clef__axes axes, int64_t splits, int64_t divide) {
    begin_reduce(l, axes.inner == 1 ? "reduce_rows" : "reduce_columns", token, x.dtype, joined, y.dtype, axes);
    clef__launch_read(l, &x, clef__lower_lanes(l, run_of(axes)));
    clef__launch_tensor(l, y, true);
    clef__launch_long(l, divide);
    clef__launch_cut(l, axes, splits);
}

/* On a GPU wide rows are many vectors, so work is plenty even if every item goes down a few lines only. */
int64_t clef__reduce_splits(const clef__lowering *l, clef__axes axes) {
    bool rows = axes.inner == 1, wide = clef__lower_profile(l)->wide_items;
    int64_t least = rows ? 4096 : 64, units = axes.outer * clef__ceil_div(axes.inner, strip_of(l, axes));
    int64_t splits = clef__lower_items(l, axes.outer * axes.n * axes.inner, 4096) / units;
    if (wide && !rows) splits = clef__larger(splits, axes.n / PIECE);
    if (!wide && axes.inner >= WIDE_ROW) splits = axes.n / least;
    splits = clef__smaller(splits, axes.n / least);
    return splits > 1 ? clef__ceil_div(axes.n, clef__ceil_div(axes.n, splits)) : 1;
}

/* Reduces one run of dimensions, in two launches if it pays. */
static void reduce_run(clef__lowering *l, const char *token, clef__operand x, clef__operand y, clef_dtype joined,
                       clef__axes axes, int64_t divide) {
    int64_t splits = clef__reduce_splits(l, axes);
    if (splits > 1) {
        clef__operand parts = clef__lower_scratch(l, joined, CLEF_SHAPE(axes.outer, splits, axes.inner));
        launch_reduce(l, token, x, parts, joined, axes, splits, 1);
        x = parts;
        axes.n = splits;
    }
    launch_reduce(l, token, x, y, joined, axes, 1, divide);
}

void clef__lower_sum(clef__lowering *l, clef__operand x, clef__operand y, clef__axes axes) {
    reduce_run(l, "SUM", x, y, x.dtype, axes, 1);
}

clef__runs clef__find_runs(const clef__operand *x, const int *order, int64_t mask) {
    clef__runs r = { 0 };
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
    clef__axes axes = { 1, 1, 1 };
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
static clef__operand read_operand(clef__lowering *l, int64_t mask, int *order) {
    clef__operand x;
    if (!clef__lower_prologue(l, mask, &x)) return clef__lower_in_any_order(l, 0, order);
    clef__memory_order(&x, order);
    return x;
}

void clef__lower_reduction(clef__lowering *l, const clef__reduction *how) {
    int64_t count = clef__reduced_count(clef__lower_node(l)->input[0]->shape, how->mask);
    if (count == 0) {
        clef__lower_fill(l, clef__lower_out(l, NULL), how->of_nothing);
        return;
    }
    int order[CLEF_MAX_RANK], at;
    clef__operand x = read_operand(l, how->mask, order), out = clef__lower_out(l, order);
    clef__runs r = clef__find_runs(&x, order, how->mask);
    while (r.reduced > 1) {
        clef__axes axes = clef__innermost(&r, &at);
        clef__operand next = clef__lower_scratch(l, how->joined, CLEF_SHAPE(axes.outer, axes.inner));
        reduce_run(l, how->token, x, next, how->joined, axes, 1);
        clef__drop_run(&r, at);
        x = next;
    }
    clef__axes axes = clef__innermost(&r, &at);
    reduce_run(l, how->token, x, out, how->joined, axes, how->divides ? count : 1);
}

void clef__lower_arg(clef__lowering *l, int dim, clef_dtype joined, bool smallest) {
    int order[CLEF_MAX_RANK];
    clef__axes axes;
    clef__operand x = clef__lower_along(l, dim, order, &axes), y = clef__lower_out(l, order);
    begin_reduce(l, "arg_columns", "SUM", x.dtype, joined, joined, axes);
    clef__launch_tensor(l, x, false);
    clef__launch_tensor(l, y, true);
    clef__launch_int(l, smallest);
    clef__launch_long(l, axes.n);
    clef__launch_long(l, axes.inner);
    clef__launch_units(l, axes.outer * axes.inner, axes.n);
}
