/* space.h — the iteration space of a pointwise kernel: rows along one inner dimension. */
#ifndef CLEF_SPACE_H
#define CLEF_SPACE_H
#include "plan/lower/pointwise.h"

/* How an operand is read along the inner dimension: one element for all, side by side, side by side backwards, or apart. */
typedef enum clef__access { CLEF__SPLAT, CLEF__VECTOR, CLEF__REVERSED, CLEF__GATHER } clef__access;

typedef struct clef__space {
    int rank; /* outermost first; dim[rank-1] is the inner one */
    int64_t dim[CLEF_MAX_RANK];
    int n, first_store; /* tensors: operands that are no constants, then stores */
    const clef__operand *x[2 * CLEF__PW_OPERANDS];
    int64_t stride[2 * CLEF__PW_OPERANDS][CLEF_MAX_RANK];
} clef__space;

/* Dimensions in the memory order of the first store, as few as they can be, for vectors of this width. */
void clef__space_make(clef__space *s, const clef__pointwise *p, int width);
clef__access clef__space_access(const clef__space *s, int tensor);
/* Is it one row in which every tensor is contiguous or splat? */
bool clef__space_is_segment(const clef__space *s);
/* codegen.c: the text of the kernel, for vectors of `width` lanes; `single`: a work-item has one block of at most one vector.  NULL without
   host memory. */
char *clef__pointwise_source(const clef__pointwise *p, const clef__space *s, int width, bool single);
/* A copy that is a transposition: along the inner dimension elements lie apart in the operand, and along another one, which it gives,
   side by side; both are at least `width` long.  -1 where it is none. */
int clef__space_transposes(const clef__space *s, const clef__pointwise *p, int width);
/* codegen.c: the text of its kernel, in so many squares of `width` elements side by side; NULL without host memory. */
char *clef__transposing_source(const clef__space *s, int width, int squares);
#endif
