/* space.c — turns shapes and strides into rows that a pointwise kernel goes along. */
#include "plan/lower/space.h"
#include "graph/core.h"

static void space_swap(clef__space *s, int a, int b) {
    int64_t t = s->dim[a];
    s->dim[a] = s->dim[b];
    s->dim[b] = t;
    for (int i = 0; i < s->n; i++) {
        t = s->stride[i][a];
        s->stride[i][a] = s->stride[i][b];
        s->stride[i][b] = t;
    }
}

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* Memory order of the first store, outermost first. */
static void space_sort(clef__space *s, int store) {
    for (int i = 1; i < s->rank; i++)
        for (int j = i; j > 0 && magnitude(s->stride[store][j]) > magnitude(s->stride[store][j - 1]); j--) space_swap(s, j, j - 1);
}

static bool collapsible(const clef__space *s, int outer) {
    for (int i = 0; i < s->n; i++)
        if (s->stride[i][outer] != s->stride[i][outer + 1] * s->dim[outer + 1]) return false;
    return true;
}

static void space_collapse(clef__space *s) {
    for (int d = s->rank - 2; d >= 0; d--) {
        if (!collapsible(s, d)) continue;
        s->dim[d] *= s->dim[d + 1];
        for (int i = 0; i < s->n; i++) s->stride[i][d] = s->stride[i][d + 1];
        for (int e = d + 1; e < s->rank - 1; e++) {
            s->dim[e] = s->dim[e + 1];
            for (int i = 0; i < s->n; i++) s->stride[i][e] = s->stride[i][e + 1];
        }
        s->rank--;
    }
}

/* Rows shorter than a vector waste it: a longer dimension along which some operand is contiguous makes better rows. */
static void space_pick_inner(clef__space *s, int width) {
    if (s->rank < 2 || s->dim[s->rank - 1] * 2 > width) return;
    int best = s->rank - 1;
    for (int d = 0; d < s->rank - 1; d++) {
        bool contiguous = false;
        for (int i = 0; i < s->n; i++) contiguous |= s->stride[i][d] == 1;
        if (contiguous && s->dim[d] >= width && s->dim[d] > s->dim[best]) best = d;
    }
    if (best != s->rank - 1) space_swap(s, best, s->rank - 1);
}

void clef__space_make(clef__space *s, const clef__pointwise *p, int width) {
    *s = (clef__space){0};
    for (int i = 0; i < p->n_operands; i++)
        if (!p->operand[i].constant) s->x[s->n++] = &p->operand[i].x;
    s->first_store = s->n;
    for (int i = 0; i < p->n_stores; i++) s->x[s->n++] = &p->store[i].to;
    for (int d = 0; d < p->shape.rank; d++) {
        if (p->shape.dim[d] == 1) continue;
        s->dim[s->rank] = p->shape.dim[d];
        for (int i = 0; i < s->n; i++) s->stride[i][s->rank] = s->x[i]->stride[d];
        s->rank++;
    }
    if (s->rank == 0) {
        s->rank = 1;
        s->dim[0] = 1;
        for (int i = 0; i < s->n; i++) s->stride[i][0] = 1;
    }
    space_sort(s, s->first_store);
    space_collapse(s);
    space_pick_inner(s, width);
}

clef__access clef__space_access(const clef__space *s, int i) {
    int64_t stride = s->stride[i][s->rank - 1];
    if (stride == -1 && i < s->first_store) return CLEF__REVERSED;
    return stride == 0 ? CLEF__SPLAT : stride == 1 ? CLEF__VECTOR : CLEF__GATHER;
}

bool clef__space_is_segment(const clef__space *s) {
    bool contiguous = s->rank == 1;
    for (int i = 0; contiguous && i < s->n; i++) contiguous = clef__space_access(s, i) <= CLEF__VECTOR;
    return contiguous;
}

int clef__space_transposes(const clef__space *s, const clef__pointwise *p, int width) {
    int inner = s->rank - 1;
    if (p->n_steps != 1 || p->step[0].op != &clef__op_cast || s->n != 2 || s->x[0]->dtype != s->x[1]->dtype) return -1;
    if (width < 4 || s->dim[inner] < width) return -1;
    if (clef__space_access(s, 0) != CLEF__GATHER || clef__space_access(s, 1) != CLEF__VECTOR) return -1;
    for (int d = 0; d < inner; d++)
        if (s->stride[0][d] == 1 && s->dim[d] >= width) return d;
    return -1;
}
