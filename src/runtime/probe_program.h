/* probe_program.h — what the files of clef-probe have in common. */
#ifndef CLEF_PROBE_PROGRAM_H
#define CLEF_PROBE_PROGRAM_H
#include "runtime/opencl_api.h"
#include <stdbool.h>

/* Else the process ends, without the driver's clean-up, which is no part of the question. */
void clef_probe_require(bool good);
void clef_probe_check(cl_int code);
/* The device of that number among all, if it is of the platform with that name. */
cl_device_id clef_probe_find(const char *platform_name, long number);
cl_context clef_probe_open(cl_device_id *ids, cl_uint n);
/* For all devices of the context. */
cl_program clef_probe_build(cl_context context, const char *source);

/* probe_compile.c */
_Noreturn void clef_probe_compile(const char *platform_name, long number);
#endif
