/* outputs.c — files that results go to: whether they can be written, and writing them. */
#include "tool.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool unwritable(const char *verb_name, const char *option, const char *path, int error) {
    fprintf(stderr, "clef %s: --%s: cannot write %s: %s\n", verb_name, option, path, strerror(error));
    return false;
}

/* 0 if files can be made in the directory of `path`, else errno's number. */
static int place_error(const char *path) {
    struct stat st;
    const char *slash = strrchr(path, '/');
    char *dir = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    int error = !dir ? ENOMEM : access(dir, W_OK | X_OK) ? errno : !stat(dir, &st) && !S_ISDIR(st.st_mode) ? ENOTDIR : 0;
    free(dir);
    return error;
}

static bool is_directory(const char *path) {
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

bool tool_new_file_fits(const char *verb_name, const char *option, const char *path) {
    int error = is_directory(path) ? EISDIR : place_error(path);
    return !error || unwritable(verb_name, option, path, error);
}

bool tool_file_fits(const char *verb_name, const char *option, const char *path) {
    int error = is_directory(path) ? EISDIR : !access(path, W_OK) ? 0 : errno == ENOENT ? place_error(path) : errno;
    return !error || unwritable(verb_name, option, path, error);
}

bool tool_directory_fits(const char *verb_name, const char *option, const char *path) {
    struct stat st;
    char *inside = malloc(strlen(path) + 3);
    if (!inside) return unwritable(verb_name, option, path, ENOMEM);
    strcat(strcpy(inside, path), "/x");
    for (char *slash; (slash = strrchr(inside, '/')) && slash != inside;) {
        *slash = 0;
        if (!stat(inside, &st) || errno != ENOENT) {
            *slash = '/';
            break;
        }
    }
    int error = place_error(inside);
    free(inside);
    return !error || unwritable(verb_name, option, path, error);
}

static bool print_to(const char *path, void (*print)(FILE *out, const void *data), const void *data) {
    FILE *out = fopen(path, "w");
    if (!out) return false;
    errno = 0;
    print(out, data);
    bool bad = ferror(out);
    int error = errno ? errno : EIO; /* of the first write that failed, unless closing finds one */
    if (fclose(out)) bad = true, error = errno;
    errno = error;
    return !bad;
}

/* A file that is there is replaced when its successor is whole; a pipe or a terminal is written to as it is. */
bool tool_write_file(const char *verb_name, const char *option, const char *path, void (*print)(FILE *out, const void *data),
                     const void *data) {
    struct stat st;
    char *temporary = malloc(strlen(path) + 32);
    bool plain = lstat(path, &st) != 0 || S_ISREG(st.st_mode);
    if (!temporary) return unwritable(verb_name, option, path, ENOMEM);
    sprintf(temporary, "%s.%ld-0.tmp", path, (long)getpid());
    bool good = print_to(plain ? temporary : path, print, data) && (!plain || rename(temporary, path) == 0);
    int error = errno;
    if (plain && !good) unlink(temporary);
    free(temporary);
    return good || unwritable(verb_name, option, path, error);
}
