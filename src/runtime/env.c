/* env.c — the environment, which a set-uid program must not trust. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* secure_getenv */
#endif
#include "runtime/runtime_internal.h"
#include <stdlib.h>
#include <strings.h>

const char *clef__env(const char *name) {
#if defined(__linux__)
    return secure_getenv(name);
#else
    return getenv(name);
#endif
}

bool clef__env_flag(const char *name) {
    static const char *const yes[] = {"1", "yes", "true", "on"};
    const char *text = clef__env(name);
    for (size_t i = 0; text && i < sizeof yes / sizeof yes[0]; i++)
        if (strcasecmp(text, yes[i]) == 0)
            return true;
    return false;
}
