/* transposed.c — products of few rows with a matrix whose columns lie along k (x Wᵀ of a linear layer in training): Cᵀ = Bᵀ Aᵀ by gemm.
   Then the long operand is read where it lies, and what is packed is the short one.  A copy makes C of Cᵀ, which is small.  (Stored where
   C's elements lie, a vector of Cᵀ would go to as many lines as it has lanes, of which a cache holds few where they are a power of two
   apart.) */
#include "kernels/gemm.h"
#include "plan/lower/cost.h"
#include "plan/lower/lowering.h"

static const double ACROSS = 3; /* how much slower a copy goes across lines */

/* Of a weight in training: a product, its gradient by x, an update that reads it, and a view. */
enum { FEW_READERS = 4 };

/* Not where W may be packed once for many runs, or for many products of one (an unrolled net); nor where it is not in the type of sums, as
   gemm would convert all of it. */
static bool applies(const clef__lowering *lw) {
    clef__gemm g = *clef__lower_product(lw);
    return clef__lower_profile(lw)->wide_items && clef__gemm_is_plain(&g) && 2 * g.m[2] <= g.n && g.b_k[2] == 1 && !g.overlapping &&
           g.b.dtype == clef__gemm_type(g.c.dtype) && !clef__lower_stays(lw, &g.b) && clef__lower_readers(lw, &g.b) <= FEW_READERS;
}

static bool finishes(const clef__gemm *g) { return g->epilogue.ops != 0; }

static double cost(const clef__lowering *lw) {
    clef__gemm g = *clef__lower_product(lw);
    clef__gemm_is_plain(&g);
    clef__gemm t = clef__gemm_transposed(&g);
    clef__lowering transposed = *lw;
    transposed.product = &t;
    double bytes = 2 * (double)(g.z[0] * g.z[1] * g.m[2] * g.n) * (double)clef_dtype_size(clef__gemm_type(g.c.dtype));
    return clef__product_by_gemm.cost(&transposed) + clef__launch_seconds(lw, &(clef__work){.bytes = ACROSS * bytes}) +
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
    t.knobs = (clef__knobs){0}; /* those of the product itself */
    clef__lowering transposed = *lw;
    transposed.product = &t;
    clef__product_by_gemm.lower(&transposed);
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
    clef__operand made = seen(multiply(lw, g), g, dense, 1, m);
    if (!finishes(g)) {
        clef__lower_copy(lw, seen(g->c, g, g->c_z, g->c_m[2], g->c_n), made);
        return;
    }
    clef__operand part = clef__lower_scratch(lw, made.dtype, CLEF_SHAPE(g->z[0] * g->z[1], m, n));
    clef__lower_copy(lw, seen(part, g, dense, n, 1), made);
    clef__gemm_finish(lw, g, part);
}

/* Gemm's, of which only the library counts here. */
static const clef__family *family(const clef__lowering *lw) {
    (void)lw;
    return &clef__gemm_family;
}

const clef__strategy clef__product_transposed = {
    .name = "transposed", .applies = applies, .cost = cost, .lower = lower, .family = family};
