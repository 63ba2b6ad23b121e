/* file_faults.c — the N-th operation that writes beneath one directory fails, or every write is short.

   Built as a module for LD_PRELOAD, with the environment saying what to do (CLEF_FAULT_DIR, CLEF_FAULT_N, CLEF_FAULT_ERRNO,
   CLEF_FAULT_SHORT), and included by tests that fail calls of their own process.  Other files are left alone, so that drivers
   keep theirs.  A stream is made to write through write(), where it can fail too. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static struct {
    char dir[1024];
    long countdown; /* 0: nothing fails */
    int error;
    bool for_ever;   /* and all later ones */
    bool short_ones; /* one byte at a time */
    long seen, struck;
} file_faults;

__attribute__((unused)) static void file_faults_begin(const char *dir, long n, int error, bool for_ever) {
    snprintf(file_faults.dir, sizeof file_faults.dir, "%s/", dir);
    file_faults.countdown = n;
    file_faults.error = error;
    file_faults.for_ever = for_ever;
    file_faults.seen = file_faults.struck = 0;
}

__attribute__((unused)) static void file_faults_end(void) {
    file_faults.countdown = 0;
    file_faults.short_ones = false;
}

__attribute__((constructor)) static void from_environment(void) {
    const char *dir = getenv("CLEF_FAULT_DIR"), *n = getenv("CLEF_FAULT_N"), *error = getenv("CLEF_FAULT_ERRNO");
    if (!dir) return;
    file_faults_begin(dir, n ? atol(n) : 0, error ? atoi(error) : ENOSPC, false);
    file_faults.short_ones = getenv("CLEF_FAULT_SHORT") != NULL;
}

#define REAL_CALL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static bool beneath(const char *path) { return *file_faults.dir && strncmp(path, file_faults.dir, strlen(file_faults.dir)) == 0; }

static bool is_ours(int fd) {
    char link[64], path[1024];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    return beneath(path);
}

static bool name_is_ours(int dir, const char *name) {
    char link[64], path[1024];
    if (*name == '/' || dir == AT_FDCWD) return beneath(name);
    snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    ssize_t n = readlink(link, path, sizeof path - 2);
    if (n <= 0) return false;
    path[n] = '/';
    path[n + 1] = 0;
    return beneath(path);
}

static bool fails_now(bool ours) {
    if (!ours) return false;
    file_faults.seen++;
    if (file_faults.countdown <= 0 || --file_faults.countdown > 0) return false;
    if (file_faults.for_ever) file_faults.countdown = 1;
    file_faults.struck++;
    errno = file_faults.error;
    return true;
}

ssize_t write(int fd, const void *bytes, size_t n) {
    bool ours = is_ours(fd);
    if (fails_now(ours)) return -1;
    return REAL_CALL(write)(fd, bytes, ours && file_faults.short_ones && n > 1 ? 1 + n / 3 : n);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset) {
    bool ours = is_ours(fd);
    if (fails_now(ours)) return -1;
    return REAL_CALL(pwrite)(fd, bytes, ours && file_faults.short_ones && n > 1 ? 1 + n / 3 : n, offset);
}

int fsync(int fd) { return fails_now(is_ours(fd)) ? -1 : REAL_CALL(fsync)(fd); }

int rename(const char *from, const char *to) { return fails_now(beneath(to)) ? -1 : REAL_CALL(rename)(from, to); }

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    return fails_now(name_is_ours(to_dir, to)) ? -1 : REAL_CALL(renameat)(from_dir, from, to_dir, to);
}

static int mode_of(int flags, va_list more) { return flags & O_CREAT ? va_arg(more, int) : 0; }

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = mode_of(flags, more);
    va_end(more);
    return (flags & O_CREAT) && fails_now(beneath(path)) ? -1 : REAL_CALL(open)(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = mode_of(flags, more);
    va_end(more);
    return (flags & O_CREAT) && fails_now(name_is_ours(dir, path)) ? -1 : REAL_CALL(openat)(dir, path, flags, mode);
}

/* ---- streams ---- */
static ssize_t stream_write(void *cookie, const char *bytes, size_t n) {
    size_t done = 0;
    while (done < n) {
        ssize_t put = write((int)(long)cookie, bytes + done, n - done);
        if (put < 0) return done ? (ssize_t)done : 0; /* 0 is an error here, with errno as it is */
        done += (size_t)put;
    }
    return (ssize_t)done;
}

static int stream_close(void *cookie) { return close((int)(long)cookie); }

FILE *fopen(const char *path, const char *mode) {
    if (!beneath(path) || *mode == 'r') return REAL_CALL(fopen)(path, mode);
    int fd = open(path, O_WRONLY | O_CREAT | (*mode == 'a' ? O_APPEND : O_TRUNC), 0666);
    if (fd < 0) return NULL;
    return fopencookie((void *)(long)fd, mode, (cookie_io_functions_t){.write = stream_write, .close = stream_close});
}
