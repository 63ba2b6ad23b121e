/* product.c — matmul and linear as products of gemm.h.  Where b is a single matrix the leading dimensions of a are rows like any
   others; else they are the batch of cl/gemm.cl. */
#include "kernels/gemm.h"
#include <string.h>

enum { MAX_LEVELS = CLEF_MAX_RANK };

/* Leading dimensions of the product with the strides of a, b and c; equal neighbours joined. */
typedef struct levels {
    int n;
    int64_t size[MAX_LEVELS], a[MAX_LEVELS], b[MAX_LEVELS], c[MAX_LEVELS];
} levels;

static int64_t stride_of(const clef__operand *x, int from_end) {
    int i = x->rank - 1 - from_end;
    return i < 0 || x->dim[i] == 1 ? 0 : x->stride[i];
}

/* Puts one more level outside the others. */
static void add_level(levels *v, int64_t size, int64_t a, int64_t b, int64_t c) {
    if (size == 1) return;
    int i = v->n - 1;
    if (i >= 0 && a == v->a[i] * v->size[i] && b == v->b[i] * v->size[i] && c == v->c[i] * v->size[i]) {
        v->size[i] *= size;
        return;
    }
    v->size[v->n] = size;
    v->a[v->n] = a;
    v->b[v->n] = b;
    v->c[v->n++] = c;
}

static bool is_single(const clef__operand *b) {
    for (int i = 2; i < b->rank; i++)
        if (stride_of(b, i) != 0) return false;
    return true;
}

/* Fits the leading dimensions of c into rows or batch of g; false if there are too many different ones. */
static bool place_levels(clef__gemm *g, const clef__operand *a, const clef__operand *b, const clef__operand *c) {
    levels v = {0};
    bool rows = is_single(b);
    if (rows) add_level(&v, c->dim[c->rank - 2], stride_of(a, 1), 0, stride_of(c, 1));
    for (int i = 2; i < c->rank; i++) add_level(&v, c->dim[c->rank - 1 - i], stride_of(a, i), stride_of(b, i), stride_of(c, i));
    if (v.n > (rows ? 3 : 2)) return false;
    for (int i = 0; i < 3; i++) g->m[i] = 1;
    g->z[0] = g->z[1] = 1;
    if (!rows) {
        g->m[2] = c->dim[c->rank - 2];
        g->a_m[2] = stride_of(a, 1);
        g->c_m[2] = stride_of(c, 1);
    }
    for (int i = 0; i < v.n; i++) {
        if (rows) {
            g->m[2 - i] = v.size[i];
            g->a_m[2 - i] = v.a[i];
            g->c_m[2 - i] = v.c[i];
        } else {
            g->z[1 - i] = v.size[i];
            g->a_z[1 - i] = v.a[i];
            g->b_z[1 - i] = v.b[i];
            g->c_z[1 - i] = v.c[i];
        }
    }
    return true;
}

/* x copied so that its leading dimensions are those of c, dense. */
static clef__operand spread(const clef__lowering *lw, clef__operand x, const clef__operand *c) {
    clef__operand from = x;
    clef_shape shape = {.rank = c->rank};
    from.rank = c->rank;
    for (int i = 0; i < c->rank; i++) {
        int at = c->rank - 1 - i;
        from.stride[at] = stride_of(&x, i);
        from.dim[at] = shape.dim[at] = i < 2 ? x.dim[x.rank - 1 - i] : c->dim[at];
    }
    clef__operand to = clef__lower_scratch(lw, x.dtype, shape);
    clef__lower_copy(lw, to, from);
    return to;
}

static void lower_product(const clef__lowering *lw, clef__operand a, clef__operand b) {
    clef__operand c = clef__lower_out(lw, NULL);
    clef__gemm g = {.n = c.dim[c.rank - 1]};
    clef__epilogue epilogue = clef__lower_biased_epilogue(lw, c);
    a = clef__gemm_operand(lw, a);
    if (!place_levels(&g, &a, &b, &c)) {
        a = spread(lw, a, &c);
        b = spread(lw, b, &c);
        memset(&g, 0, sizeof g);
        g.n = c.dim[c.rank - 1];
        place_levels(&g, &a, &b, &c);
    }
    g.a = a;
    g.b = b;
    g.c = c;
    g.epilogue = epilogue;
    g.k[0] = g.k[1] = 1;
    g.k[2] = a.dim[a.rank - 1];
    g.a_k[2] = stride_of(&a, 0);
    g.b_k[2] = stride_of(&b, 1);
    g.b_n = stride_of(&b, 0);
    g.c_n = 1;
    clef__gemm_lower(lw, g);
}

void clef__product_matmul(const clef__lowering *lw) { lower_product(lw, clef__lower_in(lw, 0), clef__lower_in_stored(lw, 1)); }

void clef__product_linear(const clef__lowering *lw) {
    clef__operand w = clef__lower_in_stored(lw, 1), t = w;
    t.dim[0] = w.dim[1];
    t.dim[1] = w.dim[0];
    t.stride[0] = w.stride[1];
    t.stride[1] = w.stride[0];
    lower_product(lw, clef__lower_in(lw, 0), t);
}
