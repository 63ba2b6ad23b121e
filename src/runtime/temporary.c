#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* flock beside strict C11 */
#endif
#include "runtime/temporary.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STALE_SECONDS = 3600 };

static bool locked_by_another(int fd) { return flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; }

/* Before the lock is ours another process may take the file for abandoned: it then locks and unlinks it. */
int clef__temporary_create(int dir, const char *name, int mode) {
    struct stat st;
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, (mode_t)mode);
    if (fd < 0 || (!locked_by_another(fd) && fstat(fd, &st) == 0 && st.st_nlink > 0)) return fd;
    close(fd);
    errno = EEXIST;
    return -1;
}

/* Unlinked while its lock is held: a writer that has not locked it yet sees that it is gone.  Where there are no locks, age tells.
 */
void clef__temporary_drop_abandoned(int dir, const char *name) {
    struct stat st;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0, held = !locked && errno == EWOULDBLOCK;
    if (locked || (!held && fstat(fd, &st) == 0 && time(NULL) - st.st_mtime > STALE_SECONDS)) unlinkat(dir, name, 0);
    close(fd);
}
