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

/* Do whole squares of so many lanes fit into the channels of x, and a quarter of one into its pixels?  A kernel without them takes a quarter of
   the time to compile. */
static bool fits_squares(const clef__operand *x, int lanes) {
    bool steps = x->stride[1] != 1 && (x->stride[3] == 1 || x->stride[3] == 2);
    return lanes > 1 && steps && x->dim[1] >= lanes && 4 * x->dim[3] >= lanes;
}

/* to := x, [n, c, h, w] of any strides, with zeros around it. */
static void pad(const clef__lowering *lw, clef__operand x, clef__operand to, const int64_t before[2], const int64_t after[2]) {
    bool whole_rows = clef__lower_profile(lw)->wide_items;
    int lanes = clef__lower_profile(lw)->vector; /* as products pack what they read: one program with that */
    if (lanes > 1 && (clef_dtype_size(x.dtype) == 8 || clef_dtype_size(to.dtype) == 8)) lanes /= 2;
    int64_t rows = to.dim[0] * to.dim[1], elements = rows * to.dim[2] * to.dim[3];
    const char *by_rows = fits_squares(&x, lanes) ? "pad_in_squares" : "pad";
    clef__launch_begin(lw, "pack.cl", whole_rows ? by_rows : "pad_elements");
    clef__launch_derives(lw);
    clef__launch_define(lw, "W", "%d", lanes);
    clef__launch_define(lw, "IN", "%s", clef__token(x.dtype));
    clef__launch_define(lw, "OUT", "%s", clef__token(to.dtype));
    /* clang-format off */
    pad_args args = {
        .from = x, .to = to, .units = whole_rows ? rows : elements,
        .h = x.dim[2], .w = x.dim[3], .c = x.dim[1],
        .sn = x.stride[0], .sh = x.stride[2], .sw = x.stride[3], .sc = x.stride[1],
        .before_h = before[0], .after_h = after[0], .before_w = before[1], .after_w = after[1],
    };
    /* clang-format on */
    pass_pad(lw, &args);
    clef__launch_end_1d(lw, args.units);
}

/* Is a copy to channels-last one of squares in registers (generated.c), along whole images? */
static bool transposes(const clef__lowering *lw, const clef__operand *x) {
    const clef__profile *profile = clef__lower_profile(lw);
    bool rows = x->stride[3] == 1 && x->stride[2] == x->dim[3];
    return profile->wide_items && rows && x->dim[1] >= profile->vector && x->dim[2] * x->dim[3] >= profile->vector;
}

clef__image clef__image_padded(const clef__lowering *lw, int i, clef_dtype type, const int64_t before[2], const int64_t after[2]) {
    clef__operand x = clef__lower_in(lw, i);
    bool as_is = x.dtype == type && !(before[0] || before[1] || after[0] || after[1]);
    if (as_is && clef__lower_is_dense(&x, clef__channels_last)) return clef__image_of(x);
    int64_t n = x.dim[0], c = x.dim[1], h = x.dim[2] + before[0] + after[0], w = x.dim[3] + before[1] + after[1];
    clef__image image = {.data = x, .n = n, .c = c, .h = h, .w = w, .sn = c * h * w, .sh = c * w, .sw = c};
    if (n * c * h * w == 0) return image; /* nothing to read */
    if (as_is && transposes(lw, &x)) return clef__image_of(clef__lower_in_dense(lw, i, clef__channels_last));
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

clef__image clef__image_sampled(const clef__lowering *lw, int i, clef_dtype type, const int64_t stride[2], const int64_t size[2]) {
    static const int64_t none[2];
    clef__operand x = clef__lower_in(lw, i);
    bool lies = x.dtype == type && clef__lower_is_dense(&x, clef__channels_last);
    for (int d = 0; d < 2; d++) {
        x.dim[2 + d] = size[d];
        x.stride[2 + d] *= stride[d];
    }
    clef__image image = clef__image_of(x);
    if (lies) image.sn = x.stride[0], image.sh = x.stride[2], image.sw = x.stride[3];
    if (lies || image.n * image.sn == 0) return image;
    image.data = clef__lower_scratch(lw, type, CLEF_SHAPE(image.n, image.h, image.w, image.c));
    pad(lw, x, image.data, none, none);
    return image;
}
