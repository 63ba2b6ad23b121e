/* lower.h — the words in which an op's strategy says how to compute a node: operands, scratch, launches.

   Failures stick in the lowering, so a strategy needs no checks.  A node without any element of output never reaches a strategy; empty inputs may
   (a sum over nothing, k = 0): emit clef__lower_fill then.
   Kernel arguments of a tensor are two: `__global T *p, long offset` (elements), in the order of the calls. */
#ifndef CLEF_LOWER_H
#define CLEF_LOWER_H
#include "graph/graph.h"

/* A strided window on a value that the plan will place. */
typedef struct clef__operand {
    int value; /* the plan's number of the memory behind it */
    clef_dtype dtype;
    int rank;
    int64_t offset; /* elements, within the value */
    int64_t dim[CLEF_MAX_RANK], stride[CLEF_MAX_RANK];
} clef__operand;

const clef__node *clef__lower_node(const clef__lowering *lw);
const clef__profile *clef__lower_profile(const clef__lowering *lw);
const clef_device_info *clef__lower_device(const clef__lowering *lw); /* as clef__device_planned */
clef__matrix_unit clef__lower_matrix_unit(const clef__lowering *lw);
bool clef__lower_tf32(const clef__lowering *lw); /* may f32 be multiplied in TF32, and can that unit do it? */
clef__shuffle clef__lower_shuffle(const clef__lowering *lw);
/* Of the rows of src/kernels/gemm_table.c: the product they are asked about. */
struct clef__gemm *clef__lower_product(const clef__lowering *lw);

/* Input i as it lies: any strides, 0 and negative ones too.  It takes a launch to make a constant that lies nowhere yet, and to
   copy what a view looks at where it cannot be seen as that view: so ask before a launch begins. */
clef__operand clef__lower_in(const clef__lowering *lw, int i);
/* The same, in the type in which it is stored: where a weight of a half type is converted to f32 for this node, the weight itself.
   The strategy converts where it reads. */
clef__operand clef__lower_in_stored(const clef__lowering *lw, int i);
/* Input i, dense with dimensions in memory order `order` (outermost first; NULL: row-major); copied if it lies otherwise. */
clef__operand clef__lower_in_dense(const clef__lowering *lw, int i, const int *order);
/* Does input i already lie dense in this order?  (Dimensions of 1 do not matter.) */
bool clef__lower_is_dense(const clef__operand *x, const int *order);
/* Dimensions of a dense operand from outermost to innermost in memory, those of 1 first; false if it is dense in no order. */
bool clef__memory_order(const clef__operand *x, int *order);
/* The node's only output, dense in this order.  Call once. */
clef__operand clef__lower_out(const clef__lowering *lw, const int *order);
/* For ops with `updates`, in place of clef__lower_out: the output with the numbers of input 0 in it, for launches that write others in
   places.  It is input 0's own memory where nobody wants the former value (overwrite.c), else a copy.  What other inputs lie in that
   memory must be read before it is written to: clef__lower_apart. */
clef__operand clef__lower_updated(const clef__lowering *lw);
/* x, or a copy of it if it lies in the same value as y. */
clef__operand clef__lower_apart(const clef__lowering *lw, clef__operand x, const clef__operand *y);
/* Output k of several, as clef__lower_out.  One that is not wanted may be left out; else it is memory that nobody reads. */
clef__operand clef__lower_output(const clef__lowering *lw, int k, const int *order);
/* Is x a parameter that is read in inference?  What clef__launch_prepacks makes of it is kept, so it costs nothing in the long run. */
bool clef__lower_lasts(const clef__lowering *lw, const clef__operand *x);
/* Is x a leaf that this plan leaves as it is?  What clef__launch_prepacks makes of it is kept if it is asked for again. */
bool clef__lower_stays(const clef__lowering *lw, const clef__operand *x);
/* How many nodes of the graph read the value of x: views of it, gradients and updates among them. */
int clef__lower_readers(const clef__lowering *lw, const clef__operand *x);
/* Does anybody read output k? */
bool clef__lower_wants(const clef__lowering *lw, int k);
/* ---- epilogue: pointwise ops done in the store of a node's kernel (epilogue.c, cl/epilogue.h) ---- */
typedef struct clef__epilogue {
    int ops;             /* bits of cl/epilogue_ops.h; 0: nothing */
    clef__operand extra; /* lies as the output does */
    int scale;           /* the captured node of a constant */
    clef__operand bias;  /* contiguous along the last dimension */
    int64_t bias_z;      /* to the bias of the next product of a batch, group of a convolution */
} clef__epilogue;
/* For ops with `epilogue`, after clef__lower_out while no launch is open: what the strategy takes upon itself for `out`.  One that
   does not ask, or gets nothing as the extra operand lies otherwise, has it done by a launch of its own. */
clef__epilogue clef__lower_epilogue(const clef__lowering *lw, clef__operand out);
/* The same of a product or a convolution, whose third input is a bias, if there is one. */
clef__epilogue clef__lower_biased_epilogue(const clef__lowering *lw, clef__operand out);
/* The arguments of EPILOGUE (cl/args.h) for a kernel that writes to `out`, or to a part of it with another offset; any epilogue, none
   too. */
void clef__launch_epilogue(const clef__lowering *lw, const clef__epilogue *epilogue, clef__operand out);
void clef__launch_biased_epilogue(const clef__lowering *lw, const clef__epilogue *epilogue, clef__operand out);

/* ---- prologue: pointwise ops done in the loads of a node's kernel (prologue.c) ---- */
/* For ops with `prologue`, before input 0 is asked for: true if pointwise ops that nobody else reads make that input, and their
   operands lie as one or repeat.  Then *x tells its layout, dense, and has no memory.  A strategy that does not ask gets it in
   memory. The kernel's vectors keep within runs: the innermost dimensions in memory as long as they are all in `mask`, or none is.
 */
bool clef__lower_prologue(const clef__lowering *lw, int64_t mask, clef__operand *x);
static inline bool clef__is_computed(const clef__operand *x) { return x->value < 0; }
/* x as the first input of the open launch, whose kernel reads `lanes` elements at a time, or one: two arguments, or those of its
   VALUE, whose text goes in front of the kernel's file; not among its numbers. */
void clef__launch_read(const clef__lowering *lw, const clef__operand *x, int lanes);

/* Memory that lives for this node only; row-major. */
clef__operand clef__lower_scratch(const clef__lowering *lw, clef_dtype dtype, clef_shape shape);
/* The same with dimensions in memory order `order`. */
clef__operand clef__lower_scratch_in(const clef__lowering *lw, clef_dtype dtype, clef_shape shape, const int *order);
/* x seen in a shape to which it broadcasts. */
clef__operand clef__broadcast_operand(clef__operand x, clef_shape shape);

/* to := from, elementwise with dtype conversion; shapes equal, any strides. */
void clef__lower_copy(const clef__lowering *lw, clef__operand to, clef__operand from);
/* to := to + from; the same. */
void clef__lower_add(const clef__lowering *lw, clef__operand to, clef__operand from);
/* to := value. */
void clef__lower_fill(const clef__lowering *lw, clef__operand to, double value);

/* Zeroed host memory for a strategy, for clef__free; NULL where there is none: then the recording has failed. */
void *clef__lower_room(const clef__lowering *lw, size_t bytes);

/* One launch: begin, then defines and arguments in the kernel's order, then end. */
void clef__launch_begin(const clef__lowering *lw, const char *file, const char *kernel); /* file of cl/, "gemm.cl" */
void clef__launch_define(const clef__lowering *lw, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void clef__launch_tensor(const clef__lowering *lw, clef__operand x, bool writes); /* a pointer and its offset */
void clef__launch_unread(const clef__lowering *lw, clef__operand x); /* the same, in place of an operand that there is not */
void clef__launch_long(const clef__lowering *lw, int64_t value);     /* long */
void clef__launch_int(const clef__lowering *lw, int32_t value);      /* int */
void clef__launch_longs(const clef__lowering *lw, const int64_t *value, size_t n);
void clef__launch_ints(const clef__lowering *lw, const int64_t *value, size_t n);
void clef__launch_float(const clef__lowering *lw, float value); /* float */
/* The open launch's kernel is in this text, which is taken over; it was begun with file NULL. */
void clef__launch_text(const clef__lowering *lw, char *text);
/* Is input i nothing but one number?  Then it is no memory but an argument. */
bool clef__lower_is_number(const clef__lowering *lw, int i);
void clef__launch_number(const clef__lowering *lw, int i, clef_dtype dtype); /* 0 unless it is */
void clef__launch_dynamic(const clef__lowering *lw, int i); /* ulong: the node's dynamic.u[i], read anew at each replay */
/* How many operations it does; else it is taken to do its part of its node's. */
void clef__launch_flops(const clef__lowering *lw, double flops);
void clef__launch_end(const clef__lowering *lw, const size_t global[3], const size_t local[3]);
/* Marks the open launch: it only brings its one input into another form (packed, padded, converted), so equal ones of one value
   are one launch (derive.c). */
void clef__launch_derives(const clef__lowering *lw);
/* The same, and while that input is unchanged from run to run the result is kept (derived.c): for forms of weights. */
void clef__launch_prepacks(const clef__lowering *lw);
/* A one-dimensional launch of about `items` independent work-items with the profile's local size; the kernel must ignore
   ids ≥ items (pass items as an argument). */
void clef__launch_end_1d(const clef__lowering *lw, int64_t items);
/* How many work-items a one-dimensional range of n should be partitioned into on this device: on a CPU a few per unit, none with less than
   at_least_per_item; on a GPU one for each of n, up to as many as keep it busy. */
int64_t clef__lower_items(const clef__lowering *lw, int64_t n, int64_t at_least_per_item);

/* Does so much work pay for starting more than one compute unit?  `work` counts elements that a kernel goes through, of which a unit
   is taken to do 4096 in a microsecond; a product's or a function's are several. */
bool clef__lower_pays(const clef__lowering *lw, double work);
/* How many of n pieces a work-item does one after the other, each of so many elements: all where others do not pay. */
int64_t clef__lower_run(const clef__lowering *lw, int64_t n, double work);

/* A function in place of one kernel: it queues work on a device, or is itself the work, on the host. */
enum { CLEF__ROUTINE_OPERANDS = 3 };
typedef struct clef__routine {
    const char *name; /* in a printed plan */
    /* x, offset (elements): of the launch's tensors, anew at each replay. */
    clef_status (*queue)(clef__device *device, const void *what, clef__buffer *const x[], const int64_t offset[],
                         const char *label);
    /* How long it will take.  It may measure first, if there is time before the deadline (by clef__now); infinity: not known. */
    double (*seconds)(clef__device *device, const void *what, double deadline);
    /* In place of these two: clef__host_task.work, with the bytes of the launch's tensors and what both its numbers of clef__launch_dynamic
       are at each replay.  Visits run in the order of the plan, beside its kernels. */
    clef_status (*visit)(const void *what, const uint64_t *number, void *const *memory, char *line);
} clef__routine;
/* Ends a launch that was begun with NULL and a static name, and has CLEF__ROUTINE_OPERANDS tensors; that of a visit any number, all dense, and
   then both dynamic numbers.  `what` is copied. */
void clef__launch_routine(const clef__lowering *lw, const clef__routine *routine, const void *what, size_t size);

/* ---- knobs: what tuning results may set (select.c) ----
   A strategy works by itself; the knobs of its family let tuning results set it otherwise.  A value of 0 leaves a knob to the
   strategy, which keeps every other value within what the node allows: results hold for a bucket of sizes, not for one. */
enum { CLEF__KNOBS = CLEF__TUNED_KNOBS, CLEF__KNOB_VALUES = 12 };
typedef struct clef__knob {
    const char *name;
    bool compiled;                /* another value is another kernel */
    int value[CLEF__KNOB_VALUES]; /* those there are, ascending, then 0 */
} clef__knob;
typedef struct clef__knobs {
    int value[CLEF__KNOBS];
} clef__knobs;
typedef struct clef__knob_seed {
    const char *profiles; /* of cl/profile.def, that it is good for: "cpu minimal" */
    clef__knobs knobs;
} clef__knob_seed;
struct clef__family {
    const char *name;
    const char *files; /* of cl/, that a result is about: "gemm.cl pack.cl"; NULL: all */
    const clef__knob *knob;
    int n_knobs;
    const clef__knob_seed *seed;
    int n_seeds;
};
/* The knobs for sizes like these; all 0 where nothing was measured.  Call it before the launches it is about. */
clef__knobs clef__lower_knobs(const clef__lowering *lw, const clef__family *family, clef_dtype dtype, const int64_t *size, int n);

/* "-D" token of a dtype for cl/common.h: f32, f16, … */
static inline const char *clef__token(clef_dtype dtype) { return clef_dtype_name(dtype); }
#endif
