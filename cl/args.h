/* args.h — the parameters of a kernel, declared once for the kernel and for the host.

   A list such as GEMM_ARGS in gemm.args is a macro of rows X(kind, name, more), in the order in which they are passed.  OpenCL C 1.2 has
   no macros of any number of arguments (NVIDIA's compiler refuses them), so a row with nothing more ends with an empty argument:

       X(READ, a, f32)    memory that is read: `__global const float *restrict a_base, long a_offset` (elements)
       X(WRITE, c, f32)   memory that is written to
       X(SCRATCH, t, f32) the same, or memory that is not touched
       X(INT, n, )          int n; INT2 and INT3 are n1, n2 (, n3)
       X(LONG, n, )         long n; LONG2, LONG3 likewise
       X(FLOAT, eps, )      float eps
       X(EPILOGUE, c, )     what is done with results before they are written to c (epilogue.h)
       X(BIASED_EPILOGUE, c, ) the same, and before it the bias of a product or convolution
       X(HW, in, )          int in_h, int in_w: INT2 for the rows and columns of an image
       X(GROUP, geometry, GEOMETRY_ARGS)  the rows of a list that several kernels share
       X(PROLOGUE, x, )     what is read, or computed where it is read: the file's INPUTS
       X(REAL, eps, )       float eps, float eps_rest: one number (REAL in lanes.h)
       X(NUMBER, g, f32)  float g, in the computing type: an input of the op that is nothing but one number
       X(DYNAMIC, seed, 0) ulong seed: the node's dynamic.u[0], which may change from run to run
       X(UNITS, units, )    long units, long per: units of work, of which a work-item takes `per` one after the other
       X(CUT_ROWS, cut, )   long n, long chunk, long splits and the units: how rows are reduced (reduce.cl)
       X(CUT_COLUMNS, cut, ) long n, long chunk, long splits, long inner, long strip and the units: how columns are

   A name must not be a function or keyword of OpenCL C (step, kernel): drivers define macros of such names.

   KERNEL(gemm, GEMM_ARGS) begins a kernel.  Its parameters are the pointers of the list, behind one struct of all its numbers: some
   drivers copy every argument of every launch one by one (pocl: 0.2 µs each).  UNPACK(GEMM_ARGS), the first line of the body, makes
   local variables of the numbers.  The struct ends with a long, as rusticl forgets what is padded behind a shorter field, and refuses
   the argument's size.  src/kernels/args.h makes of the list a struct and the calls that pass it.  A kind that one file
   needs is defined there, and where its arguments are passed.  A PROLOGUE's arguments, pointers and numbers, stand behind the struct
   as they are.

   IN_PLACE, defined by a file before it includes this: results may lie where operands lie, so nothing is `restrict`. */
#ifndef CLEF_ARGS_H
#define CLEF_ARGS_H

#ifdef IN_PLACE
#define APART
#else
#define APART restrict
#endif

/* A CPU's work-items compute with vectors as wide as its registers.  A compiler that puts several of them side by side (Intel's) gains nothing
   by it, and takes up to minutes. */
#ifdef CLEF_WIDE
#define OF_VECTORS __attribute__((vec_type_hint(float4)))
#else
#define OF_VECTORS
#endif

#define KERNEL(name, LIST) KERNEL_WITH(, name, LIST)
#define KERNEL_WITH(attribute, name, LIST)                                                             \
    typedef struct OF_PART(name##_numbers) {                                                           \
        LIST(FIELD)                                                                                    \
        long end;                                                                                      \
    } OF_PART(name##_numbers);                                                                         \
    ENTRY(OF_VECTORS attribute) void OF_PART(name)(PLACE_OF_ITEM OF_PART(name##_numbers) numbers LIST(PARAMETER))
#define UNPACK(LIST) LIST(LOCAL)

/* An attribute: the size of the work-group.  Not told where an option limits registers (src/runtime/open.c): NVIDIA's compiler does not
   limit those of a kernel that requires a size. */
#ifdef CLEF_REGISTERS
#define GROUP_OF(items)
#else
#define GROUP_OF(items) __attribute__((reqd_work_group_size(items, 1, 1)))
#endif

/* Memory */
#define PARAMETER(kind, name, more) PARAMETER_##kind(name, more)
#define PARAMETER_READ(name, dt) , __global const MEMORY(dt) *APART name##_base
#define PARAMETER_WRITE(name, dt) , __global MEMORY(dt) *APART name##_base
#define PARAMETER_SCRATCH(name, dt) PARAMETER_WRITE(name, dt)
#define PARAMETER_INT(name, none)
#define PARAMETER_INT2(name, none)
#define PARAMETER_INT3(name, none)
#define PARAMETER_LONG(name, none)
#define PARAMETER_LONG2(name, none)
#define PARAMETER_LONG3(name, none)
#define PARAMETER_FLOAT(name, none)
#define PARAMETER_EPILOGUE(name, none) , __global const MEMORY(RESULT) *restrict extra
#define PARAMETER_BIASED_EPILOGUE(name, none) , __global const MEMORY(RESULT) *restrict bias PARAMETER_EPILOGUE(name, )
#define PARAMETER_HW(name, none)
#define PARAMETER_GROUP(name, LIST) LIST(PARAMETER_IN_GROUP)
#define PARAMETER_IN_GROUP(kind, name, more) PARAMETER_##kind(name, more) /* PARAMETER is being expanded: it stands for itself here */
#define PARAMETER_PROLOGUE(name, none) , INPUTS
#define PARAMETER_REAL(name, none)
#define PARAMETER_NUMBER(name, dt)
#define PARAMETER_DYNAMIC(name, i)
#define PARAMETER_UNITS(name, none)
#define PARAMETER_CUT_ROWS(name, none)
#define PARAMETER_CUT_COLUMNS(name, none)

/* Numbers: N(type, name) for each */
#define FIELD(kind, name, more) NUMBERS_##kind(ONE_FIELD, name, more)
#define LOCAL(kind, name, more) NUMBERS_##kind(ONE_LOCAL, name, more)
#define ONE_FIELD(type, name) type name;
#define ONE_LOCAL(type, name) __attribute__((unused)) type name = numbers.name;

#define NUMBERS_READ(N, name, dt) N(long, name##_offset)
#define NUMBERS_WRITE(N, name, dt) N(long, name##_offset)
#define NUMBERS_SCRATCH(N, name, dt) N(long, name##_offset)
#define NUMBERS_INT(N, name, none) N(int, name)
#define NUMBERS_INT2(N, name, none) N(int, name##1) N(int, name##2)
#define NUMBERS_INT3(N, name, none) N(int, name##1) N(int, name##2) N(int, name##3)
#define NUMBERS_LONG(N, name, none) N(long, name)
#define NUMBERS_LONG2(N, name, none) N(long, name##1) N(long, name##2)
#define NUMBERS_LONG3(N, name, none) N(long, name##1) N(long, name##2) N(long, name##3)
#define NUMBERS_FLOAT(N, name, none) N(float, name)
#define NUMBERS_EPILOGUE(N, name, none) N(long, extra_offset) N(COMPUTE(RESULT), scale) N(int, ops)
#define NUMBERS_BIASED_EPILOGUE(N, name, none) N(long, bias_offset) N(long, bias_z) NUMBERS_EPILOGUE(N, name, )
#define NUMBERS_HW(N, name, none) N(int, name##_h) N(int, name##_w)
#define NUMBERS_GROUP(N, name, LIST) LIST(N##_OF_GROUP)
#define ONE_FIELD_OF_GROUP(kind, name, more) NUMBERS_##kind(ONE_FIELD, name, more)
#define ONE_LOCAL_OF_GROUP(kind, name, more) NUMBERS_##kind(ONE_LOCAL, name, more)
#define NUMBERS_PROLOGUE(N, name, none)
#define NUMBERS_REAL(N, name, none) N(float, name) N(float, name##_rest)
#define NUMBERS_NUMBER(N, name, dt) N(COMPUTE(dt), name)
#define NUMBERS_DYNAMIC(N, name, i) N(ulong, name)
#define NUMBERS_UNITS(N, name, none) N(long, name) N(long, per)
#define NUMBERS_CUT_ROWS(N, name, none) N(long, n) N(long, chunk) N(long, splits) NUMBERS_UNITS(N, units, )
#define NUMBERS_CUT_COLUMNS(N, name, none)                                                                   \
    N(long, n) N(long, chunk) N(long, splits) N(long, inner) N(long, strip) NUMBERS_UNITS(N, units, )
#endif
