/* gemm_table.c — the algorithms to compute a product, and which of them computes one. */
#include "kernels/gemm.h"
#include "plan/lower/lowering.h"
#include <string.h>

static const clef__strategy *const algorithms[] = {&clef__product_by_library,
                                                   &clef__product_by_dot,
                                                   &clef__product_by_lines,
                                                   &clef__product_by_tiles,
                                                   &clef__product_transposed,
                                                   &clef__product_by_gemm,
                                                   NULL};

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

/* The cheapest, unless its knobs name another one that applies. */
static const clef__strategy *choose(const clef__lowering *lw, clef__gemm *g) {
    const clef__strategy *best = clef__select_row(lw, algorithms);
    const clef__family *family = best->family ? best->family(lw) : NULL;
    if (!family) return best;
    g->knobs = find_knobs(lw, family, g);
    for (const clef__strategy *const *other = algorithms; *other; other++)
        if (is_set(family, &g->knobs, (*other)->name) && clef__row_applies(lw, *other)) return *other;
    return best;
}

static bool sums_nothing(const clef__gemm *g) { return g->k[0] * g->k[1] * g->k[2] == 0; }

void clef__gemm_lower(const clef__lowering *lw, clef__gemm g) {
    clef__lowering product = *lw;
    product.product = &g;
    if (sums_nothing(&g)) {
        clef__gemm_begin(lw, &g);
        return;
    }
    clef__merge_levels(g.m, g.a_m, g.c_m);
    choose(&product, &g)->lower(&product);
}

double clef__gemm_seconds(const clef__lowering *lw, clef__gemm g) {
    clef__lowering product = *lw;
    product.product = &g;
    if (sums_nothing(&g)) return 0;
    g.a.value = g.b.value = g.c.value = -1; /* they need not lie anywhere yet */
    clef__merge_levels(g.m, g.a_m, g.c_m);
    return clef__least_seconds(&product, algorithms);
}
