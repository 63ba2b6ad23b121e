/* attention.h — one call of clef_attention, read from its options and checked: what its ways to compute share. */
#ifndef CLEF_ATTENTION_H
#define CLEF_ATTENTION_H
#include "ops/ops.h"

typedef struct clef__attention {
    int64_t b, h, hk, tq, tk, d, dv;
    bool causal;
    int64_t shift;  /* of the diagonal, where there is no `offset` */
    int64_t window; /* 0: none */
    double scale, softcap, dropout;
    clef_tensor *mask, *lengths, *offset, *slopes; /* NULL: none */
} clef__attention;

/* By products and a softmax, with the whole matrix of weights in memory; gradients of any order. */
clef_tensor *clef__attention_composed(clef_tensor *q, clef_tensor *k, clef_tensor *v, const clef__attention *a);

/* Is clef__attention_fused taken?  On devices that have such kernels, but for no element, f64, and masks that learn. */
bool clef__attention_fits(clef_tensor *q, const clef__attention *a);
/* In O(t) memory. */
clef_tensor *clef__attention_fused(clef_tensor *q, clef_tensor *k, clef_tensor *v, const clef__attention *a);
#endif
