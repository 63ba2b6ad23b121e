/* direct.c — strategies for convolutions of few channels and filters, on devices where one work-item owns a long run.

   As products these have short sums and rows that fill no vector, and spend their time on addresses.  cl/direct.cl knows the taps
   when it is compiled, makes vectors no wider than the results of a pixel, and takes filters and images as they lie. */
#include "direct.args"
#include "kernels/args.h"
#include "kernels/conv.h"
#include "kernels/gemm.h"
#include "kernels/image.h"
#include "plan/lower/cost.h"
#include "runtime/arithmetic.h"
#include <math.h>

CLEF__ARGS(geometry, DIRECT_GEOMETRY_ARGS)
CLEF__ARGS(convolve, CONVOLVE_ARGS)
CLEF__ARGS(gradient, GRADIENT_ARGS)
CLEF__ARGS(finish, DIRECT_FINISH_ARGS)

enum {
    FILTER_FLOATS = 8192, /* of all taps, with idle lanes: a first-level cache holds them, */
    MOST_FLOATS = 16384,  /* and of a second-level cache, in passes */
    ITEM_STEPS = 8192,    /* vector multiplications that make a work-item of its own worth while */
    BLOCK_FLOATS =
        6144, /* of dy and of copied rows: a first-level cache holds them while a gradient by the filters reads them; a long row's copies do not fit */
    MOST_SUMS = 28,  /* taps that cl/registers.h can name */
    LEAST_SUMS = 8,  /* multiply-adds that a CPU has under way */
    MOST_VECTORS = 4 /* and vectors */
};

/* Fractions of the peak, the first one while filters leave the image room in a first-level cache; vectors that would take as long
   as the ends of a tile, for each result and for each row of taps; as one that is copied; and as the ends of a line of these. */
static const double EFFICIENCY = 0.56, FULL_CACHE = 0.5, WEIGHT_EFFICIENCY = 0.7, TILE_STEPS = 2.4, ROW_STEPS = 56, LINE_STEPS = 1,
                    LINE_ENDS = 100;

/* One of the three convolutions as its kernel sees it: y of n results per pixel from x of c channels. */
typedef struct view {
    int64_t n, c, kernel[2], stride[2], dilation[2], before[2];
    int64_t out[2]; /* rows and columns of y */
    bool of_data;   /* the gradient by the image */
} view;

static view view_of(const clef__conv *a, clef_shape x, clef_shape y) {
    view v = {.n = y.dim[1], .c = x.dim[1]};
    for (int d = 0; d < 2; d++) {
        v.kernel[d] = a->kernel[d];
        v.stride[d] = a->stride[d];
        v.dilation[d] = a->dilation[d];
        v.before[d] = a->before[d];
        v.out[d] = y.dim[2 + d];
    }
    return v;
}

/* The gradient by the image of a convolution of stride 1 is one of dy. */
static view view_of_data(const clef__conv *a, clef_shape dy, clef_shape dx) {
    view v = view_of(a, dy, dx);
    v.of_data = true;
    for (int d = 0; d < 2; d++) v.before[d] = (a->kernel[d] - 1) * a->dilation[d] - a->before[d];
    return v;
}

static int64_t run_of(const view *v) { return v->kernel[1] * v->c; }

/* ---- where it applies ---- */

/* Lanes of a vector: no more than a pixel's results need. */
static int64_t lanes_of(const clef__lowering *lw, const view *v) {
    int64_t lanes = 4;
    while (lanes < v->n && lanes < clef__lower_profile(lw)->vector) lanes *= 2;
    return lanes;
}

static int64_t vectors_of(const clef__lowering *lw, const view *v) { return clef__ceil_div(v->n, lanes_of(lw, v)); }

/* Of filters, with idle lanes. */
static int64_t floats_of(const clef__lowering *lw, const view *v) {
    return v->kernel[0] * run_of(v) * vectors_of(lw, v) * lanes_of(lw, v);
}

/* Do registers hold the sums of a tile of all vectors, with at least as many pixels? */
static bool tile_holds_all(const clef__lowering *lw, const view *v) {
    const clef__profile *profile = clef__lower_profile(lw);
    int64_t vectors = vectors_of(lw, v);
    return vectors <= MOST_VECTORS && vectors * vectors <= profile->tile_m * profile->tile_vectors;
}

/* Filters that fill pairs of vectors go in passes of two where no tile holds them all, or where all would leave the image no room in a
   first-level cache. */
static int64_t passes_of(const clef__lowering *lw, const view *v) {
    bool pairs = v->n % (2 * lanes_of(lw, v)) == 0 && floats_of(lw, v) <= MOST_FLOATS;
    bool whole = tile_holds_all(lw, v) && floats_of(lw, v) <= FILTER_FLOATS;
    return pairs && !whole ? vectors_of(lw, v) / 2 : 1;
}

/* A tile of a row holds so many vectors of each pixel: all of a pass. */
static int64_t width_of(const clef__lowering *lw, const view *v) {
    return clef__smaller(vectors_of(lw, v) / passes_of(lw, v), MOST_VECTORS);
}

/* x: shape of the image that is read. */
static bool direct_fits(const clef__lowering *lw, const view *v, clef_shape x) {
    const clef__node *node = clef__lower_node(lw);
    const clef__conv *a = node->attributes;
    return clef__lower_profile(lw)->wide_items && clef__gemm_type(node->out->dtype) == CLEF_F32 && a->groups == 1 &&
           clef_shape_numel(x) > 0 && v->dilation[1] == 1 && v->before[0] >= 0 && v->before[1] >= 0 &&
           v->kernel[0] * v->kernel[1] > 1 && v->n > 1 && x.dim[1] * x.dim[2] * x.dim[3] <= INT32_MAX;
}

static bool convolves(const clef__lowering *lw, const view *v, clef_shape x) {
    int64_t passes = passes_of(lw, v);
    return direct_fits(lw, v, x) && width_of(lw, v) * passes == vectors_of(lw, v) && floats_of(lw, v) <= FILTER_FLOATS * passes;
}

static bool applies(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    clef_shape x = node->input[0]->shape;
    view v = view_of(node->attributes, x, node->out->shape);
    return convolves(lw, &v, x);
}

static bool data_applies(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    const clef__conv *a = node->attributes;
    clef_shape dy = node->input[0]->shape;
    view v = view_of_data(a, dy, node->out->shape);
    return a->stride[0] == 1 && a->stride[1] == 1 && convolves(lw, &v, dy);
}

static bool weight_applies(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    clef_shape x = node->input[0]->shape;
    view v = view_of(node->attributes, x, node->input[1]->shape);
    return direct_fits(lw, &v, x) && floats_of(lw, &v) <= FILTER_FLOATS;
}

/* ---- launches ---- */

/* How many work-items share `rows` rows of so many steps, equally. */
static int64_t direct_grain(const clef__lowering *lw, int64_t rows, int64_t steps, int64_t *per_item) {
    int64_t items = clef__smaller(clef__lower_items(lw, rows, 1), rows * steps / ITEM_STEPS);
    *per_item = clef__ceil_div(rows, clef__larger(items, 1));
    return clef__ceil_div(rows, *per_item);
}

/* The same where no sum is made of what items do: one item where the work pays for no other unit. */
static int64_t free_grain(const clef__lowering *lw, int64_t rows, int64_t steps, int64_t *per_item) {
    if (clef__lower_pays(lw, 2.0 * (double)rows * (double)steps)) return direct_grain(lw, rows, steps, per_item);
    *per_item = rows;
    return 1;
}

/* A line for a row of x, `width` pixels, with zeros around. */
static int64_t line_of(const view *v, int64_t width) {
    return clef__larger((v->before[1] + width) * v->c, (v->out[1] - 1) * v->stride[1] * v->c + run_of(v));
}

/* Does a row of x have to be copied before its taps can be read as they lie? */
static bool is_staged(const view *v, const clef__image *x) { return x->data.dtype != CLEF_F32 || line_of(v, x->w) > x->w * x->c; }

/* A tile of the gradient by the filters: rows of taps, taps of a row, and vectors of dy. */
typedef struct tile {
    int64_t keys, part, vectors;
    bool copied;
} tile;

/* As many rows of taps as there are sums for.  Where these are not enough for two rows, parts of one: with two vectors of dy each load is
   one for more multiply-adds, unless too few sums are left. */
static tile tile_of(const clef__lowering *lw, const view *v) {
    const clef__profile *profile = clef__lower_profile(lw);
    int64_t sums = profile->tile_m * profile->tile_vectors, most = clef__smaller(sums * 7 / 6, MOST_SUMS), run = run_of(v);
    int64_t half = clef__equal_part(run, clef__smaller(sums / 2, run));
    tile t = {.keys = clef__larger(clef__smaller(most / run, v->kernel[0]), 1), .vectors = 1};
    if (t.keys == 1 && vectors_of(lw, v) % 2 == 0 && 2 * half >= LEAST_SUMS) t.vectors = 2;
    t.part = t.vectors == 2 ? half : clef__equal_part(run, clef__smaller(most, run));
    return t;
}

static tile choose_tile(const clef__lowering *lw, const view *v, const clef__image *x) {
    tile t = tile_of(lw, v);
    bool below = (v->out[0] - 1) * v->stride[0] + (v->kernel[0] - 1) * v->dilation[0] >= x->h;
    t.copied = is_staged(v, x) || v->before[0] > 0 || below;
    return t;
}

/* A tile of a row has so many pixels. */
static int64_t height_of(const clef__lowering *lw, const view *v) {
    const clef__profile *profile = clef__lower_profile(lw);
    int64_t limit = clef__smaller(profile->tile_m * profile->tile_vectors / width_of(lw, v), v->out[1]);
    return clef__equal_part(v->out[1], limit);
}

/* Rows that a tile spans where few pixels fill one: neighbours in y, of one image, that need no row of zeros. */
static int64_t depth_of(const clef__lowering *lw, const view *v, const clef__image *x) {
    const clef__profile *profile = clef__lower_profile(lw);
    int64_t depth = profile->tile_m * profile->tile_vectors / width_of(lw, v) / v->out[1];
    if (passes_of(lw, v) > 1 || choose_tile(lw, v, x).copied) return 1;
    while (depth > 1 && v->out[0] % depth != 0) depth--;
    return clef__larger(depth, 1);
}

/* The knobs of all kernels, so that a convolution and its gradient by the filters are one program; the gradient by the image has
   none to share with. */
static void begin_direct(const clef__lowering *lw, const char *kernel, const view *v, const clef__image *x) {
    static const char *const name[] = {"W",    "KH", "KW",     "CHANNELS", "RESULTS", "STRIDE", "STAGED", "MR",
                                       "DEEP", "NV", "PASSES", "KEYS",     "PART",    "TAPS",   "ACROSS", "COPIED"};
    tile t = choose_tile(lw, v, x);
    /* clang-format off */
    const int64_t number[] = {lanes_of(lw, v), v->kernel[0], v->kernel[1], v->c, v->n, v->stride[1], is_staged(v, x),
                              height_of(lw, v) * depth_of(lw, v, x), depth_of(lw, v, x), width_of(lw, v), passes_of(lw, v), t.keys, t.part, t.keys * t.part, t.vectors, t.copied};
    /* clang-format on */
    clef__launch_begin(lw, "direct.cl", kernel);
    clef__launch_define(lw, "DT", "%s", clef__token(x->data.dtype));
    size_t n = sizeof number / sizeof *number, own = 11; /* of convolve */
    for (size_t i = 0; i < (v->of_data ? own : n); i++) clef__launch_define(lw, name[i], "%d", (int)number[i]);
}

static geometry_args geometry_of(const view *v, const clef__image *x) {
    /* clang-format off */
    return (geometry_args){
        .height = x->h, .width = x->w, .out = CLEF__TWO(v->out), .stride_h = v->stride[0], .dilation_h = v->dilation[0],
        .before = CLEF__TWO(v->before), .line = line_of(v, x->w),
    };
    /* clang-format on */
}

/* w: [n, c, kh, kw] in the kernel's order of taps, any strides. */
static void convolve(const clef__lowering *lw, const view *v, clef__operand w) {
    clef__image x = clef__image_in(lw, 0);
    clef__operand y = clef__lower_out(lw, clef__channels_last), lines = y;
    clef__epilogue epilogue = clef__lower_biased_epilogue(lw, y);
    int64_t depth = depth_of(lw, v, &x), rows = x.n * v->out[0], per_item,
            items = free_grain(lw, rows / depth, depth * v->out[1] * v->kernel[0] * run_of(v) * vectors_of(lw, v), &per_item);
    per_item *= depth;
    if (is_staged(v, &x)) lines = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(items, v->kernel[0], line_of(v, x.w)));
    begin_direct(lw, "convolve", v, &x);
    /* clang-format off */
    convolve_args args = {
        .x = x.data, .w = w, .y = y, .lines = lines,
        .rows = rows, .per_item = per_item, .geometry = geometry_of(v, &x),
        .wy = w.stride[2], .wx = w.stride[3], .wc = w.stride[1], .wn = w.stride[0], .epilogue = epilogue,
    };
    /* clang-format on */
    pass_convolve(lw, &args);
    clef__launch_end(lw, (size_t[]){(size_t)items, 1, 1}, (size_t[]){1, 1, 1});
}

static void direct_forward(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    view v = view_of(node->attributes, node->input[0]->shape, node->out->shape);
    convolve(lw, &v, clef__lower_in(lw, 1));
}

static void direct_data(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    view v = view_of_data(node->attributes, node->input[0]->shape, node->out->shape);
    convolve(lw, &v, clef__filters_flipped(clef__lower_in(lw, 1)));
}

static void direct_weight(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    view v = view_of(node->attributes, node->input[0]->shape, node->input[1]->shape);
    clef__image x = clef__image_in(lw, 0), dy = clef__image_in(lw, 1);
    clef__operand dw = clef__lower_out(lw, clef__filters_last), lines = dw;
    int64_t taps = v.kernel[0] * run_of(&v), rows = x.n * v.out[0], per_item;
    int64_t width = vectors_of(lw, &v) * lanes_of(lw, &v);
    int64_t items = direct_grain(lw, rows, v.out[1] * taps * vectors_of(lw, &v), &per_item);
    tile t = choose_tile(lw, &v, &x);
    int64_t copies = t.copied ? v.kernel[0] : 0, span = clef__equal_part(v.out[1], clef__smaller(BLOCK_FLOATS / width, v.out[1]));
    int64_t block = BLOCK_FLOATS / (v.out[1] * width + copies * line_of(&v, x.w));
    block = clef__smaller(clef__larger(block, 1), per_item);
    if (t.copied) lines = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(items, block * copies, line_of(&v, x.w)));
    clef__operand sums = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(items, taps, width));
    begin_direct(lw, "gradient", &v, &x);
    /* clang-format off */
    gradient_args args = {
        .x = x.data, .dy = dy.data, .part = sums, .dw = dw, .lines = lines,
        .rows = rows, .per_item = per_item, .block = block, .span = span, .geometry = geometry_of(&v, &x),
    };
    /* clang-format on */
    pass_gradient(lw, &args);
    clef__launch_end(lw, (size_t[]){(size_t)items, 1, 1}, (size_t[]){1, 1, 1});
    if (items == 1) return; /* it has put the sums itself */
    int64_t run = clef__ceil_div(ITEM_STEPS, items * vectors_of(lw, &v));
    begin_direct(lw, "finish", &v, &x);
    pass_finish(lw, &(finish_args){.part = sums, .dw = dw, .parts = items, .run = run});
    clef__launch_end(lw, (size_t[]){(size_t)clef__ceil_div(taps, run), 1, 1}, (size_t[]){1, 1, 1});
}

/* ---- costs ---- */

/* Of vectors that are multiplied and added; a narrow one takes less time than a whole one, but not by as much. */
static double seconds_of(const clef__lowering *lw, const view *v, double vectors, double efficiency, double bytes, double rows) {
    double lanes = (double)(lanes_of(lw, v) + clef__lower_profile(lw)->vector) / 2;
    clef__work work = {.flops = 2 * vectors * lanes, .efficiency = efficiency, .bytes = bytes, .groups = rows};
    return clef__launch_seconds(lw, &work);
}

/* x: shape of the image that is read. */
static double convolve_seconds(const clef__lowering *lw, const view *v, clef_shape x, double bytes) {
    double vectors = (double)vectors_of(lw, v), height = (double)height_of(lw, v);
    double rows = (double)(x.dim[0] * v->out[0]), tiles = ceil((double)v->out[1] / height);
    double taps = (double)(v->kernel[0] * run_of(v));
    double line = (double)(x.dim[3] * v->c) / clef__lower_profile(lw)->vector * LINE_STEPS;
    if (line_of(v, x.dim[3]) > x.dim[3] * v->c) line += LINE_ENDS;
    double steps = rows * (tiles * height * vectors * (taps + TILE_STEPS) + (double)v->kernel[0] * line);
    double full = passes_of(lw, v) > 1 ? 0 : (double)floats_of(lw, v) / FILTER_FLOATS; /* a pass uses them for more pixels */
    return seconds_of(lw, v, steps, EFFICIENCY + (FULL_CACHE - EFFICIENCY) * full, bytes, rows);
}

static double forward_cost(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_forward_sizes(lw);
    view v = view_of(clef__lower_node(lw)->attributes, s.x, s.y);
    return convolve_seconds(lw, &v, s.x, clef__conv_bytes(lw, &s));
}

static double data_cost(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_data_sizes(lw);
    view v = view_of_data(clef__lower_node(lw)->attributes, s.y, s.x);
    return convolve_seconds(lw, &v, s.y, clef__conv_bytes(lw, &s));
}

static double weight_cost(const clef__lowering *lw) {
    clef__conv_sizes s = clef__conv_weight_sizes(lw);
    view v = view_of(clef__lower_node(lw)->attributes, s.x, s.y);
    tile t = tile_of(lw, &v);
    double pixels = clef__pixels(s.y), rows = (double)(s.y.dim[0] * s.y.dim[2]), run = (double)run_of(&v);
    double tiles =
        ceil((double)v.kernel[0] / (double)t.keys) * ceil(run / (double)t.part) * (double)(vectors_of(lw, &v) / t.vectors);
    double line = (double)(v.kernel[0] * v.out[1] * v.c) / clef__lower_profile(lw)->vector;
    double steps = pixels * tiles * (double)(t.keys * t.part * t.vectors + 1) + rows * (tiles * ROW_STEPS + line * LINE_STEPS);
    return seconds_of(lw, &v, steps, WEIGHT_EFFICIENCY, clef__conv_bytes(lw, &s), rows);
}

const clef__conv_rows clef__conv_direct = {
    .forward = {.name = "direct", .applies = applies, .cost = forward_cost, .lower = direct_forward},
    .data = {.name = "direct", .applies = data_applies, .cost = data_cost, .lower = direct_data},
    .weight = {.name = "direct", .applies = weight_applies, .cost = weight_cost, .lower = direct_weight}};
