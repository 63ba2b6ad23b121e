/* small.h — how much a test tries where kernels or their compilers are slow: CLEF_TEST_SMALL.
   Unset, empty or 0: all.  1: fewer and smaller cases, for an interpreter of OpenCL that is a thousand times slower or a CPU in a GPU's
   place.  2: a kernel or two of each kind, for other implementations of OpenCL, whose compilers take seconds for a kernel.  3: of those a
   share, no second kernel that differs from a first one only in a type or an option. */
#ifndef CLEF_TESTS_SMALL_H
#define CLEF_TESTS_SMALL_H

#include <stdbool.h>
#include <stdlib.h>

static inline int test_smallness(void) {
    const char *v = getenv("CLEF_TEST_SMALL");
    return v ? atoi(v) : 0;
}
static inline bool test_small(void) { return test_smallness() >= 1; }
static inline bool few_kernels(void) { return test_smallness() >= 2; }
static inline bool fewest_kernels(void) { return test_smallness() >= 3; }

#endif
