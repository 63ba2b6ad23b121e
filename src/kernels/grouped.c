/* grouped.c — strategies for convolutions of groups of a few channels, on devices where one work-item owns a long run.

   As products these have few columns, which fill no vector, and short sums, which spend their time on addresses.  cl/grouped.cl
   computes as many neighbouring results as a vector has lanes, of several groups where one has fewer. */
#include "grouped.args"
#include "kernels/args.h"
#include "kernels/conv.h"
#include "kernels/gemm.h"
#include "kernels/image.h"
#include "kernels/reduce.h"
#include "plan/lower/cost.h"
#include "runtime/arithmetic.h"
#include <math.h>

CLEF__ARGS(geometry, GROUPED_GEOMETRY_ARGS)
CLEF__ARGS(grouped, GROUPED_ARGS)
CLEF__ARGS(grouped_weight, GROUPED_WEIGHT_ARGS)

enum {
    MOST_TAPS = 7,      /* of a row, by registers.h */
    LEAST_LANES = 4,    /* narrower vectors do not pay */
    CHUNK_FLOATS = 64,  /* fewer neighbouring channels than this read memory in crumbs */
    LINE_FLOATS = 8192, /* of copied rows: a second-level cache holds them beside filters and results */
    ITEM_STEPS = 8192,  /* vector multiplications that make a work-item of its own worth while */
    MOST_CHANNELS_AT_ONCE = 4
};

/* Fractions of the peak; vector multiplications that would take as long as the ends of a tile, as a vector that is copied, as a sum
   that is put into memory, and as a number of a filter that is gathered. */
static const double EFFICIENCY = 0.6, WEIGHT_EFFICIENCY = 0.6, TILE_STEPS = 8, COPY_STEPS = 4, SUM_STEPS = 3, GATHER_STEPS = 5;
static const double GATHER_SHARE = 0.1; /* of a work-item's time, where all units have one */

/* A convolution as its kernel sees it: of `results` per group from `channels`. */
typedef struct view {
    int64_t groups, channels, results, lanes;
    int64_t n, in[2], out[2], taps[2], stride[2], dilation[2], before[2];
} view;

/* The most lanes that whole groups fill, or that fill a group; 0: none. */
static int64_t lanes_of(const clef__lowering *lw, int64_t groups, int64_t channels, int64_t results) {
    bool spreads = channels == results && (results == 2 || results == 4 || results == 8);
    int64_t lanes = clef__lower_profile(lw)->vector;
    while (lanes >= LEAST_LANES && results % lanes != 0 && !(spreads && lanes % results == 0 && groups * results % lanes == 0))
        lanes /= 2;
    return lanes >= LEAST_LANES ? lanes : 0;
}

static view view_of(const clef__lowering *lw, clef_shape x, clef_shape y) {
    const clef__conv *a = clef__lower_node(lw)->attributes;
    view v = {.groups = a->groups, .channels = x.dim[1] / a->groups, .results = y.dim[1] / a->groups, .n = x.dim[0]};
    for (int d = 0; d < 2; d++) {
        v.in[d] = x.dim[2 + d];
        v.out[d] = y.dim[2 + d];
        v.taps[d] = a->kernel[d];
        v.stride[d] = a->stride[d];
        v.dilation[d] = a->dilation[d];
        v.before[d] = a->before[d];
    }
    v.lanes = lanes_of(lw, v.groups, v.channels, v.results);
    return v;
}

/* One phase of the gradient by the image. */
static view view_of_phase(const clef__lowering *lw, clef_shape dy, clef_shape dx, const clef__phase p[2]) {
    view v = view_of(lw, dy, dx);
    for (int d = 0; d < 2; d++) {
        v.out[d] = p[d].pixels;
        v.taps[d] = p[d].taps;
        v.stride[d] = 1;
        v.dilation[d] = p[d].shift;
        v.before[d] = -p[d].base;
    }
    return v;
}

/* ---- where it applies ---- */

/* The kernels count in 32 bits and want something to read. */
static bool countable(clef_shape s) {
    int64_t n = clef_shape_numel(s);
    return n > 0 && n <= INT32_MAX / 2;
}

static bool grouped_fits(const clef__lowering *lw, const clef__conv_sizes *s) {
    const clef__node *node = clef__lower_node(lw);
    const clef__conv *a = node->attributes;
    return clef__lower_profile(lw)->wide_items && a->groups > 1 && clef__gemm_type(node->out->dtype) == CLEF_F32 &&
           a->kernel[1] <= MOST_TAPS && countable(s->x) && countable(s->w) && countable(s->y);
}

static bool applies(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_forward_sizes(lw);
    return grouped_fits(lw, &s) && view_of(lw, s.x, s.y).lanes > 0;
}

static bool data_applies(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_data_sizes(lw);
    return grouped_fits(lw, &s) && view_of(lw, s.y, s.x).lanes > 0 && clef__phases_reach_all(clef__lower_node(lw)->attributes);
}

static bool weight_applies(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_weight_sizes(lw);
    return grouped_fits(lw, &s) && view_of(lw, s.x, s.y).lanes > 0;
}

/* ---- launches ---- */

static int64_t channels_of_block(const view *v) { return v->results < v->lanes ? v->lanes : v->channels; }
static int64_t results_of_block(const view *v) { return v->results < v->lanes ? v->lanes : v->results; }
static int64_t blocks_of(const view *v) { return v->groups * v->results / results_of_block(v); }
static int64_t reach_of(const view *v) { return (v->taps[0] - 1) * v->dilation[0] + 1; }
static int64_t vectors_of(const view *v) { return v->groups * v->results / v->lanes; }

/* Of a block: all pixels that a row of results reaches. */
static int64_t line_of(const view *v) {
    return ((v->out[1] - 1) * v->stride[1] + (v->taps[1] - 1) * v->dilation[1] + 1) * channels_of_block(v);
}

/* Blocks whose `rows` lines a cache holds. */
static int64_t chunk_of(const view *v, int64_t rows) {
    int64_t least = clef__ceil_div(CHUNK_FLOATS, channels_of_block(v)), most = LINE_FLOATS / (rows * line_of(v));
    return clef__equal_part(blocks_of(v), clef__smaller(clef__larger(least, most), blocks_of(v)));
}

/* Channels that are taken together, and the pixels of a tile: registers hold their sums. */
static int64_t channels_at_once(const view *v) {
    int64_t channels = MOST_CHANNELS_AT_ONCE;
    while (v->channels % channels != 0) channels /= 2;
    return channels;
}
static int64_t pixels_at_once(const clef__lowering *lw, const view *v) {
    const clef__profile *profile = clef__lower_profile(lw);
    return clef__equal_part(v->out[1], clef__smaller(profile->tile_m * profile->tile_vectors, v->out[1]));
}

static void begin_grouped(const clef__lowering *lw, const char *kernel, const view *v) {
    static const char *const name[] = {"W", "CHANNELS", "RESULTS", "KW", "STRIDE", "DILATION", "P", "JT"};
    const int64_t number[] = {v->lanes,       v->channels,           v->results,         v->taps[1], v->stride[1],
                              v->dilation[1], pixels_at_once(lw, v), channels_at_once(v)};
    clef__launch_begin(lw, "grouped.cl", kernel);
    clef__launch_define(lw, "DT", "%s", clef__token(clef__lower_node(lw)->out->dtype));
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) clef__launch_define(lw, name[i], "%d", (int)number[i]);
}

/* Numbers of all filters: each work-item of `grouped` gathers them. */
static int64_t filters_of(const view *v) { return v->groups * v->results * v->channels * v->taps[0] * v->taps[1]; }

/* How many work-items share the rows, equally; each gathers so many numbers before. */
static int64_t grouped_grain(const clef__lowering *lw, const view *v, int64_t gathered, int64_t *per_item) {
    int64_t rows = v->n * v->out[0], items = clef__lower_items(lw, rows, 1), units = clef__lower_device(lw)->compute_units;
    double steps = (double)rows * (double)(v->out[1] * vectors_of(v) * v->channels * v->taps[0] * v->taps[1]);
    double paying = gathered ? steps * GATHER_SHARE / (GATHER_STEPS * (double)gathered) : steps;
    items = (int64_t)fmin((double)items, fmin(steps / ITEM_STEPS, fmax(paying, (double)units)));
    *per_item = clef__ceil_div(rows, clef__larger(items, 1));
    return clef__ceil_div(rows, *per_item);
}

static geometry_args geometry_of(const view *v, int64_t chunk, int64_t per_item) {
    /* clang-format off */
    return (geometry_args){
        .in = CLEF__TWO(v->in), .out = CLEF__TWO(v->out), .c = v->groups * v->channels, .o = v->groups * v->results,
        .taps_h = v->taps[0], .stride_h = v->stride[0], .dilation_h = v->dilation[0], .before = CLEF__TWO(v->before),
        .line = line_of(v), .chunk = chunk, .rows = v->n * v->out[0], .per_item = per_item,
    };
    /* clang-format on */
}

/* Where results lie in their image, and filters in memory. */
typedef struct places {
    int64_t origin, apart[2], line, image, wy, wx, wc, wn, wg;
} places;

static void convolve(const clef__lowering *lw, const view *v, const clef__image *x, clef__operand w, clef__operand y,
                     const clef__epilogue *epilogue, const places *at) {
    int64_t per_item, items = grouped_grain(lw, v, filters_of(v), &per_item), chunk = chunk_of(v, reach_of(v));
    int64_t weights = chunk * results_of_block(v) * v->channels * v->taps[0] * v->taps[1];
    int64_t room = (reach_of(v) * chunk * line_of(v) + v->lanes + weights + 15) / 16 * 16;
    clef__operand lines = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(items, room));
    begin_grouped(lw, "grouped", v);
    /* clang-format off */
    grouped_args args = {
        .x = x->data, .w = w, .y = y, .room = lines, .item_room = room,
        .geometry = geometry_of(v, chunk, per_item), .apart = CLEF__TWO(at->apart), .origin = at->origin, .line_y = at->line, .image_y = at->image,
        .wy = at->wy, .wx = at->wx, .wc = at->wc, .wn = at->wn, .wg = at->wg, .epilogue = *epilogue,
    };
    /* clang-format on */
    pass_grouped(lw, &args);
    clef__launch_end(lw, (size_t[]){(size_t)items, 1, 1}, (size_t[]){1, 1, 1});
}

static void grouped_forward(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_forward_sizes(lw);
    view v = view_of(lw, s.x, s.y);
    clef__image x = clef__image_in(lw, 0);
    clef__operand w = clef__lower_in(lw, 1), y = clef__lower_out(lw, clef__channels_last);
    clef__epilogue epilogue = clef__lower_biased_epilogue(lw, y);
    /* clang-format off */
    places at = {
        .apart = {1, 1}, .line = v.out[1], .image = v.out[0] * v.out[1],
        .wy = w.stride[2], .wx = w.stride[3], .wc = w.stride[1], .wn = w.stride[0], .wg = v.results * w.stride[0],
    };
    /* clang-format on */
    convolve(lw, &v, &x, w, y, &epilogue, &at);
}

static void lower_phase(const clef__lowering *lw, const clef__image *dy, clef__operand w, clef__operand dx,
                        const clef__epilogue *epilogue, const clef__phase p[2], const int64_t residue[2]) {
    const clef__conv *a = clef__lower_node(lw)->attributes;
    clef__conv_sizes s = clef__conv_data_sizes(lw);
    view v = view_of_phase(lw, s.y, s.x, p);
    for (int d = 0; d < 2; d++) w.offset += (p[d].first + (p[d].taps - 1) * p[d].step) * w.stride[2 + d];
    /* clang-format off */
    places at = {
        .origin = residue[0] * a->image[1] + residue[1], .apart = CLEF__TWO(a->stride), .line = a->image[1], .image = a->image[0] * a->image[1],
        .wy = -p[0].step * w.stride[2], .wx = -p[1].step * w.stride[3], .wc = w.stride[0], .wn = w.stride[1], .wg = v.channels * w.stride[0],
    };
    /* clang-format on */
    convolve(lw, &v, dy, w, dx, epilogue, &at);
}

static void grouped_data(const clef__lowering *lw) {
    const clef__conv *a = clef__lower_node(lw)->attributes;
    clef__image dy = clef__image_in(lw, 0);
    clef__operand w = clef__lower_in(lw, 1), dx = clef__lower_out(lw, clef__channels_last);
    clef__epilogue epilogue = clef__lower_epilogue(lw, dx);
    int64_t r[2];
    for (r[0] = 0; r[0] < clef__phases(a, 0); r[0]++)
        for (r[1] = 0; r[1] < clef__phases(a, 1); r[1]++)
            lower_phase(lw, &dy, w, dx, &epilogue, (clef__phase[]){clef__find_phase(a, 0, r[0]), clef__find_phase(a, 1, r[1])}, r);
}

/* Rows of x under so many rows of dy. */
static int64_t rows_under(const view *v, int64_t rows) { return (rows - 1) * v->stride[0] + reach_of(v); }

/* Rows of dy whose lines a cache holds. */
static int64_t block_of(const view *v, int64_t per_item) {
    int64_t rows = LINE_FLOATS / line_of(v), block = clef__larger((rows - reach_of(v)) / v->stride[0] + 1, 1);
    return clef__smaller(clef__equal_part(v->out[0], clef__smaller(block, v->out[0])), per_item);
}

static void grouped_weight(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_weight_sizes(lw);
    view v = view_of(lw, s.x, s.y);
    clef__image x = clef__image_in(lw, 0), dy = clef__image_in(lw, 1);
    clef__operand dw = clef__lower_out(lw, clef__filters_last), sums = dw;
    int64_t per_item, items = grouped_grain(lw, &v, 0, &per_item), block = block_of(&v, per_item);
    int64_t chunk = chunk_of(&v, rows_under(&v, block)), taps = v.taps[0] * v.taps[1] * v.channels;
    int64_t room = (rows_under(&v, block) * chunk * line_of(&v) + v.lanes + 15) / 16 * 16, all = taps * v.groups * v.results;
    bool through = items > 1 || dw.dtype != CLEF_F32;
    if (through) sums = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(items, all));
    clef__operand lines = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(items, room));
    begin_grouped(lw, "grouped_weight", &v);
    /* clang-format off */
    grouped_weight_args args = {
        .x = x.data, .dy = dy.data, .to = sums, .room = lines, .item_room = room,
        .geometry = geometry_of(&v, chunk, per_item), .block = block,
    };
    /* clang-format on */
    pass_grouped_weight(lw, &args);
    clef__launch_end(lw, (size_t[]){(size_t)items, 1, 1}, (size_t[]){1, 1, 1});
    if (through) clef__lower_sum(lw, sums, dw, (clef__axes){1, items, all});
}

/* ---- costs ---- */

/* Of vectors that are multiplied and added; a narrow one takes less time than a whole one, but not by as much. */
static double seconds_of(const clef__lowering *lw, const view *v, double vectors, double efficiency, double bytes) {
    double lanes = (double)(v->lanes + clef__lower_profile(lw)->vector) / 2;
    clef__work work = {
        .flops = 2 * vectors * lanes, .efficiency = efficiency, .bytes = bytes, .groups = (double)(v->n * v->out[0])};
    return clef__launch_seconds(lw, &work);
}

static double copied_steps(const view *v, double rows) {
    return rows * (double)(line_of(v) * blocks_of(v)) / (double)v->lanes * COPY_STEPS;
}

static double convolve_seconds(const clef__lowering *lw, const view *v, double bytes) {
    double pixels = (double)pixels_at_once(lw, v), tiles = ceil((double)v->out[1] / pixels), rows = (double)(v->n * v->out[0]);
    double taps = (double)(v->taps[0] * v->taps[1] * v->channels);
    int64_t per_item, items = grouped_grain(lw, v, filters_of(v), &per_item);
    double gathered = (double)items * (double)filters_of(v) * GATHER_STEPS;
    double steps = rows * tiles * (double)vectors_of(v) * (pixels * taps + TILE_STEPS) + copied_steps(v, rows) + gathered;
    return seconds_of(lw, v, steps, EFFICIENCY, bytes);
}

static double forward_cost(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_forward_sizes(lw);
    view v = view_of(lw, s.x, s.y);
    return convolve_seconds(lw, &v, clef__conv_bytes(lw, &s));
}

static double data_cost(const clef__lowering *lw) {
    const clef__conv *a = clef__lower_node(lw)->attributes;
    clef__conv_sizes s = clef__conv_data_sizes(lw);
    int64_t phases[2] = {clef__phases(a, 0), clef__phases(a, 1)};
    double seconds = 0, bytes = clef__conv_bytes(lw, &s) / (double)(phases[0] * phases[1]);
    for (int64_t i = 0; i < phases[0]; i++)
        for (int64_t j = 0; j < phases[1]; j++) {
            view v = view_of_phase(lw, s.y, s.x, (const clef__phase[]){clef__find_phase(a, 0, i), clef__find_phase(a, 1, j)});
            seconds += convolve_seconds(lw, &v, bytes);
        }
    return seconds;
}

static double weight_cost(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_weight_sizes(lw);
    view v = view_of(lw, s.x, s.y);
    int64_t per_item, items = grouped_grain(lw, &v, 0, &per_item), block = block_of(&v, per_item);
    double rows = (double)(v.n * v.out[0]), taps = (double)(v.taps[0] * v.taps[1] * v.channels), vectors = (double)vectors_of(&v);
    double copies = copied_steps(&v, rows / (double)block * (double)rows_under(&v, block));
    double sums = (rows / (double)block + (double)items) * vectors * taps * SUM_STEPS;
    return seconds_of(lw, &v, rows * (double)v.out[1] * vectors * taps + copies + sums, WEIGHT_EFFICIENCY,
                      clef__conv_bytes(lw, &s));
}

const clef__conv_rows clef__conv_grouped = {
    .forward = {.name = "grouped", .applies = applies, .cost = forward_cost, .lower = grouped_forward},
    .data = {.name = "grouped", .applies = data_applies, .cost = data_cost, .lower = grouped_data},
    .weight = {.name = "grouped", .applies = weight_applies, .cost = weight_cost, .lower = grouped_weight}};
