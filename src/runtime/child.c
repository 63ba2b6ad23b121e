/* child.c — clef-probe as a child process: where it is, and how it is started and ended. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr, pipe2 */
#endif
#include "runtime/child.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* ---- where clef-probe is ---- */
/* Beside the library, as after a build, or where it is installed from there; a program that holds the static library is asked in the
   library's place. */
static bool beside_library(char path[PATH_MAX]) {
    static const char here[] = "";
    static const char *const places[] = {"clef-probe", CLEF_PROBE_FROM_LIBRARY};
    char own[PATH_MAX];
    Dl_info info;
    bool known = dladdr(here, &info) != 0 && info.dli_fname && info.dli_fname[0] == '/';
    if (!realpath(known ? info.dli_fname : "/proc/self/exe", own)) return false;
    int folder = (int)(strrchr(own, '/') - own);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (snprintf(path, PATH_MAX, "%.*s/%s", folder, own, places[i]) < PATH_MAX && access(path, X_OK) == 0) return true;
    return false;
}

/* A program with more rights than its user starts nothing. */
bool clef__child_allowed(void) {
    const char *wanted = clef__env("CLEF_PROBE");
    return !clef__privileged() && (!wanted || (*wanted && strcmp(wanted, "0") != 0));
}

bool clef__child_program(char path[PATH_MAX]) {
    const char *wanted = clef__env("CLEF_PROBE");
    if (wanted) return snprintf(path, PATH_MAX, "%s", wanted) < PATH_MAX;
    if (beside_library(path)) return true;
    snprintf(path, PATH_MAX, "%s", CLEF_PROBE_INSTALLED);
    return access(path, X_OK) == 0;
}

/* ---- the child ---- */
bool clef__child_pipe(int ends[2]) {
#if defined(__linux__)
    return pipe2(ends, O_CLOEXEC) == 0;
#else
    if (pipe(ends) != 0) return false;
    for (int i = 0; i < 2; i++) fcntl(ends[i], F_SETFD, FD_CLOEXEC);
    return true;
#endif
}

/* The file first: it may have the number of a standard stream that the program closed. */
static bool set_files(posix_spawn_file_actions_t *files, int file, int input) {
    bool good = posix_spawn_file_actions_adddup2(files, file, CLEF__CHILD_FILE) == 0;
    if (input >= 0) good = good && posix_spawn_file_actions_adddup2(files, input, 0) == 0;
    for (int fd = input >= 0; fd < CLEF__CHILD_FILE; fd++)
        good = good && posix_spawn_file_actions_addopen(files, fd, "/dev/null", fd ? O_WRONLY : O_RDONLY, 0) == 0;
#ifdef __GLIBC__
#if __GLIBC_PREREQ(2, 34)
    good = good && posix_spawn_file_actions_addclosefrom_np(files, CLEF__CHILD_FILE + 1) == 0;
#endif
#endif
    return good;
}

/* Signals as they are when a program starts, whatever this thread blocks and this program ignores. */
static bool set_signals(posix_spawnattr_t *attributes) {
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGALRM);
    sigaddset(&usual, SIGCHLD);
    sigaddset(&usual, SIGPIPE);
    return posix_spawnattr_setsigmask(attributes, &none) == 0 && posix_spawnattr_setsigdefault(attributes, &usual) == 0 &&
           posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) == 0;
}

bool clef__child_start(char *const *arguments, int file, int input, pid_t *child) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    if (posix_spawn_file_actions_init(&files) != 0) return false;
    bool good = posix_spawnattr_init(&attributes) == 0;
    if (good) {
        good = set_files(&files, file, input) && set_signals(&attributes) &&
               posix_spawn(child, arguments[0], &files, &attributes, arguments, environ) == 0;
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&files);
    return good;
}

/* Where the program ignores SIGCHLD, or reaps all children itself, it may be gone already, and its number may be another's. */
void clef__child_end(pid_t child, double patience) {
    double until = clef__now() + patience;
    pid_t ended = waitpid(child, NULL, WNOHANG);
    for (; ended == 0 && clef__now() < until; ended = waitpid(child, NULL, WNOHANG))
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    if (ended != 0) return;
    kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
}
