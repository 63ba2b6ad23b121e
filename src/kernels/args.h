/* args.h — the arguments of a kernel as a struct, from the list in cl/ that its parameters are made of (cl/args.h):

       #include "gemm.args"
       CLEF__ARGS(gemm, GEMM_ARGS)

   gives the struct gemm_args, whose fields have the rows' names (INT3, LONG3 and HW are arrays), and pass_gemm(lw, &args), which passes
   them to the open launch.  A SCRATCH t that the kernel does not touch is any memory, and t_used false.  A PROLOGUE x is read x_lanes
   elements at a time.  A NUMBER is {input, dtype}.  UNITS are explained in kernels/lanes.h, cuts in kernels/reduce.h.

   A GROUP is a struct of its own, declared before those it lies in:

       CLEF__ARGS(geometry, GEOMETRY_ARGS)

   gives X(GROUP, geometry, GEOMETRY_ARGS) its field `geometry_args geometry`. */
#ifndef CLEF_ARGS_H
#define CLEF_ARGS_H
#include "plan/lower/lower.h"

#define CLEF__ARGS(kernel, LIST)   \
    typedef struct kernel##_args { \
        LIST(CLEF__FIELD)          \
    } kernel##_args;               \
    static void pass_##kernel(const clef__lowering *lw, const kernel##_args *args) { LIST(CLEF__PASS) }

#define CLEF__FIELD(kind, name, more) CLEF__FIELD_##kind(name, more)
#define CLEF__FIELD_READ(name, dtype) clef__operand name;
#define CLEF__FIELD_WRITE(name, dtype) clef__operand name;
#define CLEF__FIELD_SCRATCH(name, dtype) \
    clef__operand name;                  \
    bool name##_used;
#define CLEF__FIELD_INT(name, none) int64_t name;
#define CLEF__FIELD_INT2(name, none) int64_t name[2];
#define CLEF__FIELD_INT3(name, none) int64_t name[3];
#define CLEF__FIELD_LONG(name, none) int64_t name;
#define CLEF__FIELD_LONG2(name, none) int64_t name[2];
#define CLEF__FIELD_LONG3(name, none) int64_t name[3];
#define CLEF__FIELD_FLOAT(name, none) float name;
#define CLEF__FIELD_EPILOGUE(to, none) clef__epilogue epilogue;
#define CLEF__FIELD_BIASED_EPILOGUE(to, none) clef__epilogue epilogue;
#define CLEF__FIELD_HW(name, none) int64_t name[2];
#define CLEF__FIELD_GROUP(name, LIST) name##_args name;
#define CLEF__FIELD_PROLOGUE(name, none) \
    clef__operand name;                  \
    int name##_lanes;
#define CLEF__FIELD_REAL(name, none) double name;
#define CLEF__FIELD_NUMBER(name, type) \
    struct {                           \
        int input;                     \
        clef_dtype dtype;              \
    } name;
#define CLEF__FIELD_DYNAMIC(name, i)
#define CLEF__FIELD_UNITS(name, none) clef__units name;
#define CLEF__FIELD_CUT_ROWS(name, none) clef__cut name;
#define CLEF__FIELD_CUT_COLUMNS(name, none) clef__cut name;

#define CLEF__PASS(kind, name, more) CLEF__PASS_##kind(name, more)
#define CLEF__PASS_READ(name, dtype) clef__launch_tensor(lw, args->name, false);
#define CLEF__PASS_WRITE(name, dtype) clef__launch_tensor(lw, args->name, true);
#define CLEF__PASS_SCRATCH(name, dtype) clef__launch_tensor(lw, args->name, args->name##_used);
#define CLEF__PASS_INT(name, none) clef__launch_int(lw, (int32_t)args->name);
#define CLEF__PASS_INT2(name, none) clef__launch_ints(lw, args->name, 2);
#define CLEF__PASS_INT3(name, none) clef__launch_ints(lw, args->name, 3);
#define CLEF__PASS_LONG(name, none) clef__launch_long(lw, args->name);
#define CLEF__PASS_LONG2(name, none) clef__launch_longs(lw, args->name, 2);
#define CLEF__PASS_LONG3(name, none) clef__launch_longs(lw, args->name, 3);
#define CLEF__PASS_FLOAT(name, none) clef__launch_float(lw, args->name);
#define CLEF__PASS_EPILOGUE(to, none) clef__launch_epilogue(lw, &args->epilogue, args->to);
#define CLEF__PASS_BIASED_EPILOGUE(to, none) clef__launch_biased_epilogue(lw, &args->epilogue, args->to);
#define CLEF__PASS_HW(name, none) clef__launch_ints(lw, args->name, 2);
#define CLEF__PASS_GROUP(name, LIST) pass_##name(lw, &args->name);
#define CLEF__PASS_PROLOGUE(name, none) clef__launch_read(lw, &args->name, args->name##_lanes);
#define CLEF__PASS_REAL(name, none) clef__launch_real(lw, args->name);
#define CLEF__PASS_NUMBER(name, type) clef__launch_number(lw, args->name.input, args->name.dtype);
#define CLEF__PASS_DYNAMIC(name, i) clef__launch_dynamic(lw, i);
#define CLEF__PASS_UNITS(name, none) clef__launch_longs(lw, (int64_t[]){args->name.n, args->name.per}, 2);
#define CLEF__PASS_CUT_ROWS(name, none)                                                        \
    clef__launch_longs(lw, (int64_t[]){args->name.n, args->name.chunk, args->name.splits}, 3); \
    CLEF__PASS_UNITS(name.units, )
#define CLEF__PASS_CUT_COLUMNS(name, none)                                                     \
    clef__launch_longs(lw, (int64_t[]){args->name.n, args->name.chunk, args->name.splits}, 3); \
    clef__launch_longs(lw, (int64_t[]){args->name.inner, args->name.strip}, 2);                \
    CLEF__PASS_UNITS(name.units, )

/* Fields that are arrays, from arrays. */
#define CLEF__TWO(x) \
    { (x)[0], (x)[1] }
#define CLEF__THREE(x) \
    { (x)[0], (x)[1], (x)[2] }
#endif
