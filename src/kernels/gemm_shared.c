/* gemm_shared.c — what the algorithms for a product share: types, levels, parts. */
#include "kernels/args.h"
#include "kernels/gemm.h"
#include "pack.args"
#include "runtime/arithmetic.h"
#include <string.h>

CLEF__ARGS(finish, FINISH_ARGS)

enum { FINISHED_ELEMENTS = 32768 }; /* that a work-item reads, where one owns a long run */

clef_dtype clef__gemm_type(clef_dtype dtype) { return dtype == CLEF_F16 || dtype == CLEF_BF16 ? CLEF_F32 : dtype; }

clef_dtype clef__gemm_a_type(const clef__lowering *lw, clef_dtype dtype) {
    return clef__lower_profile(lw)->block > 0 ? dtype : clef__gemm_type(dtype);
}

int clef__gemm_lanes(const clef__lowering *lw, clef_dtype type) {
    int lanes = clef__lower_profile(lw)->vector;
    return clef_dtype_size(type) == 8 && lanes > 1 ? lanes / 2 : lanes;
}

clef__operand clef__gemm_operand(const clef__lowering *lw, clef__operand x) {
    clef_dtype type = clef__gemm_a_type(lw, x.dtype);
    if (type == x.dtype) return x;
    clef_shape shape = {.rank = x.rank};
    memcpy(shape.dim, x.dim, sizeof shape.dim);
    clef__operand copy = clef__lower_scratch(lw, type, shape);
    clef__lower_copy(lw, copy, x);
    return copy;
}

void clef__merge_levels(int64_t size[3], int64_t s[3], int64_t t[3]) {
    int64_t n[3] = {1, 1, 1}, p[3] = {0}, q[3] = {0};
    int at = 3;
    for (int i = 2; i >= 0; i--) {
        if (size[i] == 1) continue;
        if (at < 3 && s[i] == p[at] * n[at] && t[i] == q[at] * n[at]) {
            n[at] *= size[i];
            continue;
        }
        at--;
        n[at] = size[i];
        p[at] = s[i];
        q[at] = t[i];
    }
    memcpy(size, n, sizeof n);
    memcpy(s, p, sizeof p);
    memcpy(t, q, sizeof q);
}

bool clef__gemm_is_plain(clef__gemm *g) {
    clef__merge_levels(g->k, g->a_k, g->b_k);
    return g->m[0] * g->m[1] * g->k[0] * g->k[1] == 1;
}

clef__gemm clef__gemm_transposed(const clef__gemm *g) {
    clef__gemm t = *g;
    t.a = g->b, t.b = g->a;
    t.m[2] = g->n, t.n = g->m[2];
    t.a_m[2] = g->b_n, t.b_n = g->a_m[2];
    t.c_m[2] = g->c_n, t.c_n = g->c_m[2];
    for (int i = 0; i < 2; i++) t.a_z[i] = g->b_z[i], t.b_z[i] = g->a_z[i];
    for (int i = 0; i < 3; i++) t.a_k[i] = g->b_k[i], t.b_k[i] = g->a_k[i];
    return t;
}

void clef__gemm_begin(const clef__lowering *lw, const clef__gemm *g) {
    clef__operand c = g->c;
    c.rank = 6;
    int64_t dim[6] = {g->z[0], g->z[1], g->m[0], g->m[1], g->m[2], g->n};
    int64_t stride[6] = {g->c_z[0], g->c_z[1], g->c_m[0], g->c_m[1], g->c_m[2], g->c_n};
    memcpy(c.dim, dim, sizeof dim);
    memcpy(c.stride, stride, sizeof stride);
    if (!(g->epilogue.ops & EPILOGUE_BIAS)) {
        clef__lower_fill(lw, c, 0);
        return;
    }
    clef__operand bias = g->epilogue.bias;
    int64_t bias_stride[6] = {0, g->epilogue.bias_z, 0, 0, 0, 1};
    bias.rank = 6;
    memcpy(bias.dim, dim, sizeof dim);
    memcpy(bias.stride, bias_stride, sizeof bias_stride);
    clef__lower_copy(lw, c, bias);
}

clef__gemm clef__gemm_in_parts(const clef__gemm *g, clef__operand part, int64_t splits) {
    clef__gemm h = *g;
    int64_t stride = g->n, size = part.dim[1] * part.dim[2];
    for (int i = 2; i >= 0; i--) { /* more rows than M where the last tile is not full */
        h.c_m[i] = stride;
        stride *= g->m[i];
    }
    h.c = part;
    h.c_n = 1;
    h.c_z[1] = splits * size;
    h.c_z[0] = g->z[1] * h.c_z[1];
    h.epilogue = (clef__epilogue){0};
    return h;
}

/* Whole rows, or an element for each work-item. */
void clef__gemm_finish(const clef__lowering *lw, const clef__gemm *g, clef__operand part) {
    int64_t batch = g->z[0] * g->z[1], splits = part.dim[0] / batch, m = part.dim[1], n = part.dim[2];
    bool wide = clef__lower_profile(lw)->wide_items;
    int64_t most = clef__smaller(m, FINISHED_ELEMENTS / clef__larger(n * splits, 1));
    int64_t rows = wide ? clef__larger(most, 1) : 1, columns = wide ? n : 1;
    int64_t units = clef__ceil_div(m, rows) * clef__ceil_div(n, columns) * batch;
    clef__launch_begin(lw, "pack.cl", "finish");
    clef__launch_define(lw, "W", "%d", wide ? clef__gemm_lanes(lw, part.dtype) : 1);
    clef__launch_define(lw, "IN", "%s", clef__token(part.dtype));
    clef__launch_define(lw, "OUT", "%s", clef__token(g->c.dtype));
    /* clang-format off */
    finish_args args = {
        .part = part, .c = g->c,
        .M = m, .N = n, .splits = splits, .m2 = g->m[1], .m3 = g->m[2], .cm = CLEF__THREE(g->c_m), .cn = g->c_n,
        .z2 = g->z[1], .cz = CLEF__TWO(g->c_z), .rows = rows, .columns = columns, .units = units, .epilogue = g->epilogue,
    };
    /* clang-format on */
    pass_finish(lw, &args);
    clef__launch_end_1d(lw, units);
}
