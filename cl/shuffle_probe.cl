/* shuffle_probe.cl — what SWAP of shuffle.h gives every work-item at each distance, for whoever wants to know whether a device does
   what it says there.  Without PTX local memory swaps, so that the kernel itself can be tried on any device. */
#include "common.h"
#define A long
#include "shuffle.h"
enum { GROUP = 256 };
#ifndef PTX
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
#else
#define CELLS
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void shuffle_probe(__global const long *values, __global long *found) {
    CELLS
    int member = (int)get_local_id(0);
    for (int bit = 0; bit < 5; bit++) found[bit * GROUP + member] = SWAP(values[member], 1 << bit);
}
