/* pool.cl — maxima and averages of windows of channels-last images, and their gradients.

   A work-item walks over `run` pixels of the result, W channels at a time.  Gradients gather: a pixel
   asks the windows that hold it, so nothing is added to in two places and the order of sums is fixed.  The maximum of a
   window is its first NaN, else its first largest element; forward and backward agree on it without storing it.

   Knobs: DT: storage; W: lanes; ADAPTIVE: windows from floor(i·h/oh) to ceil((i+1)·h/oh); WINDOW_H, WINDOW_W: the size of
   small windows that all lie inside the image, to unroll them; PICK: max_pool gives the elements of a second image at the
   maxima of the first; AVERAGES: the averages' kernels, else those of maxima.
   Checked with: AVERAGES=1; AVERAGES=1 ADAPTIVE=1; ADAPTIVE=1; PICK=1; WINDOW_H=2 WINDOW_W=2. */
#ifndef DT
#define DT f32
#endif
#ifndef W
#define W 4
#endif
#ifndef AVERAGES
#define AVERAGES 0
#endif
#include "common.h"
#include "args.h"
#include "pool.args"

#define M MEMORY(DT)
#define MASK_OF(t) CAT(MASK_, t)
#define INDEX(l) VEC(MASK_OF(COMPUTE(DT)), l)
#define LANES(l) VEC(COMPUTE(DT), l)

/* One direction: image size, result size, size of a window, stride, zeros before. */
typedef struct { int in, out, window, stride, before; } axis;

#if AVERAGES || !defined(WINDOW_H)
static int window_begin(axis a, int i) {
#ifdef ADAPTIVE
    return (int)((long)i * a.in / a.out);
#else
    return max(i * a.stride - a.before, 0);
#endif
}
static int window_end(axis a, int i) {
#ifdef ADAPTIVE
    return (int)(((long)(i + 1) * a.in + a.out - 1) / a.out);
#else
    return min(i * a.stride - a.before + a.window, a.in);
#endif
}
#endif
/* The first and one past the last window that hold pixel p. */
static int first_window(axis a, int p) {
#ifdef ADAPTIVE
    return (int)((long)p * a.out / a.in);
#else
    int reach = p + a.before - a.window + 1;
    return reach <= 0 ? 0 : (reach + a.stride - 1) / a.stride;
#endif
}
static int end_window(axis a, int p) {
#ifdef ADAPTIVE
    return (int)(((long)(p + 1) * a.out + a.in - 1) / a.in);
#else
    return min((p + a.before) / a.stride + 1, a.out);
#endif
}

#define AXES const axis v = {in_h, out_h, kernel_h, stride_h, before_h}, h = {in_w, out_w, kernel_w, stride_w, before_w};
#ifdef WINDOW_H
#define WINDOW int y0 = oy * v.stride, y1 = y0 + WINDOW_H, x0 = ox * h.stride, x1 = x0 + WINDOW_W;
#define TAPS for (int y = y0; y < y1; y++) for (int x = x0; x < x1; x++)
#else
#define WINDOW int y0 = window_begin(v, oy), y1 = window_end(v, oy), x0 = window_begin(h, ox), x1 = window_end(h, ox);
#define TAPS                                                                                           \
    PLAIN_LOOP for (int y = y0; y < y1; y++) PLAIN_LOOP for (int x = x0; x < x1; x++)
#endif

/* Over the item's pixels of an image of `height` x `width`: n, row, column. */
#define PIXELS(height, width, row, column)                                                             \
    int begin = (int)get_global_id(0) * run;                                                           \
    PLAIN_LOOP                                                                                         \
    for (int p = begin, n = p / (width) / (height), row = p / (width) % (height), column = p % (width); \
         p < min(begin + run, pixels); p++, column++, row += column == (width), n += row == (height),  \
             row = row == (height) ? 0 : row, column = column == (width) ? 0 : column)
/* body(lanes) on channels from i on: vectors, of which the last moves back to end with the channels; fewer channels singly. */
#define CHANNELS(body)                                                                                 \
    int i = 0;                                                                                         \
    PLAIN_LOOP                                                                                         \
    for (int j = 0; c >= W && j < c; j += W) {                                                         \
        i = min(j, c - W);                                                                             \
        body(W)                                                                                        \
    }                                                                                                  \
    PLAIN_LOOP                                                                                         \
    for (; c < W && i < c; i++) body(1)

/* Within one image: 32 bits are enough (see infer in src/ops/pool.c). */
#define AT(y, x) (((y) * in_w + (x)) * c + i)
#define GRAD_AT(oy, ox) (((oy) * out_w + (ox)) * c + i)
#define IMAGE(base) ((base) + (long)n * in_h * in_w * c)
#define RESULT(base) ((base) + (long)n * out_h * out_w * c)
#define BETTER(a, m) (((a) > (m)) | (((a) != (a)) & ((m) == (m))))

#if !AVERAGES
#ifdef PICK
#define MAX_POOL_ARGS POOL_PAIR_ARGS
#else
#define MAX_POOL_ARGS POOL_ARGS
#endif
KERNEL(max_pool, MAX_POOL_ARGS) {
    UNPACK(MAX_POOL_ARGS)
    AXES
    __global const M *image = image_base + image_offset;
    __global M *to = to_base + to_offset;
#ifdef PICK
    __global const M *second = second_base + second_offset;
#define FIRST(l) LANES(l) chosen = LOAD(DT, l, second_plane, AT(y0, x0));
#define CHOOSE(l) chosen = better ? LOAD(DT, l, second_plane, AT(y, x)) : chosen;
#define CHOSEN chosen
#else
#define FIRST(l)
#define CHOOSE(l)
#define CHOSEN best
#endif
#define MAXIMUM(l)                                                                                     \
    {                                                                                                  \
        LANES(l) best = LOAD(DT, l, plane, AT(y0, x0));                                                \
        FIRST(l)                                                                                       \
        TAPS {                                                                                         \
            LANES(l) value = LOAD(DT, l, plane, AT(y, x));                                             \
            INDEX(l) better = BETTER(value, best);                                                     \
            best = better ? value : best;                                                              \
            CHOOSE(l)                                                                                  \
        }                                                                                              \
        STORE(DT, l, to, (long)p * c + i, CHOSEN);                                                     \
    }
    PIXELS(out_h, out_w, oy, ox) {
        __global const M *plane = IMAGE(image);
#ifdef PICK
        __global const M *second_plane = IMAGE(second);
#endif
        WINDOW
        CHANNELS(MAXIMUM)
    }
}

/* Windows that tile the image exactly: each writes its own pixels. */
KERNEL(max_pool_backward_tiles, POOL_PAIR_ARGS) {
    UNPACK(POOL_PAIR_ARGS)
    AXES
    __global const M *image = image_base + image_offset, *grad = second_base + second_offset;
    __global M *to = to_base + to_offset;
#define SCATTER(l)                                                                                     \
    {                                                                                                  \
        LANES(l) best = LOAD(DT, l, plane, AT(y0, x0)), g = LOAD(DT, l, grad, (long)p * c + i);        \
        INDEX(l) at = 0, zero = 0;                                                                     \
        TAPS {                                                                                         \
            LANES(l) value = LOAD(DT, l, plane, AT(y, x));                                             \
            INDEX(l) better = BETTER(value, best);                                                     \
            best = better ? value : best;                                                              \
            at = better ? zero + ((y - y0) * kernel_w + x - x0) : at;                                  \
        }                                                                                              \
        TAPS STORE(DT, l, to_plane, AT(y, x), at == (y - y0) * kernel_w + x - x0 ? g : (LANES(l))(0));       \
    }
    PIXELS(out_h, out_w, oy, ox) {
        __global const M *plane = IMAGE(image);
        __global M *to_plane = IMAGE(to);
        WINDOW
        CHANNELS(SCATTER)
    }
}

KERNEL(max_pool_backward, POOL_PAIR_ARGS) {
    UNPACK(POOL_PAIR_ARGS)
    AXES
    __global const M *image = image_base + image_offset, *grad = second_base + second_offset;
    __global M *to = to_base + to_offset;
    /* Not chosen: when beaten, or met by an equal before. */
#define GATHER(l)                                                                                      \
    {                                                                                                  \
        LANES(l) mine = LOAD(DT, l, plane, AT(py, px)), sum = 0;                                       \
        INDEX(l) number = mine == mine;                                                                \
        PLAIN_LOOP for (int oy = oy0; oy < oy1; oy++) PLAIN_LOOP for (int ox = ox0; ox < ox1; ox++) {  \
            INDEX(l) lost = 0;                                                                         \
            WINDOW                                                                                     \
            TAPS {                                                                                     \
                LANES(l) value = LOAD(DT, l, plane, AT(y, x));                                         \
                bool earlier = y < py || (y == py && x < px);                                          \
                if (earlier) lost |= (number & !(value < mine)) | (!number & (value != value));        \
                else lost |= number & !(value <= mine);                                                \
            }                                                                                          \
            LANES(l) g = LOAD(DT, l, grad_plane, GRAD_AT(oy, ox));                                           \
            sum += lost ? (LANES(l))(0) : g;                                                           \
        }                                                                                              \
        STORE(DT, l, to, (long)p * c + i, sum);                                                        \
    }
    PIXELS(in_h, in_w, py, px) {
        int oy0 = first_window(v, py), oy1 = end_window(v, py), ox0 = first_window(h, px), ox1 = end_window(h, px);
        __global const M *plane = IMAGE(image), *grad_plane = RESULT(grad);
        CHANNELS(GATHER)
    }
}

#else
/* What an average divides by. */
static int divisor(axis v, axis h, int oy, int ox, int exclude) {
#ifdef ADAPTIVE
    exclude = 1;
#endif
    int inside = (window_end(v, oy) - window_begin(v, oy)) * (window_end(h, ox) - window_begin(h, ox));
    return exclude ? inside : v.window * h.window;
}

KERNEL(avg_pool, POOL_ARGS) {
    UNPACK(POOL_ARGS)
    AXES
    __global const M *image = image_base + image_offset;
    __global M *to = to_base + to_offset;
#define AVERAGE(l)                                                                                     \
    {                                                                                                  \
        LANES(l) sum = 0;                                                                              \
        TAPS sum += LOAD(DT, l, plane, AT(y, x));                                                      \
        STORE(DT, l, to, (long)p * c + i, sum / (COMPUTE(DT))count);                                   \
    }
    PIXELS(out_h, out_w, oy, ox) {
        __global const M *plane = IMAGE(image);
        WINDOW
        int count = divisor(v, h, oy, ox, exclude);
        CHANNELS(AVERAGE)
    }
}

KERNEL(avg_pool_backward, POOL_ARGS) {
    UNPACK(POOL_ARGS)
    AXES
    __global const M *grad = image_base + image_offset;
    __global M *to = to_base + to_offset;
#define SHARE(l)                                                                                       \
    {                                                                                                  \
        LANES(l) sum = 0;                                                                              \
        PLAIN_LOOP for (int oy = oy0; oy < oy1; oy++) PLAIN_LOOP for (int ox = ox0; ox < ox1; ox++)    \
            sum += LOAD(DT, l, grad_plane, GRAD_AT(oy, ox)) / (COMPUTE(DT))divisor(v, h, oy, ox, exclude);   \
        STORE(DT, l, to, (long)p * c + i, sum);                                                        \
    }
    PIXELS(in_h, in_w, py, px) {
        int oy0 = first_window(v, py), oy1 = end_window(v, py), ox0 = first_window(h, px), ox1 = end_window(h, px);
        __global const M *grad_plane = RESULT(grad);
        CHANNELS(SHARE)
    }
}
#endif
