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

/* ---- conv_gemm.c: strategies for all ---- */
void clef__conv_gemm_forward(const clef__lowering *lw);
void clef__conv_gemm_data(const clef__lowering *lw);
void clef__conv_gemm_weight(const clef__lowering *lw);

/* ---- depthwise.c: strategies for one filter per channel ---- */
bool clef__depthwise_applies(const clef__lowering *lw); /* to conv2d and its gradient by the image */
bool clef__depthwise_weight_applies(const clef__lowering *lw);
void clef__depthwise_forward(const clef__lowering *lw);
void clef__depthwise_data(const clef__lowering *lw);
void clef__depthwise_weight(const clef__lowering *lw);

/* ---- winograd_fused.c: strategies for 3×3 filters of stride 1 ---- */
bool clef__winograd_fused_applies(const clef__lowering *lw); /* to conv2d and its gradient by the image */
bool clef__winograd_fused_weight_applies(const clef__lowering *lw);
void clef__winograd_fused_forward(const clef__lowering *lw);
void clef__winograd_fused_data(const clef__lowering *lw);
void clef__winograd_fused_weight(const clef__lowering *lw);

/* ---- fold.c: a strategy for the gradient by an image of few channels ---- */
bool clef__fold_applies(const clef__lowering *lw);
void clef__fold_data(const clef__lowering *lw);

/* ---- direct.c: strategies for few channels and filters ---- */
bool clef__direct_applies(const clef__lowering *lw);
bool clef__direct_data_applies(const clef__lowering *lw);
bool clef__direct_weight_applies(const clef__lowering *lw);
void clef__direct_forward(const clef__lowering *lw);
void clef__direct_data(const clef__lowering *lw);
void clef__direct_weight(const clef__lowering *lw);

/* ---- winograd.c: a strategy for filters of 3 × 3, to conv2d and its gradient by the image ---- */
bool clef__winograd_applies(const clef__lowering *lw);
void clef__winograd_forward(const clef__lowering *lw);
void clef__winograd_data(const clef__lowering *lw);
#endif
