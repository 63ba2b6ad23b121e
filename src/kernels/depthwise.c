/* depthwise.c — strategies for convolutions where each channel has one filter of its own (cl/depthwise.cl). */
#include "depthwise.args"
#include "kernels/args.h"
#include "kernels/conv.h"
#include "kernels/gemm.h"
#include "kernels/image.h"
#include "kernels/reduce.h"
#include "plan/lower/cost.h"
#include "runtime/arithmetic.h"

CLEF__ARGS(geometry, DEPTHWISE_GEOMETRY_ARGS)
CLEF__ARGS(depthwise, DEPTHWISE_ARGS)
CLEF__ARGS(depthwise_weight, DEPTHWISE_WEIGHT_ARGS)

enum {
    MOST_TAPS = 7,     /* of a row, by registers.h */
    LEAST_TILE = 4,    /* pixels, */
    MOST_TILE = 8,     /* at most, by registers.h as well */
    CHUNK_BYTES = 256, /* fewer neighbouring channels than this read memory in crumbs */
    LEAST_PIXELS = 128 /* shorter sums than this are not worth adding up afterwards */
};

static const double EFFICIENCY = 0.2; /* loads of filters and pixels take their time too */

static bool wide(const clef__lowering *lw) { return clef__lower_profile(lw)->wide_items; }

/* ---- where it applies ---- */
/* The kernels count in 32 bits and want something to read. */
static bool countable(clef_shape s) {
    int64_t n = clef_shape_numel(s);
    return n > 0 && n <= INT32_MAX;
}

static bool depthwise_fits(const clef__lowering *lw, clef_shape w) {
    const clef__node *node = clef__lower_node(lw);
    const clef__conv *a = node->attributes;
    return w.dim[1] == 1 && w.dim[0] == a->groups && countable(node->out->shape) && countable(node->input[0]->shape) &&
           countable(node->input[1]->shape);
}

static bool applies(const clef__lowering *lw) { return depthwise_fits(lw, clef__lower_node(lw)->input[1]->shape); }
static bool weight_applies(const clef__lowering *lw) { return depthwise_fits(lw, clef__lower_node(lw)->out->shape); }

/* ---- launches ---- */
/* Lanes of neighbouring channels: a work-item of one vector must not meet another's. */
static int lanes_of(const clef__lowering *lw, int64_t c) {
    int lanes = clef__lower_profile(lw)->vector;
    while (lanes > 4 && lanes > c) lanes /= 2; /* these kernels do nothing else, so half a vector counts */
    if (lanes < 4 || lanes > c) lanes = 1;
    return wide(lw) || c % lanes == 0 ? lanes : 1;
}

static void begin_depthwise(const clef__lowering *lw, const char *kernel, clef_dtype dtype, int64_t lanes) {
    clef__launch_begin(lw, "depthwise.cl", kernel);
    clef__launch_define(lw, "DT", "%s", clef__token(dtype));
    clef__launch_define(lw, "W", "%d", (int)lanes);
    clef__launch_define(lw, "WIDE", "%d", wide(lw));
}

/* How many of `units` a work-item does: one unless it is wide. */
static int64_t run_of(const clef__lowering *lw, int64_t units) {
    return wide(lw) ? clef__ceil_div(units, clef__lower_items(lw, units, 1)) : 1;
}

/* Channels of a run: `rows` rows of the image stay in a cache, and every work-item gets something. */
static int64_t chunk_of(const clef__lowering *lw, const clef__image *x, int64_t lanes, int64_t rows, int64_t units) {
    int64_t size = (int64_t)clef_dtype_size(x->data.dtype), vector = lanes * size;
    int64_t vectors = clef__larger(clef__cached_bytes(lw) / (rows * x->w * vector), clef__ceil_div(CHUNK_BYTES, vector));
    int64_t want = clef__ceil_div(clef__lower_items(lw, INT32_MAX, 1), units), most = clef__larger(x->c / lanes / want, 1);
    return clef__smaller(vectors, most) * lanes;
}

static geometry_args geometry_of(const clef__conv *a, const clef__image *read, const clef__image *made) {
    /* clang-format off */
    return (geometry_args){
        .c = made->c, .in = {read->h, read->w}, .out = {made->h, made->w}, .taps = CLEF__TWO(a->kernel),
        .stride = CLEF__TWO(a->stride), .dilation = CLEF__TWO(a->dilation), .before = CLEF__TWO(a->before),
    };
    /* clang-format on */
}

/* Taps of a filter's row whose pixels the compiler can share (cl/depthwise.cl); 0: it cannot. */
static int64_t shared_taps(const clef__lowering *lw, const clef__conv *a, bool backward) {
    bool side_by_side = a->dilation[1] == 1 && (!backward || a->stride[1] == 1);
    return wide(lw) && side_by_side && a->kernel[1] <= MOST_TAPS ? a->kernel[1] : 0;
}

/* Sums that registers hold, beside what they are made of. */
static int64_t sums_at_once(const clef__lowering *lw) {
    const clef__profile *profile = clef__lower_profile(lw);
    return profile->tile_m * profile->tile_vectors;
}

/* Pixels of a tile: registers have room for as many weights and pixels beside their sums. */
static int64_t pixels_at_once(const clef__lowering *lw, int64_t width) {
    int64_t most = clef__smaller(clef__larger(sums_at_once(lw) / 2, LEAST_TILE), MOST_TILE);
    return width >= 2 * most ? most : LEAST_TILE;
}

static void lower_images(const clef__lowering *lw, bool backward) {
    const clef__node *node = clef__lower_node(lw);
    const clef__conv *a = node->attributes;
    clef__operand w = clef__lower_in_dense(lw, 1, clef__filters_last);
    clef__image x = clef__image_in(lw, 0);
    clef__image y = clef__image_of(clef__lower_out(lw, clef__channels_last));
    clef__epilogue epilogue = clef__lower_biased_epilogue(lw, y.data);
    int64_t rows = y.n * y.h, lanes = lanes_of(lw, y.c), chunk = chunk_of(lw, &x, lanes, a->kernel[0], rows);
    int64_t units = rows * (wide(lw) ? clef__larger(y.c / chunk, 1) : y.w * (y.c / lanes)), run = run_of(lw, units);
    begin_depthwise(lw, "depthwise", node->out->dtype, lanes);
    clef__launch_define(lw, "P", "%d", (int)pixels_at_once(lw, backward ? y.w / a->stride[1] : y.w));
    clef__launch_define(lw, "BACKWARD", "%d", backward);
    int64_t taps = shared_taps(lw, a, backward);
    clef__launch_define(lw, "TAPS", "%d", (int)taps);
    if (taps) clef__launch_define(lw, "STEP", "%d", (int)a->stride[1]);
    /* clang-format off */
    depthwise_args args = {
        .image = x.data, .filter = w, .to = y.data,
        .geometry = geometry_of(a, &x, &y), .chunk = chunk, .units = units, .run = run, .epilogue = epilogue,
    };
    /* clang-format on */
    pass_depthwise(lw, &args);
    clef__launch_end_1d(lw, clef__ceil_div(units, run));
}

static void depthwise_forward(const clef__lowering *lw) { lower_images(lw, false); }
static void depthwise_data(const clef__lowering *lw) { lower_images(lw, true); }

/* Taps of a filter's row that are summed at a time. */
static int64_t sums_of_row(const clef__lowering *lw, int64_t taps) {
    int64_t most = clef__smaller(sums_at_once(lw), MOST_TAPS);
    return clef__ceil_div(taps, clef__ceil_div(taps, most));
}

/* Rows of dy in one split: as many as leave every unit something to do, but no fewer than the addition afterwards is worth. */
static int64_t rows_of_split(const clef__lowering *lw, const clef__image *dy, int64_t lanes, int64_t taps) {
    int64_t rows = dy->n * dy->h;
    int64_t splits = clef__ceil_div(clef__lower_items(lw, INT32_MAX, 1), wide(lw) ? 1 : taps * (dy->c / lanes));
    return clef__smaller(clef__larger(clef__ceil_div(rows, splits), clef__ceil_div(LEAST_PIXELS, dy->w)), rows);
}

static void depthwise_weight(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    const clef__conv *a = node->attributes;
    clef__image x = clef__image_in(lw, 0);
    clef__image dy = clef__image_in(lw, 1);
    clef__operand dw = clef__lower_out(lw, clef__filters_last), sums = dw;
    int64_t lanes = lanes_of(lw, dy.c), taps = a->kernel[0] * a->kernel[1], all = dy.n * dy.h;
    int64_t rows = rows_of_split(lw, &dy, lanes, taps), splits = clef__ceil_div(all, rows);
    int64_t chunk = chunk_of(lw, &x, lanes, a->kernel[0], splits);
    int64_t units = splits * (wide(lw) ? clef__larger(dy.c / chunk, 1) : taps * (dy.c / lanes)), run = run_of(lw, units);
    clef_dtype type = clef__gemm_type(node->out->dtype);
    bool through = splits > 1 || type != node->out->dtype;
    if (through) sums = clef__lower_scratch(lw, type, CLEF_SHAPE(splits, taps * dy.c));
    begin_depthwise(lw, "depthwise_weight", node->out->dtype, lanes);
    int64_t columns = sums_of_row(lw, a->kernel[1]), together = a->kernel[0] * columns <= sums_at_once(lw) ? a->kernel[0] : 1;
    if (wide(lw)) clef__launch_define(lw, "MR", "%d", (int)together);
    if (wide(lw)) clef__launch_define(lw, "NV", "%d", (int)columns);
    if (wide(lw)) clef__launch_define(lw, "STEP", "%d", (int)a->stride[1]);
    /* clang-format off */
    depthwise_weight_args args = {
        .x = x.data, .dy = dy.data, .to = sums, .geometry = geometry_of(a, &x, &dy),
        .all_rows = all, .rows = rows, .chunk = chunk, .units = units, .run = run,
    };
    /* clang-format on */
    pass_depthwise_weight(lw, &args);
    clef__launch_end_1d(lw, clef__ceil_div(units, run));
    if (through) clef__lower_sum(lw, sums, dw, (clef__axes){1, splits, taps * dy.c});
}

/* ---- costs ---- */

/* A multiplication and addition for each result, tap and idle lane. */
static double seconds(const clef__lowering *lw, const clef__conv_sizes *s, double results) {
    const clef__conv *a = clef__lower_node(lw)->attributes;
    int64_t c = s->x.dim[1], lanes = lanes_of(lw, c);
    double idle = (double)(clef__ceil_div(c, lanes) * clef__lower_profile(lw)->vector) / (double)c;
    return clef__launch_seconds(lw, &(clef__work){.flops = 2 * results * idle * (double)(a->kernel[0] * a->kernel[1]),
                                                  .efficiency = EFFICIENCY,
                                                  .bytes = clef__conv_bytes(lw, s)});
}

static double forward_cost(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_forward_sizes(lw);
    return seconds(lw, &s, (double)clef_shape_numel(s.y));
}

static double data_cost(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_data_sizes(lw);
    return seconds(lw, &s, (double)clef_shape_numel(s.y));
}

static double weight_cost(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_weight_sizes(lw);
    return seconds(lw, &s, (double)clef_shape_numel(s.y));
}

const clef__conv_rows clef__conv_depthwise = {
    .forward = {.name = "depthwise", .applies = applies, .cost = forward_cost, .lower = depthwise_forward},
    .data = {.name = "depthwise", .applies = applies, .cost = data_cost, .lower = depthwise_data},
    .weight = {.name = "depthwise", .applies = weight_applies, .cost = weight_cost, .lower = depthwise_weight}};
