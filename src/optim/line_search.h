/* line_search.h — a step length along a direction, for methods that need one which fits. */
#ifndef CLEF_OPTIM_LINE_SEARCH_H
#define CLEF_OPTIM_LINE_SEARCH_H
#include "clef/tensor.h"

/* What is known at x + t·d. */
typedef struct clef__line_point {
    double t, loss, slope; /* slope: gradient · d */
    double steepest;       /* the largest |element| of the gradient */
    clef_tensor *gradient; /* flat; whoever has a point keeps it (clef__hold_point); NULL: none */
} clef__line_point;

typedef struct clef__line {
    /* *point is held, in place of what it was; an infinite or undefined loss is INFINITY. */
    clef_status (*evaluate)(void *user, double t, clef__line_point *point);
    void *user;
    double longest;      /* the largest |element| of d */
    double tolerance;    /* below such a change of x a bracket is small enough */
    int64_t most;        /* evaluations, and one */
    int64_t evaluations; /* of this search */
} clef__line;

/* Looks for a t with loss(t) ≤ loss(0) + 10⁻⁴·t·slope(0) and |slope(t)| ≤ 0.9·|slope(0)|, from the length `first` on; where it finds none,
   *best, which is held, is the lowest point it saw. */
clef_status clef__strong_wolfe(clef__line *line, const clef__line_point *start, double first, clef__line_point *best);
/* *held = point, whose gradient is kept in place of the one it had; NULL in point: that of nothing. */
void clef__hold_point(clef__line_point *held, const clef__line_point *point);
#endif
