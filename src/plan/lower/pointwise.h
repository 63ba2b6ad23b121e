/* pointwise.h — kernels that are generated from the formulas of pointwise ops. */
#ifndef CLEF_POINTWISE_KERNEL_H
#define CLEF_POINTWISE_KERNEL_H
#include "plan/lower/lowering.h"

/* A pointwise kernel to be: operands, then steps that compute on operands and earlier steps, then what is stored. */
enum {
    CLEF__PW_SEGMENTS = 16, /* the most in one launch */
    CLEF__PW_FIRST = 3,     /* the argument where the first begins: its position, its length, numbers, tensors */
    CLEF__PW_COLUMNS = 4    /* its length */
};
typedef struct clef__pw_operand {
    bool constant; /* the number of a captured constant, or `number` when `captured` is -1 */
    int captured;
    double number;
    clef_dtype dtype;
    clef__operand x;      /* broadcast to the kernel's shape */
    bool single;          /* of VALUE: the same number for all of its elements */
    int32_t each, period; /* of VALUE, whose element i is this one's i / each % period; 0: without that part */
} clef__pw_operand;
typedef struct clef__pw_step {
    const clef_op *op;
    clef_dtype dtype;
    int n_inputs, input[8]; /* operand i, or step j as CLEF__PW_OPERANDS + j */
} clef__pw_step;
typedef struct clef__pointwise {
    clef_shape shape;
    clef__pw_operand operand[CLEF__PW_OPERANDS];
    clef__pw_step step[CLEF__PW_STEPS];
    struct {
        int from;
        clef__operand to;
    } store[CLEF__PW_OPERANDS];
    int n_operands, n_steps, n_stores;
} clef__pointwise;
/* lower_groups.c: operands and steps of the members, all pointwise; inner_uses: how often each step is read by another. */
void clef__add_steps(const clef__lowering *lw, const clef__group *group, clef__pointwise *p, int *inner_uses);
/* lower_groups.c: a launch that computes the members, all pointwise. */
void clef__lower_group(clef__recorder *rec, const clef__group *group);
/* codegen.c: text that defines INPUTS, PASSED and VALUE(n, i) for n = 1 and W = `width`: the last step from element i on, where
   tensors lie alike or repeat; NULL without host memory. */
char *clef__value_source(const clef__pointwise *p, int width);
/* generated.c: emits the launch. */
void clef__lower_pointwise(const clef__lowering *lw, const clef__pointwise *p, const char *label);
/* One launch, at the end of the plan, that does what these n do, which have segments and equal text; its text has room for `count`.
 */
void clef__lower_bundle(clef__recorder *rec, const int *launch, int n, int count);
#endif
