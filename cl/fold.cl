/* fold.cl — the last step of a gradient by an image of few channels: every pixel gathers what products left for it (src/kernels/fold.c).

       dx[n][y][x][c] = Σ t[n][oy][ox][ky][kx][c]   over all taps with  oy·stride + ky·dilation = y + before  (and so for x)

   A work-item does `run` rows of the image.  It adds W ≥ c channels at once, those beyond c for nothing: t has W elements more than
   it needs.  Knobs: OUT: f32, f16 or bf16, storage of dx; W: lanes. */
#ifndef OUT
#define OUT f32
#endif
#ifndef W
#define W 4
#endif
#include "common.h"
#include "args.h"
#include "fold.args"

#define V VEC(float, W)

/* The taps that reach a pixel along one direction: first, first + step, … below end; and the place that the first comes from. */
typedef struct { int first, end, from; } reach;

/* at: the pixel, counted from where the padding begins. */
static reach reach_of(int at, int taps, int stride, int dilation, int step, int size) {
    int lowest = max(at - stride * (size - 1), 0), first = 0;
    if (stride == 1 && dilation == 1) { /* no division for every pixel */
        reach near = {lowest, min(taps, at + 1), at - lowest};
        return near;
    }
    PLAIN_LOOP
    while (first < step && (at - first * dilation) % stride != 0) first++;
    lowest = (lowest + dilation - 1) / dilation;
    reach r = {first, first == step ? 0 : min(taps, at / dilation + 1), 0};
    if (lowest > first) r.first += (lowest - first + step - 1) / step * step;
    r.from = (at - r.first * dilation) / stride;
    return r;
}

KERNEL(fold, FOLD_ARGS) {
    UNPACK(FOLD_ARGS)
    int begin = (int)get_global_id(0) * run, pixel = taps_h * taps_w * c;
    int next = step_w * c - step_w * dilation_w / stride_w * pixel; /* from a tap to the next one that reaches the same column */
    PLAIN_LOOP
    for (int row = begin; row < min(begin + run, rows); row++) {
        reach v = reach_of(row % height + before_h, taps_h, stride_h, dilation_h, step_h, out_h);
        __global const float *image = t_base + t_offset + (long)(row / height) * out_h * out_w * pixel;
        __global MEMORY(OUT) *to = to_base + to_offset + (long)row * width * c;
        PLAIN_LOOP
        for (int x = 0; x < width; x++) {
            reach h = reach_of(x + before_w, taps_w, stride_w, dilation_w, step_w, out_w);
            V sum = 0;
            PLAIN_LOOP
            for (int ky = v.first, oy = v.from; ky < v.end; ky += step_h, oy -= step_h * dilation_h / stride_h) {
                __global const float *t = image + (oy * out_w + h.from) * pixel + (ky * taps_w + h.first) * c;
                PLAIN_LOOP
                for (int kx = h.first; kx < h.end; kx += step_w, t += next) sum += LOAD(f32, W, t, 0);
            }
            float lane[W];
            CAT(VSTORE_, W)(sum, lane);
            PLAIN_LOOP
            for (int i = 0; i < c; i++) STORE(OUT, 1, to, x * c + i, lane[i]);
        }
    }
}
