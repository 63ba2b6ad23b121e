/* dot.c — products with few columns, or few rows, on devices where one work-item owns a long run (cl/dot.cl). */
#include "dot.args"
#include "kernels/args.h"
#include "kernels/gemm.h"
#include "plan/lower/cost.h"
#include "runtime/arithmetic.h"
#include <math.h>

CLEF__ARGS(dot_rows, DOT_ROWS_ARGS)

enum {
    MOST_COLUMNS = 4,
    LONGEST = 16384,    /* longer sums are better split */
    LEAST_WORK = 32768, /* products for which a work-item of its own pays */
    FOLD_STEPS = 7,
    RUNS = 4 /* of rows that an item reads side by side */
};
static const double EFFICIENCY = 0.42;

/* One level of rows and one of depths. */
typedef struct shape {
    int64_t m, n, k, am, ak, bk, bn, cm, cn, bias_m, bias_n;
    clef__operand a, b;
    int64_t az[2], bz[2];
} shape;

static bool flatten(const clef__gemm *product, shape *s) {
    clef__gemm g = *product;
    bool plain = clef__gemm_is_plain(&g);
    /* clang-format off */
    *s = (shape){.m = g.m[2], .n = g.n, .k = g.k[2], .am = g.a_m[2], .ak = g.a_k[2], .bk = g.b_k[2], .bn = g.b_n, .cm = g.c_m[2],
                 .cn = g.c_n, .bias_n = 1, .a = g.a, .b = g.b, .az = {g.a_z[0], g.a_z[1]}, .bz = {g.b_z[0], g.b_z[1]}};
    /* clang-format on */
    return plain;
}

/* The same product, transposed. */
static shape transposed(const shape *s) {
    /* clang-format off */
    return (shape){.m = s->n, .n = s->m, .k = s->k, .am = s->bn, .ak = s->bk, .bk = s->ak, .bn = s->am, .cm = s->cn, .cn = s->cm,
                   .bias_m = s->bias_n, .bias_n = s->bias_m, .a = s->b, .b = s->a, .az = {s->bz[0], s->bz[1]},
                   .bz = {s->az[0], s->az[1]}};
    /* clang-format on */
}

static bool dot_fits(const shape *s, clef_dtype type) {
    return s->n <= MOST_COLUMNS && s->k <= LONGEST && (s->ak == 1 || s->k == 1) && clef__gemm_type(s->a.dtype) == type;
}

/* The product in the order in which it has few columns; false where it is none for dot.cl. */
static bool choose_order(const clef__gemm *g, shape *s) {
    clef_dtype type = clef__gemm_type(g->c.dtype);
    if (!flatten(g, s)) return false;
    if (!dot_fits(s, type)) *s = transposed(s);
    return dot_fits(s, type);
}

static void emit(const clef__lowering *lw, const clef__gemm *g, const shape *s, clef_dtype type) {
    const clef__profile *profile = clef__lower_profile(lw);
    int64_t batch = g->z[0] * g->z[1], units = clef__larger(clef__lower_device(lw)->compute_units, 1) * profile->items_per_unit;
    int64_t items = clef__larger(clef__smaller(clef__ceil_div(units, batch), s->m * s->n * s->k / LEAST_WORK), 1);
    if (!clef__lower_pays(lw, (double)(batch * s->m * s->n) * (double)s->k)) items = 1;
    int lanes = clef_dtype_size(type) == 8 && profile->vector > 4 ? profile->vector / 2 : profile->vector;
    int64_t each = clef__round_up(clef__ceil_div(s->m, items), RUNS);
    bool alike = (s->bk == 1 || s->k == 1) && s->b.dtype == type;
    items = clef__ceil_div(s->m, each);
    clef__operand columns = s->b;
    if (!alike) columns = clef__lower_scratch(lw, type, CLEF_SHAPE(batch * items, s->n, s->k));
    clef__launch_begin(lw, "dot.cl", "dot_rows");
    clef__launch_define(lw, "MR", "%d", RUNS);
    clef__launch_define(lw, "NV", "%d", (int)s->n);
    clef__launch_define(lw, "W", "%d", lanes);
    clef__launch_define(lw, "IN", "%s", clef__token(type));
    clef__launch_define(lw, "A_IN", "%s", clef__token(s->a.dtype));
    clef__launch_define(lw, "B_IN", "%s", clef__token(s->b.dtype));
    clef__launch_define(lw, "OUT", "%s", clef__token(g->c.dtype));
    if (alike) clef__launch_define(lw, "ALIKE", "1");
    /* clang-format off */
    dot_rows_args args = {
        .a = s->a, .b = s->b, .c = g->c, .columns = columns, .columns_used = !alike,
        .M = s->m, .K = s->k, .rows = each, .items = items, .z2 = g->z[1],
        .am = s->am, .bk = s->bk, .bn = s->bn, .cm = s->cm, .cn = s->cn,
        .bias_m = s->bias_m, .bias_n = s->bias_n,
        .az = CLEF__TWO(s->az), .bz = CLEF__TWO(s->bz), .cz = CLEF__TWO(g->c_z), .epilogue = g->epilogue,
    };
    /* clang-format on */
    pass_dot_rows(lw, &args);
    clef__launch_end(lw, (size_t[]){(size_t)items, (size_t)batch, 1}, (size_t[]){1, 1, 1});
}

static bool applies(const clef__lowering *lw) {
    shape s;
    return clef__lower_profile(lw)->wide_items && choose_order(clef__lower_product(lw), &s);
}

/* Each row's lanes are added up in the end, which takes as long as so many steps along it. */
static double cost(const clef__lowering *lw) {
    const clef__gemm *g = clef__lower_product(lw);
    shape s;
    choose_order(g, &s);
    double size = (double)clef_dtype_size(clef__gemm_type(g->c.dtype)), batch = (double)(g->z[0] * g->z[1]);
    double lanes = clef__lower_profile(lw)->vector * 4 / size, steps = ceil((double)s.k / lanes) + FOLD_STEPS;
    double m = (double)s.m, n = (double)s.n, k = (double)s.k;
    return clef__launch_seconds(lw, &(clef__work){.flops = 2 * batch * m * n * steps * lanes * (size / 4),
                                                  .efficiency = EFFICIENCY,
                                                  .bytes = size * batch * (m * k + k * n + m * n),
                                                  .groups = batch * fmax(m * n * k / LEAST_WORK, 1)});
}

static void lower(const clef__lowering *lw) {
    clef__gemm *g = clef__lower_product(lw);
    shape s;
    choose_order(g, &s);
    emit(lw, g, &s, clef__gemm_type(g->c.dtype));
}

const clef__strategy clef__product_by_dot = {.name = "dot", .applies = applies, .cost = cost, .lower = lower};
