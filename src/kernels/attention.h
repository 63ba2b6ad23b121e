/* attention.h — attention as ops without the matrix of weights in memory (ops/attention_fused.c); the ways to launch them. */
#ifndef CLEF_KERNELS_ATTENTION_H
#define CLEF_KERNELS_ATTENTION_H
#include "plan/lower/lower.h"

/* Inputs that are options: numbers of clef__attending.at. */
enum {
    CLEF__ATTENTION_MASK,
    CLEF__ATTENTION_LENGTHS,
    CLEF__ATTENTION_PLACES,
    CLEF__ATTENTION_SLOPES,
    CLEF__ATTENTION_KEY,
    CLEF__ATTENTION_OPTIONS
};
enum { CLEF__ATTENTION_COLUMNS = 256 }; /* of a head, at most */

/* Inputs q [b,h,tq,d], k [b,hk,tk,d], v [b,hk,tk,dv], the options that are given, and of gradients g, sums, dots.
   Outputs of forward: y [b,h,tq,dv], log Σ exp [b,h,tq]; of gradients: dq, dk, dv. */
typedef struct clef__attending {
    int64_t causal, shift, window, first; /* first: dropout's number of the first weight */
    double scale, softcap, dropout;
    int64_t at[CLEF__ATTENTION_OPTIONS]; /* the input that is this option; -1: none */
} clef__attending;

typedef struct clef__attention_sizes {
    int64_t b, h, hk, tq, tk, d, dv;
} clef__attention_sizes;
clef__attention_sizes clef__attention_sizes_of(const clef__node *node);

/* Is there a way on devices of this profile? */
bool clef__attention_on(const clef__profile *profile);

extern const clef__strategy *const clef__attention_forward_strategies[];
extern const clef__strategy *const clef__attention_gradients_strategies[];
#endif
