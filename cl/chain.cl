/* chain.cl — many launches as one: a chain's steps, one after the other (src/runtime/chain.c).

   A step is what would be a launch of its own.  Each work-group is one work-item of a CPU, and takes items of the step from a counter
   until none is left; then it waits until those that others took are done, and goes on to the next step.  It waits only for what a
   work-group took that runs already, so the groups may run at the same time or one after the other.

   What a driver does between two launches takes 10 µs and more, above all to wake the threads that had nothing left to do.  Here they
   meet in less than one.  A thread that waits keeps its core, though; it would have slept.

   Record and counters are memory of the host.  This needs a driver whose kernels compute in the host's memory, and whose atomic functions keep
   the order of what stands around them, which OpenCL C 1.2 does not promise (cl/drivers.def).

   CASES: X(n) for every part. */
#include "chain_step.h"
#ifdef CLEF_DECLARES /* see declarations.h */
__attribute__((overloadable)) uint atomic_inc(volatile __global uint *);
__attribute__((overloadable)) uint atomic_add(volatile __global uint *, uint);
__attribute__((overloadable)) uint atomic_cmpxchg(volatile __global uint *, uint, uint);
__attribute__((overloadable, const)) size_t get_group_id(uint);
#endif
#ifndef CASES
#define CASES(X) X(0)
#endif

#define DECLARE(n) void part_##n(__global const ulong *args, const ulong *chain_place, __local void *chain_room);
CASES(DECLARE)
#define CASE(n) \
    case n: part_##n(step + STEP_ARGS, place, room); break;

static void run_steps(__global const ulong *head, __local void *room) {
    __global const ulong *step = (__global const ulong *)head[RUN_RECORD];
    volatile __global uint *taken = (volatile __global uint *)head[RUN_COUNTERS];
    const int steps = (int)head[RUN_STEPS];
    for (int s = 0; s < steps; s++) {
        const uint w = (uint)step[STEP_ITEMS], h = (uint)step[STEP_ITEMS + 1], total = (uint)step[STEP_TOTAL];
        for (uint i; (i = atomic_inc(taken)) < total;) {
            const ulong place[6] = {i % w, i / w % h, i / w / h, w, h, step[STEP_ITEMS + 2]};
            switch ((int)step[STEP_PART]) { CASES(CASE) }
            atomic_inc(taken + STEP_DONE);
        }
        while (taken[STEP_DONE] < total) {
        }
        atomic_add(taken + STEP_DONE, 0); /* what is read from here on is what they wrote: a plain load would not promise that */
        step += step[STEP_WORDS];
        taken += STEP_COUNTERS;
    }
}

/* Keeps a core until a run comes, for some tens of microseconds at most: to wake a thread for it would take longer. */
static void look_for_next(__global const ulong *head) {
    volatile __global const uint *state = (volatile __global const uint *)(head + RUN_STATE);
    for (ulong looks = head[RUN_LOOKS]; looks > 0 && *state == RUN_IS_LAST; looks--) {
    }
}

/* The first work-group ends the last run for all, or, where it does not look for more, whoever is the first to find none.  The others do
   not stay: they would take cores from the host. */
__kernel void chain(ulong run, __local void *room) {
    for (bool more = true; more;) {
        __global const ulong *head = (__global const ulong *)run;
        volatile __global uint *state = (volatile __global uint *)(head + RUN_STATE);
        run_steps(head, room);
        bool stays = get_group_id(0) == 0, ends = stays || head[RUN_LOOKS] == 0;
        if (stays) look_for_next(head);
        more = (ends ? atomic_cmpxchg(state, RUN_IS_LAST, RUN_ENDED) : atomic_add(state, 0)) == RUN_HAS_NEXT;
        run = head[RUN_NEXT];
    }
}
