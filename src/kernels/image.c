/* image.c — images with channels innermost, padded where a kernel would otherwise have to branch at the border. */
#include "kernels/image.h"
#include "kernels/args.h"
#include "pack.args"

CLEF__ARGS(pad, PAD_ARGS)

const int clef__channels_last[4] = {0, 2, 3, 1};

clef__image clef__image_of(clef__operand x) {
    return (clef__image){.data = x,
                         .n = x.dim[0],
                         .c = x.dim[1],
                         .h = x.dim[2],
                         .w = x.dim[3],
                         .sn = x.dim[1] * x.dim[2] * x.dim[3],
                         .sh = x.dim[1] * x.dim[3],
                         .sw = x.dim[1]};
}

/* to := x, [n, c, h, w] of any strides, with zeros around it. */
static void pad(const clef__lowering *lw, clef__operand x, clef__operand to, const int64_t before[2], const int64_t after[2]) {
    bool whole_rows = clef__lower_profile(lw)->wide_items;
    int64_t rows = to.dim[0] * to.dim[1], elements = rows * to.dim[2] * to.dim[3];
    clef__launch_begin(lw, "pack.cl", whole_rows ? "pad" : "pad_elements");
    clef__launch_derives(lw);
    clef__launch_define(lw, "W", "%d",
                        clef__lower_profile(lw)->vector); /* as products pack what they read: one program with that */
    clef__launch_define(lw, "IN", "%s", clef__token(x.dtype));
    clef__launch_define(lw, "OUT", "%s", clef__token(to.dtype));
    /* clang-format off */
    pad_args args = {
        .from = x, .to = to, .units = whole_rows ? rows : elements, .h = x.dim[2], .w = x.dim[3], .c = x.dim[1],
        .sn = x.stride[0], .sh = x.stride[2], .sw = x.stride[3], .sc = x.stride[1],
        .before_h = before[0], .after_h = after[0], .before_w = before[1], .after_w = after[1],
    };
    /* clang-format on */
    pass_pad(lw, &args);
    clef__launch_end_1d(lw, args.units);
}

clef__image clef__image_padded(const clef__lowering *lw, int i, clef_dtype type, const int64_t before[2], const int64_t after[2]) {
    clef__operand x = clef__lower_in(lw, i);
    bool padded = before[0] || before[1] || after[0] || after[1];
    if (!padded && x.dtype == type && clef__lower_is_dense(&x, clef__channels_last)) return clef__image_of(x);
    int64_t n = x.dim[0], c = x.dim[1], h = x.dim[2] + before[0] + after[0], w = x.dim[3] + before[1] + after[1];
    clef__image image = {.data = x, .n = n, .c = c, .h = h, .w = w, .sn = c * h * w, .sh = c * w, .sw = c};
    if (n * c * h * w == 0) return image; /* nothing to read */
    clef__operand to = image.data = clef__lower_scratch(lw, type, CLEF_SHAPE(n, h, w, c));
    if (x.dim[2] * x.dim[3] == 0) { /* zeros all over */
        clef__lower_fill(lw, to, 0);
        return image;
    }
    pad(lw, x, to, before, after);
    return image;
}

clef__image clef__image_in(const clef__lowering *lw, int i) {
    static const int64_t none[2];
    return clef__image_padded(lw, i, clef__lower_in(lw, i).dtype, none, none);
}
