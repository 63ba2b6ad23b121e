/* ops.h — what the files of this room share, and what nn and optim may build on. */
#ifndef CLEF_OPS_INTERNAL_H
#define CLEF_OPS_INTERNAL_H
#include "clef/ops.h"
#include "clef/pointwise.h"
#include "graph/graph.h"
#include "plan/lower.h"
#include "runtime/arithmetic.h"

/* ---- contracts (contract.c) ----
   Gradients and compositions call ops with shapes that the library worked out itself.  An op says in infer what it takes for
   granted of them: a contradiction is then an error line (CLEF_INTERNAL), and never a write out of bounds. */
/* False, with a line that says "not so that WHAT", unless it holds. */
bool clef__infer_takes(clef__call *call, bool holds, const char *what);
bool clef__same_shape(const clef__call *call, int i, int k);

/* ---- products and convolutions (matmul.c) ---- */
/* In infer: all inputs have one dtype, which can be multiplied; it is the result's. */
bool clef__infer_product(clef__call *call);
/* In infer: input 2, where there is one, is a number for each of w's first dimension. */
bool clef__infer_bias(clef__call *call, clef_shape w);

/* ---- dtypes (cast.c) ---- */
bool clef__is_float(clef_dtype dtype);
/* The dtype that holds both: bool < u8 < i32 < i64 < f16, bf16 < f32 < f64; f16 with bf16 gives f32. */
clef_dtype clef__promote(clef_dtype a, clef_dtype b);
/* x if it is floating, else x as f32. */
clef_tensor *clef__to_float(clef_tensor *x);
/* f16 and bf16 become f32, for results that need more range on the way. */
clef_tensor *clef__to_wide(clef_tensor *x);
extern const clef_op clef__op_cast;

/* ---- constants (cast.c) ---- */
/* The nearest number that a kernel's argument for this dtype can hold (u8 and bool compute in i32); NaN is 0 in integers.
   2^63 stands for the largest i64, which no double is. */
double clef__saturated(clef_dtype dtype, double value);
/* A number beside a tensor of this dtype in a pointwise op: a kernel argument, no memory, and not rounded to f16 or bf16, nor
   kept within u8, so that a clamp of u8 to [-1, 2] is what it says. */
clef_tensor *clef__number(clef_context *ctx, clef_dtype dtype, double value);
/* Would this number change the dtype of a whole-number tensor (0.5, NaN)? */
bool clef__is_fraction(double value);

/* ---- shapes (movement.c) ---- */
/* Sums x over what was broadcast from `shape`, giving that shape: the gradient of a broadcast. */
clef_tensor *clef__sum_to(clef_tensor *x, clef_shape shape);
/* x inside a block of `value`: element i of dimension d lands at start[d] + i·step[d].  The adjoint of a slice. */
clef_tensor *clef__into_window(clef_tensor *x, clef_shape shape, const int64_t *start, const int64_t *step, double value);
/* x with x[start + i·step], count elements, in every dimension. */
clef_tensor *clef__window(clef_tensor *x, const int64_t *start, const int64_t *step, const int64_t *count);
/* A [c] tensor as [1,c,1,…] of this rank (2 or more), which broadcasts along dimension 1. */
clef_tensor *clef__per_channel(clef_tensor *v, int rank);

/* ---- reductions (reduce.c) ---- */
/* How many dimensions a reduction or softmax of x can name: a scalar counts as one element long. */
int clef__nameable_dims(clef_tensor *x);
/* An input as the three-dimensional block [outer, n, inner] in memory around the reduced dimension(s). */
typedef struct clef__axes {
    int64_t outer, n, inner;
} clef__axes;
/* Input 0 dense in memory order (copied to row-major if it is in none) around one dimension, and that order. */
clef__operand clef__lower_along(clef__lowering *l, int dim, int *order, clef__axes *axes);
/* Ends a launch whose kernel works on `units`, each of about `work` elements: adds the arguments (long units, long per), where
   a work-item takes `per` units one after the other. */
void clef__launch_units(clef__lowering *l, int64_t units, int64_t work);
/* Vector lanes worth using along n contiguous elements: the device's, 4 or 1. */
int clef__lower_lanes(const clef__lowering *l, int64_t n);
/* Begins a launch with the knobs DT and W (lanes worth using along n elements). */
void clef__launch_lanes(clef__lowering *l, const char *file, const char *kernel, clef_dtype dtype, int64_t n);
/* A number as two floats, for REAL of cl/lanes.h. */
void clef__launch_real(clef__lowering *l, double value);

/* ---- source.c ---- */
/* A computed node over a row-major buffer, whose reference it takes; NULL when out of memory. */
clef__node *clef__data_node(clef_context *ctx, clef_shape shape, clef_dtype dtype, int device, clef__buffer *buffer);

#endif
