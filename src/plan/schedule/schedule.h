/* schedule.h — a plan's launches after they are lowered: equal forms made once, small launches bundled, memory for values. */
#ifndef CLEF_SCHEDULE_H
#define CLEF_SCHEDULE_H
#include "plan/lower/lowering.h"

/* seen.c: copies to where a device sees the value already are left out.  False without host memory. */
bool clef__leave_out_copies(clef__plan *plan);
/* derive.c: launches that bring one value into the same form become one.  Is this launch such a one: does it do nothing but bring
   value `from` into another form, `to`, which depends on nothing else that changes from run to run? */
void clef__derive(clef__recorder *rec);
bool clef__derives(const clef__launch *launch, int *to, int *from);
/* bundle.c: small pointwise launches of equal text become one. */
void clef__bundle(clef__recorder *rec);
/* overlap.c: launches for several devices in an order in which these work at the same time.  False without host memory. */
bool clef__overlap(clef__plan *plan, clef_context *ctx);
/* edges.c: which launches wait for one in another queue, when everything has its place.  False without host memory. */
bool clef__find_edges(clef__plan *plan, int devices);
/* memory.c: may value v continue the memory of `from`, as far as their kinds go? */
bool clef__may_continue(const clef__value *v, const clef__value *from);
/* memory.c: a place for every value. */
clef_status clef__plan_place(clef__plan *plan, clef_context *ctx);
/* place.c: offsets of n blocks so that blocks alive at the same time never overlap; returns the total.  *steps, unless NULL: how
   many spans that took, a count that depends on no machine.  The bound: the most bytes alive at once.  SIZE_MAX: out of memory. */
typedef struct clef__block {
    size_t bytes;
    int first, last;
    size_t offset;
} clef__block;
size_t clef__place(clef__block *block, int n, size_t alignment, uint64_t *steps);
size_t clef__place_lower_bound(const clef__block *block, int n);
#endif
