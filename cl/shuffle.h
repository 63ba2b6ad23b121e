/* shuffle.h — values of neighbours in a sub-group, SUBGROUP work-items (8, 16, 32 or 64) that go in step: work-item i of a group is lane
   i % SUBGROUP of sub-group i / SUBGROUP.

   SWAP(v, distance): the A of the work-item whose number differs in that bit.  All work-items of the group must come there.
     PTX            by shfl.sync.bfly of NVIDIA's PTX ISA 6.0
     KHR_SHUFFLE    by sub_group_shuffle_xor of cl_khr_subgroup_shuffle
     INTEL_SHUFFLE  by intel_sub_group_shuffle_xor of cl_intel_subgroups
   Without any of these there is none.  64 bits go as two words, as not every device swaps them.
   IN_SUBGROUPS, an attribute of a kernel that swaps: a compiler may choose the size of sub-groups for each kernel, so it is told.
   SUBGROUP_PLACE, for the probe: where the device says that work-item `member` is. */
#ifndef CLEF_SHUFFLE_H
#define CLEF_SHUFFLE_H
#ifdef KHR_SHUFFLE
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#endif
#if defined(KHR_SHUFFLE) || defined(INTEL_SHUFFLE)
#define IN_SUBGROUPS __attribute__((intel_reqd_sub_group_size(SUBGROUP)))
#else
#define IN_SUBGROUPS
#endif
#define SUBGROUP_PLACE_OF(size, subgroup, lane) ((long)(size) << 32 | ((long)(subgroup) * (size) + (lane)))
#if defined(PTX)
static uint swap_word(uint v, int distance) {
    uint other;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(other) : "r"(v), "r"(distance));
    return other;
}
static long place_of(int member) {
    uint lane;
    __asm__ volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return SUBGROUP_PLACE_OF(SUBGROUP, member / SUBGROUP, lane); /* which of the group's it is in, PTX does not say */
}
#define SUBGROUP_PLACE place_of(member)
#elif defined(KHR_SHUFFLE)
#ifdef __clang__ /* whose own header declares it from OpenCL C 2.0 on */
__attribute__((overloadable, convergent)) uint sub_group_shuffle_xor(uint, uint);
#endif
#define swap_word(v, distance) sub_group_shuffle_xor(v, (uint)(distance))
#elif defined(INTEL_SHUFFLE)
#ifdef __clang__
__attribute__((overloadable, convergent)) uint intel_sub_group_shuffle_xor(uint, uint);
#endif
#define swap_word(v, distance) intel_sub_group_shuffle_xor(v, (uint)(distance))
#endif
#if defined(PTX) || defined(KHR_SHUFFLE) || defined(INTEL_SHUFFLE)
static uint2 swap_words(uint2 v, int distance) { return (uint2)(swap_word(v.x, distance), swap_word(v.y, distance)); }
#define SWAP_float(v, distance) as_float(swap_word(as_uint(v), distance))
#define SWAP_int(v, distance) as_int(swap_word(as_uint(v), distance))
#define SWAP_double(v, distance) as_double(swap_words(as_uint2(v), distance))
#define SWAP_long(v, distance) as_long(swap_words(as_uint2(v), distance))
#define SWAP(v, distance) CAT(SWAP_, A)(v, distance)
#ifndef SUBGROUP_PLACE
#define SUBGROUP_PLACE SUBGROUP_PLACE_OF(get_sub_group_size(), get_sub_group_id(), get_sub_group_local_id())
#endif
#endif
#endif
