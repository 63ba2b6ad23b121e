/* memory_order.h — how a tensor's value lies in memory. */
#ifndef CLEF_OPS_MEMORY_ORDER_H
#define CLEF_OPS_MEMORY_ORDER_H
#include "clef/ops.h"
#include <stdbool.h>

/* Dimensions of a computed tensor as they lie, from outermost to innermost, if that is dense and not row-major; else false. */
bool clef__memory_order_of(const clef_tensor *t, int *order);
/* Is each of so many dimensions there once? */
bool clef__is_order(const int *order, int rank);
/* x with its value lying so.  Or of x whose dimensions are those of another tensor in this order: that tensor. */
clef_tensor *clef__in_memory_order(clef_tensor *x, const int *order);
clef_tensor *clef__from_memory_order(clef_tensor *x, const int *order);
#endif
