/* tile.c — products on devices that like tiles in local memory: chooses tile, loads and splits, and emits cl/tile.cl, or
   cl/matrix.cl where the device has matrix units for the operands: of half types, and of f32 where the context lets it be rounded to TF32. */
#include "kernels/args.h"
#include "kernels/gemm.h"
#include "plan/lower/cost.h"
#include "runtime/arithmetic.h"
#include "tile.args"
#include <math.h>
#include <stdlib.h>

CLEF__ARGS(tile, TILE_ARGS)

enum {
    UNIT_ITEMS = 512,     /* work-items that keep a compute unit busy */
    SHORTEST_SPLIT = 256, /* fewer products than this do not pay the second pass of a split */
    LONGEST_K = 16384,    /* longer sums are split, whose parts round less */
    DEEPEST = 64,         /* block along k */
    LANES = 32,           /* work-items that share a matrix unit */
    PLACE_INTS = 10,      /* the kernels' struct `place`, in ints */
    NUMBERS_A = 160,      /* words that they hold of A for one product of it, and places of rows, */
    NUMBERS_B = 80        /* and of B */
};

/* Matrix units do more than the peak of the others, and half as much of f32 as of half types. */
static const double PLAIN_EFFICIENCY = 0.7, MATRIX_EFFICIENCY = 4, TF32_EFFICIENCY = 2;

/* Parts of C that a group makes, and elements in each: a work-item's, or those of a matrix unit; depth: of a block along k; price: of an
   element, in those of the largest tile, which reads least; stages: blocks in local memory at a time. */
typedef struct shape {
    int gm, gn, rm, rn, depth;
    double price;
    int stages;
} shape;

/* Of either kernel, of one width of elements.  Tuning results know shapes by their place, from 1. */
typedef struct method {
    const char *file, *kernel, *in_stages; /* kernel: of one block at a time */
    const clef__family *family;
    double efficiency;
    int items; /* for a part */
    int pad;   /* elements that a row of a block is longer in local memory */
    int wide;  /* elements of a wide load */
    int span;  /* blocks whose depths are found at a time: SPAN of the kernels */
    int n_shapes;
    shape shape[8];
} method;

static const clef__knob tile_knobs[] = {
    [CLEF__TILE_SHAPE] = {"shape", true, {1, 2, 3, 4, 5, 6, 7, 8}}, /* a row of the tables below */
    [CLEF__TILE_SPLITS] = {"splits", false, {1, 2, 4, 8, 16, 32}},
    [CLEF__TILE_LIBRARY] = {"library", false, {1}},
};

/* clang-format off */
#define TILE(shape, splits) {"gpu_64 gpu gpu_16", {{shape, splits}}}
static const clef__knob_seed tile_seeds[] = {TILE(1, 0), TILE(2, 0), TILE(3, 0), TILE(4, 0), TILE(5, 0), TILE(6, 0),
                                        TILE(7, 0), TILE(8, 0), TILE(0, 2), TILE(0, 4), TILE(0, 8), TILE(1, 4), TILE(5, 4)};
/* clang-format on */

#define FAMILY(the_name, the_files, knobs)                                                                         \
    {                                                                                                              \
        .name = the_name, .files = the_files " pack.cl", .knob = tile_knobs, .n_knobs = knobs, .seed = tile_seeds, \
        .n_seeds = sizeof tile_seeds / sizeof tile_seeds[0]                                                        \
    }
const clef__family clef__tile_family = FAMILY("tile", "tile.cl", sizeof tile_knobs / sizeof tile_knobs[0]);
/* Shapes and splits, but no library: it does not take half types. */
const clef__family clef__matrix_family = FAMILY("matrix", "matrix.cl", CLEF__TILE_LIBRARY);
/* Of f32 in TF32: apart from the tile family, whose results are of full f32. */
const clef__family clef__tf32_family = FAMILY("tf32", "matrix.cl", CLEF__TILE_LIBRARY);

/* The seventh reads less than all others, but fills the registers of a compute unit alone, so that nothing is computed where it waits:
   for who tunes.  The eighth is the sixth in stages. */
/* clang-format off */
static const method plain = {
    .file = "tile.cl", .kernel = "tile", .in_stages = "tile_stages", .family = &clef__tile_family,
    .efficiency = PLAIN_EFFICIENCY, .items = 1, .pad = 4, .wide = 4, .span = 32, .n_shapes = 8,
    .shape = {{16, 16, 8, 8, 8, 1, 1}, {16, 8, 8, 8, 8, 1.15, 1}, {8, 16, 8, 8, 8, 1.15, 1}, {8, 16, 8, 4, 8, 1.4, 1}, {8, 8, 4, 4, 8, 2.2, 1},
              {16, 16, 8, 8, 16, 0.99, 1}, {32, 16, 8, 8, 16, 1.02, 1}, {16, 16, 8, 8, 16, 0.96, 2}}};
static const method by_matrix_units = {
    .file = "matrix.cl", .kernel = "matrix", .in_stages = "matrix_stages", .family = &clef__matrix_family,
    .efficiency = MATRIX_EFFICIENCY, .items = LANES, .pad = 8, .wide = 8,
    .span = 16, .n_shapes = 8,
    .shape = {{4, 4, 32, 32, 64, 1, 1}, {4, 2, 32, 32, 32, 1.2, 1}, {2, 4, 32, 32, 32, 1.2, 1}, {2, 2, 32, 32, 32, 1.35, 1}, {1, 2, 32, 16, 32, 2, 1},
              {2, 4, 64, 32, 32, 0.5, 2}, {2, 2, 64, 32, 32, 0.55, 2}, {2, 2, 32, 32, 32, 0.8, 3}}};
/* Blocks of as many bytes as those of half types, but in the seventh, which would want more than 128 registers. */
static const method in_tf32 = {
    .file = "matrix.cl", .kernel = "matrix", .in_stages = "matrix_stages", .family = &clef__tf32_family,
    .efficiency = TF32_EFFICIENCY, .items = LANES, .pad = 8, .wide = 4,
    .span = 16, .n_shapes = 8,
    .shape = {{4, 4, 32, 32, 32, 1, 1}, {4, 2, 32, 32, 16, 1.2, 1}, {2, 4, 32, 32, 16, 1.2, 1}, {2, 2, 32, 32, 16, 1.35, 1}, {1, 2, 32, 16, 16, 2, 1},
              {2, 4, 64, 32, 16, 0.5, 2}, {2, 2, 64, 32, 8, 0.55, 3}, {2, 2, 32, 32, 16, 0.8, 3}}};
/* clang-format on */

/* How one product is partitioned. */
typedef struct tiling {
    const method *by;
    const shape *shape;
    int64_t m, n, k, batch, tiles_m, tiles_n;
    int64_t splits, run; /* of k in one split */
    double element;      /* bytes of what sums are made in */
    double seconds;      /* of arithmetic */
    bool a_along, b_along, a_wide, b_wide, flat;
    bool copies; /* are A and B stored as what sums are made in, so that blocks may go to local memory in stages? */
} tiling;

/* ---- does it fit? ---- */
/* The farthest element's distance; addresses go on, along the last level, beyond the end of k. */
static int64_t reach(const int64_t size[3], const int64_t stride[3], int64_t beyond) {
    int64_t all = 0;
    for (int i = 0; i < 3; i++) all += (size[i] - 1) * llabs(stride[i]);
    return all + beyond * llabs(stride[2]);
}

/* Kernels count rows, columns, depths and their distances within one matrix in 32 bits. */
static bool countable(const clef__gemm *g, const tiling *t) {
    const int64_t columns[3] = {1, 1, g->n}, apart[3] = {0, 0, g->b_n}, most = INT32_MAX - 1024;
    return t->m <= most && t->n <= most && t->k <= most && t->batch <= most &&
           reach(g->m, g->a_m, 0) + reach(g->k, g->a_k, DEEPEST) <= most &&
           reach(columns, apart, 0) + reach(g->k, g->b_k, DEEPEST) <= most;
}

static size_t items_of(const method *by, const shape *s) { return (size_t)(s->gm * s->gn * by->items); }

/* What cl/tile.cl keeps of its blocks in local memory: in stages A lies along k there, which takes more. */
static size_t plain_bytes(const shape *s, size_t element) {
    int m = s->gm * s->rm, n = s->gn * s->rn, across = s->depth * (m + n + 2 * plain.pad),
        along = (s->depth + plain.pad) * m + s->depth * (n + plain.pad);
    return (size_t)(s->stages > 1 ? s->stages * along : across) * element;
}

/* What cl/matrix.cl keeps there: its blocks, in the longer way for them to lie, or a slab of results; and what stands in for units.  f32 takes
   the bytes of two halves, and along k it is padded by half as many. */
static size_t matrix_bytes(const method *by, const shape *s, bool emulated) {
    int m = s->gm * s->rm, n = s->gn * s->rn, pad = by->pad, halves = by == &in_tf32 ? 2 : 1;
    size_t blocks = (size_t)s->stages * (size_t)(m + n) * (size_t)(halves * s->depth + pad) * 2,
           slab = (size_t)(s->gm * 16 * (n + pad)) * 4;
    size_t exchange = (size_t)(s->gm * s->gn) * (size_t)(s->rm / 16 * NUMBERS_A + s->rn / 8 * NUMBERS_B) * 4;
    return (blocks > slab ? blocks : slab) + (emulated ? exchange : 0);
}

/* Copies that go on by themselves come with matrix units.  A B that lies along k, too, would want more than 128 registers. */
static bool can_copy(const clef__lowering *lw, const tiling *t) { return t->copies && !t->b_along && clef__lower_matrix_unit(lw); }

/* With blocks of 16 and addresses from tables, tile.cl would want more than 128 registers.  Copies in stages are of whole runs, and find
   no depths. */
static bool tile_fits(const clef__lowering *lw, const tiling *t, const shape *s) {
    const clef_device_info *info = clef__lower_device(lw);
    const method *by = t->by;
    size_t element = (size_t)t->element;
    int m = s->gm * s->rm, n = s->gn * s->rn, most = clef__lower_profile(lw)->block / (element > 4 ? 4 : 1);
    size_t depths = t->flat ? 0 : 2 * (size_t)(by->span * s->depth);
    size_t tables = ((size_t)(m + n + PLACE_INTS) + depths) * sizeof(int32_t);
    size_t blocks = by == &plain ? plain_bytes(s, element) : matrix_bytes(by, s, clef__lower_matrix_unit(lw) == CLEF__EMULATED);
    if (!t->flat && (s->stages > 1 || (by == &plain && s->depth > 8))) return false;
    if (by == &plain && s->stages > 1 && !can_copy(lw, t)) return false;
    return m <= most && n <= most && items_of(by, s) <= info->max_work_group && blocks + tables <= info->local_bytes;
}

/* ---- the partition ---- */
static int64_t most_splits(const tiling *t) { return clef__larger(t->k / SHORTEST_SPLIT, 1); }

/* Seconds of arithmetic with this shape and so many splits.  Units wait for those that have most groups, and are busy with less than
   their peak where these are few work-items; splits are written, and read once more in a launch of its own. */
static double seconds_of(const clef__lowering *lw, const tiling *t, const shape *s, int64_t splits) {
    int64_t m = s->gm * s->rm, n = s->gn * s->rn, units = clef__larger(clef__lower_device(lw)->compute_units, 1);
    double groups = (double)clef__ceil_div(t->m, m) * (double)clef__ceil_div(t->n, n) * (double)(t->batch * splits);
    double rounds = ceil(groups / (double)units), busy = fmin(rounds * (double)items_of(t->by, s) / UNIT_ITEMS, 1);
    double run = (double)clef__round_up(clef__ceil_div(t->k, splits), s->depth);
    clef__work work = {.flops = 2 * (double)(m * n) * run * s->price * rounds * (double)units / busy * t->element / 4,
                       .efficiency = t->by->efficiency};
    clef__work finish = {.bytes = t->element * (double)t->m * (double)t->n * (double)(2 * t->batch * splits)};
    return clef__launch_seconds(lw, &work) + (splits > 1 ? clef__launch_seconds(lw, &finish) : 0);
}

/* The cheapest number of splits, or as tuned; more where sums would get long. */
static int64_t choose_splits(const clef__lowering *lw, const tiling *t, const shape *s, int64_t tuned) {
    int64_t best = clef__larger(tuned, 1);
    double least = seconds_of(lw, t, s, best);
    for (int64_t splits = 2; !tuned && splits <= most_splits(t); splits += splits / 8 + 1) {
        double seconds = seconds_of(lw, t, s, splits);
        if (seconds >= least) continue;
        best = splits;
        least = seconds;
    }
    return clef__larger(best, clef__ceil_div(t->k, LONGEST_K));
}

static bool choose_shape(const clef__lowering *lw, tiling *t) {
    for (int i = 0; i < t->by->n_shapes; i++) {
        const shape *s = &t->by->shape[i];
        if (!tile_fits(lw, t, s)) continue;
        double seconds = seconds_of(lw, t, s, choose_splits(lw, t, s, 0));
        if (t->shape && seconds >= t->seconds) continue;
        t->shape = s;
        t->seconds = seconds;
    }
    return t->shape;
}

static void partition(const clef__lowering *lw, const clef__knobs *knobs, tiling *t) {
    int tuned = knobs->value[CLEF__TILE_SHAPE];
    if (tuned > 0 && tuned <= t->by->n_shapes && tile_fits(lw, t, &t->by->shape[tuned - 1])) t->shape = &t->by->shape[tuned - 1];
    t->tiles_m = clef__ceil_div(t->m, t->shape->gm * t->shape->rm);
    t->tiles_n = clef__ceil_div(t->n, t->shape->gn * t->shape->rn);
    int64_t splits = choose_splits(lw, t, t->shape, knobs->value[CLEF__TILE_SPLITS]);
    t->run = clef__round_up(clef__ceil_div(t->k, splits), t->shape->depth);
    t->splits = clef__ceil_div(t->k, t->run);
}

/* Neighbouring work-items should load neighbouring elements: along k (true), or along the rows or columns. */
static bool choose_along(const int64_t k[3], const int64_t k_stride[3], int64_t rows, int64_t row_stride) {
    int64_t along = k_stride[2] == 1 ? k[2] : 1, across = row_stride == 1 ? rows : 1;
    return along != across ? along > across : llabs(k_stride[2]) <= llabs(row_stride);
}

/* Does the direction of size n with stride s come in whole runs of `wide`, at multiples of it from the first? */
static bool in_runs(int wide, const int64_t n[3], const int64_t s[3], const int64_t other_n[3], const int64_t other_s[3]) {
    bool all = n[2] % wide == 0 && s[2] == 1;
    for (int i = 0; i < 3; i++)
        all = all && (other_n[i] == 1 || other_s[i] % wide == 0) && (i == 2 || n[i] == 1 || s[i] % wide == 0);
    return all;
}

/* Addresses that are found once, and go on by a block, are numbers without a sign. */
static bool goes_back(const int64_t stride[3]) { return stride[0] < 0 || stride[1] < 0 || stride[2] < 0; }

static void choose_loads(const clef__gemm *g, tiling *t) {
    const int64_t columns[3] = {1, 1, g->n}, apart[3] = {0, 0, g->b_n};
    t->a_along = choose_along(g->k, g->a_k, g->m[2], g->a_m[2]);
    t->b_along = choose_along(g->k, g->b_k, g->n, g->b_n);
    int wide = t->by->wide;
    t->a_wide = t->a_along ? in_runs(wide, g->k, g->a_k, g->m, g->a_m) : in_runs(wide, g->m, g->a_m, g->k, g->a_k);
    t->b_wide = t->b_along ? in_runs(wide, g->k, g->b_k, columns, apart) : in_runs(wide, columns, apart, g->k, g->b_k);
    bool back = goes_back(g->a_m) || goes_back(g->a_k) || goes_back(g->b_k) || goes_back(apart);
    t->flat = t->a_wide && t->b_wide && g->k[0] == 1 && g->k[1] == 1 && !back;
}

/* ---- launches ---- */
static void define(const clef__lowering *lw, const clef__gemm *g, const tiling *t) {
    /* clang-format off */
    const struct { const char *name; int value; } knobs[] = {
        {"GM", t->shape->gm}, {"GN", t->shape->gn}, {"RM", t->shape->rm}, {"RN", t->shape->rn}, {"TK", t->shape->depth},
        {"PAD", t->by->pad}, {"A_ALONG", t->a_along}, {"B_ALONG", t->b_along}, {"A_WIDTH", t->a_wide ? t->by->wide : 1},
        {"B_WIDTH", t->b_wide ? t->by->wide : 1}, {"FLAT", t->flat},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++) clef__launch_define(lw, knobs[i].name, "%d", knobs[i].value);
    clef__launch_define(lw, "OUT", "%s", clef__token(g->c.dtype));
    if (t->by == &plain) {
        clef__launch_define(lw, "IN", "%s", clef__token(clef__gemm_type(g->a.dtype)));
        clef__launch_define(lw, "A_IN", "%s", clef__token(g->a.dtype));
        clef__launch_define(lw, "B_IN", "%s", clef__token(g->b.dtype));
    } else {
        clef__launch_define(lw, "IN", "%s", clef__token(g->a.dtype));
    }
    bool stages = t->by != &plain || t->shape->stages > 1;
    if (stages) clef__launch_define(lw, "STAGES", "%d", t->shape->stages);
    if (stages && clef__lower_matrix_unit(lw) == CLEF__PTX) clef__launch_define(lw, "PTX", "1");
}

static void multiply(const clef__lowering *lw, const clef__gemm *g, const tiling *t, int64_t split_stride) {
    size_t items = items_of(t->by, t->shape), groups = (size_t)(t->tiles_m * t->tiles_n * t->batch * t->splits);
    clef__launch_begin(lw, t->by->file, t->shape->stages > 1 ? t->by->in_stages : t->by->kernel);
    define(lw, g, t);
    /* clang-format off */
    tile_args args = {
        .a = g->a, .b = g->b, .c = g->c,
        .M = t->m, .N = t->n, .K = t->k,
        .m2 = g->m[1], .m3 = g->m[2], .am = CLEF__THREE(g->a_m), .cm = CLEF__THREE(g->c_m), .bn = g->b_n, .cn = g->c_n,
        .k2 = g->k[1], .k3 = g->k[2], .ak = CLEF__THREE(g->a_k), .bk = CLEF__THREE(g->b_k),
        .z2 = g->z[1], .az = CLEF__TWO(g->a_z), .bz = CLEF__TWO(g->b_z), .cz = CLEF__TWO(g->c_z),
        .splits = t->splits, .run = t->run, .cs = split_stride, .tiles_m = t->tiles_m, .tiles_n = t->tiles_n,
        .epilogue = g->epilogue,
    };
    /* clang-format on */
    pass_tile(lw, &args);
    clef__launch_flops(lw, 2.0 * (double)groups * t->shape->gm * t->shape->rm * t->shape->gn * t->shape->rn * (double)t->run);
    clef__launch_end(lw, (size_t[]){groups * items, 1, 1}, (size_t[]){items, 1, 1});
}

static void multiply_in_splits(const clef__lowering *lw, const clef__gemm *g, const tiling *t) {
    clef__operand part = clef__lower_scratch(lw, clef__gemm_type(g->c.dtype), CLEF_SHAPE(t->batch * t->splits, t->m, t->n));
    clef__gemm h = clef__gemm_in_parts(g, part, t->splits);
    multiply(lw, &h, t, t->m * t->n);
    clef__gemm_finish(lw, g, part);
}

/* Matrix units take both operands in one type: a half type, or f32 where that is wanted. */
static const method *choose_method(const clef__lowering *lw, const clef__gemm *g) {
    clef_dtype in = g->a.dtype, type = clef__gemm_type(in);
    const tiling any = {.by = in == CLEF_F32 ? &in_tf32 : &by_matrix_units, .element = (double)clef_dtype_size(type)};
    bool can = in == g->b.dtype && (in == CLEF_F32 ? clef__lower_tf32(lw) : type != in && clef__lower_matrix_unit(lw)),
         fits = false;
    for (int i = 0; i < any.by->n_shapes && can; i++) fits = fits || tile_fits(lw, &any, &any.by->shape[i]);
    return fits ? any.by : &plain;
}

/* Joins the levels of k and chooses how operands are loaded and the tile.  False where none fits. */
static bool begin(const clef__lowering *lw, clef__gemm *g, tiling *t) {
    *t = (tiling){.by = choose_method(lw, g),
                  .m = g->m[0] * g->m[1] * g->m[2],
                  .n = g->n,
                  .k = g->k[0] * g->k[1] * g->k[2],
                  .batch = g->z[0] * g->z[1],
                  .element = (double)clef_dtype_size(clef__gemm_type(g->c.dtype)),
                  .copies = g->a.dtype == CLEF_F32 && g->b.dtype == CLEF_F32};
    clef__merge_levels(g->k, g->a_k, g->b_k);
    choose_loads(g, t);
    return countable(g, t) && choose_shape(lw, t);
}

static bool applies(const clef__lowering *lw) {
    clef__gemm g = *clef__lower_product(lw);
    tiling t;
    return clef__lower_profile(lw)->block > 0 && begin(lw, &g, &t);
}

static const clef__family *family(const clef__lowering *lw) { return choose_method(lw, clef__lower_product(lw))->family; }

static double cost(const clef__lowering *lw) {
    clef__gemm g = *clef__lower_product(lw);
    tiling t;
    begin(lw, &g, &t);
    double area = (double)t.m * (double)t.n, read = (double)t.k * (double)(t.m + t.n);
    clef__work memory = {.bytes = t.element * (double)t.batch * (area + read)};
    return fmax(t.seconds, clef__launch_seconds(lw, &memory));
}

static void lower(const clef__lowering *lw) {
    clef__gemm *g = clef__lower_product(lw);
    tiling t;
    begin(lw, g, &t);
    partition(lw, &g->knobs, &t);
    if (t.splits == 1) multiply(lw, g, &t, 0);
    else multiply_in_splits(lw, g, &t);
}

const clef__strategy clef__product_by_tiles = {.name = "tile", .applies = applies, .cost = cost, .lower = lower, .family = family};
