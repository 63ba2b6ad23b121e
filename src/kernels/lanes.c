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

void clef__launch_real(const clef__lowering *lw, double value) {
    clef__launch_float(lw, (float)value);
    clef__launch_float(lw, (float)(value - (double)(float)value));
}
