/* layer.h — for modules that stand between a program and OpenCL (LD_PRELOAD): functions of OpenCL's names, and the real ones behind. */
#ifndef CLEF_TESTS_LAYER_H
#define CLEF_TESTS_LAYER_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* The function behind ours.  POSIX says that a pointer to it fits in a void *, C does not. */
#define REAL(f) ((__typeof__(&f))real(#f))
typedef void (*function)(void);
static function real(const char *name) {
    void *symbol = dlsym(RTLD_NEXT, name);
    function f;
    memcpy(&f, &symbol, sizeof f);
    return f;
}
#endif
