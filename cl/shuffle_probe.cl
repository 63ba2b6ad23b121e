/* shuffle_probe.cl — what SWAP of shuffle.h gives every work-item at each distance, and where it says that this one is, for whoever wants
   to know whether a device does what it says there.  Where SWAP is none local memory swaps, so that the kernel itself can be tried on
   any device. */
#ifndef SUBGROUP
#define SUBGROUP 32
#endif
#include "common.h"
#define A long
#include "shuffle.h"
enum { GROUP = 256, BITS = 6 };
#ifndef SWAP
static A swap_cells(__local A *cells, A v, int distance) {
    int member = (int)get_local_id(0);
    cells[member] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    v = cells[member ^ distance];
    barrier(CLK_LOCAL_MEM_FENCE);
    return v;
}
#define CELLS __local A cells[GROUP];
#define SWAP(v, distance) swap_cells(cells, v, distance)
#ifndef SUBGROUP_PLACE
#define SUBGROUP_PLACE SUBGROUP_PLACE_OF(SUBGROUP, member / SUBGROUP, member % SUBGROUP)
#endif
#else
#define CELLS
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) IN_SUBGROUPS
void shuffle_probe(__global const long *values, __global long *found) {
    CELLS
    int member = (int)get_local_id(0);
    for (int bit = 0; 1 << bit < SUBGROUP; bit++) found[bit * GROUP + member] = SWAP(values[member], 1 << bit);
    found[BITS * GROUP + member] = SUBGROUP_PLACE;
}
