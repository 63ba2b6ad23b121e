/* gemm_turned.c — products of few rows with a matrix whose columns lie along k (x Wᵀ of a linear layer): Cᵀ = Bᵀ Aᵀ by gemm.  Then the long
   operand is read as it lies, and what is packed is the short one.  Cᵀ is small, and turned back by a copy: stored where C's elements lie,
   its vectors would go to as many lines, of which a cache holds few where they are a power of two apart. */
#include "kernels/gemm.h"
#include "plan/lower/cost.h"
#include "plan/lower/lowering.h"

static const double ACROSS = 3; /* how much slower a copy goes across lines */

/* What is packed once for all runs need not be turned, and what is not in the type of sums would be converted as a whole. */
static bool applies(const clef__lowering *lw) {
    clef__gemm g = *clef__lower_product(lw);
    return clef__lower_profile(lw)->wide_items && clef__gemm_is_plain(&g) && 2 * g.m[2] <= g.n && g.b_k[2] == 1 && !g.overlapping &&
           g.b.dtype == clef__gemm_type(g.c.dtype) && !clef__lower_lasts(lw, &g.b);
}

static bool finishes(const clef__gemm *g) { return g->epilogue.ops != 0; }

static double cost(const clef__lowering *lw) {
    clef__gemm g = *clef__lower_product(lw);
    clef__gemm_is_plain(&g);
    clef__gemm t = clef__gemm_transposed(&g);
    clef__lowering turned = *lw;
    turned.product = &t;
    double bytes = 2 * (double)(g.z[0] * g.z[1] * g.m[2] * g.n) * (double)clef_dtype_size(clef__gemm_type(g.c.dtype));
    return clef__product_by_gemm.cost(&turned) + clef__launch_seconds(lw, &(clef__work){.bytes = ACROSS * bytes}) +
           (finishes(&g) ? clef__launch_seconds(lw, &(clef__work){.bytes = bytes}) : 0);
}

/* Cᵀ, [z][n][m], as gemm writes it; without the epilogue, which knows where elements of C lie. */
static clef__operand multiply(const clef__lowering *lw, const clef__gemm *g) {
    int64_t m = g->m[2], n = g->n;
    clef__operand to = clef__lower_scratch(lw, clef__gemm_type(g->c.dtype), CLEF_SHAPE(g->z[0] * g->z[1], n, m));
    clef__gemm t = clef__gemm_transposed(g);
    t.c = to;
    t.c_m[2] = m, t.c_n = 1;
    t.c_z[0] = g->z[1] * n * m, t.c_z[1] = n * m;
    t.epilogue = (clef__epilogue){0};
    clef__lowering turned = *lw;
    turned.product = &t;
    clef__product_by_gemm.lower(&turned);
    return to;
}

/* x as [z][z][m][n]. */
static clef__operand seen(clef__operand x, const clef__gemm *g, const int64_t z[2], int64_t along_m, int64_t along_n) {
    int64_t dim[] = {g->z[0], g->z[1], g->m[2], g->n}, stride[] = {z[0], z[1], along_m, along_n};
    x.rank = 4;
    for (int i = 0; i < 4; i++) x.dim[i] = dim[i], x.stride[i] = stride[i];
    return x;
}

static void lower(const clef__lowering *lw) {
    clef__gemm *g = clef__lower_product(lw);
    clef__gemm_is_plain(g);
    int64_t m = g->m[2], n = g->n, dense[] = {g->z[1] * m * n, m * n};
    clef__operand turned = seen(multiply(lw, g), g, dense, 1, m);
    if (!finishes(g)) {
        clef__lower_copy(lw, seen(g->c, g, g->c_z, g->c_m[2], g->c_n), turned);
        return;
    }
    clef__operand part = clef__lower_scratch(lw, turned.dtype, CLEF_SHAPE(g->z[0] * g->z[1], m, n));
    clef__lower_copy(lw, seen(part, g, dense, n, 1), turned);
    clef__gemm_finish(lw, g, part);
}

const clef__strategy clef__product_turned = {.name = "turned", .applies = applies, .cost = cost, .lower = lower};
