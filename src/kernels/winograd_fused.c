/* winograd_fused.c — strategies for 3×3 convolutions of stride 1 by fewer multiplications (cl/winograd_fused.cl), on devices where
   one work-item owns a long run and a cache of its own: winograd_fused with tiles of 2×2 results, winograd_fours with tiles of 4×4,
   whose sums are less exact. */
#include "kernels/args.h"
#include "kernels/conv.h"
#include "kernels/gemm.h"
#include "kernels/image.h"
#include "plan/lower/cost.h"
#include "runtime/arithmetic.h"
#include "winograd_fused.args"
#include <math.h>

CLEF__ARGS(filters, FILTERS_ARGS)
CLEF__ARGS(geometry, WINOGRAD_FUSED_GEOMETRY_ARGS)
CLEF__ARGS(conv, CONV_ARGS)
CLEF__ARGS(weight, WEIGHT_ARGS)
CLEF__ARGS(finish, WINOGRAD_FUSED_FINISH_ARGS)

enum {
    RUN = 64,      /* channels of a tile that lie side by side */
    TILE_ROWS = 2, /* register tiles of a block: filters come from memory once for all of them */
    FAR = 8, /* transformed filters that take more than so many times the cache of a compute unit come by as rarely as can be */
    FILTER_FLOATS = 4096, /* a work-item's share of that transformation */
    SUM_TILES = 48        /* tiles of a block of the gradient by the filters */
};

/* Fractions of the peak, by the filters with small tiles and large ones; how many times as long as one of a product an addition of
   the transformations takes; and a byte of filters that is gathered, or goes to one of many places, as one that lies behind another. */
static const double EFFICIENCY = 0.65, WEIGHT_EFFICIENCY = 0.4, LARGE_WEIGHT_EFFICIENCY = 0.8, TRANSFORMS = 4, GATHERED = 6,
                    SCATTERED = 2;

static int64_t lanes_of(const clef__lowering *lw) { return clef__lower_profile(lw)->vector; }
static int64_t panel_of(const clef__lowering *lw) { return lanes_of(lw) * clef__lower_profile(lw)->tile_vectors; }

/* ---- where it applies ---- */

static int64_t places_of(int64_t tile) { return (int64_t)clef__count_winograd(tile).places; }
static int64_t tiles_of(int64_t tile, int64_t n, int64_t h, int64_t w) {
    return n * clef__ceil_div(h, tile) * clef__ceil_div(w, tile);
}

/* Whole vectors of channels and results. */
static bool applies(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    int64_t lanes = lanes_of(lw);
    return clef__winograd_computes(node->attributes) && clef__lower_profile(lw)->wide_items &&
           clef__gemm_type(node->out->dtype) == CLEF_F32 && clef_shape_numel(node->input[0]->shape) > 0 &&
           node->out->shape.dim[1] % lanes == 0 && node->input[0]->shape.dim[1] % lanes == 0;
}

/* The gradient by the filters is made of the images on either side of them. */
static bool weight_applies(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    return applies(lw) && node->input[1]->shape.dim[1] % lanes_of(lw) == 0 && clef_shape_numel(node->input[1]->shape) > 0;
}

/* ---- launches ---- */

static void begin_winograd(const clef__lowering *lw, const char *kernel, int64_t tile, int rows, clef_dtype in, clef_dtype out) {
    const clef__profile *profile = clef__lower_profile(lw);
    clef__launch_begin(lw, "winograd_fused.cl", kernel);
    clef__launch_define(lw, "TILE", "%d", (int)tile);
    clef__launch_define(lw, "MR", "%d", rows);
    clef__launch_define(lw, "NV", "%d", profile->tile_vectors);
    clef__launch_define(lw, "W", "%d", profile->vector);
    clef__launch_define(lw, "KB", "%d", RUN);
    clef__launch_define(lw, "IN", "%s", clef__token(in));
    clef__launch_define(lw, "OUT", "%s", clef__token(out));
}

/* w: [n, c, 3, 3], any strides. */
static clef__operand transform_filters(const clef__lowering *lw, int64_t tile, clef__operand w) {
    int64_t n = w.dim[0], c = w.dim[1], panels = clef__ceil_div(n, panel_of(lw)),
            run = clef__larger(FILTER_FLOATS / (places_of(tile) * panel_of(lw)),
                               lanes_of(lw)); /* as many channels as it turns at a time */
    clef__operand u = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(places_of(tile), panels, c, panel_of(lw)));
    begin_winograd(lw, "filters", tile, clef__lower_profile(lw)->tile_m, w.dtype, CLEF_F32);
    clef__launch_prepacks(lw);
    /* clang-format off */
    filters_args args = {
        .w = w, .u = u, .N = n, .channels = c,
        .sn = w.stride[0], .sc = w.stride[1], .sy = w.stride[2], .sx = w.stride[3], .run = run,
    };
    /* clang-format on */
    pass_filters(lw, &args);
    clef__launch_end(lw, (size_t[]){(size_t)clef__ceil_div(c, run), (size_t)panels, 1}, (size_t[]){1, 1, 1});
    return u;
}

/* x read and y made by the forward convolution, or the other way round. */
static geometry_args geometry_of(int64_t tile, const clef__image *x, const clef__image *y, const int64_t before[2]) {
    /* clang-format off */
    return (geometry_args){
        .tiles = tiles_of(tile, y->n, y->h, y->w), .down = clef__ceil_div(y->h, tile), .across = clef__ceil_div(y->w, tile),
        .height_in = x->h, .width_in = x->w, .channels = x->c, .height_out = y->h, .width_out = y->w, .filters = y->c,
        .before = CLEF__TWO(before),
    };
    /* clang-format on */
}

/* How a convolution is partitioned: work-items over blocks of `height` tiles and over panels of filters, of which each has `own`; so
   many of these are summed before their results are made. */
typedef struct blocking {
    int64_t height, blocks, per_item, own, together;
    bool far; /* no cache holds the filters */
} blocking;

static int64_t units_of(const clef__lowering *lw) { return clef__larger(clef__lower_device(lw)->compute_units, 1); }
/* Work-items that it pays to have. */
static int64_t items_of(const clef__lowering *lw) { return units_of(lw) * clef__lower_profile(lw)->items_per_unit; }

/* For each block all filters come by: as many register tiles as leave every work-item a block of its own. */
static blocking blocking_of_tiles(const clef__lowering *lw, int64_t tiles, int64_t panels) {
    const clef__profile *profile = clef__lower_profile(lw);
    int64_t items = items_of(lw), high = TILE_ROWS * profile->tile_m;
    blocking b = {.height = tiles >= high * items ? high : profile->tile_m, .own = panels, .together = 1};
    b.blocks = clef__ceil_div(tiles, b.height);
    b.per_item = clef__ceil_div(b.blocks, items);
    return b;
}

/* Filters that no cache holds come by once for as many tiles as leave one place of these in a cache.  Work-items have panels of their
   own where there are fewer such blocks than compute units. */
static blocking blocking_of_filters(const clef__lowering *lw, int64_t tiles, int64_t channels, int64_t panels) {
    int64_t rows = clef__lower_profile(lw)->tile_m, units = units_of(lw);
    int64_t most = clef__cached_bytes(lw) / (int64_t)sizeof(float) / channels / rows * rows;
    int64_t height =
        clef__equal_part(tiles, clef__larger(clef__smaller(most, clef__ceil_div(tiles, clef__ceil_div(units, panels))), 1));
    blocking b = {.height = clef__ceil_div(height, rows) * rows, .far = true};
    b.blocks = clef__ceil_div(tiles, b.height);
    b.per_item = clef__ceil_div(b.blocks, units);
    b.own = b.together = clef__ceil_div(panels, clef__ceil_div(units, clef__ceil_div(b.blocks, b.per_item)));
    return b;
}

static blocking choose_blocking(const clef__lowering *lw, int64_t tile, int64_t tiles, int64_t channels, int64_t filters) {
    double bytes = sizeof(float) * (double)(places_of(tile) * channels * filters);
    int64_t panels = clef__ceil_div(filters, panel_of(lw));
    bool far = bytes > FAR * 1024 * clef__lower_profile(lw)->cache_kb;
    return far ? blocking_of_filters(lw, tiles, channels, panels) : blocking_of_tiles(lw, tiles, panels);
}

static void convolve(const clef__lowering *lw, int64_t tile, const clef__image *x, clef__operand w, const clef__image *y,
                     const int64_t before[2]) {
    clef__operand u = transform_filters(lw, tile, w);
    blocking b = choose_blocking(lw, tile, tiles_of(tile, y->n, y->h, y->w), x->c, y->c);
    int64_t items = clef__ceil_div(b.blocks, b.per_item), beside = clef__ceil_div(clef__ceil_div(y->c, panel_of(lw)), b.own);
    int64_t floats = places_of(tile) * b.height * (clef__ceil_div(x->c, RUN) * RUN + b.together * panel_of(lw));
    clef__epilogue epilogue = clef__lower_biased_epilogue(lw, y->data);
    clef__operand scratch = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(items * beside, floats));
    begin_winograd(lw, "conv", tile, clef__lower_profile(lw)->tile_m, x->data.dtype, y->data.dtype);
    if (b.far) clef__launch_define(lw, "FAR", "1");
    /* clang-format off */
    conv_args args = {
        .x = x->data, .u = u, .y = y->data, .scratch = scratch, .geometry = geometry_of(tile, x, y, before),
        .height = b.height, .blocks = b.blocks, .per_item = b.per_item, .own = b.own, .together = b.together, .epilogue = epilogue,
    };
    /* clang-format on */
    pass_conv(lw, &args);
    clef__launch_end(lw, (size_t[]){(size_t)items, (size_t)beside, 1}, (size_t[]){1, 1, 1});
}

static void lower_forward(const clef__lowering *lw, int64_t tile) {
    const clef__conv *a = clef__lower_node(lw)->attributes;
    clef__operand w = clef__lower_in(lw, 1);
    clef__image x = clef__image_in(lw, 0);
    clef__image y = clef__image_of(clef__lower_out(lw, clef__channels_last));
    convolve(lw, tile, &x, w, &y, a->before);
}

static void lower_data(const clef__lowering *lw, int64_t tile) {
    const clef__conv *a = clef__lower_node(lw)->attributes;
    clef__operand w = clef__filters_flipped(clef__lower_in(lw, 1));
    clef__image dy = clef__image_in(lw, 0);
    clef__image dx = clef__image_of(clef__lower_out(lw, clef__channels_last));
    convolve(lw, tile, &dy, w, &dx, (int64_t[]){2 - a->before[0], 2 - a->before[1]});
}

/* How the gradient by the filters is partitioned: pairs of RUN channels and RUN filters, and for each of them runs of blocks of tiles, so
   many that every unit has work.  Of a single run the kernel itself makes dw, if it is stored as dy is. */
typedef struct partition {
    int64_t pairs, blocks, per_run, runs;
    bool whole;
} partition;

static partition partition_of(const clef__lowering *lw, int64_t tile) {
    const clef__node *node = clef__lower_node(lw);
    clef_shape x = node->input[0]->shape, dy = node->input[1]->shape;
    partition p = {.pairs = clef__ceil_div(x.dim[1], RUN) * clef__ceil_div(dy.dim[1], RUN),
                   .blocks = clef__ceil_div(tiles_of(tile, dy.dim[0], dy.dim[2], dy.dim[3]), SUM_TILES)};
    p.per_run = clef__ceil_div(p.blocks, clef__smaller(clef__ceil_div(items_of(lw), p.pairs), p.blocks));
    p.runs = clef__ceil_div(p.blocks, p.per_run);
    p.whole = p.runs == 1 && node->out->dtype == node->input[1]->dtype;
    return p;
}

static void lower_weight(const clef__lowering *lw, int64_t tile) {
    const clef__conv *a = clef__lower_node(lw)->attributes;
    clef__image x = clef__image_in(lw, 0);
    clef__image dy = clef__image_in(lw, 1);
    clef__operand dw = clef__lower_out(lw, clef__filters_last);
    partition p = partition_of(lw, tile);
    int64_t units = p.pairs * p.runs, per_item = clef__ceil_div(units, items_of(lw)), items = clef__ceil_div(units, per_item);
    clef__operand sums = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(p.whole ? items : units, places_of(tile), RUN, RUN));
    clef__operand scratch = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(items, 2 * places_of(tile), SUM_TILES, RUN));
    begin_winograd(lw, "weight", tile, clef__lower_profile(lw)->tile_m < 8 ? 4 : 8, x.data.dtype, dy.data.dtype);
    /* clang-format off */
    weight_args args = {
        .x = x.data, .y = dy.data, .sums = sums, .w = dw, .scratch = scratch, .geometry = geometry_of(tile, &x, &dy, a->before),
        .height = SUM_TILES, .blocks = p.blocks, .per_run = p.per_run, .whole = p.whole, .units = units, .per_item = per_item,
    };
    /* clang-format on */
    pass_weight(lw, &args);
    clef__launch_end(lw, (size_t[]){(size_t)items, 1, 1}, (size_t[]){1, 1, 1});
    if (p.whole) return;
    begin_winograd(lw, "finish", tile, clef__lower_profile(lw)->tile_m, CLEF_F32, dw.dtype);
    pass_finish(lw, &(finish_args){.sums = sums, .w = dw, .channels = x.c, .filters = dy.c, .runs = p.runs});
    clef__launch_end(lw, (size_t[]){(size_t)(dy.c / lanes_of(lw)), (size_t)x.c, 1}, (size_t[]){1, 1, 1});
}

/* ---- costs ---- */

static double cost(const clef__lowering *lw, int64_t tile) {
    const clef__node *node = clef__lower_node(lw);
    clef_shape y = node->out->shape;
    double c = (double)node->input[0]->shape.dim[1], o = (double)y.dim[1], rows = clef__lower_profile(lw)->tile_m;
    double panels = (double)(clef__ceil_div(y.dim[1], panel_of(lw)) * panel_of(lw));
    double blocks = ceil((double)tiles_of(tile, y.dim[0], y.dim[2], y.dim[3]) / rows), tiles = blocks * rows;
    clef__winograd_counts n = clef__count_winograd(tile);
    clef__work work = {.flops = tiles * (2 * n.places * c * panels + (n.image * c + n.result * o) * TRANSFORMS),
                       .efficiency = EFFICIENCY,
                       .bytes = sizeof(float) * ((double)clef_shape_numel(node->input[0]->shape) + (double)clef_shape_numel(y)),
                       .groups = blocks};
    return clef__launch_seconds(lw, &(clef__work){.bytes = sizeof(float) * c * panels * (9 * GATHERED + n.places * SCATTERED)}) +
           clef__launch_seconds(lw, &work);
}

/* Every run of channels transforms what it meets anew. */
static double weight_cost(const clef__lowering *lw, int64_t tile) {
    const clef__node *node = clef__lower_node(lw);
    clef_shape x = node->input[0]->shape, dy = node->input[1]->shape;
    partition p = partition_of(lw, tile);
    clef__winograd_counts n = clef__count_winograd(tile);
    double pairs = (double)p.pairs, blocks = (double)p.blocks;
    double sums = sizeof(float) * pairs * RUN * RUN * ((p.whole ? 0 : (double)p.runs * n.places) + 9);
    clef__work work = {.flops = blocks * SUM_TILES * pairs * (2 * n.places * RUN * RUN + (n.image + n.result) * RUN * TRANSFORMS),
                       .efficiency = tile == 2 ? WEIGHT_EFFICIENCY : LARGE_WEIGHT_EFFICIENCY,
                       .bytes = sizeof(float) * ((double)clef_shape_numel(x) + (double)clef_shape_numel(dy)) + (p.whole ? sums : 0),
                       .groups = pairs * blocks};
    return clef__launch_seconds(lw, &work) + (p.whole ? 0 : clef__launch_seconds(lw, &(clef__work){.bytes = sums}));
}

/* ---- rows ---- */

#define ROW_OF(row, tile)                                                                                                   \
    static double cost_##tile(const clef__lowering *lw) { return cost(lw, tile); }                                          \
    static double weight_cost_##tile(const clef__lowering *lw) { return weight_cost(lw, tile); }                            \
    static double flops_##tile(const clef__node *node) {                                                                    \
        return clef__winograd_flops(tile, node->out->shape, node->input[0]->shape, node->out->shape);                       \
    }                                                                                                                       \
    static double weight_flops_##tile(const clef__node *node) {                                                             \
        return clef__winograd_flops(tile, node->input[1]->shape, node->input[0]->shape, node->input[1]->shape);             \
    }                                                                                                                       \
    static void forward_##tile(const clef__lowering *lw) { lower_forward(lw, tile); }                                       \
    static void data_##tile(const clef__lowering *lw) { lower_data(lw, tile); }                                             \
    static void weight_##tile(const clef__lowering *lw) { lower_weight(lw, tile); }                                         \
    const clef__conv_rows clef__conv_##row = {                                                                              \
        .forward = {.name = #row, .applies = applies, .cost = cost_##tile, .flops = flops_##tile, .lower = forward_##tile}, \
        .data = {.name = #row, .applies = applies, .cost = cost_##tile, .flops = flops_##tile, .lower = data_##tile},       \
        .weight = {.name = #row,                                                                                            \
                   .applies = weight_applies,                                                                               \
                   .cost = weight_cost_##tile,                                                                              \
                   .flops = weight_flops_##tile,                                                                            \
                   .lower = weight_##tile}};
ROW_OF(winograd_fused, 2)
ROW_OF(winograd_fours, 4)
