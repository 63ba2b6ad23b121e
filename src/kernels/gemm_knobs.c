/* gemm_knobs.c — the knobs of products: what tuning may set otherwise than the rules of gemm.c and tile.c, and the
   configurations worth trying first. */
#include "kernels/gemm.h"

static const clef__knob knobs[] = {
    [CLEF__GEMM_ROWS] = {"rows", true, {2, 4, 6, 8, 10, 12, 14}},
    [CLEF__GEMM_VECTORS] = {"vectors", true, {1, 2, 3, 4}},
    [CLEF__GEMM_PACKING] = {"packing", false, {1, 2}}, /* of B: never where it can be read as it lies; always */
    [CLEF__GEMM_SPLITS] = {"splits", false, {1, 2, 4, 8, 16, 32}},
    [CLEF__GEMM_BLOCK] = {"block", false, {256, 512, 1024, 2048, 4096}},
    [CLEF__GEMM_GRAIN] = {"grain", false, {1, 2, 4, 8, 16, 64}}, /* tiles that one work-item takes */
    [CLEF__GEMM_LIBRARY] = {"library", false, {1}}, /* last, so that the other knobs say what to do where it is not there */
};
enum { KNOBS = sizeof knobs / sizeof knobs[0] };
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
                                        .knob = knobs,
                                        .n_knobs = KNOBS,
                                        .seed = seeds,
                                        .n_seeds = sizeof seeds / sizeof seeds[0]};

static const clef__knob tile_knobs[] = {
    [CLEF__TILE_SHAPE] = {"shape", true, {1, 2, 3, 4, 5}}, /* a row of tile.c's table */
    [CLEF__TILE_SPLITS] = {"splits", false, {1, 2, 4, 8, 16, 32}},
    [CLEF__TILE_LIBRARY] = {"library", false, {1}},
};

/* clang-format off */
#define TILE(shape, splits) {"gpu", {{shape, splits}}}
static const clef__knob_seed tile_seeds[] = {TILE(1, 0), TILE(2, 0), TILE(3, 0), TILE(4, 0), TILE(5, 0),
                                        TILE(0, 2), TILE(0, 4), TILE(0, 8), TILE(1, 4), TILE(5, 4)};
/* clang-format on */

const clef__family clef__tile_family = {.name = "tile",
                                        .files = "tile.cl",
                                        .knob = tile_knobs,
                                        .n_knobs = sizeof tile_knobs / sizeof tile_knobs[0],
                                        .seed = tile_seeds,
                                        .n_seeds = sizeof tile_seeds / sizeof tile_seeds[0]};

/* Shapes and splits, but no library: it does not take half types. */
const clef__family clef__matrix_family = {.name = "matrix",
                                          .files = "matrix.cl tile.cl",
                                          .knob = tile_knobs,
                                          .n_knobs = CLEF__TILE_LIBRARY,
                                          .seed = tile_seeds,
                                          .n_seeds = sizeof tile_seeds / sizeof tile_seeds[0]};

clef__knobs clef__gemm_knobs(const clef__lowering *lw, const clef__family *family, const clef__gemm *g) {
    /* clang-format off */
    const int64_t size[] = {g->m[0] * g->m[1] * g->m[2], g->n, g->k[0] * g->k[1] * g->k[2], g->k[2], g->z[0] * g->z[1],
                            g->a_k[2] == 1, g->a_m[2] == 1, g->b_k[2] == 1, g->b_n == 1, g->overlapping};
    /* clang-format on */
    return clef__lower_knobs(lw, family, g->c.dtype, size, sizeof size / sizeof size[0]);
}
