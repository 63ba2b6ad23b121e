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
    SUM_TILES = 24        /* most tiles of a block of the gradient by the filters; even */
};

/* Fractions of the peak, by the filters with small tiles and large ones; how many times as long as one of a product an addition of
   the transformations takes; and a byte of filters that is gathered, or goes to one of many places, as one that lies behind another. */
static const double EFFICIENCY = 0.65, WEIGHT_EFFICIENCY = 0.5, LARGE_WEIGHT_EFFICIENCY = 0.65, TRANSFORMS = 4, GATHERED = 1,
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

/* From one place of so many floats to the next.  A tile goes to all places at once: were they an even number of lines apart, few sets of a
   cache would take them all. */
static int64_t place_stride(int64_t floats) {
    enum { LINE = 16 }; /* floats of a cache line */
    return (clef__ceil_div(floats, LINE) | 1) * LINE;
}

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
    clef__operand u = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(places_of(tile), place_stride(panels * c * panel_of(lw))));
    begin_winograd(lw, "filters", tile, clef__lower_profile(lw)->tile_m, w.dtype, CLEF_F32);
    clef__launch_prepacks(lw);
    /* clang-format off */
    filters_args args = {
        .w = w, .u = u, .N = n, .channels = c,
        .sn = w.stride[0], .sc = w.stride[1], .sy = w.stride[2], .sx = w.stride[3], .run = run, .u_place = u.stride[0],
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

/* How a convolution is partitioned: `items` work-items over blocks of `height` tiles, and as many again for each of `beside` shares of the
   panels of filters, of which each has `own`; so many of these are summed before their results are made. */
typedef struct blocking {
    int64_t height, blocks, per_item, items, own, beside, together;
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
    blocking b = {.height = clef__round_up(height, rows), .far = true};
    b.blocks = clef__ceil_div(tiles, b.height);
    b.per_item = clef__ceil_div(b.blocks, units);
    b.own = b.together = clef__ceil_div(panels, clef__ceil_div(units, clef__ceil_div(b.blocks, b.per_item)));
    return b;
}

static blocking choose_blocking(const clef__lowering *lw, int64_t tile, int64_t tiles, int64_t channels, int64_t filters) {
    double bytes = sizeof(float) * (double)(places_of(tile) * channels * filters);
    int64_t panels = clef__ceil_div(filters, panel_of(lw));
    bool far = bytes > FAR * 1024 * clef__lower_profile(lw)->cache_kb;
    blocking b = far ? blocking_of_filters(lw, tiles, channels, panels) : blocking_of_tiles(lw, tiles, panels);
    b.items = clef__ceil_div(b.blocks, b.per_item);
    b.beside = clef__ceil_div(panels, b.own);
    return b;
}

static void convolve(const clef__lowering *lw, int64_t tile, const clef__image *x, clef__operand w, const clef__image *y,
                     const int64_t before[2]) {
    clef__operand u = transform_filters(lw, tile, w);
    blocking b = choose_blocking(lw, tile, tiles_of(tile, y->n, y->h, y->w), x->c, y->c);
    int64_t place = place_stride(clef__round_up(x->c, RUN) * b.height), sum_place = place_stride(b.height * panel_of(lw));
    clef__epilogue epilogue = clef__lower_biased_epilogue(lw, y->data);
    clef__operand scratch =
        clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(b.items * b.beside, places_of(tile) * (place + b.together * sum_place)));
    begin_winograd(lw, "conv", tile, clef__lower_profile(lw)->tile_m, x->data.dtype, y->data.dtype);
    if (b.far) clef__launch_define(lw, "FAR", "1");
    /* clang-format off */
    conv_args args = {
        .x = x->data, .u = u, .y = y->data, .scratch = scratch, .geometry = geometry_of(tile, x, y, before),
        .height = b.height, .blocks = b.blocks, .per_item = b.per_item, .own = b.own, .together = b.together,
        .u_place = u.stride[0], .place = place, .sum_place = sum_place, .epilogue = epilogue,
    };
    /* clang-format on */
    pass_conv(lw, &args);
    clef__launch_end(lw, (size_t[]){(size_t)b.items, (size_t)b.beside, 1}, (size_t[]){1, 1, 1});
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

/* Channels of a register tile of that gradient: RUN is a whole number of them. */
static int weight_rows(const clef__lowering *lw) { return clef__lower_profile(lw)->tile_m < 8 ? 4 : 8; }

/* How the gradient by the filters is partitioned: pairs of RUN channels and RUN filters, for each of them runs of blocks of `height` tiles,
   and blocks of one size; a work-item makes the sums of `per_item` runs.  Of a single run the kernel itself makes dw, if it is stored as dy is. */
typedef struct partition {
    int64_t tiles, pairs, height, blocks, per_run, runs, sums, per_item, items;
    bool whole;
} partition;

/* As many runs as leave no unit idle for long.  More are worth the addition of their sums where they save a tenth of the time. */
static int64_t runs_of(const clef__lowering *lw, int64_t pairs, int64_t most) {
    enum { FEW = 4 };
    int64_t units = units_of(lw), best = 1;
    most = clef__smaller(most, clef__larger(clef__ceil_div(units, pairs), FEW));
    for (int64_t runs = 2; runs <= most; runs++) /* rounds of 1/runs of a pair's time each */
        if (10 * clef__ceil_div(pairs * runs, units) * best < 9 * clef__ceil_div(pairs * best, units) * runs) best = runs;
    return best;
}

static partition partition_of(const clef__lowering *lw, int64_t tile) {
    const clef__node *node = clef__lower_node(lw);
    clef_shape x = node->input[0]->shape, dy = node->input[1]->shape;
    partition p = {.tiles = tiles_of(tile, dy.dim[0], dy.dim[2], dy.dim[3]),
                   .pairs = clef__ceil_div(x.dim[1], RUN) * clef__ceil_div(dy.dim[1], RUN)};
    int64_t tiles = clef__ceil_div(p.tiles, runs_of(lw, p.pairs, clef__ceil_div(p.tiles, SUM_TILES)));
    p.height = clef__round_up(clef__equal_part(tiles, SUM_TILES), 2);
    p.per_run = clef__ceil_div(tiles, p.height);
    p.blocks = clef__ceil_div(p.tiles, p.height);
    p.runs = clef__ceil_div(p.blocks, p.per_run);
    p.sums = p.pairs * p.runs;
    p.per_item = clef__ceil_div(p.sums, items_of(lw));
    p.items = clef__ceil_div(p.sums, p.per_item);
    p.whole = p.runs == 1 && node->out->dtype == node->input[1]->dtype;
    return p;
}

static void lower_weight(const clef__lowering *lw, int64_t tile) {
    const clef__conv *a = clef__lower_node(lw)->attributes;
    clef__image x = clef__image_in(lw, 0);
    clef__image dy = clef__image_in(lw, 1);
    clef__operand dw = clef__lower_out(lw, clef__filters_last);
    partition p = partition_of(lw, tile);
    int64_t place = place_stride(p.height * RUN), sum_place = place_stride(RUN * RUN);
    clef__operand sums = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(p.whole ? p.items : p.sums, places_of(tile), sum_place));
    clef__operand scratch = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(p.items, 2 * places_of(tile), place));
    begin_winograd(lw, "weight", tile, weight_rows(lw), x.data.dtype, dy.data.dtype);
    /* clang-format off */
    weight_args args = {
        .x = x.data, .y = dy.data, .sums = sums, .w = dw, .scratch = scratch, .geometry = geometry_of(tile, &x, &dy, a->before),
        .height = p.height, .blocks = p.blocks, .per_run = p.per_run, .whole = p.whole, .units = p.sums, .per_item = p.per_item,
        .place = place, .sum_place = sum_place,
    };
    /* clang-format on */
    pass_weight(lw, &args);
    clef__launch_end(lw, (size_t[]){(size_t)p.items, 1, 1}, (size_t[]){1, 1, 1});
    if (p.whole) return;
    begin_winograd(lw, "finish", tile, clef__lower_profile(lw)->tile_m, CLEF_F32, dw.dtype);
    pass_finish(lw,
                &(finish_args){.sums = sums, .w = dw, .channels = x.c, .filters = dy.c, .runs = p.runs, .sum_place = sum_place});
    clef__launch_end(lw, (size_t[]){(size_t)(dy.c / lanes_of(lw)), (size_t)x.c, 1}, (size_t[]){1, 1, 1});
}

/* ---- costs ---- */

/* Units wait for the one that has most to do: work-items of so many FLOPs each, as if every unit had as many. */
static double rounds_of(const clef__lowering *lw, int64_t items, double flops) {
    return (double)clef__round_up(items, units_of(lw)) * flops;
}

static double cost(const clef__lowering *lw, int64_t tile) {
    const clef__node *node = clef__lower_node(lw);
    clef_shape y = node->out->shape;
    int64_t channels = node->input[0]->shape.dim[1], panels = clef__ceil_div(y.dim[1], panel_of(lw));
    blocking b = choose_blocking(lw, tile, tiles_of(tile, y.dim[0], y.dim[2], y.dim[3]), channels, y.dim[1]);
    double c = (double)channels, o = (double)(b.own * panel_of(lw));
    clef__winograd_counts n = clef__count_winograd(tile);
    double flops = (double)(b.per_item * b.height) * (2 * n.places * c * o + (n.image * c + n.result * o) * TRANSFORMS);
    clef__work work = {.flops = rounds_of(lw, b.items * b.beside, flops),
                       .efficiency = EFFICIENCY,
                       .bytes = sizeof(float) * ((double)clef_shape_numel(node->input[0]->shape) + (double)clef_shape_numel(y))};
    double filters = c * (double)(panels * panel_of(lw));
    return clef__launch_seconds(lw, &(clef__work){.bytes = sizeof(float) * filters * (9 * GATHERED + n.places * SCATTERED)}) +
           clef__launch_seconds(lw, &work);
}

/* Channels or filters of a pair as a work-item counts them: whole register tiles of `step`. */
static double counted(int64_t size, int64_t step) { return (double)clef__round_up(clef__smaller(size, RUN), step); }

/* Every run of channels transforms what it meets anew. */
static double weight_cost(const clef__lowering *lw, int64_t tile) {
    const clef__node *node = clef__lower_node(lw);
    clef_shape x = node->input[0]->shape, dy = node->input[1]->shape;
    partition p = partition_of(lw, tile);
    clef__winograd_counts n = clef__count_winograd(tile);
    double c = counted(x.dim[1], weight_rows(lw)), o = counted(dy.dim[1], panel_of(lw));
    double tiles = (double)clef__smaller(p.tiles, p.per_run * p.height);
    double sums = sizeof(float) * (double)p.pairs * RUN * RUN * ((p.whole ? 0 : (double)p.runs * n.places) + 9);
    clef__work work = {
        .flops =
            rounds_of(lw, p.items, (double)p.per_item * tiles * (2 * n.places * c * o + (n.image * c + n.result * o) * TRANSFORMS)),
        .efficiency = tile == 2 ? WEIGHT_EFFICIENCY : LARGE_WEIGHT_EFFICIENCY,
        .bytes = sizeof(float) * ((double)clef_shape_numel(x) + (double)clef_shape_numel(dy)) + (p.whole ? sums : 0)};
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
