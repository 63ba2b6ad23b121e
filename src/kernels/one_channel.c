/* one_channel.c — strategies for convolutions of images of one channel by few filters, on devices where one work-item owns a long run.

   The results of a pixel would fill a part of a vector only: six filters of a first layer leave ten of sixteen lanes idle, or take
   eight.  In cl/one_channel.cl lanes are pixels. */
#include "one_channel.args"
#include "kernels/args.h"
#include "kernels/conv.h"
#include "kernels/gemm.h"
#include "kernels/image.h"
#include "plan/lower/cost.h"
#include "runtime/arithmetic.h"

CLEF__ARGS(image, IMAGE_ROWS_ARGS)
CLEF__ARGS(pixels, PIXELS_ARGS)
CLEF__ARGS(pixel_gradient, PIXEL_GRADIENT_ARGS)
CLEF__ARGS(pixel_sums, PIXEL_SUMS_ARGS)

enum {
    MOST_RESULTS = 8,    /* the vectors that cl/one_channel.cl reorders */
    MOST_TAPS = 128,     /* a first-level cache holds the filters, a vector for two numbers */
    ITEM_STEPS = 8192,   /* vector multiplications that make a work-item of its own worth while */
    BLOCK_VECTORS = 256, /* of a gradient, that a first-level cache holds */
};

/* Fraction of the peak; multiplications of a vector that would take as long as reordering it; and the part of a step, as
   clef__lower_pays counts them, that one takes with its share of the rest. */
static const double EFFICIENCY = 0.58, REORDER_STEPS = 6, WORK = 0.7;

/* Filters in pairs, and how rows and taps of a filter are partitioned. */
typedef struct tile {
    int64_t half, vectors, height, part;
} tile;

static tile tile_of(const clef__lowering *lw, const clef__conv_sizes *s) {
    const clef__profile *profile = clef__lower_profile(lw);
    tile t = {.half = profile->vector / 2, .vectors = s->y.dim[1] / 2};
    int64_t registers = profile->tile_m * profile->tile_vectors / t.vectors, out_w = s->y.dim[3], kw = s->w.dim[3];
    int64_t most = clef__smaller(registers, out_w / t.half); /* in one tile of a row */
    int64_t each = clef__equal_part(out_w, most * t.half);
    t.height = clef__ceil_div(each, t.half);
    t.part = clef__equal_part(kw, clef__smaller(registers, kw));
    return t;
}

static bool computes(const clef__lowering *lw, const clef__conv_sizes *s) {
    const clef__node *node = clef__lower_node(lw);
    const clef__conv *a = node->attributes;
    const clef__profile *profile = clef__lower_profile(lw);
    int64_t results = s->y.dim[1], taps = a->kernel[0] * a->kernel[1];
    bool plain = a->groups == 1 && s->x.dim[1] == 1 && a->stride[1] == 1;
    for (int d = 0; d < 2; d++)
        plain = plain && a->dilation[d] == 1 && a->before[d] == 0 &&
                (s->y.dim[2 + d] - 1) * a->stride[d] + a->kernel[d] <= s->x.dim[2 + d];
    return plain && profile->wide_items && profile->vector >= 4 && clef__gemm_type(node->out->dtype) == CLEF_F32 &&
           node->out->dtype == CLEF_F32 && results % 2 == 0 && results > 0 && results <= MOST_RESULTS && taps > 1 &&
           taps <= MOST_TAPS && s->y.dim[0] * s->y.dim[2] > 0 && s->y.dim[3] >= profile->vector / 2 &&
           s->y.dim[0] * s->y.dim[2] <= INT32_MAX && s->x.dim[2] * s->x.dim[3] <= INT32_MAX;
}

static bool applies(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_forward_sizes(lw);
    return computes(lw, &s);
}

static bool weight_applies(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_weight_sizes(lw);
    return computes(lw, &s);
}

/* Vector multiplications for a row of results. */
static int64_t row_steps(const clef__conv_sizes *s, const tile *t) {
    int64_t tiles = clef__ceil_div(s->y.dim[3], t->height * t->half);
    return tiles * t->height * t->vectors * s->w.dim[2] * s->w.dim[3];
}

/* How many work-items share the rows equally: one where the work pays for no other unit. */
static int64_t share_rows(const clef__lowering *lw, const clef__conv_sizes *s, const tile *t, int64_t *per_item) {
    int64_t rows = s->y.dim[0] * s->y.dim[2], steps = row_steps(s, t);
    bool pays = clef__lower_pays(lw, WORK * (double)rows * (double)steps);
    int64_t items = pays ? clef__smaller(clef__lower_items(lw, rows, 1), rows * steps / ITEM_STEPS) : 1;
    *per_item = clef__ceil_div(rows, clef__larger(items, 1));
    return clef__ceil_div(rows, *per_item);
}

static void begin_launch(const clef__lowering *lw, const char *kernel, const clef__conv_sizes *s, const tile *t) {
    static const char *const name[] = {"W", "HALF", "KH", "KW", "NV", "MR", "PART"};
    const int64_t number[] = {2 * t->half, t->half, s->w.dim[2], s->w.dim[3], t->vectors, t->height, t->part};
    clef__launch_begin(lw, "one_channel.cl", kernel);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) clef__launch_define(lw, name[i], "%d", (int)number[i]);
}

static image_args image_of(const clef__lowering *lw, const clef__conv_sizes *s, int64_t per_item) {
    const clef__conv *a = clef__lower_node(lw)->attributes;
    /* clang-format off */
    return (image_args){
        .rows = s->y.dim[0] * s->y.dim[2], .per_item = per_item, .height = s->x.dim[2], .width = s->x.dim[3],
        .out = {s->y.dim[2], s->y.dim[3]}, .stride_h = a->stride[0],
    };
    /* clang-format on */
}

static void forward(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_forward_sizes(lw);
    clef__image x = clef__image_in(lw, 0);
    clef__operand w = clef__lower_in(lw, 1), y = clef__lower_out(lw, clef__channels_last);
    clef__epilogue epilogue = clef__lower_biased_epilogue(lw, y);
    tile t = tile_of(lw, &s);
    int64_t per_item, items = share_rows(lw, &s, &t, &per_item);
    begin_launch(lw, "pixels", &s, &t);
    /* clang-format off */
    pixels_args args = {
        .x = x.data, .w = w, .y = y, .image = image_of(lw, &s, per_item),
        .wy = w.stride[2], .wx = w.stride[3], .wn = w.stride[0], .epilogue = epilogue,
    };
    /* clang-format on */
    pass_pixels(lw, &args);
    clef__launch_end(lw, (size_t[]){(size_t)items, 1, 1}, (size_t[]){1, 1, 1});
}

static void weight(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_weight_sizes(lw);
    clef__image x = clef__image_in(lw, 0), dy = clef__image_in(lw, 1);
    clef__operand dw = clef__lower_out(lw, clef__filters_last), part = dw;
    tile t = tile_of(lw, &s);
    int64_t per_item, items = share_rows(lw, &s, &t, &per_item);
    int64_t line = clef__ceil_div(s.y.dim[3], t.half) * t.vectors, block = clef__larger(BLOCK_VECTORS / line, 1);
    clef__operand turned = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(items, block, line, 2 * t.half));
    if (items > 1) part = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(items, clef_shape_numel(s.w)));
    begin_launch(lw, "pixel_gradient", &s, &t);
    pixel_gradient_args args = {
        .x = x.data, .dy = dy.data, .part = part, .turned = turned, .image = image_of(lw, &s, per_item), .block = block};
    pass_pixel_gradient(lw, &args);
    clef__launch_end(lw, (size_t[]){(size_t)items, 1, 1}, (size_t[]){1, 1, 1});
    if (items == 1) return; /* its sums are all */
    begin_launch(lw, "pixel_sums", &s, &t);
    pixel_sums_args sums = {.part = part, .dw = dw, .parts = items};
    pass_pixel_sums(lw, &sums);
    clef__launch_end(lw, (size_t[]){1, 1, 1}, (size_t[]){1, 1, 1});
}

static double seconds(const clef__lowering *lw, const clef__conv_sizes *s, double launches) {
    tile t = tile_of(lw, s);
    double rows = (double)(s->y.dim[0] * s->y.dim[2]), reordered = (double)(clef__ceil_div(s->y.dim[3], t.half) * t.vectors);
    double steps = rows * ((double)row_steps(s, &t) + reordered * REORDER_STEPS);
    clef__work work = {
        .flops = 4 * steps * (double)t.half, .efficiency = EFFICIENCY, .bytes = clef__conv_bytes(lw, s), .groups = rows};
    return clef__launch_seconds(lw, &work) + launches * clef__launch_seconds(lw, &(clef__work){0});
}

static double forward_cost(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_forward_sizes(lw);
    return seconds(lw, &s, 0);
}

static double weight_cost(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_weight_sizes(lw);
    tile t = tile_of(lw, &s);
    int64_t per_item;
    return seconds(lw, &s, share_rows(lw, &s, &t, &per_item) > 1);
}

const clef__conv_rows clef__conv_one_channel = {
    .forward = {.name = "one_channel", .applies = applies, .cost = forward_cost, .lower = forward},
    .weight = {.name = "one_channel", .applies = weight_applies, .cost = weight_cost, .lower = weight}};
