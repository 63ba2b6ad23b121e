/* lower_epilogue.c — what follows a kernel in its store, as arguments of its launch. */
#include "plan/lower/lowering.h"

static bool lies_as(const clef__operand *x, const clef__operand *y) {
    clef_shape shape = clef__operand_shape(x);
    return x->dtype == y->dtype && clef_shape_equal(shape, clef__operand_shape(y)) && clef__same_strides(shape, x->stride, y->stride);
}

clef__epilogue clef__lower_epilogue(const clef__lowering *lw, clef__operand out) {
    const clef__following *following = lw->following;
    clef__epilogue epilogue = {0};
    if (!following) return epilogue;
    epilogue.after = following->after;
    epilogue.scale = following->scale;
    if (clef__follows_with_operand(following->after)) {
        epilogue.extra = clef__item_operand(lw, following->extra);
        if (!lies_as(&epilogue.extra, &out)) return (clef__epilogue){0};
    }
    lw->following = NULL;
    return epilogue;
}

void clef__launch_epilogue(const clef__lowering *lw, const clef__epilogue *epilogue, clef__operand out) {
    clef__operand extra = clef__follows_with_operand(epilogue->after) ? epilogue->extra : out; /* which then is not read */
    if (clef__follows_with_operand(epilogue->after)) extra.offset += out.offset;
    clef__launch_tensor(lw, extra, false);
    clef__launch_constant(lw, clef__follows_with_number(epilogue->after) ? epilogue->scale : -1, 1, out.dtype);
    clef__launch_int(lw, epilogue->after);
    for (int bit = 1; bit <= epilogue->after; bit <<= 1)
        if (epilogue->after & bit) clef__launch_name(lw, clef__follower_name(bit), true);
}
