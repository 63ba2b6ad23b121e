/* image.c — images with channels innermost, padded where a kernel would otherwise have to branch at the border. */
#include "kernels/image.h"

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
    bool whole_rows = clef__lower_profile(lw)->wide_items;
    clef__launch_begin(lw, "pack.cl", whole_rows ? "pad" : "pad_elements");
    clef__launch_derives(lw);
    clef__launch_define(lw, "W", "%d",
                        clef__lower_profile(lw)->vector); /* as products pack what they read: one program with that */
    clef__launch_define(lw, "IN", "%s", clef__token(x.dtype));
    clef__launch_define(lw, "OUT", "%s", clef__token(type));
    clef__launch_tensor(lw, x, false);
    clef__launch_tensor(lw, to, true);
    if (whole_rows) clef__launch_int(lw, (int32_t)(n * h));
    else clef__launch_long(lw, n * h * w * c);
    clef__launch_int(lw, (int32_t)x.dim[2]);
    clef__launch_int(lw, (int32_t)x.dim[3]);
    clef__launch_int(lw, (int32_t)c);
    clef__launch_long(lw, x.stride[0]);
    clef__launch_long(lw, x.stride[2]);
    clef__launch_long(lw, x.stride[3]);
    clef__launch_long(lw, x.stride[1]);
    for (int d = 0; d < 2; d++) {
        clef__launch_int(lw, (int32_t)before[d]);
        clef__launch_int(lw, (int32_t)after[d]);
    }
    clef__launch_end_1d(lw, whole_rows ? n * h : n * h * w * c);
    return image;
}

clef__image clef__image_in(const clef__lowering *lw, int i) {
    static const int64_t none[2];
    return clef__image_padded(lw, i, clef__lower_in(lw, i).dtype, none, none);
}
