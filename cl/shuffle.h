/* shuffle.h — values of neighbours in a sub-group, 32 work-items that go in step: work-item i of a group is lane i % 32 of sub-group
   i / 32.

   SWAP(cells, v, distance): the A of the work-item whose number differs in that bit.  All work-items of the group must come there.
   With PTX: shfl.sync.bfly of NVIDIA's PTX ISA 6.0, without the cells.  Else by cells, as many as the group has work-items, in local
   memory: the probe's kernel for any device.  Folds of a team have a stand-in of their own (lanes.h). */
enum { SUBGROUP = 32 };
#ifdef PTX
static uint swap_word(uint v, int distance) {
    uint other;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(other) : "r"(v), "r"(distance));
    return other;
}
static uint2 swap_words(uint2 v, int distance) { return (uint2)(swap_word(v.x, distance), swap_word(v.y, distance)); }
#define SWAP_float(v, distance) as_float(swap_word(as_uint(v), distance))
#define SWAP_int(v, distance) as_int(swap_word(as_uint(v), distance))
#define SWAP_double(v, distance) as_double(swap_words(as_uint2(v), distance))
#define SWAP_long(v, distance) as_long(swap_words(as_uint2(v), distance))
#define SWAP(cells, v, distance) CAT(SWAP_, A)(v, distance)
#else
static A swap_cells(__local A *cells, A v, int distance) {
    int member = (int)get_local_id(0);
    cells[member] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    v = cells[member ^ distance];
    barrier(CLK_LOCAL_MEM_FENCE);
    return v;
}
#define SWAP(cells, v, distance) swap_cells(cells, v, distance)
#endif
