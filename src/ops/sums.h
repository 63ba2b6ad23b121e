/* sums.h — two sums in one pass, what normalisation and its gradient are made of. */
#ifndef CLEF_SUMS_H
#define CLEF_SUMS_H
#include "ops/ops.h"

/* Sums over the dimensions in which m, of x's rank and dtype (f32 or f64), is 1 long (one at least) and x need not be:
       first = Σ a,  second = Σ a · (x − m),  a = g, or x − m where g is NULL.
   Both have m's shape.  Differentiable in x, g and m, to any order.  False when it failed. */
bool clef__pair_of_sums(clef_tensor *g, clef_tensor *x, clef_tensor *m, clef_tensor **first, clef_tensor **second);
#endif
