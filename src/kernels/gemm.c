/* gemm.c — chooses tile, packing, splits and grid for a product, and emits its launches (cl/gemm.cl, cl/pack.cl). */
#include "kernels/gemm.h"
#include "gemm.args"
#include "kernels/args.h"
#include "pack.args"
#include "plan/lower/cost.h"
#include "plan/lower/select.h"
#include "runtime/arithmetic.h"
#include <math.h>
#include <string.h>

CLEF__ARGS(gemm, GEMM_ARGS)
CLEF__ARGS(pack, PACK_ARGS)

enum {
    LONGEST_K = 4608,     /* longer sums that cannot go in blocks are split */
    BLOCK_K = 1024,       /* so much of A and B stays in a second-level cache while a work-item's tiles use it */
    SHORTEST_BLOCK = 256, /* fewer steps do not pay for gathering the sums */
    SHORTEST_SPLIT = 128, /* fewer products than this do not pay the second pass of a split */
    MOST_FLOPS = 8000000, /* the grain of a work-item on a CPU: long enough that its tiles use again what one of them read, */
    LEAST_FLOPS = 600000, /* long against its start, */
    LEAST_READ = 16384,   /* as are so many elements of a B that is read once, */
    FINE_GRAINS = 32,     /* and so many for each compute unit: threads come late, and none should wait long for the last */
    FEW_TILES = 12,       /* so few rows of the profile's tiles do not pay for packing B */
    MANY_TILES = 48,      /* so many do for panels of a B of several, even if all of it stays near by */
    FEW_PANELS = 6,       /* so few do not pay for packing rows of A, */
    MANY_PANELS = 12,     /* nor fewer than these for a launch that packs an A of which a line holds a tile's rows */
    ADDRESSES = 8,        /* of rows that stay in registers; so many lines a first-level cache has for rows that are a page apart */
    PACKED_ROWS = 48,     /* of A, that a work-item packs at a time: so many use what it reads of B */
    PACKED_DEPTH = 512,   /* and columns of A */
    FAIR_ITEMS = 8        /* for each compute unit: drivers hand out work-items in runs, and the last one is waited for */
};

/* Its cost: fractions of the peak where one work-item owns a long run, and elsewhere; multiply-adds of vectors that would take as
   long as what a tile does for each run of k and at its ends; and how much slower B is packed across its rows than along them, and
   read as it lies than packed. */
static const double EFFICIENCY = 0.6, BY_SMALL_ITEMS = 0.001, RUN_STEPS = 15, TILE_STEPS = 100, ACROSS = 2.5, FAR = 2;

/* ---- knobs: what tuning may set otherwise than the rules below, and the configurations worth trying first ---- */

static const clef__knob gemm_knobs[] = {
    [CLEF__GEMM_ROWS] = {"rows", true, {2, 4, 6, 8, 10, 12, 14}},
    [CLEF__GEMM_VECTORS] = {"vectors", true, {1, 2, 3, 4}},
    [CLEF__GEMM_PACKING] = {"packing", false, {1, 2}}, /* of B: never where it can be read as it lies; always */
    [CLEF__GEMM_SPLITS] = {"splits", false, {1, 2, 4, 8, 16, 32}},
    [CLEF__GEMM_BLOCK] = {"block", false, {256, 512, 1024, 2048, 4096}},
    [CLEF__GEMM_GRAIN] = {"grain", false, {1, 2, 4, 8, 16, 64}}, /* tiles that one work-item takes */
    [CLEF__GEMM_LIBRARY] = {"library", false, {1}}, /* last, so that the other knobs say what to do where it is not there */
};
enum { KNOBS = sizeof gemm_knobs / sizeof gemm_knobs[0] };
_Static_assert((int)KNOBS <= (int)CLEF__KNOBS, "a tuning result holds no more");

/* The first three kernels of a CPU's are all that are compiled there.  Registers: rows · vectors sums and a row of B must fit
   32 (AVX-512) or 16. */
/* clang-format off */
#define SEED(profiles, rows, vectors, packing, splits) {profiles, {{rows, vectors, packing, splits}}}
static const clef__knob_seed seeds[] = {
    SEED("cpu_avx512", 8, 3, 0, 0),
    SEED("cpu_avx512", 14, 2, 0, 0),
    SEED("cpu_avx512", 6, 4, 0, 0),
    SEED("cpu_avx512", 0, 0, 1, 0),
    SEED("cpu_avx512", 0, 0, 2, 0),
    SEED("cpu_avx512", 0, 0, 0, 2),
    SEED("cpu_avx512", 0, 0, 0, 8),
    SEED("cpu_avx512", 8, 3, 2, 0),
    SEED("cpu_avx2", 4, 3, 0, 0),
    SEED("cpu_avx2", 12, 1, 0, 0),
    SEED("cpu_avx2", 4, 2, 0, 0),
    SEED("cpu_avx2", 0, 0, 1, 0),
    SEED("cpu_avx2", 0, 0, 2, 0),
    SEED("cpu_avx2", 0, 0, 0, 2),
    SEED("cpu_avx2", 0, 0, 0, 8),
    SEED("cpu_avx2", 4, 3, 2, 0),
    SEED("cpu minimal", 4, 3, 0, 0),
    SEED("cpu minimal", 8, 1, 0, 0),
    SEED("cpu minimal", 6, 2, 0, 0),
    SEED("cpu minimal", 0, 0, 1, 0),
    SEED("cpu minimal", 0, 0, 2, 0),
    SEED("cpu minimal", 0, 0, 0, 2),
    SEED("cpu minimal", 0, 0, 0, 8),
    SEED("cpu minimal", 4, 3, 2, 0),
};
/* clang-format on */

const clef__family clef__gemm_family = {.name = "gemm",
                                        .files = "gemm.cl pack.cl",
                                        .knob = gemm_knobs,
                                        .n_knobs = KNOBS,
                                        .seed = seeds,
                                        .n_seeds = sizeof seeds / sizeof seeds[0]};

/* ---- the rules ---- */

/* How one product is partitioned. */
typedef struct tiling {
    int rows, vectors, width; /* of a register tile */
    int64_t m, k, panels, row_tiles, batch;
    bool direct;  /* B is read as it lies */
    bool shares;  /* its blocks share the cache with whole rows of C, as they do where these are few, but more than a tile's */
    bool packs_a; /* by a launch of its own */
    bool unit;    /* the rows of a tile follow one another in A */
    int64_t packed_tiles; /* rows of tiles of A that a work-item packs at a time; 0: it reads them as they lie */
    int64_t ldb, panel_stride;
    int64_t splits, split_runs, block; /* the last two in runs of k[2] */
    int64_t tiles_per_item, panels_per_item;
    clef__knobs knobs; /* what tuning results say: weaker than what the product allows, stronger than the rules here */
} tiling;

/* What was measured to be best, or else `rule`. */
static int64_t tuned(const tiling *t, int knob, int64_t rule) { return t->knobs.value[knob] ? t->knobs.value[knob] : rule; }

static void choose_tile(const clef__lowering *lw, const clef__gemm *g, clef_dtype type, tiling *t) {
    const clef__profile *profile = clef__lower_profile(lw);
    t->width = clef__gemm_lanes(lw, type);
    t->vectors = (int)tuned(t, CLEF__GEMM_VECTORS, profile->tile_vectors);
    int64_t narrow = clef__round_up(g->n, t->width);
    int64_t wide = clef__round_up(g->n, t->width * t->vectors);
    if (g->n <= t->width || (!t->knobs.value[CLEF__GEMM_VECTORS] && narrow * 5 <= wide * 4)) t->vectors = 1;
    t->rows = profile->tile_m;
    if (t->vectors == 1) t->rows = (int)clef__smaller(t->rows, ADDRESSES);
    if (t->m <= 4) t->rows = (int)clef__smaller(t->rows, 4);
    t->rows = (int)tuned(t, CLEF__GEMM_ROWS, t->rows);
    t->panels = clef__ceil_div(g->n, t->width * t->vectors);
    t->row_tiles = clef__ceil_div(t->m, t->rows);
}

/* Of A or B, that stay near by. */
static int64_t cached_floats(const clef__lowering *lw) { return clef__cached_bytes(lw) / (int64_t)sizeof(float); }

/* Can B be read as it lies, and is that the better way?  Panels of a weight in inference are free, as they are made once; the
   blocks of k stay, and so do the bits.  They do too where B is stored in a half type and the sums' results are not. */
static void choose_direct(const clef__lowering *lw, const clef__gemm *g, clef_dtype type, tiling *t) {
    int64_t size[3], stride[3], same[3];
    memcpy(size, g->k, sizeof size);
    memcpy(stride, g->b_k, sizeof stride);
    memcpy(same, g->b_k, sizeof same);
    clef__merge_levels(size, stride, same);
    int64_t lanes = t->width * t->vectors;
    bool can = g->c.dtype == type && (g->b_n == 1 || g->n == 1) && g->n >= lanes && size[0] * size[1] == 1;
    bool few = t->row_tiles <= FEW_TILES, many = t->row_tiles > MANY_TILES;
    bool small = stride[2] <= (many ? lanes : 2 * lanes) || t->k * stride[2] * t->batch <= cached_floats(lw) / (many ? 3 : 1);
    bool lies = can && tuned(t, CLEF__GEMM_PACKING, small || few ? 1 : 2) == 1;
    t->shares = lies && few && t->row_tiles > 1;
    t->direct = lies && (small || t->knobs.value[CLEF__GEMM_PACKING] || !clef__lower_lasts(lw, &g->b));
    t->ldb = t->direct ? stride[2] : lanes;
    t->panel_stride = t->k * lanes;
}

static int64_t units(const clef__lowering *lw) { return clef__larger(clef__lower_device(lw)->compute_units, 1); }

/* May C gather the sums of blocks?  It must hold them as they are made, or be a split's own part. */
static bool gathers(const clef__lowering *lw, const clef__gemm *g, int64_t splits) {
    return clef__lower_profile(lw)->wide_items && (splits > 1 || clef__gemm_type(g->c.dtype) == g->c.dtype);
}

/* How often k is split: until every unit has work; or, for the gradient of filters (A and B are both streamed along k), while
   C is small beside A and B, so that each of these is read by one work-item alone; or as a long sum that cannot go in blocks. */
static int64_t count_splits(const clef__lowering *lw, const clef__gemm *g, const tiling *t) {
    const clef__profile *profile = clef__lower_profile(lw);
    int64_t tiles = t->panels * t->row_tiles * t->batch, want = units(lw) * profile->items_per_unit, splits = 1;
    if (tiles < want) splits = clef__smaller(clef__ceil_div(want, tiles), t->k / SHORTEST_SPLIT);
    if (profile->wide_items && g->overlapping && g->a_m[2] == 1)
        splits = clef__larger(splits, clef__smaller(want, t->k * (g->n + g->m[2]) / (2 * t->m * g->n)));
    splits = tuned(t, CLEF__GEMM_SPLITS, splits);
    return clef__larger(splits, gathers(lw, g, splits) ? 1 : clef__ceil_div(t->k, LONGEST_K));
}

/* Partitions k into splits, for work-items of their own, and these into blocks that a work-item goes through one after the other.
   Either is a whole number of runs of k[2]; a k of one run is split into equal ones first. */
static void choose_splits(const clef__lowering *lw, clef__gemm *g, tiling *t) {
    int64_t splits = clef__larger(count_splits(lw, g, t), 1), each = clef__ceil_div(t->k, splits);
    int64_t fits = t->shares ? clef__larger(clef__smaller(BLOCK_K, cached_floats(lw) / (t->m + g->n)), SHORTEST_BLOCK) : BLOCK_K;
    if (!t->packed_tiles && t->panels <= 2 && t->k * t->panels * t->vectors * t->width <= cached_floats(lw)) fits = t->k;
    int64_t longest = tuned(t, CLEF__GEMM_BLOCK, fits), pays = 2 * longest;
    if (t->packed_tiles) pays = longest = clef__smaller(longest, PACKED_DEPTH);
    int64_t blocks = gathers(lw, g, splits) && each >= pays ? clef__ceil_div(each, longest) : 1;
    int64_t blocks_in_all = splits * blocks, runs = g->k[0] * g->k[1];
    if (blocks_in_all > 1 && runs == 1) {
        g->k[2] = clef__round_up(clef__ceil_div(t->k, blocks_in_all), 4);
        g->a_k[1] = g->k[2] * g->a_k[2];
        g->k[1] = runs = clef__ceil_div(t->k, g->k[2]);
    }
    t->split_runs = clef__ceil_div(runs, splits);
    t->splits = clef__ceil_div(runs, t->split_runs);
    t->block = clef__larger(t->split_runs * splits / blocks_in_all, 1);
    if (t->packed_tiles) t->block = clef__smaller(t->block, PACKED_DEPTH / g->k[2]);
}

/* Rows of C as wide as leave every unit enough of them: what is packed of A serves the whole row. */
static void choose_rows(const clef__lowering *lw, tiling *t, int64_t flops) {
    int64_t rows = t->row_tiles * t->batch * t->splits, want = units(lw) * FAIR_ITEMS;
    int64_t groups = clef__smaller(clef__ceil_div(want, rows), clef__larger(t->panels / FEW_PANELS, 1));
    t->panels_per_item = clef__equal_part(t->panels, clef__ceil_div(t->panels, groups));
    int64_t least = clef__larger(LEAST_FLOPS / (flops * t->panels_per_item), tuned(t, CLEF__GEMM_GRAIN, 1) / t->panels_per_item);
    int64_t tiles = clef__smaller(clef__larger(clef__larger(rows / want, least), 1), t->packed_tiles);
    t->tiles_per_item = clef__equal_part(t->row_tiles, tiles);
}

/* Does the product pay for more than one work-item?  A step of a vector is a load, a broadcast and a multiply-add. */
static bool pays(const clef__lowering *lw, const tiling *t) {
    double vectors = (double)(t->row_tiles * t->rows * t->batch) * (double)(t->panels * t->vectors);
    return t->batch * t->splits > 1 || clef__lower_pays(lw, 3 * vectors * (double)t->k);
}

/* Tiles of a work-item.  If all rows are one tile's, B is read once, from memory, which takes longer than to compute; and blocks of k gain nothing
   by many tiles. */
static int64_t choose_grain(const clef__lowering *lw, const tiling *t, int64_t tiles, int64_t flops) {
    int64_t coarse = clef__larger(tiles / (units(lw) * clef__lower_profile(lw)->items_per_unit), 1), least = LEAST_FLOPS / flops;
    int64_t read = clef__larger(t->k / t->splits * t->vectors * t->width, 1); /* of B, by a tile */
    if (t->row_tiles == 1) least = clef__smaller(least, LEAST_READ / read);
    int64_t fine = clef__smaller(MOST_FLOPS / flops, clef__larger(tiles / (units(lw) * FINE_GRAINS), least));
    bool blocks = t->block < t->split_runs && t->row_tiles > 1;
    return tuned(t, CLEF__GEMM_GRAIN, blocks ? coarse : clef__smaller(clef__larger(fine, 1), coarse));
}

static void choose_grid(const clef__lowering *lw, tiling *t) {
    t->tiles_per_item = t->panels_per_item = 1;
    const clef__profile *profile = clef__lower_profile(lw);
    if (!profile->wide_items) return;
    if (!t->packed_tiles && !pays(lw, t)) {
        t->tiles_per_item = t->row_tiles;
        t->panels_per_item = t->panels;
        return;
    }
    int64_t tiles = t->row_tiles * t->panels * t->batch * t->splits;
    int64_t flops = 2 * t->rows * t->vectors * t->width * clef__larger(t->k / t->splits, 1);
    if (t->packed_tiles) {
        choose_rows(lw, t, flops);
        return;
    }
    int64_t grain = choose_grain(lw, t, tiles, flops);
    bool small_b = t->k * t->panels * t->vectors * t->width <= cached_floats(lw); /* then whole rows of C, so that A is read once */
    int64_t panels = small_b ? clef__smaller(grain, t->panels) : clef__smaller(clef__larger(grain / t->row_tiles, 1), t->panels);
    /* Equal parts, as drivers hand out work-items in runs, and a short last one would leave a unit idle. */
    t->panels_per_item = clef__equal_part(t->panels, panels);
    t->tiles_per_item = clef__equal_part(t->row_tiles, clef__smaller(clef__larger(grain / panels, 1), t->row_tiles));
}

/* Emits pack: sizes k (with strides s), n (stride sn), batch z; a batch stride of 0 packs once.  Leaves the strides of the
   packed batch in z_stride. */
typedef struct packing {
    clef__operand from;
    int64_t k[3], s[3], n, sn, z[2];
    int width;
    clef_dtype type;
} packing;

static clef__operand pack(const clef__lowering *lw, const packing *p, int64_t z_stride[2]) {
    int64_t k = p->k[0] * p->k[1] * p->k[2], panels = clef__ceil_div(p->n, p->width), size = panels * k * p->width;
    int64_t z0 = z_stride[0] ? p->z[0] : 1, z1 = z_stride[1] ? p->z[1] : 1;
    clef__operand to = clef__lower_scratch(lw, p->type, CLEF_SHAPE(z0 * z1 * panels, k, p->width));
    int64_t rows = clef__larger(clef__ceil_div(16384, p->width), 1);
    int lanes = clef__lower_profile(lw)->vector;
    while (lanes > 4 && p->width % lanes != 0) lanes /= 2;
    clef__launch_begin(lw, "pack.cl", "pack");
    clef__launch_prepacks(lw);
    clef__launch_define(lw, "W", "%d", p->width % lanes == 0 ? lanes : 1);
    clef__launch_define(lw, "IN", "%s", clef__token(p->from.dtype));
    clef__launch_define(lw, "OUT", "%s", clef__token(p->type));
    /* clang-format off */
    pack_args args = {
        .from = p->from, .to = to, .N = p->n, .K = k, .k2 = p->k[1], .k3 = p->k[2], .sk = CLEF__THREE(p->s), .sn = p->sn,
        .z2 = z1, .sz = CLEF__TWO(z_stride), .rows = rows, .width = p->width,
    };
    /* clang-format on */
    pass_pack(lw, &args);
    clef__launch_end(lw, (size_t[]){(size_t)clef__ceil_div(k, rows), (size_t)panels, (size_t)(z0 * z1)}, (size_t[]){1, 1, 1});
    z_stride[0] = z_stride[0] ? z1 * size : 0;
    z_stride[1] = z_stride[1] ? size : 0;
    return to;
}

/* Panels of a half weight in inference stay in its type: they are read from memory each time, and take half of it. */
static void pack_b(const clef__lowering *lw, clef__gemm *g, const tiling *t, clef_dtype type) {
    if (g->c.dtype == type && clef__lower_lasts(lw, &g->b)) type = g->b.dtype;
    packing p = {.from = g->b, .n = g->n, .sn = g->b_n, .width = t->width * t->vectors, .type = type};
    int64_t same[3];
    memcpy(p.k, g->k, sizeof p.k);
    memcpy(p.s, g->b_k, sizeof p.s);
    memcpy(p.z, g->z, sizeof p.z);
    memcpy(same, p.s, sizeof same);
    clef__merge_levels(p.k, p.s, same);
    g->b = pack(lw, &p, g->b_z);
}

/* Elements of local memory that rows of so many tiles take; a tile's last vector runs over its end. */
static int64_t room_of(const tiling *t, int64_t tiles) { return tiles * t->rows * PACKED_DEPTH + t->width; }

/* Can a work-item pack what a block reads of A? */
static int64_t most_packed_tiles(const clef__lowering *lw, const clef__gemm *g, clef_dtype type, const tiling *t) {
    bool can = clef__lower_profile(lw)->wide_items && (g->k[0] * g->k[1] == 1 || g->k[2] <= PACKED_DEPTH) &&
               (gathers(lw, g, 1) || t->k <= PACKED_DEPTH);
    int64_t tiles = can ? clef__larger(PACKED_ROWS / t->rows, 1) : 0;
    size_t room = clef__lower_device(lw)->local_bytes / clef_dtype_size(type);
    while (tiles > 0 && (size_t)room_of(t, tiles) > room) tiles--;
    return tiles;
}

/* So many panels of B pay for packing rows of A: where they lie along k, none if a tile is cut to as many as have addresses in registers,
   which reads them as fast; where they follow one another, fewer if it is not cut; more where they are packed element by element. */
static int64_t least_panels(const clef__gemm *g, const tiling *t) {
    bool cut = t->rows > ADDRESSES;
    if (g->a_k[2] == 1) return cut ? INT64_MAX : FEW_PANELS;
    if (g->a_m[2] != 1 || g->m[2] < 4 * clef__larger(t->rows, t->width)) return 2 * FEW_PANELS;
    return cut ? FEW_PANELS : FEW_PANELS / 2;
}

/* Does it?  Only while B stays near by as rows pass by it, and where there are rows enough for every unit, or all else is slow. */
static void choose_packing(const clef__lowering *lw, const clef__gemm *g, clef_dtype type, tiling *t) {
    double near = 2048 * clef__lower_profile(lw)->cache_kb, b = (double)(t->k * g->n) * (double)clef_dtype_size(type);
    bool enough = t->row_tiles * t->batch * clef__larger(t->panels / FEW_PANELS, 1) >= units(lw) * FAIR_ITEMS / 2;
    if (b <= near && t->row_tiles > FEW_TILES && t->panels >= least_panels(g, t) && (g->a_k[2] != 1 || enough))
        t->packed_tiles = most_packed_tiles(lw, g, type, t);
}

/* Else rows of A that are far apart along k are packed by a launch, when used often enough: where rows follow one another, a tile still
   finds what it wants of a step in one line. */
static bool packs_a(const clef__gemm *g, const tiling *t) {
    bool one_level = g->m[0] * g->m[1] == 1 && g->k[0] * g->k[1] == 1;
    int64_t least = g->a_m[2] == 1 ? MANY_PANELS : 2;
    return !t->packed_tiles && !g->overlapping && one_level && g->a_k[2] != 1 && t->panels >= least && t->row_tiles > 1;
}

/* Do the rows of each tile follow one another? */
static bool is_unit(const clef__gemm *g, const tiling *t) { return g->a_m[2] == 1 && g->m[2] % t->rows == 0; }

/* How a tile reads A: from what its work-item packed, or a launch, or as it lies.  Rows that lie anywhere have an address each. */
static void choose_reading(const clef__lowering *lw, const clef__gemm *g, clef_dtype type, tiling *t) {
    choose_packing(lw, g, type, t);
    t->packs_a = packs_a(g, t);
    bool anywhere = !t->packed_tiles && !t->packs_a && !is_unit(g, t);
    if (anywhere && !t->knobs.value[CLEF__GEMM_ROWS]) t->rows = (int)clef__smaller(t->rows, ADDRESSES);
    t->row_tiles = clef__ceil_div(t->m, t->rows);
}

static void pack_a(const clef__lowering *lw, clef__gemm *g, const tiling *t, clef_dtype type) {
    packing p = {.from = g->a, .n = t->m, .sn = g->a_m[2], .width = t->rows, .type = type, .k = {1, 1, t->k}};
    memcpy(p.s, g->a_k, sizeof p.s);
    memcpy(p.z, g->z, sizeof p.z);
    g->a = pack(lw, &p, g->a_z);
    g->a_k[2] = t->rows;
    g->m[1] = t->row_tiles;
    g->m[2] = t->rows;
    g->a_m[1] = t->k * t->rows;
    g->a_m[2] = 1;
    g->c_m[1] = g->c_m[2] * t->rows;
}

static void multiply(const clef__lowering *lw, const clef__gemm *g, const tiling *t, clef_dtype type, int64_t split_stride) {
    const clef__profile *profile = clef__lower_profile(lw);
    clef__launch_begin(lw, "gemm.cl", "gemm");
    clef__launch_define(lw, "MR", "%d", t->rows);
    clef__launch_define(lw, "NV", "%d", t->vectors);
    clef__launch_define(lw, "W", "%d", t->width);
    if (t->packed_tiles) clef__launch_define(lw, "ROOM", "%d", (int)room_of(t, t->packed_tiles));
    else clef__launch_define(lw, "UNIT", "%d", t->unit);
    if (!t->packed_tiles && g->a_k[2] == 1) clef__launch_define(lw, "ALONG", "1");
    clef__launch_define(lw, "IN", "%s", clef__token(type));
    clef__launch_define(lw, "B_IN", "%s", clef__token(g->b.dtype));
    clef__launch_define(lw, "OUT", "%s", clef__token(g->c.dtype));
    /* clang-format off */
    gemm_args args = {
        .a = g->a, .b = g->b, .c = g->c,
        .M = t->m, .N = g->n, .K = t->k,
        .m2 = g->m[1], .m3 = g->m[2], .am = CLEF__THREE(g->a_m), .cm = CLEF__THREE(g->c_m), .cn = g->c_n,
        .k2 = g->k[1], .k3 = g->k[2], .ak = CLEF__THREE(g->a_k),
        .direct = t->direct, .ldb = t->ldb, .panel_stride = t->panel_stride,
        .z2 = g->z[1], .az = CLEF__TWO(g->a_z), .bz = CLEF__TWO(g->b_z), .cz = CLEF__TWO(g->c_z),
        .splits = t->splits, .split_runs = t->split_runs, .block = t->block, .cs = split_stride,
        .tiles = t->tiles_per_item, .panels = t->panels_per_item, .epilogue = g->epilogue,
    };
    /* clang-format on */
    pass_gemm(lw, &args);
    size_t x = (size_t)clef__ceil_div(t->panels, t->panels_per_item), y = (size_t)clef__ceil_div(t->row_tiles, t->tiles_per_item);
    size_t group = profile->local > 1 ? (size_t)profile->local : 1, lx = 1;
    while (lx * 2 <= x && lx * lx * 4 <= group) lx *= 2;
    size_t ly = group / lx;
    clef__launch_end(lw, (size_t[]){(x + lx - 1) / lx * lx, (y + ly - 1) / ly * ly, (size_t)(t->batch * t->splits)},
                     (size_t[]){lx, ly, 1});
}

static void multiply_in_splits(const clef__lowering *lw, const clef__gemm *g, const tiling *t, clef_dtype type) {
    clef__operand part = clef__lower_scratch(lw, type, CLEF_SHAPE(t->batch * t->splits, t->m, g->n));
    clef__gemm h = clef__gemm_in_parts(g, part, t->splits);
    multiply(lw, &h, t, type, t->m * g->n);
    clef__gemm_finish(lw, g, part);
}

/* A in the type of sums, every row by itself: for what was to be made in tiles and is too large for them. */
static void convert_a(const clef__lowering *lw, clef__gemm *g, clef_dtype type) {
    clef__operand from = g->a;
    clef_shape shape = {.rank = 8};
    int64_t *const strides[] = {g->a_z, g->a_m, g->a_k}, *const sizes[] = {g->z, g->m, g->k};
    static const int levels[] = {2, 3, 3};
    from.rank = 0;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < levels[i]; j++) {
            from.stride[from.rank] = strides[i][j];
            from.dim[from.rank] = shape.dim[from.rank] = sizes[i][j];
            from.rank++;
        }
    g->a = clef__lower_scratch(lw, type, shape);
    clef__lower_copy(lw, g->a, from);
    for (int i = 2, at = 7; i >= 0; i--)
        for (int j = levels[i] - 1; j >= 0; j--) strides[i][j] = g->a.stride[at--];
    g->overlapping = false;
}

static const clef__family *family(const clef__lowering *lw) {
    (void)lw;
    return &clef__gemm_family;
}

/* What B takes besides its products: a launch that packs it, or reading it as it lies, with rows of C far apart; and the launch that
   adds splits up. */
static double other_seconds(const clef__lowering *lw, const clef__gemm *g, const tiling *t) {
    bool across = g->b_n != 1, packed = across || g->n < t->width * t->vectors || t->row_tiles > FEW_TILES;
    double b = (double)(t->k * g->n * t->batch) * (double)clef_dtype_size(clef__gemm_type(g->c.dtype));
    double seconds = packed ? clef__launch_seconds(lw, &(clef__work){.bytes = 2 * b * (across ? ACROSS : 1)})
                            : clef__work_seconds(lw, &(clef__work){.bytes = b * (g->n > 2 * t->width * t->vectors ? FAR : 1)});
    return seconds + (count_splits(lw, g, t) > 1 ? clef__launch_seconds(lw, &(clef__work){0}) : 0);
}

/* By sizes and strides alone, so that a convolution can ask before anything of it lies in memory. */
/* Where a work-group can share a tile it does: what a work-item sums here takes more registers than such devices have for it. */
static bool applies(const clef__lowering *lw) { return !clef__row_applies(lw, &clef__product_by_tiles); }

static double cost(const clef__lowering *lw) {
    const clef__gemm *g = clef__lower_product(lw);
    clef__gemm runs = *g;
    double size = (double)clef_dtype_size(clef__gemm_type(g->c.dtype));
    tiling t = {.m = g->m[0] * g->m[1] * g->m[2], .k = g->k[0] * g->k[1] * g->k[2], .batch = g->z[0] * g->z[1]};
    choose_tile(lw, g, clef__gemm_type(g->c.dtype), &t);
    clef__gemm_is_plain(&runs); /* joins those that follow one another */
    double other = other_seconds(lw, g, &t);
    choose_reading(lw, &runs, clef__gemm_type(g->c.dtype), &t);
    double tiles = (double)(t.row_tiles * t.panels * t.batch), k = (double)t.k;
    double steps = (double)(t.rows * t.vectors) * k + RUN_STEPS * (double)(runs.k[0] * runs.k[1]) + TILE_STEPS;
    double a = (double)t.m * k / (g->overlapping ? (double)(g->k[0] * g->k[1]) : 1);
    clef__work work = {.flops = 2 * tiles * steps * clef__lower_profile(lw)->vector,
                       .efficiency = clef__lower_profile(lw)->wide_items ? EFFICIENCY : BY_SMALL_ITEMS,
                       .bytes = size * (double)t.batch * (a + k * (double)g->n + (double)t.m * (double)g->n),
                       .groups = tiles * fmax(k / SHORTEST_SPLIT, 1)};
    return clef__launch_seconds(lw, &work) + other;
}

static void lower(const clef__lowering *lw) {
    clef__gemm *g = clef__lower_product(lw);
    clef_dtype type = clef__gemm_type(g->c.dtype);
    if (g->a.dtype != type) convert_a(lw, g, type);
    tiling t = {.m = g->m[0] * g->m[1] * g->m[2], .k = g->k[0] * g->k[1] * g->k[2], .batch = g->z[0] * g->z[1], .knobs = g->knobs};
    choose_tile(lw, g, type, &t);
    choose_direct(lw, g, type, &t);
    if (!t.direct) pack_b(lw, g, &t, type);
    int64_t same[3];
    memcpy(same, g->a_k, sizeof same);
    clef__merge_levels(g->k, g->a_k, same);
    choose_reading(lw, g, type, &t);
    if (t.packs_a) pack_a(lw, g, &t, type);
    t.unit = is_unit(g, &t);
    choose_splits(lw, g, &t);
    choose_grid(lw, &t);
    if (t.splits == 1) multiply(lw, g, &t, type, 0);
    else multiply_in_splits(lw, g, &t, type);
}

const clef__strategy clef__product_by_gemm = {.name = "gemm", .applies = applies, .cost = cost, .lower = lower, .family = family};
