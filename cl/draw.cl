/* draw.cl — draws of indices by weight from rows of n, by 64 random bits for each draw or weight.  Weights are finite and not negative;
   top: the largest of each row.  Only exact operations, so that all devices draw the same.
   DT: f32 or f64 (of the weights). */
#ifndef DT
#define DT f32
#endif
#define CALLS_MATH
#include "common.h"
#define IN_PLACE
#include "args.h"
#include "draw.args"
#include "philox.h"

#define A COMPUTE(DT)

/* weight · 2^bits / 2^e with 2^(e-1) ≤ top < 2^e */
static A scaled(A weight, A top, int bits) { return top > 0 ? ldexp(weight, bits - 1 - ilogb(top)) : 0; }

/* y [rows, n]: whole numbers below 2^bits in the proportions of the weights.  A unit is one element, as in `race`. */
KERNEL(whole_weights, WHOLE_WEIGHTS_ARGS) {
    UNPACK(WHOLE_WEIGHTS_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) y_base[y_offset + u] = (long)scaled(x_base[x_offset + u], top_base[top_offset + u / n], bits);
}

/* With replacement: y [rows, draws] are places in sums [rows, n], the prefix sums of whole weights.  -1 where all weights are 0.  A
   unit is one draw. */
KERNEL(draw, DRAW_ARGS) {
    UNPACK(DRAW_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        __global const long *row = sums_base + sums_offset + u / draws * n;
        long at = (long)mul_hi((ulong)random_base[random_offset + u], (ulong)row[n - 1]), low = 0, high = n - 1;
        while (low < high) { /* the first whose sum is larger */
            long middle = (low + high) / 2;
            if (row[middle] > at) high = middle;
            else low = middle + 1;
        }
        y_base[y_offset + u] = row[n - 1] > 0 ? low : -1;
    }
}

/* Without replacement: w / e with a standard exponential e for each weight; the largest are a draw (Efraimidis and Spirakis, "Weighted
   random sampling with a reservoir", 2006). */
KERNEL(race, RACE_ARGS) {
    UNPACK(RACE_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per);
    for (; u < last; u++) {
        float w = (float)scaled(x_base[x_offset + u], top_base[top_offset + u / n], 0);
        y_base[y_offset + u] = w * philox_reciprocal(philox_exponential((ulong)random_base[random_offset + u]));
    }
}
