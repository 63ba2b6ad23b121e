/* augment.c — random changes of one image.  What happens is drawn from (seed, epoch, item) alone and each kind has
   its own lane of the draw, so switching one kind on or off, or the number of threads, leaves the others as they
   were. Pixels are taken to lie in [0,1], before normalisation; what comes in from outside the image is 0. */
#include "data/data_internal.h"
#include <math.h>
#include <string.h>

bool clef__augments(const clef_augment *o) {
    return o->crop_padding || o->shift || o->flip || o->rotation != 0 || o->brightness != 0 || o->contrast != 0 || o->cutout;
}

const char *clef__augment_wrong(const clef_augment *o) {
    enum { FAR = 1 << 20 };
    if (o->crop_padding < 0 || o->crop_padding > FAR || o->shift < 0 || o->shift > FAR || o->cutout < 0 || o->cutout > FAR)
        return "crop_padding, shift and cutout are 0 to 1048576 pixels";
    if (!(o->rotation >= 0 && o->rotation <= 180)) return "rotation is 0 to 180 degrees";
    if (!(o->brightness >= 0 && o->brightness <= 1 && o->contrast >= 0 && o->contrast <= 1))
        return "brightness and contrast are 0 to 1";
    return NULL;
}

/* Uniform on low … low+count-1 (count far below 2^32: the bias is below 2^-11). */
static int integer(uint32_t word, int low, int count) { return low + (int)((uint64_t)word * (uint64_t)count >> 32); }

/* Uniform on [-1, 1). */
static double symmetric(uint32_t word) { return (double)(word >> 8) * 0x1p-23 - 1.0; }

static void cut_range(int centre, int side, int size, int *from, int *to) {
    int low = centre - side / 2, high = low + side;
    *from = low < 0 ? 0 : low;
    *to = high > size ? size : high;
}

clef__change clef__augment_draw(const clef_augment *o, uint64_t seed, uint32_t epoch, int64_t item, int height, int width) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, word[12];
    for (uint32_t block = 0; block < 3; block++)
        clef__philox(key, (uint32_t[4]){(uint32_t)item, (uint32_t)((uint64_t)item >> 32), epoch, CLEF__DRAW_AUGMENT + block},
                     word + 4 * block);
    clef__change c = {.brightness = 1, .contrast = 1};
    /* Cropping at random after padding by p is shifting by -p … p; both offsets add up. */
    int p = o->crop_padding, s = o->shift;
    c.dx = integer(word[0], -p, 2 * p + 1) + integer(word[2], -s, 2 * s + 1);
    c.dy = integer(word[1], -p, 2 * p + 1) + integer(word[3], -s, 2 * s + 1);
    c.flip = o->flip && word[4] >> 31;
    c.angle = o->rotation * symmetric(word[5]);
    c.brightness = (float)(1.0 + o->brightness * symmetric(word[6]));
    c.contrast = (float)(1.0 + o->contrast * symmetric(word[7]));
    if (o->cutout > 0) {
        cut_range(integer(word[8], 0, width), o->cutout, width, &c.cut_x0, &c.cut_x1);
        cut_range(integer(word[9], 0, height), o->cutout, height, &c.cut_y0, &c.cut_y1);
    }
    return c;
}

static float pixel_or_zero(const float *plane, int height, int width, int y, int x) {
    return y >= 0 && y < height && x >= 0 && x < width ? plane[(size_t)y * (size_t)width + (size_t)x] : 0.0f;
}

/* Bilinear at column x0 + ax of row y0 + ay. */
static float sample(const float *p, int height, int width, int y0, int x0, float ay, float ax) {
    float v00, v01, v10, v11;
    if (y0 >= 0 && y0 + 1 < height && x0 >= 0 && x0 + 1 < width) {
        p += (size_t)y0 * (size_t)width + (size_t)x0;
        v00 = p[0], v01 = p[1], v10 = p[width], v11 = p[width + 1];
    } else {
        v00 = pixel_or_zero(p, height, width, y0, x0);
        v01 = pixel_or_zero(p, height, width, y0, x0 + 1);
        v10 = pixel_or_zero(p, height, width, y0 + 1, x0);
        v11 = pixel_or_zero(p, height, width, y0 + 1, x0 + 1);
    }
    float top = (1 - ax) * v00 + ax * v01, bottom = (1 - ax) * v10 + ax * v11;
    return (1 - ay) * top + ay * bottom;
}

/* out(y, x) = bilinear sample of in at the point rotated back by the angle around the image's centre. */
static void rotate(double degrees, int channels, int height, int width, const float *in, float *out) {
    double angle = degrees * (3.14159265358979323846 / 180.0), cosine = cos(angle), sine = sin(angle);
    double cx = 0.5 * (width - 1), cy = 0.5 * (height - 1);
    size_t plane = (size_t)height * (size_t)width;
    int far = height + width; /* makes every coordinate positive, so that conversion to int rounds down */
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++, out++) {
            double sx = cx + cosine * (x - cx) - sine * (y - cy), sy = cy + sine * (x - cx) + cosine * (y - cy);
            int x0 = (int)(sx + far) - far, y0 = (int)(sy + far) - far;
            float ax = (float)(sx - x0), ay = (float)(sy - y0);
            for (int c = 0; c < channels; c++)
                out[(size_t)c * plane] = sample(in + (size_t)c * plane, height, width, y0, x0, ay, ax);
        }
}

static void move_row(const clef__change *t, int width, const float *in, float *out) {
    int from = t->dx < 0 ? -t->dx : 0, to = t->dx > 0 ? width - t->dx : width; /* columns that stay inside */
    memset(out, 0, (size_t)width * sizeof *out);
    if (!t->flip && from < to) memcpy(out + from, in + from + t->dx, (size_t)(to - from) * sizeof *out);
    if (t->flip)
        for (int x = from; x < to; x++) out[width - 1 - x] = in[x + t->dx];
}

static void move(const clef__change *t, int channels, int height, int width, const float *in, float *out) {
    size_t row = (size_t)width;
    for (int c = 0; c < channels; c++, in += row * (size_t)height, out += row * (size_t)height)
        for (int y = 0; y < height; y++) {
            int from = y + t->dy;
            if (from < 0 || from >= height) memset(out + (size_t)y * row, 0, row * sizeof *out);
            else move_row(t, width, in + (size_t)from * row, out + (size_t)y * row);
        }
}

static float clamp01(float v) { return v < 0 ? 0 : v > 1 ? 1 : v; }

/* x·brightness, then around the image's mean: mean + (x - mean)·contrast, each held to [0,1]. */
static void light(const clef__change *t, size_t n, float *image) {
    if (t->brightness != 1)
        for (size_t i = 0; i < n; i++) image[i] = clamp01(image[i] * t->brightness);
    if (t->contrast == 1) return;
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += image[i];
    float mean = (float)(sum / (double)n);
    for (size_t i = 0; i < n; i++) image[i] = clamp01((image[i] - mean) * t->contrast + mean);
}

static void cut(const clef__change *t, int channels, int height, int width, float *image) {
    if (t->cut_x1 <= t->cut_x0) return;
    for (int c = 0; c < channels; c++)
        for (int y = t->cut_y0; y < t->cut_y1; y++)
            memset(image + ((size_t)c * (size_t)height + (size_t)y) * (size_t)width + t->cut_x0, 0,
                   (size_t)(t->cut_x1 - t->cut_x0) * sizeof *image);
}

void clef__augment_apply(const clef__change *t, int channels, int height, int width, float *image, float *scratch) {
    size_t n = (size_t)channels * (size_t)height * (size_t)width;
    if (t->angle != 0) {
        memcpy(scratch, image, n * sizeof *image);
        rotate(t->angle, channels, height, width, scratch, image);
    }
    if (t->dx != 0 || t->dy != 0 || t->flip) {
        memcpy(scratch, image, n * sizeof *image);
        move(t, channels, height, width, scratch, image);
    }
    light(t, n, image);
    cut(t, channels, height, width, image);
}
