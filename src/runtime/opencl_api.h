/* opencl_api.h — OpenCL's header, for this room alone. */
#ifndef CLEF_OPENCL_API_H
#define CLEF_OPENCL_API_H
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif
/* Queues are made the way OpenCL 1.2 makes them, the floor of what Clef runs on. */
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#ifdef __APPLE__
#include <OpenCL/cl.h>
#else
#include <CL/cl.h>
#endif
#endif
