/* shuffle_probe.cl — what SWAP of shuffle.h gives every work-item at each distance, for whoever wants to know whether a device does
   what it says there. */
#include "common.h"
#define A long
#include "shuffle.h"

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void shuffle_probe(__global long *values, __global long *found) {
    __local A cells[256];
    int member = (int)get_local_id(0);
    cells[member] = 0;
    for (int bit = 0; bit < 5; bit++) found[bit * 256 + member] = SWAP(cells, values[member], 1 << bit);
}
