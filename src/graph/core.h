/* core.h — the ops that the graph and the plan use themselves, one descriptor each.  Rooms above use the same descriptors, so that
   what means the same is one common subexpression, whoever wrote it. */
#ifndef CLEF_CORE_H
#define CLEF_CORE_H
#include "graph/graph.h"
#include "../../cl/epilogue_ops.h"

/* The rows of the op tables that may end a store, each with its bit: of a row `name`, STORE_OF(name) is EPILOGUE_OF_name's second
   part, or 0 where there is none. */
#define EPILOGUE_OF_mul ROW, EPILOGUE_SCALE
#define EPILOGUE_OF_add ROW, EPILOGUE_ADD
#define EPILOGUE_OF_relu_backward ROW, EPILOGUE_GATE
#define EPILOGUE_OF_relu ROW, EPILOGUE_RELU
#define EPILOGUE_OF_leaky_relu ROW, EPILOGUE_LEAK
#define STORE_OF(name) STORE_SECOND(EPILOGUE_OF_##name, 0, 0)
#define STORE_SECOND(...) STORE_SECOND_(__VA_ARGS__)
#define STORE_SECOND_(a, b, ...) b

extern const clef_op clef__op_data;     /* a buffer filled from outside */
extern const clef_op clef__op_constant; /* one number in every element: dynamic.i of i64, else dynamic.f */
extern const clef_op clef__op_alias;    /* the same memory under another node */
extern const clef_op clef__op_copy;     /* the same value in row-major memory of its own */
/* Has the context a device of this number?  If not, fails with a line in op's name. */
bool clef__check_device(clef_context *ctx, const char *op, int device);
extern const clef_op clef__op_transfer; /* the same value on another device; attributes: int64_t device */
extern const clef_op clef__op_cast;     /* the same value in another dtype; attributes: int64_t dtype */
extern const clef_op clef__op_add;      /* a + b of equal shapes */

/* A computed value over a row-major buffer, whose reference it takes, with a reference for the caller; NULL when out of memory. */
clef__output *clef__data_output(clef_context *ctx, clef_shape shape, clef_dtype dtype, int device, clef__buffer *buffer);
/* A constant: `value` in every element, handed to kernels as an argument; it takes no memory. */
clef_tensor *clef__constant(clef_context *ctx, clef_shape shape, clef_dtype dtype, int device, double value);
/* The same of i64, exact. */
clef_tensor *clef__constant_integer(clef_context *ctx, clef_shape shape, int device, int64_t value);
/* The number of a constant; of i64 the nearest double. */
static inline double clef__constant_number(const clef__node *node) {
    return node->out->dtype == CLEF_I64 ? (double)node->dynamic.i : node->dynamic.f;
}
/* Is this a constant that is still nothing but a number, with no memory and no gradient? */
static inline bool clef__is_number(const clef__output *out) {
    return out->node->op->kind == CLEF__CONSTANT && !out->buffer && !out->requires_grad;
}
/* The nearest number that a kernel's argument for this dtype can hold (u8 and bool compute in i32); NaN is 0 in integers.
   2^63 stands for the largest i64, which no double is. */
double clef__saturated(clef_dtype dtype, double value);
static inline int64_t clef__whole_number(double saturated) { return saturated < 0x1p63 ? (int64_t)saturated : INT64_MAX; }
/* What a tensor of this dtype would hold in memory, so that a constant gives the same as a tensor filled with it. */
double clef__held(clef_dtype dtype, double value);

/* x in this dtype, which its device must know; x itself if that is its own. */
clef_tensor *clef__cast(clef_tensor *x, clef_dtype dtype);
#endif
