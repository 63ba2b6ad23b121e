/* lower_fused.c — pointwise work inside another node's kernel: the epilogue in its store, the prologue in its loads. */
#include "plan/lower/pointwise.h"

/* ---- epilogue ---- */

static bool same_layout(const clef__operand *x, const clef__operand *y) {
    clef_shape shape = clef__operand_shape(x);
    return x->dtype == y->dtype && clef_shape_equal(shape, clef__operand_shape(y)) &&
           clef__same_strides(shape, x->stride, y->stride);
}

clef__epilogue clef__lower_epilogue(const clef__lowering *lw, clef__operand out) {
    const clef__epilogue_ops *offered = lw->rec->epilogue;
    clef__epilogue epilogue = {0};
    if (!offered) return epilogue;
    epilogue.ops = offered->ops;
    epilogue.scale = offered->scale;
    if (clef__epilogue_takes_operand(offered->ops)) {
        epilogue.extra = clef__captured_operand(lw, offered->extra);
        if (!same_layout(&epilogue.extra, &out)) return (clef__epilogue){0};
    }
    lw->rec->epilogue = NULL;
    return epilogue;
}

clef__epilogue clef__lower_biased_epilogue(const clef__lowering *lw, clef__operand out) {
    clef__epilogue epilogue = clef__lower_epilogue(lw, out);
    if (lw->node->n_inputs < 3) return epilogue;
    epilogue.ops |= EPILOGUE_BIAS;
    epilogue.bias = clef__lower_in_dense(lw, 2, NULL);
    return epilogue;
}

void clef__launch_epilogue(const clef__lowering *lw, const clef__epilogue *epilogue, clef__operand out) {
    clef__operand extra = epilogue->extra;
    extra.offset += out.offset;
    if (clef__epilogue_takes_operand(epilogue->ops)) clef__launch_tensor(lw, extra, false);
    else clef__launch_unread(lw, out);
    clef__launch_constant(lw, clef__epilogue_takes_number(epilogue->ops) ? epilogue->scale : -1, 1, out.dtype);
    clef__launch_int(lw, epilogue->ops);
    for (int bit = EPILOGUE_SCALE; bit <= epilogue->ops; bit <<= 1)
        if (epilogue->ops & bit) clef__launch_name(lw, clef__epilogue_op_name(bit), true);
}

void clef__launch_biased_epilogue(const clef__lowering *lw, const clef__epilogue *epilogue, clef__operand out) {
    if (epilogue->ops & EPILOGUE_BIAS) clef__launch_tensor(lw, epilogue->bias, false);
    else clef__launch_unread(lw, out);
    clef__launch_long(lw, epilogue->bias_z);
    clef__launch_epilogue(lw, epilogue, out);
}

/* ---- prologue ---- */

/* An operand that is whole, and its memory order; -1: none is. */
static int find_whole(const clef__pointwise *p, int *order) {
    for (int i = 0; i < p->n_operands; i++)
        if (!p->operand[i].constant && clef__memory_order(&p->operand[i].x, order)) return i;
    return -1;
}

/* Elements of the innermost dimensions in memory that are all in the mask, or all not. */
static int64_t run_of(clef_shape shape, const int *order, int64_t mask) {
    int64_t run = 1;
    int last = -1;
    for (int i = shape.rank - 1; i >= 0; i--) {
        int d = order[i];
        if (shape.dim[d] == 1) continue;
        if (last >= 0 && (mask >> d & 1) != (mask >> last & 1)) break;
        run *= shape.dim[d];
        last = d;
    }
    return run;
}

/* Does the operand lie as the whole, or is it one number, or does it repeat so that it is one or lies dense all along a run? */
static bool can_be_read(clef__pw_operand *operand, clef_shape shape, const int *order, int64_t run) {
    const clef__operand *x = &operand->x;
    int64_t each = 1, period = 1, above = 1;
    for (int i = shape.rank - 1; i >= 0; i--) {
        int64_t size = shape.dim[order[i]], stride = x->stride[order[i]];
        if (size == 1) continue;
        if (stride == 0) *(period == 1 ? &each : &above) *= size;
        else if (stride == period && above == 1) period *= size;
        else return false;
    }
    operand->single = each > 1 && period == 1;
    if (operand->single || (each == 1 && above == 1)) return true;
    if (each > 1) operand->each = (int32_t)each;
    if (above > 1) operand->period = (int32_t)period;
    return (each > 1 ? each : period) % run == 0 && each * period * above <= INT32_MAX;
}

static bool can_read_all(clef__pointwise *p, const int *order, int64_t mask) {
    int64_t run = run_of(p->shape, order, mask);
    for (int i = 0; i < p->n_operands; i++)
        if (!p->operand[i].constant && !can_be_read(&p->operand[i], p->shape, order, run)) return false;
    return true;
}

bool clef__lower_prologue(const clef__lowering *lw, int64_t mask, clef__operand *x) {
    clef__recorder *rec = lw->rec;
    const clef__group *group = rec->prologue;
    int inner_uses[CLEF__PW_STEPS] = {0}, order[CLEF_MAX_RANK];
    if (!group) return false;
    rec->prologue = NULL;
    rec->computed = clef__calloc(1, sizeof *rec->computed);
    if (!rec->computed) {
        clef__record_fail(rec);
        return false;
    }
    rec->computed->shape = lw->node->input[0]->shape;
    clef__add_steps(lw, group, rec->computed, inner_uses);
    int whole = rec->failed ? -1 : find_whole(rec->computed, order);
    if (whole >= 0 && can_read_all(rec->computed, order, mask)) {
        *x = rec->computed->operand[whole].x;
        x->value = -1;
        x->offset = 0;
        x->dtype = lw->node->input[0]->dtype;
        return true;
    }
    clef__free(rec->computed);
    rec->computed = NULL;
    clef__lower_group(rec, group);
    return false;
}

/* The arguments of its VALUE, whose text goes in front of the kernel's file. */
static void read_computed(const clef__lowering *lw, int lanes) {
    const clef__pointwise *p = lw->rec->computed;
    for (int i = 0; i < p->n_steps; i++) clef__launch_name(lw, p->step[i].op->name, i > 0);
    clef__launch_name(lw, lw->node->op->name, true);
    for (int i = 0; i < p->n_operands; i++) {
        const clef__pw_operand *operand = &p->operand[i];
        if (operand->constant) clef__launch_constant(lw, operand->captured, operand->number, operand->dtype);
        else clef__launch_tensor(lw, operand->x, false);
        if (operand->each) clef__launch_int(lw, operand->each);
        if (operand->period) clef__launch_int(lw, operand->period);
    }
    lw->rec->text = clef__value_source(p, lanes);
    if (!lw->rec->text) clef__record_fail(lw->rec);
}

void clef__launch_read(const clef__lowering *lw, const clef__operand *x, int lanes) {
    if (lw->rec->failed) return;
    lw->rec->apart = true;
    if (clef__is_computed(x)) read_computed(lw, lanes);
    else clef__launch_tensor(lw, *x, false);
    lw->rec->apart = false;
}
