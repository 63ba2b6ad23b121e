/* reduce.h — reductions, and their stages for ops that begin with a kernel of their own. */
#ifndef CLEF_REDUCE_H
#define CLEF_REDUCE_H
#include "kernels/lanes.h"

typedef struct clef__reduction_spec {
    const char *token; /* of cl/reduce.cl: SUM, … */
    int64_t mask;      /* bit d: dimension d is reduced */
    clef_dtype joined; /* in which values are joined: wide enough for the result */
    bool divides;      /* the result, by the count */
    double of_nothing; /* the result over no element */
} clef__reduction_spec;
/* The whole node: input 0 reduced to the output. */
void clef__lower_reduction(const clef__lowering *lw, const clef__reduction_spec *r);
/* The position of input 0's first largest or smallest element along dim; token and joined: as of the reduction to it. */
void clef__lower_arg(const clef__lowering *lw, int dim, const char *token, clef_dtype joined);

/* Runs of kept and reduced dimensions in memory order, alternating. */
typedef struct clef__runs {
    int n, reduced; /* how many, how many of them reduced */
    int64_t size[CLEF_MAX_RANK];
    bool is_reduced[CLEF_MAX_RANK];
} clef__runs;
/* mask: bit d is set where dimension d is reduced. */
clef__runs clef__find_runs(const clef__operand *x, const int *order, int64_t mask);
/* The innermost reduced run, at `at`; n = 1 over everything when nothing is left to reduce. */
clef__axes clef__innermost(const clef__runs *r, int *at);
void clef__drop_run(clef__runs *r, int at);
/* Columns whose totals a core's first-level cache holds: the widest strip that a work-item takes of [n, inner] on a CPU. */
enum { CLEF__STRIP = 2048 };
/* Begins a launch of a kernel with the knobs DT, W, STRIP, whose work-items have columns of their own. */
void clef__launch_reduction(const clef__lowering *lw, const char *file, const char *kernel, clef_dtype dtype, clef__axes axes);
/* How a kernel goes about [outer, n, inner] with n in `splits`: CUT_ROWS (inner = 1) and CUT_COLUMNS of cl/args.h. */
typedef struct clef__cut {
    int64_t n, chunk, splits, inner, strip;
    clef__units units;
    int team, lanes; /* work-items that share a block of columns, 1: none; lanes of a row or column */
} clef__cut;
clef__cut clef__cut_of(const clef__lowering *lw, clef__axes axes, int64_t splits);
/* Do teams share columns there? */
bool clef__has_team_columns(const clef__lowering *lw, clef__axes axes);
/* Begins a launch of a kernel that goes about them so, and may have columns of teams (cl/lanes.h); and its end. */
void clef__launch_cut(const clef__lowering *lw, const char *file, const char *kernel, clef_dtype dtype, const clef__cut *cut);
void clef__launch_end_cut(const clef__lowering *lw, const clef__cut *cut);
/* Into how many splits axes.n is partitioned so that the device has enough to do; none is empty. */
int64_t clef__reduce_splits(const clef__lowering *lw, clef__axes axes);
/* y := x summed over n; x and y dense, y [outer, inner].  In two launches if it pays. */
void clef__lower_sum(const clef__lowering *lw, clef__operand x, clef__operand y, clef__axes axes);
int64_t clef__reduced_count(clef_shape shape, int64_t mask);
#endif
