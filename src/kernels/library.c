/* library.c — products of plain matrices by a BLAS library, where tuning found it to be faster (runtime/blas.c). */
#include "kernels/gemm.h"
#include <math.h>

/* How a matrix lies with these strides; false where it is none to a library, whose rows are dense and do not overlap. */
static bool describe_matrix(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride, int64_t step,
                            clef__blas_matrix *x) {
    *x = (clef__blas_matrix){.transposed = columns > 1 && column_stride != 1, .step = step};
    int64_t across = x->transposed ? columns : rows, along = x->transposed ? rows : columns;
    int64_t apart = x->transposed ? column_stride : row_stride, beside = x->transposed ? row_stride : column_stride;
    x->ld = across > 1 ? apart : along;
    return (along == 1 || beside == 1) && x->ld >= along && step >= 0;
}

/* It computes in the type of its operands, which for half types would be too little; and the epilogue is ours. */
static bool suits(const clef__gemm *g) {
    clef_dtype dtype = g->c.dtype;
    return (g->epilogue.ops & ~EPILOGUE_BIAS) == 0 && (dtype == CLEF_F32 || dtype == CLEF_F64) && g->a.dtype == dtype &&
           g->b.dtype == dtype;
}

static bool describe(const clef__gemm *product, clef__blas_product *p) {
    clef__gemm g = *product;
    bool plain = suits(&g) && clef__gemm_is_plain(&g) && g.z[0] == 1;
    *p = (clef__blas_product){
        .dtype = g.c.dtype, .m = g.m[2], .n = g.n, .k = g.k[2], .batch = g.z[1], .adds = g.epilogue.ops & EPILOGUE_BIAS};
    plain = plain && describe_matrix(p->m, p->k, g.a_m[2], g.a_k[2], g.a_z[1], &p->matrix[0]) &&
            describe_matrix(p->k, p->n, g.b_k[2], g.b_n, g.b_z[1], &p->matrix[1]) &&
            describe_matrix(p->m, p->n, g.c_m[2], g.c_n, g.c_z[1], &p->matrix[2]) && !p->matrix[2].transposed;
    for (int i = 0; plain && i < 3; i++) plain = clef__blas_reach(p, i) <= INT32_MAX;
    return plain;
}

static bool applies(const clef__lowering *lw) {
    clef__blas_product p;
    return describe(clef__lower_product(lw), &p) && clef__blas_there(clef__lower_node(lw)->ctx, NULL);
}

static clef_status queue(clef__device *device, const void *product, clef__buffer *const x[], const int64_t offset[],
                         const char *label) {
    return clef__blas_multiply(device, product, x, offset, label);
}

/* By its pace, which is measured once on each device. */
static double seconds(clef__device *device, const void *product, double deadline) {
    const clef__blas_product *p = product;
    if (clef__blas_pace(device, p) == 0 && clef__now() + clef__blas_start_seconds(device) < deadline) clef__blas_measure(device, p);
    double pace = clef__blas_pace(device, p), operations = 2.0 * (double)p->batch * (double)p->m * (double)p->n * (double)p->k;
    return pace > 0 ? operations * pace : HUGE_VAL;
}

/* A bias is put into C first, and the product added to it. */
static void lower(const clef__lowering *lw) {
    static const clef__routine routine = {.name = "library", .queue = queue, .seconds = seconds};
    const clef__gemm *g = clef__lower_product(lw);
    clef__blas_product p;
    describe(g, &p);
    if (p.adds) clef__gemm_begin(lw, g);
    clef__launch_begin(lw, NULL, NULL);
    clef__launch_tensor(lw, g->a, false);
    clef__launch_tensor(lw, g->b, false);
    clef__launch_tensor(lw, g->c, true);
    clef__launch_routine(lw, &routine, &p, sizeof p);
}

const clef__strategy clef__product_by_library = {.name = "library", .on_request = true, .applies = applies, .lower = lower};
