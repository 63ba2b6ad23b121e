/* winograd.cl — convolution by filters of 3 × 3 with 16 multiplications where 36 are, for two by two pixels of the result at a
   time: F(2×2, 3×3) of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016.

   Y = Aᵀ [ (G g Gᵀ) ⊙ (Bᵀ d B) ] A, with the sum over channels inside: 16 products of matrices, which gemm.cl or tile.cl makes.

   winograd_image:   V[16][tile][c] = Bᵀ d B of 4 × 4 pixels, which begin two apart; zero outside of the image.
   winograd_filters: U[16][c][o] = G g Gᵀ; any strides, so that filters may be flipped and their channels exchanged.
   winograd_result:  Y[n][h][w][o] = Aᵀ m A (+ bias[o]) of M[16][tile][o], and the epilogue (epilogue.h); what reaches beyond the
                     edge is left out.

   A work-item owns one channel of one tile; neighbours are neighbouring channels.  All is f32. */
#include "common.h"
#include "args.h"
#include "winograd.args"
#include "registers.h"
#define W 1
#define RESULT f32
#include "epilogue.h"

KERNEL(winograd_image, WINOGRAD_IMAGE_ARGS) {
    UNPACK(WINOGRAD_IMAGE_ARGS)
    long u = (long)get_global_id(0), size = (long)tiles * c;
    if (u >= size) return;
    int tile = (int)(u / c), top = tile / tiles_w % tiles_h * 2 - before_h, left = tile % tiles_w * 2 - before_w;
    __global const float *x = x_base + x_offset + tile / tiles_w / tiles_h * sn + u % c * sc;
    __global float *to = to_base + to_offset + u;
#define INSIDE(i, j) (top + i >= 0 && top + i < h && left + j >= 0 && left + j < w)
#define PIXEL(i, j) float x##i##j = INSIDE(i, j) ? x[(top + i) * sh + (left + j) * sw] : 0;
#define PIXELS(j) PIXEL(0, j) PIXEL(1, j) PIXEL(2, j) PIXEL(3, j)
    ROWS_4(PIXELS)
#define DOWN(j) float d0##j = x0##j - x2##j, d1##j = x1##j + x2##j, d2##j = x2##j - x1##j, d3##j = x1##j - x3##j;
    ROWS_4(DOWN)
#define ACROSS(i)                                                                                \
    to[(4 * i) * size] = d##i##0 - d##i##2;                                                      \
    to[(4 * i + 1) * size] = d##i##1 + d##i##2;                                                  \
    to[(4 * i + 2) * size] = d##i##2 - d##i##1;                                                  \
    to[(4 * i + 3) * size] = d##i##1 - d##i##3;
    ROWS_4(ACROSS)
}

KERNEL(winograd_filters, WINOGRAD_FILTERS_ARGS) {
    UNPACK(WINOGRAD_FILTERS_ARGS)
    long u = (long)get_global_id(0), size = (long)c * o;
    if (u >= size) return;
    __global const float *w = w_base + w_offset + u / o * sc + u % o * so;
    __global float *to = to_base + to_offset + u;
#define WEIGHT(i, j) float g##i##j = w[i * sh + j * sw];
#define WEIGHTS(j) WEIGHT(0, j) WEIGHT(1, j) WEIGHT(2, j)
    ROWS_3(WEIGHTS)
#define SPREAD(j)                                                                                \
    float s0##j = g0##j, s3##j = g2##j, ends##j = 0.5f * (g0##j + g2##j), middle##j = 0.5f * g1##j; \
    float s1##j = ends##j + middle##j, s2##j = ends##j - middle##j;
    ROWS_3(SPREAD)
#define SPREAD_ACROSS(i)                                                                         \
    {                                                                                            \
        float ends = 0.5f * (s##i##0 + s##i##2), middle = 0.5f * s##i##1;                        \
        to[(4 * i) * size] = s##i##0;                                                            \
        to[(4 * i + 1) * size] = ends + middle;                                                  \
        to[(4 * i + 2) * size] = ends - middle;                                                  \
        to[(4 * i + 3) * size] = s##i##2;                                                        \
    }
    ROWS_4(SPREAD_ACROSS)
}

KERNEL(winograd_result, WINOGRAD_RESULT_ARGS) {
    UNPACK(WINOGRAD_RESULT_ARGS)
    long u = (long)get_global_id(0), size = (long)tiles * o;
    if (u >= size) return;
    int tile = (int)(u / o), top = tile / tiles_w % tiles_h * 2, left = tile % tiles_w * 2;
    __global const float *from = from_base + from_offset + u;
    long corner = (((long)(tile / tiles_w / tiles_h) * h + top) * w + left) * o + u % o;
    __global float *y = y_base + y_offset + corner;
    extra += extra_offset + corner;
#define PRODUCT(i, j) float m##i##j = from[(4 * i + j) * size];
#define PRODUCTS(j) PRODUCT(0, j) PRODUCT(1, j) PRODUCT(2, j) PRODUCT(3, j)
    ROWS_4(PRODUCTS)
#define GATHER(j) float r0##j = m0##j + m1##j + m2##j, r1##j = m1##j - m2##j - m3##j;
    ROWS_4(GATHER)
    bias += bias_offset + u % o;
    bool right = left + 1 < w, below = top + 1 < h;
    long row = (long)w * o;
    y[0] = EPILOGUE(1, BIASED(1, r00 + r01 + r02, 0), extra, 0);
    if (right) y[o] = EPILOGUE(1, BIASED(1, r01 - r02 - r03, 0), extra, o);
    if (below) y[row] = EPILOGUE(1, BIASED(1, r10 + r11 + r12, 0), extra, row);
    if (right && below) y[row + o] = EPILOGUE(1, BIASED(1, r11 - r12 - r13, 0), extra, row + o);
}
