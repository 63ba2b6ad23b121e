/* conv.h — what the ways to compute a convolution share. */
#ifndef CLEF_CONV_H
#define CLEF_CONV_H
#include "plan/lower/lower.h"

/* Attributes of conv2d and its two gradients; index 0 is h, 1 is w. */
typedef struct clef__conv {
    int64_t stride[2], before[2], after[2], dilation[2], groups;
    int64_t image[2], kernel[2]; /* of x and w */
} clef__conv;

/* Filters in memory as the products and kernels read them: [kh][kw][c][o]. */
extern const int clef__filters_last[4];

/* w [o, c, kh, kw] flipped in both directions of space, its two kinds of channels exchanged: [c, o, kh, kw].  The gradient by the
   image of a convolution of stride 1 is the convolution of dy with them, with dilation · (kernel - 1) - before zeros before it. */
clef__operand clef__filters_flipped(clef__operand w);
/* From a tap to the next one that reaches the same pixel. */
int64_t clef__tap_step(int64_t stride, int64_t dilation);

/* The gradient by the image goes by residue classes of pixels, phases.  One direction of a phase: pixel s·i + residue gets
   dy[i + base + j·shift] through tap first + (taps-1-j)·step. */
typedef struct clef__phase {
    int64_t pixels, taps, first, step, shift, base;
} clef__phase;
clef__phase clef__find_phase(const clef__conv *a, int d, int64_t residue);
int64_t clef__phases(const clef__conv *a, int d); /* that have pixels */
bool clef__phases_reach_all(const clef__conv *a); /* does a tap reach every pixel? */

/* A way to compute the convolution, its gradient by the image and that by the filters; a row without `lower` is none. */
typedef struct clef__conv_rows {
    clef__strategy forward, data, weight;
} clef__conv_rows;
#define CONV(name) extern const clef__conv_rows clef__conv_##name;
#include "kernels/conv.def"
#undef CONV

/* ---- conv_table.c ---- */
extern const clef__strategy *const clef__conv_forward_rows[], *const clef__conv_data_rows[], *const clef__conv_weight_rows[];
/* Image, filters and result of the convolution that a node computes, or of which it is a gradient. */
typedef struct clef__conv_sizes {
    clef_shape x, w, y;
} clef__conv_sizes;
clef__conv_sizes clef__conv_forward_sizes(const clef__lowering *lw);
clef__conv_sizes clef__conv_data_sizes(const clef__lowering *lw);
clef__conv_sizes clef__conv_weight_sizes(const clef__lowering *lw);
/* What all three read and write at the least. */
double clef__conv_bytes(const clef__lowering *lw, const clef__conv_sizes *s);
double clef__pixels(clef_shape image);
/* Does Winograd's algorithm compute it: filters of 3 × 3, stride 1, dilation 1, one group? */
bool clef__winograd_computes(const clef__conv *a);
/* F(tile×tile, 3×3): places of a tile, for each of which there is a product of channels and filters; and additions that bring the
   pixels of a channel there, sums back to the results of a filter, and a filter there. */
typedef struct clef__winograd_counts {
    double places, image, result, filter;
} clef__winograd_counts;
clef__winograd_counts clef__count_winograd(int64_t tile);
/* All that it does; tiled: the image of which it makes tiles. */
double clef__winograd_flops(int64_t tile, clef_shape tiled, clef_shape read, clef_shape made);
#endif
