/* Augmentation against images written out by hand and against plain formulas, without a device. */
#include "data_support.h"
#include <criterion/criterion.h>
#include <math.h>

enum { C = 2, H = 5, W = 4, N = C * H * W };

static void ramp(float *image) {
    for (int i = 0; i < N; i++) image[i] = (float)(i + 1) / N;
}

static float at(const float *image, int c, int y, int x) {
    return y < 0 || y >= H || x < 0 || x >= W ? 0 : image[(c * H + y) * W + x];
}

static clef__change none(void) { return (clef__change){.brightness = 1, .contrast = 1}; }

Test(augment, moves_and_flips) {
    float from[N], image[N], scratch[N];
    ramp(from);
    for (int dy = -6; dy <= 6; dy++)
        for (int dx = -6; dx <= 6; dx++)
            for (int flip = 0; flip < 2; flip++) {
                clef__change t = none();
                t.dx = dx, t.dy = dy, t.flip = flip;
                ramp(image);
                clef__augment_apply(&t, C, H, W, image, scratch);
                for (int c = 0; c < C; c++)
                    for (int y = 0; y < H; y++)
                        for (int x = 0; x < W; x++)
                            cr_assert_eq(at(image, c, y, x), at(from, c, y + dy, (flip ? W - 1 - x : x) + dx),
                                         "dx %d dy %d flip %d at %d,%d,%d", dx, dy, flip, c, y, x);
            }
}

/* 90 degrees counter-clockwise of a square: out(y, x) = in(x, n-1-y). */
Test(augment, turns_by_a_right_angle) {
    enum { S = 5 };
    float image[S * S], from[S * S], scratch[S * S];
    for (int i = 0; i < S * S; i++) image[i] = from[i] = (float)i;
    clef__change t = none();
    t.angle = 90;
    clef__augment_apply(&t, 1, S, S, image, scratch);
    for (int y = 0; y < S; y++)
        for (int x = 0; x < S; x++) cr_assert_float_eq(image[y * S + x], from[x * S + S - 1 - y], 1e-4);
}

/* On a plane ax + by + c, bilinear sampling is exact wherever all four neighbours are inside. */
Test(augment, turns_a_plane_exactly) {
    enum { S = 21 };
    static float image[S * S], scratch[S * S];
    for (int y = 0; y < S; y++)
        for (int x = 0; x < S; x++) image[y * S + x] = 0.3f + 0.01f * (float)x + 0.02f * (float)y;
    clef__change t = none();
    t.angle = 17;
    clef__augment_apply(&t, 1, S, S, image, scratch);
    double a = 17 * acos(-1.0) / 180, m = (S - 1) / 2.0;
    int inside = 0;
    for (int y = 0; y < S; y++)
        for (int x = 0; x < S; x++) {
            double sx = m + cos(a) * (x - m) - sin(a) * (y - m), sy = m + sin(a) * (x - m) + cos(a) * (y - m);
            if (sx < 0 || sy < 0 || sx > S - 1 || sy > S - 1) continue;
            inside++;
            cr_assert_float_eq(image[y * S + x], 0.3 + 0.01 * sx + 0.02 * sy, 1e-5);
        }
    cr_assert_gt(inside, 300);
    cr_assert_eq(image[0], 0, "the corner comes from outside");
}

Test(augment, changes_light) {
    float from[N], image[N], scratch[N];
    ramp(from);
    clef__change t = none();
    t.brightness = 1.5f;
    ramp(image);
    clef__augment_apply(&t, C, H, W, image, scratch);
    for (int i = 0; i < N; i++) cr_assert_float_eq(image[i], fmin(1, from[i] * 1.5), 1e-6);
    t = none();
    t.contrast = 0.5f;
    ramp(image);
    clef__augment_apply(&t, C, H, W, image, scratch);
    double mean = (N + 1) / (2.0 * N);
    for (int i = 0; i < N; i++) cr_assert_float_eq(image[i], mean + (from[i] - mean) * 0.5, 1e-6);
}

Test(augment, cuts_a_square) {
    float from[N], image[N], scratch[N];
    ramp(from);
    ramp(image);
    clef__change t = none();
    t.cut_x0 = 1, t.cut_x1 = 3, t.cut_y0 = 2, t.cut_y1 = 5;
    clef__augment_apply(&t, C, H, W, image, scratch);
    for (int c = 0; c < C; c++)
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++) cr_assert_eq(at(image, c, y, x), x >= 1 && x < 3 && y >= 2 ? 0 : at(from, c, y, x));
}

static const clef_augment everything = {
    .crop_padding = 2, .shift = 1, .flip = true, .rotation = 15, .brightness = 0.2, .contrast = 0.3, .cutout = 4};

Test(augment, draws_within_bounds_and_reaches_them) {
    int dx[2] = {0, 0}, dy[2] = {0, 0}, flips = 0, full = 0;
    double angle[2] = {0, 0}, sum = 0;
    for (int64_t item = 0; item < 20000; item++) {
        clef__change t = clef__augment_draw(&everything, 7, 3, item, 16, 12);
        dx[0] = t.dx < dx[0] ? t.dx : dx[0], dx[1] = t.dx > dx[1] ? t.dx : dx[1];
        dy[0] = t.dy < dy[0] ? t.dy : dy[0], dy[1] = t.dy > dy[1] ? t.dy : dy[1];
        angle[0] = fmin(angle[0], t.angle), angle[1] = fmax(angle[1], t.angle);
        flips += t.flip;
        sum += t.brightness;
        cr_assert(fabs(t.brightness - 1) <= 0.2001 && fabs(t.contrast - 1) <= 0.3001);
        cr_assert(t.cut_x0 >= 0 && t.cut_x0 < t.cut_x1 && t.cut_x1 <= 12 && t.cut_x1 - t.cut_x0 <= 4);
        cr_assert(t.cut_y0 >= 0 && t.cut_y0 < t.cut_y1 && t.cut_y1 <= 16 && t.cut_y1 - t.cut_y0 <= 4);
        full += t.cut_x1 - t.cut_x0 == 4 && t.cut_y1 - t.cut_y0 == 4;
    }
    cr_assert(dx[0] == -3 && dx[1] == 3 && dy[0] == -3 && dy[1] == 3);
    cr_assert(angle[0] < -14.9 && angle[0] >= -15 && angle[1] > 14.9 && angle[1] <= 15);
    cr_assert(flips > 9700 && flips < 10300, "%d flips", flips);
    cr_assert_float_eq(sum / 20000, 1, 0.003);
    cr_assert_gt(full, 8000);
}

Test(augment, is_a_function_of_seed_epoch_and_item) {
    clef__change a = clef__augment_draw(&everything, 7, 3, 11, 16, 16);
    clef__change b = clef__augment_draw(&everything, 7, 3, 11, 16, 16);
    cr_assert(a.dx == b.dx && a.dy == b.dy && a.angle == b.angle && a.cut_x0 == b.cut_x0);
    cr_assert_neq(clef__augment_draw(&everything, 8, 3, 11, 16, 16).angle, a.angle);
    cr_assert_neq(clef__augment_draw(&everything, 7, 4, 11, 16, 16).angle, a.angle);
    cr_assert_neq(clef__augment_draw(&everything, 7, 3, 12, 16, 16).angle, a.angle);
}

Test(augment, kinds_are_drawn_apart) {
    clef_augment less = {.rotation = 15};
    for (int64_t item = 0; item < 50; item++) {
        clef__change t = clef__augment_draw(&less, 7, 3, item, 16, 16);
        cr_assert_eq(t.angle, clef__augment_draw(&everything, 7, 3, item, 16, 16).angle);
        cr_assert(t.dx == 0 && t.dy == 0 && !t.flip && t.brightness == 1 && t.contrast == 1 && t.cut_x1 == t.cut_x0);
    }
}

Test(augment, refuses_options_out_of_range) {
    cr_assert_null(clef__augment_wrong(&everything));
    cr_assert_not_null(clef__augment_wrong(&(clef_augment){.shift = -1}));
    cr_assert_not_null(clef__augment_wrong(&(clef_augment){.crop_padding = 1 << 21}));
    cr_assert_not_null(clef__augment_wrong(&(clef_augment){.rotation = NAN}));
    cr_assert_not_null(clef__augment_wrong(&(clef_augment){.rotation = 181}));
    cr_assert_not_null(clef__augment_wrong(&(clef_augment){.brightness = 1.5}));
    cr_assert_not_null(clef__augment_wrong(&(clef_augment){.contrast = -0.1}));
    cr_assert_not_null(clef__augment_wrong(&(clef_augment){.cutout = -2}));
}
