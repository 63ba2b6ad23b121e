/* conv_gemm.c — a convolution and its two gradients as products that find their rows by address (gemm.h).

       forward:          rows (n, oy, ox),  k (ky, kx, c),   B = w
       backward data:    rows (n, y, x),    k (ky, kx, o),   B = flipped w; with a stride, the pixels of one residue
                         class (phase) at a time, each with the taps that reach it
       backward weight:  rows (ky, kx, c),  k (n, oy, ox),   B = dy

   Images lie channels-last and are padded by a copy, so no k loop meets a border.  One filter per channel would make products
   of one column each: depthwise.c has kernels for it. */
#include "kernels/conv.h"
#include "kernels/gemm.h"
#include "kernels/image.h"
#include "plan/lower/cost.h"
#include "runtime/arithmetic.h"

typedef clef__conv geometry;

static const geometry *geometry_of(const clef__lowering *lw) { return clef__lower_node(lw)->attributes; }

/* The image that products read, and the pace of its pixels from one result to the next.  One tap reads no others, so that only these are
   copied where it takes a copy. */
static clef__image image_read(const clef__lowering *lw, clef_dtype dtype, const int64_t results[2], int64_t pace[2]) {
    const geometry *a = geometry_of(lw);
    clef_dtype type = clef__gemm_a_type(lw, dtype);
    bool sampled = a->stride[0] * a->stride[1] > 1;
    for (int d = 0; d < 2; d++) sampled = sampled && a->kernel[d] == 1 && a->before[d] == 0 && a->after[d] == 0;
    for (int d = 0; d < 2; d++) pace[d] = sampled ? 1 : a->stride[d];
    return sampled ? clef__image_sampled(lw, 0, type, a->stride, results) : clef__image_padded(lw, 0, type, a->before, a->after);
}

static void conv_gemm_forward(const clef__lowering *lw) {
    const geometry *a = geometry_of(lw);
    clef__operand w = clef__lower_in(lw, 1);
    int64_t pace[2];
    clef__image x = image_read(lw, w.dtype, &clef__lower_node(lw)->out->shape.dim[2], pace);
    clef__image y = clef__image_of(clef__lower_out(lw, clef__channels_last));
    clef__epilogue epilogue = clef__lower_biased_epilogue(lw, y.data);
    int64_t filters = y.c / a->groups, channels = x.c / a->groups;
    epilogue.bias_z = filters;
    /* clang-format off */
    clef__gemm g = {
        .m = {y.n, y.h, y.w}, .k = {w.dim[2], w.dim[3], channels}, .z = {1, a->groups}, .n = filters,
        .a = x.data, .b = w, .c = y.data,
        .a_m = {x.sn, pace[0] * x.sh, pace[1] * x.sw}, .a_k = {a->dilation[0] * x.sh, a->dilation[1] * x.sw, 1},
        .a_z = {0, channels},
        .b_k = {w.stride[2], w.stride[3], w.stride[1]}, .b_n = w.stride[0], .b_z = {0, filters * w.stride[0]},
        .c_m = {y.sn, y.sh, y.sw}, .c_n = 1, .c_z = {0, filters}, .overlapping = w.dim[2] * w.dim[3] > 1,
        .epilogue = epilogue,
    };
    /* clang-format on */
    clef__gemm_lower(lw, g);
}

/* The gradient lies as the product makes it and as the forward product reads filters, which take over this order. */
const int clef__filters_last[4] = {2, 3, 1, 0};

/* Several taps read the same pixels.  One tap reads a plain matrix, which may be packed; but that only pays where few pixels meet
   many channels and filters, and else one tap is partitioned as several are. */
static bool taps_overlap(int64_t taps, int64_t channels, int64_t filters, int64_t pixels) {
    return taps > 1 || pixels * (channels + filters) >= 2 * channels * filters;
}

static void conv_gemm_weight(const clef__lowering *lw) {
    const geometry *a = geometry_of(lw);
    clef__operand dy = clef__lower_in(lw, 1), dw = clef__lower_out(lw, clef__filters_last);
    int64_t pace[2];
    clef__image x = image_read(lw, dy.dtype, &dy.dim[2], pace);
    int64_t filters = dw.dim[0] / a->groups, channels = dw.dim[1];
    bool overlaps = taps_overlap(dw.dim[2] * dw.dim[3], channels, filters, dy.dim[0] * dy.dim[2] * dy.dim[3]);
    /* clang-format off */
    clef__gemm g = {
        .m = {dw.dim[2], dw.dim[3], channels}, .k = {dy.dim[0], dy.dim[2], dy.dim[3]}, .z = {1, a->groups}, .n = filters,
        .a = x.data, .b = dy, .c = dw,
        .a_m = {a->dilation[0] * x.sh, a->dilation[1] * x.sw, 1}, .a_k = {x.sn, pace[0] * x.sh, pace[1] * x.sw},
        .a_z = {0, channels},
        .b_k = {dy.stride[0], dy.stride[2], dy.stride[3]}, .b_n = dy.stride[1], .b_z = {0, filters * dy.stride[1]},
        .c_m = {dw.stride[2], dw.stride[3], dw.stride[1]}, .c_n = dw.stride[0], .c_z = {0, filters * dw.stride[0]},
        .overlapping = overlaps,
    };
    /* clang-format on */
    clef__gemm_lower(lw, g);
}

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

int64_t clef__tap_step(int64_t stride, int64_t dilation) { return stride / common_divisor(stride, dilation); }

clef__phase clef__find_phase(const geometry *a, int d, int64_t residue) {
    int64_t s = a->stride[d], dilation = a->dilation[d], reach = residue + a->before[d];
    clef__phase p = {.pixels = clef__larger(clef__ceil_div(a->image[d] - residue, s), 0), .step = clef__tap_step(s, dilation)};
    while (p.first < p.step && p.first < a->kernel[d] && (reach - p.first * dilation) % s != 0) p.first++;
    if (p.first < p.step && p.first < a->kernel[d]) p.taps = (a->kernel[d] - 1 - p.first) / p.step + 1;
    p.shift = p.step * dilation / s;
    p.base = (reach - p.first * dilation) / s - (p.taps - 1) * p.shift;
    return p;
}

int64_t clef__phases(const geometry *a, int d) { return clef__smaller(a->stride[d], a->image[d]); }

/* How far the phases reach beyond dy's `size` rows or columns. */
static void find_margins(const geometry *a, int d, int64_t size, int64_t *before, int64_t *after) {
    *before = *after = 0;
    for (int64_t r = 0; r < clef__phases(a, d); r++) {
        clef__phase p = clef__find_phase(a, d, r);
        if (p.taps == 0) continue;
        int64_t last = p.pixels - 1 + p.base + (p.taps - 1) * p.shift;
        *before = clef__larger(*before, -p.base);
        *after = clef__larger(*after, last - (size - 1));
    }
}

static void lower_phase(const clef__lowering *lw, const clef__image *dy, clef__operand w, const clef__image *dx,
                        const clef__epilogue *epilogue, const clef__phase p[2], const int64_t residue[2]) {
    const geometry *a = geometry_of(lw);
    int64_t filters = dy->c / a->groups, channels = w.dim[1];
    /* clang-format off */
    clef__gemm g = {
        .m = {dx->n, p[0].pixels, p[1].pixels}, .k = {p[0].taps, p[1].taps, filters}, .z = {1, a->groups}, .n = channels,
        .a = dy->data, .b = w, .c = dx->data,
        .a_m = {dy->sn, dy->sh, dy->sw}, .a_k = {p[0].shift * dy->sh, p[1].shift * dy->sw, 1}, .a_z = {0, filters},
        .b_k = {-p[0].step * w.stride[2], -p[1].step * w.stride[3], w.stride[0]}, .b_n = w.stride[1],
        .b_z = {0, filters * w.stride[0]},
        .c_m = {dx->sn, a->stride[0] * dx->sh, a->stride[1] * dx->sw}, .c_n = 1, .c_z = {0, channels},
        .overlapping = p[0].taps * p[1].taps > 1, .epilogue = *epilogue,
    };
    /* clang-format on */
    g.a.offset += p[0].base * dy->sh + p[1].base * dy->sw;
    g.b.offset +=
        (p[0].first + (p[0].taps - 1) * p[0].step) * w.stride[2] + (p[1].first + (p[1].taps - 1) * p[1].step) * w.stride[3];
    g.c.offset += residue[0] * dx->sh + residue[1] * dx->sw;
    clef__gemm_lower(lw, g);
}

bool clef__phases_reach_all(const geometry *a) {
    bool all = true;
    for (int d = 0; d < 2; d++)
        for (int64_t r = 0; r < clef__phases(a, d); r++) all = all && clef__find_phase(a, d, r).taps > 0;
    return all;
}

static void conv_gemm_data(const clef__lowering *lw) {
    const geometry *a = geometry_of(lw);
    clef__operand w = clef__lower_in(lw, 1), y = clef__lower_in(lw, 0);
    int64_t before[2], after[2], r[2];
    for (int d = 0; d < 2; d++) find_margins(a, d, y.dim[2 + d], &before[d], &after[d]);
    clef__image dy = clef__image_padded(lw, 0, clef__gemm_a_type(lw, w.dtype), before, after);
    clef__image dx = clef__image_of(clef__lower_out(lw, clef__channels_last));
    clef__epilogue epilogue = {0};
    if (clef__phases_reach_all(a)) epilogue = clef__lower_epilogue(lw, dx.data);
    else clef__lower_fill(lw, dx.data, 0);
    for (r[0] = 0; r[0] < clef__phases(a, 0); r[0]++) {
        clef__phase p[2] = {clef__find_phase(a, 0, r[0])};
        for (r[1] = 0; p[0].taps > 0 && r[1] < clef__phases(a, 1); r[1]++) {
            p[1] = clef__find_phase(a, 1, r[1]);
            clef__phase moved[2] = {p[0], p[1]};
            for (int d = 0; d < 2; d++) moved[d].base += before[d];
            if (p[1].taps > 0) lower_phase(lw, &dy, w, &dx, &epilogue, moved, r);
        }
    }
}

clef__operand clef__filters_flipped(clef__operand w) {
    clef__operand flipped = w;
    for (int d = 0; d < 2; d++) {
        flipped.dim[d] = w.dim[1 - d];
        flipped.stride[d] = w.stride[1 - d];
        flipped.stride[2 + d] = -w.stride[2 + d];
        flipped.offset += (w.dim[2 + d] - 1) * w.stride[2 + d];
    }
    return flipped;
}

/* ---- costs ---- */

/* g, of which sizes and strides are known, with operands that are nowhere yet. */
static double product_seconds(const clef__lowering *lw, clef__gemm g) {
    clef_dtype dtype = clef__lower_node(lw)->out->dtype;
    g.a.dtype = clef__gemm_a_type(lw, dtype);
    g.b.dtype = g.c.dtype = dtype;
    g.b_n = g.c_n = 1;
    return clef__gemm_seconds(lw, g);
}

/* The copy of an image with zeros around it, if that takes one. */
static double padding_seconds(const clef__lowering *lw, clef_shape image, const int64_t before[2], const int64_t after[2]) {
    double size = (double)clef_dtype_size(clef__lower_node(lw)->out->dtype);
    if (before[0] <= 0 && before[1] <= 0 && after[0] <= 0 && after[1] <= 0) return 0;
    return clef__launch_seconds(lw, &(clef__work){.bytes = 2 * size * (double)clef_shape_numel(image)});
}

static double forward_cost(const clef__lowering *lw) {
    const geometry *a = geometry_of(lw);
    clef__conv_sizes s = clef__conv_forward_sizes(lw);
    int64_t c = s.x.dim[1], filters = s.w.dim[0], row = (s.x.dim[3] + a->before[1] + a->after[1]) * c;
    /* clang-format off */
    clef__gemm g = {
        .m = {s.y.dim[0], s.y.dim[2], s.y.dim[3]}, .k = {a->kernel[0], a->kernel[1], s.w.dim[1]}, .z = {1, a->groups},
        .n = filters / a->groups, .a_m = {0, a->stride[0] * row, a->stride[1] * c},
        .a_k = {a->dilation[0] * row, a->dilation[1] * c, 1},
        .b_k = {a->kernel[1] * s.w.dim[1] * filters, s.w.dim[1] * filters, filters},
        .overlapping = a->kernel[0] * a->kernel[1] > 1,
    };
    /* clang-format on */
    return padding_seconds(lw, s.x, a->before, a->after) + product_seconds(lw, g);
}

static double weight_cost(const clef__lowering *lw) {
    const geometry *a = geometry_of(lw);
    clef__conv_sizes s = clef__conv_weight_sizes(lw);
    int64_t c = s.x.dim[1], filters = s.w.dim[0], row = (s.x.dim[3] + a->before[1] + a->after[1]) * c;
    /* clang-format off */
    clef__gemm g = {
        .m = {a->kernel[0], a->kernel[1], s.w.dim[1]}, .k = {s.y.dim[0], s.y.dim[2], s.y.dim[3]}, .z = {1, a->groups},
        .n = filters / a->groups, .a_m = {a->dilation[0] * row, a->dilation[1] * c, 1},
        .a_k = {(s.x.dim[2] + a->before[0] + a->after[0]) * row, a->stride[0] * row, a->stride[1] * c},
        .b_k = {s.y.dim[2] * s.y.dim[3] * filters, s.y.dim[3] * filters, filters},
        .overlapping = taps_overlap(a->kernel[0] * a->kernel[1], s.w.dim[1], filters / a->groups, (int64_t)clef__pixels(s.y)),
    };
    /* clang-format on */
    return padding_seconds(lw, s.x, a->before, a->after) + product_seconds(lw, g);
}

/* Of a phase: its product, which takes all channels in each group. */
static double phase_seconds(const clef__lowering *lw, const clef__conv_sizes *s, const clef__phase p[2]) {
    const geometry *a = geometry_of(lw);
    int64_t filters = s->w.dim[0], row = (s->y.dim[3] + p[1].taps - 1) * filters, channels = s->w.dim[1];
    /* clang-format off */
    clef__gemm g = {
        .m = {s->x.dim[0], p[0].pixels, p[1].pixels}, .k = {p[0].taps, p[1].taps, filters / a->groups}, .z = {1, a->groups},
        .n = channels, .a_m = {0, row, filters}, .a_k = {p[0].shift * row, p[1].shift * filters, 1},
        .b_k = {-p[0].step, -p[1].step, channels}, .overlapping = p[0].taps * p[1].taps > 1,
    };
    /* clang-format on */
    return product_seconds(lw, g);
}

static double data_cost(const clef__lowering *lw) {
    const geometry *a = geometry_of(lw);
    clef__conv_sizes s = clef__conv_data_sizes(lw);
    int64_t before[2], after[2];
    for (int d = 0; d < 2; d++) find_margins(a, d, s.y.dim[2 + d], &before[d], &after[d]);
    double seconds = padding_seconds(lw, s.y, before, after);
    for (int64_t i = 0; i < clef__phases(a, 0); i++)
        for (int64_t j = 0; j < clef__phases(a, 1); j++)
            seconds += phase_seconds(lw, &s, (const clef__phase[]){clef__find_phase(a, 0, i), clef__find_phase(a, 1, j)});
    return seconds;
}

const clef__conv_rows clef__conv_gemm = {.forward = {.name = "product", .cost = forward_cost, .lower = conv_gemm_forward},
                                         .data = {.name = "product", .cost = data_cost, .lower = conv_gemm_data},
                                         .weight = {.name = "product", .cost = weight_cost, .lower = conv_gemm_weight}};
