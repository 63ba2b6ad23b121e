/* counting.h — an allocator that counts what it is asked for, to see that something asks for nothing. */
#ifndef CLEF_TESTS_COUNTING_H
#define CLEF_TESTS_COUNTING_H
#include "clef.h"
#include <stdlib.h>

static int allocations;
static inline void *counting_allocate(void *user, size_t bytes) {
    (void)user;
    allocations++;
    return malloc(bytes);
}
static inline void *counting_reallocate(void *user, void *old, size_t bytes) {
    (void)user;
    allocations++;
    return realloc(old, bytes);
}
static inline void counting_release(void *user, void *old) {
    (void)user;
    free(old);
}

/* Before anything else of Clef. */
static inline void count_allocations(void) {
    clef_set_allocator(&(clef_allocator){counting_allocate, counting_reallocate, counting_release, NULL});
}
#endif
