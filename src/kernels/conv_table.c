/* conv_table.c — the ways to compute a convolution and its two gradients (conv.def), and what their costs and counts are made of. */
#include "kernels/conv.h"
#include "runtime/arithmetic.h"

/* clang-format off */
#define CONV(name) &clef__conv_##name.forward,
const clef__strategy *const clef__conv_forward_rows[] = {
#include "kernels/conv.def"
    NULL};
#undef CONV
#define CONV(name) &clef__conv_##name.data,
const clef__strategy *const clef__conv_data_rows[] = {
#include "kernels/conv.def"
    NULL};
#undef CONV
#define CONV(name) &clef__conv_##name.weight,
const clef__strategy *const clef__conv_weight_rows[] = {
#include "kernels/conv.def"
    NULL};
#undef CONV
/* clang-format on */

clef__conv_sizes clef__conv_forward_sizes(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    return (clef__conv_sizes){node->input[0]->shape, node->input[1]->shape, node->out->shape};
}

clef__conv_sizes clef__conv_data_sizes(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    return (clef__conv_sizes){node->out->shape, node->input[1]->shape, node->input[0]->shape};
}

clef__conv_sizes clef__conv_weight_sizes(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    return (clef__conv_sizes){node->input[0]->shape, node->out->shape, node->input[1]->shape};
}

double clef__conv_bytes(const clef__lowering *lw, const clef__conv_sizes *s) {
    double numbers = (double)clef_shape_numel(s->x) + (double)clef_shape_numel(s->w) + (double)clef_shape_numel(s->y);
    return numbers * (double)clef_dtype_size(clef__lower_node(lw)->out->dtype);
}

double clef__pixels(clef_shape image) { return (double)image.dim[0] * (double)image.dim[2] * (double)image.dim[3]; }

bool clef__winograd_computes(const clef__conv *a) {
    bool plain = a->groups == 1;
    for (int d = 0; d < 2; d++) plain = plain && a->kernel[d] == 3 && a->stride[d] == 1 && a->dilation[d] == 1;
    return plain;
}

/* F(2×2, 3×3): for each tile of 2 × 2 results 16 products of each channel with each filter in place of 36, and additions to bring
   its 4 × 4 pixels there (32 a channel) and the results back (24 a filter).  Filters are transformed once (28 for each). */
static double winograd_flops(clef_shape tiled, clef_shape read, clef_shape made) {
    double tiles = (double)tiled.dim[0] * (double)clef__ceil_div(tiled.dim[2], 2) * (double)clef__ceil_div(tiled.dim[3], 2);
    double c = (double)read.dim[1], o = (double)made.dim[1];
    return tiles * (2 * 16 * c * o + 32 * c + 24 * o) + 28 * c * o;
}

double clef__winograd_flops(const clef__node *node) {
    return winograd_flops(node->out->shape, node->input[0]->shape, node->out->shape);
}

/* The gradient by the filters works on the same tiles. */
double clef__winograd_weight_flops(const clef__node *node) {
    return winograd_flops(node->input[1]->shape, node->input[0]->shape, node->input[1]->shape);
}
