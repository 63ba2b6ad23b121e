/* gemm_table.c — the algorithms to compute a product, and which of them computes one. */
#include "kernels/gemm.h"
#include <string.h>

/* From the most special one to the general one, which takes every product. */
static const clef__algorithm *const algorithms[] = {&clef__product_by_library, &clef__product_by_dot, &clef__product_by_tiles,
                                                    &clef__product_by_gemm};
enum { ON_REQUEST = 1 }; /* so many of them only where tuning results set the knob of their name */

static bool is_set(const clef__family *family, const clef__knobs *knobs, const char *name) {
    for (int i = 0; i < family->n_knobs; i++)
        if (knobs->value[i] && strcmp(family->knob[i].name, name) == 0) return true;
    return false;
}

static clef__knobs find_knobs(const clef__lowering *lw, const clef__family *family, const clef__gemm *g) {
    /* clang-format off */
    const int64_t size[] = {g->m[0] * g->m[1] * g->m[2], g->n, g->k[0] * g->k[1] * g->k[2], g->k[2], g->z[0] * g->z[1],
                            g->a_k[2] == 1, g->a_m[2] == 1, g->b_k[2] == 1, g->b_n == 1, g->overlapping};
    /* clang-format on */
    return clef__lower_knobs(lw, family, g->c.dtype, size, sizeof size / sizeof size[0]);
}

/* The knobs are those of the algorithm that takes g by itself. */
static const clef__algorithm *choose(const clef__lowering *lw, clef__gemm *g, clef__knobs *knobs) {
    const clef__family *family = NULL;
    int first = ON_REQUEST;
    while (!algorithms[first]->takes(lw, g, &family)) first++;
    if (!family) return algorithms[first];
    *knobs = find_knobs(lw, family, g);
    for (int i = 0; i < ON_REQUEST; i++)
        if (is_set(family, knobs, algorithms[i]->name) && algorithms[i]->takes(lw, g, &family)) return algorithms[i];
    return algorithms[first];
}

void clef__gemm_lower(const clef__lowering *lw, clef__gemm g) {
    clef__knobs knobs = {0};
    if (g.k[0] * g.k[1] * g.k[2] == 0) {
        clef__gemm_begin(lw, &g); /* a sum over nothing */
        return;
    }
    clef__merge_levels(g.m, g.a_m, g.c_m);
    choose(lw, &g, &knobs)->lower(lw, &g, &knobs);
}
