/* call_faults.c — a program in which the N-th OpenCL call fails (CLEF_FAULT_CALL; 0: none), as a module for LD_PRELOAD.  At its end
   it writes into CLEF_FAULT_REPORT how many calls there were. */
#pragma GCC visibility push(default)
#include "support/opencl_faults.h"
#pragma GCC visibility pop

__attribute__((constructor)) static void begin(void) {
    const char *n = getenv("CLEF_FAULT_CALL");
    opencl_faults = n != NULL;
    fail_call(n ? atol(n) : 0, false);
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("CLEF_FAULT_REPORT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (f) fprintf(f, "%ld\n", calls), fclose(f);
}
