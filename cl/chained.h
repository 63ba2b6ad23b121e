/* chained.h — stands in front of a kernel that becomes a part of a chain (chain.cl), behind common.h: the kernel becomes a function, to
   which the place of its work-item is passed, alone in its work-group.

   Behind the kernel's text the host writes `CHAIN_PART { name(PASSED_PLACE …); }` (src/plan/run/chain.c), the function that chain.cl calls.
   Parts are compiled one by one and linked; common.h tells the compiler that no function of one is seen by another. */
#undef ENTRY
#define ENTRY(attributes) static
#undef PLACE_OF_ITEM
#define PLACE_OF_ITEM const ulong *chain_place, __local void *chain_room,
#define PASSED_PLACE chain_place, chain_room,
#undef ROOM_OF_ITEM
#define ROOM_OF_ITEM(type, name, n) __local type *name = chain_room;
#define get_global_id(d) chain_place[d]
#define get_global_size(d) chain_place[3 + (d)]
#define get_group_id(d) get_global_id(d)
#define get_num_groups(d) get_global_size(d)
#define get_local_id(d) ((size_t)0)
#define get_local_size(d) ((size_t)1)
#define barrier(flags)
#define CHAIN_PART                       \
    _Pragma("clang attribute pop")       \
    void CHAINED_AS(__global const ulong *args, const ulong *chain_place, __local void *chain_room)
