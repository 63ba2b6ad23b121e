/* fold.c — a strategy for the gradient of a convolution by an image of few channels.

   Elsewhere that gradient is a product whose columns are the channels of the image: few of them leave most lanes of a vector
   idle.  Here the columns are taps × channels: t[pixel of dy][tap, channel] = Σ_o dy[pixel][o] · w[o][tap, channel], of which
   every pixel of the image then gathers its own (cl/fold.cl).  Nothing is multiplied with padding either. */
#include "fold.args"
#include "kernels/args.h"
#include "kernels/conv.h"
#include "kernels/gemm.h"
#include "kernels/image.h"
#include "plan/lower/cost.h"
#include "runtime/arithmetic.h"

CLEF__ARGS(fold, FOLD_ARGS)

enum {
    MOST_FLOATS = 4 << 20, /* of t: memory beyond what the op is about */
    MOST_CHANNELS = 8      /* lanes of cl/fold.cl */
};
static const double EFFICIENCY = 0.08; /* of additions that gather from many places */

static bool applies(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    const clef__conv *a = node->attributes;
    int64_t channels = node->out->shape.dim[1];
    double floats = clef__pixels(node->input[0]->shape) * (double)(a->kernel[0] * a->kernel[1] * channels);
    return clef__lower_profile(lw)->wide_items && a->groups == 1 && channels <= MOST_CHANNELS && floats > 0 &&
           floats <= MOST_FLOATS && clef__gemm_type(node->out->dtype) == CLEF_F32;
}

static int lanes_of(int64_t channels) { return channels <= 4 ? 4 : MOST_CHANNELS; }

static void gather(const clef__lowering *lw, clef__operand t, const clef__image *dx, const int64_t out[2]) {
    const clef__conv *a = clef__lower_node(lw)->attributes;
    const int64_t taps = a->kernel[0] * a->kernel[1];
    int64_t rows = dx->n * dx->h, run = clef__lower_run(lw, rows, (double)(taps * dx->c * dx->w));
    clef__launch_begin(lw, "fold.cl", "fold");
    clef__launch_define(lw, "OUT", "%s", clef__token(dx->data.dtype));
    clef__launch_define(lw, "W", "%d", lanes_of(dx->c));
    /* clang-format off */
    fold_args args = {
        .t = t, .to = dx->data, .rows = rows, .run = run, .c = dx->c, .height = dx->h, .width = dx->w,
        .out = CLEF__TWO(out), .taps = CLEF__TWO(a->kernel), .stride = CLEF__TWO(a->stride), .dilation = CLEF__TWO(a->dilation),
        .step_h = clef__tap_step(a->stride[0], a->dilation[0]), .step_w = clef__tap_step(a->stride[1], a->dilation[1]),
        .before = CLEF__TWO(a->before),
    };
    /* clang-format on */
    pass_fold(lw, &args);
    clef__launch_end_1d(lw, clef__ceil_div(rows, run));
}

static void fold_data(const clef__lowering *lw) {
    static const int64_t no_padding[2];
    const clef__conv *a = clef__lower_node(lw)->attributes;
    clef__operand w = clef__lower_in_dense(lw, 1, clef__filters_last);
    clef__image dy = clef__image_padded(lw, 0, CLEF_F32, no_padding, no_padding);
    clef__image dx = clef__image_of(clef__lower_out(lw, clef__channels_last));
    int64_t columns = a->kernel[0] * a->kernel[1] * dx.c, pixels = dy.n * dy.h * dy.w;
    clef__operand t = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(pixels * columns + 8));
    /* clang-format off */
    clef__gemm g = {
        .m = {1, 1, pixels}, .k = {1, 1, dy.c}, .z = {1, 1}, .n = columns,
        .a = dy.data, .b = w, .c = t,
        .a_m = {0, 0, dy.c}, .a_k = {0, 0, 1}, .b_k = {0, 0, 1}, .b_n = dy.c, .c_m = {0, 0, columns}, .c_n = 1,
    };
    /* clang-format on */
    clef__gemm_lower(lw, g);
    gather(lw, t, &dx, (int64_t[]){dy.h, dy.w});
}

/* The product and the launch that gathers, with whole vectors of lanes. */
static double cost(const clef__lowering *lw) {
    const clef__conv *a = clef__lower_node(lw)->attributes;
    clef__conv_sizes s = clef__conv_data_sizes(lw);
    int64_t c = s.x.dim[1], columns = a->kernel[0] * a->kernel[1] * c, filters = s.y.dim[1];
    double numbers = clef__pixels(s.y) * (double)columns;
    /* clang-format off */
    clef__gemm g = {
        .m = {1, 1, s.y.dim[0] * s.y.dim[2] * s.y.dim[3]}, .k = {1, 1, filters}, .z = {1, 1}, .n = columns,
        .a_m = {0, 0, filters}, .a_k = {0, 0, 1}, .b_k = {0, 0, 1}, .b_n = filters, .c_n = 1,
    };
    /* clang-format on */
    clef__work gather = {.flops = numbers / (double)c * lanes_of(c) * clef__lower_profile(lw)->vector,
                         .efficiency = EFFICIENCY,
                         .bytes = sizeof(float) * (numbers + (double)clef_shape_numel(s.x))};
    g.a.dtype = g.b.dtype = g.c.dtype = CLEF_F32;
    return clef__gemm_seconds(lw, g) + clef__launch_seconds(lw, &gather);
}

const clef__conv_rows clef__conv_fold = {.data = {.name = "fold", .applies = applies, .cost = cost, .lower = fold_data}};
