/* temporary.h — the temporary files from which whole ones are made by a rename.

   Its writer holds a lock on it until it is renamed or unlinked, so one that nobody holds was left by a killed process and may go.
 */
#ifndef CLEF_TEMPORARY_H
#define CLEF_TEMPORARY_H

/* Creates and locks it: a descriptor to write to, or -1 with errno.  EEXIST: take another name.  dir: as for openat. */
int clef__temporary_create(int dir, const char *name, int mode);
/* Removes it if its writer is dead. */
void clef__temporary_drop_abandoned(int dir, const char *name);
#endif
