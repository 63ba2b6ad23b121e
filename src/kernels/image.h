/* image.h — what conv.c and pool.c share: images lie with channels innermost, whatever their logical order [n,c,h,w]. */
#ifndef CLEF_IMAGE_H
#define CLEF_IMAGE_H
#include "plan/lower/lower.h"

/* Dimensions of [n,c,h,w] from outermost to innermost in memory. */
extern const int clef__channels_last[4];

/* A channels-last image in memory: sizes and strides in elements; the channel's stride is 1. */
typedef struct clef__image {
    clef__operand data;
    int64_t n, c, h, w, sn, sh, sw;
} clef__image;

/* A dense operand in channels-last order as an image. */
clef__image clef__image_of(clef__operand x);
/* Input i as an image, in its own dtype; without a copy where it lies so already. */
clef__image clef__image_in(const clef__lowering *lw, int i);
/* Input i as an image of dtype `type` with zeros around it (h, w); without a copy where it lies so already. */
clef__image clef__image_padded(const clef__lowering *lw, int i, clef_dtype type, const int64_t before[2], const int64_t after[2]);
/* Every stride-th pixel of input i (h, w), `size` of them, as an image of dtype `type`; without a copy where its channels lie so already. */
clef__image clef__image_sampled(const clef__lowering *lw, int i, clef_dtype type, const int64_t stride[2], const int64_t size[2]);
#endif
