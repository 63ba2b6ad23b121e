/* joined.h — several codes compiled as one program, as plans do with what they generated. */
#ifndef CLEF_TEST_JOINED_H
#define CLEF_TEST_JOINED_H
#include "runtime/runtime.h"

static inline void compile_joined(clef__device *device, clef__code *const *all, int n, const char *name) {
    clef__join *joined = clef__codes_join(device, all, n, name);
    for (const clef__join *join = joined; join; join = join->next) clef__join_compile(join);
    clef__joins_free(joined);
}
#endif
