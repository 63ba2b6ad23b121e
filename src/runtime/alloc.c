/* alloc.c — every byte of host memory the library takes, through hooks that a program may replace. */
#include "runtime/runtime.h"
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static clef_allocator hooks; /* allocate NULL: libc */

void clef_set_allocator(const clef_allocator *allocator) {
    bool whole = allocator && allocator->allocate && allocator->reallocate && allocator->release;
    hooks = whole ? *allocator : (clef_allocator){0};
}

bool clef__has_allocator(void) { return hooks.allocate != NULL; }

void *clef__alloc(size_t bytes) {
    if (bytes == 0) bytes = 1;
    return hooks.allocate ? hooks.allocate(hooks.user, bytes) : malloc(bytes);
}

void *clef__calloc(size_t count, size_t size) {
    if (size && count > SIZE_MAX / size) return NULL;
    if (!hooks.allocate) return calloc(count ? count : 1, size ? size : 1);
    void *p = clef__alloc(count * size);
    if (p) memset(p, 0, count * size);
    return p;
}

void *clef__realloc(void *old, size_t bytes) {
    if (bytes == 0) bytes = 1;
    if (!old) return clef__alloc(bytes);
    return hooks.allocate ? hooks.reallocate(hooks.user, old, bytes) : realloc(old, bytes);
}

void clef__free(void *p) {
    if (!p) return;
    if (hooks.allocate) hooks.release(hooks.user, p);
    else free(p);
}

bool clef__grow(void *array_address, int n, int *capacity, size_t size) {
    if (n < *capacity) return true;
    int wanted = *capacity ? *capacity : 8;
    while (wanted <= n && wanted <= INT_MAX / 2) wanted *= 2;
    void *array;
    memcpy(&array, array_address, sizeof array);
    array = wanted > n && (size_t)wanted <= SIZE_MAX / size ? clef__realloc(array, (size_t)wanted * size) : NULL;
    if (!array) return false;
    memcpy(array_address, &array, sizeof array);
    *capacity = wanted;
    return true;
}

char *clef__strdup(const char *text) {
    if (!text) return NULL;
    size_t n = strlen(text) + 1;
    char *copy = clef__alloc(n);
    if (copy) memcpy(copy, text, n);
    return copy;
}

char *clef__asprintf(const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = n < 0 ? NULL : clef__alloc((size_t)n + 1);
    if (text) vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}
