/* lanes.h — what the kernels that go along runs of dense memory share (cl/lanes.h). */
#ifndef CLEF_LANES_H
#define CLEF_LANES_H
#include "plan/lower/lower.h"

/* An input as the three-dimensional block [outer, n, inner] in memory around the reduced dimension(s). */
typedef struct clef__axes {
    int64_t outer, n, inner;
} clef__axes;
/* The same of a row-major shape around one dimension. */
clef__axes clef__axes_around(clef_shape shape, int64_t dim);
/* Input 0 dense in memory order (copied to row-major if it is in none) around one dimension, and that order. */
clef__operand clef__lower_along(const clef__lowering *lw, int dim, int *order, clef__axes *axes);
/* n units of work, of which a work-item takes `per` one after the other: UNITS of cl/args.h. */
typedef struct clef__units {
    int64_t n, per;
} clef__units;
/* n units, each of about `work` elements. */
clef__units clef__lower_units(const clef__lowering *lw, int64_t n, int64_t work);
/* Ends a launch whose kernel works on these. */
void clef__launch_end_units(const clef__lowering *lw, clef__units units);
/* Vector lanes worth using along n contiguous elements: the device's, 4 or 1. */
int clef__lower_lanes(const clef__lowering *lw, int64_t n);
/* Begins a launch with the knobs DT and W (lanes worth using along n elements). */
void clef__launch_lanes(const clef__lowering *lw, const char *file, const char *kernel, clef_dtype dtype, int64_t n);
/* Work-groups that share a row or a block of columns: TEAM of cl/lanes.h. */
enum { CLEF__SMALL_TEAM = 64, CLEF__LARGE_TEAM = 256 };
/* The knob TEAM of a launch that has begun, and with it how its members join what they found. */
void clef__launch_team(const clef__lowering *lw, int team);
/* Ends a launch of so many of them. */
void clef__launch_end_teams(const clef__lowering *lw, int64_t teams, int team);
/* Work-items that share a row of n elements (TEAM of cl/lanes.h): a work-group where that is many and a row is at least as long, else 1:
   each has rows of its own. */
int clef__lower_team(const clef__lowering *lw, int64_t n);
/* Lanes along such a row. */
int clef__lower_row_lanes(const clef__lowering *lw, int64_t n);
/* Begins a launch of a kernel that goes along rows of n: DT, and W or TEAM. */
void clef__launch_rows(const clef__lowering *lw, const char *file, const char *kernel, clef_dtype dtype, int64_t n);
/* Behind it, for kernels that look at a row more than once: how many elements of a row of n members hold (HELD, cl/lanes.h), where that are
   no more than `most`, of f64 a quarter.  What else a kernel has in registers decides how many do not spill. */
void clef__launch_held(const clef__lowering *lw, clef_dtype dtype, int64_t n, int64_t most);
/* Its units, rows or splits of rows, each of about `work` elements; and its end. */
clef__units clef__lower_rows(const clef__lowering *lw, int64_t rows, int64_t n, int64_t work);
void clef__launch_end_rows(const clef__lowering *lw, int64_t n, clef__units rows);
/* A number as two floats: REAL of cl/args.h. */
void clef__launch_real(const clef__lowering *lw, double value);
/* Input i dense in memory order (copied to row-major if it is in none), and that order. */
clef__operand clef__lower_in_any_order(const clef__lowering *lw, int i, int *order);
#endif
