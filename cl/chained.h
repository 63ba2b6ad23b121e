/* chained.h — stands in front of a kernel that becomes a part of a chain (chain.cl), behind common.h: the kernel becomes a function, to
   which the place of its work-item is passed.

   Behind the kernel's text the host writes `CHAIN_PART { name(PASSED_PLACE …); }` (src/plan/run/chain.c), the function that chain.cl calls.
   Parts are compiled one by one and linked, so that no name of one gets in another's way; of the functions that are not static here, the
   compiler is told so. */
#undef ENTRY
#define ENTRY(attributes) static
#undef PLACE_OF_ITEM
#define PLACE_OF_ITEM const ulong *chain_place, __local void *chain_room,
#define PASSED_PLACE chain_place, chain_room,
#undef ROOM_OF_ITEM
#define ROOM_OF_ITEM(type, name, n) __local type *name = chain_room;
#define get_global_id(d) chain_place[d]
#define get_global_size(d) chain_place[3 + (d)]
#define CHAIN_PART void CHAINED_AS(__global const ulong *args, const ulong *chain_place, __local void *chain_room)
#pragma clang attribute push(__attribute__((internal_linkage)), apply_to = function)
