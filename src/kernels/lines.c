/* lines.c — products with few rows and lines along n, or few columns and lines along m, on devices where one work-item owns a long run
   (cl/lines.cl). */
#include "kernels/args.h"
#include "kernels/gemm.h"
#include "lines.args"
#include "plan/lower/cost.h"
#include "runtime/arithmetic.h"
#include <math.h>

CLEF__ARGS(add_lines, ADD_LINES_ARGS)

enum {
    MOST_ROWS = 7,
    RUNS = 4,           /* of lines that a work-item reads side by side */
    FEWEST_LINES = 16,  /* of a split; fewer do not pay for their sums */
    CACHED_SUMS = 4096, /* of all rows, that a first-level cache holds beside lines that pass by */
    LEAST_WORK = 65536  /* elements of B for which a work-item of its own pays */
};
static const double EFFICIENCY = 0.45;

/* Panels of what lasts are packed once and read in one run, without a launch for parts. */
static bool lines_fit(const clef__lowering *lw, const clef__gemm *g) {
    return g->m[2] <= MOST_ROWS && g->b_n == 1 && g->n >= clef__gemm_lanes(lw, clef__gemm_type(g->c.dtype)) &&
           g->k[2] >= FEWEST_LINES && !clef__lower_lasts(lw, &g->b);
}

/* The product in the order in which it has few rows; false where it is none for lines.cl.  A bias goes along n. */
static bool choose_order(const clef__lowering *lw, clef__gemm *g) {
    if (!clef__gemm_is_plain(g)) return false;
    if (lines_fit(lw, g)) return true;
    if (g->epilogue.ops & EPILOGUE_BIAS) return false;
    *g = clef__gemm_transposed(g);
    return lines_fit(lw, g);
}

static int64_t columns_of(const clef__gemm *g, int lanes) {
    int64_t blocks = clef__ceil_div(g->n * g->m[2], CACHED_SUMS);
    return clef__round_up(clef__ceil_div(g->n, blocks), lanes);
}

static int64_t splits_of(const clef__lowering *lw, const clef__gemm *g, int64_t blocks) {
    const clef__profile *profile = clef__lower_profile(lw);
    int64_t others = blocks * g->z[0] * g->z[1], k = g->k[2];
    int64_t units = clef__larger(clef__lower_device(lw)->compute_units, 1) * profile->items_per_unit;
    int64_t want = clef__larger(clef__ceil_div(units, others), k * g->n / blocks / LEAST_WORK);
    return clef__larger(clef__smaller(want, k / FEWEST_LINES), 1);
}

static void lower(const clef__lowering *lw) {
    clef__gemm *g = clef__lower_product(lw);
    choose_order(lw, g);
    clef_dtype type = clef__gemm_type(g->c.dtype);
    int lanes = clef__gemm_lanes(lw, type);
    int64_t columns = columns_of(g, lanes), blocks = clef__ceil_div(g->n, columns), batch = g->z[0] * g->z[1];
    int64_t run = clef__ceil_div(g->k[2], splits_of(lw, g, blocks)), splits = clef__ceil_div(g->k[2], run);
    clef__operand part = clef__lower_scratch(lw, type, CLEF_SHAPE(batch * splits, g->m[2], g->n));
    clef__launch_begin(lw, "lines.cl", "add_lines");
    clef__launch_define(lw, "MR", "%d", RUNS);
    clef__launch_define(lw, "NV", "%d", (int)g->m[2]);
    clef__launch_define(lw, "W", "%d", lanes);
    clef__launch_define(lw, "IN", "%s", clef__token(type));
    clef__launch_define(lw, "A_IN", "%s", clef__token(g->a.dtype));
    clef__launch_define(lw, "B_IN", "%s", clef__token(g->b.dtype));
    /* clang-format off */
    add_lines_args args = {
        .a = g->a, .b = g->b, .part = part,
        .N = g->n, .K = g->k[2], .columns = columns, .run = run, .splits = splits, .z2 = g->z[1],
        .am = g->a_m[2], .ak = g->a_k[2], .bk = g->b_k[2], .az = CLEF__TWO(g->a_z), .bz = CLEF__TWO(g->b_z),
    };
    /* clang-format on */
    pass_add_lines(lw, &args);
    clef__launch_end(lw, (size_t[]){(size_t)blocks, (size_t)splits, (size_t)batch}, (size_t[]){1, 1, 1});
    clef__gemm_finish(lw, g, part);
}

static bool applies(const clef__lowering *lw) {
    clef__gemm g = *clef__lower_product(lw);
    return clef__lower_profile(lw)->wide_items && choose_order(lw, &g);
}

static double cost(const clef__lowering *lw) {
    clef__gemm g = *clef__lower_product(lw);
    choose_order(lw, &g);
    double size = (double)clef_dtype_size(clef__gemm_type(g.c.dtype)), batch = (double)(g.z[0] * g.z[1]);
    double m = (double)g.m[2], n = (double)g.n, k = (double)g.k[2];
    double splits = (double)splits_of(lw, &g, clef__ceil_div(g.n, columns_of(&g, 1)));
    clef__work lines = {.flops = 2 * batch * m * n * k * (size / 4),
                        .efficiency = EFFICIENCY,
                        .bytes = size * batch * (m * k + k * n + splits * m * n),
                        .groups = batch * fmax(k * n / LEAST_WORK, 1)};
    clef__work finish = {.bytes = size * batch * (splits + 1) * m * n};
    return clef__launch_seconds(lw, &lines) + clef__launch_seconds(lw, &finish);
}

const clef__strategy clef__product_by_lines = {.name = "lines", .applies = applies, .cost = cost, .lower = lower};
