/* product.h — products of matrices by plain loops. */
#ifndef CLEF_TESTS_PRODUCT_H
#define CLEF_TESTS_PRODUCT_H
#include "support/exact.h"

/* y[m][n] += sum over k of a[m][k]·b[k][n], each element by its address; absolute: of |a·b|. */
static inline void product(const double *a, int64_t am, int64_t ak, const double *b, int64_t bk, int64_t bn, double *y, int64_t m,
                           int64_t n, int64_t k, bool absolute) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < n; j++) {
                double p = a[i * am + l * ak] * b[l * bk + j * bn];
                y[i * n + j] += absolute ? fabs(p) : p;
            }
}

static inline clef_shape matrix(int64_t rows, int64_t columns, bool transposed) {
    return transposed ? CLEF_SHAPE(columns, rows) : CLEF_SHAPE(rows, columns);
}
#endif
