/* uses.h — the parts of common.h that a program may do without, read by the device and the host (src/runtime/uses.c).

   USES is the sum of those that it needs, everything unless it says so.  A file that calls the functions of USES_MATH defines
   CALLS_MATH before it includes common.h; the rest the host finds in options and texts.  Drivers compile all that a program
   declares, called or not, and some read it once more in every process to find the program in their cache. */
#define USES_4 1       /* vectors of so many lanes */
#define USES_8 2
#define USES_16 4
#define USES_LONG 8    /* vectors of longs */
#define USES_DOUBLE 16 /* doubles */
#define USES_HALVES 32 /* f16 and bf16 */
#define USES_BYTES 64  /* u8 and bool */
#define USES_MATH 128  /* functions that are more than an instruction or two: exp, sin … */
#define USES_ALL 255
