/* probe_list.h — the list of kernels that helper.c writes and probe_compile.c reads: lines.
   "program BYTES BYTES", of the source and of the options, which follow; behind all of these "kernel PROGRAM NAME" and the size of a
   work-group, and for each of its arguments "memory" or "number" and its bytes; at last this one. */
#ifndef CLEF_PROBE_LIST_H
#define CLEF_PROBE_LIST_H
#define CLEF_PROBE_LIST_END "the list ends here\n"
#endif
