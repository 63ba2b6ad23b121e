/* chain_step.h — how a step of a chain stands in memory, in words of 64 bits; read by the device (chain.cl) and the host
   (src/runtime/chain.c). */
#define STEP_ITEMS 0 /* of three dimensions, and of all */
#define STEP_TOTAL 3
#define STEP_PART 4 /* the kernel, by its number among the chain's parts */
#define STEP_WORDS 5
#define STEP_ARGS 6 /* the kernel's arguments from the second on, a word each, then the struct that is its first */

/* Two counters for each step, of 32 bits, zero before the launch: items that were taken, and that are done.  On lines of their own, as
   all cores write to them. */
#define STEP_COUNTERS 32
#define STEP_DONE 16

/* A run of steps: where they and their counters are, and how many they are.  The state is of 32 bits; who finds no run behind it ends it, and
   then none comes any more.  Before that the first work-group looks so many times. */
#define RUN_RECORD 0
#define RUN_COUNTERS 1
#define RUN_STEPS 2
#define RUN_NEXT 3
#define RUN_STATE 4
#define RUN_LOOKS 5
#define RUN_IS_LAST 0
#define RUN_HAS_NEXT 1
#define RUN_ENDED 2
