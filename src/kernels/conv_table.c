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

clef__winograd_counts clef__count_winograd(int64_t tile) {
    return tile == 2 ? (clef__winograd_counts){16, 32, 24, 28} : (clef__winograd_counts){36, 228, 130, 126};
}

double clef__winograd_flops(int64_t tile, clef_shape tiled, clef_shape read, clef_shape made) {
    clef__winograd_counts n = clef__count_winograd(tile);
    double tiles = (double)(tiled.dim[0] * clef__ceil_div(tiled.dim[2], tile) * clef__ceil_div(tiled.dim[3], tile));
    double c = (double)read.dim[1], o = (double)made.dim[1];
    return tiles * (2 * n.places * c * o + n.image * c + n.result * o) + n.filter * c * o;
}
