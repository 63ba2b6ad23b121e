/* fold_rows.c — a strategy for the gradient of a convolution by an image of few channels, on devices where one work-item owns a
   long run: the product of fold.c and what it leaves to be gathered in one launch (cl/fold_rows.cl), so that no product goes through
   memory. */
#include "fold_rows.args"
#include "kernels/args.h"
#include "kernels/conv.h"
#include "kernels/gemm.h"
#include "kernels/image.h"
#include "plan/lower/cost.h"
#include "runtime/arithmetic.h"

CLEF__ARGS(fold_rows, FOLD_ROWS_ARGS)

enum {
    MOST_CHANNELS = 8,     /* with more of them other ways leave few lanes idle, too */
    FILTER_FLOATS = 65536, /* a second-level cache holds them */
    BAND_KERNELS = 4       /* a band has so many times the rows that the kernel has, as its ends are multiplied twice */
};

/* Fraction of the peak; multiply-adds of vectors that would take as long as adding one to a line; and as the ends of a tile. */
static const double EFFICIENCY = 0.7, ADD_STEPS = 8, TILE_STEPS = 40;

/* Its columns in vectors, and a tile: pixels × vectors. */
typedef struct tile {
    int64_t lanes, columns, vectors, height;
} tile;

static tile tile_of(const clef__lowering *lw, int64_t channels, int64_t out_w) {
    const clef__profile *profile = clef__lower_profile(lw);
    const clef__conv *a = clef__lower_node(lw)->attributes;
    int64_t taps = a->kernel[0] * a->kernel[1] * channels;
    tile t = {.lanes = profile->vector, .vectors = clef__smaller(clef__ceil_div(taps, profile->vector), profile->tile_vectors)};
    t.columns = clef__round_up(taps, t.lanes * t.vectors);
    int64_t limit = clef__smaller(profile->tile_m * profile->tile_vectors / t.vectors, out_w);
    t.height = clef__equal_part(out_w, limit);
    return t;
}

static bool applies(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    const clef__conv *a = node->attributes;
    clef_shape dx = node->out->shape, dy = node->input[0]->shape;
    bool plain = a->groups == 1 && a->kernel[0] * a->kernel[1] > 1;
    for (int d = 0; d < 2; d++) plain = plain && a->dilation[d] == 1 && a->before[d] >= 0;
    return plain && clef__lower_profile(lw)->wide_items && node->out->dtype == CLEF_F32 && dx.dim[1] <= MOST_CHANNELS &&
           clef_shape_numel(dx) > 0 && clef_shape_numel(dy) > 0 &&
           tile_of(lw, dx.dim[1], dy.dim[3]).columns * dy.dim[1] <= FILTER_FLOATS && dx.dim[0] * dx.dim[2] <= INT32_MAX &&
           dx.dim[1] * (dx.dim[3] + a->before[1]) <= INT32_MAX / a->kernel[0] && dy.dim[1] * dy.dim[3] <= INT32_MAX;
}

static void fold_rows_data(const clef__lowering *lw) {
    const clef__conv *a = clef__lower_node(lw)->attributes;
    clef__operand w = clef__lower_in(lw, 1);
    clef__image dy = clef__image_in(lw, 0), dx = clef__image_of(clef__lower_out(lw, clef__channels_last));
    tile t = tile_of(lw, dx.c, dy.w);
    int64_t step = a->stride[1] * dx.c, run = a->kernel[1] * dx.c;
    int64_t line = clef__larger((dy.w - 1) * step + clef__round_up(run, t.lanes), (a->before[1] + dx.w) * dx.c);
    bool pays = clef__lower_pays(lw, 2.0 * (double)(dy.n * dy.h * dy.w) * (double)(dy.c * t.columns / t.lanes));
    int64_t items = pays ? clef__lower_items(lw, dx.n * dx.h, 1) : 1;
    int64_t band = clef__larger(clef__ceil_div(dx.h, clef__ceil_div(items, dx.n)), BAND_KERNELS * a->kernel[0]);
    int64_t bands = clef__ceil_div(dx.h, band), parts = dx.n * bands, per_item = clef__ceil_div(parts, items);
    line = clef__round_up(line, t.lanes);
    items = clef__ceil_div(parts, per_item);
    clef__operand scratch = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(items, dy.c * t.columns + a->kernel[0] * line));
    static const char *const name[] = {"W", "KH", "KW", "CHANNELS", "STRIDE", "FILTERS", "MR", "NV"};
    const int64_t number[] = {t.lanes, a->kernel[0], a->kernel[1], dx.c, a->stride[1], dy.c, t.height, t.vectors};
    clef__launch_begin(lw, "fold_rows.cl", "fold_rows");
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) clef__launch_define(lw, name[i], "%d", (int)number[i]);
    /* clang-format off */
    fold_rows_args args = {
        .dy = dy.data, .w = w, .dx = dx.data, .scratch = scratch, .parts = parts, .per_item = per_item, .bands = bands, .band = band,
        .height = dx.h, .width = dx.w, .out = {dy.h, dy.w}, .stride_h = a->stride[0], .before = CLEF__TWO(a->before), .line = line,
        .wy = w.stride[2], .wx = w.stride[3], .wc = w.stride[1], .wn = w.stride[0],
    };
    /* clang-format on */
    pass_fold_rows(lw, &args);
    clef__launch_end(lw, (size_t[]){(size_t)items, 1, 1}, (size_t[]){1, 1, 1});
}

static double cost(const clef__lowering *lw) {
    const clef__conv *a = clef__lower_node(lw)->attributes;
    clef__conv_sizes s = clef__conv_data_sizes(lw);
    tile t = tile_of(lw, s.x.dim[1], s.y.dim[3]);
    double tiles = (double)(s.y.dim[0] * s.y.dim[2] * clef__ceil_div(s.y.dim[3], t.height));
    double adds = (double)(a->kernel[0] * clef__ceil_div(a->kernel[1] * s.x.dim[1], t.lanes));
    double steps = (double)t.height * ((double)(s.y.dim[1] * t.columns / t.lanes) + adds * ADD_STEPS) + TILE_STEPS;
    clef__work work = {
        .flops = 2 * tiles * steps * (double)t.lanes, .efficiency = EFFICIENCY, .bytes = clef__conv_bytes(lw, &s), .groups = tiles};
    return clef__launch_seconds(lw, &work);
}

const clef__conv_rows clef__conv_fold_rows = {
    .data = {.name = "fold_rows", .applies = applies, .cost = cost, .lower = fold_rows_data}};
