/* library.c — products of plain matrices by a BLAS library, where tuning found it to be faster (runtime/blas.c). */
#include "kernels/gemm.h"

/* How a matrix lies with these strides; false where it is none to a library, whose rows are dense and do not overlap. */
static bool lies(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride, int64_t step, clef__blas_matrix *x) {
    *x = (clef__blas_matrix){.turned = columns > 1 && column_stride != 1, .step = step};
    int64_t across = x->turned ? columns : rows, along = x->turned ? rows : columns;
    int64_t apart = x->turned ? column_stride : row_stride, beside = x->turned ? row_stride : column_stride;
    x->ld = across > 1 ? apart : along;
    return (along == 1 || beside == 1) && x->ld >= along && step >= 0;
}

/* It computes in the type of its operands, which for half types would be too little; and the epilogue is ours. */
static bool takes(const clef__gemm *g) {
    clef_dtype dtype = g->c.dtype;
    return g->epilogue.ops == 0 && (dtype == CLEF_F32 || dtype == CLEF_F64) && g->a.dtype == dtype && g->b.dtype == dtype;
}

static bool describe(clef__gemm *g, clef__blas_product *p) {
    if (!takes(g) || !clef__gemm_is_plain(g) || g->z[0] != 1) return false;
    *p = (clef__blas_product){.dtype = g->c.dtype, .m = g->m[2], .n = g->n, .k = g->k[2], .batch = g->z[1], .adds = g->has_bias};
    bool plain = lies(p->m, p->k, g->a_m[2], g->a_k[2], g->a_z[1], &p->matrix[0]) &&
                 lies(p->k, p->n, g->b_k[2], g->b_n, g->b_z[1], &p->matrix[1]) &&
                 lies(p->m, p->n, g->c_m[2], g->c_n, g->c_z[1], &p->matrix[2]) && !p->matrix[2].turned;
    for (int i = 0; plain && i < 3; i++) plain = clef__blas_reach(p, i) <= INT32_MAX;
    return plain;
}

/* A bias is put into C first, and the product added to it. */
bool clef__library_lower(const clef__lowering *lw, const clef__gemm *product) {
    clef__gemm g = *product;
    clef__blas_product p;
    if (!describe(&g, &p) || !clef__lower_has_library(lw)) return false;
    if (p.adds) clef__gemm_begin(lw, &g);
    clef__launch_product(lw, &p, g.a, g.b, g.c);
    return true;
}
