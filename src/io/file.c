/* file.c — reading byte ranges and replacing whole files.

   A writer makes <target>.<pid>-<number>.tmp in the target's directory and renames it over the target after fsync.  Whoever looks
   sees the old file or the new.  What a killed writer left is removed by the next writer of the same target, and by the next
   training run for all its checkpoints.  Reading uses pread and not mmap: a file that is cut short meanwhile gives an error and not
   a signal. */
#define _DEFAULT_SOURCE /* realpath beside strict C11 */
#include "io_internal.h"
#include "runtime/temporary.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- reports ---- */
clef_status clef__report_set(clef__report *report, clef_status status, const char *fmt, ...) {
    if (report->status != CLEF_OK) return status;
    va_list args;
    va_start(args, fmt);
    vsnprintf(report->text, sizeof report->text, fmt, args);
    va_end(args);
    report->status = status;
    return status;
}

clef_status clef__report_fail(clef_context *ctx, const char *op, const char *path, const clef__report *report) {
    return clef__fail(ctx, report->status, "%s: %s: %s", op, path ? path : "(no path)", report->text);
}

clef__quoted clef__quote(const char *name) {
    clef__quoted quoted;
    size_t n = 0;
    const char *end = name + strlen(name);
    quoted.text[n++] = '"';
    while (name < end && n < 61) {
        int length = clef__utf8_length(name, end);
        bool plain = length > 0 && (unsigned char)*name >= 32 && *name != 127;
        if (plain) memcpy(quoted.text + n, name, (size_t)length);
        else quoted.text[n] = '?';
        n += plain ? (size_t)length : 1;
        name += length ? length : 1;
    }
    if (name < end) memcpy(quoted.text + n, "...", 3), n += 3;
    quoted.text[n++] = '"';
    quoted.text[n] = 0;
    return quoted;
}

/* ---- reading ---- */
clef_status clef__reader_open(clef__reader *reader, const char *path, clef__report *report) {
    *reader = (clef__reader){.fd = -1};
    if (!path) return clef__report_set(report, CLEF_INVALID, "no path was given");
    /* O_NONBLOCK: opening a pipe must not wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return clef__report_set(report, CLEF_IO, "cannot be opened: %s", strerror(errno));
    struct stat st;
    if (fstat(fd, &st) != 0) {
        clef__report_set(report, CLEF_IO, "cannot be examined: %s", strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        clef__report_set(report, CLEF_IO, "is %s, not a regular file", S_ISDIR(st.st_mode) ? "a directory" : "a device or pipe");
    } else {
        *reader = (clef__reader){.fd = fd, .size = (uint64_t)st.st_size};
        return CLEF_OK;
    }
    close(fd);
    return report->status;
}

clef__reader clef__reader_memory(const void *bytes, size_t size) { return (clef__reader){.fd = -1, .memory = bytes, .size = size}; }

clef_status clef__reader_get(const clef__reader *reader, uint64_t offset, void *out, uint64_t bytes, clef__report *report) {
    if (offset > reader->size || bytes > reader->size - offset)
        return clef__report_set(report, CLEF_FORMAT, "ends at byte %llu, but bytes %llu to %llu are needed; it is cut short",
                                (unsigned long long)reader->size, (unsigned long long)offset, (unsigned long long)(offset + bytes));
    if (bytes == 0) return CLEF_OK;
    if (reader->fd < 0) {
        memcpy(out, reader->memory + offset, (size_t)bytes);
        return CLEF_OK;
    }
    const uint64_t chunk = 1u << 30; /* some systems refuse more in one call */
    for (uint64_t done = 0; done < bytes;) {
        uint64_t want = bytes - done < chunk ? bytes - done : chunk;
        ssize_t got = pread(reader->fd, (char *)out + done, (size_t)want, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return clef__report_set(report, CLEF_IO, "cannot be read: %s", strerror(errno));
        if (got == 0) return clef__report_set(report, CLEF_IO, "became shorter while it was read");
        done += (uint64_t)got;
    }
    return CLEF_OK;
}

void clef__reader_close(clef__reader *reader) {
    if (reader->fd >= 0) close(reader->fd);
    *reader = (clef__reader){.fd = -1};
}

/* ---- writing ---- */
static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Opens the directory that holds path. */
static int open_directory(const char *path) {
    size_t length = (size_t)(base_name(path) - path);
    char *directory = length ? clef__asprintf("%.*s", (int)length, path) : clef__strdup(".");
    if (!directory) return errno = ENOMEM, -1;
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = errno;
    clef__free(directory);
    errno = error;
    return fd;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool ends_with(const char *name, size_t size, const char *ending) {
    size_t n = strlen(ending);
    return size > n && strncmp(name + size - n, ending, n) == 0;
}

/* name is "<base>.<digits>-<digits>.tmp" (base NULL: that of any checkpoint) */
static bool is_temporary_of(const char *name, const char *base) {
    static const char ending[] = ".tmp";
    const char *at = name + strlen(name) - (sizeof ending - 1), *digits = at;
    if (at <= name || strcmp(at, ending) != 0) return false;
    while (at > name && is_digit(at[-1])) at--;
    if (at == digits || at == name || *--at != '-') return false;
    for (digits = at; at > name && is_digit(at[-1]);) at--;
    if (at == digits || at == name || *--at != '.') return false;
    size_t size = (size_t)(at - name);
    return base ? size > 0 && strlen(base) == size && strncmp(name, base, size) == 0 : ends_with(name, size, ".ckpt");
}

/* Best effort: removes temporaries whose writer is dead; takes over fd. */
static void remove_temporaries(int fd, const char *base) {
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (!directory) {
        if (fd >= 0) close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (is_temporary_of(entry->d_name, base)) clef__temporary_drop_abandoned(fd, entry->d_name);
    }
    closedir(directory);
}

void clef__remove_abandoned(const char *directory) {
    remove_temporaries(open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), NULL);
}

/* Creates and locks a temporary; false with errno. */
static bool create_temporary(clef__writer *writer) {
    static atomic_uint counter;
    for (int tries = 0; tries < 100; tries++) {
        char *name = clef__asprintf("%s.%ld-%u.tmp", writer->path, (long)getpid(), atomic_fetch_add(&counter, 1));
        if (!name) return errno = ENOMEM, false;
        int fd = clef__temporary_create(AT_FDCWD, name, 0666), error = errno;
        if (fd >= 0) {
            writer->fd = fd;
            writer->temporary = name;
            return true;
        }
        clef__free(name);
        if (error != EEXIST) return errno = error, false;
    }
    return false;
}

/* The file that path means: a link is followed, so that it stays a link. */
static char *resolve(const char *path) {
    struct stat st;
    char target[PATH_MAX];
    if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && realpath(path, target)) return clef__strdup(target);
    return clef__strdup(path);
}

clef_status clef__writer_open(clef__writer *writer, const char *path, clef__report *report) {
    *writer = (clef__writer){.fd = -1, .mode = -1, .report = report};
    if (!path || !*path) return clef__report_set(report, CLEF_INVALID, "no path was given");
    if (!*base_name(path)) return clef__report_set(report, CLEF_INVALID, "is a directory; give a file's name");
    struct stat st;
    if (stat(path, &st) == 0) {
        if (!S_ISREG(st.st_mode)) return clef__report_set(report, CLEF_IO, "exists and is not a regular file; give another name");
        writer->mode = (int)(st.st_mode & 0777);
    }
    if (!(writer->path = resolve(path))) return clef__report_set(report, CLEF_MEMORY, "no memory for its name");
    remove_temporaries(open_directory(writer->path), base_name(writer->path));
    if (!create_temporary(writer)) {
        clef__report_set(report, CLEF_IO, "nothing can be created in its directory: %s", strerror(errno));
        clef__writer_abort(writer);
    }
    return report->status;
}

static clef_status write_failed(clef__writer *writer, const char *what) {
    clef__report_set(writer->report, CLEF_IO, "%s after %llu bytes: %s; %s", what, (unsigned long long)writer->written,
                     strerror(errno), writer->mode < 0 ? "nothing was left behind" : "the old file is as it was");
    clef__writer_abort(writer);
    return CLEF_IO;
}

clef_status clef__writer_put(clef__writer *writer, const void *bytes, size_t size) {
    if (writer->fd < 0) return writer->report->status;
    const size_t chunk = (size_t)1 << 30;
    for (size_t done = 0; done < size;) {
        ssize_t put = write(writer->fd, (const char *)bytes + done, size - done < chunk ? size - done : chunk);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return write_failed(writer, "cannot be written");
        done += (size_t)put;
        writer->written += (uint64_t)put;
    }
    return CLEF_OK;
}

clef_status clef__writer_patch(clef__writer *writer, uint64_t offset, const void *bytes, size_t size) {
    if (writer->fd < 0) return writer->report->status;
    for (size_t done = 0; done < size;) {
        ssize_t put = pwrite(writer->fd, (const char *)bytes + done, size - done, (off_t)(offset + done));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return write_failed(writer, "cannot be written");
        done += (size_t)put;
    }
    return CLEF_OK;
}

/* Some file systems cannot sync a directory and say EINVAL, and one may be closed to readers; the rename then is as durable as it gets. */
static bool sync_directory(const char *path) {
    int fd = open_directory(path);
    if (fd < 0) return errno == EACCES;
    bool synced = fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP;
    int error = errno;
    close(fd);
    errno = error;
    return synced;
}

clef_status clef__writer_commit(clef__writer *writer) {
    if (writer->fd < 0) return writer->report->status;
    if (writer->mode >= 0 && fchmod(writer->fd, (mode_t)writer->mode) != 0)
        return write_failed(writer, "cannot get the old file's mode");
    if (fsync(writer->fd) != 0) return write_failed(writer, "cannot be made durable");
    if (rename(writer->temporary, writer->path) != 0) return write_failed(writer, "cannot be renamed into place");
    clef__free(writer->temporary);
    writer->temporary = NULL;
    bool synced = sync_directory(writer->path);
    if (!synced)
        clef__report_set(writer->report, CLEF_IO, "is written, but its directory cannot be made durable: %s", strerror(errno));
    clef__writer_abort(writer);
    return synced ? CLEF_OK : CLEF_IO;
}

void clef__writer_abort(clef__writer *writer) {
    /* The name goes before the lock, so that nobody else takes the file for abandoned. */
    if (writer->temporary) unlink(writer->temporary);
    if (writer->fd >= 0) close(writer->fd);
    clef__free(writer->temporary);
    clef__free(writer->path);
    *writer = (clef__writer){.fd = -1, .mode = -1, .report = writer->report};
}
