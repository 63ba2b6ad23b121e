/* child.h — clef-probe as a child process (probe_main.c): for what a driver may not survive, or does better in a process of its own. */
#ifndef CLEF_CHILD_H
#define CLEF_CHILD_H
#include "runtime/runtime_internal.h"
#include <limits.h>
#include <sys/types.h>

enum { CLEF__CHILD_FILE = 3 }; /* the child's file descriptor for what the two have in common */

/* May this program start it?  CLEF_PROBE=0 says no. */
bool clef__child_allowed(void);
/* Where it is; false: nowhere. */
bool clef__child_program(char path[PATH_MAX]);
/* A pipe that no other child inherits. */
bool clef__child_pipe(int ends[2]);
/* Starts arguments[0] with this program's environment, one open file and, unless it is below 0, that standard input. */
bool clef__child_start(char *const *arguments, int file, int input, pid_t *child);
/* Waits for so many seconds until it ends, and then ends it, however far it is. */
void clef__child_end(pid_t child, double patience);
#endif
