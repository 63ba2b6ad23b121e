/* shuffle.h — values of neighbours in a sub-group, 32 work-items that go in step: work-item i of a group is lane i % 32 of sub-group
   i / 32.

   SWAP(v, distance), with PTX alone: the A of the work-item whose number differs in that bit, by shfl.sync.bfly of NVIDIA's PTX ISA 6.0.
   All work-items of the group must come there. */
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
#define SWAP(v, distance) CAT(SWAP_, A)(v, distance)
#endif
