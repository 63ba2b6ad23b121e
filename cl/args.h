/* args.h — the parameters of a kernel, declared once for the kernel and for the host.

   A list such as GEMM_ARGS in gemm.args is a macro of rows X(kind, name, …), in the order in which they are passed:

       X(READ, a, f32)    memory that is read: `__global const float *restrict a_base, long a_offset` (elements)
       X(WRITE, c, f32)   memory that is written to
       X(SCRATCH, t, f32) the same, or memory that is not touched
       X(INT, n)          int n; INT2 and INT3 are n1, n2 (, n3)
       X(LONG, n)         long n; LONG2, LONG3 likewise
       X(FLOAT, eps)      float eps
       X(EPILOGUE, c)     what is done with results before they are written to c (epilogue.h)
       X(HW, in)          int in_h, int in_w: INT2 for the rows and columns of an image
       X(GROUP, geometry, GEOMETRY_ARGS)  the rows of a list that several kernels share
       X(PROLOGUE, x)     what is read, or computed where it is read: the file's INPUTS
       X(REAL, eps)       float eps, float eps_rest: one number (REAL in lanes.h)
       X(NUMBER, g, f32)  float g, in the computing type: an input of the op that is nothing but one number
       X(DYNAMIC, seed, 0) ulong seed: the node's dynamic.u[0], which may change from run to run
       X(UNITS, units)    long units, long per: units of work, of which a work-item takes `per` one after the other
       X(CUT_ROWS, cut)   long n, long chunk, long splits and the units: how rows are reduced (reduce.cl)
       X(CUT_COLUMNS, cut) long n, long chunk, long splits, long inner, long strip and the units: how columns are

   A name must not be a function or keyword of OpenCL C (step, kernel): drivers define macros of such names.

   Here a list becomes parameters, PARAMETERS(GEMM_ARGS); src/kernels/args.h makes of it a struct and the calls that pass it.  A kind
   that one file needs is defined there, and where its arguments are passed.

   IN_PLACE, defined by a file before it includes this: results may lie where operands lie, so nothing is `restrict`. */
#ifndef CLEF_ARGS_H
#define CLEF_ARGS_H

#ifdef IN_PLACE
#define APART
#else
#define APART restrict
#endif

#define PARAMETERS(LIST) BEHIND_COMMA(LIST(PARAMETER))
#define BEHIND_COMMA(...) BEHIND_COMMA_(__VA_ARGS__)
#define BEHIND_COMMA_(nothing, ...) __VA_ARGS__

#define PARAMETER(kind, ...) PARAMETER_##kind(__VA_ARGS__)
#define PARAMETER_READ(name, dt) , __global const MEMORY(dt) *APART name##_base, long name##_offset
#define PARAMETER_WRITE(name, dt) , __global MEMORY(dt) *APART name##_base, long name##_offset
#define PARAMETER_SCRATCH(name, dt) PARAMETER_WRITE(name, dt)
#define PARAMETER_INT(name) , int name
#define PARAMETER_INT2(name) , int name##1, int name##2
#define PARAMETER_INT3(name) , int name##1, int name##2, int name##3
#define PARAMETER_LONG(name) , long name
#define PARAMETER_LONG2(name) , long name##1, long name##2
#define PARAMETER_LONG3(name) , long name##1, long name##2, long name##3
#define PARAMETER_FLOAT(name) , float name
#define PARAMETER_EPILOGUE(name) , EPILOGUE_PARAMETERS
#define PARAMETER_HW(name) , int name##_h, int name##_w
#define PARAMETER_GROUP(name, LIST) LIST(PARAMETER_IN_GROUP)
#define PARAMETER_IN_GROUP(kind, ...) PARAMETER_##kind(__VA_ARGS__) /* PARAMETER is being expanded: it stands for itself here */
#define PARAMETER_PROLOGUE(name) , INPUTS
#define PARAMETER_REAL(name) , float name, float name##_rest
#define PARAMETER_NUMBER(name, dt) , COMPUTE(dt) name
#define PARAMETER_DYNAMIC(name, i) , ulong name
#define PARAMETER_UNITS(name) , long name, long per
#define PARAMETER_CUT_ROWS(name) , long n, long chunk, long splits PARAMETER_UNITS(units)
#define PARAMETER_CUT_COLUMNS(name) , long n, long chunk, long splits, long inner, long strip PARAMETER_UNITS(units)
#endif
