/* process.c — what the process gives: its environment, which a set-uid program must not trust, and what address space is left. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* secure_getenv */
#endif
#include "runtime/runtime_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#include <sys/resource.h>
#include <unistd.h>

/* ---- the environment ---- */

const char *clef__env(const char *name) {
#if defined(__linux__)
    return secure_getenv(name);
#else
    return getenv(name);
#endif
}

bool clef__privileged(void) {
#if defined(__linux__)
    return getauxval(AT_SECURE) != 0;
#else
    return getuid() != geteuid() || getgid() != getegid();
#endif
}

bool clef__env_flag(const char *name) {
    static const char *const yes[] = {"1", "yes", "true", "on"};
    const char *text = clef__env(name);
    for (size_t i = 0; text && i < sizeof yes / sizeof yes[0]; i++)
        if (strcasecmp(text, yes[i]) == 0) return true;
    return false;
}

/* ---- address space: drivers abort the process where it is too little for their threads and compilers ---- */

/* In pages; 0 where the system does not say. */
static uint64_t pages_taken(void) {
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%llu", &pages) != 1) pages = 0;
    if (file) fclose(file);
    return pages;
}

uint64_t clef__address_space_left(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
    uint64_t taken = pages_taken() * (uint64_t)sysconf(_SC_PAGESIZE);
    return limit.rlim_cur > taken ? (uint64_t)limit.rlim_cur - taken : 0;
}

/* Less than what the drivers at hand take to begin, and again to compile a few kernels. */
static const uint64_t least_address_space = 512u << 20;

bool clef__has_room(void) {
    uint64_t left = clef__address_space_left();
    if (left >= least_address_space) return true;
    clef__fail(NULL, CLEF_MEMORY,
               "open: %llu MiB of address space are left (ulimit -v), and OpenCL drivers need up to %llu to begin and as "
               "much again to compile; raise the limit",
               (unsigned long long)(left >> 20), (unsigned long long)(least_address_space >> 20));
    return false;
}
