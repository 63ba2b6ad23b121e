/* winograd.c — a strategy for convolution with filters of 3 × 3 on GPUs, and for its gradient by the image, which is the same
   with the flipped filters: fewer multiplications for more memory (cl/winograd.cl). */
#include "kernels/args.h"
#include "kernels/conv.h"
#include "kernels/gemm.h"
#include "kernels/image.h"
#include "plan/lower/cost.h"
#include "runtime/arithmetic.h"
#include "winograd.args"

CLEF__ARGS(winograd_image, WINOGRAD_IMAGE_ARGS)
CLEF__ARGS(winograd_filters, WINOGRAD_FILTERS_ARGS)
CLEF__ARGS(winograd_result, WINOGRAD_RESULT_ARGS)

enum {
    PRODUCTS = 16,         /* in place of 36 for four pixels */
    CHUNK_BYTES = 64 << 20 /* images go through in chunks whose transforms take no more */
};

static int64_t tiles_of(int64_t length) { return clef__ceil_div(length, 2); }

/* Not where the error is more than four times that of a plain sum (other dtypes). */
static bool applies(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    return clef__winograd_computes(node->attributes) && clef__lower_profile(lw)->block > 0 && node->out->dtype == CLEF_F32 &&
           clef_shape_numel(node->input[0]->shape) > 0;
}

/* ---- launches ---- */
static clef__operand transform_image(const clef__lowering *lw, clef__operand x, const int64_t before[2], int64_t tiles_h,
                                     int64_t tiles_w) {
    int64_t tiles = x.dim[0] * tiles_h * tiles_w, c = x.dim[1];
    clef__operand to = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(PRODUCTS, tiles, c));
    clef__launch_begin(lw, "winograd.cl", "winograd_image");
    clef__launch_derives(lw);
    /* clang-format off */
    winograd_image_args args = {
        .x = x, .to = to, .c = c, .h = x.dim[2], .w = x.dim[3],
        .sn = x.stride[0], .sh = x.stride[2], .sw = x.stride[3], .sc = x.stride[1],
        .before = CLEF__TWO(before), .tiles_h = tiles_h, .tiles_w = tiles_w, .tiles = tiles,
    };
    /* clang-format on */
    pass_winograd_image(lw, &args);
    clef__launch_end_1d(lw, tiles * c);
    return to;
}

/* w lies as filters from channel dim[1] to channel dim[0]. */
static clef__operand transform_filters(const clef__lowering *lw, clef__operand w) {
    clef__operand to = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(PRODUCTS, w.dim[1], w.dim[0]));
    clef__launch_begin(lw, "winograd.cl", "winograd_filters");
    clef__launch_prepacks(lw);
    /* clang-format off */
    winograd_filters_args args = {
        .w = w, .to = to, .c = w.dim[1], .o = w.dim[0],
        .sh = w.stride[2], .sw = w.stride[3], .sc = w.stride[1], .so = w.stride[0],
    };
    /* clang-format on */
    pass_winograd_filters(lw, &args);
    clef__launch_end_1d(lw, w.dim[0] * w.dim[1]);
    return to;
}

/* v [16][tiles][c] times u [16][c][o]. */
static clef__operand multiply(const clef__lowering *lw, clef__operand v, clef__operand u) {
    int64_t tiles = v.dim[1], c = v.dim[2], o = u.dim[2];
    clef__operand m = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(PRODUCTS, tiles, o));
    /* clang-format off */
    clef__gemm_lower(lw, (clef__gemm){
        .m = {1, 1, tiles}, .k = {1, 1, c}, .z = {1, PRODUCTS}, .n = o, .a = v, .b = u, .c = m,
        .a_m = {0, 0, c}, .a_k = {0, 0, 1}, .a_z = {0, tiles * c}, .b_k = {0, 0, o}, .b_n = 1, .b_z = {0, c * o},
        .c_m = {0, 0, o}, .c_n = 1, .c_z = {0, tiles * o}});
    /* clang-format on */
    return m;
}

static void transform_result(const clef__lowering *lw, clef__operand m, const clef__image *y, const clef__epilogue *epilogue) {
    clef__launch_begin(lw, "winograd.cl", "winograd_result");
    /* clang-format off */
    winograd_result_args args = {
        .from = m, .y = y->data, .o = y->c, .h = y->h, .w = y->w,
        .tiles_h = tiles_of(y->h), .tiles_w = tiles_of(y->w), .tiles = m.dim[1], .epilogue = *epilogue,
    };
    /* clang-format on */
    pass_winograd_result(lw, &args);
    clef__launch_end_1d(lw, m.dim[1] * y->c);
}

/* A convolution of input 0 by w, chunk by chunk of its images. */
static void convolve(const clef__lowering *lw, clef__operand w, const int64_t before[2]) {
    clef__operand x = clef__lower_in(lw, 0), u = transform_filters(lw, w);
    clef__image y = clef__image_of(clef__lower_out(lw, clef__channels_last)), part = y;
    clef__epilogue epilogue = clef__lower_biased_epilogue(lw, y.data);
    int64_t tiles_h = tiles_of(y.h), tiles_w = tiles_of(y.w), images = y.n;
    int64_t bytes = PRODUCTS * tiles_h * tiles_w * (x.dim[1] + y.c) * (int64_t)sizeof(float);
    int64_t chunk = clef__larger(CHUNK_BYTES / bytes, 1);
    for (int64_t n = 0; n < images; n += chunk) {
        x.dim[0] = clef__smaller(chunk, images - n);
        transform_result(lw, multiply(lw, transform_image(lw, x, before, tiles_h, tiles_w), u), &part, &epilogue);
        x.offset += x.dim[0] * x.stride[0];
        part.data.offset += x.dim[0] * y.sn;
    }
}

static void winograd_forward(const clef__lowering *lw) {
    const clef__conv *a = clef__lower_node(lw)->attributes;
    convolve(lw, clef__lower_in(lw, 1), a->before);
}

static void winograd_data(const clef__lowering *lw) {
    const clef__conv *a = clef__lower_node(lw)->attributes;
    convolve(lw, clef__filters_flipped(clef__lower_in(lw, 1)), (int64_t[]){2 - a->before[0], 2 - a->before[1]});
}

/* Four launches; what goes from one to the next passes through memory. */
static double cost(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    clef_shape x = node->input[0]->shape, y = node->out->shape;
    int64_t tiles = y.dim[0] * tiles_of(y.dim[2]) * tiles_of(y.dim[3]), c = x.dim[1], o = y.dim[1];
    double floats = (double)(PRODUCTS * tiles), image = (double)clef_shape_numel(x) + floats * (double)c,
           filters = (double)((9 + PRODUCTS) * c * o), result = floats * (double)o + (double)clef_shape_numel(y);
    /* clang-format off */
    clef__gemm g = {
        .m = {1, 1, tiles}, .k = {1, 1, c}, .z = {1, PRODUCTS}, .n = o,
        .a_m = {0, 0, c}, .a_k = {0, 0, 1}, .b_k = {0, 0, o}, .b_n = 1, .c_n = 1,
    };
    /* clang-format on */
    g.a.dtype = g.b.dtype = g.c.dtype = CLEF_F32;
    double seconds = clef__gemm_seconds(lw, g);
    for (int i = 0; i < 3; i++)
        seconds += clef__launch_seconds(lw, &(clef__work){.bytes = sizeof(float) * (i == 0 ? image : i == 1 ? filters : result)});
    return seconds;
}

static double flops(const clef__node *node) {
    return clef__winograd_flops(2, node->out->shape, node->input[0]->shape, node->out->shape);
}

const clef__conv_rows clef__conv_winograd = {
    .forward = {.name = "winograd", .applies = applies, .cost = cost, .flops = flops, .lower = winograd_forward},
    .data = {.name = "winograd", .applies = applies, .cost = cost, .flops = flops, .lower = winograd_data}};
